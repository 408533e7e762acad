"""Negative controls: the same test on models that are known to be innocent, beside the finding.

They are looks at innocents and not at the suspect: nothing of them is chosen to be the finding, so the suspect's
p-values are not corrected for them. They show what the test does to models that have nothing to do with the key.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from ..wording import small_p
from .probe import Probe
from .statistics import Statistic, TestOptions

_FIGURES = ("z_score", "log10_p", "log10_bound")


def controls_tested(
    probe: Probe, key: WatermarkKey, statistic: Statistic, options: TestOptions
) -> list[dict[str, Any]]:
    """The figures of every control of a probe, not corrected; None where one cannot be tested."""
    counts = TestOptions(options.logged_counts, 0)
    found = []
    for number, name in enumerate(probe.control_names):
        figures: dict[str, Any] = {"name": name, "variant": None, **dict.fromkeys(_FIGURES)}
        alone = probe.control(number)
        try:
            if statistic.applies_to(alone, key):
                finding = statistic.test(alone, key, counts)
                figures["variant"] = finding.variant
                figures |= {each: getattr(finding.test, each) for each in _FIGURES}
        except InvalidInputError:  # it never predicts the target class, or gives labels alone: no figures
            pass
        found.append(figures)
    return found


def describe_controls(controls: Sequence[Mapping[str, Any]], level: float) -> str:
    """What the controls say, in a sentence or two."""
    tested = [one for one in controls if one["log10_bound"] is not None]
    if not tested:
        return f"None of the {len(controls)} models known to be innocent could be tested."
    least = min(tested, key=lambda one: one["log10_bound"])
    highest = max(one["z_score"] for one in tested)
    said = (
        f"The same test on {len(tested)} models known to be innocent: z at most {highest:.1f}, p at least "
        f"{small_p(min(one['log10_p'] for one in tested))}."
    )
    if least["log10_bound"] <= math.log10(level / len(tested)):
        return (
            f"{said} One of them looks marked, too: either it is not innocent, or something is wrong with the texts "
            "or the clean model; do not rely on this finding."
        )
    return said
