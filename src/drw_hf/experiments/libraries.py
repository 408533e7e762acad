"""Libraries that only the experiments need: the extra ``experiments``."""

import importlib
from typing import Any

from ..errors import ConfigurationError


def library(name: str) -> Any:
    """A module of a library of the extra, imported when it is needed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f'the experiments need {name.partition(".")[0]}; install it with `pip install "drw_hf[experiments]"`'
        ) from None
