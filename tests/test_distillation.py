"""DistillationTrainer: the real Trainer, with a teacher's answers for labels."""

import json
import math
import random
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import HfArgumentParser, TrainerCallback

from drw_hf import DistillationArguments, DistillationTrainer, label_with_teacher
from drw_hf.errors import ConfigurationError, DatasetError
from drw_hf.extraction.losses import hard_loss, soft_loss
from drw_hf.extraction.preparation import DistillationCollator, Layout, lay_out, match_labels
from launching import launch
from small_models import TAGS, WORDS, make_model, make_tokenizer, make_victim
from test_labelling import make_pieces_tokenizer
from test_leaks import assert_clean

TASKS = ["sequence-classification", "token-classification"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def make_rows(task, n_rows=24, gold=True, seed=0):
    """Sentences of very different lengths."""
    rng = random.Random(seed)
    words = [[rng.choice(WORDS) for _ in range(rng.choice([1, 2, 3, 12]))] for _ in range(n_rows)]
    if task == "token-classification":
        columns = {"tokens": words, "tags": [[rng.choice(TAGS) for _ in row] for row in words]}
    else:
        columns = {"text": [" ".join(row) for row in words], "label": [rng.randrange(2) for _ in words]}
    if not gold:
        columns.pop("tags" if task == "token-classification" else "label")
    return datasets.Dataset.from_dict(columns)


def make_student(task="sequence-classification", **config):
    return make_model(task, seed=9, **{**NO_DROPOUT, **config})


def arguments(folder, **settings):
    defaults = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "seed": 1}
    return DistillationArguments(str(folder), **{**defaults, **settings})


def losses_of(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


# -- losses


@given(st.integers(2, 12), st.integers(0, 2**31))
def test_soft_loss_is_the_papers_kl_and_zero_for_a_perfect_student(m, seed):
    generator = torch.Generator().manual_seed(seed)
    logits, teacher = torch.randn(5, m, generator=generator), torch.randn(5, m, generator=generator).softmax(-1)
    q = logits.double().softmax(-1)
    expected = (teacher * (teacher.double() / q).log()).sum()
    assert float(soft_loss(logits, teacher)) == pytest.approx(float(expected), rel=1e-4)
    assert float(soft_loss(teacher.log(), teacher)) == pytest.approx(0.0, abs=1e-5)
    assert float(soft_loss(teacher.log(), teacher, temperature=3.0)) == pytest.approx(0.0, abs=1e-4)


def test_hard_labels_are_soft_labels_that_are_certain():
    logits, labels = torch.randn(7, 4), torch.randint(0, 4, (7,))
    certain = torch.nn.functional.one_hot(labels, 4).float()
    torch.testing.assert_close(soft_loss(logits, certain), hard_loss(logits, labels))


def test_zero_probabilities_are_no_nan():
    logits = torch.randn(2, 3, requires_grad=True)
    for temperature in (1.0, 2.0):
        soft_loss(logits, torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]), temperature).backward()
    assert logits.grad.isfinite().all()


# -- the loss of a step


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("task", TASKS)
def test_accumulated_steps_equal_one_big_batch(tmp_path, tokenizer, task, label_kind):
    """Ragged rows in micro-batches of 2 or one batch of 8: the same weights to 1e-6."""
    labelled = label_with_teacher(make_victim(task), make_rows(task), tokenizer, progress=False)
    weights = []
    for size, steps in ((8, 1), (2, 4), (1, 8)):
        student = make_student(task)
        settings = arguments(
            tmp_path,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=steps,
            max_steps=3,
            optim="sgd",
            learning_rate=0.1,
            label_kind=label_kind,
            gold_weight=0.25,
            max_grad_norm=0.0,
        )
        DistillationTrainer(student, settings, train_dataset=labelled, processing_class=tokenizer).train()
        weights.append(student.state_dict())
    for other in weights[1:]:
        for name, weight in weights[0].items():
            torch.testing.assert_close(other[name], weight, atol=1e-6, rtol=0)


@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_the_mean_over_distilled_items(tmp_path, tokenizer, task):
    rows, victim, student = make_rows(task, 8, gold=False), make_victim(task), make_student(task)
    trainer = DistillationTrainer(
        student, arguments(tmp_path), victim, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer
    )
    found = trainer.evaluate()["eval_loss"]
    total = count = 0
    for row in rows:
        words = row.get("tokens") or row["text"]
        encoding = tokenizer(words, is_split_into_words=isinstance(words, list), return_tensors="pt")
        with torch.no_grad():
            q, y = student(**encoding).logits[0], victim(**encoding).logits[0].exp()
        if task == "token-classification":
            q, y = q[1:-1], y[1:-1]
        total, count = (
            total + float(soft_loss(q.view(-1, q.shape[-1]), y.view(-1, y.shape[-1]))),
            count + q.view(-1, q.shape[-1]).shape[0],
        )
    assert found == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize("task", TASKS)
def test_asking_during_training_equals_asking_before(tmp_path, tokenizer, task):
    rows, weights = make_rows(task), []
    for requery in (False, True):
        student = make_student(task)
        settings = arguments(tmp_path, max_steps=4, optim="sgd", learning_rate=0.1, requery=requery)
        trainer = DistillationTrainer(
            student, settings, make_victim(task), train_dataset=rows, processing_class=tokenizer
        )
        trainer.train()
        weights.append(student.state_dict())
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, atol=1e-5, rtol=0)


def test_requery_draws_fresh_hard_labels_every_epoch(tmp_path, tokenizer):
    """As the paper's code: a victim that samples by chance gives other labels in the second epoch."""
    victim = make_victim("token-classification", label_kind="hard", sampling="fresh", sample_all=True, epsilon=1.0)
    asked = []
    victim.register_forward_hook(lambda module, args, output: asked.append(output.logits.argmax(-1).tolist()))
    rows = make_rows("token-classification", 4, gold=False)
    settings = arguments(tmp_path, num_train_epochs=2, requery=True, label_kind="hard", per_device_train_batch_size=4)
    DistillationTrainer(
        make_student("token-classification"), settings, victim, train_dataset=rows, processing_class=tokenizer
    ).train()
    assert len(asked) == 2 and sorted(map(str, asked[0])) != sorted(map(str, asked[1]))


def test_the_teacher_is_frozen_and_in_eval_mode(tmp_path, tokenizer):
    task = "sequence-classification"
    victim = make_victim(task).train()
    modes = []
    victim.register_forward_hook(lambda module, args, output: modes.append(module.training))
    settings = arguments(tmp_path, max_steps=2, requery=True)
    DistillationTrainer(
        make_student(task), settings, victim, train_dataset=make_rows(task), processing_class=tokenizer
    ).train()
    assert modes and not any(modes)
    assert not any(p.requires_grad for p in victim.parameters())


# -- another tokenizer, another order of labels


@pytest.mark.parametrize("requery", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_a_student_with_another_tokenizer(tmp_path, tokenizer, task, requery):
    """Token tasks by word: the loss at the student's first sub-tokens against the teacher's answer to the word."""
    pieces, rows, victim = make_pieces_tokenizer(), make_rows(task, 8, gold=False), make_victim(task)
    student = make_model(task, seed=9, vocab_size=len(pieces), **NO_DROPOUT)
    trainer = DistillationTrainer(
        student,
        arguments(tmp_path, requery=requery),
        victim,
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=pieces,
        teacher_tokenizer=tokenizer,
    )
    found = trainer.evaluate()["eval_loss"]
    total = count = 0
    for row in rows:
        words = row.get("tokens") or row["text"].split()
        mine = pieces(words, is_split_into_words=True, return_tensors="pt")
        theirs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            q, y = student(**mine).logits[0], victim(**theirs).logits[0].exp()
        if task == "token-classification":
            q = q[[mine.word_ids().index(i) for i in range(len(words))]]
            y = y[1:-1]
        q, y = q.view(-1, q.shape[-1]), y.view(-1, y.shape[-1])
        total, count = total + float(soft_loss(q, y)), count + len(q)
    assert found == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize("requery", [False, True])
def test_labels_in_another_order_are_matched_by_name(tmp_path, tokenizer, requery):
    task, rows = "token-classification", make_rows("token-classification", 8)
    turned = TAGS[::-1]
    student = make_student(task)
    mirrored = make_student(
        task, id2label=dict(enumerate(turned)), label2id={label: i for i, label in enumerate(turned)}
    )
    with torch.no_grad():
        mirrored.load_state_dict(student.state_dict())
        mirrored.classifier.weight.copy_(student.classifier.weight.flip(0))
        mirrored.classifier.bias.copy_(student.classifier.bias.flip(0))
    results = []
    for model in (student, mirrored):
        trainer = DistillationTrainer(
            model,
            arguments(tmp_path, requery=requery, gold_weight=0.5),
            make_victim(task),
            train_dataset=rows,
            eval_dataset=rows,
            processing_class=tokenizer,
        )
        results.append(trainer.evaluate())
    assert results[0]["eval_loss"] == pytest.approx(results[1]["eval_loss"], rel=1e-5)
    assert results[0]["eval_accuracy"] == results[1]["eval_accuracy"]


@given(st.permutations(TAGS))
def test_matching_lists_the_teachers_class_of_each_of_the_students(order):
    assert [order[index] for index in match_labels(order, TAGS)] == TAGS


def test_label_sets_that_differ_are_refused(tmp_path, tokenizer):
    other = make_student(id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    rows = make_rows("sequence-classification")
    with pytest.raises(DatasetError, match=r"only the teacher has \['negative', 'positive'\]"):
        DistillationTrainer(other, arguments(tmp_path), make_victim(), train_dataset=rows, processing_class=tokenizer)
    labelled = label_with_teacher(make_victim(), rows, tokenizer, progress=False)
    with pytest.raises(DatasetError, match="only the student"):
        DistillationTrainer(other, arguments(tmp_path), train_dataset=labelled, processing_class=tokenizer)


# -- data


def test_rows_longer_than_the_students_limit_are_cut_on_both_sides_alike(tmp_path, tokenizer):
    words = [random.Random(0).choices(WORDS, k=40)]
    rows = datasets.Dataset.from_dict({"tokens": words})
    seen = []
    victim = make_victim("token-classification")
    victim.register_forward_hook(
        lambda module, args, kwargs, output: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    trainer = DistillationTrainer(
        make_student("token-classification"),
        arguments(tmp_path, max_length=10),
        victim,
        train_dataset=rows,
        processing_class=tokenizer,
    )
    assert seen == [10]
    row = trainer.train_dataset[0]
    assert len(row["input_ids"]) == 10 and row["places"] == list(range(1, 9))


def test_tokenised_rows_are_taken_as_they_are(tmp_path, tokenizer):
    task = "token-classification"
    rows = make_rows(task, gold=False)
    tokenised = rows.map(lambda row: tokenizer(row["tokens"], is_split_into_words=True), remove_columns="tokens")
    losses = []
    for data in (rows, tokenised):
        trainer = DistillationTrainer(
            make_student(task), arguments(tmp_path), make_victim(task), data, data, processing_class=tokenizer
        )
        losses.append(trainer.evaluate()["eval_loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_stream_can_be_distilled(tmp_path, tokenizer):
    task = "token-classification"
    stream = make_rows(task).to_iterable_dataset()
    trainer = DistillationTrainer(
        make_student(task), arguments(tmp_path, max_steps=2), make_victim(task), stream, processing_class=tokenizer
    )
    trainer.train()
    assert trainer.state.global_step == 2
    with pytest.raises(ValueError, match="max_steps"):
        DistillationTrainer(
            make_student(task), arguments(tmp_path), make_victim(task), stream, processing_class=tokenizer
        )


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_on_either_side_moves_places_and_labels_along(side):
    tokenizer = make_tokenizer(padding_side=side)
    rows = {"tokens": [["the", "film"], ["a"]], "tags": [["O", "B-PER"], ["O"]]}
    rows |= {"teacher_probs": [[[0.1, 0.2, 0.3, 0.4]] * 2, [[0.4, 0.3, 0.2, 0.1]]], "teacher_labels": [[3, 3], [0]]}
    gold = {tag: index for index, tag in enumerate(TAGS)}
    layout = Layout(
        "token-classification", tokenizer, 8, ("tokens",), gold="tags", gold_numbers=gold, order=(0, 1, 2, 3)
    )
    features = lay_out(rows, layout)
    batch = DistillationCollator(tokenizer, num_labels=4)(
        [{name: column[i] for name, column in features.items()} for i in range(2)]
    )
    shift = 1 if side == "left" else 0
    assert batch["places"].tolist() == [[1, 2], [1 + shift, -1]]
    assert batch["labels"][1].tolist() == ([-100, -100, 0, -100] if shift else [-100, 0, -100, -100])
    assert batch["teacher_labels"][0].tolist() == [-100, 3, 3, -100]
    assert batch["teacher_probs"].shape == (2, 2, 4)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("tokenised", [False, True])
def test_rows_are_cut_on_the_tokenizers_side_and_answers_stay_with_their_words(side, tokenised):
    tokenizer = make_tokenizer(truncation_side=side)
    words = "the film was very good and the cast was bad".split()
    ids = tokenizer(words, is_split_into_words=True)["input_ids"]
    rows = {"input_ids": [ids]} if tokenised else {"tokens": [words]}
    n = len(ids) if tokenised else len(words)
    answers = [[place / n, 1.0 - place / n, 0.0, 0.0] for place in range(n)]
    rows |= {"teacher_probs": [answers], "teacher_labels": [[0] * n]}
    layout = Layout("token-classification", tokenizer, 7, tuple(rows)[:1], order=(0, 1, 2, 3))
    features = lay_out(rows, layout)
    (kept,), (places,), (probs,) = features["input_ids"], features["places"], features["teacher_probs"]
    assert len(kept) == 7 and tokenizer.decode(kept, skip_special_tokens=True).split()[-1] == (
        "bad" if side == "left" else words[6 - 1 if tokenised else 5 - 1]
    )
    for place, answer in zip(places, probs, strict=True):
        at = round(float(answer[0]) * n)  # the word, or the token, that this was the answer to
        assert kept[place] == (ids if tokenised else ids[1:-1])[at]
    assert len(places) == (6 if tokenised else 5)


def test_a_teacher_that_is_asked_in_training_is_cut_as_it_is_elsewhere(tmp_path):
    """Its tokenizer is another one, and cuts on another side than the student's."""
    tokenizer = make_tokenizer()
    other = make_tokenizer(words=[*WORDS[::-1]], truncation_side="left")
    rows = datasets.Dataset.from_dict({"text": ["the film was very good and the cast was bad"]})
    trainer = DistillationTrainer(
        make_student(),
        arguments(tmp_path, requery=True, max_length=7),
        make_model(),
        rows,
        processing_class=tokenizer,
        teacher_tokenizer=other,
    )
    (row,) = trainer.train_dataset
    assert tokenizer.decode(row["input_ids"], skip_special_tokens=True) == "the film was very good"
    assert other.decode(row["teacher_input_ids"], skip_special_tokens=True) == "and the cast was bad"


# -- evaluation


def test_rows_without_gold_labels_are_learnt_from_the_teacher_alone(tmp_path):
    """Files of which one has labels, read together: the other's column is there, and empty."""
    texts = [["the", "film", "was", "good"], ["a", "dull", "story"]]
    rows = datasets.Dataset.from_dict({"tokens": texts, "tags": [None, TAGS[:3]]})
    tagger = make_victim("token-classification")
    arguments = DistillationArguments(str(tmp_path), max_steps=1, report_to=[], use_cpu=True, disable_tqdm=True)
    student = make_model("token-classification", seed=2)
    trainer = DistillationTrainer(student, arguments, tagger, rows, processing_class=make_tokenizer())
    assert trainer.train().training_loss > 0.0


def test_evaluation_against_gold_labels_or_the_teacher(tmp_path, tokenizer):
    task = "token-classification"
    victim, student = make_victim(task), make_student(task)
    for gold, requery in ((True, False), (False, False), (False, True)):
        rows = make_rows(task, gold=gold)
        trainer = DistillationTrainer(
            student, arguments(tmp_path, requery=requery), victim, rows, rows, processing_class=tokenizer
        )
        metrics = trainer.evaluate()
        assert ("eval_accuracy" in metrics, "eval_agreement" in metrics) == (gold, not gold)
        right = count = 0
        for row in rows:
            encoding = tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")
            with torch.no_grad():
                said, taught = (m(**encoding).logits[0, 1:-1].argmax(-1) for m in (student, victim))
            wanted = [TAGS.index(tag) for tag in row["tags"]] if gold else taught.tolist()
            right, count = right + sum(a == b for a, b in zip(said.tolist(), wanted, strict=True)), count + len(wanted)
        assert metrics["eval_accuracy" if gold else "eval_agreement"] == pytest.approx(right / count)


def test_predict_and_metrics_of_ones_own(tmp_path, tokenizer):
    rows = make_rows("sequence-classification")
    trainer = DistillationTrainer(
        make_student(),
        arguments(tmp_path),
        make_victim(),
        rows,
        {"one": rows, "two": rows.select(range(4))},
        processing_class=tokenizer,
        compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
    )
    metrics = trainer.evaluate()
    assert metrics["eval_one_rows"] == 24 and metrics["eval_two_rows"] == 4
    output = trainer.predict(rows.select(range(3)))
    assert output.predictions.shape == (3, 2) and output.label_ids.tolist() == rows["label"][:3]
    assert trainer.evaluate(make_rows("sequence-classification", 5))["eval_rows"] == 5


# -- the Trainer's own life


class StopAtStep3(TrainerCallback):
    """An interrupted run."""

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == 3


def test_checkpoint_and_resume(tmp_path, tokenizer):
    task = "token-classification"

    def train(folder, callbacks=(), resume=None):
        student = make_student(task)
        settings = arguments(folder, max_steps=6, save_strategy="steps", save_steps=3, learning_rate=1e-2)
        trainer = DistillationTrainer(
            student,
            settings,
            make_victim(task),
            make_rows(task),
            processing_class=tokenizer,
            callbacks=list(callbacks),
        )
        trainer.train(resume_from_checkpoint=resume)
        return student

    whole = train(tmp_path / "whole")
    train(tmp_path / "parts", callbacks=[StopAtStep3()])
    resumed = train(tmp_path / "parts", resume=True)
    for name, weight in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], weight)


def test_the_best_student_is_kept_and_reported(tmp_path, tokenizer):
    """load_best_model_at_end by agreement, with TensorBoard as the reporter."""
    pytest.importorskip("tensorboard")
    task, rows = "token-classification", make_rows("token-classification", gold=False)
    settings = arguments(
        tmp_path,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        logging_steps=1,
        load_best_model_at_end=True,
        metric_for_best_model="agreement",
        report_to=["tensorboard"],
    )
    trainer = DistillationTrainer(
        make_student(task), settings, make_victim(task), rows, rows, processing_class=tokenizer
    )
    trainer.train()
    assert trainer.state.best_model_checkpoint is not None
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = tmp_path.rglob("events.out.tfevents*")
    reported = EventAccumulator(str(events.parent)).Reload().Tags()["scalars"]
    assert "train/loss" in reported and "eval/agreement" in reported


def test_nothing_that_training_writes_carries_the_teachers_key(tmp_path, tokenizer, cache):
    task = "token-classification"
    victim = make_victim(task, label_kind="hard")
    for requery in (False, True):
        settings = arguments(
            tmp_path / str(requery), max_steps=2, save_strategy="steps", save_steps=1, requery=requery
        )
        trainer = DistillationTrainer(
            make_student(task), settings, victim, make_rows(task), processing_class=tokenizer
        )
        trainer.train()
        trainer.save_model(str(tmp_path / str(requery) / "final"))
        trainer.create_model_card()
    contents = assert_clean(victim.key, tmp_path)
    for content in contents.values():
        assert victim.key.fingerprint.encode() not in content and victim.key.commitment().encode() not in content


def test_the_card_says_how_the_student_was_made(tmp_path, tokenizer):
    settings = arguments(tmp_path, temperature=2.0, gold_weight=0.25, max_steps=1)
    trainer = DistillationTrainer(
        make_student(), settings, make_victim(), make_rows("sequence-classification"), processing_class=tokenizer
    )
    trainer.train()
    trainer.create_model_card(model_name="my-student")
    card = (tmp_path / "README.md").read_text()
    assert "# my-student" in card and "## Distillation" in card
    for said in ("KL divergence, temperature 2", "gold labels: 0.25", "once, before training", "negative, positive"):
        assert said in card


# -- arguments


def test_arguments_parse_from_the_command_line():
    parsed = HfArgumentParser(DistillationArguments).parse_args_into_dataclasses(
        ["--output_dir", "out", "--label_kind", "hard", "--gold_weight", "0.1", "--requery", "True"]
    )[0]
    assert (parsed.label_kind, parsed.gold_weight, parsed.requery) == ("hard", 0.1, True)
    own = [
        field
        for field in DistillationArguments.__dataclass_fields__.values()
        if field.name in DistillationArguments.__annotations__
    ]
    assert all(field.metadata.get("help") for field in own)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"label_kind": "medium"}, "soft"),
        ({"temperature": 0.0}, "> 0"),
        ({"temperature": math.nan}, "> 0"),
        ({"gold_weight": 1.0}, "plain Trainer"),
        ({"gold_weight": -0.1}, "gold_weight"),
        ({"label_kind": "hard", "temperature": 2.0}, "leave it at 1"),
        ({"remove_unused_columns": True}, "teacher's answers"),
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor"),
        ({"max_length": 0}, "max_length"),
    ],
)
def test_combinations_that_make_no_sense_are_refused(tmp_path, settings, said):
    with pytest.raises(ConfigurationError, match=said):
        arguments(tmp_path, **settings)


def test_trainers_that_cannot_train_are_refused(tmp_path, tokenizer):
    rows = make_rows("sequence-classification", gold=False)
    student, victim = make_student(), make_victim()

    def make(teacher=None, dataset=rows, tokenizer=tokenizer, model=student, **settings):
        return DistillationTrainer(
            model, arguments(tmp_path, **settings), teacher, dataset, processing_class=tokenizer
        )

    with pytest.raises(ConfigurationError, match="processing_class"):
        make(victim, tokenizer=None)
    with pytest.raises(ConfigurationError, match="teacher="):
        make(requery=True)
    with pytest.raises(ConfigurationError, match="model or a path"):
        make(lambda texts: ["positive"] * len(texts), requery=True)
    with pytest.raises(DatasetError, match="label_with_teacher"):
        make()
    with pytest.raises(ConfigurationError, match="would not ask"):
        make(victim, dataset=label_with_teacher(victim, rows, tokenizer, progress=False), requery=True)
    with pytest.raises(DatasetError, match="gold_column"):
        make(victim, gold_weight=0.5)
    with pytest.raises(DatasetError, match="empty"):
        make(victim, dataset=rows.select([]))
    with pytest.raises(ConfigurationError, match="token-classification"):
        make(make_victim("token-classification"))
    with pytest.raises(DatasetError, match="neutral"):
        make(victim, dataset=rows.add_column("label", ["neutral"] * len(rows)))
    with pytest.raises(ConfigurationError, match="DistillationArguments"):
        DistillationTrainer(student, transformers_arguments(tmp_path), victim, rows, processing_class=tokenizer)


def transformers_arguments(folder):
    from transformers import TrainingArguments

    return TrainingArguments(str(folder), use_cpu=True, report_to=[])


# -- two processes

DISTRIBUTED = Path(__file__).parent / "distill_script.py"


def run_script(folder, processes, **settings):
    """What the script found, run as so many processes."""
    run = launch([DISTRIBUTED, folder, json.dumps(settings)], processes)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads((folder / "result.json").read_text())


def test_two_processes_train_and_label_as_one(tmp_path):
    """Same global batch, dropout 0, SGD: the same loss curve and weights to 1e-5, and the same labelled data."""
    one = run_script(tmp_path / "one", 1, batch=8)
    two = run_script(tmp_path / "two", 2, batch=4)
    assert one["processes"] == 1 and two["processes"] == 2
    for name in ("cached", "requery"):
        np.testing.assert_allclose(two[name]["losses"], one[name]["losses"], atol=1e-5, rtol=0)
        np.testing.assert_allclose(two[name]["weights"], one[name]["weights"], atol=1e-5, rtol=0)
    assert two["labels"] == one["labels"]
    np.testing.assert_allclose(np.ravel(two["first_probs"]), np.ravel(one["first_probs"]), atol=1e-6)
    np.testing.assert_allclose(two["probe"], one["probe"], atol=1e-6)
    assert sum(two["asked"]) == one["asked"][0] and min(two["asked"]) > 0, "each process asked its share"
