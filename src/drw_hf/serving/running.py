"""Running the app: in this process, or in several that share one socket and are started again when they die."""

import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from ..errors import InvalidInputError, ServiceFailedError
from .connections import server_config
from .limits import Limits
from .metrics import metrics_on
from .settings import ServiceSecrets, ServiceSettings, hand_over

logger = logging.getLogger(__name__)
_BACKLOG = 2048
_SHORT_LIFE, _PAUSE = 60.0, 1.0  # seconds: a worker that lived no longer is started again after a pause


def listen(host: str, port: int) -> socket.socket:
    """The socket of a service."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidInputError(
            f"cannot listen at {host}:{port}: {why}; choose another --port, or another --host"
        ) from None


def address_of(listening: socket.socket) -> str:
    """The address of a service, for people and clients."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn, which says when it answers."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._say = started

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self._say()


def run_app(
    app: Starlette,
    listening: socket.socket,
    started: Callable[[], None],
    limits: Limits,
    metrics_port: int | None = None,
) -> None:
    """Serve until a signal says to end; what was taken on by then is answered."""
    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            stack.enter_context(metrics_on(metrics_port, app.state.metrics))
        stack.enter_context(_quiet_signals())
        _Server(server_config(app, limits), started).run(sockets=[listening])


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """uvicorn raises the signals that it ended by once more, for whoever waits for them: here nobody does."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# -- several processes


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    file: Path  # what was handed over, which it removes as it reads it
    ready: int  # the end of a pipe that becomes readable when it answers
    born: float
    has_answered: bool = False

    def look(self) -> bool:
        """Whether it lives; notes whether it answers."""
        if self.process.poll() is not None:
            self.forget()
            return False
        if not self.has_answered and select.select([self.ready], [], [], 0)[0]:
            self.has_answered = bool(os.read(self.ready, 1))
        return True

    def forget(self) -> None:
        """Remove what is left of it."""
        self.file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.close(self.ready)


class Workers:
    """Processes that answer at one socket. One that dies is started again; all end together."""

    def __init__(
        self,
        n_workers: int,
        listening: socket.socket,
        settings: ServiceSettings,
        secrets: ServiceSecrets,
        place: tuple[str, str],
    ) -> None:
        self._listening, self._settings, self._secrets, self._place = listening, settings, secrets, place
        self._ending, self._n_workers = False, n_workers
        self._workers: list[_Worker] = []

    def run(self, started: Callable[[], None]) -> None:
        """Work until a signal says to end; ``started`` is called when all answer for the first time."""
        before = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        all_answered = False
        try:
            self._workers = [self._start(number) for number in range(self._n_workers)]
            while not self._ending:
                dead = [number for number, worker in enumerate(self._workers) if not worker.look()]
                if dead and not all_answered:
                    raise ServiceFailedError("a worker of the service did not start; see what it said above")
                for number in dead:
                    self._replace(number)
                if not all_answered and all(worker.has_answered for worker in self._workers):
                    all_answered = True
                    started()
                time.sleep(0.05)
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, *_: Any) -> None:
        self._ending = True

    def _start(self, number: int) -> _Worker:
        reading, writing = os.pipe()
        passed = (self._listening.fileno(), writing)
        file = hand_over(self._settings, self._secrets, self._place, [*passed, number, self._n_workers, os.getpid()])
        # A session of its own: an interrupt at the terminal reaches this process, which ends them in order.
        process = subprocess.Popen(
            [sys.executable, "-m", "drw_hf.serving.worker", str(file)], pass_fds=passed, start_new_session=True
        )
        os.close(writing)
        return _Worker(process, file, reading, time.monotonic())

    def _replace(self, number: int) -> None:
        """Start a worker again, not at once if it hardly lived: what ended it may pass, as a full disk does."""
        worker = self._workers[number]
        logger.warning("a worker ended (%s) and is started again", worker.process.returncode)
        if time.monotonic() - worker.born < _SHORT_LIFE:
            time.sleep(_PAUSE)
        self._workers[number] = self._start(number)

    def _stop(self) -> None:
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGTERM)
        patience = time.monotonic() + self._settings.limits.timeout + 10
        for worker in self._workers:
            try:
                worker.process.wait(max(0.1, patience - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.forget()
