"""Where texts are cut decides which words count: another cut than the key records is another look at the suspect."""

import dataclasses
import math

import numpy as np

from ..asking.questions import Cut, recorded_cut
from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from .probe import Probe


def check_cut_is_counted(key: WatermarkKey, looks: int, max_length: int | None, probe: Probe | None) -> None:
    """Refuse texts that are cut in another way than the key records, unless more than one look is declared."""
    recorded = recorded_cut(key.settings)
    if looks > 1 or recorded is None:
        return
    others = max_length not in (None, recorded.max_length) and recorded.max_length is not None
    if others or (probe is not None and is_cut_otherwise(probe, key)):
        used = max_length if probe is None or probe.cut is None else probe.cut["max_length"]
        raise InvalidInputError(
            f"the texts are cut after {used} tokens in another way than the key {key.fingerprint} records "
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
