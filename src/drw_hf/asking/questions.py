"""What is asked: the text columns of a data set, what of a row becomes a question, and its tokens.

A question is a text, a pair of texts (a tuple), a list of words (token tasks), or a tokenised row (a dict with
``input_ids``). An answer to it is one distribution over the labels, or, for token tasks, one for every word or token.
"""

import contextlib
import dataclasses
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from ..errors import DatasetError, PredictorError
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


def find_text_columns(column_names: Sequence[str], task: Task, wanted: str | Sequence[str] | None = None) -> list[str]:
    """One column of texts or words, two for pairs, or ``["input_ids", ...]``: as the user said, or by usual names."""
    if wanted is not None:
        columns = [wanted] if isinstance(wanted, str) else list(wanted)
        missing = [name for name in columns if name not in column_names]
        if missing or not 1 <= len(columns) <= 2:
            raise DatasetError(f"text_columns={columns}: expected one or two of the columns {list(column_names)}")
        return columns
    by_word = task == "token-classification"
    candidates = [(name,) for name in _WORDS] if by_word else [*_PAIRS, *((name,) for name in _TEXTS)]
    for names in candidates:
        if set(names) <= set(column_names):
            return list(names)
    if "input_ids" in column_names:
        return [name for name in _TOKENISED if name in column_names]
    what = "words (a list of strings)" if by_word else "text"
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


def questions_of(
    rows: Mapping[str, Sequence[Any]], columns: Sequence[str], numbers: Sequence[int] | None = None
) -> list[Question]:
    """A batch of rows (columns of lists) as questions; errors call the rows by ``numbers``, where they are known."""
    if columns[0] == "input_ids":
        values = zip(*(rows[name] for name in columns), strict=True)
        return [tokenised_row(dict(zip(columns, row, strict=True))) for row in values]
    for name in columns:
        check_texts(rows[name], f"the column {name!r}", numbers)
    if len(columns) == 2:
        return list(zip(rows[columns[0]], rows[columns[1]], strict=True))
    return list(rows[columns[0]])


def check_texts(values: Sequence[Any], where: str, numbers: Sequence[int] | None = None) -> None:
    """Refuse what is no text, pair or list of words, naming its row: an empty cell, a number, a word that is missing.

    ``where`` names the column in the message.
    """
    for place, value in enumerate(values):
        wrong = _what_is_no_text(value)
        if wrong is not None:
            row = "a row" if numbers is None else f"row {numbers[place]} (counted from 0)"
            raise DatasetError(
                f"{row} of {where} {wrong}; expected a text (or, for taggers, a list of words): write it there, or "
                "leave the row out"
            )


def _what_is_no_text(value: Any) -> str | None:
    """What is wrong with a value that should be a text or several; None for one that is."""
    if isinstance(value, str):
        return None
    if isinstance(value, list | tuple | np.ndarray):
        wrong = [(place, type(word).__name__) for place, word in enumerate(value) if not isinstance(word, str)]
        return f"holds {wrong[0][1]} in place of its word {wrong[0][0]}" if wrong else None
    if value is None or (isinstance(value, float) and math.isnan(value)):  # as Arrow and pandas say it
        return "is empty (null)"
    return f"holds {type(value).__name__}"


def tokenised_row(row: Mapping[str, Any]) -> dict[str, list[int]]:
    """Of a row with ``input_ids`` what a model is asked, in plain integers: other columns are no question."""
    return {name: [int(number) for number in row[name]] for name in row if name in _TOKENISED}


def rough_length(question: Question) -> int:
    """Words, characters or tokens of a question."""
    if isinstance(question, tuple):
        return sum(map(len, question))
    return len(question["input_ids"]) if isinstance(question, dict) else len(question)


# -- tokens


@dataclass(frozen=True)
class Cut:
    """How long questions are cut before a model reads them.

    Attributes
    ----------
    max_length : int or None
        How many tokens are left at the most; None: no limit is known.
    side : str or None
        Where the tokens go, ``"right"`` or ``"left"``; None: where the tokenizer takes them.
    pairs : str
        Which text of a pair is cut, in the words of tokenizers.
    """

    max_length: int | None = None
    side: str | None = None
    pairs: str = "longest_first"

    def by(self, tokenizer: Any) -> "Cut":
        """The same, on the tokenizer's side where no other one is said."""
        return dataclasses.replace(self, side=self.side or getattr(tokenizer, "truncation_side", "right"))

    def window(self, row: Mapping[str, Sequence[int]]) -> slice:
        """Which tokens of a tokenised row are left. Padding is no text: it goes before any of the text does."""
        length = len(row["input_ids"])
        if self.max_length is None or length <= self.max_length:
            return slice(0, length)
        attended = [place for place, mask in enumerate(row.get("attention_mask", [1] * length)) if mask] or [0]
        first, end = attended[0], attended[-1] + 1
        if self.side == "left":
            return slice(max(first, end - self.max_length), end)
        return slice(first, min(first + self.max_length, end))


def recorded_cut(settings: Any) -> Cut | None:
    """How a key's settings say that texts are cut; None where its mark does not depend on it."""
    if not hasattr(settings, "truncation_side"):
        return None
    return Cut(settings.max_length, settings.truncation_side, settings.pair_truncation)


def tokenize(tokenizer: Any, questions: list[Question], cut: Cut | int, **kwargs: Any) -> Any:
    """Texts, pairs or lists of words through a tokenizer, truncated; a length alone cuts on the tokenizer's side."""
    cut = Cut(cut) if isinstance(cut, int) else cut
    pairs = isinstance(questions[0], tuple)
    kwargs |= {"truncation": cut.pairs if pairs else True, "max_length": cut.max_length}
    if isinstance(questions[0], list):
        if not getattr(tokenizer, "is_fast", False):
            raise PredictorError("aligning words with tokens needs a fast tokenizer (tokenizers library)")
        kwargs["is_split_into_words"] = True
    columns = map(list, zip(*questions, strict=True)) if pairs else [questions]
    with _cutting(tokenizer, cut.side):
        return tokenizer(*columns, **kwargs)


@contextlib.contextmanager
def _cutting(tokenizer: Any, side: str | None) -> Iterator[None]:
    """Within this context a tokenizer truncates on that side, which cannot be said in a call; None: on its own."""
    own_side = getattr(tokenizer, "truncation_side", None)
    if side in (None, own_side):
        yield
        return
    tokenizer.truncation_side = side
    try:
        yield
    finally:
        tokenizer.truncation_side = own_side


def places_of_words(
    questions: list[Question], encoding: Any, no_word: Container[int], cut: Cut | None = None
) -> list[list[int | None]]:
    """For every word of every question the position of its first token; None for words that have none.

    Of tokenised rows every token stands for a word, but for those in ``no_word``, those that are masked and those that
    were cut off; their positions are those in the row that is left, before padding.
    """
    if not are_tokenised(questions):
        return [first_positions(encoding.word_ids(row), len(words)) for row, words in enumerate(questions)]
    places: list[list[int | None]] = []
    for row in questions:
        window, ids = (cut or Cut()).window(row), row["input_ids"]
        attended = row.get("attention_mask", [1] * len(ids))
        seen = [token not in no_word and bool(mask) for token, mask in zip(ids, attended, strict=True)]
        there = range(window.start, window.stop)
        places.append([place - window.start if place in there and seen[place] else None for place in range(len(ids))])
    return places


def first_positions(word_ids: Sequence[int | None], n_words: int) -> list[int | None]:
    """The position of every word's first sub-token; None for words that have none."""
    positions: list[int | None] = [None] * n_words
    for place, word in enumerate(word_ids):
        if word is not None and positions[word] is None:
            positions[word] = place
    return positions


def ids_that_are_no_word(tokenizer: Any) -> set[int]:
    """Special token ids, but for the unknown token: that one stands for a word, and a word has an answer."""
    return set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
