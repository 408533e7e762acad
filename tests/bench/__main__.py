"""``make bench``: what things cost, as ratios to what they wrap or replace, interleaved in one run.

Prints a table and writes the figures, with the versions they were measured with, as JSON and as a Markdown table.
"""

import argparse
import json
import platform
from pathlib import Path

import datasets
import torch
import transformers

import drw_hf

from .extraction import bench_epoch, bench_labelling, bench_steps
from .measure import Row
from .protection import BATCH, LENGTH, bench_forward, bench_import, bench_key

OUTPUT = Path(__file__).parents[2] / "docs" / "results" / "bench.json"


def measure(parts: list[str], rounds: int) -> list[Row]:
    """The rows of the parts that were asked for."""
    few = max(5, rounds // 5)
    rows: list[Row] = []
    if "protect" in parts:
        rows += bench_forward(rounds) + bench_key(few) + bench_import(7)
    if "extract" in parts:
        rows += bench_steps(few) + bench_labelling(few) + bench_epoch(3)
    return rows


def main() -> None:
    """Measure, print, write."""
    parts = ["protect", "extract"]
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench")
    parser.add_argument("--only", choices=parts, nargs="*", default=parts, help="measure these parts alone")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the forward bench (default: 100)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the JSON goes")
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    rows = measure(options.only, options.rounds)
    print(f"{'':96} {'ratio':>7}  wanted")
    for row in rows:
        extra = f"  (marking alone {row['ratio_of_marking_alone']:.4f})" if "ratio_of_marking_alone" in row else ""
        print(f"{row['what']:96} {row['ratio']:7.4f}  {wanted(row)}{extra}")
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


def wanted(row: Row) -> str:
    """What the ratio should be."""
    if "limit" in row:
        return f"≤ {row['limit']:g}"
    return f"≥ {row['least']:g}" if "least" in row else "—"


def as_markdown(report: dict) -> str:
    """The table that the documentation includes."""
    lines = ["| | ratio | wanted | marking alone |", "| --- | --- | --- | --- |"]
    for row in report["results"]:
        alone = f"{row['ratio_of_marking_alone']:.4f}" if "ratio_of_marking_alone" in row else ""
        lines.append(f"| {row['what']} | {row['ratio']:.4f} | {wanted(row)} | {alone} |")
    versions = ", ".join(f"{name} {report[name]}" for name in ("python", "torch", "transformers"))
    return "\n".join([*lines, "", f"{report['shape']}; {report['threads']} threads; {versions}.", ""])


if __name__ == "__main__":
    main()
