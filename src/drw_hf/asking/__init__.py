"""Questions to anything that answers: models, pipelines, services and functions, and their answers kept on disk."""

import os

import torch

from .labelling import label_with_teacher
from .local import ModelPredictor, is_pipeline, of_path, of_pipeline
from .options import AskingOptions
from .predictor import InferenceService, Predictor, PredictorOptions, as_predictor, register_predictor
from .questions import max_length_of
from .remote import CallablePredictor, ClientPredictor, RetryingPredictor, is_address, of_address

__all__ = [
    "AskingOptions",
    "Predictor",
    "PredictorOptions",
    "RetryingPredictor",
    "as_predictor",
    "label_with_teacher",
    "max_length_of",
    "register_predictor",
]

# What can be asked. The last is tried first: models and pipelines can be called, too.
register_predictor("callable", callable, lambda function, _, options: CallablePredictor(function, options))
register_predictor(
    "client",
    lambda thing: isinstance(thing, InferenceService),
    lambda client, _, options: ClientPredictor(client, options),
)
register_predictor("model", lambda thing: isinstance(thing, torch.nn.Module), ModelPredictor)
register_predictor("pipeline", is_pipeline, of_pipeline)
register_predictor("path", lambda thing: isinstance(thing, str | os.PathLike), of_path)
register_predictor("address", is_address, of_address)
