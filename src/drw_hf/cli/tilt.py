"""What commands say of the mark ``tilt``: what it costs, for scripts and for people."""

import dataclasses
import shlex
from typing import TYPE_CHECKING, Any

from ..wording import small_p
from .output import Outcome

if TYPE_CHECKING:
    from ..planning import Fit, TiltPlan, TiltPlanRow

CAUTION = "A prediction from other students: before you rely on it, try drw-hf label, distill and detect."


def fit_document(fit: "Fit") -> dict[str, Any]:
    """What a fit found, for scripts; costs and accuracies are in points."""
    names = (
        "budget",
        "temperature",
        "reliable",
        "clean_accuracy",
        "expected_accuracy",
        "n_items",
        "n_texts",
        "n_keys",
    )
    found = {**dataclasses.asdict(fit.cost), **{name: getattr(fit, name) for name in names}}
    return found if fit.margin_cost is None else {**found, "margin": dataclasses.asdict(fit.margin_cost)}


def plan_outcome(plan: "TiltPlan", unit: str, command: list[str], probed_with: str) -> Outcome:
    """What a plan found; ``command`` makes a key with its budget, but for the folder."""
    fit = plan.fit
    document = {
        **{name: value for name, value in fit_document(fit).items() if name not in vars(fit.cost)},
        "queries": plan.queries,
        "n_effective": plan.n_effective,
        "rows": [_row_document(row) for row in plan.rows],
        "recommended": _row_document(plan.recommended),
        "log": _log_document(plan),
    }
    origin = "fitted to their labels" if fit.reliable else "as given"
    lines = [
        f"{fit.n_items} {unit}, with the model calibrated at temperature {fit.temperature:g} ({origin}).",
        f"What a strength costs, in points of accuracy, over {fit.n_keys} throwaway keys:",
        "",
        *_table(plan.rows),
        "",
        *(_caution(plan, probed_with) if plan.recommended.z_scores else []),
        f"A budget of {fit.budget:g} points allows {fit}",
        "Make a key with it (its strength is fitted anew):",
        f"  {shlex.join([*command, '--output', 'my-key'])}",
    ]
    return Outcome(document, "\n".join(lines))


def z_between(least: float, largest: float) -> str:
    """The z of the least and of the largest student; one z where they read alike."""
    ends = f"{least:.1f}", f"{largest:.1f}"
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def p_between(least: float, largest: float) -> str:
    """The p-values that these z bring, the smallest first; the larger is rounded up."""
    from ..planning.students import log10_bound

    if least == largest:
        return small_p(log10_bound(least))
    return f"{small_p(log10_bound(largest))} to {small_p(log10_bound(least), up=True)}"


def _caution(plan: "TiltPlan", probed_with: str) -> list[str]:
    words = {"queries": "with what it was asked", "unseen": "with as much text that it never saw"}[probed_with]
    alike = all(least == largest for least, largest in plan.recommended.z_ranges.values())
    students = "" if alike else ", from the least to the largest of the students that we trained"
    log = ["Probe with the queries of your log if you keep one: see --probed-with queries."]
    return [
        f"z and p: what the test of a student of {plan.queries:,} such texts would reach, probed {words}{students}.",
        *(log if probed_with == "unseen" else []),
        _of_the_log(plan),
        CAUTION,
        "",
    ]


def _of_the_log(plan: "TiltPlan") -> str:
    """What the margin test would reach."""
    if plan.log_z is None:
        return (
            "Hard answers can be tested by the log itself as well, if the key draws close calls (--margin-budget "
            "0.1); that is not in these figures."
        )
    least, _, largest = plan.log_z
    return (
        f"With a log of the hard answers to them, some {plan.n_drawn:.0f} of which are drawn, the margin test of "
        f"such a student would reach z {z_between(least, largest)} by itself, p {p_between(least, largest)}."
    )


def _row_document(row: "TiltPlanRow") -> dict[str, Any]:
    found = {
        kind: {"z_score": z, "z_least": least, "z_largest": largest, "log10_p": row.log10_p(kind)}
        for (kind, z), (least, largest) in zip(row.z_scores.items(), row.z_ranges.values(), strict=True)
    }
    return {**dataclasses.asdict(row.cost), **({"found": found} if found else {})}


def _log_document(plan: "TiltPlan") -> dict[str, float] | None:
    if plan.log_z is None:
        return None
    least, typical, largest = plan.log_z
    return {"n_drawn": plan.n_drawn, "z_score": typical, "z_least": least, "z_largest": largest}


def _table(rows: "tuple[TiltPlanRow, ...]") -> list[str]:
    """One line per strength; what is not known has no column."""
    columns = [
        ["strength", *(f"{row.strength:g}" for row in rows)],
        ["expected", *(f"{row.cost.expected_cost:.3f} ± {row.cost.standard_error:.3f}" for row in rows)],
    ]
    if rows[0].cost.measured_cost is not None:
        columns.append(
            ["measured", *(f"{row.cost.measured_cost:.3f} ± {row.cost.measured_error:.3f}" for row in rows)]
        )
    for kind in rows[0].z_scores:
        columns.append([f"z, {kind} labels", *(z_between(*row.z_ranges[kind]) for row in rows)])
        columns.append(["p", *(p_between(*row.z_ranges[kind]) for row in rows)])
    widths = [max(map(len, column)) for column in columns]
    return ["  ".join(map(str.rjust, line, widths)) for line in zip(*columns, strict=True)]
