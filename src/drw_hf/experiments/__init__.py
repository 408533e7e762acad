"""Experiments with the watermark: corpora, extraction attacks, and the figures they give."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError


def read_table(name: str) -> dict[str, Any]:
    """A TOML file of the folder ``data``."""
    return tomllib.loads((Path(__file__).parent / "data" / f"{name}.toml").read_text(encoding="utf-8"))


def library(name: str) -> Any:
    """A module that only the experiments need, imported when they need it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f'the experiments need {name.partition(".")[0]}; install it with `pip install "drw_hf[experiments]"`'
        ) from None
