"""Asking a teacher about data."""

from pathlib import Path
from typing import Any

import typer

from ..asking import label_with_teacher
from ..asking.data import load_data
from ..asking.models import load_config, load_model, load_tokenizer
from ..keys.binding import task_of
from ..keys.choices import Task
from .data import save_data
from .output import Outcome, check_free, is_first_process, prints_outcome, resumable, show_progress
from .passphrases import key_of


@prints_outcome
def run(
    teacher: str,
    data: str,
    *,
    output: Path,
    overwrite: bool,
    key: str | None,
    passphrase_file: Path | None,
    task: Task | None,
    source: dict[str, Any],
    **settings: Any,
) -> Outcome:
    """Keep a teacher's answers to every row; ``settings`` are those of :func:`drw_hf.label_with_teacher`."""
    if output.suffix not in ("", ".parquet"):
        raise typer.BadParameter(f"--output {output}: expected a folder, or a file that ends in .parquet")
    check_free(output, overwrite)
    progress = show_progress()
    task = task or task_of(load_config(teacher))
    rows = load_data(data, task=task, text_columns=settings["text_columns"], **source)
    model = load_model(teacher, task=task, key=key_of(teacher, key, passphrase_file))
    with resumable():
        labelled = label_with_teacher(model, rows, load_tokenizer(teacher), progress=progress, **settings)
    if is_first_process():
        save_data(labelled, output)
    document = {"path": str(output), "rows": len(labelled), "columns": labelled.column_names}
    lines = [
        f"{teacher} answered {len(labelled)} rows of {data}; its answers are in {output}.",
        "Next, train a student on them:",
        f"  drw-hf distill {output} --student {teacher} --output student",
    ]
    return Outcome(document, "\n".join(lines))
