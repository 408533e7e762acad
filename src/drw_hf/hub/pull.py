"""Pulling keys: from a repository of their own, from beside a model, or from where a model's pointer leads."""

import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError
from transformers.utils.hub import resolve_revision

from ..errors import HubError, KeyFileError, KeyPointerError
from ..keys.files import ARRAYS_FILE, KEY_FILE, POINTER_FILE, parse_json, read_envelope
from ..watermark.configuration import is_hub_id
from .requests import hub_errors

POINTER_FORMAT, POINTER_VERSION = "drw-hf-key-pointer", 1


@dataclass(frozen=True)
class Place:
    """Where in the Hub to look, and how: the arguments of ``hf_hub_download``."""

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

    def resolved(self) -> "Place":
        """The same place at one commit, so that all files read from it belong together."""
        revision = resolve_revision(
            self.repo_id,
            self.revision,
            token=self.token,
            cache_dir=self.cache_dir,
            local_files_only=self.local_files_only,
        )
        return replace(self, revision=revision)

    def fetch(self, filename: str) -> Path | None:
        """A file's path in the local cache; None where the repository (offline: the cache) does not have it."""
        with hub_errors(self.repo_id, "reading", self.revision):
            try:
                path = hf_hub_download(
                    self.repo_id,
                    filename,
                    subfolder=self.subfolder or None,
                    revision=self.revision,
                    token=self.token,
                    cache_dir=self.cache_dir,
                    force_download=self.force_download,
                    local_files_only=self.local_files_only,
                )
            except RemoteEntryNotFoundError:
                return None
            except LocalEntryNotFoundError:
                if self.offline:
                    return None
                raise
            except ValueError as error:  # what force_download=True makes of any failure
                raise error if error.__cause__ is None else error.__cause__ from None
        return Path(path)


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
        document = parse_json(path.read_bytes())
        if not isinstance(document, dict) or document.get("format") != POINTER_FORMAT:
            raise KeyPointerError(f"{path} does not point to a key, or was damaged; push the model again")
        if document.get("version") != POINTER_VERSION:
            raise KeyPointerError(
                f"{path} has format version {document.get('version')!r}, this drw_hf reads {POINTER_VERSION}; update "
                "drw_hf"
            )
        fields = {name: document.get(name) for name in cls.__dataclass_fields__}
        if not all(isinstance(value, str) for value in fields.values()) or not is_hub_id(fields["repo_id"]):
            raise KeyPointerError(f"{path} does not point to a key, or was damaged; push the model again")
        return cls(**fields)


def pull_key_files(repo_id: str, **options: Any) -> Path:
    """The path, in the local cache, of a repository's key; options are those of :class:`Place`."""
    place = Place(repo_id, **options)
    path = find_key_files(place)
    if path is None:
        where = f"{place.repo_id}/{place.subfolder}".rstrip("/")
        if place.offline:
            raise KeyFileError(
                f"no key at {where}: it is no folder, and the local cache holds no key of a repository of that name; "
                "check the path, or pull it once while online"
            )
        raise KeyFileError(
            f"the repository {where} holds no key at revision {place.revision or 'main'}; give the repository or "
            "folder that holds it (and its subfolder=), or push it with WatermarkKey.push_to_hub"
        )
    return path


def find_key_files(place: Place) -> Path | None:
    """The key of a repository, its own or the one it points to; None where there is neither."""
    place = place.resolved()
    found = _key_at(place)
    if found is None:
        pointer = place.fetch(POINTER_FILE)
        found = None if pointer is None else follow_pointer(Pointer.read(pointer), place)
    return found


def find_key_beside(model: str | os.PathLike, place: Place) -> Path | None:
    """The key that lies beside a model (a folder, or a repository), or where its pointer leads."""
    folder = Path(model, place.subfolder)
    if folder.is_dir():
        if (folder / KEY_FILE).is_file():
            return folder / KEY_FILE
        pointer = folder / POINTER_FILE
        return follow_pointer(Pointer.read(pointer), place) if pointer.is_file() else None
    return find_key_files(place) if is_hub_id(model) else None


def follow_pointer(pointer: Pointer, place: Place) -> Path:
    """The key a pointer leads to, with the token and the cache of the place it was found at."""
    target = replace(place, repo_id=pointer.repo_id, revision=pointer.revision, subfolder=pointer.subfolder)
    where = f"{pointer.repo_id}/{pointer.subfolder}".rstrip("/")
    try:
        found = _key_at(target)
    except HubError as error:
        if "revision" not in str(error) and "commit" not in str(error):
            raise KeyPointerError(f"this model's key lies in {where}: {error}") from None
        found = None
    if found is None:  # the commit may have gone with a rewritten history; what is there now is checked all the same
        try:
            found = _key_at(replace(target, revision=None).resolved())
        except HubError as error:
            raise KeyPointerError(f"this model's key lies in {where}: {error}") from None
    if found is None:
        raise KeyPointerError(
            f"this model's key should lie in {where}, and there is none; give the key as key=, or push it there again"
        )
    if read_envelope(found).get("commitment") != pointer.commitment:
        raise KeyPointerError(
            f"the key in {where} is not the one this model points to ({pointer.commitment[:16]}); restore that one"
        )
    return found


def _key_at(place: Place) -> Path | None:
    path = place.fetch(KEY_FILE)
    if path is None:
        return None
    arrays = place.fetch(ARRAYS_FILE)
    for file in (path, arrays):
        if file is not None:
            _hide_from_others(file)
    if not read_envelope(path)["sealed"]:
        _warn_if_public(place)
    return path


def _hide_from_others(path: Path) -> None:
    for file in {path, path.resolve()}:  # a link to a blob, or where links are not to be had a copy
        os.chmod(file, 0o600)


def _warn_if_public(place: Place) -> None:
    if place.offline:
        return
    with hub_errors(place.repo_id):
        private = HfApi().repo_info(place.repo_id, token=place.token).private
    if not private:
        warnings.warn(
            f"the key in {place.repo_id} is plain and the repository is public: anybody can read it, and remove or "
            "forge its mark; make a new key (see `drw-hf audit`)",
            stacklevel=2,
        )
