"""Playing the demo."""

import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigurationError
from . import options as shared
from .output import INTERRUPTED


def demo(
    output: Annotated[Path, typer.Option(help="Folder for all that the demo writes.", metavar="FOLDER")] = Path(
        "drw-demo"
    ),
    model: Annotated[
        str | None, shared.model_option("--model", "A trained classifier or tagger, to be robbed instead of our own")
    ] = None,
    dataset: Annotated[
        str | None, shared.path_option("Texts with their right labels, for that model: file, folder or Hub id.")
    ] = None,
    subset: shared.Subset = None,
    task: Annotated[
        shared.Task | None, typer.Option("--task", help="Tagger (default) or sentence classifier, of our own corpus.")
    ] = None,
    student: Annotated[
        str | None,
        shared.model_option("--student", "Where students start from (default: small BERTs from scratch)"),
    ] = None,
    text_column: shared.TextColumns = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the right labels, if its name is unusual.", metavar="NAME")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Rows of each kind at the most (default: 2000 of a data set).", min=10, metavar="N"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of corpus and training. The key is always a fresh one.")] = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Steal a protected model and find the mark in the copies: offline, in a minute or two.

    Trains a small tagger on sentences made for the purpose, protects it, lets a thief distil it with soft and with
    hard labels, trains an innocent model, probes all three, and writes figures and evidence reports. With --model and
    --dataset, a model and texts of yours take their place.

    \b
    Example: drw-hf demo --output my-demo
    Example: drw-hf demo --model my-classifier --dataset data.jsonl --limit 500 --output my-demo
    """
    from ..demo.folder import check_folder
    from ..demo.play import play
    from ..demo.scenes import corpus_scene, own_scene
    from ..demo.stages import Stages, quiet
    from ..demo.story import TOKEN, tell

    if (model is None) != (dataset is None):
        raise typer.BadParameter(
            "--model and --dataset go together: a model of yours, and texts with the right labels"
        )
    of_data = {"--student": student, "--subset": subset, "--text-column": text_column, "--label-column": label_column}
    pointless = [name for name, value in of_data.items() if value]
    if dataset is None and pointless:
        raise typer.BadParameter(f"{' and '.join(pointless)} need --model and --dataset")
    try:
        check_folder(output)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error)) from None
    stages = Stages(silent=as_json)
    try:
        # Whatever the libraries print meanwhile goes to stderr: stdout is for the result.
        with contextlib.redirect_stdout(sys.stderr), quiet(model is None), tempfile.TemporaryDirectory() as work:
            if model is None or dataset is None:  # neither, or both
                scene = corpus_scene(shared.value_of(task) or TOKEN, work, stages, limit=limit, seed=seed)
            else:
                with stages.stage("load", f"Loading {model} and {dataset}"):
                    scene = own_scene(
                        model,
                        dataset,
                        work,
                        subset=subset,
                        task=shared.value_of(task),
                        student=student,
                        text_columns=text_column or None,
                        label_column=label_column,
                        limit=limit,
                        seed=seed,
                    )
            report = play(scene, output, work, stages, seed=seed)
    except KeyboardInterrupt:
        typer.echo("\nInterrupted. The same command starts afresh.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    typer.echo(json.dumps(report, indent=2) if as_json else f"\n{tell(report)}")
