"""The folder that a demo writes: it is ours, or it is left alone."""

import json
import shutil
from pathlib import Path

from ..errors import ConfigurationError

FORMAT = "drw-demo-1"
REPORT, NEXT_STEPS = "demo.json", "next-steps.md"
PARTS = ("protected", "key", "figures", "evidence")  # the folders that a demo writes


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something which no demo wrote."""
    if folder.is_dir() and (not any(folder.iterdir()) or _is_ours(folder)):
        return
    if folder.exists():
        raise ConfigurationError(f"{folder} holds something that is not a demo of ours; choose another --output")


def claim(folder: Path) -> None:
    """Make the folder ours, and remove what an earlier demo wrote: nobody can open its key any more."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # First, so that an interrupted demo can be repeated.
    (folder / REPORT).write_text(json.dumps({"format": FORMAT, "complete": False}) + "\n", encoding="utf-8")
    for part in PARTS:
        shutil.rmtree(folder / part, ignore_errors=True)
    (folder / NEXT_STEPS).unlink(missing_ok=True)


def _is_ours(folder: Path) -> bool:
    try:
        return json.loads((folder / REPORT).read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        return False
