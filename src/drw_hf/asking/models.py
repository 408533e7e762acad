"""Models by the name a user gives: a folder or a Hub id, of a plain or of a protected classifier."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoTokenizer

from ..errors import CannotLoadError, DrwError, MissingKeyError
from ..keys import KeyRing, WatermarkKey
from ..keys.binding import task_of
from ..keys.choices import TASKS, Task
from ..watermark import (
    WatermarkedConfig,
    WatermarkedModelForSequenceClassification,
    WatermarkedModelForTokenClassification,
)
from ..watermark.configuration import is_hub_id

PLAIN = dict(zip(TASKS, (AutoModelForSequenceClassification, AutoModelForTokenClassification), strict=True))
PROTECTED = dict(
    zip(TASKS, (WatermarkedModelForSequenceClassification, WatermarkedModelForTokenClassification), strict=True)
)


def load_config(name: str) -> Any:
    """The configuration of a model."""
    with loading("a model", name):
        return AutoConfig.from_pretrained(name)


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model."""
    with loading("a tokenizer", name):
        return AutoTokenizer.from_pretrained(name)


def load_model(
    name: str, *, task: Task | None = None, key: WatermarkKey | KeyRing | None = None, **options: Any
) -> Any:
    """The classifier or tagger of a folder or repository; with a key, protected by it.

    ``options`` are those of ``from_pretrained``.
    """
    config = load_config(name)
    task = task or task_of(config)
    if task not in TASKS:
        raise CannotLoadError(f"the model in {name} does not tell its task; pass task= (--task): {' or '.join(TASKS)}")
    if key is None and isinstance(config, WatermarkedConfig):
        raise MissingKeyError(f"the model in {name} is protected, and loads with its key alone; pass key= (--key)")
    with loading("a model", name):
        if key is None:
            return PLAIN[task].from_pretrained(name, **options)
        return PROTECTED[task].from_pretrained(name, key=key, **options)


def load_clean(name: str, task: Task | None = None, key: WatermarkKey | None = None) -> Any:
    """A model, plain or protected: its mark is switched off while it is asked, so any key for it will do."""
    config = load_config(name)
    if not isinstance(config, WatermarkedConfig):
        return load_model(name, task=task)
    key = key or WatermarkKey.generate(config, target=0, tokenizer=load_tokenizer(name))
    return load_model(name, key=key, replace_key=True)


@contextlib.contextmanager
def loading(what: str, name: str) -> Iterator[None]:
    """Around loading: what transformers and the Hub say of a missing or broken thing, as one message."""
    if not os.path.exists(name) and not is_hub_id(name):
        raise CannotLoadError(f"there is no folder {name} to load {what} from, and it is no Hub id (owner/name)")
    try:
        yield
    except DrwError:
        raise
    except (OSError, ValueError, ImportError, KeyError) as error:
        where = f"the folder {name}" if os.path.isdir(name) else f"{name} (no folder here, so a Hub id)"
        raise CannotLoadError(f"cannot load {what} from {where}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """The beginning of a library's message, which may go on for paragraphs."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__
