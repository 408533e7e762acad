"""What to do next, as a command line that works as it is printed."""

import itertools
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..wording import printable


@dataclass(frozen=True)
class Teacher:
    """Who gave the answers in a folder or file, as its user named it, and with which key; None: unmarked."""

    name: str
    key: str | None = None


def remember(teacher: Teacher, answers: Path) -> None:
    """Note beside a teacher's answers whose they are, for whoever looks for the mark in a student of them."""
    _note(answers).write_text(json.dumps(asdict(teacher), indent=2) + "\n", encoding="utf-8")


def recall(answers: str) -> Teacher | None:
    """What :func:`remember` noted; None where nothing was, or nothing that can be read."""
    try:
        found = Teacher(**json.loads(_note(Path(answers)).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return found if isinstance(found.name, str) and isinstance(found.key, str | None) else None


def _note(answers: Path) -> Path:
    return answers.with_suffix(".teacher.json") if answers.suffix else answers / "drw_teacher.json"


def command(*words: str, **options: str | Sequence[str] | None) -> str:
    """A line to copy: the words of a command and its options, without those that are None."""
    line = ["drw-hf", *words]
    for name, value in options.items():
        for each in [value] if isinstance(value, str) else value or ():
            line += [f"--{name.replace('_', '-')}", each]
    return printable(f"  {shlex.join(line)}")


def unused(name: str) -> str:
    """This name of a file or folder, with a number where something is called so already."""
    path = Path(name)
    numbers = itertools.count(2)
    while path.exists():
        path = Path(name).with_stem(f"{Path(name).stem}-{next(numbers)}")
    return str(path)
