"""Texts in other words, as a thief asks them: with words put in, left out, replaced or written in another way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

Words = Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False)
class Rewritten:
    """Texts in other words: for every word of theirs the place of the original one, −1 where it was put in."""

    words: list[list[str]]
    origins: list[list[int]]

    @classmethod
    def of(cls, words: Words, change: Callable[[int, str], list[str] | None]) -> "Rewritten":
        """Each word as ``change(place, word)`` writes it: None for as it is, else the words in its place.

        The first of these stands for the word; none at all leaves it out.
        """
        more, origins = [], []
        for row in words:
            written: list[str] = []
            places: list[int] = []
            for place, word in enumerate(row):
                made = change(place, word)
                made = [word] if made is None else made
                written += made
                places += [place, *[-1] * (len(made) - 1)][: len(made)]
            more.append(written)
            origins.append(places)
        return cls(more, origins)

    @classmethod
    def with_inserted(
        cls, words: Words, pool: Sequence[str], rng: np.random.Generator, step: int | None = None
    ) -> "Rewritten":
        """Every text with a word of a pool put somewhere into it, or one before each ``step`` of its words."""
        more, origins = [], []
        for row in words:
            wanted = {int(rng.integers(len(row) + 1))} if step is None else set(range(0, len(row) + 1, step))
            written: list[str] = []
            places: list[int] = []
            for place in range(len(row) + 1):
                if place in wanted:
                    written.append(pool[int(rng.integers(len(pool)))])
                    places.append(-1)
                written += row[place : place + 1]
                places += [place][: len(row) - place]
            more.append(written)
            origins.append(places)
        return cls(more, origins)

    @classmethod
    def between(cls, before: Sequence[str], words: Words, after: Sequence[str] = ()) -> "Rewritten":
        """Every text with the same words before and after it."""
        return cls(
            [[*before, *row, *after] for row in words],
            [[-1] * len(before) + list(range(len(row))) + [-1] * len(after) for row in words],
        )


def neighbours_of(words: Words, most: int = 3000, size: int = 50) -> dict[str, str]:
    """For common words the word that stands in the most similar company: a stand-in for a paraphrase.

    Counts of the words beside each one, as positive pointwise mutual information, brought down to ``size`` dimensions;
    the nearest by angle.
    """
    counts: dict[str, int] = {}
    for row in words:
        for word in row:
            counts[word] = counts.get(word, 0) + 1
    common = sorted(counts, key=lambda word: (-counts[word], word))[:most]
    number = {word: place for place, word in enumerate(common)}
    beside = np.zeros((len(common), len(common)), dtype=np.float32)
    for row in words:
        known = [number.get(word, -1) for word in row]
        for distance in (1, 2):
            for left, right in zip(known, known[distance:], strict=False):
                if left >= 0 and right >= 0:
                    beside[left, right] += 1
                    beside[right, left] += 1
    margin = beside.sum(1) + 1e-9
    information = np.maximum(np.log((beside * margin.sum() + 1e-9) / np.outer(margin, margin)), 0.0)
    basis = np.random.default_rng(0).standard_normal((len(common), size)).astype(np.float32)
    for _ in range(3):  # subspace iteration: enough to tell neighbours by
        basis = np.linalg.qr(information @ (information.T @ basis))[0]
    placed = information @ (information.T @ basis)
    placed /= np.linalg.norm(placed, axis=1, keepdims=True) + 1e-9
    likeness = placed @ placed.T
    np.fill_diagonal(likeness, -np.inf)
    return {word: common[int(best)] for word, best in zip(common, likeness.argmax(1), strict=True)}
