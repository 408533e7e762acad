"""Is a p-value what it says? Innocent models under random keys.

``python -m drw_hf.experiments.calibration --output docs/results/calibration.jsonl``

Twenty models that never saw a marked answer (trained on gold labels, or students of the unwatermarked victim; taggers
and sentence classifiers; from scratch and, with ``--pretrained PATH``, from a pretrained encoder) are probed once.
Every probe is then tested with a thousand fresh random keys, and with one key that is the same for all. The share of
p ≤ α must be α, give or take what chance gives to so many tests.

A line of JSON is written as each model ends, and a run that is started again goes on; ``--report`` prints the summary.
"""

import argparse
import json
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..detection.probing import Probe, probe_suspect
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.null_law import NullLaw
from ..keys import WatermarkKey
from ..keys.choices import Task
from .theft import CLASSES, Theft, make_theft, steal, train_on_gold

LEVELS = (0.05, 0.01, 0.001)
FIXED_SECRET = bytes(range(100, 132))
TAGGER: Task = "token-classification"
CLASSIFIER: Task = "sequence-classification"


def innocents(folder: str, pretrained: str | None) -> Iterator[tuple[str, Task, Callable[[Theft], tuple[Any, Any]]]]:
    """Names, tasks and makers of the models; a maker returns the model and its tokenizer."""

    def on_gold(seed: int) -> Callable:
        return lambda theft: (
            train_on_gold(theft.task, theft.tokenizer, theft.queries, folder, seed, 4 if theft.task == TAGGER else 3),
            theft.tokenizer,
        )

    def of_clean_victim(seed: int, label_kind: str) -> Callable:
        return lambda theft: (
            steal(theft, theft.victim, folder, seed=seed, epochs=6, label_kind=label_kind),
            theft.tokenizer,
        )

    def from_pretrained(seed: int) -> Callable:
        def make(theft: Theft) -> tuple[Any, Any]:
            from transformers import AutoTokenizer

            model_class, _, labels, _ = CLASSES[theft.task]
            torch.manual_seed(seed)
            model = model_class.from_pretrained(
                pretrained,
                dtype=torch.float32,
                id2label=dict(enumerate(labels)),
                label2id={label: i for i, label in enumerate(labels)},
            )
            tokenizer = AutoTokenizer.from_pretrained(pretrained)
            rows = theft.queries.select(range(1000))
            return train_on_gold(theft.task, tokenizer, rows, folder, seed, 2, model, 2e-4), tokenizer

        return make

    for task, n_gold in ((TAGGER, 6), (CLASSIFIER, 5)):
        for seed in range(n_gold):
            yield f"{task}, gold labels, seed {10 + seed}", task, on_gold(10 + seed)
        for label_kind, seeds in (("soft", (20, 21)), ("hard", (22, 23))):
            for seed in seeds:
                yield (
                    f"{task}, {label_kind} labels of the unwatermarked victim, seed {seed}",
                    task,
                    of_clean_victim(seed, label_kind),
                )
    if pretrained:
        for task in (TAGGER, CLASSIFIER):
            yield f"{task}, gold labels, pretrained encoder", task, from_pretrained(30)
    else:
        yield f"{TAGGER}, gold labels, seed 16", TAGGER, on_gold(16)


def p_values(probe: Probe, keys: list[WatermarkKey]) -> list[float]:
    """The p-value of every key; the amplitudes are those of the probe alone, computed once."""
    amplitudes = amplitudes_of(probe, keys[0])
    null = NullLaw(amplitudes.A, keys[0].settings, B=amplitudes.B)
    return [null.test(null.statistic(*key.entries(amplitudes.token_ids))).p_value for key in keys]


def measure(output: Path, n_keys: int, pretrained: str | None) -> None:
    """Train, probe and test every model that the output does not hold yet."""
    done = {json.loads(line)["model"] for line in output.read_text().splitlines()} if output.exists() else set()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, task, make in innocents(folder, pretrained):
            if name in done:
                continue
            theft = make_theft(task, folder)
            model, tokenizer = make(theft)
            record: dict[str, Any] = {"model": name, "task": task, "n_keys": n_keys}
            for variant, victim in (("with the victim", theft.victim), ("without", None)):
                probe = probe_suspect(
                    model,
                    theft.text(theft.unseen),
                    key=theft.key(secret=FIXED_SECRET),
                    tokenizer=theft.tokenizer,
                    suspect_tokenizer=tokenizer,
                    victim=victim,
                    cache_dir=folder,
                    progress=False,
                )
                fresh = [theft.key(secret=secrets.token_bytes(32)) for _ in range(n_keys)]
                record[variant] = {
                    "p_values": [float(f"{p:.4g}") for p in p_values(probe, fresh)],
                    "fixed_key": p_values(probe, [theft.key(secret=FIXED_SECRET)])[0],
                }
            with output.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{name}: done", flush=True)


def report(output: Path) -> str:
    """A Markdown summary of the raw lines."""
    records = [json.loads(line) for line in output.read_text().splitlines()]
    lines = [f"{len(records)} innocent models, {records[0]['n_keys']:,} fresh keys each.", ""]
    lines += ["| | p ≤ 0.05 | p ≤ 0.01 | p ≤ 0.001 |", "| --- | --- | --- | --- |"]
    for variant in ("with the victim", "without"):
        pooled = np.concatenate([record[variant]["p_values"] for record in records])
        shares = [f"{np.mean(pooled <= level):.4%}" for level in LEVELS]
        lines.append(f"| {variant}, {len(pooled):,} tests | {' | '.join(shares)} |")
    n_tests = sum(record["n_keys"] for record in records)
    intervals = [binomial_interval(n_tests, level) for level in LEVELS]
    within = " | ".join(f"{low / n_tests:.4%} to {high / n_tests:.4%}" for low, high in intervals)
    lines.append(f"| 99.9 % of honest tests give | {within} |")
    lines += ["", "One key for all models, its p-values:", ""]
    for variant in ("with the victim", "without"):
        fixed = sorted(record[variant]["fixed_key"] for record in records)
        lines.append(f"- {variant}: " + ", ".join(f"{p:.3f}" for p in fixed))
    return "\n".join([*lines, ""])


def binomial_interval(n: int, p: float, cover: float = 0.999) -> tuple[int, int]:
    """The central interval of a binomial count."""
    counts = np.arange(n + 1)
    log_factorials = torch.lgamma(torch.arange(n + 2, dtype=torch.float64) + 1).numpy()
    log_pmf = log_factorials[n] - log_factorials[counts] - log_factorials[n - counts]
    cumulated = np.cumsum(np.exp(log_pmf + counts * np.log(p) + (n - counts) * np.log1p(-p)))
    tail = (1.0 - cover) / 2.0
    return int(np.searchsorted(cumulated, tail)), int(np.searchsorted(cumulated, 1.0 - tail))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, one a model")
    parser.add_argument("--keys", type=int, default=1000, help="random keys a model (default: 1000)")
    parser.add_argument("--pretrained", help="folder of a pretrained BERT encoder, for two of the models")
    parser.add_argument("--report", action="store_true", help="only write the summary beside the output")
    options = parser.parse_args()
    if not options.report:
        measure(options.output, options.keys, options.pretrained)
    options.output.with_suffix(".md").write_text(report(options.output))


if __name__ == "__main__":
    main()
