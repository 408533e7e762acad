"""Probing: what a suspect (and the clean victim) say of texts, kept so that it can be analysed again without asking.

Asking is :func:`drw_hf.label_with_teacher`: the same kinds of suspects, batches, retries, journals and processes. What
is kept is the owner's tokens of every text and the answers in the key's label order; the key itself is not needed, so
one :class:`Probe` serves for any key of the model.
"""

import hashlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..asking.labelling import PROBABILITIES, label_with_teacher
from ..asking.predictors import (
    Askable,
    as_predictor,
    first_positions,
    ids_that_are_no_word,
    max_length_of,
    tokenize,
)
from ..asking.questions import Question, are_pairs, are_tokenised, find_text_columns, questions_of
from ..errors import AnswerError, DatasetError, InvalidInputError, KeyMismatchError
from ..keys.binding import tokenizer_fingerprint
from ..keys.choices import AnswerKind, Task
from ..keys.files import write_atomically
from ..keys.key import WatermarkKey
from ..watermark.tokens import Query, TokenView, hashed_tokens, view_tokens

FORMAT = "drw-probe-1"
_ARRAYS = ("input_ids", "token_type_ids", "offsets", "rows", "places", "suspect", "victim", "gold", "logged")

Suspect = Askable | list[Any] | tuple[Any, ...] | np.ndarray  # who can be asked, or answers gathered elsewhere


@dataclass(frozen=True, eq=False)
class Probe:
    """Answers to texts, one entry an item: a text of a sentence task, a word of a token task.

    Attributes
    ----------
    task : str
    labels : tuple of str
        The label names, in the order of the columns of ``suspect`` and ``victim``.
    input_ids, offsets : arrays of int64
        The owner's tokens of all texts, one after the other; text i is ``input_ids[offsets[i]:offsets[i + 1]]``.
    token_type_ids : array of int64
        Their segment ids (zeros where the tokenizer has none).
    rows : array of int64, shape (N,)
        The text each item is of.
    places : array of int64, shape (N,)
        The item's token within its text (−1 for sentence tasks, where the key's rule picks one).
    suspect : array of float32, shape (N, m)
        What the suspect says.
    kind : str
        ``"probabilities"``, or ``"labels"`` where the suspect gives labels alone (``suspect`` is then 0 and 1).
    victim : array of float32, shape (N, m), or None
        What the clean victim says.
    gold : array of int64, shape (N,), or None
        Gold labels; −1 where there is none.
    logged : array of int64, shape (N,), or None
        The labels that a hard-label service served, for the memory test; −1 where there is none.
    n_queries : int
        How many texts the suspect was asked.
    suspect_name : str
    tokenizer_fingerprint : str or None
        Of the owner's tokenizer.
    """

    task: Task
    labels: tuple[str, ...]
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    suspect: np.ndarray
    kind: AnswerKind = "probabilities"
    victim: np.ndarray | None = None
    gold: np.ndarray | None = None
    logged: np.ndarray | None = None
    n_queries: int = 0
    suspect_name: str = ""
    tokenizer_fingerprint: str | None = None

    @property
    def n_texts(self) -> int:
        """How many texts were asked."""
        return len(self.offsets) - 1

    def tokens_of(self, key: WatermarkKey) -> tuple[np.ndarray, np.ndarray]:
        """The token every item is hashed by under a key, and which items have one."""
        if key.task == "token-classification":
            tokens = self.input_ids[self.offsets[self.rows] + self.places]
            return tokens, ~np.isin(tokens, key.special_token_ids)
        tokens, exists = np.zeros(self.n_texts, np.int64), np.zeros(self.n_texts, bool)
        for rows, query in self._queries():
            chosen, there = hashed_tokens(key, query, view_tokens(key, query))
            tokens[rows], exists[rows] = chosen.numpy(), there.numpy()
        return tokens[self.rows], exists[self.rows]

    def views(self, key: WatermarkKey) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Every text's token ids, which of them are ordinary, and which belong to the first text of a pair."""
        found: list[Any] = [None] * self.n_texts
        for rows, query in self._queries():
            view: TokenView = view_tokens(key, query)
            for index, row in enumerate(rows):
                length = self.offsets[row + 1] - self.offsets[row]
                parts = (query.input_ids, view.ordinary, view.first_sentence)
                found[row] = tuple(part[index, :length].numpy() for part in parts)
        return found

    def digest(self) -> str:
        """SHA-256 over all that was asked and answered."""
        whole = hashlib.sha256(json.dumps(self._fields(), sort_keys=True).encode())
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                whole.update(f"{name} {array.dtype.str} {array.shape}".encode())
                whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Write the probe as a compressed ``.npz``; it holds tokens and answers, and nothing of any key."""
        import io

        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        fields = np.frombuffer(json.dumps({"format": FORMAT, **self._fields()}).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, fields=fields, **arrays)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Probe":
        """Read what :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                fields = json.loads(archive["fields"].tobytes())
                arrays = {name: archive[name] for name in _ARRAYS if name in archive}
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidInputError(f"{path} is not a probe that Probe.save wrote ({type(error).__name__})") from None
        if fields.pop("format", None) != FORMAT:
            raise InvalidInputError(f"{path} is a probe of another format; update drw_hf")
        return cls(**{**fields, "labels": tuple(fields["labels"])}, **arrays)

    def _fields(self) -> dict[str, Any]:
        names = ("task", "kind", "n_queries", "suspect_name", "tokenizer_fingerprint")
        return {"labels": list(self.labels), **{name: getattr(self, name) for name in names}}

    def _queries(self, size: int = 256) -> Iterator[tuple[np.ndarray, Query]]:
        """The texts in padded batches."""
        for first in range(0, self.n_texts, size):
            rows = np.arange(first, min(first + size, self.n_texts))
            lengths = self.offsets[rows + 1] - self.offsets[rows]
            shape = (len(rows), int(lengths.max(initial=0)))
            ids, types = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
            mask = torch.zeros(shape, dtype=torch.long)
            for index, row in enumerate(rows):
                span = slice(self.offsets[row], self.offsets[row + 1])
                ids[index, : lengths[index]] = torch.from_numpy(self.input_ids[span])
                types[index, : lengths[index]] = torch.from_numpy(self.token_type_ids[span])
                mask[index, : lengths[index]] = 1
            yield rows, Query(ids, mask, types)


def probe_suspect(
    suspect: Suspect,
    texts: Iterable[Any],
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    gold: Sequence[Any] | None = None,
    label_map: Mapping[str, str] | None = None,
    suspect_tokenizer: PreTrainedTokenizerBase | None = None,
    text_columns: str | Sequence[str] | None = None,
    max_queries: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    max_retries: int = 5,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
    logged: Sequence[Any] | None = None,
) -> Probe:
    """Ask a suspect (and the clean victim) about texts; the parameters are those of :func:`drw_hf.detect`.

    Of the key only the public side is read: its task, its labels, the tokenizer it belongs to.
    """
    _check_tokenizer(tokenizer, key)
    if _is_answers(suspect):
        return _from_answers(suspect, texts, key, gold, victim, logged)
    if tokenizer is None:
        raise InvalidInputError(
            "tokenizer= is missing: the hash goes by the owner's tokens; give the model's tokenizer"
        )
    questions, gold, logged = _questions(texts, key.task, text_columns, gold, logged)
    if max_queries is not None:
        questions = questions[:max_queries]
        gold, logged = (None if labels is None else labels[:max_queries] for labels in (gold, logged))
    if questions and isinstance(questions[0], dict) and suspect_tokenizer is not None:
        if tokenizer_fingerprint(suspect_tokenizer) != tokenizer_fingerprint(tokenizer):
            raise InvalidInputError(
                "tokenised rows are the owner's tokens, which the suspect does not read; give texts"
            )
    if not questions:
        raise InvalidInputError("there are no probe texts; give some hundred texts like those the model is asked")
    limit = max_length or _limit(tokenizer, victim)
    ids, types, places = _encode(questions, tokenizer, limit, key.task)
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "max_retries": max_retries,
        "cache_dir": cache_dir,
        "load_from_cache_file": load_from_cache_file,
        "progress": progress,
    }
    shown = [_inverse(label_map).get(label, label) for label in key.labels]
    answers, kind, name = _ask(suspect, questions, suspect_tokenizer, tokenizer, key.task, shown, settings)
    clean = None
    if victim is not None:
        clean, _, _ = _ask_clean(victim, questions, tokenizer, key, settings)
    return _assemble(
        key.task,
        key.labels,
        ids,
        types,
        places,
        answers,
        kind,
        clean,
        {"gold": _numbers(gold, key), "logged": _numbers(logged, key)},
        name,
        tokenizer,
    )


# -- asking


def _ask(
    suspect: Any,
    questions: list[Question],
    tokenizer: Any,
    owners: Any,
    task: Task,
    labels: Sequence[str],
    settings: dict[str, Any],
) -> tuple[list[np.ndarray], AnswerKind, str]:
    """The suspect's answers in the order of ``labels``, whether they are labels alone, and its name."""
    max_retries = settings["max_retries"]
    own_labels = None if hasattr(suspect, "config") or isinstance(suspect, str) else list(labels)
    if tokenizer is None and isinstance(suspect, torch.nn.Module):
        tokenizer = owners  # a bare model says nothing of its tokenizer; paths and pipelines have their own
    teacher = as_predictor(suspect, tokenizer, task=task, labels=own_labels, max_retries=max_retries)
    labelled = label_with_teacher(
        teacher,
        _as_dataset(questions, task),
        text_columns=_columns(questions),
        batch_size=settings["batch_size"],
        cache_dir=settings["cache_dir"],
        load_from_cache_file=settings["load_from_cache_file"],
        progress=settings["progress"],
    )
    assert teacher.labels is not None  # its answers have shown them
    found = list(teacher.labels)
    order = _match(found, list(labels))
    answers = [table[..., order] for table in _tables(labelled, task, len(found))]
    certain = all(((table == 0) | (table == 1)).all() for table in answers)
    name = str(teacher.name)
    if os.path.exists(name):  # a result may be shown to others, whom a path of this machine does not concern
        name = os.path.basename(os.path.abspath(name))
    return answers, "labels" if certain else "probabilities", name


def _tables(labelled: Any, task: Task, n_labels: int) -> list[np.ndarray]:
    """The answers of every row, straight from Arrow's buffers: as Python lists they would cost more than asking."""
    column = labelled.with_format("arrow")[:][PROBABILITIES].combine_chunks()
    if task == "sequence-classification":
        return list(column.flatten().to_numpy().reshape(-1, n_labels))
    values = column.flatten().flatten().to_numpy().reshape(-1, n_labels)
    return np.split(values, np.cumsum(column.value_lengths().to_numpy())[:-1])


def _ask_clean(
    victim: Any, questions: list[Question], tokenizer: Any, key: WatermarkKey, settings: dict[str, Any]
) -> tuple[list[np.ndarray], AnswerKind, str]:
    """The victim's answers without its mark: a protected model is asked through its clean self."""
    model = victim.model if hasattr(victim, "preprocess") and hasattr(victim, "model") else victim
    model = model.get_base_model() if hasattr(model, "watermark_disabled") else model
    own = tokenizer if isinstance(model, torch.nn.Module) else None
    return _ask(model, questions, own, tokenizer, key.task, key.labels, settings)


def _match(found: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """For each wanted label the suspect's column of that name."""
    missing = [label for label in wanted if label not in found]
    if missing or len(found) != len(wanted):
        raise InvalidInputError(
            f"the suspect's labels {list(found)} are not the key's: {missing or list(found)} cannot be matched; pass "
            "label_map={suspect's label: key's label} for every label that was renamed"
        )
    return [list(found).index(label) for label in wanted]


def _inverse(label_map: Mapping[str, str] | None) -> dict[str, str]:
    inverse = {ours: theirs for theirs, ours in (label_map or {}).items()}
    if label_map and len(inverse) != len(label_map):
        raise InvalidInputError("label_map names one of the key's labels twice; every label needs one of its own")
    return inverse


# -- texts


def _questions(
    texts: Any, task: Task, text_columns: Any, *per_text: Any
) -> tuple[list[Question], list[Any] | None, list[Any] | None]:
    """Texts, pairs, lists of words, tokenised rows or a data set as questions."""
    if hasattr(texts, "column_names"):
        columns = find_text_columns(texts.column_names, task, text_columns)
        questions = questions_of({name: texts[name][:] for name in columns}, columns)
    else:
        questions = [dict(row) if isinstance(row, Mapping) else row for row in texts]
    if task == "token-classification":
        questions = [question.split() if isinstance(question, str) else question for question in questions]
    if task != "token-classification":
        questions = [cast(tuple[str, str], tuple(q)) if isinstance(q, list) else q for q in questions]
    given = [None if labels is None else list(labels) for labels in per_text]
    for name, labels in zip(("gold", "logged"), given, strict=True):
        if labels is not None and len(labels) != len(questions):
            raise InvalidInputError(
                f"{name} has {len(labels)} entries for {len(questions)} texts; give one for every text"
            )
    if task == "token-classification":
        keep = [index for index, question in enumerate(questions) if len(question)]
        questions = [questions[index] for index in keep]
        given = [None if labels is None else [labels[index] for index in keep] for labels in given]
    return questions, given[0], given[1]


def _encode(
    questions: list[Question], tokenizer: Any, limit: int, task: Task
) -> tuple[list[list[int]], list[list[int]], list[list[int | None]] | None]:
    """The owner's tokens of every text, their segment ids, and where each word's first token is."""
    if are_tokenised(questions):
        ids = [list(row["input_ids"])[:limit] for row in questions]
        types = [list(row.get("token_type_ids", [0] * len(row["input_ids"])))[:limit] for row in questions]
        no_word = ids_that_are_no_word(tokenizer) if tokenizer is not None else set()
        places = [
            [place if place < limit and index not in no_word else None for place, index in enumerate(row["input_ids"])]
            for row in questions
        ]
        return ids, types, places if task == "token-classification" else None
    ids, types, places = [], [], []
    for first in range(0, len(questions), 1000):
        chunk = questions[first : first + 1000]
        encoding = tokenize(tokenizer, chunk, limit)
        ids += encoding["input_ids"]
        types += encoding.get("token_type_ids", [[0] * len(row) for row in encoding["input_ids"]])
        if task == "token-classification":
            places += [first_positions(encoding.word_ids(row), len(words)) for row, words in enumerate(chunk)]
    return ids, types, places if task == "token-classification" else None


def _as_dataset(questions: list[Question], task: Task) -> Any:
    from datasets import Dataset

    if are_tokenised(questions):
        return Dataset.from_list(questions)
    if are_pairs(questions):
        return Dataset.from_dict({"text_a": [a for a, _ in questions], "text_b": [b for _, b in questions]})
    return Dataset.from_dict({"tokens" if task == "token-classification" else "text": questions})


def _columns(questions: list[Question]) -> list[str] | None:
    return ["text_a", "text_b"] if are_pairs(questions) else None


def _limit(tokenizer: Any, victim: Any) -> int:
    config = getattr(victim, "config", None)
    if config is not None and hasattr(config, "get_text_config"):
        return max_length_of(tokenizer, config)
    return min(int(getattr(tokenizer, "model_max_length", 512) or 512), 512)


def _numbers(gold: list[Any] | None, key: WatermarkKey) -> list[Any] | None:
    """Gold or logged labels as class numbers of the key; by name or number, −1 for none."""
    if gold is None:
        return None

    def number(label: Any) -> int:
        if isinstance(label, str):
            if label not in key.labels:
                raise InvalidInputError(f"the label {label!r} is none of the key's labels {list(key.labels)}")
            return key.labels.index(label)
        return -1 if label is None else int(label)

    if key.task == "token-classification":
        return [[number(label) for label in row] for row in gold]
    return [number(label) for label in gold]


# -- putting together


def _assemble(
    task: Task,
    labels: tuple[str, ...],
    ids: list[list[int]],
    types: list[list[int]],
    places: list[list[int | None]] | None,
    answers: list[np.ndarray],
    kind: AnswerKind,
    clean: list[np.ndarray] | None,
    labelled: dict[str, list[Any] | None],
    name: str,
    tokenizer: Any,
) -> Probe:
    """One entry an item; words that somebody did not see are left out."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int64)
    single = task == "sequence-classification"
    parts: dict[str, list[np.ndarray]] = {"rows": [], "places": [], "suspect": [], "victim": []}
    given = {which: rows for which, rows in labelled.items() if rows is not None}
    true: dict[str, list[np.ndarray]] = {which: [] for which in given}
    for row, answer in enumerate(answers):
        table = answer[None] if single else answer
        at = np.array([-1] if places is None else [-1 if place is None else place for place in places[row]], np.int64)
        counts = table.any(axis=1) & (single | (at >= 0))
        if clean is not None:
            theirs = clean[row][None] if single else clean[row]
            counts &= theirs.any(axis=1)
            parts["victim"].append(theirs[counts])
        for which, found in true.items():
            label = np.array([given[which][row]] if single else given[which][row], np.int64)
            if len(label) != len(at):
                raise InvalidInputError(f"row {row}: {which} has {len(label)} labels for {len(at)} words")
            found.append(label[counts])
        parts["rows"].append(np.full(counts.sum(), row, np.int64))
        parts["places"].append(at[counts])
        parts["suspect"].append(table[counts])
    rows = np.concatenate(parts["rows"])
    if not len(rows):
        raise InvalidInputError("no word of the probe texts was answered; are they longer than the suspect's limit?")
    return Probe(
        task=task,
        labels=tuple(labels),
        input_ids=np.fromiter((token for row in ids for token in row), np.int64),
        token_type_ids=np.fromiter((kind for row in types for kind in row), np.int64),
        offsets=offsets,
        rows=rows,
        places=np.concatenate(parts["places"]),
        suspect=np.concatenate(parts["suspect"]).astype(np.float32),
        kind=kind,
        victim=None if clean is None else np.concatenate(parts["victim"]).astype(np.float32),
        **{which: np.concatenate(found) for which, found in true.items()},
        n_queries=len(ids),
        suspect_name=name,
        tokenizer_fingerprint=None if tokenizer is None else tokenizer_fingerprint(tokenizer),
    )


def _is_answers(suspect: Any) -> bool:
    """Whether a suspect is a list of probabilities computed elsewhere."""
    return isinstance(suspect, list | tuple | np.ndarray)


def _from_answers(suspect: Any, rows: Any, key: WatermarkKey, gold: Any, victim: Any, logged: Any) -> Probe:
    """Answers gathered elsewhere: arrays (m,) or (len(input_ids), m) in the key's label order, beside token ids."""
    rows = [dict(row) for row in rows]
    if len(suspect) != len(rows):
        raise InvalidInputError(f"{len(suspect)} answers to {len(rows)} rows; give one answer for every row")
    if not rows or any("input_ids" not in row for row in rows):
        raise DatasetError("answers computed elsewhere need the tokens they are of; give rows with input_ids")
    answers = _checked_answers(suspect, rows, key, "the suspect")
    clean = None if victim is None else _checked_answers(victim, rows, key, "the victim")
    limit = max(len(row["input_ids"]) for row in rows)
    ids, types, places = _encode(rows, None, limit, key.task)
    certain = all(((table == 0) | (table == 1)).all() for table in answers)
    if places is not None:
        special = set(key.special_token_ids)
        places = [[i if row[i] not in special else None for i in range(len(row))] for row in ids]
    return _assemble(
        key.task,
        key.labels,
        ids,
        types,
        places,
        answers,
        "labels" if certain else "probabilities",
        clean,
        {
            "gold": _numbers(None if gold is None else list(gold), key),
            "logged": _numbers(None if logged is None else list(logged), key),
        },
        "answers gathered elsewhere",
        None,
    )


def _checked_answers(given: Any, rows: list[dict], key: WatermarkKey, whose: str) -> list[np.ndarray]:
    if not _is_answers(given) or len(given) != len(rows):
        raise InvalidInputError(f"{whose}'s answers must be one array for every row, like the suspect's")
    answers = []
    for number, (answer, row) in enumerate(zip(given, rows, strict=True)):
        table = np.asarray(answer, dtype=np.float32)
        shape: tuple[int, ...] = (key.num_labels,)
        if key.task == "token-classification":
            shape = (len(row["input_ids"]), key.num_labels)
        if table.shape != shape:
            raise InvalidInputError(f"row {number}: {whose}'s answer has shape {table.shape}, expected {shape}")
        special = np.isin(row["input_ids"], key.special_token_ids) if table.ndim == 2 else np.zeros(1, bool)
        counted = table[~special] if table.ndim == 2 else table[None]
        if not (np.abs(counted.sum(-1) - 1) <= 1e-2).all() or not (counted >= 0).all():
            raise AnswerError(f"row {number}: {whose}'s probabilities are NaN, negative or do not sum to one")
        answers.append(table)
    return answers


def _check_tokenizer(tokenizer: Any, key: WatermarkKey) -> None:
    if tokenizer is None or key.tokenizer_fingerprint is None:
        return
    if tokenizer_fingerprint(tokenizer) != key.tokenizer_fingerprint:
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer; give the tokenizer of the protected model "
            "(a suspect's own goes into suspect_tokenizer=)"
        )
