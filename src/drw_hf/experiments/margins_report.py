"""Tables in Markdown of the experiments with margin draws, from their raw lines."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ..runs.lines import Record, read_lines
from ..wording import small_p
from .cells import NOTHING, from_to, number, table
from .marks_settings import BUDGET, load_settings

NOTHING_DONE = "nothing"  # the thief who learns what it was answered
ON_LOG = {"token-classification": -40.0, "sequence-classification": -20.0}  # log₁₀ of p_bound that is aimed at
AFTER_ATTACKS = -6.0
LOST = 1.0  # points that an attack may cost a student which is then still worth stealing
FORMS, TESTS = ("scores", "labels"), ("both", "margin", "tilt")


def report(output: Path) -> str:
    """What draws cost, what thieves do to them, and which goals are met."""
    records = read_lines(output)
    measured = {record["setting"] for record in records}
    settings = {name: setting for name, setting in load_settings(encoder="any").items() if name in measured}
    titles = {name: setting.title for name, setting in settings.items()}
    aims = {name: ON_LOG[setting.task.kind] for name, setting in settings.items()}
    parts = [
        "Hard answers at a budget of 0.3 points of accuracy, 0.1 of it for draws.",
        "## Goals",
        goals(records, titles, aims),
        "## What it costs",
        "Points of accuracy over 20 keys, on unseen text; the strength and the margin were chosen on labelled text "
        "apart from it.",
        costs(records, titles),
        "## Students",
        "z on the log: of the combined test, and of its parts; by scores, and by labels alone. The texts in common "
        "are those that near-duplicates are variants of. A range is that of the seeds.",
        students(records, titles),
    ]
    return "\n\n".join(parts) + "\n"


def costs(records: Sequence[Record], titles: dict[str, str]) -> str:
    """What hard answers cost, of every setting."""
    rows = []
    for record in (one for one in records if one["what"] == "cost"):
        tilt, drawn = record["tilt"], record["drawn"]
        rows.append(
            {
                "": titles[record["setting"]],
                "strength": number(record["strength"], 3),
                "margin δ": number(record["margin"], 3),
                "answers drawn": f"{100 * drawn['drawn']:.1f} %",
                "tilt, expected": _with_error(tilt["expected_cost"], tilt["standard_error"], 2),
                "draws, expected": _with_error(drawn["expected_cost"], drawn["standard_error"], 3),
                "together, expected": number(tilt["expected_cost"] + drawn["expected_cost"], 2),
                "measured": _with_error(record["measured"], record["measured_error"], 2),
            }
        )
    return table(rows)


def students(records: Sequence[Record], titles: dict[str, str]) -> str:
    """All thieves and innocents, of every setting."""
    again = [
        {**r, "who": f"{r['who']}: the texts in common", "log": r["in common"]} for r in records if "in common" in r
    ]
    rows = []
    tested = [*(record for record in records if record["what"] != "cost"), *again]
    order = {name: place for place, name in enumerate(titles)}
    groups = dict.fromkeys((record["setting"], record["who"], record["what"]) for record in tested)
    for name, who, what in sorted(groups, key=lambda group: (order[group[0]], group[2] != "student")):
        some = [record for record in tested if (record["setting"], record["who"], record["what"]) == (name, who, what)]
        rows.append(
            {
                "": titles[name],
                "the thief": who if what == "student" else f"innocent: {who}",
                "seeds": str(len(some)),
                "accuracy": _span([record["accuracy"] for record in some if "accuracy" in record]),
                **{_named(test, form): _span(_z(some, form, test)) for form in FORMS for test in TESTS},
                "worst p_bound": small_p(
                    max(record["log"]["scores"]["both"]["log10_bound"] for record in some), up=True
                ),
                "tilt, unseen": _span([record["unseen"]["scores"]["z"] for record in some if "unseen" in record]),
            }
        )
    return table(rows)


def goals(records: Sequence[Record], titles: dict[str, str], aims: dict[str, float]) -> str:
    """Every goal, and by setting whether it is met, with the worst figure; ``aims`` are those for the log."""
    rows: list[dict[str, str]] = []

    def add(goal: str, judged: Callable[[str], str]) -> None:
        rows.append({"goal": goal, **{title: judged(name) for name, title in titles.items()}})

    def of(name: str, what: str) -> list[Record]:
        return [record for record in records if (record["setting"], record["what"]) == (name, what)]

    def plain(name: str) -> list[Record]:
        return [record for record in of(name, "student") if record["who"] == NOTHING_DONE]

    def cost(name: str) -> str:
        found = of(name, "cost")
        if not found:
            return NOTHING
        expected = found[0]["tilt"]["expected_cost"] + found[0]["drawn"]["expected_cost"]
        shown = _with_error(found[0]["measured"], found[0]["measured_error"], 2)
        met = max(expected, found[0]["measured"]) <= BUDGET
        return f"{_verdict(met)}: expected {number(expected, 2)}, measured {shown}"

    def on_log(form: str) -> Callable[[str], str]:
        def judged(name: str) -> str:
            found = [record["log"][form]["both"]["log10_bound"] for record in plain(name)]
            if not found:
                return NOTHING
            return f"{_verdict(max(found) < aims[name])}: {len(found)} seeds, worst {small_p(max(found), up=True)}"

        return judged

    def by_labels(name: str) -> str:
        found = [r["log"]["labels"]["both"]["z"] / r["log"]["scores"]["both"]["z"] for r in plain(name)]
        return f"{_verdict(min(found) >= 0.9)}: {_span(found, 2)} of it" if found else NOTHING

    def attacks(name: str) -> str:
        own = {record["seed"]: record["accuracy"] for record in plain(name)}
        tried = [record for record in of(name, "student") if record["who"] != NOTHING_DONE and record["seed"] in own]
        worth = [record for record in tried if own[record["seed"]] - record["accuracy"] <= LOST]
        if not worth:
            return f"none of {len(tried)} students lost {LOST:g} point or less" if tried else NOTHING
        bounds: dict[str, list[float]] = {record["who"]: [] for record in worth}
        for record in worth:
            bounds[record["who"]].append(record["log"]["scores"]["both"]["log10_bound"])
        worst = max(bounds, key=lambda who: max(bounds[who]))
        met = sum(value < AFTER_ATTACKS for values in bounds.values() for value in values)
        return (
            f"{_verdict(met == len(worth))}: {met} of {len(worth)} students (of {len(tried)}), worst "
            f"{small_p(max(bounds[worst]), up=True)} ({worst})"
        )

    add(f"tilt and draws cost ≤ {BUDGET} points", cost)
    aimed = "p < 1e-40 of taggers, < 1e-20 of sentences, on the log"
    for form in FORMS:
        add(f"hard-label student by {form}, {aimed}", on_log(form))
    add("z by labels alone within a tenth of that by scores", by_labels)
    add("after every attack that costs at most one point, p < 1e-6 on the log", attacks)
    return table(rows)


def _z(some: Sequence[Record], form: str, test: str) -> list[float]:
    return [record["log"][form][test]["z"] for record in some]


def _named(test: str, form: str) -> str:
    return f"z, {test}" if form == "scores" else f"z, {test}, labels"


def _with_error(value: float, error: float, digits: int) -> str:
    return f"{number(value, digits)} ± {number(error, digits)}"


def _span(values: Sequence[float], digits: int = 1) -> str:
    return from_to(min(values), max(values), digits) if values else NOTHING


def _verdict(met: bool) -> str:
    return "yes" if met else "**no**"
