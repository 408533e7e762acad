"""``drw-hf demo``: its story, its folder, models and texts of one's own, and what it refuses.

The demo itself takes a minute or two and is marked slow; the rest plays it with few rows, where verdicts are chance's.
"""

import functools
import json
import math
import random
import re
import shlex
import shutil
import stat
import traceback
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from typer.testing import CliRunner

from drw_hf import WatermarkKey
from drw_hf.cli.main import app
from drw_hf.demo import play as demo
from drw_hf.demo import scenes
from drw_hf.demo import story as demo_story
from drw_hf.detection import DetectionResult
from drw_hf.errors import DatasetError
from drw_hf.keys import sealing
from drw_hf.wording import small_p
from needles import leaks_in
from small_models import TAGS, WORDS, draw_labels, make_lively, make_model, make_tokenizer, make_victim

TOKEN, SEQUENCE = demo_story.TOKEN, demo_story.SEQUENCE
SUSPECTS = list(demo.SUSPECTS.values())


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")


@pytest.fixture
def few_keys(monkeypatch):
    """For texts of forty words, where P_snr under thousands of random keys takes long."""
    monkeypatch.setattr(demo, "SIMULATED_KEYS", 20)


def play(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


def words(n, rng):
    return [rng.choice(WORDS) for _ in range(n)]


def make_rows(task, n=60, seed=0):
    """Rows that the tiny models can read; their labels are chance."""
    rng = random.Random(seed)
    if task == TOKEN:
        rows = [words(rng.randrange(4, 9), rng) for _ in range(n)]
        return [{"tokens": row, "ner_tags": [rng.choice(TAGS) for _ in row]} for row in rows]
    return [{"text": " ".join(words(8, rng)), "label": rng.choice(["negative", "positive"])} for _ in range(n)]


def save_model(folder, task, **settings):
    make_model(task, **settings).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


def save_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def report_in(folder):
    return json.loads((folder / "demo.json").read_text())


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A demo of the corpus with few rows, and the secrets it forgot."""
    folder, secrets = tmp_path_factory.mktemp("played") / "drw-demo", []
    save = WatermarkKey.save_pretrained

    def remember(key, where, *, passphrase=None):
        secrets.append((key, passphrase))
        save(key, where, passphrase=passphrase)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatermarkKey, "save_pretrained", remember)
        patch.setattr(sealing, "COST", 2**4)
        told = play("--output", folder, "--limit", 200)
    assert told.exit_code == 0, told.output
    ((key, passphrase),) = secrets
    return SimpleNamespace(folder=folder, stdout=told.stdout, stderr=told.stderr, key=key, passphrase=passphrase)


# -- the story


def test_the_table_is_what_the_json_says(played):
    lines = re.findall(r"^  ((?:victim|student|innocent).{20,})$", played.stdout, flags=re.MULTILINE)
    models = report_in(played.folder)["models"]
    assert [line[:28].strip() for line in lines] == [row["model"] for row in models]
    for line, row in zip(lines, models, strict=True):
        figures = line[28:].split(maxsplit=3)
        assert figures[0] == f"{row['accuracy']:.1%}"
        if row["model"] in SUSPECTS:
            assert figures[1:] == [f"{row['p_snr']:.1f}", small_p(row["log10_p"]), row["verdict"]]
    assert [row["model"] for row in models if "verdict" in row] == SUSPECTS


def test_the_story_fits_a_terminal_and_progress_goes_to_stderr(played):
    assert max(map(len, played.stdout.splitlines())) <= 100
    stages = report_in(played.folder)["seconds"]
    assert set(stages) == {"victim", "key", "protect", "soft", "hard", "innocent", "detect", "write", "total"}
    lines = [line for line in played.stderr.splitlines() if line.startswith("[")]
    assert len(lines) == len(stages) - 1 and all(re.search(r"\.\.\. \d+ s$", line) for line in lines)


def test_the_service_changed_little(played):
    service, settings = report_in(played.folder)["service"], played.key.settings
    assert 0 < service["moved"] <= 1 and service["same_label"] > 0.9
    apart = 2 * math.sqrt(2) * settings.strength * settings.temperature  # by which log-odds of two classes may move
    assert service["largest_change"] <= math.tanh(apart / 4) + 2e-3, "and three digits are shown"


def test_the_key_was_fitted_to_the_price_that_the_story_tells(played):
    report = report_in(played.folder)
    price, settings = report["price"], played.key.settings
    assert (report["mark"], price["budget"], price["texts"]) == ("tilt", 0.3, 200)
    assert (settings.strength, settings.budget) == (price["strength"], 0.3) and price["expected_cost"] <= 0.3
    assert "ready to pay 0.3 points of accuracy" in " ".join(played.stdout.split())


def test_the_files_that_the_story_names_are_there(played):
    for row in report_in(played.folder)["models"]:
        if row["model"] in SUSPECTS:
            assert (played.folder / row["figure"]).read_bytes().startswith(b"\x89PNG")
            page = played.folder / row["report"]
            assert row["model"] in page.read_text()
            evidence = DetectionResult.load(page.with_name("evidence.json"))
            assert (evidence.suspect, evidence.verdict) == (row["model"], row["verdict"])
            assert evidence.suspects_tested == 3
    for name in (
        "protected/config.json",
        "protected/tokenizer.json",
        "key/drw_key.json",
        "next-steps.md",
        "model/config.json",
        "beginner/config.json",
        "texts/labelled.jsonl",
    ):
        assert (played.folder / name).is_file()
        assert name.split("/")[0] in played.stdout


def test_nothing_of_the_secret_is_written_but_the_sealed_key_and_its_passphrase(played):
    """Figures and evidence show hash values, as their pages say; the passphrase stands in one file, for its owner."""
    files = {path.relative_to(played.folder): path.read_bytes() for path in played.folder.rglob("*") if path.is_file()}
    files |= {"stdout": played.stdout.encode(), "stderr": played.stderr.encode()}
    kept = played.folder / demo_story.PASSPHRASE_FILE
    assert [name for name, data in files.items() if played.passphrase.encode() in data] == [Path(kept.name)]
    assert kept.read_text() == f"{played.passphrase}\n" and stat.S_IMODE(kept.stat().st_mode) == 0o600
    found = leaks_in(played.key, [(str(name), data) for name, data in files.items()])
    assert not [(place, what) for place, what in found if not (place.startswith("evidence") and " as text" in what)]
    assert not [what for _, what in found if what.startswith(("secret", "subkey"))]


def test_an_error_while_the_key_is_sealed_holds_no_passphrase(tmp_path, monkeypatch):
    scene = SimpleNamespace(task=SEQUENCE, victim=make_model(SEQUENCE), tokenizer=make_tokenizer())
    key = WatermarkKey.generate(scene.victim, tokenizer=scene.tokenizer, temperature=1.0)

    def fail(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(WatermarkKey, "save_pretrained", fail)
    with pytest.raises(OSError, match="the disk is full") as caught:
        demo.protect(scene, key, tmp_path)
    passphrase = (tmp_path / demo_story.PASSPHRASE_FILE).read_text().strip()
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    assert "protect" in [frame.f_code.co_name for frame in frames]
    ours = [frame for frame in frames if frame.f_code.co_filename != __file__]
    assert not [frame for frame in ours if passphrase in repr(frame.f_locals)]


def test_the_protected_model_is_the_victim_of_the_key(played):
    config = json.loads((played.folder / "protected/config.json").read_text())
    assert config["key_commitment"] == played.key.commitment()
    assert report_in(played.folder)["key_fingerprint"] == played.key.fingerprint


@pytest.fixture
def again(played, tmp_path, monkeypatch):
    """The folder in which a copy of the demo's lies, for somebody who goes on with it."""
    shutil.copytree(played.folder, tmp_path / "drw-demo", ignore=shutil.ignore_patterns("evidence", "figures"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRW_PASSPHRASE", "correct horse battery staple")
    monkeypatch.setattr(sealing, "COST", 2**4)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path


def run_as_printed(commands):
    """Every command works; those that judge may find the little text too little."""
    for command in commands:
        ran = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        judges = command.split()[1] in ("detect", "verify")
        assert ran.exit_code in ((0, 3, 4) if judges else (0,)), ran.output


def test_the_next_steps_work_as_printed_in_the_folder_of_the_demo(played, again, monkeypatch):
    monkeypatch.chdir("drw-demo")
    commands = re.findall(r"^    (drw-hf .*)$", Path("next-steps.md").read_text(), flags=re.MULTILINE)
    assert [command.split()[1] for command in commands] == "keygen protect label distill detect demo verify".split()
    for command in commands:
        assert command.split()[1] == "demo" or command in played.stdout
    run_as_printed(commands[:5])
    assert DetectionResult.load("evidence/evidence.json").n_queries == 200


def test_the_readme_goes_from_a_model_to_a_verdict(again, monkeypatch, capsys):
    """With less text than its reader has; what it prints is of the same form as what the page shows."""
    page = (Path(__file__).parents[1] / "README.md").read_text()
    example, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, flags=re.DOTALL).groups()
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    exec(compile(example, "README.md", "exec"), {})
    printed = capsys.readouterr().out

    def form(text):
        return [re.sub(r"\d[\d.,]*", "0", line) for line in text.splitlines() if not line.startswith("{")][:3]

    assert form(printed) == form(shown), "the Trainer's own lines left out"
    for text in (printed, shown):
        assert re.search(r"^[a-z ]+: p \S+ \(at most \S+\), z \S+, P_snr ", text, flags=re.MULTILINE)
    monkeypatch.chdir("drw-demo")
    run_as_printed(re.findall(r"^(drw-hf .*)$", page, flags=re.MULTILINE))
    assert len(re.findall(r"^drw-hf ", page, flags=re.MULTILINE)) == 6


def test_the_evidence_can_be_replayed_as_the_story_says(played, monkeypatch):
    place, command = re.search(r"^  cd (.*)\n  (drw-hf verify .*)$", played.stdout, flags=re.MULTILINE).groups()
    monkeypatch.delenv("DRW_PASSPHRASE", raising=False)
    monkeypatch.chdir(shlex.split(place)[0])
    found = CliRunner().invoke(app, shlex.split(command)[1:])
    assert found.exit_code == 4 and "Nothing failed" in found.stdout, found.output
    assert played.passphrase not in found.output


def test_what_did_not_come_as_it_should_is_told():
    rows = [{"model": name, "verdict": "undecided", "explanation": f"Why {name}."} for name in SUSPECTS]
    told = demo_story.outcome({"models": rows})
    assert len(told) == 3 and all(f"Why {name}." in line for name, line in zip(SUSPECTS, told, strict=True))
    assert "'not detected', and is 'undecided'" in told[2]


@pytest.mark.parametrize(
    ("log10", "text"),
    [(0.0, "1"), (-0.2, "0.63"), (-2.5, "0.0032"), (-3.0, "0.001"), (-38.01, "9.8e-39"), (-400.0, "1e-400")],
)
def test_p_values_are_written_as_people_write_them(log10, text):
    row = {"model": "student", "accuracy": 0.9, "p_snr": 5.0, "log10_p": log10, "verdict": "detected"}
    assert f" {text}  detected" in demo_story.table([row])


# -- a model and texts of one's own


def test_a_tagger_of_ones_own_with_the_texts_of_a_file_and_the_papers_mark(tmp_path, few_keys):
    model, output = save_model(tmp_path / "model", TOKEN), tmp_path / "out"
    data = save_rows(tmp_path / "rows.jsonl", make_rows(TOKEN, 120))
    told = play("--model", model, "--dataset", data, "--mark", "cosine", "--output", output, "--json")
    assert told.exit_code == 0, told.output
    report = json.loads(told.stdout)
    assert not told.stderr and report == report_in(output)
    assert (report["model"], report["dataset"], report["task"]) == (str(model), str(data), TOKEN)
    assert (report["mark"], report["price"]) == ("cosine", None)
    assert (report["queries"], report["held_out"]) == (42, 18), "one split, divided"
    assert f"drw-hf keygen {model} " in (output / "next-steps.md").read_text()


def test_a_classifier_of_ones_own_and_an_interrupted_demo_that_is_repeated(tmp_path, monkeypatch, few_keys):
    """Two splits of a saved data set; students start from another model, whose labels have another order."""
    model, output = tmp_path / "model", tmp_path / "out"
    splits = {"train": make_rows(SEQUENCE, 80, 1), "test": make_rows(SEQUENCE, 200, 2)}
    texts, tokenizer = [row["text"] for row in splits["test"]], make_tokenizer()
    trained = make_lively(make_model(SEQUENCE), tokenizer, texts)
    for row, label in zip(splits["test"], draw_labels(trained, tokenizer, texts), strict=True):
        row["label"] = label  # as right as a model that is worth protecting is
    trained.save_pretrained(model)
    tokenizer.save_pretrained(model)
    other = {"id2label": {0: "positive", 1: "negative"}, "label2id": {"positive": 0, "negative": 1}}
    student = save_model(tmp_path / "student", SEQUENCE, architecture="distilbert", **other)
    parts = datasets.DatasetDict({name: datasets.Dataset.from_list(rows) for name, rows in splits.items()})
    parts.save_to_disk(tmp_path / "saved")
    line = [
        "--model",
        model,
        "--dataset",
        tmp_path / "saved",
        "--student",
        student,
        "--limit",
        100,
        "--output",
        output,
    ]

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "steal", interrupt)
        stopped = play(*line)
    assert stopped.exit_code == 130 and "starts afresh" in stopped.stderr and not stopped.stdout
    assert (output / "key").is_dir() and not report_in(output)["complete"]

    (output / "note.txt").write_text("mine")
    again = play(*line)
    assert again.exit_code == 0, again.output
    report = report_in(output)
    assert report["complete"] and (report["queries"], report["held_out"]) == (40, 100)
    assert f"from {student}" in again.stdout.replace("\n", " ") and f"in {model} is" in again.stdout.replace("\n", " ")
    assert (output / "note.txt").read_text() == "mine"


def test_labels_of_the_data_are_matched_by_name(tmp_path):
    rows = datasets.Dataset.from_dict({"text": ["a", "b", ""], "label": [0, 1, 0]})
    rows = rows.cast_column("label", datasets.ClassLabel(names=["positive", "negative"]))
    made = scenes.plain_rows(rows, scenes.OwnTexts("data"), SEQUENCE, ["negative", "positive"])
    assert made.to_list() == [{"text": "a", "label": 1}, {"text": "b", "label": 0}]


def test_pairs_and_unusual_columns():
    rows = datasets.Dataset.from_dict({"one": ["a"], "other": ["b"], "verdict": [1]})
    texts = functools.partial(scenes.OwnTexts, "data", None)
    made = scenes.plain_rows(rows, texts(["one", "other"], "verdict"), SEQUENCE, ["no", "yes"])
    assert made.to_list() == [{"text_a": "a", "text_b": "b", "label": 1}]
    with pytest.raises(DatasetError, match="--text-column"):
        scenes.plain_rows(rows, texts(None, "verdict"), SEQUENCE, ["no", "yes"])
    with pytest.raises(DatasetError, match="--label-column"):
        scenes.plain_rows(rows, texts(["one"], None), SEQUENCE, ["no", "yes"])


def test_the_target_is_the_class_most_predicted_and_not_outside():
    assert scenes.most_predicted([[0, 0, 0, 1], [2, 2, -1]], ["O", "B-PER", "B-LOC"]) == "B-LOC"
    assert scenes.most_predicted([1, 1, 0], ["negative", "positive"]) == "positive"


# -- what it refuses


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "MODEL"], 2, "--model and --dataset go together"),
        (["--dataset", "DATA"], 2, "--model and --dataset go together"),
        (["--student", "MODEL"], 2, "--student need"),
        (["--task", "summarization"], 2, "--task"),
        (["--model", "MODEL", "--dataset", "DATA", "--task", TOKEN], 1, "is for sequence-classification"),
        (["--model", "TAGGER", "--dataset", "DATA"], 1, "--text-column"),
        (["--model", "MODEL", "--dataset", "UNLABELLED"], 1, "--label-column"),
        (["--model", "MODEL", "--dataset", "DATA", "--label-column", "gold"], 1, "--label-column gold"),
        (["--model", "MODEL", "--dataset", "STRANGE"], 1, "none of the labels"),
        (["--model", "MODEL", "--dataset", "nowhere.jsonl"], 1, "there is no file or folder nowhere.jsonl"),
        (["--model", "nowhere/at/all", "--dataset", "DATA"], 1, "no folder nowhere/at/all"),
        (["--model", "LANGUAGE", "--dataset", "DATA"], 1, "BertForMaskedLM"),
        (["--model", "PROTECTED", "--dataset", "DATA"], 1, "protected already"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, arguments, code, message):
    places = {
        "MODEL": lambda path: save_model(path, SEQUENCE),
        "TAGGER": lambda path: save_model(path, TOKEN),
        "PROTECTED": lambda path: make_victim().save_pretrained(path),
        "LANGUAGE": lambda path: path.mkdir() or (path / "config.json").write_text(
            json.dumps({"model_type": "bert", "architectures": ["BertForMaskedLM"]})
        ),
        "DATA": lambda path: save_rows(path.with_suffix(".jsonl"), make_rows(SEQUENCE)),
        "UNLABELLED": lambda path: save_rows(path.with_suffix(".jsonl"), [{"text": "a film"}] * 5),
        "STRANGE": lambda path: save_rows(path.with_suffix(".jsonl"), [{"text": "a film", "label": "mixed"}] * 5),
    }  # fmt: skip
    line = []
    for argument in arguments:
        if argument in places:
            places[argument](tmp_path / argument)
            data = tmp_path / f"{argument}.jsonl"
            argument = data if data.exists() else tmp_path / argument
        line.append(argument)
    refused = play(*line, "--output", tmp_path / "out")
    assert refused.exit_code == code, refused.output
    assert message in " ".join(refused.stderr.split())
    assert not (tmp_path / "out").exists() and not refused.stdout


@pytest.mark.parametrize("name", ["mine.txt", "demo.json"])
def test_a_folder_that_is_not_its_own_is_not_touched(tmp_path, name):
    (tmp_path / name).write_text('{"precious": true}')
    refused = play("--output", tmp_path)
    assert refused.exit_code == 2 and "not a demo of ours" in refused.output
    assert {path.name for path in tmp_path.iterdir()} == {name}
    assert (tmp_path / name).read_text() == '{"precious": true}'


# -- the whole


@pytest.mark.slow
@pytest.mark.parametrize("task", [TOKEN, SEQUENCE])
def test_both_students_are_found_and_the_innocent_model_is_not_accused(tmp_path, task):
    told = play("--output", tmp_path / "demo", "--task", task, "--json")
    assert told.exit_code == 0, told.output
    found = {row["model"]: row for row in json.loads(told.stdout)["models"]}
    assert found[demo.SUSPECTS["soft"]]["verdict"] == "detected"
    assert found[demo.SUSPECTS["hard"]]["verdict"] == "detected"
    assert found[demo.SUSPECTS["innocent"]]["verdict"] != "detected", "by chance in one run of 3000"
    clean, soft, hard = (
        found[f"victim, {how}"]["accuracy"] for how in ("clean", "serving soft labels", "serving hard labels")
    )
    assert clean > 0.8 and soft == hard and abs(clean - soft) < 0.02, "0.3 points, on average over keys and texts"
