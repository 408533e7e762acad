"""Scores with few digits: what an honest client reads, and hardly anything from which the key could be computed."""

import torch
from torch import Tensor

MOST_DIGITS = 6  # float32 holds no more


@torch.no_grad()
def rounded(log_y: Tensor, digits: int) -> Tensor:
    """log of ŷ rounded to so many digits, and divided by their sum; it has no gradient.

    What rounds to nothing is shown as :func:`smallest_score`, so that no answer says impossible. The class of highest
    ŷ stays the only one that is highest: one that would be shown with the same score is shown one unit lower.
    """
    units = log_y.exp().mul_(10.0**digits).round_()
    best = log_y.argmax(dim=-1, keepdim=True)
    top = units.gather(-1, best).clamp_min_(1.0)
    shown = units.minimum(top - 1.0).clamp_min_(smallest_score(digits, log_y.shape[-1]) * 10.0**digits)
    shown.scatter_(-1, best, top)
    total = shown.sum(dim=-1, keepdim=True)
    return shown.log_().sub_(total.log_())


def smallest_score(digits: int, n_classes: int) -> float:
    """The smallest score that answers of so many digits show, before they are divided by their sum.

    Half a unit is shared by all classes.
    """
    return 0.5 * 10.0**-digits / n_classes
