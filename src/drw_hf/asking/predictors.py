"""Anything that answers questions, behind one small interface: models, pipelines, remote services, callables.

:func:`as_predictor` makes a :class:`Predictor` of what a user has. It answers a list of questions with one float32
array each: (m,) for a text, (number of words or tokens, m) for token tasks. A row of zeros says that this word was not
answered (it lay beyond the length limit, or has no token of its own).
"""

import functools
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from ..errors import AnswerError, ConfigurationError, DatasetError, DrwError, PredictorError
from ..keys.binding import labels_of, task_of, tokenizer_fingerprint
from ..keys.choices import Task
from .questions import Question, are_pairs, are_tokenised

SUM_TOLERANCE = 1e-2  # scores that a service rounded to two digits still count as a distribution
_RETRIED_STATUS = {408, 425, 429, 500, 502, 503, 504}


class InferenceService(Protocol):
    """What is called of a ``huggingface_hub.InferenceClient``."""

    @property
    def text_classification(self) -> Callable[..., Any]:
        """One text to the scores of its labels."""

    @property
    def token_classification(self) -> Callable[..., Any]:
        """One text to the entities in it."""


class Predictor(ABC):
    """Something that answers questions; subclass it for what :func:`as_predictor` does not know.

    Attributes
    ----------
    labels : tuple of str or None
        The label names, in the order of the probabilities; None until a first answer shows them.
    task : str
        ``"sequence-classification"`` or ``"token-classification"``.
    name : str
        What messages and evidence call it; by default the class's own name.
    """

    labels: tuple[str, ...] | None  # None until a callable's first answer shows them
    given_labels: tuple[str, ...] | None = None  # those that the user named, whatever the answers show
    task: Task
    function: Callable[..., Any] | None = None  # what a callable is behind it all
    black_box: bool = False  # whether two of them can be told apart only by trying
    one_by_one: bool = False  # whether a batch is many requests, each of which may fail

    @functools.cached_property
    def name(self) -> str:
        """What messages and evidence call it, and what its kept answers go by where nothing else tells it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @abstractmethod
    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        """One array of probabilities for every question: (m,), or (words or tokens, m) for token tasks.

        A row of zeros says that this word was not answered.
        """

    @abstractmethod
    def fingerprint(self) -> str | None:
        """A digest that changes with what the teacher would answer, free of secrets; None if there is no telling."""

    def learn_labels(self, labels: Sequence[str]) -> None:
        """Take over the label names that an earlier run's answers showed."""
        self.labels = tuple(labels)

    def lengths(self, questions: list[Question]) -> list[int]:
        """About how much work each question is, to batch like with like: words, characters or tokens."""
        return [_rough_length(question) for question in questions]


# Who can be asked: a path or repo id, a model, a client, or whatever can be called, as functions and pipelines can.
Askable = str | torch.nn.Module | Predictor | InferenceService | Callable[..., Any]


def as_predictor(
    teacher: Askable,
    tokenizer: Any = None,
    *,
    task: Task | None = None,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
    max_retries: int = 5,
) -> Predictor:
    """Make a :class:`Predictor` of a model, path, repo id, pipeline, ``InferenceClient`` or callable."""
    if isinstance(teacher, Predictor):
        return teacher
    if isinstance(teacher, str):
        teacher, tokenizer = _load(teacher, tokenizer, task)
    if hasattr(teacher, "preprocess") and hasattr(teacher, "model") and hasattr(teacher, "tokenizer"):
        tokenizer = tokenizer or teacher.tokenizer
        teacher = teacher.model  # a pipeline adds truncation and words for people; its answers are its model's
    if isinstance(teacher, torch.nn.Module):
        return ModelPredictor(teacher, tokenizer, task=task, max_length=max_length)
    if hasattr(teacher, "text_classification") and hasattr(teacher, "token_classification"):
        return RetryingPredictor(ClientPredictor(teacher, task=task, labels=labels), max_retries)
    if callable(teacher):
        return RetryingPredictor(CallablePredictor(teacher, task=task, labels=labels), max_retries)
    raise PredictorError(
        f"a {type(teacher).__name__} cannot be asked; give a model, a path or repo id, a pipeline, an "
        "InferenceClient, or a callable from a list of texts to a list of {label: score} or labels"
    )


class ModelPredictor(Predictor):
    """A transformers model in this process."""

    labels: tuple[str, ...]

    def __init__(self, model: torch.nn.Module, tokenizer: Any, *, task: Task | None, max_length: int | None):
        if tokenizer is None:
            raise PredictorError("a model needs its tokenizer to be asked; pass tokenizer=...")
        self.model, self.tokenizer = model, tokenizer
        own = task_of(model)
        if task and own and task != own:
            raise ConfigurationError(f"{type(model).__name__} is for {own}; it cannot be asked about {task}")
        known = task or own
        if not known:
            raise PredictorError(
                f"{type(model).__name__} does not tell its task; pass task='token-classification' or so"
            )
        self.task = known
        config: Any = model.config
        self.labels = labels_of(config)
        self.name = config.name_or_path or type(model).__name__
        own_limit = max_length_of(tokenizer, config)
        self.max_length = min(max_length or own_limit, own_limit)

    @torch.no_grad()
    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        encoding = self.encode(questions)
        inputs = {name: encoding[name] for name in self.tokenizer.model_input_names if name in encoding}
        device = next((p.device for p in self.model.parameters() if p.device.type != "meta"), torch.device("cpu"))
        was_training = self.model.training
        self.model.eval()
        try:
            logits = self.model(**{name: value.to(device) for name, value in inputs.items()}).logits
        finally:
            self.model.train(was_training)
        probabilities = logits.float().softmax(-1).cpu().numpy()
        if self.task == "sequence-classification":
            return list(probabilities)
        return [
            _at_units(row, units) for row, units in zip(probabilities, self.units(questions, encoding), strict=True)
        ]

    def encode(self, questions: list[Question]) -> Any:
        """Padded tensors for the model."""
        if are_tokenised(questions):
            cut = [{name: list(value)[: self.max_length] for name, value in row.items()} for row in questions]
            return self.tokenizer.pad(cut, return_tensors="pt")
        return tokenize(self.tokenizer, questions, self.max_length, padding=True, return_tensors="pt")

    def units(self, questions: list[Question], encoding: Any) -> list[list[int | None]]:
        """For every word of every question (or token, of tokenised ones) the position of its answer."""
        if are_tokenised(questions):
            special = ids_that_are_no_word(self.tokenizer)
            left = getattr(self.tokenizer, "padding_side", "right") == "left"
            length = encoding["input_ids"].shape[1]
            units: list[list[int | None]] = []
            for row in questions:
                shift = length - min(len(row["input_ids"]), self.max_length) if left else 0
                attended = row.get("attention_mask", [1] * len(row["input_ids"]))
                units.append(
                    [
                        place + shift if place < self.max_length and attended[place] and index not in special else None
                        for place, index in enumerate(row["input_ids"])
                    ]
                )
            return units
        return [first_positions(encoding.word_ids(row), len(words)) for row, words in enumerate(questions)]

    def fingerprint(self) -> str | None:
        import xxhash  # datasets brings it along; this names a cache, and hashes gigabytes a second

        model: Any = self.model
        digest = xxhash.xxh3_128(b"drw-hf teacher v1")
        digest.update(model.config.to_json_string().encode())
        for name, weight in model.state_dict().items():
            digest.update(name.encode())
            digest.update(weight.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy())
        # Of a watermark key nothing but its public fingerprint.
        if hasattr(model, "marking_fingerprint"):
            digest.update(model.marking_fingerprint().encode())
        vocabulary = tokenizer_fingerprint(self.tokenizer)
        digest.update(f"{vocabulary} {self.task} {self.max_length}".encode())
        return digest.hexdigest()


class ClientPredictor(Predictor):
    """A ``huggingface_hub.InferenceClient``: one request a question."""

    one_by_one = True

    def __init__(self, client: Any, *, task: Task | None, labels: Sequence[str] | None):
        self.client, self.task = client, task or "sequence-classification"
        self.labels = self.given_labels = None if labels is None else tuple(labels)
        self.name = str(getattr(client, "model", None) or type(client).__name__)
        if self.task == "token-classification" and self.labels is None:
            raise PredictorError("a remote tagger does not list its labels; pass labels=[...]")

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        return [self._ask(question) for question in questions]

    def _ask(self, question: Question) -> np.ndarray:
        if self.task == "token-classification":
            if not isinstance(question, list):
                raise DatasetError("a remote tagger is asked with words; give a column of lists of words")
            text, starts = join_words(question)
            entities = self.client.token_classification(text, aggregation_strategy="none")
            spans = [dict(entity) for entity in entities]
            assert self.labels is not None  # a tagger without them was refused
            return np.stack(
                [as_distribution(answer, self.labels) for answer in answers_at(spans, starts, self.labels)]
            )
        if not isinstance(question, str):
            raise DatasetError("the Inference API's text classification takes single texts; it cannot be asked pairs")
        top_k = None if self.labels is None else len(self.labels)
        scores = {item["label"]: item["score"] for item in self.client.text_classification(question, top_k=top_k)}
        if self.labels is None:
            self.labels = _labels_shown(scores)
        return as_distribution(scores, self.labels)

    def fingerprint(self) -> str | None:
        # By address alone: the client itself holds an access token.
        return hashlib.blake2b(
            f"client {self.name} {self.task} {self.given_labels}".encode(), digest_size=16
        ).hexdigest()


class CallablePredictor(Predictor):
    """Any function from a list of questions to one ``{label: score}`` or label each (token tasks: a list of these).

    A tagger may answer with entities that have spans of characters, as pipelines do, over the words joined by spaces.
    """

    black_box = True
    function: Callable[[list[Question]], Sequence[Any]]

    def __init__(
        self, function: Callable[[list[Question]], Sequence[Any]], *, task: Task | None, labels: Sequence[str] | None
    ):
        self.function, self.task = function, task or "sequence-classification"
        self.labels = self.given_labels = None if labels is None else tuple(labels)
        self.name = getattr(function, "__qualname__", type(function).__qualname__)

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        answers = self.function(questions)
        if not isinstance(answers, Sequence | np.ndarray) or len(answers) != len(questions):
            found = len(answers) if hasattr(answers, "__len__") else type(answers).__name__
            raise AnswerError(f"the teacher was asked {len(questions)} questions and gave {found} answers")
        if self.labels is None:
            first = answers[0][0] if self.task == "token-classification" else answers[0]
            self.labels = _labels_shown(first)
        if self.task == "sequence-classification":
            return [as_distribution(answer, self.labels) for answer in answers]
        arrays = []
        for question, answer in zip(questions, answers, strict=True):
            n_units = len(question["input_ids"]) if isinstance(question, dict) else len(question)
            if isinstance(question, list) and _are_spans(answer):
                answer = answers_at(answer, join_words(question)[1], self.labels)
            if len(answer) != n_units:
                raise AnswerError(f"the teacher gave {len(answer)} answers to {n_units} words")
            arrays.append(np.stack([as_distribution(one, self.labels) for one in answer]))
        return arrays

    def fingerprint(self) -> str | None:
        from datasets.fingerprint import Hasher

        try:  # as datasets does: code and closure; a key refuses to be pickled, and then nothing is cached
            return Hasher.hash([self.function, self.task, self.given_labels])
        except Exception:
            return None


class RetryingPredictor(Predictor):
    """A remote teacher, asked again after a pause when it fails in a way that may pass."""

    def __init__(self, teacher: Predictor, max_retries: int, sleep: Callable[[float], None] = time.sleep):
        self.teacher, self.max_retries, self.sleep = teacher, max_retries, sleep
        self.task, self.name, self.black_box = teacher.task, teacher.name, teacher.black_box
        self.given_labels, self.function = teacher.given_labels, getattr(teacher, "function", None)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Those of the teacher behind it."""
        return self.teacher.labels

    @labels.setter
    def labels(self, labels: tuple[str, ...] | None) -> None:
        self.teacher.labels = labels

    def learn_labels(self, labels: Sequence[str]) -> None:
        self.teacher.learn_labels(labels)

    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        if self.teacher.one_by_one:  # what was answered is not asked again
            return [self._answer([question])[0] for question in questions]
        return self._answer(questions)

    def _answer(self, questions: list[Question]) -> list[np.ndarray]:
        for attempt in range(self.max_retries + 1):
            try:
                return self.teacher.answer(questions)
            except DrwError:
                raise
            except Exception as error:
                pause = pause_after(error, attempt)
                if pause is None:
                    raise
                if attempt == self.max_retries:
                    raise PredictorError(
                        f"the teacher failed {attempt + 1} times in a row, last with {type(error).__name__}; call "
                        "again (with cache_dir=, if there was none) to go on from here"
                    ) from error
                self.sleep(pause)
        raise AssertionError("unreachable")

    def lengths(self, questions: list[Question]) -> list[int]:
        return self.teacher.lengths(questions)

    def fingerprint(self) -> str | None:
        return self.teacher.fingerprint()


def pause_after(error: Exception, attempt: int) -> float | None:
    """Seconds to wait before asking again, as the service says or doubling; None where asking again is no use."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status is not None and status not in _RETRIED_STATUS:
        return None
    if status is None and not _may_pass(error):
        return None
    told = (getattr(response, "headers", None) or {}).get("Retry-After", "")
    return float(told) if told.replace(".", "", 1).isdigit() else min(60.0, 0.5 * 2**attempt)


def _may_pass(error: Exception) -> bool:
    # HTTP clients have families of their own for a line that broke: httpx, requests and aiohttp, by name.
    families = {"TransportError", "RequestException", "ClientConnectionError"}
    names = {cls.__name__ for cls in type(error).__mro__}
    return isinstance(error, OSError | TimeoutError) or not families.isdisjoint(names) or "Timeout" in str(names)


# -- answers


def as_distribution(answer: Mapping[str, float] | str, labels: Sequence[str]) -> np.ndarray:
    """``{label: score}`` in the order of ``labels``, or a label alone as certainty."""
    values = np.zeros(len(labels), dtype=np.float32)
    scores = answer if isinstance(answer, Mapping) else {answer: 1.0}
    for label, score in scores.items():
        if label not in labels:
            raise AnswerError(f"the teacher answered {label!r}, which is none of the labels {list(labels)}")
        values[list(labels).index(label)] = score
    return values


def check_distributions(answers: Sequence[np.ndarray], first_row: Sequence[int]) -> None:
    """Refuse NaN and what does not sum to one, naming the row; rows of zeros (not answered) pass."""
    for answer, row in zip(answers, first_row, strict=True):
        sums = answer.sum(-1)
        unanswered = (answer == 0).all(-1) if answer.ndim == 2 else np.zeros((), bool)
        wrong = ~(unanswered | ((np.abs(sums - 1) <= SUM_TOLERANCE) & (answer >= 0).all(-1)))  # NaN fails both
        if wrong.any():
            place = f", word {int(np.argmax(wrong))}" if answer.ndim == 2 else ""
            raise AnswerError(
                f"row {row}{place}: the teacher's probabilities are NaN, negative or do not sum to one; what was "
                "labelled before is kept, repair the teacher and call again"
            )


def _labels_shown(answer: Any) -> tuple[str, ...]:
    if isinstance(answer, Mapping) and len(answer) >= 2:
        return tuple(sorted(answer))
    raise PredictorError("the teacher's answers do not show all of its labels; pass labels=[...]")


def _are_spans(answer: Any) -> bool:
    return isinstance(answer, Sequence) and all(
        isinstance(e, Mapping) and {"start", "end"} <= e.keys() for e in answer
    )


def _at_units(row: np.ndarray, units: Sequence[int | None]) -> np.ndarray:
    """The row's probabilities at the positions of its units, zeros where a unit has none."""
    answer = np.zeros((len(units), row.shape[-1]), dtype=np.float32)
    there = [index for index, place in enumerate(units) if place is not None]
    answer[there] = row[[place for place in units if place is not None]]
    return answer


def join_words(words: Sequence[str]) -> tuple[str, list[int]]:
    """The words as one text, and the character at which each begins."""
    starts, length = [], 0
    for word in words:
        starts.append(length)
        length += len(word) + 1
    return " ".join(words), starts


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


# -- tokens


def tokenize(tokenizer: Any, questions: list[Question], max_length: int, **kwargs: Any) -> Any:
    """Texts, pairs or lists of words through a tokenizer, truncated."""
    kwargs |= {"truncation": True, "max_length": max_length}
    if are_pairs(questions):
        return tokenizer([a for a, _ in questions], [b for _, b in questions], **kwargs)
    if isinstance(questions[0], list):
        if not getattr(tokenizer, "is_fast", False):
            raise PredictorError("aligning words with tokens needs a fast tokenizer (tokenizers library)")
        return tokenizer(questions, is_split_into_words=True, **kwargs)
    return tokenizer(questions, **kwargs)


def first_positions(word_ids: Sequence[int | None], n_words: int) -> list[int | None]:
    """The position of every word's first sub-token; None for words that have none."""
    positions: list[int | None] = [None] * n_words
    for place, word in enumerate(word_ids):
        if word is not None and positions[word] is None:
            positions[word] = place
    return positions


def ids_that_are_no_word(tokenizer: Any) -> set[int]:
    """Special token ids, but for the unknown token: that one stands for a word, and a word has an answer."""
    return set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}


def max_length_of(tokenizer: Any, config: Any) -> int:
    """The longest input that both the tokenizer and the model take."""
    text_config = config.get_text_config()
    limit = getattr(text_config, "max_position_embeddings", None) or getattr(text_config, "n_positions", None) or 512
    if getattr(text_config, "model_type", "") in ("roberta", "xlm-roberta", "camembert"):
        limit -= 2  # these count positions from pad_token_id + 1
    return min(int(limit), int(getattr(tokenizer, "model_max_length", limit) or limit))


def _rough_length(question: Question) -> int:
    if isinstance(question, tuple):
        return sum(map(len, question))
    return len(question["input_ids"]) if isinstance(question, dict) else len(question)


def _load(path: str, tokenizer: Any, task: Task | None) -> tuple[Any, Any]:
    from transformers import AutoConfig, AutoTokenizer

    from .models import PLAIN

    task = task or task_of(AutoConfig.from_pretrained(path))
    if task not in PLAIN:
        raise PredictorError(f"{path} does not tell its task; pass task= (one of {list(PLAIN)})")
    return PLAIN[task].from_pretrained(path), tokenizer or AutoTokenizer.from_pretrained(path)
