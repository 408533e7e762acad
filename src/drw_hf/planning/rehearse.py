"""`rehearse`: play the theft of your model before a thief does, with every attack that is known."""

import dataclasses
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..asking.models import load_clean, load_tokenizer
from ..asking.questions import find_text_columns
from ..checks import check_choice, check_level
from ..detection.probing import without_mark
from ..errors import DatasetError, InvalidInputError
from ..extraction.attacks import ATTACKS, attack_named
from ..extraction.students import Recipe
from ..keys.choices import LABEL_KINDS, LabelKind
from ..keys.key import WatermarkKey
from ..runs.jobs import Run, work_through
from ..runs.lines import Record, read_lines
from .labels import check_one_split, find_label_column, right_labels
from .rehearsal import Rehearsal, rehearsal_of
from .rehearsal_bench import INNOCENT, NOTHING, Bench

LINES = "rehearsal.jsonl"
BASELINE = "baseline"
SHARES = {"queries": 0.6, "unseen": 0.2}  # of the data, where no other split is given; the rest is `others`
_LEAST_TEXTS = 20  # of the thief's; fewer teach nothing
_EXTRA = 0.3  # what asking and testing take, in trainings


def rehearse(
    model: Any,
    key: WatermarkKey,
    data: Dataset,
    *,
    tokenizer: Any = None,
    attacks: str | Iterable[str] = "all",
    unseen: Dataset | None = None,
    others: Dataset | None = None,
    student: str | Recipe | None = None,
    label_kind: LabelKind | None = None,
    seed: int = 1,
    level: float = 1e-3,
    folder: str | os.PathLike[str] | None = None,
    text_columns: str | Sequence[str] | None = None,
    label_column: str | None = None,
    on_done: Callable[[], None] = lambda: None,
) -> Rehearsal:
    """Play attacks on your model under your key, and see what each costs the thief and what evidence it leaves.

    A thief asks the protected model about its queries and trains a student, once for every attack; the owner then
    tests the student with the log of what was asked, and with unseen text. All students are yours: nothing leaves the
    machine.

    Parameters
    ----------
    model : model or str
        Your model, clean or protected, in memory or by its folder or Hub id.
    key : WatermarkKey
        Its key; of a ring that of a user.
    data : Dataset
        Text like that which thieves would ask about, best with right labels; the victim should not have been trained
        on it. It is dealt out (60 % the thief's queries, 20 % unseen, 20 % other text of the thief's) unless
        ``unseen`` is given.
    tokenizer : PreTrainedTokenizerBase, optional
        The model's; found beside a model that is given by its name.
    attacks : str or sequence of str
        ``"all"``, or names of :data:`drw_hf.extraction.attacks.ATTACKS`.
    unseen, others : Dataset, optional
        Text to test with that nobody asks about, and more text of the thief's; ``data`` is then all queries.
    student : str or Recipe, optional
        What students start from, or how they are made; by default a small transformer from scratch.
    label_kind : str, optional
        What is served, ``"soft"`` or ``"hard"``; by default what the protected model says, else soft.
    seed : int
        Of all that is random, but for the keys of other accounts.
    level : float
        p-values above it count as an escape.
    folder : path, optional
        Where models, answers and results are kept; a rehearsal that was stopped goes on there.
    text_columns, label_column : optional
        Columns of ``data`` with other names than usual.
    on_done : callable
        Called after every attack.

    Returns
    -------
    Rehearsal

    Raises
    ------
    InvalidInputError
        For an attack that is not known, or cannot be played on this service or data.
    """
    with tempfile.TemporaryDirectory() as scratch:
        bench = make_bench(
            model,
            key,
            data,
            tokenizer=tokenizer,
            unseen=unseen,
            others=others,
            student=student,
            label_kind=label_kind,
            seed=seed,
            folder=folder or scratch,
            text_columns=text_columns,
            label_column=label_column,
        )
        check_level(level)
        run, left_out = prepare(bench, attacks)
        run.prepare()
        run.forget_failures()
        work_through(run, on_done)
        run.check_finished()
        return rehearsal_of(read_lines(run.lines), left_out, level)


def make_bench(
    model: Any,
    key: WatermarkKey,
    data: Dataset,
    *,
    tokenizer: Any = None,
    unseen: Dataset | None = None,
    others: Dataset | None = None,
    student: str | Recipe | None = None,
    label_kind: LabelKind | None = None,
    seed: int = 1,
    folder: str | os.PathLike[str],
    text_columns: str | Sequence[str] | None = None,
    label_column: str | None = None,
) -> Bench:
    """What :func:`rehearse` plays on; the parameters are its own."""
    if not isinstance(key, WatermarkKey):
        raise InvalidInputError(
            f"key is a {type(key).__name__}; expected a WatermarkKey: of a ring, give ring.key_for(user)"
        )
    if isinstance(model, str | os.PathLike):
        tokenizer = tokenizer or load_tokenizer(os.fspath(model))
        model = load_clean(os.fspath(model), key.task, key)
    if tokenizer is None:
        raise InvalidInputError("tokenizer is missing: give the tokenizer of the model")
    served: Any = getattr(getattr(model, "config", None), "label_kind", None) or "soft"
    kind: LabelKind = label_kind or served
    check_choice("label_kind", kind, LABEL_KINDS, InvalidInputError)
    for part in (data, *(one for one in (unseen, others) if one is not None)):
        check_one_split(part)
    parts = deal(data, unseen, others)
    if len(parts["queries"]) < _LEAST_TEXTS or not len(parts["unseen"]):
        raise DatasetError(
            f"the thief would have {len(parts['queries'])} texts and the owner {len(parts['unseen'])} unseen ones; "
            f"give more data: at least {_LEAST_TEXTS} queries, better thousands"
        )
    column = find_label_column(data, key.task, label_column)
    columns = find_text_columns(data.column_names, key.task, text_columns)
    texts = {name: part.select_columns(columns).with_format(None) for name, part in parts.items()}

    def gold(part: Dataset) -> list[np.ndarray] | None:
        return None if column is None else right_labels(part, column, key.labels, key.task)

    recipe = student if isinstance(student, Recipe) else Recipe(start=student)
    if recipe.start is not None and not isinstance(student, Recipe):
        recipe = dataclasses.replace(recipe, epochs=5, learning_rate=1e-4)  # pretrained weights move less
    return Bench(
        victim=without_mark(model),
        key=key,
        label_kind=kind,
        tokenizer=tokenizer,
        queries=texts["queries"],
        unseen=texts["unseen"],
        others=texts["others"],
        gold=gold(parts["queries"]),
        unseen_gold=gold(parts["unseen"]),
        folder=Path(folder),
        recipe=recipe,
        seed=seed,
    )


def deal(data: Dataset, unseen: Dataset | None, others: Dataset | None) -> dict[str, Dataset]:
    """Who gets which rows: mixed and dealt out, or as they were given."""
    if unseen is not None:
        return {"queries": data, "unseen": unseen, "others": data.select([]) if others is None else others}
    order = np.random.default_rng(0).permutation(len(data))
    ends = np.cumsum([round(share * len(data)) for share in SHARES.values()])
    queries, tested, rest = np.split(order, ends)
    dealt = {"queries": data.select(queries), "unseen": data.select(tested), "others": data.select(rest)}
    return dealt if others is None else {**dealt, "others": others}


# -- the run


@dataclass(frozen=True)
class Play:
    """A job: one attack, or an innocent model, or what all are compared with."""

    name: str
    needs: tuple[str, ...] = ()

    @property
    def about(self) -> Record:
        """What its line begins with."""
        return {"job": self.name}

    @property
    def trainings(self) -> float:
        """What it takes, in trainings of one student."""
        if self.name in (INNOCENT, BASELINE):
            return 1.0 if self.name == INNOCENT else 0.0
        return attack_named(self.name).trainings


@dataclass(frozen=True)
class _Workshop:
    """What a run asks of whoever does its jobs."""

    bench: Bench

    @property
    def profile(self) -> "_Workshop":
        return self

    @property
    def folder(self) -> Path:
        return self.bench.folder

    def described(self) -> Record:
        """What results depend on, without anything of the key but its fingerprint."""
        bench = self.bench
        rows = {name: len(getattr(bench, name)) for name in ("queries", "unseen", "others")}
        recipe = {**dataclasses.asdict(bench.recipe), "start": bench.recipe.start is not None}
        recipe["other_start"] = bench.recipe.other_start is not None
        service = {"key": bench.key.fingerprint, "label_kind": bench.label_kind, "task": bench.key.task}
        return {**service, "rows": rows, "recipe": recipe, "seed": bench.seed, "labelled": bench.gold is not None}

    def made(self, job: Play) -> bool:
        return True

    def do(self, job: Play) -> Record:
        return self.bench.baseline() if job.name == BASELINE else self.bench.play(job.name)


def prepare(bench: Bench, attacks: str | Iterable[str]) -> tuple[Run, dict[str, str]]:
    """The run of a rehearsal, and why attacks are left out of it where all were asked for."""
    wanted, left_out = choose(bench, attacks)
    names = [NOTHING, *(name for name in wanted if name != NOTHING)]
    jobs = [Play(BASELINE), Play(NOTHING)]
    if bench.gold is not None:
        jobs.append(Play(INNOCENT))
    needs = tuple(job.name for job in jobs[1:])  # these models are kept, and used by others
    jobs += [Play(name, needs) for name in names[1:]]
    return Run(_Workshop(bench), jobs, bench.folder / LINES), left_out


def choose(bench: Bench, attacks: str | Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The attacks to play, and why others are left out; one that was named and cannot be played is refused."""
    reasons: dict[str, str] = {}
    if attacks == "all":
        names = list(ATTACKS)
    else:
        names = list(dict.fromkeys([attacks] if isinstance(attacks, str) else attacks))
    chosen = []
    for name in sorted(names, key=_order):
        reason = bench.unfit(attack_named(name))
        if reason is None:
            chosen.append(name)
        elif attacks == "all":
            reasons[name] = reason
        else:
            raise InvalidInputError(f"the attack {name!r} cannot be played here: {reason}; leave it out")
    return chosen, reasons


def _order(name: str) -> tuple[int, str]:
    """Attacks as tables list them: by what they are done to."""
    from ..extraction.attacks import STAGES

    return list(STAGES).index(attack_named(name).stage), name


# -- what it will take


def seconds_per_training(bench: Bench, seconds: float = 2.0) -> float:
    """How long one student takes here, from a few steps of training on the thief's texts."""
    thief = bench.thief()
    n = min(len(bench.queries), 4 * bench.recipe.batch_size)
    rng = np.random.default_rng(0)
    m = bench.key.num_labels
    answers = [rng.dirichlet(np.ones(m), len(row) if thief.by_word else None) for row in thief.words[:n]]
    rows = thief.rows(answers, bench.queries.select(range(n)))
    recipe = dataclasses.replace(bench.recipe, epochs=1.0)
    student = thief.train(rows, recipe=recipe)  # the first steps are slower than the others
    start, rounds = time.perf_counter(), 0
    while not rounds or time.perf_counter() - start < seconds:
        thief.train(rows, start=student, recipe=recipe)
        rounds += 1
    return (time.perf_counter() - start) / rounds * len(bench.queries) / n * bench.recipe.epochs


def seconds_left(run: Run, per_training: float | None = None) -> float | None:
    """How long the jobs that are left would take one worker, by those that have ended; None while nothing is known."""
    done = run.done()
    ended = [(job, done[job.name]) for job in run.jobs if job.name in done and "seconds" in done[job.name]]
    worth = sum(job.trainings + _EXTRA for job, _ in ended)
    todo = sum(job.trainings + _EXTRA for job in run.open_jobs(done))
    if worth > 2.0:
        return todo * sum(record["seconds"] for _, record in ended) / worth
    return None if per_training is None else todo * per_training


def questions_asked(names: Sequence[str], n_queries: int) -> int:
    """How many questions the thieves of these attacks ask in all."""
    return sum(math.ceil(attack_named(name).questions * n_queries) for name in names if name in ATTACKS)
