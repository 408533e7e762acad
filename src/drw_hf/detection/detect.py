"""`detect`: does this suspect carry the mark of this key?"""

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Protocol

from transformers import PreTrainedTokenizerBase

from ..errors import InvalidInputError, KeyMismatchError
from ..keys.key import WatermarkKey
from .probing import Probe, Suspect, probe_suspect
from .result import DetectionResult, as_iso, authenticate, refer_to
from .statistics import TestOptions
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
    keys_tried: int = 1,
    suspects_tested: int = 1,
    looks: int = 1,
    level: float = 1e-3,
    gold: Sequence[Any] | None = None,
    logged: Sequence[Any] | None = None,
    label_map: Mapping[str, str] | None = None,
    suspect_tokenizer: PreTrainedTokenizerBase | None = None,
    text_columns: str | Sequence[str] | None = None,
    logged_counts: Mapping[int, int] | None = None,
    max_queries: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    max_retries: int = 5,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    simulated_keys: int = 0,
    commitment: FoundCommitment | None = None,
    suspect_first_seen: str | date | datetime | None = None,
    progress: bool = True,
) -> DetectionResult:
    """Probe a suspect and test whether its answers follow the key.

    No gold labels are needed: which probes count is decided by the clean victim's predictions, or the suspect's own.
    Never choose the probe texts by what the *protected* model answered: those answers carry the key, and the p-value
    would no longer hold.

    Parameters
    ----------
    suspect : model, str, Pipeline, InferenceClient, callable, Probe, or list of arrays
        Who is asked. A callable takes a list of texts (pairs: tuples; token tasks: lists of words) and returns for
        each ``{label: score}`` or a label, token tasks a list of these, one a word. A :class:`~drw_hf.detection.Probe`
        is analysed without asking. Arrays are answers gathered elsewhere, (m,) or (len(input_ids), m) in the key's
        label order; ``texts`` are then rows with ``input_ids``.
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
    gold : sequence, optional
        True labels of the texts (token tasks: of the words), as in the paper's protocol.
    logged : sequence, optional
        The labels that a hard-label service served for ``texts`` (token tasks: one a word), by name or number: selects
        the memory test, which asks whether the suspect repeats the very labels that were drawn. Needs ``victim``, and
        a service with ``sampling="keyed"``. With ``texts=None``, a list of (text, served) pairs.
    label_map : mapping, optional
        ``{suspect's label: key's label}`` for a suspect whose labels were renamed.
    suspect_tokenizer : PreTrainedTokenizerBase, optional
        The suspect's tokenizer, where the suspect is a model with another one.
    logged_counts : mapping, optional
        How often each token id was queried, if known; tokens that were never queried get no weight.
    text_columns, max_length, batch_size, max_retries, cache_dir, load_from_cache_file, progress
        As for :func:`drw_hf.label_with_teacher`: asking is resumable, and what was probed is kept.
    max_queries : int, optional
        Ask about so many texts at the most.
    simulated_keys : int
        Also draw so many random keys, for a p-value of P_snr and for the histogram of :meth:`DetectionResult.plot`.
    commitment : CommitmentRecord, optional
        Where the key's commitment was found: what :func:`drw_hf.evidence.verify_commitment` returns. Without it the
        result says that the key was not committed to beforehand.
    suspect_first_seen : str, date or datetime, optional
        When the suspect was first seen, for the commitment to be older than; without a time zone it is UTC, and a
        date is the beginning of that day.

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
    if isinstance(suspect, Probe):
        probe = suspect
        given = {"texts": texts, "victim": victim, "gold": gold, "logged": logged, "label_map": label_map}
        ignored = [name for name, value in given.items() if value is not None]
        if ignored:
            raise InvalidInputError(
                f"a Probe holds its answers already, so {ignored} would have no effect; leave them out"
            )
    else:
        if texts is None:
            raise InvalidInputError("texts are missing: give texts to probe the suspect with")
        probe = probe_suspect(
            suspect,
            texts,
            key=key,
            tokenizer=tokenizer,
            victim=victim,
            gold=gold,
            logged=logged,
            load_from_cache_file=load_from_cache_file,
            label_map=label_map,
            suspect_tokenizer=suspect_tokenizer,
            text_columns=text_columns,
            max_queries=max_queries,
            max_length=max_length,
            batch_size=batch_size,
            max_retries=max_retries,
            cache_dir=cache_dir,
            progress=progress,
        )
    corrections = Corrections(keys_tried, suspects_tested, looks)
    bare = verdict_on(probe, key, corrections, level, TestOptions(logged_counts, simulated_keys))
    result = refer_to(bare, record, first_seen)
    return dataclasses.replace(result, mac=authenticate(result.document(), key))


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
