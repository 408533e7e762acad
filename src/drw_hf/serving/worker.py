"""One of several processes of a service: ``python -m drw_hf.serving.worker FILE``, started by ``drw-hf serve``."""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import torch

from ..errors import DrwError
from .running import run_app
from .settings import app_from, take_over


def _end_with(parent: int) -> None:
    """End in order when the process that started this one is gone, however it ended."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Serve at the socket that was passed on."""
    try:
        settings, secrets, key, (descriptor, ready, number, n_workers, parent) = take_over(Path(sys.argv[1]))
        # Before the model is loaded, so that no worker is left over if the other process ends meanwhile.
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        torch.set_num_threads(max(1, torch.get_num_threads() // n_workers))
        app = app_from(settings, secrets, key)
        port = None if settings.metrics_port is None else settings.metrics_port + number
        del secrets

        def started() -> None:
            with contextlib.suppress(OSError):  # whoever waited for it is gone
                os.write(ready, b"1")

        run_app(app, socket.socket(fileno=descriptor), started, settings.limits, port)
    except (DrwError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
