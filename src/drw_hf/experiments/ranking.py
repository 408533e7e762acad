"""The paper's figures of merit: average precision of a ranking, accuracy, F1 over entities."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import library
from .tasks import Corpus


def average_precision(positive: Sequence[float], negative: Sequence[float]) -> float:
    """The average precision of ranking suspects by a score, highest first; ties count against the method.

    The mean, over the positives, of the share of positives among all that rank at least as high. With one ranking for
    each task and label kind, its value is what the paper calls mAP.

    Examples
    --------
    >>> average_precision([3.0, 2.0], [1.0, 0.0])
    1.0
    >>> average_precision([3.0, 1.0], [2.0])
    0.8333333333333333
    """
    up, down = np.sort(np.asarray(positive, float))[::-1], np.asarray(negative, float)
    if not len(up):
        raise ValueError("average precision needs at least one positive")
    shares = [np.sum(up >= score) / (np.sum(up >= score) + np.sum(down >= score)) for score in up]
    return float(np.mean(shares))


def figures_of_merit(corpus: Corpus, answers: Sequence[Any]) -> dict[str, float]:
    """Accuracy of predicted class numbers on the evaluation split; for taggers seqeval's F1 of entities, too.

    The paper's figure for POS is made so, too, odd as it is: seqeval takes the first letter of a tag for the prefix.
    """
    gold = corpus.evaluation[corpus.task.gold][:]
    if corpus.task.kind == "sequence-classification":
        return {"accuracy": float(np.mean(np.asarray(answers) == np.asarray(gold)))}
    hits = np.concatenate([np.asarray(a) == np.asarray(g) for a, g in zip(answers, gold, strict=True)])
    # A word beyond the model's limit has no answer (−1): it counts as no entity.
    names = [*corpus.labels, "O"]
    predicted, true = ([[names[label] for label in row] for row in rows] for rows in (answers, gold))
    with warnings.catch_warnings(action="ignore"):  # POS tags are no entities, which seqeval says of each
        return {"accuracy": float(hits.mean()), "f1": float(library("seqeval.metrics").f1_score(true, predicted))}
