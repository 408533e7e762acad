"""Where a student starts: any pretrained encoder, with a head for the teacher's labels."""

from typing import Any

from ..asking.models import PLAIN, load_clean, load_config, loading
from ..checks import numbers_of
from ..errors import UnsupportedModelError
from ..keys.binding import labels_of
from ..keys.choices import Task
from ..watermark import WatermarkedConfig


def load_student(name: str, task: Task, labels: list[str]) -> Any:
    """A model for the teacher's labels; where its own are others, it gets a new head.

    A student is a plain model: of a protected one it gets the weights, which are the clean model's.
    """
    config = load_config(name)
    options: dict[str, Any] = {}
    same_labels = set(labels_of(config)) == set(labels)
    if isinstance(config, WatermarkedConfig):
        if not same_labels:
            raise UnsupportedModelError(
                f"the model in {name} is protected, and its labels {list(labels_of(config))} are not the teacher's "
                f"{labels}; a student that needs a new head starts from a plain model"
            )
        return load_clean(name, task).get_base_model()
    if not same_labels:
        options = {
            "id2label": dict(enumerate(labels)),
            "label2id": numbers_of(labels),
            "ignore_mismatched_sizes": True,
        }
    with loading("a model", name):
        return PLAIN[task].from_pretrained(name, **options)
