"""``make fuzz``: looks for files that make the package fail with an error that is not its own, guided by coverage.

Each target runs for a while (``--seconds``, 60 by default) in a process of its own. A find is written to ``--finds``,
shown with its traceback, and played again by ``--play``. Needs the extra ``drw_hf[fuzz]`` (atheris).
"""

import argparse
import logging
import random
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

_SEEDS, _SEED_BYTES = 100, 64  # choices enough for an altered file each: from nothing the fuzzer makes few


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help="which; all of them by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds"), help="the folder for what was found")
    parser.add_argument("--play", type=Path, help="a find to play again, with its one target")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # what the process of one target is started with
    options = parser.parse_args()
    if options.run or options.play:
        run(options.run or options.targets[0], options.seconds, options.finds, options.play)
        return 0
    failed = []
    for name in options.targets or names():
        settings = ["--run", name, "--seconds", str(options.seconds), "--finds", str(options.finds)]
        if subprocess.run([sys.executable, "-m", "fuzz", *settings], check=False).returncode:
            failed.append(name)
    print(f"finds in: {', '.join(failed)} ({options.finds})" if failed else "nothing was found")
    return 1 if failed else 0


def names() -> list[str]:
    from .targets import TARGETS

    return list(TARGETS)


def run(name: str, seconds: int, finds: Path, play: Path | None) -> None:
    """Fuzz one target; ends with status 1 at its first find."""
    import atheris

    with atheris.instrument_imports(include=["drw_hf"]):
        from .targets import TARGETS, survives

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    finds.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place, seeds = Path(folder, "target"), Path(folder, "seeds")
        place.mkdir()
        target = TARGETS[name](place)

        class Provided:
            """Choices that the fuzzer makes."""

            def __init__(self, data: bytes) -> None:
                self.provider = atheris.FuzzedDataProvider(data)

            def below(self, n: int) -> int:
                return self.provider.ConsumeIntInRange(0, n - 1)

            def content(self, most: int) -> bytes:
                return self.provider.ConsumeBytes(most)

        def once(data: bytes) -> None:
            try:
                survives(target, Provided(data))
            except Exception:
                traceback.print_exc()
                raise

        if play is not None:
            once(play.read_bytes())
            return
        seeds.mkdir()
        for number in range(_SEEDS):
            (seeds / str(number)).write_bytes(random.Random(number).randbytes(_SEED_BYTES))
        limits = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096", "-max_len=512", "-len_control=0"]
        atheris.Setup([name, *limits, "-print_final_stats=1", f"-artifact_prefix={finds / name}-", str(seeds)], once)
        print(f"{name}: {seconds} s", flush=True)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
