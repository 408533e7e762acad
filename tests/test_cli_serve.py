"""`drw-hf serve`: from a key to a protected service in one command, in one process or several."""

import concurrent.futures
import http.client
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient, constants
from typer.testing import CliRunner

from drw_hf import KeyRing, QueryLog, WatermarkKey, detect, identify
from drw_hf.asking import merge_logs
from drw_hf.cli.main import app
from drw_hf.errors import WrongPassphraseError
from drw_hf.serving import Limits
from drw_hf.serving.running import listen
from drw_hf.serving.settings import ServiceSecrets, ServiceSettings, hand_over, take_over
from needles import leaks_in
from serving import Command, ask, serving
from small_models import WORDS, make_key, make_lively, make_model, make_tokenizer

SETTINGS = {"mark": "tilt", "strength": 0.7, "temperature": 1.0}
TEXTS = ["the film was very good", "we hated the slow ending", "a truly moving story with a great cast", "dull"]
PASSPHRASE = "a passphrase of these tests"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serve")
    model, tokenizer = make_model(), make_tokenizer()
    model.save_pretrained(folder / "my-classifier")
    tokenizer.save_pretrained(folder / "my-classifier")
    key = make_key(model, tokenizer, **SETTINGS)
    key.save_pretrained(folder / "my-key", passphrase=PASSPHRASE)
    KeyRing(key, secret=bytes(range(32))).save_pretrained(folder / "my-ring")
    (folder / "passphrase").write_text(PASSPHRASE + "\n")
    return folder


@pytest.fixture(scope="module")
def key(place):
    return WatermarkKey.from_pretrained(place / "my-key", passphrase=PASSPHRASE)


@pytest.fixture(scope="module")
def ring(place):
    return KeyRing.from_pretrained(place / "my-ring")


def children_of(process):
    """The processes of the workers, by their command line."""
    listed = subprocess.run(["ps", "-ewwo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()[1:]]
    return {int(pid): args for pid, parent, args in rows if int(parent) == process.pid}


def test_one_process_serves_logs_and_ends_in_order(place, key, tmp_path, monkeypatch):
    """The passphrase comes from the environment; nothing secret is printed, logged or on a command line."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    log = tmp_path / "log"
    options = ["my-classifier", "--key", "my-key", "--log", log, "--label-kind", "hard", "--json"]
    variables = {"DRW_PASSPHRASE": PASSPHRASE, "DRW_API_TOKEN": "the token of all"}
    with serving(place, *options, variables=variables) as service:
        said = service.said()
        client = InferenceClient(model=service.address, token="the token of all")
        answers = [max(client.text_classification(text), key=lambda one: one.score).label for text in TEXTS]
        assert ask(service.address, {"inputs": "dull"})[0] == 401
        (line,) = [open(f"/proc/{service.process.pid}/cmdline", "rb").read()]
        printed = service.end(signal.SIGINT)
    assert service.process.returncode == 0
    document = json.loads(printed)
    assert document["key_fingerprint"] == key.fingerprint and document["address"] == service.address
    assert f"drw-hf detect SUSPECT --logged {log} --key my-key --victim my-classifier" in said
    lines = list(QueryLog(log).lines())
    assert [(line.text, line.answered) for line in lines] == list(zip(TEXTS, answers, strict=True))
    everything = [("said", service.said().encode() + printed.encode()), ("arguments", line)]
    everything += [(path.name, path.read_bytes()) for path in log.glob("*.jsonl")]
    assert not leaks_in(key, everything)
    for _, content in everything:
        assert PASSPHRASE.encode() not in content and b"the token of all" not in content


def test_a_student_of_the_service_is_found_from_its_log_alone_and_the_customer_is_named(tmp_path, monkeypatch):
    """The whole story, every part of it real: the service, the client that asks it, the training, the log."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    tokenizer, rng = make_tokenizer(), np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(1800)]
    model = make_lively(make_model(), tokenizer, texts[:400], spread=1.5)
    ring = KeyRing(make_key(model, tokenizer, **{**SETTINGS, "strength": 0.5}), secret=bytes(range(32)))
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "my-classifier")
    ring.save_pretrained(tmp_path / "my-ring")
    with serving(tmp_path, "my-classifier", "--ring", "my-ring", "--log", "my-log") as service:
        for first in range(0, 500, 100):
            assert ask(service.address, {"inputs": texts[first : first + 100]}, token=ring.token_for("ann"))[0] == 200
        eve = InferenceClient(model=service.address, token=ring.token_for("eve"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(eve.text_classification, texts[500:]))
        service.end()
    scores = [{one.label: one.score for one in answer} for answer in answers]
    student = train(
        make_model(seed=8, sharp=False),
        tokenizer,
        {text: [its["negative"], its["positive"]] for text, its in zip(texts[500:], scores, strict=True)},
    )
    asking = {"victim": model, "tokenizer": tokenizer, "progress": False, "cache_dir": tmp_path / "cache"}
    log = QueryLog(tmp_path / "my-log")
    assert detect(student, logged=log, key=ring.key_for("eve"), **asking).verdict == "detected"
    assert detect(student, logged=log, key=ring.key_for("ann"), **asking).verdict != "detected"
    assert identify(student, logged=log, ring=ring, **asking).leakers == ("eve",)


def train(student, tokenizer, told, epochs=12):
    """A student of the answers that somebody was told."""
    batch, wanted = (
        tokenizer(list(told), return_tensors="pt", padding=True),
        torch.tensor(list(told.values())),
    )
    optimizer, order = torch.optim.AdamW(student.parameters(), lr=3e-3), torch.Generator().manual_seed(0)
    student.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(wanted), generator=order).split(64):
            logits = student(**{name: value[rows] for name, value in batch.items()}).logits
            loss = -(wanted[rows].float() * logits.log_softmax(-1)).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return student.eval()


class Clients:
    """Several at once, who note what they were answered, and go on when their line breaks."""

    def __init__(self, service, tokens):
        self.given, self.broken, self._ending, self._lock = [], 0, False, threading.Lock()
        work = [threading.Thread(target=self._ask, args=(service, n, token)) for n, token in enumerate(tokens)]
        self._threads = work
        [thread.start() for thread in work]

    def _ask(self, service, number, token):
        for n in range(10**6):
            if self._ending:
                return
            text = f"{TEXTS[n % len(TEXTS)]} {number} {n}"
            try:
                status, _, answer = ask(service.address, {"inputs": text}, token=token, timeout=20)
            except (OSError, http.client.HTTPException):  # the process behind the line was killed
                self.broken += 1
                time.sleep(0.05)
                continue
            with self._lock:
                self.given.append((text, status, answer))

    def wait_for(self, n):
        """Go on until so many more answers have come."""
        wanted, end = len(self.given) + n, time.monotonic() + 120
        while len(self.given) < wanted:
            assert time.monotonic() < end
            time.sleep(0.01)

    def end(self):
        self._ending = True
        [thread.join() for thread in self._threads]


def check_all_is_logged(clients, log):
    """Every answer that was given to the clients is in the log, once and as it was given."""
    lines = [line for line in log.lines() if str(line.user).startswith("user ")]
    logged = {line.text: line for line in lines}
    assert len(logged) == len(lines) and {status for _, status, _ in clients.given} == {200}
    for text, _, (answer,) in clients.given:
        assert max(logged[text].answered) == answer[0]["score"]
    assert len(logged) - len(clients.given) <= 8 + clients.broken  # answers whose line broke


def test_several_processes_answer_alike_and_when_one_is_killed_nothing_is_lost(place, ring, tmp_path):
    log = QueryLog(tmp_path / "log")
    with serving(place, "my-classifier", "--ring", "my-ring", "--log", log.folder, "--workers", "2") as service:
        workers = children_of(service.process)
        assert len(workers) == 2 and not any("my-ring" in line for line in workers.values())
        files = [word for line in workers.values() for word in line.split() if "drw-hf-serve-" in word]
        assert len(files) == 2 and not any(map(os.path.exists, files))
        clients = Clients(service, [ring.token_for(f"user {n}") for n in range(8)])
        clients.wait_for(200)
        written = [path for path in log.folder.glob("*.jsonl") if path.read_bytes().count(b"\n") > 1]
        assert len(written) == 2, "both answered"
        os.kill(next(iter(workers)), signal.SIGKILL)
        end = time.monotonic() + 120
        while time.monotonic() < end and len(list(log.folder.glob("*.jsonl"))) < 3:
            clients.wait_for(10)
        clients.wait_for(100)
        clients.end()
        assert len(children_of(service.process)) == 2 and "is started again" in service.said()
        token = ring.token_for("ann")
        for text in TEXTS:
            assert len({json.dumps(ask(service.address, {"inputs": text}, token=token)[2]) for _ in range(12)}) == 1
        service.end()
    assert service.process.returncode == 0
    check_all_is_logged(clients, log)
    checked = log.check()
    assert checked.chains == 3 and merge_logs(tmp_path / "copy", [log.folder]) == 3


@pytest.mark.slow
def test_two_services_give_the_same_answers_and_their_logs_merge(place, key, tmp_path):
    options = ["my-classifier", "--key", "my-key", "--passphrase-file", "passphrase"]
    with (
        serving(place, *options, "--log", tmp_path / "one") as one,
        serving(place, *options, "--log", tmp_path / "other") as other,
    ):
        for text in TEXTS:
            assert ask(one.address, {"inputs": text})[2] == ask(other.address, {"inputs": text})[2]
    merge_logs(tmp_path / "both", [tmp_path / "one", tmp_path / "other"])
    both = QueryLog(tmp_path / "both")
    assert both.check().lines == 8 and both.asked_under(key).questions == TEXTS


@pytest.mark.slow
def test_after_kill_9_every_answer_that_was_given_is_in_the_log(place, ring, tmp_path):
    log = QueryLog(tmp_path / "log")
    for _ in range(3):
        with serving(place, "my-classifier", "--ring", "my-ring", "--log", log.folder) as service:
            clients = Clients(service, [ring.token_for("ann")] * 32)
            clients.wait_for(1000)
            os.kill(service.process.pid, signal.SIGKILL)
            clients.end()
        logged = {line.text: line.answered for line in log.lines()}
        assert all(max(logged[text]) == answer[0]["score"] for text, _, (answer,) in clients.given)
    assert log.check().chains == 3


@pytest.mark.slow
def test_20_000_requests_of_64_clients_and_200_users_mix_nothing_up_and_lose_nothing(tmp_path):
    """`python -m tests.bench --only load`, in which a process is killed half-way, with its figures elsewhere."""
    found = tmp_path / "bench.json"
    command = [sys.executable, "-W", "ignore", "-m", "tests.bench", "--only", "load", "--output", found]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, timeout=900)
    (row,) = json.loads(found.read_text())["results"]
    print(row)
    assert row["requests"] >= 20_000 and row["ratio"] < row["limit"]
    assert (row["clients"], row["users"]) == (64, 200)
    assert (row["lost"], row["doubled"], row["mixed_up"]) == (0, 0, 0)


@pytest.mark.slow
def test_a_worker_whose_parent_is_gone_before_it_began_ends_at_once(place):
    """As where the service is killed while its workers still load the model."""
    settings = ServiceSettings(model=str(place / "my-classifier"))
    with listen("127.0.0.1", 0) as listening, open(os.devnull, "wb") as ready, subprocess.Popen(["true"]) as gone:
        gone.wait()
        passed = (listening.fileno(), ready.fileno())
        file = hand_over(settings, ServiceSecrets(), (str(place / "my-ring"), ""), [*passed, 0, 1, gone.pid])
        command = [sys.executable, "-W", "ignore", "-m", "drw_hf.serving.worker", str(file)]
        with subprocess.Popen(command, pass_fds=passed) as worker:
            assert worker.wait(120) == -signal.SIGTERM


def test_what_a_worker_gets_is_its_owners_alone_and_gone_when_it_is_read(place, ring):
    settings = ServiceSettings(model="my-classifier", log="my-log", limits=Limits(queue=7))
    secrets = ServiceSecrets(None, "the api token", "the admin token")
    path = hand_over(settings, secrets, (str(place / "my-ring"), ""), [3, 4, 0, 2, 7])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found, told, key, descriptors = take_over(path)
    assert (found, told, key, descriptors) == (settings, secrets, ring, [3, 4, 0, 2, 7]) and not path.exists()
    assert "the api token" not in repr(secrets)
    sealed = hand_over(settings, ServiceSecrets("wrong"), (str(place / "my-key"), ""), [])
    with pytest.raises(WrongPassphraseError):
        take_over(sealed)
    assert not sealed.exists()


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(place):
    with serving(place, "my-classifier", "--ring", "my-ring", "--workers", "2") as service:
        workers = list(children_of(service.process))
        service.process.kill()
        end = time.monotonic() + 60
        while time.monotonic() < end and any(os.path.exists(f"/proc/{worker}") for worker in workers):
            time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)


WRONG = {
    "two keys": (["--key", "my-key", "--ring", "my-ring"], 2, "were both given"),
    "no key": ([], 1, "no key at"),
    "a key for a ring": (["--ring", "my-key"], 1, "holds a key, where a key ring was expected"),
    "no passphrase": (["--key", "my-key"], 1, "is sealed; give its passphrase"),
    "no such host": (["--ring", "my-ring", "--host", "256.1.1.1"], 1, "cannot listen at"),
    "a log that is a file": (["--ring", "my-ring", "--log", "passphrase", "--port", "0"], 1, "cannot be written"),
    "a short token": (["--ring", "my-ring", "--admin-token-file", "short", "--port", "0"], 1, "is too short"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_said_at_once(place, what, monkeypatch):
    options, code, words = WRONG[what]
    monkeypatch.chdir(place)
    monkeypatch.delenv("DRW_PASSPHRASE", raising=False)
    (place / "short").write_text("short")
    run = CliRunner().invoke(app, ["serve", "my-classifier", *options])
    assert run.exit_code == code and words in run.output


@pytest.mark.slow
def test_workers_that_do_not_start_end_the_service(place, tmp_path):
    command = Command(place, "my-classifier", "--ring", "my-ring", "--log", "passphrase", "--workers", "2")
    assert command.process.wait(300) == 1
    command.process.stdout.close()
    assert "cannot be written" in command.said() and "a worker of the service did not start" in command.said()
    assert "Traceback" not in command.said()


def test_help_teaches():
    text = CliRunner().invoke(app, ["serve", "--help"]).output
    for word in ("Example: drw-hf serve my-classifier --key my-key --log my-log", "--ring", "InferenceClient"):
        assert word in text
