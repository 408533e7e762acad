"""The marks by name, for keys to look them up; what a mark does to answers is in :mod:`drw_hf.watermark`."""

from typing import TYPE_CHECKING

from ..errors import DrwError, InvalidKeyError
from ..registry import Registry

if TYPE_CHECKING:
    from ..watermark.mark import Mark

MARKS: "Registry[Mark]" = Registry("mark")


def mark_named(name: str, error: type[DrwError] = InvalidKeyError) -> "Mark":
    """The registered mark of this name."""
    from ..watermark import Mark  # noqa: F401  # the package registers its marks

    return MARKS.get(name, error, "; update drw_hf, or import the module that registers it")
