"""From labelled rows to batches: the student's tokens, the teacher's answers at the right places, gold labels.

Pure functions of columns and a tokenizer; what `DistillationTrainer` maps over its data sets and collates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..asking.labelling import LABELS, PROBABILITIES
from ..asking.questions import ids_that_are_no_word, places_of_words, questions_of, tokenize
from ..checks import label_number
from ..errors import DatasetError
from ..keys.choices import Task

IGNORED = -100  # torch's cross-entropy and transformers' Trainer leave it out
TEACHER = "teacher_"  # prefix of the teacher's own inputs, where its tokenizer is another one


@dataclass(frozen=True)
class Layout:
    """How rows are laid out for one student.

    ``gold_numbers`` are the class numbers of what may stand in the column ``gold`` (``checks.class_numbers``).
    ``order`` lists, for each of the student's classes, the teacher's class of the same name. ``teacher_tokenizer`` is
    set where the teacher is asked during training and reads other tokens than the student.
    """

    task: Task
    tokenizer: Any
    max_length: int
    columns: tuple[str, ...]
    gold: str | None = None
    gold_numbers: Mapping[Any, int] | None = None
    order: tuple[int, ...] | None = None
    teacher_tokenizer: Any = None
    teacher_max_length: int | None = None


def match_labels(teacher: Sequence[str], student: Sequence[str]) -> tuple[int, ...]:
    """For each of the student's classes the teacher's class of the same name; refuses sets that differ."""
    if set(teacher) != set(student) or len(teacher) != len(student):
        theirs, ours = sorted(set(teacher) - set(student)), sorted(set(student) - set(teacher))
        raise DatasetError(
            f"teacher and student do not have the same labels: only the teacher has {theirs}, only the student {ours}"
            "; give the student the teacher's id2label and label2id"
        )
    return tuple(list(teacher).index(label) for label in student)


def lay_out(rows: Mapping[str, Sequence[Any]], layout: Layout) -> dict[str, list[Any]]:
    """A batch of rows (columns of lists) as the student's features."""
    questions = questions_of(rows, layout.columns)
    encoding = None
    if layout.columns[0] == "input_ids":
        features = {name: [list(row)[: layout.max_length] for row in rows[name]] for name in layout.columns}
    else:
        encoding = tokenize(layout.tokenizer, questions, layout.max_length)
        features = {name: encoding[name] for name in layout.tokenizer.model_input_names if name in encoding}
    places = None
    if layout.task == "token-classification":
        no_word = ids_that_are_no_word(layout.tokenizer)
        places = places_of_words(questions, encoding, no_word, layout.max_length)
    if layout.gold is not None:
        features["labels"] = _gold(rows[layout.gold], features["input_ids"], places, layout)
    if layout.teacher_tokenizer is not None:
        asked = tokenize(layout.teacher_tokenizer, questions, layout.teacher_max_length or layout.max_length)
        names = [name for name in layout.teacher_tokenizer.model_input_names if name in asked]
        features |= {TEACHER + name: asked[name] for name in names}
    if PROBABILITIES in rows:
        features |= _answers(rows, places, layout)
    elif places is not None:  # the teacher is asked during training: where, and where its answers go
        theirs = places
        if layout.teacher_tokenizer is not None:
            theirs = places_of_words(questions, asked, ())
        pairs = [
            [(mine, its) for mine, its in zip(row, other, strict=False) if mine is not None and its is not None]
            for row, other in zip(places, theirs, strict=True)
        ]
        features["places"] = [[mine for mine, _ in row] for row in pairs]
        features["teacher_places"] = [[its for _, its in row] for row in pairs]
    return features


def _answers(rows: Mapping[str, Sequence[Any]], places: Any, layout: Layout) -> dict[str, list[Any]]:
    """The teacher's kept answers in the student's class order, with the places they belong to."""
    order = list(layout.order) if layout.order is not None else slice(None)
    if places is None:
        probabilities = [np.asarray(row, dtype=np.float32)[order] for row in rows[PROBABILITIES]]
        return {PROBABILITIES: probabilities}
    kept_places, kept = [], []
    for row_places, answers, labels in zip(places, rows[PROBABILITIES], rows[LABELS], strict=True):
        there = [i for i, place in enumerate(row_places) if place is not None and labels[i] >= 0]
        kept_places.append([row_places[i] for i in there])
        width = len(layout.order) if layout.order is not None else len(answers[0]) if answers else 0
        table = np.asarray(answers, dtype=np.float32).reshape(len(answers), -1 if len(answers) else width)
        kept.append(table[there][:, order])
    return {"places": kept_places, PROBABILITIES: kept}


def _gold(column: Sequence[Any], input_ids: Sequence[Sequence[int]], places: Any, layout: Layout) -> list[Any]:
    def number(label: Any) -> int:
        return label_number(label, layout.gold_numbers or {}, f"the column {layout.gold!r}", missing=IGNORED)

    if places is None:
        return [number(label) for label in column]
    rows = []
    for labels, ids, row_places in zip(column, input_ids, places, strict=True):
        row = [IGNORED] * len(ids)
        for label, place in zip(labels, row_places, strict=False):
            if place is not None:
                row[place] = number(label)
        rows.append(row)
    return rows


@dataclass
class DistillationCollator:
    """Pads the student's and the teacher's inputs, the places of answers, the answers and the gold labels."""

    tokenizer: Any
    teacher_tokenizer: Any = None
    num_labels: int = 0

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of tensors."""
        own = self.tokenizer.model_input_names
        batch = dict(self.tokenizer.pad([{k: row[k] for k in own if k in row} for row in rows], return_tensors="pt"))
        length = batch["input_ids"].shape[1]
        shifts = self._shifts(rows, "input_ids", length, self.tokenizer)
        if self.teacher_tokenizer is not None:
            theirs = self.teacher_tokenizer.model_input_names
            asked = [{k: row[TEACHER + k] for k in theirs if TEACHER + k in row} for row in rows]
            padded = self.teacher_tokenizer.pad(asked, return_tensors="pt")
            batch |= {TEACHER + name: value for name, value in padded.items()}
            their_length = padded["input_ids"].shape[1]
            their_shifts = self._shifts(rows, TEACHER + "input_ids", their_length, self.teacher_tokenizer)
        else:
            their_shifts = shifts
        if "labels" in rows[0]:
            batch["labels"] = self._labels([row["labels"] for row in rows], length, shifts)
        if "places" in rows[0]:
            batch["places"] = _ragged([[p + s for p in r["places"]] for r, s in zip(rows, shifts, strict=True)])
        if "teacher_places" in rows[0]:
            places = [[p + s for p in r["teacher_places"]] for r, s in zip(rows, their_shifts, strict=True)]
            batch["teacher_places"] = _ragged(places)
        if PROBABILITIES in rows[0]:
            batch |= self._answers(rows, batch.get("places"), length)
        return batch

    def _answers(self, rows: list[dict[str, Any]], places: Any, length: int) -> dict[str, torch.Tensor]:
        if places is None:
            probabilities = torch.from_numpy(np.stack([np.asarray(r[PROBABILITIES], np.float32) for r in rows]))
            return {PROBABILITIES: probabilities, LABELS: probabilities.argmax(-1)}
        probabilities = torch.zeros(*places.shape, self.num_labels)
        for index, row in enumerate(rows):
            answers = np.asarray(row[PROBABILITIES], dtype=np.float32).reshape(-1, self.num_labels)
            probabilities[index, : len(answers)] = torch.from_numpy(answers)
        labels = torch.full((len(rows), length), IGNORED)
        there = places >= 0
        labels[there.nonzero()[:, 0], places[there]] = probabilities.argmax(-1)[there]
        return {PROBABILITIES: probabilities, LABELS: labels}

    @staticmethod
    def _labels(labels: list[Any], length: int, shifts: list[int]) -> torch.Tensor:
        if not isinstance(labels[0], Sequence | np.ndarray):
            return torch.tensor(labels)
        batch = torch.full((len(labels), length), IGNORED)
        for index, (row, shift) in enumerate(zip(labels, shifts, strict=True)):
            batch[index, shift : shift + len(row)] = torch.as_tensor(row)
        return batch

    @staticmethod
    def _shifts(rows: list[dict[str, Any]], name: str, length: int, tokenizer: Any) -> list[int]:
        left = getattr(tokenizer, "padding_side", "right") == "left"
        return [length - len(row[name]) if left else 0 for row in rows]


def _ragged(rows: list[list[int]]) -> torch.Tensor:
    """Lists of places as one tensor, −1 beyond their ends."""
    batch = torch.full((len(rows), max(1, max(map(len, rows)))), -1)
    for index, row in enumerate(rows):
        batch[index, : len(row)] = torch.as_tensor(row, dtype=torch.long)
    return batch
