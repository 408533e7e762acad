"""Protecting a model."""

from pathlib import Path
from typing import Any

import typer

from ..asking.models import load_model, load_tokenizer
from ..keys import KeyRing
from ..keys.choices import LabelKind, Task
from .output import Outcome, check_free, prints_outcome, show_progress
from .passphrases import kind_at, open_sealed


@prints_outcome
def run(
    model: str,
    *,
    key: str,
    passphrase_file: Path | None,
    output: Path | None,
    overwrite: bool,
    push: str | None,
    task: Task | None,
    label_kind: LabelKind | None,
    replace_key: bool,
    **push_options: Any,
) -> Outcome:
    """Wrap a model with a key or a ring, save it and, if asked to, push it with its key."""
    if output is None and push is None:
        raise typer.BadParameter("nowhere to put the protected model; pass --output, --push, or both")
    if output is not None:
        check_free(output, overwrite)
    show_progress()
    opened, passphrase = open_sealed(key, passphrase_file, kind_at(key))
    protected = load_model(model, task=task, key=opened, label_kind=label_kind, replace_key=replace_key)
    tokenizer = load_tokenizer(model)
    document = {"key_fingerprint": opened.fingerprint, "label_kind": protected.config.label_kind}
    is_ring = isinstance(opened, KeyRing)
    what = f"key ring {opened.fingerprint}" if is_ring else f"key {opened.fingerprint}"
    lines = [f"Protected {model} with the {what}; it answers with {document['label_kind']} labels."]
    if is_ring:
        lines.append("Every question names the user who asks it (user=, or the user's token at an endpoint).")
    if output is not None:
        protected.save_pretrained(output)
        tokenizer.save_pretrained(output)
        files = sorted(str(path.relative_to(output)) for path in output.rglob("*") if path.is_file())
        document |= {"folder": str(output), "files": files}
        lines += [
            f"In {output}: {', '.join(files)}.",
            "The key is not among them. The weights are those of the clean model: hand out answers alone.",
        ]
    if push is not None:
        seal = passphrase if push_options["push_key"] else None
        address = protected.push_to_hub(
            push, passphrase=seal, replace_key=replace_key, tokenizer=tokenizer, **push_options
        )
        document["commit"] = str(address)
        lines.append(f"Pushed: {address}")
    return Outcome(document, "\n".join(lines))
