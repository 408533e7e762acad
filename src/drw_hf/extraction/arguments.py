"""`DistillationArguments`: Trainer's, and how the student is made."""

from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments

from ..checks import check_choice, in_range, whole_number
from ..errors import ConfigurationError
from ..keys.choices import LABEL_KINDS, LabelKind
from .attacks.base import single_answer_attack


def _option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class DistillationArguments(TrainingArguments):
    """The arguments of :class:`DistillationTrainer`: those of ``transformers.TrainingArguments``, and

    Parameters
    ----------
    label_kind : str
        ``"soft"``: learn the teacher's probabilities by KL divergence. ``"hard"``: learn its labels by cross-entropy.
    temperature : float
        Softens teacher and student in the KL divergence; 1 is the paper's.
    gold_weight : float
        Weight of the gold labels' cross-entropy in the loss, in [0, 1); the rest is the teacher's.
    requery : bool
        Ask the teacher anew for every batch, as the paper's code does, instead of once before training.
    attack : str, optional
        An attack, by its registered name (:mod:`drw_hf.extraction.attacks`), that changes the teacher's answers before
        the student learns from them.
    max_length : int, optional
        Truncate rows to this many tokens, for student and teacher alike; by default the student's limit.
    """

    label_kind: LabelKind = field(
        default="soft",
        metadata={"help": "Learn the teacher's probabilities ('soft', by KL) or labels ('hard', by CE)."},
    )
    temperature: float = _option(1.0, "Softens teacher and student in the KL divergence; 1 leaves them as they are.")
    gold_weight: float = _option(0.0, "Weight of the gold labels in the loss, in [0, 1); the rest is the teacher's.")
    requery: bool = _option(False, "Ask the teacher anew for every batch of every epoch instead of once.")
    attack: str | None = _option(None, "What is done to the answers before training: 'argmax', 'floor', 'rounding'...")
    max_length: int | None = _option(None, "Truncate rows to this many tokens (default: the student's limit).")
    remove_unused_columns: bool = _option(False, "Must stay off: the teacher's answers are columns no model knows.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("label_kind", self.label_kind, LABEL_KINDS, ConfigurationError)
        in_range("temperature", self.temperature, above=True, error=ConfigurationError)
        if not 0 <= self.gold_weight < 1:
            raise ConfigurationError(
                f"gold_weight={self.gold_weight!r}: expected a number in [0, 1); at 1 nothing would be distilled, and "
                "the plain Trainer is what you want"
            )
        if self.label_kind == "hard" and self.temperature != 1.0:
            raise ConfigurationError(
                "temperature softens probabilities, and label_kind='hard' has none: leave it at 1"
            )
        if self.attack is not None:
            single_answer_attack(self.attack)
            if self.requery:
                raise ConfigurationError("an attack changes kept answers, and requery=True keeps none; leave one out")
        if self.remove_unused_columns:
            raise ConfigurationError("remove_unused_columns=True would drop the teacher's answers; leave it at False")
        if self.label_smoothing_factor:
            raise ConfigurationError(
                "label_smoothing_factor has no effect on distillation; leave it at 0 (temperature softens instead)"
            )
        if self.max_length is not None:
            whole_number("max_length", self.max_length, error=ConfigurationError)
