"""The files that make a repository with a protected model an Inference Endpoint; pushed on request."""

import hashlib
import os
import re
import zipfile
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from ..errors import ConfigurationError

Package: TypeAlias = str | os.PathLike[str]

HANDLER, REQUIREMENTS = "handler.py", "requirements.txt"
WHEELS = "drw_hf-*.whl"
_TEMPLATES = Path(__file__).parent / "templates"
UNFILLED = (_TEMPLATES / REQUIREMENTS).read_bytes()
_SCHEMES = ("https", "git+https", "git+ssh")
_EXPECTED = (
    "expected the path of a wheel of drw_hf (`pip wheel --no-deps .` in a clone makes one), or an address that starts "
    f"with {', '.join(f'{scheme}://' for scheme in _SCHEMES)}"
)


def handler_files(package: Package | None = None) -> dict[str, bytes]:
    """The custom handler and what it needs installed, by their names in the repository.

    The handler loads the protected model with the key that lies beside it (or that a pointer leads to), takes the
    passphrase from the environment variable ``DRW_PASSPHRASE``, and does not start without the key.

    Parameters
    ----------
    package : path or str, optional
        Where the endpoint installs drw_hf from: a wheel on this disk, which becomes one of the files, or an address
        (``https://…/drw_hf-….whl``, ``git+https://…@commit``). By its bare name it is never installed: whoever
        registers that name at a package index could run code beside the key. Without a package, ``requirements.txt``
        says how to fill it in.

    Raises
    ------
    ConfigurationError
        For a package that is neither a wheel of drw_hf nor such an address.
    """
    handler = {HANDLER: (_TEMPLATES / HANDLER).read_bytes()}
    if package is None:
        return {**handler, REQUIREMENTS: UNFILLED}
    place = os.fspath(package)
    if "://" in place:
        return {**handler, REQUIREMENTS: f"drw_hf @ {_checked_address(place)}\n".encode()}
    name, content = _read_wheel(Path(place))
    # The inference toolkit names the repository's folder in HF_MODEL_DIR; pip fills that in, and checks the digest.
    line = f"drw_hf @ file://${{HF_MODEL_DIR}}/{name}#sha256={hashlib.sha256(content).hexdigest()}\n"
    return {**handler, REQUIREMENTS: line.encode(), name: content}


def merge_requirements(existing: bytes, ours: bytes) -> bytes:
    """A repository's requirements with ours: what else the owner wrote stays, a place for drw_hf of his included."""
    kept = [line for line in existing.splitlines() if line not in UNFILLED.splitlines()]
    named = {line for line in kept if re.search(rb"^\s*drw[-_.]hf\b|/drw_hf-[^/]*\.whl", line, re.IGNORECASE)}
    places = {line for line in named if b"/" in line}
    if ours == UNFILLED and places:
        ours, named = b"", named - places
    return b"".join(line + b"\n" for line in kept if line not in named) + ours


def _checked_address(address: str) -> str:
    parts = urlsplit(address)
    if parts.password is not None or (parts.username is not None and parts.scheme != "git+ssh"):
        raise ConfigurationError(
            "package= holds a user name or password, which everybody who sees the repository could read; give an "
            "address without, or a wheel, which is pushed along"
        )
    if parts.scheme not in _SCHEMES or not parts.hostname or re.search(r"\s", address):
        raise ConfigurationError(f"package={address!r} is no address to install from safely; {_EXPECTED}")
    return address


def _read_wheel(path: Path) -> tuple[str, bytes]:
    if not re.fullmatch(r"drw_hf-[\w.+]+(-[\w.]+){3,4}\.whl", path.name):
        raise ConfigurationError(f"package={str(path)!r} is not named as a wheel of drw_hf is; {_EXPECTED}")
    if not zipfile.is_zipfile(path):
        what = "is not a wheel" if path.is_file() else "does not exist"
        raise ConfigurationError(f"package={str(path)!r} {what}; {_EXPECTED}")
    return path.name, path.read_bytes()
