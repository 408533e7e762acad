"""``drw-hf detect`` and ``verify`` with a key of the mark tilt, on tiny models."""

import json

import pytest

from drw_hf import WatermarkKey
from needles import leaks_in
from test_cli import drw, save_model, write_rows

pytestmark = pytest.mark.usefixtures("inside")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a classifier and its key, a suspect, a reference and probe texts."""
    folder = tmp_path_factory.mktemp("place")
    for seed, name in enumerate(("mine", "suspect", "reference")):
        save_model(folder / name, "sequence-classification", seed=seed)
    write_rows(folder / "probes", 80, seed=0)
    made = drw(f"keygen {folder}/mine --mark tilt --strength 0.3 --temperature 1.4 --plain --output {folder}/key")
    assert made.exit_code == 0, made.output
    return folder


@pytest.mark.parametrize("reference", ["", " --reference reference"])
def test_labels_alone_are_shown_beside_scores_and_the_evidence_replays(reference):
    name = "with" if reference else "without"
    line = f"detect suspect probes.txt --key key --victim mine{reference} --output {name}.json"
    found = drw(f"{line} --json")
    assert found.exit_code in (0, 3, 4), found.output
    document = json.loads(found.stdout)
    assert document["variant"] == f"probabilities-victim{'-reference' if reference else ''}"
    assert document["beside"]["variant"] == document["variant"].replace("probabilities", "labels")
    assert "Beside the test, and not part of it: the suspect's labels alone" in document["explanation"]
    assert leaks_in(WatermarkKey.from_pretrained("key"), [("stdout", found.output.encode())]) == []
    told = drw(line.replace(f"{name}.json", f"{name}-again.json"))
    assert "labels alone, for comparison: z" in told.stdout and "Beside the test" in told.stdout
    replayed = drw(f"verify {name}.json --key key")
    assert replayed.exit_code == 4, replayed.output  # there is no commitment
    assert ("reference's answers" in replayed.stdout) == bool(reference)


def test_a_log_of_labels_is_refused_where_none_were_drawn(inside):
    rows = [{"text": f"the film was good {number}", "served": "positive"} for number in range(20)]
    (inside / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = drw("detect suspect log.jsonl --key key --victim mine --logged-column served")
    assert found.exit_code == 1 and "none are drawn" in " ".join(found.output.split())
