"""`WatermarkKey`: the secret by which an owner marks a model's answers and finds the mark again."""

import dataclasses
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Unpack

import numpy as np
import torch

from ..checks import class_number
from ..errors import InvalidKeyError, KeyMismatchError, KeyTooLargeError
from . import derivation
from .binding import Binding, BindingOptions, plain_config
from .choices import Law, Scope, Task
from .commitment import check_encodable, commit
from .files import KEY, Content, FileKind
from .frames import forgets_locals
from .hash_rules import HashRule, resolve_hash_rule
from .kept import KeptSecret, checked_secret
from .seasoning import Seasoning
from .settings import PAPERS_MARK, MarkOptions, MarkSettings, default_mark, mark_named, settings_from_fields

if TYPE_CHECKING:
    from ..asking.options import AskingOptions
    from ..planning.fit import Fit

_RULE_ARRAY = "rule."  # what the names of the hash rule's arrays begin with
_HARMLESS = {"identity", "fitted"}  # in a key's cache: nobody has seen more than the fingerprint, or how it was fitted
_Value = TypeVar("_Value")


class KeyOptions(MarkOptions, BindingOptions, total=False):
    """The keyword arguments by which keys and rings are made: :class:`MarkOptions` and :class:`BindingOptions`."""


class _Part(property, Generic[_Value]):
    """A read-only attribute of a key that is one of its settings, or of its binding."""

    def __init__(self, path: str) -> None:
        super().__init__(attrgetter(path))

    if TYPE_CHECKING:

        def __get__(self, key: Any, owner: type | None = None) -> _Value: ...  # type: ignore[override]  # a key asks


def now() -> str:
    """The time, as keys and rings record it (UTC, ISO 8601)."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class WatermarkKey(KeptSecret):
    """The secret of a watermark, how answers are marked with it, and the model it is bound to.

    Make one with :meth:`generate` (or :meth:`from_arrays`), keep it with :meth:`save_pretrained`. A key is frozen; it
    shows only its fingerprint when printed or logged, cannot be pickled, and copying returns it itself.

    Attributes
    ----------
    secret : bytes
        32 bytes, from which every random number of the key is derived.
    settings, binding : MarkSettings, Binding
        How answers are marked, and the model it belongs to. Their attributes (``target``, ``labels`` ...) are the
        key's too.
    key_id, created_at : str
        A random name, so that rotated keys can be told apart, and when the key was made (UTC, ISO 8601).
    arrays : mapping or None
        The arrays that :meth:`from_arrays` was given.
    seasoning : Seasoning or None
        Of a key that :meth:`UnseasonedKey.season` made: how its secret came from public randomness.
    """

    kind: ClassVar[FileKind] = KEY

    secret: bytes
    settings: MarkSettings
    binding: Binding
    key_id: str = field(default_factory=lambda: secrets.token_hex(8))
    created_at: str = field(default_factory=now)
    arrays: Mapping[str, np.ndarray] | None = None
    seasoning: Seasoning | None = None
    # What was derived, as secret as the key, and never saved; any of it but _HARMLESS makes the key a committed one.
    _cache: dict[Any, Any] = field(default_factory=dict, init=False)

    mark = _Part[str]("settings.mark")
    target = _Part[int]("settings.target")
    frequency = _Part[float]("settings.frequency")
    epsilon = _Part[float]("settings.epsilon")
    tau = _Part[float]("settings.tau")
    law = _Part[Law]("settings.law")
    dimension = _Part[int]("settings.dimension")
    scope = _Part[Scope]("settings.scope")
    hash_rule = _Part[HashRule]("settings.hash_rule")
    task = _Part[Task]("binding.task")
    labels = _Part[tuple[str, ...]]("binding.labels")
    vocab_size = _Part[int]("binding.vocab_size")
    special_token_ids = _Part[tuple[int, ...]]("binding.special_token_ids")
    separator_token_ids = _Part[tuple[int, ...]]("binding.separator_token_ids")
    tokenizer_fingerprint = _Part[str | None]("binding.tokenizer_fingerprint")
    tokenizer_digest = _Part[str | None]("binding.tokenizer_digest")

    def __post_init__(self) -> None:
        object.__setattr__(self, "secret", checked_secret(self.secret))
        mark = mark_named(self.mark)
        rule = resolve_hash_rule(self.settings.hash_rule, self.task, mark.hash_rule)
        rule.check(self.vocab_size)
        if rule is not self.settings.hash_rule:
            object.__setattr__(self, "settings", self.settings.replace(hash_rule=rule))
        if self.target >= self.num_labels:
            raise InvalidKeyError(f"target={self.target}: the model has {self.num_labels} labels, counted from 0")
        if type(self.settings) is not mark.settings_class:
            raise InvalidKeyError(
                f"the mark {mark.name!r} needs its settings as {mark.settings_class.__name__}, not as "
                f"{type(self.settings).__name__}"
            )
        if mark.settings_class is not MarkSettings:  # those of the package's own have been checked one by one
            check_encodable(self.settings.to_fields())
        mark.check(self.settings, self.binding)
        if self.seasoning is not None and not self.seasoning.belongs_to(self.secret, *self._unseasoned_fields()):
            raise InvalidKeyError("this seasoning is of another key; make the key with UnseasonedKey.season")
        if self.arrays is None:
            return
        if self.law != "paper":
            raise InvalidKeyError(f"law={self.law!r} has no arrays; only keys of law='paper' are made from arrays")
        n, shapes = self.dimension, {name: array.shape for name, array in self.arrays.items()}
        if shapes != {"v_k": (n,), "v_s": (n,), "M": (self.vocab_size, n)}:
            raise InvalidKeyError(
                f"arrays of shapes {shapes}: expected v_k and v_s of length n and M of shape ({self.vocab_size}, n), "
                "a row for every token id of the model"
            )
        for name, array in self.arrays.items():
            if array.dtype not in (np.float32, np.float64) or not np.isfinite(array).all():
                raise InvalidKeyError(f"{name} must hold finite numbers as float32 or float64, not {array.dtype}")
            array.flags.writeable = False
        object.__setattr__(self, "arrays", MappingProxyType(dict(self.arrays)))

    # -- making one

    @classmethod
    @forgets_locals
    def generate(
        cls,
        model: Any,
        *,
        target: str | int | None = None,
        tokenizer: Any = None,
        secret: bytes | None = None,
        **options: Unpack[KeyOptions],
    ) -> Self:
        """Make a fresh key for a model.

        Parameters
        ----------
        model : PreTrainedModel or PreTrainedConfig
            What is to be protected: it gives the vocabulary, the labels and (by its class or
            ``config.architectures``) the task.
        target : str or int, optional
            The target class c* of the paper's mark, by label name or number. Without it, and without another setting
            that only the paper's mark has, the mark is ``"tilt"``, which every class carries.
        tokenizer : PreTrainedTokenizerBase, optional
            Names the special tokens, and lets the key recognise its tokenizer later.
        secret : bytes, optional
            32 bytes to derive the key from; by default fresh from the operating system.
        **options
            The settings. Of the mark ``"tilt"``, as :class:`~drw_hf.watermark.tilt.TiltSettings` has them:
            ``strength``, ``temperature``, ``tau``, ``frequency``; :meth:`fit` chooses the first two. Of the mark
            ``"cosine"``, the paper's, as :class:`MarkSettings` has them: ``frequency``, ``epsilon``, ``tau``,
            ``law``, ``dimension``, ``scope``, ``hash_rule`` (a rule or its name: ``"second"``, ``"rarest"`` or
            ``"keyed"`` for sentence tasks). ``mark`` names one. And what the model or a tokenizer does not tell:
            ``special_token_ids`` (needed without a tokenizer), ``separator_token_ids`` (those that stand between the
            texts of a pair), ``task``.

        Examples
        --------
        >>> from transformers import BertConfig
        >>> from drw_hf import WatermarkKey
        >>> config = BertConfig(vocab_size=100, architectures=["BertForSequenceClassification"])
        >>> key = WatermarkKey.generate(config, target="LABEL_1", special_token_ids=[0, 1, 2], epsilon=0.1)
        >>> key.mark, key.target, key.target_label, key.task
        ('cosine', 1, 'LABEL_1', 'sequence-classification')
        >>> WatermarkKey.generate(config, special_token_ids=[0, 1, 2], strength=0.3, temperature=1.4).mark
        'tilt'
        """
        return cls(secret=checked_secret(secret), **_settings_and_binding(model, target, tokenizer, options))

    @classmethod
    @forgets_locals
    def from_arrays(
        cls,
        *,
        v_k: Any,
        v_s: Any,
        M: Any,
        config: Any,
        target: str | int | None,
        tokenizer: Any = None,
        secret: bytes | None = None,
        **options: Unpack[KeyOptions],
    ) -> Self:
        """A key in the paper's own form, made elsewhere: phase vector, selection vector and token matrix.

        The arrays are kept as they are, saved in a safetensors file beside the key's JSON and covered by the
        commitment. ``secret`` (32 fresh bytes by default) serves for the rest: hard-label draws, the rule ``keyed``,
        the commitment. The other parameters are those of :meth:`generate`, but with the paper's defaults:
        ``law="paper"``, ``scope="all"``.
        """
        arrays = {"v_k": _as_array(v_k, "v_k", 1), "v_s": _as_array(v_s, "v_s", 1), "M": _as_array(M, "M", 2)}
        papers: KeyOptions = {
            "mark": PAPERS_MARK,
            "law": "paper",
            "scope": "all",
            "dimension": len(arrays["v_k"]),
        }
        parts = _settings_and_binding(config, target, tokenizer, {**papers, **options})
        return cls(secret=checked_secret(secret), arrays=arrays, **parts)

    @forgets_locals
    def replace(self, **changes: Any) -> Self:
        """A new key with the same secret and some other parameters, to compare settings; it has its own commitment.

        Changed, a seasoned key is none any more: its settings are part of what was committed to before the round.
        """
        parts: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        if changes:
            parts["seasoning"] = None
        for part in ("settings", "binding"):
            names = changes.keys() & {one.name for one in dataclasses.fields(parts[part])}
            if names:
                parts[part] = dataclasses.replace(parts[part], **{name: changes.pop(name) for name in names})
        made = type(self)(**{**parts, **changes})
        return made.as_committed() if self.committed and made.secret == self.secret else made

    @forgets_locals
    def fit(
        self,
        model: Any,
        data: Any,
        tokenizer: Any,
        *,
        budget: float = 0.3,
        margin_budget: float = 0.0,
        temperature: float | None = None,
        keys: int = 20,
        label_column: str | None = None,
        **asking: Unpack["AskingOptions"],
    ) -> Self:
        """A new key of the mark ``"tilt"``, with the same secret and the strength that an accuracy budget allows.

        Temperature and strength are fitted to the clean model's answers and to throwaway keys with fresh secrets; the
        numbers of this key are never read. What was found is :attr:`fitted` of the new key.

        Parameters
        ----------
        model : PreTrainedModel or str
            The model to protect, in memory or by its path or Hub id. A protected one is asked without its mark.
        data : Dataset or list
            Texts (or pairs, or lists of words) like those it will be asked, none of which it was trained on, with the
            right labels in a column.
        tokenizer : PreTrainedTokenizerBase
            The model's tokenizer.
        budget : float
            The accuracy that the mark may cost on average over keys, in points: 0.3 is 3 answers of 1,000. Two
            standard errors are left free, since the cost is known from a sample.
        margin_budget : float
            The part of the budget that is kept for drawing close calls, for services that give hard labels and log
            them: 0.1 is a good choice there. Soft answers are never drawn, and are tilted less by that part.
        temperature : float, optional
            The model's calibration temperature, where ``data`` has no labels to fit it by. The cost is then marked as
            unreliable.
        keys : int
            How many throwaway keys the cost is averaged over; 20 or more.
        label_column : str, optional
            The column of right labels; by default found by its usual name.
        **asking
            How the model is asked: :class:`drw_hf.asking.AskingOptions`.

        Raises
        ------
        InvalidKeyError
            For a :attr:`committed` key, whose settings can no longer be chosen, and for keys of another mark.
        InvalidInputError
            For data without labels where ``temperature`` is not given either.
        """
        from ..planning.fit import fit_tilt

        if self.committed:
            raise InvalidKeyError(
                f"the key {self.fingerprint} is committed: its commitment was shown, it was saved, loaded or put into "
                "a model, or its numbers were read, and what is chosen after that proves nothing; make a new key and "
                "fit it before it is used: WatermarkKey.generate(...).fit(..., budget=...)"
            )
        found = fit_tilt(
            model,
            data,
            tokenizer,
            budget=budget,
            margin_budget=margin_budget,
            temperature=temperature,
            keys=keys,
            label_column=label_column,
            like=self,
            **asking,
        )
        made = self.replace(settings=found.settings)
        made._cache["fitted"] = found
        return made

    # -- what it gives

    @property
    def target_label(self) -> str:
        """The name of the target class."""
        return self.labels[self.target]

    @property
    def num_labels(self) -> int:
        """The number m of classes."""
        return len(self.labels)

    @property
    def phase_table(self) -> np.ndarray:
        """The phase hash g(v_k, ·) by token id, float64."""
        return self._tables()[0]

    @property
    def selection_table(self) -> np.ndarray:
        """The selection hash g(v_s, ·) by token id, float64; a token is selected where it is at most τ."""
        return self._tables()[1]

    def entries(self, token_ids: Any) -> tuple[np.ndarray, np.ndarray]:
        """Phase and selection hashes of some tokens, without deriving the tables of the whole vocabulary."""
        token_ids = self.checked_ids(token_ids)
        if self.law == "direct":
            return derivation.direct_entries(self.secret, token_ids)
        if self.arrays is None:
            return derivation.paper_entries(self.subkey(derivation.MATRIX), token_ids, *self._vectors())
        v_k, v_s = self._vectors()
        return derivation.in_chunks(lambda ids: derivation.project(self._matrix_rows(ids), v_k, v_s), token_ids)

    def checked_ids(self, token_ids: Any) -> np.ndarray:
        """Token ids in one dimension, int64; raises for ids beyond the vocabulary of this key."""
        token_ids = np.asarray(token_ids, dtype=np.int64).ravel()
        if token_ids.size and not (0 <= token_ids.min() and token_ids.max() < self.vocab_size):
            raise KeyMismatchError(f"token ids must lie in [0, {self.vocab_size}), the vocabulary of this key")
        return token_ids

    @property
    def v_k(self) -> np.ndarray:
        """The phase vector (law ``"paper"``)."""
        return self._vectors()[0]

    @property
    def v_s(self) -> np.ndarray:
        """The selection vector (law ``"paper"``)."""
        return self._vectors()[1]

    @property
    def M(self) -> np.ndarray:
        """The token matrix (law ``"paper"``), vocabulary × n: derived anew each time, and large."""
        self._require_paper("M")
        return self._matrix_rows(np.arange(self.vocab_size))

    def rule_scores(self) -> np.ndarray | None:
        """The hash rule's number for every token id, or None for a rule that goes by position."""
        return self.hash_rule.token_scores(
            self.vocab_size, lambda: derivation.token_order(self.secret, self.vocab_size)
        )

    def subkey(self, domain: str) -> bytes:
        """32 bytes for one use, derived from the secret once; uses have different domains."""
        name = f"subkey {domain}"
        if name not in self._cache:
            self._cache[name] = derivation.subkey(self.secret, domain)
        return self._cache[name]

    def commitment(self) -> str:
        """The public commitment: 64 hexadecimal digits that fix this key and show nothing of it.

        Publish it before the model is served. It is opened by showing the key; rotate the key after that.
        """
        return self.as_committed()._digits()

    @property
    def identity(self) -> str:
        """What names this key in a model's configuration: its commitment."""
        return self.commitment()

    @property
    def fingerprint(self) -> str:
        """The first 16 digits of the commitment: the key's name in logs."""
        return self._digits()[:16]

    @property
    def committed(self) -> bool:
        """Whether it is too late to choose settings for this secret (:meth:`fit`).

        It is once the commitment was shown, the key was saved, loaded or put into a model, or its numbers were read:
        by this key, or by the one that it was made from with :meth:`replace`. Printing and comparing keys do not
        count.
        """
        return not self._cache.keys() <= _HARMLESS

    def as_committed(self) -> Self:
        """This key, which is committed from now on."""
        self._cache["committed"] = True
        return self

    @property
    def fitted(self) -> "Fit | None":
        """What :meth:`fit` found when it made this key: the cost of its strength and how sure that is; not saved."""
        return self._cache.get("fitted")

    def __repr__(self) -> str:
        return f"WatermarkKey(fingerprint={self.fingerprint!r}, task={self.task!r})"

    def __eq__(self, other: object) -> bool:
        return self._digits() == other._digits() if isinstance(other, WatermarkKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._digits())

    # -- inside

    def _digits(self) -> str:
        """The commitment, for uses that show no more than the fingerprint."""
        if "identity" not in self._cache:
            fields, arrays = self._fields()
            self._cache["identity"] = commit(self.secret, {**fields, "arrays": arrays})
        return self._cache["identity"]

    def _fields(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All but the secret: JSON-able fields, and arrays by name."""
        fields, arrays = self._unseasoned_fields()
        return fields if self.seasoning is None else {**fields, "seasoning": self.seasoning.shown()}, arrays

    def _unseasoned_fields(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        fields = {**self.binding.to_fields(), **self.settings.to_fields()}
        arrays = {_RULE_ARRAY + name: array for name, array in self.hash_rule.arrays().items()}
        return {**fields, "key_id": self.key_id, "created_at": self.created_at}, {**(self.arrays or {}), **arrays}

    def _content(self) -> Content:
        fields, arrays = self._fields()
        kept = {**fields, "secret": self.secret.hex()}
        if self.seasoning is None:
            return Content(kept, arrays, self._shown())
        return Content({**kept, "seasoning": self.seasoning.to_fields()}, arrays, self._shown(), version=2)

    @classmethod
    def _from_content(cls, content: Content) -> Self | None:
        fields, own = content.fields, dict(content.arrays)
        rule_names = [name for name in own if name.startswith(_RULE_ARRAY)]
        of_rule = {name.removeprefix(_RULE_ARRAY): own.pop(name) for name in rule_names}
        try:
            key = cls(
                secret=bytes.fromhex(fields["secret"]),
                settings=settings_from_fields(fields, of_rule),
                binding=Binding.from_fields(fields),
                key_id=fields["key_id"],
                created_at=fields["created_at"],
                arrays=own or None,
                seasoning=Seasoning.from_fields(fields["seasoning"]) if "seasoning" in fields else None,
            )
            key._digits()  # fails here for what has no encoding
            of_text = isinstance(key.key_id, str) and isinstance(key.created_at, str)
            return key if of_text and {"secret", *key._fields()[0]} == fields.keys() else None
        except KeyTooLargeError:
            raise
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            return None

    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        if "tables" not in self._cache:
            self._cache["tables"] = self.entries(np.arange(self.vocab_size))
            for table in self._cache["tables"]:
                table.flags.writeable = False
        return self._cache["tables"]

    def _vectors(self) -> tuple[np.ndarray, np.ndarray]:
        self._require_paper("v_k and v_s")
        if self.arrays is not None:
            return self.arrays["v_k"].astype(np.float64), self.arrays["v_s"].astype(np.float64)
        return derivation.paper_vectors(self.secret, self.dimension)

    def _matrix_rows(self, token_ids: np.ndarray) -> np.ndarray:
        if self.arrays is not None:
            return self.arrays["M"][token_ids].astype(np.float64)
        return derivation.paper_matrix_rows(self.subkey(derivation.MATRIX), token_ids, self.dimension)

    def _require_paper(self, what: str) -> None:
        if self.law != "paper":
            raise InvalidKeyError(f"a key of law={self.law!r} has no {what}; only law='paper' projects a matrix")


_FIELDS = tuple(field.name for field in dataclasses.fields(WatermarkKey) if field.init)
# The decorator made the constructor, and that was all: asdict and whatever else walks through dataclasses, error
# reporters and torch.distributed among them, must not find the secret as a field.
del WatermarkKey.__dataclass_fields__
setattr(WatermarkKey, "__init__", forgets_locals(WatermarkKey.__init__))  # noqa: B010  # mypy knows no other way


def _settings_and_binding(
    model: Any, target: str | int | None, tokenizer: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """How a key is to mark, and what it is bound to, from the options by which it is made."""
    chosen = dict(options)
    of_binding = {name: chosen.pop(name) for name in BindingOptions.__annotations__.keys() & options.keys()}
    binding = Binding.of(model, tokenizer, **of_binding)
    mark = mark_named(chosen.setdefault("mark", default_mark(target, chosen)))
    foreign = sorted(chosen.keys() - {one.name for one in dataclasses.fields(mark.settings_class)})
    if foreign:
        others = {one.name for one in dataclasses.fields(mark.settings_class)} - mark.settings_class.unused - {"mark"}
        raise TypeError(f"the mark {mark.name!r} has no {' and no '.join(foreign)}; its settings are {sorted(others)}")
    mark.warn_of(chosen)
    chosen["hash_rule"] = resolve_hash_rule(chosen.get("hash_rule"), binding.task, mark.hash_rule)
    settings = mark.settings_class(**{**mark.defaults(plain_config(model), tokenizer), **chosen})
    if target is not None or mark.has_target:
        settings = settings.replace(target=class_number(target, binding.labels, error=InvalidKeyError))
    return {"settings": settings, "binding": binding}


def _as_array(values: Any, name: str, ndim: int) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = (values if values.dtype is torch.float32 else values.double()).numpy()
    try:
        array = np.array(values)  # a copy: a frozen key does not change with the caller's array
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidKeyError(f"{name} must be an array of numbers") from None
    if array.ndim != ndim or not np.isfinite(array).all():
        raise InvalidKeyError(f"{name} must be {ndim}-dimensional and finite, got shape {array.shape}")
    return array
