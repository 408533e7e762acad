"""`detect`: does this suspect carry the mark of this key?"""

import dataclasses
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from typing import Any, Protocol, Unpack

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..errors import InvalidInputError, KeyMismatchError
from ..keys.choices import Verdict
from ..keys.key import WatermarkKey
from ..watermark.cosine import is_marked, periodic_signal, perturb
from ..watermark.sampling import text_message
from .amplitudes import STATISTIC, Amplitudes, _counts_of, compute_amplitudes
from .memory import STATISTIC as MEMORY
from .memory import memory_test
from .periodogram import MAX_FREQUENCY, p_snr, p_snr_many, periodogram
from .probe import Probe
from .probing import ProbingOptions, Suspect, probe_of
from .result import DetectionResult, as_iso, authenticate, refer_to
from .significance import ExactTest, NullLaw, corrected, simulate_null, tokens_needed

FAINT = 0.3  # the effect (mark over spread, a token) that a test must be able to find to say "not detected"
SUGGESTIVE = 0.05
_SPECTRUM_POINTS = 2_000
_LIBRARIES = ("drw_hf", "numpy", "torch", "transformers", "datasets")


class FoundCommitment(Protocol):
    """What :func:`drw_hf.evidence.verify_commitment` returns, which stands above this package."""

    @property
    def commitment(self) -> str:
        """The commitment that was found."""

    def to_dict(self) -> dict[str, Any]:
        """The record, as JSON keeps it."""


def detect(
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None = None,
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    keys_tried: int = 1,
    suspects_tested: int = 1,
    looks: int = 1,
    level: float = 1e-3,
    logged: Sequence[Any] | None = None,
    logged_counts: Mapping[int, int] | None = None,
    simulated_keys: int = 0,
    commitment: FoundCommitment | None = None,
    suspect_first_seen: str | date | datetime | None = None,
    **probing: Unpack[ProbingOptions],
) -> DetectionResult:
    """Probe a suspect and test whether its answers follow the key.

    No gold labels are needed: which probes count is decided by the clean victim's predictions, or the suspect's own.
    Never choose the probe texts by what the *protected* model answered: those answers carry the key, and the p-value
    would no longer hold.

    Parameters
    ----------
    suspect : model, str, Pipeline, InferenceClient, callable, Probe, or list of arrays
        Who is asked. A callable takes a list of texts (pairs: tuples; token tasks: lists of words) and returns for
        each ``{label: score}`` or a label, token tasks a list of these, one per word. A
        :class:`~drw_hf.detection.Probe` is analysed without asking. Arrays are answers gathered elsewhere, (m,) or
        (len(input_ids), m) in the key's label order; ``texts`` are then rows with ``input_ids``.
    texts : list, Dataset
        Texts, pairs, lists of words, or tokenised rows.
    key : WatermarkKey
        The owner's key.
    tokenizer : PreTrainedTokenizerBase
        The owner's tokenizer, whatever the suspect's is.
    victim : model, optional
        The clean victim (a protected model is asked with its mark switched off). It sharpens the test, and suspects
        that give labels alone need it or ``gold``.
    keys_tried, suspects_tested, looks : int
        How many keys, suspects and looks at the data there were in all, this one included; p-values are corrected.
    level : float
        The level of the verdict.
    logged : sequence, optional
        The labels that a hard-label service served for ``texts`` (token tasks: one per word), by name or number:
        selects the memory test, which asks whether the suspect repeats the very labels that were drawn. Needs
        ``victim``, and a service with ``sampling="keyed"``. With ``texts=None``, a list of (text, served) pairs.
    logged_counts : mapping, optional
        How often each token id was queried, if known; tokens that were never queried get no weight.
    simulated_keys : int
        Also draw so many random keys, for a p-value of P_snr and for the histogram of :meth:`DetectionResult.plot`.
    commitment : CommitmentRecord, optional
        Where the key's commitment was found: what :func:`drw_hf.evidence.verify_commitment` returns. Without it the
        result says that the key was not committed to beforehand.
    suspect_first_seen : str, date or datetime, optional
        When the suspect was first seen, for the commitment to be older than; without a time zone it is UTC, and a
        date is the beginning of that day.
    **probing
        ``gold``, ``label_map``, ``suspect_tokenizer``, ``max_queries``: see
        :class:`drw_hf.detection.ProbingOptions`; and ``text_columns``, ``batch_size``, ``max_length``,
        ``max_retries``, ``cache_dir``, ``load_from_cache_file``, ``progress``: see
        :class:`drw_hf.asking.AskingOptions`. Asking is resumable, and what was asked is kept.

    Returns
    -------
    DetectionResult

    Raises
    ------
    InvalidInputError
        Where there is nothing to test: no probes, labels that cannot be matched, a class that nobody predicts.
    KeyMismatchError
        Where key and tokenizer, key and probe, or key and commitment do not belong together.
    """
    record = None if commitment is None else _record_of(commitment, key)
    first_seen = None if suspect_first_seen is None else as_iso(suspect_first_seen)
    if texts is None and logged is not None and not isinstance(suspect, Probe):
        texts, logged = [text for text, _ in logged], [served for _, served in logged]
    probe = probe_of("detect", suspect, texts, key=key, tokenizer=tokenizer, victim=victim, logged=logged, **probing)
    tried = Tried(keys_tried, suspects_tested, looks)
    bare = examine(probe, key, tried, level, logged_counts=logged_counts, simulated_keys=simulated_keys)
    result = refer_to(bare, record, first_seen)
    return dataclasses.replace(result, mac=authenticate(result.document(), key))


def examine(
    probe: Probe,
    key: WatermarkKey,
    tried: "Tried",
    level: float,
    *,
    logged_counts: Mapping[int, int] | None = None,
    simulated_keys: int = 0,
) -> DetectionResult:
    """The test that a probe is for, memory or exact; a bare result, which refers to no commitment."""
    _check_belongs(probe, key)
    if not 0.0 < level < 1.0:
        raise InvalidInputError(f"level={level!r}: expected a number between 0 and 1, like 1e-3")
    if probe.logged is not None:
        return _remember(probe, key, tried, level)
    return analyse(probe, key, tried, level, logged_counts=logged_counts, simulated_keys=simulated_keys)


def key_settings(key: WatermarkKey) -> dict[str, Any]:
    """What of a key a result's figures depend on, beside the frequency and the target class."""
    return {
        "task": key.task,
        "tau": key.tau,
        "law": key.law,
        "scope": key.scope,
        "hash_rule": key.hash_rule.name,
    }


@dataclass(frozen=True)
class Tried:
    """What the p-values are corrected for."""

    keys_tried: int = 1
    suspects_tested: int = 1
    looks: int = 1

    def correct(self, log10_p: float) -> float:
        """log₁₀ of a corrected p-value."""
        return corrected(log10_p, self.keys_tried, self.suspects_tested, self.looks)


def analyse(
    probe: Probe,
    key: WatermarkKey,
    tried: Tried,
    level: float,
    *,
    logged_counts: Mapping[int, int] | None = None,
    simulated_keys: int = 0,
) -> DetectionResult:
    """The exact test and P_snr on a probe.

    The order matters: amplitudes are computed before the key's tables are read.
    """
    tokens, exists = probe.tokens_of(key)
    amplitudes = _amplitudes(probe, key, tokens, exists, logged_counts)
    vectors = (key.v_k, key.v_s) if key.law == "paper" else None
    A, B = amplitudes.A, amplitudes.B
    null = NullLaw(A, key.frequency, key.tau, B=B, law=key.law, vectors=vectors)
    phase, selection = key.entries(amplitudes.token_ids)
    test = null.test(null.statistic(phase, selection))

    spectrum = _spectrum(probe, key, tokens, exists)
    samples, snr_p = None, None
    if simulated_keys:
        samples = simulate_null(A, simulated_keys, key.frequency, key.tau, 0, B=B, law=key.law, vectors=vectors)
        snr_p = _p_snr_p_value(spectrum, key, min(simulated_keys, 1_000))
    return _result(
        probe,
        key,
        tried,
        level,
        test,
        amplitudes.n_probes,
        amplitudes.variant,
        spectrum,
        samples,
        snr_p,
        logged_counts=False if logged_counts is None else _kept_counts(amplitudes.token_ids, logged_counts),
        simulated_keys=int(simulated_keys),
    )


def _kept_counts(token_ids: np.ndarray, logged_counts: Any) -> dict[str, float]:
    """The counts that mattered, as JSON keeps them: without them the result could not be replayed."""
    return dict(zip(map(str, token_ids.tolist()), _counts_of(token_ids, logged_counts).tolist(), strict=True))


def _amplitudes(
    probe: Probe, key: WatermarkKey, tokens: np.ndarray, exists: np.ndarray, logged_counts: Any
) -> Amplitudes:
    if not exists.any():
        raise InvalidInputError("no probe has a word to hash: the texts hold nothing but special tokens")
    answers = probe.suspect[exists]
    said = {"probabilities": answers} if probe.kind == "probabilities" else {"labels": answers.argmax(1)}
    if probe.kind == "labels" and probe.victim is None and probe.gold is None:
        raise InvalidInputError(
            "the suspect gives labels alone, so it cannot choose the probes as well; pass the clean victim= (or gold=)"
        )
    return compute_amplitudes(
        tokens[exists],
        key.target,
        **said,
        victim=None if probe.victim is None else probe.victim[exists],
        gold=None if probe.gold is None else probe.gold[exists],
        logged_counts=logged_counts,
        scope=key.scope,
    )


@dataclass(frozen=True)
class _Spectrum:
    """What P_snr is of."""

    tokens: np.ndarray
    hashes: np.ndarray
    values: np.ndarray
    snr: float
    frequencies: np.ndarray
    powers: np.ndarray


def _spectrum(probe: Probe, key: WatermarkKey, tokens: np.ndarray, exists: np.ndarray) -> _Spectrum:
    """The paper's statistic: q̂_{c*} over g(v_k, x), for selected probes that were called c*."""
    said = probe.victim if probe.victim is not None else probe.suspect
    counted = exists & (said.argmax(1) == key.target)
    if probe.victim is None and probe.gold is not None:
        counted = exists & (probe.gold == key.target)
    distinct, inverse = np.unique(tokens[counted], return_inverse=True)
    phase, selection = key.entries(distinct)
    chosen = (selection <= key.tau)[inverse]
    hashes, values = phase[inverse][chosen], probe.suspect[counted, key.target][chosen].astype(np.float64)
    frequencies = np.linspace(0.1, max(100.0, 4 * key.frequency), _SPECTRUM_POINTS)
    if len(np.unique(hashes)) < 4:  # too little for a spectrum; the exact test has its own say
        return _Spectrum(distinct, hashes, values, 0.0, frequencies, np.zeros_like(frequencies))
    snr = p_snr(hashes, values, key.frequency, max(MAX_FREQUENCY, 1.5 * key.frequency))
    return _Spectrum(distinct, hashes, values, snr, frequencies, periodogram(hashes, values, frequencies))


def _p_snr_p_value(spectrum: _Spectrum, key: WatermarkKey, n_keys: int) -> float | None:
    """How often random keys reach this P_snr: fresh hashes for the same distinct tokens."""
    if not spectrum.snr:
        return None
    distinct, inverse = np.unique(spectrum.hashes, return_inverse=True)
    counts = np.bincount(inverse)
    means = np.bincount(inverse, spectrum.values) / counts
    fresh = np.random.default_rng(0).random((n_keys, len(distinct)))
    reached = int(
        (
            p_snr_many(fresh, means, key.frequency, max(MAX_FREQUENCY, 1.5 * key.frequency), counts=counts)
            >= spectrum.snr
        ).sum()
    )
    return (1 + reached) / (1 + n_keys)


def _remember(probe: Probe, key: WatermarkKey, tried: Tried, level: float) -> DetectionResult:
    """The memory test: does the suspect repeat the labels that were drawn for marked items?"""
    assert probe.logged is not None  # :func:`examine` sends no other probe here
    if probe.victim is None:
        raise InvalidInputError("the memory test needs ŷ, and so the clean victim; pass victim=")
    tokens, exists = probe.tokens_of(key)
    # An innocent suspect knows neither the key's tables nor its draws, so reading the tables here costs no validity:
    # given them, the labels of marked items are still independent draws from ŷ.
    phase, selection = key.entries(tokens)
    victim = torch.from_numpy(probe.victim)
    selected = torch.from_numpy((selection <= key.tau) & exists)
    marked = is_marked(selected, victim, key.target, key.scope == "all").numpy() & (probe.logged >= 0)
    if not marked.any():
        raise InvalidInputError("none of the logged answers was marked, so none was drawn; give more logged queries")
    signal = periodic_signal(torch.from_numpy(phase[marked]), key.frequency)
    y = perturb(victim[torch.from_numpy(marked)], signal, key.target, key.epsilon).double().numpy()
    y = y / y.sum(1, keepdims=True)
    texts = [text_message(*view) for view in probe.views(key)]
    number: dict[tuple[bytes, int], int] = {}
    items = [
        number.setdefault((texts[row], int(place)), len(number))
        for row, place in zip(probe.rows[marked], probe.places[marked], strict=True)
    ]
    answers = probe.suspect[marked]
    said = {"probabilities": answers} if probe.kind == "probabilities" else {"labels": answers.argmax(1)}
    test = memory_test(y, probe.logged[marked], **said, item_ids=np.array(items))
    spectrum = _spectrum(probe, key, tokens, exists)
    variant = f"memory-{probe.kind}"
    return _result(probe, key, tried, level, test, int(marked.sum()), variant, spectrum, None, None)


def _result(
    probe: Probe,
    key: WatermarkKey,
    tried: Tried,
    level: float,
    test: ExactTest,
    n_probes: int,
    variant: str,
    spectrum: _Spectrum,
    samples: np.ndarray | None,
    snr_p: float | None,
    **settings: Any,
) -> DetectionResult:
    log10_p, log10_bound = tried.correct(test.log10_p), tried.correct(test.log10_bound)
    verdict, needed, explanation = judge(test, log10_p, log10_bound, level, tried)
    return DetectionResult(
        verdict=verdict,
        log10_p=log10_p,
        log10_bound=log10_bound,
        z_score=test.z_score,
        p_snr=spectrum.snr,
        p_snr_p_value=snr_p,
        n_probes=n_probes,
        n_tokens=test.n_tokens,
        n_effective=test.n_effective,
        n_queries=probe.n_queries,
        level=float(level),
        keys_tried=int(tried.keys_tried),
        suspects_tested=int(tried.suspects_tested),
        looks=int(tried.looks),
        statistic=MEMORY if variant.startswith("memory") else STATISTIC,
        variant=variant,
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
        target_label=key.target_label,
        settings={**key_settings(key), "logged_counts": False, "simulated_keys": 0, **settings},
        versions=library_versions(),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        probe=probe,
        null_samples=samples,
    )


def library_versions() -> dict[str, str]:
    """The versions that a result was found with."""
    return {name: version(name) for name in _LIBRARIES} | {"python": platform.python_version()}


def judge(
    test: ExactTest, log10_p: float, log10_bound: float, level: float, tried: Tried
) -> tuple[Verdict, int | None, str]:
    """The verdict, how many distinct tokens an undecided one would need, and a sentence that says why."""
    if log10_bound <= math.log10(level):
        return "detected", None, f"An unrelated model would look this marked with a chance below {level:g}."
    wanted = level / (tried.keys_tried * tried.suspects_tested * tried.looks)
    # What a faint mark needs to be found 19 times in 20 (z² = U ln(1 + γ²)), against what the test had.
    least = (math.sqrt(-2.0 * math.log(wanted)) + 1.64) ** 2 / math.log1p(FAINT**2)
    if log10_p < math.log10(SUGGESTIVE):
        needed = math.ceil(tokens_needed(test, wanted) * test.n_tokens)
        return (
            "undecided",
            needed,
            (
                f"The answers lean towards the key, but not beyond doubt; about {needed} distinct tokens like these "
                f"would decide (there were {test.n_tokens})."
            ),
        )
    if test.n_effective < least:
        needed = math.ceil(least / max(test.n_effective, 1.0) * test.n_tokens)
        return (
            "undecided",
            needed,
            (f"{test.n_tokens} distinct tokens are too few to find a faint mark; about {needed} would do."),
        )
    return (
        "not detected",
        None,
        (
            f"The answers show no sign of the key; a mark of {FAINT:g} standard deviations a token would most likely "
            "have shown. Fainter ones may need more."
        ),
    )


def _check_belongs(probe: Probe, key: WatermarkKey) -> None:
    if probe.task != key.task or probe.labels != key.labels:
        raise KeyMismatchError(
            f"the probe is of a {probe.task} model with labels {list(probe.labels)}; the key {key.fingerprint} is for "
            f"{key.task} with {list(key.labels)}"
        )
    fingerprints = {probe.tokenizer_fingerprint, key.tokenizer_fingerprint} - {None}
    if len(fingerprints) > 1 or probe.input_ids.max(initial=0) >= key.vocab_size:
        raise KeyMismatchError(f"the probe's tokens are not those of the key {key.fingerprint}'s tokenizer")


def _record_of(commitment: FoundCommitment, key: WatermarkKey) -> dict[str, Any]:
    """A commitment's record as JSON keeps it; `hub` stands below this package, so any object of its form will do."""
    if not hasattr(commitment, "to_dict") or not isinstance(getattr(commitment, "commitment", None), str):
        raise InvalidInputError(
            f"commitment is a {type(commitment).__name__}; expected what drw_hf.evidence.verify_commitment returns"
        )
    if commitment.commitment != key.commitment():
        raise KeyMismatchError(
            f"the record is of the commitment {commitment.commitment[:16]}, the key is {key.fingerprint}; look its "
            "own commitment up with drw_hf.evidence.verify_commitment"
        )
    return json.loads(json.dumps(commitment.to_dict()))
