"""Experiments of independent measurements: one line of JSON for each, and tables of all lines beside them."""

import argparse
import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.jobs import Run, name_of, work_through
from ..runs.lines import Record
from . import library

LEVELS = (0.05, 0.01, 0.001)  # at which the share of small p-values is compared with what chance gives


@dataclass(frozen=True)
class Measurement:
    """A job that needs no other: what its line begins with, which names it, and what measures the rest."""

    about: Record
    measure: Callable[[], Record]
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return name_of(self.about, tuple(self.about))


@dataclass(frozen=True)
class _Bench:
    """Where measurements are made: they leave nothing but their lines."""

    folder: Path

    def made(self, measurement: Measurement) -> bool:
        return True

    def do(self, measurement: Measurement) -> Record:
        print(f"{measurement.name} ...", flush=True)
        return measurement.measure()


def measure_missing(output: Path, make: Callable[[str], Iterable[Measurement]], meet_in: Path | None = None) -> None:
    """Measure whatever the output does not hold yet; ``make`` gets a folder for what measurements write meanwhile.

    Processes that are given the same folder to meet in share the measurements.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        measurements = list(make(folder))
        named_by = tuple(dict.fromkeys(field for measurement in measurements for field in measurement.about))
        # Lines are known by these fields in this order, in whichever each measurement gave its own.
        measurements = [
            dataclasses.replace(one, about={field: one.about[field] for field in named_by if field in one.about})
            for one in measurements
        ]
        run = Run(_Bench(meet_in or Path(folder)), measurements, output, named_by=named_by)
        run.forget_failures()
        work_through(run)
        run.check_finished()


def run_command(
    parser: argparse.ArgumentParser,
    make: Callable[[argparse.Namespace, str], Iterable[Measurement]],
    report: Callable[[Path], str],
) -> None:
    """Measure what is missing, unless only the report is wanted, and write the report."""
    options = parser.parse_args()
    if not options.report:
        measure_missing(options.output, partial(make, options))
    options.output.with_suffix(".md").write_text(report(options.output))


def command_parser(description: str) -> argparse.ArgumentParser:
    """The options that every experiment has."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the JSON lines; tables go beside them (.md)")
    parser.add_argument("--report", action="store_true", help="only write the tables of what is there")
    return parser


# -- what p-values show


def expected_shares(n: int) -> dict[float, tuple[float, float]]:
    """For each level the share of n p-values below it that 99.9 % of honest tests stay within."""
    intervals = {level: library("scipy.stats").binom.interval(0.999, n, level) for level in LEVELS}
    return {level: (float(low) / n, float(high) / n) for level, (low, high) in intervals.items()}


def uniformity(p_values: np.ndarray) -> dict[str, Any]:
    """How uniform p-values are: Kolmogorov and Smirnov's distance with its p, and the share below some levels."""
    test = library("scipy.stats").kstest(p_values, "uniform")
    return {
        "n": len(p_values),
        "ks_distance": float(test.statistic),
        "ks_p": float(test.pvalue),
        "shares": {str(level): float(np.mean(p_values <= level)) for level in LEVELS},
        "expected": {str(level): list(shares) for level, shares in expected_shares(len(p_values)).items()},
        "smallest": float(p_values.min()),
    }
