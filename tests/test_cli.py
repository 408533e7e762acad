"""The command line: every command end to end with tiny models, exit codes, JSON, secrets, completion, examples."""

import json
import os
import random
import re
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import datasets
import pytest
import typer
from transformers import AutoModelForTokenClassification, pipeline
from typer.testing import CliRunner

import drw_hf
from drw_hf import KeyRing, QueryLog, WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.asking import Served
from drw_hf.asking.local import ModelPredictor
from drw_hf.cli import passphrases
from drw_hf.cli.main import app
from drw_hf.cli.output import Outcome, prints_outcome
from inference_server import InferenceServer
from launching import launch
from local_tsa import OPENSSL, LocalTSA
from needles import leaks_in
from small_models import SPECIAL, draw_labels, make_lively, make_model
from small_models import make_tokenizer as make_small_tokenizer
from small_wheel import make_wheel

PASSPHRASE = "seven tin whistles ünder glass"
PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
WORDS = [f"word{number}" for number in range(900)]
COMMANDS = "demo plan keygen protect serve label distill attack detect report verify card audit reproduce".split()
COMMANDS += ["publish", "season"]
TESTED_ELSEWHERE = {"demo", "reproduce", "serve"}  # they train, or serve, for long
TESTED_ELSEWHERE |= {"publish", "season"}  # in test_cli_season


# -- tiny models and data, as a user has them


def make_tokenizer():
    return make_small_tokenizer(WORDS)


def save_model(folder, task, **settings):
    make_model(task, vocab_size=len(SPECIAL) + len(WORDS), **settings).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)


def save_lively(folder, data):
    """A classifier whose answers differ, positive more often, and data on which it is calibrated: text and label."""
    tokenizer, chance = make_tokenizer(), random.Random(9)
    texts = [" ".join(chance.choices(WORDS, k=12)) for _ in range(400)]
    model = make_lively(make_model(vocab_size=len(SPECIAL) + len(WORDS), seed=1), tokenizer, texts, lean=2.0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    lines = zip(texts, draw_labels(model, tokenizer, texts), strict=True)
    data.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in lines))


def write_rows(path, n_rows, seed):
    chance = random.Random(seed)
    rows = [chance.choices(WORDS, k=12) for _ in range(n_rows)]
    labels = [chance.choice(["negative", "positive"]) for _ in rows]
    documents = [{"tokens": words, "text": " ".join(words)} for words in rows]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    path.with_suffix(".txt").write_text("".join(row["text"] + "\n" for row in documents))
    lines = [f"{row['text']},{label}\n" for row, label in zip(documents, labels, strict=True)]
    path.with_suffix(".csv").write_text("text,label\n" + "".join(lines))


def write_log(key, folder):
    """What a service with this key would have kept."""
    texts = Path("queries.txt").read_text().splitlines()
    with QueryLog(folder).writer(key, label_kind="soft") as writer:
        users = ["ann", "bob"] if isinstance(key, KeyRing) else [None]
        writer.append([Served(text, [0.5, 0.5], user) for text in texts for user in users]).result()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tagger, an innocent one, a classifier, queries and probes."""
    folder = tmp_path_factory.mktemp("place")
    save_model(folder / "tagger", "token-classification", seed=2)  # says B-PER most of the time
    save_model(folder / "innocent", "token-classification", seed=1)
    save_model(folder / "my-classifier", "sequence-classification", seed=1)  # says positive
    make_small_tokenizer().save_pretrained(folder / "other-tokenizer")
    write_rows(folder / "queries", 500, seed=0)
    write_rows(folder / "probes", 300, seed=1)
    write_rows(folder / "few", 4, seed=2)
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    return folder


def drw(line, **options):
    """Run a command line in this process; its output is kept apart as a shell would."""
    return CliRunner().invoke(app, shlex.split(line) if isinstance(line, str) else list(map(str, line)), **options)


def document(line):
    """What a command line prints with --json."""
    found = drw(f"{line} --json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def story(environment):
    """The way from a tagger to a student that is recognised, every step with --json."""
    lines = {
        "keygen": "keygen tagger --target B-PER --output key",
        "protect": "protect tagger --key key --output protected",
        "label": "label protected queries.jsonl --key key --output answers",
        "distill": "distill answers --student tagger --epochs 5 --learning-rate 1e-3 --output student",
        "detect": "detect student probes.jsonl --key key --victim protected --output evidence.json --plot figure.png",
        "verify": "verify evidence.json --key key",
        "card": "card protected --license mit",
    }
    return {command: drw(f"{line} --json") for command, line in lines.items()}


# -- what every command does


@pytest.mark.parametrize(
    ("command", "exit_code"),
    [("keygen", 0), ("protect", 0), ("label", 0), ("distill", 0), ("detect", 3), ("verify", 4), ("card", 0)],
)
def test_json_is_one_document_alone_on_stdout_and_exit_codes_tell(story, command, exit_code):
    found = story[command]
    assert found.exit_code == exit_code, found.output
    assert isinstance(json.loads(found.stdout), dict)


def test_keygen_makes_a_sealed_key_and_says_nothing_else_of_it(story, here):
    document = json.loads(story["keygen"].stdout)
    key = WatermarkKey.from_pretrained(here / "key", passphrase=PASSPHRASE)
    assert document == {
        "path": "key",
        "sealed": True,
        "fingerprint": key.fingerprint,
        "commitment": key.commitment(),
    }
    assert key.target_label == "B-PER" and key.hash_rule.name == "token" and key.tokenizer_fingerprint is not None


def test_keygen_takes_every_parameter(here):
    line = "keygen my-classifier --target 1 --epsilon 0.1 --tau 0.4 --frequency 9 --law paper --scope all"
    found = drw(f"{line} --hash-rule rarest --task sequence-classification --plain --output plain", env=without())
    assert found.exit_code == 0 and "protect my-classifier --key plain" in found.stdout
    key = WatermarkKey.from_pretrained(here / "plain")
    made = (key.target_label, key.epsilon, key.tau, key.frequency, key.law, key.scope, key.hash_rule.name)
    assert made == ("positive", 0.1, 0.4, 9.0, "paper", "all", "rarest")
    assert (here / "plain" / "drw_key.json").stat().st_mode & 0o077 == 0


def test_protect_writes_the_model_and_its_tokenizer_and_no_key(story, here):
    document = json.loads(story["protect"].stdout)
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(document["files"])
    assert not any("key" in name for name in document["files"])
    found = drw("protect tagger --key key --label-kind hard --output hard --overwrite")
    assert found.exit_code == 0 and "hard labels" in found.stdout and "config.json" in found.stdout
    assert json.loads((here / "hard" / "config.json").read_text())["label_kind"] == "hard"


def test_label_keeps_answers_with_the_names_of_their_labels(story, here):
    rows = datasets.load_from_disk(here / "answers")
    assert len(rows) == 500 and rows.features["teacher_labels"].feature.names[3] == "B-LOC"
    found = drw("label tagger queries.txt --limit 7 --output out/plain.parquet --json")
    assert json.loads(found.stdout)["rows"] == 7, found.output
    rows = datasets.Dataset.from_parquet(str(here / "out" / "plain.parquet"), cache_dir=str(here / "cache"))
    assert rows.features["teacher_labels"].feature.names[3] == "B-LOC" and len(rows[0]["tokens"]) == 12


def test_two_processes_under_accelerate_label_as_one_and_leave_in_order(story, here):
    """A process that exits with its process group running may abort: exit code -6 and a launcher that failed."""
    line = "-m drw_hf.cli label protected few.jsonl --key key --output shared --batch-size 2"
    run = launch(line.split(), 2, cwd=here)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.count("answered 4 rows") == 1, "one process speaks"
    alone = drw("label protected few.jsonl --key key --output alone")
    assert alone.exit_code == 0, alone.stderr
    columns = [datasets.load_from_disk(here / name)["teacher_labels"][:] for name in ("shared", "alone")]
    assert columns[0] == columns[1]


def test_among_several_processes_a_finding_is_no_failure(monkeypatch, capsys):
    """accelerate's launcher takes every exit code but 0 for a crash, and ends the other processes."""
    tell = prints_outcome(lambda: Outcome({"verdict": "detected"}, "", 3))
    with pytest.raises(typer.Exit):
        tell(as_json=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    tell(as_json=True)
    assert capsys.readouterr().out.count("detected") == 2


@pytest.mark.parametrize("ending", ["return Outcome({}, 'done')", "raise ValueError('went wrong')"])
def test_a_command_shuts_its_process_group_down_however_it_ends(tmp_path, ending):
    script = f"""
import contextlib
from pathlib import Path
import torch.distributed
from drw_hf.cli.output import Outcome, prints_outcome
@prints_outcome
def command():
    torch.distributed.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
    trained = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))  # holds the group, and itself
    trained.trainer = [trained]
    {ending}
with contextlib.suppress(ValueError):
    command(as_json=False)
threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
print("left running" if torch.distributed.is_initialized() or "gloo" in str(threads) else "shut down")
"""
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true"}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert run.stdout.endswith("shut down\n"), run.stderr


def test_distill_makes_a_student_that_loads_and_says_how_it_went(story, here):
    document = json.loads(story["distill"].stdout)
    assert document["rows"] == 500 and document["steps"] == 80 and 0 < document["loss"] < 1
    student = AutoModelForTokenClassification.from_pretrained(here / "student")
    assert student.config.id2label[3] == "B-LOC" and (here / "student" / "tokenizer.json").exists()


def test_distill_gives_a_student_with_other_labels_a_new_head_and_resumes(story, here):
    save_model(here / "other", "token-classification", id2label={0: "X", 1: "Y"}, label2id={"X": 0, "Y": 1})
    line = "distill answers --student other --limit 20 --seed 3 --output second"
    assert drw(f"{line} --epochs 1").exit_code == 0
    assert AutoModelForTokenClassification.from_pretrained(here / "second").config.id2label[3] == "B-LOC"
    again = drw(f"{line} --epochs 2 --resume --json")
    assert again.exit_code == 0 and json.loads(again.stdout)["steps"] == 2, again.output


def test_distill_learns_from_attacked_answers(story):
    line = "distill answers --student tagger --limit 20 --epochs 1 --overwrite --output attacked --json"
    attacked, hard, soft = (
        json.loads(drw(f"{line} {option}").stdout)["loss"] for option in ("--attack argmax", "--label-kind hard", "")
    )
    assert attacked == pytest.approx(hard, rel=1e-3) and attacked != pytest.approx(soft, rel=1e-3)


def test_detect_shows_the_finding_and_nothing_of_the_key_but_its_public_names(story, here):
    document = json.loads(story["detect"].stdout)
    assert document["verdict"] == "detected" and document["p_bound"] < 1e-9
    assert document["files"] == {"evidence": "evidence.json", "plot": "figure.png"}
    assert (here / "evidence.json").exists() and (here / "figure.png").stat().st_size > 1000
    assert not {"target_label", "frequency", "settings", "hash_values"} & set(document)
    assert "B-PER" not in story["detect"].output


def test_an_innocent_model_exits_with_0_and_too_little_with_4(story):
    innocent = drw("detect innocent probes.txt --key key --victim tagger --json")
    found = json.loads(innocent.stdout)
    # The key is fresh in every run: one in twenty makes an innocent model look suspicious enough to be undecided.
    expected = {0: "not detected", 4: "undecided"} if found["log10_p"] < -1.3 else {0: "not detected"}
    assert expected.get(innocent.exit_code) == found["verdict"], innocent.output
    few = drw("detect innocent few.txt --key key --victim tagger --json")
    assert few.exit_code == 4 and json.loads(few.stdout)["verdict"] == "undecided"


def test_what_was_tried_counts(story):
    line = "detect student probes.jsonl --key key --victim protected --max-queries 250 --json"
    once = json.loads(drw(line).stdout)
    often = json.loads(drw(f"{line} --keys-tried 10 --suspects-tested 5 --looks 2").stdout)
    assert often["log10_bound"] == pytest.approx(once["log10_bound"] + 2, abs=0.01)
    assert once["n_queries"] == 250


@pytest.mark.parametrize("redact", ["", " --redact"])
def test_detect_writes_the_report(story, here, redact):
    folder = f"report{redact.strip()}"
    found = drw(f"detect student probes.jsonl --key key --victim protected --report {folder}{redact} --json")
    page = Path(json.loads(found.stdout)["files"]["report"])
    assert found.exit_code == 3 and page.parent == Path(folder) and page.suffix == ".html"
    assert ("B-PER" in page.read_text(encoding="utf-8")) == (not redact)


def test_the_memory_test_reads_the_labels_that_were_served(here):
    drw("keygen my-classifier --target positive --scope all --tau 1 --epsilon 5 --output hard-key")
    drw("protect my-classifier --key hard-key --label-kind hard --output hard-classifier")
    line = "detect my-classifier served --key hard-key --victim my-classifier --logged-column teacher_labels --json"
    digests = set()
    for name in ("served", "served.jsonl", "served.csv", "served.parquet"):
        assert drw(f"label hard-classifier queries.csv --key hard-key --output {name}").exit_code == 0
        found = drw(line.replace(" served ", f" {name} "))
        assert json.loads(found.stdout)["statistic"].startswith("drw-memory"), found.output
        digests.add(json.loads(found.stdout)["probe_digest"])
    assert len(digests) == 1, "the same log, whatever it was written to"
    unknown = drw(line.replace("teacher_labels", "log"))
    assert unknown.exit_code == 1 and "--logged-column log" in unknown.stderr and "'teacher_probs'" in unknown.stderr


def test_a_suspect_may_be_a_service_and_may_have_renamed_its_labels(here, monkeypatch):
    drw("keygen my-classifier --target positive --scope all --tau 1 --hash-rule rarest --output service-key")
    key = WatermarkKey.from_pretrained(here / "service-key", passphrase=PASSPHRASE)
    victim = WatermarkedModelForSequenceClassification.from_pretrained(here / "my-classifier", key=key)
    pipe = pipeline("text-classification", model=victim, tokenizer=make_tokenizer())
    names = {"negative": "LABEL_0", "positive": "LABEL_1"}

    def answer(payload):
        return [[{**one, "label": names[one["label"]]} for one in pipe(payload["inputs"], top_k=None)]]

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with InferenceServer(answer).running() as server:
        found = drw(
            f"detect {server.url} probes.jsonl --key service-key --victim my-classifier --json "
            "--max-queries 100 --label-map LABEL_0=negative --label-map LABEL_1=positive"
        )
    assert found.exit_code == 3, found.output
    assert json.loads(found.stdout)["n_queries"] == 100


def test_card_keeps_the_owners_text_and_measures_what_the_mark_costs(here):
    drw("keygen my-classifier --target positive --output card-key")
    drw("protect my-classifier --key card-key --output carded")
    (here / "carded" / "README.md").write_text("# Ours\n\nOur own words.\n")
    found = drw("card carded --key card-key --data queries.csv --dataset-name reviews --license mit --tag ours --json")
    accuracy = json.loads(found.stdout)["metrics"]["accuracy"]
    assert found.exit_code == 0 and accuracy["n"] == 500 and 0 < accuracy["protected"] <= 1
    text = (here / "carded" / "README.md").read_text()
    assert "Our own words." in text and "license: mit" in text and "measured on reviews" in text and "- ours" in text
    again = drw("card carded --license mit --output elsewhere.md")
    assert again.exit_code == 0 and "Our own words." in (here / "elsewhere.md").read_text()


# -- secrets


def test_neither_the_passphrase_nor_the_key_is_anywhere_but_in_the_key(story, here):
    key = WatermarkKey.from_pretrained(here / "key", passphrase=PASSPHRASE)
    folders = ("protected", "answers", "student", "cache", "hard", "key")
    files = [path for folder in folders for path in (here / folder).rglob("*") if path.is_file()]
    contents = [(str(path), path.read_bytes()) for path in files]
    contents += [(command, found.output.encode()) for command, found in story.items()]
    assert len(contents) > 20 and leaks_in(key, contents) == []
    for where, content in contents:
        assert PASSPHRASE.encode() not in content, where


def without():
    """An environment without a passphrase."""
    return {passphrases.VARIABLE: None}


def test_a_passphrase_is_read_from_a_file_and_never_from_the_command_line(story):
    line = "detect student few.txt --key key --tokenizer tagger"
    assert drw(f"{line} --passphrase-file passphrase", env=without()).exit_code in (0, 3, 4)
    assert drw(f"{line} --passphrase '{PASSPHRASE}'").exit_code == 2
    refused = drw(line, env=without())
    assert refused.exit_code == 1 and "--passphrase-file" in refused.stderr and "DRW_PASSPHRASE" in refused.stderr
    wrong = drw(line, env={passphrases.VARIABLE: "open sesame"})
    assert wrong.exit_code == 1 and "did not open" in wrong.stderr and "sesame" not in wrong.output


def test_a_key_is_not_made_plain_for_lack_of_a_passphrase(here):
    refused = drw("keygen tagger --target B-PER --output unsealed", env=without())
    assert refused.exit_code == 1 and "--plain" in refused.stderr and not (here / "unsealed").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a pseudo-terminal, and /proc for a process's arguments")
def test_at_a_terminal_keygen_asks_for_the_target_and_twice_for_the_passphrase(here):
    """The real command, in a process of its own."""
    import fcntl
    import termios

    terminal, inside = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "drw_hf.cli", "keygen", "tagger", "--mark", "cosine", "--output", "typed"],
        env={name: value for name, value in os.environ.items() if name != passphrases.VARIABLE},
        cwd=here,
        stdin=inside,
        stdout=subprocess.PIPE,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(inside)
    arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    try:
        shown = b""
        for prompt, typed in (("Target class", "B-PER"), ("Passphrase", PASSPHRASE), ("Repeat", PASSPHRASE)):
            while not re.search(rf"{prompt}[^:]*: ".encode(), shown):
                assert select.select([terminal], [], [], 60)[0], shown
                shown += os.read(terminal, 1000)
            os.write(terminal, typed.encode() + b"\n")
        stdout, _ = process.communicate(timeout=120)
    finally:
        process.kill()  # nobody waits for a prompt that did not come
        os.close(terminal)
    assert process.returncode == 0 and b"sealed" in stdout
    assert PASSPHRASE.encode() not in arguments + shown + stdout
    assert WatermarkKey.from_pretrained(here / "typed", passphrase=PASSPHRASE).target_label == "B-PER"


# -- what goes wrong


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("keygen no/such/folder --target x --output new", ["no/such/folder", "no folder"]),
        ("keygen nobody/nothing --target x --output new", ["nobody/nothing", "no folder here"]),
        ("keygen tagger --target B-ORG --output new", ["B-ORG", "'O', 'B-PER', 'I-PER', 'B-LOC'"]),
        ("keygen tagger --target B-PER --output key", ["key holds a key", "another --output"]),
        ("protect innocent --key my-classifier --output new", ["no key at"]),
        ("protect my-classifier --key key --output new", ["another task"]),
        ("label tagger missing.jsonl --output new", ["missing.jsonl", "no file"]),
        ("label tagger empty.txt --output new", ["empty.txt is empty"]),
        ("label tagger blank.txt --output new", ["blank.txt holds no rows"]),
        ("label tagger broken.jsonl --output new", ["cannot read data from broken.jsonl"]),
        ("label tagger passphrase --output new", ["none of the kinds of files", ".jsonl"]),
        ("label tagger queries.csv --output new", ["['text', 'label']", "words", "--text-column"]),
        ("label tagger queries.jsonl --text-column body --output new", ["body", "['tokens', 'text']"]),
        ("label tagger queries.jsonl --split test --output new", ["['train']", "--split"]),
        ("label protected queries.jsonl --output new", ["protected", "--key"]),
        ("distill queries.jsonl --student tagger --output new", ["['tokens', 'text']", "drw-hf label"]),
        ("distill answers --student tagger --resume --output new", ["no checkpoint"]),
        ("distill answers --student tagger --attack magic --output new", ["no attack 'magic'", "'argmax'", "'floor'"]),
        ("detect protected probes.txt --key key --victim tagger", ["protected", "--key"]),
        ("detect student probes.txt --key key --tokenizer other-tokenizer", ["another tokenizer"]),
        ("card tagger", ["not protected", "drw-hf protect"]),
    ],
)
@pytest.mark.parametrize("options", ["", " --json"])
def test_what_is_wrong_is_said_in_one_message(story, here, line, words, options):
    (here / "empty.txt").touch()
    (here / "blank.txt").write_text("\n  \n")
    (here / "broken.jsonl").write_text('{"tokens": ["a"\nnonsense\n')
    found = drw(line + options)
    assert found.exit_code == 1 and not found.stdout, found.output
    assert found.stderr.count("Error: ") == 1 and "Traceback" not in found.stderr
    for word in words:
        assert word in found.stderr
    assert not (here / "new").exists()


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("", "Usage"),
        ("keygen", "Missing argument"),
        ("keygen tagger --mark cosine --output new", "O, B-PER, I-PER, B-LOC"),
        ("keygen tagger --target O --output new --law new", "paper"),
        ("protect tagger --key key", "--output"),
        ("protect tagger --key key --output answers", "--overwrite"),
        ("label tagger queries.txt --output answers.xlsx", ".parquet"),
        ("detect student probes.txt --key key", "--victim"),
        ("detect student probes.txt --key key --victim tagger --label-map x", "LABEL_0=negative"),
        ("detect student probes.txt --key key --victim tagger --suspect-first-seen someday", "2026-03-31"),
        ("detect student probes.txt --key key --victim tagger --redact", "--report"),
        ("card tagger --existing nothing.md", "nothing.md"),
    ],
)
def test_usage_errors_exit_with_2(story, line, word):
    found = drw(line)
    assert found.exit_code == 2 and word in found.output


def test_an_interrupted_label_exits_cleanly_and_goes_on_where_it_stopped(here, monkeypatch, request):
    asked, ask = [], ModelPredictor.answer

    def counted(teacher, questions):
        asked.append(len(questions))
        if len(asked) == 5:
            signal.raise_signal(signal.SIGINT)  # what the terminal sends for Ctrl-C
        return ask(teacher, questions)

    monkeypatch.setattr(ModelPredictor, "answer", counted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test runner may have it ignored
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    line = "label innocent queries.txt --batch-size 50 --output interrupted --json"
    stopped = drw(line)
    assert stopped.exit_code == 130 and not stopped.stdout and "goes on where it stopped" in stopped.stderr
    assert "Traceback" not in stopped.stderr and not (here / "interrupted").exists()
    finished = drw(line)
    assert finished.exit_code == 0 and json.loads(finished.stdout)["rows"] == 500
    assert sum(asked) == 500 + 50, "four batches were kept, the fifth was asked again"


# -- the Hub


def test_a_push_carries_the_sealed_key_and_a_pull_finds_it(hub, here):
    drw("keygen my-classifier --target positive --output hub-key")
    wheel = make_wheel(here)
    pushed = drw(f"protect my-classifier --key hub-key --push owner/model --handler --package {wheel.name} --json")
    assert pushed.exit_code == 0 and "/owner/model/commit/" in json.loads(pushed.stdout)["commit"], pushed.output
    files = hub.files("owner/model")
    assert {"drw_key.json", "handler.py", "tokenizer.json", wheel.name} <= set(files)
    assert json.loads(files["drw_key.json"])["sealed"]
    assert not any(PASSPHRASE.encode() in content for content in files.values())
    found = drw("label owner/model few.txt --output pulled --json")  # with the key that lies beside it
    assert found.exit_code == 0 and json.loads(found.stdout)["rows"] == 4, found.output
    card = drw("card owner/model")
    assert card.exit_code == 0 and "drw_hf:begin" in card.stdout
    elsewhere = drw("protect my-classifier --key hub-key --push owner/other --public --key-repo owner/keys")
    assert elsewhere.exit_code == 0 and "drw_key_pointer.json" in hub.files("owner/other")
    assert "Warning: owner/other is public" in elsewhere.stderr and ".py" not in elsewhere.stderr


# -- help, completion, start


def bare(code, *arguments, **environment):
    """Run the commands in a process of their own, as the console script does."""
    start = f"import sys, drw_hf_console\nfrom drw_hf.cli.main import app\n{code}"
    settings = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", **environment}
    return subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True, env=settings)


def test_help_imports_none_of_the_libraries_that_commands_need():
    code = f"for command in {[[], *([name] for name in COMMANDS)]}:\n"
    code += "    app([*command, '--help'], standalone_mode=False, prog_name='drw-hf')\n"
    code += "print(sorted({'torch', 'transformers', 'datasets', 'numpy', 'matplotlib'} & set(sys.modules)))"
    found = bare(code)
    assert found.stdout.count("Usage: ") == 1 + len(COMMANDS) and found.stdout.splitlines()[-1] == "[]", found.stderr


CONSOLE = Path(sys.executable).parent / "drw-hf"


def test_the_console_script_answers_without_the_libraries_and_commands_know_protected_models(story, here):
    told = subprocess.run(
        [CONSOLE, "--version"], env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}, capture_output=True, text=True
    )
    assert told.stdout.strip() == drw_hf.__version__
    imported = {line.split("|")[-1].strip() for line in told.stderr.splitlines()}
    assert "drw_hf.cli.main" in imported and imported.isdisjoint({"torch", "transformers", "numpy", "drw_hf.keys"})
    line = [CONSOLE, *"label protected few.jsonl --key key --output by-the-script".split()]
    run = subprocess.run(line, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert len(datasets.load_from_disk(here / "by-the-script")) == 4


def test_importing_the_package_registers_the_protected_models():
    code = "import drw_hf, transformers; print(type(transformers.AutoConfig.for_model('drw_watermarked')).__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "WatermarkedConfig", run.stderr


def test_help_lists_every_command_and_each_has_json_and_an_example():
    listed = drw("--help").stdout
    for command in COMMANDS:
        text = drw(f"{command} --help").stdout
        assert re.search(rf"^  {command} ", listed, flags=re.MULTILINE)
        assert "--json" in text and f"Example: drw-hf {command} " in text
        assert f"`drw-hf {command}`" in PAGE.read_text(encoding="utf-8")


def complete(*words):
    found = bare(
        "app(prog_name='drw-hf')",
        _DRW_HF_COMPLETE="complete_bash",
        COMP_WORDS=" ".join(words),
        COMP_CWORD=str(len(words) - 1),
    )
    return found.stdout.split()


def test_the_shell_completes_commands_options_choices_and_paths(here):
    assert complete("drw-hf", "dis") == ["distill"]
    assert complete("drw-hf", "protect", "--label-kind", "") == ["soft", "hard"]
    assert "--hash-rule" in complete("drw-hf", "keygen", "--h")
    assert complete("drw-hf", "keygen", "my-cl") == ["my-classifier/"]


def test_completion_can_be_shown_and_installed(tmp_path):
    shown = bare("app(prog_name='drw-hf')", "--show-completion", "bash")
    assert shown.returncode == 0 and "_DRW_HF_COMPLETE=complete_bash" in shown.stdout
    installed = bare("app(prog_name='drw-hf')", "--install-completion", "bash", HOME=str(tmp_path))
    assert installed.returncode == 0 and (tmp_path / ".bashrc").exists(), installed.stderr


# -- the examples


def examples():
    """Every command line that --help and the page show, in their order, each once; two have tests of their own."""
    lines = []
    for command in COMMANDS:
        lines += re.findall(r"^ *Example: drw-hf (.+)$", drw(f"{command} --help").stdout, flags=re.MULTILINE)
    lines += re.findall(r"^\$ drw-hf (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [line for line in dict.fromkeys(lines) if line.split()[0] not in TESTED_ELSEWHERE]


@pytest.mark.skipif(OPENSSL is None, reason="openssl, which makes the certificate of an example, is not installed")
def test_every_example_runs(hub, tmp_path, monkeypatch):
    hub.add_user("me")
    monkeypatch.setenv("HF_TOKEN", hub.token("me"))
    monkeypatch.setenv(passphrases.VARIABLE, PASSPHRASE)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    save_lively(Path("my-classifier"), Path("labelled.csv"))
    for seed, name in enumerate(("queries", "probes")):
        write_rows(Path(name), 200, seed)
    Path("tsa.pem").write_bytes(LocalTSA(tmp_path / "tsa").root.read_bytes())
    expected = {"detect": {0, 3, 4}, "verify": {0, 4}}
    lines = examples()
    assert len(lines) >= 15 and {line.split()[0] for line in lines} == set(COMMANDS) - TESTED_ELSEWHERE
    for line in lines:
        if "--logged" in line:  # a service has run meanwhile
            write_log(WatermarkKey.from_pretrained("my-key", passphrase=PASSPHRASE), "my-log")
        found = drw(line)
        assert found.exit_code in expected.get(line.split()[0], {0}), (line, found.output, found.exception)
        assert PASSPHRASE not in found.output
