"""The right labels of a data set, as the model's class numbers."""

from collections.abc import Sequence
from typing import Any

import datasets
import numpy as np

from ..asking.questions import find_gold_column
from ..checks import class_numbers, label_number
from ..errors import DatasetError
from ..keys.choices import Task


def check_one_split(dataset: Any) -> None:
    """Refuse what is no data set, or has several splits."""
    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(f"expected a datasets.Dataset (one split), got {type(dataset).__name__}")


def find_label_column(dataset: Any, task: Task, wanted: str | None) -> str | None:
    """The column of right labels, as the user said or by its usual name; None where there is none."""
    if wanted is not None and wanted not in dataset.column_names:
        raise DatasetError(f"label_column={wanted!r}: expected one of the columns {dataset.column_names}")
    return find_gold_column(dataset.column_names, task, wanted)


def right_labels(dataset: Any, column: str, labels: Sequence[str], task: Task) -> list[np.ndarray]:
    """For each row the class numbers of its labels; −1 for none. ``labels`` are the model's."""
    known = class_numbers(dataset.features[column], labels, column)
    of_words = task == "token-classification"
    rows = []
    for number, row in enumerate(dataset.with_format(None)[column]):
        where = f"row {number} of the column {column!r}"
        if of_words != isinstance(row, list | np.ndarray):
            expected = (
                "a list of labels, one for each word"
                if of_words
                else "one label: a model with several right ones (multi-label) cannot be watermarked"
            )
            raise DatasetError(f"{where} holds {type(row).__name__}; expected {expected}")
        rows.append(np.array([label_number(label, known, where) for label in (row if of_words else [row])], int))
    return rows
