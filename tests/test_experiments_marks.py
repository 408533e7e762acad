"""The experiments with marks: who gets which rows, what thieves do, what is served, and a run in small."""

import dataclasses
import json

import datasets
import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from drw_hf.asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from drw_hf.asking.models import PROTECTED
from drw_hf.detection.probing import Probe
from drw_hf.errors import DatasetError
from drw_hf.experiments import draws, margins, marks, recovery, tradeoff
from drw_hf.experiments.marks_case import Case
from drw_hf.experiments.marks_jobs import OTHER_KEY, Job, make_jobs
from drw_hf.experiments.marks_report import report
from drw_hf.experiments.marks_settings import load_settings, split
from drw_hf.experiments.marks_thieves import ATTACKED, GOLD, HARD, SECOND, SOFT, STUDENTS, debias, prune, without_lean
from drw_hf.experiments.marks_work import WHERE, Workshop, labels_alone
from drw_hf.experiments.profiles import Encoder, Training
from drw_hf.experiments.tasks import load_corpus
from drw_hf.runs.jobs import Run, work_through
from drw_hf.runs.lines import append_line, read_lines
from drw_hf.watermark.tilt import settings_of
from paper_data import write_paper_data
from small_models import make_model, make_tokenizer

ROWS = {"victim": 60, "queries": 40}
STUDENTS_OF_RUN = (SOFT, HARD, "debiasing", "fine-tuning", "pruning", SECOND, GOLD)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
        load_corpus.cache_clear()
        yield write_paper_data(folder, train=200, validation=60, test=60)


# -- rows


def test_nobody_gets_a_text_that_another_has(data):
    parts = split(load_corpus("pos", data), ROWS)
    texts = [{json.dumps(row).lower() for row in part["tokens"]} for part in (parts.victim, parts.queries)]
    texts += [{json.dumps(row).lower() for row in part["tokens"]} for part in (parts.calibration, parts.unseen)]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert [len(parts.victim), len(parts.queries)] == [60, 40]
    assert parts.others is parts.calibration
    assert parts.evaluated_on("unseen").train is parts.victim


def test_the_same_rows_are_dealt_out_each_time_and_all_parts_may_be_numbered(data):
    rows = {**ROWS, "calibration": 20, "unseen": 30, "others": 10}
    one, two = (split(load_corpus("sst2", data), rows) for _ in range(2))
    for part, count in rows.items():
        assert getattr(one, part)["sentence"][:] == getattr(two, part)["sentence"][:]
        assert len(getattr(one, part)) == count


def test_more_rows_than_there_are_texts_are_refused(data):
    with pytest.raises(DatasetError, match="different texts, 1000 are wanted"):
        split(load_corpus("pos", data), {"victim": 1000})


# -- jobs


def test_every_job_comes_after_those_it_needs_and_has_a_name_of_its_own():
    jobs = make_jobs(list(load_settings("encoder").values()))
    names = [job.name for job in jobs]
    assert len(set(names)) == len(names)
    for place, job in enumerate(jobs):
        assert set(job.needs) <= set(names[:place])


def test_settings_with_a_pretrained_encoder_have_all_seeds_of_soft_and_hard_students_and_one_of_the_others():
    assert not any(setting.encoder.pretrained for setting in load_settings().values())
    settings = load_settings("encoder")
    students = [job for job in make_jobs([settings["clinc150-pretrained"]]) if job.kind == "student"]
    seeds = {name: [job.seed for job in students if job.student == name] for name in STUDENTS}
    assert seeds.pop(SOFT) == seeds.pop(HARD) == [1, 2, 3]
    assert seeds.keys() == set(ATTACKED) and all(found == [1] for found in seeds.values())


def test_of_two_classes_nobody_subtracts_the_smallest_score():
    settings = load_settings()
    assert not any(job.student == "floor" for job in make_jobs([settings["sst2-tiny"]]))
    assert any(job.student == "floor" for job in make_jobs([settings["pos-tiny"]]))


# -- thieves


def test_debiasing_moves_every_groups_mean_log_odds_to_that_of_its_class():
    rng = np.random.default_rng(0)
    tokens, m = rng.integers(0, 30, 2000), 5
    answers = rng.dirichlet(np.full(m, 0.3), 2000)
    made = without_lean(answers, [[token] for token in tokens], damping=0.0)
    np.testing.assert_allclose(made.sum(axis=1), 1.0)
    top = answers.argmax(axis=1)
    before, after = (logit(np.take_along_axis(y, top[:, None], 1)[:, 0].clip(1e-6, 1 - 1e-6)) for y in (answers, made))
    for c in range(m):
        for token in range(30):
            group = (top == c) & (tokens == token)
            if group.any():
                assert after[group].mean() == pytest.approx(before[top == c].mean(), abs=0.01)
    rest = np.arange(m) != top[:, None]  # the others share what is left as before
    shares = [y[rest].reshape(2000, m - 1) / (y * rest).sum(axis=1, keepdims=True) for y in (answers, made)]
    np.testing.assert_allclose(*shares, atol=1e-9)


def test_debiasing_a_sentence_takes_a_tilt_of_its_words_off_where_they_occur_often():
    rng = np.random.default_rng(1)
    tilt = rng.normal(size=20)
    tokens = [rng.choice(20, 4, replace=False) for _ in range(3000)]
    p = expit(rng.normal(3.0, 0.3, 3000) + np.array([tilt[row].sum() / 2 for row in tokens]))
    made = without_lean(np.stack([1 - p, p], axis=1), tokens, damping=1.0)
    lean = [np.corrcoef(logit(y), [tilt[row].sum() for row in tokens])[0, 1] for y in (p, made[:, 1])]
    assert lean[0] > 0.5 and abs(lean[1]) < 0.1


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_answers_that_carry_no_mark_or_were_not_given_stay_as_they_were(task, tmp_path):
    words = {"tokens": [["the", "film"], ["a", "dull", "book"]]}
    rows = datasets.Dataset.from_dict(words if "token" in task else {"text": ["the film", "a dull book"]})
    labelled = label_with_teacher(make_model(task), rows, make_tokenizer(), progress=False, cache_dir=tmp_path)
    tokens = [[-1, 7], [8, -1, 7]] if "token" in task else [[], [7, 8]]
    made = debias(labelled, tokens)
    assert made.features == labelled.features
    before, after = (np.asarray(part[PROBABILITIES][0]) for part in (labelled, made))
    kept = (before[:1], after[:1]) if "token" in task else (before, after)
    np.testing.assert_allclose(*kept, rtol=1e-6)
    assert made[LABELS][0] == np.asarray(after).argmax(-1).tolist()


def test_pruning_sets_the_smallest_weights_of_every_matrix_to_zero():
    model = make_model("sequence-classification")
    before = [weights.detach().clone() for weights in model.parameters()]
    prune(model, 0.6)
    for old, new in zip(before, model.parameters(), strict=True):
        if old.ndim == 2:
            assert (new == 0).float().mean().item() == pytest.approx(0.6, abs=2 / old.numel() + 0.01)
            assert old[new == 0].abs().max() <= new[new != 0].abs().min()
        else:
            torch.testing.assert_close(old, new.detach())


# -- a run


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A tagger's victim and some of its students, too small to carry a mark."""
    folder = tmp_path_factory.mktemp("run")
    training = Training(epochs=3, learning_rate=1e-2, batch_size=16)
    short = dataclasses.replace(training, epochs=1)
    changes = {"rows": ROWS, "victim": training, "student": short, "student_width": 16, "attacked": (1,)}
    changes["encoder"] = Encoder(layers=1, width=32, heads=2, vocabulary=400, max_length=32)
    setting = dataclasses.replace(load_settings()["pos-tiny"], **changes)
    jobs = [job for job in make_jobs([setting], seeds=[1]) if job.student in ("", OTHER_KEY, *STUDENTS_OF_RUN)]
    made = Run(Workshop({setting.name: setting}, folder / "work", data), jobs, folder / "marks.jsonl")
    made.prepare()
    work_through(made)
    made.check_finished()
    return made, setting


def test_every_job_leaves_a_line(run):
    made, _ = run
    lines = {record["job"]: record for record in read_lines(made.lines)}
    assert lines.keys() == {"settings", *(job.name for job in made.jobs)}
    for record in lines.values():
        if record.get("kind") == "score":
            assert {where: len(record[where]) for where in WHERE} == {"queries": 4, "unseen": 4}
        if record.get("kind") == "student":
            assert 0 <= record["accuracy, unseen"] <= 100


def test_nothing_of_a_key_is_in_the_lines_nor_in_the_folder(run):
    made, setting = run
    secret = made.workshop.key(setting, 1).secret
    files = [made.lines, *(file for file in made.workshop.folder.rglob("*") if file.is_file())]
    for file in files:
        content = file.read_bytes()
        assert secret not in content and secret.hex().encode() not in content, file.name


def test_a_key_has_the_temperature_and_strength_that_were_chosen_for_the_budget(run):
    made, setting = run
    victim = next(record for record in read_lines(made.lines) if record.get("kind") == "victim")
    settings = settings_of(made.workshop.key(setting, 1))
    assert (settings.strength, settings.temperature) == (victim["strength"], victim["temperature"])
    assert settings.budget == 0.3 and victim["cost"]["expected_cost"] <= 0.3
    assert made.workshop.key(setting, 1).secret != made.workshop.key(setting, 2).secret


def test_what_is_served_is_judged_for_every_number_of_digits_and_rounding_changes_no_label(run):
    made, _ = run
    served = next(record for record in read_lines(made.lines) if record.get("kind") == "served")
    assert list(served["digits"]) == ["unrounded", "1", "2", "3", "4", "5", "6"]
    assert served["soft"] == served["hard"]
    assert served["hard"]["cost"] == pytest.approx(served["cost"]["measured_cost"], abs=1e-6)
    unrounded, six = served["digits"]["unrounded"], served["digits"]["6"]
    assert six["log_loss"] == pytest.approx(unrounded["log_loss"], abs=1e-3)


def test_probes_are_kept_and_may_be_tested_by_their_labels_alone(run):
    made, setting = run
    probe = Probe.load(made.workshop.path(Job("student", setting.name, SOFT, 1)) / "unseen.npz")
    assert probe.victim is not None and probe.gold is not None
    labels = labels_alone(probe)
    assert labels.kind == "labels" and (labels.suspect.argmax(1) == probe.suspect.argmax(1)).all()


def test_hard_answers_are_the_argmax_of_the_soft_ones(run):
    made, setting = run
    workshop, rows = made.workshop, made.workshop.parts(setting).queries
    victim, key = workshop.load(Job("victim", setting.name)), workshop.key(setting, 5)
    served = [PROTECTED[key.task].from_model(victim, key=key, label_kind=kind) for kind in ("soft", "hard")]
    soft, hard = (workshop.answers(setting, teacher, rows)[LABELS][:] for teacher in served)
    assert soft == hard


def test_scores_are_made_anew_from_the_probes(run, tmp_path):
    made, _ = run
    lines = tmp_path / "marks.jsonl"
    lines.write_bytes(made.lines.read_bytes())
    marks.forget_scores(lines)
    again = dataclasses.replace(made, lines=lines)
    assert {job.kind for job in again.open_jobs()} == {"score"}
    work_through(again)
    again.check_finished()


def test_a_student_of_another_budget_is_tested_like_the_others(run):
    made, setting = run
    found = tradeoff.measure(made.workshop, setting, "hard", budget=2.0, share=0.25, seed=1)
    assert found["strength"] > settings_of(made.workshop.key(setting, 1)).strength
    assert found["queries"].keys() == {"accuracy", "0.25 of the texts"}
    few, all_of_them = (found["unseen"][f"{share} of the texts"]["scores"] for share in ("0.25", "1"))
    assert few["n_probes"] < all_of_them["n_probes"] and few["n_tokens"] < all_of_them["n_tokens"]


def test_a_thief_recovers_erases_and_frames(run):
    made, setting = run
    case = Case(made.workshop, setting)
    found = recovery.measure_recovery(case, digits=3, n_texts="one-word texts")
    assert found["texts"] == found["answers"] >= found["with gold labels"]["words"] > 100
    whole, faint = (recovery.measure_fainter(case, times=times, digits=0, n_texts=10**6) for times in (1.0, 0.25))
    assert whole["without labels"]["all words"] > faint["without labels"]["all words"], "a fainter mark tells less"
    erased = recovery.measure_erasure(case, digits=0, with_gold=True, times=1.0)
    assert all(erased[where].keys() == {"accuracy", "scores", "labels"} for where in WHERE)


@pytest.mark.parametrize("thief", [margins.VOTES, margins.RELABELS[2], margins.MIXES, *list(margins.ASKS)[::2]])
def test_thieves_of_hard_answers_leave_a_student_and_a_log(run, thief):
    made, setting = run
    case = Case(made.workshop, setting, 1, budget=3.0, margin_budget=1.5)
    found = margins.measure_student(case, thief)
    assert found["margin"] > 0.0 and found["log"]["scores"]["mismatches"] == 0
    assert found["log"]["scores"].keys() >= {"both", "tilt", "margin"} and found["log"]["labels"]["margin"]["n"] > 0
    assert ("in common" in found) == (thief in margins.ASKS)
    n_logged = found["log"]["scores"]["logged"]
    assert (n_logged < 100) == (thief == margins.MIXES), "only what was asked is in the log"
    assert margins.measure_student(case, thief) == found, "what was trained is kept, for tests to be done anew"


def test_what_hard_answers_with_draws_cost_is_expected_and_counted(run):
    made, setting = run
    found = margins.measure_cost(Case(made.workshop, setting, 1, budget=3.0, margin_budget=1.5))
    assert found["drawn"]["expected_cost"] > 0.0 and found["measured_error"] > 0.0
    together = found["tilt"]["measured_cost"] + found["drawn"]["measured_cost"]
    assert abs(found["measured"] - together) < 4.0 * found["measured_error"], "counted, and averaged over the draws"


def test_words_are_put_in_somewhere_or_everywhere_and_their_answers_taken_out(run):
    made, setting = run
    case = Case(made.workshop, setting)
    texts = datasets.Dataset.from_dict({"tokens": [["a", "b", "c", "d", "e"], ["f"]]})
    for step, lengths in ((None, [6, 2]), (4, [7, 2])):
        variants = margins.with_inserted_words(case, texts, 0, step)
        rows = variants.rows["tokens"][:]
        assert [len(row) for row in rows] == lengths
        numbered = [[ord(word[0]) for word in row] for row in rows]
        assert variants.without(numbered) == [[ord(word) for word in row] for row in texts["tokens"]]


@pytest.mark.parametrize("thief", [draws.ASKED, draws.POINTS, draws.MANY])
def test_what_rules_of_drawing_leave_to_who_asks_variants(run, thief):
    made, setting = run
    case = Case(made.workshop, setting, 1, budget=3.0, margin_budget=1.5)
    found = draws.measure(case, thief)["rules"]
    assert found.keys() == draws.RULES.keys()
    times = {"1"} if thief == draws.ASKED else {"1", "3", "10"}
    assert all(of_rule.keys() == times for of_rule in found.values())
    whole, little = found[draws.WHOLE]["1"], found[draws.LITTLE]["1"]
    if thief == draws.ASKED:
        assert whole["kept"] == little["kept"] == 1.0 and min(whole["z"], little["z"]) > 3.0, "who repeats them all"
    elif thief == draws.POINTS:
        assert little["kept"] > whole["kept"], "a comma draws a whole text anew, or two words of it"


def test_canonical_ids_know_no_case_and_no_punctuation():
    class Tokenizer(dict):
        def get_vocab(self):
            return dict(self)

    found = draws.canonical_ids(Tokenizer({"Film": 0, "film": 1, ",": 2, "##ed": 3, "FILM": 4}))
    assert found.tolist() == [0, 0, -1, 3, 0]


def test_majorities_and_what_others_contradict():
    assert margins.majority_per_word([["a", "b"], ["a", "a"]], [[1, 2], [0, 1]]) == [[1, 2], [1, 1]]
    assert margins.majority([[1, 2], [1, 0], [0, 0]]) == [1, 0]
    assert margins.majority([[[1, -1]], [[1, -1]], [[0, 2]]]) == [[1, 2]]
    assert margins.cleaned(1, 0) == -1 and margins.cleaned([1, 2], [1, 0]) == [1, -1]


def test_the_report_of_margins_has_a_row_per_thief_and_its_cost(run, tmp_path):
    part = {"z": 5.0, "log10_bound": -5.0, "n": 9}
    log = {form: dict.fromkeys(("both", "tilt", "margin"), part) for form in ("scores", "labels")}
    unseen = {"scores": {"z": 2.0}}
    about = {"what": "student", "setting": "pos-tiny", "seed": 1, "accuracy": 80.0, "log": log, "unseen": unseen}
    costs = {"expected_cost": 0.1, "standard_error": 0.01, "drawn": 0.05}
    cost = {"what": "cost", "setting": "pos-tiny", "who": "", "seed": 1, "strength": 0.3, "margin": 0.2}
    cost |= {"tilt": costs, "drawn": costs, "measured": 0.2, "measured_error": 0.03}
    lines = tmp_path / "margins.jsonl"
    innocent = {**about, "what": "innocent", "who": "gold"}
    del innocent["unseen"], innocent["accuracy"]
    for record in (cost, {**about, "who": "nothing"}, {**about, "who": "asks", "in common": log}, innocent):
        append_line(lines, record)
    text = margins.report(lines)
    assert "| POS, tiny | nothing | 1 | 80.0 | 5.0 | 5.0 | 5.0 |" in text and "asks: the texts in common" in text
    assert "| POS, tiny | innocent: gold | 1 | — |" in text and "0.20 ± 0.03" in text
    assert "nan" not in text, "what was not measured has no figure"
    goals = text.partition("## Goals")[2].partition("##")[0]
    assert "yes: expected 0.20, measured 0.20 ± 0.03" in goals and "**no**: 1 seeds, worst 1e-5" in goals
    assert "**no**: 0 of 1 students (of 1), worst 1e-5 (asks)" in goals and "yes: 1.00 of it" in goals


def test_the_report_names_every_student_and_judges_every_goal(run):
    made, _ = run
    text = report(made.lines)
    for title in [*(STUDENTS[name].title for name in STUDENTS_OF_RUN), OTHER_KEY, "POS, tiny"]:
        assert title in text
    goals = text.partition("## Goals")[2].partition("##")[0]
    assert goals.count("\n| cost") == 2 and "every attack" in goals


def test_a_report_of_the_first_lines_has_no_gaps_that_break_it(run, tmp_path):
    made, _ = run
    lines = tmp_path / "marks.jsonl"
    for record in read_lines(made.lines):
        append_line(lines, record)
        assert report(lines).startswith("Tilt")
