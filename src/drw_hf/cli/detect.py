"""Looking for the mark of a key in a suspect."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import (
    DETECTED,
    DONE,
    UNDECIDED,
    Outcome,
    check_unwritten,
    prints_outcome,
    resumable,
    save_result,
    show_progress,
)

EXIT_CODES = {"detected": DETECTED, "not detected": DONE, "undecided": UNDECIDED}
# What of a result is shown: nothing of the key but its public names. The evidence file holds all.
SHOWN = (
    "verdict p_value p_bound log10_p log10_bound z_score p_snr n_probes n_tokens n_effective n_queries level "
    "keys_tried suspects_tested looks statistic variant beside parts n_unanswered controls tokens_needed explanation "
    "key_fingerprint key_commitment probe_digest suspect suspect_first_seen commitment committed created_at"
).split()


@prints_outcome
def detect(
    suspect: shared.Suspect,
    texts: shared.OptionalTexts = None,
    *,
    key: shared.KeyOrRing,
    whose: shared.WhoseKey,
    own: shared.OwnModel,
    reference: shared.Reference = None,
    control: shared.Controls = None,
    repo: shared.CommitmentRepo = None,
    trusted_root: shared.TrustedRoots = None,
    suspect_first_seen: shared.FirstSeen = None,
    keys_tried: Annotated[int, shared.count_option("Keys tried in all, this one included.")] = 1,
    tries: shared.Tries,
    label_map: shared.LabelMap = None,
    gold_column: shared.GoldColumn = None,
    logged_column: Annotated[
        str | None,
        shared.name_option("Column of labels that you served (hard): tests by the log, too (memory or margin test)."),
    ] = None,
    logged: shared.Logged = None,
    simulated_keys: Annotated[int, shared.count_option("Draw so many random keys for the figure.", least=0)] = 0,
    max_queries: shared.MaxQueries = None,
    reading: shared.Reading,
    batches: shared.Batches,
    output: Annotated[
        Path | None, shared.output_option("Save the evidence here, and its probe beside it.", "JSON")
    ] = None,
    report: Annotated[Path | None, shared.output_option("Write the evidence as a page for people.")] = None,
    redact: Annotated[bool, shared.flag("--redact", "Leave out of that page what discloses the key.")] = False,
    plot: shared.Plot = None,
    passphrase_file: shared.PassphraseFile = None,
) -> Outcome:
    """Probe a suspect with texts, and test whether its answers follow the key.

    Exits with 0 if the mark was not detected, 3 if it was, 4 if there is too little to decide. Say how much you tried:
    p-values are corrected for it. The evidence file, a figure and a page that is not redacted disclose the target
    class and the frequency. Of a key ring, --user says whose mark is looked for. In the place of SUSPECT and TEXTS
    there may be a probe that a neutral party made with drw-hf probe.

    With --logged the suspect is asked what was asked of your service under the key (of a ring: by that user), and
    labels that were drawn are tested, too. TEXTS are then needed only where the log holds digests of them.

    \b
    Example: drw-hf detect student --logged my-log --key my-key --victim my-classifier
    Example: drw-hf detect student probes.jsonl --key my-key --victim protected --output evidence.json
    Example: drw-hf detect student probes.txt --key my-key --tokenizer protected --keys-tried 2 --plot finding.png
    """
    from .. import detection
    from ..asking import QueryLog
    from ..evidence import verify_commitment
    from .inputs import column, is_probe, load_asked, parse_first_seen, parse_label_map
    from .passphrases import open_key

    if logged is not None and logged_column is not None:
        raise typer.BadParameter("--logged and --logged-column were both given; the log says itself what was served")
    if redact and report is None:
        raise typer.BadParameter("--redact is for --report, which is missing")
    if is_probe(suspect) and (texts or logged):
        raise typer.BadParameter(f"{suspect} is a probe, which holds its texts")
    if not (is_probe(suspect) or texts or logged):
        raise typer.BadParameter("TEXTS are missing: name the texts to ask about, or the log of a service (--logged)")
    check_unwritten(output, report, redact)
    renamed = parse_label_map(label_map)
    first_seen = parse_first_seen(suspect_first_seen)
    progress = show_progress()
    opened = open_key(key, passphrase_file, whose)
    record = None if repo is None else verify_commitment(opened, repo, trusted_roots=trusted_root or ())
    rows = None if texts is None else reading.load(texts, opened.task)
    log = None if logged is None else QueryLog(logged)
    asked = load_asked(suspect, own, opened)
    with resumable():
        result = detection.detect(
            **asked,
            reference=reference,
            texts=rows,
            key=opened,
            controls=control,
            keys_tried=keys_tried,
            **vars(tries),
            label_map=renamed,
            gold=None if rows is None else column(rows, gold_column, "--gold-column"),
            logged=log if rows is None or log is not None else column(rows, logged_column, "--logged-column"),
            simulated_keys=simulated_keys,
            commitment=record,
            suspect_first_seen=first_seen,
            max_queries=max_queries,
            **({} if rows is None else {"text_columns": reading.text_column, **vars(batches)}),
            progress=progress,
        )
    files, lines = save_result(result, "evidence", output, plot, report, redact)
    found = {"n_unanswered": 0, "controls": None, **result.to_dict()}
    document = {**{name: found[name] for name in SHOWN}, "files": files}
    return Outcome(document, "\n".join([str(result), result.explanation, *lines]), EXIT_CODES[result.verdict])
