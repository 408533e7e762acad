"""The upkeep of a query log: a root per day, old days removed, texts taken out, logs of replicas put together."""

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from ..checks import unfit, whole_number
from ..errors import InvalidInputError, QueryLogError
from ..keys import merkle
from ..keys.derivation import is_hexadecimal
from ..keys.files import fcntl, write_atomically
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from .log_lines import PRIVATE, as_line
from .log_reading import DAYS, Tail, chains_of
from .log_writer import make_folder, sync_folder

_FORMAT, _VERSION = "drw-query-log-day", 1
_LEAF, _ROOT = b"\x00drw-hf query log leaf v1", b"drw-hf query log day v1"


@dataclass(frozen=True)
class Day:
    """What was said of a day (UTC): one number that fixes all lines that it names.

    Attributes
    ----------
    day : str
    root : str
        The Merkle root over the lines' links, bound to their number: 64 hexadecimal digits, to be stamped
        (:func:`drw_hf.evidence.request_timestamp`) and published.
    lines : int
        How many lines it fixes, headers included.
    files : list of [chain, file, n, link]
        The files it fixes, each up to the line with that number and that link.
    made_at : str
        When, by this machine's clock; a time stamp over the root is what convinces others.
    expired_at : str or None
        When the lines were removed, being too old.
    """

    day: str
    root: str
    lines: int
    files: list[list[Any]]
    made_at: str
    expired_at: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return {"format": _FORMAT, "version": _VERSION, **dataclasses.asdict(self)}

    def stamp_in(self, folder: Path, *, finished: bool = True) -> Path:
        """Where the time stamp over the root lies, if there is one: an RFC 3161 response.

        One that was made before the day was over lies elsewhere: it does not show what was served later that day.
        """
        return _place_of(folder, self, "tsr" if finished else "unfinished.tsr")


def _place_of(folder: Path, day: "Day", suffix: str) -> Path:
    return folder / DAYS / f"{day.day}-{day.root[:16]}.{suffix}"


def leaf_of(link: str) -> bytes:
    """The leaf of a line in the tree of its day."""
    return hashlib.sha256(_LEAF + bytes.fromhex(link)).digest()


def root_of(leaves: bytes | bytearray) -> str:
    """The root over leaves that stand one after the other; it does not depend on their order."""
    in_order = merkle.in_order(leaves)
    return merkle.bound_root(merkle.tree_hash(in_order.tobytes()), len(in_order), _ROOT)


@dataclass
class _FileLeaves:
    """The leaves of a file, and where it begins and ends."""

    day: str
    first: int
    leaves: bytearray
    tail: Tail

    def up_to(self, n: int) -> bytearray:
        """The leaves of the lines up to number ``n``."""
        return self.leaves[: max(0, n - self.first + 1) * merkle.HASH_BYTES]


def _leaves_of(folder: Path, wanted: Callable[[str], bool]) -> dict[tuple[str, int], _FileLeaves]:
    """The leaves of all files of the days that are wanted, by chain and number; all lines are checked."""
    found: dict[tuple[str, int], _FileLeaves] = {}
    for chain in chains_of(folder, expired_tails(folder)).values():
        for read in chain.read():
            if wanted(read.header.day):
                tail = Tail(read.document["n"], read.document["link"])
                place = (read.header.chain, read.header.file)
                file = found.setdefault(place, _FileLeaves(read.header.day, tail.n, bytearray(), tail))
                file.leaves += leaf_of(tail.link)
                file.tail = tail
    return found


# -- days


def root_log(folder: str | os.PathLike[str], day: str | date | None = None) -> list[Day]:
    """Make the roots of days, and keep them in the log's folder ``days``.

    By default of all days that are over. A root of today, where ``day`` says so, fixes what there is by now; later
    lines need another one.

    Parameters
    ----------
    folder : path
        The log.
    day : str or date, optional
        The day (UTC).

    Returns
    -------
    list of Day
        The roots that were made, or had been made of the same lines before.
    """
    folder = Path(folder)
    wanted, today = None if day is None else _as_day(day), datetime.now(UTC).date().isoformat()
    files = _leaves_of(folder, lambda one: one == wanted or (wanted is None and one < today))
    if wanted is not None and not files:
        raise QueryLogError(f"the log in {folder} has no lines of {wanted}")
    known = {one.root: one for one in read_days(folder)}
    made = []
    for of_day in sorted({file.day for file in files.values()}):
        its = sorted((place, file) for place, file in files.items() if file.day == of_day)
        leaves = b"".join(bytes(file.leaves) for _, file in its)
        root = root_of(leaves)
        if root not in known:
            ends = [[*place, *file.tail] for place, file in its]
            known[root] = Day(of_day, root, len(leaves) // merkle.HASH_BYTES, ends, _now())
            _write_day(folder, known[root])
        made.append(known[root])
    return made


def read_days(folder: Path) -> list[Day]:
    """The roots that are kept in a log, the oldest day first."""
    found = []
    for path in sorted((folder / DAYS).glob("*.json")):
        document = parse_json(read_within(path, LARGEST_DOCUMENT, QueryLogError))
        declared: dict[str, Any] = {"day": str, "root": str, "lines": int, "files": list[list[Any]], "made_at": str}
        declared |= {"expired_at": str | None, "format": str, "version": int}
        whole = isinstance(document, dict) and document.keys() == declared.keys() and not unfit(document, declared)
        if not whole or document["format"] != _FORMAT or not is_hexadecimal(document["root"]):
            raise QueryLogError(f"{path} is no record of a day, or it was damaged; restore it from a backup")
        if document["version"] != _VERSION:
            raise QueryLogError(f"{path} has format version {document['version']}; update drw_hf")
        if not all(map(_is_end, document["files"])):
            raise QueryLogError(f"{path} names files that are none; restore it from a backup")
        found.append(Day(**{name: document[name] for name in Day.__dataclass_fields__}))
    return found


def expired_tails(folder: Path) -> dict[str, dict[int, Tail]]:
    """How the files ended that were expired, by chain and number."""
    tails: dict[str, dict[int, Tail]] = {}
    for day in read_days(folder):
        if day.expired_at is not None:
            for chain, number, n, link in day.files:
                tails.setdefault(chain, {})[number] = Tail(n, link)
    return tails


def check_days(folder: Path) -> tuple[list[Day], int]:
    """Hold every root that was kept against the lines it was made of; returns them, and how many lines they fix."""
    days = read_days(folder)
    kept = [day for day in days if day.expired_at is None]
    files = _leaves_of(folder, {day.day for day in kept}.__contains__)
    fixed: dict[tuple[str, int], int] = {}
    for day in kept:
        leaves = bytearray()
        for chain, number, end, _ in day.files:
            if (chain, number) in files:
                its = files[chain, number].up_to(end)
                leaves += its
                fixed[chain, number] = max(fixed.get((chain, number), 0), len(its) // merkle.HASH_BYTES)
        if len(leaves) != day.lines * merkle.HASH_BYTES or not leaves or root_of(leaves) != day.root:
            raise QueryLogError(
                f"the lines of {day.day} are not those of which the root {day.root[:16]} was made: lines were "
                "altered, cut off or lost; restore the log from a backup"
            )
    return days, sum(fixed.values())


def expire_log(folder: str | os.PathLike[str], days: int) -> list[Day]:
    """Remove what is older than so many days, and keep of each day that goes its root.

    Whole days (UTC) are removed. A root is made of those that have none yet. What is left of the log can be checked as
    before: every file says with which link the file before it ended, and the record of the day says the same. What is
    gone can no longer be tested, nor shown to have been under the root.

    Returns
    -------
    list of Day
        The days that were removed.
    """
    folder = Path(folder)
    whole_number("days", days, 0)
    limit = (datetime.now(UTC).date() - timedelta(days=days)).isoformat()
    check_days(folder)
    by_day: dict[str, list[Path]] = {}
    for chain in chains_of(folder, expired_tails(folder)).values():
        files = {read.header.file: read.header.day for read in chain.read()}
        for number, day in files.items():
            if day < limit:
                by_day.setdefault(day, []).append(chain.files[number])
    gone = []
    for day, paths in sorted(by_day.items()):
        with contextlib.ExitStack() as stack:
            for path in paths:
                stack.enter_context(_unused(path))
            (whole,) = root_log(folder, day)
            for record in read_days(folder):  # first the records, then the deed: a crash leaves lines too many
                if record.day == day:
                    _write_day(folder, dataclasses.replace(record, expired_at=_now()))
            for path in paths:
                path.unlink()
            sync_folder(folder)
        gone.append(dataclasses.replace(whole, expired_at=_now()))
    return gone


def redact_log(
    folder: str | os.PathLike[str],
    *,
    user: str | None = None,
    keep: str | None = None,
    before: str | date | None = None,
    names: bool = False,
) -> int:
    """Take texts out of a log, of some lines or all; returns of how many lines.

    Digests stay, which nobody can guess the text from without the key, and the chain and all roots remain as they are.
    ``detect`` then needs the texts again, and checks them. Files that a service is still writing are refused: stop it
    first, or name the days ``before`` the present one.

    Parameters
    ----------
    folder : path
        The log.
    user : str, optional
        Of this user of a ring alone.
    keep : str, optional
        Of all users but this one: a copy for whoever verifies a claim about this user needs the others' lines, which
        the roots fix too, and none of their texts.
    before : str or date, optional
        Of days before this one (UTC) alone.
    names : bool
        Take out the users' names, too.
    """
    folder = Path(folder)
    if user is not None and keep is not None:
        raise InvalidInputError("user= and keep= were both given; give the user whose texts go, or the one whose stay")
    limit = None if before is None else _as_day(before)
    left_out = PRIVATE if names else ("text",)
    n_redacted = 0
    for chain in chains_of(folder, expired_tails(folder)).values():
        sizes = {number: path.stat().st_size for number, path in chain.files.items()}
        by_file: dict[int, list[dict[str, Any]]] = {}
        hit: dict[int, int] = {}
        for read in chain.read():
            document, number = read.document, read.header.file
            meant = read.line is not None and (limit is None or read.header.day < limit)
            whose = None if read.line is None else read.line.user
            if meant and (user is None or whose == user) and (keep is None or whose != keep):
                short = {name: value for name, value in document.items() if name not in left_out}
                hit[number] = hit.get(number, 0) + (short.keys() != document.keys())
                document = short
            by_file.setdefault(number, []).append(document)
        for number, count in hit.items():
            if count:
                with _unused(chain.files[number], sizes[number]):
                    write_atomically(chain.files[number], b"".join(map(as_line, by_file[number])))
                n_redacted += count
    return n_redacted


def merge_logs(folder: str | os.PathLike[str], others: Iterable[str | os.PathLike[str]]) -> int:
    """Put the logs of replicas together in a folder; returns how many files were added or grew.

    Chains stay as they are: their files are copied, each checked first. A file that is in two logs must say the same
    in both, as far as the shorter one goes; two histories of one chain are refused. A service may go on writing to any
    of the logs.
    """
    folder = Path(folder)
    make_folder(folder)
    wanted: dict[Path, bytes] = {}
    there: dict[Path, bytes] = {}  # what stands in the folder already: nothing of it is written again
    sizes = {path: path.stat().st_size for path in folder.glob("*.jsonl")}
    for other in [folder, *map(Path, others)]:
        days = {path.name: path.read_bytes() for path in sorted((other / DAYS).glob("*.json"))}
        for stamp in sorted((other / DAYS).glob("*.tsr")):
            wanted.setdefault(folder / DAYS / stamp.name, stamp.read_bytes())
        tails = expired_tails(other)
        for chain in chains_of(other, tails).values():
            contents: dict[int, list[bytes]] = {}
            for read in chain.read():
                contents.setdefault(read.header.file, []).append(as_line(read.document))
            for number, lines in contents.items():
                _take(wanted, folder / chain.files[number].name, b"".join(lines))
        for name, content in days.items():
            known = parse_json(wanted.get(folder / DAYS / name, b"{}")) or {}
            if known.get("expired_at") is None:  # what is gone in one of the logs may be gone in all
                wanted[folder / DAYS / name] = content
        if other is folder:
            there = dict(wanted)
    new = {path: content for path, content in wanted.items() if there.get(path) != content}
    with contextlib.ExitStack() as stack:
        for path in new.keys() & sizes.keys():  # what a service is adding meanwhile would go with the file
            stack.enter_context(_unused(path, sizes[path]))
        for path, content in new.items():
            write_atomically(path, content)
    return sum(path.parent == folder for path in new)


# -- inside


def _take(wanted: dict[Path, bytes], path: Path, content: bytes) -> None:
    """Note a file of a chain, where it is known already as far as the longer one goes."""
    one, other = wanted.get(path, b"").splitlines(keepends=True), content.splitlines(keepends=True)
    if any(json.loads(mine)["link"] != json.loads(its)["link"] for mine, its in zip(one, other, strict=False)):
        raise QueryLogError(
            f"{path.name} is in two of the logs and they do not say the same; somebody altered one: find out which, "
            "by the roots that you published"
        )
    # What was taken out of a line in one log stays out.
    same = [min(pair, key=len) for pair in zip(one, other, strict=False)]
    wanted[path] = b"".join([*same, *max(one, other, key=len)[len(same) :]])


def _write_day(folder: Path, day: Day) -> None:
    (folder / DAYS).mkdir(mode=0o700, exist_ok=True)
    content = json.dumps(day.to_dict(), indent=2) + "\n"
    write_atomically(_place_of(folder, day, "json"), content.encode())


@contextlib.contextmanager
def _unused(path: Path, size: int | None = None) -> Iterator[None]:
    """Have a file that no service is writing any more, nor has since it was of this size."""
    with open(path, "rb") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _in_use(path) from None
            except OSError:  # a file system without locks
                pass
        if size is not None and os.fstat(file.fileno()).st_size != size:
            raise _in_use(path)
        yield


def _in_use(path: Path) -> QueryLogError:
    return QueryLogError(f"a service is still writing to {path}; stop it first, or leave out the present day")


def _as_day(day: str | date) -> str:
    try:
        return (date.fromisoformat(day) if isinstance(day, str) else day).isoformat()[:10]
    except (AttributeError, ValueError):
        raise InvalidInputError(f"day={day!r} is no day; give one like 2026-11-18") from None


def _is_end(end: list[Any]) -> bool:
    counted = len(end) == 4 and isinstance(end[0], str) and all(type(one) is int for one in end[1:3])
    return counted and is_hexadecimal(end[3])


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
