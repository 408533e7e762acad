"""Distillation-resistant watermarking for Hugging Face classifiers and taggers.

Importing the package registers the protected models with transformers' Auto classes.
"""

from ._version import __version__
from .keys import WatermarkKey
from .watermark import (
    WatermarkedConfig,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
)

__all__ = [
    "WatermarkKey",
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
    "__version__",
]
