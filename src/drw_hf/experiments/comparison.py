"""Which statistic sees the mark? P_snr, two cosine filters and the exact test on the same students.

``python -m drw_hf.experiments.comparison --output docs/results/comparison.jsonl``

Students with other seeds than any used to write the test are trained on soft and hard labels at several ε. Every
statistic is brought to one scale, the z of its p-value: the exact test's own; for the correlations how many standard
deviations the true key lies above random keys; for P_snr the same with the tail of its own law, which is exponential
(the power at one frequency is a sum of two squares).
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..detection import p_snr_many
from ..detection.probing import Probe, probe_suspect
from ..detection.verdict import Corrections, verdict_on
from ..keys import WatermarkKey
from ..keys.choices import LabelKind, Task
from .theft import make_theft, steal, train_on_gold

TAGGER: Task = "token-classification"
CASES: list[tuple[LabelKind | Literal["gold"], float | None]] = [
    ("soft", 0.2),
    ("hard", 0.2),
    ("soft", 0.05),
    ("hard", 0.05),
    ("soft", 0.02),
    ("hard", 0.02),
    ("gold", None),
]
STATISTICS = ("P_snr", "cosine, probabilities", "cosine, logits", "exact, with the victim", "exact, without")
N_KEYS = 1000


def z_among(values: np.ndarray, true: float) -> float:
    """How many standard deviations the true key's value lies above the random keys' mean."""
    return float((true - values.mean()) / values.std())


def filters(probe: Probe, key: WatermarkKey, seed: int = 0) -> dict[str, float]:
    """z of P_snr and of the correlation with the cosine, over tokens that the victim calls c* and the key selects."""
    assert probe.victim is not None  # :func:`measure` asks it, too
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
    return {name: z_among(np.array(values[1:]), values[0]) for name, values in found.items()}


def measure(output: Path, seeds: list[int]) -> None:
    """Train and test every student that the output does not hold yet."""
    done = set()
    if output.exists():
        done = {(r["labels"], r["epsilon"], r["seed"]) for r in map(json.loads, output.read_text().splitlines())}
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        theft = make_theft(TAGGER, folder)
        for seed in seeds:
            for labels, epsilon in CASES:
                if (labels, epsilon, seed) in done:
                    continue
                key = theft.key(epsilon=epsilon or 0.2, secret=seed.to_bytes(32, "big"))
                if labels == "gold":
                    student = train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, seed, 4)
                else:
                    teacher = theft.protected(key, labels)
                    student = steal(theft, teacher, folder, seed=seed, label_kind=labels)
                record: dict[str, Any] = {"labels": labels, "epsilon": epsilon, "seed": seed}
                for where, rows in (("queries", theft.queries), ("unseen", theft.unseen)):
                    arguments = {"key": key, "tokenizer": theft.tokenizer, "cache_dir": folder, "progress": False}
                    probe = probe_suspect(student, theft.text(rows), victim=theft.victim, **arguments)
                    blind = probe_suspect(student, theft.text(rows), **arguments)
                    with_victim = verdict_on(probe, key, Corrections(), 1e-3)
                    record[where] = {
                        **filters(probe, key),
                        "exact, with the victim": with_victim.z_score,
                        "exact, without": verdict_on(blind, key, Corrections(), 1e-3).z_score,
                        "P_snr itself": with_victim.p_snr,
                        "log10 bound": with_victim.log10_bound,
                    }
                with output.open("a") as file:
                    file.write(json.dumps(record) + "\n")
                print(labels, epsilon, seed, "done", flush=True)


def report(output: Path) -> str:
    """A Markdown table of the raw lines: z on the student's queries and on unseen text, the mean over seeds."""
    records = [json.loads(line) for line in output.read_text().splitlines()]
    seeds = sorted({record["seed"] for record in records})
    lines = [f"z on the thief's queries / on unseen text; mean of {len(seeds)} students each.", ""]
    columns = [f"{labels} {epsilon or ''}".strip() for labels, epsilon in CASES]
    lines += ["| | " + " | ".join(columns) + " |", "| --- " * (len(columns) + 1) + "|"]
    for statistic in STATISTICS:
        cells = []
        for labels, epsilon in CASES:
            some = [r for r in records if (r["labels"], r["epsilon"]) == (labels, epsilon)]
            scale = exponential_to_normal if statistic == "P_snr" else float
            means = [np.mean([scale(r[where][statistic]) for r in some]) for where in ("queries", "unseen")]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        lines.append(f"| {statistic} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def exponential_to_normal(standardised: float) -> float:
    """The z with the p-value of a standardised exponential variable."""
    p = np.exp(-max(standardised + 1.0, 1e-3))
    return float(-torch.special.ndtri(torch.tensor(p, dtype=torch.float64)))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, one a student")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102], help="a student of every kind for each")
    parser.add_argument("--report", action="store_true", help="only write the table beside the output")
    options = parser.parse_args()
    if not options.report:
        measure(options.output, options.seeds)
    options.output.with_suffix(".md").write_text(report(options.output))


if __name__ == "__main__":
    main()
