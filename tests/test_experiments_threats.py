"""What a thief reads of the paper's mark without training: floors, the first of many words, a word repeated."""

import json

import numpy as np
import pytest
import torch

from drw_hf import WatermarkKey
from drw_hf.experiments import threats
from drw_hf.experiments.theft import small_bert
from drw_hf.experiments.threats_report import report
from drw_hf.extraction.attacks import ATTACKS
from drw_hf.watermark.cosine import perturb, signal_tables
from small_models import WORDS, make_key, make_model, make_tokenizer, make_victim

pytest.importorskip("scipy", reason="the experiments need their extra")
TARGET, EPSILON, N = 2, 0.2, 400
LABELS = [f"class {number}" for number in range(9)]


@pytest.fixture(scope="module")
def floors():
    """Answers of a service with nine classes: clean, marked, which of them the key marks, and its cosine."""
    model = small_bert("token-classification", 500, 0, labels=LABELS)
    key = WatermarkKey.generate(model, special_token_ids=[0], target=LABELS[TARGET], secret=bytes(32), tau=0.5)
    signal, selected = (table[1 : N + 1] for table in signal_tables(key, torch.device("cpu")))
    rng = np.random.default_rng(0)
    top = rng.choice([TARGET, 5], N)
    clean = 0.98 * np.eye(9)[top] + 0.02 * rng.dirichlet(np.full(9, 0.1), N)
    marked = selected.numpy() & (top == TARGET)
    served = np.where(marked[:, None], perturb(torch.from_numpy(clean), signal, TARGET, EPSILON), clean)
    return clean, served, marked, signal.numpy()


def test_the_smallest_score_of_one_answer_follows_the_key_s_cosine(floors):
    _, served, marked, signal = floors
    assert threats.correlation(-served[marked].min(axis=1), signal[marked]) > 0.999


def test_floors_tell_which_answers_are_marked_and_the_target_and_the_level(floors):
    clean, served, marked, signal = floors
    found = threats.read_floors(served)
    assert not found.marked[~marked].any()
    assert found.marked[marked & (signal < 0.9)].all(), "near z = 1 the others get nothing"
    assert (found.named[found.marked] == TARGET).all()
    assert found.epsilon == pytest.approx(EPSILON, rel=0.05)
    assert not threats.read_floors(clean).marked.any()


def test_without_its_floor_an_answer_is_nearly_the_clean_one(floors):
    clean, served, marked, _ = floors
    without = ATTACKS.get("floor")().change_answers(served)
    assert np.abs(without - clean)[marked].max() < 0.02 < 0.2 < np.abs(served - clean)[marked].max()


# -- the hash rule keyed


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def keyed(tokenizer):
    """One of many keys, by its number."""
    model = make_model()
    return lambda number: make_key(model, tokenizer, hash_rule="keyed", secret=number.to_bytes(32, "big"))


@pytest.mark.parametrize("n_words", [1, 2, 7, 32])
def test_a_knockout_finds_the_first_of_n_words_with_one_query_less(keyed, tokenizer, n_words):
    key, words = keyed(3), WORDS[5 : 5 + n_words]

    def earlier(pairs):
        return threats.hashed_words(key, tokenizer, [f"{first} {second}" for first, second in pairs])

    scores = key.rule_scores()
    expected = max(words, key=lambda word: scores[tokenizer.convert_tokens_to_ids(word)])
    assert threats.knockout(words, earlier) == (expected, n_words - 1)
    assert threats.hashed_words(key, tokenizer, [" ".join(words)]) == [expected]


def test_the_first_of_ten_words_is_hashed_in_ten_of_fifteen_texts_with_five_others(keyed, tokenizer):
    compared, others = WORDS[5:15], " ".join(WORDS[20:25])
    fixed = []
    for number in range(200):
        key = keyed(number)
        (first,) = threats.hashed_words(key, tokenizer, [" ".join(compared)])
        fixed.append(threats.hashed_words(key, tokenizer, [f"{others} {first}"]) == [first])
    assert threats.expected_share(10, np.array([5])) == pytest.approx(2 / 3)
    assert np.mean(fixed) == pytest.approx(2 / 3, abs=0.1), "three standard errors"


def test_texts_without_other_words_are_all_fixed():
    assert threats.expected_share(50, np.array([0, 50])) == pytest.approx(0.75)


# -- the same word again and again


def test_a_query_repeats_a_word_after_the_same_words():
    assert threats.repeated("Ann", (), 3) == ["Ann", "Ann", "Ann"]
    assert threats.repeated("Ann", ("and",), 5) == ["and", "Ann", "and", "Ann"]


def test_a_repeated_word_has_two_or_three_margin_draws_however_long_the_query():
    assert [threats.n_windows(0, length) for length in (10, 60)] == [3, 3], "first, last and in between"
    assert [threats.n_windows(1, length) for length in (10, 60)] == [2, 2], "last, and all others"


def test_a_repeated_word_is_drawn_at_every_place_by_the_paper_s_mark(tokenizer):
    service = make_victim("token-classification", label_kind="hard", epsilon=1.0)
    texts = [threats.repeated(word, (), 60) for word in WORDS[:8]]
    encoding = tokenizer(texts, is_split_into_words=True, return_tensors="pt", return_token_type_ids=False)
    labels = service(**encoding).logits.argmax(-1)[:, 1:-1]
    assert all(len(row.unique()) > 1 for row in labels)
    assert len({tuple(row.tolist()) for row in labels}) == len(texts)


# -- the tables


def test_the_tables_keep_perfect_figures_for_what_is_perfect(tmp_path):
    about = {"what": "answers", "task": "token-classification", "digits": 0, "words": 800, "epsilon": 0.2}
    shares = {"found": 0.9, "mistaken": 0.0, "named": 0.99996, "z": {"nothing": 35.2, "floor": -1.0}}
    fixed = {str(n): {"share": 1.0, "expected": 0.99999, "others": 2.0} for n in (1, 5)}
    compared = {"queries": 49, "compared": 50, "right": 1.0, "fixed": fixed}
    repeats = {"what": "repetitions", "mark": "tilt", "how": "alone", "n_queries": 1, "labels": 60, "draws": 0}
    lines = [
        {**about, "seed": 1, **shares, "correlation": 0.99999},
        {**about, "seed": 2, **shares, "correlation": 0.9992},
        {"what": "words", "seed": 1, "n_words": 50, "known": compared, "by answers": compared},
        {**repeats, "seed": 1, "words": 300, "correlation": -0.05},
        {**repeats, "seed": 2, "words": 310, "correlation": 0.2},
    ]
    output = tmp_path / "threats.jsonl"
    output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = report(output)
    assert "A range is that of 2 keys." in text
    assert "| 12 classes | all | 800 | > 0.999 | 90.0 % | 0.0 % | 99.9 % | 0.200 |" in text
    assert "| 12 classes | all | 35.2 | −1.0 |" in text
    assert "| 50 | known | 50 | 49 | 100.0 % | 100.0 % | 99.9 % | 100.0 % | 99.9 % |" in text
    assert "| tilt | alone | 1 | 60 | 0 | 300–310 | −0.05 to 0.20 |" in text
