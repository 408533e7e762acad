"""Who is named, and why: Holm's correction, the verdict and its words, and who was declared beforehand."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..detection.statistics.amplitudes import MIN_TOKENS
from ..detection.statistics.saddlepoint import ExactTest, corrected
from ..detection.verdict import SMALLEST_EFFECT, Corrections, judge
from ..errors import InvalidInputError
from ..keys.merkle import Declaration
from ..keys.ring import KeyRing
from .identification import Outcome, UserFinding
from .users import Users, stream_users


class Finalist(NamedTuple):
    """A user who may matter: by name, by number, and with the exact statistic T."""

    user: str
    place: int
    statistic: float


def rank_users(
    finalists: Sequence[Finalist],
    test: Callable[[float], ExactTest],
    family: int,
    others: int,
    level: float,
    top: int,
) -> tuple[list[UserFinding], int]:
    """The strongest users with corrected p-values, and how many of them are named; ``test`` is the exact one of T.

    Holm's procedure stops at the first who is not named; later ones are tested for the ranking alone.
    """
    tests: list[ExactTest] = []
    n_named = 0
    for rank, finalist in enumerate(finalists):
        tests.append(test(finalist.statistic))
        if n_named == rank and corrected(tests[-1].log10_bound, family - rank, others) <= math.log10(level):
            n_named += 1
        elif rank + 1 >= top:
            break
    bounds = holm([found.log10_bound for found in tests], family, others)
    findings = [
        UserFinding(finalist.user, found.log10_p, found.log10_bound, found.z_score, bound)
        for finalist, found, bound in zip(finalists, tests, bounds, strict=False)
    ]
    return findings, n_named


def holm(log10_p: Sequence[float], family: int, others: int = 1) -> list[float]:
    """log₁₀ of Holm's corrected p-values, for the smallest of a family in ascending order.

    Each is multiplied with ``others`` besides: the suspects and the looks.
    """
    found = [corrected(value, family - rank, others) for rank, value in enumerate(log10_p)]
    return list(itertools.accumulate(found, max))


def look_up(ring: KeyRing, epoch: int, leakers: list[UserFinding], listed: Users) -> list[UserFinding]:
    """Whether the leakers are on the list that was declared; nothing is known where this list is another one."""
    if not leakers or isinstance(listed, Iterator):
        return leakers
    wanted = {finding.user for finding in leakers}
    there = {user for user in stream_users(listed)[0] if user in wanted}
    first = next(stream_users(listed)[0], None)
    if first is None:  # an empty list was never declared
        return leakers
    try:
        ring.prove(first, _Again(listed), epoch=epoch)
    except InvalidInputError:
        return leakers
    return [dataclasses.replace(finding, declared=finding.user in there) for finding in leakers]


@dataclass(frozen=True)
class _Again(Iterable[str]):
    """Users that can be gone through more than once, whatever they are read from."""

    users: Users

    def __iter__(self) -> Iterator[str]:
        return stream_users(self.users)[0]


def judge_users(
    leakers: list[UserFinding], strongest: ExactTest, level: float, corrections: Corrections, n_users: int
) -> tuple[Outcome, int | None, str]:
    """The verdict, how many distinct tokens an undecided one would need, and a sentence that says why."""
    if leakers:
        names = ", ".join(repr(finding.user) for finding in leakers[:5])
        names += f" and {len(leakers) - 5:,} more" if len(leakers) > 5 else ""
        return (
            "identified",
            None,
            f"The answers carry the mark of {names}; a model that learned from none of the users' answers would point "
            f"at any of them with a chance below {level:g}.",
        )
    if not strongest.n_effective and strongest.n_tokens >= MIN_TOKENS:
        return "undecided", None, "The suspect answers all alike, or just as the victim, so nothing points at anybody."
    verdict, needed, _ = judge(strongest, level, corrections)
    if verdict == "not detected":
        return (
            "nobody",
            None,
            f"The answers point at none of the {n_users:,} users; a mark of {SMALLEST_EFFECT:g} standard deviations "
            "per token would most likely have shown. Fainter ones may need more.",
        )
    if needed is None:  # a corrected bound that rounds to the level itself: one says detected, Holm names nobody
        needed = strongest.n_tokens + 1
    return (
        "undecided",
        needed,
        f"With {corrections.keys_tried:,} users to correct for, {strongest.n_tokens} distinct tokens do not decide; "
        f"about {needed:,} like these would.",
    )


def declaration_sentence(n_users: int, declared: Declaration | None, leakers: list[UserFinding]) -> str:
    """What the declaration of users makes of a search."""
    new = [finding.user for finding in leakers if finding.declared is False]
    if declared is None:
        return (
            f"No users were declared beforehand: the correction for these {n_users:,} holds only if no others were "
            "tried."
        )
    if new:
        return f"Not declared beforehand, and so open to doubt: {', '.join(map(repr, new[:5]))}."
    if n_users > declared.count:
        return (
            f"At least {n_users - declared.count:,} of the {n_users:,} users searched were not among the "
            f"{declared.count:,} declared beforehand."
        )
    if leakers and all(finding.declared for finding in leakers):
        return f"Declared beforehand, with {declared.count:,} users in all, for which p-values are corrected."
    return f"P-values are corrected for all {declared.count:,} users that were declared beforehand."
