"""detect and identify by the log of a service: per key, per customer, as it lies on the disk."""

import numpy as np
import pytest
import torch

from drw_hf import KeyRing, QueryLog, WatermarkedModelForSequenceClassification, detect, identify
from drw_hf.asking import Served, redact_log
from drw_hf.detection import probe_suspect
from drw_hf.errors import InvalidInputError, QueryLogError
from drw_hf.tracing import LoggedIdentification, identify_by_log
from small_models import make_key, make_lively, make_model, make_tokenizer

SETTINGS = {"mark": "tilt", "strength": 0.2, "temperature": 1.0, "margin": 0.6}
USERS = ["ann", "bob", "cy"]


class Service:
    """A hard-label service of a ring, the log it kept, and somebody who learnt by heart what one user was served."""

    def __init__(self, folder):
        self.tokenizer = make_tokenizer()
        vocabulary = [word for word in self.tokenizer.get_vocab() if word.isalpha()]
        rng = np.random.default_rng(0)
        texts = [" ".join(rng.choice(vocabulary, 6)) for _ in range(400)]
        self.model = make_lively(make_model(), self.tokenizer, texts, spread=1.0)
        key = make_key(self.model, self.tokenizer, **SETTINGS)
        self.ring = KeyRing(key, secret=bytes(32)).declare(USERS)
        victim = WatermarkedModelForSequenceClassification.from_model(self.model, key=self.ring, label_kind="hard")
        self.log, self.served = QueryLog(folder), {}
        with self.log.writer(self.ring, label_kind="hard") as writer:
            for number, user in enumerate(USERS[:2]):
                asked = texts[number * 200 : number * 200 + 200]
                with victim.use_key(user=user), torch.no_grad():
                    answers = victim(**self.tokenizer(asked, padding=True, return_tensors="pt")).logits.argmax(-1)
                labels = [self.model.config.id2label[int(answer)] for answer in answers]
                self.served[user] = dict(zip(asked, labels, strict=True))
                entries = [Served(text, label, user) for text, label in zip(asked, labels, strict=True)]
                writer.append(entries).result()
                writer.append(entries[:50]).result()  # asked again
        self.asking = {"victim": self.model, "tokenizer": self.tokenizer, "progress": False}

    def student_of(self, user):
        rng, learnt = np.random.default_rng(1), self.served[user]
        return lambda asked: [learnt.get(text) or str(rng.choice(["negative", "positive"])) for text in asked]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    return Service(tmp_path_factory.mktemp("service") / "log")


def test_a_customers_own_lines_are_tested_with_the_customers_key(service):
    key, suspect = service.ring.key_for("bob"), service.student_of("bob")
    found = detect(suspect, logged=service.log, key=key, **service.asking)
    pairs = list(service.served["bob"].items())
    by_hand = detect(service.student_of("bob"), logged=pairs, key=key, **service.asking)
    assert found.verdict == "detected" and found.statistic == "drw-tilt-margin-1" and found.n_queries == 200
    assert (found.log10_p, found.probe_digest) == (by_hand.log10_p, by_hand.probe_digest)
    others = detect(service.student_of("ann"), logged=service.log, key=key, **service.asking)
    assert others.verdict != "detected"


def test_of_a_key_that_draws_nothing_the_texts_alone_are_taken(tmp_path, service):
    key = make_key(service.model, service.tokenizer, mark="tilt", strength=0.5, temperature=1.0)
    texts = list(service.served["ann"])
    for kind, answered in (("hard", "positive"), ("soft", [0.25, 0.75])):
        log = QueryLog(tmp_path / kind)
        with log.writer(key, label_kind=kind) as writer:
            writer.append([Served(text, answered) for text in texts]).result()
        found = detect(make_model(seed=3), logged=log, key=key, **service.asking)
        plain = detect(make_model(seed=3), texts, key=key, **service.asking)
        assert found.statistic == "drw-tilt-1" and found.log10_p == plain.log10_p


def test_some_of_a_log_can_be_tested(service):
    key = service.ring.key_for("ann")
    none = service.log.select(since="2100-01-01")
    with pytest.raises(QueryLogError, match="holds nothing that was answered under the key"):
        detect(service.student_of("ann"), logged=none, key=key, **service.asking)
    whole = service.log.select(user="ann", until="2100-01-01", key=key)
    assert detect(service.student_of("ann"), logged=whole, key=key, **service.asking).n_queries == 200


def test_texts_that_were_taken_out_are_given_again_and_checked(tmp_path, service):
    key, texts = service.ring.key_for("bob"), list(service.served["bob"])
    log = QueryLog(tmp_path / "log")
    with log.writer(service.ring, label_kind="hard") as writer:
        writer.append([Served(*pair, "bob") for pair in service.served["bob"].items()]).result()
    redact_log(log.folder, names=True)
    with pytest.raises(QueryLogError, match="give the texts too"):
        detect(service.student_of("bob"), logged=log, key=key, **service.asking)
    with pytest.raises(QueryLogError, match="1 of the texts are not in the log"):
        detect(service.student_of("bob"), [*texts, "another"], logged=log, key=key, **service.asking)
    found = detect(service.student_of("bob"), texts[::-1], logged=log, key=key, **service.asking)
    plain = detect(service.student_of("bob"), logged=service.log, key=key, **service.asking)
    assert (found.verdict, found.log10_p) == ("detected", plain.log10_p)


def test_a_probe_has_its_answers_and_takes_no_log(service):
    key = service.ring.key_for("ann")
    texts = list(service.served["ann"])[:50]
    probe = probe_suspect(service.student_of("ann"), texts, key=key, tokenizer=service.tokenizer, progress=False)
    with pytest.raises(InvalidInputError, match="a Probe holds its answers already"):
        detect(probe, logged=service.log, key=key)


def test_every_customer_of_the_log_is_tested_by_what_they_were_served(service):
    found = identify(service.student_of("bob"), logged=service.log, ring=service.ring, **service.asking)
    assert isinstance(found, LoggedIdentification) and found.leakers == ("bob",)
    assert list(found.results) == ["bob", "ann"] and found.n_corrected == 3
    again = identify_by_log(service.student_of("bob"), service.log, ring=service.ring, users=USERS, **service.asking)
    assert again.results["bob"].log10_p == found.results["bob"].log10_p and set(again.results) == {"ann", "bob"}
    one = identify(service.student_of("bob"), logged=service.log, ring=service.ring, users=["ann"], **service.asking)
    assert one.leakers == () and one.n_corrected == 3


def test_an_undeclared_ring_is_corrected_for_all_who_are_in_the_log(service):
    undeclared = KeyRing(make_key(service.model, service.tokenizer, **SETTINGS), secret=bytes(32))
    undeclared._epochs = service.ring._epochs[:1]
    undeclared._epochs = (type(service.ring._epochs[0])(service.ring._epochs[0].opened_at),)
    found = identify(service.student_of("bob"), logged=service.log, ring=undeclared, users=["bob"], **service.asking)
    assert found.n_corrected == 2 and found.leakers == ("bob",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epoch": 7}, "does not exist|names no users"),
        ({"users": ["nobody"]}, "holds nothing that was answered to these"),
        ({"texts": ["a text"]}, "have no part in it"),
        ({"logged": "log"}, "expected the QueryLog"),
        ({"ring": "other"}, "holds nothing that was answered to these"),
        ({"logged": None}, "users is a NoneType"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(service, given, words):
    if given.get("ring"):
        given = {"ring": KeyRing(make_key(service.model, service.tokenizer, **SETTINGS), secret=b"\x01" * 32)}
    options = {"logged": service.log, "ring": service.ring, **service.asking, **given}
    with pytest.raises(InvalidInputError, match=words):
        identify(service.student_of("bob"), **options)
