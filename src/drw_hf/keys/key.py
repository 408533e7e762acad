"""`WatermarkKey`: the secret by which an owner marks a model's answers and finds the mark again."""

import dataclasses
import math
import numbers
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch

from ..errors import InvalidKeyError, KeyFileError, KeyMismatchError, KeySerializationError
from . import binding, derivation
from .choices import LAWS, SCOPES, TASKS, Law, Scope, Task
from .commitment import commit
from .files import KEY, VERSION, FileKind, encode_key, read_key, write_key
from .frames import forgets_locals
from .hash_rules import HashRule, load_hash_rule, resolve_hash_rule
from .settings import MarkSettings

_PAPER_ARRAYS = ("v_k", "v_s", "M")


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class WatermarkKey:
    """The secret of a watermark, and what it is bound to.

    Make one with :meth:`generate` (or :meth:`from_arrays`), keep it with :meth:`save_pretrained`. A key is frozen; it
    shows its fingerprint and nothing else when printed or logged, cannot be pickled, and copying returns it itself.

    Attributes
    ----------
    secret : bytes
        32 bytes, from which every random number of the key is derived.
    task : str
        ``"sequence-classification"`` or ``"token-classification"``.
    labels : tuple of str
        The model's label names, in the order of its outputs.
    target : int
        The target class c*, whose probability carries the cosine.
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
    vocab_size : int
        How many token ids the model knows.
    hash_rule : HashRule
        Which token of an input is hashed.
    special_token_ids : tuple of int
        Ids that are never marked and never hashed.
    separator_token_ids : tuple of int
        Those of them that stand between the two texts of a pair.
    tokenizer_fingerprint : str or None
        Digest of the vocabulary of the tokenizer the key was made with.
    key_id : str
        A random name, so that rotated keys can be told apart.
    created_at : str
        When the key was made (UTC, ISO 8601).
    """

    secret: bytes
    task: Task
    labels: tuple[str, ...]
    target: int
    vocab_size: int
    special_token_ids: tuple[int, ...]
    separator_token_ids: tuple[int, ...]
    frequency: float = 16.0
    epsilon: float = 0.2
    tau: float = 0.5
    law: Law = "direct"
    dimension: int = 128
    scope: Scope = "predicted"
    hash_rule: HashRule = field(default_factory=lambda: resolve_hash_rule(None, TASKS[0]))
    tokenizer_fingerprint: str | None = None
    key_id: str = field(default_factory=lambda: secrets.token_hex(8))
    created_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    arrays: Mapping[str, np.ndarray] | None = None
    _cache: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        _check(self)
        for name in ("frequency", "epsilon", "tau"):
            object.__setattr__(self, name, float(getattr(self, name)) + 0.0)
        if self.arrays is not None:
            for array in self.arrays.values():
                array.flags.writeable = False
            object.__setattr__(self, "arrays", MappingProxyType(dict(self.arrays)))

    # -- making one

    @classmethod
    @forgets_locals
    def generate(
        cls,
        model: Any,
        *,
        target: str | int,
        tokenizer: Any = None,
        special_token_ids: Iterable[int] | None = None,
        separator_token_ids: Iterable[int] | None = None,
        task: Task | None = None,
        frequency: float = 16.0,
        epsilon: float = 0.2,
        tau: float = 0.5,
        law: Law = "direct",
        dimension: int = 128,
        scope: Scope = "predicted",
        hash_rule: str | HashRule | None = None,
        secret: bytes | None = None,
    ) -> Self:
        """Make a fresh key for a model.

        Parameters
        ----------
        model : PreTrainedModel or PreTrainedConfig
            What is to be protected: it gives the vocabulary, the labels and (by its class or
            ``config.architectures``) the task.
        target : str or int
            The target class c*, by label name or index.
        tokenizer : PreTrainedTokenizerBase, optional
            Names the special tokens, and lets the key recognise its tokenizer later.
        special_token_ids : iterable of int, optional
            The special token ids, where no tokenizer is at hand. One of the two must be given.
        separator_token_ids : iterable of int, optional
            Those special ids that stand between the texts of a pair; by default the tokenizer's, else all special ids.
        task : str, optional
            ``"sequence-classification"`` or ``"token-classification"``, where the model does not tell.
        frequency, epsilon, tau, law, dimension, scope
            See the class.
        hash_rule : str or HashRule, optional
            Sentence tasks: ``"second"`` (default), ``"rarest"`` or ``"keyed"``, or a rule of your own.
        secret : bytes, optional
            32 bytes to derive the key from; by default fresh from the operating system.

        Examples
        --------
        >>> from transformers import BertConfig
        >>> from drw_hf import WatermarkKey
        >>> config = BertConfig(vocab_size=100, architectures=["BertForSequenceClassification"])
        >>> key = WatermarkKey.generate(config, target="LABEL_1", special_token_ids=[0, 1, 2], epsilon=0.1)
        >>> key.target, key.target_label, key.task
        (1, 'LABEL_1', 'sequence-classification')
        """
        bound = _bind(model, target, tokenizer, special_token_ids, separator_token_ids, task, hash_rule)
        return cls(
            secret=secrets.token_bytes(derivation.SECRET_BYTES) if secret is None else secret,
            frequency=frequency,
            epsilon=epsilon,
            tau=tau,
            law=law,
            dimension=dimension,
            scope=scope,
            **bound,
        )

    @classmethod
    @forgets_locals
    def from_arrays(
        cls,
        *,
        v_k: Any,
        v_s: Any,
        M: Any,
        config: Any,
        target: str | int,
        tokenizer: Any = None,
        special_token_ids: Iterable[int] | None = None,
        separator_token_ids: Iterable[int] | None = None,
        task: Task | None = None,
        frequency: float = 16.0,
        epsilon: float = 0.2,
        tau: float = 0.5,
        law: Law = "paper",
        scope: Scope = "all",
        hash_rule: str | HashRule | None = None,
        secret: bytes | None = None,
    ) -> Self:
        """A key in the paper's own form, made elsewhere: phase vector, selection vector and token matrix.

        The arrays are kept as they are, saved in a safetensors file beside the key's JSON and covered by the
        commitment. ``secret`` (32 fresh bytes by default) serves for the rest: hard-label draws, the rule ``keyed``,
        the commitment. The defaults are the paper's: ``law="paper"``, ``scope="all"``.
        """
        if law != "paper":
            raise InvalidKeyError(f"law={law!r} has no arrays; from_arrays makes keys of law='paper' only")
        arrays = {"v_k": _as_array(v_k, "v_k", 1), "v_s": _as_array(v_s, "v_s", 1), "M": _as_array(M, "M", 2)}
        bound = _bind(config, target, tokenizer, special_token_ids, separator_token_ids, task, hash_rule)
        return cls(
            secret=secrets.token_bytes(derivation.SECRET_BYTES) if secret is None else secret,
            frequency=frequency,
            epsilon=epsilon,
            tau=tau,
            law=law,
            dimension=len(arrays["v_k"]),
            scope=scope,
            arrays=arrays,
            **bound,
        )

    # -- keeping it

    @forgets_locals
    def save_pretrained(self, save_directory: str | os.PathLike, *, passphrase: str | None = None) -> None:
        """Save the key into a folder: sealed with ``passphrase``, or plain (mode 0600) with ``passphrase=None``.

        A plain key is refused where a model lies, another key is never replaced, and a crash leaves no half file.
        """
        fields, arrays = self._fields()
        write_key(save_directory, {**fields, "secret": self.secret.hex()}, arrays, self.commitment(), passphrase)

    @classmethod
    @forgets_locals
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike,
        *,
        passphrase: str | None = None,
        revision: str | None = None,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_dir: str | os.PathLike | None = None,
        force_download: bool = False,
        local_files_only: bool = False,
    ) -> Self:
        """Load the key that :meth:`save_pretrained` or :meth:`push_to_hub` wrote.

        Parameters
        ----------
        name_or_path : str or path
            A folder, or a repository on the Hub: that of the key, or of a model with its key beside it.
        passphrase : str, optional
            Opens a sealed key.
        revision, subfolder, token, cache_dir, force_download, local_files_only
            For a repository, as for :func:`huggingface_hub.hf_hub_download`. The key's files in the cache get mode
            0600.

        Raises
        ------
        WrongPassphraseError
            When a sealed key does not open.
        KeyFileError
            When there is no key, or it is damaged or of a newer format.
        RepositoryAccessError
            When the repository does not exist, or the token may not read it.
        """
        place = find_files(
            name_or_path,
            KEY,
            revision=revision,
            subfolder=subfolder,
            token=token,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
        )
        fields, arrays, commitment = read_key(place, passphrase)
        key = cls._from_fields(fields, arrays)
        if key is None or key.commitment() != commitment:
            raise KeyFileError(
                f"the key in {place} is whole, but not of the form this drw_hf writes; update drw_hf, or restore the "
                "file from a backup"
            )
        return key

    @forgets_locals
    def push_to_hub(
        self,
        repo_id: str,
        *,
        passphrase: str | None = None,
        private: bool | None = True,
        subfolder: str = "",
        replace_key: bool = False,
        commit_message: str | None = None,
        token: bool | str | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Push the key alone into a repository: sealed anywhere, plain into a private one only.

        Parameters
        ----------
        repo_id : str
            Where to; made, private by default, if it does not exist.
        passphrase : str, optional
            Seals the key.
        subfolder : str
            Where in the repository, so that one can hold several keys.
        replace_key : bool
            Let this key take the place of another one; that one stays in the repository's history.
        private, commit_message, token, revision, create_pr
            As in transformers.

        Returns
        -------
        str
            The commit's address.

        Raises
        ------
        PlainKeyRefusedError
            Before anything is uploaded, for a plain key and a repository that is not known to be private.
        """
        from ..hub.push import KeyTarget, push_key

        target = KeyTarget(repo_id, subfolder=subfolder, private=private, revision=revision, create_pr=create_pr)
        return push_key(self, target, passphrase, replace_key, commit_message, token)

    @forgets_locals
    def to_files(self, *, passphrase: str | None = None) -> dict[str, bytes]:
        """The content of the files that :meth:`save_pretrained` writes, by name: the secret itself, if not sealed."""
        fields, arrays = self._fields()
        return encode_key({**fields, "secret": self.secret.hex()}, arrays, self.commitment(), passphrase)

    # -- what it gives

    @property
    def settings(self) -> MarkSettings:
        """How answers are marked: everything of the key that is neither the secret nor the model."""
        return MarkSettings(**{field.name: getattr(self, field.name) for field in dataclasses.fields(MarkSettings)})

    @property
    def mark(self) -> str:
        """The name of the mark."""
        return "cosine"

    @property
    def target_label(self) -> str:
        """The name of the target class."""
        return self.labels[self.target]

    @property
    def num_labels(self) -> int:
        """The number m of classes."""
        return len(self.labels)

    @property
    def format_version(self) -> int:
        """The version of the key format."""
        return VERSION

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
        token_ids = np.asarray(token_ids, dtype=np.int64).ravel()
        if token_ids.size and not (0 <= token_ids.min() and token_ids.max() < self.vocab_size):
            raise KeyMismatchError(f"token ids must lie in [0, {self.vocab_size}), the vocabulary of this key")
        if self.law == "direct":
            return derivation.direct_entries(self.secret, token_ids)
        if self.arrays is None:
            return derivation.paper_entries(self.subkey(derivation.MATRIX), token_ids, self.v_k, self.v_s)
        return derivation.projected_entries(self._matrix_rows, token_ids, self.v_k, self.v_s)

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
        if "commitment" not in self._cache:
            fields, arrays = self._fields()
            self._cache["commitment"] = commit(self.secret, {**fields, "arrays": arrays})
        return self._cache["commitment"]

    @property
    def identity(self) -> str:
        """What names this key in a model's configuration: its commitment (for a ring, see :class:`KeyRing`)."""
        return self.commitment()

    @property
    def fingerprint(self) -> str:
        """The first 16 digits of the commitment: the name of this key in logs."""
        return self.commitment()[:16]

    # -- what never leaves it

    def __repr__(self) -> str:
        return f"WatermarkKey(fingerprint={self.fingerprint!r}, task={self.task!r})"

    def __eq__(self, other: object) -> bool:
        return self.commitment() == other.commitment() if isinstance(other, WatermarkKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.commitment())

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise KeySerializationError(
            "a WatermarkKey cannot be pickled: the pickle would hold the secret in the clear; save it with "
            "key.save_pretrained(folder, passphrase=...) and load it where it is needed"
        )

    @forgets_locals
    def replace(self, **changes: Any) -> Self:
        """A new key with the same secret and some other parameters, to compare settings; it has its own commitment."""
        return type(self)(**{**{name: getattr(self, name) for name in _FIELDS}, **changes})

    # -- inside

    def _fields(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """All but the secret: JSON-able fields, and arrays by name."""
        fields = {
            "task": self.task,
            "labels": self.labels,
            "target": self.target,
            "frequency": self.frequency,
            "epsilon": self.epsilon,
            "tau": self.tau,
            "law": self.law,
            "dimension": self.dimension,
            "scope": self.scope,
            "vocab_size": self.vocab_size,
            "hash_rule": {"name": self.hash_rule.name, "settings": self.hash_rule.settings()},
            "special_token_ids": self.special_token_ids,
            "separator_token_ids": self.separator_token_ids,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "key_id": self.key_id,
            "created_at": self.created_at,
        }
        rule_arrays = {f"rule.{name}": array for name, array in self.hash_rule.arrays().items()}
        return fields, {**(self.arrays or {}), **rule_arrays}

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self | None:
        try:
            rule = fields.pop("hash_rule")
            rule_arrays = {name[5:]: array for name, array in arrays.items() if name.startswith("rule.")}
            own = {name: array for name, array in arrays.items() if not name.startswith("rule.")}
            for name in ("labels", "special_token_ids", "separator_token_ids"):
                fields[name] = tuple(fields[name])
            fields["secret"] = bytes.fromhex(fields["secret"])
            rule_object = load_hash_rule(rule["name"], rule["settings"], rule_arrays)
            return cls(**fields, hash_rule=rule_object, arrays=own or None)
        except (TypeError, KeyError, ValueError):
            return None

    def _tables(self) -> tuple[np.ndarray, np.ndarray]:
        if "tables" not in self._cache:
            if self.law == "direct":
                tables = derivation.direct_tables(self.secret, self.vocab_size)
            else:
                tables = self.entries(np.arange(self.vocab_size))
            for table in tables:
                table.flags.writeable = False
            self._cache["tables"] = tables
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


def find_files(name_or_path: str | os.PathLike, kind: FileKind | None, *, subfolder: str = "", **options: Any) -> Any:
    """The folder in which a key or ring (None: either) lies, or its file, pulled from the repository of that name."""
    folder = os.path.join(name_or_path, subfolder) if subfolder else name_or_path
    if not os.path.exists(folder):
        from ..hub.pull import is_hub_id, pull_key_files

        if is_hub_id(name_or_path):
            return pull_key_files(name_or_path, kind, subfolder=subfolder, **options)
    return folder


def _bind(
    model: Any,
    target: str | int,
    tokenizer: Any,
    special_token_ids: Iterable[int] | None,
    separator_token_ids: Iterable[int] | None,
    task: str | None,
    hash_rule: str | HashRule | None,
) -> dict[str, Any]:
    """What a key takes from the model and the tokenizer."""
    config = binding.plain_config(model)
    task = task or binding.task_of(model) or binding.task_of(config)
    if task not in TASKS:
        raise InvalidKeyError(
            f"task={task!r}: the model does not tell its task, or it is not one of {list(TASKS)}; pass task="
        )
    if tokenizer is None and special_token_ids is None:
        raise InvalidKeyError(
            "neither tokenizer= nor special_token_ids= was given, so [CLS], [SEP] and padding would be marked like "
            "words; pass the model's tokenizer"
        )
    if special_token_ids is None:
        special = binding.special_ids_of(tokenizer)
    else:
        special = binding.as_id_tuple(special_token_ids, "special_token_ids")
    if separator_token_ids is not None:
        separators = binding.as_id_tuple(separator_token_ids, "separator_token_ids")
    elif tokenizer is not None:
        separators = tuple(index for index in binding.separator_ids_of(tokenizer) if index in special)
    else:
        separators = special
    labels = binding.labels_of(config)
    return {
        "task": task,
        "labels": labels,
        "target": _target_index(target, labels),
        "vocab_size": binding.vocab_size_of(config),
        "hash_rule": resolve_hash_rule(hash_rule, task),
        "special_token_ids": special,
        "separator_token_ids": separators,
        "tokenizer_fingerprint": None if tokenizer is None else binding.tokenizer_fingerprint(tokenizer),
    }


def _target_index(target: Any, labels: tuple[str, ...]) -> int:
    if isinstance(target, str) and labels.count(target) == 1:
        return labels.index(target)
    if isinstance(target, int | np.integer) and not isinstance(target, bool) and 0 <= target < len(labels):
        return int(target)
    raise InvalidKeyError(f"target={target!r} is not one label of the model; choose a name or an index of {labels}")


def _as_array(values: Any, name: str, ndim: int) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        values = values.numpy() if values.dtype in (torch.float32, torch.float64) else values.double().numpy()
    try:
        array = np.array(values)  # a copy: a frozen key does not change with the caller's array
        if array.dtype not in (np.float32, np.float64):
            array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise InvalidKeyError(f"{name} must be an array of numbers") from None
    if array.ndim != ndim or not np.isfinite(array).all():
        raise InvalidKeyError(f"{name} must be {ndim}-dimensional and finite, got shape {array.shape}")
    return array


def _check(key: WatermarkKey) -> None:
    """Refuse parameters that make no watermark; messages never show the secret."""
    if not isinstance(key.secret, bytes) or len(key.secret) != derivation.SECRET_BYTES:
        raise InvalidKeyError(f"secret must be {derivation.SECRET_BYTES} bytes; leave it out to get fresh ones")
    for name, lowest, highest, open_below in (
        ("frequency", 0.0, 1e3, True),  # a finer cosine would need more of the hash than any probe has tokens
        ("epsilon", 0.0, 1e3, False),
        ("tau", 0.0, 1.0, False),
    ):
        value = getattr(key, name)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and lowest <= value <= highest and not (open_below and value == 0)):
            wanted = f"in {'(' if open_below else '['}0, {highest:g}]"
            raise InvalidKeyError(f"{name}={value!r}: expected a finite number {wanted}")
    for name, choices in (("law", LAWS), ("scope", SCOPES), ("task", TASKS)):
        if getattr(key, name) not in choices:
            raise InvalidKeyError(f"{name}={getattr(key, name)!r}: expected one of {list(choices)}")
    for name, least in (("vocab_size", 1), ("dimension", 1), ("target", 0)):
        value = getattr(key, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InvalidKeyError(f"{name}={value!r}: expected an integer ≥ {least}")
    if len(key.labels) < 2 or len(set(key.labels)) != len(key.labels) or key.target >= len(key.labels):
        raise InvalidKeyError(f"labels={key.labels!r} with target={key.target!r}: expected two or more distinct names")
    if not set(key.separator_token_ids) <= set(key.special_token_ids):
        raise InvalidKeyError("separator_token_ids must be among special_token_ids")
    beyond = [index for index in key.special_token_ids if not 0 <= index < key.vocab_size]
    if beyond:
        raise InvalidKeyError(
            f"special_token_ids {beyond} are not in the model's vocabulary of {key.vocab_size}; give the model's own "
            "tokenizer, or resize its embeddings first"
        )
    resolve_hash_rule(key.hash_rule, key.task)
    key.hash_rule.check(key.vocab_size)
    if key.arrays is not None:
        shapes = {name: key.arrays[name].shape for name in _PAPER_ARRAYS if name in key.arrays}
        n = key.dimension
        if key.law != "paper" or shapes != {"v_k": (n,), "v_s": (n,), "M": (key.vocab_size, n)}:
            raise InvalidKeyError(
                f"arrays of shapes {shapes}: expected v_k and v_s of length n and M of shape ({key.vocab_size}, n), "
                "a row for every token id of the model"
            )
