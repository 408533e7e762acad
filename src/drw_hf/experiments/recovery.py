"""Can a thief compute tilt's numbers from the answers, take them off, or put them onto somebody else's model?

``python -m drw_hf.experiments.recovery --output docs/results/recovery.jsonl --data DIR --work DIR``

``--work`` is the folder of ``python -m drw_hf.experiments.marks``, which has trained the victims and the models on
gold labels that are needed here.

The thief knows the method and everything but the key. Of soft answers, unrounded or with 1 to 6 digits, it takes the
log-probabilities; with gold labels for its queries it also trains a model of its own and takes off what that
explains. What is left is put down to words (least squares), and a Wiener filter over the classes weighs directions in
which words differ by themselves against those in which only a key would. The result is compared with the key's
numbers; taken off the answers before a student is trained; and added to the answers of a model that has nothing to do
with the victim.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from ..asking.words import Words
from ..extraction.stolen import Stolen
from ..keys.key import WatermarkKey
from ..runs.lines import Record, read_lines
from ..watermark.tilt import signals
from . import library
from .cells import number, table
from .marks_case import Case, run_cases
from .marks_settings import setting_titles
from .marks_thieves import GOLD
from .marks_work import WHERE, Workshop
from .measurements import Measurement

STRANGER = 2  # the seed of the model that is framed
DIGITS = (0, 6, 5, 4, 3, 2, 1)  # 0: not rounded
SIZES = (1000, 6000, 20000)
TIMES = (1.0, 2.0, 3.0)  # what is taken off, in units of the estimate
FAINTER = (1.0, 0.5, 0.25)  # times the strength of the mark
SETTINGS = ("pos-tiny", "sst2-tiny")
_FLOOR = 1e-9  # what is shown as nothing has this probability, for the logarithm


# -- the thief's estimator


@dataclass(frozen=True, eq=False)
class Recovered:
    """The thief's estimate of β·temperature·s(word, class), up to what all classes share."""

    token_ids: np.ndarray
    shifts: np.ndarray  # (words, classes)

    def of(self, words: Words) -> np.ndarray:
        """The shift of every probe's log-probabilities; words that were never seen add nothing."""

        def estimates(token_ids: np.ndarray) -> np.ndarray:
            places = np.searchsorted(self.token_ids, token_ids).clip(max=len(self.token_ids) - 1)
            return np.where((self.token_ids[places] == token_ids)[:, None], self.shifts[places], 0.0)

        return words.sums(estimates)


def recover(words: Words, answers: np.ndarray, own: np.ndarray | None = None) -> Recovered:
    """The key's numbers, as far as answers (N, m) tell them; ``own`` (N, m) is what the thief's own model answers."""
    left = _centred(answers)
    features = np.ones((len(left), 1)) if own is None else np.hstack([np.ones((len(left), 1)), _centred(own)])
    gram = features.T @ features + 1e-3 * len(left) * np.eye(features.shape[1])
    left = left - features @ np.linalg.solve(gram, features.T @ left)
    token_ids, columns = np.unique(words.token_ids, return_inverse=True)
    sparse = library("scipy.sparse")
    design = sparse.csr_array((words.shares, (words.probes, columns)), shape=(len(left), len(token_ids)))
    effects = _word_effects(design, left)
    # Words differ by themselves in some directions of the classes, and hardly in others; the key is alike in all.
    seen = np.asarray(design.sum(axis=0)).ravel()
    spread = (effects * np.minimum(seen, 10.0)[:, None]).T @ effects / np.minimum(seen, 10.0).sum()
    filtered = effects @ np.linalg.pinv(spread + 1e-6 * np.trace(spread) * np.eye(len(spread)))
    filtered -= filtered.mean(axis=1, keepdims=True)
    fitted = design @ filtered
    scale = float((fitted * left).sum() / (fitted**2).sum())
    return Recovered(token_ids, scale * filtered)


def _centred(p: np.ndarray) -> np.ndarray:
    """Log-probabilities less their mean over the classes."""
    scores = np.log(np.maximum(p, _FLOOR))
    return scores - scores.mean(axis=1, keepdims=True)


def _word_effects(design: Any, left: np.ndarray) -> np.ndarray:
    """What every word adds, by slightly damped least squares, class by class."""
    solve = library("scipy.sparse.linalg").lsmr
    return np.stack([solve(design, column, damp=0.5, maxiter=60)[0] for column in left.T], axis=1)


def correlations(found: Recovered, words: Words, key: WatermarkKey) -> dict[str, float]:
    """How the estimate correlates with the key's numbers: of all words, of those seen once, of those seen often."""
    s = signals(key, found.token_ids)
    s = s - s.mean(axis=1, keepdims=True)
    seen = np.bincount(np.searchsorted(found.token_ids, words.token_ids))
    parts = {"all words": seen > 0, "seen once": seen == 1, "seen 100 times": seen >= 100}
    return {
        name: round(float(np.corrcoef(found.shifts[some].ravel(), s[some].ravel())[0, 1]), 3)
        for name, some in parts.items()
        if some.sum() > 2
    } | {"words": len(s)}


def moved(p: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Answers whose log-probabilities were moved."""
    scores = np.log(np.maximum(p, _FLOOR)) + shift
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


# -- who is in it


def queries_of(case: Case) -> Dataset:
    """All that the victim was not trained on and nobody probes with."""
    return concatenate_datasets([case.texts(part) for part in ("queries", "others")])


def one_word_texts(case: Case) -> Dataset:
    """Every word of the queries, asked alone."""
    column = case.setting.task.columns[0]
    by_word = case.setting.task.kind == "token-classification"
    rows = queries_of(case)[column]
    words = sorted({word for row in rows for word in (row if by_word else row.split())})
    return Dataset.from_dict({column: [[word] if by_word else word for word in words]})


# -- what is measured


def measure_recovery(case: Case, digits: int, n_texts: int | str) -> Record:
    """How much of the key's numbers so many answers of so many digits tell."""
    texts = one_word_texts(case) if n_texts == "one-word texts" else queries_of(case)
    if isinstance(n_texts, int):
        texts = texts.select(range(min(n_texts, len(texts))))
    own = case.probe(case.model(GOLD), texts)
    words, answers = own.words_of(case.key), Stolen(case.served(texts, digits=digits)).answers
    record: Record = {"texts": len(texts), "answers": len(answers)}
    for name, model in (("without labels", None), ("with gold labels", own.suspect.astype(np.float64))):
        record[name] = correlations(recover(words, answers, model), words, case.key)
    return record


def measure_fainter(case: Case, times: float, digits: int, n_texts: int) -> Record:
    """The same without labels, of a mark so many times as strong."""
    texts = queries_of(case)
    texts = texts.select(range(min(n_texts, len(texts))))
    words = case.probe(case.victim, texts).words_of(case.key)
    answers = Stolen(dataclasses.replace(case, times=times).served(texts, digits=digits)).answers
    return {"texts": len(texts), "without labels": correlations(recover(words, answers), words, case.key)}


def measure_erasure(case: Case, digits: int, with_gold: bool, times: float) -> Record:
    """A student of answers from which the estimate was taken off."""
    stolen = Stolen(case.served(case.texts("queries"), digits=digits))
    found, words = _estimate(case, stolen.answers, with_gold)
    return case.scores(case.student(stolen.replaced(moved(stolen.answers, -times * found.of(words)))))


def measure_framing(case: Case, digits: int, with_gold: bool, how: str) -> Record:
    """A model on gold labels onto whose answers the estimate was put, or that was trained on such answers."""
    texts = case.texts("queries")
    found, words = _estimate(case, Stolen(case.served(texts, digits=digits)).answers, with_gold)
    stranger = case.model(GOLD, STRANGER)
    if how == "trained in":
        answers = Stolen(case.shop.answers(case.setting, stranger, texts))
        return case.scores(case.student(answers.replaced(moved(answers.answers, found.of(words)))))
    record: Record = {}
    for where in WHERE:
        probe, _ = case.against_victim(stranger, where)
        framed = moved(probe.suspect.astype(np.float64), found.of(probe.words_of(case.key))).astype(np.float32)
        record[where] = case.both(dataclasses.replace(probe, suspect=framed))
    return record


def _estimate(case: Case, answers: np.ndarray, with_gold: bool) -> tuple[Recovered, Words]:
    """What a thief recovers from the answers to its queries, and the words of these."""
    own = case.probe(case.model(GOLD), case.texts("queries"))
    words = own.words_of(case.key)
    return recover(words, answers, own.suspect.astype(np.float64) if with_gold else None), words


# -- the run


def measurements(shop: Workshop, names: Sequence[str]) -> list[Measurement]:
    """All that is measured, what needs no training first."""
    cases = [Case(shop, shop.settings[name]) for name in names]
    found: list[Measurement] = []

    def add(what: str, case: Case, measure: Callable[..., Record], **about: Any) -> None:
        line = {"what": what, "setting": case.setting.name, **about}
        found.append(Measurement(line, partial(measure, case, **about)))

    for case in cases:
        for size in SIZES:
            add("recovery", case, measure_recovery, digits=0, n_texts=size)
            add("recovery", case, measure_recovery, digits=3, n_texts=size)
        for digits in DIGITS[1:4] + DIGITS[5:]:
            add("recovery", case, measure_recovery, digits=digits, n_texts=SIZES[1])
        for digits in (0, 3):
            add("recovery", case, measure_recovery, digits=digits, n_texts="one-word texts")
        for digits in (0, 3):
            for with_gold in (False, True):
                add("framing", case, measure_framing, digits=digits, with_gold=with_gold, how="put on")
        for times in FAINTER:
            for digits in (0, 3):
                for size in SIZES:
                    add("fainter", case, measure_fainter, times=times, digits=digits, n_texts=size)
    for case in cases:
        for digits in (0, 3):
            for with_gold in (False, True):
                for times in TIMES:
                    add("erasure", case, measure_erasure, digits=digits, with_gold=with_gold, times=times)
        add("framing", case, measure_framing, digits=0, with_gold=True, how="trained in")
    return found


def report(output: Path) -> str:
    """Tables of the raw lines."""
    records, titles = read_lines(output), setting_titles()
    said = {False: "without labels", True: "with gold labels"}
    recovery = [
        {
            "": titles[record["setting"]],
            "texts asked": f"{record['n_texts']:,}" if isinstance(record["n_texts"], int) else record["n_texts"],
            "answers": f"{record['answers']:,}",
            "digits": str(record["digits"] or "all"),
            **{name: _correlation(record[name]) for name in said.values()},
        }
        for record in records
        if record["what"] == "recovery"
    ]

    fainter = [
        {
            "": titles[setting],
            "digits": str(digits or "all"),
            "strength": f"{times:g} times",
            **{f"{size:,} texts": _correlation(by_size[size]["without labels"]) for size in sorted(by_size)},
        }
        for (setting, digits, times), by_size in _by_size(records).items()
    ]

    def used(what: str, how: Callable[[Record], dict[str, str]]) -> str:
        """What came of an estimate that was used in some way."""
        rows = [
            {
                "": titles[record["setting"]],
                "digits": str(record["digits"] or "all"),
                "estimated": said[record["with_gold"]],
                **how(record),
                **_z_values(record),
            }
            for record in records
            if record["what"] == what
        ]
        return table(rows)

    erasure = used(
        "erasure",
        lambda record: {
            "taken off": f"{record['times']:g} times",
            "accuracy": f"{record['unseen']['accuracy']:.1f}",
        },
    )
    framing = used("framing", lambda record: {"the estimate was": record["how"]})
    return (
        "Correlation of the thief's estimate with the key's numbers: all words / words seen once / seen 100 times.\n\n"
        f"{table(recovery)}\n\nThe same without labels, of fainter marks, by how many texts were asked.\n\n"
        f"{table(fainter)}\n\nA student of answers from which the estimate was taken off; z on queries / on unseen "
        f"text.\n\n{erasure}\n\nA model that has nothing to do with the victim, framed; z on queries / on "
        f"unseen text.\n\n{framing}\n"
    )


def _by_size(records: Sequence[Record]) -> dict[tuple[str, int, float], dict[int, Record]]:
    """What fainter marks tell, by setting, digits and strength, and then by how many texts were asked."""
    found: dict[tuple[str, int, float], dict[int, Record]] = {}
    for record in records:
        if record["what"] == "fainter":
            told = (record["setting"], record["digits"], record["times"])
            found.setdefault(told, {})[record["n_texts"]] = record
    return found


def _correlation(figures: dict[str, float]) -> str:
    names = ("all words", "seen once", "seen 100 times")
    return " / ".join(number(figures.get(name), 2) for name in names)


def _z_values(record: Record) -> dict[str, str]:
    def both(form: str) -> str:
        return " / ".join(number(record[where][form]["z"], 1) for where in WHERE)

    return {f"z, {form}": both(form) for form in ("scores", "labels")}


def main() -> None:
    """The command."""
    run_cases(__doc__, measurements, report, SETTINGS)


if __name__ == "__main__":
    main()
