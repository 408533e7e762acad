"""Folders of results that are there whole or not at all."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A folder to write into, which becomes ``path`` when all is written."""
    folder = path.with_name(path.name + ".part")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder
    shutil.rmtree(path, ignore_errors=True)
    folder.rename(path)
