"""Keys and protected models on the Hub: auditing it, commitments and their time stamps, replaying evidence.

Pushing and pulling are methods: ``push_to_hub`` and ``from_pretrained`` of models and keys.
"""

import importlib
from typing import Any

# A model that is loaded looks for its key through this package, and needs nothing of detection and datasets for it.
_LAZY = {
    "Audit": "auditing",
    "Check": "evidence",
    "CommitmentRecord": "commitments",
    "Finding": "auditing",
    "NotCommitted": "commitments",
    "Timestamp": "timestamps",
    "Verification": "evidence",
    "audit": "auditing",
    "publish_commitment": "commitments",
    "verify_commitment": "commitments",
    "verify_evidence": "evidence",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
