"""Points the real client of this process, or of a child, at a loopback Hub.

The client is imported late, in the functions: it reads ``HF_ENDPOINT`` on import, and that needs the Hub's port.
"""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from .server import LoopbackHub

# Read when a session of hf_xet starts; by default it waits much longer before a new attempt.
XET_SETTINGS = {"HF_XET_CLIENT_RETRY_BASE_DELAY": "10ms", "HF_XET_TELEMETRY_ENABLED": "0"}


class HubOfTest(LoopbackHub):
    """A loopback Hub with what a test asks of the client on its side."""

    home: Path
    waits: list[float]  # seconds that the client meant to wait before it tried again, and did not

    def point_client(self, monkeypatch, home: Path, *, token: str):
        """Let this process's client use this Hub: on line, with caches under ``home``, and without waiting."""
        import evaluate
        from huggingface_hub import constants, file_download, utils
        from huggingface_hub.utils import _cache_manager, _http, _xet

        if {constants.ENDPOINT, evaluate.config.HF_ENDPOINT} != {self.url}:
            raise RuntimeError(
                f"the client was imported before HF_ENDPOINT was set to {self.url}: it would leave loopback"
            )
        self.home, self.waits = home, []
        utils.build_hf_headers()  # while off line: else the first call asks who is calling
        self._set_offline(monkeypatch, False)
        for name, value in {**self.environment(token), **XET_SETTINGS}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "HF_HOME", str(home))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(_cache_manager, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_XET_CACHE", str(home / "xet"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
        monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(home / "assets"))
        # A download resumes after whole chunks of 10 MiB; smaller ones show it with small files.
        monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 2**12)
        monkeypatch.setattr(evaluate.config, "DOWNLOADED_EVALUATE_PATH", home / "evaluate" / "downloads")
        monkeypatch.setattr(evaluate.config, "HF_UPDATE_DOWNLOAD_COUNTS", False)  # else it counts on S3
        without_waiting = SimpleNamespace(sleep=self.waits.append)
        monkeypatch.setattr(_http, "time", without_waiting)
        monkeypatch.setattr(file_download, "time", without_waiting)
        monkeypatch.setattr(_xet, "_GLOBAL_XET_HOLDER", _xet.XetSessionHolder())
        _xet.XET_CONNECTION_INFO_CACHE.clear()
        self.use_xet(monkeypatch, False)

    def use_xet(self, monkeypatch, xet: bool):
        """Choose the way large files take, on both sides."""
        from huggingface_hub import constants

        self.xet = xet
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", not xet)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", str(int(not xet)))

    @contextlib.contextmanager
    def offline(self):
        """Within, the client is off line: what works, works from its cache."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            self._set_offline(monkeypatch, True)
            yield

    @staticmethod
    def _set_offline(monkeypatch, offline: bool):
        import datasets
        import evaluate
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(evaluate.config, "HF_EVALUATE_OFFLINE", offline)
        monkeypatch.setenv("HF_HUB_OFFLINE", str(int(offline)))

    def environment(self, token: str | None = None) -> dict[str, str]:
        """What a child process needs, beside its own environment, to use this Hub as the owner or with ``token``."""
        from huggingface_hub import constants

        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": token or self.token("owner"),
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(self.home),
            "HF_XET_CACHE": str(self.home / "xet"),
            "HF_HUB_DISABLE_XET": str(int(constants.HF_HUB_DISABLE_XET)),
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
