"""Distillation-resistant watermarking for Hugging Face classifiers and taggers.

Importing the package registers the protected models with transformers' Auto classes.
"""

import importlib
from typing import Any

from ._version import __version__
from .keys import KeyRing, WatermarkKey
from .watermark import (
    WatermarkedConfig,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
)

# What pulls in datasets, Trainer and the like is imported when it is first asked for.
_LAZY = {
    "DetectionResult": "detection",
    "DistillationArguments": "extraction",
    "DistillationTrainer": "extraction",
    "detect": "detection",
    "fidelity": "fidelity",
    "hub": "hub",
    "identify": "detection",
    "label_with_teacher": "extraction",
    "metrics": "metrics",
    "p_snr": "detection",
    "planning": "planning",
}

__all__ = [
    "DetectionResult",
    "DistillationArguments",
    "DistillationTrainer",
    "KeyRing",
    "WatermarkKey",
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
    "__version__",
    "detect",
    "identify",
    "label_with_teacher",
    "p_snr",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module = importlib.import_module(f".{_LAZY[name]}", __name__)
        return module if name == _LAZY[name] else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
