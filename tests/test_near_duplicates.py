"""What near-duplicates of a log have in common, told by their texts alone."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf.asking import texts_in_common
from drw_hf.asking.near_duplicates import own_words
from drw_hf.errors import DatasetError
from drw_hf.extraction.rewriting import Rewritten

WORDS = [f"word{number}" for number in range(400)]


def texts(n: int, length: int, seed: int = 0) -> list[list[str]]:
    """Texts of distinct words, which have little in common."""
    rng = np.random.default_rng(seed)
    return [[WORDS[one] for one in rng.choice(400, length, replace=False)] for _ in range(n)]


@pytest.mark.parametrize(("variants", "step"), [(3, None), (10, None), (3, 4), (10, 4)])
def test_what_an_attack_put_into_its_variants_is_gone(variants: int, step: int | None) -> None:
    own = [[*row, "and", "so"] for row in texts(200, 10)]
    pool = [f"other{number}" for number in range(20_000)]
    asked = [
        " ".join(row)
        for number in range(variants)
        for row in Rewritten.with_inserted(own, pool, np.random.default_rng(number), step).words
    ]
    common = texts_in_common(Dataset.from_dict({"text": asked}))["text"][:]
    wanted = {" ".join(row) for row in own}
    assert len(wanted & set(common)) >= 0.97 * len(wanted)
    assert len(common) <= 1.02 * len(wanted)


def test_texts_one_of_which_is_in_the_other_stay_apart() -> None:
    rng = np.random.default_rng(0)
    pool = [f"other{number}" for number in range(20_000)]
    own = [row for long in texts(50, 9) for row in (long, long[:7])]
    asked = [" ".join(row) for _ in range(10) for row in Rewritten.with_inserted(own, pool, rng).words]
    common = texts_in_common(Dataset.from_dict({"text": asked}))["text"][:]
    wanted = {" ".join(row) for row in own}
    assert len(wanted & set(common)) >= 0.97 * len(wanted)


def test_texts_that_have_little_in_common_lead_nowhere() -> None:
    rows = Dataset.from_dict({"text": [" ".join(row) for row in texts(300, 8)], "label": [0] * 300})
    common = texts_in_common(rows)
    assert len(common) == 0
    assert common.column_names == ["text"]


def test_words_of_taggers_and_pairs_of_texts_have_theirs() -> None:
    tagged = [["Ann", "left", "home", "so"], ["then", "Ann", "left", "home"], ["Ann", "has", "left", "home"]]
    common = texts_in_common(Dataset.from_dict({"tokens": tagged}), task="token-classification")
    assert common["tokens"][:] == [["Ann", "left", "home"]]
    pairs = {"premise": ["now it rains", "it rains so", "it rains"], "hypothesis": ["we get wet"] * 3}
    common = texts_in_common(Dataset.from_dict(pairs))
    assert common["premise"][:] == ["it rains"]
    assert common["hypothesis"][:] == ["we get wet"]


def test_a_text_that_is_asked_again_and_again_is_one() -> None:
    rows = Dataset.from_dict({"text": ["so it goes", "so it goes", "", "", "so it goes"]})
    assert texts_in_common(rows)["text"][:] == ["so it goes"]


@given(st.lists(st.lists(st.sampled_from(WORDS[:12]), max_size=8), max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_texts_own_words_are_words_that_others_have_too(rows: list[list[str]]) -> None:
    sets = [frozenset(row) for row in rows]
    for words, own in zip(sets, own_words(sets), strict=True):
        if own is not None:
            assert own <= words
            assert all(sum(word in other for other in sets) >= 2 for word in own)


def test_token_ids_have_no_words() -> None:
    with pytest.raises(DatasetError, match="give the texts that were asked"):
        texts_in_common(Dataset.from_dict({"input_ids": [[1, 2, 3]]}))
