"""Key files: a small versioned JSON, and a safetensors file beside it for keys that hold arrays.

A key and a key ring are kept the same way, under different names (:data:`KEY`, :data:`RING`).

Both are written to a temporary file, flushed and renamed, so a crash leaves the old file or the new one and nothing in
between. The arrays are encrypted under a key derived from the secret, not from the passphrase, so whichever two
versions of the files a crash leaves behind belong together.
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ..errors import FileNotWrittenError, KeyFileError
from .derivation import subkey
from .sealing import check_passphrase, seal, unseal

logger = logging.getLogger(__name__)

KEY_FILE = "drw_key.json"
ARRAYS_FILE = "drw_key.safetensors"
POINTER_FILE = "drw_key_pointer.json"  # beside a model whose key lies in another repository
FORMAT, VERSION = "drw-hf-key", 1
RING_FILE = "drw_ring.json"
RING_ARRAYS_FILE = "drw_ring.safetensors"
RING_FORMAT, RING_VERSION = "drw-hf-ring", 1


@dataclass(frozen=True)
class FileKind:
    """What is kept: its files, their format, and what messages call it."""

    file: str
    arrays_file: str
    format: str
    version: int
    noun: str
    maker: str


KEY = FileKind(KEY_FILE, ARRAYS_FILE, FORMAT, VERSION, "key", "WatermarkKey")
RING = FileKind(RING_FILE, RING_ARRAYS_FILE, RING_FORMAT, RING_VERSION, "key ring", "KeyRing")
KINDS = (KEY, RING)


def kind_of(path: Path) -> FileKind:
    """What a file is, by its name."""
    return RING if path.name == RING_FILE else KEY


SEALED_ARRAYS = "drw_hf.sealed"  # the one tensor of a sealed arrays file: a nonce and the ciphertext
_NONCE_BYTES = 12

# Files by which a folder is known to hold a model or a Trainer's output, which people push as a whole.
_WEIGHTS = ("*.safetensors.index.json", "model*.safetensors", "pytorch_model*.bin", "adapter_config.json")
_TRAINING = ("training_args.bin", "trainer_state.json", "checkpoint-*")
_BESIDE = ("config.json", "tokenizer_config.json", *_WEIGHTS, *_TRAINING)
_DEPTH = 3  # how many folders up or down a key and a model still count as one


def write_key(
    folder: str | os.PathLike,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    commitment: str,
    passphrase: str | None,
) -> Path:
    """Write a key into ``folder`` and return the path of its JSON file.

    Refuses to replace another key, and to put a plain key where a model lies.
    """
    folder = _checked_folder(folder, passphrase, KEY)
    _refuse_to_replace(folder, commitment)
    return _write_files(folder, encode_key(fields, arrays, commitment, passphrase), KEY)


def write_ring(
    folder: str | os.PathLike,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    commitment: str,
    heads: Sequence[str],
    passphrase: str | None,
) -> Path:
    """Write a key ring into ``folder``, as :func:`write_key` does a key.

    The same ring, known by its ``commitment``, is replaced where its history goes on from the one that lies there:
    ``heads`` names every state the ring has been in, the last one its present state.
    """
    folder = _checked_folder(folder, passphrase, RING)
    refuse_to_replace_ring(folder / RING_FILE, commitment, heads)
    return _write_files(folder, encode_ring(fields, arrays, commitment, heads[-1], passphrase), RING)


def encode_key(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], commitment: str, passphrase: str | None
) -> dict[str, bytes]:
    """The content of a key's files by name, the JSON last: once it is there, the key is whole."""
    return _encode(KEY, fields, arrays, {"commitment": commitment}, passphrase)


def encode_ring(
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    commitment: str,
    head: str,
    passphrase: str | None,
) -> dict[str, bytes]:
    """The content of a ring's files by name, the JSON last."""
    return _encode(RING, fields, arrays, {"commitment": commitment, "head": head}, passphrase)


def _encode(
    kind: FileKind,
    fields: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    shown: Mapping[str, str],
    passphrase: str | None,
) -> dict[str, bytes]:
    fields = {**fields, "arrays_digest": _digest(save_arrays(dict(arrays))) if arrays else None}
    envelope: dict[str, Any] = {"format": kind.format, "version": kind.version, "sealed": passphrase is not None}
    if passphrase is None:
        document = {**envelope, **shown, "key": fields}
        document["digest"] = _digest(_canonical(document))
    else:
        check_passphrase(passphrase)
        document = seal(_canonical(fields), passphrase, {**envelope, **shown})
    files = {}
    if arrays:
        content = save_arrays(dict(arrays))
        if passphrase is not None:
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = nonce + _arrays_cipher(fields["secret"]).encrypt(nonce, content, None)
            content = save_arrays({SEALED_ARRAYS: np.frombuffer(sealed, dtype=np.uint8)})
        files[kind.arrays_file] = content
    files[kind.file] = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    return files


def read_key(
    folder: str | os.PathLike, passphrase: str | None
) -> tuple[dict[str, Any], dict[str, np.ndarray], str | None]:
    """The fields, the arrays and the recorded commitment of the key in ``folder`` (or in the JSON file given)."""
    fields, arrays, document = _read(folder, passphrase, KEY)
    return fields, arrays, document.get("commitment")


def read_ring(
    folder: str | os.PathLike, passphrase: str | None
) -> tuple[dict[str, Any], dict[str, np.ndarray], str | None, str | None]:
    """The fields, the arrays, the recorded commitment and the recorded state of the ring in ``folder``."""
    fields, arrays, document = _read(folder, passphrase, RING)
    return fields, arrays, document.get("commitment"), document.get("head")


def _read(
    folder: str | os.PathLike, passphrase: str | None, kind: FileKind
) -> tuple[dict[str, Any], dict[str, np.ndarray], dict[str, Any]]:
    path = Path(folder)
    path = path / kind.file if path.is_dir() else path
    document = read_envelope(path, kind)
    if document["sealed"]:
        fields = parse_json(unseal(document, passphrase))
    else:
        fields = document.get("key")
        unsigned = {name: value for name, value in document.items() if name != "digest"}
        if document.get("digest") != _digest(_canonical(unsigned)):
            raise _damaged(path, kind)
        _warn_if_readable_by_others(path)
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
    return fields, arrays, document


def read_envelope(path: Path, kind: FileKind = KEY) -> dict[str, Any]:
    """A key file's outer layer, which needs no passphrase: its version, whether it is sealed, its commitment."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        for other in KINDS:
            if other is not kind and path.name == kind.file and path.with_name(other.file).is_file():
                raise _of_another_kind(path.with_name(other.file), kind, other) from None
        raise KeyFileError(
            f"no {kind.noun} at {path}; give the folder that {kind.maker}.save_pretrained wrote, or make a "
            f"{kind.noun} with {kind.maker}.generate"
        ) from None
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None
    document = parse_json(content)
    if not isinstance(document, dict):
        raise _damaged(path, kind)
    if document.get("format") != kind.format:
        found = next((other for other in KINDS if document.get("format") == other.format), None)
        raise _damaged(path, kind) if found is None else _of_another_kind(path, kind, found)
    version = document.get("version")
    if type(version) is not int or version < 1:
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
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise FileNotWrittenError(
            f"cannot write {path}: {error.strerror or type(error).__name__}; nothing was changed, free the space or "
            "choose another folder and save again"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _checked_folder(folder: str | os.PathLike, passphrase: str | None, kind: FileKind) -> Path:
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise KeyFileError(f"{folder} is a file; give the folder in which the {kind.noun} is to be saved")
    if passphrase is not None:
        check_passphrase(passphrase)
    else:
        _refuse_plain_beside_model(folder)
    return folder


def _write_files(folder: Path, files: Mapping[str, bytes], kind: FileKind) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
    except FileNotWrittenError as error:
        raise KeyFileError(str(error)) from None
    return folder / kind.file


def _refuse_plain_beside_model(folder: Path) -> None:
    folder = folder.absolute()
    # A config.json two folders up may be anybody's; weights and a Trainer's files are not.
    near, far = [folder, folder.parent], list(folder.parents)[1:_DEPTH]
    hits = (
        (place, name)
        for places, names in ((near, _BESIDE), (far, _WEIGHTS + _TRAINING))
        for place in places
        for name in names
    )
    found = next((hit for place, name in hits for hit in place.glob(name)), None)
    if found is not None:
        raise KeyFileError(
            f"{found.parent} holds a model ({found.name}), and whoever pushes or copies that folder would take the "
            "plain key along; give a passphrase, or save the key into a folder of its own"
        )


def refuse_model_beside_plain_key(folder: str | os.PathLike) -> None:
    """Refuse a folder with a plain key in it as the place of a model: whoever pushed it would push the key.

    A Trainer's checkpoint lies in the folder that is pushed, so that one counts too.
    """
    folder = Path(folder)
    places = [folder, folder.parent] if folder.name.startswith("checkpoint-") else [folder]
    for kind in KINDS:
        patterns = ["*/" * depth + kind.file for depth in range(_DEPTH + 1)]
        for path in (path for place in places for pattern in patterns for path in place.glob(pattern)):
            if path.exists() and not read_envelope(path, kind)["sealed"]:
                raise KeyFileError(
                    f"{path} is a plain {kind.noun}, and a model saved here would take it along; move it away first"
                )


def _refuse_to_replace(folder: Path, commitment: str) -> None:
    path = folder / KEY_FILE
    if path.exists() and read_envelope(path).get("commitment") != commitment:
        raise KeyFileError(
            f"{path} holds another key, without which what it marked can no longer be proven; save into another "
            "folder, or move the old key away first"
        )


def refuse_to_replace_ring(path: Path, commitment: str, heads: Sequence[str]) -> None:
    """Refuse where another ring lies, or the same one with epochs or declarations that are not among ``heads``."""
    if not path.exists():
        return
    document = read_envelope(path, RING)
    if document.get("commitment") != commitment:
        raise KeyFileError(
            f"{path} holds another key ring, without which what its users' keys marked can no longer be proven; save "
            "into another folder, or move the old ring away first"
        )
    if document.get("head") not in heads:
        raise KeyFileError(
            f"{path} holds the same key ring with epochs or declarations that this one does not have, and they would "
            "be lost; load it from there and declare or rotate again, or save into another folder"
        )


def _arrays_cipher(secret: str) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(subkey(bytes.fromhex(secret), "arrays file"))


def _read_arrays(path: Path, expected_digest: str, secret: Any) -> dict[str, np.ndarray]:
    try:
        content = path.read_bytes()
    except OSError:
        raise KeyFileError(f"{path} is missing: this key's arrays lie beside its JSON; restore the file") from None
    arrays = _load_arrays(content)
    if arrays is not None and SEALED_ARRAYS in arrays:
        content = _unseal_arrays(arrays[SEALED_ARRAYS].tobytes(), secret)
        arrays = _load_arrays(content)
    if arrays is None or _digest(content) != expected_digest:
        raise _damaged(path, KEY)
    return arrays


def _unseal_arrays(sealed: bytes, secret: Any) -> bytes:
    try:
        return _arrays_cipher(secret).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
    except (InvalidTag, TypeError, ValueError):
        return b""


def _load_arrays(content: bytes) -> dict[str, np.ndarray] | None:
    try:
        return load_arrays(content)
    except (SafetensorError, ValueError, KeyError, TypeError):
        return None


def parse_json(content: bytes) -> Any:
    """A document, or None where it is none."""
    # A JSONDecodeError keeps the whole document, and with it the secret: it must not become anybody's context.
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _damaged(path: Path, kind: FileKind) -> KeyFileError:
    return KeyFileError(
        f"{path} is not a drw_hf {kind.noun} file, or it was damaged or altered; restore it from a backup"
    )


def _of_another_kind(path: Path, wanted: FileKind, found: FileKind) -> KeyFileError:
    return KeyFileError(
        f"{path} holds a {found.noun}, where a {wanted.noun} was expected; load it with {found.maker}.from_pretrained"
    )


def _warn_if_readable_by_others(path: Path) -> None:
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("%s holds a plain key and other users of this machine can read it: chmod 600 it", path)
