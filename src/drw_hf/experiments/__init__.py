"""Experiments with the watermark: corpora, extraction attacks, and the figures they give."""

import tomllib
from pathlib import Path
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """A TOML file of the folder ``data``."""
    return tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text(encoding="utf-8"))
