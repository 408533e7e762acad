"""The model card: it tells a downloader what they must know, nothing of the key, and an owner's README survives it."""

import math
import os

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import pipeline

from drw_hf.errors import ConfigurationError, UnsupportedModelError
from drw_hf.hub.card import BEGIN, END, model_card
from small_models import TAGS, make_key, make_model, make_victim

METRICS = {"accuracy": {"clean": 0.9321, "protected": 0.9276, "n": 872}}
VICTIM = make_victim()


def read(card):
    """As the Hub's client reads it, which refuses what is not of the Hub's form."""
    return ModelCard(card)


def owners_text(card):
    """What stands outside of the metadata and of our part."""
    text = read(card).text
    end = text.rindex(END)
    begin = text.rindex(BEGIN, 0, end)
    return text[:begin] + text[end + len(END) :]


# -- what it says


@pytest.mark.parametrize(
    "task, pipeline_tag",
    [("sequence-classification", "text-classification"), ("token-classification", "token-classification")],
)
def test_the_metadata_say_library_task_and_tags(task, pipeline_tag):
    data = read(model_card(make_victim(task), license="mit", language=["en", "de"], tags=["mine", "drw_hf"])).data
    assert (data.library_name, data.pipeline_tag) == ("drw_hf", pipeline_tag)
    ours = ["drw_hf", "transformers", "watermark", "distillation-resistant-watermarking", task]
    assert data.tags == [*ours, "mine"]
    assert (data.license, data.language) == ("mit", ["en", "de"])
    assert data.base_model is None and data.eval_results is None and "model-index" not in data.to_dict()
    assert set(data.to_dict()) == {"library_name", "pipeline_tag", "tags", "license", "language"}


def test_the_text_says_what_a_downloader_must_know():
    card = model_card(VICTIM)
    assert VICTIM.key.commitment() in card and len(VICTIM.key.commitment()) == 64
    for words in (
        "weights are those of the clean, unmarked model",
        "does not load without the key",
        "drw_hf.evidence.verify_commitment",
        "Distillation-Resistant Watermarking for Model Protection in {NLP}",
        "Zhao, Xuandong and Li, Lei and Wang, Yu-Xiang",
        "10.18653/v1/2022.findings-emnlp.370",
        "@software{drw_hf",
    ):
        assert words in card


def test_the_text_says_how_answers_are_given_and_not_by_which_mark():
    tilted = make_victim(mark="tilt", strength=0.8125, temperature=1.4375)
    card = model_card(tilted)
    assert "Scores are rounded to 3 digits" in card and "that is shown is about 0.00025." in card
    assert not {"tilt", "0.8125", "1.4375"} & set(card.replace("*", "").split())
    tags = model_card(make_victim("token-classification", mark="tilt", digits=1))
    assert "rounded to 1 digit.**" in tags and "that is shown is about 0.0125." in tags
    for unrounded in (VICTIM, make_victim(mark="tilt", digits=0)):
        assert "ounded" not in model_card(unrounded)
    hard = model_card(make_victim(mark="tilt", label_kind="hard"))
    assert "An answer is a label" in hard and "ounded" not in hard


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_the_example_in_it_runs_and_holds_no_passphrase(task, tmp_path, monkeypatch, tokenizer):
    victim = make_victim(task)
    victim.save_pretrained(tmp_path)
    victim.key.save_pretrained(tmp_path, passphrase="correct horse")
    tokenizer.save_pretrained(tmp_path)
    code = model_card(victim).split("```python")[1].split("```")[0]
    assert type(victim).__name__ in code and "getpass" in code and "passphrase=passphrase" in code
    monkeypatch.setenv("DRW_PASSPHRASE", "correct horse")
    names = {}
    exec(code.replace("owner/name", str(tmp_path)), names)
    expected = pipeline(names["answer"].task, model=victim, tokenizer=tokenizer)
    assert names["answer"]("a good film") == expected("a good film")


def test_metrics_of_clean_and_protected_output_stand_in_the_table_and_in_the_model_index():
    metrics = {**METRICS, "f1": {"clean": np.float32(0.5), "protected": 1}}
    card = model_card(VICTIM, metrics=metrics, dataset="stanfordnlp/sst2")
    assert "| accuracy | 0.9321 | 0.9276 | 872 |" in card and "| f1 | 0.5000 | 1.0000 |  |" in card
    assert "measured on stanfordnlp/sst2" in card
    results = read(card).data.eval_results
    assert [(r.metric_type, r.metric_name, r.metric_value) for r in results] == [
        ("accuracy", "accuracy (clean output)", 0.9321),
        ("accuracy", "accuracy (protected output)", 0.9276),
        ("f1", "f1 (clean output)", 0.5),
        ("f1", "f1 (protected output)", 1.0),
    ]
    assert {(r.task_type, r.dataset_type) for r in results} == {("text-classification", "stanfordnlp/sst2")}


def test_without_a_data_set_metrics_are_in_the_text_alone():
    card = model_card(VICTIM, metrics=METRICS)
    assert "| accuracy | 0.9321 | 0.9276 | 872 |" in card
    assert read(card).data.eval_results is None


def test_the_base_model_is_the_one_given_or_the_one_it_was_loaded_from():
    victim = make_victim()
    victim.config.victim_config._name_or_path = "google-bert/bert-base-uncased"
    assert read(model_card(victim)).data.base_model == "google-bert/bert-base-uncased"
    assert read(model_card(victim, base_model="me/other")).data.base_model == "me/other"
    victim.config.victim_config._name_or_path = "bert-base-uncased"
    assert read(model_card(victim)).data.base_model == "bert-base-uncased"


# -- what it never says


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_it_depends_on_the_key_through_the_commitment_alone(task):
    model = make_model(task)
    sequence = task == "sequence-classification"
    first = make_victim(task, model=model, target=0)
    second = make_victim(
        task,
        model=model,
        target=1,
        secret=bytes(32),
        frequency=23.5,
        epsilon=0.3125,
        tau=0.625,
        law="paper",
        scope="predicted",
        hash_rule="rarest" if sequence else None,
    )
    arguments = {"metrics": METRICS, "dataset": "glue"}
    cards = [model_card(victim, **arguments).replace(victim.key.commitment(), "") for victim in (first, second)]
    assert cards[0] == cards[1]


def test_it_names_no_label_and_nothing_of_the_secret():
    for task, labels in (("sequence-classification", ["negative", "positive"]), ("token-classification", TAGS[1:])):
        victim = make_victim(task)
        card = model_card(victim, metrics=METRICS, dataset="glue")
        assert not [label for label in labels if label in card]
        assert victim.key.secret.hex() not in card.lower() and victim.key.key_id not in card


@pytest.mark.parametrize("name", ["/home/me/models/bert", "./bert", "../bert", "~/bert", "a/b/c", "C:\\models\\bert"])
def test_a_local_path_gets_into_no_card(name):
    victim = make_victim()
    victim.config.victim_config._name_or_path = name
    card = model_card(victim)
    assert read(card).data.base_model is None and name not in card
    for argument in ("base_model", "dataset"):
        with pytest.raises(ConfigurationError, match=argument):
            model_card(VICTIM, metrics=METRICS, **{argument: name})


def test_a_folder_that_is_named_like_a_hub_id_is_a_folder(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    victim = make_victim()
    for name in ("owner/name", "owner", "output/checkpoint-500", "checkpoint-500", str(tmp_path)):
        victim.config.victim_config._name_or_path = name
        assert read(model_card(victim)).data.base_model is None
    assert os.getcwd() not in model_card(victim)


# -- a README that is there already


def test_the_owners_text_comes_first_and_our_part_after_it():
    existing = "---\nlicense: mit\n---\n# My model\n\nTrained with care.\n"
    card = model_card(VICTIM, existing=existing)
    text = read(card).text
    assert text.startswith("# My model\n\nTrained with care.\n\n" + BEGIN) and text.endswith(END + "\n")


def test_our_part_is_replaced_where_it_stands():
    old = model_card(VICTIM, existing="# Before\n") + "\n# After\n"
    other = make_victim(secret=bytes(32))
    card = model_card(other, existing=old, metrics=METRICS)
    assert card.count(BEGIN) == card.count(END) == 1
    assert other.key.commitment() in card and VICTIM.key.commitment() not in card
    assert owners_text(card) == owners_text(old) == "# Before\n\n\n\n# After\n"


def test_the_owners_metadata_win_over_ours_and_tags_are_united():
    existing = (
        "---\nlibrary_name: transformers\npipeline_tag: zero-shot-classification\nbase_model: me/base\n"
        "tags: [b, watermark, a]\nwidget:\n- text: hi\nlicense: null\n---\n"
    )
    victim = make_victim()
    victim.config.victim_config._name_or_path = "google/other"
    data = read(model_card(victim, existing=existing, license="mit")).data
    assert (data.library_name, data.pipeline_tag) == ("transformers", "zero-shot-classification")
    assert (data.base_model, data.license, data["widget"]) == ("me/base", "mit", [{"text": "hi"}])
    assert data.tags[:3] == ["b", "watermark", "a"] and {"drw_hf", "transformers"} < set(data.tags)
    assert len(set(data.tags)) == len(data.tags)


def test_what_is_given_in_the_call_wins_over_an_older_card():
    old = model_card(VICTIM, license="mit", language="en", base_model="me/base")
    data = read(model_card(VICTIM, existing=old, license="apache-2.0", base_model="me/newer")).data
    assert (data.license, data.language, data.base_model) == ("apache-2.0", "en", "me/newer")


def test_metadata_are_read_as_the_hub_reads_them():
    """To YAML 1.1, which pyyaml speaks, Norwegian is false and a date is an object."""
    comments = "# see the spec\n# and the guide\n"
    existing = f"---\n{comments}language: no\nreleased: 2024-01-31\ngated: true\nnumber: 3\n---\nx"
    card = model_card(VICTIM, existing=existing)
    block = card.split("---\n")[1]
    assert block.startswith(f"{comments}language: 'no'\nreleased: '2024-01-31'\ngated: true\n")
    assert read(card).data.language == "no" and read(card).data["number"] == 3


def test_a_block_that_needs_no_change_is_kept_to_the_letter():
    block = model_card(VICTIM).split(BEGIN)[0].rstrip("\n").replace("tags:", "# my tags\ntags:  ")
    assert model_card(VICTIM, existing=block).startswith(block + "\n")


def foreign_index(*names):
    metrics = [{"type": "accuracy", "value": 0.5, "name": "accuracy on Mondays"}]
    result = {"task": {"type": "text-classification"}, "dataset": {"type": "glue", "name": "GLUE"}, "metrics": metrics}
    return [{"name": name, "results": [result]} for name in names]


@pytest.mark.parametrize("names", [(), ("mine",), ("mine", "another")])
def test_foreign_results_stay_and_ours_are_measured_anew(names):
    existing = f"---\n{yaml.safe_dump({'model-index': foreign_index(*names)})}---\ntext"
    once = model_card(VICTIM, existing=existing, metrics=METRICS, dataset="glue")
    newer = {"accuracy": {"clean": 0.75, "protected": 0.5}}
    for card, value in ((once, 0.9276), (model_card(VICTIM, existing=once, metrics=newer, dataset="glue"), 0.5)):
        index = yaml.safe_load(card.split("---\n")[1])["model-index"]
        assert [entry["name"] for entry in index][: len(names)] == list(names)
        assert len(index) == (1 if len(names) == 1 else len(names) + 1)
        for found, foreign in zip(index, foreign_index(*names), strict=False):
            assert found["results"][0] == foreign["results"][0]
        found = [(r.metric_name, r.metric_value) for r in read(card).data.eval_results]
        assert found.count(("accuracy on Mondays", 0.5)) == len(names)
        assert [pair for pair in found if "protected" in pair[0]] == [("accuracy (protected output)", value)]
    other = model_card(VICTIM, existing=once, metrics=newer, dataset="imdb")
    assert len([r for r in read(other).data.eval_results if "protected" in r.metric_name]) == 2
    assert read(model_card(VICTIM, existing=once)).data.to_dict() == read(once).data.to_dict()


@pytest.mark.parametrize("index", ["nonsense", [], [3], [{"name": "x"}], [{"name": "x", "results": [{"metrics": 3}]}]])
def test_a_model_index_that_is_none_is_kept_too(index):
    existing = f"---\n{yaml.safe_dump({'model-index': index})}---\ntext"
    card = model_card(VICTIM, existing=existing, metrics=METRICS, dataset="glue")
    found = yaml.safe_load(card.split("---\n")[1])["model-index"]
    assert found == index if isinstance(index, str) else found[: len(index)] == index or found[0]["name"] == "x"
    assert model_card(VICTIM, existing=card, metrics=METRICS, dataset="glue") == card


@pytest.mark.parametrize(
    "existing",
    [
        "---\nlicense: [unclosed\n---\n# Title\n",
        "---\n- a list\n---\n# Title\n",
        "---\nlicense: mit\n\nno end of the block",
        "--- \nlicense: mit\n---\n",
        "---\na: !!python/object:os.system x\n---\ntext",
        "---\na: !!timestamp x\n---\ntext",
        f"text {BEGIN} more text",
        f"text {END} more text",
        f"{END} text {BEGIN}",
        f"{BEGIN} text {BEGIN}",
    ],
)
def test_a_broken_readme_is_kept_as_text(existing):
    card = model_card(VICTIM, existing=existing)
    assert existing in card and owners_text(card).strip() == existing.strip()
    assert read(card).data.library_name == "drw_hf"
    assert model_card(VICTIM, existing=card) == card


def test_windows_line_ends_stay_windows_line_ends():
    existing = "---\r\nlicense: mit\r\n---\r\n# Title\r\n\r\ntext\r\n"
    card = model_card(VICTIM, existing=existing, metrics=METRICS, dataset="glue")
    assert card.count("\n") == card.count("\r\n") and "# Title\r\n\r\ntext\r\n" in card
    assert read(card).data.license == "mit"
    assert model_card(VICTIM, existing=card, metrics=METRICS, dataset="glue") == card


LINES = st.lists(st.sampled_from(["---", "# Title", "a: b", "a: [", BEGIN, END, "", " ", "text", "<!--", "```"]))
READMES = st.one_of(
    st.text(),
    st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r", "\n\n"])).map(lambda lines: lines[1].join(lines[0])),
)


@given(READMES)
@example("\ufeff---\nlicense: mit\n---\ntext")
@example("\n\n ---\na: b\n---  \n")
@settings(max_examples=100)
def test_any_text_survives_and_a_second_time_changes_nothing(existing):
    card = model_card(VICTIM, existing=existing)
    assert model_card(VICTIM, existing=card) == card
    assert VICTIM.key.commitment() in card and read(card).data["library_name"]
    text = existing.removeprefix("\ufeff")
    try:
        text = ModelCard(text).text
    except Exception:  # broken metadata: all of it is text
        pass
    begin = text.find(BEGIN)
    if begin >= 0 and END in text[begin:]:  # an earlier part of ours, which goes
        assert text[:begin] in card
    else:
        assert text in card


WORDS = st.text(st.characters(exclude_categories=["Cs", "Zl", "Zp"], exclude_characters="\x85"))  # pyyaml loses these
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
METADATA = st.dictionaries(
    WORDS
    | st.sampled_from(["tags", "license", "model-index", "base_model", "language", "eval_results", "model_name"]),
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(WORDS, inner), max_leaves=8),
)


@given(METADATA, st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=100)
def test_any_metadata_survive(metadata, line_break):
    block = "---\n" + yaml.safe_dump(metadata, allow_unicode=True, sort_keys=False) + "---\nmy text\n"
    existing = block.replace("\n", line_break)
    card = model_card(VICTIM, existing=existing, metrics=METRICS, dataset="glue")
    assert model_card(VICTIM, existing=card, metrics=METRICS, dataset="glue") == card
    kept = yaml.safe_load(card.split(f"{line_break}---{line_break}")[0].removeprefix("---"))
    for name, value in metadata.items():
        if name not in ("tags", "model-index") and value is not None:
            assert repr(kept[name]) == repr(value)
    if isinstance(metadata.get("tags"), list):
        assert repr(kept["tags"][: len(metadata["tags"])]) == repr(metadata["tags"])


# -- bad input


@pytest.mark.parametrize(
    "metrics, named",
    [
        ([0.9], "list"),
        ({"accuracy": 0.9}, "accuracy"),
        ({"accuracy": {"clean": 0.9}}, "accuracy"),
        ({"accuracy": {"protected": 0.9}}, "accuracy"),
        ({"accuracy": {"clean": 0.9, "protected": math.nan}}, "protected"),
        ({"accuracy": {"clean": math.inf, "protected": 0.9}}, "clean"),
        ({"accuracy": {"clean": "0.9", "protected": 0.9}}, "clean"),
        ({"accuracy": {"clean": True, "protected": 0.9}}, "clean"),
        ({"accuracy": {"clean": None, "protected": 0.9}}, "clean"),
        ({"accuracy": {"clean": 0.9, "protected": 0.9, "n": 0}}, "'n'"),
        ({"accuracy": {"clean": 0.9, "protected": 0.9, "n": 1.5}}, "'n'"),
        ({"accuracy": {"clean": 0.9, "protected": 0.9, "target": 1}}, "target"),
        ({"accuracy | x": {"clean": 0.9, "protected": 0.9}}, "accuracy | x"),
        ({"": {"clean": 0.9, "protected": 0.9}}, "name"),
        ({3: {"clean": 0.9, "protected": 0.9}}, "3"),
    ],
)
def test_bad_metrics_are_named(metrics, named):
    with pytest.raises(ConfigurationError) as caught:
        model_card(VICTIM, metrics=metrics, dataset="glue")
    assert named in str(caught.value)


@pytest.mark.parametrize("dataset", ["a\nb", "", "a/b/c", "file:///data", 3, "x | y", "<!-- x"])
def test_a_data_set_has_a_name(dataset):
    with pytest.raises(ConfigurationError, match="dataset"):
        model_card(VICTIM, metrics=METRICS, dataset=dataset)


def test_a_model_that_is_not_protected_has_no_such_card():
    with pytest.raises(UnsupportedModelError, match="no protected model"):
        model_card(make_model())


def test_it_needs_no_key_at_hand():
    """The commitment stands in the configuration: a card can be written where the key is not."""
    key = make_key(VICTIM.get_base_model())
    assert model_card(VICTIM.config) == model_card(VICTIM) and key.commitment() not in model_card(VICTIM.config)
