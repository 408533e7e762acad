"""The tail probability of a sum of independent terms, from its cumulant function K(θ) = log E exp(θT).

With the saddlepoint K′(θ) = T, the Chernoff bound p ≤ exp(K(θ) − θT) is certain, and Lugannani and Rice's formula is
close.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...checks import check_level, whole_number

_NEAR_MEAN = 0.01  # in standard deviations: closer to the mean, Lugannani and Rice's formula is 0/0

Cumulants = Callable[[float], tuple[float, float, float]]


@dataclass(frozen=True)
class ExactTest:
    """What a test says of one statistic T, a sum of independent terms under the null."""

    statistic: float  # T
    log10_p: float  # of the chance that an innocent suspect's T is as large (Lugannani and Rice's estimate)
    log10_bound: float  # of the Chernoff bound, which the p-value certainly does not exceed
    z_score: (
        float  # the z at which a normal variable has this p-value; finite also where p is below the smallest float
    )
    theta: float  # the saddlepoint
    n_tokens: int  # terms of the sum: distinct tokens (memory test: items)
    n_effective: float  # so many equally important terms make a sum like it: (Σ s_i)²/Σ s_i², s_i their deviations
    mean: float  # of T under the null
    sd: float  # its standard deviation there

    @property
    def p_value(self) -> float:
        """The p-value; 0.0 where it is below the smallest float, then see ``log10_p``."""
        return 10.0**self.log10_p

    @property
    def p_bound(self) -> float:
        """The Chernoff bound; 0.0 where it is below the smallest float, then see ``log10_bound``."""
        return 10.0**self.log10_bound


def saddlepoint_test(
    cumulants: Cumulants,
    statistic: float,
    *,
    mean: float,
    variances: np.ndarray,
    theta_limit: float,
    unit: float = 1.0,
    span: float = 0.0,
) -> ExactTest:
    """The tail probability of a sum of independent terms.

    ``cumulants`` gives K, K′ and K″ of θ, and may be asked up to |θ| = ``theta_limit``; where T lies at the end of
    what it can reach, the bound at this θ is reported. ``variances`` are those of the terms. ``unit`` is what the sum
    is measured in (the result is in absolute units), ``span`` the lattice on which it lives, 0 where it is continuous.
    """
    sd = math.sqrt(float(variances.sum()))
    moments: dict[str, Any] = {"n_tokens": len(variances), "mean": mean * unit, "sd": sd * unit}
    moments["statistic"] = statistic * unit
    if sd == 0.0:  # no key could have given another T, so this one says nothing
        return ExactTest(log10_p=0.0, log10_bound=0.0, z_score=0.0, theta=0.0, n_effective=0.0, **moments)
    # Below the mean the lower tail is computed, by the same formulas on −T: its z is then as exact as the upper one's.
    sign = 1.0 if statistic >= mean else -1.0

    def mirrored(theta: float) -> tuple[float, float, float]:
        K, K1, K2 = cumulants(sign * theta)
        return K, sign * K1, K2

    theta, exponent, K2 = _saddlepoint(mirrored, sign * statistic, sign * (statistic - mean) / sd**2, theta_limit)
    w = math.sqrt(-2.0 * exponent)
    step = sign * span  # on a lattice P(T ≥ t) holds the point t itself, and P(T < t) does not
    if w >= _NEAR_MEAN:
        correction = _correction(theta, w, K2, step)
    else:
        correction = sum(_correction_at(mirrored, side * 4.0 * _NEAR_MEAN / sd, step) for side in (-1.0, 1.0)) / 2.0
    log_tail = _log_tail(w, correction)
    if log_tail > exponent:  # beyond the bound, so not to be trusted: few tokens, or T at the end of its reach
        log_tail = exponent if sign > 0 else _log_tail(w, 0.0)
    return ExactTest(
        log10_p=(log_tail if sign > 0 else _log_complement(log_tail)) / math.log(10.0),
        log10_bound=min(exponent, 0.0) / math.log(10.0) if sign > 0 else 0.0,
        z_score=sign * z_of_log_p(log_tail),
        theta=sign * theta / unit,
        n_effective=float(np.sqrt(variances).sum() ** 2 / variances.sum()),
        **moments,
    )


def corrected(log10_p: float, keys_tried: int = 1, suspects_tested: int = 1, looks: int = 1) -> float:
    """log₁₀ of a p-value (or bound) after Bonferroni's correction for everything that was tried, at most 0.

    That is how many keys (users, for a ring), suspects and repeated looks at growing data there were in all.
    """
    tried = {"keys_tried": keys_tried, "suspects_tested": suspects_tested, "looks": looks}
    for name, count in tried.items():
        whole_number(name, count)
    return min(log10_p + sum(math.log10(count) for count in tried.values()), 0.0)


def tokens_needed(result: ExactTest, level: float) -> float:
    """How many times as many distinct tokens would bring the bound to ``level``, already divided by all tests.

    It assumes that new tokens are like those tested: as many terms again of the same amplitudes and agreement with
    the key. K and T then grow in proportion, and so does log p. It is infinite where T speaks against the mark, at
    most 1 where the level is reached, and as uncertain as the effect itself: below a z of about 2 that is mostly
    chance.
    """
    return math.log10(check_level(level)) / result.log10_bound if result.log10_bound < 0.0 else math.inf


def _saddlepoint(cumulants: Cumulants, t: float, guess: float, limit: float) -> tuple[float, float, float]:
    """θ ≥ 0 with K′(θ) = t, by Newton's method in a bracket; K(θ) − θt ≤ 0, and K″(θ).

    Beyond what K′ reaches at the limit, K″ is reported as 0: there is no saddlepoint, only the bound at the limit.
    """
    low, high, theta = 0.0, limit, min(guess, limit)
    for _ in range(100):
        K, K1, K2 = cumulants(theta)
        gap = t - K1
        if gap > 0.0 and theta >= limit:
            K2 = 0.0
            break
        if abs(gap) <= 1e-10 * theta * K2 or high - low <= 1e-13 * high:
            break
        low, high = (theta, high) if gap > 0.0 else (low, theta)
        # K″ may fall to almost nothing between here and there, so a step at most quadruples θ.
        proposal = min(theta + gap / K2 if K2 > 0.0 else math.inf, 4.0 * theta, limit)
        theta = proposal if low < proposal <= high else (low + high) / 2.0
    return theta, min(K - theta * t, 0.0), K2


def _correction(theta: float, w: float, K2: float, step: float) -> float:
    """1/u − 1/w of Lugannani and Rice's formula, with Daniels' u where the sum lives on a lattice."""
    u = (theta if step == 0.0 else -math.expm1(min(-theta * step, 700.0)) / step) * math.sqrt(K2)
    return 1.0 / u - 1.0 / w if u and w else math.inf


def _correction_at(cumulants: Cumulants, theta: float, step: float) -> float:
    K, K1, K2 = cumulants(theta)
    return _correction(theta, math.copysign(math.sqrt(2.0 * max(theta * K1 - K, 0.0)), theta), K2, step)


def _log_tail(w: float, correction: float) -> float:
    """log(1 − Φ(w) + φ(w)·correction), without underflow: φ(w) times Mills' ratio and the correction."""
    mills = math.sqrt(math.pi / 2.0) * float(
        torch.special.erfcx(torch.tensor(w / math.sqrt(2.0), dtype=torch.float64))
    )
    bracket = mills + correction
    return -(w**2) / 2.0 - math.log(2.0 * math.pi) / 2.0 + math.log(bracket) if bracket > 0.0 else math.inf


def _log_complement(log_p: float) -> float:
    """log(1 − p)."""
    return math.log(-math.expm1(log_p)) if log_p < 0.0 else -math.inf


def z_of_log_p(log_p: float) -> float:
    """z with 1 − Φ(z) = p, by Newton's method on log p."""
    if log_p > -math.log(2.0):
        return -z_of_log_p(max(_log_complement(log_p), -745.0))
    z = math.sqrt(-2.0 * log_p) - 0.8  # either side will do: log(1 − Φ) is concave
    for _ in range(60):
        log_tail = float(torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)))
        step = (log_tail - log_p) * math.exp(log_tail + z**2 / 2.0 + math.log(2.0 * math.pi) / 2.0)
        z += step
        if abs(step) <= 1e-12 * max(1.0, abs(z)):
            break
    return z
