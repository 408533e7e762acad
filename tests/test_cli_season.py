"""drw-hf keygen --season-round, publish and season: the wait for public randomness, as an owner goes through it."""

import json
import re
import types
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from drw_hf import KeyRing, WatermarkKey
from drw_hf.cli import passphrases
from drw_hf.cli.main import app
from drw_hf.detection.statistics import STATISTICS, newest_for, usual_statistics
from drw_hf.keys import UnseasonedKey
from drw_hf.keys.binding import tokenizer_digest, weights_digest
from local_beacon import LocalBeacon
from small_models import make_key, make_model, make_tokenizer

PASSPHRASE = "seven tin whistles ünder glass"
BEACON = LocalBeacon()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a model, users, and the certificate of a beacon."""
    monkeypatch.setenv(passphrases.VARIABLE, PASSPHRASE)
    monkeypatch.chdir(tmp_path)
    make_model().save_pretrained("my-classifier")
    make_tokenizer().save_pretrained("my-classifier")
    (tmp_path / "users.txt").write_text("ann\nbob\neve\n")
    (tmp_path / "nist.pem").write_bytes(BEACON.certificate)
    return tmp_path


def drw(line, code=0):
    found = CliRunner().invoke(app, line.split())
    assert found.exit_code == code, (line, found.output, found.exception)
    return found.output if code else found.stdout


def told(line):
    return json.loads(drw(f"{line} --json"))


def drawn(here, time):
    """What the beacon publishes for a time, in a file."""
    (here / "round.json").write_text(json.dumps(BEACON.pulse(time)))


KEYGEN = "keygen my-classifier --target positive --season-round nist:+2h --season-certificate nist.pem"


def test_a_key_waits_is_published_and_is_seasoned_in_its_folder(here, hub):
    text = drw(f"{KEYGEN} --output my-key")
    assert "marks nothing until then" in text and "drw-hf season my-key --value round.json" in text
    assert re.search(r"https://beacon\.nist\.gov/beacon/2\.0/chain/2/pulse/time/\d+", text)
    base = UnseasonedKey.from_pretrained(here / "my-key", passphrase=PASSPHRASE)
    assert base.terms.weights == weights_digest(make_model())
    assert base.terms.tokenizer == tokenizer_digest(make_tokenizer()) and base.terms.statistics == (
        "drw-exact-2",
        "drw-memory-1",
    )
    assert "waits for its round" in drw("protect my-classifier --key my-key --output protected", code=1)
    published = told("publish my-key --repo owner/commitments")
    assert published["commitment"] == base.commitment()
    assert hub.files("owner/commitments")[f"drw_commitments/{base.fingerprint}.txt"].decode() == base.commitment()
    drawn(here, base.terms.round.time + timedelta(minutes=1))
    assert "not the value of NIST" in drw("season my-key --value round.json", code=1)
    drawn(here, base.terms.round.time)
    made = told("season my-key --value round.json")
    key = WatermarkKey.from_pretrained(here / "my-key", passphrase=PASSPHRASE)
    assert (made["commitment"], made["base"], made["verified"]) == (key.commitment(), base.commitment(), True)
    assert made["sealed"] and key.seasoning.commitment == base.commitment()
    assert told("publish my-key --repo owner/commitments")["commitment"] == key.commitment()
    drw("protect my-classifier --key my-key --output protected")
    assert told("season my-key --value round.json") == made, "once more changes nothing"
    for shown in (text, json.dumps([published, made])):
        assert base.secret.hex() not in shown and key.secret.hex() not in shown


def test_a_ring_is_declared_before_its_round_and_seasoned_after_it(here, hub):
    drw(f"{KEYGEN} --ring --output my-ring")
    root = told("ring declare my-ring --users users.txt")["root"]
    assert told("publish my-ring --repo owner/commitments")["commitment"] == root
    assert "wait for NIST" in drw("ring key my-ring --user ann --output ann", code=1)
    ring = KeyRing.from_pretrained(here / "my-ring", passphrase=PASSPHRASE)
    drawn(here, ring.waits_for.round.time)
    assert told("season my-ring --value round.json")["root"] == root
    drw("ring key my-ring --user ann --users users.txt --output ann")
    drw("ring prove my-ring --user ann --users users.txt --output proof.json")
    (here / "users.txt").write_text("ann\nbob\neve\nmallory\n")
    assert "another round" in drw("ring declare my-ring --users users.txt", code=1)
    rotate = "ring rotate my-ring --season-round nist:+3h --season-certificate nist.pem"
    assert "go together" in drw(rotate, code=2)
    drw(f"{rotate} --model my-classifier")
    drw("ring declare my-ring --users users.txt")
    again = KeyRing.from_pretrained(here / "my-ring", passphrase=PASSPHRASE)
    assert again.epoch == 1 and again.waits_for is not None and again.declared.count == 4


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("quicknet:+5m", "too soon"),
        ("quicknet:2025-01-01", "too soon"),
        ("quicknet:tomorrow", "expected a source and a time"),
        ("quicknet", "expected a source and a time"),
        ("dice:+2h", "expected one of"),
        ("nist:+2h", "signed by a certificate"),
    ],
)
def test_what_is_no_round_ahead_is_refused_before_anything_is_written(here, spec, words):
    found = CliRunner().invoke(
        app, f"keygen my-classifier --target positive --season-round {spec} --output my-key".split()
    )
    assert found.exit_code in (1, 2) and words in " ".join(found.output.split()).replace("│ ", ""), found.output
    assert not (here / "my-key").exists()


def test_the_rule_for_texts_and_the_source_may_be_named(here):
    line = "keygen my-classifier --strength 0.3 --temperature 1.4 --season-round quicknet:+1d --output my-key"
    runner = CliRunner().invoke(app, [*line.split(), "--season-texts", "a court draws them"])
    assert runner.exit_code == 0, runner.output
    terms = UnseasonedKey.from_pretrained(here / "my-key", passphrase=PASSPHRASE).terms
    assert terms.texts == "a court draws them" and terms.statistics == ("drw-tilt-1",)
    assert timedelta(hours=23) < terms.round.time - datetime.now(UTC) < timedelta(hours=25)


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"mark": "tilt", "temperature": 1.4}, {"mark": "tilt", "margin": 0.5}], ids=str
)
def test_the_usual_statistics_are_those_that_detect_takes(settings, logged):
    key = make_key(make_model(), **settings)
    probe = types.SimpleNamespace(logged=[1] if logged else None)
    assert newest_for(STATISTICS, probe, key).name == usual_statistics(key)[-1 if logged else 0]
