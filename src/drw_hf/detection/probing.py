"""Probing: asking a suspect (and the clean victim) about texts.

What is kept is the owner's tokens of every text and the answers in the key's label order; the key itself is not
needed, so one :class:`Probe` serves for any key of the model.
"""

import contextlib
import dataclasses
import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..asking.answers import Look, ask
from ..asking.local import ModelPredictor, embedding_size, is_pipeline
from ..asking.models import load_config
from ..asking.options import AskingOptions, asking_options
from ..asking.predictor import Askable, Predictor, as_predictor
from ..asking.questions import (
    Cut,
    Question,
    are_tokenised,
    check_texts,
    find_text_columns,
    ids_that_are_no_word,
    places_of_words,
    questions_of,
    recorded_cut,
    tokenised_row,
    tokenize,
)
from ..checks import are_distributions, check_options, class_numbers, label_number, whole_number
from ..errors import (
    AnswerError,
    ConfigurationError,
    DatasetError,
    InvalidInputError,
    KeyMismatchError,
    MissingKeyError,
    PredictorError,
)
from ..keys.binding import max_length_of, tokenizer_fingerprint
from ..keys.choices import Task
from ..keys.key import WatermarkKey
from .probe import Probe, are_labels_alone, check_expected

_SPARE_EMBEDDINGS = 511  # where their number was rounded up, to a multiple of 512 at the most
_CERTAIN_IN_A_ROW = 128  # texts answered with 0 and 1 alone: these are labels by now, and no scores of sure answers
Suspect = Askable | list[Any] | tuple[Any, ...] | np.ndarray  # who can be asked, or answers gathered elsewhere


class ProbingOptions(AskingOptions, total=False):
    """How a suspect is probed: the options of asking (:class:`drw_hf.asking.AskingOptions`), and

    Parameters
    ----------
    gold : sequence, optional
        True labels of the texts (token tasks: of the words), by name or number, as in the paper's protocol.
    label_map : mapping, optional
        ``{suspect's label: key's label}`` for a suspect whose labels were renamed; evidence and report say so.
    suspect_tokenizer : PreTrainedTokenizerBase, optional
        The suspect's tokenizer, where the suspect is a model with another one.
    max_queries : int, optional
        Ask about so many texts at the most.
    """

    gold: Sequence[Any] | None
    label_map: Mapping[str, str] | None
    suspect_tokenizer: PreTrainedTokenizerBase | None
    max_queries: int | None


def probe_suspect(
    suspect: Suspect,
    texts: Iterable[Any],
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
    logged: Sequence[Any] | None = None,
    to_test: bool = False,
    **probing: Unpack[ProbingOptions],
) -> Probe:
    """Ask a suspect (and the clean victim) about texts; the parameters are those of :func:`drw_hf.detect`.

    Of the key only the public side is read: its task, its labels, the tokenizer it belongs to. ``probing`` are the
    :class:`~drw_hf.detection.ProbingOptions`. With ``to_test`` a suspect that gives labels alone, which cannot be
    tested without somebody else's answers, is asked no more than shows it.
    """
    options, most = asking_options("probe_suspect", probing, ProbingOptions), probing.get("max_queries")
    if most is not None:
        whole_number("max_queries", most)
    if tokenizer is not None and key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer; give the tokenizer of the protected model "
            "(a suspect's own goes into suspect_tokenizer=)"
        )
    given = {"gold": probing.get("gold"), "logged": logged}
    labelled = {name: list(labels) for name, labels in given.items() if labels is not None}
    if isinstance(suspect, list | tuple | np.ndarray):
        _refuse_ignored("arrays are", {name: value for name, value in probing.items() if name != "gold"})
        return _from_answers({"suspect": suspect, "victim": victim, "reference": reference}, texts, key, labelled)
    if tokenizer is None:
        raise InvalidInputError(
            "tokenizer= is missing: the hash goes by the owner's tokens; give the model's tokenizer"
        )
    questions = _questions(texts, key.task, options["text_columns"])
    _check_lengths(labelled, len(questions))
    asked = [i for i, question in enumerate(questions) if key.task != "token-classification" or len(question)]
    asked = asked[:most]
    if not asked:
        raise InvalidInputError("there are no probe texts; give some hundred texts like those the model is asked")
    questions = [questions[i] for i in asked]
    labelled = {name: [labels[i] for i in asked] for name, labels in labelled.items()}
    recorded = recorded_cut(key.settings)
    limit = options["max_length"] or (recorded and recorded.max_length) or _limit(tokenizer, victim)
    cut = dataclasses.replace(recorded or Cut(), max_length=limit).by(tokenizer)
    tokens = _encode(questions, tokenizer, cut, key.task)
    label_map = probing.get("label_map") or {}
    renamed = {ours: theirs for theirs, ours in label_map.items()}
    if len(renamed) != len(label_map):
        raise InvalidInputError("label_map names one of the key's labels twice; every label needs one of its own")
    labels = [renamed.get(label, label) for label in key.labels]
    tokenizers = probing.get("suspect_tokenizer"), tokenizer
    if tokenizers[0] is None and isinstance(suspect, torch.nn.Module):
        _check_same_vocabulary(suspect, tokenizer, key)
    look = _look_for_labels(key, {**labelled, "victim": victim, "reference": reference}) if to_test else None
    answers = {}
    with _knowing_our_own(suspect, key):
        answers["suspect"], name = _ask(
            "the suspect", suspect, labels, tokenizers, key.task, questions, asked, options, look=look
        )
    for which, other in (("victim", victim), ("reference", reference)):
        if other is not None:
            tokenizers, unmarked = (None, tokenizer), without_mark(other)
            answers[which], _ = _ask(
                f"the {which}", unmarked, key.labels, tokenizers, key.task, questions, asked, options, recorded
            )
    fingerprint, renaming = tokenizer_fingerprint(tokenizer), dict(label_map) or None
    return _assemble(key, tokens, answers, labelled, asked, name, fingerprint, renaming)


def probe_of(
    function: str,
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None,
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None,
    victim: Suspect | None,
    reference: Suspect | None = None,
    logged: Sequence[Any] | None = None,
    **probing: Unpack[ProbingOptions],
) -> Probe:
    """A probe as it is; any other suspect is asked. ``function`` is the one that was given these options."""
    check_options(function, probing, ProbingOptions)
    if isinstance(suspect, Probe):
        given = {"texts": texts, "victim": victim, "reference": reference, "logged": logged, **probing}
        _refuse_ignored("a Probe holds its", given)
        return suspect
    if texts is None:
        raise InvalidInputError("texts are missing: give texts to probe the suspect with")
    others: dict[str, Any] = {"tokenizer": tokenizer, "victim": victim, "reference": reference, "logged": logged}
    return probe_suspect(suspect, texts, key=key, to_test=True, **others, **probing)


def _refuse_ignored(holder: str, given: Mapping[str, Any]) -> None:
    """Refuse options for which it is too late; that of progress bars harms nobody."""
    ignored = [name for name, value in given.items() if value is not None and name != "progress"]
    if ignored:
        raise InvalidInputError(f"{holder} answers already, so {ignored} would have no effect; leave them out")


# -- asking


def _check_same_vocabulary(suspect: torch.nn.Module, tokenizer: Any, key: WatermarkKey) -> None:
    """Refuse to ask a bare model with the owner's tokenizer where their sizes show that it has another one.

    As many embeddings as the owner's model has, or a few more than there are tokens (some are rounded up), say nothing
    against it.
    """
    size, n_tokens = embedding_size(suspect), len(tokenizer)
    if size is None or size == key.vocab_size or 0 <= size - n_tokens <= _SPARE_EMBEDDINGS:
        return
    raise InvalidInputError(
        f"the suspect has embeddings for {size} token ids, and your tokenizer, with which it would be asked, has "
        f"{n_tokens} tokens: it seems to have another one; pass its own as suspect_tokenizer= (or yours, if you are "
        "sure that it is the suspect's too)"
    )


def _look_for_labels(key: WatermarkKey, given: Mapping[str, Any]) -> Look:
    """Stops asking a suspect that gives labels alone, where nothing that was given says what to expect of them.

    Bare labels show at once. Scores that were rounded may be 0 and 1 for a while, so of those some more are awaited.
    """
    there = {name for name, value in given.items() if value is not None}
    seen: list[np.ndarray] = []

    def look(predictor: Predictor, answers: list[np.ndarray]) -> None:
        if len(seen) < _CERTAIN_IN_A_ROW:
            seen.extend(map(np.ravel, answers))
            many = len(seen) >= _CERTAIN_IN_A_ROW
            if predictor.labels_alone or (many and are_labels_alone(np.concatenate(seen))):
                check_expected(key.mark, there)

    return look


def without_mark(victim: Any) -> Any:
    """Whom to ask for a victim's clean answers: a protected model's clean self."""
    model = victim.model if is_pipeline(victim) else victim
    return model.get_base_model() if hasattr(model, "watermark_disabled") else model


@contextlib.contextmanager
def _knowing_our_own(suspect: Any, key: WatermarkKey) -> Iterator[None]:
    """Around asking a suspect: one that needs a key to load is a protected model, and no stolen copy."""
    try:
        yield
    except MissingKeyError:
        commitment = getattr(load_config(os.fspath(suspect)), "key_commitment", None)
        whose = "the very key given" if commitment == key.commitment() else "another key than the one given"
        raise MissingKeyError(
            f"the suspect {os.fspath(suspect)} is itself a protected model, of {whose} (--key): a copy that somebody "
            "made of its answers is a plain model, so give that. To see the mark in its own answers, load it with its "
            "key, from_pretrained(..., key=key), and pass the model to detect"
        ) from None


def _ask(
    who: str,
    asked: Any,
    labels: Sequence[str],
    tokenizers: tuple[Any, Any],
    task: Task,
    questions: list[Question],
    numbers: Sequence[int],
    options: AskingOptions,
    cut: Cut | None = None,
    look: Look | None = None,
) -> tuple[list[np.ndarray], str]:
    """Answers in the order of ``labels``, and the name of who gave them; tokenizers: theirs if known, the owner's.

    ``numbers`` are the user's numbers of the questions; ``cut`` is how the answerer cuts them, by default at its own
    limit; ``look`` is as for :func:`drw_hf.asking.answers.ask`.
    """
    own, owners = tokenizers
    if own is None and isinstance(asked, torch.nn.Module):
        own = owners  # a bare model says nothing of its tokenizer
    try:
        predictor = as_predictor(asked, own, task=task, labels=labels, max_retries=options["max_retries"], cut=cut)
        if are_tokenised(questions) and isinstance(predictor, ModelPredictor):
            if tokenizer_fingerprint(predictor.tokenizer) != tokenizer_fingerprint(owners):
                raise InvalidInputError(
                    f"tokenised rows are the owner's tokens, which {who} does not read; give texts"
                )
        answers = ask(predictor, questions, numbers, options, who, look)
    except (AnswerError, ConfigurationError, PredictorError) as error:
        raise type(error)(f"{who}: {error}") from error
    found = predictor.labels or ()
    missing = [label for label in labels if label not in found]
    if missing or len(found) != len(labels):
        remedy = "pass label_map={suspect's label: key's label} for every label that was renamed"
        if who == "the victim":
            remedy = "this is not the model that the key was made for; give that one, or leave victim= out"
        elif who == "the reference":
            remedy = "give a model for the same labels, or leave reference= out"
        raise InvalidInputError(
            f"{who}'s labels {list(found)} are not the key's: {missing or list(found)} cannot be matched; {remedy}"
        )
    order = [found.index(label) for label in labels]
    return [answer[..., order] for answer in answers], predictor.public_name


# -- texts


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


def _questions(texts: Any, task: Task, text_columns: Any) -> list[Question]:
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


class _Tokens(NamedTuple):
    """The owner's tokens of every text, their segment ids and, of token tasks, where each word's first token is."""

    ids: list[list[int]]
    types: list[list[int]]
    places: list[list[int | None]] | None


def _encode(questions: list[Question], tokenizer: Any, cut: Cut, task: Task) -> _Tokens:
    if are_tokenised(questions):
        return _of_rows(questions, ids_that_are_no_word(tokenizer), cut, task)
    tokens = _Tokens([], [], [] if task == "token-classification" else None)
    for first in range(0, len(questions), 1000):
        chunk = questions[first : first + 1000]
        encoding = tokenize(tokenizer, chunk, cut)
        tokens.ids.extend(encoding["input_ids"])
        tokens.types.extend(encoding.get("token_type_ids", [[0] * len(row) for row in encoding["input_ids"]]))
        if tokens.places is not None:
            tokens.places.extend(places_of_words(chunk, encoding, ()))
    return tokens


def _of_rows(rows: list[Any], no_word: Container[int], cut: Cut, task: Task) -> _Tokens:
    """The tokens of tokenised rows."""
    windows = [cut.window(row) for row in rows]
    types = [row.get("token_type_ids", [0] * len(row["input_ids"])) for row in rows]
    by_word = task == "token-classification"
    return _Tokens(
        [list(row["input_ids"])[window] for row, window in zip(rows, windows, strict=True)],
        [list(row)[window] for row, window in zip(types, windows, strict=True)],
        places_of_words(rows, None, no_word, cut) if by_word else None,
    )


def _limit(tokenizer: Any, victim: Any) -> int:
    config = getattr(victim, "config", None)
    if config is not None and hasattr(config, "get_text_config"):
        return max_length_of(tokenizer, config)
    return min(int(getattr(tokenizer, "model_max_length", 512) or 512), 512)


# -- putting together


def _assemble(
    key: WatermarkKey,
    tokens: _Tokens,
    answers: dict[str, list[np.ndarray]],
    labelled: dict[str, list[Any]],
    asked: Sequence[int],
    name: str,
    fingerprint: str | None,
    label_map: dict[str, str] | None = None,
) -> Probe:
    """One entry per item; words that somebody did not see are left out. ``asked`` are the user's row numbers."""
    by_word = tokens.places is not None
    places = [[-1 if place is None else place for place in row] for row in tokens.places or [[-1]] * len(tokens.ids)]
    columns = {who: [np.atleast_2d(answer) for answer in theirs] for who, theirs in answers.items()}
    columns |= {which: _numbers(which, rows, asked, key) for which, rows in labelled.items()}
    for which, rows in columns.items():
        for row, values, words in zip(asked, rows, places, strict=True):
            if len(values) != len(words):
                raise InvalidInputError(f"row {row}: {which} has {len(values)} labels for {len(words)} words")
    arrays = {which: np.concatenate(rows) for which, rows in columns.items()}
    arrays["rows"] = np.repeat(np.arange(len(places)), [len(row) for row in places])
    arrays["places"] = np.array([place for row in places for place in row], np.int64)
    answered = [arrays[who].any(axis=1) for who in answers]
    counts = np.logical_and.reduce([*answered, (arrays["places"] >= 0) | (not by_word)])
    if not counts.any():
        raise InvalidInputError("no word of the probe texts was answered; are they longer than the suspect's limit?")
    dtypes = {1: np.int64, 2: np.float32}  # of numbers, and of probabilities
    return Probe(
        task=key.task,
        labels=tuple(key.labels),
        input_ids=np.fromiter((token for row in tokens.ids for token in row), np.int64),
        token_type_ids=np.fromiter((segment for row in tokens.types for segment in row), np.int64),
        offsets=np.cumsum([0, *map(len, tokens.ids)]).astype(np.int64),
        kind="labels" if are_labels_alone(arrays["suspect"]) else "probabilities",
        n_queries=len(tokens.ids),
        suspect_name=name,
        tokenizer_fingerprint=fingerprint,
        label_map=label_map,
        **{which: array[counts].astype(dtypes[array.ndim]) for which, array in arrays.items()},
    )


def _check_lengths(labelled: dict[str, list[Any]], n_texts: int) -> None:
    for name, labels in labelled.items():
        if len(labels) != n_texts:
            raise InvalidInputError(f"{name} has {len(labels)} entries for {n_texts} texts; give one for every text")


def _numbers(which: str, rows: list[Any], asked: Sequence[int], key: WatermarkKey) -> list[np.ndarray]:
    """Gold or logged labels as class numbers of the key, an array per text; −1 for none."""
    known = class_numbers(None, key.labels, which)
    found = []
    for row, labels in zip(asked, rows, strict=True):
        several = labels if key.task == "token-classification" else [labels]
        several = [label.item() if hasattr(label, "item") else label for label in several]
        numbers = [label_number(label, known, f"row {row} of {which}", error=InvalidInputError) for label in several]
        found.append(np.array(numbers, np.int64))
    return found


# -- answers gathered elsewhere


def _from_answers(
    given: Mapping[str, Any], rows: Iterable[Any], key: WatermarkKey, labelled: dict[str, list[Any]]
) -> Probe:
    """Arrays (m,) or (len(input_ids), m) in the key's label order, beside token ids."""
    rows = [tokenised_row(row) for row in rows]
    if not rows or any("input_ids" not in row for row in rows):
        raise DatasetError("answers computed elsewhere need the tokens they are of; give rows with input_ids")
    _check_lengths(labelled, len(rows))
    answers = {
        who: _checked_answers(theirs, rows, key, f"the {who}") for who, theirs in given.items() if theirs is not None
    }
    tokens = _of_rows(rows, key.special_token_ids, Cut(), key.task)
    return _assemble(key, tokens, answers, labelled, range(len(rows)), "answers gathered elsewhere", None)


def _checked_answers(given: Any, rows: list[dict], key: WatermarkKey, whose: str) -> list[np.ndarray]:
    if not isinstance(given, list | tuple | np.ndarray):
        raise InvalidInputError(
            f"{whose} is of type {type(given).__name__}, but the suspect is given by its answers; give {whose}'s "
            "likewise, one array for every row"
        )
    if len(given) != len(rows):
        raise InvalidInputError(f"{whose} gave {len(given)} answers to {len(rows)} rows; give one array for every row")
    by_word = key.task == "token-classification"
    answers = [np.asarray(answer, dtype=np.float32) for answer in given]
    for number, (table, row) in enumerate(zip(answers, rows, strict=True)):
        shape = (*([len(row["input_ids"])] if by_word else []), key.num_labels)
        if table.shape != shape:
            raise InvalidInputError(f"row {number}: {whose}'s answer has shape {table.shape}, expected {shape}")
        counted = table[~np.isin(row["input_ids"], key.special_token_ids)] if by_word else table
        if not are_distributions(counted).all():
            raise AnswerError(f"row {number}: {whose}'s probabilities are NaN, negative or do not sum to one")
    return answers
