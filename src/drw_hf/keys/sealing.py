"""Sealing bytes with a passphrase: scrypt for the key, ChaCha20-Poly1305 for the bytes.

The header (salt, cost, nonce, and whatever the caller puts in it) is authenticated together with the bytes, so a file
whose header was changed does not open. The cost that a file asks for is capped before any memory is taken for it.
"""

import json
import secrets
import unicodedata
from base64 import b64decode, b64encode
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ..errors import KeyFileError, WrongPassphraseError

COST = 2**17  # scrypt's N: 128 MB and about half a second per guess
_BLOCK_SIZE, _PARALLELISM = 8, 1
_MAX_COST = 2**20  # 128 · N · r bytes, so 1 GiB: what a file may make its reader allocate


def seal(content: bytes, passphrase: str, header: dict[str, Any] | None = None) -> dict[str, Any]:
    """Seal ``content``; the result is JSON-able and holds all that :func:`unseal` needs but the passphrase."""
    header = {
        **(header or {}),
        "kdf": {
            "name": "scrypt",
            "n": COST,
            "r": _BLOCK_SIZE,
            "p": _PARALLELISM,
            "salt": b64encode(secrets.token_bytes(16)).decode(),
        },
        "cipher": {"name": "chacha20-poly1305", "nonce": b64encode(secrets.token_bytes(12)).decode()},
    }
    cipher = ChaCha20Poly1305(_stretch(passphrase, header["kdf"]))
    ciphertext = cipher.encrypt(b64decode(header["cipher"]["nonce"]), content, _authenticated(header))
    return {**header, "ciphertext": b64encode(ciphertext).decode()}


def unseal(sealed: dict[str, Any], passphrase: str | None) -> bytes:
    """The bytes that :func:`seal` was given.

    Raises
    ------
    WrongPassphraseError
        Without a passphrase, with a wrong one, or for an altered file: the cipher cannot tell the last two apart.
    KeyFileError
        For a header that is malformed or asks for more memory than 1 GiB.
    """
    if passphrase is None:
        raise WrongPassphraseError("this key is sealed and no passphrase was given; pass passphrase=...")
    header = {name: value for name, value in sealed.items() if name != "ciphertext"}
    parts = _parse_header(sealed)
    if parts is None:
        raise KeyFileError("the header of this sealed key is malformed; restore the file from a backup")
    kdf, nonce, ciphertext = parts
    stretched = _stretch(passphrase, kdf)
    content = _decrypt(stretched, nonce, ciphertext, _authenticated(header))
    if content is None:
        raise WrongPassphraseError(
            "this sealed key did not open: the passphrase is wrong, or the file was altered since it was sealed; "
            "check the passphrase, then restore the file from a backup"
        )
    return content


def check_passphrase(passphrase: Any) -> None:
    """Refuse what would not protect a key, before anything is written."""
    if not isinstance(passphrase, str):
        raise KeyFileError(f"passphrase must be a str, not {type(passphrase).__name__}")
    if not passphrase:
        raise KeyFileError('passphrase="" would seal nothing; give a passphrase, or None to save the key plain')
    if any("\ud800" <= letter <= "\udfff" for letter in passphrase):
        raise KeyFileError("the passphrase holds a lone surrogate, which is no text; type it again")


def _stretch(passphrase: str, kdf: dict[str, Any]) -> bytes:
    check_passphrase(passphrase)
    # The same words typed on another keyboard may be composed differently; NFKC makes them the same bytes.
    password = unicodedata.normalize("NFKC", passphrase).encode()
    scrypt = Scrypt(salt=b64decode(kdf["salt"]), length=32, n=kdf["n"], r=kdf["r"], p=kdf["p"])
    try:
        return scrypt.derive(password)
    except MemoryError:
        raise KeyFileError(f"scrypt needs {kdf['n'] // 2**10} MB of memory, and there is not as much") from None


def _authenticated(header: dict[str, Any]) -> bytes:
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


def _parse_header(sealed: dict[str, Any]) -> tuple[dict[str, Any], bytes, bytes] | None:
    try:
        kdf, cipher = sealed["kdf"], sealed["cipher"]
        n = kdf["n"]
        known = kdf["name"] == "scrypt" and cipher["name"] == "chacha20-poly1305"
        fixed = (kdf["r"], kdf["p"]) == (_BLOCK_SIZE, _PARALLELISM)
        if not (known and fixed and type(n) is int and 2 <= n <= _MAX_COST and n & (n - 1) == 0):
            return None
        b64decode(kdf["salt"], validate=True)
        nonce = b64decode(cipher["nonce"], validate=True)
        ciphertext = b64decode(sealed["ciphertext"], validate=True)
    except (KeyError, TypeError, ValueError):
        return None
    return (kdf, nonce, ciphertext) if len(nonce) == 12 else None


def _decrypt(key: bytes, nonce: bytes, ciphertext: bytes, authenticated: bytes) -> bytes | None:
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, authenticated)
    except InvalidTag:
        return None
