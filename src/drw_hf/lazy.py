"""Names of a package that are imported when they are first asked for."""

import importlib
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

# Threads that each import a part of the package for the first time would wait for each other's import locks.
_one_at_a_time = threading.RLock()


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose names live in ``homes``: name to submodule.

    A name that is its own home is that submodule; a home that begins with a dot lies in the package above.
    """

    def __getattr__(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with _one_at_a_time:
            module = importlib.import_module(f".{homes[name]}", package)
        value = module if name == homes[name] else getattr(module, name)
        setattr(sys.modules[package], name, value)  # next time nobody has to ask
        return value

    def __dir__() -> list[str]:
        return sorted(sys.modules[package].__all__)

    return __getattr__, __dir__
