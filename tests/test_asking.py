"""Asking: predictors of every kind, the options that all who ask take, answers that pass once."""

import math

import datasets
import numpy as np
import pytest

from drw_hf import detect, identify, label_with_teacher
from drw_hf.asking import Predictor, RetryingPredictor, as_predictor, register_predictor
from drw_hf.asking.predictor import KINDS
from drw_hf.asking.store import Records, Store
from drw_hf.detection import probe_suspect
from drw_hf.errors import AnswerError, DatasetError, InvalidInputError, KeptAnswersError, PredictorError
from drw_hf.keys.ring import KeyRing
from small_models import TAGS, make_key, make_model

TEXTS = ["the film was very good", "we hated the slow ending", "dull", "quite funny", "bad bad bad"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


class Constant(Predictor):
    """Nothing but what a subclass must have."""

    labels = ("negative", "positive")
    said = (0.25, 0.75)

    def answer(self, questions):
        return [np.array(self.said) for _ in questions]


class Known(Constant):
    """One whose answers are kept, and that counts what it is asked."""

    def __init__(self):
        self.asked = []

    def answer(self, questions):
        self.asked += questions
        return super().answer(questions)

    def fingerprint(self):
        return "always the same"


# -- predictors


def test_a_subclass_with_labels_and_answers_is_a_suspect_a_victim_and_a_teacher(tokenizer):
    key = make_key(make_model(), tokenizer=tokenizer)
    probe = probe_suspect(Constant(), TEXTS, key=key, tokenizer=tokenizer, victim=Constant(), progress=False)
    assert probe.suspect.tolist() == probe.victim.tolist() == [[0.25, 0.75]] * len(TEXTS)
    assert probe.suspect_name == f"{__name__}.Constant"
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    assert label_with_teacher(Constant(), rows, progress=False)["teacher_labels"][:] == [1] * len(TEXTS)


@pytest.mark.parametrize(
    "said, message",
    [
        ((0.2, 0.3, 0.5), r"row \d: .*Constant gave an array of shape \(3,\)"),
        ((0.2, 0.3), r"row \d: the probabilities of .*Constant are NaN, negative or do not sum to one"),
    ],
)
def test_wrong_answers_name_who_gave_them(tokenizer, said, message):
    wrong = Constant()
    wrong.said = said
    key = make_key(make_model(), tokenizer=tokenizer)
    with pytest.raises(AnswerError, match=message) as caught:
        detect(wrong, TEXTS, key=key, tokenizer=tokenizer, progress=False)
    assert "teacher" not in str(caught.value)


def test_a_kind_that_a_user_registers_is_tried_before_the_others():
    """A string would be a path, were it not for the new kind."""
    made = []

    def make(name, tokenizer, options):
        made.append((name, tokenizer, options.labels, options.max_retries))
        return Constant()

    register_predictor("service", lambda thing: isinstance(thing, str) and thing.startswith("service:"), make)
    try:
        assert isinstance(as_predictor("service:x", 7, labels=["a", "b"], max_retries=1), Constant)
        assert made == [("service:x", 7, ["a", "b"], 1)]
        with pytest.raises(InvalidInputError, match="another kind of predictor is registered as 'service'"):
            register_predictor("service", callable, make)
    finally:
        KINDS.remove("service")


def test_what_cannot_be_asked_is_told_what_can():
    with pytest.raises(PredictorError, match=r"an object of type set cannot be asked.*Predictor of your own"):
        as_predictor(set())


def test_a_retrying_predictor_of_ones_own_is_asked_again():
    class Shaky(RetryingPredictor):
        labels = ("negative", "positive")
        calls = 0

        def answer_once(self, questions):
            self.calls += 1
            if self.calls < 3:
                raise ConnectionError("gone")
            return [np.array([0.5, 0.5]) for _ in questions]

    shaky, pauses = Shaky(), []
    shaky.sleep = pauses.append
    assert len(shaky.answer(["a", "b"])) == 2 and pauses == [0.5, 1.0]


# -- options


def test_an_option_that_there_is_none_of_is_named_with_the_function(tokenizer):
    model = make_model()
    key = make_key(model, tokenizer=tokenizer)
    ring = KeyRing.generate(model, tokenizer=tokenizer, target=1)
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    calls = {
        "label_with_teacher": lambda **wrong: label_with_teacher(Constant(), rows, **wrong),
        "probe_suspect": lambda **wrong: probe_suspect(Constant(), TEXTS, key=key, tokenizer=tokenizer, **wrong),
        "detect": lambda **wrong: detect(Constant(), TEXTS, key=key, tokenizer=tokenizer, **wrong),
        "identify": lambda **wrong: identify(Constant(), TEXTS, ring=ring, users=["a"], tokenizer=tokenizer, **wrong),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'batchsize'"):
            call(batchsize=3)


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"max_retries": -1}, {"max_length": 0}, {"max_queries": 0}])
def test_numbers_that_ask_nothing_are_refused(tokenizer, wrong):
    (name,) = wrong
    with pytest.raises(InvalidInputError, match=f"{name}=.*expected an integer"):
        probe_suspect(Constant(), TEXTS, key=make_key(make_model(), tokenizer=tokenizer), tokenizer=tokenizer, **wrong)


# -- probing


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_tokenised_rows_may_have_other_columns_and_be_tensors(tokenizer, task):
    model = make_model(task)
    key = make_key(model, tokenizer=tokenizer)
    rows = [dict(tokenizer(text)) for text in TEXTS]
    dataset = datasets.Dataset.from_list([{**row, "labels": 1} for row in rows])
    options = {"key": key, "tokenizer": tokenizer, "progress": False}
    expected = probe_suspect(model, rows, **options)
    for given in (
        [{**row, "labels": 1} for row in rows],
        dataset.with_format("torch"),
        list(dataset.with_format("np")),
    ):
        assert probe_suspect(model, given, **options).digest() == expected.digest()
    with pytest.raises(DatasetError, match="input_ids"):
        probe_suspect(model, [{"labels": 1}], **options)


def test_errors_name_who_failed_and_the_users_row(tokenizer):
    class Broken(Constant):
        said = (0.5, 0.75)

    class Renamed(Constant):
        labels = ("bad", "good")

    options = {"key": make_key(make_model(), tokenizer=tokenizer), "tokenizer": tokenizer, "progress": False}
    for victim, said in (
        (Broken(), "the victim: row 1"),
        (Renamed(), "the victim's.*not the model that the key was made"),
    ):
        with pytest.raises((AnswerError, InvalidInputError), match=said):
            probe_suspect(Constant(), TEXTS, victim=victim, **options)
    for suspect, said in (
        (Renamed(), "the suspect's.*label_map"),
        (lambda texts: ["good" for _ in texts], "the suspect: .*'good'.*label_map"),
        (3, "the suspect: an object of type int"),
    ):
        with pytest.raises((AnswerError, InvalidInputError, PredictorError), match=said):
            probe_suspect(suspect, TEXTS, **options)

    class BrokenTagger(Constant):
        labels, task = tuple(TAGS), "token-classification"

        def answer(self, questions):
            return [np.full((len(words), len(TAGS)), 0.5) for words in questions]

    options["key"] = make_key(make_model("token-classification"), tokenizer=tokenizer)
    with pytest.raises(AnswerError, match="the suspect: row 2, word 0"):
        probe_suspect(BrokenTagger(), [[], [], ["good", "film"]], **options)
    with pytest.raises(InvalidInputError, match="row 2 of gold"):
        tagger = as_predictor(lambda rows: [[TAGS[0]] * len(row) for row in rows], task=BrokenTagger.task, labels=TAGS)
        probe_suspect(tagger, [[], [], ["good"]], gold=[[], [], ["no tag"]], **options)


# -- answers


def test_a_probe_is_asked_once_and_read_from_its_store(tokenizer, cache):
    key = make_key(make_model(), tokenizer=tokenizer)
    options = {"key": key, "tokenizer": tokenizer, "progress": False, "batch_size": 2}
    first, second, third = Known(), Known(), Known()
    probe = probe_suspect(first, TEXTS, **options)
    assert sorted(first.asked) == sorted(TEXTS) and first.asked[0] == max(TEXTS, key=len), "the longest come first"
    again = probe_suspect(second, TEXTS, **options)
    assert not second.asked and again.digest() == probe.digest()
    assert {path.name for path in cache.rglob("drw-*/*")} == {"answers-0.sqlite", "labels.json"}
    probe_suspect(third, TEXTS, load_from_cache_file=False, **options)
    assert sorted(third.asked) == sorted(TEXTS)


def test_a_probe_that_broke_off_goes_on_where_it_stopped(tokenizer):
    class Breaks(Known):
        def answer(self, questions):
            if len(self.asked) >= 2:
                raise RuntimeError("told to break")
            return super().answer(questions)

    key = make_key(make_model(), tokenizer=tokenizer)
    options = {"key": key, "tokenizer": tokenizer, "progress": False, "batch_size": 2}
    broken, mended = Breaks(), Known()
    with pytest.raises(RuntimeError, match="told to break"):
        probe_suspect(broken, TEXTS, **options)
    probe_suspect(mended, TEXTS, **options)
    assert sorted(broken.asked + mended.asked) == sorted(TEXTS)


def test_a_predictor_that_learned_its_labels_goes_on_with_what_it_said_before(tmp_path):
    asked = []

    def service(texts):
        if len(asked) == 2:
            asked.append("a failure")
            raise ValueError("told to break")
        asked.extend(texts)
        return [{"negative": 0.25, "positive": 0.75} for _ in texts]

    predictor, rows = as_predictor(service), datasets.Dataset.from_dict({"text": TEXTS})
    predictor.stateful = True  # it closes over a list that grows
    options = {"batch_size": 2, "cache_dir": tmp_path, "progress": False}
    with pytest.raises(ValueError, match="told to break"):
        label_with_teacher(predictor, rows, **options)
    assert predictor.labels == ("negative", "positive")
    assert label_with_teacher(predictor, rows, **options)["teacher_labels"][:] == [1] * len(TEXTS)
    assert sorted(asked) == sorted([*TEXTS, "a failure"])


def test_whoever_probes_reads_of_a_suspect_and_a_victim_and_of_no_teacher(tokenizer, capsys):
    key = make_key(make_model(), tokenizer=tokenizer)
    probe_suspect(Constant(), TEXTS, key=key, tokenizer=tokenizer, victim=Constant())
    shown = capsys.readouterr().err
    assert "Asking the suspect" in shown and "Asking the victim" in shown and "teacher" not in shown


def test_gold_labels_are_names_or_numbers_of_the_key(tokenizer):
    key = make_key(make_model(), tokenizer=tokenizer)
    for gold in (["positive", 0, None, -100, np.int64(1)], [1.0, 0.0, math.nan, -100.0, np.float32(1)]):
        probe = probe_suspect(Constant(), TEXTS, key=key, tokenizer=tokenizer, gold=gold, progress=False)
        assert probe.gold.tolist() == [1, 0, -1, -1, 1]
    for wrong in ("neutral", 2, 0.5):
        said = (
            rf"row 3 of gold holds {wrong!r}.*\['negative', 'positive'\]; expected one of them or a number from 0 to 1"
        )
        with pytest.raises(InvalidInputError, match=said):
            probe_suspect(Constant(), TEXTS, key=key, tokenizer=tokenizer, gold=[0, 0, 0, wrong, 0], progress=False)


# -- the store


SCORES = Records("scores", "search", "chunks", ("first", "names", "scores"), "<f8", "delete it")


def test_a_store_keeps_numbers_in_their_order_and_only_what_it_is_about(tmp_path):
    path = tmp_path / "folder" / "kept.sqlite"
    with Store(path, SCORES, about={"of": "this"}, mode=0o600) as store:
        store.write([(5, b"names", np.array([1.5, 2.5]))])
        store.write([(0, 7, np.array([0.5]))])
    assert path.stat().st_mode & 0o077 == 0
    with Store(path, SCORES, about={"of": "this"}) as store:
        assert store.numbers() == {0, 5}
        assert [(number, note, values.tolist()) for number, note, values in store.read()] == [
            (0, 7, [0.5]),
            (5, b"names", [1.5, 2.5]),
        ]
        assert [number for number, _, _ in store.read(1, 6)] == [5]
    with pytest.raises(KeptAnswersError, match="the scores of another search"):
        Store(path, SCORES, about={"of": "that"})
