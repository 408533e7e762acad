"""The notebooks run, and were kept as they ran."""

import re

import nbformat
import pytest

from notebooks import NOTEBOOKS, execute

NAMES = [
    "01_protect_and_serve",
    "02_steal_and_detect",
    "03_ner_and_another_tokenizer",
    "04_keys_on_the_hub",
    "05_who_leaked",
    "06_serve_and_log",
]


def code_cells(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_these_are_the_notebooks():
    assert [path.stem for path in NOTEBOOKS] == NAMES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_in_small_form(path):
    execute(path, small=True)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_kept_with_the_outputs_of_one_run_from_top_to_bottom(path):
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert outputs and not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_no_path_of_the_machine_it_ran_on(path):
    text = re.sub(r'"image/png": "[^"]*"', "", path.read_text(encoding="utf-8"))
    assert not re.search(r"/(?:home|root|tmp|work|Users|var)/|127\.0\.0\.1|hf_[0-9a-zA-Z]{20}", text)
