"""Questions to anything that answers: models, pipelines, services and functions, and their answers kept on disk."""

from .labelling import label_with_teacher
from .options import AskingOptions
from .predictors import Predictor, as_predictor, max_length_of

__all__ = ["AskingOptions", "Predictor", "as_predictor", "label_with_teacher", "max_length_of"]
