"""P_snr by fixed nodes: ``drw-psnr-1``, by which older evidence is replayed, and P_snr under many keys at once.

The paper's code asks astropy for the power at 200,000 frequencies. The same number is had in a few milliseconds by two
facts. The hash values enter only through sums of cos(ωx) and sin(ωx) with x in [0, 1]; up to a given ω these are
polynomials in x for all that double precision can tell, so any number of probes may be replaced by some 340 fixed
nodes whose weights give the same sums. And the power is a smooth function of ω, so that its sum over 200,000 points
follows from a thousand.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...checks import finite_floats
from .periodogram import (
    GRID_POINTS,
    MAX_FREQUENCY,
    MIN_FREQUENCY,
    WINDOW,
    Grid,
    Numbers,
    Probes,
    check_frequencies,
    check_probes,
    check_window,
    have_few_values,
)

NODES_PER_PANEL = 24
PANELS_PER_CYCLE = 1
PANELS_PER_CYCLE_OF_FEW = 16
KEPT_UP_TO = 2 * MAX_FREQUENCY  # tables for a wider range are too large to keep
MAX_DEGREE = 4096  # of the polynomials; beyond, their matrices are too large
BLOCK = 8192  # numbers worked on at a time: what one step writes is still in the cache for the next
PIECE = 512  # longer matrix products would be split between threads, which costs more than it gains
KEYS_AT_ONCE = 128


def p_snr_many(
    hash_matrix: Numbers,
    values: Numbers,
    frequency: float = 16.0,
    max_frequency: float = MAX_FREQUENCY,
    window: float = WINDOW,
    *,
    counts: Numbers | None = None,
) -> np.ndarray:
    """P_snr of the same answers under many keys; with random keys, what chance gives.

    Parameters
    ----------
    hash_matrix : array-like, shape (K, n)
        The hash of every probe under every key.
    values : array-like, shape (n,)
        The suspect's q̂_{c*} of every probe.
    frequency, max_frequency, window, counts
        As for :func:`p_snr`. Where probes share a token, one column per token and ``counts`` save much: the time goes
        with the number of columns.

    Returns
    -------
    ndarray, shape (K,)
        ``p_snr(hash_matrix[i], values)`` for every row i, to 1e-7.
    """
    probes = check_probes(finite_floats("hash_matrix", hash_matrix, 2), values, counts)
    inner = check_window(frequency, max_frequency, window)
    few = have_few_values(probes.hashes)
    result = np.zeros(len(probes.hashes))
    if not probes.scale:
        return result
    one_by_one = few if _nodes_pay(max_frequency, len(probes.values)) else np.ones_like(few)
    for row in np.flatnonzero(one_by_one):
        result[row] = _ratio(_merged(probes, int(row)), inner, max_frequency, few[row])[0]
    rows = np.flatnonzero(~one_by_one)
    for start in range(0, len(rows), KEYS_AT_ONCE):
        some = rows[start : start + KEYS_AT_ONCE]
        result[some] = _ratio(_on_nodes(probes, some, max_frequency), inner, max_frequency, few=False)
    return result


def p_snr_by_nodes(hash_values: Numbers, values: Numbers, frequency: float, max_frequency: float) -> float:
    """P_snr as ``drw-psnr-1`` has it."""
    return float(p_snr_many(finite_floats("hash_values", hash_values)[None], values, frequency, max_frequency)[0])


def periodogram_by_nodes(hash_values: Numbers, values: Numbers, frequencies: npt.ArrayLike) -> np.ndarray:
    """The periodogram as ``drw-psnr-1`` has it."""
    probes = check_probes(finite_floats("hash_values", hash_values)[None], values, None)
    frequencies = check_frequencies(frequencies)
    few = have_few_values(probes.hashes)[0]
    if not probes.scale or not frequencies.size:
        return np.zeros(frequencies.shape)
    highest = float(frequencies.max())
    on_nodes = not few and _nodes_pay(highest, len(probes.values))
    sample = _on_nodes(probes, [0], highest) if on_nodes else _merged(probes, 0)
    return probes.scale**2 * _power(sample, frequencies.ravel())[0].reshape(frequencies.shape)


# The probes, put as weights on positions. Sums of cosines use one set of weights and sums of sines another, so that
# nodes which lie symmetrically need only be kept once.


@dataclass(frozen=True)
class _Sample:
    positions: np.ndarray  # (h,)
    for_cosines: np.ndarray  # (K, 2, h): the share of every position, and that times its value
    for_sines: np.ndarray  # (K, 2, h)
    n_probes: float
    variance: float


def _sample(probes: Probes, positions: np.ndarray, for_cosines: np.ndarray, for_sines: np.ndarray) -> _Sample:
    return _Sample(positions, for_cosines, for_sines, probes.n_probes, probes.shares @ probes.values**2)


def _merged(probes: Probes, row: int) -> _Sample:
    """One position for each different hash value."""
    positions, inverse = np.unique(probes.hashes[row], return_inverse=True)
    weights = np.stack([np.bincount(inverse, column) for column in (probes.shares, probes.shares * probes.values)])
    return _sample(probes, positions - weights[0] @ positions, weights[None], weights[None])


class _Nodes(NamedTuple):
    """Chebyshev nodes on [−½, ½], the positive half, that stand for any hash values up to some frequency.

    With T_k the Chebyshev polynomials and m_k = Σ_i w_i T_k(2x_i − 1), the moments of the probes, the weights of the
    nodes are m @ from_moments; sums over the nodes then equal sums over the probes for all polynomials of degree less
    than ``n_low`` · ``n_high``.
    """

    positions: np.ndarray  # (h,)
    from_even_moments: np.ndarray  # (h, h)
    from_odd_moments: np.ndarray
    n_low: int
    n_high: int


def _degree(max_frequency: float) -> int:
    """The degree that is exact in double precision up to a frequency.

    e^(iκs) on [−1, 1] is a series in T_k(s) with coefficients J_k(κ), which vanish soon after k exceeds κ. The power
    needs e^(2iωx) with x = (s + 1)/2, so κ = ω.
    """
    return math.ceil(max_frequency + 11 * max_frequency ** (1 / 3) + 12)


def _nodes_pay(max_frequency: float, n_probes: int) -> bool:
    return max_frequency <= KEPT_UP_TO or _degree(max_frequency) <= min(n_probes, MAX_DEGREE)


@lru_cache(maxsize=4)
def _nodes(max_frequency: float) -> _Nodes:
    degree = _degree(max_frequency)
    n_low = 2 * math.ceil(math.sqrt(degree) / 2)
    n_high = math.ceil(degree / n_low)
    n = n_low * n_high
    angles = math.pi * (np.arange(n // 2) + 0.5) / n
    from_moments = 4 / n * np.cos(np.outer(np.arange(n), angles))
    from_moments[0] /= 2
    return _Nodes(np.cos(angles) / 2, from_moments[0::2], from_moments[1::2], n_low, n_high)


def _on_nodes(probes: Probes, rows: Any, max_frequency: float) -> _Sample:
    """A few hundred positions, however many the probes."""
    nodes = _nodes(max_frequency)
    n = len(probes.values)
    n_pieces = math.ceil(n / PIECE)
    length = math.ceil(n / n_pieces)
    weights: np.ndarray = np.zeros((2, n_pieces * length))  # the last piece is filled up with probes of no weight
    weights[:, :n] = probes.shares, probes.shares * probes.values
    weights = weights.reshape(2, n_pieces, length)
    moments = np.zeros((len(rows), 2, nodes.n_low * nodes.n_high))
    rows_at_once, pieces_at_once = max(1, BLOCK // (n_pieces * length)), BLOCK // length
    for first in range(0, len(rows), rows_at_once):
        some = slice(first, first + rows_at_once)
        scaled: np.ndarray = np.zeros((len(rows[some]), n_pieces * length))
        scaled[:, :n] = 2 * probes.hashes[rows[some]] - 1
        scaled = scaled.reshape(-1, n_pieces, length)
        for start in range(0, n_pieces, pieces_at_once):
            part = slice(start, start + pieces_at_once)
            moments[some] += _moments(scaled[:, part], weights[:, part], nodes.n_low, nodes.n_high)
    for_cosines = moments[..., 0::2] @ nodes.from_even_moments
    for_sines = moments[..., 1::2] @ nodes.from_odd_moments
    return _sample(probes, nodes.positions, for_cosines, for_sines)


def _moments(scaled: np.ndarray, weights: np.ndarray, n_low: int, n_high: int) -> np.ndarray:
    """Σ_i w_i T_k(s_i) for k below n_low · n_high: scaled (K, pieces, n), weights (2, pieces, n), result (K, 2, k).

    Two short recurrences and a matrix product take the place of one long recurrence: with q = n_low,
    2 T_qa T_b = T_(qa+b) + T_(qa−b).
    """
    low = _chebyshev(scaled, n_low + 1)
    high = np.moveaxis(_chebyshev(low[n_low], n_high), 0, 2)  # (K, pieces, n_high, n)
    low = np.moveaxis(low[:n_low], 0, 3)  # (K, pieces, n, n_low)
    products = np.stack([(high @ (low * weight[..., None])).sum(axis=1) for weight in weights], axis=1)
    moments = products.copy()
    for a in range(1, n_high):
        moments[:, :, a, 1:] = 2 * products[:, :, a, 1:] - moments[:, :, a - 1, :0:-1]
    return moments.reshape(len(scaled), 2, -1)


def _chebyshev(scaled: np.ndarray, n: int) -> np.ndarray:
    """T_0 to T_(n−1), along a new first axis."""
    values = np.empty((n, *scaled.shape))
    values[0] = 1
    if n > 1:
        values[1] = scaled
    twice = 2 * scaled
    for k in range(2, n):
        np.multiply(twice, values[k - 1], out=values[k])
        values[k] -= values[k - 2]
    return values


# The power.


class _Tables(NamedTuple):
    """a = cos(ωx) − 1, which keeps its digits where ω is small, and sin(ωx); each (frequencies, positions)."""

    a: np.ndarray
    aa: np.ndarray
    sine: np.ndarray
    a_sine: np.ndarray


def _tables(positions: np.ndarray, frequencies: np.ndarray) -> _Tables:
    angles = np.outer(frequencies, positions)
    sine = np.sin(angles)
    a = -2 * np.sin(angles / 2) ** 2
    return _Tables(a, a * a, sine, a * sine)


@lru_cache(maxsize=2)
def _kept_tables(max_frequency: float) -> _Tables:
    frequencies, _ = _quadrature(Grid(MIN_FREQUENCY, max_frequency, GRID_POINTS), PANELS_PER_CYCLE)
    return _tables(_nodes(max_frequency).positions, frequencies)


def _power(sample: _Sample, frequencies: np.ndarray) -> np.ndarray:
    """(K, frequencies), in blocks that fit in memory."""
    n_blocks = math.ceil(len(frequencies) * len(sample.positions) / 2**20)
    blocks = np.array_split(frequencies, n_blocks)
    return np.concatenate([_power_from(_tables(sample.positions, block), sample) for block in blocks], axis=1)


def _power_from(tables: _Tables, sample: _Sample) -> np.ndarray:
    """The least-squares fit of a cosine and a sine beside a constant: half of what it explains, in psd units."""
    share_c, share_s = sample.for_cosines[:, 0], sample.for_sines[:, 0]
    a, sine = share_c @ tables.a.T, share_s @ tables.sine.T
    aa = share_c @ tables.aa.T
    cov_cc, cov_ss = aa - a * a, -2 * a - aa - sine * sine
    cov_cs = share_s @ tables.a_sine.T - a * sine
    cov_yc, cov_ys = sample.for_cosines[:, 1] @ tables.a.T, sample.for_sines[:, 1] @ tables.sine.T
    explained = cov_ss * cov_yc**2 - 2 * cov_cs * cov_yc * cov_ys + cov_cc * cov_ys**2
    determinant, trace = cov_cc * cov_ss - cov_cs**2, cov_cc + cov_ss
    # On evenly spaced hash values cosine and sine may be multiples of each other, or constant: fit what is left.
    single, none = determinant <= 1e-13 * trace**2, trace <= 1e-24
    explained = np.where(single, cov_yc**2 + cov_ys**2, explained) / np.where(single, trace + none, determinant)
    return sample.n_probes / 2 * np.clip(np.where(none, 0, explained), 0, sample.variance)


@lru_cache(maxsize=8)
def _quadrature(grid: Grid, panels_per_cycle: int) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies and weights with which a smooth function's sum over the grid is had.

    A sum over a fine grid is the integral over its step, by Gauss and Legendre, and half of both ends (Euler and
    Maclaurin; their next term is of the order of 1e-9 here).
    """
    start, stop, points = grid
    n_panels = math.ceil(panels_per_cycle * (stop - start) / (2 * math.pi))
    if points <= 4 * NODES_PER_PANEL * n_panels:
        return np.linspace(start, stop, points), np.ones(points)
    step = (stop - start) / (points - 1)
    edges = np.linspace(start, stop, n_panels + 1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    half = (edges[1] - edges[0]) / 2
    inside = (edges[:-1, None] + half + half * nodes).ravel()
    inside_weights = np.tile(weights * half / step, len(edges) - 1)
    return np.concatenate([inside, [start, stop]]), np.concatenate([inside_weights, [0.5, 0.5]])


def _ratio(sample: _Sample, inner: Grid, max_frequency: float, few: bool) -> np.ndarray:
    """P_signal over P_noise, (K,)."""
    density = PANELS_PER_CYCLE_OF_FEW if few else PANELS_PER_CYCLE
    frequencies, weights = _quadrature(Grid(MIN_FREQUENCY, max_frequency, GRID_POINTS), density)
    if few or max_frequency > KEPT_UP_TO:
        total = _power(sample, frequencies) @ weights
    else:
        total = _power_from(_kept_tables(max_frequency), sample) @ weights
    frequencies, weights = _quadrature(inner, density)
    signal = _power(sample, frequencies) @ weights
    noise = (total - signal) / (GRID_POINTS - inner.points)
    # Where the means over equal hashes are all equal, nothing but rounding is left.
    some = noise > 1e-20 * sample.n_probes * sample.variance
    return np.where(some, signal / inner.points / np.where(some, noise, 1), 0)
