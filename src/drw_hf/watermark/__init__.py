"""The watermark: the marks, hard labels, the protected models, and the marker of answers from elsewhere."""

from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

from .configuration import WatermarkedConfig
from .cosine import CosineMark
from .mark import Mark, register_mark
from .marker import Marker
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
    "Marker",
    "TiltMark",
    "TiltSettings",
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
    "register_mark",
]
