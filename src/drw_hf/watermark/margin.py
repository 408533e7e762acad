"""Margin draws: where the two best classes are close, a keyed draw of the text decides between them.

For hard answers of the mark tilt. a and b are the two best classes of the calibrated, tilted distribution, d is how
far apart they are: b is answered with chance π = ½·max(0, 1 − d/δ), by a keyed number of the text. Who is asked loses
next to nothing, since the two were nearly as likely; who has logged the answers knows which way every draw fell.

Texts that are much alike are mostly answered alike, so that asking near-duplicates and taking the majority gains a
thief little. First, the number depends on little of a text: of a tagger's word on the tokens around it, of a sentence
on the few words that a keyed order puts first. One word more draws the two words beside it anew, or a sentence of n
words with chance 3/(n + 1). Second, the number u decides between two classes, whichever of them is ahead: the one of
the lower number is answered if u is below *its* chance. This chance passes through a half where the two change places,
so that the answer stays unless u lies in between.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..keys.derivation import to_unit_interval, token_entries

NEIGHBOURS = 1  # tokens on either side of a tagger's word that its draw depends on
WORDS = 3  # words of a sentence that its draw depends on
_NOBODY = -1  # stands where a text has no token any more


def best_two(log_y: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """The two best classes of the calibrated distribution, and how far apart their probabilities are.

    Shapes: ``log_y`` (..., m), on the CPU, the temperature one or (..., 1); the results (...).
    """
    p = torch.softmax(log_y.detach().double() / temperature, dim=-1).numpy()
    others, classes = log_y.detach().numpy().copy(), np.arange(log_y.shape[-1])
    first = np.asarray(others.argmax(-1))
    is_first = first[..., None] == classes
    others[is_first] = -np.inf
    second = np.asarray(others.argmax(-1))
    gap = p[is_first] - p[second[..., None] == classes]
    return torch.from_numpy(first), torch.from_numpy(second), torch.from_numpy(gap.reshape(first.shape))


def swap_chance(gap: Tensor, margin: Tensor | float) -> Tensor:
    """π = ½·max(0, 1 − d/δ), and 0 where δ is 0."""
    d, width = gap.numpy(), np.asarray(margin)
    return torch.from_numpy(np.where(width > 0, 0.5 * np.maximum(1.0 - d / np.maximum(width, 1e-300), 0.0), 0.0))


def between(first: np.ndarray, second: np.ndarray, chance: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The two best classes by their numbers, lower and higher, and the chance that the lower one is answered.

    The lower class is answered if the keyed number is below its chance, else the higher one.
    """
    lower, higher = np.minimum(first, second), np.maximum(first, second)
    return lower, higher, np.where(lower == second, chance, 1.0 - chance)


def draw_messages(
    token_ids: np.ndarray, offsets: np.ndarray, places: np.ndarray | None, order_keys: bytes | Sequence[bytes]
) -> list[bytes]:
    """What decides the draws: of the words at some places of a tagger's texts, or without places of every text."""
    if places is None:
        return first_words(token_ids, offsets, order_keys)
    return word_windows(token_ids, offsets, places)


def word_windows(token_ids: np.ndarray, offsets: np.ndarray, places: np.ndarray) -> list[bytes]:
    """What decides the draws of a tagger's words: each one's token and those around it, in order.

    ``token_ids`` are the ordinary tokens of all texts, text after text; the text of number i is
    ``token_ids[offsets[i]:offsets[i + 1]]``. ``places`` says which of ``token_ids`` are asked about.
    """
    if not len(token_ids):
        return [b""] * len(places)
    texts = np.searchsorted(offsets, places, side="right") - 1
    steps = np.arange(-NEIGHBOURS, NEIGHBOURS + 1)
    around = places[:, None] + steps
    inside = (around >= offsets[texts][:, None]) & (around < offsets[texts + 1][:, None])
    found = np.where(inside, token_ids[around.clip(0, len(token_ids) - 1)], _NOBODY)
    return [row.tobytes() for row in found.astype("<i4")]


def first_words(token_ids: np.ndarray, offsets: np.ndarray, order_keys: bytes | Sequence[bytes]) -> list[bytes]:
    """What decides the draw of every text: the few distinct ordinary tokens that a keyed order puts first.

    The order is that of one key, or of one key per text; arrays as for :func:`word_windows`.
    """
    counts = np.diff(offsets)
    if len(counts) == 1:
        (order_key,) = [order_keys] if isinstance(order_keys, bytes) else order_keys
        distinct = np.unique(token_ids)
        first = distinct[np.argsort(token_entries(order_key, distinct), kind="stable")[:WORDS]]
        return [np.append(first, [_NOBODY] * (WORDS - len(first))).astype("<i4").tobytes()]
    if isinstance(order_keys, bytes):
        distinct, index = np.unique(token_ids, return_inverse=True)
        ranks = token_entries(order_keys, distinct)[index]
    else:
        ranks = token_entries(order_keys, token_ids, counts.tolist())
    texts = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((token_ids, ranks, texts))
    ids, of_text = token_ids[order], texts[order]
    new = np.ones(len(ids), dtype=bool)
    new[1:] = (ids[1:] != ids[:-1]) | (of_text[1:] != of_text[:-1])
    ids, of_text = ids[new], of_text[new]
    begins = np.searchsorted(of_text, np.arange(len(counts) + 1))
    found = np.full((len(counts), WORDS), _NOBODY)
    for rank in range(WORDS):
        there = begins[:-1] + rank < begins[1:]
        found[there, rank] = ids[begins[:-1][there] + rank]
    return [row.tobytes() for row in found.astype("<i4")]


def keyed_numbers(draw_keys: bytes | Sequence[bytes], messages: Sequence[bytes]) -> np.ndarray:
    """A number in [0, 1) for every message, under one key or one key per message."""
    keys = [draw_keys] * len(messages) if isinstance(draw_keys, bytes) else draw_keys
    digests = [
        hashlib.blake2b(message, digest_size=8, key=key).digest() for key, message in zip(keys, messages, strict=True)
    ]
    return to_unit_interval(b"".join(digests))
