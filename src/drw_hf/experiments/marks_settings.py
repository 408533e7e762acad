"""What the experiments with marks are made of: tasks, models, and who gets which rows.

Pure but for reading the data; the numbers are in ``data/marks.toml``.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from ..errors import DatasetError
from . import read_table
from .profiles import Encoder, Training
from .tasks import TASKS, Corpus, Task, read_corpus

SEEDS = (1, 2, 3)  # of students, and of the keys that they are tested with
BUDGET = 0.3  # points of accuracy that the mark may cost
PARTS = ("victim", "queries", "calibration", "unseen", "others")


@dataclass(frozen=True, eq=False)
class Setting:
    """A task with its models.

    ``rows`` says how many rows each of `PARTS` gets; :func:`split` says where the others come from. ``attacked`` are
    the seeds for which every thief and innocent is trained; soft and hard students are trained for all of `SEEDS`.
    """

    name: str
    title: str
    task: Task
    encoder: Encoder
    student_width: int | None
    rows: dict[str, int]
    victim: Training
    student: Training
    attacked: tuple[int, ...] = SEEDS

    def described(self) -> dict[str, Any]:
        """What results depend on, as a run's first line keeps it."""
        described = dataclasses.asdict(self)
        described["encoder"]["pretrained"] = self.encoder.pretrained is not None  # not where it lies
        return {**described, "task": self.task.title, "attacked": list(self.attacked)}


def load_settings(encoder: str | None = None) -> dict[str, Setting]:
    """All settings; those with a pretrained encoder only where one is given."""
    found = read_table("marks")
    tasks = dict(TASKS)
    for name, fields in found["tasks"].items():
        tasks[name] = Task(**{**fields, "columns": tuple(fields["columns"]), "labels": tuple(fields["labels"])})
    settings = {}
    for name, fields in found["settings"].items():
        model = dict(found["models"][fields.pop("model")])
        width = model.pop("student_width", None)
        if width is None and encoder is None:
            continue
        settings[name] = Setting(
            name=name,
            title=fields["title"],
            task=tasks[fields["task"]],
            encoder=Encoder(**model, pretrained=encoder if width is None else None),
            student_width=width,
            rows=fields["rows"],
            victim=Training(**fields["victim"]),
            student=Training(**fields["student"]),
            attacked=tuple(fields.get("attacked", SEEDS)),
        )
    return settings


def setting_titles() -> dict[str, str]:
    """What tables call the settings, by their names."""
    return {name: setting.title for name, setting in load_settings(encoder="any").items()}


# -- rows


@dataclass(frozen=True)
class Parts:
    """The rows of a setting, disjoint by their texts but for ``others``.

    ``victim`` trains the victim, ``queries`` are the thief's; on ``calibration`` temperature and strength are chosen;
    ``unseen`` is probed, and accuracy is measured there; ``others`` is what the second generation asks about.
    """

    corpus: Corpus
    victim: Dataset
    queries: Dataset
    calibration: Dataset
    unseen: Dataset
    others: Dataset

    def evaluated_on(self, part: str) -> Corpus:
        """The corpus with a part in the place of its evaluation split."""
        return dataclasses.replace(self.corpus, train=self.victim, evaluation=getattr(self, part))


@functools.cache
def read_parts(setting: Setting, data: str) -> Parts:
    """The rows of a setting, from a folder of data sets."""
    return split(read_corpus(setting.task, data), setting.rows)


def split(corpus: Corpus, rows: dict[str, int], seed: int = 0) -> Parts:
    """Deal out the training rows, shuffled and each text once, to the parts that name a number.

    Whatever is left of the training rows, the validation and the evaluation split are then mixed: they may be of
    different times or topics, and a strength is right for text like that which it was chosen on. A part without a
    number gets: calibration as many of these as the validation split has, unseen all others, and ``others`` the texts
    of the calibration.
    """
    order = np.random.default_rng(seed).permutation(len(corpus.train))
    seen: set[str] = set()
    train = _new_texts(corpus.train.select(order), corpus, seen)
    if sum(rows.values()) > len(train):
        raise DatasetError(
            f"{corpus.task.title}: the training split has {len(train)} different texts, {sum(rows.values())} are "
            "wanted; give the whole data set"
        )
    parts, first = {}, 0
    for part in PARTS:
        if part in rows:
            parts[part] = train.select(range(first, first + rows[part]))
            first += rows[part]
    left = [_new_texts(rows, corpus, seen) for rows in (corpus.validation, corpus.evaluation)]
    mixed = concatenate_datasets([train.select(range(first, len(train))), *left]).shuffle(seed)
    n_calibration = 0 if "calibration" in parts else len(left[0])
    parts.setdefault("calibration", mixed.select(range(n_calibration)))
    parts.setdefault("unseen", mixed.select(range(n_calibration, len(mixed))))
    parts.setdefault("others", parts["calibration"])
    return Parts(corpus, **parts)


def _new_texts(rows: Dataset, corpus: Corpus, seen: set[str]) -> Dataset:
    """The rows whose text was not seen before, which now is; tokenizers may ignore case, so this does."""
    kept = []
    texts: Iterable[Any] = zip(*(rows[column] for column in corpus.task.columns), strict=True)
    for number, row in enumerate(texts):
        text = json.dumps(row).lower()
        if text not in seen:
            seen.add(text)
            kept.append(number)
    return rows.select(kept)
