"""CONTRIBUTING says how to add things: every example is run as printed, and the product then uses what it added."""

import json
import re
import types
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from drw_hf import DistillationArguments, KeyRing, WatermarkKey, detect, label_with_teacher
from drw_hf.asking.predictor import KINDS
from drw_hf.cli.main import app
from drw_hf.detection.statistics import STATISTICS
from drw_hf.errors import InvalidInputError
from drw_hf.evidence import verify_evidence
from drw_hf.extraction.attacks import ATTACKS, attack_answers
from drw_hf.keys.hash_rules import RULES
from drw_hf.keys.settings import MARKS
from small_models import AUTO, make_batch, make_key, make_model, make_tokenizer, make_victim
from test_detect import make_case
from test_detect import make_key as make_tagger_key

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
TEXTS = ["the film was good", "a dull book", "we liked the plot"]
REGISTRIES = [MARKS, RULES, STATISTICS, KINDS, ATTACKS]


def section(title):
    return re.split(r"^#+ ", TEXT.split(f"### {title}\n")[1], flags=re.MULTILINE)[0]


def run_example(title, package=None):
    (code,) = re.findall(r"```python\n(.*?)```", section(title), flags=re.DOTALL)
    module = types.ModuleType("example")
    module.__package__ = package
    exec(compile(code, title, "exec"), module.__dict__)
    return module


@pytest.fixture(autouse=True)
def nothing_stays_registered(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    before = [set(registry) for registry in REGISTRIES]
    commands = list(app.registered_commands)
    yield
    for registry, names in zip(REGISTRIES, before, strict=True):
        for name in set(registry) - names:
            registry.remove(name)
    app.registered_commands[:] = commands


def test_every_thing_to_add_has_its_row_and_every_file_named_there_exists():
    rows = re.findall(r"^\| \[(.*?)\]\(#(.*?)\) \| (.*?) \| (.*?) \|$", TEXT, flags=re.MULTILINE)
    assert [row[0] for row in rows] == [
        "a mark",
        "a hash rule",
        "a statistic",
        "a predictor",
        "an attack",
        "a command",
    ]
    for _, anchor, place, _ in rows:
        assert f"### {anchor.replace('-', ' ').replace('to add', 'To add')}\n" in TEXT
        paths = re.findall(r"`(src/drw_hf/[\w/.]+)`", place)
        assert paths and all((ROOT / path).exists() for path in paths)


def test_a_mark(tmp_path):
    run_example("To add a mark")
    model, batch = make_model(), make_batch()
    key = make_key(model, mark="nudge", push=0.2, target=1)
    key.save_pretrained(tmp_path / "key")
    again = WatermarkKey.from_pretrained(tmp_path / "key")
    assert again == key and again.settings.push == 0.2
    assert key.replace(push=0.2).commitment() == key.commitment() != key.replace(push=0.3).commitment()
    auto = AUTO["sequence-classification"][1]
    clean = model(**batch).logits
    expected = torch.log_softmax(clean + torch.tensor([0.0, 0.2]), dim=-1)
    torch.testing.assert_close(auto.from_model(model, key=again)(**batch).logits, expected)
    hard = auto.from_model(model, key=again, label_kind="hard")(**batch).logits
    assert (hard.argmax(-1) == expected.argmax(-1)).all()
    ring = KeyRing.generate(model, target=1, special_token_ids=[0, 1, 2, 3, 4], mark="nudge", push=0.2)
    served = auto.from_model(model, key=ring)(**batch, user=["ann", "ben", "ann", "cem"]).logits
    torch.testing.assert_close(served, expected)


def test_a_hash_rule(tmp_path):
    run_example("To add a hash rule")
    model, tokenizer = make_model(), make_tokenizer()
    key = make_key(model, tokenizer, hash_rule="last", scope="all", tau=1.0, epsilon=0.5)
    key.save_pretrained(tmp_path / "key")
    victim = AUTO["sequence-classification"][1].from_model(model, key=WatermarkKey.from_pretrained(tmp_path / "key"))
    inputs = tokenizer(["the film was good", "good"], padding=True, return_tensors="pt")
    phase = key.phase_table[tokenizer.convert_tokens_to_ids("good")]
    p = model(**inputs).logits.softmax(-1).detach().numpy()
    shares = np.array([1 - np.cos(16.0 * phase), 1 + np.cos(16.0 * phase)])
    np.testing.assert_allclose(victim(**inputs).logits.softmax(-1).detach().numpy(), (p + 0.5 * shares) / 2, atol=1e-6)


def test_a_statistic(tmp_path):
    run_example("To add a statistic")
    key = make_tagger_key()
    rows, clean, marked, _ = make_case(key, n_rows=60)
    found = detect(marked, rows, key=key, victim=clean)
    assert (found.statistic, found.variant, found.verdict) == ("half-1", "half", "detected")
    found.save(tmp_path / "evidence.json")
    figures = [
        check for check in verify_evidence(tmp_path / "evidence.json", key=key).checks if "figures" in check.name
    ]
    assert [check.status for check in figures] == ["passed"]
    STATISTICS.remove("half-1")
    (check,) = [c for c in verify_evidence(tmp_path / "evidence.json", key=key).checks if "figures" in c.name]
    assert check.status == "open" and "half-1" in check.detail


def test_a_mark_of_ones_own_is_found_by_a_statistic_of_ones_own():
    run_example("To add a mark")
    run_example("To add a statistic")
    key = make_tagger_key(mark="nudge")
    rows, clean, marked, _ = make_case(make_tagger_key(), n_rows=60)
    found = detect(marked, rows, key=key, victim=clean)
    assert found.statistic == "half-1" and found.p_snr > 0
    STATISTICS.remove("half-1")
    with pytest.raises(InvalidInputError, match="no statistic applies to this probe and the mark 'nudge'"):
        detect(marked, rows, key=key, victim=clean)


def test_a_predictor():
    run_example("To add a predictor")
    table = {text: [0.1 * place, 1 - 0.1 * place] for place, text in enumerate(TEXTS)}
    labelled = label_with_teacher(table, datasets.Dataset.from_dict({"text": TEXTS}), progress=False)
    np.testing.assert_allclose(labelled["teacher_probs"][:], list(table.values()), atol=1e-6)


def test_an_attack(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", section("To add an attack"), flags=re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 10
    run_example("To add an attack")
    assert DistillationArguments(str(tmp_path), report_to=[], attack="flatten").attack == "flatten"
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    labelled = label_with_teacher(make_victim(), rows, make_tokenizer(), progress=False)
    roots = np.sqrt(labelled["teacher_probs"][:])
    attacked = attack_answers(labelled, "flatten")["teacher_probs"][:]
    np.testing.assert_allclose(attacked, roots / roots.sum(axis=1, keepdims=True), atol=1e-6)


def test_a_command(tmp_path):
    rows = run_example("To add a command", package="drw_hf.cli")
    app.command()(rows.rows)
    (tmp_path / "texts.txt").write_text("one\ntwo\n")
    run = CliRunner().invoke(app, ["rows", str(tmp_path / "texts.txt"), "--json"])
    assert run.exit_code == 0 and json.loads(run.stdout) == {"rows": 2}
    assert "Say how many rows data holds." in CliRunner().invoke(app, ["rows", "--help"]).stdout
    assert "app.command()(rows.rows)" in section("To add a command")
