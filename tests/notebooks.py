"""Runs the notebooks. ``python -m tests.notebooks`` (``make notebooks``) writes their outputs anew.

The one about the Hub runs against the loopback Hub of the tests: huggingface.co is not contacted.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sys.path.insert(0, str(Path(__file__).parent))
from loopback_hub import LoopbackHub

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def execute(path: Path, small: bool) -> nbformat.NotebookNode:
    """A notebook with the outputs of a fresh run; raises where a cell does."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder, _environment(path, folder, small) as environment:
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", record_timing=False, resources={"metadata": {"path": folder}}
        )
        client.execute(env=environment)
    return notebook


@contextlib.contextmanager
def _environment(path: Path, folder: str, small: bool) -> Iterator[dict[str, str]]:
    environment = {
        **os.environ,
        "HF_HOME": folder,
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore:IProgress not found",  # tqdm misses widgets, and no bar is shown here
        "DRW_SMALL": "1" if small else "",
    }
    if small:  # as the other tests: two threads that wait for busy cores take many times as long as one
        environment["OMP_NUM_THREADS"] = "1"
    if "serve" in path.stem:  # in offline mode the client does not even ask this machine
        environment["HF_HUB_OFFLINE"] = "0"
    if "hub" not in path.stem:
        yield environment
        return
    with LoopbackHub() as hub:
        hub.xet = False
        online = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.add_user("me"), "HF_HUB_OFFLINE": "0"}
        yield {**environment, **online, "HF_HUB_DISABLE_XET": "1"}


def main() -> None:
    """Run the notebooks and keep their outputs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], prog="python -m tests.notebooks")
    parser.add_argument("names", nargs="*", help="parts of the names of those to run (default: all)")
    wanted = parser.parse_args().names
    for path in NOTEBOOKS:
        if not wanted or any(name in path.name for name in wanted):
            print(path.name, flush=True)
            nbformat.write(execute(path, small=False), path)


if __name__ == "__main__":
    main()
