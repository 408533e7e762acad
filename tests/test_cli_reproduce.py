"""``drw-hf reproduce``: a small run of two real workers, going on, costs, reports, and what is refused."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import datasets
import pytest
from filelock import FileLock
from typer.testing import CliRunner

from drw_hf.cli import reproduce
from drw_hf.cli.main import app
from drw_hf.experiments.jobs import make_jobs
from drw_hf.experiments.profiles import load_profile
from drw_hf.experiments.tasks import load_corpus
from drw_hf.experiments.work import Workshop
from drw_hf.runs.lines import read_lines
from paper_data import write_paper_data

JOBS = [job.name for job in make_jobs(load_profile("smoke"), tasks=["ner"])]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_paper_data(tmp_path_factory.mktemp("paper"), train=60, validation=20, test=20)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        load_corpus.cache_clear()
        yield


@pytest.fixture(scope="module")
def ran(data, tmp_path_factory):
    """A run of one task by two workers, as a shell starts it."""
    folder = tmp_path_factory.mktemp("ran")
    command = ["reproduce", "smoke", "--task", "ner", "--data", data, "--workers", "2", "--output", "results"]
    environment = {**os.environ, "HF_DATASETS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-m", "drw_hf.cli", *command, "--json"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    return SimpleNamespace(output=folder / "results", folder=folder, stdout=found.stdout, stderr=found.stderr)


def play(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def of_ran(ran, data, *arguments):
    """The same command in this process, without workers of its own."""
    return play("smoke", "--task", "ner", "--data", data, "--output", ran.output, *arguments)


# -- a run


def test_two_workers_do_all_jobs_once_and_the_tables_and_figures_are_written(ran):
    records = read_lines(ran.output / "smoke.jsonl")
    assert records[0]["job"] == "settings" and sorted(record["job"] for record in records[1:]) == sorted(JOBS)
    document = json.loads(ran.stdout)
    assert document["lines"] == ["results/smoke.jsonl"] and document["tables"] == "results/tables.md"
    assert "NER" in (ran.output / "tables.md").read_text()
    assert document["figures"]
    for file in document["figures"]:
        assert (ran.folder / file).stat().st_size > 1000
    assert not (ran.output / "smoke.failed.jsonl").exists()


def test_what_is_written_for_others_names_no_place_on_this_machine(ran):
    for file in ("smoke.jsonl", "tables.md"):
        assert str(ran.folder.parent) not in (ran.output / file).read_text()


def test_models_and_probes_lie_in_the_work_folder(ran):
    work = ran.output / "work" / "smoke"
    assert (work / "victim" / "ner" / "model.safetensors").exists()
    assert len(list((work / "probe").iterdir())) == 5
    for lock in (work / "claims").iterdir():
        with FileLock(lock, timeout=0):  # nobody holds it any more
            pass


def test_started_again_it_does_nothing_new(ran, data, monkeypatch):
    monkeypatch.setattr(Workshop, "do", lambda *_: pytest.fail("there is nothing to do"))
    before = (ran.output / "smoke.jsonl").read_bytes()
    found = of_ran(ran, data)
    assert found.exit_code == 0, found.output
    assert (ran.output / "smoke.jsonl").read_bytes() == before
    dry = of_ran(ran, data, "--dry-run")
    assert dry.exit_code == 0 and f"0 jobs to do (none), {len(JOBS)} done." in dry.stdout


def test_report_writes_tables_and_figures_of_what_is_there(ran):
    before = (ran.output / "tables.md").read_text()
    (ran.output / "tables.md").unlink()
    found = play("--report", "--output", ran.output)
    assert found.exit_code == 0, found.output
    assert (ran.output / "tables.md").read_text() == before
    assert found.stdout.startswith(before.splitlines()[0]) and re.search(
        r"Wrote .*tables\.md and \d+ fig", found.stdout
    )


def test_what_is_still_to_do_is_estimated_by_what_was_done(ran, data):
    found = of_ran(ran, data, "--dry-run", "--students", 3, "--workers", 2)
    assert "30 jobs to do (10 student, 10 probe, 10 score), 17 done." in found.stdout
    assert re.search(r"on this machine with 2 workers \d+ (s|min), by the jobs done so far\.", found.stdout)


def test_lines_of_other_settings_are_refused(ran, data, tmp_path):
    changed = load_profile.__globals__["FOLDER"].joinpath("smoke.toml").read_text().replace("tau = 0.5", "tau = 0.4")
    (tmp_path / "smoke.toml").write_text(changed)
    found = play(tmp_path / "smoke.toml", "--task", "ner", "--data", data, "--output", ran.output)
    assert found.exit_code == 1
    assert re.search(
        r"Error: .*smoke\.jsonl holds results of other settings \(key\); choose another --output", found.output
    )


# -- a dry run


def test_a_dry_run_shows_the_jobs_and_their_cost_and_leaves_nothing(data, tmp_path):
    output = tmp_path / "results"
    options = ("smoke", "--task", "ner", "--data", data, "--output", output, "--dry-run")
    told = play(*options)
    assert told.exit_code == 0, told.output
    assert told.stdout.splitlines()[: len(JOBS)] == JOBS
    assert "17 jobs to do (1 victim, 1 accuracy, 5 student, 5 probe, 5 score), 0 done." in told.stdout
    assert re.search(r"About \d+ million tokens .* by timing some steps of training now\.", told.stdout)
    document = json.loads(play(*options, "--json").stdout)
    assert document["profile"] == "smoke" and document["jobs"] == JOBS and document["done"] == 0
    assert document["tokens"] > 0 and document["operations"] > document["tokens"] and document["seconds"] >= 0
    assert not output.exists()


def test_the_case_study_wants_another_encoder(data, tmp_path):
    options = ("smoke", "--part", "tables", "--part", "case", "--data", data, "--output", tmp_path / "results")
    found = play(*options)
    assert found.exit_code == 1 and "name it with --other-encoder" in found.output
    told = play(*options, "--other-encoder", "any", "--dry-run")
    assert "student ner/watermarked/soft/default/encoder=other/seed=1" in told.stdout


# -- what goes wrong


def test_jobs_that_fail_are_reported_and_the_command_fails(data, tmp_path, monkeypatch):
    def do(shop, job):
        raise RuntimeError("as asked")

    monkeypatch.setattr(Workshop, "do", do)
    found = play("smoke", "--task", "ner", "--data", data, "--output", tmp_path)
    assert found.exit_code == 1
    assert (
        f"Error: 17 of 17 jobs are not done, 'victim ner' first; {tmp_path / 'smoke.failed.jsonl'} says"
        in found.output
    )
    assert [record["job"] for record in read_lines(tmp_path / "smoke.failed.jsonl")] == ["victim ner"]


def test_an_interrupt_says_that_nothing_is_lost(data, tmp_path, monkeypatch):
    def do(shop, job):
        raise KeyboardInterrupt

    monkeypatch.setattr(Workshop, "do", do)
    found = play("smoke", "--task", "ner", "--data", data, "--output", tmp_path)
    assert found.exit_code == reproduce.INTERRUPTED and "the same command goes on where it stopped" in found.output


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["huge"], 1, "there is no profile 'huge'; choose one of ['minilm', 'paper', 'smoke', 'tiny']"),
        (["tiny", "--task", "mrpc"], 1, "the profile tiny has the tasks ['pos', 'ner', 'sst2']; not ['mrpc']"),
        (["smoke", "--data", "nowhere"], 1, "SST-2: there is no nowhere/sst2/train.jsonl.gz (nor .jsonl)"),
        (["smoke", "--task", "qa"], 2, "--task"),
        (["smoke", "--part", "figures"], 2, "--part"),
        (["smoke", "--workers", "0"], 2, "--workers"),
        (["--report"], 2, "holds no results yet; run without --report first"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(arguments, exit_code, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = play(*arguments)
    assert found.exit_code == exit_code
    assert words in re.sub(r"[\s│]+", " ", found.output)


def test_help_names_the_profiles_and_has_examples():
    text = play("--help").output
    assert "tiny, minilm, paper, smoke" in text and text.count("Example: drw-hf reproduce ") >= 3
    assert "--dry-run" in text and "--worker " not in text, "what workers are started with is not for users"
