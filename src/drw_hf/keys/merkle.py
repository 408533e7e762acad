"""A Merkle tree over users' key commitments: one number fixes them all, and any one of them can be opened alone.

The tree is that of RFC 6962: leaves and nodes are hashed in different domains, and where a level has an odd node it
moves up as it is, so nothing is ever doubled. The root that is published binds the number of leaves too.

A leaf holds the user's name besides the commitment of the key, so nobody can say afterwards that a key was somebody
else's. Whoever sees a leaf's hash learns nothing: the commitment in it contains the user's secret. Leaves stand in the
order of their hashes, so the tree does not depend on the order of the list, and a place in it says nothing of a name.
"""

import hashlib
import hmac
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from ..errors import InvalidInputError
from .derivation import is_hexadecimal
from .key import WatermarkKey
from .sealing import has_lone_surrogate

HASH_BYTES = 32
_LEAF, _NODE = b"\x00", b"\x01"
_ROOT = b"drw-hf declared users v1"
_PROOF_FORMAT, _PROOF_VERSION = "drw-hf-user-proof", 1


def leaf_hash(commitment: bytes, user: bytes) -> bytes:
    """The leaf of one user: the 32 bytes of the key's commitment, then the name."""
    return hashlib.sha256(_LEAF + commitment + user).digest()


def in_order(leaves: bytes | bytearray) -> np.ndarray:
    """The leaf hashes, given one after the other, in the order of the tree; an array of 32-byte strings."""
    return np.sort(np.frombuffer(leaves, dtype=f"S{HASH_BYTES}"))


def tree_hash(leaves: bytes) -> bytes:
    """The root of the tree over leaf hashes that stand one after the other (RFC 6962, section 2.1)."""
    return deque(_levels(leaves), maxlen=1).pop()


def audit_path(leaves: bytes, index: int) -> list[bytes]:
    """The siblings from a leaf up to the root (RFC 6962, section 2.1.1)."""
    path = []
    for level in _levels(leaves):
        start = (index ^ 1) * HASH_BYTES
        if start < len(level):
            path.append(level[start : start + HASH_BYTES])
        index >>= 1
    return path


def root_from_path(leaf: bytes, index: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root to which a path leads, or None where it does not fit the index and the count (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < count:
        return None
    node, last = leaf, count - 1
    for sibling in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            node = _node_hash(sibling + node)
            while index and not index & 1:  # it had moved up alone
                index, last = index >> 1, last >> 1
        else:
            node = _node_hash(node + sibling)
        index, last = index >> 1, last >> 1
    return node if last == 0 else None


def bound_root(root: bytes, count: int, domain: bytes = _ROOT) -> str:
    """What is published: the root and the number of leaves in one hash, as 64 hexadecimal digits.

    ``domain`` says of what the tree is: by default of declared users.
    """
    return hashlib.sha256(domain + count.to_bytes(8, "big") + root).hexdigest()


@dataclass(frozen=True)
class Declaration:
    """What an owner said beforehand about the users of an epoch.

    Attributes
    ----------
    root : str
        The Merkle root over the users' keys, bound to the count: 64 hexadecimal digits, to be published.
    count, epoch : int
        How many users were declared, and the epoch of their keys.
    declared_at : str
        When (UTC, ISO 8601), by this machine's clock; a time stamp over the root is what convinces others.
    """

    root: str
    count: int
    epoch: int
    declared_at: str


@dataclass(frozen=True)
class UserProof:
    """Shows that a user's key was among those declared, without the master secret and without any other user's key.

    :meth:`KeyRing.prove` makes it. It holds no secret, but it is of use only together with the user's key.

    Attributes
    ----------
    user, key_commitment : str
        The user, and the commitment of the user's key; of a seasoned one that which was made before its round.
    index, count : int
        The place among the leaves, which says nothing of the name, and the number of users declared.
    path : tuple of str
        The sibling hashes up to the root.
    root : str
        The ring's commitment at the time.
    """

    user: str
    key_commitment: str
    index: int
    count: int
    path: tuple[str, ...]
    root: str

    def verify(self, key: WatermarkKey, commitment: str | None = None) -> bool:
        """Whether ``key`` is the key that was declared for :attr:`user` under ``commitment``.

        Without ``commitment`` the proof is held against its own :attr:`root`; that shows something only to those who
        compare the root with the one that was published.
        """
        return verify_proof(self, key, self.root if commitment is None else commitment)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        fields = {**asdict(self), "path": list(self.path)}
        return {"format": _PROOF_FORMAT, "version": _PROOF_VERSION, **fields}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The proof that :meth:`to_dict` wrote; whether it is right is for :meth:`verify` to say."""
        if not isinstance(document, Mapping) or document.get("format") != _PROOF_FORMAT:
            raise InvalidInputError("this is no proof of a user's key; give what UserProof.to_dict returned")
        if document.get("version") != _PROOF_VERSION:
            raise InvalidInputError(
                f"this proof has format version {document.get('version')!r}, this drw_hf reads {_PROOF_VERSION}; "
                "update drw_hf (pip install -U drw_hf)"
            )
        fields: dict[str, Any] = {name: document.get(name) for name in cls.__dataclass_fields__}
        fields["path"] = tuple(fields["path"]) if isinstance(fields["path"], list | tuple) else None
        proof = cls(**fields)
        if not _well_formed(proof):
            raise InvalidInputError(
                f"this proof is incomplete or damaged; give all that UserProof.to_dict returned: {list(fields)}"
            )
        return proof


def verify_proof(proof: UserProof, key: WatermarkKey, commitment: str) -> bool:
    """Whether ``key`` was declared for the proof's user under ``commitment``, a ring's published commitment.

    Needs neither the ring nor its master secret; an altered proof, another key and another commitment give False.
    """
    if not _well_formed(proof) or not is_hexadecimal(commitment) or not isinstance(key, WatermarkKey):
        return False
    leaf = leaf_hash(bytes.fromhex(proof.key_commitment), proof.user.encode())
    root = root_from_path(leaf, proof.index, proof.count, [bytes.fromhex(sibling) for sibling in proof.path])
    return (
        root is not None
        and hmac.compare_digest(bound_root(root, proof.count), proof.root)
        and hmac.compare_digest(commitment, proof.root)
        and hmac.compare_digest(declared_commitment(key), proof.key_commitment)
    )


def declared_commitment(key: WatermarkKey) -> str:
    """What a user's leaf holds: the commitment to the key, or to its base secret where the key was seasoned."""
    return key.commitment() if key.seasoning is None else key.seasoning.commitment


def _well_formed(proof: UserProof) -> bool:
    return (
        isinstance(proof, UserProof)
        and isinstance(proof.user, str)
        and not has_lone_surrogate(proof.user)
        and type(proof.index) is int
        and type(proof.count) is int
        and 0 <= proof.index < proof.count < 2**63
        and isinstance(proof.path, tuple)
        and all(map(is_hexadecimal, (*proof.path, proof.root, proof.key_commitment)))
    )


def _node_hash(children: bytes) -> bytes:
    return hashlib.sha256(_NODE + children).digest()


def _levels(leaves: bytes) -> Iterator[bytes]:
    """The leaves, then their parents, up to the root alone."""
    level, width = leaves, 2 * HASH_BYTES
    yield level
    while len(level) > HASH_BYTES:
        odd = len(level) % width
        parents = bytearray()
        for start in range(0, len(level) - odd, width):
            parents += _node_hash(level[start : start + width])
        level = bytes(parents + level[len(level) - odd :])
        yield level
