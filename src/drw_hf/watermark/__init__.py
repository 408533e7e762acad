"""The watermark: its equations, hard labels, and the protected models."""

from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

from .configuration import WatermarkedConfig
from .modeling import WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification

AutoConfig.register(WatermarkedConfig.model_type, WatermarkedConfig, exist_ok=True)
AutoModelForSequenceClassification.register(
    WatermarkedConfig, WatermarkedModelForSequenceClassification, exist_ok=True
)
AutoModelForTokenClassification.register(WatermarkedConfig, WatermarkedModelForTokenClassification, exist_ok=True)

__all__ = [
    "WatermarkedConfig",
    "WatermarkedModelForSequenceClassification",
    "WatermarkedModelForTokenClassification",
]
