"""Writing the card of a protected model."""

import os
from pathlib import Path
from typing import Annotated, cast

import typer

from ..errors import UnsupportedModelError
from . import options as shared
from .output import Outcome, prints_outcome, resumable, show_progress

CARD = "README.md"


@prints_outcome
def card(
    model: Annotated[str, shared.model_argument("The protected model")],
    data: Annotated[
        str | None, shared.path_option("Labelled data, to measure accuracy with and without the mark.")
    ] = None,
    dataset_name: Annotated[
        str | None, shared.name_option("What the card calls that data (default: its Hub id).")
    ] = None,
    key: shared.OptionalKey = None,
    label_column: shared.LabelColumn = None,
    *,
    whose: shared.WhoseKey,
    reading: shared.Reading,
    limit: shared.Limit = None,
    batch_size: shared.BatchSize = 32,
    base_model: Annotated[str | None, shared.name_option("Hub id of the model it was made from.", "ID")] = None,
    license: Annotated[str | None, shared.name_option("Licence, as on the Hub.")] = None,
    language: Annotated[list[str] | None, shared.name_option("Language code. May be repeated.", "CODE")] = None,
    tag: Annotated[list[str] | None, shared.name_option("A tag to add. May be repeated.")] = None,
    existing: Annotated[
        Path | None, shared.file_option("Card whose text is kept (default: the one in the folder).")
    ] = None,
    output: Annotated[
        Path | None,
        shared.output_option("Where to (default: README.md in the folder; for a Hub id, stdout).", "FILE"),
    ] = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Write or update the model card of a protected model; the text that is there is kept.

    With labelled data the card says what the mark costs. Only then is the key needed.

    \b
    Example: drw-hf card protected --license apache-2.0
    Example: drw-hf card protected --data labelled.csv --dataset-name reviews --key my-key
    """
    from ..asking.models import load_config, load_model, load_tokenizer
    from ..hub.card import model_card
    from ..keys.choices import Task
    from ..planning.accuracy import measure_accuracy
    from ..watermark import WatermarkedConfig
    from .passphrases import key_of, marking_for

    progress = show_progress()
    config = load_config(model)
    if not isinstance(config, WatermarkedConfig):
        raise UnsupportedModelError(f"the model in {model} is not protected; protect it first with `drw-hf protect`")
    metrics = None
    if data is not None:
        task = cast(Task | None, config.task)  # the configuration has checked that it is one
        rows = reading.load(data, task, limit)
        opened = key_of(model, key, passphrase_file)
        victim = load_model(model, key=opened)
        with resumable(), marking_for(victim, opened, whose):
            metrics = measure_accuracy(
                victim,
                rows,
                load_tokenizer(model),
                label_column=label_column,
                text_columns=reading.text_column,
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
        base_model=base_model,
        license=license,
        language=language or None,
        tags=tag or (),
    )
    document = {"path": None if output is None else str(output), "metrics": metrics}
    if output is None:
        return Outcome({**document, "card": text}, text)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(text.encode())
    told = f"Wrote the card of {model} to {output}."
    if metrics is not None:
        found = metrics["accuracy"]
        told += f" Accuracy: {found['clean']:.1%} clean, {found['protected']:.1%} protected, over {found['n']}."
    return Outcome(document, told)


def read_card(path: Path) -> str:
    """A README to the letter, its line breaks included."""
    try:
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not UTF-8 text") from None
