"""``drw-hf``: thin commands over the public API."""

from .main import app


def main() -> None:
    """The console script."""
    app()
