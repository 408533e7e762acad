"""What protection costs: the protected forward, key derivation, the import."""

import itertools
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from drw_hf import (
    KeyRing,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
)

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
    """The protected forward over the clean one, for both tasks and both kinds of labels.

    The ratio is taken within one protected call, which holds a clean forward: whole call over the part spent in the
    wrapped model. What the wrapper adds is far below the spread of two neighbouring calls, so clean and protected
    calls side by side (measured too, with quartiles) can only show that nothing else slows down.
    """
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1000, VOCABULARY, (BATCH, LENGTH), generator=generator)
    batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
    rows = []
    for task, kind, users in itertools.product(TASKS, ("soft", "hard"), (0, BATCH)):
        with torch.inference_mode():
            whole, inside, clean = forward_times(task, kind, users, batch, rounds)
        whose = f", {users} users" if users else ""
        added = [a / b for a, b in zip(whole, inside, strict=True)]
        side_by_side = [a / b for a, b in zip(whole, clean, strict=True)]
        rows.append(
            {
                "what": f"{task}, {kind} labels{whose}: protected forward / clean forward",
                "ratio": statistics.median(added),
                "limit": 1.005 if kind == "soft" and not users else 1.01,
                "ratio_quartiles": statistics.quantiles(added, n=4),
                "side_by_side_quartiles": statistics.quantiles(side_by_side, n=4),
                "median_ms": milliseconds(whole),
                "clean_median_ms": milliseconds(clean),
            }
        )
    return rows


def forward_times(
    task: str, kind: str, users: int, batch: dict[str, torch.Tensor], rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the protected call, of the wrapped model within it, and of the clean model alone."""
    model, wrapper = bert(task), TASKS[task][1]
    # Scope "all" marks every selected answer: more work than the default gives.
    make = KeyRing.generate if users else WatermarkKey.generate
    key = make(model, target=0, special_token_ids=[0, 101, 102], scope="all")
    victim = wrapper.from_model(model, key=key, label_kind=kind)
    calls, began, inside = itertools.count(), 0.0, []

    def start(*_: object) -> None:
        nonlocal began
        began = time.perf_counter()

    def stop(*_: object) -> None:
        inside.append(time.perf_counter() - began)

    model.register_forward_pre_hook(start)
    model.register_forward_hook(stop)
    within: list[float] = []

    def protected() -> None:
        call = next(calls)  # other users in every call: nothing is kept for anybody
        victim(**batch, user=[f"user {call} {row}" for row in range(users)] or None)
        within.append(inside[-1])

    times = interleaved({"clean": lambda: model(**batch), "protected": protected}, rounds)
    return times["protected"], within[1:], times["clean"]  # without the warm-up


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
