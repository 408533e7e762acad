"""`ask`: every question once, and every answer kept as it comes; labelling and probing both ask here.

The answers of one predictor to one list of questions lie in a folder, one file per process. Whoever works there has
its lock, so that nobody takes a file away under another's hands, and nothing is asked twice.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import KeptAnswersError
from .options import AskingOptions
from .predictor import Predictor
from .questions import Question
from .store import Records, Store, damaged, locked
from .unanswered import LenientAsker

logger = logging.getLogger(__name__)

# The note is the width of an answer that is a table, a distribution per word; 0 for one distribution.
ANSWERS = Records(
    "answers", "run", "answers", ("row", "width", "value"), "<f4", "move it away to have its rows asked again"
)
Look = Callable[[Predictor, list[np.ndarray]], None]
_LABELS_FILE = "labels.json"
_BATCHES_SORTED_AT_ONCE = 200


def ask(
    predictor: Predictor,
    questions: list[Question],
    numbers: Sequence[int],
    options: AskingOptions,
    who: str,
    look: Look | None = None,
    lenient: bool = False,
) -> list[np.ndarray]:
    """What a predictor says to questions, from disk where it was asked before.

    ``numbers`` are those that errors call the questions by; ``who`` is for the progress bar. ``look`` is shown every
    batch of new answers, once they are kept, and may raise: then nothing more is asked. ``lenient`` keeps zeros for
    what is refused or is no prediction, where otherwise that is an error; somebody who answers nothing is one.
    """
    content = json.dumps(questions, default=lambda value: np.asarray(value).tolist())
    digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    with answers_folder(predictor, ["probe", digest], options, role=who) as (folder, _):
        asker = LenientAsker(predictor) if lenient else None
        ask_the_rest(
            predictor, numbers, lambda rows: [questions[row] for row in rows], folder, options, who, look, asker
        )
        answers = kept_answers(folder, 0, len(questions))
    if asker is not None and not any(answer.any() for answer in answers):
        raise asker.answered_nothing(len(answers))
    return answers


def ask_the_rest(
    predictor: Predictor,
    numbers: Sequence[int],
    questions_at: Callable[[list[int]], list[Question]],
    folder: Path,
    options: AskingOptions,
    who: str,
    look: Look | None = None,
    asker: LenientAsker | None = None,
) -> None:
    """Ask the questions that the folder holds no answer to yet; each process its share.

    ``numbers``, one per question, are those that errors call them by; ``look`` is as for :func:`ask`. ``asker``, if
    there is one, asks in the predictor's place.
    """
    from accelerate import PartialState
    from tqdm.auto import tqdm

    state, n_questions = PartialState(), len(numbers)
    names = kept_labels(folder)  # before anything is asked: where they are damaged, the answers are worth nothing
    predictor.labels = predictor.labels or names
    answered: set[int] = set()
    for store in _stores(folder):
        answered |= store.numbers()
    state.wait_for_everyone()  # before anybody writes: all must see the same rows as open
    todo = [row for row in range(n_questions) if row not in answered]
    if todo:
        if state.num_processes > 1:
            predictor.to(state.device)
        shown = options["progress"] and state.is_main_process
        with (
            Store(folder / f"answers-{state.process_index}.sqlite", ANSWERS) as store,
            tqdm(total=n_questions, initial=len(answered), desc=f"Asking {who}", unit="row", disable=not shown) as bar,
        ):
            batches = in_batches(predictor, questions_at, todo, options["batch_size"])
            for number, (rows, questions) in enumerate(batches):
                if number % state.num_processes == state.process_index:
                    answers = (asker or predictor).checked_answers(questions, [numbers[row] for row in rows])
                    _keep_labels(predictor, folder)
                    widths = [answer.shape[-1] * (answer.ndim - 1) for answer in answers]
                    store.write(zip(rows[: len(answers)], widths, answers, strict=True))
                    if asker is not None and asker.given_up is not None:
                        raise asker.given_up
                    if look is not None:
                        look(predictor, answers)
                bar.update(len(rows))
    state.wait_for_everyone()
    if predictor.labels is None:  # all was answered in an earlier run, or by other processes
        predictor.labels = kept_labels(folder)


def in_batches(
    predictor: Predictor, questions_at: Callable[[list[int]], list[Question]], todo: list[int], batch_size: int
) -> Iterator[tuple[list[int], list[Question]]]:
    """Batches of rows of like length. The longest come first, so that too large a batch fails at once."""
    for start in range(0, len(todo), batch_size * _BATCHES_SORTED_AT_ONCE):
        rows = todo[start : start + batch_size * _BATCHES_SORTED_AT_ONCE]
        questions = questions_at(rows)
        order = np.argsort([-length for length in predictor.lengths(questions)], kind="stable")
        for first in range(0, len(order), batch_size):
            picked = order[first : first + batch_size]
            yield [rows[index] for index in picked], [questions[index] for index in picked]


def _stores(folder: Path) -> Iterator[Store]:
    """The stores of a folder, whichever processes wrote them."""
    for file in sorted(folder.glob("answers-*.sqlite")):
        with Store(file, ANSWERS) as store:
            yield store


def kept_answers(folder: Path, first: int, stop: int) -> list[np.ndarray]:
    """The answers to the rows from ``first`` to before ``stop``, in their order."""
    records = (record for store in _stores(folder) for record in store.read(first, stop))
    found = {row: values.reshape(-1, width) if width else values for row, width, values in records}
    return [found[row] for row in range(first, stop)]


def _keep_labels(predictor: Predictor, folder: Path) -> None:
    """Beside the answers, the label names that they are in the order of: a callable shows them only as it answers."""
    file = folder / _LABELS_FILE
    if not file.exists():
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(predictor.labels))
        temporary.replace(file)


def kept_labels(folder: Path) -> tuple[str, ...] | None:
    """The label names of the answers in a folder; None where there are none."""
    file = folder / _LABELS_FILE
    if not file.exists():
        return None
    try:
        labels = json.loads(file.read_text())
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError("no list of names")
    except ValueError as error:
        raise damaged_folder(file, error) from None
    return tuple(labels)


def damaged_folder(file: Path, why: object) -> KeptAnswersError:
    """The error of a file without which the others in its folder are worth nothing."""
    return damaged(file, why, f"delete the folder {file.parent} to have everything asked again")


# -- where answers are kept


@contextlib.contextmanager
def answers_folder(
    predictor: Predictor, asked: Sequence[Any], options: AskingOptions, root: Path | None = None, role: str = ""
) -> Iterator[tuple[Path, str | None]]:
    """The folder in which answers are kept, and its fingerprint, by what was ``asked`` of whom.

    Where a predictor cannot be told from another one, a passing folder, and no fingerprint. ``root`` is where folders
    lie if the user names no ``cache_dir``; by default they lie in the cache of 🤗 Datasets. Of two whose names are all
    that is known of them, a suspect and a victim made by one class, the ``role`` tells which is which.
    """
    import datasets
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list
    from datasets.fingerprint import Hasher

    state, named = PartialState(), options["cache_dir"]
    place: list[Any] = [None, None]
    with contextlib.ExitStack() as stack:
        if state.is_main_process:  # it names the folder; the others work in it, under its lock
            identity = None if predictor.stateful and named is not None else predictor.fingerprint()
            if identity is None and named is not None and "<lambda>" not in predictor.name:
                # Enough in a folder that the user named, and so vouches for.
                identity = f"{role}: {predictor.name}" if role else predictor.name
            if identity is None:
                logger.warning(
                    "%s cannot be told from another model, so its answers are not kept, not even if it fails midway; "
                    "pass cache_dir= to keep them",
                    predictor.name,
                )
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
            elif named is not None:
                root = Path(named)
            elif root is None:
                root = Path(datasets.config.HF_DATASETS_CACHE) / "drw_hf"
            fingerprint = Hasher.hash([*asked, identity, predictor.task, predictor.given_labels])
            folder = root / f"drw-labels-{fingerprint}"
            stack.enter_context(locked(folder))
            if not options["load_from_cache_file"]:
                shutil.rmtree(folder, ignore_errors=True)
            place = [folder, None if identity is None else fingerprint]
        folder, fingerprint = broadcast_object_list(place)
        yield folder, fingerprint
        state.wait_for_everyone()
