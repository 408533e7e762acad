"""What distilling costs: a step over the plain Trainer's, labelling over a bare loop, an epoch over the paper's."""

import random
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import DataCollatorForTokenClassification, PreTrainedTokenizerFast, Trainer, TrainingArguments

from drw_hf import (
    DistillationArguments,
    DistillationTrainer,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
    label_with_teacher,
)
from drw_hf.asking.labelling import _batches
from drw_hf.asking.predictors import as_predictor

from .measure import Row, interleaved, milliseconds, ratio
from .protection import BATCH, LENGTH, VOCABULARY, bert

TASK = "token-classification"


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = {word: index for index, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])}
    words |= {f"w{index}": index for index in range(4, VOCABULARY)}
    backend = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def sentences(n_rows: int, model: Any, fixed: bool = False) -> Dataset:
    """Random words; lengths as in news text, or all of them full."""
    rng = random.Random(0)
    lengths = [LENGTH - 2 if fixed else rng.randint(5, LENGTH - 2) for _ in range(n_rows)]
    tokens = [[f"w{rng.randrange(1000, VOCABULARY)}" for _ in range(length)] for length in lengths]
    labels = list(model.config.id2label.values())
    return Dataset.from_dict({"tokens": tokens, "tags": [[rng.choice(labels) for _ in row] for row in tokens]})


def protected(label_kind: str = "soft") -> Any:
    """The teacher."""
    model = bert(TASK)
    key = WatermarkKey.generate(model, target=0, special_token_ids=[0, 1, 2, 3], scope="all")
    return WatermarkedModelForTokenClassification.from_model(model, key=key, label_kind=label_kind).eval()


def step_of(trainer: Trainer) -> Callable[[], object]:
    """One training step as Trainer does it: fetch, count, forward, backward."""
    trainer.create_optimizer()

    def batches():
        while True:
            yield from trainer.get_train_dataloader()

    stream = batches()

    def step() -> None:
        samples, n_items = trainer.get_batch_samples(stream, 1, trainer.args.device)
        trainer.training_step(trainer.model, samples[0], n_items)
        trainer.optimizer.step()
        trainer.model.zero_grad()

    return step


def trainers(folder: str) -> tuple[dict[str, Trainer], Any, Any]:
    """The plain Trainer on gold labels, and ours on kept and on fresh answers; same rows, same order."""
    teacher, tok = protected(), tokenizer()
    rows = sentences(BATCH * 8, teacher.get_base_model(), fixed=True)
    common = {"per_device_train_batch_size": BATCH, "use_cpu": True, "report_to": [], "disable_tqdm": True, "seed": 0}

    def plain_row(row: dict) -> dict:
        encoding = tok(row["tokens"], is_split_into_words=True)
        labels = [teacher.config.label2id[tag] for tag in row["tags"]]
        return {**encoding, "labels": [-100, *labels, -100]}

    made: dict[str, Trainer] = {
        "plain": Trainer(
            bert(TASK),
            TrainingArguments(folder, **common),
            train_dataset=rows.map(plain_row, remove_columns=rows.column_names),
            data_collator=DataCollatorForTokenClassification(tok),
        )
    }
    for name, requery in (("cached", False), ("online", True)):
        arguments = DistillationArguments(folder, requery=requery, **common)
        made[name] = DistillationTrainer(bert(TASK), arguments, teacher, rows, processing_class=tok)
    return made, teacher, rows


def bench_steps(rounds: int) -> list[Row]:
    """A training step with kept answers, and with a teacher that is asked in every step."""
    with tempfile.TemporaryDirectory() as folder:
        made, teacher, _ = trainers(folder)
        batch = next(iter(made["plain"].get_train_dataloader()))
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        calls = {name: step_of(trainer) for name, trainer in made.items()}
        calls["teacher"] = torch.no_grad()(lambda: teacher(**inputs))
        times = interleaved(calls, rounds)
    return [
        {
            "what": "distilling, a step with kept answers / a step of the plain Trainer",
            "ratio": ratio(times, "cached", "plain"),
            "limit": 1.02,
            "median_ms": milliseconds(times["cached"]),
        },
        {
            "what": "distilling, a step with an online teacher / (a plain step + the teacher's forward)",
            "ratio": ratio(times, "online", "plain", "teacher"),
            "limit": 1.05,
            "median_ms": milliseconds(times["online"]),
        },
    ]


def bench_labelling(rounds: int) -> list[Row]:
    """Rows labelled per second, over those of a bare forward loop on the same batches."""
    teacher, tok = protected(), tokenizer()
    rows = sentences(BATCH * 20, teacher.get_base_model()).remove_columns("tags")
    asked = as_predictor(teacher, tok)
    order = _batches(asked, rows, ["tokens"], list(range(len(rows))), BATCH)
    batches = [asked.encode(questions) for _, questions in order]

    @torch.no_grad()
    def bare() -> None:
        for batch in batches:
            teacher(**batch)

    with tempfile.TemporaryDirectory() as folder:
        times = interleaved(
            {
                "bare": bare,
                "label": lambda: label_with_teacher(
                    teacher, rows, tok, batch_size=BATCH, cache_dir=folder, load_from_cache_file=False, progress=False
                ),
            },
            rounds,
        )
    return [
        {
            "what": "label_with_teacher, rows per second / those of a bare forward loop on the same batches",
            "ratio": ratio(times, "bare", "label"),
            "least": 0.95,
            "median_ms": milliseconds(times["label"]),
        }
    ]


def bench_epoch(rounds: int) -> list[Row]:
    """An epoch on kept answers over one that asks anew and draws each label in a Python loop, as the paper's code."""
    with tempfile.TemporaryDirectory() as folder:
        made, teacher, rows = trainers(folder)
        step, plain = step_of(made["cached"]), made["plain"]
        n_steps = len(rows) // BATCH
        batches = list(plain.get_train_dataloader())

        def ours() -> None:
            for _ in range(n_steps):
                step()

        def papers() -> None:
            for batch in batches:
                with torch.no_grad():
                    y = (
                        teacher(**{k: v for k, v in batch.items() if k != "labels"})
                        .logits.double()
                        .softmax(-1)
                        .numpy()
                    )
                labels = batch["labels"].clone()
                for row, column in np.argwhere(labels.numpy() != -100):
                    labels[row, column] = int(np.random.choice(y.shape[-1], p=y[row, column] / y[row, column].sum()))
                plain.model.train()
                plain.model(**{**batch, "labels": labels}).loss.backward()
                plain.optimizer.step()
                plain.model.zero_grad()

        plain.create_optimizer()
        times = interleaved({"ours": ours, "papers": papers}, rounds)
    return [
        {
            "what": "distilling, an epoch on kept answers / an epoch that asks anew and draws labels in a Python loop",
            "ratio": ratio(times, "ours", "papers"),
            "median_ms": milliseconds(times["ours"]),
        }
    ]
