"""Tables and figures of a run, from lines written by hand: what they say is what one computes from these by hand."""

import dataclasses
import json
import math
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from drw_hf.errors import DatasetError
from drw_hf.experiments import figures, tables
from drw_hf.experiments.goals import goals_table
from drw_hf.experiments.jobs import EPSILONS, GOLD, MODES, UNWATERMARKED, WATERMARKED, Student
from drw_hf.experiments.results import (
    Place,
    Results,
    by_category,
    by_limit,
    by_rule,
    by_tau,
    load,
    mean_average_precision,
)
from drw_hf.experiments.scoring import SPECTRUM
from drw_hf.experiments.tables import check_plan
from drw_hf.experiments.write_up import what_was_run, write_up

SETTINGS = {"job": "settings", "profile": "tiny", "key": {"frequency": 16.0, "epsilon": 0.2, "tau": 0.5}}


def scored(z=0.0, p_snr=1.0, log10_p=-0.3, jsd=0.1, **more):
    """What a score line says of queries or of unseen text; P_snr is the same whichever probes are counted."""
    ways = p_snr if isinstance(p_snr, dict) else dict.fromkeys(("victim", "gold", "all"), p_snr)
    return {"exact": {"z": z, "log10_p": log10_p}, "p_snr": ways, "jsd": jsd, **more}


def lines_of(student, queries, unseen=None, *, everywhere=None, merit=0.8, by=None, **more):
    """The three lines of a student."""
    about = {"task": student.task, "student": student.settings()}
    name = student.name if by is None else f"{student.name} by {by}"
    key = dataclasses.asdict(MODES[by or student.mode])
    lines = [{"job": f"student {student.name}", "kind": "student", **about, "accuracy": merit, "f1": merit}]
    if everywhere is not None:
        lines.append({"job": f"probe {student.name}", "kind": "probe", **about, "jsd_everywhere": everywhere})
    score = {"job": f"score {name}", "kind": "score", **about, "key": key, "queries": queries, **more}
    return [*lines, score | ({} if unseen is None else {"unseen": unseen})]


def accuracy_line(task, clean, levels):
    """What a task's accuracy line says; ``levels`` maps (labels, ε) to the accuracy that was served."""
    entries = [
        {"labels": labels, "epsilon": epsilon, "accuracy": merit, "f1": merit, "accuracy_low": merit - 0.01}
        | {"accuracy_high": merit + 0.01, "clean": 0.95, "expected": 0.94, "bound": 0.93, "paper_bound": 0.9}
        for (labels, epsilon), merit in levels.items()
    ]
    clean = {"accuracy": clean, "f1": clean}
    return {
        "job": f"accuracy {task}",
        "kind": "accuracy",
        "task": task,
        "clean": clean,
        "ece": 0.02,
        "levels": entries,
    }


def results_of(*lines, profile="tiny"):
    """Results as `load` would give them."""
    return Results(tuple({**line, "profile": profile} for line in [SETTINGS, *lines]))


def cells(table, *names):
    """The row of a Markdown table that begins with these cells, by column."""
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    (row,) = [row for row in rows if row[: len(names)] == list(names)]
    return dict(zip(head, row, strict=True))


@pytest.fixture
def ranked():
    """NER with two thieves and two innocents of soft labels, and one innocent more of hard ones."""
    return results_of(
        *lines_of(Student("ner", WATERMARKED, "soft", 1), scored(9, 20, -20, 0.02), scored(8), everywhere=0.1),
        *lines_of(Student("ner", WATERMARKED, "soft", 2), scored(3, 2, -3, 0.01), scored(7), everywhere=0.2),
        *lines_of(Student("ner", UNWATERMARKED, "soft", 1), scored(4, 2, -4.5, 0.3), scored(-1), everywhere=0.05),
        *lines_of(Student("ner", GOLD, seed=1), scored(1, 0.5, -0.8, 0.4), scored(0.5), everywhere=0.3),
        *lines_of(Student("ner", UNWATERMARKED, "hard", 1), scored(100, 100)),
    )


# -- reading


def written(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_lines_of_several_profiles_are_kept_apart(tmp_path):
    tiny = written(tmp_path / "a.jsonl", SETTINGS, *lines_of(Student("ner", GOLD), scored(1)))
    other = written(tmp_path / "b.jsonl", {**SETTINGS, "profile": "large"}, *lines_of(Student("ner", GOLD), scored(2)))
    results = load([tiny, other])
    assert results.profiles == ["tiny", "large"]
    assert results.suspects[["profile", "z, queries"]].values.tolist() == [["tiny", 1], ["large", 2]]


def test_two_files_of_one_profile_are_told_by_their_names(tmp_path):
    both = [written(tmp_path / f"{name}.jsonl", SETTINGS, *lines_of(Student("ner", GOLD), scored())) for name in "ab"]
    assert load(both).profiles == ["tiny", "tiny (b)"]


def test_of_a_job_that_was_done_twice_the_last_counts_and_a_torn_line_does_not(tmp_path):
    path = written(
        tmp_path / "a.jsonl",
        SETTINGS,
        *lines_of(Student("ner", GOLD), scored(1)),
        *lines_of(Student("ner", GOLD), scored(2)),
    )
    path.write_text(path.read_text() + '{"job": "score ner/gold/seed=2", "kind": "sc')
    assert load([path]).suspects["z, queries"].tolist() == [2]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DatasetError, match=r"no .*absent\.jsonl; give the \.jsonl file that a run wrote"):
        load([tmp_path / "absent.jsonl"])


# -- Table 1


def test_map_is_the_one_computed_by_hand_and_ties_count_against(ranked):
    row = cells(tables.table_1_detection(ranked), "NER", "tiny", "soft")
    assert row["students"] == "2 + 2"
    # z 9 ranks above all; at z 3 are two thieves and the innocent of z 4: (1 + 2/3) / 2.
    assert row["z, queries"] == "0.83"
    # P_snr 2 is an innocent's, too: (1 + 2/3) / 2.
    assert row["P_snr, queries"] == "0.83"
    # By the smaller divergence: 0.05 (innocent), 0.1, 0.2, 0.3 (innocent): (1/2 + 2/3) / 2.
    assert row["DeepJudge, all positions"] == "0.58"
    assert row["DeepJudge, words"] == "1.00"
    assert row["z, unseen"] == "1.00"
    assert row["*paper's*"] == "0.84" and row["*paper's P_snr*"] == "1.00"


def test_unwatermarked_students_count_only_with_their_kind_of_labels_and_gold_ones_with_both(ranked):
    row = cells(tables.table_1_detection(ranked), "NER", "tiny", "hard")
    assert row["students"] == "0 + 2"
    assert row["z, queries"] == row["P_snr, queries"] == row["DeepJudge, words"] == "—"


def test_a_thief_without_p_snr_ranks_with_the_last():
    results = results_of(
        *lines_of(Student("ner", WATERMARKED, "soft", 1), scored(9, 20)),
        *lines_of(Student("ner", WATERMARKED, "soft", 2), scored(9, None)),
        *lines_of(Student("ner", GOLD, seed=1), scored(0, 1)),
    )
    # The second thief comes after the innocent: (1 + 2/3) / 2.
    assert cells(tables.table_1_detection(results), "NER", "tiny", "soft")["P_snr, queries"] == "0.83"
    assert cells(tables.table_2(results), "NER", "tiny", "soft", "positive")["P_snr, queries"] == "20.000 (n 1)"


def test_a_cell_with_fewer_students_than_its_row_says_so():
    results = results_of(
        *lines_of(Student("ner", WATERMARKED, "soft", 1), scored(9), everywhere=0.1),
        *lines_of(Student("ner", WATERMARKED, "soft", 2), scored(9)),
        *lines_of(Student("ner", GOLD, seed=1), scored(0), everywhere=0.2),
    )
    row = cells(tables.table_1_detection(results), "NER", "tiny", "soft")
    assert row["students"] == "2 + 1" and row["DeepJudge, all positions"] == "1.00 (n 1 + 1)"


def test_one_is_written_only_for_a_perfect_ranking():
    thieves = [line for seed in range(200) for line in lines_of(Student("ner", WATERMARKED, seed=seed), scored(seed))]
    results = results_of(*thieves, *lines_of(Student("ner", GOLD), scored(1)))
    here = Place(results, "tiny", "ner")
    found = mean_average_precision(here.positives("soft"), here.negatives("soft"), "z, queries")
    assert 0.995 < found[0] < 1.0
    assert cells(tables.table_1_detection(results), "NER", "tiny", "soft")["z, queries"] == "> 0.99"
    assert cells(goals_table(results), "mAP of z on the queries is 1.00, soft")["NER, tiny"].startswith("**no**")


def test_the_readmes_table_rounds_the_largest_p_up():
    thief, innocent = Student("ner", WATERMARKED, "soft"), Student("ner", GOLD)
    results = results_of(*lines_of(thief, scored(log10_p=-6.6)), *lines_of(innocent, scored()))
    assert cells(tables.summary(results), "NER, tiny", "soft")["thieves' p at most"] == "2.6e-7"


def test_accuracy_is_the_victims_the_served_and_the_students_mean():
    results = results_of(
        {"job": "victim pos", "kind": "victim", "task": "pos", "accuracy": 0.9},
        accuracy_line("pos", 0.9, {("soft", 0.2): 0.891, ("hard", 0.2): 0.88, ("hard, all drawn", 0.2): 0.87}),
        *lines_of(Student("pos", WATERMARKED, "soft", 1), scored(), merit=0.84),
        *lines_of(Student("pos", WATERMARKED, "soft", 2), scored(), merit=0.86),
    )
    table = tables.table_1_accuracy(results)
    row = cells(table, "POS", "tiny", "accuracy of words")
    assert row["victim"] == "90.0"
    assert row["argmax soft"] == "89.1" and row["sampling hard"] == "88.0"
    assert row["sampling hard, all drawn"] == "87.0"
    assert row["student soft"] == "85.0 (n 2)" and row["student hard"] == "—"
    paper = cells(table, "POS", "*the paper*")
    drawn = "sampling hard, all drawn"
    assert [paper[name] for name in ("figure", "victim", "argmax soft", drawn)] == ["F1", "90.7", "90.7", "90.3"]
    assert paper["sampling hard"] == "—", "the paper has no such figure"
    assert [paper[name] for name in ("student soft", "student hard")] == ["89.8", "89.7"]


def test_ner_is_judged_by_f1():
    results = results_of({"job": "victim ner", "kind": "victim", "task": "ner", "accuracy": 0.9, "f1": 0.6})
    row = cells(tables.table_1_accuracy(results), "NER", "tiny", "F1")
    assert row["victim"] == "60.0" and row["argmax soft"] == "—"


# -- Table 2


def test_ranges_are_the_least_and_the_largest(ranked):
    table = tables.table_2(ranked)
    thieves = cells(table, "NER", "tiny", "soft", "positive")
    assert thieves["n"] == "2" and thieves["P_snr, queries"] == "2.000–20.000"
    assert thieves["JSD, all positions"] == "0.100–0.200" and thieves["JSD, words, queries"] == "0.010–0.020"
    assert cells(table, "NER", "tiny", "hard", "negative")["P_snr, queries"] == "0.500–100.000"
    exact = cells(tables.table_2_exact(ranked), "NER", "tiny", "soft", "negative")
    assert exact["z, queries"] == "1.0–4.0" and exact["z, unseen"] == "−1.0 to 0.5"
    assert exact["p, queries"] == "3.2e-5 to 0.16" and exact["z by the labels served"] == "—"
    assert "17.25–25.22" in table and "0.105–4.243" in table, "the paper's"


def test_the_test_by_labels_served_has_its_own_column():
    results = results_of(*lines_of(Student("ner", WATERMARKED, "hard", 1), scored(9, memory={"z": 12.3})))
    row = cells(tables.table_2_exact(results), "NER", "tiny", "hard", "positive")
    assert row["z by the labels served"] == "12.3 (n 1)"


# -- modes


def test_every_mode_counts_its_own_probes_and_innocents_under_its_own_key():
    ways = {"victim": 1.0, "gold": 2.0, "all": 3.0}
    thieves = [
        line
        for mode in MODES
        for line in lines_of(Student("pos", WATERMARKED, "soft", 1, mode), scored(9, ways), scored(5, ways))
    ]
    gold = Student("pos", GOLD, seed=1)
    results = results_of(
        *thieves,
        *lines_of(gold, scored(0, 0.1), everywhere=0.3),
        *lines_of(gold, scored(0, 2.5), everywhere=0.3, by="paper-code"),
    )
    table = tables.modes_table(results)
    rows = {mode: cells(table, "POS", "tiny", "soft", mode) for mode in MODES}
    assert {mode: row["P_snr, queries"] for mode, row in rows.items()} == {
        "default": "1.0",
        "paper-text": "3.0",
        "paper-code": "2.0",
    }
    assert {mode: row["innocents' P_snr"] for mode, row in rows.items()} == {
        "default": "0.1 (n 1)",
        "paper-text": "—",
        "paper-code": "2.5 (n 1)",
    }
    assert [row["mAP of P_snr"] for row in rows.values()] == ["1.00", "—", "0.50"]
    assert rows["default"]["z, queries / unseen"] == "9.0 / 5.0" and rows["default"]["student"] == "80.0"
    # The baseline's divergence is from answers under the default key.
    innocents = Place(results, "tiny", "pos").negatives("soft", "paper-code")
    assert len(innocents) == 1 and innocents["JSD, all positions"].isna().all()
    # The innocent is in the default table once, with the default key's score.
    assert cells(tables.table_2(results), "POS", "tiny", "soft", "negative")["n"] == "1"


# -- ablations


def test_every_epsilon_is_ranked_against_the_same_innocents():
    results = results_of(
        *lines_of(Student("ner", WATERMARKED, "soft", 1), scored(30, 20, -90), scored(20, 9, -40)),
        *lines_of(Student("ner", WATERMARKED, "soft", 1, epsilon=0.02), scored(8, 2, -12), scored(2, 1, -2)),
        *lines_of(Student("ner", WATERMARKED, "soft", 2, epsilon=0.02), scored(6, 4, -9), scored(4, 1, -5)),
        *lines_of(Student("ner", GOLD, seed=1), scored(1, 3), scored(3, 0.5)),
    )
    table = tables.epsilon_table(results)
    faint = cells(table, "NER", "tiny", "soft", "0.02")
    assert (
        faint["students"] == "2 + 1"
        and faint["z"] == "7.0 / 3.0"
        and faint["p (geometric mean)"] == "3.2e-11 / 3.2e-4"
    )
    # P_snr 4, 3 (innocent), 2: (1 + 2/3) / 2; z on unseen text 4, 3 (innocent), 2 likewise.
    assert faint["mAP of P_snr"] == "0.83 / 1.00" and faint["mAP of z"] == "1.00 / 0.83"
    assert cells(table, "NER", "tiny", "soft", "0.2")["students"] == "1 + 1", "the profile's own ε is a row, too"


@pytest.mark.parametrize(
    ("find", "changed", "names"),
    [
        (by_category, {"target": "DT"}, ["NNP", "DT"]),
        (by_tau, {"tau": 0.1}, ["0.1", "0.5"]),
        (by_rule, {"prepended": True}, ["second token", "second token, two words prepended"]),
        (by_rule, {"rule": "rarest"}, ["second token", "rarest token"]),
        (by_limit, {"labels": "argmax"}, ["soft answers to all queries", "argmax of soft answers"]),
        (
            by_limit,
            {"share": 0.25},
            ["soft answers to all queries", "25 % of the rows answered, the rest gold"],
        ),
        (by_limit, {"queries": 0.1}, ["soft answers to all queries", "10 % of the queries"]),
    ],
)
def test_an_ablation_shows_the_usual_students_beside_the_changed_and_means_over_seeds(find, changed, names):
    usual = Student("pos", WATERMARKED, "soft", 1)
    other = dataclasses.replace(usual, **changed)
    lines = [
        *lines_of(usual, scored(30, 20, -90), scored(10, 5, -20)),
        *lines_of(other, scored(4, 2, -5), scored(1, 1, -1)),
        *lines_of(dataclasses.replace(other, seed=2), scored(6, 3, -9)),
    ]
    results = results_of(*lines)
    table = tables.ablation_table(results, find, "set")
    assert len(table.splitlines()) == 4
    by_name = {name: cells(table, "POS", "tiny", name) for name in names}
    both = [by_name[name] for name in names]
    assert sorted(row["n"] for row in both) == ["1", "2"]
    row = next(row for row in both if row["n"] == "2")
    assert row["P_snr"] == "2.5 / 1.0 (n 1)" and row["z"] == "5.0 / 1.0 (n 1)"
    assert row["student"] == "80.0"


@pytest.mark.parametrize("find", [by_category, by_tau, by_rule, by_limit])
def test_where_nothing_was_varied_there_is_no_ablation(find, ranked):
    assert tables.ablation_table(ranked, find, "set") == ""


# -- Theorem 1


def test_measured_accuracy_stands_beside_the_expected_and_the_bounds():
    results = results_of(accuracy_line("sst2", 0.9, {("soft", 0.2): 0.897, ("hard", 0.2): 0.87, ("soft", 0.33): 0.5}))
    table = tables.theorem_table(results)
    row = cells(table, "SST-2", "tiny", "soft", "0.2")
    assert row["measured (least–largest over keys)"] == "89.70 (88.70–90.70)"
    assert (row["clean"], row["cost"], row["expected cost"]) == ("90.00", "0.30", "1.00")
    assert [row[name] for name in ("expected", "bound", "*paper's bound*", "ECE")] == [
        "94.00",
        "93.00",
        "90.00",
        "0.020",
    ]
    assert len(table.splitlines()) == 4, "only some levels are shown"


# -- goals


def goals(*, z=9.0, p_snr=1.0, log10_p=-8.0, soft=0.897, hard=0.86, faint=0.897, faint_p=-8.0):
    """The goals of an SST-2 run that meets them all, but for what is given."""
    task = "sst2"
    innocents = [
        line
        for student in (
            Student(task, UNWATERMARKED, "soft"),
            Student(task, UNWATERMARKED, "hard"),
            Student(task, GOLD),
        )
        for line in lines_of(student, scored(5, p_snr))
    ]
    thieves = [
        line
        for labels in ("soft", "hard")
        for student, p in (
            (Student(task, WATERMARKED, labels, 1), -30.0),
            (Student(task, WATERMARKED, labels, 2), log10_p),
            (Student(task, WATERMARKED, labels, 1, epsilon=0.05), faint_p),
        )
        for line in lines_of(student, scored(z, 20, p))
    ]
    levels = {("soft", 0.2): soft, ("hard", 0.2): hard, ("soft", 0.05): faint, ("hard", 0.05): faint}
    return goals_table(results_of(*innocents, *thieves, accuracy_line(task, 0.9, levels)))


MAP = "mAP of z on the queries is 1.00, soft"
INNOCENT = "every innocent's P_snr < 5, hard"
SURE = "every thief's p < 1e-6 on the queries, hard"
SOFT = "argmax-soft costs ≤ 0.3 points at ε = 0.2"
HARD = "hard labels cost no more than the paper's at ε = 0.2"
FAINT = "≤ 0.5 points at the least ε that still detects, soft"


def test_all_goals_are_met_by_a_run_that_meets_them():
    table = goals()
    for title, found in {
        MAP: "1.00 (n 2 + 2)",
        INNOCENT: "largest 1.00 (n 2)",
        SURE: "largest p 1e-8 (n 2)",
        SOFT: "0.30",
        HARD: "4.00 (paper 4.4, all drawn)",
        FAINT: "0.30 at 0.05, the least tried (n 1)",
    }.items():
        row = cells(table, title)
        assert row["met"] == "1 of 1" and row["SST-2, tiny"] == f"yes: {found}"
    assert "**no**" not in table


@pytest.mark.parametrize(
    ("title", "changed", "found"),
    [
        (MAP, {"z": 5.0}, "0.50 (n 2 + 2)"),  # as high as the innocents
        (INNOCENT, {"p_snr": 5.0}, "largest 5.00 (n 2)"),
        (SURE, {"log10_p": -6.0}, "largest p 1e-6 (n 2)"),
        (SOFT, {"soft": 0.8969}, "0.31"),
        (HARD, {"hard": 0.8559}, "4.41 (paper 4.4, all drawn)"),
        (FAINT, {"faint": 0.8949}, "0.51 at 0.05, the least tried (n 1)"),
        (FAINT, {"log10_p": -5.0}, "no ε was detected"),
    ],
)
def test_a_goal_that_is_missed_by_a_little_is_missed(title, changed, found):
    row = cells(goals(**changed), title)
    assert row["met"] == "0 of 1" and row["SST-2, tiny"] == f"**no**: {found}"


def test_a_cost_of_exactly_the_limit_is_within_it():
    assert cells(goals(hard=0.856), HARD)["SST-2, tiny"] == "yes: 4.40 (paper 4.4, all drawn)"


def test_the_cost_is_that_of_the_least_level_down_to_which_all_are_detected():
    assert cells(goals(faint_p=-6.0), FAINT)["SST-2, tiny"] == "yes: 0.30 at 0.2 (n 2)"


def test_what_was_not_measured_is_no_goal_met_or_missed(ranked):
    table = goals_table(ranked)
    for title in (SOFT, HARD, FAINT, SURE):
        row = cells(table, title)
        assert row["met"] == row["NER, tiny"] == "—"


# -- the document


def test_the_report_says_what_was_run_and_what_was_not(ranked):
    text = what_was_run(ranked)
    row = cells(text.split("\n\n")[0], "tiny", "NER")
    assert [row[name] for name in row if name not in ("profile", "task", "victim")] == ["2", "0", "1", "1", "1"]
    assert row["victim"] == "no"
    lacking = next(line for line in text.splitlines() if line.startswith("- Not run with tiny: "))
    assert "1 of 5 settings of tables on NER" in lacking
    assert "tables on MRPC" in lacking and "epsilon on NER" in lacking and "case on NER" in lacking
    assert "tables on NER," not in lacking.replace("settings of tables on NER,", "")


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("victim", "- NER with tiny mixes students of 2 victims."),
        ("data", "- NER with tiny mixes students of 2 versions of the data."),
    ],
)
def test_the_report_says_where_students_of_different_victims_or_data_are_mixed(field, note):
    def text(*found):
        lines = []
        for seed, value in enumerate(found):
            student, score = lines_of(Student("ner", WATERMARKED, seed=seed), scored())
            lines += [{**student, field: value}, score]
        return what_was_run(results_of(*lines))

    assert note in text("one", "other", "one").splitlines()
    assert "mixes" not in text("one", "one")


def test_students_of_other_parts_are_counted_by_setting():
    results = results_of(
        *(
            line
            for epsilon, seeds in ((EPSILONS[0], 2), (EPSILONS[1], 1))
            for seed in range(1, seeds + 1)
            for line in lines_of(Student("ner", WATERMARKED, "soft", seed, epsilon=epsilon), scored())
        )
    )
    _, parts, lacking, _ = what_was_run(results).split("\n\n")
    row = cells(parts, "tiny", "epsilon", "NER")
    n = 2 * len(EPSILONS)  # soft and hard
    assert row["settings"] == str(n) and row["students of each"] == "0 to 2"
    assert f"{n - 2} of {n} settings of epsilon on NER" in lacking


def test_a_report_of_a_run_that_has_just_begun_has_no_empty_tables(tmp_path):
    text = write_up([written(tmp_path / "tiny.jsonl", SETTINGS)])
    assert "|" not in text and "Not run with tiny: tables on POS" in text


def test_a_report_has_every_table_that_there_are_data_for_and_its_command(tmp_path, ranked):
    text = write_up([written(tmp_path / "tiny.jsonl", *ranked.records)])
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "What was run",
        "Goals",
        "Table 1: detection",
        "Table 1: accuracy",
        "Table 2: scores",
        "Table 2 for the exact test",
    ]
    assert text.count("Made by `drw-hf reproduce tiny --part tables") == 5
    widths = [{line.count("|") for line in block.splitlines()} for block in text.split("\n\n") if "| --- |" in block]
    assert len(widths) == 6 and all(len(width) == 1 for width in widths), "every row is as wide as its head"


# -- figures


def curve(suspect):
    hashes = np.linspace(0.001, 0.999, 200)
    power = np.exp(-((SPECTRUM - 16) ** 2)) + 1e-3
    served = 0.8 + 0.2 * np.cos(16 * hashes)
    return {"hash": hashes.tolist(), "suspect": [suspect] * 200, "victim": served.tolist(), "power": power.tolist()}


def case_lines(**settings):
    """A soft student of the case study, with its curves."""
    student = Student("ner", WATERMARKED, "soft", 1, **settings)
    seen, unseen, wrong = (scored(9, 20, -20, curve=curve(level)) for level in (0.7, 0.6, 0.5))
    return lines_of(student, seen, unseen, **{"wrong key": wrong})


def ink(path):
    """The share of pixels that are not white, in the figure's quarters: upper left and right, lower left and right."""
    dark = matplotlib.image.imread(path)[..., :3].min(axis=-1) < 0.9
    halves = np.array_split(dark, 2)
    return [quarter.mean() for half in halves for quarter in np.array_split(half, 2, axis=1)]


def test_the_case_study_is_drawn_with_a_note_where_a_panel_is_missing(tmp_path):
    path = figures.case_study(results_of(*case_lines()), tmp_path / "new" / "case.png")
    with_other = figures.case_study(
        results_of(*case_lines(), *case_lines(encoder="other")), tmp_path / "new" / "other.png"
    )
    assert path.exists() and matplotlib.image.imread(path).shape[1] >= 1200
    assert ink(path)[2] > 0.01 and ink(with_other)[3] > 2 * ink(path)[3]


def test_the_student_of_another_encoder_may_come_from_another_profile(tmp_path):
    here = results_of(*case_lines())
    there = results_of(*case_lines(encoder="other"), profile="large")
    alone = figures.case_study(here, tmp_path / "alone.png", "tiny")
    both = figures.case_study(Results(here.records + there.records), tmp_path / "both.png", "tiny")
    assert ink(both)[3] > 2 * ink(alone)[3]


def everything():
    """A little of all that figures show."""
    usual = [Student("ner", WATERMARKED, labels, 1) for labels in ("soft", "hard")]
    changes = [{"epsilon": 0.02}, {"tau": 0.1}, {"share": 0.5}, {"queries": 0.1}]
    changed = [Student("ner", WATERMARKED, "soft", 1, **change) for change in changes]
    tagged = [Student("pos", WATERMARKED, "soft", 1, target=target) for target in (None, "DT")]
    thieves = [
        line for student in (*usual, *changed, *tagged) for line in lines_of(student, scored(9, 20), scored(5, None))
    ]
    levels = {(labels, epsilon): 0.8 for labels in ("soft", "hard", "hard, all drawn") for epsilon in (0.02, 0.2)}
    accuracy = accuracy_line("ner", 0.85, levels)
    accuracy["taus"] = [
        {"labels": labels, "tau": at, "accuracy": 0.8} for labels in ("soft", "hard") for at in (0.1, 0.5)
    ]
    # The case study's lines come last: they are the soft student's, with curves.
    return [*thieves, *lines_of(Student("ner", GOLD), scored(0, 1), scored(1, 2)), accuracy, *case_lines()]


def test_all_figures_are_drawn_from_a_run_that_has_all(tmp_path):
    drawn = figures.draw_all([written(tmp_path / "tiny.jsonl", SETTINGS, *everything())], tmp_path / "figures")
    names = ["case-study-tiny", "accuracy", "epsilon", "category", "tau", "limits"]
    assert [path.stem for path in drawn] == names
    assert all(sum(ink(path)) > 0.01 for path in drawn)


def test_without_data_nothing_is_drawn(tmp_path, ranked):
    path = written(tmp_path / "tiny.jsonl", *ranked.records)
    assert figures.draw_all([path], tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


# -- the plan


def test_the_phi_that_would_make_the_plan_right_is_found_from_z():
    power = {"sigma": 0.8, "n_effective": 900.0, "n_planned": 1000.0, "effect": 2.0}
    reached = math.sqrt(1000.0 * math.log1p((0.3 * 2.0 / 0.8) ** 2))  # by the formula, with φ = 0.3
    results = results_of(
        *lines_of(Student("pos", WATERMARKED, "hard", 1), scored(reached, power=power)),
        *lines_of(Student("pos", UNWATERMARKED, "hard", 1), scored(power={**power, "sigma": 0.8})),
    )
    (checked,) = check_plan(results)
    assert (checked.labels, checked.where, checked.n) == ("hard", "queries", 1)
    assert checked.phi == pytest.approx(0.3) and checked.sigma == 0.8 and checked.measured == reached
    row = cells(tables.plan_table(results), "POS", "tiny", "hard", "0.2")
    assert row["fitted φ"] == "0.30" and row["probed with"] == "its queries"
    assert float(row["planned / z"]) == pytest.approx(checked.planned / reached, abs=0.006)


def test_without_unmarked_students_nothing_is_known_of_the_spread_and_the_plan_is_not_checked():
    power = {"sigma": 0.8, "n_effective": 900.0, "n_planned": 1000.0, "effect": 2.0}
    results = results_of(*lines_of(Student("pos", WATERMARKED, "hard", 1), scored(9.0, power=power)))
    assert check_plan(results) == [] and tables.plan_table(results) == ""


# -- what is committed

ROOT = Path(__file__).parents[1]
LINES = sorted((ROOT / "docs/results/reproduce").glob("*.jsonl"))


def test_the_committed_tables_are_those_of_the_committed_lines():
    assert (ROOT / "docs/results/reproduce/tables.md").read_text(encoding="utf-8") == write_up(LINES)


def test_the_page_has_the_main_figures_as_the_lines_give_them():
    assert tables.summary(load(LINES)) in (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
