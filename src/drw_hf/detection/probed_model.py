"""What probing has to know of the protected model: nothing of it is secret, so that a probe needs no key."""

from dataclasses import dataclass
from typing import Any, Self

from ..asking.questions import Cut, recorded_cut
from ..keys.binding import Binding, max_length_of, plain_config
from ..keys.choices import Task
from ..keys.key import WatermarkKey


@dataclass(frozen=True)
class ProbedModel:
    """The public side of a protected model, from its key or from its configuration and tokenizer.

    Attributes
    ----------
    task, labels : str, tuple of str
    vocab_size : int
    special_token_ids : tuple of int
    tokenizer_fingerprint : str or None
        Of the tokenizer that the key was made with.
    cut : Cut or None
        How texts are cut, where a key records it.
    name : str
        What messages call it.
    limit : int or None
        How many tokens the model reads, where that is known.
    """

    task: Task
    labels: tuple[str, ...]
    vocab_size: int
    special_token_ids: tuple[int, ...]
    tokenizer_fingerprint: str | None
    cut: Cut | None
    name: str
    limit: int | None = None

    @classmethod
    def of_key(cls, key: WatermarkKey) -> Self:
        """The public side of a key's model."""
        known = key.binding
        return cls(
            known.task,
            known.labels,
            known.vocab_size,
            known.special_token_ids,
            known.tokenizer_fingerprint,
            recorded_cut(key.settings),
            f"the key {key.fingerprint}",
        )

    @classmethod
    def of_config(cls, model: Any, tokenizer: Any, task: Task | None = None) -> Self:
        """The same without a key: of a model, protected or not, or of its configuration."""
        known, config = Binding.of(model, tokenizer, task=task), plain_config(model)
        return cls(
            known.task,
            known.labels,
            known.vocab_size,
            known.special_token_ids,
            known.tokenizer_fingerprint,
            None,
            f"the model {getattr(config, 'name_or_path', '') or type(config).__name__}",
            limit=max_length_of(tokenizer, config),
        )
