"""Looking for the mark of a key in a suspect."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from .. import detection
from ..asking.data import load_data
from ..asking.models import load_config, load_model, load_tokenizer
from ..detection.result import as_iso
from ..errors import InvalidInputError
from ..evidence import verify_commitment
from ..keys import WatermarkKey
from ..watermark import WatermarkedConfig
from .data import column
from .output import DETECTED, DONE, UNDECIDED, Outcome, prints_outcome, resumable, show_progress
from .passphrases import open_key

EXIT_CODES = {"detected": DETECTED, "not detected": DONE, "undecided": UNDECIDED}
# What of a result is shown: nothing of the key but its public names. The evidence file holds all.
SHOWN = (
    "verdict p_value p_bound log10_p log10_bound z_score p_snr n_probes n_tokens n_effective n_queries level "
    "keys_tried suspects_tested looks statistic variant tokens_needed explanation key_fingerprint key_commitment "
    "probe_digest suspect suspect_first_seen commitment committed created_at"
).split()


@prints_outcome
def run(
    suspect: str,
    texts: str,
    *,
    key: str,
    passphrase_file: Path | None,
    victim: str | None,
    tokenizer: str | None,
    repo: str | None,
    trusted_roots: Sequence[Path],
    suspect_first_seen: str | None,
    label_map: Sequence[str],
    gold_column: str | None,
    logged_column: str | None,
    output: Path | None,
    report: Path | None,
    redact: bool,
    plot: Path | None,
    source: dict[str, Any],
    **settings: Any,
) -> Outcome:
    """Probe, test, and write down what was asked for; ``settings`` are those of :func:`drw_hf.detect`."""
    own_tokenizer = tokenizer or victim
    if own_tokenizer is None:
        raise typer.BadParameter("the hash goes by your own tokens; pass --victim (or --tokenizer, without a victim)")
    if redact and report is None:
        raise typer.BadParameter("--redact is for --report, which is missing")
    renamed = parse_label_map(label_map)
    try:
        first_seen = None if suspect_first_seen is None else as_iso(suspect_first_seen, "--suspect-first-seen")
    except InvalidInputError as error:
        raise typer.BadParameter(str(error)) from None
    progress = show_progress()
    opened = open_key(key, passphrase_file)
    record = None if repo is None else verify_commitment(opened, repo, trusted_roots=trusted_roots)
    rows = load_data(texts, task=opened.task, text_columns=settings["text_columns"], **source)
    asked, its_tokenizer = load_suspect(suspect, opened)
    with resumable():
        result = detection.detect(
            asked,
            rows,
            key=opened,
            tokenizer=load_tokenizer(own_tokenizer),
            # Its mark is switched off while it is asked, so which key it loads with does not matter.
            victim=None if victim is None else load_clean(victim, opened),
            suspect_tokenizer=its_tokenizer,
            label_map=renamed,
            gold=None if gold_column is None else column(rows, gold_column, "--gold-column"),
            logged=None if logged_column is None else column(rows, logged_column, "--logged-column"),
            commitment=record,
            suspect_first_seen=first_seen,
            progress=progress,
            **settings,
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


def load_suspect(name: str, key: WatermarkKey) -> tuple[Any, Any]:
    """A model with its own tokenizer, or the client of a service at an address."""
    if name.startswith(("http://", "https://")):
        from huggingface_hub import InferenceClient

        return InferenceClient(model=name), None
    return load_model(name, task=key.task), load_tokenizer(name)


def load_clean(name: str, key: WatermarkKey) -> Any:
    """The victim, plain or protected."""
    if isinstance(load_config(name), WatermarkedConfig):
        return load_model(name, key=key, replace_key=True)
    return load_model(name, task=key.task)


def parse_label_map(pairs: Sequence[str]) -> dict[str, str] | None:
    """``old=new`` as a mapping."""
    wrong = [pair for pair in pairs if "=" not in pair.strip("=")]
    if wrong:
        raise typer.BadParameter(f"--label-map {wrong[0]}: expected theirs and yours, as in LABEL_0=negative")
    return dict(pair.split("=", 1) for pair in pairs) or None
