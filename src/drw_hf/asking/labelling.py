"""`label_with_teacher`: ask a teacher once about every row of a data set, and keep what it said."""

import contextlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import DatasetError, KeptAnswersError, PredictorError
from ..keys.choices import Task
from .predictors import ModelPredictor, Predictor, as_predictor, check_distributions
from .questions import find_text_columns, questions_of
from .store import Answers, Journal, damaged, locked

logger = logging.getLogger(__name__)

Rows = TypeVar("Rows")  # a Dataset, DatasetDict or IterableDataset: what comes in goes out
PROBABILITIES, LABELS = "teacher_probs", "teacher_labels"
UNANSWERED = -1  # the teacher's label of a word that it did not see
_LABELS_FILE = "labels.json"
_BATCHES_SORTED_AT_ONCE = 200


def label_with_teacher(
    teacher: Any,
    dataset: Rows,
    tokenizer: Any = None,
    *,
    text_columns: str | Sequence[str] | None = None,
    task: Task | None = None,
    labels: Sequence[str] | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    max_retries: int = 5,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
) -> Rows:
    """Ask a teacher once about every row, and return the data set with its answers.

    Parameters
    ----------
    teacher : model, str, Pipeline, InferenceClient or callable
        Who is asked. A path or repo id is loaded; a callable takes a list of texts (pairs: tuples; token tasks: lists
        of words) and returns for each ``{label: score}`` or a label, token tasks a list of these, one a word.
    dataset : Dataset, DatasetDict or IterableDataset
        Rows with a text, two texts, a list of words, or ``input_ids``.
    tokenizer : PreTrainedTokenizerBase, optional
        The teacher's tokenizer; models in memory need it.
    text_columns : str or sequence of str, optional
        The column (or two, for pairs) that is asked; by default found by its usual name.
    task : str, optional
        For callables and clients: ``"sequence-classification"`` (default) or ``"token-classification"``.
    labels : sequence of str, optional
        For callables and clients: the label names, where the answers do not show them all.
    batch_size : int
        Rows asked at once.
    max_length : int, optional
        Truncate rows to this many tokens; by default the teacher's own limit.
    max_retries : int
        How often a remote teacher that fails in a way that may pass is asked again, with growing pauses.
    cache_dir : path, optional
        Where answers are kept as they come; by default beside the data set's own cache. A run that was killed and is
        called again with the same arguments goes on where it stopped. A callable is recognised by its code and what
        it closes over, or, in a folder that you name here, by its name alone.
    load_from_cache_file : bool
        Use the answers of an earlier, complete run with the same data, teacher and settings.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Dataset, DatasetDict or IterableDataset
        With ``teacher_probs`` and ``teacher_labels`` (a ``ClassLabel`` with the teacher's names). Token tasks: one
        entry a word (or a token, for tokenised rows); −1 and zeros where the teacher did not see it.

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

    settings: dict[str, Any] = {
        "text_columns": text_columns,
        "batch_size": batch_size,
        "cache_dir": cache_dir,
        "load_from_cache_file": load_from_cache_file,
        "progress": progress,
    }
    teacher = as_predictor(
        teacher, tokenizer, task=task, labels=labels, max_length=max_length, max_retries=max_retries
    )
    if isinstance(dataset, datasets.DatasetDict | datasets.IterableDatasetDict):
        return type(dataset)({name: _label(teacher, split, **settings) for name, split in dataset.items()})
    return _label(teacher, dataset, **settings)


def _label(
    teacher: Predictor,
    dataset: Any,
    *,
    text_columns: str | Sequence[str] | None,
    batch_size: int,
    cache_dir: str | os.PathLike | None,
    load_from_cache_file: bool,
    progress: bool,
) -> Any:
    import datasets

    if isinstance(dataset, datasets.IterableDataset):
        return _label_stream(teacher, dataset, text_columns, batch_size)
    if not isinstance(dataset, datasets.Dataset):
        raise DatasetError(
            f"expected a datasets.Dataset, got {type(dataset).__name__}; make one with Dataset.from_dict or from_list"
        )
    if len(dataset) == 0:
        raise DatasetError("the data set is empty: there is nothing to ask the teacher")
    columns = find_text_columns(dataset.column_names, teacher.task, text_columns)
    already = {PROBABILITIES, LABELS} & set(dataset.column_names)
    if already:
        raise DatasetError(f"the data set has {sorted(already)} already; remove_columns them to ask anew")
    with _workplace(teacher, dataset, columns, cache_dir, load_from_cache_file) as (folder, fingerprint):
        finished = folder / "labelled.arrow"
        if teacher.labels is None and not (folder / _LABELS_FILE).exists():
            finished.unlink(missing_ok=True)  # answers whose order nobody knows are no answers
        if not finished.exists():
            _ask_all(teacher, dataset, columns, batch_size, folder, progress)
        return _attach(teacher, dataset, folder, finished, fingerprint, progress)


def _ask_all(
    teacher: Predictor, dataset: Any, columns: list[str], batch_size: int, folder: Path, progress: bool
) -> None:
    """Ask about every row that no journal holds yet; each process its share."""
    from accelerate import PartialState
    from tqdm.auto import tqdm

    state = PartialState()
    if (folder / _LABELS_FILE).exists():
        _kept_labels(folder)  # damaged, they would make the answers worthless: before anything is asked
    with contextlib.closing(Answers(folder)) as known:
        asked = known.rows()
    state.wait_for_everyone()  # before anybody writes: all must see the same rows as open
    if state.num_processes > 1 and isinstance(teacher, ModelPredictor):
        teacher.model.to(state.device)
    todo = [row for row in range(len(dataset)) if row not in asked]
    journal = Journal(folder, state.process_index)
    bar = tqdm(
        total=len(dataset),
        initial=len(dataset) - len(todo),
        desc="Asking the teacher",
        unit="row",
        disable=not (progress and state.is_main_process),
    )
    try:
        for number, (rows, questions) in enumerate(_batches(teacher, dataset, columns, todo, batch_size)):
            if number % state.num_processes == state.process_index:
                answers = teacher.answer(questions)
                check_distributions(answers, rows)
                _keep_labels(teacher, folder)
                journal.write(rows, answers)
            bar.update(len(rows))
    finally:
        journal.close()
        bar.close()
    state.wait_for_everyone()


def _keep_labels(teacher: Predictor, folder: Path) -> None:
    """Beside the answers, the label names that they are in the order of: a callable shows them only as it answers."""
    file = folder / _LABELS_FILE
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(list(teacher.labels or ())))
        os.replace(temporary, file)


def _kept_labels(folder: Path) -> list[str]:
    file = folder / _LABELS_FILE
    try:
        labels = json.loads(file.read_text())
    except ValueError as error:
        raise _damaged(file, type(error).__name__) from None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise _damaged(file, "no list of names")
    return labels


def _damaged(file: Path, why: str) -> KeptAnswersError:
    return damaged(file, why, f"delete the folder {file.parent} to have everything asked again")


def _batches(
    teacher: Predictor, dataset: Any, columns: list[str], todo: list[int], batch_size: int
) -> Iterator[tuple[list[int], list[Any]]]:
    """Batches of rows of like length. The longest come first, so that too large a batch fails at once."""
    for start in range(0, len(todo), batch_size * _BATCHES_SORTED_AT_ONCE):
        rows = todo[start : start + batch_size * _BATCHES_SORTED_AT_ONCE]
        questions = questions_of(dataset.select(rows).select_columns(columns).to_dict(), columns)
        order = np.argsort([-length for length in teacher.lengths(questions)], kind="stable")
        for first in range(0, len(order), batch_size):
            picked = order[first : first + batch_size]
            yield [rows[index] for index in picked], [questions[index] for index in picked]


def _attach(teacher: Predictor, dataset: Any, folder: Path, finished: Path, fingerprint: str, progress: bool) -> Any:
    """The data set with the answers as columns, written once and read by every process."""
    import pyarrow
    from accelerate import PartialState

    if teacher.labels is None:  # all was answered in an earlier run, or by other processes
        teacher.learn_labels(_kept_labels(folder))
    features = _features(teacher, dataset)
    answers: Answers | None = None

    def look_up(_: Any, rows: list[int]) -> dict[str, list[Any]]:
        nonlocal answers
        answers = answers or Answers(folder)
        return _as_columns(answers.read(rows))

    state = PartialState()
    try:
        with state.main_process_first(), _bars_of_datasets(progress):
            labelled = dataset.map(
                look_up,
                batched=True,
                batch_size=500,
                with_indices=True,
                features=features,
                new_fingerprint=fingerprint,
                cache_file_name=str(finished),
                load_from_cache_file=True,
                desc="Attaching the answers",
                input_columns=dataset.column_names[0],
            )
    except pyarrow.ArrowInvalid as error:
        raise _damaged(finished, type(error).__name__) from None
    if answers is not None:
        answers.close()
    return labelled


@contextlib.contextmanager
def _bars_of_datasets(wanted: bool) -> Iterator[None]:
    """datasets draws a bar of its own for every map, unless told otherwise for the whole process."""
    import datasets

    change = not wanted and not datasets.are_progress_bars_disabled()
    if change:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if change:
            datasets.enable_progress_bars()


def _as_columns(answers: Sequence[np.ndarray]) -> dict[str, list[Any]]:
    labels = []
    for answer in answers:
        best = answer.argmax(-1)
        labels.append(np.where(answer.any(-1), best, UNANSWERED).tolist() if answer.ndim == 2 else int(best))
    return {PROBABILITIES: list(answers), LABELS: labels}


def _features(teacher: Predictor, dataset: Any) -> Any:
    """The data set's features with the two new columns, the teacher's label names among them."""
    from datasets import ClassLabel, Features, List, Value

    if teacher.labels is None:
        raise PredictorError("the teacher's labels are not known yet; pass labels=[...]")
    probabilities, label = List(Value("float32")), ClassLabel(names=list(teacher.labels))
    if teacher.task == "token-classification":
        probabilities, label = List(probabilities), List(label)
    known = dict(dataset.features or {})
    return Features({**known, PROBABILITIES: probabilities, LABELS: label})


def _label_stream(teacher: Predictor, dataset: Any, text_columns: Any, batch_size: int) -> Any:
    """The same for a stream: rows are asked as they pass, in their own order."""
    if teacher.labels is None:
        raise PredictorError(
            "a stream is labelled as it passes, so its labels must be known before; pass labels=[...]"
        )

    def ask(rows: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        columns = find_text_columns(list(rows), teacher.task, text_columns)
        answers = teacher.answer(questions_of(rows, columns))
        check_distributions(answers, numbers)
        return _as_columns(answers)

    features = _features(teacher, dataset) if dataset.features is not None else None
    return dataset.map(ask, batched=True, batch_size=batch_size, with_indices=True, features=features)


@contextlib.contextmanager
def _workplace(
    teacher: Predictor, dataset: Any, columns: list[str], cache_dir: Any, load_from_cache_file: bool
) -> Iterator[tuple[Path, str]]:
    """The folder in which answers are kept, by what was asked of whom; a passing one where that cannot be told."""
    import datasets
    from accelerate import PartialState
    from datasets.fingerprint import Hasher

    identity = _as_main_says(_identity(teacher, vouched=cache_dir is not None))
    fingerprint = _as_main_says(Hasher.hash([dataset._fingerprint, columns, identity]))
    if identity is None:
        logger.warning(
            "this teacher cannot be told from another one, so its answers are not kept, not even if it fails midway; "
            "pass cache_dir= to keep them"
        )
        with _passing_folder() as folder:
            yield folder, datasets.fingerprint.generate_random_fingerprint()
        return
    root = Path(_as_main_says(str(cache_dir if cache_dir is not None else _cache_root(dataset))))
    folder = root / f"drw-labels-{fingerprint}"
    state = PartialState()
    with locked(folder) if state.is_main_process else contextlib.nullcontext():
        if state.is_main_process and not load_from_cache_file:
            shutil.rmtree(folder, ignore_errors=True)
        state.wait_for_everyone()  # the other processes of this run work under the main one's lock
        yield folder, fingerprint
        state.wait_for_everyone()
        for journal in folder.glob("answers-*.sqlite") if state.is_main_process else ():
            with contextlib.suppress(OSError):  # all is in the Arrow file now
                journal.unlink()


def _identity(teacher: Predictor, vouched: bool) -> str | None:
    """What tells a teacher from another: what it would answer, or, for an object that cannot be looked into, its name.

    An object's state may change as it answers, so it is recognised by its name, but only in a folder that the user
    named and so vouches for. Functions are recognised by their code; a lambda has no name.
    """
    stateful = teacher.black_box and not hasattr(teacher.function, "__code__")
    found = None if stateful and vouched else teacher.fingerprint()
    if found is None and vouched and "<lambda>" not in teacher.name:
        found = f"{teacher.name} {teacher.task} {teacher.given_labels}"
    return found


@contextlib.contextmanager
def _passing_folder() -> Iterator[Path]:
    """A temporary folder that all processes share."""
    from accelerate import PartialState

    state = PartialState()
    folder = Path(_as_main_says(tempfile.mkdtemp(prefix="drw-labels-") if state.is_main_process else None))
    try:
        yield folder
    finally:
        state.wait_for_everyone()
        if state.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)


def _as_main_says(value: Any) -> Any:
    """The main process's value, in all processes: they work in one folder even where they would name it otherwise."""
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    values = [value]
    if PartialState().num_processes > 1:
        broadcast_object_list(values)
    return values[0]


def _cache_root(dataset: Any) -> Path:
    """Beside the data set's own cache files, or in datasets' cache for data sets in memory."""
    import datasets

    if dataset.cache_files:
        return Path(dataset.cache_files[0]["filename"]).parent
    return Path(datasets.config.HF_DATASETS_CACHE) / "drw_hf"
