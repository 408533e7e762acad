"""Which token an input is hashed by: padding, special tokens, pairs, and the rules that pick one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.errors import InvalidInputError, InvalidKeyError
from drw_hf.keys import HashRule, KeyedRule, RarestRule
from drw_hf.watermark.tokens import Query, hashed_tokens, view_tokens
from small_models import SPECIAL, make_key, make_model

PAD, UNK, CLS, SEP = (SPECIAL[name] for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]"))
MODEL, TAGGER = make_model(), make_model("token-classification")


def rows(*texts, left=False, mask=True, types=None):
    """A padded batch of token id lists."""
    length = max(map(len, texts))
    pads = [[PAD] * (length - len(text)) for text in texts]
    pair = zip(texts, pads, strict=True)
    ids = torch.tensor([pad + text if left else text + pad for text, pad in pair])
    ones = [[1] * len(text) for text in texts]
    pair = zip(ones, pads, strict=True)
    attention = torch.tensor([[0] * len(p) + o if left else o + [0] * len(p) for o, p in pair]) if mask else None
    return Query(ids, attention, None if types is None else torch.tensor(types), PAD)


def hashed(key, query):
    """The hashed token of every row, None where there is none."""
    ids, exists = hashed_tokens(key, query, view_tokens(key, query))
    return [int(index) if there else None for index, there in zip(ids, exists, strict=True)]


# -- second: the paper's rule

SECOND = {
    "two words or more": ([CLS, 10, 11, 12, SEP], 11),
    "one word": ([CLS, 10, SEP], 10),
    "no word": ([CLS, SEP], None),
    "no special tokens at all": ([10, 11, 12], 11),
    "unknown words do not count": ([CLS, UNK, 10, UNK, 11, SEP], 11),
    "pair: the first sentence's": ([CLS, 10, 11, SEP, 12, 13, SEP], 11),
    "pair with a one-word first sentence": ([CLS, 10, SEP, 12, 13, SEP], 10),
    "pair with two separators, as RoBERTa": ([CLS, 10, SEP, SEP, 12, 13, SEP], 10),
    "pair with an empty first sentence": ([CLS, SEP, 12, 13, SEP], 13),
}


@pytest.mark.parametrize("text, expected", SECOND.values(), ids=SECOND.keys())
@pytest.mark.parametrize("left", [False, True], ids=["right-padded", "left-padded"])
@pytest.mark.parametrize("mask", [True, False], ids=["masked", "by pad id"])
def test_second_takes_the_second_word_of_the_first_sentence(text, expected, left, mask):
    query = rows(text, [CLS, 20, 21, 22, 23, 24, 25, SEP], left=left, mask=mask)
    assert hashed(make_key(MODEL), query) == [expected, 21]


def test_segment_ids_part_a_pair_that_no_separator_parts():
    assert hashed(make_key(MODEL), rows([10, 12, 13], types=[[0, 1, 1]])) == [10]
    assert hashed(make_key(MODEL), rows([10, 12, 13], types=[[0, 0, 0]])) == [12]


def test_unknown_tokens_do_not_part_a_sentence_but_other_special_ids_do_where_nothing_else_is_known(tokenizer):
    assert hashed(make_key(MODEL, tokenizer), rows([CLS, 10, UNK, 11, SEP])) == [11]
    unaware = make_key(MODEL, special_token_ids=[PAD, UNK, CLS, SEP], separator_token_ids=None)
    assert hashed(unaware, rows([CLS, 10, UNK, 11, SEP])) == [10]


def test_an_empty_batch_and_empty_rows_are_no_error():
    key = make_key(MODEL)
    assert hashed(key, Query(torch.zeros((0, 5), dtype=torch.long), torch.zeros((0, 5)))) == []
    assert hashed(key, Query(torch.zeros((2, 0), dtype=torch.long), torch.zeros((2, 0)))) == [None, None]


# -- rarest and keyed


def test_rarest_takes_the_highest_id_of_the_whole_input():
    key = make_key(MODEL, hash_rule="rarest")
    query = rows([CLS, 40, 12, 13, SEP], [CLS, 10, SEP, 50, 11, SEP], [CLS, SEP], left=True)
    assert hashed(key, query) == [40, 50, None]


def test_rarest_goes_by_frequency_where_it_is_given_and_breaks_ties_by_id():
    frequencies = np.full(64, 100.0)
    frequencies[[12, 40]] = 3.0, 7.0
    key = make_key(MODEL, hash_rule=RarestRule(frequencies))
    assert hashed(key, rows([CLS, 40, 12, 13, SEP], [CLS, 40, 50, SEP], [CLS, 50, 51, SEP])) == [12, 40, 51]


@given(words=st.lists(st.integers(5, 63), min_size=1, max_size=12), prefix=st.lists(st.integers(5, 63), max_size=3))
def test_keyed_takes_the_first_in_a_secret_order_and_prepended_words_seldom_matter(words, prefix):
    key = make_key(MODEL, hash_rule=KeyedRule())
    order = -key.rule_scores()
    (chosen,) = hashed(key, rows([CLS, *words, SEP]))
    assert order[chosen] == min(order[word] for word in words)
    (with_prefix,) = hashed(key, rows([CLS, *prefix, *words, SEP]))
    assert with_prefix in {chosen, *prefix}


def test_keyed_orders_differ_between_secrets_and_from_the_hashes():
    first, second = (make_key(MODEL, hash_rule="keyed", secret=bytes([i]) * 32).rule_scores() for i in (1, 2))
    assert (first != second).mean() > 0.9
    key = make_key(make_model(vocab_size=30522), hash_rule="keyed")
    order = key.rule_scores()
    for table in (key.phase_table, key.selection_table):
        assert abs(np.corrcoef(order, table)[0, 1]) < 4 / np.sqrt(30522)


def test_prepended_words_fix_second_rare_ones_fix_rarest_and_few_hardly_change_keyed():
    texts = [[10 + i, 20 + i, 30 + i] for i in range(9)]
    for rule, prefix, distinct in (("second", [7, 8], 1), ("rarest", [7, 8], 9), ("rarest", [63], 1)):
        key = make_key(MODEL, hash_rule=rule)
        assert len(set(hashed(key, rows(*([CLS, *prefix, *text, SEP] for text in texts))))) == distinct
    key, rng = make_key(make_model(vocab_size=1000), hash_rule="keyed"), np.random.default_rng(0)
    texts = rng.integers(200, 1000, (200, 12)).tolist()
    alone = len(set(hashed(key, rows(*([CLS, *text, SEP] for text in texts)))))
    with_prefix = len(set(hashed(key, rows(*([CLS, 700, 800, *text, SEP] for text in texts)))))
    assert with_prefix > 0.5 * alone


def test_keyed_leaves_common_tokens_out_where_it_can():
    by_id = make_key(MODEL, hash_rule="keyed")  # 64 ids: the lowest six are common
    assert hashed(by_id, rows([CLS, 5, 30, SEP], [CLS, 5, SEP])) == [30, 5]
    frequencies = np.ones(64)
    frequencies[[20, 30]] = 1000.0, 10.0
    by_frequency = make_key(MODEL, hash_rule=KeyedRule(frequencies))
    assert hashed(by_frequency, rows([CLS, 20, 30, SEP], [CLS, 20, SEP])) == [30, 20]


@pytest.mark.parametrize("bad", [[[1.0]], [-1.0] * 64, [np.nan] * 64])
def test_frequencies_must_be_counts(bad):
    with pytest.raises(InvalidKeyError, match="count"):
        RarestRule(bad)


def test_rules_compare_by_what_they_hold_and_show_no_array():
    assert RarestRule(np.ones(3)) == RarestRule(np.ones(3)) != RarestRule(np.zeros(3))
    assert RarestRule() != KeyedRule() and repr(RarestRule(np.ones(3))) == "RarestRule()"


def test_a_rule_of_ones_own_needs_one_method():
    class FirstRule(HashRule):
        name = "test-first"

        def choose(self, tokens):
            return tokens.ordinary.int().argmax(-1)

    assert hashed(make_key(MODEL, hash_rule=FirstRule()), rows([CLS, 10, 11, SEP], [CLS, 12, SEP])) == [10, 12]


# -- token tasks


def test_a_tagger_hashes_every_word_and_nothing_else():
    key = make_key(TAGGER)
    query = rows([CLS, 10, UNK, 11, SEP], [CLS, 12, SEP], left=True)
    ids, exists = hashed_tokens(key, query, view_tokens(key, query))
    assert ids is query.input_ids
    assert exists.tolist() == [[False, True, False, True, False], [False, False, False, True, False]]


# -- which tokens are there at all


def test_without_ids_there_is_nothing_to_hash():
    with pytest.raises(InvalidInputError, match="input_ids"):
        Query(None)


@pytest.mark.parametrize("name", ["attention_mask", "token_type_ids"])
def test_inputs_of_other_shapes_are_refused(name):
    with pytest.raises(InvalidInputError, match=name):
        Query(torch.zeros((2, 3), dtype=torch.long), **{name: torch.ones(2, 1, 3, 3)})
    with pytest.raises(InvalidInputError, match="batch, length"):
        Query(torch.zeros(3, dtype=torch.long))


def test_without_a_mask_an_ordinary_pad_id_is_ambiguous():
    key = make_key(MODEL, special_token_ids=[CLS, SEP])
    with pytest.raises(InvalidInputError, match="pass attention_mask"):
        hashed(key, rows([CLS, 10, 11, SEP], [CLS, 10, SEP], mask=False))
    assert hashed(key, rows([CLS, 10, 11, SEP], mask=False)) == [11]


def test_without_a_mask_and_a_pad_id_a_batch_is_ambiguous():
    key, ids = make_key(MODEL), torch.tensor([[CLS, 10, 11, SEP]])
    assert hashed(key, Query(ids)) == [11]
    with pytest.raises(InvalidInputError, match="pass attention_mask"):
        hashed(key, Query(ids.repeat(2, 1)))
