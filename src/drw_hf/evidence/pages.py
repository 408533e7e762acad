"""Pages for people: templates that look alike, and print whatever others wrote as visible text and nothing else."""

import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

from ..detection.result import as_iso, moment_of
from ..errors import InvalidInputError
from ..wording import one_in, small_p

if TYPE_CHECKING:
    from jinja2 import Template


@cache
def page_template(name: str, package: str = __package__) -> "Template":
    """A page of a package as a template that escapes whatever it prints, after it has made it visible.

    It may take ``head.html``, ``parts.html`` and ``style.css`` of this package, which all pages share.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(one) for one in dict.fromkeys((package, __package__))]),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "moment": _moment,
        "number": lambda value, form=",": format(value, form),
        "one_in": one_in,
        "quoted": shlex.quote,
        "shortened": _shortened,
        "small_p": small_p,
        "visible": _visible,
    }
    return environment.get_template(name)


def _visible(value: Any) -> Any:
    """Text in which nothing is invisible: marks that turn the direction of writing would hide what is said."""
    if hasattr(value, "__html__"):  # it went through here already
        return value
    return "".join(letter if letter.isprintable() else f"⟨U+{ord(letter):04X}⟩" for letter in str(value))


def _shortened(value: Any, most: int = 300) -> str:
    """What others wrote, kept to a length; the whole is in the JSON."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters in all)"


def _moment(value: Any) -> str:
    """A date or a time as people read it; what is none, as it is."""
    try:
        iso = as_iso(value)
    except InvalidInputError:
        return value
    return iso if len(iso) == len("2026-03-31") else f"{moment_of(iso):%Y-%m-%d %H:%M:%S} UTC"
