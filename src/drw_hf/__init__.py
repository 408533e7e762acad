"""Distillation-resistant watermarking for Hugging Face classifiers and taggers.

Importing the package registers the protected models with transformers' Auto classes.
"""

import sys
from typing import TYPE_CHECKING

from ._version import __version__
from .lazy import lazy

if TYPE_CHECKING:
    from . import asking, detection, errors, evidence, extraction, hub, keys, metrics, planning, tracing  # noqa: F401
    from .asking import QueryLog, label_with_teacher
    from .detection import DetectionResult, p_snr
    from .detection.detect import detect
    from .extraction import DistillationArguments, DistillationTrainer
    from .keys import KeyRing, WatermarkKey
    from .tracing.search import identify
    from .watermark import (
        Marker,
        WatermarkedConfig,
        WatermarkedModelForSequenceClassification,
        WatermarkedModelForTokenClassification,
    )

__all__ = [
    "DetectionResult",
    "DistillationArguments",
    "DistillationTrainer",
    "KeyRing",
    "Marker",
    "QueryLog",
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

_PACKAGES = "asking detection errors evidence extraction hub keys metrics planning serving tracing watermark".split()

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DetectionResult": "detection",
        "DistillationArguments": "extraction",
        "DistillationTrainer": "extraction",
        "KeyRing": "keys",
        "Marker": "watermark",
        "QueryLog": "asking",
        "WatermarkKey": "keys",
        "WatermarkedConfig": "watermark",
        "WatermarkedModelForSequenceClassification": "watermark",
        "WatermarkedModelForTokenClassification": "watermark",
        "detect": "detection",
        "identify": "tracing",
        "label_with_teacher": "asking",
        "p_snr": "detection",
        **{name: name for name in _PACKAGES},
    },
)

# The command line answers `--help` without torch and transformers; its commands import what they need.
if "drw_hf_console" not in sys.modules:
    from . import watermark as watermark
