"""Training a student on a teacher's answers."""

from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from ..asking.data import load_data
from ..asking.labelling import LABELS, PROBABILITIES
from ..asking.models import load_tokenizer
from ..errors import ConfigurationError, DatasetError
from ..extraction import DistillationArguments, DistillationTrainer
from ..extraction.students import load_student
from ..keys.choices import Task
from .output import Outcome, check_free, is_first_process, prints_outcome, show_progress


@prints_outcome
def run(
    data: str,
    *,
    student: str,
    output: Path,
    overwrite: bool,
    resume: bool,
    source: dict[str, Any],
    text_columns: list[str] | None,
    **arguments: Any,
) -> Outcome:
    """Distil; ``arguments`` are those of :class:`drw_hf.DistillationArguments`."""
    if resume and not list(output.glob("checkpoint-*")):
        raise ConfigurationError(f"{output} holds no checkpoint to resume from; leave out --resume")
    if not resume and is_first_process():
        check_free(output, overwrite)
    progress = show_progress()
    rows = load_data(data, **source)
    task, labels = answers_in(rows, data)
    trainer = DistillationTrainer(
        model=load_student(student, task, labels),
        args=DistillationArguments(
            str(output),
            save_strategy="epoch",
            save_total_limit=1,
            logging_strategy="epoch",
            report_to="none",
            dataloader_pin_memory=torch.accelerator.is_available(),  # else every epoch warns
            disable_tqdm=not progress,
            **arguments,
        ),
        train_dataset=rows,
        processing_class=load_tokenizer(student),
        text_columns=text_columns,
    )
    metrics = trainer.train(resume_from_checkpoint=resume or None).metrics
    trainer.save_model()
    document = {
        "path": str(output),
        "rows": len(rows),
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "loss": metrics["train_loss"],
        "seconds": metrics["train_runtime"],
    }
    text = (
        f"Trained {student} on the answers in {data} ({len(rows)} rows, {document['steps']} steps, loss "
        f"{document['loss']:.4f}); the student is in {output}."
    )
    return Outcome(document, text)


def answers_in(rows: Dataset, name: str) -> tuple[Task, list[str]]:
    """The task that a teacher's answers are of, and its labels."""
    feature = rows.features.get(LABELS)
    several = hasattr(feature, "feature")
    names = getattr(feature.feature if several else feature, "names", None)
    if names is None or PROBABILITIES not in rows.column_names:
        raise DatasetError(
            f"{name} has the columns {rows.column_names}, and no answers of a teacher; make it with `drw-hf label`"
        )
    return "token-classification" if several else "sequence-classification", names
