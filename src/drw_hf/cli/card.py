"""Writing the card of a protected model."""

import os
from pathlib import Path
from typing import Any, cast

import typer

from ..asking.data import load_data
from ..asking.models import load_config, load_model, load_tokenizer
from ..errors import UnsupportedModelError
from ..hub.card import model_card
from ..keys.choices import Task
from ..planning.accuracy import measure_accuracy
from ..watermark import WatermarkedConfig
from .output import Outcome, prints_outcome, resumable, show_progress
from .passphrases import key_of

CARD = "README.md"


@prints_outcome
def run(
    model: str,
    *,
    data: str | None,
    dataset_name: str | None,
    label_column: str | None,
    text_columns: list[str] | None,
    batch_size: int,
    key: str | None,
    passphrase_file: Path | None,
    existing: Path | None,
    output: Path | None,
    source: dict[str, Any],
    **metadata: Any,
) -> Outcome:
    """Write or update a card; ``metadata`` are those of :func:`drw_hf.hub.model_card`."""
    progress = show_progress()
    config = load_config(model)
    if not isinstance(config, WatermarkedConfig):
        raise UnsupportedModelError(f"the model in {model} is not protected; protect it first with `drw-hf protect`")
    metrics = None
    if data is not None:
        task = cast(Task | None, config.task)  # the configuration has checked that it is one
        rows = load_data(data, task=task, text_columns=text_columns, **source)
        victim = load_model(model, key=key_of(model, key, passphrase_file))
        with resumable():
            metrics = measure_accuracy(
                victim,
                rows,
                load_tokenizer(model),
                label_column=label_column,
                text_columns=text_columns,
                batch_size=batch_size,
                progress=progress,
            )
        if dataset_name is None and not os.path.exists(data):
            dataset_name = data
    local = Path(model) / CARD if os.path.isdir(model) else None
    output = output or local
    if existing is None:
        existing = next((path for path in (output, local) if path is not None and path.exists()), None)
    text = model_card(
        config,
        existing=None if existing is None else read_card(existing),
        metrics=metrics,
        dataset=dataset_name,
        **metadata,
    )
    document = {"path": None if output is None else str(output), "metrics": metrics}
    if output is None:
        return Outcome({**document, "card": text}, text)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(text.encode())
    return Outcome(document, f"Wrote the card of {model} to {output}.{_accuracy(metrics)}")


def read_card(path: Path) -> str:
    """A README to the letter, its line breaks included."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not UTF-8 text") from None


def _accuracy(metrics: dict[str, dict[str, float]] | None) -> str:
    if metrics is None:
        return ""
    measured = metrics["accuracy"]
    return f" Accuracy: {measured['clean']:.1%} clean, {measured['protected']:.1%} protected, over {measured['n']}."
