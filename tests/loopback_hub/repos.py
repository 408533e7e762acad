"""What the Hub keeps: blobs, commits that are snapshots of paths to blobs, and repos with their refs."""

import base64
import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

from .messages import HubError

LFS_ENDINGS = (".safetensors", ".bin", ".npz", ".parquet", ".png")
GITATTRIBUTES = "".join(f"*{ending} filter=lfs diff=lfs merge=lfs -text\n" for ending in LFS_ENDINGS).encode()


@dataclass(frozen=True)
class Blob:
    """A file's content; in git an LFS file is a pointer, whose hash is then the blob's id."""

    content: bytes = field(repr=False)
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def in_git(self) -> bytes:
        if not self.lfs:
            return self.content
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        return text.encode()

    @cached_property
    def oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.in_git) + self.in_git).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    """A snapshot of every path, with who made it and when."""

    sha: str
    title: str
    description: str
    date: datetime
    author: str
    parent: str | None
    blobs: dict[str, Blob] = field(repr=False)

    @property
    def files(self) -> dict[str, bytes]:
        return {path: blob.content for path, blob in self.blobs.items()}


@dataclass
class Repo:
    """A repo: ``refs`` maps full names (``refs/heads/main``, ``refs/tags/v1``, ``refs/pr/1``) to commits' ids."""

    kind: str
    name: str
    private: bool
    created: datetime
    sdk: str | None = None
    refs: dict[str, str] = field(default_factory=dict)
    history: dict[str, Commit] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)  # what LFS and Xet uploaded, by sha256
    xet_hashes: dict[str, str] = field(default_factory=dict)  # sha256 to the Xet hash of what came by Xet
    pulls: dict[int, dict] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return self.name.split("/")[0]

    @property
    def path(self) -> str:
        return f"{'' if self.kind == 'model' else self.kind + 's/'}{self.name}"

    def ref(self, revision: str) -> str | None:
        """The full name of the ref that ``revision`` means, or None."""
        names = (revision, f"refs/heads/{revision}", f"refs/tags/{revision}")
        return next((name for name in names if name in self.refs), None)

    def resolve(self, revision: str) -> Commit:
        """The commit of a branch, a tag, a pull request, or a full or shortened id."""
        ref = self.ref(revision)
        if ref is not None:
            return self.history[self.refs[ref]]
        matches = [sha for sha in self.history if len(revision) >= 7 and sha.startswith(revision)]
        if len(matches) != 1:
            raise HubError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.history[matches[0]]

    def log(self, revision: str) -> list[Commit]:
        """The commit and its ancestors, newest first."""
        commits = [self.resolve(revision)]
        while commits[-1].parent is not None:
            commits.append(self.history[commits[-1].parent])
        return commits

    def commit(self, ref: str, blobs: dict[str, Blob], title: str, *, description="", author, date, parent=None):
        """Put a new commit at ``ref``."""
        tree = [(path, blob.oid) for path, blob in sorted(blobs.items())]
        identity = repr((self.path, parent, tree, title, description, author, date, len(self.history)))
        sha = hashlib.sha1(identity.encode()).hexdigest()
        self.history[sha] = Commit(sha, title, description, date, author, parent, dict(blobs))
        self.refs[ref] = sha
        return self.history[sha]

    def forget_unreachable(self):
        """Drop the commits that no ref leads to any more, as a squash leaves them."""
        kept = {commit.sha for ref in self.refs for commit in self.log(ref)}
        self.history = {sha: commit for sha, commit in self.history.items() if sha in kept}


def changed(repo: Repo, blobs: dict[str, Blob], operations: list[dict]) -> dict[str, Blob]:
    """``blobs`` after the operations of a commit, as the client writes them; all or nothing."""
    blobs = dict(blobs)
    for operation in operations:
        value, path = operation["value"], operation["value"]["path"]
        match operation["key"]:
            case "file":
                blobs[path] = Blob(base64.b64decode(value["content"]))
            case "lfsFile":
                if value["oid"] not in repo.objects:
                    raise HubError(400, f"LFS pointer of {path} refers to an object that was not uploaded")
                blobs[path] = Blob(repo.objects[value["oid"]], lfs=True)
            case "deletedFile":
                if path not in blobs:
                    raise HubError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                del blobs[path]
            case "deletedFolder":
                inside = [name for name in blobs if name.startswith(path.rstrip("/") + "/")]
                if not inside:
                    raise HubError(404, f"A folder with this name doesn't exist: {path}", "EntryNotFound")
                for name in inside:
                    del blobs[name]
            case other:
                raise HubError(400, f"unknown operation {other!r}")
    return blobs
