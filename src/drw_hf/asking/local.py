"""Models in this process: in memory, in a pipeline, or loaded from a folder or the Hub."""

import contextlib
import dataclasses
import os
from typing import Any

import numpy as np
import torch

from ..errors import ConfigurationError, PredictorError, UnsupportedModelError
from ..keys.binding import labels_of, max_length_of, task_of, tokenizer_fingerprint, vocab_size_of
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from .predictor import Predictor, PredictorOptions
from .questions import Cut, Question, are_tokenised, ids_that_are_no_word, places_of_words, recorded_cut, tokenize


class ModelPredictor(Predictor):
    """A transformers model in this process."""

    labels: tuple[str, ...]

    def __init__(self, model: torch.nn.Module, tokenizer: Any, options: PredictorOptions):
        if tokenizer is None:
            raise PredictorError("a model needs its tokenizer to be asked; pass tokenizer=...")
        self.model, self.tokenizer = model, tokenizer
        own = task_of(model)
        known = options.task or own
        if own and known != own:
            raise ConfigurationError(f"{type(model).__name__} is for {own}; it cannot be asked about {known}")
        if not known:
            raise PredictorError(
                f"{type(model).__name__} does not tell its task; pass task='token-classification' or so"
            )
        self.task = known
        config: Any = model.config
        self.labels = labels_of(config)
        self.name = config.name_or_path or type(model).__name__
        # A protected model's answers depend on what was cut off: it reads no more than its key records.
        key = getattr(model, "key", None)
        recorded = recorded_cut(key.settings) if isinstance(key, WatermarkKey | KeyRing) else None
        cut = options.cut or recorded or Cut()
        lengths = (options.max_length, cut.max_length, recorded and recorded.max_length)
        self.max_length = min([max_length_of(tokenizer, config), *(length for length in lengths if length)])
        self.cut = dataclasses.replace(cut, max_length=self.max_length).by(tokenizer)

    @torch.no_grad()
    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        encoding = self.encode(questions)
        self._check_known(encoding["input_ids"])
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
        answers = []
        for row, units in zip(probabilities, self.units(questions, encoding), strict=True):
            there = np.array([unit is not None for unit in units], dtype=bool)
            answers.append(np.zeros((len(units), row.shape[-1]), dtype=np.float32))
            answers[-1][there] = row[[unit for unit in units if unit is not None]]
        return answers

    def _check_known(self, input_ids: torch.Tensor) -> None:
        """Refuse token ids that the model has no embedding for, which torch calls an index out of range."""
        size, largest = embedding_size(self.model), int(input_ids.max())
        if size is not None and largest >= size:
            raise PredictorError(
                f"{self.name} knows {size} token ids, and the tokenizer it is asked with gave the id {largest}: that "
                "is another model's tokenizer; pass its own (tokenizer=, of a suspect suspect_tokenizer=)"
            )

    def encode(self, questions: list[Question]) -> Any:
        """Padded tensors for the model."""
        if are_tokenised(questions):
            windows = map(self.cut.window, questions)
            rows = zip(questions, windows, strict=True)
            cut = [{name: list(value)[window] for name, value in row.items()} for row, window in rows]
            return self.tokenizer.pad(cut, return_tensors="pt")
        return tokenize(self.tokenizer, questions, self.cut, padding=True, return_tensors="pt")

    def units(self, questions: list[Question], encoding: Any) -> list[list[int | None]]:
        """For every word of every question (or token, of tokenised ones) the position of its answer."""
        places = places_of_words(questions, encoding, ids_that_are_no_word(self.tokenizer), self.cut)
        if not are_tokenised(questions) or getattr(self.tokenizer, "padding_side", "right") == "right":
            return places
        windows = map(self.cut.window, questions)
        shifts = [encoding["input_ids"].shape[1] - (window.stop - window.start) for window in windows]
        return [
            [None if place is None else place + shift for place in row]
            for row, shift in zip(places, shifts, strict=True)
        ]

    def fingerprint(self) -> str | None:
        import xxhash  # datasets brings it along; this names a cache, and hashes gigabytes per second

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
        if (self.cut.side, self.cut.pairs) != ("right", Cut.pairs):  # answers that were kept before stay theirs
            digest.update(f" {self.cut.side} {self.cut.pairs}".encode())
        return digest.hexdigest()

    def to(self, device: torch.device) -> None:
        self.model.to(device)


def embedding_size(model: Any) -> int | None:
    """How many token ids a model has embeddings for; None where it does not tell."""
    found: list[int] = []
    with contextlib.suppress(AttributeError, UnsupportedModelError):
        found.append(vocab_size_of(model.config))
    with contextlib.suppress(AttributeError, NotImplementedError):  # they may be resized behind the config's back
        found.append(int(model.get_input_embeddings().num_embeddings))
    return max(found, default=None)


def is_pipeline(thing: Any) -> bool:
    """Whether this is a transformers pipeline, told by what it has."""
    return hasattr(thing, "preprocess") and hasattr(thing, "model") and hasattr(thing, "tokenizer")


def pipeline_predictor(pipeline: Any, tokenizer: Any, options: PredictorOptions) -> Predictor:
    """The model in a pipeline, which adds truncation and words for people; its answers are its model's."""
    applied = getattr(pipeline, "_postprocess_params", {}).get("function_to_apply")
    if "sigmoid" in str(applied).lower():
        raise UnsupportedModelError(
            "the pipeline was made with function_to_apply='sigmoid', and its scores are no distribution over classes "
            "of which exactly one is right; make it without, or give a single-label classifier"
        )
    return ModelPredictor(pipeline.model, tokenizer or pipeline.tokenizer, options)


def load_predictor(path: str | os.PathLike[str], tokenizer: Any, options: PredictorOptions) -> Predictor:
    """The model in a folder or repository."""
    from .models import load_model, load_tokenizer

    model = load_model(os.fspath(path), task=options.task)
    return ModelPredictor(model, tokenizer or load_tokenizer(os.fspath(path)), options)
