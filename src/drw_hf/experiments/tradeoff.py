"""What buys evidence: a larger budget, more of the thief's queries, or more words to probe with?

``python -m drw_hf.experiments.tradeoff --output docs/results/tradeoff.jsonl --data DIR --work DIR --encoder PATH``

``--work`` is the folder of ``python -m drw_hf.experiments.marks``, whose victims, keys and students are used; students
of other budgets, and of fewer queries, are trained here.

Each line also says which effect γ the planner's formula would need to predict the z that was found, by its κ
(:mod:`drw_hf.planning.tilt_plan`): what it expects of a student is a mean of these
(:data:`drw_hf.planning.students.EXPECTED_TILT_STUDENTS`).
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..detection.probing import Probe
from ..keys.choices import LABEL_KINDS, LabelKind
from ..planning.students import ExpectedStudent
from ..planning.tilt_plan import pair_weights, z_of
from ..planning.tilt_traffic import traffic_of
from ..runs.lines import Record, read_lines
from ..watermark.tilt import settings_of
from .cells import NOTHING, from_to, number, table
from .marks_case import Case, run_cases
from .marks_settings import BUDGET, SEEDS, Setting, setting_titles
from .marks_thieves import CLEAN, HARD, SOFT
from .marks_work import WHERE, Workshop
from .measurements import Measurement
from .scoring import tested

BUDGETS = (0.1, BUDGET, 1.0)
QUARTER = 0.25  # of the thief's queries, and of the texts that a student is probed with
VARIATIONS = (*((budget, 1.0) for budget in BUDGETS), (BUDGET, QUARTER))  # budget, and share of the queries
KAPPAS = (0.03, 0.1, 0.3, 1.0, 3.0)
KAPPA = 0.3  # of these; how far pairs stray by themselves, against one answer
STUDENTS = {"soft": SOFT, "hard": HARD}
SCORES, LABELS, SHARPER = "scores", "labels", "scores, with a reference"


def measure(shop: Workshop, setting: Setting, label_kind: LabelKind, budget: float, share: float, seed: int) -> Record:
    """A student of a budget and of a share of the queries, and what tests say of it."""
    case = Case(shop, setting, seed, budget)
    queries = case.texts("queries")
    if budget == BUDGET and share == 1.0:
        student = case.model(STUDENTS[label_kind])
    else:
        some = queries.select(range(round(share * len(queries))))
        student = case.student(case.served(some, label_kind), label_kind)
    record: Record = {"strength": settings_of(case.key).strength}
    other = next((one for one in setting.attacked if one != seed), None)
    for where, shares in (("queries", (share,)), ("unseen", (1.0, QUARTER))):
        probe, accuracy = case.against_victim(student, where)
        if other is not None:
            said = case.probe(case.model(CLEAN, other), case.texts(where)).suspect
            probe = dataclasses.replace(probe, reference=said)
        tests = {_part(part): tests_of(case, _first(probe, part)) for part in shares}
        record[where] = {"accuracy": round(accuracy, 2), **tests}
    return record


def tests_of(case: Case, probe: Probe) -> Record:
    """All tests of a probe, and the effects that would let the planner predict the first."""
    found: Record = case.both(dataclasses.replace(probe, reference=None))
    if probe.reference is not None:
        found[SHARPER] = tested(probe, case.key)
    assert probe.victim is not None  # it was asked
    weights = pair_weights(traffic_of(probe, case.key, probe.victim), settings_of(case.key).temperature)
    return found | {"effect": {str(kappa): effect_of(found[SCORES]["z"], weights, kappa) for kappa in KAPPAS}}


def _first(probe: Probe, share: float) -> Probe:
    """A probe of the first texts alone."""
    n = int(np.searchsorted(probe.rows, share * probe.n_texts))
    names = ("rows", "places", "suspect", "victim", "reference")
    kept = {name: getattr(probe, name)[:n] for name in names if getattr(probe, name) is not None}
    return dataclasses.replace(probe, **kept)


def effect_of(z: float, weights: np.ndarray, kappa: float) -> float:
    """The γ for which the planner would predict a z; 0 for none."""
    if z <= 0.0:
        return 0.0
    low, high = 1e-6, 1e3
    while high > 1.0001 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if z_of(middle, weights, kappa) < z else (low, middle)
    return round(high, 5)


# -- the run


def measurements(shop: Workshop, names: Sequence[str]) -> Iterator[Measurement]:
    """All students of a small model; of a pretrained one those that are there, and one seed of the largest budget."""
    for name in names:
        setting = shop.settings[name]
        for seed in SEEDS:
            for label_kind in LABEL_KINDS:
                for budget, share in VARIATIONS:
                    there = (budget, share) == (BUDGET, 1.0)
                    affordable = setting.encoder.pretrained is None or (seed == SEEDS[0] and budget == max(BUDGETS))
                    if there or affordable:
                        about: Any = {"label_kind": label_kind, "budget": budget, "share": share, "seed": seed}
                        yield Measurement({"setting": name, **about}, partial(measure, shop, setting, **about))


def report(output: Path) -> str:
    """Tables of the raw lines: the trade-off, and what the planner is to expect of a student."""
    records = read_lines(output)
    titles = setting_titles()

    def figure(some: list[Record], where: str, part: str, test: str) -> str:
        values = [r[where][part][test]["z"] for r in some if test in r[where].get(part, {})]
        return from_to(min(values), max(values)) if values else NOTHING

    rows = []
    order = list(titles)
    groups = {_group(record) for record in records}
    for name, label_kind, budget, share in sorted(
        groups, key=lambda one: (order.index(one[0]), LABEL_KINDS.index(one[1]), -one[3], one[2])
    ):
        some = [record for record in records if _group(record) == (name, label_kind, budget, share)]
        accuracy = [record["unseen"]["accuracy"] for record in some]
        rows.append(
            {
                "": titles[name],
                "served": label_kind,
                "budget": f"{budget:g}",
                "strength": number(some[0]["strength"], 3),
                "queries": "all" if share == 1.0 else f"{100 * share:.0f} %",
                "seeds": str(len(some)),
                "student's accuracy": from_to(min(accuracy), max(accuracy)),
                "z, queries": figure(some, "queries", _part(share), SCORES),
                "z, unseen": figure(some, "unseen", _part(1.0), SCORES),
                "z, a quarter of it": figure(some, "unseen", _part(QUARTER), SCORES),
                "z, unseen, reference": figure(some, "unseen", _part(1.0), SHARPER),
                "z, unseen, labels alone": figure(some, "unseen", _part(1.0), LABELS),
            }
        )
    effects = [
        {
            "probed with": where,
            "served": label_kind,
            "budget": f"{budget:g}",
            "strength": number(found.strength, 2),
            "γ/β": number(found.effect, 2),
            "settings": f"{len(found.by_setting)}: "
            + from_to(min(found.by_setting.values()), max(found.by_setting.values()), 2),
        }
        for where in WHERE
        for label_kind in LABEL_KINDS
        for budget, found in expected_effects(records, where, label_kind).items()
    ]
    return (
        "z of the test with the victim, by the budget in points, by how many of the thief's queries the student has "
        "seen, and by how much unseen text it is probed with. A range is that of the seeds.\n\n"
        f"{table(rows)}\n\nThe effect γ that the planner would need to predict these z, over the strength β, of "
        "students that saw all queries: the geometric mean over settings, other budgets in proportion to that of "
        "0.3 points, and the least and the largest of the settings "
        f"(κ = {KAPPA:g}).\n\n{table(effects)}\n"
    )


@dataclass(frozen=True)
class Effect:
    """What a budget leads to, over settings: the strength, and γ/β of students that saw all queries."""

    strength: float
    effect: float
    by_setting: dict[str, float]  # γ/β, the mean over the seeds of a setting


def expected_effects(
    records: Sequence[Record], where: str, label_kind: str, kappa: float = KAPPA
) -> dict[float, Effect]:
    """By budget: geometric means over settings, of students that were probed with all texts.

    The usual budget has all settings. Another one is compared with it in those that have both, so that what changes is
    the budget and not who is in the mean.
    """
    figures: dict[float, dict[str, tuple[float, float]]] = {}
    for budget in BUDGETS:
        some = [r for r in records if (r["label_kind"], r["budget"], r["share"]) == (label_kind, budget, 1.0)]
        for name in dict.fromkeys(record["setting"] for record in some):
            of_setting = [record for record in some if record["setting"] == name]
            effects = [r[where][_part(1.0)]["effect"][str(kappa)] / r["strength"] for r in of_setting]
            strengths = [record["strength"] for record in of_setting]
            figures.setdefault(budget, {})[name] = float(np.mean(strengths)), float(np.mean(effects))
    usual = figures.get(BUDGET, {})
    base = [_geometric_mean([figure[place] for figure in usual.values()]) for place in (0, 1)]
    found = {}
    for budget, of_settings in figures.items():
        both = [name for name in of_settings if name in usual]
        ratios = [
            _geometric_mean([of_settings[name][place] / usual[name][place] for name in both if usual[name][place]])
            for place in (0, 1)
        ]
        by_setting = {name: effect for name, (_, effect) in of_settings.items()}
        found[budget] = Effect(base[0] * ratios[0], base[1] * ratios[1], by_setting)
    return found


def effect_spread(
    records: Sequence[Record], where: str, label_kind: str, expected: ExpectedStudent
) -> tuple[float, float]:
    """γ/β of the least and of the largest student that saw all queries, relative to what is expected."""
    shares = [
        record[where][_part(1.0)]["effect"][str(KAPPA)]
        / record["strength"]
        / expected.copied(label_kind, record["strength"])
        for record in records
        if (record["label_kind"], record["share"]) == (label_kind, 1.0)
    ]
    return min(shares), max(shares)


def _geometric_mean(values: Sequence[float]) -> float:
    """Of those that are more than 0; 0 where none is."""
    shown = [value for value in values if value > 0.0]
    return math.exp(float(np.mean(np.log(shown)))) if shown else 0.0


def _group(record: Record) -> tuple[str, str, float, float]:
    return record["setting"], record["label_kind"], record["budget"], record["share"]


def _part(share: float) -> str:
    return f"{share:g} of the texts"


def main() -> None:
    """The command."""
    run_cases(__doc__, measurements, report)


if __name__ == "__main__":
    main()
