"""`Predictor`: anything that answers questions; suspects, victims and teachers are all asked through one.

:func:`as_predictor` makes a predictor of what a user has. Models in this process are in :mod:`.local`, services and
functions in :mod:`.remote`; :func:`register_predictor` adds a kind of things.
"""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from ..checks import are_distributions
from ..errors import AnswerError, PredictorError
from ..keys.choices import Task
from ..registry import Registry
from .questions import Cut, Question, rough_length


class Predictor(ABC):
    """Something that answers questions. Subclass it for whatever :func:`as_predictor` does not know.

    A subclass has ``labels`` and :meth:`answer`; a tagger sets ``task`` too. All else has a default.

    Attributes
    ----------
    labels : tuple of str or None
        The label names, in the order of the probabilities; None until a first answer shows them.
    task : str
        ``"sequence-classification"``, as is the default, or ``"token-classification"``.
    name : str
        What messages and evidence call it; by default the class's own name.
    stateful : bool
        Whether its fingerprint may change as it answers. In a folder that the user names, its answers are then kept
        under its name.
    labels_alone : bool
        Whether it gave labels without scores when it was last asked.
    one_by_one : bool
        Whether every question is a request of its own, so that asking several at once gains nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.asking import Predictor, label_with_teacher
    >>> class Lengths(Predictor):
    ...     labels = ("short", "long")
    ...
    ...     def answer(self, questions):
    ...         return [np.array([0.1, 0.9] if len(text) > 9 else [0.8, 0.2]) for text in questions]
    ...
    ...     def fingerprint(self):
    ...         return "lengths, version 1"
    >>> from datasets import Dataset
    >>> rows = Dataset.from_dict({"text": ["a good film", "dull"]})
    >>> label_with_teacher(Lengths(), rows, progress=False)["teacher_labels"]
    Column([1, 0])
    """

    labels: tuple[str, ...] | None = None
    task: Task = "sequence-classification"
    stateful: bool = False
    labels_alone: bool = False
    one_by_one: bool = False

    @functools.cached_property
    def name(self) -> str:
        """What messages and evidence call it, and what its kept answers go by where nothing else tells it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @functools.cached_property
    def given_labels(self) -> tuple[str, ...] | None:
        """The labels that were known before anything was asked, by which kept answers are found again."""
        return self.labels

    @property
    def public_name(self) -> str:
        """Its name, for what may be shown to others, whom a path of this machine does not concern."""
        return os.path.basename(os.path.abspath(self.name)) if os.path.exists(self.name) else self.name

    @abstractmethod
    def answer(self, questions: list[Question]) -> list[np.ndarray]:
        """One array of probabilities for each question: (m,), or (words or tokens, m) for token tasks.

        A question is a text, a pair of texts (a tuple), a list of words (token tasks) or a tokenised row (a dict with
        ``input_ids``). A row of zeros says that this word was not answered.
        """

    def fingerprint(self) -> str | None:
        """A digest that changes with what would be answered, and holds no secret; None if there is no telling.

        Answers are kept under it. By default there is none, and they are kept only in a folder that the user names
        (``cache_dir=``), under the predictor's name.
        """
        return None

    def lengths(self, questions: list[Question]) -> list[int]:
        """About how much work each question is, to batch like with like: words, characters or tokens."""
        return list(map(rough_length, questions))

    def to(self, device: torch.device) -> None:  # noqa: B027  # what is not in this process stays where it is
        """Move to the device of this process, where there are several."""

    def checked_answers(
        self, questions: list[Question], rows: Sequence[int], problems: list[AnswerError] | None = None
    ) -> list[np.ndarray]:
        """The answers, float32; refuses what is no answer to these questions, naming its row.

        With a list of ``problems`` it goes there instead, and zeros stand for what was not answered.
        """
        answers = self.answer(questions)
        check_number(self.name, questions, answers)
        if self.labels is None:
            raise PredictorError(f"the labels of {self.name} are not known yet; pass labels=[...]")
        return [self._checked(*each, problems) for each in zip(questions, rows, answers, strict=True)]

    def _checked(self, question: Question, row: int, given: Any, problems: list[AnswerError] | None) -> np.ndarray:
        by_word = self.task == "token-classification"
        wanted = ("words", len(self.labels or ())) if by_word else (len(self.labels or ()),)
        answer = np.asarray(given, dtype=np.float32)
        if answer.ndim != len(wanted) or answer.shape[-1] != wanted[-1]:
            problem = AnswerError(f"row {row}: {self.name} gave an array of shape {answer.shape}, expected {wanted}")
            answer = self.unanswered(question)
        else:
            wrong = ~are_distributions(answer) & (answer.any(axis=-1) | (not by_word))  # a word with zeros: no answer
            if not wrong.any():
                return answer
            place = f", word {int(np.argmax(wrong))}" if by_word else ""
            problem = AnswerError(
                f"row {row}{place}: the probabilities of {self.name} are NaN, negative or do not sum to one; what "
                "was answered before is kept, call again once it answers with probabilities"
            )
            answer = np.where(wrong[..., None], np.float32(0.0), answer)
        if problems is None:
            raise problem
        problems.append(problem)
        return answer

    def unanswered(self, question: Question) -> np.ndarray:
        """What is kept of a question that was not answered."""
        words = (rough_length(question),) if self.task == "token-classification" else ()
        return np.zeros((*words, len(self.labels or ())), dtype=np.float32)


@runtime_checkable
class InferenceService(Protocol):
    """What is called of a ``huggingface_hub.InferenceClient``."""

    def text_classification(self, *args: Any, **kwargs: Any) -> Any: ...  # one text to the scores of its labels
    def token_classification(self, *args: Any, **kwargs: Any) -> Any: ...  # one text to the entities in it


# A path, repo id or address, a model, a client, or whatever can be called, as functions and pipelines can.
Askable = str | os.PathLike[str] | torch.nn.Module | Predictor | InferenceService | Callable[..., Any]


@dataclass(frozen=True)
class PredictorOptions:
    """What else a predictor is made of; see :func:`as_predictor`."""

    task: Task | None = None
    labels: Sequence[str] | None = None
    max_length: int | None = None
    max_retries: int = 5
    cut: Cut | None = None


Fits = Callable[[Any], bool]
Make = Callable[[Any, Any, PredictorOptions], Predictor]
KINDS: Registry[tuple[Fits, Make]] = Registry("kind of predictor")


def register_predictor(name: str, fits: Fits, make: Make) -> None:
    """Let everything that asks take things of another kind: ``detect``, ``identify``, ``label_with_teacher``...

    What was registered last is tried first, so a kind of your own comes before those of the package.

    Parameters
    ----------
    name : str
        The kind's name.
    fits : callable
        Whether a thing is of this kind.
    make : callable
        ``make(thing, tokenizer, options)`` returns its :class:`Predictor`; the :class:`PredictorOptions` are what
        :func:`as_predictor` was given.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.asking import Predictor, as_predictor, register_predictor
    >>> class TablePredictor(Predictor):
    ...     def __init__(self, table):
    ...         self.table, self.labels = table, ("bad", "good")
    ...
    ...     def answer(self, questions):
    ...         return [np.array(self.table[text]) for text in questions]
    >>> register_predictor(
    ...     "table", lambda thing: isinstance(thing, dict), lambda table, tokenizer, options: TablePredictor(table)
    ... )
    >>> as_predictor({"a good film": [0.2, 0.8]}).answer(["a good film"])
    [array([0.2, 0.8])]
    >>> from drw_hf.asking.predictor import KINDS
    >>> KINDS.remove("table")  # only because this is an example
    """
    KINDS.add(name, (fits, make))


def as_predictor(
    thing: Askable,
    tokenizer: Any = None,
    *,
    task: Task | None = None,
    labels: Sequence[str] | None = None,
    max_length: int | None = None,
    max_retries: int = 5,
    cut: Cut | None = None,
) -> Predictor:
    """Make a :class:`Predictor` of a model, path, repo id, address, pipeline, client, callable or registered kind.

    Parameters
    ----------
    thing : model, str, Pipeline, InferenceClient, callable or Predictor
        Who is to be asked; a predictor is returned as it is. A string is a path, a repo id or, with ``http``, the
        address of a service that an ``InferenceClient`` can ask. A callable takes a list of texts (pairs: tuples;
        token tasks: lists of words) and returns for each ``{label: score}`` or a label, token tasks a list of these,
        one per word.
    tokenizer : PreTrainedTokenizerBase, optional
        Models in memory need theirs.
    task : str, optional
        For callables and clients: ``"sequence-classification"`` (default) or ``"token-classification"``.
    labels : sequence of str, optional
        For callables and clients: the label names, where the answers do not show them all.
    max_length, max_retries : int, optional
        As in :class:`~drw_hf.asking.AskingOptions`.
    cut : Cut, optional
        For models in this process: how long questions are cut, where that is not as the tokenizer does it.
    """
    if isinstance(thing, Predictor):
        return thing
    options = PredictorOptions(task, labels, max_length, max_retries, cut)
    for _, (fits, make) in reversed(list(KINDS.items())):
        if fits(thing):
            return make(thing, tokenizer, options)
    raise PredictorError(
        f"an object of type {type(thing).__name__} cannot be asked; give a model, a path or repo id, a pipeline, an "
        "InferenceClient, a callable from a list of texts to a list of {label: score} or labels, or a Predictor of "
        "your own"
    )


def check_number(name: str, questions: Sequence[Any], answers: Any) -> None:
    """Refuse another number of answers than there were questions."""
    if not isinstance(answers, Sequence | np.ndarray) or len(answers) != len(questions):
        found = len(answers) if hasattr(answers, "__len__") else type(answers).__name__
        raise AnswerError(f"{name} was asked {len(questions)} questions and gave {found} answers; expected one each")
