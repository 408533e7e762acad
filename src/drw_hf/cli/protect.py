"""Protecting a model."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import Outcome, check_free, prints_outcome, show_progress


@prints_outcome
def protect(
    model: Annotated[str, shared.model_argument("The classifier or tagger")],
    key: shared.KeyOrRing,
    output: Annotated[Path | None, shared.output_option("Folder for the protected model and its tokenizer.")] = None,
    label_kind: Annotated[
        shared.LabelKind | None,
        typer.Option(help="Answer with probabilities, or with one drawn label (default: soft, or as it was)."),
    ] = None,
    digits: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Round the scores of soft answers to so many digits, 1 to 6; 0: not at all (default: as is usual for "
            "the key's mark, 3 for tilt, or as it was). Kept in the model's config.",
        ),
    ] = None,
    task: shared.TaskOption = None,
    push: Annotated[str | None, shared.name_option("Push it with its key to this repository.", "REPO")] = None,
    private: Annotated[bool, shared.flag("--private/--public", "Who sees a repository that is made for it.")] = True,
    key_repo: Annotated[
        str | None, shared.name_option("Push the key to this private repository instead.", "REPO")
    ] = None,
    push_key: Annotated[bool, typer.Option(help="Push the key as well.")] = True,
    handler: Annotated[bool, shared.flag("--handler", "Push a handler.py for Inference Endpoints along.")] = False,
    package: Annotated[
        str | None,
        shared.name_option(
            "Where the endpoint installs drw_hf from: a wheel, pushed along, or an address (with --handler).",
            "WHEEL|URL",
        ),
    ] = None,
    timestamp_url: Annotated[
        str | None, shared.name_option("Time-stamping authority (RFC 3161) for the commitment.", "URL")
    ] = None,
    replace_key: Annotated[
        bool, shared.flag("--replace-key", "Rotate: accept a model, or a repository, with another key.")
    ] = False,
    overwrite: shared.Overwrite = False,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Wrap a model so that its answers carry the mark, save it and, if you like, push it.

    The key is never written into the folder. A pushed key is sealed with the passphrase that opened it; a plain key
    goes into private repositories only.

    \b
    Example: drw-hf protect my-classifier --key my-key --output protected
    Example: drw-hf protect my-classifier --key my-key --label-kind hard --push me/protected
    Example: drw-hf protect my-classifier --key my-key --digits 2 --output two-digits
    Example: drw-hf protect my-classifier --key my-ring --output served
    """
    from ..asking.models import load_model, load_tokenizer
    from ..keys import KeyRing
    from ..keys.settings import USUAL_MARK, mark_named
    from .passphrases import open_key_or_ring

    if output is None and push is None:
        raise typer.BadParameter("nowhere to put the protected model; pass --output, --push, or both")
    if output is not None:
        check_free(output, overwrite)
    show_progress()
    opened, passphrase = open_key_or_ring(key, passphrase_file)
    answers = {"label_kind": label_kind, "digits": digits}
    protected = load_model(model, task=task, key=opened, **answers, replace_key=replace_key)
    tokenizer = load_tokenizer(model)
    document = {"key_fingerprint": opened.fingerprint, **{name: getattr(protected.config, name) for name in answers}}
    what = f"{opened.kind.noun} {opened.fingerprint}"
    lines = [f"Protected {model} with the {what}; it answers with {document['label_kind']} labels."]
    template = opened.template() if isinstance(opened, KeyRing) else opened
    draws = mark_named(template.mark).draws(template.settings)
    if protected.config.label_kind == "hard" and template.mark == USUAL_MARK and not draws:
        lines.append(
            "Its hard labels carry the tilt alone. A key made with --margin-budget 0.1 also draws close calls, for "
            "which a log of what was served can be tested, too."
        )
    if isinstance(opened, KeyRing):
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
        address = protected.push_to_hub(
            push,
            private=private,
            key_repo_id=key_repo,
            push_key=push_key,
            passphrase=passphrase if push_key else None,
            handler=handler,
            package=package,
            timestamp_url=timestamp_url,
            replace_key=replace_key,
            tokenizer=tokenizer,
        )
        document["commit"] = str(address)
        lines.append(f"Pushed: {address}")
    return Outcome(document, "\n".join(lines))
