"""A model whose key is a ring: every user's answers carry that user's own mark."""

import numpy as np
import pytest
import torch
from transformers import pipeline

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkKey
from drw_hf.errors import InvalidInputError, KeyFileError, KeyMismatchError, MissingKeyError, PlainKeyRefusedError
from drw_hf.evidence import verify_commitment
from drw_hf.hub import audit
from drw_hf.keys import KeyRing
from needles import leaks_in
from small_models import AUTO, MARKS, SPECIAL, make_batch, make_model, make_tokenizer
from test_handler import fill_with, pipe_of, same, start

PASSPHRASE = "correct horse battery staple"
USERS = ["ann", "bob", "Ännchen", "customer-42"]
RULES = {"sequence-classification": ["second", "rarest", "keyed"], "token-classification": ["token"]}
WAYS = [(task, {"hash_rule": rule}) for task, rules in RULES.items() for rule in rules]
WAYS += [(task, {"mark": "tilt", "strength": 1.0}) for task in RULES]


def make_ring(model, **settings):
    of_the_mark = {} if settings.get("mark") == "tilt" else {"target": 1, "scope": "all"}
    settings = {**of_the_mark, "tau": 0.6, "secret": bytes(range(32)), **settings}
    return KeyRing.generate(model, special_token_ids=sorted(SPECIAL.values()), separator_token_ids=[2, 3], **settings)


def make_victim(task="sequence-classification", label_kind="soft", **settings):
    model = make_model(task)
    return AUTO[task][1].from_model(model, key=make_ring(model, **settings), label_kind=label_kind)


def answers(model, batch=None, **options):
    with torch.no_grad():
        return model(**(batch or make_batch()), **options).logits


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize(("task", "settings"), WAYS, ids=str)
def test_every_row_is_marked_with_its_own_users_key(task, settings, label_kind):
    victim = make_victim(task, label_kind, **settings)
    batch = make_batch(n_rows=4)
    together = answers(victim, batch, user=USERS)
    keys = [victim.key.key_for(user) for user in USERS]
    torch.testing.assert_close(together, answers(victim, batch, watermark_key=keys), rtol=0, atol=1e-6)
    for row, user in enumerate(USERS):
        alone = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        torch.testing.assert_close(together[row : row + 1], answers(victim, alone, user=user), rtol=0, atol=1e-6)
    if label_kind == "soft":
        assert not torch.equal(together, answers(victim, batch, user="ann"))


@pytest.mark.parametrize("mark", MARKS)
def test_users_may_repeat_within_a_batch(mark):
    victim, batch = make_victim(mark=mark), make_batch(n_rows=4)
    expected = [answers(victim, batch, user=user)[row] for row, user in enumerate(["ann", "bob", "ann", "bob"])]
    torch.testing.assert_close(answers(victim, batch, user=["ann", "bob", "ann", "bob"]), torch.stack(expected))


def test_a_context_names_the_user_also_for_a_pipeline():
    victim, tokenizer = make_victim(), make_tokenizer()
    pipe = pipeline("text-classification", model=victim, tokenizer=tokenizer)
    with victim.use_key(user="ann"):
        ann = pipe("the film was good")
    with victim.use_key(victim.key.key_for("ann")):
        assert pipe("the film was good") == ann
    with victim.watermark_disabled():
        pipe("the film was good")


def test_nobody_is_answered_without_a_user():
    victim = make_victim()
    for call in (lambda: answers(victim), lambda: victim.use_key(victim.key).__enter__()):
        with pytest.raises(MissingKeyError, match="user="):
            call()
    with pytest.raises(InvalidInputError, match="2 users were given for a batch of 4 rows"):
        answers(victim, user=["ann", "bob"])
    for wrong in ("", 5, ["ann", None, "bob", "eve"]):
        with pytest.raises((InvalidInputError, TypeError)):
            answers(victim, user=wrong)


def test_a_user_without_a_ring_is_refused():
    model = make_model()
    key = make_ring(model).key_for("ann")
    victim = WatermarkedModelForSequenceClassification.from_model(model, key=key)
    with pytest.raises(InvalidInputError, match="no KeyRing"):
        answers(victim, user="ann")


def test_a_ring_of_another_model_is_refused():
    with pytest.raises(KeyMismatchError, match="task"):
        WatermarkedModelForSequenceClassification.from_model(
            make_model(), key=make_ring(make_model("token-classification"))
        )


def test_rotation_changes_the_marks_and_not_the_model(tmp_path):
    victim = make_victim()
    before = answers(victim, user="ann")
    victim.save_pretrained(tmp_path)
    victim.key.rotate()
    assert not torch.equal(answers(victim, user="ann"), before)
    again = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key)
    torch.testing.assert_close(answers(again, user="ann"), answers(victim, user="ann"))


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_a_ring_rotated_while_a_context_is_open_marks_with_its_new_epoch(label_kind):
    """All of a mark is of one epoch: signal, draws and fingerprint; for a user per row as for one user."""
    victim, batch = make_victim("token-classification", label_kind), make_batch(n_rows=4)
    for users in ("ann", USERS):
        with victim.use_key(user=users):
            before, was = answers(victim, batch), victim.marking_fingerprint()
            victim.key.rotate()
            after, now = answers(victim, batch), victim.marking_fingerprint()
        assert now != was and not torch.equal(after, before)
        assert torch.equal(after, answers(victim, batch, user=users))


@pytest.mark.parametrize("mark", MARKS)
def test_a_saved_model_asks_for_its_ring(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path / "model")
    victim.key.save_pretrained(tmp_path / "ring", passphrase=PASSPHRASE)
    again = WatermarkedModelForSequenceClassification.from_pretrained(
        tmp_path / "model", key=tmp_path / "ring", passphrase=PASSPHRASE
    )
    assert again.key == victim.key
    with pytest.raises(KeyMismatchError):
        WatermarkedModelForSequenceClassification.from_pretrained(
            tmp_path / "model", key=make_ring(make_model(), secret=b"2" * 32)
        )
    with pytest.raises(MissingKeyError):
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path / "model")


# -- on the Hub


@pytest.mark.parametrize("options", [{}, {"passphrase": PASSPHRASE}, {"key_repo_id": "owner/keys"}], ids=str)
def test_a_model_is_pushed_and_pulled_with_its_ring(hub, options):
    victim = make_victim()
    victim.key.declare(USERS)
    victim.push_to_hub("owner/model", **options)
    again = WatermarkedModelForSequenceClassification.from_pretrained(
        "owner/model", passphrase=options.get("passphrase")
    )
    assert again.key == victim.key and again.key.declared == victim.key.declared
    assert verify_commitment(victim.key, "owner/model").commit == hub.commits("owner/model")[0].sha
    if "passphrase" in options:
        assert not leaks_in(victim.key.key_for("ann"), hub.everything())
        assert not [where for where, data in hub.everything() if victim.key.secret.hex().encode() in data]


def test_a_ring_is_pushed_and_pulled_alone_and_only_a_later_state_replaces_it(hub):
    ring = make_ring(make_model())
    with pytest.raises(PlainKeyRefusedError):
        ring.push_to_hub("owner/ring", private=False)
    ring.push_to_hub("owner/ring")
    earlier = KeyRing.from_pretrained("owner/ring")
    assert earlier == ring
    ring.declare(USERS)
    ring.push_to_hub("owner/ring")
    assert KeyRing.from_pretrained("owner/ring").declared == ring.declared
    with pytest.raises(KeyMismatchError, match="does not have"):
        earlier.push_to_hub("owner/ring")
    with pytest.raises(KeyMismatchError, match="another key"):
        make_ring(make_model(), secret=b"2" * 32).push_to_hub("owner/ring")
    with pytest.raises(KeyFileError, match="no key"):
        WatermarkKey.from_pretrained("owner/ring")
    assert audit("owner/ring").status == "at risk"
    hub.set_private("owner/ring", False)
    assert audit("owner/ring").status == "open"


# -- an endpoint


@pytest.mark.parametrize("mark", MARKS)
def test_an_endpoint_knows_its_users_by_their_tokens(tmp_path, monkeypatch, mark):
    victim = make_victim(mark=mark)
    fill_with(tmp_path, victim)
    victim.key.save_pretrained(tmp_path, passphrase=PASSPHRASE)
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)
    handler = start(tmp_path)
    ring, text = victim.key, "the film was very good"
    with victim.use_key(user="ann"):
        expected = pipe_of(victim, "sequence-classification")(text)
    assert same(handler({"inputs": text, "user_token": ring.token_for("ann")}), expected)
    token = ring.token_for("ann")
    forged = token[:-1] + ("A" if token[-1] != "A" else "B")
    other = make_ring(make_model(), secret=b"2" * 32)
    for fields in (
        {},
        {"user": "ann"},
        {"user_token": "ann"},
        {"user_token": None},
        {"user_token": forged},
        {"user_token": other.token_for("ann")},
        {"parameters": {"user": "ann"}},
    ):
        with pytest.raises(ValueError, match=r"user_token|parameters"):
            handler({"inputs": text, **fields})


def test_entries_of_rows_are_those_of_the_tables():
    victim = make_victim("token-classification")
    key = victim.key.key_for("ann")
    phase, selection = key.entries(np.arange(64))
    np.testing.assert_array_equal(phase, key.phase_table)
    np.testing.assert_array_equal(selection, key.selection_table)
