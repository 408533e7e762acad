"""Margin draws: close calls of hard answers are decided by a keyed number of the text, and the log tells which way."""

import dataclasses
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf import KeyRing, WatermarkedModelForSequenceClassification, WatermarkKey, detect
from drw_hf.detection import Probe
from drw_hf.detection.statistics import STATISTICS, TestOptions
from drw_hf.detection.statistics.margin import MarginLaw, close_calls_of, margin_finding
from drw_hf.detection.statistics.saddlepoint import ExactTest, z_of_log_p
from drw_hf.detection.statistics.tilt_and_margin import combined, fisher, product_for
from drw_hf.detection.verdict import Corrections, describe_log, judge
from drw_hf.errors import InvalidInputError, InvalidKeyError
from drw_hf.evidence.verify import verify_evidence
from drw_hf.keys import derivation
from drw_hf.planning import tilt_accuracy_bounds
from drw_hf.planning.margin_costs import WIDEST, MarginCosts
from drw_hf.planning.tilt_costs import shifts_of
from drw_hf.planning.tilt_traffic import TiltTraffic
from drw_hf.tracing import identify_by_log
from drw_hf.watermark import margin
from drw_hf.watermark.mark import RingUsers
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query
from needles import DOMAINS
from small_models import make_key, make_lively, make_model, make_tokenizer
from test_tilt import SENTENCES, TAGS, TASKS, make_config, query_of, random_logits

HARD = OutputOptions("hard")
VECTORS = json.loads((Path(__file__).parent / "vectors" / "margin.json").read_text())


def margin_key(task=SENTENCES, n_classes=4, margin=0.8, config=None, **options):
    options = {"mark": "tilt", "strength": 0.4, "temperature": 1.4, "task": task, "margin": margin, **options}
    return make_key(config or make_config(task, n_classes), **options)


def made_up_texts(n_texts, length=8, seed=0, highest=64):
    ids = np.random.default_rng(seed).integers(5, highest, (n_texts, length))
    return [[2, *row, 3] for row in ids.tolist()]


def served_labels(logits, query, key):
    return protect(logits, query, key, HARD).argmax(dim=-1)


def by_the_definition(logits, query, key):
    """What is answered, item by item, in float64: of the two best classes the lower one if u is below its chance."""
    chosen, special = key.settings, set(key.special_token_ids)
    log_y = protect(logits, query, key, OutputOptions(digits=0)).double().numpy()
    answers = log_y.argmax(axis=-1)
    for row, ids in enumerate(query.input_ids.tolist()):
        words = [token for token in ids if token not in special]
        for place, token in enumerate(words) if key.task == TAGS else [(0, None)]:
            at = (row, [i for i, one in enumerate(ids) if one not in special][place]) if key.task == TAGS else (row,)
            y = np.exp(log_y[at] / chosen.temperature)
            y /= y.sum()
            b, a = np.argsort(y)[-2:]
            pi = 0.5 * max(0.0, 1.0 - (y[a] - y[b]) / chosen.margin)
            if key.task == TAGS:
                around = [words[i] if 0 <= i < len(words) else -1 for i in range(place - 1, place + 2)]
            else:
                order = derivation.token_entries(key.subkey("tilt/margin order"), np.array(sorted(set(words))))
                ranked = [token for _, token in sorted(zip(order, sorted(set(words)), strict=True))][:3]
                around = ranked + [-1] * (3 - len(ranked))
            message = np.array(around, "<i4").tobytes()
            digest = hashlib.blake2b(message, digest_size=8, key=key.subkey("tilt/margin draws")).digest()
            chance_of_lower = pi if b < a else 1.0 - pi
            answers[at] = (
                min(a, b) if (int.from_bytes(digest, "little") >> 11) * 2.0**-53 < chance_of_lower else max(a, b)
            )
    return answers


# -- the draw


@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_the_definition(task):
    key, query = margin_key(task), query_of(*made_up_texts(40), [2, 9, 3], [2, 9, 9, 11, 3])
    logits = random_logits(key, query) / 3.0
    words = query.input_ids > 4 if task == TAGS else slice(None)
    np.testing.assert_array_equal(
        served_labels(logits, query, key).numpy()[words], by_the_definition(logits, query, key)[words]
    )
    plain = key.replace(settings=key.settings.replace(margin=0.0))
    assert (served_labels(logits, query, key) != served_labels(logits, query, plain)).any(), "something was drawn"


@given(
    gap=st.floats(0.0, 1.0),
    margin_=st.floats(1e-6, 1.0) | st.just(0.0),
)
@settings(max_examples=60, deadline=None)
def test_the_chance_falls_from_a_half_to_nothing_at_the_margin(gap, margin_):
    found = float(margin.swap_chance(torch.tensor(gap, dtype=torch.float64), margin_))
    wanted = 0.5 * max(0.0, 1.0 - gap / margin_) if margin_ else 0.0
    assert found == pytest.approx(wanted, abs=1e-12) and 0.0 <= found <= 0.5


def test_the_two_best_are_of_the_calibrated_distribution():
    logits = torch.tensor([[4.0, 2.0, 3.0], [0.0, 0.0, -1.0]])
    first, second, gap = margin.best_two(logits, 2.0)
    p = torch.softmax(logits.double() / 2.0, dim=-1)
    assert first.tolist() == [0, 0] and second.tolist() == [2, 1]
    assert gap.tolist() == pytest.approx([float(p[0, 0] - p[0, 2]), 0.0])


@pytest.mark.parametrize("task", TASKS)
def test_soft_answers_are_never_drawn_and_a_margin_of_0_changes_nothing(task):
    key, query = margin_key(task), query_of(*made_up_texts(30))
    plain, logits = key.replace(settings=key.settings.replace(margin=0.0)), random_logits(key, query)
    for digits in (0, 3):
        soft = [protect(logits, query, one, OutputOptions(digits=digits)) for one in (key, plain)]
        torch.testing.assert_close(*soft, rtol=0, atol=0)
    labels = served_labels(logits, query, plain)
    assert (labels == protect(logits, query, plain, OutputOptions(digits=0)).argmax(-1)).all()


@pytest.mark.parametrize("task", TASKS)
def test_neither_padding_nor_the_batch_nor_the_users_beside_it_matter(task):
    key = margin_key(task)
    ring = KeyRing(key).declare(["ann", "bob"])
    rows = made_up_texts(12)
    query = query_of(*rows)
    logits = random_logits(key, query) / 3.0
    padded = query_of(*rows, [2, *range(5, 25), 3])
    more = torch.nn.functional.pad(logits, (0, 0, 0, 12)) if task == TAGS else logits
    more = torch.cat([more, more[:1]])
    wide = served_labels(more, padded, key)
    words = (query.input_ids > 4) if task == TAGS else torch.ones(12, dtype=torch.bool)
    alone = served_labels(logits, query, key)
    cut = wide[:12, : query.input_ids.shape[1]] if task == TAGS else wide[:12]
    assert (cut == alone)[words].all()
    users = ("ann", "bob") * 6
    by_users = protect(logits, query, RingUsers(ring, users), HARD).argmax(-1)
    by_keys = protect(logits, query, [ring.key_for(user) for user in users], HARD).argmax(-1)
    one_by_one = torch.stack([served_labels(logits, query, ring.key_for(user))[row] for row, user in enumerate(users)])
    assert (by_users == by_keys)[words].all() and (by_keys == one_by_one)[words].all()
    assert (
        served_labels(logits, query, ring.key_for("ann")) != served_labels(logits, query, ring.key_for("bob"))
    ).any()


@given(
    gap=st.floats(-1.0, 1.0),
    moved=st.floats(-0.2, 0.2),
    width=st.floats(0.05, 1.0),
    number=st.floats(0.0, 1.0, exclude_max=True),
)
@settings(max_examples=200, deadline=None)
def test_where_the_two_best_change_places_the_answer_stays_unless_the_number_lies_between(gap, moved, width, number):
    def chance_of_class_0(lead):
        """How likely class 0 is answered that leads class 1 by so much."""
        first, second = (np.array([0]), np.array([1])) if lead >= 0 else (np.array([1]), np.array([0]))
        swaps = margin.swap_chance(torch.tensor([abs(lead)], dtype=torch.float64), width).numpy()
        lower, higher, chance = margin.between(first, second, swaps)
        assert (lower[0], higher[0]) == (0, 1)
        assert chance[0] == pytest.approx(np.clip(0.5 * (1.0 + lead / width), 0.0, 1.0)), "it passes through a half"
        return float(chance[0])

    before, after = chance_of_class_0(gap), chance_of_class_0(gap + moved)
    assert (number < before) == (number < after) or min(before, after) <= number < max(before, after)
    assert abs(after - before) <= abs(moved) / (2.0 * width) + 1e-12


def test_of_a_word_the_token_on_either_side_decides():
    ids, ends = np.arange(10, 20), np.array([0, 6, 10])
    found = margin.word_windows(ids, ends, np.array([0, 3, 5, 6]))
    wanted = [[-1, 10, 11], [12, 13, 14], [14, 15, -1], [-1, 16, 17]]
    assert [np.frombuffer(one, "<i4").tolist() for one in found] == wanted


def test_of_a_sentence_the_words_decide_that_the_keyed_order_puts_first():
    key = bytes(32)
    text = np.array([30, 40, 50, 60, 70, 40])
    order = derivation.token_entries(key, np.arange(100))
    (message,) = margin.first_words(text, np.array([0, 6]), key)
    first = np.frombuffer(message, "<i4").tolist()
    assert first == sorted(set(text.tolist()), key=lambda token: order[token])[:3]
    others = [token for token in range(5, 100) if token not in text]
    kept = [margin.first_words(np.append(text, token), np.array([0, 7]), key) == [message] for token in others]
    assert 0.3 < np.mean(kept) < 0.7, "of five words and one more, three first ones stay in half of all cases"
    assert margin.first_words(text[::-1].copy(), np.array([0, 6]), key) == [message], "their order does not matter"
    assert np.frombuffer(margin.first_words(np.array([9]), np.array([0, 1]), key)[0], "<i4").tolist() == [9, -1, -1]
    assert margin.first_words(text, np.array([0, 6]), [key]) == [message], "a key per text"


def test_vectors():
    key = bytes.fromhex(VECTORS["secret"])
    for domain, value in VECTORS["subkeys"].items():
        assert derivation.subkey(key, domain).hex() == value
    ids, ends = np.array(VECTORS["token_ids"]), np.array(VECTORS["offsets"])
    sentences = margin.first_words(ids, ends, derivation.subkey(key, derivation.MARGIN_ORDER))
    words = margin.word_windows(ids, ends, np.arange(len(ids)))
    for messages, wanted in ((sentences, VECTORS["sentences"]), (words, VECTORS["words"])):
        numbers = margin.keyed_numbers(derivation.subkey(key, derivation.MARGIN_DRAWS), messages)
        assert [message.hex() for message in messages] == [one["message"] for one in wanted]
        assert numbers.tolist() == [one["number"] for one in wanted]


def test_leaks_are_looked_for_in_the_new_domains_too():
    assert {derivation.MARGIN_DRAWS, derivation.MARGIN_ORDER} <= set(DOMAINS)


# -- keys


def test_keys_without_a_margin_are_what_they_were():
    key = margin_key(margin=0.0)
    assert not {"margin", "margin_budget"} & key.settings.to_fields().keys()
    drawn = margin_key(margin=0.2, margin_budget=0.1)
    assert drawn.settings.to_fields()["margin"] == 0.2 and drawn.commitment() != key.commitment()


def test_a_margin_is_saved_and_committed_to(tmp_path):
    key = margin_key(margin=0.2, margin_budget=0.1)
    key.save_pretrained(tmp_path, passphrase=None)
    loaded = WatermarkKey.from_pretrained(tmp_path)
    assert loaded.settings == key.settings and loaded.commitment() == key.commitment()


@pytest.mark.parametrize("value", [-0.1, 1.5, math.nan])
def test_a_margin_that_is_none_is_refused(value):
    with pytest.raises(InvalidKeyError, match="margin"):
        margin_key(margin=value)


# -- the law


def made_up_law(seed=0, n=300):
    rng = np.random.default_rng(seed)
    return MarginLaw(rng.normal(size=n), rng.random(n))


def test_the_law_is_that_of_simulated_draws():
    law = made_up_law()
    samples = law.simulate(40000, seed=1)
    test = law.test(2.0 * law.test(0.0).sd)
    assert test.mean == 0.0 and samples.mean() == pytest.approx(0.0, abs=4 * test.sd / 200)
    assert samples.std() == pytest.approx(test.sd, rel=0.02)
    for z in (1.0, 2.0, 2.5):
        found = law.test(z * test.sd)
        share = float(np.mean(samples >= z * test.sd))
        assert found.p_value == pytest.approx(share, rel=0.15) and share <= found.p_bound


def test_where_every_draw_went_the_way_of_the_suspect_the_bound_is_the_chance_of_that():
    """T at the end of its reach; chances of 0 and 1 take part in nothing."""
    law = MarginLaw(np.ones(20), np.full(20, 0.25))
    assert law.test(law.statistic(np.ones(20))).log10_bound == pytest.approx(20 * math.log10(0.25), rel=1e-4)
    certain = MarginLaw([1.0, 1.0, 1.0], [0.0, 1.0, 0.5])
    assert certain.test(0.0).sd == 0.5 and np.isfinite(certain.cumulants(3.0)).all()


def test_cumulants_are_derivatives():
    law = made_up_law()
    for theta in (-0.5, 0.3):
        step = 1e-5
        low, high = (law.cumulants(theta + side * step).sum(axis=1) for side in (-1, 1))
        _, first, second = law.cumulants(theta).sum(axis=1)
        assert (high[0] - low[0]) / (2 * step) == pytest.approx(first, rel=1e-6)
        assert (high[1] - low[1]) / (2 * step) == pytest.approx(second, rel=1e-6)


# -- both tests as one


def test_the_product_of_two_p_values_is_made_a_p_value_again():
    rng = np.random.default_rng(0)
    p = rng.random((200000, 2))
    found = 10 ** np.array([fisher(*np.log10(pair)) for pair in p[:20000]])
    for level in (0.5, 0.1, 0.01):
        assert np.mean(found <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 20000))
    assert fisher(0.0, 0.0) == 0.0
    assert fisher(-200.0, -100.0) == pytest.approx(-300.0 + math.log10(1.0 + 300.0 * math.log(10.0)))


@pytest.mark.parametrize("p", [0.9, 1e-3, 1e-9, 1e-200])
def test_how_small_a_product_must_be_is_the_inverse_of_that(p):
    assert fisher(product_for(math.log(p)) / math.log(10.0), 0.0) == pytest.approx(math.log10(p), rel=1e-9, abs=1e-9)


def test_not_detected_needs_tokens_and_draws_enough_for_both_tests_as_one():
    """z² = U ln(1 + γ²) with γ = 0.3, as for one test; the product of two p-values must be the smaller."""

    def verdict_with(n_effective):
        nothing = ExactTest(0.0, math.log10(0.5), 0.0, 0.0, 0.0, 1000, n_effective / 2, 0.0, 1.0)
        both = combined(nothing, nothing)
        assert (both.n_tokens, both.n_effective) == (2000, n_effective)
        return judge(both, 1e-3, Corrections(), of_both=True)

    alone = (math.sqrt(-2.0 * math.log(1e-3)) + 1.64) ** 2 / math.log1p(0.09)
    least = (math.sqrt(-2.0 * product_for(math.log(1e-3))) + 1.64) ** 2 / math.log1p(0.09)
    assert least > 1.2 * alone
    assert verdict_with(1.01 * least)[0] == "not detected" and "per token and draw" in verdict_with(1.01 * least)[2]
    undecided, needed, why = verdict_with(0.5 * least)
    assert undecided == "undecided" and needed == pytest.approx(4000, abs=1) and "distinct tokens and draws" in why


def test_how_many_terms_both_tests_as_one_would_need_follows_the_product():
    """Twice as many terms like these have the square of the product."""
    part = ExactTest(0.0, -1.2, -1.0, 0.0, 0.0, 500, 400.0, 0.0, 1.0)
    both = combined(part, part)
    _, needed, _ = judge(both, 1e-3, Corrections(), of_both=True)
    assert needed == pytest.approx(1000 * product_for(math.log(1e-3)) / math.log(1e-2), abs=1)
    assert fisher(-2.0 * needed / 1000, 0.0) == pytest.approx(-3.0, abs=0.01)


# -- the test of a suspect


def made_up_probe(task, key, n_texts=300, follows=0.0, seed=0, **others):
    """What a service has logged, and a suspect that repeats some of its answers; 0: it knows nothing of them."""
    rows = made_up_texts(n_texts, seed=seed)
    query = query_of(*rows)
    logits = random_logits(key, query, seed=seed) / 3.0
    labels = served_labels(logits, query, key).numpy()
    words = (query.input_ids > 4).numpy()
    p = torch.softmax(logits, dim=-1).numpy()
    lengths = [len(row) for row in rows]
    texts, places = np.nonzero(words)
    if task == SENTENCES:
        texts, places = np.arange(n_texts), np.full(n_texts, -1)
    else:
        p, labels = p[words], labels[words]
    rng = np.random.default_rng(seed + 1)
    suspect = np.log(p) + 0.5 * rng.normal(size=p.shape)
    repeated = rng.random(len(p)) < follows
    suspect[repeated, labels[repeated]] += 3.0
    suspect = np.exp(suspect - suspect.max(axis=1, keepdims=True))
    return Probe(
        task=task,
        labels=key.labels,
        input_ids=np.concatenate(rows),
        token_type_ids=np.zeros(sum(lengths), dtype=np.int64),
        offsets=np.cumsum([0, *lengths]),
        rows=texts,
        places=places,
        suspect=(suspect / suspect.sum(axis=1, keepdims=True)).astype(np.float32),
        victim=p.astype(np.float32),
        logged=labels.astype(np.int64),
        n_queries=n_texts,
        **others,
    )


@pytest.mark.parametrize("task", TASKS)
def test_what_was_drawn_is_computed_from_key_and_victim_and_agrees_with_the_log(task):
    key = margin_key(task)
    probe = made_up_probe(task, key)
    calls = close_calls_of(probe, key)
    assert calls.n_mismatches == 0 and calls.n_logged == len(probe.rows) and (calls.answers != calls.undrawn).any()
    drawn = np.where(calls.drawn, calls.lower, calls.higher)
    np.testing.assert_array_equal(drawn, probe.logged[calls.items])
    altered = dataclasses.replace(probe, logged=(probe.logged + 1) % 4)
    again = close_calls_of(altered, key)
    assert again.n_mismatches == again.n_logged
    np.testing.assert_array_equal(again.drawn, calls.drawn)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("kind", ["probabilities", "labels"])
def test_a_suspect_that_repeats_the_draws_is_found_and_the_parts_are_told(task, kind):
    key = margin_key(task)
    probe = made_up_probe(task, key, follows=0.7)
    if kind == "labels":
        probe = dataclasses.replace(probe, kind=kind, suspect=np.eye(4, dtype=np.float32)[probe.suspect.argmax(1)])
    result = detect(probe, key=key)
    assert result.statistic == "drw-tilt-margin-1" and result.verdict == "detected"
    assert result.variant == f"{kind}-victim-margin" and (result.beside is None) == (kind == "labels")
    tilt_part, margin_part = result.parts["tilt"], result.parts["margin"]
    assert result.log10_bound == pytest.approx(fisher(tilt_part["log10_bound"], margin_part["log10_bound"]))
    assert margin_part["log10_bound"] < -6.0
    assert "logged answers are what the key and the victim give" in result.explanation


def test_a_log_of_something_else_is_pointed_out():
    key = margin_key()
    probe = made_up_probe(SENTENCES, key)
    other = dataclasses.replace(probe, logged=np.random.default_rng(0).integers(0, 4, len(probe.rows)))
    result = detect(other, key=key)
    assert "the log is of another key, model or cut, or was altered" in result.explanation
    checks = {check.name: check.status for check in verify_evidence(result, key=key).checks}
    assert checks["the log says what was drawn"] == "open"


def test_a_reference_that_leans_after_or_against_the_draws_is_refused():
    key = margin_key(TAGS)
    probe = made_up_probe(TAGS, key)
    calls, honest = close_calls_of(probe, key), made_up_probe(TAGS, key, seed=0).victim
    for sign in (1.0, -1.0):
        leaning = np.log(honest.astype(np.float64))
        leaning[calls.items, calls.lower] += sign * 0.6 * (calls.drawn - calls.chances)
        leaning = np.exp(leaning + 0.2 * np.random.default_rng(5).normal(size=leaning.shape))
        crafted = (leaning / leaning.sum(axis=1, keepdims=True)).astype(np.float32)
        with pytest.raises(InvalidInputError, match=r"the reference (follows|leans against) the key"):
            detect(dataclasses.replace(probe, reference=crafted), key=key)
    noise = np.exp(np.log(honest) + 0.2 * np.random.default_rng(6).normal(size=honest.shape))
    innocent = (noise / noise.sum(axis=1, keepdims=True)).astype(np.float32)
    assert detect(dataclasses.replace(probe, reference=innocent), key=key).verdict != "detected"


def test_a_reference_made_of_the_suspects_answers_is_told_by_what_the_test_says_without_it():
    """It leans against the draws by so little that no test of it alone can tell; an innocent then looks marked."""
    key = margin_key(TAGS)
    probe = made_up_probe(TAGS, key)
    calls = close_calls_of(probe, key)
    crafted = np.log(probe.suspect.astype(np.float64))
    crafted[calls.items, calls.lower] -= 0.01 * (calls.drawn - calls.chances)
    crafted = np.exp(crafted)
    crafted = (crafted / crafted.sum(axis=1, keepdims=True)).astype(np.float32)
    framed = detect(dataclasses.replace(probe, reference=crafted), key=key)
    assert framed.verdict == "detected" and detect(probe, key=key).verdict != "detected"
    assert "Without the reference the same test has z" in framed.explanation
    assert "the verdict rests on the reference: ask who made it" in framed.explanation
    checked = verify_evidence(framed, key=key)
    assert not checked.failed and any("not made from the suspect's answers" in each for each in checked.not_checked)


def repeated(probe, texts):
    """A probe of sentences with some of its texts asked once more."""
    ids = [probe.input_ids[probe.offsets[text] : probe.offsets[text + 1]] for text in texts]
    offsets = np.concatenate([probe.offsets, probe.offsets[-1] + np.cumsum([len(row) for row in ids])])
    more = {name: np.concatenate([getattr(probe, name), getattr(probe, name)[texts]]) for name in
            ("suspect", "victim", "logged", "places")}  # fmt: skip
    words = np.concatenate([probe.input_ids, *ids])
    rows = np.arange(len(offsets) - 1)
    return dataclasses.replace(
        probe, input_ids=words, token_type_ids=np.zeros_like(words), offsets=offsets, rows=rows, **more
    )


def test_of_answers_that_share_a_draw_the_first_counts_whatever_is_asked_later():
    """Of an innocent: who asks again a hundred times because of an answer, right or wrong, changes nothing."""
    key = margin_key()
    probe = made_up_probe(SENTENCES, key)
    calls = close_calls_of(probe, key)
    agrees = probe.suspect[calls.items].argmax(1) == calls.answers[calls.items]
    once = margin_finding(probe, key, "probabilities")
    for some in (calls.items[agrees], calls.items[~agrees]):
        often = repeated(probe, np.repeat(some, 100))
        again = close_calls_of(often, key)
        np.testing.assert_array_equal(again.items, calls.items)
        assert again.n_drawn == calls.n_drawn + 100 * len(some)
        assert margin_finding(often, key, "probabilities").test == once.test
    once, twice = (MarginLaw(np.ones(n), np.full(n, 0.5)).test(n / 10) for n in (100, 200))
    assert twice.z_score == pytest.approx(math.sqrt(2.0) * once.z_score, rel=0.05), "counted twice it would be surer"


@pytest.mark.parametrize("task", TASKS)
def test_a_suspect_that_says_what_the_victim_says_has_no_leanings(task):
    key = margin_key(task)
    probe = made_up_probe(task, key)
    assert detect(dataclasses.replace(probe, suspect=probe.victim), key=key).z_score == 0.0


@pytest.mark.parametrize(
    ("drawn", "wrong", "undrawn", "said"),
    [
        (90, 3, 0, "last digits"),
        (90, 4, 0, "altered"),
        (9000, 40, 0, "last digits"),
        (9000, 50, 0, "altered"),
        (9000, 4, 4, "altered"),
    ],
)
def test_a_few_draws_may_differ_by_rounding_and_hardly_any_other_answer(drawn, wrong, undrawn, said):
    counted = {"n_logged": 10000, "n_drawn": drawn, "n_mismatches": wrong, "n_undrawn_mismatches": undrawn}
    assert said in describe_log(counted) and "(dtype)" in describe_log(counted)


def test_rows_of_which_some_have_a_margin_are_served_as_each_alone():
    key = margin_key()
    plain = key.replace(settings=key.settings.replace(margin=0.0))
    query = query_of(*made_up_texts(20))
    logits = random_logits(key, query) / 3.0
    mixed = protect(logits, query, [key, plain] * 10, HARD).argmax(-1)
    drawn, undrawn = served_labels(logits, query, key), served_labels(logits, query, plain)
    assert (mixed[::2] == drawn[::2]).all() and (mixed[1::2] == undrawn[1::2]).all()


def test_innocents_have_uniform_p_values_over_really_derived_keys():
    """The draws, the tilted answers, a, b and π are computed anew for every key; the suspect knows of none."""
    base = margin_key(TAGS)
    probe = made_up_probe(TAGS, base, n_texts=120)
    test = STATISTICS.get("drw-margin-1").test
    keys = [base.replace(secret=hashlib.sha256(bytes([0, n % 256, n // 256])).digest()) for n in range(300)]
    found = [test(probe, key, TestOptions()).test for key in keys]
    p = np.array([one.p_value for one in found])
    for level in (0.1, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=3.3 * math.sqrt(level * (1 - level) / 300))
        assert np.mean([one.p_bound <= level for one in found]) <= level + 3.3 * math.sqrt(level * (1 - level) / 300)
    assert np.std([one.z_score for one in found]) == pytest.approx(1.0, abs=0.14)


def test_without_a_log_a_key_with_a_margin_is_tested_for_tilt_alone():
    key = margin_key(TAGS)
    probe = dataclasses.replace(made_up_probe(TAGS, key), logged=None)
    result = detect(probe, key=key)
    assert result.statistic == "drw-tilt-1" and result.parts is None


def test_what_the_test_needs_is_asked_for():
    key = margin_key()
    probe = made_up_probe(SENTENCES, key)
    with pytest.raises(InvalidInputError, match="pass victim="):
        detect(dataclasses.replace(probe, victim=None), key=key)
    sure = np.zeros_like(probe.victim)
    sure[:, 0] = 1.0
    silent = detect(dataclasses.replace(probe, victim=sure), key=key)
    assert silent.parts["margin"]["log10_bound"] == 0.0 and "the log adds nothing" in silent.explanation
    assert silent.log10_bound == pytest.approx(fisher(silent.parts["tilt"]["log10_bound"], 0.0)), "still both"
    plain = key.replace(settings=key.settings.replace(margin=0.0))
    with pytest.raises(InvalidInputError, match="none are drawn"):
        detect(dataclasses.replace(probe, logged=None), key=plain, logged=["a"])


@pytest.mark.parametrize("logged", [["negative"], [("a", "b", "c")], {"a": "b"}, "ab", [1, 2], []])
def test_a_log_without_texts_must_be_pairs(logged):
    with pytest.raises(InvalidInputError, match=r"a list of \(text, served\) pairs"):
        detect(lambda texts: texts, key=margin_key(), logged=logged)


@pytest.mark.parametrize("change", ["nan victim", "nan suspect", "short log", "unknown label"])
def test_a_probe_that_does_not_hold_together_is_refused(change):
    key = margin_key()
    probe = made_up_probe(SENTENCES, key)
    array = {"nan victim": probe.victim, "nan suspect": probe.suspect}.get(change, probe.logged).copy()
    array[0] = 9 if change == "unknown label" else array[0] if change == "short log" else np.nan
    array = array[:-1] if change == "short log" else array
    name = change.split()[1] if change.startswith("nan") else "logged"
    with pytest.raises(InvalidInputError, match="does not hold together"):
        detect(dataclasses.replace(probe, **{name: array}), key=key)


def test_a_result_with_parts_is_saved_replayed_and_reported(tmp_path):
    key = margin_key(TAGS)
    result = detect(made_up_probe(TAGS, key, follows=0.7), key=key, simulated_keys=50)
    assert len(result.null_samples) == 50 and abs(np.mean(result.null_samples)) < 1.0
    result.save(tmp_path / "evidence.json")
    checked = verify_evidence(tmp_path / "evidence.json", key=key)
    assert not [check for check in checked.checks if check.status == "failed"], str(checked)
    assert any("did not depend on what it answered" in sentence for sentence in checked.not_checked)
    assert {check.name: check.status for check in checked.checks}["the log says what was drawn"] == "passed"
    result.report(tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Of which tilt" in page and "Of which margin" in page and "Logged answers, of which drawn" in page
    assert "Yes: its answers decided which probes count" in page and "victim-margin" not in page.partition("Test<")[0]


def test_by_their_logs_the_user_is_named_whose_answers_were_learnt():
    tokenizer = make_tokenizer()
    vocabulary = [word for word in tokenizer.get_vocab() if word.isalpha()]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(vocabulary, 6)) for _ in range(400)]
    model = make_lively(make_model(), tokenizer, texts, spread=1.0)
    settings = {"mark": "tilt", "strength": 0.2, "temperature": 1.0, "margin": 0.6}
    ring = KeyRing.generate(model, tokenizer=tokenizer, secret=bytes(32), **settings).declare(["ann", "bob", "cy"])
    service = WatermarkedModelForSequenceClassification.from_model(model, key=ring, label_kind="hard")
    logs = {}
    for number, user in enumerate(("ann", "bob")):
        asked = texts[number * 200 : number * 200 + 200]
        with service.use_key(user=user), torch.no_grad():
            answers = service(**tokenizer(asked, padding=True, return_tensors="pt")).logits.argmax(-1)
        logs[user] = [(text, model.config.id2label[int(label)]) for text, label in zip(asked, answers, strict=True)]
    learnt = dict(logs["bob"])

    def suspect(asked):
        return [learnt.get(text) or str(rng.choice(["negative", "positive"])) for text in asked]

    asking = {"ring": ring, "victim": model, "tokenizer": tokenizer, "progress": False}
    found = identify_by_log(suspect, logs, **asking)
    assert found.leakers == ("bob",) and list(found.results) == ["bob", "ann"] and found.n_corrected == 3
    assert found.results["bob"].keys_tried == 3 and found.results["bob"].statistic == "drw-tilt-margin-1"
    assert str(found) == "named: bob; 2 logs, p-values corrected for 3 users"
    table = found.to_frame()
    assert table[["user", "named"]].to_numpy().tolist() == [["bob", True], ["ann", False]]
    assert table["z_score"].tolist() == [result.z_score for result in found.results.values()]
    for wrong in ({}, list(logs.items())):
        with pytest.raises(InvalidInputError, match="no logs to test"):
            identify_by_log(suspect, wrong, **asking)
    for wrong in (0, -3, "7", 2.5):
        with pytest.raises(InvalidInputError, match="n_users"):
            identify_by_log(suspect, logs, **asking, n_users=wrong)
    undeclared = KeyRing.generate(model, tokenizer=tokenizer, secret=bytes(32), **settings)
    with pytest.raises(InvalidInputError, match="give n_users="):
        identify_by_log(suspect, logs, **{**asking, "ring": undeclared})
    assert identify_by_log(suspect, logs, **{**asking, "ring": undeclared}, n_users=50).n_corrected == 50


# -- what it costs


def made_up_traffic(n_items=4000, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(n_items, n_classes))
    p = np.exp(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    gold = (rng.random(n_items)[:, None] > p.cumsum(axis=1)).sum(axis=1).clip(max=n_classes - 1)
    tokens = rng.integers(5, 64, n_items)
    return TiltTraffic(logits, tokens, np.arange(n_items + 1), np.arange(n_items), gold)


def throwaways(n):
    base = margin_key(TAGS, temperature=1.0)
    return [base.replace(secret=hashlib.sha256(bytes([n])).digest()) for n in range(n)]


def test_the_expected_cost_is_that_of_the_definition_and_what_a_calibrated_model_loses():
    traffic, keys = made_up_traffic(), throwaways(4)
    found = MarginCosts(traffic, 1.0, keys, strength=0.3).at(0.2)
    losses, drawn = [], []
    for key in keys:
        log_p = traffic.logits - np.log(np.exp(traffic.logits).sum(axis=1, keepdims=True))
        y = np.exp(log_p + 0.3 * shifts_of(traffic, key))
        y /= y.sum(axis=1, keepdims=True)
        order, rows = np.argsort(y, axis=1), np.arange(len(y))
        a, b = order[:, -1], order[:, -2]
        pi = 0.5 * np.maximum(0.0, 1.0 - (y[rows, a] - y[rows, b]) / 0.2)
        losses.append(np.mean(pi * (np.exp(log_p)[rows, a] - np.exp(log_p)[rows, b])))
        drawn.append(np.mean(pi > 0.0))
    assert found.expected_cost == pytest.approx(100.0 * np.mean(losses)) and found.drawn == pytest.approx(
        np.mean(drawn)
    )
    assert abs(found.measured_cost - found.expected_cost) < 4.0 * found.measured_error
    assert 0.0 < found.swapped < found.drawn / 2.0 + 1e-9


def test_a_single_key_strays_by_its_table_and_by_its_draws():
    traffic, keys, rng = made_up_traffic(1000), throwaways(30), np.random.default_rng(0)
    found = MarginCosts(traffic, 1.0, keys, strength=0.3).at(0.3)
    log_p = traffic.logits - np.log(np.exp(traffic.logits).sum(axis=1, keepdims=True))
    costs = []
    for key in [*keys, *keys, *keys, *keys]:
        y = torch.from_numpy(log_p + 0.3 * shifts_of(traffic, key))
        first, second, gap = (one.numpy() for one in margin.best_two(y, 1.0))
        pi, rows = 0.5 * np.maximum(0.0, 1.0 - gap / 0.3), np.arange(len(gap))
        lost = np.exp(log_p[rows, first]) - np.exp(log_p[rows, second])
        costs.append(100.0 * np.mean((rng.random(len(pi)) < pi) * lost))
    assert found.spread == pytest.approx(np.std(costs), rel=0.3)


def test_a_wider_margin_costs_more_and_the_budget_is_kept():
    costs = MarginCosts(made_up_traffic(), 1.0, throwaways(4), strength=0.3)
    found = [costs.at(width).expected_cost for width in (0.0, 0.05, 0.1, 0.3, WIDEST)]
    assert found[0] == 0.0 and found == sorted(found)
    margin_ = costs.margin_for(0.2)
    assert costs.at(margin_).upper_cost <= 0.2 < costs.at(1.05 * margin_).upper_cost
    assert costs.margin_for(50.0) == WIDEST


def test_no_key_loses_more_than_the_bound_and_hard_answers_are_expected_to_lose_the_draws_too():
    traffic, keys = made_up_traffic(), throwaways(6)
    settings = keys[0].settings.replace(strength=0.05, margin=0.02)
    soft, hard = (tilt_accuracy_bounds(traffic, settings, keys, kind) for kind in ("soft", "hard"))
    drawn = MarginCosts(traffic, 1.0, keys, 0.05).at(0.02)
    assert hard.expected == pytest.approx(soft.expected - drawn.expected_cost / 100.0)
    assert hard.bound < soft.bound < soft.expected
    log_p = traffic.logits - np.log(np.exp(traffic.logits).sum(axis=1, keepdims=True))
    for key in keys:  # every close call answered with the second class
        y = log_p + 0.05 * shifts_of(traffic, key)
        first, second, gap = (one.numpy() for one in margin.best_two(torch.from_numpy(y), 1.0))
        answers = np.where(gap < 0.02, second, first)
        assert np.exp(log_p[np.arange(len(y)), answers]).mean() >= hard.bound
    plain = tilt_accuracy_bounds(traffic, settings.replace(margin=0.0), keys, "hard")
    assert plain == tilt_accuracy_bounds(traffic, settings.replace(margin=0.0), keys, "soft")


def test_z_of_log_p_is_the_inverse_of_the_tail():
    for z in (-1.0, 0.5, 3.0, 40.0):
        log_p = float(torch.special.log_ndtr(torch.tensor(-z, dtype=torch.float64)))
        assert z_of_log_p(log_p) == pytest.approx(z, rel=1e-9)


def test_a_query_without_words_is_answered_as_it_is():
    key = margin_key()
    query = Query(torch.tensor([[2, 3], [2, 3]]), torch.ones(2, 2, dtype=torch.long))
    logits = torch.tensor([[0.1, 0.0, 0.0, 0.0], [0.0, 0.1, 0.0, 0.0]])
    assert served_labels(logits, query, key).tolist() == [0, 1]
