"""What a demo says: its story for people, told from what ``demo.json`` holds, and how to go on."""

import math
import shlex
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..detection.result import NOT_COMMITTED
from ..keys.choices import LabelKind, Task
from ..wording import small_p

HERE = Path(__file__).parent
SEQUENCE: Task = "sequence-classification"
TOKEN: Task = "token-classification"
SUSPECTS = {"soft": "student of soft labels", "hard": "student of hard labels", "innocent": "innocent model"}
PASSPHRASE_FILE = "demo-passphrase.txt"
VERIFY = f"drw-hf verify evidence/soft/evidence.json --key key --passphrase-file {PASSPHRASE_FILE}"
OWN = """\
  model/         the victim as it was, and what a thief may start from (beginner/)
  texts/         labelled, queries and probes: what all were asked
"""
OWN_MODEL = (
    "the model of this demo: run the commands in its folder as they are, or with a folder or a Hub id of your own "
    "model, and texts of your own, in the place of these"
)
GUILTY: tuple[LabelKind, ...] = ("soft", "hard")


def tell(report: dict[str, Any]) -> str:
    """The story of a demo, from what ``demo.json`` holds."""
    tagger, probes = report["task"] == TOKEN, report["probes"]
    things, items = ("sentences", "tags") if tagger and report["model"] is None else ("texts", "labels")
    text = (HERE / "story.txt").read_text(encoding="utf-8")
    told = text.format(
        **report,
        things=things,
        items=items,
        priced=price(report["price"], things),
        unit="words" if tagger else "texts",
        same=math.floor(1000 * report["service"]["same_label"]) / 1000,  # so that 100.0% is all of them
        probed=f"{probes:,} new {things}" if tagger else f"the {probes:,} {things} of the service's log",
        began=f"from {report['student']}" if report["student"] else "from scratch",
        table=table(report["models"]),
        outcome="\n\n".join(outcome(report)),
        passphrase_file=PASSPHRASE_FILE,
        replay=f"  cd {shlex.quote(report['folder'])}\n  {VERIFY}",
        commands="\n".join(f"  {command}" for command in commands(report)),
        own=OWN if report["model"] is None else "",
        whose=", from that folder" if report["model"] is None else "",
    )
    return "\n\n".join(
        paragraph
        if "\n  " in f"\n{paragraph}"  # a table or a list
        else textwrap.fill(paragraph, 80, break_long_words=False, break_on_hyphens=False)
        for paragraph in told.strip("\n").split("\n\n")
    )


def price(paid: dict[str, Any] | None, things: str) -> str:
    """What the owner was ready to pay for the mark, and pays; nothing for a mark without a price."""
    if paid is None:
        return ""
    return (
        f" Its owner is ready to pay {paid['budget']:g} points of accuracy. So the strength of the mark was chosen "
        f"beforehand, on {paid['texts']:,} {things} of his own and with {paid['keys']} keys that were thrown away: it "
        f"costs {paid['expected_cost']:.2f} points as expected, and {paid['measured_cost']:.2f} ± "
        f"{paid['measured_error']:.2f} as counted there."
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
    """The same by hand: with the model of a demo, as its folder holds it, or with the user's own."""
    model = source["model"] or "model"
    texts, student = ("", model) if source["model"] else ("texts/", "beginner --epochs 8 --learning-rate 3e-3")
    return [
        f"drw-hf keygen {model} --budget 0.3 --data {texts}labelled.jsonl --output my-key",
        f"drw-hf protect {model} --key my-key --output my-protected",
        f"drw-hf label my-protected {texts}queries.jsonl --key my-key --output answers",
        f"drw-hf distill answers --student {student} --output student",
        f"drw-hf detect student {texts}probes.jsonl --key my-key --victim my-protected --report evidence",
    ]


def next_steps(source: dict[str, Any], task: str) -> str:
    """The page of that name."""
    rows, labelled = (
        ('{"tokens": ["Ada", "wrote", "it"]}', '{"tokens": ["Ada", "wrote", "it"], "tags": ["NNP", "VBD", "PRP"]}')
        if task == TOKEN
        else ('{"text": "a film worth seeing"}', '{"text": "a film worth seeing", "label": "positive"}')
    )
    again = f" --task {task}" if task != TOKEN and not source["model"] else ""
    page = (HERE / "next-steps.md").read_text(encoding="utf-8")
    whose = "a folder or a Hub id of a classifier or tagger of yours" if source["model"] else OWN_MODEL
    told = {"model": source["model"] or "model", "whose": whose, "rows": rows, "labelled": labelled, "again": again}
    return page.format(**told, commands=commands(source), verify=VERIFY)
