"""Finding which users of a ring a suspect learned from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidInputError
from ..wording import printable
from . import options as shared
from .output import (
    DETECTED,
    DONE,
    UNDECIDED,
    Outcome,
    check_unwritten,
    prints_outcome,
    resumable,
    save_result,
    show_progress,
)

if TYPE_CHECKING:
    from ..tracing.identification import Identification, UserFinding
    from ..tracing.logs import LoggedIdentification

EXIT_CODES = {"identified": DETECTED, "nobody": DONE, "undecided": UNDECIDED}
NOT_PROVEN = (
    "This does not prove who passed the answers on, nor that it was done on purpose: a token may have been stolen. "
    "And whoever holds the ring, the owner too, can make any user's mark; to others it counts as much as they trust "
    "the ring to have been kept, and the users to have been declared before."
)
# What of a result is shown: nothing of the keys. The saved finding holds all.
SHOWN = (
    "verdict explanation n_users n_declared n_corrected n_probes n_tokens n_effective n_queries tokens_needed level "
    "suspects_tested looks statistic variant ring_fingerprint declared_root epoch probe_digest suspect created_at"
).split()
SHOWN_OF_LOGS = (
    "verdict p_value log10_p log10_bound z_score n_queries n_tokens statistic variant key_fingerprint".split()
)
SHOWN_OF_USERS = ("user", "p_corrected", "log10_corrected", "log10_p", "log10_bound", "z_score", "declared")


@prints_outcome
def identify(
    suspect: shared.Suspect,
    texts: shared.OptionalTexts = None,
    *,
    ring: Annotated[str, shared.model_option("--ring", "Your key ring")],
    users: Annotated[
        Path | None, shared.file_option("Text file with the users, one per line (--logged: default all in the log).")
    ] = None,
    logged: shared.Logged = None,
    declared_users: Annotated[
        Path | None, shared.file_option("The users that were declared, where --users are others.")
    ] = None,
    epoch: shared.Epoch = None,
    own: shared.OwnModel,
    reference: shared.Reference = None,
    tries: shared.Tries,
    top: Annotated[int, shared.count_option("Rank so many of the strongest users.")] = 5,
    label_map: shared.LabelMap = None,
    gold_column: shared.GoldColumn = None,
    max_queries: shared.MaxQueries = None,
    reading: shared.Reading,
    batches: shared.Batches,
    resume: Annotated[
        Path | None,
        typer.Option(help="Record the search here; stopped, it goes on where it was.", metavar="FILE", dir_okay=False),
    ] = None,
    output: Annotated[
        Path | None,
        shared.output_option("Save the finding here, every user's p-value and the probe beside it.", "JSON"),
    ] = None,
    plot: shared.Plot = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Probe a suspect with texts, and find which users of a key ring its answers come from.

    Exits with 0 if nobody is named, 3 if somebody is, 4 if there is too little to decide. P-values are corrected for
    all users that the ring declared. It does not prove that a user leaked on purpose, nor to others that the owner did
    not make the mark. The saved finding names users and discloses the target class and the frequency.

    With --logged each user is tested apart, by what they were served: the suspect is asked about each one's own texts.

    \b
    Example: drw-hf identify student --logged my-log --ring my-ring --victim served
    Example: drw-hf identify student probes.jsonl --ring my-ring --users users.txt --victim served
    Example: drw-hf identify student probes.txt --ring my-ring --users users.txt --tokenizer served --plot users.png
    """
    from .. import tracing
    from ..asking import QueryLog
    from ..tracing.users import stream_users
    from .inputs import column, load_asked, parse_label_map
    from .passphrases import open_ring

    check_unwritten(output)
    renamed = parse_label_map(label_map)
    progress = show_progress()
    if logged is not None:
        no_part = {
            "TEXTS": texts,
            "--declared-users": declared_users,
            "--resume": resume,
            "--gold-column": gold_column,
        }
        no_part |= {"--output": output, "--plot": plot}
        unused = [name for name, value in no_part.items() if value is not None]
        if unused:
            raise typer.BadParameter(
                f"{', '.join(unused)}: with --logged each user is tested by the log, and these have no part in it"
            )
        opened = open_ring(ring, passphrase_file)
        options = {"label_map": renamed, "max_queries": max_queries, "progress": progress, **vars(batches)}
        asked = load_asked(suspect, own, opened.template(epoch))
        with resumable():
            found_by_log = tracing.identify(
                **asked,
                reference=reference,
                ring=opened,
                users=users,
                logged=QueryLog(logged),
                epoch=epoch,
                **vars(tries),
                **options,
            )
        return outcome_by_log(found_by_log)
    if texts is None or users is None:
        raise typer.BadParameter(
            "TEXTS and --users are missing: name what to ask about and whom to search, or the log of the service "
            "(--logged)"
        )
    if next(stream_users(users)[0], None) is None:  # before anybody is asked
        raise InvalidInputError(f"{users} names no users; write them there, one per line")
    opened = open_ring(ring, passphrase_file)
    template = opened.template(epoch)
    rows = reading.load(texts, template.task)
    asked = load_asked(suspect, own, template)
    with resumable():
        result = tracing.identify(
            **asked,
            reference=reference,
            texts=rows,
            ring=opened,
            users=users,
            declared_users=declared_users,
            epoch=epoch,
            **vars(tries),
            top=top,
            label_map=renamed,
            gold=column(rows, gold_column, "--gold-column"),
            max_queries=max_queries,
            text_columns=reading.text_column,
            progress=progress,
            **vars(batches),
            resume=resume,
        )
    files, lines = save_result(result, "finding", output, plot)
    found = result.to_dict()
    document = {name: found[name] for name in SHOWN}
    for name in ("leakers", "ranking"):
        document[name] = [{shown: getattr(user, shown) for shown in SHOWN_OF_USERS} for user in getattr(result, name)]
    document |= {"committed": result.committed, "not_proven": NOT_PROVEN, "files": files}
    # A user's name is any text, and may hold line breaks too: what is shown is made safe line by line.
    return Outcome(document, "\n".join(map(printable, [*in_words(result), *lines])), EXIT_CODES[result.verdict])


def outcome_by_log(result: "LoggedIdentification") -> Outcome:
    """What the tests of all users' logs found."""
    results = {user: {name: one.to_dict()[name] for name in SHOWN_OF_LOGS} for user, one in result.results.items()}
    document = {"leakers": list(result.leakers), "n_corrected": result.n_corrected, "users": results}
    lines = [str(result), *(f"  {user}: {one}" for user, one in result.results.items())]
    verdicts = {one.verdict for one in result.results.values()}
    code = DETECTED if result.leakers else UNDECIDED if "undecided" in verdicts else DONE
    lines += [NOT_PROVEN] if result.leakers else []
    return Outcome({**document, "not_proven": NOT_PROVEN}, "\n".join(map(printable, lines)), code)


def in_words(result: "Identification") -> list[str]:
    """What was found, for people."""
    named = {finding.user for finding in result.leakers}
    others = [finding for finding in result.ranking if finding.user not in named]
    searched = f"{result.n_users:,} users searched, {result.n_tokens} distinct tokens in {result.n_probes} probes"
    lines = [f"{result.verdict}: {searched}", *(f"  {one}{declared(one, result)}" for one in result.leakers)]
    if others:
        lines += ["Not named, the strongest first:", *(f"  {one}" for one in others)]
    return [*lines, result.explanation, *([NOT_PROVEN] if named else [])]


def declared(finding: "UserFinding", result: "Identification") -> str:
    """What is known of whether a user was declared."""
    if finding.declared is None:
        return "; not declared" if result.n_declared is None else "; whether declared is unknown, see --declared-users"
    return "; declared" if finding.declared else "; NOT declared"
