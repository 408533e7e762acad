"""Serve this repository's protected model as a Hugging Face Inference Endpoint; every answer is marked.

Set ``DRW_PASSPHRASE``, as a secret of the endpoint, to the passphrase of the key. Without the key the endpoint does
not start. Where the key is a ring, every request needs the ``"user_token"`` that the owner gave to the customer
(``ring.token_for``), beside ``"inputs"`` or among the ``"parameters"``: a bare name would let one customer ask in
another's. ``huggingface_hub.InferenceClient`` sends neither field, so a ring's customers ask over plain HTTP.

A text is answered as ``[[{"label": ..., "score": ...}, ...]]``, the best label first, as that client reads it; a list
of texts with a list for each. A tagger's entities come as a flat list for each text.
"""

import contextlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any, Literal

from transformers import AutoTokenizer, pipeline

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification
from drw_hf.asking import max_length_of
from drw_hf.errors import DrwError
from drw_hf.keys import KeyRing

logger = logging.getLogger(__name__)

PASSPHRASE = "DRW_PASSPHRASE"  # the environment variable
MAX_INPUTS = 128  # texts in one request
MAX_CHARACTERS = 20_000  # in all of them together

_MODELS: dict[str, tuple[Literal["text-classification", "token-classification"], Any]] = {
    "sequence-classification": ("text-classification", WatermarkedModelForSequenceClassification),
    "token-classification": ("token-classification", WatermarkedModelForTokenClassification),
}
_STRATEGIES = ("none", "simple", "first", "average", "max")
# Each is computed from the marked probabilities, so none shows a score without the mark.
_FUNCTIONS = ("softmax", "sigmoid", "none")
_TOKEN = "user_token"


class StartupError(RuntimeError):
    """The protected model could not be loaded, and there is nothing to serve."""


class RequestError(ValueError):
    """A request was refused. The message is for the client: it holds nothing from the inside."""


class EndpointHandler:
    """What the inference toolkit makes once, of the repository's folder, and calls with every request.

    The passphrase leaves the environment as it is read, so that nothing started later inherits it; a second handler in
    the same process needs it set again.
    """

    def __init__(self, path: str = ""):
        # The passphrase lives in the frame of _load alone, and that frame is gone when an error is raised here.
        self.task, self.pipeline, problem = _load(path)
        if problem is not None:
            raise StartupError(problem)
        self.max_length = self.pipeline.tokenizer.model_max_length
        self._one_at_a_time = threading.Lock()  # fast tokenizers cannot be used by two threads at once

    def __call__(self, data: dict[str, Any]) -> Any:
        """Answer ``{"inputs": ..., "parameters": {...}}`` as the Inference API does; other fields go nowhere."""
        if not isinstance(data, dict) or "inputs" not in data:
            raise RequestError('a request needs "inputs": a text, or a list of texts')
        inputs = self._checked_inputs(data["inputs"])
        parameters = self._checked_parameters(data.get("parameters"))
        user, known = self._user_of([fields[_TOKEN] for fields in (data, parameters) if _TOKEN in fields])
        parameters.pop(_TOKEN, None)
        if not known:
            raise RequestError(
                f'a request needs the "{_TOKEN}" that you were given: send it beside "inputs" or in "parameters"'
            )
        answers, failed = self._answer(inputs, parameters, user)
        if failed:
            raise RequestError("this request could not be answered")
        return answers

    def _user_of(self, tokens: list[Any]) -> tuple[str | None, bool]:
        """The user whom the tokens name, and whether that is one user; with a single key nobody needs a name."""
        ring = self.pipeline.model.key
        if not isinstance(ring, KeyRing):
            return None, True
        try:
            users = {ring.user_of(token) for token in tokens}
        except DrwError:
            return None, False
        return (users.pop(), True) if len(users) == 1 else (None, False)

    def _answer(self, inputs: Any, parameters: dict[str, Any], user: str | None) -> tuple[Any, bool]:
        # An error from in here has frames around the key, so it is not passed on, not even as a cause.
        marked_for = contextlib.nullcontext() if user is None else self.pipeline.model.use_key(user=user)
        try:
            with self._one_at_a_time, marked_for:
                answers = self.pipeline(inputs, **parameters)
            if self.task == "sequence-classification" and not isinstance(inputs, list):
                answers = [answers]
            return _plain(answers), False
        except Exception as error:
            logger.error("a request failed with %s", type(error).__name__)
            return None, True

    # -- what a client may ask

    def _checked_inputs(self, inputs: Any) -> Any:
        """The inputs, in new objects that hold texts and nothing else."""
        several = inputs if isinstance(inputs, list) else [inputs]
        if not 1 <= len(several) <= MAX_INPUTS:
            raise RequestError(f'"inputs" must hold between 1 and {MAX_INPUTS} texts, got {len(several)}')
        checked = [self._checked_input(one) for one in several]
        texts = [text for one in checked for text in (one.values() if isinstance(one, dict) else [one])]
        if sum(map(len, texts)) > MAX_CHARACTERS:
            raise RequestError(f'"inputs" are too long: at most {MAX_CHARACTERS} characters in one request')
        return checked if isinstance(inputs, list) else checked[0]

    def _checked_input(self, one: Any) -> str | dict[str, str]:
        if isinstance(one, str):
            return _checked_text(one)
        if self.task == "token-classification":
            raise RequestError('"inputs" must be a text or a list of texts')
        if isinstance(one, dict) and {"text"} <= one.keys() <= {"text", "text_pair"}:
            return {name: _checked_text(text) for name, text in one.items()}
        raise RequestError('"inputs" must be a text, {"text": ..., "text_pair": ...}, or a list of these')

    def _checked_parameters(self, parameters: Any) -> dict[str, Any]:
        """What the pipeline is called with: of a request's parameters only those that cannot touch mark or key."""
        if parameters is None:
            parameters = {}
        token_task = self.task == "token-classification"
        checks = self._token_checks() if token_task else self._text_checks()
        if isinstance(self.pipeline.model.key, KeyRing):
            checks[_TOKEN] = (lambda value: isinstance(value, str), "the text that you were given")
        if not isinstance(parameters, dict):
            raise RequestError(f'"parameters" must be an object that holds nothing but {", ".join(checks)}')
        unknown = sorted(json.dumps(str(name)[:100]) for name in parameters.keys() - checks.keys())
        if unknown:
            raise RequestError(
                f'"parameters" hold {", ".join(unknown[:10])}, which this endpoint does not take; it takes '
                f"{', '.join(checks)}"
            )
        for name, value in parameters.items():
            allowed, expected = checks[name]
            if not allowed(value):
                raise RequestError(f'the parameter "{name}" must be {expected}')
        if token_task:
            if "stride" in parameters and parameters.get("aggregation_strategy", "none") == "none":
                raise RequestError('the parameter "stride" needs an "aggregation_strategy" other than "none"')
            return dict(parameters)
        return {
            **parameters,
            "top_k": parameters.get("top_k"),
            # Said for every request: what the configuration says of the clean model's outputs does not count here.
            "function_to_apply": parameters.get("function_to_apply") or "softmax",
            # A text longer than the model's limit would not be answered but break the model, on a GPU for good.
            "truncation": True,
            "max_length": parameters.get("max_length", self.max_length),
        }

    def _text_checks(self) -> dict[str, Any]:
        shortest = self.pipeline.tokenizer.num_special_tokens_to_add(pair=True) + 2
        return {
            "top_k": (
                lambda value: value is None or _is_count(value, 1),
                "a number from 1 on, or null for all labels",
            ),
            "function_to_apply": (
                lambda value: value is None or (isinstance(value, str) and value in _FUNCTIONS),
                f"one of {', '.join(_FUNCTIONS)}, or null for softmax, which gives probabilities",
            ),
            "truncation": (lambda value: value is True, f"true: texts are always cut to {self.max_length} tokens"),
            "max_length": (
                lambda value: _is_count(value, shortest, self.max_length),
                f"a number from {shortest} to {self.max_length}",
            ),
        }

    def _token_checks(self) -> dict[str, Any]:
        # Half a window: the wider the overlap, the more often the model reads the same text.
        widest = (self.max_length - self.pipeline.tokenizer.num_special_tokens_to_add()) // 2
        return {
            "aggregation_strategy": (
                lambda value: isinstance(value, str) and value in _STRATEGIES,
                f"one of {', '.join(_STRATEGIES)}",
            ),
            "stride": (lambda value: _is_count(value, 0, widest), f"a number from 0 to {widest}"),
            "ignore_labels": (
                lambda value: isinstance(value, list) and all(isinstance(label, str) for label in value),
                "a list of label names",
            ),
        }


def _load(path: str) -> tuple[str | None, Any, str | None]:
    """The task and the pipeline of the protected model in a folder, or what was wrong."""
    passphrase = os.environ.pop(PASSPHRASE, None) or None
    folder = Path(path)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        task = config.get("task") if config.get("model_type") == "drw_watermarked" else None
        if task not in _MODELS:
            return None, None, "this folder holds no protected model, and others are not served; push one with drw_hf"
        name, model_class = _MODELS[task]
        # A key that lies in the folder is named, since a plain one is taken from beside a model only if it is.
        key = folder if any((folder / name).is_file() for name in ("drw_key.json", "drw_ring.json")) else None
        model = model_class.from_pretrained(folder, key=key, passphrase=passphrase)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.model_max_length = max_length_of(tokenizer, model.config)
        return task, pipeline(name, model=model.eval(), tokenizer=tokenizer), None
    except DrwError as error:  # these never hold anything of a key or a passphrase
        is_set = "is set" if passphrase else "is not set"
        problem = f"the protected model was not loaded: {error} (the environment variable {PASSPHRASE} {is_set})"
    except Exception as error:
        problem = (
            f"the protected model was not loaded: {type(error).__name__}; check that model, tokenizer and key are in "
            f"the folder, and that the environment variable {PASSPHRASE} is set if the key is sealed"
        )
    return None, None, problem


def _checked_text(text: Any) -> str:
    if not isinstance(text, str):
        raise RequestError('"inputs" must hold texts')
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise RequestError('"inputs" hold a lone surrogate, which is no text')
    return text


def _plain(answers: Any) -> Any:
    """The pipeline's answers in Python's own numbers, which any JSON writer takes."""
    if isinstance(answers, dict):
        return {name: _plain(value) for name, value in answers.items()}
    if isinstance(answers, list):
        return [_plain(one) for one in answers]
    return answers.item() if hasattr(answers, "item") else answers


def _is_count(value: Any, least: int, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
