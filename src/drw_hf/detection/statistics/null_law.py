"""The exact law of the statistic T under random keys.

Under innocence the suspect knows nothing of the key. Fix the amplitudes A_i (:mod:`.amplitudes`, computed without the
key). Then T = Σ A_i h_i with h_i = −1[g_s(i) ≤ τ]·(1 − cos(f_w g_k(i))) is a sum of independent terms in which nothing
but the key is random, and its law is known: no simulation, no assumption about suspects. A large T accuses. Keys of
scope ``all`` add Σ B_i h′_i with h′_i = 1[g_s(i) ≤ τ]·(1 + cos(f_w g_k(i))).

Everything follows from the cumulant function of T (:mod:`.saddlepoint`); :func:`simulate_null` finds the same numbers
by chance alone, for whoever wants to check.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from ...checks import finite_floats
from ...errors import InvalidInputError
from ...keys.settings import MarkSettings
from .saddlepoint import ExactTest, saddlepoint_test

# Nodes of the quadrature, and up to which |θ·(A + B)| each size holds K to 1e-12 per token (test_significance.py).
_RULES = ((24, 30.0), (48, 125.0), (96, 500.0), (192, 2000.0), (320, 5000.0))
_COMPRESSED = 48  # larger rules serve few tokens, and making Gauss' rule would cost more than it saves
_BLOCK = 2**18  # numbers worked on at once: they stay in the cache
_END = 9.0  # a normal number lies beyond with probability 2e-19
_NEVER = 1e-15  # a share of tokens too small to tell from none


class NullLaw:
    """The law of T under random keys, for given amplitudes; it serves every key of the same settings.

    Law ``"direct"``: g_k and g_s of a token are independent and uniform. Law ``"paper"``: g = Φ(v·M_i/√(n/3)), so
    given v_k and v_s the two projections are bivariate normal with standard deviations |v|/√(n/3) and correlation
    cos∠(v_k, v_s). The first is the second with standard deviations 1 and correlation 0, and is computed as such.

    ``A`` (n,) are the amplitudes of the distinct tokens; special tokens, which are never marked, must not be among
    them. ``B`` (n,) are the second ones of keys of scope ``all``. Of the keys' settings f_w, τ and the law matter; law
    ``"paper"`` needs ``vectors``, the key's (v_k, v_s): given these, the token matrix is what is random.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.detection.statistics.null_law import NullLaw
    >>> from drw_hf.keys.settings import MarkSettings
    >>> phase, selection, noise = np.random.default_rng(0).random((3, 500))
    >>> A = noise - 0.5 - 0.2 * (selection <= 0.5) * (1 - np.cos(16.0 * phase))
    >>> null = NullLaw(A, MarkSettings(frequency=16.0, tau=0.5))
    >>> null.test(null.statistic(phase, selection)).p_bound < 1e-6
    True
    """

    def __init__(
        self, A: Any, settings: MarkSettings, *, B: Any = None, vectors: tuple[Any, Any] | None = None
    ) -> None:
        self.A = finite_floats("A", A)
        if not len(self.A):
            raise InvalidInputError("A has no entries; expected the amplitude of one or more tokens")
        self.B = np.zeros_like(self.A) if B is None else finite_floats("B", B, length=len(self.A))
        self.hashes = _HashLaw.of(settings, vectors)
        # A h + B h′ = 2B − (A + B)·loss of a selected token, with loss = 1 − cos(f_w g_k) in [0, 2]; sorted by the
        # factor, so that tokens that need finer quadrature stand together. T is measured in units of the largest one.
        self._order = np.argsort(np.abs(self.A + self.B), kind="stable")
        slope, offset = (self.A + self.B)[self._order], 2.0 * self.B[self._order]
        self._unit = max(float(np.abs(slope).max()), float(np.abs(offset).max())) or 1.0
        self._slope, self._offset = slope / self._unit, offset / self._unit
        self._rule = cache(self.hashes.loss_rule)

    def statistic(self, phase: Any, selection: Any) -> float:
        """T of a key, from its hashes of the tokens."""
        phase = finite_floats("phase", phase, length=len(self.A))
        selected = finite_floats("selection", selection, length=len(self.A)) <= self.hashes.tau
        loss = one_minus_cosine(phase, self.hashes.frequency)
        return float(np.sum((self.B * (2.0 - loss) - self.A * loss)[selected]))

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T."""
        _, means, variances = self._terms(0.0)
        return saddlepoint_test(
            self._cumulants_in_units,
            float(statistic) / self._unit,
            mean=float(means.sum()),
            variances=variances,
            theta_limit=self.theta_limit * self._unit,
            unit=self._unit,
        )

    @property
    def theta_limit(self) -> float:
        """Up to which |θ| the cumulants are exact."""
        return _RULES[-1][1] / (float(np.abs(self._slope).max()) or 1.0) / self._unit

    def terms(self, theta: float) -> np.ndarray:
        """K(θ), K′(θ) and K″(θ) of every token, shape (3, n)."""
        found = np.empty((3, len(self.A)))
        found[:, self._order] = self._terms(theta * self._unit) * self._unit ** np.arange(3)[:, None]
        return found

    def cumulants(self, theta: float) -> tuple[float, float, float]:
        """K(θ), K′(θ) and K″(θ)."""
        K, K1, K2 = self._cumulants_in_units(theta * self._unit)
        return K, K1 * self._unit, K2 * self._unit**2

    def _cumulants_in_units(self, theta: float) -> tuple[float, float, float]:
        K, K1, K2 = (float(term.sum()) for term in self._terms(theta))
        return K, K1, K2

    def _terms(self, theta: float) -> np.ndarray:
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
        return terms

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


def simulate_null(
    A: Any, settings: MarkSettings, n_keys: int, seed: int, *, B: Any = None, vectors: tuple[Any, Any] | None = None
) -> np.ndarray:
    """T under ``n_keys`` random keys, drawn hash by hash: what :class:`NullLaw` computes, found by trying.

    The parameters are those of :class:`NullLaw`; ``seed`` seeds numpy's default generator. Under law ``"paper"`` the
    keys share ``vectors`` and differ in their token matrix.
    """
    null = NullLaw(A, settings, B=B, vectors=vectors)
    A, B, hashes = null.A, null.B, null.hashes
    generator = np.random.default_rng(seed)
    samples = np.empty(n_keys)
    rows = max(1, _BLOCK // len(A))
    for start in range(0, n_keys, rows):
        shape = (min(rows, n_keys - start), len(A))
        if settings.law == "direct":
            selected, phase = generator.random(shape) <= hashes.tau, generator.random(shape)
            loss = one_minus_cosine(phase[selected], hashes.frequency)
        else:
            normal, other = generator.standard_normal(shape), generator.standard_normal(shape)
            other = hashes.correlation * normal + math.sqrt(1.0 - hashes.correlation**2) * other
            selected = other <= hashes.threshold
            loss = hashes.loss(normal[selected])
        response = np.zeros(shape)
        response[selected] = loss
        T = -(response @ A)
        if B.any():
            response[selected] = 2.0 - loss
            T += response @ B
        samples[start : start + rows] = T
    return samples


def one_minus_cosine(phase: np.ndarray, frequency: float) -> np.ndarray:
    """1 − cos(f_w g), exact also where it is tiny: how far a selected token's mark is from its maximum."""
    return 2.0 * np.sin((0.5 * frequency) * phase) ** 2


@dataclass(frozen=True, repr=False)
class _HashLaw:
    """The law of one token's two hashes: Φ of normal numbers of these standard deviations and this correlation."""

    frequency: float
    tau: float
    phase_sd: float = 1.0
    selection_sd: float = 1.0
    correlation: float = 0.0

    @classmethod
    def of(cls, settings: MarkSettings, vectors: tuple[Any, Any] | None) -> "_HashLaw":
        if settings.law == "direct":
            return cls(settings.frequency, settings.tau)
        if vectors is None:
            raise InvalidInputError("law='paper' needs vectors=(key.v_k, key.v_s): its hashes correlate through them")
        v_k = finite_floats("v_k", vectors[0])
        v_s = finite_floats("v_s", vectors[1], length=len(v_k))
        norms = np.linalg.norm(v_k), np.linalg.norm(v_s)
        if min(norms) == 0.0:
            raise InvalidInputError("a vector of zeros hashes every token alike, so no test can tell; make a new key")
        scale = math.sqrt(len(v_k) / 3.0)
        correlation = float(np.clip(v_k @ v_s / (norms[0] * norms[1]), -1.0, 1.0))
        return cls(settings.frequency, settings.tau, float(norms[0]) / scale, float(norms[1]) / scale, correlation)

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
        return one_minus_cosine(_ndtr(self.phase_sd * normal), self.frequency)

    def selected_given(self, normal: np.ndarray) -> np.ndarray:
        """The probability that a token with this standard normal phase number is selected."""
        if self.correlation == 0.0:
            return np.full_like(normal, self.selected_share)
        rest = max(math.sqrt(1.0 - self.correlation**2), 1e-12)
        return _ndtr((self.threshold - self.correlation * normal) / rest)

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


def _ndtr(x: Any) -> np.ndarray:
    """Φ; log_ndtr is as exact as ndtr and starts no threads, which on a busy machine wait more than they work."""
    return np.exp(torch.special.log_ndtr(torch.as_tensor(x, dtype=torch.float64)).numpy())


def _ndtri(p: Any) -> np.ndarray:
    """The inverse of Φ."""
    return torch.special.ndtri(torch.as_tensor(p, dtype=torch.float64)).numpy()
