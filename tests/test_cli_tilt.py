"""The price of tilt on the command line: keygen with a budget, the plan, and what is refused; with tiny models."""

import json
import re

import pytest

from drw_hf import KeyRing, WatermarkKey
from drw_hf.planning.students import MARGIN
from needles import leaks_in
from test_cli import document, drw, save_lively, save_model, write_rows

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a classifier, what it is calibrated on, a tagger and unlabelled queries."""
    folder = tmp_path_factory.mktemp("place")
    save_lively(folder / "my-classifier", folder / "labelled.csv")
    save_model(folder / "tagger", "token-classification", seed=2)
    write_rows(folder / "queries", 60, seed=0)
    return folder


# -- keygen


def test_a_key_is_fitted_saved_and_protects(inside):
    made = document("keygen my-classifier --budget 0.5 --data labelled.csv --tau 0.9 --plain --output key")
    key = WatermarkKey.from_pretrained("key")
    assert (key.mark, key.tau, key.settings.budget) == ("tilt", 0.9, 0.5) and key.commitment() == made["commitment"]
    fit = made["fit"]
    assert (fit["strength"], fit["temperature"]) == (key.settings.strength, key.settings.temperature)
    assert fit["reliable"] and fit["n_items"] == 400 and fit["n_keys"] == 20
    assert 0.0 < fit["expected_cost"] <= 0.5 and fit["measured_error"] > 0.0
    assert key.settings.temperature == pytest.approx(1.5, rel=0.3)
    assert leaks_in(key, [("stdout", json.dumps(made).encode())]) == []
    protected = drw("protect my-classifier --key key --output protected")
    assert protected.exit_code == 0, protected.output
    counted = document("card protected --data labelled.csv --key key")["metrics"]["accuracy"]
    assert abs(counted["clean"] - counted["protected"]) < 0.05


def test_what_was_fitted_is_told_in_words():
    found = drw("keygen my-classifier --budget 0.5 --data labelled.csv --plain --output told")
    assert found.exit_code == 0, found.output
    assert re.search(r"Its mark: strength [\d.]+ at temperature [\d.]+ \(fitted\), for 0.5 points", found.stdout)
    assert "expected cost" in found.stdout and "measured cost" in found.stdout and "Its commitment: " in found.stdout
    assert not found.stderr, "the temperature is fitted, so nobody is warned"


def test_close_calls_have_a_part_of_the_budget(inside):
    line = "keygen my-classifier --budget 2 --margin-budget 1 --data labelled.csv --plain --output drawn"
    fit = document(line)["fit"]
    key = WatermarkKey.from_pretrained("drawn")
    assert key.settings.margin == fit["margin"]["margin"] > 0.0 and key.settings.margin_budget == 1.0
    assert fit["expected_cost"] <= 1.0 and fit["margin"]["expected_cost"] <= 1.0
    hard = "protect my-classifier --label-kind hard --key {} --output {}"
    assert "--margin-budget" not in drw(hard.format("drawn", "hard-drawn")).stdout
    document("keygen my-classifier --strength 0.3 --temperature 1.5 --plain --output undrawn")
    assert "--margin-budget 0.1" in drw(hard.format("undrawn", "hard-undrawn")).stdout, "what would make it stronger"
    planned = drw("plan my-classifier labelled.csv --budget 2 --margin-budget 1").stdout
    assert "hard answers: margin" in planned and "--margin-budget 1 " in planned
    assert "the margin test of such a student would reach z " in planned
    log = document("plan my-classifier labelled.csv --budget 2 --margin-budget 1")["log"]
    assert log["z_score"] == pytest.approx(MARGIN * log["n_drawn"] ** 0.5)
    assert log["z_least"] < log["z_score"] < log["z_largest"]
    assert document("plan my-classifier labelled.csv --budget 2")["log"] is None
    for wrong in ("--budget 0.5 --data labelled.csv --margin-budget 0.5", "--margin-budget 0.1"):
        assert drw(f"keygen my-classifier {wrong} --plain --output none").exit_code, wrong


def test_the_digits_of_scores_are_chosen_and_kept(inside):
    document("keygen tagger --strength 0.5 --temperature 1.3 --plain --output digits-key")
    line = "protect {} --key digits-key --output {}"
    for options, digits in (("", 3), (" --digits 2", 2), (" --digits 0", 0)):
        made = document(line.format("tagger", f"digits{digits}") + options)
        saved = json.loads((inside / f"digits{digits}" / "config.json").read_text())
        assert made["digits"] == saved["digits"] == digits
    assert document(line.format("digits2", "again"))["digits"] == 2, "as it was"
    assert document(line.format("digits2", "others") + " --digits 4")["digits"] == 4


@pytest.mark.parametrize("given", ["7", "-1"])
def test_digits_that_are_none_are_refused_as_in_python(given):
    document(f"keygen tagger --strength 0.5 --temperature 1.3 --plain --output key-for{given}")
    found = drw(f"protect tagger --key key-for{given} --output refused --digits {given}")
    assert found.exit_code == 1 and f"digits={given}: expected an integer from 1 to 6, or 0" in found.stderr


def test_without_labels_the_temperature_must_be_given_and_is_doubted(inside):
    refused = drw("keygen my-classifier --budget 0.5 --data queries.jsonl --plain --output doubted")
    assert refused.exit_code == 1 and "no labels" in refused.stderr and not (inside / "doubted").exists()
    found = drw("keygen my-classifier --budget 0.5 --data queries.jsonl --temperature 1.4 --plain --output doubted")
    assert found.exit_code == 0 and "do not rely on the cost" in found.stdout
    assert WatermarkKey.from_pretrained("doubted").settings.temperature == 1.4


def test_strength_and_temperature_may_be_named_and_no_weights_are_needed(inside):
    made = document("keygen tagger --strength 0.25 --temperature 1.3 --frequency 9 --plain --output named")
    settings = WatermarkKey.from_pretrained("named").settings
    assert (settings.strength, settings.temperature, settings.frequency, settings.budget) == (0.25, 1.3, 9.0, None)
    assert "fit" not in made


def test_a_ring_is_fitted_once_for_all_users():
    made = document("keygen my-classifier --ring --budget 0.5 --data labelled.csv --limit 300 --plain --output ring")
    ring = KeyRing.from_pretrained("ring")
    assert made["fit"]["n_items"] == 300 and ring.settings.budget == 0.5
    assert ring.key_for("ann").settings.strength == made["fit"]["strength"]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("", "--budget with --data"),
        ("--budget 0.3", "--budget with --data"),
        ("--data labelled.csv", "--budget with --data"),
        ("--strength 0.3", "--strength with --temperature"),
        ("--strength 0.3 --temperature 1 --budget 0.3 --data labelled.csv", "needs its price"),
        ("--target positive --budget 0.3 --data labelled.csv", "--budget, --data: of the mark tilt alone"),
        ("--epsilon 0.2 --temperature 1.0", "--temperature: of the mark tilt alone"),
        ("--budget -1 --data labelled.csv", "--budget"),
        ("--mark magic", "cosine"),
    ],
)
def test_a_tilt_without_its_price_and_a_mix_of_marks_are_usage_errors(inside, options, word):
    found = drw(f"keygen my-classifier {options} --plain --output new")
    assert found.exit_code == 2 and word in " ".join(found.output.replace("│", " ").split()), found.output
    assert not (inside / "new").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--mark tilt --target positive --strength 0.3 --temperature 1", ["the mark 'tilt' has no target"]),
        ("--mark tilt --epsilon 0.3 --strength 0.3 --temperature 1", ["the mark 'tilt' has no epsilon"]),
        ("--budget 0.3 --data missing.csv", ["missing.csv"]),
        ("--budget 0.3 --data labelled.csv --label-column mood", ["label_column='mood'"]),
        ("--budget 0.3 --data labelled.csv --limit 1", ["all 1 labels are of one class"]),
    ],
)
def test_what_is_wrong_is_said_in_one_message(inside, options, words):
    found = drw(f"keygen my-classifier {options} --plain --output new")
    assert found.exit_code == 1 and not found.stdout and found.stderr.count("Error: ") == 1, found.output
    assert all(word in found.stderr for word in words) and not (inside / "new").exists()


# -- plan


def test_the_plan_is_a_table_of_strengths_and_names_the_next_command():
    line = "plan my-classifier labelled.csv --budget 0.5 --strength 0.05 --strength 0.2"
    text, found = drw(line).stdout, document(line)
    assert [row["strength"] for row in found["rows"]] == [0.05, 0.2] and found["budget"] == 0.5
    assert found["recommended"]["expected_cost"] <= 0.5 and found["reliable"]
    assert "temperature 1." in text and "(fitted to their labels)" in text
    heads, *body = (re.split(r" {2,}", line.strip()) for line in text.split("\n\n")[1].splitlines())
    assert heads == ["strength", "expected", "measured", "z, soft labels", "p", "z, hard labels", "p"]
    assert [line[0] for line in body] == ["0.05", "0.2"]
    assert all(re.fullmatch(r"-?\d\.\d{3} ± \d\.\d{3}", cell) for line in body for cell in line[1:3])
    assert found["rows"][1]["found"]["soft"]["z_score"] > found["rows"][1]["found"]["hard"]["z_score"] > 0.0
    assert "A prediction from other students" in text
    follow = re.search(r"^  drw-hf (keygen .*) --output my-key$", text, flags=re.MULTILINE).group(1)
    assert follow == "keygen my-classifier --budget 0.5 --data labelled.csv"
    assert drw(f"{follow} --plain --output followed").exit_code == 0


def test_a_plan_without_labels_has_no_measured_cost_and_is_doubted():
    text = drw("plan tagger queries.jsonl --temperature 1.4 --tau 0.5").stdout
    assert "words, with the model calibrated at temperature 1.4 (as given)" in text and "measured" not in text
    assert "do not rely on the cost" in text and "--temperature 1.4 --output my-key" in text


def test_who_knows_students_sees_what_would_be_found():
    line = "plan my-classifier labelled.csv --phi 0.4 --sigma 0.5 --queries 200"
    rows = document(line)["rows"]
    scores = [row["found"]["soft"]["z_score"] for row in rows]
    assert scores == sorted(scores) and rows[0]["found"]["hard"]["log10_p"] < 0.0
    assert "z, soft labels" in drw(line).stdout


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--p-value 1e-3", "the mark tilt has no --p-value"),
        ("--mark tilt --target positive", "the mark tilt has no --target"),
        ("--target positive --budget 0.3", "the mark cosine has no --budget"),
        ("--tau 0.5 --tau 0.6", "one --tau"),
        ("--phi 0.4", "--phi and --sigma together"),
    ],
)
def test_options_of_the_other_mark_are_usage_errors(options, word):
    found = drw(f"plan my-classifier labelled.csv {options}")
    assert found.exit_code == 2 and word in " ".join(found.output.replace("│", " ").split()), found.output


def test_a_plan_needs_labels_or_a_temperature():
    found = drw("plan my-classifier queries.jsonl")
    assert found.exit_code == 1 and "no labels" in found.stderr and "temperature" in found.stderr
