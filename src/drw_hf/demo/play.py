"""The play: a model is protected, stolen twice and found again, and an innocent one is left in peace."""

import contextlib
import dataclasses
import json
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from ..asking.models import PROTECTED, load_tokenizer
from ..checks import class_names
from ..detection import DetectionResult, detect
from ..errors import ConfigurationError, DatasetError
from ..experiments.theft import distil, small_bert, train_on_gold
from ..extraction.students import load_student
from ..keys import WatermarkKey
from ..keys.binding import labels_of
from ..keys.choices import LabelKind
from ..keys.files import write_atomically
from ..keys.frames import forgets_locals
from ..planning import Fit
from .scenes import MAX_LENGTH, Scene, asking_options
from .story import GUILTY, PASSPHRASE_FILE, SEQUENCE, SUSPECTS, TOKEN, next_steps

FORMAT = "drw-demo-1"
REPORT, NEXT_STEPS = "demo.json", "next-steps.md"
PARTS = ("model", "beginner", "texts", "protected", "key", "figures", "evidence")  # the folders that a demo writes
EPOCHS = {TOKEN: 8, SEQUENCE: 10, "innocent": 4, "pretrained": 3}
# Students of sentences that learn faster forget and relearn: noise in which the mark drowns.
LEARNING_RATES = {TOKEN: 3e-3, SEQUENCE: 1e-3, "pretrained": 5e-5}
SIMULATED_KEYS = 2000
BUDGET = 0.3  # points of accuracy that the mark may cost
MOVED = 1e-3  # a probability that changed by more was moved by the key; by less, rounding does it
LEVEL = 1e-3
TOLD = "p_snr p_value p_bound log10_p log10_bound z_score n_queries n_probes n_tokens verdict explanation".split()


class Stages:
    """One line per stage on stderr, and how long each took."""

    def __init__(self, silent: bool):
        self.silent, self.start = silent, time.monotonic()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Around what a line says."""
        begun = time.monotonic()
        self._say(f"[{begun - self.start:4.0f} s] {text} ...")
        try:
            yield
        except BaseException:
            self._say("\n")
            raise
        self.seconds[name] = round(time.monotonic() - begun, 1)
        self._say(f" {self.seconds[name]:.0f} s\n")

    def _say(self, text: str) -> None:
        if not self.silent:
            print(text, end="", file=sys.stderr, flush=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something which no demo wrote."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((folder / REPORT).read_text(encoding="utf-8"))["format"] == FORMAT:
            return
    raise ConfigurationError(f"{folder} holds something that is not a demo of ours; choose another --output")


def play(scene: Scene, folder: Path, stages: Stages, seed: int) -> dict[str, Any]:
    """Protect, steal twice, train an innocent model, probe all three; returns what ``demo.json`` holds."""
    folder.mkdir(parents=True, exist_ok=True)
    # First, so that an interrupted demo can be repeated.
    (folder / REPORT).write_text(json.dumps({"format": FORMAT, "complete": False}) + "\n", encoding="utf-8")
    for part in PARTS:  # an earlier demo's
        shutil.rmtree(folder / part, ignore_errors=True)
    for name in (NEXT_STEPS, PASSPHRASE_FILE):
        (folder / name).unlink(missing_ok=True)
    if scene.source["model"] is None:
        lay_out(scene, folder, seed)
    with stages.stage("key", "Making a key, before anything is served"):
        key = make_key(scene)
    with stages.stage("protect", "Protecting the victim with it, saving and reloading both"):
        protected = protect(scene, key, folder)
        with protected["soft"].watermark_disabled() as model:
            clean, accuracy = answers_of(scene, model, scene.tokenizer)
        rows: list[dict[str, Any]] = [{"model": "victim, clean", "accuracy": accuracy}]
        served = {}
        for kind, model in protected.items():
            served[kind], accuracy = answers_of(scene, model, scene.tokenizer)
            rows.append({"model": f"victim, serving {kind} labels", "accuracy": accuracy})
    models: dict[str, tuple[Any, Any]] = {}
    for number, kind in enumerate(GUILTY):
        what = {"soft": "probabilities (soft labels)", "hard": "labels alone (hard labels)"}[kind]
        with stages.stage(kind, f"A thief asks {len(scene.queries):,} texts and learns the {what}"):
            models[kind] = steal(scene, protected[kind], kind, seed + 7 + number)
    with stages.stage("innocent", f"An innocent model learns from {len(scene.schooling):,} texts of its own"):
        models["innocent"] = learn(scene, seed + 3)
    with stages.stage("detect", f"Probing the three with {len(scene.asked):,} texts"):
        found = {name: probe(scene, SUSPECTS[name], *models[name], protected["soft"]) for name in models}
    with stages.stage("write", "Drawing figures and writing evidence reports"):
        for name, result in found.items():
            result.plot(folder / "figures" / f"{name}.png")
            result.report(folder / "evidence" / name)
    for name, result in found.items():
        told = {figure: getattr(result, figure) for figure in TOLD}
        files = {"figure": f"figures/{name}.png", "report": f"evidence/{name}/report.html"}
        rows.append({"model": SUSPECTS[name], "accuracy": answers_of(scene, *models[name])[1], **told, **files})
    moved = np.abs(served["soft"] - clean).max(1)
    report = {
        "format": FORMAT,
        "complete": True,
        "folder": str(folder),
        "task": scene.task,
        "mark": key.mark,
        "seed": seed,
        **scene.source,
        "student": scene.student,
        "queries": len(scene.queries),
        "probes": len(scene.asked),
        "held_out": len(scene.probes),
        "price": None if key.fitted is None else price_of(key.fitted),
        "service": {
            "answers": len(moved),
            "moved": float((moved > MOVED).mean()),
            "largest_change": float(moved.max()),
            "same_label": float((served["soft"].argmax(1) == clean.argmax(1)).mean()),
        },
        "key_fingerprint": found["soft"].key_fingerprint,
        "level": LEVEL,
        "models": rows,
        "seconds": {**stages.seconds, "total": round(time.monotonic() - stages.start, 1)},
    }
    (folder / NEXT_STEPS).write_text(next_steps(scene.source, scene.task), encoding="utf-8")
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def lay_out(scene: Scene, folder: Path, seed: int) -> None:
    """Write the model and the texts of a demo, and what a thief would start from, for who wants to play it by hand."""
    labels = labels_of(scene.victim.config)
    for name, model in (("model", scene.victim), ("beginner", beginner(scene, seed + 11)[0])):
        model.save_pretrained(folder / name)
        scene.tokenizer.save_pretrained(folder / name)

    def named(row: dict[str, Any]) -> dict[str, Any]:
        right = row[scene.gold]
        return {scene.gold: [labels[one] for one in right] if scene.task == TOKEN else labels[right]}

    (folder / "texts").mkdir()
    asked = {"queries": scene.queries.remove_columns(scene.gold), "probes": scene.probes.remove_columns(scene.gold)}
    for name, rows in {"labelled": scene.pricing.map(named, features=None), **asked}.items():
        rows.to_json(folder / "texts" / f"{name}.jsonl", force_ascii=False)


def make_key(scene: Scene) -> WatermarkKey:
    """A fresh key: of the paper's mark if a class was chosen to carry it, else of tilt, fitted to a price."""
    if scene.target is not None:
        rule = "rarest" if scene.task == SEQUENCE else None
        return WatermarkKey.generate(scene.victim, tokenizer=scene.tokenizer, target=scene.target, hash_rule=rule)
    key = WatermarkKey.generate(scene.victim, tokenizer=scene.tokenizer, temperature=1.0)  # until it is fitted
    return key.fit(
        scene.victim,
        scene.pricing,
        scene.tokenizer,
        budget=BUDGET,
        label_column=scene.gold,
        **asking_options(scene.work),
    )


def price_of(fit: Fit) -> dict[str, Any]:
    """What the mark was allowed to cost and does, in points of accuracy, for ``demo.json``."""
    return {"budget": fit.budget, "texts": fit.n_texts, "keys": fit.n_keys, **dataclasses.asdict(fit.cost)}


@forgets_locals
def protect(scene: Scene, key: WatermarkKey, folder: Path) -> dict[LabelKind, Any]:
    """Save the victim and its key, sealed, and load both again, to serve labels of each kind.

    The passphrase lies beside the key, which nobody would do with one that protects something: so whoever plays with
    the demo can replay its evidence.
    """
    protected_model = PROTECTED[scene.task]
    protected_model.from_model(scene.victim, key=key).save_pretrained(folder / "protected")
    scene.tokenizer.save_pretrained(folder / "protected")
    passphrase = secrets.token_urlsafe(24)
    write_atomically(folder / PASSPHRASE_FILE, f"{passphrase}\n".encode())  # mode 0600
    key.save_pretrained(folder / "key", passphrase=passphrase)
    key = WatermarkKey.from_pretrained(folder / "key", passphrase=passphrase)
    return {
        kind: protected_model.from_pretrained(folder / "protected", key=key, label_kind=kind).eval() for kind in GUILTY
    }


def answers_of(scene: Scene, model: Any, tokenizer: Any) -> tuple[np.ndarray, float]:
    """A model's probabilities of the held-out items that have a right label, and how often it is right."""
    labels = labels_of(scene.victim.config)
    answered = label_with_teacher(model, scene.probes, tokenizer, **asking_options(scene.work))
    names = class_names(answered.features[LABELS]) or []
    order = [names.index(label) for label in labels]  # a pretrained student may have another one
    said = [np.asarray(row, dtype=np.float32).reshape(-1, len(labels)) for row in answered[PROBABILITIES][:]]
    right = np.concatenate([np.atleast_1d(row) for row in answered[scene.gold][:]])
    probabilities = np.concatenate(said)[:, order]
    counted = (right >= 0) & probabilities.any(1)
    if not counted.any():
        raise DatasetError("no held-out text has a right label; without one no accuracy can be measured")
    probabilities, right = probabilities[counted], right[counted]
    return probabilities, float((probabilities.argmax(1) == right).mean())


def steal(scene: Scene, service: Any, kind: LabelKind, seed: int) -> tuple[Any, Any]:
    """A student of a service's answers to the thief's texts, and its tokenizer; the right labels play no part."""
    questions = scene.queries.remove_columns(scene.gold)
    answers = label_with_teacher(service, questions, scene.tokenizer, **asking_options(scene.work))
    student, tokenizer, settings = beginner(scene, seed)
    epochs, limit = (EPOCHS[scene.task], None) if scene.student is None else (EPOCHS["pretrained"], MAX_LENGTH)
    distil(student, tokenizer, answers, scene.work, epochs, label_kind=kind, seed=seed, max_length=limit, **settings)
    return student, tokenizer


def learn(scene: Scene, seed: int) -> tuple[Any, Any]:
    """A model that never met the victim: its own texts, the right labels, another beginning."""
    model, tokenizer, settings = beginner(scene, seed)
    settings |= {"max_length": MAX_LENGTH, "epochs": EPOCHS["innocent" if scene.student is None else "pretrained"]}
    train_on_gold(scene.task, tokenizer, scene.schooling, scene.work, seed, model=model, **settings)
    return model, tokenizer


def beginner(scene: Scene, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """An untrained model with its tokenizer, and how it is best trained: a small BERT, or a pretrained encoder."""
    labels = labels_of(scene.victim.config)
    if scene.student is None:
        tokenizer = scene.tokenizer
        model = small_bert(scene.task, len(tokenizer), seed, labels=labels, max_length=MAX_LENGTH)
        return model, tokenizer, {"learning_rate": LEARNING_RATES[scene.task]}
    torch.manual_seed(seed)
    student = load_student(scene.student, scene.task, list(labels))
    return student, load_tokenizer(scene.student), {"learning_rate": LEARNING_RATES["pretrained"]}


def probe(scene: Scene, name: str, suspect: Any, its_tokenizer: Any, protected: Any) -> DetectionResult:
    """What the key finds in a suspect."""
    suspect.config.name_or_path = name
    return detect(
        suspect,
        scene.asked.remove_columns(scene.gold),
        key=protected.key,
        tokenizer=scene.tokenizer,
        victim=protected,
        suspect_tokenizer=its_tokenizer,
        suspects_tested=len(SUSPECTS),
        level=LEVEL,
        simulated_keys=SIMULATED_KEYS,
        **asking_options(scene.work, None),  # cut as the key records
    )
