"""The paper's tables from the lines of one or more runs: from records to Markdown."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .cells import NOTHING, both, from_to, mean, number, per_cent, place, precision, span, table
from .jobs import GOLD
from .modes import MODES
from .paper import PAPER
from .power import check_plan
from .results import (
    LABELS,
    WHERE,
    Record,
    Results,
    Statistic,
    Suspect,
    blind_z,
    by_epsilon,
    closeness,
    closeness_everywhere,
    divergence,
    divergence_everywhere,
    log10_p,
    mean_average_precision,
    memory_z,
    p_snr,
    values,
    z,
)
from .serving import ALL_DRAWN
from .tasks import TASKS

SHOWN_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of those that accuracy was measured at


def table_1_detection(results: Results) -> str:
    """Table 1, upper part: mAP of the baseline in two ways, of P_snr and of the exact test."""
    ranked: list[tuple[Statistic, str]] = [
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
            cells = [precision(mean_average_precision(up, down, *how), n) for how in ranked]
            paper = PAPER[task]["map"][labels]
            known = [f"{paper[name]:.2f}" for name in ("jsd", "p_snr")]
            row = [*place(profile, task), labels, f"{n[0]} + {n[1]}"]
            rows.append([*row, *cells[:2], known[0], *cells[2:], known[1]])
    head = ["task", "profile", "labels", "students", "DeepJudge, all positions", "DeepJudge, words", "*paper's*"]
    head += ["P_snr, queries", "P_snr, unseen", "z, queries", "z, unseen", "*paper's P_snr*"]
    return table(head, rows) if rows else ""


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
                f"{span(values(some, p_snr), 1, len(some))} (*{_ends(paper[side])}*)"
                for side, some in (("negative", down), ("positive", up))
            ]
            known = f"{PAPER[task]['map'][labels]['p_snr']:.2f}"
            ranked = [precision(mean_average_precision(up, down, how), n) for how in (z, p_snr)]
            largest = f"10^{number(math.ceil(max(values(up, log10_p))), 0)}"  # rounded up: it says "at most"
            row = [f"{TASKS[task].title}, {profile}", labels, f"{n[0]} + {n[1]}", ranked[0]]
            rows.append([*row, f"{ranked[1]} (*{known}*)", *ranges, largest])
    head = ["task, profile", "labels", "thieves + innocents", "mAP, exact test", "mAP, P_snr (*paper*)"]
    head += ["innocents' P_snr (*paper*)", "thieves' P_snr (*paper*)", "thieves' p at most"]
    return table(head, rows) if rows else ""


def _ends(paper: tuple[float, float]) -> str:
    """A range of the paper's."""
    return from_to(paper[0], paper[1], 1)


def table_1_accuracy(results: Results) -> str:
    """Table 1, lower part: what victim and students get right; of taggers, F1 and the accuracy of words."""
    rows = []
    for task in dict.fromkeys(task for _, task in results.places):
        tagger = TASKS[task].kind == "token-classification"
        figures = {"f1": "F1", "accuracy": "accuracy of words"} if tagger else {"accuracy": "accuracy"}
        found = [
            [*place(profile, task), title, *cells]
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
    return table([*head, "student soft", "student hard", "student of gold"], rows) if rows else ""


def _accuracies(results: Results, profile: str, task: str, figure: str) -> list[str]:
    """Of the victim, its protected answers, and its students."""
    epsilon = results.setting(profile, "epsilon")
    merits = [results.clean_merit(profile, task, figure)]
    merits += [results.served_merit(profile, task, labels, epsilon, figure) for labels in (*LABELS, ALL_DRAWN)]
    cells = [per_cent(merit) for merit in merits]
    students = [results.positives(profile, task, labels) for labels in LABELS]
    students.append([s for s in results.negatives(profile, task, "soft") if s.student.teacher == GOLD])
    for some in students:
        known = [merit for merit in (suspect.merit(figure) for suspect in some) if merit is not None]
        cells.append(f"{mean(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
    return cells


def table_2(results: Results) -> str:
    """Table 2: ranges of P_snr and of the baseline, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        paper = {score: "{:g}–{:g}".format(*PAPER[task][score][labels][name]) for score in ("p_snr", "jsd")}
        snr = [span(values(some, p_snr, where), 3, n) for where in WHERE]
        everywhere = span(values(some, divergence_everywhere), 3, n)
        words = [span(values(some, divergence, where), 3, n) for where in WHERE]
        row = [*place(profile, task), labels, name, str(n)]
        rows.append([*row, snr[0], paper["p_snr"], snr[1], everywhere, paper["jsd"], *words])
    head = ["task", "profile", "labels", "suspects", "n", "P_snr, queries", "*paper's*", "P_snr, unseen"]
    head += ["JSD, all positions", "*paper's*", "JSD, words, queries", "JSD, words, unseen"]
    return table(head, rows) if rows else ""


def table_2_exact(results: Results) -> str:
    """Ranges of the exact test, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        cells = [span(values(some, how, where), 1, n) for how in (z, log10_p, blind_z) for where in WHERE]
        known = values(some, memory_z)
        cells.append(f"{span(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
        rows.append([*place(profile, task), labels, name, str(n), *cells])
    head = ["task", "profile", "labels", "suspects", "n", "z, queries", "z, unseen"]
    head += ["log₁₀ p, queries", "log₁₀ p, unseen", "z without victim, queries", "z without victim, unseen"]
    head += ["z by the labels served"]
    return table(head, rows) if rows else ""


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
                    [*place(profile, task), labels, mode, str(n)]
                    + [span(values(some, p_snr, where), 1, n) for where in WHERE]
                    + [f"{span(innocent, 1, len(down))} (n {len(down)})" if innocent else NOTHING]
                    + [
                        precision(mean_average_precision(some, down, how), (n, len(down)))
                        for how in (p_snr, closeness)
                    ]
                    + [both(some, z), mean(merits, 1, n)]
                    + [_ends(PAPER[task]["p_snr"][labels]["positive"])]
                )
    head = ["task", "profile", "labels", "mode", "n", "P_snr, queries", "P_snr, unseen", "innocents' P_snr"]
    head += ["mAP of P_snr", "mAP of JSD, words", "z, queries / unseen", "student", "*paper's P_snr*"]
    return table(head, rows) if rows else ""


# -- ablations


def epsilon_table(results: Results) -> str:
    """Detection against ε. The negatives are the same for all: a key's phases do not depend on ε."""
    rows = []
    for profile, task in results.places:
        for epsilon, labels, some in by_epsilon(results, profile, task):
            down = results.negatives(profile, task, labels)
            n = len(some), len(down)
            cells = [
                " / ".join(precision(mean_average_precision(some, down, how, where), n) for where in WHERE)
                for how in (p_snr, z)
            ]
            cells += [both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*place(profile, task), labels, f"{epsilon:g}", f"{n[0]} + {n[1]}", *cells])
    head = ["task", "profile", "labels", "ε", "students", "mAP of P_snr", "mAP of z", "P_snr", "z", "log₁₀ p"]
    return table(head, rows) if rows else ""


def ablation_table(results: Results, find: Callable[[Results, str, str], Sequence[Any]], varied: str) -> str:
    """Means over students, on queries / on unseen text, for every setting that ``find`` names."""
    rows = []
    for profile, task in results.places:
        for setting, labels, some in find(results, profile, task):
            merits = [merit for merit in (suspect.merit() for suspect in some) if merit is not None]
            name = setting if isinstance(setting, str) else f"{setting:g}"
            cells = [both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*place(profile, task), name, labels, str(len(some)), *cells, mean(merits, 1, len(some))])
    return table(["task", "profile", varied, "labels", "n", "P_snr", "z", "log₁₀ p", "student"], rows) if rows else ""


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
                row = [*place(profile, task), labels, f"{level['epsilon']:g}", _share(clean)]
                row += [_measured(level), _less(clean, level.get("accuracy"))]
                row += [_less(level.get("clean"), level.get("expected"))]
                rows.append([*row, *(_share(level.get(name)) for name in ("expected", "bound", "paper_bound")), error])
    head = ["task", "profile", "labels", "ε", "clean", "measured (least–largest over keys)", "cost", "expected cost"]
    return table([*head, "expected", "bound", "*paper's bound*", "ECE"], rows) if rows else ""


def _measured(level: Record) -> str:
    text = _share(level.get("accuracy"))
    low, high = level.get("accuracy_low"), level.get("accuracy_high")
    return text if low is None or high is None else f"{text} ({from_to(100.0 * low, 100.0 * high, 2)})"


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
        row = [*place(one.profile, one.task), one.labels, f"{one.epsilon:g}", where, str(one.n)]
        rows.append([*row, *figures, ratio])
    head = ["task", "profile", "labels", "ε", "probed with", "n", "σ", "fitted φ", "z", "planned z", "planned / z"]
    return table(head, rows) if rows else ""
