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
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from typing import Any, ClassVar, Self, Unpack

import numpy as np

from ..errors import InvalidInputError, InvalidKeyError, KeyTooLargeError, UnseasonedKeyError
from . import derivation, merkle
from .commitment import DOMAIN as KEY_DOMAIN
from .commitment import commit, encode
from .files import RING, Content, FileKind, kind_of
from .frames import forgets_locals
from .hash_rules import HashRule, KeyedRule
from .kept import KeptSecret, PullOptions, checked_secret, find_files
from .key import KeyOptions, WatermarkKey
from .key import now as _now
from .merkle import Declaration, UserProof
from .rounds import RoundValue
from .seasoning import BASE_DOMAIN, Seasoning, Terms, base_fields, seasoned_secret
from .users import check_spellings, encode_user, listed, quoted

_DOMAIN = b"drw-hf ring commitment v1"
_KEYS_KEPT = 64  # a key's tables are 16 bytes per token id, so up to 4 MB each
_USERS_KEPT = 1_024  # recent ones, some hundred bytes each
_USERS_AT_ONCE = 10_000
_EXTRACTED = ""  # no domain: what the sub-keys for all of them are expanded from


@dataclass(frozen=True)
class _Epoch:
    opened_at: str
    declarations: tuple[Declaration, ...] = ()
    terms: Terms | None = None  # of an epoch whose keys are seasoned
    document: Mapping[str, Any] | None = None  # what the source published for its round, once it was drawn

    @property
    def waits(self) -> bool:
        """Whether its keys wait for their round."""
        return self.terms is not None and self.document is None

    def to_fields(self) -> dict[str, Any]:
        """For the ring's file."""
        declared = [asdict(one) for one in self.declarations]
        for declaration in declared:
            del declaration["epoch"]  # it is the place in the list
        fields: dict[str, Any] = {"opened_at": self.opened_at, "declarations": declared}
        if self.terms is not None:
            fields |= {"terms": self.terms.to_fields(), "document": self.document}
        return fields

    @classmethod
    def from_fields(cls, number: int, fields: Mapping[str, Any]) -> Self:
        """What :meth:`to_fields` gave; a ``ValueError``, ``TypeError`` or ``KeyError`` for anything else."""
        declared = tuple(Declaration(epoch=number, **one) for one in fields["declarations"])
        if fields.keys() == {"opened_at", "declarations"}:
            return cls(fields["opened_at"], declared)
        terms, document = Terms.from_fields(fields["terms"]), fields["document"]
        made = cls(fields["opened_at"], declared, terms, document)
        if made.to_fields() != fields or (document is not None and terms.round.read(document) != document):
            raise ValueError
        return made

    def events(self) -> Iterator[tuple[Any, ...]]:
        """What happened to it, in the order in which it can."""
        yield (self.opened_at,) if self.terms is None else (self.opened_at, self.terms.to_fields())
        for one in self.declarations:
            yield (one.root, one.count, one.declared_at)
        if self.terms is not None and self.document is not None:
            yield (self.terms.round.value_of(self.document).value,)


class KeyRing(KeptSecret):
    """One master secret from which every user gets a key of his own.

    Make one with :meth:`generate`, keep it with :meth:`save_pretrained`. Like a key, it never shows or pickles its
    secret. Two rings are equal if they have the same secret, settings, epochs and declarations.

    Users are any strings of 1 to 1,024 bytes of UTF-8, taken as they are: nothing is trimmed, folded or normalised, so
    ``"Ann"`` and ``"ann"``, or an é in one code point and in two, are different users.

    Parameters
    ----------
    template : WatermarkKey
        A key of law ``"direct"`` whose settings and binding all users' keys are to have; its secret plays no part.
    secret : bytes, optional
        The 32-byte master secret; by default fresh from the operating system.
    terms : Terms, optional
        Seasons the keys of the first epoch, each by itself: declare the users, publish the root with a time stamp
        before the round, then :meth:`season` the ring.
    """

    kind: ClassVar[FileKind] = RING

    @forgets_locals
    def __init__(self, template: WatermarkKey, *, secret: bytes | None = None, terms: Terms | None = None) -> None:
        if not isinstance(template, WatermarkKey):
            raise InvalidKeyError(f"expected a WatermarkKey, got {type(template).__name__}; use KeyRing.generate")
        if template.law != "direct":
            what = "made from arrays" if template.arrays is not None else f"of law={template.law!r}"
            raise InvalidKeyError(
                f"a key {what} cannot be the model of a ring: users who share a matrix would accuse each other; "
                "rings are of law='direct'"
            )
        _refuse_order_of_its_own(template.hash_rule, template.vocab_size)
        self._secret = checked_secret(secret)
        self._extracted = derivation.extract(self._secret)
        self._template = template.replace(secret=self._subkey(b"ring/template"))
        self.settings, self.binding = template.settings, template.binding
        fields, arrays = self._template._fields()
        self._identity = commit(self._secret, {**fields, "arrays": arrays}, _DOMAIN)
        self._epochs: tuple[_Epoch, ...] = (_Epoch(template.created_at, terms=terms),)
        self._around_ids: dict[int, tuple[bytes, bytes]] = {}  # by epoch, of what a leaf commits to
        self._values: dict[int, bytes] = {}  # by epoch, of seasoned ones
        self._templates: dict[int, WatermarkKey] = {}
        self._keys: OrderedDict[tuple[int, bytes], WatermarkKey] = OrderedDict()
        self._recent: OrderedDict[tuple[int, str], dict[str, bytes]] = OrderedDict()
        self._cache_lock = threading.Lock()
        self._change_lock = threading.Lock()

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
        return cls(WatermarkKey.generate(model, target=target, tokenizer=tokenizer, **options), secret=secret)

    # -- users and their keys

    def key_for(self, user: str, epoch: int | None = None) -> WatermarkKey:
        """The key of a user in an epoch, by default the present one: an ordinary key, the same whenever derived."""
        epoch, name = self._existing(epoch), encode_user(user)
        with self._cache_lock:
            if (epoch, name) not in self._keys:
                at, secret = self._epochs[epoch], self._user_secret(epoch, name)
                base = self._base_secret(epoch, name)
                parts: dict[str, Any] = {"key_id": _key_id(base), "created_at": at.opened_at}
                if at.terms is not None and at.document is not None:
                    committed = self._committed(epoch, base).hex()
                    parts["seasoning"] = Seasoning(base, at.terms, at.document, committed)
                made = self.template(epoch).replace(secret=secret, **parts)
                self._keys[epoch, name] = made.as_committed()  # the ring fixed it
                if len(self._keys) > _KEYS_KEPT:
                    self._keys.popitem(last=False)
            self._keys.move_to_end((epoch, name))
            return self._keys[epoch, name]

    def table_keys(
        self, users: Sequence[str], epoch: int | None = None, domain: str = derivation.TABLES
    ) -> list[bytes]:
        """For every user the AES key from which the tables of ``key_for(user)`` come, faster than making the key.

        ``domain`` says which tables: by default those of the paper's mark.
        """
        expand, info = derivation.expand, domain.encode()
        return [expand(extracted, info) for extracted in self.extracted_keys(users, epoch)]

    def extracted_keys(self, users: Sequence[str], epoch: int | None = None) -> list[bytes]:
        """For every user what the sub-keys of ``key_for(user)`` are expanded from, without making the key."""
        epoch, extract = self._existing(epoch), derivation.extract
        return [extract(self._user_secret(epoch, name)) for names in _encoded(users) for name in names]

    @forgets_locals
    def subkeys(self, users: Sequence[str], domain: str, epoch: int | None = None) -> list[bytes]:
        """For every user what ``key_for(user).subkey(domain)`` is, without making the key.

        Those of recent users are kept, in memory alone, for whoever answers them.
        """
        epoch, found = self._existing(epoch), []
        with self._cache_lock:
            for user in users:
                place = epoch, user
                known = self._recent.get(place)
                if known is None:
                    extracted = derivation.extract(self._user_secret(epoch, encode_user(user)))
                    known = self._recent[place] = {_EXTRACTED: extracted}
                    if len(self._recent) > _USERS_KEPT:
                        self._recent.popitem(last=False)
                else:
                    self._recent.move_to_end(place)
                if domain not in known:
                    known[domain] = derivation.expand(known[_EXTRACTED], domain.encode())
                found.append(known[domain])
        return found

    def template(self, epoch: int | None = None) -> WatermarkKey:
        """A key with what all users' keys of an epoch have in common (labels, τ, rule); its tables are nobody's."""
        epoch = self._existing(epoch)
        if epoch not in self._templates:
            rule = self._template.hash_rule
            if type(rule) is KeyedRule and rule.order_key is None:
                order_key = self._subkey(b"ring/order/" + epoch.to_bytes(8, "big")).hex()
                rule = KeyedRule(rule.frequencies, order_key=order_key)
            self._templates[epoch] = self._template.replace(hash_rule=rule)
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

        ``users`` are distinct, in any order; one name in two spellings of Unicode, composed and decomposed, is
        refused. It takes 32 bytes per user, whatever the names, if they can be iterated over again (a list, a column
        of a data set); an iterator is read into a list first.

        In an epoch whose keys are seasoned users are declared once, before the round: whoever added a user later could
        try names until one of them suits. To add users there, :meth:`rotate` with the terms of another round.
        """
        with self._change_lock:
            users = listed(users)
            leaves = self._leaves(users, self.epoch)
            check_spellings(users)
            root = merkle.bound_root(merkle.tree_hash(leaves.tobytes()), len(leaves))
            declaration = Declaration(root, len(leaves), self.epoch, _now())
            if self.declared is None or self.declared.root != root:
                *before, present = self._epochs
                if present.terms is not None and (present.declarations or present.document is not None):
                    raise InvalidInputError(
                        "the users of a seasoned epoch are declared once, before its round: names that come later "
                        "could have been chosen by their keys; rotate the ring with the terms of another round and "
                        "declare the new list there"
                    )
                self._epochs = (*before, replace(present, declarations=(*present.declarations, declaration)))
        return self

    def commitment(self, epoch: int | None = None) -> str:
        """The Merkle root over the keys that were declared last in an epoch, bound to their number."""
        return self._declarations(self._existing(epoch))[-1].root

    def prove(self, user: str, users: Iterable[str], *, epoch: int | None = None) -> UserProof:
        """Show that a user was declared: with the user's key, it convinces without the master secret.

        ``users`` is the list that was declared, the latest or an earlier one of the epoch, in any order.
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
        if hashes[index : index + 1].tobytes() != leaf:
            raise InvalidInputError(
                f"user {quoted(user)} is not among the {len(hashes):,} users declared, and what was not declared "
                "beforehand cannot be proven"
            )
        path = tuple(sibling.hex() for sibling in merkle.audit_path(leaves, index))
        return UserProof(name.decode(), commitment.hex(), index, len(hashes), path, root)

    def season(self, content: bytes | Mapping[str, Any]) -> Self:
        """Give the present epoch's keys the value of their round; changes the ring in place and returns it.

        ``content`` is what the round's source published (JSON). The users have to be declared before.

        Raises
        ------
        RoundValueError
            When it is the value of another round, or forged.
        """
        with self._change_lock:
            *before, present = self._epochs
            if present.terms is None:
                raise InvalidKeyError(
                    "the keys of this epoch are not to be seasoned: it was made without the terms of a round; rotate "
                    "the ring with some"
                )
            self._declarations(self.epoch)
            document = present.terms.round.read(content)
            if present.document is None:
                self._epochs = (*before, replace(present, document=document))
        return self

    @property
    def seasoned_by(self) -> Terms | None:
        """The terms of the present epoch, where its keys are seasoned or wait for it."""
        return self._epochs[-1].terms

    @property
    def season_value(self) -> RoundValue | None:
        """The value of the present epoch's round, once :meth:`season` was given it."""
        epoch = self._epochs[-1]
        return None if epoch.terms is None or epoch.document is None else epoch.terms.round.value_of(epoch.document)

    @property
    def waits_for(self) -> Terms | None:
        """The terms of the present epoch, where its keys wait for their round."""
        return self._epochs[-1].terms if self._epochs[-1].waits else None

    def rotate(self, terms: Terms | None = None) -> Self:
        """Open a new epoch, in which every user has a new key; changes the ring in place and returns it.

        With ``terms`` the keys of the new epoch are seasoned.

        Older epochs stay derivable (``epoch=``) and their declarations are kept. Nobody is declared in the new epoch
        yet. Tokens stay valid: rotation changes the marks, not who the users are.
        """
        with self._change_lock:
            self._epochs = (*self._epochs, _Epoch(_now(), terms=terms))
        return self

    # -- who is asking

    def token_for(self, user: str) -> str:
        """A token by which a server knows the user: his name, readable, and an HMAC that only the ring can make.

        It belongs to no epoch and does not expire; to take it from a user, give him another name.
        """
        name = encode_user(user)
        tag = hmac.digest(self._subkey(b"ring/tokens"), name, "sha256")
        return ".".join(["drw1", *(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (name, tag))])

    def user_of(self, token: str) -> str:
        """The user whom a token names; raises ``InvalidInputError`` if :meth:`token_for` did not make it."""
        try:
            _, name, _ = token.split(".")
            user = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
            # Whole tokens are compared, so each user has exactly one, however base64 may be spelt.
            valid = hmac.compare_digest(self.token_for(user).encode(), token.encode())
        except (AttributeError, TypeError, ValueError):
            valid = False
        if not valid:
            raise InvalidInputError("this token is not valid; pass one that token_for of this key ring made")
        return user

    # -- keeping it

    @property
    def secret(self) -> bytes:
        """The 32-byte master secret."""
        return self._secret

    @property
    def identity(self) -> str:
        """64 hexadecimal digits that fix the secret and the settings and show neither; they never change."""
        return self._identity

    def history_digests(self) -> list[str]:
        """A digest for every state the ring has been in, the present one last: a hash chain under the secret."""
        chain_key, digest, digests = self._subkey(b"ring/history"), b"", []
        for epoch in self._epochs:
            for event in epoch.events():
                digest = hmac.digest(chain_key, digest + encode(event), "sha256")
                digests.append(digest.hex())
        return digests

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyRing):
            return NotImplemented
        return self.identity == other.identity and self._epochs == other._epochs

    def __hash__(self) -> int:
        return hash(self.identity)  # which declarations and rotations do not change

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

    def _base_secret(self, epoch: int, user: bytes) -> bytes:
        # The epoch has a fixed length and the name comes last, so no two pairs of them are the same bytes.
        return derivation.expand(self._extracted, b"ring/user/" + epoch.to_bytes(8, "big") + user)

    def _user_secret(self, epoch: int, user: bytes) -> bytes:
        """The secret that marks for a user: of a seasoned epoch it takes the round's value."""
        at = self._epochs[epoch]
        if at.terms is not None and at.document is None:  # with nothing secret at hand
            raise UnseasonedKeyError(
                f"the keys of epoch {epoch} wait for {at.terms.round}, and mark nothing until then: save what "
                f"{at.terms.round.address} gives then, and pass it to ring.season (drw-hf season RING --value FILE)"
            )
        base = self._base_secret(epoch, user)
        if at.terms is None:
            return base
        return seasoned_secret(base, self._committed(epoch, base).hex(), self._value(epoch))

    def _value(self, epoch: int) -> bytes:
        at = self._epochs[epoch]
        if epoch not in self._values:
            assert at.terms is not None and at.document is not None
            self._values[epoch] = at.terms.round.value_of(at.document).value
        return self._values[epoch]

    def _committed(self, epoch: int, secret: bytes) -> bytes:
        """What a user's leaf commits to: the key, or in a seasoned epoch the base secret with its terms."""
        # All but the secret and the key id is the same for all; where the id belongs, a random text of its length is.
        if epoch not in self._around_ids:
            at = self._epochs[epoch]
            fields, arrays = self.template(epoch)._fields()
            fields |= {"created_at": at.opened_at, "key_id": secrets.token_hex(8)}
            covered = {**fields, "arrays": arrays} if at.terms is None else base_fields(fields, arrays, at.terms)
            before, after = encode(covered).split(fields["key_id"].encode())
            self._around_ids[epoch] = before, after
        before, after = self._around_ids[epoch]
        domain = KEY_DOMAIN if self._epochs[epoch].terms is None else BASE_DOMAIN
        return hashlib.sha256(b"".join((domain, secret, before, _key_id(secret).encode(), after))).digest()

    def _commitments(self, epoch: int, users: list[bytes]) -> list[tuple[bytes, bytes]]:
        """For every user the commitment in the leaf, without making the key, and the leaf."""
        found = ((self._committed(epoch, self._base_secret(epoch, user)), user) for user in users)
        return [(commitment, merkle.leaf_hash(commitment, user)) for commitment, user in found]

    def _leaves(self, users: Iterable[str], epoch: int) -> np.ndarray:
        """The leaves of the tree over the users' keys, in its order; refuses doubles by name."""
        users, leaves = listed(users), bytearray()
        for names in _encoded(users):
            leaves += b"".join([leaf for _, leaf in self._commitments(epoch, names)])
        if not leaves:
            raise InvalidInputError("the list of users is empty; give at least one user")
        hashes = merkle.in_order(leaves)
        doubles = np.flatnonzero(hashes[1:] == hashes[:-1])
        if doubles.size:
            ((most_frequent, _),) = Counter(users).most_common(1)
            raise InvalidInputError(
                f"{doubles.size:,} of the {len(hashes):,} users are repetitions, {quoted(most_frequent)} for one; "
                "give every user once"
            )
        return hashes

    def _content(self) -> Content:
        fields, arrays = self._template._fields()
        fields["ring_id"] = fields.pop("key_id")
        fields["secret"] = self._secret.hex()
        fields["epochs"] = [epoch.to_fields() for epoch in self._epochs]
        seasoned = any(epoch.terms is not None for epoch in self._epochs)
        return Content(fields, arrays, self._shown(), version=2 if seasoned else 1)

    @classmethod
    def _from_content(cls, content: Content) -> Self | None:
        try:
            fields = dict(content.fields)
            fields["key_id"], epochs = fields.pop("ring_id"), fields.pop("epochs")
            template = WatermarkKey._from_content(replace(content, fields=fields))
            if template is None or not epochs:
                return None
            ring = cls(template, secret=template.secret)
            ring._epochs = tuple(_Epoch.from_fields(number, epoch) for number, epoch in enumerate(epochs))
            ring.history_digests()  # fails here for what has no encoding
        except KeyTooLargeError:
            raise
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            return None
        dates = [epoch.opened_at for epoch in ring._epochs]
        return (
            ring
            if all(isinstance(date, str) for date in dates) and all(map(_well_formed, ring.declarations))
            else None
        )


def load_key_or_ring(
    name_or_path: str | os.PathLike, passphrase: str | None = None, **options: Unpack[PullOptions]
) -> WatermarkKey | KeyRing:
    """What was saved in a folder or repository, whichever it is; the parameters are those of ``from_pretrained``."""
    place = find_files(name_or_path, **options)
    return (KeyRing if kind_of(place) is RING else WatermarkKey).from_pretrained(place, passphrase=passphrase)


def _encoded(users: Iterable[str]) -> Iterator[list[bytes]]:
    """The users' names as bytes, some thousands at a time."""
    names = iter(listed(users))
    while chunk := [encode_user(user) for user in islice(names, _USERS_AT_ONCE)]:
        yield chunk


def _refuse_order_of_its_own(rule: HashRule, vocab_size: int) -> None:
    """A rule that orders tokens by the key's secret picks other tokens for every user, so no probe serves for all."""

    def refuse() -> np.ndarray:
        raise InvalidKeyError(
            f"the hash rule {rule.name!r} orders tokens by a key's own secret, and the users of a ring must share the "
            "order; use hash_rule='keyed', or give your rule an order in its settings, as KeyedRule's order_key"
        )

    if type(rule) is not KeyedRule:  # for which a ring makes an order
        rule.token_scores(vocab_size, refuse)


def _well_formed(said: Declaration) -> bool:
    """Whether a declaration that was read from a file is one that :meth:`KeyRing.declare` makes."""
    counted = type(said.count) is int and 1 <= said.count < 2**63
    return counted and derivation.is_hexadecimal(said.root) and isinstance(said.declared_at, str)


def _key_id(secret: bytes) -> str:
    return derivation.subkey(secret, "ring/key id").hex()[:16]
