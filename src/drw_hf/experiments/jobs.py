"""What a run consists of: independent jobs, each a model to train, to probe or to score.

Pure: from a profile and what is wanted to the list of jobs, in the order in which they are worth doing.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError
from ..keys.choices import Law, Sampling, Scope
from .profiles import Profile

WATERMARKED, UNWATERMARKED, GOLD = "watermarked", "unwatermarked", "gold"
KINDS = ("victim", "accuracy", "student", "probe", "score")
LABELS = ("soft", "hard")

CASE_TASK, CASE_SEED = "ner", 1  # the students whose answers the case study shows

OTHER_MODES = ("paper-code", "paper-text")  # beside the default
EPSILONS = (0.02, 0.05, 0.1)  # beside the profile's own
CATEGORIES = ("DT", "VBN", "JJ")  # beside NNP
TAUS = (0.25, 0.75, 1.0)  # beside the profile's own
SHARES = (0.5, 0.1)  # of the student's rows that carry the victim's answers; the rest have gold labels
QUERIES = (0.5, 0.25, 0.1)  # of the queries, asked at all


@dataclass(frozen=True)
class Mode:
    """How keys, labels and detection are made: as the paper's code does, as its text says, or by default."""

    name: str
    law: Law  # how hashes are drawn from the key
    scope: Scope  # which selected answers are marked
    sampling: Sampling  # whether the hard label of a text is one draw for good ("keyed") or a new one each time
    sample_all: bool  # whether unmarked answers are drawn too, where labels are hard
    requery: bool  # whether hard labels are asked anew in every epoch
    # Whose answers P_snr is taken of: items that the clean victim calls c* ("victim"); items that are c* in truth,
    # less the least confident ("gold"); or all of them ("all"). Selected ones only, in every mode.
    probes: str


MODES = {
    mode.name: mode
    for mode in (
        Mode("default", "direct", "predicted", "keyed", sample_all=False, requery=False, probes="victim"),
        Mode("paper-text", "paper", "all", "keyed", sample_all=False, requery=False, probes="all"),
        Mode("paper-code", "paper", "predicted", "fresh", sample_all=True, requery=True, probes="gold"),
    )
}


@dataclass(frozen=True)
class Student:
    """One student, by all that tells it from others. ``None`` stands for what the profile, task or mode say."""

    task: str
    teacher: str  # whose labels it learned: watermarked, unwatermarked or gold
    labels: str = "soft"  # or "hard", or "argmax" of soft answers
    seed: int = 1  # of its weights and its training; and of the key that it is tested with
    mode: str = "default"  # how the victim's answers were made
    epsilon: float | None = None
    tau: float | None = None
    target: str | None = None
    rule: str | None = None
    share: float = 1.0  # of its rows, those with the victim's answers; the rest have gold labels
    queries: float = 1.0  # of the queries, those asked
    prepended: bool = False  # whether the thief put two words before every text it asked
    encoder: str | None = None  # "other": the one that the run was given beside the victim's

    @property
    def name(self) -> str:
        """A name that tells it from all others, without what is as usual."""
        parts = [self.task, self.teacher]
        if self.teacher != GOLD:
            parts.append(self.labels)
        if self.teacher == WATERMARKED:
            parts.append(self.mode)
        for field in dataclasses.fields(self)[5:]:
            value = getattr(self, field.name)
            if value != field.default:
                parts.append(f"{field.name}={value}")
        return "/".join([*parts, f"seed={self.seed}"])

    def settings(self) -> dict[str, Any]:
        """All that is set, for the record."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Job:
    """A piece of work: its kind, what it is about, and the jobs whose results it needs."""

    kind: str
    task: str
    student: Student | None = None
    key_of: Student | None = None  # whose key a score is computed with, where it is not the student's own
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        parts = [self.kind, self.task if self.student is None else self.student.name]
        if self.key_of is not None:
            parts += ["by", self.key_of.mode]
        return " ".join(parts)

    @property
    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"job": self.name, "kind": self.kind, "task": self.task}
        return about if self.student is None else {**about, "student": self.student.settings()}


@dataclass(frozen=True)
class Part:
    """A part of the paper: the tasks it is run on, and the settings of the students that it wants for every seed."""

    tasks: tuple[str, ...]
    settings: Sequence[dict[str, Any]]

    def students(self, task: str, seed: int = 1) -> list[Student]:
        """Its students of a task and a seed; of the watermarked victim, unless a setting says otherwise."""
        return [
            Student(**{"task": task, "teacher": WATERMARKED, "seed": seed, **setting}) for setting in self.settings
        ]


ALL_TASKS = ("pos", "ner", "sst2", "mrpc")
PARTS = {
    "tables": Part(
        ALL_TASKS,
        [
            *({"labels": labels} for labels in LABELS),
            {"teacher": GOLD},
            *({"teacher": UNWATERMARKED, "labels": labels} for labels in LABELS),
        ],
    ),
    "modes": Part(ALL_TASKS, [{"labels": labels, "mode": mode} for mode in OTHER_MODES for labels in LABELS]),
    "epsilon": Part(("ner",), [{"labels": labels, "epsilon": epsilon} for labels in LABELS for epsilon in EPSILONS]),
    "category": Part(("pos",), [{"labels": labels, "target": target} for target in CATEGORIES for labels in LABELS]),
    "tau": Part(("mrpc", "ner"), [{"tau": tau} for tau in TAUS]),
    "rule": Part(
        ("sst2",),
        [
            {"rule": "rarest"},
            {"prepended": True},  # the thief puts two words before every text
            {"rule": "rarest", "prepended": True},
            {"rule": "rarest", "labels": "hard"},
        ],
    ),
    "limits": Part(  # the three that the paper names
        ("ner",),
        [{"labels": "argmax"}, *({"share": share} for share in SHARES), *({"queries": part} for part in QUERIES)],
    ),
    "case": Part((CASE_TASK,), [{"encoder": "other", "seed": CASE_SEED}]),  # beside the students of the tables
}


def make_jobs(
    profile: Profile,
    *,
    parts: Sequence[str] = ("tables",),
    tasks: Sequence[str] | None = None,
    students: int | None = None,
    other_encoder: bool = False,
) -> list[Job]:
    """The jobs of a run, each after those it needs.

    ``students`` is the number of every kind, in place of the profile's; ``other_encoder`` says whether there is
    another encoder, which the part ``case`` wants.
    """
    unknown = [part for part in parts if part not in PARTS]
    if unknown or not parts:
        raise ConfigurationError(f"parts {unknown} are not known; choose some of {list(PARTS)}")
    tasks = profile.tasks if tasks is None else tasks
    strange = [task for task in tasks if task not in profile.tasks]
    if strange:
        raise ConfigurationError(f"the profile {profile.name} has the tasks {list(profile.tasks)}; not {strange}")
    wanted: dict[Student, None] = {}
    for part in parts:
        count = students or (profile.students if part == "tables" else profile.ablated)
        # Seed by seed over all tasks, so that a run that is stopped has something to show for each.
        for seed in range(1, count + 1):
            for task in tasks:
                if task in PARTS[part].tasks:
                    wanted |= dict.fromkeys(PARTS[part].students(task, seed))
    if not wanted:
        raise ConfigurationError(
            f"there is nothing to do: parts {list(parts)} have no students for the tasks {list(tasks)}; the parts' "
            "tasks are " + ", ".join(f"{part}: {list(PARTS[part].tasks)}" for part in parts)
        )
    if not other_encoder and any(student.encoder for student in wanted):
        raise ConfigurationError(
            "the part case has a student of another encoder than its victim's; name it with --other-encoder"
        )
    jobs: dict[str, Job] = {}
    for student in wanted:
        for job in _of_student(student, "modes" in parts):
            jobs.setdefault(job.name, job)
    return list(jobs.values())


def _of_student(student: Student, other_modes: bool) -> Iterator[Job]:
    task = student.task
    victim = Job("victim", task)
    trained = Job("student", task, student, needs=(victim.name,))
    probed = Job("probe", task, student, needs=(victim.name, trained.name))
    score = Job("score", task, student, needs=(victim.name, probed.name))
    yield from (victim, Job("accuracy", task, needs=(victim.name,)), trained, probed, score)
    if student.teacher != WATERMARKED and other_modes:
        for mode in OTHER_MODES:
            yield dataclasses.replace(score, key_of=dataclasses.replace(student, mode=mode))
