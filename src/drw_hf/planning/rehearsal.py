"""What a rehearsal found: a row per attack, the cheapest escape, a table, a picture and a page."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInputError
from ..extraction.attacks.base import STAGES
from ..keys.files import write_atomically
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from ..runs.lines import Record
from ..wording import small_p

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "drw-rehearsal-1"
FOUND, ESCAPED, FAILED, FRAMED, CLEARED = "found", "escaped", "failed", "framed", "cleared"


@dataclass(frozen=True)
class RehearsalRow:
    """What one attack came to.

    Attributes
    ----------
    attack, title, stage, needs : str
        Its name, what the thief does, where it acts, and what the thief needs for it.
    accuracy : float
        The student's, in points, on unseen text.
    lost : float
        How much less than the student of no attack: what the attack costs the thief.
    log10_log, log10_unseen : float
        log₁₀ of the bound on p, on the log of what was asked and on unseen text: the better of the tests by scores and
        by labels, corrected for both looks.
    z_log, z_unseen : float
        z of the test by scores (by labels, where there are no scores).
    verdict : str
        ``"found"`` (on the log or on unseen text), ``"escaped"``, or ``"failed"``; of forgeries ``"framed"`` or
        ``"cleared"``.
    asked : int
        Questions.
    note : str
        What else there is to say.
    """

    attack: str
    title: str
    stage: str
    needs: str
    accuracy: float
    lost: float
    log10_log: float
    log10_unseen: float
    z_log: float
    z_unseen: float
    verdict: str
    asked: int = 0
    note: str = ""


@dataclass(frozen=True)
class Rehearsal:
    """All attacks that were played on one service.

    Attributes
    ----------
    rows : tuple of RehearsalRow
        Thefts and forgeries; the first is the thief without any attack.
    innocent : RehearsalRow, optional
        A model of right labels alone, tested the same way: it must not be found.
    victim, served : float
        The accuracy of the clean model and of what is served, in points.
    measured : str
        ``"accuracy"``, or ``"agreement with the victim"`` where there are no right labels.
    left_out : dict
        Why attacks were not played, by name.
    level : float
        p-values above it count as an escape.
    settings : dict
        What was rehearsed: the key's fingerprint, label kind, task, numbers of texts, how students were made.
    """

    rows: tuple[RehearsalRow, ...]
    innocent: RehearsalRow | None
    victim: float
    served: float
    measured: str
    left_out: Mapping[str, str]
    level: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def thefts(self) -> list[RehearsalRow]:
        """The rows that are no forgeries."""
        return [row for row in self.rows if row.stage != "forgery"]

    @property
    def cheapest_escape(self) -> RehearsalRow | None:
        """The attack that leaves p above the level on the log and loses the thief least; None where none does."""
        limit = math.log10(self.level)
        free = [row for row in self.thefts if row.verdict != FAILED and row.log10_log > limit]
        return min(free, key=lambda row: row.lost, default=None)

    def conclusion(self) -> str:
        """The finding in two sentences."""
        found = [row for row in self.thefts if row.verdict == FOUND]
        played = [row for row in self.thefts if row.verdict != FAILED]
        said = f"The mark is found after {len(found)} of {len(played)} thefts, on the log or on unseen text."
        cheapest = self.cheapest_escape
        if cheapest is None:
            return f"{said} On the log no attack leaves p above {self.level:g}."
        return (
            f"{said} The cheapest way to leave p above {self.level:g} on the log is {cheapest.attack!r} "
            f"({cheapest.title[0].lower()}{cheapest.title[1:]}): it loses the thief {cheapest.lost:+.1f} points, and "
            f"on unseen text p is at most {small_p(cheapest.log10_unseen, up=True)}."
        )

    def __str__(self) -> str:
        lines = [_line(self.rows[0], header=True)]
        for stage in dict.fromkeys(row.stage for row in self.rows):
            lines.append(f"What is done {STAGES[stage]}:" if stage in STAGES else stage)
            lines += [_line(row) for row in self.rows if row.stage == stage]
        if self.innocent is not None:
            lines += ["For comparison:", _line(self.innocent)]
        lines += [f"Not played: {name} ({reason})." for name, reason in self.left_out.items()]
        measured = self.measured.capitalize()
        lines.append(f"{measured} of the victim {self.victim:.1f}, of what is served {self.served:.1f}.")
        return "\n".join([*lines, self.conclusion()])

    # -- files

    def document(self) -> dict[str, Any]:
        """All of it, as JSON keeps it."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(path), (json.dumps(self.document(), indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Rehearsal":
        """Read what :meth:`save` wrote."""
        document = parse_json(read_within(path, LARGEST_DOCUMENT, InvalidInputError))
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise InvalidInputError(f"{path} is no rehearsal ({FORMAT}); give a file that Rehearsal.save wrote")
        try:
            innocent = document["innocent"]
            return cls(
                rows=tuple(RehearsalRow(**row) for row in document["rows"]),
                innocent=None if innocent is None else RehearsalRow(**innocent),
                **{name: document[name] for name in ("victim", "served", "measured", "left_out", "level", "settings")},
            )
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{path}: a field is missing or unknown ({error}); restore the file") from None

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draw accuracy lost against evidence left, a dot per attack."""
        from .rehearsal_page import plot_rehearsal

        return plot_rehearsal(self, path)

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write one page for those who decide: the picture, the table, what it means. It shows nothing of the key."""
        from .rehearsal_page import write_page

        return write_page(self, Path(path))


def rehearsal_of(records: Sequence[Record], left_out: Mapping[str, str], level: float) -> Rehearsal:
    """The result from the lines of a run."""
    by_job = {record["job"]: record for record in records}
    baseline, settings = by_job.pop("baseline"), by_job.pop("settings")
    reference = by_job["nothing"].get("accuracy", math.nan)
    rows = {name: _row(name, record, reference, level) for name, record in by_job.items()}
    innocent = rows.pop("innocent", None)
    order = ["nothing", *(name for name in rows if name != "nothing")]
    order.sort(key=lambda name: (name != "nothing", list(STAGES).index(rows[name].stage), name))  # type: ignore[arg-type]
    known = ("key", "label_kind", "task", "rows", "recipe", "seed", "labelled", "versions")
    return Rehearsal(
        rows=tuple(rows[name] for name in order),
        innocent=innocent,
        **{name: baseline[name] for name in ("victim", "served", "measured")},
        left_out=dict(left_out),
        level=level,
        settings={name: settings[name] for name in known if name in settings},
    )


def _row(name: str, record: Record, reference: float, level: float) -> RehearsalRow:
    stage = record.get("stage", "innocent")
    about: dict[str, Any] = {
        "attack": name,
        "title": record.get("title", "A model of right labels alone, innocent"),
        "stage": stage,
        "needs": record.get("needs", ""),
    }
    if "failed" in record:
        figures = ("accuracy", "lost", "log10_log", "log10_unseen", "z_log", "z_unseen")
        nothing: dict[str, Any] = dict.fromkeys(figures, math.nan)
        return RehearsalRow(**about, **nothing, verdict=FAILED, note=record["failed"])
    log, unseen = record["log"]["log10_bound"], record["unseen"]["log10_bound"]
    note = ""
    if "refused" in record:
        note = f"refuses {record['refused']:.0%} of the log" if record["refused"] else ""
    if "searched" in record:
        found = record["searched"]
        note = (
            f"the best of {found['keys']} keys has p at most {small_p(found['log10_bound'], up=True)}, corrected for "
            f"the search {small_p(found['corrected'], up=True)}"
        )
        log = unseen = found["corrected"]
    found_it = min(log, unseen) <= math.log10(level)
    verdict = (FRAMED if found_it else CLEARED) if stage in ("forgery", "innocent") else FOUND if found_it else ESCAPED
    return RehearsalRow(
        **about,
        accuracy=record["accuracy"],
        lost=round(reference - record["accuracy"], 3),
        log10_log=log,
        log10_unseen=unseen,
        z_log=_z(record["log"]),
        z_unseen=_z(record["unseen"]),
        verdict=verdict,
        asked=record.get("asked", 0),
        note=note,
    )


def _z(tested: Record) -> float:
    return float((tested["scores"] if "scores" in tested else tested["labels"])["z"])


def _line(row: RehearsalRow, header: bool = False) -> str:
    """A row of the table that is printed."""
    if header:
        return f"{'attack':<30} {'accuracy':>8} {'lost':>6} {'p, log':>9} {'p, unseen':>9}  verdict, what it needs"
    if row.verdict == FAILED:
        return f"{row.attack:<30} {'failed':>8} {row.note}"
    p = [small_p(value, up=True) for value in (row.log10_log, row.log10_unseen)]
    said = "; ".join(word for word in (row.verdict, row.needs, row.note) if word)
    return f"{row.attack:<30} {row.accuracy:>8.1f} {row.lost:>6.1f} {p[0]:>9} {p[1]:>9}  {said}"
