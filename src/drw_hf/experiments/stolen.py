"""Answers that a thief has, as one table: an answer per row, or per word of a tagged row."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from datasets import Dataset

from ..asking.labelling import LABELS, PROBABILITIES


@dataclass(frozen=True, eq=False)
class Stolen:
    """Labelled rows, and their answers one below the other.

    Words that nobody answered about, beyond where a text was cut, have a row of zeros.
    """

    rows: Dataset

    @cached_property
    def _answers(self) -> list[np.ndarray]:
        return [np.asarray(answer, dtype=np.float64) for answer in self.rows[PROBABILITIES]]

    @property
    def by_word(self) -> bool:
        """Whether the answers are a tagger's."""
        return self._answers[0].ndim == 2

    @cached_property
    def table(self) -> np.ndarray:
        """All answers, shape (N, m)."""
        return np.concatenate([np.atleast_2d(answer) for answer in self._answers])

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
            ends = np.cumsum([len(answer) for answer in self._answers])[:-1]
            changed = {name: np.split(values, ends) for name, values in changed.items()}
        kept = {name: self.rows[name][:] for name in self.rows.column_names if name not in changed}
        lists = {name: [np.asarray(row).tolist() for row in values] for name, values in changed.items()}
        return Dataset.from_dict({**kept, **lists}, features=self.rows.features)
