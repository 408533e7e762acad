"""Services of the tests: an app behind a real uvicorn in a thread, or ``drw-hf serve`` in processes of its own."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.routing import Route

from drw_hf.serving import Limits
from drw_hf.serving.connections import server_config
from drw_hf.serving.running import address_of, listen

TESTS = Path(__file__).parent


@contextlib.contextmanager
def served(app, limits=None):
    """The app at an address of this machine, until the context ends."""
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(server_config(app, limits or Limits()))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield address_of(listening)
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


def endpoint_app(handler):
    """What the inference toolkit puts around an Inference Endpoint's handler, as it was read in its sources.

    The handler gets the body and nothing else; parameters of the address become the body's, if that has none.
    """

    def typed(value):
        return {"true": True, "false": False}.get(value, int(value) if value.isnumeric() else value)

    async def predict(request):
        try:
            body = await request.json()
            if "inputs" not in body:
                raise ValueError("Body needs to provide a inputs key")
            if request.query_params and "parameters" not in body:
                body["parameters"] = {name: typed(value) for name, value in request.query_params.items()}
            return JSONResponse(await run_in_threadpool(handler, body))
        except Exception as error:
            return JSONResponse({"error": str(error)}, status_code=400)

    return Starlette(routes=[Route(path, predict, methods=["POST"]) for path in ("/", "/predict")])


class Command:
    """A running ``drw-hf serve``."""

    def __init__(self, folder, *options, variables=None):
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(variables or {})}
        self.errors = folder / f"stderr-{time.monotonic_ns()}.txt"
        command = [sys.executable, "-W", "ignore", "-m", "drw_hf.cli", "serve", *map(str, options), "--port", "0"]
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )

    def said(self):
        return self.errors.read_text()

    def wait(self, seconds=300):
        """The address, once it answers."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"Serving .* at (http://\S+),", self.said())
            if found:
                self.address = found[1]
                return found[1]
            time.sleep(0.05)
        raise AssertionError(self.said())

    def end(self, number=signal.SIGTERM, seconds=120):
        """End it in order; returns what it printed at last."""
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=seconds)
        return out.decode()


@contextlib.contextmanager
def serving(folder, *options, **others):
    """``drw-hf serve`` with these options, answering; killed at the end if it was not ended before."""
    command = Command(folder, *options, **others)
    try:
        command.wait()
        yield command
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGTERM)  # its own session; workers end with it
        with contextlib.suppress(subprocess.TimeoutExpired):
            command.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(command.process.pid, signal.SIGKILL)
        command.process.wait()
        if command.process.stdout:
            command.process.stdout.close()


def ask(address, body, path="/", token=None, method="POST", headers=None, timeout=30):
    """A plain request; returns status, headers and the JSON that came back. ``body`` may be bytes or a document."""
    host, port = address.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **(headers or {})}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    try:
        connection.request(method, path, content, given)
        response = connection.getresponse()
        answer = response.read()
        said = dict(response.getheaders())
    finally:
        connection.close()
    is_json = said.get("content-type") == "application/json"
    return response.status, said, json.loads(answer) if is_json and answer else answer
