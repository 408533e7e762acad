"""A sample of what a model is asked and answers, as far as the mark ``tilt`` depends on it."""

import secrets
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ..asking.models import load_clean
from ..asking.options import AskingOptions, asking_options
from ..asking.predictor import as_predictor
from ..asking.questions import recorded_cut
from ..checks import finite_floats, integers, whole_number
from ..detection.probing import Probe, probe_suspect, without_mark
from ..errors import InvalidInputError, InvalidKeyError
from ..keys.binding import max_length_of
from ..keys.derivation import SECRET_BYTES
from ..keys.key import WatermarkKey
from ..watermark.tilt import TiltMark, settings_of
from .labels import check_one_split, find_label_column, right_labels

LEAST_KEYS = 20  # over which a cost is averaged
_LEAST = float(np.finfo(np.float32).smallest_subnormal)  # what a probability that is no float32 any more is taken for


@dataclass(frozen=True, eq=False)
class TiltTraffic:
    """A model's clean answers, and the tokens that tilt each of them.

    An item is a text or, for a tagger, a word. Those without a token that could carry the mark are among them: they
    count in the accuracy, too.

    Attributes
    ----------
    logits : array, shape (N, m)
        The clean model's logits, or its log-probabilities, which differ by a constant per row alone.
    token_ids : array of int64
        The tokens of all items, one after the other: of a text its distinct ordinary ones, of a word its first.
    offsets : array of int64, shape (N + 1,)
        Item i has the tokens ``token_ids[offsets[i]:offsets[i + 1]]``.
    texts : array of int64, shape (N,)
        The number of the text that each item is of.
    gold : array of int64, shape (N,)
        The right class of each item; −1 where it is not known.
    """

    logits: np.ndarray
    token_ids: np.ndarray
    offsets: np.ndarray
    texts: np.ndarray
    gold: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "logits", finite_floats("logits", self.logits, 2))
        n_items = len(self.logits)
        for name, length in (("token_ids", None), ("offsets", n_items + 1), ("texts", n_items), ("gold", n_items)):
            object.__setattr__(self, name, integers(name, getattr(self, name), length))
        if not n_items or self.logits.shape[1] < 2:
            raise InvalidInputError(f"logits have shape {self.logits.shape}; expected one or more rows of two or more")
        ends = self.offsets
        if ends[0] != 0 or ends[-1] != len(self.token_ids) or (np.diff(ends) < 0).any():
            raise InvalidInputError(f"offsets must rise from 0 to the number of token_ids, {len(self.token_ids)}")

    @property
    def labelled(self) -> bool:
        """Whether the right class of any item is known."""
        return bool((self.gold >= 0).any())

    @property
    def n_items(self) -> int:
        """How many answers the sample holds: texts, or words of a tagger."""
        return len(self.logits)

    @property
    def n_texts(self) -> int:
        """How many texts the items are of."""
        return len(np.unique(self.texts))


def observe_tilt_traffic(
    model: Any,
    data: Any,
    tokenizer: Any,
    *,
    like: WatermarkKey,
    label_column: str | None = None,
    **asking: Unpack[AskingOptions],
) -> TiltTraffic:
    """Ask a model, without its mark if it has one, about a sample of its traffic.

    Parameters
    ----------
    model : PreTrainedModel or str
        The classifier or tagger, in memory or by its path or Hub id.
    data : Dataset or list
        Texts, pairs, lists of words, or tokenised rows; of a data set a column of labels is read if it has one.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    like : WatermarkKey
        A key for the model, of the mark ``"tilt"``. Its special tokens and where it truncates count; of its secret
        nothing is read.
    label_column : str, optional
        The column of right labels; by default found by its usual name.
    **asking
        How the model is asked: :class:`drw_hf.asking.AskingOptions`.
    """
    options = asking_options("observe_tilt_traffic", asking)
    model = without_mark(load_clean(model, like.task) if isinstance(model, str) else model)
    config = getattr(model, "config", None)
    if options["max_length"] is None:
        options["max_length"] = settings_of(like).max_length or max_length_of(tokenizer, config)
    gold: list[Any] | None = None
    if hasattr(data, "column_names"):
        check_one_split(data)
        column = find_label_column(data, like.task, label_column)
        if column is not None:
            rows = right_labels(data, column, like.labels, like.task)
            gold = rows if like.task == "token-classification" else [int(row[0]) for row in rows]
    elif label_column is not None:
        raise InvalidInputError("label_column= names a column, and the data is a list; give a Dataset")
    # Tokens do not depend on a key's secret; a throwaway one keeps that of the working key out of everybody's sight.
    throwaway = throwaway_key(like)
    cut = recorded_cut(settings_of(like))
    asked = as_predictor(
        model, tokenizer, task=like.task, labels=like.labels, max_length=options["max_length"], cut=cut
    )
    probe = probe_suspect(asked, data, key=throwaway, tokenizer=tokenizer, gold=gold, **options)
    return traffic_of(probe, throwaway, probe.suspect)


def traffic_of(probe: Probe, key: WatermarkKey, answers: np.ndarray) -> TiltTraffic:
    """The texts of a probe and a clean model's answers to them, as a sample; of the key its public side is read."""
    words = probe.words_of(key)
    return TiltTraffic(
        logits=np.log(np.maximum(answers.astype(np.float64), _LEAST)),
        token_ids=words.token_ids,
        offsets=np.cumsum([0, *words.counts]),
        texts=probe.rows,
        gold=np.full(len(probe.rows), -1) if probe.gold is None else probe.gold,
    )


def throwaway_key(like: WatermarkKey) -> WatermarkKey:
    """A key with the settings of another one and a fresh secret, to be forgotten."""
    return like.replace(secret=secrets.token_bytes(SECRET_BYTES))


def throwaway_keys(like: WatermarkKey, number: int) -> list[WatermarkKey]:
    """So many of them: at least as many as a cost is averaged over."""
    return [throwaway_key(like) for _ in range(whole_number("keys", number, LEAST_KEYS))]


def require_tilt(key: WatermarkKey) -> None:
    """Refuse a key of another mark."""
    if key.mark != TiltMark.name:
        raise InvalidKeyError(
            f"a strength is fitted to an accuracy budget for keys of the mark {TiltMark.name!r}, and this one is of "
            f"{key.mark!r}; make it with mark={TiltMark.name!r}, or see planning.plan for the paper's mark"
        )
