"""Passphrases for commands: from a file, the environment or a hidden prompt, and never from the command line.

What stands on the command line is shown by ``ps`` and kept in the shell's history.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import typer

from ..asking.models import load_config
from ..errors import InvalidInputError, KeyFileError, MissingKeyError, WrongPassphraseError
from ..keys import KeyRing, UnseasonedKey, WatermarkKey
from ..keys.files import KEY, RING, UNSEASONED, kind_of
from ..keys.kept import KeptSecret, find_files
from ..watermark import WatermarkedConfig
from .options import WhoseKey

VARIABLE = "DRW_PASSPHRASE"
Kept = TypeVar("Kept", bound=KeptSecret)


def read_passphrase(file: Path | None) -> str | None:
    """The passphrase from ``file``, else from the environment; None where there is neither."""
    if file is None:
        return os.environ.get(VARIABLE) or None
    return _read(file, "passphrase")


def read_secret(file: Path | None, variable: str) -> str | None:
    """A token from ``file``, else from the environment, which it leaves; None where there is neither."""
    given = os.environ.pop(variable, None) or None
    return given if file is None else _read(file, "token")


def _read(file: Path, what: str) -> str:
    """The one line of a file."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise KeyFileError(f"cannot read the {what} from {file}: {error.strerror or type(error).__name__}") from None
    try:
        passphrase = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        passphrase = ""  # raised below: the error that holds these bytes must not become its context
    if not passphrase:
        raise KeyFileError(f"{file} holds no {what}; write it there as UTF-8 text, on one line")
    return passphrase


@contextlib.contextmanager
def handed_on(passphrase: str | None) -> Iterator[None]:
    """Within this context processes that are started find the passphrase in their environment, typed ones too."""
    before = os.environ.get(VARIABLE)
    if passphrase is not None:
        os.environ[VARIABLE] = passphrase
    try:
        yield
    finally:
        if before is not None:
            os.environ[VARIABLE] = before
        else:
            os.environ.pop(VARIABLE, None)


def open_key(name_or_path: str, passphrase_file: Path | None = None, whose: WhoseKey | None = None) -> WatermarkKey:
    """The key of a folder or repository; a passphrase that a sealed key needs and nobody gave is asked for.

    Of a key ring it is the key of a user.
    """
    return key_of_user(open_key_or_ring(name_or_path, passphrase_file)[0], whose or WhoseKey())


def key_of_user(opened: WatermarkKey | KeyRing, whose: WhoseKey) -> WatermarkKey:
    """Of a ring the key of the user who was named; a key as it is, and then nobody may be named."""
    if isinstance(opened, KeyRing):
        if whose.user is None:
            raise MissingKeyError(
                f"--key names the key ring {opened.fingerprint}, which has a key for every user; say whose is meant "
                "with --user NAME"
            )
        return opened.key_for(whose.user, whose.epoch)
    if (whose.user, whose.epoch) != (None, None):
        raise InvalidInputError(
            f"--user and --epoch are for a key ring, and --key names a single key, {opened.fingerprint}; leave them "
            "out, or name the ring"
        )
    return opened


@contextlib.contextmanager
def marking_for(model: Any, opened: WatermarkKey | KeyRing | None, whose: WhoseKey) -> Iterator[None]:
    """Within this context a model that was loaded with a ring marks its answers for one user."""
    if opened is None:
        if (whose.user, whose.epoch) != (None, None):
            raise InvalidInputError("--user and --epoch are for a key ring; name it with --key, or leave them out")
        yield
        return
    with model.use_key(key_of_user(opened, whose)):
        yield


def open_ring(name_or_path: str, passphrase_file: Path | None = None) -> KeyRing:
    """The same for a key ring."""
    return open_sealed(name_or_path, passphrase_file, KeyRing)[0]


def open_sealed(name_or_path: str, passphrase_file: Path | None, kept: type[Kept]) -> tuple[Kept, str | None]:
    """A key or ring, with the passphrase that opened it, to seal it again elsewhere; None for a plain one."""
    place, subfolder = locate(name_or_path)
    passphrase = read_passphrase(passphrase_file)
    try:
        return kept.from_pretrained(place, subfolder=subfolder, passphrase=passphrase), passphrase
    except WrongPassphraseError:
        if passphrase is not None:
            raise
        if not sys.stdin.isatty():
            raise WrongPassphraseError(
                f"the {kept.kind.noun} in {name_or_path} is sealed; give its passphrase with --passphrase-file or in "
                f"the environment variable {VARIABLE}"
            ) from None
    passphrase = typer.prompt(f"Passphrase of the {kept.kind.noun}", hide_input=True, err=True)
    return kept.from_pretrained(place, subfolder=subfolder, passphrase=passphrase), passphrase


def open_key_or_ring(name_or_path: str, passphrase_file: Path | None) -> tuple[WatermarkKey | KeyRing, str | None]:
    """The same for whichever of the two lies there."""
    place, subfolder = locate(name_or_path)
    is_ring = kind_of(find_files(place, subfolder=subfolder)) is RING
    return open_sealed(name_or_path, passphrase_file, KeyRing if is_ring else WatermarkKey)


def open_unseasoned(folder: Path, passphrase_file: Path | None) -> tuple[UnseasonedKey | KeyRing, str | None]:
    """A key that waits for its round, or a ring, with the passphrase that opened it."""
    if (folder / RING.file).is_file():
        return open_sealed(str(folder), passphrase_file, KeyRing)
    return open_sealed(str(folder), passphrase_file, UnseasonedKey)


def open_any(folder: Path, passphrase_file: Path | None) -> tuple[WatermarkKey | UnseasonedKey | KeyRing, str | None]:
    """The ring of a folder, its key, or else the key that waits for its round."""
    if (folder / UNSEASONED.file).is_file() and not (folder / KEY.file).is_file():
        return open_sealed(str(folder), passphrase_file, UnseasonedKey)
    return open_key_or_ring(str(folder), passphrase_file)


def locate(name_or_path: str) -> tuple[str, str]:
    """A folder, or a repository and the folder in it: ``me/keys/3f2a`` is ``3f2a`` in ``me/keys``."""
    if os.path.exists(name_or_path) or name_or_path.startswith((".", "/", "~")):
        return name_or_path, ""
    parts = name_or_path.split("/")
    return "/".join(parts[:2]), "/".join(parts[2:])


def new_passphrase(file: Path | None) -> str:
    """A passphrase to seal a new key with; one that is typed is typed twice."""
    passphrase = read_passphrase(file)
    if passphrase is not None:
        return passphrase
    if not sys.stdin.isatty():
        raise KeyFileError(
            "a key is sealed with a passphrase, and there is none: give it with --passphrase-file or in the "
            f"environment variable {VARIABLE}, or pass --plain for a key that everybody who reads its file has"
        )
    return typer.prompt("Passphrase for the new key", hide_input=True, confirmation_prompt=True, err=True)


def key_of(name: str, key: str | None, passphrase_file: Path | None) -> WatermarkKey | KeyRing | None:
    """The key or ring that was named for a model, else, for a protected one, the one that lies beside it."""
    return key_and_passphrase_of(name, key, passphrase_file)[0]


def key_and_passphrase_of(
    name: str, key: str | None, passphrase_file: Path | None
) -> tuple[WatermarkKey | KeyRing | None, str | None]:
    """The same with the passphrase that opened it."""
    if key is not None:
        return open_key_or_ring(key, passphrase_file)
    if not isinstance(load_config(name), WatermarkedConfig):
        return None, None
    try:
        return open_key_or_ring(name, passphrase_file)
    except WrongPassphraseError:
        raise
    except KeyFileError:
        raise MissingKeyError(
            f"the model in {name} is protected, and no key lies beside it; pass --key with the folder or repository "
            "of its key"
        ) from None
