"""The memory test: exact where its law can be written out, calibrated elsewhere, strong where a student memorised."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from drw_hf.detection.statistics.memory import memory_test
from drw_hf.errors import InvalidInputError
from drw_hf.watermark.cosine import perturb


def marked_items(n=300, m=4, epsilon=0.2, seed=0):
    """ŷ of marked items whose victim leans to class 0, and one label drawn for each."""
    generator = np.random.default_rng(seed)
    clean = generator.dirichlet([12.0] + [1.0] * (m - 1), n)
    signal = torch.cos(torch.from_numpy(16.0 * generator.random(n)))
    y = perturb(torch.from_numpy(clean), signal, 0, epsilon).double().numpy()
    return clean, y / y.sum(axis=1, keepdims=True), generator


def draw(y, generator, times=None):
    shape = (len(y), 1) if times is None else (times, len(y), 1)
    drawn = (y.cumsum(axis=1) < generator.random(shape)).sum(axis=-1)
    return drawn.clip(max=y.shape[1] - 1)


def poisson_binomial_tail(chances):
    """P(at least k of independent events happen), for every k."""
    mass = np.ones(1)
    for chance in chances:
        mass = np.convolve(mass, [1 - chance, chance])
    return mass[::-1].cumsum()[::-1]


def test_labels_alone_against_the_exact_law():
    """The number of labels repeated is Poisson-binomial: p within 3 % of it in both tails, the bound above it."""
    clean, y, _ = marked_items()
    labels = clean.argmax(axis=1)
    chances = np.take_along_axis(y, labels[:, None], axis=1)[:, 0]
    tail = poisson_binomial_tail(chances)
    other = np.argsort(-y, axis=1)
    other = np.where(other[:, 0] == labels, other[:, 1], other[:, 0])
    for repeated in (100, 180, 200, 205, 210, 215, 220, 240, 260, 280, 299):
        drawn = np.where(np.arange(300) < repeated, labels, other)
        result = memory_test(y, drawn, labels=labels)
        assert result.p_value == pytest.approx(tail[repeated], rel=0.03), repeated
        assert result.p_bound >= tail[repeated] * (1 - 1e-9)


def test_every_label_repeated():
    """The largest T there is: p is the product of the labels' probabilities, bound and estimate alike."""
    _, y, generator = marked_items()
    drawn = draw(y, generator)
    exact = np.log10(np.take_along_axis(y, drawn[:, None], axis=1)).sum()
    result = memory_test(y, drawn, labels=drawn)
    assert result.log10_bound == pytest.approx(exact, rel=1e-6)
    assert result.log10_p == pytest.approx(exact, rel=1e-3) and math.isfinite(result.z_score)


def test_no_label_repeated():
    """The smallest T there is: nothing accuses, and nothing overflows."""
    _, y, generator = marked_items()
    drawn = draw(y, generator)
    result = memory_test(y, drawn, labels=(drawn + 1) % 4)
    assert result.p_bound == 1.0 and result.p_value > 0.9 and -100 < result.z_score < -1


@pytest.mark.parametrize("m", [2, 4, 12])
def test_fresh_draws_reject_at_the_nominal_rate(m):
    """An innocent suspect, 20,000 fresh sets of labels: the p-value of the one at each rank is that rank (99.9 %)."""
    clean, y, generator = marked_items(n=200, m=m)
    q = np.exp(np.log(clean + 1e-6) + generator.standard_normal(clean.shape))
    q /= q.sum(axis=1, keepdims=True)
    drawn = draw(y, generator, times=20_000)
    s = np.log(np.maximum(q, 1e-8))
    T = np.take_along_axis(s[None], drawn[..., None], axis=2).sum(axis=(1, 2)) - np.sum(y * s)
    order = np.argsort(-T)
    for level in (0.5, 0.05, 1e-2, 1e-3):
        rank = int(level * 20_000)
        result = memory_test(y, drawn[order[rank - 1]], probabilities=q)
        assert result.statistic == pytest.approx(T[order[rank - 1]])
        low, high = scipy.stats.binom.interval(0.999, 20_000, min(result.p_value, 1.0))
        assert low <= rank <= high, level
        assert result.p_bound >= result.p_value
    p = [memory_test(y, labels, probabilities=q).p_value for labels in drawn[:200]]
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("epsilon", [0.2, 0.02])
def test_a_student_that_memorised_is_found(epsilon):
    """Half of the draw's surprise remembered: p below 1e-6, with probabilities and with labels alone; an innocent
    student of the same victim shows nothing."""
    clean, y, generator = marked_items(n=1000, epsilon=epsilon)
    drawn = draw(y, generator)
    memory = np.log(clean + 1e-6) + 2.0 * (np.arange(4) == drawn[:, None]) + generator.standard_normal(clean.shape)
    q = np.exp(memory) / np.exp(memory).sum(axis=1, keepdims=True)
    assert memory_test(y, drawn, probabilities=q).p_bound < 1e-6
    assert memory_test(y, drawn, labels=q.argmax(axis=1)).p_bound < 1e-6
    innocent = draw(y, generator)
    assert memory_test(y, innocent, probabilities=q).p_bound > 1e-3
    assert memory_test(y, innocent, labels=q.argmax(axis=1)).p_bound > 1e-3


def test_probabilities_of_zero_and_one_are_labels():
    clean, y, generator = marked_items()
    labels, drawn = clean.argmax(axis=1), draw(y, generator)
    one_hot = (labels[:, None] == np.arange(4)).astype(float)
    by_label, by_probability = memory_test(y, drawn, labels=labels), memory_test(y, drawn, probabilities=one_hot)
    assert by_probability.log10_p == pytest.approx(by_label.log10_p, rel=1e-6)


def test_an_item_asked_twice_counts_once():
    _, y, generator = marked_items()
    drawn, items = draw(y, generator), np.arange(300)
    once = memory_test(y, drawn, labels=drawn, item_ids=items)
    again = np.concatenate([items, items[:100]])
    twice = memory_test(y[again], drawn[again], labels=drawn[again], item_ids=again)
    assert twice == once and once.n_tokens == 300
    assert memory_test(y[again], drawn[again], labels=drawn[again]).log10_p < once.log10_p, "why it matters"


def test_a_suspect_without_opinion_says_nothing():
    _, y, generator = marked_items()
    result = memory_test(y, draw(y, generator), probabilities=np.full_like(y, 0.25))
    assert (result.p_value, result.p_bound, result.z_score) == (1.0, 1.0, 0.0)


def test_classes_that_cannot_be_drawn_do_not_matter():
    _, y, generator = marked_items(m=3)
    wide = np.concatenate([y, np.zeros((len(y), 1))], axis=1)
    drawn = draw(y, generator)
    q = generator.dirichlet(np.ones(4), len(y))
    narrow = memory_test(y, drawn, probabilities=q[:, :3])
    assert memory_test(wide, drawn, probabilities=q).log10_p == pytest.approx(narrow.log10_p, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.full((5, 3), 0.5)}, "row 0 of y .* does not sum to one"),
        ({"y": np.empty((0, 3))}, "y has shape"),
        ({"drawn": np.zeros(4, dtype=int)}, "drawn has shape"),
        ({"drawn": np.full(5, 3)}, "outside"),
        ({"drawn": np.full(5, 2)}, "probability 0"),
        ({"labels": np.zeros(5)}, "labels holds float64 values; expected integers"),
        ({"labels": None}, "once"),
        ({"probabilities": np.ones((5, 3))}, "once"),
        ({"labels": None, "probabilities": np.full((5, 3), math.nan)}, "NaN"),
        ({"labels": None, "probabilities": np.ones((5, 2))}, "expected that of y"),
        ({"item_ids": [1, 2]}, "item_ids has shape"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"y": np.tile([0.6, 0.4, 0.0], (5, 1)), "drawn": np.zeros(5, dtype=int), "labels": np.zeros(5, dtype=int)}
    with pytest.raises(InvalidInputError, match=message):
        memory_test(**{**good, **change})
