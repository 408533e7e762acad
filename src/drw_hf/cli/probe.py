"""Asking a suspect now, for somebody who decides later: no key is needed."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import Outcome, prints_outcome, resumable, show_progress


@prints_outcome
def probe(
    suspect: shared.Suspect,
    texts: shared.Texts,
    model: Annotated[
        str,
        shared.model_option("--model", "The protected model, of which labels and tokenizer are read"),
    ],
    output: Annotated[Path, shared.output_option("Save the probe here.", "NPZ")],
    *,
    draw: Annotated[
        Path | None, shared.file_option("Announcement that drw-hf draw wrote: ask what the seed draws from TEXTS.")
    ] = None,
    seed_from: Annotated[
        Path | None, shared.file_option("The value of the announced round: hexadecimal digits, or the round's JSON.")
    ] = None,
    label_map: shared.LabelMap = None,
    max_queries: shared.MaxQueries = None,
    reading: shared.Reading,
    batches: shared.Batches,
    timestamp_url: Annotated[
        str | None, shared.name_option("Have an authority (RFC 3161) stamp the digest, into a .tsr beside it.", "URL")
    ] = None,
) -> Outcome:
    """Ask a suspect and record what it says, without any key at hand: for a neutral party.

    Of the protected model the configuration and the tokenizer are read, and no weights. Publish the digest, or have it
    stamped, before you see the key: then nobody can say that texts or answers were chosen to fit it. drw-hf detect
    takes the probe in the place of a suspect, and drw-hf verify --probe-digest compares the digest.

    \b
    Example: drw-hf probe student probes.jsonl --model protected --output probe.npz
    """
    from ..asking.models import load_config, load_tokenizer
    from ..detection.drawing import LARGEST_SEED, Announcement, read_seed
    from ..detection.probed_model import ProbedModel
    from ..detection.probing import probe_suspect
    from ..detection.result import check_no_evidence, write_evidence
    from ..errors import InvalidInputError
    from ..evidence.timestamps import request_timestamp
    from ..reading.files import LARGEST_DOCUMENT, parse_json, read_within
    from .inputs import parse_label_map

    if (draw is None) != (seed_from is None):
        raise typer.BadParameter("--draw and --seed-from go together: an announcement, and the value of its round")
    if draw is not None and max_queries is not None:
        raise typer.BadParameter("--max-queries would leave out texts that were drawn; announce fewer")
    if output.suffix != ".npz":
        raise typer.BadParameter(f"--output {output}: a probe is an .npz file; give its name that ending")
    stamp = output.with_suffix(".tsr")
    check_no_evidence(output, *([stamp] if timestamp_url else []))
    renamed, progress = parse_label_map(label_map), show_progress()
    config, tokenizer = load_config(model), load_tokenizer(model)
    known = ProbedModel.of_config(config, tokenizer)
    asked = reading.load(texts, known.task)
    options = {"text_columns": reading.text_column, "progress": progress, **vars(batches)}
    record = None
    if draw is not None and seed_from is not None:
        announced = Announcement.from_dict(parse_json(read_within(draw, LARGEST_DOCUMENT, InvalidInputError)))
        seed = read_seed(read_within(seed_from, LARGEST_SEED, InvalidInputError))
        asked = announced.draw(asked, seed, known.task, reading.text_column)
        options["text_columns"], record = None, announced.record(seed)
    with resumable():
        found = probe_suspect(
            suspect,
            asked,
            model=config,
            tokenizer=tokenizer,
            label_map=renamed,
            max_queries=max_queries,
            draw=record,
            **options,
        )
    digest = found.digest()
    files = {output: found.content()}
    if timestamp_url is not None:
        files[stamp] = request_timestamp(digest, timestamp_url)
    write_evidence(files)
    document = {
        "probe": str(output),
        "digest": digest,
        "stamp": str(stamp) if timestamp_url else None,
        "suspect": found.suspect_name,
        "n_queries": found.n_queries,
        "n_unanswered": found.n_unanswered,
        "kind": found.kind,
        "draw": found.draw,
    }
    said = (
        f"Asked {found.suspect_name} {found.n_queries} texts; {found.n_unanswered} answers are missing or no "
        f"prediction. Wrote the probe to {output}. Before you see the key, publish its digest"
        f"{' and its stamp' * bool(timestamp_url)}:\n{digest}"
    )
    return Outcome(document, said)
