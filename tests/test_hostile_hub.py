"""A Hub, or a service, that answers with what it should not: without end, not at all, or with somebody else's path."""

import gzip
import itertools
import json
import threading
import time
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

from drw_hf import WatermarkKey
from drw_hf.asking import remote
from drw_hf.asking.predictor import PredictorOptions
from drw_hf.asking.remote import ClientPredictor, pause_after
from drw_hf.errors import AnswerError, DrwError, HubError, PredictorError
from drw_hf.evidence import verify_commitment
from drw_hf.hub import audit
from drw_hf.reading import answers
from drw_hf.repositories import requests
from small_models import make_key, make_model

REPO = "owner/keys"
KEY_FILE = "/resolve/.*/drw_key.json"
MEBIBYTE = 2**20


@pytest.fixture
def key(hub):
    """A sealed key in a repository."""
    key = make_key(make_model())
    key.push_to_hub(REPO, passphrase="a passphrase")
    return key


def pull():
    return WatermarkKey.from_pretrained(REPO, passphrase="a passphrase")


def refused(function=pull, error=HubError):
    """What the error says, the memory and the seconds that it took."""
    tracemalloc.start()
    start = time.monotonic()
    try:
        with pytest.raises(error) as caught:
            function()
        return str(caught.value), tracemalloc.get_traced_memory()[1], time.monotonic() - start
    finally:
        tracemalloc.stop()


# -- how much, and how long


def test_a_key_file_without_an_end_is_not_downloaded_to_it(hub, key):
    hub.fail(path=KEY_FILE, change=lambda _: itertools.repeat(bytes(2**16)))
    told, memory, _ = refused()
    assert "16 MiB" in told and REPO in told and memory < 50 * MEBIBYTE


def test_a_packed_key_file_is_refused_before_it_is_unpacked(hub, key):
    packed = gzip.compress(bytes(30 * MEBIBYTE))
    hub.fail(path=KEY_FILE, change=lambda _: [packed], headers={"Content-Encoding": "gzip"})
    told, memory, _ = refused()
    assert "packed" in told and memory < 10 * MEBIBYTE


def test_answers_are_asked_for_as_they_are(hub, key):
    pull()
    assert {request.headers["Accept-Encoding"] for request in hub.requests if "GET" in request.method} == {"identity"}


def test_so_is_what_the_hub_says_of_a_repository(hub, key):
    hub.fail(path="/api/models/", times=9, change=lambda _: itertools.repeat(b" " * 2**20))
    told, memory, _ = refused(lambda: audit(REPO))
    assert "64 MiB" in told and memory < 300 * MEBIBYTE


def test_pages_that_each_name_a_next_one_come_to_an_end(hub, key, monkeypatch):
    monkeypatch.setattr(answers, "_MOST_ANSWERS", 20)
    again = f'<{hub.url}/api/models/{REPO}/commits/main>; rel="next"'
    hub.fail(path="/commits/", times=99, change=lambda body: [body], headers={"Link": again})
    assert "20 answers" in refused(lambda: audit(REPO, progress=False))[0]


def never(_):
    time.sleep(3)
    yield b""


def dripping(_):
    for _ in range(300):
        yield b" "
        time.sleep(0.01)


@pytest.mark.parametrize("how", [never, dripping])
def test_a_download_that_stalls_is_given_up(hub, key, monkeypatch, how):
    monkeypatch.setitem(requests._PATIENCE, "reading", 0.2)
    hub.fail(path=KEY_FILE, times=9, change=how)
    told, _, seconds = refused()
    assert "did not answer in time" in told and seconds < 3 * 6  # it is asked six times


@pytest.mark.parametrize("path", ["/api/models/", "/resolve/"])
def test_a_hub_that_does_not_answer_is_given_up(hub, key, monkeypatch, path):
    monkeypatch.setitem(requests._PATIENCE, "reading", 0.2)
    hub.fail(path=path, times=9, delay=1.0)
    refused()


def test_a_wait_beyond_reason_is_not_kept_to(hub, key):
    hub.fail(path=KEY_FILE, status=429, retry_after=10**8)
    assert pull() == key and max(hub.waits) <= 10
    hub.fail(path=KEY_FILE, status=429, retry_after=50)
    WatermarkKey.from_pretrained(REPO, passphrase="a passphrase", force_download=True)
    assert max(hub.waits) == 51


def test_requests_of_others_are_not_touched(hub, key):
    pull()
    hub.requests.clear()
    huggingface_hub.get_session().get(f"{hub.url}/{REPO}/resolve/main/drw_key.json")
    assert hub.requests[-1].headers["Accept-Encoding"] != "identity"


# -- names that become paths


@pytest.mark.parametrize("name", ["../../../../outside", "main", "A" * 40, "0" * 39, "0" * 41, 7, None])
def test_a_commit_is_named_by_40_digits_or_nothing_is_written(hub, key, name):
    """The Hub has the file at every revision, whatever that is called."""
    content = hub.files(REPO)["drw_key.json"]

    def renamed(body):
        return [json.dumps(json.loads(body) | {"sha": name}).encode()]

    hub.fail(path=f"/api/models/{REPO}", times=9, change=renamed)
    hub.fail(path=KEY_FILE, times=9, status=200, change=lambda _: [content])
    assert "40 hexadecimal digits" in refused()[0] or not isinstance(name, str)  # of others the client complains
    assert not list(hub.home.parent.rglob("drw_key.json"))
    for function in (lambda: verify_commitment(key, REPO), lambda: key.push_to_hub(REPO, passphrase="a passphrase")):
        refused(function)


# -- answers of another form


def everywhere(value):
    """The answer with everything in it replaced, one level down."""

    def change(body):
        document = json.loads(body)
        if isinstance(document, list):
            return [json.dumps([dict.fromkeys(each, value) for each in document]).encode()]
        return [json.dumps(dict.fromkeys(document, value)).encode()]

    return change


MALFORMED = {
    "no JSON": lambda _: [b"<html>"],
    "a list": lambda _: [b"[1, [2]]"],
    "a number": lambda _: [b"1e999"],
    "nothing": lambda _: [b"null"],
    "nested": lambda _: [b"[" * 10**5],
    "empty": lambda _: [b"{}"],
    "other types": everywhere(7),
    "text": everywhere("\ud800"),
    "objects": everywhere([{}]),
}


@pytest.mark.parametrize("how", MALFORMED)
@pytest.mark.parametrize("path", ["/api/models/owner/keys(/rev|$)", "/refs", "/commits/", "/tree/", "/paths-info/"])
def test_a_malformed_answer_is_an_error_of_ours(hub, key, path, how):
    for call in (pull, lambda: audit(REPO, progress=False), lambda: verify_commitment(key, REPO)):
        hub.faults.clear()
        hub.fail(path=path, times=99, change=MALFORMED[how])
        try:
            call()
        except DrwError:
            pass


# -- services


class Service(BaseHTTPRequestHandler):
    body = (b"[]",)

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for piece in self.body:
            self.wfile.write(piece)

    def log_message(self, *_):
        pass


@pytest.fixture
def service():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.handle_error = lambda *_: None  # a client that went away
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.socket.close()


def asked(url, task="sequence-classification", labels=("a", "b")):
    client = huggingface_hub.InferenceClient(model=url)
    question = ["a", "word"] if task == "token-classification" else "a text"
    return ClientPredictor(client, PredictorOptions(task=task, labels=labels, max_retries=0)).answer([question])


def test_a_service_is_understood(hub, service, monkeypatch):
    monkeypatch.setattr(Service, "body", [b'[[{"label": "a", "score": 0.75}, {"label": "b", "score": 0.25}]]'])
    assert asked(service)[0].tolist() == [0.75, 0.25]


ANSWERS = ["", "[", "[]", "{}", "7", "null", '["a"]', "[[[]]]", '[[{"label": "a"}]]', '[[{"score": 1}]]', "[" * 10**5]
ANSWERS += [
    '[[{"label": "a", "score": "1"}]]',
    '[[{"label": ["a"], "score": 1}]]',
    '[[{"label": "a", "score": null}]]',
]
ANSWERS += [
    '[{"score": 1, "start": "0", "end": 1, "entity": "a"}]',
    '[{"score": 1, "start": 0, "end": 9, "entity": [7]}]',
]
ANSWERS += ['{"error": "busy"}']


@pytest.mark.parametrize("answer", ANSWERS, ids=[answer[:40] or "empty" for answer in ANSWERS])
@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_a_service_that_answers_something_else_is_an_error_of_ours(hub, service, monkeypatch, task, answer):
    monkeypatch.setattr(Service, "body", [answer.encode()])
    with pytest.raises(DrwError):
        asked(service, task)


def test_a_service_that_answers_without_an_end_is_given_up(hub, service, monkeypatch):
    monkeypatch.setattr(Service, "body", itertools.repeat(b" " * 2**20))
    told, memory, _ = refused(lambda: asked(service), PredictorError)
    assert "64 MiB" in told and memory < 300 * MEBIBYTE


def test_a_service_that_stalls_is_given_up(hub, service, monkeypatch):
    monkeypatch.setattr(remote, "_PATIENCE", 0.2)
    monkeypatch.setattr(Service, "body", never(None))
    assert "Timeout" in refused(lambda: asked(service), PredictorError)[0]


@pytest.mark.parametrize(("told", "pause"), [("7", 7), ("10000000", 600), ("²", 0.5), ("-1", 0.5), ("9" * 5000, 0.5)])
def test_a_service_may_ask_for_a_pause_within_reason(told, pause):
    error = OSError()
    error.response = type("Response", (), {"status_code": 429, "headers": {"Retry-After": told}})
    assert pause_after(error, 0) == pause


def test_a_service_with_an_odd_answer_is_named(hub, service, monkeypatch):
    monkeypatch.setattr(Service, "body", [b"[7]"])
    with pytest.raises(AnswerError, match="sequence-classification"):
        asked(service)
