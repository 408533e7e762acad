"""WatermarkKey: what it binds to, what it refuses, what it never shows."""

import copy
import dataclasses
import hashlib
import hmac
import inspect
import logging
import math
import pickle
import traceback

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import drw_hf
from drw_hf import WatermarkKey
from drw_hf.errors import DrwError, InvalidKeyError, KeySerializationError, UnsupportedModelError
from drw_hf.keys import Binding, MarkSettings, RarestRule, derivation
from drw_hf.keys.commitment import encode
from small_models import SPECIAL, TAGS, make_key, make_model

SECRET = bytes(range(32))


# -- binding


def test_a_key_reads_task_labels_and_vocabulary_from_a_model_or_its_config(tokenizer):
    model = make_model("token-classification")
    for source in (model, model.config):
        if source is model.config:
            source.architectures = ["BertForTokenClassification"]
        key = WatermarkKey.generate(source, tokenizer=tokenizer, target="I-PER")
        assert (key.task, key.labels, key.target) == ("token-classification", tuple(TAGS), 2)
        assert (key.target_label, key.num_labels, key.vocab_size) == ("I-PER", 4, model.config.vocab_size)
        assert key.special_token_ids == tuple(sorted(SPECIAL.values()))
        assert key.separator_token_ids == (SPECIAL["[CLS]"], SPECIAL["[SEP]"])
        assert len(key.tokenizer_fingerprint) == 64


def test_defaults_are_the_papers_with_our_law_and_scope():
    key = make_key(make_model())
    assert (key.frequency, key.epsilon, key.tau, key.dimension) == (16.0, 0.2, 0.5, 128)
    assert (key.law, key.scope, key.hash_rule.name, key.format_version) == ("direct", "predicted", "second", 1)


def test_keys_are_fresh_and_know_when_they_were_made():
    first, second = (make_key(make_model(), secret=None) for _ in range(2))
    assert first.secret != second.secret and first.key_id != second.key_id and first != second
    assert first.created_at.endswith("+00:00")


def test_the_tokenizer_fingerprint_ignores_padding_state(tokenizer):
    before = make_key(make_model(), tokenizer).tokenizer_fingerprint
    tokenizer(["the film", "a"], padding=True, truncation=True, max_length=8)
    assert make_key(make_model(), tokenizer).tokenizer_fingerprint == before


def test_a_key_is_frozen():
    key = make_key(make_model())
    with pytest.raises(dataclasses.FrozenInstanceError):
        key.epsilon = 0.5
    with pytest.raises(TypeError):
        dataclasses.asdict(key)
    with pytest.raises(ValueError):
        key.phase_table[0] = 0.0


BAD = {
    "target not a label": ({"target": "neutral"}, "negative"),
    "target index out of range": ({"target": 2}, "target=2"),
    "target a bool": ({"target": True}, "target=True"),
    "epsilon negative": ({"epsilon": -0.1}, "[0, 1000]"),
    "epsilon infinite": ({"epsilon": math.inf}, "finite"),
    "epsilon not a number": ({"epsilon": "0.2"}, "finite number"),
    "tau above one": ({"tau": 1.5}, "[0, 1]"),
    "tau NaN": ({"tau": math.nan}, "[0, 1]"),
    "frequency zero": ({"frequency": 0.0}, "(0, 1000]"),
    "frequency NaN": ({"frequency": math.nan}, "(0, 1000]"),
    "frequency beyond what a probe could tell": ({"frequency": 1001.0}, "(0, 1000]"),
    "unknown law": ({"law": "gauss"}, "direct"),
    "unknown scope": ({"scope": "some"}, "predicted"),
    "unknown task": ({"task": "translation"}, "sequence-classification"),
    "unknown rule": ({"hash_rule": "third"}, "rarest"),
    "rule of the other task": ({"hash_rule": "token"}, "second"),
    "short secret": ({"secret": b"short"}, "32 bytes"),
    "secret a str": ({"secret": "x" * 32}, "32 bytes"),
    "dimension zero": ({"law": "paper", "dimension": 0}, "dimension"),
    "special id beyond vocabulary": ({"special_token_ids": [2, 3, 64]}, "vocabulary"),
    "special id not an int": ({"special_token_ids": ["[CLS]"]}, "special_token_ids"),
    "separator not special": ({"special_token_ids": [0], "separator_token_ids": [5]}, "separator"),
    "frequencies of another length": ({"hash_rule": RarestRule([1.0, 2.0])}, "2 entries"),
}


@pytest.mark.parametrize("settings, said", BAD.values(), ids=BAD.keys())
def test_parameters_that_make_no_watermark_are_refused(settings, said):
    with pytest.raises(InvalidKeyError) as caught:
        make_key(make_model(), **settings)
    assert said in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, DrwError)


def test_special_tokens_must_be_known():
    with pytest.raises(InvalidKeyError, match="tokenizer"):
        WatermarkKey.generate(make_model(), target=1)


def test_the_task_must_be_known():
    with pytest.raises(InvalidKeyError, match="task="):
        make_key(make_model().config)
    assert make_key(make_model().config, task="sequence-classification").task == "sequence-classification"


@pytest.mark.parametrize(
    "config, said",
    [
        ({"id2label": {0: "score"}, "label2id": {"score": 0}}, "at least two"),
        ({"problem_type": "multi_label_classification"}, "exactly one is right"),
        ({"problem_type": "regression"}, "exactly one is right"),
    ],
)
def test_regression_and_multi_label_heads_are_refused_with_the_reason(config, said):
    with pytest.raises(UnsupportedModelError, match=said):
        make_key(make_model(**config), target=0)


def test_something_that_is_no_model_is_refused():
    with pytest.raises(InvalidKeyError, match=r"model\.config"):
        make_key("bert-base-uncased")


# -- keys in the paper's form


def paper_hash(v, M):
    """Section 3.2 of the paper, in its own words: the probability integral transform of a projection."""
    n = len(v)
    return np.array([norm.cdf(sum(v[j] * row[j] for j in range(n)) / math.sqrt(n / 3)) for row in M])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_from_arrays_hashes_as_the_papers_equations(dtype):
    rng = np.random.default_rng(0)
    model, n = make_model(), 16
    v_k, v_s, M = rng.random(n).astype(dtype), rng.random(n).astype(dtype), rng.standard_normal((64, n)).astype(dtype)
    key = WatermarkKey.from_arrays(v_k=v_k, v_s=v_s, M=M, config=model, target=1, special_token_ids=[0])
    np.testing.assert_allclose(key.phase_table, paper_hash(v_k.astype(float), M.astype(float)), atol=1e-12)
    np.testing.assert_allclose(key.selection_table, paper_hash(v_s.astype(float), M.astype(float)), atol=1e-12)
    assert (key.law, key.scope, key.dimension) == ("paper", "all", n)
    np.testing.assert_array_equal(key.M, M)
    M[0, 0] += 1.0
    assert key.M[0, 0] != M[0, 0], "a key does not change with the caller's array"


def test_a_derived_paper_key_hashes_as_the_papers_equations():
    key = make_key(make_model(), law="paper", dimension=31)
    np.testing.assert_allclose(key.phase_table, paper_hash(key.v_k, key.M), atol=1e-12)
    np.testing.assert_allclose(key.selection_table, paper_hash(key.v_s, key.M), atol=1e-12)


def test_a_direct_key_has_no_matrix():
    for name in ("M", "v_k", "v_s"):
        with pytest.raises(InvalidKeyError, match="paper"):
            getattr(make_key(make_model()), name)


@pytest.mark.parametrize(
    "change", [{"v_k": np.ones(3)}, {"M": np.ones((63, 4))}, {"M": np.full((64, 4), np.nan)}, {"law": "direct"}]
)
def test_arrays_that_do_not_fit_are_refused(change):
    arrays = {"v_k": np.ones(4), "v_s": np.ones(4), "M": np.ones((64, 4)), **change}
    with pytest.raises(InvalidKeyError):
        WatermarkKey.from_arrays(**arrays, config=make_model(), target=1, special_token_ids=[0])


# -- commitment

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def structure(value):
    """The value with its types: 1, 1.0 and True, or 0.0 and -0.0, are different."""
    if isinstance(value, list):
        return ["list", *map(structure, value)]
    if isinstance(value, dict):
        return ["dict", *sorted([name, structure(item)] for name, item in value.items())]
    return [type(value).__name__, repr(value)]


@given(values, values)
def test_the_encoding_under_a_commitment_is_injective(first, second):
    assert (encode(first) == encode(second)) == (structure(first) == structure(second))


def test_every_field_changes_the_commitment():
    key = make_key(make_model(), law="paper")
    changes = {
        "secret": b"\x01" * 32,
        "target": 0,
        "labels": ("positive", "negative"),
        "frequency": math.nextafter(16.0, 17.0),
        "epsilon": 0.1,
        "tau": 0.25,
        "law": "direct",
        "dimension": 64,
        "scope": "all",
        "vocab_size": 65,
        "task": "token-classification",
        "hash_rule": RarestRule(),
        "special_token_ids": (0, 2, 3),
        "separator_token_ids": (3,),
        "tokenizer_fingerprint": "00",
        "tokenizer_digest": "00",
        "key_id": "other",
        "created_at": "2020-01-01T00:00:00+00:00",
    }
    parameters = set(inspect.signature(WatermarkKey).parameters) - {"settings", "binding"}
    parameters |= {field.name for part in (MarkSettings, Binding) for field in dataclasses.fields(part)}
    assert parameters - changes.keys() == {"arrays", "mark", "seasoning"}
    commitments = {key.commitment()}
    for name, value in changes.items():
        more = {"hash_rule": drw_hf.keys.TokenRule()} if name == "task" else {}
        commitments.add(key.replace(**{name: value}, **more).commitment())
    assert len(commitments) == len(changes) + 1


def test_arrays_change_the_commitment():
    def made(M):
        return WatermarkKey.from_arrays(
            v_k=np.ones(4), v_s=np.ones(4), M=M, config=make_model(), target=1, special_token_ids=[0], secret=SECRET
        )

    matrix = np.ones((64, 4))
    first = made(matrix).replace(key_id="a", created_at="now")
    matrix[63, 3] = np.nextafter(1.0, 2.0)
    second = made(matrix).replace(key_id="a", created_at="now")
    assert first.commitment() != second.commitment()


def test_the_commitment_matches_its_committed_vector():
    key = make_key(make_model()).replace(key_id="0123456789abcdef", created_at="2026-01-01T00:00:00+00:00")
    assert key.commitment() == "3628062a28ac06bcc35072c142c919003a9ea833517733098d9398bc1a57ac68"
    assert key.fingerprint == key.commitment()[:16]


def test_hkdf_is_the_one_of_rfc_5869():
    """An independent transcription: extract with the salt, expand with the info, by HMAC-SHA256 alone."""
    extracted = hmac.new(b"drw-hf key derivation v1", SECRET, hashlib.sha256).digest()
    expanded = hmac.new(extracted, b"direct/tables" + b"\x01", hashlib.sha256).digest()
    assert derivation.subkey(SECRET, "direct/tables") == expanded


# -- what never leaves it


def secrets_in(text):
    return SECRET.hex() in text or repr(SECRET) in text or str(list(SECRET)) in text


def test_repr_str_format_and_logs_show_the_fingerprint_only(caplog):
    key = make_key(make_model())
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("anyone").warning("key %s %r", key, key)
    for text in (repr(key), str(key), f"{key}", repr([key]), repr({"key": key}), caplog.text):
        assert key.fingerprint in text and not secrets_in(text)
        assert "0.2" not in text and "negative" not in text


def test_errors_and_tracebacks_do_not_show_the_secret():
    try:
        make_key(make_model(), epsilon=-1.0)
    except InvalidKeyError as error:
        told = "".join(traceback.TracebackException.from_exception(error).format())
    assert not secrets_in(told)


def test_pickling_a_key_raises():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(KeySerializationError, match="save_pretrained"):
            pickle.dumps({"nested": [make_key(make_model())]}, protocol=protocol)


def test_copying_a_key_returns_it_itself():
    key = make_key(make_model())
    assert copy.copy(key) is key and copy.deepcopy([key])[0] is key


def test_equal_keys_are_equal_and_hash_alike():
    key = make_key(make_model())
    assert key == key.replace() and hash(key) == hash(key.replace())
    assert key != make_key(make_model(), epsilon=0.1) and key != "key"
