"""Seasoned keys: numbers that public randomness chose, after the key was committed to, and secrets that stay so."""

import copy
import dataclasses
import hashlib
import json
import pickle
import stat
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from drw_hf import KeyRing, WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.errors import (
    DrwError,
    InvalidInputError,
    InvalidKeyError,
    KeyFileError,
    KeySerializationError,
    RoundValueError,
    UnseasonedKeyError,
    WrongPassphraseError,
)
from drw_hf.hub.auditing import PLAIN, SEALED, WEAK, classify
from drw_hf.keys import Round, Terms, UnseasonedKey, derivation, verify_proof
from drw_hf.keys.binding import tokenizer_digest, weights_digest
from drw_hf.keys.commitment import encode
from drw_hf.keys.files import refuse_model_beside_plain_key
from drw_hf.keys.seasoning import ANY_TEXTS, Seasoning
from drw_hf.watermark.mark import RingUsers
from local_beacon import LocalBeacon
from needles import leaks_in
from small_models import make_key, make_model, make_tokenizer, make_victim
from test_ring import resigned

VECTORS = json.loads((Path(__file__).parent / "vectors" / "seasoning.json").read_text())
BEACONS = json.loads((Path(__file__).parent / "vectors" / "beacons.json").read_text())
SECRET = bytes(range(32, 64))
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
OPENED = "2026-01-01T00:00:00+00:00"
PASSPHRASE = "correct horse battery staple"
MODEL = make_model()
BEACON = LocalBeacon()


def make_terms(round_=None, **changes):
    fixed = {"weights": "ab" * 32, "tokenizer": "cd" * 32, "statistics": ("drw-exact-2",), **changes}
    return Terms(round=round_ or BEACON.round(NOON), **fixed)


def template(**settings):
    return make_key(MODEL, **settings).replace(key_id="0123456789abcdef", created_at=OPENED)


def make_unseasoned(terms=None, secret=SECRET, **settings):
    return UnseasonedKey(template(**settings), terms or make_terms(), secret=secret)


def make_seasoned(**settings):
    return make_unseasoned(**settings).season(BEACON.pulse(NOON))


def make_ring(users=("ann", "bob", "eve"), season=True):
    ring = KeyRing(template(hash_rule="keyed"), secret=SECRET, terms=make_terms()).declare(users)
    return ring.season(BEACON.pulse(NOON)) if season else ring


# -- the derivation


def real_case():
    """A key seasoned by a pulse that NIST published."""
    nist = BEACONS["nist"]
    time = datetime.fromisoformat(nist["time"])
    round_ = Round.at("nist", time, certificate=nist["certificate"].encode(), chain=nist["chain"])
    return make_unseasoned(make_terms(round_)), nist["pulse"]


def test_commitment_secret_and_hashes_match_the_committed_vectors():
    unseasoned, pulse = real_case()
    key = unseasoned.season(pulse)
    assert unseasoned.commitment() == VECTORS["base_commitment"]
    assert (key.secret.hex(), key.commitment()) == (VECTORS["secret"], VECTORS["commitment"])
    np.testing.assert_array_equal(key.entries([5, 6, 63]), [VECTORS["phase"], VECTORS["selection"]])


def test_the_derivation_is_as_documented_transcribed_anew():
    unseasoned, pulse = real_case()
    key, terms = unseasoned.season(pulse), unseasoned.terms
    fields, _ = template()._fields()
    covered = {
        **fields,
        "arrays": {},
        "terms": {
            "round": {
                "source": "nist",
                "chain": "1",
                "public_key": terms.round.public_key,
                "number": 1535651040000,
            },
            "weights": "ab" * 32,
            "tokenizer": "cd" * 32,
            "statistics": ["drw-exact-2"],
            "texts": ANY_TEXTS,
        },
    }
    base = hashlib.sha256(b"drw-hf unseasoned key commitment v1" + SECRET + encode(covered)).digest()
    value = bytes.fromhex(pulse["outputValue"])
    hkdf = HKDF(algorithm=SHA256(), length=32, salt=value, info=b"drw-hf seasoned secret v1" + base)
    assert key.secret == hkdf.derive(SECRET) and unseasoned.commitment() == base.hex()
    seasoned = {**fields, "seasoning": {"commitment": base.hex(), "value": value.hex()}, "arrays": {}}
    expected = hashlib.sha256(b"drw-hf key commitment v1" + key.secret + encode(seasoned)).hexdigest()
    assert key.commitment() == expected


def test_whatever_is_fixed_beforehand_changes_the_commitment_and_with_it_the_secret():
    round_ = BEACON.round(NOON)
    cases = [make_unseasoned(), make_unseasoned(secret=bytes(32)), make_unseasoned(epsilon=0.1)]
    for changed in (
        {"weights": "00" * 32},
        {"tokenizer": "00" * 32},
        {"statistics": ("drw-exact-1",)},
        {"texts": "the first thousand of the test split"},
        {"round_": LocalBeacon().round(NOON)},
        {"round_": dataclasses.replace(round_, chain="3")},
        {"round_": BEACON.round(NOON + timedelta(minutes=1))},
    ):
        cases.append(make_unseasoned(make_terms(**changed)))
    assert len({case.commitment() for case in cases}) == len(cases)
    seasoned = [case.season(BEACON.pulse(NOON)) for case in cases if case.terms.round == round_]
    assert len({key.secret for key in seasoned}) == len(seasoned) == 7


def test_another_value_gives_unrelated_numbers():
    unseasoned, later = make_unseasoned(), make_terms(BEACON.round(NOON + timedelta(minutes=1)))
    one = unseasoned.season(BEACON.pulse(NOON))
    other = make_unseasoned(later).season(BEACON.pulse(NOON + timedelta(minutes=1)))
    assert one.secret != other.secret != SECRET != one.secret
    assert abs(np.corrcoef(one.phase_table, other.phase_table)[0, 1]) < 0.5


# -- before the round


def test_a_key_that_waits_for_its_round_marks_nothing_and_says_what_to_do(tmp_path):
    unseasoned = make_unseasoned()
    unseasoned.save_pretrained(tmp_path / "key")
    for act in (
        lambda: WatermarkKey.from_pretrained(tmp_path / "key"),
        lambda: WatermarkKey.from_pretrained(tmp_path / "key" / "drw_unseasoned_key.json"),
        lambda: KeyRing.from_pretrained(tmp_path / "key"),
        lambda: WatermarkedModelForSequenceClassification.from_model(MODEL, key=tmp_path / "key"),
    ):
        with pytest.raises(KeyFileError, match=r"holds an unseasoned key.*waits for its round.*`drw-hf season"):
            act()
    with pytest.raises(UnseasonedKeyError, match=r"waits for its round.*season"):
        WatermarkedModelForSequenceClassification.from_model(MODEL, key=unseasoned)
    victim = make_victim(model=MODEL)
    with pytest.raises(DrwError), victim.use_key(unseasoned):
        pass
    for name in ("entries", "phase_table", "subkey", "rule_scores"):
        assert not hasattr(unseasoned, name)


def test_only_the_value_of_its_very_round_seasons_it():
    unseasoned = make_unseasoned()
    for wrong in (BEACON.pulse(NOON + timedelta(minutes=1)), LocalBeacon().pulse(NOON), {}, b"no json"):
        with pytest.raises(RoundValueError, match="not the value of NIST, 2026-03-01 12:00:00 UTC"):
            unseasoned.season(wrong)
    assert unseasoned.season(BEACON.pulse(NOON)) == unseasoned.season(json.dumps(BEACON.pulse(NOON)).encode())


def test_keys_whose_numbers_were_chosen_cannot_be_seasoned():
    generator = np.random.default_rng(0)
    arrays = {"v_k": generator.random(4), "v_s": generator.random(4), "M": generator.normal(size=(64, 4))}
    bound = {"config": MODEL.config, "task": "sequence-classification", "special_token_ids": [0]}
    chosen = WatermarkKey.from_arrays(**arrays, **bound, target=1)
    with pytest.raises(InvalidKeyError, match="somebody chose"):
        UnseasonedKey(chosen, make_terms())
    with pytest.raises(InvalidKeyError, match="expected a WatermarkKey"):
        UnseasonedKey(make_unseasoned(), make_terms())


def test_the_secret_is_fresh_and_the_templates_plays_no_part():
    terms, key = make_terms(), template()
    assert UnseasonedKey(key, terms).secret != UnseasonedKey(key, terms).secret
    other = key.replace(secret=bytes(32))
    assert UnseasonedKey(other, terms, secret=SECRET) == UnseasonedKey(key, terms, secret=SECRET)


def test_terms_come_from_the_model_and_its_whole_tokenizer():
    tokenizer = make_tokenizer()
    terms = Terms.of(MODEL, tokenizer, BEACON.round(NOON), statistics=("drw-exact-2",))
    assert (terms.weights, terms.tokenizer) == (weights_digest(MODEL), tokenizer_digest(tokenizer))
    assert weights_digest(make_victim(model=MODEL)) == weights_digest(MODEL) != weights_digest(make_model(seed=1))
    tokenizer(["some words", "more"], padding=True, truncation=True, max_length=3)
    assert tokenizer_digest(tokenizer) == terms.tokenizer, "what a call did to it does not count"
    cased = make_tokenizer()
    cased.backend_tokenizer.normalizer = None
    assert tokenizer_digest(cased) != terms.tokenizer, "the same vocabulary, and other tokens"


@pytest.mark.parametrize(
    "changes",
    [
        {"weights": "short"},
        {"tokenizer": None},
        {"statistics": ()},
        {"statistics": ("",)},
        {"statistics": (3,)},
        {"texts": " "},
        {"texts": "x" * 2001},
        {"texts": None},
    ],
)
def test_terms_that_fix_nothing_are_refused(changes):
    with pytest.raises(InvalidKeyError):
        make_terms(**changes)
    with pytest.raises(InvalidKeyError, match="Round"):
        dataclasses.replace(make_terms(), round="tomorrow")


# -- a seasoned key


def test_a_seasoned_key_marks_like_any_other_and_knows_where_it_comes_from():
    key = make_seasoned()
    assert key.committed and key.seasoning.value.verified
    assert key.seasoning.commitment == make_unseasoned().commitment() != key.commitment()
    plain = template().replace(secret=key.secret)
    np.testing.assert_array_equal(plain.phase_table, key.phase_table)
    assert plain != key, "its commitment covers the value and what was committed to before"
    assert make_victim(model=MODEL, key=key).key is key


def test_changed_it_is_a_seasoned_key_no_longer():
    key = make_seasoned()
    assert key.replace() == key and key.replace().seasoning is key.seasoning
    assert key.replace(epsilon=0.1).seasoning is None and key.replace(epsilon=0.1).secret == key.secret
    for change in ({"epsilon": 0.1}, {"secret": bytes(32)}, {"key_id": "other"}):
        with pytest.raises(InvalidKeyError, match="of another key"):
            key.replace(**change, seasoning=key.seasoning)
    own = key.seasoning
    later = BEACON.pulse(NOON + timedelta(minutes=1))["pulse"]
    for other in (
        Seasoning(bytes(32), own.terms, own.document, own.commitment),
        Seasoning(SECRET, own.terms, own.document, "00" * 32),
        Seasoning(SECRET, make_terms(texts="others"), own.document, own.commitment),
        Seasoning(SECRET, make_terms(BEACON.round(NOON + timedelta(minutes=1))), later, own.commitment),
    ):
        with pytest.raises(InvalidKeyError, match="of another key"):
            key.replace(seasoning=other)


# -- files


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
@pytest.mark.parametrize("settings", [{}, {"hash_rule": "keyed"}, {"mark": "tilt", "temperature": 1.4}], ids=str)
def test_both_kinds_come_back_as_they_were_from_one_folder(tmp_path, passphrase, settings):
    unseasoned = make_unseasoned(**settings)
    unseasoned.save_pretrained(tmp_path, passphrase=passphrase)
    again = UnseasonedKey.from_pretrained(tmp_path, passphrase=passphrase)
    assert again == unseasoned and again.terms == unseasoned.terms and again.secret == SECRET
    key = again.season(BEACON.pulse(NOON))
    key.save_pretrained(tmp_path, passphrase=passphrase)
    loaded = WatermarkKey.from_pretrained(tmp_path, passphrase=passphrase)
    assert loaded == key and loaded.seasoning.terms == unseasoned.terms and loaded.seasoning.value.verified
    assert loaded.seasoning.base_secret == SECRET
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert files == {"drw_key.json": 0o600, "drw_unseasoned_key.json": 0o600}
    assert UnseasonedKey.from_pretrained(tmp_path, passphrase=passphrase) == unseasoned
    with pytest.raises((KeyFileError, WrongPassphraseError)):
        UnseasonedKey.from_pretrained(tmp_path, passphrase="wrong")


def test_versions_say_what_a_reader_must_know(tmp_path):
    versions = {}
    kept = {
        "plain": template(),
        "seasoned": make_seasoned(),
        "unseasoned": make_unseasoned(),
        "ring": KeyRing(template(), secret=SECRET),
        "seasoned ring": make_ring(),
    }
    for name, one in kept.items():
        one.save_pretrained(tmp_path / name)
        document = json.loads((tmp_path / name / one.kind.file).read_text())
        versions[name] = document["version"]
        assert document["version"] == one.format_version
    assert versions == {"plain": 1, "seasoned": 2, "unseasoned": 1, "ring": 1, "seasoned ring": 2}


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(version=1),
        lambda document: document["key"].update(secret="00" * 32),
        lambda document: document["key"].update(seasoning=None),
        lambda document: document["key"].pop("seasoning"),
        lambda document: document["key"]["seasoning"].update(base_secret="00" * 32),
        lambda document: document["key"]["seasoning"].update(commitment="00" * 32),
        lambda document: document["key"]["seasoning"].update(value="00" * 64),
        lambda document: document["key"]["seasoning"].update(more=1),
        lambda document: document["key"]["seasoning"]["terms"].update(texts="others"),
        lambda document: document["key"]["seasoning"]["terms"].update(more=1),
        lambda document: document["key"]["seasoning"]["terms"]["round"].update(number=0),
        lambda document: document["key"]["seasoning"]["terms"]["round"].update(public_key="00"),
        lambda document: document["key"]["seasoning"]["document"].update(signatureValue="00"),
        lambda document: document["key"]["seasoning"]["document"].update(more=1),
        lambda document: document["key"]["seasoning"].update(document=[]),
    ],
)
def test_a_file_that_says_something_else_is_refused(tmp_path, change):
    make_seasoned().save_pretrained(tmp_path)
    resigned(tmp_path / "drw_key.json", change)
    with pytest.raises(KeyFileError, match="not of the form"):
        WatermarkKey.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["key"].update(terms=None),
        lambda document: document["key"]["terms"].update(weights="other"),
        lambda document: document["key"]["terms"].update(statistics=["another"]),
        lambda document: document["key"]["terms"]["round"].update(chain="7"),
        lambda document: document["key"].update(epsilon=0.3),
        lambda document: document["key"].update(secret="00" * 32),
        lambda document: document.update(commitment="00" * 32),
    ],
)
def test_nor_is_an_unseasoned_one_read_that_says_something_else(tmp_path, change):
    make_unseasoned().save_pretrained(tmp_path)
    resigned(tmp_path / "drw_unseasoned_key.json", change)
    with pytest.raises(KeyFileError, match="not of the form"):
        UnseasonedKey.from_pretrained(tmp_path)


def test_another_one_is_never_replaced_and_no_plain_one_lies_with_a_model(tmp_path):
    make_unseasoned().save_pretrained(tmp_path / "key")
    with pytest.raises(KeyFileError, match="another unseasoned key"):
        make_unseasoned(secret=bytes(32)).save_pretrained(tmp_path / "key", passphrase=PASSPHRASE)
    with pytest.raises(KeyFileError, match="plain unseasoned key"):
        refuse_model_beside_plain_key(tmp_path / "key")
    MODEL.save_pretrained(tmp_path / "model")
    with pytest.raises(KeyFileError, match="give a passphrase"):
        make_unseasoned().save_pretrained(tmp_path / "model")


def test_both_are_pushed_sealed_and_pulled_again(hub):
    unseasoned = make_unseasoned()
    key = unseasoned.season(BEACON.pulse(NOON))
    with pytest.raises(DrwError, match="private"):
        unseasoned.push_to_hub("owner/keys", private=False)
    unseasoned.push_to_hub("owner/keys", private=False, passphrase=PASSPHRASE, subfolder="waiting")
    key.push_to_hub("owner/keys", private=False, passphrase=PASSPHRASE, subfolder="seasoned")
    pulled = UnseasonedKey.from_pretrained("owner/keys", subfolder="waiting", passphrase=PASSPHRASE)
    assert pulled == unseasoned
    assert WatermarkKey.from_pretrained("owner/keys", subfolder="seasoned", passphrase=PASSPHRASE) == key
    assert not leaks_in(key, hub.files("owner/keys").items())


def test_an_audit_knows_them(tmp_path):
    for kept in (make_unseasoned(), make_seasoned()):
        for passphrase, kind in ((None, PLAIN), (PASSPHRASE, WEAK)):  # sealed as cheaply as the tests seal
            (content,) = kept.to_files(passphrase=passphrase).values()
            assert classify(kept.kind.file, content)[0] in (kind, SEALED if passphrase else kind)


# -- what never leaves it


def test_nothing_shows_pickles_or_copies_a_base_secret():
    unseasoned, key = make_unseasoned(), make_seasoned()
    for one in (unseasoned, key, key.seasoning):
        assert one.fingerprint in repr(one) if hasattr(one, "fingerprint") else one.commitment[:16] in repr(one)
        for text in (repr(one), str(one), repr([one]), f"{one}"):
            assert SECRET.hex() not in text and repr(SECRET) not in text and key.secret.hex() not in text
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(KeySerializationError):
                pickle.dumps({"nested": [one]}, protocol=protocol)
        assert copy.copy(one) is one and copy.deepcopy([one])[0] is one
        with pytest.raises(TypeError):
            dataclasses.asdict(one)


def test_a_sealed_file_and_a_saved_model_hold_neither_secret(tmp_path):
    key = make_seasoned()
    make_unseasoned().save_pretrained(tmp_path / "waiting", passphrase=PASSPHRASE)
    key.save_pretrained(tmp_path / "seasoned", passphrase=PASSPHRASE)
    make_victim(model=MODEL, key=key).save_pretrained(tmp_path / "model")
    content = [(str(path), path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(content) >= 4 and not leaks_in(key, content)


# -- rings


def test_users_keys_are_seasoned_each_by_itself():
    ring = make_ring()
    keys = [ring.key_for(user) for user in ("ann", "bob")]
    assert keys[0].seasoning.commitment != keys[1].seasoning.commitment
    assert all(key.seasoning.terms == make_terms() and key.seasoning.value.verified for key in keys)
    for user, key in zip(("ann", "bob"), keys, strict=True):
        base = UnseasonedKey(
            ring.template().replace(key_id=key.key_id, created_at=key.created_at),
            make_terms(),
            secret=key.seasoning.base_secret,
        )
        assert base.commitment() == key.seasoning.commitment
        assert base.season(BEACON.pulse(NOON)) == key
        for domain in (derivation.TABLES, derivation.TILT_PHASES):
            assert ring.table_keys([user], domain=domain) == [derivation.subkey(key.secret, domain)]


def test_the_root_is_over_base_secrets_stands_before_the_round_and_proves_without_the_master():
    waiting = make_ring(season=False)
    root = waiting.commitment()
    ring = make_ring()
    assert ring.commitment() == root and ring.identity == waiting.identity
    proof = ring.prove("ann", ["ann", "bob", "eve"])
    assert proof == waiting.prove("ann", ["eve", "bob", "ann"]) and proof.root == root
    assert verify_proof(proof, ring.key_for("ann"), root)
    assert not verify_proof(proof, ring.key_for("bob"), root)
    stolen = ring.key_for("ann").replace(epsilon=0.1)
    assert not verify_proof(proof, stolen, root)


def test_before_the_round_a_ring_marks_for_nobody_and_says_what_to_do():
    ring = make_ring(season=False)
    victim = WatermarkedModelForSequenceClassification.from_model(MODEL, key=ring)
    batch = make_tokenizer()(["the film was good"], return_tensors="pt")
    for act in (
        lambda: ring.key_for("ann"),
        lambda: ring.table_keys(["ann"]),
        lambda: ring.extracted_keys(["ann"]),
        lambda: RingUsers(ring, "ann").keys(),
        lambda: victim(**batch, user="ann"),
    ):
        with pytest.raises(UnseasonedKeyError, match=r"wait for NIST, 2026-03-01 12:00:00 UTC.*ring\.season"):
            act()
    assert ring.waits_for == make_terms()
    ring.season(BEACON.pulse(NOON))
    assert ring.waits_for is None and victim(**batch, user="ann").logits.shape == (1, 2)


def test_no_frame_of_that_refusal_holds_a_secret():
    ring = make_ring(season=False)
    hidden = [repr(secret) for secret in (SECRET, ring._base_secret(0, b"ann"), ring._extracted)]
    for act in (lambda: ring.key_for("ann"), lambda: ring.table_keys(["ann"]), lambda: ring.season(b"no json")):
        with pytest.raises(DrwError) as caught:
            act()
        frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
        shown = [repr(frame.f_locals) for frame in frames if "drw_hf" in frame.f_code.co_filename]
        assert shown and not any(secret in text for secret in hidden for text in shown)


def test_users_who_come_later_need_another_round():
    for season in (False, True):
        ring = make_ring(season=season)
        assert ring.declare(["eve", "bob", "ann"]).declared.count == 3, "the same list once more changes nothing"
        with pytest.raises(InvalidInputError, match="terms of another round"):
            ring.declare(["ann", "bob", "eve", "mallory"])
    with pytest.raises(InvalidKeyError, match="no users were declared"):
        KeyRing(template(), terms=make_terms()).season(BEACON.pulse(NOON))
    later = NOON + timedelta(days=1)
    ring.rotate(make_terms(BEACON.round(later))).declare(["ann", "mallory"]).season(BEACON.pulse(later))
    assert ring.key_for("ann") != ring.key_for("ann", 0) and ring.key_for("ann", 0).seasoning is not None
    assert ring.rotate().key_for("ann").seasoning is None
    with pytest.raises(InvalidKeyError, match="not to be seasoned"):
        ring.season(BEACON.pulse(later))


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_a_ring_comes_back_at_every_stage_and_takes_its_earlier_stages_place(tmp_path, passphrase):
    ring = KeyRing(template(), secret=SECRET, terms=make_terms())
    stages = (
        lambda: ring,
        lambda: ring.declare(["ann", "bob"]),
        lambda: ring.season(BEACON.pulse(NOON)),
        lambda: ring.rotate(),
    )
    stale = None
    for stage in stages:
        stage().save_pretrained(tmp_path, passphrase=passphrase)
        again = KeyRing.from_pretrained(tmp_path, passphrase=passphrase)
        assert again == ring and again.history_digests() == ring.history_digests()
        if stale is not None:
            with pytest.raises(KeyFileError, match="would be lost"):
                stale.save_pretrained(tmp_path, passphrase=passphrase)
        stale = again
    assert stale.key_for("ann", 0) == ring.key_for("ann", 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda epoch: epoch.update(document=None),
        lambda epoch: epoch.update(terms=None),
        lambda epoch: epoch.pop("terms"),
        lambda epoch: epoch["terms"].update(texts="others"),
        lambda epoch: epoch["document"].update(signatureValue="00"),
        lambda epoch: epoch.update(more=1),
    ],
)
def test_a_ring_file_that_says_something_else_is_refused(tmp_path, change):
    make_ring().save_pretrained(tmp_path)
    resigned(tmp_path / "drw_ring.json", lambda document: change(document["key"]["epochs"][0]))
    with pytest.raises(KeyFileError, match="not of the form"):
        KeyRing.from_pretrained(tmp_path)
