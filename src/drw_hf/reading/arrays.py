"""Archives of arrays (``.npz``) that others wrote.

A small archive can unpack to any size. What each member's header declares is held against what is left of the limit
before anything is unpacked, and the stream against the header while it is: neither may say more than the other.
"""

import math
import os
import zipfile
from collections.abc import Iterable
from typing import IO, Any, Literal

import numpy as np

from ..errors import DrwError
from .files import MEBIBYTE, in_words

LARGEST_ARCHIVE = 1024 * MEBIBYTE  # unpacked
_MOST_MEMBERS = 64
_LARGEST_DIRECTORY = 2**16
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LONGEST_HEADER = 10_000
_AT_ONCE = MEBIBYTE


def read_arrays(
    path: str | os.PathLike, names: Iterable[str], what: str, error: type[DrwError], most: int = LARGEST_ARCHIVE
) -> dict[str, np.ndarray]:
    """The arrays of these names, as far as an archive holds them; ``what`` it should be is for messages.

    Numbers alone are read, and nothing is unpickled.
    """
    wanted, found, left = set(names), {}, most
    try:
        with open(path, "rb") as file:
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    if name not in wanted:
                        continue
                    if name in found or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                        raise ValueError("a member twice, or packed in a way that numpy does not use")
                    with archive.open(member) as stream:
                        dtype, shape, order = _declared(stream)
                        size = dtype.itemsize * math.prod(shape)
                        if size > left:
                            raise error(
                                f"{path} would unpack to more than {in_words(most)}, the most that is read of "
                                f"{what}; it was damaged, or made to fill the memory: do not use it"
                            )
                        found[name] = np.frombuffer(_unpacked(stream, size), dtype).reshape(shape, order=order)
                        left -= size
    except DrwError:
        raise
    except Exception as problem:  # whatever zipfile, zlib and numpy make of bytes that nobody wrote with them
        raise error(f"{path} is not {what} ({type(problem).__name__}); restore it from a backup") from None
    return found


def _check_directory(file: IO[bytes]) -> None:
    """Refuse an archive whose list of members is long: it is read as a whole, before the first member is.

    numpy's have few members, no comment, and no second directory for archives beyond 4 GiB.
    """
    size = file.seek(0, os.SEEK_END)
    tail = bytes(42)
    if size >= 22:
        file.seek(max(0, size - 42))
        tail = file.read(42).rjust(42, b"\0")
    members, length = int.from_bytes(tail[30:32], "little"), int.from_bytes(tail[32:36], "little")
    plain = tail[20:24] == b"PK\5\6" and tail[40:] == b"\0\0" and tail[:4] != b"PK\6\7"
    if not plain or members > _MOST_MEMBERS or length > _LARGEST_DIRECTORY:
        raise ValueError("not an archive as numpy writes them")


def _declared(stream: IO[bytes]) -> tuple[np.dtype, tuple[int, ...], Literal["C", "F"]]:
    """The type, the shape and the order that a member's header declares."""
    read_header: Any = _HEADERS[np.lib.format.read_magic(stream)]
    shape, in_columns, dtype = read_header(stream, max_header_size=_LONGEST_HEADER)
    if dtype.kind not in "biuf" or dtype.itemsize > 8 or any(length < 0 for length in shape):
        raise ValueError("not an array of plain numbers")
    return dtype, shape, "F" if in_columns else "C"


def _unpacked(stream: IO[bytes], size: int) -> bytearray:
    """Exactly so many bytes; memory is taken as they come, not as a header promises them."""
    content = bytearray()
    while len(content) < size and (part := stream.read(min(_AT_ONCE, size - len(content)))):
        content += part
    if len(content) != size or stream.read(1):
        raise ValueError("the header says another size than the content has")
    return content
