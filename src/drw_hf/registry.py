"""Things that are found by name: marks, hash rules, statistics, predictors, attacks.

Each kind has one :class:`Registry`. Something new is one module and one registration; whatever reads a name (a key
file, saved evidence, an option) looks it up there.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from .errors import DrwError, InvalidInputError

Thing = TypeVar("Thing")


class Registry(Generic[Thing]):
    """Things of one kind by name; a name is given once and means the same thing ever after.

    ``kind`` is what messages call one of them, like ``"hash rule"``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, Thing] = {}

    def add(self, name: str, thing: Thing, error: type[DrwError] = InvalidInputError) -> Thing:
        """Register a thing under a name and return it; registering the same thing again does nothing."""
        if self._things.setdefault(name, thing) is not thing:
            raise error(f"another {self.kind} is registered as {name!r}; choose another name")
        return thing

    def get(self, name: str, error: type[DrwError] = InvalidInputError, hint: str = "") -> Thing:
        """The thing of this name; ``hint`` says what else may help where there is none."""
        if name not in self._things:
            raise error(f"there is no {self.kind} {name!r}; choose one of {sorted(self._things)}{hint}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._things))

    def items(self) -> Iterator[tuple[str, Thing]]:
        """Names and things, in the order in which they were registered."""
        return iter(list(self._things.items()))

    def remove(self, name: str) -> None:
        """Forget a thing: for whoever tries one out in a notebook or a test. Those of the package must stay."""
        del self._things[name]
