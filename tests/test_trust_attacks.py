"""Attacks on trust that no other file plays: caches, dashboards, pushes at once, names, code of others, kill -9."""

import contextlib
import hashlib
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import unicodedata
from pathlib import Path

import datasets
import huggingface_hub
import numpy as np
import pytest
from transformers import TrainingArguments

import attacks_on_trust
from drw_hf import QueryLog, detect
from drw_hf.asking import Served
from drw_hf.asking.models import load_config, load_tokenizer
from drw_hf.detection import Probe, PsnrCallback, probe_suspect
from drw_hf.errors import DrwError, InvalidInputError
from drw_hf.evidence import verify_evidence
from drw_hf.evidence.commitments import commitment_files
from drw_hf.tracing import identify
from drw_hf.tracing.search import SCORES
from needles import leaks_in
from small_models import WORDS, make_key, make_model, make_victim
from test_hub_push import MODEL, whole
from test_identify import USERS, make_probe, make_ring

TEXTS = [f"{first} {second} film {third}" for first in WORDS[:6] for second in WORDS[6:11] for third in WORDS[20:22]]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_the_table_is_what_was_played():
    records = [json.loads(line) for line in attacks_on_trust.RESULTS.read_text().splitlines()]
    assert attacks_on_trust.table(records) in attacks_on_trust.PAGE.read_text()
    assert all(record["outcome"] == "held" for record in records)


# -- dashboards


def test_tensorboard_and_what_wandb_would_be_given_hold_nothing_of_the_key(
    tmp_path, tokenizer, monkeypatch, record_property
):
    """A real training of a student, with the callback that looks for the mark, logged by tensorboard."""
    from transformers import Trainer

    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    victim, student = make_victim(), make_model(seed=2)
    rows = datasets.Dataset.from_list([{**dict(tokenizer(text)), "labels": 1} for text in TEXTS])
    args = TrainingArguments(
        str(tmp_path / "out"),
        report_to=["tensorboard"],
        num_train_epochs=2,
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(model=student, args=args, train_dataset=rows, processing_class=tokenizer)
    trainer.add_callback(PsnrCallback(trainer, TEXTS, key=victim.key, tokenizer=tokenizer, victim=victim))
    trainer.train()
    files = [(str(path), path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()]
    assert any("tfevents" in name for name, _ in files)
    config = {**args.to_dict(), **victim.config.to_dict(), **student.config.to_dict()}  # what WandbCallback sends
    files += [("wandb config", repr(config).encode()), ("log", repr(trainer.state.log_history).encode())]
    assert leaks_in(victim.key, [(n, c) for n, c in files if "drw-labels" not in n]) == []
    record_property("tried", len(files))


# -- pushes at once


def test_of_pushes_at_once_one_is_whole_and_the_others_are_refused(hub, record_property):
    victims = [make_victim(secret=hashlib.sha256(bytes([number])).digest()) for number in range(4)]
    refused = []

    def push(victim):
        try:
            victim.push_to_hub(MODEL, replace_key=True, passphrase="correct horse battery")
        except DrwError as error:
            refused.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=push, args=(victim,)) for victim in victims]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        config = load_config(MODEL)
        (owner,) = [victim for victim in victims if victim.key.commitment() == config.key_commitment]
        assert owner.key.fingerprint.encode() in hub.files(MODEL)["drw_key.json"], (
            "never one's key with another's model"
        )
        assert not any(leaks_in(victim.key, hub.everything()) for victim in victims)
    record_property("tried", 12)


# -- caches


def test_answers_that_somebody_altered_in_the_cache_are_told_by_the_digest_and_by_asking_anew(
    tokenizer, cache, record_property
):
    """Whoever can write into your cache can alter what a suspect said; the digest that was published tells."""
    key, suspect = make_key(make_model(), tokenizer=tokenizer), make_model(seed=1)
    options = {"key": key, "tokenizer": tokenizer, "progress": False}
    published = probe_suspect(suspect, TEXTS, **options).digest()
    (store,) = cache.rglob("answers-0.sqlite")
    with sqlite3.connect(store) as connection:
        poison = np.array([0.9, 0.1], dtype="<f4").tobytes()
        connection.execute(f"UPDATE {table_of(connection)}", (poison,))
    poisoned = probe_suspect(suspect, TEXTS, **options)
    assert poisoned.suspect.tolist() == [pytest.approx([0.9, 0.1])] * len(TEXTS) and poisoned.digest() != published
    assert probe_suspect(suspect, TEXTS, load_from_cache_file=False, **options).digest() == published
    record_property("tried", len(TEXTS))


def table_of(connection):
    (name,) = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
    return f"{name} SET {columns[2]} = ?"


def test_a_key_that_somebody_put_into_the_cache_is_not_taken(hub):
    victim, other = make_victim(), make_victim(secret=b"2" * 32)
    victim.push_to_hub(MODEL)
    assert whole(hub) == victim.key
    forged = other.key.to_files()["drw_key.json"]
    placed = [path for path in hub.home.rglob("drw_key.json") if path.is_file()]
    assert placed
    for path in placed:
        path.chmod(0o600)
        path.write_bytes(forged)
    try:
        loaded = type(victim).from_pretrained(MODEL)
    except DrwError as error:
        assert "commitment" in str(error) or "key" in str(error)
    else:
        assert loaded.key == victim.key


# -- names


SPELLINGS = ["é", "ü", "Å", "ñ", "한", "ộ", "ﬁ", "Ω", "ç", "が"]


def test_one_name_in_two_spellings_is_refused_so_that_a_finding_names_one_person(tmp_path, record_property):
    ring = make_ring()
    probe = make_probe(ring, "user-1", n_rows=30)
    tried = 0
    for letter in SPELLINGS:
        composed, decomposed = (unicodedata.normalize(form, f"Ren{letter}") for form in ("NFC", "NFD"))
        if composed == decomposed:
            continue
        assert ring.key_for(composed) != ring.key_for(decomposed), "they are two users to a ring"
        for users in ([composed, decomposed], [decomposed, "between", composed], [decomposed, decomposed]):
            with pytest.raises(InvalidInputError, match=r"two spellings|listed twice"):
                identify(probe, ring=ring, users=[*USERS[:20], *users], progress=False)
            tried += 1
        with pytest.raises(InvalidInputError, match="two spellings"):
            make_ring().declare(["ann", decomposed, composed])
        log = QueryLog(tmp_path / str(tried))
        with log.writer(ring, label_kind="hard") as writer:
            writer.append(
                [Served("a text", [ring.binding.labels[0]] * 2, name) for name in (composed, decomposed)]
            ).result()
        with pytest.raises(InvalidInputError, match="two spellings"):
            identify(lambda asked: [], logged=log, ring=ring, victim=None, tokenizer=None, progress=False)
        tried += 2
        alone = identify(probe, ring=ring, users=[*USERS[:20], decomposed], progress=False)
        assert alone.n_users == 21, "whoever is spelt so from the beginning stays who it is"
    record_property("tried", tried)


# -- code of others


def test_code_in_the_repository_of_a_suspect_or_a_tokenizer_is_not_run(tmp_path, tokenizer, record_property):
    ran = tmp_path / "it ran"
    folder = tmp_path / "suspect"
    make_model(seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    code = f"open({str(ran)!r}, 'w').close()\n"
    (folder / "modeling_own.py").write_text(code + "class Own: pass\n")
    for name, entries in (
        ("config.json", {"AutoConfig": "modeling_own.Own", "AutoModelForSequenceClassification": "modeling_own.Own"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["modeling_own.Own", "modeling_own.Own"]}),
    ):
        document = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**document, "auto_map": entries}))
    key = make_key(make_model(), tokenizer=tokenizer)
    calls = {
        "detect": lambda: detect(str(folder), TEXTS, key=key, tokenizer=tokenizer, progress=False),
        "probe": lambda: probe_suspect(
            str(folder), TEXTS, model=load_config(str(folder)), tokenizer=load_tokenizer(str(folder)), progress=False
        ),
        "tokenizer": lambda: load_tokenizer(str(folder)),
        "unknown kind": lambda: unknown_kind(folder),
    }
    for call in calls.values():
        try:
            call()
        except (DrwError, ValueError):
            pass
        assert not ran.exists()
    record_property("tried", len(calls))


def unknown_kind(folder):
    """A model whose kind only the code in its repository knows."""
    path = folder / "config.json"
    path.write_text(path.read_text().replace('"model_type": "bert"', '"model_type": "own"'))
    load_config(str(folder))


# -- the best of many


def test_the_best_of_2000_users_with_keys_tried_1_does_not_pass(hub, record_property):
    """Whose key fits an innocent best? Its commitment was never published, or only after the suspect was seen."""
    ring = make_ring()
    verdicts, passed = [], 0
    for seed in range(5):
        probe = make_probe(ring, n_rows=150, seed=seed)
        found = identify(probe, ring=ring, users=USERS, progress=False, top=1)
        assert not found.leakers, "corrected for those who were searched, nobody is named"
        key = ring.key_for(found.ranking[0].user)
        result = detect(probe, key=key, keys_tried=1, suspect_first_seen="2026-04-01")
        verdicts.append(result.verdict)
        ring.declare(USERS)
        api = huggingface_hub.HfApi()
        api.create_repo(f"owner/ring-{seed}")
        for path, content in commitment_files(ring.commitment()).items():
            api.upload_file(repo_id=f"owner/ring-{seed}", path_in_repo=path, path_or_fileobj=content)
        checked = verify_evidence(result, key=key, repo_id=f"owner/ring-{seed}")
        passed += checked.holds or not checked.failed
    assert passed == 0 and any(verdict != "not detected" for verdict in verdicts), verdicts
    record_property("tried", 5)


# -- kill -9


PROBED = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
import conftest
from small_models import make_model, make_tokenizer
from drw_hf.asking import Predictor
from drw_hf.detection import probe_suspect
import numpy as np
asked = 0
class Service(Predictor):
    labels = ("negative", "positive")
    def answer(self, questions):
        global asked
        asked += len(questions)
        if asked > {kill_after}:
            os.kill(os.getpid(), signal.SIGKILL)
        return [np.array([0.25, 0.75]) if len(text) % 2 else np.array([np.nan, 0.5]) for text in questions]
texts = ["good " * (number % 5) + "film" for number in range(60)]
probe = probe_suspect(Service(), texts, model=make_model(), tokenizer=make_tokenizer(),
    batch_size=5, cache_dir={cache!r}, progress=False)
probe.save({output!r})
print(asked, probe.digest())
"""


def run_probe(tmp_path, kill_after, cache):
    code = PROBED.format(
        tests=str(Path(__file__).parent),
        kill_after=kill_after,
        cache=str(tmp_path / cache),
        output=str(tmp_path / "probe.npz"),
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)


@pytest.mark.slow
def test_a_probe_that_is_killed_goes_on_and_leaves_no_half_file(tmp_path, record_property):
    """A real process, really killed, midway among answers that are none."""
    assert run_probe(tmp_path, 22, "killed").returncode == -signal.SIGKILL
    assert not (tmp_path / "probe.npz").exists()
    finished = run_probe(tmp_path, 10**6, "killed")
    asked, digest = finished.stdout.split()
    assert int(asked) <= 60 - 15, finished.stderr[-2000:]
    assert Probe.load(tmp_path / "probe.npz").digest() == digest
    record_property("tried", 1)


SEARCHED = """
import sys, time
sys.path.insert(0, {tests!r})
import conftest
from test_identify import make_probe, USERS
from drw_hf import KeyRing
from drw_hf.tracing import identify
from drw_hf.tracing.search import SCORES
ring = KeyRing.from_pretrained({ring!r})
def users():
    for number, user in enumerate(USERS):
        time.sleep(0.02 * (number % 100 == 0))  # so that there is a time to be killed between chunks
        yield user
found = identify(make_probe(ring, "user-7", n_rows=60), ring=ring, users=users(), chunk_size=100, progress=False,
                 resume={resume!r})
print(found.leakers[0].user, found.leakers[0].log10_p, found.n_users)
"""


def recorded(path):
    """How many chunks of a search are on the disk."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute(f"SELECT COUNT(*) FROM {SCORES.table}").fetchone()[0]
    except sqlite3.Error:
        return 0


@pytest.mark.slow
def test_a_search_that_is_killed_at_any_moment_goes_on_and_finds_the_same(tmp_path, record_property):
    make_ring().save_pretrained(tmp_path / "ring")

    def start(resume):
        names = {"tests": str(Path(__file__).parent), "ring": str(tmp_path / "ring"), "resume": str(tmp_path / resume)}
        code = SEARCHED.format(**names)
        return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)

    expected, _ = start("whole").communicate()
    assert expected.startswith("user-7 ")
    kept = []
    for least in (0, 1, 5, 12):
        resume = tmp_path / f"killed-{least}"
        process = start(resume.name)
        while process.poll() is None and not (resume.exists() and recorded(resume) >= least):
            time.sleep(0.002)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        process.communicate()
        kept.append(recorded(resume))
        again, _ = start(resume.name).communicate()
        assert again == expected
    assert kept[-1] >= 12 and max(kept) < recorded(tmp_path / "whole"), "killed midway, and what was done was kept"
    record_property("tried", len(kept))
