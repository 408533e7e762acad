"""Making a key, or a ring of them."""

import sys
from typing import Annotated

import typer

from . import options as shared
from .output import Outcome, check_no_key, prints_outcome


@prints_outcome
def keygen(
    model: Annotated[str, shared.model_argument("What is to be protected (its weights are not needed)")],
    output: shared.KeyFolder,
    target: Annotated[
        str | None,
        shared.name_option(
            "Target class, whose probability carries the mark. Asked for if left out: a shell keeps its history.",
            "LABEL",
        ),
    ] = None,
    epsilon: Annotated[float, shared.number_option("How far a marked probability moves.")] = 0.2,
    tau: Annotated[float, shared.number_option("Share of tokens that are marked.", most=1.0)] = 0.5,
    frequency: shared.Frequency = 16.0,
    law: Annotated[shared.Law, typer.Option(help="How hashes are drawn.")] = "direct",
    scope: shared.ScopeOption = "predicted",
    hash_rule: shared.HashRuleOption = None,
    task: shared.TaskOption = None,
    ring: Annotated[bool, shared.flag("--ring", "Make a key ring: a key for every user.")] = False,
    plain: Annotated[bool, shared.flag("--plain", "Do not seal the key.")] = False,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Make a key for a model, sealed with a passphrase.

    Choose a target class that the model often predicts: only tokens of such answers can carry the mark. A passphrase
    is asked for (twice), or taken from a file or from DRW_PASSPHRASE. A key is never overwritten.

    With --ring it is one secret from which every user gets a key of his own: see drw-hf ring and drw-hf identify.

    \b
    Example: drw-hf keygen my-classifier --target positive --output my-key
    Example: drw-hf keygen my-classifier --ring --target positive --output my-ring
    """
    from ..asking.models import load_config, load_tokenizer
    from ..keys import KeyRing, WatermarkKey
    from ..keys.binding import labels_of, plain_config
    from .inputs import class_named
    from .passphrases import new_passphrase

    check_no_key(output)
    config, tokenizer = load_config(model), load_tokenizer(model)
    labels = labels_of(plain_config(config))
    if target is None:  # what stands on the command line is kept in the shell's history
        names = ", ".join(labels)
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"--target is missing; the model's labels are: {names}")
        target = typer.prompt(f"Target class (one of {names})", err=True)
    key = (KeyRing if ring else WatermarkKey).generate(
        config,
        target=class_named(target, labels),
        tokenizer=tokenizer,
        epsilon=epsilon,
        tau=tau,
        frequency=frequency,
        law=law,
        scope=scope,
        hash_rule=hash_rule,
        task=task,
    )
    key.save_pretrained(output, passphrase=None if plain else new_passphrase(passphrase_file))
    document = {"path": str(output), "sealed": not plain, "fingerprint": key.fingerprint}
    noun = "key ring" if ring else "key"
    keep = f"Whoever reads that folder has the {noun}." if plain else f"Without its passphrase the {noun} is lost."
    lines = [f"Made the {noun} {key.fingerprint} in {output}, {'plain' if plain else 'sealed'}. {keep}"]
    if isinstance(key, KeyRing):
        document["epoch"] = key.epoch
        lines += [
            "Next, declare your users (one per line in a file), before any of their keys marks anything:",
            f"  drw-hf ring declare {output} --users users.txt",
            "and protect the model with the ring:",
        ]
    else:
        document["commitment"] = key.commitment()
        lines += [f"Its commitment: {key.commitment()}", "Next, protect the model with it:"]
    lines.append(f"  drw-hf protect {model} --key {output} --output protected")
    return Outcome(document, "\n".join(lines))
