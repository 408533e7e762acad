"""Forgeries: a customer or a cheating owner wants somebody else to look like a thief."""

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from datasets import Dataset

from ..recovery import Recovered, recover
from ..stolen import Stolen
from ..students import Student
from .base import SOFT_ONLY, Attack, Stage, register_attack
from .tables import THE_METHOD

if TYPE_CHECKING:
    from ..thief import Thief


class Forgery(Attack):
    """Accuses a model of gold labels that has nothing to do with the service.

    ``tries`` says how many keys of its own a cheating owner tries on it.
    """

    stage: ClassVar[Stage] = "forgery"
    gold, trainings, tries = 1.0, 1.0, 0


class Framed(torch.nn.Module):
    """A model onto whose scores a table is put: a number per token and class, as a mark does."""

    table: torch.Tensor
    ordinary: torch.Tensor

    def __init__(self, model: Any, found: Recovered, vocabulary: int, special_ids: list[int], by_word: bool) -> None:
        super().__init__()
        self.model, self.config, self.by_word = model, model.config, by_word
        table = torch.zeros(vocabulary, found.shifts.shape[1])
        table[torch.from_numpy(found.token_ids)] = torch.from_numpy(found.shifts).float()
        ordinary = torch.ones(vocabulary, dtype=torch.bool)
        ordinary[special_ids] = False
        self.register_buffer("table", table * ordinary[:, None])
        self.register_buffer("ordinary", ordinary)

    def forward(self, **inputs: Any) -> Any:
        """The model's outputs with moved logits."""
        outputs, ids = self.model(**inputs), inputs["input_ids"]
        if self.by_word:
            outputs.logits = outputs.logits + self.table[ids]
            return outputs
        attended = inputs.get("attention_mask", torch.ones_like(ids)).bool() & self.ordinary[ids]
        shifts = []
        for row, there in zip(ids, attended, strict=True):
            distinct = row[there].unique()
            shifts.append(self.table[distinct].sum(0) / max(len(distinct), 1) ** 0.5)
        outputs.logits = outputs.logits + torch.stack(shifts)
        return outputs


@register_attack
class FrameInnocent(Forgery):
    """Recovers the key's table from the answers and puts it onto an innocent model's scores."""

    name, label_kinds, knows, account = "frame-innocent", SOFT_ONLY, THE_METHOD, 0

    def ask(self, thief: "Thief") -> Dataset:
        """What one customer is answered."""
        return thief.ask(thief.texts, self.account)

    def train(self, rows: Dataset, thief: "Thief") -> Student:
        """The innocent model, framed."""
        found = recover(thief.carriers(rows), Stolen(rows).answers)
        innocent, special = thief.innocent(), list(thief.tokenizer.all_special_ids)
        vocabulary = max(len(thief.tokenizer), int(found.token_ids.max()) + 1)
        return innocent.with_model(Framed(innocent.model, found, vocabulary, special, thief.by_word))


@register_attack
class FrameCustomer(FrameInnocent):
    """Recovers the table of its own account and hopes that another customer is accused."""

    name, account, accounts = "frame-customer", 1, 2


@register_attack
class KeyAfterTheFact(Forgery):
    """A cheating owner tries 100 fresh keys on an innocent model and shows the best one."""

    name, tries, knows = "key-after-the-fact", 100, "nothing"

    def ask(self, thief: "Thief") -> Dataset:
        """Nobody is asked: the owner needs no answers."""
        return thief.texts

    def train(self, rows: Dataset, thief: "Thief") -> Student:
        """The innocent model."""
        return thief.innocent()
