"""From a probe to a verdict: the statistic that applies, corrected for all that was tried, and what P_snr says."""

import dataclasses
import logging
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..checks import check_level
from ..errors import InvalidInputError, KeyMismatchError
from ..keys.choices import Verdict
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.settings import MARKS, PAPERS_MARK
from ..wording import small_p
from .controls import controls_tested, describe_controls
from .probing import Probe
from .result import DetectionResult
from .statistics import SPECTRA, STATISTICS, Finding, SpectrumStatistic, Statistic, TestOptions, newest_for
from .statistics.margin import margin_finding
from .statistics.saddlepoint import ExactTest, corrected, tokens_needed
from .statistics.spectra import NO_SPECTRUM
from .statistics.tilt import tilt_test
from .statistics.tilt_and_margin import product_for

SMALLEST_EFFECT = 0.3  # the mark over the spread per token that a "not detected" must have been able to find
SUGGESTIVE = 0.05
WITHOUT_REFERENCE = "Without the reference"  # so begins the sentence that says what a reference adds
HELPS = "What would help most:"  # so begins the sentence of an undecided verdict that says so
HIGHEST_Z_OF_A_REFERENCE = 4.0  # either way; of two tests an innocent one reaches it with one key of 8,000
_MOST_KEYS_FOR_P_SNR = 1_000
_NO_OPTIONS = {"logged_counts": False, "simulated_keys": 0}  # of a statistic that has no use for any
_SETTINGS = ("tau", "law", "scope", "temperature")  # of those that marks have, what figures depend on
# When scores and labels disagree: one z is so many times the other, and not by chance alone. Students of tiny and of
# pretrained models had ratios from 1/3 to 2; framed ones, and those with an erased mark, beyond 4 either way.
_FAR_APART, _NOISE = 3.0, 2.0
_references: WeakKeyDictionary[Probe, Probe] = WeakKeyDictionary()  # as suspects, for every key the same
_MISMATCHES, _FEW = 0.005, 3  # the share of drawn answers, or their number, that rounding explains, generously
logger = logging.getLogger(__name__)
_LIBRARIES = ("drw_hf", "astropy", "numpy", "torch", "transformers", "datasets")


@dataclass(frozen=True)
class Corrections:
    """What p-values are corrected for: how many keys, suspects and looks there were in all."""

    keys_tried: int = 1
    suspects_tested: int = 1
    looks: int = 1

    def correct(self, log10_p: float) -> float:
        """log₁₀ of a corrected p-value."""
        return corrected(log10_p, self.keys_tried, self.suspects_tested, self.looks)


@forgets_locals
def verdict_on(
    probe: Probe,
    key: WatermarkKey,
    corrections: Corrections,
    level: float,
    options: TestOptions | None = None,
    *,
    statistic: Statistic | None = None,
    spectrum_by: SpectrumStatistic | None = None,
) -> DetectionResult:
    """Test a probe; a bare result, which refers to no commitment.

    By default the newest statistic and the newest P_snr that apply are used; a replay gives those that it needs.
    """
    check_belongs(probe, key)
    check_reference(probe, key)
    level = check_level(level)
    statistic = statistic or newest_for(STATISTICS, probe, key)
    if statistic is None:
        raise InvalidInputError(
            f"no statistic applies to this probe and the mark {key.mark!r}; update drw_hf, or import the module that "
            "registers one"
        )
    spectrum_by = spectrum_by or newest_for(SPECTRA, probe, key)
    found = statistic.test(probe, key, options or TestOptions())
    spectrum = NO_SPECTRUM if spectrum_by is None else spectrum_by.spectrum(probe, key)
    snr_p = None
    if found.null_samples is not None and spectrum_by is not None:
        snr_p = spectrum_by.p_value(spectrum, key, min(len(found.null_samples), _MOST_KEYS_FOR_P_SNR))
    test = found.test
    verdict, needed, explanation = judge(test, level, corrections, of_both=bool(found.parts))
    if verdict == "undecided":
        explanation = f"{explanation} {what_helps(logged=probe.logged is not None)}"
    if found.beside is not None:
        explanation = f"{explanation} {compare(test, found.beside.test, level, corrections)}"
    if found.parts:
        explanation = f"{explanation} {describe_log(found.settings)}"
    if probe.reference is not None and not (probe.kind == "labels" and probe.victim is None):
        alone = dataclasses.replace(options or TestOptions(), simulated_keys=0)
        without = statistic.test(dataclasses.replace(probe, reference=None), key, alone).test
        explanation = f"{explanation} {compare_without_reference(verdict, without, level, corrections)}"
    controls = None if probe.controls is None else controls_tested(probe, key, statistic, options or TestOptions())
    if controls is not None:
        explanation = f"{explanation} {describe_controls(controls, level)}"
    if probe.n_unanswered:
        explanation = f"{explanation} {describe_unanswered(probe)}"
    if probe.left_out or probe.lacking:
        explanation = f"{explanation} {describe_labels(probe)}"
    return DetectionResult(
        verdict=verdict,
        log10_p=corrections.correct(test.log10_p),
        log10_bound=corrections.correct(test.log10_bound),
        z_score=test.z_score,
        p_snr=spectrum.p_snr,
        p_snr_p_value=snr_p,
        n_probes=found.n_probes,
        n_tokens=test.n_tokens,
        n_effective=test.n_effective,
        n_queries=probe.n_queries,
        level=level,
        keys_tried=int(corrections.keys_tried),
        suspects_tested=int(corrections.suspects_tested),
        looks=int(corrections.looks),
        statistic=statistic.name,
        variant=found.variant,
        tokens_needed=needed,
        explanation=explanation,
        key_fingerprint=key.fingerprint,
        key_commitment=key.commitment(),
        probe_digest=probe.digest(),
        frequency=key.frequency,
        frequencies=spectrum.frequencies.tolist(),
        powers=spectrum.powers.tolist(),
        hash_values=spectrum.hashes.tolist(),
        target_values=spectrum.values.tolist(),
        null_mean=test.mean,
        null_sd=test.sd,
        observed=test.statistic,
        suspect=probe.suspect_name,
        target_label=target_label_of(key),
        settings={**key_settings(key), "p_snr": spectrum_by and spectrum_by.name, **_NO_OPTIONS, **found.settings},
        versions=library_versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        beside=None if found.beside is None else _shown(found.beside),
        label_map=probe.label_map,
        parts={name: {**_shown(part), "n_probes": part.n_probes} for name, part in found.parts.items()} or None,
        n_unanswered=probe.n_unanswered,
        controls=controls,
        probe=probe,
        null_samples=found.null_samples,
    )


def _shown(finding: Finding) -> dict[str, Any]:
    """What a result tells of a finding that stands beside the one it goes by."""
    names = ("z_score", "log10_p", "log10_bound")
    return {"variant": finding.variant, **{name: getattr(finding.test, name) for name in names}}


def judge(
    test: ExactTest, level: float, corrections: Corrections, of_both: bool = False
) -> tuple[Verdict, int | None, str]:
    """The verdict, how many distinct tokens an undecided one would need, and a sentence that says why.

    ``of_both`` says that it is a test of tilt and of margin draws, which goes by tokens and by draws.
    """
    terms = "distinct tokens and draws" if of_both else "distinct tokens"
    if corrections.correct(test.log10_bound) <= math.log10(level):
        return "detected", None, f"An unrelated model would look this marked with a chance below {level:g}."
    wanted = level / (corrections.keys_tried * corrections.suspects_tested * corrections.looks)
    if corrections.correct(test.log10_p) < math.log10(SUGGESTIVE):
        times = tokens_needed(test, wanted)
        if of_both and test.log10_bound < 0.0:  # what grows with the terms is the log of the product
            times = product_for(math.log(wanted)) / product_for(test.log10_bound * math.log(10.0))
        needed = math.ceil(times * test.n_tokens)
        leaning = f"about {needed} {terms} like these would decide (there were {test.n_tokens})."
        return "undecided", needed, f"The answers lean towards the key, but not beyond doubt; {leaning}"
    # What a mark of the smallest effect needs to be found 19 times in 20 (z² = U ln(1 + γ²)), against what there was.
    # Where two tests are one, the product of their p-values must be the smaller.
    log_wanted = product_for(math.log(wanted)) if of_both else math.log(wanted)
    least = (math.sqrt(-2.0 * log_wanted) + 1.64) ** 2 / math.log1p(SMALLEST_EFFECT**2)
    if test.n_effective < least:
        needed = math.ceil(least / max(test.n_effective, 1.0) * max(test.n_tokens, 1))
        few = f"{test.n_tokens} {terms} are too few to find a faint mark; about {needed} would do."
        return "undecided", needed, few
    each = "token and draw" if of_both else "token"
    shown = f"a mark of {SMALLEST_EFFECT:g} standard deviations per {each} would most likely have shown."
    return "not detected", None, f"The answers show no sign of the key; {shown} Fainter ones may need more."


def what_helps(*, logged: bool) -> str:
    """What would decide, the strongest means first; what was given already is not asked for."""
    log = "the queries that your service logged, as texts and with the labels it gave, for there a student shows most"
    others = ["more distinct words in the texts", "for the next key, a stronger mark"]
    return f"{HELPS} {'; then '.join(others if logged else [log, *others])}."


def compare(scores: ExactTest, labels: ExactTest, level: float, corrections: Corrections) -> str:
    """What the tests of a suspect's scores, and of its labels alone, suggest together: shown, not tested."""
    shown, labels_show = (corrections.correct(test.log10_bound) <= math.log10(level) for test in (scores, labels))
    if shown and labels.z_score + _NOISE < scores.z_score / _FAR_APART:
        pattern = (
            "show far less of the key than its scores do, as where the signal was put onto a model's scores from "
            "outside, or in a student whose labels hardly moved"
        )
    elif labels_show and scores.z_score + _NOISE < labels.z_score / _FAR_APART:
        pattern = "show far more of the key than its scores do, as where scores were changed to erase a mark"
    elif shown and labels_show:
        pattern = "show the key as well, as those of a model that learnt it do"
    elif shown:
        pattern = "do not show the key by themselves; they tell less than scores, and need not"
    elif labels_show:
        pattern = "show the key by themselves"
    else:
        pattern = "do not show the key either"
    return f"Beside the test, and not part of it: the suspect's labels alone {pattern}."


def compare_without_reference(verdict: Verdict, test: ExactTest, level: float, corrections: Corrections) -> str:
    """What the same test says without the reference: a crafted one could make anybody look marked."""
    bound = corrections.correct(test.log10_bound)
    said = f"{WITHOUT_REFERENCE} the same test has z {test.z_score:.1f} and p at most {small_p(bound, up=True)}"
    if verdict == "detected" and bound > math.log10(level):
        return f"{said}, so that the verdict rests on the reference: ask who made it, when and from what."
    return f"{said}."


def describe_unanswered(probe: Probe) -> str:
    """What was left unanswered, and what that does to the test."""
    what = "words" if probe.task == "token-classification" else "texts"
    all_of_them = len(probe.suspect) + probe.n_unanswered
    return (
        f"Of {all_of_them} {what} the suspect left {probe.n_unanswered} without a prediction. They are left out, by "
        "its own choice, which has nothing to do with the key."
    )


def describe_labels(probe: Probe) -> str:
    """Which labels had no counterpart, and what became of them."""
    said = []
    if probe.left_out:
        said.append(f"labels that are none of the key's were left out of its answers ({', '.join(probe.left_out)})")
    if probe.lacking:
        said.append(f"it lacks labels of the key ({', '.join(probe.lacking)})")
    return f"The suspect has other labels: {', and '.join(said)}."


def differs_beyond_rounding(counted: Mapping[str, Any]) -> bool:
    """Whether more logged answers than rounding explains are not what the key and the victim give.

    Rounding moves draws that hang on a last digit. An answer that no draw had a part in it hardly ever changes.
    """
    of_draws = counted["n_mismatches"] - counted["n_undrawn_mismatches"]
    return counted["n_undrawn_mismatches"] > _FEW or of_draws > max(_MISMATCHES * counted["n_drawn"], _FEW)


def describe_log(counted: Mapping[str, Any]) -> str:
    """How far the log says what the key and the victim give."""
    n, wrong = counted["n_logged"], counted["n_mismatches"]
    if not counted["n_drawn"]:
        return f"None of the {n} logged answers was close enough to be drawn; the log adds nothing."
    if not wrong:
        return f"All {n} logged answers are what the key and the victim give."
    said = f"{wrong} of {n} logged answers ({counted['n_drawn']} were drawn) are not what the key and the victim give"
    if differs_beyond_rounding(counted):
        return (
            f"{said}: more than rounding explains. Ask the victim in the precision (dtype) in which it was served; if "
            "that is not it, the log is of another key, model or cut, or was altered. The test goes by the key and "
            "the victim, not by the log."
        )
    return f"{said}, as where a draw hangs on the last digits: ask the victim in the service's precision (dtype)."


def target_label_of(key: WatermarkKey) -> str:
    """The target class by its name; nothing for marks that every class carries."""
    return key.target_label if MARKS.get(key.mark).has_target else ""


def key_settings(key: WatermarkKey) -> dict[str, Any]:
    """What of a key a result's figures depend on, beside the frequency and the target class.

    The paper's mark is not named: keys did not name it when there was no other one.
    """
    settings: dict[str, Any] = {"task": key.task} if key.mark == PAPERS_MARK else {"task": key.task, "mark": key.mark}
    names = {entry.name for entry in dataclasses.fields(key.settings)} - key.settings.unused
    settings |= {name: getattr(key.settings, name) for name in _SETTINGS if name in names}
    if key.arrays is not None or key.seasoning is not None:  # of others its owner says that it was drawn at random
        settings["origin"] = "arrays" if key.arrays is not None else "seasoned"
    return {**settings, "hash_rule": key.hash_rule.name}


def library_versions() -> dict[str, str]:
    """The versions that a result was found with."""
    return {**{name: _version(name) for name in _LIBRARIES}, "python": platform.python_version()}


_version = cache(version)  # each reads and parses a file


def check_belongs(probe: Probe, key: WatermarkKey) -> None:
    """That a probe holds together, and probe and key are of the same task, labels and tokenizer."""
    probe.check()
    if probe.task != key.task or probe.labels != key.labels:
        raise KeyMismatchError(
            f"the probe is of a {probe.task} model with labels {list(probe.labels)}; the key {key.fingerprint} is for "
            f"{key.task} with {list(key.labels)}"
        )
    if key.target_label in probe.lacking and MARKS.get(key.mark).has_target:
        raise InvalidInputError(
            "the suspect has no label for the key's target class, so there is nothing to test; if it has one under "
            "another name, pass label_map={suspect's label: key's label}"
        )
    fingerprints = {probe.tokenizer_fingerprint, key.tokenizer_fingerprint} - {None}
    if len(fingerprints) > 1 or probe.input_ids.max(initial=0) >= key.vocab_size:
        raise KeyMismatchError(f"the probe's tokens are not those of the key {key.fingerprint}'s tokenizer")
    # A warning alone: another version of tokenizers may write the same one in another way.
    if len({probe.tokenizer_digest, key.tokenizer_digest} - {None}) > 1:
        logger.warning(
            "the tokenizer has the vocabulary of the key %s's, but is not the one that the key was made with: where "
            "it splits texts in another way, other words are tested, and drw-hf verify leaves that open",
            key.fingerprint,
        )


@forgets_locals
def check_reference(probe: Probe, key: WatermarkKey) -> None:
    """Refuse a reference that does not look independent of a key of the mark tilt.

    It is tested as if it were the suspect. One that learnt the mark would explain it away in the suspect; one that was
    made to lean against the key would make an innocent suspect look marked. Without the victim, which says what to
    expect of it, the test finds strong leanings alone.
    """
    alone = None if key.mark != "tilt" else _reference_alone(probe)
    if alone is None:
        return
    scores = [tilt_test(alone, key).z_score]
    if alone.logged is not None and alone.victim is not None and MARKS.get(key.mark).draws(key.settings):
        scores.append(margin_finding(alone, key, alone.kind).test.z_score)
    z = max(scores, key=abs)
    if abs(z) >= HIGHEST_Z_OF_A_REFERENCE:
        leaning, effect = ("follows", "hide the mark") if z > 0 else ("leans against", "make any suspect look marked")
        raise InvalidInputError(
            f"the reference {leaning} the key {key.fingerprint}: tested like a suspect it has z = {z:.1f}, expected "
            f"is less than {HIGHEST_Z_OF_A_REFERENCE:g} either way; it would {effect}. Give a reference that never "
            "saw marked answers (a student of the clean model's), or leave reference= out"
        )


def _reference_alone(probe: Probe) -> Probe | None:
    """The reference's answers in the place of the suspect's; None where there are none, or nothing to hold them to."""
    if probe.reference is None:
        return None
    certain = bool(np.isin(probe.reference, (0, 1)).all())
    if certain and probe.victim is None:  # labels alone say nothing where nobody says what to expect of them
        return None
    if probe not in _references:
        answers: dict[str, Any] = {"suspect": probe.reference, "kind": "labels" if certain else "probabilities"}
        _references[probe] = dataclasses.replace(probe, **answers, reference=None)
    return _references[probe]
