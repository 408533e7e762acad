"""Rounds of public randomness: values that NIST and drand really published, and what is not one of them."""

import hashlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drw_hf.errors import InvalidInputError, RoundValueError
from drw_hf.keys import Round, bls
from drw_hf.keys.rounds import DRAND, SOURCES, public_key_of
from local_beacon import LocalBeacon

VECTORS = json.loads((Path(__file__).parent / "vectors" / "beacons.json").read_text())
NIST = VECTORS["nist"]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
with_bls = pytest.mark.usefixtures("needs_bls")


@pytest.fixture
def needs_bls():
    pytest.importorskip("py_ecc", reason="rounds of drand are verified by the extra drw_hf[drand]")


@pytest.fixture(scope="module")
def beacon():
    return LocalBeacon()


def round_of(chain):
    known = DRAND[chain]
    return Round(chain, known.hash, known.public_key, VECTORS[chain]["document"]["round"])


def refusal(round_, document):
    with pytest.raises(RoundValueError) as caught:
        round_.read(document)
    return str(caught.value)


# -- NIST


def test_a_pulse_that_nist_published_is_verified_by_its_certificate():
    time = datetime.fromisoformat(NIST["time"])
    found = Round.at("nist", time, certificate=NIST["certificate"].encode(), chain=NIST["chain"])
    assert found.time == time and found.address.endswith("/chain/1/pulse/time/1535651040000")
    for content in (json.dumps({"pulse": NIST["pulse"]}).encode(), {"pulse": NIST["pulse"]}, NIST["pulse"]):
        kept = found.read(content)
        value = found.value_of(kept)
        assert value.verified and value.value.hex().upper() == NIST["pulse"]["outputValue"]
        assert found.read(kept) == kept


def test_a_certificate_is_read_as_nist_serves_it():
    """Without a newline after its first line."""
    pem = NIST["certificate"]
    assert public_key_of(pem.replace("-----\nM", "-----M").encode()) == public_key_of(pem.encode())


def test_any_altered_field_of_a_pulse_is_found_out(beacon):
    found, sound = beacon.round(NOON), beacon.pulse(NOON)["pulse"]
    assert found.value_of(found.read(sound)).verified
    for name, value in sound.items():
        if isinstance(value, str):
            other = value[:-1] + ("0" if value[-1] != "0" else "1")
        elif isinstance(value, int):
            other = value + 1
        elif isinstance(value, dict):
            other = {**value, "value": "1" * 128}
        else:
            other = [{**value[0], "value": "1" * 128}, *value[1:]]
        assert refusal(found, {**sound, name: other}), name
        assert "not a pulse" in refusal(found, {key: each for key, each in sound.items() if key != name})
        for wrong in (None, [], -1, "zz", 2**70, {"value": 3}):
            assert refusal(found, {**sound, name: wrong}), name


def test_a_pulse_of_another_minute_chain_or_signer_is_refused(beacon):
    found = beacon.round(NOON)
    assert "2026-03-01T12:01:00.000Z" in refusal(found, beacon.pulse(NOON + timedelta(minutes=1)))
    assert "of chain 3" in refusal(found, beacon.pulse(NOON, chainIndex=3))
    assert "not by the certificate" in refusal(found, LocalBeacon().pulse(NOON))
    assert "not by the certificate" in refusal(found, beacon.pulse(NOON, cipherSuite=1))
    for name, nothing in (("html", b"<html>"), ("list", b"[]"), ("empty", b""), ("deep", b"[" * 100_000)):
        assert "not a pulse" in refusal(found, nothing), name


def test_a_weak_key_signs_no_pulse():
    with pytest.raises(InvalidInputError, match="RSA key of 2048 bits or more"):
        LocalBeacon(bits=1024).round(NOON)
    for nothing in (b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(InvalidInputError, match="PEM"):
            public_key_of(nothing)


# -- drand


@pytest.mark.parametrize("chain", DRAND)
def test_the_chains_are_those_whose_hash_is_known(chain):
    """A chain's hash covers its period, its beginning and its key, so none of them is mistyped here."""
    known, group = DRAND[chain], bytes.fromhex(VECTORS["info"][chain]["group"])
    name = b"" if chain == "default" else chain.encode()
    content = known.period.to_bytes(4, "big") + known.genesis.to_bytes(8, "big") + bytes.fromhex(known.public_key)
    assert hashlib.sha256(content + group + name).hexdigest() == known.hash


@pytest.mark.parametrize("chain", DRAND)
def test_a_round_that_drand_published_has_its_value_and_time(chain):
    found, vector = round_of(chain), VECTORS[chain]
    kept = found.read(json.dumps({**vector["document"], "randomness": vector["randomness"], "more": 1}).encode())
    assert found.value_of(kept).value.hex() == vector["randomness"]
    assert found.time.isoformat() == vector["time"] and "more" not in kept
    assert found.address == f"https://api.drand.sh/{DRAND[chain].hash}/public/{found.number}"


@with_bls
@pytest.mark.parametrize("chain", DRAND)
def test_its_signature_is_verified_where_it_can_be_and_a_wrong_one_refused(chain):
    found, document = round_of(chain), VECTORS[chain]["document"]
    assert found.value_of(found.read(document)).verified
    other = next(name for name in DRAND if name != chain)
    signature = document["signature"]
    for wrong in (
        signature[:20] + "00" + signature[22:],  # no point of the curve, most likely
        VECTORS[other]["document"]["signature"],
        "c0" + "00" * (len(signature) // 2 - 1),  # infinity
        "00",
    ):
        assert "not that of drand" in refusal(found, {**document, "signature": wrong})
    later = Round(chain, found.chain, found.public_key, found.number + 1)
    assert "not that of drand" in refusal(later, {**document, "round": found.number + 1})


@with_bls
def test_verifying_leaves_python_s_recursion_limit_as_it_was():
    usual = "import sys; usual = sys.getrecursionlimit(); "
    verify = f"from drw_hf.keys import bls; assert bls.verify({b'1' * 48}, b'', {b'2' * 96}) is False; "
    same = "assert 'py_ecc' in sys.modules and sys.getrecursionlimit() == usual"
    subprocess.run([sys.executable, "-c", usual + verify + same], check=True)


@pytest.mark.parametrize("chain", DRAND)
def test_without_the_package_that_knows_the_curve_a_value_is_somebodys_word(chain, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "py_ecc", None)
    monkeypatch.setitem(__import__("sys").modules, "py_ecc.bls", None)
    monkeypatch.setattr(bls, "verify", bls.verify.__wrapped__)
    found = round_of(chain)
    assert not found.value_of(found.read(VECTORS[chain]["document"])).verified


@pytest.mark.parametrize("chain", DRAND)
def test_what_is_not_of_the_round_is_refused(chain):
    found, document = round_of(chain), VECTORS[chain]["document"]
    assert "of round 7" in refusal(found, {**document, "round": 7})
    assert "not the SHA-256" in refusal(found, {**document, "randomness": "00" * 32})
    for name in ("signature", "round"):
        for wrong in (None, 3.5, [], "zz", {}):
            assert refusal(found, {**document, name: wrong}), (name, wrong)
    if DRAND[chain].chained:
        assert "not what drand publishes" in refusal(found, {**document, "previous_signature": None})


# -- naming one


@pytest.mark.parametrize("source", SOURCES)
def test_a_round_is_the_first_at_or_after_a_time(source, beacon):
    given = {"certificate": beacon.certificate} if source == "nist" else {}
    exact = Round.at(source, NOON, **given).time
    period = 60 if source == "nist" else DRAND[source].period
    assert NOON <= exact < NOON + timedelta(seconds=period)
    assert Round.at(source, exact, **given).time == exact
    assert Round.at(source, exact + timedelta(seconds=1), **given).time == exact + timedelta(seconds=period)
    assert Round.at(source, NOON.replace(tzinfo=None), **given).time == exact, "UTC, where nothing else is said"
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC", str(Round.at(source, NOON, **given)))


def test_what_is_no_round_is_refused(beacon):
    known, pulse = DRAND["quicknet"], beacon.round(NOON)
    with pytest.raises(InvalidInputError, match="expected one of"):
        Round.at("my own dice", NOON)
    with pytest.raises(InvalidInputError, match="signed by a certificate"):
        Round.at("nist", NOON)
    for wrong in (
        ("quicknet", known.hash, known.public_key, 0),
        ("quicknet", known.hash, known.public_key, 2**62),
        ("quicknet", known.hash, known.public_key, True),
        ("quicknet", known.hash, pulse.public_key, 1),
        ("default", known.hash, known.public_key, 1),
        ("nist", "2", pulse.public_key, pulse.number + 1),
        ("nist", "2", pulse.public_key, 2**62 * 60_000),
        ("nist", "two", pulse.public_key, pulse.number),
        ("nist", "2", "00", pulse.number),
        ("dice", "2", "00", 1),
        (None, None, None, None),
    ):
        with pytest.raises(InvalidInputError, match="no round of public randomness"):
            Round(*wrong)
