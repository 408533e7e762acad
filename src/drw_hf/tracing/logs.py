"""Which users' logs is a suspect a student of? One test per user, on what that user was served."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from transformers import PreTrainedTokenizerBase

from ..asking.query_log import Asked, QueryLog
from ..checks import whole_number
from ..detection import detect
from ..detection.probing import ProbingOptions, Suspect
from ..detection.result import DetectionResult
from ..detection.tabulate import figures_of, table_of
from ..errors import InvalidInputError
from ..keys.ring import KeyRing
from ..keys.users import check_spellings
from ..wording import printable
from .users import Users, stream_users

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class LoggedIdentification:
    """What the tests of all users' logs found.

    Attributes
    ----------
    leakers : tuple of str
        The users whose mark was detected, the strongest first.
    results : dict from str to DetectionResult
        The evidence for every user, the strongest first: each can be saved, reported and verified by itself.
    n_corrected : int
        For how many users every p-value is corrected.
    """

    leakers: tuple[str, ...]
    results: dict[str, DetectionResult]
    n_corrected: int

    def to_frame(self) -> "DataFrame":
        """A pandas table with one row for every user, the strongest first; ``named`` are the leakers."""
        return table_of(
            {"user": user, "named": user in self.leakers, **figures_of(result)}
            for user, result in self.results.items()
        )

    def __str__(self) -> str:
        tested = f"{len(self.results)} logs, p-values corrected for {self.n_corrected:,} users"
        if not self.leakers:
            return f"nobody named: {tested}"
        return f"named: {', '.join(map(printable, self.leakers))}; {tested}"


def identify_by_log(
    suspect: Suspect,
    logs: QueryLog | Mapping[str, Sequence[tuple[Any, Any]]],
    *,
    ring: KeyRing,
    victim: Suspect | None,
    tokenizer: PreTrainedTokenizerBase | None,
    users: Users | None = None,
    reference: Suspect | None = None,
    epoch: int | None = None,
    n_users: int | None = None,
    level: float = 1e-3,
    suspects_tested: int = 1,
    looks: int = 1,
    **probing: Unpack[ProbingOptions],
) -> LoggedIdentification:
    """Test a suspect by what each user of a ring was served: who was served what it learned?

    Every user has texts of their own, and with margin draws close calls and draws of their own too, so there is one
    test per user, and the suspect is asked about the texts of each. Search all users by tilt first
    (:func:`drw_hf.identify`), which asks once; then confirm those whom you suspect, both with ``looks=2``: there are
    two looks. Whether a user was declared is not looked up here: a proof of membership says so
    (:class:`drw_hf.keys.UserProof`).

    Parameters
    ----------
    suspect, victim, tokenizer, reference, suspects_tested, looks
        As for :func:`drw_hf.detect`.
    logs : QueryLog, or mapping from str to sequence of (text, served)
        The log of the service. Or, for every user to be tested, what they asked and were answered; give each whole: no
        text may be left out because of its answer.
    ring : KeyRing
        The owner's ring.
    users : iterable of str, path, Dataset column, optional
        With a :class:`~drw_hf.QueryLog`, who is tested, of those who are in it; by default all whom it names.
    epoch : int, optional
        The ring's epoch in which they were served; by default the present one.
    n_users : int, optional
        Among how many users those of ``logs`` were found, where the ring declared none: whoever picks them by an
        earlier search has tried all. By default, of a :class:`~drw_hf.QueryLog`, as many as are in it.
    level : float
        The chance at which an innocent user may be named, all users together.
    **probing
        How the suspect is probed: :class:`drw_hf.detection.ProbingOptions`.
    """
    epoch = ring.epoch if epoch is None else epoch
    of_each: Mapping[str, Any]
    if isinstance(logs, QueryLog):
        of_each, in_the_log = _of_each(logs, ring, users, epoch)
        n_users = in_the_log if n_users is None else n_users
    elif users is not None:
        raise InvalidInputError("users= chooses from a QueryLog; of a mapping give those that are to be tested")
    else:
        of_each = logs
    if not isinstance(of_each, Mapping) or not of_each:
        raise InvalidInputError("there are no logs to test; give {user: [(text, served), ...]}")
    n_users = None if n_users is None else whole_number("n_users", n_users)
    declared = [one.count for one in ring.declarations if one.epoch == epoch]
    if not declared and n_users is None:
        raise InvalidInputError(
            "no users were declared for this epoch, so nobody knows for how many the p-values are to be corrected; "
            "give n_users=, the number of all users who could have been named"
        )
    family = max(len(of_each), *declared, n_users or 0)
    results = {
        user: detect(
            suspect,
            key=ring.key_for(user, epoch),
            logged=log if isinstance(log, Asked) else list(log),
            victim=victim,
            tokenizer=tokenizer,
            reference=reference,
            keys_tried=family,
            level=level,
            suspects_tested=suspects_tested,
            looks=looks,
            **probing,
        )
        for user, log in of_each.items()
    }
    ordered = dict(sorted(results.items(), key=lambda one: (one[1].log10_bound, one[0])))
    leakers = tuple(user for user, result in ordered.items() if result.verdict == "detected")
    return LoggedIdentification(leakers, ordered, family)


def _of_each(log: QueryLog, ring: KeyRing, users: Users | None, epoch: int) -> tuple[dict[str, Asked], int]:
    """What each user was served in an epoch, and how many users were served then."""
    there = log.select(epoch=epoch)
    served, named = set(), set()
    for line in there.lines():
        served.add(line.key)
        named.add(line.user)
    names = sorted(name for name in named if name is not None) if users is None else list(stream_users(users)[0])
    if not names:
        raise InvalidInputError(f"{log} names no users in epoch {epoch}; pass users=, the names of those to be tested")
    check_spellings(names)
    keys = {name: ring.key_for(name, epoch) for name in names}
    keys = {name: key for name, key in keys.items() if key.commitment() in served}
    if not keys:
        raise InvalidInputError(
            f"{log} holds nothing that was answered to these {len(names):,} users of the ring {ring.fingerprint} in "
            f"epoch {epoch}; give the ring that was served, and the epoch"
        )
    return there.asked_under_each(keys), len(served)
