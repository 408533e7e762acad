"""Measuring side by side: every candidate in every round, and ratios within a round."""

import statistics
import time
from collections.abc import Callable

Row = dict[str, str | float | list[float]]


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every candidate in every round, the order turning from round to round."""
    names = list(candidates)
    for name in names:
        candidates[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            candidates[name]()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(times: dict[str, list[float]], over: str, *under: str) -> float:
    """The median over rounds of the ratio within a round, so that a slow spell of the machine counts for both."""
    rounds = zip(times[over], *(times[name] for name in under), strict=True)
    return statistics.median(a / sum(others) for a, *others in rounds)


def milliseconds(seconds: list[float]) -> float:
    """The median."""
    return 1e3 * statistics.median(seconds)
