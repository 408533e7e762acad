"""What a user's type checker sees. `make quality` runs mypy over this file; nobody imports it.

`assert_type` fails on `Any`, and an ignore that is not needed is an error: each shows that a wrong call is noticed.
"""

from pathlib import Path
from typing import Literal, assert_type

import numpy as np
import torch
from transformers import PreTrainedConfig, PreTrainedModel

import drw_hf
from drw_hf import (
    DetectionResult,
    DistillationArguments,
    DistillationTrainer,
    KeyRing,
    Marker,
    QueryLog,
    WatermarkedConfig,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
    detect,
    identify,
    label_with_teacher,
    p_snr,
)
from drw_hf.asking import Predictor, as_predictor
from drw_hf.detection import Probe, probe_suspect
from drw_hf.evidence import CommitmentRecord, Verification, verify_commitment, verify_evidence
from drw_hf.hub import Audit, audit
from drw_hf.planning import Fit, Plan, fit_tilt, plan_protection
from drw_hf.tracing import Identification, LoggedIdentification


def keys(config: PreTrainedConfig) -> WatermarkKey:
    key = WatermarkKey.generate(config, target="positive", law="paper")
    assert_type(key, WatermarkKey)
    assert_type(key.law, Literal["direct", "paper"])
    assert_type(key.phase_table, np.ndarray)
    assert_type(key.commitment(), str)
    assert_type(WatermarkKey.from_pretrained("key", passphrase="words"), WatermarkKey)
    assert_type(key.to_files(), dict[str, bytes])
    ring = KeyRing.generate(config, target=1)
    assert_type(ring, KeyRing)
    assert_type(ring.key_for("customer-42"), WatermarkKey)
    WatermarkKey.generate(config, target="positive", law="dirct")  # type: ignore[arg-type]
    WatermarkKey.generate(target="positive")  # type: ignore[call-arg]
    assert_type(WatermarkKey.generate(config, strength=0.3, temperature=1.4).committed, bool)
    return key


def models(model: PreTrainedModel, key: WatermarkKey) -> None:
    victim = WatermarkedModelForSequenceClassification.from_pretrained("path", key=key, label_kind="hard")
    assert_type(victim, WatermarkedModelForSequenceClassification)
    assert_type(victim.config, WatermarkedConfig)
    tagger = WatermarkedModelForTokenClassification.from_model(model, key=Path("key"))
    assert_type(tagger, WatermarkedModelForTokenClassification)
    with victim.watermark_disabled() as clean:
        assert_type(clean, WatermarkedModelForSequenceClassification)
    assert_type(victim.push_to_hub("me/model"), str)
    WatermarkedModelForTokenClassification.from_model(model, key=key, label_kind="firm")  # type: ignore[arg-type]


def marking(key: WatermarkKey, ring: KeyRing, ids: np.ndarray) -> None:
    marker = Marker(key, "hard", digits=2)
    assert_type(marker.mark_logits(np.zeros((1, 2)), ids), np.ndarray)
    assert_type(marker.mark_probabilities(torch.ones(1, 2) / 2, ids, ids), torch.Tensor)
    assert_type(Marker(ring).mark_logits(torch.zeros(1, 2), [[1, 2]], user=["ann"]), torch.Tensor)
    Marker("key")  # type: ignore[arg-type]
    Marker(key, "firm")  # type: ignore[arg-type]


def stealing(victim: torch.nn.Module, rows: dict[str, list[str]]) -> None:
    assert_type(label_with_teacher(victim, rows), dict[str, list[str]])
    assert_type(as_predictor(victim), Predictor)
    arguments = DistillationArguments("student", label_kind="soft")
    assert_type(arguments.label_kind, Literal["soft", "hard"])
    assert_type(DistillationTrainer(args=arguments, teacher=victim), DistillationTrainer)
    label_with_teacher(victim, rows, batch_size="many")  # type: ignore[arg-type]


def detecting(suspect: torch.nn.Module, key: WatermarkKey, ring: KeyRing) -> None:
    result = detect(suspect, ["a text"], key=key)
    assert_type(result, DetectionResult)
    assert_type(result.p_value, float)
    assert_type(result.verdict, Literal["detected", "not detected", "undecided"])
    assert_type(result.report("folder"), Path)
    assert_type(DetectionResult.load("evidence.json"), DetectionResult)
    assert_type(probe_suspect(suspect, ["a text"], key=key), Probe)
    assert_type(p_snr(np.zeros(9), np.zeros(9), 16.0), float)
    assert_type(identify(suspect, ["a text"], ring=ring, users=["somebody"]), Identification)
    log = QueryLog("log")
    assert_type(log.select(user="somebody").users(), list[str])
    assert_type(detect(suspect, logged=log, key=key), DetectionResult)
    assert_type(identify(suspect, ring=ring, logged=log), LoggedIdentification)
    detect(suspect, ["a text"], key="key")  # type: ignore[arg-type]


def proving(key: WatermarkKey) -> None:
    assert_type(verify_commitment(key, "me/model"), CommitmentRecord)
    assert_type(verify_evidence("evidence.json", key=key), Verification)
    assert_type(audit("me/model"), Audit)


def planning(model: torch.nn.Module, rows: list[str]) -> None:
    assert_type(plan_protection(model, rows, None, target="positive"), Plan)
    assert_type(fit_tilt(model, rows, None, budget=0.3, batch_size=8), Fit)
    assert_type(drw_hf.__version__, str)
    assert_type(drw_hf.errors.DrwError("why"), drw_hf.errors.DrwError)
