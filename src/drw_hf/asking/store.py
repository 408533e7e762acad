"""`Store`: numbers kept on disk as they come, so that a run that is killed goes on where it stopped."""

import contextlib
import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from filelock import FileLock, Timeout

from ..errors import KeptAnswersError, OtherRecordsError

logger = logging.getLogger(__name__)


class Records(NamedTuple):
    """What a store keeps: a table of numbered records, each an array with a note (an integer or bytes)."""

    what: str  # what messages call them
    purpose: str  # and what they are kept for
    table: str
    columns: tuple[str, str, str]  # of the number, the note and the array
    dtype: str
    begin_anew: str  # what to do with a damaged file of which there is no backup


class Store:
    """Numbered arrays in a SQLite file, one transaction per batch: a crash loses the batch it interrupts, no more.

    ``about`` is what the records belong to; a file that says otherwise is refused. ``mode`` is for a new file.
    """

    def __init__(
        self, path: str | os.PathLike[str], records: Records, about: Mapping[str, Any] | None = None, mode: int = 0o666
    ) -> None:
        self.path, self.records = Path(path), records
        number, note, values = records.columns
        with self._explaining():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                self.path.touch(mode)
            self._connection = sqlite3.connect(self.path)
            table = f"{records.table} ({number} INTEGER PRIMARY KEY, {note}, {values} BLOB)"
            self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        if about is None:
            return
        content = json.dumps(about, sort_keys=True)
        with self._explaining(), self._connection:
            self._connection.execute("CREATE TABLE IF NOT EXISTS about (content TEXT)")
            known = self._connection.execute("SELECT content FROM about").fetchone()
            if known is None:
                self._connection.execute("INSERT INTO about VALUES (?)", (content,))
        if known is not None and known[0] != content:
            self._connection.close()
            raise OtherRecordsError(f"{self.path} holds the {self.records.what} of another {self.records.purpose}")

    def write(self, records: Iterable[tuple[int, int | bytes, np.ndarray]]) -> None:
        """Keep a batch of numbers, notes and arrays: all of it or, after a crash, none."""
        rows = [(int(number), note, array.astype(self.records.dtype).tobytes()) for number, note, array in records]
        with self._explaining(), self._connection:
            self._connection.executemany(f"INSERT OR REPLACE INTO {self.records.table} VALUES (?, ?, ?)", rows)

    def numbers(self) -> set[int]:
        """The numbers of all records; refuses records that are damaged."""
        number, note, values = self.records.columns
        size = np.dtype(self.records.dtype).itemsize
        with self._explaining():
            broken = f"typeof({values}) != 'blob' OR length({values}) % {size}"
            broken += f" OR typeof({note}) NOT IN ('integer', 'blob')"
            if self._connection.execute(f"SELECT 1 FROM {self.records.table} WHERE {broken}").fetchone():
                raise ValueError("a record holds no numbers")
            return {int(row) for (row,) in self._connection.execute(f"SELECT {number} FROM {self.records.table}")}

    def read(self, first: int = 0, stop: int = 2**63 - 1) -> Iterator[tuple[int, Any, np.ndarray]]:
        """Records in the order of their numbers, from ``first`` to before ``stop``."""
        number = self.records.columns[0]
        query = f"SELECT * FROM {self.records.table} WHERE {number} >= ? AND {number} < ? ORDER BY {number}"
        with self._explaining():
            found = self._connection.execute(query, (first, stop)).fetchall()
            arrays = [np.frombuffer(values, dtype=self.records.dtype) for _, _, values in found]
        for (row, note, _), array in zip(found, arrays, strict=True):
            yield row, note, array

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Around SQLite: its errors, with the file and what to do about it."""
        try:
            yield
        except (OSError, sqlite3.DatabaseError, ValueError, TypeError) as error:  # the last two: damaged cells
            name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
            unusable = isinstance(error, sqlite3.OperationalError) and name != "SQLITE_ERROR"
            if unusable or isinstance(error, OSError):
                raise KeptAnswersError(
                    f"cannot keep or read {self.records.what} in {self.path}: {error}; what was kept before is still "
                    "there: free the space or make the file writable, and call again"
                ) from None
            raise damaged(self.path, error, self.records.begin_anew, self.records.what) from None


def about_of(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the records in a file belong to; empty where there is no file, or none that says."""
    if not Path(path).is_file():
        return {}
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            (content,) = connection.execute("SELECT content FROM about").fetchone()
        about = json.loads(content)
    except (sqlite3.Error, TypeError, ValueError):  # whoever opens it as a store is told why
        return {}
    return about if isinstance(about, dict) else {}


def damaged(file: Path, why: object, begin_anew: str, what: str = "answers") -> KeptAnswersError:
    """The error of a file that cannot be read; ``begin_anew`` is for those who have no backup."""
    return KeptAnswersError(
        f"the {what} kept in {file} are damaged ({why}), and nothing was changed; restore the file from a backup, or "
        f"{begin_anew}"
    )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder to oneself; whoever comes second waits, and finds the work done."""
    lock = FileLock(folder.parent / f".{folder.name}.lock")  # beside it: the folder itself may be thrown away
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            logger.warning("somebody else is asking the same in %s; waiting until it is done", folder)
            lock.acquire()
    except (NotImplementedError, OSError):  # a network file system without locks, or a folder that is only read
        logger.warning("%s cannot be locked; do not ask the same twice at once there", folder.parent)
    try:
        yield
    finally:
        lock.release()  # does nothing where it is not held
