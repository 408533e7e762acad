"""What the experiments with marks consist of: jobs, in the order in which they are worth doing.

Pure: from settings to jobs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .marks_settings import SEEDS, Setting
from .marks_thieves import ATTACKED, CLEAN, GOLD, HARD, SOFT, STUDENTS

OTHER_KEY = "innocent: another key's student"  # a soft student, tested with a key that it has nothing to do with


@dataclass(frozen=True)
class Job:
    """A piece of work: a victim to train, its answers to be judged, a student to train and probe, or one to score."""

    kind: str
    setting: str
    student: str = ""
    seed: int = 0
    needs: tuple[str, ...] = ()
    reference: int = 0  # the seed of the student of unmarked answers that is the reference

    @property
    def name(self) -> str:
        parts = [self.kind, self.setting, self.student, f"seed {self.seed}" if self.seed else ""]
        return ", ".join(part for part in parts if part)

    @property
    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = {"job": self.name, "kind": self.kind, "setting": self.setting}
        return {**about, "student": self.student, "seed": self.seed} if self.student else about


def make_jobs(settings: Sequence[Setting], seeds: Sequence[int] = SEEDS) -> list[Job]:
    """All jobs, each after those it needs: for each seed, soft and hard students of all settings come first."""
    jobs = [job for setting in settings for job in _of_victim(setting)]
    for seed in seeds:
        for names in ((SOFT, HARD), ATTACKED):
            for setting in settings:
                jobs += [job for name in names for job in _of_student(setting, name, seed)]
    return jobs + [job for setting in settings for job in _with_reference(setting, seeds)]


def _with_reference(setting: Setting, seeds: Sequence[int]) -> Iterator[Job]:
    """Students tested with a reference: the owner's own student of unmarked answers, of another seed than theirs."""
    for name in (SOFT, HARD, GOLD):
        for seed in seeds:
            others = [one for one in setting.attacked if one in seeds and one != seed]
            if others and (name != GOLD or seed in setting.attacked):
                other = next((one for one in others if one > seed), others[0])
                needs = [Job("student", setting.name, *one).name for one in ((name, seed), (CLEAN, other))]
                yield Job("referenced", setting.name, name, seed, tuple(needs), reference=other)


def _of_victim(setting: Setting) -> Iterator[Job]:
    victim = Job("victim", setting.name)
    yield victim
    yield Job("served", setting.name, needs=(victim.name,))


def _of_student(setting: Setting, name: str, seed: int) -> Iterator[Job]:
    if name not in (SOFT, HARD) and seed not in setting.attacked:
        return
    if name == "floor" and len(setting.task.labels) == 2:
        return  # of two scores, the smaller one taken off leaves the argmax
    needs = [Job("victim", setting.name).name]
    of = STUDENTS[name].of
    if of is not None:
        needs.append(Job("student", setting.name, of, seed).name)
    student = Job("student", setting.name, name, seed, tuple(needs))
    yield student
    yield Job("score", setting.name, name, seed, (student.name,))
    if name == SOFT:
        yield Job("score", setting.name, OTHER_KEY, seed, (student.name,))
