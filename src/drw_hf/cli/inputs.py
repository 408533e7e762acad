"""What options name, as commands take it: a suspect, a victim, a column, a class, a date.

Heavy to import: commands do so when they run.
"""

from collections.abc import Sequence
from typing import Any

import datasets
import typer

from ..asking.models import load_config, load_model, load_tokenizer
from ..detection.result import as_iso
from ..errors import DatasetError, InvalidInputError
from ..keys import WatermarkKey
from ..watermark import WatermarkedConfig


def tokenizer_name(tokenizer: str | None, victim: str | None) -> str:
    """Where the owner's tokenizer lies."""
    name = tokenizer or victim
    if name is None:
        raise typer.BadParameter("the hash goes by your own tokens; pass --victim (or --tokenizer, without a victim)")
    return name


def load_suspect(name: str, key: WatermarkKey) -> tuple[Any, Any]:
    """A model with its own tokenizer, or the client of a service at an address."""
    if name.startswith(("http://", "https://")):
        from huggingface_hub import InferenceClient

        return InferenceClient(model=name), None
    return load_model(name, task=key.task), load_tokenizer(name)


def load_clean(name: str, key: WatermarkKey) -> Any:
    """The victim, plain or protected."""
    if isinstance(load_config(name), WatermarkedConfig):
        return load_model(name, key=key, replace_key=True)
    return load_model(name, task=key.task)


def parse_label_map(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """``old=new`` as a mapping."""
    wrong = [pair for pair in pairs or () if "=" not in pair.strip("=")]
    if wrong:
        raise typer.BadParameter(f"--label-map {wrong[0]}: expected theirs and yours, as in LABEL_0=negative")
    return dict(pair.split("=", 1) for pair in pairs or ()) or None


def parse_first_seen(value: str | None) -> str | None:
    """``--suspect-first-seen`` as an ISO date or time."""
    try:
        return None if value is None else as_iso(value, "--suspect-first-seen")
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None


def class_named(target: str, labels: tuple[str, ...]) -> str | int:
    """A class by its name, or by its number, unless a class is called so."""
    return int(target) if target.isdecimal() and target not in labels else target


def column(rows: datasets.Dataset, name: str, option: str) -> list[Any]:
    """The values of a column that an option names, labels by their names where they have some."""
    if name not in rows.column_names:
        raise DatasetError(f"{option} {name}: expected one of the columns {rows.column_names}")
    feature = rows.features[name]
    names = getattr(getattr(feature, "feature", feature), "names", None)
    values = rows[name][:]
    if names is None:
        return values

    def named(value: Any) -> Any:
        return value if value is None or value < 0 else names[value]

    return [[named(one) for one in value] if isinstance(value, list) else named(value) for value in values]
