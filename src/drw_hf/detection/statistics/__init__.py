"""The statistics of detection, each found by its version name: one module and one registration.

``drw-exact-2``, ``drw-exact-1`` (:mod:`.exact`) and ``drw-memory-1`` (:mod:`.memory`), for the paper's mark,
``drw-tilt-1`` (:mod:`.tilt`), ``drw-margin-1`` (:mod:`.margin`) and both as one, ``drw-tilt-margin-1``
(:mod:`.tilt_and_margin`), give p-values; ``drw-psnr-2``, ``drw-psnr-1`` and ``drw-psnr-tilt-1`` (:mod:`.spectra`) are
P_snr. :func:`drw_hf.detect` takes the newest that applies to a probe, and saved evidence is replayed by the names
that it states.
"""

from . import exact, memory, tilt, tilt_and_margin  # noqa: F401  (importing a module registers what it holds)
from .base import STATISTICS, Finding, Statistic, TestOptions, newest_for, register
from .spectra import SPECTRA, SpectrumStatistic

__all__ = [
    "SPECTRA",
    "STATISTICS",
    "Finding",
    "SpectrumStatistic",
    "Statistic",
    "TestOptions",
    "newest_for",
    "register",
]
