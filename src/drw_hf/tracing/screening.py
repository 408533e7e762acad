"""Scores of many users at once: the statistic T, from a table of the cosine, with a known error.

A user's numbers are AES blocks under sub-keys of the user's own: one encryption of the same counters gives them all.
Which tokens are selected is decided exactly, by comparing integers. The cosine is looked up by the top 16 bits of a
number, which moves it by at most half a cell and T by at most the ``error`` of the screen. So whoever cannot matter by
the score cannot matter by T, which is then computed for the few who can, just as :func:`drw_hf.detect` does.

There is a screen for each of the laws in :mod:`.laws`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..detection.statistics.null_law import one_minus_cosine
from ..errors import InvalidInputError
from ..keys.derivation import BLOCK_BYTES, counters

_CELLS = 2**16
_BLOCKS_AT_ONCE = 2**16  # AES blocks of the users scored together: 1 MB, which stays in the cache
_SIGN = -(2**63)  # flips the order of unsigned numbers into that of signed ones, the only ones every device compares


class UserScreen(ABC):
    """The score of any number of users, none of them further than ``error`` from their T.

    Without a device numpy computes the scores.
    """

    error: float
    rows: int  # users scored together

    def __init__(self, device: str | torch.device | None) -> None:
        self._device = None if device is None else _checked_device(device)
        self._precision = np.float64 if device is None else np.float32  # not every device has the larger one

    def scores(self, *keys: Sequence[bytes]) -> np.ndarray:
        """The score of every user, float64, from their sub-keys for each of the law's domains.

        A user's score does not depend on the others.
        """
        parts = [
            self._score(*(some[first : first + self.rows] for some in keys))
            for first in range(0, len(keys[0]), self.rows)
        ]
        return np.concatenate([np.zeros(0), *parts])

    @abstractmethod
    def _score(self, *keys: Sequence[bytes]) -> np.ndarray:
        """The scores of at most ``rows`` users."""

    def _prepare(self, blocks: "_Blocks", table: np.ndarray, slope: np.ndarray) -> None:
        self.rows = blocks.rows
        self._table, self._slope = self._placed(table), self._placed(slope)
        self._room = np.empty((self.rows if self._device is None else 0, len(slope)))

    def _placed(self, array: np.ndarray) -> Any:
        """An array here, a tensor on a device; of numbers in the precision that is computed in."""
        array = array.astype(self._precision) if array.dtype.kind == "f" else array
        return array if self._device is None else torch.from_numpy(array).to(self._device)

    def _terms(self, numbers: Any, step: int) -> Any:
        """What the table holds for every step-th of some 64-bit numbers, by their top bits, times the slope."""
        if self._device is None:
            # Into the same place again and again, as the blocks are; nothing is ever beyond the table.
            out = self._room[: len(numbers)]
            terms = np.take(self._table, numbers.view("<u2")[:, 3 :: 4 * step], out=out, mode="wrap")
        else:
            terms = self._table[(numbers[:, ::step] >> 48) & (_CELLS - 1)]
        terms *= self._slope
        return terms

    def _at_most(self, numbers: Any, last: np.uint64) -> Any:
        """Which of some 64-bit numbers are at most ``last``."""
        return numbers <= last if self._device is None else (numbers ^ _SIGN) <= int(last) + _SIGN

    def _moved(self, numbers: np.ndarray) -> Any:
        return numbers if self._device is None else torch.from_numpy(numbers.view(np.int64)).to(self._device)

    def _summed(self, terms: Any) -> np.ndarray:
        sums = terms.sum(1)  # no matrix product: its precision is a setting that the caller may have lowered
        return sums if self._device is None else sums.cpu().numpy().astype(np.float64)


class Screen(UserScreen):
    """The score of keys of the paper's mark, of law ``direct``, that share τ and f_w; A and B are of distinct tokens.

    T = Σ over selected tokens of offset_i − slope_i·(1 − cos(f_w g_k)). B is None for scope ``predicted``.
    """

    def __init__(
        self,
        token_ids: np.ndarray,
        A: np.ndarray,
        B: np.ndarray | None,
        frequency: float,
        tau: float,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__(device)
        slope, offset = (A, None) if B is None else (A + B, 2.0 * B)
        self._blocks = _Blocks(token_ids)
        self._prepare(self._blocks, one_minus_cosine(_MIDDLES, frequency), -slope)
        self._offset, self._last = None if offset is None else self._placed(offset), last_selected(tau)
        # Within a cell 1 − cos differs from that of its middle by at most f_w times half a cell. The rest is
        # rounding, whatever the order of the sum: of the score and of T itself.
        size = np.abs(slope).sum()
        magnitude = 2.0 * size + (0.0 if offset is None else np.abs(offset).sum())
        rounding = _rounding(len(token_ids), self._precision) + _rounding(len(token_ids), np.float64)
        self.error = 1.001 * float(_within_cell(frequency) * size + rounding * magnitude)

    def _score(self, *keys: Sequence[bytes]) -> np.ndarray:
        (table_keys,) = keys
        numbers = self._moved(self._blocks.encrypted(table_keys))
        terms = self._terms(numbers, 2)  # a block's first number is the phase
        if self._offset is not None:
            terms += self._offset
        terms *= self._at_most(numbers[:, 1::2], self._last)
        return self._summed(terms)


class TiltScreen(UserScreen):
    """The score of keys of the mark tilt that share τ and f_w, for amplitudes A of shape (words, classes).

    T = Σ A_{i,c}·√2·cos(f_w g(i, c)) over selected words i. A block serves two classes; those that no amplitude asks
    for are not encrypted. With τ < 1 a second sub-key tells which words are selected.
    """

    def __init__(
        self,
        token_ids: np.ndarray,
        A: np.ndarray,
        frequency: float,
        tau: float,
        device: str | torch.device | None = None,
    ) -> None:
        super().__init__(device)
        words, classes = np.nonzero(A)
        pairs = A[words, classes]
        per_word = (A.shape[1] + 1) // 2
        blocks, places = np.unique(words * per_word + classes // 2, return_inverse=True)
        owners = blocks // per_word
        slope = np.zeros((len(blocks), 2))
        slope[places, classes % 2] = pairs
        self._phases = _Blocks(blocks % per_word, token_ids[owners])
        self._prepare(self._phases, math.sqrt(2.0) * np.cos(frequency * _MIDDLES), slope.ravel())
        self._selection = None
        if tau < 1.0:
            present, owner_of_block = np.unique(owners, return_inverse=True)
            self._selection = _Blocks(token_ids[present], rows=self.rows)
            self._owners, self._last = self._placed(np.repeat(owner_of_block, 2)), last_selected(tau)
        magnitude = math.sqrt(2.0) * np.abs(pairs).sum()
        rounding = _rounding(len(pairs), self._precision) + _rounding(len(pairs), np.float64)
        self.error = 1.001 * float((_within_cell(frequency) + rounding) * magnitude)

    def _score(self, *keys: Sequence[bytes]) -> np.ndarray:
        phase_keys, *selection_keys = keys
        terms = self._terms(self._moved(self._phases.encrypted(phase_keys)), 1)
        if self._selection is not None:
            drawn = self._moved(self._selection.encrypted(*selection_keys))[:, ::2]
            selected = self._at_most(drawn, self._last)
            # np.take is several times as fast as an index.
            terms *= np.take(selected, self._owners, axis=1) if self._device is None else selected[:, self._owners]
        return self._summed(terms)


class _Blocks:
    """The blocks of many keys at the same counters, whose halves are given, as 64-bit numbers."""

    def __init__(self, lower: np.ndarray, upper: np.ndarray | int = 0, rows: int | None = None) -> None:
        self._counters = counters(lower, upper).tobytes()
        self.rows = rows or max(1, _BLOCKS_AT_ONCE // max(len(lower), 1))
        # Encrypted into the same place again and again: fresh pages cost more than encrypting.
        self._room = np.empty((self.rows, len(self._counters) + BLOCK_BYTES), dtype=np.uint8)

    def encrypted(self, stream_keys: Sequence[bytes]) -> np.ndarray:
        """One row per key, at most ``rows``, and two numbers per block; the next call overwrites them."""
        room = self._room[: len(stream_keys)]
        for row, key in zip(room, stream_keys, strict=True):
            Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update_into(self._counters, row)
        return room.view("<u8")[:, : len(self._counters) // 8]


def last_selected(tau: float) -> np.uint64:
    """The largest 64-bit number whose hash, its top 53 bits times 2⁻⁵³, is at most τ."""
    top = min(int(tau * 2.0**53), 2**53 - 1)  # exact, so comparing integers is comparing hashes
    return np.uint64((top << 11) | (2**11 - 1))


_MIDDLES = (np.arange(_CELLS) + 0.5) / _CELLS


def _within_cell(frequency: float) -> float:
    """How far the cosine of f_w g may be from that of the middle of its cell."""
    return min(frequency / (2 * _CELLS), 2.0)


def _rounding(n_terms: int, precision: type) -> float:
    """The relative rounding error of a sum of products, in any order: Higham's γ, with a few operations to spare."""
    total = (n_terms + 10) * float(np.finfo(precision).eps) / 2.0
    return total / (1.0 - total) if total < 0.5 else 2.0


def _checked_device(device: Any) -> torch.device:
    try:
        found = torch.device(device)
        torch.zeros(1).to(found).cpu()
    except (RuntimeError, TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise InvalidInputError(
            f"device={device!r} cannot be used here ({type(error).__name__}); leave it out"
        ) from None
    return found
