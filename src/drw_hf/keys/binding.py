"""What a key is bound to: the facts it reads from a model, its configuration and its tokenizer."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict
from weakref import WeakKeyDictionary

import torch

from ..checks import check_at_most, check_choice, whole_number
from ..errors import InvalidKeyError, KeyTooLargeError, UnsupportedModelError
from .choices import TASKS, Task

_fingerprints: WeakKeyDictionary[Any, tuple[int, str]] = WeakKeyDictionary()  # a tokenizer's size and digest
LARGEST_VOCABULARY = 2**24  # the largest there are have a million tokens
_NOT_THE_TOKENIZERS_OWN = ("version", "truncation", "padding")  # of the file, and of the last call
_CLASS_NAME_PARTS = {"ForSequenceClassification": TASKS[0], "ForTokenClassification": TASKS[1]}


class BindingOptions(TypedDict, total=False):
    """What may be said of a model where it, or its tokenizer, does not tell.

    ``special_token_ids`` are never marked; needed where no tokenizer is given. ``separator_token_ids`` are those that
    stand between the texts of a pair: by default the tokenizer's, else all special ids.
    """

    special_token_ids: Iterable[int] | None
    separator_token_ids: Iterable[int] | None
    task: Task | None


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The model that a key belongs to.

    Attributes
    ----------
    task : str
        ``"sequence-classification"`` or ``"token-classification"``.
    labels : tuple of str
        The model's label names, in the order of its outputs.
    vocab_size : int
        How many token ids the model knows.
    special_token_ids : tuple of int
        Ids that are never marked and never hashed.
    separator_token_ids : tuple of int
        Those of them that stand between the two texts of a pair.
    tokenizer_fingerprint : str or None
        Digest of the vocabulary of the tokenizer the key was made with.
    tokenizer_digest : str or None
        Digest of the whole of it, as :func:`tokenizer_digest` computes it. Keys that were made before have none.
    """

    task: Task
    labels: tuple[str, ...]
    vocab_size: int
    special_token_ids: tuple[int, ...]
    separator_token_ids: tuple[int, ...]
    tokenizer_fingerprint: str | None = None
    tokenizer_digest: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(self.labels))  # they are lists, where they come from a key file
        for name in ("special_token_ids", "separator_token_ids"):
            ids = tuple(whole_number(name, index, 0, InvalidKeyError) for index in getattr(self, name))
            object.__setattr__(self, name, ids)
        check_choice("task", self.task, TASKS, InvalidKeyError)
        object.__setattr__(self, "vocab_size", whole_number("vocab_size", self.vocab_size, 1, InvalidKeyError))
        check_at_most("vocab_size", self.vocab_size, LARGEST_VOCABULARY, KeyTooLargeError)
        if not all(isinstance(label, str) for label in self.labels):
            raise InvalidKeyError("labels must be names (strings); give the model's, as its config.id2label has them")
        if len(self.labels) < 2 or len(set(self.labels)) != len(self.labels):
            raise InvalidKeyError(f"labels={self.labels!r}: expected two or more distinct names")
        if not set(self.separator_token_ids) <= set(self.special_token_ids):
            raise InvalidKeyError("separator_token_ids must be among special_token_ids")
        beyond = [index for index in self.special_token_ids if not 0 <= index < self.vocab_size]
        if beyond:
            raise InvalidKeyError(
                f"special_token_ids {beyond} are not in the model's vocabulary of {self.vocab_size}; give the model's "
                "own tokenizer, or resize its embeddings first"
            )

    @classmethod
    def of(
        cls,
        model: Any,
        tokenizer: Any = None,
        *,
        special_token_ids: Iterable[int] | None = None,
        separator_token_ids: Iterable[int] | None = None,
        task: Task | None = None,
    ) -> Self:
        """What a key takes from a model (or its config) and its tokenizer; see :class:`BindingOptions`."""
        config = plain_config(model)
        own = task_of(model) or task_of(config)
        if task is not None and own not in (None, task):
            raise InvalidKeyError(
                f"task={task!r}, but the model is for {own}, and a key for another task than its model's does not "
                "apply to it; leave the task out"
            )
        found = task or own
        if found not in TASKS:
            raise InvalidKeyError(
                f"task={found!r}: the model does not tell its task, or it is not one of {list(TASKS)}; pass task="
            )
        if special_token_ids is None and tokenizer is None:
            raise InvalidKeyError(
                "neither tokenizer= nor special_token_ids= was given, so [CLS], [SEP] and padding would be marked "
                "like words; pass the model's tokenizer"
            )
        if special_token_ids is None:
            special_token_ids = special_ids_of(tokenizer)
        special = _sorted_ids("special_token_ids", special_token_ids)
        if separator_token_ids is None:  # not the unknown token, which stands inside a text
            names = ("sep_token_id", "eos_token_id", "cls_token_id", "bos_token_id")
            between = special if tokenizer is None else [getattr(tokenizer, name, None) for name in names]
            separator_token_ids = [index for index in special if index in between]
        return cls(
            task=found,
            labels=labels_of(config),
            vocab_size=vocab_size_of(config),
            special_token_ids=special,
            separator_token_ids=_sorted_ids("separator_token_ids", separator_token_ids),
            tokenizer_fingerprint=None if tokenizer is None else tokenizer_fingerprint(tokenizer),
            tokenizer_digest=None if tokenizer is None else tokenizer_digest(tokenizer),
        )

    def to_fields(self) -> dict[str, Any]:
        """What a key saves and commits to; keys without the later digest must stay what they were."""
        return {name: value for name, value in vars(self).items() if (name, value) != ("tokenizer_digest", None)}

    @classmethod
    def from_fields(cls, document: Mapping[str, Any]) -> Self:
        """What :meth:`to_fields` gave, among the other fields of a key."""
        names = [one.name for one in fields(cls) if one.name in document or one.name != "tokenizer_digest"]
        return cls(**{name: document[name] for name in names})


def plain_config(model_or_config: Any) -> Any:
    """The configuration of the classifier itself, also from a model and from around a protected one."""
    config = getattr(model_or_config, "config", model_or_config)
    config = getattr(config, "victim_config", None) or config
    if not hasattr(config, "id2label"):
        raise InvalidKeyError(
            f"expected a transformers model or its config, got {type(model_or_config).__name__}; pass model.config"
        )
    return config


def task_of(model_or_config: Any) -> Task | None:
    """The task, from the name of the model's class or from the architectures that its config lists."""
    config = getattr(model_or_config, "config", model_or_config)
    names = [*(cls.__name__ for cls in type(model_or_config).__mro__), *(getattr(config, "architectures", None) or ())]
    return next((task for name in names for part, task in _CLASS_NAME_PARTS.items() if part in name), None)


def labels_of(config: Any) -> tuple[str, ...]:
    """The label names in the order of the model's outputs; raises for regression and multi-label heads."""
    problem = getattr(config, "problem_type", None)
    if problem in ("multi_label_classification", "regression"):
        raise UnsupportedModelError(
            f"problem_type={problem!r} cannot be watermarked: the watermark moves probability between classes of "
            "which exactly one is right; protect a single-label classifier or tagger"
        )
    applied = getattr(config, "function_to_apply", None)
    if applied is not None and "softmax" not in str(applied).lower():
        raise UnsupportedModelError(
            f"function_to_apply={str(applied)!r} in the model's configuration cannot be watermarked: the watermark "
            "moves probability between classes of which exactly one is right, as a softmax gives it; protect a "
            "single-label classifier or tagger"
        )
    id2label = config.id2label or {}
    if not isinstance(id2label, dict) or id2label.keys() != set(range(len(id2label))):
        raise UnsupportedModelError(
            "id2label does not name the labels by their numbers, from 0 on without a gap; correct it in config.json"
        )
    if len(id2label) < 2:
        raise UnsupportedModelError(
            f"num_labels={len(id2label)} cannot be watermarked: of one output transformers makes a sigmoid or a "
            "regression, whatever problem_type says, and the watermark moves probability from one class to the "
            "others, so there must be at least two; protect a single-label classifier or tagger"
        )
    return tuple(str(id2label[index]) for index in range(len(id2label)))


def vocab_size_of(config: Any) -> int:
    """How many token ids the model knows."""
    size = getattr(config.get_text_config(), "vocab_size", None)
    if not isinstance(size, int) or size < 1:
        raise UnsupportedModelError(
            f"{type(config).__name__} has no vocab_size; only models that read token ids can be watermarked"
        )
    return size


def max_length_of(tokenizer: Any, config: Any) -> int:
    """The longest input that both the tokenizer and the model take."""
    text_config = config.get_text_config()
    limit = getattr(text_config, "max_position_embeddings", None) or getattr(text_config, "n_positions", None) or 512
    if getattr(text_config, "model_type", "") in ("roberta", "xlm-roberta", "camembert"):
        limit -= 2  # these count positions from pad_token_id + 1
    return min(int(limit), int(getattr(tokenizer, "model_max_length", limit) or limit))


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """SHA-256 over the vocabulary, the same for slow and fast tokenizers and for every library version."""
    n_tokens, found = _fingerprints.get(tokenizer, (None, ""))
    if n_tokens == len(tokenizer):
        return found
    digest = hashlib.sha256(b"drw-hf tokenizer v1")
    for token, index in sorted(tokenizer.get_vocab().items(), key=lambda item: (item[1], item[0])):
        encoded = token.encode()
        digest.update(index.to_bytes(8, "big") + len(encoded).to_bytes(8, "big") + encoded)
    _fingerprints[tokenizer] = (len(tokenizer), digest.hexdigest())
    return digest.hexdigest()


def tokenizer_digest(tokenizer: Any) -> str | None:
    """SHA-256 over a whole tokenizer: also how it normalises, splits, merges and frames texts; None for a slow one.

    It is of what ``tokenizer.json`` says, without the truncation and padding of the last call, and does not depend on
    how the file is laid out.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if not hasattr(backend, "to_str"):
        return None
    document = json.loads(backend.to_str())
    for name in _NOT_THE_TOKENIZERS_OWN:
        document.pop(name, None)
    merges = document["model"].get("merges")
    if merges:  # a pair was one string once
        document["model"]["merges"] = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(b"drw-hf whole tokenizer v1" + canonical).hexdigest()


def special_ids_of(tokenizer: Any) -> tuple[int, ...]:
    """The special token ids of a tokenizer, sorted: those it names, and those it says are special."""
    added = (index for index, token in tokenizer.added_tokens_decoder.items() if token.special)
    return _sorted_ids("special_token_ids", {*tokenizer.all_special_ids, *added})


def weights_digest(model: Any) -> str:
    """SHA-256 over a model's weights and buffers by name, as they are in memory; of a protected one the clean ones."""
    if hasattr(model, "watermark_disabled"):
        model = model.get_base_model()
    digest = hashlib.sha256(b"drw-hf weights v1")
    for name, tensor in sorted(model.state_dict().items()):
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        for part in (name.encode(), str(tensor.dtype).encode(), str(list(tensor.shape)).encode(), content.data):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()


def _sorted_ids(name: str, ids: Iterable[int]) -> tuple[int, ...]:
    """Token ids as plain ints, each once."""
    ids = list(ids)
    for index in ids:
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise InvalidKeyError(f"{name} must hold token ids (integers), found {type(index).__name__}")
    return tuple(sorted({int(index) for index in ids}))
