"""`Check`: one thing that was looked at when a claim was replayed."""

from dataclasses import dataclass
from typing import Literal

from ..wording import printable

Status = Literal["passed", "failed", "open"]
_MARKS: dict[Status, str] = {"passed": "✓", "failed": "✗", "open": "?"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: ``"passed"``, ``"failed"``, or ``"open"`` where it could not be decided."""

    name: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return printable(f"{_MARKS[self.status]} {self.name}: {self.detail}")
