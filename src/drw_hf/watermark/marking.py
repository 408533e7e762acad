"""From a model's logits to the protected answer: one key for a batch, or one for every row.

The protected models and :class:`~drw_hf.Marker` both answer through here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..checks import check_choice
from ..errors import ConfigurationError, ExportRefusedError, InvalidInputError, MissingKeyError, ModelOutputError
from ..keys.arrays import as_tensor, plain
from ..keys.choices import LABEL_KINDS, SAMPLINGS, LabelKind, Sampling
from ..keys.derivation import DRAWS, MARGIN_DRAWS, MARGIN_ORDER
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.settings import MARKS, MarkSettings
from ..keys.users import encode_user
from .margin import between, draw_messages, keyed_numbers
from .mark import Mark, RingUsers, by_group
from .rounding import MOST_DIGITS, rounded
from .sampling import draw, hard_output, keyed_uniforms, text_messages
from .tokens import Query, TokenView, view_tokens

Keys = WatermarkKey | Sequence[WatermarkKey] | RingUsers


@dataclass(frozen=True)
class OutputOptions:
    """What a protected model answers with."""

    label_kind: LabelKind = "soft"
    sampling: Sampling = "keyed"
    sample_all: bool = False
    digits: int | None = None  # None: as is usual for the mark


def check_output(options: Any) -> None:
    """Refuse settings that are none of their choices, of :class:`OutputOptions` or of what has its fields."""
    check_choice("label_kind", options.label_kind, LABEL_KINDS, ConfigurationError)
    check_choice("sampling", options.sampling, SAMPLINGS, ConfigurationError)
    if not isinstance(options.sample_all, bool):
        raise ConfigurationError(f"sample_all={options.sample_all!r}: expected True or False")
    if options.digits is not None and (type(options.digits) is not int or not 0 <= options.digits <= MOST_DIGITS):
        raise ConfigurationError(
            f"digits={options.digits!r}: expected an integer from 1 to {MOST_DIGITS}, or 0 for scores that are not "
            "rounded"
        )


def check_draws(mark: Mark, sample_all: bool) -> None:
    """Refuse to draw all hard labels where the mark draws none."""
    if sample_all and not mark.draws_hard_answers:
        raise ConfigurationError(
            f"sample_all=True draws hard labels, and the mark {mark.name!r} draws none; leave it out, or pass "
            "sample_all=False where the model was saved with it"
        )


def refuse_export(what: str) -> None:
    """Raise where the call is being recorded, with all that it looks up, into a file."""
    if torch.compiler.is_exporting() or torch.jit.is_tracing():
        raise ExportRefusedError(
            f"{what} cannot be exported or traced: the key's tables would be baked into the artefact, where anybody "
            "can read them; export the clean model (get_base_model()) and mark its answers with drw_hf.Marker, or "
            "serve the protected one with torch.compile"
        )


def users_of(keys: Any, user: str | Sequence[str] | None) -> Any:
    """Of a ring the keys of the users who were named; anything else as it is, if nobody was."""
    if user is None and isinstance(keys, WatermarkKey):
        return keys
    if not isinstance(keys, KeyRing):
        if user is None:
            return keys
        raise InvalidInputError(
            "user= names whose key of a ring to mark with, and this is no KeyRing; leave it out, or protect the "
            "model with a ring"
        )
    if user is None:
        raise MissingKeyError(
            "the answers are marked with a key ring, and nobody said for whom: pass user= (one, or one for every "
            "row), or call a protected model within use_key(user=...)"
        )
    if isinstance(user, str):
        encode_user(user)
        return RingUsers(keys, user)
    if not isinstance(user, Iterable):
        raise InvalidInputError(f"user={user!r}: expected a name, or one for every row")
    users = tuple(user)
    for name in users:
        encode_user(name)
    return RingUsers(keys, users)


@forgets_locals  # below it tables and sub-keys are looked up
def protect(
    logits: Tensor, query: Query, keys: Keys, options: OutputOptions, generator: torch.Generator | None = None
) -> Tensor:
    """The protected answer to a query, from the model's own logits: float32 logits of the same shape.

    ``keys`` is one for the batch, or one for every row; ``generator`` is the chance of ``sampling="fresh"``.
    """
    keys = _row_keys(keys, len(query.input_ids))
    first = keys.template if isinstance(keys, RingUsers) else keys if isinstance(keys, WatermarkKey) else keys[0]
    query = query.to(logits.device)  # inputs may lie elsewhere, where a model was spread over devices
    check_shape(logits, query, first)
    if isinstance(keys, list) and any(key.mark != first.mark or key.binding != first.binding for key in keys):
        # Rows of different marks, or of keys that know other special tokens, are protected apart.
        groups, back = by_group(((key.mark, key.binding) for key in keys), logits.device)
        parts = [
            protect(logits[rows], query.rows(rows), [keys[row] for row in rows.tolist()], options, generator)
            for _, rows in groups
        ]
        return torch.cat(parts)[back]
    mark: Mark = MARKS.get(first.mark)
    view = view_tokens(first, query)
    if isinstance(keys, WatermarkKey):
        log_y, marked = mark.apply(logits, query, view, keys)
    elif isinstance(keys, RingUsers):
        log_y, marked = mark.apply_users(logits, query, view, keys)
    else:
        log_y, marked = mark.apply_rows(logits, query, view, keys)
    # Padding and special positions of a tagger are nobody's answer: what a model puts there does not matter.
    by_token = first.task == "token-classification"
    total = log_y.sum().item()  # all are finite but for NaN, and a sum is fast
    if math.isnan(total) and (torch.isnan(log_y.sum(dim=-1)) & (view.ordinary if by_token else True)).any():
        raise ModelOutputError(
            "the model returned NaN or infinite logits, so there is no prediction to protect; check the "
            "model's weights and dtype (float16 overflows easily) and the inputs"
        )
    if options.label_kind == "soft":
        digits = mark.digits if options.digits is None else options.digits
        return rounded(log_y, digits) if digits else log_y
    if not mark.draws_hard_answers:
        labels = _decided(log_y, query, view, keys, mark, first.task)
        return hard_output(labels, logits.shape[-1])
    labels, sampled = logits.argmax(dim=-1), marked
    if options.sample_all:
        sampled = view.ordinary if by_token else torch.ones_like(marked)
    wanted = plain(sampled)
    if wanted.any():
        if options.sampling == "fresh":
            device = logits.device if generator is None else generator.device
            dtype = torch.float32 if device.type == "mps" else torch.float64
            uniform = torch.rand(int(wanted.sum()), generator=generator, dtype=dtype, device=device)
        else:
            uniform = _keyed_draws(query, keys, view, sampled)
        # On the CPU, where every device's draw is computed alike, and in float64, which some devices lack.
        drawn = draw(as_tensor(plain(log_y.detach())[wanted]).cpu(), uniform.cpu())
        plain(labels)[wanted] = plain(drawn.to(labels.device))
    return hard_output(labels, logits.shape[-1])


def _row_keys(keys: Keys, n_rows: int) -> Keys:
    if isinstance(keys, WatermarkKey):
        return keys
    keys = keys.for_rows(n_rows) if isinstance(keys, RingUsers) else list(keys)
    given: Sequence[Any] = keys.users if isinstance(keys, RingUsers) else keys
    if len(given) != n_rows:
        what = "users" if isinstance(keys, RingUsers) else "keys"
        raise InvalidInputError(
            f"{len(given)} {what} were given for a batch of {n_rows} rows; give one, or one for every row"
        )
    return given[0] if isinstance(keys, list) and len(set(given)) == 1 else keys


def check_shape(answers: Tensor, query: Query, key: WatermarkKey) -> None:
    """Refuse answers that are not one for every row, or every token, of a query, with a number for every label."""
    n_rows, length = query.input_ids.shape
    leading = (n_rows, length) if key.task == "token-classification" else (n_rows,)
    if tuple(answers.shape) != (*leading, key.num_labels):
        raise InvalidInputError(
            f"answers of shape {tuple(answers.shape)} to input_ids of shape {(n_rows, length)}; a key for "
            f"{key.task} with {key.num_labels} labels needs answers of shape {(*leading, key.num_labels)}; give all "
            "that the model returned for these input_ids, and a key for its labels"
        )


def _keyed_draws(query: Query, keys: Keys, view: TokenView, sampled: Tensor) -> Tensor:
    """The keyed numbers of all sampled items, in the order of ``tensor[sampled]``."""
    input_ids, ordinary = query.input_ids.cpu().numpy(), view.ordinary.cpu().numpy()
    first_sentence, drawn = view.first_sentence.cpu().numpy(), sampled.cpu().numpy()
    rows = np.flatnonzero(drawn.reshape(len(drawn), -1).any(axis=1))
    messages = text_messages(input_ids[rows], ordinary[rows], first_sentence[rows])
    if drawn.ndim == 1:
        counts, wanted = np.ones(len(rows), dtype=np.int64), np.ones(len(rows), dtype=bool)
    else:  # a token's place is counted in ordinary tokens, which no padding shifts
        counts, wanted = ordinary[rows].sum(axis=1), drawn[rows][ordinary[rows]]
    draw_keys = _subkeys(keys, DRAWS, rows)
    return torch.from_numpy(keyed_uniforms(draw_keys, messages, counts)[wanted])


def _decided(log_y: Tensor, query: Query, view: TokenView, keys: Keys, mark: Mark, task: str) -> Tensor:
    """The class of highest ŷ, but for what is drawn between the two best: see :mod:`drw_hf.watermark.margin`."""
    calls = mark.close_calls(log_y, _settings(keys))
    if calls is None:
        return log_y.argmax(dim=-1)
    labels, _, swaps = calls
    ordinary = view.ordinary.cpu()
    drawn = ((swaps > 0.0) & (ordinary if task == "token-classification" else ordinary.any(dim=-1))).numpy()
    if not drawn.any():
        return labels.to(log_y.device)
    rows = np.flatnonzero(drawn.reshape(len(drawn), -1).any(axis=1))
    words = ordinary.numpy()[rows]
    token_ids, offsets = query.input_ids.cpu().numpy()[rows][words], np.cumsum([0, *words.sum(axis=1)])
    places = np.flatnonzero(drawn[rows][words]) if drawn.ndim == 2 else None
    order_keys = [] if places is not None else _subkeys(keys, MARGIN_ORDER, rows)  # taggers go by position
    messages = draw_messages(token_ids, offsets, places, order_keys)
    counts = drawn[rows].reshape(len(rows), -1).sum(axis=1)
    of_rows = zip(_subkeys(keys, MARGIN_DRAWS, rows), counts, strict=True)
    draw_keys = [draw_key for draw_key, count in of_rows for _ in range(count)]
    lower, higher, chance = between(*(of_items[drawn].numpy() for of_items in calls))
    labels[torch.from_numpy(drawn)] = torch.from_numpy(
        np.where(keyed_numbers(draw_keys, messages) < chance, lower, higher)
    )
    return labels.to(log_y.device)


def _subkeys(keys: Keys, domain: str, rows: np.ndarray) -> list[bytes]:
    """For some rows their keys' sub-key for one use."""
    if isinstance(keys, WatermarkKey):
        return [keys.subkey(domain)] * len(rows)
    if isinstance(keys, RingUsers):
        all_rows = keys.subkeys(domain)
        return [all_rows[row] for row in rows]
    return [keys[row].subkey(domain) for row in rows.tolist()]


def _settings(keys: Keys) -> list[MarkSettings]:
    """The settings of every row, or those of all."""
    if isinstance(keys, WatermarkKey):
        return [keys.settings]
    return [keys.template.settings] if isinstance(keys, RingUsers) else [key.settings for key in keys]
