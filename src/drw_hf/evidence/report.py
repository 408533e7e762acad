"""The evidence report: one page for those who judge a finding, and the files behind it.

The full report discloses what the evidence does: target class, frequency, hash values. The redacted one holds what
`published` names, so that a new field of a result stays out of it until somebody adds it there.
"""

import base64
import dataclasses
import html
import json
import math
import numbers
import os
import shlex
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from string import Template
from typing import Any, cast

from ..detection.result import NOT_COMMITTED, DetectionResult, as_iso, moment_of, probe_path
from ..detection.statistics.memory import STATISTIC as MEMORY
from ..detection.verdict import SMALLEST_EFFECT, SUGGESTIVE
from ..errors import InvalidInputError
from ..keys.choices import VERDICTS
from ..keys.files import ARRAYS_FILE, KEY_FILE, write_atomically
from .plots import draw_panels, draw_score

REDACTED_FORMAT = "drw-evidence-redacted-1"
PAGE, EVIDENCE = "report.html", "evidence.json"
REDACTED_PAGE, REDACTED_EVIDENCE = "report-redacted.html", "evidence-redacted.json"

# What a redacted report does not say. Counts are among it: whoever has the texts could tell the class by them.
WITHHELD = (
    "the target class",
    "the frequency, the ratio of tokens marked, the law, the scope and the hash rule of the key",
    "hash values, the answers over them, the periodogram and P_snr",
    "how many probes and tokens counted, and the test statistic with its mean and spread",
    "the probe: what was asked and answered",
)

_KINDS: dict[Any, Any] = {
    int: numbers.Integral,
    float: numbers.Real,
    str: str,
    list[float]: list,
    int | None: numbers.Integral | None,
    float | None: numbers.Real | None,
    str | None: str | None,
    dict[str, Any]: dict,
    dict[str, str]: dict,
    dict[str, Any] | None: dict | None,
}
_UNPROVEN = (
    "<li><strong>Not that the suspect is free of marked answers.</strong> That no mark was found is not proof that "
    "there is none.</li>"
)
_TEMPLATE = Path(__file__).parent / "templates" / "report.html"
_CONFIDENTIAL = (PAGE, EVIDENCE, "*.probe.npz", KEY_FILE, ARRAYS_FILE)  # none of it lies where a redacted report does
_LONGEST, _LONGEST_TITLE = 300, 80
_COMMITMENT_FIELDS = (
    "commitment",
    "repo_id",
    "repo_type",
    "commit",
    "date",
    "path",
    "timestamp_status",
    "explanation",
)
_STAMP_FIELDS = ("time", "accuracy_seconds", "authority", "serial", "policy")
_TASKS = {"sequence-classification": "text classification", "token-classification": "token classification (tagging)"}
_ANSWERS = {
    "probabilities": "the probability of every class",
    "score": "the probability of one class",
    "labels": "a label alone",
}
_CHOOSERS = {
    "victim": "Yes: its answers decided which probes count, and what an unmarked model answers.",
    "gold": "No: true labels decided which probes count.",
    "suspect": "No: the suspect's own answers decided which probes count.",
}
_STAMPS = {
    "absent": "There is none.",
    "not checked": "There is one; it was not checked for this report.",
    "invalid": "There is one, and it is not valid.",
}


def write_report(result: DetectionResult, folder: str | os.PathLike, *, redact: bool = False) -> Path:
    """Write a result's page and the files behind it, the page last; see :meth:`DetectionResult.report`."""
    _check(result)
    folder = Path(folder)
    _refuse_to_mix(result, folder, redact)
    if redact:
        result = _stripped(result)
    page = _page(result, redact)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    if not redact:
        result.save(folder / EVIDENCE)
        write_atomically(folder / PAGE, page.encode())
        return folder / PAGE
    evidence = json.dumps(published(result), indent=2) + "\n"
    for name, content in ((REDACTED_EVIDENCE, evidence), (REDACTED_PAGE, page)):
        write_atomically(folder / name, content.encode())
        (folder / name).chmod(0o644)  # it is there for others to read
    return folder / REDACTED_PAGE


def published(result: DetectionResult) -> dict[str, Any]:
    """All that a redacted report says, as JSON; it shows nothing of the key but its commitment."""
    result = _stripped(result)
    record, stamp = result.commitment, None
    if record is not None:
        stamp = record.get("timestamp")
        record = {name: record.get(name) for name in _COMMITMENT_FIELDS}
        record["timestamp"] = {name: stamp.get(name) for name in _STAMP_FIELDS} if isinstance(stamp, dict) else None
    given, chosen_by = _ways(result)
    return {
        "format": REDACTED_FORMAT,
        "redacted": True,
        "withheld": list(WITHHELD),
        "verdict": result.verdict,
        "log10_p": result.log10_p,
        "log10_bound": result.log10_bound,
        "z_score": result.z_score,
        "level": result.level,
        "keys_tried": result.keys_tried,
        "suspects_tested": result.suspects_tested,
        "looks": result.looks,
        "statistic": result.statistic,
        "answers": given,
        "chosen_by": chosen_by,
        "task": result.settings.get("task"),
        "n_queries": result.n_queries,
        "suspect": result.suspect,
        "suspect_first_seen": result.suspect_first_seen,
        "key_fingerprint": result.key_fingerprint,
        "key_commitment": result.key_commitment,
        "commitment": record,
        "committed": result.committed,
        "probe_digest": result.probe_digest,
        "full_evidence_mac": result.mac,
        "versions": result.versions,
        "created_at": result.created_at,
    }


def _stripped(result: DetectionResult) -> DetectionResult:
    """The result without what is withheld, so that no part of the page can tell it.

    p-values are kept to a tenth of a decade, the bound rounded up.
    """
    return dataclasses.replace(
        result,
        log10_p=round(result.log10_p, 1),
        log10_bound=math.ceil(result.log10_bound * 10) / 10,
        z_score=round(result.z_score, 1),
        target_label="",
        frequency=math.nan,
        frequencies=[],
        powers=[],
        hash_values=[],
        target_values=[],
        settings={"task": result.settings.get("task")},
        p_snr=math.nan,
        p_snr_p_value=None,
        n_probes=0,
        n_tokens=0,
        n_effective=math.nan,
        tokens_needed=None,
        null_mean=math.nan,
        null_sd=math.nan,
        observed=math.nan,
        explanation="",
        probe=None,
        null_samples=None,
    )


def _check(result: DetectionResult) -> None:
    """Refuse a result that was read from a file in which somebody put things of other kinds."""
    for entry in dataclasses.fields(result):
        value, kind = getattr(result, entry.name), _KINDS.get(entry.type)
        if kind is not None and not isinstance(value, kind):
            problem = f"{entry.name} of the result is a {type(value).__name__}"
        elif entry.type == list[float] and not all(isinstance(each, numbers.Real) for each in value):
            problem = f"{entry.name} of the result does not hold numbers alone"
        elif entry.name in ("log10_p", "log10_bound", "z_score") and not math.isfinite(value):
            problem = f"{entry.name} of the result is not finite"
        elif entry.name == "level" and not 0.0 < value < 1.0:
            problem = "level of the result is not between 0 and 1"
        elif entry.name == "verdict" and value not in VERDICTS:
            problem = f"verdict of the result is none of {list(VERDICTS)}"
        else:
            continue
        raise InvalidInputError(f"{problem}; restore the file it was read from")


def _refuse_to_mix(result: DetectionResult, folder: Path, redact: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; give the folder in which the report is to be written")
    there = [
        hit for name in (_CONFIDENTIAL if redact else (REDACTED_PAGE, REDACTED_EVIDENCE)) for hit in folder.glob(name)
    ]
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
    if result.probe is None and not redact and probe_path(folder / EVIDENCE).exists():
        raise InvalidInputError(
            f"{probe_path(folder / EVIDENCE)} belongs to another result, and this one has no probe to put in its "
            "place; write into another folder"
        )


# -- the page


def _page(result: DetectionResult, redact: bool) -> str:
    sections = {
        "title": _text(f"{'Redacted' if redact else 'CONFIDENTIAL'} evidence report: {_name(result, _LONGEST_TITLE)}"),
        "running": "REDACTED EVIDENCE REPORT" if redact else "CONFIDENTIAL: as confidential as the key",
        "kind": "published" if redact else "confidential",
        "heading": _Html(f"Evidence report: {_outside(_name(result, _LONGEST_TITLE))}"),
        "notice": _notice(redact),
        "footer": _kind(redact),
        "verdict": _verdict(result),
        "claim": _claim(result, redact),
        "chance": _chance(result),
        "who": _who(result),
        "probed": _probed(result, redact),
        "figures": _figures(result, redact),
        "numbers": _numbers(result, redact),
        "tried": _tried(result),
        "unproven": "" if result.verdict == "detected" else _UNPROVEN,
        "replay": _replay(result, redact),
        "about": _about(result, redact),
    }
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(sections)


def _kind(redact: bool) -> str:
    if redact:
        return _p('<span class="kind">REDACTED.</span> This report can be published.')
    return _p(
        '<span class="kind">CONFIDENTIAL.</span> This report is as confidential as the key: do not publish it, or '
        "pass it on to anybody who may not have the key."
    )


def _notice(redact: bool) -> str:
    if not redact:
        return _kind(redact) + _p(
            "It discloses the target class, the frequency and hash values. Whoever knows them can remove the mark, "
            "or make another model look marked. <code>result.report(folder, redact=True)</code> writes a report "
            "that can be published."
        )
    return (
        _kind(redact)
        + _p("It shows nothing of the key but its commitment, and cannot be replayed. The full report also shows:")
        + _list(_text(each) for each in WITHHELD)
    )


def _verdict(result: DetectionResult) -> str:
    small = {
        "detected": f"A suspect that has nothing to do with the key would look so marked with a chance of at most "
        f"{_one_in(result.log10_bound)}.",
        "not detected": "The answers show no sign of the key.",
        "undecided": "The answers neither show the mark of the key nor rule it out.",
    }
    return f'<p class="word">{result.verdict.capitalize()}</p>\n' + _p(small[result.verdict])


def _claim(result: DetectionResult, redact: bool) -> str:
    suspect, key = _outside(_name(result)), _code(result.key_fingerprint)
    about = _p(
        "The owner of a model marks the answers that the model gives, by a secret key. A model that is trained on "
        "many marked answers learns the mark along with the task, and shows it in answers of its own. The question "
        f"here is whether the suspect “{suspect}” shows the mark of the key {key}."
    )
    said = {"detected": _claim_detected, "not detected": _claim_not_detected, "undecided": _claim_undecided}
    words = "" if redact else _p(f"In the words of the program: “{_outside(result.explanation, 2_000)}”")
    return about + said[result.verdict](result) + words


def _claim_detected(result: DetectionResult) -> str:
    what = (
        "The suspect repeats labels that the owner's service drew by the key, more often than can be explained "
        "without having learned them."
        if result.statistic == MEMORY
        else "The suspect's answers move up and down as the key prescribes, more closely than can be explained "
        "without the key."
    )
    return _p(
        f"<strong>Detected</strong> means: it does. {what} A model that has nothing to do with the key would look "
        f"as marked as this one with a chance of at most {_one_in(result.log10_bound)}; the level set for "
        f"this test is {_one_in(math.log10(result.level))}."
    ) + _p(
        "The ordinary way to such answers is that the suspect was trained, directly or by way of other models or "
        "data, on answers that were marked with the key."
    )


def _claim_not_detected(result: DetectionResult) -> str:
    return _p(
        "<strong>Not detected</strong> means: the answers show no sign of the key, although there were enough of "
        f"them to find a mark of {SMALLEST_EFFECT:g} standard deviations per token 19 times in 20. It does not prove "
        "that the suspect was never trained on marked answers: if they were few among others, the mark may be "
        "fainter than that."
    )


def _claim_undecided(result: DetectionResult) -> str:
    leaning = result.log10_p < math.log10(SUGGESTIVE)
    why = (
        f"the answers lean towards the key, but not so far that the level of {_one_in(math.log10(result.level))} is "
        "reached"
        if leaning
        else f"there were too few different {_things(result)} in the probes to find a faint mark, and no sign of one"
    )
    more = (
        f" About {result.tokens_needed:,} distinct {_things(result)} like these would decide; there were "
        f"{result.n_tokens:,}."
        if result.tokens_needed is not None
        else " More texts, with more different words, would decide."
    )
    return _p(
        f"<strong>Undecided</strong> means: {why}. This is no finding for or against the suspect, and must not be "
        f"used as one.{more}"
    )


def _chance(result: DetectionResult) -> str:
    detected = result.verdict == "detected"
    log10 = result.log10_bound if detected else result.log10_p
    zeros = f", a one with {int(-log10 + 1e-9)} zeros" if detected and log10 <= -7 else ""
    figure = f"{'at most' if detected else 'about'} {_one_in(log10)}{zeros}"
    drawn = (
        "What is left to chance is how the labels fell that the key drew: a suspect that was not trained on them "
        "cannot know."
        if result.statistic == MEMORY
        else "What is left to chance is the key: it was drawn at random, and the same answers are held against all "
        "the keys that could have been drawn instead."
    )
    product = result.keys_tried * result.suspects_tested * result.looks
    counted = f" All {product:,} combinations that were tried are counted in." if product > 1 else ""
    return _p(
        "The p-value is the chance that a suspect <em>which has nothing to do with the key</em> looks as marked as "
        f"this one. Here it is {figure}.{counted} Nothing is assumed of the suspect. {drawn} It is not the chance "
        "that the suspect is innocent: how likely that is depends on everything else that is known, too."
    )


# -- who, since when, and how


def _who(result: DetectionResult) -> str:
    record = result.commitment
    rows: list[tuple[str, str]] = [
        ("Suspect", _outside(_name(result))),
        ("First seen", _moment(result.suspect_first_seen or "not declared")),
        ("Key, by its fingerprint", _code(result.key_fingerprint)),
        ("Commitment to the key", _code(result.key_commitment)),
    ]
    if record is not None:
        stamp = record.get("timestamp")
        stamped = (
            _Html(f"Verified: {_outside(stamp.get('authority'))}, {_moment(stamp.get('time'))}.")
            if isinstance(stamp, dict)
            else _STAMPS.get(str(record.get("timestamp_status")), "Unknown.")
        )
        rows += [
            ("Published in", _Html(f"{_outside(record.get('repo_id'))}, file {_code(record.get('path'))}")),
            ("First commit that carries it", _code(record.get("commit"))),
            ("Date of that commit", _Html(f"{_moment(record.get('date'))} (the owner's word)")),
            ("Time stamp by an authority", stamped),
        ]
    return _table("Who", rows) + _worth(result)


def _worth(result: DetectionResult) -> str:
    """What the date of the commitment is worth."""
    why = "If the key was fixed before the suspect was seen, nobody can have made a key to fit. "
    record = result.commitment
    if record is None:
        return _p(
            f"{why}<strong>{NOT_COMMITTED}</strong>, so nothing here shows that the key is older than the suspect."
        )
    told = _p(
        f"{why}A commitment is a number that fixes a key and shows nothing of it. "
        f"{_outside(record.get('explanation'), 2_000)}"
    )
    if not result.committed:
        return told + _p(f"<strong>{NOT_COMMITTED}</strong>: the commitment is not older than the suspect.")
    if result.suspect_first_seen is None:
        return told + _p(
            "When the suspect was first seen is not declared, so whether the commitment is older is open."
        )
    worth = (
        "The time stamp proves it to whoever trusts the authority."
        if _proven(result)
        else "That is the owner's word; it is not proven."
    )
    return told + _p(
        f"By these dates, the key was fixed before the suspect was first seen. {worth} When the suspect was first "
        "seen is the word of whoever accuses it."
    )


def _proven(result: DetectionResult) -> bool:
    """Whether the record holds a verified time stamp that is, with its accuracy, older than the suspect."""
    stamp = (result.commitment or {}).get("timestamp")
    if not isinstance(stamp, dict) or result.suspect_first_seen is None:
        return False
    accuracy = timedelta(seconds=float(stamp.get("accuracy_seconds") or 0.0))
    time = cast(str, stamp.get("time"))  # moment_of refuses what is none
    return moment_of(time) + accuracy < moment_of(result.suspect_first_seen)


def _probed(result: DetectionResult, redact: bool) -> str:
    given, chosen_by = _ways(result)
    memory = result.statistic == MEMORY
    how = (
        "The suspect was asked texts that somebody had asked the owner's service before, and its answers were "
        "compared with the labels that the service had drawn for these texts."
        if memory
        else "The suspect was asked texts and its answers were recorded. How far the answers to each token stray from "
        "what explains them was computed before the key was looked at; then it was added up as the key prescribes."
    )
    counts = [
        ("Probes that counted", f"{result.n_probes:,}"),
        (f"Distinct {_things(result)} among them", f"{result.n_tokens:,}"),
        ("Worth as many equally important ones", f"{result.n_effective:,.1f}"),
    ]
    rows = [
        ("Texts the suspect was asked", f"{result.n_queries:,}"),
        *([] if redact else counts),
        ("Task", _TASKS.get(str(result.settings.get("task")), result.settings.get("task"))),
        ("What it answered with", _ANSWERS.get(given, given)),
        ("Was the owner's clean, unmarked model asked too?", _CHOOSERS.get(chosen_by, chosen_by)),
        (
            "Test",
            _code(result.statistic)
            if redact
            else _Html(f"{_code(result.statistic)}, variant {_code(result.variant)}"),
        ),
        ("Level of the verdict", f"{result.level:g}"),
        ("SHA-256 of all that was asked and answered", _code(result.probe_digest)),
    ]
    return _p(how) + _table("How it was probed", rows)


def _things(result: DetectionResult) -> str:
    """What the test counts: it has one independent term for each."""
    return "marked items" if result.statistic == MEMORY else "tokens"


def _ways(result: DetectionResult) -> tuple[str, str]:
    """In which form the suspect answered, and who decided which probes count."""
    given, _, chosen_by = result.variant.partition("-")
    return (chosen_by, "victim") if given == "memory" else (given, chosen_by)


# -- figures and numbers


def _figures(result: DetectionResult, redact: bool) -> str:
    if redact:
        alt = f"The normal curve, and a dashed line at z = {result.z_score:.1f} for this key."
        caption = (
            "Grey: where chance puts the test statistic. Dashed: where this key puts it. The further to the right "
            "of the grey, the less it can be chance. The full report shows the answers over the hash and the "
            "periodogram, too; they would disclose the key."
        )
        return _figure(draw_score(result.z_score), alt, caption)
    panels = draw_panels(result)
    distance = (result.observed - result.null_mean) / (result.null_sd or 1.0)
    return (
        _figure(
            panels["answers"],
            "The suspect's probability of the target class over the hash of the token, at "
            f"{len(result.hash_values):,} probes, with their mean by stretches of the hash and the fitted cosine.",
            "Answers of the selected probes over the hash that the key gives their tokens. A marked suspect's "
            "follow the cosine; those of others have no reason to.",
        )
        + _figure(
            panels["spectrum"],
            f"Periodogram: power over frequency, with a dashed line at the key's frequency {result.frequency:g}.",
            f"The same answers by frequency. A mark makes a peak at the key's frequency; P_snr = {result.p_snr:.1f} "
            "is its height over that of the rest.",
        )
        + _figure(
            panels["chance"],
            f"The distribution of the test statistic by chance, and a dashed line at {distance:.1f} standard "
            "deviations for what was observed.",
            "Grey: where chance puts the test statistic. Dashed: where it is. The further to the right of the grey, "
            "the less it can be chance. The verdict goes by this.",
        )
    )


def _figure(svg: bytes, alt: str, caption: str) -> str:
    source = f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"
    return f'<figure>\n<img src="{source}" alt="{_text(alt)}">\n<figcaption>{_text(caption)}</figcaption>\n</figure>\n'


def _numbers(result: DetectionResult, redact: bool) -> str:
    rows = [
        ("Verdict", result.verdict),
        ("p-value, certainly at most (Chernoff's bound)", _power(result.log10_bound, up=True)),
        ("p-value, estimated (Lugannani and Rice)", _power(result.log10_p)),
        ("z, the same for this one test", f"{result.z_score:.{1 if redact else 2}f}"),
    ]
    corrected = _p("Both p-values are corrected for all that was tried; the verdict goes by the first.")
    if redact:
        return _table("Findings", rows) + corrected
    centre = result.null_mean if abs(result.null_mean) > 1e-9 * result.null_sd else 0.0  # else it is rounding
    rows += [
        ("Test statistic, observed", f"{result.observed:.6g}"),
        ("Test statistic by chance: mean, standard deviation", f"{centre:.6g}, {result.null_sd:.6g}"),
        ("P_snr, the score of the original paper", f"{result.p_snr:.2f}"),
        (
            "How often random keys reach that P_snr",
            "not computed" if result.p_snr_p_value is None else f"{result.p_snr_p_value:.3g}",
        ),
    ]
    if result.tokens_needed is not None:
        rows.append((f"Distinct {_things(result)} that would decide", f"about {result.tokens_needed:,}"))
    settings = result.settings
    parameters = [
        ("Target class c*", result.target_label),
        ("Frequency f_w", f"{result.frequency:g}"),
        ("Ratio of tokens marked τ", settings.get("tau")),
        ("Law of the hashes", settings.get("law")),
        ("Scope", settings.get("scope")),
        ("Hash rule", settings.get("hash_rule")),
        ("Log of queries used", "yes" if settings.get("logged_counts") or result.statistic == MEMORY else "no"),
        ("Random keys simulated", settings.get("simulated_keys")),
    ]
    return (
        _table("Findings", rows)
        + corrected
        + _table("Parameters of the key and of the test (confidential)", parameters)
    )


def _tried(result: DetectionResult) -> str:
    product = result.keys_tried * result.suspects_tested * result.looks
    rows = [
        ("Keys tried", f"{result.keys_tried:,}"),
        ("Suspects tested", f"{result.suspects_tested:,}"),
        ("Looks at the data", f"{result.looks:,}"),
    ]
    corrected = (
        "As this was the only test, nothing had to be corrected."
        if product == 1
        else f"Both p-values were multiplied by {product:,}, the product of these (Bonferroni's correction)."
    )
    return (
        _p("Whoever tries often enough finds something by chance, so all that was tried has to be counted.")
        + _table("Tried in all, this test included", rows)
        + _p(f"{corrected} That there were no more is the word of whoever made the test.")
    )


# -- replay and origin


def _replay(result: DetectionResult, redact: bool) -> str:
    command = f"<pre><code>{_text(_command(result))}</code></pre>\n"
    what = (
        "It computes every figure again from the recorded answers and the key, checks that nothing in the file was "
        "altered, and looks the commitment up where one was published. It needs Python with drw_hf installed"
    )
    if redact:
        mac = _p(f"That evidence carries the authentication code {_code(result.mac)}.") if result.mac else ""
        return (
            _p(
                "This report cannot be replayed: it lacks the answers and the key. The full evidence, which the "
                "holder of the key keeps, can be, by whoever is given it with the key:"
            )
            + command
            + _p(f"{what}.")
            + mac
        )
    if result.probe is None:
        return (
            _p(
                "This result was saved without its probe, so that it <strong>cannot be replayed</strong>. Ask for "
                f"the probe, {_code(probe_path(Path(EVIDENCE)).name)}, put it beside {_code(EVIDENCE)}, and run:"
            )
            + command
        )
    return (
        _p(f"In the folder of this page, with {_code(EVIDENCE)} and {_code(probe_path(Path(EVIDENCE)).name)} in it:")
        + command
        + _p(
            f"{what}, and the key: put its folder or repository in the place of KEY. The passphrase of a sealed key "
            "is asked for."
            + (
                " ROOT.pem is the root certificate of a time-stamping authority that you trust."
                if _stamped(result)
                else ""
            )
        )
        + _p(f"<strong>Expected:</strong> {_expected(result)}")
    )


def _command(result: DetectionResult) -> str:
    parts = ["drw-hf", "verify", EVIDENCE, "--key", "KEY"]
    if result.commitment is not None:
        parts += ["--repo", shlex.quote(_shortened(_visible(result.commitment.get("repo_id")), _LONGEST))]
        parts += ["--trusted-root", "ROOT.pem"] if _stamped(result) else []
        parts += ["--suspect-first-seen", "DATE"] if result.suspect_first_seen is None else []
    return " ".join(parts)


def _stamped(result: DetectionResult) -> bool:
    return (result.commitment or {}).get("timestamp_status") in ("verified", "not checked")


def _expected(result: DetectionResult) -> str:
    if result.commitment is not None and not result.committed:
        return (
            "every check passes but the last, which fails: the commitment is not older than the suspect. That is exit "
            "code 1."
        )
    left = [] if result.mac else ["whether the file was altered, as it has no authentication code"]
    if result.commitment is None:
        left.append("the commitment, as the evidence names none")
    elif not _proven(result):
        left.append("the commitment, which is not proven to be older than the suspect")
    if left:
        return (
            f"no check fails, and left open is {'; and '.join(left)}. That is exit code 4; 1 would mean that a check "
            "failed."
        )
    return (
        "every check passes, exit code 0. Without the root certificate the check of the commitment stays open, exit "
        "code 4."
    )


def _about(result: DetectionResult, redact: bool) -> str:
    files = (
        f"{_code(REDACTED_EVIDENCE)} beside this page holds the same in a form for programs "
        f"({_code(REDACTED_FORMAT)}); it is no evidence that could be replayed."
        if redact
        else f"{_code(EVIDENCE)} beside this page holds every figure of it in a form for programs. What counts is "
        "that file, not this page, which anybody could edit."
    )
    rows = [("Test made", _moment(result.created_at)), *sorted(result.versions.items())]
    return _p(files) + _table("When, and with which versions", rows)


# -- words and numbers


class _Html(str):
    """Text that is HTML already."""


def _visible(value: Any) -> str:
    """Outside text in which nothing is invisible: marks that turn the direction of writing would hide what is said."""
    return "".join(letter if letter.isprintable() else f"⟨U+{ord(letter):04X}⟩" for letter in str(value))


def _text(value: Any) -> _Html:
    return value if isinstance(value, _Html) else _Html(html.escape(_visible(value)))


def _outside(value: Any, most: int = _LONGEST) -> _Html:
    """What others wrote, kept to itself and to a length; the whole is in the JSON."""
    if isinstance(value, _Html):
        return value
    return _Html(f"<bdi>{_text(_shortened(str(value), most))}</bdi>")


def _moment(value: Any) -> _Html:
    """A date or a time as people read it; what is none, as it is."""
    try:
        iso = as_iso(value)
    except InvalidInputError:
        return _outside(value)
    return _Html(iso if len(iso) == len("2026-03-31") else f"{moment_of(iso):%Y-%m-%d %H:%M:%S} UTC")


def _code(value: Any) -> _Html:
    return _Html(f"<code>{_text(_shortened(str(value), _LONGEST))}</code>")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters in all)"


def _name(result: DetectionResult, most: int | None = None) -> str:
    name = result.suspect.strip() or "(without a name)"
    return name if most is None or len(name) <= most else f"{name[:most]}…"


def _p(content: str) -> str:
    return f"<p>{content}</p>\n"


def _list(points: Iterable[_Html]) -> str:
    return "<ul>\n" + "".join(f"<li>{point}</li>\n" for point in points) + "</ul>\n"


def _table(caption: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Rows of a name and a value; a value that is not HTML comes from outside."""
    body = "".join(
        f'<tr><th scope="row">{_text(_shortened(name, _LONGEST))}</th><td>{_outside(value)}</td></tr>\n'
        for name, value in rows
    )
    return f"<table>\n<caption>{_text(caption)}</caption>\n<tbody>\n{body}</tbody>\n</table>\n"


def _one_in(log10: float) -> _Html:
    """A chance in words, never smaller than it is."""
    if log10 > -1.0:
        return _Html(f"{math.ceil(100.0 * 10.0**log10 - 1e-9)} in 100")
    if log10 <= -7.0:
        return _Html(f"one in 10<sup>{int(-log10 + 1e-9)}</sup>")
    whole = int(10.0**-log10 * (1.0 + 1e-9))
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return _Html(f"one in {whole // unit * unit:,}")


def _power(log10: float, *, up: bool = False) -> _Html:
    """A p-value to two digits, rounded or rounded up."""
    exponent = math.floor(log10)
    tenths = 10.0 * 10.0 ** (log10 - exponent)
    tenths = math.ceil(tenths - 1e-9) if up else round(tenths)
    if exponent >= -3:
        return _Html(f"{tenths * 10.0 ** (exponent - 1):.2g}")
    exponent, tenths = (exponent + 1, 10) if tenths >= 100 else (exponent, tenths)
    return _Html(f"{tenths / 10:.1f} × 10<sup>−{-exponent}</sup>")
