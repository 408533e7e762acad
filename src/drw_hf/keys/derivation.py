"""From 32 secret bytes to the numbers a key gives to tokens.

Everything random about a key comes from AES-256 in counter mode, under a sub-key that HKDF-SHA256 derives from the
secret for each use (its *domain*). The streams of numpy and torch generators may change between versions; this one
may not: ``tests/vectors`` holds it to the bit, and a key made today hashes the same way in ten years.

A token's numbers sit in the counter blocks of its id, so the entries of a few tokens cost a few blocks and the whole
table is never needed for them.
"""

import hmac
import math
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SECRET_BYTES = 32
BLOCK_BYTES = 16  # one AES block: two 64-bit numbers
_SALT = b"drw-hf key derivation v1"
TABLES = "direct/tables"
DRAWS = "hard labels"
MATRIX = "paper/M"
_ROWS_AT_ONCE = 1024  # bounds the memory of deriving M; small enough for the cache, and for torch to use one thread


def subkey(secret: bytes, domain: str) -> bytes:
    """A 32-byte key for one use, from which neither the secret nor any other use's key can be computed."""
    return HKDF(algorithm=SHA256(), length=32, salt=_SALT, info=domain.encode()).derive(secret)


def extract(secret: bytes) -> bytes:
    """The first half of :func:`subkey`, for secrets of which many sub-keys are wanted."""
    return hmac.digest(_SALT, secret, "sha256")


def expand(extracted: bytes, domain: bytes) -> bytes:
    """The second half: ``expand(extract(secret), domain)`` is the secret's sub-key, several times as fast."""
    return hmac.digest(extracted, domain + b"\x01", "sha256")


def keystream(stream_key: bytes, first_block: int, n_blocks: int) -> bytes:
    """``n_blocks`` consecutive 16-byte blocks of the AES-256-CTR stream of ``stream_key``."""
    cipher = Cipher(algorithms.AES256(stream_key), modes.CTR(first_block.to_bytes(BLOCK_BYTES, "big")))
    return cipher.encryptor().update(bytes(n_blocks * BLOCK_BYTES))


def keystream_blocks(stream_key: bytes, blocks: np.ndarray) -> bytes:
    """The same stream at block numbers in any order: counter mode is the cipher applied to the counters."""
    return encrypted(stream_key, counters(blocks))


def counters(blocks: np.ndarray) -> bytes:
    """Block numbers as the cipher's input."""
    numbers = np.zeros((len(blocks), 2), dtype=">u8")
    numbers[:, 1] = blocks
    return numbers.tobytes()


def encrypted(stream_key: bytes, blocks: bytes) -> bytes:
    """The stream at the blocks whose counters these are."""
    return Cipher(algorithms.AES256(stream_key), modes.ECB()).encryptor().update(blocks)


def to_unit_interval(stream: bytes) -> np.ndarray:
    """Eight bytes a number, uniform on [0, 1): the top 53 bits of a little-endian 64-bit integer."""
    return (np.frombuffer(stream, dtype="<u8") >> np.uint64(11)) * 2.0**-53


def uniforms(stream_key: bytes, count: int) -> np.ndarray:
    """The first ``count`` numbers of a stream."""
    return to_unit_interval(keystream(stream_key, 0, (count + 1) // 2))[:count]


def direct_entries(secret: bytes, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Phase and selection hashes of some tokens under law ``direct``: two independent uniform draws each."""
    pairs = to_unit_interval(keystream_blocks(subkey(secret, TABLES), token_ids)).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def direct_tables(secret: bytes, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Phase and selection hashes of the whole vocabulary under law ``direct``."""
    pairs = to_unit_interval(keystream(subkey(secret, TABLES), 0, vocab_size)).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def paper_vectors(secret: bytes, dimension: int) -> tuple[np.ndarray, np.ndarray]:
    """The phase vector v_k and the selection vector v_s, uniform on [0, 1)."""
    v_k = uniforms(subkey(secret, "paper/v_k"), dimension)
    v_s = uniforms(subkey(secret, "paper/v_s"), dimension)
    return v_k, v_s


def paper_matrix_rows(stream_key: bytes, token_ids: np.ndarray, dimension: int) -> np.ndarray:
    """Rows of the token matrix M, standard normal: four 32-bit numbers a block, two by two through Box-Muller.

    ``stream_key`` is the secret's sub-key for :data:`MATRIX`.
    """
    blocks_a_row = (dimension + 3) // 4
    if len(token_ids) and (np.diff(token_ids) == 1).all():
        stream = keystream(stream_key, int(token_ids[0]) * blocks_a_row, len(token_ids) * blocks_a_row)
    else:
        blocks = token_ids[:, None] * blocks_a_row + np.arange(blocks_a_row)
        stream = keystream_blocks(stream_key, blocks.ravel())
    pairs = np.frombuffer(stream, dtype="<u4").reshape(-1, 2)
    uniform, turns = (pairs[:, column] * 2.0**-32 + 2.0**-33 for column in (0, 1))
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = torch.from_numpy(2.0 * math.pi * turns)
    normals = np.empty((len(pairs), 2))
    np.multiply(radius, torch.cos(angle).numpy(), out=normals[:, 0])  # torch's are several times as fast as numpy's
    np.multiply(radius, torch.sin(angle).numpy(), out=normals[:, 1])
    return normals.reshape(len(token_ids), -1)[:, :dimension]


def project(rows: np.ndarray, v_k: np.ndarray, v_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The paper's hash g(v, x, M) = Φ(v·M_i / √(n/3)) of every row, for the phase and the selection vector."""
    scale = math.sqrt(len(v_k) / 3.0)
    hashes = torch.special.ndtr(torch.from_numpy(rows @ np.stack([v_k, v_s], axis=1) / scale)).numpy()
    np.minimum(hashes, np.nextafter(1.0, 0.0), out=hashes)  # Φ rounds to 1 beyond 8.3 σ, and g lies in [0, 1)
    return hashes[:, 0], hashes[:, 1]


def projected_entries(
    rows_of: Callable[[np.ndarray], np.ndarray], token_ids: np.ndarray, v_k: np.ndarray, v_s: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Phase and selection hashes of some tokens under law ``paper``; ``rows_of`` gives M, some rows at a time."""
    chunks = np.array_split(token_ids, max(1, math.ceil(len(token_ids) / _ROWS_AT_ONCE)))
    hashes = [project(rows_of(chunk), v_k, v_s) for chunk in chunks]
    return np.concatenate([phase for phase, _ in hashes]), np.concatenate([selection for _, selection in hashes])


def token_order(secret: bytes, vocab_size: int) -> np.ndarray:
    """A secret number for every token, by which the hash rule ``keyed`` orders them."""
    return order_from(subkey(secret, "rule/keyed"), vocab_size)


def order_from(stream_key: bytes, vocab_size: int) -> np.ndarray:
    """The same from the sub-key itself, which the users of a key ring share."""
    return to_unit_interval(keystream(stream_key, 0, vocab_size))[::2].copy()
