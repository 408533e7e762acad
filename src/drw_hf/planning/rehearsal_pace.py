"""How long a rehearsal will take here: a few steps tried beforehand, and later what its attacks have taken."""

import dataclasses
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..asking.labelling import label_with_teacher
from ..extraction.attacks import attack_named
from ..runs.jobs import Run
from .rehearsal_bench import BASELINE, INNOCENT, LOGGED_AT_MOST, NOTHING, Bench

_EXAMINED = 0.3  # what probing and testing a student take, in trainings
_SURE = 3  # so many attacks tell more than what was tried beforehand
_TRIED = 128  # texts


@dataclass(frozen=True)
class Pace:
    """Seconds for the two things that take long.

    Attributes
    ----------
    training : float
        One student of all queries.
    asking : float
        The victim's answers to all queries.
    """

    training: float
    asking: float

    def of(self, job: str) -> float:
        """What a job would take."""
        trainings, asked = work_of(job)
        return (trainings + _EXAMINED) * self.training + asked * self.asking


_RELATIVE = Pace(training=1.0, asking=0.1)  # where nothing was tried: jobs are compared by it


def work_of(job: str) -> tuple[float, float]:
    """What a job is worth: students trained, and how often the victim answers as much as all queries.

    Texts of the thief's own are answered once for all attacks; others by the service, and by the clean model for the
    test.
    """
    if job in (BASELINE, NOTHING, INNOCENT):
        return float(job != BASELINE), {NOTHING: 2.0, INNOCENT: 0.0, BASELINE: 1.0}[job]
    attack = attack_named(job)
    if attack.stage != "queries":
        return attack.trainings, float(attack.accounts - 1)
    return attack.trainings, attack.questions + min(attack.questions, LOGGED_AT_MOST)


def try_pace(bench: Bench, seconds: float = 1.0) -> Pace:
    """The pace of this machine, from a few steps of training on made-up answers and a few questions to the victim."""
    n = min(len(bench.queries), _TRIED)
    texts, scale = bench.queries.select(range(n)), len(bench.queries) / n
    options: Any = {**bench.asking, "load_from_cache_file": False}
    with tempfile.TemporaryDirectory() as scratch:
        options["cache_dir"] = scratch
        start = time.perf_counter()
        label_with_teacher(bench.victim, texts, bench.tokenizer, **options)
        asking = (time.perf_counter() - start) * scale
    thief, rng, m = bench.thief(), np.random.default_rng(0), bench.key.num_labels
    answers = [rng.dirichlet(np.ones(m), len(row) if thief.by_word else None) for row in thief.words[:n]]
    rows = thief.rows(answers, texts)

    def trained(epochs: int) -> float:
        start = time.perf_counter()
        thief.train(rows, recipe=dataclasses.replace(bench.recipe, epochs=float(epochs), learning_rate=0.0, tries=1))
        return time.perf_counter() - start

    trained(1)  # the first steps are slower than the others
    once, more = trained(1), 2
    while (longer := trained(more)) < seconds and more < 64:
        more *= 2
    each = max(longer - once, 0.0) / (more - 1)  # whatever begins and ends a training is in both
    return Pace(max(once - each, 0.0) + each * scale * bench.recipe.epochs, asking)


def seconds_left(run: Run, pace: Pace | None = None) -> float | None:
    """How long the jobs that are left would take one worker; None while nothing is known.

    Once a few have ended, the others are expected to be as much faster or slower than the pace as these were.
    """
    done = run.done()
    known = pace or _RELATIVE
    ended = [job.name for job in run.jobs if "seconds" in done.get(job.name, {}) and "failed" not in done[job.name]]
    todo = sum(known.of(job.name) for job in run.open_jobs(done))
    if len(ended) >= _SURE:
        return todo * sum(done[name]["seconds"] for name in ended) / sum(map(known.of, ended))
    return None if pace is None else todo


def questions_asked(names: Sequence[str], n_queries: int) -> int:
    """How many questions the thieves of these attacks ask in all."""
    return sum(
        math.ceil(attack_named(name).questions * n_queries) for name in names if name not in (BASELINE, INNOCENT)
    )
