"""What was aimed at, and whether what was measured meets it."""

import functools
from collections.abc import Callable, Mapping, Sequence

from .cells import NOTHING, number, precision, table
from .paper import PAPER, PAPER_EPSILON
from .results import (
    LABELS,
    Results,
    Statistic,
    Suspect,
    by_epsilon,
    finite,
    log10_p,
    mean_average_precision,
    memory_log10_p,
    p_snr,
    values,
    z,
)
from .serving import ALL_DRAWN
from .tasks import TASKS

LARGEST_INNOCENT = 5.0  # P_snr of a negative
LARGEST_LOG10_P = -6.0  # of a positive, on its queries
SOFT_COST = 0.3  # points, of argmax-soft at the paper's ε
FAINT_COST = 0.5  # points, at the least ε that still detects

Judged = tuple[bool, str]  # whether it was met, and what was measured


def goals_table(results: Results) -> str:
    """Every goal, whether it was met, and what was measured."""
    if not results.places:
        return ""
    goals: list[tuple[str, Callable[[str, str], Judged | None]]] = []

    def add(title: str, judge: Callable[[Results, str, str, str], Judged | None], labels: str) -> None:
        goals.append((title, lambda profile, task: judge(results, profile, task, labels)))

    for labels in LABELS:
        add(f"mAP of z on the queries is 1.00, {labels}", _perfect, labels)
    for labels in LABELS:
        add(f"every innocent's P_snr < {LARGEST_INNOCENT:g}, {labels}", _innocents_are_low, labels)
    for labels in LABELS:
        add(f"every thief's p < 10⁻⁶ on the queries, {labels}", _thieves_are_sure, labels)
    add(f"argmax-soft costs ≤ {SOFT_COST} points at ε = {PAPER_EPSILON}", _costs_little, "soft")
    add(f"hard labels cost no more than the paper's at ε = {PAPER_EPSILON}", _costs_little, "hard")
    for labels in LABELS:
        add(f"≤ {FAINT_COST} points at the least ε that still detects, {labels}", _costs_little_when_faint, labels)
    add(
        f"≤ {FAINT_COST} points at the least ε that still detects by the labels served, hard",
        functools.partial(_costs_little_when_faint, certainty=memory_log10_p),
        "hard",
    )
    rows = []
    for title, judge in goals:
        judged = [judge(*place) for place in results.places]
        known = [met for met, _ in filter(None, judged)]
        total = f"{sum(known)} of {len(known)}" if known else NOTHING
        cells = [f"{'yes' if found[0] else '**no**'}: {found[1]}" if found else NOTHING for found in judged]
        rows.append([title, total, *cells])
    head = ["goal", "met", *(f"{TASKS[task].title}, {profile}" for profile, task in results.places)]
    return table(head, rows)


def _perfect(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
    found = mean_average_precision(up, down, z)
    return None if found is None else (found[0] == 1.0, precision(found))


def _innocents_are_low(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    known = finite(values(results.negatives(profile, task, labels), p_snr))
    return (max(known) < LARGEST_INNOCENT, f"largest {max(known):.2f} (n {len(known)})") if known else None


def _thieves_are_sure(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    found = values(results.positives(profile, task, labels), log10_p)
    if not found:
        return None
    return max(found) < LARGEST_LOG10_P, f"largest log₁₀ p {number(max(found), 1)} (n {len(found)})"


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
    results: Results, profile: str, task: str, labels: str, certainty: Statistic = log10_p
) -> Judged | None:
    tried = {epsilon: some for epsilon, kind, some in by_epsilon(results, profile, task) if kind == labels}
    if not any(values(some, certainty) for some in tried.values()):
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


def least_that_detects(tried: Mapping[float, Sequence[Suspect]], certainty: Statistic = log10_p) -> float | None:
    """The least ε down to which every student's p is below 10⁻⁶ on its queries."""
    least = None
    for epsilon in sorted(tried, reverse=True):
        found = values(tried[epsilon], certainty)
        if not found or max(found) >= LARGEST_LOG10_P:
            break
        least = epsilon
    return least


def _at_most(cost: float, limit: float) -> bool:
    return cost <= limit + 1e-9  # 92.8 − 92.5 is a little more than 0.3
