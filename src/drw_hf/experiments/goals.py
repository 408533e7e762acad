"""What was aimed at, and whether what was measured meets it."""

import functools
import itertools
import math
from collections.abc import Callable

from ..wording import small_p
from .cells import NOTHING, number, precision, table
from .results import (
    LABELS,
    LOG10_P,
    MEMORY_LOG10_P,
    P_SNR,
    Place,
    Results,
    Z,
    by_epsilon,
    finite,
    mean_average_precision,
)
from .serving import ALL_DRAWN
from .tasks import PAPER, PAPER_EPSILON

LARGEST_INNOCENT = 5.0  # P_snr of a negative
LARGEST_LOG10_P = -6.0  # of a positive, on its queries
SOFT_COST = 0.3  # points, of argmax-soft at the paper's ε
FAINT_COST = 0.5  # points, at the least ε that still detects

Judged = tuple[bool, str] | None  # whether it was met, and what was measured, if it was


def goals_table(results: Results) -> str:
    """Every goal, whether it was met, and what was measured."""
    by_memory = functools.partial(_costs_little_when_faint, certainty=MEMORY_LOG10_P)
    low = f"every innocent's P_snr < {LARGEST_INNOCENT:g}"
    at_paper, faint = f"at ε = {PAPER_EPSILON}", f"≤ {FAINT_COST} points at the least ε that still detects"
    goals: list[tuple[str, Callable[[Place, str], Judged], str]] = [
        *((f"mAP of z on the queries is 1.00, {labels}", _perfect, labels) for labels in LABELS),
        *((f"{low}, {labels}", _innocents_are_low, labels) for labels in LABELS),
        *((f"every thief's p < 1e-6 on the queries, {labels}", _thieves_are_sure, labels) for labels in LABELS),
        (f"argmax-soft costs ≤ {SOFT_COST} points {at_paper}", _costs_little, "soft"),
        (f"hard labels cost no more than the paper's {at_paper}", _costs_little, "hard"),
        *((f"{faint}, {labels}", _costs_little_when_faint, labels) for labels in LABELS),
        (f"{faint} by the labels served, hard", by_memory, "hard"),
    ]
    rows = []
    for title, judge, labels in goals if results.places else ():
        judged = {place.title: judge(place, labels) for place in results.places}
        known = [met for met, _ in filter(None, judged.values())]
        row = {"goal": title, "met": f"{sum(known)} of {len(known)}" if known else NOTHING}
        for name, found in judged.items():
            row[name] = f"{'yes' if found[0] else '**no**'}: {found[1]}" if found else NOTHING
        rows.append(row)
    return table(rows)


def _perfect(place: Place, labels: str) -> Judged:
    found = mean_average_precision(place.positives(labels), place.negatives(labels), f"{Z}, queries")
    return found and (found[0] == 1.0, precision(found))


def _innocents_are_low(place: Place, labels: str) -> Judged:
    known = finite(place.negatives(labels)[f"{P_SNR}, queries"])
    return (known.max() < LARGEST_INNOCENT, f"largest {known.max():.2f} (n {len(known)})") if len(known) else None


def _thieves_are_sure(place: Place, labels: str) -> Judged:
    found = place.positives(labels)[f"{LOG10_P}, queries"].dropna()
    if not len(found):
        return None
    return found.max() < LARGEST_LOG10_P, f"largest p {small_p(found.max(), up=True)} (n {len(found)})"


def _costs_little(place: Place, labels: str) -> Judged:
    cost, limit = _cost_in_points(place, labels, PAPER_EPSILON), SOFT_COST
    if cost is None:
        return None
    text = number(cost, 2)
    if labels == "hard":
        paper = PAPER[place.task]["merit"]
        limit = round(paper["victim"] - paper["sampling hard, all drawn"], 1)
        drawn = _cost_in_points(place, ALL_DRAWN, PAPER_EPSILON)
        text += f" (paper {limit}, all drawn" + (")" if drawn is None else f"; ours so {number(drawn, 2)})")
    return _at_most(cost, limit), text


def _costs_little_when_faint(place: Place, labels: str, certainty: str = LOG10_P) -> Judged:
    """At the least ε down to which every student's p is below 1e-6 on its queries."""
    tried = {epsilon: some for epsilon, kind, some in by_epsilon(place) if kind == labels}
    largest = {epsilon: tried[epsilon][f"{certainty}, queries"].max() for epsilon in sorted(tried, reverse=True)}
    if all(math.isnan(log10_p) for log10_p in largest.values()):
        return None
    detected = list(itertools.takewhile(lambda epsilon: largest[epsilon] < LARGEST_LOG10_P, largest))
    if not detected:
        return False, "no ε was detected"
    epsilon = detected[-1]
    cost = _cost_in_points(place, labels, epsilon)
    if cost is None:
        return None
    note = ", the least tried" if epsilon == min(tried) else ""
    return _at_most(cost, FAINT_COST), f"{number(cost, 2)} at {epsilon:g}{note} (n {len(tried[epsilon])})"


def _cost_in_points(place: Place, labels: str, epsilon: float) -> float | None:
    """What the mark costs the victim at one ε: points of accuracy, or of F1."""
    clean, served = place.clean_merit(), place.served_merit(labels, epsilon)
    return None if clean is None or served is None else clean - served


def _at_most(cost: float, limit: float) -> bool:
    return cost <= limit + 1e-9  # 92.8 − 92.5 is a little more than 0.3
