"""The files that make a repository with a protected model an Inference Endpoint; pushed on request."""

from pathlib import Path

from .._version import __version__

_TEMPLATE = Path(__file__).parent / "templates" / "handler.py"


def handler_files() -> dict[str, bytes]:
    """The custom handler and what it needs installed, by their names in the repository.

    The handler loads the protected model with the key that lies beside it (or that a pointer leads to), takes the
    passphrase from the environment variable ``DRW_PASSPHRASE``, and does not start without the key.
    """
    return {"handler.py": _TEMPLATE.read_bytes(), "requirements.txt": f"drw_hf>={__version__}\n".encode()}
