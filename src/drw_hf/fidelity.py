"""What the mark costs the model's users: the accuracy of clean and of protected answers."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .errors import DatasetError, UnsupportedModelError
from .extraction.labelling import LABELS, UNANSWERED, label_with_teacher
from .extraction.questions import find_gold_column
from .keys.binding import labels_of

_NO_LABEL = (-100, -1)  # what Trainer leaves out, and the test splits of GLUE


def measure_accuracy(
    victim: Any,
    dataset: Any,
    tokenizer: Any,
    *,
    label_column: str | None = None,
    text_columns: str | Sequence[str] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
) -> dict[str, dict[str, float]]:
    """The accuracy of a protected model's answers, and of the clean model's, on labelled data.

    Parameters
    ----------
    victim : WatermarkedModelForSequenceClassification or WatermarkedModelForTokenClassification
        The protected model. It is asked as it answers, then with its mark switched off.
    dataset : Dataset
        Rows with a text (or two, or a list of words) and the right label (or one for every word), as a name or as a
        number. Labels that are missing (None, −1, −100) are left out.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    label_column : str, optional
        The column of right labels; by default found by its usual name.
    text_columns, batch_size, max_length, cache_dir, load_from_cache_file, progress
        As for :func:`drw_hf.label_with_teacher`, which asks.

    Returns
    -------
    dict
        ``{"accuracy": {"clean": ..., "protected": ..., "n": ...}}``, over ``n`` texts or, for taggers, words: a word's
        answer is that of its first sub-token, and words beyond the model's limit are left out. As
        :func:`drw_hf.hub.card.model_card` takes it.

    Raises
    ------
    DatasetError
        For data without labels, or with labels that are not the model's.
    """
    import datasets

    if not hasattr(victim, "watermark_disabled"):
        raise UnsupportedModelError(
            f"a {type(victim).__name__} has no clean and protected answers; wrap it with from_model(model, key=...)"
        )
    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(f"expected a datasets.Dataset (one split), got {type(dataset).__name__}")
    column, gold = _gold(dataset, label_column, victim)
    settings = {
        "text_columns": text_columns,
        "batch_size": batch_size,
        "max_length": max_length,
        "cache_dir": cache_dir,
        "load_from_cache_file": load_from_cache_file,
        "progress": progress,
    }
    protected = label_with_teacher(victim, dataset, tokenizer, **settings)[LABELS][:]
    with victim.watermark_disabled():
        clean = label_with_teacher(victim, dataset, tokenizer, **settings)[LABELS][:]
    right = {name: _hits(answers, gold, column) for name, answers in (("clean", clean), ("protected", protected))}
    n = len(right["clean"])
    if n == 0:
        raise DatasetError(f"no row has both an answer and a label in the column {column!r}: nothing can be measured")
    return {"accuracy": {**{name: float(hits.mean()) for name, hits in right.items()}, "n": n}}


def _hits(answers: Sequence[Any], gold: Sequence[np.ndarray], column: str) -> np.ndarray:
    """Whether each answer to an item with a label is right, over all rows."""
    hits = []
    for number, (answer, labels) in enumerate(zip(answers, gold, strict=True)):
        answer = np.atleast_1d(np.asarray(answer, dtype=np.int64))
        if len(answer) != len(labels):
            raise DatasetError(
                f"row {number} has {len(labels)} labels in the column {column!r} and {len(answer)} words; there must "
                "be one for every word"
            )
        there = (labels >= 0) & (answer != UNANSWERED)
        hits.append(answer[there] == labels[there])
    return np.concatenate(hits) if hits else np.zeros(0, dtype=bool)


def _gold(dataset: Any, wanted: str | None, victim: Any) -> tuple[str, list[np.ndarray]]:
    """The label column's name, and for every row the numbers of its labels in the model's order; −1 for none."""
    names = dataset.column_names
    if wanted is not None and wanted not in names:
        raise DatasetError(f"label_column={wanted!r}: expected one of the columns {names}")
    column = find_gold_column(names, victim.config.task, wanted)
    if column is None:
        raise DatasetError(f"none of the columns {names} has a usual name for labels; pass label_column=...")
    labels = labels_of(victim.config)
    numbers = class_numbers(dataset.features[column], labels, column)
    several = victim.config.task == "token-classification"
    rows = []
    for place, row in enumerate(dataset.with_format(None)[column]):
        if several != isinstance(row, list | np.ndarray):
            what = "a list of labels, one for every word" if several else "one label"
            raise DatasetError(f"row {place} of the column {column!r} holds {type(row).__name__}; expected {what}")
        rows.append(
            np.array([class_number(label, numbers, column, place) for label in (row if several else [row])], int)
        )
    return column, rows


def class_numbers(feature: Any, labels: Sequence[str], column: str) -> dict[Any, int]:
    """The model's class number of every label that may stand in the column: by name where it has names."""
    feature = getattr(feature, "feature", feature)
    order = {label: number for number, label in enumerate(labels)}
    names = getattr(feature, "names", None)
    if names is None:
        return {**order, **{number: number for number in range(len(labels))}}
    unknown = [name for name in names if name not in order]
    if unknown:
        raise DatasetError(
            f"the column {column!r} has the labels {unknown}, which are none of the model's {list(labels)}; rename "
            "them (cast_column with a ClassLabel of the model's names)"
        )
    return {number: order[name] for number, name in enumerate(names)}


def class_number(label: Any, numbers: dict[Any, int], column: str, place: int) -> int:
    """The class of one label, by :func:`class_numbers`; −1 for one that is missing."""
    if label is None or (isinstance(label, int | np.integer) and label in _NO_LABEL):
        return -1
    if not isinstance(label, str | int | np.integer) or label not in numbers:
        raise DatasetError(
            f"row {place} of the column {column!r} holds {label!r}, which is none of the labels {list(numbers)}"
        )
    return numbers[label]
