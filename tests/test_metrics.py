"""JSD, and both metrics as modules of 🤗 Evaluate: loaded offline, by import, in batches, in a Trainer."""

import doctest
import json
import math
import re
from pathlib import Path

import datasets
import evaluate
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from transformers import Trainer, TrainingArguments

from drw_hf import metrics
from drw_hf.detection import jsd, p_snr
from drw_hf.errors import DrwError, InvalidInputError
from drw_hf.metrics.jsd.jsd import Jsd
from drw_hf.metrics.p_snr.p_snr import PSnr
from small_models import make_model

X = np.random.default_rng(0).random(300)
Y = np.random.default_rng(1).random(300) + 0.3 * np.cos(16 * X)
ROWS = np.random.default_rng(2).dirichlet(np.ones(4), (2, 50))  # a suspect and a victim


@pytest.fixture(params=["loaded", "imported"])
def p_snr_metric(request, tmp_path):
    if request.param == "imported":
        return PSnr(cache_dir=str(tmp_path))
    return evaluate.load(metrics.path("p_snr"), cache_dir=str(tmp_path))


@pytest.fixture(params=["loaded", "imported"])
def jsd_metric(request, tmp_path):
    if request.param == "imported":
        return Jsd(cache_dir=str(tmp_path))
    return evaluate.load(metrics.path("jsd"), cache_dir=str(tmp_path))


# The divergence.


@given(st.integers(0, 2**31), st.integers(1, 20), st.integers(2, 12), st.sampled_from([0.05, 1.0, 20.0]))
def test_jsd_is_the_mean_of_scipys(seed, n, m, concentration):
    suspect, victim = np.random.default_rng(seed).dirichlet(np.full(m, concentration), (2, n))
    # scipy takes the root of a divergence that rounding may have put below zero, of answers that are all but equal.
    expected = np.mean(np.nan_to_num(jensenshannon(suspect, victim, axis=1)) ** 2)
    assert jsd(suspect, victim) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert 0 <= jsd(suspect, victim) <= math.log(2) + 1e-12
    assert jsd(victim, suspect) == pytest.approx(jsd(suspect, victim)), "symmetric"
    assert jsd(suspect, suspect) == pytest.approx(0, abs=1e-15)


def test_jsd_of_answers_that_have_nothing_in_common_is_ln_2():
    assert jsd([[1.0, 0.0, 0.0]], [[0.0, 0.5, 0.5]]) == pytest.approx(math.log(2))


def test_jsd_counts_what_the_mask_says():
    """Padding may hold anything, and does not dilute the mean."""
    suspect, victim = ROWS.reshape(2, 5, 10, 4).copy()
    mask = np.random.default_rng(3).random((5, 10)) < 0.6
    expected = jsd(suspect[mask], victim[mask])
    suspect[~mask] = np.nan
    victim[~mask] = 0.0
    assert jsd(suspect, victim, mask) == pytest.approx(expected)
    assert jsd(torch.tensor(suspect), torch.tensor(victim), torch.tensor(mask).long()) == pytest.approx(expected)
    by_row = jsd(ROWS[0], ROWS[1], np.arange(50) < 10)
    assert by_row == pytest.approx(jsd(ROWS[0, :10], ROWS[1, :10]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_jsd_takes_what_models_give(dtype):
    suspect, victim = (torch.tensor(rows).to(dtype) for rows in ROWS)
    assert jsd(suspect, victim) == pytest.approx(jsd(*ROWS), rel=0.02)


NOT_A_NUMBER = np.where(ROWS[0] > 0.5, np.nan, ROWS[0])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((ROWS[0], ROWS[1, :-1]), r"shape \(50, 4\) and the victim's \(49, 4\)"),
        ((ROWS[0, 0], ROWS[1, 0]), "must be 2 or 3-dimensional"),
        (([[0.5, 0.5], [1.0]], [[0.5, 0.5], [1.0]]), "rows of equal length"),
        ((np.log(ROWS[0]), ROWS[1]), "of suspect_probabilities is NaN, negative or does not sum to one"),
        ((ROWS[0], 2 * ROWS[1]), "of victim_probabilities is NaN, negative or does not sum to one"),
        ((NOT_A_NUMBER, ROWS[1]), "of suspect_probabilities is NaN, negative or does not sum to one"),
        ((np.empty((0, 4)), np.empty((0, 4))), "nothing to compare"),
        ((*ROWS, np.zeros(50)), "nothing to compare"),
        ((*ROWS, np.ones(49)), r"mask has shape \(49,\)"),
        ((*ROWS, np.full(50, 0.5)), "mask must hold true and false"),
    ],
)
def test_jsd_names_bad_input(arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        jsd(*arguments)
    assert isinstance(caught.value, DrwError)


# The modules.


def test_a_metric_has_a_folder_with_its_card():
    for name in ("p_snr", "jsd"):
        folder = Path(metrics.path(name))
        assert {file.name for file in folder.iterdir()} >= {f"{name}.py", "README.md", "requirements.txt"}
    with pytest.raises(InvalidInputError, match=r"no metric 'accuracy'; choose one of \['jsd', 'p_snr'\]"):
        metrics.path("accuracy")


def test_what_a_metric_needs_names_no_package_that_a_stranger_could_register():
    for name in ("p_snr", "jsd"):
        text = (Path(metrics.path(name)) / "requirements.txt").read_text()
        assert [line for line in text.splitlines() if not line.startswith("#")] == ["evaluate>=0.4.6"]
        assert "# This metric needs drw_hf" in text and "drw_hf @ https://" in text


def test_p_snr_through_evaluate(p_snr_metric):
    expected = {"p_snr": pytest.approx(p_snr(X, Y))}
    assert p_snr_metric.compute(predictions=Y, references=X) == expected
    assert p_snr_metric.compute(predictions=Y.tolist(), references=X.tolist(), frequency=16.0) == expected
    assert p_snr_metric.compute(predictions=torch.tensor(Y), references=torch.tensor(X)) == expected
    settings = {"frequency": 9.0, "max_frequency": 100.0, "window": 0.5}
    result = p_snr_metric.compute(predictions=Y, references=X, **settings)
    assert result["p_snr"] == pytest.approx(p_snr(X, Y, **settings))


def test_jsd_through_evaluate(jsd_metric):
    expected = {"jsd": pytest.approx(jsd(*ROWS))}
    suspect, victim = ROWS
    assert jsd_metric.compute(predictions=suspect, references=victim) == expected
    assert jsd_metric.compute(predictions=suspect.tolist(), references=victim.tolist()) == expected
    assert jsd_metric.compute(predictions=torch.tensor(suspect), references=torch.tensor(victim)) == expected


def test_probes_may_be_added_in_batches_or_one_by_one(p_snr_metric, jsd_metric):
    for batch in np.array_split(np.arange(len(X)), 7):
        p_snr_metric.add_batch(predictions=Y[batch], references=X[batch])
    assert p_snr_metric.compute()["p_snr"] == pytest.approx(p_snr(X, Y))
    for x, y in zip(X, Y, strict=True):
        p_snr_metric.add(prediction=y, reference=x)
    assert p_snr_metric.compute(frequency=9.0)["p_snr"] == pytest.approx(p_snr(X, Y, 9.0))
    for suspect, victim in zip(*ROWS, strict=True):
        jsd_metric.add(prediction=suspect, reference=victim)
    assert jsd_metric.compute()["jsd"] == pytest.approx(jsd(*ROWS))


def test_metrics_combine():
    together = evaluate.combine({"mine": metrics.path("p_snr"), "other": PSnr()})
    result = together.compute(predictions=Y, references=X, frequency=16.0)
    assert result == {"mine_p_snr": pytest.approx(p_snr(X, Y)), "other_p_snr": pytest.approx(p_snr(X, Y))}


def test_results_save(tmp_path):
    file = evaluate.save(tmp_path / "result.json", **PSnr().compute(predictions=Y, references=X), student="soft")
    saved = json.loads(Path(file).read_text())
    assert saved["p_snr"] == pytest.approx(p_snr(X, Y)) and saved["student"] == "soft"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"predictions": Y}, "references are missing; this metric takes .*hash values"),
        ({"references": X}, "predictions are missing"),
        ({}, "predictions are missing"),
        ({"predictions": Y, "references": X[:-1]}, "300 predictions and 299 references"),
        ({"predictions": Y[:, None], "references": X}, "predictions must be 1-dimensional"),
        ({"predictions": Y, "references": X + 1}, r"must be in \[0, 1\]"),
        ({"predictions": [], "references": []}, "too few"),
    ],
)
def test_bad_input_is_named_and_does_no_harm(p_snr_metric, given, message):
    with pytest.raises(InvalidInputError, match=message):
        p_snr_metric.compute(**given)
    assert p_snr_metric.compute(predictions=Y, references=X)["p_snr"] == pytest.approx(p_snr(X, Y))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"predictions": ROWS[0]}, "references are missing; this metric takes .*victim"),
        ({"predictions": ROWS[0], "references": ROWS[1, :, :3]}, "same labels"),
        ({"predictions": ROWS[0, None], "references": ROWS[1, None]}, "must be 2-dimensional"),
        ({"predictions": ROWS[0], "references": np.log(ROWS[1])}, "softmax"),
    ],
)
def test_bad_rows_are_named_and_do_no_harm(jsd_metric, given, message):
    with pytest.raises(InvalidInputError, match=message):
        jsd_metric.compute(**given)
    assert jsd_metric.compute(predictions=ROWS[0], references=ROWS[1])["jsd"] == pytest.approx(jsd(*ROWS))


def test_hash_values_are_not_written_to_disk(p_snr_metric, tmp_path):
    """They are the key's; evaluate keeps its inputs in cache files unless told otherwise."""
    p_snr_metric.add_batch(predictions=Y, references=X)
    p_snr_metric.compute()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with pytest.raises(InvalidInputError, match="gather the answers in one process"):
        evaluate.load(metrics.path("p_snr"), num_process=2, process_id=0)


def test_both_in_a_trainer(tmp_path, tokenizer):
    """compute_metrics gets logits; the hash values and the victim's answers lie ready in the order of the texts."""
    words = ["film", "book", "plot", "cast", "music", "story"]
    texts = [f"the {words[i % 6]} was {'good' if i % 2 else 'dull'}" for i in range(24)]
    data = datasets.Dataset.from_dict({**tokenizer(texts), "labels": [0, 1] * 12})
    hash_values, victim = X[:24], ROWS[1, :24, :2] / ROWS[1, :24, :2].sum(axis=1, keepdims=True)
    seen = {}

    def compute_metrics(evaluation):
        seen["probabilities"] = probabilities = torch.tensor(evaluation.predictions).softmax(dim=-1)
        return {
            **PSnr().compute(predictions=probabilities[:, 0], references=hash_values),
            **Jsd().compute(predictions=probabilities, references=victim),
        }

    trainer = Trainer(
        model=make_model(),
        args=TrainingArguments(output_dir=str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True),
        eval_dataset=data,
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
    )
    result = trainer.evaluate()
    assert result["eval_p_snr"] == pytest.approx(p_snr(hash_values, seen["probabilities"][:, 0]))
    assert result["eval_jsd"] == pytest.approx(jsd(seen["probabilities"], victim))


@pytest.mark.parametrize("name", ["p_snr", "jsd"])
def test_the_cards_examples_run_as_printed(name):
    card = (Path(metrics.path(name)) / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, name, None, 0)
    assert len(blocks) >= 3 and len(examples.examples) >= 9
    assert doctest.DocTestRunner().run(examples).failed == 0


@pytest.mark.parametrize("name", ["p_snr", "jsd"])
def test_the_cards_say_what_a_card_says(name):
    card = (Path(metrics.path(name)) / "README.md").read_text(encoding="utf-8")
    for heading in ("Metric description", "Inputs", "Output", "Examples", "Limits", "Citation"):
        assert f"# {heading}\n" in card
