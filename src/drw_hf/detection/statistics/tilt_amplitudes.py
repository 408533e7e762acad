"""How every word moves a suspect's answers, before any key is looked at: the amplitudes of the tilt test.

An answer gives every class a log-probability. What the clean victim's own answer explains of it is taken out, by
splines; so is what all classes of an answer have in common. What is left is put down to the words of the text: by
ridge regression every word gets a number per class, its amplitude, which says how far it moves that class's log-odds
in the suspect beyond what the victim explains. The test then asks whether these numbers follow the key's.

Nothing here depends on the key, so that the only chance left is the key's: no function here takes one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...asking.words import Words
from ...errors import InvalidInputError
from ...keys.choices import AnswerKind
from ..probe import check_expected
from .amplitudes import HALF_WEIGHT, MIN_TOKENS, counts_of
from .splines import hats, leftover, pieces_for

LEAST = 0.01  # classes count that have this calibrated probability; beyond, an answer's best two always do
SHRINKAGE = 0.03  # of the ridge regression: how much words differ, over what one answer's residual varies
_SMALLEST = 1e-6  # probabilities below are taken for it before the logarithm
_PER_PIECE = 15  # answers that every piece of a spline must have
_PRECISION = 1e-12  # of the ridge regression, relative
_MOST_STEPS = 1000


@dataclass(frozen=True, eq=False)
class TiltAmplitudes:
    """How far every word moves every class."""

    token_ids: np.ndarray  # (n,): the distinct words, ascending
    A: np.ndarray  # (n, m): the factor of s(word, class) in T = Σ A s
    n_probes: int  # probes that hold a word
    # What was known of the suspect ("probabilities" or "labels"), and by what it was explained ("victim", "reference",
    # "victim-reference", or "suspect": by its own smooth part), joined by a hyphen.
    variant: str


def compute_tilt_amplitudes(
    words: Words,
    suspect: np.ndarray,
    kind: AnswerKind,
    *,
    temperature: float,
    victim: np.ndarray | None = None,
    reference: np.ndarray | None = None,
) -> TiltAmplitudes:
    """The amplitude of every (word, class), from the suspect, the victim and the text alone.

    Parameters
    ----------
    words : Words
        The words of N probes.
    suspect : array, shape (N, m)
        What the suspect says; 0 and 1 where it gives labels alone.
    kind : str
        Whether these are ``"probabilities"`` or ``"labels"``; the labels of probabilities can be tested alone.
    temperature : float
        The victim's calibration temperature.
    victim : array, shape (N, m), optional
        What the clean victim says.
    reference : array, shape (N, m), optional
        What a model says that has nothing to do with the key: best a student of the clean victim's answers, since it
        errs as students do.
    """
    there = words.counts > 0
    distinct, columns = np.unique(words.token_ids, return_inverse=True)
    if len(distinct) < MIN_TOKENS:
        raise InvalidInputError(
            f"the probes hold {len(distinct)} distinct words and a test needs {MIN_TOKENS}: probe with more text"
        )
    explaining = {"victim": victim, "reference": reference}
    others = {name: p.astype(np.float64) for name, p in explaining.items() if p is not None}
    if kind == "labels":
        check_expected("tilt", others)
    said = suspect.astype(np.float64)
    guide = _calibrated(next(iter(others.values())), temperature) if others else _calibrated(said, 1.0)
    counted = _counted(np.exp(guide)) & there[:, None]
    r, weights = (_of_labels if kind == "labels" else _of_scores)(said, guide, counted, others)
    variant = f"{kind}-{'-'.join(others) or 'suspect'}"
    return TiltAmplitudes(distinct, _ridge(words, columns, r, weights), int(there.sum()), variant)


def _of_scores(
    said: np.ndarray, guide: np.ndarray, counted: np.ndarray, others: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of log q where it counts, 0 elsewhere, and its weights; both of shape (N, m)."""
    p = np.exp(guide)
    weights = counted * np.sqrt(p * (1.0 - p))
    rows, classes = np.nonzero(counted)
    of_answer = rows, weights[rows, classes]  # what all classes of an answer share is no log-odds
    y = np.log(np.maximum(said, _SMALLEST))[rows, classes]
    if others:
        design = _splines([guide[rows, classes], *_of_reference(others, rows, classes)])
        left = leftover(_less_means(y, *of_answer), _less_means(design, *of_answer))[0]
    else:  # nobody says what to expect but the suspect: what it usually says where its best class is the same
        alike = said.argmax(axis=1)[rows] * said.shape[1] + classes, np.ones(len(y))
        design = _splines([guide.max(axis=1)[rows]])
        left = leftover(_less_means(y, *alike), _less_means(design, *alike))[0]
        left = _less_means(left, *of_answer)
    return _spread(left, y, counted), weights


def _of_labels(
    said: np.ndarray, guide: np.ndarray, counted: np.ndarray, others: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """What is left of 1[label = c] where it counts, 0 elsewhere, and its weights; both of shape (N, m)."""
    rows, classes = np.nonzero(counted)
    y = (said.argmax(axis=1)[rows] == classes).astype(np.float64)
    is_best = (guide.argmax(axis=1)[rows] == classes).astype(np.float64)
    explained_by = [guide[rows, classes], guide.max(axis=1)[rows], is_best, *_of_reference(others, rows, classes)]
    left = leftover(y - y.mean(), _splines(explained_by))[0]
    return _spread(left, y, counted), counted.astype(np.float64)


def _of_reference(others: Mapping[str, np.ndarray], rows: np.ndarray, classes: np.ndarray) -> list[np.ndarray]:
    """What the reference says, where there is a victim as well; without one it is the guide."""
    return [np.log(np.maximum(others["reference"], _SMALLEST))[rows, classes]] if len(others) == 2 else []


def _splines(explained_by: list[np.ndarray]) -> np.ndarray:
    """All splines side by side, of as many pieces as there are answers for."""
    pieces = pieces_for(len(explained_by[0]), len(explained_by), _PER_PIECE)
    return np.concatenate([hats(x, pieces) for x in explained_by], axis=1)


def _spread(left: np.ndarray, y: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """What is left, at its places; nothing where all is alike, or as the victim says: noise out of rounding."""
    r = np.zeros(counted.shape)
    if left.std() > 1e-9 * np.abs(y).max():
        r[counted] = left
    return r


def weighted_by_log(found: TiltAmplitudes, logged_counts: Mapping[int, int] | Any) -> TiltAmplitudes:
    """The same, each word weighted by how much of it a student can have learnt that asked it so often: N/(N + 3)."""
    queried = counts_of(found.token_ids, logged_counts)
    if not queried.any():
        raise InvalidInputError(
            "none of the words is among the logged queries: probe with text like them, or leave logged_counts out"
        )
    A = found.A * (queried / (queried + HALF_WEIGHT))[:, None]
    return TiltAmplitudes(found.token_ids, A, found.n_probes, found.variant)


def _calibrated(p: np.ndarray, temperature: float) -> np.ndarray:
    """log p at another temperature."""
    scores = np.log(np.maximum(p, 1e-12)) / temperature
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def _counted(p: np.ndarray) -> np.ndarray:
    """Which classes of every answer count."""
    counted = p >= LEAST
    np.put_along_axis(counted, np.argpartition(-p, 1, axis=1)[:, :2], True, axis=1)
    return counted


def _less_means(values: np.ndarray, cells: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A column, or columns, less the weighted means per cell."""
    if values.ndim == 2:
        return np.stack([_less_means(column, cells, weights) for column in values.T], axis=1)
    total = np.bincount(cells, weights)
    return values - (np.bincount(cells, weights * values) / np.where(total > 0.0, total, 1.0))[cells]


def _ridge(words: Words, columns: np.ndarray, r: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The numbers b of every word and class for which Σ w (r − Σ share·b)² + Σ b²/λ is least, up to a factor.

    r is measured in its own standard deviation and the weights w in their mean, so that λ has no unit. Conjugate
    gradients, each class by itself.
    """
    n_words, total = int(columns.max()) + 1, weights.sum()
    variance = float((weights * r**2).sum() / total) if total else 0.0
    if not variance:
        return np.zeros((n_words, r.shape[1]))
    W = torch.from_numpy(weights * ((weights > 0.0).sum() / total))
    places = torch.from_numpy(np.stack([words.probes, columns]))
    X = torch.sparse_coo_tensor(places, torch.from_numpy(words.shares), (len(r), n_words), check_invariants=False)
    X, XT = X.coalesce(), X.t().coalesce()
    squared = torch.sparse_coo_tensor(XT.indices(), XT.values() ** 2, XT.shape, check_invariants=False).coalesce()
    diagonal = 1.0 + SHRINKAGE * torch.sparse.mm(squared, W)
    goal = torch.sparse.mm(XT, W * torch.from_numpy(r / np.sqrt(variance)))
    b, left = torch.zeros_like(goal), goal.clone()
    step = left / diagonal
    size = (left * step).sum(dim=0)
    least = _PRECISION**2 * size
    for _ in range(_MOST_STEPS):
        image = step + SHRINKAGE * torch.sparse.mm(XT, W * torch.sparse.mm(X, step))
        length = size / (step * image).sum(dim=0).clamp_min(torch.finfo(torch.float64).tiny)
        b += length * step
        left -= length * image
        conditioned = left / diagonal
        new = (left * conditioned).sum(dim=0)
        if bool((new <= least).all()):
            break
        step = conditioned + (new / size.clamp_min(torch.finfo(torch.float64).tiny)) * step
        size = new
    return b.numpy()
