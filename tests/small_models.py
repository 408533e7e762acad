"""Small real parts that the tests share: a tokenizer, tiny classifiers, keys. Nothing is downloaded."""

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification, WatermarkKey

SPECIAL = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
WORDS = (
    "the a film book story was is very quite truly good bad great awful dull bright moving tired funny slow we they "
    "liked hated saw read and but with without plot cast ending beginning music in on of to"
).split()
TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
VOCAB_SIZE = 64
MARKS = ["cosine", "tilt"]


def make_tokenizer(words=WORDS, **settings):
    """A word tokenizer with BERT's special tokens, built in memory."""
    vocabulary = {**SPECIAL, **{word: index + len(SPECIAL) for index, word in enumerate(words)}}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=64,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        **settings,
    )


def make_special_tokenizer(n_special=4):
    """A tokenizer that knows its first few special tokens alone."""
    vocabulary = dict(list(SPECIAL.items())[:n_special])
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **dict(zip(names, vocabulary, strict=False)))


_BASE = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
ARCHITECTURES = {
    "bert": {**_BASE, "intermediate_size": 64},
    "distilbert": {"vocab_size": VOCAB_SIZE, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    "roberta": {**_BASE, **_IDS, "intermediate_size": 64, "max_position_embeddings": 66},
    "deberta-v2": {**_BASE, "intermediate_size": 64},
    "modernbert": {**_BASE, **_IDS, "intermediate_size": 64, "cls_token_id": 2, "sep_token_id": 3},
    "gpt2": {"vocab_size": VOCAB_SIZE, "n_embd": 32, "n_layer": 2, "n_head": 2, **_IDS},
    "llama": {**_BASE, **_IDS, "intermediate_size": 64},
    "bart": {
        "vocab_size": VOCAB_SIZE,
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "decoder_start_token_id": 3,
        "forced_eos_token_id": 3,
        **_IDS,
    },
    "t5": {
        "vocab_size": VOCAB_SIZE,
        "d_model": 32,
        "d_kv": 16,
        "num_layers": 2,
        "num_heads": 2,
        "d_ff": 64,
        "pad_token_id": 0,
        "eos_token_id": 3,
        "decoder_start_token_id": 0,
    },
}
AUTO = {
    "sequence-classification": (AutoModelForSequenceClassification, WatermarkedModelForSequenceClassification),
    "token-classification": (AutoModelForTokenClassification, WatermarkedModelForTokenClassification),
}


def make_model(task="sequence-classification", architecture="bert", seed=0, sharp=True, **config):
    """A tiny classifier with random weights; ``sharp`` spreads its logits as training would."""
    labels = TAGS if task == "token-classification" else ["negative", "positive"]
    settings = {
        **ARCHITECTURES[architecture],
        "id2label": dict(enumerate(labels)),
        "label2id": {label: index for index, label in enumerate(labels)},
        **config,
    }
    torch.manual_seed(seed)
    model = AUTO[task][0].from_config(AutoConfig.for_model(architecture, **settings)).eval()
    if sharp:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.mul_(8.0 if "embed" in name or "classifier" in name else 2.0)
    return model


def make_lively(model, tokenizer, texts, spread=3.0, lean=0.0):
    """The same classifier, with logits that differ from text to text, as those of a trained one do.

    It leans towards its second class.
    """
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        model.classifier.bias -= logits.mean(dim=0)
        for parameter in model.classifier.parameters():
            parameter *= spread / (logits[:, 1] - logits[:, 0]).std()
        model.classifier.bias[1] += lean
    return model


def draw_labels(model, tokenizer, texts, temperature=1.5, seed=0):
    """Labels drawn from a classifier's own probabilities, which makes it calibrated at this temperature."""
    with torch.no_grad():
        logits = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    chance = torch.Generator().manual_seed(seed)
    drawn = torch.multinomial((logits / temperature).softmax(dim=-1), 1, generator=chance)[:, 0]
    return [model.config.id2label[number] for number in drawn.tolist()]


def make_key(model, tokenizer=None, **settings):
    """A key with a fixed secret, so that every run marks alike."""
    of_the_mark = {} if settings.get("mark") == "tilt" else {"target": 1}
    settings = {**of_the_mark, "secret": bytes(range(32)), **settings}
    if tokenizer is None:
        settings.setdefault("special_token_ids", sorted(SPECIAL.values()))
        settings.setdefault("separator_token_ids", [2, 3])
    return WatermarkKey.generate(model, tokenizer=tokenizer, **settings)


def make_victim(task="sequence-classification", key=None, label_kind="soft", model=None, **settings):
    """A protected tiny classifier; by default every answer is marked (scope all, τ = 1), and clearly."""
    model = model or make_model(task)
    options = {name: settings.pop(name) for name in ("sampling", "sample_all", "digits") if name in settings}
    if key is None:
        of_the_mark = {"strength": 1.0} if settings.get("mark") == "tilt" else {"scope": "all"}
        key = make_key(model, **{**of_the_mark, "tau": 1.0, **settings})
    return AUTO[task][1].from_model(model, key=key, label_kind=label_kind, **options)


def make_batch(n_rows=4, length=10, seed=0):
    """Rows of ordinary tokens between [CLS] and [SEP], without padding."""
    generator = torch.Generator().manual_seed(seed)
    input_ids = torch.randint(len(SPECIAL), VOCAB_SIZE, (n_rows, length), generator=generator)
    input_ids[:, 0], input_ids[:, -1] = SPECIAL["[CLS]"], SPECIAL["[SEP]"]
    return {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
