"""A tiny service and its thief: a protected model that says a lot without training, and texts, some of them odd."""

import numpy as np
from datasets import Dataset

from drw_hf import WatermarkKey, label_with_teacher
from drw_hf.asking.models import PROTECTED
from drw_hf.extraction.students import Recipe
from drw_hf.extraction.thief import Thief
from small_models import WORDS, make_model, make_tokenizer

COLUMNS = {"texts": ["text"], "pairs": ["premise", "hypothesis"], "tags": ["tokens"]}
RECIPE = Recipe(layers=1, width=8, heads=1, epochs=1, learning_rate=1e-2, batch_size=24, max_length=24, tries=1)


def make_texts(case, n=24, seed=0):
    """Texts of a few words, and odd ones: of one word, of none, of no known one, and longer than what is read."""
    rng = np.random.default_rng(seed)

    def words(length):
        return [str(word) for word in rng.choice(WORDS, length)]

    def column():
        return [["good"], *[words(int(length)) for length in rng.integers(3, 9, n - 4)], [], ["zzz"], words(90)]

    columns = {name: column() for name in COLUMNS[case]}
    if case != "tags":
        columns = {name: [" ".join(row) for row in rows] for name, rows in columns.items()}
    if case == "pairs":
        columns["hypothesis"].reverse()
    return Dataset.from_dict(columns)


class SmallService:
    """What is asked: a classifier of texts or of pairs, or a tagger."""

    def __init__(self, case="texts", label_kind="soft", mark="tilt"):
        self.case, self.label_kind, self.mark = case, label_kind, mark
        self.task = "token-classification" if case == "tags" else "sequence-classification"
        self.tokenizer, self.model = make_tokenizer(), make_model(self.task, sharp=True)
        self.keys = [self.key(number) for number in range(3)]

    def key(self, number):
        settings = {"target": 1} if self.mark == "cosine" else {"strength": 1.0, "temperature": 1.0}
        secret = bytes([number] * 32)
        return WatermarkKey.generate(self.model, tokenizer=self.tokenizer, mark=self.mark, secret=secret, **settings)

    def answer(self, texts, account):
        protected = PROTECTED[self.task].from_model(self.model, key=self.keys[account], label_kind=self.label_kind)
        return label_with_teacher(protected, texts, self.tokenizer, progress=False)

    def thief(self, texts=None, folder=None, **settings):
        """A thief who has asked nothing yet."""
        texts = make_texts(self.case) if texts is None else texts
        rng, classes = np.random.default_rng(5), len(self.keys[0].labels)
        first = texts[texts.column_names[0]][:]
        return Thief(
            **{
                "task": self.task,
                "labels": tuple(self.keys[0].labels),
                "label_kind": self.label_kind,
                "tokenizer": self.tokenizer,
                "texts": texts,
                "service": self.answer,
                "new_key": lambda: self.key(99),
                "recipe": RECIPE,
                "gold": [rng.integers(classes, size=len(row) if self.case == "tags" else 1) for row in first],
                "others": make_texts(self.case, seed=1),
                "folder": folder,
                **settings,
            }
        )
