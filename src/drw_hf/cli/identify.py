"""Finding which users of a ring a suspect learned from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from .. import tracing
from ..asking.data import load_data
from ..asking.models import load_tokenizer
from ..errors import InvalidInputError
from ..tracing.identification import Identification, UserFinding
from ..tracing.users import stream_users
from .data import column
from .detect import load_clean, load_suspect, parse_label_map
from .output import DETECTED, DONE, UNDECIDED, Outcome, prints_outcome, resumable, show_progress
from .passphrases import open_ring

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
def run(
    suspect: str,
    texts: str,
    *,
    ring: str,
    passphrase_file: Path | None,
    users: Path,
    epoch: int | None,
    victim: str | None,
    tokenizer: str | None,
    label_map: Sequence[str],
    gold_column: str | None,
    output: Path | None,
    plot: Path | None,
    source: dict[str, Any],
    **settings: Any,
) -> Outcome:
    """Probe, search, and write down what was asked for; ``settings`` are those of :func:`drw_hf.identify`."""
    own_tokenizer = tokenizer or victim
    if own_tokenizer is None:
        raise typer.BadParameter("the hash goes by your own tokens; pass --victim (or --tokenizer, without a victim)")
    renamed = parse_label_map(label_map)
    progress = show_progress()
    if next(stream_users(users)[0], None) is None:  # before anybody is asked
        raise InvalidInputError(f"{users} names no users; write them there, one a line")
    opened = open_ring(ring, passphrase_file)
    template = opened.template(epoch)
    rows = load_data(texts, task=template.task, text_columns=settings["text_columns"], **source)
    asked, its_tokenizer = load_suspect(suspect, template)
    with resumable():
        result = tracing.identify(
            asked,
            rows,
            ring=opened,
            users=users,
            epoch=epoch,
            tokenizer=load_tokenizer(own_tokenizer),
            victim=None if victim is None else load_clean(victim, template),
            suspect_tokenizer=its_tokenizer,
            label_map=renamed,
            gold=None if gold_column is None else column(rows, gold_column, "--gold-column"),
            progress=progress,
            **settings,
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


def shown(finding: UserFinding) -> dict[str, Any]:
    """One user for scripts."""
    names = ("user", "p_corrected", "log10_corrected", "log10_p", "log10_bound", "z_score", "declared")
    return {name: getattr(finding, name) for name in names}


def in_words(result: Identification) -> list[str]:
    """What was found, for people."""
    named = {finding.user for finding in result.leakers}
    others = [finding for finding in result.ranking if finding.user not in named]
    searched = f"{result.n_users:,} users searched, {result.n_tokens} distinct tokens in {result.n_probes} probes"
    lines = [f"{result.verdict}: {searched}", *(f"  {one}{declared(one, result)}" for one in result.leakers)]
    if others:
        lines += ["Not named, the strongest first:", *(f"  {one}" for one in others)]
    return [*lines, result.explanation, *([NOT_PROVEN] if named else [])]


def declared(finding: UserFinding, result: Identification) -> str:
    """What is known of whether a user was declared."""
    if finding.declared is None:
        return "; not declared" if result.n_declared is None else "; whether declared is unknown, see --declared-users"
    return "; declared" if finding.declared else "; NOT declared"


def printable(text: str) -> str:
    """A user's name is any text: none of it may steer the terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
