"""identify: whose mark is it, among many users; exact for those who matter, fast for the others.

The suspects are arrays, or callables, that answer as the victim marked for some user, give or take. Really trained
students are elsewhere.
"""

import dataclasses
import json
import math
import sys
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, PreTrainedTokenizerFast

from drw_hf import WatermarkKey, detect
from drw_hf.detection import probe_suspect
from drw_hf.detection.statistics.null_law import NullLaw
from drw_hf.detection.statistics.saddlepoint import ExactTest
from drw_hf.detection.statistics.tilt_amplitudes import TiltAmplitudes
from drw_hf.detection.verdict import Corrections
from drw_hf.errors import InvalidInputError, KeyMismatchError
from drw_hf.keys.ring import KeyRing
from drw_hf.tracing import Identification, identify, laws
from drw_hf.tracing.laws import TiltUserLaw
from drw_hf.tracing.naming import holm, judge_users
from drw_hf.tracing.screening import Screen, TiltScreen, UserScreen, last_selected
from drw_hf.tracing.users import SeenUsers
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tilt import signals
from drw_hf.watermark.tokens import Query
from small_models import TAGS
from test_detect import SPECIAL, VOCABULARY, make_case

USERS = [f"user-{number}" for number in range(2000)]
TILT = {"mark": "tilt", "strength": 0.4, "temperature": 1.3}
MARKS = {"cosine": {}, "tilt": TILT, "tilt, half of the words": {**TILT, "tau": 0.5}}


def make_ring(task="token-classification", **settings):
    labels = TAGS if task == "token-classification" else ["negative", "positive"]
    config = BertConfig(
        vocab_size=VOCABULARY, id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)}
    )
    usual = {"secret": bytes(range(32)), "special_token_ids": SPECIAL, "task": task}
    if settings.get("mark") != "tilt":
        usual["target"] = 1
    return KeyRing.generate(config, **{**usual, **settings})


def make_probe(ring, *leakers, n_rows=150, epoch=None, **settings):
    """What a suspect says that was trained on the answers of these users, to equal parts; an innocent one for none."""
    keys = [ring.key_for(user, epoch) for user in leakers]
    cases = [make_case(key, n_rows, **settings) for key in keys]
    rows, clean, answers, _ = cases[0] if cases else make_case(ring.template(), n_rows, mark=False, **settings)
    if len(cases) > 1:
        answers = [np.mean(row, axis=0) for row in zip(*(case[2] for case in cases), strict=True)]
    return probe_suspect(answers, rows, key=ring.template(), victim=clean)


def search(probe, ring, users=USERS, **settings):
    return identify(probe, ring=ring, users=users, **{"progress": False, **settings})


@pytest.fixture(scope="module")
def ring():
    return make_ring()


@pytest.fixture(scope="module")
def probe(ring):
    """Of a student of user-1234."""
    return make_probe(ring, "user-1234")


@pytest.fixture(scope="module", params=MARKS)
def marked(request):
    """A ring of each mark, and the probe of a student of user-1234."""
    ring = make_ring(**MARKS[request.param])
    return ring, make_probe(ring, "user-1234", n_rows=150 if request.param == "cosine" else 60)


@pytest.fixture(scope="module")
def innocent(ring):
    return make_probe(ring)


# -- exactness


@pytest.mark.parametrize(
    "task, settings",
    [
        ("token-classification", {"scope": "predicted"}),
        ("token-classification", {"scope": "all"}),
        ("sequence-classification", {"scope": "predicted", "hash_rule": "second"}),
        ("sequence-classification", {"scope": "predicted", "hash_rule": "rarest"}),
        ("sequence-classification", {"scope": "all", "hash_rule": "keyed"}),
        ("token-classification", TILT),
        ("token-classification", {**TILT, "tau": 0.5}),
        ("sequence-classification", {**TILT, "strength": 1.0}),
    ],
)
def test_every_user_gets_the_p_value_that_detect_gives_for_his_key(task, settings):
    ring = make_ring(task, **settings)
    users = USERS[:200]
    probe = make_probe(ring, "user-7", n_rows=60 if task == "token-classification" else 600)
    found = search(probe, ring, users, top=len(users))
    assert found.leakers[0].user == "user-7" and len(found.ranking) == len(users)
    by_name = {finding.user: finding for finding in found.ranking}
    for user in users[:8]:
        alone = detect(probe, key=ring.key_for(user))
        finding = by_name[user]
        assert (finding.log10_p, finding.log10_bound) == (alone.log10_p, alone.log10_bound), "to the last bit"
        assert finding.z_score == alone.z_score
        assert (found.n_tokens, found.n_probes, found.variant) == (alone.n_tokens, alone.n_probes, alone.variant)
    # The other users' p-values come from the same law of T and their own entries, as detect's do.
    assert [f.log10_p for f in found.ranking] == sorted(f.log10_p for f in found.ranking)
    place = {user: number for number, user in enumerate(users)}
    exact = np.array([by_name[user].log10_p for user in users])
    np.testing.assert_allclose(found.log10_p_values, exact, atol=1e-3, rtol=1e-3)
    few = search(probe, ring, users, top=1)  # now all others' come from their scores alone
    others = np.array([place[user] for user in users if user not in {f.user for f in few.leakers}])
    np.testing.assert_allclose(few.p_values()[others], 10.0 ** exact[others], rtol=5e-3)


@pytest.mark.parametrize("settings", [TILT, {**TILT, "tau": 0.5}, {**TILT, "frequency": 3.0}])
@pytest.mark.parametrize("level", [0.3, 1e-3, 1e-9])
def test_nobody_who_could_be_named_is_below_the_least_statistic(settings, level):
    ring = make_ring(**settings)
    law = laws.law_for(make_probe(ring, "user-3", n_rows=10), ring.template())
    least = law.least_statistic(level)
    assert math.log10(level) < law.null.test(least).log10_bound < 0.98 * math.log10(level)
    assert law.null.test(law.enough(level)).log10_bound <= math.log10(level)


def test_all_p_values_are_close_to_the_exact_ones_and_the_result_says_how_close(marked):
    ring, probe = marked
    found = search(probe, ring, top=1)
    exact = np.array([detect(probe, key=ring.key_for(user)).z_score for user in USERS[:30]])
    z = stats.norm.isf(found.p_values()[:30])
    assert np.abs(z - exact).max() <= found.settings["screening_error"] + 1e-3
    assert found.settings["screening_error"] < 0.02


def test_results_do_not_depend_on_chunks_order_or_device(marked):
    ring, probe = marked
    users = USERS[1000:1400]
    found = search(probe, ring, users)
    for settings in ({"chunk_size": 1}, {"chunk_size": 7}, {"device": "cpu"}):
        again = search(probe, ring, users, **settings)
        assert again.leakers == found.leakers and again.ranking == found.ranking
        if "device" not in settings:
            np.testing.assert_array_equal(again.log10_p_values, found.log10_p_values)
        np.testing.assert_allclose(again.p_values(), found.p_values(), rtol=1e-2)
    backwards = search(probe, ring, users[::-1])
    assert backwards.ranking == found.ranking
    np.testing.assert_array_equal(backwards.log10_p_values[::-1], found.log10_p_values)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_graphics_card_finds_the_same(ring, probe):
    assert search(probe, ring, device="cuda").ranking == search(probe, ring).ranking


@given(st.one_of(st.floats(0, 1), st.integers(0, 2**53).map(lambda i: i * 2.0**-53)))
def test_selection_by_integers_is_selection_by_hashes(tau):
    last = int(last_selected(tau))
    assert (last >> 11) * 2.0**-53 <= tau
    if last < 2**64 - 1:
        assert ((last + 1) >> 11) * 2.0**-53 > tau


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("frequency, tau", [(16.0, 0.5), (250.0, 1.0), (0.3, 0.0), (1e5, 0.9)])
@pytest.mark.parametrize("with_B", [False, True])
def test_no_score_is_further_from_the_statistic_than_the_screen_says(device, frequency, tau, with_B):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 300)) ** 3
    B = B if with_B else None
    token_ids = np.sort(rng.choice(VOCABULARY, 300, replace=False))
    settings = SimpleNamespace(frequency=frequency, tau=tau, law="direct")  # also finer than a key may be
    null = NullLaw(A, settings, B=B)
    screen = Screen(token_ids, A, B, frequency, tau, device)
    ring, users = make_ring(), USERS[:200]
    exact = np.array([null.statistic(*ring.key_for(user).entries(token_ids)) for user in users])
    scores = screen.scores(ring.table_keys(users))
    assert np.abs(scores - exact).max() <= screen.error
    assert len(screen.scores([])) == 0
    if (frequency, tau) == (16.0, 0.5):
        assert screen.error < 0.05 * exact.std()


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("frequency, tau", [(16.0, 1.0), (16.0, 0.5), (250.0, 0.9), (3.0, 0.0)])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_no_score_of_tilt_is_further_from_the_statistic_than_the_screen_says(device, frequency, tau, n_classes):
    rng = np.random.default_rng(0)
    token_ids = np.sort(rng.choice(np.arange(4, VOCABULARY), 300, replace=False))
    A = rng.standard_normal((300, n_classes)) ** 3 * (rng.random((300, n_classes)) < 0.6)  # some have no amplitude
    labels = [str(number) for number in range(n_classes)]
    config = BertConfig(vocab_size=VOCABULARY, id2label=dict(enumerate(labels)))
    settings = {"mark": "tilt", "temperature": 1.0, "frequency": frequency, "tau": tau}
    ring = KeyRing.generate(config, task="token-classification", special_token_ids=SPECIAL, **settings)
    law = TiltUserLaw(TiltAmplitudes(token_ids, A, 900, ""), ring.template(), "drw-tilt-1", device)
    users = USERS[:60]
    exact = np.array([law.exact(ring.key_for(user)) for user in users])
    scores = law.screen.scores(*(ring.table_keys(users, domain=domain) for domain in law.domains))
    assert np.abs(scores - exact).max() <= law.screen.error
    if frequency == 16.0:
        assert law.screen.error < 0.05 * exact.std()
    assert len(law.screen.scores(*([] for _ in law.domains))) == 0


def test_scores_that_say_nothing_cost_time_and_not_exactness(ring, probe, monkeypatch):
    """The screen may be as coarse as it likes, if only it says so: then everybody is tested exactly."""
    expected = search(probe, ring, USERS[1200:1300])
    real = Screen.__init__

    def coarse(self, *arguments):
        real(self, *arguments)
        self.error = 1e9

    monkeypatch.setattr(Screen, "__init__", coarse)
    monkeypatch.setattr(Screen, "scores", lambda self, keys: np.arange(len(keys), dtype=float))
    found = search(probe, ring, USERS[1200:1300], chunk_size=9)
    assert found.leakers == expected.leakers and found.ranking == expected.ranking


# -- who it was


def test_one_leaker_is_found_among_two_thousand(marked):
    ring, probe = marked
    found = search(probe, ring)
    assert found.verdict == "identified" and [finding.user for finding in found.leakers] == ["user-1234"]
    assert found.leakers[0].p_corrected < 1e-6 and found.ranking[0] == found.leakers[0] and len(found.ranking) == 20
    assert "'user-1234'" in found.explanation and found.tokens_needed is None
    assert str(found).startswith("identified: user-1234 (z ")


def test_a_student_that_gives_labels_alone_is_traced_by_tilt_and_needs_the_victim():
    ring = make_ring(**TILT)
    rows, clean, _, served = make_case(ring.key_for("user-7"), label_kind="hard", noise=0.0)
    labels = list(torch.nn.functional.one_hot(served.argmax(-1), 4).float().numpy())
    found = search(probe_suspect(labels, rows, key=ring.template(), victim=clean), ring)
    assert [finding.user for finding in found.leakers] == ["user-7"] and found.variant == "labels-victim"
    assert found.statistic == "drw-tilt-1" and found.settings["target_label"] == ""
    with pytest.raises(InvalidInputError, match="victim="):
        search(probe_suspect(labels, rows, key=ring.template()), ring)


def test_a_reference_stands_in_for_the_victim(marked):
    ring, probe = marked
    rows, clean, answers, _ = make_case(ring.key_for("user-7"), 100)
    found = identify(answers, rows, ring=ring, users=USERS, reference=clean, progress=False)
    assert [finding.user for finding in found.leakers] == ["user-7"] and found.probe.reference is not None
    with pytest.raises(InvalidInputError, match="leave them out"):
        search(probe, ring, reference=clean)


def test_nobody_is_named_by_a_reference_that_leans_against_their_key():
    """Here the suspect is innocent, and the reference accuses user-7."""
    ring = make_ring(**TILT)
    rows, clean, answers, _ = make_case(ring.template(), 150, mark=False)
    signal = [3.0 * signals(ring.key_for("user-7"), row["input_ids"]) for row in rows]
    against = [p * np.exp(-s) for p, s in zip(clean, signal, strict=True)]
    against = [p / p.sum(-1, keepdims=True) for p in against]
    options = {"ring": ring, "reference": against, "progress": False}
    with pytest.raises(InvalidInputError, match=r"leans against the key .* leave reference= out") as caught:
        identify(answers, rows, users=USERS, **options)
    assert ring.key_for("user-7").fingerprint in str(caught.value)
    assert identify(answers, rows, users=USERS[8:], **options).leakers == [], "the others are not concerned"


def test_two_leakers_are_both_named(ring):
    found = search(make_probe(ring, "user-3", "user-1999", n_rows=300), ring)
    assert {finding.user for finding in found.leakers} == {"user-3", "user-1999"}
    corrected = [finding.log10_corrected for finding in found.leakers]
    assert corrected == sorted(corrected) and corrected[-1] <= -3


def test_more_leakers_than_are_ranked_are_all_named(ring):
    leakers = ["user-3", "user-4", "user-5"]
    found = search(make_probe(ring, *leakers, n_rows=300), ring, USERS[:50], top=1)
    assert {finding.user for finding in found.leakers} == set(leakers) and len(found.ranking) == 1
    table = found.to_frame()
    assert set(table["user"]) == set(leakers) and table["named"].all(), "they are all in the table"


def test_a_table_has_a_row_for_every_ranked_user(ring, probe):
    found = search(probe, ring, USERS[:50])
    table = found.to_frame()
    assert table["user"].tolist() == [one.user for one in found.ranking]
    assert table["named"].sum() == len(found.leakers) and table["z_score"].is_monotonic_decreasing
    assert table["p_corrected"].tolist() == [one.p_corrected for one in found.ranking]


def test_nobody_is_named_for_an_innocent_suspect(marked):
    ring, _ = marked
    found = search(make_probe(ring, n_rows=400 if ring.settings.mark == "cosine" else 150), ring)
    assert found.verdict == "nobody" and found.leakers == [] and "2,000 users" in found.explanation
    assert found.ranking[0].p_corrected > 1e-3 and str(found).startswith("nobody: 2,000 users searched")


def test_the_leaker_is_nobody_when_he_is_not_searched(ring, probe):
    assert search(probe, ring, USERS[:1000]).leakers == []


@pytest.mark.parametrize("mark", ["cosine", "tilt"])
def test_p_values_of_other_users_are_uniform(mark):
    """20,000 users who leaked nothing, at a binomial and a KS test of level 1e-4; the names are fixed."""
    ring = make_ring(**MARKS[mark])
    found = search(
        make_probe(ring, n_rows=150 if mark == "cosine" else 40),
        ring,
        (f"customer {number}" for number in range(20_000)),
    )
    values = found.p_values()
    assert found.leakers == [] and values.shape == (20_000,)
    for level in (1e-1, 1e-2, 1e-3):
        low, high = stats.binom.ppf([5e-5, 1 - 5e-5], len(values), level)
        assert low <= (values <= level).sum() <= high
    assert stats.kstest(values, "uniform").pvalue > 1e-4


def test_a_suspect_that_answers_is_asked_once_and_identified(tmp_path):
    """A callable that answers every word as the victim, marked for one user, would."""
    words = [f"w{number}" for number in range(VOCABULARY - len(SPECIAL))]
    vocabulary = {name: number for number, name in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **special)
    ring = make_ring(tokenizer=tokenizer, special_token_ids=None)
    rng = np.random.default_rng(0)
    clean = torch.from_numpy(rng.standard_normal((VOCABULARY, 4)) + np.array([0.0, 3.0, 0.0, 0.0]))
    key = ring.key_for("ann")
    ids = torch.arange(VOCABULARY)[None]
    marked = protect(clean[None], Query(ids, torch.ones_like(ids)), key, OutputOptions())[0].exp()
    asked = []

    def answering_as(table):
        def answer(texts):
            asked.append(len(texts))
            return [[dict(zip(TAGS, table[vocabulary[w]].tolist(), strict=True)) for w in text] for text in texts]

        return answer

    texts = [list(rng.choice(words, 10)) for _ in range(200)]
    settings = {"ring": ring, "tokenizer": tokenizer, "users": ["ben", "ann", "cem"], "progress": False}
    suspect, victim = answering_as(marked), answering_as(clean.softmax(-1))
    probing = {"max_queries": 150, "batch_size": 50, "cache_dir": tmp_path}
    found = identify(suspect, texts, victim=victim, **probing, **settings)
    assert [finding.user for finding in found.leakers] == ["ann"] and found.n_queries == 150
    assert sum(asked) == 300  # suspect and victim, once each
    assert identify(found.probe, **settings).ranking == found.ranking


def test_a_rotated_ring_searches_the_epoch_it_is_told():
    ring = make_ring("sequence-classification", hash_rule="keyed")
    probe = make_probe(ring, "user-5", n_rows=800)
    ring.rotate()
    assert search(probe, ring, USERS[:50]).leakers == []
    found = search(probe, ring, USERS[:50], epoch=0)
    assert [finding.user for finding in found.leakers] == ["user-5"] and found.epoch == 0
    with pytest.raises(InvalidInputError, match="epoch=2"):
        search(probe, ring, USERS[:50], epoch=2)


# -- corrections


def test_holm_by_hand():
    logs = [math.log10(p) for p in (0.001, 0.01, 0.02, 0.04)]
    assert [10**p for p in holm(logs, 4)] == pytest.approx([0.004, 0.03, 0.04, 0.04])  # the last by its predecessor
    assert [10**p for p in holm(logs[:2], 100)] == pytest.approx([0.1, 0.99])
    assert [10**p for p in holm(logs[:2], 2, others=5)] == pytest.approx([0.01, 0.05])
    assert holm([-2.0, -1.0], 1000) == [0.0, 0.0] and holm([], 5) == []


def test_corrections_multiply(ring, probe):
    users, alone = USERS[1200:1300], search(probe, ring, USERS[1234:1235])
    assert alone.leakers[0].log10_corrected == pytest.approx(alone.leakers[0].log10_bound)
    many = search(probe, ring, users, suspects_tested=5, looks=2)
    assert many.leakers[0].log10_corrected == pytest.approx(alone.leakers[0].log10_bound + 3)
    assert (many.n_corrected, many.suspects_tested, many.looks) == (100, 5, 2)
    assert many.log10_threshold == pytest.approx(-6)


def test_who_searches_fewer_users_than_were_declared_still_corrects_for_all(probe):
    ring = make_ring().declare(USERS)
    assert search(probe, ring, USERS).n_corrected == 2000
    found = search(probe, ring, USERS[1200:1300])
    assert (found.n_users, found.n_declared, found.n_corrected) == (100, 2000, 2000)
    assert found.leakers[0].log10_corrected == pytest.approx(found.leakers[0].log10_bound + math.log10(2000))
    assert found.committed and found.leakers[0].declared is None and "2,000 users" in found.explanation


def test_users_who_were_not_declared_are_reported(probe):
    ring = make_ring()
    undeclared = search(probe, ring, USERS[1200:1300])
    assert undeclared.n_declared is None and undeclared.n_corrected == 100 and undeclared.n_undeclared == 100
    assert not undeclared.committed and "No users were declared" in undeclared.explanation
    ring.declare(USERS[1200:1230])
    more = search(probe, ring, USERS[1200:1300])
    assert (more.n_declared, more.n_corrected, more.n_undeclared, more.committed) == (30, 100, 70, False)
    assert "At least 70" in more.explanation and "not all users were declared" in str(more)
    found = search(probe, ring, USERS[1230:1240], declared_users=USERS[1200:1230])
    assert found.leakers[0].declared is False and not found.committed
    assert "Not declared beforehand" in found.explanation and "'user-1234'" in found.explanation


def test_a_leaker_on_the_declared_list_is_said_to_be_declared(tmp_path, probe):
    ring = make_ring().declare(USERS[1200:1300])
    (tmp_path / "users.txt").write_text("\n".join(USERS[1200:1300]))
    for settings in (
        {"users": USERS[1299:1199:-1]},
        {"users": tmp_path / "users.txt"},
        {"users": ["user-1234"], "declared_users": USERS[1200:1300]},
    ):
        found = search(probe, ring, **settings)
        assert found.leakers[0].declared is True and found.ranking[0].declared is True and found.committed
        assert found.explanation.endswith("for which p-values are corrected.")
        assert found.declared_root == ring.commitment()
    # Of a generator, which is gone, and of another list of the same length nothing can be said.
    for users in (iter(USERS[1200:1300]), USERS[1201:1301]):
        assert search(probe, ring, users).leakers[0].declared is None


# -- thin evidence


@pytest.mark.parametrize("mark, enough_for_a_test", [("cosine", (3, 12)), ("tilt", (1, 8))])
def test_too_few_tokens_are_undecided_and_say_how_many_it_takes(mark, enough_for_a_test):
    ring = make_ring(**MARKS[mark])
    for n_rows, length in (enough_for_a_test, (1, 5)):
        found = search(make_probe(ring, "user-3", n_rows=n_rows, length=length), ring)
        assert found.verdict == "undecided" and found.leakers == [] and found.tokens_needed > found.n_tokens
        assert f"{found.tokens_needed:,}" in found.explanation and "2,000 users" in found.explanation
        str(found)
    assert found.n_tokens == 3 and found.ranking == [] and (found.p_values() == 1.0).all()


def test_the_more_users_the_more_tokens_it_takes(ring):
    few = make_probe(ring, "user-3", n_rows=3)
    assert search(few, ring, USERS[:10]).tokens_needed < search(few, ring).tokens_needed


def test_a_suspect_that_says_nothing_leaves_it_undecided(marked):
    ring, _ = marked
    rows, clean, _, _ = make_case(ring.template(), 30)
    same = [np.full_like(answer, 0.25) + np.eye(4, dtype=np.float32)[1] * 0.004 for answer in clean]
    same = [answer / answer.sum(-1, keepdims=True) for answer in same]
    if ring.settings.mark == "tilt":  # it would take preferring a class for a mark of all words
        same = [np.full_like(answer, 0.25) for answer in clean]
    found = identify(same, rows, ring=ring, users=USERS, victim=clean, progress=False)
    assert found.verdict == "undecided" and "nothing points at anybody" in found.explanation
    assert found.tokens_needed is None and (found.p_values() == 1.0).all()


# -- where users come from


def test_users_come_from_lists_generators_files_and_data_sets(ring, probe, tmp_path):
    users = [*USERS[1200:1300], "Zoë", "名前", "a b ", "'; drop"]
    expected = search(probe, ring, users)
    (tmp_path / "users.txt").write_text("\ufeff" + "\r\n".join(users) + "\n\n", encoding="utf-8", newline="")
    data = Dataset.from_dict({"user": users, "since": list(range(len(users)))})
    sources = [
        tuple(users),
        iter(users),
        np.array(users),
        str(tmp_path / "users.txt"),
        tmp_path / "users.txt",
        data["user"],
        data.select_columns("user"),
    ]
    for source in sources:
        found = search(probe, ring, source, chunk_size=33)
        assert found.ranking == expected.ranking and found.n_users == len(users)


def test_a_generator_is_read_a_chunk_at_a_time(ring, probe, monkeypatch):
    read, ahead = [], []
    scores = Screen.scores

    def spy(self, keys):
        ahead.append(len(read))
        return scores(self, keys)

    monkeypatch.setattr(Screen, "scores", spy)
    search(probe, ring, (read.append(user) or user for user in USERS[:100]), chunk_size=30)
    assert ahead == [30, 60, 90, 100]


@pytest.mark.parametrize("chunk_size", [1, 4, 1000])
@pytest.mark.parametrize("again", [0, 17, 38])
def test_a_user_who_is_listed_twice_is_refused_by_name(ring, probe, chunk_size, again):
    users = [*USERS[:39], USERS[again]]
    with pytest.raises(InvalidInputError, match=f"'user-{again}' is listed twice"):
        search(probe, ring, users, chunk_size=chunk_size)


def test_telling_users_apart_takes_sixteen_bytes_each():
    seen = SeenUsers()
    for first in range(0, 20_000, 100):
        seen.add([str(number) for number in range(first, first + 100)])
    assert sum(part.nbytes for run in seen._runs for part in run) == 16 * 20_000
    assert len(seen._runs) < 15
    with pytest.raises(InvalidInputError, match="'12345'"):
        seen.add(["new", "12345"])


# -- stopping and going on


class Killed(Exception):
    pass


def killed_after(users, number):
    yield from users[:number]
    raise Killed


def test_a_search_that_was_killed_goes_on_and_finds_the_same(marked, tmp_path, monkeypatch):
    ring, probe = marked
    expected = search(probe, ring)
    path = tmp_path / "search" / "progress.sqlite"
    with pytest.raises(Killed):
        search(probe, ring, killed_after(USERS, 1000), chunk_size=300, resume=path)
    assert path.stat().st_mode & 0o077 == 0
    scored = []
    scores = UserScreen.scores
    monkeypatch.setattr(UserScreen, "scores", lambda self, *keys: scored.append(len(keys[0])) or scores(self, *keys))
    found = search(probe, ring, chunk_size=700, resume=path)  # in other chunks, too
    assert sum(scored) == 1100
    assert found.ranking == expected.ranking and found.leakers == expected.leakers
    np.testing.assert_array_equal(found.log10_p_values, expected.log10_p_values)
    scored.clear()
    again = search(probe, ring, [*USERS, "one more"], resume=path)
    assert sum(scored) == 1 and again.n_users == 2001
    assert [(f.user, f.log10_p) for f in again.ranking] == [(f.user, f.log10_p) for f in expected.ranking]


def test_a_search_is_not_resumed_by_another_statistic(tmp_path, monkeypatch):
    ring = make_ring(**TILT)
    probe, path = make_probe(ring, "user-7", n_rows=60), tmp_path / "progress.sqlite"
    search(probe, ring, USERS[:100], resume=path)
    assert search(probe, ring, USERS[:100], resume=path).statistic == "drw-tilt-1"
    monkeypatch.setattr(TiltUserLaw, "versions", ("drw-tilt-2",))
    with pytest.raises(InvalidInputError, match="another search"):
        search(probe, ring, USERS[:100], resume=path)
    monkeypatch.setattr(TiltUserLaw, "versions", ("drw-tilt-1", "drw-tilt-2"))
    assert search(probe, ring, USERS[:100], resume=path).statistic == "drw-tilt-1", "the version that it began with"


def test_a_file_of_another_search_is_refused(ring, probe, innocent, tmp_path):
    path = tmp_path / "progress.sqlite"
    search(probe, ring, USERS[:100], resume=path)
    before = path.read_bytes()
    other = make_ring(secret=bytes(32))
    for args, settings in (
        ((innocent, ring), {}),
        ((probe, other), {}),
        ((probe, ring), {"logged_counts": {7: 1, 8: 2, **dict.fromkeys(range(100, 2000), 3)}}),
        ((probe, ring), {"device": "cpu"}),
    ):
        with pytest.raises(InvalidInputError, match="another search"):
            search(*args, USERS[:100], resume=path, **settings)
    for users in (USERS[:50], USERS[1:101], [*USERS[:99], "x"]):
        with pytest.raises(InvalidInputError, match="recorded with other users"):
            search(probe, ring, users, resume=path)
    assert path.read_bytes() == before
    (tmp_path / "other").write_text("not a data base, but long enough to look like something else" * 20)
    for wrong in (tmp_path / "other", tmp_path / "other" / "below", tmp_path):
        with pytest.raises(
            InvalidInputError, match=r"is not a file that a search was recorded in \(\w+\); give"
        ) as caught:
            search(probe, ring, USERS[:100], resume=wrong)
        assert "backup" not in str(caught.value)
    assert "secret" not in str(before) and bytes(range(32)) not in before


# -- keeping and showing


def test_a_result_survives_saving(marked, tmp_path):
    ring, probe = marked
    found = search(probe, ring)
    found.save(tmp_path / "found" / "leak.json")
    again = Identification.load(tmp_path / "found" / "leak.json")
    assert again == found and again.leakers[0].user == "user-1234"
    np.testing.assert_array_equal(again.p_values(), found.p_values())
    assert search(again.probe, ring).ranking == found.ranking and again.probe_digest == probe.digest()
    document = json.loads((tmp_path / "found" / "leak.json").read_text())
    assert document["statistic"] == ("drw-tilt-1" if ring.settings.mark == "tilt" else "drw-exact-2")
    assert document["versions"]["drw_hf"] and document["n_users"] == 2000
    for file in (tmp_path / "found").iterdir():
        content = file.read_bytes()
        assert ring.secret not in content and ring.secret.hex().encode() not in content
        assert file.stat().st_mode & 0o077 == 0
    (tmp_path / "found" / "leak.users.npz").unlink()
    with pytest.raises(InvalidInputError, match=r"users\.npz"):
        Identification.load(tmp_path / "found" / "leak.json").p_values()


def test_files_that_do_not_belong_together_are_refused(ring, probe, innocent, tmp_path):
    search(probe, ring, USERS[1200:1300]).save(tmp_path / "a.json")
    search(innocent, ring, USERS[:50]).save(tmp_path / "b.json")
    (tmp_path / "b.probe.npz").rename(tmp_path / "a.probe.npz")
    with pytest.raises(InvalidInputError, match="not the one"):
        Identification.load(tmp_path / "a.json")
    (tmp_path / "a.probe.npz").unlink()
    (tmp_path / "b.users.npz").rename(tmp_path / "a.users.npz")
    with pytest.raises(InvalidInputError, match="not those"):
        Identification.load(tmp_path / "a.json")
    (tmp_path / "a.users.npz").write_bytes(b"PK no archive")
    for content in (None, "", "{}", "[]", '{"format": "drw-identification-1"}'):
        if content is not None:
            (tmp_path / "a.json").write_text(content)
        with pytest.raises(InvalidInputError, match="save wrote"):
            Identification.load(tmp_path / "a.json")


def test_the_figure_shows_all_users_and_who_stands_out(ring, probe, innocent, tmp_path):
    found = search(probe, ring)
    figure = found.plot(tmp_path / "figures" / "users.png")
    assert (tmp_path / "figures" / "users.png").stat().st_size > 10_000
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["user-1234"]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["named"].get_ydata()[0] == pytest.approx(-found.leakers[0].log10_p)
    threshold = next(line for label, line in lines.items() if label.startswith("needed"))
    assert threshold.get_ydata()[0] == pytest.approx(-found.log10_threshold)
    nobody = search(innocent, ring).plot()
    assert not nobody.axes[0].texts
    strange = dataclasses.replace(found.leakers[0], user="$x_\n" + "long " * 50)
    dataclasses.replace(found, leakers=[strange], suspect="$\\frac").plot(tmp_path / "strange.png")


def test_progress_is_shown_and_can_be_switched_off(ring, probe, capsys):
    search(probe, ring, USERS[:50], progress=True)
    assert "50.0/50.0" in capsys.readouterr().err
    search(probe, ring, USERS[:50])
    assert capsys.readouterr().err == ""


# -- bad input


def test_bad_users_are_refused(ring, probe, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\xd8")
    (tmp_path / "blank.txt").write_text("\n \n")
    two = Dataset.from_dict({"user": ["a"], "since": [1]})
    cases = [
        ([], "empty"),
        (iter([]), "empty"),
        (tmp_path / "blank.txt", "empty"),
        (["ann", ""], "empty"),
        (["ann", 7], "no string"),
        (["ann", None], "no string"),
        (["\ud800"], "surrogate"),
        (tmp_path / "nothing.txt", "nothing.txt"),
        ("ann", "one user per line"),
        (tmp_path / "binary", "one user per line"),
        (tmp_path, "one user per line"),
        (two, r'dataset\["user"\]'),
        (b"ann", "bytes"),
        ({"ann": 1}, "dict"),
        (None, "NoneType"),
        (7, "int"),
    ]
    for users, said in cases:
        with pytest.raises(InvalidInputError, match=said):
            search(probe, ring, users)


def test_bad_settings_are_refused(ring, probe):
    key = ring.key_for("user-3")
    cases = [
        ({"level": 0.0}, "level"),
        ({"level": 2.0}, "level"),
        ({"top": 0}, "top"),
        ({"chunk_size": 1.5}, "chunk_size"),
        ({"suspects_tested": 0}, "suspects_tested"),
        ({"looks": True}, "looks"),
        ({"epoch": 1}, "epoch"),
        ({"device": "no such device"}, "device"),
        ({"device": "meta"}, "device"),
        ({"texts": ["a"]}, "leave them out"),
        ({"victim": [1]}, "leave them out"),
        ({"gold": [1]}, "leave them out"),
        ({"batch_size": 3}, "leave them out"),
        ({"logged": [1]}, "logged"),
        ({"key": key}, "key="),
        ({"ring": key}, "detect"),
    ]
    for settings, said in cases:
        with pytest.raises(InvalidInputError, match=said):
            identify(probe, **{"ring": ring, "users": USERS[:10], "progress": False, **settings})
    with pytest.raises(InvalidInputError, match="texts are missing"):
        search(lambda texts: texts, ring)
    with pytest.raises(TypeError, match="no_such_option"):
        search([], ring, texts=[], no_such_option=1)


def test_a_ring_of_another_model_is_refused(ring, probe):
    with pytest.raises(KeyMismatchError, match="sequence-classification"):
        search(probe, make_ring("sequence-classification"))
    large = dataclasses.replace(probe, input_ids=probe.input_ids + VOCABULARY)
    with pytest.raises(KeyMismatchError, match="tokenizer"):
        search(large, ring)


def test_a_probe_of_the_memory_test_is_referred_to_detect(ring, probe):
    logged = dataclasses.replace(probe, logged=np.zeros(len(probe.rows), np.int64))
    with pytest.raises(InvalidInputError, match="key_for"):
        search(logged, ring)


def test_logged_labels_of_tilt_are_not_drawn_and_change_nothing():
    ring = make_ring(**TILT)
    probe = make_probe(ring, "user-7", n_rows=60)
    logged = dataclasses.replace(probe, logged=np.zeros(len(probe.rows), np.int64))
    assert search(logged, ring, USERS[:100]).ranking == search(probe, ring, USERS[:100]).ranking


def test_a_mark_that_no_search_is_written_for_is_referred_to_detect(ring, probe, monkeypatch):
    monkeypatch.setattr(laws, "LAWS", {})
    with pytest.raises(InvalidInputError, match=r"'cosine'.*key_for"):
        search(probe, ring)


def test_a_class_that_nobody_predicts_is_an_error_as_it_is_for_detect(ring):
    rows, clean, marked, _ = make_case(ring.template(), n_rows=20)
    never = [np.delete(answer, 1, axis=1) for answer in clean]
    never = [np.insert(a / a.sum(-1, keepdims=True), 1, 0.0, axis=1) for a in never]
    with pytest.raises(InvalidInputError, match="the target class"):
        identify(marked, rows, ring=ring, users=USERS, victim=never, progress=False)


@pytest.mark.parametrize("screen", [Screen, TiltScreen])
def test_an_error_while_scoring_shows_no_key(screen, monkeypatch):
    def fail(self, *table_keys):
        raise MemoryError("no memory left")

    monkeypatch.setattr(screen, "_score", fail)
    ring = make_ring(**({**TILT, "tau": 0.5} if screen is TiltScreen else {}))
    probe = make_probe(ring, "user-7", n_rows=30)
    domains = ("direct/tables", "tilt/phases", "tilt/selection")
    secrets = {ring.secret, *(key for one in domains for key in ring.table_keys(USERS[:10], domain=one))}
    with pytest.raises(MemoryError) as caught:
        search(probe, ring, USERS[:10])
    assert caught.value.__context__ is None
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    ours = [frame for frame in frames if "drw_hf" in frame.f_code.co_filename]
    names = [frame.f_code.co_name for frame in ours]
    assert names[:4] == ["identify", "_search", "forgetful", "_from_table_keys"]
    assert not any(frame.f_locals for frame in ours[3:]), "where it happened is told, and not with what"
    shown = repr([frame.f_locals for frame in ours])
    assert not any(repr(secret)[2:-1] in shown or secret.hex() in shown for secret in secrets)


def test_nothing_of_a_key_stays_with_the_result(ring, probe):
    found = search(probe, ring)
    assert not any(isinstance(value, WatermarkKey | KeyRing) for value in vars(found).values())
    assert sys.getsizeof(found.log10_p_values) < 2000 * 8 + 200


def test_a_bound_that_rounds_to_the_level_itself_is_undecided():
    """One correction says detected by the last bit, Holm's says nobody: no verdict may fall between them."""
    tried = Corrections(keys_tried=100, suspects_tested=3, looks=7)
    strongest = ExactTest(
        statistic=9.0,
        log10_p=-9.0,
        log10_bound=-8.0,
        z_score=6.0,
        theta=1.0,
        n_tokens=50,
        n_effective=40.0,
        mean=0.0,
        sd=1.5,
    )
    verdict, needed, why = judge_users([], strongest, 1e-3, tried, n_users=100)
    assert (verdict, needed) == ("undecided", 51) and "about 51 like these would" in why
