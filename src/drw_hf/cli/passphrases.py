"""Passphrases for commands: from a file, the environment or a hidden prompt, and never from the command line.

What stands on the command line is shown by ``ps`` and kept in the shell's history.
"""

import os
import sys
from pathlib import Path

import typer

from ..errors import KeyFileError, WrongPassphraseError
from ..keys import WatermarkKey

VARIABLE = "DRW_PASSPHRASE"


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
    passphrase = _decode(content)
    if not passphrase:
        raise KeyFileError(f"{file} holds no passphrase; write it there as UTF-8 text, on one line")
    return passphrase


def open_key(name_or_path: str, passphrase_file: Path | None = None) -> WatermarkKey:
    """The key of a folder or repository; the passphrase is asked for where a sealed key needs it and nobody gave it.

    Raises
    ------
    WrongPassphraseError
        When a sealed key does not open, or there is no passphrase and nobody to ask.
    """
    passphrase = read_passphrase(passphrase_file)
    if passphrase is not None:
        return WatermarkKey.from_pretrained(name_or_path, passphrase=passphrase)
    try:
        return WatermarkKey.from_pretrained(name_or_path)
    except WrongPassphraseError:
        if not sys.stdin.isatty():
            raise WrongPassphraseError(
                f"the key in {name_or_path} is sealed; give its passphrase with --passphrase-file or in the "
                f"environment variable {VARIABLE}"
            ) from None
    passphrase = typer.prompt("Passphrase of the key", hide_input=True, err=True)
    return WatermarkKey.from_pretrained(name_or_path, passphrase=passphrase)


def _decode(content: bytes) -> str | None:
    # A UnicodeDecodeError keeps the bytes, and so the passphrase: it must not become anybody's context.
    try:
        return content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return None
