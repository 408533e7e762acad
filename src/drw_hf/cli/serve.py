"""Serving a protected model over HTTP."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from . import options as shared
from .output import Outcome, disable_bars, prints_outcome


@prints_outcome
def serve(
    model: Annotated[str, shared.model_argument("The classifier or tagger, plain or protected")],
    key: shared.OptionalKey = None,
    ring: Annotated[
        str | None, shared.path_option("Folder or repository of a key ring: each user has a token.", "FOLDER_OR_REPO")
    ] = None,
    log: Annotated[
        Path | None,
        shared.output_option("Keep here what is answered, before it is sent; detect --logged takes it."),
    ] = None,
    log_texts: Annotated[
        bool, shared.flag("--log-texts/--no-log-texts", "Keep texts, or keyed digests of them alone.")
    ] = True,
    log_users: Annotated[
        bool, shared.flag("--log-users/--no-log-users", "Keep users' names, or keyed digests of them alone.")
    ] = True,
    host: Annotated[str, shared.name_option("Where to listen; 0.0.0.0 is everywhere.", "HOST")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen; 0 is any that is free.", min=0, max=65535)] = 8000,
    workers: Annotated[int, shared.count_option("Processes that answer; each loads the model.")] = 1,
    label_kind: Annotated[
        shared.LabelKind | None,
        typer.Option(help="Answer with scores, or with one label (default: soft, or as the model was saved)."),
    ] = None,
    digits: Annotated[
        int | None, typer.Option(metavar="N", help="Round scores to so many digits, as drw-hf protect does.")
    ] = None,
    task: shared.TaskOption = None,
    api_token_file: Annotated[
        Path | None,
        shared.file_option(
            "File with the token that requests need, without a ring. Else from DRW_API_TOKEN, or none."
        ),
    ] = None,
    admin_token_file: Annotated[
        Path | None,
        shared.file_option("File with the token for /metrics. Else from DRW_ADMIN_TOKEN, or there is no such page."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            help="Give /metrics on this port of 127.0.0.1, of each worker on the next one.", min=1, max=65535
        ),
    ] = None,
    batch_size: Annotated[int, shared.count_option("Texts that the model reads at once.")] = 32,
    queue: Annotated[int, shared.count_option("Texts that may wait; beyond, clients are told to come again.")] = 512,
    timeout: Annotated[float, shared.number_option("Seconds in which a request is answered.", "S")] = 30.0,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Serve a model over HTTP, every answer marked, and keep what was answered.

    huggingface_hub.InferenceClient(model="http://127.0.0.1:8000", token=TOKEN) asks it, and so does drw-hf detect.
    With a key ring every request needs the token of a user (drw-hf ring token), and is answered by that user's key. No
    request can switch the mark off. With --log an answer is sent when its line is on the disk, and nothing is served
    unlogged.

    Ends on an interrupt, when what it took on is answered. The passphrase and the tokens are read once, and leave the
    environment.

    \b
    Example: drw-hf serve my-classifier --key my-key --log my-log
    Example: drw-hf serve my-classifier --ring my-ring --log my-log --port 9000 --workers 2
    """
    from ..keys import KeyRing
    from ..serving.limits import Limits
    from ..serving.running import Workers, address_of, listen, run_app
    from ..serving.settings import ServiceSecrets, ServiceSettings, app_from
    from .passphrases import VARIABLE, locate, open_key_or_ring, open_sealed, read_secret

    if key is not None and ring is not None:
        raise typer.BadParameter("--key and --ring were both given; name the one that the model is served with")
    disable_bars()
    name = key or ring or model
    opened, passphrase = (
        open_sealed(name, passphrase_file, KeyRing) if ring else open_key_or_ring(name, passphrase_file)
    )
    os.environ.pop(VARIABLE, None)
    secrets = ServiceSecrets(
        passphrase, read_secret(api_token_file, "DRW_API_TOKEN"), read_secret(admin_token_file, "DRW_ADMIN_TOKEN")
    )
    settings = ServiceSettings(
        model=model,
        task=task,
        label_kind=label_kind,
        digits=digits,
        log=None if log is None else str(log),
        log_texts=log_texts,
        log_users=log_users,
        metrics_port=metrics_port,
        limits=Limits(batch_size=batch_size, queue=queue, timeout=timeout),
    )
    document: dict[str, Any] = {"model": model, "key_fingerprint": opened.fingerprint, "workers": workers}
    with listen(host, port) as listening:
        document |= {"address": address_of(listening), "log": settings.log}

        def started() -> None:
            typer.echo(announcement(document, isinstance(opened, KeyRing), name), err=True)

        if workers == 1:
            app = app_from(settings, secrets, opened)
            run_app(app, listening, started, settings.limits, metrics_port)
        else:
            Workers(workers, listening, settings, secrets, locate(name)).run(started)
    lines = [f"Ended; what was taken on at {document['address']} was answered."]
    if log is not None:
        lines += ["What was answered is in the log. Make the root of each day, to be stamped and published:"]
        lines.append(f"  drw-hf log root {log}")
    return Outcome(document, "\n".join(lines))


def announcement(document: dict[str, Any], is_ring: bool, name: str) -> str:
    """What is said when the service answers."""
    from .next_step import command

    what = "key ring" if is_ring else "key"
    model, log, address = document["model"], document["log"], document["address"]
    lines = [f"Serving {model} at {address}, protected by the {what} {document['key_fingerprint']}."]
    if log is None:
        lines.append("Nothing is logged: --log keeps what is answered, which is half of the evidence.")
    else:
        lines.append(f"What is answered is in {log} before it is sent.")
    token = ', token="..."' if is_ring else ""
    lines.append(f'  InferenceClient(model="{address}"{token}).text_classification("a text")')
    if is_ring:
        lines += ["A user's token:", command("ring", "token", name, user="NAME")]
    if log is not None:
        lines.append("When somebody's model looks like a copy of yours:")
        if is_ring:
            lines.append(command("identify", "SUSPECT", logged=log, ring=name, victim=model))
        else:
            lines.append(command("detect", "SUSPECT", logged=log, key=name, victim=model))
    return "\n".join(lines)
