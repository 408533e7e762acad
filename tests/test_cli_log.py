"""`drw-hf log`, and the life of a service in a few commands, as its page tells it."""

import datetime
import json
import re
import shutil
from pathlib import Path

import datasets
import pytest
from typer.testing import CliRunner

from drw_hf import KeyRing, QueryLog
from drw_hf.asking import Served
from drw_hf.cli import passphrases
from drw_hf.cli.main import app
from drw_hf.evidence import verify_timestamp
from serving import ask, serving
from small_models import make_key, make_model, make_tokenizer
from test_cli import PASSPHRASE, save_lively, write_rows

PAGE = Path(__file__).parents[1] / "docs" / "serve.md"
LOGS = "check root merge expire redact".split()
TEXTS = ["the film was very good", "we hated the slow ending", "dull"]
TODAY = datetime.datetime.now(datetime.UTC).date().isoformat()


def drw(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    model, tokenizer = make_model(), make_tokenizer()
    model.save_pretrained(folder / "my-classifier")
    make_model(seed=4).save_pretrained(folder / "student")
    for name in ("my-classifier", "student"):
        tokenizer.save_pretrained(folder / name)
    key = make_key(model, tokenizer, mark="tilt", strength=0.7, temperature=1.0)
    ring = KeyRing(key, secret=bytes(range(32))).declare(["ann", "ben", "cy"])
    ring.save_pretrained(folder / "my-ring")
    with QueryLog(folder / "my-log").writer(ring, label_kind="soft") as writer:
        for user in ("ann", "ben"):
            texts = [f"{text} {word}" for text in TEXTS for word in ("film", "book", "story", "plot", "cast", user)]
            writer.append([Served(text, [0.5, 0.5], user) for text in texts]).result()
    return folder


@pytest.fixture
def inside(place, tmp_path, monkeypatch):
    shutil.copytree(place, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "work"


def document(*words):
    found = drw(*words, "--json")
    assert found.exit_code in (0, 3, 4), found.output
    return json.loads(found.stdout)


def test_a_log_is_checked_and_its_days_are_fixed(inside):
    assert document("log", "check", "my-log") == {
        "lines": 36,
        "chains": 1,
        "redacted": 0,
        "rooted": 0,
        "days": [],
        "unfinished": [],
    }
    assert "No day in my-log is over yet" in drw("log", "root", "my-log").stdout
    (day,) = document("log", "root", "my-log", "--day", TODAY)["days"]
    assert day["lines"] == 37 and len(day["root"]) == 64
    text = drw("log", "check", "my-log").stdout
    assert "my-log is whole: 36 answers in 1 runs of a service." in text and "over 37 lines" in text


def test_an_altered_log_is_said_to_be_so(inside):
    (path,) = Path("my-log").glob("*.jsonl")
    path.write_text(path.read_text().replace('"answered":[0.5,0.5]', '"answered":[0.4,0.6]', 1))
    found = drw("log", "check", "my-log")
    assert found.exit_code == 1 and "was altered" in found.stderr and not found.stdout


def test_a_root_is_stamped_by_an_authority(inside, tsa):
    found = document("log", "root", "my-log", "--day", TODAY, "--timestamp-url", tsa.url)
    (place,) = found["stamped"]
    stamp = verify_timestamp(Path(place).read_bytes(), found["days"][0]["root"], [tsa.root])
    assert stamp.time.date().isoformat() >= TODAY
    assert document("log", "root", "my-log", "--day", TODAY, "--timestamp-url", tsa.url)["stamped"] == []


def test_replicas_are_merged_texts_taken_out_and_days_removed(inside):
    assert document("log", "merge", "all-logs", "my-log")["lines"] == 36
    assert document("log", "redact", "all-logs", "--user", "ann", "--names")["lines"] == 18
    assert document("log", "check", "all-logs")["redacted"] == 18
    assert document("log", "expire", "all-logs", "--days", "400")["days"] == []
    (gone,) = document("log", "expire", "all-logs", "--days", "0")["days"] or [None]
    assert gone is None or gone["lines"] == 37


def test_a_suspect_is_tested_by_the_log_of_one_user_and_of_all(inside):
    options = ["--logged", "my-log", "--victim", "my-classifier"]
    found = document("detect", "student", *options, "--key", "my-ring", "--user", "ann")
    assert found["n_queries"] == 18 and found["verdict"] != "detected"
    found = document("identify", "student", *options, "--ring", "my-ring")
    assert set(found["users"]) == {"ann", "ben"} and found["n_corrected"] == 3 and found["leakers"] == []
    Path("users.txt").write_text("ben\n")
    assert set(document("identify", "student", *options, "--ring", "my-ring", "--users", "users.txt")["users"]) == {
        "ben"
    }


def test_texts_that_were_taken_out_are_given_to_the_command(inside):
    texts = [line.text for line in QueryLog("my-log").select(user="ann").lines()]
    Path("texts.txt").write_text("".join(f"{text}\n" for text in texts))
    drw("log", "redact", "my-log")
    options = ["--logged", "my-log", "--victim", "my-classifier", "--key", "my-ring", "--user", "ann"]
    found = drw("detect", "student", *options)
    assert found.exit_code == 1 and "give the texts too" in found.stderr
    assert document("detect", "student", "texts.txt", *options)["n_queries"] == 18


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("detect student --key my-ring --user ann --victim my-classifier", 2, "TEXTS are missing"),
        (
            "detect student --logged nowhere --key my-ring --user ann --victim my-classifier",
            1,
            "there is no query log",
        ),
        ("detect student --logged my-log --key my-ring --user cy --victim my-classifier", 1, "holds nothing that was"),
        ("detect student --logged my-log --logged-column x --key my-ring --victim x", 2, "were both given"),
        ("identify student --ring my-ring --victim my-classifier", 2, "TEXTS and --users are missing"),
        ("identify student --logged my-log --ring my-ring --victim x --resume y", 2, "--resume: with --logged"),
        ("log check nowhere", 2, "does not exist"),
        ("log check my-classifier", 0, "0 answers"),
        ("log root my-log --day soon", 1, "is no day"),
        ("log merge into nowhere", 2, "does not exist"),
    ],
)
def test_what_is_wrong_is_said(inside, line, code, words):
    found = drw(*line.split())
    assert found.exit_code == code and words in found.output, found.output


def test_every_command_is_listed_and_has_json_and_an_example_that_runs(inside, monkeypatch):
    listed = drw("log", "--help").stdout
    for name in LOGS:
        text = drw("log", name, "--help").stdout
        assert re.search(rf"^  {name} ", listed, flags=re.MULTILINE) and "--json" in text
        (line,) = re.findall(r"^ *Example: drw-hf (.+)$", text, flags=re.MULTILINE)
        assert drw(*line.split()).exit_code == 0
    assert (
        "`drw-hf log`" in PAGE.with_name("cli.md").read_text()
        and "`drw-hf serve`" in PAGE.with_name("cli.md").read_text()
    )


def test_the_life_of_a_service_as_its_page_tells_it(tmp_path, monkeypatch):
    """All that begins with $ on the page, in its order; the service really runs, and is really asked."""
    monkeypatch.setenv(passphrases.VARIABLE, PASSPHRASE)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    save_lively(Path("my-classifier"), Path("labelled.csv"))
    shutil.copytree("my-classifier", "student")
    write_rows(Path("queries"), 60, seed=0)
    texts = Path("queries.txt").read_text().splitlines()
    lines = re.findall(r"^\$ drw-hf (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["plan", "keygen", "serve", "detect", "log", "log"]
    for line in lines:
        if line.startswith("serve"):
            with serving(tmp_path, *line.split()[1:]) as service:
                assert ask(service.address, {"inputs": texts})[0] == 200
                service.end()
            continue
        found = drw(*line.replace("2026-11-18", TODAY).split())
        assert found.exit_code in ({3, 4, 0} if line.startswith("detect") else {0}), (line, found.output)
    assert QueryLog("my-log").check().rooted == 61
