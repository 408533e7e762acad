"""What the mark costs the model's users: the accuracy of clean and of protected answers.

:func:`measure_accuracy` counts it on labelled data. :func:`accuracy_bounds` computes it from the clean probabilities
alone, by Theorem 1 of the paper for any number of classes; :func:`tilt_accuracy_bounds` is its like for the mark
``tilt``. :func:`predict_accuracy` asks a model for what they need. Both take the model for calibrated, which
:func:`calibration_error` tests.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ..asking.labelling import LABELS, PROBABILITIES, UNANSWERED, label_with_teacher
from ..asking.options import AskingOptions
from ..checks import (
    check_choice,
    check_options,
    class_names,
    distributions,
    integers,
    whole_number,
)
from ..errors import DatasetError, InvalidInputError, KeyMismatchError, MissingKeyError, UnsupportedModelError
from ..keys.binding import labels_of, plain_config
from ..keys.choices import LABEL_KINDS, LabelKind
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.settings import MarkSettings
from ..watermark.tilt import TiltMark, TiltSettings, settings_of
from .labels import check_one_split, find_label_column, right_labels
from .margin_costs import MarginCosts
from .tilt_costs import POINTS, TiltCosts
from .tilt_traffic import LEAST_KEYS, TiltTraffic, observe_tilt_traffic, throwaway_keys


@dataclass(frozen=True)
class AccuracyBounds:
    """The accuracy of a calibrated model, clean and protected.

    Attributes
    ----------
    clean : float
        Of the clean answers: the mean of the largest probability.
    expected : float
        Of the protected answers, averaged over random keys.
    bound : float
        What ``expected`` does not fall below, whatever the frequency and however the phases are distributed. For the
        mark ``tilt``: what no key falls below.
    paper_bound : float or None
        The paper's bound, which ``bound`` is never below; for more than two classes by the same argument. None where
        unmarked labels are drawn too, and for the mark ``tilt``, of which the paper says nothing.
    n : int
        The number of items.
    """

    clean: float
    expected: float
    bound: float
    paper_bound: float | None
    n: int

    @property
    def expected_cost(self) -> float:
        """The accuracy that the mark costs on average."""
        return self.clean - self.expected

    @property
    def largest_cost(self) -> float:
        """The accuracy that the mark costs at most."""
        return self.clean - self.bound


@dataclass(frozen=True, eq=False)
class Calibration:
    """How sure a model is, and how often it is right.

    Attributes
    ----------
    ece : float
        The expected calibration error: how far accuracy and confidence of a bin differ, weighted by its items.
    confidence : float
        The mean of the largest probability: the accuracy that a calibrated model would have.
    accuracy : float
        How often the class with the largest probability is the right one.
    n : int
        The number of items.
    bin_edges : array, shape (n_bins + 1,)
        The edges of the bins of confidence; an item on an edge belongs to the bin below.
    bin_confidence, bin_accuracy : array, shape (n_bins,)
        The same for each bin, for a reliability plot; NaN in empty bins.
    bin_counts : array of int, shape (n_bins,)
        The items of each bin.
    """

    ece: float
    confidence: float
    accuracy: float
    n: int
    bin_edges: np.ndarray
    bin_confidence: np.ndarray
    bin_accuracy: np.ndarray
    bin_counts: np.ndarray

    @property
    def overconfidence(self) -> float:
        """By how much the model claims to be right more often than it is; negative where it is too modest."""
        return self.confidence - self.accuracy


def accuracy_bounds(
    probabilities: Any, settings: MarkSettings, *, label_kind: LabelKind = "soft", sample_all: bool = False
) -> AccuracyBounds:
    """The accuracy of protected answers, from the clean probabilities alone: Theorem 1 of the paper for m classes.

    The model is taken for calibrated: of the items with probabilities p̂, a share p̂_c is of class c
    (:func:`calibration_error` tests it). Then no right label is needed.

    Parameters
    ----------
    probabilities : array, shape (n, m)
        The clean model's probabilities p̂, one row per item.
    settings : MarkSettings
        The mark; of a key, ``key.settings``.
    label_kind : str
        ``"soft"``: the answers are ŷ, and their argmax is judged. ``"hard"``: they are labels, drawn from ŷ where
        marked.
    sample_all : bool
        For hard labels: unmarked ones are drawn too, from p̂, not argmax.

    Notes
    -----
    The average is over keys whose hashes are uniform and independent, law ``"direct"``. Under law ``"paper"`` phase
    and selection correlate: ``expected`` is then an approximation, and so is τ as the share of selected items.

    Examples
    --------
    >>> from drw_hf.keys import MarkSettings
    >>> from drw_hf.planning import accuracy_bounds
    >>> mark = MarkSettings(target=1, epsilon=0.2)
    >>> found = accuracy_bounds([[0.9, 0.1], [0.45, 0.55], [0.2, 0.8]], mark)
    >>> round(found.clean, 4), round(found.bound, 4), round(found.paper_bound, 4)
    (0.75, 0.7333, 0.6333)
    """
    if settings.mark == TiltMark.name:
        raise InvalidInputError(
            "the theorem is about the paper's mark; what the mark 'tilt' costs depends on the tokens as well: use "
            "predict_accuracy, or tilt_accuracy_bounds"
        )
    p = distributions("probabilities", probabilities)
    check_target(settings, p.shape[1])
    check_choice("label_kind", label_kind, LABEL_KINDS)
    epsilon, tau = settings.epsilon, settings.tau
    unmarked, squares = p.max(axis=1), (p**2).sum(axis=1)
    clean, paper_bound = float(unmarked.mean()), None
    if label_kind == "soft":
        average, worst, may_change = _argmax_after_marking(p, settings)
        paper_bound = clean - tau * (0.5 + epsilon) * float(may_change.mean())
    else:
        average, worst = _draw_after_marking(p, settings)
        if sample_all:
            unmarked = squares
        else:
            paper_bound = (1.0 - tau) * clean + tau / (1.0 + 2.0 * epsilon) * float(squares.mean())
    marked = tau * ((p.argmax(axis=1) == settings.target) | (settings.scope == "all"))
    expected, bound = (float((unmarked - marked * (unmarked - after)).mean()) for after in (average, worst))
    return AccuracyBounds(clean, expected, bound, paper_bound, len(p))


def tilt_accuracy_bounds(
    traffic: TiltTraffic, settings: TiltSettings, keys: Sequence[WatermarkKey], label_kind: LabelKind = "soft"
) -> AccuracyBounds:
    """The accuracy of answers with the mark ``tilt``, from the clean ones: what Theorem 1 is for the paper's mark.

    The model is taken for calibrated at the temperature of ``settings``: of the items with softmax(logits/T) = p, a
    share p_c is of class c. It holds for soft answers, of which the argmax is judged, and for hard ones alike, but
    that close calls of hard ones are drawn where the settings have a margin.

    Parameters
    ----------
    traffic : TiltTraffic
        The clean answers and the tokens of each, as :func:`observe_tilt_traffic` takes them.
    settings : TiltSettings
        The mark; of a key, ``key.settings``.
    keys : sequence of WatermarkKey
        Throwaway keys, over which ``expected`` is averaged.

    Notes
    -----
    Every s lies between −√2 and √2, so the sum over the n tokens of an item moves the log-odds of two classes by no
    more than 2√2·β√n. ``bound`` takes every item for the unlikeliest class within that reach. A draw reaches further:
    the tilted probability of the best class is at least p_top·e^−reach, and that of the second less than δ below it.
    """
    costs = TiltCosts(traffic, settings.temperature, keys, settings.strength)
    clean = costs.expected_accuracy / POINTS
    reach = 2.0 * math.sqrt(2.0) * settings.strength * np.sqrt(np.diff(traffic.offsets))
    log_p = costs.log_p
    lost = costs.at(settings.strength).expected_cost
    if label_kind == "hard" and settings.margin:
        margins = MarginCosts(traffic, settings.temperature, keys, settings.strength, widest=settings.margin)
        lost += margins.at(settings.margin).expected_cost
        with np.errstate(divide="ignore"):
            reach = reach - np.log(np.maximum(1.0 - settings.margin * np.exp(reach - log_p.max(axis=1)), 0.0))
    within = log_p >= log_p.max(axis=1, keepdims=True) - reach[:, None]
    bound = float(np.exp(np.where(within, log_p, 0.0).min(axis=1)).mean())
    expected = clean - lost / POINTS
    return AccuracyBounds(clean, expected, bound, None, traffic.n_items)


def check_target(settings: MarkSettings, n_classes: int) -> None:
    """Refuse a target class that a model with this many classes does not have."""
    if settings.target >= n_classes:
        raise InvalidInputError(f"target={settings.target}: expected the number of a class, 0 to {n_classes - 1}")


def _argmax_after_marking(p: np.ndarray, settings: MarkSettings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often the argmax of ŷ is right, by item: on average over the phase, at worst; and whether it may change.

    All classes but c* get the same addition, so only c* and the best of the others can change places. They do where
    z crosses ``turn``, and that costs their difference.
    """
    m, epsilon = p.shape[1], settings.epsilon
    margin = p[:, settings.target] - np.delete(p, settings.target, axis=1).max(axis=1)
    may_change = (margin <= 2.0 * epsilon / (m - 1)) & (margin >= -2.0 * epsilon)
    # c* wins iff z > turn. The least positive ε stands for 0, where it wins iff it did.
    turn = -(margin * (m - 1) / max(epsilon, 1e-300) + m - 2) / m
    below = _chance_below(turn, settings.frequency)
    loss = np.where(may_change, np.abs(margin), 0.0)
    top = p.max(axis=1)
    return top - loss * np.where(margin > 0.0, below, 1.0 - below), top - loss, may_change


def _draw_after_marking(p: np.ndarray, settings: MarkSettings) -> tuple[np.ndarray, np.ndarray]:
    """How often a label drawn from ŷ is right, Σ p̂_c ŷ_c, by item: on average over the phase, and at worst."""
    of_target, epsilon = p[:, settings.target], settings.epsilon
    of_others = (1.0 - of_target) / (p.shape[1] - 1)
    mean_z = math.sin(settings.frequency) / settings.frequency
    squares = (p**2).sum(axis=1)
    average = squares + epsilon * ((1.0 + mean_z) * of_target + (1.0 - mean_z) * of_others)
    worst = squares + 2.0 * epsilon * np.minimum(of_target, of_others)
    return average / (1.0 + 2.0 * epsilon), worst / (1.0 + 2.0 * epsilon)


def _chance_below(level: np.ndarray, frequency: float) -> np.ndarray:
    """P[cos(f_w g) < level] for g uniform on [0, 1), exactly: f_w makes whole cycles and a rest."""
    angle = np.arccos(np.clip(level, -1.0, 1.0))
    cycles, rest = divmod(frequency, 2.0 * math.pi)
    # The cosine lies above the level within ``angle`` of a cycle's two ends.
    above = cycles * 2.0 * angle + np.minimum(rest, angle) + np.maximum(rest - (2.0 * math.pi - angle), 0.0)
    return np.clip(1.0 - above / frequency, 0.0, 1.0)


def calibration_error(probabilities: Any, labels: Any, n_bins: int = 15) -> Calibration:
    """Whether a model is right as often as it claims: the expected calibration error over equally wide bins.

    Parameters
    ----------
    probabilities : array, shape (n, m)
        The clean model's probabilities, one row per item.
    labels : array of int, shape (n,)
        The right class of each item.
    n_bins : int
        Into how many bins the confidences in [0, 1] are sorted.

    Notes
    -----
    Few items make the error look larger than it is: with k items per bin, a calibrated model's comes out at up to
    about 0.4/√k.

    Examples
    --------
    >>> from drw_hf.planning import calibration_error
    >>> found = calibration_error([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.3, 0.7]], [0, 1, 1, 1], n_bins=5)
    >>> round(found.ece, 4), round(found.overconfidence, 4)
    (0.375, 0.025)
    """
    p = distributions("probabilities", probabilities)
    labels = integers("labels", labels, len(p))
    wrong = np.flatnonzero((labels < 0) | (labels >= p.shape[1]))
    if len(wrong):
        raise InvalidInputError(
            f"label {labels[wrong[0]]} of item {wrong[0]} is no class: expected 0 to {p.shape[1] - 1}; leave out "
            "items without a label"
        )
    whole_number("n_bins", n_bins)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    bins = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    confidence_sums, right_sums = (np.bincount(bins, weights=each, minlength=n_bins) for each in (confidence, right))
    with np.errstate(invalid="ignore"):  # 0/0, an empty bin
        bin_confidence, bin_accuracy = confidence_sums / counts, right_sums / counts
    ece = float(np.abs(right_sums - confidence_sums).sum() / len(p))
    means = float(confidence.mean()), float(right.mean())
    return Calibration(ece, *means, len(p), edges, bin_confidence, bin_accuracy, counts)


def predict_accuracy(
    model: Any,
    dataset: Any,
    tokenizer: Any,
    *,
    key: WatermarkKey | KeyRing | MarkSettings | None = None,
    sample_all: bool | None = None,
    **asking: Unpack[AskingOptions],
) -> dict[str, AccuracyBounds]:
    """What a mark would cost a model, on texts without labels.

    Parameters
    ----------
    model : model
        The classifier or tagger, protected or not yet. Its clean answers are asked.
    dataset : Dataset
        Rows with a text (or two, or a list of words) like those the model will be asked.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    key : WatermarkKey, KeyRing or MarkSettings, optional
        The key, of which only the settings count, or these alone; by default the protected model's own key.
    sample_all : bool, optional
        Whether unmarked hard labels are drawn too; by default as the protected model is set, else not.
    **asking
        How it is asked: :class:`drw_hf.asking.AskingOptions`.

    Returns
    -------
    dict
        ``{"soft": AccuracyBounds, "hard": AccuracyBounds}``, as :func:`accuracy_bounds` or, for the mark ``tilt``,
        :func:`tilt_accuracy_bounds` computes them over all texts or, for taggers, words; words beyond the model's
        limit are left out.

    Raises
    ------
    MissingKeyError
        For an unprotected model without a key.
    KeyMismatchError
        For a key of other labels than the model's.
    """
    check_one_split(dataset)
    key = getattr(model, "key", None) if key is None else key
    if key is None:
        raise MissingKeyError(
            "this model has no key that would say how it is marked; pass key= (a WatermarkKey, a KeyRing or "
            "MarkSettings)"
        )
    if not isinstance(key, WatermarkKey | KeyRing | MarkSettings):
        raise InvalidInputError(f"key={type(key).__name__}: expected a WatermarkKey, a KeyRing or MarkSettings")
    protected = hasattr(model, "watermark_disabled")
    check_options("predict_accuracy", asking, AskingOptions)
    if sample_all is None:
        sample_all = protected and model.config.sample_all
    if (key if isinstance(key, MarkSettings) else key.settings).mark == TiltMark.name:
        return _predict_tilted(model, dataset, tokenizer, key, sample_all, asking)
    with model.watermark_disabled() if protected else contextlib.nullcontext():
        labelled = label_with_teacher(model, dataset, tokenizer, **asking)
    labels = tuple(class_names(labelled.features[LABELS]) or ())
    key = key.template() if isinstance(key, KeyRing) else key
    if isinstance(key, WatermarkKey):
        _check_labels(key, labels)
    rows = labelled.with_format(None)[PROBABILITIES]
    p = np.concatenate([np.asarray(row, dtype=np.float64).reshape(-1, len(labels)) for row in rows])
    p = p[p.any(axis=1)]  # a word that the model did not see has zeros
    if not len(p):
        raise DatasetError("the model answered about no word of the data set: nothing can be predicted")
    settings = key.settings if isinstance(key, WatermarkKey) else key
    return {kind: accuracy_bounds(p, settings, label_kind=kind, sample_all=sample_all) for kind in LABEL_KINDS}


def _predict_tilted(
    model: Any,
    dataset: Any,
    tokenizer: Any,
    key: WatermarkKey | KeyRing | MarkSettings,
    sample_all: bool,
    asking: AskingOptions,
) -> dict[str, AccuracyBounds]:
    if sample_all:
        raise InvalidInputError(
            "with sample_all=True labels are drawn from the tilted probabilities, of which this says nothing; count "
            "with measure_accuracy"
        )
    if isinstance(key, MarkSettings):
        like = WatermarkKey.generate(model, tokenizer=tokenizer, mark=TiltMark.name, temperature=1.0)
        like = like.replace(settings=key)
    else:
        like = key.template() if isinstance(key, KeyRing) else key
    _check_labels(like, labels_of(plain_config(model)))
    traffic = observe_tilt_traffic(model, dataset, tokenizer, like=like, **asking)
    keys, settings = throwaway_keys(like, LEAST_KEYS), settings_of(like)
    soft = tilt_accuracy_bounds(traffic, settings, keys)
    return {"soft": soft, "hard": tilt_accuracy_bounds(traffic, settings, keys, "hard") if settings.margin else soft}


def _check_labels(key: WatermarkKey, labels: tuple[str, ...]) -> None:
    if labels != tuple(key.labels):
        raise KeyMismatchError(
            f"the key {key.fingerprint} is for another label set: the key has {key.labels!r}, the model {labels!r}; "
            "give this model's key, or make one with WatermarkKey.generate(model, ...)"
        )


def measure_accuracy(
    victim: Any,
    dataset: Any,
    tokenizer: Any,
    *,
    label_column: str | None = None,
    **asking: Unpack[AskingOptions],
) -> dict[str, dict[str, float]]:
    """The accuracy of a protected model's answers, and of the clean model's, on labelled data.

    Parameters
    ----------
    victim : WatermarkedModelForSequenceClassification or WatermarkedModelForTokenClassification
        The protected model. It is asked as it answers, then with its mark switched off.
    dataset : Dataset
        Rows with a text (or two, or a list of words) and the right label (or one for each word), as a name or as a
        number. Labels that are missing (None, −1, −100) are left out.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    label_column : str, optional
        The column of right labels; by default found by its usual name.
    **asking
        How it is asked: :class:`drw_hf.asking.AskingOptions`.

    Returns
    -------
    dict
        ``{"accuracy": {"clean": ..., "protected": ..., "n": ...}}``, over ``n`` texts or, for taggers, words: a word's
        answer is that of its first sub-token, and words beyond the model's limit are left out. As
        :func:`drw_hf.hub.model_card` takes it.

    Raises
    ------
    DatasetError
        For data without labels, or with labels that are not the model's.
    """
    if not hasattr(victim, "watermark_disabled"):
        raise UnsupportedModelError(
            f"a {type(victim).__name__} has no clean and protected answers; wrap it with from_model(model, key=...)"
        )
    check_one_split(dataset)
    column = find_label_column(dataset, victim.config.task, label_column)
    if column is None:
        raise DatasetError(
            f"none of the columns {dataset.column_names} has a usual name for labels; pass label_column=..."
        )
    check_options("measure_accuracy", asking, AskingOptions)
    right = right_labels(dataset, column, labels_of(victim.config), victim.config.task)
    protected = label_with_teacher(victim, dataset, tokenizer, **asking)[LABELS][:]
    with victim.watermark_disabled():
        clean = label_with_teacher(victim, dataset, tokenizer, **asking)[LABELS][:]
    hits = {"clean": _hits(clean, right, column), "protected": _hits(protected, right, column)}
    if not hits["clean"]:
        raise DatasetError(f"no row has both an answer and a label in the column {column!r}: nothing can be measured")
    return {"accuracy": {**{name: float(np.mean(found)) for name, found in hits.items()}, "n": len(hits["clean"])}}


def _hits(answers: Any, right: list[np.ndarray], column: str) -> list[bool]:
    """For each item that has both an answer and a label, over all rows, whether the answer is right."""
    hits: list[bool] = []
    for number, (row, labels) in enumerate(zip(answers, right, strict=True)):
        answer = np.atleast_1d(np.asarray(row, dtype=np.int64))
        if len(answer) != len(labels):
            raise DatasetError(
                f"row {number} has {len(labels)} labels in the column {column!r} and {len(answer)} words; there must "
                "be one for each word"
            )
        counted = (labels >= 0) & (answer != UNANSWERED)
        hits.extend(answer[counted] == labels[counted])
    return hits
