"""The package around it all: what it exports, imports, prints and promises in its README."""

import doctest
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import datasets
import pytest
from typer.testing import CliRunner

import drw_hf
from drw_hf.cli.main import app
from drw_hf.errors import DrwError

ROOT = Path(__file__).parents[1]
MODULES = [module.name for module in pkgutil.walk_packages(drw_hf.__path__, "drw_hf.")]


def test_the_public_names_are_these_and_no_others():
    assert set(drw_hf.__all__) == {
        "DetectionResult",
        "DistillationArguments",
        "DistillationTrainer",
        "detect",
        "identify",
        "KeyRing",
        "label_with_teacher",
        "p_snr",
        "WatermarkKey",
        "WatermarkedConfig",
        "WatermarkedModelForSequenceClassification",
        "WatermarkedModelForTokenClassification",
        "__version__",
    }
    assert (Path(drw_hf.__file__).parent / "py.typed").exists()


def test_importing_the_package_imports_nothing_heavy_of_its_own():
    """What is used by one part alone is imported there; the time itself is measured by `make bench`."""
    heavy = "astropy matplotlib datasets evaluate peft scipy pandas typer sklearn".split()
    classes = "PreTrainedModel, AutoModelForSequenceClassification, AutoModelForTokenClassification"
    code = f"from transformers import {classes}; import sys; before = set(sys.modules); import drw_hf; "
    code += f"print(sorted(set({heavy}) & set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_every_error_has_one_base():
    errors = [value for value in vars(drw_hf.errors).values() if isinstance(value, type)]
    assert len(errors) > 5 and all(issubclass(error, DrwError) and error.__doc__ for error in errors)


def test_a_package_imports_only_from_those_above_it():
    order = ["errors", "keys", "watermark", "extraction", "detection", "metrics", "hub", "experiments", "cli"]
    for path in (ROOT / "src" / "drw_hf").rglob("*.py"):
        own = path.relative_to(ROOT / "src" / "drw_hf").parts[0].removesuffix(".py")
        if own not in order:
            continue
        for package in re.findall(r"^from \.\.(\w+)", path.read_text(), flags=re.MULTILINE):
            if package in order:
                assert order.index(package) <= order.index(own), f"{path.name} imports {package}"


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_everything_public_has_a_docstring():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__ or name.endswith("_version"), name
        for attribute, value in vars(module).items():
            if getattr(value, "__module__", None) == name and callable(value) and not attribute.startswith("_"):
                assert value.__doc__, f"{name}.{attribute}"


def test_the_first_example_of_the_readme_runs_as_printed(tmp_path):
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL).group(1)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    clean, served = (json.loads(line[7:]) for line in run.stdout.splitlines())
    assert len(clean) == len(served) == 2 and clean != served
    assert {path.name for path in tmp_path.iterdir()} == {"protected", "key"}


def test_links_of_the_readme_and_docs_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_benchmark_table_is_the_one_of_the_committed_figures():
    sys.path.insert(0, str(ROOT))
    try:
        from tests.bench.__main__ import as_markdown
    finally:
        sys.path.remove(str(ROOT))
    report = json.loads((ROOT / "docs/results/bench.json").read_text())
    assert (ROOT / "docs/results/bench.md").read_text() == as_markdown(report)


def test_settings_agree():
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"] == 119
    assert (
        drw_hf.__version__
        in subprocess.run([sys.executable, "-m", "pip", "show", "drw_hf"], capture_output=True, text=True).stdout
    )


# -- the command line


def test_help_teaches_and_version_tells():
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output.strip() == drw_hf.__version__
    text = runner.invoke(app, ["demo", "--help"]).output
    assert "Example: drw-hf demo" in text and "--json" in text
