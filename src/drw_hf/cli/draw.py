"""Announcing that texts will be drawn from a corpus by public randomness."""

from pathlib import Path
from typing import Annotated

from . import options as shared
from .output import Outcome, check_free, prints_outcome


@prints_outcome
def draw(
    corpus: Annotated[str, shared.data_argument("What the texts will be drawn from", "CORPUS")],
    number: Annotated[int, shared.count_option("How many texts will be drawn.")],
    source: Annotated[
        str, shared.name_option("Where the seed will come from: a beacon and one exact future round.", "WORDS")
    ],
    output: Annotated[Path, shared.output_option("Write the announcement here.", "JSON")],
    *,
    task: shared.TaskOption = None,
    reading: shared.Reading,
    overwrite: shared.Overwrite = False,
) -> Outcome:
    """Fix a corpus and how many texts a public seed will draw from it, so that nobody chooses what a suspect is asked.

    Publish the announcement, or have its digest stamped, before the round that it names and before the suspect is
    asked. Once the round is there, drw-hf probe --draw asks the texts that it draws.

    \b
    Example: drw-hf draw corpus.jsonl --number 40 --source "drand quicknet, round 30000000" --output draw.json
    """
    import json

    from ..detection.drawing import Announcement
    from ..keys.choices import TASKS

    check_free(output, overwrite)
    known = task or TASKS[0]
    announced = Announcement.of(reading.load(corpus, known), number, source, known, reading.text_column)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(announced.to_dict(), indent=2) + "\n", encoding="utf-8")
    digest = announced.digest()
    said = (
        f"{source} will draw {number} of the corpus's {announced.n_texts} texts. Wrote the announcement to {output}; "
        f"publish it, or have its digest stamped, before that round:\n{digest}"
    )
    return Outcome({"announcement": str(output), "digest": digest, **announced.to_dict()}, said)
