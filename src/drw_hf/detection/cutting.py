"""Where texts are cut decides which words count: another cut than the key records is another look at the suspect."""

import dataclasses
import math

import numpy as np

from ..asking.questions import Cut, recorded_cut
from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from .probe import Probe


def check_length_is_counted(key: WatermarkKey, looks: int, max_length: int | None) -> None:
    """Before anybody is asked: refuse texts that are cut shorter than the key records, where one look is declared."""
    recorded = recorded_cut(key.settings)
    given = max_length if isinstance(max_length, int) else math.inf  # what is no length is for others to refuse
    if looks < 2 and recorded is not None and given < (recorded.max_length or 0):
        raise _another_look(key, max_length, recorded)


def check_cut_is_counted(key: WatermarkKey, looks: int, probe: Probe) -> None:
    """Refuse a probe of which texts were cut otherwise than the key records, where one look is declared."""
    recorded = recorded_cut(key.settings)
    if looks < 2 and recorded is not None and probe.cut is not None and is_cut_otherwise(probe, key):
        raise _another_look(key, probe.cut["max_length"], recorded)


def _another_look(key: WatermarkKey, max_length: int | None, recorded: Cut) -> InvalidInputError:
    return InvalidInputError(
        f"the texts are cut after {max_length} tokens in another way than the key {key.fingerprint} records "
        f"({recorded.max_length} tokens, {recorded.side} side): that is another look at the suspect; leave "
        "max_length= out, or declare all looks there were (looks=2, or more)"
    )


def is_cut_otherwise(probe: Probe, key: WatermarkKey) -> bool:
    """Whether a probe's texts were cut in another way than the key records, so that other words may count."""
    recorded = recorded_cut(key.settings)
    if recorded is None or probe.cut is None:
        return False
    used, longest = Cut(**probe.cut), _longest(probe)
    if recorded.max_length is None:  # then any length is as good
        recorded = dataclasses.replace(recorded, max_length=used.max_length)
    if longest < (used.max_length or math.inf) and longest <= (recorded.max_length or math.inf):
        return False  # nothing was cut, nor would be
    return used != dataclasses.replace(recorded, side=recorded.side or used.side)


def free_length(probe: Probe, key: WatermarkKey) -> int | None:
    """After how many tokens texts were cut, where the key does not record it; None where it does, or none was cut."""
    recorded = recorded_cut(key.settings)
    length = None if probe.cut is None else probe.cut["max_length"]
    fixed = recorded is not None and recorded.max_length is not None
    return None if fixed or length is None or _longest(probe) < length else length


def _longest(probe: Probe) -> int:
    return int(np.diff(probe.offsets).max(initial=0))
