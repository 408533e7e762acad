"""The key that a protected model holds: where it is kept and found, and whether it is the right one."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Self

import torch
from transformers import PreTrainedConfig

from ..errors import (
    ConfigurationError,
    InvalidInputError,
    InvalidKeyError,
    KeyMismatchError,
    MissingKeyError,
    UnseasonedKeyError,
    UnsupportedModelError,
)
from ..keys.binding import Binding, labels_of, vocab_size_of
from ..keys.files import refuse_model_beside_plain_key
from ..keys.kept import PullOptions
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing, load_key_or_ring
from ..keys.unseasoned import UnseasonedKey
from .configuration import WatermarkedConfig
from .mark import RingUsers
from .marking import Keys, users_of


class KeySlot:
    """Where a model keeps its key: shared by shallow and deep copies, empty after pickling.

    A pickle (and so ``torch.save``, a datasets fingerprint, a spawned process) gets the key's fingerprint at most.
    """

    def __init__(self, key: WatermarkKey | KeyRing | None = None, fingerprint: str | None = None):
        self.key = key
        self.fingerprint = fingerprint if key is None else key.fingerprint
        self._facts: ModelFacts | None = None

    def facts_of(self, config: WatermarkedConfig) -> "ModelFacts":
        """What the model of this configuration is, looked up anew when anything in the configuration has changed."""
        facts = self._facts
        if facts is None or not facts.hold(config):
            facts = self._facts = ModelFacts(config)
        return facts

    def __deepcopy__(self, memo: dict) -> "KeySlot":
        return KeySlot(self.key, self.fingerprint)

    def __reduce__(self) -> tuple:
        return KeySlot, (None, self.fingerprint)


class ModelFacts:
    """What a key must fit, and padding is told by, as a protected model's configuration says it.

    Most of what a configuration is asked for costs more than it takes to see that nothing has changed.
    """

    def __init__(self, config: WatermarkedConfig):
        inner = config.victim_config
        if not isinstance(inner, PreTrainedConfig):
            raise ConfigurationError("config.json lacks victim_config, the protected classifier's own; restore it")
        self._inner, self._text = inner, inner.get_text_config()
        self._seen = _snapshot(inner), None if self._text is inner else _snapshot(self._text)
        self.task, self.vocab_size, self.labels = config.task, vocab_size_of(inner), labels_of(inner)
        self.pad_token_id = getattr(self._text, "pad_token_id", None)
        self._fits: Binding | None = None

    def hold(self, config: WatermarkedConfig) -> bool:
        """Whether a configuration still says so."""
        outer, (inner, text) = said_by(config), self._seen
        return (
            outer["victim_config"] is self._inner
            and outer["task"] == self.task
            and said_by(self._inner) == inner
            and (text is None or said_by(self._text) == text)
        )

    def check(self, key: WatermarkKey | KeyRing) -> None:
        """Refuse a key that was made for another model."""
        binding = key.binding
        if binding is self._fits:
            return
        for what, of_key, of_model in (
            ("task", binding.task, self.task),
            ("vocabulary size", binding.vocab_size, self.vocab_size),
            ("label set", binding.labels, self.labels),
        ):
            if of_key != of_model:
                raise KeyMismatchError(
                    f"the key {key.fingerprint} is for another {what}: the key has {of_key!r}, the model "
                    f"{of_model!r}; give this model's key, or make one with WatermarkKey.generate(model, ...)"
                )
        self._fits = binding


def said_by(config: PreTrainedConfig) -> dict[str, Any]:
    """Its attributes, without what transformers does for each one that is asked for."""
    return object.__getattribute__(config, "__dict__")


def _snapshot(config: PreTrainedConfig) -> dict[str, Any]:
    """What it says now, label names included, which may be changed in their place."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in said_by(config).items()}


DISABLED = object()  # in place of a key: nothing is marked
# What `use_key` and `watermark_disabled` set, by model: a new mapping for every change, so that threads and tasks that
# run at the same time never see each other's.
_overrides: ContextVar[dict[KeySlot, Any]] = ContextVar("drw_hf_overrides")


class KeyHolder:
    """A protected model, as far as it is about its key."""

    config: Any
    _key_slot: KeySlot

    @torch.compiler.disable
    def _keys_in_force(self, watermark_key: Keys | None, user: str | Sequence[str] | None = None) -> Any:
        """The call's own key, else the context's, else the model's."""
        if watermark_key is not None or user is not None:
            return self._checked(watermark_key, user)
        keys = _overrides.get({}).get(self._key_slot)
        return keys if keys is DISABLED else self._checked(keys)

    def _checked(self, keys: Any, user: str | Sequence[str] | None = None) -> Keys:
        """The keys that were given, or else the model's own, each for this model; of a ring those of the users."""
        keys = self._key_slot.key if keys is None else keys
        if keys is None:
            which = f" (it was {self._key_slot.fingerprint})" if self._key_slot.fingerprint else ""
            raise MissingKeyError(
                f"this protected model has lost its key{which}: pickling and torch.save leave it behind; load the "
                "model with from_pretrained(..., key=...), or wrap get_base_model() again with from_model"
            )
        keys = users_of(keys, user)
        facts = self._key_slot.facts_of(self.config)
        if isinstance(keys, RingUsers):
            facts.check(keys.ring)
            return keys
        for key in keys if isinstance(keys, list | tuple) else (keys,):
            if not isinstance(key, WatermarkKey):
                raise InvalidInputError(
                    f"expected a WatermarkKey, or a list of them, one for every row; got {type(key).__name__}"
                )
            facts.check(key)
        return keys

    @contextlib.contextmanager
    def watermark_disabled(self) -> Iterator[Self]:
        """Within this context (this thread, this task) the model is the clean one."""
        with self._overridden(DISABLED):
            yield self

    @contextlib.contextmanager
    def use_key(self, key: Keys | KeyRing | None = None, *, user: str | Sequence[str] | None = None) -> Iterator[Self]:
        """Within this context (this thread, this task) answers are marked with ``key``, also through a pipeline.

        With a ring, the model's own or the one given, ``user`` says whose key it is.
        """
        if key is None and user is None:
            raise InvalidInputError("use_key needs a WatermarkKey, or with a ring the user=; got neither")
        with self._overridden(self._checked(key, user)):
            yield self

    @contextlib.contextmanager
    def _overridden(self, value: Any) -> Iterator[None]:
        token = _overrides.set({**_overrides.get({}), self._key_slot: value})
        try:
            yield
        finally:
            _overrides.reset(token)

    def marking_fingerprint(self) -> str:
        """What tells this context's answers from another's: the fingerprints of the keys in force, or ``disabled``."""
        keys = self._keys_in_force(None)
        if keys is DISABLED:
            return "disabled"
        if isinstance(keys, RingUsers):
            keys = keys.keys()
        return " ".join(key.fingerprint for key in ([keys] if isinstance(keys, WatermarkKey) else keys))

    @property
    def key(self) -> WatermarkKey | KeyRing | None:
        """The key, or the ring of keys, this model marks with; None after the model was pickled."""
        return self._key_slot.key


def picked(kwargs: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Some keyword arguments, as far as they were given."""
    return {name: kwargs[name] for name in names if name in kwargs}


def find_key(
    key: WatermarkKey | KeyRing | str | os.PathLike | None,
    passphrase: str | None,
    model: str | os.PathLike,
    kwargs: dict[str, Any],
) -> WatermarkKey | KeyRing | None:
    """The key that was given or saved at a place, or else the one that lies beside a model or where its pointer leads.

    ``kwargs`` are those by which the model is loaded.
    """
    if isinstance(key, str | os.PathLike):
        # The revision and the subfolder are the model's.
        return load_key_or_ring(
            key, passphrase, **picked(kwargs, PullOptions.__annotations__.keys() - {"revision", "subfolder"})
        )
    if key is not None:
        return key
    from ..hub.pull import Place, find_key_beside

    path = find_key_beside(model, Place(str(model), **picked(kwargs, PullOptions.__annotations__)))
    if path is None:
        return None
    if os.path.isdir(model):  # in the cache of a private repository a plain key may lie; here somebody would push it
        refuse_model_beside_plain_key(os.path.join(model, kwargs.get("subfolder", "")))
    return load_key_or_ring(path, passphrase)


def checked_key(config: WatermarkedConfig, task: str, key: Any, replace_key: bool) -> WatermarkKey | KeyRing:
    """The key, if the model is for the task, and the key applies to it and is the one the model was saved with."""
    if config.task != task:
        raise UnsupportedModelError(
            f"this is a model for {config.task or 'an unknown task'}, not for {task}; load it with the class of its "
            "task (WatermarkedModelForSequenceClassification or WatermarkedModelForTokenClassification)"
        )
    if key is None:
        raise MissingKeyError(
            "a protected model does not load without its key; pass key= (a WatermarkKey or the folder it was saved "
            "in, with passphrase= if it is sealed)"
        )
    if isinstance(key, UnseasonedKey):
        raise UnseasonedKeyError(
            f"the key {key.fingerprint} waits for its round of public randomness, {key.terms.round}, and marks "
            "nothing until then; give what key.season returns (drw-hf season KEY --value FILE)"
        )
    if not isinstance(key, WatermarkKey | KeyRing):
        raise InvalidKeyError(f"key must be a WatermarkKey, a KeyRing or a path, not {type(key).__name__}")
    ModelFacts(config).check(key)
    if config.key_commitment not in (None, key.identity) and not replace_key:
        raise KeyMismatchError(
            f"this model was saved with the key {config.key_commitment[:16]}, not with {key.fingerprint}; give the "
            "right key, or pass replace_key=True to protect the model with this one from now on"
        )
    return key
