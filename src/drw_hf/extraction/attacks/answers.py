"""Attacks that change answers one by one: all that can be done while training, without looking at the texts.

``DistillationArguments(attack="floor")`` trains the student of a thief who does that; :func:`attack_answers` changes a
data set that :func:`~drw_hf.label_with_teacher` made.
"""

from typing import Any

import numpy as np

from ...asking.labelling import LABELS, PROBABILITIES
from ...checks import distributions
from ...errors import DatasetError
from .base import SOFT_ONLY, Attack, register_attack, single_answer_attack


def attack_answers(labelled: Any, attack: str | Attack | type[Attack]) -> Any:
    """A data set of :func:`~drw_hf.label_with_teacher` with its answers attacked.

    Parameters
    ----------
    labelled : Dataset, IterableDataset or DatasetDict
        Rows with ``teacher_probs`` and ``teacher_labels``. Words that were not answered stay so.
    attack : str or Attack
        An attack that changes answers one by one, or its registered name.
    """
    chosen = single_answer_attack(attack) if isinstance(attack, str) else attack
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


def normalised(weights: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Each row divided by its sum; a row of zeros becomes that of ``otherwise``."""
    sums = weights.sum(axis=1, keepdims=True)
    return np.divide(weights, sums, out=otherwise.copy(), where=sums > 0)


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Distributions at another temperature: below 1 sharper, above 1 flatter."""
    return normalised((probabilities / probabilities.max(axis=1, keepdims=True)) ** (1 / temperature), probabilities)


def rounded(probabilities: np.ndarray, digits: int) -> np.ndarray:
    """Distributions with so many digits."""
    return normalised(probabilities.round(digits), probabilities)


@register_attack
class Nothing(Attack):
    """Learns from the answers as they are."""

    name = "nothing"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """The answers as they are."""
        return probabilities


@register_attack
class Argmax(Attack):
    """Keeps the most likely class alone."""

    name, label_kinds = "argmax", SOFT_ONLY

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Certainty of the most likely class."""
        return np.eye(probabilities.shape[1])[probabilities.argmax(axis=1)]


@register_attack
class TopScore(Attack):
    """Keeps the highest score, and shares the rest evenly among the others."""

    name, label_kinds = "top-score", SOFT_ONLY

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """The highest score, and equal ones."""
        n, m = probabilities.shape
        top, best = probabilities.max(axis=1), probabilities.argmax(axis=1)
        flat = np.repeat(((1.0 - top) / (m - 1))[:, None], m, axis=1)
        flat[np.arange(n), best] = top
        return flat


@register_attack
class FloorSubtraction(Attack):
    """Takes the smallest score off every score: the cosine mark gives all classes but one the same extra share."""

    name, label_kinds = "floor", SOFT_ONLY

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """What lies above the smallest score."""
        return normalised(probabilities - probabilities.min(axis=1, keepdims=True), probabilities)

    def unfit(self, task: Any, label_kind: Any, n_classes: int) -> str | None:
        """Of two scores, the smaller one taken off leaves the argmax."""
        if n_classes == 2:
            return "of two scores it leaves the argmax, which is another attack"
        return super().unfit(task, label_kind, n_classes)


class Rounding(Attack):
    """Rounds scores."""

    label_kinds = SOFT_ONLY

    def __init__(self, digits: int) -> None:
        self.digits, self.name = digits, "rounding" if digits == 1 else f"rounding-{digits}"

    @property
    def title(self) -> str:
        """With the number of digits."""
        return f"Rounds scores to {self.digits} digit{'s' * (self.digits > 1)}"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Rounded scores."""
        return rounded(probabilities, self.digits)


class Temperature(Attack):
    """Sharpens or flattens each distribution."""

    label_kinds = SOFT_ONLY

    def __init__(self, temperature: float, name: str) -> None:
        self.temperature, self.name = temperature, name

    @property
    def title(self) -> str:
        """With the temperature."""
        return f"{'Sharpens' if self.temperature < 1 else 'Flattens'} scores, temperature {self.temperature:g}"

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Scores at another temperature."""
        return tempered(probabilities, self.temperature)


for _digits in (1, 2):
    register_attack(Rounding(_digits))
for _temperature, _name in ((0.2, "sharpening"), (0.5, "sharpening-0.5"), (2.0, "flattening")):
    register_attack(Temperature(_temperature, _name))


@register_attack
class AverageTopTwo(Attack):
    """Gives the two best classes the same share wherever they are close."""

    name, label_kinds, knows = "top-two", SOFT_ONLY, "that close calls carry most of a mark"
    within = 0.3

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Close calls as ties; the first of two classes stays first by a hair, so that the prediction stays."""
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :2]
        rows = np.arange(len(probabilities))[:, None]
        best = probabilities[rows, order]
        mean = best.mean(axis=1, keepdims=True)
        hair = np.minimum(best - best[:, 1:], 1e-6) * np.array([1.0, 0.0])
        close = (best[:, :1] - best[:, 1:]) < self.within
        changed = probabilities.copy()
        changed[rows, order] = np.where(close, mean + hair, best)
        return normalised(changed, probabilities)


@register_attack
class LabelSmoothing(Attack):
    """Smooths labels: a tenth of every answer goes to all classes alike."""

    name, share = "smoothing", 0.1

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Answers mixed with no answer at all."""
        return (1.0 - self.share) * probabilities + self.share / probabilities.shape[1]
