"""What options name, as commands take it: a suspect, a victim, a column, a class, a date.

Heavy to import: commands do so when they run.
"""

import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import datasets
import typer

from ..asking.models import load_clean, load_tokenizer
from ..checks import class_names
from ..detection.probe import Probe
from ..detection.result import as_iso, moment_of
from ..detection.statistics import usual_statistics
from ..errors import DatasetError, InvalidInputError
from ..keys import Round, Terms, UserProof, WatermarkKey
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from .options import OwnModel, Seasoning

SOONEST = timedelta(minutes=20)  # before a round, to have its commitment stamped


def load_asked(suspect: str, own: OwnModel, key: WatermarkKey) -> dict[str, Any]:
    """Who is asked, as arguments of ``detect`` and ``identify``.

    The suspect, a folder, a Hub id or an address, stays a name: asking it opens it, a model with its own tokenizer. A
    probe that somebody made is read.
    """
    return {
        "suspect": suspect if not is_probe(suspect) else Probe.load(suspect),
        "tokenizer": load_tokenizer(own.tokenizer or own.victim or ""),
        "victim": None if own.victim is None else load_clean(own.victim, key.task, key),
    }


def is_probe(suspect: str) -> bool:
    """Whether in the place of a suspect there is the file of what it said."""
    return suspect.endswith(".npz") and os.path.isfile(suspect)


def parse_label_map(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """``old=new`` as a mapping."""
    wrong = [pair for pair in pairs or () if "=" not in pair.lstrip("=")]
    if wrong:
        raise typer.BadParameter(f"--label-map {wrong[0]}: expected theirs and yours, as in LABEL_0=negative")
    return dict(pair.split("=", 1) for pair in pairs or ()) or None


def parse_first_seen(value: str | None, option: str = "--suspect-first-seen") -> str | None:
    """A day or a moment that an option names, as an ISO date or time."""
    try:
        return None if value is None else as_iso(value, option)
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None


def read_proof(path: Path) -> UserProof:
    """The proof that a ring's user was declared, as ``drw-hf ring prove`` wrote it."""
    return UserProof.from_dict(parse_json(read_within(path, LARGEST_DOCUMENT, InvalidInputError)))


def parse_round(seasoning: Seasoning, now: datetime | None = None) -> Round | None:
    """The round that ``--season-round`` names, if it is far enough ahead."""
    if seasoning.season_round is None:
        return None
    named, certificate = seasoning.season_round, seasoning.season_certificate
    source, _, when = named.partition(":")
    now = now or datetime.now(UTC)
    ahead = re.fullmatch(r"\+([0-9]{1,4})(m|h|d)", when)
    unit = {"m": "minutes", "h": "hours", "d": "days"}
    try:
        time = now + timedelta(**{unit[ahead[2]]: int(ahead[1])}) if ahead else moment_of(when)
    except InvalidInputError:
        raise typer.BadParameter(
            f"--season-round {named}: expected a source and a time in UTC, as in quicknet:2030-01-01T12:00 or "
            "quicknet:+2h"
        ) from None
    pem = None if certificate is None else read_within(certificate, LARGEST_DOCUMENT, InvalidInputError)
    if time < now + SOONEST:
        raise typer.BadParameter(
            f"--season-round {named} is too soon: the commitment has to be stamped more than ten minutes before, so "
            f"choose a round that is {SOONEST.seconds // 60} minutes ahead at least"
        )
    return Round.at(source, time, certificate=pem)


def terms_for(seasoning: Seasoning, round_: Round, model: Any, tokenizer: Any, like: WatermarkKey) -> Terms:
    """What is fixed before the numbers of a key like this one are drawn."""
    texts = {} if seasoning.season_texts is None else {"texts": seasoning.season_texts}
    return Terms.of(model, tokenizer, round_, statistics=usual_statistics(like), **texts)


def class_named(target: str, labels: tuple[str, ...]) -> str | int:
    """A class by its name, or by its number, unless a class is called so."""
    return int(target) if target.isdecimal() and target not in labels else target


def column(rows: datasets.Dataset, name: str | None, option: str) -> list[Any] | None:
    """The values of a column that an option names, labels by their names where they have some; None without a name."""
    if name is None:
        return None
    if name not in rows.column_names:
        raise DatasetError(f"{option} {name}: expected one of the columns {rows.column_names}")
    names, values = class_names(rows.features[name]), rows[name][:]
    if names is None:
        return values

    def named(value: Any) -> Any:
        return value if value is None or value < 0 else names[value]

    return [[named(one) for one in value] if isinstance(value, list) else named(value) for value in values]
