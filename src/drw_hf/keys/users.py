"""The names of a ring's users."""

import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import InvalidInputError
from .sealing import has_lone_surrogate

MAX_USER_BYTES = 1024  # of UTF-8: a token with the longest name still fits into an HTTP header


def encode_user(user: Any) -> bytes:
    """The bytes a user is known by: the name in UTF-8, as it is."""
    if not isinstance(user, str):
        raise InvalidInputError(f"user {quoted(user)} is no string; users are strings, so convert the name first")
    if not user:
        raise InvalidInputError("a user is the empty string, which names nobody; give every user a name")
    if has_lone_surrogate(user):
        raise InvalidInputError(f"user {quoted(user)} holds a lone surrogate, which is no text; decode the name again")
    encoded = user.encode()
    if len(encoded) > MAX_USER_BYTES:
        raise InvalidInputError(
            f"user {quoted(user)} has {len(encoded):,} bytes of UTF-8, and {MAX_USER_BYTES:,} are allowed; use an "
            "identifier of yours in place of it"
        )
    return encoded


def listed(users: Any) -> Iterable[str]:
    """A list of names, or something else that can be read more than once; refuses what is none."""
    if isinstance(users, str | bytes) or not isinstance(users, Iterable):
        raise InvalidInputError(f"users must be a list of strings, not one {type(users).__name__}; pass [user]")
    if hasattr(users, "readline"):
        raise InvalidInputError("an open file gives names with their line ends; pass file.read().splitlines()")
    return list(users) if isinstance(users, Iterator) else users


def check_spellings(users: Iterable[str]) -> None:
    """Refuse one name in two spellings of Unicode, composed and decomposed: nobody could tell whom it accuses."""
    spelt: dict[str, str] = {}
    for user in users:
        if isinstance(user, str) and not unicodedata.is_normalized("NFC", user):
            other = spelt.setdefault(unicodedata.normalize("NFC", user), user)
            if other != user:
                raise spelt_twice(user, other)
    for user in users if spelt else ():
        if user in spelt:
            raise spelt_twice(user, spelt[user])


def spelt_twice(user: str, other: str) -> InvalidInputError:
    """What is said of one name in two spellings."""
    return InvalidInputError(
        f"the users {user!a} and {other!a} are one name in two spellings of Unicode, with keys of their own, "
        "and nobody who reads it could tell whom a finding names; list them apart, or rename one"
    )


def quoted(user: Any) -> str:
    """A name for a message, cut where it is long."""
    text = repr(user)
    return text if len(text) <= 80 else f"{text[:77]}..."
