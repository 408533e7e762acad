"""Is a p-value what it says? Innocent models under random keys.

``python -m drw_hf.experiments.calibration --output docs/results/calibration.jsonl``

Twenty models that never saw a marked answer (trained on gold labels, or students of the unwatermarked victim; taggers
and sentence classifiers; from scratch and, with ``--pretrained PATH``, from a pretrained encoder) are probed once.
Every probe is then tested with a thousand fresh random keys, and with one key that is the same for all. The share of
p ≤ α must be α, give or take what chance gives to so many tests.

With ``--mark tilt`` the same is asked of the test of that mark: taggers and sentence classifiers of two and of twelve
classes, among them students of *other* keys, tested by scores, by labels alone and without the victim::

    python -m drw_hf.experiments.calibration --mark tilt --output docs/results/calibration-tilt.jsonl

With ``--mark margin`` it is asked of the draws of close calls and of both tests as one, with keys that have a margin:
the two best classes, the chance and the draw are computed anew for every key. Logs that depend on what was
answered are tested as well, and the last lines say what comes of it: one that left out wrong answers, and those of
clients who asked more where answers were right, or until they were::

    python -m drw_hf.experiments.calibration --mark margin --output docs/results/calibration-margin.jsonl

A line of JSON is written as each model ends, and a run that is started again goes on; ``--report`` writes the summary.
"""

import dataclasses
import functools
import secrets
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from datasets import Dataset

from ..detection.probing import Probe
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.margin import close_calls_of, margin_finding
from ..detection.statistics.null_law import NullLaw
from ..detection.statistics.saddlepoint import ExactTest
from ..detection.statistics.tilt import TiltLaw, tilt_amplitudes_of
from ..detection.statistics.tilt_and_margin import combined
from ..keys import WatermarkKey
from ..keys.choices import LABEL_KINDS, AnswerKind, LabelKind, Task
from ..runs.lines import Record, read_lines, rounded
from ..watermark.tilt import signals
from .cells import table
from .corpus import SENTIMENTS, TAGS, make_sentiment_corpus, make_tagging_corpus, make_tokenizer
from .measurements import LEVELS, Measurement, command_parser, expected_shares, run_command
from .theft import (
    N_TRAIN,
    N_UNSEEN,
    Theft,
    make_theft,
    pretrained_model,
    small_bert,
    steal,
    train_on_gold,
)

FIXED_SECRET = bytes(range(100, 132))
TAGGER: Task = "token-classification"
CLASSIFIER: Task = "sequence-classification"
VARIANTS = ("with the victim", "without")
TILT_VARIANTS = ("scores", "labels alone", "scores without the victim")
KINDS: dict[AnswerKind, str] = {"probabilities": "scores", "labels": "labels"}
MARGIN_VARIANTS = tuple(f"{test} by {form}" for test in ("margin", "both") for form in KINDS.values())
FILTERED = "margin by scores, of a log without wrong answers"
AGAIN = "margin by scores, of a client who asks again where answers were right"
UNTIL = "margin by scores, of a client who asks again until answers are right"
N_FILTERED = 100  # keys with which logs are tested that were chosen by their answers
N_VARIANTS = 4  # of a text, that such a client asks
MARGIN = 0.2
MARKS = ("cosine", "tilt", "margin")

Made = tuple[Any, Any]  # a model and its tokenizer


def on_gold(theft: Theft, folder: str, seed: int) -> Made:
    """A model of right labels."""
    epochs = 4 if theft.task == TAGGER else 3
    return train_on_gold(theft.task, theft.tokenizer, theft.queries, folder, seed, epochs), theft.tokenizer


def of_clean_victim(theft: Theft, folder: str, seed: int, label_kind: LabelKind) -> Made:
    """A student of the victim without its mark."""
    return steal(theft, theft.victim, folder, seed=seed, epochs=6, label_kind=label_kind), theft.tokenizer


def from_pretrained(theft: Theft, folder: str, seed: int, path: str) -> Made:
    """A model of right labels that starts from a pretrained encoder."""
    from transformers import AutoTokenizer

    model, tokenizer = pretrained_model(theft.task, path, seed), AutoTokenizer.from_pretrained(path)
    rows = theft.queries.select(range(1000))
    return train_on_gold(theft.task, tokenizer, rows, folder, seed, 2, model, learning_rate=2e-4), tokenizer


def innocents(options: Namespace, folder: str) -> Iterator[Measurement]:
    """What is measured."""

    def model(task: Task, about: str, make: Callable[..., Made], **settings: Any) -> Measurement:
        name, made = f"{task}, {about}", partial(make, **settings)
        return Measurement({"model": name}, partial(measure, task, made, folder, options.keys))

    for task, n_gold in ((TAGGER, 6), (CLASSIFIER, 5)):
        for seed in range(10, 10 + n_gold):
            yield model(task, f"gold labels, seed {seed}", on_gold, seed=seed)
        for label_kind, seeds in zip(LABEL_KINDS, ((20, 21), (22, 23)), strict=True):
            for seed in seeds:
                about = f"{label_kind} labels of the unwatermarked victim, seed {seed}"
                yield model(task, about, of_clean_victim, seed=seed, label_kind=label_kind)
    if options.pretrained:
        for task in (TAGGER, CLASSIFIER):
            yield model(task, "gold labels, pretrained encoder", from_pretrained, seed=30, path=options.pretrained)
    else:
        yield model(TAGGER, "gold labels, seed 16", on_gold, seed=16)


def p_values(probe: Probe, keys: list[WatermarkKey]) -> list[float]:
    """The p-value of every key; the amplitudes are those of the probe alone, computed once."""
    amplitudes = amplitudes_of(probe, keys[0])
    null = NullLaw(amplitudes.A, keys[0].settings, B=amplitudes.B)
    return [null.test(null.statistic(*key.entries(amplitudes.token_ids))).p_value for key in keys]


def measure(task: Task, make: Callable[[Theft, str], Made], folder: str, n_keys: int) -> Record:
    """Train, probe and test one model."""
    theft = make_theft(task, folder)
    model, tokenizer = make(theft, folder)
    fixed = theft.key(secret=FIXED_SECRET)
    probe = theft.probe(model, theft.unseen, fixed, folder, suspect_tokenizer=tokenizer)
    record: Record = {"task": task, "n_keys": n_keys}
    for variant, one in zip(VARIANTS, (probe, dataclasses.replace(probe, victim=None)), strict=True):
        fresh = [theft.key(secret=secrets.token_bytes(32)) for _ in range(n_keys)]
        record[variant] = {"p_values": rounded(p_values(one, fresh)), "fixed_key": p_values(one, [fixed])[0]}
    return record


# -- the mark tilt


@dataclasses.dataclass(frozen=True)
class TiltCase:
    """A task of so many classes, made out of the package's corpora."""

    task: Task
    labels: tuple[str, ...]
    rows: Callable[[int], list[dict[str, Any]]]

    @property
    def name(self) -> str:
        return f"{self.task}, {len(self.labels)} classes"


def names_or_not(n: int) -> list[dict[str, Any]]:
    """Words that are names, and others."""
    return [
        {**row, "tags": ["name" if tag == "NNP" else "other" for tag in row["tags"]]} for row in make_tagging_corpus(n)
    ]


def by_second_word(n: int) -> list[dict[str, Any]]:
    """Sentences, by what their second word is."""
    return [{"text": " ".join(row["tokens"]), "label": row["tags"][1]} for row in make_tagging_corpus(n)]


TILT_CASES = (
    TiltCase(TAGGER, ("name", "other"), names_or_not),
    TiltCase(TAGGER, TAGS, make_tagging_corpus),
    TiltCase(CLASSIFIER, SENTIMENTS, make_sentiment_corpus),
    TiltCase(CLASSIFIER, TAGS, by_second_word),
)


@functools.cache
def tilt_theft(case: TiltCase, folder: str) -> Theft:
    """The victim of a case, and its texts."""
    rows = Dataset.from_list(case.rows(N_TRAIN + N_UNSEEN))
    queries, unseen = rows.select(range(N_TRAIN)), rows.select(range(N_TRAIN, N_TRAIN + N_UNSEEN))
    tokenizer = make_tokenizer()
    victim = tilt_gold(case, tokenizer, queries, folder, seed=0)
    return Theft(case.task, tokenizer, victim, queries, unseen)


def tilt_gold(case: TiltCase, tokenizer: Any, rows: Dataset, folder: str, seed: int) -> Any:
    """A model of right labels."""
    model = small_bert(case.task, len(tokenizer), seed, labels=case.labels)
    return train_on_gold(case.task, tokenizer, rows, folder, seed, 4, model)


def tilt_key(theft: Theft, secret: bytes, margin: float = 0.0) -> WatermarkKey:
    """A key of the mark tilt for a victim."""
    settings: dict[str, Any] = {
        "mark": "tilt",
        "strength": 0.4,
        "temperature": 1.5,
        "secret": secret,
        "margin": margin,
    }
    return WatermarkKey.generate(theft.victim, tokenizer=theft.tokenizer, **settings)


def tilt_innocents(options: Namespace, folder: str) -> Iterator[Measurement]:
    """What is measured: for every case two models of right labels, two students of the clean victim, two of a key."""
    measure = measure_margin if options.mark == "margin" else measure_tilt
    for case in TILT_CASES:
        for seed in (10, 11):
            innocent = Innocent(case, seed)
            about = {"model": f"{case.name}, gold labels, seed {seed}"}
            yield Measurement(about, partial(measure, innocent, folder, options.keys))
        for whose in ("the unwatermarked victim", "another key"):
            for seed, label_kind in zip((20, 21), LABEL_KINDS, strict=True):
                innocent = Innocent(case, seed, label_kind, whose)
                about = {"model": f"{case.name}, {label_kind} labels of {whose}, seed {seed}"}
                yield Measurement(about, partial(measure, innocent, folder, options.keys))


@dataclasses.dataclass(frozen=True)
class Innocent:
    """A model that has nothing to do with the keys it is tested with; without a kind of labels one of right labels."""

    case: TiltCase
    seed: int
    label_kind: LabelKind | None = None
    whose: str = ""

    def trained(self, theft: Theft, folder: str) -> Any:
        if self.label_kind is None:
            return tilt_gold(self.case, theft.tokenizer, theft.queries, folder, self.seed)
        if self.whose == "another key":
            served = theft.protected(tilt_key(theft, FIXED_SECRET), self.label_kind)
            return steal(theft, served, folder, seed=self.seed, epochs=6, label_kind=self.label_kind)
        return of_clean_victim(theft, folder, self.seed, self.label_kind)[0]


def measure_margin(innocent: Innocent, folder: str, n_keys: int) -> Record:
    """Train, probe and test one model, by a log of text that it was not trained on."""
    case, theft = innocent.case, tilt_theft(innocent.case, folder)
    model = innocent.trained(theft, folder)
    keys = [tilt_key(theft, secrets.token_bytes(32), MARGIN) for _ in range(n_keys)]
    probe, right = asked_for_a_log(theft, theft.unseen, model, keys[0], folder)
    record: Record = {"task": case.task, "classes": len(case.labels), "n_keys": n_keys}
    amplitudes = {kind: tilt_amplitudes_of(probe, keys[0], kind) for kind in KINDS}  # which no key has a part in
    laws = {kind: TiltLaw(found.A, keys[0].settings) for kind, found in amplitudes.items()}
    found: dict[str, list[ExactTest]] = {variant: [] for variant in MARGIN_VARIANTS}
    for key in keys:
        calls = close_calls_of(probe, key)
        for kind, form in KINDS.items():
            tilt = laws[kind].test(laws[kind].statistic(signals(key, amplitudes[kind].token_ids)))
            drawn = margin_finding(probe, key, kind, calls=calls).test
            found[f"margin by {form}"].append(drawn)
            found[f"both by {form}"].append(combined(tilt, drawn))
    for variant, results in found.items():
        record[variant] = {
            "p_values": rounded(result.p_value for result in results),
            "p_bounds": rounded(result.p_bound for result in results),
        }
    more = asked_for_a_log(theft, with_variants(theft), model, keys[0], folder)
    for what, chosen in CHOSEN_LOGS.items():
        asked, gold = (probe, right) if what == FILTERED else more
        scores = [chosen_by_answers(asked, gold, key, chosen.in_log) for key in keys[:N_FILTERED]]
        high = float(np.mean(np.array(scores) > 3.09))
        record[what] = {"mean_z": float(np.mean(scores)), "share_below_0.001": high}
    return record


def asked_for_a_log(
    theft: Theft, rows: Dataset, model: Any, key: WatermarkKey, folder: str
) -> tuple[Probe, np.ndarray]:
    """What a model and the victim say of rows, all of which are in the log, and the right answers."""
    probe = theft.probe(model, rows, key, folder, gold=rows["tags" if theft.task == TAGGER else "label"])
    assert probe.gold is not None  # it was just given
    return dataclasses.replace(probe, gold=None, logged=np.zeros(len(probe.rows), np.int64)), probe.gold


def chosen_by_answers(
    probe: Probe, right: np.ndarray, key: WatermarkKey, in_log: Callable[[Probe, np.ndarray], np.ndarray]
) -> float:
    """The z of the margin test, with a log that holds answers by what they were."""
    served = close_calls_of(probe, key).answers
    log = np.where(in_log(probe, served == right), served, -1)
    return margin_finding(dataclasses.replace(probe, logged=log), key, "probabilities").test.z_score


def without_wrong_answers(_: Probe, right: np.ndarray) -> np.ndarray:
    """A log from which wrong answers were taken out."""
    return right


def asked_again(probe: Probe, right: np.ndarray) -> np.ndarray:
    """The log of a client who asks all variants of a text where every answer about it was right."""
    return turn_of(probe) <= np.where(all_right(probe, right)[0], N_VARIANTS, 0)[row_of(probe)]


def asked_until_right(probe: Probe, right: np.ndarray) -> np.ndarray:
    """The log of a client who asks variant after variant of a text, until every answer about one was right."""
    found = all_right(probe, right)
    asked = np.where(found.any(axis=0), found.argmax(axis=0), N_VARIANTS)
    return turn_of(probe) <= asked[row_of(probe)]


def all_right(probe: Probe, right: np.ndarray) -> np.ndarray:
    """Whether every answer about a text was right, and about each variant of it, shape (1 + variants, texts)."""
    wrong = np.zeros(probe.n_texts, dtype=bool)
    wrong[probe.rows[~right]] = True
    return ~wrong.reshape(1 + N_VARIANTS, -1)


def turn_of(probe: Probe) -> np.ndarray:
    """Which variant of its text every item is of: in the probe the texts come first, then a variant of each."""
    return probe.rows // (probe.n_texts // (1 + N_VARIANTS))


def row_of(probe: Probe) -> np.ndarray:
    """Which text every item is of, or of which text's variant."""
    return probe.rows % (probe.n_texts // (1 + N_VARIANTS))


@dataclasses.dataclass(frozen=True)
class ChosenLog:
    """A log that depends on answers: which of them are in it, by whether they are right, and how a report begins."""

    in_log: Callable[[Probe, np.ndarray], np.ndarray]
    words: str


CHOSEN_LOGS = {
    FILTERED: ChosenLog(
        without_wrong_answers, "Of a log without what was answered wrongly, which is no log to test by"
    ),
    AGAIN: ChosenLog(
        asked_again, f"Of a client who asks {N_VARIANTS} variants of a text more where all answers about it were right"
    ),
    UNTIL: ChosenLog(
        asked_until_right,
        f"Of a client who asks up to {N_VARIANTS} variants, until all answers about a text are right",
    ),
}


def with_variants(theft: Theft) -> Dataset:
    """The unseen texts, and of each some variants: one word of it stands twice, where a typist would not notice."""
    rng = np.random.default_rng(0)
    rows = list(theft.unseen)
    more = [dict(row) for row in rows]
    for _ in range(N_VARIANTS):
        for row in rows:
            words = row["tokens"] if theft.task == TAGGER else row["text"].split()
            order = sorted([*range(len(words)), int(rng.integers(len(words)))])
            if theft.task == TAGGER:
                more.append({name: [row[name][place] for place in order] for name in ("tokens", "tags")})
            else:
                more.append({**row, "text": " ".join(words[place] for place in order)})
    return Dataset.from_list(more, features=theft.unseen.features)


def measure_tilt(innocent: Innocent, folder: str, n_keys: int) -> Record:
    """Train, probe and test one model."""
    case, theft = innocent.case, tilt_theft(innocent.case, folder)
    model = innocent.trained(theft, folder)
    keys = [tilt_key(theft, secrets.token_bytes(32)) for _ in range(n_keys)]
    probe = theft.probe(model, theft.unseen, keys[0], folder)
    record: Record = {"task": case.task, "classes": len(case.labels), "n_keys": n_keys}
    tests = (probe, "probabilities"), (probe, "labels"), (dataclasses.replace(probe, victim=None), "probabilities")
    for variant, (one, kind) in zip(TILT_VARIANTS, tests, strict=True):
        found = tilt_amplitudes_of(one, keys[0], cast(AnswerKind, kind))
        law = TiltLaw(found.A, keys[0].settings)
        results = [law.test(law.statistic(signals(key, found.token_ids))) for key in keys]
        record[variant] = {
            "p_values": rounded(result.p_value for result in results),
            "p_bounds": rounded(result.p_bound for result in results),
        }
    return record


def tilt_report(output: Path, variants: Sequence[str] = TILT_VARIANTS) -> str:
    """A Markdown summary of the raw lines of the mark tilt, or of its margin draws."""
    records = read_lines(output)
    cases = sorted({(record["task"], record["classes"]) for record in records})
    groups = [("all models", records)] + [
        (f"{task}, {m} classes", [each for each in records if (each["task"], each["classes"]) == (task, m)])
        for task, m in cases
    ]
    parts = [f"{len(records)} innocent models, {records[0]['n_keys']:,} really derived keys each."]
    for name, group in groups:
        rows = []
        for variant in variants:
            for what, words in (("p_values", "p"), ("p_bounds", "bound")):
                pooled = np.concatenate([record[variant][what] for record in group])
                shares = {f"≤ {level}": f"{np.mean(pooled <= level):.4%}" for level in LEVELS}
                rows.append({"": f"{variant}, {words}, {len(pooled):,} tests", **shares})
        within = expected_shares(sum(record["n_keys"] for record in group))
        ranges = {f"≤ {level}": f"{low:.4%} to {high:.4%}" for level, (low, high) in within.items()}
        rows.append({"": "99.9 % of honest tests give", **ranges})
        parts.append(f"{name[0].upper()}{name[1:]} ({len(group)}):\n\n{table(rows)}")
    for what, chosen in CHOSEN_LOGS.items():
        mean_z = [record[what]["mean_z"] for record in records if what in record]
        high = [record[what]["share_below_0.001"] for record in records if what in record]
        if mean_z:
            parts.append(
                f"{chosen.words}, the mean z of the {len(mean_z)} innocent models is {np.mean(mean_z):.2f}; it runs "
                f"from {min(mean_z):.2f} to {max(mean_z):.2f}, and p ≤ 0.001 in {np.mean(high):.2%} of the tests."
            )
    return "\n\n".join(parts) + "\n"


def report(output: Path) -> str:
    """A Markdown summary of the raw lines."""
    records = read_lines(output)
    rows = []
    for variant in VARIANTS:
        pooled = np.concatenate([record[variant]["p_values"] for record in records])
        shares = {f"p ≤ {level}": f"{np.mean(pooled <= level):.4%}" for level in LEVELS}
        rows.append({"": f"{variant}, {len(pooled):,} tests", **shares})
    within = expected_shares(sum(record["n_keys"] for record in records))
    ranges = {f"p ≤ {level}": f"{low:.4%} to {high:.4%}" for level, (low, high) in within.items()}
    rows.append({"": "99.9 % of honest tests give", **ranges})
    fixed = {variant: sorted(record[variant]["fixed_key"] for record in records) for variant in VARIANTS}
    lines = "\n".join(f"- {variant}: {', '.join(f'{p:.3f}' for p in found)}" for variant, found in fixed.items())
    about = f"{len(records)} innocent models, {records[0]['n_keys']:,} fresh keys each."
    return f"{about}\n\n{table(rows)}\n\nOne key for all models, its p-values:\n\n{lines}\n"


def main() -> None:
    """The command."""
    parser = command_parser(__doc__)
    parser.add_argument("--keys", type=int, default=1000, help="random keys per model (default: 1000)")
    parser.add_argument("--pretrained", help="folder of a pretrained BERT encoder, for two of the models")
    parser.add_argument("--mark", choices=MARKS, default=MARKS[0], help=f"of which mark (default: {MARKS[0]})")
    mark = parser.parse_args().mark
    if mark != MARKS[0]:
        variants = TILT_VARIANTS if mark == "tilt" else MARGIN_VARIANTS
        run_command(parser, tilt_innocents, partial(tilt_report, variants=variants))
    else:
        run_command(parser, innocents, report)


if __name__ == "__main__":
    main()
