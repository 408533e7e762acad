"""Altering JSON, arrays and bytes, step by step, as a source of choices says: hypothesis's or a fuzzer's."""

import copy
import io
import zipfile
from typing import Any, Protocol

import numpy as np


class Choices(Protocol):
    """Where decisions come from."""

    def below(self, n: int) -> int:
        """A number from 0 to before ``n``."""

    def content(self, most: int) -> bytes:
        """Some bytes."""


ODD: list[Any] = [None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")]
ODD += ["", "a", "\ud800", "é", "0" * 64, "../../x", "1e999", "9" * 50, "2020-01-01", "9999-12-31T23:59:59+14:00"]
ODD += [[], [[]], [None], [1, 2], ["a", "b"], {}, {"a": 1}, {"": None}, {"name": "keyed", "settings": {}}]


def pick(choices: Choices, things: Any) -> Any:
    things = list(things)
    return things[choices.below(len(things))]


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every container in a document with every key or index in it."""
    found, waiting = [], [document]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(min(len(part), 8))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], dict | list):
                waiting.append(part[key])
    return found


def altered_document(document: Any, choices: Choices) -> Any:
    """A document with one to three things in it replaced, removed, added or moved."""
    document = copy.deepcopy(document)
    for _ in range(1 + choices.below(3)):
        known = places(document)
        if not known:
            break
        part, key = pick(choices, known)
        step = choices.below(6)
        if step <= 2:
            part[key] = copy.deepcopy(pick(choices, ODD))
        elif step == 3:
            del part[key]
        elif step == 4:
            other, its_key = pick(choices, known)
            if its_key in other if isinstance(other, dict) else its_key < len(other):
                part[key] = copy.deepcopy(other[its_key])
        elif isinstance(part, dict):
            part["added"] = copy.deepcopy(pick(choices, ODD))
        else:
            part.append(copy.deepcopy(pick(choices, ODD)))
    return document


def altered_bytes(content: bytes, choices: Choices) -> bytes:
    """The same bytes with some of them changed, cut out, doubled or put in."""
    for _ in range(1 + choices.below(3)):
        start = choices.below(len(content) + 1)
        end = min(len(content), start + choices.below(1 + min(64, len(content))))
        step = choices.below(4)
        if step == 0 and start < len(content):
            content = content[:start] + bytes([choices.below(256)]) + content[start + 1 :]
        elif step == 1:
            content = content[:start] + content[end:]
        elif step == 2:
            content = content[:end] + content[start:]
        else:
            content = content[:start] + choices.content(16) + content[start:]
    return content


DTYPES = ["<i8", "<f4", "<f8", ">i8", "<u8", "<i4", "|u1", "|b1", "<f2", "|S3", "<U2", "<c8", "|V4"]


def altered_arrays(arrays: dict[str, np.ndarray], choices: Choices) -> dict[str, np.ndarray]:
    """Arrays of which one has other numbers, another shape, another type, or is gone."""
    arrays = dict(arrays)
    name = pick(choices, arrays)
    array = arrays[name].copy()
    step = choices.below(6)
    if step == 0:
        del arrays[name]
        return arrays
    if step == 1 and array.size:
        extreme = (
            [-(2**63), -1, 0, 1, 10**9, 2**63 - 1] if array.dtype.kind == "i" else [np.nan, np.inf, -1.0, 7.0, 255]
        )
        array.reshape(-1)[choices.below(array.size)] = pick(choices, extreme)
    elif step == 2:
        array = array[: choices.below(len(array) + 1)]
    elif step == 3:
        array = (
            array.reshape(pick(choices, [(-1,), (1, *array.shape), (*array.shape, 1)])) if array.size else array[None]
        )
    elif step == 4:
        with np.errstate(all="ignore"):
            array = array.astype(pick(choices, DTYPES[:9])) if choices.below(4) else np.zeros(2, pick(choices, DTYPES))
    else:
        array = np.array(pick(choices, [0, 0.5, True]))
    return {**arrays, name: array}


def packed(members: dict[str, np.ndarray | bytes]) -> bytes:
    """An archive as numpy writes them; a member of bytes is put in as it is."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, member in members.items():
            if isinstance(member, np.ndarray):
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, member)
                member = buffer.getvalue()
            archive.writestr(f"{name}.npy", member)
    return file.getvalue()
