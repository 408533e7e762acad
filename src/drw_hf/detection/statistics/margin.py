"""``drw-margin-1``: does a suspect repeat the draws that a hard-label service made where two classes were close?

The service of a key with a margin draws between the two best classes by a keyed number of the text
(:mod:`drw_hf.watermark.margin`). Which way a draw fell is known to nobody without the key and the log, so a suspect
that was not trained on these answers cannot lean after them.

The two best classes, the chance π of the one with the lower number, and the draws themselves are computed from the key
and the clean victim, never taken from the log: a log that says something else is counted as a mismatch and changes
nothing. T = Σ r (1[the lower was drawn] − π) over the logged answers that were close calls, where r is how far the
suspect leans towards the lower class beyond what the clean answer explains.

Of the answers that share a message, and so the number u, the first in the order of the log counts, and no other. So T
is a sum of independent terms, K(θ) = Σ log(1 − π + π exp(θr)) − θrπ. And which answer counts is settled before its
draw is known: a client who asks again because of an answer, right or wrong, changes nothing that counts. Added up or
averaged, the terms of a message would get another weight where an answer was asked for again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from ...errors import InvalidInputError
from ...keys.choices import AnswerKind
from ...keys.derivation import MARGIN_DRAWS
from ...keys.key import WatermarkKey
from ...watermark.margin import best_two, between, keyed_numbers, swap_chance
from ...watermark.tilt import settings_of, signals
from ..probe import Probe
from .base import Finding, Statistic, TestOptions, register
from .saddlepoint import ExactTest, saddlepoint_test
from .splines import hats, leftover, pieces_for

STATISTIC = "drw-margin-1"
_SMALLEST = 1e-6  # probabilities below are taken for it before the logarithm
_WIDEST = 6.0  # a lean of more log-odds says no more
_PER_PIECE = 15  # answers that every piece of a spline must have
NO_EVIDENCE = ExactTest(0.0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, 0.0, 0.0)  # p = 1: nothing was drawn
_STEEPEST = 1e6  # the largest θ, in units of the widest step: K has reached its limit there


@dataclass(frozen=True, eq=False)
class CloseCalls:
    """The logged answers that were drawn between two classes, as key and victim tell: of every message the first.

    ``items`` are their numbers in the probe, the next four arrays have an entry for each: ``chances`` are those of the
    class with the lower number, and ``drawn`` says where it was answered. ``answers`` are those of all items of the
    probe, as key and victim give them, ``undrawn`` what they would be without draws. ``n_drawn`` counts all logged
    answers that were drawn, and ``n_mismatches`` logged ones that are others than ``answers``.
    """

    items: np.ndarray
    lower: np.ndarray
    higher: np.ndarray
    chances: np.ndarray
    drawn: np.ndarray
    answers: np.ndarray
    undrawn: np.ndarray
    n_logged: int
    n_drawn: int
    n_mismatches: int
    n_undrawn_mismatches: int  # of these, answers that no draw had a part in

    @property
    def counted(self) -> dict[str, int]:
        """What a result tells of the log."""
        names = ("n_logged", "n_drawn", "n_mismatches", "n_undrawn_mismatches")
        return {name: getattr(self, name) for name in names}


def close_calls_of(probe: Probe, key: WatermarkKey) -> CloseCalls:
    """What the service drew about the logged texts of a probe."""
    return calls_drawn_by(probe, key, probe.draw_messages(key))


def calls_drawn_by(probe: Probe, key: WatermarkKey, messages: Sequence[bytes]) -> CloseCalls:
    """What a service draws that goes by these messages, one per item of the probe."""
    settings = settings_of(key)
    if probe.logged is None:
        raise InvalidInputError("the margin test needs the labels that were served; pass logged=")
    if probe.victim is None:
        raise InvalidInputError(
            "with logged answers, what was drawn is computed from the key and the clean victim; pass victim= as well, "
            "or leave logged= out"
        )
    words = probe.words_of(key)
    log_p = torch.from_numpy(np.log(np.maximum(probe.victim.astype(np.float64), np.finfo(np.float32).tiny)))
    shift = torch.from_numpy(words.sums(lambda token_ids: signals(key, token_ids)))
    log_y = torch.log_softmax(log_p + settings.strength * settings.temperature * shift, dim=-1)
    first, second, gap = best_two(log_y, settings.temperature)
    swaps = swap_chance(gap, settings.margin).numpy()
    logged = probe.logged >= 0
    items = np.flatnonzero((swaps > 0.0) & (words.counts > 0) & logged)
    undrawn = first.numpy()
    lower, higher, chances = between(undrawn[items], second.numpy()[items], swaps[items])
    drawn_by = [messages[item] for item in items.tolist()]
    drawn = keyed_numbers(key.subkey(MARGIN_DRAWS), drawn_by) < chances
    answers = undrawn.copy()
    answers[items] = np.where(drawn, lower, higher)
    wrong = (answers != probe.logged) & logged
    place_of: dict[bytes, int] = {}
    for place, message in enumerate(drawn_by):
        place_of.setdefault(message, place)
    counts = np.array(list(place_of.values()), dtype=np.int64)
    return CloseCalls(
        items=items[counts],
        lower=lower[counts],
        higher=higher[counts],
        chances=chances[counts],
        drawn=drawn[counts],
        answers=answers,
        undrawn=undrawn,
        n_logged=int(logged.sum()),
        n_drawn=len(items),
        n_mismatches=int(wrong.sum()),
        n_undrawn_mismatches=int(wrong.sum() - wrong[items].sum()),
    )


def leanings(probe: Probe, calls: CloseCalls, kind: AnswerKind) -> np.ndarray:
    """How far the suspect leans towards the lower class of every call, beyond what the clean answer explains."""
    assert probe.victim is not None  # the statistic has seen to it

    def lean(p: np.ndarray) -> np.ndarray:
        log_p = np.log(np.maximum(p[calls.items].astype(np.float64), _SMALLEST))
        rows = np.arange(len(log_p))
        return (log_p[rows, calls.lower] - log_p[rows, calls.higher]).clip(-_WIDEST, _WIDEST)

    if kind == "labels":
        said = probe.suspect[calls.items].argmax(axis=1)
        y = (said == calls.lower).astype(np.float64) - (said == calls.higher)
    else:
        y = lean(probe.suspect)
    explained_by = [lean(probe.victim), *([] if probe.reference is None else [lean(probe.reference)])]
    pieces = pieces_for(len(y), len(explained_by), _PER_PIECE)
    left = leftover(y, np.concatenate([hats(x, pieces) for x in explained_by], axis=1))[0]
    return left if left.std() > 1e-9 * max(np.abs(y).max(), 1.0) else np.zeros_like(left)  # noise out of rounding


class MarginLaw:
    """The law of T = Σ r (1[u < π] − π) with independent uniform u; π are ``chances``.

    Examples
    --------
    >>> from drw_hf.detection.statistics.margin import MarginLaw
    >>> law = MarginLaw(r=[1.0, 2.0, -1.0], chances=[0.5, 0.25, 0.5])
    >>> round(law.test(law.statistic([True, True, False])).sd, 3)
    1.118
    """

    def __init__(self, r: ArrayLike, chances: ArrayLike) -> None:
        self.r, self.chances = np.asarray(r, np.float64), np.asarray(chances, np.float64)

    def statistic(self, drawn: ArrayLike) -> float:
        """T, from which answers were drawn to be the lower class."""
        return float(np.sum(self.r * (np.asarray(drawn) - self.chances)))

    def cumulants(self, theta: float) -> np.ndarray:
        """K(θ), K′(θ) and K″(θ) of every answer, shape (3, answers)."""
        with np.errstate(divide="ignore"):
            log_other, log_lower = np.log1p(-self.chances), np.log(self.chances) + theta * self.r
        log_total = np.logaddexp(log_other, log_lower)
        tilted = np.exp(log_lower - log_total)  # the chance of the lower class under the tilted law
        K = log_total - theta * self.r * self.chances
        return np.stack([K, self.r * (tilted - self.chances), self.r**2 * tilted * (1.0 - tilted)])

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T; ``n_tokens`` of the result counts answers."""

        def sums(theta: float) -> tuple[float, float, float]:
            K, K1, K2 = (float(row.sum()) for row in self.cumulants(theta))
            return K, K1, K2

        width = float(np.abs(self.r).max(initial=0.0))
        variances = self.cumulants(0.0)[2]
        return saddlepoint_test(sums, statistic, mean=0.0, variances=variances, theta_limit=_STEEPEST / (width or 1.0))

    def simulate(self, n_keys: int, seed: int) -> np.ndarray:
        """T under so many random keys, for the same π: what the law says, found by trying."""
        generator = np.random.default_rng(seed)
        return np.array([self.statistic(generator.random(len(self.r)) < self.chances) for _ in range(n_keys)])


class MarginStatistic(Statistic):
    """Does the suspect lean after the draws of a hard-label service? Part of the test of keys with a margin."""

    name = STATISTIC

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """To nothing by itself: a key with a margin is also tested for tilt (:mod:`.tilt_and_margin`)."""
        return False

    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """On scores, or on labels where the suspect gives no more."""
        return margin_finding(probe, key, probe.kind, int(options.simulated_keys))


def margin_finding(
    probe: Probe, key: WatermarkKey, kind: AnswerKind, n_keys: int = 0, calls: CloseCalls | None = None
) -> Finding:
    """The test of the logged close calls of a probe, by the suspect's scores or its labels alone.

    With ``n_keys``, T is also drawn so many times, for the π of this key. ``calls`` are the close calls, where they
    were computed before.
    """
    calls = calls or close_calls_of(probe, key)
    if not len(calls.items):  # whether there are any depends on the key, so it is no reason to test something else
        return Finding(NO_EVIDENCE, 0, f"margin-{kind}", calls.counted)
    law = MarginLaw(leanings(probe, calls, kind), calls.chances)
    samples = law.simulate(n_keys, seed=0) if n_keys else None
    return Finding(law.test(law.statistic(calls.drawn)), len(calls.items), f"margin-{kind}", calls.counted, samples)


register(MarginStatistic())
