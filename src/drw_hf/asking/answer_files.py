"""A teacher's answers in files: written by the ending of their name, and read back as what they were.

Parquet keeps the names of the labels by itself. In JSON lines and CSV every answer says them: ``teacher_probs`` is
``{label: probability}``, for a tagger one for each word. A cell of a CSV file that holds a list or such a mapping is
written as JSON.
"""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from ..checks import class_names
from ..errors import DatasetError
from .labelling import LABELS, PROBABILITIES, answer_features, as_columns

ENDINGS = (".jsonl", ".csv", ".parquet")


def write_answers(rows: datasets.Dataset, path: str | os.PathLike) -> None:
    """Write a data set that ``label_with_teacher`` returned; what is interrupted leaves no half file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        _WRITERS[path.suffix](rows, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def restore_answers(rows: datasets.Dataset, name: str) -> datasets.Dataset:
    """What was read from a file, with a teacher's answers, if it holds any, as ``label_with_teacher`` gives them."""
    if not {PROBABILITIES, LABELS} <= set(rows.column_names) or class_names(rows.features[LABELS]) is not None:
        return rows
    first = next((answer for cell in rows[PROBABILITIES] if (answer := _parsed(cell))), None)
    is_tagger = isinstance(first, list)
    named = first[0] if isinstance(first, list) else first
    if not isinstance(named, Mapping):
        return rows  # numbers that nobody named: whoever needs the answers says so
    labels = list(named)
    as_lists = [column for column in rows.column_names if is_tagger and _holds_lists(rows, column)]
    features = {**rows.features, **{column: datasets.List(datasets.Value("string")) for column in as_lists}}

    def restore(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        places = [f"row {number} of {name}" for number in numbers]
        given = zip(batch[PROBABILITIES], places, strict=True)
        columns = as_columns([_as_array(_parsed(cell), labels, is_tagger, where) for cell, where in given])
        for written, found, where in zip(batch[LABELS], columns[LABELS], places, strict=True):
            _check_labels(_parsed(written), found, labels, where)
        return columns | {column: [_parsed(cell) for cell in batch[column]] for column in as_lists}

    return rows.map(
        restore,
        batched=True,
        with_indices=True,
        features=datasets.Features({**features, **answer_features(labels, is_tagger)}),
    )


# -- writing


def _rows_for_text(rows: datasets.Dataset) -> Iterator[dict[str, Any]]:
    """Every row with its answer by the names of the labels."""
    labels = class_names(rows.features[LABELS]) or []

    def named(answer: Sequence[float]) -> dict[str, float]:
        return dict(zip(labels, answer, strict=True))

    def label_of(number: int) -> str | None:
        return labels[number] if number >= 0 else None

    for row in rows:
        answer, label = row[PROBABILITIES], row[LABELS]
        if isinstance(label, list):
            yield {**row, PROBABILITIES: [*map(named, answer)], LABELS: [*map(label_of, label)]}
        else:
            yield {**row, PROBABILITIES: named(answer), LABELS: label_of(label)}


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _write_jsonl(rows: datasets.Dataset, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(_as_json(row) + "\n" for row in _rows_for_text(rows))


def _write_csv(rows: datasets.Dataset, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows.column_names)
        for row in _rows_for_text(rows):
            cells = (row[column] for column in rows.column_names)
            writer.writerow(_as_json(cell) if isinstance(cell, list | dict) else cell for cell in cells)


_WRITERS: dict[str, Callable[[datasets.Dataset, Path], Any]] = dict(
    zip(ENDINGS, (_write_jsonl, _write_csv, datasets.Dataset.to_parquet), strict=True)
)


# -- reading


def _parsed(cell: Any) -> Any:
    """A cell of a CSV file as what it was before it became JSON; anything else as it is."""
    if not isinstance(cell, str) or not cell.startswith(("[", "{")):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _holds_lists(rows: datasets.Dataset, column: str) -> bool:
    return column not in (PROBABILITIES, LABELS) and all(
        isinstance(cell, str) and isinstance(_parsed(cell), list) for cell in rows[column]
    )


def _as_array(answer: Any, labels: Sequence[str], is_tagger: bool, where: str) -> np.ndarray:
    items = answer if is_tagger else [answer]
    if not isinstance(items, list) or not all(isinstance(one, Mapping) and set(one) == set(labels) for one in items):
        raise DatasetError(
            f"{where}: {PROBABILITIES} must say the probability of each label of the first row, {list(labels)}, and "
            "of no other; write the file anew with `drw-hf label`"
        )
    table = np.array([[item[label] for label in labels] for item in items], dtype=np.float32)
    return table.reshape(-1, len(labels)) if is_tagger else table[0]


def _check_labels(written: Any, found: Any, labels: Sequence[str], where: str) -> None:
    """Refuse labels that were changed by hand: a student may learn from the probabilities."""
    written, found = (value if isinstance(value, list) else [value] for value in (written, found))
    for label, number in zip(written, found, strict=False):
        if isinstance(label, str) and (number < 0 or label != labels[number]):  # of a CSV, "7" is a number by now
            raise DatasetError(
                f"{where}: {LABELS} says {label!r}, which is not the most probable label of {PROBABILITIES}; write "
                "the file anew with `drw-hf label`"
            )
