"""key.fit: the strength that a budget allows, the figures beside it, and which keys it refuses."""

import dataclasses
import warnings

import numpy as np
import pytest

from drw_hf import KeyRing, WatermarkKey
from drw_hf.errors import DatasetError, DrwError, InvalidInputError, InvalidKeyError
from drw_hf.planning import TiltCosts, fit_tilt, observe_tilt_traffic
from drw_hf.planning.tilt_traffic import throwaway_keys
from drw_hf.watermark.tilt import signals
from needles import leaks_in
from small_models import SPECIAL, make_batch, make_key, make_model, make_tokenizer, make_victim
from test_tilt_costs import TASKS, TEMPERATURE, observed, tilt_key


def fresh_key(model, **settings):
    return WatermarkKey.generate(model, tokenizer=make_tokenizer(), temperature=1.0, **settings)


@pytest.fixture
def fitting():
    """A model with data to fit a key by: the arguments of fit."""
    model, data, _ = observed(TASKS[1])
    return {"model": model, "data": data, "tokenizer": make_tokenizer(), "progress": False}


# -- what it finds


@pytest.mark.parametrize("task", TASKS)
def test_a_new_key_has_the_secret_of_the_old_one_and_spends_the_budget(task):
    model, data, traffic = observed(task)
    key = fresh_key(model, tau=0.8, frequency=9.0)
    made = key.fit(model, data, make_tokenizer(), budget=0.8, progress=False)
    assert made.secret == key.secret and made.binding == key.binding and made.key_id == key.key_id
    assert made != key and key.settings.budget is None, "the old one is as it was"
    assert (made.settings.budget, made.tau, made.frequency) == (0.8, 0.8, 9.0)
    assert made.settings.temperature == pytest.approx(TEMPERATURE, rel=0.2) and made.settings.strength > 0.0
    fresh = TiltCosts(traffic, made.settings.temperature, throwaway_keys(made, 40)).at(made.settings.strength)
    assert fresh.expected_cost == pytest.approx(made.fitted.expected_cost, rel=0.7), "other keys cost about as much"


def test_the_figures_stand_beside_the_key(fitting):
    made = fresh_key(fitting["model"]).fit(**fitting, budget=0.5, keys=25)
    found = made.fitted
    assert found.settings == made.settings and found.reliable and found.used_up and found.n_keys == 25
    assert (found.strength, found.temperature, found.budget) == (
        made.settings.strength,
        made.settings.temperature,
        0.5,
    )
    assert 0.0 < found.expected_cost <= 0.5 and found.standard_error > 0.0 and found.measured_error > 0.0
    text = str(found)
    assert f"strength {found.strength:g} at temperature {found.temperature:g} (fitted), for 0.5 points" in text
    assert f"expected cost {found.expected_cost:.3f} ± {found.standard_error:.3f} points" in text
    assert f"measured cost {found.measured_cost:.3f} ± {found.measured_error:.3f} points" in text
    assert "rely" not in text and "over 25 throwaway keys" in text and f"over {found.n_texts} texts" in text
    assert fresh_key(fitting["model"]).fitted is None
    assert leaks_in(made, [("text", text.encode()), ("repr", repr(found).encode())]) == []


def test_a_measured_cost_far_from_the_expected_one_is_pointed_out(fitting):
    found = fit_tilt(**fitting)
    far = dataclasses.replace(found.cost, measured_cost=found.expected_cost + 50.0)
    assert "far from what was expected" in str(dataclasses.replace(found, cost=far))
    near = dataclasses.replace(found.cost, measured_cost=found.expected_cost)
    assert "far from what was expected" not in str(dataclasses.replace(found, cost=near))


def test_the_same_without_a_key(fitting):
    found = fit_tilt(**fitting)
    assert found.budget == 0.3 and found.settings.mark == "tilt" and found.settings.max_length == 64


def test_a_model_may_be_named_or_protected(fitting, tmp_path):
    model = fitting.pop("model")
    key = fresh_key(model)
    model.save_pretrained(tmp_path / "model")
    victim = make_victim(TASKS[1], model=model, key=tilt_key(model, strength=3.0))
    victim.save_pretrained(tmp_path / "protected")
    fitting["tokenizer"].save_pretrained(tmp_path / "protected")
    expected = key.fit(model, **fitting).settings.temperature
    for other in (str(tmp_path / "model"), str(tmp_path / "protected"), victim):
        assert key.fit(other, **fitting).settings.temperature == expected, "without its mark"


def test_a_model_that_is_very_sure_gets_the_largest_strength():
    model, data, traffic = observed(TASKS[0])
    data = data.remove_columns("label").add_column("label", [int(row.argmax()) for row in traffic.logits])
    found = fresh_key(model).fit(model, data, make_tokenizer(), temperature=0.001, budget=50.0, progress=False).fitted
    assert found.strength == 1.0 and not found.used_up and "The budget is not used up" in str(found)


# -- without labels


def test_without_labels_the_temperature_must_be_given_and_the_cost_is_marked(fitting):
    data = fitting["data"].remove_columns("labels")
    key = fresh_key(fitting["model"])
    for unlabelled in (
        data,
        data["tokens"][:],
        data.add_column("labels", [[-1] * len(row) for row in data["tokens"]]),
    ):
        with pytest.raises(InvalidInputError, match=r"no labels.*cannot be fitted.*or the temperature if you"):
            key.fit(**{**fitting, "data": unlabelled})
    found = key.fit(**{**fitting, "data": data}, temperature=1.3).fitted
    assert found.temperature == 1.3 and not found.reliable
    assert found.measured_cost is None and found.clean_accuracy is None and "measured" not in str(found)
    assert "(given)" in str(found) and "do not rely on the cost" in str(found) and "usually too low" in str(found)


def test_a_given_temperature_is_taken_and_marked_also_beside_labels(fitting):
    found = fresh_key(fitting["model"]).fit(**fitting, temperature=0.7).fitted
    assert found.temperature == 0.7 and not found.reliable and found.measured_cost is not None


# -- what is refused


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"budget": 0.0}, InvalidInputError, r"budget=0.0: expected a finite number in \(0, 100\]"),
        ({"keys": 19}, InvalidInputError, "keys=19: expected an integer ≥ 20"),
        ({"temperature": -1.0}, InvalidInputError, "temperature=-1.0"),
        ({"label_column": "mood"}, DatasetError, "label_column='mood'"),
        ({"batchsize": 3}, TypeError, "batchsize"),
        ({"data": []}, DrwError, "no probe texts"),
    ],
)
def test_wrong_arguments_are_named(fitting, change, error, words):
    with pytest.raises(error, match=words):
        fresh_key(fitting["model"]).fit(**{**fitting, **change})


def test_keys_of_the_papers_mark_have_no_strength(fitting):
    with pytest.raises(InvalidKeyError, match=r"mark 'tilt', and this one is of 'cosine'"):
        make_key(fitting["model"], make_tokenizer()).fit(**fitting)


def saved(key, folder):
    key.save_pretrained(folder)
    return key


def loaded(key, folder):
    saved(key, folder)
    return WatermarkKey.from_pretrained(folder)


def shown(key, folder):
    assert len(key.commitment()) == 64
    return key


def named_in_a_configuration(key, folder):
    assert len(key.identity) == 64
    return key


def put_into_a_model(key, folder):
    make_victim(TASKS[1], model=make_model(TASKS[1]), key=key)
    return key


def asked_with(key, folder):
    model = make_model(TASKS[1])
    victim = make_victim(TASKS[1], model=model, key=tilt_key(model))
    with victim.use_key(key):
        victim(**make_batch())
    return key


def read(key, folder):
    signals(key, [7])
    return key


def of_a_ring(key, folder):
    return KeyRing(key).key_for("ann")


@pytest.mark.parametrize(
    "use", [saved, loaded, shown, named_in_a_configuration, put_into_a_model, asked_with, read, of_a_ring]
)
def test_a_committed_key_is_refused(fitting, tmp_path, use):
    key = fresh_key(fitting["model"])
    assert not key.committed
    used = use(key, tmp_path / "key")
    assert used.committed
    for one in (used, used.replace(strength=0.1)):
        with pytest.raises(InvalidKeyError, match=r"is committed.*make a new key") as caught:
            one.fit(**fitting)
        assert leaks_in(one, [("message", str(caught.value).encode())]) == []
    assert not used.replace(secret=bytes(32)).committed, "another secret is another key"


def test_printing_comparing_and_fitting_commit_to_nothing(fitting):
    key = fresh_key(fitting["model"])
    assert repr(key) and str(key) and key == key.replace() and {key: 1} and key.fingerprint
    made = key.fit(**fitting)
    assert not key.committed and not made.committed, "its own numbers were not read"
    assert made.fit(**fitting, budget=0.1).settings.budget == 0.1
    assert KeyRing(made).settings == made.settings


def test_traffic_is_observed_without_the_keys_numbers(fitting):
    key = fresh_key(fitting["model"])
    observe_tilt_traffic(**fitting, like=key)
    assert not key.committed


# -- which mark a key is of


def test_without_a_target_class_a_key_is_of_the_mark_tilt():
    model, special = make_model(), {"special_token_ids": sorted(SPECIAL.values())}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert WatermarkKey.generate(model, **special, temperature=1.2).mark == "tilt"
        assert WatermarkKey.generate(model, **special, temperature=1.2, tau=0.5, hash_rule=None).mark == "tilt"
        assert KeyRing.generate(model, **special, temperature=1.2).settings.mark == "tilt"
        assert WatermarkKey.generate(model, **special, target=0).mark == "cosine"
        assert WatermarkKey.generate(model, **special, target="positive", tau=0.5).mark == "cosine"
        arrays = {"v_k": np.ones(3), "v_s": np.ones(3), "M": np.ones((64, 3))}
        assert WatermarkKey.from_arrays(**arrays, config=model, target=1, **special).mark == "cosine"


@pytest.mark.parametrize(
    "setting", [{"epsilon": 0.2}, {"law": "paper"}, {"scope": "all"}, {"hash_rule": "second"}, {"dimension": 9}]
)
def test_a_setting_of_the_papers_mark_alone_asks_for_its_target_class(setting):
    with pytest.raises(InvalidKeyError, match="target=None is not one label"):
        WatermarkKey.generate(make_model(), special_token_ids=[0], **setting)


def test_the_temperature_is_never_silently_1():
    with pytest.warns(UserWarning, match=r"log-odds are taken as they are \(temperature 1\).*key.fit") as caught:
        key = WatermarkKey.generate(make_model(), special_token_ids=[0])
    assert key.settings.temperature == 1.0 and caught[0].filename == __file__


def test_settings_of_two_marks_do_not_mix():
    with pytest.raises(TypeError, match=r"the mark 'cosine' has no strength; its settings are \['dimension'"):
        WatermarkKey.generate(make_model(), special_token_ids=[0], target=1, strength=0.2)
    with pytest.raises(InvalidKeyError, match="the mark 'tilt' has no epsilon"):
        WatermarkKey.generate(make_model(), special_token_ids=[0], mark="tilt", temperature=1.0, epsilon=0.3)
    with pytest.raises(InvalidKeyError, match="the mark 'tilt' has no target"):
        WatermarkKey.generate(make_model(), special_token_ids=[0], mark="tilt", temperature=1.0, target=1)
