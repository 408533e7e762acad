"""`identify`: whose answers was this suspect trained on?

The suspect is probed once, and its amplitudes and the null law of T do not depend on the user: a user costs the
entries of his own tables and a sum. Everybody gets a fast score (:mod:`.screening`); whoever could matter by it gets
the exact test that :func:`drw_hf.detect` does with his key.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..detection.probing import Probe, Suspect, probe_suspect
from ..detection.statistics.amplitudes import MIN_TOKENS, STATISTIC, Amplitudes
from ..detection.statistics.exact import amplitudes_of, kept_counts
from ..detection.statistics.null_law import NullLaw
from ..detection.statistics.saddlepoint import ExactTest, corrected
from ..detection.statistics.spectra import calls_target
from ..detection.verdict import SMALLEST_EFFECT, Corrections, check_belongs, judge, key_settings, library_versions
from ..errors import InvalidInputError
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import Declaration, KeyRing
from ..keys.settings import MarkSettings
from .identification import Identification, Outcome, UserFinding
from .screening import Screen, exact_statistic
from .users import Ledger, SeenUsers, stream_users

_KNOTS = 65  # of the curve z(T), which is almost a line: z between them is good to 1e-3

Users = str | os.PathLike[str] | Iterable[Any]  # a path, names, or a data set of one column


class ProbingOptions(TypedDict, total=False):
    """What else :func:`identify` takes, as :func:`drw_hf.detect` does."""

    gold: Sequence[Any] | None
    label_map: Mapping[str, str] | None
    suspect_tokenizer: PreTrainedTokenizerBase | None
    text_columns: str | Sequence[str] | None
    max_queries: int | None
    max_length: int | None
    batch_size: int
    max_retries: int
    cache_dir: str | os.PathLike | None
    load_from_cache_file: bool


def identify(
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None = None,
    *,
    ring: KeyRing,
    users: Users,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    epoch: int | None = None,
    level: float = 1e-3,
    suspects_tested: int = 1,
    looks: int = 1,
    declared_users: Users | None = None,
    logged_counts: Mapping[int, int] | None = None,
    top: int = 20,
    chunk_size: int = 16_384,
    device: str | torch.device | None = None,
    resume: str | os.PathLike | None = None,
    progress: bool = True,
    **probing: Unpack[ProbingOptions],
) -> Identification:
    """Probe a suspect once and find which users of a ring it was trained on the answers of: one, several or nobody.

    Parameters
    ----------
    suspect, texts, tokenizer, victim
        As for :func:`drw_hf.detect`; a :class:`~drw_hf.detection.Probe` is searched without asking anybody.
    ring : KeyRing
        The owner's ring.
    users : iterable of str, path, Dataset column
        Whom to search, each once: any iterable of names (a generator is streamed), a text file with one user a line,
        a column of a data set. Memory is bounded by ``chunk_size``, but for some 50 bytes a user.
    epoch : int, optional
        The ring's epoch to search; by default the present one.
    level : float
        The chance at which an innocent user may be named, all users together.
    suspects_tested, looks : int
        How many suspects and looks at the data there were in all, this one included; p-values are corrected.
    declared_users : like users, optional
        The list that the ring declared, where it is not ``users`` itself; by it leakers are known to be declared.
    logged_counts : mapping, optional
        How often each token id was queried, if known.
    top : int
        How many users to rank.
    chunk_size : int
        Users searched at a time.
    device : torch device, optional
        Where to score; by default numpy does on the CPU. Results do not depend on it.
    resume : path, optional
        A file in which finished chunks are recorded; a search that was stopped goes on where it was.
    progress : bool
        Show progress bars.
    **probing
        ``gold``, ``label_map``, ``suspect_tokenizer``, ``text_columns``, ``max_queries``, ``max_length``,
        ``batch_size``, ``max_retries``, ``cache_dir``, ``load_from_cache_file``, as for :func:`drw_hf.detect`.

    Returns
    -------
    Identification

    Raises
    ------
    InvalidInputError
        Where there is nobody to search, a user is listed twice, or there is nothing to test.
    KeyMismatchError
        Where ring and tokenizer, or ring and probe, do not belong together.

    Notes
    -----
    p-values are corrected by Holm's procedure for all users that the ring declared, however few are searched. Where
    none were declared, or more are searched, they are corrected for those searched, and the result says so: who may
    choose the names afterwards finds one that fits. The leakers and the ranking are exact; they do not depend on the
    order of the users, nor on ``chunk_size`` or ``device``. The work is Python's and the cipher's, on one core; for
    many, give each process a part of the users: corrected for all who were declared, each part's leakers hold.
    """
    _check_settings(ring, level, suspects_tested, looks, {"top": top, "chunk_size": chunk_size})
    epoch = ring.epoch if epoch is None else epoch
    template = ring.template(epoch)
    stream, total = stream_users(users)
    if total == 0:
        raise _nobody()
    probe = _probe_of(suspect, texts, template, tokenizer, victim, progress, probing)
    check_belongs(probe, template)
    if probe.logged is not None:
        raise InvalidInputError(
            "the probe holds logged labels, whose memory test is of one key; probe without logged=, or test users one "
            "by one with detect(probe, key=ring.key_for(user))"
        )

    amplitudes = _amplitudes_if_enough(probe, template, logged_counts)
    law = _Law.of(amplitudes, template.settings, device)
    others = int(suspects_tested * looks)
    about = {
        "ring": ring.fingerprint,
        "epoch": int(epoch),
        "probe": probe.digest(),
        "statistic": STATISTIC,
        "logged_counts": kept_counts(law.token_ids, logged_counts) or None,
        "precision": "64" if device is None else "32",
    }
    contest = _Contest(law.least_statistic(level / others), law.screen.error, int(top) if law.sd else 0)
    with ExitStack() as stack:
        ledger = None if resume is None else stack.enter_context(Ledger(resume, about))
        bar = stack.enter_context(_progress_bar(total, progress))
        for names, scores in _search(ring, int(epoch), stream, law, int(chunk_size), ledger):
            contest.enter(names, scores)
            bar.update(len(names))
    if not contest.n_users:
        raise _nobody()

    declarations = [one for one in ring.declarations if one.epoch == epoch]
    declared = max(declarations, key=lambda one: one.count, default=None)
    family = max(contest.n_users, declared.count if declared else 0)
    finalists, statistics = _exact(ring, int(epoch), contest, law)
    ranking, leakers = _rank(finalists, statistics, law, family, others, level, int(top))
    if leakers and declarations:
        listed = users if declared_users is None else declared_users
        if declared_users is not None or contest.n_users in {one.count for one in declarations}:
            leakers = _look_up(ring, int(epoch), leakers, listed)
        known = {finding.user: finding for finding in leakers}
        ranking = [known.get(finding.user, finding) for finding in ranking]
    strongest = law.null.test(statistics[0] if statistics else 0.0)  # nobody is ranked where all are alike
    verdict, needed, sentence = _judge(
        leakers, strongest, level, Corrections(family, suspects_tested, looks), contest.n_users
    )
    return Identification(
        verdict=verdict,
        leakers=leakers,
        ranking=ranking[: int(top)],
        explanation=f"{sentence} {_declaration_sentence(contest.n_users, declared, leakers)}",
        n_users=contest.n_users,
        n_declared=None if declared is None else declared.count,
        n_corrected=family,
        n_probes=amplitudes.n_probes,
        n_tokens=len(law.token_ids),
        n_effective=strongest.n_effective,
        n_queries=probe.n_queries,
        tokens_needed=needed,
        level=float(level),
        suspects_tested=int(suspects_tested),
        looks=int(looks),
        statistic=STATISTIC,
        variant=amplitudes.variant,
        ring_fingerprint=ring.fingerprint,
        declared_root=None if declared is None else declared.root,
        epoch=int(epoch),
        probe_digest=probe.digest(),
        suspect=probe.suspect_name,
        settings={
            **key_settings(template),
            "frequency": template.frequency,
            "target_label": template.target_label,
            "logged_counts": about["logged_counts"] or False,
            "screening_error": law.screen.error / law.sd if law.sd else 0.0,
        },
        versions=library_versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        log10_p_values=law.log10_p_values(contest.all_scores(), _places(finalists, statistics)),
        probe=probe,
    )


def holm(log10_p: Sequence[float], family: int, others: int = 1) -> list[float]:
    """log₁₀ of Holm's corrected p-values, for the smallest of a family in ascending order.

    Parameters
    ----------
    log10_p : sequence of float
        log₁₀ of the smallest p-values (or bounds), ascending.
    family : int
        How many there are in all.
    others : int
        What each is multiplied with besides.

    Examples
    --------
    >>> from drw_hf.tracing.identify import holm
    >>> [round(10**p, 3) for p in holm([-3, -2, -1], family=4)]
    [0.004, 0.03, 0.2]
    """
    found, largest = [], -math.inf
    for rank, value in enumerate(log10_p):
        largest = max(largest, corrected(value, family - rank, others))
        found.append(largest)
    return found


# -- what is asked for


def _check_settings(ring: Any, level: float, suspects_tested: int, looks: int, counts: dict[str, int]) -> None:
    if not isinstance(ring, KeyRing):
        raise InvalidInputError(f"ring is a {type(ring).__name__}; expected a KeyRing (for one key there is detect)")
    if not 0.0 < level < 1.0:
        raise InvalidInputError(f"level={level!r}: expected a number between 0 and 1, like 1e-3")
    corrected(0.0, 1, suspects_tested, looks)
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise InvalidInputError(f"{name}={count!r}: expected an integer ≥ 1")


def _nobody() -> InvalidInputError:
    return InvalidInputError("the list of users is empty; give at least one user")


# -- probing


def _probe_of(
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None,
    template: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None,
    victim: Suspect | None,
    progress: bool,
    probing: ProbingOptions,
) -> Probe:
    if "logged" in probing or "key" in probing:
        raise InvalidInputError("identify takes neither key= nor logged=: it tests the keys of the ring's users")
    if isinstance(suspect, Probe):
        given: dict[str, Any] = {"texts": texts, "victim": victim, **probing}
        ignored = [name for name, value in given.items() if value is not None]
        if ignored:
            raise InvalidInputError(
                f"a Probe holds its answers already, so {ignored} would have no effect; leave them out"
            )
        return suspect
    if texts is None:
        raise InvalidInputError("texts are missing: give texts to probe the suspect with")
    return probe_suspect(
        suspect, texts, key=template, tokenizer=tokenizer, victim=victim, progress=progress, **probing
    )


def _amplitudes_if_enough(probe: Probe, template: WatermarkKey, logged_counts: Any) -> Amplitudes:
    """The amplitudes; zeros where there are probes that count, but of too few tokens to compare anything."""
    try:
        return amplitudes_of(probe, template, logged_counts)
    except InvalidInputError:
        tokens, exists = probe.tokens_of(template)
        counted = exists & calls_target(probe, template.target)
        distinct = np.unique(tokens[counted])
        if not 0 < len(distinct) < MIN_TOKENS:
            raise
        nothing = np.zeros(len(distinct))
        return Amplitudes(distinct, nothing, None, nothing, int(counted.sum()), f"{probe.kind}-too-few")


# -- the law that all users share


@dataclass(frozen=True)
class _Law:
    """What a statistic says, whoever's it is. With amplitudes that are all 0 it says nothing: everybody's p is 1."""

    token_ids: np.ndarray
    null: NullLaw
    screen: Screen
    mean: float
    sd: float

    @classmethod
    def of(cls, amplitudes: Amplitudes, settings: MarkSettings, device: Any) -> "_Law":
        null = NullLaw(amplitudes.A, settings, B=amplitudes.B)
        screen = Screen(amplitudes.token_ids, amplitudes.A, amplitudes.B, settings.frequency, settings.tau, device)
        _, mean, variance = null.cumulants(0.0)
        return cls(amplitudes.token_ids, null, screen, mean, math.sqrt(variance))

    def least_statistic(self, level: float) -> float:
        """A statistic, just below the smallest whose bound reaches a level; infinite where none can."""
        if not self.sd:
            return math.inf
        # The largest T there is: every token adds the most that its key could make it add.
        low, high = self.mean, float(np.maximum(np.maximum(-2.0 * self.null.A, 2.0 * self.null.B), 0.0).sum())
        if self.null.test(high).log10_bound > math.log10(level):
            return math.inf
        for _ in range(15):  # to a hundredth of a standard deviation; what is left over is on the safe side
            middle = (low + high) / 2.0
            low, high = (low, middle) if self.null.test(middle).log10_bound <= math.log10(level) else (middle, high)
        return low

    def log10_p_values(self, scores: np.ndarray, exact: Mapping[int, float]) -> np.ndarray:
        """log₁₀ p of every score: z between knots at which it is exact, along a line; of some users T is known."""
        if not self.sd:
            return np.zeros(len(scores))
        scores = scores.copy()
        scores[list(exact)] = list(exact.values())
        # Leakers may lie far away, where the curve bends: they are tested each.
        usual = scores <= self.mean + 8.0 * self.sd
        z = np.empty(len(scores))
        if usual.any():
            knots = np.linspace(scores[usual].min(), scores[usual].max(), _KNOTS)
            z[usual] = np.interp(scores[usual], knots, [self.null.test(float(knot)).z_score for knot in knots])
        found = torch.special.log_ndtr(torch.from_numpy(-z)).numpy() / math.log(10.0)
        for index in np.flatnonzero(~usual):
            found[index] = self.null.test(float(scores[index])).log10_p
        return found


# -- searching


def _search(
    ring: KeyRing,
    epoch: int,
    stream: Iterator[str],
    law: _Law,
    size: int,
    ledger: Ledger | None,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Users and their scores, a chunk at a time: first those recorded, then the others."""
    seen, first = SeenUsers(), 0
    for digest, scores in ledger.chunks() if ledger else ():
        names = list(islice(stream, len(scores)))
        if len(names) < len(scores) or seen.add(names) != digest:
            assert ledger is not None  # the chunk is out of it
            raise InvalidInputError(
                f"resume={str(ledger.path)!r} was recorded with other users: number {first} and those after are not "
                "the same; give the same list (more may follow), or delete the file to begin anew"
            )
        yield names, scores
        first += len(names)
    while names := list(islice(stream, size)):
        digest = seen.add(names)
        scores = _from_table_keys(law.screen.scores, ring, names, epoch)
        if ledger:
            ledger.write(first, digest, scores)
        yield names, scores
        first += len(names)


@forgets_locals
def _from_table_keys(function: Callable[[list[bytes]], Any], ring: KeyRing, names: list[str], epoch: int) -> Any:
    """What a function makes of users' table keys."""
    return function(ring.table_keys(names, epoch))


class _Contest:
    """All users' scores, and by name those who may matter: near the top, or near what it takes to be named.

    With scores off by at most ``error``, nobody of the ``top`` by the exact statistic scores lower than the top-th
    score less twice the error, and nobody who can be named lower than ``least`` less the error.
    """

    def __init__(self, least: float, error: float, top: int) -> None:
        self._least, self._error, self._top = least, error, top
        self._scores: list[np.ndarray] = []
        self.n_users = 0
        self.names: list[str] = []
        self.places = np.zeros(0, np.int64)
        self._kept = np.zeros(0)

    def enter(self, names: list[str], scores: np.ndarray) -> None:
        """Take some users in."""
        candidates = np.concatenate([self._kept, scores])
        places = np.concatenate([self.places, np.arange(self.n_users, self.n_users + len(names))])
        floor = self._least - self._error
        if self._top:
            last = max(len(candidates) - self._top, 0)
            floor = min(floor, np.partition(candidates, last)[last] - 2.0 * self._error)
        kept = np.flatnonzero(candidates >= floor)
        n_before = len(self.names)
        self.names = [self.names[i] if i < n_before else names[i - n_before] for i in kept]
        self.places, self._kept = places[kept], candidates[kept]
        self._scores.append(scores)
        self.n_users += len(names)

    def all_scores(self) -> np.ndarray:
        """Every user's score, in order."""
        return np.concatenate(self._scores)


def _exact(ring: KeyRing, epoch: int, contest: _Contest, law: _Law) -> tuple[list[tuple[str, int]], list[float]]:
    """Those who may matter, by name and number, and their statistics; the largest first."""
    statistics = _from_table_keys(
        lambda keys: [exact_statistic(law.null, key, law.token_ids) for key in keys], ring, contest.names, epoch
    )
    order = sorted(range(len(statistics)), key=lambda i: (-statistics[i], contest.names[i]))
    return [(contest.names[i], int(contest.places[i])) for i in order], [statistics[i] for i in order]


def _places(finalists: list[tuple[str, int]], statistics: list[float]) -> dict[int, float]:
    return {place: statistic for (_, place), statistic in zip(finalists, statistics, strict=True)}


# -- judging


def _rank(
    finalists: list[tuple[str, int]],
    statistics: list[float],
    law: _Law,
    family: int,
    others: int,
    level: float,
    top: int,
) -> tuple[list[UserFinding], list[UserFinding]]:
    """The strongest users with corrected p-values, and those of them who are named.

    Holm's procedure goes down from the strongest and stops at the first who is not named; no later one is tested but
    for the ranking.
    """
    tests: list[ExactTest] = []
    named = 0
    for rank, statistic in enumerate(statistics):
        tests.append(law.null.test(statistic))
        if named == rank and corrected(tests[-1].log10_bound, family - rank, others) <= math.log10(level):
            named += 1
        elif rank + 1 >= top:
            break
    findings = [
        UserFinding(user, test.log10_p, test.log10_bound, test.z_score, value)
        for (user, _), test, value in zip(
            finalists, tests, holm([test.log10_bound for test in tests], family, others), strict=False
        )
    ]
    return findings, findings[:named]


def _look_up(ring: KeyRing, epoch: int, leakers: list[UserFinding], listed: Users) -> list[UserFinding]:
    """Whether the leakers are on the list that was declared; nothing is known where this list is another one."""
    if isinstance(listed, Iterator):
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


def _judge(
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


def _declaration_sentence(n_users: int, declared: Declaration | None, leakers: list[UserFinding]) -> str:
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


def _progress_bar(total: int | None, progress: bool) -> Any:
    from tqdm.auto import tqdm

    return tqdm(total=total, desc="Searching users", unit=" users", unit_scale=True, disable=not progress)
