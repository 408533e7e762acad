"""The paper's four tasks: their data, from the Hub or from a folder, and the paper's own figures."""

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
from datasets import ClassLabel, Dataset, List

from ..checks import numbers_of
from ..errors import DatasetError
from ..keys import choices
from . import read_table


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: where its data lie, what is asked, which class carries the mark."""

    title: str
    kind: choices.Task
    folder: str  # of the data in a local ``--data``
    repository: str  # of the data on the Hub, with subset and revision
    subset: str | None = None
    revision: str | None = None
    columns: tuple[str, ...]  # what is asked: a text, a pair, or words
    gold: str  # the column of right labels
    labels: tuple[str, ...] = ()  # their names; empty where the data name them
    target: str  # c*
    evaluated_on: str  # the split
    metric: str  # the paper's figure: accuracy, or F1 over entities (for POS over what seqeval takes for such)
    kept: float = 0.98  # the share of items that the paper's code keeps for detection, the most confident ones


TASKS = {
    name: Task(columns=tuple(fields.pop("columns")), labels=tuple(fields.pop("labels", ())), **fields)
    for name, fields in read_table("tasks").items()
}
PAPER = read_table("paper")
PAPER_EPSILON = 0.2
PAPER_STUDENTS = 10  # of every kind


@dataclass(frozen=True)
class Corpus:
    """A task's rows, its columns reduced to what is asked and the right labels, these as a ``ClassLabel``."""

    task: Task
    labels: tuple[str, ...]
    train: Dataset
    validation: Dataset
    evaluation: Dataset

    @property
    def queries(self) -> Dataset:
        """The first half of the training rows: what thieves ask, and what innocents are trained on."""
        return self.train.select(range(len(self.train) // 2))

    @property
    def unseen(self) -> Dataset:
        """The second half, which no student sees."""
        return self.train.select(range(len(self.train) // 2, len(self.train)))

    @functools.cached_property
    def digest(self) -> str:
        """Names the rows and their labels, wherever they were read from."""
        parts = [part.to_dict() for part in (self.train, self.validation, self.evaluation)]
        return hashlib.sha256(json.dumps([self.labels, parts], sort_keys=True).encode()).hexdigest()[:16]

    def texts(self, rows: Dataset) -> Dataset:
        return rows.select_columns(list(self.task.columns))

    def gold(self, rows: Dataset) -> list[Any]:
        """The right labels of rows, by name."""
        values = rows[self.task.gold][:]
        if self.task.kind == "token-classification":
            return [[self.labels[label] for label in row] for row in values]
        return [self.labels[label] for label in values]


@functools.cache
def load_corpus(name: str, data: str | None = None, rows: int | None = None, evaluated: int | None = None) -> Corpus:
    """The corpus of a task of `TASKS`; see :func:`read_corpus`."""
    return read_corpus(TASKS[name], data, rows, evaluated)


def read_corpus(task: Task, data: str | None = None, rows: int | None = None, evaluated: int | None = None) -> Corpus:
    """The corpus of a task: at the most so many training rows and rows to evaluate on.

    ``data`` is a folder with a folder for each data set, each with ``train``, ``validation`` and ``test`` as
    ``.jsonl.gz`` or ``.jsonl``; without it, the Hub is asked.
    """
    found = _from_hub(task) if data is None else _from_folder(task, Path(data))
    wanted = [*task.columns, task.gold]
    for split, part in found.items():
        missing = [column for column in wanted if column not in part.column_names]
        if missing:
            raise DatasetError(
                f"{task.title}: the split {split} has the columns {part.column_names}; {missing} are missing"
            )
    labels = task.labels or _names(task, found)
    feature = ClassLabel(names=list(labels))
    feature = List(feature) if task.kind == "token-classification" else feature
    parts = []
    for split, limit in (("train", rows), ("validation", evaluated), (task.evaluated_on, evaluated)):
        part = found[split].select_columns(wanted)
        part = part.select(range(min(limit or len(part), len(part))))
        parts.append(_numbered(part, task, labels).cast_column(task.gold, feature))
    return Corpus(task, tuple(labels), *parts)


def _from_folder(task: Task, data: Path) -> dict[str, Dataset]:
    splits = {}
    for split in dict.fromkeys(("train", "validation", task.evaluated_on)):
        files = [data / task.folder / f"{split}{ending}" for ending in (".jsonl.gz", ".jsonl")]
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            raise DatasetError(
                f"{task.title}: there is no {files[0]} (nor .jsonl); --data is a folder with "
                f"{task.folder}/train.jsonl.gz, {task.folder}/validation.jsonl.gz and so on, or is left out to read "
                f"{task.repository} from the Hub"
            )
        try:
            splits[split] = datasets.load_dataset("json", data_files=str(file.absolute()), split="train")
        except datasets.exceptions.DatasetGenerationError as error:
            raise DatasetError(f"{task.title}: {file} is not a file of JSON lines ({error.__cause__})") from None
    return splits


def _from_hub(task: Task) -> dict[str, Dataset]:
    try:
        found = datasets.load_dataset(task.repository, task.subset, revision=task.revision)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise DatasetError(
            f"{task.title}: cannot read {task.repository} from the Hub ({reason}); without a connection give a local "
            "copy with --data"
        ) from None
    return {split: found[split] for split in ("train", "validation", task.evaluated_on)}


def _names(task: Task, splits: dict[str, Dataset]) -> tuple[str, ...]:
    """The tags: as the data name them, else all that occur."""
    feature = splits["train"].features[task.gold]
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if names is not None:
        return tuple(names)
    found = {label for part in splits.values() for row in part[task.gold] for label in row}
    if not all(isinstance(label, str) for label in found):
        raise DatasetError(f"{task.title}: the column {task.gold} holds numbers without names; expected tags by name")
    return tuple(sorted(found))


def _numbered(part: Dataset, task: Task, labels: Sequence[str]) -> Dataset:
    """Labels that are names as numbers."""
    gold, feature = task.gold, part.features[task.gold]
    if getattr(getattr(feature, "feature", feature), "dtype", "") not in ("string", "large_string"):
        return part
    number = numbers_of(labels)
    try:
        values = [number[row] if isinstance(row, str) else [number[label] for label in row] for row in part[gold]]
    except KeyError as unknown:
        raise DatasetError(f"{task.title}: the label {unknown} is not one of {list(labels)}") from None
    return part.remove_columns(gold).add_column(gold, values)
