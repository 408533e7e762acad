"""Writes files of every format, for `test_frozen.py` to read for ever. What is there is never replaced.

Run it where a format is new: ``pytest tests/frozen/freeze.py``, then commit what it wrote. All keys come from fixed
secrets and protect nothing; the models have random weights.
"""

import dataclasses
import json
import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import pipeline

from drw_hf import KeyRing, QueryLog, WatermarkKey, detect, identify
from drw_hf.asking import Served, redact_log, root_log
from drw_hf.detection import Announcement, probe_suspect
from drw_hf.detection.result import authenticate, refer_to
from drw_hf.detection.statistics import STATISTICS
from drw_hf.detection.verdict import Corrections, verdict_on
from drw_hf.evidence import verify_commitment
from drw_hf.evidence.log_roots import stamp_days
from drw_hf.hub.card import model_card
from drw_hf.keys import RarestRule, Round, Terms, UnseasonedKey, sealing
from drw_hf.planning import rehearse
from drw_hf.watermark import tilt
from local_tsa import LocalTSA
from rehearsal_scene import TINY, Explodes, make_rows, make_scene_key, make_tagger, make_words, registered
from small_models import WORDS, make_key, make_lively, make_model, make_tokenizer, make_victim
from test_detect import make_case
from test_detect import make_key as make_large_key
from test_identify import make_probe, make_ring
from test_margin import made_up_probe, margin_key
from test_query_log import Clock
from test_tilt_statistic import as_labels
from test_tilt_statistic import make_key as make_tilt_key
from test_tilt_statistic import make_probe as make_tilt_probe

FROZEN = Path(__file__).parent
PASSPHRASE = "correct horse battery staple"
SECRET = bytes(range(100, 132))
USERS = [f"customer-{number}" for number in range(50)]
RULES = {"sequence-classification": "keyed", "token-classification": None}
SENTENCES = ["the film was very good", "we hated the slow ending", "a truly moving story with a great cast", "dull"]


def write_json(path, document):
    path.write_text(json.dumps(document, indent=1) + "\n")


def shown(key):
    """What a key must give for ever: its public names and some of its hashes."""
    ids = list(range(5, 15))
    return {
        "fingerprint": key.fingerprint,
        "commitment": key.commitment(),
        "settings": {name: getattr(key, name) for name in ("task", "target", "frequency", "epsilon", "tau", "law")},
        "token_ids": ids,
        "phases": key.phase_table[ids].tolist(),
        "selections": key.selection_table[ids].tolist(),
    }


def freeze_keys(folder):
    tokenizer, tagger = make_tokenizer(), make_model("token-classification")
    generator = np.random.default_rng(0)
    arrays = {"v_k": generator.random(8), "v_s": generator.random(8), "M": generator.normal(size=(64, 8))}
    settings = {"target": 1, "frequency": 16.0, "epsilon": 0.2, "tau": 0.5, "secret": SECRET}
    keys = {
        "plain": make_key(make_model(), tokenizer=tokenizer, secret=SECRET),
        "sealed": make_key(tagger, tokenizer=tokenizer, secret=SECRET, target="B-PER"),
        "keyed-rule": make_key(make_model(), tokenizer=tokenizer, secret=SECRET, hash_rule="keyed", law="paper"),
        "arrays": WatermarkKey.from_arrays(
            **arrays,
            config=tagger.config,
            task="token-classification",
            law="paper",
            special_token_ids=[0, 1, 2, 3, 4],
            **settings,
        ),
    }
    keys["arrays-sealed"] = keys["arrays"]
    for name, key in keys.items():
        key.save_pretrained(folder / name, passphrase=PASSPHRASE if "sealed" in name else None)
    write_json(folder / "expected.json", {name: shown(key) for name, key in keys.items()})


def freeze_rings(folder):
    ring = KeyRing.generate(
        make_model("token-classification"), tokenizer=make_tokenizer(), target="B-PER", secret=SECRET
    )
    ring.declare(USERS)
    ring.rotate()
    ring.declare(USERS[:20])
    ring.save_pretrained(folder / "plain")
    ring.save_pretrained(folder / "sealed", passphrase=PASSPHRASE)
    proof = ring.prove("customer-7", USERS, epoch=0)
    write_json(folder / "proof.json", proof.to_dict())
    ring.key_for("customer-7", 0).save_pretrained(folder / "customer-7")
    expected = {
        "fingerprint": ring.fingerprint,
        "epoch": ring.epoch,
        "commitments": [ring.commitment(0), ring.commitment(1)],
        "token": ring.token_for("customer-7"),
        "users": {user: [shown(ring.key_for(user, epoch)) for epoch in (0, 1)] for user in USERS[:3]},
    }
    write_json(folder / "expected.json", expected)


def freeze_protected(folder):
    """A tagger with hard labels, its key, and what it answers; and what it would answer with soft ones."""
    tokenizer = make_tokenizer()
    model = make_model("token-classification")
    key = make_key(model, tokenizer=tokenizer, secret=SECRET, target="B-PER")
    victim = make_victim("token-classification", key=key, label_kind="hard", model=model)
    key.save_pretrained(folder / "key", passphrase=PASSPHRASE)
    victim.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    served = {}
    for kind in ("hard", "soft"):
        batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
        with torch.no_grad():
            again = make_victim("token-classification", key=key, label_kind=kind, model=model)
            served[kind] = again(**batch).logits.softmax(-1).tolist()
    write_json(folder / "expected.json", {"texts": SENTENCES, **served})


def freeze_pushed(folder, hub, tmp_path):
    """A repository as a push leaves it: weights, sealed key, card, handler, time-stamped commitment."""
    tokenizer, model = make_tokenizer(), make_model()
    key = make_key(model, tokenizer=tokenizer, secret=SECRET, scope="all", tau=1.0)
    victim = make_victim(model=model, key=key)
    with LocalTSA(tmp_path / "tsa").running() as authority:
        victim.push_to_hub(
            "owner/model", passphrase=PASSPHRASE, tokenizer=tokenizer, handler=True, timestamp_url=authority.url
        )
        record = verify_commitment(key, "owner/model", trusted_roots=[authority.root])
        folder.mkdir()
        shutil.copy(authority.root, folder / "authority.pem")
    files = hub.files("owner/model")
    del files[".gitattributes"]  # in this repository it would speak to git
    for name, content in files.items():
        path = folder / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write_json(folder / "commitment.json", record.to_dict())
    metrics = {"accuracy": {"clean": 0.93, "protected": 0.92, "n": 872}}
    (folder / "card.md").write_text(model_card(victim, metrics=metrics, dataset="owner/data", license="mit"))
    answers = pipeline("text-classification", model=victim, tokenizer=tokenizer)(SENTENCES, top_k=None)
    write_json(folder / "expected.json", {"texts": SENTENCES, "answers": answers, "shown": shown(key)})
    return record


def freeze_evidence(folder):
    folder.mkdir()
    keys = {"direct": make_large_key(), "paper": make_large_key(law="paper")}
    for name, key in keys.items():
        key.save_pretrained(folder / f"{name}-key")
    rows, clean, marked, _ = make_case(keys["direct"], n_rows=60)
    found = {
        "exact": detect(
            marked,
            rows,
            key=keys["direct"],
            victim=clean,
            keys_tried=3,
            looks=2,
            simulated_keys=20,
            suspect_first_seen="2026-04-01",
        ),
        "exact-without-victim": detect(marked, rows, key=keys["direct"]),
    }
    rows, clean, marked, _ = make_case(keys["paper"], n_rows=60)
    found["exact-paper-law"] = detect(marked, rows, key=keys["paper"], victim=clean)
    rows, clean, _, served = make_case(keys["direct"], n_rows=60, label_kind="hard", seed=4)
    drawn = served.argmax(-1).numpy()
    generator = np.random.default_rng(0)
    wrong = generator.random(drawn.shape) < 0.1
    repeats = np.eye(4)[np.where(wrong, (drawn + 1) % 4, drawn)] * 0.9 + 0.025
    found["memory"] = detect(list(repeats), rows, key=keys["direct"], victim=clean, logged=list(drawn))
    sentences = make_large_key("sequence-classification", hash_rule="rarest")
    sentences.save_pretrained(folder / "sentences-key")
    rows, clean, marked, _ = make_case(sentences, n_rows=900)
    found["exact-sentences"] = detect(marked, rows, key=sentences, victim=clean)
    for name, result in found.items():
        result.save(folder / f"{name}.json")
    probe_suspect(marked, rows, key=sentences).save(folder / "probe.npz")
    write_json(folder / "expected.json", {name: [r.verdict, r.log10_p, r.p_snr] for name, r in found.items()})


def freeze_few_probes(folder):
    """Evidence of few probes and scope ``all``, on which the versions of the exact test differ."""
    folder.mkdir()
    key = make_large_key(scope="all")
    key.save_pretrained(folder / "key")
    rows, clean, marked, _ = make_case(key, n_rows=20)
    probe, figures = probe_suspect(marked, rows, key=key, victim=clean), {}
    for name in ("drw-exact-1", "drw-exact-2"):
        bare = verdict_on(probe, key, Corrections(), 1e-3, statistic=STATISTICS.get(name))
        result = refer_to(bare, None, None)
        dataclasses.replace(result, mac=authenticate(result.document(), key)).save(folder / f"{name}.json")
        figures[name] = [result.verdict, result.log10_p, result.n_probes]
    write_json(folder / "expected.json", figures)


def freeze_tilt_evidence(folder):
    """Evidence of the mark tilt: scores with labels beside them, labels, without the victim, with a reference."""
    folder.mkdir()
    keys = {"tags": make_tilt_key(), "sentences": make_tilt_key("sequence-classification", 2, tau=0.5)}
    probes = {name: make_tilt_probe(key, n_rows=60 if name == "tags" else 400) for name, key in keys.items()}
    reference = probes["tags"].victim ** 0.8
    reference = (reference / reference.sum(1, keepdims=True)).astype(np.float32)
    counts = dict.fromkeys(range(4, 1000), 2)
    cases = {
        "tags": ("tags", {}, {"keys_tried": 3, "simulated_keys": 20}),
        "tags-labels": ("tags", {"labels": True}, {}),
        "tags-without-victim": ("tags", {"victim": None}, {}),
        "tags-reference": ("tags", {"reference": reference}, {}),
        "sentences": ("sentences", {}, {"logged_counts": counts, "looks": 2}),
    }
    figures = {}
    for name, key in keys.items():
        key.save_pretrained(folder / f"{name}-key")
    for name, (whose, changes, options) in cases.items():
        probe = as_labels(probes[whose]) if changes.pop("labels", False) else probes[whose]
        result = detect(dataclasses.replace(probe, **changes), key=keys[whose], **options)
        result.save(folder / f"{name}.json")
        figures[name] = [result.verdict, result.variant, result.log10_p, result.p_snr, result.beside]
    write_json(folder / "expected.json", figures)


def freeze_identification(folder):
    folder.mkdir()
    ring = make_ring()
    users = [f"user-{number}" for number in range(200)]
    ring.declare(users)
    ring.save_pretrained(folder / "ring")
    found = identify(make_probe(ring, "user-123", n_rows=60), ring=ring, users=users, progress=False)
    found.save(folder / "found.json")
    write_json(
        folder / "expected.json",
        {"users": users, "leaker": found.leakers[0].user, "log10_p": found.leakers[0].log10_p},
    )


def freeze_served(folder):
    """What protected models answer, to texts, pairs and words, soft and hard, with every answer marked."""
    folder.mkdir()
    tokenizer = make_tokenizer()
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.choice([1, 3, 9]))) for _ in range(24)]
    pairs = list(zip(texts[:12], texts[12:], strict=True))
    served = {"texts": texts, "pairs": pairs}
    for task in ("sequence-classification", "token-classification"):
        model = make_model(task)
        key = make_key(model, tokenizer=tokenizer, secret=SECRET, scope="all", tau=0.8, hash_rule=RULES[task])
        key.save_pretrained(folder / task)
        for kind in ("soft", "hard"):
            victim = make_victim(task, key=key, label_kind=kind, model=model)
            with torch.no_grad():
                for name, asked in (("texts", (texts,)), ("pairs", tuple(map(list, zip(*pairs, strict=True))))):
                    logits = victim(**tokenizer(*asked, padding=True, return_tensors="pt")).logits
                    answers = logits.argmax(-1) if kind == "hard" else logits.softmax(-1)
                    served[f"{task} {kind} {name}"] = answers.tolist()
        model.save_pretrained(folder / f"{task}-model")
    write_json(folder / "expected.json", served)


def freeze_ring_of_frequencies(folder):
    """A ring whose rule holds an array, plain and sealed."""
    rule = RarestRule(np.arange(64.0))
    settings = {"tokenizer": make_tokenizer(), "target": 1, "secret": SECRET, "hash_rule": rule}
    ring = KeyRing.generate(make_model(), **settings)
    ring.save_pretrained(folder / "plain")
    ring.save_pretrained(folder / "sealed", passphrase=PASSPHRASE)
    write_json(folder / "expected.json", {"fingerprint": ring.fingerprint, "user": shown(ring.key_for("somebody"))})


def freeze_pointer(folder, hub):
    """A repository whose key lies in another one: what points there, and what lies there."""
    model = make_model()
    key = make_key(model, tokenizer=make_tokenizer(), secret=SECRET)
    make_victim(model=model, key=key).push_to_hub("owner/pointed", key_repo_id="owner/keys", passphrase=PASSPHRASE)
    folder.mkdir()
    (folder / "drw_key_pointer.json").write_bytes(hub.files("owner/pointed")["drw_key_pointer.json"])
    (folder / "drw_key.json").write_bytes(hub.files("owner/keys")[f"{key.fingerprint}/drw_key.json"])
    write_json(folder / "expected.json", shown(key))


def freeze_ledger(folder):
    """The record by which a search for leakers goes on."""
    folder.mkdir()
    ring = make_ring()
    users = [f"user-{number}" for number in range(200)]
    ring.save_pretrained(folder / "ring")
    probe = make_probe(ring, "user-123", n_rows=60)
    probe.save(folder / "probe.npz")
    resume = folder / "ledger.sqlite"
    found = identify(probe, ring=ring, users=users[:120], progress=False, resume=resume)
    first = found.ranking[0]
    write_json(folder / "expected.json", {"users": users, "strongest": first.user, "log10_p": first.log10_p})


def freeze_tilt(folder):
    """Keys of the mark tilt, a ring of it, a protected model's config, and what the models of ``served`` answer."""
    folder.mkdir()
    tokenizer = make_tokenizer()
    served = json.loads((FROZEN / "served" / "expected.json").read_text())
    columns = {"texts": (served["texts"],), "pairs": tuple(map(list, zip(*served["pairs"], strict=True)))}
    settings = {"strength": 0.8, "temperature": 1.4, "tau": 0.9, "budget": 0.3, "pair_truncation": "only_second"}
    expected = {}
    for task in ("sequence-classification", "token-classification"):
        model = make_model(task)
        key = make_key(model, tokenizer=tokenizer, secret=SECRET, mark="tilt", **settings)
        key.save_pretrained(folder / task, passphrase=PASSPHRASE if task == "token-classification" else None)
        ids = list(range(5, 15))
        expected[task] = {
            "commitment": key.commitment(),
            "settings": {name: getattr(key.settings, name) for name in (*settings, "max_length", "truncation_side")},
            "token_ids": ids,
            "phases": tilt.phases(key, ids).tolist(),
            "signals": tilt.signals(key, ids).tolist(),
        }
        for kind, digits, asked in (("soft", 0, "texts"), ("soft", 3, "pairs"), ("hard", None, "texts")):
            victim = make_victim(task, key=key, label_kind=kind, model=model, digits=digits)
            with torch.no_grad():
                logits = victim(**tokenizer(*columns[asked], padding=True, return_tensors="pt")).logits
            found = logits.softmax(-1) if kind == "soft" else logits.argmax(-1)
            expected[f"{task} {kind} {digits} {asked}"] = found.tolist()
    victim.config.save_pretrained(folder / "config")
    ring = KeyRing(key, secret=SECRET)
    ring.save_pretrained(folder / "ring")
    user = ring.key_for("somebody")
    expected["ring"] = {"commitment": user.commitment(), "signals": tilt.signals(user, ids).tolist()}
    write_json(folder / "expected.json", expected)


def freeze_margin(folder):
    """Keys with a margin, what the models of ``served`` answer under them, and evidence that goes by their log."""
    folder.mkdir()
    tokenizer = make_tokenizer()
    texts = [" ".join(row) for row in np.random.default_rng(0).choice(WORDS, (60, 6)).tolist()]
    expected = {"texts": texts}
    for task in ("sequence-classification", "token-classification"):
        model = make_model(task)
        settings = {"strength": 0.3, "temperature": 1.4, "budget": 0.3, "margin": 0.9, "margin_budget": 0.1}
        key = make_key(model, tokenizer=tokenizer, secret=SECRET, mark="tilt", **settings)
        key.save_pretrained(folder / task)
        served = {}
        for name, one in {"drawn": key, "undrawn": key.replace(settings=key.settings.replace(margin=0.0))}.items():
            victim = make_victim(task, key=one, label_kind="hard", model=model)
            with torch.no_grad():
                served[name] = victim(**tokenizer(texts, padding=True, return_tensors="pt")).logits.argmax(-1).tolist()
        expected[task] = {"commitment": key.commitment(), "settings": settings, **served}
        expected[f"{task} evidence"] = {}
        large = margin_key(task, secret=SECRET)
        large.save_pretrained(folder / f"{task}-large-key")
        for kind in ("scores", "labels"):
            probe = made_up_probe(task, large, n_texts=200, follows=0.5)
            result = detect(as_labels(probe) if kind == "labels" else probe, key=large, looks=2)
            result.save(folder / f"{task}-{kind}.json")
            figures = [result.verdict, result.variant, result.log10_p, result.log10_bound, result.parts, result.beside]
            expected[f"{task} evidence"][kind] = figures
    write_json(folder / "expected.json", expected)


def freeze_rehearsal(folder):
    """A rehearsal of a few attacks, one of which failed."""
    folder.mkdir()
    model, tokenizer = make_tagger(), make_words()
    attacks = ["argmax", "marked-5", "serves-labels", "frame-innocent"]
    with registered(Explodes):
        found = rehearse(
            model,
            make_scene_key(model, tokenizer, secret=SECRET),
            make_rows(model, tokenizer),
            tokenizer=tokenizer,
            attacks=[*attacks, Explodes.name],
            student=TINY,
        )
    found.save(folder / "rehearsal.json")
    write_json(folder / "expected.json", {"verdicts": {row.attack: row.verdict for row in found.rows}})


def freeze_query_log(folder):
    """A log that two runs of a ring's service wrote, with a root, and texts that were taken out."""
    folder.mkdir()
    key = make_key(make_model(), tokenizer=make_tokenizer(), secret=SECRET, mark="tilt", strength=1.0, temperature=1.0)
    ring = KeyRing(key, secret=SECRET)
    ring.save_pretrained(folder / "ring")
    log = QueryLog(folder / "log")
    served = [Served(text, label) for text, label in zip(SENTENCES, ["negative", "positive"] * 2, strict=True)]
    for user in USERS[:2]:
        with log.writer(ring, label_kind="hard") as writer:
            for one in served:
                writer.append([one._replace(user=user)]).result()
    with log.writer(ring, label_kind="soft") as writer:
        writer.append([Served(["a film", "a book"], [0.25, 0.75], USERS[0])]).result()
    redact_log(log.folder, user=USERS[1], names=True)
    (day,) = root_log(log.folder, datetime.now(UTC).date())
    asked = [list(log.asked_under(ring.key_for(USERS[0]))[0])]
    again = log.asked_under(ring.key_for(USERS[1]), SENTENCES)
    lines = [[line.n, line.at, line.link, line.text, line.user, line.answered] for line in log.lines()]
    write_json(folder / "expected.json", {"lines": lines, "root": day.root, "asked": asked, "again": list(again[:2])})


def freeze_log_evidence(folder, tmp_path):
    """Evidence that rests on a log of one day, and that log, whose root an authority stamped when the day was over."""
    folder.mkdir()
    tokenizer, chance = make_tokenizer(), random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=6)) for _ in range(60)]
    model = make_lively(make_model(), tokenizer, texts, spread=1.0)
    key = make_key(model, tokenizer, secret=SECRET, mark="tilt", strength=0.2, temperature=1.0, margin=0.6)
    key.save_pretrained(folder / "key")
    log, answers = QueryLog(folder / "log"), ["negative", "positive"] * 30
    with pytest.MonkeyPatch.context() as monkeypatch:
        clock = Clock(monkeypatch, "2024-03-01")
        with log.writer(key, label_kind="hard") as writer:
            writer.append([Served(*pair) for pair in zip(texts, answers, strict=True)]).result()
        clock.on("2024-03-02")
        days = root_log(log.folder)
    with LocalTSA(tmp_path / "log-tsa").running() as tsa:
        tsa.time = "20240302000500"
        stamp_days(log.folder, days, tsa.url)
        shutil.copy(tsa.root, folder / "authority.pem")
    options = {"key": key, "tokenizer": tokenizer, "victim": model, "progress": False}
    found = detect(lambda asked: ["positive"] * len(asked), logged=log, suspect_first_seen="2024-06-01", **options)
    found.save(folder / "evidence.json")
    write_json(folder / "expected.json", {"verdict": found.verdict, "log10_p": found.log10_p, "log": found.log})


def freeze_probes(folder):
    """A probe that a neutral party made of texts that were drawn, and evidence with controls and missing answers."""
    folder.mkdir()
    tokenizer, chance = make_tokenizer(), random.Random(0)
    corpus = [" ".join(chance.choices(WORDS, k=6)) for _ in range(40)]
    announced, seed = (
        Announcement.of(corpus, 15, "drand quicknet, round 30000000", "sequence-classification"),
        b"5" * 32,
    )
    write_json(folder / "draw.json", announced.to_dict())
    drawn = announced.draw(corpus, seed, "sequence-classification")
    options = {"model": make_model(), "tokenizer": tokenizer, "draw": announced.record(seed), "progress": False}
    probe = probe_suspect(make_model(seed=1), drawn, **options)
    probe.save(folder / "probe.npz")
    tokenizer.save_pretrained(folder / "tokenizer")
    key = make_large_key()
    key.save_pretrained(folder / "key")
    rows, clean, marked, _ = make_case(key, n_rows=60)
    _, _, innocent, _ = make_case(key, n_rows=60, mark=False)
    marked[7] = None
    found = detect(marked, rows, key=key, victim=clean, controls=[innocent])
    found.save(folder / "controls.json")
    figures = {"verdict": found.verdict, "log10_p": found.log10_p, "controls": found.controls}
    figures |= {"corpus": corpus, "digest": probe.digest(), "texts": drawn, "n_unanswered": found.n_unanswered}
    write_json(folder / "expected.json", figures)


def freeze_seasoned(folder):
    """Keys, waiting and seasoned, and a ring before and after its round, which NIST drew in 2018."""
    nist = json.loads((FROZEN.parent / "vectors" / "beacons.json").read_text())["nist"]
    time, certificate = datetime.fromisoformat(nist["time"]), nist["certificate"].encode()
    round_ = Round.at("nist", time, certificate=certificate, chain=nist["chain"])
    fixed = {"weights": "ab" * 32, "tokenizer": "cd" * 32, "statistics": ["drw-exact-2", "drw-memory-1"]}
    terms = Terms(round=round_, **fixed)
    expected = {}
    for name, settings in {"plain": {}, "sealed": {"hash_rule": "keyed"}}.items():
        waiting = UnseasonedKey(make_key(make_model(), **settings), terms, secret=SECRET)
        key = waiting.season(nist["pulse"])
        for one in (waiting, key):
            one.save_pretrained(folder / name, passphrase=PASSPHRASE if name == "sealed" else None)
        expected[name] = {**shown(key), "base": waiting.commitment(), "value": nist["pulse"]["outputValue"]}
    ring = KeyRing(make_key(make_model(), hash_rule="keyed"), secret=SECRET, terms=terms).declare(USERS)
    ring.save_pretrained(folder / "waiting-ring")
    ring.season(nist["pulse"]).save_pretrained(folder / "ring")
    write_json(folder / "proof.json", ring.prove("customer-7", USERS).to_dict())
    expected["ring"] = {"root": ring.commitment(), "user": shown(ring.key_for("customer-7"))}
    write_json(folder / "expected.json", expected)


def test_freeze(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(sealing, "COST", 2**17)  # as users' files are sealed, not as other tests seal theirs
    parts = {
        "keys": freeze_keys,
        "rings": freeze_rings,
        "protected": freeze_protected,
        "pushed": lambda folder: freeze_pushed(folder, hub, tmp_path),
        "evidence": freeze_evidence,
        "few-probes": freeze_few_probes,
        "identification": freeze_identification,
        "served": freeze_served,
        "ring-of-frequencies": freeze_ring_of_frequencies,
        "pointer": lambda folder: freeze_pointer(folder, hub),
        "ledger": freeze_ledger,
        "tilt": freeze_tilt,
        "tilt-evidence": freeze_tilt_evidence,
        "margin": freeze_margin,
        "rehearsal": freeze_rehearsal,
        "query-log": freeze_query_log,
        "probes": freeze_probes,
        "log-evidence": lambda folder: freeze_log_evidence(folder, tmp_path),
        "seasoned": freeze_seasoned,
    }
    for name, freeze in parts.items():
        if not (FROZEN / name).exists():
            (tmp_path / "new").mkdir(exist_ok=True)
            freeze(tmp_path / "new" / name)
            shutil.move(tmp_path / "new" / name, FROZEN / name)
