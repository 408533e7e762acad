"""Key files: a small versioned JSON, and a safetensors file beside it for keys that hold arrays.

A key and a key ring are kept the same way, under different names (:data:`KEY`, :data:`RING`).

Both are written to a temporary file, flushed and renamed, so a crash leaves the old file or the new one and nothing in
between. The arrays are encrypted under a key derived from the secret, not from the passphrase, so whichever two
versions of the files a crash leaves behind belong together.

A process that is killed may leave a temporary file with a plain secret in it. The next save into the folder removes
it, and until then no model is saved beside it.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ..errors import FileNotWrittenError, KeyFileError
from ..reading.files import LARGEST_DOCUMENT, MEBIBYTE, in_words, parse_json, read_within
from .derivation import subkey
from .sealing import canonical, seal, unseal

try:
    import fcntl
except ImportError:  # Windows, which deletes no file that a process has open
    fcntl = None  # type: ignore[assignment]  # asked for before it is used

logger = logging.getLogger(__name__)

KEY_FILE = "drw_key.json"
ARRAYS_FILE = "drw_key.safetensors"
POINTER_FILE = "drw_key_pointer.json"  # beside a model whose key lies in another repository
FORMAT = "drw-hf-key"
RING_FILE = "drw_ring.json"
RING_FORMAT = "drw-hf-ring"
UNSEASONED_FILE = "drw_unseasoned_key.json"
UNSEASONED_FORMAT = "drw-hf-unseasoned-key"


@dataclass(frozen=True)
class FileKind:
    """What is kept: its files, their format with its newest version, and what messages call it."""

    file: str
    arrays_file: str
    format: str
    version: int
    noun: str
    maker: str

    @property
    def a_noun(self) -> str:
        """The noun with its article."""
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"

    @property
    def recipe(self) -> str:
        """How one is made."""
        way = " (drw-hf keygen --season-round)" if self is UNSEASONED else ".generate (drw-hf keygen)"
        return f"make {self.a_noun} with {self.maker}{way}"


KEY = FileKind(KEY_FILE, ARRAYS_FILE, FORMAT, 2, "key", "WatermarkKey")
RING = FileKind(RING_FILE, "drw_ring.safetensors", RING_FORMAT, 2, "key ring", "KeyRing")
UNSEASONED = FileKind(
    UNSEASONED_FILE, "drw_unseasoned_key.safetensors", UNSEASONED_FORMAT, 1, "unseasoned key", "UnseasonedKey"
)
KINDS = (KEY, RING, UNSEASONED)
_OF_KEYS = tuple(name for kind in KINDS for name in (kind.file, kind.arrays_file))
LARGEST_ARRAYS = 1024 * MEBIBYTE  # M of 128 columns for a million tokens

SEALED_ARRAYS = "drw_hf.sealed"  # the one tensor of a sealed arrays file: a nonce and the ciphertext
_NONCE_BYTES = 12

# Files by which a folder is known to hold a model or a Trainer's output, which people push as a whole.
_WEIGHTS = ["*.safetensors.index.json", "model*.safetensors", "pytorch_model*.bin", "adapter_config.json"]
_WEIGHTS += ["training_args.bin", "trainer_state.json", "checkpoint-*"]
_BESIDE = ["config.json", "tokenizer_config.json", *_WEIGHTS]
_DEPTH = 3  # how many folders up or down a key and a model still count as one


@dataclass(frozen=True, repr=False)
class Content:
    """What is kept of a key or ring."""

    fields: dict[str, Any]  # JSON-able, the secret (hexadecimal) among them
    arrays: dict[str, np.ndarray]
    shown: dict[str, Any]  # to all, sealed or not: the commitment, and a ring's head, the digest of its history
    version: int = 1  # of the format: what earlier versions could hold is written as they wrote it


def kind_of(path: str | os.PathLike) -> FileKind:
    """What a file is, by its name, or what lies in a folder: a ring, or else (if anything) a key."""
    path = Path(path)
    return RING if path.name == RING_FILE or (path / RING_FILE).is_file() else KEY


def encode(kind: FileKind, content: Content, passphrase: str | None) -> dict[str, bytes]:
    """The content of the files by name, the JSON last: once it is there, the key is whole."""
    plain_arrays = save_arrays(content.arrays) if content.arrays else None
    fields = {**content.fields, "arrays_digest": None if plain_arrays is None else _digest(plain_arrays)}
    envelope = {"format": kind.format, "version": content.version, "sealed": passphrase is not None, **content.shown}
    if passphrase is None:
        document = {**envelope, "key": fields}
        document["digest"] = _digest(canonical(document))
    else:
        document = seal(canonical(fields), passphrase, envelope)
    files = {}
    if plain_arrays is not None:
        files[kind.arrays_file] = plain_arrays
        if passphrase is not None:
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = nonce + _arrays_cipher(fields["secret"]).encrypt(nonce, plain_arrays, None)
            files[kind.arrays_file] = save_arrays({SEALED_ARRAYS: np.frombuffer(sealed, dtype=np.uint8)})
    files[kind.file] = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    for name, written in files.items():
        if len(written) > largest(name):
            raise KeyFileError(
                f"this {kind.noun} is too large for its files: {name} would have more than {in_words(largest(name))}, "
                "the most that is read of one; make it with a smaller dimension, or with law='direct'"
            )
    return files


def largest(name: str) -> int:
    """How many bytes of a file of this name are read at most."""
    return LARGEST_ARRAYS if name in {kind.arrays_file for kind in KINDS} else LARGEST_DOCUMENT


def write(
    folder: str | os.PathLike, kind: FileKind, content: Content, passphrase: str | None, earlier: Sequence[str]
) -> None:
    """Write a key or ring into a folder: not plain where a model lies, and not over another one.

    A ring replaces an earlier state of itself: ``earlier`` holds the digests of all states it has been in.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise KeyFileError(f"{folder} is a file; give the folder in which the {kind.noun} is to be saved")
    if passphrase is None:
        _refuse_plain_beside_model(folder)
    _refuse_to_replace(folder / kind.file, kind, content.shown["commitment"], earlier)
    files = encode(kind, content, passphrase)
    try:
        for name, written in files.items():
            write_atomically(folder / name, written)
    except FileNotWrittenError as error:
        raise KeyFileError(str(error)) from None


def read(folder: str | os.PathLike, kind: FileKind, passphrase: str | None) -> Content:
    """What is kept in a folder (or in the JSON file given)."""
    path = Path(folder)
    path = path / kind.file if path.is_dir() else path
    document = read_envelope(path, kind)
    if document["sealed"]:
        fields = parse_json(unseal(document, passphrase))
    else:
        fields = document.get("key")
        unsigned = {name: value for name, value in document.items() if name != "digest"}
        if document.get("digest") != _digest(canonical(unsigned)):
            raise _damaged(path, kind)
        if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            logger.warning("%s holds a plain key and other users of this machine can read it: chmod 600 it", path)
        if passphrase is not None:
            raise KeyFileError(
                f"{path} is not sealed, though a passphrase was given: was the sealed key replaced? To load it all "
                "the same, give no passphrase"
            )
    if not isinstance(fields, dict):
        raise _damaged(path, kind)
    expected = fields.pop("arrays_digest", None)
    arrays = {}
    if expected is not None:
        arrays = _read_arrays(path.parent / kind.arrays_file, expected, fields.get("secret"))
    shown: dict[str, Any] = {name: document[name] for name in ("commitment", "head") if name in document}
    return Content(fields, arrays, shown, document["version"])


def read_envelope(path: Path, kind: FileKind = KEY) -> dict[str, Any]:
    """A key file's outer layer, which needs no passphrase: its version, whether it is sealed, its commitment."""
    try:
        content = read_within(path, LARGEST_DOCUMENT, KeyFileError)
    except FileNotFoundError:
        for other in KINDS:
            if other is not kind and path.name == kind.file and path.with_name(other.file).is_file():
                raise _of_another_kind(path.with_name(other.file), kind, other) from None
        raise KeyFileError(
            f"no {kind.noun} at {path}; give the folder that {kind.maker}.save_pretrained wrote, or {kind.recipe}"
        ) from None
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None
    document = parse_json(content)
    document = document if isinstance(document, dict) else {}
    found = next((known for known in KINDS if document.get("format") == known.format), None)
    if found is not None and found is not kind:
        raise _of_another_kind(path, kind, found)
    version = document.get("version")
    if found is None or type(version) is not int or version < 1:
        raise _damaged(path, kind)
    if version > kind.version:
        raise KeyFileError(
            f"{path} has format version {version}, this drw_hf reads up to {kind.version}; update drw_hf "
            "(pip install -U drw_hf)"
        )
    if not isinstance(document.get("sealed"), bool):
        raise _damaged(path, kind)
    return document


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` with mode 0600 so that ``path`` is, at every moment, the old file or the whole new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(path)
        with _temporary_beside(path) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # an open file is not renamed there
            os.replace(file.name, path)
    except OSError as error:
        raise FileNotWrittenError(
            f"cannot write {path}: {error.strerror or type(error).__name__}; nothing was changed, free the space or "
            "choose another folder and save again"
        ) from None


@contextlib.contextmanager
def _temporary_beside(path: Path) -> Iterator[IO[bytes]]:
    """A new file, gone at the end if it was not renamed, and locked meanwhile: see :func:`_remove_leftovers`."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        file = open(temporary, "wb", opener=_as_new)
        if _lock(file.fileno()) is not False and (fcntl is None or os.fstat(file.fileno()).st_nlink):
            break
        file.close()  # somebody took it for a leftover, before it was locked
    try:
        with file:
            yield file
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _as_new(name: str, _: int) -> int:
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes left behind in a folder: temporary files of keys, and of ``path`` itself.

    A file that a living process writes is locked, and stays. A lock says so without guessing: a process may take long,
    and clocks of file servers differ, so the age of a file would not. Where there are no locks nothing is removed.
    """
    for found in _leftovers(path.parent, {*_OF_KEYS, path.name}):
        with contextlib.suppress(OSError):
            if fcntl is None:
                found.unlink()
                continue
            with open(found, "rb") as file:
                if _lock(file.fileno()):
                    found.unlink()


def _leftovers(folder: Path, names: set[str] | tuple[str, ...]) -> Iterator[Path]:
    """The temporary files, in a folder, by which files of these names were to be written."""
    for found in folder.glob(".*.tmp"):
        parts = re.fullmatch(r"\.(.+)\.[0-9a-f]{16}\.tmp", found.name)
        if parts is not None and parts[1] in names:
            yield found


def _lock(descriptor: int) -> bool | None:
    """Lock a file until it is closed or its process ends, without waiting: False where another one has it locked.

    None where the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _refuse_plain_beside_model(folder: Path) -> None:
    patterns: dict[Path, list[str]] = {}
    places = _named_and_real(folder)
    for place in places:  # a config.json two folders up may be anybody's; weights and a Trainer's files are not
        patterns |= dict.fromkeys(place.parents[1:_DEPTH], _WEIGHTS)
    for place in places:
        patterns |= dict.fromkeys([place, place.parent], _BESIDE)
    found = next((hit for place, names in patterns.items() for name in names for hit in place.glob(name)), None)
    if found is not None:
        raise KeyFileError(
            f"{found.parent} holds a model ({found.name}), and whoever pushes or copies that folder would take the "
            "plain key along; give a passphrase, or save the key into a folder of its own"
        )


def refuse_model_beside_plain_key(folder: str | os.PathLike) -> None:
    """Refuse a folder with a plain key in it as the place of a model: whoever pushed it would push the key.

    A Trainer's checkpoint lies in the folder that is pushed, so that one counts too, and so does what a process that
    was killed while it saved a key left behind.
    """
    folders = _named_and_real(folder)
    for place in {*folders, *(place.parent for place in folders if place.name.startswith("checkpoint-"))}:
        for depth in range(_DEPTH + 1):
            for inner in place.glob("*/" * depth) if depth else [place]:
                _refuse_plain_key_in(inner)


def _named_and_real(folder: str | os.PathLike) -> list[Path]:
    """A folder as it is named, and where it lies if symbolic links lead there: both have folders around them."""
    return [Path(folder).absolute(), Path(os.path.realpath(folder))]


def _refuse_plain_key_in(folder: Path) -> None:
    for kind in KINDS:
        path = folder / kind.file
        if path.exists() and not read_envelope(path, kind)["sealed"]:
            raise KeyFileError(
                f"{path} is a plain {kind.noun}, and a model saved here would take it along; move it away first"
            )
    for path in _leftovers(folder, _OF_KEYS):
        if not _is_sealed(path):
            raise KeyFileError(
                f"{path} was left by a save of a key that did not end, may hold the plain key, and a model saved here "
                "would take it along; delete it first (saving a key into that folder does so)"
            )


def _is_sealed(path: Path) -> bool:
    """Whether a file is certainly a sealed key; one that was not written to its end is not."""
    with contextlib.suppress(OSError, KeyFileError):
        document = parse_json(read_within(path, LARGEST_DOCUMENT, KeyFileError))
        return isinstance(document, dict) and document.get("sealed") is True and "key" not in document
    return False


def _refuse_to_replace(path: Path, kind: FileKind, commitment: str, earlier: Sequence[str]) -> None:
    if not path.exists():
        return
    document = read_envelope(path, kind)
    if document.get("commitment") != commitment:
        raise KeyFileError(
            f"{path} holds another {kind.noun}, without which what was marked with it can no longer be proven; save "
            f"into another folder, or move the old {kind.noun} away first"
        )
    if earlier and document.get("head") not in earlier:
        raise KeyFileError(
            f"{path} holds the same key ring with epochs or declarations that this one does not have, and they would "
            "be lost; load it from there and declare or rotate again, or save into another folder"
        )


def _arrays_cipher(secret: str) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(subkey(bytes.fromhex(secret), "arrays file"))


def _read_arrays(path: Path, expected_digest: str, secret: Any) -> dict[str, np.ndarray]:
    try:
        content = read_within(path, LARGEST_ARRAYS, KeyFileError)
    except OSError:
        raise KeyFileError(f"{path} is missing: this key's arrays lie beside its JSON; restore the file") from None
    arrays = None
    with contextlib.suppress(Exception):  # whatever the libraries make of a damaged file
        arrays = load_arrays(content)
        if SEALED_ARRAYS in arrays:
            sealed = arrays[SEALED_ARRAYS].tobytes()
            content = _arrays_cipher(secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
            arrays = load_arrays(content)
    if arrays is None or _digest(content) != expected_digest:
        raise _damaged(path, KEY)
    return arrays


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, kind: FileKind) -> KeyFileError:
    return KeyFileError(
        f"{path} is not a drw_hf {kind.noun} file, or it was damaged or altered; restore it from a backup"
    )


def _of_another_kind(path: Path, wanted: FileKind, found: FileKind) -> KeyFileError:
    remedy = f"load it with {found.maker}.from_pretrained"
    if found is RING:
        remedy += (
            ", and give the key of one of its users: ring.key_for(user), which "
            f"`drw-hf ring key {path.parent} --user NAME --output KEY` saves"
        )
    elif found is UNSEASONED:
        remedy = (
            "it waits for its round of public randomness, and marks nothing until then: save what the round's source "
            f"publishes, and run `drw-hf season {path.parent} --value FILE` (UnseasonedKey.season)"
        )
    elif wanted is RING:
        remedy += ", or make a ring with KeyRing.generate (drw-hf keygen --ring)"
    return KeyFileError(f"{path} holds {found.a_noun}, where {wanted.a_noun} was expected; {remedy}")
