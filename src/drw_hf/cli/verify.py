"""Replaying a claim for people and for scripts."""

from . import options as shared
from .output import DONE, FAILED, UNDECIDED, Outcome, prints_outcome


@prints_outcome
def verify(
    evidence: shared.Evidence,
    key: shared.KeyOrRing,
    *,
    whose: shared.WhoseKey,
    repo: shared.CommitmentRepo = None,
    trusted_root: shared.TrustedRoots = None,
    suspect_first_seen: shared.FirstSeen = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Replay a claim: is saved evidence what its probe, its key and its commitment say?

    Checks that the key is the one the evidence names and was committed to before the suspect was first seen, that the
    parameters are the key's, that every figure follows from the saved probe, and that what was tried is declared.
    Exits with 0 if every check passed, 1 if one failed, 4 if none failed but some could not be decided.

    \b
    Example: drw-hf verify evidence.json --key my-key --repo me/protected --trusted-root tsa.pem
    """
    from ..detection.result import read_document
    from ..evidence.verify import verify_evidence
    from .inputs import parse_first_seen
    from .passphrases import open_key

    first_seen = parse_first_seen(suspect_first_seen)  # before a passphrase is asked for
    read_document(evidence)  # and so is this
    found = verify_evidence(
        evidence,
        key=open_key(key, passphrase_file, whose),
        repo_id=repo,
        trusted_roots=trusted_root or (),
        suspect_first_seen=first_seen,
    )
    n = len(found.checks)
    if found.holds:
        conclusion, code = f"All {n} checks passed: the evidence may say what it says.", DONE
    elif found.failed:
        conclusion, code = f"{len(found.failed)} of {n} checks failed: do not rely on this evidence.", FAILED
    else:
        conclusion, code = f"Nothing failed, but {len(found.open)} of {n} checks could not be decided.", UNDECIDED
    return Outcome(found.to_dict(), f"{found}\n\n{conclusion}", code)
