"""What the mark costs the model's users: the accuracy of clean and of protected answers.

:func:`measure_accuracy` counts it on labelled data. :func:`accuracy_bounds` computes it from the clean probabilities
alone, by Theorem 1 of the paper for any number of classes; :func:`predict_accuracy` asks a model for those. The
theorem takes the model for calibrated, which :func:`calibration_error` tests.
"""

import contextlib
import math
import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..asking.labelling import LABELS, PROBABILITIES, UNANSWERED, label_with_teacher
from ..asking.questions import find_gold_column
from ..checks import SUM_TOLERANCE
from ..errors import DatasetError, InvalidInputError, KeyMismatchError, MissingKeyError, UnsupportedModelError
from ..keys.binding import labels_of
from ..keys.choices import LABEL_KINDS, SCOPES, LabelKind, Scope
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing

_NO_LABEL = (-100, -1)  # what Trainer leaves out, and the test splits of GLUE


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
        What ``expected`` does not fall below, whatever the frequency and however the phases are distributed.
    paper_bound : float or None
        The paper's bound, which ``bound`` is never below; for more than two classes by the same argument. None where
        unmarked labels are drawn too, of which the paper says nothing.
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
        The same by bin, for a reliability plot; NaN in empty bins.
    bin_counts : array of int, shape (n_bins,)
        The items of every bin.
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
    probabilities: Any,
    *,
    target: int,
    epsilon: float,
    tau: float = 0.5,
    frequency: float = 16.0,
    scope: Scope = "predicted",
    label_kind: LabelKind = "soft",
    sample_all: bool = False,
) -> AccuracyBounds:
    """The accuracy of protected answers, from the clean probabilities alone: Theorem 1 of the paper for m classes.

    The model is taken for calibrated: of the items with probabilities p̂, a share p̂_c is of class c
    (:func:`calibration_error` tests it). Then no right label is needed.

    Parameters
    ----------
    probabilities : array, shape (n, m)
        The clean model's probabilities p̂, a row an item.
    target : int
        The number of the target class c*.
    epsilon, tau, frequency : float
        The key's ε, τ and f_w.
    scope : str
        The key's scope: ``"predicted"`` (answers that say c* are marked) or ``"all"``.
    label_kind : str
        ``"soft"``: the answers are ŷ, and their argmax is judged. ``"hard"``: they are labels, drawn from ŷ where
        marked.
    sample_all : bool
        For hard labels: unmarked ones are drawn too, from p̂, not argmax.

    Returns
    -------
    AccuracyBounds

    Notes
    -----
    The average is over keys whose hashes are uniform and independent, law ``"direct"``. Under law ``"paper"`` phase
    and selection correlate: ``expected`` is then an approximation, and so is τ as the share of selected items.

    Examples
    --------
    >>> from drw_hf.planning import accuracy_bounds
    >>> found = accuracy_bounds([[0.9, 0.1], [0.45, 0.55], [0.2, 0.8]], target=1, epsilon=0.2)
    >>> round(found.clean, 4), round(found.bound, 4), round(found.paper_bound, 4)
    (0.75, 0.7333, 0.6333)
    """
    p = _distributions(probabilities)
    _check_mark(target, p.shape[1], epsilon, tau, frequency)
    for name, value, choices in (("scope", scope, SCOPES), ("label_kind", label_kind, LABEL_KINDS)):
        if value not in choices:
            raise InvalidInputError(f"{name}={value!r}: expected one of {list(choices)}")
    top, squares = p.max(axis=1), (p**2).sum(axis=1)
    clean = float(top.mean())
    if label_kind == "soft":
        unmarked = top
        average, worst, may_change = _argmax_after_marking(p, target, epsilon, frequency)
        paper_bound = clean - tau * (0.5 + epsilon) * float(may_change.mean())
    else:
        unmarked = squares if sample_all else top
        average, worst = _draw_after_marking(p, target, epsilon, frequency)
        paper_bound = (1.0 - tau) * clean + tau / (1.0 + 2.0 * epsilon) * float(squares.mean())
    marked = tau * ((p.argmax(axis=1) == target) | (scope == "all"))
    return AccuracyBounds(
        clean=clean,
        expected=float((unmarked - marked * (unmarked - average)).mean()),
        bound=float((unmarked - marked * (unmarked - worst)).mean()),
        paper_bound=None if label_kind == "hard" and sample_all else paper_bound,
        n=len(p),
    )


def calibration_error(probabilities: Any, labels: Any, n_bins: int = 15) -> Calibration:
    """Whether a model is right as often as it claims: the expected calibration error over equally wide bins.

    Parameters
    ----------
    probabilities : array, shape (n, m)
        The clean model's probabilities, a row an item.
    labels : array of int, shape (n,)
        The right class of every item.
    n_bins : int
        Into how many bins the confidences in [0, 1] are sorted.

    Returns
    -------
    Calibration

    Notes
    -----
    Few items make the error look larger than it is: with k items a bin, a calibrated model's comes out at up to about
    0.4/√k.

    Examples
    --------
    >>> from drw_hf.planning import calibration_error
    >>> found = calibration_error([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.3, 0.7]], [0, 1, 1, 1], n_bins=5)
    >>> round(found.ece, 4), round(found.overconfidence, 4)
    (0.375, 0.025)
    """
    p = _distributions(probabilities)
    labels = np.asarray(labels)
    if labels.shape != (len(p),) or not np.issubdtype(labels.dtype, np.integer):
        raise InvalidInputError(
            f"labels are {labels.dtype} of shape {labels.shape}; expected {len(p)} integers, the class of every item"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= p.shape[1]))
    if len(wrong):
        raise InvalidInputError(
            f"label {labels[wrong[0]]} of item {wrong[0]} is no class: expected 0 to {p.shape[1] - 1}; leave out "
            "items without a label"
        )
    if isinstance(n_bins, bool) or not isinstance(n_bins, int | np.integer) or n_bins < 1:
        raise InvalidInputError(f"n_bins={n_bins!r}: expected an integer ≥ 1")
    confidence, right = p.max(axis=1), p.argmax(axis=1) == labels
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, n_bins - 1)
    counts = np.bincount(place, minlength=n_bins)
    sums = [np.bincount(place, weights=values, minlength=n_bins) for values in (confidence, right)]
    with np.errstate(invalid="ignore"):  # 0/0, an empty bin
        by_bin = [values / counts for values in sums]
    return Calibration(
        ece=float(np.abs(sums[1] - sums[0]).sum() / len(p)),
        confidence=float(confidence.mean()),
        accuracy=float(right.mean()),
        n=len(p),
        bin_edges=edges,
        bin_confidence=by_bin[0],
        bin_accuracy=by_bin[1],
        bin_counts=counts,
    )


def predict_accuracy(
    model: Any,
    dataset: Any,
    tokenizer: Any,
    *,
    key: WatermarkKey | KeyRing | None = None,
    sample_all: bool | None = None,
    text_columns: str | Sequence[str] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
) -> dict[str, AccuracyBounds]:
    """What a key would cost a model, on texts without labels.

    Parameters
    ----------
    model : model
        The classifier or tagger, protected or not yet. Its clean answers are asked.
    dataset : Dataset
        Rows with a text (or two, or a list of words) like those the model will be asked.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    key : WatermarkKey or KeyRing, optional
        The key, of which only the settings count; by default the protected model's own.
    sample_all : bool, optional
        Whether unmarked hard labels are drawn too; by default as the protected model is set, else not.
    text_columns, batch_size, max_length, cache_dir, load_from_cache_file, progress
        As for :func:`drw_hf.label_with_teacher`, which asks.

    Returns
    -------
    dict
        ``{"soft": AccuracyBounds, "hard": AccuracyBounds}``, as :func:`accuracy_bounds` computes them over all texts
        or, for taggers, words; words beyond the model's limit are left out.

    Raises
    ------
    MissingKeyError
        For an unprotected model without a key.
    KeyMismatchError
        For a key of other labels than the model's.
    """
    import datasets

    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(f"expected a datasets.Dataset (one split), got {type(dataset).__name__}")
    key = _settings_of(getattr(model, "key", None) if key is None else key)
    protected = hasattr(model, "watermark_disabled")
    if sample_all is None:
        sample_all = protected and model.config.sample_all
    with model.watermark_disabled() if protected else contextlib.nullcontext():
        labelled = label_with_teacher(
            model,
            dataset,
            tokenizer,
            text_columns=text_columns,
            batch_size=batch_size,
            max_length=max_length,
            cache_dir=cache_dir,
            load_from_cache_file=load_from_cache_file,
            progress=progress,
        )
    feature = labelled.features[LABELS]
    labels = tuple(getattr(feature, "feature", feature).names)
    if labels != tuple(key.labels):
        raise KeyMismatchError(
            f"the key {key.fingerprint} is for another label set: the key has {key.labels!r}, the model {labels!r}; "
            "give this model's key, or make one with WatermarkKey.generate(model, ...)"
        )
    rows = labelled.with_format(None)[PROBABILITIES]
    p = np.concatenate([np.asarray(row, dtype=np.float64).reshape(-1, len(labels)) for row in rows])
    p = p[p.any(axis=1)]  # a word that the model did not see has zeros
    if not len(p):
        raise DatasetError("the model answered about no word of the data set: nothing can be predicted")
    mark = {name: getattr(key, name) for name in ("target", "epsilon", "tau", "frequency", "scope")}
    return {kind: accuracy_bounds(p, **mark, label_kind=kind, sample_all=sample_all) for kind in LABEL_KINDS}


def _settings_of(key: Any) -> WatermarkKey:
    """The key, or what the keys of a ring have in common."""
    if key is None:
        raise MissingKeyError(
            "this model has no key that would say how it is marked; pass key= (a WatermarkKey or a KeyRing)"
        )
    if not isinstance(key, WatermarkKey | KeyRing):
        raise InvalidInputError(f"key={type(key).__name__}: expected a WatermarkKey or a KeyRing")
    return key.template() if isinstance(key, KeyRing) else key


def _argmax_after_marking(
    p: np.ndarray, target: int, epsilon: float, frequency: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often the argmax of ŷ is right, by item: on average over the phase, at worst; and whether it may change.

    All classes but c* get the same addition, so only c* and the best of the others can change places. They do where
    z crosses ``turn``, and that costs their difference.
    """
    m = p.shape[1]
    margin = p[:, target] - np.delete(p, target, axis=1).max(axis=1)
    may_change = (margin <= 2.0 * epsilon / (m - 1)) & (margin >= -2.0 * epsilon)
    # c* wins iff z > turn. The least positive ε stands for 0, where it wins iff it did.
    turn = -(margin * (m - 1) / max(epsilon, 1e-300) + m - 2) / m
    below = _chance_below(turn, frequency)
    loss = np.where(may_change, np.abs(margin), 0.0)
    top = p.max(axis=1)
    return top - loss * np.where(margin > 0.0, below, 1.0 - below), top - loss, may_change


def _draw_after_marking(p: np.ndarray, target: int, epsilon: float, frequency: float) -> tuple[np.ndarray, np.ndarray]:
    """How often a label drawn from ŷ is right, Σ p̂_c ŷ_c, by item: on average over the phase, and at worst."""
    a = p[:, target]
    other = (1.0 - a) / (p.shape[1] - 1)
    z = math.sin(frequency) / frequency
    squares = (p**2).sum(axis=1)
    average = (squares + epsilon * ((1.0 + z) * a + (1.0 - z) * other)) / (1.0 + 2.0 * epsilon)
    worst = (squares + 2.0 * epsilon * np.minimum(a, other)) / (1.0 + 2.0 * epsilon)
    return average, worst


def _chance_below(level: np.ndarray, frequency: float) -> np.ndarray:
    """P[cos(f_w g) < level] for g uniform on [0, 1), exactly: f_w makes whole cycles and a rest."""
    angle = np.arccos(np.clip(level, -1.0, 1.0))
    cycles, rest = divmod(frequency, 2.0 * math.pi)
    # The cosine lies above the level within ``angle`` of a cycle's two ends.
    above = cycles * 2.0 * angle + np.minimum(rest, angle) + np.maximum(rest - (2.0 * math.pi - angle), 0.0)
    return np.clip(1.0 - above / frequency, 0.0, 1.0)


def _distributions(values: Any) -> np.ndarray:
    """The rows in float64, each divided by its sum, which rounded scores miss by a little."""
    p = np.asarray(values, dtype=np.float64)
    if p.ndim != 2 or p.shape[0] < 1 or p.shape[1] < 2:
        raise InvalidInputError(
            f"probabilities have shape {p.shape}; expected (n, m), a row for every item and m ≥ 2 classes"
        )
    sums = p.sum(axis=1)
    wrong = ~((np.abs(sums - 1.0) <= SUM_TOLERANCE) & (p >= 0.0).all(axis=1))  # NaN fails both
    if wrong.any():
        raise InvalidInputError(
            f"row {int(np.argmax(wrong))} of the probabilities is NaN, negative or does not sum to one; give softmax "
            "outputs, not logits, and leave out items without an answer"
        )
    return p / sums[:, None]


def _check_mark(target: Any, n_classes: int, epsilon: Any, tau: Any, frequency: Any) -> None:
    if isinstance(target, bool) or not isinstance(target, int | np.integer) or not 0 <= target < n_classes:
        raise InvalidInputError(f"target={target!r}: expected the number of a class, 0 to {n_classes - 1}")
    for name, value, wanted, fits in (
        ("epsilon", epsilon, "≥ 0", lambda value: value >= 0.0),
        ("tau", tau, "in [0, 1]", lambda value: 0.0 <= value <= 1.0),
        ("frequency", frequency, "> 0", lambda value: value > 0.0),
    ):
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value) and fits(value)):
            raise InvalidInputError(f"{name}={value!r}: expected a finite number {wanted}, the key's {name}")


def measure_accuracy(
    victim: Any,
    dataset: Any,
    tokenizer: Any,
    *,
    label_column: str | None = None,
    text_columns: str | Sequence[str] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
) -> dict[str, dict[str, float]]:
    """The accuracy of a protected model's answers, and of the clean model's, on labelled data.

    Parameters
    ----------
    victim : WatermarkedModelForSequenceClassification or WatermarkedModelForTokenClassification
        The protected model. It is asked as it answers, then with its mark switched off.
    dataset : Dataset
        Rows with a text (or two, or a list of words) and the right label (or one for every word), as a name or as a
        number. Labels that are missing (None, −1, −100) are left out.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    label_column : str, optional
        The column of right labels; by default found by its usual name.
    text_columns, batch_size, max_length, cache_dir, load_from_cache_file, progress
        As for :func:`drw_hf.label_with_teacher`, which asks.

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
    import datasets

    if not hasattr(victim, "watermark_disabled"):
        raise UnsupportedModelError(
            f"a {type(victim).__name__} has no clean and protected answers; wrap it with from_model(model, key=...)"
        )
    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(f"expected a datasets.Dataset (one split), got {type(dataset).__name__}")
    column, gold = _gold(dataset, label_column, victim)
    settings: dict[str, Any] = {
        "text_columns": text_columns,
        "batch_size": batch_size,
        "max_length": max_length,
        "cache_dir": cache_dir,
        "load_from_cache_file": load_from_cache_file,
        "progress": progress,
    }
    protected = label_with_teacher(victim, dataset, tokenizer, **settings)[LABELS][:]
    with victim.watermark_disabled():
        clean = label_with_teacher(victim, dataset, tokenizer, **settings)[LABELS][:]
    right = {name: _hits(answers, gold, column) for name, answers in (("clean", clean), ("protected", protected))}
    n = len(right["clean"])
    if n == 0:
        raise DatasetError(f"no row has both an answer and a label in the column {column!r}: nothing can be measured")
    return {"accuracy": {**{name: float(hits.mean()) for name, hits in right.items()}, "n": n}}


def _hits(answers: Sequence[Any], gold: Sequence[np.ndarray], column: str) -> np.ndarray:
    """Whether each answer to an item with a label is right, over all rows."""
    hits = []
    for number, (answer, labels) in enumerate(zip(answers, gold, strict=True)):
        answer = np.atleast_1d(np.asarray(answer, dtype=np.int64))
        if len(answer) != len(labels):
            raise DatasetError(
                f"row {number} has {len(labels)} labels in the column {column!r} and {len(answer)} words; there must "
                "be one for every word"
            )
        there = (labels >= 0) & (answer != UNANSWERED)
        hits.append(answer[there] == labels[there])
    return np.concatenate(hits) if hits else np.zeros(0, dtype=bool)


def _gold(dataset: Any, wanted: str | None, victim: Any) -> tuple[str, list[np.ndarray]]:
    """The label column's name, and for every row the numbers of its labels in the model's order; −1 for none."""
    names = dataset.column_names
    if wanted is not None and wanted not in names:
        raise DatasetError(f"label_column={wanted!r}: expected one of the columns {names}")
    column = find_gold_column(names, victim.config.task, wanted)
    if column is None:
        raise DatasetError(f"none of the columns {names} has a usual name for labels; pass label_column=...")
    labels = labels_of(victim.config)
    numbers = class_numbers(dataset.features[column], labels, column)
    several = victim.config.task == "token-classification"
    rows = []
    for place, row in enumerate(dataset.with_format(None)[column]):
        if several != isinstance(row, list | np.ndarray):
            what = "a list of labels, one for every word" if several else "one label"
            raise DatasetError(f"row {place} of the column {column!r} holds {type(row).__name__}; expected {what}")
        rows.append(
            np.array([class_number(label, numbers, column, place) for label in (row if several else [row])], int)
        )
    return column, rows


def class_numbers(feature: Any, labels: Sequence[str], column: str) -> dict[Any, int]:
    """The model's class number of every label that may stand in the column: by name where it has names."""
    feature = getattr(feature, "feature", feature)
    order = {label: number for number, label in enumerate(labels)}
    names = getattr(feature, "names", None)
    if names is None:
        return {**order, **{number: number for number in range(len(labels))}}
    unknown = [name for name in names if name not in order]
    if unknown:
        raise DatasetError(
            f"the column {column!r} has the labels {unknown}, which are none of the model's {list(labels)}; rename "
            "them (cast_column with a ClassLabel of the model's names)"
        )
    return {number: order[name] for number, name in enumerate(names)}


def class_number(label: Any, numbers: dict[Any, int], column: str, place: int) -> int:
    """The class of one label, by :func:`class_numbers`; −1 for one that is missing."""
    if label is None or (isinstance(label, int | np.integer) and label in _NO_LABEL):
        return -1
    if not isinstance(label, str | int | np.integer) or label not in numbers:
        raise DatasetError(
            f"row {place} of the column {column!r} holds {label!r}, which is none of the labels {list(numbers)}"
        )
    return numbers[label]
