"""Is the plan right? What :mod:`drw_hf.planning` predicts for students beside what they reached."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..planning.students import EXPECTED_STUDENTS
from .jobs import UNWATERMARKED
from .results import LABELS, POWER, WHERE, Results, by_epsilon

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Checked:
    """Students of one setting: what the plan says of them, and what would make it right."""

    profile: str
    task: str
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
    for profile, task in results.places:
        usual = results.mark_setting(profile, "epsilon")
        settings = by_epsilon(results, profile, task)
        if not settings and usual is not None:
            settings = [(usual, labels, results.positives(profile, task, labels)) for labels in LABELS]
        for epsilon, labels, students in settings:
            innocents = results.negatives(profile, task, labels)
            clean = innocents[innocents.teacher == UNWATERMARKED]
            for where in WHERE:
                known = _check(clean, students, labels, epsilon, where)
                if known:
                    found.append(Checked(profile, task, labels, epsilon, where, **known))
    return found


def _check(clean: "DataFrame", students: "DataFrame", labels: str, epsilon: float, where: str) -> dict[str, Any]:
    sigma = clean[f"sigma, {where}"].mean()
    n_tokens, effect, reached = (students[f"{name}, {where}"].mean() for name in (*POWER[1:], "z"))
    if math.isnan(sigma + n_tokens + reached):  # nobody was measured
        return {}
    gamma = math.sqrt(math.expm1(max(reached, 0.0) ** 2 / n_tokens))
    expected = EXPECTED_STUDENTS[where]
    planned = expected.copied(labels, epsilon) * effect / expected.sigma
    return {
        "n": int(students[f"z, {where}"].count()),
        "sigma": sigma,
        "phi": gamma * sigma / effect,
        "measured": reached,
        "planned": math.sqrt(n_tokens * math.log1p(planned**2)),
    }
