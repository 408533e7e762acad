"""What a demo says while it works, and what it keeps quiet."""

import contextlib
import sys
import time
from collections.abc import Iterator

import datasets
import huggingface_hub.utils
import torch
import transformers


class Stages:
    """A line for every stage on stderr, and how long each took."""

    def __init__(self, silent: bool):
        self.silent, self.start = silent, time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.start

    @contextlib.contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Around what a line says."""
        begun = self.elapsed
        self._say(f"[{begun:4.0f} s] {text} ...", newline=False)
        try:
            yield
        except BaseException:
            self._say("")
            raise
        self.seconds[name] = round(self.elapsed - begun, 1)
        self._say(f" {self.seconds[name]:.0f} s")

    def _say(self, text: str, newline: bool = True) -> None:
        if not self.silent:
            print(text, end="\n" if newline else "", file=sys.stderr, flush=True)


@contextlib.contextmanager
def quiet(one_thread: bool) -> Iterator[None]:
    """Bars and notes of the libraries off; small models learn faster in one thread than in two."""
    verbosity, threads = transformers.logging.get_verbosity(), torch.get_num_threads()
    bars = not datasets.are_progress_bars_disabled()
    huggingface_hub.utils.disable_progress_bars()
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    torch.set_num_threads(1 if one_thread else threads)
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        torch.set_num_threads(threads)
        if bars:
            datasets.enable_progress_bars()
