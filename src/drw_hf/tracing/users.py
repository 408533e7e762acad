"""The users of a search: read from wherever they are, and told apart."""

import hashlib
import itertools
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInputError
from ..keys.users import encode_user, spelt_twice

Users = str | os.PathLike[str] | Iterable[Any]  # a path, names, or a data set of one column
_READ_AT_ONCE = 10_000


def stream_users(users: Any) -> tuple[Iterator[str], int | None]:
    """Users one by one, and how many there are if that is known.

    ``users`` is any iterable of strings, a path to a text file with one user per line (blank lines do not count), a
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
            "one per line, or a column of a data set"
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
            f"users={str(path)!r} cannot be read as a text file with one user per line ({type(error).__name__}); "
            "users themselves are given as a list"
        ) from None


class SeenUsers:
    """Refuses a user who comes twice, at 16 bytes per user: digests in sorted runs, merged as they grow."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []  # of shape (2, n): the halves of the digests, sorted by the first
        self._spelt: dict[str, str] = {}  # names that are not composed (NFC), by what they are when they are: few

    def add(self, users: list[str]) -> bytes:
        """Take note of some users; returns a digest of these names in this order.

        Two spellings of one name, composed and decomposed, are one name twice: nobody could tell whom it accuses.
        """
        for user in users:
            if isinstance(user, str) and not unicodedata.is_normalized("NFC", user):
                self._note_spelling(user)
        joined = b"".join([hashlib.blake2b(encode_user(user), digest_size=16).digest() for user in users])
        halves = np.frombuffer(joined, dtype="<u8").reshape(-1, 2).T
        order = np.argsort(halves[0])
        run = halves[:, order]
        if self._spelt:
            spelt = next((user for user in users if user in self._spelt), None)
            if spelt is not None:
                raise spelt_twice(spelt, self._spelt[spelt])
        again = np.append(False, (run[:, 1:] == run[:, :-1]).all(axis=0))
        for known in self._runs:
            place = np.minimum(np.searchsorted(known[0], run[0]), known.shape[1] - 1)
            again |= (known[:, place] == run).all(axis=0)
        if again.any():
            raise InvalidInputError(f"the user {users[order[again.argmax()]]!r} is listed twice; give every user once")
        while self._runs and self._runs[-1].shape[1] <= run.shape[1]:
            run = np.concatenate([self._runs.pop(), run], axis=1)
            run = run[:, np.argsort(run[0], kind="stable")]
        self._runs.append(run)
        return hashlib.sha256(joined).digest()

    def _note_spelling(self, user: str) -> None:
        composed = unicodedata.normalize("NFC", user)
        other = self._spelt.setdefault(composed, user)
        if other != user or self._has(composed):
            raise spelt_twice(composed, user if other == user else other)

    def _has(self, user: str) -> bool:
        """Whether a name was among those that were added."""
        low, high = np.frombuffer(hashlib.blake2b(encode_user(user), digest_size=16).digest(), dtype="<u8")
        for known in self._runs:
            first, end = np.searchsorted(known[0], low), np.searchsorted(known[0], low, side="right")
            if (known[1, first:end] == high).any():
                return True
        return False
