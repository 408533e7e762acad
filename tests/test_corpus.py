"""The corpora and tokenizers made from a seed: the same everywhere, and like enough to text to be of use."""

import hashlib
import json
import math
import time
from collections import Counter, defaultdict

import pytest
from transformers import PreTrainedTokenizerFast

from drw_hf.experiments import corpus
from drw_hf.experiments.corpus import (
    SPECIAL_TOKENS,
    TAGS,
    make_pair_corpus,
    make_sentiment_corpus,
    make_tagging_corpus,
    make_tokenizer,
)
from drw_hf.keys.binding import tokenizer_fingerprint

MAKERS = {"tagging": make_tagging_corpus, "sentiment": make_sentiment_corpus, "pairs": make_pair_corpus}
DIGESTS = {"tagging": "885fad50cf582460", "sentiment": "d04dc1466afed7ed", "pairs": "cbfaaf010c4116e8"}
FINGERPRINTS = {"words": "5011f780dd33ad37", "pieces": "586ae0e03037ce7e"}


def digest(rows):
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def texts_of(row):
    return [" ".join(row["tokens"])] if "tokens" in row else [row[name] for name in row if name != "label"]


@pytest.fixture(scope="module")
def tagged():
    return make_tagging_corpus(4000)


@pytest.fixture(scope="module")
def opinions():
    return make_sentiment_corpus(3000)


@pytest.fixture(scope="module", params=["words", "pieces"])
def any_tokenizer(request):
    return make_tokenizer(kind=request.param)


# -- the same everywhere


@pytest.mark.parametrize("task", MAKERS)
def test_a_seed_gives_the_text_it_always_gave(task):
    """A change of these digests is a change of every figure measured on the corpora."""
    assert digest(MAKERS[task](50)) == DIGESTS[task]


@pytest.mark.parametrize("kind", FINGERPRINTS)
def test_a_seed_gives_the_tokenizer_it_always_gave(kind):
    """Each run of the tests is another process with another hash seed, so this also tells that none matters."""
    assert tokenizer_fingerprint(make_tokenizer(kind=kind))[:16] == FINGERPRINTS[kind]


@pytest.mark.parametrize("task", MAKERS)
def test_a_longer_corpus_begins_with_the_shorter_one(task):
    assert MAKERS[task](30)[:10] == MAKERS[task](10)
    assert MAKERS[task](0) == []


def test_another_seed_is_another_language():
    assert make_tagging_corpus(10, seed=1) != make_tagging_corpus(10, seed=0)
    invented = [set(make_tokenizer(seed).get_vocab()) - set(corpus._REAL_WORDS) for seed in (0, 1)]
    assert len(invented[0] & invented[1]) < 200


def test_thousands_of_sentences_take_less_than_a_second():
    corpus._lexicon.cache_clear()
    start = time.process_time()
    make_tagging_corpus(4000)
    assert time.process_time() - start < 1.0


def test_a_language_too_small_is_refused():
    with pytest.raises(ValueError, match="at least 1000"):
        make_tagging_corpus(1, n_words=999)
    with pytest.raises(ValueError, match="kind='bytes'"):
        make_tokenizer(kind="bytes")


@pytest.mark.parametrize("n_words", [1000, 1501, 4000])
def test_a_language_has_as_many_words_as_were_asked_for(n_words):
    assert len(make_tokenizer(n_words=n_words)) == n_words + len(SPECIAL_TOKENS)


# -- tagging


def test_tags_are_aligned_and_all_in_use(tagged):
    assert all(len(row["tokens"]) == len(row["tags"]) for row in tagged)
    assert {tag for row in tagged for tag in row["tags"]} == set(TAGS)
    assert all(row["tokens"][-1] == "." for row in tagged)
    names = {word for row in tagged for word, tag in zip(row["tokens"], row["tags"], strict=True) if tag == "NNP"}
    assert all(name.istitle() for name in names)
    assert max(len(row["tokens"]) for row in tagged) <= 40


def names_in(rows):
    return Counter(word for row in rows for word, tag in zip(row["tokens"], row["tags"], strict=True) if tag == "NNP")


def test_names_are_many_and_held_out_text_shares_the_frequent_ones(tagged):
    seen, held_out = names_in(tagged[:3000]), names_in(tagged[3000:])
    assert len(seen) >= 1500
    assert sum(count for name, count in held_out.items() if name in seen) > 0.9 * held_out.total()
    frequent = [name for name, _ in seen.most_common(100)]
    assert sum(name in held_out for name in frequent) > 85


def test_frequencies_follow_zipfs_law(tagged):
    """A slope near -1 over the thousand most frequent words, rank and frequency both in logarithms."""
    counts = Counter(word for row in tagged[:3000] for word in row["tokens"])
    points = [(math.log(rank), math.log(n)) for rank, (_, n) in enumerate(counts.most_common(1000), start=1)]
    x, y = (sum(values) / len(points) for values in zip(*points, strict=True))
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    assert -1.2 < slope < -0.8
    assert len(counts) > 3000 and counts["the"] > 1000


def test_words_have_several_tags_and_context_tells(tagged):
    tags_of = defaultdict(Counter)
    for row in tagged:
        for word, tag in zip(row["tokens"], row["tags"], strict=True):
            tags_of[word][tag] += 1
    for pair in [("NN", "VB"), ("NNP", "NN"), ("VBD", "JJ"), ("NN", "JJ"), ("IN", "RB"), ("DT", "PRP")]:
        assert sum(set(pair) <= set(tags) for tags in tags_of.values()) >= (40 if pair[1] in ("VB", "NN") else 1), pair
    usual = sum(max(tags.values()) for tags in tags_of.values()) / sum(tags.total() for tags in tags_of.values())
    assert 0.9 < usual < 0.97, "a tagger that does not look at the context has something to lose"
    before = {"VB": Counter(), "NN": Counter()}
    for row in tagged:
        for last, word, tag in zip(row["tokens"], row["tokens"][1:], row["tags"][1:], strict=False):
            if tag in before and {"VB", "NN"} <= set(tags_of[word]):
                before[tag][last] += 1
    assert before["VB"]["the"] == 0 < before["NN"]["the"]
    assert before["NN"]["to"] == 0 < before["VB"]["to"]


# -- sentiment and pairs


def test_opinions_are_balanced_and_their_words_decide(opinions):
    assert 0.45 < sum(row["label"] for row in opinions) / len(opinions) < 0.55
    real = corpus._REAL
    votes = dict.fromkeys(real["good"] + real["liked"], 1) | dict.fromkeys(real["bad"] + real["disliked"], 0)
    by_counting = by_rule = 0
    for row in opinions:
        words = row["text"].split()
        found = [votes[word] for word in words if word in votes]
        assert found, row["text"]
        by_counting += row["label"] == (2 * sum(found) >= len(found))
        by_rule += row["label"] == (found[-1] ^ ("not" in words or "never" in words))
    assert by_counting / len(opinions) < 0.92, "who does not read negations loses"
    assert 0.95 < by_rule / len(opinions) < 0.985, "and nobody is always right"


def test_opinions_begin_with_many_words_and_hold_rare_ones(opinions):
    words = [row["text"].split() for row in opinions]
    assert len({row[0] for row in words}) > 600
    assert len({row[1] for row in words}) > 600
    ids = make_tokenizer().get_vocab()
    rarest = Counter(max(row, key=ids.__getitem__) for row in words)
    assert len(rarest) > 1200
    assert max(rarest.values()) < 0.02 * len(words)


def test_pairs_share_their_names_and_have_both_labels():
    rows = make_pair_corpus(500)
    assert 0.4 < sum(row["label"] for row in rows) / len(rows) < 0.6
    for row in rows:
        first, second = (set(row[name].split()) for name in ("text_a", "text_b"))
        assert {word for word in first if word.istitle()} == {word for word in second if word.istitle()}
        assert row["text_a"] != row["text_b"]
        assert not (row["label"] and "never" in first | second)


# -- tokenizers


def test_texts_come_back_from_their_ids(any_tokenizer):
    for make in MAKERS.values():
        for text in [text for row in make(200) for text in texts_of(row)]:
            ids = any_tokenizer(text)["input_ids"]
            assert any_tokenizer.unk_token_id not in ids
            assert any_tokenizer.decode(ids, skip_special_tokens=True) == text


def test_texts_and_pairs_are_framed_as_berts(any_tokenizer):
    assert any_tokenizer.convert_tokens_to_ids(list(SPECIAL_TOKENS)) == [0, 1, 2, 3, 4]
    assert set(any_tokenizer.all_special_ids) == {0, 1, 2, 3, 4}
    batch = any_tokenizer(["the work .", "the"], ["a plan", "they"], padding=True, return_token_type_ids=True)
    for ids, types in zip(batch["input_ids"], batch["token_type_ids"], strict=True):
        ids = [index for index in ids if index != any_tokenizer.pad_token_id]
        middle = ids.index(any_tokenizer.sep_token_id)
        assert ids[0] == any_tokenizer.cls_token_id and ids[-1] == any_tokenizer.sep_token_id and middle < len(ids) - 1
        assert types[: len(ids)] == [0] * (middle + 1) + [1] * (len(ids) - middle - 1)


def test_words_and_their_tags_stay_aligned(any_tokenizer):
    for row in make_tagging_corpus(100):
        words = any_tokenizer(row["tokens"], is_split_into_words=True).word_ids()
        assert [word for word in dict.fromkeys(words) if word is not None] == list(range(len(row["tokens"])))


def test_it_is_saved_and_loaded(any_tokenizer, tmp_path):
    any_tokenizer.save_pretrained(tmp_path)
    loaded = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    text = make_sentiment_corpus(1)[0]["text"]
    assert loaded(text, text) == any_tokenizer(text, text)
    assert tokenizer_fingerprint(loaded) == tokenizer_fingerprint(any_tokenizer)


def test_high_ids_are_rare_words(tagged):
    tokenizer = make_tokenizer()
    ids = Counter(index for row in tagged for index in tokenizer.convert_tokens_to_ids(row["tokens"]))
    tenths = [sum(ids[index] for index in range(start, start + 400)) for start in range(5, 4005, 400)]
    assert tenths == sorted(tenths, reverse=True)
    assert tenths[0] > 0.6 * ids.total()
    assert len([index for index in range(3605, 4005) if ids[index] > 8]) < 8
    assert tokenizer.convert_tokens_to_ids("Unheard") == tokenizer.unk_token_id
    assert tokenizer.convert_tokens_to_ids("The") == tokenizer.unk_token_id, "cased"


def test_pieces_are_another_tokenizer():
    pieces, text = make_tokenizer(kind="pieces"), make_tagging_corpus(200)
    words = [word for row in text for word in row["tokens"]]
    n_pieces = [len(pieces.tokenize(word)) for word in words]
    assert len(pieces) == 1000
    assert sum(n_pieces) > 1.4 * len(words)
    assert pieces.tokenize("the") == ["▁the"]
