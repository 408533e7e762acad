"""The real pipeline, Trainer, PEFT and compiler around a protected model."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainingArguments, pipeline

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification
from drw_hf.errors import ConfigurationError, ExportRefusedError, UnsupportedModelError
from small_models import MARKS, TAGS, make_batch, make_key, make_model, make_victim

TEXTS = ["the film was very good", "we hated the slow ending", "a truly moving story", "dull"]


def answer(model, batch, **kwargs):
    with torch.no_grad():
        return model(**batch, **kwargs).logits


# -- pipelines


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("mark", MARKS)
def test_text_classification_pipeline_scores_are_y(tokenizer, batch_size, caplog, mark):
    victim = make_victim(mark=mark, digits=0)
    pipe = pipeline("text-classification", model=victim, tokenizer=tokenizer)
    assert "not supported" not in caplog.text
    scores = pipe(TEXTS, top_k=None, batch_size=batch_size)
    for text, found in zip(TEXTS, scores, strict=True):
        y = answer(victim, tokenizer(text, return_tensors="pt")).exp()[0]
        assert {item["label"]: pytest.approx(item["score"], abs=1e-6) for item in found} == {
            "negative": float(y[0]),
            "positive": float(y[1]),
        }


@pytest.mark.parametrize("mark", MARKS)
def test_a_pipeline_can_be_given_a_key_and_the_clean_model(tokenizer, mark):
    model = make_model()
    victim = make_victim(model=model, mark=mark)
    pipe = pipeline("text-classification", model=victim, tokenizer=tokenizer)
    clean = pipeline("text-classification", model=model, tokenizer=tokenizer)(TEXTS, top_k=None)
    with victim.watermark_disabled():
        assert pipe(TEXTS, top_k=None) == clean
    with victim.use_key(victim.key.replace(secret=b"\x05" * 32)):
        assert pipe(TEXTS, top_k=None) != clean != pipe(TEXTS, top_k=None)


@pytest.mark.parametrize("mark", MARKS)
def test_hard_labels_through_a_pipeline(tokenizer, mark):
    pipe = pipeline("text-classification", model=make_victim(label_kind="hard", mark=mark), tokenizer=tokenizer)
    first = pipe(TEXTS)
    assert {item["score"] for item in first} == {1.0}
    assert [pipe(text)[0] for text in TEXTS] == first == pipe(TEXTS, batch_size=4)


@pytest.mark.parametrize("mark", MARKS)
def test_pairs_through_a_pipeline(tokenizer, mark):
    victim = make_victim(mark=mark, digits=0)
    pipe = pipeline("text-classification", model=victim, tokenizer=tokenizer)
    found = pipe({"text": TEXTS[0], "text_pair": TEXTS[1]}, top_k=None)
    y = answer(victim, tokenizer(TEXTS[0], TEXTS[1], return_tensors="pt")).exp()[0]
    assert {item["label"]: item["score"] for item in found}["positive"] == pytest.approx(float(y[1]), abs=1e-6)


@pytest.mark.parametrize("aggregation", ["none", "simple", "first", "average", "max"])
@pytest.mark.parametrize("mark", MARKS)
def test_token_classification_pipeline_and_its_aggregations(tokenizer, aggregation, mark):
    victim = make_victim("token-classification", mark=mark, digits=0)
    pipe = pipeline(
        "token-classification", model=victim, tokenizer=tokenizer, aggregation_strategy=aggregation, ignore_labels=[]
    )
    found = pipe(TEXTS[0])
    y = answer(victim, tokenizer(TEXTS[0], return_tensors="pt")).exp()[0, 1:-1]
    if aggregation == "none":
        assert [item["entity"] for item in found] == [TAGS[index] for index in y.argmax(-1)]
        np.testing.assert_allclose([item["score"] for item in found], y.amax(-1), atol=1e-6)
    else:
        groups = sum(len(item["word"].split()) for item in found)
        assert groups == len(y) and all(0 < item["score"] <= 1 for item in found)


def test_a_pipeline_refuses_a_passphrase_which_the_tokenizer_would_write_down(tmp_path, tokenizer):
    victim = make_victim()
    victim.save_pretrained(tmp_path / "protected")
    tokenizer.save_pretrained(tmp_path / "protected")
    victim.key.save_pretrained(tmp_path / "key", passphrase="sesame open")
    for arguments in ({"key": str(tmp_path / "key"), "passphrase": "sesame open"}, {"key": victim.key}):
        with pytest.raises(ConfigurationError, match=r"tokenizer_config\.json"):
            pipeline("text-classification", model=str(tmp_path / "protected"), model_kwargs=arguments)


# -- Trainer


class Rows(torch.utils.data.Dataset):
    """Tokenised rows with labels."""

    def __init__(self, n_rows, task="sequence-classification"):
        batch = make_batch(n_rows=n_rows)
        tagged = batch["input_ids"] % len(TAGS)
        labels = tagged if task == "token-classification" else batch["input_ids"][:, 1] % 2
        self.rows = [
            dict(zip([*batch, "labels"], row, strict=True)) for row in zip(*batch.values(), labels, strict=True)
        ]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def arguments(folder, **settings):
    settings = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "per_device_eval_batch_size": 4, **settings}
    return TrainingArguments(str(folder), **settings)


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
@pytest.mark.parametrize("mark", MARKS)
def test_trainer_evaluates_and_predicts_the_served_answer(tmp_path, task, mark):
    victim, rows = make_victim(task, mark=mark, digits=0), Rows(10, task)
    trainer = Trainer(victim, arguments(tmp_path), compute_metrics=lambda p: {"rows": len(p.label_ids)})
    metrics = trainer.evaluate(rows)
    assert metrics["eval_rows"] == 10 and np.isfinite(metrics["eval_loss"])
    predictions = trainer.predict(rows).predictions
    assert isinstance(predictions, np.ndarray)
    np.testing.assert_allclose(predictions, answer(victim, make_batch(10)), atol=1e-5)


@pytest.mark.parametrize("mark", MARKS)
def test_training_through_the_wrapper_trains_the_clean_model(tmp_path, mark):
    """Step by step the weights are those of training the plain model: the loss is on clean logits."""
    results = []
    for wrap in (False, True):
        model = make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        trained = make_victim(model=model, mark=mark) if wrap else model
        settings = arguments(tmp_path, max_steps=5, learning_rate=1e-2, optim="sgd", seed=1, save_strategy="no")
        Trainer(trained, settings, train_dataset=Rows(32)).train()
        results.append(model.state_dict())
    for name, weight in results[0].items():
        torch.testing.assert_close(results[1][name], weight)


class StopAtStep3(TrainerCallback):
    """An interrupted run."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 3


def test_training_resumes_from_a_checkpoint(tmp_path):
    def train(folder, callbacks=(), resume=False):
        victim = make_victim(model=make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
        settings = arguments(folder, max_steps=6, save_steps=3, learning_rate=1e-2, seed=1)
        trainer = Trainer(victim, settings, train_dataset=Rows(32), callbacks=list(callbacks))
        trainer.train(resume_from_checkpoint=resume or None)
        return victim

    whole = train(tmp_path / "whole")
    train(tmp_path / "parts", callbacks=[StopAtStep3()])
    resumed = train(tmp_path / "parts", resume=True)
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight)
    key = resumed.key
    from_checkpoint = WatermarkedModelForSequenceClassification.from_pretrained(
        tmp_path / "parts/checkpoint-6", key=key
    )
    assert torch.equal(answer(from_checkpoint, make_batch()), answer(resumed.eval(), make_batch()))


def test_the_best_model_is_loaded_at_the_end(tmp_path):
    victim = make_victim()
    settings = arguments(
        tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2, save_steps=2, load_best_model_at_end=True
    )
    trainer = Trainer(victim, settings, train_dataset=Rows(16), eval_dataset=Rows(8))
    trainer.train()
    assert trainer.state.best_model_checkpoint is not None


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_gradient_checkpointing_passes_through(architecture):
    renamed = hasattr(PreTrainedModel, "activation_checkpointing_enable")  # in transformers 5.23
    checkpointing_name = "activation_checkpointing" if renamed else "gradient_checkpointing"
    gradients = []
    for checkpointing in (False, True):
        config = (
            {"attention_dropout": 0.0}
            if architecture == "llama"
            else {
                "hidden_dropout_prob": 0.0,
                "attention_probs_dropout_prob": 0.0,
            }
        )
        victim = make_victim(model=make_model(architecture=architecture, **config)).train()
        if checkpointing:
            getattr(victim, f"{checkpointing_name}_enable")()
            assert getattr(victim.get_base_model(), f"is_{checkpointing_name}")
        victim(**make_batch(), labels=torch.tensor([0, 1, 1, 0])).loss.backward()
        gradients.append({name: p.grad for name, p in victim.named_parameters() if p.grad is not None})
        getattr(victim, f"{checkpointing_name}_disable")()
        assert not getattr(victim, f"is_{checkpointing_name}")
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


# -- PEFT


@pytest.mark.parametrize("mark", MARKS)
def test_a_peft_model_is_protected_trained_and_saved_merged(tmp_path, mark):
    peft = pytest.importorskip("peft")
    base = make_model()
    adapted = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", init_lora_weights=False)).eval()
    key = make_victim(model=base, mark=mark).key
    victim = WatermarkedModelForSequenceClassification.from_model(adapted, key=key, digits=0)
    expected = answer(victim, make_batch())
    with adapted.disable_adapter():
        assert (answer(victim, make_batch()) - expected).abs().max() > 1e-3, "the adapter matters"
    victim.save_pretrained(tmp_path)
    again, info = WatermarkedModelForSequenceClassification.from_pretrained(
        tmp_path, key=key, output_loading_info=True
    )
    assert not any(info.values()), info
    torch.testing.assert_close(answer(again, make_batch()), expected, atol=1e-4, rtol=1e-4)
    assert torch.equal(answer(victim, make_batch()), expected), "saving did not merge the live model"
    victim.train()(**make_batch(), labels=torch.tensor([0, 1, 1, 0])).loss.backward()
    with pytest.raises(UnsupportedModelError, match="merged"):  # what a resuming Trainer would do, unheard
        victim.load_state_dict(again.state_dict(), strict=False)
    trained = {name for name, p in victim.named_parameters() if p.grad is not None}
    assert trained and all("lora" in name or "classifier" in name for name in trained)


def test_an_adapter_folder_is_loaded_but_its_save_is_refused(tmp_path):
    peft = pytest.importorskip("peft")
    base = make_model()
    base.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(base, peft.LoraConfig(task_type="SEQ_CLS", init_lora_weights=False)).eval()
    adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
    adapted.save_pretrained(tmp_path / "adapter")
    key = make_key(base)
    victim = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path / "adapter", key=key)
    with victim.watermark_disabled():
        torch.testing.assert_close(answer(victim, make_batch()), answer(adapted, make_batch()), atol=1e-5, rtol=1e-5)
    with pytest.raises(UnsupportedModelError, match="merge_and_unload"):
        victim.save_pretrained(tmp_path / "save")


# -- the compiler


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_torch_compile_gives_the_same_answers_and_follows_contexts(label_kind):
    victim, batch = make_victim("token-classification", label_kind=label_kind), make_batch()
    torch._dynamo.reset()
    compiled = torch.compile(victim, backend="eager")
    torch.testing.assert_close(answer(compiled, batch), answer(victim, batch))
    with victim.watermark_disabled():
        torch.testing.assert_close(answer(compiled, batch), answer(victim.get_base_model(), batch))
    for other in (victim.key.replace(secret=b"\x08" * 32), make_key(victim.get_base_model(), mark="tilt")):
        torch.testing.assert_close(
            answer(compiled, batch, watermark_key=other), answer(victim, batch, watermark_key=other)
        )


@pytest.mark.parametrize("mark", MARKS)
def test_export_and_tracing_are_refused_with_the_reason(mark):
    victim, batch = make_victim(mark=mark), make_batch()
    with pytest.raises(ExportRefusedError, match="baked into the artefact"):
        torch.export.export(victim, (), batch)
    with pytest.raises(Exception, match="baked into the artefact"):  # dynamo wraps the error, and keeps its words
        torch.export.export(victim, (), batch, strict=True)
    with pytest.raises(ExportRefusedError, match="baked into the artefact"):
        torch.jit.trace(victim, (batch["input_ids"], batch["attention_mask"]), strict=False)


def test_a_tagger_wraps_through_its_own_class():
    victim = make_victim("token-classification")
    assert isinstance(victim, WatermarkedModelForTokenClassification)
    assert victim.base_model is victim.get_base_model()
