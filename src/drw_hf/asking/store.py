"""Answers kept as they come, so that a run that is killed goes on where it stopped.

One SQLite file per process, one transaction per batch: a crash loses the batch it interrupts and nothing else. Whoever
works in a folder of answers has its lock, so that nobody takes a file away under another's hands, and nothing is asked
twice.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from ..errors import KeptAnswersError

logger = logging.getLogger(__name__)

_NO_ANSWER = "typeof(value) != 'blob' OR length(value) % 4 OR typeof(width) != 'integer'"


class Journal:
    """The answers to numbered rows, on disk."""

    def __init__(self, folder: Path, process: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"answers-{process}.sqlite"
        with _told(self.path):
            self._connection = sqlite3.connect(self.path)
            self._connection.execute(
                "CREATE TABLE IF NOT EXISTS answers (row INTEGER PRIMARY KEY, width INTEGER, value BLOB)"
            )
            self._connection.commit()

    def write(self, rows: Sequence[int], answers: Iterable[np.ndarray]) -> None:
        """Keep a batch: all of it or, after a crash, none."""
        records = [
            (int(row), answer.shape[-1] * (answer.ndim - 1), answer.astype("<f4").tobytes())
            for row, answer in zip(rows, answers, strict=True)
        ]
        with _told(self.path), self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", records)

    def close(self) -> None:
        """Flush and release the file."""
        self._connection.close()


class Answers:
    """All answers of a folder's journals, whichever processes wrote them, looked up by row."""

    def __init__(self, folder: Path):
        self._connections: dict[Path, sqlite3.Connection] = {}
        for file in sorted(folder.glob("answers-*.sqlite")):
            with _told(file):
                connection = sqlite3.connect(file)
                if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone():
                    self._connections[file] = connection
                else:  # its process was killed before it wrote anything
                    connection.close()

    def rows(self) -> set[int]:
        """The rows that are answered."""
        found: set[int] = set()
        for file, connection in self._connections.items():
            with _told(file):
                if connection.execute(f"SELECT 1 FROM answers WHERE {_NO_ANSWER}").fetchone():
                    raise ValueError("a row holds no answer")
                found |= {int(row) for (row,) in connection.execute("SELECT row FROM answers")}
        return found

    def read(self, rows: Sequence[int]) -> list[np.ndarray]:
        """The answers to some rows, in their order."""
        found: dict[int, np.ndarray] = {}
        query = f"SELECT row, width, value FROM answers WHERE row IN ({','.join('?' * len(rows))})"
        for file, connection in self._connections.items():
            with _told(file):
                for row, width, value in connection.execute(query, list(map(int, rows))):
                    array = np.frombuffer(value, dtype="<f4")
                    found[row] = array.reshape(-1, width) if width else array
        return [found[int(row)] for row in rows]

    def close(self) -> None:
        """Release the files."""
        for connection in self._connections.values():
            connection.close()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder of answers to oneself; whoever comes second waits, and finds the work done."""
    lock = FileLock(folder.parent / f".{folder.name}.lock")  # beside it: the folder itself may be thrown away
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _acquire(lock, folder)
    except (NotImplementedError, OSError):  # a network file system without locks, or a folder that is only read
        logger.warning("%s cannot be locked; do not ask the same twice at once there", folder.parent)
    try:
        yield
    finally:
        lock.release()  # does nothing where it is not held


def _acquire(lock: FileLock, folder: Path) -> None:
    try:
        lock.acquire(timeout=0)
    except Timeout:
        logger.warning("somebody else is asking the same in %s; waiting until it is done", folder)
        lock.acquire()


@contextlib.contextmanager
def _told(file: Path) -> Iterator[None]:
    """Around SQLite: its errors, with the file and what to do about it."""
    try:
        yield
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # the last two: cells that hold no answers
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        if isinstance(error, sqlite3.OperationalError) and name != "SQLITE_ERROR":
            raise KeptAnswersError(
                f"cannot keep or read answers in {file}: {error}; what was kept before is still there: free the space "
                "or make the file writable, and call again"
            ) from None
        raise damaged(file, error, "move it away to have its rows asked again") from None


def damaged(file: Path, why: object, otherwise: str) -> KeptAnswersError:
    """The error of a file of answers that cannot be read; ``otherwise`` is for those who have no backup."""
    return KeptAnswersError(
        f"the answers kept in {file} are damaged ({why}), and nothing was changed; restore the file from a backup, or "
        f"{otherwise}"
    )
