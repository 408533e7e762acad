"""Reading a query log: its chains, their files and lines, each checked as it is read."""

import contextlib
import dataclasses
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ..errors import QueryLogError
from ..reading.files import parse_json
from .log_lines import (
    BEGINNING,
    FILE_NAME,
    LARGEST_LINE,
    LogHeader,
    LogLine,
    is_reference,
    link_of,
    read_header,
    read_line,
)

DAYS = "days"  # the folder in the log where the roots of days are kept
_TAIL = 2**16


class Tail(NamedTuple):
    """Where a file of a chain ends: the number and the link of its last line."""

    n: int
    link: str


class Read(NamedTuple):
    """A line as it was read: its document, the header of its file, and the line, None for the header itself."""

    document: dict[str, Any]
    header: LogHeader
    line: LogLine | None


@dataclasses.dataclass
class Chain:
    """The files of a chain, by their number, and how those ended that were expired."""

    name: str
    files: dict[int, Path] = dataclasses.field(default_factory=dict)
    expired: dict[int, Tail] = dataclasses.field(default_factory=dict)
    _tail: Tail = dataclasses.field(default_factory=lambda: Tail(-1, BEGINNING))

    def read(self, torn: list[Path] | None = None) -> Iterator[Read]:
        """All lines, checked: that each follows the one before, from the first file that is left.

        ``torn`` gets the file whose last line was not written to its end, which nobody was answered.
        """
        numbers = sorted(self.files)
        for number in numbers:
            before = self._before(number)
            path = self.files[number]
            for read, tail in _read_file(path, self.name, number, before, number == numbers[-1], torn):
                self._tail = tail
                yield read

    def _before(self, number: int) -> Tail:
        """How the file before one ended."""
        if number == 1:
            return Tail(-1, BEGINNING)
        if number - 1 in self.files:
            return self._tail
        if number - 1 in self.expired:
            return self.expired[number - 1]
        raise QueryLogError(
            f"the file {self.name}-{number - 1:05d}.jsonl is missing from the log, and no record says that it was "
            "expired (drw-hf log expire keeps one); restore it from a backup"
        )


def chains_of(folder: Path, expired: dict[str, dict[int, Tail]] | None = None) -> dict[str, Chain]:
    """The chains of a log by name; ``expired`` is how files ended that are gone, as records of days say."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise QueryLogError(
            f"there is no query log in {folder} ({error.strerror or type(error).__name__}); give the folder that "
            "drw-hf serve --log wrote"
        ) from None
    chains: dict[str, Chain] = {}
    for name in names:
        found = FILE_NAME.fullmatch(name)
        if found is not None:
            chain = chains.setdefault(found[1], Chain(found[1], expired=(expired or {}).get(found[1], {})))
            chain.files[int(found[2])] = folder / name
    return chains


def first_header(chain: Chain) -> dict[str, Any]:
    """The first line that is left of a chain, as it stands there; empty where it is none."""
    with _opened(chain.files[min(chain.files)]) as file:
        header = parse_json(file.readline(LARGEST_LINE))
    whole = isinstance(header, dict) and isinstance(header.get("after"), list)
    return header if whole and all(map(is_reference, header["after"])) else {}


def last_links(folder: Path) -> list[list[Any]]:
    """The last lines of the chains that no later chain names, as [chain, n, link]: what a new one comes after."""
    ends, named = {}, set()
    for chain in chains_of(folder).values():
        named |= {(one[0], one[1]) for one in first_header(chain).get("after", ())}
        for number in sorted(chain.files, reverse=True):  # a crash may have torn the header of the last one
            end = _last_line(chain.files[number])
            if isinstance(end, dict) and type(end.get("n")) is int and isinstance(end.get("link"), str):
                ends[chain.name] = Tail(end["n"], end["link"])
                break
    return [[name, end.n, end.link] for name, end in ends.items() if (name, end.n) not in named]


def _last_line(path: Path) -> Any:
    """The last line that was written to its end."""
    with _opened(path) as file:
        end = file.seek(0, os.SEEK_END)
        content, start = b"", end
        while start and content.count(b"\n") < 2 and end - start < LARGEST_LINE:
            start = max(0, start - _TAIL)
            file.seek(start)
            content = file.read(end - start)
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    return parse_json(lines[-1]) if lines else None


def _read_file(
    path: Path, chain: str, number: int, before: Tail, is_last: bool, torn: list[Path] | None
) -> Iterator[tuple[Read, Tail]]:
    n, link, header = before.n, before.link, None
    with _opened(path) as file:
        while content := file.readline(LARGEST_LINE + 1):
            n += 1
            where = f"line {n} of {path.name}"
            if not content.endswith(b"\n"):
                if is_last and len(content) <= LARGEST_LINE:  # its writer was killed
                    if torn is not None:
                        torn.append(path)
                    return
                raise QueryLogError(f"{where} was cut; restore the file from a backup")
            document = _parsed(content, where)
            if header is None:
                header = read_header(document, str(path))
                if (header.chain, header.file) != (chain, number):
                    raise QueryLogError(
                        f"{path} is the file {header.file} of another chain, {header.chain}: it was renamed, or put "
                        "here in the place of another one"
                    )
                line = None
            else:
                line = read_line(document, where)
            if document["n"] != n or (header.before != link if line is None else False):
                raise QueryLogError(
                    f"{where} is missing, or stands somewhere else: lines were cut out, put in or moved; restore the "
                    "file from a backup"
                )
            if link_of(link, document) != document["link"]:
                raise QueryLogError(
                    f"{where} was altered, or is of another log: it does not follow from the line before; restore "
                    "the file from a backup, and compare with the roots that you published (drw-hf log root)"
                )
            if document["at"][:10] != header.day:
                raise QueryLogError(f"{where} is of another day than its file, {header.day}; no drw_hf wrote it so")
            link = document["link"]
            yield Read(document, header, line), Tail(n, link)
    if header is None and not is_last:
        raise QueryLogError(f"{path} is empty; restore it from a backup")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file of a log, to be read."""
    try:
        # What is no file, such as a pipe, would never come to an end.
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
    except OSError as error:
        raise QueryLogError(
            f"cannot read {path}: {error.strerror or type(error).__name__}; if it was removed meanwhile (drw-hf log "
            "expire), try again; else make it readable for yourself"
        ) from None
    with file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise QueryLogError(f"{path} is no file, and no drw_hf put it into the log; take it away")
        yield file


def _parsed(content: bytes, where: str) -> Any:
    document = parse_json(content)
    if not isinstance(document, dict):
        raise QueryLogError(f"{where} is damaged: it is no JSON; restore the file from a backup")
    try:
        json.dumps(document)  # a number of thousands of digits can be read, and never written
    except ValueError:
        raise QueryLogError(f"{where} is damaged: it holds a number that is none of ours") from None
    return document
