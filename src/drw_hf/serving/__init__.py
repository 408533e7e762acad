"""Serving a protected model over HTTP: the Inference protocol, customers by token, a log of what was answered.

Needs the extra ``drw_hf[serve]``.
"""

import importlib.util

from ..errors import CannotLoadError

if not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))):
    raise CannotLoadError("serving needs starlette and uvicorn; install them with `pip install drw_hf[serve]`")

from .app import create_app
from .limits import Limits

__all__ = ["Limits", "create_app"]
