"""The figure of a detection: answers over the hash, the periodogram, and what chance would give."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..detection.memory import STATISTIC as MEMORY
from ..detection.result import DetectionResult, _power_of_ten

# Readable in black and white: shapes and line styles differ, not colours alone.
_INK, _MARK, _LIGHT = "0.15", "#b5232a", "0.65"


def plot_result(result: DetectionResult, path: str | os.PathLike | None = None) -> Any:
    """Draw a result; returns the matplotlib figure and writes it where a path is given."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    answers, spectrum, chance = figure.subplots(1, 3)
    _plot_answers(answers, result)
    _plot_spectrum(spectrum, result)
    _plot_chance(chance, result)
    named = _shortened(result.suspect, 80) or "suspect"
    figure.suptitle(f"{named}: {result.verdict}", fontsize=12, parse_math=False)
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    return figure


def draw_panels(result: DetectionResult) -> dict[str, bytes]:
    """The panels of a result one by one, as SVG without a word from outside: a page names suspect and label itself."""

    def answers(axes: Any) -> None:
        _plot_answers(axes, result)
        axes.set_ylabel("probability of the target class")

    return {
        "answers": _draw(answers),
        "spectrum": _draw(lambda axes: _plot_spectrum(axes, result)),
        "chance": _draw(lambda axes: _plot_chance(axes, result)),
    }


def draw_score(z_score: float) -> bytes:
    """The z-equivalent of a p-value beside the normal curve, as SVG; it shows no more than that number does.

    Neither does it show the simulated keys: their histogram depends on the key's frequency and ratio, and whoever has
    the answers could try out which.
    """

    def score(axes: Any) -> None:
        _fill_normal(axes, "what chance gives")
        _mark_observed(axes, z_score, "this key")
        axes.set(xlabel="z, the p-value on the scale of a normal variable", ylabel="density")

    return _draw(score)


def _draw(plot: Callable[[Any], None]) -> bytes:
    """One panel as SVG, the same bytes for the same panel."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.8, 2.9), layout="constrained")
    axes = figure.subplots()
    plot(axes)
    axes.set_title("")  # a caption says it
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "drw_hf", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
    return buffer.getvalue()


def _plot_answers(axes: Any, result: DetectionResult) -> None:
    hashes, values = np.array(result.hash_values), np.array(result.target_values)
    axes.set(xlabel="hash g(x) of the token", xlim=(0, 1))
    axes.set_ylabel(f"probability of {_shortened(result.target_label, 40)}", parse_math=False)
    axes.set_title("answers of the selected probes", fontsize=10)
    if not len(hashes):
        return
    axes.plot(hashes, values, ".", color=_LIGHT, markersize=3, label="a probe", rasterized=True)
    # The mean a stretch of the hash shows what single answers hide.
    edges = np.linspace(0, 1, 41)
    place = np.clip(np.digitize(hashes, edges) - 1, 0, 39)
    counts = np.bincount(place, minlength=40)
    there = counts > 0
    means = np.bincount(place, values, minlength=40)[there] / counts[there]
    axes.plot(
        ((edges[:-1] + edges[1:]) / 2)[there], means, "o-", color=_INK, markersize=3, linewidth=0.8, label="mean"
    )
    design = np.stack([np.ones_like(hashes), np.cos(result.frequency * hashes)], axis=1)
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    grid = np.linspace(0, 1, 400)
    fitted = coefficients[0] + coefficients[1] * np.cos(result.frequency * grid)
    axes.plot(grid, fitted, "--", color=_MARK, linewidth=2, label="fitted cosine")
    axes.legend(loc="lower right", fontsize=8)


def _plot_spectrum(axes: Any, result: DetectionResult) -> None:
    axes.plot(result.frequencies, result.powers, "-", color=_INK, linewidth=0.9)
    label = f"the key's frequency, {result.frequency:g}"
    axes.axvline(result.frequency, color=_MARK, linestyle="--", linewidth=1.2, zorder=0, label=label)
    axes.set(xscale="log", xlabel="angular frequency f", ylabel="power P(f)", ylim=(0, None))
    axes.set_title(f"periodogram, P_snr = {result.p_snr:.1f}", fontsize=10)
    axes.legend(loc="upper left", fontsize=8)


def _plot_chance(axes: Any, result: DetectionResult) -> None:
    unit = result.null_sd or 1.0
    others, this = ("other draws", "these draws") if result.statistic == MEMORY else ("random keys", "this key")
    if result.null_samples is not None:
        samples = (result.null_samples - result.null_mean) / unit
        axes.hist(samples, bins=60, density=True, color=_LIGHT, label=f"{len(samples):,} {others}")
    else:
        _fill_normal(axes, f"{others}, about")
    _mark_observed(axes, (result.observed - result.null_mean) / unit, this)
    axes.set(xlabel="test statistic, in standard deviations", ylabel="density")
    axes.set_title(
        f"p = {_power_of_ten(result.log10_p)}, certainly ≤ {_power_of_ten(result.log10_bound)}", fontsize=10
    )


def _fill_normal(axes: Any, label: str) -> None:
    grid = np.linspace(-4, 4, 200)
    axes.fill_between(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=_LIGHT, label=label)


def _mark_observed(axes: Any, observed: float, label: str) -> None:
    axes.axvline(observed, color=_MARK, linestyle="--", linewidth=2, label=label)
    axes.set_xlim(min(-4.5, observed - 1), max(4.5, observed * 1.08 + 1))
    axes.legend(loc="upper center" if abs(observed) > 6 else "upper left", fontsize=8)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
