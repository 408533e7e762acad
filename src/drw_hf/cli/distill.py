"""Training a student on a teacher's answers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import ConfigurationError, DatasetError
from . import options as shared
from .output import Outcome, check_free, is_first_process, prints_outcome, show_progress

if TYPE_CHECKING:
    from datasets import Dataset

    from ..keys.choices import Task


@prints_outcome
def distill(
    data: Annotated[str, shared.data_argument("A teacher's answers, from drw-hf label")],
    student: Annotated[str, shared.model_option("--student", "What the student starts from")],
    output: Annotated[Path, shared.output_option("Folder for the student.")],
    label_kind: Annotated[
        shared.LabelKind, typer.Option(help="Learn the teacher's probabilities, or its labels.")
    ] = "soft",
    attack: Annotated[
        str | None,
        shared.name_option(
            "What is done to the answers first, to get rid of a mark: argmax, floor, rounding, sharpening, or another "
            "of drw_hf.extraction.attacks."
        ),
    ] = None,
    epochs: Annotated[float, shared.number_option("How often to go through the data.")] = 3.0,
    learning_rate: Annotated[float, shared.number_option("The largest step size.")] = 5e-5,
    batch_size: shared.BatchSize = 32,
    temperature: Annotated[float, typer.Option(help="Softens teacher and student alike.")] = 1.0,
    gold_weight: Annotated[float, shared.number_option("Weight of true labels in the loss.", most=1.0)] = 0.0,
    max_length: shared.MaxLength = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 42,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    limit: shared.Limit = None,
    resume: Annotated[bool, shared.flag("--resume", "Go on from the last checkpoint in --output.")] = False,
    overwrite: shared.Overwrite = False,
) -> Outcome:
    """Train a student on a teacher's answers, to see whether the mark would be found in it.

    A student whose labels are not the teacher's gets a new head. One that starts from a protected model gets its
    weights, which are the clean model's. On several devices:
    accelerate launch -m drw_hf.cli distill, and the same arguments.

    \b
    Example: drw-hf distill answers --student my-classifier --epochs 2 --output student
    """
    import torch

    from ..asking.data import load_data
    from ..asking.models import load_tokenizer
    from ..extraction import DistillationArguments, DistillationTrainer
    from ..extraction.students import load_student

    if resume and not list(output.glob("checkpoint-*")):
        raise ConfigurationError(f"{output} holds no checkpoint to resume from; leave out --resume")
    if not resume and is_first_process():
        check_free(output, overwrite)
    progress = show_progress()
    rows = load_data(data, split=split, limit=limit)
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
            label_kind=label_kind,
            attack=attack,
            num_train_epochs=epochs,
            learning_rate=learning_rate,
            per_device_train_batch_size=batch_size,
            temperature=temperature,
            gold_weight=gold_weight,
            max_length=max_length,
            seed=seed,
        ),
        train_dataset=rows,
        processing_class=load_tokenizer(student),
        text_columns=text_column,
    )
    metrics = trainer.train(resume_from_checkpoint=resume or None).metrics
    trainer.save_model()
    document = {
        "path": str(output),
        "attack": attack,
        "rows": len(rows),
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "loss": metrics["train_loss"],
        "seconds": metrics["train_runtime"],
    }
    text = (
        f"Trained {student} on the answers in {data}{f' after the attack {attack}' if attack else ''} ({len(rows)} "
        f"rows, {document['steps']} steps, loss {document['loss']:.4f}); the student is in {output}."
    )
    return Outcome(document, "\n".join([text, *_next(data, output, text_column, split)]))


def _next(data: str, student: Path, text_column: list[str] | None, split: str | None) -> list[str]:
    """How to look for the mark in the student, with the texts that its teacher was asked."""
    from .next_step import command, recall, unused

    teacher = recall(data)
    if teacher is None:
        return ["Next, look for the mark in it, with your key and your model:", command("detect", "--help")]
    if teacher.key is None:
        told = f"{teacher.name} answered without a mark, so there is none to find. To make a key for it:"
        return [told, command("keygen", "--help")]
    options = {"victim": teacher.name, "text_column": text_column, "split": split, "output": unused("evidence.json")}
    return [
        "Next, look for the mark in it:",
        command("detect", str(student), data, key=teacher.key, **options),
    ]


def answers_in(rows: "Dataset", name: str) -> tuple["Task", list[str]]:
    """The task that a teacher's answers are of, and its labels."""
    from ..asking.labelling import LABELS, PROBABILITIES
    from ..checks import class_names

    feature = rows.features.get(LABELS)
    names = class_names(feature)
    if names is None or PROBABILITIES not in rows.column_names:
        raise DatasetError(
            f"{name} has the columns {rows.column_names}, and no answers of a teacher; make it with `drw-hf label`"
        )
    return "token-classification" if hasattr(feature, "feature") else "sequence-classification", names
