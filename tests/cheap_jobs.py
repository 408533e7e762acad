"""A workshop whose jobs cost nothing, for tests of how jobs are run; importable by processes that tests start."""

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from drw_hf.experiments.jobs import make_jobs
from drw_hf.experiments.profiles import load_profile
from drw_hf.experiments.work import Workshop
from drw_hf.runs import jobs as runs


@dataclass(frozen=True)
class CheapWorkshop(Workshop):
    """Writes who began which job; what real jobs leave behind is an empty folder."""

    seconds: float = 0.0
    failing: frozenset[str] = frozenset()
    hanging: frozenset[str] = frozenset()

    def do(self, job):
        with (self.folder / "begun").open("a") as file:
            file.write(f"{os.getpid()} {job.name}\n")
        time.sleep(600 if job.name in self.hanging else self.seconds)
        if job.name in self.failing:
            raise RuntimeError("as asked")
        if job.kind in ("victim", "student", "probe"):
            self.path(job).mkdir(parents=True, exist_ok=True)
        return {"rows": 1}

    def begun(self) -> list[tuple[int, str]]:
        """Who began what so far."""
        path = self.folder / "begun"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), job) for pid, job in (line.split(" ", 1) for line in lines)]

    def times(self) -> Counter[str]:
        """How often every job was begun."""
        return Counter(job for _, job in self.begun())


def make_run(folder: Path, students: int = 1, tasks=None, **settings) -> runs.Run:
    """The smoke profile's tables as a run of cheap jobs."""
    profile = load_profile("smoke")
    workshop = CheapWorkshop(profile, folder / "work", **settings)
    run = runs.Run(workshop, make_jobs(profile, students=students, tasks=tasks), folder / "lines.jsonl")
    run.prepare()
    return run


def work(folder: Path, together: int = 1, **settings) -> None:
    """What a process that a test starts does: when so many processes are there, it works."""
    runs._PAUSE = 0.02
    (folder / f"ready-{os.getpid()}").touch()
    while len(list(folder.glob("ready-*"))) < together:
        time.sleep(0.01)
    runs.work_through(make_run(folder, **settings))
