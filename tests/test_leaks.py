"""Nothing that is written anywhere carries the key: every file of every way to save, train, cache or compile.

The needles are the secret in its usual spellings, the sub-keys, the vectors and the tables, in both float widths, and
the parameters that a thief would like to know. A control test plants each needle and finds it again.
"""

import dataclasses
import functools
import importlib
import inspect
import logging
import os
import pickle
import subprocess
import sys
import traceback
import zipfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import Trainer

import drw_hf
import test_tilt_statistic as tilt_cases
from drw_hf import KeyRing, QueryLog, WatermarkKey
from drw_hf.asking import Served
from drw_hf.detection.statistics import STATISTICS, TestOptions
from drw_hf.errors import DrwError
from drw_hf.keys import MarkSettings, Terms, UnseasonedKey, derivation
from drw_hf.planning import rehearse
from drw_hf.serving import create_app
from local_beacon import LocalBeacon
from needles import leaks_in, needles
from rehearsal_scene import TINY, make_rows, make_scene_key, make_tagger, make_words
from small_models import MARKS, make_batch, make_key, make_model, make_tokenizer, make_victim
from test_ecosystem import Rows, arguments


def assert_clean(key, *places):
    """Search files and folders, also inside zip archives (torch.save writes them)."""
    contents = {}
    for place in map(Path, places):
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.is_file():
                contents[path] = path.read_bytes()
                if zipfile.is_zipfile(path):
                    with zipfile.ZipFile(path) as archive:
                        contents |= {f"{path}!{name}": archive.read(name) for name in archive.namelist()}
    assert not leaks_in(key, [(str(path), data) for path, data in contents.items()])
    return contents


WAYS = [{"law": "direct"}, {"law": "paper"}, {"mark": "tilt"}]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_search_finds_every_needle(tmp_path, way):
    key = make_key(make_model(), **way)
    for name, needle in needles(key).items():
        (tmp_path / "planted.bin").write_bytes(b"before" + needle + b"after")
        with pytest.raises(AssertionError, match="planted"):
            assert_clean(key, tmp_path)
        if "in a pickle" not in name:
            torch.save({"needle": needle}, tmp_path / "planted.bin")
            with pytest.raises(AssertionError, match="planted"):
                assert_clean(key, tmp_path)


@pytest.mark.parametrize("tau", [0.3, 0.9, 1.0])
def test_no_needle_is_so_short_that_it_stands_somewhere_by_chance(tau):
    keys = [
        make_key(make_model(), make_tokenizer(), mark="tilt", strength=1.0, temperature=1.0, tau=tau) for _ in "123"
    ]
    for key in keys:
        assert [name for name, needle in needles(key).items() if len(set(needle)) < 5 or len(needle) < 10] == []


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_save_pretrained(tmp_path, way, label_kind):
    victim = make_victim(**way, label_kind=label_kind)
    victim(**make_batch())  # tables are made on the first call
    victim.save_pretrained(tmp_path)
    assert_clean(victim.key, tmp_path)


@pytest.mark.parametrize("way", [{"hash_rule": "keyed", "label_kind": "hard"}, {"mark": "tilt"}], ids=str)
def test_trainer_checkpoints_and_training_args(tmp_path, caplog, capfd, way):
    victim = make_victim(**way)
    with caplog.at_level(logging.DEBUG):
        settings = arguments(tmp_path, max_steps=2, save_steps=1, eval_strategy="steps", eval_steps=1, logging_steps=1)
        trainer = Trainer(victim, settings, train_dataset=Rows(16), eval_dataset=Rows(4))
        trainer.train()
        trainer.save_model(str(tmp_path / "final"))
        trainer.create_model_card()
    streams = capfd.readouterr()
    (tmp_path / "log.txt").write_text(caplog.text + streams.out + streams.err)
    contents = assert_clean(victim.key, tmp_path)
    names = {Path(str(name)).name for name in contents}
    assert {"training_args.bin", "optimizer.pt", "trainer_state.json", "model.safetensors", "README.md"} <= names


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_torch_save_pickle_and_state_dict(tmp_path, way):
    victim = make_victim(**way)
    victim(**make_batch())
    torch.save(victim, tmp_path / "model.pt")
    torch.save(victim.state_dict(), tmp_path / "state.pt")
    torch.save(victim.config, tmp_path / "config.pt")
    (tmp_path / "model.pickle").write_bytes(pickle.dumps(victim))
    assert_clean(victim.key, tmp_path)


@pytest.mark.parametrize("mark", MARKS)
def test_state_dict_buffers_and_module_attributes_hold_no_table(mark):
    victim = make_victim(mark=mark)
    victim(**make_batch())
    inner = {f"victim.{name}" for name in victim.get_base_model().state_dict()}
    assert set(victim.state_dict()) == inner
    assert {name for name, _ in victim.named_buffers()} <= {
        f"victim.{name}" for name, _ in victim.get_base_model().named_buffers()
    }
    kept = [value if isinstance(value, tuple) else (value,) for value in victim.key._cache.values()]
    tables = [table for several in kept for table in several if torch.is_tensor(table)]
    assert tables, "the key has them"
    attributes = [value for module in victim.modules() for value in vars(module).values()]
    assert not any(value is table for value in attributes for table in tables)


@pytest.mark.parametrize("mark", MARKS)
def test_datasets_caches_and_fingerprints(tmp_path, monkeypatch, mark):
    """A map over the model pickles it for the cache's fingerprint; another key must give another fingerprint."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    batch = make_batch()
    victim = make_victim(mark=mark)
    other = make_victim(mark=mark, secret=b"\x07" * 32)
    fingerprints = []
    for model in (victim, other, victim):

        def ask(rows, model=model):
            with torch.no_grad():
                return {
                    "label": model(**{name: torch.tensor(rows[name]) for name in batch}).logits.argmax(-1).tolist()
                }

        (tmp_path / f"hash-{len(fingerprints)}").write_bytes(datasets.fingerprint.dumps(ask))
        rows = datasets.Dataset.from_dict({name: value.tolist() for name, value in batch.items()})
        mapped = rows.map(ask, batched=True, cache_file_name=str(tmp_path / f"{len(fingerprints)}.arrow"))
        fingerprints.append(datasets.fingerprint.Hasher.hash(ask))
        assert len(mapped) == 4
    assert_clean(victim.key, tmp_path)
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


def test_a_rehearsal_and_all_that_it_keeps(tmp_path, caplog, capfd, monkeypatch):
    """Lines, answers, students, those of shadow marks too, the result, its picture and its page."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    model, tokenizer = make_tagger(), make_words()
    key, recipe = make_scene_key(model, tokenizer), dataclasses.replace(TINY, epochs=1)
    attacks = ["frame-customer", "learn-to-invert", "three-accounts"]
    with caplog.at_level(logging.DEBUG):
        found = rehearse(
            model,
            key,
            make_rows(model, tokenizer, 100),
            tokenizer=tokenizer,
            attacks=attacks,
            student=recipe,
            folder=tmp_path,
        )
        print(found, repr(found))
    found.save(tmp_path / "rehearsal.json")
    found.plot(tmp_path / "rehearsal.png")
    found.page(tmp_path / "rehearsal.html")
    streams = capfd.readouterr()
    (tmp_path / "log.txt").write_text(caplog.text + streams.out + streams.err)
    names = {Path(str(name)).name for name in assert_clean(key, tmp_path)}
    assert {"rehearsal.jsonl", "rehearsal.json", "rehearsal.html", "rehearsal.png", "model.safetensors"} <= names
    for name in ("rehearsal.jsonl", "rehearsal.json", "rehearsal.html"):
        assert str(tmp_path) not in (tmp_path / name).read_text(), "nor is it said where that was"


COMPILE = """
import sys, torch
sys.path.insert(0, {tests!r})
from small_models import make_batch, make_victim
for settings in ({{"mark": "cosine", "label_kind": "hard"}}, {{"mark": "tilt", "label_kind": "soft"}}):
    victim = make_victim("token-classification", **settings)
    with torch.no_grad():
        compiled = torch.compile(victim)(**make_batch()).logits
        assert torch.allclose(compiled.exp(), victim(**make_batch()).logits.exp(), atol=2e-3)
"""


def test_the_compilers_caches_and_logs(tmp_path):
    """A real inductor run in a process of its own, with all its caches and generated code in one folder."""
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCH_COMPILE_DEBUG": "1",
        "TORCH_COMPILE_DEBUG_DIR": str(tmp_path / "debug"),
        "TORCH_LOGS": "+dynamo,output_code",
        "TMPDIR": str(tmp_path),
    }
    code = COMPILE.format(tests=str(Path(__file__).parent))
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr[-3000:]
    (tmp_path / "log.txt").write_text(run.stdout + run.stderr)
    for mark in MARKS:
        contents = assert_clean(make_victim("token-classification", mark=mark).key, tmp_path)
    assert any(str(path).endswith((".cpp", ".so", ".py")) for path in contents), "inductor wrote no code"


@pytest.mark.parametrize("mark", MARKS)
def test_loading_logs_nothing_of_key_or_passphrase(tmp_path, caplog, capfd, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path / "protected")
    victim.key.save_pretrained(tmp_path / "key", passphrase="sesame open")
    with caplog.at_level(logging.DEBUG):
        again = type(victim).from_pretrained(tmp_path / "protected", key=tmp_path / "key", passphrase="sesame open")
        again(**make_batch())
        print(again, again.config, repr(again))
    streams = capfd.readouterr()
    told = caplog.text + streams.out + streams.err
    assert "sesame" not in told and victim.key.secret.hex() not in told
    (tmp_path / "told.txt").write_text(told)
    assert_clean(victim.key, tmp_path)


# -- errors: every public function that takes a passphrase, failing while it has it

WORDS = "open sesame, but not for them"


def broken(folder):
    """A file where a folder should be."""
    (folder / "in the way").write_text("")
    return folder / "in the way" / "below"


def failures(tmp_path):
    """Calls that fail with a passphrase in hand, by the name of the public function they call."""
    victim, ring = make_victim(), KeyRing.generate(make_model(), target=1, special_token_ids=[0, 1, 2, 3, 4])
    model_class, key, there = type(victim), victim.key, tmp_path / "there"
    victim.save_pretrained(there / "model")
    key.save_pretrained(there / "key", passphrase="another one")
    ring.save_pretrained(there / "ring", passphrase="another one")
    (there / "empty").mkdir()
    (there / "damaged").mkdir()
    (there / "damaged" / "drw_key.json").write_text((there / "key" / "drw_key.json").read_text()[:-40])
    (there / "unreadable").mkdir()
    (there / "unreadable" / "config.json").write_text("no json")
    words, nowhere = {"passphrase": WORDS}, broken(tmp_path)
    calls = [
        ("WatermarkKey.from_pretrained", lambda: WatermarkKey.from_pretrained(there / "key", **words)),
        ("WatermarkKey.from_pretrained", lambda: WatermarkKey.from_pretrained(there / "damaged", **words)),
        ("WatermarkKey.from_pretrained", lambda: WatermarkKey.from_pretrained(there / "empty", **words)),
        ("WatermarkKey.from_pretrained", lambda: WatermarkKey.from_pretrained("no id/at all/", **words)),
        ("KeyRing.from_pretrained", lambda: KeyRing.from_pretrained(there / "ring", **words)),
        ("KeyRing.from_pretrained", lambda: KeyRing.from_pretrained(there / "key", **words)),
        ("KeyRing.from_pretrained", lambda: KeyRing.from_pretrained("owner/offline", **words)),
    ]
    terms = Terms(
        round=LocalBeacon().round(datetime(2026, 3, 1)), weights="ab" * 32, tokenizer="cd" * 32, statistics=("x",)
    )
    waiting = UnseasonedKey(key, terms)
    waiting.save_pretrained(there / "waiting", passphrase="another one")
    calls += [
        ("UnseasonedKey.from_pretrained", lambda: UnseasonedKey.from_pretrained(there / "waiting", **words)),
        ("UnseasonedKey.from_pretrained", lambda: WatermarkKey.from_pretrained(there / "waiting", **words)),
    ]
    for holder, name in ((key, "WatermarkKey"), (waiting, "UnseasonedKey"), (ring, "KeyRing")):
        surrogate = {"passphrase": WORDS + "\ud800"}
        calls += [
            (f"{name}.save_pretrained", lambda h=holder: h.save_pretrained(nowhere, **words)),
            (f"{name}.save_pretrained", lambda h=holder: h.save_pretrained(nowhere)),
            (f"{name}.save_pretrained", lambda h=holder, s=surrogate: h.save_pretrained(tmp_path / "new", **s)),
            (f"{name}.to_files", lambda h=holder, s=surrogate: h.to_files(**s)),
            (f"{name}.to_files", lambda h=holder: h.to_files(passphrase=WORDS.encode())),
            (f"{name}.push_to_hub", lambda h=holder: h.push_to_hub("owner/offline", **words)),
            (f"{name}.push_to_hub", lambda h=holder: h.push_to_hub("no id/at all/", **words)),
        ]
    name = model_class.__name__
    calls += [
        (f"{name}.from_pretrained", lambda: model_class.from_pretrained(there / "model", key=there / "key", **words)),
        (
            f"{name}.from_pretrained",
            lambda: model_class.from_pretrained(there / "model", key=there / "empty", **words),
        ),
        (f"{name}.from_pretrained", lambda: model_class.from_pretrained(there / "unreadable", key=key, **words)),
        (f"{name}.from_pretrained", lambda: model_class.from_pretrained("owner/offline", **words)),
        (f"{name}.from_model", lambda: model_class.from_model(make_model(), key=there / "key", **words)),
        (f"{name}.from_model", lambda: model_class.from_model(make_model(), key=there / "nothing", **words)),
        (f"{name}.from_model", lambda: model_class.from_model(make_model(num_labels=3), key=key, **words)),
        (f"{name}.save_pretrained", lambda: victim.save_pretrained(tmp_path / "m", push_to_hub=True, **words)),
        (f"{name}.push_to_hub", lambda: victim.push_to_hub("owner/offline", **words)),
        (f"{name}.push_to_hub", lambda: victim.push_to_hub("owner/offline", push_key=False, **words)),
    ]
    return calls, (
        key.secret.hex(),
        repr(key.secret),
        ring.secret.hex(),
        repr(ring.secret),
        waiting.secret.hex(),
        repr(waiting.secret),
        WORDS,
        repr(WORDS.encode()),
    )


def mistakes(tmp_path):
    """Calls that fail with a secret in hand, though no passphrase."""
    model, secret = make_model(), bytes(range(200, 232))
    settings = {"target": 1, "special_token_ids": [0, 1, 2, 3, 4], "secret": secret}
    key = WatermarkKey.generate(model, **settings)
    arrays = {"v_k": np.zeros(3), "v_s": np.zeros(3), "M": np.zeros((64, 4))}
    wrong = MarkSettings(target=5)  # of two classes
    tilted = WatermarkKey.generate(model, tokenizer=make_tokenizer(), temperature=1.0, secret=secret)
    beacon, noon = LocalBeacon(), datetime(2026, 3, 1)
    terms = Terms(round=beacon.round(noon), weights="ab" * 32, tokenizer="cd" * 32, statistics=("x",))
    seasoned = UnseasonedKey(key, terms, secret=secret).season(beacon.pulse(noon))
    calls = [
        lambda: key.replace(epsilon=-1),
        lambda: WatermarkKey.generate(model, epsilon=-1, **settings),
        lambda: WatermarkKey.generate(model, mark="tilt", **settings),
        lambda: WatermarkKey.generate(model, mark="tilt", strength=-1, special_token_ids=[0], secret=secret),
        lambda: WatermarkKey.generate(model, **{**settings, "target": "nothing"}),
        lambda: WatermarkKey.from_arrays(**arrays, config=model.config, **settings),
        lambda: WatermarkKey(secret=secret, settings=wrong, binding=key.binding),
        lambda: KeyRing.generate(model, law="paper", **settings),
        lambda: KeyRing(key.replace(law="paper"), secret=secret),
        lambda: KeyRing(key, secret=secret + b"too long"),
        lambda: key.fit(model, ["a film"], make_tokenizer()),  # a key of another mark
        lambda: tilted.fit(model, ["a film"], make_tokenizer(), progress=False),  # neither labels nor temperature
        lambda: tilted.as_committed().fit(model, ["a film"], make_tokenizer()),
        lambda: QueryLog(tmp_path / "log").asked_under(tilted, ["never asked"]),
        lambda: QueryLog(tmp_path / "other").asked_under(tilted),
        lambda: create_app(make_victim(model=model, key=tilted), make_tokenizer(), api_token="short 7"),
        lambda: create_app(make_victim(model=model, key=tilted), make_tokenizer(), log=tmp_path / "log" / "file"),
        lambda: UnseasonedKey(key, terms, secret=secret + b"too long"),
        lambda: UnseasonedKey(key.replace(epsilon=0.1), "no terms", secret=secret),
        lambda: UnseasonedKey(key, terms, secret=secret).season(b"no json"),
        lambda: KeyRing(key, secret=secret, terms=terms).declare(["a"]).key_for("a"),
        lambda: KeyRing(key, secret=secret, terms=terms).declare(["a"]).season(b"no json"),
        lambda: seasoned.replace(epsilon=0.1, seasoning=seasoned.seasoning),
    ]
    with QueryLog(tmp_path / "log").writer(tilted, label_kind="hard") as writer:
        writer.append([Served("a film", "positive")]).result()
    with QueryLog(tmp_path / "other").writer(key, label_kind="hard") as writer:
        writer.append([Served("a film", "positive")]).result()
    (tmp_path / "log" / "file").touch()
    logged = derivation.subkey(secret, "query log/texts")
    return calls, (secret.hex(), repr(secret)[2:-1], logged.hex(), repr(logged)[2:-1], "short 7")


def what_reporters_show(error):
    """The locals of every frame but the tests' own, along the whole chain of errors, and the errors themselves."""
    shown, pending, seen = [], [error], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        frames = [frame for frame, _ in traceback.walk_tb(one.__traceback__) if frame.f_code.co_filename != __file__]
        shown += [repr(one), repr(one.args), repr(vars(one)), *(repr(frame.f_locals) for frame in frames)]
        pending += [one.__cause__, one.__context__]
    return "\n".join(shown)


def test_no_error_shows_a_passphrase_or_a_secret(tmp_path):
    calls, secrets = failures(tmp_path)
    for number, (name, call) in enumerate(calls):
        with pytest.raises(Exception) as caught:
            call()
        places = [os.path.basename(entry.filename) for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert len(places) > 3, f"{name}: a traceback still tells where it happened"
        found = [secret[:12] for secret in secrets if secret in what_reporters_show(caught.value)]
        assert not found, f"failure {number}: {name}"


def test_no_mistake_in_making_a_key_shows_its_secret(tmp_path):
    calls, secrets = mistakes(tmp_path)
    for number, call in enumerate(calls):
        with pytest.raises(DrwError) as caught:
            call()
        assert not [secret for secret in secrets if secret in what_reporters_show(caught.value)], f"mistake {number}"


# -- errors in the midst of marking and testing, where tables and sub-keys are at hand

BROKEN = "it broke, of all places here"


def fail(*_, **__):
    raise RuntimeError(BROKEN)


def marking(way):
    """A call that marks a batch, the function in it that breaks, and whose locals hold tables or sub-keys then."""
    batch = make_batch()
    if way == "drawn labels":
        drawing = make_victim(mark="cosine", label_kind="hard")
        return lambda: drawing(**batch), "drw_hf.watermark.marking.keyed_uniforms", "_keyed_draws"
    victim, settings = make_victim(mark="tilt", temperature=1.0), {"mark": "tilt", "temperature": 1.0}
    keys = [victim.key, make_key(make_model(), **settings, secret=bytes(range(1, 33)))] * 2
    ring = KeyRing.generate(make_model(), **settings, special_token_ids=[0, 1])
    calls = {
        "one key": lambda: victim(**batch),
        "a key for every row": lambda: victim(**batch, watermark_key=keys),
        "users": lambda: type(victim).from_model(make_model(), key=ring)(**batch, user=["a", "b", "a", "c"]),
    }
    return calls[way], "drw_hf.watermark.tilt.shifts", "apply" if way == "one key" else "_by_row"


def detecting(way):
    """The same of a test."""
    key = tilt_cases.make_key()
    probe = tilt_cases.make_probe(key, n_rows=40)
    if way == "reference":
        crafted = dataclasses.replace(probe, reference=probe.suspect)
        return lambda: drw_hf.detect(crafted, key=key), "drw_hf.detection.statistics.tilt.TiltLaw.test", "tilt_test"
    if way == "statistic":
        statistic = STATISTICS.get("drw-tilt-1")
        call = functools.partial(statistic.test, probe, key, TestOptions())
        return call, "drw_hf.detection.statistics.tilt.TiltLaw.test", "test"
    return lambda: drw_hf.detect(probe, key=key), "drw_hf.detection.statistics.tilt.TiltLaw.test", "verdict_on"


@pytest.mark.parametrize(
    ("make", "way"),
    [(marking, way) for way in ("one key", "a key for every row", "users", "drawn labels")]
    + [(detecting, way) for way in ("verdict", "statistic", "reference")],
)
def test_an_error_in_the_midst_of_it_leaves_no_variables_in_its_frames(make, way, monkeypatch):
    call, broken_function, holder = make(way)
    monkeypatch.setattr(broken_function, fail)
    with pytest.raises(RuntimeError, match=BROKEN) as caught:
        call()
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    names = [frame.f_code.co_name for frame in frames]
    assert holder in names, "the traceback tells where it was"
    (first, *_) = [number for number, name in enumerate(names) if name == "forgetful"]
    below = [frame for frame in frames[first:] if frame.f_code.co_name != "forgetful"]
    assert holder in [frame.f_code.co_name for frame in below]
    assert [frame.f_locals for frame in below if frame.f_locals] == []
    assert repr(bytes(range(32))) not in what_reporters_show(caught.value), "the secret of these keys"


def test_what_the_caller_was_handling_stays_the_callers_own(tmp_path):
    """Its frames keep their variables, and the new error says what it was raised in the middle of."""

    def fail():
        wanted = "kept"  # noqa: F841
        raise ValueError("first") from KeyError("cause")

    try:
        fail()
    except ValueError as first:
        with pytest.raises(DrwError) as caught:
            WatermarkKey.from_pretrained(tmp_path, passphrase=WORDS)
        assert caught.value.__context__ is first
        assert isinstance(first.__cause__, KeyError)
        (*_, frame) = [frame for frame, _ in traceback.walk_tb(first.__traceback__)]
        assert frame.f_locals["wanted"] == "kept"


def test_every_public_function_that_takes_a_passphrase_is_among_them(tmp_path):
    rooms = "keys watermark asking extraction detection tracing evidence planning metrics hub serving".split()
    packages = [drw_hf, *(importlib.import_module(f"drw_hf.{room}") for room in rooms)]
    names = [(package, name) for package in packages for name in package.__all__ if name != "__version__"]
    public = {id(value): value for value in (getattr(package, name) for package, name in names)}
    takes = set()
    for value in public.values():
        members = inspect.getmembers(value) if inspect.isclass(value) else [(value.__name__, value)]
        for name, function in members:
            if inspect.isfunction(function) or inspect.ismethod(function):
                if "passphrase" in inspect.signature(function).parameters:
                    takes.add(f"{value.__name__}.{name}")
    twins = {name.replace("ForTokenClassification", "ForSequenceClassification") for name in takes}
    twins.add("WatermarkedModelForSequenceClassification.save_pretrained")  # among its **kwargs
    assert twins == {name for name, _ in failures(tmp_path)[0]}


def test_what_a_save_does_give_away_is_the_clean_model(tmp_path):
    """As the docs say: the saved weights are those of the unmarked model, bit by bit."""
    victim = make_victim()
    victim.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    clean = victim.get_base_model().state_dict()
    assert set(saved) <= {f"victim.{name}" for name in clean}
    assert all(torch.equal(weight, clean[name.removeprefix("victim.")]) for name, weight in saved.items())
