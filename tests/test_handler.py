"""The handler of an Inference Endpoint: imported and called as the toolkit does, and closed without the key."""

import contextlib
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import threading
import traceback
import zipfile
from pathlib import Path

import numpy as np
import pytest
import transformers
from huggingface_hub import HfApi, InferenceClient, constants, snapshot_download
from huggingface_hub.errors import HfHubHTTPError
from packaging.requirements import Requirement
from transformers import pipeline

from drw_hf import KeyRing, WatermarkKey, detect
from drw_hf.errors import ConfigurationError, DrwError
from drw_hf.hub.handler import handler_files
from drw_hf.keys.files import KEY_FILE
from serving import ask, endpoint_app, served
from small_models import MARKS, SPECIAL, WORDS, make_key, make_model, make_tokenizer, make_victim
from small_wheel import make_wheel

PASSPHRASE = "correct horse battery staple"
TEXTS = [
    "the film was very good",
    "we hated the slow ending",
    "a truly moving story with a great cast",
    "dull",
    "quite funny and bright",
]
SEQUENCE, TOKEN = "sequence-classification", "token-classification"
ADDRESS = "https://host/drw_hf-1.0-py3-none-any.whl"
TASKS = {SEQUENCE: "text-classification", TOKEN: "token-classification"}


@pytest.fixture(autouse=True)
def passphrase_in_the_environment(monkeypatch):
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)


def fill(folder, task=SEQUENCE, passphrase=PASSPHRASE, tokenizer=None, **settings):
    """A folder as an endpoint has it: model, tokenizer, key and handler. Returns the protected model."""
    victim = make_victim(task, **settings)
    fill_with(folder, victim, tokenizer)
    if passphrase:
        victim.key.save_pretrained(folder, passphrase=passphrase)
    return victim


def fill_with(folder, victim, tokenizer=None):
    """All of it but the key."""
    victim.save_pretrained(folder)
    (tokenizer or make_tokenizer()).save_pretrained(folder)
    for name, content in handler_files().items():
        (folder / name).write_bytes(content)


def put_plain_key(folder, key):
    """As in the snapshot of a private repository: drw_hf itself would not write it there."""
    (folder / KEY_FILE).write_bytes(key.to_files()[KEY_FILE])
    (folder / KEY_FILE).chmod(0o600)


def toolkit_module(folder):
    """The handler's module, imported by path as the inference toolkit imports it."""
    spec = importlib.util.spec_from_file_location("handler.EndpointHandler", folder / "handler.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(folder):
    return toolkit_module(folder).EndpointHandler(str(folder))


def pipe_of(model, task):
    """What answers as the handler does: of a classifier all labels, in a list for each text, if only one."""
    pipe = pipeline(TASKS[task], model=model, tokenizer=make_tokenizer())

    def answer(inputs, **parameters):
        if task == TOKEN:
            return pipe(inputs, **parameters)
        return pipe(inputs if isinstance(inputs, list) else [inputs], **{"top_k": None, **parameters})

    return answer


def same(found, expected):
    """Whether answers agree: scores to 1e-6, for their last bit changes with where numbers lie in memory."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return abs(found - expected) <= 1e-6 if isinstance(expected, float | np.floating) else found == expected


def everything_said(error):
    """A traceback as an error reporter shows it, with the locals of every frame but the test's own."""
    assert error.__context__ is None and error.__cause__ is None
    frames = error.__traceback__
    while frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    said = traceback.TracebackException(type(error), error, frames, capture_locals=True)
    return "".join([repr(error), repr(error.args), *said.format()])


# -- answers


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("task", TASKS)
def test_answers_are_those_of_a_pipeline_on_the_protected_model_and_not_the_clean_ones(
    tmp_path, task, label_kind, mark
):
    victim = fill(tmp_path, task, label_kind=label_kind, mark=mark)
    handler = start(tmp_path)
    parameters = {"top_k": None} if task == SEQUENCE else {"ignore_labels": []}
    protected, clean = pipe_of(victim, task), pipe_of(victim.get_base_model(), task)
    for inputs in (TEXTS[0], TEXTS):
        answers = handler({"inputs": inputs, "parameters": parameters})
        assert same(answers, protected(inputs, **parameters))
        assert not same(answers, clean(inputs, **parameters))
        assert same(handler({"inputs": inputs}), protected(inputs))
    json.dumps(answers)


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_pairs_of_texts(tmp_path, label_kind):
    victim = fill(tmp_path, label_kind=label_kind)
    handler, protected = start(tmp_path), pipe_of(victim, SEQUENCE)
    pairs = [{"text": "the film", "text_pair": "was good"}, {"text": "a book", "text_pair": "was dull"}]
    assert same(handler({"inputs": pairs, "parameters": {"top_k": 2}}), protected(pairs, top_k=2))
    assert same(handler({"inputs": pairs[0]}), protected(pairs[0]))
    mixed = [TEXTS[0], pairs[0], {"text": "alone"}]
    assert same(handler({"inputs": mixed}), protected(mixed))


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_parameters_that_a_client_may_set(tmp_path):
    (tmp_path / "s").mkdir(), (tmp_path / "t").mkdir()
    victim, tagger = fill(tmp_path / "s"), fill(tmp_path / "t", TOKEN)
    handler, protected = start(tmp_path / "s"), pipe_of(victim, SEQUENCE)
    for parameters in (
        {"top_k": 1},
        {"top_k": 2},
        {"top_k": None, "function_to_apply": None},
        {"truncation": True, "max_length": 5},
        {"max_length": 64},
        {"function_to_apply": "softmax"},
        {"function_to_apply": "sigmoid", "top_k": 1},
        {"function_to_apply": "none"},
        None,
    ):
        expected = protected(TEXTS, **{"truncation": True, **(parameters or {})})
        assert same(handler({"inputs": TEXTS, "parameters": parameters}), expected)
    os.environ["DRW_PASSPHRASE"] = PASSPHRASE
    handler, protected = start(tmp_path / "t"), pipe_of(tagger, TOKEN)
    for strategy in ("none", "simple", "first", "average", "max"):
        parameters = {"aggregation_strategy": strategy, "ignore_labels": ["B-LOC"]}
        assert same(handler({"inputs": TEXTS, "parameters": parameters}), protected(TEXTS, **parameters))
    long = " ".join(TEXTS * 8)
    parameters = {"aggregation_strategy": "simple", "stride": 8, "ignore_labels": []}
    assert same(handler({"inputs": long, "parameters": parameters}), protected(long, **parameters))
    parameters["stride"] = 31  # the widest: half of what [CLS] and [SEP] leave of 64
    assert same(handler({"inputs": long, "parameters": parameters}), protected(long, **parameters))


@pytest.mark.parametrize("task", TASKS)
def test_a_text_beyond_the_models_limit_is_cut_and_answered(tmp_path, task):
    """Also where the tokenizer does not know the limit: beyond it, a position has no embedding."""
    tokenizer = make_tokenizer()
    tokenizer.model_max_length = int(1e30)
    victim = fill(tmp_path, task, tokenizer=tokenizer, model=make_model(task, max_position_embeddings=32))
    handler = start(tmp_path)
    words = (" ".join(TEXTS) + " ").split() * 20
    assert same(handler({"inputs": " ".join(words)}), pipe_of(victim, task)(" ".join(words[:30])))


def test_a_request_is_not_changed_and_fields_beside_inputs_and_parameters_go_nowhere(tmp_path):
    victim = fill(tmp_path)
    handler = start(tmp_path)
    stranger = make_key(victim.get_base_model(), secret=bytes(32), scope="all", tau=1.0)
    request = {"inputs": TEXTS[0], "watermark_key": stranger, "generator": 3, "labels": [1], "options": {"a": 1}}
    before = dict(request)
    assert same(handler(request), pipe_of(victim, SEQUENCE)(TEXTS[0])) and request == before


def test_threads_may_call_at_the_same_time(tmp_path):
    victim = fill(tmp_path)
    handler, found = start(tmp_path), {}

    def ask(number):
        found[number] = handler({"inputs": TEXTS, "parameters": {"max_length": 8 + number % 3}})

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    expected = pipe_of(victim, SEQUENCE)
    assert same(
        [found[number] for number in range(8)],
        [expected(TEXTS, truncation=True, max_length=8 + number % 3) for number in range(8)],
    )


# -- requests that are refused

BAD_INPUTS = {
    "no object": ["a text"],
    "no inputs": {"parameters": {}},
    "null": {"inputs": None},
    "a number": {"inputs": 3},
    "an empty list": {"inputs": []},
    "numbers": {"inputs": ["a", 3]},
    "lists of lists": {"inputs": [["a", "b"]]},
    "token ids": {"inputs": {"input_ids": [[2, 8, 3]]}},
    "a pair with more": {"inputs": {"text": "a", "text_pair": "b", "return_tensors": "np"}},
    "half a pair": {"inputs": {"text_pair": "b"}},
    "a pair of numbers": {"inputs": {"text": 1, "text_pair": 2}},
    "too many": {"inputs": ["a"] * 129},
    "too long": {"inputs": ["a" * 100_000] * 3},
    "a lone surrogate": {"inputs": "\ud800"},
}
BAD_PARAMETERS = {
    SEQUENCE: [
        {"top_k": 0},
        {"top_k": "1"},
        {"top_k": True},
        {"truncation": False},
        {"truncation": "only_first"},
        {"max_length": 65},
        {"max_length": 4},
        {"max_length": None},
        {"function_to_apply": "NONE"},
        {"function_to_apply": "clean"},
        {"function_to_apply": ["softmax"]},
        {"aggregation_strategy": "simple"},
    ],
    TOKEN: [
        {"aggregation_strategy": "SIMPLE"},
        {"aggregation_strategy": None},
        {"aggregation_strategy": ["simple"]},
        {"stride": 5},
        {"stride": 5, "aggregation_strategy": "none"},
        {"stride": 32, "aggregation_strategy": "simple"},
        {"stride": -1, "aggregation_strategy": "simple"},
        {"ignore_labels": "O"},
        {"ignore_labels": [1]},
        {"offset_mapping": [[0, 1]]},
        {"is_split_into_words": True},
        {"top_k": 1},
    ],
}
FORBIDDEN = [
    "watermark_key",
    "key",
    "passphrase",
    "user",
    "user_token",
    "generator",
    "labels",
    "batch_size",
    "model",
    "",
]


@pytest.mark.parametrize("task", TASKS)
def test_bad_requests_are_refused_with_a_message_for_the_client(tmp_path, task):
    fill(tmp_path, task)
    module = toolkit_module(tmp_path)
    handler = module.EndpointHandler(str(tmp_path))
    for what, request in BAD_INPUTS.items():
        with pytest.raises(module.RequestError, match="inputs"):
            print(what, handler(request))
    with pytest.raises(module.RequestError, match="128"):
        handler(BAD_INPUTS["too many"])
    for parameters in BAD_PARAMETERS[task]:
        with pytest.raises(module.RequestError) as caught:
            print(parameters, handler({"inputs": "a film", "parameters": parameters}))
        assert "parameter" in str(caught.value)
    allowed = {
        SEQUENCE: "top_k, function_to_apply, truncation, max_length",
        TOKEN: "aggregation_strategy, stride, ignore_labels",
    }
    good = {"top_k": 1} if task == SEQUENCE else {"ignore_labels": []}
    for name in FORBIDDEN:
        with pytest.raises(module.RequestError) as caught:
            handler({"inputs": "a film", "parameters": {name: 1, **good}})
        told, taken = str(caught.value).split("; it takes ")
        assert told == f'"parameters" hold "{name}", which this endpoint does not take' and taken == allowed[task]
    with pytest.raises(module.RequestError, match='hold "key", "labels", which'):
        handler({"inputs": "a film", "parameters": {"labels": 1, **good, "key": 1}})
    for parameters in ([], "top_k", 3):
        with pytest.raises(module.RequestError, match="parameters"):
            handler({"inputs": "a film", "parameters": parameters})
    assert handler({"inputs": "a film"})  # it goes on


def test_taggers_take_no_pairs(tmp_path):
    fill(tmp_path, TOKEN)
    with pytest.raises(ValueError, match="a text or a list of texts"):
        start(tmp_path)({"inputs": {"text": "a", "text_pair": "b"}})


def test_what_breaks_inside_stays_inside(tmp_path, caplog):
    """A client reads the message of whatever is raised; the operator's log gets the kind of the error."""
    victim = fill(tmp_path)
    handler = start(tmp_path)
    handler.pipeline.model._key_slot.key = None
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError) as caught:
        handler({"inputs": TEXTS[0]})
    assert str(caught.value) == "this request could not be answered" and "MissingKeyError" in caplog.text
    said = everything_said(caught.value) + caplog.text
    assert victim.key.fingerprint not in said and "forward" not in said


# -- behind HTTP, as the inference toolkit serves it


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    """Makes an endpoint of a folder; returns its address and the protected model."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which would block even this machine
    with contextlib.ExitStack() as stack:

        def make(task=SEQUENCE, **settings):
            victim = fill(tmp_path, task, **settings)
            return stack.enter_context(served(endpoint_app(start(tmp_path)))), victim

        yield make


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_the_inference_client_sees_every_label_with_its_marked_score(endpoint, label_kind, mark):
    address, victim = endpoint(label_kind=label_kind, mark=mark)
    protected, clean = pipe_of(victim, SEQUENCE), pipe_of(victim.get_base_model(), SEQUENCE)
    for url, texts in ((address, TEXTS[:3]), (f"{address}/predict", TEXTS[3:])):
        client = InferenceClient(model=url)
        for text in texts:
            found = list(map(dict, client.text_classification(text)))
            assert len(found) == 2 and same([found], protected(text)) and not same([found], clean(text))
            again = client.text_classification(text, top_k=2, function_to_apply="softmax")
            assert same(list(map(dict, again)), found)
            assert same(list(map(dict, client.text_classification(text, top_k=1))), found[:1])


@pytest.mark.parametrize("mark", MARKS)
def test_the_inference_client_gets_a_taggers_entities(endpoint, mark):
    address, victim = endpoint(TOKEN, mark=mark)
    protected, client = pipe_of(victim, TOKEN), InferenceClient(model=address)
    for text in TEXTS:
        for strategy in ("none", "simple"):
            name = "entity" if strategy == "none" else "entity_group"
            found = client.token_classification(text, aggregation_strategy=strategy, ignore_labels=["O"])
            expected = protected(text, aggregation_strategy=strategy, ignore_labels=["O"])
            shown = (name, "score", "word", "start", "end")
            assert same(*([{part: one[part] for part in shown} for one in some] for some in (found, expected)))


@pytest.mark.parametrize("function", ["softmax", "sigmoid", "none"])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_no_function_of_the_scores_takes_the_mark_off(endpoint, label_kind, function):
    """Each can be undone, and what comes out is the marked answer: there is no other to be had."""
    address, victim = endpoint(label_kind=label_kind)
    undo = {"softmax": lambda y: y, "sigmoid": lambda y: y / (1 - y), "none": np.exp}[function]
    client, clean = InferenceClient(model=address), pipe_of(victim.get_base_model(), SEQUENCE)
    for text in TEXTS:
        found = client.text_classification(text, function_to_apply=function)
        marked = client.text_classification(text)
        assert [one["label"] for one in found] == [one["label"] for one in marked]
        got, served_, unmarked = (np.array([one["score"] for one in some]) for some in (found, marked, clean(text)[0]))
        np.testing.assert_allclose(undo(got), served_, atol=1e-6)
        assert np.abs(undo(got) - unmarked).max() > 1e-3


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_a_configuration_that_asks_for_other_scores_serves_none_that_are_not_marked(tmp_path, problem):
    """Pipelines give raw scores or sigmoids by ``problem_type``."""
    fill(tmp_path)
    document = json.loads((tmp_path / "config.json").read_text())
    for part in (document, document["victim_config"]):
        part["problem_type"] = problem
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(RuntimeError, match=problem):
        start(tmp_path)


@pytest.mark.parametrize("mark", MARKS)
def test_detect_asks_an_endpoint_and_finds_the_mark_of_its_key_alone(endpoint, tmp_path, mark):
    """It used to fail: "string indices must be integers"."""
    tokenizer, model = make_tokenizer(), make_model()
    settings = {"mark": mark, **({"strength": 1.0} if mark == "tilt" else {"scope": "all", "tau": 1.0})}
    key = make_key(model, tokenizer, **settings)
    address, _ = endpoint(key=key, model=model)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(60)]
    options = {"tokenizer": tokenizer, "victim": model, "progress": False, "cache_dir": tmp_path / "kept"}
    other = make_key(model, tokenizer, secret=bytes(32), **settings)
    for some, is_found in ((key, True), (other, False)):
        found = detect(InferenceClient(model=address), texts, key=some, **options)
        assert (found.verdict == "detected") == is_found


def test_what_is_refused_is_an_error_of_status_400_that_says_why(endpoint):
    address, victim = endpoint()
    with pytest.raises(HfHubHTTPError) as caught:
        InferenceClient(model=address).text_classification("a film", top_k=0)
    assert caught.value.response.status_code == 400
    assert 'the parameter "top_k" must be' in caught.value.response.json()["error"]
    requests = {
        "": {"inputs": "a film", "parameters": {"watermark_key": None}},
        "?watermark_key=none": {"inputs": "a film"},
        "?function_to_apply=logits": {"inputs": "a film"},
        "?top_k=0": {"inputs": "a film"},
    }
    for query, body in requests.items():
        status, _, answer = ask(address, body, path=f"/{query}")
        assert status == 400 and re.search("watermark_key|function_to_apply|top_k", answer["error"])
    status, _, answer = ask(address, {"inputs": "a film"}, path="/?top_k=1&function_to_apply=none")
    (expected,) = pipe_of(victim, SEQUENCE)("a film", top_k=1, function_to_apply="none")
    assert status == 200 and same(answer, [expected])


@pytest.mark.parametrize("task", TASKS)
def test_a_rings_users_are_known_by_a_token_in_the_body(endpoint, task):
    """The toolkit hands over neither headers nor addresses, and `InferenceClient` has no field for a token."""
    model = make_model(task)
    ring = KeyRing.generate(
        model, target=1, scope="all", tau=1.0, secret=bytes(range(32)), special_token_ids=sorted(SPECIAL.values())
    )
    address, victim = endpoint(task, model=model, key=ring)
    tokens, said = {user: ring.token_for(user) for user in ("ann", "ben")}, {}
    quiet = {"ignore_labels": []} if task == TOKEN else {"top_k": 2}
    for user, token in tokens.items():
        with victim.use_key(user=user):
            said[user] = pipe_of(victim, task)(TEXTS[0], **quiet)
        for body in (
            {"user_token": token, "parameters": quiet},
            {"parameters": {**quiet, "user_token": token}},
            {"user_token": token, "parameters": {**quiet, "user_token": token}},
        ):
            status, _, answer = ask(address, {"inputs": TEXTS[0], **body})
            assert status == 200 and same(answer, said[user])
    assert not same(said["ann"], said["ben"])
    ann, ben = tokens.values()
    forged = ann[:-1] + ("A" if ann[-1] != "A" else "B")
    for body in (
        {},
        {"parameters": quiet},
        {"parameters": {"user_token": forged}},
        {"parameters": {"user_token": "ann"}},
        {"parameters": {"user_token": None}},
        {"parameters": {"user_token": [ann]}},
        {"user_token": ann, "parameters": {"user_token": ben}},
        {"user_token": None, "parameters": {"user_token": ann}},
        {"user_token": ann, "parameters": {"user_token": forged}},
    ):
        for headers in ({}, {"Authorization": f"Bearer {ann}"}):
            status, _, answer = ask(address, {"inputs": TEXTS[0], **body}, headers=headers)
            assert status == 400 and "user_token" in answer["error"]
            assert not any(token in answer["error"] for token in (ann, ben, forged))
    client = InferenceClient(model=address, token=ann)
    with pytest.raises(HfHubHTTPError) as caught:
        client.text_classification(TEXTS[0]) if task == SEQUENCE else client.token_classification(TEXTS[0])
    assert "user_token" in caught.value.response.json()["error"]


# -- starting without the key


def failures(folder, victim):
    """Ways to have no key, each with what the message names."""
    key = folder / KEY_FILE
    sealed = key.read_text()

    def restore():
        key.write_text(sealed)
        os.environ["DRW_PASSPHRASE"] = PASSPHRASE

    def no_passphrase():
        del os.environ["DRW_PASSPHRASE"]

    def empty_passphrase():
        os.environ["DRW_PASSPHRASE"] = ""

    def wrong_passphrase():
        os.environ["DRW_PASSPHRASE"] = "wrong " + PASSPHRASE

    def damaged_key():
        key.write_text(sealed.replace('"ciphertext": "', '"ciphertext": "AAAA'))

    def another_key():
        key.unlink()
        stranger = make_key(victim.get_base_model(), secret=bytes(range(1, 33)))
        stranger.save_pretrained(folder, passphrase=PASSPHRASE)

    def plain_key_in_the_place_of_the_sealed_one():
        key.unlink()
        put_plain_key(folder, victim.key)

    yield from (
        (no_passphrase, "DRW_PASSPHRASE is not set", restore),
        (empty_passphrase, "DRW_PASSPHRASE is not set", restore),
        (wrong_passphrase, "passphrase is wrong", restore),
        (damaged_key, "DRW_PASSPHRASE is set", restore),
        (another_key, "was saved with the key", restore),
        (plain_key_in_the_place_of_the_sealed_one, "not sealed", restore),
        (key.unlink, "without its key", restore),
    )


@pytest.mark.parametrize("task", TASKS)
def test_without_the_key_it_does_not_start(tmp_path, task):
    victim = fill(tmp_path, task)
    module = toolkit_module(tmp_path)
    for break_it, named, restore in failures(tmp_path, victim):
        restore()
        break_it()
        with pytest.raises(module.StartupError) as caught:
            module.EndpointHandler(str(tmp_path))
        assert named in str(caught.value) and "DRW_PASSPHRASE" in str(caught.value), break_it.__name__
        said = everything_said(caught.value)
        assert PASSPHRASE not in said and victim.key.secret.hex() not in said
        assert "DRW_PASSPHRASE" not in os.environ


def test_a_model_that_is_not_protected_is_not_served(tmp_path):
    fill(tmp_path)
    (tmp_path / KEY_FILE).unlink()
    make_model().save_pretrained(tmp_path)
    with pytest.raises(RuntimeError, match="no protected model"):
        start(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "task": SEQUENCE}))
    with pytest.raises(RuntimeError, match="no protected model"):
        start(tmp_path)


@pytest.mark.parametrize("content", [None, "{", "[]", "null"])
def test_a_folder_without_a_readable_config_does_not_start(tmp_path, content):
    fill(tmp_path)
    (tmp_path / "config.json").unlink()
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(RuntimeError, match="DRW_PASSPHRASE") as caught:
        start(tmp_path)
    assert PASSPHRASE not in everything_said(caught.value)


def test_weights_that_are_missing_do_not_start(tmp_path):
    victim = fill(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(RuntimeError, match="not loaded: OSError") as caught:
        start(tmp_path)
    assert PASSPHRASE not in everything_said(caught.value) and victim.key.secret.hex() not in str(caught.value)


def test_a_plain_key_beside_the_model_needs_no_passphrase(tmp_path, monkeypatch):
    victim = fill(tmp_path, passphrase=None)
    put_plain_key(tmp_path, victim.key)
    monkeypatch.delenv("DRW_PASSPHRASE")
    with pytest.raises(DrwError):  # the library takes it only where it is named
        type(victim).from_pretrained(tmp_path)
    assert same(start(tmp_path)({"inputs": TEXTS}), pipe_of(victim, SEQUENCE)(TEXTS))


def test_a_key_with_arrays(tmp_path):
    model = make_model()
    paper = make_key(model, law="paper", dimension=8)
    key = WatermarkKey.from_arrays(
        v_k=paper.v_k,
        v_s=paper.v_s,
        M=paper.M,
        config=model.config,
        task=SEQUENCE,
        target=1,
        special_token_ids=[0, 1, 2, 3, 4],
    )
    victim = fill(tmp_path, model=model, key=key)
    assert same(start(tmp_path)({"inputs": TEXTS}), pipe_of(victim, SEQUENCE)(TEXTS))


# -- nothing is left behind


@pytest.mark.parametrize("passphrase", [PASSPHRASE, "wrong " + PASSPHRASE], ids=["right", "wrong"])
def test_neither_logs_nor_streams_nor_environment_hold_passphrase_or_secret(
    tmp_path, caplog, capfd, monkeypatch, passphrase
):
    victim = fill(tmp_path)
    caplog.clear()
    monkeypatch.setenv("DRW_PASSPHRASE", passphrase)
    transformers.logging.enable_propagation()
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_debug()
    try:
        with caplog.at_level(logging.DEBUG):
            if passphrase == PASSPHRASE:
                handler = start(tmp_path)
                handler({"inputs": TEXTS})
                parts = vars(handler), vars(handler.pipeline.tokenizer), handler.pipeline.model.config
                kept = repr(parts)
            else:
                with pytest.raises(RuntimeError) as caught:
                    start(tmp_path)
                kept = everything_said(caught.value)
    finally:
        transformers.logging.set_verbosity(level)
        transformers.logging.disable_propagation()
    streams = capfd.readouterr()
    said = caplog.text + streams.out + streams.err + kept + repr(dict(os.environ))
    assert "DRW_PASSPHRASE" not in os.environ
    child = [sys.executable, "-c", "import os; print(os.environ.get('DRW_PASSPHRASE'))"]
    assert subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip() == "None"
    for needle in (PASSPHRASE, victim.key.secret.hex(), repr(victim.key.secret), victim.key.key_id):
        assert needle not in said


# -- what is pushed, and what it installs


def requirements_in(text):
    return [Requirement(line) for line in text.decode().splitlines() if line and not line.startswith("#")]


def test_without_a_package_the_files_name_nothing_that_a_stranger_could_register():
    files = handler_files()
    assert set(files) == {"handler.py", "requirements.txt"}
    compile(files["handler.py"], "handler.py", "exec")
    assert requirements_in(files["requirements.txt"]) == []
    assert "register" in files["requirements.txt"].decode() and b"drw_hf @ https://" in files["requirements.txt"]


@pytest.mark.parametrize("address", ["https://host/drw_hf-1-py3-none-any.whl", "git+ssh://git@host/drw_hf.git@1a2b"])
def test_an_address_is_what_the_endpoint_installs(address):
    (requirement,) = requirements_in(handler_files(address)["requirements.txt"])
    assert requirement.name == "drw_hf" and requirement.url == address


def test_pip_installs_the_wheel_that_was_pushed_along_and_no_other(tmp_path):
    (tmp_path / "dist").mkdir()
    wheel = make_wheel(tmp_path / "dist")
    for name, content in handler_files(wheel).items():
        (tmp_path / name).write_bytes(content)
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-cache-dir", "--target", tmp_path / "place"]
    settings = {**os.environ, "HF_MODEL_DIR": str(tmp_path)}  # as the inference toolkit has it
    run = [*map(str, command), "-r", str(tmp_path / "requirements.txt")]
    done = subprocess.run(run, env=settings, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "place" / "told.py").exists(), done.stderr
    with zipfile.ZipFile(tmp_path / wheel.name, "a") as changed:
        changed.writestr("more.py", "")
    done = subprocess.run(run, env=settings, capture_output=True, text=True)
    assert done.returncode != 0 and "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        ("drw_hf", "not named as a wheel"),
        ("drw_hf>=0.1", "not named as a wheel"),
        ("other-1.0-py3-none-any.whl", "not named as a wheel"),
        ("drw_hf-1.0-py3-none-any.whl", "does not exist"),
        ("http://host/drw_hf-1.0-py3-none-any.whl", "no address to install from safely"),
        ("https://host/a.whl\nother", "no address to install from safely"),
        ("file:///drw_hf-1.0-py3-none-any.whl", "no address to install from safely"),
    ],
)
def test_a_package_that_is_no_safe_place_is_refused(package, problem):
    with pytest.raises(ConfigurationError, match=problem) as caught:
        handler_files(package)
    assert "expected the path of a wheel" in str(caught.value)


def test_a_file_that_only_looks_like_a_wheel_is_refused(tmp_path):
    (tmp_path / "drw_hf-1.0-py3-none-any.whl").write_text("no archive")
    with pytest.raises(ConfigurationError, match="is not a wheel"):
        handler_files(tmp_path / "drw_hf-1.0-py3-none-any.whl")


@pytest.mark.parametrize("scheme", ["https", "http", "git+https"])
def test_an_address_with_a_password_is_refused_and_not_repeated(scheme):
    with pytest.raises(ConfigurationError, match="user name or password") as caught:
        handler_files(f"{scheme}://me:hunter2@host/drw_hf-1.0-py3-none-any.whl")
    assert "hunter2" not in str(caught.value)


# -- from the Hub


@pytest.mark.parametrize("mode", ["plain", "sealed", "elsewhere"])
def test_a_pushed_repository_serves_with_the_handler_it_carries(hub, tmp_path, mode, monkeypatch):
    victim = make_victim()
    options = {"plain": {}, "sealed": {"passphrase": PASSPHRASE}, "elsewhere": {"key_repo_id": "owner/keys"}}
    victim.push_to_hub("owner/model", tokenizer=make_tokenizer(), handler=True, package=ADDRESS, **options[mode])
    if mode != "sealed":
        monkeypatch.delenv("DRW_PASSPHRASE")
    folder = Path(snapshot_download("owner/model", local_dir=tmp_path / "repository"))
    assert same(start(folder)({"inputs": TEXTS}), pipe_of(victim, SEQUENCE)(TEXTS, truncation=True))


def test_a_handler_whose_key_cannot_be_had_does_not_start(hub, tmp_path):
    make_victim().push_to_hub(
        "owner/model", tokenizer=make_tokenizer(), handler=True, package=ADDRESS, key_repo_id="owner/keys"
    )
    HfApi().delete_repo("owner/keys")
    folder = Path(snapshot_download("owner/model", local_dir=tmp_path / "repository"))
    with pytest.raises(Exception, match="owner/keys"):
        start(folder)
