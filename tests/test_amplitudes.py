"""Amplitudes: what they are made of, that they find a student, that they know no key, and what they refuse.

The students here are made by hand: a marked answer (Eq. 5) and noise, of the token and of the probe. Seeds are fixed.
"""

import dataclasses
import inspect
import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig

from drw_hf import WatermarkKey
from drw_hf.detection.statistics import amplitudes as module
from drw_hf.detection.statistics.amplitudes import STATISTIC, Amplitudes, SuspectAnswers, compute_amplitudes
from drw_hf.errors import InvalidInputError
from drw_hf.watermark.cosine import periodic_signal, perturb
from exact_tests import exact_test

TARGET, VOCAB = 1, 600


def make_key(index=0, **settings):
    config = BertConfig(vocab_size=VOCAB, architectures=["BertForTokenClassification"])
    secret = (1000 + index).to_bytes(32, "big")
    return WatermarkKey.generate(config, target=TARGET, special_token_ids=[0, 1, 2], secret=secret, **settings)


def amplitudes_of(token_ids, target, *, probabilities=None, target_scores=None, labels=None, **known):
    """The amplitudes of a suspect whose answers are given in one of three forms."""
    forms = {"probabilities": probabilities, "score": target_scores, "labels": labels}
    ((kind, values),) = [form for form in forms.items() if form[1] is not None]
    return compute_amplitudes(token_ids, target, SuspectAnswers(kind, values), **known)


class World:
    """A clean victim's probabilities, and the answers of a student of its protected form, on 5,000 probes."""

    def __init__(self, m=5, epsilon=0.2, scope="predicted", noise=0.7, seed=0, n=5000):
        generator = np.random.default_rng(seed)
        self.key = make_key(scope=scope)
        frequency = 1.0 / np.arange(1, VOCAB - 2) ** 0.7
        self.token_ids = 3 + generator.choice(VOCAB - 3, n, p=frequency / frequency.sum())
        token_logits = generator.standard_normal((VOCAB, m))
        token_logits[:, TARGET] += 4.0 * (generator.random(VOCAB) < 0.6)
        logits = 1.5 * (token_logits[self.token_ids] + generator.standard_normal((n, m)))
        clean = torch.softmax(torch.from_numpy(logits), dim=-1)
        phase, selection = (
            torch.from_numpy(table[self.token_ids]) for table in (self.key.phase_table, self.key.selection_table)
        )
        marked = (selection <= self.key.tau) & ((clean.argmax(dim=-1) == TARGET) | (scope == "all"))
        answers = perturb(clean, periodic_signal(phase, self.key.frequency), TARGET, epsilon).double()
        answers = torch.where(marked[:, None], answers, clean)
        of_token = generator.standard_normal((VOCAB, m))[self.token_ids]
        blur = torch.from_numpy(noise * (of_token + generator.standard_normal((n, m))))
        self.victim = clean.numpy()
        self.suspect = torch.softmax(answers.clamp_min(1e-8).log() + blur, dim=-1).numpy()
        self.innocent = torch.softmax(clean.log() + blur, dim=-1).numpy()
        cumulated = answers.numpy().cumsum(axis=1)
        drawn = (cumulated < generator.random((n, 1))).sum(axis=1).clip(max=m - 1)
        self.hard = np.where(marked.numpy(), drawn, self.victim.argmax(axis=1))
        # A student that follows another student of the clean victim in everything but the mark.
        self.reference = torch.softmax(clean.log() + 0.9 * blur, dim=-1).numpy()

    def forms(self, probabilities, labels):
        return {
            "probabilities-victim": {"probabilities": probabilities, "victim": self.victim},
            "probabilities-suspect": {"probabilities": probabilities},
            "probabilities-gold": {"probabilities": probabilities, "gold": self.victim.argmax(axis=1)},
            "score-victim": {"target_scores": probabilities[:, TARGET], "victim": self.victim},
            "score-suspect": {"target_scores": probabilities[:, TARGET]},
            "labels-victim": {"labels": labels, "victim": self.victim},
            "labels-suspect": {"labels": labels},
        }

    def test(self, found, key=None):
        key = key or self.key
        return exact_test(found.A, *key.entries(found.token_ids), key.frequency, key.tau, B=found.B)


def by_the_book(token_ids, y, regressors, logged=None, pieces=10):
    """``statistics.md`` written out: truncated powers, one token after the other."""
    tokens = sorted(set(token_ids.tolist()))
    rows = {token: np.flatnonzero(token_ids == token) for token in tokens}
    log_n = np.array([math.log(len(rows[token])) for token in token_ids.tolist()])
    columns = [np.ones(len(y))]
    for x in [*regressors, log_n]:
        columns.append(x)
        columns += [np.maximum(x - knot, 0.0) for knot in np.quantile(x, np.arange(1, pieces) / pieces)]
    design = np.stack(columns, axis=1)
    r = y - design @ np.linalg.lstsq(design, y, rcond=1e-12)[0]
    N, k = len(y), len(tokens)
    within = sum(np.sum((r[rows[t]] - r[rows[t]].mean()) ** 2) for t in tokens) / (N - k)
    between = sum(len(rows[t]) * (r[rows[t]].mean() - r.mean()) ** 2 for t in tokens) / (k - 1)
    n0 = (N - sum(len(rows[t]) ** 2 for t in tokens) / N) / (k - 1)
    kappa = max(0.0, (between - within) / n0 / within)
    weights, means = [], []
    for t in tokens:
        n_i = len(rows[t])
        N_i = n_i if logged is None else logged.get(t, 0)
        weights.append(n_i / (1 + kappa * n_i) * N_i / (N_i + 3))
        means.append(r[rows[t]].mean())
    weights, means = np.array(weights), np.array(means)
    return np.array(tokens), weights * (means - np.sum(weights * means) / weights.sum())


def log_of_others(p):
    return -np.log(np.maximum(np.delete(p, TARGET, axis=1), 1e-8)).mean(axis=1)


def logit(p):
    return np.log(np.maximum(p[:, TARGET], 1e-8)) - np.log(np.maximum(np.delete(p, TARGET, axis=1).sum(axis=1), 1e-8))


@pytest.fixture(scope="module")
def world():
    return World()


# -- the formula


def same_up_to_a_factor(found, expected):
    tokens, A = expected
    assert found.token_ids.tolist() == tokens.tolist()
    factor = found.A @ A / (A @ A)
    assert factor > 0
    np.testing.assert_allclose(found.A, factor * A, atol=1e-6 * np.abs(found.A).max())


def test_variant_a_is_the_formula(world):
    found = amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect, victim=world.victim)
    chosen = world.victim.argmax(axis=1) == TARGET
    q, p = world.suspect[chosen], world.victim[chosen]
    same_up_to_a_factor(found, by_the_book(world.token_ids[chosen], log_of_others(q), [logit(p), log_of_others(p)]))
    assert found.n_probes == chosen.sum() and found.statistic == STATISTIC and found.B is None


def test_variant_b_is_the_formula(world):
    found = amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect)
    chosen = world.suspect.argmax(axis=1) == TARGET
    same_up_to_a_factor(found, by_the_book(world.token_ids[chosen], log_of_others(world.suspect[chosen]), []))


def test_variant_c_is_the_formula(world):
    found = amplitudes_of(world.token_ids, TARGET, labels=world.hard, victim=world.victim)
    chosen = world.victim.argmax(axis=1) == TARGET
    y = (world.hard[chosen] == TARGET).astype(float)
    same_up_to_a_factor(found, by_the_book(world.token_ids[chosen], y, [logit(world.victim[chosen])]))


def test_with_two_classes_or_one_score_the_clipped_logit_is_used():
    world = World(m=2)
    chosen = world.victim.argmax(axis=1) == TARGET
    q, p = world.suspect[chosen], world.victim[chosen]
    y = np.clip(np.log(q[:, TARGET]) - np.log1p(-q[:, TARGET]), -9.2, 9.2)
    expected = by_the_book(world.token_ids[chosen], y, [logit(p)])
    same_up_to_a_factor(
        amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect, victim=world.victim), expected
    )
    score = world.suspect[:, TARGET]
    same_up_to_a_factor(amplitudes_of(world.token_ids, TARGET, target_scores=score, victim=world.victim), expected)


def test_reference_and_logged_counts_enter_the_formula(world):
    logged = {token: token % 7 for token in range(0, VOCAB, 2)}
    known = {"probabilities": world.suspect, "victim": world.victim, "reference": world.reference}
    found = amplitudes_of(world.token_ids, TARGET, **known, logged_counts=logged)
    chosen = world.victim.argmax(axis=1) == TARGET
    q, p, reference = world.suspect[chosen], world.victim[chosen], world.reference[chosen]
    regressors = [logit(p), log_of_others(p), log_of_others(reference)]
    same_up_to_a_factor(found, by_the_book(world.token_ids[chosen], log_of_others(q), regressors, logged))
    assert (found.A[found.token_ids % 2 == 1] == 0).all(), "tokens that were never queried have no weight"
    table = np.array([logged.get(token, 0) for token in range(VOCAB)])
    again = amplitudes_of(world.token_ids, TARGET, **known, logged_counts=table)
    assert (again.A == found.A).all()


def test_scope_all_adds_the_probes_that_are_not_the_target():
    world = World(scope="all")
    known = {"probabilities": world.suspect, "victim": world.victim}
    found = amplitudes_of(world.token_ids, TARGET, **known, scope="all")
    alone = amplitudes_of(world.token_ids, TARGET, **known)
    others = world.victim.argmax(axis=1) != TARGET
    y = np.log(np.maximum(world.suspect[others, TARGET], 1e-8))
    tokens, B = by_the_book(world.token_ids[others], y, [logit(world.victim[others])])
    at = np.searchsorted(found.token_ids, tokens)
    np.testing.assert_allclose(found.B[at] / np.linalg.norm(found.B), B / np.linalg.norm(B), atol=1e-7)
    assert found.A[np.searchsorted(found.token_ids, alone.token_ids)] == pytest.approx(alone.A)
    assert found.n_probes == len(world.token_ids)
    assert set(found.token_ids) == set(world.token_ids)


def test_amplitudes_add_up_to_zero_and_do_not_depend_on_the_order_of_probes(world):
    order = np.random.default_rng(1).permutation(len(world.token_ids))
    for known in world.forms(world.suspect, world.hard).values():
        found = amplitudes_of(world.token_ids, TARGET, **known, scope="all")
        shuffled = amplitudes_of(
            world.token_ids[order], TARGET, **{name: array[order] for name, array in known.items()}, scope="all"
        )
        for amplitude, again in ((found.A, shuffled.A), (found.B, shuffled.B)):
            assert abs(amplitude.sum()) <= 1e-9 * np.abs(amplitude).sum()
            np.testing.assert_allclose(again, amplitude, atol=1e-8 * np.abs(amplitude).max())


# -- few probes


def thinned(world, n_target, n_others=1000):
    """A world with few probes that are c*, as with many classes: tokens, suspect, innocent and victim."""
    is_target = world.victim.argmax(axis=1) == TARGET
    kept = np.concatenate([np.flatnonzero(is_target)[:n_target], np.flatnonzero(~is_target)[:n_others]])
    return world.token_ids[kept], world.suspect[kept], world.innocent[kept], world.victim[kept]


@pytest.mark.parametrize(("n_target", "pieces"), [(40, 1), (100, 2), (449, 9), (450, 10), (900, 10)])
def test_every_piece_of_a_spline_has_its_fifteen_probes(n_target, pieces):
    token_ids, q, _, p = (array[:n_target] for array in thinned(World(), n_target))
    found = amplitudes_of(token_ids, TARGET, probabilities=q, victim=p)
    assert found.n_probes == n_target
    same_up_to_a_factor(found, by_the_book(token_ids, log_of_others(q), [logit(p), log_of_others(p)], pieces=pieces))


def test_a_few_probes_of_the_target_do_not_outweigh_all_the_others():
    """Scope ``all``: both parts find at least what the part that is not c* finds alone; drw-exact-1 lost there."""
    gains = {"drw-exact-1": [], "drw-exact-2": []}
    for seed in range(8):
        world = World(m=20, scope="all", seed=seed, n=2500)
        token_ids, q, _, p = thinned(world, 30)
        for statistic, gained in gains.items():
            both = amplitudes_of(token_ids, TARGET, probabilities=q, victim=p, scope="all", statistic=statistic)
            others = dataclasses.replace(both, A=np.zeros_like(both.A))
            gained.append(world.test(both).z_score - world.test(others).z_score)
    assert min(gains["drw-exact-2"]) > -0.2 and np.mean(gains["drw-exact-2"]) > 0.3
    assert min(gains["drw-exact-1"]) < -0.5 and np.mean(gains["drw-exact-1"]) < np.mean(gains["drw-exact-2"]) - 0.2


def test_with_few_probes_too_an_innocent_student_gives_uniform_p_values():
    world = World(m=20, scope="all", n=2500)
    token_ids, _, q, p = thinned(world, 40)
    found = amplitudes_of(token_ids, TARGET, probabilities=q, victim=p, scope="all")
    p_values = [world.test(found, make_key(index)).p_value for index in range(100)]
    assert scipy.stats.kstest(p_values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("scope", ["predicted", "all"])
def test_with_many_probes_the_versions_differ_by_a_factor_alone(scope):
    world = World(scope=scope)
    for known in world.forms(world.suspect, world.hard).values():
        old, new = (
            amplitudes_of(world.token_ids, TARGET, **known, scope=scope, statistic=statistic)
            for statistic in ("drw-exact-1", "drw-exact-2")
        )
        assert (old.statistic, new.statistic) == ("drw-exact-1", "drw-exact-2")
        same_up_to_a_factor(new, (old.token_ids, old.A))
        assert world.test(new).z_score == pytest.approx(world.test(old).z_score, abs=0.05)


def test_where_the_fit_leaves_no_degrees_of_freedom_nothing_is_said(world):
    """Five probes against four coefficients: their spread cannot be known, so p is 1 (and the verdict undecided)."""
    chosen = np.flatnonzero(world.victim.argmax(axis=1) == TARGET)
    _, first = np.unique(world.token_ids[chosen], return_index=True)
    few = chosen[first[:5]]
    found = amplitudes_of(world.token_ids[few], TARGET, probabilities=world.suspect[few], victim=world.victim[few])
    assert found.flat and found.n_probes == 5 and world.test(found).p_value == 1.0


# -- the key


def test_nothing_here_can_see_a_key():
    """Validity rests on it: no parameter, no import and no global of the module has to do with keys."""
    names = set(inspect.signature(compute_amplitudes).parameters)
    assert names == {
        *("token_ids", "target", "suspect", "victim", "gold", "reference"),
        *("logged_counts", "scope", "statistic"),
    }
    source = inspect.getsource(module)
    imports = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert not any("key" in line or "watermark" in line for line in imports)


def test_answers_on_probes_that_do_not_count_change_nothing(world):
    known = {"victim": world.victim}
    found = amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect, **known)
    other = world.suspect.copy()
    other[world.victim.argmax(axis=1) != TARGET] = 0.2
    assert (amplitudes_of(world.token_ids, TARGET, probabilities=other, **known).A == found.A).all()


# -- finding a student


@pytest.mark.parametrize("scope", ["predicted", "all"])
@pytest.mark.parametrize(("epsilon", "m"), [(0.2, 5), (0.05, 5), (0.2, 2)])
def test_every_variant_finds_the_student_with_its_key_alone(epsilon, m, scope):
    world = World(m=m, epsilon=epsilon, scope=scope)
    for variant, known in world.forms(world.suspect, world.hard).items():
        found = amplitudes_of(world.token_ids, TARGET, **known, scope=scope)
        assert found.variant == variant
        result = world.test(found)
        weak = variant == "labels-suspect"  # nobody else's opinion, and one bit an answer
        assert result.p_bound < (0.1 if weak else 1e-6), (variant, result)
        wrong = [world.test(found, make_key(index)).p_value for index in range(1, 41)]
        assert min(wrong) > 1e-4, variant  # 40 keys: once in 250 runs by chance, and the seeds are fixed
        assert scipy.stats.kstest(wrong, "uniform").pvalue > 1e-3


def test_an_innocent_student_gives_uniform_p_values(world):
    for variant, known in world.forms(world.innocent, world.innocent.argmax(axis=1)).items():
        found = amplitudes_of(world.token_ids, TARGET, **known)
        p = [world.test(found, make_key(index)).p_value for index in range(100)]
        assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3, variant


def test_what_is_known_besides_sharpens_the_test():
    """The victim sharpens it, a reference student more, and both amplitudes of scope ``all`` more than one."""
    world = World(epsilon=0.02, scope="all")
    alone = world.test(amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect))
    known = {"probabilities": world.suspect, "victim": world.victim}
    victim = world.test(amplitudes_of(world.token_ids, TARGET, **known))
    reference = world.test(amplitudes_of(world.token_ids, TARGET, **known, reference=world.reference))
    both = world.test(amplitudes_of(world.token_ids, TARGET, **known, scope="all"))
    assert alone.z_score < victim.z_score < reference.z_score
    assert victim.z_score < both.z_score


# -- degenerate input


def test_a_suspect_that_says_what_the_victim_says_has_no_amplitude(world):
    """No noise out of rounding: the clean victim itself gets p = 1, and so does a suspect that answers all alike."""
    for known in (
        {"probabilities": world.victim, "victim": world.victim},
        {"labels": world.victim.argmax(axis=1), "victim": world.victim},
        {"probabilities": np.tile([0.1, 0.6, 0.1, 0.1, 0.1], (len(world.token_ids), 1))},
        {"target_scores": np.ones(len(world.token_ids))},
    ):
        found = amplitudes_of(world.token_ids, TARGET, **known)
        assert found.flat and world.test(found).p_value == 1.0
    assert not amplitudes_of(world.token_ids, TARGET, probabilities=world.suspect).flat


def test_probabilities_of_exactly_zero_and_one_are_taken(world):
    sharp = (world.suspect == world.suspect.max(axis=1, keepdims=True)).astype(float)
    victim = (world.victim == world.victim.max(axis=1, keepdims=True)).astype(np.float32)
    for known in world.forms(sharp, world.hard).values():
        if "victim" in known:
            known["victim"] = victim
        found = amplitudes_of(world.token_ids, TARGET, **known, scope="all")
        assert np.isfinite(found.A).all() and np.isfinite(found.B).all()


def test_tokens_that_occur_once_each_are_enough():
    generator = np.random.default_rng(2)
    q = generator.dirichlet([1, 3, 1], 400)
    found = amplitudes_of(np.arange(400), TARGET, probabilities=q)
    assert np.isfinite(found.A).all() and found.A.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 4}, "target=4 is none of the 3 classes"),
        ({"target": -1}, "target=-1"),
        ({"token_ids": np.arange(49)}, "shape"),
        ({"token_ids": np.linspace(0, 1, 50)}, "integers"),
        ({"probabilities": np.full((50, 3), math.nan)}, "NaN"),
        ({"probabilities": np.full((50, 3), 4.0)}, "not logits"),
        ({"probabilities": np.ones((50, 1))}, "m ≥ 2"),
        ({"victim": np.tile([0.4, 0.3, 0.3], (50, 1))}, "0 for which the clean victim predicts"),
        ({"gold": np.zeros(50, dtype=int)}, "0 for which the true label is"),
        ({"token_ids": np.zeros(50, dtype=int)}, "1 distinct tokens"),
        ({"token_ids": np.arange(50) % 3}, "probe with more text"),
        ({"logged_counts": {1000: 3}}, "logged queries"),
        ({"logged_counts": np.ones(10)}, "logged_counts has shape"),
        ({"logged_counts": -np.ones(50)}, "negative"),
        ({"scope": "some"}, "scope='some'"),
        ({"statistic": "drw-exact-0"}, "statistic='drw-exact-0'"),
    ],
)
def test_what_cannot_be_tested_is_refused_by_name(change, message):
    q = np.random.default_rng(3).dirichlet([1, 30, 1], 50)
    good = {"token_ids": np.arange(50), "target": TARGET, "probabilities": q}
    with pytest.raises(InvalidInputError, match=message):
        amplitudes_of(**{**good, **change})


@given(
    n=st.integers(0, 40),
    vocabulary=st.integers(1, 20),
    m=st.integers(2, 4),
    values=st.sampled_from([[0.0, 1.0], [0.0, 1e-12, 0.5, 1.0], None]),
    has_victim=st.booleans(),
    form=st.sampled_from(["probabilities", "target_scores", "labels"]),
    scope=st.sampled_from(["predicted", "all"]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=150, deadline=None)
def test_finite_amplitudes_or_a_named_refusal(n, vocabulary, m, values, has_victim, form, scope, seed):
    generator = np.random.default_rng(seed)

    def numbers():
        return generator.random((n, m)) if values is None else generator.choice(values, (n, m))

    q = numbers()
    answers = {"probabilities": q, "target_scores": q[:, 1], "labels": q.argmax(axis=1)}[form]
    victim = numbers() if has_victim else None
    token_ids = generator.integers(0, vocabulary, n)
    try:
        found = amplitudes_of(token_ids, TARGET, **{form: answers}, victim=victim, scope=scope)
    except InvalidInputError:
        return
    assert isinstance(found, Amplitudes) and len(found.A) == len(found.token_ids) >= 5
    assert np.isfinite(found.A).all() and (scope == "predicted" or np.isfinite(found.B).all())
