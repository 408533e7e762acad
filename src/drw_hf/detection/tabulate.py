"""Findings as a pandas table: a row for each, with the figures that people tabulate, and nothing of the key."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from pandas import DataFrame

    from .result import DetectionResult

FIGURES = (
    "suspect verdict p_value p_bound log10_p log10_bound z_score p_snr n_probes n_tokens n_effective n_queries "
    "tokens_needed level keys_tried suspects_tested looks statistic variant key_fingerprint committed created_at"
).split()


def figures_of(result: "DetectionResult") -> dict[str, Any]:
    """The columns of a detection."""
    return {name: getattr(result, name) for name in FIGURES}


def table_of(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Rows as a table."""
    try:
        import pandas
    except ImportError:
        raise ConfigurationError("to_frame makes a pandas table; install it with `pip install pandas`") from None
    return pandas.DataFrame([*rows])
