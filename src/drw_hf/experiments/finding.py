"""One finding and its figure: a student of soft labels, probed with text that neither it nor the owner's fit saw.

``python -m drw_hf.experiments.finding --output docs/results/finding.png``; the paper's mark with ``--mark cosine``.
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path

from ..detection import detect
from .theft import make_theft, steal

QUERIES = 4000
BUDGET = 0.3  # points of accuracy that the mark may cost


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the PNG; the result goes beside it as JSON")
    parser.add_argument("--mark", choices=("tilt", "cosine"), default="tilt", help="the mark of the key")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        theft = make_theft("token-classification", folder)
        theft = dataclasses.replace(theft, queries=theft.new_text(QUERIES))  # the thief's own, not the victim's school
        parts = theft.unseen.train_test_split(test_size=0.5, shuffle=False)
        if options.mark == "cosine":
            key = theft.key()
        else:
            unfitted = theft.key(target=None, temperature=1.0)
            key = unfitted.fit(theft.victim, parts["train"], theft.tokenizer, budget=BUDGET, progress=False)
            print(key.fitted)
        probe = theft.probe(steal(theft, theft.protected(key), folder), parts["test"], key, folder)
    result = detect(probe, key=key, simulated_keys=10_000)
    result.plot(options.output)
    document = options.output.with_suffix(".json")
    document.unlink(missing_ok=True)  # an illustration, made anew, and nobody's evidence
    dataclasses.replace(result, probe=None).save(document)
    print(result)


if __name__ == "__main__":
    main()
