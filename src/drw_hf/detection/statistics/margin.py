"""``drw-margin-1``: does a suspect repeat the draws that a hard-label service made where two classes were close?

The service of a key with a margin draws between the two best classes by a keyed number of the text
(:mod:`drw_hf.watermark.margin`). Which way a draw fell is known to nobody without the key and the log, so a suspect
that was not trained on these answers cannot lean after them.

a, b and π, and the draws themselves, are computed from the key and the clean victim, never taken from the log: a log
that says something else is counted as a mismatch and changes nothing. T = Σ r (1[b was drawn] − π) over the logged
answers that were close calls, where r is how far the suspect leans towards b beyond what the clean answer explains.
Answers of one message share one number u and count as one: their terms are averaged. So the law is that of Σ f(u) with
one independent uniform u per message and f(u) the mean of r (1[u < π] − π) over its answers, a step function:
K(θ) = Σ log ∫ exp(θ f(u)) du. Added up instead, a text that was asked a thousand times would decide alone, and a
client who asks again where an answer was right would give right draws the greater weight.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ...errors import InvalidInputError
from ...keys.choices import AnswerKind
from ...keys.derivation import MARGIN_DRAWS
from ...keys.key import WatermarkKey
from ...watermark.margin import best_two, keyed_numbers, swap_chance
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
    """The logged answers that were drawn between two classes, as key and victim tell; arrays of one entry per answer.

    ``numbers`` says which distinct message each depends on. ``answers`` are those of all items of the probe, drawn or
    not, as key and victim give them, and ``n_mismatches`` counts logged ones that are others.
    """

    items: np.ndarray
    first: np.ndarray
    second: np.ndarray
    chances: np.ndarray
    swapped: np.ndarray
    numbers: np.ndarray
    answers: np.ndarray
    n_logged: int
    n_mismatches: int

    @property
    def shared_by(self) -> np.ndarray:
        """How many of the calls depend on the same message as each does."""
        return np.bincount(self.numbers)[self.numbers]


def close_calls_of(probe: Probe, key: WatermarkKey) -> CloseCalls:
    """What the service drew about the logged texts of a probe."""
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
    chance = swap_chance(gap, settings.margin).numpy()
    logged = probe.logged >= 0
    items = np.flatnonzero((chance > 0.0) & (words.counts > 0) & logged)
    messages = probe.draw_messages(key)
    messages = [messages[item] for item in items]
    swapped = keyed_numbers(key.subkey(MARGIN_DRAWS), messages) < chance[items]
    answers = first.numpy().copy()
    answers[items[swapped]] = second.numpy()[items[swapped]]
    number_of = {message: number for number, message in enumerate(dict.fromkeys(messages))}
    return CloseCalls(
        items=items,
        first=first.numpy()[items],
        second=second.numpy()[items],
        chances=chance[items],
        swapped=swapped,
        numbers=np.array([number_of[message] for message in messages], dtype=np.int64),
        answers=answers,
        n_logged=int(logged.sum()),
        n_mismatches=int((answers != probe.logged)[logged].sum()),
    )


def leanings(probe: Probe, calls: CloseCalls, kind: AnswerKind) -> np.ndarray:
    """How far the suspect leans towards the second class of every call, beyond what the clean answer explains."""
    assert probe.victim is not None  # the statistic has seen to it

    def lean(p: np.ndarray) -> np.ndarray:
        log_p = np.log(np.maximum(p[calls.items].astype(np.float64), _SMALLEST))
        rows = np.arange(len(log_p))
        return (log_p[rows, calls.second] - log_p[rows, calls.first]).clip(-_WIDEST, _WIDEST)

    if kind == "labels":
        said = probe.suspect[calls.items].argmax(axis=1)
        y = (said == calls.second).astype(np.float64) - (said == calls.first)
    else:
        y = lean(probe.suspect)
    explained_by = [lean(probe.victim), *([] if probe.reference is None else [lean(probe.reference)])]
    pieces = pieces_for(len(y), len(explained_by), _PER_PIECE)
    left = leftover(y, np.concatenate([hats(x, pieces) for x in explained_by], axis=1))[0]
    return left if left.std() > 1e-9 * max(np.abs(y).max(), 1.0) else np.zeros_like(left)  # noise out of rounding


class MarginLaw:
    """The law of T = Σ r (1[u < π] − π), where answers of the same number share their uniform u.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.detection.statistics.margin import MarginLaw
    >>> law = MarginLaw(r=[1.0, 1.0, -1.0], chances=[0.5, 0.25, 0.5], numbers=[0, 0, 1])
    >>> round(law.test(law.statistic([True, True, False])).sd, 3)
    0.968
    """

    def __init__(self, r: np.ndarray, chances: np.ndarray, numbers: np.ndarray) -> None:
        self.r, self.chances, self.numbers = (np.asarray(values) for values in (r, chances, numbers))
        order = np.lexsort((self.chances, self.numbers))
        r, chances, numbers = self.r[order], self.chances[order], self.numbers[order]
        _, begins, counts = np.unique(numbers, return_index=True, return_counts=True)
        # Within a message the steps of f end at the π in ascending order, and the last one at 1.
        last = begins + counts
        self._groups = begins + np.arange(len(begins))  # where each message's steps begin
        ends = np.insert(chances, last, 1.0)
        starts = np.concatenate([[0.0], ends[:-1]]) if len(ends) else ends
        starts[self._groups] = 0.0
        after = np.concatenate([np.cumsum(r[::-1])[::-1], [0.0]])  # Σ r from here on, over all messages
        still = np.insert(after[:-1], last, after[last])  # drawn at this step: all whose π is not passed yet
        group = np.repeat(np.arange(len(begins)), counts + 1)
        means = np.add.reduceat(r * chances, begins) if len(r) else np.zeros(0)
        with np.errstate(divide="ignore"):
            self._log_lengths = np.log(np.maximum(ends - starts, 0.0))
        self._values = still - after[last][group] - means[group]
        self._group = group

    def statistic(self, swapped: np.ndarray) -> float:
        """T, from which answers were drawn to be the second."""
        return float(np.sum(self.r * (np.asarray(swapped) - self.chances)))

    def cumulants(self, theta: float) -> np.ndarray:
        """K(θ), K′(θ) and K″(θ) of every message, shape (3, messages)."""
        exponents = self._log_lengths + theta * self._values
        top = np.maximum.reduceat(exponents, self._groups)
        weights = np.exp(exponents - top[self._group])
        total = np.add.reduceat(weights, self._groups)
        mean = np.add.reduceat(weights * self._values, self._groups) / total
        square = np.add.reduceat(weights * (self._values - mean[self._group]) ** 2, self._groups) / total
        return np.stack([np.log(total) + top, mean, square])

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T; ``n_tokens`` of the result counts messages."""

        def sums(theta: float) -> tuple[float, float, float]:
            K, K1, K2 = (float(row.sum()) for row in self.cumulants(theta))
            return K, K1, K2

        width = float(np.abs(self._values).max(initial=0.0))
        variances = self.cumulants(0.0)[2]
        return saddlepoint_test(sums, statistic, mean=0.0, variances=variances, theta_limit=_STEEPEST / (width or 1.0))

    def simulate(self, n_keys: int, seed: int) -> np.ndarray:
        """T under so many random keys, for the same π: what the law says, found by trying."""
        generator = np.random.default_rng(seed)
        numbers = np.unique(self.numbers, return_inverse=True)[1]
        n = int(numbers.max(initial=-1)) + 1
        return np.array([self.statistic(generator.random(n)[numbers] < self.chances) for _ in range(n_keys)])


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
    figures = {"n_logged": calls.n_logged, "n_mismatches": calls.n_mismatches, "n_drawn": len(calls.items)}
    if not len(calls.items):  # whether there are any depends on the key, so it is no reason to test something else
        return Finding(NO_EVIDENCE, 0, f"margin-{kind}", figures)
    law = MarginLaw(leanings(probe, calls, kind) / calls.shared_by, calls.chances, calls.numbers)
    samples = law.simulate(n_keys, seed=0) if n_keys else None
    return Finding(law.test(law.statistic(calls.swapped)), len(calls.items), f"margin-{kind}", figures, samples)


register(MarginStatistic())
