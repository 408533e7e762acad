"""How surely a suspect carries a key's mark: the exact law of the statistic under random keys.

Under innocence the suspect knows nothing of the key. Fix the amplitudes A_i (:mod:`.amplitudes`, computed without the
key). Then T = Σ A_i h_i with h_i = −1[g_s(i) ≤ τ]·(1 − cos(f_w g_k(i))) is a sum of independent terms in which nothing
but the key is random, and its law is known: no simulation, no assumption about suspects. A large T accuses. Keys of
scope ``all`` add Σ B_i h′_i with h′_i = 1[g_s(i) ≤ τ]·(1 + cos(f_w g_k(i))).

Everything follows from the cumulant function K(θ) = log E exp(θT) and the saddlepoint K′(θ) = T: the Chernoff bound
p ≤ exp(K(θ) − θT) is certain, Lugannani and Rice's formula is close. :func:`simulate_null` and
:func:`importance_check` find the same numbers by chance alone, for whoever wants to check.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..errors import InvalidInputError
from ..keys.choices import LAWS, Law

# Nodes of the quadrature, and up to which |θ·(A + B)| each size holds K to 1e-12 a token (tests/test_significance.py).
_RULES = ((24, 30.0), (48, 125.0), (96, 500.0), (192, 2000.0), (320, 5000.0))
_COMPRESSED = 48  # larger rules serve few tokens, and making Gauss' rule would cost more than it saves
_BLOCK = 2**18  # numbers worked on at once: they stay in the cache
_END = 9.0  # a normal number lies beyond with probability 2e-19
_NEVER = 1e-15  # a share of tokens too small to tell from none
_NEAR_MEAN = 0.01  # in standard deviations: closer to the mean, Lugannani and Rice's formula is 0/0

Cumulants = Callable[[float], tuple[float, float, float]]


@dataclass(frozen=True)
class ExactTest:
    """What a test says of one statistic.

    Attributes
    ----------
    statistic : float
        T.
    log10_p : float
        log₁₀ of the p-value: the chance that an innocent suspect's T is as large (Lugannani and Rice's estimate).
    log10_bound : float
        log₁₀ of the Chernoff bound, which the p-value certainly does not exceed.
    z_score : float
        The z at which a normal variable has this p-value; finite also where p is below the smallest float.
    theta : float
        The saddlepoint θ.
    n_tokens : int
        Terms of the sum: distinct tokens (memory test: items).
    n_effective : float
        How many equally important terms would make a sum like it: (Σ s_i)²/Σ s_i², s_i their standard deviations.
    mean, sd : float
        Mean and standard deviation of T under the null.
    """

    statistic: float
    log10_p: float
    log10_bound: float
    z_score: float
    theta: float
    n_tokens: int
    n_effective: float
    mean: float
    sd: float

    @property
    def p_value(self) -> float:
        """The p-value; 0.0 where it is below the smallest float, then see ``log10_p``."""
        return 10.0**self.log10_p

    @property
    def p_bound(self) -> float:
        """The Chernoff bound; 0.0 where it is below the smallest float, then see ``log10_bound``."""
        return 10.0**self.log10_bound


def exact_test(
    A: Any,
    phase: Any,
    selection: Any,
    frequency: float,
    tau: float,
    *,
    B: Any = None,
    law: Law = "direct",
    vectors: tuple[Any, Any] | None = None,
) -> ExactTest:
    """Test whether amplitudes follow a key.

    Parameters
    ----------
    A : array, shape (n,)
        The amplitude of every distinct token; special tokens, which are never marked, must not be among them.
    phase, selection : array, shape (n,)
        The same tokens' hashes g(v_k, ·) and g(v_s, ·), as ``key.entries(token_ids)`` gives them.
    frequency, tau : float
        The key's f_w and τ.
    B : array, shape (n,), optional
        The second amplitude of keys of scope ``all``.
    law : str
        The key's law: ``"direct"`` or ``"paper"``.
    vectors : (v_k, v_s)
        The key's vectors, for law ``"paper"`` alone: given these, the token matrix is what is random.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.detection.significance import exact_test
    >>> phase, selection, noise = np.random.default_rng(0).random((3, 500))
    >>> A = noise - 0.5 - 0.2 * (selection <= 0.5) * (1 - np.cos(16.0 * phase))
    >>> exact_test(A, phase, selection, 16.0, 0.5).p_bound < 1e-6
    True
    """
    null = NullLaw(A, frequency, tau, B=B, law=law, vectors=vectors)
    return null.test(null.statistic(phase, selection))


class NullLaw:
    """The law of T under random keys, for given amplitudes; it serves every key of the same f_w and τ.

    Law ``"direct"``: g_k and g_s of a token are independent and uniform. Law ``"paper"``: g = Φ(v·M_i/√(n/3)), so
    given v_k and v_s the two projections are bivariate normal with standard deviations |v|/√(n/3) and correlation
    cos∠(v_k, v_s). The first is the second with standard deviations 1 and correlation 0, and is computed as such.

    Parameters are those of :func:`exact_test`.
    """

    def __init__(
        self,
        A: Any,
        frequency: float,
        tau: float,
        *,
        B: Any = None,
        law: Law = "direct",
        vectors: tuple[Any, Any] | None = None,
    ) -> None:
        self.A = _vector(A, "A")
        self.B = np.zeros_like(self.A) if B is None else _vector(B, "B", len(self.A))
        self.hashes = _HashLaw.of(frequency, tau, law, vectors)
        # A h + B h′ = 2B − (A + B)·loss of a selected token, with loss = 1 − cos(f_w g_k) in [0, 2]; sorted by the
        # factor, so that tokens that need finer quadrature stand together. T is measured in units of the largest one.
        order = np.argsort(np.abs(self.A + self.B), kind="stable")
        slope, offset = (self.A + self.B)[order], 2.0 * self.B[order]
        self._unit = max(float(np.abs(slope).max()), float(np.abs(offset).max())) or 1.0
        self._slope, self._offset = slope / self._unit, offset / self._unit
        self._rules: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def statistic(self, phase: Any, selection: Any) -> float:
        """T of a key, from its hashes of the tokens."""
        phase = _vector(phase, "phase", len(self.A))
        selected = _vector(selection, "selection", len(self.A)) <= self.hashes.tau
        loss = _loss(phase, self.hashes.frequency)
        return float(np.sum((self.B * (2.0 - loss) - self.A * loss)[selected]))

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T."""
        _, means, variances = self._terms(0.0)
        largest = float(np.abs(self._slope).max()) or 1.0

        def in_units(theta: float) -> tuple[float, float, float]:
            K, K1, K2 = (float(term.sum()) for term in self._terms(theta))
            return K, K1, K2

        return saddlepoint_test(
            in_units,
            float(statistic) / self._unit,
            mean=float(means.sum()),
            variances=variances,
            theta_limit=_RULES[-1][1] / largest,
            unit=self._unit,
        )

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """K(θ), K′(θ) and K″(θ)."""
        K, K1, K2 = (float(term.sum()) for term in self._terms(theta * self._unit))
        return K, K1 * self._unit, K2 * self._unit**2

    def _terms(self, theta: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """K, K′ and K″ of every token."""
        terms = np.empty((3, len(self._slope)))
        unselected = 1.0 - self.hashes.selected_share
        for part, (losses, weights) in self._blocks(np.abs(theta * self._slope)):
            slope, offset = self._slope[part], self._offset[part]
            # The largest exponent is taken out of every token's sum; an unselected token's exponent is 0.
            top = theta * offset - np.minimum(theta * slope * losses.min(), theta * slope * losses.max())
            top = np.maximum(top, 0.0) if unselected > 0.0 else top
            powers = np.exp((theta * offset - top)[:, None] - np.multiply.outer(theta * slope, losses))
            mass, first, second = (powers @ np.stack([weights, weights * losses, weights * losses**2], axis=1)).T
            total = mass + (unselected * np.exp(-top) if unselected > 0.0 else 0.0)
            mean = (offset * mass - slope * first) / total
            square = (offset**2 * mass - 2.0 * offset * slope * first + slope**2 * second) / total
            terms[:, part] = np.log(total) + top, mean, np.maximum(square - mean**2, 0.0)
        return terms[0], terms[1], terms[2]

    def _blocks(self, reach: np.ndarray) -> Iterator[tuple[slice, tuple[np.ndarray, np.ndarray]]]:
        """Slices of tokens, each with the quadrature rule that suffices for it."""
        ends = np.searchsorted(reach, [limit for _, limit in _RULES], side="right")
        ends[-1] = len(reach)
        start = 0
        for (size, _), end in zip(_RULES, ends, strict=True):
            while start < end:
                rule = self._rule(size)
                stop = min(start + max(1, _BLOCK // len(rule[0])), end)
                yield slice(start, stop), rule
                start = stop

    def _rule(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        if size not in self._rules:
            self._rules[size] = self.hashes.loss_rule(size)
        return self._rules[size]


@dataclass(frozen=True, repr=False)
class _HashLaw:
    """The law of one token's two hashes: Φ of normal numbers of these standard deviations and this correlation."""

    frequency: float
    tau: float
    phase_sd: float = 1.0
    selection_sd: float = 1.0
    correlation: float = 0.0

    @classmethod
    def of(cls, frequency: float, tau: float, law: Law, vectors: tuple[Any, Any] | None) -> "_HashLaw":
        if not (math.isfinite(frequency) and frequency > 0.0):
            raise InvalidInputError(f"frequency={frequency!r}: expected a finite number > 0, the key's frequency")
        if not 0.0 <= tau <= 1.0:
            raise InvalidInputError(f"tau={tau!r}: expected a number in [0, 1], the key's tau")
        if law not in LAWS:
            raise InvalidInputError(f"law={law!r}: expected one of {list(LAWS)}, the key's law")
        if law == "direct":
            return cls(float(frequency), float(tau))
        if vectors is None:
            raise InvalidInputError("law='paper' needs vectors=(key.v_k, key.v_s): its hashes correlate through them")
        v_k = _vector(vectors[0], "v_k")
        v_s = _vector(vectors[1], "v_s", len(v_k))
        norms = np.linalg.norm(v_k), np.linalg.norm(v_s)
        if min(norms) == 0.0:
            raise InvalidInputError("a vector of zeros hashes every token alike, so no test can tell; make a new key")
        scale = math.sqrt(len(v_k) / 3.0)
        correlation = float(np.clip(v_k @ v_s / (norms[0] * norms[1]), -1.0, 1.0))
        return cls(float(frequency), float(tau), float(norms[0]) / scale, float(norms[1]) / scale, correlation)

    @property
    def threshold(self) -> float:
        """A token is selected where its standard normal selection number is at most this."""
        return float(_ndtri(self.tau)) / self.selection_sd

    @property
    def selected_share(self) -> float:
        """The probability that a token is selected: τ, if the selection hash is uniform."""
        share = self.tau if self.selection_sd == 1.0 else float(_ndtr(self.threshold))
        return share if share > _NEVER else 0.0

    def loss(self, normal: np.ndarray) -> np.ndarray:
        """1 − cos(f_w g_k) of a token with this standard normal phase number."""
        return _loss(_ndtr(self.phase_sd * normal), self.frequency)

    def selected_given(self, normal: np.ndarray) -> np.ndarray:
        """The probability that a token with this standard normal phase number is selected."""
        if self.correlation == 0.0:
            return np.full_like(normal, self.selected_share)
        rest = max(math.sqrt(1.0 - self.correlation**2), 1e-12)
        return _ndtr((self.threshold - self.correlation * normal) / rest)

    def at(self, uniform: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Loss, and probability of selection, of a token whose phase number has these ranks in [0, 1)."""
        if self.phase_sd == 1.0 and self.correlation == 0.0:
            return _loss(uniform, self.frequency), np.full_like(uniform, self.selected_share)
        normal = _ndtri(uniform)
        return self.loss(normal), self.selected_given(normal)

    def loss_rule(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Losses and weights (their sum: the selected share) that stand for the law of a selected token's loss.

        Exact for polynomials of the loss up to degree 2·size − 1, whatever the frequency. The smaller sizes, which
        most tokens need, are boiled down to Gauss' rule of that law, with ``size`` nodes.
        """
        share = self.selected_share
        if share == 0.0:
            return np.zeros(1), np.zeros(1)
        # First a fine rule: Gauss-Legendre between points where the integrand may turn. Those are the ends of the
        # half-cycles of the cosine, steps of the normal numbers, and the edge of selection.
        half_cycles = np.arange(1, math.ceil(self.frequency / math.pi)) * (math.pi / self.frequency)
        steps = np.arange(-_END, _END + 1.0)
        turns = [steps, steps / self.phase_sd, _ndtri(half_cycles) / self.phase_sd]
        if self.correlation != 0.0 and math.isfinite(self.threshold):
            edge = math.sqrt(1.0 - self.correlation**2) / abs(self.correlation)
            turns.append(self.threshold / self.correlation + edge * steps)
        points = np.unique(np.clip(np.concatenate(turns), -_END, _END))
        # Polynomials of that degree swing size times in a half-cycle, and 32 nodes are plenty for ten swings.
        swings = size * np.diff(_ndtr(self.phase_sd * points)) * self.frequency / math.pi
        ends = np.concatenate([[0.0], np.cumsum(np.maximum(np.ceil(swings / 10.0), 1.0))])
        edges = np.interp(np.arange(ends[-1] + 1.0), ends, points)
        x, w = np.polynomial.legendre.leggauss(32)
        left, width = edges[:-1, None], np.diff(edges)[:, None]
        normals, weights = (left + width * (x + 1.0) / 2.0).ravel(), (width * w / 2.0).ravel()
        weights = weights * np.exp(-(normals**2) / 2.0) * self.selected_given(normals)
        weights *= share / weights.sum()
        kept = weights > 1e-100  # what is never drawn must not set the scale of the exponents
        losses, weights = self.loss(normals[kept]), weights[kept]
        return _gauss_rule(losses, weights, size) if size <= _COMPRESSED else (losses, weights)


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
    """Tail probability of a sum of independent terms from its cumulant function.

    Parameters
    ----------
    cumulants : callable
        θ → (K, K′, K″).
    statistic : float
        The value of the sum.
    mean : float
        Its mean.
    variances : array
        The variances of its terms.
    theta_limit : float
        The largest |θ| at which ``cumulants`` may be asked. Where T lies at the end of what it can reach, the bound
        at this θ is reported.
    unit : float
        What the sum is measured in; the result is in absolute units.
    span : float
        The lattice on which the sum lives, 0 where it is continuous.
    """
    sd = math.sqrt(float(variances.sum()))
    moments: dict[str, Any] = {
        "n_tokens": len(variances),
        "mean": mean * unit,
        "sd": sd * unit,
        "statistic": statistic * unit,
    }
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
        z_score=sign * _z_of(log_tail),
        theta=sign * theta / unit,
        n_effective=float(np.sqrt(variances).sum() ** 2 / variances.sum()),
        **moments,
    )


def corrected(log10_p: float, keys_tried: int = 1, suspects_tested: int = 1, looks: int = 1) -> float:
    """log₁₀ of a p-value (or bound) after Bonferroni's correction for everything that was tried, at most 0.

    Parameters
    ----------
    log10_p : float
        log₁₀ of the p-value of one test.
    keys_tried, suspects_tested, looks : int
        How many keys (users, for a ring), suspects and repeated looks at growing data there were in all.
    """
    tried = {"keys_tried": keys_tried, "suspects_tested": suspects_tested, "looks": looks}
    for name, count in tried.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InvalidInputError(f"{name}={count!r}: expected an integer ≥ 1, this test included")
    return min(log10_p + sum(math.log10(count) for count in tried.values()), 0.0)


def tokens_needed(result: ExactTest, level: float) -> float:
    """How many times as many distinct tokens would bring the bound to ``level``.

    It assumes that new tokens are like those tested: as many terms again of the same amplitudes and agreement with
    the key. K and T then grow in proportion, and so does log p. It is infinite where T speaks against the mark, at
    most 1 where the level is reached, and as uncertain as the effect itself: below a z of about 2 that is mostly
    chance.

    Parameters
    ----------
    result : ExactTest
        The test so far.
    level : float
        The level to reach, in (0, 1), already divided by the number of tests.
    """
    if not 0.0 < level < 1.0:
        raise InvalidInputError(f"level={level!r}: expected a number between 0 and 1, like 1e-3")
    return math.log10(level) / result.log10_bound if result.log10_bound < 0.0 else math.inf


def simulate_null(
    A: Any,
    n_keys: int,
    frequency: float,
    tau: float,
    seed: int,
    *,
    B: Any = None,
    law: Law = "direct",
    vectors: tuple[Any, Any] | None = None,
) -> np.ndarray:
    """T under ``n_keys`` random keys, drawn hash by hash: what :func:`exact_test` computes, found by trying.

    The parameters are those of :func:`exact_test`; ``seed`` seeds numpy's default generator. Under law ``"paper"``
    the keys share ``vectors`` and differ in their token matrix.
    """
    A = _vector(A, "A")
    B = None if B is None else _vector(B, "B", len(A))
    hashes = _HashLaw.of(frequency, tau, law, vectors)
    generator = np.random.default_rng(seed)
    samples = np.empty(n_keys)
    rows = max(1, _BLOCK // len(A))
    for start in range(0, n_keys, rows):
        shape = (min(rows, n_keys - start), len(A))
        if law == "direct":
            selected, phase = generator.random(shape) <= tau, generator.random(shape)
            loss = _loss(phase[selected], frequency)
        else:
            normal, other = generator.standard_normal(shape), generator.standard_normal(shape)
            other = hashes.correlation * normal + math.sqrt(1.0 - hashes.correlation**2) * other
            selected = other <= hashes.threshold
            loss = hashes.loss(normal[selected])
        response = np.zeros(shape)
        response[selected] = loss
        T = -(response @ A)
        if B is not None:
            response[selected] = 2.0 - loss
            T += response @ B
        samples[start : start + rows] = T
    return samples


@dataclass(frozen=True)
class ImportanceEstimate:
    """A tail probability found by importance sampling: its log₁₀ and its relative standard error."""

    log10_p: float
    relative_error: float


def importance_check(
    A: Any,
    statistic: float,
    frequency: float,
    tau: float,
    seed: int,
    *,
    n_samples: int = 4000,
    B: Any = None,
    law: Law = "direct",
    vectors: tuple[Any, Any] | None = None,
) -> ImportanceEstimate:
    """The p-value of ``statistic`` by importance sampling, which reaches 1e-30 as easily as 1e-2.

    Keys are drawn from a law tilted towards large T and weighted back. The tilted law is a histogram of each token's
    phase, known exactly, so that the estimate has no bias and shares neither quadrature nor formula with
    :func:`exact_test`; only the amount of the tilt, which any number would serve, comes from there. The other
    parameters are those of :func:`exact_test`.
    """
    null = NullLaw(A, frequency, tau, B=B, law=law, vectors=vectors)
    theta, hashes = max(null.test(statistic).theta, 0.0), null.hashes
    share, n_cells = hashes.selected_share, 512
    cell_loss, cell_share = hashes.at((np.arange(n_cells) + 0.5) / n_cells)
    generator = np.random.default_rng(seed)
    T, log_weight = np.zeros(n_samples), np.zeros(n_samples)
    for a, b in zip(null.A, null.B, strict=True):
        exponents = theta * (b * (2.0 - cell_loss) - a * cell_loss)
        top = max(float(exponents.max()), 0.0)
        masses = np.append(cell_share / n_cells * np.exp(exponents - top), (1.0 - share) * math.exp(-top))
        ends = np.cumsum(masses)
        drawn = generator.random(n_samples) * ends[-1]
        cell = np.minimum(np.searchsorted(ends, drawn, side="right"), n_cells)
        selected = cell < n_cells
        # The last cell is "not selected"; in the others, what is left of the draw says where in the cell.
        cell, drawn = cell[selected], drawn[selected]
        place = np.clip(1.0 - (ends[cell] - drawn) / masses[cell], 0.0, 1.0 - 1e-9)
        loss, chance = hashes.at((cell + place) / n_cells)
        T[selected] += b * (2.0 - loss) - a * loss
        log_weight += math.log(ends[-1]) + top
        log_weight[selected] += np.log(chance / n_cells / masses[cell]) - top
    counted = log_weight[statistic <= T]
    if not len(counted):
        return ImportanceEstimate(-math.inf, math.inf)
    top = float(counted.max())
    weights = np.zeros(n_samples)
    weights[: len(counted)] = np.exp(counted - top)
    return ImportanceEstimate(
        log10_p=(top + math.log(weights.mean())) / math.log(10.0),
        relative_error=float(weights.std() / weights.mean() / math.sqrt(n_samples)),
    )


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


def _z_of(log_p: float) -> float:
    """z with 1 − Φ(z) = p, by Newton's method on log p."""
    if log_p > -math.log(2.0):
        return -_z_of(max(_log_complement(log_p), -745.0))
    z = math.sqrt(-2.0 * log_p) - 0.8  # either side will do: log(1 − Φ) is concave
    for _ in range(60):
        log_tail = float(torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)))
        step = (log_tail - log_p) * math.exp(log_tail + z**2 / 2.0 + math.log(2.0 * math.pi) / 2.0)
        z += step
        if abs(step) <= 1e-12 * max(1.0, abs(z)):
            break
    return z


def _gauss_rule(nodes: np.ndarray, weights: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss' rule with ``size`` nodes for a discrete measure: Lanczos' recurrence, then Golub and Welsch."""
    total = weights.sum()
    basis = np.empty((size, len(nodes)))
    diagonal, beside = [], []
    vector = np.sqrt(weights / total)
    for k in range(size):
        basis[k] = vector
        image = nodes * vector
        diagonal.append(vector @ image)
        for _ in range(2):  # once is not enough to stay orthogonal in floating point
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
        length = np.linalg.norm(image)
        if k + 1 == size or length <= 1e-13 * np.abs(nodes).max():
            break
        beside.append(length)
        vector = image / length
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return values, total * vectors[0] ** 2


def _loss(phase: np.ndarray, frequency: float) -> np.ndarray:
    """1 − cos(f_w g), exact also where it is tiny."""
    return 2.0 * np.sin((0.5 * frequency) * phase) ** 2


def _ndtr(x: Any) -> np.ndarray:
    """Φ; log_ndtr is as exact as ndtr and starts no threads, which on a busy machine wait more than they work."""
    return np.exp(torch.special.log_ndtr(torch.as_tensor(x, dtype=torch.float64)).numpy())


def _ndtri(p: Any) -> np.ndarray:
    """The inverse of Φ."""
    return torch.special.ndtri(torch.as_tensor(p, dtype=torch.float64)).numpy()


def _vector(values: Any, name: str, length: int | None = None) -> np.ndarray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not len(array) or (length is not None and len(array) != length):
        wanted = "(n,) with n ≥ 1" if length is None else f"({length},), one entry a token"
        raise InvalidInputError(f"{name} has shape {array.shape}; expected {wanted}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinite numbers; expected finite ones")
    return array
