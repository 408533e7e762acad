"""How connections are kept: for how long and how many, so that nobody holds up the others by doing nothing."""

import asyncio
import json
import socket
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from .limits import Limits

_HEAD = 10.0  # seconds in which the head of a request is to come
_LARGEST_HEAD = 2**15  # bytes


def server_config(app: Starlette, limits: Limits) -> uvicorn.Config:
    """uvicorn's settings for an app of ours; on an end what was taken on is answered within the limits' timeout."""
    return uvicorn.Config(
        app,
        http=_protocol(limits),
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        access_log=False,  # who asked what is for the log
        log_config=None,
        server_header=False,
        proxy_headers=False,  # where a request comes from means nothing here
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=max(1, round(limits.timeout)),
    )


class _Connection(H11Protocol):
    """A connection that is closed where the client takes too long: for a head, for a body, or to read its answer.

    uvicorn waits for all of these as long as the client likes, and each connection takes a file descriptor.
    """

    limits: Limits
    _deadline: asyncio.TimerHandle | None = None
    _served: Any = None  # the request that the deadline is for; None before the first head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # asyncio does so where the listening socket names its protocol, which those of socket.create_server do not.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) > self.limits.connections:
            transport.write(_said(503, "too many connections are open; come again soon", "retry-after: 1"))
            transport.close()
        else:
            self._allow(_HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._allow(None)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        if self.transport.is_closing():
            return
        super().handle_events()
        if self.cycle is not None and self.cycle is not self._served:
            self._served = self.cycle
            # For its body, for the answer, and for reading it.
            self._allow(3 * self.limits.timeout)

    def on_response_complete(self) -> None:
        self._allow(_HEAD)
        super().on_response_complete()

    def _allow(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """What is said to something that is no HTTP."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_said(400, "this is no valid HTTP request, or its head is too large"))
        self.transport.close()


def _protocol(limits: Limits) -> type[asyncio.Protocol]:
    return type("Connection", (_Connection,), {"limits": limits})


def _said(status: int, error: str, *headers: str) -> bytes:
    """A response to a connection that gets no other one."""
    content = json.dumps({"error": error})
    told = ["content-type: application/json", f"content-length: {len(content)}", *headers, "connection: close"]
    return "\r\n".join([f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *told, "", content]).encode()
