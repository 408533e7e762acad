"""Tilt: a keyed number per (token, class), added to the log-odds of every class.

log ŷ_c = log p̂_c + β·temperature·S_c(x) − log Z, where s(i, c) = √2·cos(f_w·g(i, c)), and every g(i, c) is an
independent uniform draw of the key. A tagger's answer is moved by its own token, S_c = s(token, c). A sentence
classifier's is moved by all n distinct words of the input, both texts of a pair as one set: S_c = Σ s(t, c)/√n. So the
argmax carries the mark where the model is unsure, and a student learns it as it learns words.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ..checks import check_choice, in_range, whole_number
from ..errors import InvalidKeyError, KeyMismatchError
from ..keys.binding import Binding, max_length_of
from ..keys.derivation import (
    TILT_PHASES,
    TILT_SELECTION,
    class_counters,
    class_entries,
    counters,
    encrypted,
    to_unit_interval,
    token_entries,
)
from ..keys.key import WatermarkKey
from ..keys.settings import MarkSettings
from .mark import SMALLEST_LOG, Mark, RingUsers, register_mark
from .tokens import ORDINARY, Query, TokenView, on_device, token_kinds

TABLE_BYTES = 2**26  # the largest table that is kept: beyond, the numbers of a batch's own tokens are derived
_SIDES = ("right", "left")
_PAIR_TRUNCATIONS = ("longest_first", "only_first", "only_second")


@dataclass(frozen=True, kw_only=True)
class TiltSettings(MarkSettings):
    """How answers are tilted; no secret.

    Attributes
    ----------
    strength : float
        β: how far the mark moves the calibrated log-odds, in standard deviations over random keys.
    temperature : float
        The model's calibration temperature: its logits are that much too large.
    tau : float
        The share of tokens that carry the mark; all of them by default.
    frequency : float
        The angular frequency f_w of the cosine.
    budget : float or None
        The accuracy in points that the strength was chosen for, if it was chosen so.
    max_length, truncation_side, pair_truncation
        How long texts are cut before the model reads them, as its tokenizer does it: what was cut off is in no sum.
    """

    unused: ClassVar[frozenset[str]] = frozenset({"target", "epsilon", "law", "dimension", "scope"})

    mark: str = "tilt"
    tau: float = 1.0
    strength: float = 0.3
    temperature: float = 1.0
    budget: float | None = None
    max_length: int | None = None
    truncation_side: str = "right"
    pair_truncation: str = "longest_first"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, lowest, highest in (("strength", 0.0, 100.0), ("temperature", 1e-3, 1e3)):
            number = in_range(name, getattr(self, name), lowest, highest, error=InvalidKeyError)
            object.__setattr__(self, name, number + 0.0)
        if self.budget is not None:
            object.__setattr__(self, "budget", in_range("budget", self.budget, 0.0, 100.0, error=InvalidKeyError))
        if self.max_length is not None:
            object.__setattr__(self, "max_length", whole_number("max_length", self.max_length, 1, InvalidKeyError))
        check_choice("truncation_side", self.truncation_side, _SIDES, InvalidKeyError)
        check_choice("pair_truncation", self.pair_truncation, _PAIR_TRUNCATIONS, InvalidKeyError)


def settings_of(key: WatermarkKey) -> TiltSettings:
    """The settings of a key of this mark."""
    return cast(TiltSettings, key.settings)


# -- the numbers of a key


def phases(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """g(i, c) of some tokens, shape (tokens, m), uniform on [0, 1)."""
    return class_entries(key.subkey(TILT_PHASES), _checked(key, token_ids), key.num_labels)


def selected(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """Which of some tokens carry the mark: ordinary ones, and with τ < 1 a keyed share of them."""
    token_ids = _checked(key, token_ids)
    ordinary = ~np.isin(token_ids, key.special_token_ids)
    return ordinary if key.tau == 1.0 else ordinary & (token_entries(key.subkey(TILT_SELECTION), token_ids) <= key.tau)


def signals(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """s(i, c) of some tokens, shape (tokens, m): √2·cos(f_w·g(i, c)), and 0 for tokens that carry no mark."""
    return _waves(phases(key, token_ids), key.frequency) * selected(key, token_ids)[:, None]


def _waves(phase: np.ndarray, frequency: float) -> np.ndarray:
    # torch's cosine is several times as fast as numpy's, and float64 gives every device the same table.
    return torch.from_numpy(phase * frequency).cos_().mul_(math.sqrt(2.0)).numpy()


def _checked(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    token_ids = np.asarray(token_ids, dtype=np.int64).ravel()
    if token_ids.size and not (0 <= token_ids.min() and token_ids.max() < key.vocab_size):
        raise KeyMismatchError(f"token ids must lie in [0, {key.vocab_size}), the vocabulary of this key")
    return token_ids


def signal_table(key: WatermarkKey, device: torch.device) -> Tensor:
    """s by token id, float32."""
    parts = np.array_split(np.arange(key.vocab_size), max(1, key.vocab_size * key.num_labels // 2**20))
    return torch.cat([torch.from_numpy(signals(key, part)).float() for part in parts]).to(device)


# -- marking


def first_occurrences(input_ids: Tensor, ordinary: Tensor) -> Tensor:
    """Where each distinct ordinary token of a row stands for the first time; shapes (batch, length)."""
    ordered, places = input_ids.masked_fill(~ordinary, -1).sort(dim=-1, stable=True)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(new).scatter(-1, places, new)


def shifts(table: Tensor, index: Tensor, query: Query, view: TokenView, task: str) -> Tensor:
    """S of every item, (batch, length, m) or (batch, m), where ``table[index]`` are the signals of the tokens."""
    if task == "token-classification":
        return table[index] * view.ordinary.unsqueeze(-1)
    if index.shape[-1] == 0:
        return table.new_zeros(len(index), table.shape[-1])
    first = first_occurrences(query.input_ids, view.ordinary)
    weights = first / first.sum(dim=-1, keepdim=True).clamp_min(1).sqrt()
    return embedding_bag(index, table, mode="sum", per_sample_weights=weights.to(table))


def tilt(logits: Tensor, shift: Tensor, strength: Tensor | float, temperature: Tensor | float) -> Tensor:
    """log ŷ = log p̂ + β·temperature·S − log Z, in float32."""
    moved = torch.log_softmax(logits.float(), dim=-1) + strength * temperature * shift
    return torch.log_softmax(moved, dim=-1).clamp_min(SMALLEST_LOG)


@register_mark
class TiltMark(Mark):
    """A keyed number per (token, class) in the log-odds of every class. Hard labels are the argmax of ŷ."""

    name = "tilt"
    settings_class = TiltSettings
    has_target = False
    hash_rule = "every"
    digits = 3

    def defaults(self, config: Any, tokenizer: Any) -> dict[str, Any]:
        if tokenizer is None:
            return {}
        return {"max_length": max_length_of(tokenizer, config), "truncation_side": tokenizer.truncation_side}

    def warn_of(self, given: Mapping[str, Any]) -> None:
        if "temperature" not in given:
            warnings.warn(
                "no temperature= was given, so the model's log-odds are taken as they are (temperature 1), and what "
                "the mark costs is not known; before the key is used, fit both to labelled data: "
                "key = key.fit(model, data, tokenizer, budget=0.3)",
                stacklevel=5,
            )

    def check(self, settings: MarkSettings, binding: Binding) -> None:
        rule = settings.hash_rule
        if rule is not None and rule.name not in ("every", "token"):
            raise InvalidKeyError(f"the mark 'tilt' uses all tokens of a text; leave hash_rule={rule.name!r} out")

    def apply(self, logits: Tensor, query: Query, view: TokenView, key: WatermarkKey) -> tuple[Tensor, Tensor]:
        if 4 * key.vocab_size * key.num_labels <= TABLE_BYTES:
            table, index = on_device(key, logits.device, signal_table), query.input_ids
        else:
            distinct, index = query.input_ids.unique(return_inverse=True)
            table = torch.from_numpy(signals(key, distinct.cpu().numpy())).float().to(logits.device)
        return _tilted(logits, table, index, query, view, key)

    def apply_users(self, logits: Tensor, query: Query, view: TokenView, users: RingUsers) -> tuple[Tensor, Tensor]:
        """Tables of the whole vocabulary would be made for one row each; its own tokens are a few cipher blocks."""
        template, device = users.template, query.input_ids.device
        token_ids = query.input_ids.cpu().numpy().ravel()
        n_rows, m = len(query.input_ids), template.num_labels
        # All counters at once, then one cipher per row.
        table = _waves(
            _of_users(users, TILT_PHASES, class_counters(token_ids, m), n_rows, m + m % 2), template.frequency
        )
        marked = on_device(template, device, token_kinds)[query.input_ids].flatten() == ORDINARY
        if template.tau < 1.0:
            drawn = _of_users(users, TILT_SELECTION, counters(token_ids), n_rows, 2)[:, 0] <= template.tau
            marked = marked & torch.from_numpy(drawn).to(device)
        signal = torch.from_numpy(table[:, :m]).float().to(device) * marked.unsqueeze(-1)
        index = torch.arange(len(token_ids), device=device).view(query.input_ids.shape)
        return _tilted(logits, signal, index, query, view, template)


def _of_users(users: RingUsers, domain: str, blocks: bytes, n_rows: int, columns: int) -> np.ndarray:
    """Each user's numbers at the blocks of their own row, shape (tokens, columns)."""
    size = len(blocks) // max(n_rows, 1)
    parts = (blocks[row * size : (row + 1) * size] for row in range(n_rows))
    streams = [encrypted(own, part) for own, part in zip(users.subkeys(domain), parts, strict=True)]
    return to_unit_interval(b"".join(streams)).reshape(-1, columns)


def _tilted(
    logits: Tensor, table: Tensor, index: Tensor, query: Query, view: TokenView, key: WatermarkKey
) -> tuple[Tensor, Tensor]:
    settings = settings_of(key)
    shift = shifts(table, index, query, view, key.task)
    marked = view.ordinary if key.task == "token-classification" else view.ordinary.any(dim=-1)
    return tilt(logits, shift, settings.strength, settings.temperature), marked
