"""Does the mark tilt survive thieves, and what does it cost? Victims, thieves and innocents of five settings.

``python -m drw_hf.experiments.marks --output docs/results/marks.jsonl --data DIR --encoder PATH --work DIR``

The victim never sees the thief's queries, nor anybody the unseen text. Its temperature and the strength of the mark
are chosen on a part of its own, for a budget of accuracy, before any key that is tested is made. For every seed there
is one key: the thieves of marks_thieves.py take its answers, train students, and these are probed with the queries and
with unseen text; so are innocents.

A line of JSON is written as each job ends, and a run that is started again goes on; started twice, the two share the
jobs. Models, answers and probes are kept in the folder ``--work``: with ``--rescore`` the tests alone are done anew.
"""

import sys
from pathlib import Path

from ..runs.jobs import Run, work_through
from ..runs.lines import append_line, read_lines
from . import library
from .marks_jobs import make_jobs
from .marks_report import report
from .marks_settings import SEEDS, load_settings
from .marks_work import Workshop
from .measurements import command_parser


def forget_scores(output: Path) -> None:
    """Take the lines of scores off, to be written anew."""
    records = [record for record in read_lines(output) if record.get("kind") != "score"]
    kept = output.with_suffix(".part")
    kept.unlink(missing_ok=True)
    for record in records:
        append_line(kept, record)
    if records:
        kept.replace(output)


def main() -> None:
    """The command."""
    parser = command_parser(__doc__)
    parser.add_argument("--data", help="folder with a folder for each data set: conll2003, sst2, clinc150")
    parser.add_argument("--work", type=Path, help="folder for models, answers and probes (default: beside the lines)")
    parser.add_argument("--encoder", help="a pretrained encoder, a folder or a Hub id, for the settings that want one")
    parser.add_argument("--settings", nargs="+", metavar="NAME", help="these settings only")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of students and their keys")
    parser.add_argument("--rescore", action="store_true", help="do all tests anew, from the probes that are kept")
    options = parser.parse_args()
    if not options.report:
        if options.data is None:
            parser.error("--data is needed: the folder with conll2003, sst2 and clinc150")
        settings = load_settings(options.encoder)
        unknown = set(options.settings or ()) - settings.keys()
        if unknown:
            parser.error(f"--settings: {sorted(unknown)} are not known; choose from {list(settings)}")
        wanted = [settings[name] for name in options.settings or settings]
        for name in ("scipy.optimize", "scipy.sparse"):
            library(name)  # what is missing is said now, not by a job in the night
        work = options.work or options.output.with_suffix(".work")
        run = Run(Workshop(settings, work, options.data), make_jobs(wanted, options.seeds), options.output)
        if options.rescore:
            forget_scores(options.output)
        run.prepare()
        run.forget_failures()
        work_through(run, lambda: print(read_lines(options.output)[-1].get("job"), file=sys.stderr, flush=True))
        run.check_finished()
    options.output.with_suffix(".md").write_text(report(options.output), encoding="utf-8")


if __name__ == "__main__":
    main()
