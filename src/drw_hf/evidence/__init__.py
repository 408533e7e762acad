"""What convinces a third party: commitments and their time stamps, figures, reports, and replaying a claim."""

from typing import TYPE_CHECKING

from ..lazy import lazy

if TYPE_CHECKING:
    from .check import Check
    from .commitments import CommitmentRecord, NotCommitted, publish_commitment, verify_commitment
    from .log_roots import ProvenLines
    from .timestamps import Timestamp, verify_timestamp
    from .verify import Verification, verify_evidence

__all__ = [
    "Check",
    "CommitmentRecord",
    "NotCommitted",
    "ProvenLines",
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
        "Check": "check",
        "ProvenLines": "log_roots",
        **dict.fromkeys(("Timestamp", "verify_timestamp"), "timestamps"),
        **dict.fromkeys(("Verification", "verify_evidence"), "verify"),
    },
)
