"""A rehearsal of the theft: what it plays, keeps, tells and refuses; with tiny students of a tiny tagger."""

import dataclasses
import html
import json
import math
import re
from types import SimpleNamespace

import datasets
import numpy as np
import pytest
from datasets import Dataset

from drw_hf import KeyRing, WatermarkedModelForTokenClassification
from drw_hf.errors import (
    CannotLoadError,
    ConfigurationError,
    DatasetError,
    InvalidInputError,
    JobsFailedError,
    KeptAnswersError,
    KeyMismatchError,
    StudentDivergedError,
)
from drw_hf.extraction.attacks import ATTACKS, Attack
from drw_hf.extraction.stolen import answers_in
from drw_hf.extraction.thief import Thief
from drw_hf.planning import Recipe, Rehearsal, rehearse
from drw_hf.planning.rehearsal_bench import Bench
from drw_hf.planning.rehearsal_pace import Pace, questions_asked, seconds_left, try_pace, work_of
from drw_hf.planning.rehearse import choose, make_bench, prepare, recipe_for
from drw_hf.runs.lines import append_line, read_lines
from rehearsal_scene import (
    TINY,
    Explodes,
    LearnsGold,
    made_up,
    make_rows,
    make_scene_key,
    make_tagger,
    make_words,
    registered,
)
from small_models import make_model

FOUR = ["argmax", "learns-gold", "explodes", "prune-30"]


@pytest.fixture(scope="module")
def own_attacks():
    """Attacks of a user's own, known for the module."""
    with registered(LearnsGold, Explodes):
        yield


@pytest.fixture(scope="module")
def scene(own_attacks, tmp_path_factory):
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        model, tokenizer = make_tagger(), make_words()
        key = make_scene_key(model, tokenizer)
        yield SimpleNamespace(model=model, tokenizer=tokenizer, key=key, data=make_rows(model, tokenizer))


def bench_of(scene, folder="unused", **changes):
    options = {"model": scene.model, "key": scene.key, "data": scene.data, "tokenizer": scene.tokenizer}
    return make_bench(**{**options, "student": TINY, "folder": folder, **changes})


def play(scene, attacks, folder, **changes):
    options = {"tokenizer": scene.tokenizer, "student": TINY, "attacks": attacks, "folder": folder, **changes}
    return rehearse(scene.model, scene.key, options.pop("data", scene.data), **options)


@pytest.fixture(scope="module")
def played(scene, tmp_path_factory):
    """Four attacks on a service of scores."""
    folder = tmp_path_factory.mktemp("rehearsal")
    return SimpleNamespace(folder=folder, found=play(scene, [*FOUR, "frame-innocent"], folder))


# -- what it finds


def test_every_attack_has_a_row_and_the_thief_without_any_comes_first(played):
    rows = {row.attack: row for row in played.found.rows}
    assert next(iter(rows)) == "nothing" and set(rows) == {"nothing", *FOUR, "frame-innocent"}
    assert rows["nothing"].lost == 0.0 and rows["argmax"].title.startswith("Keeps the most likely class")
    assert rows["learns-gold"].gold == 1.0 and rows["learns-gold"].needs == "right labels of 100% of its texts"
    assert rows["argmax"].asked == 240 and not played.found.left_out


def test_thefts_are_found_and_whoever_learnt_nothing_of_the_answers_escapes(played):
    verdicts = {row.attack: row.verdict for row in played.found.rows}
    assert [verdicts[name] for name in ("nothing", "argmax", "prune-30")] == ["found"] * 3
    assert verdicts["learns-gold"] == "escaped"
    argmax = next(row for row in played.found.rows if row.attack == "argmax")
    assert argmax.log10_log < -20 and argmax.log10_unseen < -10 and argmax.z_log > 5


def test_a_student_that_diverges_is_recorded_and_ends_nothing(played):
    row = next(row for row in played.found.rows if row.attack == "explodes")
    assert row.verdict == "failed" and row.note.startswith("StudentDivergedError: a student diverged")
    assert row.accuracy is row.lost is row.log10_log is None
    assert "1 attack failed" in played.found.conclusion()


def test_forgeries_and_the_innocent_are_no_thefts(played):
    found = played.found
    assert [row.attack for row in found.forgeries] == ["frame-innocent"]
    assert found.forgeries[0].verdict == "framed" and "'frame-innocent'" in found.conclusion()
    assert found.innocent.verdict == "cleared" and found.innocent.log10_log > -3
    assert {"frame-innocent", "innocent"}.isdisjoint(row.attack for row in found.thefts + found.escapes)


def test_the_cheapest_escape_is_named_with_and_without_right_labels(played):
    assert played.found.cheapest_escape.attack == "learns-gold" and played.found.cheapest_without_labels is None
    said = played.found.conclusion()
    assert said.startswith("The mark is found after 3 of 4 thefts") and "is 'learns-gold' (learns right labels" in said
    assert "It needs right labels; without them there is none." in said


def test_of_many_escapes_the_cheapest_counts():
    """A made-up one: no attack first, if it escapes; else who loses least, and of thieves without labels, too."""

    def escaping(*names):
        rows = made_up().rows
        weak = {"log10_log": -1.0, "log10_unseen": -0.5, "verdict": "escaped"}
        strong = {"log10_log": -50.0, "log10_unseen": -9.0, "verdict": "found"}
        costs = {"argmax": 0.4, "marked-10": 0.1, "top-two": 3.0}
        changed = []
        for row in rows:
            if row.stage != "forgery":
                row = dataclasses.replace(row, **(weak if row.attack in names else strong))
            changed.append(dataclasses.replace(row, lost=costs.get(row.attack, row.lost)))
        return made_up(rows=tuple(changed))

    found = escaping("argmax", "marked-10", "top-two")
    assert [row.attack for row in found.escapes] == ["marked-10", "argmax", "top-two"]
    assert found.cheapest_without_labels.attack == "argmax"
    assert "costs the thief 0.1 points of accuracy" in found.conclusion()
    assert "without them the cheapest is 'argmax' (keeps" in found.conclusion()
    assert escaping("nothing", "argmax").cheapest_escape.attack == "nothing"
    assert "Already without any attack p stays above 0.001" in escaping("nothing").conclusion()
    none = escaping()
    assert none.cheapest_escape is None and "No attack leaves p above 0.001 on the log." in none.conclusion()


def test_an_innocent_that_is_found_and_a_copy_that_learnt_little_are_warned_of():
    false = dataclasses.replace(made_up().innocent, verdict="framed", log10_log=-9.0)
    assert "tests positive too: find out why" in made_up(innocent=false).conclusion()
    assert "points worse than your model" in made_up(victim=99.0).conclusion()
    assert "points worse than your model" not in made_up().conclusion()


def test_the_table_says_it_all(played):
    text = str(played.found)
    for row in played.found.rows:
        assert re.search(rf"^{row.attack} ", text, flags=re.MULTILINE)
    assert "What is done to the answers:" in text and "For comparison" in text
    assert text.endswith(played.found.conclusion()) and "Accuracy of the victim" in text


# -- lines, and going on


def test_started_again_nothing_is_asked_or_trained_twice(played, scene, monkeypatch):
    monkeypatch.setattr(Bench, "play", lambda *_: pytest.fail("it was played already"))
    before = (played.folder / "rehearsal.jsonl").read_bytes()
    assert play(scene, [*FOUR, "frame-innocent"], played.folder) == played.found
    assert (played.folder / "rehearsal.jsonl").read_bytes() == before


def test_an_attack_that_is_named_later_is_added(played, scene, monkeypatch):
    trained = []
    monkeypatch.setattr(Thief, "train", lambda self, *_, **__: trained.append(1) or pytest.fail("prune needs none"))
    found = play(scene, ["prune-60"], played.folder)
    assert {row.attack for row in found.rows} == {"nothing", *FOUR, "frame-innocent", "prune-60"}
    names = [record["job"] for record in read_lines(played.folder / "rehearsal.jsonl")]
    assert names[:4] == ["settings", "baseline", "nothing", "innocent"] and names[-1] == "prune-60" and not trained


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 2}, "seed"),
        ({"label_kind": "hard"}, "label_kind"),
        ({"digits": 1}, "digits"),
        ({"student": Recipe(width=16)}, "recipe"),
        ({"others": Dataset.from_dict({"tokens": [["word1"]], "tags": [["O"]]})}, "rows, texts"),
    ],
)
def test_results_of_other_settings_are_not_mixed(played, scene, changes, what):
    with pytest.raises(ConfigurationError, match=rf"holds results of other settings \({what}\)"):
        play(scene, ["prune-30"], played.folder, **changes)


def test_results_of_other_texts_or_another_model_of_the_same_key_are_not_mixed(played, scene):
    other = SimpleNamespace(**{**vars(scene), "data": make_rows(scene.model, scene.tokenizer, seed=1)})
    with pytest.raises(ConfigurationError, match=r"other settings \(texts\)"):
        play(other, ["argmax"], played.folder)
    other = SimpleNamespace(**{**vars(scene), "model": make_model("token-classification", vocab_size=305, seed=3)})
    with pytest.raises(ConfigurationError, match=r"other settings \(model\)"):
        play(other, ["argmax"], played.folder)


def test_a_fault_is_no_failed_theft_and_is_tried_again(scene, tmp_path):
    class Faulty(Attack):
        """Has a mistake in it, or meets with a full disk."""

        name, stage, error = "faulty", "suspect", RuntimeError

        def answer(self, probabilities, rng):
            if self.error is None:
                return probabilities
            raise self.error("of all things")

    short = {"data": scene.data.select(range(100)), "student": dataclasses.replace(TINY, epochs=1)}
    with registered(Faulty):
        for Faulty.error in (RuntimeError, KeptAnswersError):
            with pytest.raises(
                JobsFailedError, match=rf"'faulty' could not be played \({Faulty.error.__name__}: of all"
            ):
                play(scene, ["faulty"], tmp_path, **short)
        Faulty.error = None
        assert play(scene, ["faulty"], tmp_path, **short).rows[1].attack == "faulty"


def test_where_the_plain_student_diverges_there_is_nothing_to_compare_with(scene, tmp_path, monkeypatch):
    def diverge(*_, **__):
        raise StudentDivergedError("a student diverged (its loss is nan)")

    monkeypatch.setattr(Thief, "train", diverge)
    with pytest.raises(
        JobsFailedError, match=r"'nothing' could not be played.*all others are compared with failed.*diverged"
    ):
        play(scene, ["argmax"], tmp_path)


# -- who gets what, and what is chosen


def test_text_is_dealt_out_so_that_nobody_has_what_another_has(scene):
    bench = bench_of(scene)
    parts = [{" ".join(row) for row in part["tokens"]} for part in (bench.queries, bench.unseen, bench.others)]
    assert [len(part) for part in parts] == [240, 80, 80] and len(set.union(*parts)) == 400
    given = bench_of(scene, unseen=scene.data.select(range(30)))
    assert (len(given.queries), len(given.unseen), len(given.others)) == (400, 30, 0)


def test_all_leaves_out_what_cannot_be_played_and_says_why(scene):
    bench = bench_of(scene, data=scene.data.remove_columns("tags"))
    chosen, left_out = choose(bench, "all")
    assert bench.gold is None and {"learns-gold", "marked-10", "frame-innocent"} <= left_out.keys()
    assert left_out["marked-10"] == "it needs right labels of the thief's texts, and the data has none"
    assert left_out["suffix"] == "it is for sequence-classification" and set(chosen) | set(left_out) == set(ATTACKS)
    assert set(chosen).isdisjoint(left_out) and "argmax" in chosen
    assert "second-generation" in choose(bench_of(scene, unseen=scene.data.select(range(9))), "all")[1]


def test_labels_that_are_hidden_are_none(scene):
    hidden = scene.data.map(lambda row: {"tags": [-1] * len(row["tokens"])})
    assert bench_of(scene, data=hidden).gold is None


def test_what_is_served_is_what_the_protected_model_serves(scene, tmp_path):
    protected = WatermarkedModelForTokenClassification.from_model(scene.model, key=scene.key, label_kind="hard")
    bench = bench_of(scene, model=protected)
    assert bench.label_kind == "hard" and bench.victim is scene.model
    assert "argmax" in choose(bench, "all")[1]
    assert bench_of(scene, model=protected, label_kind="soft").label_kind == "soft"
    protected = WatermarkedModelForTokenClassification.from_model(scene.model, key=scene.key, digits=1)
    chosen = {"protected": {"model": protected}, "asked": {"digits": 1}, "other": {"model": protected, "digits": 3}}
    asked = [bench_of(scene, tmp_path / name, **options) for name, options in chosen.items()]
    assert [bench.digits for bench in asked] == [1, 1, 3]
    shown = [np.concatenate(answers_in(bench.service(bench.queries, 0))) for bench in asked]
    distinct = [len(np.unique(scores.round(4))) for scores in shown]
    assert distinct[0] == distinct[1] < distinct[2] / 4


def test_students_that_start_from_a_model_take_smaller_steps():
    assert recipe_for(None) == Recipe() and recipe_for("somewhere").learning_rate < Recipe().learning_rate
    assert recipe_for("somewhere", 2.0, 0.01) == Recipe(start="somewhere", epochs=2.0, learning_rate=0.01)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"attacks": ["argmax", "telepathy"]}, InvalidInputError, "no attack 'telepathy'; choose one of .*argmax"),
        (
            {"attacks": "suffix"},
            InvalidInputError,
            "'suffix' cannot be played here: it is for sequence-classification",
        ),
        ({"level": 1.5}, InvalidInputError, "level=1.5"),
        ({"label_kind": "loud"}, InvalidInputError, "label_kind='loud'"),
        ({"digits": 9}, ConfigurationError, "digits=9: expected an integer from 1 to 6, or 0"),
        ({"student": "nowhere/at/all"}, CannotLoadError, "there is no folder nowhere/at/all"),
        ({"text_columns": "words"}, DatasetError, "words"),
        ({"label_column": "labels"}, DatasetError, "label_column='labels'"),
        ({"tokenizer": None}, InvalidInputError, "tokenizer is missing"),
    ],
)
def test_what_cannot_be_played_is_refused_before_anything_is_asked(scene, tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        play(scene, changes.pop("attacks", ["argmax"]), tmp_path / "new", **changes)
    assert not (tmp_path / "new").exists()


def test_attacks_that_need_labels_are_refused_without_any(scene, tmp_path):
    with pytest.raises(InvalidInputError, match="'marked-10' cannot be played here: it needs right labels"):
        play(scene, ["marked-10"], tmp_path, data=scene.data.remove_columns("tags"))


def test_too_little_data_and_other_columns_are_refused(scene, tmp_path):
    with pytest.raises(DatasetError, match="the thief would have 18 texts and the owner 6 unseen ones; give more"):
        play(scene, "all", tmp_path, data=scene.data.select(range(30)))
    with pytest.raises(DatasetError, match=r"unseen has the columns \['text'\]; expected .*\['tokens'\]"):
        play(scene, "all", tmp_path, unseen=Dataset.from_dict({"text": ["a", "b"]}))
    with pytest.raises(DatasetError, match=r"expected a datasets\.Dataset"):
        play(scene, "all", tmp_path, data=[["word1"]])


def test_a_ring_and_a_key_of_another_model_are_refused(scene, tmp_path):
    ring = KeyRing.generate(scene.model, mark="tilt", tokenizer=scene.tokenizer, temperature=1.0)
    with pytest.raises(InvalidInputError, match=r"key is a KeyRing; .*ring\.key_for\(user\)"):
        bench_of(scene, key=ring)
    other = make_model("token-classification", vocab_size=64)
    with pytest.raises(KeyMismatchError):
        bench_of(scene, model=other)
    with pytest.raises(KeyMismatchError, match="another tokenizer"):
        bench_of(scene, key=make_scene_key(other, scene.tokenizer), tokenizer=make_tokenizer_of_others())
    scene.model.save_pretrained(tmp_path)
    scene.tokenizer.save_pretrained(tmp_path)
    sentences = make_model(vocab_size=305)
    with pytest.raises(KeyMismatchError, match=r"is for sequence-classification, and the model in .* is for token-cl"):
        bench_of(scene, model=str(tmp_path), tokenizer=None, key=make_scene_key(sentences, scene.tokenizer))


def make_tokenizer_of_others():
    from small_models import make_tokenizer

    return make_tokenizer(["other", "words"])


# -- how long it takes


def test_time_is_tried_without_training_anything_that_is_kept(scene, tmp_path):
    bench = bench_of(scene, folder=tmp_path)
    pace = try_pace(bench, seconds=0.2)
    assert 0.0 < pace.training < 60.0 and 0.0 < pace.asking < 60.0
    assert not list(tmp_path.iterdir())


def test_what_is_left_is_expected_to_take_as_long_as_what_was_done(scene, tmp_path):
    run, _ = prepare(bench_of(scene, folder=tmp_path), ["argmax", "relabel-5", "prune-30", "near-duplicates-10"])
    pace = Pace(training=10.0, asking=1.0)
    whole = seconds_left(run, pace)
    assert whole == pytest.approx(sum(pace.of(job.name) for job in run.jobs)) and seconds_left(run) is None
    assert (
        work_of("relabel-5")[0] == 5.0 and work_of("near-duplicates-10")[1] == 13.0 and work_of("prune-30") == (0, 0)
    )
    for name in ("baseline", "nothing", "innocent"):
        append_line(run.lines, {"job": name, "seconds": 3.0 * pace.of(name)})
    left = whole - sum(pace.of(name) for name in ("baseline", "nothing", "innocent"))
    assert seconds_left(run, pace) == pytest.approx(3.0 * left), "three times as slow as was thought"
    assert seconds_left(run) is not None
    assert questions_asked(["baseline", "nothing", "near-duplicates-10", "few-queries"], 105) == 105 + 1050 + 11


# -- files


def test_a_saved_rehearsal_is_read_again(played, tmp_path):
    for number, found in enumerate((played.found, made_up(), made_up(innocent=None, n_attacks=1))):
        found.save(tmp_path / "deep" / f"{number}.json")
        text = (tmp_path / "deep" / f"{number}.json").read_text()
        assert Rehearsal.load(tmp_path / "deep" / f"{number}.json") == found
        assert json.loads(text)["format"] == "drw-rehearsal-1" and "NaN" not in text


BROKEN = {
    "a field is missing": lambda d: d.pop("victim"),
    "a field nobody knows": lambda d: d.update(more=1),
    "a field of another type": lambda d: d.update(left_out=["argmax"]),
    "an accuracy beyond all": lambda d: d.update(served=1e9),
    "a level that is none": lambda d: d.update(level=0.0),
    "settings of another type": lambda d: d["settings"].update(rows="many"),
    "a setting that is no number": lambda d: d["settings"].update(recipe={"epochs": math.nan}),
    "no rows": lambda d: d.update(rows=[]),
    "nothing to compare with": lambda d: d["rows"].pop(0),
    "a row without its numbers": lambda d: d["rows"][1].pop("lost"),
    "a row with more": lambda d: d["rows"][1].update(more=1),
    "a p-value above 1": lambda d: d["rows"][1].update(log10_log=3.0),
    "a p-value that is no number": lambda d: d["rows"][1].update(log10_log=math.nan),
    "a stage that there is not": lambda d: d["rows"][1].update(stage="dreams"),
    "a verdict that there is not": lambda d: d["rows"][1].update(verdict="guilty"),
    "a theft with the verdict of a forgery": lambda d: d["rows"][1].update(verdict="framed"),
    "numbers of a failure": lambda d: d["rows"][1].update(verdict="failed"),
    "an innocent that is an attack": lambda d: d["innocent"].update(stage="answers"),
}


@pytest.mark.parametrize("change", BROKEN)
def test_a_file_that_does_not_hold_together_is_refused(tmp_path, change):
    document = json.loads(json.dumps(made_up().document()))
    BROKEN[change](document)
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(InvalidInputError, match=r"a\.json: .*restore the file|level="):
        Rehearsal.load(tmp_path / "a.json")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "drw-rehearsal-2"}', '{"format": "drw-evidence-1"}'])
def test_a_file_of_another_format_is_told_from_a_rehearsal(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InvalidInputError, match=r"a\.json is no rehearsal \(drw-rehearsal-1\); give a file that"):
        Rehearsal.load(tmp_path / "a.json")


# -- the picture and the page


def boxes_of(figure):
    """Where the names of attacks stand in a picture, and its dots."""
    figure.draw_without_rendering()
    axes, renderer = figure.axes[0], figure.canvas.get_renderer()
    names = [text for text in axes.texts if text.arrow_patch is not None]
    from matplotlib.text import Text

    dots = [
        axes.transData.transform(np.stack(line.get_data(), 1)) for line in axes.lines if line.get_marker() != "None"
    ]
    return axes, {text.get_text(): Text.get_window_extent(text, renderer) for text in names}, np.concatenate(dots)


@pytest.mark.parametrize(
    ("strongest", "n_attacks"), [(500.0, 80), (500.0, 5), (40.0, 62), (2.0, 62), (0.0, 20), (3e4, 62)]
)
def test_names_in_the_picture_can_be_read_whatever_the_evidence(strongest, n_attacks):
    figure = made_up(n_attacks, strongest).plot()
    axes, names, dots = boxes_of(figure)
    thefts = made_up(n_attacks, strongest).thefts
    assert len(dots) >= len(thefts) and len(names) >= min(len(thefts), 5) and "no attack" in names
    frame = axes.get_window_extent(figure.canvas.get_renderer())
    for name, box in names.items():
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1, name
        assert not [other for other, its in names.items() if other != name and box.overlaps(its)], name
        assert not (
            (box.x0 < dots[:, 0]) & (dots[:, 0] < box.x1) & (box.y0 < dots[:, 1]) & (dots[:, 1] < box.y1)
        ).any()
    inside = (frame.x0 <= dots[:, 0]) & (dots[:, 0] <= frame.x1) & (frame.y0 <= dots[:, 1]) & (dots[:, 1] <= frame.y1)
    assert inside.all(), "and every dot is there to be seen"


def test_the_cheapest_escape_has_its_name_in_the_picture(tmp_path):
    found = made_up(62, 20.0)
    figure = found.plot(tmp_path / "deep" / "picture.png")
    assert found.cheapest_escape.attack in [text.get_text() for text in figure.axes[0].texts]
    assert (tmp_path / "deep" / "picture.png").stat().st_size > 10_000


def test_the_page_tells_every_attack_and_loads_nothing(played, tmp_path):
    assert played.found.page(tmp_path / "new" / "page.html") == tmp_path / "new" / "page.html"
    page = (tmp_path / "new" / "page.html").read_text()
    words = html.unescape(re.sub(r"<[^>]+>", "", page))
    for row in played.found.rows[1:]:
        assert row.attack in words and (row.verdict == "failed" or row.title in words)
    for sentence in played.found.conclusion().split(". "):
        assert sentence.rstrip(".") in words
    assert "failed: StudentDivergedError" in words and "What this does not show" in words
    assert not re.search(r"""(?:src|href)=(?!"data:)""", page) and "<script" not in page


def test_what_an_attack_is_called_stays_text(tmp_path):
    hostile = "<script>alert(1)</script>\u202e$x^2$"
    rows = made_up().rows
    found = made_up(rows=(rows[0], dataclasses.replace(rows[1], attack=hostile, note=hostile), *rows[2:]))
    found.save(tmp_path / "a.json")
    page = Rehearsal.load(tmp_path / "a.json").page(tmp_path / "page.html").read_text()
    assert "<script" not in page and "\u202e" not in page and "⟨U+202E⟩" in page
    assert "\u202e" not in str(found)


def test_pages_of_every_kind_can_be_written(tmp_path):
    kinds = {
        "one": made_up(n_attacks=1),
        "unlabelled": made_up(innocent=None, measured="agreement with the victim", left_out={}),
        "nothing-recorded": made_up(settings={}),
        "all-escape": made_up(strongest=1.0),
    }
    for name, found in kinds.items():
        assert "The theft, rehearsed" in found.page(tmp_path / f"{name}.html").read_text()
