"""The adversary's side: distilling a student from a teacher's answers."""

from .arguments import DistillationArguments
from .trainer import DistillationTrainer

__all__ = ["DistillationArguments", "DistillationTrainer"]
