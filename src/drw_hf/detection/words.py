"""Which words the answers of a suspect are about."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Words:
    """Which words every probe holds: an entry per word of a probe."""

    probes: np.ndarray  # (k,): the probe's number
    token_ids: np.ndarray  # (k,)
    shares: np.ndarray  # (k,): what the word's signal is multiplied by in the sum, 1/√n of a text with n words
    n_probes: int

    @property
    def counts(self) -> np.ndarray:
        """How many words every probe holds."""
        return np.bincount(self.probes, minlength=self.n_probes)
