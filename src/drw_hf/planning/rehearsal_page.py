"""A rehearsal for those who decide: a picture of what attacks cost and what evidence they leave, and a page."""

import base64
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evidence.pages import page_template
from ..evidence.plots import as_svg, new_figure, written
from ..extraction.attacks.base import STAGES
from ..keys.files import write_atomically
from ..wording import one_in, printable
from .rehearsal import (
    CLEARED,
    ESCAPED,
    FAILED,
    FOUND,
    FRAMED,
    STAGE_TITLES,
    Rehearsal,
    RehearsalRow,
    at_most,
    points,
)
from .rehearsal_bench import FORGERY, NOTHING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LITTLE = 1.0  # points: who loses less has lost little
_INK, _DANGER, _LIGHT = "0.15", "#b5232a", "0.6"
# Shapes differ as well as colours (Okabe and Ito's, which the colour-blind can tell apart).
_LOOKS = dict(
    zip(
        [stage for stage in STAGES if stage != FORGERY],
        [("o", "#0072b2"), ("s", "#e69f00"), ("^", "#009e73"), ("D", "#cc79a7"), ("v", "#56b4e9")],
        strict=True,
    )
)
_SCALE_X, _SCALE_Y = 2.0, 6.0  # up to here by points and decades, from here on by factors
_MOST_LABELS = 18
_AROUND = [(1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1)]  # of a dot, where a label may stand
_AWAY = (7, 15, 26, 40, 60, 85)  # points


def plot_rehearsal(rehearsal: Rehearsal, path: str | os.PathLike[str] | None = None) -> "Figure":
    """Draw accuracy lost against evidence left; returns the matplotlib figure and writes it where a path is given.

    A dot per theft: filled where the mark is found, on the log or on unseen text, hollow where the thief escapes.
    """
    figure = new_figure(9.0, 6.0)
    axes = figure.subplots()
    limit = -math.log10(rehearsal.level)
    shown = [row for row in rehearsal.thefts if row.verdict != FAILED]
    places = np.array([(row.lost, -(row.log10_log or 0.0)) for row in shown], dtype=float)
    _scale(axes, places, limit)
    _draw_regions(axes, limit)
    nothing = places[[row.attack == NOTHING for row in shown]][0]
    for coordinate, line in zip(nothing, (axes.axvline, axes.axhline), strict=True):
        line(coordinate, color=_LIGHT, linewidth=0.8, linestyle=":", zorder=1)
    for stage, (shape, colour) in _LOOKS.items():
        for verdict in (FOUND, ESCAPED):
            of_stage = [one.stage == stage and one.verdict == verdict for one in shown]
            faces = colour if verdict == FOUND else "white"
            axes.plot(
                *places[of_stage].T, shape, color=colour, markerfacecolor=faces, markeredgewidth=1.6, markersize=7,
                alpha=0.9, zorder=3,
            )  # fmt: skip
    _draw_legend(figure, {row.stage for row in shown}, {row.verdict for row in shown})
    axes.set_title(_headline(rehearsal), fontsize=12, loc="left", parse_math=False)
    _write_labels(figure, axes, rehearsal, shown, places)
    return written(figure, path)


def _headline(rehearsal: Rehearsal) -> str:
    played = [row for row in rehearsal.thefts if row.verdict != FAILED]
    found = sum(row.verdict == FOUND for row in played)
    first = f"Of {len(played)} thefts, {found} {'is' if found == 1 else 'are'} found out."
    cheapest = rehearsal.cheapest_escape
    if cheapest is None:
        return f"{first}\nNone gets rid of the evidence in the log."
    if cheapest.attack == NOTHING:
        return f"{first}\nAlready without any attack, the log proves nothing."
    labels = f" and right labels of {cheapest.gold:.0%} of its texts" if cheapest.gold else ""
    return f"{first}\nThe cheapest way out of the log costs the thief {rehearsal.price(cheapest)}{labels}."


def _scale(axes: Any, places: np.ndarray, limit: float) -> None:
    """Axes that show single points and decades where it matters, and hundreds as well."""
    (left, _), (right, top) = places.min(axis=0), places.max(axis=0)
    axes.set_xscale("symlog", linthresh=_SCALE_X, linscale=1.6)
    axes.set_yscale("symlog", linthresh=max(_SCALE_Y, 2.0 * limit), linscale=1.6)
    axes.set_xlim(min(-0.6, 1.25 * left), max(3.2, 1.6 * right))
    axes.set_ylim(-0.5, max(4.0 * limit, 2.2 * top))
    large = [unit * 10.0**power for power in range(1, 9) for unit in (1, 2, 5)]
    few = [1.0, 2.0, 5.0, *large]
    for axis, ticks in (
        (axes.xaxis, [*(-tick for tick in few), 0.0, *few]),
        (axes.yaxis, [0, limit, 2 * limit, *large]),
    ):
        low, high = axis.get_view_interval()
        axis.set_ticks([tick for tick in ticks if low <= tick <= high])
        axis.set_ticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: at_most(-value))
    axes.set_xlabel("what the attack costs the thief: points lost, against a thief without any attack")
    axes.set_ylabel("evidence left in the owner's log: p-value at most (higher up: more evidence)")


def _draw_regions(axes: Any, limit: float) -> None:
    """The level as a line, and below it where thieves would like to be."""
    (left, right), (bottom, _) = axes.get_xlim(), axes.get_ylim()
    axes.fill_between([left, right], bottom, limit, color="0.94", zorder=0)
    axes.fill_between([left, LITTLE], bottom, limit, facecolor="#f6d5d2", edgecolor="#e0aaa6", hatch="//", zorder=0)
    axes.axhline(limit, color=_DANGER, linewidth=1.5, zorder=2)
    words = {"fontsize": 8.5, "color": _DANGER, "zorder": 2, "va": "top"}
    inside = {"textcoords": "offset points", **words}
    axes.annotate("escaped at little cost", (left, limit), (5, -4), ha="left", **inside, weight="bold")
    axes.annotate("escaped at a price", (right, limit), (-5, -4), ha="right", **inside)
    axes.annotate("found in the log ↑", (right, limit), (-5, 12), ha="right", **inside)


def _draw_legend(figure: Any, stages: set[str], verdicts: set[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=shape, color=colour, linestyle="", markersize=7, label=STAGE_TITLES[stage])
        for stage, (shape, colour) in _LOOKS.items()
        if stage in stages
    ]
    if ESCAPED in verdicts:
        hollow = "Hollow: found neither by the log nor by unseen text"
        handles.append(
            Line2D([], [], marker="o", color=_INK, markerfacecolor="white", markeredgewidth=1.6, linestyle="",
                   markersize=7, label=hollow)
        )  # fmt: skip
    figure.legend(handles=handles, fontsize=8.5, loc="outside lower center", ncols=3, frameon=False)


def _most_telling(rehearsal: Rehearsal, shown: Sequence[RehearsalRow]) -> Iterator[RehearsalRow]:
    """Whose names are worth reading, the most telling first; each may come several times."""
    yield from [row for row in shown if row.attack == NOTHING]
    yield from rehearsal.escapes[:5]
    yield from [row for row in shown if row.verdict == ESCAPED][:3]
    by_evidence = sorted(shown, key=lambda row: -(row.log10_log or 0.0))
    yield from [row for row in by_evidence if (row.lost or 0.0) < LITTLE][:4]
    yield from by_evidence[:4]
    yield from sorted(shown, key=lambda row: row.lost or 0.0)[:1]
    yield from sorted(shown, key=lambda row: -(row.lost or 0.0))[:2]
    for stage in _LOOKS:
        yield from [row for row in by_evidence if row.stage == stage][:2]
    yield from by_evidence


def _write_labels(
    figure: Any, axes: Any, rehearsal: Rehearsal, shown: Sequence[RehearsalRow], places: np.ndarray
) -> None:
    """Names beside dots, wherever one can be read: over no other name or dot, and within the axes."""
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # the layout has to be final, for names to be measured
    renderer, unit = figure.canvas.get_renderer(), figure.dpi / 72.0
    frame = axes.get_window_extent(renderer)
    _, level = axes.transData.transform((0.0, -math.log10(rehearsal.level)))
    taken = [text.get_window_extent(renderer) for text in axes.texts]
    taken.append(Bbox.from_extents(frame.x0, level - unit, frame.x1, level + unit))
    room = _Room(renderer, unit, frame, axes.transData.transform(places), taken)
    cheapest, number_of = rehearsal.cheapest_escape, {row.attack: number for number, row in enumerate(shown)}
    left = _MOST_LABELS
    for name in dict.fromkeys(row.attack for row in _most_telling(rehearsal, shown)):
        is_cheapest = cheapest is not None and cheapest.attack == name
        must = is_cheapest or name == NOTHING
        text = axes.annotate(
            "no attack" if name == NOTHING else printable(name)[:30],
            places[number_of[name]],
            (0, 0),
            textcoords="offset points",
            fontsize=8.5,
            parse_math=False,
            zorder=4,
            color=_DANGER if is_cheapest else _INK,
            weight="bold" if must else "normal",
            arrowprops={"arrowstyle": "-", "color": _LIGHT, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 3},
        )
        if room.takes(text, number_of[name]) or (must and room.takes(text, number_of[name], past_others=True)):
            left -= 1
        else:
            text.remove()
        if not left:
            break


@dataclass(frozen=True)
class _Room:
    """What room there is for names, in pixels."""

    renderer: Any
    unit: float
    frame: Any
    dots: np.ndarray
    taken: list[Any]

    def takes(self, text: Any, number: int, past_others: bool = False) -> bool:
        """Put the name of a dot where it can be read, with a line to the dot where it is not beside it."""
        from matplotlib.text import Text
        from matplotlib.transforms import Bbox

        others = np.delete(self.dots, number, axis=0)
        for away, (right, up) in ((away, side) for away in _AWAY for side in _AROUND):
            text.set_ha({1: "left", 0: "center", -1: "right"}[right])
            text.set_va({1: "bottom", 0: "center", -1: "top"}[up])
            text.set_position((right * away, up * away * (1.0 if right == 0 else 0.7)))
            text.update_positions(self.renderer)
            box = Text.get_window_extent(text, self.renderer).padded(self.unit)  # without the line
            if not self._is_free(box):
                continue
            end = text.get_transform().transform(text.get_position())
            line = self.dots[number] + np.linspace(0.0, 1.0, 12)[:, None] * (end - self.dots[number])
            line = line[:0] if away == _AWAY[0] else line
            if past_others or not self._is_crossed(line, others):
                text.arrow_patch.set_visible(bool(len(line)))
                self.taken.extend([box, *(Bbox.from_bounds(x, y, 0.1, 0.1).padded(self.unit) for x, y in line)])
                return True
        return False

    def _is_crossed(self, line: np.ndarray, others: np.ndarray) -> bool:
        """Whether a line, as points, comes near another dot or over a name: nobody could tell where it leads."""
        near = np.linalg.norm(line[:, None] - others, axis=2) < 6 * self.unit
        return bool(near.any()) or any(_covers(box, line) for box in self.taken)

    def _is_free(self, box: Any) -> bool:
        frame = self.frame
        inside = frame.x0 < box.x0 and box.x1 < frame.x1 and frame.y0 < box.y0 and box.y1 < frame.y1
        free = inside and not any(box.overlaps(other) for other in self.taken)
        return free and not _covers(box.padded(3 * self.unit), self.dots)


def _covers(box: Any, dots: np.ndarray) -> bool:
    """Whether a box lies over a dot."""
    x, y = dots.T
    return bool(((box.x0 < x) & (x < box.x1) & (box.y0 < y) & (y < box.y1)).any())


# -- the page


def write_page(rehearsal: Rehearsal, path: str | os.PathLike[str]) -> Path:
    """Write the page; returns where it is. See :meth:`Rehearsal.page`."""
    figure = plot_rehearsal(rehearsal)
    picture = base64.b64encode(as_svg(figure)).decode()
    page = page_template("rehearsal.html", __package__).render(
        rehearsal=rehearsal,
        picture=picture,
        conclusion=rehearsal.conclusion(),
        cheapest=rehearsal.cheapest_escape,
        failed=[row for row in rehearsal.rows if row.verdict == FAILED],
        by_stage={
            title: rows
            for stage, title in STAGE_TITLES.items()
            if stage != FORGERY and (rows := _by_cost(row for row in rehearsal.thefts if row.stage == stage))
        },
        forgeries=[row for row in rehearsal.forgeries if row.verdict != FAILED],
        words={FOUND: "found", ESCAPED: "escaped", FRAMED: "framed", CLEARED: "not accused"},
        level=one_in(math.log10(rehearsal.level)),
        little=LITTLE,
        points=points,
        at_most=at_most,
        nothing=NOTHING,
        failed_verdict=FAILED,
        escaped=ESCAPED,
    )
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, page.encode())
    return target


def _by_cost(rows: Any) -> list[RehearsalRow]:
    """The thefts that did not fail, the weakest evidence first; without any attack before all."""
    played = [row for row in rows if row.verdict != FAILED]
    return sorted(played, key=lambda row: (row.attack != NOTHING, -row.log10_log, row.lost))
