"""What protection costs: the protected forward, key derivation, the import."""

import subprocess
import sys
import tempfile
from collections.abc import Callable

import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from drw_hf import (
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
)
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query

from .measure import Row, interleaved, milliseconds, ratio

BATCH, LENGTH, VOCABULARY = 32, 64, 30_522
TASKS = {
    "sequence-classification": (BertForSequenceClassification, WatermarkedModelForSequenceClassification, 2),
    "token-classification": (BertForTokenClassification, WatermarkedModelForTokenClassification, 9),
}


def bert(task: str) -> torch.nn.Module:
    """Six layers, 384 wide, random weights: the shape of a small sentence encoder."""
    model_class, _, n_labels = TASKS[task]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
        num_labels=n_labels,
    )
    return model_class(config).eval()


def bench_forward(rounds: int) -> list[Row]:
    """The protected forward over the clean one, for both tasks and both kinds of labels."""
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1000, VOCABULARY, (BATCH, LENGTH), generator=generator)
    batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    rows = []
    for task in TASKS:
        with torch.inference_mode():
            times = interleaved(forward_calls(task, batch), rounds)
        for kind in ("soft", "hard"):
            rows.append(
                {
                    "what": f"{task}, {kind} labels: protected forward / clean forward",
                    "ratio": ratio(times, kind, "clean"),
                    "limit": {"soft": 1.005, "hard": 1.01}[kind],
                    "ratio_of_marking_alone": ratio(times, f"{kind} alone", "clean"),
                    "median_ms": milliseconds(times[kind]),
                    "clean_median_ms": milliseconds(times["clean"]),
                }
            )
    return rows


def forward_calls(task: str, batch: dict[str, torch.Tensor]) -> dict[str, Callable[[], object]]:
    """The clean model, the protected one with either kind of labels, and the marking of given logits alone."""
    model, wrapper = bert(task), TASKS[task][1]
    # Scope "all" marks every selected answer: more work than the default gives.
    key = WatermarkKey.generate(model, target=0, special_token_ids=[0, 101, 102], scope="all")
    logits, query = model(**batch).logits, Query(**batch)

    def calls_of(kind: str) -> dict[str, Callable[[], object]]:
        victim, options = wrapper.from_model(model, key=key, label_kind=kind), OutputOptions(label_kind=kind)
        return {kind: lambda: victim(**batch), f"{kind} alone": lambda: protect(logits, query, key, options)}

    return {"clean": lambda: model(**batch), **calls_of("soft"), **calls_of("hard")}


def bench_key(rounds: int) -> list[Row]:
    model = bert("sequence-classification")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        arguments = {"target": 0, "special_token_ids": [0, 101, 102]}

        def derive(law):
            key = WatermarkKey.generate(model, law=law, **arguments)
            return key.phase_table, key.selection_table

        times = interleaved(
            {
                "load": lambda: BertForSequenceClassification.from_pretrained(folder),
                "direct": lambda: derive("direct"),
                "paper": lambda: derive("paper"),
            },
            rounds,
        )
    for law in ("direct", "paper"):
        rows.append(
            {
                "what": f"deriving a key's tables, law {law}, {VOCABULARY:,} tokens / loading the model",
                "ratio": ratio(times, law, "load"),
                "limit": 1.0,
                "median_ms": milliseconds(times[law]),
                "load_median_ms": milliseconds(times["load"]),
            }
        )
    return rows


def bench_import(rounds: int) -> list[Row]:
    def seconds(statement: str) -> float:
        code = f"import time; start = time.perf_counter(); {statement}; print(time.perf_counter() - start)"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)

    classes = "PreTrainedModel, AutoModelForSequenceClassification, AutoModelForTokenClassification"
    statements = {"drw_hf": "import drw_hf", "transformers": f"from transformers import {classes}"}
    times: dict[str, list[float]] = {name: [] for name in statements}
    for _ in range(rounds):
        for name, statement in statements.items():
            times[name].append(seconds(statement))
    return [
        {
            "what": "import drw_hf / importing transformers' model classes",
            "ratio": ratio(times, "drw_hf", "transformers"),
            "limit": 1.1,
            "median_ms": milliseconds(times["drw_hf"]),
        }
    ]
