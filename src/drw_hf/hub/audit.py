"""`audit`: does a key lie open in a repository, now or anywhere in its history?"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from ..detection.result import FORMAT as EVIDENCE_FORMAT
from ..keys.files import FORMAT, KEY_FILE, parse_json
from .history import History, Snapshot

SEALED, PLAIN, PASSPHRASE, EVIDENCE, DAMAGED = (
    "sealed key",
    "plain key",
    "passphrase",
    "evidence",
    "damaged key file",
)
_OPEN = {PLAIN, PASSPHRASE, EVIDENCE, DAMAGED}  # whoever reads one of these knows more than he should
_LARGEST = 4 * 2**20  # a key file is a few kilobytes; evidence holds a periodogram


@dataclass(frozen=True)
class Finding:
    """A file of ours in a repository's history.

    Attributes
    ----------
    kind : str
        ``"plain key"``, ``"sealed key"``, ``"passphrase"`` (in a tokenizer's or model's configuration), ``"evidence"``
        (which shows target class, frequency and hash values), or ``"damaged key file"``.
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
    """

    repo_id: str
    private: bool
    n_commits: int
    findings: tuple[Finding, ...]

    @property
    def exposed(self) -> tuple[Finding, ...]:
        """What should be nobody's but the owner's."""
        return tuple(finding for finding in self.findings if finding.kind in _OPEN)

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
        findings = [{**asdict(finding), "date": finding.date.isoformat()} for finding in self.findings]
        return {
            "repo_id": self.repo_id,
            "private": self.private,
            "status": self.status,
            "n_commits": self.n_commits,
            "findings": findings,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        visibility = "private" if self.private else "public"
        lines = [f"{self.repo_id} ({visibility}), {self.n_commits} commits: {self.status}"]
        for finding in self.findings:
            where = "still there" if finding.current else "in the history only"
            whose = f" {finding.fingerprint}" if finding.fingerprint else ""
            lines.append(
                f"  {finding.kind}{whose}: {finding.path}, since commit {finding.commit[:12]} of "
                f"{finding.date:%Y-%m-%d %H:%M} UTC, {where} ({', '.join(finding.refs)})"
            )
        return "\n".join([*lines, self.advice])


def audit(repo_id: str, *, repo_type: str = "model", token: bool | str | None = None, progress: bool = True) -> Audit:
    """Look through all of a repository's history for keys that lie open, and say what to do.

    Every JSON file of every commit that a branch, tag or pull request leads to is looked at, whatever its name.
    Contents are read into memory, and nothing is written to the local cache.

    Parameters
    ----------
    repo_id : str
        The repository.
    repo_type : str
        ``"model"``, ``"dataset"`` or ``"space"``.
    token : bool or str, optional
        Needed for a private repository.

    Returns
    -------
    Audit

    Raises
    ------
    RepositoryAccessError
        When the repository does not exist, or the token may not read it.
    """
    history = History(repo_id, repo_type=repo_type, token=token)
    private, tips = history.is_private(), set(history.refs().values())
    first: dict[tuple[str, str], tuple[str, str | None, Snapshot]] = {}
    refs: dict[tuple[str, str], set[str]] = {}
    current: set[tuple[str, str]] = set()
    n_commits = 0
    for snapshot in history.snapshots(progress=progress):
        n_commits += 1
        for place, kind, fingerprint in _exhibits(history, snapshot):
            first.setdefault(place, (kind, fingerprint, snapshot))
            refs.setdefault(place, set()).update(snapshot.refs)
            if snapshot.commit in tips:
                current.add(place)
    findings = tuple(
        Finding(
            kind=kind,
            path=place[0],
            commit=snapshot.commit,
            date=snapshot.date,
            refs=tuple(sorted(refs[place])),
            current=place in current,
            fingerprint=fingerprint,
        )
        for place, (kind, fingerprint, snapshot) in first.items()
    )
    return Audit(repo_id, private, n_commits, findings)


def _exhibits(history: History, snapshot: Snapshot) -> Iterator[tuple[tuple[str, str], str, str | None]]:
    """What of a commit is ours: (path, blob), kind, fingerprint."""
    for file in snapshot.files:
        name = PurePosixPath(file.path).name
        if not name.endswith(".json") or file.size > _LARGEST:
            continue
        found = classify(name, history.read(file, snapshot.commit))
        if found is not None:
            yield (file.path, file.blob_id), *found


def classify(name: str, content: bytes) -> tuple[str, str | None] | None:
    """What kind of file of ours a JSON file is, and the fingerprint of its key; None for anybody else's."""
    document = parse_json(content)
    if not isinstance(document, dict):
        return (DAMAGED, None) if name == KEY_FILE else None
    fingerprint = str(document.get("commitment") or document.get("key_commitment") or "")[:16] or None
    if document.get("format") == FORMAT:
        sealed = document.get("sealed") is True and "key" not in document
        return (SEALED if sealed else PLAIN), fingerprint
    if name == KEY_FILE:
        return DAMAGED, fingerprint
    if document.get("format") == EVIDENCE_FORMAT:
        return EVIDENCE, fingerprint
    if "passphrase" in document:
        return PASSPHRASE, None
    return None
