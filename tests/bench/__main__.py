"""``make bench``: what protection costs, as ratios to what it wraps, interleaved in one run.

Prints a table and writes the figures, with the machine they were measured on, as JSON.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

import drw_hf
from drw_hf import (
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
)
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query

OUTPUT = Path(__file__).parents[2] / "docs" / "results" / "bench.json"
BATCH, LENGTH, VOCABULARY = 32, 64, 30_522
TASKS = {
    "sequence-classification": (BertForSequenceClassification, WatermarkedModelForSequenceClassification, 2),
    "token-classification": (BertForTokenClassification, WatermarkedModelForTokenClassification, 9),
}


def interleaved(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of every candidate in every round, the order turning from round to round."""
    names = list(candidates)
    for name in names:
        candidates[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            candidates[name]()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(times: dict[str, list[float]], over: str, under: str) -> float:
    """The median over rounds of the ratio within a round, so that a slow spell of the machine counts for both."""
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def bert(task: str) -> torch.nn.Module:
    """Six layers, 384 wide, random weights: the shape of a small sentence encoder."""
    model_class, _, n_labels = TASKS[task]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=n_labels,
    )
    return model_class(config).eval()


def bench_forward(rounds: int) -> list[dict]:
    """The protected forward over the clean one, for both tasks and both kinds of labels."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1000, VOCABULARY, (BATCH, LENGTH), generator=generator)
    batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    rows = []
    for task in TASKS:
        with torch.inference_mode():
            times = interleaved(forward_calls(task, batch), rounds)
        for kind in ("soft", "hard"):
            rows.append(
                {
                    "what": f"{task}, {kind} labels: protected forward / clean forward",
                    "ratio": ratio(times, kind, "clean"),
                    "limit": {"soft": 1.005, "hard": 1.01}[kind],
                    "ratio_of_marking_alone": ratio(times, f"{kind} alone", "clean"),
                    "median_ms": 1e3 * statistics.median(times[kind]),
                    "clean_median_ms": 1e3 * statistics.median(times["clean"]),
                }
            )
    return rows


def forward_calls(task: str, batch: dict[str, torch.Tensor]) -> dict[str, Callable[[], object]]:
    """The clean model, the protected one with either kind of labels, and the marking of given logits alone."""
    model, wrapper = bert(task), TASKS[task][1]
    # Scope "all" marks every selected answer: more work than the default gives.
    key = WatermarkKey.generate(model, target=0, special_token_ids=[0, 101, 102], scope="all")
    logits, query = model(**batch).logits, Query(**batch)

    def calls_of(kind: str) -> dict[str, Callable[[], object]]:
        victim, options = wrapper.from_model(model, key=key, label_kind=kind), OutputOptions(label_kind=kind)
        return {kind: lambda: victim(**batch), f"{kind} alone": lambda: protect(logits, query, key, options)}

    return {"clean": lambda: model(**batch), **calls_of("soft"), **calls_of("hard")}


def bench_key(rounds: int) -> list[dict]:
    model = bert("sequence-classification")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        arguments = {"target": 0, "special_token_ids": [0, 101, 102]}

        def derive(law):
            key = WatermarkKey.generate(model, law=law, **arguments)
            return key.phase_table, key.selection_table

        times = interleaved(
            {
                "load": lambda: BertForSequenceClassification.from_pretrained(folder),
                "direct": lambda: derive("direct"),
                "paper": lambda: derive("paper"),
            },
            rounds,
        )
    for law in ("direct", "paper"):
        rows.append(
            {
                "what": f"deriving a key's tables, law {law}, {VOCABULARY:,} tokens / loading the model",
                "ratio": ratio(times, law, "load"),
                "limit": 1.0,
                "median_ms": 1e3 * statistics.median(times[law]),
                "load_median_ms": 1e3 * statistics.median(times["load"]),
            }
        )
    return rows


def bench_import(rounds: int) -> list[dict]:
    def seconds(statement: str) -> float:
        code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)

    classes = "PreTrainedModel, AutoModelForSequenceClassification, AutoModelForTokenClassification"
    statements = {"drw_hf": "import drw_hf", "transformers": f"from transformers import {classes}"}
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(rounds):
        for name, statement in statements.items():
            times[name].append(seconds(statement))
    return [
        {
            "what": "import drw_hf / importing transformers' model classes",
            "ratio": ratio(times, "drw_hf", "transformers"),
            "limit": 1.1,
            "median_ms": 1e3 * statistics.median(times["drw_hf"]),
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench")
    parser.add_argument("--rounds", type=int, default=80, help="rounds of the forward bench (default: 80)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the JSON goes")
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    rows = bench_forward(options.rounds) + bench_key(max(5, options.rounds // 5)) + bench_import(7)
    print(f"{'':82} {'ratio':>7} {'limit':>7}")
    for row in rows:
        extra = f"  (marking alone {row['ratio_of_marking_alone']:.4f})" if "ratio_of_marking_alone" in row else ""
        print(f"{row['what']:82} {row['ratio']:7.4f} {row['limit']:7.3f}{extra}")
    report = {
        "command": "make bench",
        "rounds": options.rounds,
        "shape": f"6-layer 384-wide BERT, batch {BATCH} x {LENGTH} tokens",
        "drw_hf": drw_hf.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
        "results": rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    options.output.with_suffix(".md").write_text(as_markdown(report))
    print(f"written to {options.output} and, as a table, beside it")


def as_markdown(report: dict) -> str:
    """The table that the documentation includes."""
    lines = ["| | ratio | wanted | marking alone |", "| --- | --- | --- | --- |"]
    for row in report["results"]:
        alone = f"{row['ratio_of_marking_alone']:.4f}" if "ratio_of_marking_alone" in row else ""
        lines.append(f"| {row['what']} | {row['ratio']:.4f} | ≤ {row['limit']:g} | {alone} |")
    versions = ", ".join(f"{name} {report[name]}" for name in ("python", "torch", "transformers"))
    return "\n".join([*lines, "", f"{report['shape']}; {report['threads']} threads; {versions}.", ""])


if __name__ == "__main__":
    main()
