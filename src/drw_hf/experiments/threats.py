"""What a thief reads of the paper's mark without training anything, and of tilt in the same way.

``python -m drw_hf.experiments.threats --output docs/results/threats.jsonl``

The thief knows the method and everything but the key, and asks the small victims of :mod:`drw_hf.experiments.theft`,
which nobody copies here. Three things are tried:

*answers*: the smallest score of one soft answer. Equation 5 gives every class but the target the same extra share,
ε (1 − z)/((m − 1)(1 + 2ε)), and where a class is next to impossible that share is all it has. The registered attacks
are made on the same answers, and the exact test is made of somebody who repeats word for word what they leave.

*words*: the hash rule ``keyed``. Words are compared two at a time, until one is left that comes before all others.

*repetitions*: hard labels of a tagger, which are drawn anew at every place of a text. A query repeats one word, and
the share of a label among the answers estimates that word's marked probability.
"""

import dataclasses
import functools
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset

from ..asking import label_with_teacher
from ..asking.labelling import LABELS, PROBABILITIES
from ..extraction.attacks import attack_named
from ..keys import WatermarkKey
from ..keys.choices import Task
from ..planning import fit_tilt
from ..runs.lines import Record
from ..watermark.cosine import signal_tables
from ..watermark.margin import word_windows
from ..watermark.tilt import TiltSettings, signals
from ..watermark.tokens import Query, hashed_tokens, view_tokens
from .measurements import Measurement, command_parser, run_command
from .scoring import tested
from .theft import CORPORA, MAX_LENGTH, Theft, make_theft
from .threats_report import report

TAGGER: Task = "token-classification"
SENTENCES: Task = "sequence-classification"
SEEDS = (1, 2, 3)  # of the keys
ASKED: tuple[tuple[Task, int], ...] = ((TAGGER, 0), (TAGGER, 3), (SENTENCES, 0))  # and digits shown; 0: all
LIFTED = 1e-3  # with more than two classes, an answer whose smallest score is as large is taken as marked
ATTACKED = ("floor", "argmax", "rounding", "sharpening")
SIZES = (50, 535, 2000)  # words that are compared
JOINED = (1, 5)  # sentences that make one text
N_CARRIERS = 20  # texts of common words alone that a thief tries
UNLIKE = 0.02  # a word that takes so much off the best score of all is taken as one that the key marks
COSINE, TILT, DRAWN = "cosine", "tilt", "tilt with margin draws"
MARGIN_BUDGETS = {TILT: 0.0, DRAWN: 0.1}  # in points, of tilt's budget
BUDGET = 0.3  # points of accuracy that tilt may cost
N_PRICED = 1500  # texts by which its strength is found
N_NAMES = 400  # words that are repeated
BEFORE = {"alone": (), "after “and”": ("and",)}  # what stands before the word each time
LONGEST = MAX_LENGTH - 4  # words of a query
REPETITIONS = (("alone", 1), ("after “and”", 1), ("after “and”", 10))  # and queries for every word
_CPU = torch.device("cpu")


def correlation(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Pearson's."""
    return round(float(np.corrcoef(estimate, truth)[0, 1]), 7)


def cosine_key(theft: Theft, seed: int, **settings: Any) -> WatermarkKey:
    """A key of the paper's mark, the same in every run."""
    return theft.key(secret=seed.to_bytes(32, "big"), **settings)


def tilt_key(theft: Theft, seed: int, settings: TiltSettings) -> WatermarkKey:
    """A key of the mark tilt, the same in every run."""
    named: Any = {"tokenizer": theft.tokenizer, "secret": seed.to_bytes(32, "big"), "temperature": 1.0}
    return WatermarkKey.generate(theft.victim, mark="tilt", **named).replace(settings=settings)


def asked(theft: Theft, model: Any, texts: Sequence[Any], folder: str) -> Dataset:
    """The answers of a service to texts of the thief's own."""
    rows = Dataset.from_dict({CORPORA[theft.task].column: list(texts)})
    return label_with_teacher(model, rows, theft.tokenizer, cache_dir=folder, progress=False)


# -- one soft answer


class Reading(NamedTuple):
    """What the floors of answers tell, one below the other."""

    marked: np.ndarray  # which answers are taken as marked
    named: np.ndarray  # the class that each has on top: if it is marked, the target
    epsilon: float


def read_floors(answers: np.ndarray) -> Reading:
    """What soft answers (N, m) tell by their smallest scores, with m > 2.

    Only ε takes more than one of them: z runs down to −1 somewhere, and there the floor is 2ε/((m − 1)(1 + 2ε)).
    """
    floors = answers.min(axis=1)
    marked, highest = floors >= LIFTED, float(floors.max())
    all_but_one = (answers.shape[1] - 1) * highest
    return Reading(marked, answers.argmax(axis=1), all_but_one / (2 * (1 - all_but_one)))


def measure_answers(task: Task, digits: int, seed: int, folder: str) -> Record:
    """What single answers tell of the key, and what of the mark is left in answers that were changed."""
    theft = make_theft(task, folder)
    key = cosine_key(theft, seed)
    # Of the text that it was trained on the victim is surer than of what a thief asks.
    probe = theft.probe(theft.protected(key, digits=digits), theft.unseen, key, folder)
    assert probe.victim is not None  # it was asked
    answers = probe.suspect.astype(np.float64)
    tokens, exists = probe.tokens_of(key)
    signal, selected = (values.numpy()[tokens] for values in signal_tables(key, _CPU))
    marked = exists & selected & (probe.victim.argmax(axis=1) == key.target)
    _, one = np.unique(tokens[marked], return_index=True)  # of every word its first answer
    single = answers[marked][one]
    record: Record = {
        "answers": len(answers),
        "marked": int(marked.sum()),
        "words": len(one),
        "correlation": correlation(-single.min(axis=1), signal[marked][one]),
    }
    if answers.shape[1] > 2:
        found = read_floors(answers)
        record |= {
            "found": float(found.marked[marked].mean()),
            "mistaken": float(found.marked[~marked].mean()),
            "named": float((found.named[found.marked] == key.target).mean()),
            "epsilon": found.epsilon,
        }
    record["z"] = {"nothing": tested(probe, key)["z"]}
    for name in ATTACKED:
        left = attack_named(name).change_answers(answers).astype(np.float32)
        record["z"][name] = tested(dataclasses.replace(probe, suspect=left), key)["z"]
    return record


# -- the word that comes first


def knockout(words: Sequence[str], earlier: Callable[[list[tuple[str, str]]], list[str]]) -> tuple[str, int]:
    """The word that comes before all others, and how many pairs ``earlier`` was asked about: one less than words."""
    left, n_pairs = list(words), 0
    while len(left) > 1:
        pairs = list(zip(left[::2], left[1::2], strict=False))
        left, n_pairs = [*earlier(pairs), *left[2 * len(pairs) :]], n_pairs + len(pairs)
    return left[0], n_pairs


def hashed_words(key: WatermarkKey, tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """The token that the key's own rule picks in every text."""
    encoding = tokenizer(list(texts), padding=True, return_tensors="pt")
    query = Query(encoding["input_ids"], encoding["attention_mask"])
    return tokenizer.convert_ids_to_tokens(hashed_tokens(key, query, view_tokens(key, query))[0].tolist())


def expected_share(n_compared: int, n_others: np.ndarray) -> float:
    """How many texts the first of N words is hashed in, if they have n words besides: the mean of N/(N + n).

    Of N + n words in an order that nobody knows each is as likely as another to be the first of all, and N of them are
    the thief's.
    """
    return float(np.mean(n_compared / (n_compared + n_others)))


def measure_words(n_words: int, seed: int, folder: str) -> Record:
    """Of how many texts a thief fixes the hash, who puts the first of so many words into every query."""
    theft = make_theft(SENTENCES, folder)
    tokenizer, key = theft.tokenizer, cosine_key(theft, seed, hash_rule="keyed")
    service = theft.protected(key)
    n_common = len(tokenizer) // 10  # of these the rule picks one only where there is nothing else
    uncommon = tokenizer.convert_ids_to_tokens(range(n_common, len(tokenizer)))
    words = [uncommon[place] for place in np.random.default_rng(seed).permutation(len(uncommon))[:n_words]]
    sentences = theft.text(theft.queries) + theft.text(theft.unseen)

    def uncommon_words(texts: Sequence[str]) -> list[set[int]]:
        return [{token for token in row if token >= n_common} for row in tokenizer(list(texts))["input_ids"]]

    def fixed(word: str, compared: Sequence[str]) -> Record:
        ids, shares = set(tokenizer.convert_tokens_to_ids(list(compared))), {}
        for size in JOINED:
            texts = [" ".join(sentences[start : start + size]) for start in range(0, len(sentences), size)]
            others = np.array([len(of_text - ids) for of_text in uncommon_words(texts)])
            hashed = hashed_words(key, tokenizer, [f"{word} {text}" for text in texts])
            shares[str(size)] = {
                "share": float(np.mean([one == word for one in hashed])),
                "expected": expected_share(len(compared), others),
                "others": float(others.mean()),
            }
        return shares

    def by_rule(pairs: list[tuple[str, str]]) -> list[str]:
        return hashed_words(key, tokenizer, [" ".join(pair) for pair in pairs])

    def scores(queries: Sequence[str]) -> np.ndarray:
        return np.array(asked(theft, service, queries, folder)[PROBABILITIES])[:, key.target]

    # A text of common words alone is hashed by what is put before it; the surer the answer, the plainer the mark.
    common = [text for text, rare in zip(sentences, uncommon_words(sentences), strict=True) if not rare]
    carriers = list(dict.fromkeys(common))[:N_CARRIERS]
    carrier = carriers[int(scores(carriers).argmax())]
    alone = dict(zip(words, scores([f"{word} {carrier}" for word in words]), strict=True))
    shown = [word for word in words if alone[word] < max(alone.values()) - UNLIKE]
    right: list[bool] = []

    def by_answers(pairs: list[tuple[str, str]]) -> list[str]:
        both = scores([f"{first} {second} {carrier}" for first, second in pairs])
        said = [
            first if abs(alone[first] - score) < abs(alone[second] - score) else second
            for (first, second), score in zip(pairs, both, strict=True)
        ]
        right.extend(one == other for one, other in zip(said, by_rule(pairs), strict=True))
        return said

    best, n_pairs = knockout(words, by_rule)
    told, n_told = knockout(shown, by_answers)
    return {
        "known": {"queries": n_pairs, "compared": n_words, "right": 1.0, "fixed": fixed(best, words)},
        "by answers": {
            "queries": len(carriers) + len(words) + n_told,
            "compared": len(shown),
            "right": float(np.mean(right)),
            "fixed": fixed(told, shown),
        },
    }


# -- the same word again and again


def repeated(word: str, before: Sequence[str], n_words: int) -> list[str]:
    """A query of so many words, in which one comes again and again, each time after the same words."""
    return [*before, word] * (n_words // (len(before) + 1))


@functools.cache
def priced(margin_budget: float, folder: str) -> TiltSettings:
    """The settings of tilt that a budget leads to, by text that nobody else uses."""
    theft = make_theft(TAGGER, folder)
    asking: Any = {"budget": BUDGET, "margin_budget": margin_budget, "cache_dir": folder, "progress": False}
    return fit_tilt(theft.victim, theft.new_text(N_PRICED), theft.tokenizer, **asking).settings


def measure_repetitions(mark: str, how: str, n_queries: int, seed: int, folder: str) -> Record:
    """What the labels of one word, repeated, tell of the key's number for that word and the class of names."""
    theft, before = make_theft(TAGGER, folder), BEFORE[how]
    capitalised = sorted({word for row in theft.text(theft.queries) for word in row if word[0].isupper()})
    words = [capitalised[place] for place in np.random.default_rng(0).permutation(len(capitalised))[:N_NAMES]]
    ids = np.array(theft.tokenizer.convert_tokens_to_ids(words))
    target = theft.victim.config.label2id[CORPORA[TAGGER].target]
    if mark == COSINE:
        key = cosine_key(theft, seed)
        signal, carries = (values.numpy()[ids] for values in signal_tables(key, _CPU))
    else:
        key = tilt_key(theft, seed, priced(MARGIN_BUDGETS[mark], folder))
        signal, carries = signals(key, ids)[:, target], np.ones(len(ids), dtype=bool)
    service, counts, step = theft.protected(key, "hard"), np.zeros((len(words), key.num_labels), int), len(before) + 1
    for fewer in range(n_queries):  # another length is another text, whose labels are drawn anew
        queries = [repeated(word, before, LONGEST - fewer * step) for word in words]
        labels = np.array(asked(theft, service, queries, folder)[LABELS])[:, len(before) :: step]
        counts += np.stack([np.bincount(row, minlength=key.num_labels) for row in labels])
    n_labels = int(counts[0].sum())
    called = carries & (counts.argmax(axis=1) == target)
    return {
        "words": int(called.sum()),
        "labels": n_labels,
        "draws": {COSINE: n_labels, TILT: 0, DRAWN: n_windows(len(before), LONGEST)}[mark],
        "correlation": correlation(counts[called, target] / n_labels, signal[called]),
    }


def n_windows(n_before: int, n_words: int) -> int:
    """How many different draws between two classes there are for a word that is repeated so."""
    tokens = np.array([1] * n_before + [0])
    query = np.tile(tokens, n_words // len(tokens))
    return len(set(word_windows(query, np.array([0, len(query)]), np.flatnonzero(query == 0))))


# -- the run


def measurements(options: Namespace, folder: str) -> Iterator[Measurement]:
    """All that is measured."""
    for seed in SEEDS:
        ways: list[tuple[str, Callable[..., Record], Record]] = [
            *(("answers", measure_answers, {"task": task, "digits": digits}) for task, digits in ASKED),
            *(("words", measure_words, {"n_words": size}) for size in SIZES),
            *(
                ("repetitions", measure_repetitions, {"mark": mark, "how": how, "n_queries": n_queries})
                for mark in (COSINE, *MARGIN_BUDGETS)
                for how, n_queries in REPETITIONS
            ),
        ]
        for what, measure, about in ways:
            named = {"seed": seed, **about}
            yield Measurement({"what": what, **named}, partial(measure, **named, folder=folder))


def main() -> None:
    """The command."""
    run_command(command_parser(__doc__), measurements, report)


if __name__ == "__main__":
    main()
