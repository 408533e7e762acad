"""Answers kept as they come, so that a run that is killed goes on where it stopped.

One SQLite file a process, one transaction a batch: a crash loses the batch it interrupts and nothing else.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np


class Journal:
    """The answers to numbered rows, on disk."""

    def __init__(self, folder: Path, process: int = 0):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._connection = sqlite3.connect(folder / f"answers-{process}.sqlite")
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
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", records)

    def close(self) -> None:
        """Flush and release the file."""
        self._connection.close()


class Answers:
    """All answers of a folder's journals, whichever processes wrote them, looked up by row."""

    def __init__(self, folder: Path):
        files = sorted(folder.glob("answers-*.sqlite"))
        self._connections = [sqlite3.connect(file) for file in files]

    def rows(self) -> set[int]:
        """The rows that are answered."""
        return {row for c in self._connections for (row,) in c.execute("SELECT row FROM answers")}

    def read(self, rows: Sequence[int]) -> list[np.ndarray]:
        """The answers to some rows, in their order."""
        found: dict[int, np.ndarray] = {}
        marks = ",".join("?" * len(rows))
        for connection in self._connections:
            query = f"SELECT row, width, value FROM answers WHERE row IN ({marks})"
            for row, width, value in connection.execute(query, list(map(int, rows))):
                array = np.frombuffer(value, dtype="<f4")
                found[row] = array.reshape(-1, width) if width else array
        return [found[int(row)] for row in rows]

    def close(self) -> None:
        """Release the files."""
        for connection in self._connections:
            connection.close()
