"""From 32 secret bytes to the numbers a key gives to tokens.

Everything random about a key comes from AES-256 in counter mode, under a sub-key that HKDF-SHA256 derives from the
secret for each use (its *domain*). The streams of numpy and torch generators may change between versions; this one
may not: ``tests/vectors`` holds it to the bit, and a key made today hashes the same way in ten years.

A token's numbers sit in the counter blocks of its id, so the entries of a few tokens cost a few blocks and the whole
table is never needed for them.
"""

import hmac
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SECRET_BYTES = 32
BLOCK_BYTES = 16  # one AES block: two 64-bit numbers
_SALT = b"drw-hf key derivation v1"
TABLES = "direct/tables"
TILT_PHASES = "tilt/phases"
TILT_SELECTION = "tilt/selection"
MARGIN_DRAWS = "tilt/margin draws"
MARGIN_ORDER = "tilt/margin order"
DRAWS = "hard labels"
LOGGED_TEXTS = "query log/texts"
MATRIX = "paper/M"
Hashes = tuple[np.ndarray, np.ndarray]  # the phase and the selection hash of some tokens
_ROWS_AT_ONCE = 512  # bounds the memory of deriving M; small enough for the cache, and for torch to use one thread


def is_hexadecimal(text: Any) -> bool:
    """Whether this is a text of 32 bytes (a secret, a hash), in hexadecimal digits of lower case."""
    return isinstance(text, str) and len(text) == 2 * SECRET_BYTES and set(text) <= set("0123456789abcdef")


def subkey(secret: bytes, domain: str) -> bytes:
    """A 32-byte key for one use, from which neither the secret nor any other use's key can be computed."""
    return expand(extract(secret), domain.encode())


def extract(secret: bytes) -> bytes:
    """The first half of HKDF, once for each secret of which many sub-keys are wanted."""
    return hmac.digest(_SALT, secret, "sha256")


def expand(extracted: bytes, domain: bytes) -> bytes:
    """The second half of HKDF, for 32 bytes: a single block, numbered 1."""
    return hmac.digest(extracted, domain + b"\x01", "sha256")


def keystream(stream_key: bytes, first_block: int, n_blocks: int) -> bytes:
    """``n_blocks`` consecutive 16-byte blocks of the AES-256-CTR stream of ``stream_key``."""
    cipher = Cipher(algorithms.AES256(stream_key), modes.CTR(first_block.to_bytes(BLOCK_BYTES, "big")))
    return cipher.encryptor().update(bytes(n_blocks * BLOCK_BYTES))


def keystream_blocks(stream_key: bytes, blocks: np.ndarray) -> bytes:
    """The same stream at block numbers in any order: counter mode is the cipher applied to the counters."""
    if len(blocks) and (np.diff(blocks) == 1).all():
        return keystream(stream_key, int(blocks[0]), len(blocks))  # the same, faster
    return encrypted(stream_key, counters(blocks)).tobytes()


def counters(lower: np.ndarray, upper: np.ndarray | int = 0) -> np.ndarray:
    """Block numbers as the cipher's input, shape (..., 2): the halves of each, most significant byte first."""
    # The bytes are swapped before they are repeated.
    first, second = (np.asarray(half, dtype=">u8").view(np.uint64) for half in (upper, lower))
    blocks = np.empty((*np.broadcast(first, second).shape, 2), dtype=np.uint64)
    blocks[..., 0], blocks[..., 1] = first, second
    return blocks


def encrypted(
    stream_keys: bytes | Sequence[bytes], blocks: np.ndarray, counts: Sequence[int] | None = None
) -> np.ndarray:
    """The stream at the blocks whose counters these are, as uint64, of the same shape.

    With several keys ``blocks`` is cut into parts, one per key and of ``counts`` entries each.
    """
    if isinstance(stream_keys, bytes):
        stream_keys, counts = [stream_keys], [len(blocks)]
    given, width = blocks.reshape(-1), blocks[:1].size
    stream = np.empty(given.size + 2, dtype=np.uint64)  # the cipher wants room for one more block
    start = 0
    for stream_key, count in zip(stream_keys, counts or (), strict=True):
        end = start + width * count
        if count:
            cipher = Cipher(algorithms.AES256(stream_key), modes.ECB())
            cipher.encryptor().update_into(given[start:end].view(np.uint8).data, stream[start:].view(np.uint8).data)
        start = end
    return stream[: given.size].reshape(blocks.shape)


def to_unit_interval(stream: bytes | np.ndarray) -> np.ndarray:
    """Eight bytes per number, uniform on [0, 1): the top 53 bits of a little-endian 64-bit integer."""
    return (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)) * 2.0**-53


def direct_entries(secret: bytes, token_ids: np.ndarray) -> Hashes:
    """Phase and selection hashes of some tokens under law ``direct``: two independent uniform draws each."""
    pairs = to_unit_interval(keystream_blocks(subkey(secret, TABLES), token_ids)).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def class_entries(
    stream_keys: bytes | Sequence[bytes],
    token_ids: np.ndarray,
    n_classes: int,
    counts: Sequence[int] | None = None,
) -> np.ndarray:
    """One uniform number on [0, 1) per (token, class), shape (tokens, classes); several keys as in :func:`encrypted`.

    A token's id is the upper half of the counter. A block serves two classes, so the lower half is half the class, and
    the numbers of a class do not depend on how many classes there are.
    """
    blocks = counters(np.arange((n_classes + 1) // 2), token_ids[:, None])
    numbers = to_unit_interval(encrypted(stream_keys, blocks, counts))
    return numbers.reshape(len(token_ids), n_classes + n_classes % 2)[:, :n_classes]


def token_entries(
    stream_keys: bytes | Sequence[bytes], token_ids: np.ndarray, counts: Sequence[int] | None = None
) -> np.ndarray:
    """One uniform number on [0, 1) per token, the first of its block; several keys as in :func:`encrypted`."""
    return to_unit_interval(encrypted(stream_keys, counters(token_ids), counts)).reshape(-1, 2)[:, 0]


def paper_vectors(secret: bytes, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The phase vector v_k and the selection vector v_s, uniform on [0, 1)."""
    streams = (keystream(subkey(secret, domain), 0, (dimension + 1) // 2) for domain in ("paper/v_k", "paper/v_s"))
    v_k, v_s = (to_unit_interval(stream)[:dimension] for stream in streams)
    return v_k, v_s


def paper_matrix_rows(stream_key: bytes, token_ids: np.ndarray, dimension: int) -> np.ndarray:
    """Rows of the token matrix M, standard normal; ``stream_key`` is the secret's sub-key for :data:`MATRIX`."""
    even, odd = _normal_columns(stream_key, token_ids, dimension)
    return np.stack([even, odd], axis=-1).reshape(len(token_ids), 2 * even.shape[1])[:, :dimension]


def paper_entries(stream_key: bytes, token_ids: np.ndarray, v_k: np.ndarray, v_s: np.ndarray) -> Hashes:
    """Phase and selection hashes of some tokens under law ``paper``, without the rows of M being put together."""
    dimension = len(v_k)
    vectors = np.zeros((dimension + -dimension % 4, 2))  # M is derived four columns at a time
    vectors[:dimension] = np.stack([v_k, v_s], axis=1)

    def hashes_of(chunk: np.ndarray) -> Hashes:
        even, odd = _normal_columns(stream_key, chunk, dimension)
        return _hashes(even @ vectors[0::2] + odd @ vectors[1::2], dimension)

    return in_chunks(hashes_of, token_ids)


def _normal_columns(stream_key: bytes, token_ids: np.ndarray, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The even and the odd columns of some rows of M: four 32-bit numbers per block, two by two through Box-Muller."""
    blocks_per_row = (dimension + 3) // 4
    blocks = token_ids[:, None] * blocks_per_row + np.arange(blocks_per_row)
    pairs = np.frombuffer(keystream_blocks(stream_key, blocks.ravel()), dtype="<u4").reshape(-1, 2)
    # In place, since passing over memory is what most of the time goes into.
    radius, angle = numbers = np.empty((2, len(pairs)))
    np.multiply(pairs.T, 2.0**-32, out=numbers)
    numbers += 2.0**-33
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle *= 2.0 * math.pi
    turned = torch.from_numpy(angle)  # torch's cosine and sine are several times as fast as numpy's
    even, odd = torch.cos(turned).numpy(), torch.sin(turned).numpy()
    even *= radius
    odd *= radius
    shape = len(token_ids), 2 * blocks_per_row  # a number each, not −1: there may be no tokens
    return even.reshape(shape), odd.reshape(shape)


def project(rows: np.ndarray, v_k: np.ndarray, v_s: np.ndarray) -> Hashes:
    """The paper's hash g(v, x, M) = Φ(v·M_i / √(n/3)) of every row, for the phase and the selection vector."""
    return _hashes(rows @ np.stack([v_k, v_s], axis=1), len(v_k))


def _hashes(products: np.ndarray, dimension: int) -> Hashes:
    hashes = torch.special.ndtr(torch.from_numpy(products / math.sqrt(dimension / 3.0))).numpy()
    np.minimum(hashes, np.nextafter(1.0, 0.0), out=hashes)  # Φ rounds to 1 beyond 8.3 σ, and g lies in [0, 1)
    return hashes[:, 0], hashes[:, 1]


def in_chunks(hashes_of: Callable[[np.ndarray], Hashes], token_ids: np.ndarray) -> Hashes:
    """Phase and selection hashes of many tokens, some hundred tokens at a time."""
    chunks = np.array_split(token_ids, max(1, math.ceil(len(token_ids) / _ROWS_AT_ONCE)))
    phases, selections = zip(*map(hashes_of, chunks), strict=True)
    return np.concatenate(phases), np.concatenate(selections)


def token_order(secret: bytes, vocab_size: int) -> np.ndarray:
    """A secret number for every token, by which the hash rule ``keyed`` orders them."""
    return order_from(subkey(secret, "rule/keyed"), vocab_size)


def order_from(stream_key: bytes, vocab_size: int) -> np.ndarray:
    """The same from the sub-key itself, which the users of a key ring share."""
    return to_unit_interval(keystream(stream_key, 0, vocab_size))[::2].copy()
