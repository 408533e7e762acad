"""The paper's tables from the lines of one or more runs: from records to Markdown.

A cell for which nothing was run is "—". Where ranges or means are given, the number of students stands beside.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from .jobs import GOLD, PARTS, UNWATERMARKED, WATERMARKED, Student
from .modes import MODES
from .power import check_plan
from .results import (
    LABELS,
    WHERE,
    Record,
    Results,
    Statistic,
    Suspect,
    blind_z,
    by_category,
    by_epsilon,
    by_limit,
    by_rule,
    by_tau,
    closeness,
    closeness_everywhere,
    divergence,
    divergence_everywhere,
    load,
    log10_p,
    mean_average_precision,
    memory_log10_p,
    memory_z,
    p_snr,
    values,
    z,
)
from .tasks import TASKS

NOTHING = "—"
COMMAND = "drw-hf reproduce {profile} {parts}"
ALL_DRAWN = "hard, all drawn"  # hard labels as the paper's code measures them: τ = 1, every answer drawn
SHOWN_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of those that accuracy was measured at

# The paper's Tables 1 and 2. Accuracy (POS and NER: F1) in per cent, ranges from the least to the largest.
PAPER: dict[str, dict[str, Any]] = {
    "sst2": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 92.8, "argmax soft": 92.5, "sampling hard": 88.4, "soft": 92.0, "hard": 91.3},
        "p_snr": {
            "soft": {"negative": (0.008, 4.775), "positive": (18.82, 25.77)},
            "hard": {"negative": (0.011, 4.235), "positive": (16.38, 22.77)},
        },
        "jsd": {
            "soft": {"negative": (0.012, 0.032), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.013, 0.029), "positive": (0.004, 0.005)},
        },
    },
    "mrpc": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 87.0, "argmax soft": 86.8, "sampling hard": 85.8, "soft": 86.2, "hard": 86.1},
        "p_snr": {
            "soft": {"negative": (0.128, 2.607), "positive": (17.81, 24.25)},
            "hard": {"negative": (0.012, 3.678), "positive": (16.70, 21.80)},
        },
        "jsd": {
            "soft": {"negative": (0.009, 0.161), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.008, 0.154), "positive": (0.003, 0.007)},
        },
    },
    "pos": {
        "map": {"soft": {"jsd": 0.54, "p_snr": 1.00}, "hard": {"jsd": 0.48, "p_snr": 1.00}},
        "merit": {"victim": 90.7, "argmax soft": 90.7, "sampling hard": 90.3, "soft": 89.8, "hard": 89.7},
        "p_snr": {
            "soft": {"negative": (0.012, 2.309), "positive": (20.59, 28.73)},
            "hard": {"negative": (0.182, 2.869), "positive": (16.23, 25.67)},
        },
        "jsd": {
            "soft": {"negative": (0.016, 0.444), "positive": (0.087, 0.279)},
            "hard": {"negative": (0.010, 0.432), "positive": (0.029, 0.112)},
        },
    },
    "ner": {
        "map": {"soft": {"jsd": 0.84, "p_snr": 1.00}, "hard": {"jsd": 0.40, "p_snr": 1.00}},
        "merit": {"victim": 91.3, "argmax soft": 91.3, "sampling hard": 91.0, "soft": 87.7, "hard": 87.4},
        "p_snr": {
            "soft": {"negative": (0.105, 4.243), "positive": (17.25, 25.22)},
            "hard": {"negative": (0.203, 4.183), "positive": (16.19, 25.49)},
        },
        "jsd": {
            "soft": {"negative": (0.001, 0.416), "positive": (0.002, 0.201)},
            "hard": {"negative": (0.009, 0.274), "positive": (0.011, 0.052)},
        },
    },
}
PAPER_EPSILON = 0.2
PAPER_STUDENTS = 10  # of every kind

# What is aimed at.
LARGEST_INNOCENT = 5.0  # P_snr of a negative
LARGEST_LOG10_P = -6.0  # of a positive, on its queries
SOFT_COST = 0.3  # points, of argmax-soft at the paper's ε
FAINT_COST = 0.5  # points, at the least ε that still detects


# -- cells


def number(value: float, digits: int) -> str:
    """A number with a real minus, and none before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _per_cent(value: float | None) -> str:
    return NOTHING if value is None else number(value, 1)


def _from_to(low: float, high: float, digits: int) -> str:
    ends = number(low, digits), number(high, digits)
    return ends[0] if ends[0] == ends[1] else (" to " if low < 0 else "–").join(ends)


def _range(found: Sequence[float], digits: int, n: int) -> str:
    finite = [value for value in found if math.isfinite(value)]
    text = _from_to(min(finite), max(finite), digits) if finite else NOTHING
    return text + _counted(len(finite), n)


def _mean(found: Sequence[float], digits: int, n: int) -> str:
    finite = [value for value in found if math.isfinite(value)]
    text = number(sum(finite) / len(finite), digits) if finite else NOTHING
    return text + _counted(len(finite), n)


def _counted(count: int, n: int) -> str:
    """Said only where it is not the row's number."""
    return f" (n {count})" if 0 < count != n else ""


def _precision(found: tuple[float, int, int] | None, n: tuple[int, int] | None = None) -> str:
    if found is None:
        return NOTHING
    text = "> 0.99" if 0.995 <= found[0] < 1 else f"{found[0]:.2f}"  # 1.00 is kept for what is perfect
    return text if found[1:] == n else f"{text} (n {found[1]} + {found[2]})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _both(suspects: Sequence[Suspect], statistic: Statistic, digits: int = 1) -> str:
    """The mean on queries and on unseen text."""
    return " / ".join(_mean(values(suspects, statistic, where), digits, len(suspects)) for where in WHERE)


def _place(profile: str, task: str) -> tuple[str, str]:
    return TASKS[task].title, profile


# -- tables


def table_1_detection(results: Results) -> str:
    """Table 1, upper part: mAP of the baseline in two ways, of P_snr and of the exact test."""
    ranked = [
        (closeness_everywhere, "queries"),
        (closeness, "queries"),
        (p_snr, "queries"),
        (p_snr, "unseen"),
        (z, "queries"),
        (z, "unseen"),
    ]
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
            if not up and not down:
                continue
            n = len(up), len(down)
            cells = [_precision(mean_average_precision(up, down, *how), n) for how in ranked]
            paper = PAPER[task]["map"][labels]
            known = [f"{paper[name]:.2f}" for name in ("jsd", "p_snr")]
            row = [*_place(profile, task), labels, f"{n[0]} + {n[1]}"]
            rows.append([*row, *cells[:2], known[0], *cells[2:], known[1]])
    head = ["task", "profile", "labels", "students", "DeepJudge, all positions", "DeepJudge, words", "*paper's*"]
    head += ["P_snr, queries", "P_snr, unseen", "z, queries", "z, unseen", "*paper's P_snr*"]
    return _table(head, rows) if rows else ""


def summary(results: Results) -> str:
    """The main figures in a few columns, the paper's beside."""
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
            if not (up and down):
                continue
            n = len(up), len(down)
            paper = PAPER[task]["p_snr"][labels]
            ranges = [
                f"{_range(values(some, p_snr), 1, len(some))} (*{_from_to(*paper[side], 1)}*)"
                for side, some in (("negative", down), ("positive", up))
            ]
            known = f"{PAPER[task]['map'][labels]['p_snr']:.2f}"
            precision = [_precision(mean_average_precision(up, down, how), n) for how in (z, p_snr)]
            largest = f"10^{number(max(values(up, log10_p)), 0)}"
            row = [f"{TASKS[task].title}, {profile}", labels, f"{n[0]} + {n[1]}", precision[0]]
            rows.append([*row, f"{precision[1]} (*{known}*)", *ranges, largest])
    head = ["task, profile", "labels", "thieves + innocents", "mAP, exact test", "mAP, P_snr (*paper*)"]
    head += ["innocents' P_snr (*paper*)", "thieves' P_snr (*paper*)", "thieves' p at most"]
    return _table(head, rows) if rows else ""


def table_1_accuracy(results: Results) -> str:
    """Table 1, lower part: what victim and students get right; of taggers, F1 and the accuracy of words."""
    rows = []
    for task in dict.fromkeys(task for _, task in results.places):
        tagger = TASKS[task].kind == "token-classification"
        figures = {"f1": "F1", "accuracy": "accuracy of words"} if tagger else {"accuracy": "accuracy"}
        found = [
            [*_place(profile, task), title, *cells]
            for profile, its in results.places
            if its == task
            for figure, title in figures.items()
            if set(cells := _accuracies(results, profile, task, figure)) != {NOTHING}
        ]
        if found:
            paper = [number(value, 1) for value in PAPER[task]["merit"].values()]
            # Its hard labels were measured with τ = 1 and every answer drawn.
            cells = [*paper[:2], NOTHING, paper[2], *paper[3:], NOTHING]
            rows += [*found, [TASKS[task].title, "*the paper*", next(iter(figures.values())), *cells]]
    head = ["task", "profile", "figure", "victim", "argmax soft", "sampling hard", "sampling hard, all drawn"]
    return _table([*head, "student soft", "student hard", "student of gold"], rows) if rows else ""


def _accuracies(results: Results, profile: str, task: str, figure: str) -> list[str]:
    """Of the victim, its protected answers, and its students."""
    epsilon = results.setting(profile, "epsilon")
    merits = [results.clean_merit(profile, task, figure)]
    merits += [results.served_merit(profile, task, labels, epsilon, figure) for labels in (*LABELS, ALL_DRAWN)]
    cells = [_per_cent(merit) for merit in merits]
    students = [results.positives(profile, task, labels) for labels in LABELS]
    students.append([s for s in results.negatives(profile, task, "soft") if s.student.teacher == GOLD])
    for some in students:
        known = [merit for merit in (suspect.merit(figure) for suspect in some) if merit is not None]
        cells.append(f"{_mean(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
    return cells


def table_2(results: Results) -> str:
    """Table 2: ranges of P_snr and of the baseline, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        paper = {score: "{:g}–{:g}".format(*PAPER[task][score][labels][name]) for score in ("p_snr", "jsd")}
        snr = [_range(values(some, p_snr, where), 3, n) for where in WHERE]
        everywhere = _range(values(some, divergence_everywhere), 3, n)
        words = [_range(values(some, divergence, where), 3, n) for where in WHERE]
        row = [*_place(profile, task), labels, name, str(n)]
        rows.append([*row, snr[0], paper["p_snr"], snr[1], everywhere, paper["jsd"], *words])
    head = ["task", "profile", "labels", "suspects", "n", "P_snr, queries", "*paper's*", "P_snr, unseen"]
    head += ["JSD, all positions", "*paper's*", "JSD, words, queries", "JSD, words, unseen"]
    return _table(head, rows) if rows else ""


def table_2_exact(results: Results) -> str:
    """Ranges of the exact test, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        cells = [_range(values(some, how, where), 1, n) for how in (z, log10_p, blind_z) for where in WHERE]
        known = values(some, memory_z)
        cells.append(f"{_range(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
        rows.append([*_place(profile, task), labels, name, str(n), *cells])
    head = ["task", "profile", "labels", "suspects", "n", "z, queries", "z, unseen"]
    head += ["log₁₀ p, queries", "log₁₀ p, unseen", "z without victim, queries", "z without victim, unseen"]
    head += ["z by the labels served"]
    return _table(head, rows) if rows else ""


def _sides(results: Results) -> Iterable[tuple[str, str, str, str, list[Suspect]]]:
    for profile, task in results.places:
        for labels in LABELS:
            sides = {"negative": results.negatives, "positive": results.positives}
            for name, members in sides.items():
                some = members(profile, task, labels)
                if some:
                    yield profile, task, labels, name, some


def modes_table(results: Results) -> str:
    """The three ways to do it, side by side."""
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            by_mode = {mode: results.positives(profile, task, labels, mode) for mode in MODES}
            if not any(some for mode, some in by_mode.items() if mode != "default"):
                continue
            for mode, some in by_mode.items():
                down, n = results.negatives(profile, task, labels, mode), len(some)
                innocent = values(down, p_snr)
                merits = [merit for merit in (suspect.merit() for suspect in some) if merit is not None]
                rows.append(
                    [*_place(profile, task), labels, mode, str(n)]
                    + [_range(values(some, p_snr, where), 1, n) for where in WHERE]
                    + [f"{_range(innocent, 1, len(down))} (n {len(down)})" if innocent else NOTHING]
                    + [
                        _precision(mean_average_precision(some, down, how), (n, len(down)))
                        for how in (p_snr, closeness)
                    ]
                    + [_both(some, z), _mean(merits, 1, n)]
                    + [_from_to(*PAPER[task]["p_snr"][labels]["positive"], 1)]
                )
    head = ["task", "profile", "labels", "mode", "n", "P_snr, queries", "P_snr, unseen", "innocents' P_snr"]
    head += ["mAP of P_snr", "mAP of JSD, words", "z, queries / unseen", "student", "*paper's P_snr*"]
    return _table(head, rows) if rows else ""


# -- ablations


def epsilon_table(results: Results) -> str:
    """Detection against ε. The negatives are the same for all: a key's phases do not depend on ε."""
    rows = []
    for profile, task in results.places:
        for epsilon, labels, some in by_epsilon(results, profile, task):
            down = results.negatives(profile, task, labels)
            n = len(some), len(down)
            cells = [
                " / ".join(_precision(mean_average_precision(some, down, how, where), n) for where in WHERE)
                for how in (p_snr, z)
            ]
            cells += [_both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*_place(profile, task), labels, f"{epsilon:g}", f"{n[0]} + {n[1]}", *cells])
    head = ["task", "profile", "labels", "ε", "students", "mAP of P_snr", "mAP of z", "P_snr", "z", "log₁₀ p"]
    return _table(head, rows) if rows else ""


def ablation_table(results: Results, find: Callable[[Results, str, str], Sequence[Any]], varied: str) -> str:
    """Means over students, on queries / on unseen text, for every setting that ``find`` names."""
    rows = []
    for profile, task in results.places:
        for setting, labels, some in find(results, profile, task):
            merits = [merit for merit in (suspect.merit() for suspect in some) if merit is not None]
            name = setting if isinstance(setting, str) else f"{setting:g}"
            cells = [_both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*_place(profile, task), name, labels, str(len(some)), *cells, _mean(merits, 1, len(some))])
    return _table(["task", "profile", varied, "labels", "n", "P_snr", "z", "log₁₀ p", "student"], rows) if rows else ""


def theorem_table(results: Results) -> str:
    """Accuracy of protected answers: measured, foretold for a calibrated model, and bounded."""
    rows = []
    for profile, task in results.places:
        line = results.record(profile, f"accuracy {task}") or {}
        clean = (line.get("clean") or {}).get("accuracy")
        error = NOTHING if line.get("ece") is None else f"{line['ece']:.3f}"
        for labels in (*LABELS, ALL_DRAWN):
            for level in sorted(line.get("levels") or [], key=lambda level: level["epsilon"]):
                if level["labels"] != labels or level["epsilon"] not in SHOWN_LEVELS:
                    continue
                row = [*_place(profile, task), labels, f"{level['epsilon']:g}", _share(clean)]
                row += [_measured(level), _less(clean, level.get("accuracy"))]
                row += [_less(level.get("clean"), level.get("expected"))]
                rows.append([*row, *(_share(level.get(name)) for name in ("expected", "bound", "paper_bound")), error])
    head = ["task", "profile", "labels", "ε", "clean", "measured (least–largest over keys)", "cost", "expected cost"]
    return _table([*head, "expected", "bound", "*paper's bound*", "ECE"], rows) if rows else ""


def _measured(level: Record) -> str:
    text = _share(level.get("accuracy"))
    ends = [level.get(f"accuracy_{end}") for end in ("low", "high")]
    return text if None in ends else f"{text} ({_from_to(*(100.0 * end for end in ends), 2)})"


def _less(before: float | None, after: float | None) -> str:
    return NOTHING if before is None or after is None else number(100.0 * (before - after), 2)


def _share(value: float | None) -> str:
    return NOTHING if value is None else number(100.0 * value, 2)


def plan_table(results: Results) -> str:
    """What ``drw-hf plan`` foretells beside what students reached."""
    rows = []
    for one in check_plan(results):
        figures = [number(one.sigma, 2), number(one.phi, 2), number(one.measured, 1), number(one.planned, 1)]
        ratio = number(one.planned / one.measured, 2) if one.measured > 0 else NOTHING
        where = "its queries" if one.where == "queries" else "unseen text"
        place = _place(one.profile, one.task)
        rows.append([*place, one.labels, f"{one.epsilon:g}", where, str(one.n), *figures, ratio])
    head = ["task", "profile", "labels", "ε", "probed with", "n", "σ", "fitted φ", "z", "planned z", "planned / z"]
    return _table(head, rows) if rows else ""


# -- goals

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
    return _table(head, rows)


def _perfect(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
    found = mean_average_precision(up, down, z)
    return None if found is None else (found[0] == 1.0, _precision(found))


def _innocents_are_low(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    found = values(results.negatives(profile, task, labels), p_snr)
    finite = [value for value in found if math.isfinite(value)]
    return (max(finite) < LARGEST_INNOCENT, f"largest {max(finite):.2f} (n {len(finite)})") if finite else None


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


# -- what was run


def what_was_run(results: Results) -> str:
    """The students that were scored, by profile, task and kind; and what was not run."""
    kinds = [(teacher, labels) for teacher in (WATERMARKED, UNWATERMARKED) for labels in LABELS] + [(GOLD, "soft")]
    rows = []
    for profile, task in results.places:
        counts = [_scored(results, profile, Student(task, teacher, labels)) for teacher, labels in kinds]
        victim = "yes" if results.record(profile, f"victim {task}") else "no"
        rows.append([profile, TASKS[task].title, victim, *map(str, counts)])
    head = ["profile", "task", "victim", "watermarked, soft", "watermarked, hard", "unwatermarked, soft"]
    pieces = [_table([*head, "unwatermarked, hard", "gold"], rows)] if rows else []
    rows, missing = [], []
    for profile in results.profiles:
        lacking = []
        for part, (make, tasks) in PARTS.items():
            for task in tasks:
                counts = [_scored(results, profile, student) for student in make(task, [1])]
                if not any(counts):
                    lacking.append(f"{part} on {TASKS[task].title}")
                    continue
                if 0 in counts:
                    lacking.append(f"{counts.count(0)} of {len(counts)} settings of {part} on {TASKS[task].title}")
                if part != "tables":
                    each = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
                    rows.append([profile, part, TASKS[task].title, str(len(counts)), each])
        if lacking:
            missing.append(f"- Not run with {profile}: {', '.join(lacking)}.")
    if rows:
        pieces.append(_table(["profile", "part", "task", "settings", "students of each"], rows))
    notes = [*missing, *_mixed(results)]
    if notes:
        pieces.append("\n".join(notes))
    pieces.append(f"The paper has {PAPER_STUDENTS} students of every kind, all of bert-base-uncased.")
    return "\n\n".join(pieces)


def _mixed(results: Results) -> list[str]:
    """Where a run went on with another victim, or on other data, than it began with."""
    notes = []
    for profile, task in results.places:
        here = [record for record in results.records if (record["profile"], record.get("task")) == (profile, task)]
        for field, what in (("victim", "victims"), ("data", "versions of the data")):
            found = {record[field] for record in here if field in record}
            if len(found) > 1:
                notes.append(f"- {TASKS[task].title} with {profile} mixes students of {len(found)} {what}.")
    return notes


def _scored(results: Results, profile: str, student: Student) -> int:
    """How many students of a setting have scores under the key of their own."""
    wanted = dataclasses.replace(student, seed=1)
    return sum(
        suspect.profile == profile
        and suspect.mode == suspect.student.mode
        and dataclasses.replace(suspect.student, seed=1) == wanted
        for suspect in results.suspects
    )


# -- the document


def report(paths: Iterable[str | os.PathLike]) -> str:
    """All tables that there are data for, as one Markdown document.

    Parameters
    ----------
    paths : iterable of path-like
        Files of JSON lines, one for each profile.
    """
    results = load(paths)
    sections = [
        (
            "Goals",
            "What was aimed at and what was measured, with the numbers of students (thieves + innocents).",
            goals_table(results),
            ("tables", "epsilon"),
        ),
        (
            "Table 1: detection",
            "mAP of ranking thieves above innocents, ties counted against the method; students are thieves + "
            "innocents, all of the default mode, in which hard labels are drawn once. DeepJudge ranks by a small "
            "divergence, on the queries: over all positions as the paper's code does (of the first 640 queries, in "
            "batches of 64, padded to their longest), and over words alone.",
            table_1_detection(results),
            ("tables",),
        ),
        (
            "Table 1: accuracy",
            "Per cent, on the split the paper uses. Protected answers are means over keys at the profile's ε, "
            "students means over seeds. The paper's code draws every answer (τ = 1) to measure hard labels, as the "
            'column "all drawn" does. F1 is seqeval\'s, for POS as well, whose tags it takes for entities.',
            table_1_accuracy(results),
            ("tables",),
        ),
        (
            "Table 2: scores",
            "The least and the largest score of n suspects. The paper's JSD is over all positions, padding too.",
            table_2(results),
            ("tables",),
        ),
        (
            "Table 2 for the exact test",
            "The least and the largest score of n suspects. The last column tests, where it is known, which labels "
            "were served.",
            table_2_exact(results),
            ("tables",),
        ),
        (
            "Three modes",
            "The package's default beside the paper's text and code; n students each, ranges, and means of z and of "
            "accuracy. P_snr is of the probes that each mode counts. The innocents are the default's, under the "
            "mode's keys: in paper-code, where every hard label is drawn, theirs were not.",
            modes_table(results),
            ("tables", "modes"),
        ),
        (
            "The watermark level ε",
            "mAP and means on queries / on unseen text; students are thieves + innocents. The paper's P_snr ranks NER "
            "perfectly only from ε = 0.12 on.",
            epsilon_table(results),
            ("tables", "epsilon"),
        ),
        (
            "The target class",
            "Means over n students, on queries / on unseen text. In the paper NNP is strongest and DT fails.",
            ablation_table(results, by_category, "c*"),
            ("tables", "category"),
        ),
        (
            "The share of marked tokens τ",
            "Means over n students, on queries / on unseen text.",
            ablation_table(results, by_tau, "τ"),
            ("tables", "tau"),
        ),
        (
            "The hashed token",
            "Means over n students, on queries / on unseen text; some thieves prepended two words to every query.",
            ablation_table(results, by_rule, "hashed"),
            ("tables", "rule"),
        ),
        (
            "Limits",
            "Means over n students, on queries / on unseen text, for thieves who learn less of the mark.",
            ablation_table(results, by_limit, "what the thief learns from"),
            ("tables", "limits"),
        ),
        (
            "Accuracy against Theorem 1",
            "Accuracy in per cent (for NER, too), measured on the evaluation split, at some of the levels. Expected "
            "and bounds are computed from the victim's probabilities and hold if it is calibrated. ECE is its "
            "calibration error, which shifts clean and protected accuracy alike: compare costs.",
            theorem_table(results),
            ("tables",),
        ),
        (
            "The plan against students",
            "Means over n students. σ is the spread of unmarked students' tokens, φ what would make the plan right "
            "with it, and the planned z is the plan's own, with the constants that it comes with.",
            plan_table(results),
            ("tables", "epsilon"),
        ),
    ]
    pieces = ["# The paper's tables, reproduced", "## What was run", what_was_run(results)]
    for title, sentence, table, parts in sections:
        if table:
            pieces += [f"## {title}", sentence, table, _made_by(results, parts)]
    return "\n\n".join(pieces) + "\n"


def _made_by(results: Results, parts: Sequence[str]) -> str:
    wanted = " ".join(f"--part {part}" for part in parts)
    commands = (f"`{COMMAND.format(profile=profile, parts=wanted)}`" for profile in results.profiles)
    return f"Made by {', '.join(commands)}."
