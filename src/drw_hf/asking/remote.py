"""Services and functions: asked again when they fail in a way that may pass, and their answers read by label."""

import hashlib
import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import AnswerError, DatasetError, DrwError, PredictorError
from .predictor import Predictor, PredictorOptions, check_number
from .questions import Question

_RETRIED_STATUS = {408, 425, 429, 500, 502, 503, 504}


class RetryingPredictor(Predictor):
    """Something whose line may break: asked again, after a pause, when it fails in a way that may pass.

    A subclass has :meth:`answer_once` in place of :meth:`answer`.

    Attributes
    ----------
    max_retries : int
        How often a call that failed is made again.
    """

    max_retries: int = 5
    sleep: Callable[[float], None] = staticmethod(time.sleep)

    @abstractmethod
    def answer_once(self, questions: list[Question]) -> list[np.ndarray]:
        """Ask, once; as :meth:`Predictor.answer`."""

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        for attempt in range(self.max_retries + 1):
            try:
                return self.answer_once(questions)
            except DrwError:
                raise
            except Exception as error:
                pause = pause_after(error, attempt)
                if pause is None:
                    raise
                if attempt == self.max_retries:
                    raise PredictorError(
                        f"{self.name} failed {attempt + 1} times in a row, last with {type(error).__name__}; call "
                        "again (with cache_dir=, if there was none) to go on from here"
                    ) from error
                self.sleep(pause)
        raise AssertionError("unreachable")

    def _set(self, name: str, options: PredictorOptions) -> None:
        self.name, self.max_retries = name, options.max_retries
        self.task = options.task or "sequence-classification"
        self.labels = None if options.labels is None else tuple(options.labels)

    def _learn_labels(self, answer: Any) -> tuple[str, ...]:
        """The labels; where they are not known, those that an answer shows."""
        if self.labels is None:
            if not isinstance(answer, Mapping) or len(answer) < 2:
                raise PredictorError(f"the answers of {self.name} do not show all of its labels; pass labels=[...]")
            self.labels = tuple(sorted(answer))
        return self.labels


class ClientPredictor(RetryingPredictor):
    """A ``huggingface_hub.InferenceClient``: one request per question."""

    def __init__(self, client: Any, options: PredictorOptions):
        self.client = client
        self._set(str(getattr(client, "model", None) or type(client).__name__), options)
        if self.task == "token-classification" and self.labels is None:
            raise PredictorError("a remote tagger does not list its labels; pass labels=[...]")

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        # Each by itself: what was answered is not asked again.
        return [super(ClientPredictor, self).answer([question])[0] for question in questions]

    def answer_once(self, questions: list[Question]) -> list[np.ndarray]:
        (question,) = questions
        if self.task == "token-classification":
            if not isinstance(question, list):
                raise DatasetError("a remote tagger is asked with words; give a column of lists of words")
            text, starts = join_words(question)
            spans = [dict(entity) for entity in self.client.token_classification(text, aggregation_strategy="none")]
            assert self.labels is not None  # a tagger without them was refused
            said = answers_at(spans, starts, self.labels)
            return [np.stack([as_distribution(one, self.labels, self.name) for one in said])]
        if not isinstance(question, str):
            raise DatasetError("the Inference API's text classification takes single texts; it cannot be asked pairs")
        top_k = None if self.labels is None else len(self.labels)
        scores = {item["label"]: item["score"] for item in self.client.text_classification(question, top_k=top_k)}
        return [as_distribution(scores, self._learn_labels(scores), self.name)]

    def fingerprint(self) -> str | None:
        # By address alone: the client itself holds an access token.
        return hashlib.blake2b(f"client {self.name}".encode(), digest_size=16).hexdigest()


class CallablePredictor(RetryingPredictor):
    """Any function from a list of questions to one ``{label: score}`` or label each (token tasks: a list of these).

    A tagger may answer with entities that have spans of characters, as pipelines do, over the words joined by spaces.
    """

    def __init__(self, function: Callable[[list[Question]], Sequence[Any]], options: PredictorOptions):
        self.function = function
        self._set(getattr(function, "__qualname__", type(function).__qualname__), options)
        self.stateful = not hasattr(function, "__code__")  # an object that can be called

    def answer_once(self, questions: list[Question]) -> list[np.ndarray]:
        answers = self.function(questions)
        check_number(self.name, questions, answers)
        if self.task == "sequence-classification":
            labels = self._learn_labels(answers[0])
            return [as_distribution(answer, labels, self.name) for answer in answers]
        labels = self._learn_labels(answers[0][0] if self.labels is None else None)
        arrays = []
        for question, answer in zip(questions, answers, strict=True):
            n_units = len(question["input_ids"]) if isinstance(question, dict) else len(question)
            if isinstance(question, list) and all(
                isinstance(entity, Mapping) and {"start", "end"} <= entity.keys() for entity in answer
            ):
                answer = answers_at(answer, join_words(question)[1], labels)
            if len(answer) != n_units:
                raise AnswerError(f"{self.name} gave {len(answer)} answers to {n_units} words; expected one each")
            arrays.append(np.stack([as_distribution(one, labels, self.name) for one in answer]))
        return arrays

    def fingerprint(self) -> str | None:
        from datasets.fingerprint import Hasher

        try:  # as datasets does: code and closure; a key refuses to be pickled, and then nothing is cached
            return Hasher.hash(self.function)
        except Exception:
            return None


def pause_after(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before asking again, as the service says or doubling; None where asking again is no use."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not (_may_pass(error) if status is None else status in _RETRIED_STATUS):
        return None
    told = (getattr(response, "headers", None) or {}).get("Retry-After", "")
    return float(told) if told.replace(".", "", 1).isdigit() else min(60.0, 0.5 * 2**attempt)


def _may_pass(error: Exception) -> bool:
    # HTTP clients have families of their own for a line that broke: httpx, requests and aiohttp, by name.
    families = {"TransportError", "RequestException", "ClientConnectionError"}
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError) or not families.isdisjoint(names) or "Timeout" in str(names)


def as_distribution(answer: Mapping[str, float] | str, labels: Sequence[str], name: str) -> np.ndarray:
    """``{label: score}`` in the order of ``labels``, or a label alone as certainty."""
    scores = answer if isinstance(answer, Mapping) else {answer: 1.0}
    for label in scores.keys() - set(labels):
        raise AnswerError(f"{name} answered {label!r}, which is none of the labels {list(labels)}")
    return np.array([scores.get(label, 0.0) for label in labels], dtype=np.float32)


def join_words(words: Sequence[str]) -> tuple[str, list[int]]:
    """The words as one text, and the character at which each begins."""
    return " ".join(words), [0, *itertools.accumulate(len(word) + 1 for word in words)][:-1]


def answers_at(spans: list[dict[str, Any]], starts: Sequence[int], labels: Sequence[str]) -> list[dict[str, float]]:
    """What a tagger that returns entities with spans says of the words that begin at ``starts``.

    A word's answer is the entity in which it begins; taggers leave out what they call ``O``. Only the best label's
    score is known, so the rest is shared by the others.
    """
    outside = "O" if "O" in labels else None
    answers = []
    for start in starts:
        hit = next((span for span in spans if span["start"] <= start < span["end"]), None)
        label = outside if hit is None else hit.get("entity") or hit.get("entity_group")
        if label is None:
            raise AnswerError("the tagger said nothing of a word, and has no label 'O' for that")
        if label not in labels and hit is not None:  # aggregation takes the prefix off
            label = f"{'B' if hit['start'] == start else 'I'}-{label}"
        score = 1.0 if hit is None else float(hit["score"])
        rest = (1.0 - score) / (len(labels) - 1)
        answers.append({name: score if name == label else rest for name in labels} | {label: score})
    return answers
