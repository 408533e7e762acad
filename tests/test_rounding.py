"""Scores with few digits: still a distribution, and still of the same label."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf.watermark import rounding
from drw_hf.watermark.rounding import MOST_DIGITS, rounded, smallest_score

DIGITS = range(1, MOST_DIGITS + 1)


def shown(probabilities, digits):
    """What a client sees of these probabilities."""
    log_y = torch.as_tensor(np.asarray(probabilities), dtype=torch.float32).log().clamp_min(-1e4)
    return rounded(log_y, digits).softmax(-1).double().numpy()


@st.composite
def answers(draw):
    """Distributions of few and many classes: flat, sharp, with ties among the highest, with classes at nothing."""
    n_classes = draw(st.sampled_from([2, 3, 4, 9, 45, 150, 1000]))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = generator.normal(size=(20, n_classes)) * draw(st.sampled_from([0.0, 1e-7, 1e-3, 0.1, 1.0, 10.0, 300.0]))
    if draw(st.booleans()):  # so that some are the same to the bit
        logits = np.round(logits)
    if draw(st.booleans()):
        logits[:, generator.integers(n_classes)] = -np.inf
    return torch.from_numpy(logits).float().log_softmax(-1).clamp_min(-1e4)


@given(log_y=answers(), digits=st.sampled_from(DIGITS))
@settings(max_examples=200)
def test_the_label_is_exactly_that_of_the_unrounded_answer(log_y, digits):
    """... the hard answer: with ties, with many classes, and also after the softmax of whoever reads the logits."""
    output = rounded(log_y, digits)
    assert torch.equal(output.argmax(-1), log_y.argmax(-1))
    y = output.softmax(-1)
    assert torch.equal(y.argmax(-1), log_y.argmax(-1))
    two = y.topk(2).values
    assert (two[:, 0] > two[:, 1]).all(), "nobody else is shown as high"


@given(log_y=answers(), digits=st.sampled_from(DIGITS))
def test_it_is_a_distribution_in_which_nothing_is_impossible(log_y, digits):
    output = rounded(log_y, digits)
    assert output.dtype == torch.float32 and torch.isfinite(output).all()
    torch.testing.assert_close(output.exp().sum(-1), torch.ones(20), rtol=0, atol=1e-5)
    least = smallest_score(digits, log_y.shape[-1])
    assert (output.exp() > 0.4 * least).all(), "scores may sum up to two, where many are rounded up"


@given(log_y=answers(), digits=st.sampled_from(DIGITS))
def test_few_scores_are_rounded_as_many_are(log_y, digits):
    """Few by numpy on the CPU, many and those elsewhere by torch."""
    least = smallest_score(digits, log_y.shape[-1])
    few, many = (find(log_y, log_y.exp(), 10.0**digits, least) for find in (rounding._shown_of_few, rounding._shown))
    torch.testing.assert_close(few, many, rtol=1e-6, atol=1e-9)


def test_scores_are_whole_units_divided_by_their_sum():
    np.testing.assert_allclose(shown([0.12345, 0.32155, 0.555], 2), [0.12, 0.32, 0.56], atol=1e-6)
    np.testing.assert_allclose(shown([0.1234, 0.3216, 0.555], 3), [0.123, 0.322, 0.555], atol=1e-6)
    np.testing.assert_allclose(shown([0.126, 0.326, 0.548], 2), np.array([13, 33, 55]) / 101, atol=1e-6)


def test_scores_that_round_to_nothing_share_what_is_left():
    """149 intents at 0.0003 each are 5 % together: who relies on the scores must not read 100 % for the best one."""
    np.testing.assert_allclose(shown([0.0004, 0.0002, 0.0004, 0.999], 3), [1 / 3000] * 3 + [0.999], atol=1e-6)
    rare = np.append(np.full(149, 0.05 / 149), 0.95)
    np.testing.assert_allclose(shown(rare, 3), rare, rtol=1e-4)
    assert shown(np.full(1000, 0.001), 1).max() < 0.002, "also where no class has a unit"


@pytest.mark.parametrize("digits", DIGITS)
def test_the_smallest_score_is_what_a_class_at_nothing_is_shown_with(digits):
    assert smallest_score(digits, 45) * 45 == pytest.approx(0.5 * 10.0**-digits), "half a unit for all classes"
    assert shown([1.0, 0.0, 0.0, 0.0], digits)[1] == pytest.approx(smallest_score(digits, 4), rel=0.1)


def test_equal_scores_are_shown_half_a_unit_apart():
    np.testing.assert_allclose(shown([0.5, 0.5], 3), np.array([500, 499.5]) / 999.5, atol=1e-7)
    np.testing.assert_allclose(shown([0.4996, 0.5004], 3), np.array([499.5, 500]) / 999.5, atol=1e-7)


@given(seed=st.integers(0, 2**32 - 1), digits=st.sampled_from(DIGITS))
def test_no_score_moves_by_more_than_its_digits_say(seed, digits):
    """Half a unit of rounding, as much for a tie, and the sum, which misses one by half a unit per class."""
    y = np.random.default_rng(seed).dirichlet(np.ones(4), size=50)
    assert np.abs(shown(y, digits) - y).max() <= (1 + 4 * 0.5) * 10.0**-digits + 1e-6


def test_answers_tell_no_more_than_their_units():
    """Two answers that round alike, with the same label, are shown alike to the bit."""
    first, second = shown([0.12341, 0.32161, 0.55498], 3), shown([0.12339, 0.32159, 0.55502], 3)
    assert (first == second).all()


def test_rounding_has_no_gradient():
    """A loss on rounded scores would train nothing; it fails instead, as one on hard labels does."""
    logits = torch.randn(4, 3, requires_grad=True)
    assert not rounded(logits.log_softmax(-1), 3).requires_grad
