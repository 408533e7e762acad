"""The play: a model is protected, stolen twice and found again, and an innocent one is left in peace."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from ..asking.models import PROTECTED, load_tokenizer
from ..detection import DetectionResult, detect
from ..errors import DatasetError
from ..experiments.theft import distil, small_bert, train_on_gold
from ..extraction.students import load_student
from ..keys import WatermarkKey
from ..keys.binding import labels_of
from ..keys.choices import LabelKind
from .folder import FORMAT, NEXT_STEPS, REPORT, claim
from .scenes import MAX_LENGTH, Scene
from .stages import Stages
from .story import GUILTY, SEQUENCE, SUSPECTS, TOKEN, next_steps

EPOCHS = {"student": 8, "innocent": 4, "pretrained": 3}
SIMULATED_KEYS = 2000
LEVEL = 1e-3


def play(scene: Scene, folder: Path, work: str, stages: Stages, *, seed: int) -> dict[str, Any]:
    """Protect, steal twice, train an innocent model, probe all three; returns what ``demo.json`` holds."""
    claim(folder)
    ask = _Asking(scene, work)
    with stages.stage("protect", "Making a key, protecting the victim, saving and reloading both"):
        protected = protect(scene, folder)
        clean, served = (
            ask.clean(protected),
            {kind: ask(protected(kind), scene.tokenizer) for kind in GUILTY},
        )
    models: dict[str, tuple[Any, Any]] = {}
    for number, kind in enumerate(GUILTY):
        what = {"soft": "probabilities (soft labels)", "hard": "labels alone (hard labels)"}[kind]
        with stages.stage(kind, f"A thief asks {len(scene.queries):,} texts and learns the {what}"):
            models[kind] = steal(scene, protected(kind), kind, work, seed + 7 + number)
    with stages.stage("innocent", f"An innocent model learns from {len(scene.schooling):,} texts of its own"):
        models["innocent"] = learn(scene, work, seed + 3)
    found = {}
    with stages.stage("detect", f"Probing the three with {len(scene.asked):,} texts"):
        for name, (suspect, its_tokenizer) in models.items():
            suspect.config.name_or_path = SUSPECTS[name]
            found[name] = probe(scene, suspect, its_tokenizer, protected("soft"), work)
    with stages.stage("write", "Drawing figures and writing evidence reports"):
        for name, result in found.items():
            result.plot(folder / "figures" / f"{name}.png")
            result.report(folder / "evidence" / name)
    accuracies = {
        "victim, clean": clean.accuracy,
        "victim, serving soft labels": served["soft"].accuracy,
        "victim, serving hard labels": served["hard"].accuracy,
    }
    rows = [{"model": name, "accuracy": accuracy} for name, accuracy in accuracies.items()]
    for name, (suspect, its_tokenizer) in models.items():
        rows.append(
            {
                "model": SUSPECTS[name],
                "accuracy": ask(suspect, its_tokenizer).accuracy,
                **findings(found[name]),
                "figure": f"figures/{name}.png",
                "report": f"evidence/{name}/report.html",
            }
        )
    report = {
        "format": FORMAT,
        "complete": True,
        "folder": str(folder),
        "task": scene.task,
        "seed": seed,
        **scene.source,
        "student": scene.student,
        "queries": len(scene.queries),
        "probes": len(scene.asked),
        "held_out": len(scene.probes),
        "service": compare(clean, served["soft"]),
        "key_fingerprint": found["soft"].key_fingerprint,
        "level": LEVEL,
        "models": rows,
        "seconds": {**stages.seconds, "total": round(stages.elapsed, 1)},
    }
    (folder / NEXT_STEPS).write_text(next_steps(scene.source, scene.task), encoding="utf-8")
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def protect(scene: Scene, folder: Path) -> Callable[[LabelKind], Any]:
    """Save the victim with a fresh key, sealed; returns how to load it again, to serve soft or hard labels."""
    rule = "rarest" if scene.task == SEQUENCE else None
    key = WatermarkKey.generate(scene.victim, tokenizer=scene.tokenizer, target=scene.target, hash_rule=rule)
    protected_model = PROTECTED[scene.task]
    protected_model.from_model(scene.victim, key=key).save_pretrained(folder / "protected")
    scene.tokenizer.save_pretrained(folder / "protected")
    passphrase = secrets.token_urlsafe(24)
    key.save_pretrained(folder / "key", passphrase=passphrase)
    key = WatermarkKey.from_pretrained(folder / "key", passphrase=passphrase)
    loaded = {
        kind: protected_model.from_pretrained(folder / "protected", key=key, label_kind=kind).eval() for kind in GUILTY
    }
    return loaded.__getitem__


def steal(scene: Scene, service: Any, kind: LabelKind, work: str, seed: int) -> tuple[Any, Any]:
    """A student of a service's answers to the thief's texts, and its tokenizer; the right labels play no part."""
    queries = scene.queries.remove_columns("tags" if scene.task == TOKEN else "label")
    answers = label_with_teacher(
        service, queries, scene.tokenizer, cache_dir=work, max_length=scene.max_length, batch_size=64, progress=False
    )
    student, tokenizer, settings = beginner(scene, seed)
    epochs = EPOCHS["student" if scene.student is None else "pretrained"]
    limit = None if scene.student is None else scene.max_length
    distil(student, tokenizer, answers, work, epochs, label_kind=kind, seed=seed, max_length=limit, **settings)
    return student, tokenizer


def learn(scene: Scene, work: str, seed: int) -> tuple[Any, Any]:
    """A model that never met the victim: its own texts, the right labels, another beginning."""
    model, tokenizer, settings = beginner(scene, seed)
    epochs = EPOCHS["innocent" if scene.student is None else "pretrained"]
    train_on_gold(scene.task, tokenizer, scene.schooling, work, seed, epochs, model, max_length=MAX_LENGTH, **settings)
    return model, tokenizer


def beginner(scene: Scene, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """An untrained model with its tokenizer, and how it is best trained: a small BERT, or a pretrained encoder."""
    labels = labels_of(scene.victim.config)
    if scene.student is None:
        tokenizer = scene.tokenizer
        return small_bert(scene.task, len(tokenizer), seed, labels=labels, max_length=MAX_LENGTH), tokenizer, {}
    torch.manual_seed(seed)
    return (
        load_student(scene.student, scene.task, list(labels)),
        load_tokenizer(scene.student),
        {"learning_rate": 5e-5},
    )


def probe(scene: Scene, suspect: Any, its_tokenizer: Any, protected: Any, work: str) -> DetectionResult:
    """What the key finds in a suspect."""
    return detect(
        suspect,
        scene.asked.remove_columns("tags" if scene.task == TOKEN else "label"),
        key=protected.key,
        tokenizer=scene.tokenizer,
        victim=protected,
        suspect_tokenizer=its_tokenizer,
        suspects_tested=len(SUSPECTS),
        level=LEVEL,
        simulated_keys=SIMULATED_KEYS,
        max_length=scene.max_length,
        batch_size=64,
        cache_dir=work,
        progress=False,
    )


def findings(result: DetectionResult) -> dict[str, Any]:
    """What of a result a demo tells."""
    names = "p_snr p_value p_bound log10_p log10_bound z_score n_queries n_probes n_tokens verdict explanation".split()
    return {name: getattr(result, name) for name in names}


@dataclass(frozen=True)
class Answers:
    """What a model says of the held-out items that have a right label, and how often it is right."""

    probabilities: np.ndarray
    accuracy: float


@dataclass(frozen=True)
class _Asking:
    """Asks a model about the held-out texts."""

    scene: Scene
    work: str

    def __call__(self, model: Any, tokenizer: Any) -> Answers:
        labels, scene = list(labels_of(self.scene.victim.config)), self.scene
        answered = label_with_teacher(
            model,
            scene.probes,
            tokenizer,
            max_length=scene.max_length,
            batch_size=64,
            cache_dir=self.work,
            progress=False,
        )
        names = getattr(answered.features[LABELS], "feature", answered.features[LABELS]).names
        order = [names.index(label) for label in labels]  # a pretrained student may have another one
        said = [np.asarray(row, dtype=np.float32).reshape(-1, len(labels)) for row in answered[PROBABILITIES][:]]
        gold = [np.atleast_1d(row) for row in answered["tags" if scene.task == TOKEN else "label"][:]]
        probabilities, right = np.concatenate(said)[:, order], np.concatenate(gold)
        counted = (right >= 0) & probabilities.any(1)
        if not counted.any():
            raise DatasetError("no held-out text has a right label; without one no accuracy can be measured")
        probabilities = probabilities[counted]
        return Answers(probabilities, float((probabilities.argmax(1) == right[counted]).mean()))

    def clean(self, protected: Callable[[LabelKind], Any]) -> Answers:
        """What the victim would answer without its mark."""
        with protected("soft").watermark_disabled() as model:
            return self(model, self.scene.tokenizer)


def compare(clean: Answers, served: Answers) -> dict[str, Any]:
    """What the mark changes in a service's answers."""
    moved = np.abs(served.probabilities - clean.probabilities).max(1)
    same = served.probabilities.argmax(1) == clean.probabilities.argmax(1)
    return {
        "answers": len(moved),
        "moved": float((moved > 1e-4).mean()),
        "largest_change": float(moved.max()),
        "same_label": float(same.mean()),
    }
