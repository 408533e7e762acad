"""Cells of tables in Markdown.

A cell for which nothing was run is "—". Where ranges or means are given, the number of students stands beside, if it
is not the row's.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..wording import small_p
from .results import WHERE, finite

if TYPE_CHECKING:
    from pandas import DataFrame

NOTHING = "—"


def number(value: float | None, digits: int) -> str:
    """A number with a real minus, and none before a zero."""
    return NOTHING if value is None else f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def from_to(low: float, high: float, digits: int = 1, to: str = "–") -> str:
    """A range, with words from a negative number on; one number where its ends read alike."""
    ends = number(low, digits), number(high, digits)
    return ends[0] if ends[0] == ends[1] else (" to " if low < 0 else to).join(ends)


def span(some: "DataFrame", column: str, digits: int) -> str:
    """The least and the largest of a row's suspects."""
    known = finite(some[column])
    text = from_to(known.min(), known.max(), digits) if len(known) else NOTHING
    return text + _counted(len(known), len(some))


def mean(some: "DataFrame", column: str, digits: int = 1) -> str:
    """The mean of a row's suspects."""
    return _mean(some, column, lambda value: number(value, digits))


def p_mean(some: "DataFrame", column: str) -> str:
    """The geometric mean of the p of a row's suspects, from the column of its log₁₀."""
    return _mean(some, column, small_p)


def _mean(some: "DataFrame", column: str, written: Callable[[float], str]) -> str:
    known = finite(some[column])
    return (written(known.mean()) if len(known) else NOTHING) + _counted(len(known), len(some))


def p_span(some: "DataFrame", column: str) -> str:
    """The least and the largest p of a row's suspects, from the column of its log₁₀; the largest rounded up."""
    known = finite(some[column])
    return p_range(known.min(), known.max()) + _counted(len(known), len(some)) if len(known) else NOTHING


def p_range(low: float, high: float) -> str:
    """A range of p-values from their log₁₀, the larger rounded up."""
    ends = small_p(low), small_p(high, up=True)
    return ends[1] if low == high else " to ".join(ends)


def with_number(cell: str, n: int) -> str:
    """A cell of so many suspects, where that is to be said in any case."""
    return f"{cell} (n {n})" if n else NOTHING


def _counted(count: int, n: int) -> str:
    return f" (n {count})" if 0 < count != n else ""


def precision(found: tuple[float, int, int] | None, n: tuple[int, int] | None = None) -> str:
    """An mAP, and of how many it is where these are not the row's n."""
    if found is None:
        return NOTHING
    text = "> 0.99" if 0.995 <= found[0] < 1 else f"{found[0]:.2f}"  # 1.00 is kept for what is perfect
    return text if found[1:] == n else f"{text} (n {found[1]} + {found[2]})"


def both(some: "DataFrame", statistic: str, cell: Callable[["DataFrame", str], str] = mean) -> str:
    """The mean on queries and on unseen text."""
    return " / ".join(cell(some, f"{statistic}, {where}") for where in WHERE)


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows under the names of their columns, those of the first row; nothing without rows."""
    if not rows:
        return ""
    head = list(rows[0])
    lines = [head, ["---"] * len(head), *([row.get(name, "") for name in head] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("  ", " ") for line in lines)
