"""Evidence that rests on a log: whoever holds the key can invent a log that convicts anybody.

So such evidence is open, unless somebody shows that its lines were fixed before the suspect was seen. How that is
shown is for the log to say; what is needed of it is :class:`ProvenLines`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from ..detection.probe import KeptText
from ..detection.probing import Probe
from .check import Check

NAME = "the log is older than the suspect"


@dataclass(frozen=True)
class ProvenLines:
    """Lines of a log under roots that an authority stamped.

    Attributes
    ----------
    served : mapping
        For every text (pairs and words as tuples) what was served for it, each as class numbers of the key: one number
        or, of a tagger, one per word.
    newest : datetime
        When the newest of these roots was stamped, its accuracy added.
    complete : bool
        Whether these are all lines of the interval that the owner declared: a log can be thinned out as well as made
        up.
    """

    served: Mapping[KeptText, Collection[tuple[int, ...]]]
    newest: datetime
    complete: bool


def rests_on_log(probe: Probe | None, settings: Mapping[str, Any]) -> bool:
    """Whether a finding goes by what a service logged."""
    return (probe is not None and probe.logged is not None) or bool(settings.get("logged_counts"))


def check_log_age(
    probe: Probe | None, settings: Mapping[str, Any], first_seen: datetime | None, proven: ProvenLines | None
) -> tuple[Check, ...]:
    """Whether the lines that evidence rests on are older than the suspect; none where it rests on none."""
    if not rests_on_log(probe, settings):
        return ()
    if proven is None or probe is None:
        return (Check(NAME, "open", "the log is its owner's word: nothing shows when its lines were written"),)
    if settings.get("logged_counts"):
        return (Check(NAME, "open", "how often tokens were asked cannot be told from lines of a log"),)
    if probe.texts is None or probe.logged is None:
        return (Check(NAME, "open", "the probe does not keep the texts, so its lines cannot be found in the log"),)
    n_lines, n_missing = _count_lines(probe, proven)
    if n_missing:
        return (Check(NAME, "failed", f"{n_missing} of {n_lines} logged lines are under no root that was stamped"),)
    if first_seen is None:
        return (Check(NAME, "open", "nobody says when the suspect was first seen"),)
    if proven.newest >= first_seen:
        said = f"the newest root was stamped {proven.newest}, and the suspect first seen {first_seen}"
        return (Check(NAME, "failed", said),)
    left_out = len(proven.served.keys() - set(probe.texts))
    if left_out or not proven.complete:
        said = f"{left_out} texts of the declared interval are not in the probe"
        return (Check(NAME, "open", said if left_out else "these are not all lines of the declared interval"),)
    return (Check(NAME, "passed", f"all {n_lines} lines are under roots that were stamped by {proven.newest}"),)


def _count_lines(probe: Probe, proven: ProvenLines) -> tuple[int, int]:
    """How many texts a probe has logged labels for, and how many of them were not served so."""
    assert probe.texts is not None and probe.logged is not None
    rows, starts = np.unique(probe.rows, return_index=True)  # items stand in the order of their texts
    parts = np.split(probe.logged, starts[1:])
    missing = 0
    for row, labels in zip(rows, parts, strict=True):
        served = proven.served.get(probe.texts[row], ())
        missing += not any(_is_part_of(labels.tolist(), line) for line in served)
    return len(rows), missing


def _is_part_of(labels: list[int], line: tuple[int, ...]) -> bool:
    """Whether labels are those of a line, in their order; words that the suspect did not answer are left out."""
    rest = iter(line)
    return all(label in rest for label in labels)
