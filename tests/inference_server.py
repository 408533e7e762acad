"""A loopback inference service that the real InferenceClient talks to over HTTP, and that can be told to fail."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class InferenceServer:
    """Answers POSTs with ``answer(payload)``; ``faults`` is a list of (status, headers) served first."""

    def __init__(self, answer, faults=()):
        self.answer, self.faults, self.requests = answer, list(faults), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.requests.append(payload)
                if outer.faults:
                    status, headers = outer.faults.pop(0)
                    if status is None:  # cut the connection
                        self.connection.close()
                        return
                    self._send(status, {"error": "told to fail"}, headers)
                else:
                    self._send(200, outer.answer(payload), {})

            def _send(self, status, body, headers):
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def running(self):
        """Serve until the context ends."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
