"""Checks of what comes in, one place each: arrays, distributions, numbers, choices, labels.

Every error names the argument, what it was and what was expected. Values of arrays are never shown: they may come from
a key.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from .errors import DatasetError, DrwError, InvalidInputError

SUM_TOLERANCE = 1e-2  # probabilities that were rounded to two digits, or went through bfloat16, miss one by this much
NO_LABEL = (-100, -1)  # what Trainer leaves out, and the test splits of GLUE


# -- arrays


def as_floats(name: str, values: Any, *n_dims: int) -> np.ndarray:
    """Numbers of any kind, tensors among them, as a float64 array of one of these dimensions."""
    wanted = " or ".join(map(str, n_dims)) + "-dimensional"
    if hasattr(values, "detach"):  # a tensor: on any device, of any dtype
        values = values.detach().double().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be a {wanted} array of numbers, with rows of equal length") from None
    if array.ndim not in n_dims:
        raise InvalidInputError(f"{name} must be {wanted}, but has shape {array.shape}")
    return array


def finite_floats(name: str, values: Any, n_dims: int = 1, length: int | None = None) -> np.ndarray:
    """Finite numbers as a float64 array, of this length if one is given."""
    array = as_floats(name, values, n_dims)
    if length is not None and len(array) != length:
        raise InvalidInputError(f"{name} has {len(array)} entries; expected {length}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinite numbers; expected finite ones")
    return array


def integers(name: str, values: Any, length: int | None = None) -> np.ndarray:
    """Whole numbers as a one-dimensional int64 array, of this length if one is given."""
    array = np.asarray(values)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "(n,)" if length is None else f"({length},)"
        raise InvalidInputError(f"{name} has shape {array.shape}; expected {wanted}")
    if array.dtype.kind not in "iu" and len(array):
        raise InvalidInputError(f"{name} holds {array.dtype} values; expected integers")
    return array.astype(np.int64)


def check_probabilities(name: str, array: np.ndarray) -> None:
    """Numbers in [0, 1], up to rounding; rows of them need not sum to one."""
    if not ((array >= -1e-6) & (array <= 1.0 + 1e-3)).all():  # NaN fails too
        raise InvalidInputError(f"{name} holds numbers outside [0, 1] or NaN; expected probabilities, not logits")


def are_distributions(rows: np.ndarray) -> np.ndarray:
    """For each row (the last axis) whether it is a probability distribution, up to rounding; NaN is none."""
    return (np.abs(rows.sum(axis=-1) - 1.0) <= SUM_TOLERANCE) & (rows >= 0).all(axis=-1)


def distributions(name: str, values: Any, n_dims: int = 2) -> np.ndarray:
    """Probability distributions in float64, each divided by its sum, which rounded scores miss by a little."""
    rows = as_floats(name, values, n_dims)
    if not len(rows) or rows.shape[-1] < 2:
        raise InvalidInputError(f"{name} has shape {rows.shape}; expected one or more rows of two or more classes")
    wrong = ~are_distributions(rows)
    if wrong.any():
        place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        raise InvalidInputError(
            f"row {', '.join(map(str, map(int, place)))} of {name} is NaN, negative or does not sum to one; give "
            "softmax outputs, not logits, and leave out items without an answer"
        )
    return rows / rows.sum(axis=-1, keepdims=True)


# -- numbers and choices


def is_number(value: Any) -> bool:
    """Whether this is a finite real number, and not a truth value."""
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def in_range(
    name: str,
    value: Any,
    lowest: float = 0.0,
    highest: float = math.inf,
    *,
    above: bool = False,
    error: type[DrwError] = InvalidInputError,
) -> float:
    """A finite number in [lowest, highest]; ``above``: not ``lowest`` itself."""
    if not (is_number(value) and lowest <= value <= highest and not (above and value == lowest)):
        if math.isinf(highest):
            wanted = f"{'>' if above else '≥'} {lowest:g}"
        else:
            wanted = f"in {'(' if above else '['}{lowest:g}, {highest:g}]"
        raise error(f"{name}={value!r}: expected a finite number {wanted}")
    return float(value)


def whole_number(name: str, value: Any, least: int = 1, error: type[DrwError] = InvalidInputError) -> int:
    """An integer of at least this much."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise error(f"{name}={value!r}: expected an integer ≥ {least}")
    return int(value)


def check_at_most(name: str, value: int, most: int, error: type[DrwError]) -> None:
    """A limit that keeps a file from filling its reader's memory; the value itself may belong to a secret."""
    if value > most:
        raise error(f"{name} is larger than {most:,}, the most that is supported; give a smaller one")


def check_level(level: Any) -> float:
    """The level of a test, strictly between 0 and 1."""
    if not (is_number(level) and 0.0 < level < 1.0):
        raise InvalidInputError(f"level={level!r}: expected a number between 0 and 1, like 1e-3")
    return float(level)


def check_choice(name: str, value: Any, choices: Sequence[str], error: type[DrwError] = InvalidInputError) -> None:
    """One of a few words."""
    if value not in choices:
        raise error(f"{name}={value!r}: expected one of {list(choices)}")


def check_options(function: str, given: Mapping[str, Any], known: Any) -> None:
    """Refuse, as Python does, keyword arguments that ``known``, the TypedDict that declares them, does not have."""
    for name in given:
        if name not in known.__annotations__:
            expected = sorted(known.__annotations__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; expected some of {expected}")


# -- documents


def fits(value: Any, declared: Any) -> bool:
    """Whether a value that JSON gave is what a field is declared to hold; a whole number will do for a float."""
    kind, inner = get_origin(declared), get_args(declared)
    if kind in (Union, UnionType):
        return any(fits(value, one) for one in inner)
    if kind is Literal:
        return isinstance(value, str) and value in inner
    if kind in (list, tuple):
        return isinstance(value, list | tuple) and all(fits(each, inner[0]) for each in value)
    if kind is dict:
        return isinstance(value, dict) and all(
            fits(key, inner[0]) and fits(each, inner[1]) for key, each in value.items()
        )
    if declared is Any:
        return True
    if declared in (int, float):  # and none that numpy cannot hold
        return (type(value) is float and declared is float) or (type(value) is int and abs(value) < 2**63)
    return type(value) is (NoneType if declared is None else declared)


def unfit(document: Mapping[str, Any], declared: Mapping[str, Any]) -> list[str]:
    """The names under which a document holds something else than is declared; what it lacks is not looked at."""
    return [name for name, kind in declared.items() if name in document and not fits(document[name], kind)]


def are_log10_p(*values: float) -> bool:
    """Whether these are logarithms of probabilities, up to rounding, that can be shown."""
    return all(is_number(value) and value <= 1e-6 for value in values)


# -- labels


def numbers_of(labels: Sequence[str]) -> dict[str, int]:
    """The class number of each label."""
    return {label: number for number, label in enumerate(labels)}


def class_number(
    label: Any, labels: Sequence[str], name: str = "target", error: type[DrwError] = InvalidInputError
) -> int:
    """The number of a class that is given by its name or its number."""
    if isinstance(label, str) and list(labels).count(label) == 1:
        return list(labels).index(label)
    if isinstance(label, int | np.integer) and not isinstance(label, bool) and 0 <= label < len(labels):
        return int(label)
    raise error(
        f"{name}={label!r} is not one label of the model; choose a name or a number (from 0) of {tuple(labels)}"
    )


def class_names(feature: Any) -> list[str] | None:
    """The label names of a column of labels, or of lists of labels; None where it has none."""
    return getattr(getattr(feature, "feature", feature), "names", None)


def class_numbers(feature: Any, labels: Sequence[str], column: str) -> dict[Any, int]:
    """The class number of each value that may stand in a column of labels, which ``feature`` describes.

    A ``ClassLabel`` is matched by its names; other columns may hold names or numbers.
    """
    order, names = numbers_of(labels), class_names(feature)
    if names is None:
        return {**order, **{number: number for number in range(len(labels))}}
    unknown = [name for name in names if name not in order]
    if unknown:
        raise DatasetError(
            f"the column {column!r} has the labels {unknown}, which are none of the model's {list(labels)}; rename "
            "them (cast_column with a ClassLabel of the model's names)"
        )
    return {number: order[name] for number, name in enumerate(names)}


def label_number(
    label: Any, known: Mapping[Any, int], where: str, missing: int = -1, error: type[DrwError] = DatasetError
) -> int:
    """The class number of one label by :func:`class_numbers`; ``missing`` for one that is not there.

    Those are None, NaN, −1 and −100. A column in which some are missing comes as floats, so 1.0 is 1. ``where`` names
    the label's place in messages, like ``"row 3 of the column 'label'"``.
    """
    if isinstance(label, float | np.floating) and (math.isnan(label) or label.is_integer()):
        label = None if math.isnan(label) else int(label)
    if label is None or (isinstance(label, int | np.integer) and label in NO_LABEL):
        return missing
    if not isinstance(label, str | int | np.integer) or label not in known:
        names = [name for name in known if isinstance(name, str)]
        by_name = f" {names}; expected one of them or" if names else "; expected"
        last = len(known) - len(names) - 1
        raise error(f"{where} holds {label!r}, which is none of the labels{by_name} a number from 0 to {last}")
    return known[label]
