"""What a leak would look like: the byte strings of a key of which none may be found anywhere."""

import base64
from collections.abc import Iterable

import numpy as np

from drw_hf.keys import derivation
from drw_hf.watermark import tilt

DOMAINS = ("direct/tables", "hard labels", "tilt/phases", "tilt/selection")


def needles(key):
    """Byte strings of which none may be found."""
    found = {}
    for name, secret in {
        "secret": key.secret,
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
        # Three entries in a row, from the middle: 12 bytes or more that do not stand anywhere by chance. (Not from the
        # beginning: special tokens stand there, whose signal is 0.)
        middle = len(array) // 2
        for dtype in ("<f4", "<f8"):
            found[f"{name} {dtype}"] = array[middle : middle + 3].astype(dtype).tobytes()
        found[f"{name} as text"] = repr(float(array[middle]))[:12].encode()
    # Old pickle protocols, torch.save's among them, write bytes as text: each byte a Unicode character.
    return found | {f"{name}, in a pickle": needle.decode("latin-1").encode() for name, needle in found.items()}


def leaks_in(key, contents: Iterable[tuple[str, bytes]]) -> list[tuple[str, str]]:
    """Where which needle was found, of (place, bytes) pairs; at least one pair must have been searched."""
    wanted, found, searched = needles(key), [], 0
    for place, data in contents:
        searched += 1
        found += [(place, name) for name, needle in wanted.items() if needle in data]
    assert searched, "nothing was written, so nothing was searched"
    return found
