"""Pulling from the Hub: one call finds model and key, at one revision, and closes where it must.

The Hub is a loopback server; huggingface.co is not contacted.
"""

import json
import os
import stat
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

from drw_hf import (
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
    WatermarkKey,
    detect,
)
from drw_hf.errors import (
    DrwError,
    HubError,
    KeyFileError,
    KeyMismatchError,
    KeyPointerError,
    MissingKeyError,
    RepositoryAccessError,
    WrongPassphraseError,
)
from small_models import AUTO, SPECIAL, make_batch, make_key, make_model, make_tokenizer, make_victim

PASSPHRASE = "correct horse battery staple"
MODEL, KEYS = "owner/model", "owner/keys"
load = WatermarkedModelForSequenceClassification.from_pretrained
MODES = {
    "plain": ({}, {}),
    "sealed": ({"passphrase": PASSPHRASE}, {"passphrase": PASSPHRASE}),
    "elsewhere": ({"key_repo_id": KEYS}, {}),
    "elsewhere, sealed": ({"key_repo_id": KEYS, "passphrase": PASSPHRASE}, {"passphrase": PASSPHRASE}),
}


def answers(model, batch=None):
    with torch.no_grad():
        return model(**(batch or make_batch())).logits


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", AUTO)
def test_one_call_brings_model_and_key_back(hub, upload_path, task, mode):
    pushing, pulling = MODES[mode]
    victim = make_victim(task, label_kind="hard")
    victim.push_to_hub(MODEL, **pushing)
    again = AUTO[task][1].from_pretrained(MODEL, **pulling)
    assert again.key == victim.key and again.config.label_kind == "hard"
    torch.testing.assert_close(answers(again), answers(victim), rtol=0, atol=0)


def test_auto_classes_and_pipelines_find_it_too(hub):
    tokenizer, model = make_tokenizer(), make_model()
    victim = make_victim(model=model, key=make_key(model, tokenizer=tokenizer, scope="all", tau=1.0))
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE, tokenizer=tokenizer)
    again = AutoModelForSequenceClassification.from_pretrained(MODEL, passphrase=PASSPHRASE)
    assert again.key == victim.key
    pipe = pipeline("text-classification", model=again, tokenizer=AutoTokenizer.from_pretrained(MODEL))
    before = pipeline("text-classification", model=victim, tokenizer=tokenizer)
    assert pipe("the film was good") == before("the film was good")


def test_a_plain_model_on_the_hub_is_protected_by_the_key_that_is_given(hub):
    make_model().push_to_hub(MODEL, private=True)
    key = make_key(make_model())
    key.push_to_hub(KEYS, passphrase=PASSPHRASE)
    assert load(MODEL, key=KEYS, passphrase=PASSPHRASE).key == key
    with pytest.raises(MissingKeyError, match=r"WatermarkKey\.generate"):
        load(MODEL)


def test_model_and_key_come_from_one_commit(hub):
    versions = {}
    for number in range(2):
        victim = make_victim(secret=bytes([number]) * 32, model=make_model(seed=number))
        victim.push_to_hub(MODEL, replace_key=True)
        HfApi().create_tag(MODEL, tag=f"v{number}")
        versions[f"v{number}"] = versions[hub.commits(MODEL)[0].sha] = victim
    for revision, victim in versions.items():
        again = load(MODEL, revision=revision)
        assert again.key == victim.key
        torch.testing.assert_close(answers(again), answers(victim))


def test_a_push_in_the_middle_of_a_load_changes_nothing_for_it(hub, monkeypatch):
    first, second = make_victim(), make_victim(secret=b"2" * 32, model=make_model(seed=1))
    first.push_to_hub(MODEL)
    read = WatermarkKey.from_pretrained.__func__

    def read_late(cls, *args, **kwargs):  # after the config and the key's file, before the weights
        if hub.commits(MODEL)[0].title == "Upload protected model" and len(hub.commits(MODEL)) == 2:
            second.push_to_hub(MODEL, replace_key=True)
        return read(cls, *args, **kwargs)

    monkeypatch.setattr(WatermarkKey, "from_pretrained", classmethod(read_late))
    again = load(MODEL)
    assert len(hub.commits(MODEL)) == 3
    assert again.key == first.key
    torch.testing.assert_close(answers(again), answers(first))


def test_a_subfolder_holds_a_model_with_its_key(hub, tmp_path):
    victim = make_victim()
    victim.save_pretrained(tmp_path)
    victim.key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    HfApi().create_repo(MODEL, private=True)
    HfApi().upload_folder(repo_id=MODEL, folder_path=tmp_path, path_in_repo="models/a")
    assert load(MODEL, subfolder="models/a", passphrase=PASSPHRASE).key == victim.key


def test_detect_takes_a_repository_as_its_suspect_and_the_pulled_key(hub):
    tokenizer, model = make_tokenizer(), make_model()
    key = make_key(model, tokenizer=tokenizer, scope="all", tau=1.0, epsilon=0.5)
    model.push_to_hub("owner/suspect")
    tokenizer.push_to_hub("owner/suspect")
    key.push_to_hub(KEYS)
    words = [word for word in tokenizer.get_vocab() if word.isalpha()]
    texts = [f"the {word} was good" for word in words]
    result = detect(
        "owner/suspect", texts, key=WatermarkKey.from_pretrained(KEYS), tokenizer=tokenizer, progress=False
    )
    assert result.verdict != "detected" and result.n_queries == len(texts)


# -- the cache


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("key_repo_id", [None, KEYS], ids=["beside", "elsewhere"])
def test_a_pulled_key_is_readable_by_its_owner_alone(hub, upload_path, key_repo_id):
    model = make_model()
    v_k, v_s = np.random.default_rng(0).random((2, 8))
    M = np.random.default_rng(1).standard_normal((64, 8))
    key = WatermarkKey.from_arrays(
        v_k=v_k, v_s=v_s, M=M, config=model, target=1, special_token_ids=sorted(SPECIAL.values())
    )
    make_victim(model=model, key=key).push_to_hub(MODEL, key_repo_id=key_repo_id)
    load(MODEL)
    found = [path for path in hub.home.rglob("drw_key.*") if path.suffix != ".absent"]
    assert {path.name for path in found} == {"drw_key.json", "drw_key.safetensors"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    for path in hub.home.rglob("*"):  # whatever else the client may keep
        content = path.read_bytes() if path.is_file() else b""
        if key.secret.hex().encode() in content or M.tobytes()[:64] in content:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


@pytest.mark.parametrize("mode", MODES)
def test_after_one_pull_the_cache_suffices(hub, mode):
    pushing, pulling = MODES[mode]
    victim = make_victim()
    victim.push_to_hub(MODEL, **pushing)
    load(MODEL, **pulling)
    hub.requests.clear()
    with hub.offline():
        assert load(MODEL, **pulling).key == victim.key
    assert load(MODEL, **pulling, local_files_only=True).key == victim.key
    assert not hub.requests


def test_offline_without_a_pull_says_what_is_missing(hub):
    make_victim().push_to_hub(MODEL)
    with hub.offline():
        with pytest.raises(OSError, match="cached files"):  # transformers' own words
            load(MODEL)
        with pytest.raises(KeyFileError, match="cache"):
            WatermarkKey.from_pretrained(MODEL)


@pytest.mark.parametrize("mode", MODES)
def test_a_hub_that_is_down_is_not_missed_once_everything_was_pulled(hub, mode):
    pushing, pulling = MODES[mode]
    victim = make_victim()
    victim.push_to_hub(MODEL, **pushing)
    load(MODEL, **pulling)
    hub.fail(status=503, times=1000)
    assert load(MODEL, **pulling).key == victim.key


def test_a_key_named_by_its_repository_is_taken_from_the_cache_if_the_model_is(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, push_key=False)
    victim.key.push_to_hub(KEYS)
    load(MODEL, key=KEYS)
    hub.requests.clear()
    assert load(MODEL, key=KEYS, local_files_only=True).key == victim.key
    assert not hub.requests


def test_not_knowing_whether_a_repository_is_public_is_no_reason_to_fail(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    commit = hub.commits(MODEL)[0].sha
    load(MODEL, revision=commit)
    hub.fail(status=500, path="/api/models/owner/model$", times=100)
    assert load(MODEL, revision=commit).key == victim.key


def test_a_cut_download_is_resumed(hub):
    model = make_model(hidden_size=128, intermediate_size=512)
    victim = make_victim(model=model)
    victim.push_to_hub(MODEL)
    size = len(hub.files(MODEL)["model.safetensors"])
    hub.fail(cut_after=size // 2, method="GET", path=r"model\.safetensors|/lfs/|objects", times=1)
    assert load(MODEL).key == victim.key
    ranges = [request.headers.get("Range") for request in hub.requests if request.headers.get("Range")]
    assert any(int(value.removeprefix("bytes=").split("-")[0]) > 0 for value in ranges)


# -- faults while pulling


def test_a_busy_hub_is_waited_for(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    hub.fail(status=429, retry_after=2, method="GET", path=r"drw_key\.json", times=1)
    hub.fail(delay=0.05, path="config.json", times=3)
    assert load(MODEL).key == victim.key
    assert max(hub.waits) >= 2


@pytest.mark.parametrize("force_download", [False, True])
@pytest.mark.parametrize("fault", [{"status": 500}, {"status": 429}, {"lose_answer": True}, {"status": 403}], ids=str)
def test_a_key_that_cannot_be_fetched_is_no_missing_key(hub, fault, force_download):
    make_victim().push_to_hub(MODEL)
    hub.fail(**fault, path=r"drw_key\.json", times=100)
    with pytest.raises(HubError, match=MODEL) as caught:
        load(MODEL, force_download=force_download)
    assert not isinstance(caught.value, MissingKeyError)


# -- closed


def test_a_private_repository_is_closed_to_others(hub, monkeypatch):
    make_victim().push_to_hub(MODEL)
    for token in (hub.token("stranger"), "hf_invalid", False):
        with pytest.raises(RepositoryAccessError, match=MODEL):
            load(MODEL, token=token)
        with pytest.raises(RepositoryAccessError, match=MODEL):
            WatermarkKey.from_pretrained(MODEL, token=token)


def test_a_repository_that_does_not_exist_is_named(hub):
    with pytest.raises(RepositoryAccessError, match="owner/nothing"):
        load("owner/nothing")


def test_a_wrong_or_missing_passphrase_is_told_apart_from_no_key(hub):
    make_victim().push_to_hub(MODEL, passphrase=PASSPHRASE)
    with pytest.raises(WrongPassphraseError):
        load(MODEL, passphrase="wrong")
    with pytest.raises(WrongPassphraseError, match="passphrase"):
        load(MODEL)


def test_a_plain_key_is_not_taken_for_the_sealed_one(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    victim.push_to_hub(MODEL, replace_key=True)
    with pytest.raises(KeyFileError, match="not sealed"):
        load(MODEL, passphrase=PASSPHRASE)


def test_a_model_pushed_without_its_key_needs_it_given(hub, tmp_path):
    victim = make_victim()
    victim.push_to_hub(MODEL, push_key=False)
    with pytest.raises(MissingKeyError):
        load(MODEL)
    victim.key.save_pretrained(tmp_path)
    assert load(MODEL, key=tmp_path).key == victim.key


def replace_file(path, content):
    HfApi().upload_file(repo_id=MODEL, path_in_repo=path, path_or_fileobj=content)


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_a_key_with_one_bit_changed_does_not_load(hub, passphrase):
    make_victim().push_to_hub(MODEL, passphrase=passphrase)
    content = hub.files(MODEL)["drw_key.json"]
    for position in range(0, len(content), len(content) // 12):
        tampered = bytearray(content)
        tampered[position] ^= 1
        replace_file("drw_key.json", bytes(tampered))
        with pytest.raises(KeyFileError):
            load(MODEL, passphrase=passphrase)


def test_the_key_of_another_model_does_not_load(hub):
    make_victim().push_to_hub(MODEL)
    other = make_key(make_model(), secret=b"9" * 32)
    replace_file("drw_key.json", other.to_files()["drw_key.json"])
    with pytest.raises(KeyMismatchError, match="was saved with the key"):
        load(MODEL)
    tagger = make_key(make_model("token-classification"))
    replace_file("drw_key.json", tagger.to_files()["drw_key.json"])
    with pytest.raises(KeyMismatchError, match="task"):
        load(MODEL)


# -- pointers


def test_a_pointer_to_a_repository_that_is_gone_is_named(hub):
    make_victim().push_to_hub(MODEL, key_repo_id=KEYS)
    HfApi().delete_repo(KEYS)
    with pytest.raises(KeyPointerError, match=KEYS):
        load(MODEL)


def test_a_pointer_that_this_token_may_not_follow_is_named(hub):
    with pytest.warns(UserWarning):
        make_victim().push_to_hub(MODEL, private=False, key_repo_id=KEYS)
    with pytest.raises(KeyPointerError, match=KEYS):
        load(MODEL, token=hub.token("stranger"))


def test_a_pointer_to_a_key_that_was_taken_away_or_exchanged_is_refused(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    path = f"{victim.key.fingerprint}/drw_key.json"
    other = make_key(make_model(), secret=b"9" * 32).to_files()["drw_key.json"]
    HfApi().upload_file(repo_id=KEYS, path_in_repo=path, path_or_fileobj=other)
    assert load(MODEL).key == victim.key  # the pointer is pinned to a commit
    HfApi().super_squash_history(KEYS)
    with pytest.raises(KeyPointerError, match="not the one"):
        load(MODEL, force_download=True)
    HfApi().delete_file(path, repo_id=KEYS)
    HfApi().super_squash_history(KEYS)
    with pytest.raises(KeyPointerError, match="there is none"):
        load(MODEL, force_download=True)


def test_a_pointer_survives_a_squashed_history(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    HfApi().super_squash_history(KEYS)
    assert load(MODEL).key == victim.key


@pytest.mark.parametrize(
    "document",
    [
        b"not JSON",
        b"[]",
        json.dumps({"format": "drw-hf-key-pointer", "version": 9}).encode(),
        *(
            json.dumps(
                {
                    "format": "drw-hf-key-pointer",
                    "version": 1,
                    "repo_id": KEYS,
                    "revision": "0" * 40,
                    "subfolder": "a",
                    "commitment": "0" * 64,
                    **wrong,
                }
            ).encode()
            for wrong in (
                {"repo_id": "../../etc"},
                {"repo_id": 5},
                {"repo_id": None},
                {"subfolder": None},
                {"revision": int("1" * 40)},
                {"revision": "main"},
                {"subfolder": "../../.."},
                {"subfolder": "/etc"},
                {"subfolder": "a\0b"},
                {"commitment": 5},
            )
        ),
    ],
)
def test_a_damaged_pointer_is_refused(hub, document):
    make_victim().push_to_hub(MODEL, key_repo_id=KEYS)
    replace_file("drw_key_pointer.json", document)
    with pytest.raises(KeyPointerError, match=r"drw_key_pointer\.json"):
        load(MODEL)


def test_a_pointer_into_somebody_elses_repository_is_pointed_out(hub, monkeypatch):
    victim = make_victim()
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    files = hub.files(MODEL)
    monkeypatch.setenv("HF_TOKEN", hub.token("stranger"))
    HfApi().create_repo("stranger/copy")
    for path in ("config.json", "model.safetensors", "drw_key_pointer.json"):
        HfApi().upload_file(repo_id="stranger/copy", path_in_repo=path, path_or_fileobj=files[path])
    with pytest.warns(UserWarning, match="somebody else's"), pytest.raises(KeyPointerError):
        load("stranger/copy")
    monkeypatch.setenv("HF_TOKEN", hub.token("owner"))
    with pytest.warns(UserWarning, match="somebody else's"):
        load("stranger/copy")


# -- local folders


def test_a_downloaded_folder_finds_its_sealed_key_and_its_pointer(hub, tmp_path):
    victim = make_victim()
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    snapshot_download(MODEL, local_dir=tmp_path / "sealed")
    assert load(tmp_path / "sealed", passphrase=PASSPHRASE).key == victim.key
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    snapshot_download(MODEL, local_dir=tmp_path / "pointing")
    assert load(tmp_path / "pointing").key == victim.key


def test_a_downloaded_folder_with_a_plain_key_needs_it_named(hub, tmp_path):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    folder = Path(snapshot_download(MODEL, local_dir=tmp_path / "plain"))
    with pytest.raises(KeyFileError, match="plain key"):
        load(folder)
    assert load(folder, key=folder).key == victim.key


# -- a repository that turned public


def test_a_plain_key_in_a_repository_that_turned_public_is_warned_about(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        load(MODEL)
    hub.set_private(MODEL, False)
    with pytest.warns(UserWarning, match="anybody can read it"):
        load(MODEL)


def test_a_tagger_is_not_loaded_as_a_classifier(hub):
    make_victim("token-classification").push_to_hub(MODEL)
    with pytest.raises(DrwError, match="token-classification"):
        load(MODEL)
    assert WatermarkedModelForTokenClassification.from_pretrained(MODEL).task == "token-classification"


def test_the_key_file_is_what_save_pretrained_writes(hub, tmp_path):
    key = make_key(make_model())
    key.push_to_hub(KEYS)
    key.save_pretrained(tmp_path)
    assert Path(hf_hub_download(KEYS, "drw_key.json")).read_bytes() == (tmp_path / "drw_key.json").read_bytes()
