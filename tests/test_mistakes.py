"""What newcomers get wrong, at the command line and in Python: one message says what, and what to do.

Models are tiny, keys plain, and students learn for a moment only.
"""

import json
import re
import shutil

import pandas
import pytest
import torch
import typer
from datasets import Dataset, DatasetDict
from transformers import pipeline

from drw_hf import WatermarkKey, detect
from drw_hf.asking import RetryingPredictor
from drw_hf.asking.models import load_model, load_tokenizer
from drw_hf.cli.main import app
from drw_hf.errors import DatasetError, FileNotWrittenError, InvalidInputError, PredictorError, UnsupportedModelError
from drw_hf.watermark.cosine import LARGEST_SENSIBLE_EPSILON, perturb
from small_models import make_key, make_model
from test_cli import drw, save_model, write_rows

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a classifier, its key, the protected model, a suspect, probes, and data with an empty cell."""
    folder = tmp_path_factory.mktemp("place")
    save_model(folder / "mine", "sequence-classification", seed=1)
    save_model(folder / "suspect", "sequence-classification", seed=3)
    write_rows(folder / "probes", 40, seed=1)
    lines = ["text,label", "word1 word2,negative", ",positive", "word3 word4,positive"]
    (folder / "gaps.csv").write_text("\n".join(lines) + "\n")
    for line in (
        f"keygen {folder}/mine --target positive --scope all --tau 1 --plain --output {folder}/key",
        f"protect {folder}/mine --key {folder}/key --output {folder}/protected",
    ):
        made = drw(line)
        assert made.exit_code == 0, made.output
    return folder


@pytest.fixture
def case(place):
    """What ``detect`` is given beside texts: the suspect, the key, the owner's tokenizer and model."""
    return {
        "suspect": load_model(str(place / "suspect")),
        "key": WatermarkKey.from_pretrained(place / "key"),
        "tokenizer": load_tokenizer(str(place / "mine")),
        "victim": load_model(str(place / "mine")),
        "progress": False,
    }


def refusal(line):
    """What a command line that must fail says, as one paragraph."""
    found = drw(line)
    told = " ".join(found.stderr.split())
    assert found.exit_code in (1, 2) and not found.stdout, found.output
    assert "Traceback" not in told and found.stderr.count("Error") == 1, found.stderr
    return told


# -- texts


@pytest.mark.parametrize(
    "line",
    [
        "label protected gaps.csv --key key --output new",
        "detect suspect gaps.csv --key key --victim mine",
        "plan mine gaps.csv",
        "plan mine gaps.csv --target positive",
        "card protected --data gaps.csv --key key --output new",
        "keygen mine --budget 0.3 --data gaps.csv --plain --output new",
    ],
)
def test_an_empty_cell_is_named_by_row_and_column(place, line):
    told = refusal(line)
    assert "row 1 (counted from 0) of the column 'text' is empty" in told and "leave the row out" in told
    assert not (place / "new").exists()


def test_an_empty_cell_far_down_is_found_before_anybody_is_asked(monkeypatch):
    from drw_hf import label_with_teacher
    from drw_hf.asking import labelling

    monkeypatch.setattr(labelling, "_ROWS_CHECKED_AT_ONCE", 4)
    rows, asked = Dataset.from_dict({"text": [*["a film"] * 9, None]}), []

    def teacher(texts):
        asked.extend(texts)
        return [{"bad": 0.5, "good": 0.5} for _ in texts]

    with pytest.raises(DatasetError, match=r"row 9 .* of the column 'text' is empty"):
        label_with_teacher(teacher, rows, batch_size=2, progress=False)
    assert not asked


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["word1", None], "row 1 .* of texts is empty"),
        (["word1", float("nan")], "row 1 .* of texts is empty"),
        (["word1", 7], "row 1 .* of texts holds int"),
        ([("word1", "word2"), ("word3", None)], "row 1 .* of texts holds NoneType in place of its word 1"),
        (Dataset.from_dict({"text": [3, 4]}), "row 0 .* of the column 'text' holds int"),
        (pandas.DataFrame({"text": ["word1", None]}), "row 1 .* of the column 'text' is empty"),
        (
            pandas.DataFrame({"one": ["word1"], "two": ["word2"]}),
            r"none of the columns \['one', 'two'\].*text_columns",
        ),
        (DatasetDict({"train": Dataset.from_dict({"text": ["word1"]})}), r"the splits \['train'\]"),
    ],
)
def test_what_is_no_text_is_refused_with_its_row(case, texts, words):
    with pytest.raises(DatasetError, match=words):
        detect(texts=texts, **case)


@pytest.mark.parametrize("text", ["word1 word2", b"word1 word2"])
def test_one_string_is_not_taken_for_a_list_of_letters(case, text):
    with pytest.raises(InvalidInputError, match="pass a list of texts"):
        detect(texts=text, **case)


@pytest.mark.parametrize("frame", [pandas.DataFrame, dict, Dataset.from_dict])
def test_a_data_frame_is_asked_by_its_column_of_texts(case, place, frame):
    lines = (place / "probes.txt").read_text().splitlines()
    table = {"number": list(range(len(lines))), "text": lines}
    expected = detect(texts=lines, **case)
    assert detect(texts=frame(table), **case).probe_digest == expected.probe_digest
    renamed = frame({"number": table["number"], "body": lines})
    assert detect(texts=renamed, text_columns="body", **case).probe_digest == expected.probe_digest


# -- evidence


def test_saved_evidence_is_never_overwritten(case, place, tmp_path):
    texts = (place / "probes.txt").read_text().splitlines()
    first, second = (detect(texts=texts, looks=looks, **case) for looks in (1, 2))
    saved = tmp_path / "evidence.json"
    first.save(saved)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for save in (second.save, lambda _: second.report(tmp_path)):
        with pytest.raises(FileNotWrittenError, match=r"evidence\.json is there already.*choose another name"):
            save(saved)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    first.save(saved)  # the same again harms nobody
    saved.unlink()
    with pytest.raises(FileNotWrittenError, match=r"evidence\.probe\.npz is there already"):
        detect(texts=texts[1:], **case).save(saved)
    assert not saved.exists()


@pytest.mark.parametrize("option", ["--output out/evidence.json", "--report out", "--report out --redact"])
def test_detect_refuses_a_name_that_is_taken_before_anybody_is_asked(place, option):
    (place / "out").mkdir(exist_ok=True)
    name = "evidence-redacted.json" if "redact" in option else "evidence.json"
    (place / "out" / name).write_text("{}")
    told = refusal(f"detect no/such/suspect probes.txt --key key --victim mine {option}")
    assert f"{name} is there already, and evidence is never overwritten; choose another name" in told
    assert (place / "out" / name).read_text() == "{}"


# -- what comes next


def next_command(line, exit_codes=(0,)):
    """Run a command line, and return the one that it prints to go on with."""
    found = drw(line)
    assert found.exit_code in exit_codes, found.output
    (printed,) = [each.strip() for each in found.stdout.splitlines() if each.startswith("  drw-hf ")]
    return printed.removeprefix("drw-hf ")


@pytest.mark.parametrize("answers", ["'my answers'", "kept/answers.parquet"])
def test_label_and_distill_print_commands_that_work_as_printed(place, answers):
    (place / "student").mkdir(exist_ok=True)
    (place / "student" / "taken").touch()
    (place / "evidence.json").write_text("{}")
    lines = (place / "probes.txt").read_text().splitlines()
    (place / "bodies.csv").write_text("\n".join(["body", *lines]) + "\n")
    distill = next_command(f"label protected bodies.csv --key key --text-column body --output {answers}")
    assert distill.startswith(f"distill {answers} --student protected")
    detect = next_command(distill)
    assert f" {answers} --key key --victim protected" in detect
    found = drw(detect)
    assert found.exit_code in (0, 3, 4) and "Wrote the evidence to evidence-" in found.stdout, found.output
    assert (place / "evidence.json").read_text() == "{}"


def test_a_student_that_starts_from_a_protected_model_is_a_plain_one(place):
    from drw_hf.extraction.students import load_student

    student = load_student(str(place / "protected"), "sequence-classification", ["negative", "positive"])
    assert type(student) is type(load_model(str(place / "mine")))
    with pytest.raises(UnsupportedModelError, match=r"is protected, .* starts from a plain model"):
        load_student(str(place / "protected"), "sequence-classification", ["bad", "good"])


def test_distill_prints_a_command_that_works_where_there_is_no_mark_to_find(place):
    distill = next_command("label mine probes.txt --output unmarked")
    keygen = next_command(distill)
    assert keygen == "keygen --help" and drw(keygen).exit_code == 0
    (place / "unmarked" / "drw_teacher.json").write_text("[]")  # as of answers that were made elsewhere
    detect = next_command(f"{distill} --overwrite")
    assert detect == "detect --help" and drw(detect).exit_code == 0


# -- keys


def test_a_key_for_another_task_than_the_models_is_not_made(place):
    told = refusal("keygen mine --target positive --task token-classification --plain --output new")
    assert "task='token-classification', but the model is for sequence-classification" in told
    assert not (place / "new").exists()
    same = drw("keygen mine --target positive --task sequence-classification --plain --output same-task")
    assert same.exit_code == 0, same.output


def test_an_epsilon_that_can_turn_certain_answers_is_warned_of(place):
    found = drw("keygen mine --target positive --epsilon 2 --plain --output loud")
    assert found.exit_code == 0 and "Warning: epsilon=2 moves a marked probability by up to 0.80" in found.stderr
    quiet = drw("keygen mine --target positive --epsilon 0.5 --plain --output quiet")
    assert quiet.exit_code == 0 and "Warning" not in quiet.stderr


@pytest.mark.parametrize("epsilon, turns", [(0.49, False), (0.51, True)])
def test_that_epsilon_is_where_a_certain_answer_can_turn(epsilon, turns):
    certain = perturb(torch.tensor([[0.0, 1.0]]), torch.tensor([-1.0]), 1, epsilon)
    assert (certain[0, 1] < 0.5) == turns == (epsilon > LARGEST_SENSIBLE_EPSILON)


# -- one thing in the place of another


def test_a_protected_suspect_is_called_our_own(place):
    told = refusal("detect protected probes.txt --key key --victim mine")
    assert "the suspect protected is itself a protected model, of the very key given" in told
    drw("keygen mine --target positive --plain --output other-key")
    told = refusal("detect protected probes.txt --key other-key --victim mine")
    assert "the suspect protected is itself a protected model, of another key than the one given" in told


def test_label_says_at_once_which_key_of_a_ring_it_needs(place):
    drw("keygen mine --ring --target positive --plain --output ring")
    told = refusal("label mine missing.txt --key ring --output new")
    assert "which has a key for every user; say whose is meant with --user NAME" in told
    assert drw("label mine probes.txt --key ring --user ann --output answers-to-ann").exit_code == 0


@pytest.mark.parametrize(("name", "what"), [("nofile.json", "not there"), ("key", "a folder")])
def test_verify_says_at_once_that_there_is_no_evidence(name, what):
    told = refusal(f"verify {name} --key no-key-either")
    assert f"{name} is {what}; expected the JSON file that result.save or `drw-hf detect --output` wrote" in told


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("protected", "a folder on this machine"),
        ("./protected", "a folder on this machine"),
        ("./nothing", "no name of a repository"),
    ],
)
def test_audit_is_not_for_folders_and_says_what_it_is_for(name, what):
    told = refusal(f"audit {name}")
    assert f"{name} is {what}" in told and "a repository on the Hub" in told and "me/model" in told


def test_a_service_is_not_asked_again_and_again_while_offline_mode_is_on(monkeypatch):
    monkeypatch.setattr(RetryingPredictor, "sleep", lambda *_: pytest.fail("there is nothing to wait for"))
    told = refusal("detect http://localhost:1/model probes.txt --key key --victim mine")
    assert "the suspect: http://localhost:1/model was not asked: offline mode is on" in told
    assert "unset HF_HUB_OFFLINE" in told


# -- suspects


@pytest.mark.parametrize(
    ("answer", "most"),
    [("positive", 8), ({"negative": 0.0, "positive": 1.0}, 128)],
)
@pytest.mark.parametrize("mark", ["cosine", "tilt"])
def test_a_suspect_with_labels_alone_is_asked_no_more_than_shows_it(case, mark, answer, most):
    asked = []

    def suspect(texts):
        asked.extend(texts)
        return [answer for _ in texts]

    if mark == "tilt":
        case["key"] = make_key(case["victim"], case["tokenizer"], mark="tilt", temperature=1.0)
    texts = [f"word{number} word{number + 1}" for number in range(300)]
    alone = {**case, "suspect": suspect, "victim": None, "batch_size": 8, "load_from_cache_file": False}
    with pytest.raises(InvalidInputError, match=r"gives labels alone.*pass the clean victim=.*--victim"):
        detect(texts=texts, **alone)
    assert len(asked) == most
    detect(texts=texts, **{**alone, "victim": case["victim"]})
    assert len(asked) == most + len(texts)


def test_rounded_scores_that_begin_with_certain_answers_are_no_labels(case):
    def suspect(texts):
        return [{"negative": 0.0, "positive": 1.0} if "long" in text else _unsure(text) for text in texts]

    def _unsure(text):
        score = 0.6 + 0.3 * (len(text) % 7) / 7
        return {"negative": 1.0 - score, "positive": score}

    texts = [f"word{number} word{number + 1}" + " long" * (number < 60) for number in range(300)]
    found = detect(texts=texts, **{**case, "suspect": suspect, "victim": None, "load_from_cache_file": False})
    assert found.probe.kind == "probabilities" and found.n_queries == 300


@pytest.mark.parametrize("size", [64, 2000])
def test_a_forgotten_suspect_tokenizer_is_told_by_the_size_of_the_vocabulary(case, size):
    stranger = make_model(vocab_size=size)
    with pytest.raises(InvalidInputError, match=rf"for {size} token ids.*905 tokens.*suspect_tokenizer="):
        detect(texts=["word1 word900"], **{**case, "suspect": stranger})


def test_a_tokenizer_that_is_not_the_models_is_no_index_error(case):
    with pytest.raises(PredictorError, match=r"knows 64 token ids.*gave the id 904.*another model's tokenizer"):
        detect(
            texts=["word1 word899"],
            suspect_tokenizer=case["tokenizer"],
            **{**case, "suspect": make_model(vocab_size=64)},
        )


@pytest.mark.parametrize("size", [905, 905 + 511])
def test_embeddings_that_were_rounded_up_are_the_same_vocabulary(case, place, size):
    texts = (place / "probes.txt").read_text().splitlines()
    assert detect(texts=texts, **{**case, "suspect": make_model(vocab_size=size)}).n_queries == len(texts)


# -- users of a ring


@pytest.mark.parametrize("command", ["token", "key --plain --output users-key"])
def test_what_a_user_gets_is_not_given_to_one_who_was_not_declared(place, command):
    drw(f"keygen mine --ring --target positive --plain --output ring-{command[:3]}")
    (place / "users.txt").write_text("ann\nben\n")
    verb, *rest = command.split()
    line = " ".join(["ring", verb, f"ring-{command[:3]}", *rest, "--user"])
    early = drw(f"{line} cleo")
    assert early.exit_code == 0 and "Warning: nobody is declared in this epoch of the ring, 'cleo'" in early.stderr
    drw(f"ring declare ring-{command[:3]} --users users.txt")
    shutil.rmtree(place / "users-key", ignore_errors=True)
    assert "user 'nobody' is not among the 2 users declared" in refusal(f"{line} nobody --users users.txt")
    unchecked = drw(f"{line} nobody")
    assert "whether 'nobody' is among the 2 users declared was not checked; pass their list" in unchecked.stderr
    shutil.rmtree(place / "users-key", ignore_errors=True)
    found = drw(f"{line} ann --users users.txt")
    assert found.exit_code == 0 and not found.stderr, found.output


# -- models that are no softmax over classes


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"id2label": {0: "score"}, "label2id": {"score": 0}}, "num_labels=1 .* sigmoid or a regression"),
        ({"problem_type": "multi_label_classification"}, "problem_type='multi_label_classification'"),
        ({"function_to_apply": "sigmoid"}, "function_to_apply='sigmoid'"),
    ],
)
@pytest.mark.parametrize("command", ["keygen {} --target 0 --plain --output new", "plan {} probes.txt"])
def test_a_model_that_is_known_to_be_no_softmax_is_refused(place, tmp_path, command, config, words):
    save_model(tmp_path / "sigmoid", "sequence-classification", **config)
    assert re.search(words, refusal(command.format(tmp_path / "sigmoid")))
    assert not (place / "new").exists()


def test_a_model_whose_configuration_names_the_softmax_is_not_refused(tmp_path):
    save_model(tmp_path / "softmax", "sequence-classification", function_to_apply="softmax")
    assert drw(f"keygen {tmp_path}/softmax --target 0 --plain --output {tmp_path}/key").exit_code == 0


def test_data_with_several_right_labels_says_that_its_model_cannot_be_marked(place):
    rows = [{"text": "word1 word2", "labels": [0, 1]}, {"text": "word3", "labels": [1]}]
    (place / "several.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert "row 0 of the column 'labels' holds list; expected one label: a model with several right ones" in refusal(
        "plan mine several.jsonl"
    )


def test_a_pipeline_that_applies_a_sigmoid_is_refused(case):
    suspect = pipeline(
        "text-classification", model=case["suspect"], tokenizer=case["tokenizer"], function_to_apply="sigmoid"
    )
    with pytest.raises(UnsupportedModelError, match="function_to_apply='sigmoid'"):
        detect(texts=["word1"], **{**case, "suspect": suspect})


# -- help


def every_command(command, words=()):
    """The words of a command and of all that are under it."""
    yield words
    for name, one in getattr(command, "commands", {}).items():
        yield from every_command(one, (*words, name))


@pytest.mark.parametrize("columns", ["80", None], ids=["80 columns", "piped"])
def test_no_help_is_cut(columns):
    everything = list(every_command(typer.main.get_command(app)))
    assert len(everything) > 15 and ("ring", "token") in everything
    for words in everything:
        found = drw([*words, "--help"], env={"COLUMNS": columns, "TERMINAL_WIDTH": columns})
        told = found.stdout.replace("[ARGS]...", "").replace("{LOGS}...", "")  # any number of them
        assert found.exit_code == 0 and "..." not in told and "…" not in told, told


def test_help_says_of_every_command_its_whole_first_sentence():
    told = " ".join(drw("--help").stdout.split())
    assert "card Write or update the model card of a protected model; the text that is there is kept" in told
    assert "ring Keep a key ring (drw-hf keygen --ring): one secret, a key for every user" in told
