"""Services and functions: asked again when they fail in a way that may pass, and their answers read by label."""

import hashlib
import itertools
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from huggingface_hub.errors import OfflineModeIsEnabled

from ..checks import unfit
from ..errors import AnswerError, DatasetError, DrwError, NoAnswerError, PredictorError
from ..reading.answers import RefusedAnswer, answers_within, wait_told
from ..reading.files import MEBIBYTE, parse_json
from .predictor import Predictor, PredictorOptions, check_number
from .questions import Question, rough_length

_LARGEST_ANSWER = 64 * MEBIBYTE  # of a service, to one question
_PATIENCE = 120.0  # seconds: a service may have to load its model first
_LABEL_AND_SCORE = {"label": str, "score": float}
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
            except OfflineModeIsEnabled:
                raise PredictorError(
                    f"{self.name} was not asked: offline mode is on, in which nothing is sent over the network; unset "
                    "HF_HUB_OFFLINE to ask it"
                ) from None
            except Exception as error:
                pause = pause_after(error, attempt)
                if pause is None:
                    raise
                if attempt == self.max_retries:
                    raise NoAnswerError(
                        f"{self.name} failed {attempt + 1} times in a row, last with {type(error).__name__}; call "
                        "again (with cache_dir=, if there was none) to go on from here"
                    ) from error
                self.sleep(pause)
        raise AssertionError("unreachable")


class CallablePredictor(RetryingPredictor):
    """Any function from a list of questions to one ``{label: score}`` or label each (token tasks: a list of these).

    A tagger may answer with entities that have spans of characters, as pipelines do, over the words joined by spaces.
    """

    def __init__(self, function: Callable[[list[Question]], Sequence[Any]], options: PredictorOptions):
        self.function, self.max_retries = function, options.max_retries
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self.task = options.task or "sequence-classification"
        self.labels = None if options.labels is None else tuple(options.labels)
        self.stateful = not hasattr(function, "__code__")  # an object that can be called

    def answer_once(self, questions: list[Question]) -> list[np.ndarray]:
        answers = self.function(questions)
        check_number(self.name, questions, answers)
        by_word = self.task == "token-classification"
        said = itertools.chain.from_iterable(answers) if by_word else answers
        self.labels_alone = all(isinstance(one, str) for one in said)
        if self.labels is None:
            shown = answers[0][0] if by_word else answers[0]
            if not isinstance(shown, Mapping) or len(shown) < 2:
                raise PredictorError(f"the answers of {self.name} do not show all of its labels; pass labels=[...]")
            self.labels = tuple(sorted(shown))
        if by_word:
            return [self._of_words(*asked, self.labels) for asked in zip(questions, answers, strict=True)]
        return [self._distribution(answer, self.labels) for answer in answers]

    def _of_words(self, question: Any, answer: Any, labels: Sequence[str]) -> np.ndarray:
        n_words = rough_length(question)
        are_spans = all(isinstance(entity, Mapping) and {"start", "end"} <= entity.keys() for entity in answer)
        if are_spans and isinstance(question, list):
            answer = answers_at(answer, join_words(question)[1], labels)
        if len(answer) != n_words:
            raise AnswerError(f"{self.name} gave {len(answer)} answers to {n_words} words; expected one each")
        return np.stack([self._distribution(one, labels) for one in answer])

    def _distribution(self, answer: Mapping[str, float] | str, labels: Sequence[str]) -> np.ndarray:
        """``{label: score}`` in the order of the labels, or a label alone as certainty."""
        scores = answer if isinstance(answer, Mapping) else {answer: 1.0}
        for label in scores.keys() - set(labels):
            raise AnswerError(
                f"{self.name} answered {label!r}, which is none of the labels {list(labels)}; pass all of a teacher's "
                "in labels=[...], and a suspect's renamed ones in label_map={suspect's label: key's label}"
            )
        return np.array([scores.get(label, 0.0) for label in labels], dtype=np.float32)

    def fingerprint(self) -> str | None:
        from datasets.fingerprint import Hasher

        try:  # as datasets does: code and closure; a key refuses to be pickled, and then nothing is cached
            return Hasher.hash(self.function)
        except Exception:
            return None


class ClientPredictor(CallablePredictor):
    """A ``huggingface_hub.InferenceClient``: one request per question."""

    one_by_one = True

    def __init__(self, client: Any, options: PredictorOptions):
        super().__init__(self._request, options)
        self.client, self.name = client, str(getattr(client, "model", None) or type(client).__name__)
        if self.task == "token-classification" and self.labels is None:
            raise PredictorError("a remote tagger does not list its labels; pass labels=[...]")

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        # Each by itself: what was answered is not asked again.
        return [super(ClientPredictor, self).answer([question])[0] for question in questions]

    def _request(self, questions: list[Question]) -> list[Any]:
        (question,) = questions
        by_word = self.task == "token-classification"
        if by_word and not isinstance(question, list):
            raise DatasetError("a remote tagger is asked with words; give a column of lists of words")
        if not by_word and not isinstance(question, str):
            raise DatasetError("the Inference API's text classification takes single texts; it cannot be asked pairs")
        try:
            with answers_within(_LARGEST_ANSWER, _PATIENCE, keep=True) as heard:
                return [self._entities(question) if isinstance(question, list) else self._scores(str(question), heard)]
        except RefusedAnswer as error:
            raise NoAnswerError(f"{self.name}: {error}; ask another service") from None
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            why = " ".join(f"{type(error).__name__} {error}".split())[:200]
            raise AnswerError(
                f"{self.name} was not understood ({why}); expected labels and scores, as of a service for {self.task}"
            ) from None

    def _entities(self, words: list[str]) -> list[dict[str, Any]]:
        found: Any = self.client.token_classification(join_words(words)[0], aggregation_strategy="none")
        if len(found) == 1 and isinstance(found[0], list):
            found = found[0]  # of a service that answers as if it had been asked a list of texts
        return [_checked(dict(entity), {"start": int, "end": int, "score": float}) for entity in found]

    def _scores(self, text: str, heard: bytearray) -> dict[str, float]:
        top_k = None if self.labels is None else len(self.labels)
        found: Any = self.client.text_classification(text, top_k=top_k)
        if isinstance(found, Mapping):
            # The client returns the first element of an answer: all labels of the text, as most services answer. Of a
            # flat list that is the best label alone, so the others are read from the answer itself.
            found = parse_json(bytes(heard))
        return {item["label"]: item["score"] for item in (_checked(dict(each), _LABEL_AND_SCORE) for each in found)}

    def fingerprint(self) -> str | None:
        # By address alone: the client itself holds an access token.
        return hashlib.blake2b(f"client {self.name}".encode(), digest_size=16).hexdigest()


def pause_after(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before asking again, as the service says or doubling; None where asking again is no use."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not (_may_pass(error) if status is None else status in _RETRIED_STATUS):
        return None
    told = wait_told((getattr(response, "headers", None) or {}).get("Retry-After", ""))
    return min(60.0, 0.5 * 2**attempt) if told is None else told


def _checked(item: dict[str, Any], declared: dict[str, Any]) -> dict[str, Any]:
    """A part of a service's answer, if it holds what is declared."""
    if unfit(item, declared) or not declared.keys() <= item.keys():
        raise TypeError
    return item


def _may_pass(error: Exception) -> bool:
    # HTTP clients have families of their own for a line that broke: httpx, requests and aiohttp, by name.
    families = {"TransportError", "RequestException", "ClientConnectionError"}
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError) or not families.isdisjoint(names) or "Timeout" in str(names)


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
