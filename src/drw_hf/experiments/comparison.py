"""Which statistic sees the mark? P_snr, two cosine filters and the exact test on the same students.

``python -m drw_hf.experiments.comparison --output docs/results/comparison.jsonl``

Students with other seeds than any used to write the test are trained on soft and hard labels at several ε. Every
statistic is brought to one scale, the z of its p-value: the exact test's own; for the correlations how many standard
deviations the true key lies above random keys; for P_snr the same with the tail of its own law, which is exponential
(the power at one frequency is a sum of two squares).
"""

import dataclasses
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from ..detection import p_snr_many
from ..detection.probing import Probe
from ..detection.verdict import Corrections, verdict_on
from ..keys import WatermarkKey
from ..keys.choices import LABEL_KINDS, LabelKind, Task
from ..runs.lines import Record, read_lines
from . import library
from .cells import table
from .measurements import Measurement, command_parser, run_command
from .theft import make_theft, steal, train_on_gold

TAGGER: Task = "token-classification"
CASES: list[tuple[LabelKind | Literal["gold"], float | None]] = [
    *((labels, epsilon) for epsilon in (0.2, 0.05, 0.02) for labels in LABEL_KINDS),
    ("gold", None),
]
STATISTICS = ("P_snr", "cosine, probabilities", "cosine, logits", "exact, with the victim", "exact, without")
N_KEYS = 1000


def filters(probe: Probe, key: WatermarkKey, seed: int = 0) -> dict[str, float]:
    """z of P_snr and of the correlation with the cosine, over tokens that the victim calls c* and the key selects.

    It says how many standard deviations the true key's value lies above the mean of random keys'.
    """
    assert probe.victim is not None  # :func:`measure` asks the victim, too
    tokens, exists = probe.tokens_of(key)
    counted = exists & (probe.victim.argmax(1) == key.target)
    distinct, inverse, counts = np.unique(tokens[counted], return_inverse=True, return_counts=True)
    q = probe.suspect[counted, key.target].astype(np.float64).clip(1e-4, 1 - 1e-4)
    means = {name: np.bincount(inverse, y) / counts for name, y in (("p", q), ("logit", np.log(q / (1 - q))))}
    rng = np.random.default_rng(seed)
    phase, selection = key.entries(distinct)
    phases = np.vstack([phase, rng.random((N_KEYS, len(distinct)))])
    selected = np.vstack([selection, rng.random((N_KEYS, len(distinct)))]) <= key.tau
    found: dict[str, list[float]] = {name: [] for name in STATISTICS[:3]}
    for g, chosen in zip(phases, selected, strict=True):
        found["P_snr"].append(
            p_snr_many(g[None, chosen], means["p"][chosen], key.frequency, counts=counts[chosen].astype(float))[0]
        )
        for name, y in (("cosine, probabilities", means["p"]), ("cosine, logits", means["logit"])):
            found[name].append(np.corrcoef(y[chosen], np.cos(key.frequency * g[chosen]))[0, 1])
    return {name: float((true - np.mean(others)) / np.std(others)) for name, (true, *others) in found.items()}


def students(options: Namespace, folder: str) -> Iterator[Measurement]:
    """What is measured."""
    for seed in options.seeds:
        for labels, epsilon in CASES:
            about = {"labels": labels, "epsilon": epsilon, "seed": seed}
            yield Measurement(about, partial(measure, labels, epsilon, seed, folder))


def measure(labels: LabelKind | Literal["gold"], epsilon: float | None, seed: int, folder: str) -> Record:
    """Train and test one student."""
    theft = make_theft(TAGGER, folder)
    key = theft.key(epsilon=epsilon or 0.2, secret=seed.to_bytes(32, "big"))
    if labels == "gold":
        student = train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, seed, 4)
    else:
        student = steal(theft, theft.protected(key, labels), folder, seed=seed, label_kind=labels)
    record: Record = {}
    for where, rows in (("queries", theft.queries), ("unseen", theft.unseen)):
        probe = theft.probe(student, rows, key, folder)
        with_victim = verdict_on(probe, key, Corrections(), 1e-3)
        without = verdict_on(dataclasses.replace(probe, victim=None), key, Corrections(), 1e-3)
        record[where] = {
            **filters(probe, key),
            "exact, with the victim": with_victim.z_score,
            "exact, without": without.z_score,
            "P_snr itself": with_victim.p_snr,
            "log10 bound": with_victim.log10_bound,
        }
    return record


def report(output: Path) -> str:
    """A Markdown table of the raw lines: z on the student's queries and on unseen text, the mean over seeds."""
    records = read_lines(output)
    rows = []
    for statistic in STATISTICS:
        row = {"": statistic}
        for labels, epsilon in CASES:
            some = [r for r in records if (r["labels"], r["epsilon"]) == (labels, epsilon)]
            scale = exponential_to_normal if statistic == "P_snr" else float
            means = [np.mean([scale(r[where][statistic]) for r in some]) for where in ("queries", "unseen")]
            row[f"{labels} {epsilon or ''}".strip()] = " / ".join(f"{mean:.1f}" for mean in means)
        rows.append(row)
    n = len({record["seed"] for record in records})
    return f"z on the thief's queries / on unseen text; mean of {n} students each.\n\n{table(rows)}\n"


def exponential_to_normal(standardised: float) -> float:
    """The z with the p-value of a standardised exponential variable."""
    stats = library("scipy.stats")
    return float(stats.norm.isf(stats.expon.sf(max(standardised + 1.0, 1e-3))))


def main() -> None:
    """The command."""
    parser = command_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102], help="a student of every kind for each")
    run_command(parser, students, report)


if __name__ == "__main__":
    main()
