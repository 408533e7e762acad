"""Cells of tables in Markdown.

A cell for which nothing was run is "—". Where ranges or means are given, the number of students stands beside.
"""

from collections.abc import Iterable, Sequence

from .results import WHERE, Statistic, Suspect, finite, values
from .tasks import TASKS

NOTHING = "—"


def number(value: float, digits: int) -> str:
    """A number with a real minus, and none before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def per_cent(value: float | None) -> str:
    """A figure that is in per cent already."""
    return NOTHING if value is None else number(value, 1)


def from_to(low: float, high: float, digits: int) -> str:
    """A range; one number where its ends read alike."""
    ends = number(low, digits), number(high, digits)
    return ends[0] if ends[0] == ends[1] else (" to " if low < 0 else "–").join(ends)


def span(found: Sequence[float], digits: int, n: int) -> str:
    """The least and the largest of a row of n."""
    known = finite(found)
    text = from_to(min(known), max(known), digits) if known else NOTHING
    return text + _counted(len(known), n)


def mean(found: Sequence[float], digits: int, n: int) -> str:
    """The mean of a row of n."""
    known = finite(found)
    text = number(sum(known) / len(known), digits) if known else NOTHING
    return text + _counted(len(known), n)


def _counted(count: int, n: int) -> str:
    """Said only where it is not the row's number."""
    return f" (n {count})" if 0 < count != n else ""


def precision(found: tuple[float, int, int] | None, n: tuple[int, int] | None = None) -> str:
    """An mAP, and of how many it is where these are not the row's n."""
    if found is None:
        return NOTHING
    text = "> 0.99" if 0.995 <= found[0] < 1 else f"{found[0]:.2f}"  # 1.00 is kept for what is perfect
    return text if found[1:] == n else f"{text} (n {found[1]} + {found[2]})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under their head."""
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def both(suspects: Sequence[Suspect], statistic: Statistic, digits: int = 1) -> str:
    """The mean on queries and on unseen text."""
    return " / ".join(mean(values(suspects, statistic, where), digits, len(suspects)) for where in WHERE)


def place(profile: str, task: str) -> tuple[str, str]:
    """A row's first two cells."""
    return TASKS[task].title, profile
