"""Pulling keys: from a repository of their own, from beside a model, or from where a model's pointer leads.

Pulled keys are cached in a folder of ours, in files that only their owner can read: whatever goes through the Hub's
own cache lies there, for a moment at least, for everybody on the machine.
"""

import contextlib
import os
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Unpack

from huggingface_hub import HfApi, constants

from ..errors import DrwError, HubError, KeyFileError, KeyPointerError, RevisionMissingError
from ..keys.files import KINDS, POINTER_FILE, FileKind, kind_of, largest, read_envelope, write_atomically
from ..keys.kept import PullOptions
from ..reading.files import LARGEST_DOCUMENT, read_within
from ..repositories.requests import commit_name, hub_errors, parse_object, read_file
from ..watermark.configuration import is_hub_id

POINTER_FORMAT, POINTER_VERSION = "drw-hf-key-pointer", 1
CACHE = "drw_hf-keys"  # beside the Hub's own folders in its cache
_ABSENT = ".absent"  # marks, by its suffix, a file that a commit does not have


@dataclass(frozen=True)
class Place:
    """Where in the Hub to look, and how."""

    repo_id: str
    revision: str | None = None
    subfolder: str = ""
    token: bool | str | None = None
    cache_dir: str | os.PathLike | None = None
    force_download: bool = False
    local_files_only: bool = False

    @property
    def offline(self) -> bool:
        """Whether only the cache may be asked."""
        return self.local_files_only or constants.is_offline_mode()

    def commit(self) -> str:
        """The commit that the revision means, so that all files read belong together."""
        with hub_errors(self.repo_id, "reading", self.revision):
            found = HfApi().resolve_revision(
                self.repo_id,
                revision=self.revision,
                token=self.token,
                cache_dir=None if self.cache_dir is None else Path(self.cache_dir),
                local_files_only=self.offline,
            )
        return commit_name(found.resolved, self.repo_id)  # it becomes the name of a folder

    def fetch(self, filename: str, commit: str) -> Path | None:
        """A file's path in the cache; None where the commit (offline: the cache) does not have it."""
        cache = Path(self.cache_dir or constants.HF_HUB_CACHE).expanduser() / CACHE
        path = cache / self.repo_id.replace("/", "--") / commit / self.subfolder / filename
        absent = path.with_name(path.name + _ABSENT)
        if not self.force_download or self.offline:
            if path.is_file():
                return path
            if absent.is_file() or self.offline:
                return None
        place = join(self.subfolder, filename)
        content = read_file(self.repo_id, place, commit, token=self.token, most=largest(filename))
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(absent if content is None else path, content or b"")
        return None if content is None else path


@dataclass(frozen=True)
class Pointer:
    """What stands beside a model whose key lies in another repository."""

    repo_id: str
    revision: str
    subfolder: str
    commitment: str

    def to_document(self) -> dict[str, Any]:
        """The content of the pointer's file."""
        return {"format": POINTER_FORMAT, "version": POINTER_VERSION, **self.__dict__}

    @classmethod
    def read(cls, path: Path) -> "Pointer":
        """From its file."""
        try:
            return cls.parse(read_within(path, LARGEST_DOCUMENT, KeyPointerError), str(path))
        except OSError as error:
            if isinstance(error, DrwError):
                raise
            raise KeyPointerError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None

    @classmethod
    def parse(cls, content: bytes, name: str) -> "Pointer":
        """From its file's content; ``name`` is for the error."""
        document = parse_object(content)
        if document.get("format") != POINTER_FORMAT:
            document = {}
        elif document.get("version") != POINTER_VERSION:
            raise KeyPointerError(
                f"{name} has format version {document.get('version')!r}, this drw_hf reads {POINTER_VERSION}; update "
                "drw_hf"
            )
        fields: dict[str, Any] = {field: document.get(field) for field in cls.__dataclass_fields__}
        forms = {"revision": r"[0-9a-f]{40}", "commitment": r"[0-9a-f]{64}", "subfolder": r"[\w.-]+(/[\w.-]+)*|"}
        whole = all(isinstance(value, str) for value in fields.values()) and is_hub_id(fields["repo_id"])
        whole = whole and all(re.fullmatch(form, fields[field]) for field, form in forms.items())
        if not whole or ".." in PurePosixPath(fields["subfolder"]).parts:
            raise KeyPointerError(f"{name} does not point to a key, or was damaged; push the model again")
        return cls(**fields)


def pull_key_files(repo_id: str, kind: FileKind | None = None, **options: Unpack[PullOptions]) -> Path:
    """The path, in the local cache, of a repository's key or ring."""
    place = Place(repo_id, **options)
    kinds, noun, maker = (KINDS, "key", "WatermarkKey") if kind is None else ((kind,), kind.noun, kind.maker)
    where = join(place.repo_id, place.subfolder)
    path = find_key_files(place, kinds)
    if path is None:
        if place.offline:
            raise KeyFileError(
                f"no {noun} at {where}: it is no folder, and the local cache holds no {noun} of a repository of that "
                "name; check the path, or pull it once while online"
            )
        raise KeyFileError(
            f"the repository {where} holds no {noun} at revision {place.revision or 'main'}; give the repository or "
            f"folder that holds it (and its subfolder=), or push it with {maker}.push_to_hub"
        )
    return path


def find_key_files(place: Place, kinds: Sequence[FileKind] = KINDS) -> Path | None:
    """The key or ring of a repository, its own or the one it points to; None where there is neither."""
    try:
        commit = place.commit()
        found = _key_at(place, commit, kinds)
        pointer = place.fetch(POINTER_FILE, commit) if found is None else None
        return found if pointer is None else follow_pointer(Pointer.read(pointer), place)
    except HubError:
        if place.offline:  # the cache does not have it
            return None
        raise


def find_key_beside(model: str | os.PathLike, place: Place) -> Path | None:
    """The key that lies beside a model (a folder, or a repository), or where its pointer leads."""
    folder = Path(model, place.subfolder)
    if folder.is_dir():
        for kind in KINDS:
            if (folder / kind.file).is_file():
                return folder / kind.file
        pointer = folder / POINTER_FILE
        return follow_pointer(Pointer.read(pointer), place) if pointer.is_file() else None
    return find_key_files(place) if is_hub_id(model) else None


def follow_pointer(pointer: Pointer, place: Place) -> Path:
    """The key a pointer leads to, with the token and the cache of the place it was found at."""
    where = join(pointer.repo_id, pointer.subfolder)
    owner = pointer.repo_id.split("/")[0]
    if is_hub_id(place.repo_id) and not os.path.exists(place.repo_id) and place.repo_id.split("/")[0] != owner:
        warnings.warn(f"{place.repo_id} takes its key from {where}, which is somebody else's", stacklevel=2)
    target = replace(place, repo_id=pointer.repo_id, revision=None, subfolder=pointer.subfolder)
    try:
        found = _pointed_to(target, pointer.revision)
    except HubError as error:
        raise KeyPointerError(f"this model's key lies in {where}: {error}") from None
    if found is None:
        raise KeyPointerError(
            f"this model's key should lie in {where}, and there is none; give the key as key=, or push it there again"
        )
    if read_envelope(found, kind_of(found)).get("commitment") != pointer.commitment:
        raise KeyPointerError(
            f"the key in {where} is not the one this model points to ({pointer.commitment[:16]}); restore that one"
        )
    return found


def _pointed_to(target: Place, commit: str) -> Path | None:
    """The key at the commit a pointer names or, should a rewritten history have lost that, the newest one."""
    with contextlib.suppress(RevisionMissingError):
        found = _key_at(target, commit)
        if found is not None or target.offline:
            return found
    return _key_at(target, target.commit())


def _key_at(place: Place, commit: str, kinds: Sequence[FileKind] = KINDS) -> Path | None:
    for kind in kinds:
        path = place.fetch(kind.file, commit)
        if path is not None:
            place.fetch(kind.arrays_file, commit)
            if not read_envelope(path, kind)["sealed"]:
                _warn_if_public(place)
            return path
    return None


def _warn_if_public(place: Place) -> None:
    with contextlib.suppress(HubError), hub_errors(place.repo_id):
        if not place.offline and not HfApi().repo_info(place.repo_id, token=place.token).private:
            warnings.warn(
                f"the key in {place.repo_id} is plain and the repository is public: anybody can read it, and remove "
                "or forge its mark; make a new key (see `drw-hf audit`)",
                stacklevel=2,
            )


def join(*parts: str) -> str:
    """A path in a repository, or below its name."""
    return "/".join(part.strip("/") for part in parts if part)
