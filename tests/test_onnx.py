"""ONNX Runtime runs the clean model, and a `Marker` makes of its answers those of the protected one."""

import functools

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map

from drw_hf import KeyRing, Marker
from drw_hf.errors import ExportRefusedError
from needles import leaks_in
from other_servers import export_clean, write_exported
from small_models import AUTO, MARKS, SPECIAL, make_batch, make_key, make_model, make_tokenizer, make_victim

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra drw_hf[test] has it")
pytest.importorskip("onnxscript", reason="the extra drw_hf[test] has it")

TEXTS = ["the film", "a truly moving story with a great cast", "dull", "we hated the slow, awful ending of the book"]
PAIRS = ["was good", "the cast", "was very funny", "in a book"]
USERS = ["ann", "ben", "ann", "carl"]


@pytest.fixture(scope="module")
def session_of(tmp_path_factory):
    """The clean model of a task, exported by torch and run by ONNX Runtime."""

    @functools.cache
    def make(task):
        path = write_exported(tmp_path_factory.mktemp("exported"), task)
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    return make


@pytest.mark.parametrize("who", ["a key", "a ring"])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("task", AUTO)
def test_marked_answers_of_onnx_runtime_are_those_of_the_protected_model(session_of, task, mark, label_kind, who):
    model, tokenizer, session = make_model(task), make_tokenizer(), session_of(task)
    settings = {"mark": mark, **({"strength": 1.0, "temperature": 1.3} if mark == "tilt" else {"scope": "all"})}
    if who == "a key":
        key, user = make_key(model, tokenizer, **settings), {}
    else:
        if mark == "cosine":
            settings["target"] = 1
        key = KeyRing.generate(model, secret=bytes(32), special_token_ids=sorted(SPECIAL.values()), **settings)
        user = {"user": USERS}
    victim = AUTO[task][1].from_model(model, key=key, label_kind=label_kind, digits=0)
    marker = Marker(key, label_kind, digits=0)
    for asked in ((TEXTS,), (TEXTS, PAIRS)):
        batch = dict(tokenizer(*asked, padding=True, return_tensors="np"))
        (logits,) = session.run(["logits"], batch)
        with torch.no_grad():
            tensors = tree_map(torch.from_numpy, batch)
            clean, expected = model(**tensors).logits.numpy(), victim(**tensors, **user).logits.numpy()
        np.testing.assert_allclose(logits, clean, atol=1e-5)
        found = marker.mark_logits(logits, **batch, **user)
        np.testing.assert_allclose(np.exp(found), np.exp(expected), atol=1e-5)
        assert np.abs(np.exp(found) - np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).max() > 1e-2
        probabilities = torch.from_numpy(logits).softmax(-1).numpy()
        found = marker.mark_probabilities(probabilities, **batch, **user)
        np.testing.assert_allclose(found, np.exp(expected), atol=1e-5)


def test_what_is_exported_holds_nothing_of_a_key(tmp_path):
    model = make_model()
    victims = [make_victim(mark=mark, model=model) for mark in MARKS]
    for victim in victims:
        victim(**make_batch())  # tables and sub-keys are made
        with pytest.raises(ExportRefusedError, match="get_base_model"):
            torch.export.export(victim, (), kwargs=make_batch())
    export_clean(victims[0].get_base_model(), make_tokenizer(), tmp_path / "clean.onnx")
    written = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    assert {name for name, _ in written} == {"clean.onnx", "clean.onnx.data"}
    assert not [leak for victim in victims for leak in leaks_in(victim.key, written)]
