"""`Marker` answers as a protected model does, whatever computed the clean answers, and lets nothing of the key out."""

import copy
import functools
import io
import itertools
import pickle
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from drw_hf import KeyRing, Marker, WatermarkKey
from drw_hf.errors import (
    ConfigurationError,
    DrwError,
    ExportRefusedError,
    InvalidInputError,
    InvalidKeyError,
    KeySerializationError,
    MissingKeyError,
    ModelOutputError,
)
from needles import leaks_in
from small_models import AUTO, MARKS, SPECIAL, TAGS, VOCAB_SIZE, make_key, make_model
from test_leaks import what_reporters_show

SENTENCES, TAGGERS = TASKS = list(AUTO)
MARKINGS = {
    "cosine": {"mark": "cosine", "target": 1, "scope": "all", "tau": 0.7},
    "cosine, predicted": {"mark": "cosine", "target": 1, "hash_rule": None},
    "rarest": {"mark": "cosine", "target": 0, "scope": "all", "hash_rule": "rarest"},
    "keyed": {"mark": "cosine", "target": 0, "scope": "all", "hash_rule": "keyed"},
    "tilt": {"mark": "tilt", "strength": 1.0, "temperature": 1.3},
    "tilt of some tokens": {"mark": "tilt", "strength": 1.0, "temperature": 0.8, "tau": 0.5},
    "tilt and margin": {"mark": "tilt", "strength": 0.5, "temperature": 1.3, "margin": 0.6},
}
SPECIALS = {"special_token_ids": sorted(SPECIAL.values()), "separator_token_ids": [2, 3]}
USERS = ["ann", "bob", "Ännchen"]
WORDS = range(len(SPECIAL), VOCAB_SIZE)


@functools.cache
def model_for(task):
    return make_model(task)


@functools.cache
def key_for(task, marking, ring):
    chosen = dict(MARKINGS[marking])
    if task == TAGGERS:
        chosen.pop("hash_rule", None)
    make = KeyRing.generate if ring else WatermarkKey.generate
    return make(model_for(task), secret=bytes(range(32)), **SPECIALS, **chosen)


@functools.cache
def victim_for(task, marking, ring, label_kind, digits):
    return AUTO[task][1].from_model(
        model_for(task), key=key_for(task, marking, ring), label_kind=label_kind, digits=digits
    )


words = st.lists(st.sampled_from(WORDS), max_size=7)
texts = st.one_of(st.tuples(words), st.tuples(words, words))


def batch_of(rows, left):
    """Single texts and pairs of token ids, as a tokenizer with padding on either side gives them."""
    ids = [[2, *first, 3, *(part for more in rest for part in [*more, 3])] for first, *rest in rows]
    firsts = [len(first) + 2 for first, *_ in rows]
    types = [[0] * first + [1] * (len(row) - first) for first, row in zip(firsts, ids, strict=True)]
    length = max(map(len, ids))

    def padded(some):
        pads = [[0] * (length - len(row)) for row in some]
        return torch.tensor([pad + row if left else row + pad for pad, row in zip(pads, some, strict=True)])

    mask = padded([[1] * len(row) for row in ids])
    return {"input_ids": padded(ids), "attention_mask": mask, "token_type_ids": padded(types)}


def as_arrays(batch):
    return {name: tensor.numpy() for name, tensor in batch.items()}


@settings(max_examples=150)
@given(
    task=st.sampled_from(TASKS),
    marking=st.sampled_from(list(MARKINGS)),
    label_kind=st.sampled_from(["soft", "hard"]),
    digits=st.sampled_from([None, 0, 2]),
    rows=st.lists(texts, min_size=1, max_size=4),
    left=st.booleans(),
    users=st.sampled_from([None, "one", "each"]),
    with_types=st.booleans(),
)
def test_it_answers_as_the_protected_model_does(task, marking, label_kind, digits, rows, left, users, with_types):
    """For logits and probabilities, of numpy and of torch."""
    victim = victim_for(task, marking, users is not None, label_kind, digits)
    batch = batch_of(rows, left)
    if not with_types:
        del batch["token_type_ids"]
    user = {None: None, "one": "ann", "each": [USERS[row % 3] for row in range(len(rows))]}[users]
    marker = Marker(victim.key, label_kind, digits=digits)
    with torch.no_grad():
        clean, expected = victim.get_base_model()(**batch).logits, victim(**batch, user=user).logits
    counts = batch["attention_mask"].bool() if task == TAGGERS else torch.ones(len(rows), dtype=torch.bool)
    found = marker.mark_logits(clean, **batch, user=user)
    assert torch.is_tensor(found) and torch.equal(found, expected)
    arrays = as_arrays(batch)
    found = marker.mark_logits(clean.numpy(), **arrays, user=user)
    assert type(found) is np.ndarray and np.array_equal(found, expected.numpy())
    # The logarithm of a probability is not the logit to the last bit, which may tip a score that is rounded.
    mark_digits = 3 if "tilt" in marking else 0
    unit = 0.0 if (rounding := mark_digits if digits is None else digits) == 0 else 1.5 * 10.0**-rounding
    p = clean.softmax(-1)
    by_torch = marker.mark_probabilities(p, **batch, user=user)
    by_numpy = marker.mark_probabilities(p.numpy(), **arrays, user=user)
    assert torch.is_tensor(by_torch) and type(by_numpy) is np.ndarray and by_numpy.dtype == np.float32
    assert np.array_equal(by_torch.numpy(), by_numpy)
    torch.testing.assert_close(by_torch[counts], expected[counts].exp(), rtol=0, atol=max(1e-6, unit))


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("marking", MARKINGS)
@pytest.mark.parametrize("task", TASKS)
def test_no_combination_of_mark_labels_padding_ring_and_pair_differs_by_more_than_1e_6(
    task, marking, label_kind, ring
):
    """Every one of them, which the draws above only are likely to reach; scores as they are before any rounding."""
    victim = victim_for(task, marking, ring, label_kind, 0)
    marker, user = Marker(victim.key, label_kind, digits=0), USERS if ring else None
    singles = [([9, 10, 11, 40],), ([12],), ([13, 14],)]
    pairs = [([9, 10, 11], [50, 51]), ([12], [9, 9, 60]), ([], [33])]
    for rows, left in itertools.product((singles, pairs), (False, True)):
        batch = batch_of(rows, left)
        with torch.no_grad():
            clean, expected = victim.get_base_model()(**batch).logits, victim(**batch, user=user).logits
        counts = batch["attention_mask"].bool() if task == TAGGERS else torch.ones(len(rows), dtype=torch.bool)
        found = torch.from_numpy(marker.mark_logits(clean.numpy(), **as_arrays(batch), user=user))
        by_p = torch.from_numpy(marker.mark_probabilities(clean.softmax(-1).numpy(), **as_arrays(batch), user=user))
        for one in (found.exp(), by_p):
            torch.testing.assert_close(one[counts], expected.exp()[counts], rtol=0, atol=1e-6)


@pytest.mark.parametrize("sample_all", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_fresh_draws_are_those_of_the_protected_model_with_the_same_chance(task, sample_all):
    key = make_key(model_for(task), mark="cosine", scope="all", law="paper", dimension=16)
    options = {"sampling": "fresh", "sample_all": sample_all}
    victim = AUTO[task][1].from_model(model_for(task), key=key, label_kind="hard", **options)
    batch = batch_of([([9, 10, 11],), ([12, 50],)], left=False)
    with torch.no_grad():
        expected = victim(**batch, generator=torch.Generator().manual_seed(7)).logits
        clean = victim.get_base_model()(**batch).logits
    marker = Marker(key, "hard", **options)
    assert torch.equal(marker.mark_logits(clean, **batch, generator=torch.Generator().manual_seed(7)), expected)


@pytest.mark.parametrize("mark", MARKS)
def test_answers_and_tokens_may_be_of_any_float_and_integer_type(mark):
    marker, batch = Marker(key_for(SENTENCES, mark, False)), batch_of([([9, 10, 11],), ([12],)], left=False)
    logits = np.array([[0.25, 1.5], [2.0, -0.5]])
    expected = marker.mark_logits(logits, **as_arrays(batch))
    assert expected.dtype == np.float32
    for kind in (np.float16, np.float32, ">f8"):
        np.testing.assert_allclose(marker.mark_logits(logits.astype(kind), **as_arrays(batch)), expected, atol=1e-6)
    half = torch.tensor(logits, dtype=torch.bfloat16)
    np.testing.assert_allclose(marker.mark_logits(half, **batch), expected, atol=1e-6)
    for kind in (np.int32, np.uint16, ">i8"):
        arrays = {name: array.astype(kind) for name, array in as_arrays(batch).items()}
        np.testing.assert_array_equal(marker.mark_logits(logits, **arrays), expected)
    lists = {name: tensor.tolist() for name, tensor in batch.items()}
    np.testing.assert_array_equal(marker.mark_logits(logits, **lists), expected)
    masks = batch["attention_mask"].numpy()
    for mask in (masks.astype(bool), masks.astype(np.float32), torch.tensor(masks, dtype=torch.bool)):
        np.testing.assert_array_equal(marker.mark_logits(logits, **{**batch, "attention_mask": mask}), expected)


def test_what_was_given_is_not_changed_and_may_be_read_only_or_a_view():
    marker, batch = (
        Marker(key_for(SENTENCES, "tilt", False)),
        as_arrays(batch_of([([9, 10],), ([11, 12],)], left=False)),
    )
    logits = np.arange(8.0, dtype=np.float32).reshape(2, 4)[:, ::2]
    before, expected = logits.copy(), marker.mark_logits(np.ascontiguousarray(logits), **batch)
    for array in (logits, *batch.values()):
        array.flags.writeable = False
    backwards = {name: array[:, ::-1][:, ::-1] for name, array in batch.items()}
    for tokens in (batch, backwards):
        np.testing.assert_array_equal(marker.mark_logits(logits, **tokens), expected)
    np.testing.assert_array_equal(logits, before)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_hard_answers_say_one_label_and_soft_ones_a_distribution(label_kind, mark):
    marker, batch = Marker(key_for(TAGGERS, mark, False), label_kind), batch_of([([9, 10, 11],)], left=False)
    p = np.full((1, 5, len(TAGS)), 0.25)
    found = marker.mark_probabilities(p, **batch)
    np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-6)
    assert (np.isin(found, [0, 1]).all()) == (label_kind == "hard")


def test_fresh_draws_come_from_the_generator_and_sample_all_draws_all():
    key = make_key(model_for(SENTENCES), mark="cosine", tau=0.0)
    marker = Marker(key, "hard", sampling="fresh", sample_all=True)
    batch, p = batch_of([([9],)] * 400, left=False), np.full((400, 2), 0.5)
    first, again, other = (
        marker.mark_probabilities(p, **batch, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert (first == again).all() and (first != other).any() and 120 < first[:, 0].sum() < 280
    keyed = Marker(key, "hard", sample_all=True).mark_probabilities(p, **batch)
    assert (keyed == keyed[0]).all(), "the same text, the same label"


def test_without_a_mask_the_pad_id_tells_padding():
    key, batch = key_for(SENTENCES, "tilt", False), batch_of([([9, 10, 11],), ([12],)], left=False)
    logits = torch.tensor([[0.2, 0.1], [0.3, 0.4]])
    expected = Marker(key).mark_logits(logits, **batch)
    assert torch.equal(Marker(key, pad_token_id=0).mark_logits(logits, batch["input_ids"]), expected)
    assert torch.equal(Marker(key).mark_logits(logits[:1], batch["input_ids"][:1]), expected[:1]), "one row has none"
    with pytest.raises(InvalidInputError, match="pass attention_mask"):
        Marker(key).mark_logits(logits, batch["input_ids"])


def test_a_rotated_ring_marks_with_its_new_epoch():
    ring = KeyRing.generate(model_for(SENTENCES), temperature=1.0, **SPECIALS)
    marker, batch = Marker(ring, digits=0), batch_of([([9, 10, 11],)], left=False)
    logits = torch.tensor([[0.2, 0.1]])
    before = marker.mark_logits(logits, **batch, user="ann")
    ring.rotate()
    after = marker.mark_logits(logits, **batch, user="ann")
    assert not torch.equal(before, after)
    assert torch.equal(after, Marker(ring.key_for("ann"), digits=0).mark_logits(logits, **batch))


def test_threads_may_share_one():
    ring, batch = key_for(TAGGERS, "tilt", True), batch_of([([9, 10, 11],)], left=False)
    marker, logits, found = Marker(ring), torch.zeros(1, 5, len(TAGS)), {}
    names = [f"user {number}" for number in range(8)]
    expected = {name: marker.mark_logits(logits, **batch, user=name) for name in names}

    def ask(name):
        found[name] = [marker.mark_logits(logits, **batch, user=name) for _ in range(20)]

    threads = [threading.Thread(target=ask, args=(name,)) for name in names]
    [thread.start() for thread in threads], [thread.join() for thread in threads]
    assert all(torch.equal(one, expected[name]) for name in names for one in found[name])


# -- what is refused

BATCH = as_arrays(batch_of([([9, 10],), ([11],)], left=False))
LOGITS, TAGGED = np.zeros((2, 2), np.float32), np.zeros((2, 4, 4), np.float32)
P = np.full((2, 2), 0.5)


def changed(**arrays):
    return {**BATCH, **arrays}


BAD_LOGITS = {
    "one row too few": (LOGITS[:1], BATCH, r"shape \(1, 2\).*needs answers of shape \(2, 2\)"),
    "three labels": (np.zeros((2, 3), np.float32), BATCH, r"2 labels needs answers of shape \(2, 2\)"),
    "a tagger's": (TAGGED, BATCH, r"a key for sequence-classification"),
    "a text alone": (LOGITS[0], BATCH, "shape"),
    "ids alone": (LOGITS, changed(input_ids=BATCH["input_ids"][0]), r"expected \(batch, length\)"),
    "a short mask": (LOGITS, changed(attention_mask=BATCH["attention_mask"][:, 1:]), "attention_mask has shape"),
    "short types": (LOGITS, changed(token_type_ids=BATCH["token_type_ids"][:1]), "token_type_ids has shape"),
    "an id beyond": (LOGITS, changed(input_ids=BATCH["input_ids"] + 60), "goes from 0 to 63.*own tokenizer"),
    "a negative id": (LOGITS, changed(input_ids=BATCH["input_ids"] - 1), "goes from 0 to 63"),
    "ids that are floats": (LOGITS, changed(input_ids=BATCH["input_ids"] / 2), "input_ids hold float64"),
    "ids that are words": (LOGITS, changed(input_ids=[["a"] * 4] * 2), "input_ids hold"),
    "no ids": (LOGITS, changed(input_ids=None), "input_ids"),
    "ragged ids": (LOGITS, changed(input_ids=[[1, 2], [3]]), "rows of equal length"),
    "a mask of words": (LOGITS, changed(attention_mask=[["a"] * 4] * 2), "expected 1 for text and 0 for padding"),
    "a mask that is added": (
        LOGITS,
        changed(attention_mask=np.where(BATCH["attention_mask"], 0.0, -1e4)),
        "attention_mask holds other numbers; expected 1 for text",
    ),
    "a mask of NaN": (LOGITS, changed(attention_mask=torch.full((2, 4), torch.nan)), "attention_mask holds other"),
    "integers": (np.zeros((2, 2), int), BATCH, "logits hold int64"),
    "tensors of integers": (torch.zeros(2, 2, dtype=torch.int64), BATCH, "floating-point"),
    "None": (None, BATCH, "logits hold object"),
    "users": (LOGITS, {**BATCH, "user": "ann"}, "no KeyRing"),
}
BAD_PROBABILITIES = {
    "logits": (np.array([[0.5, 0.5], [3.0, -1.0]]), "row 1 of probabilities.*mark_logits"),
    "sigmoid scores": (np.array([[0.9, 0.4], [0.5, 0.5]]), "row 0 of probabilities"),
    "NaN": (np.array([[0.5, 0.5], [np.nan, 0.5]]), "row 1 of probabilities is NaN"),
    "negative": (np.array([[1.5, -0.5], [0.5, 0.5]]), "row 0 of probabilities"),
    "percent": (100 * P, "row 0 of probabilities"),
    "a list of three": (np.full((2, 3), 1 / 3), "2 labels needs"),
}


def refused(call, match, error=InvalidInputError):
    """The call raises our error, which says so and holds nothing of the key."""
    with pytest.raises(error, match=match) as caught:
        call()
    shown = what_reporters_show(caught.value)
    for spelt in (bytes(range(32)).hex(), repr(bytes(range(32)))):
        assert spelt not in shown
    return caught.value


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("what", BAD_LOGITS)
def test_logits_and_tokens_that_do_not_fit_are_refused(what, mark):
    logits, arguments, match = BAD_LOGITS[what]
    refused(lambda: Marker(key_for(SENTENCES, mark, False)).mark_logits(logits, **arguments), match)


@pytest.mark.parametrize("what", BAD_PROBABILITIES)
def test_probabilities_that_are_none_are_refused(what):
    p, match = BAD_PROBABILITIES[what]
    marker = Marker(key_for(SENTENCES, "tilt", False))
    for given_as in (p, torch.tensor(p, dtype=torch.float32)):
        refused(lambda given_as=given_as: marker.mark_probabilities(given_as, **BATCH), match)


def test_scores_that_were_rounded_are_probabilities():
    marker = Marker(key_for(SENTENCES, "tilt", False), digits=0)
    exact = marker.mark_probabilities(np.array([[0.3333, 0.6667], [0.5, 0.5]]), **BATCH)
    np.testing.assert_allclose(
        marker.mark_probabilities(np.array([[0.333, 0.666], [0.5, 0.5]]), **BATCH), exact, atol=1e-3
    )


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("mark", MARKS)
def test_numbers_that_are_none_are_refused_where_there_is_an_answer(mark, value):
    logits, tagged = LOGITS.copy(), TAGGED.copy()
    logits[1] = value
    refused(lambda: Marker(key_for(SENTENCES, mark, False)).mark_logits(logits, **BATCH), "NaN", ModelOutputError)
    tagger = Marker(key_for(TAGGERS, mark, False))
    tagged[1, 3] = value  # padding: nobody's answer
    assert np.isfinite(tagger.mark_logits(tagged, **BATCH)[0]).all()
    assert np.isfinite(tagger.mark_probabilities(tagged + 0.25, **BATCH)[0]).all()
    tagged[0, 1] = value
    refused(lambda: tagger.mark_logits(tagged, **BATCH), "NaN", ModelOutputError)
    refused(lambda: tagger.mark_probabilities(tagged + 0.25, **BATCH), "row 0, 1 of probabilities")


@pytest.mark.parametrize("mark", MARKS)
def test_a_ring_marks_for_nobody_without_a_name(mark):
    marker = Marker(key_for(SENTENCES, mark, True))
    refused(lambda: marker.mark_logits(LOGITS, **BATCH), "pass user=", MissingKeyError)
    refused(lambda: marker.mark_logits(LOGITS, **BATCH, user=["ann"]), "1 users were given for a batch of 2 rows")
    for wrong in ("", 5, ["ann", None], ["ann", ""]):
        refused(lambda wrong=wrong: marker.mark_logits(LOGITS, **BATCH, user=wrong), "user")


def test_choices_that_there_are_not_are_refused():
    key = key_for(SENTENCES, "tilt", False)
    for wrong in (
        {"label_kind": "firm"},
        {"sampling": "often"},
        {"digits": 7},
        {"sample_all": True},
        {"sample_all": 1},
    ):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            Marker(key, **wrong)
    for wrong in ("a path", None, [key]):
        with pytest.raises(InvalidKeyError, match="WatermarkKey or a KeyRing"):
            Marker(wrong)


# -- what is kept secret


@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("mark", MARKS)
def test_it_shows_a_fingerprint_and_is_neither_pickled_nor_saved(mark, ring):
    key = key_for(SENTENCES, mark, ring)
    marker, user = Marker(key), "ann" if ring else None
    expected = marker.mark_logits(LOGITS, **BATCH, user=user)  # tables and sub-keys are made
    shown = f"{marker!r} {marker} {vars(marker)}".encode()
    assert not leaks_in(key.key_for("ann") if ring else key, [("shown", shown)]) and key.fingerprint.encode() in shown
    for write in (pickle.dumps, copy.copy(marker).__reduce_ex__, lambda one: torch.save(one, io.BytesIO())):
        with pytest.raises((KeySerializationError, TypeError)):
            write(marker)
    assert copy.deepcopy(marker).key is key, "a copy shares the key, as copies of a protected model do"
    np.testing.assert_array_equal(copy.deepcopy(marker).mark_logits(LOGITS, **BATCH, user=user), expected)


def test_whoever_marks_with_a_key_has_committed_to_it():
    key = WatermarkKey.generate(model_for(SENTENCES), temperature=1.0, **SPECIALS)
    assert not key.committed
    Marker(key)
    assert key.committed


def test_an_error_in_the_midst_of_it_leaves_no_variables_in_its_frames(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("it broke")

    for mark in MARKS:
        marker = Marker(key_for(TAGGERS, mark, False), "hard", digits=0)
        monkeypatch.setattr("drw_hf.watermark.marking.hard_output", fail)
        error = refused(lambda marker=marker: marker.mark_logits(TAGGED, **BATCH), "it broke", RuntimeError)
        assert not isinstance(error, DrwError)


class Inside(torch.nn.Module):
    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def forward(self, logits, input_ids):
        return self.marker.mark_logits(logits, input_ids)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_marking_is_not_recorded_into_an_artefact():
    module, row = Inside(Marker(key_for(SENTENCES, "tilt", False))), torch.tensor([[2, 9, 10, 3]])
    for record in (torch.jit.trace, torch.export.export):
        with pytest.raises(ExportRefusedError, match=r"with drw_hf\.Marker"):
            record(module, (torch.zeros(1, 2), row))
