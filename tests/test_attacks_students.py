"""Attacks on training and on the finished student, what a suspect answers, and forgeries."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.errors import InvalidInputError
from drw_hf.extraction.attacks import attack_named
from drw_hf.extraction.attacks.forgery import Framed
from drw_hf.extraction.attacks.students import pruned
from drw_hf.extraction.stolen import answers_in
from drw_hf.extraction.students import Ensemble, Student
from small_models import make_batch, make_model
from small_thief import SmallService, make_texts

FITTED = ("serves-rounded", "serves-noise", "serves-labels", "refuses-close-calls")


def weights_of(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def distributions(m, seed, n=50):
    return np.random.default_rng(seed).dirichlet(np.full(m, 0.4), n)


# -- weights


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_pruned_are_the_smallest_weights_of_every_matrix_and_nothing_else(share):
    model = make_model()
    before = weights_of(model)
    after = weights_of(pruned(model, share))
    for name, weights in before.items():
        torch.testing.assert_close(dict(model.named_parameters())[name], weights)  # the student itself stays
        gone = (after[name] == 0) & (weights != 0)
        torch.testing.assert_close(after[name][~gone], weights[~gone])
        if weights.ndim == 2:
            assert (after[name] == 0).float().mean().item() == pytest.approx(share, abs=0.02)
            assert not gone.any() or weights[gone].abs().max() <= weights[~gone & (weights != 0)].abs().min()
        else:
            assert not gone.any()


@pytest.mark.parametrize("name", ["int8", "weight-noise"])
def test_matrices_alone_are_rounded_or_made_noisy(name):
    thief = SmallService().thief()
    student = Student(make_model(), thief.tokenizer)
    before = weights_of(student.model)
    after = weights_of(attack_named(name).alter(student, thief).model)
    again = weights_of(attack_named(name).alter(student, thief).model)
    for key, weights in before.items():
        torch.testing.assert_close(dict(student.model.named_parameters())[key], weights)
        torch.testing.assert_close(after[key], again[key])
        if weights.ndim != 2:
            torch.testing.assert_close(after[key], weights)
        elif name == "int8":
            step = weights.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
            assert ((after[key] - weights).abs() <= 0.5001 * step).all()
            assert all(len(row.unique()) <= 255 for row in after[key])
        else:
            spread = (after[key] - weights).std() / weights.std()
            assert 0.05 < spread < 0.15


def test_an_ensemble_answers_with_the_mean_of_its_members():
    models, batch = [make_model(seed=seed) for seed in (1, 2, 3)], make_batch()
    with torch.no_grad():
        shares = torch.stack([model(**batch).logits.softmax(-1) for model in models])
        torch.testing.assert_close(Ensemble(models)(**batch).logits.softmax(-1), shares.mean(0))


# -- what a suspect answers


@given(st.sampled_from(FITTED), st.integers(2, 8), st.integers(0, 2**31))
def test_a_suspect_answers_with_distributions_or_refuses(name, m, seed):
    before = distributions(m, seed)
    kept = before.copy()
    after = attack_named(name).answer(before, np.random.default_rng(seed))
    np.testing.assert_array_equal(before, kept)
    sums = after.sum(axis=1)
    assert (after >= 0).all() and (np.isclose(sums, 1) | (sums == 0)).all()
    if name == "serves-rounded":
        assert (after.argmax(axis=1) == before.round(1).argmax(axis=1))[before.round(1).any(axis=1)].all()
    if name == "serves-labels":
        assert ((after == 1).sum(axis=1) == 1).all() and (after.argmax(axis=1) == before.argmax(axis=1)).all()
    if name == "refuses-close-calls":
        best = np.sort(before, axis=1)
        assert ((sums == 0) == (best[:, -1] - best[:, -2] < 0.6)).all()
        np.testing.assert_array_equal(after[sums > 0], before[sums > 0])
    else:
        assert (sums > 0).all()


# -- training


def test_gold_labels_are_mixed_in_and_only_the_rest_is_asked():
    thief = SmallService().thief()
    for name, share in (("marked-5", 0.05), ("marked-10", 0.1), ("marked-20", 0.2), ("gold-20", 0.8)):
        thief.log.clear()
        rows = attack_named(name).ask(thief)
        n = max(1, round(share * len(thief.texts)))
        assert [len(log) for log in thief.log] == [n] and len(rows) == len(thief.texts)
        numbers = [int(answer.argmax()) for answer in answers_in(rows)][n:]
        assert numbers == [int(one[0]) for one in thief.gold[n:]] and all(
            answer.max() == 1 for answer in answers_in(rows)[n:]
        )


def test_three_accounts_are_three_keys_of_which_one_has_the_log():
    thief = SmallService().thief()
    asked, service = [], thief.service
    thief.service = lambda texts, account: (asked.append(account), service(texts, account))[1]
    rows = attack_named("three-accounts").ask(thief)
    assert asked == [0, 1, 2] and len(thief.log) == 1
    logs = [np.log(np.stack(answers_in(service(thief.texts, account)))) for account in range(3)]
    mean = np.exp(np.mean(logs, axis=0))
    np.testing.assert_allclose(np.stack(answers_in(rows)), mean / mean.sum(axis=1, keepdims=True), atol=1e-5)


# -- forgeries


@pytest.mark.parametrize("by_word", [False, True])
@pytest.mark.parametrize("top_alone", [False, True])
def test_a_framed_model_has_the_innocents_weights_and_the_tables_shifts(by_word, top_alone):
    task = "token-classification" if by_word else "sequence-classification"
    model, batch = make_model(task), make_batch()
    before, m = weights_of(model), model.config.num_labels
    table = np.random.default_rng(0).standard_normal((64, m)).astype(np.float32)
    framed = Framed(model, table, lambda inputs: inputs["input_ids"] > 4, by_word, top_alone)
    with torch.no_grad():
        plain, moved = model(**batch).logits, framed(**batch).logits
    for name, weights in weights_of(framed.model).items():
        torch.testing.assert_close(weights, before[name])
    for row, logits, shifted in zip(batch["input_ids"], plain, moved, strict=True):
        if by_word:
            expected = torch.from_numpy(table)[row] * (row > 4)[:, None]
        else:
            distinct = row[row > 4].unique()
            expected = torch.from_numpy(table)[distinct].sum(0) / len(distinct) ** 0.5
        if top_alone:
            expected = expected * (logits == logits.amax(-1, keepdim=True))
        torch.testing.assert_close(shifted - logits, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mark", ["tilt", "cosine"])
def test_framing_leaves_the_innocent_as_it_is_and_moves_its_answers_towards_the_services(mark):
    texts = make_texts("tags", 150)
    service = SmallService("tags", "soft", mark)
    thief = service.thief(texts=texts)
    innocent = Student(copy.deepcopy(service.model), thief.tokenizer)
    thief.innocent = lambda: innocent
    before = weights_of(innocent.model)
    framed = attack_named("frame-innocent").train(thief.ask(texts), thief)
    for name, weights in weights_of(innocent.model).items():
        torch.testing.assert_close(weights, before[name])
    plain, forged = (np.concatenate(answers_in(thief.answers_of(one, texts))) for one in (innocent, framed))
    marked = np.concatenate(answers_in(service.answer(texts, 0)))
    plain, forged, marked = (one[marked.any(axis=1)] for one in (plain, forged, marked))
    top = plain.argmax(axis=1)
    rows = np.arange(len(top))
    lean, forgery = (np.log(one[rows, top]) - np.log(plain[rows, top]) for one in (marked, forged))
    carries = np.abs(lean) > 1e-3
    assert np.corrcoef(lean[carries], forgery[carries])[0, 1] > 0.5


def test_a_customer_frames_another_with_the_answers_of_its_own_account():
    thief = SmallService().thief()
    attack_named("frame-customer").ask(thief)
    assert thief.log == []


def test_a_key_after_the_fact_is_looked_for_on_a_model_that_asked_nothing():
    attack, thief = attack_named("key-after-the-fact"), SmallService().thief()
    assert attack.tries == 100 and attack.ask(thief) is thief.texts and thief.log == []


def test_a_table_of_other_tokens_frames_nobody():
    thief = SmallService().thief()
    other = SmallService().thief().tokenizer
    other.add_tokens(["another"])
    thief.innocent = lambda: Student(make_model(), other)
    with pytest.raises(InvalidInputError, match="the innocent model reads others"):
        attack_named("frame-innocent").train(thief.ask(thief.texts), thief)
