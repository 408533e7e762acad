"""Forgeries: a customer or a cheating owner wants somebody else to look like a thief."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from datasets import Dataset

from ...errors import InvalidInputError
from ..recovery import DAMPING, leans_of, recover
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
    """A model onto whose scores a table is put: a number per token and class, as a mark does.

    ``tokens_of(inputs)`` says which tokens count, as a mask of the shape of ``input_ids``; all of a text share in its
    answer, each once. With ``top_alone`` the best class is moved and no other.
    """

    table: torch.Tensor

    def __init__(
        self, model: Any, table: np.ndarray, tokens_of: Callable[[Any], torch.Tensor], by_word: bool, top_alone: bool
    ) -> None:
        super().__init__()
        self.model, self.config, self.tokens_of = model, model.config, tokens_of
        self.by_word, self.top_alone = by_word, top_alone
        self.register_buffer("table", torch.from_numpy(table).float())

    def forward(self, **inputs: Any) -> Any:
        """The model's outputs with moved logits."""
        outputs, ids, there = self.model(**inputs), inputs["input_ids"], self.tokens_of(inputs)
        if self.by_word:
            shifts = self.table[ids] * there.unsqueeze(-1)
        else:
            distinct = [row[counts].unique() for row, counts in zip(ids, there, strict=True)]
            shifts = torch.stack([self.table[row].sum(0) / max(len(row), 1) ** 0.5 for row in distinct])
        if self.top_alone:
            shifts = shifts * (outputs.logits == outputs.logits.amax(-1, keepdim=True))
        outputs.logits = outputs.logits + shifts
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
        innocent = thief.innocent()
        if innocent.tokenizer.get_vocab() != thief.tokenizer.get_vocab():
            raise InvalidInputError(
                "the table that was recovered is one of the service's tokens, and the innocent model reads others; "
                "let students start from a model with the service's tokenizer"
            )
        words, answers, vocabulary = thief.carriers(rows), Stolen(rows).answers, thief.shadow.vocab_size
        one_class = thief.shadow.mark == "cosine"
        found = leans_of(answers, words, DAMPING) if one_class else recover(words, answers)
        table, by_word = found.table(vocabulary), thief.by_word
        return innocent.with_model(Framed(innocent.model, table, thief.marked_tokens, by_word, one_class))


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
