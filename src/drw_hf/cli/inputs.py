"""What options name, as commands take it: a suspect, a victim, a column, a class, a date.

Heavy to import: commands do so when they run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import typer

from ..asking.models import load_clean, load_tokenizer
from ..checks import class_names
from ..detection.result import as_iso
from ..errors import DatasetError, InvalidInputError
from ..keys import UserProof, WatermarkKey
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from .options import OwnModel


def load_asked(suspect: str, own: OwnModel, key: WatermarkKey) -> dict[str, Any]:
    """Who is asked, as arguments of ``detect`` and ``identify``.

    The suspect, a folder, a Hub id or an address, stays a name: asking it opens it, a model with its own tokenizer.
    """
    return {
        "suspect": suspect,
        "tokenizer": load_tokenizer(own.tokenizer or own.victim or ""),
        "victim": None if own.victim is None else load_clean(own.victim, key.task, key),
    }


def parse_label_map(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """``old=new`` as a mapping."""
    wrong = [pair for pair in pairs or () if "=" not in pair.strip("=")]
    if wrong:
        raise typer.BadParameter(f"--label-map {wrong[0]}: expected theirs and yours, as in LABEL_0=negative")
    return dict(pair.split("=", 1) for pair in pairs or ()) or None


def parse_first_seen(value: str | None, option: str = "--suspect-first-seen") -> str | None:
    """A day or a moment that an option names, as an ISO date or time."""
    try:
        return None if value is None else as_iso(value, option)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None


def read_proof(path: Path) -> UserProof:
    """The proof that a ring's user was declared, as ``drw-hf ring prove`` wrote it."""
    return UserProof.from_dict(parse_json(read_within(path, LARGEST_DOCUMENT, InvalidInputError)))


def class_named(target: str, labels: tuple[str, ...]) -> str | int:
    """A class by its name, or by its number, unless a class is called so."""
    return int(target) if target.isdecimal() and target not in labels else target


def column(rows: datasets.Dataset, name: str | None, option: str) -> list[Any] | None:
    """The values of a column that an option names, labels by their names where they have some; None without a name."""
    if name is None:
        return None
    if name not in rows.column_names:
        raise DatasetError(f"{option} {name}: expected one of the columns {rows.column_names}")
    names, values = class_names(rows.features[name]), rows[name][:]
    if names is None:
        return values

    def named(value: Any) -> Any:
        return value if value is None or value < 0 else names[value]

    return [[named(one) for one in value] if isinstance(value, list) else named(value) for value in values]
