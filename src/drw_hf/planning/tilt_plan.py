"""Before a key of the mark ``tilt`` is made: what strengths cost, and how surely they would be found.

The cost is that of :mod:`drw_hf.planning.tilt_costs`. The test of a student's answers reaches
z² ≈ Σ ln(1 + γ²W/(1 + κW)) over (token, class) pairs. W is how much the answers tell of a pair, and follows from the
traffic: of rare words little, so that each adds little. γ = φβ/σ is how far a student moves with the mark, against how
far its answers stray without any, and κ how far pairs stray by themselves; they come from students
(:mod:`drw_hf.planning.students`), and without them nothing is predicted.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import numpy as np

from ..asking.options import AskingOptions
from ..checks import check_choice, check_options, whole_number
from ..errors import InvalidInputError
from ..keys.choices import LABEL_KINDS
from ..keys.key import WatermarkKey
from ..watermark.tilt import TiltMark
from .fit import BUDGET, Fit, check_price, fit_to
from .students import EXPECTED_TILT_STUDENTS, MARGIN, MARGIN_SPREAD, ExpectedStudent, log10_bound
from .temperature import log_sum_exp
from .tilt_costs import STRONGEST, TiltCost, TiltCosts
from .tilt_traffic import LEAST_KEYS, TiltTraffic, observe_tilt_traffic, throwaway_keys

STRENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5)
LEAST_PROBABILITY = 0.002  # classes below it carry nothing that a test would see
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class TiltPlanRow:
    """What a strength costs, and the z that a test of a student would reach, by what the student was served.

    ``z_scores`` are those of a typical student, ``z_ranges`` what the least and the largest of the known ones would
    show. Both are empty where it is not known what to expect of a student.
    """

    cost: TiltCost
    z_scores: Mapping[str, float] = field(default_factory=dict)
    z_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def strength(self) -> float:
        """β."""
        return self.cost.strength

    def log10_p(self, label_kind: str) -> float:
        """log₁₀ of exp(−z²/2): of the bound on the p-value, by which :func:`drw_hf.detect` decides."""
        return log10_bound(self.z_scores[label_kind])


@dataclass(frozen=True, eq=False)
class TiltPlan:
    """What marks of different strength would cost and bring, and the strength that an accuracy budget allows.

    Attributes
    ----------
    fit : Fit
        What the budget leads to.
    recommended : TiltPlanRow
        The row of its strength.
    rows : tuple of TiltPlanRow
        One for each strength that was asked for.
    queries : int
        How many texts a thief is expected to ask.
    n_effective : float
        How many equally important (token, class) pairs a test would have to go by: (ΣV)²/ΣV² with V = W/(1 + κW).
    """

    fit: Fit
    recommended: TiltPlanRow
    rows: tuple[TiltPlanRow, ...]
    queries: int
    n_effective: float

    @property
    def n_drawn(self) -> float:
        """How many of the answers to so many texts margin draws would decide."""
        drawn = 0.0 if self.fit.margin_cost is None else self.fit.margin_cost.drawn
        return drawn * self.queries * self.fit.n_items / self.fit.n_texts

    @property
    def log_z(self) -> tuple[float, float, float] | None:
        """The z of the margin test on a log of hard answers: of the least student, a typical one and the largest.

        They have learnt all that was answered. None for keys without draws.
        """
        if not self.n_drawn:
            return None
        typical = MARGIN * math.sqrt(self.n_drawn)
        return MARGIN_SPREAD[0] * typical, typical, MARGIN_SPREAD[1] * typical


def plan_tilt(
    model: Any,
    data: Any,
    tokenizer: Any,
    *,
    strengths: Sequence[float] = STRENGTHS,
    budget: float = BUDGET,
    margin_budget: float = 0.0,
    temperature: float | None = None,
    keys: int = LEAST_KEYS,
    queries: int | None = None,
    student: str | ExpectedStudent | None = "unseen",
    label_column: str | None = None,
    like: WatermarkKey | None = None,
    **asking: Unpack[AskingOptions],
) -> TiltPlan:
    """Plan a model's protection with the mark ``tilt`` from a sample of its traffic; no key is kept.

    Parameters
    ----------
    model, data, tokenizer, budget, margin_budget, temperature, keys, label_column, like
        As for :func:`fit_tilt`.
    strengths : sequence of float
        The strengths to compare.
    queries : int, optional
        How many texts a thief is expected to ask; by default as many as the sample holds.
    student : str, ExpectedStudent or None
        What a student will be probed with, ``"queries"`` or ``"unseen"`` text, or what you know of such students
        yourself (its φ by strength, in the place of ε). Nothing is predicted for None, and where nothing is known.
    **asking
        How the model is asked: :class:`drw_hf.asking.AskingOptions`.
    """
    check_options("plan_tilt", asking, AskingOptions)
    if not len(strengths):
        raise InvalidInputError("strengths must hold one value or more: there is no plan")
    if isinstance(student, str):
        check_choice("student", student, ["queries", "unseen"])
        student = EXPECTED_TILT_STUDENTS.get(student)
    like = like or WatermarkKey.generate(model, tokenizer=tokenizer, mark=TiltMark.name, temperature=1.0)
    check_price(like, budget, margin_budget, temperature, keys)
    traffic = observe_tilt_traffic(model, data, tokenizer, like=like, label_column=label_column, **asking)
    queries = traffic.n_texts if queries is None else whole_number("queries", queries)
    fit = fit_to(traffic, like, budget=budget, margin_budget=margin_budget, temperature=temperature, keys=keys)
    costs = TiltCosts(traffic, fit.temperature, throwaway_keys(like, keys), max(STRONGEST, *strengths))
    kappa = ExpectedStudent(0.0, 1.0).kappa if student is None else student.kappa
    weights = pair_weights(traffic, fit.temperature, queries / traffic.n_texts)

    def row(cost: TiltCost) -> TiltPlanRow:
        if student is None:
            return TiltPlanRow(cost)
        z = predicted_z(cost.strength, weights, student)
        ranges = {kind: (least, largest) for kind, (least, _, largest) in z.items()}
        return TiltPlanRow(cost, {kind: typical for kind, (_, typical, _) in z.items()}, ranges)

    rows = tuple(row(costs.at(strength)) for strength in strengths)
    return TiltPlan(fit, row(fit.cost), rows, queries, pairs_that_count(weights, kappa))


def predicted_z(strength: float, weights: np.ndarray, student: ExpectedStudent) -> dict[str, tuple[float, ...]]:
    """The z of the test of the least student, a typical one and the largest, by what they were served."""
    found: dict[str, tuple[float, ...]] = {}
    for kind in LABEL_KINDS:
        effects = student.effects(kind, student.copied(kind, strength) * strength / student.sigma)
        found[kind] = tuple(z_of(effect, weights, student.kappa) for effect in effects)
    return found


def z_of(effect: float, weights: np.ndarray, kappa: float) -> float:
    """√(Σ ln(1 + γ²W/(1 + κW))): the z that an effect γ leads to."""
    return math.sqrt(float(np.log1p(effect**2 * weights / (1.0 + kappa * weights)).sum()))


def pairs_that_count(weights: np.ndarray, kappa: float) -> float:
    """(ΣV)²/ΣV² with V = W/(1 + κW): so many pairs of equal weight tell as much."""
    saturated = weights / (1.0 + kappa * weights)
    return float(saturated.sum() ** 2 / (saturated**2).sum()) if len(saturated) else 0.0


def pair_weights(traffic: TiltTraffic, temperature: float, share: float = 1.0) -> np.ndarray:
    """W of every (token, class) pair that tells anything, for texts so many times the sample.

    W = Σ w/n over the items that hold the token, n being how many tokens each holds; w = √(p(1 − p)) + 0.02 where the
    calibrated p of the class is at least 0.002, and else 0.
    """
    scaled = traffic.logits / temperature
    p = np.exp(scaled - log_sum_exp(scaled)[:, None])
    weights = np.where(p >= LEAST_PROBABILITY, np.sqrt(p * (1.0 - p)) + LEAST_WEIGHT, 0.0)
    counts = np.diff(traffic.offsets)
    distinct, index = np.unique(traffic.token_ids, return_inverse=True)
    items = np.repeat(np.arange(traffic.n_items), counts)
    by_class = [
        np.bincount(index, weights=(of_class / np.maximum(counts, 1))[items], minlength=len(distinct))
        for of_class in weights.T
    ]
    found = share * np.concatenate(by_class)
    return found[found > 0.0]
