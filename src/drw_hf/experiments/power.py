"""Is the plan right? What :mod:`drw_hf.planning` predicts for students beside what they reached."""

import math
from typing import NamedTuple

from ..planning.students import EXPECTED_STUDENTS
from .jobs import UNWATERMARKED
from .results import LABELS, WHERE, Place, Results, by_epsilon


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
