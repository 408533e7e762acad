"""Least squares for what words add to answers: a few entries per answer, tens of thousands of words."""

import numpy as np
import torch

from ..asking.words import Words


def word_effects(words: Words, targets: np.ndarray, damping: float, rounds: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """The distinct words, and what each adds to the targets (n, k) of the answers that it is in, shape (words, k).

    Minimises |targets − Σ share · effect|² + damping · |effect|², column by column, by conjugate gradients with each
    word's own weight as preconditioner. Without damping a word alone in its answers gets their mean.
    """
    distinct, columns = np.unique(words.token_ids, return_inverse=True)
    at, items = torch.from_numpy(columns), torch.from_numpy(words.probes)
    shares = torch.from_numpy(words.shares).unsqueeze(1)
    y = torch.from_numpy(np.ascontiguousarray(targets, dtype=np.float64))

    def to_items(effects: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(y).index_add_(0, items, effects[at] * shares)

    def to_words(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(distinct), y.shape[1], dtype=y.dtype).index_add_(0, at, values[items] * shares)

    weight = torch.zeros(len(distinct), dtype=y.dtype).index_add_(0, at, shares[:, 0] ** 2).unsqueeze(1) + damping
    effects = torch.zeros(len(distinct), y.shape[1], dtype=y.dtype)
    left = to_words(y)
    z = left / weight
    direction, energy = z.clone(), (left * z).sum(0)
    least = 1e-12 * energy.max().clamp_min(1e-300)
    for _ in range(rounds):
        moved = to_words(to_items(direction)) + damping * direction
        step = energy / (direction * moved).sum(0).clamp_min(1e-300)
        effects += step * direction
        left -= step * moved
        z = left / weight
        before, energy = energy, (left * z).sum(0)
        if bool((energy < least).all()):
            break
        direction = z + energy / before.clamp_min(1e-300) * direction
    return distinct, effects.numpy()
