"""One finding and its figure: a student of soft labels, probed with text it never saw.

``python -m drw_hf.experiments.finding --output docs/results/finding.png``
"""

import argparse
import dataclasses
import tempfile
from pathlib import Path

from ..detection import detect
from .theft import make_theft, steal


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="the PNG; the result goes beside it as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        theft = make_theft("token-classification", folder)
        key = theft.key()
        probe = theft.probe(steal(theft, theft.protected(key), folder), theft.unseen, key, folder)
    result = detect(probe, key=key, simulated_keys=10_000)
    result.plot(options.output)
    dataclasses.replace(result, probe=None).save(options.output.with_suffix(".json"))
    print(result)


if __name__ == "__main__":
    main()
