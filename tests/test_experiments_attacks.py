"""What the experiment with attacks plays, and what its tables say."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from drw_hf.experiments.attacks import (
    Service,
    falls_for_nothing,
    is_laborious,
    is_wanted,
    more_seeds,
    near_escapes,
    played,
)
from drw_hf.experiments.attacks_report import (
    IMPORTANT,
    SERVICES,
    cheapest,
    cheapest_escapes,
    is_found,
    report,
    summary,
)
from drw_hf.experiments.marks_settings import load_settings
from drw_hf.runs.lines import read_lines

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs/results/attacks.jsonl"
SERVED = ("sst2-tiny", "tilt", "hard", None)


def line(attack, accuracy, log10, seed=1, served=SERVED, **more):
    setting, mark, label_kind, digits = served
    about = {"setting": setting, "mark": mark, "label_kind": label_kind, "attack": attack, "seed": seed}
    figures = {"log": {"log10_bound": log10}, "unseen": {"log10_bound": 0.0}}
    about |= {} if digits is None else {"digits": digits}
    return {**about, "accuracy": accuracy, **figures, **more}


def write(path, lines):
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))


LINES = [
    {
        "setting": "sst2-tiny",
        "mark": "tilt",
        "label_kind": "hard",
        "attack": "baseline",
        "seed": 1,
        "victim": 88.0,
        "served": 87.9,
    },
    line("nothing", 83.0, -90.0),
    line("innocent", 84.0, 0.0),
    line("prune-60", 82.5, -60.0),
    line("relabel-2", 76.0, -1.0),
    line("clean-5", 81.0, -2.0),
    line("marked-5", 83.5, -2.5, gold=0.95),
    line("key-after-the-fact", 84.0, -4.0, searched={"corrected": 0.0}),
]


def test_what_an_attack_costs_is_counted_from_the_student_of_no_attack_with_the_same_seed():
    seeds = [line("nothing", 80.0, -90.0, seed=2), line("clean-5", 79.0, -5.0, seed=2)]
    found = summary([*LINES, *seeds])[SERVED]
    assert found["clean-5"].lost == pytest.approx((2.0 + 1.0) / 2) and found["clean-5"].seeds == 2
    assert found["prune-60"].lost == pytest.approx(0.5) and found["prune-60"].seeds == 1


def test_the_weakest_evidence_of_all_seeds_counts():
    seeds = [line("nothing", 80.0, -90.0, seed=2), line("clean-5", 79.0, -5.0, seed=2)]
    assert summary([*LINES, *seeds])[SERVED]["clean-5"].log10_log == -2.0


def test_a_seed_without_the_student_of_no_attack_is_left_out():
    assert "clean-5" not in summary([line("clean-5", 79.0, -5.0, seed=2)])[SERVED]


def test_the_cheapest_escape_is_named_with_and_without_right_labels():
    found = summary(LINES)[SERVED]
    assert cheapest(found).attack == "marked-5"
    assert cheapest(found, gold=False).attack == "clean-5"


def test_a_forgery_is_no_escape_and_a_search_for_keys_is_corrected():
    found = summary(LINES)[SERVED]
    assert found["key-after-the-fact"].log10_log == 0.0
    assert cheapest({"key-after-the-fact": found["key-after-the-fact"]}) is None


def test_more_seeds_go_to_attacks_that_nearly_escape_and_cost_little_more_than_the_cheapest():
    near = {attack for *service, attack in near_escapes(LINES)}
    assert near == {"marked-5", "clean-5"}  # the second is the cheapest without right labels, relabel-2 much dearer
    many = ["argmax", "floor", "debias", "rounding", "noise", "smoothing"]
    falls = [*LINES, *(line(name, 82.9 - 0.1 * number, -1.0) for number, name in enumerate(many))]
    assert {attack for *service, attack in near_escapes(falls)} == {"marked-5", *many[:4]}, "the cheapest are enough"
    assert {attack for *service, attack in near_escapes(falls, 1)} == {"marked-5", "argmax"}
    assert {attack for *service, attack in near_escapes(falls, 2, gold=(False,))} == {"argmax", "floor"}
    without = [one for one in LINES if one["attack"] != "marked-5"]
    assert {attack for *service, attack in near_escapes(without)} == {"clean-5"}


def test_every_attack_that_the_tables_name_is_played_with_all_seeds(tmp_path):
    served = ("sst2-pretrained", "cosine", "hard", None)
    others = [(80.0, -90.0, "nothing"), (76.0, -1.0, "relabel-2"), (79.5, -2.0, "marked-10"), (79.9, -4.0, "prune-60")]
    lines = [line(attack, accuracy, log10, served=served) for accuracy, log10, attack in others]
    assert cheapest_escapes(summary(lines)) == {(*served, "relabel-2"), (*served, "marked-10")}
    faint = [line(one["attack"], one["accuracy"], -1.0, served=served) for one in lines]
    assert cheapest_escapes(summary(faint)) == set(), "there is nothing to escape from"

    path = tmp_path / "lines.jsonl"
    write(path, lines)
    shop = SimpleNamespace(settings=load_settings(encoder="any"))
    jobs = [one.about for one in more_seeds(shop, ["sst2-pretrained"], path)]
    chosen = {"nothing", "relabel-2", "marked-10"}
    assert {(one["attack"], one["seed"]) for one in jobs} == {(attack, seed) for attack in chosen for seed in (2, 3)}
    assert {(one["mark"], one["label_kind"]) for one in jobs} == {("cosine", "hard")}

    weaker = [line("nothing", 80.0, -90.0, 2, served), line("marked-10", 70.0, -1.0, 2, served)]
    write(path, [*lines, *weaker])
    again = {one.about["attack"] for one in more_seeds(shop, ["sst2-pretrained"], path)}
    assert again == {"nothing", "relabel-2"}, "another is the cheapest, now that more seeds are there"


def test_the_tables_in_the_documentation_name_no_attack_of_fewer_seeds_than_three():
    played_so_far = summary(read_lines(RESULTS))
    for *service, attack in cheapest_escapes(played_so_far):
        assert played_so_far[tuple(service)][attack].seeds == 3, (service, attack)


def test_laborious_attacks_are_left_out_where_an_easy_one_gets_rid_of_the_mark_for_nothing():
    assert is_laborious("near-duplicates-10") and is_laborious("clean-5") and not is_laborious("relabel-2")
    assert not falls_for_nothing(summary(LINES)[SERVED]), "marked-5 needs right labels, clean-5 is laborious"
    assert not falls_for_nothing(summary([*LINES, line("prune-60", 82.0, -1.0)])[SERVED]), "it loses a point"
    assert falls_for_nothing(summary([*LINES, line("prune-60", 82.8, -1.0)])[SERVED])


def test_a_service_of_fewer_digits_is_another_one():
    one_digit = ("sst2-tiny", "tilt", "soft", 1)
    found = summary([line("nothing", 80.0, -90.0, served=one_digit), line("nothing", 81.0, -95.0)])
    assert found[one_digit]["nothing"].accuracy == 80.0 and found[SERVED]["nothing"].accuracy == 81.0


def test_nothing_is_said_of_escapes_from_a_mark_that_is_not_there():
    faint = [line("nothing", 83.0, -1.0), line("clean-5", 81.0, 0.0)]
    assert is_found(summary(LINES)[SERVED]) and not is_found(summary(faint)[SERVED])


def test_the_tables_say_what_the_lines_say(tmp_path):
    path = tmp_path / "lines.jsonl"
    failed = {**line("smoothing", 0, 0), "failed": "StudentDivergedError: a student diverged"}
    del failed["log"]
    write(path, [*LINES, failed])
    text = report(path)
    assert "| tilt + margin, hard | -0.5 (marked-5; unseen 1) |" in text
    assert "| tilt + margin, hard | +2.0 (clean-5; unseen 1) |" in text
    assert "| prune-60 | nothing more | 82.5 | +0.5 |" in text
    assert "| smoothing, sst2-tiny | StudentDivergedError: a student diverged |" in text


def test_where_nobody_tried_the_table_does_not_say_that_no_attack_succeeds(tmp_path):
    path = tmp_path / "lines.jsonl"
    write(path, LINES[:3])
    assert "| tilt + margin, hard | |" in report(path)
    write(path, LINES[:4])
    assert "| tilt + margin, hard | no attack |" in report(path)


def test_important_attacks_are_played_first():
    setting = load_settings(encoder="any")["sst2-pretrained"]
    for mark, label_kind, digits in SERVICES:
        names = played(setting, Service(mark, label_kind, digits))
        important = [name for name in names if name in IMPORTANT[label_kind]]
        assert len(important) >= 10 and names[: len(important)] == important


def test_pretrained_victims_are_attacked_with_the_most_important_and_with_what_computes_where_digits_are_fewer():
    settings = load_settings(encoder="any")
    tiny, pretrained = settings["sst2-tiny"], settings["sst2-pretrained"]
    usual, fewer = Service("tilt", "soft"), Service("tilt", "soft", digits=1)

    def wanted(setting, service):
        return {name for name in played(setting, service) if is_wanted(setting, service, name)}

    assert wanted(tiny, usual) == set(played(tiny, usual))
    important, opinions = set(IMPORTANT["soft"]) - {"floor"}, {"relabel-5", "clean-5"}
    assert wanted(tiny, fewer) == important and wanted(pretrained, usual) == important | opinions
    tables = {"subtract-table-gold", *(f"subtract-table-young{times}" for times in ("", "-1.25", "-1.5"))}
    assert wanted(pretrained, fewer) == tables
    drawn, papers = Service("tilt", "hard"), Service("cosine", "hard")
    assert wanted(pretrained, drawn) == set(IMPORTANT["hard"]) | opinions
    assert wanted(pretrained, papers) == set(IMPORTANT["hard"])


def test_the_tables_in_the_documentation_are_those_of_the_raw_lines():
    text = report(RESULTS)
    assert RESULTS.with_suffix(".md").read_text(encoding="utf-8") == text
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first_two = [part for part in text.split("\n\n") if part.startswith("| service |")]
    assert len(first_two) == 2 and all(part in readme for part in first_two)
