"""The paper's tables from the lines of one or more runs: from records to Markdown.

A cell for which nothing was run is "—". Where ranges or means are given, the number of students stands beside.
"""

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetError
from .jobs import GOLD, PARTS, UNWATERMARKED, WATERMARKED, Student
from .modes import MODES
from .ranking import average_precision
from .runs import SETTINGS, read_lines
from .tasks import TASKS

Record = dict[str, Any]
LABELS = ("soft", "hard")
WHERE = ("queries", "unseen")
NOTHING = "—"
COMMAND = "drw-hf reproduce {profile} {parts}"
ALL_DRAWN = "hard, all drawn"  # hard labels as the paper's code measures them: τ = 1, every answer drawn
SHOWN_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of those that accuracy was measured at

# The paper's Tables 1 and 2. Accuracy (POS and NER: F1) in per cent, ranges from the least to the largest.
PAPER: dict[str, dict[str, Any]] = {
    "sst2": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 92.8, "argmax soft": 92.5, "sampling hard": 88.4, "soft": 92.0, "hard": 91.3},
        "p_snr": {
            "soft": {"negative": (0.008, 4.775), "positive": (18.82, 25.77)},
            "hard": {"negative": (0.011, 4.235), "positive": (16.38, 22.77)},
        },
        "jsd": {
            "soft": {"negative": (0.012, 0.032), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.013, 0.029), "positive": (0.004, 0.005)},
        },
    },
    "mrpc": {
        "map": {"soft": {"jsd": 1.00, "p_snr": 1.00}, "hard": {"jsd": 1.00, "p_snr": 1.00}},
        "merit": {"victim": 87.0, "argmax soft": 86.8, "sampling hard": 85.8, "soft": 86.2, "hard": 86.1},
        "p_snr": {
            "soft": {"negative": (0.128, 2.607), "positive": (17.81, 24.25)},
            "hard": {"negative": (0.012, 3.678), "positive": (16.70, 21.80)},
        },
        "jsd": {
            "soft": {"negative": (0.009, 0.161), "positive": (0.001, 0.002)},
            "hard": {"negative": (0.008, 0.154), "positive": (0.003, 0.007)},
        },
    },
    "pos": {
        "map": {"soft": {"jsd": 0.54, "p_snr": 1.00}, "hard": {"jsd": 0.48, "p_snr": 1.00}},
        "merit": {"victim": 90.7, "argmax soft": 90.7, "sampling hard": 90.3, "soft": 89.8, "hard": 89.7},
        "p_snr": {
            "soft": {"negative": (0.012, 2.309), "positive": (20.59, 28.73)},
            "hard": {"negative": (0.182, 2.869), "positive": (16.23, 25.67)},
        },
        "jsd": {
            "soft": {"negative": (0.016, 0.444), "positive": (0.087, 0.279)},
            "hard": {"negative": (0.010, 0.432), "positive": (0.029, 0.112)},
        },
    },
    "ner": {
        "map": {"soft": {"jsd": 0.84, "p_snr": 1.00}, "hard": {"jsd": 0.40, "p_snr": 1.00}},
        "merit": {"victim": 91.3, "argmax soft": 91.3, "sampling hard": 91.0, "soft": 87.7, "hard": 87.4},
        "p_snr": {
            "soft": {"negative": (0.105, 4.243), "positive": (17.25, 25.22)},
            "hard": {"negative": (0.203, 4.183), "positive": (16.19, 25.49)},
        },
        "jsd": {
            "soft": {"negative": (0.001, 0.416), "positive": (0.002, 0.201)},
            "hard": {"negative": (0.009, 0.274), "positive": (0.011, 0.052)},
        },
    },
}
PAPER_EPSILON = 0.2
PAPER_STUDENTS = 10  # of every kind

# What is aimed at.
LARGEST_INNOCENT = 5.0  # P_snr of a negative
LARGEST_LOG10_P = -6.0  # of a positive, on its queries
SOFT_COST = 0.3  # points, of argmax-soft at the paper's ε
FAINT_COST = 0.5  # points, at the least ε that still detects


# -- what was measured


@dataclass(frozen=True)
class Suspect:
    """A student and what was measured of it under one key.

    Attributes
    ----------
    profile : str
    student : Student
    mode : str
        Of the key.
    merit : float or None
        Its accuracy, or for NER its F1, in per cent.
    everywhere : float or None
        The baseline's divergence over all positions, padding too.
    scores : mapping
        What it scored on its queries and on unseen text.
    """

    profile: str
    student: Student
    mode: str
    merit: float | None
    everywhere: float | None
    scores: Mapping[str, Mapping[str, Any]]


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
            merit = _merit(by_job.get((profile, f"student {student.name}")), student.task)
            # The baseline compares with answers that carry the student's own key.
            everywhere = probe.get("jsd_everywhere") if own else None
            scores = {where: record[where] for where in WHERE if where in record}
            found.append(Suspect(profile, student, mode, merit, everywhere, scores))
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
        """Students of the clean victim and of gold labels, under the key of a mode."""
        wanted = [Student(task, UNWATERMARKED, labels), Student(task, GOLD)]
        return [
            suspect
            for suspect in self.suspects
            if (suspect.profile, suspect.mode) == (profile, mode)
            and dataclasses.replace(suspect.student, seed=1) in wanted
        ]

    def clean_merit(self, profile: str, task: str) -> float | None:
        """The victim's accuracy, or F1, in per cent."""
        measured = _merit((self.record(profile, f"accuracy {task}") or {}).get("clean"), task)
        return _merit(self.record(profile, f"victim {task}"), task) if measured is None else measured

    def levels(self, profile: str, task: str) -> list[Record]:
        """The accuracy of protected answers, by ε and kind of labels."""
        return (self.record(profile, f"accuracy {task}") or {}).get("levels") or []

    def served_merit(self, profile: str, task: str, labels: str, epsilon: float | None) -> float | None:
        """The accuracy, or F1, of protected answers at one ε, in per cent, the mean over keys."""
        if epsilon is None:
            return None
        levels = self.levels(profile, task)
        at = (level for level in levels if level["labels"] == labels and math.isclose(level["epsilon"], epsilon))
        return _merit(next(at, None), task)


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


def _merit(record: Mapping[str, Any] | None, task: str) -> float | None:
    value = (record or {}).get(TASKS[task].metric)
    return None if value is None else 100.0 * value


# -- statistics: None where nothing was measured, −∞ where there was too little to compute it from


def p_snr(suspect: Suspect, where: str) -> float | None:
    """P_snr, of the probes that the key's mode counts."""
    if where not in suspect.scores:
        return None
    value = suspect.scores[where]["p_snr"][MODES[suspect.mode].probes]
    return -math.inf if value is None else value


def exact(name: str, suspect: Suspect, where: str) -> float | None:
    """A figure of the exact test with the clean victim."""
    return suspect.scores[where]["exact"][name] if where in suspect.scores else None


z = functools.partial(exact, "z")
log10_p = functools.partial(exact, "log10_p")


def memory_z(suspect: Suspect, where: str) -> float | None:
    """z of the test by the labels that were served, where they are known."""
    return suspect.scores.get(where, {}).get("memory", {}).get("z")


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


def mean_average_precision(
    positives: Sequence[Suspect], negatives: Sequence[Suspect], statistic: Statistic, where: str = "queries"
) -> tuple[float, int, int] | None:
    """What the paper calls mAP, and the numbers of positives and negatives; None where there are none of either."""
    up, down = values(positives, statistic, where), values(negatives, statistic, where)
    return (average_precision(up, down), len(up), len(down)) if up and down else None


# -- cells


def number(value: float, digits: int) -> str:
    """A number with a real minus, and none before a zero."""
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def _per_cent(value: float | None) -> str:
    return NOTHING if value is None else number(value, 1)


def _from_to(low: float, high: float, digits: int) -> str:
    ends = number(low, digits), number(high, digits)
    return ends[0] if ends[0] == ends[1] else (" to " if low < 0 else "–").join(ends)


def _range(found: Sequence[float], digits: int, n: int) -> str:
    finite = [value for value in found if math.isfinite(value)]
    text = _from_to(min(finite), max(finite), digits) if finite else NOTHING
    return text + _counted(len(finite), n)


def _mean(found: Sequence[float], digits: int, n: int) -> str:
    finite = [value for value in found if math.isfinite(value)]
    text = number(sum(finite) / len(finite), digits) if finite else NOTHING
    return text + _counted(len(finite), n)


def _counted(count: int, n: int) -> str:
    """Said only where it is not the row's number."""
    return f" (n {count})" if 0 < count != n else ""


def _precision(found: tuple[float, int, int] | None, n: tuple[int, int] | None = None) -> str:
    if found is None:
        return NOTHING
    text = "> 0.99" if 0.995 <= found[0] < 1 else f"{found[0]:.2f}"  # 1.00 is kept for what is perfect
    return text if found[1:] == n else f"{text} (n {found[1]} + {found[2]})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _both(suspects: Sequence[Suspect], statistic: Statistic, digits: int = 1) -> str:
    """The mean on queries and on unseen text."""
    return " / ".join(_mean(values(suspects, statistic, where), digits, len(suspects)) for where in WHERE)


def _place(profile: str, task: str) -> tuple[str, str]:
    return TASKS[task].title, profile


# -- tables


def table_1_detection(results: Results) -> str:
    """Table 1, upper part: mAP of the baseline in two ways, of P_snr and of the exact test."""
    ranked = [
        (closeness_everywhere, "queries"),
        (closeness, "queries"),
        (p_snr, "queries"),
        (p_snr, "unseen"),
        (z, "queries"),
        (z, "unseen"),
    ]
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
            if not up and not down:
                continue
            n = len(up), len(down)
            cells = [_precision(mean_average_precision(up, down, *how), n) for how in ranked]
            paper = PAPER[task]["map"][labels]
            known = [f"{paper[name]:.2f}" for name in ("jsd", "p_snr")]
            row = [*_place(profile, task), labels, f"{n[0]} + {n[1]}"]
            rows.append([*row, *cells[:2], known[0], *cells[2:], known[1]])
    head = ["task", "profile", "labels", "students", "DeepJudge, all positions", "DeepJudge, words", "*paper's*"]
    head += ["P_snr, queries", "P_snr, unseen", "z, queries", "z, unseen", "*paper's P_snr*"]
    return _table(head, rows) if rows else ""


def table_1_accuracy(results: Results) -> str:
    """Table 1, lower part: what victim and students get right."""
    rows = []
    for profile, task in results.places:
        epsilon = results.setting(profile, "epsilon")
        merits = [results.clean_merit(profile, task)]
        merits += [results.served_merit(profile, task, labels, epsilon) for labels in (*LABELS, ALL_DRAWN)]
        cells = [_per_cent(merit) for merit in merits]
        students = [results.positives(profile, task, labels) for labels in LABELS]
        students.append([s for s in results.negatives(profile, task, "soft") if s.student.teacher == GOLD])
        for some in students:
            known = [suspect.merit for suspect in some if suspect.merit is not None]
            cells.append(f"{_mean(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
        if set(cells) != {NOTHING}:
            rows.append([*_place(profile, task), _metric_name(task), *cells])
            if (profile, task) == [place for place in results.places if place[1] == task][-1]:
                paper = [number(value, 1) for value in PAPER[task]["merit"].values()]
                figure = "F1" if TASKS[task].kind == "token-classification" else "accuracy"
                rows.append([TASKS[task].title, "*the paper*", figure, *paper[:3], NOTHING, *paper[3:], NOTHING])
    head = ["task", "profile", "figure", "victim", "argmax soft", "sampling hard", "sampling hard, all drawn"]
    return _table([*head, "student soft", "student hard", "student of gold"], rows) if rows else ""


def _metric_name(task: str) -> str:
    if TASKS[task].metric == "f1":
        return "F1"
    return "accuracy of words" if TASKS[task].kind == "token-classification" else "accuracy"


def table_2(results: Results) -> str:
    """Table 2: ranges of P_snr and of the baseline, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        paper = {score: "{:g}–{:g}".format(*PAPER[task][score][labels][name]) for score in ("p_snr", "jsd")}
        snr = [_range(values(some, p_snr, where), 3, n) for where in WHERE]
        everywhere = _range(values(some, divergence_everywhere), 3, n)
        words = [_range(values(some, divergence, where), 3, n) for where in WHERE]
        row = [*_place(profile, task), labels, name, str(n)]
        rows.append([*row, snr[0], paper["p_snr"], snr[1], everywhere, paper["jsd"], *words])
    head = ["task", "profile", "labels", "suspects", "n", "P_snr, queries", "*paper's*", "P_snr, unseen"]
    head += ["JSD, all positions", "*paper's*", "JSD, words, queries", "JSD, words, unseen"]
    return _table(head, rows) if rows else ""


def table_2_exact(results: Results) -> str:
    """Ranges of the exact test, for innocents and thieves."""
    rows = []
    for profile, task, labels, name, some in _sides(results):
        n = len(some)
        cells = [_range(values(some, how, where), 1, n) for how in (z, log10_p) for where in WHERE]
        known = values(some, memory_z)
        cells.append(f"{_range(known, 1, len(known))} (n {len(known)})" if known else NOTHING)
        rows.append([*_place(profile, task), labels, name, str(n), *cells])
    head = ["task", "profile", "labels", "suspects", "n", "z, queries", "z, unseen"]
    head += ["log₁₀ p, queries", "log₁₀ p, unseen", "z by the labels served"]
    return _table(head, rows) if rows else ""


def _sides(results: Results) -> Iterable[tuple[str, str, str, str, list[Suspect]]]:
    for profile, task in results.places:
        for labels in LABELS:
            sides = {"negative": results.negatives, "positive": results.positives}
            for name, members in sides.items():
                some = members(profile, task, labels)
                if some:
                    yield profile, task, labels, name, some


def modes_table(results: Results) -> str:
    """The three ways to do it, side by side."""
    rows = []
    for profile, task in results.places:
        for labels in LABELS:
            by_mode = {mode: results.positives(profile, task, labels, mode) for mode in MODES}
            if not any(some for mode, some in by_mode.items() if mode != "default"):
                continue
            for mode, some in by_mode.items():
                down, n = results.negatives(profile, task, labels, mode), len(some)
                innocent = values(down, p_snr)
                merits = [suspect.merit for suspect in some if suspect.merit is not None]
                rows.append(
                    [*_place(profile, task), labels, mode, str(n)]
                    + [_range(values(some, p_snr, where), 1, n) for where in WHERE]
                    + [f"{_range(innocent, 1, len(down))} (n {len(down)})" if innocent else NOTHING]
                    + [_precision(mean_average_precision(some, down, p_snr), (n, len(down)))]
                    + [_both(some, z), _mean(merits, 1, n)]
                    + [_from_to(*PAPER[task]["p_snr"][labels]["positive"], 1)]
                )
    head = ["task", "profile", "labels", "mode", "n", "P_snr, queries", "P_snr, unseen", "innocents' P_snr"]
    head += ["mAP of P_snr", "z, queries / unseen", "student", "*paper's P_snr*"]
    return _table(head, rows) if rows else ""


# -- ablations

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
    tried = set(_tried(results, profile, task, name)) - {None}
    for labels in kinds:
        for value in sorted(tried | {usual} - {None}) if tried else ():
            some = results.positives(profile, task, labels, **{name: value})
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


def epsilon_table(results: Results) -> str:
    """Detection against ε. The negatives are the same for all: a key's phases do not depend on ε."""
    rows = []
    for profile, task in results.places:
        for epsilon, labels, some in by_epsilon(results, profile, task):
            down = results.negatives(profile, task, labels)
            n = len(some), len(down)
            cells = [
                " / ".join(_precision(mean_average_precision(some, down, how, where), n) for where in WHERE)
                for how in (p_snr, z)
            ]
            cells += [_both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*_place(profile, task), labels, f"{epsilon:g}", f"{n[0]} + {n[1]}", *cells])
    head = ["task", "profile", "labels", "ε", "students", "mAP of P_snr", "mAP of z", "P_snr", "z", "log₁₀ p"]
    return _table(head, rows) if rows else ""


def ablation_table(results: Results, find: Callable[[Results, str, str], Sequence[Any]], varied: str) -> str:
    """Means over students, on queries / on unseen text, for every setting that ``find`` names."""
    rows = []
    for profile, task in results.places:
        for setting, labels, some in find(results, profile, task):
            merits = [suspect.merit for suspect in some if suspect.merit is not None]
            name = setting if isinstance(setting, str) else f"{setting:g}"
            cells = [_both(some, how) for how in (p_snr, z, log10_p)]
            rows.append([*_place(profile, task), name, labels, str(len(some)), *cells, _mean(merits, 1, len(some))])
    return _table(["task", "profile", varied, "labels", "n", "P_snr", "z", "log₁₀ p", "student"], rows) if rows else ""


def theorem_table(results: Results) -> str:
    """Accuracy of protected answers: measured, foretold for a calibrated model, and bounded."""
    rows = []
    for profile, task in results.places:
        line = results.record(profile, f"accuracy {task}") or {}
        clean = (line.get("clean") or {}).get("accuracy")
        error = NOTHING if line.get("ece") is None else f"{line['ece']:.3f}"
        for labels in (*LABELS, ALL_DRAWN):
            for level in sorted(line.get("levels") or [], key=lambda level: level["epsilon"]):
                if level["labels"] != labels or level["epsilon"] not in SHOWN_LEVELS:
                    continue
                row = [*_place(profile, task), labels, f"{level['epsilon']:g}", _share(clean)]
                row += [_measured(level), _less(clean, level.get("accuracy"))]
                row += [_less(level.get("clean"), level.get("expected"))]
                rows.append([*row, *(_share(level.get(name)) for name in ("expected", "bound", "paper_bound")), error])
    head = ["task", "profile", "labels", "ε", "clean", "measured (least–largest over keys)", "cost", "expected cost"]
    return _table([*head, "expected", "bound", "*paper's bound*", "ECE"], rows) if rows else ""


def _measured(level: Record) -> str:
    text = _share(level.get("accuracy"))
    ends = [level.get(f"accuracy_{end}") for end in ("low", "high")]
    return text if None in ends else f"{text} ({_from_to(*(100.0 * end for end in ends), 2)})"


def _less(before: float | None, after: float | None) -> str:
    return NOTHING if before is None or after is None else number(100.0 * (before - after), 2)


def _share(value: float | None) -> str:
    return NOTHING if value is None else number(100.0 * value, 2)


# -- goals

Judged = tuple[bool, str]  # whether it was met, and what was measured


def goals_table(results: Results) -> str:
    """Every goal, whether it was met, and what was measured."""
    if not results.places:
        return ""
    goals: list[tuple[str, Callable[[str, str], Judged | None]]] = []

    def add(title: str, judge: Callable[[Results, str, str, str], Judged | None], labels: str) -> None:
        goals.append((title, lambda profile, task: judge(results, profile, task, labels)))

    for labels in LABELS:
        add(f"mAP of z on the queries is 1.00, {labels}", _perfect, labels)
    for labels in LABELS:
        add(f"every innocent's P_snr < {LARGEST_INNOCENT:g}, {labels}", _innocents_are_low, labels)
    for labels in LABELS:
        add(f"every thief's p < 10⁻⁶ on the queries, {labels}", _thieves_are_sure, labels)
    add(f"argmax-soft costs ≤ {SOFT_COST} points at ε = {PAPER_EPSILON}", _costs_little, "soft")
    add(f"hard labels cost no more than the paper's at ε = {PAPER_EPSILON}", _costs_little, "hard")
    for labels in LABELS:
        add(f"≤ {FAINT_COST} points at the least ε that still detects, {labels}", _costs_little_when_faint, labels)
    rows = []
    for title, judge in goals:
        judged = [judge(*place) for place in results.places]
        known = [met for met, _ in filter(None, judged)]
        total = f"{sum(known)} of {len(known)}" if known else NOTHING
        cells = [f"{'yes' if found[0] else '**no**'}: {found[1]}" if found else NOTHING for found in judged]
        rows.append([title, total, *cells])
    head = ["goal", "met", *(f"{TASKS[task].title}, {profile}" for profile, task in results.places)]
    return _table(head, rows)


def _perfect(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    up, down = results.positives(profile, task, labels), results.negatives(profile, task, labels)
    found = mean_average_precision(up, down, z)
    return None if found is None else (found[0] == 1.0, _precision(found))


def _innocents_are_low(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    found = values(results.negatives(profile, task, labels), p_snr)
    finite = [value for value in found if math.isfinite(value)]
    return (max(finite) < LARGEST_INNOCENT, f"largest {max(finite):.2f} (n {len(finite)})") if finite else None


def _thieves_are_sure(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    found = values(results.positives(profile, task, labels), log10_p)
    if not found:
        return None
    return max(found) < LARGEST_LOG10_P, f"largest log₁₀ p {number(max(found), 1)} (n {len(found)})"


def _costs_little(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    paper = PAPER[task]["merit"]
    limit = SOFT_COST if labels == "soft" else round(paper["victim"] - paper["sampling hard"], 1)
    cost = cost_in_points(results, profile, task, labels, PAPER_EPSILON)
    if cost is None:
        return None
    return _at_most(cost, limit), number(cost, 2) + (f" (paper {limit})" if labels == "hard" else "")


def _costs_little_when_faint(results: Results, profile: str, task: str, labels: str) -> Judged | None:
    tried = {epsilon: some for epsilon, kind, some in by_epsilon(results, profile, task) if kind == labels}
    if not tried:
        return None
    epsilon = least_that_detects(tried)
    if epsilon is None:
        return False, "no ε was detected"
    cost = cost_in_points(results, profile, task, labels, epsilon)
    if cost is None:
        return None
    note = ", the least tried" if epsilon == min(tried) else ""
    return _at_most(cost, FAINT_COST), f"{number(cost, 2)} at {epsilon:g}{note} (n {len(tried[epsilon])})"


def cost_in_points(results: Results, profile: str, task: str, labels: str, epsilon: float) -> float | None:
    """What the mark costs the victim at one ε: points of accuracy, or of F1."""
    clean = results.clean_merit(profile, task)
    served = results.served_merit(profile, task, labels, epsilon)
    return None if clean is None or served is None else clean - served


def least_that_detects(tried: Mapping[float, Sequence[Suspect]]) -> float | None:
    """The least ε down to which every student's p is below 10⁻⁶ on its queries."""
    least = None
    for epsilon in sorted(tried, reverse=True):
        found = values(tried[epsilon], log10_p)
        if not found or max(found) >= LARGEST_LOG10_P:
            break
        least = epsilon
    return least


def _at_most(cost: float, limit: float) -> bool:
    return cost <= limit + 1e-9  # 92.8 − 92.5 is a little more than 0.3


# -- what was run


def what_was_run(results: Results) -> str:
    """The students that were scored, by profile, task and kind; and what was not run."""
    kinds = [(teacher, labels) for teacher in (WATERMARKED, UNWATERMARKED) for labels in LABELS] + [(GOLD, "soft")]
    rows = []
    for profile, task in results.places:
        counts = [_scored(results, profile, Student(task, teacher, labels)) for teacher, labels in kinds]
        victim = "yes" if results.record(profile, f"victim {task}") else "no"
        rows.append([profile, TASKS[task].title, victim, *map(str, counts)])
    head = ["profile", "task", "victim", "watermarked, soft", "watermarked, hard", "unwatermarked, soft"]
    pieces = [_table([*head, "unwatermarked, hard", "gold"], rows)] if rows else []
    rows, missing = [], []
    for profile in results.profiles:
        lacking = []
        for part, (make, tasks) in PARTS.items():
            for task in tasks:
                counts = [_scored(results, profile, student) for student in make(task, [1])]
                if not any(counts):
                    lacking.append(f"{part} on {TASKS[task].title}")
                    continue
                if 0 in counts:
                    lacking.append(f"{counts.count(0)} of {len(counts)} settings of {part} on {TASKS[task].title}")
                if part != "tables":
                    each = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
                    rows.append([profile, part, TASKS[task].title, str(len(counts)), each])
        if lacking:
            missing.append(f"- Not run with {profile}: {', '.join(lacking)}.")
    if rows:
        pieces.append(_table(["profile", "part", "task", "settings", "students of each"], rows))
    if missing:
        pieces.append("\n".join(missing))
    pieces.append(f"The paper has {PAPER_STUDENTS} students of every kind, all of bert-base-uncased.")
    return "\n\n".join(pieces)


def _scored(results: Results, profile: str, student: Student) -> int:
    """How many students of a setting have scores under the key of their own."""
    wanted = dataclasses.replace(student, seed=1)
    return sum(
        suspect.profile == profile
        and suspect.mode == suspect.student.mode
        and dataclasses.replace(suspect.student, seed=1) == wanted
        for suspect in results.suspects
    )


# -- the document


def report(paths: Iterable[str | os.PathLike]) -> str:
    """All tables that there are data for, as one Markdown document.

    Parameters
    ----------
    paths : iterable of path-like
        Files of JSON lines, one for each profile.
    """
    results = load(paths)
    sections = [
        (
            "Goals",
            "What was aimed at and what was measured, with the numbers of students (thieves + innocents).",
            goals_table(results),
            ("tables", "epsilon"),
        ),
        (
            "Table 1: detection",
            "mAP of ranking thieves above innocents, ties counted against the method. DeepJudge ranks by a small "
            "divergence, on the queries; students are thieves + innocents.",
            table_1_detection(results),
            ("tables",),
        ),
        (
            "Table 1: accuracy",
            "Per cent, on the split the paper uses. Protected answers are means over keys at the profile's ε, "
            "students means over seeds. The paper's code draws every answer (τ = 1) to measure hard labels, as the "
            'column "all drawn" does. The paper\'s POS figure is an F1 over tags, ours the accuracy of words.',
            table_1_accuracy(results),
            ("tables",),
        ),
        (
            "Table 2: scores",
            "The least and the largest score of n suspects. The paper's JSD is over all positions, padding too.",
            table_2(results),
            ("tables",),
        ),
        (
            "Table 2 for the exact test",
            "The least and the largest score of n suspects. The last column tests, where it is known, which labels "
            "were served.",
            table_2_exact(results),
            ("tables",),
        ),
        (
            "Three modes",
            "The package's default beside the paper's text and code; n students each, ranges, and means of z and of "
            "accuracy. P_snr is of the probes that each mode counts.",
            modes_table(results),
            ("tables", "modes"),
        ),
        (
            "The watermark level ε",
            "mAP and means on queries / on unseen text; students are thieves + innocents. The paper's P_snr ranks NER "
            "perfectly only from ε = 0.12 on.",
            epsilon_table(results),
            ("tables", "epsilon"),
        ),
        (
            "The target class",
            "Means over n students, on queries / on unseen text. In the paper NNP is strongest and DT fails.",
            ablation_table(results, by_category, "c*"),
            ("tables", "category"),
        ),
        (
            "The share of marked tokens τ",
            "Means over n students, on queries / on unseen text.",
            ablation_table(results, by_tau, "τ"),
            ("tables", "tau"),
        ),
        (
            "The hashed token",
            "Means over n students, on queries / on unseen text; some thieves prepended two words to every query.",
            ablation_table(results, by_rule, "hashed"),
            ("tables", "rule"),
        ),
        (
            "Limits",
            "Means over n students, on queries / on unseen text, for thieves who learn less of the mark.",
            ablation_table(results, by_limit, "what the thief learns from"),
            ("tables", "limits"),
        ),
        (
            "Accuracy against Theorem 1",
            "Accuracy in per cent (for NER, too), measured on the evaluation split, at some of the levels. Expected "
            "and bounds are computed from the victim's probabilities and hold if it is calibrated. ECE is its "
            "calibration error, which shifts clean and protected accuracy alike: compare costs.",
            theorem_table(results),
            ("tables",),
        ),
    ]
    pieces = ["# The paper's tables, reproduced", "## What was run", what_was_run(results)]
    for title, sentence, table, parts in sections:
        if table:
            pieces += [f"## {title}", sentence, table, _made_by(results, parts)]
    return "\n\n".join(pieces) + "\n"


def _made_by(results: Results, parts: Sequence[str]) -> str:
    wanted = " ".join(f"--part {part}" for part in parts)
    commands = (f"`{COMMAND.format(profile=profile, parts=wanted)}`" for profile in results.profiles)
    return f"Made by {', '.join(commands)}."
