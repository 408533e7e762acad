"""Tilt: a keyed number per (token, class), added to the log-odds of every class.

log ŷ_c = log p̂_c + β·temperature·S_c(x) − log Z, where s(i, c) = √2·cos(f_w·g(i, c)), and every g(i, c) is an
independent uniform draw of the key. A tagger's answer is moved by its own token, S_c = s(token, c). A sentence
classifier's is moved by all n distinct words of the input, both texts of a pair as one set: S_c = Σ s(t, c)/√n. So the
argmax carries the mark where the model is unsure, and a student learns it as it learns words.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, embedding_bag
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from ..checks import check_choice, in_range, whole_number
from ..errors import InvalidKeyError
from ..keys.binding import Binding, max_length_of
from ..keys.derivation import TILT_PHASES, TILT_SELECTION, class_entries, token_entries
from ..keys.key import WatermarkKey
from ..keys.settings import MarkSettings
from .margin import best_two, swap_chance
from .mark import SMALLEST_LOG, Mark, RingUsers, register_mark
from .tokens import Query, TokenView, on_device

LOWEST_FREQUENCY = 3.0  # below, less than half a wave fits into [0, 1), and s is much the same for all words
TABLE_BYTES = 2**26  # the largest table that is kept: beyond, the numbers of a batch's own tokens are derived
_NUMBERS_AT_ONCE = 2**20  # of a table: what they are derived from is several times as large
_NUMBERS_OF_ROWS_AT_ONCE = 2**16  # small enough for the cache, and for memory that is not fetched anew each time
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
        The angular frequency f_w of the cosine, at least 0.1: near 0 it is the same for every word.
    budget : float or None
        The accuracy in points that the strength was chosen for, if it was chosen so.
    max_length, truncation_side, pair_truncation
        How long texts are cut before the model reads them, as its tokenizer does it: what was cut off is in no sum.
    margin : float
        δ: hard answers whose two best classes are closer than this, in calibrated probability, are drawn between the
        two (:mod:`drw_hf.watermark.margin`); 0 for none.
    margin_budget : float or None
        The part of the accuracy budget that the margin was chosen for, in points, if it was chosen so.
    """

    unused: ClassVar[frozenset[str]] = frozenset({"target", "epsilon", "law", "dimension", "scope"})
    later: ClassVar[frozenset[str]] = frozenset({"margin", "margin_budget"})

    mark: str = "tilt"
    tau: float = 1.0
    strength: float = 0.3
    temperature: float = 1.0
    budget: float | None = None
    max_length: int | None = None
    truncation_side: str = "right"
    pair_truncation: str = "longest_first"
    margin: float = 0.0
    margin_budget: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frequency < LOWEST_FREQUENCY:
            raise InvalidKeyError(
                f"frequency={self.frequency:g}: expected at least {LOWEST_FREQUENCY:g} for the mark 'tilt'; below, "
                "the cosine is much the same for every word, and little tells them apart; give a larger one, or leave "
                "it out for the usual 16"
            )
        for name, lowest, highest in (("strength", 0.0, 100.0), ("temperature", 1e-3, 1e3), ("margin", 0.0, 1.0)):
            number = in_range(name, getattr(self, name), lowest, highest, error=InvalidKeyError)
            object.__setattr__(self, name, number + 0.0)
        for name in ("budget", "margin_budget"):
            if getattr(self, name) is not None:
                number = in_range(name, getattr(self, name), 0.0, 100.0, error=InvalidKeyError)
                object.__setattr__(self, name, number)
        if self.max_length is not None:
            object.__setattr__(self, "max_length", whole_number("max_length", self.max_length, 1, InvalidKeyError))
        check_choice("truncation_side", self.truncation_side, _SIDES, InvalidKeyError)
        check_choice("pair_truncation", self.pair_truncation, _PAIR_TRUNCATIONS, InvalidKeyError)


def settings_of(key: WatermarkKey) -> TiltSettings:
    """The settings of a key of this mark; keys of other marks are refused."""
    if not isinstance(key.settings, TiltSettings):
        raise InvalidKeyError(
            f"the key {key.fingerprint} is of the mark {key.mark!r}; expected one of the mark 'tilt'"
        )
    return key.settings


# -- the numbers of a key


def phases(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """g(i, c) of some tokens, shape (tokens, m), uniform on [0, 1)."""
    return class_entries(key.subkey(TILT_PHASES), key.checked_ids(token_ids), key.num_labels)


def selected(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """Which of some tokens carry the mark: ordinary ones, and with τ < 1 a keyed share of them."""
    token_ids = key.checked_ids(token_ids)
    ordinary = ~np.isin(token_ids, key.special_token_ids)
    return ordinary if key.tau == 1.0 else ordinary & (token_entries(key.subkey(TILT_SELECTION), token_ids) <= key.tau)


def signals(key: WatermarkKey, token_ids: Any) -> np.ndarray:
    """s(i, c) of some tokens, shape (tokens, m): √2·cos(f_w·g(i, c)), and 0 for tokens that carry no mark."""
    return _waves(phases(key, token_ids), key.frequency) * selected(key, token_ids)[:, None]


def _waves(phase: np.ndarray, frequency: np.ndarray | float) -> np.ndarray:
    """√2·cos(f_w·g), in the place of g; in float64, which gives every device the same numbers."""
    phase *= frequency
    if is_in_torch_dispatch_mode():  # torch's numbers may be fake
        np.cos(phase, out=phase)
    else:  # its cosine is several times as fast as numpy's
        torch.from_numpy(phase).cos_()
    phase *= math.sqrt(2.0)
    return phase


def signal_table(key: WatermarkKey, device: torch.device) -> Tensor:
    """s by token id, float32, after a first row of zeros: that of token i is row i + 1."""
    return table_of(key, np.arange(key.vocab_size), device)


def table_of(key: WatermarkKey, token_ids: np.ndarray, device: torch.device) -> Tensor:
    """The signals of some tokens, float32, after a first row of zeros."""
    table = _zeros(len(token_ids) + 1, key.num_labels)
    step = max(1, _NUMBERS_AT_ONCE // key.num_labels)
    for first in range(0, len(token_ids), step):
        part = token_ids[first : first + step]
        table[first + 1 : first + 1 + len(part)] = torch.from_numpy(signals(key, part))
    return table.to(device)


def _zeros(n_rows: int, n_columns: int) -> Tensor:
    return torch.zeros(n_rows, n_columns, dtype=torch.float32, device="cpu")  # whatever the defaults in force are


# -- marking


def counting_tokens(input_ids: Tensor, ordinary: Tensor, task: str) -> Tensor:
    """Which tokens tilt an answer: every word of a tagger's text, and each distinct one of a sentence, once."""
    return ordinary if task == "token-classification" else first_occurrences(input_ids, ordinary)


def first_occurrences(input_ids: Tensor, ordinary: Tensor) -> Tensor:
    """Where each distinct ordinary token of a row stands for the first time; shapes (batch, length)."""
    ordered, places = input_ids.masked_fill(~ordinary, -1).sort(dim=-1, stable=True)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return torch.zeros_like(new).scatter(-1, places, new)


def shifts(table: Tensor, index: Tensor, task: str) -> Tensor:
    """S of every item, (batch, length, m) or (batch, m).

    ``table[index]`` are the signals of the tokens; the index of one that does not count is 0, the row of zeros.
    """
    if task == "token-classification":
        return embedding(index, table)
    if index.shape[-1] == 0:
        return table.new_zeros(len(index), table.shape[-1])
    # n is the number of all distinct words, whether or not the key selects them: it must not depend on the key.
    n = (index > 0).sum(dim=-1, keepdim=True).clamp_min(1)
    return embedding_bag(index, table, mode="sum") / n.sqrt()


def tilt(logits: Tensor, shift: Tensor, strength: Tensor | float, temperature: Tensor | float) -> Tensor:
    """log ŷ = log p̂ + β·temperature·S − log Z, in float32."""
    # log p̂ is the logits but for a constant, which Z takes up. In float32 at least, as the shifts are.
    scale = strength * temperature
    moved = logits + scale * shift if torch.is_tensor(scale) else torch.add(logits, shift, alpha=scale)
    return torch.log_softmax(moved, dim=-1).float().clamp_min(SMALLEST_LOG)


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
        if 4 * key.vocab_size * key.num_labels > TABLE_BYTES:
            return _without_table(logits, query, view, key)
        table, settings = on_device(key, logits.device, signal_table), settings_of(key)
        index = (query.input_ids + 1) * counting_tokens(query.input_ids, view.ordinary, key.task)
        return _tilted(logits, shifts(table, index, key.task), settings.strength, settings.temperature)

    def draws(self, settings: MarkSettings) -> bool:
        return isinstance(settings, TiltSettings) and settings.margin > 0.0

    def close_calls(self, log_y: Tensor, settings: Sequence[MarkSettings]) -> tuple[Tensor, Tensor, Tensor] | None:
        own = [one for one in settings if isinstance(one, TiltSettings)]
        if not any(one.margin for one in own):
            return None
        by_row = (-1, *[1] * (log_y.dim() - 2))
        temperature, margin = (
            torch.tensor([getattr(one, name) for one in own], dtype=torch.float64).view(by_row)
            for name in ("temperature", "margin")
        )
        first, second, gap = best_two(log_y.cpu(), temperature.unsqueeze(-1))  # where every device's are the same
        return first, second, swap_chance(gap, margin)

    # A table is large: of many keys and users only the numbers of their own texts are derived.

    def apply_rows(
        self, logits: Tensor, query: Query, view: TokenView, keys: Sequence[WatermarkKey]
    ) -> tuple[Tensor, Tensor]:
        settings = [settings_of(key) for key in keys]

        def subkeys(domain: str) -> list[bytes]:
            return [key.subkey(domain) for key in keys]

        return _by_row(logits, query, view, keys[0].binding, settings, subkeys)

    def apply_users(self, logits: Tensor, query: Query, view: TokenView, users: RingUsers) -> tuple[Tensor, Tensor]:
        if (key := users.only_key) is not None:
            return _without_table(logits, query, view, key)
        template = users.template
        settings = [settings_of(template)] * len(query.input_ids)
        return _by_row(logits, query, view, template.binding, settings, users.subkeys)


def _without_table(logits: Tensor, query: Query, view: TokenView, key: WatermarkKey) -> tuple[Tensor, Tensor]:
    """Mark a batch with one key: of its tokens each distinct one is derived once."""
    counting, settings = counting_tokens(query.input_ids, view.ordinary, key.task), settings_of(key)
    distinct, numbers = query.input_ids[counting].unique(return_inverse=True)
    table = table_of(key, distinct.cpu().numpy(), logits.device)
    index = torch.zeros_like(query.input_ids).masked_scatter(counting, (numbers + 1).to(query.input_ids))
    return _tilted(logits, shifts(table, index, key.task), settings.strength, settings.temperature)


def _by_row(
    logits: Tensor,
    query: Query,
    view: TokenView,
    binding: Binding,
    settings: Sequence[TiltSettings],
    subkeys: Callable[[str], list[bytes]],
) -> tuple[Tensor, Tensor]:
    """Mark every row with settings and sub-keys of its own: the few numbers that it needs, from one cipher per row."""
    counting = counting_tokens(query.input_ids, view.ordinary, binding.task)
    token_ids, counts = query.input_ids[counting].cpu().numpy(), counting.sum(dim=-1).tolist()
    n_rows, m, ends = len(counts), len(binding.labels), [0, *accumulate(counts)]
    phase_keys = subkeys(TILT_PHASES)
    selection_keys = subkeys(TILT_SELECTION) if any(one.tau < 1.0 for one in settings) else []
    table = _zeros(len(token_ids) + 1, m)
    step = max(1, _NUMBERS_OF_ROWS_AT_ONCE * n_rows // max(1, len(token_ids) * m))
    for first in range(0, n_rows, step):
        rows = slice(first, min(first + step, n_rows))
        start, end, each = ends[rows.start], ends[rows.stop], counts[rows]
        phase = class_entries(phase_keys[rows], token_ids[start:end], m, each)
        signal = _waves(phase, np.repeat([one.frequency for one in settings[rows]], each)[:, None])
        if selection_keys:
            drawn = token_entries(selection_keys[rows], token_ids[start:end], each)
            signal *= (drawn <= np.repeat([one.tau for one in settings[rows]], each))[:, None]
        table[start + 1 : end + 1] = torch.from_numpy(signal)
    index = (counting.flatten().cumsum(0) * counting.flatten()).view(counting.shape)
    shift = shifts(table.to(logits.device), index, binding.task)
    scales = [one.strength * one.temperature for one in settings]
    if len(set(scales)) == 1:
        return _tilted(logits, shift, scales[0], 1.0)
    scale = torch.tensor(scales, dtype=shift.dtype, device=shift.device)
    return _tilted(logits, shift, scale.view(-1, *[1] * (shift.dim() - 1)), 1.0)


def _tilted(
    logits: Tensor, shift: Tensor, strength: Tensor | float, temperature: Tensor | float
) -> tuple[Tensor, Tensor]:
    # One class tells: its shift is 0 where no token carries the mark, and by no chance elsewhere.
    return tilt(logits, shift, strength, temperature), shift[..., 0] != 0
