"""Which tokens of a batch count: attended to, not special, and of which text of a pair."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from ..errors import InvalidInputError
from ..keys.arrays import as_tensor, plain
from ..keys.hash_rules import SentenceTokens
from ..keys.key import WatermarkKey

ORDINARY, SPECIAL, SEPARATOR = 0, 1, 2
_Tables = TypeVar("_Tables")


@dataclass(frozen=True, repr=False)
class Query:
    """The inputs of one call, as far as a watermark depends on them; tensors of shape (batch, length)."""

    input_ids: Tensor
    attention_mask: Tensor | None = None
    token_type_ids: Tensor | None = None
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        if self.input_ids is None:
            raise InvalidInputError(
                "a mark hashes token ids, and none were given; pass input_ids (not inputs_embeds alone)"
            )
        if self.input_ids.dim() != 2:
            raise InvalidInputError(f"input_ids has shape {tuple(self.input_ids.shape)}; expected (batch, length)")
        for name, tensor in (("attention_mask", self.attention_mask), ("token_type_ids", self.token_type_ids)):
            if tensor is not None and tensor.shape != self.input_ids.shape:
                raise InvalidInputError(
                    f"{name} has shape {tuple(tensor.shape)}, input_ids {tuple(self.input_ids.shape)}; there "
                    "must be one entry for every token"
                )
        if self.attention_mask is None and self.pad_token_id is None and len(self.input_ids) > 1:
            raise InvalidInputError(
                "without an attention_mask and without a pad_token_id (in the model's config), padding cannot be told "
                "from text; pass attention_mask"
            )

    def rows(self, index: Tensor) -> "Query":
        """The same query, some rows of it."""
        return self._with_each(lambda tensor: tensor[index])

    def to(self, device: torch.device) -> "Query":
        """The same query on a device."""
        given = (self.input_ids, self.attention_mask, self.token_type_ids)
        there = all(tensor is None or tensor.device == device for tensor in given)
        return self if there else self._with_each(lambda tensor: tensor.to(device))

    def _with_each(self, change: Callable[[Tensor], Tensor]) -> "Query":
        tensors: dict[str, Any] = {name: change(one) for name, one in vars(self).items() if torch.is_tensor(one)}
        return replace(self, **tensors)


class TokenView:
    """The tokens of a query as a key sees them; boolean tensors of shape (batch, length).

    ``ordinary`` are words: attended to, and not special. ``first_sentence`` are those of the first text of a pair; it
    is made when it is first asked for.
    """

    def __init__(self, ordinary: Tensor, find_first_sentence: Callable[[], Tensor]) -> None:
        self.ordinary = ordinary
        self._find = find_first_sentence

    @cached_property
    def first_sentence(self) -> Tensor:
        """Which words are of the first text."""
        return self._find()

    def rows(self, index: Tensor) -> "TokenView":
        """The same, some rows of it."""
        return TokenView(self.ordinary[index], lambda: self.first_sentence[index])


def on_device(
    key: WatermarkKey, device: torch.device, make: Callable[[WatermarkKey, torch.device], _Tables]
) -> _Tables:
    """Tables of a key on a device, to be looked up by token id: made once by ``make``, and forgotten with the key.

    Tables are the key, so they live outside the model: no buffer, no state dict and no pickle can carry them away.
    """
    name = make, device
    if name not in key._cache:
        tables = make(key, device)
        if is_in_torch_dispatch_mode():  # fake tensors are nobody else's tables
            return tables
        key._cache[name] = tables
    return key._cache[name]


def token_kinds(key: WatermarkKey, device: torch.device) -> Tensor:
    """For every token id whether it is ordinary, special or a separator."""
    kind = np.full(key.vocab_size, ORDINARY, dtype=np.int8)
    kind[list(key.special_token_ids)] = SPECIAL
    kind[list(key.separator_token_ids)] = SEPARATOR
    return torch.from_numpy(kind).to(device)


def rule_ranks(key: WatermarkKey, device: torch.device) -> Tensor | None:
    """For every token id its rank by the hash rule's scores; None for rules that go by position."""
    scores = key.rule_scores()
    if scores is None:
        return None
    # Ranks are exact in float32, and ties stay ties.
    return torch.from_numpy(np.unique(scores, return_inverse=True)[1].astype(np.float32)).to(device)


def view_tokens(key: WatermarkKey, query: Query) -> TokenView:
    """Tell words from padding and special tokens, and the first text of a pair from the second."""
    ids, attended = plain(query.input_ids), _attended(key, query)
    kind = plain(on_device(key, query.input_ids.device, token_kinds))[ids]
    ordinary = attended & (kind == ORDINARY)

    def first_sentence() -> Tensor:
        place = ordinary.cumsum(-1)
        # The second text begins at the first separator after a word, or where the segment id leaves the first word's.
        boundary = (place > 0) & attended & (kind == SEPARATOR)
        if query.token_type_ids is not None:
            types = plain(query.token_type_ids)
            first_type = (types * (ordinary & (place == 1))).sum(-1)[..., None]
            boundary = boundary | (ordinary & (types != first_type))
        return as_tensor(ordinary & (boundary.cumsum(-1) == 0))

    return TokenView(as_tensor(ordinary), first_sentence)


def hashed_tokens(key: WatermarkKey, query: Query, view: TokenView) -> tuple[Tensor, Tensor]:
    """The token ids an answer is hashed by, and which of them count.

    Shapes are (batch, length) for token tasks and (batch,) for sentence tasks, where the key's rule picks one token.
    """
    if key.task == "token-classification":
        return query.input_ids, view.ordinary
    ids, exists = plain(query.input_ids), plain(view.ordinary).any(-1)
    if ids.shape[-1] == 0:
        return torch.zeros_like(query.input_ids.sum(dim=-1)), as_tensor(exists)
    ranks = on_device(key, query.input_ids.device, rule_ranks)
    scores = None if ranks is None else as_tensor(plain(ranks)[ids])
    position = key.hash_rule.choose(SentenceTokens(view.ordinary, view.first_sentence, scores))
    return query.input_ids.gather(-1, position.unsqueeze(-1)).squeeze(-1), as_tensor(exists)


def attended_tokens(key: WatermarkKey, query: Query) -> Tensor:
    """Which tokens are no padding, by the mask or else by the pad id."""
    return as_tensor(_attended(key, query))


def _attended(key: WatermarkKey, query: Query) -> Any:
    if query.attention_mask is not None:
        return plain(query.attention_mask) != 0
    if query.pad_token_id is None:
        return plain(torch.ones_like(query.input_ids, dtype=torch.bool))
    padding = plain(query.input_ids) == query.pad_token_id
    if query.pad_token_id not in key.special_token_ids and padding.any():
        raise InvalidInputError(
            f"without an attention_mask the pad id {query.pad_token_id} must tell padding from text, but it is an "
            "ordinary token for this key; pass attention_mask"
        )
    return ~padding
