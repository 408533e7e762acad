"""Before a key of the mark ``tilt`` is made: what strengths cost, and how surely they would be found.

The cost is that of :mod:`drw_hf.planning.tilt_costs`. The test of a student's answers reaches z ≈ √(U ln(1 + γ²)), as
for the paper's mark (:mod:`drw_hf.planning.plan`). Here γ = φβ/σ: φ is how much of the mark a student copies, σ how
far its (token, class) pairs stray without any mark. U = (ΣW)²/ΣW² is the number of pairs, as their weights make them
count. U follows from the traffic; φ and σ come from students, and without them nothing is predicted.
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
from .students import EXPECTED_TILT_STUDENTS, ExpectedStudent
from .temperature import log_sum_exp
from .tilt_costs import STRONGEST, TiltCost, TiltCosts
from .tilt_traffic import LEAST_KEYS, TiltTraffic, observe_tilt_traffic, throwaway_keys

STRENGTHS = (0.1, 0.2, 0.3, 0.4, 0.5)
LEAST_PROBABILITY = 0.002  # classes below it carry nothing that a test would see
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class TiltPlanRow:
    """What a strength costs, and the z that a test of a student would reach, by what the student was served.

    ``z_scores`` is empty where it is not known what to expect of a student.
    """

    cost: TiltCost
    z_scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def strength(self) -> float:
        """β."""
        return self.cost.strength

    def log10_p(self, label_kind: str) -> float:
        """log₁₀ of exp(−z²/2): of the bound on the p-value, by which :func:`drw_hf.detect` decides."""
        return 0.0 - self.z_scores[label_kind] ** 2 / (2.0 * math.log(10.0))


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
        How many equally important (token, class) pairs a test would have to go by: U.
    """

    fit: Fit
    recommended: TiltPlanRow
    rows: tuple[TiltPlanRow, ...]
    queries: int
    n_effective: float


def plan_tilt(
    model: Any,
    data: Any,
    tokenizer: Any,
    *,
    strengths: Sequence[float] = STRENGTHS,
    budget: float = BUDGET,
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
    model, data, tokenizer, budget, temperature, keys, label_column, like
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
    check_price(like, budget, temperature, keys)
    traffic = observe_tilt_traffic(model, data, tokenizer, like=like, label_column=label_column, **asking)
    queries = traffic.n_texts if queries is None else whole_number("queries", queries)
    fit = fit_to(traffic, like, budget=budget, temperature=temperature, keys=keys)
    costs = TiltCosts(traffic, fit.temperature, throwaway_keys(like, keys), max(STRONGEST, *strengths))
    kappa = ExpectedStudent(0.0, 1.0).kappa if student is None else student.kappa
    effective = pairs_that_count(traffic, fit.temperature, queries / traffic.n_texts, kappa)

    def row(cost: TiltCost) -> TiltPlanRow:
        return TiltPlanRow(cost, {} if student is None else predicted_z(cost.strength, effective, student))

    rows = tuple(row(costs.at(strength)) for strength in strengths)
    return TiltPlan(fit, row(fit.cost), rows, queries, effective)


def predicted_z(strength: float, n_effective: float, student: ExpectedStudent) -> dict[str, float]:
    """The z of the test of a student, by what it was served."""
    effects = {kind: student.copied(kind, strength) * strength / student.sigma for kind in LABEL_KINDS}
    return {kind: math.sqrt(n_effective * math.log1p(effect**2)) for kind, effect in effects.items()}


def pairs_that_count(traffic: TiltTraffic, temperature: float, share: float, kappa: float) -> float:
    """U = (ΣW)²/ΣW² over (token, class) pairs, for a thief who asks so much, over the sample.

    A pair's weight is ΣW = Σ w/n over the items that hold the token, saturated as W/(1 + κW), with
    w = √(p(1 − p)) + 0.02 where the calibrated p of the class is at least 0.002.
    """
    scaled = traffic.logits / temperature
    p = np.exp(scaled - log_sum_exp(scaled)[:, None])
    weights = np.where(p >= LEAST_PROBABILITY, np.sqrt(p * (1.0 - p)) + LEAST_WEIGHT, 0.0)
    counts = np.diff(traffic.offsets)
    distinct, index = np.unique(traffic.token_ids, return_inverse=True)
    items = np.repeat(np.arange(traffic.n_items), counts)
    sums = np.zeros(2)  # of W and W²
    for of_class in weights.T:
        whole = share * np.bincount(index, weights=(of_class / np.maximum(counts, 1))[items], minlength=len(distinct))
        saturated = whole / (1.0 + kappa * whole)
        sums += saturated.sum(), (saturated**2).sum()
    return float(sums[0] ** 2 / sums[1]) if sums[1] else 0.0
