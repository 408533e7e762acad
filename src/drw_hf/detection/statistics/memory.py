"""The memory test: did a suspect learn the very labels that a hard-label service drew?

The service draws the label of a marked item from ŷ by a keyed function of the text (:mod:`drw_hf.watermark.sampling`):
one independent draw per item. A suspect that was not trained on these draws cannot know which way they fell. One that
was tends to repeat them, which makes this the strongest test where the queries were logged, also for suspects that
give labels alone.

T = Σ_j s_j(L_j) − E_{L∼ŷ_j} s_j(L) over the marked items, s = log q of the suspect (or 1 for its label, 0 else), and
the law of T is known again: K(θ) = Σ_j log Σ_c ŷ_jc exp(θ·(s_jc − Σ_b ŷ_jb s_jb)).
"""

from typing import Any

import numpy as np
import torch

from ...checks import as_floats, check_probabilities, distributions, integers
from ...errors import InvalidInputError
from ...keys.key import WatermarkKey
from ...watermark.cosine import is_marked, periodic_signal, perturb
from ..probe import Probe
from .base import Finding, Statistic, TestOptions, register
from .saddlepoint import ExactTest, saddlepoint_test

STATISTIC = "drw-memory-1"
_SMALLEST = 1e-8  # the suspect's probabilities below are taken for it before the logarithm
_STEEPEST = 1e6  # the largest θ, in units of the widest range of scores: K has reached its limit there


def memory_test(
    y: Any, drawn: Any, *, probabilities: Any = None, labels: Any = None, item_ids: Any = None
) -> ExactTest:
    """Test whether a suspect repeats the labels ``drawn`` (J,) from ŷ (J, m) for the marked items of logged queries.

    The suspect's answers to the same items are ``probabilities`` (J, m) or, where no more is known, ``labels`` (J,).
    The service must have drawn by its key (``sampling="keyed"``): with fresh draws a repeated query has no one label.
    ``item_ids`` (J,) tell items apart: one that was asked more than once has one draw and counts once; without them
    all must differ. ``n_tokens`` of the result counts items.
    """
    y = distributions("y", y)
    drawn = _labels("drawn", drawn, y.shape)
    if not (np.take_along_axis(y, drawn[:, None], axis=1) > 0.0).all():
        raise InvalidInputError(
            "some drawn labels have probability 0 under y, so they were not drawn from it; give the y and the labels "
            "of the same items, in the same order"
        )
    if (probabilities is None) == (labels is None):
        raise InvalidInputError("give the suspect's answers once: as probabilities= or labels=")
    if labels is not None:
        scores = (_labels("labels", labels, y.shape)[:, None] == np.arange(y.shape[1])).astype(np.float64)
    else:
        q = as_floats("probabilities", probabilities, 2)
        if q.shape != y.shape:
            raise InvalidInputError(f"probabilities has shape {q.shape}; expected that of y, {y.shape}")
        check_probabilities("probabilities", q)
        scores = np.log(np.maximum(q, _SMALLEST))
    if item_ids is not None:
        if np.shape(item_ids) != (len(y),):
            raise InvalidInputError(f"item_ids has shape {np.shape(item_ids)}; expected ({len(y)},), one per item")
        first = np.sort(np.unique(np.asarray(item_ids), return_index=True)[1])
        y, drawn, scores = y[first], drawn[first], scores[first]
    low, high = scores.min(), scores.max()
    two_valued = bool(np.all((scores == low) | (scores == high)))  # labels, or probabilities that are all 0 or 1
    scores = scores - np.sum(y * scores, axis=1, keepdims=True)
    scores[np.abs(scores) < 1e-12] = 0.0  # a suspect without opinion, but for rounding
    # A class that cannot be drawn must not set the scale of the exponents.
    scores = np.where(y > 0.0, scores, scores.min(axis=1, where=y > 0.0, initial=np.inf, keepdims=True))
    width = float(np.ptp(scores, axis=1).max())
    highest, lowest = scores.max(axis=1, keepdims=True), scores.min(axis=1, keepdims=True)

    def cumulants(theta: float) -> tuple[float, float, float]:
        top = theta * (highest if theta >= 0.0 else lowest)
        tilted = y * np.exp(theta * scores - top)
        total = tilted.sum(axis=1, keepdims=True)
        tilted /= total
        mean = np.sum(tilted * scores, axis=1, keepdims=True)
        K2 = np.sum(tilted * (scores - mean) ** 2)
        return float(np.sum(np.log(total) + top)), float(mean.sum()), float(K2)

    return saddlepoint_test(
        cumulants,
        float(np.sum(np.take_along_axis(scores, drawn[:, None], axis=1))),
        mean=0.0,
        variances=np.sum(y * scores**2, axis=1),
        theta_limit=_STEEPEST / (width or 1.0),
        span=float(high - low) if two_valued else 0.0,
    )


def _labels(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    array = integers(name, values, shape[0])
    if not ((array >= 0) & (array < shape[1])).all():
        raise InvalidInputError(f"{name} holds labels outside 0 … {shape[1] - 1}, the classes of y")
    return array


class MemoryStatistic(Statistic):
    """Does the suspect repeat the labels that were drawn for marked items?"""

    name = STATISTIC

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Probes that hold the logged labels of a hard-label service."""
        return probe.logged is not None and key.settings.mark == "cosine"

    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """The memory test on the logged items that were marked."""
        if probe.logged is None:
            raise InvalidInputError("the memory test needs the labels that were served; pass logged=")
        if probe.victim is None:
            raise InvalidInputError("the memory test needs ŷ, and so the clean victim; pass victim=")
        tokens, exists = probe.tokens_of(key)
        # An innocent suspect knows neither the key's tables nor its draws, so reading the tables here costs no
        # validity: given them, the labels of marked items are still independent draws from ŷ.
        phase, selection = key.entries(tokens)
        victim = torch.from_numpy(probe.victim)
        selected = torch.from_numpy((selection <= key.tau) & exists)
        marked = is_marked(selected, victim, key.target, key.scope == "all").numpy() & (probe.logged >= 0)
        if not marked.any():
            raise InvalidInputError(
                "none of the logged answers was marked, so none was drawn; give more logged queries"
            )
        signal = periodic_signal(torch.from_numpy(phase[marked]), key.frequency)
        y = perturb(victim[torch.from_numpy(marked)], signal, key.target, key.epsilon).double().numpy()
        y = y / y.sum(1, keepdims=True)
        messages = probe.messages(key)
        items = [(messages[row], place) for row, place in zip(probe.rows[marked], probe.places[marked], strict=True)]
        number_of = {item: number for number, item in enumerate(items)}
        answers = probe.suspect[marked]
        said = {"probabilities": answers} if probe.kind == "probabilities" else {"labels": answers.argmax(1)}
        test = memory_test(y, probe.logged[marked], **said, item_ids=[number_of[item] for item in items])
        return Finding(test, int(marked.sum()), f"memory-{probe.kind}")


register(MemoryStatistic())
