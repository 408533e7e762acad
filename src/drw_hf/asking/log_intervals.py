"""Which days of a log a test went by, as evidence says it: roots and counts, and no text, no name and no answer."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple, Self

from ..checks import unfit
from ..errors import InvalidInputError
from ..keys import merkle
from ..keys.derivation import is_hexadecimal
from .log_days import leaf_of, root_of
from .log_lines import is_day, is_moment
from .log_reading import Read

_FORMAT, _VERSION = "drw-query-log-interval", 1
_LAST_YEAR = 9998  # of a log; the day after a day must be one, too
_MIDNIGHT = "T00:00:00.000000+00:00"


class DayRoot(NamedTuple):
    """A day (UTC), the Merkle root over all lines that the log holds of it, and how many these are."""

    day: str
    root: str
    lines: int


class LinesByDay:
    """Collects, as a log is read, the leaves of every day and where every file ends."""

    def __init__(self) -> None:
        self._leaves: dict[str, bytearray] = {}
        self.ends: dict[tuple[str, int], tuple[str, int]] = {}  # of every chain and file: its day, and its last line

    def add(self, read: Read) -> None:
        """Take note of a line."""
        self._leaves.setdefault(read.header.day, bytearray()).extend(leaf_of(read.document["link"]))
        self.ends[read.header.chain, read.header.file] = (read.header.day, read.document["n"])

    def roots(self, since: str | None, until: str | None) -> tuple[DayRoot, ...]:
        """The roots of all days of which some part lies in an interval."""
        found = []
        for day, leaves in sorted(self._leaves.items()):
            if (since is None or since[:10] <= day) and (until is None or day + _MIDNIGHT < until):
                found.append(DayRoot(day, root_of(leaves), len(leaves) // merkle.HASH_BYTES))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class LogInterval:
    """The part of a log that a test went by.

    Attributes
    ----------
    since, until : str or None
        From when, and until before when, where that was chosen; else from its first line, and to its last.
    days : tuple of DayRoot
        All days of which the log holds lines in the interval, each with the root over all of them.
    lines, texts : int
        How many lines were answered under the key, and how many texts these are.
    digests : int
        Of how many of these lines the log holds keyed digests alone.
    """

    since: str | None
    until: str | None
    days: tuple[DayRoot, ...]
    lines: int
    texts: int
    digests: int

    @property
    def cut_days(self) -> tuple[str, ...]:
        """The days in the middle of which the interval begins or ends."""
        edges = dict.fromkeys((self.since, self.until))
        return tuple(edge[:10] for edge in edges if edge is not None and not edge.endswith(_MIDNIGHT))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form, as evidence holds it."""
        fields = {**dataclasses.asdict(self), "days": [one._asdict() for one in self.days]}
        return {"format": _FORMAT, "version": _VERSION, **fields}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """What :meth:`to_dict` wrote; ``InvalidInputError`` for anything else."""
        if isinstance(document, Mapping) and document.get("format") == _FORMAT and document.get("version") != _VERSION:
            raise InvalidInputError(
                f"the days of a log are declared in the version {document.get('version')!r}, and this drw_hf reads "
                f"{_VERSION}; update drw_hf (pip install -U drw_hf)"
            )
        declared: dict[str, Any] = {"format": str, "version": int, "since": str | None, "until": str | None}
        declared |= {"days": list[dict[str, Any]], "lines": int, "texts": int, "digests": int}
        whole = isinstance(document, dict) and document.keys() == declared.keys() and not unfit(document, declared)
        if not (whole and document["format"] == _FORMAT and _makes_sense(document)):
            raise InvalidInputError("this declares no days of a log; expected what detect(logged=QueryLog(...)) saves")
        days = tuple(DayRoot(**one) for one in document["days"])
        return cls(**{**{name: document[name] for name in cls.__dataclass_fields__}, "days": days})


def _makes_sense(document: dict[str, Any]) -> bool:
    days, kinds = document["days"], {"day": str, "root": str, "lines": int}
    if not days or any(one.keys() != kinds.keys() or unfit(one, kinds) for one in days):
        return False
    names = [one["day"] for one in days]
    edges = [edge for edge in (document["since"], document["until"]) if edge is not None]
    counts = [document["texts"], document["lines"], sum(one["lines"] for one in days)]
    return (
        names == sorted(set(names))
        and all(map(_is_calendar_day, names))
        and all(one["lines"] > 0 and is_hexadecimal(one["root"]) for one in days)
        and all(map(is_moment, edges))
        and 0 <= document["digests"] <= document["lines"]
        and 0 < counts[0] <= counts[1] <= counts[2]
    )


def _is_calendar_day(day: str) -> bool:
    try:
        return is_day(day) and date.fromisoformat(day).year <= _LAST_YEAR
    except ValueError:
        return False
