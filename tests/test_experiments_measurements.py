"""Experiments of independent measurements, and the libraries that only they need."""

import sys

import numpy as np
import pytest
from scipy import stats

from drw_hf.errors import ConfigurationError, JobsFailedError
from drw_hf.experiments import (
    calibration,
    comparison,
    draws,
    library,
    margins_report,
    marks_report,
    recovery,
    threats_report,
    tracing,
    tradeoff,
)
from drw_hf.experiments.measurements import LEVELS, Measurement, expected_shares, measure_missing
from drw_hf.runs.lines import read_lines


def make(folder):
    return [
        Measurement({"kind": kind, "seed": seed}, lambda seed=seed: {"z": seed}) for kind in "ab" for seed in (1, 2)
    ]


def test_a_line_is_named_by_the_fields_it_begins_with_and_is_not_measured_again(tmp_path):
    output = tmp_path / "new" / "lines.jsonl"
    measure_missing(output, lambda folder: make(folder)[:2])
    measure_missing(output, make)
    assert [(record["kind"], record["seed"], record["z"]) for record in read_lines(output)] == [
        ("a", 1, 1),
        ("a", 2, 2),
        ("b", 1, 1),
        ("b", 2, 2),
    ]


def test_measurements_of_one_run_may_be_named_by_different_fields(tmp_path):
    both = [Measurement({"what": "a", "size": 1}, dict), Measurement({"what": "b", "how": "put on"}, dict)]
    output = tmp_path / "lines.jsonl"
    measure_missing(output, lambda _: both[:1])
    measure_missing(output, lambda _: both)
    assert [record["what"] for record in read_lines(output)] == ["a", "b"], "each once"


def test_measurements_that_give_the_same_fields_in_another_order_are_made_once(tmp_path):
    output, made = tmp_path / "lines.jsonl", []

    def measure():
        made.append(1)
        if len(made) > 2:
            pytest.fail("measured again and again")
        return {}

    about = [{"what": "a", "size": 1, "times": 2}, {"what": "b", "times": 2, "size": 1}]
    measure_missing(output, lambda _: [Measurement(one, measure) for one in about])
    assert [record["what"] for record in read_lines(output)] == ["a", "b"]


def test_one_that_fails_stops_no_others_and_is_tried_again(tmp_path):
    output = tmp_path / "lines.jsonl"

    def failing(folder):
        return [Measurement({"kind": "a", "seed": 1}, lambda: 1 / 0), *make(folder)[1:]]

    with pytest.raises(
        JobsFailedError, match=r"1 of 4 jobs are not done, 'a, 1' first; .*lines\.failed\.jsonl says why"
    ):
        measure_missing(output, failing)
    assert len(read_lines(output)) == 3
    measure_missing(output, make)
    assert len(read_lines(output)) == 4


def test_honest_tests_stay_within_the_binomials_interval():
    for level, (low, high) in expected_shares(5000).items():
        assert level in LEVELS and low < level < high
        assert stats.binom.cdf(high * 5000, 5000, level) - stats.binom.cdf(low * 5000 - 1, 5000, level) >= 0.999


def test_a_library_that_is_missing_is_named_with_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.delitem(sys.modules, "scipy.stats", raising=False)
    with pytest.raises(ConfigurationError, match=r'need scipy; install it with `pip install "drw_hf\[experiments\]"`'):
        library("scipy.stats")


REPORTS = [
    calibration,
    comparison,
    draws,
    margins_report,
    marks_report,
    recovery,
    threats_report,
    tracing,
    tradeoff,
]


@pytest.mark.parametrize("experiment", REPORTS)
def test_the_tables_in_the_docs_follow_from_the_raw_lines(request, experiment):
    name = experiment.__name__.rpartition(".")[2].removesuffix("_report")
    output = request.config.rootpath / "docs" / "results" / f"{name}.jsonl"
    assert output.with_suffix(".md").read_text() == experiment.report(output)


@pytest.mark.parametrize("variants", [calibration.TILT_VARIANTS, calibration.MARGIN_VARIANTS], ids=["tilt", "margin"])
def test_so_do_those_of_the_calibration_of_tilt_and_of_its_draws(request, variants):
    name = "tilt" if variants is calibration.TILT_VARIANTS else "margin"
    output = request.config.rootpath / "docs" / "results" / f"calibration-{name}.jsonl"
    assert output.with_suffix(".md").read_text() == calibration.tilt_report(output, variants)
    for record in read_lines(output):
        for variant in variants:
            p = np.array(record[variant]["p_values"])
            # Where hardly anything was drawn, the product of two p-values is rather too large than too small.
            side = "greater" if variant.startswith("both") else "two-sided"
            assert stats.kstest(p, "uniform", alternative=side).pvalue > 1e-4, f"{record['model']}: {variant}"
            assert np.mean(np.array(record[variant]["p_bounds"]) <= 0.05) <= 0.05
