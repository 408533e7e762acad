"""A repository's past: every commit that a branch, a tag or a pull request leads to, and what lay in it."""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime

from huggingface_hub import HfApi, RepoFile
from huggingface_hub.utils import tqdm as progress_bar

from ..errors import HubError
from .requests import commit_name, hub_errors, read_file


@dataclass(frozen=True)
class Snapshot:
    """A commit and the files that lay in it."""

    commit: str
    date: datetime
    refs: tuple[str, ...]
    files: tuple[RepoFile, ...]


class History:
    """The history of a repository, read-only.

    File contents are kept in memory and fetched once, however many commits hold them: nothing gets into the cache,
    where a key would outlive its reader.
    """

    def __init__(self, repo_id: str, *, repo_type: str = "model", token: bool | str | None = None):
        self.repo_id = repo_id
        self.repo_type = repo_type
        self._api = HfApi(token=token, library_name="drw_hf")
        self._blobs: dict[str, bytes] = {}

    def is_private(self) -> bool:
        """Whether the repository is private now."""
        with hub_errors(self.repo_id):
            return self._api.repo_info(self.repo_id, repo_type=self.repo_type).private is True

    def refs(self) -> dict[str, str]:
        """Every branch, tag and pull request, and the commit at its tip."""
        with hub_errors(self.repo_id):
            found = self._api.list_repo_refs(self.repo_id, repo_type=self.repo_type, include_pull_requests=True)
        every = [*found.branches, *found.tags, *(found.pull_requests or []), *(found.converts or [])]
        return {ref.ref: ref.target_commit for ref in every}

    def snapshots(self, revisions: list[str], progress: bool = True) -> Generator[Snapshot, None, None]:
        """Every commit that the revisions lead to, each once, a parent before its children.

        Not in the order of their dates: those can be set at will.
        """
        dates: dict[str, datetime] = {}
        leading: dict[str, list[str]] = {}
        with hub_errors(self.repo_id):
            for revision in revisions:
                commits = self._api.list_repo_commits(self.repo_id, repo_type=self.repo_type, revision=revision)
                for commit in reversed(commits):
                    dates[commit_name(commit.commit_id, self.repo_id)] = commit.created_at
                    leading.setdefault(commit.commit_id, []).append(revision)
        with progress_bar(dates, desc=f"Commits of {self.repo_id}", disable=not progress or len(dates) < 10) as bar:
            for commit in bar:
                with hub_errors(self.repo_id):
                    tree = self._api.list_repo_tree(
                        self.repo_id, repo_type=self.repo_type, revision=commit, recursive=True
                    )
                    files = tuple(_checked(entry) for entry in tree if isinstance(entry, RepoFile))
                yield Snapshot(commit, dates[commit], tuple(leading[commit]), files)

    def read(self, file: RepoFile, commit: str) -> bytes:
        """A file's content as it was in a commit."""
        if file.blob_id not in self._blobs:
            content = read_file(
                self.repo_id, file.path, commit, repo_type=self.repo_type, token=self._api.token, most=file.size
            )
            if content is None:
                raise HubError(f"{file.path} is gone from {self.repo_id} at {commit[:12]}; try again")
            self._blobs[file.blob_id] = content
        return self._blobs[file.blob_id]


def _checked(file: RepoFile) -> RepoFile:
    """An entry of a list of files, if it is one: the client takes whatever the Hub says."""
    if not (isinstance(file.path, str) and isinstance(file.blob_id, str) and type(file.size) is int):
        raise TypeError
    return file
