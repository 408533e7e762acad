"""The paper's figures from the lines of one or more runs: its case study and what varies ε, c*, τ and the limits.

Every function draws into one PNG and returns its path, or None where there is nothing to show.
"""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..runs.lines import Record
from ..wording import small_p
from .goals import LARGEST_INNOCENT
from .jobs import CASE_SEED, CASE_TASK, GOLD, LABELS, WATERMARKED, Student
from .results import (
    P_SNR,
    WHERE,
    Find,
    Place,
    Results,
    Setting,
    Z,
    by_category,
    by_epsilon,
    by_limit,
    by_tau,
    finite,
    load,
    mean_average_precision,
)
from .scoring import SPECTRUM
from .serving import ALL_DRAWN
from .tasks import TASKS

_SOFT = Student(CASE_TASK, WATERMARKED, seed=CASE_SEED)
_PANELS = {  # of the case study: titles, students, and what they were probed with
    "a": ("gold labels", Student(CASE_TASK, GOLD, seed=CASE_SEED), "queries"),
    "b": ("soft labels", _SOFT, "queries"),
    "c": ("hard labels", dataclasses.replace(_SOFT, labels="hard"), "queries"),
    "d": ("soft labels, wrong key", _SOFT, "wrong key"),
    "e": ("soft labels, unseen text", _SOFT, "unseen"),
    "f": ("soft labels, another encoder", dataclasses.replace(_SOFT, encoder="other"), "queries"),
}

# Readable in black and white: shapes and line styles differ, not colours alone.
_INK, _MARK, _LIGHT = "0.15", "#b5232a", "0.65"
_OF_LABELS = {
    "soft": {"color": _INK, "marker": "o"},
    "hard": {"color": _MARK, "marker": "s"},
    ALL_DRAWN: {"color": _LIGHT, "marker": "^"},
}
_OF_PROBES = {
    "queries": {"color": _INK, "marker": "o", "label": "its queries"},
    "unseen": {"color": _MARK, "marker": "s", "markerfacecolor": "white", "label": "unseen text"},
}
_SHOWN = {P_SNR: "$P_{snr}$", Z: "z of the exact test"}  # what is drawn side by side
_LIMITS = {P_SNR: LARGEST_INNOCENT, Z: 4.753}  # z of p = 1e-6
_LIMITS_SAID = f"$P_{{snr}}$ = {LARGEST_INNOCENT:g} (left), p = 1e-6 (right)"
_DOTTED = {"color": _LIGHT, "linestyle": ":", "zorder": 0}
_COSTS = {"expected": "expected cost", "bound": "largest cost", "paper_bound": "the paper's largest cost"}
_PAPER_PERFECT_FROM = 0.12  # ε from which on the paper's P_snr ranks NER perfectly


def draw_all(paths: Iterable[str | os.PathLike], folder: str | os.PathLike) -> list[Path]:
    """Draw all figures that there are data for, from files of JSON lines; returns what was written."""
    results, folder = load(paths), Path(folder)
    drawn = [
        case_study(results, folder / f"case-study-{re.sub(r'[^-_0-9A-Za-z]', '-', profile).strip('-')}.png", profile)
        for profile in results.profiles
    ]
    drawn += [
        _accuracy_against_epsilon(results, folder / "accuracy.png"),
        _map_against_epsilon(results, folder / "epsilon.png"),
        _scores_by_setting(results, folder / "category.png", by_category, "{setting}, {labels}"),
        _scores_against_tau(results, folder / "tau.png"),
        _scores_by_setting(results, folder / "limits.png", by_limit, "{setting}"),
    ]
    return [path for path in drawn if path is not None]


# -- the case study


def case_study(results: Results, path: Path, profile: str | None = None) -> Path | None:
    """Six suspects of the NER victim: their answers over the hash, and the power spectrum of these.

    They are those of a profile, by default of the first that has any. A student that starts from another encoder may
    come from another profile, which its title names.
    """
    cases = {name: found for name in results.profiles if (found := _cases(results, name))}
    profile = next(iter(cases), "") if profile is None else profile
    if profile not in cases:
        return None
    chosen = dict(cases[profile])
    for name, found in cases.items():
        if "f" in found:
            title, record = found["f"]
            chosen.setdefault("f", (f"{title} (profile {name})", record))
    frequency = Place(results, profile, CASE_TASK).mark_setting("frequency")
    figure = _figure(12, 10.5)
    panels, legend = figure.subfigures(2, 1, height_ratios=(30, 1))
    handles: list[Any] = []
    panels.suptitle(f"{TASKS[CASE_TASK].title}, {profile}", fontsize=12)
    for letter, part in zip(_PANELS, panels.subfigures(3, 2, wspace=0.03, hspace=0.03).flat, strict=True):
        if letter in chosen:
            handles = max(handles, _plot_case(part, letter, *chosen[letter], frequency), key=len)
        else:
            axes = part.subplots()
            axes.set_axis_off()
            missing = "a student of another encoder was not run" if letter == "f" else "not run yet"
            axes.text(0.5, 0.5, f"({letter}) {missing}", ha="center", va="center", color="0.4")
    legend.legend(handles=handles, loc="center", ncols=3, fontsize=10, markerscale=2, frameon=False)
    return _save(figure, path)


def _cases(results: Results, profile: str) -> dict[str, tuple[str, Record]]:
    """Titles and scores of the panels for which there are curves."""
    found = {
        letter: (title, results.record(profile, f"score {student.name}").get(part, {}))
        for letter, (title, student, part) in _PANELS.items()
    }
    return {letter: entry for letter, entry in found.items() if "curve" in entry[1]}


def _plot_case(part: Any, letter: str, title: str, record: Record, frequency: float | None) -> list[Any]:
    """Draw a panel's two axes; returns what a legend is made of."""
    answers, spectrum = part.subplots(1, 2)
    curve, snr = record["curve"], record["p_snr"]["victim"]
    power = "none" if snr is None else f"{snr:.1f}"
    p = small_p(record["exact"]["log10_p"])
    part.suptitle(f"({letter}) {title}: $P_{{snr}}$ = {power}, p = {p}", fontsize=11)
    size, handles = 2.5 if len(curve["hash"]) > 500 else 4, []
    for who, color, markersize in (("victim", _LIGHT, size + 2), ("suspect", _MARK, size)):
        dots = {"color": color, "markersize": markersize, "rasterized": True, "label": f"the {who}'s answers"}
        handles += answers.plot(curve["hash"], curve[who], ".", **dots)
    answers.set(xlabel="hash g(x)", ylabel=f"probability of {TASKS[CASE_TASK].target}", xlim=(0, 1))
    answers.set_ylim(-0.03, 1.03)
    spectrum.plot(SPECTRUM, curve["power"], "-", color=_INK, linewidth=0.9)
    if frequency is not None:
        line = {"color": _MARK, "linestyle": "--", "linewidth": 1.2, "zorder": 0}
        handles.append(spectrum.axvline(frequency, label=f"the key's frequency, {frequency:g}", **line))
    top = max(*curve["power"], 1e-6)
    # The deep dips of a spectrum say nothing.
    spectrum.set(xlabel="angular frequency f", ylabel="power P(f)", yscale="log", ylim=(top / 3000, top * 3))
    spectrum.set_xlim(0, SPECTRUM[-1])
    return handles


# -- the watermark level


def _accuracy_against_epsilon(results: Results, path: Path) -> Path | None:
    """Accuracy of protected answers against ε: measured, expected and bounded, a panel for each task and profile."""
    places = [place for place in results.places if place.levels]
    if not places:
        return None
    columns = min(3, len(places))
    rows = math.ceil(len(places) / columns)
    figure = _figure(max(8, 4 * columns), 3.6 * rows + 0.7)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, place in itertools.zip_longest(panels.flat, places):
        if place is None:
            axes.set_axis_off()
        else:
            _plot_accuracy(axes, place)
            _describe(axes, place, xlabel="watermark level ε", ylabel="accuracy, %")
    return _save(figure, path, panels[0][0], ncols=min(columns + 1, 4))


def _plot_accuracy(axes: Any, place: Place) -> None:
    clean = 100.0 * place.line("accuracy")["clean"]["accuracy"]
    titles = {"soft": "argmax soft", "hard": "sampling hard", ALL_DRAWN: "sampling hard, all drawn"}
    for labels, title in titles.items():
        at, levels = _course(place.levels, labels, "epsilon")
        mean, low, high = (levels(name) for name in ("accuracy", "accuracy_low", "accuracy_high"))
        errors = [(mean - low).clip(0.0), (high - mean).clip(0.0)]  # a mean may lie outside by a rounding error
        style = _OF_LABELS[labels]
        axes.errorbar(at, mean, errors, **style, markersize=4, linewidth=1.2, capsize=2, label=title)
        if labels == ALL_DRAWN:
            continue
        for name, line, width in (("expected", "--", 1.2), ("bound", ":", 1.2), ("paper_bound", "-.", 0.8)):
            # Costs are what theory and counting share: a victim that is too sure shifts all of its curves.
            expected = clean - levels("clean") + levels(name)
            axes.plot(at, expected, line, color=style["color"], linewidth=width, label=f"{_COSTS[name]}, {labels}")
    axes.axhline(clean, color=_INK, linewidth=0.6, zorder=0, label="clean")


def _course(levels: Sequence[Record], labels: str, varied: str) -> tuple[list[float], Callable[[str], np.ndarray]]:
    """What was varied, in order, and a function from a figure's name to what it was there, in per cent."""
    some = sorted((level for level in levels if level["labels"] == labels), key=lambda level: level[varied])
    return [level[varied] for level in some], lambda name: 100.0 * np.array([level[name] for level in some])


def _map_against_epsilon(results: Results, path: Path) -> Path | None:
    """mAP of P_snr and of the exact test against ε, on queries and on unseen text."""
    found = {place: tried for place, tried in _tried(results, by_epsilon).items() if len(place.negatives("hard"))}
    if not found:
        return None
    # Of marks on the same spot the larger ones show around the smaller.
    large: Record = {"markersize": 11, "markerfacecolor": "none", "linestyle": "--", "linewidth": 0.9}
    drawn: list[tuple[str, str, str, Record]] = []
    for labels, size in (("soft", 7), ("hard", 3.5)):
        small: Record = {"markersize": size, "linestyle": "-", "linewidth": 1.4}
        drawn += [(labels, P_SNR, f"$P_{{snr}}$, {labels}", large), (labels, Z, f"exact test, {labels}", small)]
    figure = _figure(10, 3.8 * len(found) + 0.4)
    panels = figure.subplots(len(found), 2, squeeze=False, sharey=True)
    for row, (place, tried) in zip(panels, found.items(), strict=True):
        for axes, where in zip(row, WHERE, strict=True):
            for labels, statistic, name, look in drawn:
                down, column = place.negatives(labels), f"{statistic}, {where}"
                ranked = [
                    (at, mean_average_precision(some, down, column)) for at, kind, some in tried if kind == labels
                ]
                known = [(at, precision[0]) for at, precision in ranked if precision]
                if known:
                    axes.plot(*zip(*known, strict=True), **_OF_LABELS[labels], **look, label=name)
            axes.axvline(_PAPER_PERFECT_FROM, **_DOTTED, label="the paper is perfect from here on")
            axes.set_xticks(sorted({at for at, _, _ in tried}))
            probed = "the students' queries" if where == "queries" else "unseen text"
            _describe(axes, place, f": {probed}", xlabel="watermark level ε", ylabel="mAP", ylim=(0, 1.08))
    return _save(figure, path, panels[0][0], ncols=5)


# -- classes, τ and limits


def _scores_by_setting(results: Results, path: Path, find: Find, name: str) -> Path | None:
    """P_snr and z of every setting, a mark for each student."""
    found = _tried(results, find)
    if not found:
        return None
    heights, offsets = [0.34 * len(tried) + 1.1 for tried in found.values()], {"queries": -0.13, "unseen": 0.13}
    figure = _figure(12, sum(heights) + 0.4)
    panels = figure.subplots(len(found), 2, squeeze=False, height_ratios=heights)
    for row, (place, tried) in zip(panels, found.items(), strict=True):
        names = [name.format(setting=setting, labels=labels) for setting, labels, _ in tried]
        for axes, (statistic, title) in zip(row, _SHOWN.items(), strict=True):
            for (height, (_, _, some)), (where, offset) in itertools.product(enumerate(tried), offsets.items()):
                known = finite(some[f"{statistic}, {where}"])
                axes.plot(known, [height + offset] * len(known), **_OF_PROBES[where], linestyle="none", markersize=5)
            axes.axvline(_LIMITS[statistic], **_DOTTED, label=_LIMITS_SAID)
            axes.set_yticks(range(len(names)), names)
            axes.grid(axis="y", color="0.92", linewidth=0.8, zorder=-1)
            axes.set_axisbelow(True)
            _describe(axes, place, xlabel=title, ylim=(len(names) - 0.4, -0.6))
        row[1].tick_params(labelleft=False)
    return _save(figure, path, panels[0][0], ncols=3)


def _scores_against_tau(results: Results, path: Path) -> Path | None:
    """P_snr and z of soft students against τ, and the victim's accuracy where it was measured."""
    found = _tried(results, by_tau)
    if not found:
        return None
    costs = {place: place.line("accuracy").get("taus", []) for place in found}
    columns = 3 if any(costs.values()) else 2
    figure = _figure(12 if columns == 3 else 10, 3.6 * len(found) + 0.4)
    panels = figure.subplots(len(found), columns, squeeze=False)
    shared: Record = {"xlabel": "share of marked tokens τ", "xlim": (0, 1.05)}
    for row, (place, tried) in zip(panels, found.items(), strict=True):
        for axes, (statistic, title) in zip(row, _SHOWN.items(), strict=False):
            for where in WHERE:
                _plot_against_tau(axes, tried, f"{statistic}, {where}", where)
            _describe(axes, place, **shared, ylabel=title, ylim=(min(0.0, axes.get_ylim()[0]), None))
        if costs[place]:
            for labels in LABELS:
                at, course = _course(costs[place], labels, "tau")
                look = {**_OF_LABELS[labels], "linewidth": 1.2, "markersize": 4, "label": f"victim, {labels}"}
                row[2].plot(at, course("accuracy"), **look)
            row[2].legend(fontsize=8)
            _describe(row[2], place, **shared, ylabel="accuracy of the victim, %")
        elif columns == 3:
            row[2].set_axis_off()
    return _save(figure, path, panels[0][0], ncols=4)


def _plot_against_tau(axes: Any, tried: Sequence[Setting], column: str, where: str) -> None:
    means, style = [], _OF_PROBES[where]
    for at, _, some in tried:
        single = finite(some[column])
        if len(single):
            means.append((at, single.mean()))
            axes.plot([at] * len(single), single, ".", color=style["color"], markersize=3, alpha=0.6)
    if means:
        line = {"linestyle": "-" if where == "queries" else "--", "linewidth": 1.2, "markersize": 5}
        axes.plot(*zip(*means, strict=True), **line, **style)


# -- what figures share


def _tried(results: Results, find: Find) -> dict[Place, list[Setting]]:
    """What was varied, where anything was."""
    return {place: tried for place in results.places if (tried := find(place))}


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _describe(axes: Any, place: Place, more: str = "", **described: Any) -> None:
    """Axes with a title that names profile and task."""
    axes.set(**described)
    axes.set_title(place.title + more, fontsize=10)


def _save(figure: Any, path: Path, legend_of: Any = None, ncols: int = 1) -> Path:
    """Write a figure, under it the legend of some axes, every name once."""
    if legend_of is not None:
        lines, names = legend_of.get_legend_handles_labels()
        once = dict(zip(names, lines, strict=True))
        figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=ncols, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
