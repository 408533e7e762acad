"""Scores of many users at once: the statistic T, from a table of the cosine, with a known error.

T = Σ over selected tokens of offset_i − slope_i·(1 − cos(f_w g_k)). A user's numbers are AES blocks under the user's
table key: one encryption of the tokens' counters gives them all. Which tokens are selected is decided exactly, by
comparing integers. 1 − cos is looked up by the top 16 bits of the hash, which moves a token's hash by at most half a
cell and T by at most :attr:`Screen.error`. So whoever cannot matter by the score cannot matter by T;
:func:`exact_statistic` then computes T for the few who can, just as :func:`drw_hf.detect` does.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from ..detection.statistics.null_law import NullLaw, one_minus_cosine
from ..errors import InvalidInputError
from ..keys.derivation import BLOCK_BYTES, keystream_blocks, to_unit_interval

_CELLS = 2**16
_BLOCKS_AT_ONCE = 2**16  # AES blocks of the users scored together: 1 MB, which stays in the cache
_SIGN = -(2**63)  # flips the order of unsigned numbers into that of signed ones, the only ones every device compares


class Screen:
    """The score of any number of keys of law ``direct`` that share τ and f_w, for the amplitudes of distinct tokens.

    B is None for scope ``predicted``. Without a device numpy computes the scores. None is further than ``error`` from
    its T.
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
        counters = np.zeros((len(token_ids), 2), dtype=">u8")
        counters[:, 1] = token_ids
        self._counters = counters.tobytes()
        self._last = last_selected(tau)
        self._device = None if device is None else _checked_device(device)
        precision = np.float64 if device is None else np.float32  # not every device has the larger one
        slope, offset = (A, None) if B is None else (A + B, 2.0 * B)
        table = one_minus_cosine((np.arange(_CELLS) + 0.5) / _CELLS, frequency)
        # Arrays here, tensors on a device.
        arrays: list[Any] = [None if x is None else x.astype(precision) for x in (table, -slope, offset)]
        if self._device is not None:
            arrays = [None if x is None else torch.from_numpy(x).to(self._device) for x in arrays]
        self._table, self._slope, self._offset = arrays
        # Encrypted into the same place again and again: fresh pages cost more than encrypting.
        rows = max(1, _BLOCKS_AT_ONCE // max(len(token_ids), 1))
        self._room = np.empty((rows, len(self._counters) + BLOCK_BYTES), dtype=np.uint8)

        # Within a cell 1 − cos differs from that of its middle by at most f_w times half a cell. The rest is
        # rounding, whatever the order of the sum: of the score and of T itself.
        size = np.abs(slope).sum()
        magnitude = 2.0 * size + (0.0 if offset is None else np.abs(offset).sum())
        rounding = _rounding(len(token_ids), precision) + _rounding(len(token_ids), np.float64)
        self.error = 1.001 * float(min(frequency / (2 * _CELLS), 2.0) * size + rounding * magnitude)

    def scores(self, table_keys: Sequence[bytes]) -> np.ndarray:
        """The score of every key, float64; a key's score does not depend on the others."""
        rows = len(self._room)
        parts = [self._score(table_keys[first : first + rows]) for first in range(0, len(table_keys), rows)]
        return np.concatenate([np.zeros(0), *parts])

    def _score(self, table_keys: Sequence[bytes]) -> np.ndarray:
        raw: Any = self._encrypt(table_keys)
        if self._device is None:
            cells, selected = raw.view("<u2")[..., 3::8], raw[..., 1::2] <= self._last
        else:
            raw = torch.from_numpy(raw.view(np.int64)).to(self._device)
            cells, selected = (raw[:, ::2] >> 48) & (_CELLS - 1), (raw[:, 1::2] ^ _SIGN) <= int(self._last) + _SIGN
        terms = self._table[cells]  # by the top bits of a block's first number
        terms *= self._slope
        if self._offset is not None:
            terms += self._offset
        terms *= selected
        scores = terms.sum(1)  # no matrix product: its precision is a setting that the caller may have lowered
        return scores if self._device is None else scores.cpu().numpy().astype(np.float64)

    def _encrypt(self, table_keys: Sequence[bytes]) -> np.ndarray:
        """The keys' blocks as 64-bit numbers: one row per key, two numbers per token."""
        room = self._room[: len(table_keys)]
        for row, key in zip(room, table_keys, strict=True):
            Cipher(algorithms.AES256(key), modes.ECB()).encryptor().update_into(self._counters, row)
        return room.view("<u8")[:, : len(self._counters) // 8]


def last_selected(tau: float) -> np.uint64:
    """The largest 64-bit number whose hash, its top 53 bits times 2⁻⁵³, is at most τ."""
    top = min(int(tau * 2.0**53), 2**53 - 1)  # exact, so comparing integers is comparing hashes
    return np.uint64((top << 11) | (2**11 - 1))


def exact_statistic(null: NullLaw, table_key: bytes, token_ids: np.ndarray) -> float:
    """T of one key, to the last bit what :func:`drw_hf.detect` computes."""
    pairs = to_unit_interval(keystream_blocks(table_key, token_ids)).reshape(-1, 2)
    return null.statistic(pairs[:, 0].copy(), pairs[:, 1].copy())


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
