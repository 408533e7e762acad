"""The adversary's side: asking a teacher, and distilling a student from its answers."""

from .arguments import DistillationArguments
from .labelling import label_with_teacher
from .trainer import DistillationTrainer

__all__ = ["DistillationArguments", "DistillationTrainer", "label_with_teacher"]
