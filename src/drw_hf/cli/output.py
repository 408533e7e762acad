"""What commands print and where: the result on stdout, as text or as one JSON document, all the rest on stderr."""

import contextlib
import functools
import gc
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import KeyFileError
from .options import AsJson

KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
DONE, FAILED, USAGE, DETECTED, UNDECIDED, INTERRUPTED = 0, 1, 2, 3, 4, 130  # exit codes


class Commands(TyperGroup):
    """A group of commands whose help says of each its whole first sentence, where click would cut it."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=1_000)) for name, one in commands if one])


@dataclass(frozen=True)
class Outcome:
    """What a command found or did: for scripts, for people, and as an exit code."""

    document: dict[str, Any]
    text: str
    exit_code: int = DONE


def prints_outcome(run: Callable[..., Outcome]) -> Callable[..., None]:
    """Make a command of a function that returns an outcome: print that, and exit with its code.

    It gets the option ``--json``; a group of ``cli/options.py`` among its parameters stands for the options in it.
    Whatever the libraries under it print meanwhile goes to stderr; of several processes, the first one speaks.
    """
    parameters = inspect.signature(run).parameters
    groups: dict[str, Any] = {name: one.annotation for name, one in parameters.items() if is_dataclass(one.annotation)}
    options: list[inspect.Parameter] = []
    for name, parameter in parameters.items():
        options += inspect.signature(groups[name]).parameters.values() if name in groups else [parameter]
    if "as_json" not in parameters:
        options.append(inspect.Parameter("as_json", KEYWORD_ONLY, default=False, annotation=AsJson))

    @functools.wraps(run)
    def command(*, as_json: bool = False, **given: Any) -> None:
        if "as_json" in parameters:
            given["as_json"] = as_json
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        with leaving_process_group():
            with contextlib.redirect_stdout(sys.stderr):
                outcome = run(**given)
            if is_first_process():
                typer.echo(json.dumps(outcome.document, indent=2) if as_json else outcome.text)
        if outcome.exit_code and not is_one_of_many():
            raise typer.Exit(outcome.exit_code)

    # typer reads both.
    vars(command)["__signature__"] = inspect.Signature([option.replace(kind=KEYWORD_ONLY) for option in options])
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


@contextlib.contextmanager
def leaving_process_group() -> Iterator[None]:
    """Around a command: shut down in order the process group that ``accelerate launch`` made it start.

    A process that merely exits may abort on the way out, for the group's threads run until the last reference to the
    group is gone, and a model that was trained holds one.
    """
    if _in_process_group():  # somebody else's, who called this command from a program
        yield
        return
    try:
        yield
        if _in_process_group():
            from accelerate import PartialState

            PartialState().wait_for_everyone()  # nobody hangs up while another still speaks
    except BaseException as error:
        if _in_process_group():  # the frames that the error passed through would keep a model, and so the group
            traceback.clear_frames(error.__traceback__)
        raise
    finally:  # after an error the others may never come: do not wait for them
        if _in_process_group():
            gc.collect()
            sys.modules["torch.distributed"].destroy_process_group()


def _in_process_group() -> bool:
    distributed = sys.modules.get("torch.distributed")  # who has not imported it has not started one
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


def is_one_of_many() -> bool:
    """Whether ``accelerate launch`` started several processes: it takes every exit code but 0 for a crash."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first_process() -> bool:
    """Whether this process writes and speaks, where ``accelerate launch`` started several."""
    return int(os.environ.get("RANK", "0")) == 0


def show_progress() -> bool:
    """Whether there is a terminal to draw bars on; if not, the libraries' own are switched off, too."""
    if not sys.stderr.isatty():
        disable_bars()
    return sys.stderr.isatty()


def disable_bars() -> None:
    """Switch off the bars that the libraries draw."""
    import datasets
    import huggingface_hub.utils
    import transformers

    datasets.disable_progress_bars()
    huggingface_hub.utils.disable_progress_bars()
    transformers.logging.disable_progress_bar()


def quieten() -> None:
    """Around jobs of many models, one bar for all is enough: not one for every model that is read or written."""
    import transformers

    disable_bars()
    transformers.logging.set_verbosity_error()


@contextlib.contextmanager
def interruptible(what_is_kept: str) -> Iterator[None]:
    """Around long work: whoever interrupts it learns what is kept."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"Interrupted. {what_is_kept}", err=True)
        raise typer.Exit(INTERRUPTED) from None


resumable = functools.partial(
    interruptible, "The answers so far are kept: the same command goes on where it stopped."
)  # around asking a model


def save_result(
    result: Any, kind: str, output: Path | None, plot: Path | None, report: Path | None = None, redact: bool = False
) -> tuple[dict[str, str], list[str]]:
    """Write those files of a result that were asked for; returns what went where, and lines that say so."""
    written = {}
    if output is not None:
        result.save(output)
        written[kind] = str(output)
    if report is not None:
        written["report"] = str(result.report(report, redact=redact))
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        result.plot(plot)
        written["plot"] = str(plot)
    return written, [f"Wrote the {what} to {where}." for what, where in written.items()]


def check_unwritten(output: Path | None, report: Path | None = None, redact: bool = False) -> None:
    """Before anybody is asked: refuse to write over a result that was saved, or over the files of a report."""
    from ..detection.result import check_no_evidence, probe_path
    from ..evidence.report import EVIDENCE, REDACTED_EVIDENCE

    places = [] if output is None else [output, probe_path(output)]
    if report is not None:
        places.append(report / (REDACTED_EVIDENCE if redact else EVIDENCE))
    check_no_evidence(*places)


def check_free(output: Path, overwrite: bool) -> None:
    """Refuse to write over something that is there, unless asked to."""
    taken = any(output.iterdir()) if output.is_dir() else output.exists()
    if taken and not overwrite:
        raise typer.BadParameter(f"{output} holds something already; choose another --output, or add --overwrite")


def check_no_key(output: Path) -> None:
    """Refuse to write where a key or a ring lies."""
    from ..keys.files import KINDS

    if any((output / kind.file).exists() for kind in KINDS):
        raise KeyFileError(f"{output} holds a key already, and a key is never overwritten; choose another --output")
