"""What the victim's users get at every watermark level: measured accuracy beside what Theorem 1 predicts."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..asking import as_predictor
from ..asking.local import ModelPredictor
from ..asking.questions import questions_of
from ..keys import WatermarkKey
from ..planning.accuracy import accuracy_bounds, calibration_error
from ..watermark.marking import OutputOptions, protect
from ..watermark.tokens import Query
from .ranking import figures_of_merit
from .tasks import Corpus

LEVELS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
TAUS = (0.0, 0.25, 0.5, 0.75, 1.0)
ALL_DRAWN = "hard, all drawn"  # hard labels as the paper's code measures them: τ = 1, every answer drawn
_BATCH = 64


@dataclass(frozen=True)
class AskedBatch:
    """Some rows as the model saw them: its logits are computed once, and marked as often as there are keys."""

    query: Query
    logits: torch.Tensor
    units: list[list[int | None]] | None


def serve(victim: torch.nn.Module, tokenizer: Any, corpus: Corpus, keys: Sequence[WatermarkKey]) -> dict[str, Any]:
    """Measured and predicted accuracy of every level and label kind, over keys that differ in their secret alone.

    Both as this package serves hard labels (marked answers are drawn) and, as `ALL_DRAWN`, as the paper's code
    measures them.
    """
    batches = list(asked_batches(victim, tokenizer, corpus))
    probabilities = np.concatenate([items_of(batch, batch.logits.softmax(-1)) for batch in batches])
    calibration = calibration_error(probabilities, right_labels(corpus, batches))
    record: dict[str, Any] = {"ece": calibration.ece, "confidence": calibration.confidence, "n": calibration.n}
    record["clean"] = figures_of_merit(corpus, _labels(batches))
    ways: dict[str, tuple[OutputOptions, dict[str, float]]] = {
        "soft": (OutputOptions("soft"), {}),
        "hard": (OutputOptions("hard"), {}),
        ALL_DRAWN: (OutputOptions("hard", sample_all=True), {"tau": 1.0}),
    }

    def measured(labels: str, **changes: float) -> dict[str, Any]:
        options, always = ways[labels]
        marked = [key.replace(**changes, **always) for key in keys]
        merits = [figures_of_merit(corpus, _labels(batches, key, options)) for key in marked]
        kind: Any = {"label_kind": options.label_kind, "sample_all": options.sample_all}
        predicted = dataclasses.asdict(accuracy_bounds(probabilities, marked[0].settings, **kind))
        del predicted["n"]
        return {**changes, "labels": labels, "keys": len(keys), **_summary(merits), **predicted}

    record["levels"] = [measured(labels, epsilon=epsilon) for epsilon in LEVELS for labels in ways]
    record["taus"] = [measured(labels, tau=tau) for tau in TAUS for labels in ("soft", "hard")]
    return record


@torch.no_grad()
def asked_batches(victim: torch.nn.Module, tokenizer: Any, corpus: Corpus) -> Iterator[AskedBatch]:
    """The victim's logits for the rows that a corpus is evaluated on."""
    teacher = as_predictor(victim, tokenizer, task=corpus.task.kind)
    assert isinstance(teacher, ModelPredictor)  # the victim is a model in this process
    columns = list(corpus.task.columns)
    questions = questions_of({name: corpus.evaluation[name][:] for name in columns}, columns)
    for start in range(0, len(questions), _BATCH):
        some = questions[start : start + _BATCH]
        encoding = teacher.encode(some)
        query = Query(encoding["input_ids"], encoding["attention_mask"], encoding.get("token_type_ids"))
        units = teacher.units(some, encoding) if corpus.task.kind == "token-classification" else None
        yield AskedBatch(query, victim(**encoding.to(victim.device)).logits.float().cpu(), units)


def _labels(batches: Sequence[AskedBatch], key: WatermarkKey | None = None, options: Any = None) -> list[Any]:
    """The label of every row, or of every word; −1 for words beyond the model's limit."""
    found: list[Any] = []
    for batch in batches:
        logits = batch.logits if key is None else protect(batch.logits, batch.query, key, options)
        best = logits.argmax(-1).tolist()
        for row, places in zip(best, batch.units or itertools.repeat(None), strict=False):
            found.append(row if places is None else [-1 if place is None else row[place] for place in places])
    return found


def items_of(batch: AskedBatch, values: torch.Tensor) -> np.ndarray:
    """The entries of texts, or of words that have an answer."""
    if batch.units is None:
        return values.numpy()
    return np.concatenate(
        [values[row, [place for place in places if place is not None]] for row, places in enumerate(batch.units)]
    )


def right_labels(corpus: Corpus, batches: Sequence[AskedBatch]) -> np.ndarray:
    """The right labels of all items that have an answer."""
    gold = corpus.evaluation[corpus.task.gold][:]
    if batches[0].units is None:
        return np.asarray(gold)
    answered = [place is not None for batch in batches for places in batch.units or () for place in places]
    return np.concatenate([np.asarray(row) for row in gold])[answered]


def _summary(merits: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean, least and largest of every figure."""
    summary: dict[str, float] = {}
    for name in merits[0]:
        values = [merit[name] for merit in merits]
        summary |= {name: float(np.mean(values)), f"{name}_low": min(values), f"{name}_high": max(values)}
    return summary
