"""Folders of results that are there whole or not at all."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A folder to write into, which becomes ``path`` when all is written."""
    folder = path.with_name(path.name + ".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(path, ignore_errors=True)
    folder.rename(path)


def make_once(path: Path, write: Callable[[Path], object]) -> None:
    """Have a folder written, unless it is there; of several processes that want it one makes it, the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")):
        if not path.exists():
            with written_whole(path) as folder:
                write(folder)
