"""The paper's figures of merit: average precision of a ranking, accuracy, F1 over entities."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

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


def entity_f1(predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]]) -> float:
    """F1 over whole entities of IOB2 tags, as conlleval and seqeval count it; 0 where there are none."""
    found = right = true = 0
    for ours, theirs in zip(predicted, gold, strict=True):
        spans, wanted = set(entities(ours)), set(entities(theirs))
        found, true, right = found + len(spans), true + len(wanted), right + len(spans & wanted)
    return 2 * right / (found + true) if found + true else 0.0


def entities(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """The entities of a sentence: kind, first word, word after the last; by the rules of seqeval's default mode.

    An entity begins at ``B-`` or ``S-``, or where the kind changes. Tags without a prefix, as POS tags are, are read
    as seqeval reads them, odd as it is, since the paper's figure for POS is made so: the first letter is the prefix,
    the rest the kind, and punctuation lies outside without ending its neighbours.
    """
    spans, start, before, kind = [], 0, "O", ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, now = tag[:1], tag[1:].split("-", 1)[-1] or "_"
        if (
            before in ("E", "S")
            or (before in ("B", "I") and prefix in ("B", "S", "O"))
            or (before not in ("O", ".") and kind != now)
        ):
            spans.append((kind, start, place))
        if (
            prefix in ("B", "S")
            or (before in ("E", "S", "O") and prefix in ("E", "I"))
            or (prefix not in ("O", ".") and kind != now)
        ):
            start = place
        before, kind = prefix, now
    return spans


def figures_of_merit(corpus: Corpus, answers: Sequence[Any]) -> dict[str, float]:
    """Accuracy of predicted class numbers on the evaluation split; for NER the F1 of entities too."""
    gold = corpus.evaluation[corpus.task.gold][:]
    if corpus.task.kind == "sequence-classification":
        return {"accuracy": float(np.mean(np.asarray(answers) == np.asarray(gold)))}
    hits = np.concatenate([np.asarray(a) == np.asarray(g) for a, g in zip(answers, gold, strict=True)])
    # A word beyond the model's limit has no answer (−1): it counts as no entity.
    names = [*corpus.labels, "O"]
    return {
        "accuracy": float(hits.mean()),
        "f1": entity_f1(
            ([names[label] for label in row] for row in answers), ([names[label] for label in row] for row in gold)
        ),
    }
