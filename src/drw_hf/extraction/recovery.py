"""A thief's estimate of what a key adds to the answers, word by word and class by class.

The thief knows the method and everything but the key. It takes the logarithms of the answers (less what a model of its
own explains, if it has one), puts what is left down to words, and weighs directions of the classes in which words
differ by themselves against those in which only a key would: a Wiener filter. That is for the mark ``tilt``, which
moves all classes; the mark ``cosine`` moves one, and shows as a lean of the top class.
"""

from dataclasses import dataclass

import numpy as np

from ..asking.words import Words
from .least_squares import word_effects

_FLOOR = 1e-9  # what is shown as nothing has this probability, for the logarithm
_LEAST = 1e-6  # and a top class has no more than 1 less this
DAMPING = 0.25


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

    def table(self, vocabulary: int) -> np.ndarray:
        """By token and class."""
        table = np.zeros((vocabulary, self.shifts.shape[1]))
        table[self.token_ids] = self.shifts
        return table


def recover(words: Words, answers: np.ndarray, own: np.ndarray | None = None) -> Recovered:
    """The key's numbers, as far as answers (N, m) tell them; ``own`` (N, m) is what the thief's own model answers."""
    left = _centred(answers)
    features = np.ones((len(left), 1)) if own is None else np.hstack([np.ones((len(left), 1)), _centred(own)])
    gram = features.T @ features + 1e-3 * len(left) * np.eye(features.shape[1])
    left = left - features @ np.linalg.solve(gram, features.T @ left)
    token_ids, effects = word_effects(words, left, DAMPING)
    # Words differ by themselves in some directions of the classes, and hardly in others; the key is alike in all.
    seen = np.bincount(np.searchsorted(token_ids, words.token_ids), words.shares, len(token_ids))
    spread = (effects * np.minimum(seen, 10.0)[:, None]).T @ effects / np.minimum(seen, 10.0).sum()
    filtered = effects @ np.linalg.pinv(spread + 1e-6 * np.trace(spread) * np.eye(len(spread)))
    filtered -= filtered.mean(axis=1, keepdims=True)
    fitted = Recovered(token_ids, filtered).of(words)
    scale = float((fitted * left).sum() / max((fitted**2).sum(), 1e-300))
    return Recovered(token_ids, scale * filtered)


@dataclass(frozen=True, eq=False)
class Leans:
    """By how much a word raises the log-odds of the top class, as a mark of that class does."""

    pairs: np.ndarray  # token · classes + top class, sorted
    values: np.ndarray
    n_classes: int

    def of(self, words: Words, top: np.ndarray) -> np.ndarray:
        """The lean of every answer with this top class; pairs that were never seen have none."""

        def values_of(wanted: np.ndarray) -> np.ndarray:
            places = np.searchsorted(self.pairs, wanted).clip(max=len(self.pairs) - 1)
            return np.where(self.pairs[places] == wanted, self.values[places], 0.0)[:, None]

        return _with_top(words, top, self.n_classes).sums(values_of)[:, 0]

    def table(self, vocabulary: int) -> np.ndarray:
        """By token and top class."""
        table = np.zeros(vocabulary * self.n_classes)
        table[self.pairs] = self.values
        return table.reshape(vocabulary, self.n_classes)


def leans_of(answers: np.ndarray, words: Words, damping: float, own: np.ndarray | None = None) -> Leans:
    """The log-odds of the top class, less their mean over answers with the same top class, put down to words.

    ``own`` is what a model of the thief's own answers: what goes with it is taken off first.
    """
    m, top = answers.shape[1], answers.argmax(axis=1)
    away = _off_mean(log_odds(answers, top), top, m)
    if own is not None:
        expected = _off_mean(log_odds(own, top), top, m)
        away = away - expected * float(expected @ away / max(expected @ expected, 1e-300))
    pairs, effects = word_effects(_with_top(words, top, m), away[:, None], damping)
    return Leans(pairs, effects[:, 0], m)


def leaning(answers: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Answers whose top class has its log-odds moved by so much; the other classes share the rest as before."""
    rows, top = np.arange(len(answers)), answers.argmax(axis=1)
    p = answers[rows, top].clip(_LEAST, 1 - _LEAST)
    made = 1.0 / (1.0 + np.exp(-log_odds(answers, top) - shift))
    changed = answers * ((1.0 - made) / (1.0 - p))[:, None]
    changed[rows, top] = made
    return changed / changed.sum(axis=1, keepdims=True)


def log_odds(answers: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """log p/(1 − p) of one class per answer."""
    p = answers[np.arange(len(answers)), classes].clip(_LEAST, 1 - _LEAST)
    return np.log(p) - np.log1p(-p)


def _off_mean(values: np.ndarray, top: np.ndarray, n_classes: int) -> np.ndarray:
    means = np.bincount(top, values, n_classes) / np.bincount(top, minlength=n_classes).clip(1)
    return values - means[top]


def _with_top(words: Words, top: np.ndarray, n_classes: int) -> Words:
    """Each word together with the top class of its answer, as one number."""
    return Words(words.probes, words.token_ids * n_classes + top[words.probes], words.shares, words.n_probes)


def _centred(p: np.ndarray) -> np.ndarray:
    """Log-probabilities less their mean over the classes."""
    scores = np.log(np.maximum(p, _FLOOR))
    return scores - scores.mean(axis=1, keepdims=True)


def moved(p: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Answers whose log-probabilities were moved."""
    scores = np.log(np.maximum(p, _FLOOR)) + shift
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)
