"""Hard labels: drawn from ŷ, the same for the same text, and nothing of ŷ beside them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from drw_hf.keys.derivation import DRAWS
from drw_hf.watermark.sampling import draw, hard_output, keyed_uniforms, text_message
from small_models import SPECIAL, make_batch, make_key, make_model, make_victim

TASKS = ["sequence-classification", "token-classification"]
CLS, SEP, PAD = SPECIAL["[CLS]"], SPECIAL["[SEP]"], SPECIAL["[PAD]"]


def labels(victim, batch, **kwargs):
    with torch.no_grad():
        return victim(**batch, **kwargs).logits.argmax(-1)


def padded(batch, left, right, pad_id=PAD):
    """The same rows with padding on both sides."""
    return {
        "input_ids": torch.nn.functional.pad(batch["input_ids"], (left, right), value=pad_id),
        "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (left, right)),
    }


# -- the output


@pytest.mark.parametrize("task", TASKS)
def test_a_hard_answer_says_one_label_and_nothing_else(task):
    with torch.no_grad():
        output = make_victim(task, label_kind="hard")(**make_batch())
    assert set(output.keys()) == {"logits"} and output.logits.dtype == torch.float32
    values, counts = output.logits.unique(return_counts=True)
    assert values.tolist() == [-1e4, 0.0]
    assert counts[1] == output.logits.shape[:-1].numel()
    assert output.logits.softmax(-1).unique().tolist() == [0.0, 1.0]


def test_hard_output_and_draw_agree_on_shapes():
    drawn = draw(torch.randn(2, 3, 5).log_softmax(-1), torch.rand(2, 3))
    assert drawn.shape == (2, 3)
    torch.testing.assert_close(hard_output(drawn, 5).argmax(-1), drawn)


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=8), st.floats(0, 1, exclude_max=True))
def test_a_draw_is_the_inverse_of_the_cumulated_distribution(weights, u):
    weights[0] += 0.5
    y = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    label = int(draw(y.clamp_min(1e-300).log(), torch.tensor(u, dtype=torch.float64)))
    below, above = float(y[:label].sum()), float(y[: label + 1].sum())
    assert below - 1e-9 <= u <= above + 1e-9
    assert y[label] > 0


def test_the_largest_uniform_number_never_falls_on_an_impossible_class():
    y = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
    assert draw(y.log(), torch.tensor(1 - 2.0**-53, dtype=torch.float64)) == 1
    assert draw(torch.tensor([0.0, 1.0]).log(), torch.tensor(0.0, dtype=torch.float64)) == 1


# -- the keyed draw


def test_keyed_numbers_match_the_committed_vectors():
    vector = json.loads((Path(__file__).parent / "vectors" / "hard_labels.json").read_text())
    key = make_key(make_model())
    for case in vector["cases"]:
        ids = np.array(case["token_ids"])
        message = text_message(ids, np.ones(len(ids), bool), np.arange(len(ids)) < case["first_sentence"])
        assert message.hex() == case["message"]
        np.testing.assert_allclose(
            keyed_uniforms([key.subkey(DRAWS)], [message], [3]), case["uniforms"], rtol=0, atol=1e-15
        )


@pytest.mark.parametrize("task", TASKS)
@settings(max_examples=20, deadline=None)
@given(left=st.integers(0, 6), right=st.integers(0, 6), others=st.integers(0, 5))
def test_same_text_same_label_whatever_batch_and_padding(task, left, right, others):
    victim, batch = VICTIMS[task], make_batch(n_rows=6, length=9)
    expected = labels(victim, batch)
    crowd = {name: torch.cat([make_batch(others, 9, seed=7)[name], batch[name]]) for name in batch}
    found = labels(victim, padded(crowd, left, right))[others:]
    if task == "token-classification":
        found = found[:, left : left + 9]
        expected, found = expected[:, 1:-1], found[:, 1:-1]  # what is said of special tokens is nobody's answer
    assert torch.equal(found, expected)


VICTIMS = {
    task: make_victim(task, label_kind="hard", epsilon=1.0, model=make_model(task, architecture="llama"))
    for task in TASKS
}


def test_repeated_queries_gain_nothing():
    batch = make_batch(n_rows=8)
    answers = torch.stack([labels(VICTIMS["token-classification"], batch) for _ in range(5)])
    assert (answers == answers[0]).all()


def test_position_text_and_boundary_decide_the_draw():
    key = make_key(make_model())
    row, every = np.array([10, 11, 10, 11]), np.ones(4, bool)
    whole = text_message(row, every, every)
    as_pair = text_message(row, every, np.array([True, True, False, False]))
    assert whole != as_pair
    numbers = keyed_uniforms([key.subkey(DRAWS)], [whole], [4])
    assert len(set(numbers)) == 4, "the same word at another place is another draw"
    np.testing.assert_array_equal(keyed_uniforms([key.subkey(DRAWS)], [whole], [2]), numbers[:2])
    other = make_key(make_model(), secret=b"\x01" * 32)
    assert not np.isin(keyed_uniforms([other.subkey(DRAWS)], [whole], [4]), numbers).any()


def test_a_pair_draws_otherwise_than_the_same_words_in_one_text(tokenizer):
    """... and the same whether segment ids were given or not, since [SEP] tells the boundary too."""
    words = "the film was very good and the cast was bad in the story of a book".split()
    pairs = [(" ".join(words[:i]), " ".join(words[i:])) for i in range(1, len(words))]
    with_types = tokenizer([a for a, _ in pairs], [b for _, b in pairs], return_tensors="pt", padding=True)
    draws = []
    for row in with_types["input_ids"]:
        view = row.numpy() > 4
        boundary = int((row == SEP).int().argmax())
        draws.append(text_message(row.numpy(), view, view & (np.arange(len(row)) < boundary)))
    assert len(set(draws)) == len(pairs)
    without = {name: with_types[name] for name in ("input_ids", "attention_mask")}
    typeless = make_model(type_vocab_size=1)  # a model for which segment ids change nothing else
    victim = make_victim(label_kind="hard", epsilon=2.0, model=typeless)
    with_types["token_type_ids"] = with_types["token_type_ids"] * 0
    assert torch.equal(labels(victim, with_types), labels(victim, without))


# -- frequencies


@pytest.mark.parametrize("sampling", ["keyed", "fresh"])
def test_labels_are_drawn_with_the_probabilities_of_y(sampling):
    """Chi-square of 4,000 drawn tags against the sum of their ŷ, at the level 1e-4; the seeds are fixed."""
    model = make_model("token-classification")
    soft = make_victim("token-classification", model=model, epsilon=0.5)
    hard = make_victim("token-classification", model=model, epsilon=0.5, label_kind="hard", sampling=sampling)
    batch = make_batch(n_rows=500, length=10)
    with torch.no_grad():
        y = soft(**batch).logits.double().exp()[:, 1:-1].reshape(-1, 4)
    torch.manual_seed(0)
    drawn = labels(hard, batch)[:, 1:-1].reshape(-1)
    observed = torch.bincount(drawn, minlength=4).double()
    variance = (y * (1 - y)).sum(0)
    z = (observed - y.sum(0)) / variance.sqrt()
    assert (z.abs() < stats.norm.isf(1e-4 / 8)).all()
    # Not only in total: the draws follow ŷ item by item. Under independence E log y = Σ y log y.
    scores = y.log().gather(1, drawn[:, None]).squeeze(1)
    mean = (y * y.log()).sum(1)
    spread = ((y * y.log() ** 2).sum(1) - mean**2).sum().sqrt()
    assert abs((scores - mean).sum() / spread) < stats.norm.isf(1e-4 / 2)


def test_keyed_numbers_are_uniform_over_texts_and_positions():
    key = make_key(make_model())
    numbers = [keyed_uniforms([key.subkey(DRAWS)], [i.to_bytes(4, "little")], [8]) for i in range(2000)]
    assert stats.kstest(np.ravel(numbers), "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(np.array(numbers).T) - np.eye(8)).max() < 4.5 / np.sqrt(2000)


# -- what is sampled


def test_only_marked_answers_are_sampled():
    model = make_model("token-classification")
    key = make_key(model, tau=0.5, epsilon=5.0, scope="all")
    victim, batch = make_victim("token-classification", key=key, model=model, label_kind="hard"), make_batch(50)
    with torch.no_grad():
        clean = model(**batch).logits.argmax(-1)
    differs = labels(victim, batch) != clean
    selected = torch.from_numpy(key.selection_table <= 0.5)[batch["input_ids"]] & (batch["input_ids"] > 4)
    assert not differs[~selected].any()
    assert differs[selected].float().mean() > 0.2


def test_sample_all_draws_unmarked_answers_from_p():
    model = make_model("token-classification", sharp=False)
    victim = make_victim("token-classification", model=model, tau=0.0, label_kind="hard", sample_all=True)
    batch = make_batch(100)
    with torch.no_grad():
        clean = model(**batch).logits.argmax(-1)
    drawn = labels(victim, batch)
    words = batch["input_ids"] > 4
    assert (drawn != clean)[words].float().mean() > 0.5, (
        "an unsure model of four classes is seldom drawn as its argmax"
    )
    assert torch.equal(drawn[~words], clean[~words]), "what is said of special tokens stays the argmax"


def test_fresh_draws_follow_a_torch_generator():
    victim, batch = (
        make_victim("token-classification", label_kind="hard", sampling="fresh", epsilon=2.0),
        make_batch(20),
    )

    def ask(seed):
        return labels(victim, batch, generator=torch.Generator().manual_seed(seed))

    assert torch.equal(ask(1), ask(1))
    assert not torch.equal(ask(1), ask(2))
    torch.manual_seed(3)
    first, second = labels(victim, batch), labels(victim, batch)
    assert not torch.equal(first, second), "without a generator, torch's own chance"


def test_an_empty_text_gets_its_argmax():
    model = make_model()
    victim = make_victim(model=model, label_kind="hard", epsilon=5.0)
    empty = {"input_ids": torch.tensor([[CLS, SEP]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
    with torch.no_grad():
        assert torch.equal(labels(victim, empty), model(**empty).logits.argmax(-1))
