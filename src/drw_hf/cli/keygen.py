"""Making a key, or a ring of them."""

import sys
from pathlib import Path
from typing import Any

import typer

from ..asking.models import load_config, load_tokenizer
from ..errors import KeyFileError
from ..keys import KeyRing, WatermarkKey
from ..keys.binding import labels_of, plain_config
from ..keys.files import KINDS
from .output import Outcome, prints_outcome
from .passphrases import new_passphrase


@prints_outcome
def run(
    model: str,
    *,
    target: str | None,
    ring: bool,
    output: Path,
    plain: bool,
    passphrase_file: Path | None,
    **settings: Any,
) -> Outcome:
    """Make a key or a ring for a model and save it; ``settings`` are those of :meth:`WatermarkKey.generate`."""
    if any((output / kind.file).exists() for kind in KINDS):
        raise KeyFileError(f"{output} holds a key already, and a key is never overwritten; choose another --output")
    config = load_config(model)
    tokenizer = load_tokenizer(model)
    labels = labels_of(plain_config(config))
    target = ask_target(labels) if target is None else target
    by_number = target.isdecimal() and target not in labels
    make = (KeyRing if ring else WatermarkKey).generate
    key = make(config, target=int(target) if by_number else target, tokenizer=tokenizer, **settings)
    key.save_pretrained(output, passphrase=None if plain else new_passphrase(passphrase_file))
    document = {"path": str(output), "sealed": not plain, "fingerprint": key.fingerprint}
    noun = "key ring" if ring else "key"
    keep = f"Whoever reads that folder has the {noun}." if plain else f"Without its passphrase the {noun} is lost."
    lines = [f"Made the {noun} {key.fingerprint} in {output}, {'plain' if plain else 'sealed'}. {keep}"]
    if isinstance(key, KeyRing):
        document["epoch"] = key.epoch
        lines += [
            "Next, declare your users (one a line in a file), before any of their keys marks anything:",
            f"  drw-hf ring declare {output} --users users.txt",
            "and protect the model with the ring:",
        ]
    else:
        document["commitment"] = key.commitment()
        lines += [f"Its commitment: {key.commitment()}", "Next, protect the model with it:"]
    lines.append(f"  drw-hf protect {model} --key {output} --output protected")
    return Outcome(document, "\n".join(lines))


def ask_target(labels: tuple[str, ...]) -> str:
    """The target class, typed: what stands on the command line is kept in the shell's history."""
    names = ", ".join(labels)
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"--target is missing; the model's labels are: {names}")
    return typer.prompt(f"Target class (one of {names})", err=True)
