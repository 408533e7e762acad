"""Playing the demo."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigurationError
from . import options as shared
from .output import Outcome, disable_bars, interruptible, prints_outcome


@prints_outcome
def demo(
    output: Annotated[Path, shared.output_option("Folder for all that the demo writes.")] = Path("drw-demo"),
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
    mark: Annotated[
        shared.Mark, typer.Option(help="How the key marks answers: tilt, or cosine, the paper's mark.")
    ] = "tilt",
    student: Annotated[
        str | None,
        shared.model_option("--student", "Where students start from (default: small BERTs from scratch)"),
    ] = None,
    text_column: shared.TextColumns = None,
    label_column: shared.LabelColumn = None,
    limit: Annotated[
        int | None,
        shared.count_option("Rows of each kind at the most (default: 2000 of a data set).", least=10),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of corpus and training. The key is always a fresh one.")] = 0,
    as_json: shared.AsJson = False,
) -> Outcome:
    """Steal a protected model and find the mark in the copies: offline, in a minute or two.

    Trains a small tagger on sentences made for the purpose, protects it at the price of 0.3 points of accuracy, lets
    a thief distil it with soft and with hard labels, trains an innocent model, probes all three, and writes figures
    and evidence reports. With --model and --dataset, a model and texts of yours take their place.

    \b
    Example: drw-hf demo --output my-demo
    Example: drw-hf demo --model my-classifier --dataset data.jsonl --limit 500 --output my-demo
    """
    from ..demo.play import Stages, check_folder, play
    from ..demo.scenes import LIMIT, OwnTexts, corpus_scene, own_scene
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
    leave = interruptible("The same command starts afresh.")
    with leave, _quiet(one_thread=model is None), tempfile.TemporaryDirectory() as work:
        if model is None or dataset is None:  # neither, or both
            scene = corpus_scene(task or TOKEN, work, stages, mark=mark, limit=limit, seed=seed)
        else:
            texts = OwnTexts(dataset, subset, text_column, label_column, limit or LIMIT)
            with stages.stage("load", f"Loading {model} and {dataset}"):
                scene = own_scene(model, texts, work, mark=mark, task=task, student=student, seed=seed)
        report = play(scene, output, stages, seed)
    return Outcome(report, f"\n{tell(report)}")


@contextlib.contextmanager
def _quiet(one_thread: bool) -> Iterator[None]:
    """Bars and notes of the libraries off; small models learn faster in one thread than in two."""
    import torch
    import transformers

    verbosity, threads = transformers.logging.get_verbosity(), torch.get_num_threads()
    disable_bars()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1 if one_thread else threads)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        torch.set_num_threads(threads)
