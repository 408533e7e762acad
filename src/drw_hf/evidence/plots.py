"""Figures: of a detection (answers over the hash, periodogram, what chance gives), and of a search for leakers."""

import io
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..detection.result import DetectionResult
from ..detection.statistics.memory import STATISTIC as MEMORY
from ..detection.statistics.spectra import MOST_PAIRS
from ..tracing.identification import Identification
from ..wording import printable, small_p

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Readable in black and white: shapes and line styles differ, not colours alone.
_INK, _MARK, _LIGHT = "0.15", "#b5232a", "0.65"
_SHOWN_SHARE = 0.9  # of the amplitudes; the others lie outside of the panel
_DRAWN_AT_MOST = 3_000  # users in a figure; the strongest are among them, of the others a sample


def plot_result(result: DetectionResult, path: str | os.PathLike | None = None) -> "Figure":
    """Draw a result; returns the matplotlib figure and writes it where a path is given."""
    figure = new_figure(12, 3.8)
    answers, spectrum, chance = figure.subplots(1, 3)
    _plot_answers(answers, result)
    _plot_spectrum(spectrum, result)
    _plot_chance(chance, result)
    name = _shortened(result.suspect, 80) or "suspect"
    figure.suptitle(f"{name}: {result.verdict}", fontsize=12, parse_math=False)
    return written(figure, path)


def draw_panels(result: DetectionResult) -> dict[str, bytes]:
    """The panels of a result one by one, as SVG without a word from outside: a page names suspect and label itself."""
    unnamed = replace(result, target_label="the target class") if result.target_label else result
    return {
        "answers": _draw(lambda axes: _plot_answers(axes, unnamed)),
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
    """One panel as SVG."""
    figure = new_figure(5.8, 2.9)
    axes = figure.subplots()
    plot(axes)
    axes.set_title("")  # a caption says it
    return as_svg(figure)


def _plot_answers(axes: Any, result: DetectionResult) -> None:
    hashes, values = np.array(result.hash_values), np.array(result.target_values)
    if result.target_label:
        point = "a probe"
        axes.set(xlabel="hash g(x) of the token", xlim=(0, 1))
        axes.set_ylabel(f"probability of {_shortened(result.target_label, 40)}", parse_math=False)
        axes.set_title("answers of the selected probes", fontsize=10)
    else:
        point = "a word and a class"
        axes.set(xlabel="hash g(word, class)", xlim=(0, 1), ylabel="amplitude of a word and a class")
        largest = f"the {MOST_PAIRS:,} largest " if len(values) == MOST_PAIRS else ""
        axes.set_title(f"{largest}amplitudes, every class", fontsize=10)
    if not len(hashes):
        return
    axes.plot(hashes, values, ".", color=_LIGHT, markersize=3, label=point, rasterized=True)
    # The mean per stretch of the hash shows what single answers hide.
    counts, edges = np.histogram(hashes, bins=40, range=(0, 1))
    sums, _ = np.histogram(hashes, bins=edges, weights=values)
    there = counts > 0
    middles, means = ((edges[:-1] + edges[1:]) / 2)[there], sums[there] / counts[there]
    axes.plot(middles, means, "o-", color=_INK, markersize=3, linewidth=0.8, label="mean")
    design = np.stack([np.ones_like(hashes), np.cos(result.frequency * hashes)], axis=1)
    coefficients = np.linalg.lstsq(design, values, rcond=None)[0]
    grid = np.linspace(0, 1, 400)
    fitted = coefficients[0] + coefficients[1] * np.cos(result.frequency * grid)
    axes.plot(grid, fitted, "--", color=_MARK, linewidth=2, label="fitted cosine")
    if not result.target_label:  # amplitudes have long tails, in which the cosine would not be seen
        reach = max(float(np.quantile(np.abs(values), _SHOWN_SHARE)), 2.0 * float(np.abs(fitted).max()))
        axes.set_ylim(-reach, reach)
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
    controls = [one["z_score"] for one in result.controls or () if one["z_score"] is not None]
    if controls:
        label = "innocent models, by their z"
        axes.plot(controls, [0.0] * len(controls), "^", color=_INK, markersize=6, clip_on=False, label=label)
    _mark_observed(axes, (result.observed - result.null_mean) / unit, this)
    axes.set(xlabel="test statistic, in standard deviations", ylabel="density")
    title = f"p = {small_p(result.log10_p)}, certainly ≤ {small_p(result.log10_bound, up=True)}"
    axes.set_title(title, fontsize=10)


def _fill_normal(axes: Any, label: str) -> None:
    grid = np.linspace(-4, 4, 200)
    axes.fill_between(grid, np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi), color=_LIGHT, label=label)


def _mark_observed(axes: Any, observed: float, label: str) -> None:
    axes.axvline(observed, color=_MARK, linestyle="--", linewidth=2, label=label)
    axes.set_xlim(min(-4.5, observed - 1), max(4.5, observed * 1.08 + 1))
    axes.legend(loc="upper center" if abs(observed) > 6 else "upper left", fontsize=8)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def plot_identification(result: Identification, path: str | os.PathLike | None = None) -> "Figure":
    """Draw the p-values of all users, sorted, and what it takes to be named."""
    result.p_values()  # says so where they are missing
    assert result.log10_p_values is not None
    heights = np.sort(-result.log10_p_values)[::-1]
    ranks = np.arange(1, len(heights) + 1)
    drawn = np.unique(np.geomspace(1, len(heights), _DRAWN_AT_MOST).astype(np.int64)) - 1
    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    label = f"the {result.n_users:,} users"
    axes.plot(ranks[drawn], heights[drawn], ".", color=_INK, markersize=4, label=label, rasterized=True)
    expected = -np.log10((ranks[drawn] - 0.5) / len(heights))
    axes.plot(ranks[drawn], expected, "-", color=_LIGHT, linewidth=1.5, zorder=0, label="what chance gives")
    threshold, needed = -result.log10_threshold, f"needed to be named, level {small_p(math.log10(result.level))}"
    axes.axhline(threshold, color=_INK, linestyle="--", linewidth=1, label=needed)
    leakers = [-finding.log10_p for finding in result.leakers]
    if leakers:
        places = np.arange(1, len(leakers) + 1)
        axes.plot(places, leakers, "D", color=_MARK, markersize=7, label="named")
        for place, height, finding in list(zip(places, leakers, result.leakers, strict=True))[:5]:
            name = printable(_shortened(finding.user, 24))
            axes.annotate(name, (place, height), (8, -3), textcoords="offset points", fontsize=9, parse_math=False)
    axes.set(xscale="log", xlabel="users, the strongest first", ylabel="−log₁₀ p of the user, not corrected")
    axes.set_xlim(0.7, len(heights) * 1.5)
    highest = max(float(heights[0]), threshold)
    if highest > 3.0 * threshold:  # up to the threshold as it is, beyond by powers of ten, else all but one lie flat
        axes.set_yscale("symlog", linthresh=threshold, linscale=2.0)
        ticks = [*np.arange(0.0, threshold, 2.0), *(10.0 ** np.arange(math.ceil(math.log10(threshold)), 7.0))]
        axes.set_yticks([tick for tick in ticks if tick <= 2.0 * highest])
        axes.yaxis.set_major_formatter("{x:g}")
    axes.set_ylim(0, (2.0 if axes.get_yscale() == "symlog" else 1.1) * highest)
    axes.legend(loc="upper right", fontsize=8)
    axes.set_title(f"{result.suspect or 'suspect'}: {result.verdict}"[:80], fontsize=11, parse_math=False)
    return written(figure, path)


def as_svg(figure: "Figure") -> bytes:
    """A figure as SVG without a font from outside, the same bytes for the same figure."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "drw_hf", "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=200, metadata={"Date": None})
    return buffer.getvalue()


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def written(figure: "Figure", path: str | os.PathLike | None) -> "Figure":
    """The figure, as a file as well where a path is given."""
    if path is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    return figure
