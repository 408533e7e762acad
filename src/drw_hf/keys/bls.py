"""BLS signatures on the curve BLS12-381, as drand makes them: verified by py_ecc, the extra ``drw_hf[drand]``.

Nothing secret is in play, so that it does not matter how long anything takes; a signature takes half a second.
"""

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

_IN_G1, _IN_G2 = 48, 96  # bytes of a compressed point
_DEEP = 3_000  # calls within calls, the caller's included; a verification takes some 400
_ALONE = threading.Lock()  # the limit is the process's
_DOMAIN = "BLS_SIG_BLS12381G{}_XMD:SHA-256_SSWU_RO_NUL_"  # RFC 9380


@lru_cache(maxsize=64)
def verify(public_key: bytes, message: bytes, signature: bytes) -> bool | None:
    """Whether a signature is right: it lies in G1 and the key in G2, or the other way round.

    None where py_ecc is not installed.
    """
    if sorted((len(public_key), len(signature))) != [_IN_G1, _IN_G2]:
        return False
    with _deep_recursion():
        return _verified(public_key, message, signature)


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Let py_ecc's powers recurse, and nothing else.

    It raises the limit of the whole process when it is imported, with which a hostile document, of a hundred thousand
    brackets, would overflow the stack of whoever reads it later.
    """
    with _ALONE:
        usual = sys.getrecursionlimit()
        sys.setrecursionlimit(max(usual, _DEEP))
        try:
            yield
        finally:
            sys.setrecursionlimit(usual)


def _verified(public_key: bytes, message: bytes, signature: bytes) -> bool | None:
    try:
        from py_ecc.bls import hash_to_curve
        from py_ecc.bls.g2_primitives import subgroup_check
        from py_ecc.bls.point_compression import decompress_G1, decompress_G2
        from py_ecc.optimized_bls12_381 import FQ12, G1, G2, final_exponentiate, is_inf, neg, pairing
    except ImportError:
        return None

    def decompress(point: bytes) -> tuple:
        if len(point) == _IN_G1:
            return decompress_G1(int.from_bytes(point, "big"))
        return decompress_G2((int.from_bytes(point[:_IN_G1], "big"), int.from_bytes(point[_IN_G1:], "big")))

    try:
        key, signed = decompress(public_key), decompress(signature)
    except ValueError:
        return False
    if any(is_inf(point) or not subgroup_check(point) for point in (key, signed)):
        return False
    if len(signature) == _IN_G1:
        hashed = hash_to_curve.hash_to_G1(message, _DOMAIN.format(1).encode(), hashlib.sha256)
        product = pairing(G2, signed, False) * pairing(key, neg(hashed), False)
    else:
        hashed = hash_to_curve.hash_to_G2(message, _DOMAIN.format(2).encode(), hashlib.sha256)
        product = pairing(signed, G1, False) * pairing(hashed, neg(key), False)
    return bool(final_exponentiate(product) == FQ12.one())
