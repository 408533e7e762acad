"""What clients send and get: the Inference protocol, and the shapes of Text Embeddings Inference beside it.

Nothing that a request says can reach the mark, the key or an answer without it: its parameters are those listed here,
and each is checked.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..keys.choices import Task
from ..keys.sealing import has_lone_surrogate
from ..reading.files import in_words, parse_json
from .limits import Limits

Text = str | tuple[str, str]  # a text or a pair
STRATEGIES = ("none", "simple", "first", "average", "max")


class RequestRefusedError(Exception):
    """A request is refused. The message is for the client, and holds nothing from the inside."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after


@dataclass(frozen=True)
class Asked:
    """A request, as far as it is about texts.

    ``nested`` says how the answers are put together: whether a list of them is answered, or the only one.
    """

    texts: list[Text]
    is_batch: bool
    parameters: Mapping[str, Any] = field(default_factory=dict)


def parse_inference(content: bytes, task: Task, limits: Limits) -> Asked:
    """A request in the Inference protocol: ``{"inputs": ..., "parameters": {...}}``, as ``InferenceClient`` sends it.

    ``inputs`` is a text, a pair as ``{"text": ..., "text_pair": ...}``, or a list of these.
    """
    document = _object(content, {"inputs", "parameters"}, "inputs")
    inputs = document["inputs"]
    several = inputs if isinstance(inputs, list) else [inputs]
    _check_number(several, limits)
    texts = [_text_or_pair(one, task) for one in several]
    _check_lengths(texts, limits)
    return Asked(texts, isinstance(inputs, list), _parameters(document.get("parameters"), _CHECKS[task]))


def parse_tei(content: bytes, limits: Limits) -> Asked:
    """A request as Text Embeddings Inference takes it at ``/predict``.

    ``inputs`` is a text, a pair as a list of two, or a batch: a list of lists of one text or two.
    """
    document = _object(content, {"inputs", "truncate", "raw_scores", "truncation_direction"}, "inputs")
    inputs = document["inputs"]
    is_batch = isinstance(inputs, list) and all(isinstance(one, list) for one in inputs)
    several = inputs if is_batch else [inputs]
    _check_number(several, limits)
    texts = [_listed(one) for one in several]
    _check_lengths(texts, limits)
    given = _parameters({name: value for name, value in document.items() if name != "inputs"}, _TEI_CHECKS)
    return Asked(texts, is_batch, given)


def _object(content: bytes, known: set[str], needed: str) -> dict[str, Any]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise RequestRefusedError(400, "the request is not UTF-8; send JSON in UTF-8") from None
    document = parse_json(text)
    if document is None:
        raise RequestRefusedError(400, 'the request is no JSON; send {"inputs": "a text"}')
    if not isinstance(document, dict) or needed not in document:
        raise RequestRefusedError(422, f'a request is a JSON object with "{needed}": send {{"inputs": "a text"}}')
    _refuse_unknown("the request has", document.keys() - known, known)
    return document


def _refuse_unknown(where: str, unknown: set[str], known: Any) -> None:
    if unknown:
        named = ", ".join(json.dumps(name[:100]) for name in sorted(unknown)[:10])
        raise RequestRefusedError(
            422, f"{where} {named}, which are not taken here; taken are {', '.join(sorted(known))}"
        )


def _check_number(several: list[Any], limits: Limits) -> None:
    if not 1 <= len(several) <= limits.inputs:
        raise RequestRefusedError(
            422, f'"inputs" holds {len(several):,} texts; send between 1 and {limits.inputs} in one request'
        )


def _check_lengths(texts: list[Text], limits: Limits) -> None:
    total = sum(len(part) for text in texts for part in ([text] if isinstance(text, str) else text))
    if total > limits.characters:
        raise RequestRefusedError(
            413, f'"inputs" has {total:,} characters; send at most {limits.characters:,} in one request'
        )


def _text_or_pair(one: Any, task: Task) -> Text:
    if isinstance(one, dict) and task == "sequence-classification" and {"text"} <= one.keys() <= {"text", "text_pair"}:
        text = _text(one["text"])
        return (text, _text(one["text_pair"])) if "text_pair" in one else text
    if isinstance(one, str):
        return _text(one)
    if task == "token-classification":
        raise RequestRefusedError(422, '"inputs" is a text, or a list of texts')
    raise RequestRefusedError(
        422,
        '"inputs" is a text, {"text": ..., "text_pair": ...}, or a list of these; lists of lists go to /predict',
    )


def _listed(one: Any) -> Text:
    if isinstance(one, str):
        return _text(one)
    if isinstance(one, list) and 1 <= len(one) <= 2:
        parts = [_text(part) for part in one]
        return parts[0] if len(parts) == 1 else (parts[0], parts[1])
    raise RequestRefusedError(422, '"inputs" is a text, a pair as a list of two texts, or a list of such lists')


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise RequestRefusedError(422, f'"inputs" holds {_kind(text)}; send texts')
    if has_lone_surrogate(text):
        raise RequestRefusedError(422, '"inputs" holds half a character (a lone surrogate), which is no text')
    if not text.strip():
        raise RequestRefusedError(422, '"inputs" holds an empty text; send some words')
    return text


def _kind(value: Any) -> str:
    names = {bool: "a truth value", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(value), "null")


# -- parameters


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


_Check = tuple[Callable[[Any], bool], str]
_CHECKS: dict[Task, dict[str, _Check]] = {
    "sequence-classification": {
        "top_k": (lambda value: value is None or _is_count(value), "a number from 1 on, or null for all labels"),
        "function_to_apply": (
            lambda value: value in (None, "softmax"),
            '"softmax": scores are probabilities, and others are not given',
        ),
    },
    "token-classification": {
        "aggregation_strategy": (
            lambda value: isinstance(value, str) and value in STRATEGIES,
            f"one of {', '.join(STRATEGIES)}",
        ),
        "ignore_labels": (_are_names, "a list of label names"),
    },
}
_TEI_CHECKS: dict[str, _Check] = {
    "truncate": (lambda value: isinstance(value, bool), "true, as where it is left out, or false"),
    "raw_scores": (lambda value: value is False, "false: scores are probabilities, and others are not given"),
    "truncation_direction": (lambda value: False, "left out: texts are cut as the key records"),
}


def _parameters(given: Any, checks: Mapping[str, _Check]) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RequestRefusedError(422, f'"parameters" is {_kind(given)}; send an object, or leave it out')
    _refuse_unknown("the parameters hold", given.keys() - checks.keys(), checks)
    for name, value in given.items():
        allowed, expected = checks[name]
        if not allowed(value):
            raise RequestRefusedError(422, f'the parameter "{name}" must be {expected}')
    return given


# -- answers


def too_large(limits: Limits) -> RequestRefusedError:
    """What is said to a body of too many bytes."""
    return RequestRefusedError(413, f"the request is larger than {in_words(limits.body)}; send fewer or shorter texts")


def ranked(labels: tuple[str, ...], scores: list[float], top_k: int | None = None) -> list[dict[str, Any]]:
    """A text's answer: its labels with their scores, the highest first."""
    order = sorted(range(len(labels)), key=lambda number: -scores[number])
    return [{"label": labels[number], "score": scores[number]} for number in order[:top_k]]


def inference_answer(asked: Asked, answers: list[Any], task: Task) -> Any:
    """Answers as the Inference protocol has them: of one text nested for a classifier, flat for a tagger."""
    if task == "token-classification":
        return answers if asked.is_batch else answers[0]
    return answers


def tei_answer(asked: Asked, answers: list[Any]) -> Any:
    """Answers as Text Embeddings Inference has them: of one text flat."""
    return answers if asked.is_batch else answers[0]
