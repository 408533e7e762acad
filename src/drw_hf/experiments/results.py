"""What runs have shown: their lines as suspects with scores, found by what was varied."""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from .jobs import GOLD, UNWATERMARKED, WATERMARKED, Student
from .modes import MODES
from .ranking import average_precision
from .runs import SETTINGS, read_lines
from .tasks import TASKS

Record = dict[str, Any]
LABELS = ("soft", "hard")
WHERE = ("queries", "unseen")


@dataclass(frozen=True)
class Suspect:
    """A student and what was measured of it under one key.

    Attributes
    ----------
    profile : str
    student : Student
    mode : str
        Of the key.
    merits : mapping
        Its accuracy, and for taggers F1.
    everywhere : float or None
        The baseline's divergence over all positions, padding too.
    scores : mapping
        What it scored on its queries and on unseen text.
    """

    profile: str
    student: Student
    mode: str
    merits: Mapping[str, float]
    everywhere: float | None
    scores: Mapping[str, Mapping[str, Any]]

    def merit(self, figure: str | None = None) -> float | None:
        """What it gets right, in per cent; by the task's own figure, if none is named."""
        return _merit(self.merits, self.student.task, figure)


@dataclass(frozen=True)
class Results:
    """The lines of one or more runs, each with the profile it was made with."""

    records: tuple[Record, ...]

    @property
    def profiles(self) -> list[str]:
        """In the order of the files."""
        return list(dict.fromkeys(record["profile"] for record in self.records))

    @property
    def places(self) -> list[tuple[str, str]]:
        """Tasks, in the paper's order, with the profiles they were run with."""
        there = {(record["profile"], record["task"]) for record in self.records if "task" in record}
        return [(profile, task) for task in TASKS for profile in self.profiles if (profile, task) in there]

    @functools.cached_property
    def suspects(self) -> list[Suspect]:
        """All students that were scored, once for each key."""
        by_job = {(record["profile"], record["job"]): record for record in self.records}
        found = []
        for record in self.records:
            if record.get("kind") != "score":
                continue
            profile, student, mode = record["profile"], Student(**record["student"]), record["key"]["name"]
            own = student.teacher == WATERMARKED or mode == student.mode
            probe = by_job.get((profile, f"probe {student.name}"), {})
            trained = by_job.get((profile, f"student {student.name}"), {})
            merits: dict[str, float] = {name: trained[name] for name in ("accuracy", "f1") if name in trained}
            # The baseline compares with answers that carry the student's own key.
            everywhere = probe.get("jsd_everywhere") if own else None
            scores = {where: record[where] for where in WHERE if where in record}
            found.append(Suspect(profile, student, mode, merits, everywhere, scores))
        return found

    def record(self, profile: str, job: str) -> Record | None:
        """The line of a job."""
        return next((r for r in self.records if (r["profile"], r["job"]) == (profile, job)), None)

    def setting(self, profile: str, name: str) -> float | None:
        """A parameter of the key, where an experiment does not vary it."""
        return ((self.record(profile, SETTINGS) or {}).get("key") or {}).get(name)

    def positives(self, profile: str, task: str, labels: str, mode: str = "default", **settings: Any) -> list[Suspect]:
        """Students of the watermarked victim, with exactly these settings beside the usual ones."""
        wanted = Student(task, WATERMARKED, labels, mode=mode, **settings)
        return [
            suspect
            for suspect in self.suspects
            if suspect.profile == profile and dataclasses.replace(suspect.student, seed=wanted.seed) == wanted
        ]

    def negatives(self, profile: str, task: str, labels: str, mode: str = "default") -> list[Suspect]:
        """Students of the clean victim and of gold labels, under the key of a mode.

        Those of the clean victim's soft labels serve for hard ones too, where none of these were trained.
        """
        here = [s for s in self.suspects if (s.profile, s.mode, s.student.task) == (profile, mode, task)]
        gold, own, other = (
            [s for s in here if dataclasses.replace(s.student, seed=1) == wanted]
            for wanted in (
                Student(task, GOLD),
                Student(task, UNWATERMARKED, labels),
                Student(task, UNWATERMARKED, "soft"),
            )
        )
        return [*gold, *(own or other)]

    def clean_merit(self, profile: str, task: str, figure: str | None = None) -> float | None:
        """What the victim gets right, in per cent; by the task's own figure, if none is named."""
        measured = _merit((self.record(profile, f"accuracy {task}") or {}).get("clean"), task, figure)
        return _merit(self.record(profile, f"victim {task}"), task, figure) if measured is None else measured

    def levels(self, profile: str, task: str) -> list[Record]:
        """The accuracy of protected answers, by ε and kind of labels."""
        return (self.record(profile, f"accuracy {task}") or {}).get("levels") or []

    def served_merit(
        self, profile: str, task: str, labels: str, epsilon: float | None, figure: str | None = None
    ) -> float | None:
        """What protected answers get right at one ε, in per cent, the mean over keys."""
        if epsilon is None:
            return None
        levels = self.levels(profile, task)
        at = (level for level in levels if level["labels"] == labels and math.isclose(level["epsilon"], epsilon))
        return _merit(next(at, None), task, figure)


def load(paths: Iterable[str | os.PathLike]) -> Results:
    """The lines of runs; of a job that was done twice, the last.

    Parameters
    ----------
    paths : iterable of path-like
        Files of JSON lines. Two of one profile are kept apart by their names.
    """
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


def _merit(record: Mapping[str, Any] | None, task: str, figure: str | None = None) -> float | None:
    value = (record or {}).get(figure or TASKS[task].metric)
    return None if value is None else 100.0 * value


# -- statistics: None where nothing was measured, −∞ where there was too little to compute it from


def p_snr(suspect: Suspect, where: str) -> float | None:
    """P_snr, of the probes that the key's mode counts."""
    if where not in suspect.scores:
        return None
    value = suspect.scores[where]["p_snr"][MODES[suspect.mode].probes]
    return -math.inf if value is None else value


def exact(name: str, suspect: Suspect, where: str) -> float | None:
    """A figure of the exact test with the clean victim; z is −∞ where there was nothing to test."""
    if where not in suspect.scores:
        return None
    found = suspect.scores[where]["exact"]
    return -math.inf if name == "z" and "why" in found else found[name]


z = functools.partial(exact, "z")
log10_p = functools.partial(exact, "log10_p")


def blind_z(suspect: Suspect, where: str) -> float | None:
    """z of the exact test without the victim."""
    return suspect.scores.get(where, {}).get("blind", {}).get("z")


def memory_z(suspect: Suspect, where: str) -> float | None:
    """z of the test by the labels that were served, where they are known."""
    return suspect.scores.get(where, {}).get("memory", {}).get("z")


def memory_log10_p(suspect: Suspect, where: str) -> float | None:
    """log₁₀ p of the same."""
    return suspect.scores.get(where, {}).get("memory", {}).get("log10_p")


def divergence(suspect: Suspect, where: str) -> float | None:
    """The baseline, over words."""
    return suspect.scores[where]["jsd"] if where in suspect.scores else None


def divergence_everywhere(suspect: Suspect, where: str) -> float | None:
    """The baseline as the paper computed it; on the queries only."""
    return suspect.everywhere if where == "queries" else None


def closeness(suspect: Suspect, where: str) -> float | None:
    """The divergence over words, turned round: the closer, the higher."""
    value = divergence(suspect, where)
    return None if value is None else -value


def closeness_everywhere(suspect: Suspect, where: str) -> float | None:
    """The divergence over all positions, turned round."""
    value = divergence_everywhere(suspect, where)
    return None if value is None else -value


Statistic = Callable[[Suspect, str], float | None]


def values(suspects: Iterable[Suspect], statistic: Statistic, where: str = "queries") -> list[float]:
    """A statistic of all suspects of whom it was measured."""
    return [value for value in (statistic(suspect, where) for suspect in suspects) if value is not None]


def finite(found: Iterable[float]) -> list[float]:
    """Those with a number: a suspect of whom there was nothing to compute ranks last, at minus infinity."""
    return [value for value in found if math.isfinite(value)]


def mean_average_precision(
    positives: Sequence[Suspect], negatives: Sequence[Suspect], statistic: Statistic, where: str = "queries"
) -> tuple[float, int, int] | None:
    """What the paper calls mAP, and the numbers of positives and negatives; None where there are none of either."""
    up, down = values(positives, statistic, where), values(negatives, statistic, where)
    return (average_precision(up, down), len(up), len(down)) if up and down else None


# -- what was varied

Setting = tuple[str, str, list[Suspect]]  # what was set, the kind of labels, the students


def by_epsilon(results: Results, profile: str, task: str) -> list[tuple[float, str, list[Suspect]]]:
    """ε, kind of labels and students, from the faintest on; empty if no ε but the profile's was tried."""
    usual = results.setting(profile, "epsilon")
    return _by_number(results, profile, task, "epsilon", usual, LABELS)


def by_tau(results: Results, profile: str, task: str) -> list[tuple[float, str, list[Suspect]]]:
    """τ, kind of labels and students, from the least on; empty if no τ but the profile's was tried."""
    return _by_number(results, profile, task, "tau", results.setting(profile, "tau"), ("soft",))


def _by_number(
    results: Results, profile: str, task: str, name: str, usual: float | None, kinds: Sequence[str]
) -> list[tuple[float, str, list[Suspect]]]:
    found = []
    tried: set[float] = {value for value in _tried(results, profile, task, name) if value is not None}
    known = tried if usual is None else tried | {usual}
    for labels in kinds:
        for value in sorted(known) if tried else ():
            setting: dict[str, Any] = {name: value}
            some = results.positives(profile, task, labels, **setting)
            if value == usual:
                some = some + results.positives(profile, task, labels)
            if some:
                found.append((value, labels, some))
    return found


def by_category(results: Results, profile: str, task: str) -> list[Setting]:
    """Target class, kind of labels and students; empty if no class but the task's own was tried."""
    tried = [target for target in _tried(results, profile, task, "target") if target is not None]
    if not tried:
        return []
    targets = {TASKS[task].target: None, **{target: target for target in tried}}
    found = [
        (name, labels, results.positives(profile, task, labels, target=target))
        for name, target in targets.items()
        for labels in LABELS
    ]
    return [entry for entry in found if entry[2]]


def by_rule(results: Results, profile: str, task: str) -> list[Setting]:
    """Hashed token and what the thief prepends, kind of labels and students; empty if none but the usual was tried."""
    found = []
    for labels in LABELS:
        for rule, title in ((None, "second token"), ("rarest", "rarest token")):
            for prepended, done in ((False, ""), (True, ", two words prepended")):
                some = results.positives(profile, task, labels, rule=rule, prepended=prepended)
                found.append((title + done, labels, some, rule is not None or prepended))
    return _where_tried(found)


def by_limit(results: Results, profile: str, task: str) -> list[Setting]:
    """What the paper names as limits, kind of labels and students; empty if none was tried."""
    found = [("soft answers to all queries", "soft", results.positives(profile, task, "soft"), False)]
    found.append(("argmax of soft answers", "argmax", results.positives(profile, task, "argmax"), True))
    for name, title in (("share", "{:.0%} of the rows answered, the rest gold"), ("queries", "{:.0%} of the queries")):
        for value in sorted(set(_tried(results, profile, task, name)) - {1.0}, reverse=True):
            some = results.positives(profile, task, "soft", **{name: value})
            found.append((title.format(value).replace("%", " %"), "soft", some, True))
    return _where_tried(found)


def _tried(results: Results, profile: str, task: str, name: str) -> list[Any]:
    """The values of a field that students of a task have."""
    here = (suspect for suspect in results.suspects if suspect.profile == profile)
    return list(dict.fromkeys(getattr(each.student, name) for each in here if each.student.task == task))


def _where_tried(found: Iterable[tuple[str, str, list[Suspect], bool]]) -> list[Setting]:
    """All that have students, if there are others than the usual ones."""
    found = list(found)
    return [entry[:3] for entry in found if entry[2]] if any(some and other for *_, some, other in found) else []
