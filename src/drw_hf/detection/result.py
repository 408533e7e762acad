"""`DetectionResult`: what a detection found, in a form that can be saved, replayed and shown."""

import dataclasses
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import are_log10_p, fits, unfit
from ..errors import FileNotWrittenError, InvalidInputError
from ..keys.choices import Verdict
from ..keys.files import write_atomically
from ..keys.key import WatermarkKey
from ..reading.files import MEBIBYTE, parse_json, read_within
from ..wording import small_p
from .probing import Probe

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FORMAT = "drw-evidence-1"
LARGEST_EVIDENCE = 64 * MEBIBYTE  # two million numbers; a result has a few for each token of the vocabulary
NOT_COMMITTED = "The result refers to no commitment made beforehand"
_NOT_SAVED = ("probe", "null_samples")
_SAID_SINCE: dict[str, Any] = {"label_map": None, "n_unanswered": 0, "controls": None, "log": None}
_SERIES = ("frequencies", "powers", "hash_values", "target_values")


@dataclass(frozen=True)
class DetectionResult:
    """What probing a suspect with a key found.

    Attributes
    ----------
    verdict : str
        ``"detected"``, ``"not detected"`` or ``"undecided"``, at ``level``.
    p_value, p_bound : float
        The chance that a suspect which has nothing to do with the key looks as marked as this one: Lugannani and
        Rice's estimate, and the Chernoff bound that certainly holds. Both are corrected for all that was tried; the
        verdict goes by the bound. Where they are too small for a float they are 0.0; see ``log10_p``, ``log10_bound``.
    z_score : float
        The z-equivalent of the p-value of this one test.
    p_snr : float
        The paper's signal-to-noise ratio at the key's frequency.
    p_snr_p_value : float or None
        How often fresh random keys reach that P_snr.
    n_probes, n_tokens : int
        Probes that counted, and the distinct tokens among them.
    n_effective : float
        How many equally important tokens the test had.
    n_queries : int
        How many texts the suspect was asked.
    level : float
        The level of the verdict.
    keys_tried, suspects_tested, looks : int
        What the p-values are corrected for.
    statistic, variant : str
        The version of the statistic, and which of its forms was used.
    tokens_needed : int or None
        For an undecided verdict: about how many distinct tokens would do.
    explanation : str
        The verdict in a sentence.
    key_fingerprint, key_commitment : str
    probe_digest : str
        SHA-256 over what was asked and answered.
    frequency : float
        The key's f_w.
    frequencies, powers : list of float
        The periodogram.
    hash_values, target_values : list of float
        What it is the periodogram of: g(v_k, x) of the selected tokens, and the suspect's q̂_{c*} there. Of the mark
        tilt g(word, class), and how far the word moves the class; of more than 5,000 the largest.
    null_mean, null_sd, observed : float
        The test statistic's law under random keys, and its value under this one.
    suspect : str
        The suspect's name.
    target_label : str
        The target class; empty for marks that every class carries.
    settings : dict
        What else the figures depend on: the key's task, τ, law, scope and hash rule (of the mark tilt: its name, task,
        τ and temperature), the version of P_snr, the logged counts of the tokens tested (False where none were given)
        and the number of simulated keys.
    versions : dict
        Library versions.
    created_at : str
    beside : dict or None
        For comparison, and no part of the verdict: what the same test says of the suspect's labels alone, where it
        gave scores (``variant``, ``z_score``, and ``log10_p`` and ``log10_bound``, which are not corrected).
    label_map : dict or None
        ``{suspect's label: key's label}`` as the owner matched them, where the suspect's labels were renamed.
    parts : dict or None
        The tests that this one is made of, by name, where it is made of several: each as in ``beside``, and how many
        probes counted. For a key with a margin and a log they are ``"tilt"`` and ``"margin"``.
    n_unanswered : int
        Of how many texts (of a tagger: words) the suspect gave no prediction; they are left out.
    controls : list of dict or None
        The same test on models that are known to be innocent, as in ``beside``, with each one's ``name``, and None in
        the place of its figures where it cannot be tested. No part of the verdict, and no look at the suspect.
    log : dict or None
        By which part of a :class:`drw_hf.QueryLog` the test goes, as its owner declares: the days, the Merkle root
        over all lines of each, and how many lines and texts were answered under the key. It holds no text and no name.
    commitment : dict or None
        Where the key's commitment was found, as :func:`drw_hf.evidence.verify_commitment` tells; None for a result
        that refers to none.
    suspect_first_seen : str or None
        When the suspect was first seen, as its accuser declares: an ISO date, or a time in UTC.
    mac : str or None
        HMAC-SHA-256 of all that is saved, under a subkey of the key: whoever has the key can tell whether somebody
        who has it not altered the file. None in results of earlier versions.
    """

    verdict: Verdict
    log10_p: float
    log10_bound: float
    z_score: float
    p_snr: float
    p_snr_p_value: float | None
    n_probes: int
    n_tokens: int
    n_effective: float
    n_queries: int
    level: float
    keys_tried: int
    suspects_tested: int
    looks: int
    statistic: str
    variant: str
    tokens_needed: int | None
    explanation: str
    key_fingerprint: str
    key_commitment: str
    probe_digest: str
    frequency: float = field(repr=False)
    frequencies: list[float] = field(repr=False)
    powers: list[float] = field(repr=False)
    hash_values: list[float] = field(repr=False)
    target_values: list[float] = field(repr=False)
    null_mean: float
    null_sd: float
    observed: float
    suspect: str
    target_label: str = field(repr=False)
    settings: dict[str, Any] = field(repr=False)
    versions: dict[str, str]
    created_at: str
    beside: dict[str, Any] | None = None
    label_map: dict[str, str] | None = field(default=None, repr=False)
    parts: dict[str, dict[str, Any]] | None = None
    n_unanswered: int = 0
    controls: list[dict[str, Any]] | None = None
    log: dict[str, Any] | None = None
    commitment: dict[str, Any] | None = None
    suspect_first_seen: str | None = None
    mac: str | None = field(default=None, repr=False)
    probe: Probe | None = field(default=None, repr=False, compare=False)
    null_samples: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def p_value(self) -> float:
        """The corrected p-value; 0.0 below the smallest float."""
        return 10.0**self.log10_p

    @property
    def p_bound(self) -> float:
        """The corrected Chernoff bound; 0.0 below the smallest float."""
        return 10.0**self.log10_bound

    @property
    def committed(self) -> bool:
        """Whether a commitment to the key was found that is, for all its record says, older than the suspect."""
        if self.commitment is None or self.suspect_first_seen is None:
            return self.commitment is not None
        stamp = self.commitment.get("timestamp")  # it verified, or there would be none
        told = [self.commitment.get("date"), stamp.get("time") if isinstance(stamp, Mapping) else None]
        moments = [moment_of(moment) for moment in told if moment is not None]
        return any(moment < moment_of(self.suspect_first_seen) for moment in moments)

    def __str__(self) -> str:
        line = (
            f"{self.verdict}: p {small_p(self.log10_p)} (at most {small_p(self.log10_bound, up=True)}), "
            f"z {self.z_score:.1f}, P_snr {self.p_snr:.1f}, {self.n_tokens} distinct tokens in {self.n_probes} probes"
        )
        if self.parts is not None:
            parts = ", ".join(f"{name} z {part['z_score']:.1f}" for name, part in self.parts.items())
            line = f"{line} ({parts})"
        if self.beside is not None:
            line = f"{line}; labels alone, for comparison: z {self.beside['z_score']:.1f}"
        return line if self.committed else f"{line}; {NOT_COMMITTED[0].lower()}{NOT_COMMITTED[1:]}"

    def save(self, path: str | os.PathLike) -> None:
        """Write the result as JSON, and the probe beside it as ``.npz`` so that it can be replayed.

        The files disclose the target class, the frequency and hash values: they are as confidential as the key.
        Evidence is never overwritten: where one of the files is there with another content,
        :class:`~drw_hf.errors.FileNotWrittenError` says so.
        """
        path = Path(path)
        files = {} if self.probe is None else {probe_path(path): self.probe.content()}
        write_evidence({**files, path: (json.dumps(self.document(), indent=2) + "\n").encode()})

    @classmethod
    def load(cls, path: str | os.PathLike) -> "DetectionResult":
        """Read what :meth:`save` wrote, with the probe if it lies beside it."""
        path = Path(path)
        document = read_document(path)
        probe = Probe.load(probe_path(path)) if probe_path(path).exists() else None
        if probe is not None and probe.digest() != document["probe_digest"]:
            raise InvalidInputError(f"the probe beside {path} is not the one this result is of")
        result = cls(**{name: document[name] for name in _saved_fields() if name in document}, probe=probe)
        check_kinds(result)
        return result

    def plot(self, path: str | os.PathLike | None = None) -> "Figure":
        """Draw the paper's figure: answers over the hash, the periodogram, and what chance would give.

        Returns the matplotlib figure, and writes it where a path is given.
        """
        from ..evidence.plots import plot_result

        return plot_result(self, path)

    def report(self, folder: str | os.PathLike, *, redact: bool = False) -> Path:
        """Write the finding as one page for those who judge it, and the files behind it; returns the page's path.

        ``report.html`` needs no network and prints on A4; ``evidence.json`` and the probe beside it are what
        ``drw-hf verify`` replays. They disclose the target class, the frequency and hash values: they are as
        confidential as the key.

        Parameters
        ----------
        folder : path
            Where to; made if there is none. A full and a redacted report do not go into the same folder.
        redact : bool
            Write ``report-redacted.html`` and ``evidence-redacted.json`` instead, which show nothing of the key but
            its commitment and can be published. They cannot be replayed.
        """
        from ..evidence.report import write_report

        return write_report(self, folder, redact=redact)

    def to_frame(self) -> "DataFrame":
        """One row of a pandas table with the figures that people tabulate; ``pandas.concat`` joins those of several.

        It shows nothing of the key but its fingerprint. P-values too small for a float are 0.0 in it; ``log10_p`` and
        ``log10_bound`` have them.
        """
        from .tabulate import figures_of, table_of

        return table_of([figures_of(self)])

    def to_dict(self) -> dict[str, Any]:
        """The scalar findings, for logs and JSON."""
        fields = {name: getattr(self, name) for name in _saved_fields() if name not in _SERIES}
        # Results did not say so at first, and their authentication codes must stay right.
        for name, nothing in _SAID_SINCE.items():
            if fields[name] == nothing:
                del fields[name]
        return {**fields, "p_value": self.p_value, "p_bound": self.p_bound, "committed": self.committed}

    def document(self) -> dict[str, Any]:
        """All that :meth:`save` writes as JSON."""
        series = {name: getattr(self, name) for name in _SERIES}
        return {"format": FORMAT, **self.to_dict(), **series}


def check_kinds(result: DetectionResult) -> None:
    """Refuse a result that was read from a file in which somebody put things of other kinds."""
    declared: dict[str, Any] = {entry.name: entry.type for entry in dataclasses.fields(DetectionResult)}
    wrong = unfit(vars(result), declared)
    if not wrong:
        beside = [] if result.beside is None else [result.beside]
        tested = [one for one in result.controls or [] if one.get("z_score", ...) is not None]
        scored = {"beside": beside, "parts": (result.parts or {}).values(), "controls": tested}
        wrong = [name for name, parts in scored.items() for part in parts if not fits(part.get("z_score"), float)]
        declared = dict.fromkeys(scored, "a test with its z_score")
    if not wrong:
        wrong = [name for name in ("log10_p", "log10_bound") if not are_log10_p(getattr(result, name))]
        declared = dict.fromkeys(wrong, "the finite logarithm of a probability")
    for name in wrong:
        kind, found = declared[name], type(getattr(result, name)).__name__
        expected = kind.__name__ if type(kind) is type else str(kind).replace("typing.", "")
        raise InvalidInputError(
            f"{name} of the result: a {found} that is not what was expected, {expected}; restore the file it was read "
            "from"
        )


def refer_to(
    result: DetectionResult, commitment: dict[str, Any] | None, suspect_first_seen: str | None
) -> DetectionResult:
    """A bare result with the commitment it refers to; its explanation says what that commitment is worth."""
    result = dataclasses.replace(result, commitment=commitment, suspect_first_seen=suspect_first_seen)
    if commitment is None:
        worth = f"{NOT_COMMITTED}."
    elif not result.committed:
        seen = f"which was first seen {suspect_first_seen}"
        worth = f"{NOT_COMMITTED}: the commitment is not older than the suspect, {seen}."
    else:
        stamped = isinstance(commitment.get("timestamp"), Mapping)
        worth = f"The key was committed to in {commitment.get('repo_id')} on {commitment.get('date')}: " + (
            "its time stamp was verified." if stamped else "that date is the owner's word."
        )
    return dataclasses.replace(result, explanation=f"{result.explanation} {worth}")


def authenticate(document: Mapping[str, Any], key: WatermarkKey) -> str:
    """The :attr:`DetectionResult.mac` that belongs to a saved document."""
    content = {name: value for name, value in document.items() if name != "mac"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(key.subkey("evidence"), canonical, hashlib.sha256).hexdigest()


def read_document(path: Path) -> dict[str, Any]:
    """The JSON that :meth:`DetectionResult.save` wrote, with all the fields a result needs."""
    if not path.is_file():
        what = "a folder" if path.is_dir() else "not there"
        raise InvalidInputError(
            f"{path} is {what}; expected the JSON file that result.save or `drw-hf detect --output` wrote (in a "
            "report's folder it is evidence.json): check the name"
        )
    try:
        document = parse_json(read_within(path, LARGEST_EVIDENCE, InvalidInputError))
    except OSError as error:
        raise InvalidInputError(f"{path} is not a result that save wrote ({type(error).__name__})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidInputError(f"{path} is not a result of the form {FORMAT}; was it written by a newer drw_hf?")
    needed = {entry.name for entry in dataclasses.fields(DetectionResult) if entry.default is dataclasses.MISSING}
    missing = needed - set(document)
    if missing:
        raise InvalidInputError(f"{path} lacks {sorted(missing)}; restore the file from a backup")
    return document


def write_evidence(files: Mapping[Path, bytes]) -> None:
    """Write the files of a result; before the first, refuse to put another content in the place of what is there."""
    check_no_evidence(*(path for path, content in files.items() if not _holds(path, content)))
    for path, content in files.items():
        write_atomically(path, content)


def check_no_evidence(*paths: Path) -> None:
    """Refuse to write where a file is."""
    for path in paths:
        if path.is_file():
            raise FileNotWrittenError(
                f"{path} is there already, and evidence is never overwritten; choose another name, or move the file "
                "away first"
            )


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def probe_path(path: Path) -> Path:
    """Where the probe of a saved result lies."""
    return path.with_suffix(".probe.npz")


def as_iso(value: str | date | datetime, name: str = "suspect_first_seen") -> str:
    """A day as an ISO date, a moment as an ISO time in UTC; what has no time zone is taken for UTC."""
    try:
        if isinstance(value, str):
            value = _parse(value)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        return date.isoformat(value)
    except (ValueError, OverflowError, TypeError):
        raise InvalidInputError(
            f"{name}={value!r}: expected a date like 2026-03-31, or a time like 2026-03-31T18:00+02:00"
        ) from None


def moment_of(iso: str) -> datetime:
    """The moment an ISO date or time names; of a day, its beginning in UTC, before which it was not yet."""
    parsed = _parse(as_iso(iso))
    return parsed if isinstance(parsed, datetime) else datetime.combine(parsed, time(), UTC)


def _parse(iso: str) -> date | datetime:
    try:
        return date.fromisoformat(iso)
    except ValueError:
        return datetime.fromisoformat(iso)


def _saved_fields() -> list[str]:
    return [entry.name for entry in dataclasses.fields(DetectionResult) if entry.name not in _NOT_SAVED]
