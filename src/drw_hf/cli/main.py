"""The commands. Each imports what it needs when it runs, so that ``--help`` and completion answer at once."""

import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import DrwError
from . import options as shared


class _Commands(TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """Run a command; our errors say what to do, so they are shown as they are, without a traceback.

        What the system says of a file or a connection is one sentence, too, and so is a warning.
        """
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: typer.echo(f"Warning: {message}", err=True)
                return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (DrwError, OSError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="drw-hf",
    cls=_Commands,
    help="Watermark Hugging Face classifiers and taggers so that a model distilled from them can be recognised.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain text: examples stay whole, to be copied
    pretty_exceptions_show_locals=False,  # a local variable may hold a key or a passphrase
)


def _version(wanted: bool) -> None:
    if wanted:
        from .._version import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Folder for all that the demo writes.", metavar="FOLDER")] = Path(
        "drw-demo"
    ),
    model: Annotated[
        str | None, shared.model_option("--model", "A trained classifier or tagger, to be robbed instead of our own")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Texts with their right labels, for that model: file, folder or Hub id.",
            metavar="DATA",
            autocompletion=shared.complete_path,
        ),
    ] = None,
    subset: shared.Subset = None,
    task: Annotated[
        shared.Task | None, typer.Option("--task", help="Tagger (default) or sentence classifier, of our own corpus.")
    ] = None,
    student: Annotated[
        str | None,
        shared.model_option("--student", "Where students start from (default: small BERTs from scratch)"),
    ] = None,
    text_column: shared.TextColumns = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the right labels, if its name is unusual.", metavar="NAME")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="Rows of each kind at the most (default: 2000 of a data set).", min=10, metavar="N"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of corpus and training. The key is always a fresh one.")] = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Steal a protected model and find the mark in the copies: offline, in a minute or two.

    Trains a small tagger on sentences made for the purpose, protects it, lets a thief distil it with soft and with
    hard labels, trains an innocent model, probes all three, and writes figures and evidence reports. With --model and
    --dataset, a model and texts of yours take their place.

    \b
    Example: drw-hf demo --output my-demo
    Example: drw-hf demo --model my-classifier --dataset data.jsonl --limit 500 --output my-demo
    """
    from .demo import run

    run(
        output,
        model=model,
        dataset=dataset,
        subset=subset,
        task=None if task is None else task.value,
        student=student,
        text_columns=text_column or None,
        label_column=label_column,
        limit=limit,
        seed=seed,
        as_json=as_json,
    )


@app.command()
def plan(
    model: Annotated[str, shared.model_argument("What is to be protected")],
    data: Annotated[str, shared.data_argument("What it is asked, some thousand texts; labels are not needed")],
    target: Annotated[
        str | None,
        typer.Option(help="Target class, whose probability carries the mark. Left out: ranks them.", metavar="LABEL"),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        typer.Option(
            help="How far a marked probability moves (default: 0.02 to 0.2). May be repeated.",
            min=0.0,
            metavar="NUMBER",
        ),
    ] = None,
    tau: Annotated[
        list[float] | None,
        typer.Option(
            help="Share of tokens that are marked (default: 0.5). May be repeated.",
            min=0.0,
            max=1.0,
            metavar="NUMBER",
        ),
    ] = None,
    frequency: Annotated[float, typer.Option(help="Angular frequency of the cosine.", min=0.0)] = 16.0,
    scope: Annotated[
        shared.Scope, typer.Option(help="Mark answers that say the target class, or all.")
    ] = shared.Scope.predicted,
    hash_rule: Annotated[
        shared.HashRule | None,
        typer.Option(help="Which token of a text is hashed (default: second; taggers: token)."),
    ] = None,
    p_value: Annotated[float, typer.Option(help="The p-value that a test of a stolen copy shall reach.")] = 1e-6,
    queries: Annotated[
        int | None,
        typer.Option(help="Texts that a thief is expected to ask (default: as many as given).", min=1, metavar="N"),
    ] = None,
    probed_with: Annotated[
        shared.ProbedWith,
        typer.Option(help="What a copy will be probed with: the thief's queries, if logged, or other text."),
    ] = shared.ProbedWith.unseen,
    phi: Annotated[
        float | None,
        typer.Option(help="How much of the mark a student copies (default: as seen in ours).", min=0.0),
    ] = None,
    sigma: Annotated[
        float | None,
        typer.Option(help="Spread of an innocent student's tokens (default: as seen in ours).", min=0.0),
    ] = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    limit: shared.Limit = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    task: shared.TaskOption = None,
    as_json: shared.AsJson = False,
) -> None:
    """Before a key is made: what a mark would cost, and how surely it would be found in a stolen copy.

    Asks the model about texts like those it serves, and predicts for every epsilon and tau the accuracy that the mark
    costs, and the z and p-value of a test of a student that was served soft or hard labels. Then names the smallest
    epsilon that reaches --p-value. Without --target, says which class would carry the mark best. No key is needed.

    \b
    Example: drw-hf plan my-classifier queries.jsonl
    Example: drw-hf plan my-classifier queries.jsonl --target positive --hash-rule rarest --epsilon 0.1 --epsilon 0.2
    """
    from .plan import run

    run(
        model,
        data,
        target=target,
        epsilons=epsilon or None,
        taus=tau or (0.5,),
        frequency=frequency,
        scope=scope.value,
        hash_rule=hash_rule and hash_rule.value,
        p_value=p_value,
        queries=queries,
        probed_with=probed_with.value,
        phi=phi,
        sigma=sigma,
        text_columns=text_column or None,
        source={"split": split, "subset": subset, "limit": limit},
        batch_size=batch_size,
        max_length=max_length,
        task=task and task.value,
        as_json=as_json,
    )


@app.command()
def keygen(
    model: Annotated[str, shared.model_argument("What is to be protected (its weights are not needed)")],
    output: Annotated[Path, typer.Option(help="Folder for the key.", metavar="FOLDER")],
    target: Annotated[
        str | None,
        typer.Option(
            help="Target class, whose probability carries the mark. Asked for if left out: a shell keeps its history.",
            metavar="LABEL",
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="How far a marked probability moves.", min=0.0)] = 0.2,
    tau: Annotated[float, typer.Option(help="Share of tokens that are marked.", min=0.0, max=1.0)] = 0.5,
    frequency: Annotated[float, typer.Option(help="Angular frequency of the cosine.", min=0.0)] = 16.0,
    law: Annotated[shared.Law, typer.Option(help="How hashes are drawn.")] = shared.Law.direct,
    scope: Annotated[
        shared.Scope, typer.Option(help="Mark answers that say the target class, or all.")
    ] = shared.Scope.predicted,
    hash_rule: Annotated[
        shared.HashRule | None,
        typer.Option(help="Which token of a text is hashed (default: second; taggers: token)."),
    ] = None,
    task: shared.TaskOption = None,
    ring: Annotated[bool, typer.Option("--ring", help="Make a key ring: a key for every user.")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Do not seal the key.")] = False,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Make a key for a model, sealed with a passphrase.

    Choose a target class that the model often predicts: only tokens of such answers can carry the mark. A passphrase
    is asked for (twice), or taken from a file or from DRW_PASSPHRASE. A key is never overwritten.

    With --ring it is one secret from which every user gets a key of his own: see drw-hf ring and drw-hf identify.

    \b
    Example: drw-hf keygen my-classifier --target positive --output my-key
    Example: drw-hf keygen my-classifier --ring --target positive --output my-ring
    """
    from .keygen import run

    run(
        model,
        target=target,
        output=output,
        epsilon=epsilon,
        tau=tau,
        frequency=frequency,
        law=law.value,
        scope=scope.value,
        hash_rule=hash_rule and hash_rule.value,
        task=task and task.value,
        ring=ring,
        plain=plain,
        passphrase_file=passphrase_file,
        as_json=as_json,
    )


@app.command()
def protect(
    model: Annotated[str, shared.model_argument("The classifier or tagger")],
    key: shared.KeyOrRing,
    output: Annotated[
        Path | None, typer.Option(help="Folder for the protected model and its tokenizer.", metavar="FOLDER")
    ] = None,
    label_kind: Annotated[
        shared.LabelKind | None,
        typer.Option(help="Answer with probabilities, or with one drawn label (default: soft, or as it was)."),
    ] = None,
    task: shared.TaskOption = None,
    push: Annotated[str | None, typer.Option(help="Push it with its key to this repository.", metavar="REPO")] = None,
    private: Annotated[
        bool, typer.Option("--private/--public", help="Who sees a repository that is made for it.")
    ] = True,
    key_repo: Annotated[
        str | None, typer.Option(help="Push the key to this private repository instead.", metavar="REPO")
    ] = None,
    push_key: Annotated[bool, typer.Option("--push-key/--no-push-key", help="Push the key as well.")] = True,
    handler: Annotated[
        bool, typer.Option("--handler", help="Push a handler.py for Inference Endpoints along.")
    ] = False,
    timestamp_url: Annotated[
        str | None, typer.Option(help="Time-stamping authority (RFC 3161) for the commitment.", metavar="URL")
    ] = None,
    replace_key: Annotated[
        bool, typer.Option("--replace-key", help="Rotate: accept a model, or a repository, with another key.")
    ] = False,
    overwrite: shared.Overwrite = False,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Wrap a model so that its answers carry the mark, save it and, if you like, push it.

    The key is never written into the folder. A pushed key is sealed with the passphrase that opened it; a plain key
    goes into private repositories only.

    \b
    Example: drw-hf protect my-classifier --key my-key --output protected
    Example: drw-hf protect my-classifier --key my-key --label-kind hard --push me/protected
    Example: drw-hf protect my-classifier --key my-ring --output served
    """
    from .protect import run

    run(
        model,
        key=key,
        passphrase_file=passphrase_file,
        output=output,
        overwrite=overwrite,
        task=task and task.value,
        label_kind=label_kind and label_kind.value,
        replace_key=replace_key,
        push=push,
        private=private,
        key_repo_id=key_repo,
        push_key=push_key,
        handler=handler,
        timestamp_url=timestamp_url,
        as_json=as_json,
    )


@app.command()
def label(
    teacher: Annotated[str, shared.model_argument("Who is asked", metavar="TEACHER")],
    data: Annotated[str, shared.data_argument("What about")],
    output: Annotated[
        Path, typer.Option(help="Folder, or .parquet file, for the data with the answers.", metavar="FOLDER_OR_FILE")
    ],
    key: shared.OptionalKey = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    limit: shared.Limit = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    task: shared.TaskOption = None,
    overwrite: shared.Overwrite = False,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Ask a model about every row of a data set and keep its answers, as somebody who steals it would.

    With --key its answers are marked. Interrupted, the same command goes on where it stopped.

    \b
    Example: drw-hf label protected queries.jsonl --key my-key --output answers
    """
    from .label import run

    run(
        teacher,
        data,
        output=output,
        overwrite=overwrite,
        key=key,
        passphrase_file=passphrase_file,
        task=task and task.value,
        source={"split": split, "subset": subset, "limit": limit},
        text_columns=text_column or None,
        batch_size=batch_size,
        max_length=max_length,
        as_json=as_json,
    )


@app.command()
def distill(
    data: Annotated[str, shared.data_argument("A teacher's answers, from drw-hf label")],
    student: Annotated[str, shared.model_option("--student", "What the student starts from")],
    output: Annotated[Path, typer.Option(help="Folder for the student.", metavar="FOLDER")],
    label_kind: Annotated[
        shared.LabelKind, typer.Option(help="Learn the teacher's probabilities, or its labels.")
    ] = shared.LabelKind.soft,
    epochs: Annotated[float, typer.Option(help="How often to go through the data.", min=0.0)] = 3.0,
    learning_rate: Annotated[float, typer.Option(help="The largest step size.", min=0.0)] = 5e-5,
    batch_size: shared.BatchSize = 32,
    temperature: Annotated[float, typer.Option(help="Softens teacher and student alike.")] = 1.0,
    gold_weight: Annotated[float, typer.Option(help="Weight of true labels in the loss.", min=0.0, max=1.0)] = 0.0,
    max_length: shared.MaxLength = None,
    seed: Annotated[int, typer.Option(help="Seed of all that is random.")] = 42,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    limit: shared.Limit = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")] = False,
    overwrite: shared.Overwrite = False,
    as_json: shared.AsJson = False,
) -> None:
    """Train a student on a teacher's answers, to see whether the mark would be found in it.

    A student whose labels are not the teacher's gets a new head. On several devices:
    accelerate launch -m drw_hf.cli distill, and the same arguments.

    \b
    Example: drw-hf distill answers --student my-classifier --epochs 2 --output student
    """
    from .distill import run

    run(
        data,
        student=student,
        output=output,
        overwrite=overwrite,
        resume=resume,
        source={"split": split, "limit": limit},
        text_columns=text_column or None,
        label_kind=label_kind.value,
        num_train_epochs=epochs,
        learning_rate=learning_rate,
        per_device_train_batch_size=batch_size,
        temperature=temperature,
        gold_weight=gold_weight,
        max_length=max_length,
        seed=seed,
        as_json=as_json,
    )


@app.command()
def detect(
    suspect: shared.Suspect,
    texts: shared.Texts,
    key: shared.Key,
    victim: shared.Victim = None,
    tokenizer: shared.VictimTokenizer = None,
    repo: shared.CommitmentRepo = None,
    trusted_root: shared.TrustedRoots = None,
    suspect_first_seen: shared.FirstSeen = None,
    keys_tried: Annotated[int, typer.Option(help="Keys tried in all, this one included.", min=1)] = 1,
    suspects_tested: shared.SuspectsTested = 1,
    looks: shared.Looks = 1,
    level: shared.Level = 1e-3,
    label_map: shared.LabelMap = None,
    gold_column: shared.GoldColumn = None,
    logged_column: Annotated[
        str | None,
        typer.Option(help="Column of labels that you served (hard): selects the memory test.", metavar="NAME"),
    ] = None,
    simulated_keys: Annotated[int, typer.Option(help="Draw so many random keys for the figure.", min=0)] = 0,
    max_queries: shared.MaxQueries = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    output: Annotated[
        Path | None, typer.Option(help="Save the evidence here, and its probe beside it.", metavar="JSON")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the evidence as a page for people.", metavar="FOLDER")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave out of that page what discloses the key.")] = False,
    plot: shared.Plot = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Probe a suspect with texts, and test whether its answers follow the key.

    Exits with 0 if the mark was not detected, 3 if it was, 4 if there is too little to decide. Say how much you tried:
    p-values are corrected for it. The evidence file, a figure and a page that is not redacted disclose the target
    class and the frequency.

    \b
    Example: drw-hf detect student probes.jsonl --key my-key --victim protected --output evidence.json
    Example: drw-hf detect student probes.txt --key my-key --tokenizer protected --keys-tried 2 --plot finding.png
    """
    from .detect import run

    run(
        suspect,
        texts,
        key=key,
        passphrase_file=passphrase_file,
        victim=victim,
        tokenizer=tokenizer,
        repo=repo,
        trusted_roots=trusted_root or (),
        suspect_first_seen=suspect_first_seen,
        keys_tried=keys_tried,
        suspects_tested=suspects_tested,
        looks=looks,
        level=level,
        label_map=label_map or (),
        gold_column=gold_column,
        logged_column=logged_column,
        simulated_keys=simulated_keys,
        max_queries=max_queries,
        text_columns=text_column or None,
        source={"split": split, "subset": subset},
        batch_size=batch_size,
        max_length=max_length,
        output=output,
        report=report,
        redact=redact,
        plot=plot,
        as_json=as_json,
    )


@app.command()
def identify(
    suspect: shared.Suspect,
    texts: shared.Texts,
    ring: shared.RingOption,
    users: shared.Users,
    declared_users: Annotated[
        Path | None, shared.file_option("--declared-users", "The users that were declared, where --users are others.")
    ] = None,
    epoch: shared.Epoch = None,
    victim: shared.Victim = None,
    tokenizer: shared.VictimTokenizer = None,
    suspects_tested: shared.SuspectsTested = 1,
    looks: shared.Looks = 1,
    level: shared.Level = 1e-3,
    top: Annotated[int, typer.Option(help="Rank so many of the strongest users.", min=1, metavar="N")] = 5,
    label_map: shared.LabelMap = None,
    gold_column: shared.GoldColumn = None,
    max_queries: shared.MaxQueries = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    batch_size: shared.BatchSize = 32,
    max_length: shared.MaxLength = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Record the search here; stopped, it goes on where it was.", metavar="FILE", dir_okay=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Save the finding here, every user's p-value and the probe beside it.", metavar="JSON"),
    ] = None,
    plot: shared.Plot = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Probe a suspect with texts, and find which users of a key ring its answers come from.

    Exits with 0 if nobody is named, 3 if somebody is, 4 if there is too little to decide. P-values are corrected for
    all users that the ring declared. It does not prove that a user leaked on purpose, nor to others that the owner did
    not make the mark. The saved finding names users and discloses the target class and the frequency.

    \b
    Example: drw-hf identify student probes.jsonl --ring my-ring --users users.txt --victim served
    Example: drw-hf identify student probes.txt --ring my-ring --users users.txt --tokenizer served --plot users.png
    """
    from .identify import run

    run(
        suspect,
        texts,
        ring=ring,
        passphrase_file=passphrase_file,
        users=users,
        declared_users=declared_users,
        epoch=epoch,
        victim=victim,
        tokenizer=tokenizer,
        suspects_tested=suspects_tested,
        looks=looks,
        level=level,
        top=top,
        label_map=label_map or (),
        gold_column=gold_column,
        max_queries=max_queries,
        text_columns=text_column or None,
        source={"split": split, "subset": subset},
        batch_size=batch_size,
        max_length=max_length,
        resume=resume,
        output=output,
        plot=plot,
        as_json=as_json,
    )


rings = typer.Typer(
    help="Keep a key ring (drw-hf keygen --ring): one secret, a key for every user.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(rings, name="ring")


@rings.command()
def declare(
    ring: shared.RingFolder,
    users: shared.Users,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Fix who the users are, and print the root to publish.

    Do so before their keys mark anything. The ring keeps the root and the count; keep the list yourself. To add users,
    declare the longer list.

    \b
    Example: drw-hf ring declare my-ring --users users.txt
    """
    from .ring import declare

    declare(ring, users=users, passphrase_file=passphrase_file, as_json=as_json)


@rings.command()
def token(
    ring: shared.Ring,
    user: shared.User,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Print the token by which an endpoint knows a user.

    Whoever has it asks in the user's name. Rotation does not change it.

    \b
    Example: drw-hf ring token my-ring --user ann
    """
    from .ring import token

    token(ring, user=user, passphrase_file=passphrase_file, as_json=as_json)


@rings.command()
def key(
    ring: shared.Ring,
    user: shared.User,
    output: Annotated[Path, typer.Option(help="Folder for the key.", metavar="FOLDER")],
    epoch: shared.Epoch = None,
    plain: Annotated[bool, typer.Option("--plain", help="Do not seal the key, to hand it over.")] = False,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Save the key of one user.

    An ordinary key, for label, detect and verify; to check a proof others need it, too. It says nothing of the keys of
    other users. It is sealed with the passphrase of the ring, if the ring is.

    \b
    Example: drw-hf ring key my-ring --user ann --output ann-key
    """
    from .ring import save_key

    save_key(
        ring, user=user, output=output, epoch=epoch, plain=plain, passphrase_file=passphrase_file, as_json=as_json
    )


@rings.command()
def prove(
    ring: shared.Ring,
    user: shared.User,
    users: shared.Users,
    output: Annotated[Path, typer.Option(help="File for the proof.", metavar="JSON")],
    epoch: shared.Epoch = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Write the proof that a user was declared.

    With the user's key and the published root, others can check it, without the ring. Pass the very list that was
    declared.

    \b
    Example: drw-hf ring prove my-ring --user ann --users users.txt --output proof.json
    """
    from .ring import prove

    prove(ring, user=user, users=users, output=output, epoch=epoch, passphrase_file=passphrase_file, as_json=as_json)


@rings.command()
def rotate(
    ring: shared.RingFolder, passphrase_file: shared.PassphraseFile = None, as_json: shared.AsJson = False
) -> None:
    """Open a new epoch: every user gets a new key.

    Older epochs can still be searched (--epoch), and tokens stay valid.

    \b
    Example: drw-hf ring rotate my-ring
    """
    from .ring import rotate

    rotate(ring, passphrase_file=passphrase_file, as_json=as_json)


@app.command()
def verify(
    evidence: Annotated[Path, typer.Argument(help="The JSON that DetectionResult.save wrote; its probe lies beside.")],
    key: shared.Key,
    repo: shared.CommitmentRepo = None,
    trusted_root: shared.TrustedRoots = None,
    suspect_first_seen: shared.FirstSeen = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Replay a claim: is saved evidence what its probe, its key and its commitment say?

    Checks that the key is the one the evidence names and was committed to before the suspect was first seen, that the
    parameters are the key's, that every figure follows from the saved probe, and that what was tried is declared.
    Exits with 0 if every check passed, 1 if one failed, 4 if none failed but some could not be decided.

    \b
    Example: drw-hf verify evidence.json --key my-key --repo me/protected --trusted-root tsa.pem
    """
    from .verify import run

    run(
        evidence,
        key=key,
        repo_id=repo,
        trusted_roots=trusted_root or (),
        suspect_first_seen=suspect_first_seen,
        passphrase_file=passphrase_file,
        as_json=as_json,
    )


@app.command()
def card(
    model: Annotated[str, shared.model_argument("The protected model")],
    data: Annotated[
        str | None,
        typer.Option(
            help="Labelled data, to measure accuracy with and without the mark.",
            metavar="DATA",
            autocompletion=shared.complete_path,
        ),
    ] = None,
    dataset_name: Annotated[
        str | None, typer.Option(help="What the card calls that data (default: its Hub id).", metavar="NAME")
    ] = None,
    key: shared.OptionalKey = None,
    label_column: Annotated[str | None, typer.Option(help="Column of true labels.", metavar="NAME")] = None,
    text_column: shared.TextColumns = None,
    split: shared.Split = None,
    subset: shared.Subset = None,
    limit: shared.Limit = None,
    batch_size: shared.BatchSize = 32,
    base_model: Annotated[str | None, typer.Option(help="Hub id of the model it was made from.", metavar="ID")] = None,
    license: Annotated[str | None, typer.Option(help="Licence, as on the Hub.", metavar="NAME")] = None,
    language: Annotated[list[str] | None, typer.Option(help="Language code. May be repeated.", metavar="CODE")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag to add. May be repeated.", metavar="NAME")] = None,
    existing: Annotated[
        Path | None,
        typer.Option(
            help="Card whose text is kept (default: the one in the folder).",
            exists=True,
            dir_okay=False,
            metavar="FILE",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where to (default: README.md in the folder; for a Hub id, stdout).", metavar="FILE"),
    ] = None,
    passphrase_file: shared.PassphraseFile = None,
    as_json: shared.AsJson = False,
) -> None:
    """Write or update the model card of a protected model; the text that is there is kept.

    With labelled data the card says what the mark costs. Only then is the key needed.

    \b
    Example: drw-hf card protected --license apache-2.0
    Example: drw-hf card protected --data labelled.csv --dataset-name reviews --key my-key
    """
    from .card import run

    run(
        model,
        data=data,
        dataset_name=dataset_name,
        key=key,
        passphrase_file=passphrase_file,
        label_column=label_column,
        text_columns=text_column or None,
        source={"split": split, "subset": subset, "limit": limit},
        batch_size=batch_size,
        base_model=base_model,
        license=license,
        language=language or None,
        tags=tag or (),
        existing=existing,
        output=output,
        as_json=as_json,
    )


@app.command()
def audit(
    repo_id: Annotated[str, typer.Argument(help="The repository, as in me/model.", metavar="REPO")],
    repo_type: Annotated[shared.RepoType, typer.Option(help="What it holds.")] = shared.RepoType.model,
    as_json: shared.AsJson = False,
) -> None:
    """Say whether a key lies open in a repository, in any revision of its history, and what to do.

    Looks at every commit that a branch, a tag or a pull request leads to. Exits with 0 if nothing lies open to others
    (a plain key in a private repository is reported as "at risk"), 3 if something does.

    \b
    Example: drw-hf audit me/protected
    """
    from .audit import run

    run(repo_id, repo_type=repo_type.value, as_json=as_json)


@app.command()
def reproduce(
    profile: Annotated[
        str,
        typer.Argument(help="tiny, minilm, paper, smoke, or a TOML file of your own like them.", metavar="PROFILE"),
    ] = "tiny",
    part: Annotated[
        list[shared.Part] | None,
        typer.Option(help="What of the paper (default: tables). May be repeated."),
    ] = None,
    task: Annotated[
        list[shared.PaperTask] | None, typer.Option(help="Which tasks (default: the profile's). May be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Folder with sst2, mrpc and conll2003, as JSON lines (default: from the Hub).",
            metavar="FOLDER",
            autocompletion=shared.complete_path,
        ),
    ] = None,
    encoder: Annotated[
        str | None, shared.model_option("--encoder", "The pretrained encoder, in place of the profile's")
    ] = None,
    other_encoder: Annotated[
        str | None,
        shared.model_option(
            "--other-encoder", "Another one, for the case study's student that differs from its victim"
        ),
    ] = None,
    students: Annotated[
        int | None, typer.Option(help="Students of every kind (default: the profile's number).", min=1, metavar="N")
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for the lines, tables and figures.", metavar="FOLDER")] = Path(
        "drw-reproduce"
    ),
    work: Annotated[
        Path | None, typer.Option(help="Folder for models and probes (default: OUTPUT/work).", metavar="FOLDER")
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes at work, each with a GPU, or its share of the cores.", min=1, metavar="N")
    ] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the jobs and what they would cost.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write tables and figures of what is there.")] = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
    as_json: shared.AsJson = False,
) -> None:
    """Repeat the paper: train victims, thieves and innocents, test them all, and write the tables and figures.

    Every job (a model to train, to probe or to score) writes one line of JSON as it ends; stopped and started again,
    a run goes on where it was. The paper's own size is the profile paper, for GPUs; tiny takes a minute or two a
    student on one CPU core.

    \b
    Example: drw-hf reproduce tiny --data my-data --dry-run
    Example: drw-hf reproduce tiny --task pos --students 2 --workers 2 --data my-data
    Example: drw-hf reproduce paper --part tables --part epsilon --workers 8
    """
    from .reproduce import run

    run(
        profile,
        parts=[one.value for one in part or [shared.Part.tables]],
        tasks=[one.value for one in task] if task else None,
        students=students,
        data=data,
        encoder=encoder,
        other_encoder=other_encoder,
        output=output,
        work=work,
        workers=workers,
        dry_run=dry_run,
        report=report,
        worker=worker,
        as_json=as_json,
    )
