"""Attacks that look at all answers together, with the texts that they are about."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from ...asking.words import Words
from ..recovery import DAMPING, leaning, leans_of, moved, recover
from ..stolen import Stolen, certain
from .base import SOFT_ONLY, TAGGERS, Attack, register_attack

if TYPE_CHECKING:
    from datasets import Dataset

    from ..thief import Thief

_LEAST = 1e-6  # a score below it counts as that, for logarithms
THE_METHOD = "the method, all but the key"


@register_attack
class Noise(Attack):
    """Adds noise to the logarithms of all scores, with a standard deviation of 0.5."""

    name, label_kinds, spread = "noise", SOFT_ONLY, 0.5

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """Answers with noise."""
        stolen = Stolen(rows)
        return stolen.replaced(moved(stolen.answers, self.spread * thief.rng().standard_normal(stolen.answers.shape)))


@register_attack
class DropUncertain(Attack):
    """Leaves out answers whose two best scores are within 0.6."""

    name, label_kinds, within = "drop-uncertain", SOFT_ONLY, 0.6
    knows = "that close calls carry most of a mark"

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """The sure answers, as labels."""
        kept = []
        for answer in Stolen(rows).each:
            table = np.atleast_2d(answer)
            best = np.sort(table, axis=1)[:, -2:]
            sure = (best[:, 1] - best[:, 0] >= self.within)[:, None] * certain(table.argmax(1), table.shape[1])
            kept.append((sure * table.any(axis=1, keepdims=True)).reshape(answer.shape))
        return thief.rows(kept, rows.select_columns(thief.columns))


@register_attack
class Debias(Attack):
    """Debiases per token: every word's answers lean to their class as much as the class's own do."""

    name, label_kinds, knows = "debias", SOFT_ONLY, "that words carry the mark"

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """Answers that no longer lean with their words."""
        stolen = Stolen(rows)
        return stolen.replaced(without_lean(stolen.answers, thief.carriers(rows)))


def without_lean(probabilities: np.ndarray, words: Words) -> np.ndarray:
    """Answers whose log-odds of the top class have the same mean for every word.

    The log-odds, less their mean over answers with the same top class, are fitted by one number per (word, top
    class), each divided by √n in an answer with n words; what was fitted is taken off. With one word per answer each
    (word, top class) group's mean moves to the class's mean; with many the fit is damped, for it would explain all.
    The other classes share the rest as before.
    """
    damping = 0.0 if words.counts.max(initial=0) <= 1 else 1.0
    leans = leans_of(probabilities, words, damping)
    return leaning(probabilities, -leans.of(words, probabilities.argmax(axis=1)))


@register_attack
class VotePerWord(Attack):
    """Gives every word the label that it was answered most often."""

    name, tasks, knows = "vote-per-word", TAGGERS, "that close calls carry most of a mark"

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """The majority's labels."""
        texts, stolen = rows[thief.columns[0]][:], Stolen(rows)
        labels = [np.where(table.any(1), table.argmax(1), -1).tolist() for table in stolen.each]
        voted = majority_per_word(texts, labels)
        return thief.rows([certain(row, len(thief.labels)) for row in voted], rows.select_columns(thief.columns))


def majority_per_word(texts: Sequence[Sequence[str]], labels: Sequence[Sequence[int]]) -> list[list[int]]:
    """Every word gets the label that it has most often, of those that end alike the first to be seen."""
    counts: dict[str, Counter[int]] = {}
    for words, row in zip(texts, labels, strict=True):
        for word, label in zip(words, row, strict=True):
            if label >= 0:
                counts.setdefault(word, Counter())[label] += 1
    best = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    return [
        [best[word] if label >= 0 else -1 for word, label in zip(words, row, strict=True)]
        for words, row in zip(texts, labels, strict=True)
    ]


Explained = Literal["nothing", "gold", "young"]
_EXPLAINED: dict[Explained, str] = {
    "nothing": "from the answers",
    "gold": "with a model of gold labels",
    "young": "with a student that stopped early, when it knew the task and hardly the mark,",
}


class SubtractTable(Attack):
    """Computes what the key adds for every word and class from the answers, and takes it off.

    ``explained_by`` is a model of the thief's own, whose answers explain what of a text's answer is no mark.
    """

    label_kinds, knows = SOFT_ONLY, THE_METHOD

    def __init__(self, times: float, explained_by: Explained = "nothing") -> None:
        self.times, self.explained_by = times, explained_by
        self.gold = 1.0 if explained_by == "gold" else 0.0
        self.trainings = {"nothing": 1.0, "gold": 2.0, "young": 1.25}[explained_by]
        with_what = "" if explained_by == "nothing" else f"-{explained_by}"
        self.name = f"subtract-table{with_what}{'' if times == 1 else f'-{times:g}'}"

    @property
    def title(self) -> str:
        """With how it is estimated, and how much of it goes."""
        return f"Recovers the key's table {_EXPLAINED[self.explained_by]} and subtracts {self.times:g} times as much"

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """Answers less the estimate."""
        stolen, words = Stolen(rows), thief.carriers(rows)
        own = None
        if self.explained_by != "nothing":
            model = thief.innocent() if self.explained_by == "gold" else thief.young_student(rows, thief.seed + 300)
            own = Stolen(thief.answers_of(model, rows.select_columns(thief.columns))).table[stolen.there]
        if thief.shadow.mark == "cosine":
            leans = leans_of(stolen.answers, words, DAMPING, own)
            lean = leans.of(words, stolen.answers.argmax(axis=1))
            return stolen.replaced(leaning(stolen.answers, -self.times * lean))
        found = recover(words, stolen.answers, own)
        return stolen.replaced(moved(stolen.answers, -self.times * found.of(words)))


register_attack(SubtractTable(1.0))
register_attack(SubtractTable(3.0))
register_attack(SubtractTable(1.0, "gold"))
register_attack(SubtractTable(3.0, "gold"))
register_attack(SubtractTable(1.0, "young"))
register_attack(SubtractTable(1.25, "young"))
register_attack(SubtractTable(1.5, "young"))


# -- recovery attacks of the literature, with shadow marks: a student of the answers is the thief's own model, which it
# -- marks with keys of its own, so that it sees answers before and after


def shadow_pairs(rows: "Dataset", thief: "Thief", keys: int, most: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Clean and marked answers of the thief's own model, to its own texts under keys of its own."""
    model = thief.train(rows, seed=thief.seed + 200)
    texts = thief.texts
    clean, marked = Stolen(thief.answers_of(model, texts)), []
    for _ in range(keys):
        marked.append(Stolen(thief.marked_by(thief.new_key(), model, texts)).answers)
    before, after = np.tile(clean.answers, (keys, 1)), np.concatenate(marked)
    chosen = thief.rng(1).permutation(len(before))[:most]
    return before[chosen], after[chosen]


class _Shadowed(Attack):
    label_kinds, knows, trainings = SOFT_ONLY, THE_METHOD, 2.0


@register_attack
class LearnToInvert(_Shadowed):
    """Learns from shadow marks of its own to undo what a mark does to an answer (as D-DAE does)."""

    name, keys, epochs = "learn-to-invert", 3, 12

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """Answers after a small network that maps marked to clean ones."""
        stolen = Stolen(rows)
        before, after = (torch.from_numpy(_logs(one)) for one in shadow_pairs(rows, thief, self.keys))
        m = before.shape[1]
        torch.manual_seed(thief.seed)
        last = torch.nn.Linear(128, m)
        network = torch.nn.Sequential(torch.nn.Linear(m, 128), torch.nn.ReLU(), last)
        torch.nn.init.zeros_(last.weight)  # at first it leaves answers as they are
        torch.nn.init.zeros_(last.bias)
        optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
        target = before.softmax(-1)
        for _ in range(self.epochs):
            for batch in torch.randperm(len(before)).split(256):
                said = torch.log_softmax(after[batch] + network(after[batch]), dim=-1)
                loss = -(target[batch] * said).sum(-1).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            served = torch.from_numpy(_logs(stolen.answers))
            return stolen.replaced((served + network(served)).softmax(-1).double().numpy())


@register_attack
class PartialBayes(_Shadowed):
    """Takes for each answer the mean of the clean ones whose shadow marks look most like it (partial Bayes)."""

    name, keys, nearest, within = "partial-bayes", 3, 20, 0.01

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """The expected clean answer with the same top class, given the marked one."""
        stolen = Stolen(rows)
        before, after = (torch.from_numpy(one).float() for one in shadow_pairs(rows, thief, self.keys))
        answers = torch.from_numpy(stolen.answers).float()
        made, top = answers.clone(), answers.argmax(1)
        for best in top.unique().tolist():
            clean, marked = before[before.argmax(1) == best], after[before.argmax(1) == best]
            if len(clean):  # else nothing is known of this class
                made[top == best] = torch.cat(
                    [self._expected(part, clean, marked) for part in answers[top == best].split(500)]
                )
        return stolen.replaced((made / made.sum(1, keepdim=True)).double().numpy())

    def _expected(self, answers: torch.Tensor, clean: torch.Tensor, marked: torch.Tensor) -> torch.Tensor:
        """The mean clean answer of the nearest marked ones, and of all that are as near as makes no difference."""
        away = torch.cdist(answers, marked, p=1)
        limit = away.kthvalue(min(self.nearest, len(marked)), dim=1, keepdim=True).values.clamp_min(self.within)
        near = (away <= limit).float()
        return near @ clean / near.sum(1, keepdim=True)


def _logs(p: np.ndarray) -> Any:
    return np.log(np.maximum(p, _LEAST)).astype(np.float32) - np.float32(math.log(_LEAST))
