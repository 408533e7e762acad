"""What a probe says of a suspect, under a key: the exact test, P_snr in three ways, the baseline."""

import dataclasses
from typing import Any

import numpy as np
import torch

from ..detection import jsd, p_snr, periodogram
from ..detection.probing import Probe
from ..detection.statistics.exact import amplitudes_of
from ..detection.verdict import Corrections, verdict_on
from ..errors import InvalidInputError
from ..keys import WatermarkKey
from ..planning.plan import key_variance, mark_depth, token_weight, tokens_that_count
from ..planning.students import KAPPA
from ..runs.lines import rounded
from ..watermark.cosine import is_marked, periodic_signal, perturb

LEVEL = 1e-3
CURVE_POINTS = 1_500  # of a case study's left panel
SPECTRUM = np.linspace(0.5, 100.0, 400)  # angular frequencies of its right panel


def score_probe(
    probe: Probe, key: WatermarkKey, kept: float, *, curve: bool = False, served_with: WatermarkKey | None = None
) -> dict[str, Any]:
    """All scores of one probe, which has the clean victim's answers and gold labels.

    ``kept`` is the share of the most confident items that the paper's code keeps. ``curve`` adds what a case study's
    figure shows. ``served_with`` is the key that the victim serves with, where the tested one is wrong.
    """
    y = served(probe, served_with or key)
    record: dict[str, Any] = {
        "exact": tested(dataclasses.replace(probe, gold=None, logged=None), key),
        "blind": tested(dataclasses.replace(probe, victim=None, gold=None, logged=None), key),
        "p_snr": {way: _p_snr(probe, key, way, kept) for way in ("victim", "gold", "all")},
        "jsd": jsd(probe.suspect, y),
        "power": _power(probe, key),
    }
    if probe.logged is not None:
        record["memory"] = tested(dataclasses.replace(probe, gold=None), key)
    if curve and record["p_snr"]["victim"] is not None:  # else there is nothing to show
        record["curve"] = _curve(probe, key, y)
    return record


def tested(probe: Probe, key: WatermarkKey, *, spectrum: bool = False) -> dict[str, Any]:
    """A test's figures, with ``spectrum`` P_snr, too; where there is nothing to test, the reason."""
    try:
        found = verdict_on(probe, key, Corrections(), LEVEL)
    except InvalidInputError as reason:
        return {"z": 0.0, "log10_p": 0.0, "log10_bound": 0.0, "why": str(reason)}
    figures: dict[str, Any] = {
        "z": round(found.z_score, 3),
        "log10_p": round(found.log10_p, 3),
        "log10_bound": round(found.log10_bound, 3),
        "n_probes": found.n_probes,
        "n_tokens": found.n_tokens,
        "n_effective": round(found.n_effective, 1),
        "verdict": found.verdict,
    }
    if spectrum:
        figures |= {"statistic": found.statistic, "p_snr": None if found.p_snr is None else round(found.p_snr, 3)}
    return figures


def _power(probe: Probe, key: WatermarkKey) -> dict[str, float]:
    """What :mod:`drw_hf.planning` is fitted to: the tokens' spread σ, how many they are worth, and the mark on them.

    ``n_planned`` is what a plan takes them to be worth, which knows no student; ``effect`` is γ for a student that
    copies the mark whole (φ = 1) and strays by σ = 1.
    """
    tokens, exists = probe.tokens_of(key)
    try:
        found = amplitudes_of(dataclasses.replace(probe, gold=None), key)
    except InvalidInputError:
        return {}
    weighted = found.weights > 0
    if not weighted.any():
        return {}
    assert probe.victim is not None  # as :func:`score_probe` asks
    of_target = exists & (probe.victim.argmax(1) == key.target)
    depth = mark_depth(probe.victim[of_target], key.settings)
    distinct, counts = np.unique(tokens[of_target], return_counts=True)
    # A plan weighs tokens without knowing the student: by κ = 1, and so is the spread taken here.
    n = counts[np.searchsorted(distinct, found.token_ids[weighted])]
    w = token_weight(n, n, KAPPA)
    residuals = found.A[weighted] / found.weights[weighted]
    residuals -= np.average(residuals, weights=w)
    return {
        "sigma": float(np.sqrt(np.sum((w * residuals) ** 2) / np.sum(w**2))),
        "n_planned": float(tokens_that_count(counts, 1.0, KAPPA)[1]),
        "effect": float(depth * np.sqrt(key_variance(key.settings))),
    }


def chosen(probe: Probe, key: WatermarkKey, way: str, kept: float) -> tuple[np.ndarray, np.ndarray]:
    """The selected items that P_snr is taken of, and their hash: see :class:`drw_hf.experiments.jobs.Mode`."""
    tokens, exists = probe.tokens_of(key)
    counted = exists.copy()
    if way == "victim":
        assert probe.victim is not None  # as :func:`score_probe` asks
        counted &= probe.victim.argmax(1) == key.target
    if way == "gold":
        counted &= probe.gold == key.target
        scores = probe.suspect[counted, key.target]
        if len(scores):
            counted[counted] = scores >= np.quantile(scores, 1.0 - kept)
    items = np.flatnonzero(counted)
    if not len(items):
        return items, np.empty(0)
    phase, selection = key.entries(tokens[items])
    selected = selection <= key.tau
    return items[selected], phase[selected]


def _p_snr(probe: Probe, key: WatermarkKey, way: str, kept: float) -> float | None:
    items, hashes = chosen(probe, key, way, kept)
    if len(np.unique(hashes)) < 4:
        return None
    return round(p_snr(hashes, probe.suspect[items, key.target].astype(np.float64), key.frequency), 3)


def served(probe: Probe, key: WatermarkKey) -> np.ndarray:
    """ŷ of every item: what the protected victim answers softly."""
    tokens, exists = probe.tokens_of(key)
    phase, selection = key.entries(tokens)
    victim = torch.from_numpy(probe.victim)
    selected = torch.from_numpy((selection <= key.tau) & exists)
    marked = is_marked(selected, victim, key.target, key.scope == "all")
    y = perturb(victim, periodic_signal(torch.from_numpy(phase), key.frequency), key.target, key.epsilon)
    return torch.where(marked.unsqueeze(-1), y, victim).numpy()


def _curve(probe: Probe, key: WatermarkKey, y: np.ndarray) -> dict[str, list[float]]:
    """The suspect's and the victim's answers over the hash, and the suspect's spectrum."""
    items, hashes = chosen(probe, key, "victim", 1.0)
    answers = probe.suspect[items, key.target].astype(np.float64)
    shown = np.random.default_rng(0).permutation(len(items))[:CURVE_POINTS]
    power = periodogram(hashes, answers, SPECTRUM)
    return {
        "hash": rounded(hashes[shown]),
        "suspect": rounded(answers[shown]),
        "victim": rounded(y[items, key.target][shown]),
        "power": rounded(power),
    }
