"""Altered files of every kind: whatever is in them, reading them ends in what was asked for or in an error of ours.

``make fuzz`` looks for more of the same, for as long as one likes.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from drw_hf import WatermarkedConfig
from drw_hf.detection import Probe
from drw_hf.errors import ConfigurationError, InvalidInputError
from fuzz.targets import FROZEN, TARGETS, survives


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, data):
        self.data = data

    def below(self, n):
        return self.data.draw(st.integers(0, n - 1)) if n > 1 else 0

    def content(self, most):
        return self.data.draw(st.binary(max_size=most))


EXAMPLES = dict.fromkeys(TARGETS, 100) | {
    "verified-evidence": 15,
    "config": 50,
    "probe": 300,
    "rehearsal": 60,
    "log-of-evidence": 40,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Every target, made once."""
    return {name: make(tmp_path_factory.mktemp(name)) for name, make in TARGETS.items()}


@pytest.mark.parametrize("name", TARGETS)
def test_an_altered_file_is_read_or_refused_by_an_error_of_ours(made, name):
    taken = []

    @settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def look(data):
        taken.append(survives(made[name], Drawn(data)))

    look()
    refuses = name != "found-in-a-repository"  # an audit tells what it finds, whatever it is
    assert all(taken) != refuses, "nothing that was altered was ever refused: the target reads something else"


TAGS = Probe.load(FROZEN / "evidence" / "exact.probe.npz")
MADE_UP = {
    "a row of no text": {"rows": TAGS.rows + 10**6},
    "a row before the first": {"rows": TAGS.rows - 1},
    "a place beyond its text": {"places": TAGS.places + 10**6},
    "a place before its text": {"places": TAGS.places - 10**6},
    "a text that ends before it begins": {"offsets": TAGS.offsets[::-1].copy()},
    "tokens of no text": {"offsets": TAGS.offsets[:-1]},
    "no tokens": {"input_ids": TAGS.input_ids[:0]},
    "tokens below zero": {"input_ids": -1 - TAGS.input_ids},
    "answers that are no numbers": {"suspect": np.full_like(TAGS.suspect, np.nan)},
    "answers of another type": {"suspect": TAGS.suspect.astype(np.float64)},
    "rows of another type": {"rows": TAGS.rows.astype(np.int32)},
    "answers to other items": {"suspect": TAGS.suspect[:-1]},
    "answers of fewer labels": {"suspect": TAGS.suspect[:, :-1]},
    "a label that is none": {"gold": np.full(len(TAGS.rows), len(TAGS.labels))},
    "labels that are no names": {"labels": tuple(range(len(TAGS.labels)))},
    "a label twice": {"labels": (TAGS.labels[0],) * len(TAGS.labels)},
    "another task": {"task": "translation"},
    "a name that is none": {"suspect_name": 7},
    "fewer questions than none": {"n_queries": -1},
}


@pytest.mark.parametrize("change", MADE_UP)
def test_a_probe_that_does_not_hold_together_is_refused(tmp_path, change):
    TAGS.save(tmp_path / "sound.npz")
    assert Probe.load(tmp_path / "sound.npz").digest() == TAGS.digest()
    dataclasses.replace(TAGS, **MADE_UP[change]).save(tmp_path / "a.npz")
    with pytest.raises(InvalidInputError, match="damaged"):
        Probe.load(tmp_path / "a.npz")


@pytest.mark.parametrize("value", [7, True, ["a"], {}, "a" * 63, "A" * 64], ids=str)
def test_a_key_commitment_of_another_type_is_named(value):
    with pytest.raises(ConfigurationError, match="key_commitment"):
        WatermarkedConfig(key_commitment=value)
