"""What is asked: the text columns of a data set, and what of a row becomes a question.

A question is a text, a pair of texts (a tuple), a list of words (token tasks), or a tokenised row (a dict with
``input_ids``). An answer to it is one distribution over the labels, or, for token tasks, one for every word or token.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from ..errors import DatasetError
from ..keys.choices import Task

Question = str | tuple[str, str] | list[str] | dict[str, Any]

_TEXTS = ("text", "sentence", "review", "content", "premise", "question", "sentence1", "text_a")
_PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question", "sentence"),
    ("question1", "question2"),
    ("text_a", "text_b"),
    ("text", "text_pair"),
)
_WORDS = ("tokens", "words")
_GOLD = {
    "sequence-classification": ("label", "labels"),
    "token-classification": ("labels", "tags", "ner_tags", "pos_tags", "label"),
}
_TOKENISED = ("input_ids", "attention_mask", "token_type_ids")


def are_tokenised(questions: list[Question]) -> TypeGuard[list[dict[str, Any]]]:
    """Whether questions are tokenised rows; all are of the kind of the first."""
    return isinstance(questions[0], dict)


def are_pairs(questions: list[Question]) -> TypeGuard[list[tuple[str, str]]]:
    """Whether questions are pairs of texts; all are of the kind of the first."""
    return isinstance(questions[0], tuple)


def find_text_columns(column_names: Sequence[str], task: Task, wanted: str | Sequence[str] | None = None) -> list[str]:
    """The columns that hold the question: as the user said, or by their usual names.

    Returns one column, two for pairs, or ``["input_ids", ...]`` for tokenised rows.
    """
    if wanted is not None:
        columns = [wanted] if isinstance(wanted, str) else list(wanted)
        missing = [name for name in columns if name not in column_names]
        if missing or not 1 <= len(columns) <= 2:
            raise DatasetError(f"text_columns={columns}: expected one or two of the columns {list(column_names)}")
        return columns
    known = _WORDS if task == "token-classification" else _TEXTS
    for pair in _PAIRS if task == "sequence-classification" else ():
        if set(pair) <= set(column_names):
            return list(pair)
    for name in known:
        if name in column_names:
            return [name]
    if "input_ids" in column_names:
        return [name for name in _TOKENISED if name in column_names]
    what = "words (a list of strings)" if task == "token-classification" else "text"
    raise DatasetError(
        f"none of the columns {list(column_names)} has a usual name for {what}; pass text_columns=... (one column, or "
        "two for pairs)"
    )


def find_gold_column(column_names: Sequence[str], task: Task, wanted: str | None = None) -> str | None:
    """The column of gold labels, if there is one."""
    if wanted is not None:
        if wanted not in column_names:
            raise DatasetError(f"gold_column={wanted!r}: expected one of the columns {list(column_names)}")
        return wanted
    return next((name for name in _GOLD[task] if name in column_names), None)


def questions_of(rows: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> list[Question]:
    """A batch of rows (columns of lists) as questions."""
    if columns[0] == "input_ids":
        return [dict(zip(columns, values, strict=True)) for values in zip(*(rows[c] for c in columns), strict=True)]
    if len(columns) == 2:
        return list(zip(rows[columns[0]], rows[columns[1]], strict=True))
    return list(rows[columns[0]])
