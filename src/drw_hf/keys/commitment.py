"""The commitment: one number that fixes a key beforehand and shows nothing of it.

SHA-256 over a domain, the 32 secret bytes and the key's fields in an injective encoding: every value carries its type
and its length, floats are their eight IEEE-754 bytes. Two different keys cannot share a commitment short of a SHA-256
collision, and the secret's 256 bits keep the target class and the rest from being guessed out of it.
"""

import hashlib
import struct
from typing import Any

import numpy as np

from ..errors import InvalidKeyError

DOMAIN = b"drw-hf key commitment v1"


def encode(value: Any) -> bytes:
    """An injective encoding of None, bool, int, float, str, bytes, arrays, and lists, tuples and dicts of these."""
    if value is None:
        tag, body = b"n", b""
    elif isinstance(value, bool):
        tag, body = b"b", b"\x01" if value else b"\x00"
    elif isinstance(value, int):
        tag, body = b"i", str(value).encode()
    elif isinstance(value, float):
        tag, body = b"f", struct.pack(">d", value)
    elif isinstance(value, str):
        tag, body = b"s", value.encode()
    elif isinstance(value, bytes):
        tag, body = b"y", value
    elif isinstance(value, np.ndarray):
        contiguous = np.ascontiguousarray(value)
        digest = hashlib.sha256(contiguous.tobytes()).digest()
        tag, body = b"a", encode([contiguous.dtype.str, list(contiguous.shape), digest])
    elif isinstance(value, list | tuple):
        tag, body = b"l", b"".join(encode(item) for item in value)
    elif isinstance(value, dict):
        tag, body = b"d", b"".join(encode(name) + encode(value[name]) for name in sorted(value))
    else:
        raise TypeError(f"a key field of type {type(value).__name__} has no encoding")
    return tag + len(body).to_bytes(8, "big") + body


def check_encodable(fields: dict[str, Any]) -> None:
    """Refuse, by name, what no commitment could cover."""
    for name, value in fields.items():
        try:
            encode(value)
        except TypeError:
            raise InvalidKeyError(
                f"{name} is a {type(value).__name__}, which cannot be saved in a key; give a plain Python number, "
                "text, list or dict"
            ) from None


def commit(secret: bytes, fields: dict[str, Any], domain: bytes = DOMAIN) -> str:
    """The commitment to a key, as 64 hexadecimal digits."""
    return hashlib.sha256(domain + secret + encode(fields)).hexdigest()
