"""`rehearse`: play the theft of your model before a thief does, with every attack that is known."""

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..asking.models import PROTECTED, load_clean, load_config, load_tokenizer
from ..asking.predictor import as_predictor
from ..asking.questions import find_text_columns
from ..checks import check_choice, check_level
from ..detection.probing import without_mark
from ..errors import DatasetError, InvalidInputError, JobsFailedError, KeyMismatchError
from ..extraction.attacks import ATTACKS, STAGES, attack_named
from ..extraction.students import Recipe
from ..keys.binding import task_of, tokenizer_fingerprint
from ..keys.choices import LABEL_KINDS, LabelKind
from ..keys.key import WatermarkKey
from ..runs.jobs import Run, work_through
from ..runs.lines import Record, read_lines
from .labels import check_one_split, find_label_column, right_labels
from .rehearsal import Rehearsal, rehearsal_of
from .rehearsal_bench import BASELINE, INNOCENT, NOTHING, Bench

LINES = "rehearsal.jsonl"
PARTS = ("queries", "unseen", "others")
COMPARED = (BASELINE, NOTHING)  # without these there is nothing to compare with
SHARES = {"queries": 0.6, "unseen": 0.2}  # of the data, where no other split is given; the rest is `others`
_LEAST_TEXTS = 20  # of the thief's; fewer teach nothing


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
    digits: int | None = None,
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
    digits : int, optional
        To how many digits the scores of soft answers are rounded; by default as the protected model says, else as is
        usual for the mark.
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
    check_level(level)
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
            digits=digits,
            seed=seed,
            folder=folder or scratch,
            text_columns=text_columns,
            label_column=label_column,
        )
        run, left_out = prepare(bench, attacks)
        run.prepare()
        run.forget_failures()
        work_through(run, on_done)
        check_played(run)
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
    digits: int | None = None,
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
        model = _load_victim(os.fspath(model), key)
    if tokenizer is None:
        raise InvalidInputError("tokenizer is missing: give the tokenizer of the model")
    config = getattr(model, "config", None)
    kind: LabelKind = label_kind or getattr(config, "label_kind", None) or "soft"
    check_choice("label_kind", kind, LABEL_KINDS, InvalidInputError)
    digits = getattr(config, "digits", None) if digits is None else digits
    victim = without_mark(model)
    _check_key(victim, key, tokenizer, digits)
    recipe = student if isinstance(student, Recipe) else recipe_for(student)
    for start in (recipe.start, recipe.other_start):
        if start is not None:
            load_config(start)  # one that is not there is told of now, and not by a student in the night
    parts = deal(*map(_one_split, (data, unseen, others)))
    if len(parts["queries"]) < _LEAST_TEXTS or not len(parts["unseen"]):
        raise DatasetError(
            f"the thief would have {len(parts['queries'])} texts and the owner {len(parts['unseen'])} unseen ones; "
            f"give more data: at least {_LEAST_TEXTS} queries, better thousands"
        )
    columns = find_text_columns(data.column_names, key.task, text_columns)
    column = find_label_column(data, key.task, label_column)
    gold = {name: _gold(part, column, key) for name, part in parts.items()}
    return Bench(
        victim=victim,
        key=key,
        label_kind=kind,
        tokenizer=tokenizer,
        **{name: _texts(name, part, columns) for name, part in parts.items()},
        gold=gold["queries"],
        unseen_gold=gold["unseen"],
        folder=Path(folder),
        recipe=recipe,
        seed=seed,
        digits=digits,
    )


def recipe_for(start: str | None, epochs: float | None = None, learning_rate: float | None = None) -> Recipe:
    """How students are made that start from a model, or from scratch: pretrained weights move less."""
    recipe = Recipe(start=start) if start is None else Recipe(start=start, epochs=5, learning_rate=1e-4)
    given: dict[str, Any] = {"epochs": epochs, "learning_rate": learning_rate}
    return dataclasses.replace(recipe, **{name: value for name, value in given.items() if value is not None})


def _load_victim(name: str, key: WatermarkKey) -> Any:
    """The model of a folder or repository, unless it is none of the key's task, whose head would be made up."""
    task = task_of(load_config(name))
    if task not in (None, key.task):
        raise KeyMismatchError(
            f"the key {key.fingerprint} is for {key.task}, and the model in {name} is for {task}; give the model that "
            "the key was made for"
        )
    return load_clean(name, key.task, key)


def _check_key(victim: Any, key: WatermarkKey, tokenizer: Any, digits: int | None) -> None:
    """Refuse the key of another model, and digits that cannot be, before anything is asked or trained."""
    if key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer; give the one of the model that it protects"
        )
    PROTECTED[key.task].from_model(victim, key=key, digits=digits)


def _one_split(data: Dataset | None) -> Dataset | None:
    if data is not None:
        check_one_split(data)
    return data


def _texts(name: str, part: Dataset, columns: list[str]) -> Dataset:
    """The columns of texts alone."""
    missing = [column for column in columns if column not in part.column_names]
    if missing and len(part):
        raise DatasetError(
            f"{name} has the columns {part.column_names}; expected the columns of texts that data has, {columns}"
        )
    return part.select_columns([column for column in columns if column not in missing]).with_format(None)


def _gold(part: Dataset, column: str | None, key: WatermarkKey) -> list[np.ndarray] | None:
    """The right labels of some texts; None where there are none, as in test splits that hide them."""
    if column is None or column not in part.column_names:
        return None
    labels = right_labels(part, column, key.labels, key.task)
    return labels if any((row >= 0).any() for row in labels) else None


def deal(data: Any, unseen: Dataset | None, others: Dataset | None) -> dict[str, Dataset]:
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
        """What results depend on, without anything of the key but its fingerprint, and without names of places."""
        bench = self.bench
        rows = {name: len(getattr(bench, name)) for name in PARTS}
        starts = (bench.recipe.start, bench.recipe.other_start)
        recipe = {**dataclasses.asdict(bench.recipe), "start": bench.recipe.start is not None}
        recipe["other_start"] = bench.recipe.other_start is not None
        return {
            "key": bench.key.fingerprint,
            "label_kind": bench.label_kind,
            **({} if bench.digits is None else {"digits": bench.digits}),
            "task": bench.key.task,
            "rows": rows,
            "recipe": recipe,
            "seed": bench.seed,
            "labelled": bench.gold is not None,
            "model": as_predictor(bench.victim, bench.tokenizer, task=bench.key.task).fingerprint(),
            "texts": _digest(bench),
            "students": hashlib.sha256(repr(starts).encode()).hexdigest()[:32],
        }

    def made(self, job: Play) -> bool:
        return True

    def do(self, job: Play) -> Record:
        if job.name == BASELINE:
            return self.bench.baseline()
        record = self.bench.play(job.name)
        if job.name == NOTHING and "failed" in record:
            raise JobsFailedError(f"the student that all others are compared with failed: {record['failed']}")
        return record


def _digest(bench: Bench) -> str:
    """What tells the texts and labels of one rehearsal from those of another."""
    digest = hashlib.sha256()
    for name in PARTS:
        digest.update(json.dumps([name, getattr(bench, name).to_dict()]).encode())
    for gold in (bench.gold, bench.unseen_gold):
        digest.update(json.dumps(None if gold is None else [row.tolist() for row in gold]).encode())
    return digest.hexdigest()[:32]


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


def check_played(run: Run) -> None:
    """Say so if something could not be played, and why: a fault of an attack or of this machine, no failed theft."""
    failed = read_lines(run.failures)
    if failed:
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        raise JobsFailedError(
            f"{failed[0]['job']!r}{others} could not be played ({failed[0]['error']}); what was played is kept in the "
            "folder of the rehearsal, if one was given, and the same call tries the rest again"
        )
    run.check_finished()


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
    return list(STAGES).index(attack_named(name).stage), name
