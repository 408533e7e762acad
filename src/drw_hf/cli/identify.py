"""Finding which users of a ring a suspect learned from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidInputError
from . import options as shared
from .output import DETECTED, DONE, UNDECIDED, Outcome, prints_outcome, resumable, show_progress

if TYPE_CHECKING:
    from ..tracing.identification import Identification, UserFinding

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


@prints_outcome
def identify(
    suspect: shared.Suspect,
    texts: shared.Texts,
    ring: shared.RingOption,
    users: shared.Users,
    declared_users: Annotated[
        Path | None, shared.file_option("--declared-users", "The users that were declared, where --users are others.")
    ] = None,
    epoch: shared.Epoch = None,
    victim: shared.Victim = None,
    tokenizer: shared.VictimTokenizer = None,
    suspects_tested: shared.SuspectsTested = 1,
    looks: shared.Looks = 1,
    level: shared.Level = 1e-3,
    top: Annotated[int, typer.Option(help="Rank so many of the strongest users.", min=1, metavar="N")] = 5,
    label_map: shared.LabelMap = None,
    gold_column: shared.GoldColumn = None,
    max_queries: shared.MaxQueries = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Record the search here; stopped, it goes on where it was.", metavar="FILE", dir_okay=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Save the finding here, every user's p-value and the probe beside it.", metavar="JSON"),
    ] = None,
    plot: shared.Plot = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> Outcome:
    """Probe a suspect with texts, and find which users of a key ring its answers come from.

    Exits with 0 if nobody is named, 3 if somebody is, 4 if there is too little to decide. P-values are corrected for
    all users that the ring declared. It does not prove that a user leaked on purpose, nor to others that the owner did
    not make the mark. The saved finding names users and discloses the target class and the frequency.

    \b
    Example: drw-hf identify student probes.jsonl --ring my-ring --users users.txt --victim served
    Example: drw-hf identify student probes.txt --ring my-ring --users users.txt --tokenizer served --plot users.png
    """
    from .. import tracing
    from ..asking.data import load_data
    from ..asking.models import load_tokenizer
    from ..tracing.users import stream_users
    from .inputs import column, load_clean, load_suspect, parse_label_map, tokenizer_name
    from .passphrases import open_ring

    own = tokenizer_name(tokenizer, victim)
    renamed = parse_label_map(label_map)
    progress = show_progress()
    if next(stream_users(users)[0], None) is None:  # before anybody is asked
        raise InvalidInputError(f"{users} names no users; write them there, one a line")
    opened = open_ring(ring, passphrase_file)
    template = opened.template(epoch)
    columns = text_column or None
    rows = load_data(texts, task=template.task, text_columns=columns, split=split, subset=subset)
    asked, its_tokenizer = load_suspect(suspect, template)
    with resumable():
        result = tracing.identify(
            asked,
            rows,
            ring=opened,
            users=users,
            epoch=epoch,
            tokenizer=load_tokenizer(own),
            victim=None if victim is None else load_clean(victim, template),
            suspect_tokenizer=its_tokenizer,
            label_map=renamed,
            gold=None if gold_column is None else column(rows, gold_column, "--gold-column"),
            progress=progress,
            declared_users=declared_users,
            suspects_tested=suspects_tested,
            looks=looks,
            level=level,
            top=top,
            max_queries=max_queries,
            text_columns=columns,
            batch_size=batch_size,
            max_length=max_length,
            resume=resume,
        )
    written = {}
    if output is not None:
        result.save(output)
        written["finding"] = str(output)
    if plot is not None:
        result.plot(plot)
        written["plot"] = str(plot)
    found = result.to_dict()
    document = {name: found[name] for name in SHOWN}
    document |= {name: [shown(finding) for finding in getattr(result, name)] for name in ("leakers", "ranking")}
    document |= {"committed": result.committed, "not_proven": NOT_PROVEN, "files": written}
    lines = [*in_words(result), *(f"Wrote the {what} to {where}." for what, where in written.items())]
    return Outcome(document, printable("\n".join(lines)), EXIT_CODES[result.verdict])


def shown(finding: "UserFinding") -> dict[str, Any]:
    """One user for scripts."""
    names = ("user", "p_corrected", "log10_corrected", "log10_p", "log10_bound", "z_score", "declared")
    return {name: getattr(finding, name) for name in names}


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


def printable(text: str) -> str:
    """A user's name is any text: none of it may steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
