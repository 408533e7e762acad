"""Running jobs: one line of JSON as each ends, in one process or several; a run that was stopped goes on.

Workers share nothing but the folder. A worker takes the first job that nobody has taken and whose needs are there, by
locking a file; with a folder that several machines see and can lock files in, workers may be on all of them.
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ..errors import ConfigurationError, JobsFailedError
from .lines import Record, append_line, read_lines

SETTINGS = "settings"  # the name of the first line, which says what the run was made with
_LIBRARIES = ("drw_hf", "torch", "transformers", "datasets", "accelerate", "numpy")
_PAUSE = 1.0  # seconds between two looks at what others have done


@dataclass(frozen=True)
class Run:
    """A list of jobs and where their lines go.

    A job has a ``name``, the names of the jobs it ``needs``, and what its line begins with, ``about``. The workshop
    does jobs: ``do(job)`` returns a record, ``made(job)`` says whether what other jobs need of it is there, and its
    ``folder`` is where workers meet.
    """

    workshop: Any
    jobs: Sequence[Any]  # each after those it needs
    lines: Path
    named_by: tuple[str, ...] = ("job",)  # the fields of a line that make the name of its job

    @property
    def failures(self) -> Path:
        return self.lines.with_suffix(".failed.jsonl")

    def prepare(self) -> None:
        """Write the first line, or see that these lines were made with the same settings."""
        settings = self.workshop.profile.described()
        self.lines.parent.mkdir(parents=True, exist_ok=True)
        records = read_lines(self.lines)
        if not records:
            versions = {name: version(name) for name in _LIBRARIES}
            append_line(self.lines, {"job": SETTINGS, **settings, "versions": versions})
            return
        differing = [name for name in settings if records[0].get(name) != settings[name]]
        if records[0].get("job") != SETTINGS or differing:
            raise ConfigurationError(
                f"{self.lines} holds results of other settings ({', '.join(differing) or 'none are named'}); choose "
                "another --output, or what it was made with"
            )

    def forget_failures(self) -> None:
        """Of an earlier run: what failed then is tried again."""
        self.failures.unlink(missing_ok=True)

    def done(self) -> dict[str, Record]:
        return {name_of(record, self.named_by): record for record in read_lines(self.lines)}

    def open_jobs(self, done: Mapping[str, Any] | None = None) -> list[Any]:
        """What is still to do: jobs without a line, and those whose result was thrown away though another needs it."""
        by_name = {job.name: job for job in self.jobs}
        missing = by_name.keys() - (self.done() if done is None else done).keys()
        for job in reversed(self.jobs):
            if job.name in missing:
                needed = [by_name[name] for name in job.needs if name in by_name]
                missing |= {other.name for other in needed if not self.workshop.made(other)}
        return [job for job in self.jobs if job.name in missing]

    def check_finished(self) -> None:
        left = self.open_jobs()
        if left:
            why = f"{self.failures} says why" if self.failures.exists() else "its workers ended before their time"
            raise JobsFailedError(
                f"{len(left)} of {len(self.jobs)} jobs are not done, {left[0].name!r} first; {why}, and the same "
                "command tries them again"
            )


def name_of(record: Record, fields: Sequence[str]) -> str:
    """The name of a job, from those of the fields that it has."""
    return ", ".join(str(record[field]) for field in fields if field in record)


# -- doing


def work_through(run: Run, on_done: Callable[[], None] = lambda: None) -> None:
    """Do jobs until none is left that this process can do."""
    while True:
        failed = {name_of(record, run.named_by) for record in read_lines(run.failures)}  # nobody tries them again
        todo = {}
        for job in run.open_jobs():  # each after those it needs
            if failed.isdisjoint({job.name, *job.needs}):
                todo[job.name] = job
            else:
                failed.add(job.name)
        for job in todo.values():
            if not todo.keys().isdisjoint(job.needs):
                continue
            with claimed(run, job) as mine:
                if not mine or (job.name in run.done() and run.workshop.made(job)):
                    continue
                _do(run, job)
                on_done()
                break
        else:
            if not todo:
                return
            time.sleep(_PAUSE)  # others are at work on what the rest needs


def _do(run: Run, job: Any) -> None:
    """Do a job and write its line, or what went wrong."""
    start = time.perf_counter()
    try:
        record = run.workshop.do(job)
    except Exception as error:  # one bad job must not end a night's run
        why = f"{type(error).__name__}: {error}"
        append_line(run.failures, {**job.about, "error": why, "traceback": traceback.format_exc()})
        print(f"{job.name}: {why}", file=sys.stderr, flush=True)
        return
    append_line(run.lines, {**job.about, "seconds": round(time.perf_counter() - start, 1), **record})


@contextlib.contextmanager
def claimed(run: Run, job: Any) -> Iterator[bool]:
    """Whether this process may do a job: who holds its lock may. The system frees it if the process dies."""
    folder = run.workshop.folder / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(folder / f"{hashlib.sha256(job.name.encode()).hexdigest()[:24]}.lock").acquire(blocking=False)
    except Timeout:
        yield False
        return
    with lock:
        yield True


# -- many workers


def start_workers(arguments: Sequence[str], workers: int, folder: Path) -> list[subprocess.Popen]:
    """Processes that do the same command's jobs, each under ``accelerate launch`` with a device of its own.

    They are launched with a configuration of their own, in ``folder``: the user's may ask for many processes.
    """
    gpus = visible_gpus()
    folder.mkdir(parents=True, exist_ok=True)
    configuration = folder / "accelerate.yaml"
    configuration.write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: 'no'\n"
        f"num_machines: 1\nnum_processes: 1\nuse_cpu: {'false' if gpus else 'true'}\n"
    )
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(configuration)]
    launch += ["--num_cpu_threads_per_process", str(max(1, (os.cpu_count() or 1) // workers))]
    command = [*launch, "-m", "drw_hf.cli", *arguments]
    devices = [{"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if gpus else {} for number in range(workers)]
    return [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0, env={**os.environ, **device})
        for device in devices
    ]


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return (named or [str(number) for number in range(torch.cuda.device_count())]) if torch.cuda.is_available() else []


def watch(run: Run, processes: Sequence[subprocess.Popen], on_change: Callable[[], None]) -> None:
    """Wait for workers, telling of every line they write; they end with whoever waits for them."""
    count, alive = -1, True
    with _ends_with(processes):
        while alive:
            alive = any(process.poll() is None for process in processes)
            before, count = count, len(read_lines(run.lines))
            if count != before:
                on_change()
            if alive:
                time.sleep(_PAUSE)


@contextlib.contextmanager
def _ends_with(processes: Sequence[subprocess.Popen]) -> Iterator[None]:
    """End processes after this, also where a signal ends it."""

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    # A signal that is ignored, as under nohup, stays so.
    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_DFL]
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)  # the launcher alone would leave its worker behind
                process.wait()
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
