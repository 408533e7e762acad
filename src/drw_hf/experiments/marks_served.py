"""What the mark tilt costs who is served: accuracy lost, and calibration by the digits that are shown.

The victim is asked once about a part's rows; its answers are then marked with as many keys as are wanted, as the
protected model marks them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..keys import WatermarkKey
from ..planning.accuracy import calibration_error
from ..runs.lines import Record
from ..watermark.marking import OutputOptions, protect
from ..watermark.rounding import MOST_DIGITS, rounded
from ..watermark.tilt import TiltMark
from .serving import AskedBatch, asked_batches, items_of, right_labels
from .tasks import Corpus

_KINDS = {"soft": OutputOptions("soft", digits=TiltMark.digits), "hard": OutputOptions("hard")}


@dataclass(frozen=True)
class Asked:
    """Clean logits of all items of some rows, their right labels, the row of each, and the batches they came in."""

    batches: Sequence[AskedBatch]
    logits: torch.Tensor
    gold: np.ndarray
    rows: np.ndarray

    def served(self, key: WatermarkKey, options: OutputOptions) -> torch.Tensor:
        """What the protected victim answers, as logits of all items."""
        return _items(self.batches, [protect(batch.logits, batch.query, key, options) for batch in self.batches])


def ask_victim(victim: torch.nn.Module, tokenizer: Any, corpus: Corpus) -> Asked:
    """The victim's answers to the rows that a corpus is evaluated on."""
    batches = list(asked_batches(victim, tokenizer, corpus))
    counts: list[int] = []
    for batch in batches:
        units = batch.units or [[0]] * len(batch.logits)
        counts += [sum(place is not None for place in places) for places in units]
    logits = _items(batches, [batch.logits for batch in batches])
    return Asked(batches, logits, right_labels(corpus, batches), np.repeat(np.arange(len(counts)), counts))


def _items(batches: Sequence[AskedBatch], values: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([items_of(*pair) for pair in zip(batches, values, strict=True)]))


def measure_served(asked: Asked, keys: Sequence[WatermarkKey], temperature: float) -> Record:
    """Cost and calibration of what is served, over keys that differ in their secret alone.

    The cost in points is paired: the same items, clean and marked. ``cost_se`` is its standard error over texts and
    keys, ``cost_sd`` its standard deviation over keys. Log loss and ECE are means over keys.
    """
    clean = asked.logits.argmax(-1).numpy() == asked.gold
    record: Record = {
        "keys": len(keys),
        "items": len(clean),
        "clean": 100.0 * float(clean.mean()),
        "unmarked": _calibration(asked.logits.log_softmax(-1), asked.gold),
        "unmarked, calibrated": _calibration((asked.logits / temperature).log_softmax(-1), asked.gold),
    }
    lost = {kind: np.zeros((len(keys), len(clean))) for kind in _KINDS}
    digits: dict[int, list[Record]] = {number: [] for number in range(MOST_DIGITS + 1)}
    for number, key in enumerate(keys):
        for kind, options in _KINDS.items():
            right = asked.served(key, options).argmax(-1).numpy() == asked.gold
            lost[kind][number] = clean.astype(float) - right
        log_y = asked.served(key, OutputOptions("soft"))
        for count, found in digits.items():
            found.append(_calibration(rounded(log_y, count) if count else log_y, asked.gold))
    for kind, table in lost.items():
        record[kind] = paired_cost(table, asked.rows)
    record["digits"] = {
        str(count) if count else "unrounded": {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        for count, found in digits.items()
    }
    return record


def paired_cost(lost: np.ndarray, rows: np.ndarray) -> Record:
    """The cost in points of right answers that were lost, shape (keys, items), and its errors; see above."""
    over_keys = lost.mean(axis=1)
    error = np.sqrt(_error_over_texts(lost.mean(axis=0), rows) ** 2 + over_keys.var(ddof=1) / len(lost))
    figures = {"cost": over_keys.mean(), "cost_se": error, "cost_sd": over_keys.std(ddof=1)}
    return {name: 100.0 * float(value) for name, value in figures.items()}


def _calibration(log_y: torch.Tensor, gold: np.ndarray) -> Record:
    chosen = log_y.double().gather(-1, torch.from_numpy(gold).unsqueeze(-1))
    return {"ece": calibration_error(log_y.exp().numpy(), gold).ece, "log_loss": float(-chosen.mean())}


def _error_over_texts(values: np.ndarray, rows: np.ndarray) -> float:
    """The standard error of a mean over items; those of one text are no independent draws."""
    sums = np.bincount(rows, values - values.mean())
    return float(np.sqrt(np.sum(sums**2)) / len(values))
