"""Keeping a key ring: who its users are, and what each of them gets."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as shared
from .output import Commands, Outcome, check_no_key, prints_outcome

if TYPE_CHECKING:
    from ..keys import KeyRing

app = typer.Typer(
    cls=Commands,
    help="Keep a key ring (drw-hf keygen --ring): one secret, a key for every user.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
@prints_outcome
def declare(
    ring: shared.RingFolder,
    users: shared.Users,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Fix who the users are, and print the root to publish.

    Do so before their keys mark anything. The ring keeps the root and the count; keep the list yourself. To add users,
    declare the longer list.

    \b
    Example: drw-hf ring declare my-ring --users users.txt
    """
    from ..keys import KeyRing
    from ..tracing.users import stream_users
    from .passphrases import open_sealed

    opened, passphrase = open_sealed(str(ring), passphrase_file, KeyRing)
    opened.declare(list(stream_users(users)[0])).save_pretrained(ring, passphrase=passphrase)
    found = opened.declared
    assert found is not None  # they have just been declared
    document = {"path": str(ring), "fingerprint": opened.fingerprint, **dataclasses.asdict(found)}
    lines = [
        f"Declared {found.count:,} users in epoch {found.epoch} of the key ring {opened.fingerprint} in {ring}.",
        f"Publish this root, and keep {users}: the ring holds the root and the count alone.",
        f"  {found.root}",
    ]
    return Outcome(document, "\n".join(lines))


@app.command()
@prints_outcome
def token(
    ring: shared.Ring,
    user: shared.User,
    users: shared.DeclaredUsers = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Print the token by which an endpoint knows a user.

    Whoever has it asks in the user's name. Rotation does not change it. With --users it is made for declared users
    alone; the ring itself does not hold their list.

    \b
    Example: drw-hf ring token my-ring --user ann --users users.txt
    """
    from .passphrases import open_ring

    opened = open_ring(ring, passphrase_file)
    made = opened.token_for(user)
    _check_declared(opened, user, users)
    return Outcome({"user": user, "token": made}, made)


@app.command()
@prints_outcome
def key(
    ring: shared.Ring,
    user: shared.User,
    output: shared.KeyFolder,
    epoch: shared.Epoch = None,
    users: shared.DeclaredUsers = None,
    plain: Annotated[bool, shared.flag("--plain", "Do not seal the key, to hand it over.")] = False,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Save the key of one user.

    An ordinary key, for label, detect and verify; to check a proof others need it, too. It says nothing of the keys of
    other users. It is sealed with the passphrase of the ring, if the ring is.

    \b
    Example: drw-hf ring key my-ring --user ann --output ann-key
    """
    from ..keys import KeyRing
    from .passphrases import open_sealed

    check_no_key(output)
    opened, passphrase = open_sealed(ring, passphrase_file, KeyRing)
    made = opened.key_for(user, epoch)
    _check_declared(opened, user, users, epoch)
    passphrase = None if plain else passphrase
    made.save_pretrained(output, passphrase=passphrase)
    document = {
        "path": str(output),
        "sealed": passphrase is not None,
        "user": user,
        "epoch": opened.epoch if epoch is None else epoch,
        "fingerprint": made.fingerprint,
        "commitment": made.commitment(),
    }
    how = "plain" if passphrase is None else "sealed with the passphrase of the ring"
    lines = [
        f"Saved the key {made.fingerprint} of the user {user!r} in {output}, {how}.",
        f"Its commitment: {made.commitment()}",
    ]
    return Outcome(document, "\n".join(lines))


def _check_declared(ring: "KeyRing", user: str, users: Path | None, epoch: int | None = None) -> None:
    """Refuse a user who is not among those declared; where that cannot be told, say so."""
    from ..keys.users import quoted
    from ..tracing.users import stream_users

    if users is not None:
        ring.prove(user, list(stream_users(users)[0]), epoch=epoch)
        return
    declared = [one.count for one in ring.declarations if one.epoch == (ring.epoch if epoch is None else epoch)]
    if declared:
        told = f"whether {quoted(user)} is among the {declared[-1]:,} users declared was not checked; pass their list"
        warnings.warn(f"{told} with --users", stacklevel=2)
    else:
        told = f"nobody is declared in this epoch of the ring, {quoted(user)} neither, and what is declared afterwards"
        warnings.warn(f"{told} proves less; see drw-hf ring declare", stacklevel=2)


@app.command()
@prints_outcome
def prove(
    ring: shared.Ring,
    user: shared.User,
    users: shared.Users,
    output: Annotated[Path, shared.output_option("File for the proof.", "JSON")],
    epoch: shared.Epoch = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Write the proof that a user was declared.

    With the user's key and the published root, others can check it, without the ring. Pass the very list that was
    declared.

    \b
    Example: drw-hf ring prove my-ring --user ann --users users.txt --output proof.json
    """
    from ..keys.files import write_atomically
    from ..tracing.users import stream_users
    from .passphrases import open_ring

    opened = open_ring(ring, passphrase_file)
    proof = opened.prove(user, list(stream_users(users)[0]), epoch=epoch)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, (json.dumps(proof.to_dict(), indent=2) + "\n").encode())
    shown = {name: getattr(proof, name) for name in ("count", "root", "key_commitment")}
    lines = [
        f"Wrote to {output} the proof that the user {user!r} was declared, with {proof.count:,} users in all, under",
        f"  {proof.root}",
        "Whoever is to check it needs the user's key as well (drw-hf ring key), and never the ring.",
    ]
    return Outcome({"path": str(output), "user": user, **shown}, "\n".join(lines))


@app.command()
@prints_outcome
def rotate(
    ring: shared.RingFolder,
    model: Annotated[
        str | None, shared.model_option("--model", "With --season-round: the model that the keys are for")
    ] = None,
    passphrase_file: shared.PassphraseFile = None,
    *,
    seasoning: shared.Seasoning,
) -> Outcome:
    """Open a new epoch: every user gets a new key.

    Older epochs can still be searched (--epoch), and tokens stay valid. With --season-round the new keys wait for a
    round of public randomness, before which their users are declared.

    \b
    Example: drw-hf ring rotate my-ring
    """
    from ..keys import KeyRing
    from .inputs import parse_round, terms_for
    from .passphrases import open_sealed

    round_ = parse_round(seasoning)
    if (model is None) != (round_ is None):
        raise typer.BadParameter("--season-round and --model go together: the round, and the model the keys are for")
    opened, passphrase = open_sealed(str(ring), passphrase_file, KeyRing)
    terms = None
    if model is not None and round_ is not None:
        from ..asking.models import load_clean, load_tokenizer

        like = opened.template()
        terms = terms_for(seasoning, round_, load_clean(model, like.task, like), load_tokenizer(model), like)
    opened.rotate(terms).save_pretrained(ring, passphrase=passphrase)
    document = {"path": str(ring), "fingerprint": opened.fingerprint, "epoch": opened.epoch}
    lines = [
        f"Opened epoch {opened.epoch} of the key ring {opened.fingerprint} in {ring}: every user has a new key.",
        "Nobody is declared in it yet. Before a model is served with it:",
        f"  drw-hf ring declare {ring} --users users.txt",
    ]
    if terms is not None:
        document |= {"round": str(terms.round), "address": terms.round.address}
        lines += [
            f"Publish its root more than ten minutes before {terms.round}, and when that is drawn, save what",
            f"{terms.round.address} gives, and run:",
            f"  drw-hf season {ring} --value round.json",
        ]
    return Outcome(document, "\n".join(lines))
