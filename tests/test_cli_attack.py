"""``drw-hf attack``: what it lists, plays, writes and goes on with, what it would take, and what it refuses."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from drw_hf import KeyRing
from drw_hf.cli import attack, passphrases
from drw_hf.extraction.attacks import ATTACKS
from drw_hf.extraction.thief import Thief
from drw_hf.keys import sealing
from drw_hf.planning import Rehearsal
from drw_hf.planning.rehearsal_bench import Bench
from drw_hf.runs import jobs
from drw_hf.runs.lines import read_lines
from needles import leaks_in
from rehearsal_scene import made_up, make_rows, make_scene_key, make_tagger, make_words
from small_models import make_model
from test_cli import drw

PASSPHRASE = "nine brass kettles"
QUICK = "--student-epochs 4 --learning-rate 5e-3"
THEFT = f"attack tagger --key key --data labelled.jsonl {QUICK}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tagger, its key, sealed, a ring, and labelled text."""
    folder = tmp_path_factory.mktemp("place")
    model, tokenizer = make_tagger(), make_words()
    model.save_pretrained(folder / "tagger")
    tokenizer.save_pretrained(folder / "tagger")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sealing, "COST", 2**4)
        ring = KeyRing.generate(model, mark="tilt", tokenizer=tokenizer, temperature=1.0, secret=bytes(range(32)))
        other = make_scene_key(make_model("token-classification", vocab_size=64), None)
        kept = {"key": make_scene_key(model, tokenizer), "key-of-another": other, "ring": ring}
        for name, one in kept.items():
            one.save_pretrained(folder / name, passphrase=PASSPHRASE)
    rows = make_rows(model, tokenizer)
    rows.to_json(folder / "labelled.jsonl")
    rows.remove_columns("tags").to_json(folder / "unlabelled.jsonl")
    rows.select(range(9)).to_json(folder / "few.jsonl")
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    return folder


@pytest.fixture(scope="module")
def ran(environment, place):
    """Four attacks, with --json."""
    found = drw(f"{THEFT} --attacks argmax,rounding,prune-30,serves-labels --output ran --json")
    assert found.exit_code == 0, found.output
    return SimpleNamespace(document=json.loads(found.stdout), folder=place / "ran", found=found)


# -- what it plays and writes


def test_what_is_found_is_told_in_json_and_written_with_its_picture_and_page(ran, here):
    document = ran.document
    assert document["format"] == "drw-rehearsal-1" and document["conclusion"].startswith(
        "The mark is found after 5 of 5"
    )
    assert document["files"] == {
        "rehearsal": "ran/rehearsal.json",
        "plot": "ran/rehearsal.png",
        "page": "ran/rehearsal.html",
    }
    saved = Rehearsal.load("ran/rehearsal.json")
    assert [row["attack"] for row in document["rows"]] == [row.attack for row in saved.rows]
    assert {row.attack for row in saved.rows} == {"nothing", "argmax", "rounding", "prune-30", "serves-labels"}
    assert (ran.folder / "rehearsal.png").stat().st_size > 10_000
    assert "The theft, rehearsed" in (ran.folder / "rehearsal.html").read_text()


def test_started_again_it_prints_the_same_and_trains_nothing(ran, here, monkeypatch):
    monkeypatch.setattr(Bench, "play", lambda *_: pytest.fail("there is nothing to do"))
    before = (ran.folder / "rehearsal.jsonl").read_bytes()
    found = drw(f"{THEFT} --attacks argmax,rounding --output ran")
    assert found.exit_code == 0, found.output
    assert (ran.folder / "rehearsal.jsonl").read_bytes() == before
    assert re.search(r"^prune-30 +\d", found.stdout, flags=re.MULTILINE), "what was played before is shown, too"
    assert "Wrote ran/rehearsal.json, the picture rehearsal.png and the page" in found.stdout
    dry = drw(f"{THEFT} --attacks argmax --output ran --dry-run")
    assert "0 attacks to play" in dry.stdout and "4 of 4 jobs are done" in dry.stdout


def test_settings_that_differ_are_refused(ran, here):
    found = drw(f"{THEFT} --attacks argmax --output ran --seed 5")
    assert found.exit_code == 1
    assert "rehearsal.jsonl holds results of other settings (seed); choose another --output" in found.stderr


def test_nothing_that_is_written_or_printed_holds_the_key_or_its_passphrase(ran, here, place):
    from drw_hf import WatermarkKey

    key = WatermarkKey.from_pretrained(place / "key", passphrase=PASSPHRASE)
    contents = [(str(path), path.read_bytes()) for path in ran.folder.rglob("*") if path.is_file()]
    contents.append(("what was printed", ran.found.output.encode()))
    assert not leaks_in(key, contents)
    assert not [name for name, content in contents if PASSPHRASE.encode() in content]


def test_workers_are_started_without_a_passphrase_on_their_command_line(here, monkeypatch, place):
    """Who types the passphrase types it once: workers find it in their environment."""
    monkeypatch.delenv(passphrases.VARIABLE)
    monkeypatch.setattr(sys.stdin.__class__, "isatty", lambda _: True, raising=False)
    monkeypatch.setattr(passphrases, "open_key_or_ring", typed(passphrases.open_key_or_ring))
    monkeypatch.setattr(sys, "argv", ["drw-hf", *THEFT.split(), "--workers", "2", "--output", "workers"])
    started = []

    def start(command, env, **_):
        started.append((command, env))
        return Ended()

    monkeypatch.setattr(jobs.subprocess, "Popen", start)
    found = drw(f"{THEFT} --attacks argmax --workers 2 --output workers")
    assert found.exit_code == 1 and "its workers ended before their time" in found.stderr
    assert len(started) == 2 and passphrases.VARIABLE not in os.environ
    for command, env in started:
        assert command[-1] == "--worker" and "attack" in command and PASSPHRASE not in " ".join(command)
        assert env[passphrases.VARIABLE] == PASSPHRASE


class Ended:
    """A process that has ended."""

    def poll(self):
        return 0


def typed(open_key_or_ring):
    """The same, as if the passphrase had been typed."""

    def opened(name, file):
        os.environ[passphrases.VARIABLE] = PASSPHRASE
        try:
            return open_key_or_ring(name, file)
        finally:
            del os.environ[passphrases.VARIABLE]

    return opened


@pytest.mark.slow
def test_two_workers_play_every_attack_once(environment, here, place):
    line = f"{THEFT} --attacks argmax,rounding,relabel-2,clean-5,relabel-5 --workers 2 --output many --json"
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(place / "cache")}
    found = subprocess.run(
        [sys.executable, "-m", "drw_hf.cli", *line.split()], env=variables, capture_output=True, text=True, timeout=600
    )
    assert found.returncode == 0, found.stderr
    names = [record["job"] for record in read_lines(here / "many" / "rehearsal.jsonl")]
    played = {"baseline", "nothing", "innocent", "argmax", "rounding", "relabel-2", "clean-5", "relabel-5"}
    assert names[0] == "settings" and len(names) == len(set(names)) and set(names[1:]) == played
    assert json.loads(found.stdout)["conclusion"].startswith("The mark is found after")


# -- before anything is played


def test_the_list_names_every_attack_and_what_it_needs():
    found = drw("attack --list")
    assert found.exit_code == 0
    for name in ATTACKS:
        assert re.search(rf"^  {re.escape(name)} ", found.stdout, flags=re.MULTILINE)
    document = json.loads(drw("attack --list --json").stdout)
    assert len(document["attacks"]) == len(list(ATTACKS))
    assert document["attacks"][0].keys() == {"attack", "stage", "title", "needs"}


def test_a_dry_run_says_what_would_be_played_and_how_long_and_plays_nothing(here, environment, monkeypatch):
    kept = []
    monkeypatch.setattr(Thief, "kept", lambda *_: kept.append(1))
    monkeypatch.setattr(Bench, "play", lambda *_: pytest.fail("it is a dry run"))
    found = drw(f"{THEFT} --output dry --dry-run")
    assert found.exit_code == 0, found.output
    assert re.search(r"^near-duplicates-10 +10 questions per text$", found.stdout, flags=re.MULTILINE)
    assert "Not played: suffix (it is for sequence-classification)." in found.stdout
    assert "The thief has 240 texts and 80 more, you have 80 unseen ones." in found.stdout
    assert re.search(
        r"ask [\d,]+ questions in all. On this machine with 1 worker that takes about \d+ (s|min)", found.stdout
    )
    document = json.loads(drw(f"{THEFT} --attacks near-duplicates-3,argmax --output dry --dry-run --json").stdout)
    assert [one["attack"] for one in document["attacks"]] == ["argmax", "near-duplicates-3"]
    assert document["questions"] == 240 + 240 + 720 and document["seconds"] >= 0 and document["done"] == 0
    assert not kept and not (here / "dry").exists()


# -- what is refused, and what fails


@pytest.mark.parametrize(
    ("line", "exit_code", "words"),
    [
        ("attack", 2, "MODEL or --data is missing"),
        ("attack tagger --key key", 2, "MODEL or --data is missing"),
        ("attack tagger --data labelled.jsonl", 2, "--key is missing, and tagger is not protected"),
        (f"{THEFT} --attacks telepathy", 1, "there is no attack 'telepathy'; choose one of ['argmax'"),
        (f"{THEFT} --attacks masked-ids", 1, "'masked-ids' cannot be played here: it is for sequence-classification"),
        (f"{THEFT} --level 2", 1, "level=2.0: expected a number between 0 and 1"),
        (f"{THEFT} --workers 0", 2, "--workers"),
        (f"{THEFT} --student no/where/at/all", 1, "there is no folder no/where/at/all"),
        ("attack tagger --key ring --data labelled.jsonl", 1, "say whose is meant with --user NAME"),
        ("attack tagger --key ring --user ann --data labelled.jsonl --attacks telepathy", 1, "no attack 'telepathy'"),
        ("attack tagger --key key-of-another --data labelled.jsonl", 1, "the key"),
        ("attack tagger --key key --data few.jsonl", 1, "the thief would have 5 texts and the owner 2 unseen ones"),
        (
            "attack tagger --key key --data unlabelled.jsonl --attacks marked-10",
            1,
            "'marked-10' cannot be played here: it needs right labels of the thief's texts, and the data has none",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_message(environment, here, line, exit_code, words):
    found = drw(f"{line} --output refused" if line != "attack" else line)
    assert found.exit_code == exit_code, found.output
    assert words in re.sub(r"[\s│]+", " ", found.stderr)
    assert not (here / "refused").exists()


def test_what_was_played_is_written_where_an_attack_could_not_be(ran, here, monkeypatch):
    def faulty(*_):
        raise RuntimeError("of all things")

    monkeypatch.setattr(Bench, "_search", faulty)
    found = drw(f"{THEFT} --attacks argmax,key-after-the-fact --output ran")
    assert (
        found.exit_code == 1
        and "'key-after-the-fact' could not be played (RuntimeError: of all things)" in found.stderr
    )
    assert "argmax" in [row.attack for row in Rehearsal.load("ran/rehearsal.json").rows]


def test_an_interrupt_says_that_nothing_is_lost(environment, here, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Bench, "baseline", stop)
    found = drw(f"{THEFT} --attacks argmax --output stopped")
    assert found.exit_code == 130 and "the same command goes on where it stopped" in found.stderr


# -- the page, later


def test_report_writes_the_page_of_a_saved_rehearsal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_up().save("rehearsal.json")
    found = drw("report rehearsal.json --output page --json")
    assert found.exit_code == 0 and json.loads(found.stdout) == {"report": "page/rehearsal.html"}
    made_up().page("same.html")
    assert (tmp_path / "page" / "rehearsal.html").read_text() == (tmp_path / "same.html").read_text()
    refused = drw("report rehearsal.json --redact --output other")
    assert refused.exit_code == 2 and "--redact is for evidence" in re.sub(r"[\s│]+", " ", refused.output)


def test_help_has_examples_and_hides_what_workers_are_started_with():
    text = drw("attack --help").output
    assert text.count("Example: drw-hf attack ") >= 3 and "--worker " not in text
    assert attack.RESULT in text and attack.PAGE in text
