"""Keeping a query log: is it whole, what fixes each day, what is removed."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import Commands, Outcome, prints_outcome

app = typer.Typer(
    cls=Commands,
    help="Keep the log of a service (drw-hf serve --log): check it, fix its days, remove what is too old.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Folder = Annotated[Path, typer.Argument(help="Folder of the log.", metavar="LOG", exists=True, file_okay=False)]
Day = Annotated[str | None, shared.name_option("The day (UTC), like 2026-11-18.", "DAY")]


@app.command()
@prints_outcome
def check(log: Folder) -> Outcome:
    """Check that nothing in a log was altered, cut out or moved.

    Every line is chained to the one before by a digest, and the roots that were made are compared with the lines. Who
    holds the log could make another one: only a root that you stamped or published before tells others that you did
    not.

    \b
    Example: drw-hf log check my-log
    """
    from ..asking import QueryLog

    found = QueryLog(log).check()
    document = {**vars(found), "days": [day.to_dict() for day in found.days]}
    lines = [f"{log} is whole: {found.lines:,} answers in {found.chains:,} runs of a service."]
    if found.redacted:
        lines.append(f"Of {found.redacted:,} the text was taken out.")
    if found.unfinished:
        lines.append(
            f"In {len(found.unfinished):,} files the last line was not written to its end, since the service was "
            "killed; nobody got that answer."
        )
    lines.append(
        f"{len(found.days):,} roots were made and fit, over {found.rooted:,} lines."
        if found.days
        else f"No root was made yet; drw-hf log root {log} does so for each day that is over."
    )
    return Outcome(document, "\n".join(lines))


@app.command()
@prints_outcome
def root(
    log: Folder,
    day: Day = None,
    timestamp_url: Annotated[
        str | None, shared.name_option("Have each root stamped by this authority (RFC 3161); kept as .tsr.", "URL")
    ] = None,
) -> Outcome:
    """Make the root of each day that is over: one number that fixes all its lines.

    Have it stamped every day (--timestamp-url), and publish it. A log is its owner's word; a root that was stamped
    when its day was over, and before the suspect was seen, shows that its lines were not made up for the occasion:
    drw-hf verify --log holds evidence against it.

    \b
    Example: drw-hf log root my-log
    """
    from ..asking import root_log

    days = root_log(log, day)
    stamped = []
    if timestamp_url is not None:
        from ..evidence.log_roots import stamp_days

        stamped = [str(place) for place in stamp_days(log, days, timestamp_url)]
    lines = [f"{one.day}  {one.root}  {one.lines:,} lines" for one in days]
    if not days:
        lines = [f"No day in {log} is over yet; --day makes the root of what there is of today."]
    lines += [f"Wrote the time stamp {place}." for place in stamped]
    return Outcome({"days": [one.to_dict() for one in days], "stamped": stamped}, "\n".join(lines))


@app.command()
@prints_outcome
def merge(
    output: Annotated[Path, typer.Argument(help="Folder of the log that gets all of it.", metavar="INTO")],
    logs: Annotated[list[Path], typer.Argument(help="Logs of replicas.", metavar="LOGS", exists=True)],
) -> Outcome:
    """Put the logs of replicas together.

    Nothing in them changes, and roots that were made keep fitting. It may be repeated as the logs grow.

    \b
    Example: drw-hf log merge all-logs my-log
    """
    from ..asking import QueryLog, merge_logs

    taken = merge_logs(output, logs)
    found = QueryLog(output).check()
    document = {"path": str(output), "files": taken, "lines": found.lines, "chains": found.chains}
    text = f"{output} holds {found.lines:,} answers in {found.chains:,} runs of a service; {taken:,} files are new."
    return Outcome(document, text)


@app.command()
@prints_outcome
def expire(
    log: Folder,
    days: Annotated[int, shared.count_option("Keep so many days before today.", least=0)],
) -> Outcome:
    """Remove days that are too old, and keep the root of each.

    What is left can be checked as before. What is gone can no longer be tested: keep it as long as a student of it may
    turn up, or take out the texts alone (drw-hf log redact).

    \b
    Example: drw-hf log expire my-log --days 400
    """
    from ..asking import expire_log

    gone = expire_log(log, days)
    lines = [f"Removed {one.day}: {one.lines:,} lines, whose root was {one.root}." for one in gone]
    return Outcome(
        {"days": [one.to_dict() for one in gone]}, "\n".join(lines or [f"Nothing in {log} is older than that."])
    )


@app.command()
@prints_outcome
def redact(
    log: Folder,
    user: Annotated[str | None, shared.name_option("Of this user alone.")] = None,
    keep: Annotated[str | None, shared.name_option("Of all users but this one, in a copy for others.")] = None,
    before: Annotated[str | None, shared.name_option("Of days before this one (UTC) alone.", "DAY")] = None,
    names: Annotated[bool, shared.flag("--names", "Take out users' names, too.")] = False,
) -> Outcome:
    """Take the texts out of a log, and leave keyed digests of them.

    The chain and all roots stay as they are. To test a suspect by such lines, the texts must be given again
    (drw-hf detect SUSPECT TEXTS --logged LOG); they are checked against the digests.

    \b
    Example: drw-hf log redact my-log --before 2026-11-01
    """
    from ..asking import redact_log

    n_lines = redact_log(log, user=user, keep=keep, before=before, names=names)
    return Outcome({"path": str(log), "lines": n_lines}, f"Took the text out of {n_lines:,} lines of {log}.")
