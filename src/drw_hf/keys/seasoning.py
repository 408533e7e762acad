"""Seasoning: a key whose numbers nobody chose, not even its owner.

Whoever may try secrets can try a thousand million, and keep the one that suits a model they want to accuse. A seasoned
key leaves nothing to try. Its owner first commits to a *base secret* and to everything else (C₀), names one exact
future round of a public source of randomness, and has C₀ stamped. When the round is drawn, the secret that marks is

    HKDF-SHA256(salt = the round's value, ikm = the base secret, info = domain ‖ C₀)

which is as secret as the base secret, and as random as the round: nobody could know it before, and for one commitment
there is one. :mod:`drw_hf.evidence` checks the times. What remains is to prepare many commitments and to show the one
that came out well: each costs a stamp and has to be made before the round.
"""

import dataclasses
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from ..checks import unfit
from ..errors import InvalidKeyError
from .binding import tokenizer_digest, weights_digest
from .commitment import commit
from .derivation import SECRET_BYTES, expand, is_hexadecimal
from .kept import NeverPickled
from .rounds import Round, RoundValue

BASE_DOMAIN = b"drw-hf unseasoned key commitment v1"
_SECRET_DOMAIN = b"drw-hf seasoned secret v1"
ANY_TEXTS = "whoever asks a suspect chooses the texts, and does not know the key's numbers when doing so"
_LONGEST_RULE = 2000


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What is fixed, besides the key, before its round is drawn; none of it is secret.

    Attributes
    ----------
    round : Round
        The one exact round whose value seasons the key.
    weights : str
        SHA-256 over the weights of the clean model, as :func:`~drw_hf.keys.binding.weights_digest` computes it.
    tokenizer : str
        SHA-256 over the whole ``tokenizer.json``, by :func:`~drw_hf.keys.binding.tokenizer_digest`.
    statistics : tuple of str
        The versions of the statistics by which a finding may be made.
    texts : str
        The rule by which the texts that a suspect is asked are chosen, in words.
    """

    round: Round
    weights: str
    tokenizer: str
    statistics: tuple[str, ...]
    texts: str = ANY_TEXTS

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistics", tuple(self.statistics))
        if not isinstance(self.round, Round) or not (is_hexadecimal(self.weights) and is_hexadecimal(self.tokenizer)):
            raise InvalidKeyError("a key is seasoned by a Round, for weights and a tokenizer given by their SHA-256")
        if not self.statistics or not all(isinstance(name, str) and name for name in self.statistics):
            raise InvalidKeyError("statistics must name the versions by which findings may be made, at least one")
        if not isinstance(self.texts, str) or not 0 < len(self.texts.strip()) <= len(self.texts) <= _LONGEST_RULE:
            raise InvalidKeyError(f"texts must say how texts are chosen, in words, {_LONGEST_RULE:,} letters at most")

    @classmethod
    def of(
        cls, model: Any, tokenizer: Any, round: Round, *, statistics: tuple[str, ...], texts: str = ANY_TEXTS
    ) -> Self:
        """Terms for a model in memory and its tokenizer."""
        digest = tokenizer_digest(tokenizer)
        if digest is None:
            raise InvalidKeyError(
                "a tokenizer without a tokenizer.json cannot be committed to; give a fast one (AutoTokenizer does)"
            )
        weights = weights_digest(model)
        return cls(round=round, weights=weights, tokenizer=digest, statistics=statistics, texts=texts)

    def to_fields(self) -> dict[str, Any]:
        """The terms as JSON can hold them, and as C₀ covers them."""
        return {**vars(self), "round": vars(self.round).copy(), "statistics": list(self.statistics)}

    @classmethod
    def from_fields(cls, fields: Any) -> Self:
        """What :meth:`to_fields` gave; ``TypeError``, ``KeyError`` or ``InvalidInputError`` for anything else."""
        names = {field.name for field in dataclasses.fields(cls)}
        parts = {field.name for field in dataclasses.fields(Round)}
        if not isinstance(fields, dict) or fields.keys() != names or not isinstance(fields["round"], dict):
            raise TypeError
        if fields["round"].keys() != parts or unfit(fields, {"statistics": list[str]}):
            raise TypeError
        return cls(**{**fields, "round": Round(**fields["round"])})


class Seasoning(NeverPickled):
    """How a key's secret came from a base secret and the value of a public round; it shows and pickles neither.

    Attributes
    ----------
    terms : Terms
        What was fixed before.
    document : dict
        What the source published for the round, by which its value can be verified.
    commitment : str
        C₀, the commitment that was made before the round: 64 hexadecimal digits.
    """

    def __init__(self, base_secret: bytes, terms: Terms, document: Mapping[str, Any], commitment: str) -> None:
        if not isinstance(base_secret, bytes) or len(base_secret) != SECRET_BYTES or not is_hexadecimal(commitment):
            raise InvalidKeyError("a seasoned key comes from UnseasonedKey.season, or from its file")
        self._base_secret, self.commitment = base_secret, commitment
        self.terms, self.document = terms, dict(document)

    @property
    def base_secret(self) -> bytes:
        """The 32 secret bytes that C₀ commits to. They mark nothing; with the round's value they are the key."""
        return self._base_secret

    @cached_property
    def value(self) -> RoundValue:
        """The round's value, with its signature verified as far as that can be done here."""
        return self.terms.round.value_of(self.document)

    @property
    def secret(self) -> bytes:
        """The secret that marks."""
        return seasoned_secret(self._base_secret, self.commitment, self.value.value)

    def belongs_to(self, secret: bytes, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bool:
        """Whether a key with these fields is the one that was committed to, and this secret the one it got."""
        expected = base_commitment(self._base_secret, fields, arrays, self.terms)
        return hmac.compare_digest(expected, self.commitment) and hmac.compare_digest(self.secret, secret)

    def shown(self) -> dict[str, Any]:
        """What the key's commitment covers of it."""
        return {"commitment": self.commitment, "value": self.value.value.hex()}

    def to_fields(self) -> dict[str, Any]:
        """All of it, for the key's file: the base secret is among it."""
        return {
            **self.shown(),
            "base_secret": self._base_secret.hex(),
            "terms": self.terms.to_fields(),
            "document": self.document,
        }

    @classmethod
    def from_fields(cls, fields: Any) -> Self:
        """What :meth:`to_fields` gave; ``TypeError``, ``KeyError`` or a ``ValueError`` for anything else."""
        terms, document = Terms.from_fields(fields["terms"]), fields["document"]
        made = cls(bytes.fromhex(fields["base_secret"]), terms, document, fields["commitment"])
        if made.terms.round.read(document) != document or made.to_fields() != fields:
            raise ValueError
        return made

    def __repr__(self) -> str:
        return f"Seasoning(commitment={self.commitment[:16]!r})"


def base_commitment(secret: bytes, fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], terms: Terms) -> str:
    """C₀: the commitment to a base secret, all settings of the key, and the terms, as 64 hexadecimal digits."""
    return commit(secret, base_fields(fields, arrays, terms), BASE_DOMAIN)


def base_fields(fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], terms: Terms) -> dict[str, Any]:
    """What C₀ covers besides the base secret."""
    return {**fields, "arrays": dict(arrays), "terms": terms.to_fields()}


def seasoned_secret(base_secret: bytes, commitment: str, value: bytes) -> bytes:
    """HKDF-SHA256 of the base secret, with the round's value as its salt and C₀ in its info."""
    return expand(hmac.digest(value, base_secret, "sha256"), _SECRET_DOMAIN + bytes.fromhex(commitment))
