"""From texts to marked answers, many at once: for whoever asked, and for the log."""

import logging
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers.pipelines.token_classification import AggregationStrategy, TokenClassificationPipeline

from ..asking.local import ModelPredictor
from ..asking.log_lines import Answered, Served
from ..asking.predictor import PredictorOptions
from ..asking.questions import Question, tokenize
from ..errors import KeyMismatchError, UnsupportedModelError
from ..keys.binding import tokenizer_fingerprint
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from .protocol import Text, ranked

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Job:
    """One text of a request."""

    text: Text
    user: str | None
    parameters: Any


class Answer(NamedTuple):
    """What goes to the client, and what into the log."""

    public: list[dict[str, Any]]
    served: Served


TOO_LONG = Answer([], Served("", []))  # said of a text that would have to be cut, and may not be


class Answerer:
    """A protected model and its tokenizer, which answer batches of texts of different users.

    The mark is never switched off here, and no job says by which key it is marked: of a ring it is the user's.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        key = getattr(model, "key", None)
        if not isinstance(key, WatermarkKey | KeyRing):
            raise UnsupportedModelError(
                f"{type(model).__name__} is no protected model with its key, and others are not served; protect it "
                "with WatermarkedModelForSequenceClassification.from_model(model, key=key), or the class for taggers"
            )
        made_with = key.binding.tokenizer_fingerprint
        if made_with is not None and made_with != tokenizer_fingerprint(tokenizer):
            raise KeyMismatchError(
                f"the key {key.fingerprint} was made with another tokenizer; give the tokenizer of the protected model"
            )
        self.model, self.tokenizer, self.key = model.eval(), tokenizer, key
        asked = ModelPredictor(model, tokenizer, PredictorOptions())  # cuts texts as the key records
        self.cut, self.max_length = asked.cut, asked.max_length
        self.task, self.labels, self.label_kind = asked.task, asked.labels, model.config.label_kind
        self._are_rounded = bool(model.config.digits) or self.label_kind == "hard"
        self._inputs = [name for name in tokenizer.model_input_names if name != "special_tokens_mask"]
        self._device = next(parameter.device for parameter in model.parameters())
        self._pipeline = None
        if self.task == "token-classification":
            if not getattr(tokenizer, "is_fast", False):
                raise UnsupportedModelError("a tagger is served with a fast tokenizer, which tells where words begin")
            self._pipeline = TokenClassificationPipeline(model=model, tokenizer=tokenizer)

    def answer(self, jobs: Sequence[Job]) -> list[Answer | None]:
        """Answers to some texts; None where one could not be answered."""
        answers: list[Answer | None] = [None] * len(jobs)
        for is_pair in (False, True):  # tokenizers take one kind at a time
            places = [place for place, job in enumerate(jobs) if isinstance(job.text, tuple) == is_pair]
            if places:
                for place, answer in zip(places, self._safely([jobs[place] for place in places]), strict=True):
                    answers[place] = answer
        return answers

    def _safely(self, jobs: list[Job]) -> list[Answer | None]:
        """The answers; if they fail together, each by itself, so that nobody is let down by a neighbour."""
        try:
            return list(self._answers(jobs))
        except Exception as error:
            if len(jobs) > 1:
                return [answer for job in jobs for answer in self._safely([job])]
            logger.error("a text was not answered: %s", type(error).__name__)  # the error itself may hold the text
            return [None]

    @torch.inference_mode()
    def _answers(self, jobs: list[Job]) -> list[Answer]:
        questions: list[Question] = [job.text for job in jobs]
        spans = {"return_offsets_mapping": True, "return_special_tokens_mask": True} if self._pipeline else {}
        encoding = tokenize(self.tokenizer, questions, self.cut, padding=True, return_tensors="pt", **spans)
        inputs = {name: encoding[name].to(self._device) for name in self._inputs if name in encoding}
        users = [job.user for job in jobs]
        whose = self.model.use_key(user=users) if isinstance(self.key, KeyRing) else nullcontext()
        with whose:
            logits = self.model(**inputs).logits
        if self._pipeline is not None:
            return [self._of_words(job, row, encoding, logits) for row, job in enumerate(jobs)]
        scores = in_json(logits.float().softmax(-1).cpu().numpy(), self._are_rounded)
        whole = [self._is_whole(job, mask) for job, mask in zip(jobs, encoding["attention_mask"], strict=True)]
        rows = zip(jobs, scores, whole, strict=True)
        return [self._of_text(job, its) if is_whole else TOO_LONG for job, its, is_whole in rows]

    def _is_whole(self, job: Job, mask: torch.Tensor) -> bool:
        """Whether the text was read to its end, where that was asked for."""
        if job.parameters.get("truncate", True) or mask.sum() < self.max_length:
            return True
        columns = [job.text] if isinstance(job.text, str) else job.text
        return len(self.tokenizer(*columns, verbose=False)["input_ids"]) <= self.max_length

    def _of_text(self, job: Job, scores: list[float]) -> Answer:
        public = ranked(self.labels, scores, job.parameters.get("top_k"))
        answered: Answered = ranked(self.labels, scores, 1)[0]["label"] if self.label_kind == "hard" else scores
        text = job.text if isinstance(job.text, str) else list(job.text)
        return Answer(public, Served(text, answered, job.user))

    def _of_words(self, job: Job, row: int, encoding: Any, logits: torch.Tensor) -> Answer:
        assert self._pipeline is not None and isinstance(job.text, str)
        there = encoding["attention_mask"][row].bool()
        its: dict[str, Any] = {"logits": logits[row].float().cpu()[there][None], "sentence": job.text}
        for name in ("input_ids", "offset_mapping", "special_tokens_mask"):
            its[name] = encoding[name][row][there][None]
        given = job.parameters
        strategy = AggregationStrategy(given.get("aggregation_strategy", "none"))
        found = self._pipeline.postprocess([its], strategy, given.get("ignore_labels"))
        public = [
            {name: in_json(value, self._are_rounded) if name == "score" else value for name, value in entity.items()}
            for entity in found
        ]
        probabilities = its["logits"][0].softmax(-1).numpy()
        spans = its["offset_mapping"][0].tolist()
        ordinary = (its["special_tokens_mask"][0] == 0).tolist()
        answered: list[Any] = []
        for word in re.finditer(r"\S+", job.text):
            first = first_in(word.span(), spans, ordinary)
            if first is None:  # cut off
                answered.append(None)
                continue
            best = int(probabilities[first].argmax())
            label = self.labels[best]
            answered.append(
                label if self.label_kind == "hard" else [label, in_json(probabilities[first, best], self._are_rounded)]
            )
        return Answer(public, Served(job.text, answered, job.user))


def first_in(word: tuple[int, int], spans: list[list[int]], ordinary: list[bool]) -> int | None:
    """The first token of a word, of tokens with these spans of characters."""
    for place, (start, end) in enumerate(spans):
        if ordinary[place] and start < word[1] and end > word[0]:
            return place
    return None


def in_json(scores: Any, are_rounded: bool = False) -> Any:
    """Scores with no more digits than they have: 0.973, and not 0.9729999899864197.

    Of those that the mark rounds, the softmax of their logarithms leaves the seventh digit uncertain.
    """
    if np.ndim(scores):
        return [in_json(one, are_rounded) for one in scores]
    return round(float(scores), 6) if are_rounded else float(str(np.float32(scores)))
