"""drw-hf draw and probe: a neutral party asks without a key, about texts that nobody chose, and the owner decides."""

import json
import re

import pytest

from drw_hf.detection import Probe
from drw_hf.evidence import verify_timestamp
from needles import leaks_in
from test_cli import drw, save_model, write_rows

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a classifier, its key and its protected form, a suspect, innocents, texts and a round."""
    folder = tmp_path_factory.mktemp("place")
    for seed, name in enumerate(("mine", "student", "innocent-1", "innocent-2")):
        save_model(folder / name, "sequence-classification", seed=seed)
    write_rows(folder / "probes", 60, seed=0)
    write_rows(folder / "corpus", 90, seed=1)
    (folder / "round.json").write_text(json.dumps({"round": 30000000, "randomness": "5a" * 32, "signature": "00"}))
    made = drw(f"keygen {folder}/mine --mark tilt --strength 0.3 --temperature 1.4 --plain --output {folder}/key")
    assert made.exit_code == 0, made.output
    kept = drw(f"protect {folder}/mine --key {folder}/key --output {folder}/protected")
    assert kept.exit_code == 0, kept.output
    return folder


def told(line, exit_code=0):
    found = drw(f"{line} --json")
    assert found.exit_code == exit_code, found.output
    return json.loads(found.stdout)


def test_from_the_draw_to_the_verdict(inside):
    announced = told("draw corpus.jsonl --number 40 --source 'drand quicknet, round 30000000' --output draw.json")
    asked = told(
        "probe student corpus.jsonl --model protected --draw draw.json --seed-from round.json --output drawn.npz"
    )
    assert asked["n_queries"] == 40 and asked["draw"]["corpus"] == announced["corpus"]
    again = drw("probe student corpus.jsonl --model protected --output drawn.npz")
    assert again.exit_code == 1 and "never overwritten" in again.output
    line = "detect drawn.npz --key key --victim mine --control innocent-1 --control innocent-2 --output claim.json"
    found = drw(f"{line} --json")
    assert found.exit_code in (0, 3, 4), found.output
    document = json.loads(found.stdout)
    assert [one["name"] for one in document["controls"]] == ["innocent-1", "innocent-2"]
    checked = told(
        f"verify claim.json --key key --tokenizer protected --corpus corpus.csv --probe-digest {asked['digest']}", 4
    )
    passed = {check["name"] for check in checked["checks"] if check["status"] == "passed"}
    assert {"the tokens are those of the texts", "the texts were drawn by the public seed"} <= passed
    assert "the suspect's answers are those that a neutral party recorded" in passed
    other = told(f"verify claim.json --key key --corpus probes.jsonl --probe-digest {'0' * 64}", 1)
    assert sum(check["status"] == "failed" for check in other["checks"]) == 2


def test_the_examples_run(inside):
    for command in ("draw", "probe"):
        (example,) = re.findall(r"Example: drw-hf (.+)$", drw(f"{command} --help").stdout, flags=re.MULTILINE)
        found = drw(example.replace("draw.json", "example.json").replace("probe.npz", "example.npz"))
        assert found.exit_code == 0, found.output
    assert Probe.load("example.npz").n_queries == 60


def test_a_probe_holds_nothing_of_a_key_and_none_is_read(inside):
    from drw_hf import WatermarkKey

    found = drw("probe student probes.txt --model mine --output nothing.npz --label-map positive=positive")
    assert found.exit_code == 0 and "Before you see the key" in found.output
    assert leaks_in(WatermarkKey.from_pretrained("key"), [("probe", (inside / "nothing.npz").read_bytes())]) == []


def test_the_digest_is_stamped(inside, tsa):
    asked = told(f"probe student probes.txt --model mine --output stamped.npz --timestamp-url {tsa.url}")
    token = (inside / "stamped.tsr").read_bytes()
    assert verify_timestamp(token, asked["digest"], [tsa.root]).time is not None


@pytest.mark.parametrize(
    "line, exit_code, words",
    [
        ("probe student probes.txt --model mine --output probe.json", 2, "ending"),
        ("probe student probes.txt --model mine --output x.npz --draw round.json", 2, "go together"),
        (
            "probe student probes.txt --model mine --output x.npz --draw round.json --seed-from round.json "
            "--max-queries 3",
            2,
            "leave out",
        ),
        (
            "probe student probes.txt --model mine --output x.npz --draw round.json --seed-from round.json",
            1,
            "announce",
        ),
        ("draw probes.txt --number 61 --source x --output y.json", 1, "draw fewer"),
        ("detect student --key key --victim mine", 2, "TEXTS are missing"),
    ],
)
def test_what_is_wrong_is_said(line, exit_code, words):
    found = drw(line)
    assert found.exit_code == exit_code and words in " ".join(found.output.replace("│", " ").split()), found.output
