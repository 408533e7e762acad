"""Looking for the mark of a key in a suspect."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import DETECTED, DONE, UNDECIDED, Outcome, prints_outcome, resumable, show_progress

EXIT_CODES = {"detected": DETECTED, "not detected": DONE, "undecided": UNDECIDED}
# What of a result is shown: nothing of the key but its public names. The evidence file holds all.
SHOWN = (
    "verdict p_value p_bound log10_p log10_bound z_score p_snr n_probes n_tokens n_effective n_queries level "
    "keys_tried suspects_tested looks statistic variant tokens_needed explanation key_fingerprint key_commitment "
    "probe_digest suspect suspect_first_seen commitment committed created_at"
).split()


@prints_outcome
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
) -> Outcome:
    """Probe a suspect with texts, and test whether its answers follow the key.

    Exits with 0 if the mark was not detected, 3 if it was, 4 if there is too little to decide. Say how much you tried:
    p-values are corrected for it. The evidence file, a figure and a page that is not redacted disclose the target
    class and the frequency.

    \b
    Example: drw-hf detect student probes.jsonl --key my-key --victim protected --output evidence.json
    Example: drw-hf detect student probes.txt --key my-key --tokenizer protected --keys-tried 2 --plot finding.png
    """
    from .. import detection
    from ..asking.data import load_data
    from ..asking.models import load_tokenizer
    from ..evidence import verify_commitment
    from .inputs import column, load_clean, load_suspect, parse_first_seen, parse_label_map, tokenizer_name
    from .passphrases import open_key

    own = tokenizer_name(tokenizer, victim)
    if redact and report is None:
        raise typer.BadParameter("--redact is for --report, which is missing")
    renamed = parse_label_map(label_map)
    first_seen = parse_first_seen(suspect_first_seen)
    progress = show_progress()
    opened = open_key(key, passphrase_file)
    record = None if repo is None else verify_commitment(opened, repo, trusted_roots=trusted_root or ())
    columns = text_column or None
    rows = load_data(texts, task=opened.task, text_columns=columns, split=split, subset=subset)
    asked, its_tokenizer = load_suspect(suspect, opened)
    with resumable():
        result = detection.detect(
            asked,
            rows,
            key=opened,
            tokenizer=load_tokenizer(own),
            # Its mark is switched off while it is asked, so which key it loads with does not matter.
            victim=None if victim is None else load_clean(victim, opened),
            suspect_tokenizer=its_tokenizer,
            label_map=renamed,
            gold=None if gold_column is None else column(rows, gold_column, "--gold-column"),
            logged=None if logged_column is None else column(rows, logged_column, "--logged-column"),
            commitment=record,
            suspect_first_seen=first_seen,
            progress=progress,
            keys_tried=keys_tried,
            suspects_tested=suspects_tested,
            looks=looks,
            level=level,
            simulated_keys=simulated_keys,
            max_queries=max_queries,
            text_columns=columns,
            batch_size=batch_size,
            max_length=max_length,
        )
    written = {}
    if output is not None:
        result.save(output)
        written["evidence"] = str(output)
    if report is not None:
        written["report"] = str(result.report(report, redact=redact))
    if plot is not None:
        plot.parent.mkdir(parents=True, exist_ok=True)
        result.plot(plot)
        written["plot"] = str(plot)
    found = result.to_dict()
    lines = [str(result), result.explanation, *(f"Wrote the {what} to {where}." for what, where in written.items())]
    return Outcome(
        {**{name: found[name] for name in SHOWN}, "files": written}, "\n".join(lines), EXIT_CODES[result.verdict]
    )
