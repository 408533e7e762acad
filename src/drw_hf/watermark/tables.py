"""A key's tables as tensors, looked up by token id: made once for every device, forgotten with the key.

They are the key, so they live outside the model: no buffer, no state dict and no pickle can carry them away.
"""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from ..keys.key import WatermarkKey
from .cosine import periodic_signal

ORDINARY, SPECIAL, SEPARATOR = 0, 1, 2

_tables: WeakKeyDictionary[WatermarkKey, dict[torch.device, "DeviceTables"]] = WeakKeyDictionary()


@dataclass(frozen=True, repr=False)
class DeviceTables:
    """One number a token id, each tensor of the vocabulary's length.

    ``signal`` is z_{c*} in float32, ``selected`` whether g(v_s, ·) ≤ τ, ``kind`` ordinary, special or separator,
    ``scores`` what the hash rule picks by (None for rules that go by position).
    """

    signal: torch.Tensor
    selected: torch.Tensor
    kind: torch.Tensor
    scores: torch.Tensor | None


def tables_on(key: WatermarkKey, device: torch.device) -> DeviceTables:
    """The key's tables on a device."""
    per_device = _tables.setdefault(key, {})
    if device not in per_device:
        tables = _make_tables(key, device)
        if is_in_torch_dispatch_mode():  # fake tensors are nobody else's tables
            return tables
        per_device[device] = tables
    return per_device[device]


def _make_tables(key: WatermarkKey, device: torch.device) -> DeviceTables:
    # Selection and cosine are computed in float64 and only then rounded: every device gets the same tables.
    kind = np.full(key.vocab_size, ORDINARY, dtype=np.int8)
    kind[list(key.special_token_ids)] = SPECIAL
    kind[list(key.separator_token_ids)] = SEPARATOR
    selected = (key.selection_table <= key.tau) & (kind == ORDINARY)
    signal = periodic_signal(torch.from_numpy(key.phase_table.copy()), key.frequency).float()
    scores, by_rule = None, key.rule_scores()
    if by_rule is not None:  # ranks are exact in float32, and ties stay ties
        scores = torch.from_numpy(np.unique(by_rule, return_inverse=True)[1].astype(np.float32)).to(device)
    return DeviceTables(
        signal=signal.to(device),
        selected=torch.from_numpy(selected).to(device),
        kind=torch.from_numpy(kind).to(device),
        scores=scores,
    )
