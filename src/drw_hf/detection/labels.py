"""A suspect's labels and the key's: which is which, and what becomes of those that have no counterpart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidInputError

_LEAST_MATCHED = 2  # the target class and a rival


@dataclass(frozen=True)
class LabelsFound:
    """Where the key's labels stand among somebody's.

    Attributes
    ----------
    order : tuple of int or None
        For each of the key's labels its column; None for one that is lacking.
    left_out, lacking : tuple of str
        Labels that are none of the key's, and labels of the key that are not there.
    """

    order: tuple[int | None, ...]
    left_out: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    def of(self, answer: np.ndarray) -> np.ndarray:
        """An answer in the order of the key's labels.

        What was said of labels that are left out is taken off, and the rest divided by its sum; where nothing is left,
        the answer is none, and zero.
        """
        if not self.left_out and not self.lacking:
            return answer[..., [place for place in self.order if place is not None]]
        zeros = np.zeros_like(answer[..., 0])
        columns = [zeros if place is None else answer[..., place] for place in self.order]
        kept = np.stack(columns, axis=-1)
        if not self.left_out:
            return kept
        total = kept.sum(axis=-1, keepdims=True)
        return np.divide(kept, total, out=np.zeros_like(kept), where=total > 0)


def match_labels(
    who: str, found: Sequence[str], wanted: Sequence[str], others: Sequence[str], known: Sequence[str]
) -> LabelsFound:
    """Find the labels that are ``wanted``, which stand for ``known``, the key's, among those ``found``.

    Of a suspect, labels may lie beyond the key's, or be lacking; where both is the case, they may be the same under
    another name, and whoever asks must say which are (``others`` are none of the key's).
    """
    order = tuple(found.index(label) if label in found else None for label in wanted)
    lacking = tuple(label for label, place in zip(known, order, strict=True) if place is None)
    left_out = tuple(label for label in found if label not in wanted)
    unexplained = [label for label in left_out if label not in others]
    matched = len(wanted) - len(lacking)
    is_suspect, all_the_same = who == "the suspect", len(found) == matched == len(known)
    if (lacking and unexplained) or matched < _LEAST_MATCHED or not (is_suspect or all_the_same):
        missing = [label for label in wanted if label not in found]
        remedy = (
            "pass label_map={suspect's label: key's label} for every label that was renamed, and "
            "{suspect's label: \"\"} for one that is none of the key's"
        )
        if who == "the victim":
            remedy = "this is not the model that the key was made for; give that one, or leave victim= out"
        elif not is_suspect:
            remedy = f"give a model for the same labels, or leave {who.removeprefix('the ')} out"
        raise InvalidInputError(
            f"{who}'s labels {list(found)} are not the key's: {missing or list(found)} cannot be matched; {remedy}"
        )
    return LabelsFound(order, left_out, lacking)
