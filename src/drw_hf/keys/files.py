"""Key files: a small versioned JSON, and a safetensors file beside it for keys that hold arrays.

Both are written to a temporary file, flushed and renamed, so a crash leaves the old file or the new one and nothing in
between. The arrays are encrypted under a key derived from the secret, not from the passphrase, so whichever two
versions of the files a crash leaves behind belong together.
"""

import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from ..errors import KeyFileError
from .derivation import subkey
from .sealing import check_passphrase, seal, unseal

logger = logging.getLogger(__name__)

KEY_FILE = "drw_key.json"
ARRAYS_FILE = "drw_key.safetensors"
POINTER_FILE = "drw_key_pointer.json"  # beside a model whose key lies in another repository
FORMAT, VERSION = "drw-hf-key", 1
_SEALED_ARRAYS = "drw_hf.sealed"  # the one tensor of a sealed arrays file: a nonce and the ciphertext
_NONCE_BYTES = 12

# Files by which a folder is known to hold a model or a Trainer's output, which people push as a whole.
_MODEL_FILES = ("config.json", "adapter_config.json", "training_args.bin", "trainer_state.json", "checkpoint-*")


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
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise KeyFileError(f"{folder} is a file; give the folder in which the key is to be saved")
    if passphrase is not None:
        check_passphrase(passphrase)
    else:
        _refuse_plain_beside_model(folder)
    _refuse_to_replace(folder, commitment)

    files = encode_key(fields, arrays, commitment, passphrase)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise KeyFileError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    for name, content in files.items():
        write_atomically(folder / name, content)
    return folder / KEY_FILE


def encode_key(
    fields: Mapping[str, Any], arrays: Mapping[str, np.ndarray], commitment: str, passphrase: str | None
) -> dict[str, bytes]:
    """The content of a key's files by name, the JSON last: once it is there, the key is whole."""
    fields = {**fields, "arrays_digest": _digest(save_arrays(dict(arrays))) if arrays else None}
    envelope: dict[str, Any] = {"format": FORMAT, "version": VERSION, "sealed": passphrase is not None}
    if passphrase is None:
        document = {**envelope, "commitment": commitment, "key": fields}
        document["digest"] = _digest(_canonical(document))
    else:
        check_passphrase(passphrase)
        document = seal(_canonical(fields), passphrase, {**envelope, "commitment": commitment})
    files = {}
    if arrays:
        content = save_arrays(dict(arrays))
        if passphrase is not None:
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sealed = nonce + _arrays_cipher(fields["secret"]).encrypt(nonce, content, None)
            content = save_arrays({_SEALED_ARRAYS: np.frombuffer(sealed, dtype=np.uint8)})
        files[ARRAYS_FILE] = content
    files[KEY_FILE] = (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()
    return files


def read_key(
    folder: str | os.PathLike, passphrase: str | None
) -> tuple[dict[str, Any], dict[str, np.ndarray], str | None]:
    """The fields, the arrays and the recorded commitment of the key in ``folder`` (or in the JSON file given)."""
    path = Path(folder)
    path = path / KEY_FILE if path.is_dir() else path
    document = read_envelope(path)
    if document["sealed"]:
        fields = parse_json(unseal(document, passphrase))
    else:
        fields = document.get("key")
        unsigned = {name: value for name, value in document.items() if name != "digest"}
        if document.get("digest") != _digest(_canonical(unsigned)):
            raise _damaged(path)
        _warn_if_readable_by_others(path)
        if passphrase is not None:
            raise KeyFileError(
                f"{path} is not sealed, though a passphrase was given: was the sealed key replaced? To load it all "
                "the same, give no passphrase"
            )
    if not isinstance(fields, dict):
        raise _damaged(path)
    expected = fields.pop("arrays_digest", None)
    arrays = _read_arrays(path.parent / ARRAYS_FILE, expected, fields.get("secret")) if expected is not None else {}
    return fields, arrays, document.get("commitment")


def read_envelope(path: Path) -> dict[str, Any]:
    """A key file's outer layer, which needs no passphrase: its version, whether it is sealed, its commitment."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise KeyFileError(
            f"no key at {path}; give the folder that WatermarkKey.save_pretrained wrote, or make a key with "
            "WatermarkKey.generate"
        ) from None
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror or type(error).__name__}") from None
    document = parse_json(content)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _damaged(path)
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise _damaged(path)
    if version > VERSION:
        raise KeyFileError(
            f"{path} has format version {version}, this drw_hf reads up to {VERSION}; update drw_hf "
            "(pip install -U drw_hf)"
        )
    if not isinstance(document.get("sealed"), bool):
        raise _damaged(path)
    return document


def write_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` with mode 0600 so that ``path`` is, at every moment, the old file or the whole new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise KeyFileError(
            f"cannot write {path}: {error.strerror or type(error).__name__}; nothing was changed, free the space or "
            "choose another folder and save again"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _refuse_plain_beside_model(folder: Path) -> None:
    found = next((hit for place in (folder, folder.parent) for name in _MODEL_FILES for hit in place.glob(name)), None)
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
    for path in (*(place / KEY_FILE for place in places), *folder.glob(f"*/{KEY_FILE}")):
        if path.exists() and not read_envelope(path)["sealed"]:
            raise KeyFileError(
                f"{path} is a plain key, and a model saved here would take it along; move it away first"
            )


def _refuse_to_replace(folder: Path, commitment: str) -> None:
    path = folder / KEY_FILE
    if path.exists() and read_envelope(path).get("commitment") != commitment:
        raise KeyFileError(
            f"{path} holds another key, without which what it marked can no longer be proven; save into another "
            "folder, or move the old key away first"
        )


def _arrays_cipher(secret: str) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(subkey(bytes.fromhex(secret), "arrays file"))


def _read_arrays(path: Path, expected_digest: str, secret: Any) -> dict[str, np.ndarray]:
    try:
        content = path.read_bytes()
    except OSError:
        raise KeyFileError(f"{path} is missing: this key's arrays lie beside its JSON; restore the file") from None
    arrays = _load_arrays(content)
    if arrays is not None and _SEALED_ARRAYS in arrays:
        content = _unseal_arrays(arrays[_SEALED_ARRAYS].tobytes(), secret)
        arrays = _load_arrays(content)
    if arrays is None or _digest(content) != expected_digest:
        raise _damaged(path)
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


def _damaged(path: Path) -> KeyFileError:
    return KeyFileError(f"{path} is not a drw_hf key file, or it was damaged or altered; restore it from a backup")


def _warn_if_readable_by_others(path: Path) -> None:
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        logger.warning("%s holds a plain key and other users of this machine can read it: chmod 600 it", path)
