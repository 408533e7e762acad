"""What the mark ``tilt`` costs in accuracy, over throwaway keys, and which strength an accuracy budget allows.

A calibrated model's right label is a draw from p = softmax(logits/T). Answering another class than the likeliest is
then wrong more often by p_top − p_served, whatever the right label is. The served class is the argmax of
log p + β·S, and as β grows it moves along lines of ever higher S and ever lower p: the cost of every item, under every
key, never falls as β grows, which makes the strength for a budget a matter of bisection.

The class of highest score is the same in soft answers (rounding keeps it the only highest) and in hard ones, so one
cost serves for both.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import embedding_bag

from ..checks import in_range
from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from ..watermark.tilt import signals
from .temperature import log_sum_exp
from .tilt_traffic import TiltTraffic

WEAKEST = 1e-4  # a strength below it is none
# What a budget allows at most: beyond, shown scores mislead those who read them, even where no argmax moves.
STRONGEST = 1.0
POINTS = 100.0  # an accuracy of 1 is 100 points
CAUTION = 2.0  # standard errors that a budget leaves room for: it is to hold for other text than the sample too
_AT_ONCE = 2**22  # numbers in memory at once


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a part of the mark costs, in points of accuracy (0.3: of 1,000 answers 3 less are right).

    Attributes
    ----------
    expected_cost : float
        For a calibrated model, the mean over items and throwaway keys.
    standard_error : float
        Of ``expected_cost``, over the keys.
    text_error : float
        Of ``expected_cost``, over texts: how far it may be for another sample of the same kind and size.
    spread : float
        The standard deviation over keys: how far the cost of a single key strays from the mean.
    measured_cost, measured_error : float or None
        Where labels are known: the accuracy of the clean answers less that of the served ones, over the same items
        and keys, and its paired standard error, over texts and keys.
    """

    expected_cost: float
    standard_error: float
    text_error: float
    spread: float
    measured_cost: float | None = None
    measured_error: float | None = None

    @property
    def upper_cost(self) -> float:
        """The expected cost and two standard errors, over keys and texts: what a budget limits."""
        return self.expected_cost + CAUTION * math.hypot(self.standard_error, self.text_error)


@dataclass(frozen=True, kw_only=True)
class TiltCost(Cost):
    """What a strength costs: of a calibrated model the mean of p_top − p_served.

    Attributes
    ----------
    strength : float
        β.
    """

    strength: float


Values = Sequence[tuple[np.ndarray, np.ndarray]]  # for every key: which items have one, and their values


def cost_figures(traffic: TiltTraffic, losses: Values, fewer: Values) -> dict[str, Any]:
    """The fields of a `Cost`, of what is expected to be lost and, where labels are known, of right answers lost."""
    expected, over_keys, over_texts = averaged(traffic, losses, np.ones(traffic.n_items, dtype=bool))
    found: dict[str, Any] = {"expected_cost": expected, "standard_error": over_keys}
    found |= {"text_error": over_texts, "spread": over_keys * math.sqrt(len(losses))}
    if traffic.labelled:
        measured, *errors = averaged(traffic, fewer, traffic.gold >= 0)
        found |= {"measured_cost": measured, "measured_error": math.hypot(*errors)}
    return found


def averaged(traffic: TiltTraffic, values: Values, counted: np.ndarray) -> tuple[float, float, float]:
    """The mean, in points, of what some items have under each key and the others have not, and its errors.

    Over the items that are counted; its standard error over keys, and that over texts, whose words stand and fall
    together.
    """
    n_keys, n_items = len(values), int(counted.sum())
    by_item, by_key = np.zeros(len(counted)), np.zeros(n_keys)
    for number, (items, of_key) in enumerate(values):
        by_item[items] += of_key / n_keys
        by_key[number] = of_key[counted[items]].sum() / n_items
    mean = float(by_key.mean())
    texts = np.unique(traffic.texts[counted], return_inverse=True)[1]
    strays = np.bincount(texts, weights=by_item[counted]) - mean * np.bincount(texts)
    over_texts = math.sqrt(float((strays**2).sum()) * len(strays) / max(len(strays) - 1, 1)) / n_items
    over_keys = float(by_key.std(ddof=1)) / math.sqrt(n_keys)
    return POINTS * mean, POINTS * over_keys, POINTS * over_texts


def largest_within(budget: float, upper_cost: Callable[[float], float], highest: float, lowest: float) -> float:
    """The largest number, to three digits, whose cost is no more than a budget in points.

    ``highest`` itself where even that costs less, and 0 where hardly anything, less than ``lowest``, is allowed.
    """
    budget = in_range("budget", budget, 0.0, POINTS, above=True)
    low, high = 0.0, highest
    if upper_cost(high) <= budget:
        return high
    while high - low > 1e-4 * high and high > lowest:
        middle = (low + high) / 2.0
        low, high = (middle, high) if upper_cost(middle) <= budget else (low, middle)
    if low < lowest:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(low)) - 2)
    return round(math.floor(low / unit) * unit, 12)  # downwards: the cost does not rise


def shifts_of(traffic: TiltTraffic, key: WatermarkKey, first: int = 0, last: int | None = None) -> np.ndarray:
    """S of some items under a key, shape (items, m): Σ s(t, c)/√n over an item's n tokens, and 0 for n = 0."""
    ends = traffic.offsets[first : traffic.n_items + 1 if last is None else last + 1]
    counts = np.diff(ends)
    distinct, index = np.unique(traffic.token_ids[ends[0] : ends[-1]], return_inverse=True)
    if not len(distinct):
        return np.zeros((len(counts), traffic.logits.shape[1]))
    weights = np.repeat(1.0 / np.sqrt(np.maximum(counts, 1)), counts)
    return embedding_bag(
        torch.from_numpy(index),
        torch.from_numpy(signals(key, distinct)),
        torch.from_numpy(ends[:-1] - ends[0]),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights),
    ).numpy()


class _Contested(NamedTuple):
    """The items whose served class can differ from the clean one under a key, up to the largest strength."""

    items: np.ndarray
    gaps: np.ndarray  # log p_c − log p_top, by class
    leads: np.ndarray  # S_c − S_top
    losses: np.ndarray  # p_top − p_c

    def served(self, strength: float) -> np.ndarray:
        return (self.gaps + strength * self.leads).argmax(axis=1)


class TiltCosts:
    """What strengths cost a model that is calibrated at a temperature, over keys.

    Parameters
    ----------
    traffic : TiltTraffic
        The clean answers, and the tokens that tilt them.
    temperature : float
        The model's calibration temperature T.
    keys : sequence of WatermarkKey
        Two or more keys with secrets of their own, never the one that will be served.
    strongest : float
        The largest strength that will be asked about.

    Attributes
    ----------
    log_p : array, shape (N, m)
        The calibrated log-probabilities of the clean answers.
    """

    def __init__(
        self,
        traffic: TiltTraffic,
        temperature: float,
        keys: Sequence[WatermarkKey],
        strongest: float = STRONGEST,
    ) -> None:
        if len(keys) < 2:
            raise InvalidInputError(f"{len(keys)} keys have no standard error; give two or more")
        self.traffic = traffic
        self.temperature = in_range("temperature", temperature, above=True)
        self.strongest = in_range("strongest", strongest)
        scaled = traffic.logits / self.temperature
        self.log_p = scaled - log_sum_exp(scaled)[:, None]
        self._top = self.log_p.argmax(axis=1)
        self._contested = [self._contested_under(key) for key in keys]

    @property
    def expected_accuracy(self) -> float:
        """The accuracy of the clean answers, in points, if the model is calibrated."""
        return POINTS * float(np.exp(self.log_p.max(axis=1)).mean())

    @property
    def clean_accuracy(self) -> float | None:
        """The accuracy of the clean answers, in points; None without labels."""
        known = self.traffic.gold >= 0
        return POINTS * float((self._top == self.traffic.gold)[known].mean()) if known.any() else None

    def at(self, strength: float) -> TiltCost:
        """What a strength costs."""
        strength = in_range("strength", strength, 0.0, self.strongest)
        served = [one.served(strength) for one in self._contested]
        losses = [(one.items, _lost(one, classes)) for one, classes in zip(self._contested, served, strict=True)]
        gold = self.traffic.gold
        fewer = [  # right answers, served than clean
            (one.items, (gold[one.items] == self._top[one.items]).astype(np.float64) - (gold[one.items] == classes))
            for one, classes in zip(self._contested, served, strict=True)
        ]
        return TiltCost(strength=strength, **cost_figures(self.traffic, losses, fewer))

    def strength_for(self, budget: float) -> float:
        """The largest strength, to three digits, whose cost is no more than a budget in points, by all that is known.

        What is limited is the expected cost and two standard errors (`TiltCost.upper_cost`): the fewer texts, the
        weaker the mark. ``strongest`` itself where even that costs less, and 0 where hardly anything is allowed.
        """
        return largest_within(budget, lambda strength: self.at(strength).upper_cost, self.strongest, WEAKEST)

    def _contested_under(self, key: WatermarkKey) -> _Contested:
        n_items, m = self.log_p.shape
        size, parts = max(1, _AT_ONCE // m), []
        for first in range(0, n_items, size):
            last = min(first + size, n_items)
            log_p, rows = self.log_p[first:last], np.arange(last - first)
            top = self._top[first:last]
            gaps = log_p - log_p[rows, top, None]
            shift = shifts_of(self.traffic, key, first, last)
            leads = shift - shift[rows, top, None]
            may_change = (gaps + self.strongest * leads).max(axis=1) > 0.0
            p = np.exp(log_p[may_change])
            losses = p.max(axis=1, keepdims=True) - p
            parts.append((first + np.flatnonzero(may_change), gaps[may_change], leads[may_change], losses))
        return _Contested(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _lost(contested: _Contested, served: np.ndarray) -> np.ndarray:
    return contested.losses[np.arange(len(served)), served]
