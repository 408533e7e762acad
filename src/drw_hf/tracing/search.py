"""`identify`: whose answers was this suspect trained on?

The suspect is probed once, and its amplitudes and the null law of T do not depend on the user: a user costs the
entries of their own tables and a sum. Everybody gets a fast score (:mod:`.screening`); whoever could matter by it gets
the exact test that :func:`drw_hf.detect` does with their key.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Unpack, overload

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerBase

from ..asking.options import DEFAULTS
from ..asking.query_log import QueryLog
from ..asking.store import Records, Store, about_of
from ..checks import check_level, whole_number
from ..detection.cutting import check_cut_is_counted, check_length_is_counted
from ..detection.probe import Probe
from ..detection.probing import ProbingOptions, Suspect, probe_of
from ..detection.statistics.exact import kept_counts
from ..detection.verdict import (
    Corrections,
    check_belongs,
    check_reference,
    key_settings,
    library_versions,
    target_label_of,
)
from ..errors import InvalidInputError, KeptAnswersError, OtherRecordsError
from ..keys.frames import forgets_locals
from ..keys.ring import KeyRing
from .identification import Identification, UserFinding
from .laws import UserLaw, law_for
from .logs import LoggedIdentification, identify_by_log
from .naming import Finalist, declaration_sentence, judge_users, look_up, rank_users
from .users import SeenUsers, Users, stream_users

FORMAT = "drw-identify-1"
# A record is a chunk of users: the number of the first, a digest of their names, and their scores.
SCORES = Records("scores", "search", "chunks", ("first", "names", "scores"), "<f8", "delete it to begin anew")
NOBODY = "the list of users is empty; give at least one user"


@overload
def identify(
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None = None,
    *,
    ring: KeyRing,
    users: Users,
    logged: None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
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
    **probing: Unpack[ProbingOptions],
) -> Identification: ...


@overload
def identify(
    suspect: Suspect,
    *,
    ring: KeyRing,
    users: Users | None = None,
    logged: QueryLog,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
    epoch: int | None = None,
    level: float = 1e-3,
    suspects_tested: int = 1,
    looks: int = 1,
    **probing: Unpack[ProbingOptions],
) -> LoggedIdentification: ...


def identify(
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None = None,
    *,
    ring: KeyRing,
    users: Users | None = None,
    logged: QueryLog | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
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
    **probing: Unpack[ProbingOptions],
) -> Identification | LoggedIdentification:
    """Probe a suspect once and find which users of a ring it was trained on the answers of: one, several or nobody.

    Parameters
    ----------
    suspect, texts, tokenizer, victim, reference, suspects_tested, looks, logged_counts
        As for :func:`drw_hf.detect`; a :class:`~drw_hf.detection.Probe` is searched without asking anybody.
    ring : KeyRing
        The owner's ring.
    users : iterable of str, path, Dataset column
        Whom to search, each once: any iterable of names (a generator is streamed), a text file with one user per line,
        a column of a data set. Memory is bounded by ``chunk_size``, but for some 50 bytes per user.
    logged : QueryLog, optional
        The log of the service, in the place of ``texts``: the suspect is asked about each user's own texts, and tested
        once per user (:func:`drw_hf.tracing.identify_by_log`). ``users`` are then by default those whom the log names.
    epoch : int, optional
        The ring's epoch to search; by default the present one.
    level : float
        The chance at which an innocent user may be named, all users together.
    declared_users : like users, optional
        The list that the ring declared, where it is not ``users`` itself; by it leakers are known to be declared.
    top : int
        How many users to rank.
    chunk_size : int
        Users searched at a time.
    device : torch device, optional
        Where to score; by default numpy does on the CPU. Results do not depend on it.
    resume : path, optional
        A file in which finished chunks are recorded; a search that was stopped goes on where it was, by the version
        of the statistic that it began with.
    **probing
        How the suspect is probed: :class:`drw_hf.detection.ProbingOptions`.

    Returns
    -------
    Identification
        With ``logged=`` a :class:`~drw_hf.tracing.LoggedIdentification`.

    Raises
    ------
    InvalidInputError
        Where there is nobody to search, a user is listed twice, there is nothing to test, or the reference has to do
        with the key of a user who would be named. (Whom it hides it cannot tell: every user would have to be tested.)
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
    if not isinstance(ring, KeyRing):
        raise InvalidInputError(f"ring is a {type(ring).__name__}; expected a KeyRing (for one key there is detect)")
    if "key" in probing:
        raise InvalidInputError("identify takes no key=: it tests the keys of the ring's users")
    if logged is not None:
        given = {"texts": texts, "declared_users": declared_users, "logged_counts": logged_counts, "resume": resume}
        return _by_log(
            suspect,
            logged,
            given,
            ring=ring,
            users=users,
            tokenizer=tokenizer,
            victim=victim,
            reference=reference,
            epoch=epoch,
            level=level,
            suspects_tested=suspects_tested,
            looks=looks,
            **probing,
        )
    if users is None:
        raise InvalidInputError("users is a NoneType; give the names of those to be searched, or the log (logged=)")
    level = check_level(level)
    suspects_tested, looks = whole_number("suspects_tested", suspects_tested), whole_number("looks", looks)
    top, chunk_size = whole_number("top", top), whole_number("chunk_size", chunk_size)
    template = ring.template(epoch)
    epoch = int(ring.epoch if epoch is None else epoch)
    stream, total = stream_users(users)
    if total == 0:
        raise InvalidInputError(NOBODY)
    others: dict[str, Any] = {"tokenizer": tokenizer, "victim": victim, "reference": reference}
    check_length_is_counted(template, looks, probing.get("max_length"))
    probe = probe_of("identify", suspect, texts, key=template, **others, **probing)
    check_cut_is_counted(template, looks, probe)
    check_belongs(probe, template)
    begun_with = None if resume is None else about_of(resume).get("statistic")
    law = law_for(probe, template, logged_counts, begun_with=begun_with, device=device)
    tries = suspects_tested * looks
    about = {
        "format": FORMAT,
        "ring": ring.fingerprint,
        "epoch": epoch,
        "probe": probe.digest(),
        "statistic": law.statistic,
        "logged_counts": kept_counts(law.token_ids, logged_counts) or None,
        "precision": "64" if device is None else "32",
    }
    candidates = Candidates(law.least_statistic(level / tries), law.screen.error, top if law.sd else 0)
    record = nullcontext() if resume is None else _open_record(resume, about)
    shown = probing.get("progress", DEFAULTS["progress"])
    bar = tqdm(total=total, desc="Searching users", unit=" users", unit_scale=True, disable=not shown)
    with record as store, bar:
        for names, scores in _search(ring, epoch, stream, law, chunk_size, store):
            candidates.add(names, scores)
            bar.update(len(names))
    if not candidates.n_users:
        raise InvalidInputError(NOBODY)

    finalists = _test_exactly(ring, epoch, candidates, law)
    declarations = [one for one in ring.declarations if one.epoch == epoch]
    declared = max(declarations, key=lambda one: one.count, default=None)
    family = max(candidates.n_users, declared.count if declared else 0)
    ranking, n_named = rank_users(finalists, law.null.test, family, tries, level, top)
    if declarations and (declared_users is not None or candidates.n_users in {one.count for one in declarations}):
        listed = users if declared_users is None else declared_users
        ranking[:n_named] = look_up(ring, epoch, ranking[:n_named], listed)
    leakers = ranking[:n_named]
    _check_reference(probe, ring, epoch, leakers)
    strongest = law.null.test(finalists[0].statistic if finalists else 0.0)  # nobody is ranked where all are alike
    if not law.sd:  # the law has no terms, but there were tokens
        strongest = dataclasses.replace(strongest, n_tokens=len(law.token_ids))
    corrections = Corrections(family, suspects_tested, looks)
    verdict, needed, sentence = judge_users(leakers, strongest, level, corrections, candidates.n_users)
    return Identification(
        verdict=verdict,
        leakers=leakers,
        ranking=ranking[:top],
        explanation=f"{sentence} {declaration_sentence(candidates.n_users, declared, leakers)}",
        n_users=candidates.n_users,
        n_declared=None if declared is None else declared.count,
        n_corrected=family,
        n_probes=law.n_probes,
        n_tokens=strongest.n_tokens,
        n_effective=strongest.n_effective,
        n_queries=probe.n_queries,
        tokens_needed=needed,
        level=level,
        suspects_tested=suspects_tested,
        looks=looks,
        statistic=law.statistic,
        variant=law.variant,
        ring_fingerprint=ring.fingerprint,
        declared_root=None if declared is None else declared.root,
        epoch=epoch,
        probe_digest=probe.digest(),
        suspect=probe.suspect_name,
        settings={
            **key_settings(template),
            "frequency": template.frequency,
            "target_label": target_label_of(template),
            "logged_counts": about["logged_counts"] or False,
            "screening_error": law.screen.error / law.sd if law.sd else 0.0,
            **({} if probe.label_map is None else {"label_map": probe.label_map}),
        },
        versions=library_versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        log10_p_values=law.log10_p_values(candidates.all_scores(), finalists),
        probe=probe,
    )


def _by_log(suspect: Any, logged: Any, given: Mapping[str, Any], **options: Any) -> LoggedIdentification:
    """One test per user, by what each was served."""
    if not isinstance(logged, QueryLog):
        raise InvalidInputError(
            f"logged is a {type(logged).__name__}; expected the QueryLog of the service. Logs of another form go to "
            "drw_hf.tracing.identify_by_log"
        )
    unused = [name for name, value in given.items() if value is not None]
    if unused:
        raise InvalidInputError(f"with logged= every user is tested by the log, and {unused} have no part in it")
    if isinstance(suspect, Probe):
        raise InvalidInputError("a Probe holds the answers to one list of texts, and users have texts of their own")
    return identify_by_log(suspect, logged, **options)


# -- searching


def _open_record(path: str | os.PathLike, about: Mapping[str, Any]) -> Store:
    try:
        return Store(path, SCORES, about, mode=0o600)  # scores come from keys: for the owner alone
    except OtherRecordsError:
        why = "records another search: another ring, epoch, probe or setting"
    except KeptAnswersError as error:
        why = f"is not a file that a search was recorded in ({type(error.__context__).__name__})"
    raise InvalidInputError(f"resume={str(path)!r} {why}; give another path, or delete the file to begin anew")


def _search(
    ring: KeyRing, epoch: int, stream: Iterator[str], law: UserLaw, size: int, store: Store | None
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Users and their scores, a chunk at a time: first those recorded, then the others."""
    seen, first = SeenUsers(), 0
    for number, digest, scores in store.read() if store else ():
        if number != first:
            break
        names = list(islice(stream, len(scores)))
        if len(names) < len(scores) or seen.add(names) != digest:
            assert store is not None  # the chunk is out of it
            raise InvalidInputError(
                f"resume={str(store.path)!r} was recorded with other users: number {first} and those after are not "
                "the same; give the same list (more may follow), or delete the file to begin anew"
            )
        yield names, scores
        first += len(names)
    while names := list(islice(stream, size)):
        digest = seen.add(names)
        scores = _from_table_keys(law.screen.scores, ring, names, epoch, law.domains)
        if store:
            store.write([(first, digest, scores)])
        yield names, scores
        first += len(names)


@forgets_locals
def _from_table_keys(
    function: Callable[..., np.ndarray], ring: KeyRing, names: list[str], epoch: int, domains: tuple[str, ...]
) -> np.ndarray:
    """What a function makes of users' sub-keys, a list for each domain."""
    return function(*(ring.table_keys(names, epoch, domain) for domain in domains))


class Candidates:
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

    def add(self, names: list[str], scores: np.ndarray) -> None:
        """Take some users in."""
        candidates = np.concatenate([self._kept, scores])
        places = np.concatenate([self.places, np.arange(self.n_users, self.n_users + len(names))])
        names = self.names + names
        floor = self._least - self._error
        if self._top:
            last = max(len(candidates) - self._top, 0)
            floor = min(floor, np.partition(candidates, last)[last] - 2.0 * self._error)
        kept = np.flatnonzero(candidates >= floor)
        self.names = [names[i] for i in kept]
        self.places, self._kept = places[kept], candidates[kept]
        self._scores.append(scores)
        self.n_users += len(scores)

    def all_scores(self) -> np.ndarray:
        """Every user's score, in order."""
        return np.concatenate(self._scores)


@forgets_locals
def _test_exactly(ring: KeyRing, epoch: int, candidates: Candidates, law: UserLaw) -> list[Finalist]:
    """Those who may matter, with their statistics; the largest first."""
    statistics = [law.exact(ring.key_for(name, epoch)) for name in candidates.names]
    finalists = map(Finalist, candidates.names, candidates.places.tolist(), statistics)
    return sorted(finalists, key=lambda finalist: (-finalist.statistic, finalist.user))


@forgets_locals
def _check_reference(probe: Probe, ring: KeyRing, epoch: int, leakers: list[UserFinding]) -> None:
    """That nobody is named because of a reference that has to do with their key."""
    for finding in leakers:
        check_reference(probe, ring.key_for(finding.user, epoch))
