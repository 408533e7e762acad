"""What runs have shown: their lines as a table of suspects with scores, found by what was varied."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DatasetError
from ..runs.jobs import SETTINGS
from ..runs.lines import Record, read_lines
from . import library
from .jobs import GOLD, LABELS, MODES, UNWATERMARKED, WATERMARKED, Student
from .ranking import average_precision
from .tasks import TASKS

if TYPE_CHECKING:
    from pandas import DataFrame, Series

WHERE = ("queries", "unseen")
Z, LOG10_P, P_SNR, JSD = "z", "log₁₀ p", "P_snr", "JSD, words"
BLIND_Z, MEMORY_Z, MEMORY_LOG10_P = "z without victim", "z by the labels served", "log₁₀ p by the labels served"
POWER = ("sigma", "n_planned", "effect")  # what the plan is fitted to
STATISTICS = (Z, LOG10_P, P_SNR, JSD, BLIND_Z, MEMORY_Z, MEMORY_LOG10_P, *POWER)
EVERYWHERE = "JSD, all positions"  # on the queries alone

Setting = tuple[Any, str, "DataFrame"]  # what was set, the kind of labels, the students
Find = Callable[["Place"], list[Setting]]


@dataclass(frozen=True)
class Results:
    """The lines of one or more runs, each with the profile it was made with."""

    records: tuple[Record, ...]

    @property
    def profiles(self) -> list[str]:
        """In the order of the files."""
        return list(dict.fromkeys(record["profile"] for record in self.records))

    @property
    def places(self) -> list["Place"]:
        """What was run, the tasks in the paper's order."""
        there = {(record["profile"], record["task"]) for record in self.records if "task" in record}
        return [Place(self, name, task) for task in TASKS for name in self.profiles if (name, task) in there]

    @functools.cached_property
    def suspects(self) -> "DataFrame":
        """A row for each student that was scored and each key: who it is, and what was measured.

        ``setting`` names the student but for its seed, ``key`` the mode of the key, ``accuracy`` and ``f1`` are in per
        cent. A score is in a column like ``"z, queries"``: NaN where it was not measured, −∞ where there was too
        little to compute it from.
        """
        by_job = {(record["profile"], record["job"]): record for record in self.records}
        rows = []
        for record in self.records:
            if record.get("kind") != "score":
                continue
            profile, student, key = record["profile"], Student(**record["student"]), record["key"]["name"]
            trained = by_job.get((profile, f"student {student.name}"), {})
            row = {"profile": profile, "student": student, "teacher": student.teacher, "key": key}
            row["setting"] = dataclasses.replace(student, seed=1).name
            row |= {figure: 100.0 * trained[figure] for figure in ("accuracy", "f1") if figure in trained}
            for where in WHERE:
                scores = _scores(record[where], key) if where in record else {}
                row |= {f"{name}, {where}": scores.get(name) for name in STATISTICS}
            if student.teacher == WATERMARKED or key == student.mode:
                # The baseline compares with answers that carry the student's own key.
                row[EVERYWHERE] = by_job.get((profile, f"probe {student.name}"), {}).get("jsd_everywhere")
            rows.append(row)
        measured = ["accuracy", "f1", *(f"{name}, {where}" for name in STATISTICS for where in WHERE), EVERYWHERE]
        about = ["profile", "student", "teacher", "setting", "key"]
        frame = library("pandas").DataFrame(rows, columns=[*about, *measured])
        return frame.astype(dict.fromkeys(measured, float))

    def record(self, profile: str, job: str) -> Record:
        """The line of a job; empty if there is none."""
        return next((r for r in self.records if (r["profile"], r["job"]) == (profile, job)), {})


@dataclass(frozen=True, eq=False)
class Place:
    """What was run of a task with a profile."""

    results: Results
    profile: str
    task: str

    @property
    def title(self) -> str:
        return f"{TASKS[self.task].title}, {self.profile}"

    def line(self, kind: str) -> Record:
        """The line of the task's ``victim`` or ``accuracy``; empty if there is none."""
        return self.results.record(self.profile, f"{kind} {self.task}")

    def mark_setting(self, name: str) -> float | None:
        """A setting of the profile's keys, where an experiment does not vary it."""
        return self.results.record(self.profile, SETTINGS).get("key", {}).get(name)

    def students(self, *settings: Student) -> "DataFrame":
        """All suspects of these settings, whatever their seed."""
        suspects, names = self.results.suspects, [setting.name for setting in settings]
        return suspects[(suspects.profile == self.profile) & suspects.setting.isin(names)]

    def positives(self, labels: str, mode: str = "default", **settings: Any) -> "DataFrame":
        """Students of the watermarked victim, with exactly these settings beside the usual ones."""
        return self.students(Student(self.task, WATERMARKED, labels, mode=mode, **settings))

    def negatives(self, labels: str, mode: str = "default") -> "DataFrame":
        """Students of the clean victim and of gold labels, under the key of a mode.

        Those of the clean victim's soft labels serve for hard ones too, where none of these were trained.
        """
        gold, own, other = (Student(self.task, *kind) for kind in ((GOLD,), (UNWATERMARKED, labels), (UNWATERMARKED,)))
        found = self.students(gold, own, other)
        found = found[found.key == mode]
        clean = own if (found.setting == own.name).any() else other
        return found[found.setting.isin([gold.name, clean.name])]

    def tried(self, name: str) -> list[Any]:
        """The values that a field of the students has."""
        here = self.results.suspects.student[self.results.suspects.profile == self.profile]
        return list(dict.fromkeys(getattr(student, name) for student in here if student.task == self.task))

    def clean_merit(self, figure: str | None = None) -> float | None:
        """What the victim gets right, in per cent; by the task's own figure, if none is named."""
        return self._merit({**self.line("victim"), **self.line("accuracy").get("clean", {})}, figure)

    @property
    def levels(self) -> list[Record]:
        """The accuracy of protected answers, by ε and kind of labels."""
        return self.line("accuracy").get("levels", [])

    def served_merit(self, labels: str, epsilon: float, figure: str | None = None) -> float | None:
        """What protected answers get right at one ε, in per cent, the mean over keys."""
        wanted = (one for one in self.levels if one["labels"] == labels and math.isclose(one["epsilon"], epsilon))
        return self._merit(next(wanted, {}), figure)

    def _merit(self, record: Record, figure: str | None) -> float | None:
        value = record.get(figure or TASKS[self.task].metric)
        return None if value is None else 100.0 * value


def load(paths: Iterable[str | os.PathLike]) -> Results:
    """The lines of runs; of a job that was done twice, the last. Two files of one profile are told by their names."""
    records: dict[tuple[str, str], Record] = {}
    taken: set[str] = set()
    for path in map(Path, paths):
        if not path.is_file():
            raise DatasetError(f"there is no {path}; give the .jsonl file that a run wrote")
        lines = [line for line in read_lines(path) if isinstance(line, dict) and "job" in line]
        profile = next((line["profile"] for line in lines if line["job"] == SETTINGS), path.stem)
        if profile in taken:
            profile = f"{profile} ({path.stem})"
        taken.add(profile)
        for line in lines:
            records[profile, line["job"]] = {**line, "profile": profile}
    return Results(tuple(records.values()))


def _scores(found: Mapping[str, Any], key: str) -> dict[str, float | None]:
    """The statistics of a score line on its queries or on unseen text; P_snr is of the probes that the mode counts."""
    exact, memory, p_snr = found["exact"], found.get("memory", {}), found["p_snr"][MODES[key].probes]
    return {
        Z: -math.inf if "why" in exact else exact["z"],
        LOG10_P: exact["log10_p"],
        P_SNR: -math.inf if p_snr is None else p_snr,
        JSD: found["jsd"],
        BLIND_Z: found.get("blind", {}).get("z"),
        MEMORY_Z: memory.get("z"),
        MEMORY_LOG10_P: memory.get("log10_p"),
        **found.get("power", {}),
    }


def finite(values: "Series") -> "Series":
    """Those with a number: a suspect of whom there was nothing to compute ranks last, at minus infinity."""
    return values[values.abs() < math.inf]


def mean_average_precision(up: "DataFrame", down: "DataFrame", statistic: str) -> tuple[float, int, int] | None:
    """What the paper calls mAP, and the numbers of positives and negatives; None where there are none of either.

    By the baseline's divergence, the closest rank first.
    """
    sign = -1.0 if statistic.startswith("JSD") else 1.0
    positive, negative = (sign * some[statistic].dropna() for some in (up, down))
    if not (len(positive) and len(negative)):
        return None
    return average_precision(positive, negative), len(positive), len(negative)


# -- what was varied


def by_epsilon(place: Place) -> list[Setting]:
    """ε, kind of labels and students, from the faintest on; empty if no ε but the profile's was tried."""
    return _by_number(place, "epsilon", LABELS)


def by_tau(place: Place) -> list[Setting]:
    """τ, kind of labels and students, from the least on; empty if no τ but the profile's was tried."""
    return _by_number(place, "tau", ("soft",))


def _by_number(place: Place, name: str, kinds: Sequence[str]) -> list[Setting]:
    usual, tried = place.mark_setting(name), {*place.tried(name)} - {None}
    found = []
    for labels in kinds:
        for value in sorted({*tried, usual} - {None}) if tried else ():
            settings: list[dict[str, Any]] = [{name: value}, {}] if value == usual else [{name: value}]
            students = [Student(place.task, WATERMARKED, labels, **setting) for setting in settings]
            found.append((value, labels, place.students(*students), True))
    return _where_tried(found)


def by_category(place: Place) -> list[Setting]:
    """Target class, kind of labels and students; empty if no class but the task's own was tried."""
    return _where_tried(
        (target or TASKS[place.task].target, labels, place.positives(labels, target=target), bool(target))
        for target in dict.fromkeys([None, *place.tried("target")])
        for labels in LABELS
    )


def by_rule(place: Place) -> list[Setting]:
    """Hashed token and what the thief prepends, kind of labels and students; empty if none but the usual was tried."""
    return _where_tried(
        (title + done, labels, place.positives(labels, rule=rule, prepended=prepended), bool(rule or prepended))
        for labels in LABELS
        for rule, title in ((None, "second token"), ("rarest", "rarest token"))
        for prepended, done in ((False, ""), (True, ", two words prepended"))
    )


def by_limit(place: Place) -> list[Setting]:
    """What the paper names as limits, kind of labels and students; empty if none was tried."""
    found = [("soft answers to all queries", "soft", place.positives("soft"), False)]
    found.append(("argmax of soft answers", "argmax", place.positives("argmax"), True))
    for name, title in (("share", "of the rows answered, the rest gold"), ("queries", "of the queries")):
        for value in sorted({*place.tried(name)} - {1.0}, reverse=True):
            found.append((f"{100 * value:.0f} % {title}", "soft", place.positives("soft", **{name: value}), True))
    return _where_tried(found)


def _where_tried(found: Iterable[tuple[Any, str, "DataFrame", bool]]) -> list[Setting]:
    """All that have students, if there are others than the usual ones."""
    known = [entry for entry in found if len(entry[2])]
    return [entry[:3] for entry in known] if any(other for *_, other in known) else []
