"""`Identification`: whose answers a suspect was trained on, in a form that can be saved, read and shown."""

import dataclasses
import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..checks import are_log10_p, unfit
from ..detection.probing import Probe
from ..detection.result import LARGEST_EVIDENCE, probe_path, write_evidence
from ..detection.tabulate import table_of
from ..errors import InvalidInputError
from ..reading.arrays import read_arrays
from ..reading.files import parse_json, read_within
from ..wording import small_p

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

Outcome = Literal["identified", "nobody", "undecided"]

FORMAT = "drw-identification-1"
_NOT_SAVED = ("log10_p_values", "probe")
_VALUES, _P_VALUES = ".users.npz", "log10_p_values"  # the suffix of the file with every user's p-value, its array


@dataclass(frozen=True)
class UserFinding:
    """What a search found of one user.

    Attributes
    ----------
    user : str
    log10_p, log10_bound : float
        log₁₀ of the user's p-value and of the bound it certainly does not exceed, as :func:`drw_hf.detect` finds them
        with the user's key alone: not corrected.
    z_score : float
        The z-equivalent of that p-value.
    log10_corrected : float
        log₁₀ of the bound after Holm's correction for all users, and for the suspects and looks: what decides.
    declared : bool or None
        Whether the user was declared beforehand; None where that was not, or could not be, looked up.
    """

    user: str
    log10_p: float
    log10_bound: float
    z_score: float
    log10_corrected: float
    declared: bool | None = None

    @property
    def p_value(self) -> float:
        """The user's p-value, not corrected; 0.0 below the smallest float."""
        return 10.0**self.log10_p

    @property
    def p_corrected(self) -> float:
        """The corrected bound; 0.0 below the smallest float."""
        return 10.0**self.log10_corrected

    def __str__(self) -> str:
        return f"{self.user} (z {self.z_score:.1f}, corrected p at most {small_p(self.log10_corrected, up=True)})"


@dataclass(frozen=True)
class Identification:
    """Which users of a ring a suspect's answers point at.

    ``n_probes``, ``n_tokens``, ``n_effective``, ``n_queries``, ``tokens_needed``, ``level``, ``statistic``,
    ``variant``, ``probe_digest``, ``suspect``, ``settings``, ``versions`` and ``created_at`` are as in
    :class:`~drw_hf.DetectionResult`.

    Attributes
    ----------
    verdict : str
        ``"identified"``, ``"nobody"`` or ``"undecided"``, at ``level``.
    leakers : list of UserFinding
        The users whose mark the suspect carries, the most certain first; the chance that an innocent user is among
        them is at most ``level``.
    ranking : list of UserFinding
        The strongest users, leakers or not.
    explanation : str
        The verdict in plain words, with what it rests on.
    n_users : int
        How many users were searched.
    n_declared : int or None
        How many users the ring had declared in the epoch (its largest declaration); None where it had declared none.
    n_corrected : int
        How many users the p-values are corrected for: the declared ones, or those searched if there were more.
    suspects_tested, looks : int
        What the p-values are corrected for, beside the users.
    ring_fingerprint : str
    declared_root : str or None
        The Merkle root of the declaration.
    epoch : int or None
        The epoch of the ring that was searched.
    log10_p_values : array, shape (n_users,)
        log₁₀ of every user's p-value, not corrected, in the order of the users: exact for those of the ranking, for
        the others from the screening score, whose z is off by ``settings["screening_error"]`` at the most.
    """

    verdict: Outcome
    leakers: list[UserFinding]
    ranking: list[UserFinding] = field(repr=False)
    explanation: str
    n_users: int
    n_declared: int | None
    n_corrected: int
    n_probes: int
    n_tokens: int
    n_effective: float
    n_queries: int
    tokens_needed: int | None
    level: float
    suspects_tested: int
    looks: int
    statistic: str
    variant: str
    ring_fingerprint: str
    declared_root: str | None
    epoch: int | None
    probe_digest: str
    suspect: str
    settings: dict[str, Any] = field(repr=False)
    versions: dict[str, str] = field(repr=False)
    created_at: str
    log10_p_values: np.ndarray | None = field(default=None, repr=False, compare=False)
    probe: Probe | None = field(default=None, repr=False, compare=False)

    @property
    def n_undeclared(self) -> int:
        """How many of the users searched, at the least, were not declared."""
        return max(0, self.n_users - (self.n_declared or 0))

    @property
    def committed(self) -> bool:
        """Whether users were declared, as many as were searched, and none of the leakers is known to be new."""
        return self.n_undeclared == 0 and all(finding.declared is not False for finding in self.leakers)

    @property
    def log10_threshold(self) -> float:
        """log₁₀ of the bound that the first user must reach to be named."""
        return float(np.log10(self.level) - np.log10(self.n_corrected * self.suspects_tested * self.looks))

    def p_values(self) -> np.ndarray:
        """Every user's p-value, not corrected, in the order of the users; uniform for those who leaked nothing."""
        if self.log10_p_values is None:
            raise InvalidInputError("the users' p-values are not beside this result; load it with its .users.npz")
        return 10.0**self.log10_p_values

    def __str__(self) -> str:
        strongest = "".join(f"; the strongest is {finding}" for finding in self.ranking[:1])
        found = ", ".join(map(str, self.leakers)) or f"{self.n_users:,} users searched{strongest}"
        line = f"{self.verdict}: {found}; {self.n_tokens} distinct tokens in {self.n_probes} probes"
        return line if self.committed else f"{line}; not all users were declared beforehand"

    def save(self, path: str | os.PathLike) -> None:
        """Write the result as JSON, with every user's p-value (``.users.npz``) and the probe beside it.

        The files name users and disclose the target class and the frequency: they are as confidential as the ring.
        Like other evidence, they are never overwritten.
        """
        path = Path(path)
        files = {} if self.probe is None else {probe_path(path): self.probe.content()}
        if self.log10_p_values is not None:
            buffer = io.BytesIO()
            np.savez_compressed(buffer, log10_p_values=self.log10_p_values)
            files[path.with_suffix(_VALUES)] = buffer.getvalue()
        document = json.dumps({"format": FORMAT, **self.to_dict()}, indent=2) + "\n"
        write_evidence({**files, path: document.encode()})

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Identification":
        """Read what :meth:`save` wrote, with the p-values and the probe if they lie beside it."""
        path = Path(path)
        probe = values = result = None
        try:
            document = parse_json(read_within(path, LARGEST_EVIDENCE, InvalidInputError))
            if probe_path(path).exists():
                probe = Probe.load(probe_path(path))
            if path.with_suffix(_VALUES).exists():
                found = read_arrays(path.with_suffix(_VALUES), [_P_VALUES], "what save wrote", InvalidInputError)
                values = found[_P_VALUES]
            if document.pop("format") == FORMAT:
                for name in ("leakers", "ranking"):
                    document[name] = [UserFinding(**entry) for entry in document[name]]
                result = cls(**document, probe=probe, log10_p_values=values)
        except InvalidInputError:
            raise
        except (OSError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(f"{path} is not a result that save wrote ({type(error).__name__})") from None
        whole = result is not None and all(_is_whole(part) for part in [result, *result.leakers, *result.ranking])
        if result is None or not whole:
            raise InvalidInputError(f"{path} is not a result that save wrote, or it was damaged; restore it")
        if values is not None and values.shape != (result.n_users,):
            raise InvalidInputError(f"the users' p-values beside {path} are not those of this result")
        if result.probe is not None and result.probe.digest() != result.probe_digest:
            raise InvalidInputError(f"the probe beside {path} is not the one this result is of")
        return result

    def to_frame(self) -> "DataFrame":
        """The leakers and the other ranked users as a pandas table, one row each, the strongest first."""
        named = {finding.user: finding for finding in self.leakers}
        ranked = named | {finding.user: finding for finding in self.ranking}
        columns = "p_value p_corrected log10_p log10_bound log10_corrected z_score declared".split()
        return table_of(
            {"user": one.user, "named": one.user in named, **{name: getattr(one, name) for name in columns}}
            for one in ranked.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """The findings, for logs and JSON."""
        bare = dataclasses.replace(self, log10_p_values=None, probe=None)
        return {name: value for name, value in dataclasses.asdict(bare).items() if name not in _NOT_SAVED}

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw the p-values of all users, sorted, with the leakers standing out and what it takes to be named.

        Returns the matplotlib figure, and writes it where a path is given.
        """
        from ..evidence.plots import plot_identification

        return plot_identification(self, path)


def _is_whole(part: Any) -> bool:
    """Whether what was read from a file holds what it is declared to hold."""
    if unfit(vars(part), {entry.name: entry.type for entry in dataclasses.fields(part)}):
        return False
    return not isinstance(part, UserFinding) or are_log10_p(part.log10_p, part.log10_bound, part.log10_corrected)
