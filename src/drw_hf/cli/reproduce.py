"""Repeating the paper: its tables and figures, from a profile."""

import collections
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as shared
from .output import INTERRUPTED, Outcome, prints_outcome, quieten, show_progress

if TYPE_CHECKING:
    from ..experiments.costs import Costs
    from ..runs.jobs import Run

TABLES = "tables.md"


@prints_outcome
def reproduce(
    profile: Annotated[
        str,
        typer.Argument(help="tiny, minilm, paper, smoke, or a TOML file of your own like them.", metavar="PROFILE"),
    ] = "tiny",
    part: Annotated[
        list[shared.Part] | None, typer.Option(help="What of the paper (default: tables). May be repeated.")
    ] = None,
    task: Annotated[
        list[shared.PaperTask] | None, typer.Option(help="Which tasks (default: the profile's). May be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        shared.path_option(
            "Folder with sst2, mrpc and conll2003, as JSON lines (default: from the Hub).", metavar="FOLDER"
        ),
    ] = None,
    encoder: Annotated[
        str | None, shared.model_option("--encoder", "The pretrained encoder, in place of the profile's")
    ] = None,
    other_encoder: Annotated[
        str | None,
        shared.model_option(
            "--other-encoder", "Another one, for the case study's student that differs from its victim"
        ),
    ] = None,
    students: Annotated[
        int | None, typer.Option(help="Students of every kind (default: the profile's number).", min=1, metavar="N")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the lines, tables and figures.", metavar="FOLDER")] = Path(
        "drw-reproduce"
    ),
    work: Annotated[
        Path | None, typer.Option(help="Folder for models and probes (default: OUTPUT/work).", metavar="FOLDER")
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes at work, each with a GPU, or its share of the cores.", min=1, metavar="N")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the jobs and what they would cost.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write tables and figures of what is there.")] = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
    as_json: shared.AsJson = False,
) -> Outcome:
    """Repeat the paper: train victims, thieves and innocents, test them all, and write the tables and figures.

    Every job (a model to train, to probe or to score) writes one line of JSON as it ends; stopped and started again,
    a run goes on where it was. The paper's own size is the profile paper, for GPUs; tiny takes a minute or two per
    student on one CPU core. It needs the extra experiments: pip install "drw_hf[experiments]".

    \b
    Example: drw-hf reproduce tiny --data my-data --dry-run
    Example: drw-hf reproduce tiny --task pos --students 2 --workers 2 --data my-data
    Example: drw-hf reproduce paper --part tables --part epsilon --workers 8
    """
    from ..experiments import library
    from ..experiments.costs import Costs
    from ..experiments.jobs import make_jobs
    from ..experiments.profiles import load_profile
    from ..experiments.work import Workshop
    from ..runs.jobs import Run, start_workers, visible_gpus, watch, work_through
    from ..runs.progress import progress_bar

    if report:
        return _report(output)
    chosen = load_profile(profile, encoder=encoder)
    jobs = make_jobs(
        chosen,
        parts=[one.value for one in part or [shared.Part.tables]],
        tasks=[one.value for one in task] if task else None,
        students=students,
        other_encoder=other_encoder is not None,
    )
    folder = (work or output / "work") / chosen.name
    run = Run(Workshop(chosen, folder, data, other_encoder), jobs, output / f"{chosen.name}.jsonl")
    costs = Costs.of(run.workshop, (job.task for job in jobs))
    shown = show_progress()
    if dry_run:
        return _cost(run, costs, workers)
    for name in ("pandas", "seqeval"):
        library(name)  # what is missing is said now, not by a job in the night
    run.prepare()
    if worker:
        quieten()
        work_through(run)
        return Outcome({}, "")
    run.forget_failures()
    try:
        with progress_bar(run, chosen.name, lambda: costs.seconds_left(run), workers, shown) as update:
            # Of several GPUs, Trainer would take all at once, and train with larger batches than the profile says.
            if workers > 1 or len(visible_gpus()) > 1:
                watch(run, start_workers([*sys.argv[1:], "--worker"], workers, folder), update)
            else:
                quieten()
                work_through(run, update)
    except KeyboardInterrupt:
        typer.echo("Interrupted. The jobs that ended are kept: the same command goes on where it stopped.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    outcome = _report(output)
    run.check_finished()
    return outcome


def _report(output: Path) -> Outcome:
    from ..experiments.figures import draw_all
    from ..experiments.write_up import write_up
    from ..runs.lines import read_lines

    files = sorted(file for file in output.glob("*.jsonl") if not file.name.endswith(".failed.jsonl"))
    if not any(read_lines(file) for file in files):
        raise typer.BadParameter(f"{output} holds no results yet; run without --report first")
    text, tables = write_up(files), output / TABLES
    tables.write_text(text, encoding="utf-8")
    drawn = [str(file) for file in draw_all(files, output)]
    document = {"lines": [str(file) for file in files], "tables": str(tables), "figures": drawn}
    return Outcome(document, f"{text}\nWrote {tables} and {len(drawn)} figures.")


def _cost(run: "Run", costs: "Costs", workers: int) -> Outcome:
    """The jobs that are still to do, and what they would cost here."""
    from ..experiments.costs import bytes_per_model, operations_per_token, tokens_per_second
    from ..experiments.jobs import KINDS
    from ..runs.progress import in_words

    profile, done = run.workshop.profile, run.done()
    todo = run.open_jobs(done)
    tokens = sum(costs.of_job(job) for job in todo)
    seconds, how = costs.seconds(todo, done.values()), "by the jobs done so far"
    if seconds is None and todo:
        length = round(max(costs.tokens.values()))
        largest = max(settings.student.batch_size for settings in profile.settings.values())
        seconds = tokens / tokens_per_second(profile.encoder, length, largest)
        how = "by timing some steps of training now"
    seconds = (seconds or 0.0) / workers
    document: dict[str, Any] = {
        "profile": profile.name,
        "jobs": [job.name for job in todo],
        "done": len(run.jobs) - len(todo),
        "tokens": round(tokens),
        "operations": tokens * operations_per_token(profile.encoder),
        "seconds": round(seconds),
        "bytes": round(bytes_per_model(profile.encoder) * sum(job.kind in ("victim", "student") for job in todo)),
    }
    counts = collections.Counter(job.kind for job in todo)
    counted = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if counts[kind]) or "none"
    lines = [
        *document["jobs"],
        "",
        f"{len(todo)} jobs to do ({counted}), {document['done']} done.",
        f"About {tokens / 1e6:,.0f} million tokens forward (a training step counts three times), "
        f"{document['operations'] / 1e15:,.1f} × 10¹⁵ operations; on this machine with {workers} "
        f"worker{'s' if workers > 1 else ''} {in_words(seconds)}, {how}.",
        f"The models take {document['bytes'] / 1e9:,.1f} GB in {run.workshop.folder}.",
    ]
    return Outcome(document, "\n".join(lines))
