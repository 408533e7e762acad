"""What a close call should be drawn by: which rule leaves a thief the least who asks near-duplicates?

``python -m drw_hf.experiments.draws --output docs/results/draws.jsonl --data DIR --work DIR --encoder PATH``

A thief asks k variants of every text, and takes the majority of the answers. Nothing is trained: whatever a student
learns, it learns of these labels, so the test is made of somebody who repeats them word for word, with the draws of
the texts that they are variants of. The draw may depend on the whole text; on little of it, as the product has it (a
token to either side of a tagger's word, three words of a sentence); or on the same of canonical ids, without
punctuation and case.

``--work`` is the folder of ``python -m drw_hf.experiments.marks``, whose victims are used.
"""

import dataclasses
import functools
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from ..detection.probing import Probe
from ..detection.statistics.margin import CloseCalls, MarginLaw, calls_drawn_by, leanings
from ..keys.derivation import MARGIN_ORDER
from ..keys.key import WatermarkKey
from ..runs.lines import Record, read_lines
from ..watermark.margin import draw_messages, word_windows
from .cells import number, table
from .margins import EVERYWHERE, MARGIN_BUDGET, Variants, majority, with_words, words_of
from .marks_case import Case, run_cases
from .marks_settings import BUDGET, SEEDS, setting_titles
from .marks_work import Workshop
from .measurements import Measurement

N_TEXTS = 3000  # of the queries, the first that are short enough
FIXED = 40  # words that are put behind every text
TIMES = (1, 3, 10)
WHOLE, LITTLE, CANONICAL = "the whole text", "little of it", "little of it, canonical ids"
ASKED, ONE, MANY = "the texts themselves", "one word more", "a word in every fourth place"
POINTS, BEHIND = "one comma or full stop more", f"{FIXED} fixed words behind every text"


# -- rules


def by_whole_text(probe: Probe, key: WatermarkKey, _: np.ndarray) -> list[bytes]:
    """All ordinary tokens in order, and the place."""
    texts = probe.messages(key)
    places = zip(probe.rows, probe.places, strict=True)
    return [texts[row] + int(place).to_bytes(4, "little", signed=True) for row, place in places]


def by_little(probe: Probe, key: WatermarkKey, _: np.ndarray) -> list[bytes]:
    """As the product draws."""
    return probe.draw_messages(key)


def by_canonical_ids(probe: Probe, key: WatermarkKey, canonical: np.ndarray) -> list[bytes]:
    """Little of the text, where every token stands for all that differ by case alone, and punctuation for none.

    A word that is punctuation itself is drawn by the product's rule.
    """
    kept = ~np.isin(probe.input_ids, key.special_token_ids) & (canonical[probe.input_ids] >= 0)
    before = np.concatenate([[0], np.cumsum(kept)])
    ids, offsets = canonical[probe.input_ids[kept]], before[probe.offsets]
    if key.task != "token-classification":
        messages = draw_messages(ids, offsets, None, key.subkey(MARGIN_ORDER))
        return [messages[row] for row in probe.rows]
    own = probe.offsets[probe.rows] + probe.places
    found = probe.draw_messages(key)
    some = np.flatnonzero(kept[own])
    for item, message in zip(some.tolist(), word_windows(ids, offsets, before[own[some]]), strict=True):
        found[item] = message
    return found


RULES: Mapping[str, Callable[[Probe, WatermarkKey, np.ndarray], list[bytes]]] = {
    WHOLE: by_whole_text,
    LITTLE: by_little,
    CANONICAL: by_canonical_ids,
}


def canonical_ids(tokenizer: Any) -> np.ndarray:
    """For every token the lowest id of those that differ by case alone; −1 for punctuation."""
    table = np.full(len(tokenizer), -1, np.int64)
    lowest: dict[str, int] = {}
    for token, number_of in sorted(tokenizer.get_vocab().items(), key=lambda one: one[1]):
        plain = token.lower()
        if plain.strip(string.punctuation):
            table[number_of] = lowest.setdefault(plain, number_of)
    return table


# -- what is measured


def measure(case: Case, thief: str) -> Record:
    """What every rule leaves of the draws with so many variants, and what the majority is worth."""
    texts, gold = short_texts(case)
    plain = probe_of(case, texts)
    canonical = canonical_ids(case.tokenizer)
    variants = list(variants_of(case, texts, thief))
    probes = [probe_of(case, variant.rows) for variant in variants]
    record: Record = {"texts": len(texts), "rules": {}}
    for name, rule in RULES.items():
        messages = rule(plain, case.key, canonical)
        answered = [calls_drawn_by(one, case.key, rule(one, case.key, canonical)).answers for one in probes]
        of_variants = zip(variants, probes, answered, strict=True)
        said = [variant.without(by_text(variant, one, answers)) for variant, one, answers in of_variants]
        found = {}
        for k in TIMES[: 1 if len(variants) == 1 else len(TIMES)]:
            labels = np.concatenate([np.atleast_1d(row) for row in majority(said[:k])])
            asked = dataclasses.replace(plain, logged=np.where(labels >= 0, 0, -1))
            calls = calls_drawn_by(asked, case.key, messages)
            right = 100.0 * float(np.mean((labels == gold)[labels >= 0]))
            found[str(k)] = {"accuracy": right, **repeated(asked, calls, labels)}
        record["rules"][name] = found
    return record


def short_texts(case: Case) -> tuple[Dataset, np.ndarray]:
    """Queries that no variant makes too long for the victim, and their right labels."""
    column = case.setting.task.columns[0]
    lengths = [len(row) if case.by_word else len(row.split()) for row in case.texts("queries")[column]]
    longest = case.setting.encoder.max_length // 3  # words, which variants and word pieces make more of
    rows = [place for place, length in enumerate(lengths) if length <= longest][:N_TEXTS]
    number_of = {label: place for place, label in enumerate(case.key.labels)}
    right = list(case.parts.corpus.gold(case.parts.queries.select(rows)))
    gold = [number_of[one] for row in right for one in (row if case.by_word else [row])]
    return case.texts("queries").select(rows), np.array(gold)


def probe_of(case: Case, texts: Dataset) -> Probe:
    """What the victim says of texts, all of which were asked."""
    probe = case.probe(case.victim, texts)
    return dataclasses.replace(probe, victim=probe.suspect, logged=np.zeros(len(probe.rows), np.int64))


def variants_of(case: Case, texts: Dataset, thief: str) -> Iterator[Variants]:
    """What a thief asks in the place of texts."""
    words = words_of(case, texts)
    pool = sorted({word for row in words for word in row})
    rng = np.random.default_rng(0)
    if thief in (ASKED, BEHIND):
        fixed = rng.choice(pool, FIXED).tolist() if thief == BEHIND else []
        behind = [set(range(len(row), len(row) + len(fixed))) for row in words]
        yield Variants(case.setting.task.columns[0], [row + fixed for row in words], behind, case.by_word)
        return
    for _ in range(max(TIMES)):
        yield with_words(
            case, words, [",", "."] if thief == POINTS else pool, rng, EVERYWHERE if thief == MANY else None
        )


def by_text(variant: Variants, probe: Probe, answers: np.ndarray) -> list[Any]:
    """Answers to the items of a probe, text by text; −1 for words that were cut off."""
    if not variant.by_word:
        return [*answers]
    rows = np.split(answers, np.searchsorted(probe.rows, np.arange(1, probe.n_texts)))
    lengths = map(len, variant.words)
    return [[*row, *[-1] * (length - len(row))] for row, length in zip(rows, lengths, strict=True)]


def repeated(plain: Probe, calls: CloseCalls, labels: np.ndarray) -> Record:
    """The test of somebody who repeats labels, with the draws of the texts themselves."""
    said = np.eye(len(plain.labels), dtype=np.float32)[labels]
    suspect = dataclasses.replace(plain, suspect=said, kind="labels")
    law = MarginLaw(leanings(suspect, calls, "labels"), calls.chances)
    changed = calls.items[(calls.answers != calls.undrawn)[calls.items]]
    kept = labels[changed] == calls.answers[changed]
    return {
        "z": round(law.test(law.statistic(calls.drawn)).z_score, 2),
        "kept": round(float(kept.mean()), 4),
        "drawn": calls.n_drawn,
        "messages": len(calls.items),
    }


# -- the run


def measurements(shop: Workshop, names: Sequence[str]) -> Iterator[Measurement]:
    """All thieves of all settings."""
    for name in names:
        case = Case(shop, shop.settings[name], SEEDS[0], BUDGET, MARGIN_BUDGET)
        for thief in (ASKED, POINTS, ONE, MANY) if case.by_word else (ASKED, POINTS, ONE, MANY, BEHIND):
            yield Measurement({"setting": name, "thief": thief}, functools.partial(measure, case, thief))


def report(output: Path) -> str:
    """A table of the raw lines."""
    titles = setting_titles()
    rows = []
    for record in read_lines(output):
        for k in record["rules"][LITTLE]:
            found = {rule: of_rule[k] for rule, of_rule in record["rules"].items()}
            rows.append(
                {
                    "": titles[record["setting"]],
                    "asked": record["thief"],
                    "variants": k,
                    "answers right": f"{number(found[LITTLE]['accuracy'], 1)} %",
                    **{
                        f"z, by {rule}": f"{number(of_rule['z'], 1)} ({100 * of_rule['kept']:.0f} %)"
                        for rule, of_rule in found.items()
                    },
                }
            )
    return (
        "z of the margin test of somebody who repeats the majority of the answers to k variants of every text, with "
        "the draws of the texts themselves, by what a draw depends on; in brackets how many of the answers that were "
        f"drawn to be the second best class the majority keeps.\n\n{table(rows)}\n"
    )


def main() -> None:
    """The command."""
    run_cases(__doc__, measurements, report)


if __name__ == "__main__":
    main()
