"""The statistics of detection, each found by its version name: one module and one registration.

``drw-exact-2``, ``drw-exact-1`` (:mod:`.exact`) and ``drw-memory-1`` (:mod:`.memory`), for the paper's mark,
``drw-tilt-1`` (:mod:`.tilt`), ``drw-margin-1`` (:mod:`.margin`) and both as one, ``drw-tilt-margin-1``
(:mod:`.tilt_and_margin`), give p-values; ``drw-psnr-2``, ``drw-psnr-1`` and ``drw-psnr-tilt-1`` (:mod:`.spectra`) are
P_snr. :func:`drw_hf.detect` takes the newest that applies to a probe, and saved evidence is replayed by the names
that it states.
"""

from ...errors import InvalidInputError
from ...keys.key import WatermarkKey
from ...keys.settings import mark_named
from . import amplitudes, exact, memory, tilt, tilt_and_margin  # noqa: F401  (importing a module registers what it holds)
from .base import STATISTICS, Finding, Statistic, TestOptions, newest_for, register
from .spectra import SPECTRA, SpectrumStatistic

_USUAL = {
    "cosine": (amplitudes.STATISTIC, memory.STATISTIC),
    "tilt": (tilt.STATISTIC, tilt_and_margin.STATISTIC),
}


def usual_statistics(key: WatermarkKey) -> tuple[str, ...]:
    """The versions that :func:`drw_hf.detect` takes today for a key: without a log and, where one helps, with it.

    A seasoned key names them before it is drawn, so that nobody can choose among versions afterwards.
    """
    if key.mark not in _USUAL:
        raise InvalidInputError(
            f"the mark {key.mark!r} is not the package's own; name the versions of its statistics: Terms(statistics=)"
        )
    without, with_log = _USUAL[key.mark]
    return (without, with_log) if mark_named(key.mark).draws(key.settings) else (without,)


__all__ = [
    "SPECTRA",
    "STATISTICS",
    "Finding",
    "SpectrumStatistic",
    "Statistic",
    "TestOptions",
    "newest_for",
    "register",
    "usual_statistics",
]
