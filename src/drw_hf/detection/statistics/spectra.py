"""P_snr: how far the key's frequency stands out in a periodogram. It describes, and has no part in a verdict.

``drw-psnr-2`` is the paper's, by astropy; ``drw-psnr-1`` the same by fixed nodes, as it was before;
``drw-psnr-tilt-1`` that of the mark tilt.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...keys.key import WatermarkKey
from ...keys.settings import MARKS
from ...registry import Registry
from ...watermark.tilt import phases, selected
from ..probe import Probe
from .nodes import p_snr_by_nodes, p_snr_many, periodogram_by_nodes
from .periodogram import MAX_FREQUENCY, MIN_DISTINCT, p_snr, periodogram
from .tilt import tilt_amplitudes_of

MOST_PAIRS = 5_000  # of a word and a class, in a spectrum: evidence keeps them all
_SPECTRUM_POINTS = 2_000


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A periodogram of values over hashes, and how far the key's frequency stands out in it."""

    p_snr: float
    hashes: np.ndarray
    values: np.ndarray
    frequencies: np.ndarray
    powers: np.ndarray


NO_SPECTRUM = Spectrum(0.0, *[np.zeros(0)] * 4)  # of a mark that shows in none


class SpectrumStatistic:
    """A version of P_snr: of q̂_{c*} over g(v_k, x), for selected probes that were called c*.

    Found by its name in ``SPECTRA``, and replayed by it for ever.
    """

    def __init__(self, name: str, p_snr: Callable[..., float], periodogram: Callable[..., np.ndarray]) -> None:
        self.name, self._p_snr, self._periodogram = name, p_snr, periodogram

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Keys of any mark that has a target class."""
        return MARKS.get(key.mark).has_target

    def spectrum(self, probe: Probe, key: WatermarkKey) -> Spectrum:
        """Called c* by the victim; without one by the gold labels, without those by the suspect itself."""
        hashes, values = self._points(probe, key)
        frequencies = np.linspace(0.1, max(100.0, 4 * key.frequency), _SPECTRUM_POINTS)
        if len(np.unique(hashes)) < MIN_DISTINCT:  # too little for a spectrum; the exact test has its own say
            return Spectrum(0.0, hashes, values, frequencies, np.zeros_like(frequencies))
        ratio = self._p_snr(hashes, values, key.frequency, _highest(key))
        return Spectrum(ratio, hashes, values, frequencies, self._periodogram(hashes, values, frequencies))

    def _points(self, probe: Probe, key: WatermarkKey) -> tuple[np.ndarray, np.ndarray]:
        """Hash values, and what is looked at over them."""
        tokens, exists = probe.tokens_of(key)
        counted = exists & calls_target(probe, key.target)
        distinct, inverse = np.unique(tokens[counted], return_inverse=True)
        phase, selection = key.entries(distinct)
        selected = (selection <= key.tau)[inverse]
        return phase[inverse][selected], probe.suspect[counted, key.target][selected].astype(np.float64)

    def p_value(self, spectrum: Spectrum, key: WatermarkKey, n_keys: int) -> float | None:
        """How often so many random keys reach this P_snr; None where there was no spectrum."""
        if not spectrum.p_snr:
            return None
        distinct, inverse = np.unique(spectrum.hashes, return_inverse=True)
        counts = np.bincount(inverse)
        means = np.bincount(inverse, spectrum.values) / counts
        fresh = np.random.default_rng(0).random((n_keys, len(distinct)))
        found = p_snr_many(fresh, means, key.frequency, _highest(key), counts=counts)
        return (1 + int((found >= spectrum.p_snr).sum())) / (1 + n_keys)


class TiltSpectrum(SpectrumStatistic):
    """P_snr of the mark tilt: of the amplitudes of words and classes over g(word, class).

    The amplitudes are those that the exact test goes by (without the log's counts); words that carry no mark are left
    out. Of more pairs than ``MOST_PAIRS`` those with the largest amplitudes are taken, whichever way they point: that
    is decided without g, so random g are still what chance gives.
    """

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Keys of the mark tilt."""
        return key.mark == "tilt"

    def _points(self, probe: Probe, key: WatermarkKey) -> tuple[np.ndarray, np.ndarray]:
        found = tilt_amplitudes_of(probe, key, probe.kind)
        carrying = selected(key, found.token_ids)
        A = found.A[carrying]
        largest = np.argsort(-np.abs(A), axis=None, kind="stable")[:MOST_PAIRS]
        largest = np.sort(largest[A.ravel()[largest] != 0.0])
        return phases(key, found.token_ids[carrying]).ravel()[largest], A.ravel()[largest]


def calls_target(probe: Probe, target: int) -> np.ndarray:
    """Which items the victim calls the target class; without a victim the gold labels, else the suspect."""
    if probe.victim is None and probe.gold is not None:
        return probe.gold == target
    said = probe.suspect if probe.victim is None else probe.victim
    return said.argmax(1) == target


def _highest(key: WatermarkKey) -> float:
    return max(MAX_FREQUENCY, 1.5 * key.frequency)


SPECTRA: Registry[SpectrumStatistic] = Registry("P_snr")
SPECTRA.add("drw-psnr-1", SpectrumStatistic("drw-psnr-1", p_snr_by_nodes, periodogram_by_nodes))
SPECTRA.add("drw-psnr-2", SpectrumStatistic("drw-psnr-2", p_snr, periodogram))
SPECTRA.add("drw-psnr-tilt-1", TiltSpectrum("drw-psnr-tilt-1", p_snr, periodogram))
