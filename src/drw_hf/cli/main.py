"""The command line: a module for every command, which imports what it needs when it runs.

So ``--help`` and completion answer at once.
"""

import warnings
from typing import Annotated, Any

import typer

from ..errors import DrwError
from . import (
    attack,
    audit,
    card,
    demo,
    detect,
    distill,
    draw,
    identify,
    keygen,
    label,
    log,
    plan,
    probe,
    protect,
    report,
    reproduce,
    ring,
    season,
    serve,
    verify,
)
from .output import Commands


class _Commands(Commands):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; our errors say what to do, so they are shown as they are, without a traceback.

        What the system says of a file or a connection is one sentence, too, and so is a warning.
        """
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: typer.echo(f"Warning: {message}", err=True)
                return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (DrwError, OSError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="drw-hf",
    cls=_Commands,
    help="Watermark Hugging Face classifiers and taggers so that a model distilled from them can be recognised.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: examples stay whole, to be copied
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


for _command in (  # as --help lists them
    demo.demo,
    plan.plan,
    keygen.keygen,
    season.publish,
    season.season,
    protect.protect,
    serve.serve,
    label.label,
    distill.distill,
    attack.attack,
    draw.draw,
    probe.probe,
    detect.detect,
    identify.identify,
    report.report,
    verify.verify,
    card.card,
    audit.audit,
    reproduce.reproduce,
):
    app.command()(_command)
app.add_typer(ring.app, name="ring")
app.add_typer(log.app, name="log")
