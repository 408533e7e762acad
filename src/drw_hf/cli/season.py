"""Seasoning: the wait for a round of public randomness, and what comes before and after it."""

from pathlib import Path
from typing import Annotated

from . import options as shared
from .output import Outcome, prints_outcome


@prints_outcome
def season(
    key: Annotated[Path, shared.unseasoned_argument("Folder that keygen --season-round wrote")],
    value: Annotated[Path, shared.file_option("What the round's source published, saved unchanged.", "JSON")],
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Make the key from its round of public randomness.

    The round must be the very one that keygen named, and no signature in it may be wrong. The key is written into the
    same folder, sealed with the same passphrase; the unseasoned one stays there, since it is what was committed to. Of
    a key ring the present epoch is seasoned, for all its users.

    \b
    Example: drw-hf season my-key --value round.json
    """
    from ..errors import RoundValueError
    from ..keys import KeyRing
    from ..keys.rounds import LARGEST_VALUE
    from ..reading.files import read_within
    from .passphrases import open_unseasoned

    content = read_within(value, LARGEST_VALUE, RoundValueError)
    opened, passphrase = open_unseasoned(key, passphrase_file)
    document = {"path": str(key), "sealed": passphrase is not None}
    if isinstance(opened, KeyRing):
        opened.season(content).save_pretrained(key, passphrase=passphrase)
        terms = opened.seasoned_by
        assert terms is not None and opened.season_value is not None  # it has just been seasoned
        verified, noun = opened.season_value.verified, f"keys of epoch {opened.epoch} of the key ring"
        document |= {"fingerprint": opened.fingerprint, "epoch": opened.epoch, "root": opened.commitment()}
    else:
        made = opened.season(content)
        made.save_pretrained(key, passphrase=passphrase)
        assert made.seasoning is not None
        terms, verified, noun = made.seasoning.terms, made.seasoning.value.verified, "key"
        document |= {"fingerprint": made.fingerprint, "commitment": made.commitment(), "base": opened.commitment()}
    document |= {"round": str(terms.round), "verified": verified}
    lines = [f"Seasoned the {noun} {document['fingerprint']} in {key} by {terms.round}."]
    if "commitment" in document:
        lines.append(f"Its commitment: {document['commitment']}")
    if not verified:
        lines.append(
            "The round's signature was not verified, for which drw_hf[drand] is needed: whoever verifies evidence "
            "with it finds out if the value is another one."
        )
    lines += ["Next, protect the model with it:", f"  drw-hf protect MODEL --key {key} --output protected"]
    return Outcome(document, "\n".join(lines))


@prints_outcome
def publish(
    key: Annotated[Path, shared.unseasoned_argument("Folder of a key, of one that waits for its round, or of a ring")],
    repo: Annotated[str, shared.name_option("Repository for the commitment; made, public, if it is not there.", "ID")],
    timestamp_url: Annotated[
        str | None, shared.name_option("Time-stamping authority (RFC 3161); without one the date is your word.", "URL")
    ] = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Publish the commitment to a key, before the model is served, or of a ring the root over its users.

    Of a key that waits for its round do so, with a time stamp, more than ten minutes before the round is drawn.

    \b
    Example: drw-hf publish my-key --repo me/commitments --timestamp-url https://tsa.example
    """
    from ..evidence import publish_commitment
    from .passphrases import open_any

    opened = open_any(key, passphrase_file)[0]
    address = publish_commitment(opened, repo, timestamp_url=timestamp_url)
    document = {"commitment": opened.commitment(), "repo": repo, "commit": str(address)}
    stamp = "" if timestamp_url is None else " with a time stamp"
    return Outcome(document, f"Published the commitment {document['commitment']}{stamp}: {address}")
