"""`QueryLog`: what a service was asked, by whom, and what it answered; half of the evidence against a thief."""

import dataclasses
import heapq
import itertools
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from ..checks import are_distributions, is_number
from ..errors import InvalidInputError, QueryLogError
from ..keys.choices import LabelKind
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from .log_days import Day, check_days, expired_tails
from .log_intervals import LinesByDay, LogInterval
from .log_lines import LogHeader, LogKey, LogLine, Text, asked_digest, nonce_of
from .log_reading import Chain, chains_of, first_header
from .log_writer import LARGEST_FILE, LogWriter
from .questions import Question, check_texts

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)


Answer = tuple[LogHeader, LogLine]  # a line, and the header of its file


class Asked(NamedTuple):
    """What was asked under a key, as questions; what was answered: labels, or None of scores; and on which days."""

    questions: list[Question]
    labels: list[Any] | None
    interval: LogInterval


class AnsweredUnder(NamedTuple):
    """What the log says of a key: of every digest of a text the first line, in their order, and of which days."""

    first: dict[str, Answer]
    interval: LogInterval


@dataclasses.dataclass(frozen=True)
class LogCheck:
    """What a check of a whole log found; that it returned means that nothing was altered or cut.

    Attributes
    ----------
    lines, chains : int
        How many texts were answered, and by how many runs of a service.
    redacted : int
        Of how many lines the text was taken out.
    rooted : int
        How many lines are under a root that was kept (``drw-hf log root``).
    days : list of Day
        The roots that were kept, each compared with the lines that are left of its day.
    unfinished : list of str
        Files whose last line was not written to its end, since the service was killed; nobody got that answer.
    """

    lines: int
    chains: int
    redacted: int
    rooted: int
    days: list[Day]
    unfinished: list[str]


class QueryLog:
    """A folder in which a service keeps what it was asked and answered, line by line.

    ``drw-hf serve --log`` writes one; :meth:`writer` does so for a service of your own. Whatever reads it checks that
    no line was altered, cut out or moved: each is chained to the one before by a digest. That stays so where a text or
    a user's name is taken out (:func:`drw_hf.asking.redact_log`), or days that are too old are removed
    (:func:`drw_hf.asking.expire_log`).

    :func:`drw_hf.detect` and :func:`drw_hf.identify` take it as ``logged=``.

    Parameters
    ----------
    folder : path
        The log; several services may have written to it.

    Examples
    --------
    >>> from drw_hf import QueryLog
    >>> from drw_hf.asking import Served
    >>> from drw_hf.keys import WatermarkKey
    >>> from transformers import BertConfig
    >>> config = BertConfig(vocab_size=100, architectures=["BertForSequenceClassification"])
    >>> key = WatermarkKey.generate(config, target="LABEL_1", special_token_ids=[0, 1, 2])
    >>> with QueryLog("my-log").writer(key, label_kind="hard") as writer:
    ...     kept = writer.append([Served("a good film", "LABEL_1")])
    ...     kept.result()  # it is on the disk: now the answer may be sent
    >>> [(line.text, line.answered) for line in QueryLog("my-log").lines()]
    [('a good film', 'LABEL_1')]
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._wanted: dict[str, Any] = {}

    def __repr__(self) -> str:
        chosen = "".join(f", {name}={value!r}" for name, value in self._wanted.items())
        return f"QueryLog({str(self.folder)!r}{chosen})"

    def writer(
        self,
        key: WatermarkKey | KeyRing,
        *,
        label_kind: LabelKind,
        texts: bool = True,
        users: bool = True,
        largest_file: int = LARGEST_FILE,
    ) -> LogWriter:
        """What adds to the log: see :class:`drw_hf.asking.LogWriter`. The folder is made if it is not there.

        Parameters
        ----------
        key : WatermarkKey or KeyRing
            By which answers are marked.
        label_kind : str
            Whether labels are answered (``"hard"``) or scores (``"soft"``).
        texts, users : bool
            Whether texts and users' names stand in the log; else keyed digests of them alone.
        largest_file : int
            Begin a new file beyond so many bytes. A new day (UTC) begins one, too.
        """
        return LogWriter(
            self.folder, key=key, label_kind=label_kind, texts=texts, users=users, largest_file=largest_file
        )

    # -- what to read of it

    def select(
        self,
        *,
        user: str | None = None,
        key: WatermarkKey | str | None = None,
        epoch: int | None = None,
        since: str | date | datetime | None = None,
        until: str | date | datetime | None = None,
    ) -> Self:
        """The same log, of which only some lines are read.

        Parameters
        ----------
        user : str, optional
            The lines of this user of a ring; those without names are not among them (give the user's ``key=``).
        key : WatermarkKey or str, optional
            The lines that were answered under this key, or under the key with this commitment.
        epoch : int, optional
            The lines of this epoch of a ring.
        since, until : str, date or datetime, optional
            From when, and until before when; without a time zone it is UTC, and a date is the beginning of that day.
        """
        chosen = type(self)(self.folder)
        given: dict[str, Any] = {"user": user, "key": key, "epoch": epoch, "since": since, "until": until}
        given = {name: value for name, value in given.items() if value is not None}
        if isinstance(key, WatermarkKey):
            given["key"] = key.commitment()
        for name in ("since", "until"):
            if name in given:
                given[name] = _moment(given[name], name)
        both = self._wanted.keys() & given.keys()
        if both:
            raise InvalidInputError(f"{sorted(both)} of this log was chosen before; begin with QueryLog(folder)")
        chosen._wanted = {**self._wanted, **given}
        return chosen

    def lines(self) -> Iterator[LogLine]:
        """What was answered, in the order of time; each line is checked as it is read."""
        return (line for _, line in self._read())

    def users(self) -> list[str]:
        """The users of a ring who asked, as far as the log names them."""
        return sorted({line.user for line in self.lines() if line.user is not None})

    def to_dataset(self) -> "Dataset":
        """The lines as a data set in memory: nothing of it is written to a cache.

        Columns: ``text`` (and ``text_pair``, where there are pairs; taggers: ``tokens``), ``label`` (taggers:
        ``labels``), ``probs`` (taggers: ``scores``; None of hard labels), ``user``, ``key``, ``epoch`` and ``at``.
        """
        from datasets import Dataset

        rows = [_row(header, line) for header, line in self._read()]
        names = dict.fromkeys(itertools.chain.from_iterable(rows))
        if all(row.get("text_pair") is None for row in rows):
            names.pop("text_pair", None)
        return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})

    def check(self) -> LogCheck:
        """Read all of it, whatever was selected; raises a ``QueryLogError`` where it is not whole."""
        torn: list[Path] = []
        lines = redacted = 0
        expired, chains = expired_tails(self.folder), self._chains()
        named = {
            tuple(one): name for name, chain in chains.items() for one in first_header(chain).get("after", ())
        }  # lines after which later chains began
        for name, chain in chains.items():
            for read in chain.read(torn):
                named.pop((name, read.document["n"], read.document["link"]), None)
                lines += read.line is not None
                redacted += read.line is not None and read.line.text is None
        for (other, n, _), name in named.items():
            if n > max((tail.n for tail in expired.get(other, {}).values()), default=-1):
                raise QueryLogError(
                    f"the chain {name} began after line {n} of the chain {other}, and that line is not there: files "
                    "were lost, or the end was cut off; restore them, or merge the log that has them (drw-hf log "
                    "merge)"
                )
        days, rooted = check_days(self.folder)
        return LogCheck(lines, len(chains), redacted, rooted, days, [path.name for path in torn])

    # -- what a test needs of it

    def asked_under(self, key: WatermarkKey, texts: Iterable[Any] | None = None) -> Asked:
        """What was asked under a key, each text once, and of hard labels what was answered.

        ``texts`` are for lines whose text was taken out: each must be in the log. Every line is checked to have been
        written by somebody who held the key.
        """
        return self.asked_under_each({"": key}, texts)[""]

    @forgets_locals
    def asked_under_each(
        self, keys: Mapping[str, WatermarkKey], texts: Iterable[Any] | None = None
    ) -> dict[str, Asked]:
        """The same for several keys, by the names they are given here; the log is read once."""
        answered = self.answered_under_each(keys, LinesByDay())
        texts = None if texts is None else list(texts)
        return {name: self._asked(answered[name], key, LogKey.of(key), texts) for name, key in keys.items()}

    @forgets_locals
    def answered_under_each(self, keys: Mapping[str, WatermarkKey], by_day: LinesByDay) -> dict[str, AnsweredUnder]:
        """Of each key what was answered under it, of every text the first line; ``by_day`` gets all lines there are.

        A text comes back with the same answer, and of answers that share a draw the first counts.
        """
        names = {key.commitment(): name for name, key in keys.items()}
        log_keys = {commitment: LogKey.of(keys[name]) for commitment, name in names.items()}
        first: dict[str, dict[str, Answer]] = {commitment: {} for commitment in names}
        lines, digests = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
        for header, line in self._read(by_day):
            if line.key not in names:
                continue
            if (
                line.text is not None
                and asked_digest(nonce_of(log_keys[line.key], line.text), line.text) != line.asked
            ):
                raise QueryLogError(
                    f"line {line.n} of the chain {header.chain} says that it was answered under the key "
                    f"{line.key[:16]}, and was not written with it: somebody else put it there; restore the log"
                )
            first[line.key].setdefault(line.asked, (header, line))
            lines[line.key] += 1
            digests[line.key] += line.text is None
        for commitment, answers in first.items():
            if not answers:
                raise QueryLogError(
                    f"the log in {self.folder} holds nothing that was answered under the key {commitment[:16]}"
                    f"{self._chosen()}; give the key that was served then (of a ring the user's, in that epoch)"
                )
        since, until = (self._wanted.get(name) for name in ("since", "until"))
        days = by_day.roots(since, until)
        return {
            name: AnsweredUnder(
                first[commitment],
                LogInterval(
                    since=since,
                    until=until,
                    days=days,
                    lines=lines[commitment],
                    texts=len(first[commitment]),
                    digests=digests[commitment],
                ),
            )
            for commitment, name in names.items()
        }

    def _asked(
        self,
        answered: AnsweredUnder,
        key: WatermarkKey,
        log_key: LogKey,
        texts: list[Any] | None,
    ) -> Asked:
        lines, interval = answered
        by_word = key.task == "token-classification"
        if texts is None:
            missing = sum(line.text is None for _, line in lines.values())
            if missing:
                raise QueryLogError(
                    f"of {missing:,} of the {len(lines):,} texts in the log in {self.folder} there are digests "
                    "alone; give the texts too (texts=): they are checked against the digests"
                )
            found = [(line.text, header, line) for header, line in lines.values() if line.text is not None]
        else:
            check_texts(texts, "texts", range(len(texts)))
            texts = [" ".join(text) if by_word and not isinstance(text, str) else text for text in texts]
            found = _matched(texts, lines, log_key, self.folder)
        for header in {id(header): header for _, header, _ in found}.values():
            if tuple(header.labels) != tuple(key.labels) or header.task != key.task:
                raise QueryLogError(f"the log in {self.folder} is of another task or other labels than the key's")
        pairs = [one for one in found if not isinstance(one[0], str)]
        if pairs and len(pairs) < len(found):
            alone = [one for one in found if isinstance(one[0], str)]
            logger.warning("the log holds %d texts and %d pairs, and one kind is tested", len(alone), len(pairs))
            found = max(alone, pairs, key=len)
        questions: list[Question] = [
            (text.split() if by_word else text) if isinstance(text, str) else (text[0], text[1])
            for text, _, _ in found
        ]
        if any(header.label_kind == "soft" for _, header, _ in found):
            return Asked(questions, None, interval)
        return Asked(questions, [line.answered for _, _, line in found], interval)

    # -- inside

    def _chosen(self) -> str:
        shown = [f"{name} {value}" for name, value in self._wanted.items() if name != "key"]
        return f" ({', '.join(shown)})" if shown else ""

    def _chains(self) -> dict[str, Chain]:
        return chains_of(self.folder, expired_tails(self.folder))

    def _read(self, by_day: LinesByDay | None = None) -> Iterator[Answer]:
        def entries(chain: Chain) -> Iterator[Answer]:
            for read in chain.read():
                if by_day is not None:
                    by_day.add(read)
                if read.line is not None:
                    yield read.header, read.line

        chains = [entries(chain) for chain in self._chains().values()]
        for header, line in heapq.merge(*chains, key=lambda one: (one[1].at, one[0].chain, one[1].n)):
            if self._is_wanted(header, line):
                _check_answer(header, line)
                yield header, line

    def _is_wanted(self, header: LogHeader, line: LogLine) -> bool:
        wanted = self._wanted
        return (
            wanted.get("user", line.user) == line.user
            and wanted.get("key", line.key) == line.key
            and wanted.get("epoch", header.epoch) == header.epoch
            and wanted.get("since", "") <= line.at < wanted.get("until", "~")
        )


def _moment(value: str | date | datetime, name: str) -> str:
    """A moment as lines have it."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else value.isoformat())
    except (AttributeError, TypeError, ValueError):
        raise InvalidInputError(f"{name}={value!r} is no date or time; give one like 2026-11-18") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")


def _matched(
    texts: Sequence[Any], first: dict[str, Answer], key: LogKey, folder: Path
) -> list[tuple[Text, LogHeader, LogLine]]:
    """The lines of texts that were given again."""
    found: dict[str, tuple[Text, LogHeader, LogLine]] = {}
    unknown = 0
    for text in texts:
        asked: Text = list(text) if isinstance(text, tuple) else text
        digest = asked_digest(nonce_of(key, asked), asked)
        if digest in first:
            found[digest] = (asked, *first[digest])
        unknown += digest not in first
    if unknown:
        raise QueryLogError(
            f"{unknown:,} of the texts are not in the log in {folder} under this key; give those that were asked "
            "there, letter by letter"
        )
    if len(found) < len(first):
        logger.warning(
            "of %d texts in the log %d were given; never leave texts out because of what was answered",
            len(first),
            len(found),
        )
    return [found[digest] for digest in first if digest in found]  # as they were asked


def _check_answer(header: LogHeader, line: LogLine) -> None:
    """Refuse an answer that is none: the chain says that it was logged so, not that it makes sense."""
    answered, labels = line.answered, header.labels
    if header.task == "token-classification":
        kinds: Any = [] if not isinstance(answered, list) else [one for one in answered if one is not None]
        if header.label_kind == "soft":
            pairs = [one for one in kinds if isinstance(one, list) and len(one) == 2 and isinstance(one[1], float)]
            right = len(pairs) == len(kinds) and all(one[0] in labels for one in pairs)
        else:
            right = all(isinstance(one, str) and one in labels for one in kinds)
        n_words = len(line.text.split()) if isinstance(line.text, str) else len(answered)
        right = isinstance(answered, list) and right and len(answered) == n_words
    elif header.label_kind == "hard":
        right = isinstance(answered, str) and answered in labels
    else:
        right = isinstance(answered, list) and len(answered) == len(labels) and _is_distribution(answered)
    if not right:
        raise QueryLogError(f"line {line.n} of the chain {header.chain} holds no answer to a text with these labels")


def _is_distribution(scores: list[Any]) -> bool:
    return all(map(is_number, scores)) and bool(are_distributions(np.array(scores, dtype=np.float64)))


def _row(header: LogHeader, line: LogLine) -> dict[str, Any]:
    """A line as a row of a data set."""
    row: dict[str, Any]
    if header.task == "token-classification":
        hard = header.label_kind == "hard"
        row = {
            "tokens": line.text.split() if isinstance(line.text, str) else None,
            "labels": [one if hard or one is None else one[0] for one in line.answered],
            "scores": None if hard else [None if one is None else float(one[1]) for one in line.answered],
        }
    else:
        scores = None if header.label_kind == "hard" else [float(one) for one in line.answered]
        texts = line.text if isinstance(line.text, list) else [line.text]
        row = {
            "text": texts[0],
            "text_pair": texts[1] if len(texts) == 2 else None,
            "label": line.answered if scores is None else header.labels[scores.index(max(scores))],
            "probs": scores,
        }
    return {**row, "user": line.user, "key": line.key, "epoch": header.epoch, "at": line.at}
