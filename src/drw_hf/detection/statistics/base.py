"""What a statistic is, and where it is found by its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ...errors import InvalidInputError
from ...keys.key import WatermarkKey
from ...registry import Registry
from ..probing import Probe
from .saddlepoint import ExactTest


@dataclass(frozen=True)
class TestOptions:
    """What a caller may add to a test; a statistic that has no use for one of them ignores it.

    Attributes
    ----------
    logged_counts : mapping from token id to int, array by token id, or None
        How often each token was queried.
    simulated_keys : int
        Also draw T under so many random keys.
    """

    __test__ = False  # pytest, this is no test

    logged_counts: Mapping[int, int] | np.ndarray | None = None
    simulated_keys: int = 0


@dataclass(frozen=True, eq=False)
class Finding:
    """What a statistic says of a probe.

    Attributes
    ----------
    test : ExactTest
        The statistic's value, its p-value and its bound under the null, not corrected for anything.
    n_probes : int
        How many probes counted.
    variant : str
        Which form of the statistic was used, like ``"probabilities-victim"``.
    settings : dict
        Which of the options the figures depend on, as JSON keeps them: evidence states them, and a replay gives them
        to :meth:`Statistic.test` again.
    null_samples : array or None
        T under random keys, if they were asked for.
    """

    test: ExactTest
    n_probes: int
    variant: str
    settings: dict[str, Any] = field(default_factory=dict)
    null_samples: np.ndarray | None = None


class Statistic(ABC):
    """A test of whether a probe's answers follow a key.

    Subclasses set ``name`` and write :meth:`applies_to` and :meth:`test`; :func:`register` makes an instance known.
    Saved evidence states the name and is replayed by it for ever: whatever changes a figure gets a new name.

    Attributes
    ----------
    name : str
        The version name, like ``"drw-exact-1"``.
    """

    name: str

    @abstractmethod
    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Whether this is the test for what the probe holds and the key marks with."""

    @abstractmethod
    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """Test the probe.

        Whatever depends on suspect, victim and text must be computed before the key's tables are read
        (:meth:`WatermarkKey.entries`), and the law of the statistic under random keys must be known: the p-value
        rests on that. Raises :class:`~drw_hf.errors.InvalidInputError` where there is nothing to test.
        """


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A periodogram, and how far the key's frequency stands out in it.

    Attributes
    ----------
    p_snr : float
    hashes, values : array
        What it is the periodogram of.
    frequencies, powers : array
    """

    p_snr: float
    hashes: np.ndarray
    values: np.ndarray
    frequencies: np.ndarray
    powers: np.ndarray


class SpectrumStatistic(ABC):
    """A form of P_snr: it describes, and has no part in the verdict. Registered and replayed like a statistic.

    Attributes
    ----------
    name : str
        The version name, like ``"drw-psnr-2"``.
    """

    name: str

    @abstractmethod
    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Whether the key's mark shows in this spectrum."""

    @abstractmethod
    def spectrum(self, probe: Probe, key: WatermarkKey) -> Spectrum:
        """The spectrum of a probe under a key."""

    @abstractmethod
    def p_value(self, spectrum: Spectrum, key: WatermarkKey, n_keys: int) -> float | None:
        """How often so many random keys reach this P_snr; None where there was no spectrum."""


STATISTICS: Registry[Statistic] = Registry("statistic")
SPECTRA: Registry[SpectrumStatistic] = Registry("P_snr")

Kind = TypeVar("Kind", Statistic, SpectrumStatistic)


def register(statistic: Kind) -> Kind:
    """Make a statistic known under its name, once and for all; returns it."""
    if isinstance(statistic, Statistic):
        STATISTICS.add(statistic.name, statistic)
    else:
        SPECTRA.add(statistic.name, statistic)
    return statistic


def newest_for(registry: Registry[Kind], probe: Probe, key: WatermarkKey) -> Kind:
    """The statistic registered last of those that apply."""
    for _, statistic in reversed(list(registry.items())):
        if statistic.applies_to(probe, key):
            return statistic
    raise InvalidInputError(
        f"no {registry.kind} applies to this probe and the mark {key.settings.mark!r}; update drw_hf, or import the "
        "module that registers one"
    )
