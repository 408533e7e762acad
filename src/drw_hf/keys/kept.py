"""`KeptSecret`: what keys and key rings share: saving, loading, pushing and pulling, and what they never show."""

import os
import secrets
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict, Unpack

from ..checks import check_options
from ..errors import InvalidKeyError, KeyFileError, KeySerializationError
from . import files
from .binding import Binding
from .derivation import SECRET_BYTES
from .frames import forgets_locals
from .settings import MarkSettings


class PullOptions(TypedDict, total=False):
    """How a repository is read: as for :func:`huggingface_hub.hf_hub_download`."""

    revision: str | None
    subfolder: str
    token: bool | str | None
    cache_dir: str | os.PathLike | None
    force_download: bool
    local_files_only: bool


class PushOptions(TypedDict, total=False):
    """How something is pushed; all but the last as in transformers.

    A repository that does not exist is made, private by default. ``replace_key`` lets a key take the place of another
    one, which stays in the history: a rotation.
    """

    private: bool | None
    commit_message: str | None
    token: bool | str | None
    revision: str | None
    create_pr: bool
    replace_key: bool


class KeyPushOptions(PushOptions, total=False):
    """How a key is pushed alone; ``subfolder`` says where in the repository, so that one can hold several keys."""

    subfolder: str


class NeverPickled:
    """What holds a secret: it cannot be pickled, and copying returns it itself."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict) -> Self:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise KeySerializationError(
            f"a {type(self).__name__} cannot be pickled: the pickle would hold the secret in the clear; save the key "
            "with save_pretrained(folder, passphrase=...) and load it where it is needed"
        )


class KeptSecret(NeverPickled, ABC):
    """What keys, seasoned or not, and a :class:`~drw_hf.keys.KeyRing` share.

    Neither shows more than its fingerprint when printed or logged; neither can be pickled; copying returns it itself.
    """

    kind: ClassVar[files.FileKind]
    settings: MarkSettings
    binding: Binding

    @property
    @abstractmethod
    def identity(self) -> str:
        """What names it in a model's configuration: 64 hexadecimal digits that fix it and show nothing of it."""

    @property
    def fingerprint(self) -> str:
        """The first 16 digits of :attr:`identity`: its name in logs."""
        return self.identity[:16]

    @property
    def format_version(self) -> int:
        """The version of its file format."""
        return self._content().version

    def history_digests(self) -> list[str]:
        """A digest for every state it has been in, the present one last; empty for a key, which never changes."""
        return []

    @forgets_locals
    def save_pretrained(self, save_directory: str | os.PathLike, *, passphrase: str | None = None) -> None:
        """Save it into a folder: sealed with ``passphrase``, or plain (mode 0600) with ``passphrase=None``.

        A plain one is refused where a model lies, another one is never replaced (a ring is by a later state of
        itself), and a crash leaves no half file.
        """
        files.write(save_directory, self.kind, self._content(), passphrase, self.history_digests())

    @classmethod
    @forgets_locals
    def from_pretrained(
        cls, name_or_path: str | os.PathLike, *, passphrase: str | None = None, **options: Unpack[PullOptions]
    ) -> Self:
        """Load what :meth:`save_pretrained` or :meth:`push_to_hub` wrote.

        Raises ``WrongPassphraseError`` when it is sealed and does not open, ``KeyFileError`` when there is
        none or it is damaged or of a newer format, ``RepositoryAccessError`` when the repository does not exist
        or the token may not read it.

        Parameters
        ----------
        name_or_path : str or path
            A folder, or a repository on the Hub: its own, or that of a model beside which it lies.
        passphrase : str, optional
            Opens a sealed one.
        **options
            For a repository: ``revision``, ``subfolder``, ``token``, ``cache_dir``, ``force_download`` and
            ``local_files_only``, as for :func:`huggingface_hub.hf_hub_download`. Key files in the cache get mode 0600.
        """
        place = find_files(name_or_path, cls.kind, **options)
        content = files.read(place, cls.kind, passphrase)
        kept = cls._from_content(content)
        if kept is None or kept._shown() != content.shown or kept.format_version > content.version:
            raise KeyFileError(
                f"the {cls.kind.noun} in {place} is whole, but not of the form this drw_hf writes; update drw_hf, or "
                "restore the file from a backup"
            )
        return kept

    @forgets_locals
    def push_to_hub(self, repo_id: str, *, passphrase: str | None = None, **options: Unpack[KeyPushOptions]) -> str:
        """Push it alone into a repository, and return the commit's address.

        Sealed with ``passphrase`` it may lie anywhere. A plain one is refused, before anything is uploaded, where the
        repository is not known to be private. A later state of the same ring takes an earlier one's place.

        Parameters
        ----------
        repo_id : str
            Where to; made, private by default, if it does not exist.
        passphrase : str, optional
            Seals it.
        **options
            ``subfolder``: where in the repository, so that one can hold several keys. ``replace_key``: let it take
            the place of another one, which stays in the repository's history. ``private``, ``commit_message``,
            ``token``, ``revision``, ``create_pr``: as in transformers.
        """
        from ..hub.push import push_key

        return push_key(self, repo_id, passphrase, **options)

    @forgets_locals
    def to_files(self, *, passphrase: str | None = None) -> dict[str, bytes]:
        """The content of the files that :meth:`save_pretrained` writes, by name: the secret itself, if not sealed."""
        return files.encode(self.kind, self._content(), passphrase)

    @abstractmethod
    def _content(self) -> files.Content:
        """What is kept of it."""

    @classmethod
    @abstractmethod
    def _from_content(cls, content: files.Content) -> Self | None:
        """What :meth:`_content` was given by; None where it is not of that form."""

    def _shown(self) -> dict[str, str]:
        """What its file shows to all."""
        history = self.history_digests()
        return {"commitment": self.identity, **({"head": history[-1]} if history else {})}

    # -- what never leaves it

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fingerprint={self.fingerprint!r})"


def checked_secret(secret: Any) -> bytes:
    """The secret that was given, or for None a fresh one from the operating system."""
    if secret is None:
        return secrets.token_bytes(SECRET_BYTES)
    if not isinstance(secret, bytes) or len(secret) != SECRET_BYTES:
        raise InvalidKeyError(f"secret must be {SECRET_BYTES} bytes; leave it out to get fresh ones")
    return secret


def find_files(
    name_or_path: str | os.PathLike, kind: files.FileKind | None = None, **options: Unpack[PullOptions]
) -> Path:
    """The folder in which a key or ring (None: either) lies, or its file, pulled from the repository of that name."""
    check_options("from_pretrained", options, PullOptions)
    folder = Path(name_or_path, options.get("subfolder", ""))
    if not folder.exists():
        from ..hub.pull import is_hub_id, pull_key_files

        if is_hub_id(name_or_path):
            return pull_key_files(name_or_path, kind, **options)
    return folder
