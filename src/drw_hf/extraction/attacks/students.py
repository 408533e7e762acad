"""Attacks on the finished student, and on what it answers to whoever probes it."""

import copy
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from ..recovery import moved
from ..stolen import certain
from ..students import Ensemble, Student
from .answers import rounded
from .base import Attack, Stage, register_attack

if TYPE_CHECKING:
    from ..thief import Thief

TUNED_EPOCHS = 4  # of fine-tuning, in steps half as long


class OnStudent(Attack):
    """Changes the student of a thief without any attack."""

    stage: ClassVar[Stage] = "student"
    trainings = 0.0


class FineTune(OnStudent):
    """Fine-tunes the student on gold labels."""

    def __init__(self, share: float) -> None:
        self.gold, self.trainings = share, share / 2
        self.name = f"fine-tune-{share:.0%}".removesuffix("%")

    @property
    def title(self) -> str:
        """With the share."""
        return f"Fine-tunes the student on gold labels of {self.gold:.0%} of its texts"

    def alter(self, student: Student, thief: "Thief") -> Student:
        """Some epochs more, on gold labels."""
        n = max(1, round(self.gold * len(thief.texts)))
        return thief.train(thief.gold_rows(range(n)), start=student, recipe=thief.recipe.slower(TUNED_EPOCHS))


class Prune(OnStudent):
    """Sets the smallest weights to 0."""

    def __init__(self, share: float) -> None:
        self.share, self.name = share, f"prune-{share:.0%}".removesuffix("%")

    @property
    def title(self) -> str:
        """With the share."""
        return f"Prunes {self.share:.0%} of the student's weights"

    def alter(self, student: Student, thief: "Thief") -> Student:
        """A student with fewer weights."""
        return student.with_model(pruned(student.model, self.share))


for _share in (0.05, 0.2):
    register_attack(FineTune(_share))
for _share in (0.3, 0.6):
    register_attack(Prune(_share))


@torch.no_grad()
def pruned(model: torch.nn.Module, share: float) -> torch.nn.Module:
    """A copy with the smallest weights of every matrix set to 0, that share of them."""
    model = copy.deepcopy(model)
    for weights in model.parameters():
        if weights.ndim == 2:
            n_pruned = int(share * weights.numel())
            if n_pruned:
                weights[weights.abs() <= weights.abs().flatten().kthvalue(n_pruned).values] = 0.0
    return model


@register_attack
class Quantise(OnStudent):
    """Rounds the student's weights to 8 bits."""

    name = "int8"

    @torch.no_grad()
    def alter(self, student: Student, thief: "Thief") -> Student:
        """Every row of a matrix in steps of 1/127 of its largest weight."""
        model = copy.deepcopy(student.model)
        for weights in model.parameters():
            if weights.ndim == 2:
                step = weights.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
                weights.copy_((weights / step).round() * step)
        return student.with_model(model)


@register_attack
class WeightNoise(OnStudent):
    """Adds noise to the student's weights, a tenth of their spread."""

    name, spread = "weight-noise", 0.1

    @torch.no_grad()
    def alter(self, student: Student, thief: "Thief") -> Student:
        """Noise on every matrix."""
        model, generator = copy.deepcopy(student.model), torch.Generator().manual_seed(thief.seed)
        for weights in model.parameters():
            if weights.ndim == 2:
                noise = torch.randn(weights.shape, generator=generator, dtype=weights.dtype)
                weights += self.spread * weights.std() * noise
        return student.with_model(model)


@register_attack
class SecondGeneration(OnStudent):
    """Trains a student of the student, on other text."""

    name, trainings = "second-generation", 1.0

    def alter(self, student: Student, thief: "Thief") -> Student:
        """Who never saw an answer of the service."""
        assert thief.others is not None  # the rehearsal sees to it
        return thief.train(thief.answers_of(student, thief.others), seed=thief.seed + 400)


@register_attack
class WithInnocent(OnStudent):
    """Serves the mean of the student and a model of gold labels."""

    name, gold, trainings = "with-innocent", 1.0, 1.0

    def alter(self, student: Student, thief: "Thief") -> Student:
        """Two models as one."""
        return student.with_model(Ensemble([student.model, thief.innocent().model]))


# -- what it answers


class OnSuspect(OnStudent):
    """Changes what the student answers to whoever probes it."""

    stage: ClassVar[Stage] = "suspect"


@register_attack
class SuspectRounds(OnSuspect):
    """Answers with scores of one digit."""

    name = "serves-rounded"

    def answer(self, probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Rounded scores."""
        return rounded(probabilities, 1)


@register_attack
class SuspectNoise(OnSuspect):
    """Answers with noise on the logarithms of scores, with a standard deviation of 0.5."""

    name = "serves-noise"

    def answer(self, probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Noisy scores."""
        return moved(probabilities, 0.5 * rng.standard_normal(probabilities.shape))


@register_attack
class SuspectLabels(OnSuspect):
    """Answers with labels alone."""

    name = "serves-labels"

    def answer(self, probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Certainty."""
        return certain(probabilities.argmax(1), probabilities.shape[1])


@register_attack
class SuspectRefuses(OnSuspect):
    """Refuses to answer where its two best scores are within 0.6."""

    name, knows = "refuses-close-calls", "that close calls carry most of a mark"

    def answer(self, probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Sure answers alone."""
        best = np.sort(probabilities, axis=1)[:, -2:]
        return probabilities * (best[:, 1:] - best[:, :1] >= 0.6)
