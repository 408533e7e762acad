"""Commitments on the Hub: publishing one, and finding the first commit that carries it.

A commitment lies in ``drw_commitments/``, in a file named after its first 16 digits, with its time stamp beside it, so
that a repository can hold those of many keys. Nothing there is ever overwritten.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Self

from huggingface_hub import CommitOperationAdd, HfApi, RepoFile

from ..checks import unfit
from ..errors import EvidenceError, HubError, TimestampError
from ..keys.files import KEY_FILE, POINTER_FILE, UNSEASONED_FILE
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.unseasoned import UnseasonedKey
from ..repositories.history import History, Snapshot
from ..repositories.requests import commit_name, full_name, hub_errors, parse_object, read_file
from .timestamps import (
    Timestamp,
    can_read_stamps,
    commitment_bytes,
    is_stamp_of,
    load_roots,
    request_timestamp,
    verify_timestamp,
)

logger = logging.getLogger(__name__)

_STATUSES = ("verified", "absent", "not checked", "invalid")
_JSON_FIELDS = {
    "config.json": "key_commitment",
    **dict.fromkeys((KEY_FILE, UNSEASONED_FILE, POINTER_FILE), "commitment"),
}
_CARD = "README.md"
_READABLE = "%Y-%m-%d %H:%M:%S %Z"  # of a moment; without a time zone a blank is left at its end
_LARGEST_FILE = 2**20  # none of the files that carry a commitment comes near


class NotCommitted(HubError):
    """No revision of a repository carries the commitment."""


@dataclass(frozen=True)
class CommitmentRecord:
    """Where a commitment was found, and what its date is worth.

    A record that was read from a file is somebody's word, like the rest of that file; :func:`verify_commitment` makes
    a fresh one.

    Attributes
    ----------
    commitment : str
        The 64 hexadecimal digits.
    repo_id, repo_type : str
        The repository on the Hub.
    commit : str
        The first commit that carries the commitment.
    date : datetime
        That commit's own date: the owner's word.
    path : str
        The file in it.
    timestamp : Timestamp or None
        What the time stamp says, where it verified.
    timestamp_status : str
        ``"verified"``; ``"absent"``; ``"not checked"``: there is one, and no trusted roots were given; ``"invalid"``.
    timestamp_problem : str or None
        Why an invalid one is invalid.
    """

    commitment: str
    repo_id: str
    repo_type: str
    commit: str
    date: datetime
    path: str
    timestamp: Timestamp | None = None
    timestamp_status: str = "absent"
    timestamp_problem: str | None = None

    def __post_init__(self) -> None:
        if self.timestamp_status not in _STATUSES or (self.timestamp is None) == (self.timestamp_status == "verified"):
            raise EvidenceError(
                f"timestamp_status={self.timestamp_status!r} does not fit the record: it is one of {list(_STATUSES)}, "
                "and a time stamp is kept if and only if it verified"
            )

    @property
    def claimed_date(self) -> datetime:
        """The date of the commit, by the owner's word."""
        return self.date

    @property
    def proven_date(self) -> datetime | None:
        """The date by which the key was certainly fixed: that of a verified time stamp, or None."""
        return None if self.timestamp is None else self.timestamp.time

    @property
    def explanation(self) -> str:
        """What the record proves, in plain words."""
        found = f"{self.repo_id} carries the commitment {self.commitment[:16]} since its commit {self.commit[:12]}."
        claimed = self.date.strftime(_READABLE).strip()
        if self.timestamp is not None:
            stamped = self.timestamp.time.strftime(_READABLE).strip()
            return (
                f"{found} {self.timestamp.authority} stamped it on {stamped}, and the stamp verifies: the key was "
                f"fixed by then. The commit's own date, {claimed}, is the owner's word."
            )
        stamp = {
            "absent": "No time stamp stands beside it.",
            "not checked": "A time stamp stands beside it and was not checked; give trusted_roots= to verify it.",
            "invalid": f"The time stamp beside it is not valid: {self.timestamp_problem}.",
        }[self.timestamp_status]
        return (
            f"{found} That commit's date, {claimed}, is the owner's word: whoever pushes sets the dates, and history "
            f"can be rewritten. {stamp}"
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON can hold it."""
        return {
            **vars(self),
            "date": self.date.isoformat(),
            "timestamp": None if self.timestamp is None else self.timestamp.to_dict(),
            "explanation": self.explanation,
        }

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The record that :meth:`to_dict` wrote down."""
        try:
            known = {entry.name: fields[entry.name] for entry in dataclasses.fields(cls)}
            known["date"] = datetime.fromisoformat(known["date"])
            if known["timestamp"] is not None:
                known["timestamp"] = Timestamp.from_dict(known["timestamp"])
            commitment_bytes(known["commitment"])
            if not unfit(known, {entry.name: entry.type for entry in dataclasses.fields(cls)}):
                return cls(**known)
        except EvidenceError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            pass
        raise EvidenceError(
            "this is not the record of a commitment, or it was damaged; look it up again with verify_commitment"
        )


def commitment_files(commitment: str, timestamp: bytes | None = None) -> dict[str, bytes]:
    """The files by which a repository carries a commitment: path to content."""
    contents = (commitment_bytes(commitment), timestamp)
    return {path: content for path, content in zip(_paths(commitment), contents, strict=True) if content is not None}


def missing_files(
    commitment: str,
    repo_id: str,
    read: Callable[[str], bytes | None],
    timestamp_url: str | None = None,
    stamp: bytes | None = None,
) -> dict[str, bytes]:
    """What a repository lacks of :func:`commitment_files`; ``read`` gives a file's content there, None for none.

    A stamp that is there is not replaced: an earlier one is worth more than a later one. Anything else that is there
    under these names is refused.
    """
    text_path, stamp_path = _paths(commitment)
    text_there, stamp_there = read(text_path), read(stamp_path)
    wrong = None
    # Who asks for a stamp must know whether one is there; who does not ask leaves what cannot be read as it is.
    read_stamp = stamp_there is not None and (timestamp_url is not None or can_read_stamps())
    if text_there is not None and text_there.strip() != commitment_bytes(commitment):
        wrong = f"{text_path} in {repo_id} is not the commitment"
    elif stamp_there is not None and read_stamp and not is_stamp_of(stamp_there, commitment):
        wrong = f"{stamp_path} in {repo_id} is not a time stamp of the commitment"
    if wrong is not None:
        raise HubError(
            f"{wrong} {commitment[:16]}, and nothing is overwritten there; publish in another repository, or delete "
            "that file first"
        )
    if stamp is None and stamp_there is None and timestamp_url is not None:
        stamp = request_timestamp(commitment, timestamp_url)
    there = {text_path: text_there, stamp_path: stamp_there}
    return {path: content for path, content in commitment_files(commitment, stamp).items() if there[path] is None}


def publish_commitment(
    key: WatermarkKey | UnseasonedKey | KeyRing | str,
    repo_id: str,
    *,
    private: bool = False,
    timestamp_url: str | None = None,
    token: bool | str | None = None,
    revision: str | None = None,
) -> str:
    """Commit to a key in a repository, without any model: before the model is served, so that it counts.

    A commitment shows nothing of the key. The repository is made if there is none; the same commitment again changes
    nothing, except that a missing time stamp is added. All goes into one commit.

    Parameters
    ----------
    key : WatermarkKey, UnseasonedKey, KeyRing or str
        The key, one that waits for its round, a ring whose users were declared, or the 64 digits of the commitment.
    repo_id : str
        The repository, best one that is public: a private one convinces nobody.
    private : bool
        Whether a repository that is made is private.
    timestamp_url : str, optional
        A time-stamping authority (RFC 3161) to have the commitment stamped by; without a stamp the date is the owner's
        word. Needs the extra ``drw_hf[timestamp]``.
    token : bool or str, optional
        As for :class:`huggingface_hub.HfApi`.
    revision : str, optional
        The branch to commit to.

    Returns
    -------
    str
        The address of the commit.
    """
    commitment = _commitment_of(key)
    api = HfApi(token=token, library_name="drw_hf")
    repo_id = full_name(api, repo_id, "publishing in")
    with hub_errors(repo_id, "publishing in", revision):
        info = api.repo_info(repo_id, revision=revision) if api.repo_exists(repo_id) else None
    head = None if info is None else commit_name(info.sha, repo_id)
    if info is not None and info.private and not private:
        logger.warning("%s is private, and a commitment that nobody can look up convinces nobody", repo_id)

    def read(path: str) -> bytes | None:
        return None if head is None else read_file(repo_id, path, head, token=token)

    missing = missing_files(commitment, repo_id, read, timestamp_url)
    if not missing:
        return f"{api.endpoint}/{repo_id}/commit/{head}"
    with hub_errors(repo_id, "publishing in", revision):
        if info is None:
            api.create_repo(repo_id, private=private)
        return api.create_commit(
            repo_id,
            [CommitOperationAdd(path, content) for path, content in missing.items()],
            commit_message=f"Commit to the watermark key {commitment[:16]}",
            revision=revision,
            parent_commit=head,
        ).commit_url


def verify_commitment(
    key: WatermarkKey | UnseasonedKey | KeyRing | str,
    repo_id: str,
    *,
    trusted_roots: Sequence[str | os.PathLike | bytes] = (),
    revision: str | None = None,
    token: bool | str | None = None,
    repo_type: str = "model",
) -> CommitmentRecord:
    """Find the first commit of a repository that carries the commitment to a key, and what its date is worth.

    The history is walked from its beginning. A commitment may stand in ``drw_commitments/``, in a ``config.json``, in
    the open part of a key or of a pointer to one, or in the model card. The date of the commit is the owner's word,
    unless the time stamp beside it verifies, at the newest revision or as any commit had it.

    Parameters
    ----------
    key, repo_id, token
        As for :func:`publish_commitment`.
    trusted_roots : sequence of path or bytes
        PEM files with the root certificates of the time-stamping authorities that you trust; without any, a time stamp
        is not checked.
    revision : str, optional
        The branch, tag or commit whose history is walked.
    repo_type : str
        ``"model"``, ``"dataset"`` or ``"space"``.

    Raises
    ------
    NotCommitted
        When no commit carries it.
    RepositoryAccessError
        When the repository is missing, or private and the token does not open it.
    """
    commitment = _commitment_of(key)
    if trusted_roots:
        load_roots(trusted_roots)  # before the history is walked
    text_path, stamp_path = _paths(commitment)
    api = HfApi(token=token, library_name="drw_hf")
    with hub_errors(repo_id, "reading", revision):
        info = api.repo_info(repo_id, repo_type=repo_type, revision=revision)
        head = commit_name(info.sha, repo_id)
        found = api.get_paths_info(repo_id, [stamp_path], repo_type=repo_type, revision=head)
    stamps_now = [(file, head) for file in found if isinstance(file, RepoFile)]
    history = History(repo_id, repo_type=repo_type, token=token)

    def stamps_in(snapshot: Snapshot) -> list[tuple[RepoFile, str]]:
        return [(file, snapshot.commit) for file in snapshot.files if file.path == stamp_path]

    stamps_before = []
    with closing(history.snapshots([head])) as snapshots:
        for snapshot in snapshots:
            stamps_before += stamps_in(snapshot)
            files = sorted(snapshot.files, key=lambda file: file.path != text_path)  # where it belongs comes first
            path = next((file.path for file in files if _carries(history, file, snapshot.commit, commitment)), None)
            if path is not None:
                break
        else:
            raise NotCommitted(
                f"no revision of {repo_id} carries the commitment {commitment[:16]}; publish it with "
                "publish_commitment before the model is served: a finding made without one is marked as uncommitted"
            )
        # The newest revision's stamp first; the rest of the history is read only if that one will not do.
        stamps_later = (stamp for snapshot in snapshots for stamp in stamps_in(snapshot))
        stamps = chain(stamps_now, stamps_before, stamps_later)
        judged = _judge_stamps(history, stamps, commitment, trusted_roots)
    return CommitmentRecord(commitment, repo_id, repo_type, snapshot.commit, snapshot.date, path, **judged)


def _judge_stamps(
    history: History,
    files: Iterable[tuple[RepoFile, str]],
    commitment: str,
    trusted_roots: Sequence[str | os.PathLike | bytes],
) -> dict[str, Any]:
    """The first stamp that verifies, or why none does, as fields of a record; each content is looked at once."""
    problem, seen = None, set()
    for file, commit in files:
        if file.blob_id in seen or file.size > _LARGEST_FILE:
            continue
        seen.add(file.blob_id)
        if not trusted_roots:
            return {"timestamp_status": "not checked"}
        try:
            verified = verify_timestamp(history.read(file, commit), commitment, trusted_roots)
            return {"timestamp": verified, "timestamp_status": "verified"}
        except TimestampError as error:
            problem = problem or str(error)
    return {"timestamp_status": "absent" if problem is None else "invalid", "timestamp_problem": problem}


def _carries(history: History, file: RepoFile, commit: str, commitment: str) -> bool:
    """Whether a file holds the commitment where one belongs; only files that may are fetched."""
    name = PurePosixPath(file.path).name
    is_text = file.path == _paths(commitment)[0]
    if file.size > _LARGEST_FILE or not (is_text or name == _CARD or name in _JSON_FIELDS):
        return False
    content = history.read(file, commit)
    if is_text:
        return content.strip() == commitment_bytes(commitment)
    if name == _CARD:
        return commitment_bytes(commitment) in content
    return parse_object(content).get(_JSON_FIELDS[name]) == commitment


def _paths(commitment: str) -> tuple[str, str]:
    """Where a commitment and its time stamp lie in a repository."""
    name = f"drw_commitments/{commitment_bytes(commitment)[:16].decode()}"
    return f"{name}.txt", f"{name}.tsr"


def _commitment_of(key: WatermarkKey | UnseasonedKey | KeyRing | str) -> str:
    digits = key.commitment() if isinstance(key, WatermarkKey | UnseasonedKey | KeyRing) else key
    return commitment_bytes(digits).decode()
