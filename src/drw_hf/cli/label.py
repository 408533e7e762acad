"""Asking a teacher about data."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import Outcome, check_free, is_first_process, prints_outcome, resumable, show_progress


@prints_outcome
def label(
    teacher: Annotated[str, shared.model_argument("Who is asked", metavar="TEACHER")],
    data: Annotated[str, shared.data_argument("What about")],
    output: Annotated[
        Path,
        shared.output_option("Folder, or .jsonl, .csv or .parquet file, for data and answers.", "FOLDER_OR_FILE"),
    ],
    key: shared.OptionalKey = None,
    *,
    whose: shared.WhoseKey,
    reading: shared.Reading,
    limit: shared.Limit = None,
    batches: shared.Batches,
    task: shared.TaskOption = None,
    overwrite: shared.Overwrite = False,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Ask a model about every row of a data set and keep its answers, as somebody who steals it would.

    With --key its answers are marked; of a key ring, with the key of --user. What is written can be read by distill
    and, with --logged-column teacher_labels, by detect. Interrupted, the same command goes on where it stopped.

    \b
    Example: drw-hf label protected queries.jsonl --key my-key --output answers
    Example: drw-hf label protected queries.jsonl --key my-key --output answers.jsonl
    """
    from ..asking import label_with_teacher
    from ..asking.answer_files import ENDINGS, write_answers
    from ..asking.models import load_config, load_model, load_tokenizer
    from ..keys.binding import task_of
    from .next_step import Teacher, command, remember, unused
    from .passphrases import key_of, key_of_user, marking_for

    if output.suffix not in ("", *ENDINGS):
        raise typer.BadParameter(f"--output {output}: expected a folder, or a file that ends in {', '.join(ENDINGS)}")
    check_free(output, overwrite)
    progress = show_progress()
    its_task = task or task_of(load_config(teacher))
    opened = key_of(teacher, key, passphrase_file)
    if opened is not None:
        key_of_user(opened, whose)  # a ring without its user is refused before anything is read
    rows = reading.load(data, its_task, limit)
    model = load_model(teacher, task=its_task, key=opened)
    with resumable(), marking_for(model, opened, whose):
        labelled = label_with_teacher(
            model,
            rows,
            load_tokenizer(teacher),
            text_columns=reading.text_column,
            progress=progress,
            **vars(batches),
        )
    if is_first_process():
        if output.suffix:
            write_answers(labelled, output)
        else:
            labelled.save_to_disk(output)
        remember(Teacher(teacher, None if opened is None else key or teacher), output)
    document = {"path": str(output), "rows": len(labelled), "columns": labelled.column_names}
    lines = [
        f"{teacher} answered {len(labelled)} rows of {data}; its answers are in {output}.",
        "Next, train a student on them (a thief may start from any other model):",
        command("distill", str(output), student=teacher, text_column=reading.text_column, output=unused("student")),
    ]
    return Outcome(document, "\n".join(lines))
