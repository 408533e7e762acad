"""Files and JSON that others wrote."""

import json
import os
import re
import sys
from typing import Any

from ..errors import DrwError

MEBIBYTE = 2**20
LARGEST_DOCUMENT = 16 * MEBIBYTE  # of a key, a ring or a pointer in JSON: a ring with 100,000 declarations has as much
_DEEPEST = 64  # nothing that we write is nested a quarter as deep
_SAFE_RECURSION = 3_000  # calls within calls that fit every stack; Python allows 1,000
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


def read_within(path: str | os.PathLike, most: int, error: type[DrwError]) -> bytes:
    """A file's content, of which no more than ``most`` bytes are ever read; an ``OSError`` passes as it is."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size  # 0 of a device, which may have no end
        content = file.read((size or most) + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise error(
            f"{path} is larger than {in_words(most)}, the most that is read of such a file; drw_hf did not write it, "
            "or it was damaged: restore it from a backup"
        )
    return content


def in_words(size: int) -> str:
    """A limit in bytes, for messages."""
    return f"{size / MEBIBYTE:,.4g} MiB" if size >= MEBIBYTE else f"{size:,} bytes"


def parse_json(content: bytes | str) -> Any:
    """A document, or None where it is none, or one nested deeper than any of ours."""
    # A JSONDecodeError keeps the whole document, and with it the secret: it must not become anybody's context.
    try:
        if sys.getrecursionlimit() > _SAFE_RECURSION and _is_too_deep(content):
            return None
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    level = [document]
    for _ in range(_DEEPEST):
        level = [part for whole in level for part in _parts(whole)]
        if not level:
            return document
    return None  # whoever walks through it, as writing it again does, would run out of stack


def _is_too_deep(content: bytes | str) -> bool:
    """Whether a parser would recurse too deep: asked where some other package has raised Python's own limit.

    Then it would not raise an error, but overflow the stack.
    """
    text = content if isinstance(content, str) else content.decode(json.detect_encoding(content), "surrogatepass")
    depth = 0
    for found in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > _DEEPEST:
            return True
    return False


def _parts(whole: Any) -> list[Any]:
    """What a document's part holds that may hold something itself."""
    held = whole.values() if isinstance(whole, dict) else whole
    return [part for part in held if isinstance(part, dict | list)] if isinstance(whole, dict | list) else []
