"""drw-hf report: the page from saved evidence, without the key and the suspect."""

import json

import pytest

from drw_hf import DetectionResult, detect
from test_cli import drw
from test_detect import make_case, make_key

KEY = make_key()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    rows, clean, marked, _ = make_case(KEY, n_rows=60)
    path = tmp_path_factory.mktemp("saved") / "evidence.json"
    detect(marked, rows, key=KEY, victim=clean).save(path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_is_the_one_that_the_result_itself_writes(saved, here):
    found = drw(["report", saved, "--output", "claim", "--json"])
    DetectionResult.load(saved).report(here / "same")
    assert found.exit_code == 0, found.output
    document = json.loads(found.stdout)
    assert document == {
        "report": "claim/report.html",
        "redacted": False,
        "verdict": "detected",
        "suspect": DetectionResult.load(saved).suspect,
    }
    for name in ("report.html", "evidence.json", "evidence.probe.npz"):
        assert (here / "claim" / name).read_bytes() == (here / "same" / name).read_bytes()


def test_a_redacted_page_says_nothing_of_the_key(saved, here):
    found = drw(["report", saved, "--redact", "--output", "public"])
    assert found.exit_code == 0 and "can be published" in found.stdout
    files = {file.name: file.read_text() for file in (here / "public").iterdir()}
    assert set(files) == {"report-redacted.html", "evidence-redacted.json"}
    assert not [name for name, text in files.items() if f">{KEY.target_label}<" in text or '"frequency"' in text]


def test_nothing_is_overwritten_unless_asked(saved, here):
    (here / "taken").mkdir()
    (here / "taken" / "notes.txt").write_text("mine")
    refused = drw(["report", saved, "--output", "taken"])
    assert refused.exit_code == 2 and "taken holds something already" in refused.output
    assert [file.name for file in (here / "taken").iterdir()] == ["notes.txt"]
    assert drw(["report", saved, "--output", "taken", "--overwrite"]).exit_code == 0
    mixed = drw(["report", saved, "--redact", "--output", "taken", "--overwrite"])
    assert mixed.exit_code == 1 and "confidential" in mixed.stderr


@pytest.mark.parametrize("content", ["not JSON", "{}", '{"format": "drw-evidence-1"}'])
def test_what_is_no_evidence_is_named(content, here):
    (here / "other.json").write_text(content)
    found = drw("report other.json --output claim")
    assert found.exit_code == 1 and "other.json" in found.stderr and not (here / "claim").exists()
    assert "missing.json" in drw("report missing.json --output claim").stderr
