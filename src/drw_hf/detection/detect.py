"""`detect`: does this suspect carry the mark of this key?"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Protocol, Unpack

from transformers import PreTrainedTokenizerBase

from ..asking.query_log import Asked, QueryLog
from ..checks import whole_number
from ..errors import InvalidInputError, KeyMismatchError
from ..keys.key import WatermarkKey
from ..keys.settings import MARKS
from .cutting import check_cut_is_counted, check_length_is_counted
from .probe import Probe
from .probing import ProbingOptions, Suspect, probe_of
from .result import DetectionResult, as_iso, authenticate, moment_of, refer_to
from .statistics import TestOptions
from .texts import texts_in
from .verdict import Corrections, verdict_on


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
    reference: Suspect | None = None,
    controls: Sequence[Suspect] | None = None,
    keys_tried: int = 1,
    suspects_tested: int = 1,
    looks: int = 1,
    level: float = 1e-3,
    logged: Sequence[Any] | QueryLog | Asked | None = None,
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
        :class:`~drw_hf.detection.Probe` is analysed without asking; to one that a neutral party made, ``victim``,
        ``reference``, ``logged``, ``controls`` and ``gold`` are added here, by the texts it keeps. What a suspect
        refuses, or answers with what is no prediction, is counted and left out. Arrays are answers gathered
        elsewhere, (m,) or (len(input_ids), m) in the key's label order; ``texts`` are then rows with ``input_ids``.
    texts : list, Dataset, DataFrame
        Texts, pairs, lists of words, or tokenised rows. Of a data set or a data frame the column of texts is asked
        (``text_columns``).
    key : WatermarkKey
        The owner's key.
    tokenizer : PreTrainedTokenizerBase
        The owner's tokenizer, whatever the suspect's is.
    victim : model, optional
        The clean victim (a protected model is asked with its mark switched off). It sharpens the test (that of the
        mark tilt finds little without it), and suspects that give labels alone need it, or ``gold`` (tilt:
        ``reference``).
    reference : model, optional
        A model of yours that has nothing to do with the key. Best is a student of the clean victim's answers to text
        like the thief's: it errs as students do, and what it explains is no noise any more. Without the victim it
        stands in for it.
    controls : sequence of models, optional
        Models that are known to be innocent, as many as you have: they are asked the same, and the same test on each
        stands beside the finding (:attr:`DetectionResult.controls`). They are not suspects, so nothing is corrected
        for them.
    keys_tried, suspects_tested, looks : int
        How many keys, suspects and looks at the data there were in all, this one included; p-values are corrected.
    level : float
        The level of the verdict.
    logged : QueryLog or sequence, optional
        The log of the service that was protected with this key (:class:`drw_hf.QueryLog`, which ``drw-hf serve --log``
        writes). The suspect is asked about what was answered under the key, and nothing else: of a ring's user the
        user's own texts. ``texts`` are then needed only where the log holds digests in their place. The result says
        by which days of the log it goes (:attr:`DetectionResult.log`), so that ``verify`` can hold them against their
        time-stamped roots; what ``QueryLog.asked_under`` gives may stand for the log.

        Or the labels that a hard-label service served for ``texts`` (token tasks: one per word), by name or number;
        with ``texts=None``, a list of (text, served) pairs. For the paper's mark labels select the memory test, which
        asks whether the suspect repeats the very labels that were drawn, and needs ``sampling="keyed"``. For
        the mark tilt with a margin it adds the test of the close calls. Both need ``victim``, and a log that was not
        chosen by the answers in it: never leave texts out because of what was answered, or whether it was right.
    logged_counts : mapping, optional
        How often each token id was queried, if known; tokens that were never queried get no weight.
    simulated_keys : int
        Also draw so many random keys, for a p-value of P_snr and for the histogram of :meth:`DetectionResult.plot`.
    commitment : CommitmentRecord, optional
        Where the key's commitment was found: what :func:`drw_hf.evidence.verify_commitment` returns. Without it the
        result says that the key was not committed to beforehand.
    suspect_first_seen : str, date or datetime, optional
        When the suspect was first seen, for the commitment to be older than; without a time zone it is UTC, and a
        date is the beginning of that day. It is not after this test.
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
        Where texts are cut in another way than the key records and ``looks`` is 1: that is another look. Or
        where there is nothing to test: no probes, labels that cannot be matched, a class that nobody predicts. Of the
        mark tilt also where the reference, tested like a suspect, follows the key or leans against it, with a z of 4.
    KeyMismatchError
        Where key and tokenizer, key and probe, or key and commitment do not belong together.
    """
    record = None if commitment is None else _record_of(commitment, key)
    first_seen = None if suspect_first_seen is None else _checked_day(as_iso(suspect_first_seen))
    draws = MARKS.get(key.mark).draws(key.settings)
    if isinstance(suspect, Probe) and isinstance(logged, QueryLog | Asked):
        raise InvalidInputError(
            "a Probe holds its answers already, and a QueryLog says what to ask; leave out logged=, or give the "
            "suspect itself in place of the probe"
        )
    if isinstance(logged, QueryLog):
        given = None if texts is None else texts_in(texts, key.task, probing.get("text_columns"))
        logged = logged.asked_under(key, given)
    interval = None
    if isinstance(logged, Asked):
        texts, labels, interval = logged
        logged = labels if draws else None
    elif not isinstance(suspect, Probe) and texts is None and logged is not None:
        texts, logged = _split_pairs(logged)
    if logged is not None and not draws:
        raise InvalidInputError(
            f"logged= is for services that draw labels, and with this key of the mark {key.mark!r} none are drawn; "
            "leave it out, and give the logged texts alone (keys with a margin draw close calls: see margin_budget)"
        )
    corrections = Corrections(keys_tried, suspects_tested, whole_number("looks", looks))
    check_length_is_counted(key, looks, probing.get("max_length"))
    others: dict[str, Any] = {"tokenizer": tokenizer, "victim": victim, "reference": reference, "logged": logged}
    probe = probe_of("detect", suspect, texts, key=key, controls=controls, **others, **probing)
    check_cut_is_counted(key, looks, probe)
    bare = verdict_on(probe, key, corrections, level, TestOptions(logged_counts, simulated_keys))
    result = refer_to(bare, record, first_seen)
    result = dataclasses.replace(result, log=None if interval is None else interval.to_dict())
    return dataclasses.replace(result, mac=authenticate(result.document(), key))


def _checked_day(first_seen: str) -> str:
    if moment_of(first_seen) > datetime.now(UTC):
        raise InvalidInputError(
            f"suspect_first_seen={first_seen!r} lies in the future, and the suspect is tested now; give the day on "
            "which it was first seen (without a time zone it is UTC)"
        )
    return first_seen


def _split_pairs(logged: Any) -> tuple[list[Any], list[Any]]:
    """The texts and the labels of a log that was given as pairs."""
    pairs = [] if isinstance(logged, str | Mapping) else list(logged)
    if not pairs or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise InvalidInputError(
            "without texts, logged must be a list of (text, served) pairs, in the order in which they were served; or "
            "give the texts, and logged= with the labels alone"
        )
    return [text for text, _ in pairs], [served for _, served in pairs]


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
