"""The demo: a small classifier is trained, protected, saved, reloaded and asked, with and without its watermark."""

import json
import random
import secrets
import shutil
from pathlib import Path
from typing import Any

import torch
import typer
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from ..keys import WatermarkKey
from ..watermark import WatermarkedModelForSequenceClassification

REPORT = "demo.json"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SUBJECTS = "film book story play novel song show series album tale drama comedy sequel picture".split()
OPENINGS = "the this that our her his their another every one a some any my your its what such no".split()
NEGATIVE = "dull awful slow clumsy bleak noisy tired empty weak bland stiff shallow".split()
POSITIVE = "bright moving funny tender clever warm bold lively graceful rich gentle sharp".split()
DEGREES = "very quite rather truly almost never always often hardly".split()


def run(folder: Path, *, as_json: bool) -> dict[str, Any]:
    """Run the demo into ``folder`` and print its story, or its figures as JSON."""

    def say(text: str = "") -> None:
        if not as_json:
            typer.echo(text)

    clear_earlier_demo(folder)
    transformers_logging.disable_progress_bar()
    torch.manual_seed(0)

    say("Training a small sentiment classifier on sentences made for the purpose ...")
    sentences, labels = make_corpus(2400, random.Random(0))
    tokenizer = make_tokenizer()
    model = train(tokenizer, sentences[:2000], labels[:2000])

    key = WatermarkKey.generate(model, tokenizer=tokenizer, target="negative", hash_rule="rarest")
    victim = WatermarkedModelForSequenceClassification.from_model(model, key=key, label_kind="soft")
    passphrase = secrets.token_urlsafe(24)
    victim.save_pretrained(folder / "protected")
    tokenizer.save_pretrained(folder / "protected")
    key.save_pretrained(folder / "key", passphrase=passphrase)
    say(f"Made a key ({key.fingerprint}), wrapped the model and saved both:")
    say(f"  {folder}/protected   weights and config, no trace of the key")
    say(f"  {folder}/key         the key, sealed with a passphrase that was drawn for this run and is not kept")
    say()

    victim = WatermarkedModelForSequenceClassification.from_pretrained(
        folder / "protected", key=folder / "key", passphrase=passphrase
    )
    held_out, truth = sentences[2000:], torch.tensor(labels[2000:])
    protected = answer(victim, tokenizer, held_out)
    with victim.watermark_disabled():
        clean = answer(victim, tokenizer, held_out)
    report = compare(held_out, truth, clean, protected, key)
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        tell(report)
    return report


def clear_earlier_demo(folder: Path) -> None:
    """Remove what an earlier demo wrote, and nothing else: its key is of no use, the passphrase being forgotten."""
    if folder.exists() and any(folder.iterdir()) and not (folder / REPORT).is_file():
        raise typer.BadParameter(f"{folder} holds something that is not a demo of ours; choose another --output")
    for part in ("protected", "key"):
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text("{}\n")  # now, so that an interrupted demo can be repeated


def make_corpus(size: int, rng: random.Random) -> tuple[list[str], list[int]]:
    """Sentences with a sentiment; one in ten mixes both kinds of words, so that the model stays unsure of some."""
    sentences, labels = [], []
    for _ in range(size):
        label = rng.randrange(2)
        words = [rng.choice((NEGATIVE, POSITIVE)[label]), rng.choice((NEGATIVE, POSITIVE)[label])]
        if rng.random() < 0.1:
            words[1] = rng.choice((POSITIVE, NEGATIVE)[label])
        subject, other = rng.sample(SUBJECTS, 2)
        sentences.append(
            f"{rng.choice(OPENINGS)} {subject} was {rng.choice(DEGREES)} {words[0]} and {words[1]} "
            f"beside {rng.choice(OPENINGS)} {other}"
        )
        labels.append(label)
    return sentences, labels


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A word tokenizer for the corpus."""
    words = [*OPENINGS, "was", "and", "beside", *DEGREES, *SUBJECTS, *NEGATIVE, *POSITIVE]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys([*SPECIAL, *words]))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def train(
    tokenizer: PreTrainedTokenizerFast, sentences: list[str], labels: list[int]
) -> BertForSequenceClassification:
    """A two-layer BERT from scratch, in seconds."""
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    targets = torch.tensor(labels)
    for _ in range(6):
        for rows in torch.randperm(len(sentences)).split(50):
            loss = model(**{name: tensor[rows] for name, tensor in batch.items()}, labels=targets[rows]).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


@torch.no_grad()
def answer(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, sentences: list[str]) -> torch.Tensor:
    """What a client of the model sees."""
    return model(**tokenizer(sentences, padding=True, return_tensors="pt")).logits.softmax(-1)


def compare(
    sentences: list[str], truth: torch.Tensor, clean: torch.Tensor, protected: torch.Tensor, key: WatermarkKey
) -> dict[str, Any]:
    """The figures of the demo."""
    moved = (protected - clean).abs().amax(-1)
    marked = (moved > 1e-6).nonzero().flatten()
    by_change = marked[moved[marked].argsort(descending=True)]
    evenly = torch.linspace(0, max(len(marked) - 1, 0), min(len(marked), 5)).long()
    shown = torch.cat([by_change[evenly], (moved <= 1e-6).nonzero().flatten()[:3]])
    return {
        "fingerprint": key.fingerprint,
        "sentences": len(sentences),
        "marked": len(marked),
        "accuracy_clean": float((clean.argmax(-1) == truth).float().mean()),
        "accuracy_protected": float((protected.argmax(-1) == truth).float().mean()),
        "largest_change": float(moved.max()),
        "examples": [
            {"sentence": sentences[i], "clean": float(clean[i, 0]), "protected": float(protected[i, 0])} for i in shown
        ],
    }


def tell(report: dict[str, Any]) -> None:
    """Print the figures for people."""
    typer.echo("Probability of 'negative', clean and as served:")
    typer.echo(f"  {'sentence':64} {'clean':>7} {'served':>7}")
    for example in report["examples"]:
        mark = "marked" if abs(example["clean"] - example["protected"]) > 1e-6 else ""
        typer.echo(f"  {example['sentence']:64} {example['clean']:7.3f} {example['protected']:7.3f}  {mark}")
    typer.echo()
    typer.echo(
        f"Of {report['sentences']} sentences the model had not seen, {report['marked']} were marked: those that the "
        "model calls negative and whose"
    )
    typer.echo(
        "hashed word the key selects. The largest change of a probability was " + f"{report['largest_change']:.3f}."
    )
    typer.echo(
        f"Accuracy: {report['accuracy_clean']:.1%} clean, {report['accuracy_protected']:.1%} protected. "
        "A model distilled from these answers learns the pattern along with the task."
    )
