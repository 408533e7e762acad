"""What the mark costs: accuracy of clean and protected answers, equal to what is counted by hand."""

import datasets
import numpy as np
import pytest
import torch

from drw_hf.errors import DatasetError, UnsupportedModelError
from drw_hf.fidelity import measure_accuracy
from drw_hf.hub.card import model_card
from small_models import TAGS, make_model, make_tokenizer, make_victim
from test_labelling import make_pieces_tokenizer

LABELS = ["negative", "positive"]
TEXTS = [
    "the film was very good",
    "we hated the slow ending",
    "a truly moving story with a great cast and bright music",
    "dull",
    "they liked the beginning but not the plot",
    "bad bad bad",
    "quite funny",
    "a slow book without a plot",
    "the music was truly awful",
    "we saw a bright beginning",
]
GOLD = [1, 0, 1, 0, 0, 0, 1, 0, 0, 1]
WORDS = [text.split() for text in TEXTS]
WORD_GOLD = [[(7 * row + 3 * place) % len(TAGS) for place in range(len(words))] for row, words in enumerate(WORDS)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def measure(victim, columns, tokenizer=None, **settings):
    dataset = datasets.Dataset.from_dict(columns) if type(columns) is dict else columns
    return measure_accuracy(victim, dataset, tokenizer or make_tokenizer(), progress=False, **settings)["accuracy"]


@torch.no_grad()
def by_hand(model, tokenizer=None):
    """Text by text, and word by word, without batches: the model's labels."""
    tokenizer = tokenizer or make_tokenizer()
    if model.config.num_labels == len(LABELS):
        return np.array([int(model(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in TEXTS])
    found = []
    for words in WORDS:
        encoding = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        labels = model(**encoding).logits[0].argmax(-1).tolist()
        found += [labels[encoding.word_ids().index(word)] for word in range(len(words))]
    return np.array(found)


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_of_texts(label_kind):
    victim = make_victim(label_kind=label_kind, epsilon=0.8, model=make_model(sharp=False))
    clean, protected = by_hand(victim.get_base_model()), by_hand(victim)
    assert (clean != protected).any()
    found = measure(victim, {"text": TEXTS, "label": GOLD}, batch_size=3)
    assert found == {"clean": np.mean(clean == GOLD), "protected": np.mean(protected == GOLD), "n": len(TEXTS)}


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("pieces", [False, True], ids=["whole words", "sub-tokens"])
def test_of_words(label_kind, pieces):
    tokenizer = make_pieces_tokenizer() if pieces else make_tokenizer()
    model = make_model("token-classification", sharp=False, vocab_size=max(64, len(tokenizer)))
    victim = make_victim("token-classification", label_kind=label_kind, epsilon=0.8, model=model)
    clean, protected = by_hand(model, tokenizer), by_hand(victim, tokenizer)
    gold = np.concatenate(WORD_GOLD)
    assert (clean != protected).any()
    found = measure(victim, {"tokens": WORDS, "ner_tags": WORD_GOLD}, tokenizer, batch_size=3)
    assert found == {"clean": np.mean(clean == gold), "protected": np.mean(protected == gold), "n": len(gold)}


def test_the_marks_price_shows_and_the_model_is_left_as_it_was():
    """Gold labels that are the clean model's own: clean is perfect, hard labels of a strong mark are not."""
    victim = make_victim(label_kind="hard", epsilon=2.0)
    victim.train()
    gold = by_hand(victim.get_base_model().eval()).tolist()
    found = measure(victim.train(), {"text": TEXTS, "label": gold})
    assert found["clean"] == 1.0 > found["protected"]
    assert victim.training and victim.marking_fingerprint() == victim.key.fingerprint


def test_labels_may_be_names_numbers_or_classes_in_another_order():
    victim = make_victim()
    expected = measure(victim, {"text": TEXTS, "label": GOLD})
    names = [LABELS[label] for label in GOLD]
    assert measure(victim, {"text": TEXTS, "labels": names}) == expected
    swapped = datasets.Dataset.from_dict({"text": TEXTS, "label": [1 - label for label in GOLD]})
    swapped = swapped.cast_column("label", datasets.ClassLabel(names=LABELS[::-1]))
    assert measure(victim, swapped) == expected
    assert measure(victim, swapped.with_format("torch")) == expected
    tagger = make_victim("token-classification")
    expected = measure(tagger, {"tokens": WORDS, "tags": WORD_GOLD})
    names = [[TAGS[label] for label in row] for row in WORD_GOLD]
    assert measure(tagger, {"tokens": WORDS, "gold": names}, label_column="gold") == expected
    classes = datasets.Dataset.from_dict({"tokens": WORDS, "ner_tags": WORD_GOLD})
    classes = classes.cast_column("ner_tags", datasets.List(datasets.ClassLabel(names=TAGS)))
    assert measure(tagger, classes) == expected


def test_what_has_no_label_or_no_answer_does_not_count():
    victim = make_victim()
    some = measure(victim, {"text": TEXTS[:4], "label": GOLD[:4]})
    assert measure(victim, {"text": TEXTS[:7], "label": [*GOLD[:4], None, -1, -100]}) == some
    tagger = make_victim("token-classification")
    rows = {"tokens": WORDS, "labels": [[row[0]] + [-100] * (len(row) - 1) for row in WORD_GOLD]}
    assert measure(tagger, rows)["n"] == len(WORDS)
    cut = measure(tagger, {"tokens": WORDS, "labels": WORD_GOLD}, max_length=4)
    assert cut["n"] == sum(min(2, len(words)) for words in WORDS)


def test_pairs_and_tokenised_rows():
    victim, tokenizer = make_victim(), make_tokenizer()
    pairs = {"premise": TEXTS, "hypothesis": TEXTS[::-1], "label": GOLD}
    assert measure(victim, pairs)["n"] == len(TEXTS)
    ids = tokenizer(TEXTS)["input_ids"]
    assert measure(victim, {"input_ids": ids, "label": GOLD}) == measure(victim, {"text": TEXTS, "label": GOLD})
    tagger = make_victim("token-classification")
    ids = tokenizer(WORDS, is_split_into_words=True)["input_ids"]
    labels = [[-100, *row, -100] for row in WORD_GOLD]
    expected = measure(tagger, {"tokens": WORDS, "labels": WORD_GOLD})
    assert measure(tagger, {"input_ids": ids, "labels": labels}) == expected


def test_the_result_goes_into_a_card():
    victim = make_victim()
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": GOLD})
    metrics = measure_accuracy(victim, rows, make_tokenizer(), progress=False)
    row = metrics["accuracy"]
    card = model_card(victim, metrics=metrics, dataset="mine")
    assert f"| accuracy | {row['clean']:.4f} | {row['protected']:.4f} | {row['n']} |" in card


@pytest.mark.parametrize(
    "task, columns, settings, named",
    [
        ("sequence", {"text": TEXTS}, {}, r"\['text'\].*label_column"),
        ("sequence", {"text": TEXTS, "label": GOLD}, {"label_column": "gold"}, "label_column='gold'"),
        ("sequence", {"text": TEXTS, "label": [2] * 10}, {}, "'label' holds 2"),
        ("sequence", {"text": TEXTS, "label": [-2] * 10}, {}, "'label' holds -2"),
        ("sequence", {"text": TEXTS, "label": [0.5] * 10}, {}, "'label' holds 0.5"),
        ("sequence", {"text": TEXTS, "label": ["neutral"] * 10}, {}, "'label' holds 'neutral'"),
        ("sequence", {"text": TEXTS, "label": [[1]] * 10}, {}, "'label' holds list"),
        ("sequence", {"text": TEXTS, "label": [-1] * 10}, {}, "'label'"),
        ("sequence", {"label": GOLD}, {}, "text_columns"),
        ("sequence", {"text": [], "label": []}, {}, "empty"),
        ("token", {"tokens": WORDS}, {}, "label_column"),
        ("token", {"tokens": WORDS, "tags": GOLD}, {}, "'tags' holds int"),
        ("token", {"tokens": WORDS, "tags": [[0]] * 10}, {}, "row 0 has 1 labels in the column 'tags' and 5 words"),
        ("token", {"tokens": WORDS, "tags": [["B-ORG"]] * 10}, {}, "'tags' holds 'B-ORG'"),
    ],
)
def test_bad_data_are_named(task, columns, settings, named):
    with pytest.raises(DatasetError, match=named):
        measure(make_victim(f"{task}-classification"), columns, **settings)


def test_classes_that_are_not_the_models_are_named():
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": GOLD})
    rows = rows.cast_column("label", datasets.ClassLabel(names=["negative", "neutral"]))
    with pytest.raises(DatasetError, match=r"'label'.*\['neutral'\]"):
        measure(make_victim(), rows)


def test_one_split_of_a_protected_model_is_measured():
    rows = datasets.Dataset.from_dict({"text": TEXTS, "label": GOLD})
    with pytest.raises(DatasetError, match="one split"):
        measure(make_victim(), datasets.DatasetDict(test=rows))
    with pytest.raises(UnsupportedModelError, match="from_model"):
        measure(make_model(), rows)
