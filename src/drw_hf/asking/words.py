"""Which words the answers of a suspect are about."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

_AT_ONCE = 2**17  # words whose values are added up at once


@dataclass(frozen=True, eq=False)
class Words:
    """Which words every probe holds: an entry per word of a probe."""

    probes: np.ndarray  # (k,): the probe's number
    token_ids: np.ndarray  # (k,)
    shares: np.ndarray  # (k,): what the word's signal is multiplied by in the sum, 1/√n of a text with n words
    n_probes: int

    def sums(self, values_of: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Σ share · value over the words of every probe, shape (probes, classes).

        ``values_of`` gives the values of some words, shape (words, classes); each distinct one is asked for once.
        """
        distinct, index = np.unique(self.token_ids, return_inverse=True)
        values = torch.from_numpy(values_of(distinct))
        found = torch.zeros(self.n_probes, values.shape[1], dtype=values.dtype)
        for first in range(0, len(index), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            shares = torch.from_numpy(self.shares[part]).unsqueeze(-1)
            found.index_add_(0, torch.from_numpy(self.probes[part]), values[index[part]] * shares)
        return found.numpy()

    @property
    def counts(self) -> np.ndarray:
        """How many words every probe holds."""
        return np.bincount(self.probes, minlength=self.n_probes)
