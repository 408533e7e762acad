"""Questions to anything that answers: models, pipelines, services and functions, and their answers kept on disk."""

import os

import torch
from huggingface_hub import InferenceClient

from ..keys.binding import max_length_of
from .labelling import label_with_teacher
from .local import ModelPredictor, is_pipeline, load_predictor, pipeline_predictor
from .log_days import Day, expire_log, merge_logs, redact_log, root_log
from .log_lines import LogHeader, LogLine, Served
from .log_writer import LogWriter
from .near_duplicates import texts_in_common
from .options import AskingOptions
from .predictor import InferenceService, Predictor, PredictorOptions, as_predictor, register_predictor
from .query_log import LogCheck
from .query_log import QueryLog as QueryLog
from .questions import Cut
from .remote import CallablePredictor, ClientPredictor, RetryingPredictor

__all__ = [
    "AskingOptions",
    "Cut",
    "Day",
    "LogCheck",
    "LogHeader",
    "LogLine",
    "LogWriter",
    "Predictor",
    "PredictorOptions",
    "RetryingPredictor",
    "Served",
    "as_predictor",
    "expire_log",
    "label_with_teacher",
    "max_length_of",
    "merge_logs",
    "redact_log",
    "register_predictor",
    "root_log",
    "texts_in_common",
]

# What can be asked. The last is tried first: models and pipelines can be called, too.
register_predictor("callable", callable, lambda function, _, options: CallablePredictor(function, options))
register_predictor(
    "client",
    lambda thing: isinstance(thing, InferenceService),
    lambda client, _, options: ClientPredictor(client, options),
)
register_predictor("model", lambda thing: isinstance(thing, torch.nn.Module), ModelPredictor)
register_predictor("pipeline", is_pipeline, pipeline_predictor)
register_predictor("path", lambda thing: isinstance(thing, str | os.PathLike), load_predictor)
register_predictor(
    "address",
    lambda thing: isinstance(thing, str) and thing.startswith(("http://", "https://")),
    lambda address, _, options: ClientPredictor(InferenceClient(model=address), options),
)
