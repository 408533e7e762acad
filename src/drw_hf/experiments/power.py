"""Is the plan right? What :mod:`drw_hf.planning` predicts of students beside what they reached."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..planning.students import EXPECTED_STUDENTS
from .jobs import UNWATERMARKED
from .results import LABELS, WHERE, Results, Suspect, by_epsilon, values, z


@dataclass(frozen=True)
class Checked:
    """Students of one setting: what the plan says of them, and what would make it right.

    Attributes
    ----------
    profile, task, labels : str
    epsilon : float
    where : str
        What they were probed with.
    n : int
        How many students.
    sigma : float
        The spread of the tokens of unmarked students, σ.
    phi : float
        The φ with which the formula gives the students' z, at that σ.
    measured, planned : float
        The students' mean z, and the plan's.
    """

    profile: str
    task: str
    labels: str
    epsilon: float
    where: str
    n: int
    sigma: float
    phi: float
    measured: float
    planned: float


def check_plan(results: Results) -> list[Checked]:
    """Every setting of ε of which there are students, and unmarked students to know σ from."""
    found = []
    for profile, task in results.places:
        usual = results.setting(profile, "epsilon")
        settings = by_epsilon(results, profile, task)
        if not settings and usual is not None:
            settings = [(usual, labels, results.positives(profile, task, labels)) for labels in LABELS]
        for epsilon, labels, students in settings:
            for where in WHERE:
                checked = _check(results, profile, task, labels, epsilon, where, students)
                if checked is not None:
                    found.append(checked)
    return found


def _check(
    results: Results, profile: str, task: str, labels: str, epsilon: float, where: str, students: Sequence[Suspect]
) -> Checked | None:
    clean = [s for s in results.negatives(profile, task, labels) if s.student.teacher == UNWATERMARKED]
    spreads = _power(clean, "sigma", where)
    tokens, effects = _power(students, "n_planned", where), _power(students, "effect", where)
    reached = values(students, z, where)
    if not (spreads and tokens and reached):
        return None
    sigma, n_tokens, effect, mean = (float(np.mean(found)) for found in (spreads, tokens, effects, reached))
    gamma = math.sqrt(math.expm1(max(mean, 0.0) ** 2 / n_tokens))
    expected = EXPECTED_STUDENTS[where]
    planned = expected.copied(labels, epsilon) * effect / expected.sigma
    return Checked(
        profile=profile,
        task=task,
        labels=labels,
        epsilon=epsilon,
        where=where,
        n=len(reached),
        sigma=sigma,
        phi=gamma * sigma / effect,
        measured=mean,
        planned=math.sqrt(n_tokens * math.log1p(planned**2)),
    )


def _power(suspects: Iterable[Suspect], name: str, where: str) -> list[float]:
    found = (suspect.scores.get(where, {}).get("power", {}).get(name) for suspect in suspects)
    return [value for value in found if value is not None]
