"""Average precision, accuracy, and F1 over entities as seqeval counts it."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.experiments.ranking import average_precision, figures_of_merit
from drw_hf.experiments.tasks import TASKS, Corpus

SCORES = st.lists(st.integers(-20, 20), min_size=1, max_size=12)

# -- average precision


@pytest.mark.parametrize(
    ("positive", "negative", "value"),
    [
        ([5, 4, 3], [2, 1], 1),
        ([2], [], 1),
        ([5, 3, 1], [4, 2], (1 + 2 / 3 + 3 / 5) / 3),
        ([1, 2], [3, 4, 5], (1 / 4 + 2 / 5) / 2),
        ([1], [1], 1 / 2),
        ([1, 1], [1], 2 / 3),
        ([3, 1], [1, 0], (1 + 2 / 3) / 2),
    ],
)
def test_average_precision_is_the_mean_precision_at_the_positives(positive, negative, value):
    assert average_precision(positive, negative) == pytest.approx(value)


@given(SCORES, SCORES)
def test_it_is_1_where_all_positives_rank_above_all_negatives_and_nowhere_else(positive, negative):
    value = average_precision(positive, negative)
    assert 0 < value <= 1
    assert (value == 1) == (min(positive) > max(negative))


@given(SCORES, SCORES)
def test_a_negative_that_ties_with_positives_counts_as_above_them(positive, negative):
    assert average_precision(positive, negative) == average_precision(positive, [score + 0.5 for score in negative])
    below = average_precision(positive, [score - 0.5 for score in negative])
    assert (average_precision(positive, negative) < below) == bool(set(positive) & set(negative))


@given(SCORES, SCORES)
def test_only_the_order_of_scores_counts(positive, negative):
    def other(scores):
        return [np.exp(score / 5) - 100 for score in scores]

    assert average_precision(other(positive), other(negative)) == average_precision(positive, negative)
    assert average_precision(positive[::-1], negative[::-1]) == average_precision(positive, negative)


@given(st.permutations(range(14)), st.integers(1, 13))
def test_without_ties_it_is_the_sum_over_ranks_of_precision_times_gain_in_recall(scores, n):
    """The usual definition, as libraries have it."""
    positive = set(scores[:n])
    hits, value = 0, 0.0
    for rank, score in enumerate(sorted(scores, reverse=True), start=1):
        if score in positive:
            hits += 1
            value += hits / rank / n
    assert average_precision(scores[:n], scores[n:]) == pytest.approx(value)


def test_there_must_be_something_to_find():
    with pytest.raises(ValueError, match="at least one positive"):
        average_precision([], [1.0])


# -- what is measured of a model


def corpus_of(task, labels, rows):
    data = Dataset.from_dict({TASKS[task].gold: rows})
    return Corpus(TASKS[task], labels, data, data, data)


def test_texts_and_words_count_alike_and_taggers_have_an_f1_too():
    texts = corpus_of("sst2", ("negative", "positive"), [0, 1, 1, 0])
    assert figures_of_merit(texts, [0, 1, 0, 0]) == {"accuracy": 3 / 4}
    words = corpus_of("pos", ("DT", "NN"), [[0, 1, 1], [1]])
    # By seqeval DT NN NN is T, N over two words; DT NN DT is T, N, T.
    assert figures_of_merit(words, [[0, 1, 0], [1]]) == pytest.approx({"accuracy": 3 / 4, "f1": 2 * 2 / (4 + 3)})
    tags = corpus_of("ner", ("B-PER", "I-PER", "O"), [[0, 1, 2], [2, 0]])
    assert figures_of_merit(tags, [[0, 1, 2], [0, 0]]) == {"accuracy": 4 / 5, "f1": 2 * 2 / (3 + 2)}


def test_an_entity_is_right_only_whole_and_of_its_kind():
    def f1(gold, predicted):
        return figures_of_merit(corpus_of("ner", ("B-PER", "I-PER", "B-LOC", "O"), gold), predicted)["f1"]

    gold = [[0, 1, 3, 2]]
    assert f1(gold, gold) == 1
    assert f1(gold, [[0, 3, 3, 2]]) == 1 / 2
    assert f1(gold, [[0, 1, 3, 0]]) == 1 / 2
    assert f1(gold, [[3, 3, 3, 3]]) == 0
    assert f1([[3]], [[3]]) == 0


def test_a_word_beyond_the_models_limit_is_wrong_and_no_entity():
    tags = corpus_of("ner", ("B-PER", "I-PER", "O"), [[0, 2, 2]])
    assert figures_of_merit(tags, [[0, 2, -1]]) == {"accuracy": 2 / 3, "f1": 1}
