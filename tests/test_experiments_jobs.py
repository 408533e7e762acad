"""The list of jobs, and what they are estimated to cost."""

import collections
import dataclasses
import itertools

import pytest

from drw_hf.cli.options import PaperTask, Part
from drw_hf.errors import ConfigurationError
from drw_hf.experiments import jobs
from drw_hf.experiments.costs import Costs, job_of, operations_per_token
from drw_hf.experiments.jobs import GOLD, MODES, PARTS, UNWATERMARKED, WATERMARKED, Job, Student, make_jobs
from drw_hf.experiments.profiles import Encoder, load_profile
from drw_hf.experiments.tasks import TASKS

PAPER = load_profile("paper")
ALL = list(PARTS)


def students_of(found):
    return [job.student for job in found if job.kind == "student"]


# -- what is in the list


def test_the_tables_have_ten_students_of_every_kind_fifty_a_task_for_gold_ones_serve_both_label_kinds():
    found = make_jobs(PAPER)
    kinds = collections.Counter((one.task, one.teacher, one.labels) for one in students_of(found))
    assert set(kinds.values()) == {10}
    for task in TASKS:
        assert {kind[1:] for kind in kinds if kind[0] == task} == {
            *itertools.product((WATERMARKED, UNWATERMARKED), ("soft", "hard")),
            (GOLD, "soft"),
        }
    assert len(students_of(found)) == 50 * len(TASKS)
    assert collections.Counter(job.kind for job in found) == {
        **dict.fromkeys(("victim", "accuracy"), len(TASKS)),
        **dict.fromkeys(("student", "probe", "score"), 50 * len(TASKS)),
    }


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("modes", {(labels, mode) for labels in ("soft", "hard") for mode in ("paper-code", "paper-text")}),
        ("epsilon", {(labels, epsilon) for labels in ("soft", "hard") for epsilon in jobs.EPSILONS}),
        ("category", {(labels, target) for labels in ("soft", "hard") for target in jobs.CATEGORIES}),
        ("tau", {("soft", tau) for tau in jobs.TAUS}),
        ("rule", {("soft", "rarest"), ("hard", "rarest"), ("soft", True), ("soft", "rarest", True)}),
        (
            "limits",
            {("argmax",)}
            | {("soft", "share", share) for share in jobs.SHARES}
            | {("soft", "queries", queries) for queries in jobs.QUERIES},
        ),
        ("case", {("soft", "other")}),
    ],
)
def test_an_ablation_varies_one_thing_on_watermarked_students(part, settings):
    chosen = students_of(make_jobs(PAPER, parts=[part], students=1, other_encoder=True))
    assert {student.teacher for student in chosen} == {WATERMARKED}
    assert {student.task for student in chosen} == set(PARTS[part].tasks)

    def varied(student):
        plain = Student(student.task, student.teacher)
        changes = {
            name: value
            for name, value in dataclasses.asdict(student).items()
            if name != "labels" and value != getattr(plain, name)
        }
        named = part == "limits" and itertools.chain(*changes.items())
        return (student.labels, *(named or changes.values()))

    assert {varied(student) for student in chosen} == settings
    assert len(chosen) == len(settings) * len(PARTS[part].tasks)


def test_every_job_stands_after_those_it_needs_and_has_a_name_of_its_own():
    found = make_jobs(PAPER, parts=ALL, other_encoder=True)
    names = [job.name for job in found]
    assert len(set(names)) == len(names)
    for place, job in enumerate(found):
        assert set(job.needs) <= set(names[:place]), job.name
    needs = {"victim": [], "accuracy": ["victim"], "student": ["victim"]}
    needs |= {"probe": ["victim", "student"], "score": ["victim", "probe"]}
    for job in found:
        assert [name.split()[0] for name in job.needs] == needs[job.kind]


def test_what_is_made_for_one_job_overwrites_nothing_of_another(tmp_path):
    from drw_hf.experiments.work import Workshop

    shop = Workshop(PAPER, tmp_path)
    found = [job for job in make_jobs(PAPER, parts=ALL, other_encoder=True) if job.kind in ("student", "probe")]
    assert len({shop.path(job) for job in found}) == len(found)


def test_students_that_differ_in_anything_have_different_names():
    choices = {
        "task": ("pos", "ner"),
        "labels": ("soft", "hard"),
        "seed": (1, 2),
        "mode": ("default", "paper-code"),
        "epsilon": (None, 0.1),
        "tau": (None, 0.1),
        "target": (None, "DT"),
        "rule": (None, "rarest"),
        "share": (1.0, 0.5),
        "queries": (1.0, 0.5),
        "prepended": (False, True),
        "encoder": (None, "other"),
    }
    made = [
        Student(teacher=WATERMARKED, **dict(zip(choices, values, strict=True)))
        for values in itertools.product(*choices.values())
    ]
    assert len({student.name for student in made}) == len(made) == 2 ** len(choices)


def test_the_names_are_those_of_published_lines():
    """A run goes on by them, so they stay."""
    assert Student("pos", WATERMARKED).name == "pos/watermarked/soft/default/seed=1"
    assert Student("ner", WATERMARKED, "hard", 3, epsilon=0.05).name == (
        "ner/watermarked/hard/default/epsilon=0.05/seed=3"
    )
    assert Student("sst2", GOLD, seed=2).name == "sst2/gold/seed=2"
    assert Student("sst2", UNWATERMARKED, "hard").name == "sst2/unwatermarked/hard/seed=1"
    gold = Student("pos", GOLD)
    assert Job("score", "pos", gold, dataclasses.replace(gold, mode="paper-text")).name == (
        "score pos/gold/seed=1 by paper-text"
    )
    assert Job("victim", "pos").name == "victim pos"


def test_all_tasks_have_their_first_seed_before_any_has_its_second():
    seeds = [student.seed for student in students_of(make_jobs(PAPER))]
    assert seeds == sorted(seeds)
    first = [student.task for student in students_of(make_jobs(PAPER)) if student.seed == 1]
    assert set(first) == set(TASKS)


def test_parts_share_what_they_have_in_common():
    together = make_jobs(PAPER, parts=["tables", "tau", "tau", "limits"])
    apart = {job.name for part in ("tables", "tau", "limits") for job in make_jobs(PAPER, parts=[part])}
    assert {job.name for job in together} == apart


def test_fewer_tasks_and_students_may_be_asked_for():
    found = make_jobs(PAPER, tasks=["mrpc"], students=2)
    assert {job.task for job in found} == {"mrpc"} and len(students_of(found)) == 10
    shorter = dataclasses.replace(PAPER, students=3, ablated=2)
    assert len(students_of(make_jobs(shorter, parts=["tables"], tasks=["ner"]))) == 15
    assert len(students_of(make_jobs(shorter, parts=["tau"], tasks=["ner"]))) == 2 * len(jobs.TAUS)


def test_with_modes_the_innocent_are_scored_by_the_other_modes_keys_too():
    found = make_jobs(PAPER, parts=["tables", "modes"], tasks=["pos"], students=2)
    by = collections.Counter((job.student.teacher, job.key_of.mode) for job in found if job.key_of)
    assert by == {
        (teacher, mode): 2 * kinds
        for teacher, kinds in ((GOLD, 1), (UNWATERMARKED, 2))
        for mode in ("paper-code", "paper-text")
    }
    assert not [job for job in make_jobs(PAPER, tasks=["pos"]) if job.key_of]
    for job in found:
        if job.key_of:
            assert job.key_of == dataclasses.replace(job.student, mode=job.key_of.mode)
            assert Job("probe", "pos", job.student).name in job.needs, "the answers are the same ones"


def test_the_case_study_has_one_student_of_the_other_encoder():
    (student,) = students_of(make_jobs(PAPER, parts=["case"], other_encoder=True))
    assert (student.task, student.encoder) == ("ner", "other")


# -- what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ["tables", "figures"]}, r"parts \['figures'\] are not known; choose some of \['tables', 'modes'"),
        ({"parts": []}, "choose some of"),
        ({"tasks": ["qa"]}, r"the profile paper has the tasks .*; not \['qa'\]"),
        ({"parts": ["case"]}, "another encoder than its victim's; name it with --other-encoder"),
        ({"parts": ["tau", "limits"], "tasks": ["pos"]}, r"nothing to do: .* tau: \['mrpc', 'ner'\], limits: \['ner'"),
    ],
)
def test_what_makes_no_list_is_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        make_jobs(PAPER, **options)


def test_a_task_that_the_profile_leaves_out_is_refused():
    with pytest.raises(ConfigurationError, match=r"the profile tiny has the tasks .*; not \['mrpc'\]"):
        make_jobs(load_profile("tiny"), tasks=["mrpc"])


def test_the_command_line_offers_the_same_parts_and_tasks():
    assert [part.value for part in Part] == ALL
    assert {task.value for task in PaperTask} == set(TASKS)


def test_modes_and_kinds_are_all_known():
    found = make_jobs(PAPER, parts=ALL, other_encoder=True)
    assert {job.kind for job in found} == set(jobs.KINDS)
    assert {student.mode for student in students_of(found)} == set(MODES)


# -- costs

COSTS = Costs(PAPER, {"ner": (1000, 100), "sst2": (1000, 100)}, {"ner": 10.0, "sst2": 10.0})


def with_epochs(epochs):
    settings = PAPER.settings["ner"]
    training = dataclasses.replace(settings.student, epochs=epochs)
    changed = {**PAPER.settings, "ner": dataclasses.replace(settings, victim=training, student=training)}
    return dataclasses.replace(COSTS, profile=dataclasses.replace(PAPER, settings=changed))


STUDENT = Job("student", "ner", Student("ner", WATERMARKED))


@pytest.mark.parametrize("job", [Job("victim", "ner"), STUDENT, Job("student", "ner", Student("ner", GOLD))])
def test_training_costs_in_proportion_to_rows_and_epochs(job):
    larger = dataclasses.replace(COSTS, rows={"ner": (3000, 300)})
    assert larger.of_job(job) == pytest.approx(3 * COSTS.of_job(job))
    one, two, three = (with_epochs(epochs).of_job(job) for epochs in (1, 2, 3))
    assert two - one == pytest.approx(three - two)
    rows = 1000 if job.kind == "victim" else 500
    assert two - one == pytest.approx(3 * rows * 10), "a step back counts as two forward; students see half the rows"


def test_longer_texts_cost_more_and_fewer_queries_save_only_the_asking():
    assert dataclasses.replace(COSTS, tokens={"ner": 20.0}).of_job(STUDENT) == 2 * COSTS.of_job(STUDENT)
    fewer = Job("student", "ner", Student("ner", WATERMARKED, queries=0.5))
    saved = COSTS.rows["ner"][0] / 4 * 10
    assert COSTS.of_job(STUDENT) - COSTS.of_job(fewer) == pytest.approx(saved), "as many steps, half the questions"


def test_every_job_costs_something():
    profile = load_profile("smoke")
    costs = Costs(profile, dict.fromkeys(TASKS, (200, 50)), dict.fromkeys(TASKS, 12.0))
    assert min(costs.of_job(job) for job in make_jobs(profile, parts=ALL, other_encoder=True)) > 0


def record_of(job, seconds):
    about = {"job": job.name, "kind": job.kind, "task": job.task, "seconds": seconds}
    return {**about, "student": job.student.settings()} if job.student else about


def test_time_is_not_known_before_a_job_has_ended_and_then_comes_from_jobs_of_its_kind():
    probe = Job("probe", "ner", STUDENT.student)
    assert COSTS.seconds([STUDENT], []) is None
    assert COSTS.seconds([STUDENT], [{"job": "settings", "profile": "paper"}]) is None
    ended = [record_of(STUDENT, 100.0), record_of(probe, 1.0)]
    assert COSTS.seconds([], ended) == 0
    assert COSTS.seconds([STUDENT, STUDENT], ended) == pytest.approx(200)
    assert COSTS.seconds([STUDENT, probe], ended) == pytest.approx(101)
    half = Job("student", "ner", Student("ner", GOLD, seed=7))
    expected = 100 * COSTS.of_job(half) / COSTS.of_job(STUDENT)
    assert COSTS.seconds([half], ended) == pytest.approx(expected), "by size, where it is not the same"


def test_a_kind_that_has_not_ended_yet_is_taken_at_the_mean_speed():
    victim = Job("victim", "ner")
    speed = COSTS.of_job(STUDENT) / 100
    assert COSTS.seconds([victim], [record_of(STUDENT, 100.0)]) == pytest.approx(COSTS.of_job(victim) / speed)


def test_lines_of_tasks_that_were_not_asked_for_say_nothing():
    other = Job("student", "pos", Student("pos", WATERMARKED))
    assert COSTS.seconds([STUDENT], [record_of(other, 100.0)]) is None


def test_a_line_says_which_job_it_is_of():
    for job in make_jobs(PAPER, parts=[part for part in ALL if part != "modes"], other_encoder=True):
        assert job_of(record_of(job, 1.0)).name == job.name
    assert job_of({"job": "settings"}) is None


def test_operations_grow_with_layers_and_with_the_square_of_the_width():
    small = Encoder(layers=2, width=128, heads=2, vocabulary=1000)
    assert operations_per_token(dataclasses.replace(small, layers=4)) == 2 * operations_per_token(small)
    assert operations_per_token(dataclasses.replace(small, width=256)) == 4 * operations_per_token(small)
    bert = operations_per_token(PAPER.encoder)
    assert bert == 2 * 12 * (4 * 768**2 + 2 * 768 * 3072), "2 for each of the 85 million weights of BERT's layers"
