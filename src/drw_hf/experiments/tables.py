"""The paper's tables from the lines of one or more runs: from records to Markdown."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .cells import NOTHING, both, from_to, mean, number, precision, span, table, with_number
from .jobs import GOLD
from .lines import Record
from .modes import MODES
from .paper import PAPER
from .power import check_plan
from .results import (
    BLIND_Z,
    EVERYWHERE,
    JSD,
    LABELS,
    LOG10_P,
    MEMORY_Z,
    P_SNR,
    WHERE,
    Results,
    Z,
    by_epsilon,
    mean_average_precision,
)
from .serving import ALL_DRAWN
from .tasks import TASKS

if TYPE_CHECKING:
    from pandas import DataFrame

SHOWN_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of those that accuracy was measured at

Row = dict[str, str]


def _place(profile: str, task: str, **more: str) -> Row:
    """A row's first cells."""
    return {"task": TASKS[task].title, "profile": profile, **more}


def table_1_detection(results: Results) -> str:
    """Table 1, upper part: mAP of the baseline in two ways, of P_snr and of the exact test."""
    rows = []
    for profile, task, labels, up, down in _sides(results):
        n, paper = (len(up), len(down)), PAPER[task]["map"][labels]
        row = _place(profile, task, labels=labels, students=f"{n[0]} + {n[1]}")
        ranked = {"DeepJudge, all positions": EVERYWHERE, "DeepJudge, words": f"{JSD}, queries"}
        row |= {name: precision(mean_average_precision(up, down, how), n) for name, how in ranked.items()}
        row["*paper's*"] = f"{paper['jsd']:.2f}"
        ranked = {name: name for statistic in (P_SNR, Z) for name in _on_both(statistic)}
        row |= {name: precision(mean_average_precision(up, down, how), n) for name, how in ranked.items()}
        rows.append({**row, "*paper's P_snr*": f"{paper['p_snr']:.2f}"})
    return table(rows)


def summary(results: Results) -> str:
    """The main figures in a few columns, the paper's beside."""
    rows = []
    for profile, task, labels, up, down in _sides(results):
        if not (len(up) and len(down)):
            continue
        n, paper = (len(up), len(down)), PAPER[task]["p_snr"][labels]
        ranges = [
            f"{span(some, f'{P_SNR}, queries', 1)} (*{from_to(*paper[side])}*)"
            for side, some in (("negative", down), ("positive", up))
        ]
        ranked = [precision(mean_average_precision(up, down, f"{how}, queries"), n) for how in (Z, P_SNR)]
        rows.append(
            {
                "task, profile": f"{TASKS[task].title}, {profile}",
                "labels": labels,
                "thieves + innocents": f"{n[0]} + {n[1]}",
                "mAP, exact test": ranked[0],
                "mAP, P_snr (*paper*)": f"{ranked[1]} (*{PAPER[task]['map'][labels]['p_snr']:.2f}*)",
                "innocents' P_snr (*paper*)": ranges[0],
                "thieves' P_snr (*paper*)": ranges[1],
                # Rounded up: it says "at most".
                "thieves' p at most": f"10^{number(math.ceil(up[f'{LOG10_P}, queries'].max()), 0)}",
            }
        )
    return table(rows)


def _sides(results: Results) -> Iterator[tuple[str, str, str, "DataFrame", "DataFrame"]]:
    """Profiles, tasks and kinds of labels with their thieves and innocents, where there are any of either."""
    for profile, task in results.places:
        for labels in LABELS:
            up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
            if len(up) or len(down):
                yield profile, task, labels, up, down


def _on_both(statistic: str) -> list[str]:
    return [f"{statistic}, {where}" for where in WHERE]


def table_1_accuracy(results: Results) -> str:
    """Table 1, lower part: what victim and students get right; of taggers, F1 and the accuracy of words."""
    rows = []
    for task in dict.fromkeys(task for _, task in results.places):
        tagger = TASKS[task].kind == "token-classification"
        figures = {"f1": "F1", "accuracy": "accuracy of words"} if tagger else {"accuracy": "accuracy"}
        found = [
            _place(profile, task, figure=title) | cells
            for profile, its in results.places
            if its == task
            for figure, title in figures.items()
            if set((cells := _accuracies(results, profile, task, figure)).values()) != {NOTHING}
        ]
        if found:
            paper = PAPER[task]["merit"]
            # Its hard labels were measured with τ = 1 and every answer drawn.
            known = {**paper, "sampling hard": None, "sampling hard, all drawn": paper["sampling hard"]}
            known |= {"student soft": paper["soft"], "student hard": paper["hard"]}
            cells = {name: number(known.get(name), 1) for name in found[0] if name not in _place("", task, figure="")}
            rows += [*found, _place("*the paper*", task, figure=next(iter(figures.values()))) | cells]
    return table(rows)


def _accuracies(results: Results, profile: str, task: str, figure: str) -> Row:
    """Of the victim, its protected answers, and its students."""
    epsilon = results.mark_setting(profile, "epsilon")
    served = {"argmax soft": "soft", "sampling hard": "hard", "sampling hard, all drawn": ALL_DRAWN}
    merits = {"victim": results.clean_merit(profile, task, figure)}
    merits |= {name: results.served_merit(profile, task, how, epsilon, figure) for name, how in served.items()}
    cells = {name: number(merit, 1) for name, merit in merits.items()}
    students = {f"student {labels}": results.positives(profile, task, labels) for labels in LABELS}
    innocents = results.negatives(profile, task, "soft")
    students["student of gold"] = innocents[innocents.teacher == GOLD]
    for name, some in students.items():
        known = some.dropna(subset=[figure])
        cells[name] = with_number(mean(known, figure), len(known))
    return cells


def table_2(results: Results) -> str:
    """Table 2: ranges of P_snr and of the baseline, for innocents and thieves."""
    rows = []
    for row, (task, labels, name), some in _rows_of_table_2(results):
        paper = {score: "{:g}–{:g}".format(*PAPER[task][score][labels][name]) for score in ("p_snr", "jsd")}
        row["P_snr, queries"] = span(some, "P_snr, queries", 3)
        row["*paper's P_snr*"] = paper["p_snr"]
        row["P_snr, unseen"] = span(some, "P_snr, unseen", 3)
        row[EVERYWHERE] = span(some, EVERYWHERE, 3)
        row["*paper's JSD*"] = paper["jsd"]
        rows.append(row | {column: span(some, column, 3) for column in _on_both(JSD)})
    return table(rows)


def table_2_exact(results: Results) -> str:
    """Ranges of the exact test, for innocents and thieves."""
    rows = []
    for row, _, some in _rows_of_table_2(results):
        row |= {column: span(some, column, 1) for how in (Z, LOG10_P, BLIND_Z) for column in _on_both(how)}
        known = some.dropna(subset=[f"{MEMORY_Z}, queries"])
        rows.append(row | {MEMORY_Z: with_number(span(known, f"{MEMORY_Z}, queries", 1), len(known))})
    return table(rows)


def _rows_of_table_2(results: Results) -> Iterator[tuple[Row, tuple[str, str, str], "DataFrame"]]:
    for profile, task, labels, up, down in _sides(results):
        for name, some in (("negative", down), ("positive", up)):
            if len(some):
                row = _place(profile, task, labels=labels, suspects=name, n=str(len(some)))
                yield row, (task, labels, name), some


def modes_table(results: Results) -> str:
    """The three ways to do it, side by side."""
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            by_mode = {mode: results.positives(profile, task, labels, mode) for mode in MODES}
            if not any(len(some) for mode, some in by_mode.items() if mode != "default"):
                continue
            for mode, some in by_mode.items():
                down, n = results.negatives(profile, task, labels, mode), len(some)
                row = _place(profile, task, labels=labels, mode=mode, n=str(n))
                row |= {column: span(some, column, 1) for column in _on_both(P_SNR)}
                row["innocents' P_snr"] = with_number(span(down, f"{P_SNR}, queries", 1), len(down))
                for how in (P_SNR, JSD):
                    found = mean_average_precision(some, down, f"{how}, queries")
                    row[f"mAP of {how}"] = precision(found, (n, len(down)))
                row["z, queries / unseen"] = both(some, Z)
                row["student"] = mean(some, TASKS[task].metric)
                row["*paper's P_snr*"] = from_to(*PAPER[task]["p_snr"][labels]["positive"])
                rows.append(row)
    return table(rows)


# -- ablations


def epsilon_table(results: Results) -> str:
    """Detection against ε. The negatives are the same for all: a key's phases do not depend on ε."""
    rows = []
    for profile, task in results.places:
        for epsilon, labels, some in by_epsilon(results, profile, task):
            down = results.negatives(profile, task, labels)
            n = len(some), len(down)
            row = _place(profile, task, labels=labels, ε=f"{epsilon:g}", students=f"{n[0]} + {n[1]}")
            for how in (P_SNR, Z):
                found = [precision(mean_average_precision(some, down, column), n) for column in _on_both(how)]
                row[f"mAP of {how}"] = " / ".join(found)
            rows.append(row | {how: both(some, how) for how in (P_SNR, Z, LOG10_P)})
    return table(rows)


def ablation_table(results: Results, find: Callable[[Results, str, str], Sequence[Any]], varied: str) -> str:
    """Means over students, on queries / on unseen text, for every setting that ``find`` names."""
    rows = []
    for profile, task in results.places:
        for setting, labels, some in find(results, profile, task):
            name = setting if isinstance(setting, str) else f"{setting:g}"
            row = _place(profile, task) | {varied: name, "labels": labels, "n": str(len(some))}
            row |= {how: both(some, how) for how in (P_SNR, Z, LOG10_P)}
            rows.append(row | {"student": mean(some, TASKS[task].metric)})
    return table(rows)


def theorem_table(results: Results) -> str:
    """Accuracy of protected answers: measured, expected of a calibrated model, and bounded."""
    rows = []
    for profile, task in results.places:
        line = results.record(profile, f"accuracy {task}")
        clean = (line.get("clean") or {}).get("accuracy")
        for labels in (*LABELS, ALL_DRAWN):
            for level in sorted(line.get("levels") or [], key=lambda level: level["epsilon"]):
                if level["labels"] != labels or level["epsilon"] not in SHOWN_LEVELS:
                    continue
                row = _place(profile, task, labels=labels, ε=f"{level['epsilon']:g}", clean=_share(clean))
                row["measured (least–largest over keys)"] = _measured(level)
                row["cost"] = _less(clean, level.get("accuracy"))
                row["expected cost"] = _less(level.get("clean"), level.get("expected"))
                row |= {name: _share(level.get(name)) for name in ("expected", "bound")}
                row["*paper's bound*"] = _share(level.get("paper_bound"))
                rows.append(row | {"ECE": number(line.get("ece"), 3)})
    return table(rows)


def _measured(level: Record) -> str:
    text = _share(level.get("accuracy"))
    low, high = level.get("accuracy_low"), level.get("accuracy_high")
    return text if low is None or high is None else f"{text} ({from_to(100.0 * low, 100.0 * high, 2)})"


def _less(before: float | None, after: float | None) -> str:
    return NOTHING if before is None or after is None else _share(before - after)


def _share(value: float | None) -> str:
    return NOTHING if value is None else number(100.0 * value, 2)


def plan_table(results: Results) -> str:
    """What ``drw-hf plan`` predicts beside what students reached."""
    rows = []
    for one in check_plan(results):
        row = _place(one.profile, one.task, labels=one.labels, ε=f"{one.epsilon:g}")
        row |= {"probed with": "its queries" if one.where == "queries" else "unseen text", "n": str(one.n)}
        row |= {"σ": number(one.sigma, 2), "fitted φ": number(one.phi, 2)}
        row |= {"z": number(one.measured, 1), "planned z": number(one.planned, 1)}
        ratio = one.planned / one.measured if one.measured > 0 else None
        rows.append(row | {"planned / z": number(ratio, 2)})
    return table(rows)
