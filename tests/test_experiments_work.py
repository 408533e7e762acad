"""Every kind of job, done for real: small victims, students of all kinds, their probes and scores.

The models are too small to carry a mark; what is tested is what they were trained on, asked and scored by.
"""

import dataclasses
import functools
import json
import shutil
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from drw_hf.asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from drw_hf.detection.probing import Probe
from drw_hf.experiments import work
from drw_hf.experiments.jobs import GOLD, MODES, UNWATERMARKED, WATERMARKED, Job, Student
from drw_hf.experiments.profiles import load_profile
from drw_hf.experiments.scoring import chosen, score_probe, served
from drw_hf.experiments.serving import LEVELS, TAUS
from drw_hf.experiments.tasks import TASKS, load_corpus
from drw_hf.experiments.work import PREPENDED, Workshop, divergence_everywhere
from paper_data import write_paper_data
from small_models import make_model, make_tokenizer

PROFILE = """
tasks = ["sst2", "mrpc", "pos", "ner"]
students = 1
ablated = 1

[encoder]
layers = 1
width = 32
heads = 2
vocabulary = 400

[victim] # long enough that every target class is predicted
epochs = 10
learning_rate = 1e-2
batch_size = 16

[student]
epochs = 1
learning_rate = 1e-2
batch_size = 16

[mrpc.student]
epochs = 2
keep = "best"
"""
ROWS, EVALUATED = 120, 24
STUDENTS = {
    "soft": Student("ner", WATERMARKED),
    "hard": Student("ner", WATERMARKED, "hard"),
    "argmax": Student("ner", WATERMARKED, "argmax"),
    "share": Student("ner", WATERMARKED, share=0.25),
    "queries": Student("ner", WATERMARKED, queries=0.5),
    "epsilon": Student("ner", WATERMARKED, "hard", epsilon=0.05),
    "case": Student("ner", WATERMARKED, encoder="other"),
    "gold": Student("mrpc", GOLD),
    "tau": Student("mrpc", WATERMARKED, tau=0.9),
    "unwatermarked soft": Student("mrpc", UNWATERMARKED, "soft"),
    "unwatermarked hard": Student("pos", UNWATERMARKED, "hard"),
    "category": Student("pos", WATERMARKED, "hard", target="VBN"),
    "soft as the code": Student("pos", WATERMARKED, "soft", mode="paper-code"),
    "hard as the code": Student("pos", WATERMARKED, "hard", mode="paper-code"),
    "hard as the text": Student("pos", WATERMARKED, "hard", mode="paper-text"),
    "rule": Student("sst2", WATERMARKED, rule="rarest"),
    "rule hard": Student("sst2", WATERMARKED, "hard", rule="rarest"),
    "prepended": Student("sst2", WATERMARKED, prepended=True),
    "rule and prepended": Student("sst2", WATERMARKED, rule="rarest", prepended=True),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, a profile, another encoder, and caches of its own."""
    folder = tmp_path_factory.mktemp("work")
    write_paper_data(folder / "data", train=ROWS, validation=EVALUATED, test=EVALUATED)
    (folder / "small.toml").write_text(PROFILE)
    make_model("token-classification", "distilbert", sharp=False).save_pretrained(folder / "other")
    make_tokenizer().save_pretrained(folder / "other")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        load_corpus.cache_clear()
        yield folder


@pytest.fixture(scope="module")
def shop(place):
    return Workshop(load_profile(str(place / "small.toml")), place / "made", str(place / "data"), str(place / "other"))


@pytest.fixture(scope="module")
def done(shop):
    """done(job): its record, done once, with what the trainers were given on the way."""
    given = []

    @functools.cache
    def do(job):
        for need in {"accuracy": ["victim"], "student": ["victim"], "probe": ["student"], "score": ["probe"]}.get(
            job.kind, []
        ):
            do(Job(need, job.task, None if need == "victim" else job.student))
        given.clear()
        record = shop.do(job)
        return SimpleNamespace(record=record, given=list(given))

    def remember(name):
        train = getattr(work, name)

        def remembered(*arguments, **settings):
            names = {"distil": ("model", "tokenizer", "rows"), "train_on_gold": ("task", "tokenizer", "rows")}[name]
            given.append(SimpleNamespace(how=name, settings=settings, **dict(zip(names, arguments, strict=False))))
            return train(*arguments, **settings)

        return remembered

    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("distil", "train_on_gold"):
            monkeypatch.setattr(work, name, remember(name))
        yield do


def trained(done, name):
    """What a student was trained with."""
    (given,) = done(Job("student", STUDENTS[name].task, STUDENTS[name])).given
    return given


def teacher_of(shop, name, label_kind="soft"):
    """The protected victim that a student asked."""
    student = STUDENTS[name]
    victim = shop.victim(student.task)
    return shop.protected(victim, shop.key(victim, student), MODES[student.mode], label_kind)


def answers_of(shop, teacher, rows, task):
    return label_with_teacher(teacher, rows, shop.tokenizer(task), batch_size=64, progress=False)


def alike(one, other):
    """Whether answers are the same, but for what the size of a batch rounds."""
    assert len(one) == len(other)
    return all(np.allclose(row, same, atol=1e-5) for row, same in zip(one, other, strict=True))


# -- victims


@pytest.mark.parametrize("task", TASKS)
def test_a_victim_is_trained_on_all_training_rows_and_measured_on_others(shop, done, task):
    found = done(Job("victim", task))
    assert found.given[0].rows.to_list() == shop.corpus(task).train.to_list()
    assert (found.record["rows"], found.record["epochs"]) == (ROWS, 10)
    assert found.record["data"] == shop.corpus(task).digest
    assert 0 < found.record["accuracy"] <= 1 and ("f1" in found.record) == (task in ("pos", "ner"))
    model = shop.victim(task)
    assert tuple(model.config.id2label.values()) == shop.corpus(task).labels and not model.training


def test_made_again_it_is_the_same(shop, done, place):
    first = done(Job("victim", "sst2")).record
    again = dataclasses.replace(shop, folder=place / "again")
    assert again.do(Job("victim", "sst2")) == first
    weights, other = (one.victim("sst2").state_dict() for one in (shop, again))
    assert all(torch.equal(weights[name], other[name]) for name in weights)


@pytest.mark.parametrize("task", ["sst2", "ner"])
def test_accuracy_is_measured_at_every_level_beside_what_is_predicted(shop, done, task):
    victim, found = done(Job("victim", task)).record, done(Job("accuracy", task)).record
    figures = {"sst2": {"accuracy"}, "ner": {"accuracy", "f1"}}[task]
    assert found["clean"] == {name: victim[name] for name in figures}
    ways = ("soft", "hard", "hard, all drawn")
    assert [(level["epsilon"], level["labels"]) for level in found["levels"]] == [
        (epsilon, way) for epsilon in LEVELS for way in ways
    ]
    assert [(level["tau"], level["labels"]) for level in found["taus"]] == [
        (tau, way) for tau in TAUS for way in ways[:2]
    ]
    for level in found["levels"] + found["taus"]:
        for name in figures:
            low, high = level[f"{name}_low"], level[f"{name}_high"]
            assert 0 <= low <= high <= 1 and low - 1e-9 <= level[name] <= high + 1e-9, "a mean is rounded"
        assert level["bound"] <= level["expected"] + 1e-9 <= level["clean"] + 2e-9
    for unmarked in (found["levels"][0], *found["taus"][:2]):
        assert unmarked["accuracy_low"] == unmarked["accuracy_high"] == found["clean"]["accuracy"]
    assert found["n"] == sum(
        len(row) if task == "ner" else 1 for row in shop.corpus(task).gold(shop.corpus(task).evaluation)
    )


# -- keys


def test_every_seed_and_task_has_a_key_of_its_own_whatever_else_differs(shop, done):
    done(Job("victim", "pos")), done(Job("victim", "ner"))
    pos, ner = shop.victim("pos"), shop.victim("ner")

    def secret(victim, task, **settings):
        return shop.key(victim, Student(task, WATERMARKED, **settings)).secret

    assert secret(pos, "pos") == secret(pos, "pos", labels="hard", tau=0.9, target="DT", mode="paper-text")
    assert len({secret(pos, "pos"), secret(pos, "pos", seed=2), secret(ner, "ner")}) == 3


def test_a_key_has_the_profiles_settings_but_for_what_the_student_and_the_mode_say(shop, done):
    for student in STUDENTS.values():
        done(Job("victim", student.task))
        victim, mode = shop.victim(student.task), MODES[student.mode]
        key = shop.key(victim, student)
        assert (key.law, key.scope, key.frequency) == (mode.law, mode.scope, 16.0)
        assert key.epsilon == (student.epsilon or 0.2) and key.tau == (student.tau or 0.5)
        assert victim.config.id2label[key.target] == (student.target or TASKS[student.task].target)
        usual = "token" if student.task in ("pos", "ner") else "second"
        assert key.hash_rule.name == (student.rule or usual)


# -- students: what they were trained on


@pytest.mark.parametrize("name", STUDENTS)
def test_a_student_of_every_kind_is_trained_measured_probed_and_scored(shop, done, name):
    student = STUDENTS[name]
    records = {kind: done(Job(kind, student.task, student)).record for kind in ("student", "probe", "score")}
    asked = round(student.queries * ROWS / 2)
    assert records["student"]["rows"] == asked == len(trained(done, name).rows)
    usual = shop.profile.settings[student.task].student.epochs
    assert records["student"]["epochs"] == round(usual / student.queries), "who asks less trains for as many steps"
    assert 0 < records["student"]["accuracy"] <= 1
    victim = done(Job("victim", student.task)).record
    assert records["student"]["data"] == victim["data"]
    assert records["student"].get("victim") == (None if student.teacher == GOLD else victim["weights"])
    for where in ("queries", "unseen"):
        answered = student.queries * student.share if where == "queries" else 1
        assert records["probe"][where]["n_texts"] == round(answered * ROWS / 2)
        assert {"exact", "blind", "p_snr", "jsd"} <= set(records["score"][where])
        assert set(records["score"][where]["p_snr"]) == {"victim", "gold", "all"}
        assert 0 <= records["score"][where]["jsd"] <= 1
    assert ("jsd_everywhere" in records["probe"]) == (student.encoder is None)
    assert records["score"]["key"]["name"] == student.mode
    written = json.dumps(records, allow_nan=False)
    assert str(shop.folder.parent) not in written, "no paths"


def test_thieves_ask_about_the_first_half_and_learn_the_answers_to_it(shop, done):
    rows, queries = trained(done, "soft").rows, shop.corpus("ner").queries
    assert rows["tokens"][:] == queries["tokens"][:] and "ner_tags" not in rows.column_names
    served = answers_of(shop, teacher_of(shop, "soft"), shop.corpus("ner").texts(queries), "ner")
    assert alike(rows[PROBABILITIES][:], served[PROBABILITIES][:])
    clean = answers_of(shop, shop.victim("ner"), shop.corpus("ner").texts(queries), "ner")
    assert not alike(rows[PROBABILITIES][:], clean[PROBABILITIES][:])
    assert trained(done, "soft").settings["label_kind"] == "soft"


def test_hard_labels_are_drawn_and_those_of_argmax_are_not(shop, done):
    texts = shop.corpus("ner").texts(shop.corpus("ner").queries)
    assert trained(done, "hard").settings["label_kind"] == trained(done, "argmax").settings["label_kind"] == "hard"
    drawn = answers_of(shop, teacher_of(shop, "hard", "hard"), texts, "ner")
    assert trained(done, "hard").rows[LABELS][:] == drawn[LABELS][:]
    argmax = trained(done, "argmax").rows
    marked = answers_of(shop, teacher_of(shop, "argmax"), texts, "ner")
    assert argmax[LABELS][:] == [np.argmax(row, -1).tolist() for row in marked[PROBABILITIES][:]]
    assert argmax[LABELS][:] != drawn[LABELS][:]


def test_of_a_share_the_rest_has_gold_labels(shop, done):
    rows, queries = trained(done, "share").rows, shop.corpus("ner").queries
    asked = len(rows) // 4
    assert rows["tokens"][:] == queries["tokens"][:]
    soft = trained(done, "soft").rows
    assert alike(rows[PROBABILITIES][:asked], soft[PROBABILITIES][:asked])
    for answer, label, gold in zip(
        rows[PROBABILITIES][asked:], rows[LABELS][asked:], queries["ner_tags"][asked:], strict=True
    ):
        assert label == gold and np.array_equal(answer, np.eye(len(shop.corpus("ner").labels))[gold])


def test_fewer_queries_are_the_first_ones(shop, done):
    rows = trained(done, "queries").rows
    assert alike(rows[PROBABILITIES][:], trained(done, "soft").rows[PROBABILITIES][: len(rows)])


def test_who_prepends_words_asks_about_other_texts_and_learns_on_those_it_has(shop, done):
    rows, queries = trained(done, "prepended").rows, shop.corpus("sst2").queries
    assert rows["sentence"][:] == queries["sentence"][:]
    asked = datasets.Dataset.from_dict({"sentence": [f"{PREPENDED} {text}" for text in queries["sentence"]]})
    served = answers_of(shop, teacher_of(shop, "prepended"), asked, "sst2")
    assert alike(rows[PROBABILITIES][:], served[PROBABILITIES][:])


def test_the_innocent_learn_gold_labels_or_clean_answers(shop, done):
    gold = trained(done, "gold")
    assert gold.how == "train_on_gold" and gold.rows.to_list() == shop.corpus("mrpc").queries.to_list()
    assert gold.settings["best_on"].to_list() == shop.corpus("mrpc").validation.to_list(), "as the profile says"
    for name, task, column in (("unwatermarked soft", "mrpc", PROBABILITIES), ("unwatermarked hard", "pos", LABELS)):
        learned = trained(done, name).rows[column][:]
        texts = shop.corpus(task).texts(shop.corpus(task).queries)
        assert alike(learned, answers_of(shop, shop.victim(task), texts, task)[column][:])


def test_only_the_papers_code_asks_for_hard_labels_anew_in_every_epoch(shop, done):
    anew = trained(done, "hard as the code")
    assert anew.settings["requery"] and LABELS not in anew.rows.column_names
    assert anew.settings["teacher"].config.sampling == "fresh"
    for name in STUDENTS:
        given = trained(done, name)
        if given.how == "distil" and name != "hard as the code":
            assert "requery" not in given.settings and LABELS in given.rows.column_names


def test_the_case_studys_other_student_starts_from_the_other_encoder(shop, done, place):
    done(Job("student", "ner", STUDENTS["case"]))
    model = shop.load(Job("student", "ner", STUDENTS["case"]))
    assert model.config.model_type == "distilbert"
    assert trained(done, "case").tokenizer.get_vocab() == AutoTokenizer.from_pretrained(place / "other").get_vocab()


# -- probes and scores


def probe_of(shop, done, name, where="queries"):
    job = Job("probe", STUDENTS[name].task, STUDENTS[name])
    done(job)
    return Probe.load(shop.path(job) / f"{where}.npz")


@pytest.mark.parametrize(
    ("name", "logged"),
    [("soft", False), ("hard", True), ("argmax", False), ("hard as the code", False), ("hard as the text", True)],
)
def test_the_labels_served_are_probed_where_they_are_one_draw_for_good(shop, done, name, logged):
    assert (probe_of(shop, done, name).logged is not None) == logged
    assert probe_of(shop, done, name, "unseen").logged is None
    assert ("memory" in done(Job("score", STUDENTS[name].task, STUDENTS[name])).record["queries"]) == logged


def test_a_probe_holds_gold_labels_and_the_clean_victims_answers(shop, done):
    probe, corpus = probe_of(shop, done, "hard"), shop.corpus("ner")
    gold = np.concatenate(corpus.queries["ner_tags"][:])
    assert np.array_equal(probe.gold, gold)
    clean = answers_of(shop, shop.victim("ner"), corpus.texts(corpus.queries), "ner")
    assert np.allclose(probe.victim, np.concatenate(clean[PROBABILITIES][:]))
    assert np.array_equal(probe.logged, np.concatenate(trained(done, "hard").rows[LABELS][:]))


@pytest.mark.parametrize("name", ["unwatermarked hard", "hard as the text"], ids=["default", "paper-text"])
def test_a_suspect_that_answers_as_served_is_as_near_as_can_be_and_found(shop, done, name):
    """What a thief would be that had learned everything; under another key it is not found."""
    student = STUDENTS[name]
    probe = probe_of(shop, done, name)
    key, wrong = (shop.key(shop.victim(student.task), dataclasses.replace(student, seed=seed)) for seed in (1, 2))
    thief = dataclasses.replace(probe, suspect=served(probe, key), logged=None)
    found = score_probe(thief, key, kept=0.98)
    assert found["jsd"] == pytest.approx(0, abs=1e-6) and found["exact"]["z"] > 4
    assert score_probe(thief, wrong, kept=0.98)["exact"]["z"] < 4


def test_p_snr_is_taken_of_selected_items_that_are_the_target_to_the_victim_or_in_truth(shop, done):
    probe, key = probe_of(shop, done, "soft"), shop.key(shop.victim("ner"), STUDENTS["soft"])
    tokens, exists = probe.tokens_of(key)
    _, selection = key.entries(tokens)
    selected = exists & (selection <= key.tau)

    def found(way, kept=1.0):
        return set(chosen(probe, key, way, kept)[0])

    assert found("all") == set(np.flatnonzero(selected))
    assert found("victim") == set(np.flatnonzero(selected & (probe.victim.argmax(1) == key.target)))
    assert found("gold") == set(np.flatnonzero(selected & (probe.gold == key.target)))
    fewer = found("gold", 0.5)
    assert fewer < found("gold")
    assert min(probe.suspect[list(fewer), key.target]) > max(probe.suspect[list(found("gold") - fewer), key.target]), (
        "the least confident are left out"
    )


def test_where_there_is_too_little_to_test_the_record_says_why(shop, done):
    probe, key = probe_of(shop, done, "hard"), shop.key(shop.victim("ner"), STUDENTS["hard"])
    nobody = np.zeros_like(probe.victim)
    nobody[:, (key.target + 1) % nobody.shape[1]] = 1
    silent = dataclasses.replace(probe, victim=nobody, suspect=nobody, gold=np.full_like(probe.gold, -1))
    for law in ("direct", "paper"):
        found = score_probe(silent, key.replace(law=law), kept=0.98, curve=True)
        for test in ("exact", "blind", "memory"):
            assert found[test]["z"] == 0 and found[test]["why"]
        assert found["p_snr"]["victim"] is None and found["p_snr"]["gold"] is None
        assert "curve" not in found


def test_the_case_study_is_shown_for_the_first_seed_of_the_tables(shop, done):
    score = done(Job("score", "ner", STUDENTS["soft"])).record
    for record in (score["queries"], score["unseen"], score["wrong key"]):
        curve = record["curve"]
        assert len(curve["hash"]) == len(curve["suspect"]) == len(curve["victim"]) > 0
        assert 0 <= min(curve["hash"]) <= max(curve["hash"]) <= 1 and len(curve["power"]) == 400
    assert score["wrong key"]["curve"]["hash"] != score["queries"]["curve"]["hash"]
    for name in ("epsilon", "share", "tau"):
        other = done(Job("score", STUDENTS[name].task, STUDENTS[name])).record
        assert "wrong key" not in other and "curve" not in other["queries"]


def test_the_innocent_are_scored_by_another_modes_key_from_the_same_probe(shop, done):
    student = STUDENTS["unwatermarked hard"]
    own = done(Job("score", "pos", student)).record
    before = probe_of(shop, done, "unwatermarked hard").digest()
    for mode in ("paper-code", "paper-text"):
        other = done(Job("score", "pos", student, dataclasses.replace(student, mode=mode))).record
        assert other["key"]["name"] == mode and other["queries"]["p_snr"] != own["queries"]["p_snr"]
    assert probe_of(shop, done, "unwatermarked hard").digest() == before


def test_the_baseline_over_all_positions_is_0_between_a_model_and_itself(shop, done):
    done(Job("victim", "ner"))
    victim, corpus = shop.victim("ner"), shop.corpus("ner")
    rows = corpus.texts(corpus.queries)
    key = shop.key(victim, STUDENTS["soft"])
    marked = shop.protected(victim, key, MODES["default"], "soft")
    of = functools.partial(divergence_everywhere, tokenizer=shop.tokenizer("ner"), rows=rows, columns=["tokens"])
    assert of(victim, victim) == pytest.approx(0, abs=1e-9)
    assert 0 < of(victim, marked) < 1


# -- what is left behind


def test_what_is_made_is_there_whole_or_not_at_all(shop, done, place):
    job = Job("student", "ner", STUDENTS["soft"])
    done(Job("probe", "ner", STUDENTS["soft"]))
    assert shop.made(job) and not shop.made(Job("student", "ner", Student("ner", WATERMARKED, seed=99)))
    assert shop.made(Job("score", "ner", STUDENTS["soft"])), "what nobody needs is not looked for"
    other = dataclasses.replace(shop, folder=place / "broken")
    part = other.path(job).with_name(other.path(job).name + ".part")
    part.mkdir(parents=True)
    (part / "rubbish").touch()
    assert not other.made(job), "killed while it wrote"
    shutil.copytree(shop.path(Job("victim", "ner")), other.path(Job("victim", "ner")))
    other.do(job)
    assert other.made(job) and not part.exists() and not (other.path(job) / "rubbish").exists()
    left = {path.name for path in shop.folder.iterdir()}
    assert left == {"victim", "student", "probe", "answers"}, "no scratch folders"
