"""Requests, answers, and errors that become answers."""

import json
import re
from dataclasses import dataclass, field
from email.message import Message


@dataclass
class Request:
    """One request as it arrived, and what became of it: ``status`` is None where the connection was cut."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: Message = field(repr=False)
    body: bytes = field(default=b"", repr=False)
    user: str | None = None
    status: int | None = None

    @property
    def json(self):
        return json.loads(self.body or b"{}")

    @property
    def token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()

    def says(self, name: str) -> bool:
        """Whether the query sets this flag."""
        return self.query.get(name, [""])[0].lower() in ("true", "1")


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class HubError(Exception):
    """Becomes an answer: a status, a message and, where the real Hub sends one, an ``X-Error-Code``."""

    def __init__(self, status: int, message: str, code: str | None = None, headers: dict[str, str] | None = None):
        super().__init__(message)
        self.status, self.message = status, message
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}


def reply(content, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json", **(headers or {})})


def in_range(asked: str | None, content: bytes) -> tuple[int, bytes, dict[str, str]]:
    """Status, bytes and headers that answer a request for a range, or for all."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", asked or "")
    if match is None or match[0] == "bytes=-":
        return 200, content, {}
    size = len(content)
    start = int(match[1]) if match[1] else max(size - int(match[2]), 0)
    end = min(int(match[2]), size - 1) if match[1] and match[2] else size - 1
    if start >= size or start > end:
        raise HubError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return 206, content[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{size}"}
