"""Tables in Markdown of the experiments with marks, from their raw lines."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from ..runs.lines import Record, read_lines
from ..wording import small_p
from .cells import NOTHING, from_to, number, table
from .marks_jobs import OTHER_KEY
from .marks_settings import BUDGET
from .marks_thieves import ATTACKED, GOLD, HARD, SOFT, STUDENTS
from .marks_work import WHERE

SCORES, LABELS = "scores, with the victim", "labels, with the victim"
SHARP_SCORES, SHARP_LABELS = "scores, with victim and reference", "labels, with victim and reference"
SECOND_BEST = "scores, with the reference"
BLIND_SCORES, BLIND_LABELS = "scores, without", "labels, without"
ON_QUERIES, ON_UNSEEN, ATTACKED_GOAL = -12.0, -6.0, -6.0  # log₁₀ of p_bound that is aimed at
_TITLES = {**{name: student.title for name, student in STUDENTS.items()}, OTHER_KEY: OTHER_KEY}


def report(output: Path) -> str:
    """What the mark costs, what thieves do to it, and which goals are met."""
    records = read_lines(output)
    titles = {name: setting["title"] for record in records[:1] for name, setting in record.get("settings", {}).items()}
    titles = {name: title for name, title in titles.items() if any(r.get("setting") == name for r in records)}
    seeds = sorted({record["seed"] for record in records if "seed" in record})
    parts = [
        f"Tilt, strength chosen for a budget of {BUDGET} points; seeds {', '.join(map(str, seeds))}. A range is that "
        "of the seeds. Hard labels are the argmax of the soft answers (checked for every key), so that one student "
        "stands for the thief who takes the argmax and for the one who is served hard labels.",
        "## Goals",
        goals(records, titles),
        "## What it costs",
        "Points of accuracy over 20 keys, on unseen text; the strength was chosen on labelled text apart from it. "
        "Expected: if the victim's probabilities at its temperature are right; ± over keys. Measured: clean "
        "less served, the same items; ± is the paired standard error over texts and keys.",
        costs(records, titles),
        "## What rounding does to an honest client",
        "Expected calibration error / log loss of the marked answers by the digits shown, on unseen text.",
        calibration(records, titles),
        "## Thieves and innocents",
        "z on the thief's queries / on unseen text. The worst p_bound is the largest of the seeds, with scores and "
        "the victim; P_snr with the same. For two classes, subtracting the smallest score is the argmax.",
    ]
    for name, title in titles.items():
        parts += [f"### {title}", thieves([r for r in records if r.get("setting") == name])]
    parts += [
        "## With a reference",
        "z on the thief's queries / on unseen text. The reference is a student of unmarked answers to the same "
        "queries, of another seed than the suspect.",
        referenced(records, titles),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def costs(records: Sequence[Record], titles: dict[str, str]) -> str:
    """What is served, of every setting."""
    rows = []
    for name, title in titles.items():
        victim, served = _line(records, "victim", name), _line(records, "served", name)
        if victim is None:
            continue
        row = {"": title, "temperature": number(victim["temperature"], 2), "strength": number(victim["strength"], 3)}
        row["expected, where it was chosen"] = _with_error(victim["cost"], "expected_cost", "standard_error")
        if served is not None:
            row["clean accuracy"] = number(served["clean"], 1)
            row["expected"] = _with_error(served["cost"], "expected_cost", "standard_error")
            for kind in ("soft", "hard"):
                row[f"measured, {kind}"] = _with_error(served[kind], "cost", "cost_se")
            row["sd over keys"] = number(served["hard"]["cost_sd"], 2)
        rows.append(row)
    widest = max(rows, key=len, default={})
    return table([{name: row.get(name, NOTHING) for name in widest} for row in rows])


def calibration(records: Sequence[Record], titles: dict[str, str]) -> str:
    """ECE and log loss by digits, of every setting."""
    rows = []
    for name, title in titles.items():
        served = _line(records, "served", name)
        if served is not None:
            shown = {way: served[way] for way in ("unmarked", "unmarked, calibrated")} | served["digits"]
            cells = {way: f"{found['ece']:.3f} / {found['log_loss']:.3f}" for way, found in shown.items()}
            rows.append({"": title, **cells})
    return table(rows)


def thieves(records: Sequence[Record]) -> str:
    """All students of one setting."""
    rows = []
    for name, title in _TITLES.items():
        scores = _scores(records, name)
        if not scores:
            continue
        trained = [r for r in records if r["kind"] == "student" and r["student"] == name]
        accuracy = [r["accuracy, unseen"] for r in trained]
        row = {"the thief does": title, "seeds": str(len(scores))}
        row["accuracy"] = from_to(min(accuracy), max(accuracy)) if accuracy else NOTHING
        for column, test in (
            ("scores", SCORES),
            ("labels alone", LABELS),
            ("scores, no victim", BLIND_SCORES),
            ("labels, no victim", BLIND_LABELS),
        ):
            row[column] = _both(scores, test, _z)
        row["worst p_bound"] = " / ".join(
            small_p(max(s[where][SCORES]["log10_bound"] for s in scores), up=True) for where in WHERE
        )
        row["P_snr"] = _both(scores, SCORES, lambda found: found.get("p_snr"))
        rows.append(row)
    return table(rows)


def referenced(records: Sequence[Record], titles: dict[str, str]) -> str:
    """What a reference adds, of every setting."""
    rows = []
    for name, title in titles.items():
        of_setting = [r for r in records if r.get("setting") == name]
        for student in (SOFT, HARD, GOLD):
            scores = [r for r in of_setting if r.get("kind") == "referenced" and r["student"] == student]
            with_victim = [s for s in _scores(of_setting, student) if s["seed"] in {r["seed"] for r in scores}]
            if scores and with_victim:
                row = {"": title, "suspect": _TITLES[student], "seeds": str(len(scores))}
                row["victim alone"] = _both(with_victim, SCORES, _z)
                for column, test in (
                    ("victim and reference", SHARP_SCORES),
                    ("reference alone", SECOND_BEST),
                    ("labels, victim and reference", SHARP_LABELS),
                ):
                    row[column] = _both(scores, test, _z)
                rows.append(row)
    return table(rows)


def goals(records: Sequence[Record], titles: dict[str, str]) -> str:
    """Every goal, and by setting whether it is met, with the worst figure."""
    rows: list[dict[str, str]] = []

    def add(goal: str, judged: Callable[[str], str]) -> None:
        rows.append({"goal": goal, **{title: judged(name) for name, title in titles.items()}})

    for kind in ("soft", "hard"):
        add(f"cost ≤ {BUDGET} points, {kind}", partial(_cost_goal, records, kind))
    for student, tests in ((SOFT, (SCORES,)), (HARD, (SCORES, LABELS))):
        for where, goal in (("queries", ON_QUERIES), ("unseen", ON_UNSEEN)):
            for test in tests:
                form = test.partition(",")[0]
                title = f"{student} student by {form}, p < {small_p(goal)} on {where}"
                add(title, _p_goal(records, [student], where, test, goal))
        title = f"{student} student by scores, with a reference, p < {small_p(ON_UNSEEN)} on unseen"
        add(title, _p_goal(records, [student], "unseen", SHARP_SCORES, ON_UNSEEN, kind="referenced"))
    attacks = [name for name in ATTACKED if not STUDENTS[name].innocent]
    title = f"every attack by scores, p < {small_p(ATTACKED_GOAL)} on queries"
    add(title, _p_goal(records, attacks, "queries", SCORES, ATTACKED_GOAL))
    return table(rows)


def _p_goal(
    records: Sequence[Record], students: Sequence[str], where: str, test: str, goal: float, kind: str = "score"
) -> Callable[[str], str]:
    def judged(name: str) -> str:
        of_setting = [r for r in records if r.get("setting") == name]
        found = {
            (student, score["seed"]): score[where][test]["log10_bound"]
            for student in students
            for score in of_setting
            if score.get("kind") == kind and score["student"] == student
        }
        if not found:
            return NOTHING
        worst = max(found, key=lambda which: found[which])
        met = sum(value < goal for value in found.values())
        whose = f" ({worst[0]})" if len(students) > 1 else ""
        return f"{_verdict(met == len(found))}: {met} of {len(found)}, worst {small_p(found[worst], up=True)}{whose}"

    return judged


def _cost_goal(records: Sequence[Record], kind: str, name: str) -> str:
    served = _line(records, "served", name)
    if served is None:
        return NOTHING
    found = served[kind]
    expected = _with_error(served["cost"], "expected_cost", "standard_error")
    met = served["cost"]["expected_cost"] <= BUDGET and found["cost"] <= BUDGET
    return f"{_verdict(met)}: expected {expected}, measured {_with_error(found, 'cost', 'cost_se')}"


def _with_error(found: Record, value: str, error: str) -> str:
    return f"{number(found[value], 2)} ± {number(found[error], 2)}"


def _verdict(met: bool) -> str:
    return "yes" if met else "**no**"


def _scores(records: Iterable[Record], student: str) -> list[Record]:
    return [r for r in records if r.get("kind") == "score" and r["student"] == student]


def _line(records: Iterable[Record], kind: str, setting: str) -> Record | None:
    return next((r for r in records if r.get("kind") == kind and r["setting"] == setting), None)


def _z(found: Record) -> float | None:
    return None if "why" in found else found["z"]


def _both(scores: Sequence[Record], test: str, figure: Callable[[Record], float | None]) -> str:
    """The range of a figure on queries and on unseen text."""
    cells = []
    for where in WHERE:
        values = [value for score in scores for value in [figure(score[where][test])] if value is not None]
        cells.append(from_to(min(values), max(values)) if values else NOTHING)
    return " / ".join(cells)
