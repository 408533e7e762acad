"""Answers of servers, over HTTP: so many bytes at most, and so long.

The Hub's client waits for ever, and reads whatever comes. Its requests are made from here and there, so what is
allowed is not said request by request but around them, with :func:`answers_within`; requests that others make with the
same client, also at the same time, are not touched.
"""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from huggingface_hub.utils import get_session

from .files import in_words

LONGEST_WAIT = 600  # seconds: how long a server may make its client wait before it asks again
_SLOWEST = 2**14  # bytes a second, on the whole: below, an answer that drips in counts as one that does not come
_SPOKEN = 2**16  # bytes that any answer may have, and those that refuse or redirect do: words for people
_WHOLE_ANSWERS = 8  # as large as they may be: pages of a list, and what was broken off and asked again
_MOST_ANSWERS = 2**14  # in one block: pages could each name a next one for ever


class RefusedAnswer(Exception):
    """An answer is not read any further; whoever asked says it in an error of its own."""


@dataclass
class _Limits:
    """What is allowed in a block, and what is left of it."""

    most: int
    patience: float
    bytes_left: int
    answers_left: int
    last: bytearray | None


def too_large(most: int) -> RefusedAnswer:
    """What is said of an answer of more bytes than this."""
    return RefusedAnswer(f"the answer is larger than {in_words(most)}, the most that is read of it")


_limits: ContextVar[_Limits | None] = ContextVar("drw_hf_limits", default=None)


@contextmanager
def answers_within(most: int, patience: float, keep: bool = False) -> Iterator[bytearray]:
    """Let each answer to what the Hub's client asks in the block have so many bytes, and eight times as many together.

    A server that is silent for ``patience`` seconds raises ``httpx2.TimeoutException``, unless the request has a
    time-out of its own; more bytes raise :class:`RefusedAnswer`. Answers are asked for as they are, since a few packed
    bytes can be gigabytes. With ``keep`` the bytes of the last answer are given beside what the client makes of them.
    """
    hooks = get_session().event_hooks
    for event, hook in (("request", _before_asking), ("response", _before_reading)):
        if hook not in hooks[event]:
            hooks[event].append(hook)  # the client lives on, and outside of such a block the hooks do nothing
    last = bytearray()
    limits = _Limits(most, patience, _WHOLE_ANSWERS * (most + _SPOKEN), _MOST_ANSWERS, last if keep else None)
    token = _limits.set(limits)
    try:
        yield last
    finally:
        _limits.reset(token)


def wait_told(text: str) -> float | None:
    """The seconds that a server wants its client to wait, at most :data:`LONGEST_WAIT`; None where it does not say."""
    return min(float(text), LONGEST_WAIT) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", text) else None


def _before_asking(request: httpx2.Request) -> None:
    limits = _limits.get()
    if limits is not None:
        request.headers["Accept-Encoding"] = "identity"
        given: dict[str, Any] = request.extensions.get("timeout", {})
        patient = httpx2.Timeout(limits.patience).as_dict()
        request.extensions["timeout"] = {**patient, **{name: value for name, value in given.items() if value}}


def _before_reading(response: httpx2.Response) -> None:
    limits = _limits.get()
    if limits is None:
        return
    packed = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        raise RefusedAnswer("the answer is packed, though it was asked for as it is, and could unpack to any size")
    for name in ("Retry-After", "RateLimit"):
        told = re.findall("[0-9]+", response.headers.get(name, ""))
        if any(len(number) > 9 or int(number) > LONGEST_WAIT for number in told):
            del response.headers[name]  # a wait beyond reason is not kept to
    limits.answers_left -= 1
    if limits.answers_left < 0:
        raise RefusedAnswer(f"it takes more than {_MOST_ANSWERS:,} answers, the most that are read for one question")
    if limits.last is not None:
        limits.last.clear()
    response.stream = _Counted(response.stream, limits)


class _Counted(httpx2.SyncByteStream):
    """An answer's bytes, counted and timed as they come."""

    def __init__(self, stream: Any, limits: _Limits) -> None:
        self._stream, self._limits = stream, limits

    def __iter__(self) -> Iterator[bytes]:
        start, received, limits = time.monotonic(), 0, self._limits
        for chunk in self._stream:
            received += len(chunk)
            limits.bytes_left -= len(chunk)
            if received > limits.most + _SPOKEN or limits.bytes_left < 0:
                raise too_large(limits.most)
            if time.monotonic() - start > limits.patience + received / _SLOWEST:
                raise httpx2.ReadTimeout("the answer comes too slowly")
            if limits.last is not None:
                limits.last += chunk
            yield chunk

    def close(self) -> None:
        self._stream.close()

    @property
    def elapsed(self) -> Any:
        """How long it took: the client asks."""
        return self._stream.elapsed
