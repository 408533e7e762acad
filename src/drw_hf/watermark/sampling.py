"""Hard labels: one class drawn from ŷ, by a keyed function of the text rather than by chance.

The same text gets the same label in any batch and with any padding, so asking again and averaging the answers gains a
thief nothing. The draw is a function of the key, the ordinary tokens in order, the boundary between two texts and the
position; nothing else.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..keys.derivation import keystream, to_unit_interval
from .mark import SMALLEST_LOG

_BOUNDARY = -1  # stands in a message where one text of a pair ends and the other begins


def text_message(token_ids: np.ndarray, ordinary: np.ndarray, first_sentence: np.ndarray) -> bytes:
    """What of a row decides its draws: its ordinary token ids in order, and where the second text of a pair begins."""
    first, second = token_ids[first_sentence], token_ids[ordinary & ~first_sentence]
    parts = [first, [_BOUNDARY], second] if len(second) else [first]
    return np.concatenate(parts).astype("<i4").tobytes()


def text_messages(token_ids: np.ndarray, ordinary: np.ndarray, first_sentence: np.ndarray) -> list[bytes]:
    """The messages of a batch, row by row; single texts are cut out of one array."""
    if (ordinary & ~first_sentence).any():
        return [text_message(*row) for row in zip(token_ids, ordinary, first_sentence, strict=True)]
    every = token_ids[ordinary].astype("<i4").tobytes()
    ends = 4 * ordinary.sum(axis=1).cumsum()
    return [every[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def keyed_uniforms(
    draw_keys: Sequence[bytes], messages: Sequence[bytes], counts: Sequence[int] | np.ndarray
) -> np.ndarray:
    """Numbers in [0, 1) for the positions of texts, one text after the other, the same everywhere and for ever.

    For every text: its key's sub-key for :data:`~drw_hf.keys.derivation.DRAWS`, its :func:`text_message`, and how many
    numbers it needs.
    """
    streams = []
    for draw_key, message, count in zip(draw_keys, messages, counts, strict=True):
        seed = hashlib.blake2b(message, digest_size=32, key=draw_key).digest()
        streams.append(keystream(seed, 0, (int(count) + 1) // 2)[: 8 * int(count)])
    return to_unit_interval(b"".join(streams))


def draw(log_y: Tensor, uniform: Tensor) -> Tensor:
    """The class (int64) in whose stretch of the cumulated ŷ the number in [0, 1) falls, for every item."""
    cumulated = log_y.detach().double().exp().cpu().numpy().cumsum(-1)
    total = cumulated[..., -1:]
    largest = total * (1.0 - np.finfo(np.float64).eps)  # a draw that rounds up to 1 is not beyond the last class
    threshold = np.minimum(uniform.double().cpu().numpy()[..., None] * total, largest)
    return torch.as_tensor(np.minimum((cumulated <= threshold).sum(-1), cumulated.shape[-1] - 1))


def hard_output(labels: Tensor, n_classes: int) -> Tensor:
    """Logits that say one label and nothing else: 0 for it, −10⁴ for the others."""
    output = torch.full((*labels.shape, n_classes), SMALLEST_LOG, dtype=torch.float32, device=labels.device)
    return output.scatter_(-1, labels.unsqueeze(-1), 0.0)
