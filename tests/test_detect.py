"""detect: verdicts, corrections, saved evidence and figures, on suspects made from the equations themselves.

The suspects here are arrays: a student that learned the mark perfectly but for noise, and one that never saw it. Real
trained students are in test_theft.
"""

import dataclasses
import json
import math
import os
import re
import sys

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import BertConfig

from drw_hf import DetectionResult, WatermarkKey, detect
from drw_hf.detection import Probe, p_snr
from drw_hf.detection.statistics.saddlepoint import ExactTest
from drw_hf.detection.tabulate import table_of
from drw_hf.detection.verdict import Corrections, judge, what_helps
from drw_hf.errors import (
    AnswerError,
    ConfigurationError,
    DatasetError,
    DrwError,
    FileNotWrittenError,
    InvalidInputError,
    KeyFileError,
    KeyMismatchError,
)
from drw_hf.watermark.marking import OutputOptions, protect
from drw_hf.watermark.tokens import Query
from needles import leaks_in
from small_models import TAGS

VOCABULARY, SPECIAL = 3000, [0, 1, 2, 3]
TASKS = ["sequence-classification", "token-classification"]


def make_key(task="token-classification", **settings):
    labels = TAGS if task == "token-classification" else ["negative", "positive"]
    config = BertConfig(
        vocab_size=VOCABULARY, id2label=dict(enumerate(labels)), label2id={label: i for i, label in enumerate(labels)}
    )
    settings = {"target": 1, "secret": bytes(range(32)), "special_token_ids": SPECIAL, "task": task, **settings}
    return WatermarkKey.generate(config, **settings)


def make_case(key, n_rows=400, length=12, noise=0.3, mark=True, label_kind="soft", seed=0):
    """Texts, the clean victim's answers, and those of a suspect that learned what the victim served, give or take."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (n_rows, length), generator=generator)
    ids[:, 0], ids[:, -1] = 2, 3
    shape = (n_rows, length) if key.task == "token-classification" else (n_rows,)
    clean = torch.randn(*shape, key.num_labels, generator=generator)
    clean[..., key.target] += 3.0
    query = Query(ids, torch.ones_like(ids))
    served = protect(clean, query, key, OutputOptions(label_kind=label_kind)) if mark else clean.log_softmax(-1)
    wobble = noise * torch.randn(*shape, key.num_labels, generator=generator)
    suspect = (served.clamp_min(-6.0) + wobble).softmax(-1)
    rows = [{"input_ids": row} for row in ids.tolist()]
    return rows, list(clean.softmax(-1).numpy()), list(suspect.numpy()), served


# -- verdicts


@pytest.mark.parametrize("law", ["direct", "paper"])
@pytest.mark.parametrize("scope", ["predicted", "all"])
@pytest.mark.parametrize("task", TASKS)
def test_a_marked_suspect_is_detected_and_a_clean_one_is_not(task, scope, law):
    key = make_key(task, scope=scope, law=law, hash_rule=None if task[0] == "t" else "rarest")
    n_rows = 400 if task == "token-classification" else 3000
    rows, clean, marked, _ = make_case(key, n_rows)
    found = detect(marked, rows, key=key, victim=clean)
    assert found.verdict == "detected" and found.p_bound < 1e-6 and found.z_score > 5
    assert found.p_value <= found.p_bound
    _, _, innocent, _ = make_case(key, n_rows, mark=False)
    nothing = detect(innocent, rows, key=key, victim=clean)
    assert nothing.verdict != "detected" and nothing.p_value > 1e-3
    if task == "token-classification":  # the others have few distinct tokens, and say so
        assert nothing.verdict == "not detected"


def test_the_victim_sharpens_what_is_found_without_it_too():
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    assert detect(marked, rows, key=key, victim=clean).z_score > 5
    assert detect(marked, rows, key=key).z_score > 5


def test_p_values_of_wrong_keys_are_uniform():
    """300 keys that have nothing to do with the suspect, at the level 1e-3 of a KS test; the seed is fixed."""
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    probe = detect(marked, rows, key=key, victim=clean).probe
    wrong = [make_key(secret=i.to_bytes(32, "big")) for i in range(300)]
    values = [detect(probe, key=other).p_value for other in wrong]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_p_snr_is_kept_for_comparison_and_gets_a_p_value():
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    found = detect(marked, rows, key=key, victim=clean, simulated_keys=500)
    assert found.p_snr > 10 and found.p_snr_p_value == pytest.approx(1 / 501)
    assert found.p_snr == pytest.approx(p_snr(found.hash_values, found.target_values, key.frequency))
    assert len(found.null_samples) == 500
    _, _, innocent, _ = make_case(key, mark=False)
    assert detect(innocent, rows, key=key, victim=clean, simulated_keys=500).p_snr_p_value > 1e-3


def test_labels_alone_need_somebody_to_choose_the_probes():
    key = make_key(epsilon=1.0)
    rows, clean, _, served = make_case(key, label_kind="hard", n_rows=1500)
    labels = list(torch.nn.functional.one_hot(served.argmax(-1), 4).float().numpy())
    with pytest.raises(InvalidInputError, match="victim="):
        detect(labels, rows, key=key)
    found = detect(labels, rows, key=key, victim=clean)
    assert found.verdict == "detected" and found.variant.startswith("labels")


def test_the_memory_test_finds_who_repeats_the_drawn_labels():
    key = make_key()
    rows, clean, repeats, served = make_case(key, label_kind="hard", noise=2.0)
    drawn = served.argmax(-1).tolist()
    found = detect(repeats, rows, key=key, victim=clean, logged=drawn)
    assert found.verdict == "detected" and found.variant == "memory-probabilities"
    _, _, innocent, _ = make_case(key, mark=False, seed=1)
    own = list(np.array(clean) * 0.5 + np.array(innocent) * 0.5)
    assert detect(own, rows, key=key, victim=clean, logged=drawn).verdict != "detected"
    with pytest.raises(InvalidInputError, match="victim"):
        detect(repeats, rows, key=key, logged=drawn)


def test_a_probe_with_logged_labels_can_be_replayed_and_nothing_else_is_taken(tmp_path):
    key = make_key()
    rows, clean, repeats, served = make_case(key, n_rows=60, label_kind="hard")
    drawn = served.argmax(-1).tolist()
    found = detect(repeats, rows, key=key, victim=clean, logged=drawn)
    assert found.statistic == "drw-memory-1"
    found.save(tmp_path / "evidence.json")
    replayed = detect(DetectionResult.load(tmp_path / "evidence.json").probe, key=key)
    assert (replayed.variant, replayed.log10_p) == (found.variant, found.log10_p)
    for given in ({"logged": drawn}, {"victim": clean}, {"gold": drawn}, {"label_map": {}}):
        with pytest.raises(InvalidInputError, match="leave them out"):
            detect(found.probe, key=key, **given)


def test_a_text_that_was_asked_twice_counts_once():
    key = make_key()
    rows, clean, repeats, served = make_case(key, n_rows=60, label_kind="hard")
    drawn = served.argmax(-1).tolist()
    once = detect(repeats, rows, key=key, victim=clean, logged=drawn)
    twice = detect(repeats * 2, rows * 2, key=key, victim=clean * 2, logged=drawn * 2)
    assert twice.n_tokens == once.n_tokens and twice.log10_p == pytest.approx(once.log10_p)


# -- corrections and thin evidence


def test_everything_tried_is_corrected_for():
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=40, noise=1.0)
    probe = detect(marked, rows, key=key, victim=clean).probe
    alone = detect(probe, key=key)
    many = detect(probe, key=key, keys_tried=10, suspects_tested=5, looks=2)
    assert many.log10_p == pytest.approx(min(0.0, alone.log10_p + 2))
    assert many.log10_bound == pytest.approx(min(0.0, alone.log10_bound + 2))
    assert (many.keys_tried, many.suspects_tested, many.looks) == (10, 5, 2)
    for wrong in ({"keys_tried": 0}, {"looks": -1}, {"suspects_tested": 1.5}):
        with pytest.raises(InvalidInputError):
            detect(probe, key=key, **wrong)


def outcome(log10_p, n_effective, z=0.0):
    return ExactTest(0.0, log10_p, min(0.0, log10_p + 1.2), z, 0.0, int(n_effective) + 10, n_effective, 0.0, 1.0)


@pytest.mark.parametrize(
    "log10_p, n_effective, verdict",
    [(-9.0, 500, "detected"), (-2.5, 500, "undecided"), (-0.3, 500, "not detected"), (-0.3, 20, "undecided")],
)
def test_thin_evidence_is_undecided_and_says_what_would_do(log10_p, n_effective, verdict):
    test = outcome(log10_p, n_effective)
    said, needed, sentence = judge(test, 1e-3, Corrections())
    assert said == verdict and sentence.endswith(".")
    assert (needed is not None) == (verdict == "undecided")
    if needed is not None:
        assert needed > test.n_tokens


def test_few_tokens_are_undecided():
    key = make_key()
    rows, clean, innocent, _ = make_case(key, n_rows=3, mark=False)
    found = detect(innocent, rows, key=key, victim=clean)
    assert found.verdict == "undecided" and found.tokens_needed > found.n_tokens
    log, more, stronger = map(
        found.explanation.find, ("queries that your service logged", "distinct words", "stronger")
    )
    assert 0 < log < more < stronger, "what helps most comes first"


def test_who_gave_the_log_already_is_not_asked_for_it():
    assert "logged" in what_helps(logged=False) and "logged" not in what_helps(logged=True)
    key = make_key("sequence-classification")
    rows, clean, innocent, _ = make_case(key, n_rows=3, mark=False)
    served = [key.labels[int(np.argmax(answer))] for answer in clean]
    found = detect(innocent, rows, key=key, victim=clean, logged=served)
    assert found.verdict == "undecided" and "more distinct words" in found.explanation
    assert "your service logged" not in found.explanation


def test_a_result_is_a_row_of_a_table():
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=40)
    found = detect(marked, rows, key=key, victim=clean)
    (row,) = found.to_frame().to_dict("records")
    for name in ("verdict", "p_value", "p_bound", "log10_bound", "z_score", "p_snr", "n_probes", "n_tokens"):
        assert row[name] == getattr(found, name)
    assert not {"target_label", "frequency", "settings", "hash_values"} & set(row), "nothing of the key"
    assert leaks_in(key, [("row", repr(row).encode())]) == []


def test_a_table_without_pandas_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigurationError, match="pip install pandas"):
        table_of([{}])


# -- evidence


def test_a_result_and_its_probe_survive_saving(tmp_path):
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    found = detect(marked, rows, key=key, victim=clean)
    found.save(tmp_path / "evidence" / "evidence.json")
    again = DetectionResult.load(tmp_path / "evidence" / "evidence.json")
    assert again == found and again.p_value == found.p_value
    replayed = detect(again.probe, key=key)
    assert replayed.log10_p == found.log10_p and replayed.probe_digest == found.probe_digest
    text = (tmp_path / "evidence/evidence.json").read_text()
    assert key.secret.hex() not in text and json.loads(text)["statistic"] == "drw-exact-2"
    assert {"drw_hf", "torch", "python"} <= set(found.versions)
    assert found.key_commitment == key.commitment()


def test_evidence_that_was_altered_is_refused(tmp_path):
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=50)
    found = detect(marked, rows, key=key, victim=clean)
    found.save(tmp_path / "evidence.json")
    other = dataclasses.replace(found.probe, n_queries=7)
    other.save(tmp_path / "evidence.probe.npz")
    with pytest.raises(InvalidInputError, match="not the one"):
        DetectionResult.load(tmp_path / "evidence.json")
    for content in ("", "{}", '{"format": "drw-evidence-1"}'):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(InvalidInputError):
            DetectionResult.load(tmp_path / "bad.json")
    (tmp_path / "bad.npz").write_bytes(b"PK not an archive")
    with pytest.raises(InvalidInputError, match=r"Probe\.save"):
        Probe.load(tmp_path / "bad.npz")


def test_the_probe_holds_nothing_of_the_key(tmp_path):
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=50)
    detect(marked, rows, key=key, victim=clean).probe.save(tmp_path / "probe.npz")
    content = (tmp_path / "probe.npz").read_bytes()
    assert key.fingerprint.encode() not in content and key.secret not in content


@pytest.mark.parametrize("simulated_keys", [0, 2000])
def test_the_figure_is_drawn(tmp_path, simulated_keys):
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    found = detect(marked, rows, key=key, victim=clean, simulated_keys=simulated_keys)
    figure = found.plot(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    labels = [axes.get_xlabel() for axes in figure.axes] + [axes.get_ylabel() for axes in figure.axes]
    assert len(figure.axes) == 3 and all(labels)


def test_a_result_tells_itself_in_a_line():
    key = make_key()
    rows, clean, marked, _ = make_case(key)
    found = detect(marked, rows, key=key, victim=clean)
    assert re.match(r"detected: p \d\.\de-\d+ \(at most", str(found)) and "distinct tokens" in str(found)
    assert not set(found.to_dict()) & {"probe", "frequencies", "hash_values"}
    json.dumps(found.to_dict())


# -- bad input


def test_answers_that_do_not_fit_are_refused():
    key = make_key()
    rows, _, marked, _ = make_case(key, n_rows=20)
    cases = {
        "19 answers to 20 rows": (marked[:-1], rows),
        "shape": ([answer[:-1] for answer in marked], rows),
        "sum to one": ([answer * 2 for answer in marked], rows),
        "input_ids": (marked, [{"words": []} for _ in rows]),
    }
    for said, (answers, given) in cases.items():
        with pytest.raises((InvalidInputError, AnswerError, DatasetError), match=said):
            detect(answers, given, key=key)
    broken = [answer.copy() for answer in marked]
    broken[3][5] = math.nan
    with pytest.raises(AnswerError, match="row 3: the victim's"):
        detect(marked, rows, key=key, victim=broken)
    with pytest.raises(InvalidInputError, match=r"the victim is of type function.*one array for every row"):
        detect(marked, rows, key=key, victim=lambda texts: texts)
    for ignored in ({"label_map": {"a": "b"}}, {"max_queries": 3}, {"batch_size": 3}, {"text_columns": "text"}):
        with pytest.raises(InvalidInputError, match=r"arrays are answers already.*leave them out"):
            detect(marked, rows, key=key, **ignored)
    with pytest.raises(InvalidInputError, match="texts"):
        detect(lambda texts: texts, key=key)
    with pytest.raises(InvalidInputError, match="level"):
        detect(marked, rows, key=key, level=2.0)


def test_a_class_that_nobody_predicts_is_named():
    key = make_key(target=2)
    rows, clean, marked, _ = make_case(make_key(), n_rows=20)
    never = [np.where(np.arange(4) == 2, 1e-6, answer + 1e-6) for answer in clean]
    never = [answer / answer.sum(-1, keepdims=True) for answer in never]
    with pytest.raises(InvalidInputError, match="the target class;"):
        detect(marked, rows, key=key, victim=never)


def test_a_key_of_another_model_is_refused():
    rows, clean, marked, _ = make_case(make_key(), n_rows=20)
    probe = detect(marked, rows, key=make_key(), victim=clean).probe
    with pytest.raises(KeyMismatchError, match="sequence-classification"):
        detect(probe, key=make_key("sequence-classification"))
    large = dataclasses.replace(probe, input_ids=probe.input_ids + VOCABULARY)
    with pytest.raises(KeyMismatchError, match="tokenizer"):
        detect(large, key=make_key())


def test_every_error_is_ours():
    key = make_key()
    for suspect, texts in (([], []), ([np.ones(4) / 4], [{"input_ids": [0, 0]}])):
        with pytest.raises(DrwError):
            detect(suspect, texts, key=key)


def test_a_full_disk_is_told_as_such_and_leaves_what_was_there(tmp_path, monkeypatch):
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean)
    result.save(tmp_path / "evidence.json")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    again = detect(marked, rows, key=key)
    for write in (
        lambda: again.save(tmp_path / "again.json"),
        lambda: again.probe.save(tmp_path / "evidence.probe.npz"),
        lambda: again.report(tmp_path / "report"),
    ):
        with pytest.raises(FileNotWrittenError, match="No space left on device; nothing was changed") as caught:
            write()
        assert not isinstance(caught.value, KeyFileError), "it is no key that was not written"
    with pytest.raises(KeyFileError, match="No space left"):
        key.save_pretrained(tmp_path / "key")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_a_place_where_nothing_can_be_written_is_named(tmp_path):
    key = make_key()
    rows, clean, marked, _ = make_case(key, n_rows=60)
    result = detect(marked, rows, key=key, victim=clean)
    (tmp_path / "file").write_text("")
    for write in (result.save, result.probe.save):
        with pytest.raises(FileNotWrittenError, match="cannot write"):
            write(tmp_path / "file" / "below" / "evidence.json")
