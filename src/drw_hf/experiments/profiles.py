"""Profiles: how large models and data are, and how long they train. Small TOML files; copy one to make your own."""

import dataclasses
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import numbers_of
from ..errors import ConfigurationError, InvalidKeyError
from ..keys.settings import MarkOptions, MarkSettings
from .tasks import TASKS

_EXPECTED: dict[object, tuple[Any, str]] = {  # by a field's type: what isinstance takes, and what messages say
    int: (int, "a whole number, 1 or more"),
    int | None: (int, "a whole number, 1 or more"),
    float: (int | float, "a number"),
    str: (str, "a text"),
    str | None: (str, "a text"),
}
KEY = ("frequency", "epsilon", "tau")  # settings of a key that a profile may give
FOLDER = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class Encoder:
    """What models start from: a pretrained encoder, or, without one, weights from scratch in this shape."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    pretrained: str | None = None
    max_length: int = 128

    @property
    def inner(self) -> int:
        """The width of the feed-forward layers: BERT's four times, or two for models from scratch."""
        return (4 if self.pretrained else 2) * self.width

    def config(self, labels: Sequence[str]) -> Any:
        from transformers import BertConfig

        return BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.inner,
            max_position_embeddings=self.max_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            id2label=dict(enumerate(labels)),
            label2id=numbers_of(labels),
        )


@dataclass(frozen=True)
class Training:
    """How a model is trained."""

    epochs: int
    learning_rate: float
    batch_size: int
    weight_decay: float = 0.0
    keep: str = "last"


@dataclass(frozen=True)
class TaskSettings:
    """A profile's settings for one task."""

    victim: Training
    student: Training
    rows: int | None = None
    evaluated: int | None = None


@dataclass(frozen=True)
class Profile:
    """What a run is made of."""

    name: str
    tasks: tuple[str, ...]
    students: int
    ablated: int
    key: MarkOptions  # where an experiment does not vary it
    encoder: Encoder
    settings: Mapping[str, TaskSettings]

    def described(self) -> dict[str, Any]:
        """What results depend on, as a run's first line keeps it: no paths, and not how many students are wanted."""
        encoder = dataclasses.asdict(self.encoder)
        if self.encoder.pretrained:
            encoder["pretrained"] = os.path.basename(self.encoder.pretrained.rstrip("/"))
        tasks = {task: dataclasses.asdict(settings) for task, settings in self.settings.items()}
        return {"profile": self.name, "key": dict(self.key), "encoder": encoder, "tasks": tasks}


def available() -> list[str]:
    """The profiles that come with the package."""
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def load_profile(name: str, *, encoder: str | None = None) -> Profile:
    """A profile by its name, or by the path of a TOML file of yours; with another pretrained encoder, if given."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no profile {name!r}; choose one of {available()}, or give the path of a .toml file like them"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path.name} is not TOML: {error}") from None
    profile = _parse(path.stem, found)
    if encoder is not None:
        profile = dataclasses.replace(profile, encoder=dataclasses.replace(profile.encoder, pretrained=encoder))
    return profile


def _parse(name: str, found: dict[str, Any]) -> Profile:
    where, tasks, sections = f"profile {name}", found.get("tasks"), ["encoder", "key", "student", "victim", *TASKS]
    if not isinstance(tasks, list) or not tasks or not set(tasks) <= set(TASKS):
        raise ConfigurationError(f"{where}: tasks = {tasks!r}; expected a list of some of {list(TASKS)}")
    _check_names(where, found, ["ablated", *sections, "students", "tasks"])
    for count in ("students", "ablated"):
        if not isinstance(found.get(count), int) or found[count] < 1:
            raise ConfigurationError(f"{where}: {count} = {found.get(count)!r}; expected a number, 1 or more")
    for section in sections:
        if not isinstance(found.setdefault(section, {}), dict):
            raise ConfigurationError(f"{where}: {section} = {found[section]!r}; expected a table, [{section}]")
    settings = {}
    for task in tasks:
        parts = {
            part: _build(Training, f"{where}, [{task}.{part}]", {**found[part], **found[task].get(part, {})})
            for part in ("victim", "student")
        }
        settings[task] = _build(TaskSettings, f"{where}, [{task}]", {**found[task], **parts})
    return Profile(
        name=name,
        tasks=tuple(tasks),
        students=found["students"],
        ablated=found["ablated"],
        key=_mark_options(f"{where}, [key]", found["key"]),
        encoder=_build(Encoder, f"{where}, [encoder]", found["encoder"]),
        settings=settings,
    )


def _check_names(where: str, values: Iterable[str], expected: Sequence[str]) -> None:
    unknown = sorted(set(values) - set(expected))
    if unknown:
        raise ConfigurationError(f"{where}: {unknown} are not known; expected {list(expected)}")


def _mark_options(where: str, values: Mapping[str, Any]) -> MarkOptions:
    _check_names(where, values, KEY)
    try:
        settings = MarkSettings(**values)
    except InvalidKeyError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return {"frequency": settings.frequency, "epsilon": settings.epsilon, "tau": settings.tau}


def _build(kind: type, where: str, values: Mapping[str, Any]) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    _check_names(where, values, list(fields))
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in values]
    if missing:
        raise ConfigurationError(f"{where}: {missing} are missing; expected {list(fields)}")
    for name, value in values.items():
        expected, described = _EXPECTED.get(fields[name].type, (object, ""))
        if not isinstance(value, expected) or isinstance(value, bool) or (expected is int and value < 1):
            raise ConfigurationError(f"{where}: {name} = {value!r}; expected {described}")
    if values.get("keep", "last") not in ("last", "best"):
        raise ConfigurationError(f"{where}: keep = {values['keep']!r}; expected 'last' or 'best'")
    return kind(**values)
