"""An accused cannot stop a probe: what is refused, or is no prediction, is counted and left out."""

import functools
import math

import datasets
import numpy as np
import pytest
from huggingface_hub import InferenceClient, constants

from drw_hf import detect
from drw_hf.asking import RetryingPredictor
from drw_hf.detection import probe_suspect
from drw_hf.detection.verdict import describe_labels
from drw_hf.errors import AnswerError, InvalidInputError, NoAnswerError
from drw_hf.evidence import verify_evidence
from inference_server import InferenceServer
from small_models import TAGS, WORDS, make_key, make_model
from test_detect import make_case
from test_detect import make_key as make_large_key

LABELS = ["negative", "positive"]
TEXTS = [f"{first} {second} film {third}" for first in WORDS[:6] for second in WORDS[6:11] for third in WORDS[20:22]]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def options(tokenizer):
    return {"key": make_key(make_model(), tokenizer=tokenizer), "tokenizer": tokenizer, "progress": False}


def scores(text):
    share = 0.05 + 0.9 * (sum(map(ord, text)) % 97) / 97
    return dict(zip(LABELS, (share, 1.0 - share), strict=True))


REFUSALS = {
    "NaN": {"negative": math.nan, "positive": math.nan},
    "infinite": {"negative": math.inf, "positive": 0.0},
    "an extra label": {"negative": 0.3, "positive": 0.3, "refused": 0.4},
    "another label": "refused",
    "no label": {},
    "half of it": {"negative": 0.3},
    "a number too large": {"negative": 3.0, "positive": 0.5},
}


def says(answer, to):
    """A suspect that answers so to some texts."""
    return lambda texts: [answer if text in to else scores(text) for text in texts]


@pytest.mark.parametrize("how", REFUSALS)
@pytest.mark.parametrize("n_refused", [1, 7, 59])
def test_what_is_no_prediction_is_counted_and_the_others_are_as_they_would_be(options, how, n_refused):
    refused = TEXTS[:n_refused]
    probe = probe_suspect(says(REFUSALS[how], refused), TEXTS, **options)
    alone = probe_suspect(scores_of, TEXTS[n_refused:], **options)
    assert probe.n_unanswered == n_refused and probe.n_queries == len(TEXTS)
    np.testing.assert_array_equal(probe.suspect, alone.suspect)
    assert probe.rows.tolist() == list(range(n_refused, len(TEXTS)))


def scores_of(texts):
    return [scores(text) for text in texts]


@pytest.mark.parametrize("how", REFUSALS)
def test_a_suspect_that_answers_nothing_is_an_error(options, how):
    with pytest.raises(AnswerError, match="the suspect"):
        probe_suspect(says(REFUSALS[how], TEXTS), TEXTS, **options)


def test_too_few_or_too_many_answers_to_a_batch_are_told_apart_text_by_text(options):
    def suspect(texts):
        return [scores(text) for text in texts if text != TEXTS[3]]

    probe = probe_suspect(suspect, TEXTS, **options)
    assert probe.n_unanswered == 1 and 3 not in probe.rows


def test_a_mistake_in_ones_own_function_is_no_refusal(options):
    def broken(texts):
        return [{"negative": 1 / (text != TEXTS[5]), "positive": 0.0} for text in texts]

    with pytest.raises(ZeroDivisionError):
        probe_suspect(broken, TEXTS, **options)


def test_the_words_of_a_tagger_are_unanswered_one_by_one(tokenizer):
    def suspect(rows):
        even = dict.fromkeys(TAGS, 1 / len(TAGS))
        return [[dict.fromkeys(TAGS, math.nan) if word == "film" else even for word in words] for words in rows]

    key = make_key(make_model("token-classification"), tokenizer=tokenizer)
    rows = [text.split() for text in TEXTS]
    probe = probe_suspect(suspect, rows, key=key, tokenizer=tokenizer, progress=False)
    n_films = sum(words.count("film") for words in rows)
    assert probe.n_unanswered == n_films and len(probe.rows) == 4 * len(TEXTS) - n_films


def test_the_owners_own_models_must_answer(options):
    with pytest.raises(AnswerError, match="the victim"):
        probe_suspect(scores_of, TEXTS, victim=says(REFUSALS["NaN"], TEXTS[:1]), **options)


def test_a_result_says_what_was_left_unanswered_and_replays(tmp_path):
    key = make_large_key()
    rows, clean, marked, _ = make_case(key, n_rows=80)
    marked[3] = None
    marked[5] = np.full_like(marked[5], np.nan)
    found = detect(marked, rows, key=key, victim=clean)
    assert found.n_unanswered == 2 * 10 and found.verdict == "detected"
    assert "left 20 without a prediction" in found.explanation
    found.save(tmp_path / "evidence.json")
    replayed = verify_evidence(tmp_path / "evidence.json", key=key)
    assert not replayed.failed and any("left unanswered" in sentence for sentence in replayed.not_checked)


def test_an_innocent_that_refuses_what_looks_marked_or_anything_else_is_not_convicted():
    """Which texts are left out goes by the suspect's answers alone, so that p-values hold for keys."""
    key = make_large_key()
    rows, clean, innocent, _ = make_case(key, n_rows=60, mark=False)
    sure = [None if answer[:, key.target].mean() > 0.85 else answer for answer in innocent]
    probe = detect(sure, rows, key=key, victim=clean).probe
    assert 0 < probe.n_unanswered < 10 * len(rows)
    values = [detect(probe, key=make_large_key(secret=i.to_bytes(32, "big"))).p_value for i in range(80)]
    assert min(values) > 1e-3 and 0.3 < np.mean(values) < 0.7


# -- labels


def test_a_label_beyond_the_keys_is_left_out_and_the_rest_divided_by_its_sum(options, tokenizer):
    class Three:
        def __call__(self, texts):
            return [{"negative": 0.2, "positive": 0.6, "neutral": 0.2} for _ in texts]

    with pytest.raises(AnswerError, match=r"'neutral'.*label_map"):
        probe_suspect(Three(), TEXTS, **options)
    probe = probe_suspect(Three(), TEXTS, label_map={"neutral": ""}, **options)
    np.testing.assert_allclose(probe.suspect, [[0.25, 0.75]] * len(TEXTS), atol=1e-6)
    assert probe.left_out == ("neutral",) and probe.lacking == ()
    names = {0: "positive", 1: "neutral", 2: "negative"}
    model = make_model(id2label=names, label2id={name: number for number, name in names.items()})
    assert probe_suspect(model, TEXTS, **options).left_out == ("neutral",), "a model says which labels it has"
    assert "labels that are none of the key's were left out of its answers (neutral)" in describe_labels(probe)


def test_a_label_that_the_suspect_lacks_is_no_way_out(tokenizer):
    key = make_key(make_model("token-classification"), tokenizer=tokenizer)
    options = {"key": key, "tokenizer": tokenizer, "progress": False}
    rows = [text.split() for text in TEXTS]

    def model_with(labels):
        id2label = dict(enumerate(labels))
        return make_model("token-classification", id2label=id2label, label2id={b: a for a, b in id2label.items()})

    probe = probe_suspect(model_with(["I-PER", "O", "B-PER"]), rows, **options)
    assert probe.lacking == ("B-LOC",) and not probe.suspect[:, 3].any()
    with pytest.raises(InvalidInputError, match="no label for the key's target class"):
        detect(model_with(["I-PER", "O", "B-LOC"]), rows, **options)
    for labels in (["B-PER", "X", "Y"], ["O", "B-PER", "I-PER", "LOC"]):
        with pytest.raises(InvalidInputError, match="label_map"):
            probe_suspect(model_with(labels), rows, **options)
    given = probe_suspect(model_with(["O", "B-PER", "I-PER", "LOC"]), rows, label_map={"LOC": ""}, **options)
    assert (given.left_out, given.lacking) == (("LOC",), ("B-LOC",))


# -- services


@pytest.fixture
def service(monkeypatch):
    """A suspect behind HTTP, and how it refuses texts."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(RetryingPredictor, "sleep", staticmethod(lambda _: None))

    def serve(refuses):
        def answer(payload):
            text = payload["inputs"]
            return [[{"label": label, "score": score} for label, score in scores(text).items()]]

        server = InferenceServer(answer)
        send = server._server.RequestHandlerClass._send

        def send_or_refuse(handler, status, body, headers):
            refusal = refuses(server.requests[-1]["inputs"])
            if refusal == "cut":
                handler.connection.close()
                return
            if refusal is not None:
                body = "I would rather not say" if refusal == "words" else {"error": "told to refuse"}
            send(handler, refusal if isinstance(refusal, int) else status, body, headers)

        server._server.RequestHandlerClass._send = send_or_refuse
        return server

    return serve


@pytest.mark.parametrize("refusal", [400, 401, 403, 413, 422, 429, 451, 500, 503, 520, "cut", "words"])
def test_a_service_cannot_stop_a_probe_by_refusing_some_texts(options, service, refusal):
    refused = TEXTS[10:30:5]
    with service(lambda text: refusal if text in refused else None).running() as server:
        probe = probe_suspect(InferenceClient(model=server.url), TEXTS, max_retries=1, **options)
    assert probe.n_unanswered == len(refused) and len(probe.rows) == len(TEXTS) - len(refused)


def test_a_storm_of_429_and_5xx_costs_pauses_and_no_answer(options, service):
    storm = iter([429, 503, 500, 429, 502] * 12)
    with service(lambda text: next(storm, None)).running() as server:
        probe = probe_suspect(InferenceClient(model=server.url), TEXTS, max_retries=60, **options)
    assert probe.n_unanswered == 0 and len(server.requests) == len(TEXTS) + 60


def test_a_service_that_goes_down_midway_is_given_up_and_goes_on_later(options, service):
    """Five texts in a row are taken for refusals, no more: whoever keeps cutting the line does not stop the probe."""
    answered = []

    def refuses(text):
        answered.append(text)
        return "cut" if 20 < len(answered) <= 31 else None

    with service(refuses).running() as server:
        client = InferenceClient(model=server.url)
        with pytest.raises(NoAnswerError, match="failed 2 times in a row"):
            probe_suspect(client, TEXTS, max_retries=1, **options)
        before = len(server.requests)
        probe = probe_suspect(client, TEXTS, max_retries=1, **options)
    assert probe.n_unanswered == 5 and len(server.requests) - before < len(TEXTS)


def test_a_service_that_is_not_there_or_knows_nobody_is_an_error_at_once(options, service):
    for status, most in ((401, 1), (404, 1), ("cut", 5)):
        with service(lambda text, status=status: status).running() as server:
            with pytest.raises(Exception, match=r"401|404|failed"):
                probe_suspect(InferenceClient(model=server.url), TEXTS, max_retries=0, **options)
            assert len(server.requests) == most


def test_a_batch_is_halved_until_the_text_is_found_that_it_fails_for(options):
    calls = []

    def suspect(texts):
        calls.append(len(texts))
        return [scores(text) for text in texts if text != TEXTS[0]]

    probe_suspect(functools.partial(suspect), TEXTS, batch_size=64, **options)
    assert len(calls) <= 2 * math.ceil(math.log2(len(TEXTS))) + 1
