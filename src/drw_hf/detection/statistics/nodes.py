"""P_snr by fixed nodes: ``drw-psnr-1``, by which older evidence is replayed, and P_snr under many keys at once.

The paper's code asks astropy for the power at 200,000 frequencies. The same number is had in a few milliseconds by two
facts. The hash values enter only through sums of cos(ωx) and sin(ωx) with x in [0, 1]; up to a given ω these are
polynomials in x for all that double precision can tell, so any number of probes may be replaced by some 340 fixed
nodes whose weights give the same sums. And the power is a smooth function of ω, so that its sum over 200,000 points
follows from a thousand.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...checks import finite_floats
from .periodogram import FEW_DISTINCT, MAX_FREQUENCY, WINDOW, Grid, Numbers, Probes, check_frequencies, grids_of

NODES_PER_PANEL = 24
PANELS_PER_CYCLE = 1
PANELS_PER_CYCLE_OF_FEW = 16
MAX_DEGREE = 2048  # of the polynomials; beyond, their matrices are too large to keep
KEYS_AT_ONCE = 128
PIECE = 512  # longer matrix products would be split between threads, which costs more than it gains


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
    probes = Probes.checked(finite_floats("hash_matrix", hash_matrix, 2), values, counts)
    inner, outer = grids_of(frequency, max_frequency, window)
    result = np.zeros(len(probes.hashes))
    if not probes.scale:
        return result
    on_nodes = _go_on_nodes(probes, max_frequency)
    for row in np.flatnonzero(~on_nodes).tolist():
        few = bool(probes.n_distinct[row] < FEW_DISTINCT)
        result[row] = _ratio(_on_own_positions(probes, row), inner, outer, few)[0]
    rows = np.flatnonzero(on_nodes)
    for start in range(0, len(rows), KEYS_AT_ONCE):
        some = rows[start : start + KEYS_AT_ONCE]
        result[some] = _ratio(_on_nodes(probes, some, max_frequency), inner, outer, few=False)
    return result


def p_snr_by_nodes(hash_values: Numbers, values: Numbers, frequency: float, max_frequency: float) -> float:
    """P_snr as ``drw-psnr-1`` has it."""
    return float(p_snr_many(finite_floats("hash_values", hash_values)[None], values, frequency, max_frequency)[0])


def periodogram_by_nodes(hash_values: Numbers, values: Numbers, frequencies: npt.ArrayLike) -> np.ndarray:
    """The periodogram as ``drw-psnr-1`` has it."""
    probes = Probes.checked(finite_floats("hash_values", hash_values)[None], values)
    frequencies = check_frequencies(frequencies)
    if not probes.scale or not frequencies.size:
        return np.zeros(frequencies.shape)
    highest = float(frequencies.max())
    on_nodes = _go_on_nodes(probes, highest)[0]
    sample = _on_nodes(probes, np.arange(1), highest) if on_nodes else _on_own_positions(probes, 0)
    return probes.scale**2 * _power(sample, frequencies.ravel())[0].reshape(frequencies.shape)


# -- the probes, put as weights on positions


class _Sample(NamedTuple):
    positions: np.ndarray  # (h,)
    weights: np.ndarray  # (K, 2, h): the share of every position among all probes, and that times its value
    n_probes: float
    power_limit: float


def _on_own_positions(probes: Probes, row: int) -> _Sample:
    """One position per distinct hash value under a key."""
    merged = probes.merged(row)
    weights = _shares(merged)
    positions = merged.hashes[0] - weights[0] @ merged.hashes[0]
    return _Sample(positions, weights[None], probes.counts.sum(), probes.power_limit)


def _shares(probes: Probes) -> np.ndarray:
    shares = probes.counts / probes.counts.sum()
    return np.stack([shares, shares * probes.values])


def _degree(max_frequency: float) -> int:
    """The degree that is exact in double precision up to a frequency.

    e^(iκs) on [−1, 1] is a series in T_k(s) with coefficients J_k(κ), which vanish soon after k exceeds κ. The power
    needs e^(2iωx) with x = (s + 1)/2, so κ = ω.
    """
    return math.ceil(max_frequency + 11 * max_frequency ** (1 / 3) + 12)


def _go_on_nodes(probes: Probes, max_frequency: float) -> np.ndarray:
    return (probes.n_distinct >= FEW_DISTINCT) & (_degree(max_frequency) <= MAX_DEGREE)


class _Nodes(NamedTuple):
    """Chebyshev nodes on [−½, ½] that stand for any hash values up to some frequency.

    With T_k the Chebyshev polynomials and m_k = Σ_i w_i T_k(2x_i − 1), the moments of the probes, the weights of the
    nodes are m @ from_moments; sums over the nodes then equal sums over the probes for all polynomials of degree less
    than ``n_low`` · ``n_high``.
    """

    positions: np.ndarray
    from_moments: np.ndarray
    n_low: int
    n_high: int


@lru_cache(maxsize=2)
def _nodes(max_frequency: float) -> _Nodes:
    degree = _degree(max_frequency)
    n_low = math.ceil(math.sqrt(degree))
    n_high = math.ceil(degree / n_low)
    n = n_low * n_high
    angles = math.pi * (np.arange(n) + 0.5) / n
    from_moments = 2 / n * np.cos(np.outer(np.arange(n), angles))
    from_moments[0] /= 2
    return _Nodes(np.cos(angles) / 2, from_moments, n_low, n_high)


def _on_nodes(probes: Probes, rows: np.ndarray, max_frequency: float) -> _Sample:
    """A few hundred positions, however many the probes."""
    nodes = _nodes(max_frequency)
    weights = _shares(probes)
    scaled = 2 * probes.hashes[rows] - 1
    parts = (slice(start, start + PIECE) for start in range(0, len(probes.values), PIECE))
    moments = sum(_moments(scaled[:, part], weights[:, part], nodes) for part in parts)
    return _Sample(nodes.positions, moments @ nodes.from_moments, probes.counts.sum(), probes.power_limit)


def _moments(scaled: np.ndarray, weights: np.ndarray, nodes: _Nodes) -> np.ndarray:
    """Σ_i w_i T_k(s_i) for k below n_low · n_high: scaled (K, n), weights (2, n), result (K, 2, k).

    Two short recurrences and a matrix product take the place of one long recurrence: with q = n_low,
    2 T_qa T_b = T_(qa+b) + T_(qa−b).
    """
    low = _chebyshev(scaled, nodes.n_low + 1)
    high = _chebyshev(low[-1], nodes.n_high).swapaxes(0, 1)  # (K, n_high, n)
    low = np.moveaxis(low[:-1], 0, 2)  # (K, n, n_low)
    products = np.stack([high @ (low * weight[:, None]) for weight in weights], axis=1)
    moments = products.copy()
    for a in range(1, nodes.n_high):
        moments[:, :, a, 1:] = 2 * products[:, :, a, 1:] - moments[:, :, a - 1, :0:-1]
    return moments.reshape(len(scaled), 2, -1)


def _chebyshev(scaled: np.ndarray, n: int) -> np.ndarray:
    """T_0 to T_(n−1), along a new first axis."""
    values = np.ones((n, *scaled.shape))
    values[1:2] = scaled
    for k in range(2, n):
        values[k] = 2 * scaled * values[k - 1] - values[k - 2]
    return values


# -- the power


def _power(sample: _Sample, frequencies: np.ndarray) -> np.ndarray:
    """(K, frequencies), in blocks that fit in memory."""
    blocks = np.array_split(frequencies, math.ceil(len(frequencies) * len(sample.positions) / 2**20))
    return np.concatenate([_power_of_block(sample, block) for block in blocks], axis=1)


def _power_of_block(sample: _Sample, frequencies: np.ndarray) -> np.ndarray:
    """The least-squares fit of a cosine and a sine beside a constant: half of what it explains, in psd units."""
    angles = np.outer(sample.positions, frequencies)
    sines, less = np.sin(angles), -2 * np.sin(angles / 2) ** 2  # cos − 1 keeps its digits where ω is small
    share, weighted = sample.weights[:, 0], sample.weights[:, 1]
    a, aa, sine = share @ less, share @ less**2, share @ sines
    cov_cc, cov_ss = aa - a * a, -2 * a - aa - sine * sine
    cov_cs = share @ (less * sines) - a * sine
    cov_yc, cov_ys = weighted @ less, weighted @ sines
    explained = cov_ss * cov_yc**2 - 2 * cov_cs * cov_yc * cov_ys + cov_cc * cov_ys**2
    determinant, trace = cov_cc * cov_ss - cov_cs**2, cov_cc + cov_ss
    # On evenly spaced hash values cosine and sine may be multiples of each other, or constant: fit what is left.
    single, none = determinant <= 1e-13 * trace**2, trace <= 1e-24
    explained = np.where(single, cov_yc**2 + cov_ys**2, explained) / np.where(single, trace + none, determinant)
    return np.clip(sample.n_probes / 2 * np.where(none, 0, explained), 0, sample.power_limit)


def _ratio(sample: _Sample, inner: Grid, outer: Grid, few: bool) -> np.ndarray:
    """P_signal over P_noise, (K,)."""
    signal, total = (_sum_over(grid, sample, few) for grid in (inner, outer))
    noise = (total - signal) / (outer.points - inner.points)
    # Where the means over equal hashes are all equal, nothing but rounding is left.
    some = noise > 2e-20 * sample.power_limit
    return np.where(some, signal / inner.points / np.where(some, noise, 1), 0)


def _sum_over(grid: Grid, sample: _Sample, few: bool) -> np.ndarray:
    """The sum of the power over a grid, (K,).

    Over a fine grid it is the integral over its step, by Gauss and Legendre, and half of both ends (Euler and
    Maclaurin; their next term is of the order of 1e-9 here).
    """
    start, stop, points = grid
    n_panels = math.ceil((PANELS_PER_CYCLE_OF_FEW if few else PANELS_PER_CYCLE) * (stop - start) / (2 * math.pi))
    if points <= 4 * NODES_PER_PANEL * n_panels:
        return _power(sample, np.linspace(start, stop, points)).sum(axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES_PER_PANEL)
    half = (stop - start) / n_panels / 2
    inside = (np.linspace(start, stop, n_panels + 1)[:-1, None] + half + half * nodes).ravel()
    power = _power(sample, np.concatenate([inside, [start, stop]]))
    step = (stop - start) / (points - 1)
    return power[:, :-2] @ np.tile(weights * half / step, n_panels) + power[:, -2:].sum(axis=1) / 2
