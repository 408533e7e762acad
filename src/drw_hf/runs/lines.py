"""Files of JSON lines that many processes may write to and that a kill leaves readable."""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from filelock import FileLock

Record = dict[str, Any]


def read_lines(path: Path) -> list[Record]:
    """The records of a file; a last line that was torn when its writer was killed is none."""
    records = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            records.append(json.loads(line))
    return records


def append_line(path: Path, record: Record) -> None:
    """Add a record, whole, whoever else is writing; a torn line before it is ended first."""
    with FileLock(path.with_name(f".{path.name}.lock")), path.open("a+b") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def rounded(values: Iterable[float]) -> list[float]:
    """Numbers to four digits, for a line."""
    return [float(f"{value:.4g}") for value in values]
