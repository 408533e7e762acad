"""Xet storage: chunks of files packed into xorbs, and shards that say how files are put together from them.

Formats as in the public Xet specification, as far as hf_xet needs them of a server: no deduplication across users
(every chunk is reported as new) and version 1 of the calls (hf_xet falls back to it when version 2 is not there).
"""

import hashlib
import secrets
import struct
from dataclasses import dataclass

from .messages import HubError
from .repos import Repo

FOOTER = b"XETBLOB"  # what may follow the chunks of a xorb
BOOKEND = b"\xff" * 32
RECORD = 48
HAS_VERIFICATION, HAS_METADATA = 1 << 31, 1 << 30


@dataclass(frozen=True)
class Term:
    """Chunks ``start`` to ``end`` (excluded) of a xorb, ``size`` bytes of a file."""

    xorb: str
    start: int
    end: int
    size: int


@dataclass(frozen=True)
class Xorb:
    raw: bytes
    offsets: list[int]  # of each chunk in ``raw``, and of the end
    chunks: list[bytes]

    def bytes_of(self, start: int, end: int) -> tuple[int, int]:
        """First and last position in ``raw`` of some chunks."""
        return self.offsets[start], self.offsets[end] - 1


class XetStore:
    """Xorbs and files by their hashes; ``grants`` are the tokens given out, with repo and right."""

    def __init__(self):
        self.grants: dict[str, tuple[Repo, str]] = {}
        self.xorbs: dict[str, Xorb] = {}
        self.files: dict[str, list[Term]] = {}
        self.tickets: dict[str, str] = {}  # addresses of xorbs that need no token

    def grant(self, repo: Repo, right: str) -> str:
        token = f"xet_{secrets.token_hex(16)}"
        self.grants[token] = repo, right
        return token

    def granted(self, request, right: str) -> Repo:
        """The repo that the request's token is for; who may write may read."""
        repo, given = self.grants.get(request.token, (None, None))
        if repo is None or given not in (right, "write"):
            raise HubError(401, f"no Xet token to {right}")
        return repo

    def add_xorb(self, name: str, raw: bytes) -> bytes:
        """Keep a xorb; returns the chunks' content."""
        offsets, chunks, at = [0], [], 0
        while at < len(raw) and raw[at : at + len(FOOTER)] != FOOTER:
            packed, scheme = int.from_bytes(raw[at + 1 : at + 4], "little"), raw[at + 4]
            size = int.from_bytes(raw[at + 5 : at + 8], "little")
            chunks.append(_unpack(raw[at + 8 : at + 8 + packed], scheme, size))
            at += 8 + packed
            offsets.append(at)
        self.xorbs[name] = Xorb(raw, offsets, chunks)
        return b"".join(chunks)

    def add_shard(self, shard: bytes) -> dict[str, tuple[str, bytes]]:
        """Keep the files of a shard; returns their Xet hash and content by sha256."""
        added = {}
        for name, terms, sha256 in _files_of(shard):
            missing = [term.xorb for term in terms if term.xorb not in self.xorbs]
            if missing:
                raise HubError(400, f"the shard refers to a xorb that was not uploaded: {missing[0]}")
            content = b"".join(b"".join(self.xorbs[term.xorb].chunks[term.start : term.end]) for term in terms)
            found = hashlib.sha256(content).hexdigest()
            if sha256 not in (None, found):
                raise HubError(400, f"the file {name} has sha256 {found}, not {sha256}")
            self.files[name] = terms
            added[found] = name, content
        return added

    def reconstruction(self, name: str, url: str, first: int = 0, last: int | None = None) -> dict:
        """How to put bytes ``first`` to ``last`` of a file together, with addresses of the parts."""
        terms, skipped = list(self.files[name]), 0
        while terms and skipped + terms[0].size <= first:
            skipped += terms.pop(0).size
        if not terms:
            raise HubError(416, "Range not satisfiable")
        needed, reach = [], skipped
        for term in terms:
            if last is None or reach <= last:
                needed.append(term)
            reach += term.size
        parts: dict[str, list] = {}
        for xorb in {term.xorb for term in needed}:
            ticket = secrets.token_hex(16)
            self.tickets[ticket] = xorb
            for start, end in _merged([(term.start, term.end) for term in needed if term.xorb == xorb]):
                first_byte, last_byte = self.xorbs[xorb].bytes_of(start, end)
                part = {"range": {"start": start, "end": end}, "url": f"{url}/xorb-data/{ticket}"}
                parts.setdefault(xorb, []).append(part | {"url_range": {"start": first_byte, "end": last_byte}})
        listed = [
            {"hash": term.xorb, "unpacked_length": term.size, "range": {"start": term.start, "end": term.end}}
            for term in needed
        ]
        return {"offset_into_first_range": first - skipped, "terms": listed, "fetch_info": parts}


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges without overlap: hf_xet takes the first part that a term begins in, and expects all of the term there."""
    merged = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            start, end = merged[-1][0], max(end, merged.pop()[1])
        merged.append((start, end))
    return merged


def _unpack(packed: bytes, scheme: int, size: int) -> bytes:
    if scheme == 0:
        return packed
    if scheme not in (1, 2):
        raise HubError(400, f"unknown compression {scheme} of a chunk")
    import pyarrow

    content = pyarrow.decompress(packed, size, codec="lz4", asbytes=True)
    if scheme == 1:
        return content
    # Every fourth byte from 0, then from 1, 2 and 3: floats compress better so.
    whole, at = bytearray(size), 0
    for lane in range(4):
        length = len(range(lane, size, 4))
        whole[lane::4] = content[at : at + length]
        at += length
    return bytes(whole)


def _files_of(shard: bytes):
    """(Xet hash, terms, sha256 or None) of each file in a shard; records of 48 bytes follow a header of 48."""
    at = RECORD
    while shard[at : at + 32] != BOOKEND:
        name = _hash(shard[at : at + 32])
        flags, count = struct.unpack_from("<II", shard, at + 32)
        at += RECORD
        terms = []
        for number in range(count):
            record = at + number * RECORD
            _, size, start, end = struct.unpack_from("<IIII", shard, record + 32)
            terms.append(Term(_hash(shard[record : record + 32]), start, end, size))
        at += count * RECORD * (2 if flags & HAS_VERIFICATION else 1)
        sha256 = None
        if flags & HAS_METADATA:
            sha256 = _hash(shard[at : at + 32])
            at += RECORD
        yield name, terms, sha256


def _hash(raw: bytes) -> str:
    """A hash as text: four little-endian numbers of 64 bits."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", raw))
