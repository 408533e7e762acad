"""Altered files of every kind: whatever is in them, reading them ends in what was asked for or in an error of ours.

``make fuzz`` looks for more of the same, for as long as one likes.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from drw_hf import WatermarkedConfig
from drw_hf.errors import ConfigurationError
from fuzz.targets import TARGETS, survives


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, data):
        self.data = data

    def below(self, n):
        return self.data.draw(st.integers(0, n - 1)) if n > 1 else 0

    def content(self, most):
        return self.data.draw(st.binary(max_size=most))


EXAMPLES = dict.fromkeys(TARGETS, 100) | {"verified-evidence": 15, "config": 30, "probe": 60}


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


@pytest.mark.parametrize("value", [7, True, ["a"], {}, "a" * 63, "A" * 64], ids=str)
def test_a_key_commitment_of_another_type_is_named(value):
    with pytest.raises(ConfigurationError, match="key_commitment"):
        WatermarkedConfig(key_commitment=value)
