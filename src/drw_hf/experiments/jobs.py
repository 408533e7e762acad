"""What a run consists of: independent jobs, each a model to train, to probe or to score.

Pure: from a profile and what is wanted to the list of jobs, in the order in which they are worth doing.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigurationError
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
class Student:
    """One student, by all that tells it from others. ``None`` stands for what the profile, the task or the mode say.

    Attributes
    ----------
    task : str
    teacher : str
        ``"watermarked"``, ``"unwatermarked"`` or ``"gold"``: whose labels it learned.
    labels : str
        ``"soft"``, ``"hard"``, or ``"argmax"`` of soft answers.
    seed : int
        Of its weights and its training; and of the key that it is tested with.
    mode : str
        How the victim's answers were made.
    epsilon, tau, target, rule
        Settings of the key that an ablation varies.
    share, queries : float
        Of its rows, those with the victim's answers; of the queries, those asked.
    prepended : bool
        Whether the thief put two words before every text it asked.
    encoder : str
        Another encoder than the victim's: ``"other"``, the one that the run was given for it.
    """

    task: str
    teacher: str
    labels: str = "soft"
    seed: int = 1
    mode: str = "default"
    epsilon: float | None = None
    tau: float | None = None
    target: str | None = None
    rule: str | None = None
    share: float = 1.0
    queries: float = 1.0
    prepended: bool = False
    encoder: str | None = None

    @property
    def name(self) -> str:
        """A name that tells it from all others, without what is as usual."""
        if self.teacher == GOLD:
            parts = [self.task, GOLD]
        elif self.teacher == UNWATERMARKED:
            parts = [self.task, UNWATERMARKED, self.labels]
        else:
            parts = [self.task, WATERMARKED, self.labels, self.mode]
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        for field in ("epsilon", "tau", "target", "rule", "share", "queries", "prepended", "encoder"):
            value = getattr(self, field)
            if value != usual[field]:
                parts.append(f"{field}={value}")
        return "/".join([*parts, f"seed={self.seed}"])

    def settings(self) -> dict[str, Any]:
        """All fields, for the record."""
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
        """The name its line goes by."""
        parts = [self.kind, self.task if self.student is None else self.student.name]
        if self.key_of is not None:
            parts += ["by", self.key_of.mode]
        return " ".join(parts)

    @property
    def about(self) -> dict[str, Any]:
        """What its line begins with."""
        about: dict[str, Any] = {"job": self.name, "kind": self.kind, "task": self.task}
        return about if self.student is None else {**about, "student": self.student.settings()}


# -- what the parts of the paper need: the students of a task and a seed


def table_students(task: str, seed: int) -> list[Student]:
    """Tables 1 and 2: a student of each label kind with and without mark, and one of gold labels."""
    marked, clean = (
        [Student(task, teacher, labels, seed) for labels in LABELS] for teacher in (WATERMARKED, UNWATERMARKED)
    )
    return [*marked, Student(task, GOLD, seed=seed), *clean]


def mode_students(task: str, seed: int) -> list[Student]:
    """The same victim robbed as the paper's code and as its text have it."""
    return [Student(task, WATERMARKED, labels, seed, mode) for mode in OTHER_MODES for labels in LABELS]


def epsilon_students(task: str, seed: int) -> list[Student]:
    """Fainter marks."""
    return [Student(task, WATERMARKED, labels, seed, epsilon=epsilon) for labels in LABELS for epsilon in EPSILONS]


def category_students(task: str, seed: int) -> list[Student]:
    """Other target classes."""
    return [Student(task, WATERMARKED, labels, seed, target=target) for target in CATEGORIES for labels in LABELS]


def tau_students(task: str, seed: int) -> list[Student]:
    """More and fewer marked answers."""
    return [Student(task, WATERMARKED, "soft", seed, tau=tau) for tau in TAUS]


def rule_students(task: str, seed: int) -> list[Student]:
    """Another token to hash, and a thief who prepends two words."""
    return [
        Student(task, WATERMARKED, "soft", seed, rule="rarest"),
        Student(task, WATERMARKED, "soft", seed, prepended=True),
        Student(task, WATERMARKED, "soft", seed, rule="rarest", prepended=True),
        Student(task, WATERMARKED, "hard", seed, rule="rarest"),
    ]


def limit_students(task: str, seed: int) -> list[Student]:
    """The three limits that the paper names."""
    shares = [Student(task, WATERMARKED, "soft", seed, share=share) for share in SHARES]
    queries = [Student(task, WATERMARKED, "soft", seed, queries=queries) for queries in QUERIES]
    return [Student(task, WATERMARKED, "argmax", seed), *shares, *queries]


def case_students(task: str, seed: int) -> list[Student]:
    """What the case study needs beside the table: one student that starts from another encoder."""
    return [Student(task, WATERMARKED, "soft", seed, encoder="other")] if seed == CASE_SEED else []


PARTS = {
    "tables": (table_students, ("pos", "ner", "sst2", "mrpc")),
    "modes": (mode_students, ("pos", "ner", "sst2", "mrpc")),
    "epsilon": (epsilon_students, ("ner",)),
    "category": (category_students, ("pos",)),
    "tau": (tau_students, ("mrpc", "ner")),
    "rule": (rule_students, ("sst2",)),
    "limits": (limit_students, ("ner",)),
    "case": (case_students, ("ner",)),
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

    Parameters
    ----------
    profile : Profile
    parts : sequence of str
        Of `PARTS`.
    tasks : sequence of str, optional
        Of the profile's.
    students : int, optional
        Students of every kind, in place of the profile's numbers.
    other_encoder : bool
        Whether there is another encoder, which the part ``case`` wants.
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
        make, usual = PARTS[part]
        count = students or (profile.students if part == "tables" else profile.ablated)
        # Seed by seed over all tasks, so that a run that is stopped has something to show for each.
        for seed in range(1, count + 1):
            for task in tasks:
                if task in usual:
                    wanted.update(dict.fromkeys(make(task, seed)))
    if not wanted:
        raise ConfigurationError(
            f"there is nothing to do: parts {list(parts)} have no students for the tasks {list(tasks)}; the parts' "
            "tasks are " + ", ".join(f"{part}: {list(PARTS[part][1])}" for part in parts)
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
    victim = Job("victim", student.task)
    yield victim
    yield Job("accuracy", student.task, needs=(victim.name,))
    trained = Job("student", student.task, student, needs=(victim.name,))
    yield trained
    probed = Job("probe", student.task, student, needs=(victim.name, trained.name))
    yield probed
    yield Job("score", student.task, student, needs=(victim.name, probed.name))
    if student.teacher != WATERMARKED and other_modes:
        for mode in OTHER_MODES:
            as_if = dataclasses.replace(student, mode=mode)
            yield Job("score", student.task, student, as_if, needs=(victim.name, probed.name))
