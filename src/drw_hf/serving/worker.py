"""One of several processes of a service: ``python -m drw_hf.serving.worker FILE``, started by ``drw-hf serve``."""

import contextlib
import os
import socket
import sys
from pathlib import Path

import torch

from ..errors import DrwError
from .running import run_app
from .settings import app_from, take_over


def main() -> int:
    """Serve at the socket that was passed on."""
    try:
        settings, secrets, key, (descriptor, ready, number, n_workers) = take_over(Path(sys.argv[1]))
        torch.set_num_threads(max(1, torch.get_num_threads() // n_workers))
        app = app_from(settings, secrets, key)
        port = None if settings.metrics_port is None else settings.metrics_port + number
        del secrets

        def started() -> None:
            with contextlib.suppress(OSError):  # whoever waited for it is gone
                os.write(ready, b"1")

        run_app(app, socket.socket(fileno=descriptor), started, settings.limits.timeout, port)
    except (DrwError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
