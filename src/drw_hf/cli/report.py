"""Saved evidence as a page for those who judge it."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as shared
from .output import Outcome, check_free, prints_outcome


@prints_outcome
def report(
    evidence: Annotated[
        Path,
        typer.Argument(help="The JSON that detect --output wrote, its probe beside it; or the one of drw-hf attack."),
    ],
    output: Annotated[Path, shared.output_option("Folder for the page and the files behind it.")],
    redact: Annotated[bool, shared.flag("--redact", "Leave out what discloses the key.")] = False,
    overwrite: shared.Overwrite = False,
) -> Outcome:
    """Write saved evidence as one page for those who judge it, with the files behind it.

    Neither a key nor a model is needed, and nothing is tested anew: for that see drw-hf verify. The full page and its
    files disclose the target class, the frequency and hash values: they are as confidential as the key. With --redact
    they show nothing of the key but its commitment, and can be published.

    Of a rehearsal it is the page that drw-hf attack wrote, for those who decide; that shows nothing of the key.

    \b
    Example: drw-hf report evidence.json --output report
    Example: drw-hf report evidence.json --redact --output published
    """
    from ..detection import DetectionResult
    from ..planning import Rehearsal
    from ..planning.rehearsal import is_rehearsal

    check_free(output, overwrite)
    if is_rehearsal(evidence):
        if redact:
            raise typer.BadParameter(f"--redact is for evidence, and {evidence} is a rehearsal; leave it out")
        written = Rehearsal.load(evidence).page(output / "rehearsal.html")
        return Outcome({"report": str(written)}, f"Wrote the page of the rehearsal to {written}.")
    result = DetectionResult.load(evidence)
    page = result.report(output, redact=redact)
    use = "can be published" if redact else "is as confidential as the key; --redact writes one that can be published"
    document = {"report": str(page), "redacted": redact, "verdict": result.verdict, "suspect": result.suspect}
    return Outcome(document, f"Wrote the report to {page}: it {use}.")
