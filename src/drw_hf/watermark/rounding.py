"""Scores with few digits: what an honest client reads, and hardly anything from which the key could be computed."""

import torch
from torch import Tensor

MOST_DIGITS = 6  # float32 holds no more


@torch.no_grad()
def rounded(log_y: Tensor, digits: int) -> Tensor:
    """log of ŷ rounded to so many digits, and divided by their sum; it has no gradient.

    The classes that round to nothing share evenly what the others leave of one, so that many small scores are not lost
    together, and get :func:`smallest_score` at least, so that no answer says impossible. The class of highest ŷ stays
    the only one that is highest: another of the same units is shown half a unit lower.
    """
    one = 10.0**digits
    units = log_y.exp().mul_(one).round_()
    n_nothing = log_y.shape[-1] - units.clamp_max(1.0).sum(dim=-1, keepdim=True)
    left = (one - units.sum(dim=-1, keepdim=True)) / n_nothing.clamp_min_(1.0)
    share = left.clamp_(smallest_score(digits, log_y.shape[-1]) * one, 0.5)
    best = log_y.argmax(dim=-1, keepdim=True)
    top = units.gather(-1, best)
    shown = units.minimum(top - 0.5).maximum(share).scatter_(-1, best, top.maximum(1.5 * share))
    total = shown.sum(dim=-1, keepdim=True)
    return shown.log_().sub_(total.log_())


def smallest_score(digits: int, n_classes: int) -> float:
    """The smallest score that answers of so many digits show, before they are divided by their sum.

    Half a unit, shared by all classes.
    """
    return 0.5 * 10.0**-digits / n_classes
