"""Counters of a service, as Prometheus reads them.

They are for the owner alone: nothing in them tells what was marked, but how much others ask is nobody's business.
"""

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EXPOSITION = "text/plain; version=0.0.4"
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """What a service did since it started."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.texts = self.log_failures = 0
        self._seconds: Counter[float] = Counter()
        self._total = 0.0
        self.gauges: Mapping[str, Callable[[], float]] = {}

    def count(self, status: int, seconds: float) -> None:
        """Note that a request was answered with a status after so many seconds."""
        self.requests[status] += 1
        self._total += seconds
        for bound in _BUCKETS:
            self._seconds[bound] += seconds <= bound

    def text(self) -> str:
        """The exposition format."""
        lines = ["# TYPE drw_requests_total counter"]
        lines += [f'drw_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())]
        lines.append("# TYPE drw_request_seconds histogram")
        lines += [f'drw_request_seconds_bucket{{le="{bound}"}} {self._seconds[bound]}' for bound in _BUCKETS]
        n_requests = self.requests.total()
        lines.append(f'drw_request_seconds_bucket{{le="+Inf"}} {n_requests}')
        lines += [f"drw_request_seconds_sum {self._total:.6f}", f"drw_request_seconds_count {n_requests}"]
        counters = {"drw_texts_total": self.texts, "drw_log_failures_total": self.log_failures}
        values = {**counters, **{name: value() for name, value in self.gauges.items()}}
        for name, value in values.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE {name} {kind}", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def metrics_on(port: int, metrics: Metrics) -> Iterator[int]:
    """Within this context counters can be read on a port of this machine, and from no other; returns the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = metrics.text().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", EXPOSITION)
            self.end_headers()
            self.wfile.write(content if self.path == "/metrics" else b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
