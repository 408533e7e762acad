"""label_with_teacher: anybody asked, once, with every answer kept."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import transformers
from huggingface_hub import InferenceClient, constants
from hypothesis import given
from hypothesis import strategies as st
from transformers import pipeline

from drw_hf import label_with_teacher
from drw_hf.asking import Predictor, RetryingPredictor, as_predictor
from drw_hf.asking.questions import Cut, find_text_columns, first_positions
from drw_hf.asking.remote import join_words, pause_after
from drw_hf.asking.store import Store
from drw_hf.errors import AnswerError, DatasetError, KeptAnswersError, PredictorError
from inference_server import InferenceServer
from small_models import MARKS, TAGS, make_batch, make_key, make_model, make_tokenizer, make_victim
from test_leaks import assert_clean

TEXTS = [
    "the film was very good",
    "we hated the slow ending",
    "a truly moving story with a great cast and bright music",
    "dull",
    "they liked the beginning but not the plot",
    "bad bad bad",
    "quite funny",
]
LABELS = ["negative", "positive"]


@pytest.fixture
def texts():
    return datasets.Dataset.from_dict({"text": TEXTS, "label": [1, 0, 1, 0, 0, 0, 1]})


@pytest.fixture
def sentences():
    return datasets.Dataset.from_dict({"tokens": [text.split() for text in TEXTS]})


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def label(teacher, dataset, tokenizer=None, **kwargs):
    return label_with_teacher(teacher, dataset, tokenizer, progress=False, **{"batch_size": 3, **kwargs})


class Counting:
    """A black-box service that counts what it is asked, and can be told to break after some calls."""

    def __init__(self, breaks_at=None, error=OSError, answer=None):
        self.asked, self.calls, self.breaks_at, self.error = [], 0, breaks_at, error
        self.answer = answer or (lambda text: {"negative": 0.25, "positive": 0.75})

    def __call__(self, questions):
        self.calls += 1
        if self.calls == self.breaks_at:
            raise self.error("told to break")
        self.asked += questions
        return [self.answer(question) for question in questions]


# -- what comes back


@pytest.mark.parametrize("mark", MARKS)
def test_answers_are_the_models_and_keep_their_rows(texts, tokenizer, mark):
    victim = make_victim(mark=mark, digits=0)
    labelled = label(victim, texts, tokenizer)
    assert labelled.column_names == ["text", "label", "teacher_probs", "teacher_labels"]
    assert labelled["text"][:] == TEXTS and labelled.features["teacher_labels"].names == LABELS
    for row, text in zip(labelled, TEXTS, strict=True):
        with torch.no_grad():
            y = victim(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        np.testing.assert_allclose(row["teacher_probs"], y, atol=1e-5)
        assert row["teacher_labels"] == int(y.argmax())


def test_batch_size_does_not_matter(sentences, tokenizer, tmp_path):
    victim = make_victim("token-classification", label_kind="hard")
    found = [
        label(victim, sentences, tokenizer, batch_size=size, cache_dir=tmp_path / str(size))["teacher_labels"][:]
        for size in (1, 2, 7)
    ]
    assert found[0] == found[1] == found[2]


def test_words_get_the_answer_of_their_first_sub_token(sentences):
    """A tokenizer that splits words: one answer a word, ragged as the words are."""
    pieces = make_pieces_tokenizer()
    model = make_model("token-classification", vocab_size=len(pieces))
    labelled = label(model, sentences, pieces)
    for row in labelled:
        encoding = pieces(row["tokens"], is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            p = model(**encoding).logits.softmax(-1)[0]
        first = [encoding.word_ids().index(word) for word in range(len(row["tokens"]))]
        assert len(row["teacher_probs"]) == len(row["teacher_labels"]) == len(row["tokens"])
        np.testing.assert_allclose(row["teacher_probs"], p[first], atol=1e-5)


def make_pieces_tokenizer():
    """Characters instead of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = {
        t: i for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *letters, *("##" + c for c in letters)])
    }
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=64, **names)


@pytest.mark.parametrize("side", ["right", "left"])
def test_tokenised_rows_are_labelled_token_by_token(sentences, side):
    tokenizer = make_tokenizer(padding_side=side)
    model = make_model("token-classification", architecture="llama")
    rows = sentences.map(lambda row: tokenizer(row["tokens"], is_split_into_words=True), remove_columns="tokens")
    by_word = label(model, sentences, tokenizer)
    by_token = label(model, rows, tokenizer)
    for words, tokens in zip(by_word, by_token, strict=True):
        assert tokens["teacher_labels"] == [-1, *words["teacher_labels"], -1]
        np.testing.assert_allclose(tokens["teacher_probs"][1:-1], words["teacher_probs"], atol=1e-5)
        assert tokens["teacher_probs"][0] == [0.0] * 4


def test_words_beyond_the_limit_are_not_answered(sentences, tokenizer):
    labelled = label(make_model("token-classification"), sentences, tokenizer, max_length=5)
    for row in labelled:
        assert [tag >= 0 for tag in row["teacher_labels"]] == [word < 3 for word in range(len(row["tokens"]))]


@pytest.mark.parametrize("padding_side", ["right", "left"])
@pytest.mark.parametrize("tokenised", [False, True])
def test_a_tokenizer_that_cuts_on_the_left_keeps_the_last_words(sentences, tokenised, padding_side):
    tokenizer = make_tokenizer(truncation_side="left", padding_side=padding_side)
    rows, model = sentences, make_model("token-classification", architecture="llama")  # padding moves no position
    if tokenised:
        rows = sentences.map(lambda row: tokenizer(row["tokens"], is_split_into_words=True), remove_columns="tokens")
    labelled = label(model, rows, tokenizer, max_length=5)
    for row, words in zip(labelled, sentences["tokens"], strict=True):
        ids = tokenizer(words, is_split_into_words=True)["input_ids"]
        left = ids[-5:] if tokenised else [ids[0], *ids[1:-1][-3:], ids[-1]]
        with torch.no_grad():
            expected = model(torch.tensor([left])).logits[0].softmax(-1)
        kept = [token not in (2, 3) for token in left]
        answered = [tag >= 0 for tag in row["teacher_labels"]]
        expected_places = [place >= len(words) - sum(kept) for place in range(len(words))]
        assert answered == ([False, *expected_places, False] if tokenised else expected_places)
        np.testing.assert_allclose(np.array(row["teacher_probs"])[answered], expected[kept], atol=1e-5)


def test_answers_of_one_side_are_not_taken_for_those_of_the_other(texts):
    model = make_model()
    right, left = (as_predictor(model, make_tokenizer(truncation_side=side)) for side in ("right", "left"))
    second = as_predictor(model, make_tokenizer(), cut=Cut(pairs="only_second"))
    assert len({right.fingerprint(), left.fingerprint(), second.fingerprint()}) == 3
    assert as_predictor(model, make_tokenizer(), cut=Cut(side="left")).fingerprint() == left.fingerprint()


def test_pairs_and_columns_of_ones_own(tokenizer):
    rows = datasets.Dataset.from_dict({"left": TEXTS[:3], "right": TEXTS[3:6]})
    model = make_model()
    labelled = label(model, rows, tokenizer, text_columns=["left", "right"])
    with torch.no_grad():
        y = model(**tokenizer(TEXTS[0], TEXTS[3], return_tensors="pt")).logits.softmax(-1)[0]
    np.testing.assert_allclose(labelled[0]["teacher_probs"], y, atol=1e-5)


def test_every_split_of_a_dataset_dict_is_labelled(texts, tokenizer):
    both = datasets.DatasetDict({"train": texts, "test": texts.select(range(2))})
    labelled = label(make_model(), both, tokenizer)
    assert len(labelled["train"]) == 7 and len(labelled["test"]) == 2


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_a_stream_is_labelled_as_it_passes(texts, sentences, tokenizer, task):
    rows = texts if task == "sequence-classification" else sentences
    model = make_model(task)
    streamed = list(label(model, rows.to_iterable_dataset(), tokenizer))
    for one, other in zip(streamed, label(model, rows, tokenizer), strict=True):
        np.testing.assert_allclose(one["teacher_probs"], other["teacher_probs"], atol=1e-5)
        assert one["teacher_labels"] == other["teacher_labels"]


def test_the_model_is_asked_in_eval_mode_and_put_back(texts, tokenizer):
    model = make_model()
    expected = label(model, texts, tokenizer)["teacher_probs"][:]
    model.train()
    np.testing.assert_allclose(label(model, texts, tokenizer)["teacher_probs"][:], expected, atol=1e-6)
    assert model.training


# -- who is asked


def remote(victim, tokenizer, monkeypatch, faults=(), task="text-classification"):
    """The victim behind HTTP."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    pipe = pipeline(task, model=victim, tokenizer=tokenizer)

    def answer(payload):
        if task == "text-classification":
            return [pipe(payload["inputs"], top_k=None)]
        entities = pipe(payload["inputs"])
        return [{name: e[name] if name != "score" else float(e[name]) for name in e} for e in entities]

    return InferenceServer(answer, faults)


@pytest.mark.parametrize("kind", ["path", "pipeline", "callable", "client"])
def test_teachers_of_every_kind_give_the_same_answers(texts, tokenizer, kind, tmp_path, monkeypatch):
    model = make_model()
    expected = label(model, texts, tokenizer)
    pipe = pipeline("text-classification", model=model, tokenizer=tokenizer)
    server = remote(model, tokenizer, monkeypatch)
    with server.running():
        if kind == "path":
            model.save_pretrained(tmp_path / "model")
            tokenizer.save_pretrained(tmp_path / "model")
            found = label(str(tmp_path / "model"), texts)
        elif kind == "pipeline":
            found = label(pipe, texts)
        elif kind == "callable":
            found = label(lambda t: [{i["label"]: i["score"] for i in row} for row in pipe(t, top_k=None)], texts)
        else:
            found = label(InferenceClient(model=server.url), texts)
            assert len(server.requests) == len(TEXTS), "once per row"
    np.testing.assert_allclose(found["teacher_probs"][:], expected["teacher_probs"][:], atol=1e-5)
    assert found["teacher_labels"][:] == expected["teacher_labels"][:]
    assert found.features["teacher_labels"].names == LABELS


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_services_may_answer_with_a_flat_list_or_a_nested_one(
    texts, sentences, tokenizer, monkeypatch, tmp_path, task
):
    """Of a flat list `InferenceClient` itself keeps one label; Endpoints with our first handler send such."""
    by_word = task == "token-classification"
    rows, names = (sentences, TAGS) if by_word else (texts, LABELS)
    of_ours = "token-classification" if by_word else "sequence-classification"
    model = make_model(of_ours)
    server, labelled = remote(model, tokenizer, monkeypatch, task=task), []
    usual = server.answer
    with server.running():
        for cache, change in (("usual", lambda it: it), ("other", lambda it: [it] if by_word else it[0])):
            server.answer = lambda payload, change=change: change(usual(payload))
            options = {"task": of_ours, "labels": names, "cache_dir": tmp_path / cache}
            labelled.append(label(InferenceClient(model=server.url), rows, **options))
    assert labelled[0]["teacher_probs"][:] == labelled[1]["teacher_probs"][:]
    assert len(server.requests) == 2 * len(rows), "a flat answer is not asked for again"
    assert {row["parameters"].get("top_k") for row in server.requests} == {None if by_word else len(LABELS)}


@pytest.mark.parametrize(
    "body", [{"label": "positive", "score": 1.0}, [{"label": "positive"}], [[[]]], [3], ["positive"]]
)
def test_answers_of_a_service_that_are_neither_are_refused(texts, tokenizer, monkeypatch, body):
    server = remote(make_model(), tokenizer, monkeypatch)
    server.answer = lambda payload: body
    with server.running(), pytest.raises(AnswerError, match="was not understood"):
        label(InferenceClient(model=server.url), texts, labels=LABELS)


def test_a_remote_tagger_is_aligned_by_the_characters_of_its_spans(sentences, tokenizer, monkeypatch):
    model = make_model("token-classification")
    server = remote(model, tokenizer, monkeypatch, task="token-classification")
    with server.running():
        found = label(InferenceClient(model=server.url), sentences, task="token-classification", labels=TAGS)
    expected = label(model, sentences, tokenizer)
    assert found["teacher_labels"][:] == expected["teacher_labels"][:]
    best = [[max(word) for word in row] for row in expected["teacher_probs"][:]]
    said = [[max(word) for word in row] for row in found["teacher_probs"][:]]
    for one, other, tags in zip(said, best, expected["teacher_labels"][:], strict=True):
        for score, true_score, tag in zip(one, other, tags, strict=True):
            assert score == pytest.approx(1.0 if TAGS[tag] == "O" else true_score, abs=1e-5)


def test_a_service_that_gives_labels_alone(texts, sentences):
    labelled = label(lambda t: ["positive"] * len(t), texts, labels=LABELS)
    assert labelled["teacher_labels"][:] == [1] * 7 and labelled["teacher_probs"][0] == [0.0, 1.0]
    tagged = label(
        lambda rows: [["O"] * len(words) for words in rows], sentences, task="token-classification", labels=TAGS
    )
    assert tagged["teacher_labels"][0] == [0] * 5


def test_something_that_cannot_be_asked(texts, tokenizer):
    with pytest.raises(PredictorError, match="cannot be asked"):
        label(7, texts)
    with pytest.raises(PredictorError, match="tokenizer="):
        label(make_model(), texts)
    with pytest.raises(PredictorError, match="labels="):
        label(lambda t: ["positive"] * len(t), texts)
    with pytest.raises(PredictorError, match="task"):
        label(transformers.BertModel(transformers.BertConfig(**SMALL)), texts, tokenizer)


SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


# -- once, and kept


def test_a_row_is_asked_once_and_a_second_call_asks_nothing(texts, tokenizer):
    victim = make_victim()
    calls = []
    victim.register_forward_hook(lambda module, args, kwargs, output: calls.append(1), with_kwargs=True)
    first = label(victim, texts, tokenizer)
    assert len(calls) == 3
    again = label(victim, texts, tokenizer)
    assert len(calls) == 3 and again["teacher_probs"][:] == first["teacher_probs"][:]
    label(victim, texts, tokenizer, load_from_cache_file=False)
    assert len(calls) == 6


def test_another_key_weight_label_kind_or_text_is_asked_anew(texts, tokenizer):
    model = make_model()
    fingerprints = set()
    others = [
        make_victim(model=model),
        make_victim(model=model, secret=b"\x01" * 32),
        make_victim(model=model, label_kind="hard"),
        model,
        make_model(seed=1),
    ]
    for teacher in others:
        fingerprints.add(label(teacher, texts, tokenizer)._fingerprint)
    fingerprints.add(label(model, texts.select(range(3)), tokenizer)._fingerprint)
    assert len(fingerprints) == len(others) + 1


def test_a_context_that_changes_the_key_is_asked_anew(texts, tokenizer):
    victim = make_victim(epsilon=1.0)
    own = label(victim, texts, tokenizer)["teacher_probs"][:]
    with victim.watermark_disabled():
        clean = label(victim, texts, tokenizer)["teacher_probs"][:]
    with victim.use_key(victim.key.replace(secret=b"\x02" * 32)):
        other = label(victim, texts, tokenizer)["teacher_probs"][:]
    np.testing.assert_allclose(clean, label(victim.get_base_model(), texts, tokenizer)["teacher_probs"][:], atol=1e-6)
    assert own != clean != other != own


def test_services_in_one_folder_are_told_apart(texts, tmp_path):
    def service(questions):
        return [{"negative": 0.9, "positive": 0.1} for _ in questions]

    high = label(lambda t: [{"negative": 0.1, "positive": 0.9} for _ in t], texts, cache_dir=tmp_path)
    low = label(lambda t: [{"negative": 0.9, "positive": 0.1} for _ in t], texts, cache_dir=tmp_path)
    assert high["teacher_labels"][:] != low["teacher_labels"][:]
    for labels in (LABELS, LABELS[::-1]):
        found = label(service, texts, cache_dir=tmp_path, labels=labels)
        assert found.features["teacher_labels"].int2str(found["teacher_labels"][0]) == "negative"


def test_a_pair_is_found_before_its_half():
    assert find_text_columns(["question", "sentence", "label"], "sequence-classification") == ["question", "sentence"]
    assert find_text_columns(["sentence", "label"], "sequence-classification") == ["sentence"]


def test_two_lambdas_are_not_taken_for_each_other(texts):
    high = label(lambda t: [{"negative": 0.1, "positive": 0.9} for _ in t], texts)
    low = label(lambda t: [{"negative": 0.9, "positive": 0.1} for _ in t], texts)
    assert high["teacher_labels"][:] != low["teacher_labels"][:]


def test_the_cache_holds_nothing_of_the_key(texts, tokenizer, cache):
    victim = make_victim(label_kind="hard")
    label(victim, texts, tokenizer)
    contents = assert_clean(victim.key, cache)
    assert not any(victim.key.fingerprint.encode() in content for content in contents.values())


def test_a_service_that_breaks_midway_keeps_what_it_said(texts, tmp_path):
    broken = Counting(breaks_at=2, error=RuntimeError)
    with pytest.raises(RuntimeError, match="told to break"):
        label(broken, texts, cache_dir=tmp_path / "kept")
    assert len(broken.asked) == 3
    mended = Counting()
    labelled = label(mended, texts, cache_dir=tmp_path / "kept")
    assert sorted(broken.asked + mended.asked) == sorted(TEXTS), "nobody was asked the same twice"
    assert labelled["teacher_labels"][:] == [1] * 7
    assert {path.name for path in (tmp_path / "kept").glob("*/*")} == {"labelled.arrow", "labels.json"}


def test_label_names_that_only_the_answers_showed_are_kept_with_them(texts):
    def service(questions):
        return [{"negative": 0.25, "positive": 0.75} for _ in questions]

    first, again = label(service, texts), label(service, texts)
    assert first.features == again.features and again.features["teacher_labels"].names == LABELS


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import conftest, datasets
from drw_hf import label_with_teacher
asked = 0
class Service:
    def __call__(self, texts):
        global asked
        with open({log!r}, "a") as log:
            log.writelines(text + "\\n" for text in texts)
        asked += len(texts)
        if {kill} and asked > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return [{{"negative": 0.25, "positive": 0.75}} for _ in texts]
rows = datasets.Dataset.from_dict({{"text": [f"text {{i}}" for i in range(50)]}})
labelled = label_with_teacher(Service(), rows, batch_size=5, cache_dir={cache!r}, progress=False)
print(len(labelled), labelled["teacher_labels"][:].count(1))
"""


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
    """A real process, really killed: at most one batch is asked twice."""
    log = tmp_path / "asked.txt"

    def run(kill):
        code = KILLED.format(tests=str(Path(__file__).parent), log=str(log), cache=str(tmp_path / "cache"), kill=kill)
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)

    assert run(True).returncode == -signal.SIGKILL
    finished = run(False)
    assert finished.stdout.strip() == "50 50", finished.stderr[-2000:]
    asked = log.read_text().splitlines()
    assert set(asked) == {f"text {i}" for i in range(50)}
    assert len(asked) <= 55


# -- a line that breaks


def test_a_remote_teacher_is_asked_again_after_a_pause(texts, tokenizer, monkeypatch):
    faults = [(503, {"Retry-After": "0"}), (429, {"Retry-After": "0"}), (None, {}), (500, {"Retry-After": "0"})]
    pauses = []
    monkeypatch.setattr("drw_hf.asking.remote.time.sleep", pauses.append)
    server = remote(make_model(), tokenizer, monkeypatch, faults)
    with server.running():
        teacher = as_predictor(InferenceClient(model=server.url))
        teacher.sleep = pauses.append
        labelled = label(teacher, texts)
    assert len(labelled) == 7 and len(pauses) == 4
    assert len(server.requests) == 7 + 4, "what was answered is not asked again"


def test_a_teacher_that_keeps_failing_is_given_up_with_what_it_said(texts, tmp_path):
    service = Counting(breaks_at=2)

    def ask(questions):
        if service.calls >= 1:
            raise ConnectionError("gone")
        return service(questions)

    teacher = as_predictor(ask, max_retries=2)
    pauses = []
    teacher.sleep = pauses.append
    with pytest.raises(PredictorError, match="3 times in a row"):
        label(teacher, texts, cache_dir=tmp_path)
    assert pauses == [0.5, 1.0]
    assert len(list(tmp_path.glob("*/answers-0.sqlite"))) == 1


@pytest.mark.parametrize("error", [ValueError("a bug"), TypeError("a bug")])
def test_what_will_not_pass_is_not_tried_again(error):
    def ask(_):
        raise error

    teacher = as_predictor(ask)
    teacher.sleep = lambda _: pytest.fail("it paused")
    assert isinstance(teacher, RetryingPredictor)
    with pytest.raises(type(error), match="a bug"):
        teacher.answer(["text"])


class Response:
    """An HTTP answer."""

    def __init__(self, status, retry_after=None):
        self.status_code, self.headers = status, {} if retry_after is None else {"Retry-After": retry_after}


@pytest.mark.parametrize(
    "status, retry_after, attempt, pause",
    [(429, "7", 0, 7.0), (503, None, 3, 4.0), (500, "soon", 0, 0.5), (504, None, 20, 60.0), (401, None, 0, None)],
)
def test_pauses_grow_and_follow_the_service(status, retry_after, attempt, pause):
    error = OSError("status")
    error.response = Response(status, retry_after)
    assert pause_after(error, attempt) == pause


# -- bad answers


@pytest.mark.parametrize(
    "answer, said",
    [
        ({"negative": float("nan"), "positive": 0.5}, "row 2"),
        ({"negative": 0.9, "positive": 0.9}, "sum to one"),
        ({"negative": 1.5, "positive": -0.5}, "negative"),
        ({"negative": 0.5, "neutral": 0.5}, "neutral"),
    ],
)
def test_answers_that_are_no_distribution_are_refused_with_their_row(texts, answer, said):
    good = {"negative": 0.25, "positive": 0.75}
    service = Counting(answer=lambda text: answer if text == TEXTS[2] else good)
    with pytest.raises(AnswerError, match=said):
        label(service, texts, labels=LABELS)
    assert service.calls == 1, "the longest rows come first, so this one was in the first batch"


def test_nan_from_a_model_is_refused(texts, tokenizer):
    model = make_model()
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(AnswerError, match="NaN"):
        label(model, texts, tokenizer)


def test_the_wrong_number_of_answers_is_refused(texts, sentences):
    with pytest.raises(AnswerError, match="3 questions and gave 2"):
        label(lambda t: ["positive"] * (len(t) - 1), texts, labels=LABELS)
    with pytest.raises(AnswerError, match="1 answers to"):
        label(lambda rows: [["O"] for _ in rows], sentences, task="token-classification", labels=TAGS)


# -- bad data


def test_data_that_cannot_be_asked_about(texts, tokenizer):
    model = make_model()
    with pytest.raises(DatasetError, match="empty"):
        label(model, texts.select([]), tokenizer)
    with pytest.raises(DatasetError, match="text_columns="):
        label(model, texts.rename_column("text", "utterance"), tokenizer)
    with pytest.raises(DatasetError, match="utterance"):
        label(model, texts, tokenizer, text_columns="utterance")
    with pytest.raises(DatasetError, match="already"):
        label(model, label(model, texts, tokenizer), tokenizer)
    with pytest.raises(DatasetError, match=r"datasets\.Dataset"):
        label(model, TEXTS, tokenizer)


# -- small parts


@given(st.lists(st.text(st.characters(exclude_categories=["Zs", "Cc"]), min_size=1), min_size=1))
def test_words_are_found_again_where_they_begin(words):
    text, starts = join_words(words)
    assert [text[start : start + len(word)] for start, word in zip(starts, words, strict=True)] == words


def test_first_positions_skip_words_without_tokens():
    assert first_positions([None, 0, 0, 2, None], 4) == [1, None, 3, None]


def test_keys_do_not_reach_a_callables_fingerprint(texts):
    """A closure that holds a key cannot be hashed, so nothing is cached; it works all the same."""
    model = make_model()
    key = make_key(model)
    victim = make_victim(model=model)

    def service(questions):
        with torch.no_grad():
            victim(**make_batch(len(questions)), watermark_key=key)
        return ["positive"] * len(questions)

    assert as_predictor(service, labels=LABELS).fingerprint() is None
    assert len(label(service, texts, labels=LABELS)) == 7


def test_aggregated_entities_are_spread_over_their_words():
    entities = [{"entity_group": "PER", "score": 0.9, "start": 4, "end": 12}]

    def ner(rows):
        return [entities for _ in rows]

    teacher = as_predictor(ner, task="token-classification", labels=TAGS)
    (answer,) = teacher.answer([["the", "film", "was", "good"]])  # "film was" is the entity
    assert [TAGS[i] for i in answer.argmax(-1)] == ["O", "B-PER", "I-PER", "O"]
    (nothing,) = as_predictor(lambda rows: [[] for _ in rows], task="token-classification", labels=TAGS).answer(
        [["a"]]
    )
    assert TAGS[nothing[0].argmax()] == "O"


# -- many at once, and damage

AT_ONCE = """
import os, sys, time
from pathlib import Path
from datasets import Dataset
from drw_hf import label_with_teacher
folder = Path({folder!r})
class Service:
    def __call__(self, texts):
        with (folder / "asked").open("a") as file:
            file.writelines(f"{{os.getpid()}} {{text}}\\n" for text in texts)
        time.sleep(0.03)
        return [{{"negative": 0.25, "positive": 0.75}} for _ in texts]
rows = Dataset.from_dict({{"text": [f"text {{number}}" for number in range(200)]}})
children = []
for _ in range(3):  # three processes, for the time of one import
    children.append(os.fork())
    if children[-1] == 0:
        (folder / f"ready-{{os.getpid()}}").touch()
        while len(list(folder.glob("ready-*"))) < 3:
            time.sleep(0.005)
        labelled = label_with_teacher(Service(), rows, batch_size=2, cache_dir=folder, progress=False)
        (folder / f"result-{{os.getpid()}}").write_text(str(sum(labelled["teacher_labels"][:])))
        os._exit(0)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_do_the_same_at_once_ask_everything_once_and_none_breaks(tmp_path):
    """They used to delete each other's journal: "attempt to write a readonly database"."""
    asked = tmp_path / "asked"
    code = AT_ONCE.format(folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while process.poll() is None and (not asked.exists() or len(asked.read_text().splitlines()) < 40):
        time.sleep(0.01)
    first = int(asked.read_text().split()[0])
    os.kill(first, signal.SIGKILL)  # whoever waits goes on where it stopped
    error = process.communicate(timeout=120)[1]
    results = {int(path.name.split("-")[1]): path.read_text() for path in tmp_path.glob("result-*")}
    assert first not in results and list(results.values()) == ["200", "200"], error
    texts = [line.split(" ", 1)[1] for line in asked.read_text().splitlines()]
    assert len(set(texts)) == 200 and len(texts) <= 202, "all but the batch that was killed are asked once"
    assert "waiting until it is done" in error


def interrupted(texts, folder):
    """Answers of a run that broke midway; returns its journal."""
    with pytest.raises(PredictorError):
        label(Counting(breaks_at=2), texts, cache_dir=folder, max_retries=0)
    (journal,) = folder.rglob("answers-0.sqlite")
    return journal


@pytest.mark.parametrize("damage", ["overwritten", "cut", "another table", "cells"])
def test_a_damaged_journal_is_named_and_left_as_it_is(texts, tmp_path, damage):
    journal = interrupted(texts, tmp_path)
    content = journal.read_bytes()
    if damage == "another table":
        journal.unlink()
        with sqlite3.connect(journal) as connection:
            connection.execute("CREATE TABLE answers (something INTEGER)")
    else:
        journal.write_bytes(b"not a database" * 99 if damage == "overwritten" else content[:3000])
    if damage == "cells":
        journal.write_bytes(content)
        with sqlite3.connect(journal) as connection:
            connection.execute("UPDATE answers SET value = x'ffffff'")
    before = journal.read_bytes()
    service = Counting()
    with pytest.raises(KeptAnswersError, match=r"answers-0\.sqlite are damaged"):
        label(service, texts, cache_dir=tmp_path)
    assert not service.asked
    assert journal.read_bytes() == before
    journal.write_bytes(content)  # from a backup
    assert label(service, texts, cache_dir=tmp_path)["teacher_labels"][:] == [1] * len(TEXTS)
    assert len(service.asked) == len(TEXTS) - 3, "what was kept is not asked again"


def test_a_journal_that_cannot_be_written_says_why_and_keeps_what_there_is(texts, tmp_path, monkeypatch):
    journal = interrupted(texts, tmp_path)
    write = Store.write

    def on_a_full_disk(self, records):
        self._connection.execute("PRAGMA max_page_count = 1")  # as small as it is: SQLite says that the disk is full
        write(self, [(row, width, np.tile(answer, 5000)) for row, width, answer in records])

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", on_a_full_disk)
        with pytest.raises(KeptAnswersError, match=r"full.*free the space"):
            label(Counting(), texts, cache_dir=tmp_path)
    assert journal.exists()
    service = Counting()
    label(service, texts, cache_dir=tmp_path)
    assert len(service.asked) == len(TEXTS) - 3


def test_a_journal_that_was_begun_and_never_written_holds_nobody_up(texts, tmp_path):
    journal = interrupted(texts, tmp_path)
    journal.with_name("answers-1.sqlite").touch()
    service = Counting()
    assert label(service, texts, cache_dir=tmp_path)["teacher_labels"][:] == [1] * len(TEXTS)
    assert len(service.asked) == len(TEXTS) - 3


@pytest.mark.parametrize("content", ["{", "5", '["negative", 1]'])
def test_damaged_label_names_are_found_before_anything_is_asked(texts, tmp_path, content):
    journal = interrupted(texts, tmp_path)
    (journal.parent / "labels.json").write_text(content)
    service = Counting()
    with pytest.raises(KeptAnswersError, match=r"labels\.json"):
        label(service, texts, cache_dir=tmp_path)
    assert not service.asked


@pytest.mark.parametrize("name", ["labelled.arrow", "labels.json"])
def test_a_damaged_result_of_an_earlier_run_is_named_and_not_used(texts, tmp_path, name):
    label(Counting(), texts, cache_dir=tmp_path)
    (file,) = tmp_path.rglob(name)
    file.write_bytes(file.read_bytes()[:-5] if name == "labels.json" else file.read_bytes()[:300])
    with pytest.raises(KeptAnswersError, match=f"{name}.*delete the folder"):
        label(Counting(), texts, cache_dir=tmp_path)


# -- a predictor of the user's own


class Alike(Predictor):
    """The least that a subclass must have: nobody can tell what it would answer."""

    task = "sequence-classification"

    def __init__(self, name=None):
        self.labels, self.asked = tuple(LABELS), 0
        if name is not None:
            self.name = name

    def answer(self, questions):
        self.asked += len(questions)
        return [np.array([0.25, 0.75], dtype=np.float32) for _ in questions]

    def fingerprint(self):
        return None


@pytest.mark.parametrize("name", [None, "mine"])
def test_answers_of_a_predictor_without_a_fingerprint_are_kept_in_a_folder_that_the_user_names(texts, tmp_path, name):
    first, second, other = Alike(name), Alike(name), Alike("another one")
    for predictor in (first, second, other):
        assert label(predictor, texts, cache_dir=tmp_path)["teacher_labels"][:] == [1] * len(TEXTS)
    assert (first.asked, second.asked, other.asked) == (len(TEXTS), 0, len(TEXTS))


def test_without_such_a_folder_it_is_asked_every_time(texts):
    predictor = Alike()
    for _ in range(2):
        label(predictor, texts)
    assert predictor.asked == 2 * len(TEXTS)


def test_a_finished_run_is_read_from_a_folder_that_cannot_be_written(texts, tmp_path):
    label(Counting(), texts, cache_dir=tmp_path)
    (lock,) = tmp_path.glob(".*.lock")
    lock.unlink()
    lock.mkdir()  # no lock can be had here, whoever asks: root may write everywhere else
    service = Counting()
    assert label(service, texts, cache_dir=tmp_path)["teacher_labels"][:] == [1] * len(TEXTS)
    assert not service.asked
