"""Who copies the victim, and what a thief does to answers or to a student that no single answer suffices for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from datasets import Dataset

from ..extraction.stolen import Stolen
from ..keys.choices import LabelKind
from . import library

SOFT, HARD, GOLD, CLEAN = "soft", "hard", "gold", "clean answers"
DEBIASED, FINE_TUNED, PRUNED, SECOND = "debiasing", "fine-tuning", "pruning", "second generation"
TUNED_SHARE = 0.2  # of the queries, those with gold labels that the soft student is tuned on
TUNED_EPOCHS = 4
PRUNED_SHARE = 0.6  # of the weights of every matrix, the smallest ones


@dataclass(frozen=True)
class Student:
    """One kind of student: what it learns from, and which student it is made of, if any.

    ``attack`` is one of the registered attacks on answers.
    """

    name: str
    title: str
    learns: LabelKind = "soft"
    attack: str | None = None
    of: str | None = None
    innocent: bool = False


STUDENTS = {
    student.name: student
    for student in (
        Student(SOFT, "nothing: the soft answers"),
        Student(HARD, "takes the argmax, or is served hard labels", "hard"),
        Student("rounding", "rounds to one digit", attack="rounding"),
        Student("floor", "subtracts each answer's smallest score", attack="floor"),
        Student("sharpening", "sharpens, temperature 0.2", attack="sharpening"),
        Student(DEBIASED, "debiases per token"),
        Student(FINE_TUNED, "fine-tunes on 20 % gold labels", of=SOFT),
        Student(PRUNED, "prunes 60 % of the weights", of=SOFT),
        Student(SECOND, "second generation, on other text", of=SOFT),
        Student(GOLD, "innocent: gold labels", innocent=True),
        Student(CLEAN, "innocent: unmarked answers", innocent=True),
    )
}
ATTACKED = tuple(name for name in STUDENTS if name not in (SOFT, HARD))


def debias(labelled: Dataset, tokens: Sequence[Sequence[int]]) -> Dataset:
    """Labelled rows whose answers no longer lean with their tokens; see :func:`without_lean`.

    ``tokens`` are those that may carry the mark: a word's first one for each word of a tagged row (−1 for none), all
    distinct ones of a sentence.
    """
    stolen = Stolen(labelled)
    table, by_word = stolen.table.copy(), stolen.by_word
    groups: list[Sequence[int]] = [[token] for row in tokens for token in row] if by_word else list(tokens)
    some = np.flatnonzero(stolen.there & np.array([len(group) > 0 and min(group) >= 0 for group in groups]))
    table[some] = without_lean(table[some], [groups[item] for item in some], damping=0.0 if by_word else 1.0)
    return stolen.replaced(table[stolen.there])


def without_lean(probabilities: np.ndarray, tokens: Sequence[Sequence[int]], damping: float) -> np.ndarray:
    """Answers whose log-odds of the top class have the same mean for every token.

    The log-odds, less their mean over answers with the same top class, are fitted by one number per (token, top
    class), each divided by √n in an answer with n tokens; what was fitted is taken off. With one token per answer and
    no damping, each (token, top class) group's mean moves to the class's mean. The other classes share the rest as
    before.
    """
    n, m = probabilities.shape
    top = probabilities.argmax(axis=1)
    p = probabilities[np.arange(n), top].clip(1e-6, 1 - 1e-6)
    log_odds = np.log(p) - np.log1p(-p)
    means = np.bincount(top, log_odds, m) / np.bincount(top, minlength=m).clip(1)
    lengths = np.array([len(row) for row in tokens])
    items = np.repeat(np.arange(n), lengths)
    columns = np.concatenate([np.asarray(row, dtype=np.int64) for row in tokens]) * m + top[items]
    columns = np.unique(columns, return_inverse=True)[1]
    design = library("scipy.sparse").csr_array((1.0 / np.sqrt(lengths[items]), (items, columns)))
    solved = library("scipy.sparse.linalg").lsmr(design, log_odds - means[top], damp=math.sqrt(damping))[0]
    moved = 1.0 / (1.0 + np.exp(design @ solved - log_odds))
    changed = probabilities * ((1.0 - moved) / (1.0 - p))[:, None]
    changed[np.arange(n), top] = moved
    return changed / changed.sum(axis=1, keepdims=True)


@torch.no_grad()
def prune(model: torch.nn.Module, share: float = PRUNED_SHARE) -> torch.nn.Module:
    """Set the smallest weights of every matrix to 0, that share of them; the model itself is changed."""
    for weights in model.parameters():
        if weights.ndim == 2:
            n_pruned = int(share * weights.numel())
            if n_pruned:
                weights[weights.abs() <= weights.abs().flatten().kthvalue(n_pruned).values] = 0.0
    return model
