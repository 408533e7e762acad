"""What the mark tilt costs who is served: temperature and strength chosen, accuracy and calibration measured.

The victim is asked once about a part's rows; its answers are then marked with as many keys as are wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..keys import WatermarkKey
from ..planning.accuracy import calibration_error
from ..watermark.marking import OutputOptions, protect
from ..watermark.rounding import MOST_DIGITS, rounded
from . import library
from .lines import Record
from .serving import AskedBatch, asked_batches, items_of, right_labels
from .tasks import Corpus

STRONGEST = 5.0  # the strength that is searched up to


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

    def shifts(self, key: WatermarkKey) -> torch.Tensor:
        """S of every item, but for a number that all its classes share: what a strength of 1 makes of no opinion."""
        key = key.replace(strength=1.0, temperature=1.0)
        marked = [
            protect(torch.zeros_like(batch.logits), batch.query, key, OutputOptions("soft")) for batch in self.batches
        ]
        return _items(self.batches, marked)


def ask_victim(victim: torch.nn.Module, tokenizer: Any, corpus: Corpus) -> Asked:
    """The victim's answers to the rows that a corpus is evaluated on."""
    batches = list(asked_batches(victim, tokenizer, corpus))
    logits = _items(batches, [batch.logits for batch in batches])
    counts: list[int] = []
    for batch in batches:
        units = batch.units or [[0]] * len(batch.logits)
        counts += [sum(place is not None for place in places) for places in units]
    return Asked(batches, logits, right_labels(corpus, batches), np.repeat(np.arange(len(counts)), counts))


def _items(batches: Sequence[AskedBatch], values: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.from_numpy(np.concatenate([items_of(*pair) for pair in zip(batches, values, strict=True)]))


# -- choosing


def fit_temperature(logits: torch.Tensor, gold: np.ndarray) -> float:
    """The temperature under which the right labels are likeliest."""
    right = torch.from_numpy(gold)

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits.double() / np.exp(log_temperature), right))

    return float(np.exp(library("scipy.optimize").minimize_scalar(loss, bounds=(-3.0, 4.0), method="bounded").x))


def expected_cost(logits: torch.Tensor, labels: torch.Tensor, temperature: float) -> float:
    """The accuracy in points that serving these labels costs, if the calibrated probabilities are right."""
    p = (logits.double() / temperature).softmax(-1)
    return 100.0 * float((p.amax(-1) - p.gather(-1, labels.unsqueeze(-1)).squeeze(-1)).mean())


def solve_strength(
    logits: torch.Tensor, shifts: Sequence[torch.Tensor], temperature: float, budget: float
) -> tuple[float, float]:
    """The largest strength whose expected cost, the mean over keys, is within the budget; and that cost."""

    def cost(strength: float) -> float:
        moved = ((logits / temperature + strength * shift).argmax(-1) for shift in shifts)
        return float(np.mean([expected_cost(logits, labels, temperature) for labels in moved]))

    low, high = 0.0, STRONGEST
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return low, cost(low)


# -- measuring


def measure_served(asked: Asked, keys: Sequence[WatermarkKey], temperature: float) -> Record:
    """Cost and calibration of what is served, over keys that differ in their secret alone.

    The cost is paired: the same items, clean and marked. ``cost_se`` is its standard error over texts, each text's
    cost averaged over keys; ``cost_sd`` its standard deviation over keys. Log loss and ECE are means over keys.
    """
    clean = asked.logits.argmax(-1).numpy() == asked.gold
    record: Record = {
        "keys": len(keys),
        "items": len(clean),
        "clean": 100.0 * float(clean.mean()),
        "unmarked": _calibration(asked.logits.log_softmax(-1), asked.gold),
        "unmarked, calibrated": _calibration((asked.logits / temperature).log_softmax(-1), asked.gold),
    }
    lost = {"soft": np.zeros((len(keys), len(clean))), "hard": np.zeros((len(keys), len(clean)))}
    expected, digits = [], {number: list[Record]() for number in range(MOST_DIGITS + 1)}
    for number, key in enumerate(keys):
        log_y = asked.served(key, OutputOptions("soft"))
        hard = asked.served(key, OutputOptions("hard")).argmax(-1)
        soft = asked.served(key, OutputOptions("soft", digits=3)).argmax(-1)
        expected.append(expected_cost(asked.logits, hard, temperature))
        for name, labels in (("soft", soft), ("hard", hard)):
            lost[name][number] = clean.astype(float) - (labels.numpy() == asked.gold)
        for count, found in digits.items():
            shown = rounded(log_y, count) if count else log_y
            found.append(_calibration(shown, asked.gold))
    record["expected_cost"] = float(np.mean(expected))
    for name, table in lost.items():
        record[name] = {
            "cost": 100.0 * float(table.mean()),
            "cost_se": 100.0 * _clustered_error(table.mean(axis=0), asked.rows),
            "cost_sd": 100.0 * float(table.mean(axis=1).std(ddof=1)),
        }
    record["digits"] = {
        str(count) if count else "unrounded": {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        for count, found in digits.items()
    }
    return record


def _calibration(log_y: torch.Tensor, gold: np.ndarray) -> Record:
    chosen = log_y.double().gather(-1, torch.from_numpy(gold).unsqueeze(-1))
    return {"ece": calibration_error(log_y.exp().numpy(), gold).ece, "log_loss": float(-chosen.mean())}


def _clustered_error(values: np.ndarray, rows: np.ndarray) -> float:
    """The standard error of a mean over items, of which those of one text are no independent draws."""
    sums = np.bincount(rows, values - values.mean())
    return float(np.sqrt(np.sum(sums**2)) / len(values))
