"""Text made from a seed, to train small victims and thieves on where nothing can be downloaded.

A seed gives a language: a core of real English words and thousands of invented ones, half of them names, with the
long tail of rare words that real text has. Three corpora are written in it, for tagging, sentiment and paraphrase, and
two tokenizers read them. A longer corpus begins with the shorter one of the same seed, so held-out text is what comes
after the training text::

    rows = make_tagging_corpus(3000)
    train, held_out = rows[:2500], rows[2500:]

Another seed is another language, with other words.

All choices come from ``random.Random(int).random()``, whose stream Python promises to keep, and from additions and
divisions; so a seed gives the same text everywhere.
"""

import hashlib
import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from . import read_table

TAGS: tuple[str, ...] = ("NNP", "NN", "VB", "VBD", "JJ", "RB", "DT", "IN", "PRP", "CC", "TO", ".")
SENTIMENTS: tuple[str, ...] = ("negative", "positive")
PAIR_LABELS = ("different", "paraphrase")
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL_NAMES = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
MIN_WORDS = 1000

_TABLES = read_table("words")
_REAL, _SOUNDS, _ENDINGS = (
    {kind: words.split() for kind, words in _TABLES[table].items()} for table in ("real", "sounds", "endings")
)
_SYNONYMS = [line.split() for line in _TABLES["real"]["synonyms"].strip().splitlines()]
_REAL_WORDS = tuple(dict.fromkeys(word for words in _REAL.values() for word in words))

_REFERENCE_SENTENCES = 2000  # of each corpus: where the tokenizers count words

_Words = list[tuple[str, str]]  # with their tags


def make_tagging_corpus(n_sentences: int, seed: int = 0, n_words: int = 4000) -> list[dict[str, Any]]:
    """Sentences with a part of speech for every word.

    Many words have two: a noun is also a verb, a name also a noun, a participle also an adjective. Mostly the words
    around tell which; in a few places nothing does, so that no tagger is right (or sure) everywhere.

    Parameters
    ----------
    n_sentences : int
        How many rows.
    seed : int
        The language, and the text in it.
    n_words : int
        How many distinct words the language has, punctuation included; at least ``MIN_WORDS``.

    Returns
    -------
    list of dict
        ``{"tokens": [...], "tags": [...]}``, the tags out of :data:`TAGS`.

    Examples
    --------
    >>> row = make_tagging_corpus(1)[0]
    >>> len(row["tokens"]) == len(row["tags"]) and set(row["tags"]) <= set(TAGS)
    True
    """
    writer = _Writer("tagging", seed, n_words, opinionated=True)
    rows = (zip(*_with_articles(writer.sentence()), strict=True) for _ in range(n_sentences))
    return [{"tokens": list(tokens), "tags": list(tags)} for tokens, tags in rows]


def make_sentiment_corpus(n_sentences: int, seed: int = 0, n_words: int = 4000) -> list[dict[str, Any]]:
    """Short opinions, negative (0) or positive (1) as :data:`SENTIMENTS` has them.

    Adjectives and verbs of opinion decide; *not* and *never* turn them round, after *but* the last word counts, and
    one opinion in eighteen praises and blames at once, so that its label is a coin's.

    The parameters are those of :func:`make_tagging_corpus`. Rows are ``{"text": str, "label": 0 or 1}``, words and
    punctuation parted by spaces.
    """
    writer, rows = _Writer("sentiment", seed, n_words), []
    for _ in range(n_sentences):
        label = int(writer.chance(0.5))
        rows.append({"text": _as_text(writer.opinion(label)), "label": label})
    return rows


def make_pair_corpus(n_pairs: int, seed: int = 0, n_words: int = 4000) -> list[dict[str, Any]]:
    """Pairs of sentences about the same people and things that say the same (1) or not (0), see :data:`PAIR_LABELS`.

    The second sentence has a synonym of the first one's verb, and often another order. Of the pairs that differ, most
    have *never* on one side; the others have unrelated verbs, or exchange doer and done-to, and are hard.

    The parameters are those of :func:`make_tagging_corpus`. Rows are ``{"text_a": str, "text_b": str, "label": 0 or
    1}``.
    """
    writer, rows = _Writer("pairs", seed, n_words), []
    for _ in range(n_pairs):
        label = int(writer.chance(0.5))
        first, second = map(_as_text, writer.pair(label))
        rows.append({"text_a": first, "text_b": second, "label": label})
    return rows


def make_tokenizer(seed: int = 0, n_words: int = 4000, kind: str = "words") -> PreTrainedTokenizerFast:
    """A tokenizer for the language of a seed, cased, which frames texts and pairs as BERT's does.

    Parameters
    ----------
    seed, n_words : int
        The language, as in :func:`make_tagging_corpus`.
    kind : {"words", "pieces"}
        ``"words"`` has one token for every word of the language, the rare ones with the high ids. ``"pieces"`` is a
        byte-pair tokenizer with ``n_words // 4`` tokens, trained on the three corpora, which splits all but the
        frequent words.

    Returns
    -------
    PreTrainedTokenizerFast
        For pairs, ask it with ``return_token_type_ids=True``: by itself it leaves out what not every model takes.
    """
    if kind not in ("words", "pieces"):
        raise ValueError(f"kind={kind!r}: expected 'words' or 'pieces'")
    texts = _reference_texts(seed, n_words)
    if kind == "words":
        counts = Counter(word for text in texts for word in text.split())
        by_frequency = sorted(_vocabulary(seed, n_words), key=lambda word: -counts[word])
        ids = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *by_frequency))}
        backend = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.Whitespace()
    else:
        # Not WordPiece: its trainer numbers the pieces inside words as a hash map happens to order them.
        backend = Tokenizer(models.BPE(unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace()])
        backend.decoder = decoders.Metaspace()
        special = list(SPECIAL_TOKENS)
        trainer = trainers.BpeTrainer(vocab_size=n_words // 4, special_tokens=special, show_progress=False)
        backend.train_from_iterator(texts, trainer)
    separator, start = ((token, backend.get_vocab()[token]) for token in ("[SEP]", "[CLS]"))
    backend.post_processor = processors.BertProcessing(separator, start)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL_NAMES)


class _Pool:
    """Words to draw from, the first ones most often: Zipf's law, mixed with an even share that flattens its tail."""

    def __init__(self, words: Sequence[str], even: float = 0.15, shift: int = 3):
        self.words = tuple(words)
        # accumulate and not sum, which adds up differently since Python 3.12.
        zipf = list(accumulate(1.0 / (rank + shift) for rank in range(len(words))))
        shares = ((1.0 - even) * total / zipf[-1] + even * rank / len(words) for rank, total in enumerate(zipf, 1))
        self.cumulated = list(shares)

    def draw(self, uniform: float) -> str:
        return self.words[bisect(self.cumulated, uniform, hi=len(self.words) - 1)]


@lru_cache(maxsize=8)
def _lexicon(seed: int, n_words: int) -> dict[str, _Pool]:
    """The words of the open classes, which share some; all in all ``n_words`` with the real ones."""
    if n_words < MIN_WORDS:
        raise ValueError(f"n_words={n_words}: a language needs at least {MIN_WORDS} words")
    stream, taken = _stream("lexicon", seed, n_words), set(_REAL_WORDS)
    n_names = n_words // 2
    n_others = n_words - n_names - len(_REAL_WORDS)

    def invent(count: int, kind: str) -> list[str]:
        words: list[str] = []
        while len(words) < count:
            sounds = ("consonant", "vowel") * (1 if stream() < 0.6 else 2)
            parts = [_any(_SOUNDS[sound], stream) for sound in (*sounds, "consonant")]
            word = "".join([*parts, _any(_ENDINGS[kind], stream)])
            if word not in taken:
                taken.add(word)
                words.append(word)
        return words

    names = [name.capitalize() for name in invent(n_names, "name")]
    nouns = _REAL["noun"] + invent(n_others * 3 // 10, "noun")
    verbs, pasts, adjectives = (
        _REAL[kind] + invent(n_others * 2 // 10, kind) for kind in ("verb", "past", "adjective")
    )
    adverbs = _REAL["adverb"] + invent(n_words - len(taken), "adverb")
    return {
        "name": _Pool(names, even=0.4, shift=10),
        "title": _Pool(names[4::8]),  # capitalised, and a noun all the same: like Doctor, or German
        "noun": _Pool(nouns),
        "verb": _Pool(_interleave(verbs, nouns[::4])),
        "past": _Pool(pasts),
        "adjective": _Pool(_interleave(adjectives, nouns[7::8])),
        "adverb": _Pool(adverbs),
        **{kind: _Pool(_REAL[kind]) for kind in ("good", "bad", "liked", "disliked")},
    }


def _vocabulary(seed: int, n_words: int) -> list[str]:
    """The words of a language: the real ones, then the invented ones, those first that lead their class."""
    places: dict[str, float] = {}
    for pool in _lexicon(seed, n_words).values():
        for place, word in enumerate(pool.words):
            places.setdefault(word, place / len(pool.words))
    invented = places.keys() - set(_REAL_WORDS)
    return [*_REAL_WORDS, *sorted(invented, key=lambda word: (places[word], word))]


@lru_cache(maxsize=8)
def _reference_texts(seed: int, n_words: int) -> tuple[str, ...]:
    tagged = (" ".join(row["tokens"]) for row in make_tagging_corpus(_REFERENCE_SENTENCES, seed, n_words))
    opinions = (row["text"] for row in make_sentiment_corpus(_REFERENCE_SENTENCES, seed, n_words))
    pairs = make_pair_corpus(_REFERENCE_SENTENCES // 2, seed, n_words)
    return (*tagged, *opinions, *(row[side] for row in pairs for side in ("text_a", "text_b")))


class _Writer:
    """Writes sentences, as lists of words with their tags."""

    def __init__(self, task: str, seed: int, n_words: int, opinionated: bool = False):
        self.pools, self.stream = _lexicon(seed, n_words), _stream(task, seed, n_words)
        self.opinionated = opinionated  # whether opinions stand just anywhere

    def chance(self, probability: float) -> bool:
        return self.stream() < probability

    def any(self, options: Sequence[Any]) -> Any:
        return _any(options, self.stream)

    def word(self, kind: str) -> str:
        return self.any(_REAL[kind])

    def draw(self, pool: str, tag: str) -> tuple[str, str]:
        return self.pools[pool].draw(self.stream()), tag

    # -- phrases

    def name(self) -> _Words:
        """A name, a first and a last name, or a title and a name, which looks the same."""
        last = self.draw("name", "NNP")
        if self.chance(0.04):
            return [self.draw("title", "NN"), last]
        return [self.draw("name", "NNP"), last] if self.chance(0.3) else [last]

    def adjective(self) -> _Words:
        if self.opinionated and self.chance(0.3):
            return [self.draw(self.any(("good", "bad")), "JJ")]
        return [self.draw("past" if self.chance(0.12) else "adjective", "JJ")]

    def noun(self) -> _Words:
        """A noun and what stands before it: a determiner, an adjective, another noun."""
        roll = self.stream()
        words = [("the" if roll < 0.4 else self.word("determiner" if roll < 0.75 else "owner"), "DT")]
        if self.chance(0.4):
            words += self.adjective()
        if self.chance(0.08):
            words.append(self.draw("noun", "NN"))
        if self.chance(0.08):
            return [*words, self.draw("title", "NN") if self.chance(0.7) else self.draw("name", "NNP")]
        return [*words, self.draw("noun", "NN")]

    def thing(self, pronoun: str = "object") -> _Words:
        """A subject or an object."""
        roll = self.stream()
        if roll < 0.12:
            return [(self.word(pronoun), "PRP")]
        if roll < 0.5:
            return self.name()
        if roll < 0.56:
            return self.names()
        return [self.draw("noun", "NN")] if roll < 0.62 else self.noun()

    def names(self) -> _Words:
        return [*self.name(), ("and", "CC"), *self.name()]

    def place(self) -> _Words:
        preposition = self.word("particle" if self.chance(0.25) else "preposition")
        return [(preposition, "IN"), *self.somebody()]

    def somebody(self) -> _Words:
        return self.name() if self.chance(0.5) else self.noun()

    def opening(self) -> _Words:
        """An adverb, a place or nothing, before the sentence proper."""
        roll = self.stream()
        if roll < 0.15:
            return [self.draw("adverb", "RB"), (",", ".")]
        return [*self.place(), (",", ".")] if roll < 0.3 else []

    # -- clauses

    def clause(self) -> _Words:
        roll = self.stream()
        if roll < 0.14:
            subject = self.names() if self.chance(0.4) else [(self.word("plural"), "PRP")]
            return [*subject, self.draw("verb", "VB"), *self.thing()]
        subject = self.thing("subject")
        if roll < 0.3:
            return [*subject, (self.word("tried"), "VBD"), ("to", "TO"), self.draw("verb", "VB"), *self.thing()]
        if roll < 0.4:
            degree = [(self.any((*_REAL["degree"], "not")), "RB")] if self.chance(0.5) else []
            return [*subject, _be(subject), *degree, *self.adjective()]
        if roll < 0.5:
            goal = self.somebody()
            return [*subject, self.draw("past", "VBD"), ("to", "TO"), *goal]
        return [*subject, *self.deed()]

    def deed(self) -> _Words:
        """A verb in the past, with an adverb before it or a particle behind it, or an object."""
        words = [self.draw("adverb", "RB")] if self.chance(0.15) else []
        if self.opinionated and self.chance(0.1):
            words.append(self.draw(self.any(("liked", "disliked")), "VBD"))
        else:
            words.append((self.any(self.any(_SYNONYMS)), "VBD") if self.chance(0.15) else self.draw("past", "VBD"))
        return [*words, (self.word("particle"), "RB")] if self.chance(0.2) else [*words, *self.thing()]

    # -- sentences

    def sentence(self) -> _Words:
        """One for the tagging corpus."""
        if self.chance(0.08):  # an order, so that what starts a sentence may be a noun or a verb
            return [self.draw("verb", "VB"), *self.thing(), *self.place(), (".", ".")]
        words = self.opening()
        if self.chance(0.08):
            words += [*self.thing("subject"), (self.word("said"), "VBD"), ("that", "IN")]
        words += self.clause()
        if self.chance(0.5):
            words += self.place()
        if self.chance(0.4):
            words += [(self.any(("and", "but", "yet")), "CC"), *self.clause()]
        return [*words, (".", ".")]

    def opinion(self, label: int) -> _Words:
        """One for the sentiment corpus."""
        words = [*self.opening(), *self.thing("subject")]
        if self.chance(0.3):
            turned = self.chance(0.08)
            words += [("never", "RB")] * turned
            words += [self.draw(("disliked", "liked")[label != turned], "VBD"), *self.noun()]
        else:
            words += [_be(words), *self.judgement(label)]
        if self.chance(0.6):
            words += self.place()
        return [*words, (".", ".")]

    def judgement(self, label: int) -> _Words:
        """Adjectives, after *was*."""
        kind, other = ("bad", "good")[label], ("good", "bad")[label]
        roll = self.stream()
        if roll < 0.08:
            first, last = (kind, other) if self.chance(0.5) else (other, kind)
            return [self.draw(first, "JJ"), ("and", "CC"), self.draw(last, "JJ")]
        if roll < 0.32:
            first, conjunction = (kind, "and") if roll < 0.25 else (other, "but")
            return [self.draw(first, "JJ"), (conjunction, "CC"), self.draw(kind, "JJ")]
        if roll < 0.38:
            return [("not", "RB"), self.draw(other, "JJ")]
        degree = [(self.word("degree"), "RB")] if self.chance(0.6) else []
        return [*degree, self.draw(kind, "JJ")]

    def pair(self, label: int) -> tuple[_Words, _Words]:
        """Two for the pair corpus."""
        doer, patient = self.name(), self.name() if self.chance(0.4) else self.noun()
        place = [(self.word("place"), "IN"), *self.name()]
        group = self.any(_SYNONYMS)
        verb = self.any(group)
        verbs = [[(verb, "VBD")], [(self.any([other for other in group if other != verb]), "VBD")]]
        orders = [(doer, patient), (doer, patient)]
        if not label:
            roll = self.stream()
            if roll < 0.7:
                verbs[roll < 0.35].insert(0, ("never", "RB"))
            elif roll < 0.9:
                verbs[1] = [(self.any(self.any([other for other in _SYNONYMS if other != group])), "VBD")]
            else:
                orders[1] = (patient, doer)
        return self.event(*orders[0], verbs[0], place), self.event(*orders[1], verbs[1], place)

    def event(self, doer: _Words, patient: _Words, verb: _Words, place: _Words) -> _Words:
        """Who did what to whom and where, in one of three orders."""
        roll = self.stream()
        if roll < 0.4:
            words = [*doer, *verb, *patient, *place]
        elif roll < 0.7:
            words = [*place, (",", "."), *doer, *verb, *patient]
        else:
            words = [*patient, _be(patient), *verb, ("by", "IN"), *doer, *place]
        return [*words, (".", ".")]


def _stream(use: str, seed: int, n_words: int) -> Callable[[], float]:
    digest = hashlib.sha256(f"drw-hf corpus v1/{use}/{seed}/{n_words}".encode()).digest()
    return random.Random(int.from_bytes(digest, "big")).random


def _any(options: Sequence[Any], stream: Callable[[], float]) -> Any:
    return options[int(stream() * len(options))]


def _interleave(many: Sequence[str], few: Sequence[str]) -> list[str]:
    """Both lists in their order, spread evenly through one another."""
    placed = [(place / len(words), word) for words in (many, few) for place, word in enumerate(words)]
    return list(dict.fromkeys(word for _, word in sorted(placed)))


def _be(subject: _Words) -> tuple[str, str]:
    plural = ("and", "CC") in subject or subject[-1][0] in _REAL["plural"]
    return ("were" if plural else "was"), "VBD"


def _with_articles(words: _Words) -> _Words:
    """The words with *an* before a vowel."""
    pairs = pairwise([*words, ("", "")])
    return [("an", tag) if word == "a" and after[0][:1] in {*"aeiou"} else (word, tag) for (word, tag), after in pairs]


def _as_text(words: _Words) -> str:
    return " ".join(word for word, _ in _with_articles(words))
