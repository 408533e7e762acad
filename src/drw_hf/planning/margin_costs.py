"""What margin draws cost in accuracy, over throwaway keys, and which margin a budget allows.

Where the two best classes a and b of the calibrated, tilted answer are closer than δ, b is answered with chance π
(:mod:`drw_hf.watermark.margin`). Of a calibrated model that costs π·(p_a − p_b), in the *clean* calibrated
probabilities, on top of what tilt costs: where tilt has put the wrong class first, a draw may win.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from ..checks import in_range
from ..keys.key import WatermarkKey
from ..watermark.margin import best_two, swap_chance
from .temperature import log_sum_exp
from .tilt_costs import POINTS, Cost, cost_figures, largest_within, shifts_of
from .tilt_traffic import TiltTraffic

NARROWEST = 1e-4  # a margin below it is none
WIDEST = 0.5  # what a budget allows at most: beyond, answers are drawn of which the model is sure


@dataclass(frozen=True, kw_only=True)
class MarginCost(Cost):
    """What a margin costs hard answers, on top of tilt: of a calibrated model the mean of π·(p_a − p_b).

    Attributes
    ----------
    margin : float
        δ.
    drawn : float
        The share of answers that are drawn.
    swapped : float
        The share of answers that are the second best class.
    """

    margin: float
    drawn: float
    swapped: float


class _Close(NamedTuple):
    """The items whose two best classes are closer than the widest margin under a key."""

    items: np.ndarray
    gaps: np.ndarray  # between the two, calibrated and tilted
    losses: np.ndarray  # p_a − p_b of the clean answer
    fewer: np.ndarray  # right answers that a swap costs: 1, 0 or −1


class MarginCosts:
    """What margins cost hard answers of a model that is calibrated at a temperature and tilted by a strength.

    Parameters
    ----------
    traffic, temperature, keys
        As for :class:`~drw_hf.planning.tilt_costs.TiltCosts`.
    strength : float
        The strength of the tilt.
    widest : float
        The largest margin that will be asked about.
    """

    def __init__(
        self,
        traffic: TiltTraffic,
        temperature: float,
        keys: Sequence[WatermarkKey],
        strength: float,
        widest: float = WIDEST,
    ) -> None:
        self.traffic, self.widest = traffic, widest
        scaled = traffic.logits / in_range("temperature", temperature, above=True)
        self._log_p = scaled - log_sum_exp(scaled)[:, None]
        self._close = [self._close_under(key, in_range("strength", strength)) for key in keys]

    def at(self, margin: float) -> MarginCost:
        """What a margin costs."""
        margin = in_range("margin", margin, 0.0, self.widest)
        chances = [swap_chance(torch.from_numpy(one.gaps), margin).numpy() for one in self._close]
        pairs = list(zip(self._close, chances, strict=True))
        answers = len(pairs) * self.traffic.n_items
        figures = cost_figures(
            self.traffic,
            [(one.items, chance * one.losses) for one, chance in pairs],
            [(one.items, chance * one.fewer) for one, chance in pairs],
        )
        # A single key strays by its table, and by which way its draws fall.
        draws = [float(np.sum(chance * (1.0 - chance) * one.losses**2)) for one, chance in pairs]
        figures["spread"] = math.hypot(figures["spread"], POINTS * math.sqrt(np.mean(draws)) / self.traffic.n_items)
        return MarginCost(
            margin=margin,
            drawn=float(sum((chance > 0.0).sum() for chance in chances)) / answers,
            swapped=float(sum(chance.sum() for chance in chances)) / answers,
            **figures,
        )

    def margin_for(self, budget: float) -> float:
        """The largest margin, to three digits, whose cost and two standard errors are no more than a budget in points.

        ``widest`` itself where even that costs less, and 0 where hardly anything is allowed.
        """
        return largest_within(budget, lambda margin: self.at(margin).upper_cost, self.widest, NARROWEST)

    def _close_under(self, key: WatermarkKey, strength: float) -> _Close:
        tilted = torch.from_numpy(self._log_p + strength * shifts_of(self.traffic, key))
        first, second, gap = (found.numpy() for found in best_two(tilted, 1.0))
        items = np.flatnonzero(gap < self.widest)
        first, second = first[items], second[items]
        p, gold = np.exp(self._log_p[items]), self.traffic.gold[items]
        rows = np.arange(len(items))
        fewer = (gold == first).astype(np.float64) - (gold == second)
        return _Close(items, gap[items], p[rows, first] - p[rows, second], fewer)
