"""Who is robbed, and of what texts: a small model of our own, or a model and texts of the user's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np

from ..asking.data import check_columns, load_any
from ..asking.labelling import LABELS, label_with_teacher
from ..asking.models import load_config, load_model, load_tokenizer
from ..asking.options import AskingOptions
from ..asking.questions import find_gold_column, find_text_columns, questions_of
from ..checks import class_numbers, label_number
from ..errors import ConfigurationError, DatasetError, UnsupportedModelError
from ..experiments.corpus import SENTIMENTS, TAGS, make_sentiment_corpus, make_tagging_corpus, make_tokenizer
from ..experiments.theft import small_bert, train_on_gold
from ..keys.binding import labels_of, task_of
from ..keys.choices import Task
from ..keys.settings import PAPERS_MARK
from ..watermark import WatermarkedConfig
from .story import TOKEN

if TYPE_CHECKING:
    from .play import Stages

ROWS = {"victim": 2500, "pricing": 1500, "queries": 4000, "innocent": 2500, "probes": 1500}  # of the corpus
LIMIT = 2000  # rows of each kind, of a data set
VICTIM_EPOCHS = 4
MAX_LENGTH = 128  # tokens after which texts of a data set are cut
HELD_OUT = ("validation", "test", "dev", "eval")  # the Hub's test splits may hide their labels


@dataclass(frozen=True)
class Scene:
    """Who is robbed, and of what texts.

    Rows hold ``tokens`` and ``tags``, or ``text`` (``text_a`` and ``text_b`` for pairs) and ``label``; labels are the
    victim's class numbers, negative where there is none.
    """

    task: Task
    tokenizer: Any
    victim: Any  # the clean model
    target: str | None  # the class that carries the paper's mark; None for the mark tilt, which every class carries
    pricing: datasets.Dataset  # the owner's own, by which he chooses how strong the mark is
    queries: datasets.Dataset  # what the thief asks; it has no right labels for them
    schooling: datasets.Dataset  # what the innocent model learns from
    probes: datasets.Dataset  # what nobody was trained on
    work: str  # folder for what is not kept
    source: dict[str, Any]  # whose model and data, for demo.json
    student: str | None = None  # where students and the innocent model start from; by default, from nothing

    @property
    def gold(self) -> str:
        """The column of right labels."""
        return "tags" if self.task == TOKEN else "label"

    @property
    def asked(self) -> datasets.Dataset:
        """What suspects are probed with.

        A tagger shows its mark on any text. A sentence classifier shows it on the texts that taught it, and those the
        owner has: the service answered them.
        """
        return self.probes if self.task == TOKEN else self.queries


def asking_options(work: str, max_length: int | None = MAX_LENGTH) -> AskingOptions:
    """How everybody in a demo is asked."""
    return {"max_length": max_length, "batch_size": 64, "cache_dir": work, "progress": False}


def corpus_scene(task: Task, work: str, stages: "Stages", *, mark: str, limit: int | None, seed: int) -> Scene:
    """A tagger or classifier of the package's own corpus, trained on the spot."""
    sizes = {part: min(size, limit or size) for part, size in ROWS.items()}
    total = sum(sizes.values())
    if task == TOKEN:
        kind, labels, target = "part-of-speech tagger", TAGS, "NNP"
        made = [
            {"tokens": row["tokens"], "tags": [TAGS.index(tag) for tag in row["tags"]]}
            for row in make_tagging_corpus(total, seed)
        ]
    else:
        kind, labels, target = "sentiment classifier", SENTIMENTS, "negative"
        made = make_sentiment_corpus(total, seed)
    rows, ends = datasets.Dataset.from_list(made), np.cumsum(list(sizes.values()))
    parts = {part: rows.select(range(end - sizes[part], end)) for part, end in zip(sizes, ends, strict=True)}
    tokenizer = make_tokenizer(seed)
    with stages.stage("victim", f"Training the victim, a {kind}, on {sizes['victim']:,} sentences"):
        victim = small_bert(task, len(tokenizer), seed, labels=labels)
        train_on_gold(task, tokenizer, parts["victim"], work, seed, VICTIM_EPOCHS, victim)
    source = {"model": None, "dataset": None, "victim": f"A small {kind}, trained on {sizes['victim']:,} sentences,"}
    texts = parts["pricing"], parts["queries"], parts["innocent"], parts["probes"]
    return Scene(task, tokenizer, victim, target if mark == PAPERS_MARK else None, *texts, work, source)


@dataclass(frozen=True)
class OwnTexts:
    """Texts of the user's and their right labels."""

    name: str  # a file, a folder or a Hub id
    subset: str | None = None
    text_columns: list[str] | None = None
    label_column: str | None = None
    limit: int = LIMIT


def own_scene(
    model: str,
    texts: OwnTexts,
    work: str,
    *,
    mark: str,
    task: Task | None = None,
    student: str | None = None,
    seed: int = 0,
) -> Scene:
    """A trained model and texts from folders or the Hub."""
    config = load_config(model)
    if isinstance(config, WatermarkedConfig):
        raise UnsupportedModelError(f"the model in {model} is protected already; the demo protects a plain one")
    own = task_of(config)
    if own is None and config.architectures:
        raise UnsupportedModelError(
            f"the model in {model} is a {config.architectures[0]}; the demo needs a trained classifier or tagger"
        )
    if task and own and task != own:
        raise ConfigurationError(f"the model in {model} is for {own}; leave out --task, or name a model for {task}")
    victim = load_model(model, task=task).eval()
    task, labels, tokenizer = task_of(victim), labels_of(victim.config), load_tokenizer(model)
    assert task is not None  # it was loaded as a classifier or a tagger
    if tokenizer.pad_token is None:
        raise UnsupportedModelError(f"the tokenizer in {model} has no padding token; set one and save it")
    train, held_out = (
        plain_rows(rows.shuffle(seed).select(range(min(len(rows), 2 * texts.limit))), texts, task, labels)
        for rows in two_parts(texts, seed)
    )
    (queries, schooling), (pricing, probes) = halves(train), halves(held_out)
    target = None
    if mark == PAPERS_MARK:
        answers = label_with_teacher(victim, queries, tokenizer, **asking_options(work))
        target = most_predicted(answers[LABELS][:], labels)
    source = {"model": model, "dataset": texts.name, "victim": f"The model in {model}"}
    return Scene(task, tokenizer, victim, target, pricing, queries, schooling, probes, work, source, student)


def halves(rows: datasets.Dataset) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The first half of the rows, and the second."""
    half = len(rows) // 2
    return rows.select(range(half)), rows.select(range(half, len(rows)))


def two_parts(texts: OwnTexts, seed: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The rows to train on and those to keep apart: two splits, or one divided."""
    found, name = load_any(texts.name, texts.subset), texts.name
    splits = found if isinstance(found, datasets.DatasetDict) else {"all": found}
    if len(splits) > 1:
        first = "train" if "train" in found else next(iter(found))
        second = next((split for split in HELD_OUT if split in found and split != first), None)
        if second is None:
            raise DatasetError(f"{name} has the splits {list(found)}; expected 'train' and one of {list(HELD_OUT)}")
        return found[first], found[second]
    (rows,) = splits.values()
    if len(rows) < 3:
        raise DatasetError(f"{name} holds {len(rows)} rows; the demo needs some hundreds")
    parts = rows.train_test_split(test_size=0.3, seed=seed)
    return parts["train"], parts["test"]


def plain_rows(rows: datasets.Dataset, texts: OwnTexts, task: Task, labels: Sequence[str]) -> datasets.Dataset:
    """Rows in the form that :class:`Scene` tells, in memory."""
    name, names = texts.name, rows.column_names
    check_columns(rows, name, task, texts.text_columns)
    columns = find_text_columns(names, task, texts.text_columns)
    if columns[0] == "input_ids":
        raise DatasetError(f"{name} holds token ids; the demo needs the texts, in a column that --text-column names")
    if texts.label_column is not None and texts.label_column not in names:
        raise DatasetError(f"--label-column {texts.label_column}: {name} has the columns {names}")
    gold = find_gold_column(names, task, texts.label_column)
    if gold is None:
        raise DatasetError(f"{name} has the columns {names}; name the right labels with --label-column")
    known = class_numbers(rows.features[gold], labels, gold)
    made: list[dict[str, Any]] = []
    for place, (question, right) in enumerate(
        zip(questions_of(rows.select_columns(columns).to_dict(), columns), rows[gold][:], strict=True)
    ):
        if not all(question or [None]):  # nothing to ask
            continue
        where = f"row {place} of the column {gold!r}"
        if task == TOKEN:
            if not isinstance(question, list) or not isinstance(right, list) or len(question) != len(right):
                raise DatasetError(f"row {place} of {name}: expected a list of words and one label for each word")
            made.append({"tokens": question, "tags": [label_number(label, known, where) for label in right]})
        else:
            asked = dict(zip(("text_a", "text_b"), question, strict=True)) if len(columns) == 2 else {"text": question}
            made.append({**asked, "label": label_number(right, known, where)})
    if not made:
        raise DatasetError(f"{name} holds no rows with text")
    return datasets.Dataset.from_list(made)


def most_predicted(answers: Sequence[Any], labels: Sequence[str]) -> str:
    """The class that the clean model answers most often, a tagger's "O" aside: more answers, more to mark."""
    numbers = np.concatenate([np.atleast_1d(answer) for answer in answers])
    counts = np.bincount(numbers[numbers >= 0], minlength=len(labels))
    return labels[max(range(len(labels)), key=lambda number: 0 if labels[number] == "O" else counts[number])]
