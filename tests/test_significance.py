"""The exact law of T: against quadrature, against simulation, against importance sampling, and at its edges.

Every count of exceedances must lie in the 99.9 % interval of the binomial law; seeds are fixed.
"""

import itertools
import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.special
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig

from drw_hf import WatermarkKey
from drw_hf.detection.statistics import null_law
from drw_hf.detection.statistics.null_law import NullLaw, simulate_null
from drw_hf.detection.statistics.saddlepoint import ExactTest, corrected, tokens_needed
from drw_hf.errors import InvalidInputError
from drw_hf.keys.derivation import project
from drw_hf.keys.settings import MarkSettings
from exact_tests import exact_test, importance_check

FREQUENCY, TAU = 16.0, 0.5
LEVELS = (0.5, 0.05, 1e-2, 1e-3)
VECTORS = tuple(np.random.default_rng(128).random((2, 128)))


def shape_of(name, n=100, seed=0):
    """Amplitudes such as tests meet, and worse."""
    generator = np.random.default_rng(seed)
    A = {
        "normal": generator.standard_normal,
        "equal": lambda size: generator.choice([-1.0, 1.0], size),
        "skewed": lambda size: generator.exponential(1.0, size),
        "heavy tail": lambda size: generator.standard_t(2.0, size),
    }[name](n)
    return A - A.mean()


def laws():
    return pytest.mark.parametrize(
        "law", [{"law": "direct"}, {"law": "paper", "vectors": VECTORS}], ids=["direct", "paper"]
    )


def marked(frequency=FREQUENCY, tau=TAU, law="direct", vectors=None):
    return MarkSettings(frequency=frequency, tau=tau, law=law)


def value_at(null, log10_p):
    """T whose p-value is this."""
    middle = null.test(0.0)

    def excess(T):
        return null.test(T).log10_p - log10_p

    low, high = middle.mean - middle.sd, middle.mean + middle.sd
    while excess(high) > 0:
        low, high = high, high + middle.sd
    return scipy.optimize.brentq(excess, low, high, rtol=1e-9)


def is_binomial(count, n, p):
    low, high = scipy.stats.binom.interval(0.999, n, p)
    return low <= count <= high


# -- the cumulants


@pytest.mark.parametrize("frequency", [0.3, 3.0, 4 * math.pi, 16.0, 100.0])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (-1.0, 0.0), (0.7, -1.3)])
@pytest.mark.parametrize("theta", [0.0, 0.4, -7.0, 80.0, 450.0])
def test_cumulants_are_the_integral(frequency, a, b, theta):
    """K, K′ and K″ of one token against adaptive quadrature, cycle by cycle, to 1e-10."""

    def term(u):
        return -a * (1 - math.cos(frequency * u)) + b * (1 + math.cos(frequency * u))

    top = max(0.0, *(theta * term(u) for u in np.linspace(0.0, 1.0, 1001)))
    ends = np.append(np.arange(0.0, 1.0, math.pi / frequency / 4), 1.0)
    moments = [
        math.fsum(
            scipy.integrate.quad(lambda u, k=k: term(u) ** k * math.exp(theta * term(u) - top), *piece, epsabs=0)[0]
            for piece in itertools.pairwise(ends)
        )
        for k in range(3)
    ]
    tau = 0.3
    total = (1 - tau) * math.exp(-top) + tau * moments[0]
    mean, square = tau * moments[1] / total, tau * moments[2] / total
    K, K1, K2 = NullLaw([a], marked(frequency, tau), B=[b]).cumulants(theta)
    assert K == pytest.approx(math.log(total) + top, rel=1e-10, abs=1e-12)
    assert K1 == pytest.approx(mean, rel=1e-9, abs=1e-11)
    assert K2 == pytest.approx(square - mean**2, rel=1e-7, abs=1e-10)


@pytest.mark.parametrize("vectors", [VECTORS, ([1.0, -0.2, 0.4], [-0.9, 0.3, 0.1]), ([2.0, 0.1], [1.9, 0.2])])
def test_cumulants_of_the_papers_law_integrated_the_other_way_round(vectors):
    """The code conditions on the phase number; here a grid conditions on the selection number."""
    v_k, v_s = map(np.asarray, vectors)
    scale, tau = math.sqrt(len(v_k) / 3), 0.4
    rho = v_k @ v_s / np.linalg.norm(v_k) / np.linalg.norm(v_s)
    threshold = scipy.special.ndtri(tau) / (np.linalg.norm(v_s) / scale)
    x, w = np.polynomial.legendre.leggauss(150)
    select, rest = (threshold - 9) / 2 + (threshold + 9) / 2 * x, np.linspace(-9, 9, 1801)[:, None]
    density = np.exp(-(select**2 + rest**2) / 2) / (2 * math.pi) * w * (threshold + 9) / 2 * 0.01
    phase = scipy.special.ndtr((rho * select + math.sqrt(1 - rho**2) * rest) * np.linalg.norm(v_k) / scale)
    term = -0.8 * (1 - np.cos(FREQUENCY * phase)) + 0.3 * (1 + np.cos(FREQUENCY * phase))
    null = NullLaw([0.8], marked(tau=tau, law="paper"), B=[0.3], vectors=vectors)
    for theta in (0.5, -3.0, 40.0):
        expected = math.log(1 - density.sum() + np.sum(density * np.exp(theta * term)))
        assert null.cumulants(theta)[0] == pytest.approx(expected, rel=1e-7)


def test_every_quadrature_rule_holds_to_its_limit():
    """What the table of rules promises: 1e-12 at the largest exponent each is used for."""
    for frequency, law in [(16.0, "direct"), (16.0, "paper"), (0.5, "direct"), (120.0, "paper")]:
        hashes = NullLaw([1.0], marked(frequency, law=law), vectors=VECTORS).hashes
        finest = hashes.loss_rule(600)
        for size, limit in null_law._RULES:
            losses, weights = hashes.loss_rule(size)
            for x in (-limit, -limit / 3, limit / 3, limit):
                top = max(-x * finest[0].min(), -x * finest[0].max())
                value, exact = (np.sum(w * np.exp(-x * s - top)) for s, w in ((losses, weights), finest))
                assert value == pytest.approx(exact, rel=1e-12)


def test_the_direct_law_is_the_papers_with_unit_orthogonal_projections():
    A, T = shape_of("normal"), 40.0
    direct = NullLaw(A, marked()).test(T)
    paper = NullLaw(A, marked(law="paper"), vectors=([1.0, 0, 0], [0, 1.0, 0])).test(T)
    assert direct.log10_p == pytest.approx(paper.log10_p, rel=1e-10)


def test_parallel_vectors_select_by_the_phase_itself():
    """n = 1, or v_s = v_k: the selected tokens are those of the lowest phases."""
    A = shape_of("normal", 60)
    vectors = ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    phase = np.random.default_rng(3).random((20_000, 60))
    T = -((phase <= 0.3) * (1 - np.cos(FREQUENCY * phase))) @ A
    result = NullLaw(A, marked(tau=0.3, law="paper"), vectors=vectors).test(np.quantile(T, 0.99))
    assert is_binomial(200, 20_000, result.p_value)


# -- calibration


@laws()
@pytest.mark.parametrize("scope", ["predicted", "all"])
@pytest.mark.parametrize("shape", ["normal", "equal", "skewed", "heavy tail"])
def test_random_keys_reject_at_the_nominal_rate(shape, scope, law):
    """20,000 keys on fixed amplitudes, at 0.5, 0.05, 1e-2 and 1e-3: Lugannani-Rice nominal, Chernoff below."""
    A, n_keys = shape_of(shape), 20_000
    B = 0.7 * shape_of(shape, seed=1) if scope == "all" else None
    null = NullLaw(A, marked(**law), B=B, vectors=law.get("vectors"))
    T = simulate_null(A, marked(**law), n_keys, seed=2022, B=B, vectors=law.get("vectors"))
    for level in LEVELS:
        threshold = value_at(null, math.log10(level))
        assert is_binomial(np.sum(threshold <= T), n_keys, level), level
        assert null.test(threshold).p_bound >= level
    result = null.test(0.0)
    assert T.mean() == pytest.approx(result.mean, abs=4 * result.sd / math.sqrt(n_keys))
    assert T.std() == pytest.approx(result.sd, rel=0.03)


@pytest.mark.parametrize(("frequency", "tau"), [(2.0, 0.5), (16.0, 1.0), (16.0, 0.05), (60.0, 0.9)])
def test_other_frequencies_and_ratios_reject_at_the_nominal_rate(frequency, tau):
    A, n_keys = shape_of("normal"), 30_000
    null = NullLaw(A, marked(frequency, tau))
    T = simulate_null(A, marked(frequency, tau), n_keys, seed=5)
    for level in LEVELS:
        assert is_binomial(np.sum(value_at(null, math.log10(level)) <= T), n_keys, level)


def test_simulation_draws_what_the_papers_matrix_gives():
    """The bivariate normal law, against real projections of Gaussian rows with fixed vectors."""
    generator = np.random.default_rng(8)
    A = shape_of("normal", 40)
    vectors = tuple(generator.random((2, 12)))
    T = []
    for _ in range(3000):
        phase, selection = project(generator.standard_normal((40, 12)), *vectors)
        T.append(-A @ ((selection <= TAU) * (1 - np.cos(FREQUENCY * phase))))
    simulated = simulate_null(A, marked(law="paper"), 3000, seed=9, vectors=vectors)
    assert scipy.stats.ks_2samp(T, simulated).pvalue > 1e-3


@pytest.mark.parametrize("law", ["direct", "paper"])
def test_real_keys_of_innocents_give_uniform_p_values(law):
    """150 keys, derived as owners derive them, on amplitudes that know none of them."""
    A, token_ids = shape_of("heavy tail", 100), np.arange(3, 103)
    config = BertConfig(vocab_size=300, architectures=["BertForSequenceClassification"])
    p = []
    for index in range(150):
        key = WatermarkKey.generate(
            config,
            target=0,
            special_token_ids=[0, 1, 2],
            law=law,
            dimension=32,
            secret=index.to_bytes(32, "big"),
        )
        vectors = (key.v_k, key.v_s) if law == "paper" else None
        result = exact_test(A, *key.entries(token_ids), key.frequency, key.tau, law=law, vectors=vectors)
        p.append(result.p_value)
        assert result.p_bound >= result.p_value
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3


@laws()
@pytest.mark.parametrize("log10_p", [-2.0, -12.0, -30.0])
def test_importance_sampling_finds_the_same_p_value(law, log10_p):
    """Lugannani-Rice within 5 % of an estimate that shares nothing with it, give or take 4 standard errors."""
    A = shape_of("normal", 200)
    null = NullLaw(A, marked(**law), vectors=law.get("vectors"))
    T = value_at(null, log10_p)
    check = importance_check(A, T, marked(**law), seed=1, n_samples=6000, vectors=law.get("vectors"))
    assert check.relative_error < 0.06
    assert 10 ** (check.log10_p - log10_p) == pytest.approx(1.0, abs=0.05 + 4 * check.relative_error)
    assert check.log10_p < null.test(T).log10_bound


def test_importance_sampling_with_both_amplitudes():
    A, B = shape_of("heavy tail", 250), shape_of("normal", 250, seed=4)
    T = value_at(NullLaw(A, marked(), B=B), -12.0)
    check = importance_check(A, T, marked(), seed=1, n_samples=6000, B=B)
    assert 10 ** (check.log10_p + 12.0) == pytest.approx(1.0, abs=0.05 + 4 * check.relative_error)


amplitudes = st.lists(st.floats(-10, 10).filter(lambda a: a == 0 or abs(a) > 1e-3), min_size=1, max_size=12)


@given(
    A=amplitudes,
    tau=st.floats(0, 1),
    frequency=st.floats(0.1, 60),
    seed=st.integers(0, 2**31),
    law=st.sampled_from(["direct", "paper"]),
)
@settings(max_examples=60, deadline=None)
def test_the_bound_is_a_bound(A, tau, frequency, seed, law):
    """For whatever few amplitudes: finite numbers, p ≤ bound, and no more of 2,000 keys beyond T than the bound says
    (5 standard deviations: one false alarm in 10⁶ examples)."""
    T = simulate_null(A, marked(frequency, tau, law), 2001, seed, vectors=VECTORS)
    result = NullLaw(A, marked(frequency, tau, law), vectors=VECTORS).test(T[0])
    assert all(math.isfinite(number) for number in vars(result).values())
    assert 0 <= result.p_value <= 1 and result.p_value <= result.p_bound <= 1
    beyond = np.mean(T[1:] >= T[0] + 1e-9 * result.sd)
    assert beyond <= result.p_bound + 5 * math.sqrt(result.p_bound * (1 - result.p_bound) / 2000) + 1e-3


# -- symmetries and limits


@given(scale=st.floats(1e-6, 1e6), seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_a_positive_factor_changes_nothing(scale, seed):
    A, phase, selection = np.random.default_rng(seed).random((3, 40)) - [[0.5], [0.0], [0.0]]
    one, other = (exact_test(c * A, phase, selection, FREQUENCY, TAU) for c in (1.0, scale))
    assert other.statistic == pytest.approx(scale * one.statistic, abs=1e-9 * scale)
    for name in ("log10_p", "log10_bound", "z_score"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), rel=1e-6, abs=1e-7)


@laws()
@pytest.mark.parametrize("z", [0.0, 0.003, 0.5, 3.0, 5.0])
def test_the_lower_tail_mirrors_the_upper(law, z):
    """T of A as large as −T of −A is small: the two p-values add up to 1, their z are opposite."""
    A = shape_of("skewed")
    upper = NullLaw(A, marked(**law), vectors=law.get("vectors"))
    T = upper.test(0.0).mean + z * upper.test(0.0).sd
    one, other = upper.test(T), NullLaw(-A, marked(**law), vectors=law.get("vectors")).test(-T)
    assert one.p_value + other.p_value == pytest.approx(1.0, abs=2e-4)
    assert one.z_score == pytest.approx(-other.z_score, abs=1e-3)


@pytest.mark.parametrize("shape", ["normal", "skewed", "heavy tail"])
def test_p_falls_smoothly_through_the_mean(shape):
    null = NullLaw(shape_of(shape, 60), marked())
    middle = null.test(0.0)
    p = [null.test(middle.mean + z * middle.sd).p_value for z in np.linspace(-0.05, 0.05, 41)]
    steps = -np.diff(p)
    assert (steps > 0).all()
    assert steps == pytest.approx(np.full(40, 0.0025 / math.sqrt(2 * math.pi)), rel=0.25)


def test_below_the_mean_the_bound_is_one():
    result = NullLaw(shape_of("normal"), marked()).test(-30.0)
    assert result.p_bound == 1.0 and result.theta < 0 and result.p_value > 0.5 and result.z_score < 0


def test_extreme_z_scores_are_exact_where_p_underflows():
    A = shape_of("normal", 2000)
    null = NullLaw(A, marked())
    sd = null.test(0.0).sd
    for z in (-45.0, -8.0, 2.0, 8.0, 45.0):
        result = null.test(z * sd)
        assert math.isfinite(result.z_score) and result.z_score == pytest.approx(z, rel=0.3)
        if z > 0:
            log_p = scipy.special.log_ndtr(-result.z_score)
            assert log_p / math.log(10) == pytest.approx(result.log10_p, rel=1e-9)
    assert result.p_value == 0.0 and result.log10_p < -320 and result.log10_bound < -320


def test_t_at_the_end_of_its_reach():
    """All A > 0 and no token selected: T = 0 is the largest there is, with probability (1 − τ)ⁿ."""
    n, tau = 40, 0.3
    result = exact_test(np.linspace(1, 2, n), np.full(n, 0.5), np.ones(n), FREQUENCY, tau)
    assert result.statistic == 0.0
    assert result.log10_bound == pytest.approx(n * math.log10(1 - tau), rel=0.05)
    assert n * math.log10(1 - tau) <= result.log10_bound + 1e-9
    assert result.log10_p <= result.log10_bound


def test_t_beyond_reach_is_bounded_not_broken():
    null = NullLaw(shape_of("normal", 10), marked())
    result = null.test(1e6)
    assert result.log10_p == result.log10_bound < -100 and math.isfinite(result.z_score)


@pytest.mark.parametrize(
    ("A", "tau"), [([0.0, 0.0], 0.5), ([1.0, -1.0], 0.0)], ids=["no amplitude", "nothing selected"]
)
@laws()
def test_where_no_key_could_differ_nothing_is_said(A, tau, law):
    result = exact_test(A, [0.1, 0.7], [0.2, 0.9], FREQUENCY, tau, **law)
    assert (result.p_value, result.p_bound, result.z_score, result.statistic) == (1.0, 1.0, 0.0, 0.0)


def test_tau_one_selects_all():
    A, phase = shape_of("normal"), np.random.default_rng(6).random(100)
    result = exact_test(A, phase, np.random.default_rng(7).random(100), FREQUENCY, 1.0)
    assert result.statistic == pytest.approx(-A @ (1 - np.cos(FREQUENCY * phase)))
    assert result.sd == pytest.approx(
        np.linalg.norm(A) * np.std(np.cos(FREQUENCY * np.linspace(0, 1, 10**5))), rel=1e-3
    )


def test_a_mark_is_found_and_only_by_its_key():
    """Amplitudes made of noise and h itself: its key at 1e-20, others nowhere."""
    generator = np.random.default_rng(10)
    phase, selection = generator.random((2, 1000))
    h = -1.0 * (selection <= TAU) * (1 - np.cos(FREQUENCY * phase))
    A = generator.standard_normal(1000) + 0.5 * (h - h.mean())
    assert exact_test(A, phase, selection, FREQUENCY, TAU).p_bound < 1e-20
    wrong = [exact_test(A, *generator.random((2, 1000)), FREQUENCY, TAU).p_value for _ in range(200)]
    assert scipy.stats.kstest(wrong, "uniform").pvalue > 1e-3


def test_effective_number_of_tokens():
    assert NullLaw(np.array([1.0, -1.0] * 50), marked()).test(0.0).n_effective == pytest.approx(100)
    dominated = NullLaw(np.append(np.full(99, 1e-3), 10.0), marked()).test(0.0)
    assert dominated.n_effective < 1.1 and dominated.n_tokens == 100


# -- after the test


def test_corrections_multiply_and_stop_at_one():
    assert corrected(-5.0, keys_tried=100) == pytest.approx(-3.0)
    assert corrected(-5.0, 10, suspects_tested=10, looks=10) == pytest.approx(-2.0)
    assert corrected(-400.0, keys_tried=10) == pytest.approx(-399.0), "also where p underflows"
    assert corrected(-1.0, keys_tried=100) == 0.0
    for count in (0, -1, 1.5, True):
        with pytest.raises(InvalidInputError, match="keys_tried"):
            corrected(-5.0, keys_tried=count)


def test_tokens_needed_says_how_many_more_would_do():
    """Three times the same tokens is three times the evidence, and exactly what was asked for."""
    generator = np.random.default_rng(11)
    A, phase, selection = generator.standard_normal(100), *generator.random((2, 100))
    A -= 0.4 * (selection <= TAU) * (1 - np.cos(FREQUENCY * phase))
    A -= A.mean()
    once = exact_test(A, phase, selection, FREQUENCY, TAU)
    thrice = exact_test(np.tile(A, 3), np.tile(phase, 3), np.tile(selection, 3), FREQUENCY, TAU)
    assert thrice.log10_bound == pytest.approx(3 * once.log10_bound, rel=1e-6)
    assert tokens_needed(once, thrice.p_bound) == pytest.approx(3.0, rel=1e-6)
    assert tokens_needed(thrice, once.p_bound) < 1
    against = ExactTest(-1.0, -0.1, 0.0, -1.0, -0.1, 100, 80.0, 0.0, 1.0)
    assert tokens_needed(against, 1e-3) == math.inf
    with pytest.raises(InvalidInputError, match="level"):
        tokens_needed(once, 0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": [1.0, math.nan]}, "A holds NaN"),
        ({"A": []}, "A has no entries"),
        ({"A": [[1.0, 2.0]]}, "A must be 1-dimensional, but has shape"),
        ({"phase": [0.1]}, "phase has 1 entries; expected 2"),
        ({"B": [1.0, 2.0, 3.0]}, "B has 3 entries; expected 2"),
        ({"tau": 1.5}, "tau=1.5"),
        ({"tau": math.nan}, "tau=nan"),
        ({"frequency": 0.0}, "frequency=0.0"),
        ({"law": "uniform"}, "law='uniform'"),
        ({"law": "paper"}, "vectors="),
        ({"law": "paper", "vectors": ([0.0, 0.0], [1.0, 1.0])}, "zeros"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"A": [1.0, -1.0], "phase": [0.1, 0.7], "selection": [0.2, 0.9], "frequency": FREQUENCY, "tau": TAU}
    with pytest.raises(InvalidInputError, match=message):
        exact_test(**{**good, **change})
