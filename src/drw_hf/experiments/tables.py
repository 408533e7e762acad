"""The paper's tables from the lines of one or more runs: from records to Markdown."""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ..planning.students import EXPECTED_STUDENTS
from ..wording import small_p
from .cells import NOTHING, both, from_to, mean, number, p_mean, p_span, precision, span, table, with_number
from .jobs import GOLD, MODES, UNWATERMARKED
from .results import (
    BLIND_Z,
    EVERYWHERE,
    JSD,
    LABELS,
    LOG10_P,
    MEMORY_Z,
    P_SNR,
    WHERE,
    Find,
    Place,
    Results,
    Z,
    by_epsilon,
    mean_average_precision,
)
from .serving import ALL_DRAWN
from .tasks import PAPER, TASKS

if TYPE_CHECKING:
    from pandas import DataFrame

MEAN_P = "p (geometric mean)"
SHOWN_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of those that accuracy was measured at

Row = dict[str, str]


def _row(place: Place, **more: str) -> Row:
    return {"task": TASKS[place.task].title, "profile": place.profile, **more}


def _sides(results: Results) -> Iterator[tuple[Place, str, "DataFrame", "DataFrame"]]:
    """Places and kinds of labels with their thieves and innocents, where there are any of either."""
    for place, labels in itertools.product(results.places, LABELS):
        up, down = place.positives(labels), place.negatives(labels)
        if len(up) or len(down):
            yield place, labels, up, down


def _ranked(up: "DataFrame", down: "DataFrame", column: str) -> str:
    return precision(mean_average_precision(up, down, column), (len(up), len(down)))


def _on_both(statistic: str) -> list[str]:
    return [f"{statistic}, {where}" for where in WHERE]


def table_1_detection(results: Results) -> str:
    """Table 1, upper part: mAP of the baseline in two ways, of P_snr and of the exact test."""
    rows = []
    for place, labels, up, down in _sides(results):
        paper = PAPER[place.task]["map"][labels]
        row = _row(place, labels=labels, students=f"{len(up)} + {len(down)}")
        row["DeepJudge, all positions"] = _ranked(up, down, EVERYWHERE)
        row["DeepJudge, words"] = _ranked(up, down, f"{JSD}, queries")
        row["*paper's*"] = f"{paper['jsd']:.2f}"
        row |= {column: _ranked(up, down, column) for how in (P_SNR, Z) for column in _on_both(how)}
        rows.append({**row, "*paper's P_snr*": f"{paper['p_snr']:.2f}"})
    return table(rows)


def summary(results: Results) -> str:
    """The main figures in a few columns, the paper's beside."""
    rows = []
    for place, labels, up, down in _sides(results):
        if not (len(up) and len(down)):
            continue
        paper = PAPER[place.task]["p_snr"][labels]
        innocents, thieves = (
            f"{span(some, f'{P_SNR}, queries', 1)} (*{from_to(*paper[side])}*)"
            for side, some in (("negative", down), ("positive", up))
        )
        by_p_snr = f"{_ranked(up, down, f'{P_SNR}, queries')} (*{PAPER[place.task]['map'][labels]['p_snr']:.2f}*)"
        rows.append(
            {
                "task, profile": place.title,
                "labels": labels,
                "thieves + innocents": f"{len(up)} + {len(down)}",
                "mAP, exact test": _ranked(up, down, f"{Z}, queries"),
                "mAP, P_snr (*paper*)": by_p_snr,
                "innocents' P_snr (*paper*)": innocents,
                "thieves' P_snr (*paper*)": thieves,
                "thieves' p at most": small_p(up[f"{LOG10_P}, queries"].max(), up=True),
            }
        )
    return table(rows)


def table_1_accuracy(results: Results) -> str:
    """Table 1, lower part: what victim and students get right; of taggers, F1 and the accuracy of words."""
    rows = []
    for task, places in itertools.groupby(results.places, lambda place: place.task):
        tagger = TASKS[task].kind == "token-classification"
        figures = {"f1": "F1", "accuracy": "accuracy of words"} if tagger else {"accuracy": "accuracy"}
        found = [
            _row(place, figure=title) | cells
            for place, (figure, title) in itertools.product(places, figures.items())
            if set((cells := _accuracies(place, figure)).values()) != {NOTHING}
        ]
        if found:
            paper = {"task": TASKS[task].title, "profile": "*the paper*", "figure": next(iter(figures.values()))}
            known = (name for name in found[0] if name not in paper)
            rows += [*found, paper | {name: number(PAPER[task]["merit"].get(name), 1) for name in known}]
    return table(rows)


def _accuracies(place: Place, figure: str) -> Row:
    """Of the victim, its protected answers, and its students."""
    epsilon = place.mark_setting("epsilon")
    served = {"argmax soft": "soft", "sampling hard": "hard", "sampling hard, all drawn": ALL_DRAWN}
    merits = {"victim": place.clean_merit(figure), **dict.fromkeys(served)}
    if epsilon is not None:
        merits |= {name: place.served_merit(how, epsilon, figure) for name, how in served.items()}
    cells = {name: number(merit, 1) for name, merit in merits.items()}
    students = {f"student {labels}": place.positives(labels) for labels in LABELS}
    innocents = place.negatives("soft")
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
        row |= {column: span(some, column, 1) for column in _on_both(Z)}
        row |= {f"p, {where}": p_span(some, f"{LOG10_P}, {where}") for where in WHERE}
        row |= {column: span(some, column, 1) for column in _on_both(BLIND_Z)}
        known = some.dropna(subset=[f"{MEMORY_Z}, queries"])
        rows.append(row | {MEMORY_Z: with_number(span(known, f"{MEMORY_Z}, queries", 1), len(known))})
    return table(rows)


def _rows_of_table_2(results: Results) -> Iterator[tuple[Row, tuple[str, str, str], "DataFrame"]]:
    for place, labels, up, down in _sides(results):
        for name, some in (("negative", down), ("positive", up)):
            if len(some):
                row = _row(place, labels=labels, suspects=name, n=str(len(some)))
                yield row, (place.task, labels, name), some


def modes_table(results: Results) -> str:
    """The three ways to do it, side by side."""
    rows = []
    for place, labels in itertools.product(results.places, LABELS):
        by_mode = {mode: place.positives(labels, mode) for mode in MODES}
        if not any(len(some) for mode, some in by_mode.items() if mode != "default"):
            continue
        for mode, some in by_mode.items():
            down = place.negatives(labels, mode)
            row = _row(place, labels=labels, mode=mode, n=str(len(some)))
            row |= {column: span(some, column, 1) for column in _on_both(P_SNR)}
            row["innocents' P_snr"] = with_number(span(down, f"{P_SNR}, queries", 1), len(down))
            row |= {f"mAP of {how}": _ranked(some, down, f"{how}, queries") for how in (P_SNR, JSD)}
            row["z, queries / unseen"] = both(some, Z)
            row["student"] = mean(some, TASKS[place.task].metric)
            row["*paper's P_snr*"] = from_to(*PAPER[place.task]["p_snr"][labels]["positive"])
            rows.append(row)
    return table(rows)


# -- ablations


def epsilon_table(results: Results) -> str:
    """Detection against ε. The negatives are the same for all: a key's phases do not depend on ε."""
    rows = []
    for place in results.places:
        for epsilon, labels, some in by_epsilon(place):
            down = place.negatives(labels)
            row = _row(place, labels=labels, ε=f"{epsilon:g}", students=f"{len(some)} + {len(down)}")
            for how in (P_SNR, Z):
                row[f"mAP of {how}"] = " / ".join(_ranked(some, down, column) for column in _on_both(how))
            rows.append(row | {how: both(some, how) for how in (P_SNR, Z)} | {MEAN_P: both(some, LOG10_P, p_mean)})
    return table(rows)


def ablation_table(results: Results, find: Find, varied: str) -> str:
    """Means over students, on queries / on unseen text, for every setting that ``find`` names."""
    rows = []
    for place in results.places:
        for setting, labels, some in find(place):
            name = setting if isinstance(setting, str) else f"{setting:g}"
            row = _row(place) | {varied: name, "labels": labels, "n": str(len(some))}
            row |= {how: both(some, how) for how in (P_SNR, Z)} | {MEAN_P: both(some, LOG10_P, p_mean)}
            rows.append(row | {"student": mean(some, TASKS[place.task].metric)})
    return table(rows)


def theorem_table(results: Results) -> str:
    """Accuracy of protected answers: measured, expected of a calibrated model, and bounded."""

    def share(value: float | None) -> str:
        return number(None if value is None else 100.0 * value, 2)

    rows = []
    for place, labels in itertools.product(results.places, (*LABELS, ALL_DRAWN)):
        for level in sorted(place.levels, key=lambda level: level["epsilon"]):
            if level["labels"] != labels or level["epsilon"] not in SHOWN_LEVELS:
                continue
            line = place.line("accuracy")
            clean, measured = line["clean"]["accuracy"], level["accuracy"]
            keys = from_to(100.0 * level["accuracy_low"], 100.0 * level["accuracy_high"], 2)
            row = _row(place, labels=labels, ε=f"{level['epsilon']:g}", clean=share(clean))
            row["measured (least–largest over keys)"] = f"{share(measured)} ({keys})"
            row["cost"] = share(clean - measured)
            row["expected cost"] = share(level["clean"] - level["expected"])
            row |= {name: share(level[name]) for name in ("expected", "bound")}
            rows.append(row | {"*paper's bound*": share(level["paper_bound"]), "ECE": number(line["ece"], 3)})
    return table(rows)


# -- the plan


class Checked(NamedTuple):
    """Students of one setting: what the plan says of them, and what would make it right."""

    place: Place
    labels: str
    epsilon: float
    where: str  # what they were probed with
    n: int  # how many students
    sigma: float  # σ, the spread of the tokens of unmarked students
    phi: float  # the φ with which the formula gives the students' z, at that σ
    measured: float  # the students' mean z
    planned: float  # the plan's


def check_plan(results: Results) -> list[Checked]:
    """Every setting of ε of which there are students, and unmarked students to know σ from."""
    found = []
    for place in results.places:
        usual = place.mark_setting("epsilon")
        settings = by_epsilon(place)
        if not settings and usual is not None:
            settings = [(usual, labels, place.positives(labels)) for labels in LABELS]
        for epsilon, labels, students in settings:
            innocents = place.negatives(labels)
            clean = innocents[innocents.teacher == UNWATERMARKED]
            for where in WHERE:
                sigma = clean[f"sigma, {where}"].mean()
                z, n_tokens, effect = (students[f"{name}, {where}"].mean() for name in ("z", "n_planned", "effect"))
                if math.isnan(sigma + n_tokens + z):  # nobody was measured
                    continue
                gamma = math.sqrt(math.expm1(max(z, 0.0) ** 2 / n_tokens))
                expected = EXPECTED_STUDENTS[where]
                gamma_planned = expected.copied(labels, epsilon) * effect / expected.sigma
                planned = math.sqrt(n_tokens * math.log1p(gamma_planned**2))
                n = int(students[f"z, {where}"].count())
                found.append(Checked(place, labels, epsilon, where, n, sigma, gamma * sigma / effect, z, planned))
    return found


def plan_table(results: Results) -> str:
    """What ``drw-hf plan`` predicts beside what students reached."""
    rows = []
    for one in check_plan(results):
        row = _row(one.place, labels=one.labels, ε=f"{one.epsilon:g}")
        row |= {"probed with": "its queries" if one.where == "queries" else "unseen text", "n": str(one.n)}
        row |= {"σ": number(one.sigma, 2), "fitted φ": number(one.phi, 2)}
        row |= {"z": number(one.measured, 1), "planned z": number(one.planned, 1)}
        ratio = one.planned / one.measured if one.measured > 0 else None
        rows.append(row | {"planned / z": number(ratio, 2)})
    return table(rows)
