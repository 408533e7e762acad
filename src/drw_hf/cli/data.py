"""Data as commands take and leave them: a column that an option names, and files of answers."""

from pathlib import Path
from typing import Any

import datasets

from ..errors import DatasetError


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


def save_data(rows: datasets.Dataset, output: Path) -> None:
    """Into a folder, or into a Parquet file; both keep the names of the labels."""
    if output.suffix == ".parquet":
        output.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(output)
    else:
        rows.save_to_disk(output)
