"""Scores with few digits: what an honest client reads, and hardly anything from which the key could be computed."""

import numpy as np
import torch
from torch import Tensor

MOST_DIGITS = 6  # float32 holds no more
_FEW = 2**10


def rounded(log_y: Tensor, digits: int) -> Tensor:
    """log of ŷ rounded to so many digits, and divided by their sum; it has no gradient.

    The classes that round to nothing share evenly what the others leave of one, so that many small scores are not lost
    together, and get :func:`smallest_score` at least, so that no answer says impossible. The class of highest ŷ stays
    the only one that is highest: another of the same units is shown half a unit lower.
    """
    y = log_y.detach().exp()
    least, find = smallest_score(digits, log_y.shape[-1]), _shown_of_few if y.is_cpu and y.numel() <= _FEW else _shown
    return find(log_y, y, 10.0**digits, least).log_()


def _shown(log_y: Tensor, y: Tensor, one: float, least: float) -> Tensor:
    units = y.mul_(one).round_()
    n_nothing = units.shape[-1] - units.clamp_max(1.0).sum(dim=-1, keepdim=True)
    left = (one - units.sum(dim=-1, keepdim=True)) / n_nothing.clamp_min_(1.0)
    share = left.clamp_(least * one, 0.5)
    best = log_y.argmax(dim=-1, keepdim=True)
    top = units.gather(-1, best)
    shown = units.minimum(top - 0.5).maximum(share).scatter_(-1, best, top.maximum(1.5 * share))
    return shown / shown.sum(dim=-1, keepdim=True)


def _shown_of_few(log_y: Tensor, y: Tensor, one: float, least: float) -> Tensor:
    """The same with numpy, which takes half the time where a call counts for more than the numbers."""
    units, best = np.rint(y.numpy() * one), log_y.detach().numpy().argmax(-1)
    n_nothing = np.add.reduce(units == 0.0, axis=-1, keepdims=True, dtype=np.float32)
    left = (one - np.add.reduce(units, axis=-1, keepdims=True)) / np.maximum(n_nothing, 1.0)
    share = np.minimum(np.maximum(left, least * one), 0.5)
    top = np.maximum.reduce(units, axis=-1, keepdims=True)
    shown = np.maximum(np.minimum(units, top - 0.5), share)
    np.copyto(shown, np.maximum(top, 1.5 * share), where=best[..., None] == np.arange(units.shape[-1]))
    shown /= np.add.reduce(shown, axis=-1, keepdims=True)
    return torch.from_numpy(shown)


def smallest_score(digits: int, n_classes: int) -> float:
    """The smallest score that answers of so many digits show, before they are divided by their sum.

    Half a unit, shared by all classes.
    """
    return 0.5 * 10.0**-digits / n_classes
