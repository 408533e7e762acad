"""Where a student starts: any pretrained encoder, with a head for the teacher's labels."""

from typing import Any

from ..asking.models import PLAIN, load_config, loading
from ..checks import numbers_of
from ..errors import UnsupportedModelError
from ..keys.binding import labels_of
from ..keys.choices import Task
from ..watermark import WatermarkedConfig


def load_student(name: str, task: Task, labels: list[str]) -> Any:
    """A model for the teacher's labels; where its own are others, it gets a new head."""
    config = load_config(name)
    if isinstance(config, WatermarkedConfig):
        raise UnsupportedModelError(f"the model in {name} is protected; a student is a plain one")
    options: dict[str, Any] = {}
    if set(labels_of(config)) != set(labels):
        options = {
            "id2label": dict(enumerate(labels)),
            "label2id": numbers_of(labels),
            "ignore_mismatched_sizes": True,
        }
    with loading("a model", name):
        return PLAIN[task].from_pretrained(name, **options)
