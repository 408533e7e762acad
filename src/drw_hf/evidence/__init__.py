"""What convinces a third party: commitments and their time stamps, figures, reports, and replaying a claim."""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .commitments import CommitmentRecord, NotCommitted, publish_commitment, verify_commitment
    from .timestamps import Timestamp, verify_timestamp
    from .verify import Check, Verification, verify_evidence

__all__ = [
    "Check",
    "CommitmentRecord",
    "NotCommitted",
    "Timestamp",
    "Verification",
    "publish_commitment",
    "verify_commitment",
    "verify_evidence",
    "verify_timestamp",
]

# Who pushes a commitment needs nothing of detection and datasets.
__getattr__, __dir__ = lazy(
    __name__,
    {
        **dict.fromkeys(
            ("CommitmentRecord", "NotCommitted", "publish_commitment", "verify_commitment"), "commitments"
        ),
        **dict.fromkeys(("Timestamp", "verify_timestamp"), "timestamps"),
        **dict.fromkeys(("Check", "Verification", "verify_evidence"), "verify"),
    },
)
