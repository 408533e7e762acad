"""The paper's mark: a cosine over the hash of a token, in the probability of the target class (Equations 3 to 5).

Shapes: probabilities are (..., m) with any leading shape; everything said per item (signal, marked, target, epsilon)
has that leading shape or broadcasts to it.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import is_number
from ..errors import InvalidKeyError
from ..keys.arrays import as_tensor, module_of, plain
from ..keys.binding import Binding
from ..keys.derivation import TABLES, counters, encrypted, to_unit_interval
from ..keys.key import WatermarkKey
from ..keys.settings import MarkSettings
from .mark import SMALLEST_LOG, Mark, RingUsers, by_group, register_mark
from .tokens import ORDINARY, Query, TokenView, hashed_tokens, on_device, token_kinds

# One for all items, or one for each.
Ints = Tensor | int
Floats = Tensor | float
Bools = Tensor | bool

# Where p̂ is 1 for one of two classes and the cosine is at its worst, Eq. 5 leaves 1/(1 + 2ε): less than half above.
LARGEST_SENSIBLE_EPSILON = 0.5


def periodic_signal(phase: Tensor, frequency: float) -> Tensor:
    """z_{c*} = cos(f_w · g), Eq. 3; for every other class z_c = cos(f_w · g + π) = −z_{c*}."""
    return torch.cos(frequency * phase)


def perturb(probabilities: Tensor, signal: Tensor, target: Ints, epsilon: Floats) -> Tensor:
    """Mark every item: Eq. 5 with z_{c*} = ``signal``.

    The result is a distribution again for every m ≥ 2 (the paper's Lemma 2): of the added mass 2ε the target gets
    ε (1 + z), the others share ε (1 − z) equally, and the whole is divided by 1 + 2ε. It is in float64 if the
    probabilities p̂ are, else in float32. ``target`` and ``epsilon`` are for all items or one for each.
    """
    p = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    n_classes, z = p.shape[-1], signal.to(p).unsqueeze(-1)
    if torch.is_tensor(target) or torch.is_tensor(epsilon):
        target = torch.as_tensor(target, device=p.device).unsqueeze(-1)
        epsilon = torch.as_tensor(epsilon, dtype=p.dtype, device=p.device).unsqueeze(-1)
        return (p + epsilon * _shares(z, torch.arange(n_classes, device=p.device) == target)) / (1.0 + 2.0 * epsilon)
    z, is_target = plain(z), np.arange(n_classes) == target
    share = _shares(z, is_target if isinstance(z, np.ndarray) else torch.from_numpy(is_target).to(z.device))
    return (p + as_tensor(epsilon * share)) / (1.0 + 2.0 * epsilon)


def _shares(z: Any, is_target: Any) -> Any:
    """Each class's part of the added mass, in units of ε."""
    return module_of(z).where(is_target, 1.0 + z, (1.0 - z) / (is_target.shape[-1] - 1))


def is_marked(selected: Tensor, logits: Tensor, target: Ints, scope_all: Bools) -> Tensor:
    """Which selected items are marked: all of them, or those whose unmarked prediction is c* (scope ``predicted``)."""
    return selected if scope_all is True else selected & ((logits.argmax(dim=-1) == target) | scope_all)


def soft_output(logits: Tensor, signal: Tensor, marked: Tensor, target: Ints, epsilon: Floats) -> Tensor:
    """log ŷ in float32, so that every softmax downstream returns ŷ: Eq. 5 where ``marked``, log p̂ elsewhere."""
    log_p = torch.log_softmax(logits.float(), dim=-1)
    y = perturb(log_p.exp(), signal, target, epsilon)
    log_y = y.clamp_min(torch.finfo(torch.float32).tiny).log()
    return torch.where(marked.unsqueeze(-1), log_y, log_p).clamp_min(SMALLEST_LOG)


def signal_tables(key: WatermarkKey, device: torch.device) -> tuple[Tensor, Tensor]:
    """By token id: z_{c*} in float32, and whether the token is selected, g(v_s, ·) ≤ τ, and ordinary."""
    # Selection and cosine are computed in float64 and only then rounded: every device gets the same tables.
    signal = periodic_signal(torch.from_numpy(key.phase_table.copy()), key.frequency).float()
    ordinary = token_kinds(key, torch.device("cpu")) == ORDINARY
    return signal.to(device), (torch.from_numpy(key.selection_table <= key.tau) & ordinary).to(device)


@register_mark
class CosineMark(Mark):
    """The paper's mark. Hard labels of marked items are drawn from ŷ."""

    name = "cosine"
    draws_hard_answers = True

    def warn_of(self, given: Mapping[str, Any]) -> None:
        epsilon: Any = given.get("epsilon")
        if is_number(epsilon) and epsilon > LARGEST_SENSIBLE_EPSILON:
            moves = 2.0 * epsilon / (1.0 + 2.0 * epsilon)
            warnings.warn(
                f"epsilon={epsilon:g} moves a marked probability by up to {moves:.2f}, and above "
                f"{LARGEST_SENSIBLE_EPSILON:g} even an answer of which the model is certain can turn into another (if "
                "there are two classes, or scope='all'); the paper's is 0.2: see what yours costs with drw-hf plan, "
                "or take a smaller one",
                stacklevel=5,
            )

    def check(self, settings: MarkSettings, binding: Binding) -> None:
        if settings.hash_rule is not None and settings.hash_rule.name == "every":
            raise InvalidKeyError(
                "the mark 'cosine' hashes one token per text, and the hash rule 'every' chooses none; take 'second', "
                "'rarest' or 'keyed'"
            )

    def apply(self, logits: Tensor, query: Query, view: TokenView, key: WatermarkKey) -> tuple[Tensor, Tensor]:
        return _marked(logits, *_hashed(query, view, key), key.target, key.epsilon, key.scope == "all")

    def apply_rows(
        self, logits: Tensor, query: Query, view: TokenView, keys: Sequence[WatermarkKey]
    ) -> tuple[Tensor, Tensor]:
        """Only the tables are looked up key by key; the equations are those of one batch."""
        device = query.input_ids.device
        rows_of, back = by_group(keys, device)
        parts = [_hashed(query.rows(rows), view.rows(rows), key) for key, rows in rows_of]
        signal = torch.cat([signal for signal, _ in parts])[back]
        selected = torch.cat([selected for _, selected in parts])[back]

        def of_rows(values: list, dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, device=device, dtype=dtype).reshape(-1, *[1] * (signal.dim() - 1))

        return _marked(
            logits,
            signal,
            selected,
            of_rows([key.target for key in keys], torch.long),
            of_rows([key.epsilon for key in keys], torch.float32),
            of_rows([key.scope == "all" for key in keys], torch.bool),
        )

    def apply_users(self, logits: Tensor, query: Query, view: TokenView, users: RingUsers) -> tuple[Tensor, Tensor]:
        """Tables of the whole vocabulary would be made for one row each; its own tokens are a few cipher blocks."""
        template, device = users.template, query.input_ids.device
        token_ids, exists = hashed_tokens(template, query, view)
        # All counters at once, then one cipher per user: at this size what is done by row is what costs.
        blocks = counters(token_ids.cpu().numpy().reshape(len(token_ids), -1))
        stream = encrypted(users.stream_keys(TABLES), blocks, [1] * len(blocks))
        entries = to_unit_interval(stream).reshape(*token_ids.shape, 2)
        signal = periodic_signal(torch.from_numpy(entries[..., 0].copy()), template.frequency).float().to(device)
        ordinary = on_device(template, device, token_kinds)[token_ids] == ORDINARY
        selected = torch.from_numpy(entries[..., 1] <= template.tau).to(device) & ordinary & exists
        return _marked(logits, signal, selected, template.target, template.epsilon, template.scope == "all")


def _hashed(query: Query, view: TokenView, key: WatermarkKey) -> tuple[Tensor, Tensor]:
    """z_{c*} of every item, and whether it is selected."""
    signal, selected = on_device(key, query.input_ids.device, signal_tables)
    token_ids, exists = map(plain, hashed_tokens(key, query, view))
    return as_tensor(plain(signal)[token_ids]), as_tensor(plain(selected)[token_ids] & exists)


def _marked(
    logits: Tensor, signal: Tensor, selected: Tensor, target: Ints, epsilon: Floats, scope_all: Bools
) -> tuple[Tensor, Tensor]:
    marked = is_marked(selected, logits, target, scope_all)
    return soft_output(logits, signal, marked, target, epsilon), marked
