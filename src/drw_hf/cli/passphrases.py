"""Passphrases for commands: from a file, the environment or a hidden prompt, and never from the command line.

What stands on the command line is shown by ``ps`` and kept in the shell's history.
"""

import os
import sys
from pathlib import Path
from typing import TypeVar

import typer

from ..asking.models import load_config
from ..errors import KeyFileError, MissingKeyError, WrongPassphraseError
from ..keys import KeyRing, WatermarkKey
from ..keys.files import RING, kind_of
from ..keys.kept import KeptSecret, find_files
from ..watermark import WatermarkedConfig

VARIABLE = "DRW_PASSPHRASE"
Kept = TypeVar("Kept", bound=KeptSecret)


def read_passphrase(file: Path | None) -> str | None:
    """The passphrase from ``file``, else from the environment; None where there is neither."""
    if file is None:
        return os.environ.get(VARIABLE) or None
    try:
        content = file.read_bytes()
    except OSError as error:
        raise KeyFileError(
            f"cannot read the passphrase from {file}: {error.strerror or type(error).__name__}"
        ) from None
    try:
        passphrase = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        passphrase = ""  # raised below: the error that holds these bytes must not become its context
    if not passphrase:
        raise KeyFileError(f"{file} holds no passphrase; write it there as UTF-8 text, on one line")
    return passphrase


def open_key(name_or_path: str, passphrase_file: Path | None = None) -> WatermarkKey:
    """The key of a folder or repository; a passphrase that a sealed key needs and nobody gave is asked for."""
    return open_sealed(name_or_path, passphrase_file, WatermarkKey)[0]


def open_ring(name_or_path: str, passphrase_file: Path | None = None) -> KeyRing:
    """The same for a key ring."""
    return open_sealed(name_or_path, passphrase_file, KeyRing)[0]


def open_sealed(name_or_path: str, passphrase_file: Path | None, kept: type[Kept]) -> tuple[Kept, str | None]:
    """A key or ring, with the passphrase that opened it, to seal it again elsewhere; None for a plain one."""
    place, subfolder = _place(name_or_path)
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
    place, subfolder = _place(name_or_path)
    is_ring = kind_of(find_files(place, subfolder=subfolder)) is RING
    return open_sealed(name_or_path, passphrase_file, KeyRing if is_ring else WatermarkKey)


def _place(name_or_path: str) -> tuple[str, str]:
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


def key_of(name: str, key: str | None, passphrase_file: Path | None) -> WatermarkKey | None:
    """The key that was named for a model, else, for a protected one, the key that lies beside it."""
    if key is not None:
        return open_key(key, passphrase_file)
    if not isinstance(load_config(name), WatermarkedConfig):
        return None
    try:
        return open_key(name, passphrase_file)
    except WrongPassphraseError:
        raise
    except KeyFileError:
        raise MissingKeyError(
            f"the model in {name} is protected, and no key lies beside it; pass --key with the folder or repository "
            "of its key"
        ) from None
