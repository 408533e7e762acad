"""The documentation says what is so: its examples run, its links lead somewhere, the errors it explains exist.

A page lists in a hidden comment, ``<!-- given: model, texts -->``, what its examples take for granted; the names are
made here. A block that cannot run is preceded by ``<!-- not run: reason -->``. Blocks of the console are not run;
``docs/hub.md`` is in test_hub_docs, the README in test_package.
"""

import ast
import contextlib
import functools
import importlib
import json
import random
import re
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path

import datasets
import pytest
from datasets import Dataset
from huggingface_hub import constants
from transformers import pipeline

from drw_hf import WatermarkedModelForSequenceClassification, WatermarkKey, detect
from drw_hf.experiments import theft
from inference_server import InferenceServer
from local_beacon import LocalBeacon
from other_servers import put_vllm_in_place, tei_app, triton_module, write_exported
from serving import served
from small_models import WORDS, draw_labels, make_key, make_lively, make_model, make_tokenizer, make_victim

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "_build" not in page.parts)
PAGES = [page for page in PAGES if not page.startswith("results/")]
LINKED_FROM = [*(f"docs/{page}" for page in PAGES), "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
MAY_NOT_RUN = 2
PASSPHRASE = "correct horse battery staple"


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


# -- examples


def examples_of(page):
    """(code, line, reason not to run it) of every Python block."""
    content = read(f"docs/{page}")
    pattern = r"^(?:<!-- not run: (?P<reason>[^>]+) -->\n+)?```python\n(?P<code>.*?)^```"
    for found in re.finditer(pattern, content, flags=re.DOTALL | re.MULTILINE):
        yield found["code"], content[: found.start("code")].count("\n"), found["reason"]


WITH_EXAMPLES = [page for page in PAGES if page != "hub.md" and any(True for _ in examples_of(page))]


def some_texts(n_texts=60):
    """Texts in which every word comes about equally often, at every place."""
    step = [5, 7, 11, 13, 17]
    return [
        " ".join(WORDS[(row * step[row % 5] + 3 * place) % len(WORDS)] for place in range(6)) for row in range(n_texts)
    ]


class Given:
    """What a page takes for granted, by name; made when first asked for, and then the same."""

    def __init__(self, folder, monkeypatch, stack, request):
        self.folder, self.monkeypatch, self.stack, self.request = folder, monkeypatch, stack, request
        self.makers = {
            "model": make_model,
            "tokenizer": make_tokenizer,
            "WatermarkKey": lambda: WatermarkKey,
            "key": lambda: make_key(self["model"], self["tokenizer"]),
            "victim": lambda: make_victim(model=self["model"], key=self["key"]),
            "suspect": lambda: make_model(seed=1),
            "texts": some_texts,
            "labelled": lambda: Dataset.from_dict({"text": some_texts(8), "label": ["positive", "negative"] * 4}),
            "validation": self._validation,
            "result": self._result,
            # distil
            "teacher": lambda: self["victim"],
            "teacher_tokenizer": make_tokenizer,
            "student": lambda: make_model(seed=2),
            "student_tokenizer": make_tokenizer,
            "dataset": lambda: Dataset.from_dict({"text": some_texts(8)}),
            "held_out": lambda: Dataset.from_dict({"text": some_texts(4)}),
            # detect
            "logged_texts": some_texts,
            "served_labels": self._served_labels,
            "target_probabilities": lambda: [0.1 * (place % 7) for place in range(40)],
            "hash_values": lambda: [place / 40 for place in range(40)],
            "url": self._url,
            "tei": self._tei,
            "triton": self._triton,
            "vllm_config": self._vllm,
            "hub": self._hub,
            # folders and files
            "path-or-repo": lambda: self._save_tagger("path-or-repo"),
            "protected": self._save_protected,
            "served": self._save_served,
            "data.jsonl": self._save_data,
            "nist.pem": lambda: (self.folder / "nist.pem").write_bytes(self._beacon().certificate),
            "round.json": self._save_round,
        }

    @functools.cache  # noqa: B019 (one a test)
    def __getitem__(self, name):
        return self.makers[name]()

    def _result(self):
        return detect(
            self["suspect"], some_texts(), key=self["key"], tokenizer=self["tokenizer"], victim=self["victim"]
        )

    def _validation(self):
        """Labelled texts on which the page's model, made to differ from text to text, is calibrated."""
        texts, tokenizer = some_texts(400), self["tokenizer"]
        model = make_lively(self["model"], tokenizer, texts)
        return Dataset.from_dict({"text": texts, "label": draw_labels(model, tokenizer, texts)})

    def _served_labels(self):
        hard = WatermarkedModelForSequenceClassification.from_model(self["model"], key=self["key"], label_kind="hard")
        pipe = pipeline("text-classification", model=hard, tokenizer=self["tokenizer"])
        return [answer["label"] for answer in pipe(some_texts())]

    def _url(self):
        """A suspect behind HTTP."""
        self.monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        pipe = pipeline("text-classification", model=self["suspect"], tokenizer=self["tokenizer"])
        server = InferenceServer(lambda payload: [pipe(payload["inputs"], top_k=None)])
        self.stack.enter_context(server.running())
        return server.url

    def _tei(self):
        """A server that speaks as Text Embeddings Inference does."""
        self.monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        return self.stack.enter_context(served(tei_app(self["model"], self["tokenizer"])))

    def _triton(self):
        """Triton's module, and its repository with the exported model and the tokenizer."""
        self.monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton_module())
        folder = self.folder / "models" / "protected" / "1"
        self["tokenizer"].save_pretrained(folder / "tokenizer")
        write_exported(folder)

    def _vllm(self):
        """vLLM's modules, and what the stand-in of its classifier is made of."""
        put_vllm_in_place(self.monkeypatch)
        self.monkeypatch.delenv("DRW_KEY", raising=False)
        return self["model"]

    def _hub(self):
        """The loopback Hub, on which the reader is "me"."""
        hub = self.request.getfixturevalue("hub")
        self.monkeypatch.setenv("HF_TOKEN", hub.add_user("me"))
        return hub

    def _save_tagger(self, name):
        model = make_model("token-classification")
        model.save_pretrained(self.folder / name)
        self["tokenizer"].save_pretrained(self.folder / name)
        return model

    def _save_protected(self):
        model = self["path-or-repo"]
        key = make_key(model, self["tokenizer"])
        make_victim("token-classification", model=model, key=key).save_pretrained(self.folder / "protected")
        key.save_pretrained(self.folder / "key", passphrase=PASSPHRASE)

    def _save_served(self):
        self["victim"].save_pretrained(self.folder / "served")
        self["key"].save_pretrained(self.folder / "keys" / "2026-01", passphrase="the old passphrase")

    @functools.cache  # noqa: B019 (one a test)
    def _beacon(self):
        return LocalBeacon()

    def _save_round(self):
        """What the beacon publishes at the time that the page names."""
        pulse = self._beacon().pulse(datetime(2030, 1, 1, 12, tzinfo=UTC))
        (self.folder / "round.json").write_text(json.dumps(pulse))

    def _save_data(self):
        rows = Dataset.from_dict({"tokens": [text.split() for text in some_texts()]})
        rows.to_json(self.folder / "data.jsonl")


@pytest.fixture
def given(tmp_path, monkeypatch, request):
    """The maker of what pages take for granted, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRW_PASSPHRASE", PASSPHRASE)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    with contextlib.ExitStack() as stack:
        yield Given(tmp_path, monkeypatch, stack, request)


def run_page(page, given):
    """Run the examples of a page in their order, and return the names they leave."""
    listed = re.search(r"<!-- given: ([^>]+) -->", read(f"docs/{page}"))
    wanted = [name.strip() for name in listed[1].split(",")] if listed else []
    made = {name: given[name] for name in wanted}
    names = {"__name__": "a_page", **{name: value for name, value in made.items() if name.isidentifier()}}
    for code, line, reason in examples_of(page):
        if reason is None:
            exec(compile("\n" * line + code, f"docs/{page}", "exec"), names)
    return names


@pytest.mark.parametrize("page", [page for page in WITH_EXAMPLES if page != "quickstart.md"])
def test_the_examples_of_a_page_run_in_their_order(page, given):
    run_page(page, given)


def test_the_quick_start_finds_the_student_and_not_the_innocent_model(given, monkeypatch, capsys):
    monkeypatch.setattr(theft, "make_theft", theft.make_theft.__wrapped__)  # trained here, for nobody else
    monkeypatch.setattr(theft, "N_TRAIN", 1000)  # less text than the page's reader has, for the time's sake
    monkeypatch.setattr(theft, "N_UNSEEN", 800)
    monkeypatch.setattr(secrets, "token_bytes", random.Random(0).randbytes)  # the same key every time
    monkeypatch.delenv("DRW_PASSPHRASE")
    for name, value in re.findall(r'^\$ export (\w+)="(.*)"$', read("docs/quickstart.md"), flags=re.MULTILINE):
        monkeypatch.setenv(name, value)  # what the page itself says, and nothing else
    names = run_page("quickstart.md", given)
    assert names["result"].verdict == "detected"
    printed = capsys.readouterr().out
    assert re.search(r"^detected: p \d\.\de-\d+ \(at most", printed, flags=re.MULTILINE)
    assert re.search(r"^(not detected|undecided): p ", printed, flags=re.MULTILINE)
    assert "✓ " in printed and "✗ " not in printed
    assert (given.folder / "evidence" / "report.html").exists() and (
        given.folder / "finding.png"
    ).stat().st_size > 10_000


def test_few_examples_are_left_out_and_each_says_why():
    skipped = [reason for page in PAGES for _, _, reason in examples_of(page) if reason is not None]
    assert len(skipped) <= MAY_NOT_RUN and all(len(reason.split()) >= 3 for reason in skipped)


# -- links


@functools.cache
def anchors_of(path):
    """The anchors of a page's headings, as GitHub and MyST make them."""
    without_code = re.sub(r"^```.*?^```", "", read(path), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,6} (.+)$", without_code, flags=re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return set(slugs)


@pytest.mark.parametrize("path", LINKED_FROM)
def test_links_lead_to_pages_and_headings_that_exist(path):
    content = re.sub(r"^```(?!\{image\}|\{include\}).*?^```", "", read(path), flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)\s]+)\)", content) + re.findall(
        r"^```\{(?:image|include)\} (\S+)", content, re.MULTILINE
    )
    for link in links:
        if re.match(r"https?://|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        place = (ROOT / path).parent / target if target else ROOT / path
        assert place.exists(), f"{path} links to {link}"
        if anchor:
            assert anchor in anchors_of(str(place.resolve().relative_to(ROOT))), f"{path} links to {link}"


def test_every_page_is_in_the_navigation():
    trees = re.findall(r"```\{toctree\}\n(.*?)```", read("docs/index.md"), flags=re.DOTALL)
    listed = {line for tree in trees for line in tree.splitlines() if line and not line.startswith(":")}
    assert listed == {page.removesuffix(".md") for page in PAGES} - {"index"}


def test_every_picture_is_shown_and_says_what_is_on_it():
    shown = "".join(read(f"docs/{page}") for page in PAGES)
    for picture in (DOCS / "images").iterdir():
        assert re.search(rf"!\[[^\]]{{40,}}\]\((\.\./)?images/{re.escape(picture.name)}\)", shown), picture.name


# -- what the pages name


def messages_of(tree):
    """Every text in a module, with … for what an f-string fills in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)


@pytest.fixture(scope="session")
def messages():
    sources = (ROOT / "src" / "drw_hf").rglob("*.py")
    return [text for source in sources for text in messages_of(ast.parse(source.read_text(encoding="utf-8")))]


QUOTED = re.findall(r"^### `(.+)`$", read("docs/faq.md"), flags=re.MULTILINE)


@pytest.mark.parametrize("quoted", QUOTED)
def test_the_faq_quotes_messages_that_exist(quoted, messages):
    wanted = ".*?".join(re.escape(part) for part in quoted.split("…"))
    assert any(re.search(wanted, message) for message in messages)


def test_the_reference_lists_every_public_name():
    reference = read("docs/reference.md")
    rooms = "keys watermark asking extraction detection tracing evidence planning metrics hub serving".split()
    for package in ("drw_hf", *(f"drw_hf.{room}" for room in rooms)):
        for name in importlib.import_module(package).__all__:
            if not name.startswith("__"):
                assert re.search(rf":: drw_hf(\.\w+)*\.{name}$", reference, flags=re.MULTILINE), f"{package}.{name}"


def test_pages_and_notebooks_import_nothing_that_the_reference_does_not_list():
    reference = read("docs/reference.md")
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").glob("*.ipynb"), ROOT / "README.md"]
    found = re.findall(r"from (drw_hf[.\w]*) import \(?([\w, ]+)", "\n".join(page.read_text() for page in pages))
    assert len(found) > 20
    for module, names in found:
        if module in ("drw_hf", "drw_hf.errors") or (module, names) == ("drw_hf.experiments", "theft as scene"):
            continue
        for name in names.split(", "):
            assert re.search(rf":: {module}\.{name}$", reference, flags=re.MULTILINE), f"{module}.{name}"


def test_small_probabilities_are_written_in_one_way():
    """As drw_hf.wording does, ``4e-53``: people read it and scripts parse it. Formulas in TeX are formulas."""
    pages = [page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts]
    assert len(pages) > 20
    for page in [*pages, ROOT / "README.md", *(ROOT / "src").rglob("*.html")]:
        assert not re.search(r"10⁻|10\^[−-]?\d|10<sup>|\de-\d+\.\d|log₁₀ p", page.read_text()), page
