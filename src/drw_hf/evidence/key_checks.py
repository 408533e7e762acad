"""Whether anybody chose a key's numbers: what `verify` looks at of the key itself.

The p-value speaks of keys that are drawn at random. Whoever chooses the arrays of a key, the tokens that do not count,
or one of a thousand million secrets, can make a key that accuses whom they like.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from huggingface_hub import HfApi

from ..checks import is_number
from ..detection.result import moment_of
from ..errors import HubError, InvalidInputError
from ..keys.binding import special_ids_of, tokenizer_digest, tokenizer_fingerprint, weights_digest
from ..keys.key import WatermarkKey
from ..keys.merkle import UserProof, verify_proof
from ..keys.rounds import DRAND, public_key_of
from ..keys.seasoning import Terms
from ..reading.files import MEBIBYTE, read_within
from ..repositories.history import History
from ..repositories.requests import commit_name, hub_errors
from .check import Check, Status
from .commitments import NotCommitted, verify_commitment

MARGIN = timedelta(minutes=10)  # between the stamp and the round, so that no clock and no early value matters
RANDOM = "the key was drawn at random"
COUNTED = "all keys that were committed to are declared as tried"


@dataclass(frozen=True)
class KeyContext:
    """What whoever verifies a claim knows of the key's past, and whom they trust.

    Attributes
    ----------
    repo_id, trusted_roots, token, revision
        As for :func:`drw_hf.evidence.verify_commitment`.
    trusted_beacons : sequence of path or bytes
        PEM files with certificates, or public keys, of beacons that are trusted. The chains of drand are known.
    tokenizer, victim
        The protected model's tokenizer, and the clean model in memory, to compare with what the key says of them.
    first_served : datetime or None
        When answers were first marked with the key.
    first_seen : datetime or None
        When the suspect was first seen.
    proof : UserProof or None
        Shows that the key was a declared user's of a ring.
    """

    repo_id: str | None = None
    trusted_roots: Sequence[str | os.PathLike | bytes] = ()
    token: str | bool | None = None
    revision: str | None = None
    trusted_beacons: Sequence[str | os.PathLike | bytes] = ()
    tokenizer: Any = None
    victim: Any = None
    first_served: datetime | None = None
    first_seen: datetime | None = None
    proof: UserProof | None = None

    def look_up(self, commitment: str) -> Any:
        """The record of a commitment in the repository."""
        assert self.repo_id is not None
        hub: dict[str, Any] = {"trusted_roots": self.trusted_roots, "token": self.token, "revision": self.revision}
        return verify_commitment(commitment, self.repo_id, **hub)


def check_key_itself(document: Mapping[str, Any], key: WatermarkKey, context: KeyContext) -> Iterator[Check]:
    """The checks of a key's own: its special tokens, its numbers, and its user."""
    yield _check_special_ids(key, context.tokenizer)
    if key.arrays is not None:
        why = "chosen by the owner: its arrays were made elsewhere, and a p-value says nothing of arrays that were"
        yield Check(RANDOM, "open", f"{why} made to fit")
    if key.seasoning is not None:
        yield Check(RANDOM, *_judge_seasoning(document, key, context))
        yield _check_terms(document, key.seasoning.terms, context)
    if key.seasoning is not None or (context.repo_id is not None and context.first_seen is not None):
        yield _check_counted(document, key, context)
    if context.proof is not None:
        yield _check_proof(document, key, context.proof)


def trusted_of_the_key(document: Mapping[str, Any], key: WatermarkKey, checks: Sequence[Check]) -> Iterator[str]:
    """What of a key no check can tell, in sentences."""
    if not any(check.name == RANDOM and check.status == "passed" for check in checks):
        yield (
            "The key was drawn at random: whoever may try secrets, arrays or special tokens can make one that accuses "
            "an unmarked suspect. A seasoned key shows that nobody did."
        )
    allowed = log10_allowed(document)
    if allowed is not None:
        prepared = "keys were tried" if key.seasoning is None else "commitments were prepared"
        yield f"No more than {count_in_words(allowed)} {prepared} in secret, of which this is the one that is shown."
    if key.seasoning is not None:
        yield f"The texts were chosen by the rule that was fixed beforehand: {key.seasoning.terms.texts}."


def log10_allowed(document: Mapping[str, Any]) -> float | None:
    """Of how many keys the best may be shown, and the finding still holds: level / p_bound; None for no finding."""
    level: Any = document.get("level")
    bound: Any = document.get("log10_bound")
    if document.get("verdict") != "detected" or not is_number(level) or not is_number(bound) or not 0.0 < level < 1.0:
        return None
    return max(0.0, math.log10(level) - bound)


def count_in_words(log10: float) -> str:
    """A large number in digits, or as a power of ten; rounded down."""
    return f"{int(10.0**log10 * (1 + 1e-9)):,}" if log10 < 6 else f"10^{int(log10)}"


# -- special tokens


def _check_special_ids(key: WatermarkKey, tokenizer: Any) -> Check:
    name = "the tokens that do not count are the tokenizer's special tokens"
    if tokenizer is None:
        return Check(name, "open", f"the key has {len(key.special_token_ids)}; give the tokenizer to compare them")
    if key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        return Check(name, "failed", "the tokenizer that was given is not the one that the key was made with")
    given = {index for index in special_ids_of(tokenizer) if index < key.vocab_size}
    chosen, missing = len(set(key.special_token_ids) - given), len(given - set(key.special_token_ids))
    if chosen or missing:
        differ = f"{chosen} of the key's are none, and {missing} are missing"
        return Check(name, "failed", f"{differ}: whoever chooses the tokens that count can make a key fit a suspect")
    return Check(name, "passed", f"all {len(given)}")


# -- seasoned keys


def _judge_seasoning(document: Mapping[str, Any], key: WatermarkKey, context: KeyContext) -> tuple[Status, str]:
    """Whether the round's value is the source's, and everything came in the order that left nobody a choice."""
    assert key.seasoning is not None
    round_ = key.seasoning.terms.round
    drawn = round_.time
    problems: list[tuple[Status, str]] = []
    if context.first_seen is not None and not drawn < context.first_seen:
        return (
            "failed",
            f"its round, {round_}, is not older than the suspect, which was first seen {context.first_seen}",
        )
    if context.first_served is not None:
        if not drawn < context.first_served:
            return "failed", f"it was first served {context.first_served}, before its round, {round_}"
        if context.first_seen is not None and not context.first_served < context.first_seen:
            return "failed", f"it was first served {context.first_served}, after the suspect was first seen"
    if drawn > datetime.now(UTC):
        return "failed", f"its round, {round_}, is yet to come"
    if context.first_seen is None:
        problems.append(("open", "neither the evidence nor the caller says when the suspect was first seen"))
    if not key.seasoning.value.verified:
        problems.append(("open", f"the signature of {round_} was not verified: install drw_hf[drand]"))
    elif round_.source not in DRAND and round_.public_key not in _trusted(context.trusted_beacons):
        problems.append(("open", "its round is signed by a beacon that you did not say you trust (trusted_beacons)"))
    problems += _judge_stamp(key, context, drawn)
    if problems:
        worst = next((one for one in problems if one[0] == "failed"), None)
        return worst or ("open", "; ".join(detail for _, detail in problems))
    allowed = log10_allowed(document)
    holds = "" if allowed is None else f"; holds unless more than {count_in_words(allowed)} commitments were prepared"
    return "passed", f"it was committed to more than 10 minutes before {round_}, whose value is part of it{holds}"


def _judge_stamp(key: WatermarkKey, context: KeyContext, drawn: datetime) -> list[tuple[Status, str]]:
    """Whether the commitment to the base secret was stamped before the round."""
    assert key.seasoning is not None
    committed = key.seasoning.commitment if context.proof is None else context.proof.root
    if context.proof is not None and not verify_proof(context.proof, key, context.proof.root):
        return [("failed", "the proof does not show that this key was declared")]
    if context.repo_id is None:
        return [("open", f"no repository with its earlier commitment, {committed[:16]}, is given")]
    try:
        record = context.look_up(committed)
    except NotCommitted as error:
        return [("failed", f"what was committed to before its round is not published: {error}")]
    except HubError as error:
        return [("open", str(error))]
    stamp = record.timestamp
    if stamp is not None and stamp.time + (stamp.accuracy or timedelta()) + MARGIN < drawn:
        return []
    if stamp is not None or not record.claimed_date + MARGIN < drawn:
        when = record.claimed_date if stamp is None else stamp.time
        return [("failed", f"it was committed to {when}, not 10 minutes before its round was drawn, {drawn}")]
    return [("open", f"that it was committed to before its round is the owner's word. {record.explanation}")]


def _trusted(beacons: Sequence[str | os.PathLike | bytes]) -> set[str]:
    """The keys of the beacons that a verifier trusts; an error where one cannot be read."""
    found = set()
    for source in [beacons] if isinstance(beacons, str | bytes | os.PathLike) else beacons:
        try:
            content = source if isinstance(source, bytes) else read_within(source, MEBIBYTE, InvalidInputError)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise InvalidInputError(f"the trusted beacon {source!s} cannot be read: {why}") from None
        found.add(public_key_of(content))
    return found


def _check_terms(document: Mapping[str, Any], terms: Terms, context: KeyContext) -> Check:
    """Whether model, tokenizer and statistic are those that were fixed before the round."""
    name = "model, tokenizer and statistic are those that were fixed before the key was drawn"
    wrong, unknown = [], []
    if document.get("statistic") not in terms.statistics:
        wrong.append(f"the statistic, which is none of {', '.join(terms.statistics)}")
    for what, given, digest, fixed in (
        ("the tokenizer", context.tokenizer, tokenizer_digest, terms.tokenizer),
        ("the clean model", context.victim, weights_digest, terms.weights),
    ):
        if given is None:
            unknown.append(what)
        elif digest(given) != fixed:
            wrong.append(what)
    if wrong:
        return Check(name, "failed", f"another one: {'; '.join(wrong)}")
    if unknown:
        return Check(name, "open", f"give {' and '.join(unknown)} to compare")
    return Check(name, "passed", "all three agree")


def _check_counted(document: Mapping[str, Any], key: WatermarkKey, context: KeyContext) -> Check:
    """Whether all keys that the repository says were prepared before the suspect was seen count as tried."""
    if context.repo_id is None or context.first_seen is None:
        return Check(
            COUNTED, "open", "without the repository, and the day the suspect was first seen, nobody can count"
        )
    own = {key.fingerprint}
    if key.seasoning is not None:
        own.add(key.seasoning.commitment[:16])
    n_declared = 1
    if context.proof is not None:
        own.add(context.proof.root[:16])
        n_declared = context.proof.count
    try:
        others = _published(context) - own
    except HubError as error:
        return Check(COUNTED, "open", str(error))
    needed, tried = n_declared + len(others), document.get("keys_tried")
    there = f"{context.repo_id} carries {len(others)} other commitments"
    if type(tried) is not int or tried < needed:
        return Check(
            COUNTED, "failed", f"{there}: aborted rounds and rotated keys count, so keys_tried is at least {needed}"
        )
    return Check(COUNTED, "passed", f"{there}, and keys_tried={tried}; what was prepared in secret nobody can count")


def _published(context: KeyContext) -> set[str]:
    """The fingerprints of all commitments in a repository's history from before the suspect was seen."""
    assert context.repo_id is not None and context.first_seen is not None
    api = HfApi(token=context.token, library_name="drw_hf")
    with hub_errors(context.repo_id, "reading", context.revision):
        info = api.repo_info(context.repo_id, revision=context.revision)
        head = commit_name(info.sha, context.repo_id)
    found = set()
    with closing(History(context.repo_id, token=context.token).snapshots([head])) as snapshots:
        for snapshot in snapshots:
            if snapshot.date < context.first_seen:
                found |= {PurePosixPath(file.path).stem for file in snapshot.files if _is_commitment(file.path)}
    return found


def _is_commitment(path: str) -> bool:
    return re.fullmatch(r"drw_commitments/[0-9a-f]{16}\.txt", path) is not None


# -- users of a ring


def _check_proof(document: Mapping[str, Any], key: WatermarkKey, proof: UserProof) -> Check:
    name = "the key is that of a declared user, and all users count as tried"
    if not verify_proof(proof, key, proof.root):
        return Check(name, "failed", "the proof is of another key, or was altered")
    tried = document.get("keys_tried")
    if type(tried) is not int or tried < proof.count:
        found = f"{proof.count} users were declared, and keys_tried={tried}"
        return Check(name, "failed", f"{found}: whoever looks through a ring tries all of its keys")
    return Check(name, "passed", f"one of {proof.count} users; keys_tried={tried}")


def moment_or_none(iso: str | None) -> datetime | None:
    """The moment that an ISO date or time names; None for none, or for what is no date."""
    try:
        return None if iso is None else moment_of(iso)
    except InvalidInputError:
        return None
