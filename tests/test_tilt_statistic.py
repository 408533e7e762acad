"""drw-tilt-1: the exact law, the amplitudes, and what detect, its evidence and its figure make of them.

The suspects are arrays made from the equations: one that learnt the mark but for noise, and one that never saw it.
"""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from transformers import BertConfig

from drw_hf import DetectionResult, WatermarkKey, detect, p_snr
from drw_hf.asking.words import Words
from drw_hf.detection import Probe, probe_suspect
from drw_hf.detection.statistics import SPECTRA
from drw_hf.detection.statistics.null_law import NullLaw
from drw_hf.detection.statistics.saddlepoint import ExactTest
from drw_hf.detection.statistics.spectra import MOST_PAIRS
from drw_hf.detection.statistics.tilt import TiltLaw, tilt_amplitudes_of
from drw_hf.detection.statistics.tilt_amplitudes import SHRINKAGE, _ridge, compute_tilt_amplitudes, weighted_by_log
from drw_hf.detection.verdict import Corrections, check_reference, compare, key_settings
from drw_hf.errors import InvalidInputError
from drw_hf.evidence import verify_evidence
from drw_hf.keys.settings import MarkSettings
from drw_hf.watermark import TiltSettings, tilt
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query
from needles import leaks_in

SENTENCES, TAGS = TASKS = ["sequence-classification", "token-classification"]
VOCABULARY, SPECIAL = 1500, [0, 1, 2, 3]
VECTORS = Path(__file__).parent / "vectors" / "tilt_amplitudes.json"


def make_key(task=TAGS, n_classes=4, **settings):
    names = {number: f"class {number}" for number in range(n_classes)}
    config = BertConfig(vocab_size=VOCABULARY, id2label=names, label2id={name: n for n, name in names.items()})
    settings = {"strength": 0.6, "temperature": 1.5, "secret": bytes(range(32)), **settings}
    return WatermarkKey.generate(config, mark="tilt", task=task, special_token_ids=SPECIAL, **settings)


def make_case(key, n_rows=300, noise=0.5, mark=True, seed=0):
    """Texts, the clean victim's answers, and those of a suspect that learnt what was served, give or take."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (n_rows, 12), generator=generator)
    ids[:, 0], ids[:, -1] = 2, 3
    shape = (n_rows, 12) if key.task == TAGS else (n_rows,)
    clean = 2.0 * torch.randn(*shape, key.num_labels, generator=generator)
    served = protect(clean, Query(ids, torch.ones_like(ids)), key, OutputOptions()) if mark else clean.log_softmax(-1)
    wobble = noise * torch.randn(*shape, key.num_labels, generator=generator)
    suspect = (served.clamp_min(-8.0) + wobble).softmax(-1)
    return [{"input_ids": row} for row in ids.tolist()], list(clean.softmax(-1).numpy()), list(suspect.numpy())


def make_probe(key, **options):
    rows, clean, suspect = make_case(key, **options)
    return probe_suspect(suspect, rows, key=key, victim=clean)


def as_labels(probe):
    return dataclasses.replace(
        probe, suspect=np.eye(probe.suspect.shape[1], dtype=np.float32)[probe.suspect.argmax(1)], kind="labels"
    )


@pytest.fixture(scope="module")
def key():
    return make_key()


@pytest.fixture(scope="module")
def probe(key):
    return make_probe(key)


@pytest.fixture(scope="module")
def innocent(key):
    return make_probe(key, mark=False, seed=1)


@pytest.fixture(scope="module")
def found(key, probe):
    return detect(probe, key=key, simulated_keys=200)


# -- the law


@pytest.mark.parametrize("tau", [1.0, 0.4])
def test_the_law_is_that_of_random_keys(tau):
    """Of 100,000 simulated keys the share beyond t is p(t), within 5 % and four standard errors."""
    A = np.random.default_rng(0).normal(size=(60, 3)) * np.random.default_rng(1).exponential(size=(60, 1))
    law = TiltLaw(A, TiltSettings(tau=tau))
    samples = law.simulate(100_000, seed=2)
    for share in (0.5, 0.1, 1e-2, 1e-3):
        t = np.quantile(samples, 1.0 - share)
        test = law.test(t)
        assert abs(test.p_value - share) < 0.05 * share + 4.0 * np.sqrt(share * (1.0 - share) / len(samples))
        assert test.p_bound >= test.p_value
    assert samples.mean() == pytest.approx(test.mean, abs=4.0 * test.sd / np.sqrt(len(samples)))
    assert samples.std() == pytest.approx(test.sd, rel=0.02)


def test_one_term_has_the_moments_of_the_cosine():
    test = TiltLaw(np.ones((1, 1)), TiltSettings(frequency=16.0)).test(0.0)
    assert test.mean == pytest.approx(-0.02545, abs=1e-5) and test.sd**2 == pytest.approx(1.0166, abs=1e-4)


@pytest.mark.parametrize("theta", [-3.0, 0.7, 12.0])
def test_the_cumulants_are_those_of_the_definition(theta):
    A = np.array([[0.8, -1.7, 0.0], [0.3, 0.0, 0.0]])

    def K(a):
        highest = abs(theta * a) * np.sqrt(2.0)
        whole = integrate.quad(
            lambda u: np.exp(theta * a * np.sqrt(2.0) * np.cos(16.0 * u) - highest), 0.0, 1.0, epsabs=0, limit=400
        )
        return np.log(whole[0]) + highest

    pairs = np.array([K(0.8), K(-1.7), K(0.3)])
    np.testing.assert_allclose(TiltLaw(A, TiltSettings()).cumulants(theta)[0], pairs, rtol=1e-9)
    halves = np.array([0.8, -1.7, 0.3]) / np.sqrt(2.0)
    papers = NullLaw(halves, MarkSettings(frequency=16.0, tau=1.0), B=halves)
    np.testing.assert_allclose(papers.terms(theta)[0], pairs, rtol=1e-9)
    words = np.log(0.7 + 0.3 * np.exp([pairs[0] + pairs[1], pairs[2]]))  # a word is selected with all its classes
    np.testing.assert_allclose(TiltLaw(A, TiltSettings(tau=0.3)).cumulants(theta)[0], words, rtol=1e-9)


@pytest.mark.parametrize("tau", [1.0, 0.4])
def test_the_derivatives_of_the_cumulants_are_derivatives(tau):
    law, h = TiltLaw(np.random.default_rng(0).normal(size=(7, 3)), TiltSettings(tau=tau)), 1e-4
    below, here, above = (law.cumulants(theta) for theta in (0.9 - h, 0.9, 0.9 + h))
    np.testing.assert_allclose((above[:2] - below[:2]) / (2 * h), here[1:], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("A", "tau"), [(np.zeros((6, 2)), 1.0), (np.zeros((6, 2)), 0.5), (np.ones((6, 2)), 0.0)])
def test_where_no_key_could_make_a_difference_p_is_1(A, tau):
    law = TiltLaw(A, TiltSettings(tau=tau))
    test = law.test(law.statistic(np.zeros((6, 2))))
    assert test.p_value == test.p_bound == 1.0 and not law.simulate(5, seed=0).any()


def test_effective_tokens_are_words_however_many_classes_they_move():
    test = TiltLaw(np.ones((50, 4)), TiltSettings()).test(0.0)
    assert test.n_tokens == 50 and test.n_effective == pytest.approx(50.0)


# -- words


@pytest.mark.parametrize("task", TASKS)
def test_the_words_of_a_probe_are_those_that_the_mark_moves_an_answer_by(task):
    """Σ share·s over a probe's words is the shift S of the mark, for pairs, repeated tokens and special ones."""
    key = make_key(task, n_classes=3, strength=1.0, temperature=1.0)
    texts = [[2, 7, 8, 7, 3], [2, 9, 9, 9, 3, 7, 9, 3], [2, 3], [2, 5, 6, 1, 8, 3]]
    types = [[0] * 5, [0] * 5 + [1] * 3, [0] * 2, [0] * 6]
    rows = [{"input_ids": ids, "token_type_ids": kinds} for ids, kinds in zip(texts, types, strict=True)]
    shapes = [(len(ids), 3) if task == TAGS else (3,) for ids in texts]
    probe = probe_suspect([np.full(shape, 1 / 3) for shape in shapes], rows, key=key)
    words = probe.words_of(key)
    shift = np.zeros((len(probe.suspect), 3))
    np.add.at(shift, words.probes, words.shares[:, None] * tilt.signals(key, words.token_ids))
    expected = []
    for ids, kinds, shape in zip(texts, types, shapes, strict=True):
        query = Query(torch.tensor([ids]), torch.ones(1, len(ids)), torch.tensor([kinds]))
        S = protect(torch.zeros(1, *shape), query, key, OutputOptions(digits=0))[0].numpy()  # but for log Z
        expected.append(S[~np.isin(ids, SPECIAL)] if task == TAGS else S[None])
    shift, expected = (S - S.mean(1, keepdims=True) for S in (shift, np.concatenate(expected)))
    np.testing.assert_allclose(shift, expected, atol=1e-6)
    if task == SENTENCES:
        found = {(p, t): share for p, t, share in zip(words.probes, words.token_ids, words.shares, strict=True)}
        distinct = [sorted({token for token in ids if token > 3}) for ids in texts]
        assert found == {(row, t): 1 / np.sqrt(len(ts)) for row, ts in enumerate(distinct) for t in ts}
        assert words.counts.tolist() == [2, 2, 0, 3]


def test_all_words_count_in_a_sentence_not_those_alone_that_carry_the_mark():
    """Else amplitudes would depend on the key."""
    one, other = make_key(SENTENCES, tau=0.5), make_key(SENTENCES, tau=0.5, secret=bytes(32))
    probe = make_probe(one, n_rows=30)
    for name in ("probes", "token_ids", "shares"):
        np.testing.assert_array_equal(getattr(probe.words_of(one), name), getattr(probe.words_of(other), name))


# -- amplitudes


def small_case(task):
    """Forty answers of three classes, by formulas."""
    item, c = np.arange(40)[:, None], np.arange(3)
    scores = [np.sin(1.3 * item + 2.1 * c + shift) * 2.0 for shift in (0.0, 0.4, 0.9)]
    victim, suspect, reference = (np.exp(each) / np.exp(each).sum(1, keepdims=True) for each in scores)
    if task == TAGS:
        words = Words(np.arange(40), 10 + np.arange(40) * 7 % 8, np.ones(40), 40)
    else:
        probes, tokens = np.repeat(np.arange(40), 3), 10 + (np.arange(40)[:, None] * 5 + [0, 1, 3]).ravel() % 9
        words = Words(probes, tokens, np.full(120, 1 / np.sqrt(3.0)), 40)
    return words, suspect, victim, reference


WAYS = {
    "probabilities-victim": ("probabilities", True, False),
    "probabilities-reference": ("probabilities", False, True),
    "probabilities-victim-reference": ("probabilities", True, True),
    "probabilities-suspect": ("probabilities", False, False),
    "labels-victim": ("labels", True, False),
    "labels-victim-reference": ("labels", True, True),
}


def small_amplitudes(task, way):
    words, suspect, victim, reference = small_case(task)
    kind, with_victim, with_reference = WAYS[way]
    others = {"victim": victim if with_victim else None, "reference": reference if with_reference else None}
    return compute_tilt_amplitudes(words, suspect, kind, temperature=1.5, **others)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("task", TASKS)
def test_amplitudes_are_what_they_were(task, way):
    """drw-tilt-1 is replayed for ever: a change of these numbers needs a new name."""
    frozen = json.loads(VECTORS.read_text())[f"{task} {way}"]
    found = small_amplitudes(task, way)
    assert found.variant == way and found.n_probes == 40 and found.token_ids.tolist() == frozen["token_ids"]
    np.testing.assert_allclose(found.A, frozen["A"], rtol=1e-8, atol=1e-10)


def test_the_ridge_regression_is_that_of_a_dense_solve():
    generator = np.random.default_rng(0)
    probes, columns = np.repeat(np.arange(30), 4), generator.integers(0, 12, 120)
    columns[:12] = np.arange(12)
    words = Words(probes, columns, generator.random(120), 30)
    r, weights = generator.normal(size=(30, 3)), generator.random((30, 3)) * (generator.random((30, 3)) < 0.7)
    weights[:, 2] = 0.0  # a class that never counts
    X = np.zeros((30, 12))
    np.add.at(X, (probes, columns), words.shares)
    W = weights / weights[weights > 0.0].mean()
    unit = np.sqrt((weights * r**2).sum() / weights.sum())
    dense = [
        np.linalg.solve(np.eye(12) + SHRINKAGE * (X.T * w) @ X, X.T @ (w * y) / unit)
        for w, y in zip(W.T, r.T, strict=True)
    ]
    np.testing.assert_allclose(_ridge(words, columns, r, weights), np.stack(dense, axis=1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_amplitudes_are_found_without_the_key(task, monkeypatch):
    key = make_key(task)
    probe = make_probe(key, n_rows=100)

    def refuse(*_):
        raise AssertionError("a table of the key was read")

    monkeypatch.setattr(WatermarkKey, "subkey", refuse)
    for kind in ("probabilities", "labels"):
        assert tilt_amplitudes_of(probe, key, kind).A.any()
    with pytest.raises(AssertionError, match="was read"):
        detect(probe, key=key)


@pytest.mark.parametrize("kind", ["probabilities", "labels"])
@pytest.mark.parametrize("task", TASKS)
def test_the_order_of_probes_does_not_matter(task, kind):
    words, suspect, victim, _ = small_case(task)
    order = np.random.default_rng(0).permutation(40)
    moved = Words(np.argsort(order)[words.probes], words.token_ids, words.shares, 40)
    one = compute_tilt_amplitudes(words, suspect, kind, temperature=1.5, victim=victim)
    other = compute_tilt_amplitudes(moved, suspect[order], kind, temperature=1.5, victim=victim[order])
    np.testing.assert_allclose(one.A, other.A, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("task", TASKS)
def test_a_constant_per_answer_is_no_log_odds_and_changes_nothing(task):
    words, suspect, victim, reference = small_case(task)
    scale = np.random.default_rng(0).uniform(0.1, 1.0, (40, 1))
    options = {"temperature": 1.5, "victim": victim, "reference": reference}
    one = compute_tilt_amplitudes(words, suspect, "probabilities", **options)
    other = compute_tilt_amplitudes(words, scale * suspect, "probabilities", **options)
    np.testing.assert_allclose(one.A, other.A, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 2.3])
@pytest.mark.parametrize("task", TASKS)
def test_a_suspect_that_is_the_victim_or_answers_all_alike_has_p_1(task, temperature):
    key = make_key(task, temperature=temperature)
    rows, clean, _ = make_case(key, n_rows=100)
    for suspect in (clean, [np.full_like(answer, 1 / key.num_labels) for answer in clean]):
        found = detect(suspect, rows, key=key, victim=clean)
        assert found.p_value == found.p_bound == 1.0 and found.z_score == 0.0 and found.p_snr == 0.0
        assert found.verdict == "undecided" or found.verdict == "not detected"


def test_words_that_were_never_queried_get_no_weight():
    words, suspect, victim, _ = small_case(TAGS)
    found = compute_tilt_amplitudes(words, suspect, "probabilities", temperature=1.5, victim=victim)
    counts = {int(token): n for n, token in enumerate(found.token_ids)}
    weighted = weighted_by_log(found, counts)
    n = np.arange(len(found.A))[:, None]
    np.testing.assert_allclose(weighted.A, found.A * n / (n + 3.0))
    with pytest.raises(InvalidInputError, match="none of the words is among the logged queries"):
        weighted_by_log(found, {0: 3})


# -- calibration, small and always on


@pytest.mark.parametrize(("task", "n_classes", "tau"), [(TAGS, 4, 0.6), (SENTENCES, 2, 1.0)])
def test_innocent_models_have_uniform_p_values(task, n_classes, tau):
    """1,000 really derived keys; the interval is that of 99.9 % of honest tests, and the seeds are fixed."""
    key = make_key(task, n_classes, tau=tau)
    probe = make_probe(key, n_rows=50 if task == TAGS else 120, seed=3)  # a student of one key is innocent of others
    found = [tilt_amplitudes_of(probe, key, kind) for kind in ("probabilities", "labels")]
    laws, tests = [TiltLaw(each.A, key.settings) for each in found], []
    for number in range(1000):
        other = make_key(task, n_classes, tau=tau, secret=(number + 1).to_bytes(32, "big"))
        s = tilt.signals(other, found[0].token_ids)
        tests.append([law.test(law.statistic(s)) for law in laws])
    for of_kind in zip(*tests, strict=True):
        for level in (0.5, 0.05, 0.01):
            low, high = stats.binom.interval(0.999, 1000, level)
            assert low <= sum(test.p_value <= level for test in of_kind) <= high
            assert sum(test.p_bound <= level for test in of_kind) <= high


# -- detect


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("task", TASKS)
def test_a_marked_suspect_is_detected_by_scores_and_by_labels_and_a_clean_one_is_not(task, n_classes):
    key = make_key(task, n_classes)
    n_rows = 300 if task == TAGS else 2500
    marked, clean = make_probe(key, n_rows=n_rows), make_probe(key, n_rows=n_rows, mark=False, seed=1)
    for probe in (marked, as_labels(marked)):
        result = detect(probe, key=key)
        assert result.verdict == "detected" and result.p_bound < 1e-6
        assert result.statistic == "drw-tilt-1" and result.variant == f"{probe.kind}-victim"
    for probe in (clean, as_labels(clean)):
        assert detect(probe, key=key).p_value > 1e-3


def test_labels_alone_stand_beside_scores_wherever_both_can_be_had(key, probe, found):
    labels = detect(as_labels(probe), key=key)
    assert found.beside["variant"] == labels.variant == "labels-victim" and labels.beside is None
    assert found.beside["z_score"] == labels.z_score and found.beside["log10_p"] == labels.log10_p
    assert f"labels alone, for comparison: z {labels.z_score:.1f}" in str(found)
    assert "show the key as well, as those of a model that learnt it do" in found.explanation
    without = detect(dataclasses.replace(probe, victim=None), key=key)
    assert without.beside is None and without.variant == "probabilities-suspect" and without.z_score > 2.0


def test_what_stands_beside_has_no_part_in_the_verdict(key, probe):
    """Scores of an unmarked model with the labels of a marked one: the verdict goes by the scores."""
    said = np.log(make_probe(key, mark=False, seed=0).suspect)
    best = probe.suspect.argmax(1)
    said[np.arange(len(said)), best] = said.max(1) + 1e-3
    erased = np.exp(said) / np.exp(said).sum(1, keepdims=True)
    result = detect(dataclasses.replace(probe, suspect=erased.astype(np.float32)), key=key)
    assert result.beside["z_score"] > result.z_score


@pytest.mark.parametrize(
    ("scores", "labels", "words"),
    [
        (22.0, 3.0, "far less of the key than its scores do, as where the signal was put onto"),
        (5.0, 23.0, "far more of the key than its scores do, as where scores were changed to erase"),
        (0.2, 9.0, "far more of the key"),
        (26.0, 11.0, "as those of a model that learnt it do"),
        (33.0, 57.0, "as those of a model that learnt it do"),
        (5.0, 1.6, "do not show the key by themselves; they tell less than scores"),
        (3.0, 5.0, "alone show the key by themselves"),
        (0.3, -0.8, "do not show the key either"),
    ],
)
def test_the_explanation_says_what_scores_and_labels_suggest_together(scores, labels, words):
    def test_of(z):
        log10_p = float(stats.norm.logsf(z) / np.log(10.0))
        moments = {"statistic": z, "theta": z, "n_tokens": 9, "n_effective": 9.0, "mean": 0.0, "sd": 1.0}
        return ExactTest(log10_p=log10_p, log10_bound=min(-(max(z, 0.0) ** 2) / 4.6, 0.0), z_score=z, **moments)

    said = compare(test_of(scores), test_of(labels), 1e-3, Corrections())
    assert words in said and said.startswith("Beside the test, and not part of it: ")


def test_a_reference_sharpens_the_test_and_stands_in_for_the_victim(key, probe):
    """Here the reference has half of what the suspect's noise is made of."""
    noise = np.random.default_rng(5).normal(size=probe.suspect.shape)
    clean, suspect = np.log(probe.victim), np.log(probe.suspect)
    arrays = {"suspect": np.exp(suspect + noise), "reference": np.exp(clean + noise)}
    arrays = {name: (p / p.sum(1, keepdims=True)).astype(np.float32) for name, p in arrays.items()}
    with_both = dataclasses.replace(probe, **arrays)
    both = detect(with_both, key=key)
    alone = detect(dataclasses.replace(with_both, reference=None), key=key)
    assert both.variant == "probabilities-victim-reference" and both.z_score > alone.z_score + 2.0
    instead = dataclasses.replace(with_both, victim=None)
    assert detect(instead, key=key).variant == "probabilities-reference"
    assert detect(as_labels(instead), key=key).variant == "labels-reference"


def leaning(key, probe, by):
    """What a model says that learnt so much of the mark, or if it is negative, its opposite."""
    shift = tilt.signals(key, probe.tokens_of(key)[0])
    moved = np.log(probe.victim) + by * shift + 0.3 * np.random.default_rng(7).normal(size=shift.shape)
    return torch.from_numpy(moved).softmax(-1).float().numpy()


def with_reference(probe, answers, way="scores"):
    """The probe with a reference that gives these scores, or their labels alone; with the victim, or without."""
    if way == "labels":
        answers = np.eye(answers.shape[1], dtype=np.float32)[answers.argmax(1)]
    return dataclasses.replace(probe, reference=answers, **({"victim": None} if way == "no victim" else {}))


@pytest.mark.parametrize("way", ["scores", "labels", "no victim"])
@pytest.mark.parametrize(
    ("by", "words"), [(0.9, "follows the key .* z = [0-9]"), (-0.9, "leans against .* z = -[0-9]")]
)
def test_a_reference_that_has_to_do_with_the_key_is_refused(key, innocent, by, words, way):
    """Else it would hide the mark, or find it in an innocent suspect."""
    crafted = with_reference(innocent, leaning(key, innocent, by), way)
    with pytest.raises(InvalidInputError, match=f"{words}.*clean model's.*leave reference= out"):
        detect(crafted, key=key)
    other_key = make_key(secret=bytes(32))
    assert detect(crafted, key=other_key).variant.endswith("reference")


@pytest.mark.parametrize("way", ["scores", "labels", "no victim"])
def test_a_reference_that_knows_nothing_of_the_key_is_taken(key, probe, way):
    result = detect(with_reference(probe, leaning(key, probe, 0.0), way), key=key)
    assert result.verdict == "detected" and result.variant.endswith("reference")


def test_a_reference_of_labels_alone_cannot_be_tested_without_the_victim(key, probe):
    labels = with_reference(probe, leaning(key, probe, 0.9), "labels")
    check_reference(dataclasses.replace(labels, victim=None), key)
    with pytest.raises(InvalidInputError, match="follows the key"):
        check_reference(labels, key)


def test_a_reference_is_no_matter_where_there_is_none_and_the_victim_is_a_fair_one(key, probe):
    check_reference(probe, key)
    check_reference(dataclasses.replace(probe, reference=probe.victim), key)


def test_evidence_that_rests_on_such_a_reference_does_not_replay(key, innocent, monkeypatch):
    crafted = with_reference(innocent, leaning(key, innocent, -0.9), "no victim")
    with monkeypatch.context() as patched:  # its owner has another program
        patched.setattr("drw_hf.detection.verdict.HIGHEST_Z_OF_A_REFERENCE", 1e9)
        result = detect(crafted, key=key)
    assert result.verdict == "detected", "an innocent suspect"
    failed, *_ = verify_evidence(result, key=key).failed
    assert failed.name == "the figures follow from the probe" and "leans against the key" in failed.detail


def test_counts_of_the_log_are_kept_and_change_what_is_found(key, probe, found):
    counts = {int(token): 1 for token in np.unique(probe.input_ids)[::2]}
    result = detect(probe, key=key, logged_counts=counts)
    assert result.z_score != found.z_score and result.n_tokens < found.n_tokens
    assert set(result.settings["logged_counts"].values()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "labels", "victim": None}, "pass the clean victim= .or reference="),
        ({"input_ids": 2}, "nothing but special tokens"),
        ({"input_ids": 9}, "hold 1 distinct words and a test needs 5"),
    ],
)
def test_where_there_is_nothing_to_test_it_says_why(key, probe, change, words):
    change = {n: np.full_like(probe.input_ids, v) if n == "input_ids" else v for n, v in change.items()}
    with pytest.raises(InvalidInputError, match=words):
        detect(dataclasses.replace(probe, **change), key=key)


def test_logged_labels_are_refused_where_none_were_drawn(key):
    rows, clean, suspect = make_case(key, n_rows=10)
    with pytest.raises(InvalidInputError, match="of the mark 'tilt' none are drawn"):
        detect(suspect, rows, key=key, victim=clean, logged=[[0] * 12] * 10)


# -- P_snr and the figure


def test_p_snr_is_of_the_amplitudes_over_the_keys_hash_of_word_and_class(key, probe, innocent, found):
    assert found.p_snr > 10.0 and found.p_snr_p_value == pytest.approx(1 / 201)
    assert found.settings["p_snr"] == "drw-psnr-tilt-1"
    assert found.p_snr == pytest.approx(p_snr(found.hash_values, found.target_values, key.frequency))
    peak = found.frequencies[int(np.argmax(found.powers))]
    assert abs(peak - key.frequency) < 0.5
    nothing = detect(innocent, key=key, simulated_keys=200)
    assert nothing.p_snr < 5.0 and nothing.p_snr_p_value > 0.01


def test_the_largest_amplitudes_are_taken_of_words_that_carry_the_mark():
    key = make_key(tau=0.5)
    probe = make_probe(key, n_rows=900)
    spectrum = SPECTRA.get("drw-psnr-tilt-1").spectrum(probe, key)
    found = tilt_amplitudes_of(probe, key, "probabilities")
    carrying = tilt.selected(key, found.token_ids)
    A = found.A[carrying]
    n = min(MOST_PAIRS, np.count_nonzero(A))
    assert len(spectrum.values) == len(spectrum.hashes) == n and 0 < n < found.A.size
    assert np.abs(spectrum.values).min() >= np.sort(np.abs(A), axis=None)[-n]
    where = {a: g for a, g in zip(A.ravel(), tilt.phases(key, found.token_ids[carrying]).ravel(), strict=True) if a}
    assert [where[value] for value in spectrum.values] == spectrum.hashes.tolist()


def test_evidence_keeps_no_more_pairs_than_that(monkeypatch, key, probe):
    monkeypatch.setattr("drw_hf.detection.statistics.spectra.MOST_PAIRS", 100)
    result = detect(probe, key=key)
    assert len(result.hash_values) == len(result.target_values) == 100 and result.p_snr > 10.0


def test_the_figure_says_what_it_shows(found, tmp_path):
    answers, spectrum, _ = found.plot(tmp_path / "finding.png").axes
    assert (tmp_path / "finding.png").stat().st_size > 10_000
    assert answers.get_ylabel() == "amplitude of a word and a class" and "every class" in answers.get_title()
    assert answers.get_xlabel() == "hash g(word, class)"
    (fitted,) = [line for line in answers.lines if line.get_label() == "fitted cosine"]
    low, high = answers.get_ylim()
    assert low < fitted.get_ydata().min() < 0.0 < fitted.get_ydata().max() < high
    assert np.ptp(fitted.get_ydata()) > 0.1 * (high - low), "the cosine is seen"
    assert f"P_snr = {found.p_snr:.1f}" in spectrum.get_title()


# -- evidence


def test_a_result_names_no_target_class_and_what_its_figures_depend_on(key, found):
    assert found.target_label == ""
    assert key_settings(key) == {
        "task": TAGS,
        "mark": "tilt",
        "tau": 1.0,
        "temperature": 1.5,
        "hash_rule": key.hash_rule.name,
    }
    assert "strength" not in found.settings and "class 0" not in repr(found)


@pytest.mark.parametrize("way", ["victim", "labels", "no victim", "reference", "counts"])
@pytest.mark.parametrize("task", TASKS)
def test_every_form_of_the_test_is_replayed(task, way, tmp_path):
    key, options = make_key(task), {}
    probe = make_probe(key, n_rows=80)
    if way == "labels":
        probe = as_labels(probe)
    elif way == "no victim":
        probe = dataclasses.replace(probe, victim=None)
    elif way == "reference":
        probe = dataclasses.replace(probe, reference=probe.victim[:, ::-1].copy())
    elif way == "counts":
        options = {"logged_counts": dict.fromkeys(range(4, VOCABULARY), 2), "simulated_keys": 10}
    result = detect(probe, key=key, looks=2, **options)
    result.save(tmp_path / "evidence.json")
    loaded = DetectionResult.load(tmp_path / "evidence.json")
    assert loaded == result and loaded.beside == result.beside
    replayed = verify_evidence(tmp_path / "evidence.json", key=key)
    assert not replayed.failed and len(replayed.open) == 2 + (way == "counts"), str(replayed)
    # special tokens and the commitment, and a log, which is its owner's word
    assert any("reference's answers" in sentence for sentence in replayed.not_checked) == (way == "reference")


@pytest.mark.parametrize("change", [{"z_score": 9.9}, {"variant": "labels"}, {"more": 1.0}, None])
def test_what_stands_beside_cannot_be_altered_not_even_by_the_holder_of_the_key(key, found, change):
    beside = None if change is None else {**found.beside, **change}
    replayed = verify_evidence(dataclasses.replace(found, beside=beside), key=key)
    assert any("beside" in check.detail for check in replayed.failed), str(replayed)


def test_rounding_beside_is_no_alteration(key, found):
    beside = {name: value * (1 + 1e-9) if name != "variant" else value for name, value in found.beside.items()}
    replayed = verify_evidence(dataclasses.replace(found, beside=beside), key=key)
    assert [check.name for check in replayed.failed] == ["the file is as the holder of the key saved it"]


def test_a_report_says_every_class_and_what_labels_alone_say(found, tmp_path):
    page = re.sub(r"\s+", " ", found.report(tmp_path / "full").read_text())
    assert "every class carries the mark" in page and "Calibration temperature of the model" in page
    assert f"z of its labels alone</th><td><bdi>{found.beside['z_score']:.2f}" in page
    assert "How far each word moves each class" in page and "It discloses the frequency and hash values" in page
    assert "Law of the hashes" not in page and ">Scope<" not in page


@pytest.mark.parametrize("beside", [{}, {"z_score": "high"}, {"z_score": float("nan")}, "high"])
def test_a_report_of_something_else_beside_is_refused(found, tmp_path, beside):
    with pytest.raises(InvalidInputError, match="beside of the result"):
        dataclasses.replace(found, beside=beside).report(tmp_path / "full")


def test_a_redacted_report_shows_nothing_of_the_key(key, found, tmp_path):
    found.report(tmp_path / "public", redact=True)
    contents = {path.name: path.read_bytes() for path in (tmp_path / "public").iterdir()}
    assert leaks_in(key, contents.items()) == []
    others = {"beside": None, "target_label": "x", "frequency": 5.0, "hash_values": [0.5], "target_values": [1.0]}
    settings = {**found.settings, "temperature": 9.0, "tau": 0.1, "mark": "other"}
    altered = dataclasses.replace(found, **others, settings=settings, explanation="x", p_snr=1.0)
    altered.report(tmp_path / "altered", redact=True)
    assert contents == {path.name: path.read_bytes() for path in (tmp_path / "altered").iterdir()}


def test_a_probe_keeps_its_reference(probe, tmp_path):
    with_reference = dataclasses.replace(probe, reference=probe.victim)
    with_reference.save(tmp_path / "probe.npz")
    loaded = Probe.load(tmp_path / "probe.npz")
    np.testing.assert_array_equal(loaded.reference, probe.victim)
    assert loaded.digest() == with_reference.digest() != probe.digest()
