"""P_snr: how far the cosine stands out in the Lomb-Scargle periodogram of the suspect's answers over the hash.

astropy computes the power. Two facts make the paper's number, a mean over 200,000 frequencies, quick to have. Probes
of one token share a hash value, so one weighted entry per distinct value says all. And the power is a smooth function
of the frequency, so that its sum over 200,000 points follows from 50 per cycle, 2,000 in all.

All frequencies here are angular, in radians per unit of hash, as the watermark's f_w is; astropy's are in cycles.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ...checks import finite_floats, is_number
from ...errors import InvalidInputError

MIN_FREQUENCY = 2 * math.pi * 0.002
MAX_FREQUENCY = 2 * math.pi * 40
WINDOW = 0.01
GRID_POINTS = 200_000

MIN_DISTINCT = 4  # a constant, a cosine and a sine go through any three points: the spectrum would be flat
FEW_DISTINCT = 20  # below this the spectrum has spikes, and the power is looked at more closely

_POINTS_PER_CYCLE = 50
_POINTS_PER_CYCLE_OF_FEW = 800
_LEAST_POINTS = 16
# The ends of Gregory's rule, which is the trapezoid rule with corrected ends.
_GREGORY = np.array([95 / 288, 317 / 240, 23 / 30, 793 / 720, 157 / 160])
# astropy's "fast" is fast on long grids alone, and loses digits where a cycle is much longer than the hash's range.
_FAST_FROM_POINTS = 200
_FAST_FROM_FREQUENCY = 0.5
# Press and Rybicki's sums to 1e-11; astropy's own settings, 5 and 4, are good to 1e-3.
_PRESS_RYBICKI = {"oversampling": 16, "Mfft": 16}

Numbers = npt.ArrayLike | torch.Tensor


def p_snr(
    hash_values: Numbers,
    target_probabilities: Numbers,
    frequency: float = 16.0,
    max_frequency: float = MAX_FREQUENCY,
    window: float = WINDOW,
    *,
    counts: Numbers | None = None,
) -> float:
    """The signal-to-noise ratio P_snr = P_signal / P_noise at the watermark's frequency.

    P_signal is the mean of the :func:`periodogram` over [f_w − δ/2, f_w + δ/2] and P_noise its mean over the rest of
    [0, F], both on the grid of the paper's code: 200,000 points from 0.002 · 2π to F, of which 8 lie in the default
    window.

    Parameters
    ----------
    hash_values : array-like, shape (n,)
        g(v_k, x) of every probe, in [0, 1]; at least 4 different values.
    target_probabilities : array-like, shape (n,)
        The suspect's q̂_{c*} of every probe. Other numbers will do as well: shifting or scaling them changes nothing.
    frequency : float
        The key's f_w.
    max_frequency : float
        The end F of the range.
    window : float
        δ, the full width of the signal's window.
    counts : array-like, shape (n,), optional
        How many probes each entry stands for, its probability being their mean: probes that share a hash value may be
        given as one. Without it, one each.

    Returns
    -------
    float
        At least 0 and never NaN; 0.0 where the answers do not vary with the hash, as a constant suspect's do not.

    Raises
    ------
    InvalidInputError
        Where an argument is not finite, out of its range or of another length than its fellows, and where there are
        fewer than 4 different hash values.

    Notes
    -----
    A noiseless cosine over uniform hash values gives about F/2π = 40, and noise 1 on average, but at times 5 or more:
    P_snr says nothing of chance. With 7 or more different hash values the result is that of astropy on all 200,000
    frequencies to 1e-7. Fewer than 20 are looked at 16 times as closely: the spectrum of 4 to 6 values may have spikes
    so narrow that their sum is good to 1e-3 only.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).random(2000)
    >>> round(p_snr(x, 0.6 + 0.2 * np.cos(16 * x)), 1)
    38.4
    >>> round(p_snr(x, 0.6 + 0.2 * np.cos(40 * x)), 1)
    0.1
    """
    hashes = finite_floats("hash_values", hash_values)
    values = finite_floats("target_probabilities", target_probabilities)
    probes = Probes.checked(hashes[None], values, counts).merged()
    inner, outer = grids_of(frequency, max_frequency, window)
    signal = _sum_over(inner, probes)
    noise = _sum_over(outer, probes) - signal
    return (signal / inner.points) / (noise / (outer.points - inner.points)) if noise > 0 else 0.0


def periodogram(
    hash_values: Numbers, values: Numbers, frequencies: npt.ArrayLike, *, counts: Numbers | None = None
) -> np.ndarray:
    """The Lomb-Scargle power P(f) of values over the hash.

    It is astropy's ``LombScargle(hash_values, values, normalization="psd")``: at every frequency a constant, a cosine
    and a sine are fitted, and the power is half of what the wave takes off the sum of squares.

    Parameters
    ----------
    hash_values, values : array-like, shape (n,)
        As for :func:`p_snr`.
    frequencies : array-like
        Angular frequencies above 0, of any shape and in any order.
    counts : array-like, shape (n,), optional
        How many probes each entry stands for.

    Returns
    -------
    ndarray
        The power at every frequency, between 0 and Σ(y − ȳ)²/2. It is 0 where a wave cannot be told from a constant.
    """
    probes = Probes.checked(finite_floats("hash_values", hash_values)[None], values, counts).merged()
    frequencies = check_frequencies(frequencies)
    return probes.scale**2 * _power(probes, frequencies.ravel()).reshape(frequencies.shape)


# -- what comes in, checked


@dataclass(frozen=True)
class Probes:
    """Answers over the hash values of one or more keys."""

    hashes: np.ndarray  # (K, n)
    values: np.ndarray  # (n,), their mean taken off, the largest ±1
    scale: float  # what they were divided by; 0 where they are all the same
    counts: np.ndarray  # (n,), how many probes each stands for
    n_distinct: np.ndarray  # (K,), different hash values

    @classmethod
    def checked(cls, hashes: np.ndarray, values: Any, counts: Any = None) -> "Probes":
        """Hash values (K, n), answers (n,) and how many probes each stands for (None: one)."""
        values = finite_floats("values", values)
        counts = np.ones(len(values)) if counts is None else finite_floats("counts", counts)
        if not hashes.shape[1] == len(values) == len(counts):
            raise InvalidInputError(
                f"{hashes.shape[1]} hash values, {len(values)} answers and {len(counts)} counts do not go together; "
                "every probe needs one of each"
            )
        if not ((hashes >= 0) & (hashes <= 1)).all():
            raise InvalidInputError(
                "hash values must be in [0, 1], and some are not; give the key's phase hash of every probe here, and "
                "its answer as the other argument"
            )
        if (counts <= 0).any():
            raise InvalidInputError("counts must be above 0; leave out entries that stand for no probe")
        if len(values) < MIN_DISTINCT:
            raise InvalidInputError(
                f"{len(values)} probes are too few for a periodogram; give at least {MIN_DISTINCT}"
            )
        n_distinct = 1 + np.count_nonzero(np.diff(np.sort(hashes, axis=1), axis=1), axis=1)
        fewest = n_distinct.min(initial=len(values))
        if fewest < MIN_DISTINCT:
            raise InvalidInputError(
                f"the probes have only {fewest} different hash values, which a wave of any frequency fits; give texts "
                f"that have at least {MIN_DISTINCT}, better hundreds"
            )
        centred = values - counts @ (values / counts.sum())
        scale = np.abs(centred).max()
        if scale <= 1e-12 * np.abs(values).max():  # what is left is rounding, and has a spectrum of its own
            scale = 0.0
        return cls(hashes, centred / (scale or 1.0), float(scale), counts, n_distinct)

    def merged(self, row: int = 0) -> "Probes":
        """One entry per distinct hash value under one key; its value is a mean."""
        hashes, inverse = np.unique(self.hashes[row], return_inverse=True)
        counts = np.bincount(inverse, self.counts)
        means = np.bincount(inverse, self.counts * self.values) / counts
        scale = self.scale if np.abs(means).max() > 1e-12 else 0.0
        return Probes(hashes[None], means, scale, counts, self.n_distinct[[row]])

    @property
    def power_limit(self) -> float:
        """The power of a wave that explains all values."""
        return float(self.counts @ self.values**2) / 2


def check_frequencies(frequencies: npt.ArrayLike) -> np.ndarray:
    """Angular frequencies, of any shape."""
    array = np.asarray(frequencies, dtype=np.float64)
    if not (np.isfinite(array) & (array > 0)).all():
        raise InvalidInputError("frequencies must be finite and above 0; give them in radians")
    return array


class Grid(NamedTuple):
    """Evenly spaced frequencies, both ends included."""

    start: float
    stop: float
    points: int


def grids_of(frequency: float, max_frequency: float, window: float) -> tuple[Grid, Grid]:
    """The points of the paper's grid that lie in the signal's window, and the whole grid."""
    for name, number in (("frequency", frequency), ("max_frequency", max_frequency), ("window", window)):
        if not (is_number(number) and number > 0):
            raise InvalidInputError(f"{name}={number!r} must be a finite number above 0, in radians")
    low, high = frequency - window / 2, frequency + window / 2
    if low < MIN_FREQUENCY or high > max_frequency:
        raise InvalidInputError(
            f"the frequency with its window does not lie within [{MIN_FREQUENCY:.4f}, {max_frequency:g}]; frequencies "
            "are in radians: give a max_frequency well above the key's frequency"
        )
    step = (max_frequency - MIN_FREQUENCY) / (GRID_POINTS - 1)
    first, last = math.ceil((low - MIN_FREQUENCY) / step), math.floor((high - MIN_FREQUENCY) / step)
    if not 1 <= last - first + 1 < GRID_POINTS:
        raise InvalidInputError(
            f"window={window:g} must hold at least one point of the grid, whose step is {step:.2g}, and leave some "
            f"out; the paper's is {WINDOW}"
        )
    inner = Grid(MIN_FREQUENCY + first * step, MIN_FREQUENCY + last * step, last - first + 1)
    return inner, Grid(MIN_FREQUENCY, max_frequency, GRID_POINTS)


# -- the power of merged probes


def _power(probes: Probes, frequencies: np.ndarray) -> np.ndarray:
    """astropy's power, by its exact method or, on long even grids, by its fast one."""
    import astropy
    from astropy.timeseries import LombScargle

    if not probes.scale or not len(frequencies):
        return np.zeros(len(frequencies))
    # With dy = 1/√count, psd is in units of one probe: what it is without merging.
    spectrum = LombScargle(probes.hashes[0], probes.values, dy=probes.counts**-0.5, normalization="psd")
    # Press and Rybicki's algorithm, whichever astropy takes by itself: evidence must replay with later versions.
    algorithm = {"algorithm": "fasper"} if int(astropy.__version__.split(".")[0]) >= 8 else {}
    fast_sums: dict[str, Any] = {"method": "fast", "method_kwds": {**algorithm, "trig_sum_kwds": _PRESS_RYBICKI}}
    steps = np.diff(frequencies)
    even = len(steps) and steps[0] > 0 and np.abs(steps - steps[0]).max() <= 1e-9 * steps[0]
    long = len(frequencies) >= _FAST_FROM_POINTS and len(probes.values) >= FEW_DISTINCT
    fast = (frequencies >= _FAST_FROM_FREQUENCY) & bool(long and even)
    power = np.empty(len(frequencies))
    with np.errstate(divide="ignore", invalid="ignore"):
        for part, how in ((fast, fast_sums), (~fast, {"method": "cython"})):
            if part.any():
                cycles = frequencies[part] / (2 * math.pi)
                power[part] = spectrum.power(cycles, **how, assume_regular_frequency=True)
    # On evenly spaced hash values cosine or sine may be constant, which leaves 0/0.
    return np.clip(np.nan_to_num(power, nan=0.0), 0.0, probes.power_limit)


def _sum_over(grid: Grid, probes: Probes) -> float:
    """The sum of the power over a grid.

    Over a fine grid it is the integral over the step and half of both ends (Euler and Maclaurin; their next term is of
    the order of 1e-9 here), and the integral is had from fewer points.
    """
    per_cycle = _POINTS_PER_CYCLE_OF_FEW if len(probes.values) < FEW_DISTINCT else _POINTS_PER_CYCLE
    n = max(_LEAST_POINTS, math.ceil(per_cycle * (grid.stop - grid.start) / (2 * math.pi))) + 1
    power = _power(probes, np.linspace(grid.start, grid.stop, min(n, grid.points)))
    if n >= grid.points:
        return float(power.sum())
    k = len(_GREGORY)
    integral = power[k:-k].sum() + _GREGORY @ power[:k] + _GREGORY[::-1] @ power[-k:]
    return float((grid.points - 1) / (n - 1) * integral + (power[0] + power[-1]) / 2)
