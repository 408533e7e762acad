"""The texts of a probe: what was given as questions, and the owner's tokens of them."""

from collections.abc import Container, Mapping
from typing import Any, NamedTuple, cast

from ..asking.questions import (
    Cut,
    Question,
    are_tokenised,
    check_texts,
    find_text_columns,
    ids_that_are_no_word,
    places_of_words,
    questions_of,
    tokenised_row,
    tokenize,
)
from ..errors import DatasetError, InvalidInputError
from ..keys.binding import max_length_of
from ..keys.choices import Task
from .probe import KeptText


def texts_in(texts: Any, task: Task, text_columns: Any = None) -> list[Any]:
    """Texts, pairs, lists of words, tokenised rows, a data set or a data frame, as a list."""
    if isinstance(texts, str | bytes):
        raise InvalidInputError(
            f"texts is one {type(texts).__name__}, which would be asked letter by letter; pass a list of texts, like "
            "[text], or a Dataset (Dataset.from_text(file) makes one of a file)"
        )
    names = _column_names(texts)
    if names is not None:
        columns = find_text_columns(names, task, text_columns)
        texts = texts.with_format(None) if hasattr(texts, "with_format") else texts  # no tensors
        rows = {name: list(texts[name][:]) for name in columns}
        questions = questions_of(rows, columns, range(len(rows[columns[0]])))
    else:
        questions = [tokenised_row(row) if isinstance(row, Mapping) else row for row in texts]
        if any(isinstance(row, dict) and "input_ids" not in row for row in questions):
            raise DatasetError("rows that are mappings need input_ids; give tokenised rows, texts or a Dataset")
        numbers = [number for number, row in enumerate(questions) if not isinstance(row, dict)]
        check_texts([questions[number] for number in numbers], "texts", numbers)
    return questions


def questions_in(texts: Any, task: Task, text_columns: Any) -> list[Question]:
    """The same as questions: a tagger is asked about words."""
    questions = texts_in(texts, task, text_columns)
    if task == "token-classification":
        return [question.split() if isinstance(question, str) else question for question in questions]
    return [cast(tuple[str, str], tuple(q)) if isinstance(q, list) else q for q in questions]


def _column_names(texts: Any) -> list[str] | None:
    """The columns of a data set, a data frame (pandas, polars) or a dictionary of lists; None for anything else."""
    names = getattr(texts, "column_names", getattr(texts, "columns", None))
    if isinstance(names, Mapping):
        raise DatasetError(f"texts has the splits {list(texts)}; give one of them, like texts[{next(iter(texts))!r}]")
    if names is None and isinstance(texts, Mapping):
        names = texts
    return None if names is None else list(names)


class Tokens(NamedTuple):
    """The owner's tokens of every text, their segment ids and, of token tasks, where each word's first token is."""

    ids: list[list[int]]
    types: list[list[int]]
    places: list[list[int | None]] | None


def encode(questions: list[Question], tokenizer: Any, cut: Cut, task: Task) -> Tokens:
    """The owner's tokens of questions, cut."""
    if are_tokenised(questions):
        return tokens_of_rows(questions, ids_that_are_no_word(tokenizer), cut, task)
    tokens = Tokens([], [], [] if task == "token-classification" else None)
    for first in range(0, len(questions), 1000):
        chunk = questions[first : first + 1000]
        encoding = tokenize(tokenizer, chunk, cut)
        tokens.ids.extend(encoding["input_ids"])
        tokens.types.extend(encoding.get("token_type_ids", [[0] * len(row) for row in encoding["input_ids"]]))
        if tokens.places is not None:
            tokens.places.extend(places_of_words(chunk, encoding, ()))
    return tokens


def tokens_of_rows(rows: list[Any], no_word: Container[int], cut: Cut, task: Task) -> Tokens:
    """The tokens of tokenised rows."""
    windows = [cut.window(row) for row in rows]
    types = [row.get("token_type_ids", [0] * len(row["input_ids"])) for row in rows]
    by_word = task == "token-classification"
    return Tokens(
        [list(row["input_ids"])[window] for row, window in zip(rows, windows, strict=True)],
        [list(row)[window] for row, window in zip(types, windows, strict=True)],
        places_of_words(rows, None, no_word, cut) if by_word else None,
    )


def limit_of(tokenizer: Any, victim: Any) -> int:
    """How many tokens the victim reads, as far as it is known."""
    config = getattr(victim, "config", None)
    if config is not None and hasattr(config, "get_text_config"):
        return max_length_of(tokenizer, config)
    return min(int(getattr(tokenizer, "model_max_length", 512) or 512), 512)


def kept_texts(questions: list[Question]) -> tuple[KeptText, ...] | None:
    """Questions as a probe keeps them; None for tokenised rows, whose texts are not known."""
    if are_tokenised(questions):
        return None
    return tuple(text if isinstance(text, str) else tuple(map(str, text)) for text in cast(list[Any], questions))


def asked_texts(texts: tuple[KeptText, ...], task: Task) -> list[Question]:
    """The questions that a probe keeps, as they are asked."""
    if task == "token-classification":
        return [list(words) for words in texts]
    return [text if isinstance(text, str) else cast(tuple[str, str], text) for text in texts]
