"""The users of a search: read from wherever they are, told apart, and remembered where a search was stopped."""

import hashlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..errors import InvalidInputError
from ..keys.ring import encode_user

FORMAT = "drw-identify-1"
_READ_AT_ONCE = 10_000


def stream_users(users: Any) -> tuple[Iterator[str], int | None]:
    """Users one by one, and how many there are if that is known.

    ``users`` is any iterable of strings, a path to a text file with one user a line (blank lines do not count), a
    column of a data set, or a data set of one column.
    """
    if isinstance(users, str | os.PathLike):
        return _lines(Path(users)), None
    if hasattr(users, "column_names"):
        if len(users.column_names) != 1:
            raise InvalidInputError(
                f"users is a data set with the columns {users.column_names}; give the one that holds the users, like "
                'users=dataset["user"]'
            )
        users = users[users.column_names[0]]
    if isinstance(users, Sequence) and not isinstance(users, bytes):
        # By slices: a column of a data set is read a hundred times as fast.
        parts = (users[first : first + _READ_AT_ONCE] for first in range(0, len(users), _READ_AT_ONCE))
        return itertools.chain.from_iterable(parts), len(users)
    if isinstance(users, bytes | Mapping) or not isinstance(users, Iterable):
        raise InvalidInputError(
            f"users is a {type(users).__name__}; expected the users' names: an iterable of strings, a text file with "
            "one a line, or a column of a data set"
        )
    return iter(users), None


def _lines(path: Path) -> Iterator[str]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                name = line.rstrip("\n")
                if name.strip():
                    yield name
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"users={str(path)!r} cannot be read as a text file with one user a line ({type(error).__name__}); "
            "users themselves are given as a list"
        ) from None


class SeenUsers:
    """Refuses a user who comes twice, at 16 bytes a user: digests in sorted runs, merged as they grow."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, users: list[str]) -> bytes:
        """Take note of some users; returns a digest of these names in this order."""
        joined = b"".join([hashlib.blake2b(encode_user(user), digest_size=16).digest() for user in users])
        numbers = np.frombuffer(joined, dtype="<u8").reshape(-1, 2)
        order = np.argsort(numbers[:, 0])
        first, second = numbers[order, 0], numbers[order, 1]
        again = (first[1:] == first[:-1]) & (second[1:] == second[:-1])
        if again.any():
            self._refuse(users[order[again.argmax()]])
        for known, rest in self._runs:
            place = np.minimum(np.searchsorted(known, first), len(known) - 1)
            again = (known[place] == first) & (rest[place] == second)
            if again.any():
                self._refuse(users[order[again.argmax()]])
        while self._runs and len(self._runs[-1][0]) <= len(first):
            known, rest = self._runs.pop()
            first, second = np.concatenate([known, first]), np.concatenate([rest, second])
            order = np.argsort(first, kind="stable")
            first, second = first[order], second[order]
        self._runs.append((first, second))
        return hashlib.sha256(joined).digest()

    def _refuse(self, user: str) -> None:
        raise InvalidInputError(f"the user {user!r} is listed twice; give every user once")


class Ledger:
    """The scores of users already searched, on disk: one SQLite file, one transaction a chunk.

    A search that is killed loses the chunk it was at and nothing else. ``about`` says what is searched for; a file
    about something else is refused.
    """

    def __init__(self, path: str | os.PathLike, about: Mapping[str, Any]) -> None:
        self.path = Path(path)
        content = json.dumps({"format": FORMAT, **about}, sort_keys=True)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))  # scores come from keys: for the owner alone
            self._connection = sqlite3.connect(self.path)
            with self._connection:
                self._connection.execute("CREATE TABLE IF NOT EXISTS about (content TEXT)")
                self._connection.execute(
                    "CREATE TABLE IF NOT EXISTS chunks (first INTEGER PRIMARY KEY, names BLOB, scores BLOB)"
                )
                known = self._connection.execute("SELECT content FROM about").fetchone()
                if known is None:
                    self._connection.execute("INSERT INTO about VALUES (?)", (content,))
        except (OSError, sqlite3.Error) as error:
            raise InvalidInputError(
                f"resume={str(path)!r} is not a file that a search was recorded in ({type(error).__name__}); give "
                "another path, or delete the file to begin anew"
            ) from None
        if known is not None and known[0] != content:
            self.close()
            raise InvalidInputError(
                f"resume={str(path)!r} records another search: another ring, epoch, probe or setting; give another "
                "path, or delete the file to begin anew"
            )

    def chunks(self) -> Iterator[tuple[bytes, np.ndarray]]:
        """What was recorded, in order: the digest of a chunk's names, and their scores."""
        expected = 0
        for first, names, scores in self._connection.execute("SELECT * FROM chunks ORDER BY first").fetchall():
            if first != expected:
                return
            expected += len(scores) // 8
            yield names, np.frombuffer(scores, dtype="<f8")

    def write(self, first: int, names: bytes, scores: np.ndarray) -> None:
        """Record a chunk: all of it or, after a crash, none."""
        record = (first, names, scores.astype("<f8").tobytes())
        try:
            with self._connection:
                self._connection.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?)", record)
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"resume={str(self.path)!r} cannot be written any more ({error}); what it holds is whole, so free the "
                "space or the file and start again"
            ) from None

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
