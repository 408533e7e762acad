"""Evidence: what a finding says of its commitment, and how a claim is replayed and every alteration found out."""

import dataclasses
import json
from datetime import UTC, date, datetime, timedelta, timezone

import huggingface_hub
import numpy as np
import pytest

from drw_hf import DetectionResult, detect
from drw_hf.detection import Probe
from drw_hf.detection.result import authenticate
from drw_hf.errors import EvidenceError, InvalidInputError, KeyMismatchError, TimestampError
from drw_hf.evidence.commitments import CommitmentRecord, commitment_files, verify_commitment
from drw_hf.evidence.key_checks import COUNTED
from drw_hf.evidence.timestamps import request_timestamp
from drw_hf.evidence.verify import Check, Verification, verify_evidence
from local_tsa import LocalTSA
from small_models import make_special_tokenizer
from test_detect import make_case, make_key

REPO = "owner/model"
TOKENIZER = make_special_tokenizer()  # whose special tokens are those of `make_key`
COMMITTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
_ELSEWHERE = ("probe", "null_samples", "log")  # the days of a log: test_log_trust.py
SAVED = [entry.name for entry in dataclasses.fields(DetectionResult) if entry.name not in _ELSEWHERE]
DERIVED = ["p_value", "p_bound", "committed"]


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def record(key):
    return CommitmentRecord(
        commitment=key.commitment(),
        repo_id=REPO,
        repo_type="model",
        commit="c" * 40,
        date=COMMITTED,
        path="drw_commitments/0123456789abcdef.txt",
    )


@pytest.fixture(scope="module")
def probe(key):
    rows, clean, marked, _ = make_case(key, n_rows=60)
    _, _, innocent, _ = make_case(key, n_rows=60, mark=False)
    marked[7] = np.full_like(marked[7], np.nan)
    probe = detect(marked, rows, key=key, victim=clean, controls=[innocent]).probe
    return dataclasses.replace(probe, label_map={f"LABEL_{number}": tag for number, tag in enumerate(key.labels)})


@pytest.fixture(scope="module")
def finding(key, probe, record):
    return detect(
        probe, key=key, keys_tried=3, looks=2, simulated_keys=20, commitment=record, suspect_first_seen="2026-04-01"
    )


@pytest.fixture
def evidence(finding, tmp_path):
    finding.save(tmp_path / "evidence.json")
    return tmp_path / "evidence.json"


def statuses(found):
    return {check.name: check.status for check in found.checks}


def status_of(found, words):
    (check,) = [check for check in found.checks if words in check.name]
    return check.status


def rewrite(path, key=None, **changes):
    """Alter a saved document; with the key, as its holder could: with the authentication code that belongs to it."""
    document = {**json.loads(path.read_text()), **changes}
    if key is not None:
        document["mac"] = authenticate(document, key)
    path.write_text(json.dumps(document))


def alterations(value):
    """A document with one leaf changed, for every leaf (of long lists, some)."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield from ({**value, name: other} for other in alterations(entry))
        yield {**value, "another": 1}
    elif isinstance(value, list):
        for index in {0, len(value) // 2, len(value) - 1}:
            for other in alterations(value[index]):
                yield [*value[:index], other, *value[index + 1 :]]
        yield value[:-1]
    elif isinstance(value, bool) or value is None:
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, str(value))
    elif isinstance(value, float):
        yield from (value * 1.001 + 0.001, -value - 1.0, None)
    else:
        yield from (value + "0", value[:-1], None)


# -- a finding says what its commitment is worth


def test_a_finding_without_a_commitment_says_so(key, probe, tmp_path):
    found = detect(probe, key=key)
    assert not found.committed and found.commitment is None
    assert found.explanation.endswith("The result refers to no commitment made beforehand.")
    assert str(found).endswith("; the result refers to no commitment made beforehand")
    found.save(tmp_path / "evidence.json")
    again = DetectionResult.load(tmp_path / "evidence.json")
    assert again == found and not again.committed and not found.to_dict()["committed"]


def test_a_finding_refers_to_its_commitment_and_keeps_it(finding, record, evidence):
    assert finding.committed and finding.commitment == record.to_dict()
    assert finding.commitment["repo_id"] in finding.explanation and "owner's word" in finding.explanation
    assert "no commitment" not in str(finding)
    again = DetectionResult.load(evidence)
    assert again == finding and again.suspect_first_seen == "2026-04-01"
    assert CommitmentRecord.from_dict(again.commitment) == record
    json.dumps(again.to_dict())


def test_a_commitment_that_is_not_older_than_the_suspect_does_not_count(key, probe, record):
    late = detect(probe, key=key, commitment=record, suspect_first_seen=date(2026, 3, 1))
    assert not late.committed and "not older than the suspect" in late.explanation
    assert "refers to no commitment made beforehand" in str(late)


def test_the_commitment_of_another_key_is_refused(key, probe, record):
    with pytest.raises(KeyMismatchError, match="f" * 16):
        detect(probe, key=key, commitment=dataclasses.replace(record, commitment="f" * 64))
    for wrong in (key.commitment(), {"commitment": key.commitment()}, 3):
        with pytest.raises(InvalidInputError, match="verify_commitment"):
            detect(probe, key=key, commitment=wrong)


@pytest.mark.parametrize(
    "given, kept",
    [
        ("2026-04-01", "2026-04-01"),
        (date(2026, 4, 1), "2026-04-01"),
        ("2026-04-01T10:00", "2026-04-01T10:00:00+00:00"),
        ("2026-04-01T10:00:00Z", "2026-04-01T10:00:00+00:00"),
        (datetime(2026, 4, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2026-03-31T23:00:00+00:00"),
        (None, None),
    ],
)
def test_dates_without_a_time_zone_are_utc(key, probe, given, kept):
    assert detect(probe, key=key, suspect_first_seen=given).suspect_first_seen == kept


@pytest.mark.parametrize("given", ["", "yesterday", "2026-02-30", "2026-04-01T25:00", 20260401, 0.5, b"2026-04-01"])
def test_what_is_no_date_is_refused(key, probe, given):
    with pytest.raises(InvalidInputError, match="suspect_first_seen"):
        detect(probe, key=key, suspect_first_seen=given)


def test_results_of_earlier_versions_still_load_and_their_replay_says_what_is_missing(key, finding, evidence):
    document = json.loads(evidence.read_text())
    for name in ("commitment", "suspect_first_seen", "mac", "committed"):
        del document[name]
    document["explanation"] = document["explanation"].split(". ")[0] + "."
    document["p_snr_p_value"] = None
    del document["settings"]["simulated_keys"]
    evidence.write_text(json.dumps(document))
    assert not DetectionResult.load(evidence).committed
    found = verify_evidence(evidence, key=key)
    assert not found.failed and status_of(found, "file") == "open" and status_of(found, "figures") == "passed"
    document["settings"]["logged_counts"] = True
    evidence.write_text(json.dumps(document))
    assert status_of(verify_evidence(evidence, key=key), "figures") == "open"


def test_an_undecided_result_of_before_which_did_not_say_what_helps_still_holds(key, tmp_path):
    rows, clean, innocent, _ = make_case(key, n_rows=3, mark=False)
    found, path = detect(innocent, rows, key=key, victim=clean), tmp_path / "evidence.json"
    found.save(path)
    document = json.loads(path.read_text())
    start = document["explanation"].index(" What would help most:")
    end = document["explanation"].index(".", start) + 1
    advice = document["explanation"][start:end]
    assert found.verdict == "undecided" and "logged" in advice
    for change, fails in (("", False), (advice.replace("stronger", "weaker"), True), (advice, False)):
        told = {**document, "explanation": document["explanation"].replace(advice, change)}
        path.write_text(json.dumps({**told, "mac": authenticate(told, key)}))
        assert bool(verify_evidence(path, key=key).failed) == fails, change


def test_labels_that_were_matched_by_the_owner_are_kept_and_change_the_digest(key, probe, tmp_path):
    bare = dataclasses.replace(probe, label_map=None)
    for each in (probe, bare):
        each.save(tmp_path / "probe.npz")
        loaded = Probe.load(tmp_path / "probe.npz")
        assert loaded.label_map == each.label_map and loaded.digest() == each.digest()
    assert probe.digest() != bare.digest()
    result = detect(probe, key=key)
    result.save(tmp_path / "evidence.json")
    assert json.loads((tmp_path / "evidence.json").read_text())["label_map"] == probe.label_map
    assert DetectionResult.load(tmp_path / "evidence.json") == result


def test_evidence_without_a_map_says_nothing_of_it_so_that_earlier_codes_stay_right(key, probe, tmp_path):
    result = detect(dataclasses.replace(probe, label_map=None), key=key)
    assert "label_map" not in result.document()
    result.save(tmp_path / "evidence.json")
    assert not verify_evidence(tmp_path / "evidence.json", key=key).failed
    rewrite(tmp_path / "evidence.json", key, label_map={"a": "b"})
    (failed,) = verify_evidence(tmp_path / "evidence.json", key=key).failed
    assert "label_map" in failed.detail


def test_a_map_cannot_be_left_out_of_the_evidence(key, evidence):
    document = json.loads(evidence.read_text())
    del document["label_map"]
    evidence.write_text(json.dumps({**document, "mac": authenticate(document, key)}))
    (failed,) = verify_evidence(evidence, key=key).failed
    assert "label_map" in failed.detail


def test_a_result_does_not_show_the_key_when_printed(finding, key):
    for text in (repr(finding), str(finding)):
        assert f"'{key.target_label}'" not in text and "frequency=" not in text and "tau" not in text


# -- a claim is replayed


def test_an_honest_claim_leaves_nothing_but_the_commitment_open(key, evidence, finding):
    for given in (evidence, str(evidence), finding, DetectionResult.load(evidence)):
        found = verify_evidence(given, key=key)
        assert not found.failed and ["special tokens" in check.name for check in found.open] == [True, False]
        assert found.open[-1] is found.checks[-1]
        assert "uncommitted" in found.open[-1].detail and REPO in found.open[-1].detail
        compared = verify_evidence(given, key=key, tokenizer=TOKENIZER)
        assert [check.name for check in compared.open] == [found.checks[-1].name]
    assert "detected" in found.claim


@pytest.mark.parametrize("law", ["direct", "paper"])
@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_every_kind_of_test_can_be_replayed(task, law, tmp_path):
    key = make_key(task, law=law, scope="all")
    rows, clean, marked, served = make_case(key, n_rows=80, label_kind="hard")
    counts = np.random.default_rng(0).integers(0, 5, key.vocab_size)
    cases = (
        {},
        {"victim": clean},
        {"victim": clean, "logged": served.argmax(-1).tolist()},
        {"victim": clean, "logged_counts": dict(enumerate(counts.tolist()))},
        {"logged_counts": counts},
        {"victim": clean, "keys_tried": np.int64(2), "level": np.float32(0.01)},
    )
    for number, options in enumerate(cases):
        place = tmp_path / f"evidence-{number}.json"
        detect(marked, rows, key=key, **options).save(place)
        found = verify_evidence(place, key=key, tokenizer=TOKENIZER)
        rests_on_log = bool({"logged", "logged_counts"} & options.keys())
        assert not found.failed and len(found.open) == 1 + rests_on_log, str(found)


def test_a_verification_reads_as_a_list_and_as_json(key, evidence):
    found = verify_evidence(evidence, key=key)
    lines = str(found).splitlines()
    assert [line[0] for line in lines[1:9]] == ["✓"] * 6 + ["?", "?"] and len(found.checks) == 8
    assert lines[9:] == [
        "Taken on the word of whoever made the evidence:",
        *(f"- {sentence}" for sentence in found.not_checked),
    ]
    document = json.loads(json.dumps(found.to_dict()))
    assert document["holds"] is False and {"name", "status", "detail"} == set(document["checks"][0])
    assert document["not_checked"] == list(found.not_checked)
    assert Verification("", (Check("a", "passed", ""),)).holds
    assert str(Check("a", "failed", "b")) == "✗ a: b"


def test_nothing_of_the_key_is_shown(key, evidence):
    other = key.replace(frequency=17.25, tau=0.375, target=2)
    for used in (key, other):
        text = str(verify_evidence(evidence, key=used))
        for secret in (used.secret.hex(), "17.25", "0.375", "16.0", "B-PER", "I-PER"):
            assert secret not in text


def test_what_the_evidence_says_cannot_draw_checks_of_its_own(key, evidence):
    rewrite(evidence, explanation="Fine.\n✓ all is well\x1b[2J\ud800")
    found = verify_evidence(evidence, key=key)
    assert len(str(found).splitlines()) == 2 + len(found.checks) + len(found.not_checked)
    assert "\x1b" not in str(found)
    str(found).encode()


# -- what no replay can tell


def test_texts_that_were_picked_pass_every_check_and_the_verification_says_that_they_would(key, tmp_path):
    """The forgery of whoever has the key: of an innocent's answers, those that look like the mark."""
    rows, clean, innocent, _ = make_case(key, n_rows=300, mark=False)
    _, _, marked, _ = make_case(key, n_rows=300, noise=0.0)
    assert detect(innocent, rows, key=key, victim=clean).verdict == "not detected"
    each = zip(innocent, clean, marked, strict=True)
    fit = [((said - quiet) * (served - quiet))[:, key.target].sum() for said, quiet, served in each]
    answers, texts, quiet = ([of[index] for index in np.argsort(fit)[-100:]] for of in (innocent, rows, clean))
    detect(answers, texts, key=key, victim=quiet).save(tmp_path / "forged.json")
    found = verify_evidence(tmp_path / "forged.json", key=key, tokenizer=TOKENIZER)
    assert found.claim.startswith("detected") and not found.failed and len(found.open) == 1
    assert any("not chosen by the suspect's answers" in sentence for sentence in found.not_checked)


def test_only_what_the_evidence_rests_on_is_said_to_be_taken_on_trust(key, probe):
    def words(result):
        return " ".join(verify_evidence(result, key=key).not_checked)

    bare = words(detect(dataclasses.replace(probe, victim=None, label_map=None), key=key))
    for always in ("are the suspect's", "not chosen by", "No more keys, suspects and looks", "when it says"):
        assert always in bare
    for only_then in ("clean victim", "label_map", "gold", "logged", "day that is declared"):
        assert only_then not in bare
    assert "are the clean victim's" in words(detect(probe, key=key))
    assert "that the owner chose for them (label_map)" in words(detect(probe, key=key))
    assert "not seen before the day that is declared" in words(detect(probe, key=key, suspect_first_seen="2026-04-01"))
    assert "logged counts" in words(detect(probe, key=key, logged_counts=np.ones(key.vocab_size, int)))
    gold = np.full(len(probe.rows), key.target)
    assert "gold labels" in words(detect(dataclasses.replace(probe, gold=gold), key=key))
    served = dataclasses.replace(probe, logged=gold)
    assert "logged labels" in words(detect(served, key=key))


# -- every alteration is found out


@pytest.mark.parametrize("name", [*SAVED, *DERIVED])
def test_a_field_that_was_altered_is_found_out(name, key, evidence):
    original = evidence.read_text()
    tried = 0
    for value in alterations(json.loads(original)[name]):
        evidence.write_text(original)
        rewrite(evidence, **{name: value})
        found = verify_evidence(evidence, key=key)
        assert found.failed or name == "mac", value
        assert not found.holds
        tried += 1
    assert tried


@pytest.mark.parametrize(
    "name", sorted({*SAVED, *DERIVED} - {"mac", "created_at", "versions", "commitment", "suspect_first_seen"})
)
def test_not_even_the_holder_of_the_key_can_claim_other_figures(name, key, evidence):
    """The authentication code is right here; what finds the alteration out is that the probe says otherwise."""
    original = evidence.read_text()
    for value in alterations(json.loads(original)[name]):
        if name == "settings" and "another" in value:
            continue  # no figure depends on it
        evidence.write_text(original)
        rewrite(evidence, key, **{name: value})
        *checks, _ = verify_evidence(evidence, key=key).checks
        assert checks[0].status == "passed" and any(check.status != "passed" for check in checks), value


def test_a_field_that_was_added_or_removed_is_found_out(key, evidence):
    original = evidence.read_text()
    rewrite(evidence, note="trust me")
    assert len(verify_evidence(evidence, key=key).failed) == 2
    for name in ("p_value", "committed", "commitment", "suspect_first_seen"):
        document = json.loads(original)
        del document[name]
        evidence.write_text(json.dumps(document))
        assert verify_evidence(evidence, key=key).failed, name


@pytest.mark.parametrize("tried", [{"keys_tried": 0}, {"looks": -1}, {"suspects_tested": 1.5}, {"keys_tried": True}])
def test_what_was_tried_must_be_declared(tried, key, evidence):
    rewrite(evidence, key, **tried)
    found = verify_evidence(evidence, key=key)
    assert status_of(found, "declared") == "failed" and status_of(found, "figures") == "open"


def test_fewer_keys_than_were_corrected_for_cannot_be_declared(key, evidence):
    rewrite(evidence, key, keys_tried=1)
    found = verify_evidence(evidence, key=key)
    assert status_of(found, "declared") == status_of(found, "figures") == "failed"


def test_another_key_is_found_out(key, evidence):
    for other in (make_key(secret=bytes(32)), key.replace(epsilon=0.1), key.replace(key_id="x")):
        found = verify_evidence(evidence, key=other)
        assert status_of(found, "one the evidence names") == "failed"
    found = verify_evidence(evidence, key=make_key("sequence-classification"))
    assert status_of(found, "figures") == "failed", "they cannot even be computed"


def test_a_bit_of_the_probe_is_found_out(key, evidence, finding):
    place = evidence.with_name("evidence.probe.npz")
    content = place.read_bytes()
    for position in range(40, len(content), len(content) // 40):
        flipped = bytearray(content)
        flipped[position] ^= 1
        place.write_bytes(bytes(flipped))
        found = verify_evidence(evidence, key=key)
        harmless = status_of(found, "probe is") == "passed"  # zip keeps names and dates twice
        assert not harmless or Probe.load(place).digest() == finding.probe_digest
        assert harmless or (status_of(found, "figures") == "open" and not found.holds)
    answers = finding.probe.suspect.copy()
    answers.view(np.uint32)[7, 1] ^= 1
    dataclasses.replace(finding.probe, suspect=answers).save(place)
    assert status_of(verify_evidence(evidence, key=key), "probe is") == "failed"


def test_a_probe_that_is_not_there_or_of_something_else_is_named(key, evidence, finding, probe):
    place = evidence.with_name("evidence.probe.npz")
    dataclasses.replace(probe, n_queries=7).save(place)
    assert status_of(verify_evidence(evidence, key=key), "probe is") == "failed"
    place.unlink()
    found = verify_evidence(evidence, key=key)
    assert status_of(found, "probe is") == "failed" and "evidence.probe.npz" in str(found)
    assert status_of(found, "figures") == "open" and status_of(found, "declared") == "open"
    alone = verify_evidence(dataclasses.replace(finding, probe=None), key=key)
    assert status_of(alone, "probe is") == "failed"


def test_a_probe_that_somebody_made_up_stops_nothing(key, evidence, finding):
    """Rows that lead nowhere, with the digest that belongs to them."""
    absurd = dataclasses.replace(finding.probe, rows=finding.probe.rows + 10_000)
    absurd.save(evidence.with_name("evidence.probe.npz"))
    rewrite(evidence, key, probe_digest=absurd.digest())
    found = verify_evidence(evidence, key=key)
    assert status_of(found, "probe is") == "failed" and status_of(found, "figures") == "open"


def test_what_cannot_be_replayed_is_an_error_of_ours(key, evidence, tmp_path):
    document = json.loads(evidence.read_text())
    contents = {
        "empty": "",
        "cut": evidence.read_text()[:500],
        "list": "[]",
        "deep": "[" * 100_000,
        "newer": json.dumps({**document, "format": "drw-evidence-2"}),
        "lacking": json.dumps({name: value for name, value in document.items() if name != "verdict"}),
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(EvidenceError, match=name):
            verify_evidence(tmp_path / name, key=key)
    with pytest.raises(EvidenceError, match="newer drw_hf"):
        verify_evidence(tmp_path / "newer", key=key)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name in ("binary", "missing", "."):
        with pytest.raises(EvidenceError):
            verify_evidence(tmp_path / name, key=key)


# -- the commitment


@pytest.fixture(scope="module")
def tsa(tmp_path_factory):
    with LocalTSA(tmp_path_factory.mktemp("tsa")).running() as authority:
        yield authority


@pytest.fixture
def publish(hub, key):
    """Commit to the key in a repository, at a time, with or without a time stamp."""

    def publish(at=COMMITTED, stamp=None):
        api = huggingface_hub.HfApi()
        hub.clock = lambda: at
        api.create_repo(REPO, exist_ok=True)
        files = commitment_files(key.commitment(), stamp)
        operations = [huggingface_hub.CommitOperationAdd(path, content) for path, content in files.items()]
        api.create_commit(REPO, operations, commit_message="Commit to a key")
        return verify_commitment(key, REPO)

    return publish


def replay(key, result, **options):
    """The check of the commitment; the others pass, but for what else lies in a repository that tells nothing."""
    *others, check = verify_evidence(result, key=key, tokenizer=TOKENIZER, **options).checks
    assert all(other.status == "passed" for other in others if other.name != COUNTED or check.status == "passed")
    return check


def seen(key, probe, moment, record=None):
    return detect(probe, key=key, commitment=record, suspect_first_seen=moment)


ELSEWHERE = timezone(timedelta(hours=-8))


@pytest.mark.parametrize(
    "first_seen, status",
    [
        ("2026-03-02", "open"),
        ("2026-03-01", "failed"),  # that day, and so perhaps its first hour
        ("2026-02-28", "failed"),
        ("2026-03-01T12:00:00", "failed"),  # the same moment is not before
        ("2026-03-01T12:00:01", "open"),
        ("2026-03-01T13:30:00+02:00", "failed"),
        ("2026-03-01T04:30:00-08:00", "open"),
        (datetime(2026, 3, 1, 4, tzinfo=ELSEWHERE), "failed"),
        (datetime(2026, 3, 1, 4, 1, tzinfo=ELSEWHERE), "open"),
    ],
)
def test_a_date_without_a_stamp_is_the_owners_word(publish, key, probe, first_seen, status):
    record = publish()
    for result in (seen(key, probe, first_seen), seen(key, probe, first_seen, record)):
        check = replay(key, result, repo_id=REPO)
        assert check.status == status and "the owner's word" in check.detail
    assert replay(key, detect(probe, key=key), repo_id=REPO, suspect_first_seen=first_seen).status == status


def test_a_verified_stamp_proves_what_is_older_than_the_suspect(publish, tsa, key, probe):
    tsa.time = "20260301120000"
    publish(stamp=request_timestamp(key.commitment(), tsa.url))
    found = {}
    for moment in ("2026-03-01T12:00:03", "2026-03-01T12:00:01", "2026-03-01T11:59:59"):
        found[moment] = replay(key, seen(key, probe, moment), repo_id=REPO, trusted_roots=[tsa.root])
    # The authority's clock may be off by a second and a half, as it says itself.
    assert [check.status for check in found.values()] == ["passed", "open", "failed"]
    proven = verify_evidence(
        seen(key, probe, "2026-04-01"),
        key=key,
        repo_id=REPO,
        trusted_roots=[tsa.root.read_bytes()],
        tokenizer=TOKENIZER,
    )
    # The result did not refer to the commitment, and the commitment is there: neither denies the other.
    assert proven.holds and "✓ the key was committed to before" in str(proven)
    assert "The result refers to no commitment made beforehand." in proven.claim
    assert "not committed" not in str(proven)
    unchecked = replay(key, seen(key, probe, "2026-04-01"), repo_id=REPO)
    assert unchecked.status == "open" and "trusted_roots" in unchecked.detail


def test_a_late_stamp_does_not_disprove_an_early_commit_and_an_early_one_proves_a_late_commit(
    publish, hub, tsa, key, probe
):
    tsa.time = "20260301120000"
    stamp = request_timestamp(key.commitment(), tsa.url)
    publish(at=COMMITTED + timedelta(days=30), stamp=stamp)
    result = seen(key, probe, "2026-03-15")
    assert replay(key, result, repo_id=REPO, trusted_roots=[tsa.root]).status == "passed"
    huggingface_hub.HfApi().delete_repo(REPO)
    publish(at=COMMITTED - timedelta(days=30), stamp=stamp)
    result = seen(key, probe, "2026-02-15")
    assert replay(key, result, repo_id=REPO, trusted_roots=[tsa.root]).status == "open"


def test_a_commitment_that_nobody_published_fails(hub, key, probe):
    huggingface_hub.HfApi().create_repo(REPO)
    check = replay(key, seen(key, probe, "2026-04-01"), repo_id=REPO)
    assert check.status == "failed" and "uncommitted" in check.detail


def test_what_the_hub_does_not_tell_stays_open(publish, hub, key, probe):
    publish()
    result = seen(key, probe, "2026-04-01")
    assert replay(key, result, repo_id="owner/nothing").status == "open"
    with hub.offline():
        assert replay(key, result, repo_id=REPO).status == "open"
    assert replay(key, detect(probe, key=key), repo_id=REPO).status == "open", "nobody says when it was seen"
    with pytest.raises(TimestampError, match="missing"):
        verify_evidence(result, key=key, repo_id=REPO, trusted_roots=["missing.pem"])


def test_dates_that_contradict_each_other_fail(publish, key, probe):
    publish()
    result = seen(key, probe, "2026-04-01")
    for same in ("2026-04-01", date(2026, 4, 1), "2026-04-01T02:00+02:00"):
        assert replay(key, result, repo_id=REPO, suspect_first_seen=same).status == "open"
    check = replay(key, result, repo_id=REPO, suspect_first_seen="2026-04-02")
    assert check.status == "failed" and "2026-04-01" in check.detail and "2026-04-02" in check.detail
    with pytest.raises(InvalidInputError, match="suspect_first_seen"):
        verify_evidence(result, key=key, suspect_first_seen="some day")


def test_a_history_that_was_rewritten_since_is_found_out(publish, hub, key, probe):
    record = publish()
    result = seen(key, probe, "2026-04-01", record)
    assert replay(key, result, repo_id=REPO).status == "open"
    huggingface_hub.HfApi().delete_repo(REPO)
    publish(at=COMMITTED - timedelta(days=300))
    check = replay(key, result, repo_id=REPO)
    assert check.status == "failed" and "date" in check.detail
