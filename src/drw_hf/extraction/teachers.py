"""Kept for handlers that were pushed before this name moved: they run where they were deployed, and import it here."""

from ..asking import max_length_of

__all__ = ["max_length_of"]
