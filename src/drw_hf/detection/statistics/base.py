"""What a statistic is, and where it is found by its name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...keys.key import WatermarkKey
from ...registry import Registry
from ..probe import Probe
from .saddlepoint import ExactTest

if TYPE_CHECKING:
    from .spectra import SpectrumStatistic


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
    beside : Finding or None
        The same question asked of less of what the suspect said, for comparison; it has no part in the verdict.
    parts : dict from str to Finding
        The tests that this one is made of, where it is made of several.
    """

    test: ExactTest
    n_probes: int
    variant: str
    settings: dict[str, Any] = field(default_factory=dict)
    null_samples: np.ndarray | None = None
    beside: "Finding | None" = None
    parts: "dict[str, Finding]" = field(default_factory=dict)


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


STATISTICS: Registry[Statistic] = Registry("statistic")

Kind = TypeVar("Kind", Statistic, "SpectrumStatistic")


def register(statistic: Statistic) -> Statistic:
    """Make a statistic known under its name, once and for all; returns it."""
    return STATISTICS.add(statistic.name, statistic)


def newest_for(registry: Registry[Kind], probe: Probe, key: WatermarkKey) -> Kind | None:
    """The statistic, or version of P_snr, registered last of those that apply."""
    return next((one for _, one in reversed(list(registry.items())) if one.applies_to(probe, key)), None)
