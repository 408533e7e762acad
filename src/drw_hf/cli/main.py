"""The commands. Each imports what it needs when it runs, so that ``--help`` answers at once."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import DrwError


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; our errors say what to do, so they are shown as they are, without a traceback."""
        try:
            return super().invoke(ctx)
        except DrwError as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="drw-hf",
    cls=_Commands,
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


@app.command()
def verify(
    evidence: Annotated[Path, typer.Argument(help="The JSON that DetectionResult.save wrote; its probe lies beside.")],
    key: Annotated[str, typer.Option(help="Folder or repository of the key.", metavar="FOLDER_OR_REPO")],
    repo: Annotated[
        str | None, typer.Option(help="Repository in which the commitment was published.", metavar="ID")
    ] = None,
    trusted_root: Annotated[
        list[Path] | None,
        typer.Option(
            help="Root certificate of a time-stamping authority that you trust. May be repeated.",
            metavar="PEM",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    suspect_first_seen: Annotated[
        str | None,
        typer.Option(help="When the suspect was first seen, if the evidence does not say (UTC).", metavar="DATE"),
    ] = None,
    passphrase_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the passphrase of a sealed key. Else it is taken from DRW_PASSPHRASE, or asked for.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON, and nothing else.")] = False,
) -> None:
    """Replay a claim: is saved evidence what its probe, its key and its commitment say?

    Checks that the key is the one the evidence names and was committed to before the suspect was first seen, that the
    parameters are the key's, that every figure follows from the saved probe, and that what was tried is declared.
    Exits with 0 if every check passed, 1 if one failed, 4 if none failed but some could not be decided.

    Example: drw-hf verify evidence.json --key my-key --repo me/model --trusted-root tsa.pem
    """
    from .verify import run

    run(
        evidence,
        key=key,
        repo_id=repo,
        trusted_roots=trusted_root or (),
        suspect_first_seen=suspect_first_seen,
        passphrase_file=passphrase_file,
        as_json=as_json,
    )


@app.command()
def audit(
    repo_id: Annotated[str, typer.Argument(help="The repository, as in me/model.", metavar="REPO")],
    repo_type: Annotated[str, typer.Option(help="model, dataset or space.")] = "model",
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON, and nothing else.")] = False,
) -> None:
    """Say whether a key lies open in a repository, in any revision of its history, and what to do.

    Looks at every commit that a branch, a tag or a pull request leads to. Exits with 0 if nothing lies open to others
    (a plain key in a private repository is reported as "at risk"), 3 if something does.

    Example: drw-hf audit me/model
    """
    from .audit import run

    run(repo_id, repo_type=repo_type, as_json=as_json)
