"""`LogWriter`: adds to a query log, many entries at once, and says when they are on the disk."""

import contextlib
import functools
import os
import secrets
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from ..checks import check_choice, whole_number
from ..errors import InvalidInputError, LogNotWrittenError
from ..keys.choices import LABEL_KINDS, LabelKind
from ..keys.files import fcntl
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..reading.files import MEBIBYTE
from .log_lines import (
    BEGINNING,
    FORMAT,
    PRIVATE,
    VERSION,
    LogKey,
    Served,
    Who,
    as_line,
    document_of,
    link_of,
    now,
    who_of,
)
from .log_reading import last_links

LARGEST_FILE = 64 * MEBIBYTE
_ROOM = 2**14  # bytes: what is tried where somebody asks whether the log can be written
_USERS_KEPT = 10_000  # of whom commitment and nonce key stay at hand: some 200 bytes each


Entry = tuple[Served, LogKey, Who]


class _Batch:
    """What is written together, and the future of all who wait for it."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.is_wanted = False
        self.kept: Future[None] = Future()
        self.kept.set_running_or_notify_cancel()  # whoever gives up does so for no other


class LogWriter:
    """Adds entries to a query log; what :meth:`append` has acknowledged is on the disk and survives a crash.

    Entries that wait at the same time are written together and share one ``fsync``. Every writer has a chain of its
    own, so that many processes can write into one folder. It is made by :meth:`drw_hf.QueryLog.writer`.

    Parameters
    ----------
    folder : path
        The log; made, readable by its owner alone, if it is not there.
    key : WatermarkKey or KeyRing
        By which answers are marked.
    label_kind : str
        Whether labels are answered (``"hard"``) or scores.
    texts, users : bool
        Whether texts and users' names stand in the log; else keyed digests of them alone.
    largest_file : int
        Begin a new file beyond so many bytes.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        key: WatermarkKey | KeyRing,
        label_kind: LabelKind,
        texts: bool = True,
        users: bool = True,
        largest_file: int = LARGEST_FILE,
    ) -> None:
        self.folder = Path(folder)
        check_choice("label_kind", label_kind, LABEL_KINDS)
        ring = key if isinstance(key, KeyRing) else None
        self._epoch = None if ring is None else ring.epoch
        self._said = {
            "task": key.binding.task,
            "labels": list(key.binding.labels),
            "label_kind": label_kind,
            "identity": key.identity,
            "epoch": self._epoch,
        }

        @functools.lru_cache(_USERS_KEPT)
        def key_for(user: str | None) -> tuple[LogKey, Who]:
            if isinstance(key, KeyRing) and user is not None:
                log_key = LogKey.of(key.key_for(user, self._epoch))
            elif isinstance(key, WatermarkKey) and user is None:
                log_key = LogKey.of(key)
            else:
                raise InvalidInputError("with a ring every line has a user, and with a single key none has")
            return log_key, who_of(user, log_key)

        self._key_for = key_for
        self._left_out = [name for name, kept in zip(PRIVATE, (texts, users), strict=True) if not kept]
        self._largest = whole_number("largest_file", largest_file)
        self._file: _ChainFile | None = None
        self._waiting = _Batch()
        self._changed = threading.Condition()
        self._closed = False
        self.n_written, self.n_syncs, self.sync_seconds = 0, 0, 0.0
        try:
            make_folder(self.folder)
            self._file = self._new_chain()  # a folder that cannot be written is refused before anything is served
        except OSError as error:
            raise _not_written(self.folder, error) from None
        self._thread = threading.Thread(target=self._work, name="drw-hf query log", daemon=True)
        self._thread.start()

    @forgets_locals
    def append(self, served: Sequence[Served]) -> "Future[None]":
        """Add what was served; the future is done once it is on the disk, or has a :class:`LogNotWrittenError`.

        Whoever waits at the same time has the same future: their entries are written together. It cannot be cancelled.
        """
        entries = [(one, *self._key_for(one.user)) for one in served]
        with self._changed:
            if self._closed:
                raise LogNotWrittenError(f"the writer of the log in {self.folder} is closed; make another one")
            self._waiting.entries += entries
            self._waiting.is_wanted = True
            self._changed.notify()
            return self._waiting.kept

    def close(self) -> None:
        """Write what is waiting, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside: one thread writes

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting.is_wanted or self._closed)
                if not self._waiting.is_wanted:
                    return
                batch, self._waiting = self._waiting, _Batch()
            try:
                self._write(batch.entries)
            except Exception as error:  # whatever it was, nobody may be answered
                batch.kept.set_exception(_not_written(self.folder, error))
            else:
                batch.kept.set_result(None)

    def _write(self, entries: list[Entry]) -> None:
        try:
            if self._file is None:  # the last one failed
                self._file = self._new_chain()
            at = max(now(), self._file.at)  # a clock that goes back moves no line before another one
            if self._file.size > self._largest or self._file.day < at[:10]:
                self._file = self._file.followed(at, self._said)
            self.sync_seconds += self._file.add(entries, at, self._left_out)
        except BaseException:
            if self._file is not None and not self._file.is_whole:
                self._file.close()
                self._file = None  # what is known of it is uncertain: the next lines begin another chain
            raise
        self.n_written += len(entries)
        self.n_syncs += 1

    def _new_chain(self) -> "_ChainFile":
        after = last_links(self.folder)
        chain, at = secrets.token_hex(16), now()
        return _ChainFile(self.folder, chain, 1, -1, BEGINNING, at, {**self._said, "after": after})


class _ChainFile:
    """An open file of a chain, and the last line in it."""

    def __init__(
        self, folder: Path, chain: str, number: int, n: int, link: str, at: str, header: dict[str, Any]
    ) -> None:
        self.folder, self.chain, self.number, self.day, self.at = folder, chain, number, at[:10], at
        self.path = folder / f"{chain}-{number:05d}.jsonl"
        self.n, self.link, self.size = n, link, 0
        self.is_whole = True  # it holds what was acknowledged and nothing else, so it can be added to
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(self.path, flags, 0o600)
        try:
            if fcntl is not None:  # held while it is written, so that nobody expires or redacts it meanwhile
                with contextlib.suppress(OSError):
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            document = {
                "n": n + 1,
                "at": at,
                "chain": chain,
                "file": number,
                "day": self.day,
                "before": link,
                **header,
            }
            document |= {"format": FORMAT, "version": VERSION}
            document["link"] = link_of(link, document)
            self._keep(as_line(document))
            self.n, self.link = n + 1, document["link"]
            sync_folder(folder)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                self.path.unlink()
            raise

    def followed(self, at: str, header: dict[str, Any]) -> "_ChainFile":
        """The next file of the chain, which goes on where this one ends."""
        self.is_whole = False  # if the next one cannot be made, nothing is added here any more
        self.close()
        return _ChainFile(self.folder, self.chain, self.number + 1, self.n, self.link, at, {**header, "after": []})

    def add(self, entries: list[Entry], at: str, left_out: Sequence[str]) -> float:
        """Write entries, all at once, and wait until they are on the disk; returns how many seconds that wait took.

        Of no entries it is tried whether there is room for some.
        """
        if not entries:
            before = self.size
            seconds = self._keep(b" " * _ROOM)
            self.is_whole = False
            os.ftruncate(self._descriptor, before)
            self.size, self.is_whole = before, True
            return seconds
        n, link, lines = self.n, self.link, []
        for served, key, who in entries:
            document = document_of(served, key, n + 1, at, link, who)
            n, link = n + 1, document["link"]
            lines.append(as_line({name: value for name, value in document.items() if name not in left_out}))
        seconds = self._keep(b"".join(lines))
        self.n, self.link, self.at = n, link, at
        return seconds

    def _keep(self, content: bytes) -> float:
        view, self.is_whole = memoryview(content), False
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
                self.is_whole = True  # as on a full disk: had each attempt a file of its own, there were thousands
            raise
        start = time.perf_counter()
        try:
            sync(self._descriptor)
        except BaseException:  # after that nobody knows what is on the disk
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise
        self.size, self.is_whole = self.size + len(content), True
        return time.perf_counter() - start

    def close(self) -> None:
        """Give the file back; nothing is added any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync(descriptor: int) -> None:
    """Wait until a file is on the disk."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def make_folder(folder: Path) -> None:
    """Make the folder of a log, readable by its owner alone, so that its name survives a power cut."""
    there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = folder.absolute()
    while made != there.absolute():
        made = made.parent
        sync_folder(made)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where that can be asked for."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _not_written(folder: Path, error: BaseException) -> LogNotWrittenError:
    why = getattr(error, "strerror", None) or type(error).__name__
    return LogNotWrittenError(
        f"the log in {folder} cannot be written: {why}; nothing is served unlogged: free the space, or make the "
        "folder writable"
    )
