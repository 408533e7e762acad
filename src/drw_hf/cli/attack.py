"""Rehearsing the theft: every attack that is known, on a model of one's own."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as shared
from .output import Outcome, interruptible, prints_outcome, quieten, show_progress

if TYPE_CHECKING:
    from ..planning.rehearsal_bench import Bench
    from ..runs.jobs import Run

RESULT, PICTURE, PAGE = "rehearsal.json", "rehearsal.png", "rehearsal.html"


@prints_outcome
def attack(
    model: Annotated[
        str | None,
        typer.Argument(
            help="Your model, clean or protected: folder or Hub id.",
            metavar="MODEL",
            autocompletion=shared.complete_path,
        ),
    ] = None,
    key: shared.OptionalKey = None,
    data: Annotated[
        str | None,
        shared.path_option("Text like that which thieves would ask about, best labelled; some thousand rows."),
    ] = None,
    attacks: Annotated[
        str, shared.name_option("What is played: all, or names with commas between them.", "NAMES")
    ] = "all",
    unseen: Annotated[
        str | None,
        shared.path_option("Text that no thief asks about (default: a fifth of --data, and a fifth for --others)."),
    ] = None,
    others: Annotated[str | None, shared.path_option("More text of the thief's, for students of students.")] = None,
    student: Annotated[
        str | None,
        shared.model_option("--student", "What students start from (default: a small transformer from scratch)"),
    ] = None,
    student_epochs: Annotated[
        float | None, shared.number_option("How often a student goes through the data (default: 8; with --student 5).")
    ] = None,
    learning_rate: Annotated[
        float | None, shared.number_option("A student's largest step size (default: 1e-3; with --student 1e-4).")
    ] = None,
    label_kind: Annotated[
        shared.LabelKind | None,
        typer.Option(help="What is served: probabilities, or labels (default: as the model does, else soft)."),
    ] = None,
    digits: Annotated[
        int | None,
        typer.Option(metavar="N", help="Scores are served with so many digits (default: as the model does)."),
    ] = None,
    level: Annotated[float, typer.Option(help="A p-value above it is an escape.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 1,
    output: Annotated[
        Path, shared.output_option("Folder for what comes out, and for models and answers on the way.")
    ] = Path("drw-attack"),
    workers: Annotated[
        int, typer.Option(help="Processes at work, each with a GPU, or its share of the cores.", min=1, metavar="N")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be played, and how long it would take.")
    ] = False,
    list_all: Annotated[
        bool, shared.flag("--list", "Only list the attacks, and what a thief needs for each.")
    ] = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
    *,
    whose: shared.WhoseKey,
    label_column: shared.LabelColumn = None,
    reading: shared.Reading,
    limit: shared.Limit = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Rehearse the theft of your model: what would each attack cost a thief, and what evidence would be left?

    A thief asks the protected model about --data and trains a student, once for every attack; you then test the
    student, with the log of what was asked and with text that was not. Every attack writes one line as it ends:
    stopped and started again, a rehearsal goes on where it was, and attacks that are named later are added. In
    --output are then rehearsal.json, rehearsal.png (accuracy lost against evidence left) and the page rehearsal.html,
    which show nothing of the key.

    \b
    Example: drw-hf attack --list
    Example: drw-hf attack my-classifier --key my-key --data labelled.csv --dry-run
    Example: drw-hf attack my-classifier --key my-key --data labelled.csv --attacks argmax,serves-labels
    """
    from ..checks import check_level
    from ..planning.rehearsal_pace import seconds_left, try_pace
    from ..planning.rehearse import check_played, make_bench, prepare, recipe_for
    from ..runs.jobs import start_workers, visible_gpus, watch, work_through
    from ..runs.progress import progress_bar
    from .passphrases import handed_on, key_and_passphrase_of, key_of_user

    if list_all:
        return _list()
    if model is None or data is None:
        raise typer.BadParameter("MODEL or --data is missing; give your model and text to attack it with, or --list")
    check_level(level)
    shown = show_progress()
    quieten()
    opened, passphrase = key_and_passphrase_of(model, key, passphrase_file)
    if opened is None:
        raise typer.BadParameter(f"--key is missing, and {model} is not protected; name the key that you made for it")
    owners = key_of_user(opened, whose)
    elsewhere = replace(reading, split=None, subset=None)  # those are of --data
    bench = make_bench(
        model,
        owners,
        reading.load(data, owners.task, limit),
        unseen=None if unseen is None else elsewhere.load(unseen, owners.task),
        others=None if others is None else elsewhere.load(others, owners.task),
        student=recipe_for(student, student_epochs, learning_rate),
        label_kind=label_kind,
        digits=digits,
        seed=seed,
        folder=output,
        text_columns=reading.text_column,
        label_column=label_column,
    )
    names = attacks if attacks == "all" else [name.strip() for name in attacks.split(",")]
    run, left_out = prepare(bench, names)
    if dry_run:
        return _cost(run, bench, left_out, workers)
    run.prepare()
    if worker:
        work_through(run)
        return Outcome({}, "")
    run.forget_failures()
    pace = try_pace(bench) if shown and run.open_jobs() else None
    with (
        interruptible("The attacks that ended are kept: the same command goes on where it stopped."),
        progress_bar(run, "attacks", lambda: seconds_left(run, pace), workers, shown) as update,
    ):
        if workers > 1 or len(visible_gpus()) > 1:  # of several GPUs, a student would take all
            with handed_on(passphrase):
                processes = start_workers([*sys.argv[1:], "--worker"], workers, output / "workers")
            watch(run, processes, update)
        else:
            work_through(run, update)
    outcome = _outcome(run, left_out, level, output)
    check_played(run)
    return outcome


def _outcome(run: "Run", left_out: Mapping[str, str], level: float, output: Path) -> Outcome:
    """What was played, written into the folder; nothing where what all are compared with is missing."""
    from ..planning.rehearsal import rehearsal_of
    from ..planning.rehearse import COMPARED
    from ..runs.lines import read_lines

    if not set(COMPARED) <= run.done().keys():
        return Outcome({}, "")
    found = rehearsal_of(read_lines(run.lines), left_out, level)
    found.save(output / RESULT)
    found.plot(output / PICTURE)
    found.page(output / PAGE)
    files = {"rehearsal": output / RESULT, "plot": output / PICTURE, "page": output / PAGE}
    document = {**found.document(), "conclusion": found.conclusion(), "files": {k: str(v) for k, v in files.items()}}
    return Outcome(document, f"{found}\nWrote {output / RESULT}, the picture {PICTURE} and the page {PAGE} beside it.")


def _list() -> Outcome:
    from ..extraction.attacks import ATTACKS, STAGES, attack_named

    known = [attack_named(name) for name in ATTACKS]
    document = {
        "attacks": [{"attack": one.name, "stage": one.stage, "title": one.title, "needs": one.needs} for one in known]
    }
    lines = []
    for stage, words in STAGES.items():
        lines += ["", f"What is done {words}:"]
        for one in (one for one in known if one.stage == stage):
            needs = "" if one.needs == "nothing more" else f" (needs {one.needs})"
            lines.append(f"  {one.name:<30} {one.title}{needs}")
    return Outcome(document, "\n".join(lines[1:]))


def _cost(run: "Run", bench: "Bench", left_out: Mapping[str, str], workers: int) -> Outcome:
    """What would still be played, and what it would take here."""
    from ..extraction.attacks import attack_named
    from ..planning.rehearsal_bench import INNOCENT
    from ..planning.rehearsal_pace import questions_asked, seconds_left, try_pace
    from ..planning.rehearse import COMPARED
    from ..runs.progress import in_words

    todo = [job.name for job in run.open_jobs()]
    played = [attack_named(name) for name in todo if name not in (*COMPARED, INNOCENT)]
    left = seconds_left(run, try_pace(bench)) if todo else 0.0
    document: dict[str, Any] = {
        "attacks": [{"attack": one.name, "title": one.title, "needs": one.needs} for one in played],
        "left_out": dict(left_out),
        "done": len(run.jobs) - len(todo),
        "texts": {name: len(getattr(bench, name)) for name in ("queries", "unseen", "others")},
        "questions": questions_asked(todo, len(bench.queries)),
        "seconds": round((left or 0.0) / workers),
    }
    lines = [f"{one.name:<30} {one.needs}" for one in played]
    lines += [f"Not played: {name} ({why})." for name, why in left_out.items()]
    texts = document["texts"]
    lines += [
        "",
        f"{len(played)} attacks to play, and what they are compared with; {document['done']} of {len(run.jobs)} jobs "
        f"are done. The thief has {texts['queries']:,} texts and {texts['others']:,} more, you have "
        f"{texts['unseen']:,} unseen ones.",
        f"The thieves ask {document['questions']:,} questions in all. On this machine with {workers} "
        f"worker{'s' * (workers > 1)} that takes about {in_words(document['seconds'])}, by trying some steps now.",
    ]
    return Outcome(document, "\n".join(lines))
