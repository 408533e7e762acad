"""The Merkle tree over users' keys, held against RFC 6962's own recursive definition, and the proofs it gives."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.errors import InvalidInputError
from drw_hf.keys import KeyRing, UserProof, verify_proof
from drw_hf.keys.merkle import audit_path, bound_root, in_order, leaf_hash, root_from_path, tree_hash
from small_models import make_key, make_model

SETTINGS = make_key(make_model()).replace(key_id="0123456789abcdef", created_at="2026-01-01T00:00:00+00:00")
RING = KeyRing(SETTINGS, secret=bytes(range(32)))
USERS = [f"user-{i}" for i in range(11)]
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def sha256(content):
    return hashlib.sha256(content).digest()


def rfc_6962(leaves):
    """MTH of section 2.1: split at the largest power of two below the number of leaves."""
    if len(leaves) == 1:
        return leaves[0]
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + rfc_6962(leaves[:k]) + rfc_6962(leaves[k:]))


def rfc_6962_path(index, leaves):
    """PATH of section 2.1.1."""
    if len(leaves) == 1:
        return []
    k = 1 << (len(leaves) - 1).bit_length() - 1
    if index < k:
        return [*rfc_6962_path(index, leaves[:k]), rfc_6962(leaves[k:])]
    return [*rfc_6962_path(index - k, leaves[k:]), rfc_6962(leaves[:k])]


def leaves_of(count):
    return [sha256(b"\x00" + bytes([i])) for i in range(count)]


@pytest.mark.parametrize("count", range(1, 35))
def test_roots_and_paths_are_those_of_rfc_6962(count):
    leaves = leaves_of(count)
    root = rfc_6962(leaves)
    assert tree_hash(b"".join(leaves)) == root
    for index, leaf in enumerate(leaves):
        path = audit_path(b"".join(leaves), index)
        assert path == rfc_6962_path(index, leaves)
        assert root_from_path(leaf, index, count, path) == root


def test_the_test_vectors_of_certificate_transparency_hold():
    """The eight inputs with which the logs' own implementations are tested, and the root of all of them."""
    inputs = [bytes.fromhex(text) for text in ("", "00", "10", "2021", "3031", "40414243")]
    inputs += [bytes(range(0x50, 0x58)), bytes(range(0x60, 0x70))]
    leaves = b"".join(sha256(b"\x00" + data) for data in inputs)
    assert tree_hash(leaves).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@given(count=st.integers(1, 40), data=st.data())
def test_a_path_fits_its_own_index_and_count_only(count, data):
    leaves = leaves_of(count)
    index = data.draw(st.integers(0, count - 1))
    path = audit_path(b"".join(leaves), index)
    for other in range(-1, count + 1):
        if other != index:
            assert root_from_path(leaves[index], other, count, path) != rfc_6962(leaves)
    assert root_from_path(leaves[index], index, count, [*path, bytes(32)]) is None
    if path:
        assert root_from_path(leaves[index], index, count, path[:-1]) != rfc_6962(leaves)


def test_a_doubled_last_leaf_gives_another_root():
    """Where an odd node is paired with itself, as in Bitcoin's tree, these two are the same."""
    leaves = leaves_of(3)
    assert tree_hash(b"".join(leaves)) != tree_hash(b"".join([*leaves, leaves[-1]]))


def test_a_node_is_never_taken_for_a_leaf_and_the_count_is_part_of_the_root():
    first, second = leaves_of(2)
    assert leaf_hash(first, second) != tree_hash(first + second)
    assert bound_root(first, 1) != bound_root(first, 2)
    assert len(bound_root(first, 1)) == 64


def test_leaves_stand_in_the_order_of_their_bytes_zeros_included():
    leaves = [bytes(32), b"\x00" * 31 + b"\x01", b"\x01" + bytes(31), b"\x01\x00\x01" + bytes(29), b"\xff" * 32]
    leaves += leaves_of(50)
    assert in_order(b"".join(leaves)).tobytes() == b"".join(sorted(leaves))


def test_a_leaf_binds_the_name_to_the_key():
    proof = RING.declare(USERS).prove("user-3", USERS)
    assert proof.verify(RING.key_for("user-3"))
    assert not dataclasses.replace(proof, user="user-4").verify(RING.key_for("user-3"))


# -- proofs


@given(users=st.sets(names, min_size=1, max_size=9), data=st.data())
def test_every_declared_user_can_be_proven_and_nobody_by_another_key(users, data):
    users = data.draw(st.permutations(sorted(users)))
    RING.declare(users)
    commitment = RING.commitment()
    for user in users:
        proof = RING.prove(user, reversed(users))
        assert (proof.user, proof.count, proof.root) == (user, len(users), commitment)
        assert proof.verify(RING.key_for(user)) and verify_proof(proof, RING.key_for(user), commitment)
        assert not proof.verify(RING.key_for(user + "x"))
        assert not verify_proof(proof, RING.key_for(user), "0" * 64)


hashes = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(data=st.data())
def test_no_altered_proof_verifies(data):
    proof = RING.declare(USERS).prove(data.draw(st.sampled_from(USERS)), USERS)
    key, commitment = RING.key_for(proof.user), RING.commitment()
    changes = {
        "user": names,
        "key_commitment": hashes | st.sampled_from([RING.key_for(user).commitment() for user in USERS]),
        "index": st.integers(-2, 20),
        "count": st.integers(-2, 2**65),
        "path": st.lists(hashes, max_size=5).map(tuple)
        | st.integers(0, len(proof.path) - 1).map(lambda cut: proof.path[:cut])
        | st.permutations(proof.path).map(tuple)
        | st.just((*proof.path, "00" * 32)),
        "root": hashes,
    }
    name = data.draw(st.sampled_from(sorted(changes)))
    altered = dataclasses.replace(proof, **{name: data.draw(changes[name])})
    assert verify_proof(altered, key, commitment) == (altered == proof)


@pytest.mark.parametrize(
    "change",
    [
        {"user": None},
        {"user": "\ud800"},
        {"index": True},
        {"index": 0.0},
        {"count": "11"},
        {"path": None},
        {"path": ("zz" * 32,)},
        {"path": [1]},
        {"root": "A" * 64},
        {"root": None},
        {"key_commitment": ""},
    ],
)
def test_malformed_proofs_do_not_verify_and_do_not_load(change):
    proof = RING.declare(USERS).prove("user-0", USERS)
    assert not dataclasses.replace(proof, **change).verify(RING.key_for("user-0"))
    with pytest.raises(InvalidInputError, match="damaged"):
        UserProof.from_dict({**proof.to_dict(), **change})


def test_what_is_no_proof_no_key_or_no_commitment_does_not_verify():
    proof, key = RING.declare(USERS).prove("user-0", USERS), RING.key_for("user-0")
    assert not verify_proof(None, key, proof.root)
    assert not verify_proof(proof, key.commitment(), proof.root)
    assert not verify_proof(proof, key, "é" * 64)
    assert not verify_proof(proof, key, None)


def test_a_proof_travels_as_json_and_is_checked_with_the_key_alone(tmp_path):
    """What a court gets: the user's key, the proof, and the commitment that was published before."""
    RING.declare(USERS)
    published = RING.commitment()
    (tmp_path / "proof.json").write_text(json.dumps(RING.prove("user-5", USERS).to_dict()))
    RING.key_for("user-5").save_pretrained(tmp_path / "key")

    proof = UserProof.from_dict(json.loads((tmp_path / "proof.json").read_text()))
    key = type(RING.key_for("user-5")).from_pretrained(tmp_path / "key")
    assert verify_proof(proof, key, published) and proof.user == "user-5"


def test_other_documents_and_newer_versions_are_refused():
    document = RING.declare(USERS).prove("user-0", USERS).to_dict()
    for other in ({}, [], None, {**document, "format": "drw-hf-key"}):
        with pytest.raises(InvalidInputError, match="to_dict"):
            UserProof.from_dict(other)
    with pytest.raises(InvalidInputError, match="update drw_hf"):
        UserProof.from_dict({**document, "version": 2})


def test_a_proof_shows_of_others_nothing_but_hashes():
    proof = RING.declare(USERS).prove("user-0", USERS)
    told = json.dumps(proof.to_dict())
    assert RING.secret.hex() not in told and RING.key_for("user-0").secret.hex() not in told
    for user in USERS[1:]:
        key = RING.key_for(user)
        assert user + '"' not in told and key.commitment() not in told and key.secret.hex() not in told


def test_the_place_in_the_tree_does_not_follow_the_names():
    users = [f"{i:04d}" for i in range(400)]
    RING.declare(users)
    places = [RING.prove(user, users).index for user in users[:40]]
    assert abs(np.corrcoef(places, range(40))[0, 1]) < 4 / np.sqrt(40)
