"""Is a p-value what it says? Innocent models under random keys.

``python -m drw_hf.experiments.calibration --output docs/results/calibration.jsonl``

Twenty models that never saw a marked answer (trained on gold labels, or students of the unwatermarked victim; taggers
and sentence classifiers; from scratch and, with ``--pretrained PATH``, from a pretrained encoder) are probed once.
Every probe is then tested with a thousand fresh random keys, and with one key that is the same for all. The share of
p ≤ α must be α, give or take what chance gives to so many tests.

A line of JSON is written as each model ends, and a run that is started again goes on; ``--report`` writes the summary.
"""

import dataclasses
import secrets
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..detection.probing import Probe
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.null_law import NullLaw
from ..keys import WatermarkKey
from ..keys.choices import LABEL_KINDS, LabelKind, Task
from .cells import table
from .lines import Record, read_lines, rounded
from .measurements import LEVELS, Measurement, command_parser, expected_shares, run_command
from .theft import Theft, make_theft, pretrained_model, steal, train_on_gold

FIXED_SECRET = bytes(range(100, 132))
TAGGER: Task = "token-classification"
CLASSIFIER: Task = "sequence-classification"
VARIANTS = ("with the victim", "without")

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
    run_command(parser, innocents, report)


if __name__ == "__main__":
    main()
