"""Keys and protected models on the Hub: pushing, pulling, model cards, auditing.

Pushing and pulling are methods: ``push_to_hub`` and ``from_pretrained`` of models and keys.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .auditing import Audit, Finding, audit
    from .card import model_card
    from .handler import handler_files

__all__ = ["Audit", "Finding", "audit", "handler_files", "model_card"]

# A model that is loaded looks for its key through this package, and needs nothing else of it.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "Audit": "auditing",
        "Finding": "auditing",
        "audit": "auditing",
        "handler_files": "handler",
        "model_card": "card",
        "verify_commitment": ".evidence.commitments",  # by this name it stands in cards that were pushed earlier
    },
)
