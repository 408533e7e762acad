"""P_snr and the periodogram: the paper's numbers, from astropy, faster; and what they do at the edges."""

import math

import numpy as np
import pytest
import torch
from astropy.timeseries import LombScargle
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.psnr import CYCLES, astropy_p_snr, bench_psnr, random_case
from drw_hf.detection import p_snr, p_snr_many, periodogram
from drw_hf.detection.statistics.nodes import p_snr_by_nodes, periodogram_by_nodes
from drw_hf.detection.statistics.periodogram import MAX_FREQUENCY
from drw_hf.errors import DrwError, InvalidInputError

FREQUENCIES = np.linspace(0.1, 250, 500)


def probes(n, seed=0, strength=0.3, frequency=16.0):
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    return x, rng.random(n) + strength * np.cos(frequency * x)


def evenly(n):
    return (np.arange(n) + 0.5) / n


# The reference.


@pytest.mark.parametrize("seed", range(20))
def test_p_snr_is_astropys(seed):
    """20 of the 1,000 random cases of tests/bench/psnr.py."""
    x, y, frequency = random_case(np.random.default_rng(seed))
    assert p_snr(x, y, frequency) == pytest.approx(astropy_p_snr(x, y, frequency), rel=1e-5)


@pytest.mark.parametrize("n", [4, 7, 19])
def test_p_snr_of_few_hash_values_is_astropys(n):
    """Their spectra have spikes that are narrower than the steps of a coarse grid."""
    x, y = probes(n, seed=n)
    assert p_snr(x, y) == pytest.approx(astropy_p_snr(x, y), rel=1e-3)


def test_frequent_tokens_may_be_as_frequent_as_they_like():
    rng = np.random.default_rng(1)
    tokens = np.concatenate([np.arange(40), np.zeros(3000, dtype=int), np.ones(500, dtype=int)])
    x = rng.random(40)[tokens]
    y = rng.random(len(x)) + 0.2 * np.cos(16 * x)
    assert p_snr(x, y) == pytest.approx(astropy_p_snr(x, y), rel=1e-5)


def test_a_wide_window_and_another_range():
    x, y = probes(300)
    cycles = np.linspace(0.002, 15, 200_000)
    power = LombScargle(x, y - y.mean(), normalization="psd").power(cycles)
    inside = np.abs(2 * math.pi * cycles - 16) <= 3.0
    expected = power[inside].mean() / power[~inside].mean()
    assert p_snr(x, y, max_frequency=2 * math.pi * 15, window=6.0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("max_frequency", [2 * math.pi * 60, 2 * math.pi * 120])
def test_ranges_beyond_the_default(max_frequency):
    """Also those whose tables are not kept."""
    x, y = probes(200, frequency=300.0)
    cycles = np.linspace(0.002, max_frequency / 2 / math.pi, 200_000)
    power = LombScargle(x, y - y.mean(), normalization="psd").power(cycles)
    inside = np.abs(2 * math.pi * cycles - 300) <= 0.005
    expected = power[inside].mean() / power[~inside].mean()
    assert p_snr(x, y, 300.0, max_frequency) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("n", [5, 60, 3000])
def test_the_periodogram_is_astropys(n):
    x, y = probes(n)
    expected = LombScargle(x, y, normalization="psd").power(FREQUENCIES / 2 / math.pi, method="cython")
    np.testing.assert_allclose(periodogram(x, y, FREQUENCIES), expected, rtol=1e-7, atol=1e-9 * expected.max())


def test_fast_enough():
    """At least 20 times as fast as astropy at 10,000 probes; it is hundreds."""
    for row in bench_psnr(rounds=1):
        assert row["ratio"] < row["limit"] == 1 / 20


def whole_grid(x, y, frequency=16.0):
    """The mean over all 200,000 frequencies, by astropy's exact method."""
    power = LombScargle(x, y, normalization="psd").power(CYCLES, method="cython")
    inside = np.abs(2 * math.pi * CYCLES - frequency) <= 0.005
    assert inside.sum() == 8
    return power[inside].mean() / power[~inside].mean()


@pytest.mark.parametrize("n, rel", [(4, 1e-3), (5, 1e-4), (6, 1e-5), (7, 1e-7), (12, 1e-7), (19, 1e-7), (20, 1e-7)])
def test_a_few_points_stand_for_the_whole_grid(n, rel):
    """Below 20 values the spectrum is looked at more closely; below 7 its spikes are too narrow for even that."""
    for seed in range(3):
        x, y = probes(n, seed=100 * n + seed)
        assert p_snr(x, y) == pytest.approx(whole_grid(x, y), rel=rel)


def test_many_values_merge_and_two_thousand_points_stand_for_the_whole_grid():
    rng = np.random.default_rng(7)
    tokens = np.concatenate([np.arange(60), rng.integers(60, size=90)])
    x, y = rng.random(60)[tokens], rng.random(150)
    assert p_snr(x, y + 0.1 * np.cos(16 * x)) == pytest.approx(whole_grid(x, y + 0.1 * np.cos(16 * x)), rel=1e-7)


@given(st.integers(0, 2**31), st.integers(7, 400), st.floats(1, 240), st.sampled_from([0.0, 0.1, 2.0]))
@settings(max_examples=40, deadline=None)
def test_the_nodes_are_astropys(seed, n, frequency, strength):
    """Older evidence is replayed by the nodes, and random keys are drawn by them: both engines say the same."""
    rng = np.random.default_rng(seed)
    x = rng.random(n)
    y = rng.random(n) + strength * np.cos(frequency * x)
    assert p_snr_by_nodes(x, y, frequency, MAX_FREQUENCY) == pytest.approx(p_snr(x, y, frequency), rel=1e-6)
    ours, nodes = periodogram(x, y, FREQUENCIES), periodogram_by_nodes(x, y, FREQUENCIES)
    np.testing.assert_allclose(nodes, ours, rtol=1e-6, atol=1e-8 * ours.max())


@given(st.integers(0, 2**31), st.integers(20, 2000))
@settings(max_examples=25, deadline=None)
def test_the_fast_sums_are_the_exact_ones(seed, n):
    """Long even grids go through astropy's FFT; a shuffled grid does not."""
    rng = np.random.default_rng(seed)
    x, y = rng.random(n), rng.random(n)
    order = rng.permutation(len(FREQUENCIES))
    fast, exact = periodogram(x, y, FREQUENCIES), periodogram(x, y, FREQUENCIES[order])
    np.testing.assert_allclose(fast[order], exact, rtol=1e-7, atol=1e-9 * exact.max())


# Closed forms.


@pytest.mark.parametrize("cycles", [1, 3, 20])
def test_the_power_of_a_pure_cosine(cycles):
    """On evenly spaced hash values a cosine of whole cycles has all its power, nA²/4, in its own frequency."""
    n, amplitude = 1000, 0.2
    x = evenly(n)
    y = 0.5 + amplitude * np.cos(2 * math.pi * cycles * x)
    power = periodogram(x, y, 2 * math.pi * np.arange(1, 40))
    assert power[cycles - 1] == pytest.approx(n * amplitude**2 / 4)
    assert np.delete(power, cycles - 1) == pytest.approx(0, abs=1e-9)


@given(st.floats(0.5, 240), st.floats(0, 2 * math.pi), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_wave_explains_itself(frequency, phase, seed):
    """Whatever its phase and wherever the hash values lie: its power is half the sum of squares, the most there is."""
    x = np.random.default_rng(seed).random(200)
    y = np.cos(frequency * x + phase)
    most = ((y - y.mean()) ** 2).sum() / 2
    assert periodogram(x, y, frequency) == pytest.approx(most)
    assert periodogram(x, y, FREQUENCIES).max() <= most * (1 + 1e-9)


def test_a_noiseless_cosine_reaches_the_length_of_the_range():
    """Its peak is one cycle wide, so P_snr saturates near F/2π = 40."""
    x = evenly(5000)
    assert p_snr(x, np.cos(16 * x)) == pytest.approx(40, rel=0.01)
    assert p_snr(x, np.cos(16 * x), max_frequency=MAX_FREQUENCY / 2) == pytest.approx(20, rel=0.02)


def test_noise_gives_one_on_average():
    """Under random keys P_snr is close to exponential with mean 1, which is why 5 is no proof."""
    rng = np.random.default_rng(0)
    scores = p_snr_many(rng.random((2000, 100)), rng.random(100))
    assert scores.mean() == pytest.approx(1, abs=0.1)
    assert np.mean(scores > 3) == pytest.approx(math.exp(-3), abs=0.02)


def test_the_marked_frequency_stands_out_and_no_other():
    x, y = probes(3000)
    assert p_snr(x, y, 16.0) > 15
    assert p_snr(x, y, 40.0) < 5
    assert p_snr(np.random.default_rng(9).random(3000), y, 16.0) < 8, "another key's hash"


# What does not matter.


@given(st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3), st.floats(-10, 10), st.integers(20, 400))
@settings(max_examples=30, deadline=None)
def test_scale_and_shift_of_the_answers_do_not_matter(scale, shift, n):
    x, y = probes(n)
    assert p_snr(x, scale * y + shift) == pytest.approx(p_snr(x, y), rel=1e-6)
    assert periodogram(x, scale * y + shift, FREQUENCIES) == pytest.approx(
        scale**2 * periodogram(x, y, FREQUENCIES), rel=1e-5, abs=1e-9 * scale**2
    )


@given(st.floats(0, 0.4), st.booleans(), st.integers(4, 300))
@settings(max_examples=30, deadline=None)
def test_where_the_hash_values_begin_does_not_matter(shift, mirrored, n):
    """A wave of free phase fits shifted and mirrored values as well."""
    x, y = probes(n)
    x = 0.6 * x
    moved = 1 - (x + shift) if mirrored else x + shift
    assert p_snr(moved, y) == pytest.approx(p_snr(x, y), rel=1e-4)


@given(st.integers(0, 2**31), st.integers(4, 100))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_probes_does_not_matter(seed, n):
    x, y = probes(n)
    order = np.random.default_rng(seed).permutation(n)
    assert p_snr(x[order], y[order]) == pytest.approx(p_snr(x, y), rel=1e-7)


@pytest.mark.parametrize("n_tokens", [6, 50])
def test_counts_stand_for_repeated_probes(n_tokens):
    """Probes of one token share a hash: their mean answer and their number say all that P_snr wants to know."""
    rng = np.random.default_rng(2)
    tokens = np.concatenate([np.arange(n_tokens), rng.integers(n_tokens, size=400)])
    x, y = rng.random(n_tokens), rng.random(len(tokens))
    counts = np.bincount(tokens)
    means = np.bincount(tokens, y) / counts
    assert p_snr(x, means, counts=counts) == pytest.approx(p_snr(x[tokens], y), rel=1e-8)
    merged, separate = periodogram(x, means, FREQUENCIES, counts=counts), periodogram(x[tokens], y, FREQUENCIES)
    np.testing.assert_allclose(merged, separate, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_lists_and_arrays_are_taken(dtype):
    x, y = probes(100)
    assert p_snr(x.tolist(), y.tolist()) == p_snr(x, y) == p_snr(torch.tensor(x), torch.tensor(y, requires_grad=True))
    assert p_snr(torch.tensor(x), torch.tensor(y).to(dtype)) == pytest.approx(p_snr(x, y), rel=0.05)


def test_labels_alone_are_taken():
    x, _ = probes(2000)
    labels = np.random.default_rng(3).random(2000) < 0.5 + 0.4 * np.cos(16 * x)
    assert p_snr(x, labels) > 10


# Many keys.


@pytest.mark.parametrize("n", [7, 30, 700, 9000])
def test_many_keys_give_what_each_gives(n):
    hash_matrix, y = np.random.default_rng(4).random((5, n)), probes(n)[1]
    hash_matrix[2] = np.round(hash_matrix[2], 1)  # a key that gives few different values
    together = p_snr_many(hash_matrix, y, 20.0)
    assert together.shape == (5,)
    alone = [p_snr_by_nodes(row, y, 20.0, MAX_FREQUENCY) for row in hash_matrix]
    np.testing.assert_allclose(together, alone, rtol=1e-9)
    others = [0, 1, 3, 4]  # evenly spaced values have frequencies at which no wave can be fitted
    np.testing.assert_allclose(together[others], [p_snr(hash_matrix[row], y, 20.0) for row in others], rtol=1e-7)


def test_no_key_is_none():
    assert p_snr_many(np.empty((0, 50)), np.arange(50)).shape == (0,)


# The edges.


def test_a_constant_suspect_has_no_signal():
    x, _ = probes(100)
    for constant in (0.0, 0.1, 1.0, 1 / 3):
        assert p_snr(x, np.full(100, constant)) == 0.0
        assert not periodogram(x, np.full(100, constant), FREQUENCIES).any()
    means = np.array([sum([0.1] * n) / n for n in range(1, 101)])
    assert np.ptp(means) > 0 and p_snr(x, means) == 0.0, "equal up to rounding"


def test_answers_that_vary_within_a_hash_value_alone_have_no_signal():
    x = np.repeat(np.random.default_rng(5).random(50), 2)
    assert p_snr(x, np.tile([0.0, 1.0], 50)) == 0.0


@pytest.mark.parametrize("n", [4, 16, 40, 100])
def test_evenly_spaced_hash_values(n):
    """At n cycles every cosine is 1, at n/2 every sine 0: there is nothing to fit, and nothing to divide by."""
    x = np.arange(n) / n
    y = np.random.default_rng(6).random(n)
    power = periodogram(x, y, 2 * math.pi * np.arange(0.5, 2 * n, 0.5))
    assert np.isfinite(power).all() and (power >= 0).all() and power.max() <= ((y - y.mean()) ** 2).sum() / 2
    assert math.isfinite(p_snr(x, y, 2 * math.pi * min(n / 2, 39)))


@given(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1 - 1e-16, 1.0]) | st.floats(0, 1), min_size=4, max_size=60),
    st.floats(1, 250),
    st.sampled_from([1e-150, 1.0, 1e150]),
    st.integers(0, 100),
)
@settings(max_examples=50, deadline=None)
def test_never_nan(x, frequency, scale, seed):
    y = scale * np.random.default_rng(seed).random(len(x))
    if len(set(x)) < 4:
        with pytest.raises(InvalidInputError, match="different hash values"):
            p_snr(x, y, frequency)
    else:
        assert 0 <= p_snr(x, y, frequency) < math.inf


X, Y = probes(50)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((X[:3], Y[:3]), "3 probes are too few"),
        (([], []), "0 probes are too few"),
        ((np.full(50, 0.3), Y), "only 1 different hash values"),
        ((np.tile([0.1, 0.2], 25), Y), "only 2 different"),
        ((X, Y[:-1]), "50 hash values, 49 answers"),
        ((X, np.where(Y > 0.5, np.nan, Y)), "target_probabilities holds NaN"),
        ((np.where(X > 0.5, np.inf, X), Y), "hash_values holds NaN or infinite"),
        ((X + 0.5, Y), r"must be in \[0, 1\]"),
        ((X - 0.5, Y), r"must be in \[0, 1\]"),
        ((X, np.stack([Y, Y])), "must be 1-dimensional"),
        ((X, ["a"] * 50), "array of numbers"),
        ((X, Y, 0.0), "frequency=0.0 must be a finite number above 0"),
        ((X, Y, math.nan), "frequency=nan"),
        ((X, Y, "16"), "frequency='16'"),
        ((X, Y, 300.0), "give a max_frequency well above"),
        ((X, Y, 0.01), "does not lie within"),
        ((X, Y, 16.0, -1.0), "max_frequency=-1.0"),
        ((X, Y, 16.0, 10.0), "does not lie within"),
        ((X, Y, 16.0, MAX_FREQUENCY, 0.0), "window=0.0"),
        ((X, Y, 16.0, MAX_FREQUENCY, 1e-9), "at least one point of the grid"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        p_snr(*arguments)
    assert isinstance(caught.value, DrwError) and isinstance(caught.value, ValueError)


def test_bad_counts_and_frequencies_are_named():
    with pytest.raises(InvalidInputError, match="counts must be above 0"):
        p_snr(X, Y, counts=np.zeros(50))
    with pytest.raises(InvalidInputError, match="49 counts"):
        p_snr(X, Y, counts=np.ones(49))
    with pytest.raises(InvalidInputError, match="frequencies must be finite and above 0"):
        periodogram(X, Y, [0.0, 1.0])
    with pytest.raises(InvalidInputError, match="2-dimensional"):
        p_snr_many(X, Y)


def test_no_error_shows_a_hash_value():
    for bad in (X + 0.5, np.where(X > 0.5, np.nan, X), X[:3], X[:, None]):
        with pytest.raises(InvalidInputError) as caught:
            p_snr(bad, Y)
        assert not any(f"{value:.3f}" in str(caught.value) for value in np.ravel(bad))
