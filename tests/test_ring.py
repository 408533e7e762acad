"""KeyRing: a key for every user from one master secret, what is said of them beforehand, and what never leaves it."""

import copy
import dataclasses
import hashlib
import hmac
import json
import logging
import os
import pickle
import stat
import threading
import traceback
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from drw_hf import WatermarkKey
from drw_hf.errors import (
    DrwError,
    InvalidInputError,
    InvalidKeyError,
    KeyFileError,
    KeySerializationError,
    WrongPassphraseError,
)
from drw_hf.keys import HashRule, KeyedRule, KeyRing, RarestRule, derivation
from drw_hf.keys import ring as ring_module
from drw_hf.keys.files import refuse_model_beside_plain_key
from drw_hf.keys.users import MAX_USER_BYTES
from needles import leaks_in
from small_models import SPECIAL, TAGS, make_key, make_model

SECRET = bytes(range(32))
OPENED, ROTATED = "2026-01-01T00:00:00+00:00", "2026-02-02T00:00:00+00:00"
PASSPHRASE = "correct horse battery staple"
VECTORS = json.loads((Path(__file__).parent / "vectors" / "ring.json").read_text())
MODEL = make_model()
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def make_ring(secret=SECRET, model=MODEL, **settings):
    """A ring of which everything is fixed."""
    key = make_key(model, **settings).replace(key_id="0123456789abcdef", created_at=OPENED)
    return KeyRing(key, secret=secret)


TWO = make_ring().rotate()  # a ring with two epochs, in which nobody is declared


@pytest.fixture
def fixed_clock(monkeypatch):
    monkeypatch.setattr(ring_module, "_now", lambda: ROTATED)


# -- the committed vectors


def test_user_keys_tables_and_tokens_match_the_committed_vectors(fixed_clock):
    ring, keyed = make_ring().rotate(), make_ring(hash_rule="keyed").rotate()
    assert (ring.identity, keyed.identity) == (VECTORS["identity"], VECTORS["keyed_identity"])
    for vector in VECTORS["users"]:
        user, epoch = vector["user"], vector["epoch"]
        key = ring.key_for(user, epoch)
        assert (key.secret.hex(), key.key_id) == (vector["secret"], vector["key_id"])
        assert key.created_at == (OPENED, ROTATED)[epoch]
        assert ring.table_keys([user], epoch)[0].hex() == vector["table_key"]
        np.testing.assert_array_equal(key.entries([0, 1, 63]), [vector["phase"], vector["selection"]])
        assert key.commitment() == vector["commitment"]
        assert keyed.key_for(user, epoch).commitment() == vector["keyed_commitment"]
        assert ring.token_for(user) == vector["token"] and ring.user_of(vector["token"]) == user
    assert [keyed.template(epoch).hash_rule.order_key for epoch in (0, 1)] == VECTORS["order_keys"]
    np.testing.assert_array_equal(keyed.key_for("alice", 0).rule_scores()[:4], VECTORS["keyed_order"])


def test_roots_match_the_committed_vectors():
    ring = make_ring()
    for count, root in VECTORS["roots"].items():
        assert ring.declare(f"user-{i}" for i in range(int(count))).commitment() == root


def hkdf(secret, info):
    return HKDF(algorithm=SHA256(), length=32, salt=b"drw-hf key derivation v1", info=info).derive(secret)


def test_the_derivation_is_as_documented_transcribed_anew():
    ring = make_ring(hash_rule="keyed")
    secret = hkdf(SECRET, b"ring/user/" + bytes(8) + b"alice")
    key = ring.key_for("alice")
    assert key.secret == secret and key.key_id == hkdf(secret, b"ring/key id")[:8].hex()
    assert ring.table_keys(["alice"]) == [hkdf(secret, b"direct/tables")]
    assert key.hash_rule.order_key == hkdf(SECRET, b"ring/order/" + bytes(8)).hex()
    leaf = hashlib.sha256(b"\x00" + bytes.fromhex(key.commitment()) + b"alice").digest()
    root = hashlib.sha256(b"drw-hf declared users v1" + (1).to_bytes(8, "big") + leaf).hexdigest()
    assert ring.declare(["alice"]).commitment() == root


# -- users


@given(users=st.lists(names, min_size=1, max_size=5))
def test_table_keys_are_those_of_the_users_keys(users):
    for epoch in (0, 1):
        for domain in ("direct/tables", "tilt/phases"):
            expected = [derivation.subkey(TWO.key_for(user, epoch).secret, domain) for user in users]
            assert TWO.table_keys(users, epoch, domain) == expected
        assert TWO.table_keys(users, epoch) == TWO.table_keys(users, epoch, "direct/tables")


@given(secret=st.binary(min_size=32, max_size=32), domain=st.text(st.characters(codec="ascii")))
def test_the_fast_hkdf_is_hkdf(secret, domain):
    assert derivation.expand(derivation.extract(secret), domain.encode()) == derivation.subkey(secret, domain)


@given(user=names)
def test_a_key_is_the_same_whenever_it_is_derived(user):
    again = make_ring().key_for(user)
    assert again == TWO.key_for(user, 0) and again.secret == TWO.key_for(user, 0).secret
    assert again.commitment() == TWO._commitments(0, [user.encode()])[0][0].hex()


@given(
    labels=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4, unique=True),
    key_id=st.text(st.characters(codec="ascii"), max_size=20),
    rule=st.sampled_from([KeyedRule(), KeyedRule(np.arange(64.0)), RarestRule(np.arange(64.0)), RarestRule()]),
    user=names,
)
def test_declared_commitments_are_those_of_the_keys_whatever_the_settings(labels, key_id, rule, user):
    key = make_key(MODEL).replace(labels=tuple(labels), key_id=key_id, hash_rule=rule)
    ring = KeyRing(key, secret=SECRET).rotate()
    for epoch in (0, 1):
        assert ring._commitments(epoch, [user.encode()])[0][0].hex() == ring.key_for(user, epoch).commitment()


@given(first=st.tuples(st.integers(0, 1), names), second=st.tuples(st.integers(0, 1), names))
def test_no_two_users_or_epochs_share_anything(first, second):
    one, other = (TWO.key_for(user, epoch) for epoch, user in (first, second))
    for name in ("secret", "key_id", "commitment"):
        mine, theirs = (getattr(key, name) for key in (one, other))
        assert (mine() == theirs() if callable(mine) else mine == theirs) == (first == second)


def test_prefixes_case_and_unicode_forms_are_different_users():
    users = ["a", "ab", "abc", "A", "a ", "a\x00", "\x00a", "\u00e9", "e\u0301", "\x00" * 7 + "\x01a", "1", "01"]
    keys = [TWO.key_for(user, epoch) for user in users for epoch in (0, 1)]
    assert len({key.secret for key in keys}) == len({key.commitment() for key in keys}) == 2 * len(users)


def test_a_users_key_is_an_ordinary_key(tmp_path):
    ring = make_ring(model=make_model("token-classification"), epsilon=0.1, frequency=12.0)
    key = ring.key_for("customer-42")
    assert isinstance(key, WatermarkKey) and (key.law, key.epsilon, key.frequency) == ("direct", 0.1, 12.0)
    assert key.labels == tuple(TAGS) and key.special_token_ids == tuple(sorted(SPECIAL.values()))
    for passphrase in (None, PASSPHRASE):
        key.save_pretrained(tmp_path / str(passphrase), passphrase=passphrase)
        assert WatermarkKey.from_pretrained(tmp_path / str(passphrase), passphrase=passphrase) == key


def test_generate_takes_what_a_key_takes(tokenizer):
    options = {"tokenizer": tokenizer, "target": "positive", "epsilon": 0.1, "tau": 0.25, "scope": "all"}
    ring, key = KeyRing.generate(MODEL, **options), WatermarkKey.generate(MODEL, **options)
    for name in ("task", "labels", "target", "epsilon", "tau", "scope", "law", "tokenizer_fingerprint", "vocab_size"):
        assert getattr(ring.template(), name) == getattr(key, name) == getattr(ring.key_for("u"), name)
    assert ring.secret != KeyRing.generate(MODEL, **options).secret
    assert KeyRing.generate(MODEL, **options, secret=SECRET).secret == SECRET


def test_the_templates_tables_are_nobodys():
    ring = make_ring()
    assert ring.template() is ring.template()
    users = [f"user-{i}" for i in range(100)]
    assert derivation.subkey(ring.template().secret, "direct/tables") not in ring.table_keys(users)
    assert ring.template().secret != SECRET


def test_the_same_key_object_is_given_again_and_old_ones_are_let_go(monkeypatch):
    monkeypatch.setattr(ring_module, "_KEYS_KEPT", 2)
    ring = make_ring()
    first = ring.key_for("a")
    assert ring.key_for("a") is first
    for user in "bca":
        ring.key_for(user)
    assert ring.key_for("a") is not first and ring.key_for("a") == first and len(ring._keys) == 2


def test_sub_keys_of_recent_users_are_kept_and_old_ones_let_go(monkeypatch):
    """For whoever answers them: nothing of it is shown, pickled or saved, and there is a bound."""
    monkeypatch.setattr(ring_module, "_USERS_KEPT", 3)
    ring, domains = make_ring(), (derivation.TABLES, derivation.TILT_PHASES, derivation.DRAWS)
    for epoch in (0, 1):
        for users in (["a"], ["b", "c", "b"], ["d", "a"], ["a", "b", "c", "d", "e"]):
            for domain in domains:
                expected = [ring.key_for(user, epoch).subkey(domain) for user in users]
                assert ring.subkeys(users, domain, epoch) == ring.subkeys(users, domain) == expected
                assert len(ring._recent) <= 3
        ring.rotate()
    before = ring.subkeys(["a"], domains[0], 0)
    assert ring.subkeys(["a"], domains[0]) != before, "rotated"
    for user, (value, problem) in ((user, BAD_USERS[user]) for user in BAD_USERS):
        with pytest.raises(InvalidInputError, match=problem):
            print(user, ring.subkeys(["a", value], domains[0]))
    said = f"{ring!r} {ring} {ring.to_files(passphrase='sealed')}".encode()
    assert not leaks_in(ring.key_for("a"), [("shown", said)])
    with pytest.raises(KeySerializationError):
        pickle.dumps(ring)
    assert copy.deepcopy(ring) is ring


def test_threads_may_ask_for_sub_keys_at_once(monkeypatch):
    monkeypatch.setattr(ring_module, "_USERS_KEPT", 5)
    ring, users = make_ring(), [f"user {number}" for number in range(20)]
    expected, wrong = ring.table_keys(users), []

    def ask(shift):
        for number in range(200):
            place = (number * 7 + shift) % 20
            if ring.subkeys([users[place]], derivation.TABLES) != [expected[place]]:
                wrong.append(place)

    threads = [threading.Thread(target=ask, args=(shift,)) for shift in range(6)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert not wrong and len(ring._recent) <= 5


BAD_USERS = {
    "empty": ("", "empty string"),
    "a number": (42, "no string"),
    "nothing": (None, "no string"),
    "bytes": (b"alice", "no string"),
    "a lone surrogate": ("al\ud800ice", "surrogate"),
    "too long": ("é" * (MAX_USER_BYTES // 2 + 1), "1,026 bytes"),
}


@pytest.mark.parametrize("user, said", BAD_USERS.values(), ids=BAD_USERS.keys())
def test_what_names_nobody_is_refused(user, said):
    ring = make_ring().declare(["alice"])
    for act in (
        lambda: ring.key_for(user),
        lambda: ring.table_keys(["alice", user]),
        lambda: ring.declare(["alice", user]),
        lambda: ring.prove(user, ["alice"]),
        lambda: ring.token_for(user),
    ):
        with pytest.raises(InvalidInputError, match=said) as caught:
            act()
        assert len(str(caught.value)) < 300 and isinstance(caught.value, ValueError)


def test_the_longest_names_are_users():
    assert TWO.user_of(TWO.token_for("é" * (MAX_USER_BYTES // 2))) == "é" * (MAX_USER_BYTES // 2)


@pytest.mark.parametrize("epoch", [2, -1, True, 0.0, "0"])
def test_an_epoch_that_does_not_exist_is_refused(epoch):
    for act in (TWO.key_for, TWO.prove):
        with pytest.raises(InvalidInputError, match="epochs 0 to 1"):
            act("alice", **({"users": ["alice"]} if act == TWO.prove else {}), epoch=epoch)
    for act in (TWO.template, TWO.commitment, lambda epoch: TWO.table_keys(["a"], epoch)):
        with pytest.raises(InvalidInputError, match="rotate"):
            act(epoch)


def test_rings_are_of_law_direct():
    with pytest.raises(InvalidKeyError, match="law='direct'"):
        KeyRing.generate(MODEL, target=1, special_token_ids=[0], law="paper")
    with pytest.raises(InvalidKeyError, match="law='direct'"):
        KeyRing(make_key(MODEL, law="paper"))
    arrays = {"v_k": np.ones(4), "v_s": np.ones(4), "M": np.ones((64, 4))}
    with pytest.raises(InvalidKeyError, match="made from arrays"):
        KeyRing(WatermarkKey.from_arrays(**arrays, config=MODEL, target=1, special_token_ids=[0]))


@pytest.mark.parametrize("secret", [b"short", "x" * 32, bytearray(32)])
def test_a_master_secret_is_32_bytes(secret):
    with pytest.raises(InvalidKeyError, match="32 bytes"):
        make_ring(secret)
    with pytest.raises(InvalidKeyError, match=r"KeyRing\.generate"):
        KeyRing(secret)


# -- two users' tables have nothing in common; each at the level 1e-4 on a fixed secret


def test_two_users_tables_are_uniform_and_uncorrelated():
    ring = make_ring(model=make_model(vocab_size=30522))
    first, second, rotated = ring.key_for("a"), ring.key_for("b"), ring.rotate().key_for("a")
    tables = [getattr(key, name) for key in (first, second, rotated) for name in ("phase_table", "selection_table")]
    for table in tables:
        assert stats.kstest(table, "uniform").pvalue > 1e-4
    correlations = np.corrcoef(tables)[np.triu_indices(len(tables), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(30522)
    for one, other in ((0, 2), (1, 3), (0, 3), (0, 4)):
        counts, _, _ = np.histogram2d(tables[one], tables[other], bins=10, range=[[0, 1], [0, 1]])
        assert stats.chi2_contingency(counts).pvalue > 1e-4


def test_one_tokens_hashes_over_many_users_are_uniform_and_their_correlations_as_chance_has_them():
    ring = make_ring()
    streams = [derivation.keystream(key, 0, 64) for key in ring.table_keys([f"user-{i}" for i in range(2000)])]
    phases = np.stack([derivation.to_unit_interval(stream)[::2] for stream in streams])
    assert stats.kstest(phases[:, 7], "uniform").pvalue > 1e-4
    np.testing.assert_array_equal(phases[3], ring.key_for("user-3").phase_table)
    scaled = np.sqrt(12) * (phases - 0.5)
    between = (scaled @ scaled.T / 8)[np.triu_indices(2000, 1)]  # mean 0 and variance 1 for independent tables
    assert abs(between.mean()) * 1000 < 4 * np.sqrt(2)
    assert between.std() == pytest.approx(1.0, abs=0.01)


# -- the order of the rule `keyed` is the ring's


def test_users_of_a_ring_share_the_order_of_tokens_and_rotation_changes_it():
    ring = make_ring(hash_rule="keyed").rotate()
    for epoch in (0, 1):
        order = ring.template(epoch).rule_scores()
        for user in ("alice", "bob"):
            np.testing.assert_array_equal(ring.key_for(user, epoch).rule_scores(), order)
    assert (ring.template(0).rule_scores() != ring.template(1).rule_scores()).mean() > 0.9
    other = make_ring(b"\x01" * 32, hash_rule="keyed")
    assert (ring.template(0).rule_scores() != other.template(0).rule_scores()).mean() > 0.9


def test_the_shared_order_is_unrelated_to_the_tables():
    ring = make_ring(model=make_model(vocab_size=30522), hash_rule="keyed")
    key = ring.key_for("alice")
    order = derivation.order_from(bytes.fromhex(key.hash_rule.order_key), 30522)
    for table in (key.phase_table, key.selection_table, ring.template().phase_table):
        assert abs(np.corrcoef(order, table)[0, 1]) < 4 / np.sqrt(30522)


def test_frequencies_and_an_order_that_was_given_are_kept():
    frequencies = np.arange(64.0)
    rule = make_ring(hash_rule=KeyedRule(frequencies)).key_for("a").hash_rule
    np.testing.assert_array_equal(rule.frequencies, frequencies)
    assert rule.order_key is not None
    assert make_ring(hash_rule=KeyedRule(order_key="ab" * 32)).key_for("a").hash_rule.order_key == "ab" * 32


def test_a_keyed_rule_without_an_order_key_is_as_it_always_was():
    key = make_key(MODEL, hash_rule="keyed")
    assert key.hash_rule.settings() == {} and key.hash_rule == KeyedRule()
    common = np.arange(64) < 6
    np.testing.assert_array_equal(key.rule_scores(), -(derivation.token_order(key.secret, 64) + common))
    fixed = key.replace(key_id="0123456789abcdef", created_at=OPENED)
    fields = fixed._fields()[0]
    assert fields["hash_rule"] == {"name": "keyed", "settings": {}}
    assert pickle.loads(pickle.dumps(KeyedRule(np.ones(3)))) == KeyedRule(np.ones(3))


def test_an_order_key_is_saved_committed_to_and_never_shown(tmp_path):
    rule = KeyedRule(order_key="ab" * 32)
    key = make_key(MODEL, hash_rule=rule)
    assert key.replace(hash_rule=KeyedRule(order_key="ac" * 32)).commitment() != key.commitment()
    assert key.replace(hash_rule=KeyedRule()).commitment() != key.commitment()
    key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    again = WatermarkKey.from_pretrained(tmp_path, passphrase=PASSPHRASE)
    assert again == key and again.hash_rule == rule
    assert "abab" not in repr(rule) + repr(dataclasses.asdict(rule)) + (tmp_path / "drw_key.json").read_text()
    assert copy.deepcopy(rule) is rule and copy.copy(rule) is rule
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(KeySerializationError):
            pickle.dumps([rule], protocol=protocol)


@pytest.mark.parametrize("bad", ["ab" * 31, "AB" * 32, b"ab" * 32, "zz" * 32, 7])
def test_an_order_key_is_64_hexadecimal_digits(bad):
    with pytest.raises(InvalidKeyError, match="64 hexadecimal"):
        KeyedRule(order_key=bad)


def test_a_rule_that_orders_by_each_keys_own_secret_is_refused():
    class Shuffled(HashRule):
        name = "test-shuffled"

        def token_scores(self, vocab_size, order):
            return order()

        def choose(self, tokens):
            return tokens.scores.argmax(-1)

    with pytest.raises(InvalidKeyError, match="must share the order"):
        make_ring(hash_rule=Shuffled())


# -- declarations, proofs, epochs


def test_declaring_changes_the_ring_in_place_and_keeps_root_and_count_only():
    ring = make_ring()
    assert ring.declared is None and ring.declarations == ()
    before = vars(ring).copy()
    assert ring.declare(["alice", "bob"]) is ring
    assert (ring.declared.count, ring.declared.epoch, ring.declared.root) == (2, 0, ring.commitment())
    assert {name for name in before if vars(ring)[name] is not before[name]} == {"_epochs"}
    assert "alice" not in repr(ring._epochs)


def test_the_root_depends_on_the_users_and_not_on_their_order_or_the_way_they_come():
    users = [f"user-{i}" for i in range(7)]
    ways = (users, users[::-1], set(users), iter(users), map(str, users), dict.fromkeys(users), np.array(users))
    assert len({make_ring().declare(way).commitment() for way in ways}) == 1
    assert len({make_ring().declare(users[:n]).commitment() for n in range(1, 8)}) == 7


def test_chunks_do_not_change_the_root(monkeypatch):
    users = [f"user-{i}" for i in range(25)]
    expected = make_ring().declare(users).commitment()
    monkeypatch.setattr(ring_module, "_USERS_AT_ONCE", 4)
    assert make_ring().declare(users).commitment() == expected
    assert make_ring().table_keys(users)[24] == make_ring().table_keys(users[24:])[0]


def test_later_declarations_keep_the_earlier_ones_provable():
    ring = make_ring().declare(["alice"]).declare(["alice", "bob"]).declare(["bob", "alice"])
    assert [one.count for one in ring.declarations] == [1, 2], "the same users again are no new declaration"
    assert ring.declared.count == 2 and ring.commitment() == ring.declarations[1].root
    early, late = ring.prove("alice", ["alice"]), ring.prove("alice", ["alice", "bob"])
    assert verifies(ring, early, ring.declarations[0]) and verifies(ring, late, ring.declarations[1])
    assert not verifies(ring, early, ring.declarations[1])


def verifies(ring, proof, declaration):
    return proof.verify(ring.key_for(proof.user, declaration.epoch), declaration.root)


def test_rotation_opens_an_epoch_and_keeps_the_old_ones():
    ring = make_ring().declare(["alice", "bob"])
    old_key, old_root, identity = ring.key_for("alice"), ring.commitment(), ring.identity
    assert ring.rotate() is ring and ring.epoch == 1
    assert ring.key_for("alice") != old_key == ring.key_for("alice", epoch=0)
    assert ring.declared is None and ring.commitment(epoch=0) == old_root and ring.identity == identity
    assert ring.prove("alice", ["bob", "alice"], epoch=0).verify(old_key, old_root)
    ring.declare(["alice", "bob"])
    assert ring.commitment() != old_root and [one.epoch for one in ring.declarations] == [0, 1]
    assert not ring.prove("alice", ["alice", "bob"]).verify(old_key)


def test_without_a_declaration_there_is_nothing_to_commit_to_or_prove():
    ring = make_ring().declare(["alice"]).rotate()
    for act in (ring.commitment, lambda: ring.prove("alice", ["alice"])):
        with pytest.raises(InvalidKeyError, match=r"epoch 1.*ring\.declare"):
            act()


def test_a_user_who_was_not_declared_cannot_be_proven():
    with pytest.raises(InvalidInputError, match="'mallory' is not among the 2 users declared"):
        make_ring().declare(["alice", "bob"]).prove("mallory", ["alice", "bob"])


@pytest.mark.parametrize("users", [["alice"], ["alice", "bob", "mallory"], ["alice", "Bob"]])
def test_a_list_other_than_the_declared_one_is_said_to_be(users):
    with pytest.raises(InvalidInputError, match="the very list that was declared"):
        make_ring().declare(["alice", "bob"]).prove("alice", users)


def test_duplicates_are_refused_by_name_and_change_nothing():
    ring = make_ring().declare(["alice"])
    for users in (["bob", "alice", "carol", "alice"], iter(["alice", "alice", "alice"])):
        with pytest.raises(InvalidInputError, match="'alice'"):
            ring.declare(users)
    with pytest.raises(InvalidInputError, match="'bob'"):
        ring.prove("alice", ["alice", "bob", "bob"])
    assert ring.declarations[-1].count == 1 and len(ring.declarations) == 1


@pytest.mark.parametrize(
    "users, said",
    [([], "empty"), (iter([]), "empty"), ("alice", "list"), (b"alice", "list"), (None, "list"), (3, "list")],
)
def test_what_is_no_list_of_users_is_refused(users, said):
    with pytest.raises(InvalidInputError, match=said):
        make_ring().declare(users)


def test_an_open_file_is_refused_because_its_lines_have_ends(tmp_path):
    (tmp_path / "users.txt").write_text("alice\nbob\n")
    with (tmp_path / "users.txt").open() as file, pytest.raises(InvalidInputError, match="splitlines"):
        make_ring().declare(file)


def test_declaring_many_users_takes_32_bytes_a_user_whatever_their_names(monkeypatch):
    class Users:
        def __iter__(self):
            return (f"{i:0500d}" for i in range(30_000))

    monkeypatch.setattr(ring_module, "_USERS_AT_ONCE", 1000)
    ring = make_ring()
    tracemalloc.start()
    leaves = ring._leaves(Users(), 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(leaves) == 30_000 and peak < 30_000 * 32 * 3 + 2e6, "the names alone are 16 MB"


# -- tokens


@given(user=names)
def test_a_token_gives_its_user_back(user):
    token = TWO.token_for(user)
    assert TWO.user_of(token) == user
    assert token.isascii() and token.isprintable() and " " not in token


@given(user=names, data=st.data())
def test_no_altered_token_is_valid(user, data):
    token = TWO.token_for(user)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.characters(codec="ascii") | st.sampled_from("AQgw.=-_"))
    altered = data.draw(
        st.sampled_from([token[:place] + letter + token[place + 1 :], token[:place], token + letter, letter + token])
    )
    if altered != token:
        refused(TWO, altered)


def refused(ring, token):
    with pytest.raises(InvalidInputError) as caught:
        ring.user_of(token)
    assert str(caught.value) == "this token is not valid; pass one that token_for of this key ring made"
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "drw1..", "drw1.YQ", "drw1.YQ.", "drw1.YQ==.x", "a" * 10**6, None, b"drw1.YQ.x", 7, "é.é.é"],
)
def test_what_is_no_token_is_refused_in_the_same_words(token):
    refused(TWO, token)


def test_one_customers_token_does_not_serve_for_another_or_for_another_ring():
    mine, other = TWO.token_for("alice").split("."), TWO.token_for("bob").split(".")
    refused(TWO, ".".join([mine[0], other[1], mine[2]]))
    refused(make_ring(b"\x01" * 32), TWO.token_for("alice"))
    guessed = hmac.digest(b"", b"alice", "sha256").hex()
    refused(TWO, f"drw1.YWxpY2U.{guessed}")


def test_tokens_outlive_a_rotation():
    ring = make_ring()
    token = ring.token_for("alice")
    assert ring.rotate().user_of(token) == "alice" and ring.token_for("alice") == token


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    real = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda *pair: compared.append(pair) or real(*pair))
    for token in (TWO.token_for("alice"), TWO.token_for("alice")[:-1] + "!"):
        try:
            TWO.user_of(token)
        except InvalidInputError:
            pass
    assert len(compared) == 2 and all(isinstance(side, bytes) for pair in compared for side in pair)


# -- files

RINGS = {
    "fresh": lambda: make_ring(),
    "with a history": lambda: make_ring().declare(["a"]).declare(["a", "b"]).rotate().rotate().declare(["c"]),
    "keyed by frequency": lambda: make_ring(hash_rule=KeyedRule(np.arange(64.0))).declare(["a"]),
    "tagger": lambda: make_ring(model=make_model("token-classification"), scope="all", epsilon=0.123456789),
}


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
@pytest.mark.parametrize("kind", RINGS)
def test_a_ring_comes_back_as_it_was(tmp_path, kind, passphrase):
    ring = RINGS[kind]()
    ring.save_pretrained(tmp_path / "ring", passphrase=passphrase)
    again = KeyRing.from_pretrained(tmp_path / "ring", passphrase=passphrase)
    assert again == ring and again.secret == ring.secret and again.declarations == ring.declarations
    assert again.epoch == ring.epoch and again.template() == ring.template()
    for epoch in range(ring.epoch + 1):
        assert again.key_for("alice", epoch) == ring.key_for("alice", epoch)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "ring").iterdir()}
    expected = {"drw_ring.json", "drw_ring.safetensors"} if "frequency" in kind else {"drw_ring.json"}
    assert files == dict.fromkeys(expected, 0o600)
    assert set(ring.to_files(passphrase=passphrase)) == expected


def test_a_sealed_ring_shows_nothing_of_secret_settings_or_users(tmp_path):
    ring = make_ring(hash_rule=KeyedRule(np.arange(64.0))).declare(["alice", "bob"])
    ring.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    document = json.loads((tmp_path / "drw_ring.json").read_text())
    assert (document["format"], document["version"], document["sealed"]) == ("drw-hf-ring", 1, True)
    assert document["commitment"] == ring.identity
    for shown in (SECRET.hex(), "negative", "epsilon", "alice", ring.commitment(), "count", ring.declared.declared_at):
        assert shown.encode() not in content


def test_the_same_ring_is_replaced_by_its_later_states_sealed_or_plain(tmp_path):
    ring = make_ring()
    for change in (lambda: ring.declare(["a"]), ring.rotate, lambda: ring.declare(["a", "b"]), lambda: ring):
        for passphrase in (PASSPHRASE, None, PASSPHRASE):
            ring.save_pretrained(tmp_path, passphrase=passphrase)
            assert KeyRing.from_pretrained(tmp_path, passphrase=passphrase) == ring
        change()
    ring.save_pretrained(tmp_path)
    assert [one.count for one in KeyRing.from_pretrained(tmp_path).declarations] == [1, 2]


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
@pytest.mark.parametrize("later", [lambda ring: ring.declare(["c"]), KeyRing.rotate], ids=["declared", "rotated"])
def test_epochs_and_declarations_that_lie_in_the_file_are_never_lost(tmp_path, passphrase, later):
    ring = make_ring().declare(["a"])
    ring.save_pretrained(tmp_path, passphrase=passphrase)
    stale, fork = (KeyRing.from_pretrained(tmp_path, passphrase=passphrase) for _ in range(2))
    later(ring).save_pretrained(tmp_path, passphrase=passphrase)
    content = (tmp_path / "drw_ring.json").read_bytes()
    for other in (stale, fork.declare(["x", "y"]), make_ring()):
        with pytest.raises(KeyFileError, match="would be lost"):
            other.save_pretrained(tmp_path, passphrase=passphrase)
    assert (tmp_path / "drw_ring.json").read_bytes() == content


@pytest.mark.parametrize("other", [{"secret": b"\x01" * 32}, {"epsilon": 0.1}], ids=["secret", "settings"])
def test_another_ring_is_never_replaced(tmp_path, other):
    make_ring().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    for passphrase in (None, PASSPHRASE):
        with pytest.raises(KeyFileError, match="another key ring"):
            make_ring(**other).save_pretrained(tmp_path, passphrase=passphrase)
    assert KeyRing.from_pretrained(tmp_path, passphrase=PASSPHRASE) == make_ring()


@pytest.mark.parametrize("fault", ["fsync", "replace"])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, fault):
    ring = make_ring()
    ring.save_pretrained(tmp_path)
    before = (tmp_path / "drw_ring.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, fault, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(KeyFileError, match="No space left"):
            ring.rotate().save_pretrained(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_plain_ring_does_not_go_where_a_model_lies_nor_a_model_where_a_plain_ring_lies(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    for place in ("model", "model/ring"):
        with pytest.raises(KeyFileError, match="passphrase"):
            make_ring().save_pretrained(tmp_path / place)
    make_ring().save_pretrained(tmp_path / "model", passphrase=PASSPHRASE)
    refuse_model_beside_plain_key(tmp_path / "model")
    make_ring().save_pretrained(tmp_path / "ring")
    for place in ("ring", "ring/checkpoint-1", ""):
        with pytest.raises(KeyFileError, match="plain key ring"):
            refuse_model_beside_plain_key(tmp_path / place)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_no_single_changed_byte_gives_another_ring(tmp_path, passphrase):
    ring = RINGS["with a history"]()
    ring.save_pretrained(tmp_path, passphrase=passphrase)
    path = tmp_path / "drw_ring.json"
    content = path.read_bytes()
    for place in range(0, len(content), 5):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            assert KeyRing.from_pretrained(tmp_path, passphrase=passphrase) == ring
        except DrwError as error:
            assert isinstance(error, KeyFileError) and SECRET.hex() not in str(error)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_every_truncation_is_refused(tmp_path, passphrase):
    make_ring().declare(["a"]).save_pretrained(tmp_path, passphrase=passphrase)
    path = tmp_path / "drw_ring.json"
    content = path.read_bytes()
    for length in range(0, len(content) - 2, 11):
        path.write_bytes(content[:length])
        with pytest.raises(KeyFileError):
            KeyRing.from_pretrained(tmp_path, passphrase=passphrase)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(content=st.binary(max_size=60) | st.text(max_size=60).map(str.encode) | st.just(b"[" * 100000))
def test_any_other_file_is_refused(tmp_path, content):
    (tmp_path / "drw_ring.json").write_bytes(content)
    with pytest.raises(KeyFileError):
        KeyRing.from_pretrained(tmp_path)


def resigned(path, change):
    """A plain file altered by somebody who knows how its digest is made."""
    document = json.loads(path.read_text())
    change(document)
    del document["digest"]
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    path.write_text(json.dumps({**document, "digest": hashlib.sha256(canonical).hexdigest()}))


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["key"].update(epochs=[]),
        lambda document: document["key"].update(epochs="none"),
        lambda document: document["key"]["epochs"][0].update(declarations=[]),
        lambda document: document["key"]["epochs"][0]["declarations"][0].update(count=1),
        lambda document: document["key"]["epochs"][0]["declarations"][0].update(root="\ud800"),
        lambda document: document["key"].update(law="paper"),
        lambda document: document["key"].update(epsilon=0.3),
        lambda document: document["key"].update(secret="00" * 32),
        lambda document: document["key"].pop("ring_id"),
        lambda document: document.update(head="00" * 32),
        lambda document: document.update(commitment="00" * 32),
    ],
)
def test_no_declaration_epoch_or_setting_is_dropped_or_changed_unnoticed(tmp_path, change):
    make_ring().declare(["a", "b"]).save_pretrained(tmp_path)
    resigned(tmp_path / "drw_ring.json", change)
    with pytest.raises(KeyFileError, match="not of the form"):
        KeyRing.from_pretrained(tmp_path)


def test_a_newer_version_asks_for_an_update(tmp_path):
    make_ring().save_pretrained(tmp_path)
    resigned(tmp_path / "drw_ring.json", lambda document: document.update(version=3))
    with pytest.raises(KeyFileError, match="update drw_hf"):
        KeyRing.from_pretrained(tmp_path)


@pytest.mark.parametrize("wrong", ["wrong", None])
def test_a_wrong_or_missing_passphrase_says_so(tmp_path, wrong):
    make_ring().save_pretrained(tmp_path, passphrase=PASSPHRASE)
    with pytest.raises(WrongPassphraseError, match="passphrase"):
        KeyRing.from_pretrained(tmp_path, passphrase=wrong)


def test_a_plain_ring_is_not_taken_where_a_sealed_one_was_expected(tmp_path):
    make_ring().save_pretrained(tmp_path)
    with pytest.raises(KeyFileError, match="not sealed"):
        KeyRing.from_pretrained(tmp_path, passphrase=PASSPHRASE)


def test_a_key_and_a_ring_are_told_apart_by_whoever_loads_them(tmp_path):
    make_ring().save_pretrained(tmp_path / "ring")
    make_ring().key_for("alice").save_pretrained(tmp_path / "key")
    for place in ("ring", "ring/drw_ring.json"):
        with pytest.raises(KeyFileError, match=r"holds a key ring.*KeyRing\.from_pretrained"):
            WatermarkKey.from_pretrained(tmp_path / place)
    for place in ("key", "key/drw_key.json"):
        with pytest.raises(KeyFileError, match=r"holds a key, where a key ring.*WatermarkKey\.from_pretrained"):
            KeyRing.from_pretrained(tmp_path / place)
    with pytest.raises(KeyFileError, match=r"no key ring at.*KeyRing\.generate"):
        KeyRing.from_pretrained(tmp_path / "nowhere")


def test_a_ring_and_a_key_may_lie_in_one_folder(tmp_path):
    ring, key = make_ring(), make_key(MODEL)
    ring.save_pretrained(tmp_path)
    key.save_pretrained(tmp_path)
    assert KeyRing.from_pretrained(tmp_path) == ring and WatermarkKey.from_pretrained(tmp_path) == key


# -- what never leaves it


def secrets_of(ring):
    """What no text may show: the master, what is derived from it for all users, a user's secret, a valid token."""
    hidden = [ring.secret, ring._extracted, ring.key_for("alice").secret, *ring.table_keys(["alice"])]
    hidden += [ring._subkey(domain) for domain in (b"ring/tokens", b"ring/template", b"ring/history")]
    return [form for secret in hidden for form in (secret.hex(), repr(secret), str(list(secret)))]


def test_repr_str_and_logs_show_the_fingerprint_only(caplog):
    ring = make_ring().declare(["alice"])
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("anyone").warning("ring %s %r", ring, ring)
    for text in (repr(ring), f"{ring}", repr([ring]), caplog.text):
        assert f"KeyRing(fingerprint='{ring.fingerprint}')" in text
        assert not any(secret in text for secret in secrets_of(ring))
    assert ring.fingerprint == ring.identity[:16] != ring.commitment()[:16]


def test_pickling_raises_and_copying_returns_the_ring():
    ring = make_ring()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(KeySerializationError, match="save_pretrained"):
            pickle.dumps({"nested": [ring]}, protocol=protocol)
    assert copy.copy(ring) is ring and copy.deepcopy([ring])[0] is ring
    with pytest.raises(TypeError):
        dataclasses.asdict(ring)


def test_rings_are_equal_by_what_they_hold(fixed_clock):
    ring, same = make_ring(), make_ring()
    assert ring == same and hash(ring) == hash(same) and ring != "ring"
    before = hash(ring)
    ring.declare(["alice"])
    assert ring != same and hash(ring) == before
    assert ring == same.declare(["alice"])
    assert make_ring(b"\x01" * 32) != make_ring() != make_ring(epsilon=0.1)


def broken_users():
    yield from ["alice", "bob"]
    raise RuntimeError("the data base went away")


class BrokenUsers:
    def __iter__(self):
        return broken_users()


FAILURES = {
    "bad user": lambda ring, folder: ring.declare(["alice", "bob", None]),
    "duplicate": lambda ring, folder: ring.declare(["alice", "alice"]),
    "users that break": lambda ring, folder: ring.declare(BrokenUsers()),
    "search that breaks": lambda ring, folder: ring.table_keys(BrokenUsers()),
    "other list": lambda ring, folder: ring.prove("alice", ["alice", "bob"]),
    "undeclared": lambda ring, folder: ring.prove("bob", ["alice"]),
    "forged token": lambda ring, folder: ring.user_of("drw1.YWxpY2U.AAAA"),
    "no such epoch": lambda ring, folder: ring.key_for("alice", 9),
    "save": lambda ring, folder: ring.save_pretrained(folder / "file", passphrase=PASSPHRASE),
    "load": lambda ring, folder: KeyRing.from_pretrained(folder / "damaged"),
    "open": lambda ring, folder: KeyRing.from_pretrained(folder / "damaged", passphrase=PASSPHRASE),
}


@pytest.mark.parametrize("act", FAILURES)
def test_no_error_and_no_frame_of_one_shows_a_secret(tmp_path, act):
    """What an error reporter that shows local variables would show."""
    ring = make_ring().declare(["alice"])
    (tmp_path / "file").write_text("")
    ring.save_pretrained(tmp_path / "damaged")
    resigned(tmp_path / "damaged" / "drw_ring.json", lambda document: document["key"].update(epochs=[{}]))
    with pytest.raises((DrwError, RuntimeError)) as caught:
        FAILURES[act](ring, tmp_path)
    shown, frames = "", caught.value.__traceback__
    while frames is not None:
        if "drw_hf" in frames.tb_frame.f_code.co_filename:
            shown += repr(frames.tb_frame.f_locals)
        frames = frames.tb_next
    shown += "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=False).format())
    assert shown and ring.token_for("alice") not in shown and PASSPHRASE not in shown
    assert not any(secret in shown for secret in secrets_of(ring))


def test_a_sealed_file_a_proof_and_a_token_carry_no_users_secret(tmp_path):
    ring = make_ring().declare(["alice", "bob"])
    ring.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    contents = [
        ("file", (tmp_path / "drw_ring.json").read_bytes()),
        ("proof", json.dumps(ring.prove("alice", ["alice", "bob"]).to_dict()).encode()),
        ("token", ring.token_for("alice").encode()),
    ]
    for key in (ring.key_for("alice"), ring.key_for("bob"), ring.template(), make_key(MODEL, secret=SECRET)):
        assert not leaks_in(key, contents)


def test_opening_a_users_key_shows_nothing_from_which_others_could_be_derived():
    key, ring = make_ring(hash_rule="keyed").key_for("alice"), make_ring(hash_rule="keyed")
    opened = b"".join(key.to_files().values()).decode()
    order = ring.template().hash_rule.order_key
    assert key.secret.hex() in opened and order in opened, "the order of tokens is the one thing that users share"
    hidden = [ring.secret, ring._extracted, ring.template().secret, ring.key_for("bob").secret]
    assert not any(secret.hex() in opened for secret in hidden)
