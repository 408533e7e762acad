"""Replaying a claim for people and for scripts."""

from pathlib import Path
from typing import Annotated

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
    tokenizer: Annotated[
        str | None, shared.model_option("--tokenizer", "The protected model's tokenizer, where there is no --victim")
    ] = None,
    corpus: Annotated[str | None, shared.path_option("What the texts were drawn from, to draw them again.")] = None,
    reading: shared.Reading,
    probe_digest: Annotated[
        str | None, shared.name_option("The digest that a neutral party published of its probe.", "SHA256")
    ] = None,
    log: Annotated[
        Path | None,
        shared.folder_option("The log that the evidence rests on, with the stamps over its days.", "LOG"),
    ] = None,
    victim: Annotated[
        str | None, shared.model_option("--victim", "The clean model, or the protected one, whose weights a key names")
    ] = None,
    proof: Annotated[
        Path | None,
        shared.file_option("Of a ring's user: what drw-hf ring prove wrote. --repo then carries the root.", "JSON"),
    ] = None,
    trusted_beacon: Annotated[
        list[Path] | None,
        shared.file_option("Certificate of a randomness beacon that you trust. May be repeated.", "PEM"),
    ] = None,
    first_served: Annotated[
        str | None, shared.name_option("Of a seasoned key: when answers were first marked with it (UTC).", "DATE")
    ] = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Replay a claim: is saved evidence what its probe, its key and its commitment say?

    Checks that the key is the one the evidence names and was committed to before the suspect was first seen, that the
    parameters are the key's, that every figure follows from the saved probe, and that what was tried is declared. With
    --tokenizer also that the tokens are those of the texts and that its special tokens alone do not count, with
    --corpus that a public seed drew the texts, and with --probe-digest that the answers are those that a neutral party
    recorded. Of a seasoned key, that nobody chose its numbers. A log is its owner's word, and left open, unless --log
    shows all its lines under roots that an authority stamped before the suspect was seen.
    Exits with 0 if every check passed, 1 if one failed, 4 if none failed but some could not be decided.

    \b
    Example: drw-hf verify evidence.json --key my-key --repo me/protected --trusted-root tsa.pem
    """
    from ..asking.models import load_clean, load_tokenizer
    from ..detection.result import read_document
    from ..evidence.verify import verify_evidence
    from .inputs import parse_first_seen, read_proof
    from .passphrases import open_key

    first_seen = parse_first_seen(suspect_first_seen)  # before a passphrase is asked for
    served = parse_first_seen(first_served, "--first-served")
    shown = None if proof is None else read_proof(proof)
    read_document(evidence)  # and so is this
    opened = open_key(key, passphrase_file, whose)
    named = tokenizer or victim
    found = verify_evidence(
        evidence,
        key=opened,
        repo_id=repo,
        trusted_roots=trusted_root or (),
        suspect_first_seen=first_seen,
        tokenizer=None if named is None else load_tokenizer(named),
        corpus=None if corpus is None else reading.load(corpus, opened.task),
        probe_digest=probe_digest,
        log=log,
        victim=None if victim is None else load_clean(victim, opened.task, opened),
        proof=shown,
        trusted_beacons=trusted_beacon or (),
        first_served=served,
    )
    n = len(found.checks)
    if found.holds:
        conclusion, code = f"All {n} checks passed: the evidence may say what it says.", DONE
    elif found.failed:
        conclusion, code = f"{len(found.failed)} of {n} checks failed: do not rely on this evidence.", FAILED
    else:
        conclusion, code = f"Nothing failed, but {len(found.open)} of {n} checks could not be decided.", UNDECIDED
    return Outcome(found.to_dict(), f"{found}\n\n{conclusion}", code)
