"""Scores with few digits: what an honest client reads, and hardly anything from which the key could be computed."""

import torch
from torch import Tensor

MOST_DIGITS = 6  # float32 holds no more


def rounded(log_y: Tensor, digits: int) -> Tensor:
    """log of ŷ rounded to so many digits, and divided by their sum.

    What rounds to nothing is shown as :func:`smallest_score`, so that no answer says impossible. The class of highest
    ŷ stays the only one that is highest: one that would be shown with the same score is shown one unit lower.
    """
    units = torch.round(log_y.exp() * 10.0**digits)
    best = log_y.argmax(dim=-1, keepdim=True)
    top = units.gather(-1, best).clamp_min(1.0)
    units = torch.where(units >= top, top - 1.0, units).scatter(-1, best, top)
    shown = torch.where(units > 0.0, units, smallest_score(digits, log_y.shape[-1]) * 10.0**digits)
    return (shown / shown.sum(dim=-1, keepdim=True)).log()


def smallest_score(digits: int, n_classes: int) -> float:
    """The smallest score that answers of so many digits show, before they are divided by their sum.

    Half a unit is shared by all classes.
    """
    return 0.5 * 10.0**-digits / n_classes
