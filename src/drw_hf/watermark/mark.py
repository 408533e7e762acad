"""`Mark`: what every mark is, and how one is registered."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InvalidKeyError
from ..keys.binding import Binding
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.settings import MARKS, MarkSettings
from .tokens import Query, TokenView

_OTHER_FIELDS = {"secret", "key_id", "ring_id", "created_at", "arrays", "arrays_digest", "epochs"}  # of a key's file
SMALLEST_LOG = -1e4  # e to this power is 0 in float32, and unlike log 0 it has a gradient and a finite loss


@dataclass(frozen=True)
class RingUsers:
    """The users of a key ring whose keys mark a batch: one, or one for every row.

    Without an epoch they are those of the ring's present one, whichever that is when they are asked for. A ring may be
    rotated while a context of ``use_key`` is open, or by another thread: whoever marks a batch takes :meth:`for_rows`.
    """

    ring: KeyRing
    users: str | tuple[str, ...]
    epoch: int | None = None

    def for_rows(self, n_rows: int) -> "RingUsers":
        """A user for every row, also where it is the same one for all, in the ring's present epoch.

        It stays theirs, so that all that marks a batch is of one epoch.
        """
        users = (self.users,) * n_rows if isinstance(self.users, str) else self.users
        return RingUsers(self.ring, users, self.ring.epoch)

    @property
    def template(self) -> WatermarkKey:
        """What the keys of all users have in common."""
        return self.ring.template(self.epoch)

    def keys(self) -> list[WatermarkKey]:
        """The users' keys: one, or one for every row."""
        users = [self.users] if isinstance(self.users, str) else self.users
        return [self.ring.key_for(user, self.epoch) for user in users]

    def subkeys(self, domain: str) -> list[bytes]:
        """For every row its user's sub-key for one use: making whole keys would cost more than marking."""
        return self.ring.subkeys(self.users, domain, self.epoch)

    def stream_keys(self, domain: str) -> bytes | list[bytes]:
        """The same, as the streams of :mod:`drw_hf.keys.derivation` take them: one where it is one user's."""
        if len(set(self.users)) == 1:
            return self.ring.subkeys(self.users[:1], domain, self.epoch)[0]
        return self.subkeys(domain)


class Mark(ABC):
    """How a key's signal gets into a model's answers.

    A mark is one class, registered with :func:`register_mark`; keys name it (``mark="cosine"``). What it does to an
    answer depends on the answer, the text and the key alone, never on the batch. Once released it never changes what
    it does.

    Attributes
    ----------
    name : str
        What keys call it.
    settings_class : type
        :class:`~drw_hf.keys.MarkSettings`, or a subclass of it (a frozen dataclass) that adds the mark's own settings,
        each with a default. They are given by name when a key is made, saved in it and covered by its commitment.
    has_target : bool
        Whether one class is the target (``key.target``); False for marks that every class carries.
    hash_rule : str
        The hash rule that keys for sentence tasks have unless another one is asked for.
    digits : int
        To how many digits scores are rounded unless something else is asked for; 0 for not at all.
    draws_hard_answers : bool
        How hard labels come from ŷ. True: a marked item's label is drawn from it, by a keyed function of the text.
        False: it is the class of highest ŷ, but for :meth:`close_calls`.
    """

    name: ClassVar[str]
    settings_class: ClassVar[type[MarkSettings]] = MarkSettings
    has_target: ClassVar[bool] = True
    hash_rule: ClassVar[str] = "second"
    digits: ClassVar[int] = 0
    draws_hard_answers: ClassVar[bool] = False

    def defaults(self, config: Any, tokenizer: Any) -> dict[str, Any]:
        """Settings that come from the model's configuration and its tokenizer (None where it is not known)."""
        return {}

    def warn_of(self, given: Mapping[str, Any]) -> None:  # noqa: B027 (most marks do well with their defaults)
        """Warn of what should have been said when a key is made; ``given`` are the settings that were."""

    def check(self, settings: MarkSettings, binding: Binding) -> None:  # noqa: B027 (most marks suit every model)
        """Raise :class:`~drw_hf.errors.InvalidKeyError` for settings that do not suit the mark, or the model."""

    @abstractmethod
    def apply(self, logits: Tensor, query: Query, view: TokenView, key: WatermarkKey) -> tuple[Tensor, Tensor]:
        """Mark a batch with one key.

        Parameters
        ----------
        logits : Tensor, shape (batch, m) or (batch, length, m)
            The model's own, of any float type.
        query : Query
            What was asked.
        view : TokenView
            Which of its tokens are words, neither padding nor special.
        key : WatermarkKey
            Its ``settings`` are of :attr:`settings_class`. What is derived from it, and costs time, can be kept with
            :func:`~drw_hf.watermark.tokens.on_device`.

        Returns
        -------
        log_y : Tensor, like ``logits``, float32
            log ŷ, at least ``SMALLEST_LOG``; for unmarked items log p̂.
        marked : Tensor of bool, shape (batch,) or (batch, length)
            Which items carry the mark.
        """

    def draws(self, settings: MarkSettings) -> bool:
        """Whether any hard answer is drawn, so that a log of what was served is evidence of its own."""
        return self.draws_hard_answers

    def close_calls(self, log_y: Tensor, settings: Sequence[MarkSettings]) -> tuple[Tensor, Tensor, Tensor] | None:
        """Which hard answers are drawn between the two best classes, of marks whose hard answer is the highest ŷ.

        The settings are one for all rows, or one per row. Returns for every item, on the CPU, the two best classes and
        the chance that the second is answered with; None where nothing is ever drawn, as by default.
        """
        return None

    def apply_rows(
        self, logits: Tensor, query: Query, view: TokenView, keys: Sequence[WatermarkKey]
    ) -> tuple[Tensor, Tensor]:
        """Mark every row with its own key; by default :meth:`apply` for each distinct key.

        All keys are of this mark and have the same binding.
        """
        rows_of, back = by_group(keys, query.input_ids.device)
        parts = [self.apply(logits[rows], query.rows(rows), view.rows(rows), key) for key, rows in rows_of]
        return torch.cat([log_y for log_y, _ in parts])[back], torch.cat([marked for _, marked in parts])[back]

    def apply_users(self, logits: Tensor, query: Query, view: TokenView, users: RingUsers) -> tuple[Tensor, Tensor]:
        """Mark every row with its user's key of a ring; by default :meth:`apply_rows` with the whole keys."""
        return self.apply_rows(logits, query, view, users.keys())


def by_group(groups: Iterable[Hashable], device: torch.device) -> tuple[list[tuple[Any, Tensor]], Tensor]:
    """The rows of each group, and the order that brings rows which were put together group by group back."""
    rows_of: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        rows_of.setdefault(group, []).append(row)
    order = torch.tensor([row for rows in rows_of.values() for row in rows], device=device)
    return [(group, torch.tensor(rows, device=device)) for group, rows in rows_of.items()], torch.argsort(order)


def register_mark(mark: type[Mark]) -> type[Mark]:
    """Make a mark known by its name, so that keys can use it: a decorator for its class.

    The module that does so must be imported wherever such a key is made or loaded.
    """
    shared = {field.name for field in dataclasses.fields(MarkSettings)}
    own = {field.name for field in dataclasses.fields(mark.settings_class)} - shared
    taken = own & ({field.name for field in dataclasses.fields(Binding)} | _OTHER_FIELDS)
    if taken:
        raise InvalidKeyError(
            f"{mark.settings_class.__name__} has settings named {sorted(taken)}, as other fields of a key are; choose "
            "other names, or the commitment would not cover them"
        )
    if mark.name not in MARKS or type(MARKS.get(mark.name)) is not mark:
        MARKS.add(mark.name, mark(), InvalidKeyError)
    return mark
