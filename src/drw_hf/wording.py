"""Small probabilities as people read them, from their log₁₀ (many are far below the smallest float), and safe text."""

import math


def _decimal_parts(log10_p: float, *, up: bool = False) -> tuple[float, int]:
    """Mantissa, to two digits, and exponent; ``up`` rounds up, so that what is said is never below what is meant."""
    exponent = math.floor(log10_p)
    tenths = 10.0 * 10.0 ** (log10_p - exponent)
    tenths = math.ceil(tenths - 1e-9) if up else round(tenths)
    return (1.0, exponent + 1) if tenths >= 100 else (tenths / 10.0, exponent)


def small_p(log10_p: float, *, up: bool = False) -> str:
    """A p-value to two digits, as people read and programs parse it: ``0.024``, ``4e-53``, ``3.2e-1800``.

    What is said to be *at most* so much is rounded ``up``.
    """
    mantissa, exponent = _decimal_parts(log10_p, up=up)
    return f"{mantissa * 10.0**exponent:.2g}" if exponent >= -3 else f"{mantissa:g}e{exponent}"


def one_in(log10_p: float) -> str:
    """A chance in words, never smaller than it is: ``3 in 100``, ``one in 4,100``, ``one in 1e17``."""
    if log10_p > -1.0:
        return f"{math.ceil(100.0 * 10.0**log10_p - 1e-9)} in 100"
    if log10_p <= -7.0:
        return f"one in 1e{int(-log10_p + 1e-9)}"
    whole = int(10.0**-log10_p * (1.0 + 1e-9))
    unit = 10 ** max(len(str(whole)) - 2, 0)
    return f"one in {whole // unit * unit:,}"


def printable(text: str) -> str:
    """Text on one line: what others wrote must not draw on a terminal, or turn the direction of writing."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
