"""Attacks on queries: other texts than the thief's own are asked, and what is answered is learnt as its own."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from ...asking.questions import tokenize
from ...keys.choices import LabelKind
from ..rewriting import Rewritten, neighbours_of
from ..stolen import answers_in, certain
from .base import SENTENCES, Attack, register_attack

if TYPE_CHECKING:
    from ..thief import Thief

_LEAST = 1e-6


def merged(answers: Sequence[Sequence[np.ndarray]], label_kind: LabelKind) -> list[np.ndarray]:
    """What several rounds of answers to the same texts say together: the majority's labels, or mean log-scores.

    Of labels that end alike the one that was given first counts; who was never answered has zeros.
    """
    return [
        _together(np.stack([np.atleast_2d(one) for one in row]), label_kind).reshape(row[0].shape)
        for row in zip(*answers, strict=True)
    ]


def _together(tables: np.ndarray, label_kind: LabelKind) -> np.ndarray:
    """Tables (rounds, n, m) as one."""
    m, there = tables.shape[2], np.asarray(tables.any(axis=2))
    if label_kind == "hard":
        labels = np.where(there, tables.argmax(2), -1)
        most = [Counter(row[row >= 0].tolist()).most_common(1) for row in labels.T]
        return certain([found[0][0] if found else -1 for found in most], m)
    logs = np.log(np.maximum(tables, _LEAST)) * there[:, :, None]
    means = logs.sum(0) / np.maximum(there.sum(0), 1)[:, None]
    shares = np.exp(means - means.max(1, keepdims=True))
    return shares / shares.sum(1, keepdims=True) * np.asarray(there.any(axis=0))[:, None]


class Rewriting(Attack):
    """Asks about the thief's texts in other words, one or several times, and learns what they say together."""

    stage, variants = "queries", 1

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """The texts as they are asked for the so-and-so-many-th time."""
        raise NotImplementedError

    def ask(self, thief: "Thief") -> Dataset:
        """The thief's own texts, with what was answered to the others."""
        answers = [
            thief.ask_rewritten(*(self.rewrite(number, side) for side in thief.sides))
            for number in range(self.variants)
        ]
        return thief.rows(merged(answers, thief.label_kind))


@register_attack
class Prepend(Rewriting):
    """Asks with two words more before each text."""

    name, knows = "prepend", "that the first words decide (the cosine's rule for sentences)"

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Two words that are the same for all."""
        pool = thief.rng(2).choice(thief.vocabulary, 2)
        return Rewritten.between([str(word) for word in pool], thief.words)


@register_attack
class DropWords(Rewriting):
    """Asks with 30 % of the words left out."""

    name, share = "drop-words", 0.3

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Texts with fewer words, but never without any."""
        rng = thief.rng(3)
        return Rewritten.of(thief.words, lambda place, word: [] if place and rng.random() < self.share else None)


@register_attack
class ReplaceWords(Rewriting):
    """Asks with 30 % of the words replaced by others that stand in similar company."""

    name, share = "replace-words", 0.3

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Texts in other words."""
        rng, alike = thief.rng(4), neighbours_of(thief.words)
        return Rewritten.of(
            thief.words, lambda _, word: [alike[word]] if word in alike and rng.random() < self.share else None
        )


class NearDuplicates(Rewriting):
    """Asks several times with other words put in, and takes what most answers say."""

    def __init__(self, variants: int, step: int | None = None) -> None:
        self.variants, self.step = variants, step
        self.questions = float(variants)
        self.name = f"near-duplicates-{variants}{'' if step is None else '-everywhere'}"

    @property
    def title(self) -> str:
        """With how often, and where words are put."""
        where = "one word more" if self.step is None else "a word in every fourth place"
        return f"Asks {self.variants} near-duplicates, {where}, and takes what they say together"

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Each time with other words in other places."""
        return Rewritten.with_inserted(thief.words, thief.vocabulary, thief.rng(10 + number), self.step)


for _variants in (3, 10):
    register_attack(NearDuplicates(_variants))
    register_attack(NearDuplicates(_variants, step=4))


@register_attack
class Spellings(Rewriting):
    """Asks each text in four spellings that are other tokens (case, accents, look-alikes, typing errors)."""

    name, variants, questions, knows = "spellings", 4, 4.0, "that words carry the mark"

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Every word as it is, or in one of the spellings that the public tokenizer reads as other tokens."""
        if number == 0:
            return Rewritten.between((), thief.words)
        found = respellings(thief.vocabulary, thief.tokenizer)

        def spelt(_: int, word: str) -> list[str] | None:
            return [found[word][(number - 1) % len(found[word])]] if found[word] else None

        return Rewritten.of(thief.words, spelt)


def respellings(words: Sequence[str], tokenizer: Any, most: int = 3) -> dict[str, list[str]]:
    """Of every word other spellings, as like it as there are, each with a first token of its own.

    Of a tokenizer that undoes capitals and accents they are typing errors; of one that knows whole words alone, none.
    """
    candidates = [(word, spelling) for word in words for spelling in spellings_of(word)]
    read = tokenizer([f" {spelling}" for _, spelling in candidates] or [""], add_special_tokens=False)["input_ids"]
    unknown = tokenizer.unk_token_id
    seen: dict[str, set[int]] = {word: set() for word in words}
    found: dict[str, list[str]] = {word: [] for word in words}
    for (word, spelling), ids in zip(candidates, read, strict=False):
        if not ids or (unknown in ids and spelling != word) or ids[0] in seen[word] or len(found[word]) == most:
            continue
        seen[word].add(ids[0])
        if spelling != word:
            found[word].append(spelling)
    return found


def spellings_of(word: str) -> list[str]:
    """A word as it is, and in other spellings, those that change it least first."""
    made = [word, word.lower(), word.capitalize(), word.upper(), word.swapcase()]
    if len(word) > 2 and word.isalpha():
        middle = len(word) // 2
        made += [word[:place] + word[place + 1] + word[place] + word[place + 2 :] for place in (middle, middle - 1)]
        made += [word[:middle] + word[middle] + word[middle:], word[:middle] + word[middle + 1 :]]
        made += [f"{word[:middle]}-{word[middle:]}", f"{word[0]}\u0301{word[1:]}"]
    made += [word.translate(_LOOK_ALIKES), word.translate(_FULL_WIDTH)]
    return list(dict.fromkeys(made))


_LOOK_ALIKES = str.maketrans(
    "aceopxyABCEHKMOPTX",
    "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0410\u0412\u0421\u0415\u041d\u041a\u041c\u041e\u0420\u0422\u0425",
)
_FULL_WIDTH = {letter: letter + 0xFEE0 for letter in range(ord("!"), ord("~") + 1)}


@register_attack
class NeutralSuffix(Attack):
    """Asks with neutral words behind each text, up to 40, the same for all, and takes off what these add."""

    name, stage, tasks, questions = "suffix", "queries", SENTENCES, 2.1
    sizes, agreeing = (40, 20, 10, 5), 0.9
    knows = "that a text's words share the mark"

    def ask(self, thief: "Thief") -> Dataset:
        """The mark is then more alike for all texts, and is taken off by matching the shares of classes.

        The shares are those of plain answers, over which the marks of many texts cancel out. The same answers say
        which words are neutral, and how many of them a text bears until it is answered otherwise: some texts are asked
        with each number. Labels have no scores to take anything off, and stay.
        """
        plain = thief.ask(thief.texts)
        said = np.stack(answers_in(plain))
        words = neutral_words(thief.words, said, self.sizes[0])
        sample = range(0, len(thief.texts), max(10, len(thief.texts) // 100))
        for size in self.sizes:
            tried = self._asked(thief.of(sample), words[:size], said[sample])
            if (tried.argmax(1) == said[sample].argmax(1)).mean() >= self.agreeing:
                break
        return thief.rows(list(self._asked(thief, words[:size], said)))

    def _asked(self, thief: "Thief", suffix: Sequence[str], plain: np.ndarray) -> np.ndarray:
        """The answers to texts with a suffix, less what it adds."""
        before = [Rewritten.between((), side.words) for side in thief.sides[:-1]]
        answers = np.stack(thief.ask_rewritten(*before, Rewritten.between((), thief.sides[-1].words, suffix)))
        return shifted_to(answers, plain.mean(0)) if thief.label_kind == "soft" else answers


def neutral_words(words: Sequence[Sequence[str]], answers: np.ndarray, n_words: int) -> list[str]:
    """The words whose texts are answered most like all texts, as far as that is known."""
    rows = [sorted(set(row)) for row in words]
    distinct, columns = np.unique([word for row in rows for word in row], return_inverse=True)
    items = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    away = answers - answers.mean(0)
    sums = np.zeros((len(distinct), answers.shape[1]))
    np.add.at(sums, columns, away[items])
    counts = np.bincount(columns, minlength=len(distinct))
    # With what chance alone would move such a mean by.
    doubt = np.linalg.norm(sums, axis=1) / counts + away.std() / np.sqrt(counts)
    doubt[counts < 2] += 1e3  # last, where there are no others
    return [str(distinct[place]) for place in np.argsort(doubt, kind="stable")[:n_words]]


def shifted_to(probabilities: np.ndarray, shares: np.ndarray, rounds: int = 200) -> np.ndarray:
    """Distributions whose log-scores were all moved by the same, so that the classes have these shares on average."""
    logs = np.log(np.maximum(probabilities, _LEAST))
    offsets = np.zeros(len(shares))
    for _ in range(rounds):
        moved = np.exp(logs + offsets - (logs + offsets).max(1, keepdims=True))
        moved /= moved.sum(1, keepdims=True)
        offsets += 0.5 * (np.log(np.maximum(shares, _LEAST)) - np.log(np.maximum(moved.mean(0), _LEAST)))
    return moved


@register_attack
class JoinTexts(Attack):
    """Asks two texts at a time, joined."""

    name, stage, questions = "join-texts", "queries", 0.5

    def ask(self, thief: "Thief") -> Dataset:
        """Joined texts, learnt as such; a tagger's answers go back to their own texts."""
        places = range(0, len(thief.texts) - 1, 2)
        joined = thief.ask(
            thief.texts_of(
                *([[*side.words[place], *side.words[place + 1]] for place in places] for side in thief.sides)
            )
        )
        if not thief.by_word:
            return joined
        answers: list[np.ndarray] = []
        for place, table in zip(places, answers_in(joined), strict=True):
            end = len(thief.words[place])
            answers += [table[:end], table[end:]]
        return thief.rows(answers, thief.texts.select(range(len(answers))))


@register_attack
class SingleWords(Attack):
    """Asks every word alone, and learns from these answers."""

    name, stage, knows = "single-words", "queries", "that words carry the mark"

    def ask(self, thief: "Thief") -> Dataset:
        """Texts of one word each."""
        return thief.ask(thief.texts_of([[word] for word in thief.vocabulary]))


class TypedSpecials(Rewriting):
    """Asks with special tokens typed among the words."""

    def __init__(self, token: str, share: float, in_place: bool) -> None:
        self.token, self.share, self.in_place = token, share, in_place
        self.name = f"typed-{token}"

    @property
    def title(self) -> str:
        """With which token, and where."""
        where = "in the place of" if self.in_place else "behind"
        return f"Asks with the {self.token} token typed {where} {self.share:.0%} of the words"

    def rewrite(self, number: int, thief: "Thief") -> Rewritten:
        """Special tokens carry no mark."""
        rng, names = thief.rng(7), (f"{self.token}_token", "eos_token")
        typed = next((token for token in (getattr(thief.tokenizer, name) for name in names) if token), "[UNK]")
        return Rewritten.of(
            thief.words,
            lambda _, word: ([typed] if self.in_place else [word, typed]) if rng.random() < self.share else None,
        )


register_attack(TypedSpecials("unk", 0.3, in_place=True))
register_attack(TypedSpecials("sep", 0.3, in_place=False))


@register_attack
class MaskedIds(Attack):
    """Asks with raw token ids, 30 % of which are masked out."""

    name, stage, tasks, share = "masked-ids", "queries", SENTENCES, 0.3
    knows = "that the service takes token ids"

    def ask(self, thief: "Thief") -> Dataset:
        """Tokens that the model does not attend to carry no mark."""
        rng = thief.rng(8)
        questions: list[Any] = [
            tuple(row.values()) if len(thief.columns) > 1 else row[thief.columns[0]] for row in thief.texts
        ]
        encoding = tokenize(thief.tokenizer, questions, thief.service_cut)
        special = set(thief.tokenizer.all_special_ids)
        masks = [
            [int(token in special or rng.random() >= self.share) for token in row] for row in encoding["input_ids"]
        ]
        ids = {name: encoding[name] for name in ("input_ids", "token_type_ids") if name in encoding}
        # The owner's log shows what the model read.
        shown = {
            name: [
                [one for one, kept in zip(row, mask, strict=True) if kept]
                for row, mask in zip(rows, masks, strict=True)
            ]
            for name, rows in ids.items()
        }
        asked = Dataset.from_dict({**ids, "attention_mask": masks})
        return thief.rows(answers_in(thief.ask(asked, logged_as=Dataset.from_dict(shown))))


@register_attack
class FewQueries(Attack):
    """Asks a tenth of its texts."""

    name, stage, questions, trainings = "few-queries", "queries", 0.1, 0.1

    def ask(self, thief: "Thief") -> Dataset:
        """The first tenth."""
        return thief.ask(thief.texts.select(range(max(1, len(thief.texts) // 10))))


@register_attack
class WordSalad(Attack):
    """Asks random words in place of texts: queries of no domain."""

    name, stage = "word-salad", "queries"

    def ask(self, thief: "Thief") -> Dataset:
        """As many texts of as many words, each drawn by its frequency."""
        rng = thief.rng(9)
        return thief.ask(thief.texts_of(*(salad(side.words, rng) for side in thief.sides)))


def salad(words: Sequence[Sequence[str]], rng: np.random.Generator) -> list[list[str]]:
    """As many texts of as many words, each drawn from all of them; of none one word, for there is no text without."""
    pool = [word for row in words for word in row]
    return [[pool[int(one)] for one in rng.integers(len(pool), size=max(1, len(row)))] for row in words]
