"""Are margin draws found in the students of a hard-label service, what do thieves do to them, and what do they cost?

``python -m drw_hf.experiments.margins --output docs/results/margins.jsonl --data DIR --work DIR --encoder PATH``

``--work`` is the folder of ``python -m drw_hf.experiments.marks``, whose victims are used. Their keys get a budget of
0.3 points of accuracy, of which 0.1 is for draws, on labelled text that is used for nothing else. Every thief takes
hard labels and asks about the same texts; the owner has logged what was asked and answered, and tests the student on
the log, and on unseen text.
"""

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset, List, concatenate_datasets

from ..asking.labelling import LABELS, PROBABILITIES
from ..detection.probing import Probe
from ..detection.statistics import TestOptions
from ..detection.statistics.tilt_and_margin import TiltAndMarginStatistic
from ..keys.files import write_atomically
from ..planning.margin_costs import MarginCosts
from ..planning.tilt_costs import TiltCosts
from ..planning.tilt_traffic import LEAST_KEYS, observe_tilt_traffic
from ..runs.lines import Record
from ..watermark.marking import OutputOptions
from ..watermark.tilt import settings_of
from .margins_report import NOTHING_DONE, report
from .marks_case import Case, run_cases
from .marks_served import ask_victim, paired_cost
from .marks_settings import BUDGET, SEEDS, Setting
from .marks_work import Workshop, labels_alone
from .measurements import Measurement

MARGIN_BUDGET = 0.1
MARKED_SHARE = 0.1  # of the queries, where a thief has gold labels for the others
VOTES, CLEANS = "majority vote per word", "drops what 5 folds contradict"
RELABELS, MIXES = {2: "relabels by 2 folds", 5: "relabels by 5 folds"}, "10 % marked, rest gold"
LOGGED = 3  # variants of every text that the owner tests by, to save time
TIMES = (3, 10)  # how many near-duplicates of every text are asked
EVERYWHERE = 4  # words of a text to each one that is put into it, by a thief who knows how draws are made
ASKS = {
    **{f"asks {k} near-duplicates, one word more": (k, None) for k in TIMES},
    **{f"asks {k} near-duplicates, a word in every fourth place": (k, EVERYWHERE) for k in TIMES},
}
HARD: Any = {"label_kind": "hard"}
FOLDER = "margins"  # where students and what folds say are kept, for tests to be done anew


# -- what thieves do


@dataclasses.dataclass(frozen=True)
class Theft:
    """What a student learns from, and what the owner has logged: texts with the answers to them.

    Of near-duplicates the log holds all variants, here three of each text; ``in_common`` is what an owner who sees
    them side by side makes of them: the texts that they are variants of, with what was answered most often.
    """

    learnt: Dataset
    logged: Dataset
    in_common: Dataset | None = None


def steal(case: Case, thief: str) -> Theft:
    """What a thief makes of the hard answers to its queries."""
    texts = case.texts("queries")
    if thief in ASKS:
        k, step = ASKS[thief]
        variants = [with_inserted_words(case, texts, seed, step) for seed in range(k)]
        answered = [case.served(variant.rows, **HARD) for variant in variants]
        voted = majority([variant.without(rows[LABELS]) for variant, rows in zip(variants, answered, strict=True)])
        learnt = labelled(case, texts, voted)
        return Theft(learnt, concatenate_datasets(answered[:LOGGED]), in_common=learnt)
    if thief == MIXES:
        n = round(MARKED_SHARE * len(texts))
        marked = case.served(texts.select(range(n)), **HARD)
        number_of = {label: number for number, label in enumerate(case.key.labels)}
        gold = list(case.parts.corpus.gold(case.parts.queries))[n:]
        known = [[number_of[one] for one in row] if case.by_word else number_of[row] for row in gold]
        return Theft(labelled(case, texts, [*marked[LABELS], *known]), marked)
    answers = case.served(texts, **HARD)
    labels: list[Any] = list(answers[LABELS])
    if thief == VOTES:
        labels = majority_per_word(texts[case.setting.task.columns[0]], labels)
    elif thief == CLEANS:
        said = out_of_fold(case, labelled(case, texts, labels), 5)
        labels = [cleaned(own, other) for own, other in zip(labels, said, strict=True)]
    elif thief in RELABELS.values():
        folds = next(k for k, name in RELABELS.items() if name == thief)
        labels = out_of_fold(case, labelled(case, texts, labels), folds)
    return Theft(labelled(case, texts, labels), answers)


def labelled(case: Case, texts: Dataset, labels: Sequence[Any]) -> Dataset:
    """Texts with labels of theirs, as a service would answer; texts without any are left out."""
    columns = {name: texts[name][:] for name in case.setting.task.columns}
    sure = np.vstack([np.eye(case.key.num_labels, dtype=np.float32), np.zeros(case.key.num_labels, np.float32)])
    numbers = [np.asarray(row).tolist() for row in labels]
    answers = {LABELS: numbers, PROBABILITIES: [sure[np.asarray(row, dtype=np.int64)].tolist() for row in numbers]}
    names = ClassLabel(names=list(case.key.labels))
    rows = Dataset.from_dict({**columns, **answers}).cast_column(LABELS, List(names) if case.by_word else names)
    return rows.select([place for place, row in enumerate(numbers) if np.max(row, initial=-1) >= 0])


def cleaned(own: Any, said: Any) -> Any:
    """A label, or those of the words of a text, where somebody agrees; −1 elsewhere."""
    if np.ndim(own) == 0:
        return own if own == said else -1
    return [one if one == other else -1 for one, other in zip(own, said, strict=True)]


def majority_per_word(texts: Sequence[Sequence[str]], labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Every word gets the label that it has most often, of those that end alike the first to be seen."""
    counts: dict[str, Counter[int]] = {}
    for words, row in zip(texts, labels, strict=True):
        for word, label in zip(words, row, strict=True):
            if label >= 0:
                counts.setdefault(word, Counter())[label] += 1
    best = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    return [
        [best[word] if label >= 0 else -1 for word, label in zip(words, row, strict=True)]
        for words, row in zip(texts, labels, strict=True)
    ]


def majority(answers: Sequence[Sequence[Any]]) -> list[Any]:
    """What most variants of a text were answered, for each text, or each of its words."""

    def most(values: Sequence[int]) -> int:
        given = [value for value in values if value >= 0]
        return Counter(given).most_common(1)[0][0] if given else -1

    return [
        most(row) if np.ndim(row[0]) == 0 else [most(of_word) for of_word in zip(*row, strict=True)]
        for row in zip(*answers, strict=True)
    ]


@dataclasses.dataclass(frozen=True)
class Variants:
    """Texts with words put into them, and where these stand."""

    column: str
    words: Sequence[Sequence[str]]
    places: Sequence[set[int]]
    by_word: bool

    @property
    def rows(self) -> Dataset:
        """The texts, to be asked about."""
        return Dataset.from_dict({self.column: self.words if self.by_word else [" ".join(row) for row in self.words]})

    def without(self, labels: Sequence[Any]) -> list[Any]:
        """Of the labels of these texts, those of the texts themselves, or of their words."""
        if not self.by_word:
            return list(labels)
        return [
            [label for place, label in enumerate(row) if place not in inserted]
            for row, inserted in zip(labels, self.places, strict=True)
        ]


def with_inserted_words(case: Case, texts: Dataset, seed: int, step: int | None = None) -> Variants:
    """Every text with a word of another one put somewhere into it, or one before each ``step`` of its words."""
    words = words_of(case, texts)
    pool = sorted({word for row in words for word in row})
    return with_words(case, words, pool, np.random.default_rng(seed), step)


def words_of(case: Case, texts: Dataset) -> list[list[str]]:
    """The words of every text."""
    return [list(row) if case.by_word else row.split() for row in texts[case.setting.task.columns[0]]]


def with_words(
    case: Case, words: Sequence[Sequence[str]], pool: Sequence[str], rng: np.random.Generator, step: int | None = None
) -> Variants:
    """Every text with a word of a pool put somewhere into it, or one before each ``step`` of its words."""
    more, places = [], []
    for row in words:
        wanted = {int(rng.integers(len(row) + 1))} if step is None else set(range(0, len(row) + 1, step))
        changed: list[str] = []
        inserted = set()
        for place in range(len(row) + 1):
            if place in wanted:
                inserted.add(len(changed))
                changed.append(pool[int(rng.integers(len(pool)))])
            changed += row[place : place + 1]
        more.append(changed)
        places.append(inserted)
    return Variants(case.setting.task.columns[0], more, places, case.by_word)


def out_of_fold(case: Case, rows: Dataset, n_folds: int) -> list[Any]:
    """What students of the other folds say of every row; kept, since two thieves want to know."""
    kept = case.path(FOLDER) / f"{n_folds} folds.json"
    if kept.exists():
        return json.loads(kept.read_text())
    said: list[Any] = [None] * len(rows)
    fold_of = np.random.default_rng(0).permutation(len(rows)) % n_folds
    for fold in range(n_folds):
        inside, outside = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
        student = case.student(rows.select(outside), "hard")
        answers = case.shop.answers(case.setting, student, rows.select(inside))[LABELS]
        for place, answer in zip(inside.tolist(), answers, strict=True):
            said[place] = answer
    write_atomically(kept, json.dumps(said).encode())
    return said


# -- what is measured


def measure_student(case: Case, thief: str) -> Record:
    """A thief's student, tested on the log and on unseen text."""
    theft = steal(case, thief)
    student = case.kept(f"{FOLDER}/{thief}", lambda: case.student(theft.learnt, "hard"))
    chosen = settings_of(case.key)
    probe, accuracy = case.against_victim(student, "unseen")
    record: Record = {"strength": chosen.strength, "margin": chosen.margin, "accuracy": round(accuracy, 2)}
    record |= {"log": of_log(case, student, theft.logged), "unseen": case.both(probe)}
    return record if theft.in_common is None else {**record, "in common": of_log(case, student, theft.in_common)}


def of_log(case: Case, student: Any, logged: Dataset) -> Record:
    """What tests say of a student by the scores, and by the labels alone, that it gives to logged texts."""
    texts = logged.select_columns(list(case.setting.task.columns))
    probe = case.probe(student, texts, victim=case.victim, logged=logged[LABELS][:])
    return {"scores": parts_of(case, probe), "labels": parts_of(case, labels_alone(probe))}


def parts_of(case: Case, probe: Probe) -> Record:
    """Both tests as one, and each."""
    found = TiltAndMarginStatistic().test(probe, case.key, TestOptions())
    tests = {"both": found, **found.parts}
    figures: Record = {
        name: {"z": round(one.test.z_score, 3), "log10_bound": round(one.test.log10_bound, 3), "n": one.n_probes}
        for name, one in tests.items()
    }
    return {**figures, "mismatches": found.settings["n_mismatches"], "logged": found.settings["n_logged"]}


def measure_innocent(case: Case, name: str) -> Record:
    """A student that has nothing to do with the service, tested with its log."""
    return {"log": of_log(case, case.model(name), case.served(case.texts("queries"), **HARD))}


def measure_cost(case: Case) -> Record:
    """What hard answers cost over keys, expected and counted, on unseen text."""
    chosen = settings_of(case.key)
    keys = [case.shop.key(case.setting, f"margin cost {n}").replace(settings=chosen) for n in range(LEAST_KEYS)]
    asking: Any = {"label_column": case.setting.task.gold, **case.shop.asking(case.setting)}
    traffic = observe_tilt_traffic(case.victim, case.parts.unseen, case.tokenizer, like=keys[0], **asking)
    tilt = TiltCosts(traffic, chosen.temperature, keys).at(chosen.strength)
    drawn = MarginCosts(traffic, chosen.temperature, keys, chosen.strength).at(chosen.margin)
    asked = ask_victim(case.victim, case.tokenizer, case.parts.evaluated_on("unseen"))
    clean = asked.logits.argmax(-1).numpy() == asked.gold
    served = [asked.served(key, OutputOptions("hard")).argmax(-1).numpy() == asked.gold for key in keys]
    counted = paired_cost(clean.astype(float) - np.array(served, dtype=float), asked.rows)
    return {
        "strength": chosen.strength,
        "margin": chosen.margin,
        "clean": 100.0 * float(clean.mean()),
        "tilt": dataclasses.asdict(tilt),
        "drawn": dataclasses.asdict(drawn),
        "measured": counted["cost"],
        "measured_error": counted["cost_se"],
    }


# -- the run


def thieves_of(setting: Setting) -> list[str]:
    """Who steals from a setting; words of sentences carry no labels that could be voted on.

    Of a pretrained victim near-duplicates have one word more alone, to save time.
    """
    votes = [VOTES] if setting.task.kind == "token-classification" else []
    asks = [name for name, (_, step) in ASKS.items() if setting.encoder.pretrained is None or step is None]
    return [NOTHING_DONE, *votes, MIXES, CLEANS, *RELABELS.values(), *asks]


def measurements(shop: Workshop, names: Sequence[str]) -> Iterator[Measurement]:
    """Costs, students of thieves who do nothing, then innocents and the other thieves, seed by seed."""

    def one(what: str, name: str, measure: Callable[..., Record], seed: int, *given: str) -> Measurement:
        case = Case(shop, shop.settings[name], seed, BUDGET, MARGIN_BUDGET)
        about = {"what": what, "setting": name, "who": given[0] if given else "", "seed": seed}
        return Measurement(about, functools.partial(measure, case, *given))

    for name in names:
        yield one("cost", name, measure_cost, SEEDS[0])
    for seed in SEEDS:
        for name in names:
            yield one("student", name, measure_student, seed, NOTHING_DONE)
    for seed in SEEDS:
        for name in sorted(names, key=lambda name: shop.settings[name].encoder.pretrained is not None):
            if seed in shop.settings[name].attacked:
                yield one("innocent", name, measure_innocent, seed, "gold")
                yield one("innocent", name, measure_innocent, seed, "clean answers")
                for thief in thieves_of(shop.settings[name])[1:]:
                    yield one("student", name, measure_student, seed, thief)


def main() -> None:
    """The command."""
    run_cases(__doc__, measurements, report)


if __name__ == "__main__":
    main()
