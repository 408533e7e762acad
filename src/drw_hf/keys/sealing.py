"""Sealing bytes with a passphrase: scrypt for the key, ChaCha20-Poly1305 for the bytes.

The header (salt, cost, nonce, and whatever the caller puts in it) is authenticated together with the bytes, so a file
whose header was changed does not open. The cost that a file asks for is capped before any memory is taken for it.
"""

import json
import secrets
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ..errors import KeyFileError, WrongPassphraseError

COST = 2**17  # scrypt's N: 128 MB and about half a second per guess
_BLOCK_SIZE, _PARALLELISM = 8, 1
_NONCE_BYTES = 12
_MAX_COST = 2**20  # 128 · N · r bytes, so 1 GiB: what a file may make its reader allocate


def seal(content: bytes, passphrase: str, header: Mapping[str, Any]) -> dict[str, Any]:
    """Seal ``content``; the result is JSON-able and holds all that :func:`unseal` needs but the passphrase."""
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(_NONCE_BYTES)
    kdf = {"name": "scrypt", "n": COST, "r": _BLOCK_SIZE, "p": _PARALLELISM, "salt": b64encode(salt).decode()}
    cipher = {"name": "chacha20-poly1305", "nonce": b64encode(nonce).decode()}
    header = {**header, "kdf": kdf, "cipher": cipher}
    ciphertext = _cipher(passphrase, COST, salt).encrypt(nonce, content, canonical(header))
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
    try:
        kdf, cipher = sealed["kdf"], sealed["cipher"]
        encoded = kdf["salt"], cipher["nonce"], sealed["ciphertext"]
        salt, nonce, ciphertext = (b64decode(part, validate=True) for part in encoded)
        cost, *others = (kdf["n"], kdf["r"], kdf["p"], kdf["name"], cipher["name"], len(nonce))
        known = others == [_BLOCK_SIZE, _PARALLELISM, "scrypt", "chacha20-poly1305", _NONCE_BYTES]
        known = known and type(cost) is int and 2 <= cost <= _MAX_COST and cost & (cost - 1) == 0
    except (KeyError, TypeError, ValueError):
        known = False
    if not known:
        raise KeyFileError("the header of this sealed key is malformed; restore the file from a backup")
    try:
        return _cipher(passphrase, cost, salt).decrypt(nonce, ciphertext, canonical(header))
    except InvalidTag:
        raise WrongPassphraseError(
            "this sealed key did not open: the passphrase is wrong, or the file was altered since it was sealed; "
            "check the passphrase, then restore the file from a backup"
        ) from None


def check_passphrase(passphrase: Any) -> None:
    """Refuse what would not protect a key, before anything is written."""
    if not isinstance(passphrase, str):
        raise KeyFileError(f"passphrase must be a str, not {type(passphrase).__name__}")
    if not passphrase:
        raise KeyFileError('passphrase="" would seal nothing; give a passphrase, or None to save the key plain')
    if has_lone_surrogate(passphrase):
        raise KeyFileError("the passphrase holds a lone surrogate, which is no text; type it again")


def has_lone_surrogate(text: str) -> bool:
    """Whether a string holds half a character, as undecodable input leaves it: it cannot be written as UTF-8."""
    return not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical(document: Mapping[str, Any]) -> bytes:
    """The one way to write a document as JSON, for digests and ciphers."""
    return _CANONICAL.encode(document).encode()


def _cipher(passphrase: str, cost: int, salt: bytes) -> ChaCha20Poly1305:
    check_passphrase(passphrase)
    # The same words typed on another keyboard may be composed differently; NFKC makes them the same bytes.
    password = unicodedata.normalize("NFKC", passphrase).encode()
    try:
        scrypt = Scrypt(salt=salt, length=32, n=cost, r=_BLOCK_SIZE, p=_PARALLELISM)
        return ChaCha20Poly1305(scrypt.derive(password))
    except MemoryError:
        raise KeyFileError(f"scrypt needs {cost // 2**10} MB of memory, and there is not as much") from None
