"""What near-duplicates of a log have in common, told by their texts alone."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf.asking import texts_in_common
from drw_hf.asking.near_duplicates import groups_of
from drw_hf.errors import DatasetError
from drw_hf.extraction.rewriting import Rewritten

WORDS = [f"word{number}" for number in range(400)]


def texts(n: int, length: int, seed: int = 0) -> list[list[str]]:
    """Texts of distinct words, which have little in common."""
    rng = np.random.default_rng(seed)
    return [[WORDS[one] for one in rng.choice(400, length, replace=False)] for _ in range(n)]


@pytest.mark.parametrize(("variants", "step"), [(3, None), (10, None), (3, 4), (10, 4)])
def test_what_an_attack_put_into_its_variants_is_gone(variants: int, step: int | None) -> None:
    own = texts(200, 12)
    pool = [f"other{number}" for number in range(20_000)]
    asked = [
        " ".join(row)
        for number in range(variants)
        for row in Rewritten.with_inserted(own, pool, np.random.default_rng(number), step).words
    ]
    common = texts_in_common(Dataset.from_dict({"text": asked}))["text"][:]
    wanted = [" ".join(row) for row in own]
    assert len(common) <= 1.02 * len(wanted)  # a variant in a hundred is not recognised
    assert len(set(common) & set(wanted)) >= 0.98 * len(wanted)


def test_texts_that_have_little_in_common_stay_as_they_are() -> None:
    rows = Dataset.from_dict({"text": [" ".join(row) for row in texts(300, 8)], "label": [0] * 300})
    common = texts_in_common(rows)
    assert common["text"][:] == rows["text"][:]
    assert common.column_names == ["text"]


def test_words_of_taggers_and_pairs_of_texts_have_theirs() -> None:
    tagged = Dataset.from_dict({"tokens": [["Ann", "left", "so"], ["Ann", "left"], ["Ann", "then", "left"]]})
    assert texts_in_common(tagged, task="token-classification")["tokens"][:] == [["Ann", "left"]]
    pairs = Dataset.from_dict({"premise": ["it rains now", "it rains"], "hypothesis": ["we get wet", "we get wet"]})
    common = texts_in_common(pairs)
    assert common["premise"][:] == ["it rains"]
    assert common["hypothesis"][:] == ["we get wet"]


def test_a_text_that_is_asked_twice_is_one() -> None:
    rows = Dataset.from_dict({"text": ["so it goes", "so it goes", "", ""]})
    assert texts_in_common(rows)["text"][:] == ["so it goes", ""]


@given(st.lists(st.lists(st.sampled_from(WORDS[:12]), max_size=8), max_size=20))
@settings(max_examples=60, deadline=None)
def test_every_text_is_in_one_group_and_like_its_first(rows: list[list[str]]) -> None:
    groups = groups_of(rows)
    assert sorted(number for group in groups for number in group) == list(range(len(rows)))
    for group in groups:
        assert group == sorted(group)
        for number in group:
            together = set(rows[group[0]]) | set(rows[number])
            assert 2 * len(set(rows[group[0]]) & set(rows[number])) >= len(together)


def test_token_ids_have_no_words() -> None:
    with pytest.raises(DatasetError, match="give the texts that were asked"):
        texts_in_common(Dataset.from_dict({"input_ids": [[1, 2, 3]]}))
