"""`MarkSettings`: how a model is marked, in one object; a key adds the secret and the model to it.

A key, a key ring, a plan, the accuracy that a mark costs, the law of a test and the profiles of experiments all speak
of these.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Self, TypedDict

from ..checks import check_choice, in_range, whole_number
from ..errors import InvalidKeyError
from .choices import LAWS, SCOPES, Law, Scope
from .hash_rules import HashRule


class MarkOptions(TypedDict, total=False):
    """The settings of :class:`MarkSettings` that have a default, as keyword arguments."""

    mark: str
    frequency: float
    epsilon: float
    tau: float
    law: Law
    dimension: int
    scope: Scope
    hash_rule: str | HashRule | None


@dataclass(frozen=True, kw_only=True)
class MarkSettings:
    """How answers are marked; no secret.

    Attributes
    ----------
    target : int
        The number of the target class c*, whose probability carries the mark.
    mark : str
        The mark, by its registered name; ``"cosine"`` is the paper's.
    frequency : float
        The angular frequency f_w of the cosine over the hash.
    epsilon : float
        The watermark level ε: how far a marked probability moves.
    tau : float
        The selection ratio τ: the share of tokens that are marked.
    law : str
        ``"direct"``: the hashes g(v_k, ·) and g(v_s, ·) of a token are independent uniform draws. ``"paper"``: they
        are projections of a random matrix row, as in the paper.
    dimension : int
        The length n of the vectors of law ``"paper"``.
    scope : str
        ``"predicted"``: only answers whose unmarked prediction is c* are marked. ``"all"``: every selected answer.
    hash_rule : HashRule or None
        Which token of an input is hashed; None where it does not matter.
    """

    target: int = 0
    mark: str = "cosine"
    frequency: float = 16.0
    epsilon: float = 0.2
    tau: float = 0.5
    law: Law = "direct"
    dimension: int = 128
    scope: Scope = "predicted"
    hash_rule: HashRule | None = None

    def __post_init__(self) -> None:
        # A finer cosine than 1e3 would need more of the hash than any probe has tokens.
        for name, highest, above in (("frequency", 1e3, True), ("epsilon", 1e3, False), ("tau", 1.0, False)):
            number = in_range(name, getattr(self, name), 0.0, highest, above=above, error=InvalidKeyError)
            object.__setattr__(self, name, number + 0.0)  # −0.0 and 0.0 are the same setting
        check_choice("law", self.law, LAWS, InvalidKeyError)
        check_choice("scope", self.scope, SCOPES, InvalidKeyError)
        whole_number("dimension", self.dimension, 1, InvalidKeyError)
        whole_number("target", self.target, 0, InvalidKeyError)

    def replace(self, **changes: Any) -> Self:
        """The same settings, some of them changed."""
        return dataclasses.replace(self, **changes)
