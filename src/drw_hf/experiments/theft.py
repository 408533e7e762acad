"""A small real theft: a trained victim, students of its answers, innocent models.

Everything is trained from scratch (or from a pretrained encoder, where one is given) with the package's own trainers,
on the package's own corpus, in seconds.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from datasets import Dataset
from transformers import (
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)

from ..asking.models import PLAIN, PROTECTED
from ..asking.questions import find_gold_column, find_text_columns
from ..checks import class_numbers, numbers_of
from ..detection.probing import Probe, probe_suspect
from ..extraction import DistillationArguments, DistillationTrainer
from ..extraction.preparation import Layout, lay_out
from ..keys import KeyRing, WatermarkKey
from ..keys.binding import labels_of, max_length_of
from ..keys.choices import LabelKind, Task
from .corpus import SENTIMENTS, TAGS, make_sentiment_corpus, make_tagging_corpus, make_tokenizer
from .profiles import Encoder

N_TRAIN, N_UNSEEN = 2500, 1500
MAX_LENGTH = 64  # tokens; no sentence of the corpus is as long


class Corpus(NamedTuple):
    """The text of a task: who writes it, its column, its labels, and the class that carries the mark."""

    make: Callable[[int], list[dict[str, Any]]]
    column: str
    labels: tuple[str, ...]
    target: str


CORPORA: dict[Task, Corpus] = {
    "token-classification": Corpus(make_tagging_corpus, "tokens", TAGS, "NNP"),
    "sequence-classification": Corpus(make_sentiment_corpus, "text", SENTIMENTS, "negative"),
}


@dataclass(frozen=True)
class Theft:
    """Who is in it."""

    task: Task
    tokenizer: Any
    victim: Any  # the clean model
    queries: Dataset  # what the thief asked, and the victim was trained on
    unseen: Dataset

    def key(self, **settings: Any) -> WatermarkKey:
        usual = {"tokenizer": self.tokenizer, "target": CORPORA[self.task].target, "secret": bytes(range(32))}
        return WatermarkKey.generate(self.victim, **{**usual, **settings})

    def protected(self, key: WatermarkKey | KeyRing, label_kind: LabelKind = "soft", **options: Any) -> Any:
        """The victim as it is served."""
        return PROTECTED[self.task].from_model(self.victim, key=key, label_kind=label_kind, **options)

    def asked(self, rows: Dataset) -> Dataset:
        """Rows without their labels."""
        return rows.select_columns([CORPORA[self.task].column])

    def new_text(self, n_rows: int) -> Dataset:
        """So many rows more, which nobody was trained on."""
        known = len(self.queries) + len(self.unseen)
        return Dataset.from_list(CORPORA[self.task].make(known + n_rows)[known:])

    def text(self, rows: Dataset) -> list[Any]:
        return rows[CORPORA[self.task].column][:]

    def probe(self, suspect: Any, rows: Dataset, key: WatermarkKey, folder: Any, **options: Any) -> Probe:
        """What a suspect and the clean victim answer to rows."""
        usual = {"key": key, "tokenizer": self.tokenizer, "victim": self.victim}
        return probe_suspect(suspect, self.text(rows), cache_dir=folder, progress=False, **usual, **options)


def small_bert(
    task: Task,
    vocab_size: int,
    seed: int,
    width: int = 64,
    labels: Sequence[str] | None = None,
    max_length: int = MAX_LENGTH,
) -> torch.nn.Module:
    """Two layers from scratch; ``labels`` are the corpus's unless given."""
    torch.manual_seed(seed)
    shape = Encoder(layers=2, width=width, heads=2, vocabulary=vocab_size, max_length=max_length)
    return PLAIN[task].from_config(shape.config(CORPORA[task].labels if labels is None else labels))


def pretrained_model(task: Task, path: str, seed: int, labels: Sequence[str] | None = None) -> torch.nn.Module:
    """A pretrained encoder with a fresh head; ``labels`` are the corpus's unless given."""
    torch.manual_seed(seed)
    labels = CORPORA[task].labels if labels is None else labels
    names: dict[str, Any] = {"id2label": dict(enumerate(labels)), "label2id": numbers_of(labels)}
    return PLAIN[task].from_pretrained(path, dtype=torch.float32, **names)


def training(folder: Any, epochs: int, arguments: type = TrainingArguments, **settings: Any) -> Any:
    """The training arguments that everybody in the theft uses."""
    defaults = {
        "num_train_epochs": epochs,
        "per_device_train_batch_size": 32,
        "learning_rate": 3e-3,
        "optim": "adamw_torch_fused",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "seed": 1,
    }
    return arguments(str(folder), **{**defaults, **settings})


def train_on_gold(
    task: Task,
    tokenizer: Any,
    rows: Dataset,
    folder: Any,
    seed: int,
    epochs: int,
    model: torch.nn.Module | None = None,
    max_length: int = MAX_LENGTH,
    best_on: Dataset | None = None,
    **settings: Any,
) -> torch.nn.Module:
    """A victim, or an innocent model, from rows with a text (or two, or words) and the right labels.

    With ``best_on``, rows like the others, the weights of the epoch with the least loss on them are kept; without, the
    last epoch's. ``settings`` are those of TrainingArguments.
    """
    model = small_bert(task, len(tokenizer), seed) if model is None else model
    gold = find_gold_column(rows.column_names, task)
    layout = Layout(
        task=task,
        tokenizer=tokenizer,
        max_length=min(max_length, max_length_of(tokenizer, model.config)),
        columns=tuple(find_text_columns(rows.column_names, task)),
        gold=gold,
        gold_numbers=class_numbers(None, labels_of(model.config), "gold"),
    )
    laid_out = functools.partial(lay_out, layout=layout)
    encoded, held_out = (
        part and part.map(laid_out, batched=True, remove_columns=part.column_names) for part in (rows, best_on)
    )
    collator = DataCollatorForTokenClassification if task == "token-classification" else DataCollatorWithPadding
    if held_out is not None:
        settings |= {"eval_strategy": "epoch", "save_strategy": "epoch", "save_total_limit": 1}
        settings |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    arguments = training(folder, epochs, seed=seed, **settings)
    trainer = Trainer(
        model, arguments, train_dataset=encoded, eval_dataset=held_out, data_collator=collator(tokenizer)
    )
    return _train(trainer, model)


def distil(
    student: torch.nn.Module,
    tokenizer: Any,
    rows: Dataset,
    folder: Any,
    epochs: int,
    teacher: Any = None,
    teacher_tokenizer: Any = None,
    **settings: Any,
) -> torch.nn.Module:
    """A student of answers that `label_with_teacher` kept, or of a teacher that is asked about the rows.

    ``settings`` are those of DistillationArguments.
    """
    trainer = DistillationTrainer(
        student,
        training(folder, epochs, DistillationArguments, **settings),
        teacher,
        rows,
        processing_class=tokenizer,
        teacher_tokenizer=teacher_tokenizer,
    )
    return _train(trainer, student)


def _train(trainer: Trainer, model: torch.nn.Module) -> torch.nn.Module:
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return model.eval()


def steal(
    theft: Theft, teacher: Any, folder: Any, seed: int = 7, epochs: int = 8, tokenizer: Any = None, **settings: Any
) -> torch.nn.Module:
    """A student of the teacher's answers to the thief's queries."""
    own = tokenizer or theft.tokenizer
    student = small_bert(theft.task, len(own), seed, labels=labels_of(theft.victim.config))
    asking = {"teacher": teacher, "teacher_tokenizer": theft.tokenizer}
    return distil(student, own, theft.asked(theft.queries), folder, epochs, **asking, **{"seed": seed, **settings})


@functools.cache
def make_theft(task: Task, folder: str) -> Theft:
    """The victim and its texts."""
    rows = Dataset.from_list(CORPORA[task].make(N_TRAIN + N_UNSEEN))
    tokenizer = make_tokenizer()
    queries, unseen = rows.select(range(N_TRAIN)), rows.select(range(N_TRAIN, N_TRAIN + N_UNSEEN))
    victim = train_on_gold(task, tokenizer, queries, folder, seed=0, epochs=4)
    return Theft(task, tokenizer, victim, queries, unseen)
