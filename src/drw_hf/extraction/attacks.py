"""Attacks: what a thief does to the answers before the student learns from them, to get rid of a mark.

An attack is a class and one registration. ``DistillationArguments(attack="floor")`` trains the student of a thief who
does that; :func:`attack_answers` changes a data set that :func:`~drw_hf.label_with_teacher` made.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from ..asking.labelling import LABELS, PROBABILITIES
from ..checks import distributions
from ..errors import DatasetError
from ..registry import Registry

ATTACKS: Registry[type["Attack"]] = Registry("attack")


class Attack(ABC):
    """What a thief does to the answers: subclass it, give it a ``name`` and :func:`register_attack`."""

    name: ClassVar[str]

    @abstractmethod
    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Distributions, shape (n, m), as the thief has them after the attack."""


def register_attack(attack: type[Attack]) -> type[Attack]:
    """Make an attack known by its name."""
    return ATTACKS.add(attack.name, attack)


def attack_answers(labelled: Any, attack: str | Attack) -> Any:
    """A data set of :func:`~drw_hf.label_with_teacher` with its answers attacked.

    Parameters
    ----------
    labelled : Dataset, IterableDataset or DatasetDict
        Rows with ``teacher_probs`` and ``teacher_labels``. Words that were not answered stay so.
    attack : str or Attack
        An attack, or its registered name.
    """
    chosen = ATTACKS.get(attack) if isinstance(attack, str) else attack
    done: Attack = chosen() if isinstance(chosen, type) else chosen
    if isinstance(labelled, dict):
        return type(labelled)({name: attack_answers(split, done) for name, split in labelled.items()})
    missing = {PROBABILITIES, LABELS} - set(labelled.column_names or (PROBABILITIES, LABELS))
    if missing:
        raise DatasetError(
            f"there is no {' and '.join(sorted(missing))} to attack; label the data with label_with_teacher"
        )

    def change(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        changed: dict[str, list[Any]] = {PROBABILITIES: [], LABELS: []}
        for answer in rows[PROBABILITIES]:
            probabilities = np.array(answer, dtype=np.float64)
            table = np.atleast_2d(probabilities)
            answered = table.any(axis=1)  # a word that was not answered has zeros
            if answered.any():
                made = done.change_answers(table[answered])
                table[answered] = distributions(f"what the attack {done.name!r} made", made)
            labels = np.where(answered, table.argmax(axis=1) if table.size else 0, -1)
            changed[PROBABILITIES].append(table.astype(np.float32).reshape(probabilities.shape))
            changed[LABELS].append(labels.tolist() if probabilities.ndim == 2 else int(labels[0]))
        return changed

    return labelled.with_format(None).map(change, batched=True, features=labelled.features)


def _normalised(weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; a row of zeros becomes that of ``otherwise``."""
    sums = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, sums, out=otherwise.copy(), where=sums > 0)


@register_attack
class Argmax(Attack):
    """Keep the most likely class alone."""

    name = "argmax"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        return np.eye(probabilities.shape[1])[probabilities.argmax(axis=1)]


@register_attack
class FloorSubtraction(Attack):
    """Take the smallest score off every score: the cosine mark gives all classes but one the same extra share."""

    name = "floor"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        return _normalised(probabilities - probabilities.min(axis=1, keepdims=True), probabilities)


@register_attack
class Rounding(Attack):
    """Round scores to one digit."""

    name = "rounding"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        return _normalised(probabilities.round(1), probabilities)


@register_attack
class Sharpening(Attack):
    """Sharpen each distribution by a temperature of 0.2."""

    name = "sharpening"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        return _normalised((probabilities / probabilities.max(axis=1, keepdims=True)) ** 5, probabilities)
