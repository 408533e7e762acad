"""Which token an input is hashed by: small named objects that a key keeps.

A tagger is hashed token by token. A sentence classifier gives one answer to a whole text, and its rule picks the one
token whose hash decides how that answer is marked. The rule belongs to the secret: whoever knows it knows where to
look, so it is saved in the key and nowhere else.

To add a rule, subclass :class:`HashRule`, decorate it with :func:`register_hash_rule` and pass an instance as
``hash_rule=`` when a key is made; the module that registers it must be imported wherever the key is loaded.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch

from ..checks import check_choice
from ..errors import InvalidKeyError, KeySerializationError
from ..registry import Registry
from .arrays import as_tensor, plain
from .commitment import encode
from .derivation import SECRET_BYTES, is_hexadecimal, order_from

RULES: Registry[type["HashRule"]] = Registry("hash rule")


@dataclass(frozen=True)
class SentenceTokens:
    """What a rule may look at: a batch of texts, all tensors of shape (batch, length).

    ``ordinary`` is true where a token was attended to and is not special; ``first_sentence`` where it moreover belongs
    to the first text of a pair (everywhere, for single texts). ``scores`` are the rule's own
    :meth:`HashRule.token_scores`, looked up for every token.
    """

    ordinary: torch.Tensor
    first_sentence: torch.Tensor
    scores: torch.Tensor | None


class HashRule(ABC):
    """Picks the token by which an input is hashed."""

    name: ClassVar[str]
    task: ClassVar[str] = "sequence-classification"

    def token_scores(self, vocab_size: int, order: Callable[[], np.ndarray]) -> np.ndarray | None:
        """A number for every token id, from which :meth:`choose` picks; None for rules that go by position.

        ``order()`` gives every token a secret number, uniform on [0, 1), in a domain of the key used for nothing else.
        """
        return None

    @abstractmethod
    def choose(self, tokens: SentenceTokens) -> torch.Tensor:
        """The position of the chosen token in every row; rows without ordinary tokens are ignored by the caller."""

    def settings(self) -> dict[str, Any]:
        """JSON-able parameters, as the constructor takes them."""
        return {}

    def arrays(self) -> dict[str, np.ndarray]:
        """Array parameters, as the constructor takes them."""
        return {}

    def check(self, vocab_size: int) -> None:  # noqa: B027 (most rules fit any vocabulary)
        """Raise :class:`~drw_hf.errors.InvalidKeyError` where the rule does not fit the vocabulary."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return encode([self.settings(), self.arrays()]) == encode([other.settings(), other.arrays()])

    __hash__ = None  # type: ignore[assignment]  # typeshed gives every object a hash; rules have none


def register_hash_rule(rule: type[HashRule]) -> type[HashRule]:
    """Make a rule known by its name, so that keys which use it can be loaded."""
    return RULES.add(rule.name, rule, InvalidKeyError)


def resolve_hash_rule(rule: "str | HashRule | None", task: str, usual: str = "second") -> HashRule:
    """The rule a user named, or the usual one: for token tasks always ``token``."""
    if rule is None:
        rule = "token" if task == "token-classification" else usual
    if isinstance(rule, str):
        check_choice("hash_rule", rule, list(RULES), InvalidKeyError)
        rule = RULES.get(rule)()
    if not isinstance(rule, HashRule):
        raise InvalidKeyError(f"hash_rule must be a name or a HashRule, not {type(rule).__name__}")
    if rule.task != task:
        names = sorted(name for name, known in RULES.items() if known.task == task)
        raise InvalidKeyError(f"hash_rule={rule.name!r} is for {rule.task}; for {task} choose one of {names}")
    return rule


@register_hash_rule
class TokenRule(HashRule):
    """Token tasks: every token is hashed by itself."""

    name = "token"
    task = "token-classification"

    def choose(self, tokens: SentenceTokens) -> torch.Tensor:
        raise NotImplementedError("a tagger hashes every token; there is none to choose")


@register_hash_rule
class EveryRule(HashRule):
    """Sentence tasks: all tokens of the text count, as for the mark ``tilt``."""

    name = "every"

    def choose(self, tokens: SentenceTokens) -> torch.Tensor:
        raise NotImplementedError("every token counts; there is none to choose")


@register_hash_rule
class SecondRule(HashRule):
    """The paper's rule: the second ordinary token of the first sentence, or its only one."""

    name = "second"

    def choose(self, tokens: SentenceTokens) -> torch.Tensor:
        words = plain(tokens.first_sentence)
        place = words.cumsum(-1)
        chosen = words & ((place == 2) | (place[:, -1:] == 1))
        return as_tensor((1 * chosen).argmax(-1))


@dataclass(frozen=True, repr=False, eq=False)
class _FrequencyRule(HashRule):
    """A rule that may know how often every token occurs in the owner's traffic."""

    frequencies: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.frequencies is not None:
            counts = np.array(self.frequencies, dtype=np.float64)  # a copy, which does not change with the caller's
            counts.flags.writeable = False
            if counts.ndim != 1 or not np.isfinite(counts).all() or (counts < 0).any():
                raise InvalidKeyError("frequencies must be one finite count ≥ 0 for every token id")
            object.__setattr__(self, "frequencies", counts)

    def arrays(self) -> dict[str, np.ndarray]:
        return {} if self.frequencies is None else {"frequencies": self.frequencies}

    def check(self, vocab_size: int) -> None:
        if self.frequencies is not None and len(self.frequencies) != vocab_size:
            raise InvalidKeyError(
                f"frequencies has {len(self.frequencies)} entries, but the model's vocabulary has {vocab_size}; "
                "give one count for every token id"
            )

    def choose(self, tokens: SentenceTokens) -> torch.Tensor:
        assert tokens.scores is not None  # rules of this kind always have token_scores
        return tokens.scores.masked_fill(~tokens.ordinary, float("-inf")).argmax(dim=-1)


@register_hash_rule
class RarestRule(_FrequencyRule):
    """The rarest token of the input: the least frequent one, or without ``frequencies`` the one of highest id.

    Vocabularies are built by frequency, so a high id is a rare token. This gives about ten times as many distinct
    hash values as ``second``, and common words that a thief prepends to every query do not fix it. One word rarer than
    all others does: against a thief who may know the rule, take ``keyed`` or, better, the mark ``tilt``.
    """

    name = "rarest"

    def token_scores(self, vocab_size: int, order: Callable[[], np.ndarray]) -> np.ndarray:
        rank = np.arange(vocab_size, dtype=np.float64)
        if self.frequencies is not None:
            rank[np.argsort(-self.frequencies, kind="stable")] = np.arange(vocab_size)
        return rank


@register_hash_rule
class KeyedRule(_FrequencyRule):
    """The token that comes first in a secret order, common tokens only where there is nothing else.

    Common are, without ``frequencies``, the lowest tenth of the ids; with them, the most frequent tokens that together
    make half of all occurrences. A thief cannot know which token of a text counts, but one who compares some hundred
    words by the answers to pairs of them finds a word that, put into every query, is mostly the one that counts.

    Parameters
    ----------
    frequencies : array of float, optional
        How often every token id occurs in the owner's traffic.
    order_key : str, optional
        64 hexadecimal digits from which the order comes instead of the key's own secret, so that keys can share it: a
        :class:`~drw_hf.keys.KeyRing` sets it. It is as secret as the key: it is saved with it, covered by its
        commitment, not shown and not pickled.
    """

    name = "keyed"
    _order_key: str | None  # no field: what walks through dataclasses must not find it

    def __init__(self, frequencies: Any = None, order_key: str | None = None) -> None:
        super().__init__(frequencies)
        if order_key is not None and not is_hexadecimal(order_key):
            raise InvalidKeyError(f"order_key must be {2 * SECRET_BYTES} hexadecimal digits in lower case, or None")
        object.__setattr__(self, "_order_key", order_key)

    @property
    def order_key(self) -> str | None:
        """What the order comes from, if not from the key's own secret."""
        return self._order_key

    def settings(self) -> dict[str, Any]:
        return {} if self._order_key is None else {"order_key": self._order_key}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self._order_key is not None:
            raise KeySerializationError(
                "a KeyedRule with an order key cannot be pickled: the pickle would hold a secret in the clear; save "
                "the key that it belongs to with save_pretrained"
            )
        return super().__reduce_ex__(protocol)

    def token_scores(self, vocab_size: int, order: Callable[[], np.ndarray]) -> np.ndarray:
        common = np.arange(vocab_size) < vocab_size // 10
        if self.frequencies is not None:
            by_frequency = np.argsort(-self.frequencies, kind="stable")
            cumulated = np.cumsum(self.frequencies[by_frequency])
            common[by_frequency] = cumulated - self.frequencies[by_frequency] < cumulated[-1] / 2
        secret_order = order() if self._order_key is None else order_from(bytes.fromhex(self._order_key), vocab_size)
        return -(secret_order + common)
