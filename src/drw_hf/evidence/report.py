"""The evidence report: one page for those who judge a finding, and the files behind it.

The full report discloses what the evidence does: target class, frequency, hash values. The redacted one holds what
`published` names, so that a new field of a result stays out of it until somebody adds it there.
"""

import base64
import dataclasses
import json
import math
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..asking.log_intervals import LogInterval
from ..checks import check_level, is_number
from ..detection.result import (
    NOT_COMMITTED,
    DetectionResult,
    check_kinds,
    moment_of,
    probe_path,
    write_evidence,
)
from ..detection.statistics.memory import STATISTIC as MEMORY
from ..detection.verdict import SMALLEST_EFFECT, SUGGESTIVE
from ..errors import DrwError, InvalidInputError
from ..keys.files import ARRAYS_FILE, KEY_FILE, write_atomically
from ..wording import one_in
from .commitments import CommitmentRecord
from .key_checks import count_in_words, log10_allowed
from .pages import page_template
from .plots import draw_panels, draw_score

REDACTED_FORMAT = "drw-evidence-redacted-1"
PAGE, EVIDENCE = "report.html", "evidence.json"
REDACTED_PAGE, REDACTED_EVIDENCE = "report-redacted.html", "evidence-redacted.json"

# What a redacted report does not say. Counts are among it: whoever has the texts could tell the class by them.
WITHHELD = (
    "the target class, if there is one",
    "the frequency, the ratio of tokens marked, the law, the scope, the hash rule and other settings of the key",
    "hash values, the answers over them, the periodogram and P_snr",
    "how many probes and tokens counted, and the test statistic with its mean and spread",
    "the probe: what was asked and answered",
    "the log of a service, if the test goes by one: its days, their roots, and how much was served",
)
_SHOWN = (
    "verdict log10_p log10_bound z_score level keys_tried suspects_tested looks statistic n_queries suspect "
    "label_map suspect_first_seen key_fingerprint key_commitment probe_digest n_unanswered versions created_at"
).split()
_SHOWN_IN_PART = ["variant", "commitment", "mac"]  # or under another name
_BLANKS: dict[Any, Any] = {float: math.nan, int: 0, str: "", list[float]: []}  # None for any other type
_COMMITMENT_FIELDS = "commitment repo_id repo_type commit date path timestamp_status explanation".split()
_STAMP_FIELDS = "time accuracy_seconds authority serial policy".split()
_CONFIDENTIAL = (PAGE, EVIDENCE, "*.probe.npz", KEY_FILE, ARRAYS_FILE)  # none of it lies where a redacted report does
_LONGEST_TITLE = 80


def write_report(result: DetectionResult, folder: str | os.PathLike, *, redact: bool = False) -> Path:
    """Write a result's page and the files behind it, the page last; see :meth:`DetectionResult.report`."""
    _check(result)
    folder = Path(folder)
    _refuse_to_mix(result, folder, redact)
    page = _page(_redacted(result) if redact else result, redact)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    if not redact:
        result.save(folder / EVIDENCE)
        write_atomically(folder / PAGE, page.encode())
        return folder / PAGE
    evidence = json.dumps(published(result), indent=2) + "\n"
    write_evidence({folder / REDACTED_EVIDENCE: evidence.encode()})
    write_atomically(folder / REDACTED_PAGE, page.encode())
    for name in (REDACTED_EVIDENCE, REDACTED_PAGE):
        (folder / name).chmod(0o644)  # it is there for others to read
    return folder / REDACTED_PAGE


def published(result: DetectionResult) -> dict[str, Any]:
    """All that a redacted report says, as JSON; it shows nothing of the key but its commitment."""
    result = _redacted(result)
    record = result.commitment
    if record is not None:
        stamp = record.get("timestamp")
        record = {name: record.get(name) for name in _COMMITMENT_FIELDS}
        record["timestamp"] = {name: stamp.get(name) for name in _STAMP_FIELDS} if isinstance(stamp, dict) else None
    answers, chosen_by = _answers_and_chooser(result.variant)
    return {
        "format": REDACTED_FORMAT,
        "redacted": True,
        "withheld": list(WITHHELD),
        **{name: getattr(result, name) for name in _SHOWN},
        **({} if result.controls is None else {"controls": result.controls}),
        "answers": answers,
        "chosen_by": chosen_by,
        "task": result.settings["task"],
        "key_origin": result.settings["origin"],
        "commitment": record,
        "committed": result.committed,
        "full_evidence_mac": result.mac,
    }


def _redacted(result: DetectionResult) -> DetectionResult:
    """The result with blanks in the place of what is withheld, so that no part of the page can tell it.

    p-values are kept to a tenth of a decade, the bound rounded up.
    """
    fields: dict[str, Any] = {
        entry.name: _BLANKS.get(entry.type)
        for entry in dataclasses.fields(result)
        if entry.name not in _SHOWN + _SHOWN_IN_PART
    }
    fields["log10_p"] = round(result.log10_p, 1)
    fields["log10_bound"] = math.ceil(result.log10_bound * 10) / 10
    fields["z_score"] = round(result.z_score, 1)
    fields["settings"] = {name: result.settings.get(name) for name in ("task", "origin")}
    if result.controls is not None:  # their names are the owner's
        fields["controls"] = [
            {
                "name": f"model {number}",
                "z_score": None if one["z_score"] is None else round(one["z_score"], 1),
                "log10_p": None if one["log10_p"] is None else round(one["log10_p"], 1),
            }
            for number, one in enumerate(result.controls, start=1)
        ]
    return dataclasses.replace(result, **fields)


def _check(result: DetectionResult) -> None:
    """Refuse a result that was read from a file in which somebody put what cannot be shown."""
    check_kinds(result)
    numbers = {name: getattr(result, name) for name in ("log10_p", "log10_bound", "z_score")}
    numbers["beside"] = 0.0 if result.beside is None else result.beside["z_score"]
    numbers |= {f"parts ({name})": part["z_score"] for name, part in (result.parts or {}).items()}
    problems = {name: "it is not finite" for name, value in numbers.items() if not is_number(value)}
    checks = {"level": check_level, "commitment": CommitmentRecord.from_dict, "log": LogInterval.from_dict}
    for name, check in checks.items():
        try:
            if getattr(result, name) is not None:
                check(getattr(result, name))
        except DrwError as error:
            problems[name] = str(error)
    for place, one in enumerate(result.controls or (), start=1):
        figures = one.get("z_score", ...), one.get("log10_p", ...)
        if figures != (None, None) and not all(map(is_number, figures)):
            problems["controls"] = f"the figures of number {place} are no numbers"
    for name, problem in problems.items():
        raise InvalidInputError(f"{name} of the result: {problem}; restore the file it was read from")


def _refuse_to_mix(result: DetectionResult, folder: Path, redact: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; give the folder in which the report is to be written")
    names = _CONFIDENTIAL if redact else (REDACTED_PAGE, REDACTED_EVIDENCE)
    there = [hit for name in names for hit in folder.glob(name)]
    if there and redact:
        raise InvalidInputError(
            f"{there[0]} is confidential, and whoever published the redacted report with its folder would publish "
            "it too; write the redacted report into a folder of its own"
        )
    if there:
        raise InvalidInputError(
            f"{folder} holds a redacted report ({there[0].name}), which is there to be published; write the full "
            "one, which is confidential, into another folder"
        )
    probe = probe_path(folder / EVIDENCE)
    if result.probe is None and not redact and probe.exists():
        raise InvalidInputError(
            f"{probe} belongs to another result, and this one has no probe to put in its place; write into another "
            "folder"
        )


# -- the page


def _page(result: DetectionResult, redact: bool) -> str:
    name = result.suspect.strip() or "(without a name)"
    answers, chosen_by = _answers_and_chooser(result.variant)
    pictures = {"score": draw_score(result.z_score)} if redact else draw_panels(result)
    proven = _is_proven(result)
    left_open = {
        "whether the file was altered, as it has no authentication code": not result.mac,
        "the commitment, as the evidence names none": result.commitment is None,
        "the commitment, which is not proven to be older than the suspect": result.commitment and not proven,
        "whether the key was drawn at random, as its owner chose its arrays": result.settings.get("origin")
        == "arrays",
        "the log, which is its owner's word as long as verify is not given it": result.log is not None,
    }
    allowed = log10_allowed(vars(result))
    return page_template("report.html").render(
        result=result,
        redact=redact,
        name=name,
        short_name=name if len(name) <= _LONGEST_TITLE else f"{name[:_LONGEST_TITLE]}…",
        level=one_in(math.log10(result.level)),
        smallest_effect=SMALLEST_EFFECT,
        leaning=result.log10_p < math.log10(SUGGESTIVE),
        memory_statistic=MEMORY,
        not_committed=NOT_COMMITTED,
        proven=proven,
        allowed=None if allowed is None else count_in_words(allowed),
        left_open=[words for words, is_open in left_open.items() if is_open],
        answers=answers,
        chosen_by=chosen_by,
        renamed="; ".join(f"“{theirs}” is “{ours}”" for theirs, ours in (result.label_map or {}).items()),
        pictures={panel: base64.b64encode(svg).decode() for panel, svg in pictures.items()},
        withheld=WITHHELD,
        evidence_file=EVIDENCE,
        probe_file=probe_path(Path(EVIDENCE)).name,
        redacted_file=REDACTED_EVIDENCE,
        redacted_format=REDACTED_FORMAT,
    )


def _is_proven(result: DetectionResult) -> bool:
    """Whether the record holds a verified time stamp that is, with its accuracy, older than the suspect."""
    stamp = None if result.commitment is None else result.commitment["timestamp"]
    if stamp is None or result.suspect_first_seen is None:
        return False
    accuracy = timedelta(seconds=stamp["accuracy_seconds"] or 0.0)
    return moment_of(result.suspect_first_seen) - moment_of(stamp["time"]) > accuracy


def _answers_and_chooser(variant: str) -> tuple[str, str]:
    """In which form the suspect answered, and who decided which probes count."""
    given, _, chosen_by = variant.removesuffix("-margin").partition("-")
    return (chosen_by, "victim") if given == "memory" else (given, chosen_by)
