"""Telling how far a run is, and how long it will still take."""

import contextlib
from collections.abc import Callable, Iterator

from .jobs import Run


@contextlib.contextmanager
def progress_bar(
    run: Run, name: str, seconds_left: Callable[[], float | None], workers: int, shown: bool
) -> Iterator[Callable[[], None]]:
    """A bar of jobs, with the time that one worker would need for those that are left; gives what updates it."""
    from tqdm.auto import tqdm

    look = {"bar_format": "{l_bar}{bar}| {n_fmt}/{total_fmt} jobs, {postfix}", "desc": name}
    with tqdm(total=len(run.jobs), disable=not shown, **look) as bar:

        def update() -> None:
            bar.n = len(run.jobs) - len(run.open_jobs())
            left = seconds_left()
            known = "time left not known yet" if left is None else f"about {in_words(left / workers)} left"
            bar.set_postfix_str(known)

        update()
        yield update


def in_words(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
