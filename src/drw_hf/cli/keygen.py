"""Making a key, or a ring of them."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as shared
from .output import Outcome, check_no_key, prints_outcome, resumable, show_progress

if TYPE_CHECKING:
    pass

PRICES = ({"--budget", "--data"}, {"--budget", "--data", "--temperature"}, {"--strength", "--temperature"})
MARGINS = {"--margin-budget"}  # beside a budget


@prints_outcome
def keygen(
    model: Annotated[
        str, shared.model_argument("What is to be protected (its weights are needed for --budget alone)")
    ],
    output: shared.KeyFolder,
    mark: shared.MarkOption = None,
    budget: Annotated[
        float | None,
        shared.number_option(
            "tilt: accuracy that the mark may cost, in points; the strength is fitted to it.", most=100
        ),
    ] = None,
    margin_budget: shared.MarginBudget = None,
    data: Annotated[
        str | None,
        shared.path_option("tilt: labelled texts that the model was not trained on, to fit the strength to."),
    ] = None,
    temperature: shared.Temperature = None,
    strength: Annotated[
        float | None, shared.number_option("tilt: how far the log-odds move, where you know it. Needs --temperature.")
    ] = None,
    target: Annotated[
        str | None,
        shared.name_option(
            "cosine: target class, whose probability carries the mark. Asked for if left out: a shell keeps its "
            "history.",
            "LABEL",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        shared.number_option(
            "cosine: level of the mark; a probability moves by at most 2 epsilon / (1 + 2 epsilon) (default: 0.2)."
        ),
    ] = None,
    tau: Annotated[
        float | None,
        shared.number_option("Share of tokens that are marked (default: 1; cosine: 0.5).", most=1.0),
    ] = None,
    frequency: shared.Frequency = 16.0,
    law: Annotated[shared.Law | None, typer.Option(help="cosine: how hashes are drawn (default: direct).")] = None,
    scope: shared.ScopeOption = None,
    hash_rule: shared.HashRuleOption = None,
    task: shared.TaskOption = None,
    ring: Annotated[bool, shared.flag("--ring", "Make a key ring: a key for every user.")] = False,
    plain: Annotated[bool, shared.flag("--plain", "Do not seal the key.")] = False,
    passphrase_file: shared.PassphraseFile = None,
    *,
    label_column: shared.LabelColumn = None,
    reading: shared.Reading,
    limit: shared.Limit = None,
    batches: shared.Batches,
    seasoning: shared.Seasoning,
) -> Outcome:
    """Make a key for a model, sealed with a passphrase.

    State a price: with --budget 0.3 the mark costs at most 0.3 points of accuracy on average. Its strength is fitted
    to the model's clean answers about --data, with throwaway keys, before this key is committed to anything.

    With --target the mark is the paper's (--mark cosine). Choose a class that the model often predicts: only tokens of
    such answers can carry it.

    A passphrase is asked for (twice), or taken from a file or from DRW_PASSPHRASE. A key is never overwritten.

    With --season-round the key waits for a round of public randomness, which chooses its numbers: nobody, you neither,
    can then have made a key to fit. Publish its commitment, wait, and run drw-hf season.

    With --ring it is one secret from which every user gets a key of his own: see drw-hf ring and drw-hf identify.

    \b
    Example: drw-hf keygen my-classifier --budget 0.3 --data labelled.csv --output my-key
    Example: drw-hf keygen my-classifier --strength 0.3 --temperature 1.4 --output my-next-key
    Example: drw-hf keygen my-classifier --target positive --output paper-key
    Example: drw-hf keygen my-classifier --ring --target positive --output my-ring
    Example: drw-hf keygen my-classifier --target positive --season-round quicknet:+2h --output my-key-to-be
    """
    from ..asking.models import load_clean, load_config, load_tokenizer
    from ..keys import KeyRing, UnseasonedKey, WatermarkKey
    from ..keys.binding import labels_of, plain_config, task_of
    from ..keys.settings import USUAL_MARK, default_mark
    from .inputs import class_named, parse_round, terms_for
    from .passphrases import new_passphrase
    from .tilt import fit_document

    papers = {"epsilon": epsilon, "law": law, "scope": scope, "hash_rule": hash_rule}
    tilts = {"--budget": budget, "--data": data, "--temperature": temperature, "--strength": strength}
    tilts["--margin-budget"] = margin_budget
    tilted = (mark or default_mark(target, papers)) == USUAL_MARK
    _check_price(tilts, tilted)
    check_no_key(output)
    round_ = parse_round(seasoning)
    config, tokenizer = load_config(model), load_tokenizer(model)
    labels = labels_of(plain_config(config))
    if target is None and not tilted:  # what stands on the command line is kept in the shell's history
        names = ", ".join(labels)
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"--target is missing; the model's labels are: {names}")
        target = typer.prompt(f"Target class (one of {names})", err=True)
    given: dict[str, Any] = {**papers, "tau": tau, "frequency": frequency, "task": task, "mark": mark}
    if tilted:
        given |= {"strength": strength, "temperature": 1.0 if temperature is None else temperature}
    key: WatermarkKey = WatermarkKey.generate(
        config,
        target=None if target is None else class_named(target, labels),
        tokenizer=tokenizer,
        **{name: value for name, value in given.items() if value is not None},
    )
    rows = None if data is None else reading.load(data, key.task, limit)
    passphrase = None if plain else new_passphrase(passphrase_file)
    if budget is not None:
        progress = show_progress()
        with resumable():
            key = key.fit(
                load_clean(model, task or task_of(config)),
                rows,
                tokenizer,
                budget=budget,
                margin_budget=margin_budget or 0.0,
                temperature=temperature,
                label_column=label_column,
                text_columns=reading.text_column,
                progress=progress,
                **vars(batches),
            )
    terms = None
    if round_ is not None:
        terms = terms_for(seasoning, round_, load_clean(model, task or task_of(config)), tokenizer, key)
    made: WatermarkKey | UnseasonedKey | KeyRing
    if ring:
        made = KeyRing(key, terms=terms)
    else:
        made = key if terms is None else UnseasonedKey(key, terms)
    made.save_pretrained(output, passphrase=passphrase)
    document: dict[str, Any] = {"path": str(output), "sealed": not plain, "fingerprint": made.fingerprint}
    noun = "key ring" if ring else "key"
    keep = f"Whoever reads that folder has the {noun}." if plain else f"Without its passphrase the {noun} is lost."
    lines = [f"Made the {noun} {made.fingerprint} in {output}, {'plain' if plain else 'sealed'}. {keep}"]
    if key.fitted is not None:
        document["fit"] = fit_document(key.fitted)
        lines.append(f"Its mark: {key.fitted}")
    if isinstance(made, KeyRing):
        document["epoch"] = made.epoch
        lines += [
            "Next, declare your users (one per line in a file), before any of their keys marks anything:",
            f"  drw-hf ring declare {output} --users users.txt",
        ]
    else:
        document["commitment"] = made.commitment()
        lines += [f"Its commitment: {made.commitment()}"]
    if terms is not None:
        document["round"], document["address"] = str(terms.round), terms.round.address
        lines += [
            f"It waits for {terms.round}, and marks nothing until then. Publish the commitment more than ten minutes "
            "before:",
            f"  drw-hf publish {output} --repo me/commitments --timestamp-url https://your-authority",
            f"When the round is drawn, save what {terms.round.address} gives, and season the {noun}:",
            f"  drw-hf season {output} --value round.json",
        ]
    else:
        lines += [f"Next, protect the model with {'the ring' if ring else 'it'}:"]
        lines += [f"  drw-hf protect {model} --key {output} --output protected"]
    return Outcome(document, "\n".join(lines))


def _check_price(tilts: dict[str, Any], tilted: bool) -> None:
    """Refuse a tilt without a price, or with two, and options that the paper's mark does not have."""
    given = {name for name, value in tilts.items() if value is not None}
    if not tilted and given:
        names = ", ".join(sorted(given))
        raise typer.BadParameter(f"{names}: of the mark tilt alone; leave out --target and what else is the paper's")
    if tilted and (given - MARGINS not in PRICES or (given & MARGINS and "--budget" not in given)):
        raise typer.BadParameter(
            "a key of the mark tilt needs its price: --budget with --data (labelled, or else with --temperature), or "
            "--strength with --temperature; for the paper's mark, name its --target class"
        )
