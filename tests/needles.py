"""What a leak would look like: the byte strings of a key of which none may be found anywhere."""

import base64
from collections.abc import Iterable

import numpy as np

from drw_hf.keys import derivation
from drw_hf.watermark import tilt

DOMAINS = (
    "direct/tables",
    "hard labels",
    "query log/texts",
    "tilt/phases",
    "tilt/selection",
    "tilt/margin draws",
    "tilt/margin order",
)


def needles(key):
    """Byte strings of which none may be found."""
    found = {}
    base = {} if key.seasoning is None else {"base secret": key.seasoning.base_secret}
    for name, secret in {
        "secret": key.secret,
        **base,
        **{f"subkey {domain}": derivation.subkey(key.secret, domain) for domain in DOMAINS},
    }.items():
        found[f"{name} raw"] = secret
        found[f"{name} hex"] = secret.hex().encode()
        found[f"{name} HEX"] = secret.hex().upper().encode()
        found[f"{name} base64"] = base64.b64encode(secret)[:-2]
        found[f"{name} base64url"] = base64.urlsafe_b64encode(secret)[:-2]
        found[f"{name} repr"] = repr(secret).encode()
        found[f"{name} list"] = ", ".join(map(str, secret)).encode()
    arrays = {"phase": key.phase_table, "selection": key.selection_table}
    arrays["signal"] = np.cos(key.frequency * key.phase_table)
    if key.mark == "tilt":  # tables, and a column of one
        phase, signal = (function(key, range(key.vocab_size)) for function in (tilt.phases, tilt.signals))
        arrays |= {"tilt phase": phase.ravel(), "tilt signal": signal.ravel(), "tilt class": signal[:, 1]}
    if key.law == "paper":
        arrays |= {"v_k": key.v_k, "v_s": key.v_s, "M": key.M[10]}
    for name, array in arrays.items():
        telling = telling_entries(array)
        for dtype in ("<f4", "<f8"):
            found[f"{name} {dtype}"] = telling.astype(dtype).tobytes()
        found[f"{name} as text"] = max((repr(float(entry)) for entry in telling), key=len)[:12].encode()
    # Old pickle protocols, torch.save's among them, write bytes as text: each byte a Unicode character.
    return found | {f"{name}, in a pickle": needle.decode("latin-1").encode() for name, needle in found.items()}


def telling_entries(array, count=3):
    """Some entries in a row that stand nowhere by chance: the first from the middle on of which none is 0 or 1.

    Special tokens and those that are not selected have the signal 0; a "0.0" or a row of zeros is in every file.
    """
    array = np.asarray(array)
    middle = np.roll(array, -(len(array) // 2))
    runs = np.lib.stride_tricks.sliding_window_view(middle, count)
    plain = (runs == 0) | (runs == 1)
    return runs[np.argmin(plain.sum(axis=1))]


def leaks_in(key, contents: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """Where which needle was found, of (place, bytes) pairs; at least one pair must have been searched."""
    wanted, found, searched = needles(key), [], 0
    for place, data in contents:
        searched += 1
        found += [(place, name) for name, needle in wanted.items() if needle in data]
    assert searched, "nothing was written, so nothing was searched"
    return found
