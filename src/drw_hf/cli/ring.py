"""Keeping a key ring: who its users are, and what each of them gets."""

import json
from pathlib import Path

from ..errors import KeyFileError
from ..keys.files import KINDS, write_atomically
from ..tracing.users import stream_users
from .output import Outcome, prints_outcome
from .passphrases import open_ring, open_sealed_ring


@prints_outcome
def declare(folder: Path, *, users: Path, passphrase_file: Path | None) -> Outcome:
    """Declare the users of a file in the present epoch, and keep that in the saved ring."""
    ring, passphrase = open_sealed_ring(str(folder), passphrase_file)
    ring.declare(list(stream_users(users)[0])).save_pretrained(folder, passphrase=passphrase)
    found = ring.declared
    assert found is not None  # they have just been declared
    document = {
        "path": str(folder),
        "fingerprint": ring.fingerprint,
        "epoch": found.epoch,
        "count": found.count,
        "root": found.root,
        "declared_at": found.declared_at,
    }
    lines = [
        f"Declared {found.count:,} users in epoch {found.epoch} of the key ring {ring.fingerprint} in {folder}.",
        f"Publish this root, and keep {users}: the ring holds the root and the count alone.",
        f"  {found.root}",
    ]
    return Outcome(document, "\n".join(lines))


@prints_outcome
def token(ring: str, *, user: str, passphrase_file: Path | None) -> Outcome:
    """The token by which an endpoint knows a user, and nothing else, so that a script can take it as it is."""
    made = open_ring(ring, passphrase_file).token_for(user)
    return Outcome({"user": user, "token": made}, made)


@prints_outcome
def save_key(
    ring: str, *, user: str, output: Path, epoch: int | None, plain: bool, passphrase_file: Path | None
) -> Outcome:
    """Save the key of one user."""
    if any((output / kind.file).exists() for kind in KINDS):
        raise KeyFileError(f"{output} holds a key already, and a key is never overwritten; choose another --output")
    opened, passphrase = open_sealed_ring(ring, passphrase_file)
    key = opened.key_for(user, epoch)
    passphrase = None if plain else passphrase
    key.save_pretrained(output, passphrase=passphrase)
    document = {
        "path": str(output),
        "sealed": passphrase is not None,
        "user": user,
        "epoch": opened.epoch if epoch is None else epoch,
        "fingerprint": key.fingerprint,
        "commitment": key.commitment(),
    }
    how = "plain" if passphrase is None else "sealed with the passphrase of the ring"
    lines = [
        f"Saved the key {key.fingerprint} of the user {user!r} in {output}, {how}.",
        f"Its commitment: {key.commitment()}",
    ]
    return Outcome(document, "\n".join(lines))


@prints_outcome
def prove(
    ring: str, *, user: str, users: Path, output: Path, epoch: int | None, passphrase_file: Path | None
) -> Outcome:
    """Write the proof that a user was declared."""
    opened = open_ring(ring, passphrase_file)
    proof = opened.prove(user, list(stream_users(users)[0]), epoch=epoch)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, (json.dumps(proof.to_dict(), indent=2) + "\n").encode())
    document = {
        "path": str(output),
        "user": user,
        "count": proof.count,
        "root": proof.root,
        "key_commitment": proof.key_commitment,
    }
    lines = [
        f"Wrote to {output} the proof that the user {user!r} was declared, with {proof.count:,} users in all, under",
        f"  {proof.root}",
        "Whoever is to check it needs the user's key as well (drw-hf ring key), and never the ring.",
    ]
    return Outcome(document, "\n".join(lines))


@prints_outcome
def rotate(folder: Path, *, passphrase_file: Path | None) -> Outcome:
    """Open a new epoch, and keep that in the saved ring."""
    ring, passphrase = open_sealed_ring(str(folder), passphrase_file)
    ring.rotate().save_pretrained(folder, passphrase=passphrase)
    document = {"path": str(folder), "fingerprint": ring.fingerprint, "epoch": ring.epoch}
    lines = [
        f"Opened epoch {ring.epoch} of the key ring {ring.fingerprint} in {folder}: every user has a new key.",
        "Nobody is declared in it yet. Before a model is served with it:",
        f"  drw-hf ring declare {folder} --users users.txt",
    ]
    return Outcome(document, "\n".join(lines))
