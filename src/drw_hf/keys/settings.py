"""`MarkSettings`: how a model is marked, in one object; a key adds the secret and the model to it."""

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from ..checks import check_at_most, check_choice, in_range, whole_number
from ..errors import DrwError, InvalidKeyError, KeyFileError, KeyTooLargeError
from ..registry import Registry
from .choices import LAWS, SCOPES, Law, Scope
from .hash_rules import RULES, HashRule

PAPERS_MARK = "cosine"
USUAL_MARK = "tilt"
LARGEST_DIMENSION = 2**14  # the paper's is 128, and rows of M are derived by the hundred
_UNREGISTERED = "; update drw_hf, or import the module that registers it"  # what helps whoever loads a key
MARKS: Registry[Any] = Registry("mark")  # of drw_hf.watermark.Mark, which stands above keys


class MarkOptions(TypedDict, total=False):
    """The settings of :class:`MarkSettings` that have a default, as keyword arguments.

    ``hash_rule`` may be a name: for sentence tasks ``"second"`` (the default), ``"rarest"`` or ``"keyed"``. From
    ``strength`` on they are those of :class:`~drw_hf.watermark.tilt.TiltSettings` alone.
    """

    mark: str
    frequency: float
    epsilon: float
    tau: float
    law: Law
    dimension: int
    scope: Scope
    hash_rule: str | HashRule | None
    strength: float
    temperature: float
    budget: float | None
    max_length: int | None
    truncation_side: str
    pair_truncation: str
    margin: float
    margin_budget: float | None


@dataclass(frozen=True, kw_only=True)
class MarkSettings:
    """How answers are marked; no secret.

    A mark with settings of its own has a subclass (:attr:`drw_hf.watermark.Mark.settings_class`), a frozen dataclass
    that adds them as fields with a default; they are saved in the key and covered by its commitment. It names those
    of the fields below that mean nothing to it in ``unused``: they keep their default and are not saved. Settings
    that a mark got ``later`` are not saved either while they have their default, which means what it did before.

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
        The length n of the vectors of law ``"paper"``, 16,384 at most.
    scope : str
        ``"predicted"``: only answers whose unmarked prediction is c* are marked. ``"all"``: every selected answer.
    hash_rule : HashRule or None
        Which token of an input is hashed; None where it does not matter.
    """

    unused: ClassVar[frozenset[str]] = frozenset()
    later: ClassVar[frozenset[str]] = frozenset()

    target: int = 0
    mark: str = PAPERS_MARK
    frequency: float = 16.0
    epsilon: float = 0.2
    tau: float = 0.5
    law: Law = "direct"
    dimension: int = 128
    scope: Scope = "predicted"
    hash_rule: HashRule | None = None

    def __post_init__(self) -> None:
        fields = {field.name: field for field in dataclasses.fields(self)}
        given = [name for name in sorted(self.unused) if getattr(self, name) != fields[name].default]
        if given:
            used = sorted(fields.keys() - self.unused - {"mark"})
            raise InvalidKeyError(f"the mark {self.mark!r} has no {' and no '.join(given)}; its settings are {used}")
        # A finer cosine than 1e3 would need more of the hash than any probe has tokens.
        for name, highest, above in (("frequency", 1e3, True), ("epsilon", 1e3, False), ("tau", 1.0, False)):
            number = in_range(name, getattr(self, name), 0.0, highest, above=above, error=InvalidKeyError)
            object.__setattr__(self, name, number + 0.0)  # −0.0 and 0.0 are the same setting
        check_choice("law", self.law, LAWS, InvalidKeyError)
        check_choice("scope", self.scope, SCOPES, InvalidKeyError)
        for name, least in (("dimension", 1), ("target", 0)):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), least, InvalidKeyError))
        check_at_most("dimension", self.dimension, LARGEST_DIMENSION, KeyTooLargeError)

    def replace(self, **changes: Any) -> Self:
        """The same settings, some of them changed."""
        return dataclasses.replace(self, **changes)

    def to_fields(self) -> dict[str, Any]:
        """What a key saves and commits to, JSON-able; the arrays of the hash rule are kept apart."""
        names = (field.name for field in dataclasses.fields(self))
        fields = {name: getattr(self, name) for name in names if name not in self.unused}
        for name in self.later:  # keys that do without must stay what they were, and so must their commitments
            if fields[name] == type(self).__dataclass_fields__[name].default:
                del fields[name]
        if self.mark == PAPERS_MARK:  # keys did not name their mark when there was one only, and must not change
            del fields["mark"]
        rule = self.hash_rule
        return {**fields, "hash_rule": None if rule is None else {"name": rule.name, "settings": rule.settings()}}


def default_mark(target: Any, options: Mapping[str, Any]) -> str:
    """The mark of a key that is made without naming one.

    It is the paper's where a target class or another setting that only the paper's mark has is given.
    """
    papers = {"epsilon", "law", "dimension", "scope", "hash_rule"}
    given = {name for name, value in options.items() if value is not None}
    return PAPERS_MARK if target is not None or papers & given else USUAL_MARK


def mark_named(name: str, error: type[DrwError] = InvalidKeyError) -> Any:
    """The registered mark of this name, a :class:`drw_hf.watermark.Mark`."""
    importlib.import_module("drw_hf.watermark")  # it registers the marks of the package
    return MARKS.get(name, error, _UNREGISTERED)


def settings_from_fields(fields: Mapping[str, Any], rule_arrays: Mapping[str, np.ndarray]) -> MarkSettings:
    """The settings that :meth:`MarkSettings.to_fields` gave, among the other fields of a key."""
    settings_class = mark_named(fields.get("mark", PAPERS_MARK), KeyFileError).settings_class
    own = {field.name: fields[field.name] for field in dataclasses.fields(settings_class) if field.name in fields}
    rule = own["hash_rule"]
    made = RULES.get(rule["name"], KeyFileError, _UNREGISTERED)(**rule["settings"], **rule_arrays)
    return settings_class(**{**own, "hash_rule": made})
