"""`label_with_teacher`: ask a teacher once about every row of a data set, and keep what it said."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

import numpy as np

from ..errors import DatasetError, PredictorError
from ..keys.choices import Task
from .answers import answers_folder, ask_the_rest, damaged_folder, kept_answers, kept_labels
from .options import AskingOptions, asking_options
from .predictor import Askable, Predictor, as_predictor
from .questions import find_text_columns, questions_of

Rows = TypeVar("Rows")  # a Dataset, DatasetDict or IterableDataset: what comes in goes out
PROBABILITIES, LABELS = "teacher_probs", "teacher_labels"
UNANSWERED = -1  # the teacher's label of a word that it did not see
_ROWS_CHECKED_AT_ONCE = 10_000


def label_with_teacher(
    teacher: Askable,
    dataset: Rows,
    tokenizer: Any = None,
    *,
    task: Task | None = None,
    labels: Sequence[str] | None = None,
    **asking: Unpack[AskingOptions],
) -> Rows:
    """Ask a teacher once about every row, and return the data set with its answers.

    Parameters
    ----------
    teacher : model, str, Pipeline, InferenceClient, callable or Predictor
        Who is asked: whatever :func:`drw_hf.asking.as_predictor` takes.
    dataset : Dataset, DatasetDict or IterableDataset
        Rows with a text, two texts, a list of words, or ``input_ids``.
    tokenizer : PreTrainedTokenizerBase, optional
        The teacher's tokenizer; models in memory need it.
    task, labels : optional
        For callables and clients; see :func:`drw_hf.asking.as_predictor`.
    **asking
        How the teacher is asked: :class:`drw_hf.asking.AskingOptions`.

    Returns
    -------
    Dataset, DatasetDict or IterableDataset
        With ``teacher_probs`` and ``teacher_labels`` (a ``ClassLabel`` with the teacher's names). Token tasks: one
        entry per word (or per token, for tokenised rows); −1 and zeros where the teacher did not see it.

    Notes
    -----
    Under ``accelerate launch`` every process asks its share and all return the whole data set. Of two runs that ask
    the same at the same time, the second waits for the first, and nothing is asked twice. Watermark keys enter the
    cache's fingerprint as ``key.fingerprint`` alone.

    Examples
    --------
    >>> from datasets import Dataset
    >>> from drw_hf import label_with_teacher
    >>> rows = Dataset.from_dict({"text": ["a good film", "a bad film"]})
    >>> def service(texts):
    ...     return [{"bad": 0.9, "good": 0.1} if "bad" in text else {"bad": 0.2, "good": 0.8} for text in texts]
    >>> labelled = label_with_teacher(service, rows, progress=False)
    >>> labelled["teacher_labels"], labelled.features["teacher_labels"].names
    (Column([1, 0]), ['bad', 'good'])
    """
    import datasets

    options = asking_options("label_with_teacher", asking)
    max_length, max_retries = options["max_length"], options["max_retries"]
    predictor = as_predictor(
        teacher, tokenizer, task=task, labels=labels, max_length=max_length, max_retries=max_retries
    )
    if isinstance(dataset, datasets.DatasetDict | datasets.IterableDatasetDict):
        return type(dataset)({name: _label(predictor, split, options) for name, split in dataset.items()})
    return _label(predictor, dataset, options)


def _label(predictor: Predictor, dataset: Any, options: AskingOptions) -> Any:
    import datasets

    if isinstance(dataset, datasets.IterableDataset):
        return _label_stream(predictor, dataset, options)
    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(
            f"expected a datasets.Dataset, got {type(dataset).__name__}; make one with Dataset.from_dict or from_list"
        )
    if len(dataset) == 0:
        raise DatasetError("the data set is empty: there is nothing to ask")
    columns = find_text_columns(dataset.column_names, predictor.task, options["text_columns"])
    already = {PROBABILITIES, LABELS} & set(dataset.column_names)
    if already:
        raise DatasetError(f"the data set has {sorted(already)} already; remove_columns them to ask anew")
    beside = Path(dataset.cache_files[0]["filename"]).parent if dataset.cache_files else None
    with answers_folder(predictor, [dataset._fingerprint, columns], options, beside) as (folder, fingerprint):
        finished = folder / "labelled.arrow"
        if predictor.labels is None and kept_labels(folder) is None:
            finished.unlink(missing_ok=True)  # answers whose order nobody knows are no answers
        if not finished.exists():

            def questions_at(rows: list[int]) -> list[Any]:
                return questions_of(dataset.select(rows).select_columns(columns).to_dict(), columns, rows)

            for first in range(0, len(dataset), _ROWS_CHECKED_AT_ONCE):  # all of them, before the first is asked
                questions_at(list(range(first, min(first + _ROWS_CHECKED_AT_ONCE, len(dataset)))))
            ask_the_rest(predictor, range(len(dataset)), questions_at, folder, options, predictor.public_name)
        predictor.labels = predictor.labels or kept_labels(folder)
        fingerprint = fingerprint or datasets.fingerprint.generate_random_fingerprint()
        return _attach(predictor, dataset, finished, fingerprint, options["progress"])


def _attach(predictor: Predictor, dataset: Any, finished: Path, fingerprint: str, progress: bool) -> Any:
    """The data set with the answers as columns, written once and read by every process."""
    import pyarrow
    from accelerate import PartialState

    state = PartialState()
    try:
        with state.main_process_first(), _bars_of_datasets(progress):
            labelled = dataset.map(
                lambda _, rows: as_columns(kept_answers(finished.parent, rows[0], rows[-1] + 1)),
                batched=True,
                batch_size=500,
                with_indices=True,
                features=_features(predictor, dataset),
                new_fingerprint=fingerprint,
                cache_file_name=str(finished),
                load_from_cache_file=True,
                desc="Attaching the answers",
                input_columns=dataset.column_names[0],
            )
    except pyarrow.ArrowInvalid as error:
        raise damaged_folder(finished, type(error).__name__) from None
    state.wait_for_everyone()
    for answers in finished.parent.glob("answers-*.sqlite") if state.is_main_process else ():
        with contextlib.suppress(OSError):  # all is in the Arrow file now
            answers.unlink()
    return labelled


@contextlib.contextmanager
def _bars_of_datasets(wanted: bool) -> Iterator[None]:
    """datasets draws a bar of its own for every map, unless told otherwise for the whole process."""
    import datasets

    with contextlib.ExitStack() as stack:
        if not wanted and not datasets.are_progress_bars_disabled():
            datasets.disable_progress_bars()
            stack.callback(datasets.enable_progress_bars)
        yield


def as_columns(answers: Sequence[np.ndarray]) -> dict[str, list[Any]]:
    """Answers as the two columns that a data set gets."""
    labels = []
    for answer in answers:
        best = answer.argmax(-1)
        labels.append(np.where(answer.any(-1), best, UNANSWERED).tolist() if answer.ndim == 2 else int(best))
    return {PROBABILITIES: list(answers), LABELS: labels}


def _features(predictor: Predictor, dataset: Any) -> Any:
    """The data set's features with the two new columns, the teacher's label names among them."""
    from datasets import Features

    columns = answer_features(predictor.labels or (), predictor.task == "token-classification")
    return Features({**(dataset.features or {}), **columns})


def answer_features(labels: Sequence[str], is_tagger: bool) -> dict[str, Any]:
    """What the two columns hold."""
    from datasets import ClassLabel, List, Value

    probabilities, label = List(Value("float32")), ClassLabel(names=list(labels))
    if is_tagger:
        probabilities, label = List(probabilities), List(label)
    return {PROBABILITIES: probabilities, LABELS: label}


def _label_stream(predictor: Predictor, dataset: Any, options: AskingOptions) -> Any:
    """The same for a stream: rows are asked as they pass, in their own order."""
    if predictor.labels is None:
        raise PredictorError(
            "a stream is labelled as it passes, so its labels must be known before; pass labels=[...]"
        )

    def ask(rows: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        columns = find_text_columns(list(rows), predictor.task, options["text_columns"])
        return as_columns(predictor.checked_answers(questions_of(rows, columns, numbers), numbers))

    features = _features(predictor, dataset) if dataset.features is not None else None
    return dataset.map(ask, batched=True, batch_size=options["batch_size"], with_indices=True, features=features)
