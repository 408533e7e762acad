"""Tilt: a keyed number per (token, class) in the log-odds of every class.

Expected answers are computed here, with numpy, from the key's signals s(token, class).
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from drw_hf import KeyRing, WatermarkKey
from drw_hf.asking import as_predictor
from drw_hf.detection import probe_suspect
from drw_hf.errors import ConfigurationError, InvalidKeyError, KeyMismatchError, ModelOutputError
from drw_hf.watermark import tilt
from drw_hf.watermark.mark import RingUsers
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query
from small_models import AUTO, SPECIAL, make_batch, make_key, make_model, make_tokenizer, make_victim

TASKS = ["sequence-classification", "token-classification"]
SENTENCES, TAGS = TASKS
CLS, SEP, PAD = SPECIAL["[CLS]"], SPECIAL["[SEP]"], SPECIAL["[PAD]"]
UNROUNDED = OutputOptions(digits=0)
VECTORS = json.loads((Path(__file__).parent / "vectors" / "tilt.json").read_text())


def make_config(task, n_classes, **config):
    """The configuration of a model with so many classes; no model is needed where logits are given."""
    names = {number: f"class {number}" for number in range(n_classes)}
    labels = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    return make_model(task, **labels, **config).config


def tilt_key(task=SENTENCES, n_classes=4, config=None, **settings):
    settings = {"mark": "tilt", "strength": 0.7, "temperature": 1.4, "task": task, **settings}
    return make_key(config or make_config(task, n_classes), **settings)


def query_of(*rows, mask=None):
    """Rows of token ids, padded on the right."""
    length = max(map(len, rows))
    input_ids = torch.tensor([[*row, *[PAD] * (length - len(row))] for row in rows])
    return Query(input_ids, input_ids != PAD if mask is None else torch.tensor(mask))


def random_logits(key, query, seed=0):
    shape = query.input_ids.shape if key.task == TAGS else query.input_ids.shape[:1]
    return 3.0 * torch.randn(*shape, key.num_labels, generator=torch.Generator().manual_seed(seed))


def expected(logits, query, key):
    """log ŷ by the definition, item by item, in float64."""
    chosen, special = key.settings, set(key.special_token_ids)
    log_y = logits.double().numpy().copy()
    for row, (ids, mask) in enumerate(zip(query.input_ids.tolist(), query.attention_mask.tolist(), strict=True)):
        words = [token for token, seen in zip(ids, mask, strict=True) if seen and token not in special]
        if key.task == SENTENCES and words:
            distinct = sorted(set(words))
            shift = tilt.signals(key, distinct).sum(axis=0) / np.sqrt(len(distinct))
            log_y[row] += chosen.strength * chosen.temperature * shift
        if key.task == TAGS:
            for place, (token, seen) in enumerate(zip(ids, mask, strict=True)):
                if seen and token not in special:
                    log_y[row, place] += chosen.strength * chosen.temperature * tilt.signals(key, [token])[0]
    return (
        log_y
        - np.log(np.exp(log_y - log_y.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - log_y.max(-1, keepdims=True)
    )


def check(logits, query, key, atol=1e-5, **options):
    found = protect(logits, query, key, OutputOptions(**{"digits": 0, **options}))
    np.testing.assert_allclose(found.double().numpy(), expected(logits, query, key), rtol=0, atol=atol)


def assert_same(found, wanted):
    """Up to the order in which float32 numbers are summed."""
    torch.testing.assert_close(found, wanted, rtol=0, atol=2e-6)


ROWS = query_of(
    [CLS, 9, 8, 9, 9, 40, SEP],  # one word three times
    [CLS, 9, 12, SEP, 12, 13, 9, SEP],  # a pair that shares words
    [CLS, 63, SEP],
    [CLS, SEP],  # no words
)


# -- the equation


@pytest.mark.parametrize("tau", [1.0, 0.5])
@pytest.mark.parametrize("n_classes", [2, 3, 5, 45])
@pytest.mark.parametrize("task", TASKS)
def test_every_answer_is_what_the_equation_says(task, n_classes, tau):
    key = tilt_key(task, n_classes, tau=tau, frequency=20.0)
    check(random_logits(key, ROWS), ROWS, key)
    assert 0 < tilt.selected(key, range(5, 64)).mean() <= tau


@pytest.mark.parametrize("task", TASKS)
def test_a_protected_model_answers_so(task):
    model, batch = make_model(task), make_batch(n_rows=8)
    key = tilt_key(task, config=model.config)
    with torch.no_grad():
        logits = model(**batch).logits
        found = make_victim(task, key=key, model=model, digits=0)(**batch).logits
    np.testing.assert_allclose(found, expected(logits, Query(**batch), key), rtol=0, atol=1e-5)
    assert (found.exp() - logits.softmax(-1)).abs().max() > 0.05


def test_a_repeated_word_counts_once_and_a_pair_is_one_set():
    key = tilt_key()
    alike = query_of(
        [CLS, 7, 8, 9, SEP], [CLS, 9, 9, 8, 7, 9, SEP], [CLS, 8, 7, SEP, 9, SEP], [CLS, 7, 8, SEP, SEP, 8, 9, 7, SEP]
    )
    logits = torch.randn(1, 4).expand(4, 4)
    log_y = protect(logits, alike, key, UNROUNDED)
    torch.testing.assert_close(log_y, log_y[:1].expand(4, 4), rtol=0, atol=1e-6)
    typed = Query(alike.input_ids, alike.attention_mask, token_type_ids=(alike.input_ids == 9).long())
    torch.testing.assert_close(protect(logits, typed, key, UNROUNDED), log_y)


def test_n_counts_words_that_the_key_does_not_select():
    """Else how far an answer moves would depend on the key, and a test that assumes it does not would be void."""
    key = tilt_key(tau=0.5)
    inside = np.flatnonzero(tilt.selected(key, np.arange(64)))
    outside = [token for token in range(5, 64) if token not in inside]
    query = query_of([CLS, int(inside[0]), SEP], [CLS, int(inside[0]), *outside[:3], SEP])
    alone, among = protect(torch.zeros(2, 4), query, key, UNROUNDED)
    torch.testing.assert_close(among - among.mean(), (alone - alone.mean()) / 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_special_tokens_alone_leave_an_answer_as_it_was(task):
    key = tilt_key(task, strength=3.0)
    query = query_of([CLS, SEP], [CLS, SPECIAL["[UNK]"], SPECIAL["[MASK]"], SEP])
    logits = random_logits(key, query)
    assert torch.equal(protect(logits, query, key, UNROUNDED), logits.log_softmax(-1))
    nothing = Query(torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long))
    logits = random_logits(key, nothing)
    assert torch.equal(protect(logits, nothing, key, UNROUNDED), logits.log_softmax(-1))
    assert not tilt.signals(key, sorted(SPECIAL.values())).any()


@pytest.mark.parametrize("task", TASKS)
def test_strength_0_gives_clean_answers(task):
    key = tilt_key(task, strength=0.0)
    logits = random_logits(key, ROWS)
    assert torch.equal(protect(logits, ROWS, key, UNROUNDED), logits.log_softmax(-1))


@pytest.mark.parametrize("task", TASKS)
def test_words_that_are_masked_do_not_count(task):
    mask = (ROWS.input_ids != PAD).long()
    mask[0, 1:3], mask[1, 4:] = 0, 0
    key = tilt_key(task)
    query = Query(ROWS.input_ids, mask)
    check(random_logits(key, query), query, key)


@pytest.mark.parametrize("task", TASKS)
@given(left=st.integers(0, 5), right=st.integers(0, 5), order=st.permutations(range(4)), dtype=st.booleans())
@settings(max_examples=25)
def test_padding_batch_and_the_order_of_rows_do_not_matter(task, left, right, order, dtype):
    key = KEYS[task]
    logits = random_logits(key, ROWS)
    alone = torch.cat([protect(logits[[row]], ROWS.rows(torch.tensor([row])), key, UNROUNDED) for row in order])
    pad = torch.nn.functional.pad
    query = Query(
        pad(ROWS.input_ids[order], (left, right), value=PAD).to(torch.int32 if dtype else torch.int64),
        pad(ROWS.attention_mask[order], (left, right)),
    )
    padded = pad(logits[order], (0, 0, left, right)) if task == TAGS else logits[order]
    found = protect(padded, query, key, UNROUNDED)
    if task == TAGS:
        found = found[:, left : left + alone.shape[1]]
    assert_same(found, alone)


KEYS = {task: tilt_key(task, tau=0.8) for task in TASKS}


# -- numbers of all kinds


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("task", TASKS)
def test_logits_of_any_float_type_are_answered_in_float32(task, dtype):
    key = KEYS[task]
    logits = random_logits(key, ROWS).to(dtype)
    assert protect(logits, ROWS, key, UNROUNDED).dtype == torch.float32
    check(logits, ROWS, key)
    assert protect(logits, ROWS, key, OutputOptions(digits=3)).dtype == torch.float32


def test_large_logits_are_moved_as_far_as_small_ones():
    key = KEYS[SENTENCES]
    logits = random_logits(key, ROWS)
    check(logits + 1000.0, ROWS, key, atol=1e-3)
    check(logits.double() + 1e9, ROWS, key, atol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_impossible_classes_stay_impossible(task):
    key = KEYS[task]
    logits = random_logits(key, ROWS)
    logits[..., 2] = -torch.inf
    log_y = protect(logits, ROWS, key, UNROUNDED)
    assert (log_y[..., 2] == -1e4).all() and torch.isfinite(log_y).all()
    others = [0, 1, 3]
    np.testing.assert_allclose(log_y[..., others], expected(logits, ROWS, key)[..., others], atol=1e-5)
    assert torch.isfinite(protect(logits, ROWS, key, OutputOptions())).all()


@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("task", TASKS)
def test_what_is_no_prediction_is_refused(task, label_kind, wrong):
    key = KEYS[task]
    logits = random_logits(key, ROWS)
    logits.view(4, -1, 4)[0, -1 if task == SENTENCES else 1, 0] = wrong
    with pytest.raises(ModelOutputError, match="NaN or infinite"):
        protect(logits, ROWS, key, OutputOptions(label_kind))
    if task == TAGS:
        logits = random_logits(key, ROWS)
        logits[0, -1] = logits[0, 0] = wrong  # padding and [CLS]: nobody's answer
        assert torch.isfinite(protect(logits, ROWS, key, OutputOptions(label_kind))[0, 1:6]).all()


# -- soft and hard answers


@pytest.mark.parametrize("task", TASKS)
def test_a_hard_answer_is_the_class_of_highest_y_and_so_is_the_soft_one(task):
    key = tilt_key(task, 9, strength=2.0)
    query = query_of(*[[CLS, *row, SEP] for row in np.random.default_rng(0).integers(5, 64, (50, 8)).tolist()])
    logits = random_logits(key, query).round()  # so that some classes tie before they are moved
    hard = protect(logits, query, key, OutputOptions("hard"))
    assert hard.unique().tolist() == [-1e4, 0.0]
    best = expected(logits, query, key).argmax(-1)
    assert (hard.argmax(-1).numpy() == best).all() and (best != logits.argmax(-1).numpy()).mean() > 0.1
    for digits in range(7):
        assert (protect(logits, query, key, OutputOptions(digits=digits)).argmax(-1).numpy() == best).all()


def test_hard_answers_are_never_drawn():
    model = make_model()
    key = make_key(model, mark="tilt")
    fresh = make_victim(model=model, key=key, label_kind="hard", sampling="fresh")
    again = [fresh(**make_batch(50)).logits for _ in range(2)]
    assert torch.equal(*again)
    with pytest.raises(ConfigurationError, match="sample_all=True draws hard labels, and the mark 'tilt' draws none"):
        make_victim(model=model, key=key, label_kind="hard", sample_all=True)


# -- digits


def scores(victim, **options):
    with torch.no_grad():
        return victim(**make_batch(), **options).logits.double().exp()


def test_soft_answers_have_three_digits_unless_something_else_is_asked_for(tmp_path):
    victim = make_victim(mark="tilt")
    assert victim.config.digits == 3
    units = 1000 * scores(victim)
    exact = make_victim(model=victim.get_base_model(), key=victim.key, digits=0)
    assert exact.config.digits == 0 and not torch.equal(scores(exact), scores(victim))
    torch.testing.assert_close(units, (1000 * scores(exact)).round(), rtol=0, atol=2)
    for model, folder in ((victim, "three"), (exact, "exact")):
        model.save_pretrained(tmp_path / folder)
        again = type(victim).from_pretrained(tmp_path / folder, key=victim.key)
        assert again.config.digits == model.config.digits and torch.equal(scores(again), scores(model))
        auto = AUTO[SENTENCES][0].from_pretrained(tmp_path / folder, key=victim.key, digits=2)
        assert auto.config.digits == 2
    assert json.loads((tmp_path / "three" / "config.json").read_text())["digits"] == 3


def test_a_model_saved_before_there_were_digits_shows_all_until_it_gets_a_key_that_rounds(tmp_path):
    victim = make_victim()
    victim.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    assert config.pop("digits") is None
    path.write_text(json.dumps(config))
    old = type(victim).from_pretrained(tmp_path, key=victim.key)
    assert torch.equal(scores(old), scores(victim))
    key = make_key(victim.get_base_model(), mark="tilt")
    rotated = type(victim).from_pretrained(tmp_path, key=key, replace_key=True)
    assert rotated.config.digits == 3
    asked = type(victim).from_pretrained(tmp_path, key=key, replace_key=True, digits=0)
    assert asked.config.digits == 0
    assert torch.equal(scores(old, watermark_key=key), scores(rotated)), "a call's own key brings its digits along"
    both = scores(old, watermark_key=[key, victim.key, key, victim.key])
    assert torch.equal(both[::2], scores(rotated)[::2]) and torch.equal(both[1::2], scores(victim)[1::2])


@pytest.mark.parametrize("digits", [-1, 7, 2.0, "3", True, False])
def test_digits_that_are_none_are_refused(tmp_path, digits):
    model = make_model()
    key = make_key(model, mark="tilt")
    with pytest.raises(ConfigurationError, match="digits="):
        make_victim(model=model, key=key, digits=digits)
    make_victim(model=model, key=key).save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="digits="):
        AUTO[SENTENCES][1].from_pretrained(tmp_path, key=key, digits=digits)


# -- many keys


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("at_once", [2**16, 20], ids=["at once", "in parts"])
def test_rows_with_keys_of_their_own_and_users_of_a_ring_are_marked_as_if_they_were_alone(
    task, n_classes, label_kind, at_once, monkeypatch
):
    monkeypatch.setattr(tilt, "_NUMBERS_OF_ROWS_AT_ONCE", at_once)
    key = tilt_key(task, n_classes)
    logits, options = random_logits(key, ROWS), OutputOptions(label_kind, digits=0)
    keys = [key, key.replace(secret=b"\x01" * 32, tau=0.4), key.replace(strength=2.0), key.replace(frequency=9.0)]
    alone = torch.stack([protect(logits, ROWS, one, options)[row] for row, one in enumerate(keys)])
    assert_same(protect(logits, ROWS, keys, options), alone)
    for tau in (1.0, 0.6):
        ring = KeyRing(key.replace(tau=tau), secret=bytes(range(50, 82)))
        users = ("ann", "bob", "ann", "Ännchen")
        alone = [protect(logits, ROWS, ring.key_for(user), options)[row] for row, user in enumerate(users)]
        assert_same(protect(logits, ROWS, RingUsers(ring, users), options), torch.stack(alone))


# -- memory


@pytest.mark.parametrize("task", TASKS)
def test_where_a_table_would_be_too_large_answers_are_the_same_without_one(task, monkeypatch):
    key, again = tilt_key(task, 5, tau=0.7), tilt_key(task, 5, tau=0.7)
    logits = random_logits(key, ROWS)
    monkeypatch.setattr(tilt, "TABLE_BYTES", 4 * 64 * 5)
    from_table = protect(logits, ROWS, key, UNROUNDED)
    monkeypatch.setattr(tilt, "TABLE_BYTES", 4 * 64 * 5 - 1)
    assert_same(protect(logits, ROWS, again, UNROUNDED), from_table)
    (table,) = kept_tables(key)
    assert table.shape == (65, 5) and not kept_tables(again)


def test_rows_with_keys_of_their_own_leave_no_tables_behind():
    keys = [tilt_key(secret=bytes([number]) * 32) for number in range(4)]
    protect(random_logits(keys[0], ROWS), ROWS, keys, UNROUNDED)
    assert not any(kept_tables(key) for key in keys)


@pytest.mark.parametrize("task", TASKS)
def test_neither_do_users_of_a_ring_though_their_keys_are_kept_for_a_while(task):
    ring = KeyRing(tilt_key(task, tau=0.6))
    logits = random_logits(ring.key_for("ann"), ROWS)
    for users in ("ann", ("ann",) * 4, ("ann", "bob", "bob", "eve")):
        found = protect(logits, ROWS, RingUsers(ring, users), UNROUNDED)
        assert not any(kept_tables(ring.key_for(user)) for user in ("ann", "bob", "eve"))
        if "bob" not in users:
            same = ring.key_for("ann").replace()  # a key of its own, with a table of its own
            assert_same(found, protect(logits, ROWS, same, UNROUNDED))


def kept_tables(key):
    return [value for value in key._cache.values() if torch.is_tensor(value) and value.dim() == 2]


# -- keys


def test_signals_match_the_committed_vectors():
    config = make_config(SENTENCES, 7, vocab_size=30522)
    key = tilt_key(config=config, frequency=VECTORS["frequency"])
    for domain, subkey in VECTORS["subkeys"].items():
        assert key.subkey(domain).hex() == subkey
    ids = VECTORS["token_ids"]
    assert tilt.phases(key, ids).tolist() == VECTORS["phases"], "to the bit"
    np.testing.assert_allclose(tilt.signals(key, ids), VECTORS["signals"], rtol=0, atol=1e-12)
    for tau in (0.3, 0.7):
        chosen = [number <= tau for number in VECTORS["selection"]]
        assert tilt.selected(key.replace(tau=tau), ids).tolist() == chosen


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_the_numbers_of_a_class_do_not_depend_on_how_many_there_are(n_classes):
    few, many = tilt_key(n_classes=n_classes), tilt_key(n_classes=7)
    np.testing.assert_array_equal(tilt.phases(few, range(64)), tilt.phases(many, range(64))[:, :n_classes])
    assert tilt.phases(few, []).shape == tilt.signals(few, []).shape == (0, n_classes)


def test_tokens_beyond_the_vocabulary_have_no_numbers():
    for function in (tilt.phases, tilt.selected, tilt.signals):
        for wrong in (64, -1):
            with pytest.raises(KeyMismatchError, match=r"\[0, 64\)"):
                function(tilt_key(), [7, wrong])


def test_numbers_are_uniform_and_signals_have_the_stated_mean_and_variance():
    """At the level 1e-4 each, over the choice of the fixed secret: 120,000 numbers."""
    key = tilt_key(config=make_config(SENTENCES, 4, vocab_size=30005), frequency=16.0)
    phase = tilt.phases(key, range(5, 30005))
    assert stats.kstest(phase.ravel(), "uniform").pvalue > 1e-4
    assert np.abs(np.corrcoef(phase.T) - np.eye(4)).max() < 4.5 / np.sqrt(len(phase)), "classes are independent"
    assert np.abs(stats.pearsonr(phase[1:, 0], phase[:-1, 3]).statistic) < 4 / np.sqrt(len(phase)), "and tokens"
    s = tilt.signals(key, range(5, 30005))
    f = 16.0
    mean = np.sqrt(2) * np.sin(f) / f
    variance = 1 + np.sin(2 * f) / (2 * f) - mean**2
    assert (round(mean, 4), round(variance, 3)) == (-0.0254, 1.017)
    assert s.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / s.size))
    assert s.var() == pytest.approx(variance, abs=4 * np.sqrt(np.var((s - mean) ** 2) / s.size))
    half = key.replace(tau=0.3)
    share = tilt.selected(half, range(5, 30005)).mean()
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 30000))
    chosen = tilt.selected(half, range(5, 30005))
    assert abs(stats.pearsonr(chosen, phase[:, 0]).statistic) < 4 / np.sqrt(30000), "selection has a domain of its own"


CHANGES = {
    "strength": 0.2,
    "temperature": 1.5,
    "budget": 0.3,
    "tau": 0.9,
    "frequency": 17.0,
    "max_length": 32,
    "truncation_side": "left",
    "pair_truncation": "only_first",
}


def test_the_commitment_covers_every_setting():
    key = tilt_key()
    names = set(key.settings.to_fields()) - {"mark", "hash_rule"}
    assert names == set(CHANGES), "every setting is tried"
    assert len({key.commitment(), *(key.replace(**{name: new}).commitment() for name, new in CHANGES.items())}) == 9


@pytest.mark.parametrize("task", TASKS)
def test_a_key_is_saved_with_all_its_settings(tmp_path, task):
    key = tilt_key(task, **CHANGES)
    for passphrase in (None, "words"):
        key.save_pretrained(tmp_path / str(passphrase), passphrase=passphrase)
        again = WatermarkKey.from_pretrained(tmp_path / str(passphrase), passphrase=passphrase)
        assert again == key and again.settings == key.settings
        assert {name: getattr(again.settings, name) for name in CHANGES} == CHANGES
    saved = json.loads((tmp_path / "None" / "drw_key.json").read_text())
    assert not {"target", "epsilon", "law", "dimension", "scope"} & set(json.dumps(saved).split('"'))
    ring = KeyRing(key)
    ring.save_pretrained(tmp_path / "ring")
    assert KeyRing.from_pretrained(tmp_path / "ring").key_for("ann") == ring.key_for("ann")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"target": 1}, "the mark 'tilt' has no target"),
        ({"epsilon": 0.1}, r"the mark 'tilt' has no epsilon; its settings are .*'strength'"),
        ({"scope": "all", "law": "paper"}, "no law and no scope"),
        ({"dimension": 7}, "no dimension"),
        ({"hash_rule": "second"}, "leave hash_rule='second' out"),
        ({"strength": -0.1}, "strength"),
        ({"strength": float("nan")}, "strength"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": None}, "temperature"),
        ({"budget": -1}, "budget"),
        ({"frequency": 0.0}, r"frequency=0.0: expected a finite number in \(0, 1000\]"),
        ({"frequency": 2.9}, r"frequency=2.9: expected at least 3 .* leave it out"),
        ({"frequency": 1e-9}, "the same for every word"),
        ({"max_length": 0}, "max_length"),
        ({"max_length": 1.5}, "max_length"),
        ({"truncation_side": "middle"}, "truncation_side"),
        ({"pair_truncation": "none"}, "pair_truncation"),
    ],
    ids=str,
)
def test_settings_that_the_mark_has_not_are_refused(setting, message):
    with pytest.raises(InvalidKeyError, match=message):
        tilt_key(**setting)


def test_the_lowest_frequency_is_taken_and_the_papers_mark_has_its_own_limits():
    assert tilt_key(frequency=3.0).frequency == 3.0
    assert make_key(make_model(), frequency=0.01).frequency == 0.01


def test_the_papers_mark_has_none_of_its_settings():
    with pytest.raises(TypeError, match="strength"):
        make_key(make_model(), strength=0.3)
    with pytest.raises(InvalidKeyError, match="'every' chooses none"):
        make_key(make_model(), hash_rule="every")
    with pytest.raises(InvalidKeyError, match="of the mark 'cosine'; expected one of the mark 'tilt'"):
        tilt.settings_of(make_key(make_model()))


def test_how_texts_are_cut_comes_from_the_tokenizer_unless_it_is_said():
    tokenizer = make_tokenizer(truncation_side="left")
    chosen = WatermarkKey.generate(make_model(), tokenizer=tokenizer, mark="tilt").settings
    assert (chosen.max_length, chosen.truncation_side, chosen.pair_truncation) == (64, "left", "longest_first")
    said = WatermarkKey.generate(
        make_model(), tokenizer=tokenizer, mark="tilt", max_length=16, truncation_side="right"
    )
    assert (said.settings.max_length, said.settings.truncation_side) == (16, "right")
    assert tilt_key().settings.max_length is None, "without a tokenizer nobody knows"


# -- detection reads texts as the model did


def test_probes_are_cut_as_the_key_records(tmp_path):
    tokenizer, model = make_tokenizer(), make_model()
    words = "the film was very good and the cast was bad"
    pair = ("the film was very good", "a bad book with awful music")
    ask = {"progress": False, "cache_dir": tmp_path, "tokenizer": tokenizer}

    def texts_of(questions, **settings):
        key = make_key(model, tokenizer, mark="tilt", **{"max_length": 8, **settings})
        probe = probe_suspect(model, questions, key=key, **ask)
        rows = np.split(probe.input_ids, probe.offsets[1:-1])
        return [tokenizer.decode(row, skip_special_tokens=True) for row in rows]

    assert texts_of([words]) == ["the film was very good and"]
    assert texts_of([words], truncation_side="left") == ["good and the cast was bad"]
    assert texts_of([words], max_length=64) == [words]
    assert texts_of([pair], max_length=10, pair_truncation="only_second") == ["the film was very good a bad"]
    assert texts_of([pair], max_length=10, pair_truncation="only_first") == ["the a bad book with awful music"]
    assert texts_of([words], pair_truncation="only_second") == ["the film was very good and"], "no pair"
    assert tokenizer.truncation_side == "right", "the tokenizer is as it was"


def test_a_length_that_is_asked_for_goes_before_the_recorded_one(tmp_path):
    tokenizer, model = make_tokenizer(), make_model()
    key = make_key(model, tokenizer, mark="tilt", max_length=8)
    asked = {"key": key, "tokenizer": tokenizer, "progress": False, "cache_dir": tmp_path}
    texts = ["the film was very good and the cast was bad"]
    assert len(probe_suspect(model, texts, max_length=5, **asked).input_ids) == 5
    assert len(probe_suspect(model, texts, **asked).input_ids) == 8


def test_the_victim_reads_no_more_than_the_key_records(tmp_path):
    """Else its clean answers would be to another text than the marked ones were."""
    tokenizer, model = make_tokenizer(), make_model()
    text, cut = "the film was very good and the cast was bad", "the film was very good and"
    asked = {"tokenizer": tokenizer, "victim": model, "progress": False, "cache_dir": tmp_path}
    short, long = (make_key(model, tokenizer, mark="tilt", max_length=length) for length in (8, 64))
    found = probe_suspect(model, [text], key=short, **asked)
    whole = probe_suspect(model, [text], key=long, **asked)
    of_the_cut = probe_suspect(model, [cut], key=long, **asked)
    np.testing.assert_allclose(found.victim, of_the_cut.victim, atol=1e-6)
    np.testing.assert_allclose(found.suspect, whole.suspect, atol=1e-6, err_msg="a suspect reads all it can")
    assert np.abs(whole.victim - found.victim).max() > 1e-4


# -- cut on the left: what is tested are the words that were marked

LONG = "the film was very good and the cast was bad but the music in the ending moving".split()
PAIR = ("the film was very good and moving", "a bad book with awful music but a bright ending")
PADDED = {"padding": True, "pad_to_multiple_of": 16}


def question_and_ids(form, side, length=10):
    """A question that is too long, in one of its forms, and the tokens that are left of it."""
    tokenizer = make_tokenizer(truncation_side=side)
    cut = {"truncation": "longest_first", "max_length": length}
    if form == "pair":
        return PAIR, tokenizer(*PAIR, **cut)["input_ids"]
    left = tokenizer(" ".join(LONG), **cut)["input_ids"]
    if form in ("text", "words"):
        return (LONG if form == "words" else " ".join(LONG)), left
    ids = tokenizer(" ".join(LONG))["input_ids"]  # tokenised rows are cut as they are, special tokens and all
    padded = tokenizer(" ".join(LONG), padding="max_length", max_length=32)
    row = dict(padded) if form == "padded row" else {"input_ids": ids, "attention_mask": [1] * len(ids)}
    return row, ids[-length:] if side == "left" else ids[:length]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("form", ["text", "pair", "words", "row", "padded row"])
def test_models_read_the_words_that_the_probe_holds(form, side, tmp_path):
    """The tokenizer's own side is the other one: the key says what counts."""
    tokenizer = make_tokenizer(truncation_side="left" if side == "right" else "right")
    task = SENTENCES if form in ("text", "pair") else TAGS
    model, (question, ids) = make_model(task), question_and_ids(form, side)
    recorded = {"max_length": 10, "truncation_side": side}
    key = make_key(model, tokenizer, mark="tilt", temperature=1.0, **recorded)
    protected = make_victim(task, key=key, model=model)
    read = []
    model.register_forward_pre_hook(lambda _, __, given: read.append(given["input_ids"].tolist()), with_kwargs=True)
    asked = {"key": key, "tokenizer": tokenizer, "progress": False, "cache_dir": tmp_path}
    probe = probe_suspect(
        lambda questions: [answer_to(one, task) for one in questions], [question], victim=model, **asked
    )
    assert probe.input_ids.tolist() == ids and [ids] in read, "the clean victim"
    read.clear()
    answer = as_predictor(protected, tokenizer).answer([question])[0]
    assert [ids] in read, "the protected model"
    if task == TAGS:
        tokens, there = probe.tokens_of(key)
        assert there.all() and tokens.tolist() == [token for token in ids if token not in (CLS, SEP)]
        assert answer.any(axis=1).sum() == len(tokens), "the words that were cut off have no answer"


def answer_to(question, task):
    """Of somebody who reads texts of any length."""
    same = dict.fromkeys(["O", "B-PER", "I-PER", "B-LOC"], 0.25)
    if task == SENTENCES:
        return {"negative": 0.5, "positive": 0.5}
    return [same] * len(question["input_ids"] if isinstance(question, dict) else question)


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_no_text_and_counts_for_no_length(side, padding_side, recwarn):
    """A text that fits is read whole, to whatever multiple it was padded."""
    tokenizer = make_tokenizer(truncation_side=side, padding_side=padding_side)
    model = make_model(TAGS, architecture="llama")  # padding moves no position
    key = make_key(model, tokenizer, mark="tilt", temperature=1.0, max_length=10)
    protected = make_victim(TAGS, key=key, model=model)
    short, padded = (dict(tokenizer(LONG[:8], is_split_into_words=True, **pad)) for pad in ({}, PADDED))
    assert (len(short["input_ids"]), len(padded["input_ids"])) == (10, 16)
    ask = as_predictor(protected, tokenizer)
    (whole,), (answer,) = ask.answer([short]), ask.answer([padded])
    text = np.array(padded["attention_mask"], bool)
    np.testing.assert_allclose(answer[text], whole, atol=2e-3)
    assert not answer[~text].any()
    with torch.no_grad():
        logits = protected(**{name: torch.tensor([value]) for name, value in padded.items()}).logits[0].softmax(-1)
    np.testing.assert_allclose(logits[text][1:-1], whole[1:-1], atol=2e-3)
    assert not [warning for warning in recwarn if "length" in str(warning.message)]
