"""What ``drw-hf plan`` expects of students, from the lines of the reproduction.

Every student that did nothing but learn counts: the whole queries were asked, the answers taken as they were served. A
setting is a task in a profile. What is expected is the median over settings of the mean over students, so that a task
with many seeds counts once; beside it stand the least and the largest of all students. ε was varied in one setting,
and other ε are expected in proportion to it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from ..runs.lines import Record, read_lines
from .jobs import WATERMARKED
from .margins_report import NOTHING_DONE
from .tasks import PAPER_EPSILON

ALL_MARKED = "paper-text"  # the mode that marks every selected answer
TAU = 0.5  # of all these students
_OTHERWISE = ("tau", "target", "rule", "encoder")


@dataclass(frozen=True)
class Fitted:
    """What is expected at each ε, and the least and the largest of the students at the usual one, relative to it."""

    by_epsilon: dict[float, float]
    spread: tuple[float, float]


def student_lines(paths: Iterable[Path]) -> list[Record]:
    """The score lines of students that did nothing but learn."""
    found = []
    for path in paths:
        for line in read_lines(path):
            student = line.get("student", {})
            if line.get("kind") != "score" or student.get("teacher") != WATERMARKED:
                continue
            whole = (student["share"], student["queries"], student["prepended"]) == (1.0, 1.0, False)
            if whole and not any(student.get(name) for name in _OTHERWISE):
                found.append({**line, "setting": (path.stem, line["task"]), "epsilon": _epsilon(student)})
    return found


def fit_exact(lines: Sequence[Record], where: str, labels: str, course_of: str | None = None) -> Fitted:
    """φ/σ, as the planner's formula needs it to give the students' z; ``course_of``: the labels whose ε are followed.

    On unseen text the course of hard labels is lost in noise.
    """
    found = {}
    for kind in {labels, course_of or labels}:
        some = [line for line in _of(lines, kind, "default") if line[where].get("power")]
        found[kind] = [(line, _ratio(line[where])) for line in some]
    return _fitted(found[labels], found[course_of or labels])


def fit_whole(lines: Sequence[Record], where: str, labels: str) -> tuple[float, float, float]:
    """γ where every selected answer was marked: of the least, the middle and the largest student."""
    exact = [line[where]["exact"] for line in _of(lines, labels, ALL_MARKED)]
    effects = sorted(math.sqrt(math.expm1(found["z"] ** 2 / found["n_effective"])) for found in exact)
    return effects[0], median(effects), effects[-1]


def fit_memory(lines: Sequence[Record]) -> Fitted:
    """z of the memory test over the root of how many answers of the log were marked, whatever the scope."""
    usual, marked_all = (
        [
            (line, line["queries"]["memory"]["z"] / math.sqrt(TAU * line["queries"]["exact"]["n_probes"]))
            for line in some
        ]
        for some in (_of(lines, "hard", "default"), _of(lines, "hard", ALL_MARKED))
    )
    return _fitted(usual + marked_all, usual)


def fit_margin(lines: Sequence[Record]) -> tuple[float, tuple[float, float]]:
    """z of the margin test over the root of how many answers of the log were drawn, of thieves who do nothing.

    What is expected, as above, and the least and the largest of all students, relative to it.
    """
    by_setting: dict[str, list[float]] = {}
    for line in lines:
        if line["what"] == "student" and line["who"] == NOTHING_DONE:
            found = line["log"]["scores"]["margin"]
            by_setting.setdefault(line["setting"], []).append(found["z"] / math.sqrt(found["n"]))
    expected = median(fmean(values) for values in by_setting.values())
    values = [value for some in by_setting.values() for value in some]
    return expected, (min(values) / expected, max(values) / expected)


def _fitted(found: Sequence[tuple[Record, float]], course: Sequence[tuple[Record, float]]) -> Fitted:
    usual = [(line, value) for line, value in found if line["epsilon"] == PAPER_EPSILON]
    settings = {line["setting"]: [v for other, v in usual if other["setting"] == line["setting"]] for line, _ in usual}
    expected = median(fmean(values) for values in settings.values())
    varied = {line["setting"] for line, _ in course if line["epsilon"] != PAPER_EPSILON}
    means = {
        epsilon: fmean(v for line, v in course if line["epsilon"] == epsilon and line["setting"] in varied)
        for epsilon in sorted({line["epsilon"] for line, _ in course})
    }
    by_epsilon = {epsilon: expected * value / means[PAPER_EPSILON] for epsilon, value in means.items()}
    values = [value for _, value in usual]
    return Fitted(by_epsilon, (min(values) / expected, max(values) / expected))


def _of(lines: Sequence[Record], labels: str, mode: str) -> list[Record]:
    return [line for line in lines if (line["student"]["labels"], line["student"]["mode"]) == (labels, mode)]


def _ratio(found: Record) -> float:
    """γ = √(exp(z²/U) − 1) over the γ of a student that copies the mark whole."""
    power = found["power"]
    return math.sqrt(math.expm1(max(found["exact"]["z"], 0.0) ** 2 / power["n_planned"])) / power["effect"]


def _epsilon(student: Record) -> float:
    epsilon = student.get("epsilon")
    return PAPER_EPSILON if epsilon is None else epsilon
