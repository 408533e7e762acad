"""A mark is a class and a registration: keys name it, save its settings and commit to them; models mark with it."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from drw_hf import KeyRing, WatermarkKey
from drw_hf.errors import InvalidKeyError, KeyFileError
from drw_hf.keys import MarkSettings
from drw_hf.keys.settings import MARKS
from drw_hf.watermark import Mark, register_mark
from small_models import AUTO, make_batch, make_key, make_model, make_victim

CONTRIBUTING = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
(EXAMPLE,) = [
    code for code in re.findall(r"```python\n(.*?)```", CONTRIBUTING, flags=re.S) if "@register_mark" in code
]
TASKS = ["sequence-classification", "token-classification"]


@pytest.fixture
def nudge():
    """The mark that CONTRIBUTING.md shows."""
    names = {}
    exec(EXAMPLE, names)
    yield names["NudgeMark"]
    if "nudge" in MARKS:
        MARKS.remove("nudge")


def answers(model, **options):
    with torch.no_grad():
        return model(**make_batch(), **options).logits


@pytest.mark.parametrize("task", TASKS)
def test_a_model_marks_with_it(nudge, task):
    victim = make_victim(task, mark="nudge", push=0.7)
    with victim.watermark_disabled():
        moved = answers(victim)
    moved[..., victim.key.target] += 0.7
    torch.testing.assert_close(answers(victim), moved.log_softmax(-1))
    hard = make_victim(task, mark="nudge", push=0.7, label_kind="hard")
    assert torch.equal(answers(hard).argmax(-1), moved.argmax(-1)), "the class of highest ŷ: nothing is drawn"


@pytest.mark.parametrize("task", TASKS)
def test_rows_with_other_keys_other_marks_and_users_of_a_ring_are_marked_as_if_they_were_alone(nudge, task):
    model = make_model(task)
    for label_kind in ("soft", "hard"):
        victim = make_victim(task, model=model, mark="nudge", label_kind=label_kind)
        papers = make_key(model, scope="all", secret=b"\x02" * 32)
        keys = [victim.key, papers, victim.key.replace(push=3.0), papers.replace(special_token_ids=(0, 1, 2, 3))]
        alone = [answers(victim, watermark_key=key)[row] for row, key in enumerate(keys)]
        torch.testing.assert_close(answers(victim, watermark_key=keys), torch.stack(alone))
    ring = KeyRing(victim.key)
    served = AUTO[task][1].from_model(model, key=ring)
    torch.testing.assert_close(
        answers(served, user=["ann", "bob", "ann", "eve"]), answers(served, watermark_key=victim.key)
    )


def test_its_name_and_settings_are_saved_and_committed_to(nudge, tmp_path):
    key = make_key(make_model(), mark="nudge", push=0.25)
    assert (key.mark, key.settings.push) == ("nudge", 0.25)
    assert len({key.commitment(), key.replace(push=0.5).commitment(), make_key(make_model()).commitment()}) == 3
    key.save_pretrained(tmp_path / "key", passphrase="words")
    again = WatermarkKey.from_pretrained(tmp_path / "key", passphrase="words")
    assert again == key and type(again.settings) is type(key.settings)
    ring = KeyRing(key)
    ring.save_pretrained(tmp_path / "ring")
    assert KeyRing.from_pretrained(tmp_path / "ring").key_for("ann") == ring.key_for("ann")
    assert ring.key_for("ann").settings.push == 0.25
    MARKS.remove("nudge")
    for load, folder in ((WatermarkKey, "key"), (KeyRing, "ring")):
        with pytest.raises(KeyFileError, match=r"no mark 'nudge'.*update drw_hf, or import the module"):
            load.from_pretrained(tmp_path / folder, passphrase="words" if folder == "key" else None)


def test_keys_of_the_papers_mark_do_not_name_it():
    assert "mark" not in make_key(make_model())._fields()[0]


def test_a_wrong_option_is_named():
    for make in (WatermarkKey.generate, KeyRing.generate):
        with pytest.raises(TypeError, match="push"):
            make(make_model(), target=1, special_token_ids=[0], push=0.2)
    with pytest.raises(TypeError, match="epsilonn"):
        make_key(make_model(), epsilonn=0.2)
    with pytest.raises(TypeError, match="epsilonn"):
        make_key(make_model()).replace(epsilonn=0.2)
    with pytest.raises(TypeError, match="revison"):
        WatermarkKey.from_pretrained("key", revison="main")


def test_a_mark_must_be_known_and_get_its_own_settings(nudge):
    with pytest.raises(InvalidKeyError, match=r"no mark 'nothing'.*cosine"):
        make_key(make_model(), mark="nothing")
    key = make_key(make_model())
    with pytest.raises(InvalidKeyError, match="NudgeSettings"):
        key.replace(settings=MarkSettings(mark="nudge", target=1))


def test_every_setting_of_a_mark_can_be_committed_to(nudge):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Shadowing(MarkSettings):
        labels: tuple = ("q", "r")
        arrays: float = 1.0

    with pytest.raises(InvalidKeyError, match=r"Shadowing has settings named \['arrays', 'labels'\]"):
        register_mark(type("Shadow", (nudge,), {"name": "shadow", "settings_class": Shadowing}))
    assert "shadow" not in MARKS
    with pytest.raises(InvalidKeyError, match="push is a float32, which cannot be saved in a key"):
        make_key(make_model(), mark="nudge", push=np.float32(0.5))
    key = make_key(make_model())
    assert key.replace(vocab_size=np.int64(64)).commitment() == key.commitment()


def test_a_mark_may_do_without_a_target_class(nudge):
    with pytest.raises(InvalidKeyError, match="target=None"):
        make_key(make_model(), target=None, mark="nudge")
    nudge.has_target = False
    assert make_key(make_model(), target=None, mark="nudge").target == 0
    assert WatermarkKey.generate(make_model(), special_token_ids=[0], mark="nudge").target == 0
    assert make_key(make_model(), target="positive", mark="nudge").target == 1


def test_a_mark_may_refuse_settings_and_a_name_is_given_once(nudge):
    class Picky(nudge):
        name = "picky"

        def check(self, settings, binding):
            if binding.task != "token-classification":
                raise InvalidKeyError("picky marks taggers alone")

    register_mark(Picky)
    try:
        assert register_mark(Picky) is Picky, "the same class again does nothing"
        with pytest.raises(InvalidKeyError, match="taggers alone"):
            make_key(make_model(), mark="picky")
        with pytest.raises(InvalidKeyError, match="choose another name"):
            register_mark(type("Other", (Picky,), {}))
    finally:
        MARKS.remove("picky")
    assert issubclass(nudge, Mark) and dataclasses.is_dataclass(nudge.settings_class)
