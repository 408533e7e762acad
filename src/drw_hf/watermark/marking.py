"""From a model's logits to the protected answer: one key for a batch, or one for every row."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ..errors import InvalidInputError, ModelOutputError
from ..keys.choices import LabelKind, Sampling
from ..keys.derivation import DRAWS, TABLES, counters, encrypted, expand, to_unit_interval
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from .cosine import is_marked, periodic_signal, soft_output
from .sampling import draw, hard_output, keyed_uniforms, text_messages
from .tables import ORDINARY, tables_on
from .tokens import Query, TokenView, hashed_tokens, view_tokens


@dataclass(frozen=True)
class RingUsers:
    """The users of a key ring whose keys mark a batch: one, or one for every row."""

    ring: KeyRing
    users: str | tuple[str, ...]

    @property
    def template(self) -> WatermarkKey:
        """What the keys of all users have in common."""
        return self.ring.template()

    @cached_property
    def extracted(self) -> list[bytes]:
        """For every row what its user's sub-keys are expanded from: making whole keys would cost more than marking."""
        return self.ring.extracted_keys(self.users)

    def subkeys(self, domain: str) -> list[bytes]:
        """For every row its user's sub-key for one use."""
        return [expand(extracted, domain.encode()) for extracted in self.extracted]

    def key(self) -> WatermarkKey:
        """The key that marks all rows, of a single user."""
        return self.ring.key_for(self.users if isinstance(self.users, str) else self.users[0])


Keys = WatermarkKey | Sequence[WatermarkKey] | RingUsers


@dataclass(frozen=True)
class OutputOptions:
    """What a protected model answers with."""

    label_kind: LabelKind = "soft"
    sampling: Sampling = "keyed"
    sample_all: bool = False


@dataclass(frozen=True, repr=False)  # a debugger that shows locals would show the key's signal
class Marks:
    """Where and how a batch is marked: one entry an item, or one a row that broadcasts over the row's items."""

    view: TokenView
    signal: torch.Tensor
    selected: torch.Tensor
    target: torch.Tensor | int
    epsilon: torch.Tensor | float
    scope_all: torch.Tensor | bool


def protect(
    logits: torch.Tensor,
    query: Query,
    keys: Keys,
    options: OutputOptions,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """The protected answer to a query, as float32 logits of the same shape.

    Parameters
    ----------
    logits : Tensor, shape (batch, m) or (batch, length, m)
        The model's own.
    query : Query
        What was asked.
    keys : WatermarkKey or sequence of WatermarkKey
        One for the batch, or one for every row.
    options : OutputOptions
        Soft or hard labels, and how those are drawn.
    generator : torch.Generator, optional
        The chance of ``sampling="fresh"``.
    """
    keys = _row_keys(keys, len(query.input_ids))
    first = keys.template if isinstance(keys, RingUsers) else keys if isinstance(keys, WatermarkKey) else keys[0]
    query = _on_device_of(logits, query)
    _check_shape(logits, query, first)
    marks = _marks(query, keys)
    # Padding and special positions of a tagger are nobody's answer: what a model puts there does not matter.
    answers = marks.view.ordinary if first.task == "token-classification" else torch.ones_like(marks.selected)
    marked = is_marked(marks.selected, logits, marks.target, marks.scope_all)
    log_y = soft_output(logits, marks.signal, marked, marks.target, marks.epsilon)
    if (torch.isnan(log_y).any(dim=-1) & answers).any():
        raise ModelOutputError(
            "the wrapped model returned NaN or infinite logits, so there is no prediction to protect; check the "
            "model's weights and dtype (float16 overflows easily) and the inputs"
        )
    if options.label_kind == "soft":
        return log_y
    labels = logits.argmax(dim=-1)
    sampled = answers if options.sample_all else marked
    if sampled.any():
        if options.sampling == "fresh":
            uniform = _chance(int(sampled.sum()), logits.device if generator is None else generator.device, generator)
        else:
            uniform = _keyed_draws(query, keys, marks.view, sampled)
        # On the CPU, where every device's draw is computed alike, and in float64, which some devices lack.
        labels[sampled] = draw(log_y[sampled].cpu(), uniform.cpu()).to(labels.device)
    return hard_output(labels, logits.shape[-1])


def _on_device_of(logits: torch.Tensor, query: Query) -> Query:
    """Inputs may lie elsewhere than the logits of a model that was spread over devices."""

    def move(tensor: torch.Tensor | None) -> torch.Tensor | None:
        return None if tensor is None else tensor.to(logits.device)

    input_ids = query.input_ids.to(logits.device)
    return Query(input_ids, move(query.attention_mask), move(query.token_type_ids), query.pad_token_id)


def _row_keys(keys: Keys, n_rows: int) -> Keys:
    if isinstance(keys, WatermarkKey):
        return keys
    if isinstance(keys, RingUsers) and isinstance(keys.users, str):
        return keys.key()
    if not isinstance(keys, RingUsers):
        keys = list(keys)
    given, what = (keys.users, "users") if isinstance(keys, RingUsers) else (keys, "keys")
    if len(given) != n_rows:
        raise InvalidInputError(
            f"{len(given)} {what} were given for a batch of {n_rows} rows; give one, or one for every row"
        )
    if len(set(given)) == 1:
        return keys.key() if isinstance(keys, RingUsers) else keys[0]
    return keys


def _check_shape(logits: torch.Tensor, query: Query, key: WatermarkKey) -> None:
    n_rows, length = query.input_ids.shape
    leading = (n_rows, length) if key.task == "token-classification" else (n_rows,)
    if tuple(logits.shape) != (*leading, key.num_labels):
        raise InvalidInputError(
            f"the model answered with logits of shape {tuple(logits.shape)} to input_ids of shape {(n_rows, length)}; "
            f"a {key.task} watermark needs {(*leading, key.num_labels)}"
        )


def _marks(query: Query, keys: Keys) -> Marks:
    if isinstance(keys, WatermarkKey):
        return _marks_of_key(query, keys)
    if isinstance(keys, RingUsers):
        return _marks_of_users(query, keys)
    device = query.input_ids.device
    row_of: dict[WatermarkKey, list[int]] = {}
    for row, key in enumerate(keys):
        row_of.setdefault(key, []).append(row)
    order = torch.tensor([row for rows in row_of.values() for row in rows], device=device)
    back = torch.argsort(order)
    parts = [_marks_of_key(query.rows(torch.tensor(rows, device=device)), key) for key, rows in row_of.items()]

    def gather(name: str) -> torch.Tensor:
        tensors = [getattr(part.view if hasattr(part.view, name) else part, name) for part in parts]
        return torch.cat(tensors)[back]

    def of_rows(values: list, like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, device=device, dtype=dtype).reshape(-1, *[1] * (like.dim() - 1))

    signal = gather("signal")
    return Marks(
        view=TokenView(gather("ordinary"), gather("first_sentence")),
        signal=signal,
        selected=gather("selected"),
        target=of_rows([key.target for key in keys], signal, torch.long),
        epsilon=of_rows([key.epsilon for key in keys], signal, torch.float32),
        scope_all=of_rows([key.scope == "all" for key in keys], signal, torch.bool),
    )


def _marks_of_key(query: Query, key: WatermarkKey) -> Marks:
    tables = tables_on(key, query.input_ids.device)
    view = view_tokens(key, query)
    token_ids, exists = hashed_tokens(key, query, view)
    return Marks(
        view=view,
        signal=tables.signal[token_ids],
        selected=tables.selected[token_ids] & exists,
        target=key.target,
        epsilon=key.epsilon,
        scope_all=key.scope == "all",
    )


def _marks_of_users(query: Query, keys: RingUsers) -> Marks:
    """Marks of a batch in which every row is another user's.

    Tables of the whole vocabulary would be made for one row each; the entries of the row's own tokens are a few
    cipher blocks. All else is the same for all users of a ring.
    """
    template, device = keys.template, query.input_ids.device
    view = view_tokens(template, query)
    token_ids, exists = hashed_tokens(template, query, view)
    # All counters at once, then a cipher a row: at this size what is done by row is what costs.
    blocks = counters(token_ids.cpu().numpy().ravel())
    size = len(blocks) // len(token_ids)
    streams = [
        encrypted(table_key, blocks[row * size : (row + 1) * size])
        for row, table_key in enumerate(keys.subkeys(TABLES))
    ]
    entries = to_unit_interval(b"".join(streams)).reshape(*token_ids.shape, 2)
    ordinary = tables_on(template, device).kind[token_ids] == ORDINARY
    return Marks(
        view=view,
        signal=periodic_signal(torch.from_numpy(entries[..., 0].copy()), template.frequency).float().to(device),
        selected=torch.from_numpy(entries[..., 1] <= template.tau).to(device) & ordinary & exists,
        target=template.target,
        epsilon=template.epsilon,
        scope_all=template.scope == "all",
    )


def _chance(count: int, device: torch.device, generator: torch.Generator | None) -> torch.Tensor:
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.rand(count, generator=generator, dtype=dtype, device=device)


def _keyed_draws(query: Query, keys: Keys, view: TokenView, sampled: torch.Tensor) -> torch.Tensor:
    """The keyed numbers of all sampled items, in the order of ``tensor[sampled]``."""
    input_ids, ordinary = query.input_ids.cpu().numpy(), view.ordinary.cpu().numpy()
    first_sentence, drawn = view.first_sentence.cpu().numpy(), sampled.cpu().numpy()
    rows = np.flatnonzero(drawn.reshape(len(drawn), -1).any(axis=1))
    messages = text_messages(input_ids[rows], ordinary[rows], first_sentence[rows])
    if drawn.ndim == 1:
        counts, wanted = np.ones(len(rows), dtype=np.int64), np.ones(len(rows), dtype=bool)
    else:  # a token's place is counted in ordinary tokens, which no padding shifts
        counts, wanted = ordinary[rows].sum(axis=1), drawn[rows][ordinary[rows]]
    numbers = keyed_uniforms(_draw_keys(keys, rows), messages, counts)
    return torch.from_numpy(numbers[wanted])


def _draw_keys(keys: Keys, rows: np.ndarray) -> list[bytes]:
    """The sub-key that draws each row's labels."""
    if isinstance(keys, RingUsers):
        draw_keys = keys.subkeys(DRAWS)
        return [draw_keys[row] for row in rows]
    return [(keys if isinstance(keys, WatermarkKey) else keys[row]).subkey(DRAWS) for row in rows]
