"""The HTTP side: connections, faults on demand, a record of all that arrived; and the face that tests use."""

import contextlib
import re
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from . import routing, storage  # storage, with the api it imports, registers the routes
from .messages import Answer, HubError, Request, reply
from .repos import Commit, Repo
from .xet import XetStore


@dataclass
class Fault:
    status: int | None
    cut_after: int | None
    lose_answer: bool
    delay: float
    retry_after: int | None
    method: str | None
    path: re.Pattern
    times: int
    change: Callable[[bytes], Iterable[bytes]] | None
    headers: dict[str, str]

    def matches(self, method: str, target: str) -> bool:
        return self.method in (None, method) and self.path.search(target) is not None


class LoopbackHub:
    """A Hub on ``url``; see the package for what it is and is not.

    Attributes
    ----------
    clock
        Gives the dates of commits; tests set it.
    xet
        Whether the server offers Xet. A client with hf_xet uploads by Xet unless told otherwise, with no way back.
    multipart_above
        LFS objects larger than this many bytes are asked for in parts of this size.
    page_size
        Commits on a page of the history.
    requests
        Every request, in order.
    faults
        What ``fail`` asked for and no request has met yet.
    """

    def __init__(self, port: int = 0):
        self._lock = threading.RLock()
        self._thread = None
        self._listen(port)
        self.reset()

    def _listen(self, port: int):
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self):
        """Serve in a thread, if not yet."""
        if self._thread is not None:
            return self
        if self._server is None:
            self._listen(self.port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def stop(self):
        """Stop serving; ``start`` serves again on the same port, with the same content."""
        if self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.cut_all()
        self._server = self._thread = None

    __enter__ = start

    def __exit__(self, *error):
        self.stop()

    def reset(self):
        """Forget every user, repo, fault and request."""
        with self._lock:
            self.users: dict[str, tuple[str, ...]] = {}
            self.tokens: dict[str, str] = {}
            self.repos: dict[tuple[str, str], Repo] = {}
            self.uploads: dict[str, storage.Upload] = {}
            self.cas = XetStore()
            self.requests: list[Request] = []
            self.faults: list[Fault] = []
            self.received: list[tuple[str, bytes]] = []
            self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
            self.xet = True
            self.multipart_above = 64 * 2**20
            self.page_size = 50

    def add_user(self, name: str, orgs=()) -> str:
        """Make a user, who may write to ``name/…`` and to what the ``orgs`` own; returns the user's token."""
        token = f"hf_{secrets.token_hex(17)}"
        self.users[name], self.tokens[token] = tuple(orgs), name
        return token

    def token(self, name: str) -> str:
        """The token of a user."""
        return next(token for token, user in self.tokens.items() if user == name)

    def repo(self, repo_id: str, repo_type: str | None = "model") -> Repo:
        return self.repos[repo_type or "model", repo_id]

    def repo_exists(self, repo_id: str, repo_type: str | None = "model") -> bool:
        return (repo_type or "model", repo_id) in self.repos

    def is_private(self, repo_id: str, repo_type: str | None = "model") -> bool:
        return self.repo(repo_id, repo_type).private

    def set_private(self, repo_id: str, private: bool, repo_type: str | None = "model"):
        self.repo(repo_id, repo_type).private = private

    def files(self, repo_id: str, revision: str = "main", repo_type: str | None = "model") -> dict[str, bytes]:
        """What a clone would hold, the content of LFS and Xet files in place of their pointers."""
        return self.repo(repo_id, repo_type).resolve(revision).files

    def commits(self, repo_id: str, revision: str = "main", repo_type: str | None = "model") -> list[Commit]:
        """The history, newest first; a repo starts with an initial commit of ``.gitattributes``."""
        return self.repo(repo_id, repo_type).log(revision)

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """(where, bytes) of all that ever arrived, also in repos deleted since; tokens of users excepted."""
        yield from list(self.received)

    def keep(self, where: str, content: bytes | str):
        """Add to what ``everything`` gives."""
        self.received.append((where, content.encode() if isinstance(content, str) else content))

    def fail(
        self,
        *,
        status: int | None = None,
        cut_after: int | None = None,
        lose_answer: bool = False,
        delay: float = 0.0,
        retry_after: int | None = None,
        method: str | None = None,
        path: str | re.Pattern = ".*",
        times: int = 1,
        change: Callable[[bytes], Iterable[bytes]] | None = None,
        headers: dict[str, str] | None = None,
    ):
        """Let the next ``times`` requests that match go wrong.

        Parameters
        ----------
        status
            Answer with this status; nothing is done.
        cut_after
            Cut the connection after so many bytes of the request's body if it has one (nothing is done), of the
            answer's body otherwise.
        lose_answer
            Do what was asked, and cut the connection in place of answering.
        delay
            Wait so many seconds first; alone, the answer is then the usual one.
        retry_after
            Seconds for a ``Retry-After`` header beside ``status``.
        change, headers
            What to send in place of the answer's body, piece by piece, without saying how long it is; and headers to
            send with it.
        method, path
            Which requests: a method, and a regular expression searched in the path with its query.
        """
        pattern = re.compile(path)
        fault = Fault(
            status, cut_after, lose_answer, delay, retry_after, method, pattern, times, change, headers or {}
        )
        self.faults.append(fault)

    def take_fault(self, method: str, target: str) -> Fault | None:
        with self._lock:
            fault = next((fault for fault in self.faults if fault.matches(method, target)), None)
            if fault is not None:
                fault.times -= 1
                self.faults = [fault for fault in self.faults if fault.times > 0]
            return fault

    def answer(self, request: Request) -> Answer:
        """Do what a request asks, one at a time."""
        with self._lock:
            try:
                return routing.dispatch(self, request)
            except HubError as error:
                return reply({"error": error.message}, error.status, error.headers)
            except Exception:  # a mistake in here: show it, and do not let the client take it for a bad network
                traceback.print_exc()
                return reply({"error": "the loopback Hub itself failed: see stderr"}, 501)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, *args):
        self._connections = set()
        super().__init__(*args)

    def process_request(self, connection, address):
        self._connections.add(connection)
        super().process_request(connection, address)

    def shutdown_request(self, connection):
        self._connections.discard(connection)
        super().shutdown_request(connection)

    def cut_all(self):
        """Cut the connections that clients keep alive: a stopped server answers nobody."""
        for connection in list(self._connections):
            _cut(connection)

    def handle_error(self, connection, address):
        pass  # a client that went away


class _Cut(Exception):
    """The connection is to be cut here."""


def _cut(connection: socket.socket):
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer waits for the client's delayed acknowledgement
    hub: LoopbackHub

    def do_GET(self):
        target = urlsplit(self.path)
        request = Request(self.command, target.path, parse_qs(target.query), self.headers)
        self.hub.requests.append(request)
        fault = self.hub.take_fault(self.command, self.path)
        try:
            if fault is not None and fault.delay:
                time.sleep(fault.delay)
            self._read_body(request, fault.cut_after if fault else None)
            if fault is not None and fault.status is not None:
                wait = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
                answer = reply({"error": f"told to fail with {fault.status}"}, fault.status, wait)
            else:
                answer = self.hub.answer(request)
            if fault is not None and fault.lose_answer:
                raise _Cut
            request.status = answer.status
            if fault is not None and fault.change is not None:
                self._send_changed(answer, fault)
                return
            self._send(answer, fault.cut_after if fault and fault.status is None else None)
        except _Cut:
            request.status = None
            self.close_connection = True
            _cut(self.connection)
        finally:
            self._record(request)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def _read_body(self, request: Request, limit: int | None):
        """Read the body as it comes, plain or in chunks; cut after ``limit`` bytes of it."""
        chunks = self._chunks() if "chunked" in self.headers.get("Transfer-Encoding", "") else self._plain()
        body = bytearray()
        try:
            for chunk in chunks:
                body += chunk
                if limit is not None and len(body) >= limit:
                    raise _Cut
        finally:
            request.body = bytes(body[:limit])  # also of a cut request: these bytes did arrive

    def _plain(self) -> Iterator[bytes]:
        left = int(self.headers.get("Content-Length") or 0)
        while left > 0:
            chunk = self.rfile.read1(min(left, 2**16))
            if not chunk:
                raise _Cut  # the client went away
            left -= len(chunk)
            yield chunk

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().split(b";")[0] or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _send(self, answer: Answer, cut_after: int | None):
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(answer.body[:cut_after])
        if cut_after is not None:
            raise _Cut

    def _send_changed(self, answer: Answer, fault: Fault):
        self.send_response(answer.status)
        for name, value in {**answer.headers, **fault.headers, "Transfer-Encoding": "chunked"}.items():
            self.send_header(name, value)
        self.end_headers()
        for piece in fault.change(answer.body):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def _record(self, request: Request):
        where = f"{request.method} {request.path}"
        self.hub.keep(f"{where}: URL", unquote(self.path) + "\n" + self.path)
        self.hub.keep(f"{where}: body", request.body)
        lines = (f"{name}: {value}" for name, value in self.headers.items() if name.lower() != "authorization")
        self.hub.keep(f"{where}: headers", "\n".join(lines))

    def log_message(self, *args):
        pass
