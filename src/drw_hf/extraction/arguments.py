"""`DistillationArguments`: Trainer's, and how the student is made."""

from dataclasses import dataclass, field

from transformers import TrainingArguments

from ..errors import ConfigurationError
from ..keys.choices import LABEL_KINDS, LabelKind
from .attacks import ATTACKS


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
        metadata={"help": "What to learn: 'soft' (the teacher's probabilities, KL) or 'hard' (its labels, CE)."},
    )
    temperature: float = field(
        default=1.0, metadata={"help": "Softens teacher and student in the KL divergence; 1 leaves them as they are."}
    )
    gold_weight: float = field(
        default=0.0, metadata={"help": "Weight of the gold labels in the loss, in [0, 1); the rest is the teacher's."}
    )
    requery: bool = field(
        default=False,
        metadata={"help": "Ask the teacher anew for every batch of every epoch instead of once before training."},
    )
    attack: str | None = field(
        default=None,
        metadata={"help": "What the thief does to the answers before training, like 'argmax', 'floor', 'rounding'."},
    )
    max_length: int | None = field(
        default=None, metadata={"help": "Truncate rows to this many tokens (default: the student's limit)."}
    )
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Must stay off: the teacher's answers are columns no model knows."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_kind not in LABEL_KINDS:
            raise ConfigurationError(f"label_kind={self.label_kind!r}: expected 'soft' or 'hard'")
        if not self.temperature > 0:
            raise ConfigurationError(f"temperature={self.temperature!r}: expected a number > 0")
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
            ATTACKS.get(self.attack, ConfigurationError)
            if self.requery:
                raise ConfigurationError("an attack changes kept answers, and requery=True keeps none; leave one out")
        if self.remove_unused_columns:
            raise ConfigurationError("remove_unused_columns=True would drop the teacher's answers; leave it at False")
        if self.label_smoothing_factor:
            raise ConfigurationError(
                "label_smoothing_factor has no effect on distillation; leave it at 0 (temperature softens instead)"
            )
        if self.max_length is not None and self.max_length < 1:
            raise ConfigurationError(f"max_length={self.max_length!r}: expected a positive number of tokens")
