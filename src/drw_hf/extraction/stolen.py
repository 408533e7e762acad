"""Answers that a thief has, as one table: an answer per row, or per word of a tagged row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from datasets import Dataset, Features

from ..asking.labelling import LABELS, PROBABILITIES, answer_features, as_columns


@dataclass(frozen=True, eq=False)
class Stolen:
    """Labelled rows, and their answers one below the other.

    Words that nobody answered about, beyond where a text was cut, have a row of zeros.
    """

    rows: Dataset

    @cached_property
    def each(self) -> list[np.ndarray]:
        """The answer to every row, (m,) or (words, m)."""
        return answers_in(self.rows)

    @property
    def by_word(self) -> bool:
        """Whether the answers are a tagger's."""
        return self.each[0].ndim == 2

    @cached_property
    def table(self) -> np.ndarray:
        """All answers, shape (N, m)."""
        return np.concatenate([np.atleast_2d(answer) for answer in self.each])

    @property
    def there(self) -> np.ndarray:
        """Which rows of the table are answers."""
        return np.asarray(self.table.any(axis=1))

    @property
    def answers(self) -> np.ndarray:
        """The answers that were given, in the order of a probe's items."""
        return self.table[self.there]

    def replaced(self, answers: np.ndarray) -> Dataset:
        """The same rows with other answers, and labels that go with them."""
        table = self.table.copy()
        table[self.there] = answers
        numbers = np.where(self.there, table.argmax(axis=1), -1)
        changed: dict[str, Any] = {PROBABILITIES: table.astype(np.float32), LABELS: numbers}
        if self.by_word:
            ends = np.cumsum([len(answer) for answer in self.each])[:-1]
            changed = {name: np.split(values, ends) for name, values in changed.items()}
        kept = {name: self.rows[name][:] for name in self.rows.column_names if name not in changed}
        lists = {name: [np.asarray(row).tolist() for row in values] for name, values in changed.items()}
        return Dataset.from_dict({**kept, **lists}, features=self.rows.features)


def with_answers(
    texts: Dataset, answers: Sequence[np.ndarray], labels: Sequence[str], all_rows: bool = False
) -> Dataset:
    """Texts with an answer each, (m,) or (words, m), as a service would have labelled them; zeros: not answered.

    Texts of which nothing was answered are left out, unless ``all_rows`` keeps them.
    """
    tables = [np.asarray(answer, dtype=np.float32) for answer in answers]
    kept = [place for place, table in enumerate(tables) if all_rows or table.any()]
    chosen = texts.select(kept)
    columns = {name: chosen[name][:] for name in texts.column_names}
    learnt = as_columns([tables[place] for place in kept])
    learnt[PROBABILITIES] = [table.tolist() for table in learnt[PROBABILITIES]]
    by_word = bool(kept) and tables[kept[0]].ndim == 2
    return Dataset.from_dict(
        {**columns, **learnt}, features=Features({**texts.features, **answer_features(labels, by_word)})
    )


def answers_in(rows: Dataset) -> list[np.ndarray]:
    """The answers of labelled rows, an array each."""
    arrays = [np.asarray(answer, dtype=np.float64) for answer in rows[PROBABILITIES]]
    # A tagged row without words has no answers, of as many classes as the others.
    return [array if array.size else array.reshape(0, len(class_names(rows))) for array in arrays]


def class_names(rows: Dataset) -> list[str]:
    """The classes of labelled rows, in the order of their answers."""
    label = rows.features[LABELS]
    return list(getattr(label, "feature", label).names)


def certain(numbers: Any, n_classes: int) -> np.ndarray:
    """Labels as certainty: a row of 0 and one 1 each, and a row of zeros for −1."""
    table = np.vstack([np.eye(n_classes), np.zeros(n_classes)])
    return table[np.asarray(numbers, dtype=np.int64)]
