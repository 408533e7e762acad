"""drw-hf plan for the paper's mark: the table, the recommendation, which class, JSON and what is refused."""

import dataclasses
import json
import math
import re
import shlex

import numpy as np
import pytest

from drw_hf import WatermarkKey
from drw_hf.cli import plan as command
from drw_hf.keys import MarkSettings
from drw_hf.planning import ExpectedStudent, PlanRow, Traffic, plan, plan_protection
from needles import leaks_in
from small_models import make_model
from test_cli import document, drw, make_tokenizer, save_lively, save_model, write_rows

STUDENT = "--phi 0.4 --sigma 1"

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a classifier that says positive, a tagger that says B-PER most of the time, and what to ask."""
    folder = tmp_path_factory.mktemp("place")
    save_model(folder / "my-classifier", "sequence-classification", seed=1)
    save_lively(folder / "lively", folder / "labelled.csv")
    save_model(folder / "tagger", "token-classification", seed=2)
    write_rows(folder / "queries", 300, seed=0)
    return folder


def table_of(text):
    """The table's lines as words; it stands between two empty lines."""
    return [re.split(r" {2,}", line.strip()) for line in text.split("\n\n")[1].splitlines()]


# -- one class


def test_the_figures_are_those_of_plan_protection(inside):
    options = "--epsilon 0.05 --epsilon 0.2 --tau 0.3 --tau 0.6 --frequency 9 --scope all --queries 100 --limit 200"
    found = document(f"plan my-classifier queries.jsonl --target positive --hash-rule rarest {options} {STUDENT}")
    texts = [json.loads(line)["text"] for line in (inside / "queries.jsonl").read_text().splitlines()[:200]]
    expected = plan_protection(
        make_model(vocab_size=905, seed=1),
        texts,
        make_tokenizer(),
        target="positive",
        hash_rule="rarest",
        epsilons=[0.05, 0.2],
        taus=[0.3, 0.6],
        settings=MarkSettings(frequency=9.0, scope="all"),
        queries=100,
        student=ExpectedStudent(phi=0.4, sigma=1.0),
        progress=False,
    )
    assert (found["n_texts"], found["queries"], found["n_items"]) == (200, 100, 200)
    assert found["hash_rule"] == "rarest" and found["target"] == "positive" and found["n_tokens"] == expected.n_tokens
    assert len(found["rows"]) == 8
    for row, other in zip(found["rows"], expected.rows, strict=True):
        assert row.pop("label_kind") == other.label_kind
        for name, value in row.items():
            expected_value = getattr(other, name)
            assert value == (expected_value and pytest.approx(expected_value, rel=1e-4, abs=1e-9)), name
        assert set(row) == {*vars(other), "p_value"} - {"label_kind"}


def test_the_table_is_aligned_and_shows_every_row():
    line = f"plan tagger queries.jsonl --target B-PER --epsilon 0.1 --epsilon 0.25 --tau 0.4 --tau 0.5 {STUDENT}"
    text, rows = drw(line).stdout, document(line)["rows"]
    assert text.startswith("B-PER is the answer to ") and "of 3600 words" in text
    kinds, heads, *body = table_of(text)
    figures = ["cost", "at most", "z", "p"]
    assert kinds == ["soft labels", "hard labels"]
    assert heads == ["epsilon", "tau", *figures, *figures, "z on the log"]
    assert [line[:2] for line in body] == [["0.1", "0.4"], ["0.1", "0.5"], ["0.25", "0.4"], ["0.25", "0.5"]]
    for words, (soft, hard) in zip(body, zip(rows[::2], rows[1::2], strict=True), strict=True):
        assert words[2] == f"{100 * soft['expected_cost']:.2f} %" and words[4] == f"{soft['z_score']:.1f}"
        assert words[7] == f"{100 * hard['largest_cost']:.2f} %" and words[8] == f"{hard['z_score']:.1f}"
        assert words[10] == f"{hard['memory_z_least']:.1f}–{hard['memory_z_largest']:.1f}"
    lengths = {len(line) for line in text.split("\n\n")[1].splitlines()}
    assert len(lengths) == 1, "columns stand to the right"


def test_the_recommended_epsilon_reaches_the_p_value_and_is_short():
    line = f"plan tagger queries.jsonl --target B-PER --p-value 1e-4 {STUDENT}"
    found, text = document(line), drw(line).stdout
    assert [row["label_kind"] for row in found["recommended"].values()] == ["soft", "hard"]
    for kind, row in found["recommended"].items():
        assert row["log10_p"] <= -4.0 and len(f"{row['epsilon']:.10g}".lstrip("0.")) <= 2
        who = f"in a typical student of {kind} labels, by the exact test on text that was never asked"
        assert f"For p ≤ 1e-4 {who}, take epsilon {row['epsilon']:g}: it costs" in text
    again = drw(f"{line} --tau 0.3 --tau 0.7").stdout
    assert re.search(r"take epsilon [\d.]+ and tau 0\.[37]:", again)
    assert "before you rely on it" in text


def test_where_none_reaches_it_the_way_out_is_named():
    line = f"plan my-classifier queries.jsonl --target positive --p-value 1e-300 {STUDENT}"
    assert document(line)["recommended"] == {"soft": None, "hard": None}
    text = drw(line).stdout
    assert "No epsilon up to 1 reaches p ≤ 1e-300 in a typical student of hard labels, by the exact test on" in text
    assert re.search(r"about [\d.]+ times as many distinct tokens would", text)
    assert (
        "leave out --target" in text
        and "more text, the queries of your log" in text
        and "or --hash-rule rarest." in text
    )
    assert "--hash-rule" not in drw(f"{line} --hash-rule rarest").stdout
    assert "nothing of the mark would be copied" in drw(f"{line} --tau 0").stdout


def test_the_target_may_be_a_number_and_the_model_protected(inside):
    model = make_model(vocab_size=905, seed=1)
    key = WatermarkKey.generate(model, target=1, tokenizer=make_tokenizer(), scope="all", tau=1.0, epsilon=3.0)
    key.save_pretrained(inside / "key")
    assert drw("protect my-classifier --key key --output protected --overwrite").exit_code == 0
    plain, by_number, protected = (
        document(f"plan {line} {STUDENT}")
        for line in (
            "my-classifier queries.jsonl --target positive",
            "my-classifier queries.csv --target 1",
            "protected queries.txt --target positive",
        )
    )
    assert plain == by_number == protected, "no key is asked for, and no mark answered"
    assert leaks_in(key, [("stdout", json.dumps(protected).encode())]) == []


def test_very_small_p_values_are_shown():
    shown = {0.0: "1", -1.3: "0.05", -12.0: "1e-12", -299.5: "3.2e-300", -1234.4: "4e-1235"}
    row = PlanRow(0.2, 0.5, "soft", 0.0, 0.0, 9, 9.0, 1.0, 1.0, 1.0, 1.0, 0.0)
    for log10_p, text in shown.items():
        z = math.sqrt(-2.0 * math.log(10.0) * log10_p)
        table = command._table({"class": ["A"]}, [[dataclasses.replace(row, z_least=z, z_largest=z)]])
        assert table[-1].split()[-1] == text


def test_a_plan_says_of_which_test_it_speaks_which_students_it_goes_by_and_what_the_log_is_worth():
    line = "plan tagger queries.jsonl --target B-PER --epsilon 0.2"
    found, text = document(line), drw(line).stdout
    soft, hard = found["rows"]
    assert found["test"] == "the exact test on text that was never asked" and found["test"] in text
    assert 0.0 == soft["z_least"] < soft["z_score"] < soft["z_largest"]
    assert f"0.0–{soft['z_largest']:.1f}" in text and "from the least to the largest of the students" in text
    assert hard["memory_z_least"] > hard["z_score"] and "Keep a log" in text and "which reaches p ≤ 1e-6" in text
    asked = document(f"{line} --probed-with queries")
    assert asked["test"] == "the exact test on the thief's queries" and asked["rows"][1]["z_least"] > 0.0
    whole = document(f"{line} --scope all")
    assert whole["rows"][1]["z_score"] > hard["z_score"], "more answers carry it, and students follow further"
    assert whole["rows"][1]["memory_z"] > hard["memory_z"] and whole["n_tokens"] > found["n_tokens"]


# -- all classes


def test_without_a_target_classes_are_ranked():
    line = f"plan tagger queries.jsonl --mark cosine {STUDENT}"
    found, text = document(line), drw(line).stdout
    scores = [one["rows"][0]["z_score"] for one in found["classes"]]
    assert scores == sorted(scores, reverse=True) and found["epsilon"] == 0.2 and found["tau"] == 0.5
    labels = [one["target"] for one in found["classes"]]
    assert [line[0] for line in table_of(text)[2:]] == labels
    assert f"--target {labels[0]}" in text and "Of 4 classes" in text
    best = document(f"plan tagger queries.jsonl --target {labels[0]} --epsilon 0.2 {STUDENT}")
    assert best["rows"] == found["classes"][0]["rows"]
    assert document(f"{line} --epsilon 0.05 --tau 0.3")["epsilon"] == 0.05


def test_at_most_five_classes_are_shown_and_the_next_command_runs():
    generator = np.random.default_rng(0)
    p, tokens = generator.dirichlet(np.full(9, 0.1), 3000), generator.integers(0, 200, 3000)
    traffic = Traffic(p, tokens, 300, tuple("ABCDEFGHI"), "token")
    ranked = [plan(traffic, MarkSettings(target=target)) for target in range(9)]
    outcome = command._ranking(ranked, traffic, ["drw-hf", "plan", "my model", "data"], "a test")
    assert len(outcome.document["classes"]) == 5 and len(table_of(outcome.text)) == 7
    assert "drw-hf plan 'my model' data --target A" in outcome.text
    text = drw(f"plan my-classifier queries.jsonl --hash-rule rarest {STUDENT}").stdout
    follow = re.search(r"^  drw-hf (plan .*)$", text, flags=re.MULTILINE).group(1)
    assert "--hash-rule rarest" in follow and drw(follow).exit_code == 0


# -- help and errors


def test_help_teaches_and_its_examples_run():
    text = drw("plan --help").stdout
    for word in (
        "--target",
        "--epsilon",
        "--tau",
        "--hash-rule",
        "--p-value",
        "--queries",
        "--phi",
        "--sigma",
        "--json",
    ):
        assert word in text
    examples = re.findall(r"^ *Example: drw-hf (.+)$", text, flags=re.MULTILINE)
    assert len(examples) == 4
    for line in examples:
        found = drw(line.replace("my-classifier", "lively"))
        assert found.exit_code == 0, (line, found.output)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("plan no/such/folder queries.jsonl", ["no/such/folder", "no folder"]),
        ("plan my-classifier missing.jsonl", ["missing.jsonl", "no file"]),
        ("plan my-classifier queries.jsonl --target neutral", ["neutral", "'negative', 'positive'"]),
        ("plan my-classifier queries.jsonl --target 2", ["target=2", "'negative', 'positive'"]),
        ("plan my-classifier queries.jsonl --target negative", ["distinct tokens", "another class, more text"]),
        ("plan my-classifier queries.jsonl --mark cosine --limit 3", ["no class has 5 distinct tokens"]),
        (
            "plan my-classifier queries.jsonl --target positive --hash-rule token",
            ["'token'", "sequence-classification"],
        ),
        ("plan my-classifier queries.jsonl --target positive --frequency 0", ["frequency=0.0"]),
        ("plan my-classifier queries.jsonl --target positive --sigma 0", ["sigma=0.0"]),
        ("plan tagger queries.csv", ["['text', 'label']", "--text-column"]),
    ],
)
@pytest.mark.parametrize("options", ["", " --json"])
def test_what_is_wrong_is_said_in_one_message(line, words, options):
    found = drw(line + options)
    assert found.exit_code == 1 and not found.stdout, found.output
    assert found.stderr.count("Error: ") == 1 and "Traceback" not in found.stderr
    for word in words:
        assert word in found.stderr


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--target positive --p-value 0", "--p-value"),
        ("--target positive --p-value 2", "--p-value"),
        ("--tau 1.5", "--tau"),
        ("--epsilon -1", "--epsilon"),
        ("--queries 0", "--queries"),
        ("--hash-rule last", "rarest"),
    ],
)
def test_usage_errors_exit_with_2(options, word):
    found = drw(["plan", "my-classifier", "queries.jsonl", *shlex.split(options)])
    assert found.exit_code == 2 and word in found.output
