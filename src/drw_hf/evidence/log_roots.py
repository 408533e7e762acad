"""What a query log shows by itself: which of its lines stood under stamped roots, and since when.

A root fixes all lines of a day. What was stamped when the day was over, and before the suspect was seen, was neither
made up nor thinned out for this suspect. That nothing else was stamped for the same day, nobody can tell.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from ..asking.log_days import Day, read_days
from ..asking.log_intervals import LinesByDay, LogInterval
from ..asking.log_lines import LogKey, asked_digest, nonce_of
from ..asking.query_log import Answer, QueryLog
from ..detection.probe import KeptText
from ..errors import EvidenceError, TimestampError
from ..keys.files import write_atomically
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..reading.files import MEBIBYTE, read_within
from .timestamps import load_roots, request_timestamp, verify_timestamp


@dataclass(frozen=True)
class ProvenLines:
    """Lines of a log under roots that an authority stamped.

    Attributes
    ----------
    served : mapping
        For every text (pairs and words as tuples) what was served for it, each as class numbers of the key: one number
        or, of a tagger, one per word. The texts stand in the order in which they were first served.
    newest : datetime or None
        When the newest of these roots was stamped, its accuracy added; None where none was.
    complete : bool
        Whether these are all lines of the interval that the owner declared: a log can be thinned out as well as made
        up.
    doubts : tuple of str
        What else keeps the log from showing that its lines are older than the suspect.
    gone : bool
        Whether lines were removed from the log, so that a text which is not in it says nothing.
    """

    served: Mapping[KeptText, Collection[tuple[int, ...]]]
    newest: datetime | None
    complete: bool
    doubts: tuple[str, ...] = ()
    gone: bool = False


def stamp_days(folder: str | os.PathLike, days: Iterable[Day], url: str) -> list[Path]:
    """Have the roots of days stamped that are not yet; returns where the stamps were written.

    The stamp of a day that is not over is kept apart, so that another one can be made when it is.
    """
    written, today = [], datetime.now(UTC).date().isoformat()
    for one in days:
        place = one.stamp_in(Path(folder), finished=one.day < today)
        if not place.exists():
            write_atomically(place, request_timestamp(one.root, url))
            written.append(place)
    return written


def prove_lines(
    log: QueryLog,
    interval: LogInterval,
    key: WatermarkKey,
    texts: Collection[KeptText],
    trusted_roots: Sequence[str | os.PathLike | bytes],
    tested_at: datetime | None,
) -> ProvenLines:
    """What a log shows of the days that evidence declares; ``QueryLogError`` where it is not whole.

    Parameters
    ----------
    log : QueryLog
        The whole log, with all of these days; of other users' lines the texts may be taken out.
    interval : LogInterval
        What the evidence declares.
    key : WatermarkKey
        Under which the lines were answered.
    texts : collection of str or tuple
        Those of the probe: by them digests of texts that were taken out are recognised.
    trusted_roots : sequence of path or bytes
        Whose time stamps count.
    tested_at : datetime or None
        When the evidence was made.

    Raises
    ------
    QueryLogError
        Where the log is not whole, was altered, or holds nothing that was answered under the key.
    EvidenceError
        Where it holds other lines of these days than the evidence declares.
    """
    days = {one.day: one for one in interval.days}
    first, last = min(days), max(days)
    whole, by_day = QueryLog(log.folder), LinesByDay()
    whole.check()
    records = read_days(log.folder)
    gone = sorted({one.day for one in records if one.expired_at is not None} & days.keys())
    if gone:
        return ProvenLines({}, None, False, (f"lines of {_days(gone)} were removed from the log",), gone=True)
    chosen = whole.select(since=first, until=_end_of(last))
    answers, there = chosen.answered_under_each({"": key}, by_day)[""]
    unfinished = [day for day in days if tested_at is not None and tested_at < _end_of(day)]
    _compare_days(interval, there, unfinished)

    doubts = [f"the interval begins or ends in the middle of {_days(interval.cut_days)}"] if interval.cut_days else []
    if unfinished:
        doubts.append(f"{_days(unfinished)} was not over when the suspect was tested")
    if not doubts and (there.lines, there.texts) != (interval.lines, interval.texts):
        doubts.append(f"of these days it holds {there.lines} lines under this key, and the evidence goes by others")
    if there.digests:
        kept = f"{there.digests} of {there.lines} lines are kept as keyed digests alone"
        doubts.append(f"{kept}, and cannot be replayed")
    newest, bare = _when_fixed(Path(log.folder), records, days, by_day, trusted_roots)
    if bare:
        day, why = next(iter(bare.items()))
        doubts.append(f"lines of {_days(bare)} are under no root that counts ({day}: {why})")
    return ProvenLines(_served(answers.values(), key, texts), newest, not bare, tuple(doubts))


def _compare_days(interval: LogInterval, there: LogInterval, unfinished: Collection[str]) -> None:
    """Refuse a log of which days that were over hold other lines than the evidence declares."""
    declared, found = set(interval.days), set(there.days)
    differ = sorted({one.day for one in declared ^ found} - set(unfinished))
    if differ:
        raise EvidenceError(
            f"its lines of {_days(differ)} are not those that the evidence declares: lines were added, dropped or "
            "exchanged, or it is another log"
        )


def _when_fixed(
    folder: Path,
    records: Iterable[Day],
    days: Collection[str],
    by_day: LinesByDay,
    trusted_roots: Sequence[str | os.PathLike | bytes],
) -> tuple[datetime | None, dict[str, str]]:
    """When the last of the lines of these days stood under a stamped root; and the days that have others, and why.

    A file counts as fixed if a root that was stamped after its day names all of it: replicas may have roots of their
    own, and a root of an unfinished day says nothing of what followed.
    """
    ends = {place: end for place, end in by_day.ends.items() if end[0] in days}
    if trusted_roots:
        load_roots(trusted_roots)  # what cannot be read is the reader's own mistake
    fixed: dict[tuple[str, int], datetime] = {}
    why = dict.fromkeys(days, "there is no root")
    for record in records:
        places = [
            (chain, number) for chain, number, n, _ in record.files if n >= ends.get((chain, number), ("", n + 1))[1]
        ]
        its_days = {ends[place][0] for place in places}
        if not places:
            continue
        stamped, problem = _stamp_of(record, folder, trusted_roots)
        for place in places:
            over = _end_of(ends[place][0])
            if stamped is None:
                continue
            if stamped[0] < over:
                problem = f"its root was stamped {stamped[0]}, before the day was over"
            else:
                fixed[place] = min(stamped[1], fixed.get(place, stamped[1]))
        if problem is not None:
            why |= dict.fromkeys(its_days, problem)
    bare = sorted({day for place, (day, _) in ends.items() if place not in fixed})
    return max(fixed.values(), default=None), {day: why[day] for day in bare}


def _stamp_of(
    record: Day, folder: Path, trusted_roots: Sequence[str | os.PathLike | bytes]
) -> tuple[tuple[datetime, datetime] | None, str | None]:
    """When a root was stamped, without and with the accuracy of that; or why nobody can say."""
    place = record.stamp_in(folder)
    if not place.is_file():
        return None, "no time stamp lies beside it"
    if not trusted_roots:
        return None, "no authority was named whose time stamps you trust"
    try:
        stamp = verify_timestamp(read_within(place, MEBIBYTE, TimestampError), record.root, trusted_roots)
    except TimestampError as error:
        return None, str(error)
    except OSError as error:
        return None, f"its time stamp cannot be read ({error.strerror or type(error).__name__})"
    return (stamp.time, stamp.time + (stamp.accuracy or timedelta())), None


@forgets_locals
def _served(
    answers: Iterable[Answer], key: WatermarkKey, texts: Collection[KeptText]
) -> dict[KeptText, list[tuple[int, ...]]]:
    """What was answered to each text, in the order of the log, as class numbers of the key."""
    answers, log_key = list(answers), LogKey.of(key)
    numbers = {label: number for number, label in enumerate(key.labels)}
    by_word = key.task == "token-classification"
    known: dict[str, KeptText] = {}
    if any(line.text is None for _, line in answers):
        for kept in texts:
            asked = kept if isinstance(kept, str) else " ".join(kept) if by_word else list(kept)
            known[asked_digest(nonce_of(log_key, asked), asked)] = kept
    served: dict[KeptText, list[tuple[int, ...]]] = {}
    for header, line in answers:
        text = line.text
        if text is None:
            kept = known.get(line.asked, line.asked)
        else:
            kept = tuple(text) if isinstance(text, list) else tuple(text.split()) if by_word else text
        given = [] if header.label_kind == "soft" else line.answered
        labels = [given] if isinstance(given, str) else given
        served.setdefault(kept, []).append(tuple(numbers.get(label, -1) for label in labels))
    return served


def _end_of(day: str) -> datetime:
    """The moment when a day (UTC) is over."""
    return datetime.combine(date.fromisoformat(day) + timedelta(days=1), time(), UTC)


def _days(days: Collection[str]) -> str:
    """Days in words: the first, and how many more."""
    more = len(days) - 1
    return min(days) + (f" and {more} more days" if more > 1 else " and one more day" if more else "")
