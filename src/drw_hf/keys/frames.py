"""Errors without secrets: error reporters show the local variables of every frame that an error passed through."""

import functools
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..errors import DrwError

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def forgets_locals(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Let a function that is given a passphrase, or handles a secret, raise errors whose frames hold no variables.

    The frames themselves stay, so a traceback tells as ever where it happened. Our own errors say what was wrong, and
    come without the error that led to them: that one may hold what it could not read.
    """

    @functools.wraps(function)
    def forgetful(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        handled = sys.exception()  # what the caller is in the middle of handling is the caller's own
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            del args, kwargs
            _forget(error, handled)
            raise

    return forgetful


def _forget(error: BaseException, handled: BaseException | None) -> None:
    pending: list[BaseException | None] = [error]
    seen = {id(handled)}
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        if isinstance(one, DrwError):
            suppressed = one.__suppress_context__
            one.__cause__, one.__context__ = None, handled
            one.__suppress_context__ = suppressed or handled is None
        pending += [one.__cause__, one.__context__]
