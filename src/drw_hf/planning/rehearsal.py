"""What a rehearsal found: a row per attack, the cheapest escape, a table, a picture and a page."""

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from ..checks import are_log10_p, check_level, is_number, unfit
from ..errors import InvalidInputError
from ..extraction.attacks.base import STAGES
from ..keys.files import write_atomically
from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
from ..runs.lines import Record
from ..wording import printable, small_p
from .rehearsal_bench import BASELINE, FORGERY, INNOCENT, NOTHING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "drw-rehearsal-1"
FOUND, ESCAPED, FAILED, FRAMED, CLEARED = "found", "escaped", "failed", "framed", "cleared"
OF_THEFTS, OF_OTHERS = (FOUND, ESCAPED, FAILED), (FRAMED, CLEARED, FAILED)
STAGE_TITLES: dict[str, str] = {name: f"What is done {words}" for name, words in STAGES.items()}
_NUMBERS = ("accuracy", "lost", "log10_log", "log10_unseen", "z_log", "z_unseen")
FAR_BEHIND = 5.0  # points; a copy so much worse than its victim was not learnt well
_SMALLEST = -1e9  # log₁₀ of a p-value; no test brings less


@dataclass(frozen=True)
class RehearsalRow:
    """What one attack came to. Where it failed, there are no numbers.

    Attributes
    ----------
    attack, title, stage, needs : str
        Its name, what the thief does, where it acts, and what the thief needs for it.
    verdict : str
        ``"found"`` (on the log or on unseen text), ``"escaped"``, or ``"failed"``; of forgeries, and of a model that
        owes the service nothing, ``"framed"`` or ``"cleared"``.
    accuracy : float
        The student's, in points, on unseen text.
    lost : float
        How much less than the student of no attack: what the attack costs the thief.
    log10_log, log10_unseen : float
        log₁₀ of the bound on p, on the log of what was asked and on unseen text: the better of the tests by scores and
        by labels, corrected for both looks.
    z_log, z_unseen : float
        z of the test by scores (by labels, where there are no scores).
    asked : int
        Questions.
    gold : float
        The share of its texts whose right labels the thief must have.
    note : str
        What else there is to say; of a failure, why.
    """

    attack: str
    title: str
    stage: str
    needs: str
    verdict: str
    accuracy: float | None = None
    lost: float | None = None
    log10_log: float | None = None
    log10_unseen: float | None = None
    z_log: float | None = None
    z_unseen: float | None = None
    asked: int = 0
    gold: float = 0.0
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
        return [row for row in self.rows if row.stage != FORGERY]

    @property
    def forgeries(self) -> list[RehearsalRow]:
        """The rows that are."""
        return [row for row in self.rows if row.stage == FORGERY]

    @property
    def escapes(self) -> list[RehearsalRow]:
        """The thefts that leave p above the level on the log, the cheapest first.

        No attack at all is the cheapest, where already that leaves it.
        """
        limit = math.log10(self.level)
        free = [row for row in self.thefts if row.log10_log is not None and row.log10_log > limit]
        return sorted(free, key=lambda row: (row.attack != NOTHING, row.lost))

    @property
    def cheapest_escape(self) -> RehearsalRow | None:
        """The attack that leaves p above the level on the log and loses the thief least; None where none does."""
        return next(iter(self.escapes), None)

    @property
    def cheapest_without_labels(self) -> RehearsalRow | None:
        """The same of thieves who have no right labels, and so the most reason to steal."""
        return next((row for row in self.escapes if not row.gold), None)

    def conclusion(self) -> str:
        """The finding in a few sentences."""
        played = [row for row in self.thefts if row.verdict != FAILED]
        found = [row for row in played if row.verdict == FOUND]
        said = [
            f"The mark is found after {len(found)} of {len(played)} thefts, on the log or on unseen text.",
            self._of_the_cheapest(),
        ]
        behind = self.victim - (self.rows[0].accuracy or 0.0)
        if behind > FAR_BEHIND:
            said.append(
                f"A copy without any attack is {behind:.1f} points worse than your model, and no thief's best: more "
                "text, or students that train longer, would tell more."
            )
        framed = [row for row in self.forgeries if row.verdict == FRAMED]
        if framed:
            names = ", ".join(repr(row.attack) for row in framed)
            said.append(
                f"A model that owes the service nothing can be made to look like a copy ({names}): keep your log, and "
                "who asked what."
            )
        if self.innocent is not None and self.innocent.verdict == FRAMED:
            said.append(
                "A model of right labels alone, which owes the service nothing, tests positive too: find out why "
                "before you rely on any of this."
            )
        failed = len(self.rows) - len(played) - len([row for row in self.forgeries if row.verdict != FAILED])
        if failed:
            said.append(f"{failed} attack{'s' * (failed > 1)} failed, and say{'s' * (failed == 1)} nothing.")
        return " ".join(said)

    def _of_the_cheapest(self) -> str:
        cheapest = self.cheapest_escape
        if cheapest is None:
            return f"No attack leaves p above {self.level:g} on the log."
        if cheapest.attack == NOTHING:
            unseen = at_most(cheapest.log10_unseen)
            return (
                f"Already without any attack p stays above {self.level:g} on the log; on unseen text it is {unseen}."
            )
        said = f"The cheapest way to leave p above {self.level:g} on the log is {self._told(cheapest)}."
        if not cheapest.gold:
            return said
        other = self.cheapest_without_labels
        if other is None:
            return f"{said} It needs right labels; without them there is none."
        return f"{said} It needs right labels; without them the cheapest is {self._told(other)}."

    def _told(self, row: RehearsalRow) -> str:
        title = printable(row.title)
        return (
            f"{printable(row.attack)!r} ({title[:1].lower()}{title[1:]}), which costs the thief {self.price(row)} and "
            f"leaves p {at_most(row.log10_unseen)} on unseen text"
        )

    def price(self, row: RehearsalRow) -> str:
        """What an attack loses the thief, in words."""
        lost = points(row.lost)
        return "nothing" if lost.startswith("-") or lost == "0.0" else f"{lost[1:]} points of {self.measured}"

    def __str__(self) -> str:
        lines = [f"{'attack':<30} {'accuracy':>8} {'lost':>6} {'p, log':>9} {'p, unseen':>9}  verdict; what it needs"]
        for stage, title in STAGE_TITLES.items():
            rows = [row for row in self.rows if row.stage == stage]
            lines += [f"{title}:" for _ in rows[:1]] + [_line(row) for row in rows]
        if self.innocent is not None:
            lines += ["For comparison, a model that owes the service nothing:", _line(self.innocent)]
        lines += [f"Not played: {printable(name)} ({printable(why)})." for name, why in self.left_out.items()]
        measured = printable(self.measured).capitalize()
        lines.append(f"{measured} of the victim {self.victim:.1f}, of what is served {self.served:.1f}.")
        return "\n".join([*lines, self.conclusion()])

    # -- files

    def document(self) -> dict[str, Any]:
        """All of it, as JSON keeps it."""
        return {"format": FORMAT, **asdict(self)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(path), (json.dumps(self.document(), indent=2, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Rehearsal":
        """Read what :meth:`save` wrote."""
        document = _read(path)
        if document is None:
            raise InvalidInputError(f"{path} is no rehearsal ({FORMAT}); give a file that Rehearsal.save wrote")
        problem = _problem(document)
        if problem:
            raise InvalidInputError(f"{path}: {problem}; restore the file, or play the rehearsal again")
        innocent = document["innocent"]
        return cls(
            rows=tuple(RehearsalRow(**row) for row in document["rows"]),
            innocent=None if innocent is None else RehearsalRow(**innocent),
            **{name: document[name] for name in ("victim", "served", "measured", "left_out", "level", "settings")},
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> "Figure":
        """Draw accuracy lost against evidence left, a dot per theft."""
        from .rehearsal_page import plot_rehearsal

        return plot_rehearsal(self, path)

    def page(self, path: str | os.PathLike[str]) -> Path:
        """Write one page for those who decide: the picture, the table, what it means. It shows nothing of the key."""
        from .rehearsal_page import write_page

        return write_page(self, path)


def is_rehearsal(path: str | os.PathLike[str]) -> bool:
    """Whether a file is there and says that it is one."""
    with contextlib.suppress(OSError, InvalidInputError):
        return _read(path) is not None
    return False


def _read(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The document in a file that says that it is a rehearsal."""
    document = parse_json(read_within(path, LARGEST_DOCUMENT, InvalidInputError))
    return document if isinstance(document, dict) and document.get("format") == FORMAT else None


# -- what a file may hold

_FIELDS = {
    "rows": list[dict[str, Any]],
    "innocent": dict[str, Any] | None,
    "victim": float,
    "served": float,
    "measured": str,
    "left_out": dict[str, str],
    "level": float,
    "settings": dict[str, Any],
}
_SETTINGS = {
    "key": str,
    "label_kind": str,
    "task": str,
    "rows": dict[str, int],
    "recipe": dict[str, Any],
    "seed": int,
    "labelled": bool,
    "versions": dict[str, str],
}
_COLUMNS = get_type_hints(RehearsalRow)
_NEEDED = {one.name for one in fields(RehearsalRow) if one.default is MISSING}


def _problem(document: Mapping[str, Any]) -> str | None:
    """What is wrong with a rehearsal that was read."""
    missing, strange = _FIELDS.keys() - document.keys(), document.keys() - _FIELDS.keys() - {"format"}
    wrong = sorted([*missing, *strange, *unfit(document, _FIELDS)])
    if not wrong:
        check_level(document["level"])
        wrong = unfit(document["settings"], _SETTINGS)
        wrong += [name for name in ("victim", "served") if not _is_share(document[name])]
    if wrong:
        return f"{', '.join(map(ascii, wrong))} is missing, unknown or of another type"
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        return "it holds a number that is none"
    rows, innocent = document["rows"], document["innocent"]
    if not rows or rows[0].get("attack") != NOTHING:
        return f"its first row is not {NOTHING!r}"
    rows = rows if innocent is None else [*rows, innocent]
    for number, row in enumerate(rows):
        is_innocent = number == len(document["rows"])
        if not _is_sound(row, is_innocent):
            return f"row {number} holds what is no result of an attack"
    return None


def _is_sound(row: Mapping[str, Any], is_innocent: bool) -> bool:
    if unfit(row, _COLUMNS) or row.keys() - _COLUMNS.keys() or _NEEDED - row.keys():
        return False
    of_others = is_innocent or row["stage"] == FORGERY
    stages = (INNOCENT,) if is_innocent else tuple(STAGES)
    if row["stage"] not in stages or row["verdict"] not in (OF_OTHERS if of_others else OF_THEFTS):
        return False
    numbers = [row.get(name) for name in _NUMBERS]
    if row["verdict"] == FAILED:
        return row["attack"] != NOTHING and numbers == [None] * len(numbers)
    if not all(map(is_number, numbers)) or not 0.0 <= row.get("gold", 0.0) <= 1.0:
        return False
    p_values = row["log10_log"], row["log10_unseen"]
    are_shares = _is_share(row["accuracy"]) and _is_share(abs(row["lost"]))
    return are_shares and are_log10_p(*p_values) and min(p_values) >= _SMALLEST


def _is_share(value: Any) -> bool:
    return is_number(value) and 0.0 <= value <= 100.0


# -- from a run


def rehearsal_of(records: Sequence[Record], left_out: Mapping[str, str], level: float) -> Rehearsal:
    """The result from the lines of a run."""
    by_job = {record["job"]: record for record in records}
    baseline, settings = by_job.pop(BASELINE), by_job.pop("settings")
    reference = by_job[NOTHING]["accuracy"]
    rows = {name: _row(name, record, reference, level) for name, record in by_job.items()}
    innocent = rows.pop(INNOCENT, None)
    order = list(STAGE_TITLES)
    return Rehearsal(
        rows=tuple(sorted(rows.values(), key=lambda row: (row.attack != NOTHING, order.index(row.stage), row.attack))),
        innocent=innocent,
        **{name: baseline[name] for name in ("victim", "served", "measured")},
        left_out=dict(left_out),
        level=level,
        settings={name: settings[name] for name in _SETTINGS if name in settings},
    )


def _row(name: str, record: Record, reference: float, level: float) -> RehearsalRow:
    stage = record.get("stage", INNOCENT)
    about: dict[str, Any] = {
        "attack": name,
        "title": record.get("title", "Learns from right labels alone"),
        "stage": stage,
        "needs": record.get("needs", ""),
        "gold": record.get("gold", 0.0),
    }
    if "failed" in record:
        return RehearsalRow(**about, verdict=FAILED, note=record["failed"])
    log, unseen = record["log"]["log10_bound"], record["unseen"]["log10_bound"]
    note = _why_untested(record)
    if record.get("refused"):
        note = f"refuses {record['refused']:.0%} of the log"
    if "searched" in record:
        found = record["searched"]
        note = (
            f"the best of {found['keys']} keys has p at most {small_p(found['log10_bound'], up=True)}, corrected for "
            f"the search {small_p(found['corrected'], up=True)}"
        )
        log = unseen = found["corrected"]
    positive = min(log, unseen) <= math.log10(level)
    owes_nothing = stage in (FORGERY, INNOCENT)
    return RehearsalRow(
        **about,
        verdict=(FRAMED if positive else CLEARED) if owes_nothing else FOUND if positive else ESCAPED,
        accuracy=record["accuracy"],
        lost=round(reference - record["accuracy"], 3),
        log10_log=log,
        log10_unseen=unseen,
        z_log=_z(record["log"]),
        z_unseen=_z(record["unseen"]),
        asked=record.get("asked", 0),
        note=note,
    )


def _z(tested: Record) -> float:
    return float((tested["scores"] if "scores" in tested else tested["labels"])["z"])


def _why_untested(record: Record) -> str:
    """Why no test of the log was possible, where none was."""
    tests = [record["log"][how] for how in ("scores", "labels") if how in record["log"]]
    return f"the log cannot be tested: {tests[0]['why']}" if all("why" in test for test in tests) else ""


# -- words


def points(value: float | None) -> str:
    """A difference in accuracy with its sign, unless it is none; empty where there is no number."""
    if value is None:
        return ""
    return "0.0" if abs(value) < 0.05 else f"{value:+.1f}"


def at_most(log10_p: float | None) -> str:
    """A bound on p; empty where there is none."""
    return "" if log10_p is None else small_p(log10_p, up=True)


def _line(row: RehearsalRow) -> str:
    """A row of the table that is printed."""
    name = f"{printable(row.attack):<30}"
    if row.verdict == FAILED:
        return f"{name} {'failed':>8}: {printable(row.note)}"
    said = "; ".join(printable(word) for word in (row.verdict, row.needs, row.note) if word)
    p_values = f"{at_most(row.log10_log):>9} {at_most(row.log10_unseen):>9}"
    return f"{name} {row.accuracy:>8.1f} {points(row.lost):>6} {p_values}  {said}"
