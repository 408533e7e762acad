"""Distillation-resistant watermarking for Hugging Face classifiers and taggers.

Importing the package registers the protected models with transformers' Auto classes.
"""

import importlib
from typing import Any

from ._version import __version__
from .keys import WatermarkKey
from .watermark import (
    WatermarkedConfig,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
)

# What pulls in datasets, Trainer and the like is imported when it is first asked for.
_LAZY = {
    "DistillationArguments": "extraction",
    "DistillationTrainer": "extraction",
    "label_with_teacher": "extraction",
}

__all__ = [
    "DistillationArguments",
    "DistillationTrainer",
    "WatermarkKey",
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
    "__version__",
    "label_with_teacher",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
