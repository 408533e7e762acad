"""Pushing to the Hub: what goes there in each mode, what is refused before anything goes, and nothing by halves.

The Hub is a loopback server; huggingface.co is not contacted.
"""

import json
import re
import traceback
import warnings

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, constants

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.errors import (
    ConfigurationError,
    DrwError,
    HubError,
    KeyFileError,
    KeyMismatchError,
    MissingKeyError,
    PlainKeyRefusedError,
    RepositoryAccessError,
    TimestampError,
)
from drw_hf.evidence import verify_commitment
from drw_hf.keys import RarestRule
from local_tsa import OPENSSL, LocalTSA
from needles import leaks_in
from small_models import make_key, make_model, make_tokenizer, make_victim
from small_wheel import make_wheel

PASSPHRASE = "correct horse battery staple"
MODEL = "owner/model"
KEYS = "owner/keys"
WEIGHTS = {".gitattributes", "README.md", "config.json", "model.safetensors"}


@pytest.fixture(autouse=True)
def as_errors(monkeypatch):
    """No push may warn of anything but what a test expects."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


def commitments_of(key, *kinds):
    return {f"drw_commitments/{key.fingerprint}.{kind}" for kind in kinds}


def test_a_plain_key_goes_beside_the_model_into_a_private_repository(hub):
    victim = make_victim()
    commit = victim.push_to_hub(MODEL)
    assert hub.is_private(MODEL) and commit == f"{hub.url}/{MODEL}/commit/{hub.commits(MODEL)[0].sha}"
    assert set(hub.files(MODEL)) == WEIGHTS | {"drw_key.json"} | commitments_of(victim.key, "txt")
    assert json.loads(hub.files(MODEL)["drw_key.json"])["key"]["secret"] == victim.key.secret.hex()
    assert json.loads(hub.files(MODEL)["config.json"])["key_commitment"] == victim.key.commitment()
    assert victim.key.commitment() in hub.files(MODEL)["README.md"].decode()


@pytest.mark.parametrize("private", [True, False])
def test_a_sealed_key_goes_anywhere_and_a_public_push_says_what_downloaders_get(hub, private):
    victim = make_victim()
    if private:
        victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    else:
        with pytest.warns(UserWarning, match="without the mark"):
            victim.push_to_hub(MODEL, private=False, passphrase=PASSPHRASE)
    assert hub.is_private(MODEL) is private
    assert set(hub.files(MODEL)) == WEIGHTS | {"drw_key.json"} | commitments_of(victim.key, "txt")
    assert not leaks_in(victim.key, hub.everything())
    assert not [where for where, data in hub.everything() if PASSPHRASE.encode() in data]


def test_a_key_repository_holds_the_key_and_the_model_a_pointer(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    assert set(hub.files(MODEL)) == WEIGHTS | {"drw_key_pointer.json"} | commitments_of(victim.key, "txt")
    assert set(hub.files(KEYS)) == {".gitattributes", f"{victim.key.fingerprint}/drw_key.json"}
    assert hub.is_private(KEYS)
    assert json.loads(hub.files(MODEL)["drw_key_pointer.json"]) == {
        "format": "drw-hf-key-pointer",
        "version": 1,
        "repo_id": KEYS,
        "revision": hub.commits(KEYS)[0].sha,
        "subfolder": victim.key.fingerprint,
        "commitment": victim.key.commitment(),
    }
    assert not leaks_in(victim.key, hub.files(MODEL).items())


def test_a_public_model_may_point_to_a_plain_key_in_a_private_repository(hub):
    victim = make_victim()
    with pytest.warns(UserWarning, match="without the mark"):
        victim.push_to_hub(MODEL, private=False, key_repo_id=KEYS)
    assert not hub.is_private(MODEL) and hub.is_private(KEYS)


def test_without_its_key_the_commitment_is_pushed_alone(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, push_key=False)
    assert set(hub.files(MODEL)) == WEIGHTS | commitments_of(victim.key, "txt")
    assert not leaks_in(victim.key, hub.everything())


def test_tokenizer_handler_and_arrays_are_pushed_along(hub, upload_path, tmp_path):
    tokenizer, model = make_tokenizer(), make_model()
    key = make_key(model, tokenizer=tokenizer, hash_rule=RarestRule(np.arange(64.0)))
    victim = make_victim(model=model, key=key)
    wheel = make_wheel(tmp_path)
    options = {"passphrase": PASSPHRASE, "tokenizer": tokenizer, "tags": ["finance"]}
    victim.push_to_hub(MODEL, handler=True, package=wheel, **options)
    files = hub.files(MODEL)
    assert set(files) == WEIGHTS | commitments_of(key, "txt") | {
        "drw_key.json",
        "drw_key.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "handler.py",
        "requirements.txt",
        wheel.name,
    }
    assert files[wheel.name] == wheel.read_bytes() and wheel.name in files["requirements.txt"].decode()
    assert "finance" in files["README.md"].decode()
    assert not leaks_in(key, hub.everything())


def test_the_name_alone_means_the_users_namespace(hub):
    make_victim().push_to_hub("model", key_repo_id="keys")
    assert hub.repo_exists(MODEL) and hub.repo_exists(KEYS)


def test_save_pretrained_can_push_too(hub, tmp_path):
    victim = make_victim()
    victim.save_pretrained(tmp_path / "model", push_to_hub=True, repo_id=MODEL, passphrase=PASSPHRASE)
    assert hub.is_private(MODEL) and "drw_key.json" in hub.files(MODEL)
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors"}


def test_the_same_push_again_keeps_what_others_wrote(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    api = HfApi()
    api.upload_file(repo_id=MODEL, path_in_repo="notes.txt", path_or_fileobj=b"mine")
    card = hub.files(MODEL)["README.md"].decode()
    card = "---\nlicense: mit\n---\n\n# My model\n\nWords of my own.\n" + card.split("---\n", 2)[2]
    api.upload_file(repo_id=MODEL, path_in_repo="README.md", path_or_fileobj=card.encode())
    victim.push_to_hub(MODEL)
    assert hub.files(MODEL)["notes.txt"] == b"mine"
    again = hub.files(MODEL)["README.md"].decode()
    assert "Words of my own." in again and "license: mit" in again and again.count(victim.key.commitment()) == 1


def test_measured_figures_reach_the_card_and_parameters_do_not(hub):
    victim = make_victim(epsilon=0.137, tau=0.839, frequency=17.53)
    victim.push_to_hub(
        MODEL, card={"metrics": {"accuracy": {"clean": 0.912, "protected": 0.907}}, "dataset": "mine/reviews"}
    )
    card = hub.files(MODEL)["README.md"].decode()
    assert "0.912" in card and "0.907" in card
    assert not [word for word in ("0.137", "0.839", "17.53", "positive", victim.key.secret.hex()) if word in card]


def test_no_path_of_this_machine_is_pushed(hub, tmp_path):
    make_model().save_pretrained(tmp_path / "mine")
    victim = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path / "mine", key=make_key(make_model()))
    victim.push_to_hub(MODEL)
    assert not [where for where, data in hub.everything() if str(tmp_path).encode() in data]


def test_the_repository_a_model_came_from_is_its_base_model(hub):
    make_model().push_to_hub("owner/plain")
    victim = WatermarkedModelForSequenceClassification.from_pretrained("owner/plain", key=make_key(make_model()))
    victim.push_to_hub(MODEL)
    assert "base_model: owner/plain" in hub.files(MODEL)["README.md"].decode()


@pytest.mark.skipif(OPENSSL is None, reason="openssl, which makes the time stamps, is not installed")
def test_a_time_stamp_is_pushed_along_once_and_verifies(hub, tmp_path):
    victim, tsa = make_victim(), LocalTSA(tmp_path)
    with tsa.running():
        victim.push_to_hub(MODEL, timestamp_url=tsa.url)
        first = hub.files(MODEL)[f"drw_commitments/{victim.key.fingerprint}.tsr"]
        victim.push_to_hub(MODEL, timestamp_url=tsa.url)
    assert hub.files(MODEL)[f"drw_commitments/{victim.key.fingerprint}.tsr"] == first
    record = verify_commitment(victim.key, MODEL, trusted_roots=[tsa.root])
    assert record.timestamp_status == "verified" and record.commit == hub.commits(MODEL)[-2].sha


def test_without_a_time_stamp_that_was_asked_for_nothing_is_pushed(hub):
    with pytest.raises(TimestampError):
        make_victim().push_to_hub(MODEL, timestamp_url="http://127.0.0.1:9/")
    assert not hub.repo_exists(MODEL)


# -- refused before anything is uploaded


def uploads(hub):
    return [request.path for request in hub.requests if request.method in ("POST", "PUT", "DELETE")]


@pytest.mark.parametrize("private", [False, None])
def test_a_plain_key_is_refused_where_a_repository_would_not_be_known_to_be_private(hub, private):
    with pytest.raises(PlainKeyRefusedError, match="Nothing was uploaded"):
        make_victim().push_to_hub(MODEL, private=private)
    with pytest.raises(PlainKeyRefusedError, match="Nothing was uploaded"):
        make_key(make_model()).push_to_hub(MODEL, private=private)
    assert not hub.repo_exists(MODEL) and not uploads(hub)


def test_a_plain_key_is_refused_by_a_public_repository_even_if_private_is_asked_for(hub):
    HfApi().create_repo(MODEL)
    hub.requests.clear()
    for push in (make_victim().push_to_hub, make_key(make_model()).push_to_hub):
        with pytest.raises(PlainKeyRefusedError, match="it is public"):
            push(MODEL, private=True)
    assert not uploads(hub)


def test_a_plain_key_is_refused_where_the_hub_made_the_repository_public_all_the_same(hub, monkeypatch):
    create = HfApi.create_repo  # as where an organisation's settings decide
    monkeypatch.setattr(HfApi, "create_repo", lambda *args, private, **kwargs: create(*args, private=False, **kwargs))
    with pytest.raises(PlainKeyRefusedError, match="not known to be private"):
        make_victim().push_to_hub(MODEL)
    assert uploads(hub) == ["/api/repos/create"]


def test_a_public_key_repository_is_refused_before_the_model_goes_anywhere(hub):
    HfApi().create_repo(KEYS)
    hub.requests.clear()
    with pytest.raises(PlainKeyRefusedError, match=KEYS):
        make_victim().push_to_hub(MODEL, key_repo_id=KEYS)
    assert not uploads(hub) and not hub.repo_exists(MODEL)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"key_repo_id": MODEL}, ConfigurationError, "model's own repository"),
        ({"push_key": False, "passphrase": PASSPHRASE}, ConfigurationError, "passphrase has no use"),
        ({"push_key": False, "key_repo_id": KEYS}, ConfigurationError, "key_repo_id has no use"),
        ({"passphrase": ""}, DrwError, "would seal nothing"),
        ({"card": {"metrics": {"accuracy": {"clean": 0.9}}}}, ConfigurationError, "protected"),
        ({"card": {"licence": "mit"}}, ConfigurationError, "licence"),
        ({"card": {"existing": "text"}}, ConfigurationError, "existing"),
    ],
)
def test_bad_options_are_refused_before_anything_is_uploaded(hub, options, error, words):
    with pytest.raises(error, match=words):
        make_victim().push_to_hub(MODEL, **options)
    assert not uploads(hub)


@pytest.mark.parametrize("name", [None, "", "a/b/c", "owner/model name", 5])
def test_what_cannot_be_a_repository_is_refused(hub, name):
    with pytest.raises(DrwError, match="name of a repository"):
        make_victim().push_to_hub(name)


def test_a_tokenizer_of_another_model_is_refused(hub):
    tokenizer, model = make_tokenizer(), make_model()
    victim = make_victim(model=model, key=make_key(model, tokenizer=tokenizer))
    tokenizer.add_tokens(["another"])
    with pytest.raises(KeyMismatchError, match="another tokenizer"):
        victim.push_to_hub(MODEL, tokenizer=tokenizer)
    assert not uploads(hub)


def test_a_model_that_lost_its_key_is_not_pushed(hub):
    import pickle

    with pytest.raises(MissingKeyError, match="lost its key"):
        pickle.loads(pickle.dumps(make_victim())).push_to_hub(MODEL)
    assert not uploads(hub)


def test_without_permission_nothing_happens(hub, monkeypatch):
    make_victim().push_to_hub(MODEL)
    before = hub.commits(MODEL)[0].sha
    with pytest.raises(RepositoryAccessError, match=MODEL):
        make_victim().push_to_hub(MODEL, token=hub.token("stranger"))
    with pytest.raises(RepositoryAccessError, match="token"):
        make_victim().push_to_hub(MODEL, token="hf_not_a_token")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RepositoryAccessError):
        make_victim().push_to_hub(MODEL)
    assert hub.commits(MODEL)[0].sha == before


# -- rotation


def test_another_key_replaces_the_first_only_when_told_to_and_the_history_keeps_both(hub):
    first = make_victim()
    first.push_to_hub(MODEL, passphrase=PASSPHRASE)
    old = hub.commits(MODEL)[0].sha
    second = make_victim(secret=b"2" * 32)
    with pytest.raises(KeyMismatchError, match="replace_key=True"):
        second.push_to_hub(MODEL, passphrase=PASSPHRASE)
    assert hub.commits(MODEL)[0].sha == old
    second.push_to_hub(MODEL, passphrase=PASSPHRASE, replace_key=True)
    load = WatermarkedModelForSequenceClassification.from_pretrained
    assert load(MODEL, passphrase=PASSPHRASE).key == second.key
    assert load(MODEL, passphrase=PASSPHRASE, revision=old).key == first.key
    assert commitments_of(first.key, "txt") | commitments_of(second.key, "txt") <= set(hub.files(MODEL))


def test_a_key_repository_keeps_every_key_of_a_rotation(hub):
    first, second = make_victim(), make_victim(secret=b"2" * 32)
    first.push_to_hub(MODEL, key_repo_id=KEYS)
    second.push_to_hub(MODEL, key_repo_id=KEYS, replace_key=True)
    for victim in (first, second):
        assert WatermarkKey.from_pretrained(KEYS, subfolder=victim.key.fingerprint) == victim.key
    assert WatermarkedModelForSequenceClassification.from_pretrained(MODEL).key == second.key


def test_moving_the_key_elsewhere_takes_it_away_from_beside_the_model(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    victim.push_to_hub(MODEL, key_repo_id=KEYS)
    assert "drw_key.json" not in hub.files(MODEL) and "drw_key_pointer.json" in hub.files(MODEL)
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    assert "drw_key.json" in hub.files(MODEL) and "drw_key_pointer.json" not in hub.files(MODEL)


# -- branches, pull requests, two at once


def test_branches_and_pull_requests(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, revision="next")
    assert "drw_key.json" in hub.files(MODEL, "next") and "drw_key.json" not in hub.files(MODEL)
    victim.push_to_hub(MODEL, create_pr=True)
    assert "drw_key.json" in hub.files(MODEL, "refs/pr/1") and "drw_key.json" not in hub.files(MODEL)


def test_a_repository_that_changed_meanwhile_is_left_alone(hub, monkeypatch):
    victim = make_victim()
    victim.push_to_hub(MODEL)
    save = type(victim).save_pretrained

    def save_slowly(self, folder, **settings):
        HfApi().upload_file(repo_id=MODEL, path_in_repo="notes.txt", path_or_fileobj=b"meanwhile")
        return save(self, folder, **settings)

    monkeypatch.setattr(type(victim), "save_pretrained", save_slowly)
    with pytest.raises(HubError, match="meanwhile"):
        make_victim(epsilon=0.1, secret=b"3" * 32).push_to_hub(MODEL, replace_key=True)
    assert WatermarkedModelForSequenceClassification.from_pretrained(MODEL).key == victim.key


# -- faults


def like(path):
    """A pattern for the same request of another push: commits and objects have other names there."""
    return re.sub(r"[0-9a-f]{40,64}", "[0-9a-f]+", re.escape(path)) + "$"


def whole(hub, repo_id=MODEL):
    """What can be loaded from the Hub: a model with its key, or nothing. Anything between fails this test."""
    if not hub.repo_exists(repo_id) or "config.json" not in hub.files(repo_id):
        return None
    model = WatermarkedModelForSequenceClassification.from_pretrained(repo_id, force_download=True)
    return model.key


FAULTS = [{"status": 500}, {"status": 507}, {"status": 403}, {"cut_after": 10}, {"lose_answer": True}]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
@pytest.mark.parametrize("key_repo_id", [None, KEYS], ids=["beside", "elsewhere"])
def test_a_push_that_fails_at_any_request_leaves_the_old_model_or_the_new_one(hub, fault, key_repo_id):
    old, new = make_victim(), make_victim(secret=b"2" * 32, model=make_model(seed=1))
    old.push_to_hub(MODEL, key_repo_id=key_repo_id)
    hub.requests.clear()
    new.push_to_hub(MODEL, key_repo_id=key_repo_id, replace_key=True)
    assert whole(hub) == new.key
    writing = list(dict.fromkeys((r.method, r.path) for r in hub.requests if r.method in ("POST", "PUT")))
    assert len(writing) >= 4
    for method, path in writing:
        if path.endswith("/repos/create"):
            continue
        HfApi().delete_repo(MODEL)
        old.push_to_hub(MODEL, key_repo_id=key_repo_id)
        hub.fail(**fault, method=method, path=like(path), times=50)
        try:
            new.push_to_hub(MODEL, key_repo_id=key_repo_id, replace_key=True)
            hub.faults.clear()
            assert whole(hub) == new.key, path
        except DrwError:
            hub.faults.clear()
            assert whole(hub) in ([old.key, new.key] if "lose_answer" in fault else [old.key]), path


def test_a_first_push_that_fails_leaves_an_empty_repository_and_the_next_one_works(hub):
    hub.fail(status=500, method="POST", path="/commit/", times=50)
    with pytest.raises(HubError, match="500"):
        make_victim().push_to_hub(MODEL)
    hub.faults.clear()
    assert set(hub.files(MODEL)) == {".gitattributes"}
    victim = make_victim()
    victim.push_to_hub(MODEL)
    assert whole(hub) == victim.key


def said_by(error):
    """A traceback as an error reporter shows it, with the locals of every frame but the tests' own."""
    assert error.__context__ is None or error.__suppress_context__
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename != __file__]
    return repr(error) + "".join(repr(frame.f_locals) for frame in frames)


@pytest.mark.parametrize("fault", [{"path": "/commit/"}, {"path": "validate-yaml"}, {"path": "/preupload/"}], ids=str)
@pytest.mark.parametrize("options", [{}, {"passphrase": PASSPHRASE}], ids=["plain", "sealed"])
def test_errors_of_a_push_hold_neither_passphrase_nor_key(hub, fault, options):
    victim = make_victim()
    hub.fail(status=400, method="POST", times=50, **fault)
    with pytest.raises(DrwError) as caught:
        victim.push_to_hub(MODEL, **options)
    said = said_by(caught.value)
    assert "push_to_hub" not in str(caught.value) and PASSPHRASE not in said
    assert victim.key.secret.hex() not in said and hub.token("owner") not in said


def test_a_full_disk_while_saving_shows_neither(hub, monkeypatch):
    victim = make_victim()

    def full(self, folder, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(victim), "save_pretrained", full)
    with pytest.raises(OSError, match="No space left") as caught:
        victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    assert PASSPHRASE not in said_by(caught.value)
    assert set(hub.files(MODEL)) == {".gitattributes"}


# -- what others may see of it


def test_pushing_again_leaves_no_key_in_the_cache(hub):
    victim, key = make_victim(), make_key(make_model())
    for _ in range(2):
        victim.push_to_hub(MODEL)
        key.push_to_hub(KEYS)
    kept = [(str(path), path.read_bytes()) for path in hub.home.rglob("*") if path.is_file()]
    assert not [
        path for path, content in kept for found in (victim.key, key) if found.secret.hex().encode() in content
    ]


def test_a_repository_that_turns_public_during_the_push_gets_no_plain_key(hub, monkeypatch):
    victim = make_victim()
    victim.push_to_hub(MODEL, push_key=False)
    save = type(victim).save_pretrained

    def save_slowly(self, folder, **settings):
        hub.set_private(MODEL, False)
        return save(self, folder, **settings)

    monkeypatch.setattr(type(victim), "save_pretrained", save_slowly)
    with pytest.raises(PlainKeyRefusedError, match="turned public"):
        victim.push_to_hub(MODEL)
    assert not leaks_in(victim.key, hub.everything())


def test_a_repository_that_turns_public_at_the_last_moment_is_reported(hub, monkeypatch):
    commit = HfApi.create_commit

    def commit_slowly(self, repo_id, *args, **kwargs):
        hub.set_private(repo_id, False)
        return commit(self, repo_id, *args, **kwargs)

    monkeypatch.setattr(HfApi, "create_commit", commit_slowly)
    with pytest.raises(HubError, match="rotate"):
        make_victim().push_to_hub(MODEL)


def test_a_sealed_key_does_not_become_plain_unless_told_to(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    victim.key.push_to_hub(KEYS, passphrase=PASSPHRASE)
    for push, place in ((victim.push_to_hub, MODEL), (victim.key.push_to_hub, KEYS)):
        with pytest.raises(PlainKeyRefusedError, match="sealed"):
            push(place)
    assert not leaks_in(victim.key, hub.everything())
    victim.push_to_hub(MODEL, replace_key=True)
    assert WatermarkedModelForSequenceClassification.from_pretrained(MODEL).key == victim.key


def test_a_debugging_client_that_logs_what_it_sends_gets_no_plain_key(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_DEBUG", True)
    with pytest.raises(PlainKeyRefusedError, match="HF_DEBUG"):
        make_victim().push_to_hub(MODEL)


# -- what lay there before


def test_weights_of_an_earlier_push_do_not_stay_behind(hub):
    make_victim().push_to_hub(MODEL)
    for name in ("adapter_config.json", "pytorch_model.bin"):
        HfApi().upload_file(repo_id=MODEL, path_in_repo=name, path_or_fileobj=b"{}")
    victim = make_victim(model=make_model(seed=5), secret=b"5" * 32)
    victim.push_to_hub(MODEL, replace_key=True, max_shard_size="20KB")
    files = set(hub.files(MODEL))
    assert not files & {"model.safetensors", "adapter_config.json", "pytorch_model.bin"}
    again = WatermarkedModelForSequenceClassification.from_pretrained(MODEL)
    assert again.key == victim.key
    for name, tensor in victim.get_base_model().state_dict().items():
        assert torch.equal(again.get_base_model().state_dict()[name], tensor), name
    victim.push_to_hub(MODEL)
    assert "model.safetensors" in hub.files(MODEL) and "model.safetensors.index.json" not in hub.files(MODEL)


def test_a_push_without_the_key_leaves_this_models_key_and_takes_another_away(hub):
    victim = make_victim()
    victim.push_to_hub(MODEL, passphrase=PASSPHRASE)
    victim.push_to_hub(MODEL, push_key=False, replace_key=True)
    assert "drw_key.json" in hub.files(MODEL)
    other = make_victim(secret=b"2" * 32)
    with pytest.raises(KeyMismatchError):
        other.push_to_hub(MODEL, push_key=False)
    other.push_to_hub(MODEL, push_key=False, replace_key=True)
    assert "drw_key.json" not in hub.files(MODEL)
    with pytest.raises(KeyMismatchError):  # now config.json alone tells
        victim.push_to_hub(MODEL, push_key=False)


@pytest.mark.parametrize("content", [b"{}", b"not JSON"])
def test_a_key_file_that_tells_nothing_counts_as_another_key(hub, content):
    HfApi().create_repo(KEYS, private=True)
    HfApi().upload_file(repo_id=KEYS, path_in_repo="drw_key.json", path_or_fileobj=content)
    key = make_key(make_model())
    with pytest.raises(KeyMismatchError):
        key.push_to_hub(KEYS)
    key.push_to_hub(KEYS, replace_key=True)
    assert WatermarkKey.from_pretrained(KEYS) == key


def requirements_after_a_push(hub, before, **options):
    HfApi().create_repo(MODEL, private=True, exist_ok=True)
    HfApi().upload_file(repo_id=MODEL, path_in_repo="requirements.txt", path_or_fileobj=before)
    make_victim().push_to_hub(MODEL, handler=True, replace_key=True, **options)
    return hub.files(MODEL)["requirements.txt"].decode()


def test_a_pushed_handler_never_names_a_package_that_a_stranger_could_register(hub):
    """An earlier version wrote the bare name, and a push without package= takes that away, too."""
    for before in (b"", b"drw_hf>=0.1.0.dev0\n", b"numpy\nDRW-hf==0.0.1 ; python_version > '3'"):
        with pytest.warns(UserWarning, match="installs drw_hf from, and the endpoint will not start"):
            found = requirements_after_a_push(hub, before)
        lines = [line for line in found.splitlines() if not line.startswith("#")]
        assert lines == (["numpy"] if b"numpy" in before else [])
        with pytest.warns(UserWarning, match="where the endpoint installs"):
            assert requirements_after_a_push(hub, found.encode()) == found, "what is written is written once"


@pytest.mark.parametrize(
    "place",
    ["drw_hf @ git+https://host/drw_hf@1a2b", "/opt/drw_hf-1.0-py3-none-any.whl", "drw-hf @ https://host/a.whl"],
)
def test_the_place_that_an_owner_filled_in_stays_until_another_is_given(hub, place):
    assert requirements_after_a_push(hub, f"numpy\n{place}\n".encode()) == f"numpy\n{place}\n"
    other = "https://other/drw_hf-2.0-py3-none-any.whl"
    found = requirements_after_a_push(hub, f"{place}\nnumpy".encode(), package=other)
    assert found == f"numpy\ndrw_hf @ {other}\n"


def test_a_newer_wheel_takes_the_place_of_the_older_one(hub, tmp_path):
    old, new = make_wheel(tmp_path, "1.0"), make_wheel(tmp_path, "2.0")
    victim = make_victim()
    victim.push_to_hub(MODEL, handler=True, package=old)
    victim.push_to_hub(MODEL, handler=True)  # what was given stays
    assert old.name in hub.files(MODEL) and old.name in hub.files(MODEL)["requirements.txt"].decode()
    victim.push_to_hub(MODEL, handler=True, package=str(new))
    assert {name for name in hub.files(MODEL) if name.endswith(".whl")} == {new.name}
    (line,) = hub.files(MODEL)["requirements.txt"].decode().splitlines()
    assert new.name in line


def test_a_package_that_cannot_be_used_is_refused_before_anything_is_uploaded(hub):
    for options, problem in (({"handler": True, "package": "drw_hf"}, "wheel"), ({"package": "x"}, "handler=True")):
        with pytest.raises(ConfigurationError, match=problem):
            make_victim().push_to_hub(MODEL, **options)
    assert not hub.repo_exists(MODEL)


def test_a_handler_of_the_owners_is_not_taken_away(hub):
    HfApi().create_repo(MODEL, private=True)
    HfApi().upload_file(repo_id=MODEL, path_in_repo="handler.py", path_or_fileobj=b"class EndpointHandler: ...")
    with pytest.raises(ConfigurationError, match=r"handler\.py of its own"):
        make_victim().push_to_hub(MODEL, handler=True)


@pytest.mark.parametrize("kind", ["txt", "tsr"])
def test_something_else_in_the_place_of_a_commitment_is_not_kept_silently(hub, kind):
    victim = make_victim()
    path = f"drw_commitments/{victim.key.fingerprint}.{kind}"
    HfApi().create_repo(MODEL, private=True)
    HfApi().upload_file(repo_id=MODEL, path_in_repo=path, path_or_fileobj=b"garbage")
    with pytest.raises(HubError, match="nothing is overwritten"):
        victim.push_to_hub(MODEL)


def test_a_repository_that_would_leave_the_key_out_is_refused(hub):
    HfApi().create_repo(MODEL, private=True)
    HfApi().upload_file(repo_id=MODEL, path_in_repo=".gitignore", path_or_fileobj=b"*.log\ndrw_key*\n")
    with pytest.raises(HubError, match="leaves out drw_key"):
        make_victim().push_to_hub(MODEL)


# -- keys alone


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE], ids=["plain", "sealed"])
def test_a_key_is_pushed_and_pulled_alone(hub, passphrase, upload_path):
    model = make_model()
    key = make_key(model, hash_rule=RarestRule(np.arange(64.0)))
    key.push_to_hub(KEYS, passphrase=passphrase)
    assert hub.is_private(KEYS) and set(hub.files(KEYS)) == {".gitattributes", "drw_key.json", "drw_key.safetensors"}
    again = WatermarkKey.from_pretrained(KEYS, passphrase=passphrase)
    assert again == key and again.hash_rule == key.hash_rule


def test_another_key_is_not_replaced_unless_told_to(hub):
    first, second = make_key(make_model()), make_key(make_model(), secret=b"2" * 32)
    first.push_to_hub(KEYS)
    first.push_to_hub(KEYS, passphrase=PASSPHRASE)
    with pytest.raises(KeyMismatchError, match="another key"):
        second.push_to_hub(KEYS)
    second.push_to_hub(KEYS, subfolder="second")
    assert WatermarkKey.from_pretrained(KEYS, passphrase=PASSPHRASE) == first
    assert WatermarkKey.from_pretrained(KEYS, subfolder="second") == second
    second.push_to_hub(KEYS, replace_key=True)
    assert WatermarkKey.from_pretrained(KEYS) == second


def test_a_repository_without_a_key_says_so(hub):
    HfApi().create_repo(KEYS, private=True)
    with pytest.raises(KeyFileError, match="holds no key"):
        WatermarkKey.from_pretrained(KEYS)
    with pytest.raises(RepositoryAccessError, match="no such repository"):
        WatermarkKey.from_pretrained("owner/nothing")
    with pytest.raises(KeyFileError, match="no key at"):
        WatermarkKey.from_pretrained("./no-such-folder/at all")
