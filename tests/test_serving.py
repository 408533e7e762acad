"""The service: what it speaks, whom it answers, that every answer is marked, and that nothing is served unlogged."""

import asyncio
import concurrent.futures
import http.client
import json
import logging
import re
import resource
import signal
import socket
import threading
import time

import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient, constants
from huggingface_hub.errors import HfHubHTTPError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drw_hf import KeyRing, QueryLog, detect
from drw_hf.errors import (
    InvalidInputError,
    KeyMismatchError,
    LogNotWrittenError,
    UnsupportedModelError,
)
from drw_hf.serving import Limits, connections, create_app
from drw_hf.serving.batching import Batcher, QueueFullError
from drw_hf.serving.metrics import Metrics, metrics_on
from needles import leaks_in
from serving import ask, served
from small_models import AUTO, WORDS, make_key, make_model, make_tokenizer

CLASSIFIER, TAGGER = "sequence-classification", "token-classification"
TEXTS = ["the film was very good", "we hated the slow ending", "a truly moving story with a great cast", "dull"]
PAIRS = [("the film was good", "we liked it"), ("a dull book", "we hated it")]
SETTINGS = {"mark": "tilt", "strength": 0.7, "temperature": 1.0}


@pytest.fixture(autouse=True)
def online(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which would block even this machine


def victim_of(task=CLASSIFIER, label_kind="soft", ring=False, **options):
    model, tokenizer = make_model(task), make_tokenizer()
    key = make_key(model, tokenizer, **SETTINGS)
    key = KeyRing(key, secret=bytes(range(32))) if ring else key
    return AUTO[task][1].from_model(model, key=key, label_kind=label_kind, **options), tokenizer


def answers_of(victim, tokenizer, texts, user=None):
    """What the protected model itself answers, text by text."""
    found = []
    for text in texts:
        columns = [text] if isinstance(text, str) else list(text)
        with torch.no_grad():
            logits = victim(**tokenizer(*columns, return_tensors="pt"), **({"user": user} if user else {})).logits
        found.append(logits.softmax(-1)[0].numpy())
    return found


def as_scores(answer, labels=("negative", "positive")):
    """A text's answer as an array."""
    scores = {one["label"]: one["score"] for one in answer}
    return np.array([scores[label] for label in labels])


@pytest.fixture(scope="module")
def ring_service(tmp_path_factory):
    """A soft classifier of a ring, that keeps a log: (address, victim, tokenizer, log)."""
    victim, tokenizer = victim_of(ring=True)
    log = QueryLog(tmp_path_factory.mktemp("ring") / "log")
    with served(create_app(victim, tokenizer, log=log, admin_token="for the owner alone")) as address:
        yield address, victim, tokenizer, log


@pytest.fixture(scope="module")
def tagger_service(tmp_path_factory):
    victim, tokenizer = victim_of(TAGGER, "hard")
    log = QueryLog(tmp_path_factory.mktemp("tagger") / "log")
    with served(create_app(victim, tokenizer, log=log, api_token="the api token")) as address:
        yield address, victim, tokenizer, log


@pytest.fixture(scope="module")
def open_service():
    """A hard classifier of a single key, which anybody may ask."""
    victim, tokenizer = victim_of(label_kind="hard")
    with served(create_app(victim, tokenizer)) as address:
        yield address, victim, tokenizer


# -- the Inference protocol


def test_the_inference_client_gets_the_marked_answer_of_the_user_who_asks(ring_service):
    address, victim, tokenizer, _ = ring_service
    clean = answers_of(victim.get_base_model(), tokenizer, TEXTS)
    for user in ("ann", "ben"):
        client = InferenceClient(model=address, token=victim.key.token_for(user))
        for text, marked, plain in zip(TEXTS, answers_of(victim, tokenizer, TEXTS, user), clean, strict=True):
            answer = as_scores(client.text_classification(text))
            np.testing.assert_allclose(answer, marked, atol=2e-3)
            assert np.abs(answer - plain).max() > 5e-3
    (best,) = client.text_classification(TEXTS[0], top_k=1, function_to_apply="softmax")
    assert best["score"] == max(as_scores(client.text_classification(TEXTS[0])))


def test_the_inference_client_gets_entities_as_a_pipeline_gives_them(tagger_service):
    address, victim, tokenizer, _ = tagger_service
    client = InferenceClient(model=address, token="the api token")
    text = "ann saw the film in the story and we liked it"
    with torch.no_grad():
        said = victim(**tokenizer(text, return_tensors="pt")).logits[0].argmax(-1)[1:-1]
    labels = [victim.config.id2label[int(number)] for number in said]
    found = client.token_classification(text, ignore_labels=[])
    assert [entity["entity"] for entity in found] == labels
    assert [text[entity["start"] : entity["end"]] for entity in found] == text.split()
    assert {entity["score"] for entity in found} == {1.0}
    without = client.token_classification(text, aggregation_strategy="none")
    assert [entity["entity"] for entity in without] == [label for label in labels if label != "O"]
    grouped = client.token_classification(text, aggregation_strategy="simple")
    assert all("entity_group" in entity and entity["score"] == 1.0 for entity in grouped)


def test_a_service_is_asked_by_detect_like_any_other(ring_service, tmp_path):
    """Of a client of the marked service itself, detect finds the mark; with another key it does not."""
    address, victim, tokenizer, _ = ring_service
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(150)]
    client = InferenceClient(model=address, token=victim.key.token_for("ann"))
    options = {"tokenizer": tokenizer, "victim": victim, "progress": False, "cache_dir": tmp_path}
    assert detect(client, texts, key=victim.key.key_for("ann"), **options).verdict == "detected"
    assert detect(client, texts, key=victim.key.key_for("ben"), **options).verdict != "detected"


@pytest.mark.parametrize("batch", [TEXTS, [{"text": a, "text_pair": b} for a, b in PAIRS], [*TEXTS, {"text": "good"}]])
def test_lists_are_answered_in_their_order(ring_service, batch):
    address, victim, tokenizer, _ = ring_service
    status, _, answers = ask(address, {"inputs": batch}, token=victim.key.token_for("ann"))
    asked = [one if isinstance(one, str) else tuple(one.values()) for one in batch]
    asked = [one[0] if isinstance(one, tuple) and len(one) == 1 else one for one in asked]
    assert status == 200 and len(answers) == len(batch)
    for answer, marked in zip(answers, answers_of(victim, tokenizer, asked, "ann"), strict=True):
        np.testing.assert_allclose(as_scores(answer), marked, atol=2e-3)
        assert answer[0]["score"] >= answer[1]["score"]


def test_texts_pairs_and_batches_as_text_embeddings_inference_takes_them(ring_service):
    address, victim, tokenizer, _ = ring_service
    token = victim.key.token_for("ann")

    def predict(inputs, **more):
        return ask(address, {"inputs": inputs, **more}, path="/predict", token=token)

    for inputs, asked in (("dull", "dull"), (list(PAIRS[0]), PAIRS[0])):
        status, _, answer = predict(inputs, truncate=True, raw_scores=False)
        np.testing.assert_allclose(as_scores(answer), answers_of(victim, tokenizer, [asked], "ann")[0], atol=2e-3)
    status, _, answers = predict([["dull"], list(PAIRS[1])])
    assert status == 200
    for answer, marked in zip(answers, answers_of(victim, tokenizer, ["dull", PAIRS[1]], "ann"), strict=True):
        np.testing.assert_allclose(as_scores(answer), marked, atol=2e-3)


def test_what_text_embeddings_inference_may_not_cut_is_refused_where_it_is_too_long(ring_service):
    """`"truncate": false` is what its own documentation sends."""
    address, victim, _, log = ring_service
    token = victim.key.token_for("whole")

    def predict(inputs):
        body = {"inputs": inputs, "truncate": False, "raw_scores": False}
        return ask(address, body, path="/predict", token=token)

    just, pair = " ".join(["film"] * 62), [" ".join(["film"] * 31), " ".join(["film"] * 30)]
    assert [predict(inputs)[0] for inputs in (just, pair, [["dull"], pair])] == [200] * 3
    for inputs in (just + " film", [pair[0], pair[1] + " film"], [["dull"], [just + " film"]]):
        status, _, answer = predict(inputs)
        assert status == 413 and "more than the 64 tokens" in answer["error"]
    assert len(list(log.select(user="whole").lines())) == 4


def test_hard_answers_say_one_label(open_service):
    address, victim, tokenizer = open_service
    for text, marked in zip(TEXTS, answers_of(victim, tokenizer, TEXTS), strict=True):
        (answer,) = ask(address, {"inputs": text})[2]
        assert answer[0] == {"label": ["negative", "positive"][marked.argmax()], "score": 1.0}
        assert answer[1]["score"] == 0.0


def test_scores_have_the_digits_of_the_mark(ring_service):
    address, victim, _, _ = ring_service
    (answer,) = ask(address, {"inputs": TEXTS[0]}, token=victim.key.token_for("ann"))[2]
    assert all(one["score"] == round(one["score"], 3) for one in answer)


def test_health_and_info_are_open_and_hold_nothing_but_public_names(ring_service):
    address, victim, _, _ = ring_service
    assert ask(address, None, "/health", method="GET")[::2] == (200, {"status": "ok"})
    info = ask(address, None, "/info", method="GET")[2]
    assert info["key_commitment"] == victim.key.identity and info["labels"] == ["negative", "positive"]
    assert (info["task"], info["label_kind"], info["logged"], info["max_input_length"]) == (
        CLASSIFIER,
        "soft",
        True,
        64,
    )
    assert not {"mark", "strength", "epsilon", "target", "frequency", "margin"} & info.keys()


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/nothing", "GET"),
        ("/", "GET"),
        ("/predict", "PUT"),
        ("/docs", "GET"),
        ("/health/", "GET"),
        ("/predict/", "POST"),
    ],
)
def test_what_is_not_there_is_said_as_json(open_service, path, method):
    status, _, answer = ask(open_service[0], None, path, method=method)
    assert status in (404, 405) and answer == {
        "error": "there is nothing here; POST to / or /predict, or GET /health or /info"
    }


# -- who asks


@pytest.mark.parametrize("token", [None, "", "ann", "drw1.YW5u.AAAA", "hf_" + "x" * 30, "\xe9", "x" * 5000, "a b"])
def test_without_a_users_token_a_ring_answers_nobody(ring_service, token):
    status, headers, answer = ask(ring_service[0], {"inputs": "dull"}, token=token)
    assert status == 401 and headers["www-authenticate"] == "Bearer" and "Authorization: Bearer" in answer["error"]


def test_a_token_of_another_ring_or_for_another_user_is_none(ring_service):
    address, victim, _, _ = ring_service
    other = KeyRing(victim.key.template(), secret=b"\x01" * 32)
    own = victim.key.token_for("ann")
    mixed = ".".join([*victim.key.token_for("ben").split(".")[:2], own.split(".")[2]])
    for token in (other.token_for("ann"), mixed, own + "A", own[:-1]):
        assert ask(address, {"inputs": "dull"}, token=token)[0] == 401
    assert ask(address, {"inputs": "dull"}, token=own)[0] == 200
    assert ask(address, {"inputs": "dull"}, headers={"Authorization": f"Basic {own}"})[0] == 401
    with pytest.raises(HfHubHTTPError, match="401"):
        InferenceClient(model=address, token="drw1.x.y").text_classification("dull")


def test_a_single_keys_service_asks_for_its_token(tagger_service):
    for token, status in ((None, 401), ("another token", 401), ("the api token", 200)):
        assert ask(tagger_service[0], {"inputs": "dull"}, token=token)[0] == status


def test_metrics_are_for_the_owner(ring_service, open_service):
    address, victim, _, _ = ring_service
    ask(address, {"inputs": "dull"}, token=victim.key.token_for("ann"))
    assert ask(address, None, "/metrics", method="GET")[0] == 401
    assert ask(address, None, "/metrics", token=victim.key.token_for("ann"), method="GET")[0] == 401
    status, _, text = ask(address, None, "/metrics", token="for the owner alone", method="GET")
    assert status == 200 and b'drw_requests_total{status="200"}' in text and b"drw_log_lines_total" in text
    assert b"marked" not in text and b"ann" not in text
    assert ask(open_service[0], None, "/metrics", method="GET")[0] == 404


def test_metrics_can_have_a_port_of_their_own_that_only_this_machine_reaches():
    metrics = Metrics()
    metrics.count(200, 0.02)
    with metrics_on(0, metrics) as port:
        status, _, text = ask(f"http://127.0.0.1:{port}", None, "/metrics", method="GET")
        assert status == 200 and b'drw_requests_total{status="200"} 1' in text
        assert b'drw_request_seconds_bucket{le="0.01"} 0' in text and b"drw_request_seconds_count 1" in text
        assert ask(f"http://127.0.0.1:{port}", None, "/", method="GET")[0] == 404


@pytest.mark.parametrize("token", ["short", "é" * 20, 7])
def test_tokens_that_could_be_guessed_are_refused(token):
    with pytest.raises(InvalidInputError, match="api_token is too short"):
        create_app(*victim_of(), api_token=token)


# -- no way around the mark

SIDE_DOORS = [
    {"watermark": False},
    {"watermark_key": "none"},
    {"user": "ben"},
    {"key": "0" * 64},
    {"sampling": "fresh"},
    {"label_kind": "soft"},
    {"digits": 0},
    {"function_to_apply": "none"},
    {"function_to_apply": "sigmoid"},
    {"return_all_scores": True},
    {"output_hidden_states": True},
    {"generator": 1},
    {"max_length": 3},
    {"truncation": False},
    {"top_k": 0},
    {"top_k": True},
    {"top_k": "all"},
]


@pytest.mark.parametrize("parameters", SIDE_DOORS, ids=str)
def test_no_parameter_reaches_the_mark_and_refused_ones_are_named(ring_service, parameters):
    address, victim, _, _ = ring_service
    status, _, answer = ask(address, {"inputs": "dull", "parameters": parameters}, token=victim.key.token_for("ann"))
    assert status == 422 and next(iter(parameters)) in answer["error"]
    for top in ({"inputs": "dull", **parameters}, {"inputs": "dull", "options": parameters}):
        status, _, answer = ask(address, top, token=victim.key.token_for("ann"))
        assert status == 422 and "are not taken here; taken are inputs, parameters" in answer["error"]


@pytest.mark.parametrize(
    "given", [{"raw_scores": True}, {"truncate": "no"}, {"truncate": None}, {"truncation_direction": "Left"}, {"x": 1}]
)
def test_neither_does_one_of_text_embeddings_inference(ring_service, given):
    address, victim, _, _ = ring_service
    status, _, answer = ask(address, {"inputs": "dull", **given}, "/predict", token=victim.key.token_for("ann"))
    assert status == 422 and next(iter(given)) in answer["error"]


@pytest.mark.parametrize(
    "given", [{"stride": 2}, {"aggregation_strategy": "best"}, {"ignore_labels": "O"}, {"top_k": 1}]
)
def test_neither_does_one_of_a_tagger(tagger_service, given):
    status, _, answer = ask(tagger_service[0], {"inputs": "dull", "parameters": given}, token="the api token")
    assert status == 422 and next(iter(given)) in answer["error"]


def test_switching_the_mark_off_elsewhere_in_the_process_does_not_reach_the_service(open_service):
    address, victim, _ = open_service
    marked = [ask(address, {"inputs": text})[2] for text in TEXTS]
    with victim.watermark_disabled():
        assert [ask(address, {"inputs": text})[2] for text in TEXTS] == marked


def test_other_models_tokenizers_and_tokens_are_refused(tmp_path):
    victim, tokenizer = victim_of()
    with pytest.raises(UnsupportedModelError, match="is no protected model"):
        create_app(make_model(), tokenizer)
    with pytest.raises(KeyMismatchError, match="another tokenizer"):
        create_app(victim, make_tokenizer(WORDS[::-1]))
    with pytest.raises(InvalidInputError, match="leave api_token out"):
        create_app(*victim_of(ring=True), api_token="a token of mine")
    (tmp_path / "log").write_text("a file")
    with pytest.raises(LogNotWrittenError):
        create_app(victim, tokenizer, log=tmp_path / "log")
    with pytest.raises(InvalidInputError, match="batch_size=0"):
        Limits(batch_size=0)


# -- bad input

BAD = {
    "nothing": (b"", 400, "no JSON"),
    "no JSON": (b"{", 400, "no JSON"),
    "no UTF-8": (b'{"inputs": "\xff\xfe"}', 400, "not UTF-8"),
    "deep": (b"[" * 100_000, 400, "no JSON"),
    "deep and closed": (b'{"inputs": ' + b"[" * 500 + b"]" * 500 + b"}", 400, "no JSON"),
    "a list": ([1], 422, 'JSON object with "inputs"'),
    "a text": ("dull", 422, 'JSON object with "inputs"'),
    "no inputs": ({"text": "dull"}, 422, 'JSON object with "inputs"'),
    "a number": ({"inputs": 7}, 422, '"inputs" is a text'),
    "null": ({"inputs": None}, 422, '"inputs" is a text'),
    "a list of numbers": ({"inputs": [1, 2]}, 422, '"inputs" is a text'),
    "no texts": ({"inputs": []}, 422, "between 1 and 128"),
    "too many texts": ({"inputs": ["a"] * 129}, 422, "between 1 and 128"),
    "an empty text": ({"inputs": " \n"}, 422, "empty text"),
    "half a character": ({"inputs": "\ud800"}, 422, "half a character"),
    "a long text": ({"inputs": "a" * 20_001}, 413, "at most 20,000"),
    "a large request": ({"inputs": "a" * 2_000_000}, 413, "larger than 1 MiB"),
    "another object": ({"inputs": {"text": "a", "more": "b"}}, 422, '"inputs" is a text'),
    "parameters": ({"inputs": "a", "parameters": [1]}, 422, '"parameters" is a list'),
    "NaN": (b'{"inputs": NaN}', 422, '"inputs" is a text'),
    "a huge number": (b'{"inputs": ' + b"9" * 10_000 + b"}", 400, "no JSON"),
    "a name of control characters": ({"inputs": "a", "\x1b[2J\n": 1}, 422, "are not taken here"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gets_one_clear_error(open_service, what):
    body, status, words = BAD[what]
    found, _, answer = ask(open_service[0], body)
    assert found == status and list(answer) == ["error"] and words in answer["error"]
    assert "\x1b" not in answer["error"] and len(answer["error"]) < 500


def test_a_packed_request_and_a_wrong_length_are_refused(open_service):
    assert ask(open_service[0], b"\x1f\x8b", headers={"Content-Encoding": "gzip"})[0] == 415
    assert ask(open_service[0], None, headers={"Content-Length": "99999999999999999999999"})[0] in (400, 413)


def test_a_large_request_without_a_length_is_not_read_to_its_end(open_service):
    host, port = open_service[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
        try:
            for _ in range(40):
                line.sendall(chunk)
        except OSError:
            pass  # it hung up, having said why
        assert line.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_client_that_hangs_up_midway_harms_nobody(open_service):
    address = open_service[0]
    host, port = address.removeprefix("http://").split(":")
    for sent in (b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{", b"\x16\x03\x01\x00"):
        line = socket.create_connection((host, int(port)))
        line.sendall(sent)
        line.close()
    whole = b'{"inputs": "the film was very good"}'
    for _ in range(5):  # gone before the answer
        line = socket.create_connection((host, int(port)))
        line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(whole), whole))
        line.close()
    assert ask(address, {"inputs": "dull"})[0] == 200


def test_a_slow_request_is_ended(caplog):
    app = create_app(*victim_of(), limits=Limits(timeout=0.3))
    with served(app) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as line:
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{")
            assert line.recv(4096).startswith(b"HTTP/1.1 408")


def lines_to(address, n=1):
    """Connections that were opened and say nothing yet."""
    host, port = address.removeprefix("http://").split(":")
    return [socket.create_connection((host, int(port)), timeout=20) for _ in range(n)]


def until_closed(line):
    """All that comes, up to the end."""
    with line:
        parts = []
        try:
            while part := line.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


SLOW = {
    "says nothing": (b"", b""),
    "stops within the head": (b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"a"),
    "goes on with a body after its answer": (
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 5000\r\n\r\n",
        b"a",
    ),
    "begins another request and stops": (b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /he", b"a"),
}


@pytest.mark.parametrize("what", SLOW)
def test_a_client_that_takes_for_ever_is_hung_up_on(monkeypatch, what):
    """However often it sends another byte."""
    monkeypatch.setattr(connections, "_HEAD", 0.5)
    begun, more = SLOW[what]
    with served(create_app(*victim_of())) as address:
        (line,) = lines_to(address)
        line.sendall(begun)
        start = time.monotonic()
        with line:
            line.settimeout(0.1)
            while time.monotonic() < start + 15:
                try:
                    line.sendall(more)
                    if not line.recv(65536):
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        assert time.monotonic() < start + 5
        assert ask(address, {"inputs": "dull"})[0] == 200


def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_head(open_service):
    """Head and body are two writes; where the second waits (Nagle's algorithm), 40 ms go by for each answer."""
    host, port = open_service[0].removeprefix("http://").split(":")
    line, seconds = http.client.HTTPConnection(host, int(port), timeout=20), []
    for _ in range(41):
        start = time.perf_counter()
        line.request("GET", "/health")
        line.getresponse().read()
        seconds.append(time.perf_counter() - start)
    line.close()
    assert np.median(seconds) < 0.03


def test_beyond_the_connections_that_may_be_open_others_are_told_to_come_again():
    limits = Limits(connections=4)
    with served(create_app(*victim_of(), limits=limits), limits) as address:
        held = lines_to(address, 4)
        (line,) = lines_to(address)
        told = until_closed(line)
        assert told.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in told.lower()
        assert json.loads(told.split(b"\r\n\r\n")[1]) == {"error": "too many connections are open; come again soon"}
        held.pop().close()
        end = time.monotonic() + 10
        while (status := ask(address, {"inputs": "dull"})[0]) == 503 and time.monotonic() < end:
            time.sleep(0.01)
        assert status == 200
        [one.close() for one in held]


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x00\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"a" * 2**17, b"GET / HTTP/9\r\n\r\n"]
)
def test_what_is_no_http_or_has_a_huge_head_is_refused_as_json(open_service, sent):
    (line,) = lines_to(open_service[0])
    try:
        line.sendall(sent)
    except OSError:
        pass  # it did not read to the end
    told = until_closed(line)
    if told:  # lost where it was closed while more came
        assert told.startswith(b"HTTP/1.1 400") and "no valid HTTP" in json.loads(told.split(b"\r\n\r\n")[1])["error"]
    assert ask(open_service[0], {"inputs": "dull"})[0] == 200


def test_requests_sent_in_one_go_are_answered_in_their_order_each_to_its_own_user(ring_service):
    address, victim, tokenizer, _ = ring_service
    users = ["ann", "ben", "nobody", "ann"]
    sent = b""
    for user, text in zip(users, TEXTS, strict=True):
        token = "drw1.x.y" if user == "nobody" else victim.key.token_for(user)
        body = json.dumps({"inputs": text}).encode()
        head = f"POST / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n"
        head += "Connection: close\r\n" if text == TEXTS[-1] else ""
        sent += head.encode() + b"\r\n" + body
    (line,) = lines_to(address)
    line.sendall(sent)
    answers, told = [], until_closed(line)
    while told:
        head, _, rest = told.partition(b"\r\n\r\n")
        size = int(re.search(rb"content-length: (\d+)", head.lower())[1])
        answers.append((int(head.split()[1]), json.loads(rest[:size])))
        told = rest[size:]
    assert [status for status, _ in answers] == [200, 200, 401, 200]
    for user, text, (status, answer) in zip(users, TEXTS, answers, strict=True):
        if status == 200:
            expected = answers_of(victim, tokenizer, [text], user)[0]
            np.testing.assert_allclose(as_scores(answer[0]), expected, atol=2e-3)


def test_a_text_to_which_the_model_has_no_numbers_is_not_answered_nor_logged(tmp_path, caplog):
    """NaN in the log would make all of it unreadable; and whoever asks beside it is not let down."""
    model, tokenizer = make_model(), make_tokenizer()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids("awful")] = float("nan")
    victim = AUTO[CLASSIFIER][1].from_model(model, key=make_key(model, tokenizer, **SETTINGS))
    with served(create_app(victim, tokenizer, log=tmp_path / "log")) as address:
        assert ask(address, {"inputs": ["dull", "awful"]})[0] == 500
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            statuses = list(pool.map(lambda text: ask(address, {"inputs": text})[0], ["awful", *["dull"] * 7]))
    assert statuses == [500] + [200] * 7
    assert [line.text for line in QueryLog(tmp_path / "log").lines()] == ["dull"] * 7


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["inputs", "parameters", "truncate", "raw_scores", "top_k", "text", "text_pair", "options"])
REQUESTS = st.one_of(
    st.binary(max_size=200),
    ANYTHING.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(NAMES, ANYTHING, min_size=1, max_size=4).map(lambda value: json.dumps(value).encode()),
    st.tuples(
        st.text(max_size=60), st.dictionaries(st.sampled_from(["top_k", "ignore_labels", "user"]), ANYTHING)
    ).map(lambda pair: json.dumps({"inputs": pair[0], "parameters": pair[1]}).encode()),
)


def test_whatever_is_sent_gets_an_answer_or_a_clear_error_and_no_secret(ring_service, tagger_service, caplog, capfd):
    """Over real connections: no 500, no traceback, nothing of a key in any body, header or line that is logged."""
    address, victim, _, log = ring_service
    tagger, its_victim, _, _ = tagger_service
    own = victim.key.key_for("ann")
    seen, said = [], []

    @settings(max_examples=150, suppress_health_check=list(HealthCheck), deadline=None)
    @given(REQUESTS, st.sampled_from(["/", "/predict", "/info", "/health", "/x"]), st.sampled_from(["ring", "tagger"]))
    def look(body, path, which):
        where, token = (address, victim.key.token_for("ann")) if which == "ring" else (tagger, "the api token")
        status, headers, answer = ask(where, body, path, token=token)
        seen.append(status)
        said.append(f"{headers} {answer!r}".encode())
        assert status in (200, 400, 404, 405, 413, 422), (status, answer)
        assert status == 200 or list(answer) == ["error"]
        assert b"Traceback" not in said[-1] and b"drw_hf/" not in said[-1]

    with caplog.at_level(logging.DEBUG, logger="drw_hf"):
        look()
    streams = capfd.readouterr()
    assert "Traceback" not in streams.err and len(set(seen)) >= 4
    assert 500 not in seen
    token = victim.key.token_for("ann").encode()
    everything = b"\n".join([*said, streams.err.encode(), streams.out.encode(), caplog.text.encode()])
    assert token not in everything and b"for the owner alone" not in everything and b"the api token" not in everything
    for key in (own, its_victim.key):
        assert not leaks_in(key, [("said", everything)])
    assert victim.key.secret not in everything and victim.key.secret.hex().encode() not in everything
    written = b"".join(path.read_bytes() for path in log.folder.glob("*.jsonl"))
    assert token not in written and not leaks_in(own, [("log", written)])


# -- many at once


def test_what_waits_is_answered_together_and_each_gets_their_own(ring_service):
    address, victim, tokenizer, _ = ring_service
    rng = np.random.default_rng(1)
    asked = [(f"user {rng.integers(40)}", " ".join(rng.choice(WORDS, rng.integers(1, 9)))) for _ in range(200)]

    def one(pair):
        user, text = pair
        return ask(address, {"inputs": text}, token=victim.key.token_for(user))[2][0]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, asked))
    for (user, text), answer in zip(asked, answers, strict=True):
        np.testing.assert_allclose(as_scores(answer), answers_of(victim, tokenizer, [text], user)[0], atol=2e-3)


def run(coroutine):
    return asyncio.run(coroutine)


def test_a_batch_is_what_came_while_the_one_before_was_answered():
    sizes, gate = [], threading.Event()

    def answer(jobs):
        gate.wait(10)
        sizes.append(len(jobs))
        return [job * 2 for job in jobs]

    async def main():
        batcher = Batcher(answer, batch_size=8, queue=100)
        tasks = [asyncio.create_task(batcher.submit([number])) for number in range(20)]
        await asyncio.sleep(0.05)
        gate.set()
        found = await asyncio.gather(*tasks)
        await batcher.close()
        with pytest.raises(QueueFullError):
            await batcher.submit([1])
        return found

    assert run(main()) == [[number * 2] for number in range(20)]
    assert sizes[0] <= 20 and max(sizes) == 8 and sum(sizes) == 20


def test_what_nobody_waits_for_any_more_is_not_worked_for_and_a_broken_batch_ends_no_other():
    done, gate = [], threading.Event()

    def answer(jobs):
        gate.wait(10)
        done.extend(jobs)
        if "broken" in jobs:
            raise ValueError("told to break")
        return jobs

    async def main():
        batcher = Batcher(answer, batch_size=1, queue=100)
        first = asyncio.create_task(batcher.submit(["first"]))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(batcher.submit([name])) for name in ("gone", "broken", "last")]
        await asyncio.sleep(0)
        others[0].cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await first == ["first"] and await others[2] == ["last"]
        with pytest.raises(ValueError, match="told to break"):
            await others[1]
        await batcher.close()

    run(main())
    assert done == ["first", "broken", "last"]


class Slow(torch.nn.Module):
    """Takes its time, and can be told to fail on a word."""

    def __init__(self, model, gate):
        super().__init__()
        self.model, self.gate, self.asked, self.fails_on = model, gate, threading.Semaphore(0), None
        self.config = model.config

    def forward(self, input_ids, **inputs):
        self.asked.release()
        self.gate.wait(30)
        if self.fails_on is not None and (input_ids == self.fails_on).any():
            raise RuntimeError("told to fail on the text " + str(input_ids.tolist()))
        return self.model(input_ids=input_ids, **inputs)


def slow_app(**options):
    victim, tokenizer = victim_of()
    gate = threading.Event()
    slow = Slow(victim.victim, gate)
    victim.victim = slow
    return create_app(victim, tokenizer, **options), gate, slow, tokenizer


def test_beyond_the_queue_clients_are_told_to_come_again_and_what_was_taken_on_is_answered():
    app, gate, slow, _ = slow_app(limits=Limits(batch_size=1, queue=2))
    with served(app) as address, concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, address, {"inputs": "dull"})
        assert slow.asked.acquire(timeout=10)
        waiting = [pool.submit(ask, address, {"inputs": "dull"}) for _ in range(2)]
        end = time.monotonic() + 10
        while "drw_queue_texts 2" not in app.state.metrics.text() and time.monotonic() < end:
            time.sleep(0.01)
        status, headers, answer = ask(address, {"inputs": "dull"})
        assert (status, headers["retry-after"]) == (429, "1") and "wait already" in answer["error"]
        gate.set()
        assert [future.result()[0] for future in (first, *waiting)] == [200] * 3


def test_whoever_waits_too_long_is_told_so():
    app, gate, _, _ = slow_app(limits=Limits(timeout=0.5))
    with served(app) as address:
        status, headers, answer = ask(address, {"inputs": "dull"})
        assert (status, headers["retry-after"]) == (503, "1") and "within 0.5 seconds" in answer["error"]
        gate.set()
        assert ask(address, {"inputs": "dull"})[0] == 200


def test_at_the_end_what_was_taken_on_is_answered_and_logged(tmp_path):
    app, gate, slow, _ = slow_app(log=tmp_path / "log", limits=Limits(batch_size=1))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        with served(app) as address:
            futures = [pool.submit(ask, address, {"inputs": text}) for text in TEXTS]
            assert slow.asked.acquire(timeout=10)
            end = time.monotonic() + 10
            while "drw_queue_texts 3" not in app.state.metrics.text() and time.monotonic() < end:
                time.sleep(0.01)
            threading.Timer(0.5, gate.set).start()
        assert [future.result()[0] for future in futures] == [200] * 4
    assert sorted(line.text for line in QueryLog(tmp_path / "log").lines()) == sorted(TEXTS)


def test_a_text_on_which_the_model_fails_lets_nobody_else_down(caplog, capfd):
    app, gate, slow, tokenizer = slow_app()
    slow.fails_on = tokenizer.convert_tokens_to_ids("awful")
    gate.set()
    with served(app) as address:
        status, _, answer = ask(address, {"inputs": "an awful secret of a customer"})
        assert (status, answer) == (500, {"error": "this request could not be answered"})
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts = ["awful", *["dull"] * 7]
            assert [one[0] for one in pool.map(lambda text: ask(address, {"inputs": text}), texts)] == [500] + [
                200
            ] * 7
    streams = capfd.readouterr()
    assert "RuntimeError" in caplog.text and "told to fail" not in caplog.text + streams.err + streams.out


# -- the log


def test_every_answer_is_in_the_log_as_it_was_sent(ring_service, tagger_service):
    address, victim, _, log = ring_service
    token = victim.key.token_for("the one who is logged")
    (answer,) = ask(address, {"inputs": TEXTS[0], "parameters": {"top_k": 1}}, token=token)[2]
    ask(address, {"inputs": {"text": "a", "text_pair": "b"}}, token=token)
    lines = list(log.select(user="the one who is logged").lines())
    assert [line.text for line in lines] == [TEXTS[0], ["a", "b"]]
    assert max(lines[0].answered) == answer[0]["score"]
    assert {line.key for line in lines} == {victim.key.key_for("the one who is logged").commitment()}
    tagger, _, _, its_log = tagger_service
    found = ask(tagger, {"inputs": "we liked  it", "parameters": {"ignore_labels": []}}, token="the api token")[2]
    (line,) = [line for line in its_log.lines() if line.text == "we liked  it"]
    assert line.answered == [entity["entity"] for entity in found] and line.user is None


def test_words_beyond_the_models_limit_have_no_answer_in_the_log(tagger_service):
    tagger, _, _, log = tagger_service
    text = " ".join(["film"] * 80)
    assert ask(tagger, {"inputs": text}, token="the api token")[0] == 200
    (line,) = [line for line in log.lines() if line.text == text]
    assert len(line.answered) == 80 and line.answered[62:] == [None] * 18 and None not in line.answered[:62]


def test_on_a_full_disk_nothing_is_served_and_afterwards_all_is_well(tmp_path, caplog):
    victim, tokenizer = victim_of()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with served(create_app(victim, tokenizer, log=tmp_path / "log")) as address:
        assert ask(address, {"inputs": "before"})[0] == 200
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # no file may grow: what a full disk is
        try:
            for path, method, body in (("/", "POST", {"inputs": "during"}), ("/health", "GET", None)):
                status, headers, answer = ask(address, body, path, method=method)
                assert (status, headers["retry-after"]) == (503, "1")
                assert "nothing is served unlogged" in answer["error"] and str(tmp_path) not in answer["error"]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert ask(address, None, "/health", method="GET")[0] == 200
        assert ask(address, {"inputs": "after"})[0] == 200
    assert [line.text for line in QueryLog(tmp_path / "log").lines()] == ["before", "after"]
    assert QueryLog(tmp_path / "log").check().unfinished == []


def test_a_log_can_be_kept_without_texts_and_names(tmp_path):
    victim, tokenizer = victim_of(ring=True)
    app = create_app(victim, tokenizer, log=tmp_path / "log", log_texts=False, log_users=False)
    with served(app) as address:
        assert ask(address, {"inputs": TEXTS[0]}, token=victim.key.token_for("ann"))[0] == 200
    content = b"".join(path.read_bytes() for path in (tmp_path / "log").glob("*.jsonl"))
    assert b"ann" not in content and b"film" not in content
    asked = QueryLog(tmp_path / "log").asked_under(victim.key.key_for("ann"), TEXTS[:1])
    assert asked.questions == TEXTS[:1]
