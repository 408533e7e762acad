"""Negative controls: the same test on models that are known to be innocent, beside the finding."""

import dataclasses
import json

import numpy as np
import pytest

from drw_hf import DetectionResult, detect
from drw_hf.detection.controls import describe_controls
from drw_hf.errors import InvalidInputError
from drw_hf.evidence import verify_evidence
from small_models import make_key as make_small_key
from small_models import make_model
from test_detect import make_case, make_key


@pytest.fixture(scope="module")
def case():
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=100)
    innocent = [make_case(key, n_rows=100, mark=False, noise=noise)[2] for noise in (0.2, 0.4)]
    return key, rows, clean, marked, innocent


def test_controls_stand_beside_the_finding_and_change_nothing_of_it(case, tmp_path):
    key, rows, clean, marked, innocent = case
    alone = detect(marked, rows, key=key, victim=clean)
    found = detect(marked, rows, key=key, victim=clean, controls=innocent)
    assert (found.log10_p, found.verdict) == (alone.log10_p, "detected")
    assert [one["name"] for one in found.controls] == ["control 1", "control 2"]
    own = [detect(one, rows, key=key, victim=clean, keys_tried=1) for one in innocent]
    assert [one["log10_p"] for one in found.controls] == [one.log10_p for one in own], "not corrected"
    assert "The same test on 2 models known to be innocent" in found.explanation
    found.save(tmp_path / "evidence.json")
    assert DetectionResult.load(tmp_path / "evidence.json") == found
    assert found.probe.asked_digest() == alone.probe.asked_digest()
    checked = verify_evidence(tmp_path / "evidence.json", key=key)
    assert not checked.failed and any("controls are innocent" in sentence for sentence in checked.not_checked)


def test_controls_cannot_be_made_to_look_better(case):
    key, rows, clean, marked, innocent = case
    found = detect(marked, rows, key=key, victim=clean, controls=innocent)
    document = json.loads(json.dumps(found.document()))
    for change in ({"z_score": -1.0}, {"log10_p": -0.5}, {"name": "another"}):
        controls = [{**document["controls"][0], **change}, *document["controls"][1:]]
        forged = dataclasses.replace(found, controls=controls)
        assert verify_evidence(forged, key=key).failed, change
    assert verify_evidence(dataclasses.replace(found, controls=None), key=key).failed


def test_a_control_that_looks_marked_is_a_warning(case):
    key, rows, clean, marked, innocent = case
    found = detect(marked, rows, key=key, victim=clean, controls=[marked, innocent[0]])
    assert "do not rely on this finding" in found.explanation
    fine = [{"z_score": 1.0, "log10_p": -0.8, "log10_bound": -0.1}]
    assert "rely" not in describe_controls(fine, 1e-3)
    missing = [{"z_score": None, "log10_p": None, "log10_bound": None}]
    assert "None of the 1 models" in describe_controls(missing, 1e-3)


def test_a_control_that_cannot_be_tested_says_so(case):
    key, rows, _, marked, _ = case
    never = [np.tile(np.float32([0.97, 0.01, 0.01, 0.01]), (len(answer), 1)) for answer in marked]
    found = detect(marked, rows, key=key, controls=[never])  # without the victim, who chooses the probes?
    assert found.controls[0]["z_score"] is None
    with pytest.raises(InvalidInputError, match="control 1 gave 99 answers"):
        detect(marked, rows, key=key, controls=[never[1:]])


def test_models_are_asked_the_same_texts(tokenizer, tmp_path):
    model = make_model()
    key = make_small_key(model, tokenizer=tokenizer)
    texts = [" ".join(row) for row in np.random.default_rng(0).choice(["film", "good", "bad", "the", "plot"], (40, 5))]
    found = detect(
        make_model(seed=1),
        texts,
        key=key,
        tokenizer=tokenizer,
        victim=model,
        controls=[make_model(seed=2), make_model(seed=3)],
        progress=False,
        cache_dir=tmp_path,
    )
    assert len(found.controls) == 2 and found.probe.controls.shape[0] == 2


def test_a_report_and_a_figure_show_them_and_a_redacted_one_without_their_names(case, tmp_path):
    key, rows, clean, marked, innocent = case
    found = detect(marked, rows, key=key, victim=clean, controls=innocent)
    named = [{**one, "name": "our secret project"} for one in found.controls]
    found = dataclasses.replace(found, controls=named)
    page = found.report(tmp_path / "full").read_text()
    assert "known to be innocent" in page and "our secret project" in page
    redacted = found.report(tmp_path / "redacted", redact=True).read_text()
    assert "model 2" in redacted and "our secret project" not in redacted
    published = (tmp_path / "redacted" / "evidence-redacted.json").read_text()
    assert "our secret project" not in published and '"z_score"' in published
    assert "innocent" in str([text.get_text() for text in found.plot().axes[2].get_legend().get_texts()])
