"""Attacks on queries: what is asked in place of the thief's texts, and whose answer becomes whose."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from drw_hf.extraction.attacks import attack_named
from drw_hf.extraction.attacks.queries import merged, neutral_words, respellings, salad, shifted_to, spellings_of
from drw_hf.extraction.rewriting import Rewritten, neighbours_of
from drw_hf.extraction.stolen import answers_in, with_answers
from drw_hf.extraction.students import train_tokenizer
from small_models import make_tokenizer
from small_thief import SmallService

TEXTS = st.lists(st.lists(st.sampled_from("the film was good and bad".split()), max_size=8), min_size=1, max_size=5)
POOL = ["zero", "one", "two"]


def rng(seed):
    return np.random.default_rng(seed)


# -- texts in other words


@given(TEXTS, st.integers(0, 99), st.sampled_from([None, 1, 4]))
def test_near_duplicates_keep_all_words_and_say_where_each_comes_from(texts, seed, step):
    made = Rewritten.with_inserted(texts, POOL, rng(seed), step)
    for row, words, origins in zip(texts, made.words, made.origins, strict=True):
        assert [place for place in origins if place >= 0] == list(range(len(row)))
        assert [word for word, place in zip(words, origins, strict=True) if place >= 0] == row
        added = [word for word, place in zip(words, origins, strict=True) if place < 0]
        assert set(added) <= set(POOL) and len(added) == (1 if step is None else len(range(0, len(row) + 1, step)))


@given(TEXTS, st.data())
def test_words_are_replaced_by_none_one_or_several_of_which_the_first_stands_for_them(texts, data):
    change = st.sampled_from([None, [], ["x"], ["x", "y"]])
    wanted = [[data.draw(change) for _ in row] for row in texts]
    queue = iter([one for row in wanted for one in row])
    made = Rewritten.of(texts, lambda place, word: next(queue))
    for row, changes, words, origins in zip(texts, wanted, made.words, made.origins, strict=True):
        said = [
            ([word], [place]) if new is None else (new, [place, -1][: len(new)])
            for place, (word, new) in enumerate(zip(row, changes, strict=True))
        ]
        assert words == [word for part, _ in said for word in part]
        assert origins == [place for _, part in said for place in part]


@given(TEXTS)
def test_words_put_around_a_text_are_nobodys(texts):
    made = Rewritten.between(["before"], texts, ["after", "that"])
    for row, words, origins in zip(texts, made.words, made.origins, strict=True):
        assert words == ["before", *row, "after", "that"] and origins == [-1, *range(len(row)), -1, -1]


def test_a_stand_in_stands_in_the_same_company():
    rows = [
        [first, animal, second] for first in ("a", "the") for second in ("runs", "sleeps") for animal in ("cat", "dog")
    ] * 9
    rows += [["we", verb, "it"] for verb in ("like", "hate")] * 9
    alike = neighbours_of(rows)
    assert (alike["cat"], alike["dog"], alike["like"], alike["hate"]) == ("dog", "cat", "hate", "like")
    assert neighbours_of([["alone"]]) == {"alone": "alone"}


def test_dropped_words_are_a_third_and_never_all():
    thief = SmallService("tags").thief()
    made = attack_named("drop-words").rewrite(0, thief)
    assert all(words[:1] == row[:1] for words, row in zip(made.words, thief.words, strict=True))
    assert 0.5 < sum(map(len, made.words)) / sum(map(len, thief.words)) < 0.9


# -- what several answers say together


@given(st.integers(1, 5), st.integers(2, 4), st.integers(0, 2**31))
def test_together_labels_are_the_majoritys(rounds, m, seed):
    labels = rng(seed).integers(-1, m, size=(rounds, 6))
    table = np.vstack([np.eye(m), np.zeros(m)])
    (made,) = merged([[table[row]] for row in labels], "hard")
    for column, answer in zip(labels.T, made, strict=True):
        answered = column[column >= 0].tolist()
        if not answered:
            assert not answer.any()
        else:
            assert answer.sum() == 1 and answered.count(answer.argmax()) == max(map(answered.count, answered))


@given(st.integers(1, 4), st.integers(2, 5), st.integers(0, 2**31))
def test_together_scores_are_geometric_means_of_those_that_were_given(rounds, m, seed):
    tables = rng(seed).dirichlet(np.ones(m), (rounds, 5))
    tables[0, 0] = 0.0
    (made,) = merged([[table] for table in tables], "soft")
    for place in range(5):
        given_ = [table[place] for table in tables if table[place].any()]
        if not given_:
            assert not made[place].any()
            continue
        mean = np.exp(np.mean(np.log(np.maximum(given_, 1e-6)), axis=0))
        np.testing.assert_allclose(made[place], mean / mean.sum(), rtol=1e-6)


@given(st.integers(2, 5), st.integers(0, 2**31))
def test_with_classes_of_equal_shares_what_all_answers_have_in_common_is_gone(m, seed):
    answers = rng(seed).dirichlet(np.ones(m), 200)
    common = np.exp(rng(seed + 1).standard_normal(m))
    marked = answers * common
    marked /= marked.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shifted_to(marked, answers.mean(axis=0)), answers, atol=2e-3)


def test_neutral_words_are_those_that_say_nothing_and_are_known_to():
    words = [
        ["the", "good" if good else "bad", *(["once"] if row == 0 else [])] for row, good in enumerate([1, 0] * 50)
    ]
    answers = np.array([[0.1, 0.9] if "good" in row else [0.9, 0.1] for row in words])
    assert neutral_words(words, answers, 1) == ["the"]
    assert neutral_words(words, answers, 4)[-1] == "once", "of which little is known"


# -- spellings


def test_other_spellings_are_other_tokens_and_as_many_as_there_are():
    words = ["film", "good", "books", "A1", "12", "a"]
    cased = train_tokenizer(["The film was good FILM Film good"] * 9, 400, 64)
    found = respellings(words, cased)
    for word in words:
        assert set(found[word]) <= set(spellings_of(word)) - {word}
        firsts = [cased(f" {one}", add_special_tokens=False)["input_ids"][0] for one in (word, *found[word])]
        assert len(set(firsts)) == len(firsts) and cased.unk_token_id not in firsts
    assert len(found["film"]) == 3 and found["film"][0] == "Film"


def test_a_tokenizer_that_knows_words_alone_reads_no_other_spelling():
    assert respellings(["film", "good"], make_tokenizer()) == {"film": [], "good": []}
    assert respellings([], make_tokenizer()) == {}


def test_pieces_of_words_leave_typing_errors():
    pieces = {
        token: place for place, token in enumerate(["[UNK]", "film", "fi", "f", "##lm", "##m", "##lim", "##i", "##l"])
    }
    backend = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    found = respellings(["film"], PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]"))
    assert found["film"] and all(one != "film" and sorted(set(one)) == sorted(set("film")) for one in found["film"])


def test_asked_in_other_spellings_a_word_is_itself_once():
    thief = SmallService("tags").thief()
    first, second = (attack_named("spellings").rewrite(number, thief) for number in (0, 1))
    assert first.words == thief.words and len(second.words) == len(thief.words)
    assert first.origins == [list(range(len(row))) for row in thief.words] == second.origins


# -- what is asked


def asked(thief):
    """The texts that the log of the first account shows."""
    (log,) = thief.log
    return log


def test_both_texts_of_a_pair_are_rewritten():
    texts = Dataset.from_dict({"premise": ["the film was good"] * 4, "hypothesis": ["we liked the plot"] * 4})
    thief = SmallService("pairs").thief(texts=texts)
    rows = attack_named("prepend").ask(thief)
    assert rows.select_columns(thief.columns)[:] == texts[:], "it learns its own texts"
    for name in thief.columns:
        assert all(
            len(said.split()) == 6 and said.endswith(own)
            for said, own in zip(asked(thief)[name], texts[name], strict=True)
        )


def test_joined_texts_are_two_of_the_thiefs_and_a_tagger_learns_its_own():
    texts = Dataset.from_dict({"premise": ["a b", "c", "d"], "hypothesis": ["e", "f", "g"]})
    thief = SmallService("pairs").thief(texts=texts)
    rows = attack_named("join-texts").ask(thief)
    assert [rows[name][:] for name in thief.columns] == [["a b c"], ["e f"]]
    words = Dataset.from_dict({"tokens": [["the", "film"], ["was", "good", "and"], ["dull"]]})
    thief = SmallService("tags").thief(texts=words)
    rows = attack_named("join-texts").ask(thief)
    assert rows["tokens"][:] == words["tokens"][:2] and [len(one) for one in answers_in(rows)] == [2, 3]
    np.testing.assert_allclose(np.concatenate(answers_in(rows)), answers_in(asked(thief))[0])


def test_masked_tokens_are_never_in_the_log():
    for case in ("texts", "pairs"):
        thief = SmallService(case).thief()
        special, whole = set(thief.tokenizer.all_special_ids), []
        service, seen = thief.service, []
        thief.service = lambda rows, account, service=service, seen=seen: (seen.append(rows), service(rows, account))[
            1
        ]
        rows = attack_named("masked-ids").ask(thief)
        (given_,) = seen
        for row, shown in zip(given_, asked(thief), strict=True):
            kept = [token for token, one in zip(row["input_ids"], row["attention_mask"], strict=True) if one]
            assert shown["input_ids"] == kept and special & set(row["input_ids"]) <= set(kept)
            assert len(shown["token_type_ids"]) == len(kept)
            whole += [(len(kept), len(row["input_ids"]))]
        ordinary = [
            (some - (3 if case == "pairs" else 2), every - (3 if case == "pairs" else 2)) for some, every in whole
        ]
        assert 0.5 < sum(some for some, _ in ordinary) / sum(every for _, every in ordinary) < 0.9
        assert rows.select_columns(thief.columns)[:] == thief.texts[:]


@pytest.mark.parametrize(("name", "token"), [("typed-unk", "[UNK]"), ("typed-sep", "[SEP]")])
def test_special_tokens_are_typed_among_the_words_and_read_as_such(name, token):
    thief = SmallService("tags").thief()
    attack_named(name).ask(thief)
    typed = [word for row in asked(thief)["tokens"] for word in row].count(token)
    assert 0.2 < typed / sum(map(len, thief.words)) < 0.4
    ids = thief.tokenizer([token], is_split_into_words=True, add_special_tokens=False)["input_ids"]
    assert ids == [thief.tokenizer.convert_tokens_to_ids(token)]


def test_a_salad_has_the_words_and_lengths_of_the_texts():
    words = [["a", "b"], [], ["c"] * 7]
    made = salad(words, rng(0))
    assert [len(row) for row in made] == [2, 1, 7] and {word for row in made for word in row} <= {"a", "b", "c"}


def test_few_queries_are_a_tenth_and_single_words_are_all_there_are():
    thief = SmallService().thief()
    assert len(attack_named("few-queries").ask(thief)) == 2
    thief.log.clear()
    rows = attack_named("single-words").ask(thief)
    assert rows["text"][:] == thief.vocabulary


def test_a_suffix_is_as_long_as_texts_bear_it():
    """A service that looks at nothing but the number of words: with many more it says something else."""
    service = SmallService("texts", "hard")
    texts = Dataset.from_dict({"text": ["we liked the film", "they hated the book", "a dull story"] * 20})
    lengths = []

    def answer(rows, account):
        lengths.append(max(len(text.split()) for text in rows["text"]))
        says = [[1.0, 0.0] if len(text.split()) < 12 else [0.0, 1.0] for text in rows["text"]]
        return with_answers(rows, [np.array(row) for row in says], service.keys[0].labels)

    thief = service.thief(texts=texts, service=answer)
    rows = attack_named("suffix").ask(thief)
    assert lengths == [4, 14, 14, 14, 9, 9], "all ten words that there are, then five"
    assert rows["text"][:] == texts["text"][:]
