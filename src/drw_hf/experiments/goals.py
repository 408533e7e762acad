"""What was aimed at, and whether what was measured meets it."""

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from .cells import NOTHING, number, precision, table
from .paper import PAPER, PAPER_EPSILON
from .results import (
    LABELS,
    LOG10_P,
    MEMORY_LOG10_P,
    P_SNR,
    Results,
    Z,
    by_epsilon,
    finite,
    mean_average_precision,
)
from .serving import ALL_DRAWN
from .tasks import TASKS

if TYPE_CHECKING:
    from pandas import DataFrame

LARGEST_INNOCENT = 5.0  # P_snr of a negative
LARGEST_LOG10_P = -6.0  # of a positive, on its queries
SOFT_COST = 0.3  # points, of argmax-soft at the paper's ε
FAINT_COST = 0.5  # points, at the least ε that still detects

Judged = tuple[bool, str]  # whether it was met, and what was measured


Judge = Callable[[Results, str, str, str], Judged | None]  # of a profile, a task and a kind of labels


def goals_table(results: Results) -> str:
    """Every goal, whether it was met, and what was measured."""
    by_memory = functools.partial(_costs_little_when_faint, certainty=MEMORY_LOG10_P)
    low = f"every innocent's P_snr < {LARGEST_INNOCENT:g}"
    at_paper, faint = f"at ε = {PAPER_EPSILON}", f"≤ {FAINT_COST} points at the least ε that still detects"
    goals: list[tuple[str, Judge, str]] = [
        *((f"mAP of z on the queries is 1.00, {labels}", _perfect, labels) for labels in LABELS),
        *((f"{low}, {labels}", _innocents_are_low, labels) for labels in LABELS),
        *((f"every thief's p < 10⁻⁶ on the queries, {labels}", _thieves_are_sure, labels) for labels in LABELS),
        (f"argmax-soft costs ≤ {SOFT_COST} points {at_paper}", _costs_little, "soft"),
        (f"hard labels cost no more than the paper's {at_paper}", _costs_little, "hard"),
        *((f"{faint}, {labels}", _costs_little_when_faint, labels) for labels in LABELS),
        (f"{faint} by the labels served, hard", by_memory, "hard"),
    ]
    rows = []
    for title, judge, labels in goals if results.places else ():
        judged = {place: judge(results, *place, labels) for place in results.places}
        known = [met for met, _ in filter(None, judged.values())]
        row = {"goal": title, "met": f"{sum(known)} of {len(known)}" if known else NOTHING}
        for (profile, task), found in judged.items():
            cell = f"{'yes' if found[0] else '**no**'}: {found[1]}" if found else NOTHING
            row[f"{TASKS[task].title}, {profile}"] = cell
        rows.append(row)
    return table(rows)


def _perfect(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
    found = mean_average_precision(up, down, f"{Z}, queries")
    return None if found is None else (found[0] == 1.0, precision(found))


def _innocents_are_low(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    known = finite(results.negatives(profile, task, labels)[f"{P_SNR}, queries"])
    return (known.max() < LARGEST_INNOCENT, f"largest {known.max():.2f} (n {len(known)})") if len(known) else None


def _thieves_are_sure(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    found = results.positives(profile, task, labels)[f"{LOG10_P}, queries"].dropna()
    if not len(found):
        return None
    return found.max() < LARGEST_LOG10_P, f"largest log₁₀ p {number(found.max(), 1)} (n {len(found)})"


def _costs_little(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    paper = PAPER[task]["merit"]
    limit = SOFT_COST if labels == "soft" else round(paper["victim"] - paper["sampling hard"], 1)
    cost = cost_in_points(results, profile, task, labels, PAPER_EPSILON)
    if cost is None:
        return None
    text = number(cost, 2)
    if labels == "hard":
        drawn = cost_in_points(results, profile, task, ALL_DRAWN, PAPER_EPSILON)
        text += f" (paper {limit}, all drawn" + (")" if drawn is None else f"; ours so {number(drawn, 2)})")
    return _at_most(cost, limit), text


def _costs_little_when_faint(
    results: Results, profile: str, task: str, labels: str, certainty: str = LOG10_P
) -> Judged | None:
    tried = {epsilon: some for epsilon, kind, some in by_epsilon(results, profile, task) if kind == labels}
    if not any(some[f"{certainty}, queries"].count() for some in tried.values()):
        return None
    epsilon = least_that_detects(tried, certainty)
    if epsilon is None:
        return False, "no ε was detected"
    cost = cost_in_points(results, profile, task, labels, epsilon)
    if cost is None:
        return None
    note = ", the least tried" if epsilon == min(tried) else ""
    return _at_most(cost, FAINT_COST), f"{number(cost, 2)} at {epsilon:g}{note} (n {len(tried[epsilon])})"


def cost_in_points(results: Results, profile: str, task: str, labels: str, epsilon: float) -> float | None:
    """What the mark costs the victim at one ε: points of accuracy, or of F1."""
    clean = results.clean_merit(profile, task)
    served = results.served_merit(profile, task, labels, epsilon)
    return None if clean is None or served is None else clean - served


def least_that_detects(tried: Mapping[float, "DataFrame"], certainty: str = LOG10_P) -> float | None:
    """The least ε down to which every student's p is below 10⁻⁶ on its queries."""
    least = None
    for epsilon in sorted(tried, reverse=True):
        if not tried[epsilon][f"{certainty}, queries"].max() < LARGEST_LOG10_P:  # or none is known
            break
        least = epsilon
    return least


def _at_most(cost: float, limit: float) -> bool:
    return cost <= limit + 1e-9  # 92.8 − 92.5 is a little more than 0.3
