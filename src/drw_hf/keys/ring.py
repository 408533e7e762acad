"""`KeyRing`: one master secret, and a key of its own for every user.

A user's key comes from the master by HKDF over the epoch and the user's name, so nothing is stored for a user and two
users' tables have nothing in common. The ring keeps what was said of its users beforehand: for each epoch, the
Merkle roots over the keys that were declared.
"""

import base64
import hashlib
import hmac
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice
from typing import Any, Self

import numpy as np

from ..errors import InvalidInputError, InvalidKeyError, KeyFileError, KeySerializationError
from . import derivation, merkle
from .choices import Law, Scope, Task
from .commitment import DOMAIN as KEY_DOMAIN
from .commitment import encode
from .files import RING, RING_VERSION, encode_ring, read_ring, write_ring
from .frames import forgets_locals
from .hash_rules import HashRule, KeyedRule
from .key import WatermarkKey, find_files
from .merkle import UserProof

MAX_USER_BYTES = 1024  # of UTF-8: a token with the longest name still fits into an HTTP header
_DOMAIN = b"drw-hf ring commitment v1"
_TOKEN_PREFIX = "drw1"
_KEYS_KEPT = 64  # a key's tables are 16 bytes a token id, so up to 4 MB each
_KEY_ID_LETTERS = 16
_USERS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Declaration:
    """What an owner said beforehand about the users of an epoch.

    Attributes
    ----------
    root : str
        The Merkle root over the users' keys, bound to the count: 64 hexadecimal digits, to be published.
    count : int
        How many users were declared.
    epoch : int
        The epoch of their keys.
    declared_at : str
        When (UTC, ISO 8601), by this machine's clock; a time stamp over the root is what convinces others.
    """

    root: str
    count: int
    epoch: int
    declared_at: str


@dataclass(frozen=True)
class _Epoch:
    opened_at: str
    declarations: tuple[Declaration, ...] = ()


class KeyRing:
    """One master secret from which every user gets a key of his own.

    Make one with :meth:`generate`, keep it with :meth:`save_pretrained`. It shows its fingerprint and nothing else
    when printed or logged, cannot be pickled, and copying returns it itself. Two rings are equal if they have the same
    secret, settings, epochs and declarations.

    Users are any strings of 1 to 1,024 bytes of UTF-8, taken as they are: nothing is trimmed, folded or normalised, so
    ``"Ann"`` and ``"ann"``, or an é in one code point and in two, are different users.

    Parameters
    ----------
    settings : WatermarkKey
        A key of law ``"direct"`` whose settings (model, target, ε, rule ...) all users' keys are to have; its secret
        plays no part.
    secret : bytes, optional
        The 32-byte master secret; by default fresh from the operating system.
    """

    @forgets_locals
    def __init__(self, settings: WatermarkKey, *, secret: bytes | None = None) -> None:
        if not isinstance(settings, WatermarkKey):
            raise InvalidKeyError(f"expected a WatermarkKey, got {type(settings).__name__}; use KeyRing.generate")
        if settings.law != "direct":
            what = "made from arrays" if settings.arrays is not None else f"of law={settings.law!r}"
            raise InvalidKeyError(
                f"a key {what} cannot be the model of a ring: users who share a matrix would accuse each other; "
                "rings are of law='direct'"
            )
        _refuse_order_of_its_own(settings.hash_rule, settings.vocab_size)
        if secret is None:
            secret = secrets.token_bytes(derivation.SECRET_BYTES)
        if not isinstance(secret, bytes) or len(secret) != derivation.SECRET_BYTES:
            raise InvalidKeyError(f"secret must be {derivation.SECRET_BYTES} bytes; leave it out to get fresh ones")
        self._secret = secret
        self._extracted = derivation.extract(secret)
        self._settings = settings.replace(secret=self._subkey(b"ring/template"))
        fields, arrays = self._settings._fields()
        self._identity = hashlib.sha256(_DOMAIN + secret + encode({**fields, "arrays": arrays})).hexdigest()
        self._epochs: tuple[_Epoch, ...] = (_Epoch(settings.created_at),)
        self._templates: dict[int, WatermarkKey] = {}
        self._keys: OrderedDict[tuple[int, bytes], WatermarkKey] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._change_lock = threading.Lock()

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
        scope: Scope = "predicted",
        hash_rule: str | HashRule | None = None,
        secret: bytes | None = None,
    ) -> Self:
        """Make a fresh ring for a model; the parameters are those of :meth:`WatermarkKey.generate`.

        The law is always ``"direct"``: tables of two users must be independent, and under law ``"paper"`` they are
        not. The rule ``"keyed"`` orders tokens the same way for all users of an epoch, so that one probe serves for
        all of them.

        Examples
        --------
        >>> from transformers import BertConfig
        >>> from drw_hf.keys import KeyRing
        >>> config = BertConfig(vocab_size=100, architectures=["BertForSequenceClassification"])
        >>> ring = KeyRing.generate(config, target="LABEL_1", special_token_ids=[0, 1, 2])
        >>> ring.key_for("customer-42") == ring.key_for("customer-42") != ring.key_for("customer-43")
        True
        """
        if law != "direct":
            raise InvalidKeyError(
                f"law={law!r}: rings are of law='direct', for users who share a matrix would accuse each other"
            )
        settings = WatermarkKey.generate(
            model,
            target=target,
            tokenizer=tokenizer,
            special_token_ids=special_token_ids,
            separator_token_ids=separator_token_ids,
            task=task,
            frequency=frequency,
            epsilon=epsilon,
            tau=tau,
            scope=scope,
            hash_rule=hash_rule,
        )
        return cls(settings, secret=secret)

    # -- users and their keys

    def key_for(self, user: str, epoch: int | None = None) -> WatermarkKey:
        """The key of a user: an ordinary key of law ``"direct"``, the same whenever it is derived.

        Parameters
        ----------
        user : str
            Any string; see the class.
        epoch : int, optional
            By default the present one.
        """
        place = self._existing(epoch), encode_user(user)
        with self._cache_lock:
            if place in self._keys:
                self._keys.move_to_end(place)
                return self._keys[place]
        key = self._derive(*place)
        with self._cache_lock:
            key = self._keys.setdefault(place, key)
            while len(self._keys) > _KEYS_KEPT:
                self._keys.popitem(last=False)
        return key

    def table_keys(self, users: Sequence[str], epoch: int | None = None) -> list[bytes]:
        """For every user the AES key of the stream from which the two tables of ``key_for(user)`` come.

        This is what a search through many users needs of their keys, several times as fast as making the keys. A
        user who is named twice is answered twice.
        """
        expand, info = derivation.expand, derivation.TABLES.encode()
        return [expand(extracted, info) for extracted in self.extracted_keys(users, epoch)]

    def extracted_keys(self, users: Sequence[str], epoch: int | None = None) -> list[bytes]:
        """For every user what the sub-keys of ``key_for(user)`` are expanded from, without making the key."""
        epoch, extract = self._existing(epoch), derivation.extract
        return [extract(secret) for chunk in _encoded(users) for secret in self._user_secrets(epoch, chunk)]

    def template(self, epoch: int | None = None) -> WatermarkKey:
        """A key with what all users' keys of an epoch have in common (task, labels, target, τ, rule ...).

        For probing and amplitudes, which do not read the tables: its own tables are nobody's.
        """
        epoch = self._existing(epoch)
        if epoch not in self._templates:
            rule = self._settings.hash_rule
            if type(rule) is KeyedRule and rule.order_key is None:
                rule = KeyedRule(rule.frequencies, order_key=self._subkey(b"ring/order/" + _as_bytes(epoch)).hex())
            self._templates[epoch] = self._settings.replace(hash_rule=rule)
        return self._templates[epoch]

    # -- what is said beforehand

    @property
    def epoch(self) -> int:
        """The present epoch, counted from 0."""
        return len(self._epochs) - 1

    @property
    def declared(self) -> Declaration | None:
        """The present epoch's declaration, the latest if there are several."""
        return next(reversed(self._epochs[-1].declarations), None)

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """All declarations of all epochs, the oldest first; none is ever dropped."""
        return tuple(chain.from_iterable(epoch.declarations for epoch in self._epochs))

    def declare(self, users: Iterable[str]) -> Self:
        """Fix the keys of these users in the present epoch; changes the ring in place and returns it.

        Save the ring and publish :meth:`commitment` before the users' keys mark anything, and keep the list of users:
        the ring keeps the root and the count only. To add users, declare the longer list; the older declaration stays
        in :attr:`declarations` and can still be proven.

        Parameters
        ----------
        users : iterable of str
            Distinct, in any order. It takes 32 bytes a user, whatever the names, if ``users`` can be iterated over
            again (a list, a column of a data set); an iterator is read into a list first.
        """
        with self._change_lock:
            leaves = self._leaves(users, self.epoch)
            root = merkle.bound_root(merkle.tree_hash(leaves.tobytes()), len(leaves))
            declaration = Declaration(root, len(leaves), self.epoch, _now())
            if self.declared is None or self.declared.root != root:
                present = self._epochs[-1]
                present = _Epoch(present.opened_at, (*present.declarations, declaration))
                self._epochs = (*self._epochs[:-1], present)
        return self

    def commitment(self, epoch: int | None = None) -> str:
        """The Merkle root over the keys that were declared last in an epoch, bound to their number.

        Raises
        ------
        InvalidKeyError
            When nothing was declared.
        """
        return self._declarations(self._existing(epoch))[-1].root

    def prove(self, user: str, users: Iterable[str], *, epoch: int | None = None) -> UserProof:
        """Show that a user was declared: with the user's key, it convinces without the master secret.

        Parameters
        ----------
        user : str
            Whose key is to be opened.
        users : iterable of str
            The list that was declared, the latest or an earlier one of the epoch, in any order.
        epoch : int, optional
            By default the present one.
        """
        epoch, name = self._existing(epoch), encode_user(user)
        declarations = self._declarations(epoch)
        hashes = self._leaves(users, epoch)
        leaves = hashes.tobytes()
        root = merkle.bound_root(merkle.tree_hash(leaves), len(hashes))
        if root not in {declaration.root for declaration in declarations}:
            counts = ", ".join(f"{declaration.count:,}" for declaration in declarations)
            raise InvalidInputError(
                f"these {len(hashes):,} users do not give a root that was declared in epoch {epoch} (of {counts} "
                "users): somebody is missing, added or spelt differently; pass the very list that was declared"
            )
        commitment, leaf = self._commitments(epoch, [name])[0]
        index = int(np.searchsorted(hashes, leaf))
        if leaves[index * merkle.HASH_BYTES :][: merkle.HASH_BYTES] != leaf:
            raise InvalidInputError(
                f"user {_shown(user)} is not among the {len(hashes):,} users declared, and what was not declared "
                "beforehand cannot be proven"
            )
        path = tuple(sibling.hex() for sibling in merkle.audit_path(leaves, index))
        return UserProof(name.decode(), commitment.hex(), index, len(hashes), path, root)

    def rotate(self) -> Self:
        """Open a new epoch, in which every user has a new key; changes the ring in place and returns it.

        Older epochs stay derivable (``epoch=``) and their declarations are kept. Nobody is declared in the new epoch
        yet. Tokens stay valid: rotation changes the marks, not who the users are.
        """
        with self._change_lock:
            self._epochs = (*self._epochs, _Epoch(_now()))
        return self

    # -- who is asking

    def token_for(self, user: str) -> str:
        """A token by which a server knows the user: his name, readable, and an HMAC that only the ring can make.

        It belongs to no epoch and does not expire; to take it from a user, give him another name.
        """
        return self._token(encode_user(user))

    def user_of(self, token: str) -> str:
        """The user whom a token names.

        Raises
        ------
        InvalidInputError
            When :meth:`token_for` of this ring did not make the token; it does not say more.
        """
        user = self._user_if_valid(token)
        if user is None:
            raise InvalidInputError("this token is not valid; pass one that token_for of this key ring made")
        return user

    # -- keeping it

    @forgets_locals
    def save_pretrained(self, save_directory: str | os.PathLike, *, passphrase: str | None = None) -> None:
        """Save the ring into a folder: sealed with ``passphrase``, or plain (mode 0600) with ``passphrase=None``.

        A plain ring is refused where a model lies, and a crash leaves no half file. The same ring is replaced by a
        later state of itself; another ring, and epochs or declarations that this one does not have, never are.
        """
        fields, arrays = self._fields()
        write_ring(save_directory, fields, arrays, self.identity, self.heads(), passphrase)

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
        """Load the ring that :meth:`save_pretrained` or :meth:`push_to_hub` wrote, from a folder or a repository.

        The parameters are those of :meth:`WatermarkKey.from_pretrained`.

        Raises
        ------
        WrongPassphraseError
            When a sealed ring does not open.
        KeyFileError
            When there is no ring, or it is damaged or of a newer format.
        """
        place = find_files(
            name_or_path,
            RING,
            revision=revision,
            subfolder=subfolder,
            token=token,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
        )
        fields, arrays, identity, head = read_ring(place, passphrase)
        ring = cls._from_fields(fields, arrays)
        if ring is None or ring.identity != identity or ring.heads()[-1] != head:
            raise KeyFileError(
                f"the key ring in {place} is whole, but not of the form this drw_hf writes; update drw_hf, or restore "
                "the file from a backup"
            )
        return ring

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
        """Push the ring into a repository: sealed anywhere, plain into a private one only.

        The parameters are those of :meth:`WatermarkKey.push_to_hub`. A later state of the same ring takes an earlier
        one's place.
        """
        from ..hub.push import KeyTarget, push_key

        target = KeyTarget(repo_id, subfolder=subfolder, private=private, revision=revision, create_pr=create_pr)
        return push_key(self, target, passphrase, replace_key, commit_message, token)

    @forgets_locals
    def to_files(self, *, passphrase: str | None = None) -> dict[str, bytes]:
        """The content of the files that :meth:`save_pretrained` writes, by name: the secret itself, if not sealed."""
        fields, arrays = self._fields()
        return encode_ring(fields, arrays, self.identity, self.heads()[-1], passphrase)

    @property
    def secret(self) -> bytes:
        """The 32-byte master secret."""
        return self._secret

    @property
    def format_version(self) -> int:
        """The version of the ring format."""
        return RING_VERSION

    @property
    def identity(self) -> str:
        """64 hexadecimal digits that fix the master secret and the settings and show nothing of them.

        Unlike :meth:`commitment` it is the same for the ring's whole life.
        """
        return self._identity

    @property
    def fingerprint(self) -> str:
        """The first 16 digits of :attr:`identity`: the name of this ring in logs."""
        return self.identity[:16]

    def heads(self) -> list[str]:
        """A name for every state the ring has been in, the present one last; by them a later state knows an earlier.

        They come from a hash chain under the master secret, and show nothing.
        """
        chain_key, head, heads = self._subkey(b"ring/history"), b"", []
        for epoch in self._epochs:
            for event in ((epoch.opened_at,), *((one.root, one.count, one.declared_at) for one in epoch.declarations)):
                head = hmac.digest(chain_key, head + encode(event), "sha256")
                heads.append(head.hex())
        return heads

    # -- what never leaves it

    def __repr__(self) -> str:
        return f"KeyRing(fingerprint={self.fingerprint!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRing):
            return NotImplemented
        return self.identity == other.identity and self._epochs == other._epochs

    def __hash__(self) -> int:
        return hash(self.identity)  # which declarations and rotations do not change

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise KeySerializationError(
            "a KeyRing cannot be pickled: the pickle would hold the master secret in the clear; save it with "
            "ring.save_pretrained(folder, passphrase=...) and load it where it is needed"
        )

    # -- inside. Names come checked and encoded into what handles secrets, so nothing there raises and shows them.

    def _subkey(self, domain: bytes) -> bytes:
        return derivation.expand(self._extracted, domain)

    def _existing(self, epoch: Any) -> int:
        if epoch is None:
            return self.epoch
        if not isinstance(epoch, int | np.integer) or isinstance(epoch, bool) or not 0 <= epoch <= self.epoch:
            raise InvalidInputError(
                f"epoch={epoch!r} does not exist; this ring has the epochs 0 to {self.epoch}, and rotate() opens one"
            )
        return int(epoch)

    def _declarations(self, epoch: int) -> tuple[Declaration, ...]:
        if not self._epochs[epoch].declarations:
            raise InvalidKeyError(
                f"no users were declared in epoch {epoch} of this ring; call ring.declare(users), save the ring and "
                "publish its commitment before the keys are used"
            )
        return self._epochs[epoch].declarations

    def _user_secrets(self, epoch: int, users: list[bytes]) -> Iterator[bytes]:
        # The epoch has a fixed length and the name comes last, so no two pairs of them are the same bytes.
        domain = b"ring/user/" + _as_bytes(epoch)
        return (derivation.expand(self._extracted, domain + user) for user in users)

    def _derive(self, epoch: int, user: bytes) -> WatermarkKey:
        (secret,) = self._user_secrets(epoch, [user])
        return self.template(epoch).replace(
            secret=secret, key_id=_key_id(secret), created_at=self._epochs[epoch].opened_at
        )

    def _commitments(self, epoch: int, users: list[bytes]) -> list[tuple[bytes, bytes]]:
        """For every user the commitment of ``key_for(user)``, without making the key, and the leaf."""
        before, after = _around_key_id(self.template(epoch).replace(created_at=self._epochs[epoch].opened_at))
        found = []
        for user, secret in zip(users, self._user_secrets(epoch, users), strict=True):
            content = b"".join((KEY_DOMAIN, secret, before, _key_id(secret).encode(), after))
            commitment = hashlib.sha256(content).digest()
            found.append((commitment, merkle.leaf_hash(commitment, user)))
        return found

    def _leaves(self, users: Iterable[str], epoch: int) -> np.ndarray:
        """The leaves of the tree over the users' keys, in its order; refuses doubles by name."""
        _check_list(users)
        if isinstance(users, Iterator):
            users = list(users)
        leaves = bytearray()
        for names in _encoded(users):
            leaves += b"".join([leaf for _, leaf in self._commitments(epoch, names)])
        if not leaves:
            raise InvalidInputError("the list of users is empty; give at least one user")
        hashes = merkle.in_order(leaves)
        doubles = np.flatnonzero(hashes[1:] == hashes[:-1])
        if doubles.size:
            raise InvalidInputError(
                f"{doubles.size:,} of the {len(hashes):,} users are repetitions, {_shown(_first_double(users))} for "
                "one; give every user once"
            )
        return hashes

    def _token(self, user: bytes) -> str:
        tag = hmac.digest(self._subkey(b"ring/tokens"), user, "sha256")
        return ".".join((_TOKEN_PREFIX, _to_base64(user), _to_base64(tag)))

    def _user_if_valid(self, token: Any) -> str | None:
        user = _named_in(token)
        # Whole tokens are compared, so each user has exactly one, however base64 may be spelt.
        expected, given = self._token(user or b"").encode(), token.encode() if user else b""
        return user.decode() if hmac.compare_digest(expected, given) and user else None

    def _fields(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """JSON-able fields, the secret among them, and arrays by name."""
        fields, arrays = self._settings._fields()
        epochs = [
            {
                "opened_at": epoch.opened_at,
                "declarations": [
                    {"root": one.root, "count": one.count, "declared_at": one.declared_at}
                    for one in epoch.declarations
                ],
            }
            for epoch in self._epochs
        ]
        fields["ring_id"] = fields.pop("key_id")
        return {**fields, "secret": self._secret.hex(), "epochs": epochs}, arrays

    @classmethod
    def _from_fields(cls, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self | None:
        try:
            epochs, secret = fields.pop("epochs"), bytes.fromhex(fields.pop("secret"))
            fields["key_id"] = fields.pop("ring_id")
            settings = WatermarkKey._from_fields({**fields, "secret": bytes(derivation.SECRET_BYTES).hex()}, arrays)
            if settings is None or not epochs:
                return None
            ring = cls(settings, secret=secret)
            ring._epochs = tuple(
                _Epoch(
                    epoch["opened_at"],
                    tuple(
                        Declaration(one["root"], one["count"], number, one["declared_at"])
                        for one in epoch["declarations"]
                    ),
                )
                for number, epoch in enumerate(epochs)
            )
            ring.heads()  # fails here for what has no encoding
        except (TypeError, KeyError, ValueError):
            return None
        return ring


def encode_user(user: Any) -> bytes:
    """The bytes a user is known by: his name in UTF-8, as it is.

    Raises
    ------
    InvalidInputError
        For what is no string, for an empty or over-long one, and for lone surrogates, which are no text.
    """
    if not isinstance(user, str):
        raise InvalidInputError(f"user {_shown(user)} is no string; users are strings, so convert the name first")
    if not user:
        raise InvalidInputError("a user is the empty string, which names nobody; give every user a name")
    if not user.isascii() and any("\ud800" <= letter <= "\udfff" for letter in user):
        raise InvalidInputError(f"user {_shown(user)} holds a lone surrogate, which is no text; decode the name again")
    encoded = user.encode()
    if len(encoded) > MAX_USER_BYTES:
        raise InvalidInputError(
            f"user {_shown(user)} has {len(encoded):,} bytes of UTF-8, and {MAX_USER_BYTES:,} are allowed; use an "
            "identifier of yours in place of it"
        )
    return encoded


def _check_list(users: Any) -> None:
    if isinstance(users, str | bytes) or not isinstance(users, Iterable):
        raise InvalidInputError(f"users must be a list of strings, not one {type(users).__name__}; pass [user]")
    if hasattr(users, "readline"):
        raise InvalidInputError("an open file gives names with their line ends; pass file.read().splitlines()")


def _encoded(users: Iterable[str]) -> Iterator[list[bytes]]:
    """The users' names as bytes, some thousands at a time."""
    _check_list(users)
    names = iter(users)
    while chunk := [encode_user(user) for user in islice(names, _USERS_AT_ONCE)]:
        yield chunk


def _first_double(users: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for user in users:
        if user in seen:
            return user
        seen.add(user)
    return None


def _shown(user: Any) -> str:
    text = repr(user)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _refuse_order_of_its_own(rule: HashRule, vocab_size: int) -> None:
    """A rule that orders tokens by the key's secret picks other tokens for every user, so no probe serves for all."""
    asked = []

    def order() -> np.ndarray:
        asked.append(True)
        return np.zeros(vocab_size)

    if type(rule) is not KeyedRule:
        rule.token_scores(vocab_size, order)
    if asked:
        raise InvalidKeyError(
            f"the hash rule {rule.name!r} orders tokens by a key's own secret, and the users of a ring must share the "
            "order; use hash_rule='keyed', or give your rule an order in its settings, as KeyedRule's order_key"
        )


def _key_id(secret: bytes) -> str:
    return derivation.expand(derivation.extract(secret), b"ring/key id").hex()[:_KEY_ID_LETTERS]


def _around_key_id(key: WatermarkKey) -> tuple[bytes, bytes]:
    """What stands before and after a user's key id in the encoding under a key's commitment."""
    fields, arrays = key._fields()
    fields |= {"arrays": arrays, "key_id": "0" * _KEY_ID_LETTERS}  # only its length matters
    tag_and_length = 9
    whole, key_id = encode(fields), encode(fields["key_id"])
    before = encode({name: value for name, value in fields.items() if name < "key_id"})[tag_and_length:]
    after = encode({name: value for name, value in fields.items() if name > "key_id"})[tag_and_length:]
    return whole[:tag_and_length] + before + encode("key_id") + key_id[:tag_and_length], after


def _as_bytes(epoch: int) -> bytes:
    return epoch.to_bytes(8, "big")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _to_base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _named_in(token: Any) -> bytes | None:
    """The name that a token claims; None where there is none that could be right."""
    if not isinstance(token, str) or not token.isascii() or len(token) > 2 * MAX_USER_BYTES:
        return None
    try:
        _, name, _ = token.split(".")
        user = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4))
        return encode_user(user.decode())
    except (ValueError, InvalidInputError):
        return None
