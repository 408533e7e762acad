"""Runs: what is written, going on after a kill, sharing the work, and what goes wrong.

The jobs are stand-ins that cost nothing; processes and kills are real.
"""

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cheap_jobs import make_run, work
from drw_hf.errors import ConfigurationError
from drw_hf.experiments.profiles import load_profile
from drw_hf.runs import jobs as runs
from drw_hf.runs.jobs import claimed, watch, work_through
from drw_hf.runs.lines import append_line, read_lines
from drw_hf.runs.progress import in_words

STUDENT = "student pos/watermarked/soft/default/seed=1"
PROBE, SCORE = STUDENT.replace("student", "probe", 1), STUDENT.replace("student", "score", 1)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(runs, "_PAUSE", 0.02)


@pytest.fixture(scope="module")
def start():
    """start(folder, ...): a process of its own that works on a run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["drw_hf.runs.jobs"])
    started = []

    def start(folder, **settings):
        process = context.Process(target=work, args=(folder,), kwargs=settings)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def until(condition, seconds=120):
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def names_of(found):
    return [job.name for job in found]


def claims_of(run):
    """The jobs that some process holds."""
    held = []
    for job in run.jobs:
        with claimed(run, job) as mine:
            held += [] if mine else [job.name]
    return held


def drop_lines(run, *jobs):
    """Forget that jobs were done."""
    kept = [record for record in read_lines(run.lines) if record["job"] not in jobs]
    run.lines.write_text("".join(json.dumps(record) + "\n" for record in kept))


# -- lines


def test_every_job_leaves_one_line_that_says_what_it_was(tmp_path):
    run = make_run(tmp_path)
    told = []
    work_through(run, lambda: told.append(len(run.done())))
    records = read_lines(run.lines)
    assert [record["job"] for record in records] == ["settings", *names_of(run.jobs)], "in the order of the list"
    assert told == list(range(2, len(records) + 1)), "whoever listens hears of each"
    for job, record in zip(run.jobs, records[1:], strict=True):
        assert (record["kind"], record["task"], record["rows"]) == (job.kind, job.task, 1)
        assert record["seconds"] >= 0
        assert record.get("student") == (job.student and job.student.settings())
    assert not run.failures.exists() and not claims_of(run)


def test_a_finished_run_has_nothing_to_do(tmp_path):
    work_through(make_run(tmp_path))
    again = make_run(tmp_path)
    before = again.lines.read_bytes()
    assert again.open_jobs(again.done()) == []
    work_through(again)
    assert again.lines.read_bytes() == before


def test_more_students_are_only_added(tmp_path):
    work_through(make_run(tmp_path))
    more = make_run(tmp_path, students=2)
    assert {job.student.seed for job in more.open_jobs(more.done())} == {2}
    work_through(more)
    assert set(more.workshop.times().values()) == {1}


def test_wherever_a_file_is_torn_whole_lines_count_and_the_next_is_whole_too(tmp_path):
    written, path = [{"job": "first", "z": 1.5}, {"job": "second, “quoted”"}], tmp_path / "lines.jsonl"
    assert read_lines(path) == []
    for record in written:
        append_line(path, record)
    whole = path.read_bytes()
    first = whole.index(b"\n")
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = written[: 0 if cut < first else 1 if cut < len(whole) - 1 else 2]
        assert read_lines(path) == kept
        append_line(path, {"job": "next"})
        assert read_lines(path) == [*kept, {"job": "next"}]


# -- going on


def test_a_run_that_was_killed_goes_on_and_does_nothing_twice_but_the_job_it_was_killed_in(tmp_path, start):
    process = start(tmp_path, hanging=frozenset({PROBE}))
    run = make_run(tmp_path)
    until(lambda: PROBE in run.workshop.times())
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with run.lines.open("ab") as file:
        file.write(b'{"job": "probe pos/wat')  # killed while it wrote
    finished = set(run.done()) - {"settings"}
    assert not claims_of(run), "what a dead process held is free"
    assert STUDENT in finished and PROBE not in finished
    work_through(run)
    assert set(run.done()) == {"settings", *names_of(run.jobs)}
    assert run.workshop.times() == {**dict.fromkeys(names_of(run.jobs), 1), PROBE: 2}
    assert not claims_of(run)


def test_workers_share_the_jobs_and_never_do_the_same_one(tmp_path, start):
    run = make_run(tmp_path)
    workers = [start(tmp_path, together=3, seconds=0.03) for _ in range(3)]
    for process in workers:
        process.join(120)
        assert process.exitcode == 0
    assert run.workshop.times() == dict.fromkeys(names_of(run.jobs), 1)
    assert len({pid for pid, _ in run.workshop.begun()}) > 1
    assert len(read_lines(run.lines)) == len(run.jobs) + 1 and not claims_of(run)
    order = [record["job"] for record in read_lines(run.lines)]
    for job in run.jobs:
        assert all(order.index(need) < order.index(job.name) for need in job.needs)


# -- claims


def test_a_claim_holds_while_its_process_lives_and_no_longer(tmp_path, start):
    process = start(tmp_path, hanging=frozenset({PROBE}))
    run = make_run(tmp_path)
    until(lambda: PROBE in run.workshop.times())
    assert claims_of(run) == [PROBE]
    process.kill()
    process.join()
    assert claims_of(run) == []


def test_a_job_can_be_claimed_once_at_a_time_and_an_error_releases_it(tmp_path):
    run = make_run(tmp_path)
    one, other = run.jobs[:2]
    with pytest.raises(KeyboardInterrupt), claimed(run, one) as first, claimed(run, one) as again:
        assert first and not again
        with claimed(run, other) as second:
            assert second
        raise KeyboardInterrupt
    with claimed(run, one) as mine:
        assert mine


def test_what_another_has_done_meanwhile_is_left_alone(tmp_path, monkeypatch):
    """Between looking and claiming, somebody else may have begun and ended a job."""
    run = make_run(tmp_path, tasks=["sst2"])
    first = run.jobs[0]

    @contextlib.contextmanager
    def late(which, job):
        if job is first and first.name not in run.done():
            run.workshop.path(first).mkdir(parents=True)
            append_line(run.lines, {"job": first.name, "by": "another"})
        with claimed(which, job) as mine:
            yield mine

    monkeypatch.setattr(runs, "claimed", late)
    work_through(run)
    assert first.name not in run.workshop.times() and len(run.done()) == len(run.jobs) + 1


# -- what goes wrong


def test_a_job_that_fails_stops_no_others_and_what_needs_it_is_not_tried(tmp_path, capsys):
    run = make_run(tmp_path, failing=frozenset({STUDENT}))
    work_through(run)
    assert set(names_of(run.jobs)) - set(run.done()) == {STUDENT, PROBE, SCORE}
    assert run.workshop.times() == dict.fromkeys(set(names_of(run.jobs)) - {PROBE, SCORE}, 1)
    (failure,) = read_lines(run.failures)
    assert failure["job"] == STUDENT and failure["error"] == "RuntimeError: as asked"
    assert failure["student"]["teacher"] == "watermarked"
    assert f"{STUDENT}: RuntimeError: as asked" in capsys.readouterr().err

    again = make_run(tmp_path)
    assert names_of(again.open_jobs(again.done())) == [STUDENT, PROBE, SCORE]
    work_through(again)
    assert STUDENT not in again.done(), "other workers of the same run leave it alone"
    again.forget_failures()
    work_through(again)
    assert set(again.done()) == {"settings", *names_of(again.jobs)}


def test_without_its_victim_a_task_is_left_out(tmp_path):
    run = make_run(tmp_path, failing=frozenset({"victim pos"}))
    work_through(run)
    assert {job.task for job in run.open_jobs(run.done())} == {"pos"}
    assert [name for name in run.workshop.times() if "pos" in name] == ["victim pos"]


def test_an_interrupt_ends_the_run_and_leaves_no_claim(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    monkeypatch.setattr(type(run.workshop), "do", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        work_through(run)
    assert not claims_of(run) and not run.failures.exists()


# -- results that were thrown away


def throw_away(run, *jobs):
    for job in run.jobs:
        if job.name in jobs:
            run.workshop.path(job).rmdir()


def test_models_that_nothing_needs_any_more_may_be_thrown_away(tmp_path):
    run = make_run(tmp_path)
    work_through(run)
    throw_away(run, "victim pos", STUDENT, PROBE)
    assert run.open_jobs(run.done()) == []


@pytest.mark.parametrize(
    ("thrown_away", "done_again"),
    [
        ([STUDENT], [SCORE]),
        ([PROBE], [PROBE, SCORE]),
        ([STUDENT, PROBE], [STUDENT, PROBE, SCORE]),
        (["victim pos", STUDENT], ["victim pos", SCORE]),
        (["victim pos", STUDENT, PROBE], ["victim pos", STUDENT, PROBE, SCORE]),
    ],
)
def test_they_are_made_again_where_a_job_that_is_open_needs_them(tmp_path, thrown_away, done_again):
    run = make_run(tmp_path)
    work_through(run)
    throw_away(run, *thrown_away)
    drop_lines(run, SCORE)
    assert names_of(run.open_jobs(run.done())) == done_again
    work_through(run)
    assert {name for name, times in run.workshop.times().items() if times == 2} == set(done_again)


# -- settings


def test_the_first_line_says_what_the_run_was_made_with(tmp_path):
    run = make_run(tmp_path)
    first = read_lines(run.lines)[0]
    profile = run.workshop.profile
    assert first["job"] == "settings" and first["profile"] == "smoke"
    assert first["key"] == profile.key
    assert first["tasks"]["ner"]["student"]["epochs"] == profile.settings["ner"].student.epochs
    assert {"drw_hf", "torch", "transformers"} <= set(first["versions"])


def test_lines_of_other_settings_are_refused(tmp_path):
    run = make_run(tmp_path)
    before = run.lines.read_bytes()
    for changed in ({"key": {**run.workshop.profile.key, "tau": 0.4}}, {"name": "other"}):
        profile = dataclasses.replace(run.workshop.profile, **changed)
        other = dataclasses.replace(run, workshop=dataclasses.replace(run.workshop, profile=profile))
        named = {"name": "profile"}.get(*changed, *changed)
        with pytest.raises(ConfigurationError, match=rf"holds results of other settings \({named}\); choose another"):
            other.prepare()
    fewer = dataclasses.replace(run.workshop.profile, students=7, ablated=3)
    dataclasses.replace(run, workshop=dataclasses.replace(run.workshop, profile=fewer)).prepare()
    assert run.lines.read_bytes() == before, "how many students are wanted is no such setting"


def test_lines_that_say_nothing_of_their_settings_are_refused(tmp_path):
    (tmp_path / "lines.jsonl").write_text('{"job": "victim pos"}\n')
    with pytest.raises(ConfigurationError, match="holds results of other settings"):
        make_run(tmp_path)


def test_what_is_described_holds_no_paths():
    profile = load_profile("paper", encoder="/home/somebody/models/encoder-of-mine/")
    found = profile.described()
    assert found["encoder"]["pretrained"] == "encoder-of-mine"
    assert "/" not in json.dumps(found)
    assert json.loads(json.dumps(found)) == found, "it comes back from the file as it was"


# -- workers of one's own


def processes_under(folder):
    """A launcher that waits for a worker, as accelerate's does; both write their numbers."""
    code = "import os, pathlib, subprocess, sys; folder = pathlib.Path(sys.argv[1])\n"
    code += "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    code += "(folder / 'new').write_text(str(worker.pid)); (folder / 'new').rename(folder / 'worker'); worker.wait()"
    launcher = subprocess.Popen([sys.executable, "-c", code, str(folder)], process_group=0)
    until(lambda: (folder / "worker").exists())
    return launcher, int((folder / "worker").read_text())


@contextlib.contextmanager
def handled(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def is_gone(pid):
    """Ended, if not yet taken note of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whether a process is gone")
@pytest.mark.parametrize(
    ("end", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit), (signal.SIGHUP, SystemExit)],
)
def test_workers_end_with_who_waits_for_them(tmp_path, end, error):
    run = make_run(tmp_path)
    launcher, worker = processes_under(tmp_path)
    usual = signal.default_int_handler if end == signal.SIGINT else signal.SIG_DFL
    with handled(end, usual):  # whoever started the tests may have had it ignored
        with pytest.raises(error):
            watch(run, [launcher], lambda: os.kill(os.getpid(), end))
        assert signal.getsignal(end) == usual
    assert launcher.returncode is not None
    until(lambda: is_gone(worker))


def test_under_nohup_a_hangup_ends_nothing(tmp_path):
    heard = []
    with handled(signal.SIGHUP, signal.SIG_IGN):
        watch(make_run(tmp_path), [], lambda: heard.append(os.kill(os.getpid(), signal.SIGHUP)))
    assert len(heard) == 1


def test_who_waits_hears_of_new_lines_and_ends_with_the_workers(tmp_path, start):
    run, heard = make_run(tmp_path), []
    process = start(tmp_path, seconds=0.02)
    process.poll = lambda: process.exitcode
    watch(run, [process], lambda: heard.append(len(run.done())))
    # A line may come between the look that found a change and the count here: then the same count is heard again.
    assert heard == sorted(heard) and len(set(heard)) > 2
    assert heard[-1] == len(run.jobs) + 1


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [(2, "", ["0", "1", "0"]), (2, "5,7", ["5", "7", "5"]), (0, "", [None, None, None])],
)
def test_every_worker_is_launched_on_a_device_of_its_own(monkeypatch, tmp_path, gpus, visible, expected):
    """Which GPU is whose can be seen without one; that a worker trains on it cannot."""
    started = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **options: started.append((command, options["env"])))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    runs.start_workers(["reproduce", "tiny", "--worker"], 3, tmp_path)
    assert [environment.get("CUDA_VISIBLE_DEVICES") for _, environment in started] == expected
    for command, _ in started:
        assert "accelerate.commands.launch" in command
        assert command[-5:] == ["-m", "drw_hf.cli", "reproduce", "tiny", "--worker"]
        assert command[command.index("--num_cpu_threads_per_process") + 1] == "2", "its share of the cores"
        settings = Path(command[command.index("--config_file") + 1]).read_text()
        assert "distributed_type: 'NO'" in settings, "whatever the user's own configuration asks for"
        assert f"use_cpu: {'false' if gpus else 'true'}" in settings


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (89, "89 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations_are_said_as_people_say_them(seconds, words):
    assert in_words(seconds) == words
