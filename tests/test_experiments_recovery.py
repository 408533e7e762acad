"""The thief who computes tilt's numbers from answers: the estimator, and what is done with it."""

import json

import numpy as np
import pytest
from datasets import Dataset

from drw_hf import WatermarkKey
from drw_hf.asking.labelling import LABELS, PROBABILITIES
from drw_hf.asking.words import Words
from drw_hf.experiments.recovery import Recovered, correlations, moved, recover, report
from drw_hf.extraction.stolen import Stolen
from drw_hf.watermark.tilt import signals
from small_models import make_model

pytest.importorskip("scipy", reason="the experiments need their extra")
N_WORDS, N_PROBES = 60, 4000


@pytest.fixture(scope="module")
def case():
    """Answers of a tagger whose words differ by themselves in one direction of the four classes alone, tilted."""
    model = make_model("token-classification")
    key = WatermarkKey.generate(model, special_token_ids=[0, 1, 2, 3], mark="tilt", strength=0.5, temperature=1.0)
    rng = np.random.default_rng(0)
    tokens = 4 + rng.integers(0, N_WORDS, N_PROBES)
    words = Words(np.arange(N_PROBES), tokens, np.ones(N_PROBES), N_PROBES)
    direction = np.array([1.0, -1.0, 0.0, 0.0])
    scores = 2.0 * rng.normal(size=N_WORDS)[tokens - 4, None] * direction + 0.3 * rng.normal(size=(N_PROBES, 4))
    tilted = moved(np.full_like(scores, 0.25), scores + 0.5 * signals(key, tokens))
    return key, words, scores, tilted


def test_the_filter_reads_the_key_where_words_do_not_differ_by_themselves(case):
    key, words, _, tilted = case
    assert correlations(recover(words, tilted), words, key)["all words"] > 0.5


def test_a_model_of_the_thief_s_own_helps(case):
    key, words, scores, tilted = case
    own = moved(np.full_like(scores, 0.25), scores)
    assert correlations(recover(words, tilted, own), words, key)["all words"] > 0.9


def test_one_digit_tells_less(case):
    key, words, _, tilted = case
    exact, rough = (correlations(recover(words, p), words, key)["all words"] for p in (tilted, np.round(tilted, 1)))
    assert rough < exact


def test_what_is_taken_off_is_what_was_put_on(case):
    key, words, scores, tilted = case
    distinct = np.unique(words.token_ids)
    known = Recovered(distinct, 0.5 * signals(key, distinct))
    clean = moved(np.full_like(scores, 0.25), scores)
    np.testing.assert_allclose(moved(tilted, -known.of(words)), clean, atol=1e-12)


def test_words_never_seen_add_nothing():
    known = Recovered(np.array([5, 7]), np.array([[1.0, -1.0], [2.0, -2.0]]))
    words = Words(np.array([0, 0, 1]), np.array([5, 6, 9]), np.array([0.5, 0.5, 1.0]), 3)
    np.testing.assert_array_equal(known.of(words), [[0.5, -0.5], [0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize("by_word", [False, True])
def test_answers_are_exchanged_in_place(by_word):
    rows = [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]
    nested = [[rows[0], [0.0, 0.0]], [rows[1], rows[2]]] if by_word else rows
    answers = Dataset.from_dict({PROBABILITIES: nested, LABELS: [[0, -1], [1, 1]] if by_word else [0, 1, 1]})
    np.testing.assert_array_equal(Stolen(answers).answers, rows)
    changed = Stolen(answers).replaced(np.array(rows)[:, ::-1])
    np.testing.assert_allclose(Stolen(changed).answers, np.array(rows)[:, ::-1], rtol=1e-6)
    assert changed[LABELS][:] == ([[1, -1], [0, 0]] if by_word else [1, 0, 0])


def test_the_tables_tell_what_was_recovered_and_what_came_of_it(tmp_path):
    found = {"scores": {"z": 5.5}, "labels": {"z": 22.9}, "accuracy": 83.3}
    about = {"setting": "pos-tiny", "queries": found, "unseen": found}
    seen = {"all words": 0.7, "seen once": 0.6}
    lines = [
        {"what": "recovery", **about, "digits": 0, "n_texts": 1000, "answers": 9000}
        | {"without labels": seen, "with gold labels": seen},
        {"what": "erasure", **about, "digits": 3, "with_gold": True, "times": 2.0},
        {"what": "framing", **about, "digits": 3, "with_gold": False, "how": "put on"},
    ]
    lines += [
        {"what": "fainter", **about, "digits": 3, "times": 0.5, "n_texts": size}
        | {"without labels": {"all words": share}}
        for size, share in ((6000, 0.2), (1000, 0.1))
    ]
    output = tmp_path / "recovery.jsonl"
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = report(output)
    assert "| POS, tiny | 1,000 | 9,000 | all | 0.70 / 0.60 / — | 0.70 / 0.60 / — |" in text
    assert "| POS, tiny | 3 | with gold labels | 2 times | 83.3 | 5.5 / 5.5 | 22.9 / 22.9 |" in text
    assert "| POS, tiny | 3 | without labels | put on | 5.5 / 5.5 | 22.9 / 22.9 |" in text
    assert "| | digits | strength | 1,000 texts | 6,000 texts |" in text
    assert "| POS, tiny | 3 | 0.5 times | 0.10 / — / — | 0.20 / — / — |" in text
