"""Distillation losses as sums over items, so that they can be divided by any count afterwards."""

import torch
from torch.nn import functional


def soft_loss(logits: torch.Tensor, teacher: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Σ KL(ŷ ‖ q̂) over items, from the student's logits and the teacher's probabilities, both (n, m).

    At a temperature T both sides are softened by it and the loss is scaled by T²; 1 is the paper's.
    """
    log_q = functional.log_softmax(logits.float() / temperature, dim=-1)
    target = teacher.float()
    if temperature != 1.0:
        log_y = target.clamp_min(torch.finfo(torch.float32).tiny).log()
        target = functional.softmax(log_y / temperature, dim=-1)
    return functional.kl_div(log_q, target, reduction="sum") * temperature**2


def hard_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Σ −log q̂ of the given labels; −100 does not count."""
    return functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten(), reduction="sum")
