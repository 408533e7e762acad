"""What a thief does to answers before training: as arithmetic, on a labelled data set, and in a real training."""

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from drw_hf import DistillationArguments, DistillationTrainer, label_with_teacher
from drw_hf.errors import ConfigurationError, DatasetError, InvalidInputError
from drw_hf.extraction.attacks import ATTACKS, Attack, attack_answers, attack_named, single_answer_attacks
from drw_hf.watermark.cosine import perturb
from small_models import make_model, make_tokenizer, make_victim

SENTENCES = ["the film was good", "a dull book", "we liked the plot and the cast"]
WORDS = {"tokens": [text.split() for text in SENTENCES] + [["good"] * 90]}  # the last is longer than the model reads


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def distributions(m, seed, n=20):
    return np.random.default_rng(seed).dirichlet(np.full(m, 0.3), n)


@given(st.sampled_from(single_answer_attacks()), st.integers(2, 12), st.integers(0, 2**31))
def test_every_attack_leaves_distributions_with_the_same_prediction(name, m, seed):
    before = distributions(m, seed)
    kept = before.copy()
    after = attack_named(name).change_answers(before)
    np.testing.assert_allclose(after.sum(axis=1), 1.0)
    assert (after >= 0).all() and after.shape == before.shape
    assert (np.take_along_axis(after, before.argmax(axis=1)[:, None], axis=1)[:, 0] == after.max(axis=1)).all()
    np.testing.assert_array_equal(before, kept)


@given(st.integers(3, 12), st.floats(0.01, 1.0), st.floats(-1.0, 1.0), st.integers(0, 2**31))
def test_taking_the_floor_off_undoes_the_papers_mark_on_a_sure_answer(m, epsilon, z, seed):
    """A sure answer of class c* has no mass elsewhere, so all that the floor holds is the mark's."""
    sure = np.eye(m)[[seed % m]]
    marked = perturb(torch.from_numpy(sure), torch.tensor([z]), seed % m, epsilon).double().numpy()
    floor = attack_named("floor")
    if marked.argmax() == seed % m:
        np.testing.assert_allclose(floor.change_answers(marked), sure, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "row", "expected"),
    [
        ("argmax", [0.2, 0.5, 0.3], [0, 1, 0]),
        ("floor", [0.2, 0.5, 0.3], [0, 0.75, 0.25]),
        ("rounding", [0.04, 0.73, 0.23], [0, 7 / 9, 2 / 9]),
        ("sharpening", [0.2, 0.4, 0.4], [1 / 65, 32 / 65, 32 / 65]),
        ("floor", [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]),  # nothing lies above the floor
        ("rounding", [0.04] * 25, [0.04] * 25),  # all would round to nothing
    ],
)
def test_what_they_do(name, row, expected):
    np.testing.assert_allclose(attack_named(name).change_answers(np.array([row])), [expected])


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_answers_of_a_data_set_are_attacked_and_what_was_not_answered_stays_so(task):
    tokenizer, victim = make_tokenizer(), make_victim(task)
    rows = datasets.Dataset.from_dict(WORDS if task == "token-classification" else {"text": SENTENCES})
    labelled = label_with_teacher(victim, rows, tokenizer, progress=False)
    attacked = attack_answers(labelled, "argmax")
    assert attacked.features == labelled.features
    assert attacked["teacher_labels"][:] == labelled["teacher_labels"][:]
    for before, after, labels in zip(
        labelled["teacher_probs"], attacked["teacher_probs"], labelled["teacher_labels"], strict=True
    ):
        before, after, labels = np.atleast_2d(before), np.atleast_2d(after), np.atleast_1d(labels)
        np.testing.assert_array_equal(after[labels < 0], before[labels < 0])
        assert set(np.unique(after[labels >= 0])) == {0.0, 1.0}
    if task == "token-classification":
        assert -1 in attacked["teacher_labels"][-1]


def test_a_student_learns_from_the_attacked_answers(tmp_path):
    tokenizer, victim = make_tokenizer(), make_victim()
    rows = datasets.Dataset.from_dict({"text": SENTENCES * 4})
    labelled = label_with_teacher(victim, rows, tokenizer, progress=False)

    def student(data, **settings):
        arguments = DistillationArguments(
            str(tmp_path), report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", seed=1, **settings
        )
        model = make_model(seed=9, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        trainer = DistillationTrainer(model, arguments, train_dataset=data, processing_class=tokenizer)
        trainer.train()
        return torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()])

    attacked = student(labelled, attack="rounding")
    torch.testing.assert_close(attacked, student(attack_answers(labelled, "rounding")))
    assert not torch.equal(attacked, student(labelled))


def test_formats_and_splits_do_not_matter():
    rows = datasets.Dataset.from_dict({"tokens": [text.split() for text in SENTENCES]})
    labelled = label_with_teacher(make_victim("token-classification"), rows, make_tokenizer(), progress=False)
    expected = attack_answers(labelled, attack_named("rounding"))["teacher_labels"][:]
    assert attack_answers(labelled.with_format("torch"), "rounding").with_format(None)["teacher_labels"][:] == expected
    splits = attack_answers(datasets.DatasetDict({"train": labelled}), "rounding")
    assert splits["train"]["teacher_labels"][:] == expected


def test_a_column_that_happens_to_be_called_label_does_not_matter_where_no_gold_is_learned(tmp_path):
    rows = datasets.Dataset.from_dict({"text": SENTENCES, "label": [0.5, 4, 7]})
    settings = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = DistillationArguments(str(tmp_path), **settings, attack="floor")
    options = {"teacher": make_victim(), "train_dataset": rows, "processing_class": make_tokenizer()}
    trainer = DistillationTrainer(make_model(seed=9), arguments, **options)
    trainer.train()
    trainer.create_model_card()
    assert "after the attack 'floor'" in (tmp_path / "README.md").read_text()
    with pytest.raises(ConfigurationError, match="compute_loss_func would never be called"):
        DistillationTrainer(make_model(seed=9), arguments, **options, compute_loss_func=lambda *a, **k: 0)


def test_what_cannot_be_attacked_is_refused(tmp_path):
    class Wrong(Attack):
        name = "wrong"

        def change_answers(self, probabilities):
            return 3 * probabilities

    rows = datasets.Dataset.from_dict({"text": SENTENCES})
    labelled = label_with_teacher(make_victim(), rows, make_tokenizer(), progress=False)
    with pytest.raises(InvalidInputError, match="what the attack 'wrong' made is NaN, negative or does not sum"):
        attack_answers(labelled, Wrong())
    with pytest.raises(DatasetError, match="no teacher_labels to attack"):
        attack_answers(labelled.remove_columns("teacher_labels"), "floor")
    with pytest.raises(ConfigurationError, match=r"no attack 'flor'; choose one of .*'floor'"):
        DistillationArguments(str(tmp_path), attack="flor")
    with pytest.raises(ConfigurationError, match="requery=True keeps none"):
        DistillationArguments(str(tmp_path), attack="floor", requery=True)
    with pytest.raises(DatasetError, match="label_with_teacher"):
        attack_answers(datasets.Dataset.from_dict({"text": SENTENCES}), "floor")
    with pytest.raises(InvalidInputError, match="another attack is registered as 'floor'"):
        ATTACKS.add("floor", object)
