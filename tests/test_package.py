"""The package around it all: what it exports, imports, prints and promises in its README."""

import ast
import configparser
import doctest
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import datasets
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
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
        "Marker",
        "p_snr",
        "QueryLog",
        "WatermarkKey",
        "WatermarkedConfig",
        "WatermarkedModelForSequenceClassification",
        "WatermarkedModelForTokenClassification",
        "__version__",
    }
    assert (Path(drw_hf.__file__).parent / "py.typed").exists()


def test_a_type_checker_is_shown_every_public_name():
    """`make quality` runs mypy over that file: none of them may be Any."""
    checked = (ROOT / "tests" / "public_types.py").read_text()
    assert not [name for name in drw_hf.__all__ if not re.search(rf"\b{name}\b", checked)]
    assert "tests/public_types.py" in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["files"]


def test_importing_the_package_imports_nothing_heavy_of_its_own():
    """What is used by one part alone is imported there; the time itself is measured by `make bench`."""
    heavy = "astropy matplotlib datasets evaluate peft scipy pandas typer sklearn".split()
    classes = "PreTrainedModel, AutoModelForSequenceClassification, AutoModelForTokenClassification"
    code = f"from transformers import {classes}; import sys; before = set(sys.modules); import drw_hf; "
    code += f"print(sorted(set({heavy}) & set(sys.modules) - before))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_threads_that_ask_for_names_at_once_all_get_them():
    code = """
import threading, drw_hf
failed = []
def ask(name):
    try:
        getattr(drw_hf, name)
    except BaseException as error:
        failed.append(f"{name}: {error!r}")
threads = [threading.Thread(target=ask, args=(name,)) for name in (*drw_hf.__all__, "planning", "evidence", "hub")]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(failed)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_every_error_has_one_base():
    errors = [value for value in vars(drw_hf.errors).values() if isinstance(value, type)]
    assert len(errors) > 5 and all(issubclass(error, DrwError) and error.__doc__ for error in errors)


# A package imports only from those above it. `__init__` offers all, and imports it when it is asked for.
ORDER = (
    "_version lazy errors registry checks wording reading runs keys watermark asking extraction detection tracing "
    "repositories evidence planning metrics hub serving experiments demo cli"
).split()
TEMPLATES = [*(ROOT / "src/drw_hf/metrics").glob("*/*.py"), *(ROOT / "src/drw_hf/hub/templates").glob("*.py")]


def imports_at_the_top(path):
    """What a module imports from the package as it is imported itself: (room, names) pairs."""
    package = ["drw_hf", *path.relative_to(ROOT / "src/drw_hf").parent.parts]
    statements = list(ast.parse(path.read_text()).body)
    for statement in statements:
        if isinstance(statement, ast.If | ast.Try | ast.With) and "TYPE_CHECKING" not in ast.unparse(statement):
            statements += statement.body + getattr(statement, "orelse", [])
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            start = package[: len(package) - statement.level + 1] if statement.level else []
            module = [*start, *(statement.module or "").split(".")]
            if module[0] == "drw_hf":
                inner = [part for part in module[1:] if part]
                yield from [inner[0]] if inner else [alias.name for alias in statement.names]
        elif isinstance(statement, ast.Import):
            names = [alias.name.split(".") for alias in statement.names]
            yield from [name[1] for name in names if name[0] == "drw_hf" and len(name) > 1]


def test_a_package_imports_only_from_those_above_it():
    rooms = {path.stem for path in (ROOT / "src/drw_hf").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "py", "__pycache__"} == set(ORDER), "a new room needs its place in the order"
    upwards = []
    for path in (ROOT / "src/drw_hf").rglob("*.py"):
        own = path.relative_to(ROOT / "src/drw_hf").parts[0].removesuffix(".py")
        if own == "__init__" or path in TEMPLATES:
            continue
        for room in imports_at_the_top(path):
            if ORDER.index(room) > ORDER.index(own):
                upwards.append(f"{path.relative_to(ROOT)} imports {room}")
    assert not upwards


def test_the_layering_test_sees_every_way_to_import(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    folder = tmp_path / "src/drw_hf/keys"
    folder.mkdir(parents=True)
    text = "from ..hub import a\nfrom .. import cli\nimport drw_hf.demo.play\nfrom drw_hf.tracing import x\n"
    (folder / "key.py").write_text(text + "from .files import y\nif True:\n    from ..metrics import z\n")
    assert list(imports_at_the_top(folder / "key.py")) == ["hub", "cli", "demo", "tracing", "keys", "metrics"]
    (folder.parent / "planning.py").write_text("from .detection.probing import b\nfrom . import hub\n")
    assert list(imports_at_the_top(folder.parent / "planning.py")) == ["detection", "hub"]


# -- what is installed with it


def setup_cfg():
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    return settings


def declared():
    """The requirements in setup.cfg: a mapping from the extra ("" for what everybody gets) to them, by name."""
    options = setup_cfg()
    groups = {"": options["options"]["install_requires"], **options["options.extras_require"]}
    lines = {extra: map(Requirement, text.split("\n")[1:]) for extra, text in groups.items()}
    return {extra: {canonicalize_name(line.name): line for line in group} for extra, group in lines.items()}


def third_party_imports(tree):
    """The packages of others that a module imports when it runs, `library("name")` of the experiments included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue  # for type checkers alone
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "library":
            names = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        own = {*sys.stdlib_module_names, "drw_hf", "drw_hf_console"}
        yield from {name.partition(".")[0] for name in names} - own
        yield from third_party_imports(node)


def test_what_is_imported_is_declared_and_what_is_declared_is_imported():
    home, extras = packages_distributions(), declared()
    used = {"": set(), "experiments": set(), "timestamp": set(), "serve": set(), "drand": set()}
    for path in (ROOT / "src").rglob("*.py"):
        for name in third_party_imports(ast.parse(path.read_text())):
            found = {canonicalize_name(distribution) for distribution in home.get(name, [name])}
            extra = next((extra for extra in used if extra and found & extras[extra].keys()), "")
            assert found & extras[extra].keys(), (
                f"{path.relative_to(ROOT)} imports {name}, which setup.cfg does not name"
            )
            used[extra] |= found
    for extra, found in used.items():
        assert not extras[extra].keys() - found, f"setup.cfg names what is never imported (extra: {extra or 'none'})"


def test_the_import_test_sees_every_way_to_import():
    text = "import a.b, os\nfrom c.d import e\nfrom .f import g\nif TYPE_CHECKING:\n    import h\n"
    text += "def work():\n    import i\n    library('j.k').l()\n    from drw_hf import m\n"
    assert sorted(third_party_imports(ast.parse(text))) == ["a", "c", "i", "j"]


def test_every_lower_bound_can_be_tried():
    """`make test-lowest` does so, but has torch as constraints.txt pins it: no older one is promised."""
    for extra, requirements in declared().items():
        for name, requirement in requirements.items():
            bounds = [bound.operator for bound in requirement.specifier]
            assert bounds == [">="], f"{name} in {extra or 'install_requires'} needs a lower bound, and no other"
    (pinned,) = (Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#")
    (least,) = declared()[""]["torch"].specifier
    assert pinned.name == "torch" and Version(str(pinned.specifier).removeprefix("==")) == Version(least.version)


@pytest.mark.skipif("LOWEST" not in os.environ, reason="only `make test-lowest` installs the lowest versions")
def test_every_lower_bound_is_reached_and_is_what_is_tested():
    """A bound that another package's requirements make unreachable says nothing."""
    for name, requirement in {**declared()["test"], **declared()[""]}.items():
        (bound,) = requirement.specifier
        assert Version(Version(version(name)).public) == Version(bound.version), f"{name}: setup.cfg says {bound}"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_files_that_are_copied_to_the_hub_import_public_names_alone(path):
    """A copy lives on where it was pushed, and must run with later versions of the package."""
    seen = 0
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module.split(".")[0] == "drw_hf":
            module = importlib.import_module(statement.module)
            public = vars(module) if module is drw_hf.errors else module.__all__
            assert hasattr(module, "__path__") or module is drw_hf.errors, (
                f"{statement.module} is a module of a package"
            )
            assert {alias.name for alias in statement.names} <= set(public), ast.unparse(statement)
            seen += 1
    assert seen


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    monkeypatch.chdir(tmp_path)  # where an example may write
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_everything_public_has_a_docstring():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__ or name.endswith("_version"), name
        for attribute, value in vars(module).items():
            if getattr(value, "__module__", None) == name and callable(value) and not attribute.startswith("_"):
                assert value.__doc__, f"{name}.{attribute}"


def test_links_of_the_readme_and_docs_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def setup_script():
    spec = importlib.util.spec_from_file_location("setup_script", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_at_a_package_index_every_link_of_the_readme_is_absolute():
    here, url = (ROOT / "README.md").read_text(), setup_cfg()["metadata"]["url"]
    there = setup_script().for_the_index(here, url)
    before, after = (re.findall(r"\]\(([^)]+)\)", text) for text in (here, there))
    assert len(before) == len(after) and "docs/quickstart.md" in before
    for target, absolute in zip(before, after, strict=True):
        kind = "raw" if target.endswith(".png") else "blob"
        assert absolute == (target if "://" in target else f"{url}/{kind}/main/{target}")
    code = [re.findall(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE) for text in (here, there)]
    assert code[0] == code[1] != []


def test_links_within_a_page_and_to_elsewhere_stay():
    kept = "[a](#part) [b](https://host/x) [c](mailto:me@host) ![d](https://host/y.png) t[0](1 )"
    assert setup_script().for_the_index(kept, "https://r") == kept


def test_the_repository_has_one_address():
    address = setup_cfg()["metadata"]["url"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["repository-code"] == address
    for line in setup_cfg()["metadata"]["project_urls"].split("\n")[1:]:
        assert line.partition(" = ")[2].startswith(address)


def test_the_workflows_run_targets_that_exist_on_every_python_that_is_claimed():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    versions = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert versions == re.findall(r"Python :: (3\.\d+)", setup_cfg()["metadata"]["classifiers"])
    once = workflow["jobs"]["once"]["strategy"]["matrix"]["target"]
    files = [*(ROOT / ".github/workflows").iterdir(), ROOT / ".readthedocs.yaml", ROOT / ".pre-commit-config.yaml"]
    commands = [line for path in files for line in path.read_text().splitlines() if not line.startswith("#")]
    named = {name for line in commands for name in re.findall(r"\bmake ([a-z-]+)", line)}
    assert {"test", "docs", "quality"} <= named and named | set(once) <= targets
    assert {"docs", "quality", "test-lowest", "release-check"} == set(once)


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
    assert "Example: drw-hf demo" in text and "--json" in text and "[default: tilt]" in text
    assert "\\[" not in text  # as some versions of typer had it
