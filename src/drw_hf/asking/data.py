"""Data by the name a user gives: a file, a folder that ``save_to_disk`` wrote, or a data set on the Hub."""

import os
from pathlib import Path
from typing import Any

import datasets

from ..errors import DatasetError
from ..keys.choices import Task
from ..watermark.configuration import is_hub_id
from .answer_files import restore_answers
from .models import first_line
from .questions import find_text_columns

READERS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", ".tsv": "csv", ".txt": "text"}


def load_data(
    name: str,
    *,
    split: str | None = None,
    subset: str | None = None,
    limit: int | None = None,
    task: Task | None = None,
    text_columns: list[str] | None = None,
) -> datasets.Dataset:
    """One split of a data set; where ``task`` is given, rows that can be asked about.

    Lines of a text file are texts or, for a tagger, words between spaces. A teacher's answers that
    ``drw-hf label`` wrote are read back as what they were.
    """
    rows = restore_answers(_one_split(load_any(name, subset), name, split), name)
    if Path(name).suffix == ".txt":
        rows = rows.filter(lambda texts: [bool(text.strip()) for text in texts], input_columns="text", batched=True)
        if task == "token-classification":
            rows = rows.map(lambda row: {"tokens": row["text"].split()}, remove_columns="text")
    if not len(rows):
        raise DatasetError(f"{name} holds no rows; there is nothing to ask about")
    if task is not None:
        check_columns(rows, name, task, text_columns)
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def load_any(name: str, subset: str | None) -> Any:
    """A data set with all its splits, from a file, a folder or the Hub."""
    path = Path(name)
    if not path.exists() and (path.suffix in READERS or not is_hub_id(name)):
        raise DatasetError(f"there is no file or folder {name}, and it is no Hub id (owner/name)")
    if path.is_file() and path.suffix not in READERS:
        raise DatasetError(f"{name} is none of the kinds of files that can be read: {', '.join(READERS)}")
    if path.is_file() and not path.stat().st_size:
        raise DatasetError(f"{name} is empty; there is nothing to ask about")
    try:
        if path.is_file():
            options = {"delimiter": "\t"} if path.suffix == ".tsv" else {}
            return datasets.load_dataset(READERS[path.suffix], data_files=os.path.abspath(name), **options)
        if (path / "dataset_info.json").exists() or (path / "dataset_dict.json").exists():
            return datasets.load_from_disk(name)
        return datasets.load_dataset(name, subset)
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetGenerationError) else None
        raise DatasetError(f"cannot read data from {name}: {first_line(cause or error)}") from None


def _one_split(found: Any, name: str, split: str | None) -> datasets.Dataset:
    if isinstance(found, datasets.Dataset):
        if split is not None:
            raise DatasetError(f"{name} has no splits; leave out --split")
        return found
    if split is None and len(found) == 1:
        (split,) = found
    if split not in found:
        raise DatasetError(f"{name} has the splits {list(found)}; choose one of them with --split")
    return found[split]


def check_columns(rows: datasets.Dataset, name: str, task: Task, text_columns: list[str] | None) -> None:
    """Before a model is loaded: does the data have what the model is asked about?"""
    try:
        find_text_columns(rows.column_names, task, text_columns)
    except DatasetError:
        kind = "words (a list of strings)" if task == "token-classification" else "texts (two, for pairs)"
        given = f"--text-column {' '.join(text_columns)}: " if text_columns else ""
        raise DatasetError(
            f"{given}{name} has the columns {rows.column_names}; name the one that holds {kind} with --text-column"
        ) from None
