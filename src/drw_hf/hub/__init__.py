"""Keys and protected models on the Hub: auditing it, commitments and their time stamps, replaying evidence.

Pushing and pulling are methods: ``push_to_hub`` and ``from_pretrained`` of models and keys.
"""

from .audit import Audit, Finding, audit
from .commitments import CommitmentRecord, NotCommitted, publish_commitment, verify_commitment
from .evidence import Check, Verification, verify_evidence
from .timestamps import Timestamp

__all__ = [
    "Audit",
    "Check",
    "CommitmentRecord",
    "Finding",
    "NotCommitted",
    "Timestamp",
    "Verification",
    "audit",
    "publish_commitment",
    "verify_commitment",
    "verify_evidence",
]
