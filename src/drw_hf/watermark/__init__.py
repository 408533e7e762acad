"""The watermark: the marks, hard labels, and the protected models."""

from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

from .configuration import WatermarkedConfig
from .cosine import CosineMark
from .mark import Mark, register_mark
from .modeling import WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification
from .tilt import TiltMark, TiltSettings

AutoConfig.register(WatermarkedConfig.model_type, WatermarkedConfig, exist_ok=True)
AutoModelForSequenceClassification.register(
    WatermarkedConfig, WatermarkedModelForSequenceClassification, exist_ok=True
)
AutoModelForTokenClassification.register(WatermarkedConfig, WatermarkedModelForTokenClassification, exist_ok=True)

__all__ = [
    "CosineMark",
    "Mark",
    "TiltMark",
    "TiltSettings",
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
    "register_mark",
]
