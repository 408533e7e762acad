"""The paper's figures from the lines of one or more runs: its case study and what varies ε, c*, τ and the limits.

Every function draws into one PNG and returns its path; where there is nothing to show it writes nothing and returns
None.
"""

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..wording import small_p
from .goals import LARGEST_INNOCENT
from .jobs import CASE_SEED, CASE_TASK, GOLD, WATERMARKED, Student
from .results import (
    LABELS,
    WHERE,
    Record,
    Results,
    Statistic,
    Suspect,
    by_category,
    by_epsilon,
    by_limit,
    by_tau,
    finite,
    load,
    mean_average_precision,
    p_snr,
    values,
    z,
)
from .scoring import SPECTRUM
from .serving import ALL_DRAWN
from .tasks import TASKS

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
_STATISTICS: tuple[Statistic, ...] = (p_snr, z)  # what is drawn side by side
_SURE = 4.753  # z of p = 10⁻⁶
_DOTTED = f"$P_{{snr}}$ = {LARGEST_INNOCENT:g} (left), p = 10⁻⁶ (right)"
_COSTS = {"expected": "expected cost", "bound": "largest cost", "paper_bound": "the paper's largest cost"}
_PAPER_PERFECT_FROM = 0.12  # ε from which on the paper's P_snr ranks NER perfectly


def draw_all(paths: Iterable[str | os.PathLike], folder: str | os.PathLike) -> list[Path]:
    """All figures that there are data for.

    Parameters
    ----------
    paths : iterable of path-like
        Files of JSON lines, one for each profile.
    folder : path-like
        Where the PNG files go.

    Returns
    -------
    list of Path
        What was written.
    """
    results, folder = load(paths), Path(folder)
    drawn = [
        case_study(results, folder / f"case-study-{_as_file_name(profile)}.png", profile)
        for profile in results.profiles
    ]
    drawn += [
        accuracy_against_epsilon(results, folder / "accuracy.png"),
        map_against_epsilon(results, folder / "epsilon.png"),
        category(results, folder / "category.png"),
        tau(results, folder / "tau.png"),
        limits(results, folder / "limits.png"),
    ]
    return [path for path in drawn if path is not None]


def _as_file_name(profile: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in profile).strip("-")


# -- the case study


def case_study(results: Results, path: str | os.PathLike, profile: str | None = None) -> Path | None:
    """Six suspects of the NER victim: their answers over the hash, and the power spectrum of these.

    Parameters
    ----------
    results : Results
    path : path-like
    profile : str, optional
        Whose suspects; by default those of the first profile that has any. A student that starts from another encoder
        may come from another profile, which its title names.
    """
    cases = {name: _cases(results, name) for name in results.profiles}
    profile = next((name for name, found in cases.items() if found), None) if profile is None else profile
    if profile is None or not cases.get(profile):
        return None
    chosen = dict(cases[profile])
    for name, found in cases.items():
        if "f" in found and "f" not in chosen:
            title, record = found["f"]
            chosen["f"] = (f"{title} (profile {name})", record)
    missing = dict.fromkeys("abcde", "not run yet") | {"f": "a student of another encoder was not run"}
    figure = _figure(12, 10.5)
    panels, legend = figure.subfigures(2, 1, height_ratios=(30, 1))
    handles: list[Any] = []
    panels.suptitle(f"{TASKS[CASE_TASK].title}, {profile}", fontsize=12)
    for letter, part in zip("abcdef", panels.subfigures(3, 2, wspace=0.03, hspace=0.03).flat, strict=True):
        if letter in chosen:
            drawn = _plot_case(part, letter, *chosen[letter], results.setting(profile, "frequency"))
            handles = max(handles, drawn, key=len)
        else:
            axes = part.subplots()
            axes.set_axis_off()
            axes.text(0.5, 0.5, f"({letter}) {missing[letter]}", ha="center", va="center", color="0.4")
    legend.legend(handles=handles, loc="center", ncols=3, fontsize=10, markerscale=2, frameon=False)
    return _save(figure, path)


def _cases(results: Results, profile: str) -> dict[str, tuple[str, Record]]:
    """Titles and scores of the panels for which there are curves."""

    def scores(student: Student, part: str) -> Record:
        return (results.record(profile, f"score {student.name}") or {}).get(part) or {}

    soft = Student(CASE_TASK, WATERMARKED, "soft", CASE_SEED)
    found = {
        "a": ("gold labels", scores(Student(CASE_TASK, GOLD, seed=CASE_SEED), "queries")),
        "b": ("soft labels", scores(soft, "queries")),
        "c": ("hard labels", scores(Student(CASE_TASK, WATERMARKED, "hard", CASE_SEED), "queries")),
        "d": ("soft labels, wrong key", scores(soft, "wrong key")),
        "e": ("soft labels, unseen text", scores(soft, "unseen")),
        "f": (
            "soft labels, another encoder",
            scores(Student(CASE_TASK, WATERMARKED, "soft", CASE_SEED, encoder="other"), "queries"),
        ),
    }
    return {letter: entry for letter, entry in found.items() if "curve" in entry[1]}


def _plot_case(part: Any, letter: str, title: str, record: Record, frequency: float | None) -> list[Any]:
    """Draw a panel's two axes; returns what a legend is made of."""
    answers, spectrum = part.subplots(1, 2)
    curve, snr = record["curve"], record["p_snr"]["victim"]
    power = "none" if snr is None else f"{snr:.1f}"
    p = small_p(record["exact"]["log10_p"])
    part.suptitle(f"({letter}) {title}: $P_{{snr}}$ = {power}, p = {p}", fontsize=11)
    dots = {"linestyle": "none", "marker": ".", "rasterized": True}
    size = 2.5 if len(curve["hash"]) > 500 else 4
    handles = answers.plot(
        curve["hash"], curve["victim"], color=_LIGHT, markersize=size + 2, label="the victim's answers", **dots
    )
    handles += answers.plot(
        curve["hash"], curve["suspect"], color=_MARK, markersize=size, label="the suspect's answers", **dots
    )
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


def accuracy_against_epsilon(results: Results, path: str | os.PathLike) -> Path | None:
    """Accuracy of protected answers against ε: measured, foretold and bounded, a panel for each task and profile."""
    places = [place for place in results.places if results.levels(*place)]
    if not places:
        return None
    columns = min(3, len(places))
    figure = _figure(max(8, 4 * columns), 3.6 * math.ceil(len(places) / columns) + 0.7)
    panels = figure.subplots(math.ceil(len(places) / columns), columns, squeeze=False)
    for axes in panels.flat[len(places) :]:
        axes.set_axis_off()
    for axes, (profile, task) in zip(panels.flat, places, strict=False):
        _plot_accuracy(axes, results, profile, task)
    lines, names = panels.flat[0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=min(columns + 1, 4), fontsize=9)
    return _save(figure, path)


def _plot_accuracy(axes: Any, results: Results, profile: str, task: str) -> None:
    record = results.record(profile, f"accuracy {task}")
    assert record is not None  # its levels are drawn
    clean = record["clean"]["accuracy"]
    titles = {"soft": "argmax soft", "hard": "sampling hard", ALL_DRAWN: "sampling hard, all drawn"}
    for labels, title in titles.items():
        levels = [level for level in results.levels(profile, task) if level["labels"] == labels]
        levels.sort(key=lambda level: level["epsilon"])
        at, measured, style = [level["epsilon"] for level in levels], _per_cent(levels, "accuracy"), _OF_LABELS[labels]
        # A mean may lie outside by a rounding error.
        below = [max(100.0 * (level["accuracy"] - level["accuracy_low"]), 0.0) for level in levels]
        above = [max(100.0 * (level["accuracy_high"] - level["accuracy"]), 0.0) for level in levels]
        axes.errorbar(at, measured, [below, above], **style, markersize=4, linewidth=1.2, capsize=2, label=title)
        if labels == ALL_DRAWN:
            continue
        for name, line, width in (("expected", "--", 1.2), ("bound", ":", 1.2), ("paper_bound", "-.", 0.8)):
            # Costs are what theory and counting share: a victim that is too sure shifts all of its curves.
            foretold = [100.0 * (clean - level["clean"] + level[name]) for level in levels]
            axes.plot(at, foretold, line, color=style["color"], linewidth=width, label=f"{_COSTS[name]}, {labels}")
    axes.axhline(100.0 * clean, color=_INK, linewidth=0.6, zorder=0, label="clean")
    axes.set(xlabel="watermark level ε", ylabel="accuracy, %")
    axes.set_title(f"{TASKS[task].title}, {profile}", fontsize=10)


def _per_cent(levels: Sequence[Record], name: str) -> list[float]:
    return [100.0 * level[name] for level in levels]


def map_against_epsilon(results: Results, path: str | os.PathLike) -> Path | None:
    """mAP of P_snr and of the exact test against ε, on queries and on unseen text."""
    places = [place for place in results.places if by_epsilon(results, *place) and _has_negatives(results, *place)]
    if not places:
        return None
    figure = _figure(10, 3.8 * len(places) + 0.4)
    panels = figure.subplots(len(places), 2, squeeze=False, sharey=True)
    for row, (profile, task) in zip(panels, places, strict=True):
        tried = by_epsilon(results, profile, task)
        for axes, where in zip(row, WHERE, strict=True):
            for labels in LABELS:
                down = results.negatives(profile, task, labels)
                _plot_precision(axes, [(at, some) for at, kind, some in tried if kind == labels], down, labels, where)
            paper = {"color": _LIGHT, "linestyle": ":", "zorder": 0, "label": "the paper is perfect from here on"}
            axes.axvline(_PAPER_PERFECT_FROM, **paper)
            axes.set(xlabel="watermark level ε", ylabel="mAP", ylim=(0, 1.08))
            axes.set_xticks(sorted({at for at, _, _ in tried}))
            probed = "the students' queries" if where == "queries" else "unseen text"
            axes.set_title(f"{TASKS[task].title}, {profile}: {probed}", fontsize=10)
    lines, names = panels[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=5, fontsize=9)
    return _save(figure, path)


def _has_negatives(results: Results, profile: str, task: str) -> bool:
    return any(results.negatives(profile, task, labels) for labels in LABELS)


def _plot_precision(
    axes: Any, tried: Sequence[tuple[float, list[Suspect]]], down: list[Suspect], labels: str, where: str
) -> None:
    for statistic, name in ((p_snr, "$P_{snr}$"), (z, "exact test")):
        found = [(at, mean_average_precision(some, down, statistic, where)) for at, some in tried]
        known = [(at, precision[0]) for at, precision in found if precision is not None]
        if known:
            # Of marks on the same spot the larger ones show around the smaller.
            look = {"markersize": 11, "markerfacecolor": "none", "linestyle": "--", "linewidth": 0.9}
            if statistic is z:
                look = {"markersize": 7 if labels == "soft" else 3.5, "linestyle": "-", "linewidth": 1.4}
            axes.plot(*zip(*known, strict=True), **_OF_LABELS[labels], **look, label=f"{name}, {labels}")


# -- classes, τ and limits


def category(results: Results, path: str | os.PathLike) -> Path | None:
    """P_snr and z by target class, a mark for each student."""
    return _dots(results, path, by_category, lambda setting, labels: f"{setting}, {labels}")


def limits(results: Results, path: str | os.PathLike) -> Path | None:
    """P_snr and z of thieves who learn less of the mark, a mark for each student."""
    return _dots(results, path, by_limit, lambda setting, labels: setting)


def _dots(results: Results, path: str | os.PathLike, find: Any, name: Any) -> Path | None:
    tried = [(place, find(results, *place)) for place in results.places]
    tried = [(place, found) for place, found in tried if found]
    if not tried:
        return None
    heights = [0.34 * len(found) + 1.1 for _, found in tried]
    figure = _figure(12, sum(heights) + 0.4)
    panels = figure.subplots(len(tried), 2, squeeze=False, height_ratios=heights)
    for row, ((profile, task), found) in zip(panels, tried, strict=True):
        for axes, statistic in zip(row, _STATISTICS, strict=True):
            for place, (_, _, some) in enumerate(found):
                _plot_dots(axes, place, some, statistic)
            line = {"color": _LIGHT, "linestyle": ":", "zorder": 0}
            axes.axvline(LARGEST_INNOCENT if statistic is p_snr else _SURE, label=_DOTTED, **line)
            axes.set_yticks(range(len(found)), [name(setting, labels) for setting, labels, _ in found])
            axes.set_ylim(len(found) - 0.4, -0.6)
            axes.set_xlabel("$P_{snr}$" if statistic is p_snr else "z of the exact test")
            axes.grid(axis="y", color="0.92", linewidth=0.8, zorder=-1)
            axes.set_axisbelow(True)
            axes.set_title(f"{TASKS[task].title}, {profile}", fontsize=10)
            if statistic is z:
                axes.tick_params(labelleft=False)
    lines, names = panels[0][0].get_legend_handles_labels()
    once = dict(zip(names, lines, strict=True))
    figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=3, fontsize=9)
    return _save(figure, path)


def _plot_dots(axes: Any, place: int, some: list[Suspect], statistic: Statistic) -> None:
    for where, offset in zip(WHERE, (-0.13, 0.13), strict=True):
        found = finite(values(some, statistic, where))
        axes.plot(found, [place + offset] * len(found), linestyle="none", markersize=5, **_OF_PROBES[where])


def tau(results: Results, path: str | os.PathLike) -> Path | None:
    """P_snr and z of soft students against τ, and the victim's accuracy where it was measured."""
    tried = [(place, by_tau(results, *place)) for place in results.places]
    tried = [(place, found) for place, found in tried if found]
    if not tried:
        return None
    costs = {place: (results.record(place[0], f"accuracy {place[1]}") or {}).get("taus") for place, _ in tried}
    columns = 3 if any(costs.values()) else 2
    figure = _figure(12 if columns == 3 else 10, 3.6 * len(tried) + 0.4)
    panels = figure.subplots(len(tried), columns, squeeze=False)
    for row, ((profile, task), found) in zip(panels, tried, strict=True):
        for axes, statistic in zip(row, _STATISTICS, strict=False):
            for where in WHERE:
                _plot_against_tau(axes, found, statistic, where)
            axes.set_ylabel("$P_{snr}$" if statistic is p_snr else "z of the exact test")
            axes.set_ylim(min(0.0, axes.get_ylim()[0]), None)
        levels = costs[profile, task]
        if levels:
            _plot_accuracy_against_tau(row[2], levels)
        elif columns == 3:
            row[2].set_axis_off()
        for axes in filter(lambda axes: axes.axison, row):
            axes.set(xlabel="share of marked tokens τ", xlim=(0, 1.05))
            axes.set_title(f"{TASKS[task].title}, {profile}", fontsize=10)
    lines, names = panels[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=4, fontsize=9)
    return _save(figure, path)


def _plot_against_tau(
    axes: Any, found: Sequence[tuple[float, str, list[Suspect]]], statistic: Statistic, where: str
) -> None:
    means, style = [], _OF_PROBES[where]
    for at, _, some in found:
        single = finite(values(some, statistic, where))
        if single:
            means.append((at, sum(single) / len(single)))
            axes.plot([at] * len(single), single, ".", color=style["color"], markersize=3, alpha=0.6)
    if means:
        line = {"linestyle": "-" if where == "queries" else "--", "linewidth": 1.2, "markersize": 5}
        axes.plot(*zip(*means, strict=True), **line, **style)


def _plot_accuracy_against_tau(axes: Any, levels: Sequence[Record]) -> None:
    for labels in LABELS:
        some = sorted((level for level in levels if level["labels"] == labels), key=lambda level: level["tau"])
        curve = [level["tau"] for level in some], _per_cent(some, "accuracy")
        axes.plot(*curve, **_OF_LABELS[labels], linewidth=1.2, markersize=4, label=f"victim, {labels}")
    axes.set_ylabel("accuracy of the victim, %")
    axes.legend(fontsize=8)


# -- files


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: str | os.PathLike) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
