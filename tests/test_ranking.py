"""Average precision, and F1 over entities as seqeval counts it."""

import warnings

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from seqeval.metrics.sequence_labeling import get_entities

from drw_hf.experiments.ranking import average_precision, entities, entity_f1, figures_of_merit
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


# -- entities

KINDS = ("PER", "LOC", "MISC")
BROKEN = st.lists(st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in KINDS)]), max_size=12)
IOB2 = st.lists(st.tuples(st.sampled_from(["O", *KINDS]), st.integers(1, 3)), max_size=6).map(
    lambda runs: ["O" if kind == "O" else f"{'I' if place else 'B'}-{kind}" for kind, n in runs for place in range(n)]
)
POS_TAGS = st.lists(st.sampled_from("NNP NN VB RB DT . , '' : $ SYM POS EX B I O WP$ -X-".split()), max_size=12)
SENTENCES = st.lists(st.one_of(IOB2, BROKEN), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("I-PER I-PER", [("PER", 0, 2)]),
        ("O I-LOC O", [("LOC", 1, 2)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-PER I-PER B-PER I-LOC", [("PER", 0, 2), ("PER", 2, 3), ("LOC", 3, 4)]),
    ],
)
def test_an_entity_begins_with_b_or_where_the_kind_changes(tags, found):
    assert entities(tags.split()) == found


@given(st.one_of(IOB2, BROKEN, POS_TAGS))
@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
def test_entities_are_seqevals_broken_tags_and_pos_tags_too(tags):
    assert entities(tags) == [(kind, start, end + 1) for kind, start, end in get_entities(tags)]


@given(SENTENCES, st.data())
def test_the_f1_is_seqevals_default(gold, data):
    predicted = [
        data.draw(st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC"]), min_size=len(row), max_size=len(row)))
        for row in gold
    ]
    with warnings.catch_warnings(action="ignore"):  # where there are no entities at all
        expected = f1_score(gold, predicted) if any(gold) else 0.0
    assert entity_f1(predicted, gold) == pytest.approx(expected)


def test_an_entity_is_right_only_whole_and_of_its_kind():
    gold = [["B-PER", "I-PER", "O", "B-LOC"]]
    assert entity_f1(gold, gold) == 1
    assert entity_f1([["B-PER", "O", "O", "B-LOC"]], gold) == 1 / 2
    assert entity_f1([["B-PER", "I-PER", "O", "B-PER"]], gold) == 1 / 2
    assert entity_f1([["O", "O", "O", "O"]], gold) == 0
    assert entity_f1([["O"]], [["O"]]) == 0


# -- what is measured of a model


def corpus_of(task, labels, rows):
    data = Dataset.from_dict({TASKS[task].gold: rows})
    return Corpus(TASKS[task], labels, data, data, data)


def test_texts_and_words_count_alike_and_taggers_have_an_f1_too():
    texts = corpus_of("sst2", ("negative", "positive"), [0, 1, 1, 0])
    assert figures_of_merit(texts, [0, 1, 0, 0]) == {"accuracy": 3 / 4}
    words = corpus_of("pos", ("DT", "NN"), [[0, 1, 1], [1]])
    # By seqeval DT NN NN is T, N over two words; DT NN DT is T, N, T.
    assert figures_of_merit(words, [[0, 1, 0], [1]]) == {"accuracy": 3 / 4, "f1": 2 * 2 / (4 + 3)}
    tags = corpus_of("ner", ("B-PER", "I-PER", "O"), [[0, 1, 2], [2, 0]])
    assert figures_of_merit(tags, [[0, 1, 2], [0, 0]]) == {"accuracy": 4 / 5, "f1": 2 * 2 / (3 + 2)}


def test_a_word_beyond_the_models_limit_is_wrong_and_no_entity():
    tags = corpus_of("ner", ("B-PER", "I-PER", "O"), [[0, 2, 2]])
    assert figures_of_merit(tags, [[0, 2, -1]]) == {"accuracy": 2 / 3, "f1": 1}
