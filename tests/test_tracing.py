"""Who leaked, end to end: students that are really trained on what users of a ring were answered.

The always-on part has a small tagger, a student of one user, one of two, and one of hard labels of the mark tilt;
the full one is marked slow.
"""

import json

import datasets
import numpy as np
import pytest
from scipy import stats

from drw_hf import KeyRing, WatermarkKey, detect, identify
from drw_hf.detection import probe_suspect
from drw_hf.evidence import verify_evidence
from drw_hf.experiments import theft as scene
from drw_hf.experiments import tracing
from drw_hf.experiments.measurements import Measurement, uniformity
from drw_hf.experiments.tracing import SharedMatrix, leak, make_ring, search
from drw_hf.keys import UserProof, verify_proof

TAGGER = "token-classification"
USERS = [f"customer-{number}" for number in range(2000)]
ONE, TWO = ["customer-1234"], ["customer-77", "customer-1901"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracing")
    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    yield str(folder)
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="module")
def theft(folder):
    """A theft with less text than the experiments have."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene, "N_TRAIN", 1000)
        patch.setattr(scene, "N_UNSEEN", 800)
        return scene.make_theft.__wrapped__(TAGGER, folder)


@pytest.fixture(scope="module")
def ring(theft):
    return make_ring(theft, USERS)


@pytest.fixture(scope="module")
def found(theft, ring, folder):
    """The search for who is behind a student of one user."""
    return search(theft, ring, USERS, leak(theft, ring, ONE, folder), folder)


@pytest.fixture(scope="module")
def innocent(theft, ring, folder):
    """The same for a model that was trained on true labels."""
    model = scene.train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, seed=3, epochs=4)
    return search(theft, ring, USERS, model, folder)


# -- one user


def test_the_user_whose_answers_were_learned_is_named_among_thousands(found):
    assert found.verdict == "identified"
    assert [finding.user for finding in found.leakers] == ONE
    assert found.leakers[0].log10_corrected < -6 and found.leakers[0].declared
    assert found.committed and found.n_corrected == len(USERS)


def test_his_key_alone_finds_what_the_search_found(found, ring):
    alone = detect(found.probe, key=ring.key_for(*ONE))
    assert alone.z_score == pytest.approx(found.leakers[0].z_score, rel=1e-9)


def test_the_other_users_p_values_are_uniform(found):
    others = np.delete(found.p_values(), USERS.index(*ONE))
    assert stats.kstest(others, "uniform").pvalue > 1e-3
    assert np.mean(others <= 0.01) < 0.02


def test_nobody_is_named_for_an_innocent_model(innocent):
    assert innocent.leakers == [] and innocent.verdict != "identified"
    assert stats.kstest(innocent.p_values(), "uniform").pvalue > 1e-3


def test_the_finding_is_proven_to_others_with_one_users_key_and_without_the_master(found, ring, tmp_path):
    ring.key_for(*ONE).save_pretrained(tmp_path / "key", passphrase="for the court")
    proof = json.dumps(ring.prove(*ONE, USERS).to_dict())
    published = ring.commitment()
    # What the other side does:
    key = WatermarkKey.from_pretrained(tmp_path / "key", passphrase="for the court")
    assert verify_proof(UserProof.from_dict(json.loads(proof)), key, published)
    detect(found.probe, key=key, keys_tried=len(USERS)).save(tmp_path / "evidence.json")
    assert not verify_evidence(tmp_path / "evidence.json", key=key).failed


# -- declared or not


def test_a_ring_that_declared_nobody_names_the_leaker_and_says_what_is_missing(theft, found):
    ring = KeyRing.generate(theft.victim, tokenizer=theft.tokenizer, target="NNP", secret=tracing.SECRET)
    again = identify(found.probe, ring=ring, users=USERS, progress=False)
    assert [finding.user for finding in again.leakers] == ONE
    assert again.n_declared is None and again.leakers[0].declared is None and not again.committed
    assert "No users were declared beforehand" in again.explanation


def test_he_is_found_in_the_epoch_in_which_he_was_answered(theft, found):
    ring = make_ring(theft, USERS).rotate()
    assert identify(found.probe, ring=ring, users=USERS, progress=False).leakers == []
    assert identify(found.probe, ring=ring, users=USERS, epoch=0, progress=False).leakers == found.leakers


def test_a_leaker_who_was_not_declared_is_reported_as_such(theft, found):
    others = [user for user in USERS if user not in ONE]
    ring = make_ring(theft, others)
    again = identify(found.probe, ring=ring, users=USERS, declared_users=others, progress=False)
    assert [finding.user for finding in again.leakers] == ONE
    assert again.leakers[0].declared is False and not again.committed


def test_few_users_searched_are_corrected_for_all_declared(found, ring):
    few = identify(found.probe, ring=ring, users=ONE, progress=False)
    assert few.n_corrected == len(USERS)
    assert few.leakers[0].log10_corrected == pytest.approx(found.leakers[0].log10_corrected)


# -- several users


def test_two_users_who_pooled_their_answers_are_both_named(theft, ring, folder):
    pooled = search(theft, ring, USERS, leak(theft, ring, TWO, folder), folder)
    assert sorted(finding.user for finding in pooled.leakers) == sorted(TWO)


@pytest.mark.slow
def test_one_or_several_are_named_among_ten_thousand_and_nobody_else(folder):
    theft = scene.make_theft(TAGGER, folder)
    users = [f"user {number}" for number in range(10_000)]
    ring = make_ring(theft, users)
    for leakers in (["user 4711"], ["user 7", "user 9999"], ["user 1", "user 20", "user 300", "user 4000"]):
        found = search(theft, ring, users, leak(theft, ring, leakers, folder), folder)
        assert sorted(finding.user for finding in found.leakers) == leakers
        others = np.array([user not in leakers for user in users])
        assert stats.kstest(found.p_values()[others], "uniform").pvalue > 1e-3


# -- tilt


@pytest.fixture(scope="module")
def tilted(theft):
    """A ring of tilt, and a theft whose queries the victim was not trained on."""
    fresh = tracing.with_fresh_queries(theft)
    return fresh, make_ring(fresh, USERS, mark="tilt", strength=0.5, temperature=1.2)


def test_the_user_whose_hard_labels_were_learned_is_named_among_thousands(tilted, folder, tmp_path):
    theft, ring = tilted
    student = leak(theft, ring, ONE, folder, epochs=4, label_kind="hard")
    found = search(theft, ring, USERS, student, folder, theft.queries)
    assert [finding.user for finding in found.leakers] == ONE and found.leakers[0].declared and found.committed
    assert found.leakers[0].log10_corrected < -6 and found.statistic == "drw-tilt-1"
    others = np.delete(found.p_values(), USERS.index(*ONE))
    assert stats.kstest(others, "uniform").pvalue > 1e-3
    # By its labels alone, and with the key alone, which is all that others need:
    by_labels = identify(tracing.labels_of_probe(found), ring=ring, users=USERS, progress=False)
    assert [finding.user for finding in by_labels.leakers] == ONE and by_labels.variant == "labels-victim"
    key = ring.key_for(*ONE)
    assert verify_proof(ring.prove(*ONE, USERS), key, ring.commitment())
    alone = detect(found.probe, key=key, keys_tried=len(USERS))
    assert alone.log10_bound == pytest.approx(found.leakers[0].log10_corrected)
    alone.save(tmp_path / "evidence.json")
    assert not verify_evidence(tmp_path / "evidence.json", key=key).failed


def test_nobody_is_named_by_tilt_for_an_innocent_model(tilted, innocent):
    _, ring = tilted
    found = identify(innocent.probe, ring=ring, users=USERS, progress=False)
    assert found.leakers == [] and stats.kstest(found.p_values(), "uniform").pvalue > 1e-3


@pytest.mark.slow
def test_the_leaker_of_hard_labels_is_named_among_ten_thousand_and_nobody_else(folder):
    users = [f"user {number}" for number in range(10_000)]
    record = tracing.of_tilt(users, ["user 4711"], folder, seed=204)
    assert 0.0 < record["strength"] < 1.0 < record["temperature"]
    for where in ("unseen, scores", "queries, scores", "queries, labels"):
        assert record[where]["named"] == [True] and record[where]["innocents_named"] == 0
        assert record[where]["others"]["ks_p"] > 1e-3


# -- users who share the paper's matrix


def test_users_who_share_a_matrix_accuse_each_other(theft, folder):
    crowd = SharedMatrix(theft, centred=False)
    key = crowd.key_for(0)
    student = scene.steal(theft, theft.protected(key), folder)
    texts = theft.text(theft.unseen)
    probe = probe_suspect(student, texts, key=key, tokenizer=theft.tokenizer, victim=theft.victim, progress=False)
    true, *others = crowd.tests(probe, range(50))
    assert true.z_score == pytest.approx(detect(probe, key=key).z_score), "the test is the one of detect"
    assert np.median([test.p_value for test in others]) < 1e-3
    strangers = [SharedMatrix(theft, centred=False, seed=seed).tests(probe, [0])[0] for seed in range(1, 50)]
    assert stats.kstest([test.p_value for test in strangers], "uniform").pvalue > 1e-3, "with an M for each"


# -- the experiment


def test_uniformity_is_kolmogorov_and_smirnovs():
    values = np.random.default_rng(0).random(500)
    expected = stats.kstest(values, "uniform")
    found = uniformity(values)
    assert found["ks_distance"] == pytest.approx(expected.statistic)
    assert found["ks_p"] == pytest.approx(expected.pvalue, rel=0.05)
    assert uniformity(values**2)["ks_p"] < 1e-6


def test_the_experiment_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    measured = []

    def parts(*_):
        for name in ("first", "second"):
            yield Measurement({"part": name}, lambda name=name: measured.append(name) or {})

    monkeypatch.setattr(tracing, "parts", parts)
    output = tmp_path / "lines.jsonl"
    output.write_text('{"part": "first"}\n')
    monkeypatch.setattr("sys.argv", ["tracing", "--output", str(output)])
    tracing.main()
    assert measured == ["second"] and len(output.read_text().splitlines()) == 2


def test_the_tables_in_the_docs_follow_from_the_raw_lines(request):
    output = request.config.rootpath / "docs" / "results" / "tracing.jsonl"
    assert output.with_suffix(".md").read_text() == tracing.report(output)
