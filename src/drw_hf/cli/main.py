"""The commands. Each imports what it needs when it runs, so that ``--help`` answers at once."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="drw-hf",
    help="Watermark Hugging Face classifiers and taggers so that a model distilled from them can be recognised.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # a local variable may hold a key or a passphrase
)


def _version(wanted: bool) -> None:
    if wanted:
        from .._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for the protected model and its sealed key.")] = Path(
        "drw-demo"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")] = False,
) -> None:
    """Protect a small model end to end, offline, and show clean and watermarked probabilities side by side.

    Trains a small sentiment classifier on sentences made for the purpose, makes a key, wraps the model, saves and
    reloads both, and compares what the clean and the protected model answer.

    Example: drw-hf demo --output my-demo
    """
    from .demo import run

    run(output, as_json=as_json)
