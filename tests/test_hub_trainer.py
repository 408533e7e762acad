"""Training with a Hub attached: whatever the Trainer pushes, and whenever, no key goes with it.

Proven by looking at every byte that the (loopback) Hub received; huggingface.co is not contacted.
"""

import evaluate
import numpy as np
import pytest
from datasets import Dataset
from huggingface_hub import HfApi
from transformers import Trainer

import drw_hf
from drw_hf import DistillationArguments, DistillationTrainer, label_with_teacher
from drw_hf.errors import KeyFileError
from needles import leaks_in
from small_models import WORDS, make_model, make_tokenizer, make_victim
from test_ecosystem import Rows, arguments

REPO = "owner/trained"
PASSPHRASE = "correct horse battery staple"
STRATEGIES = ["end", "every_save", "checkpoint", "all_checkpoints"]


def pushing(strategy):
    return {
        "push_to_hub": True,
        "hub_model_id": REPO,
        "hub_strategy": strategy,
        "hub_private_repo": True,
        "hub_always_push": True,
        "save_strategy": "steps",
        "save_steps": 1,
        "max_steps": 2,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
    }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_protected_model_in_training_pushes_no_key(hub, tmp_path, strategy):
    victim = make_victim()
    trainer = Trainer(victim, arguments(tmp_path / "out", **pushing(strategy)), train_dataset=Rows(8))
    trainer.train()
    trainer.push_to_hub()
    HfApi().upload_folder(repo_id="owner/trained", folder_path=tmp_path / "out", path_in_repo="again")
    assert any(path.endswith("model.safetensors") for path in hub.files(REPO))
    assert not leaks_in(victim.key, hub.everything())
    assert not [path for commit in hub.commits(REPO) for path in commit.files if "drw_key" in path]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_student_in_training_pushes_nothing_of_its_teachers_key(hub, tmp_path, strategy):
    victim, tokenizer = make_victim(), make_tokenizer()
    texts = Dataset.from_dict({"text": [f"the {word} was {word}" for word in WORDS[:8]]})
    args = DistillationArguments(str(tmp_path / "out"), **pushing(strategy))
    trainer = DistillationTrainer(
        model=make_model(seed=3), teacher=victim, args=args, train_dataset=texts, processing_class=tokenizer
    )
    trainer.train()
    trainer.push_to_hub()
    assert "model.safetensors" in hub.files(REPO)
    assert not leaks_in(victim.key, hub.everything())


def test_labelled_data_sets_carry_answers_and_no_key(hub):
    victim = make_victim()
    texts = Dataset.from_dict({"text": [f"the {word} was {word}" for word in WORDS]})
    label_with_teacher(victim, texts, make_tokenizer(), progress=False).push_to_hub("owner/answers", private=True)
    assert hub.repo_exists("owner/answers", "dataset")
    assert not leaks_in(victim.key, hub.everything())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_plain_key_in_the_output_folder_stops_the_training_before_it_is_pushed(hub, tmp_path, strategy):
    victim = make_victim()
    victim.key.save_pretrained(tmp_path / "out")
    trainer = Trainer(victim, arguments(tmp_path / "out", **pushing(strategy)), train_dataset=Rows(8))
    with pytest.raises(KeyFileError, match="plain key"):
        trainer.train()
    with pytest.raises(KeyFileError, match="plain key"):
        trainer.push_to_hub()
    assert not leaks_in(victim.key, hub.everything())


def test_a_plain_key_deeper_in_the_output_folder_stops_it_too(hub, tmp_path):
    victim = make_victim()
    victim.key.save_pretrained(tmp_path / "out" / "keys" / "run1")
    trainer = Trainer(victim, arguments(tmp_path / "out", **pushing("every_save")), train_dataset=Rows(8))
    with pytest.raises(KeyFileError, match="plain key"):
        trainer.train()
    assert not leaks_in(victim.key, hub.everything())


@pytest.mark.parametrize("name", ["model.safetensors", "training_args.bin", "tokenizer_config.json", "checkpoint-5"])
@pytest.mark.parametrize("inside", ["", "keys", "keys/run1"])
def test_a_plain_key_is_not_written_into_what_looks_like_an_output_folder(tmp_path, name, inside):
    if name == "tokenizer_config.json" and inside == "keys/run1":
        pytest.skip("so far up it may be anybody's")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).touch()
    key = make_victim().key
    with pytest.raises(KeyFileError, match="holds a model"):
        key.save_pretrained(tmp_path / "out" / inside)
    key.save_pretrained(tmp_path / "out" / inside, passphrase=PASSPHRASE)


def test_a_plain_key_in_a_students_output_folder_is_refused_at_once(hub, tmp_path):
    victim = make_victim()
    victim.key.save_pretrained(tmp_path / "out")
    with pytest.raises(KeyFileError, match="plain key"):
        DistillationTrainer(
            model=make_model(),
            args=DistillationArguments(str(tmp_path / "out"), **pushing("every_save")),
            processing_class=make_tokenizer(),
        )


def test_a_sealed_key_may_lie_in_the_output_folder(hub, tmp_path):
    victim = make_victim()
    victim.key.save_pretrained(tmp_path / "out", passphrase=PASSPHRASE)
    Trainer(victim, arguments(tmp_path / "out", **pushing("every_save")), train_dataset=Rows(8)).train()
    assert "drw_key.json" in hub.files(REPO)
    assert not leaks_in(victim.key, hub.everything())


@pytest.mark.parametrize("name", ["p_snr", "jsd"])
def test_our_metrics_load_from_a_space(hub, name):
    HfApi().create_repo(f"owner/{name}", repo_type="space", space_sdk="gradio")
    HfApi().upload_folder(repo_id=f"owner/{name}", repo_type="space", folder_path=drw_hf.metrics.path(name))
    metric = evaluate.load(f"owner/{name}")
    local = evaluate.load(drw_hf.metrics.path(name))
    rng = np.random.default_rng(0)
    if name == "p_snr":
        hashes = rng.random(200)
        inputs = {"predictions": 0.6 + 0.1 * np.cos(16 * hashes), "references": hashes, "frequency": 16.0}
    else:
        inputs = {"predictions": rng.dirichlet([1, 1], 50), "references": rng.dirichlet([1, 1], 50)}
    assert metric.compute(**inputs) == local.compute(**inputs)
