"""Asking a teacher about data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as shared
from .output import Outcome, check_free, is_first_process, prints_outcome, resumable, show_progress

if TYPE_CHECKING:
    from datasets import Dataset


@prints_outcome
def label(
    teacher: Annotated[str, shared.model_argument("Who is asked", metavar="TEACHER")],
    data: Annotated[str, shared.data_argument("What about")],
    output: Annotated[
        Path, typer.Option(help="Folder, or .parquet file, for the data with the answers.", metavar="FOLDER_OR_FILE")
    ],
    key: shared.OptionalKey = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    limit: shared.Limit = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    task: shared.TaskOption = None,
    overwrite: shared.Overwrite = False,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> Outcome:
    """Ask a model about every row of a data set and keep its answers, as somebody who steals it would.

    With --key its answers are marked. Interrupted, the same command goes on where it stopped.

    \b
    Example: drw-hf label protected queries.jsonl --key my-key --output answers
    """
    from ..asking import label_with_teacher
    from ..asking.data import load_data
    from ..asking.models import load_config, load_model, load_tokenizer
    from ..keys.binding import task_of
    from .passphrases import key_of

    if output.suffix not in ("", ".parquet"):
        raise typer.BadParameter(f"--output {output}: expected a folder, or a file that ends in .parquet")
    check_free(output, overwrite)
    progress = show_progress()
    its_task = task or task_of(load_config(teacher))
    columns = text_column or None
    rows = load_data(data, task=its_task, text_columns=columns, split=split, subset=subset, limit=limit)
    model = load_model(teacher, task=its_task, key=key_of(teacher, key, passphrase_file))
    with resumable():
        labelled = label_with_teacher(
            model,
            rows,
            load_tokenizer(teacher),
            text_columns=columns,
            batch_size=batch_size,
            max_length=max_length,
            progress=progress,
        )
    if is_first_process():
        save_data(labelled, output)
    document = {"path": str(output), "rows": len(labelled), "columns": labelled.column_names}
    lines = [
        f"{teacher} answered {len(labelled)} rows of {data}; its answers are in {output}.",
        "Next, train a student on them:",
        f"  drw-hf distill {output} --student {teacher} --output student",
    ]
    return Outcome(document, "\n".join(lines))


def save_data(rows: "Dataset", output: Path) -> None:
    """Into a folder, or into a Parquet file; both keep the names of the labels."""
    if output.suffix == ".parquet":
        output.parent.mkdir(parents=True, exist_ok=True)
        rows.to_parquet(output)
    else:
        rows.save_to_disk(output)
