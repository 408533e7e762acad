"""The watermark itself, Equations 3 to 5 of the paper, as pure functions of tensors.

Shapes: probabilities are (..., m) with any leading shape; everything said per item (signal, marked, target, epsilon)
has that leading shape or broadcasts to it.
"""

import torch

SMALLEST_LOG = -1e4  # e to this power is 0 in float32, and unlike log 0 it has a gradient and a finite loss


def periodic_signal(phase: torch.Tensor, frequency: float) -> torch.Tensor:
    """z_{c*} = cos(f_w · g), Eq. 3; for every other class z_c = cos(f_w · g + π) = −z_{c*}."""
    return torch.cos(frequency * phase)


def perturb(
    probabilities: torch.Tensor,
    signal: torch.Tensor,
    target: torch.Tensor | int,
    epsilon: torch.Tensor | float,
) -> torch.Tensor:
    """Mark every item: Eq. 5 with z_{c*} = ``signal``.

    The result is a distribution again for every m ≥ 2 (the paper's Lemma 2): of the added mass 2ε the target gets
    ε (1 + z), the others share ε (1 − z) equally, and the whole is divided by 1 + 2ε.

    Parameters
    ----------
    probabilities : Tensor, shape (..., m)
        The model's own prediction p̂.
    signal : Tensor, shape (...)
        z_{c*} of every item, in [−1, 1].
    target : Tensor of int or int
        c*, for all items or one for each.
    epsilon : Tensor or float
        ε, for all items or one for each.

    Returns
    -------
    Tensor, shape (..., m)
        ŷ: in float64 if the probabilities are, else in float32.
    """
    p = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    n_classes = p.shape[-1]
    z = signal.to(p).unsqueeze(-1)
    target = torch.as_tensor(target, device=p.device).unsqueeze(-1)
    epsilon = torch.as_tensor(epsilon, dtype=p.dtype, device=p.device).unsqueeze(-1)
    is_target = torch.arange(n_classes, device=p.device) == target
    share = torch.where(is_target, 1.0 + z, (1.0 - z) / (n_classes - 1))
    return (p + epsilon * share) / (1.0 + 2.0 * epsilon)


def is_marked(
    selected: torch.Tensor, logits: torch.Tensor, target: torch.Tensor | int, scope_all: torch.Tensor | bool
) -> torch.Tensor:
    """Which selected items are marked: all of them, or those whose unmarked prediction is c* (scope ``predicted``)."""
    return selected & ((logits.argmax(dim=-1) == target) | scope_all)


def soft_output(
    logits: torch.Tensor,
    signal: torch.Tensor,
    marked: torch.Tensor,
    target: torch.Tensor | int,
    epsilon: torch.Tensor | float,
) -> torch.Tensor:
    """log ŷ in float32, so that every softmax downstream returns ŷ: Eq. 5 where ``marked``, log p̂ elsewhere."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    y = perturb(log_p.exp(), signal, target, epsilon)
    log_y = y.clamp_min(torch.finfo(torch.float32).tiny).log()
    return torch.where(marked.unsqueeze(-1), log_y, log_p).clamp_min(SMALLEST_LOG)
