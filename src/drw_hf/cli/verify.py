"""Replaying a claim for people and for scripts."""

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from ..detection.result import as_iso
from ..errors import InvalidInputError
from ..evidence.verify import Verification, verify_evidence
from .output import FAILED, UNDECIDED
from .passphrases import open_key


def run(
    evidence: Path,
    *,
    key: str,
    repo_id: str | None,
    trusted_roots: Sequence[Path],
    suspect_first_seen: str | None,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Print what :func:`drw_hf.evidence.verify_evidence` finds, and exit with 0, 1 or 4."""
    try:
        first_seen = None if suspect_first_seen is None else as_iso(suspect_first_seen, "--suspect-first-seen")
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None
    found = verify_evidence(
        evidence,
        key=open_key(key, passphrase_file),
        repo_id=repo_id,
        trusted_roots=trusted_roots,
        suspect_first_seen=first_seen,
    )
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else f"{found}\n\n{_conclusion(found)}")
    if not found.holds:
        raise typer.Exit(FAILED if found.failed else UNDECIDED)


def _conclusion(found: Verification) -> str:
    if found.holds:
        return f"All {len(found.checks)} checks passed: the evidence may say what it says."
    if found.failed:
        return f"{len(found.failed)} of {len(found.checks)} checks failed: do not rely on this evidence."
    return f"Nothing failed, but {len(found.open)} of {len(found.checks)} checks could not be decided."
