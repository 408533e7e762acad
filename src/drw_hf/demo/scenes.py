"""Who is robbed, and of what texts: a small model of our own, or a model and texts of the user's."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import datasets
import numpy as np

from ..asking.data import check_columns, load_any
from ..asking.labelling import LABELS, label_with_teacher
from ..asking.models import load_config, load_model, load_tokenizer
from ..asking.questions import find_gold_column, find_text_columns, questions_of
from ..errors import ConfigurationError, DatasetError, UnsupportedModelError
from ..experiments.corpus import SENTIMENTS, TAGS, make_sentiment_corpus, make_tagging_corpus, make_tokenizer
from ..experiments.theft import small_bert, train_on_gold
from ..keys.binding import labels_of, task_of
from ..keys.choices import Task
from ..planning.accuracy import class_number, class_numbers
from ..watermark import WatermarkedConfig
from .stages import Stages
from .story import TOKEN

ROWS = {"victim": 2500, "queries": 4000, "innocent": 2500, "probes": 1500}  # of the corpus
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
    target: str
    queries: datasets.Dataset  # what the thief asks; it has no right labels for them
    schooling: datasets.Dataset  # what the innocent model learns from
    probes: datasets.Dataset  # what nobody was trained on
    student: str | None = None  # where students and the innocent model start from; by default, from nothing
    max_length: int = MAX_LENGTH
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> datasets.Dataset:
        """What suspects are probed with.

        A tagger shows its mark on any text. A sentence classifier shows it on the texts that taught it, and those the
        owner has: the service answered them.
        """
        return self.probes if self.task == TOKEN else self.queries


def corpus_scene(task: Task, work: str, stages: Stages, *, limit: int | None, seed: int) -> Scene:
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
    rows, parts, start = datasets.Dataset.from_list(made), {}, 0
    for part, size in sizes.items():
        parts[part] = rows.select(range(start, start + size))
        start += size
    tokenizer = make_tokenizer(seed)
    with stages.stage("victim", f"Training the victim, a {kind}, on {sizes['victim']:,} sentences"):
        victim = small_bert(task, len(tokenizer), seed, labels=labels)
        train_on_gold(task, tokenizer, parts["victim"], work, seed, VICTIM_EPOCHS, victim)
    source = {"model": None, "dataset": None, "victim": f"A small {kind}, trained on {sizes['victim']:,} sentences,"}
    return Scene(task, tokenizer, victim, target, parts["queries"], parts["innocent"], parts["probes"], source=source)


def own_scene(
    model: str,
    dataset: str,
    work: str,
    *,
    subset: str | None = None,
    task: Task | None = None,
    student: str | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    limit: int | None = None,
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
    train, held_out = two_parts(load_any(dataset, subset), dataset, seed)
    limit = limit or LIMIT
    train = train.shuffle(seed).select(range(min(len(train), 2 * limit)))
    held_out = held_out.shuffle(seed).select(range(min(len(held_out), limit)))
    train, held_out = (
        plain_rows(rows, dataset, task, labels, text_columns, label_column) for rows in (train, held_out)
    )
    half = len(train) // 2
    queries, schooling = train.select(range(half)), train.select(range(half, len(train)))
    answers = label_with_teacher(
        victim, queries, tokenizer, cache_dir=work, max_length=MAX_LENGTH, batch_size=64, progress=False
    )
    return Scene(
        task=task,
        tokenizer=tokenizer,
        victim=victim,
        target=most_predicted(answers[LABELS][:], labels),
        queries=queries,
        schooling=schooling,
        probes=held_out,
        student=student,
        source={"model": model, "dataset": dataset, "victim": f"The model in {model}"},
    )


def two_parts(found: Any, name: str, seed: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The rows to train on and those to keep apart: two splits, or one divided."""
    if isinstance(found, datasets.DatasetDict) and len(found) > 1:
        first = "train" if "train" in found else next(iter(found))
        second = next((split for split in HELD_OUT if split in found and split != first), None)
        if second is None:
            raise DatasetError(f"{name} has the splits {list(found)}; expected 'train' and one of {list(HELD_OUT)}")
        return found[first], found[second]
    rows = next(iter(found.values())) if isinstance(found, datasets.DatasetDict) else found
    if len(rows) < 3:
        raise DatasetError(f"{name} holds {len(rows)} rows; the demo needs some hundreds")
    parts = rows.train_test_split(test_size=0.3, seed=seed)
    return parts["train"], parts["test"]


def plain_rows(
    rows: datasets.Dataset,
    name: str,
    task: Task,
    labels: Sequence[str],
    text_columns: list[str] | None,
    label_column: str | None,
) -> datasets.Dataset:
    """Rows in the form that :class:`Scene` tells, in memory."""
    check_columns(rows, name, task, text_columns)
    columns = find_text_columns(rows.column_names, task, text_columns)
    if columns[0] == "input_ids":
        raise DatasetError(f"{name} holds token ids; the demo needs the texts, in a column that --text-column names")
    if label_column is not None and label_column not in rows.column_names:
        raise DatasetError(f"--label-column {label_column}: {name} has the columns {rows.column_names}")
    gold = find_gold_column(rows.column_names, task, label_column)
    if gold is None:
        raise DatasetError(f"{name} has the columns {rows.column_names}; name the right labels with --label-column")
    numbers = class_numbers(rows.features[gold], labels, gold)
    made = []
    for place, (question, right) in enumerate(
        zip(questions_of(rows.select_columns(columns).to_dict(), columns), rows[gold][:], strict=True)
    ):
        if not all(question or [None]):  # nothing to ask
            continue
        if task == TOKEN:
            if not isinstance(question, list) or not isinstance(right, list) or len(question) != len(right):
                raise DatasetError(f"row {place} of {name}: expected a list of words and one label for every word")
            tags = [class_number(label, numbers, gold, place) for label in right]
            made.append({"tokens": question, "tags": tags})
        else:
            asked = dict(zip(("text_a", "text_b"), question, strict=True)) if len(columns) == 2 else {"text": question}
            made.append({**asked, "label": class_number(right, numbers, gold, place)})
    if not made:
        raise DatasetError(f"{name} holds no rows with text")
    return datasets.Dataset.from_list(made)


def most_predicted(answers: Sequence[Any], labels: Sequence[str]) -> str:
    """The class that the clean model answers most often, a tagger's "O" aside: more answers, more to mark."""
    numbers = np.concatenate([np.atleast_1d(answer) for answer in answers])
    counts = Counter(labels[number] for number in numbers if number >= 0 and labels[number] != "O")
    return counts.most_common(1)[0][0] if counts else labels[0]
