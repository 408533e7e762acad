"""Every registered attack, played: on texts, pairs and taggers, with scores and with labels, on odd texts too."""

import dataclasses
import gc

import numpy as np
import pytest
import torch

from drw_hf.errors import DatasetError, InvalidInputError, StudentDivergedError
from drw_hf.extraction.attacks import ATTACKS, STAGES, Attack, attack_named, register_attack
from drw_hf.extraction.attacks.training import OutOfFold
from drw_hf.extraction.stolen import answers_in
from drw_hf.extraction.thief import Thief
from small_models import make_lively
from small_thief import RECIPE, SmallService, make_texts

AFTER = ("student", "suspect")  # attacks that begin when a student is there
TRAINING = [name for name in ATTACKS if attack_named(name).stage in (*AFTER, "training", "forgery")]


@pytest.fixture(scope="module", autouse=True)
def quick_collection():
    """A training ends with a full garbage collection: a second here for what other tests left behind."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("thieves")


def thief_of(case, label_kind, folder, mark="tilt"):
    """A thief whose folder is shared by all attacks on the same service."""
    service = SmallService(case, label_kind, mark)
    folder = folder / f"{case} {label_kind} {mark}"
    folder.mkdir(exist_ok=True)
    return service.thief(folder=folder)


def is_fit(name, thief):
    return attack_named(name).unfit(thief.task, thief.label_kind, len(thief.labels)) is None


def play(name, thief):
    """The student of an attack, as a rehearsal makes it."""
    attack = attack_named(name)
    if attack.stage in AFTER:
        return attack.alter(thief.kept("nothing", lambda: attack_named("nothing").steal(thief)), thief)
    return attack.steal(thief)


def assert_distributions(answers):
    """Each is a distribution, or zeros where nothing was answered."""
    table = np.concatenate([np.atleast_2d(answer) for answer in answers if answer.size])
    assert np.isfinite(table).all() and (table >= 0).all()
    sums = table.sum(axis=1)
    assert (np.isclose(sums, 1.0, atol=1e-4) | (sums == 0)).all() and (sums > 0).any()


@pytest.mark.parametrize("name", list(ATTACKS))
def test_every_attack_on_a_classifier_ends_with_a_student_that_answers(name, folder):
    thief = thief_of("texts", "soft", folder)
    if not is_fit(name, thief):
        thief = thief_of("tags", "soft", folder)
    student = play(name, thief)
    answers = answers_in(thief.answers_of(student, thief.others))
    assert_distributions(answers)
    attack, asked = attack_named(name), sum(map(len, thief.log))
    if attack.changes_what_is_served:
        table = np.concatenate([np.atleast_2d(answer) for answer in answers])
        served = attack.answer(table[table.any(axis=1)], np.random.default_rng(0))
        assert served.shape == (table.any(axis=1).sum(), len(thief.labels))
        assert np.isin(served.sum(axis=1).round(6), (0, 1)).all()
    if attack.stage in AFTER or attack.stage == "forgery":
        assert asked in (0, len(thief.texts))
    elif name not in ("single-words", "join-texts", "word-salad"):
        per_account = attack.questions / attack.accounts if attack.stage == "training" else attack.questions
        assert asked == pytest.approx(per_account * len(thief.texts), abs=12)


@pytest.mark.parametrize("case", ["tags", "pairs", "texts hard", "tags hard", "pairs cosine"])
def test_whatever_is_asked_and_changed_can_be_learnt_from(case, folder):
    case, *rest = case.split()
    thief = thief_of(case, "hard" if "hard" in rest else "soft", folder, "cosine" if "cosine" in rest else "tilt")
    for name in ATTACKS:
        if not is_fit(name, thief) or name in TRAINING:
            continue
        attack = attack_named(name)
        thief.log.clear()
        rows = attack.change(attack.ask(thief), thief)
        if name == "drop-uncertain" and not len(rows):  # this service is never sure
            continue
        assert_distributions(answers_in(rows))
        assert set(thief.columns) < set(rows.column_names), name
        assert len(thief.log) >= 1, name


@pytest.mark.parametrize("case", ["tags", "pairs hard"])
def test_students_of_taggers_and_of_pairs_are_trained_and_altered(case, folder):
    case, *rest = case.split()
    thief = thief_of(case, "hard" if rest else "soft", folder)
    # What differs by the kind of service: who reads answers, folds them, mixes them, or asks students again.
    names = ["relabel-2", "gold-20", "three-accounts", "second-generation", "with-innocent", "other-architecture"]
    for name in [*names, *["frame-innocent"] * (not rest)]:
        assert_distributions(answers_in(thief.answers_of(play(name, thief), thief.others)))


@pytest.mark.parametrize("name", list(ATTACKS))
def test_an_attack_says_what_it_does_and_what_it_needs(name):
    attack = attack_named(name)
    assert attack.name == name and attack.stage in STAGES
    assert attack.title and not attack.title.endswith(".") and attack.needs
    assert (attack.gold > 0) == ("right labels" in attack.needs)
    assert attack.questions >= 0 and attack.trainings >= 0 and set(attack.label_kinds) <= {"soft", "hard"}


# -- bad input


def test_an_attack_that_nobody_knows_is_refused_with_those_there_are():
    with pytest.raises(InvalidInputError, match=r"no attack 'magic'; choose one of .*'argmax'.*register_attack adds"):
        attack_named("magic")


def test_what_makes_no_sense_against_a_service_says_why():
    assert "it needs soft answers" in attack_named("debias").unfit("sequence-classification", "hard", 3)
    assert "token-classification" in attack_named("vote-per-word").unfit("sequence-classification", "soft", 3)
    assert "leaves the argmax" in attack_named("floor").unfit("sequence-classification", "soft", 2)
    assert attack_named("floor").unfit("sequence-classification", "soft", 3) is None


def test_a_student_that_diverges_says_so():
    thief = SmallService().thief(recipe=dataclasses.replace(RECIPE, learning_rate=1e38))
    with pytest.raises(StudentDivergedError, match=r"a student diverged .*try a smaller learning rate than 1e\+38"):
        thief.innocent()


class Unlucky(Thief):
    """Whose students begin, with all seeds but one, where nothing that they read changes what they say."""

    lucky = 2

    def new_student(self, seed=None):
        student = super().new_student(seed)
        self.seeds = [*getattr(self, "seeds", []), seed]
        if len(self.seeds) == self.lucky:
            make_lively(student.model, self.tokenizer, self.texts["text"][:20])
        else:
            torch.nn.init.zeros_(student.model.classifier.weight)
        return student


@pytest.mark.parametrize("lucky, tries, begun", [(2, 3, 2), (1, 3, 1), (9, 3, 3), (9, 1, 1)])
def test_who_sees_that_a_student_learnt_nothing_begins_again_with_another_seed(lucky, tries, begun):
    recipe = dataclasses.replace(RECIPE, learning_rate=0.0, tries=tries)
    usual = SmallService().thief(recipe=recipe)
    given = {field.name: getattr(usual, field.name) for field in dataclasses.fields(usual)}
    thief = Unlucky(**given)
    thief.lucky = lucky
    thief.texts = make_texts("texts", n=60)
    student = thief.train(thief.ask(thief.texts))
    assert len(thief.seeds) == begun == len(set(thief.seeds))
    assert (student.model.classifier.weight.abs().sum() > 0) == (lucky <= tries), "the last one is kept"


def test_nothing_left_to_learn_from_is_an_error_that_a_rehearsal_records():
    @register_attack
    class Greedy(Attack):
        """Leaves nothing."""

        name = "leaves-nothing"

        def change(self, rows, thief):
            return thief.rows([0 * answer for answer in answers_in(rows)])

    try:
        with pytest.raises(DatasetError, match="nothing is left for a student to learn from"):
            attack_named("leaves-nothing").steal(SmallService().thief())
    finally:
        ATTACKS.remove("leaves-nothing")


def test_second_opinions_are_asked_once_for_relabelling_and_cleaning(folder):
    thief = thief_of("texts", "hard", folder)
    rows = thief.ask(thief.texts)
    relabelled = OutOfFold(2).change(rows, thief)
    assert (thief.folder / "2 folds").exists()
    cleaned = OutOfFold(2, clean=True).change(rows, thief)
    agree = [
        text
        for text, one, other in zip(rows["text"], answers_in(rows), answers_in(relabelled), strict=True)
        if one.argmax() == other.argmax()
    ]
    assert cleaned["text"][:] == agree and 0 < len(agree) < len(rows)


def test_a_student_with_another_vocabulary_is_marked_by_a_key_of_its_own():
    """Whose students start elsewhere can still make shadow marks: a key is bound to the model that carries it."""
    thief = SmallService("texts", "soft").thief(texts=make_texts("texts", 8))
    student = thief.new_student()
    assert student.model.config.vocab_size != thief.shadow.vocab_size
    clean, marked = thief.answers_of(student, thief.texts), thief.marked_by(thief.shadow, student, thief.texts)
    assert not np.allclose(np.stack(answers_in(clean)), np.stack(answers_in(marked)))
