"""The code that the pages about other servers give their readers, asked as a thief would ask it.

Each page's own examples compare its answers with the protected model's; that is in test_docs.
"""

import json
import threading
from http.server import ThreadingHTTPServer

import numpy as np
import pytest
import torch
from huggingface_hub import InferenceClient

import test_docs
from drw_hf import detect
from other_servers import VllmClassifier
from serving import ask
from small_models import make_key
from test_docs import PASSPHRASE, run_page, some_texts

given = test_docs.given  # the fixture
TEI, TRITON, VLLM = (f"howto/{name}.md" for name in ("text-embeddings-inference", "triton", "vllm"))
LONG = "film " * 80


def clean_scores(given, text):
    """What the model says without the mark."""
    with torch.no_grad():
        return given["model"](**given["tokenizer"](text, return_tensors="pt")).logits[0].softmax(-1).numpy()


def marked_scores(given, text):
    with torch.no_grad():
        return given["victim"](**given["tokenizer"](text, return_tensors="pt")).logits[0].softmax(-1).numpy()


# -- Text Embeddings Inference


@pytest.fixture
def front(given):
    """The address of the server in front of TEI, and what the page made."""
    names = run_page(TEI, given)
    server = ThreadingHTTPServer(("127.0.0.1", 0), names["Service"])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", names
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_server_in_front_of_tei_shows_no_score_without_the_mark_whatever_is_sent(front, given):
    address, names = front
    text, labels = "a truly moving story", list(given["key"].labels)
    plain = dict(zip(labels, clean_scores(given, text).tolist(), strict=True))
    marked = dict(zip(labels, marked_scores(given, text).tolist(), strict=True))
    behind = {one["label"]: one["score"] for one in names["ask_tei"]("/predict", {"inputs": text})}
    assert behind == pytest.approx(plain, abs=1e-6), "the side door that the page warns of"
    for extra in ({}, {"raw_scores": True}, {"truncate": True}, {"parameters": {"function_to_apply": "none"}}):
        for inputs in (text, [text]):
            for path in ("/", "/predict", "/tokenize", "/info"):
                status, _, content = ask(address, {"inputs": inputs, **extra}, path=path)
                (answer,) = json.loads(content)
                found = {one["label"]: one["score"] for one in answer}
                assert status == 200 and found == pytest.approx(marked, abs=1e-5)
    assert marked != pytest.approx(plain, abs=1e-3)


def test_the_server_in_front_of_tei_answers_texts_of_different_lengths_together(front, given):
    texts = ["dull", *some_texts(5), "the film was very good and we liked it"]
    for text, answer in zip(texts, front[1]["answer"](texts), strict=True):
        found = [next(one["score"] for one in answer if one["label"] == label) for label in given["key"].labels]
        np.testing.assert_allclose(found, marked_scores(given, text), atol=1e-5)


def test_the_server_in_front_of_tei_says_what_it_refuses(front):
    for inputs in ([], "", ["dull", " "], [["a", "b"]], [3], None, {"text": "a"}, ["dull"] * 33, LONG):
        status, _, content = ask(front[0], {"inputs": inputs})
        assert status == 422 and any(word in json.loads(content)["error"] for word in ("texts", "tokens")), inputs


def test_what_goes_wrong_behind_it_stays_there(front):
    address, names = front
    names["ask_tei"].__globals__["tei"] = "http://127.0.0.1:9"
    status, _, content = ask(address, {"inputs": "dull"})
    assert (status, json.loads(content)) == (503, {"error": "this request could not be answered"})


def test_detect_finds_the_mark_behind_the_server_in_front_of_tei(front, given):
    # The page's key marks some words of one class; this one marks all, so that a few texts show it.
    key = make_key(given["model"], given["tokenizer"], scope="all", tau=1.0)
    names = front[1]
    names["answer"].__globals__.update(key=key, marker=names["Marker"](key))
    texts = some_texts()
    options = {"tokenizer": given["tokenizer"], "victim": given["model"], "progress": False}
    assert detect(InferenceClient(model=front[0]), texts, key=key, **options).verdict == "detected"


# -- Triton


def test_tritons_model_says_what_it_refuses_and_nothing_of_what_went_wrong(given):
    names = run_page(TRITON, given)
    pb_utils, model = names["pb_utils"], names["served"]

    def execute(*rows):
        tensors = [pb_utils.Tensor("text", np.array(row, dtype=object)) for row in rows]
        return model.execute([pb_utils.InferenceRequest(inputs=[tensor]) for tensor in tensors])

    refusals = {
        "send 1 to 128 texts": ([], [b"dull"] * 129, [b"a" * 20_001]),
        "UTF-8": ([b"\xff\xfe"],),
        "could not be answered": (["no bytes"],),
    }
    for said, rows in refusals.items():
        for response in execute(*rows):
            assert said in response.error().message() and not response.output_tensors()
    (response,) = model.execute([pb_utils.InferenceRequest(inputs=[])])
    assert response.error().message() == "this request could not be answered"
    broken, good = execute([b"\xff"], [LONG.encode(), b"dull"])
    (scores,) = good.output_tensors()
    assert broken.has_error() and scores.name() == "scores", "one bad request does not spoil its neighbours"
    np.testing.assert_allclose(scores.as_numpy()[1], marked_scores(given, "dull"), atol=1e-5)


def test_tritons_model_does_not_start_without_its_key(given, monkeypatch):
    names = run_page(TRITON, given)
    place = {"model_repository": "models/protected", "model_version": "1"}
    for passphrase in (None, "wrong " + PASSPHRASE):
        if passphrase is not None:
            monkeypatch.setenv("DRW_PASSPHRASE", passphrase)
        with pytest.raises(Exception, match="passphrase") as caught:
            names["TritonPythonModel"]().initialize({**place, "model_config": json.dumps(names["config"])})
        assert PASSPHRASE not in str(caught.value)


# -- vLLM


def test_vllm_answers_no_task_and_no_activation_without_the_mark(given):
    served = run_page(VLLM, given)["served"]
    texts = ["dull", "a truly moving story", "the film was very good and we liked it"]
    prompts = [given["tokenizer"](text).input_ids for text in texts]
    clean = VllmClassifier(vllm_config=given["model"])
    for use_activation in (True, False, None):
        answers = served.answer(prompts, use_activation=use_activation)
        for text, answer in zip(texts, answers, strict=True):
            scores = answer.exp() if use_activation is False else answer
            np.testing.assert_allclose(scores, marked_scores(given, text), atol=1e-5)
    for text, answer in zip(texts, clean.answer(prompts), strict=True):  # the stand-in is the model
        np.testing.assert_allclose(answer, clean_scores(given, text), atol=1e-5)
    first = clean.answer(prompts[:1], task="token_classify")[0][0]
    np.testing.assert_allclose(first, clean_scores(given, texts[0]), atol=1e-5, err_msg="the side door of the page")
    for task in ("token_classify", "embed", "token_embed", "plugin"):
        with pytest.raises(ValueError, match="Unsupported task"):
            served.answer(prompts, task=task)
