"""What a demo says: its story for people, told from what ``demo.json`` holds, and how to go on."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from ..detection.result import NOT_COMMITTED
from ..keys.choices import LabelKind, Task
from ..wording import small_p

SEQUENCE: Task = "sequence-classification"
TOKEN: Task = "token-classification"
SUSPECTS = {"soft": "student of soft labels", "hard": "student of hard labels", "innocent": "innocent model"}
GUILTY: tuple[LabelKind, ...] = ("soft", "hard")


def tell(report: dict[str, Any]) -> str:
    """The story of a demo, from what ``demo.json`` holds."""
    tagger = report["task"] == TOKEN
    things, item = ("sentences", "tags") if tagger and report["model"] is None else ("texts", "labels")
    service, folder = report["service"], report["folder"]
    same = math.floor(1000 * service["same_label"]) / 1000  # so that 100.0% is all of them
    unit = "words" if tagger else "texts"
    probed = (
        f"{report['probes']:,} new {things}" if tagger else f"the {report['probes']:,} {things} of the service's log"
    )
    began = f"from {report['student']}" if report["student"] else "from scratch"
    paragraphs = [
        f"{report['victim']} is the victim. It was protected with a secret key, and serves as before: of "
        f"{service['answers']:,} {unit} it had never seen, {service['moved']:.0%} got probabilities that the key had "
        f"moved (by {service['largest_change']:.2f} at most), and {same:.1%} the same label.",
        f"A thief sent {report['queries']:,} {things} of its own to the service and trained students on the answers, "
        f"{began}: one on probabilities (soft labels), one on {item} alone (hard labels). An innocent model learned "
        f"the same task from its own data. The owner asked each of the three {probed}, and looked for the key in what "
        "they said.",
        table(report["models"]),
        *outcome(report),
        "p-value: the chance that a model which has nothing to do with the key looks as marked as this one, corrected "
        f"for three suspects; below {report['level']:g} the verdict is 'detected'. P_snr: how far the key's frequency "
        "stands out of the noise in the answers, the score of the paper.",
        "\n".join(
            [
                f"In {folder}:",
                "  figures/       what the key finds in each suspect; look at soft.png first",
                "  evidence/      a report on each suspect (report.html), and the files behind it",
                "  protected/     the victim, with no trace of its key",
                "  key/           the key, sealed. Its passphrase was drawn for this run and is",
                "                 kept nowhere, so nobody can open it: make a key of your own",
                "  demo.json      these figures, for scripts",
                "  next-steps.md  how to go on with a model of your own:",
            ]
        ),
        "\n".join(f"  {line}" for line in commands(report)),
        f"This took {report['seconds']['total']:.0f} seconds.",
    ]
    return "\n\n".join(
        text if "\n" in text else textwrap.fill(text, 80, break_long_words=False, break_on_hyphens=False)
        for text in paragraphs
    )


def outcome(report: dict[str, Any]) -> list[str]:
    """What came of it, in words; what did not come as it should is not passed over."""
    verdicts = {row["model"]: row for row in report["models"] if "verdict" in row}
    expected = {SUSPECTS[name]: "detected" if name in GUILTY else "not detected" for name in SUSPECTS}
    surprises = [name for name, verdict in expected.items() if verdicts[name]["verdict"] != verdict]
    if not surprises:
        return ["Both students carry the mark, and the innocent model does not."]
    return [
        f"The {name} should be {expected[name]!r}, and is {verdicts[name]['verdict']!r}: "
        + verdicts[name]["explanation"].removesuffix(f" {NOT_COMMITTED}.")
        for name in surprises
    ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The models, one per line."""
    lines = [f"  {'model':28}{'accuracy':>8}{'P_snr':>8}{'p-value':>10}  verdict"]
    for row in rows:
        line = f"  {row['model']:28}{row['accuracy']:>8.1%}"
        if "verdict" in row:
            line += f"{row['p_snr']:>8.1f}{small_p(row['log10_p']):>10}  {row['verdict']}"
        lines.append(line)
    return "\n".join([lines[0], "  " + "-" * (len(lines[0]) + 3), *lines[1:]])


def commands(source: dict[str, Any]) -> list[str]:
    """How to go on with a model of one's own."""
    model = source["model"] or "MODEL"
    return [
        f"drw-hf keygen {model} --target LABEL --output my-key",
        f"drw-hf protect {model} --key my-key --output my-protected",
        "drw-hf label my-protected queries.jsonl --key my-key --output answers",
        f"drw-hf distill answers --student {model} --output student",
        "drw-hf detect student probes.jsonl --key my-key --victim my-protected --report evidence",
    ]


def next_steps(source: dict[str, Any], task: str) -> str:
    """The page of that name."""
    keygen, protect_it, label, distill, find = commands(source)
    rows = '{"tokens": ["Ada", "wrote", "it"]}' if task == TOKEN else '{"text": "a film worth seeing"}'
    again = f" --task {task}" if task != TOKEN and not source["model"] else ""
    return f"""# Next steps

`MODEL` is a folder or a Hub id of a classifier or tagger of yours, `LABEL` one of its labels that it often predicts.

Make a key. It is sealed with a passphrase that you are asked for; without it, the key is lost.

    {keygen}

Protect the model, and serve its answers instead of the plain model's.

    {protect_it}

Try whether the mark survives a theft before somebody else does. `queries.jsonl` and `probes.jsonl` hold one row
per line, like `{rows}`; probes that no model was trained on will do for a tagger, those of `queries.jsonl` for a
sentence classifier.

    {label}
    {distill}

Look for the mark. This exits with 0 if it was not detected, 3 if it was, 4 if there is too little to decide.

    {find}

Or play the demo with a model and texts of your own, which have the right labels:

    drw-hf demo --model MODEL --dataset DATA --output my-demo{again}

The key in this folder is of no further use: its passphrase was forgotten when the demo ended. Figures and reports
disclose the target class, the frequency and hash values of a key: those of a key in use are as confidential as it is.
"""
