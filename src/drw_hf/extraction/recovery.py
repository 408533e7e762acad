"""A thief's estimate of what a key adds to the answers, word by word and class by class.

The thief knows the method and everything but the key. It takes the logarithms of the answers (less what a model of its
own explains, if it has one), puts what is left down to words, and weighs directions of the classes in which words
differ by themselves against those in which only a key would: a Wiener filter.
"""

from dataclasses import dataclass

import numpy as np

from ..asking.words import Words
from .least_squares import word_effects

_FLOOR = 1e-9  # what is shown as nothing has this probability, for the logarithm
_DAMPING = 0.25


@dataclass(frozen=True, eq=False)
class Recovered:
    """The thief's estimate of β·temperature·s(word, class), up to what all classes share."""

    token_ids: np.ndarray
    shifts: np.ndarray  # (words, classes)

    def of(self, words: Words) -> np.ndarray:
        """The shift of every answer's log-probabilities; words that were never seen add nothing."""

        def estimates(token_ids: np.ndarray) -> np.ndarray:
            places = np.searchsorted(self.token_ids, token_ids).clip(max=len(self.token_ids) - 1)
            return np.where((self.token_ids[places] == token_ids)[:, None], self.shifts[places], 0.0)

        return words.sums(estimates)


def recover(words: Words, answers: np.ndarray, own: np.ndarray | None = None) -> Recovered:
    """The key's numbers, as far as answers (N, m) tell them; ``own`` (N, m) is what the thief's own model answers."""
    left = _centred(answers)
    features = np.ones((len(left), 1)) if own is None else np.hstack([np.ones((len(left), 1)), _centred(own)])
    gram = features.T @ features + 1e-3 * len(left) * np.eye(features.shape[1])
    left = left - features @ np.linalg.solve(gram, features.T @ left)
    token_ids, effects = word_effects(words, left, _DAMPING)
    # Words differ by themselves in some directions of the classes, and hardly in others; the key is alike in all.
    seen = np.bincount(np.searchsorted(token_ids, words.token_ids), words.shares, len(token_ids))
    spread = (effects * np.minimum(seen, 10.0)[:, None]).T @ effects / np.minimum(seen, 10.0).sum()
    filtered = effects @ np.linalg.pinv(spread + 1e-6 * np.trace(spread) * np.eye(len(spread)))
    filtered -= filtered.mean(axis=1, keepdims=True)
    fitted = Recovered(token_ids, filtered).of(words)
    scale = float((fitted * left).sum() / max((fitted**2).sum(), 1e-300))
    return Recovered(token_ids, scale * filtered)


def _centred(p: np.ndarray) -> np.ndarray:
    """Log-probabilities less their mean over the classes."""
    scores = np.log(np.maximum(p, _FLOOR))
    return scores - scores.mean(axis=1, keepdims=True)


def moved(p: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Answers whose log-probabilities were moved."""
    scores = np.log(np.maximum(p, _FLOOR)) + shift
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
