"""The baseline of the paper, DeepJudge: how far a suspect's answers are from the victim's."""

from typing import Any

import numpy as np
import torch

from ...checks import as_floats, distributions
from ...errors import InvalidInputError


def jsd(suspect_probabilities: Any, victim_probabilities: Any, mask: Any = None) -> float:
    """The mean Jensen-Shannon divergence between a suspect's and the victim's answers, in nats.

    JSD = mean over probes of ½ (KL(ŷ‖u) + KL(q̂‖u)) with u = ½ (ŷ + q̂). A small value accuses: the suspect answers as
    the victim does. It is 0 for equal answers and at most ln 2.

    Parameters
    ----------
    suspect_probabilities : array-like, shape (n, m) or (n, L, m)
        q̂ of every probe, or of every token of every probe; every row sums to one.
    victim_probabilities : array-like, of the same shape
        ŷ.
    mask : array-like, shape (n,) or (n, L), optional
        True, or 1, for what counts. For token tasks give it: it is true for the tokens of the text and false for
        padding and special tokens, on which all models agree (the paper's code averages over them too). What is masked
        out may hold anything. Without it, everything counts.

    Returns
    -------
    float

    Raises
    ------
    InvalidInputError
        Where shapes differ, a row that counts is no distribution, or none counts.

    Examples
    --------
    >>> round(jsd([[0.9, 0.1], [0.2, 0.8]], [[0.8, 0.2], [0.2, 0.8]]), 6)
    0.004983
    """
    suspect = as_floats("suspect_probabilities", suspect_probabilities, 2, 3)
    victim = as_floats("victim_probabilities", victim_probabilities, 2, 3)
    if suspect.shape != victim.shape:
        raise InvalidInputError(
            f"the suspect's probabilities have shape {suspect.shape} and the victim's {victim.shape}; both must be "
            "answers to the same probes, with the same labels in the same order"
        )
    counts = _checked_mask(np.ones(suspect.shape[:-1], bool) if mask is None else mask, suspect.shape[:-1])
    q = distributions("suspect_probabilities", suspect[counts])
    y = distributions("victim_probabilities", victim[counts])
    mean = (q + y) / 2
    return float((_kl(y, mean) + _kl(q, mean)).mean() / 2)


def _checked_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    mask = mask.detach().cpu().numpy() if isinstance(mask, torch.Tensor) else np.asarray(mask)
    if mask.shape != shape:
        raise InvalidInputError(f"mask has shape {mask.shape}; expected one entry for every answer, {shape}")
    if not np.isin(mask, (0, 1)).all():
        raise InvalidInputError("mask must hold true and false, or 1 and 0")
    if not mask.any():
        raise InvalidInputError("there is nothing to compare: no probes, or every one of them is masked out")
    return mask.astype(bool)


def _kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """KL(p‖q) of every row, where 0 · log 0 = 0; q is above 0 wherever p is."""
    is_positive = p > 0
    ratio = np.divide(p, q, out=np.ones_like(p), where=is_positive)
    return (p * np.log(ratio)).sum(axis=-1)
