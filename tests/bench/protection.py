"""What protection costs: the protected forward, key derivation, the import."""

import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

import torch
from transformers import BertConfig, BertForSequenceClassification, BertForTokenClassification

from drw_hf import (
    KeyRing,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
)
from drw_hf.watermark.tilt import signal_table

from .measure import Row, interleaved, milliseconds, ratio

BATCH, LENGTH, VOCABULARY = 32, 64, 30_522
TASKS = {
    "sequence-classification": (BertForSequenceClassification, WatermarkedModelForSequenceClassification, 2),
    "token-classification": (BertForTokenClassification, WatermarkedModelForTokenClassification, 9),
}


@dataclass(frozen=True)
class Case:
    """What is measured: a task, how it is marked, and for how many users; ``n_labels`` None is the usual number."""

    task: str
    kind: str = "soft"
    users: int = 0
    mark: str = "cosine"
    n_labels: int | None = None
    limit: float | None = 1.01

    @property
    def name(self) -> str:
        mark = f"{self.mark}, {self.n_labels} classes, " if self.mark != "cosine" else ""
        users = f", {self.users} new user{'s' if self.users > 1 else ''}" if self.users else ""
        return f"{self.task}, {mark}{self.kind} labels{users}"


CASES = [
    Case(task, kind, users, limit=1.005 if kind == "soft" and not users else 1.01)
    for task, kind, users in itertools.product(TASKS, ("soft", "hard"), (0, BATCH))
] + [
    Case(task, kind, users, "tilt", n_labels)
    for task, n_labels in itertools.product(TASKS, (2, 45, 150))
    for kind, users in (("soft", 0), ("soft", BATCH), ("hard", BATCH))
]


def bert(task: str, n_labels: int | None = None, layers: int = 6, width: int = 384) -> torch.nn.Module:
    """By default six layers, 384 wide, random weights: the shape of a small sentence encoder."""
    model_class, _, usual = TASKS[task]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        intermediate_size=4 * width,
        num_labels=n_labels or usual,
    )
    return model_class(config).eval()


def random_batch(rows: int, length: int) -> dict[str, torch.Tensor]:
    """Texts of random tokens."""
    input_ids = torch.randint(1000, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}


def bench_forward(rounds: int) -> list[Row]:
    """The protected forward over the clean one, for both tasks, both kinds of labels and both marks.

    The ratio is taken within one protected call, which holds a clean forward: whole call over the part spent in the
    wrapped model. What the wrapper adds is far below the spread of two neighbouring calls, so clean and protected
    calls side by side (measured too, with quartiles) can only show that nothing else slows down.
    """
    batch = random_batch(BATCH, LENGTH)
    return [forward_row(case, bert(case.task, case.n_labels), batch, rounds) for case in CASES]


def bench_small_batches(rounds: int) -> list[Row]:
    """The same for what is served on a CPU, small batches and models, where what is done once per call weighs most."""
    rows = []
    for (layers, width), batch in itertools.product(((2, 128), (6, 384)), (1, 8)):
        where = f"{layers} × {width}, {batch} × {LENGTH} tokens: "
        for mark, (kind, users, limit) in itertools.product(
            ("cosine", "tilt"), (("soft", 0, 1.05), ("hard", 0, 1.08), ("soft", batch, 1.15))
        ):
            case = Case("sequence-classification", kind, users, mark, 2, limit)
            model = bert(case.task, case.n_labels, layers, width)
            rows.append(forward_row(case, model, random_batch(batch, LENGTH), rounds, where))
    return rows


def forward_row(
    case: Case, model: torch.nn.Module, batch: dict[str, torch.Tensor], rounds: int, where: str = ""
) -> Row:
    with torch.inference_mode():
        whole, inside, clean = forward_times(case, model, batch, rounds)
    added = [a / b for a, b in zip(whole, inside, strict=True)]
    side_by_side = [a / b for a, b in zip(whole, clean, strict=True)]
    row: Row = {
        "what": f"{where}{case.name}: protected forward / clean forward",
        "ratio": statistics.median(added),
        "ratio_quartiles": statistics.quantiles(added, n=4),
        "side_by_side_quartiles": statistics.quantiles(side_by_side, n=4),
        "median_ms": milliseconds(whole),
        "clean_median_ms": milliseconds(clean),
        "added_median_ms": milliseconds([a - b for a, b in zip(whole, inside, strict=True)]),
    }
    return row if case.limit is None else {**row, "limit": case.limit}


def forward_times(
    case: Case, model: torch.nn.Module, batch: dict[str, torch.Tensor], rounds: int
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of the protected call, of the wrapped model within it, and of the clean model alone."""
    users, wrapper = case.users, TASKS[case.task][1]
    # Scope "all" marks every selected answer: more work than the default gives.
    settings = {"target": 0, "scope": "all"} if case.mark == "cosine" else {"mark": case.mark}
    make = KeyRing.generate if users else WatermarkKey.generate
    key = make(model, special_token_ids=[0, 101, 102], **settings)
    victim = wrapper.from_model(model, key=key, label_kind=case.kind)
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

        def derive_tilt():
            key = WatermarkKey.generate(model, mark="tilt", special_token_ids=arguments["special_token_ids"])
            return signal_table(key, torch.device("cpu"))

        times = interleaved(
            {
                "load": lambda: BertForSequenceClassification.from_pretrained(folder),
                "direct": lambda: derive("direct"),
                "paper": lambda: derive("paper"),
                "tilt": derive_tilt,
            },
            rounds,
        )
    for law in ("direct", "paper", "tilt"):
        which = "mark tilt, 2 classes" if law == "tilt" else f"law {law}"
        rows.append(
            {
                "what": f"deriving a key's tables, {which}, {VOCABULARY:,} tokens / loading the model",
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
