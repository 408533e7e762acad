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

from .detection import bench_probing, bench_test, check_accuracy
from .extraction import bench_epoch, bench_labelling, bench_steps
from .identify import bench_identify
from .load import bench_load
from .measure import Row
from .protection import BATCH, LENGTH, bench_forward, bench_import, bench_key, bench_small_batches
from .psnr import bench_psnr
from .serving import bench_serving

OUTPUT = Path(__file__).parents[2] / "docs" / "results" / "bench.json"


def measure(part: str, rounds: int) -> list[Row]:
    """The rows of one part."""
    few = max(5, rounds // 5)
    if part == "protect":
        return bench_forward(rounds) + bench_key(few) + bench_import(7)
    if part == "small":
        return bench_small_batches(3 * rounds)
    if part == "extract":
        return bench_steps(few) + bench_labelling(few // 3) + bench_epoch(3)
    if part == "detect":
        return bench_psnr(few // 2) + bench_test(few // 2) + bench_probing(few // 3)
    if part == "identify":
        return bench_identify()
    if part == "serve":
        return bench_serving(rounds)
    if part == "load":
        return bench_load(200 * rounds)
    return check_accuracy(1000)


def main() -> None:
    """Measure, print, write."""
    parts = ["protect", "small", "extract", "detect", "identify", "serve", "load", "accuracy"]
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench")
    parser.add_argument("--only", choices=parts, nargs="*", default=parts, help="measure these parts alone")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of the forward bench (default: 100)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the JSON goes")
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    datasets.disable_progress_bars()
    # What is not measured now is kept from the last run, so that a part can be measured anew alone.
    rows: list[Row] = json.loads(options.output.read_text())["results"] if options.output.exists() else []
    for part in options.only:
        found = [{**row, "part": part} for row in measure(part, options.rounds)]
        rows = [row for row in rows if row["part"] != part] + found
        for row in found:
            print(f"{row['what']:96} {row['ratio']:7.4f}  {wanted(row)}{missed(row)}  {spread(row)}", flush=True)
    rows.sort(key=lambda row: parts.index(row["part"]))
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


def missed(row: Row) -> str:
    """Said where the ratio is not what it should be."""
    beyond = row["ratio"] > row.get("limit", float("inf")) or row["ratio"] < row.get("least", 0.0)
    return " (missed)" if beyond else ""


def spread(row: Row) -> str:
    """The quartiles of a ratio within a call, and of the same two calls side by side."""
    if "lost" in row:
        return (
            f"{row['requests']:,} requests of {row['clients']} clients and {row['users']} users, {row['rate']:.0f} "
            f"per second, a process killed in between: {row['lost']} answers lost, {row['doubled']} lines doubled, "
            f"{row['mixed_up']} users mixed up; {row['memory']:.0f} MiB"
        )
    if "p50_ms" in row:
        return f"{row['p50_ms']:.2f} over {row['under_p50_ms']:.2f} ms"
    if "p99_ms" in row:
        times = f"{row['rate']:.0f} over {row['under_rate']:.0f} per second; p99 {row['p99_ms']:.1f} ms"
        times += f" ({row['p99_ratio']:.3f})"
        if "sync_share" not in row:
            return times
        return f"{times}; fsync {row['sync_ms']:.1f} ms each, {100 * row['sync_share']:.0f} % of the time"
    if "ratio_quartiles" not in row:
        return ""
    low, _, high = row["ratio_quartiles"]
    left, middle, right = row["side_by_side_quartiles"]
    return f"{low:.4f} to {high:.4f}; side by side {left:.3f}, {middle:.3f}, {right:.3f}"


def as_markdown(report: dict) -> str:
    """The table that the documentation includes."""
    lines = ["| | ratio | wanted | quartiles |", "| --- | --- | --- | --- |"]
    for row in report["results"]:
        figure = f"{row['ratio']:.4f}" if "ratio_quartiles" in row else f"{row['ratio']:.4g}"
        lines.append(f"| {row['what']} | {figure} | {wanted(row)}{missed(row)} | {spread(row)} |")
    versions = ", ".join(f"{name} {report[name]}" for name in ("python", "torch", "transformers"))
    return "\n".join([*lines, "", f"{report['shape']}; {report['threads']} threads; {versions}.", ""])


if __name__ == "__main__":
    main()
