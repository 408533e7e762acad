"""The options of asking, which every function that asks somebody takes: documented here, once."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..checks import check_options, whole_number


class AskingOptions(TypedDict, total=False):
    """How a model, a service or a function is asked; the keyword arguments of whatever asks.

    Parameters
    ----------
    text_columns : str or sequence of str, optional
        The column of a data set (or two, for pairs) that is asked; by default found by its usual name.
    batch_size : int
        Questions asked at once; 32 by default.
    max_length : int, optional
        Truncate questions to this many tokens; by default the limit of the model that is asked. Where a suspect is
        probed, it limits the owner's tokens, by which the key hashes, and by default it is what the key records; the
        suspect reads as much as it can.
    max_retries : int
        How often a service that fails in a way that may pass is asked again, with growing pauses; 5 by default.
    cache_dir : path, optional
        Where answers are kept as they come; by default beside the data set's own cache. A run that was killed and is
        called again with the same arguments goes on where it stopped. A callable is recognised by its code and what
        it closes over, or, in a folder that you name here, by its name alone.
    load_from_cache_file : bool
        Use the answers of an earlier run with the same questions, model and options, as is the default.
    progress : bool
        Show progress bars, as is the default.
    """

    text_columns: str | Sequence[str] | None
    batch_size: int
    max_length: int | None
    max_retries: int
    cache_dir: str | os.PathLike[str] | None
    load_from_cache_file: bool
    progress: bool


# None is that of the others.
DEFAULTS = AskingOptions(batch_size=32, max_retries=5, load_from_cache_file=True, progress=True)


def asking_options(function: str, given: Mapping[str, Any], known: Any = AskingOptions) -> AskingOptions:
    """All options of asking, as given to a function that takes the options of the TypedDict ``known``."""
    check_options(function, given, known)
    options = {name: given.get(name, DEFAULTS.get(name)) for name in AskingOptions.__annotations__}
    for name, least in (("batch_size", 1), ("max_retries", 0), ("max_length", 1)):
        if name != "max_length" or options[name] is not None:
            whole_number(name, options[name], least)
    return AskingOptions(**options)  # type: ignore[typeddict-item]  # mypy does not follow the names
