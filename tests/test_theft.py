"""A real theft, end to end: trained victims, trained students, and what the key finds in them.

Everything is trained from scratch on the package's own corpus, with fixed seeds. The always-on part has one victim, a
student of its soft and one of its hard labels, and an innocent model; the rest is marked slow.
"""

import dataclasses
import functools

import datasets
import numpy as np
import pytest
import torch
from scipy import stats
from transformers import pipeline

from drw_hf import DistillationArguments, DistillationTrainer, detect, label_with_teacher
from drw_hf.detection import PsnrCallback, probe_suspect
from drw_hf.errors import InvalidInputError
from drw_hf.experiments.corpus import TAGS, make_tokenizer
from drw_hf.experiments.theft import make_theft, small_bert, steal, train_on_gold, training
from small_models import make_model

TAGGER, CLASSIFIER = "token-classification", "sequence-classification"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theft")
    before = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = folder / "cache"
    yield folder
    datasets.config.HF_DATASETS_CACHE = before


@pytest.fixture(scope="session")
def theft(folder):
    return make_theft(TAGGER, str(folder))


@pytest.fixture(scope="session")
def student(theft, folder):
    """student(label_kind, epsilon): a student of the protected victim, trained once."""

    @functools.cache
    def train(label_kind, epsilon=0.2):
        return steal(theft, theft.protected(theft.key(epsilon=epsilon), label_kind), folder, label_kind=label_kind)

    return train


@pytest.fixture(scope="session")
def innocent(theft, folder):
    """A model of the same task that never saw the victim: another initialisation, the other half of the data."""
    return train_on_gold(TAGGER, theft.tokenizer, theft.unseen, folder, seed=3, epochs=6)


def find(theft, suspect, rows=None, key=None, victim=True, **kwargs):
    texts = theft.text(theft.unseen if rows is None else rows)
    return detect(
        suspect,
        texts,
        key=key or theft.key(),
        tokenizer=theft.tokenizer,
        victim=theft.victim if victim else None,
        progress=False,
        **kwargs,
    )


def agreement(theft, student, teacher):
    """How often a student says what its teacher says, on text neither was trained on."""
    rows = theft.unseen.select_columns(["tokens"])
    said = label_with_teacher(student, rows, theft.tokenizer, progress=False)["teacher_labels"][:]
    taught = label_with_teacher(teacher, rows, theft.tokenizer, progress=False)["teacher_labels"][:]
    return np.mean([a == b for one, other in zip(said, taught, strict=True) for a, b in zip(one, other, strict=True)])


# -- extraction


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_a_student_agrees_with_its_teacher_far_above_chance(theft, student, label_kind):
    """Chance is the share of the largest class, about a fifth."""
    assert agreement(theft, student(label_kind), theft.victim) > 0.85


# -- detection


@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("where", ["queries", "unseen"])
@pytest.mark.parametrize("victim", [True, False], ids=["with victim", "without"])
def test_the_mark_is_found_in_students(theft, student, label_kind, where, victim):
    found = find(theft, student(label_kind), getattr(theft, where), victim=victim)
    assert found.verdict == "detected" and found.p_bound < 1e-6
    if label_kind == "soft":
        assert found.p_snr > 5


def test_nothing_is_found_in_an_innocent_model(theft, innocent):
    for rows in (theft.queries, theft.unseen):
        assert find(theft, innocent, rows).p_value > 1e-3
        assert find(theft, innocent, rows, victim=False).p_value > 1e-3


@pytest.mark.parametrize("suspect", ["innocent", "soft", "hard"])
def test_keys_that_did_not_mark_it_give_uniform_p_values(theft, student, innocent, suspect):
    """200 keys on one probe: a KS test at the level 1e-3."""
    model = innocent if suspect == "innocent" else student(suspect)
    probe = find(theft, model).probe
    values = [detect(probe, key=theft.key(secret=i.to_bytes(32, "big"))).p_value for i in range(200)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_margin_draws_betray_who_learned_them_by_scores_and_by_labels_alone(theft, innocent, folder):
    """Tilt with close calls drawn, and the log of what was served: each of the two tests finds it by itself."""
    asked = dataclasses.replace(theft, queries=theft.new_text(1500))
    chosen = {"mark": "tilt", "target": None, "strength": 0.3, "temperature": 1.5, "margin": 0.3}
    key = theft.key(**chosen)
    service = theft.protected(key, "hard")
    student = steal(asked, service, folder, epochs=6, label_kind="hard")
    rows = asked.queries.select_columns("tokens")
    served = label_with_teacher(service, rows, theft.tokenizer, progress=False)["teacher_labels"][:]
    found = find(theft, student, rows, key=key, logged=served)
    assert found.statistic == "drw-tilt-margin-1" and found.settings["n_mismatches"] == 0
    for part in ("tilt", "margin"):
        assert found.parts[part]["log10_bound"] < -6.0
    assert found.beside["log10_bound"] < -6.0, "its labels alone"
    assert found.log10_bound < found.parts["margin"]["log10_bound"], "both say more than either"
    assert find(theft, innocent, rows, key=key, logged=served).p_value > 1e-3
    other = theft.key(**chosen, secret=bytes(32))
    assert detect(found.probe, key=other).p_value > 1e-3, "under another key other answers were drawn"


def test_labels_alone_betray_a_hard_student_but_not_a_soft_one(theft, student):
    """A soft student's argmax carries nothing, as the paper says of argmax labels."""

    def labels_of(model):
        pipe = label_with_teacher(model, theft.queries.select_columns("tokens"), theft.tokenizer, progress=False)
        answers = {tuple(row["tokens"]): [TAGS[tag] for tag in row["teacher_labels"]] for row in pipe}
        return lambda questions: [answers[tuple(words)] for words in questions]

    hard = find(theft, labels_of(student("hard")), theft.queries)
    assert hard.variant == "labels-victim" and hard.p_bound < 1e-6
    soft = find(theft, labels_of(student("soft")), theft.queries)
    assert soft.verdict != "detected"
    with pytest.raises(InvalidInputError, match="victim="):
        find(theft, labels_of(student("hard")), theft.queries, victim=False)


def test_logged_hard_labels_betray_who_learned_them(theft, student, innocent):
    protected = theft.protected(theft.key(), "hard")
    asked = theft.queries.select_columns("tokens")
    served = label_with_teacher(protected, asked, theft.tokenizer, progress=False)["teacher_labels"][:]
    found = find(theft, student("hard"), theft.queries, logged=served)
    assert found.variant == "memory-probabilities" and found.p_bound < 1e-6
    assert find(theft, innocent, theft.queries, logged=served).p_value > 1e-3
    assert find(theft, student("soft"), theft.queries, logged=served).p_value > 1e-3, "other answers, other draws"


def test_gold_labels_can_choose_the_probes_as_in_the_papers_protocol(theft, student):
    found = find(theft, student("soft"), victim=False, gold=theft.unseen["tags"][:])
    assert found.variant == "probabilities-gold" and found.p_bound < 1e-6 and found.p_snr > 5
    with pytest.raises(InvalidInputError, match="gold has 1 entries"):
        find(theft, student("soft"), victim=False, gold=[["NN"]])


# -- suspects of every kind


def test_suspects_of_every_kind_give_the_same_finding(theft, student, tmp_path):
    model, texts = student("soft"), theft.unseen.select(range(300))
    expected = find(theft, model, texts)
    model.save_pretrained(tmp_path)
    theft.tokenizer.save_pretrained(tmp_path)
    pipe = pipeline("token-classification", model=model, tokenizer=theft.tokenizer)

    def service(questions):
        with torch.no_grad():
            batch = theft.tokenizer(questions, is_split_into_words=True, padding=True, return_tensors="pt")
            p = model(**batch).logits.softmax(-1)
        return [
            [dict(zip(TAGS, p[row, 1 + word].tolist(), strict=True)) for word in range(len(words))]
            for row, words in enumerate(questions)
        ]

    for suspect in (str(tmp_path), pipe, service):
        found = find(theft, suspect, texts)
        assert found.z_score == pytest.approx(expected.z_score, abs=0.05)
        assert found.p_snr == pytest.approx(expected.p_snr, rel=1e-3)


def test_paths_and_pipelines_are_asked_with_their_own_tokenizer(theft, tmp_path):
    """... and a protected victim in a pipeline without its mark."""
    pieces = make_tokenizer(kind="pieces")
    model = small_bert(TAGGER, len(pieces), 4).eval()
    model.save_pretrained(tmp_path)
    pieces.save_pretrained(tmp_path)
    rows = theft.unseen.select(range(30))
    key = theft.key(scope="all", tau=1.0)
    served = pipeline("token-classification", model=theft.protected(key), tokenizer=theft.tokenizer)
    settings = {"key": key, "tokenizer": theft.tokenizer, "progress": False}
    expected = probe_suspect(model, theft.text(rows), suspect_tokenizer=pieces, victim=theft.victim, **settings)
    pipe = pipeline("token-classification", model=model, tokenizer=pieces)
    for suspect in (str(tmp_path), pipe):
        found = probe_suspect(suspect, theft.text(rows), victim=served, **settings)
        np.testing.assert_allclose(found.suspect, expected.suspect, atol=1e-5)
        np.testing.assert_allclose(found.victim, expected.victim, atol=1e-5)


def test_renamed_labels_are_mapped_back(theft, student):
    model = student("soft")
    names = {f"X-{tag}": tag for tag in TAGS}
    renamed = small_bert(TAGGER, len(theft.tokenizer), 0)
    renamed.load_state_dict(model.state_dict())
    renamed.config.id2label = dict(enumerate(names))
    renamed.config.label2id = {name: i for i, name in enumerate(names)}
    texts = theft.unseen.select(range(300))
    with pytest.raises(InvalidInputError, match="label_map"):
        find(theft, renamed.eval(), texts)
    found = find(theft, renamed, texts, label_map=names)
    as_they_are = find(theft, model, texts)
    assert found.z_score == pytest.approx(as_they_are.z_score, abs=0.05)
    assert found.label_map == found.probe.label_map == names and as_they_are.label_map is None


def test_a_tagger_that_returns_entities_with_spans(theft, student):
    """An aggregated pipeline behind a callable: words are found by the characters they begin at."""
    pipe = pipeline(
        "token-classification", model=student("soft"), tokenizer=theft.tokenizer, aggregation_strategy="simple",
        ignore_labels=[],
    )  # fmt: skip
    texts = theft.unseen.select(range(200))
    found = find(theft, lambda questions: [pipe(" ".join(words)) for words in questions], texts)
    assert found.n_probes == pytest.approx(find(theft, student("soft"), texts).n_probes, rel=0.02)


def test_budget_and_cache_of_queries(theft, tmp_path):
    asked = []

    class Service:
        """An object that remembers what it was asked, and so is recognised by its name."""

        def __call__(self, questions):
            asked.extend(questions)
            return [[{tag: 1 / len(TAGS) for tag in TAGS} for _ in words] for words in questions]

    service = Service()
    texts = theft.unseen.select(range(100))
    found = find(theft, service, texts, max_queries=40, cache_dir=tmp_path, victim=True)
    assert len(asked) == found.n_queries == 40
    find(theft, service, texts, max_queries=40, cache_dir=tmp_path)
    assert len(asked) == 40, "what was probed is kept"


def test_the_tokenizer_must_be_the_keys(theft, student):
    from drw_hf.errors import KeyMismatchError

    with pytest.raises(KeyMismatchError, match="suspect_tokenizer="):
        detect(
            student("soft"),
            theft.text(theft.unseen.select(range(5))),
            key=theft.key(),
            tokenizer=make_tokenizer(kind="pieces"),
            progress=False,
        )
    with pytest.raises(InvalidInputError, match="tokenizer="):
        detect(student("soft"), theft.text(theft.unseen.select(range(5))), key=theft.key(), progress=False)
    with pytest.raises(InvalidInputError, match="labels"):
        find(theft, make_model("token-classification", vocab_size=len(theft.tokenizer)), theft.unseen.select(range(5)))


def test_the_callback_logs_the_mark_while_a_student_trains(theft, folder):
    rows = theft.queries.select(range(400)).remove_columns("tags")
    trainer = DistillationTrainer(
        small_bert(TAGGER, len(theft.tokenizer), 5),
        training(folder, 2, DistillationArguments),
        theft.protected(theft.key()),
        rows,
        processing_class=theft.tokenizer,
    )
    probes = theft.text(theft.unseen.select(range(200)))
    trainer.add_callback(
        PsnrCallback(trainer, probes, key=theft.key(), tokenizer=theft.tokenizer, victim=theft.victim)
    )
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "p_snr" in entry]
    assert len(logged) == 2 and all(np.isfinite(entry["watermark_z"]) for entry in logged)


# -- slow: faint marks, another tokenizer, a sentence task, an unwatermarked victim


@pytest.mark.slow
def test_a_faint_mark_is_found_where_p_snr_is_blind(theft, student):
    soft = find(theft, student("soft", 0.02), key=theft.key(epsilon=0.02))
    assert soft.p_bound < 1e-6 and soft.p_snr < 5
    hard = find(theft, student("hard", 0.02), theft.queries, key=theft.key(epsilon=0.02))
    assert hard.p_bound < 1e-6


@pytest.mark.slow
def test_students_of_the_unwatermarked_victim_show_nothing(theft, folder):
    for label_kind in ("soft", "hard"):
        suspect = steal(theft, theft.victim, folder, label_kind=label_kind)
        assert find(theft, suspect).p_value > 1e-3
        assert find(theft, suspect, theft.queries).p_value > 1e-3


@pytest.mark.slow
def test_a_student_with_another_tokenizer_is_found(theft, folder):
    pieces = make_tokenizer(kind="pieces")
    suspect = steal(theft, theft.protected(theft.key()), folder, tokenizer=pieces)
    for rows in (theft.queries, theft.unseen):
        found = find(theft, suspect, rows, suspect_tokenizer=pieces)
        assert found.p_bound < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["second", "rarest", "keyed"])
def test_a_sentence_classifier_is_found_by_every_rule(folder, rule):
    theft = make_theft(CLASSIFIER, str(folder))
    key = theft.key(hash_rule=rule)
    suspect = steal(theft, theft.protected(key), folder, epochs=10)
    found = find(theft, suspect, theft.queries, key=key)
    assert found.p_bound < 1e-6
    wrong = theft.key(hash_rule=rule, secret=b"\x07" * 32)
    assert find(theft, suspect, theft.queries, key=wrong).p_value > 1e-3
