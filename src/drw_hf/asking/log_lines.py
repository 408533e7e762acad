"""The lines of a query log: what stands in them, and how each is chained to the one before.

A log is a folder of files of JSON lines. Each process that writes has a *chain* of its own: files
``CHAIN-00001.jsonl``, ``CHAIN-00002.jsonl``, ..., of one day (UTC) each, that begin with a header. Every line has the
number ``n`` and the ``link``, SHA-256 over the link before and all of the line that is public; so no line can be
altered, left out or moved without all later links being wrong.

What a customer may want forgotten, the text and the user's name, is not in the chain itself: ``asked`` and ``who`` are
digests of it with a nonce that comes from the key by which the answer was marked. While text and nonce stand in the
line too, anybody can check the digest. Once they are taken out, nobody learns anything from it; but who has the key,
and is given the text again, can make the nonce and check it.
"""

import dataclasses
import hashlib
import hmac
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..checks import unfit
from ..errors import QueryLogError
from ..keys.choices import LabelKind, Task
from ..keys.derivation import LOGGED_TEXTS, is_hexadecimal
from ..keys.key import WatermarkKey
from ..keys.sealing import canonical

FORMAT, VERSION = "drw-query-log", 1
FILE_NAME = re.compile(r"([0-9a-f]{32})-([0-9]{5,9})\.jsonl")
LARGEST_LINE = 2**24  # bytes: a text in a request is far smaller
BEGINNING = "0" * 64  # in place of a link before the first line
_LINK, _ASKED, _WHO, _NONCE = (f"drw-hf query log {use} v1".encode() for use in ("link", "asked", "who", "nonce"))
PRIVATE = ("text", "user")  # each with its nonce; they may be taken out of a line, whose link stays as it is
_NONCE_BYTES = 16

Text = str | list[str]  # a text, or the two of a pair
Answered = str | list[float] | list[str | None] | list[list[Any] | None]


class LogKey(NamedTuple):
    """The key by which an answer was marked, as a log needs it: its commitment, and what nonces come from."""

    commitment: str
    nonce_key: bytes

    @classmethod
    def of(cls, key: WatermarkKey) -> "LogKey":
        """Of a key, or the key of a ring's user."""
        return cls(key.commitment(), key.subkey(LOGGED_TEXTS))

    def __repr__(self) -> str:
        return f"LogKey({self.commitment[:16]})"


@dataclass(frozen=True)
class LogHeader:
    """What the first line of a file says of all that follow.

    Attributes
    ----------
    chain, file : str, int
        Which chain it belongs to, and its place there, from 1.
    day : str
        The day (UTC) of all lines in the file.
    task, label_kind : str
    labels : list of str
        In the order of the scores.
    identity, epoch : str, int or None
        The commitment of the key, or the identity of the ring and its epoch.
    after : list of [chain, n, link]
        Of a chain's first file: the last lines of other chains that were in the folder when it began.
    """

    n: int
    at: str
    chain: str
    file: int
    day: str
    task: Task
    label_kind: LabelKind
    labels: list[str]
    identity: str
    epoch: int | None
    before: str
    after: list[list[Any]]
    link: str = ""
    format: str = FORMAT
    version: int = VERSION


@dataclass(frozen=True)
class LogLine:
    """One text that was asked, and what was answered.

    Attributes
    ----------
    n : int
        The number in its chain.
    at : str
        When (UTC, ISO 8601).
    key : str
        The commitment of the key by which the answer was marked: of a ring, of the user's key in that epoch.
    asked, who : str
        Digests of text and user.
    answered : str or list
        Of a text the label (hard) or the scores in the order of the header's labels (soft); of a tagger, per word, the
        label (hard) or label and score (soft), None for words beyond the model's limit.
    link : str
        The digest that chains it to the line before.
    text : str or list of str
        The text, or the two of a pair; None where it was taken out.
    user : str
        The user of a ring who asked; None for a single key, or where it was taken out.
    """

    n: int
    at: str
    key: str
    asked: str
    who: str
    answered: Any
    link: str = ""
    text: Text | None = None
    user: str | None = None


class Served(NamedTuple):
    """A text that was asked, what was answered (as :class:`LogLine` has it), and which user of a ring asked."""

    text: Text
    answered: Answered
    user: str | None = None


class Who(NamedTuple):
    """A user in a line: the nonce, which may be taken out, and the digest."""

    nonce: str
    digest: str


_TYPES: dict[str, Any] = {
    "n": int,
    "at": str,
    "chain": str,
    "file": int,
    "day": str,
    "task": Task,
    "label_kind": LabelKind,
    "labels": list[str],
    "identity": str,
    "epoch": int | None,
    "before": str,
    "after": list[list[Any]],
    "link": str,
    "format": str,
    "version": int,
    "key": str,
    "asked": str,
    "who": str,
    "answered": Any,
    "text": list[Any],
    "user": list[Any],
}


# -- digests


def nonce_of(key: LogKey, what: Text | None) -> str:
    """The nonce of a text or a user under a key: the same whenever it is made, so that digests can be compared."""
    return hmac.digest(key.nonce_key, _NONCE + canonical({"of": what}), "sha256")[:_NONCE_BYTES].hex()


def asked_digest(nonce: str, text: Text) -> str:
    """The digest of a text that stands in the chain."""
    return hashlib.sha256(_ASKED + bytes.fromhex(nonce) + canonical({"text": text})).hexdigest()


def who_digest(nonce: str, user: str | None) -> str:
    """The digest of a user that stands in the chain."""
    return hashlib.sha256(_WHO + bytes.fromhex(nonce) + canonical({"user": user})).hexdigest()


def link_of(before: str, document: dict[str, Any]) -> str:
    """The link of a line, from the link before and all of the line but what may be taken out."""
    public = {name: value for name, value in document.items() if name != "link" and name not in PRIVATE}
    return hashlib.sha256(_LINK + bytes.fromhex(before) + canonical(public)).hexdigest()


# -- writing


def now() -> str:
    """This moment, as lines have it: of a fixed length, so that moments are in order as texts."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def who_of(user: str | None, key: LogKey) -> Who:
    """What a user's lines say of the user: the same in each."""
    nonce = nonce_of(key, user)
    return Who(nonce, who_digest(nonce, user))


def document_of(served: Served, key: LogKey, n: int, at: str, before: str, who: Who | None = None) -> dict[str, Any]:
    """A line for what was served, with its link; ``who`` is what :func:`who_of` made for this user before."""
    text, user = served.text, served.user
    of_text, (of_user, digest) = nonce_of(key, text), who or who_of(user, key)
    document: dict[str, Any] = {
        "n": n,
        "at": at,
        "key": key.commitment,
        "asked": asked_digest(of_text, text),
        "who": digest,
        "answered": served.answered,
    }
    document["link"] = link_of(before, document)
    document["text"] = [text, of_text]
    return document if user is None else {**document, "user": [user, of_user]}


def as_line(document: dict[str, Any]) -> bytes:
    """A document as it is written."""
    return canonical(document) + b"\n"


# -- reading


def read_header(document: Any, where: str) -> LogHeader:
    """A file's first line; ``where`` names it in errors."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise QueryLogError(f"{where} is no query log of drw_hf, or its header was damaged; restore it from a backup")
    if document.get("version") != VERSION:
        raise QueryLogError(
            f"{where} has format version {document.get('version')!r}, this drw_hf reads {VERSION}; update drw_hf "
            "(pip install -U drw_hf)"
        )
    header = _read(LogHeader, document, where)
    refer = all(map(is_reference, header.after))
    refer = refer and is_hexadecimal(header.before) and is_hexadecimal(header.identity)
    if not (refer and header.file >= 1 and header.n >= 0 and is_day(header.day) and len(header.labels) > 1):
        raise _damaged(where)
    return header


def read_line(document: Any, where: str) -> LogLine:
    """Any other line; the digests of text and user, where these are there, are checked."""
    line = _read(LogLine, document, where)
    if not all(map(is_hexadecimal, (line.key, line.asked, line.who))):
        raise _damaged(where)
    text, user = (_opened(document.get(name), where) for name in PRIVATE)
    is_pair = isinstance(text[0], list) and len(text[0]) == 2 and all(isinstance(one, str) for one in text[0])
    if text[1] and not (isinstance(text[0], str) or is_pair):
        raise _damaged(where)
    if not isinstance(user[0], str | None):
        raise _damaged(where)
    right = not text[1] or asked_digest(text[1], text[0]) == line.asked
    if not right or (user[1] and who_digest(user[1], user[0]) != line.who):
        raise QueryLogError(
            f"{where}: the text or the user is not what was logged, somebody altered it; restore the file from a "
            "backup, and compare with the roots that you published (drw-hf log root)"
        )
    return dataclasses.replace(line, text=text[0], user=user[0])


def _opened(private: Any, where: str) -> tuple[Any, str]:
    """What was not taken out, and its nonce; the latter empty where it was."""
    if private is None:
        return None, ""
    nonce = private[1] if len(private) == 2 else None
    if not isinstance(nonce, str) or not re.fullmatch(f"[0-9a-f]{{{2 * _NONCE_BYTES}}}", nonce):
        raise _damaged(where)
    return private[0], nonce


def _read(kind: type, document: Any, where: str) -> Any:
    names = kind.__dataclass_fields__.keys()  # type: ignore[attr-defined]
    if not isinstance(document, dict) or not names - set(PRIVATE) <= document.keys() <= names:
        raise _damaged(where)
    if unfit(document, {name: _TYPES[name] for name in names}):
        raise _damaged(where)
    if not is_hexadecimal(document["link"]) or not is_moment(document["at"]):
        raise _damaged(where)
    return kind(**document)


def is_reference(line: Any) -> bool:
    """Whether this names a line of a chain: [chain, n, link]."""
    three = isinstance(line, list) and len(line) == 3
    return three and isinstance(line[0], str) and type(line[1]) is int and is_hexadecimal(line[2])


def is_day(text: str) -> bool:
    """Whether this is a day as lines have it."""
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None


def is_moment(text: str) -> bool:
    """Whether this is a moment as lines have it."""
    return re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", text, re.ASCII) is not None


def _damaged(where: str) -> QueryLogError:
    return QueryLogError(f"{where} is no line of a query log, or it was damaged; restore the file from a backup")
