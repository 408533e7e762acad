"""Files that earlier code wrote are read, verified and replayed by today's, for ever.

``tests/frozen`` holds one of every format, written by `tests/frozen/freeze.py` and never written again. A change that
makes one of these tests fail would make a user's key, model or evidence worthless.
"""

import hashlib
import importlib.util
import json
import pkgutil
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from huggingface_hub import InferenceClient, ModelCard, constants
from transformers import AutoConfig, AutoTokenizer

from drw_hf import (
    DetectionResult,
    KeyRing,
    QueryLog,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
    detect,
    identify,
    label_with_teacher,
)
from drw_hf.asking import Cut
from drw_hf.detection import Announcement, Probe
from drw_hf.detection.drawing import drawn_again
from drw_hf.detection.probing import are_tokens_of
from drw_hf.detection.texts import encode
from drw_hf.evidence import CommitmentRecord, verify_commitment, verify_evidence
from drw_hf.evidence.timestamps import verify_timestamp
from drw_hf.hub.card import model_card
from drw_hf.hub.pull import Pointer
from drw_hf.keys import UnseasonedKey, UserProof, verify_proof
from drw_hf.planning import Rehearsal
from drw_hf.tracing import Identification
from drw_hf.tracing.screening import Screen
from drw_hf.watermark import tilt
from serving import endpoint_app, served

FROZEN = Path(__file__).parent / "frozen"
PASSPHRASE = "correct horse battery staple"
SENTENCES = ["the film was very good", "we hated the slow ending", "a truly moving story with a great cast", "dull"]


def expected(part):
    return json.loads((FROZEN / part / "expected.json").read_text())


def check_key(key, figures):
    assert (key.fingerprint, key.commitment()) == (figures["fingerprint"], figures["commitment"])
    assert {name: getattr(key, name) for name in figures["settings"]} == figures["settings"]
    np.testing.assert_allclose(key.phase_table[figures["token_ids"]], figures["phases"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(key.selection_table[figures["token_ids"]], figures["selections"], rtol=0, atol=1e-12)


def check_open(found, *words):
    """Nothing is open but what saved evidence cannot show by itself."""
    assert len(found.open) == len(words), str(found)
    assert all(word in check.name for word, check in zip(words, found.open, strict=True)), str(found)


def passphrase_for(name):
    return PASSPHRASE if "sealed" in name else None


def test_nothing_frozen_was_changed_or_lost():
    """``SHA256SUMS`` is for ``sha256sum -c``, too; a new part adds its lines."""
    sums = dict(reversed(line.split("  ", 1)) for line in (FROZEN / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(FROZEN)): path for path in FROZEN.glob("*/**/*") if path.is_file()}
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
    assert {name: value for name, value in found.items() if "__pycache__" not in name} == sums


# -- keys


@pytest.mark.parametrize("name", ["plain", "sealed", "keyed-rule", "arrays", "arrays-sealed"])
def test_a_key_gives_the_same_names_and_hashes(name):
    key = WatermarkKey.from_pretrained(FROZEN / "keys" / name, passphrase=passphrase_for(name))
    check_key(key, expected("keys")[name])


@pytest.mark.parametrize("name", ["plain", "sealed"])
def test_a_ring_gives_its_users_the_same_keys_in_every_epoch(name):
    ring, figures = (
        KeyRing.from_pretrained(FROZEN / "rings" / name, passphrase=passphrase_for(name)),
        expected("rings"),
    )
    assert (ring.fingerprint, ring.epoch) == (figures["fingerprint"], figures["epoch"])
    assert [ring.commitment(0), ring.commitment(1)] == figures["commitments"]
    assert ring.token_for("customer-7") == figures["token"] and ring.user_of(figures["token"]) == "customer-7"
    for user, epochs in figures["users"].items():
        for epoch, key in enumerate(epochs):
            check_key(ring.key_for(user, epoch), key)


@pytest.mark.parametrize("name", ["plain", "sealed"])
def test_a_ring_with_an_array_beside_it_is_read(name):
    figures = expected("ring-of-frequencies")
    ring = KeyRing.from_pretrained(FROZEN / "ring-of-frequencies" / name, passphrase=passphrase_for(name))
    assert ring.fingerprint == figures["fingerprint"]
    check_key(ring.key_for("somebody"), figures["user"])


@pytest.mark.parametrize("name", ["plain", "sealed"])
def test_a_seasoned_key_and_the_one_it_was_made_from_are_read(name):
    figures, options = expected("seasoned")[name], {"passphrase": passphrase_for(name)}
    waiting = UnseasonedKey.from_pretrained(FROZEN / "seasoned" / name, **options)
    key = WatermarkKey.from_pretrained(FROZEN / "seasoned" / name, **options)
    check_key(key, figures)
    assert waiting.commitment() == key.seasoning.commitment == figures["base"]
    assert key.seasoning.value.verified and key.seasoning.value.value.hex().upper() == figures["value"]
    assert waiting.season(key.seasoning.document) == key and key.seasoning.terms == waiting.terms


def test_a_seasoned_ring_is_read_before_and_after_its_round():
    figures = expected("seasoned")["ring"]
    waiting, ring = (KeyRing.from_pretrained(FROZEN / "seasoned" / name) for name in ("waiting-ring", "ring"))
    assert waiting.commitment() == ring.commitment() == figures["root"] and waiting.waits_for is not None
    check_key(ring.key_for("customer-7"), figures["user"])
    proof = UserProof.from_dict(json.loads((FROZEN / "seasoned" / "proof.json").read_text()))
    assert verify_proof(proof, ring.key_for("customer-7"), figures["root"])


def test_a_pointer_leads_to_its_key():
    pointer = Pointer.read(FROZEN / "pointer" / "drw_key_pointer.json")
    key = WatermarkKey.from_pretrained(FROZEN / "pointer", passphrase=PASSPHRASE)
    check_key(key, expected("pointer"))
    assert (pointer.repo_id, pointer.subfolder) == ("owner/keys", key.fingerprint)
    assert pointer.commitment == key.commitment()


def test_a_proof_shows_that_a_users_key_was_declared():
    proof = UserProof.from_dict(json.loads((FROZEN / "rings" / "proof.json").read_text()))
    key = WatermarkKey.from_pretrained(FROZEN / "rings" / "customer-7")
    commitment, later = expected("rings")["commitments"]
    assert verify_proof(proof, key, commitment) and not verify_proof(proof, key, later)


# -- logs


def test_a_query_log_is_read_and_checked_and_its_lines_can_be_tested(tmp_path):
    folder, figures = tmp_path / "query-log", expected("query-log")
    shutil.copytree(FROZEN / "query-log", folder)
    log, ring = QueryLog(folder / "log"), KeyRing.from_pretrained(folder / "ring")
    lines = [[line.n, line.at, line.link, line.text, line.user, line.answered] for line in log.lines()]
    assert lines == figures["lines"]
    checked = log.check()
    assert checked.days[0].root == figures["root"] and (checked.chains, checked.redacted) == (3, 4)
    asked, again = log.asked_under(ring.key_for("customer-0")), log.asked_under(ring.key_for("customer-1"), SENTENCES)
    texts = [text for text in figures["asked"][0] if isinstance(text, str)]  # one kind is tested
    assert asked[0] == texts and list(again[:2]) == figures["again"]


# -- models


@pytest.mark.parametrize("label_kind", [None, "soft"])
def test_a_protected_model_loads_with_its_key_and_answers_the_same(label_kind):
    folder, figures = FROZEN / "protected", expected("protected")
    options = {} if label_kind is None else {"label_kind": label_kind}
    model = WatermarkedModelForTokenClassification.from_pretrained(
        folder / "model", key=folder / "key", passphrase=PASSPHRASE, **options
    )
    batch = AutoTokenizer.from_pretrained(folder / "model")(figures["texts"], padding=True, return_tensors="pt")
    with torch.no_grad():
        answers = model.eval()(**batch).logits.softmax(-1)
    assert model.config.label_kind == (label_kind or "hard")
    torch.testing.assert_close(answers, torch.tensor(figures[model.config.label_kind]), rtol=0, atol=1e-5)


MODELS = {
    "sequence-classification": WatermarkedModelForSequenceClassification,
    "token-classification": WatermarkedModelForTokenClassification,
}


@pytest.mark.parametrize("asked", ["texts", "pairs"])
@pytest.mark.parametrize("kind", ["soft", "hard"])
@pytest.mark.parametrize("task", MODELS)
def test_a_key_marks_texts_and_pairs_as_it_did(task, kind, asked):
    folder, figures = FROZEN / "served", expected("served")
    model = MODELS[task].from_pretrained(folder / f"{task}-model", key=folder / task, label_kind=kind).eval()
    tokenizer = AutoTokenizer.from_pretrained(FROZEN / "protected" / "model")
    columns = (figures["texts"],) if asked == "texts" else tuple(map(list, zip(*figures["pairs"], strict=True)))
    with torch.no_grad():
        batch = tokenizer(*columns, padding=True, return_tensors="pt")
        marked = model(**batch).logits
        with model.watermark_disabled():
            clean = model(**batch).logits
    frozen = torch.tensor(figures[f"{task} {kind} {asked}"])
    if kind == "soft":
        torch.testing.assert_close(marked.softmax(-1), frozen, rtol=0, atol=1e-5)
        assert (clean.softmax(-1) - frozen).abs().max() > 0.05, "a mark is there to be seen"
    else:
        assert torch.equal(marked.argmax(-1), frozen)
        assert not torch.equal(clean.argmax(-1), frozen), "some labels were drawn"


@pytest.mark.parametrize("task", MODELS)
def test_a_key_of_the_mark_tilt_gives_the_same_signals_and_answers(task):
    figures = expected("tilt")
    shown = figures[task]
    sealed = task == "token-classification"
    key = WatermarkKey.from_pretrained(FROZEN / "tilt" / task, passphrase=PASSPHRASE if sealed else None)
    assert (key.mark, key.commitment()) == ("tilt", shown["commitment"])
    assert {name: getattr(key.settings, name) for name in shown["settings"]} == shown["settings"]
    assert tilt.phases(key, shown["token_ids"]).tolist() == shown["phases"]
    np.testing.assert_allclose(tilt.signals(key, shown["token_ids"]), shown["signals"], rtol=0, atol=1e-12)
    served, tokenizer = expected("served"), AutoTokenizer.from_pretrained(FROZEN / "protected" / "model")
    columns = {"texts": (served["texts"],), "pairs": tuple(map(list, zip(*served["pairs"], strict=True)))}
    model = MODELS[task].from_pretrained(FROZEN / "served" / f"{task}-model", key=key, replace_key=True).eval()
    for kind, digits, asked in (("soft", 0, "texts"), ("soft", 3, "pairs"), ("hard", None, "texts")):
        model.config.label_kind, model.config.digits = kind, digits
        with torch.no_grad():
            marked = model(**tokenizer(*columns[asked], padding=True, return_tensors="pt")).logits
        frozen = torch.tensor(figures[f"{task} {kind} {digits} {asked}"])
        if kind == "soft":  # where a score lies between two units, another machine may round it to the other
            atol = 10.0**-digits * 1.1 if digits else 1e-5
            torch.testing.assert_close(marked.softmax(-1), frozen, rtol=0, atol=atol)
        else:
            assert torch.equal(marked.argmax(-1), frozen)


def test_a_ring_and_a_config_of_the_mark_tilt_are_read():
    ring, figures = KeyRing.from_pretrained(FROZEN / "tilt" / "ring"), expected("tilt")["ring"]
    user = ring.key_for("somebody")
    assert user.commitment() == figures["commitment"]
    np.testing.assert_allclose(tilt.signals(user, range(5, 15)), figures["signals"], rtol=0, atol=1e-12)
    assert AutoConfig.from_pretrained(FROZEN / "tilt" / "config").digits == 3


@pytest.mark.parametrize("task", MODELS)
def test_a_key_with_a_margin_draws_close_calls_as_it_did(task):
    folder, figures = FROZEN / "margin", expected("margin")
    key, shown = WatermarkKey.from_pretrained(folder / task), figures[task]
    assert key.commitment() == shown["commitment"]
    assert {name: getattr(key.settings, name) for name in shown["settings"]} == shown["settings"]
    model = FROZEN / "served" / f"{task}-model"
    victim = MODELS[task].from_pretrained(model, key=key, replace_key=True, label_kind="hard").eval()
    tokenizer = AutoTokenizer.from_pretrained(FROZEN / "protected" / "model")
    with torch.no_grad():
        found = victim(**tokenizer(figures["texts"], padding=True, return_tensors="pt")).logits.argmax(-1)
    assert found.tolist() == shown["drawn"] != shown["undrawn"]


@pytest.mark.parametrize("kind", ["scores", "labels"])
@pytest.mark.parametrize("task", MODELS)
def test_evidence_of_margin_draws_replays_to_the_same_figures(task, kind):
    folder = FROZEN / "margin"
    result = DetectionResult.load(folder / f"{task}-{kind}.json")
    shown = [result.verdict, result.variant, result.log10_p, result.log10_bound, result.parts, result.beside]
    assert shown == expected("margin")[f"{task} evidence"][kind] and result.statistic == "drw-tilt-margin-1"
    found = verify_evidence(
        folder / f"{task}-{kind}.json", key=WatermarkKey.from_pretrained(folder / f"{task}-large-key")
    )
    assert not found.failed, str(found)
    check_open(found, "log", "special tokens", "committed")


def check_answers(answers, figures):
    for found, frozen in zip(answers, figures, strict=True):
        assert [entry["label"] for entry in found] == [entry["label"] for entry in frozen]
        assert [entry["score"] for entry in found] == pytest.approx([entry["score"] for entry in frozen], abs=1e-5)


def test_a_repository_as_it_was_pushed_loads_with_the_key_beside_it():
    folder, figures = FROZEN / "pushed" / "repository", expected("pushed")
    model = WatermarkedModelForSequenceClassification.from_pretrained(folder, passphrase=PASSPHRASE)
    check_key(model.key, figures["shown"])
    from transformers import pipeline

    ask = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(folder))
    check_answers(ask(figures["texts"], top_k=None), figures["answers"])


def test_the_function_that_a_pushed_card_names_is_still_there():
    text = (FROZEN / "pushed" / "repository" / "README.md").read_text()
    name = re.search(r"`(drw_hf\.[\w.]*)\(key, repo_id\)`", text)[1]
    assert pkgutil.resolve_name(name) is verify_commitment


@pytest.fixture
def pushed_handler(monkeypatch):
    folder = FROZEN / "pushed" / "repository"
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)
    spec = importlib.util.spec_from_file_location("a_pushed_handler", folder / "handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.EndpointHandler(str(folder))


def test_a_handler_as_it_was_pushed_serves(pushed_handler):
    figures = expected("pushed")
    check_answers(pushed_handler({"inputs": figures["texts"], "parameters": {"top_k": None}}), figures["answers"])


def test_an_endpoint_with_a_handler_as_it_was_pushed_is_asked_by_todays_client(pushed_handler, monkeypatch, tmp_path):
    """It answers a text with a flat list, of which `InferenceClient` itself keeps one label."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    figures = expected("pushed")
    names = sorted({one["label"] for one in figures["answers"][0]})
    rows = Dataset.from_dict({"text": figures["texts"]})
    with served(endpoint_app(pushed_handler)) as address:
        client = InferenceClient(model=address)
        found = label_with_teacher(client, rows, labels=names, cache_dir=tmp_path, progress=False)["teacher_probs"][:]
    for scores, frozen in zip(found, figures["answers"], strict=True):
        frozen = {one["label"]: one["score"] for one in frozen}
        assert dict(zip(names, scores, strict=True)) == pytest.approx(frozen, abs=1e-5)


def test_a_card_is_read_and_renewed_in_place():
    text = (FROZEN / "pushed" / "card.md").read_text()
    data = ModelCard(text).data
    assert data.license == "mit" and data.eval_results[0].dataset_name == "owner/data" and "drw_hf" in data.tags
    folder = FROZEN / "pushed" / "repository"
    config = WatermarkedModelForSequenceClassification.from_pretrained(folder, passphrase=PASSPHRASE).config
    kept = f"# A title of the owner's\n\nBefore.\n\n{text.split('---', 2)[2]}\nAfter.\n"
    renewed = model_card(config, existing=kept)
    assert "Before." in renewed and renewed.rstrip().endswith("After.")
    assert renewed.count("drw_hf:begin") == renewed.count("drw_hf:end") == 1


# -- commitments and evidence


def test_a_commitment_record_is_read_and_its_time_stamp_verifies():
    pytest.importorskip("rfc3161_client", reason="time stamps need the extra drw_hf[timestamp]")
    document = json.loads((FROZEN / "pushed" / "commitment.json").read_text())
    record = CommitmentRecord.from_dict(document)
    assert record.to_dict() == document and record.proven_date is not None
    (stamp,) = (FROZEN / "pushed" / "repository" / "drw_commitments").glob("*.tsr")
    verified = verify_timestamp(stamp.read_bytes(), record.commitment, [FROZEN / "pushed" / "authority.pem"])
    assert verified == record.timestamp
    assert stamp.with_suffix(".txt").read_text() == record.commitment == expected("pushed")["shown"]["commitment"]


KEY_OF = {"exact-paper-law": "paper-key", "exact-sentences": "sentences-key"}


@pytest.mark.parametrize("name", ["exact", "exact-without-victim", "exact-paper-law", "exact-sentences", "memory"])
def test_evidence_replays_to_the_same_figures(name):
    folder = FROZEN / "evidence"
    key = WatermarkKey.from_pretrained(folder / KEY_OF.get(name, "direct-key"))
    result = DetectionResult.load(folder / f"{name}.json")
    assert [result.verdict, result.log10_p, result.p_snr] == expected("evidence")[name]
    found = verify_evidence(folder / f"{name}.json", key=key)
    assert not found.failed, str(found)
    check_open(found, *(["log"] if name == "memory" else []), "special tokens", "committed")
    again = detect(result.probe, key=key, keys_tried=result.keys_tried, looks=result.looks)
    assert again.log10_p == pytest.approx(result.log10_p, rel=1e-6)
    assert again.p_snr == pytest.approx(result.p_snr, rel=1e-6)


@pytest.mark.parametrize("name", ["drw-exact-1", "drw-exact-2"])
def test_evidence_of_few_probes_replays_by_the_version_it_names(name):
    """Of the two versions' figures, which differ where probes are few, each stays what it was."""
    folder, figures = FROZEN / "few-probes", expected("few-probes")
    result = DetectionResult.load(folder / f"{name}.json")
    assert result.statistic == name and [result.verdict, result.log10_p, result.n_probes] == figures[name]
    assert abs(figures["drw-exact-1"][1] - figures["drw-exact-2"][1]) > 0.1
    found = verify_evidence(folder / f"{name}.json", key=WatermarkKey.from_pretrained(folder / "key"))
    assert not found.failed, str(found)
    assert any("there is a newer one" in sentence for sentence in found.not_checked) == (name == "drw-exact-1")


@pytest.mark.parametrize("name", ["tags", "tags-labels", "tags-without-victim", "tags-reference", "sentences"])
def test_evidence_of_tilt_replays_to_the_same_figures(name):
    folder = FROZEN / "tilt-evidence"
    result = DetectionResult.load(folder / f"{name}.json")
    figures = [result.verdict, result.variant, result.log10_p, result.p_snr, result.beside]
    assert (
        figures == expected("tilt-evidence")[name] and result.statistic == "drw-tilt-1" and result.target_label == ""
    )
    key = WatermarkKey.from_pretrained(folder / f"{name.split('-')[0]}-key")
    found = verify_evidence(folder / f"{name}.json", key=key)
    assert not found.failed, str(found)
    check_open(found, *(["log"] if name == "sentences" else []), "special tokens", "committed")


def test_a_probe_of_drawn_texts_is_read_and_its_draw_and_its_tokens_are_those():
    folder, figures = FROZEN / "probes", expected("probes")
    probe = Probe.load(folder / "probe.npz")
    assert probe.digest() == probe.asked_digest() == figures["digest"] and list(probe.texts) == figures["texts"]
    announced = Announcement.from_dict(json.loads((folder / "draw.json").read_text()))
    assert probe.draw == announced.record(b"5" * 32) and drawn_again(probe, figures["corpus"]) is None
    tokens = encode(
        list(probe.texts), AutoTokenizer.from_pretrained(folder / "tokenizer"), Cut(**probe.cut), probe.task
    )
    assert are_tokens_of(probe, tokens)


def test_evidence_with_controls_and_missing_answers_replays():
    folder, figures = FROZEN / "probes", expected("probes")
    result = DetectionResult.load(folder / "controls.json")
    for name in ("verdict", "log10_p", "controls", "n_unanswered"):
        assert getattr(result, name) == figures[name]
    found = verify_evidence(folder / "controls.json", key=WatermarkKey.from_pretrained(folder / "key"))
    assert not found.failed, str(found)
    check_open(found, "special tokens", "committed")


def test_evidence_that_rests_on_a_log_is_held_against_its_roots(tmp_path):
    folder, figures = shutil.copytree(FROZEN / "log-evidence", tmp_path / "part"), expected("log-evidence")
    result = DetectionResult.load(folder / "evidence.json")
    assert {name: getattr(result, name) for name in figures} == figures
    pytest.importorskip("rfc3161_client", reason="time stamps need the extra drw_hf[timestamp]")
    options = {"log": folder / "log", "trusted_roots": [folder / "authority.pem"]}
    found = verify_evidence(folder / "evidence.json", key=WatermarkKey.from_pretrained(folder / "key"), **options)
    assert not found.failed, str(found)
    assert any("the log is older" in check.name and check.status == "passed" for check in found.checks)


def test_altered_evidence_is_found_out(tmp_path):
    for path in (FROZEN / "evidence").glob("memory*"):
        shutil.copy(path, tmp_path)
    document = json.loads((tmp_path / "memory.json").read_text())
    (tmp_path / "memory.json").write_text(json.dumps({**document, "log10_p": document["log10_p"] - 1.0}))
    key = WatermarkKey.from_pretrained(FROZEN / "evidence" / "direct-key")
    assert verify_evidence(tmp_path / "memory.json", key=key).failed


def test_a_probe_is_read():
    probe, other = (Probe.load(FROZEN / "evidence" / name) for name in ("probe.npz", "exact-sentences.probe.npz"))
    assert len(probe.suspect) == 900 and probe.victim is None
    np.testing.assert_array_equal(probe.suspect, other.suspect)
    np.testing.assert_array_equal(probe.input_ids, other.input_ids)
    assert (
        probe.digest()
        != other.digest()
        == json.loads((FROZEN / "evidence" / "exact-sentences.json").read_text())["probe_digest"]
    )


def test_an_identification_is_read_and_found_again():
    folder, figures = FROZEN / "identification", expected("identification")
    result = Identification.load(folder / "found.json")
    assert result.leakers[0].user == figures["leaker"] and result.committed and len(result.p_values()) == 200
    ring = KeyRing.from_pretrained(folder / "ring")
    again = identify(result.probe, ring=ring, users=figures["users"], progress=False)
    assert again.leakers[0].user == figures["leaker"] and again.verdict == result.verdict == "identified"
    assert again.leakers[0].log10_p == pytest.approx(figures["log10_p"], rel=1e-6)
    np.testing.assert_allclose(again.log10_p_values, result.log10_p_values, rtol=1e-3, atol=1e-3)


def test_a_search_goes_on_from_its_record(tmp_path, monkeypatch):
    folder, figures = FROZEN / "ledger", expected("ledger")
    shutil.copy(folder / "ledger.sqlite", tmp_path)
    scored, score = [], Screen.scores
    monkeypatch.setattr(Screen, "scores", lambda self, keys: scored.append(len(keys)) or score(self, keys))
    found = identify(
        Probe.load(folder / "probe.npz"),
        ring=KeyRing.from_pretrained(folder / "ring"),
        users=figures["users"],
        progress=False,
        resume=tmp_path / "ledger.sqlite",
    )
    assert found.leakers[0].user == "user-123" and sum(scored) == 80, "the first 120 were scored before"
    assert found.statistic == "drw-exact-1", "the version that it began with"
    by_name = {finding.user: finding for finding in found.ranking}
    if figures["strongest"] in by_name:
        assert by_name[figures["strongest"]].log10_p == pytest.approx(figures["log10_p"], rel=1e-6)


def test_a_rehearsal_is_read(tmp_path):
    folder, figures = FROZEN / "rehearsal", expected("rehearsal")
    found = Rehearsal.load(folder / "rehearsal.json")
    assert {row.attack: row.verdict for row in found.rows} == figures["verdicts"]
    assert found.rows[0].attack == "nothing" and "failed" in figures["verdicts"].values()
    assert found.cheapest_escape.attack == "marked-5" and found.innocent.verdict == "cleared"
    found.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == json.loads((folder / "rehearsal.json").read_text())
    assert "The theft, rehearsed" in found.page(tmp_path / "page.html").read_text()
