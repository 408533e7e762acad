"""Another cut than the key records is another look at the suspect: several lengths are several tries."""

import dataclasses

import pytest

from drw_hf import KeyRing, detect, identify
from drw_hf.detection import probe_suspect
from drw_hf.errors import InvalidInputError
from drw_hf.evidence import verify_evidence
from drw_hf.evidence.probe_checks import CUT
from small_models import WORDS, make_key, make_model

LONG = [f"{first} {second} film {third}" for first in WORDS[:5] for second in WORDS[5:13] for third in WORDS[20:22]]


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def key(model, tokenizer):
    return make_key(model, tokenizer, mark="tilt", strength=0.5, temperature=1.0)


@pytest.fixture
def options(key, tokenizer, model):
    return {"tokenizer": tokenizer, "victim": model, "progress": False}


def test_another_length_than_the_key_records_is_refused_unless_it_counts_as_a_look(key, options):
    suspect = make_model(seed=1)
    with pytest.raises(InvalidInputError, match=r"after 4 tokens in another way than the key .* declare all looks"):
        detect(suspect, LONG, key=key, max_length=4, **options)
    with pytest.raises(InvalidInputError, match="looks='2'"):
        detect(suspect, LONG, key=key, max_length=4, looks="2", **options)
    counted = detect(suspect, LONG, key=key, max_length=4, looks=2, **options)
    assert counted.looks == 2 and counted.probe.cut["max_length"] == 4
    recorded = key.settings.max_length
    assert detect(suspect, LONG, key=key, max_length=recorded, **options).probe.cut["max_length"] == recorded


def test_a_search_through_a_ring_counts_it_likewise(key, options):
    ring = KeyRing(key, secret=bytes(32))
    users = [f"user-{number}" for number in range(20)]
    with pytest.raises(InvalidInputError, match="that is another look"):
        identify(make_model(seed=1), LONG, ring=ring, users=users, max_length=4, **options)
    assert identify(make_model(seed=1), LONG, ring=ring, users=users, max_length=4, looks=2, **options).looks == 2


def test_a_probe_of_another_length_is_another_look_whoever_made_it(key, options, model, tokenizer):
    """A neutral party's, which does not know what the key records."""
    asked = {"model": model, "tokenizer": tokenizer, "progress": False}
    short = probe_suspect(make_model(seed=1), LONG, max_length=4, **asked)
    with pytest.raises(InvalidInputError, match="that is another look"):
        detect(short, key=key, **options)
    assert detect(short, key=key, looks=2, **options).verdict
    roomy = probe_suspect(make_model(seed=1), LONG, max_length=40, **asked)
    assert detect(roomy, key=key, **options).verdict, "no text was cut by either: it makes no difference"


def test_evidence_that_does_not_count_it_fails(key, options):
    counted = detect(make_model(seed=1), LONG, key=key, max_length=4, looks=2, **options)
    assert status_of(verify_evidence(counted, key=key)) == "passed"
    silent = dataclasses.replace(counted, looks=1)
    assert status_of(verify_evidence(silent, key=key)) == "failed"
    plain = detect(make_model(seed=1), LONG, key=key, **options)
    assert status_of(verify_evidence(plain, key=key)) == "passed"


def status_of(found):
    (status,) = [check.status for check in found.checks if check.name == CUT]
    return status


def test_where_the_key_records_no_length_one_that_cut_texts_is_taken_on_trust(model, tokenizer):
    key = make_key(model, tokenizer)
    options = {"key": key, "tokenizer": tokenizer, "progress": False}
    words = "the key does not record one"
    for length, believed in ((4, True), (40, False)):
        found = verify_evidence(detect(make_model(seed=1), LONG, max_length=length, **options), key=key)
        assert any(words in each for each in found.not_checked) == believed
        assert not any(check.name == CUT for check in found.checks)
