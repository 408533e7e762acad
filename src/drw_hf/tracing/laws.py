"""What a search needs of a statistic: one law for all users of a ring, a screen, and the exact value for one key.

A probe's amplitudes, and with them the law of T under random keys, do not depend on the user. For each mark there is a
class here, which says how T comes from a user's numbers; everything else about a search is the same for all of them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from ..detection.probe import Probe
from ..detection.statistics import tilt
from ..detection.statistics.amplitudes import MIN_TOKENS, PROBES_PER_PIECE, Amplitudes
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.null_law import NullLaw
from ..detection.statistics.saddlepoint import ExactTest
from ..detection.statistics.spectra import calls_target
from ..detection.statistics.tilt_amplitudes import TiltAmplitudes
from ..errors import InvalidInputError
from ..keys.derivation import TABLES, TILT_PHASES, TILT_SELECTION
from ..keys.key import WatermarkKey
from ..watermark.tilt import signals
from .naming import Finalist
from .screening import Screen, TiltScreen, UserScreen

_MANY_TERMS = 1000


class NullTest(Protocol):
    """A law of T under random keys."""

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T."""


class UserLaw(ABC):
    """What a statistic says, whoever's it is. With amplitudes that are all 0 it says nothing: everybody's p is 1.

    Attributes
    ----------
    statistic : str
        The version name.
    variant : str
        Which form of it was used.
    n_probes : int
        How many probes counted.
    token_ids : array
        Their distinct tokens.
    domains : tuple of str
        For which uses the screen wants every user's sub-keys.
    null : NullTest
        The law.
    screen : UserScreen
        The fast scores.
    mean, sd : float
        Of T under random keys.
    knots : int
        Of the curve z(T), which is almost a line: z between them is good to 1e-3.
    """

    mark: ClassVar[str]
    versions: ClassVar[tuple[str, ...]]  # of the statistic, the newest last
    domains: tuple[str, ...]
    null: NullTest
    screen: UserScreen
    mean: float
    sd: float
    knots: int = 65

    def __init__(self, statistic: str, found: Amplitudes | TiltAmplitudes) -> None:
        self.statistic, self.variant, self.n_probes = statistic, found.variant, found.n_probes
        self.token_ids = found.token_ids

    @classmethod
    @abstractmethod
    def of(
        cls, probe: Probe, template: WatermarkKey, logged_counts: Any, statistic: str, device: Any = None
    ) -> "UserLaw":
        """The law for a probe and the keys of a template; reads nothing of it that differs between users."""

    @abstractmethod
    def exact(self, key: WatermarkKey) -> float:
        """T of one key, to the last bit what :func:`drw_hf.detect` computes."""

    @abstractmethod
    def enough(self, level: float) -> float:
        """A statistic whose bound certainly reaches a level, if any does."""

    def least_statistic(self, level: float) -> float:
        """A statistic, just below the smallest whose bound reaches a level; infinite where none can."""
        if not self.sd:
            return math.inf
        low, high = self.mean, self.enough(level)
        if self.null.test(high).log10_bound > math.log10(level):
            return math.inf
        for _ in range(15):  # to a hundredth of a standard deviation; what is left over is on the safe side
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.null.test(middle).log10_bound <= math.log10(level) else (middle, high)
        return low

    def log10_p_values(self, scores: np.ndarray, finalists: Sequence[Finalist]) -> np.ndarray:
        """log₁₀ p of every score: z between knots at which it is exact, along a line; of the finalists T is known."""
        if not self.sd:
            return np.zeros(len(scores))
        scores = scores.copy()
        scores[[finalist.place for finalist in finalists]] = [finalist.statistic for finalist in finalists]
        # Leakers may lie far away, where the curve bends: they are tested each.
        usual = scores <= self.mean + 8.0 * self.sd
        z = np.empty(len(scores))
        if usual.any():
            knots = np.linspace(scores[usual].min(), scores[usual].max(), self.knots)
            z[usual] = np.interp(scores[usual], knots, [self.null.test(float(knot)).z_score for knot in knots])
        found = torch.special.log_ndtr(torch.from_numpy(-z)).numpy() / math.log(10.0)
        for index in np.flatnonzero(~usual):
            found[index] = self.null.test(float(scores[index])).log10_p
        return found


class CosineLaw(UserLaw):
    """The exact test of the paper's mark."""

    mark = "cosine"
    versions = tuple(PROBES_PER_PIECE)

    def __init__(self, found: Amplitudes, template: WatermarkKey, device: Any) -> None:
        super().__init__(found.statistic, found)
        self.domains = (TABLES,)
        self.null: NullLaw = NullLaw(found.A, template.settings, B=found.B)
        self.screen = Screen(found.token_ids, found.A, found.B, template.frequency, template.tau, device)
        _, self.mean, variance = self.null.cumulants(0.0)
        self.sd = math.sqrt(variance)

    @classmethod
    def of(
        cls, probe: Probe, template: WatermarkKey, logged_counts: Any, statistic: str, device: Any = None
    ) -> "CosineLaw":
        """With probes that count, but of too few tokens to compare anything, all amplitudes are 0."""
        if probe.logged is not None:
            raise InvalidInputError(
                "the probe holds logged labels, whose memory test is of one key; probe without logged=, or test users "
                "one by one with detect(probe, key=ring.key_for(user))"
            )
        try:
            found = amplitudes_of(probe, template, logged_counts, statistic)
        except InvalidInputError:
            tokens, exists = probe.tokens_of(template)
            counted = exists & calls_target(probe, template.target)
            distinct, n_probes = np.unique(tokens[counted]), int(counted.sum())
            if not 0 < len(distinct) < MIN_TOKENS:
                raise
            nothing = np.zeros(len(distinct))
            found = Amplitudes(distinct, nothing, None, nothing, n_probes, f"{probe.kind}-too-few", statistic)
        return cls(found, template, device)

    def exact(self, key: WatermarkKey) -> float:
        return self.null.statistic(*key.entries(self.token_ids))

    def enough(self, level: float) -> float:
        """The largest T there is: every token adds the most that its key could make it add."""
        return float(np.maximum(np.maximum(-2.0 * self.null.A, 2.0 * self.null.B), 0.0).sum())


class TiltUserLaw(UserLaw):
    """The exact test of the mark tilt."""

    mark = "tilt"
    versions = (tilt.STATISTIC,)

    def __init__(self, found: TiltAmplitudes, template: WatermarkKey, statistic: str, device: Any) -> None:
        super().__init__(statistic, found)
        self.domains = (TILT_PHASES,) if template.tau == 1.0 else (TILT_PHASES, TILT_SELECTION)
        self.null: tilt.TiltLaw = tilt.TiltLaw(found.A, template.settings)
        self.screen = TiltScreen(found.token_ids, found.A, template.frequency, template.tau, device)
        _, means, variances = self.null.cumulants(0.0)
        self.mean, self.sd = float(means.sum()), math.sqrt(float(variances.sum()))
        if len(self.null.pairs) >= _MANY_TERMS:  # the more terms, the straighter the curve, and the slower a test
            self.knots = 33

    @classmethod
    def of(
        cls, probe: Probe, template: WatermarkKey, logged_counts: Any, statistic: str, device: Any = None
    ) -> "TiltUserLaw":
        """With too few words to compare anything, all amplitudes are 0."""
        try:
            found = tilt.tilt_amplitudes_of(probe, template, probe.kind, logged_counts)
        except InvalidInputError:
            words = probe.words_of(template)
            distinct = np.unique(words.token_ids)
            if not 0 < len(distinct) < MIN_TOKENS:
                raise
            nothing, n_probes = np.zeros((len(distinct), template.num_labels)), int((words.counts > 0).sum())
            found = TiltAmplitudes(distinct, nothing, n_probes, f"{probe.kind}-too-few")
        return cls(found, template, statistic, device)

    def exact(self, key: WatermarkKey) -> float:
        return self.null.statistic(signals(key, self.token_ids))

    def enough(self, level: float) -> float:
        """The largest T there is, or what Hoeffding's inequality asks for, which Chernoff's bound is never above."""
        reach = math.sqrt(2.0) * np.abs(self.null.A).sum(axis=1)  # a word adds between −reach and reach
        hoeffding = self.mean + math.sqrt(2.0 * math.log(1.0 / level) * float(reach @ reach))
        return min(float(reach.sum()), hoeffding)


LAWS: dict[str, type[UserLaw]] = {law.mark: law for law in (CosineLaw, TiltUserLaw)}


def law_for(
    probe: Probe, template: WatermarkKey, logged_counts: Any = None, *, begun_with: Any = None, device: Any = None
) -> UserLaw:
    """The law of a ring's mark; of the version that a search began with, if it has that, else of the newest."""
    if template.mark not in LAWS:
        raise InvalidInputError(
            f"the ring is of the mark {template.mark!r}, and users can be searched for the marks "
            f"{' and '.join(map(repr, LAWS))}; test users one by one with detect(probe, key=ring.key_for(user))"
        )
    law = LAWS[template.mark]
    version = begun_with if begun_with in law.versions else law.versions[-1]
    return law.of(probe, template, logged_counts, version, device)
