"""The protected models: any architecture in, marked answers out, and closed without the key."""

import asyncio
import copy
import io
import json
import pickle
import threading

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
)

from drw_hf import WatermarkedConfig, WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification
from drw_hf.errors import (
    ConfigurationError,
    InvalidInputError,
    InvalidKeyError,
    KeyFileError,
    KeyMismatchError,
    MissingKeyError,
    ModelOutputError,
    UnsupportedModelError,
)
from drw_hf.keys import hash_rules
from drw_hf.watermark import cosine, tilt, tokens
from drw_hf.watermark import marking as marking_module
from drw_hf.watermark.cosine import signal_tables
from drw_hf.watermark.tilt import signal_table
from drw_hf.watermark.tokens import on_device
from small_models import ARCHITECTURES, AUTO, MARKS, TAGS, make_batch, make_key, make_model, make_victim
from test_perturbation import equation_5

TASKS = list(AUTO)


def answer(model, batch, **kwargs):
    with torch.no_grad():
        return model(**batch, **kwargs).logits


# -- what is answered


@pytest.mark.parametrize("law", ["direct", "paper"])
@pytest.mark.parametrize("scope", ["predicted", "all"])
@pytest.mark.parametrize("task", TASKS)
def test_the_model_answers_as_the_papers_equations_say(task, scope, law):
    model, batch = make_model(task), make_batch(n_rows=16)
    key = make_key(model, scope=scope, law=law, epsilon=0.3, tau=0.6, frequency=20.0)
    y = answer(make_victim(task, key=key, model=model), batch).exp()
    p = answer(model, batch).softmax(-1).double()
    n_marked = 0
    for row in range(16):
        places = [(row, place) for place in range(1, 9)] if task == "token-classification" else [(row,)]
        for place in places:
            token = int(batch["input_ids"][(row, place[1] if len(place) == 2 else 2)])
            marked = scope == "all" or int(p[place].argmax()) == key.target
            g_s = key.selection_table[token] if marked else 1.1
            n_marked += g_s <= 0.6
            expected = equation_5(p[place].tolist(), key.phase_table[token], g_s, key.target, 20.0, 0.3, 0.6)
            np.testing.assert_allclose(y[place], expected, atol=1e-5)
    assert n_marked > 0


@pytest.mark.parametrize("task", TASKS)
def test_special_tokens_and_padding_are_never_marked(task):
    model = make_model(task)
    victim, batch = make_victim(task, model=model, epsilon=1.0), make_batch(n_rows=3)
    batch["attention_mask"][1, 5:] = 0
    batch["input_ids"][2, 1:] = 3
    y, p = answer(victim, batch).exp(), answer(model, batch).softmax(-1)
    if task == "token-classification":
        unmarked = (batch["input_ids"] <= 4) | (batch["attention_mask"] == 0)
        assert (y - p).abs()[~unmarked].amax(-1).min() > 1e-3
        torch.testing.assert_close(y[unmarked], p[unmarked])
    else:
        torch.testing.assert_close(y[2], p[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_models_answer_in_float32(dtype):
    model = make_model().to(dtype)
    victim, batch = make_victim(model=model), make_batch()
    output = answer(victim, batch)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output.exp().sum(-1), torch.ones(4))


@pytest.mark.parametrize("mark", MARKS)
def test_marking_does_not_depend_on_training_mode(mark):
    model = make_model(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    victim, batch = make_victim(model=model, mark=mark), make_batch()
    assert not victim.training, "from_model keeps the mode it found"
    evaluated = answer(victim, batch)
    torch.testing.assert_close(answer(victim.train(), batch), evaluated)


def test_outputs_keep_the_wrapped_models_type_and_fields():
    victim = make_victim(model=make_model(attn_implementation="eager"))
    batch = make_batch()
    output = victim(**batch, labels=torch.tensor([0, 1, 0, 1]), output_hidden_states=True, output_attentions=True)
    assert list(output) == ["loss", "logits", "hidden_states", "attentions"]
    as_tuple = victim(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple)
    torch.testing.assert_close(as_tuple[0], output.logits)
    victim.config.return_dict = False
    assert isinstance(victim(**batch), tuple)


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("task", TASKS)
def test_the_loss_is_that_of_the_clean_model(task, mark):
    model = make_model(task)
    victim, batch = make_victim(task, model=model, mark=mark), make_batch()
    labels = batch["input_ids"] % 2 if task == "token-classification" else torch.tensor([0, 1, 0, 1])
    torch.testing.assert_close(victim(**batch, labels=labels).loss, model(**batch, labels=labels).loss)


# -- any architecture


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("task", TASKS)
def test_wrap_save_and_reload(tmp_path, task, architecture, mark):
    if (task, architecture) == ("token-classification", "bart"):
        pytest.skip("transformers has no bart tagger")
    model, wrapper = make_model(task, architecture), AUTO[task][1]
    key, batch = make_victim(task, model=model, mark=mark).key, make_batch()
    model.save_pretrained(tmp_path / "plain")
    victim = wrapper.from_pretrained(tmp_path / "plain", key=key)
    expected = answer(victim, batch)
    assert (expected - answer(model, batch).log_softmax(-1)).abs().max() > 0.01
    with victim.watermark_disabled():
        assert torch.equal(answer(victim, batch), answer(model, batch))
    victim.save_pretrained(tmp_path / "protected")
    again, info = wrapper.from_pretrained(tmp_path / "protected", key=key, output_loading_info=True)
    assert not any(info.values()), info
    assert torch.equal(answer(again, batch), expected)
    assert type(again.get_base_model()) is type(model)
    assert {path.name for path in (tmp_path / "protected").iterdir()} == {"config.json", "model.safetensors"}


def test_saves_and_loads_with_tied_weights(tmp_path):
    """T5 ties its embeddings; the save holds them once and the reload ties them again."""
    victim = make_victim(model=make_model(architecture="t5", tie_word_embeddings=True))
    victim.save_pretrained(tmp_path)
    again = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key)
    inner = again.get_base_model().transformer
    assert inner.encoder.embed_tokens.weight is inner.shared.weight
    assert torch.equal(answer(again, make_batch()), answer(victim, make_batch()))


@pytest.mark.parametrize("mark", MARKS)
def test_saves_in_shards(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    again = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key)
    assert torch.equal(answer(again, make_batch()), answer(victim, make_batch()))


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "protected"])
@pytest.mark.parametrize(
    "arguments", [{"dtype": torch.bfloat16}, {"attn_implementation": "eager"}, {"device_map": "auto"}]
)
def test_loading_arguments_reach_the_wrapped_model(tmp_path, plain, arguments):
    victim = make_victim()
    (victim.get_base_model() if plain else victim).save_pretrained(tmp_path)
    again = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key, **arguments)
    assert again.get_base_model().dtype == again.dtype == arguments.get("dtype", torch.float32)
    assert again.get_base_model().config._attn_implementation == arguments.get("attn_implementation", "sdpa")
    torch.testing.assert_close(answer(again, make_batch()), answer(victim, make_batch()), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("mark", MARKS)
def test_a_model_offloaded_to_disk_answers_alike(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path / "protected")
    device_map = {"victim.bert.embeddings": "cpu", "victim.bert.encoder": "disk", "victim.bert.pooler": "cpu"}
    spread = WatermarkedModelForSequenceClassification.from_pretrained(
        tmp_path / "protected",
        key=victim.key,
        device_map={**device_map, "victim.classifier": "cpu"},
        offload_folder=tmp_path / "offload",
    )
    assert "disk" in spread.hf_device_map.values()
    torch.testing.assert_close(answer(spread, make_batch()), answer(victim, make_batch()))


def test_from_model_does_not_touch_the_model():
    model, batch = make_model(attn_implementation="eager"), make_batch()
    before, weights = answer(model, batch), copy.deepcopy(model.state_dict())
    make_victim(model=model)
    assert model.config._attn_implementation == "eager" and not hasattr(model.config, "key_commitment")
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert torch.equal(answer(model, batch), before)


# -- the configuration


def test_config_json_holds_the_commitment_and_no_parameter_of_the_key(tmp_path):
    victim = make_victim(target=0, frequency=17.25, epsilon=0.1875, tau=0.4375, law="paper", dimension=77)
    victim.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    config = json.loads(text)
    assert config["key_commitment"] == victim.key.commitment()
    assert config["victim_config"]["model_type"] == "bert"
    of_transformers = {"architectures", "dtype", *json.loads(make_model().config.to_json_string())}
    of_transformers |= {"problem_type"}
    own = {"digits", "key_commitment", "label_kind", "sample_all", "sampling", "task", "victim_config"}
    assert set(config) - of_transformers == own
    text = text.replace(victim.key.commitment(), "")
    for parameter in ("17.25", "0.1875", "0.4375", "77", "paper", "target", "frequency", "second", victim.key.key_id):
        assert parameter not in text


def test_config_json_says_digits_and_not_by_which_mark(tmp_path):
    """The mark's name is a parameter of the key like any other: it would tell a thief what to try."""
    settings = {"strength": 0.8125, "temperature": 1.4375, "budget": 0.5625, "max_length": 77}
    victim = make_victim(mark="tilt", tau=0.4375, frequency=17.25, truncation_side="left", **settings)
    victim.save_pretrained(tmp_path)
    text = (tmp_path / "config.json").read_text()
    assert json.loads(text)["digits"] == 3
    text = text.replace(victim.key.commitment(), "")
    names = ("tilt", "strength", "temperature", "budget", "left", "every", victim.key.key_id)
    for parameter in (*map(str, settings.values()), "0.4375", "17.25", *names):
        assert parameter not in text


def test_label_kind_is_kept_and_can_be_overridden(tmp_path):
    victim = make_victim(label_kind="hard", sampling="fresh", sample_all=True)
    victim.save_pretrained(tmp_path)
    again = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key)
    assert (again.config.label_kind, again.config.sampling, again.config.sample_all) == ("hard", "fresh", True)
    soft = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=victim.key, label_kind="soft")
    assert soft.config.label_kind == "soft" and answer(soft, make_batch()).exp().max() < 1


@pytest.mark.parametrize("setting", [{"label_kind": "medium"}, {"sampling": "random"}, {"sample_all": "yes"}])
def test_settings_that_are_no_choice_are_refused(tmp_path, setting):
    model = make_model()
    key = make_key(model)
    with pytest.raises(ConfigurationError, match="expected"):
        WatermarkedModelForSequenceClassification.from_model(model, key=key, **setting)
    make_victim(key=key, model=model).save_pretrained(tmp_path)
    with pytest.raises(ConfigurationError, match="expected"):
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=key, **setting)


def test_the_outer_config_speaks_for_the_inner_one():
    config = make_victim().config
    assert (config.hidden_size, config.vocab_size, config.num_labels) == (32, 64, 2)
    assert config.get_text_config() is config.victim_config
    config.pad_token_id = 1
    config.problem_type = "single_label_classification"
    assert config.victim_config.pad_token_id == 1
    assert config.victim_config.problem_type == "single_label_classification"
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = config.no_such_thing


def test_config_survives_a_round_trip(tmp_path):
    config = make_victim("token-classification").config
    config.save_pretrained(tmp_path)
    again = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(again, WatermarkedConfig)
    assert again.id2label == dict(enumerate(TAGS)) == again.victim_config.id2label
    assert again.to_dict() == WatermarkedConfig.from_dict(again.to_dict()).to_dict()
    assert copy.deepcopy(again).victim_config.hidden_size == 32
    assert WatermarkedConfig().victim_config is None


# -- Auto classes


@pytest.mark.parametrize("mark", MARKS)
def test_auto_classes_load_protected_models(tmp_path, mark):
    for task, auto in zip(TASKS, (AutoModelForSequenceClassification, AutoModelForTokenClassification), strict=True):
        victim = make_victim(task, mark=mark)
        victim.save_pretrained(tmp_path / task)
        again = auto.from_pretrained(tmp_path / task, key=victim.key, label_kind="hard")
        assert type(again) is AUTO[task][1] and again.config.label_kind == "hard"
        with pytest.raises(MissingKeyError):
            auto.from_pretrained(tmp_path / task)
    with pytest.raises(UnsupportedModelError, match="token-classification"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "token-classification", key=victim.key)


def test_a_new_number_of_labels_reaches_the_wrapped_model(tmp_path):
    make_model().save_pretrained(tmp_path)
    key = make_key(make_model(num_labels=5, id2label=None, label2id=None))
    victim = WatermarkedModelForSequenceClassification.from_pretrained(
        tmp_path, key=key, num_labels=5, ignore_mismatched_sizes=True
    )
    assert answer(victim, make_batch()).shape == (4, 5)


# -- fail closed


@pytest.mark.parametrize("mark", MARKS)
def test_a_protected_model_does_not_load_without_its_key(tmp_path, mark):
    make_victim(mark=mark).save_pretrained(tmp_path)
    with pytest.raises(MissingKeyError, match="key="):
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path)
    with pytest.raises(MissingKeyError):
        WatermarkedModelForSequenceClassification(AutoConfig.from_pretrained(tmp_path))
    with pytest.raises(InvalidKeyError, match="WatermarkKey"):
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=7)


@pytest.mark.parametrize("mark", MARKS)
def test_another_key_does_not_load_unless_it_is_to_replace_the_first(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path)
    other = victim.key.replace(secret=b"\x09" * 32)
    with pytest.raises(KeyMismatchError, match="replace_key=True") as caught:
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=other)
    assert other.fingerprint in str(caught.value) and victim.key.fingerprint in str(caught.value)
    rotated = WatermarkedModelForSequenceClassification.from_pretrained(tmp_path, key=other, replace_key=True)
    rotated.save_pretrained(tmp_path / "rotated")
    assert json.loads((tmp_path / "rotated/config.json").read_text())["key_commitment"] == other.commitment()
    WatermarkedModelForSequenceClassification.from_pretrained(tmp_path / "rotated", key=other)


OTHERS = {
    "vocabulary": lambda: make_model(vocab_size=65),
    "label set": lambda: make_model(id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1}),
    "task": lambda: make_model("token-classification"),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_key_for_another_model_does_not_apply(what):
    model, other = make_model(), make_key(OTHERS[what]())
    with pytest.raises(KeyMismatchError, match=what):
        WatermarkedModelForSequenceClassification.from_model(model, key=other)
    victim = make_victim(model=model)
    with pytest.raises(KeyMismatchError, match=what):
        answer(victim, make_batch(), watermark_key=other)
    with pytest.raises(KeyMismatchError, match=what), victim.use_key(other):
        pass


@pytest.mark.parametrize("mark", MARKS)
def test_a_model_whose_vocabulary_was_resized_needs_a_new_key(mark):
    victim = make_victim(mark=mark)
    victim.resize_token_embeddings(70)
    with pytest.raises(KeyMismatchError, match="vocabulary"):
        answer(victim, make_batch())


def test_the_task_of_the_model_must_be_that_of_the_class():
    with pytest.raises(UnsupportedModelError, match="token-classification"):
        WatermarkedModelForTokenClassification.from_model(make_model(), key=make_key(make_model()))
    with pytest.raises(UnsupportedModelError, match="get_base_model"):
        WatermarkedModelForSequenceClassification.from_model(make_victim(), key=make_key(make_model()))
    with pytest.raises(UnsupportedModelError, match="from_pretrained"):
        WatermarkedModelForSequenceClassification(BertConfig(), key=make_key(make_model()))


@pytest.mark.parametrize("mark", MARKS)
def test_a_key_is_found_beside_the_model_or_by_its_folder(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.save_pretrained(tmp_path / "protected")
    victim.key.save_pretrained(tmp_path / "key", passphrase="sesame open")
    load = WatermarkedModelForSequenceClassification.from_pretrained
    by_folder = load(tmp_path / "protected", key=tmp_path / "key", passphrase="sesame open")
    victim.key.save_pretrained(tmp_path / "protected", passphrase="sesame open")
    beside = load(tmp_path / "protected", passphrase="sesame open")
    assert by_folder.key == beside.key == victim.key


def test_a_plain_key_and_a_model_do_not_share_a_folder(tmp_path):
    victim = make_victim()
    victim.key.save_pretrained(tmp_path / "plain")
    victim.key.save_pretrained(tmp_path / "above" / "key")
    for folder in ("plain", "above"):
        with pytest.raises(KeyFileError, match="plain key"):
            victim.save_pretrained(tmp_path / folder)
    victim.save_pretrained(tmp_path / "protected")
    (tmp_path / "plain/drw_key.json").rename(tmp_path / "protected/drw_key.json")
    with pytest.raises(KeyFileError, match="plain key"):
        WatermarkedModelForSequenceClassification.from_pretrained(tmp_path / "protected")


def test_float_labels_do_not_turn_a_classifier_into_another_kind():
    victim, batch = make_victim(), make_batch()
    expected = answer(victim, batch)
    with pytest.raises(Exception):  # noqa: B017 (whatever the wrapped model says of them)
        victim(**batch, labels=torch.rand(4, 2) > 0.5)
    assert torch.equal(answer(victim, batch), expected)


@pytest.mark.parametrize("auto", [False, True])
def test_settings_of_the_wrapped_model_can_be_overridden(tmp_path, auto):
    victim = make_victim(model=make_model(attn_implementation="eager"))
    victim.save_pretrained(tmp_path)
    load = AutoModelForSequenceClassification if auto else WatermarkedModelForSequenceClassification
    settings = {"hidden_dropout_prob": 0.0, "output_hidden_states": True, "output_attentions": True}
    again = load.from_pretrained(tmp_path, key=victim.key, attn_implementation="eager", **settings)
    assert again.get_base_model().config.hidden_dropout_prob == again.config.hidden_dropout_prob == 0.0
    with torch.no_grad():
        assert {"hidden_states", "attentions"} <= set(again(**make_batch()))


@pytest.mark.parametrize("mark", MARKS)
def test_loading_info_and_configs_of_ones_own(tmp_path, mark):
    victim = make_victim(mark=mark)
    victim.get_base_model().save_pretrained(tmp_path / "plain")
    victim.save_pretrained(tmp_path / "protected")
    load = WatermarkedModelForSequenceClassification.from_pretrained
    again, info = load(tmp_path / "plain", key=victim.key, output_loading_info=True)
    assert not any(info.values()) and torch.equal(answer(again, make_batch()), answer(victim, make_batch()))
    with pytest.raises(ConfigurationError, match="leave out config="):
        load(tmp_path / "protected", key=victim.key, config=make_model().config)
    with pytest.raises(MissingKeyError, match="generate"):
        load(tmp_path / "plain")


def test_keys_that_are_none_are_refused():
    victim, batch = make_victim(), make_batch()
    for wrong in ("path", ["path"] * 4, [None] * 4):
        with pytest.raises(InvalidInputError, match="WatermarkKey"):
            answer(victim, batch, watermark_key=wrong)
    for wrong in ("path", None):
        with pytest.raises(InvalidInputError, match="WatermarkKey"), victim.use_key(wrong):
            pass


def test_without_mask_and_pad_id_a_batch_is_ambiguous_whatever_the_keys():
    model = make_model(architecture="gpt2")
    victim = make_victim(model=model)
    model.config.pad_token_id = victim.config.pad_token_id = None
    ids = make_batch(2)["input_ids"]
    for keys in (victim.key, [victim.key, victim.key.replace(secret=b"\x01" * 32)]):
        with pytest.raises((InvalidInputError, ValueError)):
            answer(victim, {"input_ids": ids}, watermark_key=keys)


@pytest.mark.parametrize(("mark", "tables"), [("cosine", signal_tables), ("tilt", signal_table)])
def test_tables_do_not_depend_on_torchs_ambient_state(mark, tables):
    from torch._subclasses.fake_tensor import FakeTensorMode

    batch = make_batch()
    model = make_model()
    key = make_victim(model=model, mark=mark, secret=b"\x0a" * 32).key
    with FakeTensorMode(allow_non_fake_inputs=True):
        on_device(key, torch.device("cpu"), tables)
    with torch.device("meta"):
        on_device(key, torch.device("cpu"), tables)
    expected = answer(make_victim(model=model, mark=mark, secret=b"\x0a" * 32), batch)
    torch.testing.assert_close(answer(make_victim(model=model, key=key), batch), expected)


@pytest.mark.parametrize("how", ["pickle", "torch.save"])
@pytest.mark.parametrize("mark", MARKS)
def test_a_pickled_model_leaves_its_key_behind_and_fails_closed(how, mark):
    victim = make_victim(mark=mark)
    if how == "pickle":
        again = pickle.loads(pickle.dumps(victim))
    else:
        buffer = io.BytesIO()
        torch.save(victim, buffer)
        buffer.seek(0)
        again = torch.load(buffer, weights_only=False)
    assert again.key is None
    with pytest.raises(MissingKeyError, match=victim.key.fingerprint):
        answer(again, make_batch())
    with again.use_key(victim.key):
        assert torch.equal(answer(again, make_batch()), answer(victim, make_batch()))


@pytest.mark.parametrize("mark", MARKS)
def test_a_copied_model_keeps_its_key(mark):
    victim = make_victim(mark=mark)
    assert torch.equal(answer(copy.deepcopy(victim), make_batch()), answer(victim, make_batch()))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("mark", MARKS)
def test_logits_that_are_no_prediction_are_refused(label_kind, value, mark):
    victim = make_victim(label_kind=label_kind, mark=mark)
    with torch.no_grad():
        victim.get_base_model().classifier.bias.fill_(value)
    with pytest.raises(ModelOutputError, match="NaN"):
        answer(victim, make_batch())


def test_what_a_tagger_says_of_padding_does_not_matter(monkeypatch):
    model = make_model("token-classification")
    victim, batch = make_victim("token-classification", model=model), make_batch()
    batch["attention_mask"][:, -3:] = 0

    def poisoned(module, args, output):
        output.logits[:, -3:] = float("nan")
        return output

    handle = model.register_forward_hook(poisoned)
    assert answer(victim, batch)[:, :-3].isfinite().all()
    handle.remove()


@pytest.mark.parametrize("mark", MARKS)
def test_embeddings_without_ids_are_refused(mark):
    victim = make_victim(mark=mark)
    embeds = victim.get_input_embeddings()(make_batch()["input_ids"])
    with pytest.raises(InvalidInputError, match="input_ids"):
        victim(inputs_embeds=embeds)
    with victim.watermark_disabled():
        victim(inputs_embeds=embeds)


def test_a_head_that_answers_in_another_shape_is_refused():
    victim = make_victim("token-classification")
    shortened = victim.get_base_model().register_forward_hook(
        lambda module, args, output: type(output)(logits=output.logits[:, :-1])
    )
    with pytest.raises(InvalidInputError, match="shape"):
        answer(victim, make_batch())
    shortened.remove()


# -- another key for a call, a row, a context


def other_key(victim, number, **changes):
    return victim.key.replace(secret=bytes([number]) * 32, **changes)


@pytest.mark.parametrize(
    ("mark", "one", "another"),
    [
        ("cosine", {"epsilon": 0.7, "target": 0, "frequency": 30.0}, {"scope": "predicted", "tau": 0.3}),
        ("tilt", {"strength": 0.2, "temperature": 3.0, "frequency": 30.0}, {"tau": 0.3}),
    ],
)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
def test_one_key_for_the_call_or_one_for_every_row(task, label_kind, mark, one, another):
    victim, batch = make_victim(task, label_kind=label_kind, mark=mark), make_batch(n_rows=5)
    keys = [other_key(victim, 1), other_key(victim, 2, **one), other_key(victim, 1), other_key(victim, 3, **another)]
    keys.append(victim.key)
    mixed = answer(victim, batch, watermark_key=keys)
    for row, key in enumerate(keys):
        alone = answer(victim, batch, watermark_key=key)
        torch.testing.assert_close(mixed[row], alone[row])
    assert not torch.allclose(mixed, answer(victim, batch))
    torch.testing.assert_close(answer(victim, batch, watermark_key=[victim.key] * 5), answer(victim, batch))


def test_a_list_of_the_wrong_length_is_an_error():
    victim = make_victim()
    for n_keys in (0, 3, 5):
        with pytest.raises(InvalidInputError, match=f"{n_keys} keys were given for a batch of 4"):
            answer(victim, make_batch(), watermark_key=[victim.key] * n_keys)


@pytest.mark.parametrize("mark", MARKS)
def test_contexts_nest_and_end(mark):
    victim, batch = make_victim(mark=mark), make_batch()
    own, other = answer(victim, batch), other_key(victim, 1)
    marked_otherwise = answer(victim, batch, watermark_key=other)
    clean = answer(victim.get_base_model(), batch)
    with victim.watermark_disabled():
        assert torch.equal(answer(victim, batch), clean)
        with victim.use_key(other):
            assert torch.equal(answer(victim, batch), marked_otherwise)
        assert torch.equal(answer(victim, batch), clean)
    with pytest.raises(ZeroDivisionError), victim.use_key(other):
        _ = 1 / 0
    assert torch.equal(answer(victim, batch), own)


@pytest.mark.parametrize("mark", MARKS)
def test_a_context_is_of_one_model_alone(mark):
    first, second, batch = make_victim(mark=mark), make_victim(mark=mark), make_batch()
    with first.watermark_disabled():
        assert torch.equal(answer(second, batch), answer(make_victim(mark=mark), batch))


@pytest.mark.parametrize("mark", MARKS)
def test_threads_and_tasks_never_disturb_each_other(mark):
    victim, batch = make_victim(mark=mark), make_batch()
    own, clean = answer(victim, batch), answer(victim.get_base_model(), batch)
    keys = [other_key(victim, number) for number in range(1, 5)]
    expected = [answer(victim, batch, watermark_key=key) for key in keys]
    seen = {}
    barrier = threading.Barrier(len(keys))

    def serve(number):
        with victim.use_key(keys[number]):
            barrier.wait()
            seen[number] = [answer(victim, batch) for _ in range(5)]

    with victim.watermark_disabled():
        threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(keys))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.equal(answer(victim, batch), clean)
    for number, answers in seen.items():
        assert all(torch.equal(one, expected[number]) for one in answers)

    async def request(key):
        with victim.use_key(key):
            await asyncio.sleep(0)
            return answer(victim, batch)

    async def all_requests():
        return await asyncio.gather(*(request(key) for key in keys))

    for one, wanted in zip(asyncio.run(all_requests()), expected, strict=True):
        assert torch.equal(one, wanted)
    assert torch.equal(answer(victim, batch), own)


# -- what is not looked up anew in every call


def test_a_change_of_the_models_configuration_is_noticed_in_the_next_call():
    """Whatever a key must fit is looked up anew when anything changed, in its place or not."""
    victim, batch = make_victim(), make_batch()
    expected, config = answer(victim, batch), victim.get_base_model().config
    changes = [
        lambda: config.id2label.update({1: "other"}),
        lambda: setattr(config, "id2label", {0: "other", 1: "positive"}),
        lambda: setattr(victim.config, "id2label", {0: "a", 1: "b", 2: "c"}),
        lambda: setattr(config, "vocab_size", 65),
        lambda: setattr(config, "problem_type", "multi_label_classification"),
        lambda: setattr(victim.config, "task", "token-classification"),
    ]
    for change in changes:
        before = copy.deepcopy({name: getattr(config, name) for name in ("id2label", "vocab_size", "problem_type")})
        change()
        for _ in range(2):
            with pytest.raises((KeyMismatchError, UnsupportedModelError)):
                answer(victim, batch)
        victim.config.task = "sequence-classification"
        for name, value in before.items():
            setattr(config, name, value)
        assert torch.equal(answer(victim, batch), expected)


def test_resized_embeddings_are_noticed():
    victim = make_victim()
    answer(victim, make_batch())
    victim.resize_token_embeddings(70)
    with pytest.raises(KeyMismatchError, match="vocabulary size"):
        answer(victim, make_batch())


def test_a_configuration_inside_the_configuration_is_watched_too():
    victim = make_victim(model=make_model(architecture="t5"))
    answer(victim, make_batch())
    text = victim.get_base_model().config.get_text_config()
    text.vocab_size += 1
    with pytest.raises(KeyMismatchError, match="vocabulary size"):
        answer(victim, make_batch())


def test_another_pad_id_tells_padding_from_the_next_call_on():
    victim = make_victim(mark="tilt")
    ids, config = make_batch(2)["input_ids"].clone(), victim.get_base_model().config
    ids[:, -2:] = 5
    expected = answer(victim, {"input_ids": ids})
    config.pad_token_id = 5
    with pytest.raises(InvalidInputError, match="pass attention_mask"):  # for this key 5 is a word
        answer(victim, {"input_ids": ids})
    config.pad_token_id = 0
    assert torch.equal(answer(victim, {"input_ids": ids}), expected)


def test_how_answers_are_given_may_be_changed_between_calls():
    victim, batch = make_victim(mark="tilt"), make_batch()
    soft = answer(victim, batch)
    victim.config.digits = 0
    assert not torch.equal(answer(victim, batch), soft)
    victim.config.label_kind = "hard"
    assert set(answer(victim, batch).flatten().tolist()) <= {0.0, -1e4}


@pytest.mark.parametrize("architecture", ["bert", "bart", "t5"])
def test_the_marked_output_is_a_new_one_of_the_same_kind(architecture):
    victim = make_victim(model=make_model(architecture=architecture))
    kept = []
    victim.get_base_model().register_forward_hook(lambda module, args, output: kept.append(output))
    with torch.no_grad():
        marked = victim(**make_batch(), output_hidden_states=True, labels=torch.tensor([0, 1, 0, 1]))
    (clean,) = kept
    assert type(marked) is type(clean) and marked is not clean and list(marked) == list(clean)
    assert not torch.equal(marked.logits, clean.logits) and marked["logits"] is marked.logits is marked[1]
    built = type(clean)(**{**clean, "logits": marked.logits})
    assert vars(built).keys() == vars(marked).keys() and all(
        vars(built)[name] is vars(marked)[name] for name in vars(built)
    )
    assert all(one is other for one, other in zip(built.to_tuple(), marked.to_tuple(), strict=True))
    again = pickle.loads(pickle.dumps(marked))
    assert list(again) == list(marked) and torch.equal(again.logits, marked.logits)
    marked.logits = clean.logits
    assert marked["logits"] is clean.logits


@pytest.mark.parametrize(
    "marking",
    [{"mark": "cosine", "hash_rule": rule} for rule in ("second", "rarest", "keyed")] + [{"mark": "tilt"}],
    ids=str,
)
@pytest.mark.parametrize("label_kind", ["soft", "hard"])
@pytest.mark.parametrize("task", TASKS)
def test_the_way_of_other_devices_gives_the_same(task, label_kind, marking, monkeypatch):
    """On the CPU numbers are looked up with numpy; here with torch alone, as wherever else a model may lie."""
    marking = dict(marking)
    if task == "token-classification":
        marking.pop("hash_rule", None)
    victim, batch = make_victim(task, label_kind=label_kind, digits=0, **marking), make_batch(n_rows=6)
    batch["token_type_ids"] = (batch["input_ids"].cumsum(-1) > 200).long()
    batch["attention_mask"][2, 4:] = 0
    rows = [{name: tensor[:1] for name, tensor in batch.items()}, batch]
    expected = [answer(victim, some) for some in rows]
    used = []
    for module in (tokens, cosine, tilt, marking_module, hash_rules):
        monkeypatch.setattr(module, "plain", lambda tensor: used.append(tensor) or tensor)
    for some, wanted in zip(rows, expected, strict=True):
        torch.testing.assert_close(answer(victim, some), wanted, rtol=0, atol=1e-6)
    assert used
