"""The calibration temperature: by how much a model's logits are too large."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import finite_floats, integers
from ..errors import InvalidInputError

LOWEST, HIGHEST = 0.05, 20.0  # between these a temperature is looked for
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def fit_temperature(logits: Any, labels: Any) -> float:
    """The temperature T for which softmax(logits/T) makes the right labels most likely, to four digits.

    Parameters
    ----------
    logits : array, shape (n, m)
        The clean model's, or its log-probabilities: they differ by a constant per row, which does not matter.
    labels : array of int, shape (n,)
        The right class of each item; −1 for none. The model must not have been trained on these items: it is surer of
        those than of others, and the temperature would come out too low.

    Raises
    ------
    InvalidInputError
        Where there is no such temperature between 0.05 and 20: without labels, with labels of one class alone, for a
        model that is always right (the lower, the likelier), and for one that is hardly better than chance (the
        higher, the likelier).

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.planning import fit_temperature
    >>> generator = np.random.default_rng(0)
    >>> logits = generator.normal(size=(20000, 3))
    >>> labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
    >>> round(fit_temperature(2.0 * logits, labels), 1)
    2.0
    """
    logits = finite_floats("logits", logits, 2)
    labels = integers("labels", labels, len(logits))
    if (labels >= logits.shape[1]).any():
        raise InvalidInputError(f"labels hold {labels.max()}; expected classes from 0 to {logits.shape[1] - 1}")
    logits, labels = logits[labels >= 0], labels[labels >= 0]
    if len(np.unique(labels)) < 2:
        what = "there are no labels" if not len(labels) else f"all {len(labels)} labels are of one class"
        raise InvalidInputError(f"{what}, and by these no temperature can be fitted; give text of several classes")
    right = np.arange(len(labels)), labels

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        return float((log_sum_exp(scaled) - scaled[right]).mean())

    found = math.exp(_golden_section(loss, math.log(LOWEST), math.log(HIGHEST)))
    if not LOWEST * 1.01 < found < HIGHEST / 1.01:
        why = (
            "the model is right about all of these items, or nearly; give more of them, and harder ones"
            if found < 1.0
            else "the model is hardly better than chance on these items; do its labels mean the same as theirs?"
        )
        raise InvalidInputError(
            f"no temperature between {LOWEST:g} and {HIGHEST:g} makes these {len(labels)} labels most likely: {why}"
        )
    return float(f"{found:.4g}")


def log_sum_exp(values: np.ndarray) -> np.ndarray:
    """log Σ exp of every row, without overflow."""
    highest = values.max(axis=-1)
    return highest + np.log(np.exp(values - highest[..., None]).sum(axis=-1))


def _golden_section(function: Callable[[float], float], low: float, high: float, width: float = 1e-6) -> float:
    """Where a function that falls and then rises is lowest. The likelihood is one: it is convex in 1/T."""
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    values = [function(point) for point in inner]
    while high - low > width:
        if values[0] <= values[1]:
            high, inner[1], values[1] = inner[1], inner[0], values[0]
            inner[0] = high - _GOLDEN * (high - low)
            values[0] = function(inner[0])
        else:
            low, inner[0], values[0] = inner[0], inner[1], values[1]
            inner[1] = low + _GOLDEN * (high - low)
            values[1] = function(inner[1])
    return (low + high) / 2.0
