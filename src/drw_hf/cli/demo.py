"""Playing the demo."""

import contextlib
import json
import sys
import tempfile
from pathlib import Path

import typer

from ..demo.folder import check_folder
from ..demo.play import play
from ..demo.scenes import corpus_scene, own_scene
from ..demo.stages import Stages, quiet
from ..demo.story import TOKEN, tell
from ..errors import ConfigurationError
from ..keys.choices import Task
from .output import INTERRUPTED


def run(
    folder: Path,
    *,
    model: str | None = None,
    dataset: str | None = None,
    subset: str | None = None,
    task: Task | None = None,
    student: str | None = None,
    text_columns: list[str] | None = None,
    label_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Play the demo into ``folder``; print its story, or its figures as JSON."""
    if (model is None) != (dataset is None):
        raise typer.BadParameter(
            "--model and --dataset go together: a model of yours, and texts with the right labels"
        )
    of_data = {"--student": student, "--subset": subset, "--text-column": text_columns, "--label-column": label_column}
    pointless = [name for name, value in of_data.items() if value]
    if dataset is None and pointless:
        raise typer.BadParameter(f"{' and '.join(pointless)} need --model and --dataset")
    try:
        check_folder(folder)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
    stages = Stages(silent=as_json)
    try:
        # Whatever the libraries print meanwhile goes to stderr: stdout is for the result.
        with contextlib.redirect_stdout(sys.stderr), quiet(model is None), tempfile.TemporaryDirectory() as work:
            if model is None or dataset is None:  # neither, or both
                scene = corpus_scene(task or TOKEN, work, stages, limit=limit, seed=seed)
            else:
                with stages.stage("load", f"Loading {model} and {dataset}"):
                    scene = own_scene(
                        model,
                        dataset,
                        work,
                        subset=subset,
                        task=task,
                        student=student,
                        text_columns=text_columns,
                        label_column=label_column,
                        limit=limit,
                        seed=seed,
                    )
            report = play(scene, folder, work, stages, seed=seed)
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. The same command starts afresh.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(json.dumps(report, indent=2) if as_json else f"\n{tell(report)}")
