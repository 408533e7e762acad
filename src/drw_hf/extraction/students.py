"""Students: where they start, how they are made, and the tokenizer that goes with each."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig

from ..asking.models import PLAIN, load_clean, load_config, load_tokenizer, loading
from ..checks import numbers_of
from ..errors import UnsupportedModelError
from ..keys.binding import labels_of
from ..keys.choices import Task
from ..watermark import WatermarkedConfig

_OTHER_VOCABULARY = 8_000  # tokens that a thief makes of its own texts
_SPECIAL = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
}


@dataclass(frozen=True)
class Recipe:
    """How the thief makes a student.

    Attributes
    ----------
    start : str, optional
        What the student starts from, a folder or Hub id; by default a small transformer from scratch, which reads
        the victim's tokens.
    other_start : str, optional
        The same for the thief who takes another architecture and tokenizer; by default both are from scratch.
    layers, width, heads : int
        The shape of students from scratch.
    epochs, learning_rate, batch_size, weight_decay
        How they are trained.
    max_length : int
        Texts are cut after so many tokens.
    tries : int
        How often a student is trained, each time with another seed, until it answers more than one class.
    """

    start: str | None = None
    other_start: str | None = None
    layers: int = 2
    width: int = 64
    heads: int = 2
    epochs: float = 8.0
    learning_rate: float = 1e-3
    batch_size: int = 32
    weight_decay: float = 0.0
    max_length: int = 128
    tries: int = 3

    def slower(self, epochs: float) -> "Recipe":
        """To go on training: so many epochs more, in steps half as long."""
        return dataclasses.replace(self, epochs=epochs, learning_rate=self.learning_rate / 2)


@dataclass(frozen=True, eq=False)
class Student:
    """A model, and the tokenizer that it reads with."""

    model: Any
    tokenizer: Any

    def with_model(self, model: Any) -> "Student":
        """Another model with the same tokenizer."""
        return Student(model, self.tokenizer)


class Ensemble(torch.nn.Module):
    """Several students of the same tokens and labels, who answer with the mean of their probabilities."""

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(members)
        self.config = members[0].config

    def forward(self, **inputs: Any) -> Any:
        """The outputs of the first member, with the logits of the mean."""
        outputs = [member(**inputs) for member in self.members]
        shares = torch.stack([output.logits.float().softmax(-1) for output in outputs]).mean(0)
        outputs[0].logits = shares.clamp_min(1e-30).log()
        return outputs[0]


def load_student(name: str, task: Task, labels: list[str]) -> Any:
    """A model for the teacher's labels; where its own are others, it gets a new head.

    A student is a plain model: of a protected one it gets the weights, which are the clean model's.
    """
    config = load_config(name)
    options: dict[str, Any] = {}
    same_labels = set(labels_of(config)) == set(labels)
    if isinstance(config, WatermarkedConfig):
        if not same_labels:
            raise UnsupportedModelError(
                f"the model in {name} is protected, and its labels {list(labels_of(config))} are not the teacher's "
                f"{labels}; a student that needs a new head starts from a plain model"
            )
        return load_clean(name, task).get_base_model()
    if not same_labels:
        options = {
            "id2label": dict(enumerate(labels)),
            "label2id": numbers_of(labels),
            "ignore_mismatched_sizes": True,
        }
    with loading("a model", name):
        return PLAIN[task].from_pretrained(name, **options)


def small_config(labels: Sequence[str], vocabulary: int, recipe: Recipe, kind: str = "bert") -> Any:
    """The configuration of a small transformer from scratch, of a kind that transformers knows."""
    return AutoConfig.for_model(
        kind,
        vocab_size=vocabulary,
        hidden_size=recipe.width,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=2 * recipe.width,
        max_position_embeddings=recipe.max_length + 4,  # RoBERTa's kind counts places from 2
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label=dict(enumerate(labels)),
        label2id=numbers_of(labels),
    )


def train_tokenizer(texts: Iterable[str], vocabulary: int, max_length: int) -> Any:
    """A byte-level tokenizer of a thief's own, from its texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    names = list(_SPECIAL.values())
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(name, tokenizer.token_to_id(name)) for name in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
        **_SPECIAL,
    )


def other_student(task: Task, labels: Sequence[str], texts: Iterable[str], recipe: Recipe, seed: int) -> Student:
    """An untrained student of another architecture and tokenizer: the recipe's, or a RoBERTa from scratch."""
    torch.manual_seed(seed)
    if recipe.other_start is not None:
        return Student(
            load_student(recipe.other_start, task, list(labels)).float(), load_tokenizer(recipe.other_start)
        )
    tokenizer = train_tokenizer(texts, _OTHER_VOCABULARY, recipe.max_length)
    config = small_config(labels, len(tokenizer), recipe, "roberta")
    return Student(PLAIN[task].from_config(config), tokenizer)
