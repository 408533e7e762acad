"""`audit`: does a key lie open in a repository, now or anywhere in its history?"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from huggingface_hub import RepoFile

from ..detection.result import FORMAT as EVIDENCE_FORMAT
from ..errors import HubError, InvalidInputError, KeyPointerError
from ..keys import sealing
from ..keys.files import ARRAYS_FILE, KINDS, POINTER_FILE, SEALED_ARRAYS
from ..reading.files import parse_json
from ..repositories.history import History
from ..watermark.configuration import is_hub_id
from ..wording import printable
from .pull import Pointer

SEALED, PLAIN, WEAK = "sealed key", "plain key", "weakly sealed key"
PASSPHRASE, EVIDENCE, DAMAGED = "passphrase", "evidence", "damaged key file"
_KEY_STEMS = tuple(PurePosixPath(name).stem for name in (kind.file for kind in KINDS))
_FORMATS = tuple(kind.format for kind in KINDS)
_LARGEST_OF_OURS = 64 * 2**20
_LARGEST_OF_OTHERS = 4 * 2**20  # a file that is not named like ours; evidence holds a periodogram
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".onnx", ".h5", ".msgpack", ".gguf", ".npz", ".parquet", ".arrow")


@dataclass(frozen=True)
class Finding:
    """A file of ours in a repository's history.

    Attributes
    ----------
    kind : str
        ``"plain key"``, ``"sealed key"``, ``"weakly sealed key"`` (sealed at a lower cost than ours), ``"passphrase"``
        (in a tokenizer's or model's configuration), ``"evidence"`` (which shows target class, frequency and hash
        values), or ``"damaged key file"``.
    path, commit, date
        Where, and the first commit that holds it, with its date.
    refs : tuple of str
        The branches, tags and pull requests whose history holds it.
    current : bool
        Whether it still lies at the tip of one of them.
    fingerprint : str or None
        Of the key.
    """

    kind: str
    path: str
    commit: str
    date: datetime
    refs: tuple[str, ...]
    current: bool
    fingerprint: str | None


@dataclass(frozen=True)
class Audit:
    """What :func:`audit` found.

    Attributes
    ----------
    repo_id : str
    private : bool
        Whether the repository is private now.
    n_commits : int
        How many commits were looked at.
    findings : tuple of Finding
    skipped : tuple of str
        Files that were not looked into: archives, and files too large to be a key's though they are named like one.
    """

    repo_id: str
    private: bool
    n_commits: int
    findings: tuple[Finding, ...]
    skipped: tuple[str, ...] = ()

    @property
    def exposed(self) -> tuple[Finding, ...]:
        """What should be nobody's but the owner's."""
        return tuple(finding for finding in self.findings if finding.kind != SEALED)

    @property
    def status(self) -> str:
        """``"open"``: others can read a secret. ``"at risk"``: they could, were it public. ``"safe"``: neither."""
        if not self.exposed:
            return "safe"
        return "at risk" if self.private else "open"

    @property
    def advice(self) -> str:
        """What to do, in plain words."""
        if self.status == "safe":
            sealed = any(finding.kind == SEALED for finding in self.findings)
            return "Nothing to do." + (" A sealed key is as safe as its passphrase is long." if sealed else "")
        if self.status == "at risk":
            return (
                "The repository is private: keep it so, and keep its members few. Before it is made public, push the "
                "model into a new repository with a passphrase; deleting the file is not enough, since the history "
                "keeps it."
            )
        return (
            "Treat the key as known to everybody: make a new one and rotate (from_pretrained(..., key=new_key, "
            "replace_key=True), then push_to_hub with a passphrase into a new repository). Making this one private "
            "again, or deleting the file, does not take back what was downloaded. Keep the old key: what it marked "
            "before it lay open can still be found with it."
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **vars(self),
            "findings": [{**asdict(finding), "date": finding.date.isoformat()} for finding in self.findings],
            "skipped": list(self.skipped),
            "status": self.status,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        visibility = "private" if self.private else "public"
        lines = [f"{self.repo_id} ({visibility}), {self.n_commits} commits: {self.status}"]
        for finding in self.findings:
            where = "still there" if finding.current else "in the history only"
            whose = f" {finding.fingerprint}" if finding.fingerprint else ""
            lines.append(
                f"  {finding.kind}{whose}: {printable(finding.path)}, since commit {finding.commit[:12]} of "
                f"{finding.date:%Y-%m-%d %H:%M} UTC, {where} ({', '.join(finding.refs)})"
            )
        if self.skipped:
            lines.append(f"  not looked into: {', '.join(map(printable, self.skipped))}")
        return "\n".join([*lines, self.advice])


def audit(repo_id: str, *, repo_type: str = "model", token: bool | str | None = None, progress: bool = True) -> Audit:
    """Look through all of a repository's history for keys that lie open, and say what to do.

    Every small file of every commit that a branch, tag or pull request leads to is looked at, whatever its name, and
    so is the repository that a pointer leads to. Archives are not opened, only listed. Contents are read into memory,
    and nothing is written to the local cache.

    Parameters
    ----------
    repo_id : str
        The repository.
    repo_type : str
        ``"model"``, ``"dataset"`` or ``"space"``.
    token : bool or str, optional
        Needed for a private repository.

    Raises
    ------
    InvalidInputError
        For a folder on this machine, or whatever else is no repository's name.
    RepositoryAccessError
        When the repository does not exist, or the token may not read it.
    """
    if not is_hub_id(repo_id) or (os.path.isdir(repo_id) and "/" not in repo_id):
        what = "a folder on this machine" if os.path.isdir(repo_id) else "no name of a repository"
        raise InvalidInputError(
            f"{repo_id} is {what}; an audit looks through the history of a repository on the Hub, so pass the name it "
            "has there, as in me/model"
        )
    found, pointers = _look_through(History(repo_id, repo_type=repo_type, token=token), progress)
    elsewhere = [finding for pointer in pointers for finding in _exposed_behind(pointer, token, progress)]
    return replace(found, findings=(*found.findings, *elsewhere))


def _look_through(history: History, progress: bool) -> tuple[Audit, list[Pointer]]:
    """What lies in one repository, and the pointers in it."""
    private, tips = history.is_private(), history.refs()
    findings: dict[tuple[str, str], Finding] = {}
    skipped: set[str] = set()
    pointers: dict[Pointer, None] = {}
    n_commits = 0
    for snapshot in history.snapshots(list(tips), progress):
        n_commits += 1
        for file in snapshot.files:
            if not _is_read(file):
                if _is_ours_by_name(file.path) or file.path.lower().endswith(_ARCHIVES):
                    skipped.add(file.path)
                continue
            content, name = history.read(file, snapshot.commit), PurePosixPath(file.path).name
            if name == POINTER_FILE:
                with suppress(KeyPointerError):
                    pointers[Pointer.parse(content, POINTER_FILE)] = None
                continue
            kind, fingerprint = classify(name, content)
            if kind is None:
                continue
            place = (file.path, file.blob_id)
            first = Finding(kind, file.path, snapshot.commit, snapshot.date, (), False, fingerprint)
            known = findings.get(place, first)
            findings[place] = replace(
                known,
                refs=tuple(sorted({*known.refs, *snapshot.refs})),
                current=known.current or snapshot.commit in tips.values(),
            )
    audit = Audit(history.repo_id, private, n_commits, tuple(findings.values()), tuple(sorted(skipped)))
    return audit, list(pointers)


def _exposed_behind(pointer: Pointer, token: bool | str | None, progress: bool) -> Iterator[Finding]:
    """What lies open where a pointer leads; a repository that cannot be read, or is private, hides it well enough."""
    try:
        found, _ = _look_through(History(pointer.repo_id, token=token), progress)
    except HubError:
        return
    if not found.private:
        for finding in found.exposed:
            yield replace(finding, path=f"{pointer.repo_id}: {finding.path}")


def _is_ours_by_name(path: str) -> bool:
    return any(stem in PurePosixPath(path).name.lower() for stem in _KEY_STEMS)


def _is_read(file: RepoFile) -> bool:
    largest, others = (_LARGEST_OF_OURS, ()) if _is_ours_by_name(file.path) else (_LARGEST_OF_OTHERS, _WEIGHTS)
    return file.size <= largest and not file.path.lower().endswith((*_ARCHIVES, *others))


def classify(name: str, content: bytes) -> tuple[str | None, str | None]:
    """What kind of file of ours a file is (None for anybody else's), and the fingerprint of its key."""
    if name.lower().endswith(PurePosixPath(ARRAYS_FILE).suffix):
        return _classify_arrays(content), None
    document = parse_json(content)
    found = [(kind, fingerprint) for kind, fingerprint in map(_classify_part, _parts(document)) if kind is not None]
    if found:  # a file may hold several; the worst is what counts
        return min(found, key=lambda kind_and_key: kind_and_key[0] == SEALED)
    broken = document is None and any(f'"{form}"'.encode() in content for form in _FORMATS)
    return (DAMAGED if broken or _is_ours_by_name(name) else None), None


def _classify_part(part: dict[str, Any]) -> tuple[str | None, str | None]:
    fingerprint = str(part.get("commitment") or part.get("key_commitment") or "")[:16] or None
    if part.get("format") in _FORMATS:
        if part.get("sealed") is not True or "key" in part:
            return PLAIN, fingerprint
        cost = next((inner["n"] for inner in _parts(part) if isinstance(inner.get("n"), int)), sealing.COST)
        return (WEAK if cost < sealing.COST else SEALED), fingerprint
    if part.get("format") == EVIDENCE_FORMAT:
        return EVIDENCE, fingerprint
    if {"secret", "special_token_ids", "epsilon"} <= part.keys():
        return PLAIN, fingerprint
    return (PASSPHRASE if isinstance(part.get("passphrase"), str) else None), None


def _parts(document: Any) -> Iterator[dict[str, Any]]:
    """A document's objects, from the outside in."""
    waiting = [document]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _classify_arrays(content: bytes) -> str:
    """By the names of its tensors, which stand at a safetensors file's head."""
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    if not isinstance(header, dict):
        return DAMAGED
    return SEALED if SEALED_ARRAYS in header else PLAIN
