"""From labelled rows to batches: the student's tokens, the teacher's answers at the right places, gold labels.

Pure functions of columns and a tokenizer; what `DistillationTrainer` maps over its data sets and collates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from ..asking.labelling import LABELS, PROBABILITIES
from ..asking.questions import Cut, ids_that_are_no_word, places_of_words, questions_of, tokenize
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
    teacher_cut: Cut | None = None

    @property
    def cut(self) -> Cut:
        """How the student's rows are cut."""
        return Cut(self.max_length).by(self.tokenizer)


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
        windows = [layout.cut.window(question) for question in questions if isinstance(question, dict)]
        features = {
            name: [list(row)[window] for row, window in zip(rows[name], windows, strict=True)]
            for name in layout.columns
        }
    else:
        encoding = tokenize(layout.tokenizer, questions, layout.cut)
        features = {name: encoding[name] for name in layout.tokenizer.model_input_names if name in encoding}
    places = None
    if layout.task == "token-classification":
        no_word = ids_that_are_no_word(layout.tokenizer)
        places = places_of_words(questions, encoding, no_word, layout.cut)
    if layout.gold is not None:
        features["labels"] = _gold(rows[layout.gold], features["input_ids"], places, layout)
    theirs = places
    if layout.teacher_tokenizer is not None:
        asked = tokenize(layout.teacher_tokenizer, questions, layout.teacher_cut or layout.max_length)
        names = [name for name in layout.teacher_tokenizer.model_input_names if name in asked]
        features |= {TEACHER + name: asked[name] for name in names}
        if places is not None:
            theirs = places_of_words(questions, asked, ())
    if PROBABILITIES in rows:
        features |= _answers(rows, places, layout)
    elif places is not None and theirs is not None:  # asked during training: where, and where the answers go
        pairs = [
            [(mine, its) for mine, its in zip(row, other, strict=False) if mine is not None and its is not None]
            for row, other in zip(places, theirs, strict=True)
        ]
        features["places"] = [[mine for mine, _ in row] for row in pairs]
        features["teacher_places"] = [[its for _, its in row] for row in pairs]
    return features


def _answers(rows: Mapping[str, Sequence[Any]], places: Any, layout: Layout) -> dict[str, list[Any]]:
    """The teacher's kept answers in the student's class order, with the places they belong to."""
    assert layout.order is not None  # it is known wherever there are answers
    order = list(layout.order)
    if places is None:
        return {PROBABILITIES: [np.asarray(row, dtype=np.float32)[order] for row in rows[PROBABILITIES]]}
    kept_places, kept = [], []
    for row_places, answers, labels in zip(places, rows[PROBABILITIES], rows[LABELS], strict=True):
        there = [i for i, place in enumerate(row_places) if place is not None and labels[i] >= 0]
        kept_places.append([row_places[i] for i in there])
        kept.append(np.asarray(answers, dtype=np.float32).reshape(-1, len(order))[there][:, order])
    return {"places": kept_places, PROBABILITIES: kept}


def _gold(column: Sequence[Any], input_ids: Sequence[Sequence[int]], places: Any, layout: Layout) -> list[Any]:
    def number(label: Any) -> int:
        return label_number(label, layout.gold_numbers or {}, f"the column {layout.gold!r}", missing=IGNORED)

    if places is None:
        return list(map(number, column))
    rows = [[IGNORED] * len(ids) for ids in input_ids]
    for row, labels, row_places in zip(rows, column, places, strict=True):
        for label, place in zip(labels or (), row_places, strict=False):  # None: a row without gold labels
            if place is not None:
                row[place] = number(label)
    return rows


@dataclass
class DistillationCollator:
    """Pads the student's and the teacher's inputs, the places of answers, the answers and the gold labels."""

    tokenizer: Any
    teacher_tokenizer: Any = None
    num_labels: int = 0

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """A batch of tensors."""
        batch, shifts = _padded(rows, self.tokenizer)
        their_shifts = shifts
        if self.teacher_tokenizer is not None:
            asked, their_shifts = _padded(rows, self.teacher_tokenizer, TEACHER)
            batch |= asked
        if "labels" in rows[0]:
            labels = [torch.as_tensor(row["labels"], dtype=torch.long) for row in rows]
            side = getattr(self.tokenizer, "padding_side", "right")
            batch["labels"] = torch.stack(labels) if labels[0].ndim == 0 else _joined(labels, IGNORED, side)
        for name, moved in (("places", shifts), ("teacher_places", their_shifts)):
            if name in rows[0]:
                places = [torch.as_tensor(row[name], dtype=torch.long) for row in rows]
                batch[name] = _joined([row + shift for row, shift in zip(places, moved, strict=True)], -1)
        if PROBABILITIES in rows[0]:
            answers = [torch.as_tensor(np.asarray(row[PROBABILITIES], dtype=np.float32)) for row in rows]
            if "places" in batch:
                answers = [answer.reshape(-1, self.num_labels) for answer in answers]
            batch[PROBABILITIES] = _joined(answers, 0.0)
            batch[LABELS] = labels_in_place(batch[PROBABILITIES].argmax(-1), batch)
        return batch


def _padded(rows: list[dict[str, Any]], tokenizer: Any, prefix: str = "") -> tuple[dict[str, torch.Tensor], list[int]]:
    """The inputs of a model, and how far padding moved each row to the right."""
    names = [name for name in tokenizer.model_input_names if prefix + name in rows[0]]
    padded = tokenizer.pad([{name: row[prefix + name] for name in names} for row in rows], return_tensors="pt")
    left = getattr(tokenizer, "padding_side", "right") == "left"
    length = padded["input_ids"].shape[1]
    shifts = [length - len(row[prefix + "input_ids"]) if left else 0 for row in rows]
    return {prefix + name: value for name, value in padded.items()}, shifts


def _joined(rows: list[torch.Tensor], beyond: float, side: str = "right") -> torch.Tensor:
    """Rows of different lengths as one tensor."""
    return pad_sequence(rows, batch_first=True, padding_value=beyond, padding_side=side)


def labels_in_place(labels: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The teacher's labels as gold labels would stand: of words at their places among the tokens."""
    if "places" not in batch:
        return labels
    there = batch["places"] >= 0
    whole = torch.full_like(batch["input_ids"], IGNORED)
    whole[there.nonzero()[:, 0], batch["places"][there]] = labels[there]
    return whole
