"""What tests know of the exact law and the package does not need: a test in one call, and importance sampling."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from drw_hf.detection.statistics.null_law import NullLaw, one_minus_cosine
from drw_hf.keys.settings import MarkSettings


def exact_test(A, phase, selection, frequency=16.0, tau=0.5, *, B=None, law="direct", vectors=None):
    """Whether amplitudes follow a key with these hashes of their tokens."""
    null = NullLaw(A, MarkSettings(frequency=frequency, tau=tau, law=law), B=B, vectors=vectors)
    return null.test(null.statistic(phase, selection))


@dataclass(frozen=True)
class ImportanceEstimate:
    """A tail probability found by importance sampling: its log₁₀ and its relative standard error."""

    log10_p: float
    relative_error: float


def importance_check(A, statistic, settings, seed, *, n_samples=4000, B=None, vectors=None):
    """The p-value of ``statistic`` by importance sampling, which reaches 1e-30 as easily as 1e-2.

    Keys are drawn from a law tilted towards large T and weighted back. The tilted law is a histogram of each token's
    phase, known exactly, so that the estimate has no bias and shares neither quadrature nor formula with
    :class:`NullLaw`; only the amount of the tilt, which any number would serve, comes from there.
    """
    null = NullLaw(A, settings, B=B, vectors=vectors)
    theta, hashes = max(null.test(statistic).theta, 0.0), null.hashes
    share, n_cells = hashes.selected_share, 512
    cell_loss, cell_share = loss_and_selection(hashes, (np.arange(n_cells) + 0.5) / n_cells)
    generator = np.random.default_rng(seed)
    T, log_weight = np.zeros(n_samples), np.zeros(n_samples)
    for a, b in zip(null.A, null.B, strict=True):
        exponents = theta * (b * (2.0 - cell_loss) - a * cell_loss)
        top = max(float(exponents.max()), 0.0)
        masses = np.append(cell_share / n_cells * np.exp(exponents - top), (1.0 - share) * math.exp(-top))
        ends = np.cumsum(masses)
        drawn = generator.random(n_samples) * ends[-1]
        cell = np.minimum(np.searchsorted(ends, drawn, side="right"), n_cells)
        selected = cell < n_cells
        # The last cell is "not selected"; in the others, what is left of the draw says where in the cell.
        cell, drawn = cell[selected], drawn[selected]
        place = np.clip(1.0 - (ends[cell] - drawn) / masses[cell], 0.0, 1.0 - 1e-9)
        loss, chance = loss_and_selection(hashes, (cell + place) / n_cells)
        T[selected] += b * (2.0 - loss) - a * loss
        log_weight += math.log(ends[-1]) + top
        log_weight[selected] += np.log(chance / n_cells / masses[cell]) - top
    counted = log_weight[statistic <= T]
    if not len(counted):
        return ImportanceEstimate(-math.inf, math.inf)
    top = float(counted.max())
    weights = np.zeros(n_samples)
    weights[: len(counted)] = np.exp(counted - top)
    return ImportanceEstimate(
        log10_p=(top + math.log(weights.mean())) / math.log(10.0),
        relative_error=float(weights.std() / weights.mean() / math.sqrt(n_samples)),
    )


def loss_and_selection(hashes, uniform):
    """1 − cos(f_w g_k), and the probability of selection, of a token whose phase number has these ranks in [0, 1)."""
    if hashes.phase_sd == 1.0 and hashes.correlation == 0.0:
        return one_minus_cosine(uniform, hashes.frequency), np.full_like(uniform, hashes.selected_share)
    normal = torch.special.ndtri(torch.as_tensor(uniform, dtype=torch.float64)).numpy()
    return hashes.loss(normal), hashes.selected_given(normal)
