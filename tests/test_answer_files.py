"""A teacher's answers in files: written by the ending of their name, and read back as what they were."""

import csv
import json

import pytest
from datasets import ClassLabel, Dataset, List

from drw_hf import label_with_teacher
from drw_hf.asking.answer_files import ENDINGS, restore_answers, write_answers
from drw_hf.asking.data import load_data
from drw_hf.errors import DatasetError

LABELS = ["NA", "7", 'good, or "so"']  # what a CSV reader takes for nothing, for a number, and for two cells


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))


def sentences():
    rows = Dataset.from_dict({"text": ["one\nline", "two, three", "[four"], "stars": [1, 2, 3]})
    scores = {"one\nline": [0.7, 0.2, 0.1], "two, three": [0.1, 0.8, 0.1], "[four": [1 / 3, 0.3, 11 / 30]}
    return label_with_teacher(
        lambda texts: [dict(zip(LABELS, scores[text], strict=True)) for text in texts],
        rows,
        labels=LABELS,
        progress=False,
    )


def words():
    rows = Dataset.from_dict({"tokens": [["unseen"], ["Ada", "wrote"], ["it"]]})
    answers = {"unseen": [0.0, 0.0, 0.0], "Ada": [0.1, 0.2, 0.7], "wrote": [0.5, 0.25, 0.25], "it": [0.0, 1.0, 0.0]}
    return label_with_teacher(
        lambda texts: [[dict(zip(LABELS, answers[word], strict=True)) for word in text] for text in texts],
        rows,
        task="token-classification",
        labels=LABELS,
        progress=False,
    )


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", [sentences, words])
def test_what_is_written_is_read_back_with_the_names_of_its_labels(make, ending, tmp_path):
    answered, path = make(), tmp_path / "deep" / f"answers{ending}"
    write_answers(answered, path)
    found = load_data(str(path))
    assert found.to_dict() == answered.to_dict()
    feature = found.features["teacher_labels"]
    assert (feature.feature if isinstance(feature, List) else feature) == ClassLabel(names=LABELS)
    assert found.features["teacher_probs"] == answered.features["teacher_probs"]
    assert [file.name for file in path.parent.iterdir()] == [path.name], "and no half file"


def test_people_and_other_programs_can_read_the_text_files(tmp_path):
    for ending in (".jsonl", ".csv"):
        write_answers(sentences(), tmp_path / f"answers{ending}")
    line = json.loads((tmp_path / "answers.jsonl").read_text().splitlines()[1])
    assert line["teacher_labels"] == "7" and line["teacher_probs"] == pytest.approx(
        {"NA": 0.1, "7": 0.8, LABELS[2]: 0.1}
    )
    with (tmp_path / "answers.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["text"] for row in rows] == ["one\nline", "two, three", "[four"]
    assert rows[2]["teacher_labels"] == LABELS[2] and json.loads(rows[1]["teacher_probs"]) == line["teacher_probs"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.update(teacher_labels="NA"), "row 1 of log: teacher_labels says 'NA'"),
        (lambda row: row["teacher_probs"].pop("7"), "row 1 of log: teacher_probs must say the probability of each"),
        (lambda row: row.update(teacher_probs=None), "row 1 of log: teacher_probs must say"),
    ],
)
def test_answers_that_were_changed_by_hand_are_refused(change, words, tmp_path):
    write_answers(sentences(), tmp_path / "log.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    change(rows[1])
    cells = {name: [row[name] for row in rows] for name in rows[0]}
    cells["teacher_probs"] = [json.dumps(cell) for cell in cells["teacher_probs"]]
    with pytest.raises(DatasetError, match=words):
        restore_answers(Dataset.from_dict(cells), "log")


def test_other_data_is_left_as_it_is():
    for columns in ({"text": ["a"]}, {"teacher_probs": [[0.1, 0.9]], "teacher_labels": [1]}):
        rows = Dataset.from_dict(columns)
        assert restore_answers(rows, "rows") is rows
