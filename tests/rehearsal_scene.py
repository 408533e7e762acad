"""A small service to rehearse a theft on: a tagger of random weights, its key, and text with labels drawn from it.

And a rehearsal that nobody played, with as many attacks as one likes.
"""

import contextlib
import math
import random

import torch
from datasets import Dataset

from drw_hf.extraction.attacks import ATTACKS, Attack, attack_named, register_attack
from drw_hf.extraction.students import Recipe
from drw_hf.planning import Rehearsal, RehearsalRow
from drw_hf.planning.rehearsal import STAGE_TITLES
from small_models import SPECIAL, make_key, make_model, make_tokenizer

TASK = "token-classification"
VOCABULARY = [f"word{number}" for number in range(300)]
TINY = Recipe(layers=1, width=32, epochs=8, learning_rate=5e-3)


def make_tagger():
    return make_model(TASK, vocab_size=len(SPECIAL) + len(VOCABULARY), seed=2)


def make_words():
    return make_tokenizer(VOCABULARY)


def make_scene_key(model, tokenizer, **settings):
    return make_key(model, tokenizer, mark="tilt", **{"strength": 0.8, "temperature": 1.0, **settings})


def make_rows(model, tokenizer, n_texts=400, seed=0):
    """Texts, and tags drawn from what the tagger says of them: it is calibrated, and right more often than not."""
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    texts = [chance.choices(VOCABULARY, k=8) for _ in range(n_texts)]
    batch = tokenizer(texts, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        shares = model(**batch).logits.softmax(-1)[:, 1:-1]
    drawn = torch.multinomial(shares.flatten(0, 1), 1, generator=generator).view(n_texts, -1)
    names = [[model.config.id2label[number] for number in row] for row in drawn.tolist()]
    return Dataset.from_dict({"tokens": texts, "tags": names})


class LearnsGold(Attack):
    """Learns right labels, and nothing of what was answered."""

    name, stage, gold = "learns-gold", "training", 1.0

    def change(self, rows, thief):
        """What the thief knows anyhow."""
        return thief.gold_rows(range(len(thief.texts)))


class Explodes(Attack):
    """Trains in steps that are far too long."""

    name, stage = "explodes", "training"

    def train(self, rows, thief):
        """A student of NaN."""
        return thief.train(rows, recipe=Recipe(layers=1, width=32, epochs=1, learning_rate=1e30))


@contextlib.contextmanager
def registered(*attacks):
    """Within this context these attacks are known."""
    for one in attacks:
        register_attack(one)
    try:
        yield
    finally:
        for one in attacks:
            ATTACKS.remove(one.name)


def made_up(n_attacks=None, strongest=500.0, seed=0, **changes):
    """A rehearsal with numbers of chance, of the attacks that there are and more of the same if they are too few."""
    chance, rows = random.Random(seed), []
    names = ["nothing", *(name for name in ATTACKS if name != "nothing")]
    names += [f"more-{number}" for number in range((n_attacks or 0) - len(names))]
    for name in names[:n_attacks]:
        attack = attack_named(name if name in ATTACKS else "argmax")
        lost = 0.0 if name == "nothing" else round(chance.choice([chance.gauss(0.2, 0.4), chance.expovariate(0.1)]), 3)
        log = -strongest if name == "nothing" else -round(strongest * chance.random() ** 3, 3)
        positive = log / 3 < -3.0
        verdict = (
            ("framed" if positive else "cleared") if attack.stage == "forgery" else "found" if log < -3 else "escaped"
        )
        numbers = {"accuracy": 84.0 - lost, "lost": lost, "log10_log": log, "log10_unseen": log / 3}
        z_scores = {"z_log": math.sqrt(-4.6 * log), "z_unseen": math.sqrt(-1.5 * log)}
        about = {"title": attack.title, "stage": attack.stage, "needs": attack.needs, "gold": attack.gold}
        rows.append(RehearsalRow(attack=name, verdict=verdict, asked=3000, **about, **numbers, **z_scores))
    innocent = RehearsalRow(
        "innocent", "Learns from right labels alone", "innocent", "", "cleared", 83, 1, -0.1, 0, 0, 0
    )
    order = list(STAGE_TITLES)
    rows.sort(key=lambda row: (row.attack != "nothing", order.index(row.stage), row.attack))
    settings = {
        "key": "0123456789abcdef",
        "label_kind": "soft",
        "task": TASK,
        "rows": {"queries": 3000, "unseen": 1000},
    }
    fields = {
        "rows": tuple(rows),
        "innocent": innocent,
        "victim": 86.0,
        "served": 85.8,
        "measured": "accuracy",
        "left_out": {"floor": "of two scores it leaves the argmax, which is another attack"},
        "level": 1e-3,
        "settings": settings,
    }
    return Rehearsal(**{**fields, **changes})
