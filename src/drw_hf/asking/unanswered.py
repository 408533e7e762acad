"""Asking somebody who may not want to be asked: what is refused, or is no prediction, is kept as unanswered.

A suspect must not stop a probe by what it says to single texts. What it leaves out goes by its own answers, never by
the key, so that tests of the key hold all the same.
"""

from collections.abc import Sequence

import numpy as np

from ..errors import AnswerError, NoAnswerError, PredictorError
from .predictor import Predictor
from .questions import Question

_IN_A_ROW = 5  # questions that a service fails at again and again, or for whoever asks: it is down by now
_IN_VAIN = 100  # questions refused before the first answer
_ALL_ALIKE = (401, 403, 404)  # statuses that speak of whoever asks, or of the address, and not of the text


class LenientAsker:
    """Asks a predictor, and gives zeros for questions that it does not answer.

    Where a batch fails, its halves are asked by themselves, until the question is found that it fails for. Mistakes in
    a user's own function are not taken for refusals.

    Attributes
    ----------
    given_up : Exception or None
        Why nothing more is asked: what was answered until then is there to be kept.
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor, self.given_up = predictor, None  # type: tuple[Predictor, Exception | None]
        self._first: Exception | None = None
        self._answered, self._in_vain, self._in_a_row = False, 0, 0

    def checked_answers(self, questions: list[Question], rows: Sequence[int]) -> list[np.ndarray]:
        """An array per question, or fewer where it gave up."""
        if self.predictor.one_by_one and len(questions) > 1:
            return self._in_parts(questions, rows, 1)
        problems: list[AnswerError] = []
        try:
            answers = self.predictor.checked_answers(questions, rows, problems)
        except Exception as error:
            if not _is_of_a_question(error) or self.predictor.labels is None:
                raise
            if len(questions) > 1:
                return self._in_parts(questions, rows, (len(questions) + 1) // 2)
            self._refused(error)
            return [self.predictor.unanswered(questions[0])]
        self._first = self._first or (problems[0] if problems else None)
        self._in_a_row = 0
        self._answered |= any(answer.any() for answer in answers)
        self._in_vain += 0 if self._answered else len(questions)
        return answers

    def answered_nothing(self, n_questions: int) -> Exception:
        """The error of a suspect that answered none of the questions: what was wrong with the first, if known."""
        return self._first or AnswerError(
            f"{self.predictor.name} answered none of {n_questions} texts; where it does by now, ask anew with "
            "load_from_cache_file=False"
        )

    def _in_parts(self, questions: list[Question], rows: Sequence[int], size: int) -> list[np.ndarray]:
        answers: list[np.ndarray] = []
        for first in range(0, len(questions), size):
            part = slice(first, first + size)
            answers += self.checked_answers(questions[part], rows[part])
            if self.given_up is not None:
                break
        return answers

    def _refused(self, error: Exception) -> None:
        """Take note of a question that was not answered; raises where no answer is to be expected any more."""
        self._first = self._first or error
        self._in_vain += not self._answered
        of_all = isinstance(error, NoAnswerError) or _status_of(error) in _ALL_ALIKE
        self._in_a_row = self._in_a_row + 1 if of_all else 0
        if not self._answered and (_status_of(error) in _ALL_ALIKE or self._in_vain >= _IN_VAIN):
            raise self._first
        if self._in_a_row >= _IN_A_ROW:
            if not self._answered:
                raise error
            self.given_up = error


def _is_of_a_question(error: Exception) -> bool:
    """Whether an error says that this question is not answered, and nothing of the others."""
    if isinstance(error, AnswerError | NoAnswerError):
        return True
    status = _status_of(error)
    return status is not None and status >= 400 and not isinstance(error, PredictorError)


def _status_of(error: Exception) -> int | None:
    """Of an error of the HTTP client's the status that the service answered with."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None
