"""Replaying a claim: does saved evidence say what its probe, its key and its commitment say?

Every figure is computed anew from the probe, and the commitment is looked up where it was published. What cannot be
decided is said to be open. Where the probe comes from no replay can tell: :attr:`Verification.not_checked` says so.
"""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..checks import fits
from ..detection.probing import Probe
from ..detection.result import DetectionResult, as_iso, authenticate, moment_of, probe_path, read_document, refer_to
from ..detection.statistics import SPECTRA, STATISTICS, TestOptions, newest_for
from ..detection.statistics.base import Kind
from ..detection.verdict import (
    HELPS,
    WITHOUT_REFERENCE,
    Corrections,
    differs_beyond_rounding,
    key_settings,
    target_label_of,
    verdict_on,
)
from ..errors import DrwError, EvidenceError, HubError, InvalidInputError
from ..keys.key import WatermarkKey
from ..keys.merkle import UserProof
from ..registry import Registry
from ..wording import printable
from .check import Check, Status
from .commitments import CommitmentRecord, NotCommitted, verify_commitment
from .key_checks import KeyContext, check_key_itself, moment_or_none, trusted_of_the_key
from .logs import Log, LogContext, check_log_age
from .probe_checks import check_cut, check_draw, check_party, check_tokens
from .trust import taken_on_trust

TOLERANCE = 1e-6  # relative: what other versions of numpy and torch may round differently, and far less than matters
_NEAR_ZERO = 1e-9
_MOST_SIMULATED = 1_000  # no saved figure takes more, and a file must not make its reader work without end
_FIRST_P_SNR = "drw-psnr-1"  # of evidence that does not say by which version its P_snr was computed
_REWORDED = ("standard deviations a token", "standard deviations per token")  # in explanations: before, and now
# What evidence of earlier versions, or without such a thing, does not say, and what it would say.
_ADDED_SINCE = {"beside": None, "label_map": None, "parts": None, "n_unanswered": 0, "controls": None, "log": None}
_TRIED = ("keys_tried", "suspects_tested", "looks")
_OF_THE_KEY = {"key_commitment", "key_fingerprint", "frequency", "target_label", "settings"}
_OF_THE_CLAIM = {"format", "created_at", "versions", "mac", "commitment", "suspect_first_seen", "log"}
_COMPARED_ELSEWHERE = _OF_THE_KEY | _OF_THE_CLAIM


@dataclass(frozen=True)
class Verification:
    """What replaying a claim found.

    Attributes
    ----------
    claim : str
        What the evidence says, in its own words. That the checks passed means that it may say so, whatever it is, if
        what was not checked is true.
    checks : tuple of Check
    not_checked : tuple of str
        What a replay cannot check, in sentences: they are the word of whoever made the evidence.
    """

    claim: str
    checks: tuple[Check, ...]
    not_checked: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every check passed; what is :attr:`not_checked` is believed, not checked."""
        return all(check.status == "passed" for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if check.status == "failed")

    @property
    def open(self) -> tuple[Check, ...]:
        """The checks that could not be decided."""
        return tuple(check for check in self.checks if check.status == "open")

    def to_dict(self) -> dict[str, Any]:
        """The verification as JSON can hold it."""
        return {
            "claim": self.claim,
            "holds": self.holds,
            "checks": [asdict(check) for check in self.checks],
            "not_checked": list(self.not_checked),
        }

    def __str__(self) -> str:
        lines = [printable(f"The evidence says: {self.claim}"), *map(str, self.checks)]
        if self.not_checked:
            lines += ["Taken on the word of whoever made the evidence:", *(f"- {each}" for each in self.not_checked)]
        return "\n".join(lines)


def verify_evidence(
    evidence: str | os.PathLike | DetectionResult,
    *,
    key: WatermarkKey,
    repo_id: str | None = None,
    trusted_roots: Sequence[str | os.PathLike | bytes] = (),
    suspect_first_seen: str | date | datetime | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    corpus: Iterable[Any] | None = None,
    probe_digest: str | None = None,
    log: Log | None = None,
    victim: PreTrainedModel | None = None,
    proof: UserProof | None = None,
    trusted_beacons: Sequence[str | os.PathLike | bytes] = (),
    first_served: str | date | datetime | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
) -> Verification:
    """Replay a claim, check by check.

    A replay shows that the claim follows from the probe; that the probe is honest it cannot show, and
    :attr:`Verification.not_checked` lists what is believed. If you can reach the suspect, ask it yourself, with texts
    of your own choice, or with those that the probe keeps (``Probe.load(…).texts``):
    ``drw_hf.detect(suspect, texts, key=key, tokenizer=…)``.

    Parameters
    ----------
    evidence : path or DetectionResult
        What :meth:`DetectionResult.save` wrote, with the probe beside it.
    key : WatermarkKey
        The key, as its owner discloses it.
    repo_id, trusted_roots, token, revision : optional
        Where the commitment was published, and whose time stamps you trust, as in
        :func:`drw_hf.evidence.verify_commitment`. Without a time stamp that verifies, the date of a commitment is the
        owner's word, and the check stays open.
    suspect_first_seen : str, date or datetime, optional
        When the suspect was first seen, where the evidence does not say; it must not contradict the evidence. Without
        a time zone it is UTC, and a date is the beginning of that day.
    tokenizer : PreTrainedTokenizerBase, optional
        The protected model's: by it the tokens are computed again from the texts in the probe, and the key's special
        tokens must be its own. Without it that check stays open.
    corpus : iterable, optional
        The corpus from which a public seed drew the texts, for the draw to be done again.
    probe_digest : str, optional
        The digest that a neutral party published of its probe, before it saw the key.
    log : QueryLog, path or ProvenLines, optional
        The whole log that the evidence rests on, with the time stamps over the roots of its days, in the log's folder
        ``days``: they have to be older than the suspect, by authorities that you trust. Of another kind of log what
        shows the same. Without it such evidence is open: a log is its owner's word.
    victim : PreTrainedModel, optional
        The clean model, or the protected one, in memory: a seasoned key names its weights.
    proof : UserProof, optional
        For the key of a ring's user: shows that it was declared. The repository then carries the ring's root, and
        ``keys_tried`` has to be at least the number of users declared.
    trusted_beacons : sequence of path or bytes
        For a seasoned key: PEM files with the certificates (or public keys) of randomness beacons that you trust. The
        chains of drand are known.
    first_served : str, date or datetime, optional
        For a seasoned key: when answers were first marked with it, where somebody says so.

    Raises
    ------
    EvidenceError
        When there is nothing to replay: the file is missing, damaged, or of a newer format.
    TimestampError
        When trusted roots cannot be read.
    """
    first_seen = None if suspect_first_seen is None else as_iso(suspect_first_seen)
    served = None if first_served is None else as_iso(first_served, "first_served")
    document, probe_or_reason = _read(evidence)
    probe_check = _check_probe(document, probe_or_reason)
    probe = probe_or_reason if isinstance(probe_or_reason, Probe) and probe_check.status == "passed" else None
    replayed = _replay(document, probe, key)
    hub: dict[str, Any] = {"trusted_roots": trusted_roots, "token": token, "revision": revision}
    seen = _first_moment(document, first_seen)
    context = KeyContext(
        repo_id=repo_id,
        **hub,
        trusted_beacons=trusted_beacons,
        tokenizer=tokenizer,
        victim=victim,
        first_served=moment_or_none(served),
        first_seen=seen,
        proof=proof,
    )
    checks = (
        _check_unaltered(document, key),
        _check_key(document, key),
        _check_parameters(document, key),
        probe_check,
        _check_statistic(document, replayed),
        _check_tried(document, replayed),
        *_check_log(replayed),
        *check_tokens(probe, key, tokenizer),
        *check_cut(document, probe, key),
        *check_draw(probe, corpus),
        *check_party(probe, probe_digest),
        *check_log_age(document, probe, key, LogContext(log, trusted_roots, tokenizer, seen, _made_at(document))),
        *check_key_itself(document, key, context),
        _check_commitment(document, key if proof is None else proof.root, repo_id, first_seen, **hub),
    )
    claim = f"{document['verdict']}. {document['explanation']}"
    shown = {check.name for check in checks if check.status == "passed"}
    believed = taken_on_trust(document, probe_or_reason, key, shown)
    return Verification(claim, checks, (*believed, *trusted_of_the_key(document, key, checks)))


def _read(evidence: str | os.PathLike | DetectionResult) -> tuple[dict[str, Any], Probe | str]:
    """The evidence as JSON says it, and the probe or why there is none."""
    if isinstance(evidence, DetectionResult):
        return json.loads(json.dumps(evidence.document())), evidence.probe or "the result holds no probe"
    path = Path(evidence)
    try:
        document = read_document(path)
    except InvalidInputError as error:
        raise EvidenceError(str(error)) from None
    place = probe_path(path)
    if not place.is_file():
        return document, f"{place.name} does not lie beside the evidence; put it there"
    try:
        return document, Probe.load(place)
    except InvalidInputError:
        return document, f"{place.name} is damaged, or no probe; restore it from a backup"


def _settings_of(document: Mapping[str, Any]) -> dict[str, Any]:
    return document["settings"] if isinstance(document["settings"], dict) else {}


def _first_moment(document: Mapping[str, Any], first_seen: str | None) -> datetime | None:
    """When the suspect was first seen, by the evidence or whoever replays it; None where nobody says, or no date."""
    try:
        moments = [moment_of(iso) for iso in (document.get("suspect_first_seen"), first_seen) if iso is not None]
    except InvalidInputError:
        return None
    return min(moments, default=None)


# -- what the evidence says of itself


def _check_unaltered(document: Mapping[str, Any], key: WatermarkKey) -> Check:
    name = "the file is as the holder of the key saved it"
    if document.get("mac") is None:
        return Check(name, "open", "it has no authentication code: it was saved by an earlier drw_hf, or altered")
    if document["mac"] != authenticate(document, key):
        return Check(name, "failed", "its authentication code is not that of this content under this key")
    return Check(name, "passed", "its authentication code is right")


def _check_key(document: Mapping[str, Any], key: WatermarkKey) -> Check:
    name, whose = "the key is the one the evidence names", f"that of the key {key.fingerprint}"
    expected = {"key_commitment": key.commitment(), "key_fingerprint": key.fingerprint}
    return _check_same(name, document, expected, whose, f"its commitment begins with {key.fingerprint}")


def _check_parameters(document: Mapping[str, Any], key: WatermarkKey) -> Check:
    """Compare names and values, and show names alone: the values belong to the secret."""
    of_the_key = {"frequency": key.frequency, "target_label": target_label_of(key)}
    recorded = {**_settings_of(document), **{name: document[name] for name in of_the_key}}
    expected = {**key_settings(key), **of_the_key}
    if "origin" not in recorded:  # evidence of earlier versions did not say so
        expected.pop("origin", None)
    agree = f"{_listed(list(expected))} agree"
    return _check_same("the parameters are the key's", recorded, expected, "what the key says", agree)


def _check_probe(document: Mapping[str, Any], probe: Probe | str) -> Check:
    name = "the probe is the one that was analysed"
    if isinstance(probe, str):
        return Check(name, "failed", probe)
    expected = {"probe_digest": probe.digest(), "suspect": probe.suspect_name}
    shown = f"{probe.n_texts} texts, SHA-256 {expected['probe_digest'][:16]}…"
    return _check_same(name, document, expected, "that of the probe", shown)


def _check_same(name: str, recorded: Mapping[str, Any], expected: Mapping[str, Any], whose: str, passed: str) -> Check:
    """Whether what is recorded is what is expected; names alone are shown."""
    wrong = [each for each, value in expected.items() if each not in recorded or recorded[each] != value]
    if wrong:
        return Check(name, "failed", f"{_listed(wrong)} in the evidence is not {whose}")
    return Check(name, "passed", passed)


# -- the figures

_FIGURES = "the figures follow from the probe"


def _replay(document: Mapping[str, Any], probe: Probe | None, key: WatermarkKey) -> dict[str, Any] | Check:
    """The document as it comes out of the probe today, by the statistics it names; or a check that says why not."""
    if probe is None:
        return Check(_FIGURES, "open", "without the probe they cannot be computed again")
    if _undeclared(document):
        return Check(_FIGURES, "open", "p-values cannot be computed without knowing what was tried")
    settings = _settings_of(document)
    counts, simulated = settings.get("logged_counts"), settings.get("simulated_keys")
    if counts is True or (simulated is None and document["p_snr_p_value"] is not None):
        return Check(_FIGURES, "open", "an earlier drw_hf saved the result without the counts, or keys drawn, it used")
    try:
        statistic = _version(STATISTICS, document["statistic"])
        p_snr = settings.get("p_snr", _FIRST_P_SNR)
        spectrum_by = None if p_snr is None else _version(SPECTRA, p_snr)
        if spectrum_by is None and newest_for(SPECTRA, probe, key) is not None:
            return Check(
                _FIGURES, "failed", "the evidence names no version of P_snr, and there are some for the key's mark"
            )
        for named in (statistic, spectrum_by):  # else its owner would have as many tests as there are
            if named is not None and not named.applies_to(probe, key):
                return Check(_FIGURES, "failed", f"{named.name} is not for this probe and the key's mark")
        bare = verdict_on(
            probe,
            key,
            Corrections(*(document[each] for each in _TRIED)),
            document["level"],
            TestOptions(
                logged_counts={int(id_): count for id_, count in counts.items()} if counts else None,
                simulated_keys=min(simulated or 0, _MOST_SIMULATED),
            ),
            statistic=statistic,
            spectrum_by=spectrum_by,
        )
        result = refer_to(bare, document.get("commitment"), document.get("suspect_first_seen"))
        return json.loads(json.dumps(result.document()))
    except EvidenceError as error:
        return Check(_FIGURES, "open", str(error))
    except DrwError as error:
        return Check(_FIGURES, "failed", f"the probe does not allow the test: {error}")
    except Exception as error:  # settings and arrays of the wrong kinds, in files that somebody made up
        return Check(_FIGURES, "failed", f"the evidence does not allow the test ({type(error).__name__})")


def _version(registry: Registry[Kind], name: str) -> Kind:
    if name not in registry:
        raise EvidenceError(
            f"this drw_hf knows no {registry.kind} {name!r}; update drw_hf, or import the module that registers it"
        )
    return registry.get(name)


def _check_log(replayed: dict[str, Any] | Check) -> tuple[Check, ...]:
    """Of evidence that rests on drawn answers: whether the log says what was drawn. Others have no such check."""
    counted = {} if isinstance(replayed, Check) else replayed["settings"]
    if "n_mismatches" not in counted:
        return ()
    n, wrong = counted["n_logged"], counted["n_mismatches"]
    status: Status = "open" if differs_beyond_rounding(counted) else "passed"
    detail = f"{n - wrong} of {n} logged answers are what the key and the clean model in the probe give"
    more = "; more differ than rounding explains: another precision (dtype), key, model or cut, or an altered log"
    return (Check("the log says what was drawn", status, detail + (more if status == "open" else "")),)


def _check_statistic(document: Mapping[str, Any], replayed: dict[str, Any] | Check) -> Check:
    if isinstance(replayed, Check):
        return replayed
    replayed = {**_ADDED_SINCE, **replayed}
    if HELPS not in str(document["explanation"]):  # an earlier version's, which did not say what would help
        replayed["explanation"] = re.sub(rf" {HELPS}[^.]*\.", "", replayed["explanation"])
    if WITHOUT_REFERENCE not in str(document["explanation"]):  # nor what the reference adds
        replayed["explanation"] = re.sub(rf" {WITHOUT_REFERENCE}.*?\.(?= |$)", "", replayed["explanation"])
    document = {**_ADDED_SINCE, **document, "explanation": str(document["explanation"]).replace(*_REWORDED)}
    derived = {
        "p_value": _power(document["log10_p"]),
        "p_bound": _power(document["log10_bound"]),
        "committed": replayed["committed"],
    }
    # Without an authentication code it is an earlier version's, which said nothing of commitments in its explanation.
    skipped = _COMPARED_ELSEWHERE if document.get("mac") is not None else {*_COMPARED_ELSEWHERE, "explanation"}
    compared = [each for each in replayed if each not in skipped and each not in derived]
    wrong = [each for each in compared if not _agree(document[each], replayed[each])]
    wrong += [each for each in derived if each in document and not _agree(document[each], derived[each], 0.0)]
    unknown = set(document) - set(replayed)
    if unknown:
        return Check(_FIGURES, "failed", f"the evidence holds what drw_hf does not write: {_listed(sorted(unknown))}")
    if wrong:
        differing = [_with_both_values(each, document[each], replayed[each]) for each in wrong]
        return Check(_FIGURES, "failed", f"computed again, these differ: {_listed(differing)}")
    return Check(_FIGURES, "passed", f"computed again, all {len(compared)} agree within {TOLERANCE:g}")


def _check_tried(document: Mapping[str, Any], replayed: dict[str, Any] | Check) -> Check:
    name = "what was tried is declared, and corrected for"
    undeclared = _undeclared(document)
    if undeclared:
        return Check(name, "failed", f"{_listed(undeclared)}: expected how many there were, this one included")
    declared = ", ".join(f"{each}={document[each]}" for each in _TRIED)
    if isinstance(replayed, Check):
        return Check(name, "open", f"declared are {declared}; the correction cannot be computed again")
    if not all(_agree(document[each], replayed[each]) for each in ("log10_p", "log10_bound")):
        return Check(name, "failed", f"declared are {declared}, and the p-values are not corrected for that")
    return Check(name, "passed", f"{declared}; that there were no more is the owner's word")


def _undeclared(document: Mapping[str, Any]) -> list[str]:
    return [each for each in _TRIED if type(document[each]) is not int or document[each] < 1]


def _agree(recorded: Any, computed: Any, near_zero: float = _NEAR_ZERO) -> bool:
    """Numbers within the tolerance, everything else exactly."""
    if isinstance(computed, float):
        if not fits(recorded, float):
            return False
        both_nan = math.isnan(recorded) and math.isnan(computed)
        return both_nan or math.isclose(recorded, computed, rel_tol=TOLERANCE, abs_tol=near_zero)
    if type(recorded) is not type(computed):
        return False
    if isinstance(computed, list):
        return len(recorded) == len(computed) and all(map(_agree, recorded, computed))
    if isinstance(computed, dict):
        return recorded.keys() == computed.keys() and all(_agree(recorded[each], computed[each]) for each in computed)
    return recorded == computed


def _power(log10: Any) -> float:
    return 10.0**log10 if fits(log10, float) and log10 <= 0.0 else math.nan


def _with_both_values(name: str, recorded: Any, computed: Any) -> str:
    """A field with both its values, where they are single numbers."""
    are_numbers = {type(recorded), type(computed)} <= {int, float, type(None)}
    return f"{name} (recorded {recorded}, computed {computed})" if are_numbers else name


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# -- the commitment


def _check_commitment(
    document: Mapping[str, Any], key: WatermarkKey | str, repo_id: str | None, first_seen: str | None, **hub: Any
) -> Check:
    name = "the key was committed to before the suspect was first seen"
    declared = document.get("suspect_first_seen")
    try:
        moments = [moment_of(iso) for iso in (declared, first_seen) if iso is not None]
    except InvalidInputError:
        return Check(name, "failed", "the evidence declares suspect_first_seen with something that is no date")
    if len(set(moments)) > 1:
        return Check(name, "failed", f"the evidence declares that it was {declared}, which {first_seen} contradicts")
    made = _made_at(document)
    if made is not None and any(moment > made for moment in moments):
        seen = f"{declared or first_seen}, after the evidence was made, {document['created_at']}"
        return Check(name, "failed", f"the suspect cannot have been first seen {seen}")
    if repo_id is None:
        recorded = document.get("commitment")
        named = f"; the evidence names {recorded.get('repo_id')}" if isinstance(recorded, dict) else ""
        return Check(name, "open", f"uncommitted, as long as no repository with the commitment is given{named}")
    if not moments:
        return Check(name, "open", "neither the evidence nor the caller says when the suspect was first seen")
    try:
        try:
            record = verify_commitment(key, repo_id, **hub)
        except NotCommitted:
            if isinstance(key, str) or key.seasoning is None:
                raise
            record = verify_commitment(key.seasoning.commitment, repo_id, **hub)  # with its round it fixes the key
    except NotCommitted as error:
        return Check(name, "failed", f"uncommitted: {error}")
    except HubError as error:
        return Check(name, "open", str(error))
    return Check(name, *_judge_dates(record, document.get("commitment"), moments[0]))


def _made_at(document: Mapping[str, Any]) -> datetime | None:
    try:
        return moment_of(document["created_at"])
    except InvalidInputError:
        return None


def _judge_dates(record: CommitmentRecord, recorded: Any, first_seen: datetime) -> tuple[Status, str]:
    """Whether what was found is older than the suspect: proven, on the owner's word, or not at all."""
    stamp = record.timestamp
    if stamp is not None and stamp.time + (stamp.accuracy or timedelta()) < first_seen:
        return "passed", f"{record.explanation} The suspect was first seen {first_seen}."
    found, changed = record.to_dict(), []
    if isinstance(recorded, dict) and recorded.get("repo_id") == found["repo_id"]:
        # What the evidence says and the repository does not: its history may have been rewritten.
        changed = [each for each in ("commitment", "commit", "date", "path") if recorded.get(each) != found[each]]
    if changed:
        return "failed", f"the evidence refers to something else in {record.repo_id}: {_listed(changed)} differ"
    if record.claimed_date < first_seen:
        return "open", f"it is on the owner's word, not proven. {record.explanation}"
    return "failed", f"it is not older than the suspect, which was first seen {first_seen}. {record.explanation}"
