"""Evidence that rests on a log: whoever holds the key can invent a log that convicts anybody.

So such evidence is open, unless somebody shows that its lines were fixed before the suspect was seen. A
:class:`drw_hf.QueryLog` shows it by its roots (:mod:`drw_hf.evidence.log_roots`); what is needed of any log is
:class:`ProvenLines`.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..asking.log_intervals import LogInterval
from ..asking.query_log import QueryLog
from ..asking.questions import Cut
from ..detection.probing import Probe, are_tokens_of
from ..detection.texts import asked_texts, encode
from ..errors import DrwError, EvidenceError, InvalidInputError, QueryLogError
from ..keys.key import WatermarkKey
from .check import Check, Status
from .log_roots import ProvenLines, prove_lines

NAME = "the log is older than the suspect"


Log = QueryLog | ProvenLines | str | os.PathLike


@dataclass(frozen=True)
class LogContext:
    """What whoever verifies a claim has of the log, and whom they trust.

    Attributes
    ----------
    log : QueryLog, path, ProvenLines or None
    trusted_roots : sequence of path or bytes
        Whose time stamps over its roots count.
    tokenizer : PreTrainedTokenizerBase or None
        Tells which words of a text a suspect left out.
    first_seen, tested_at : datetime or None
        When the suspect was first seen, and when the evidence was made.
    """

    log: Log | None
    trusted_roots: Sequence[str | os.PathLike | bytes]
    tokenizer: PreTrainedTokenizerBase | None
    first_seen: datetime | None
    tested_at: datetime | None


def rests_on_log(document: Mapping[str, Any], probe: Probe | None) -> bool:
    """Whether a finding goes by what a service logged: its labels, or texts that are said to be all that it logged."""
    settings = document["settings"] if isinstance(document["settings"], dict) else {}
    logged = probe is not None and probe.logged is not None
    return logged or bool(settings.get("logged_counts")) or document.get("log") is not None


def check_log_age(
    document: Mapping[str, Any], probe: Probe | None, key: WatermarkKey, context: LogContext
) -> tuple[Check, ...]:
    """Whether the lines that evidence rests on are older than the suspect; none where it rests on none."""
    if not rests_on_log(document, probe):
        return ()
    try:
        return (Check(NAME, *_judge(document, probe, key, context)),)
    except (EvidenceError, QueryLogError) as error:
        return (Check(NAME, "failed", f"the log that was given does not show it: {error}"),)


def _judge(
    document: Mapping[str, Any], probe: Probe | None, key: WatermarkKey, context: LogContext
) -> tuple[Status, str]:
    declared = document.get("log")
    try:
        interval = None if declared is None else LogInterval.from_dict(declared)
    except InvalidInputError as error:
        return "failed", str(error)
    if context.log is None:
        n_days = "" if interval is None else f"; the evidence declares {len(interval.days)} days: give the log"
        return "open", f"the log is its owner's word: nothing shows when its lines were written{n_days}"
    if probe is None:
        return "open", "without the probe nobody can tell which lines are meant"
    settings = document["settings"]
    if isinstance(settings, dict) and settings.get("logged_counts"):
        return "open", "how often tokens were asked cannot be told from lines of a log"
    if probe.texts is None:
        return "open", "the probe does not keep the texts, so its lines cannot be found in the log"
    if isinstance(context.log, ProvenLines):
        proven = context.log
    elif interval is None:
        return "open", "the evidence does not declare the days of a log: detect(logged=QueryLog(...)) does"
    elif key.seasoning is not None and interval.days[0].day < key.seasoning.terms.round.time.date().isoformat():
        return (
            "failed",
            f"it holds answers of {interval.days[0].day}, before the round that the key comes of was drawn",
        )
    else:
        log = context.log if isinstance(context.log, QueryLog) else QueryLog(context.log)
        if not log.folder.is_dir():
            raise InvalidInputError(
                f"log={str(log.folder)!r} is no folder; give the one that drw-hf serve --log wrote"
            )
        proven = prove_lines(log, interval, key, probe.texts, context.trusted_roots, context.tested_at)
    return _judge_lines(probe, proven, context)


def _judge_lines(probe: Probe, proven: ProvenLines, context: LogContext) -> tuple[Status, str]:
    """Whether the lines of a probe are among those that were proven, all of them, and old enough."""
    assert probe.texts is not None
    if proven.gone:
        return "open", "; ".join(proven.doubts)
    n_missing, unplaced = _count_missing(probe, proven, context.tokenizer)
    if n_missing:
        return "failed", f"{n_missing} of {probe.n_texts} texts are not in the log as the probe has them"
    asked = set(probe.texts)
    if list(dict.fromkeys(probe.texts)) != [text for text in proven.served if text in asked]:
        return (
            "failed",
            "the texts stand in another order than in the log, and of answers that share a draw the first counts",
        )
    doubts = list(proven.doubts)
    if unplaced:
        doubts.append(f"of {unplaced} texts words are not in the probe: give the tokenizer to tell which")
    left_out = len(proven.served.keys() - asked)
    if left_out:
        doubts.append(f"{left_out} texts of the declared interval are not in the probe")
    elif not proven.complete and not doubts:
        doubts.append("these are not all lines of the declared interval")
    if context.first_seen is None:
        doubts.append("nobody says when the suspect was first seen")
    elif proven.newest is not None and proven.newest >= context.first_seen:
        doubts.append(f"the newest root was stamped {proven.newest}, and the suspect first seen {context.first_seen}")
    elif proven.newest is None and not doubts:
        doubts.append("no root was stamped")
    if doubts:
        return "open", "; ".join(doubts)
    return "passed", f"all {probe.n_texts} texts are under roots that were stamped by {proven.newest}"


def _count_missing(probe: Probe, proven: ProvenLines, tokenizer: PreTrainedTokenizerBase | None) -> tuple[int, int]:
    """How many texts were not served so; and of how many nobody can tell which words were left out of the probe."""
    assert probe.texts is not None
    missing = {row for row, text in enumerate(probe.texts) if text not in proven.served}
    if probe.logged is None:
        return len(missing), 0
    rows, starts = np.unique(probe.rows, return_index=True)  # items stand in the order of their texts
    labels = dict(zip(rows.tolist(), np.split(probe.logged, starts[1:]), strict=True))
    places = dict(zip(rows.tolist(), np.split(probe.places, starts[1:]), strict=True))
    words: list[dict[int, int]] | None = None
    unplaced = 0
    for row in labels.keys() - missing:
        lines, its = proven.served[probe.texts[row]], tuple(labels[row].tolist())
        if any(its == line for line in lines):
            continue
        words = _words(probe, tokenizer) if words is None else words
        if words:  # of a tagger, what the suspect left unanswered is not in the probe
            numbers = [words[row].get(place, -1) for place in places[row].tolist()]
            if not any(_says(line, numbers, its) for line in lines):
                missing.add(row)
        elif any(_is_part_of(its, line) for line in lines):
            unplaced += 1
        else:
            missing.add(row)
    return len(missing), unplaced


def _words(probe: Probe, tokenizer: PreTrainedTokenizerBase | None) -> list[dict[int, int]]:
    """Of every text, which word stands at which token; empty where that cannot be known."""
    if tokenizer is None or probe.cut is None or probe.texts is None:
        return []
    try:
        tokens = encode(asked_texts(probe.texts, probe.task), tokenizer, Cut(**probe.cut), probe.task)
    except (DrwError, TypeError, ValueError):  # the check of the tokens says what is wrong
        return []
    if tokens.places is None or not are_tokens_of(probe, tokens):
        return []
    return [{place: word for word, place in enumerate(row) if place is not None} for row in tokens.places]


def _says(line: tuple[int, ...], words: Sequence[int], labels: Sequence[int]) -> bool:
    """Whether a line has these labels at these words."""
    pairs = zip(words, labels, strict=True)
    return all(0 <= word < len(line) and line[word] == label for word, label in pairs)


def _is_part_of(labels: Sequence[int], line: tuple[int, ...]) -> bool:
    """Whether labels are those of a line, in their order, with some left out."""
    rest = iter(line)
    return all(label in rest for label in labels)
