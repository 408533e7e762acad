"""Attacks that look at all answers with their texts: leaning words, votes, recovered tables, shadow marks."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.asking.words import Words
from drw_hf.extraction.attacks import attack_named
from drw_hf.extraction.attacks.tables import majority_per_word, without_lean
from drw_hf.extraction.recovery import leaning, leans_of, log_odds, moved, recover
from drw_hf.extraction.stolen import Stolen, answers_in, with_answers
from drw_hf.extraction.thief import Thief
from small_thief import RECIPE, SmallService, make_texts

LABELS = ("a", "b", "c")


def dirichlet(n, m, seed, sharpness=0.5):
    return np.random.default_rng(seed).dirichlet(np.full(m, sharpness), n)


def one_word_each(tokens):
    tokens = np.asarray(tokens)
    return Words(np.arange(len(tokens)), tokens, np.ones(len(tokens)), len(tokens))


def many_words(n, per_text, vocabulary, seed):
    rng = np.random.default_rng(seed)
    tokens = np.concatenate([rng.permutation(vocabulary)[:per_text] for _ in range(n)])
    return Words(np.repeat(np.arange(n), per_text), tokens, np.full(n * per_text, per_text**-0.5), n)


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**31))
def test_debiased_of_one_word_per_answer_no_word_leans(m, vocabulary, seed):
    answers = dirichlet(60, m, seed, 5.0)
    tokens, top = np.random.default_rng(seed).integers(vocabulary, size=60), answers.argmax(axis=1)
    made = without_lean(answers, one_word_each(tokens))
    np.testing.assert_allclose(made.sum(axis=1), 1.0)
    before, after = log_odds(answers, top), log_odds(made, top)
    for best in np.unique(top):
        for token in np.unique(tokens[top == best]):
            group = (top == best) & (tokens == token)
            assert after[group].mean() == pytest.approx(before[top == best].mean(), abs=1e-3)
            np.testing.assert_allclose(np.diff(after[group]), np.diff(before[group]), atol=1e-3)


def test_debiased_of_many_words_per_answer_a_word_leans_less():
    words, m = many_words(2000, 6, 40, seed=1), 2
    lean = np.random.default_rng(2).standard_normal(40)
    carried = words.sums(lambda tokens: lean[tokens][:, None])[:, 0]
    odds = 2.0 + carried + 0.3 * np.random.default_rng(3).standard_normal(2000)
    p = 1 / (1 + np.exp(-odds))
    made = without_lean(np.stack([1 - p, p], axis=1), words)
    kept = p > 0.5
    assert np.corrcoef(carried[kept], odds[kept])[0, 1] > 0.9
    assert abs(np.corrcoef(carried[kept], log_odds(made, np.ones(2000, int))[kept])[0, 1]) < 0.1
    assert m == made.shape[1]


@given(st.integers(2, 5), st.integers(0, 2**31), st.floats(-3, 3))
def test_leaning_moves_the_log_odds_of_the_top_class_alone(m, seed, shift):
    answers = dirichlet(30, m, seed, 1.0)
    made, top = leaning(answers, np.full(30, shift)), answers.argmax(axis=1)
    np.testing.assert_allclose(log_odds(made, top) - log_odds(answers, top), shift, atol=1e-4)
    others = np.arange(m) != top[:, None]
    shares = [table[others].reshape(30, -1) for table in (answers, made)]
    np.testing.assert_allclose(*(share / share.sum(axis=1, keepdims=True) for share in shares), rtol=1e-6)


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-1, 3)), max_size=6), min_size=1, max_size=8),
)
def test_voted_each_word_has_one_label_and_it_is_one_that_it_had_most_often(rows):
    texts, labels = [[word for word, _ in row] for row in rows], [[label for _, label in row] for row in rows]
    voted = majority_per_word(texts, labels)
    for word in "xyz":
        given_, made = (
            [
                label
                for words, row in zip(texts, table, strict=True)
                for w, label in zip(words, row, strict=True)
                if w == word
            ]
            for table in (labels, voted)
        )
        assert [label < 0 for label in made] == [label < 0 for label in given_], "what was not answered stays so"
        answered = [label for label in given_ if label >= 0]
        assert {label for label in made if label >= 0} <= {
            label for label in answered if answered.count(label) == max(map(answered.count, answered))
        }
        assert len({label for label in made if label >= 0}) <= 1


@pytest.mark.parametrize("per_text", [1, 5])
def test_a_table_is_recovered_from_answers_that_differ_by_nothing_else_and_removed(per_text):
    m, vocabulary, n = 4, 500, 6000
    words = many_words(n, per_text, vocabulary, seed=4)
    table = np.random.default_rng(5).standard_normal((vocabulary, m))
    table -= table.mean(axis=1, keepdims=True)
    clean = dirichlet(n, m, 6, 50.0)  # nearly the same everywhere
    marked = moved(clean, 0.5 * words.sums(lambda tokens: table[tokens]))
    found = recover(words, marked)
    assert np.corrcoef(found.table(vocabulary)[found.token_ids].ravel(), table[found.token_ids].ravel())[0, 1] > 0.97
    left = moved(marked, -found.of(words))
    centred = [np.log(one) - np.log(one).mean(axis=1, keepdims=True) for one in (clean, marked, left)]
    assert np.abs(centred[2] - centred[0]).mean() < 0.35 * np.abs(centred[1] - centred[0]).mean()
    unseen = Words(np.zeros(1, int), np.array([10**6]), np.ones(1), 1)
    np.testing.assert_array_equal(found.of(unseen), np.zeros((1, m)))


def test_a_table_is_recovered_better_with_a_model_of_ones_own():
    m, vocabulary, n = 3, 200, 1500
    words, own = many_words(n, 4, vocabulary, seed=7), dirichlet(n, m, 8, 1.0)
    table = np.random.default_rng(9).standard_normal((vocabulary, m))
    marked = moved(own, 0.5 * words.sums(lambda tokens: table[tokens]))
    table -= table.mean(axis=1, keepdims=True)

    def likeness(found):
        return np.corrcoef(found.shifts.ravel(), table[found.token_ids].ravel())[0, 1]

    assert likeness(recover(words, marked, own)) > likeness(recover(words, marked)) + 0.1


def test_a_student_that_stopped_early_explains_an_answer_without_any_right_label(monkeypatch):
    service = SmallService()
    thief, attack, trained = service.thief(gold=None), attack_named("subtract-table-young"), []
    train = Thief.train

    def watched(thief, rows, *args, **options):
        trained.append(options["recipe"].epochs)
        return train(thief, rows, *args, **options)

    monkeypatch.setattr(Thief, "train", watched)
    rows = attack.ask(thief)
    changed = attack.change(rows, thief)
    assert trained == [RECIPE.epochs / 4], "and not for longer: later it has learnt the mark, too"
    assert not np.allclose(Stolen(changed).answers, Stolen(rows).answers, atol=1e-3)
    assert attack.gold == 0.0 and attack_named("subtract-table-young-1.25").times == 1.25


def test_the_lean_of_the_papers_mark_is_recovered_and_what_a_model_of_ones_own_explains_is_not():
    vocabulary, n = 50, 3000
    words = one_word_each(np.random.default_rng(1).integers(vocabulary, size=n))
    lean, own = np.random.default_rng(2).standard_normal(vocabulary), dirichlet(n, 2, 3, 1.0)
    marked = leaning(own, lean[words.token_ids] * (own.argmax(axis=1) == 1))
    same = marked.argmax(axis=1) == own.argmax(axis=1)
    words = one_word_each(words.token_ids[same])
    plain, with_own = (leans_of(marked[same], words, 0.25, one).table(vocabulary)[:, 1] for one in (None, own[same]))
    likeness = [np.corrcoef(found, lean)[0, 1] for found in (plain, with_own)]
    assert likeness[1] > 0.95 and likeness[1] > likeness[0] > 0.5


@pytest.mark.parametrize(("mark", "counts"), [("tilt", [1, 4, 0, 1]), ("cosine", [1, 1, 0, 1])])
def test_what_carries_the_mark_of_a_text_is_what_the_method_says(mark, counts):
    texts = Dataset.from_dict({"text": ["good", "the film was good the", "", "bad " * 60]})
    thief = SmallService("texts", "soft", mark).thief(texts=texts)
    words = thief.carriers(thief.ask(texts))
    assert words.counts.tolist() == counts
    np.testing.assert_allclose(words.shares, np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts))
    if mark == "cosine":  # the second word
        assert words.token_ids[1] == thief.tokenizer.convert_tokens_to_ids("film")


def test_of_a_tagger_each_answered_word_carries_the_mark_with_its_first_token():
    thief = SmallService("tags").thief()
    rows = thief.ask(thief.texts)
    words = thief.carriers(rows)
    answered = [
        word
        for row, table in zip(rows["tokens"], answers_in(rows), strict=True)
        for word in row[: int(table.any(1).sum())]
    ]
    assert words.n_probes == len(answered) == len(Stolen(rows).answers)
    known = [place for place, word in enumerate(answered) if word != "zzz"]
    assert words.probes.tolist() == known, "an unknown word carries none"
    assert words.token_ids.tolist() == thief.tokenizer.convert_tokens_to_ids([answered[place] for place in known])


# -- what is learnt from


def test_uncertain_answers_are_dropped_and_the_sure_ones_are_labels():
    texts = Dataset.from_dict({"text": ["sure", "not sure"]})
    rows = with_answers(texts, [np.array([0.9, 0.1, 0.0]), np.array([0.5, 0.4, 0.1])], LABELS)
    made = attack_named("drop-uncertain").change(rows, SmallService().thief(texts=texts))
    assert made["text"][:] == ["sure"] and made["teacher_probs"][:] == [[1.0, 0.0, 0.0]]


def test_noise_is_that_of_its_seed_and_is_centred():
    thief = SmallService().thief()
    rows = thief.ask(thief.texts)
    noisy = [np.stack(answers_in(attack_named("noise").change(rows, thief))) for _ in range(2)]
    np.testing.assert_array_equal(*noisy)
    moves = np.diff(np.log(noisy[0]) - np.log(np.stack(answers_in(rows))), axis=1)
    assert 0 < abs(moves).min() and abs(moves.mean()) < 0.6 and 0.3 < moves.std() < 1.3


@pytest.mark.parametrize("name", ["learn-to-invert", "partial-bayes"])
def test_shadow_marks_teach_a_thief_to_take_the_papers_mark_off(name):
    """Of three classes and more the others' equal shares show, and whoever sees both sides learns to take them off."""
    service = SmallService("tags", "soft", "cosine")
    service.keys = [key.replace(epsilon=0.3, tau=1.0, scope="all") for key in service.keys]
    texts = make_texts("tags", 200)
    thief = service.thief(texts=texts, new_key=lambda: service.keys[1])
    thief.train = lambda rows, **_: thief_student  # the thief's own model is as good as the service's
    thief_student = thief.new_student().with_model(service.model)
    rows, clean = thief.ask(texts), Stolen(thief.answers_of(service.model, texts)).answers
    made = Stolen(attack_named(name).change(rows, thief)).answers
    before, after = (np.abs(one - clean).sum(axis=1).mean() for one in (Stolen(rows).answers, made))
    assert after < 0.8 * before
