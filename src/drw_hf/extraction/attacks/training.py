"""Attacks on the training: gold labels among the marked ones, second opinions, many accounts, other students."""

from typing import TYPE_CHECKING

import numpy as np
from datasets import Dataset, concatenate_datasets

from ..stolen import answers_in, certain, with_answers
from ..students import Ensemble, Student, other_student
from .base import Attack, register_attack
from .queries import merged

if TYPE_CHECKING:
    from ..thief import Thief


class MarkedShare(Attack):
    """Has right labels for most texts, and asks about the rest."""

    stage = "training"

    def __init__(self, share: float, name: str | None = None) -> None:
        self.share, self.gold, self.questions = share, 1.0 - share, share
        self.name = name or f"marked-{share:.0%}".removesuffix("%")

    @property
    def title(self) -> str:
        """With the share."""
        return f"Learns {self.share:.0%} marked answers among gold labels"

    def ask(self, thief: "Thief") -> Dataset:
        """Answers to the first texts, right labels of the rest."""
        n = max(1, round(self.share * len(thief.texts)))
        return concatenate_datasets(
            [thief.ask(thief.texts.select(range(n))), thief.gold_rows(range(n, len(thief.texts)))]
        )


for _share in (0.05, 0.1, 0.2):
    register_attack(MarkedShare(_share))


register_attack(MarkedShare(0.8, "gold-20"))


class OutOfFold(Attack):
    """Asks students of the other answers for a second opinion on each."""

    stage = "training"

    def __init__(self, folds: int, clean: bool = False) -> None:
        self.folds, self.clean = folds, clean
        self.trainings = float(folds)  # folds of (folds − 1)/folds each, and the student
        self.name = f"{'clean' if clean else 'relabel'}-{folds}"

    @property
    def title(self) -> str:
        """With what becomes of the answers."""
        if self.clean:
            return f"Leaves out answers that students of the other {self.folds - 1} of {self.folds} folds contradict"
        return f"Learns what students of the other folds ({self.folds} in all) say, in place of the answers"

    def change(self, rows: Dataset, thief: "Thief") -> Dataset:
        """Answers that others agree with, or what the others say."""
        said = answers_in(thief.kept_rows(f"{self.folds} folds", lambda: self._second_opinions(rows, thief)))
        if not self.clean:
            return thief.rows(said, rows.select_columns(thief.columns))
        kept = [
            own * (own.argmax(-1) == other.argmax(-1))[..., None]
            for own, other in zip(answers_in(rows), said, strict=True)
        ]
        return thief.rows(kept, rows.select_columns(thief.columns))

    def _second_opinions(self, rows: Dataset, thief: "Thief") -> Dataset:
        """What students of the other folds say of every row, as soft as the service is."""
        said: list[np.ndarray] = [np.empty(0)] * len(rows)
        fold_of = thief.rng(20).permutation(len(rows)) % self.folds
        for fold in range(self.folds):
            inside, outside = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
            student = thief.train(rows.select(outside), seed=thief.seed + 300 + fold)
            texts = rows.select(inside).select_columns(thief.columns)
            for place, answer in zip(inside.tolist(), answers_in(thief.answers_of(student, texts)), strict=True):
                said[place] = answer if thief.label_kind == "soft" else _as_labels(answer)
        return with_answers(rows.select_columns(thief.columns), said, thief.labels, all_rows=True)


def _as_labels(answer: np.ndarray) -> np.ndarray:
    return certain(np.where(answer.any(-1), answer.argmax(-1), -1), answer.shape[-1])


register_attack(OutOfFold(2))
register_attack(OutOfFold(5))
register_attack(OutOfFold(5, clean=True))


@register_attack
class AverageAccounts(Attack):
    """Asks everything under three accounts, each with a key of its own, and learns what they say together."""

    name, stage, accounts, questions = "three-accounts", "training", 3, 3.0

    def ask(self, thief: "Thief") -> Dataset:
        """The mean of the accounts' answers, or the majority's."""
        answers = [answers_in(thief.ask(thief.texts, account)) for account in range(self.accounts)]
        return thief.rows(merged(answers, thief.label_kind))


@register_attack
class StudentsOfAccounts(Attack):
    """Trains a student on the answers of each of three accounts, and serves the mean of the three."""

    name, stage, accounts, questions, trainings = "three-students", "training", 3, 3.0, 3.0

    def train(self, rows: Dataset, thief: "Thief") -> Student:
        """The first account's student and two more."""
        students = [thief.train(rows)]
        for account in range(1, self.accounts):
            students.append(thief.train(thief.ask(thief.texts, account), seed=thief.seed + account))
        return students[0].with_model(Ensemble([student.model for student in students]))


@register_attack
class EarlyStop(Attack):
    """Stops training after a quarter of the epochs."""

    name, stage, trainings = "early-stop", "training", 0.25

    def train(self, rows: Dataset, thief: "Thief") -> Student:
        """A student that saw everything less often."""
        return thief.young_student(rows)


@register_attack
class OtherArchitecture(Attack):
    """Trains a student of another architecture with a tokenizer of its own."""

    name, stage = "other-architecture", "training"

    def train(self, rows: Dataset, thief: "Thief") -> Student:
        """A RoBERTa from scratch with byte-level tokens of the thief's texts, or what the recipe names."""
        texts = (" ".join(words) for words in thief.words)
        start = other_student(thief.task, thief.labels, texts, thief.recipe, thief.seed)
        return thief.train(rows, start=start)
