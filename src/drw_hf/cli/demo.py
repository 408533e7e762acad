"""The demo: a model is protected, stolen twice and found again, and an innocent one is left in peace."""

import contextlib
import json
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.utils
import numpy as np
import torch
import transformers
import typer

from ..detection import DetectionResult, detect
from ..errors import ConfigurationError, DatasetError, UnsupportedModelError
from ..experiments.corpus import (
    SENTIMENTS,
    TAGS,
    make_sentiment_corpus,
    make_tagging_corpus,
    make_tokenizer,
)
from ..experiments.theft import distil, small_bert, train_on_gold
from ..extraction.labelling import LABELS, PROBABILITIES, label_with_teacher
from ..extraction.questions import find_gold_column, find_text_columns, questions_of
from ..fidelity import class_number, class_numbers
from ..keys import WatermarkKey
from ..keys.binding import labels_of, task_of
from ..watermark import WatermarkedConfig
from .data import check_columns, load_any
from .demo_story import GUILTY, SEQUENCE, SUSPECTS, TOKEN, next_steps, tell
from .distill import load_student
from .models import PROTECTED, load_config, load_model, load_tokenizer
from .output import INTERRUPTED

FORMAT = "drw-demo-1"
REPORT, NEXT_STEPS = "demo.json", "next-steps.md"
PARTS = ("protected", "key", "figures", "evidence")  # the folders that a demo writes

ROWS = {"victim": 2500, "queries": 4000, "innocent": 2500, "probes": 1500}  # of the corpus
LIMIT = 2000  # rows of each kind, of a data set
EPOCHS = {"victim": 4, "student": 8, "innocent": 4, "pretrained": 3}
MAX_LENGTH = 128  # tokens after which texts of a data set are cut
SIMULATED_KEYS = 2000
HELD_OUT = ("validation", "test", "dev", "eval")  # the Hub's test splits may hide their labels

LEVEL = 1e-3


@dataclass(frozen=True)
class Scene:
    """Who is robbed, and of what texts.

    Rows hold ``tokens`` and ``tags``, or ``text`` (``text_a`` and ``text_b`` for pairs) and ``label``; labels are the
    victim's class numbers, negative where there is none.
    """

    task: str
    tokenizer: Any
    victim: Any  # the clean model
    target: str
    queries: datasets.Dataset  # what the thief asks; it has no right labels for them
    schooling: datasets.Dataset  # what the innocent model learns from
    probes: datasets.Dataset  # what nobody was trained on
    student: str | None = None  # where students and the innocent model start from; by default, from nothing
    max_length: int = MAX_LENGTH
    source: dict[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> datasets.Dataset:
        """What suspects are probed with.

        A tagger shows its mark on any text. A sentence classifier shows it on the texts that taught it, and those the
        owner has: the service answered them.
        """
        return self.probes if self.task == TOKEN else self.queries


def run(
    folder: Path,
    *,
    model: str | None = None,
    dataset: str | None = None,
    subset: str | None = None,
    task: str | None = None,
    student: str | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Play the demo into ``folder``; print its story, or its figures as JSON."""
    if (model is None) != (dataset is None):
        raise typer.BadParameter(
            "--model and --dataset go together: a model of yours, and texts with the right labels"
        )
    of_data = {"--student": student, "--subset": subset, "--text-column": text_columns, "--label-column": label_column}
    pointless = [name for name, value in of_data.items() if value]
    if dataset is None and pointless:
        raise typer.BadParameter(f"{' and '.join(pointless)} need --model and --dataset")
    check_folder(folder)
    stages = Stages(silent=as_json)
    try:
        # Whatever the libraries print meanwhile goes to stderr: stdout is for the result.
        with contextlib.redirect_stdout(sys.stderr), _quiet(model is None), tempfile.TemporaryDirectory() as work:
            if model is None:
                scene = corpus_scene(task or TOKEN, work, stages, limit=limit, seed=seed)
            else:
                with stages.stage("load", f"Loading {model} and {dataset}"):
                    columns = {"text_columns": text_columns, "label_column": label_column}
                    scene = own_scene(
                        model,
                        dataset,
                        work,
                        subset=subset,
                        task=task,
                        student=student,
                        limit=limit,
                        seed=seed,
                        **columns,
                    )
            report = play(scene, folder, work, stages, seed=seed)
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. The same command starts afresh.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(json.dumps(report, indent=2) if as_json else f"\n{tell(report)}")


# -- who is robbed


def corpus_scene(task: str, work: str, stages: "Stages", *, limit: int | None, seed: int) -> Scene:
    """A tagger or classifier of the package's own corpus, trained on the spot."""
    sizes = {part: min(size, limit or size) for part, size in ROWS.items()}
    total = sum(sizes.values())
    if task == TOKEN:
        kind, labels, target = "part-of-speech tagger", TAGS, "NNP"
        made = [
            {"tokens": row["tokens"], "tags": [TAGS.index(tag) for tag in row["tags"]]}
            for row in make_tagging_corpus(total, seed)
        ]
    else:
        kind, labels, target = "sentiment classifier", SENTIMENTS, "negative"
        made = make_sentiment_corpus(total, seed)
    rows, parts, start = datasets.Dataset.from_list(made), {}, 0
    for part, size in sizes.items():
        parts[part] = rows.select(range(start, start + size))
        start += size
    tokenizer = make_tokenizer(seed)
    with stages.stage("victim", f"Training the victim, a {kind}, on {sizes['victim']:,} sentences"):
        victim = small_bert(task, len(tokenizer), seed, labels=labels)
        train_on_gold(task, tokenizer, parts["victim"], work, seed, EPOCHS["victim"], victim)
    source = {"model": None, "dataset": None, "victim": f"A small {kind}, trained on {sizes['victim']:,} sentences,"}
    return Scene(task, tokenizer, victim, target, parts["queries"], parts["innocent"], parts["probes"], source=source)


def own_scene(
    model: str,
    dataset: str,
    work: str,
    *,
    subset: str | None = None,
    task: str | None = None,
    student: str | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Scene:
    """A trained model and texts from folders or the Hub."""
    config = load_config(model)
    if isinstance(config, WatermarkedConfig):
        raise UnsupportedModelError(f"the model in {model} is protected already; the demo protects a plain one")
    own = task_of(config)
    if own is None and config.architectures:
        raise UnsupportedModelError(
            f"the model in {model} is a {config.architectures[0]}; the demo needs a trained classifier or tagger"
        )
    if task and own and task != own:
        raise ConfigurationError(f"the model in {model} is for {own}; leave out --task, or name a model for {task}")
    victim = load_model(model, task=task).eval()
    task, labels, tokenizer = task_of(victim), labels_of(victim.config), load_tokenizer(model)
    if tokenizer.pad_token is None:
        raise UnsupportedModelError(f"the tokenizer in {model} has no padding token; set one and save it")
    train, held_out = two_parts(load_any(dataset, subset), dataset, seed)
    limit = limit or LIMIT
    train = train.shuffle(seed).select(range(min(len(train), 2 * limit)))
    held_out = held_out.shuffle(seed).select(range(min(len(held_out), limit)))
    train, held_out = (
        plain_rows(rows, dataset, task, labels, text_columns, label_column) for rows in (train, held_out)
    )
    half = len(train) // 2
    queries, schooling = train.select(range(half)), train.select(range(half, len(train)))
    answers = label_with_teacher(
        victim, queries, tokenizer, cache_dir=work, max_length=MAX_LENGTH, batch_size=64, progress=False
    )
    return Scene(
        task=task,
        tokenizer=tokenizer,
        victim=victim,
        target=most_predicted(answers[LABELS][:], labels),
        queries=queries,
        schooling=schooling,
        probes=held_out,
        student=student,
        source={"model": model, "dataset": dataset, "victim": f"The model in {model}"},
    )


def two_parts(found: Any, name: str, seed: int) -> tuple[datasets.Dataset, datasets.Dataset]:
    """The rows to train on and those to keep apart: two splits, or one divided."""
    if isinstance(found, datasets.DatasetDict) and len(found) > 1:
        first = "train" if "train" in found else next(iter(found))
        second = next((split for split in HELD_OUT if split in found and split != first), None)
        if second is None:
            raise DatasetError(f"{name} has the splits {list(found)}; expected 'train' and one of {list(HELD_OUT)}")
        return found[first], found[second]
    rows = next(iter(found.values())) if isinstance(found, datasets.DatasetDict) else found
    if len(rows) < 3:
        raise DatasetError(f"{name} holds {len(rows)} rows; the demo needs some hundreds")
    parts = rows.train_test_split(test_size=0.3, seed=seed)
    return parts["train"], parts["test"]


def plain_rows(
    rows: datasets.Dataset,
    name: str,
    task: str,
    labels: Sequence[str],
    text_columns: list[str] | None,
    label_column: str | None,
) -> datasets.Dataset:
    """Rows in the form that :class:`Scene` tells, in memory."""
    check_columns(rows, name, task, text_columns)
    columns = find_text_columns(rows.column_names, task, text_columns)
    if columns[0] == "input_ids":
        raise DatasetError(f"{name} holds token ids; the demo needs the texts, in a column that --text-column names")
    if label_column is not None and label_column not in rows.column_names:
        raise DatasetError(f"--label-column {label_column}: {name} has the columns {rows.column_names}")
    gold = find_gold_column(rows.column_names, task, label_column)
    if gold is None:
        raise DatasetError(f"{name} has the columns {rows.column_names}; name the right labels with --label-column")
    numbers = class_numbers(rows.features[gold], labels, gold)
    made = []
    for place, (question, right) in enumerate(
        zip(questions_of(rows.select_columns(columns).to_dict(), columns), rows[gold][:], strict=True)
    ):
        if not all(question or [None]):  # nothing to ask
            continue
        if task == TOKEN:
            if not isinstance(question, list) or not isinstance(right, list) or len(question) != len(right):
                raise DatasetError(f"row {place} of {name}: expected a list of words and one label for every word")
            tags = [class_number(label, numbers, gold, place) for label in right]
            made.append({"tokens": question, "tags": tags})
        else:
            asked = dict(zip(("text_a", "text_b"), question, strict=True)) if len(columns) == 2 else {"text": question}
            made.append({**asked, "label": class_number(right, numbers, gold, place)})
    if not made:
        raise DatasetError(f"{name} holds no rows with text")
    return datasets.Dataset.from_list(made)


def most_predicted(answers: Sequence[Any], labels: Sequence[str]) -> str:
    """The class that the clean model answers most often, a tagger's "O" aside: more answers, more to mark."""
    numbers = np.concatenate([np.atleast_1d(answer) for answer in answers])
    counts = Counter(labels[number] for number in numbers if number >= 0 and labels[number] != "O")
    return counts.most_common(1)[0][0] if counts else labels[0]


# -- the play


def play(scene: Scene, folder: Path, work: str, stages: "Stages", *, seed: int) -> dict[str, Any]:
    """Protect, steal twice, train an innocent model, probe all three; returns what ``demo.json`` holds."""
    claim(folder)
    ask = _Asking(scene, work)
    with stages.stage("protect", "Making a key, protecting the victim, saving and reloading both"):
        protected = protect(scene, folder)
        clean, served = (
            ask.clean(protected),
            {kind: ask(protected(kind), scene.tokenizer) for kind in ("soft", "hard")},
        )
    models = {}
    for number, kind in enumerate(GUILTY):
        what = {"soft": "probabilities (soft labels)", "hard": "labels alone (hard labels)"}[kind]
        with stages.stage(kind, f"A thief asks {len(scene.queries):,} texts and learns the {what}"):
            models[kind] = steal(scene, protected(kind), kind, work, seed + 7 + number)
    with stages.stage("innocent", f"An innocent model learns from {len(scene.schooling):,} texts of its own"):
        models["innocent"] = learn(scene, work, seed + 3)
    found = {}
    with stages.stage("detect", f"Probing the three with {len(scene.asked):,} texts"):
        for name, (suspect, its_tokenizer) in models.items():
            suspect.config.name_or_path = SUSPECTS[name]
            found[name] = probe(scene, suspect, its_tokenizer, protected("soft"), work)
    with stages.stage("write", "Drawing figures and writing evidence reports"):
        for name, result in found.items():
            result.plot(folder / "figures" / f"{name}.png")
            result.report(folder / "evidence" / name)
    accuracies = {
        "victim, clean": clean.accuracy,
        "victim, serving soft labels": served["soft"].accuracy,
        "victim, serving hard labels": served["hard"].accuracy,
    }
    rows = [{"model": name, "accuracy": accuracy} for name, accuracy in accuracies.items()]
    for name, (suspect, its_tokenizer) in models.items():
        rows.append(
            {
                "model": SUSPECTS[name],
                "accuracy": ask(suspect, its_tokenizer).accuracy,
                **findings(found[name]),
                "figure": f"figures/{name}.png",
                "report": f"evidence/{name}/report.html",
            }
        )
    report = {
        "format": FORMAT,
        "complete": True,
        "folder": str(folder),
        "task": scene.task,
        "seed": seed,
        **scene.source,
        "student": scene.student,
        "queries": len(scene.queries),
        "probes": len(scene.asked),
        "held_out": len(scene.probes),
        "service": compare(clean, served["soft"]),
        "key_fingerprint": found["soft"].key_fingerprint,
        "level": LEVEL,
        "models": rows,
        "seconds": {**stages.seconds, "total": round(stages.elapsed, 1)},
    }
    (folder / NEXT_STEPS).write_text(next_steps(scene.source, scene.task), encoding="utf-8")
    (folder / REPORT).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def protect(scene: Scene, folder: Path) -> Callable[[str], Any]:
    """Save the victim with a fresh key, sealed; returns how to load it again, to serve soft or hard labels."""
    rule = "rarest" if scene.task == SEQUENCE else None
    key = WatermarkKey.generate(scene.victim, tokenizer=scene.tokenizer, target=scene.target, hash_rule=rule)
    protected_model = PROTECTED[scene.task]
    protected_model.from_model(scene.victim, key=key).save_pretrained(folder / "protected")
    scene.tokenizer.save_pretrained(folder / "protected")
    passphrase = secrets.token_urlsafe(24)
    key.save_pretrained(folder / "key", passphrase=passphrase)
    key = WatermarkKey.from_pretrained(folder / "key", passphrase=passphrase)
    loaded = {
        kind: protected_model.from_pretrained(folder / "protected", key=key, label_kind=kind).eval() for kind in GUILTY
    }
    return loaded.__getitem__


def steal(scene: Scene, service: Any, kind: str, work: str, seed: int) -> tuple[Any, Any]:
    """A student of a service's answers to the thief's texts, and its tokenizer; the right labels play no part."""
    queries = scene.queries.remove_columns("tags" if scene.task == TOKEN else "label")
    answers = label_with_teacher(
        service, queries, scene.tokenizer, cache_dir=work, max_length=scene.max_length, batch_size=64, progress=False
    )
    student, tokenizer, settings = beginner(scene, seed)
    epochs = EPOCHS["student" if scene.student is None else "pretrained"]
    limit = None if scene.student is None else scene.max_length
    distil(student, tokenizer, answers, work, epochs, label_kind=kind, seed=seed, max_length=limit, **settings)
    return student, tokenizer


def learn(scene: Scene, work: str, seed: int) -> tuple[Any, Any]:
    """A model that never met the victim: its own texts, the right labels, another beginning."""
    model, tokenizer, settings = beginner(scene, seed)
    epochs = EPOCHS["innocent" if scene.student is None else "pretrained"]
    train_on_gold(scene.task, tokenizer, scene.schooling, work, seed, epochs, model, max_length=MAX_LENGTH, **settings)
    return model, tokenizer


def beginner(scene: Scene, seed: int) -> tuple[Any, Any, dict[str, Any]]:
    """An untrained model with its tokenizer, and how it is best trained: a small BERT, or a pretrained encoder."""
    labels = labels_of(scene.victim.config)
    if scene.student is None:
        tokenizer = scene.tokenizer
        return small_bert(scene.task, len(tokenizer), seed, labels=labels, max_length=MAX_LENGTH), tokenizer, {}
    torch.manual_seed(seed)
    return (
        load_student(scene.student, scene.task, list(labels)),
        load_tokenizer(scene.student),
        {"learning_rate": 5e-5},
    )


def probe(scene: Scene, suspect: Any, its_tokenizer: Any, protected: Any, work: str) -> DetectionResult:
    """What the key finds in a suspect."""
    return detect(
        suspect,
        scene.asked.remove_columns("tags" if scene.task == TOKEN else "label"),
        key=protected.key,
        tokenizer=scene.tokenizer,
        victim=protected,
        suspect_tokenizer=its_tokenizer,
        suspects_tested=len(SUSPECTS),
        level=LEVEL,
        simulated_keys=SIMULATED_KEYS,
        max_length=scene.max_length,
        batch_size=64,
        cache_dir=work,
        progress=False,
    )


def findings(result: DetectionResult) -> dict[str, Any]:
    """What of a result a demo tells."""
    names = "p_snr p_value p_bound log10_p log10_bound z_score n_queries n_probes n_tokens verdict explanation".split()
    return {name: getattr(result, name) for name in names}


@dataclass(frozen=True)
class Answers:
    """What a model says of the held-out items that have a right label, and how often it is right."""

    probabilities: np.ndarray
    accuracy: float


@dataclass(frozen=True)
class _Asking:
    """Asks a model about the held-out texts."""

    scene: Scene
    work: str

    def __call__(self, model: Any, tokenizer: Any) -> Answers:
        labels, scene = list(labels_of(self.scene.victim.config)), self.scene
        settings = {"max_length": scene.max_length, "batch_size": 64, "cache_dir": self.work, "progress": False}
        answered = label_with_teacher(model, scene.probes, tokenizer, **settings)
        names = getattr(answered.features[LABELS], "feature", answered.features[LABELS]).names
        order = [names.index(label) for label in labels]  # a pretrained student may have another one
        said = [np.asarray(row, dtype=np.float32).reshape(-1, len(labels)) for row in answered[PROBABILITIES][:]]
        right = [np.atleast_1d(row) for row in answered["tags" if scene.task == TOKEN else "label"][:]]
        probabilities, right = np.concatenate(said)[:, order], np.concatenate(right)
        counted = (right >= 0) & probabilities.any(1)
        if not counted.any():
            raise DatasetError("no held-out text has a right label; without one no accuracy can be measured")
        probabilities = probabilities[counted]
        return Answers(probabilities, float((probabilities.argmax(1) == right[counted]).mean()))

    def clean(self, protected: Callable[[str], Any]) -> Answers:
        """What the victim would answer without its mark."""
        with protected("soft").watermark_disabled() as model:
            return self(model, self.scene.tokenizer)


def compare(clean: Answers, served: Answers) -> dict[str, Any]:
    """What the mark changes in a service's answers."""
    moved = np.abs(served.probabilities - clean.probabilities).max(1)
    same = served.probabilities.argmax(1) == clean.probabilities.argmax(1)
    return {
        "answers": len(moved),
        "moved": float((moved > 1e-4).mean()),
        "largest_change": float(moved.max()),
        "same_label": float(same.mean()),
    }


# -- the folder


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something which no demo wrote."""
    if folder.is_dir() and (not any(folder.iterdir()) or _is_ours(folder)):
        return
    if folder.exists():
        raise typer.BadParameter(f"{folder} holds something that is not a demo of ours; choose another --output")


def claim(folder: Path) -> None:
    """Make the folder ours, and remove what an earlier demo wrote: nobody can open its key any more."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # First, so that an interrupted demo can be repeated.
    (folder / REPORT).write_text(json.dumps({"format": FORMAT, "complete": False}) + "\n", encoding="utf-8")
    for part in PARTS:
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / NEXT_STEPS).unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    try:
        return json.loads((folder / REPORT).read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False


# -- what is said


class Stages:
    """A line for every stage on stderr, and how long each took."""

    def __init__(self, silent: bool):
        self.silent, self.start = silent, time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.start

    @contextlib.contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Around what a line says."""
        begun = self.elapsed
        self._say(f"[{begun:4.0f} s] {text} ...", newline=False)
        try:
            yield
        except BaseException:
            self._say("")
            raise
        self.seconds[name] = round(self.elapsed - begun, 1)
        self._say(f" {self.seconds[name]:.0f} s")

    def _say(self, text: str, newline: bool = True) -> None:
        if not self.silent:
            typer.echo(text, nl=newline, err=True)
            sys.stderr.flush()


@contextlib.contextmanager
def _quiet(one_thread: bool) -> Iterator[None]:
    """Bars and notes of the libraries off; small models learn faster in one thread than in two."""
    verbosity, threads = transformers.logging.get_verbosity(), torch.get_num_threads()
    bars = not datasets.are_progress_bars_disabled()
    huggingface_hub.utils.disable_progress_bars()
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    torch.set_num_threads(1 if one_thread else threads)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        torch.set_num_threads(threads)
        if bars:
            datasets.enable_progress_bars()
