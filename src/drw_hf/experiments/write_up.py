"""All tables as one document, with what was run and by which commands."""

import os
from collections.abc import Iterable, Sequence

from .cells import table
from .goals import goals_table
from .jobs import GOLD, LABELS, PARTS, UNWATERMARKED, WATERMARKED, Student
from .paper import PAPER_STUDENTS
from .results import Results, by_category, by_limit, by_rule, by_tau, load
from .tables import (
    ablation_table,
    epsilon_table,
    modes_table,
    plan_table,
    table_1_accuracy,
    table_1_detection,
    table_2,
    table_2_exact,
    theorem_table,
)
from .tasks import TASKS

COMMAND = "drw-hf reproduce {profile} {parts}"


def what_was_run(results: Results) -> str:
    """The students that were scored, by profile, task and kind; and what was not run."""
    kinds = {
        f"{teacher}, {labels}": (teacher, labels) for teacher in (WATERMARKED, UNWATERMARKED) for labels in LABELS
    }
    kinds["gold"] = (GOLD, "soft")
    rows = []
    for profile, task in results.places:
        row = {"profile": profile, "task": TASKS[task].title}
        row["victim"] = "yes" if results.record(profile, f"victim {task}") else "no"
        rows.append(row | {name: str(_scored(results, profile, Student(task, *kind))) for name, kind in kinds.items()})
    pieces = [table(rows)]
    rows, notes = [], []
    for profile in results.profiles:
        lacking = []
        for name, part in PARTS.items():
            for task in part.tasks:
                title = TASKS[task].title
                counts = [_scored(results, profile, student) for student in part.students(task)]
                if not any(counts):
                    lacking.append(f"{name} on {title}")
                    continue
                if 0 in counts:
                    lacking.append(f"{counts.count(0)} of {len(counts)} settings of {name} on {title}")
                if name != "tables":
                    each = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
                    row = {"profile": profile, "part": name, "task": title, "settings": str(len(counts))}
                    rows.append({**row, "students of each": each})
        if lacking:
            notes.append(f"- Not run with {profile}: {', '.join(lacking)}.")
    pieces += [table(rows), "\n".join([*notes, *_mixed(results)])]
    pieces.append(f"The paper has {PAPER_STUDENTS} students of every kind, all of bert-base-uncased.")
    return "\n\n".join(filter(None, pieces))


def _mixed(results: Results) -> list[str]:
    """Where a run went on with another victim, or on other data, than it began with."""
    notes = []
    for profile, task in results.places:
        here = [record for record in results.records if (record["profile"], record.get("task")) == (profile, task)]
        for field, what in (("victim", "victims"), ("data", "versions of the data")):
            found = {record[field] for record in here if field in record}
            if len(found) > 1:
                notes.append(f"- {TASKS[task].title} with {profile} mixes students of {len(found)} {what}.")
    return notes


def _scored(results: Results, profile: str, student: Student) -> int:
    """How many students of a setting have scores under the key of their own."""
    return int((results.of_setting(profile, student).key == student.mode).sum())


def write_up(paths: Iterable[str | os.PathLike]) -> str:
    """All tables that there are data for, from files of JSON lines, as one Markdown document."""
    results = load(paths)
    sections = [
        (
            "Goals",
            "What was aimed at and what was measured, with the numbers of students (thieves + innocents).",
            goals_table(results),
            ("tables", "epsilon"),
        ),
        (
            "Table 1: detection",
            "mAP of ranking thieves above innocents, ties counted against the method; students are thieves + "
            "innocents, all of the default mode, in which hard labels are drawn once. DeepJudge ranks by a small "
            "divergence, on the queries: over all positions as the paper's code does (of the first 640 queries, in "
            "batches of 64, padded to their longest), and over words alone.",
            table_1_detection(results),
            ("tables",),
        ),
        (
            "Table 1: accuracy",
            "Per cent, on the split the paper uses. Protected answers are means over keys at the profile's ε, "
            "students means over seeds. The paper's code draws every answer (τ = 1) to measure hard labels, as the "
            'column "all drawn" does. F1 is seqeval\'s, for POS as well, whose tags it takes for entities.',
            table_1_accuracy(results),
            ("tables",),
        ),
        (
            "Table 2: scores",
            "The least and the largest score of n suspects. The paper's JSD is over all positions, padding too.",
            table_2(results),
            ("tables",),
        ),
        (
            "Table 2 for the exact test",
            "The least and the largest score of n suspects. The last column tests, where it is known, which labels "
            "were served.",
            table_2_exact(results),
            ("tables",),
        ),
        (
            "Three modes",
            "The package's default beside the paper's text and code; n students each, ranges, and means of z and of "
            "accuracy. P_snr is of the probes that each mode counts. The innocents are the default's, under the "
            "mode's keys: in paper-code, where every hard label is drawn, theirs were not.",
            modes_table(results),
            ("tables", "modes"),
        ),
        (
            "The watermark level ε",
            "mAP and means on queries / on unseen text; students are thieves + innocents. The paper's P_snr ranks NER "
            "perfectly only from ε = 0.12 on.",
            epsilon_table(results),
            ("tables", "epsilon"),
        ),
        (
            "The target class",
            "Means over n students, on queries / on unseen text. In the paper NNP is strongest and DT fails.",
            ablation_table(results, by_category, "c*"),
            ("tables", "category"),
        ),
        (
            "The share of marked tokens τ",
            "Means over n students, on queries / on unseen text.",
            ablation_table(results, by_tau, "τ"),
            ("tables", "tau"),
        ),
        (
            "The hashed token",
            "Means over n students, on queries / on unseen text; some thieves prepended two words to every query.",
            ablation_table(results, by_rule, "hashed"),
            ("tables", "rule"),
        ),
        (
            "Limits",
            "Means over n students, on queries / on unseen text, for thieves who learn less of the mark.",
            ablation_table(results, by_limit, "what the thief learns from"),
            ("tables", "limits"),
        ),
        (
            "Accuracy against Theorem 1",
            "Accuracy in per cent (for NER, too), measured on the evaluation split, at some of the levels. Expected "
            "and bounds are computed from the victim's probabilities and hold if it is calibrated. ECE is its "
            "calibration error, which shifts clean and protected accuracy alike: compare costs.",
            theorem_table(results),
            ("tables",),
        ),
        (
            "The plan against students",
            "Means over n students. σ is the spread of unmarked students' tokens, φ what would make the plan right "
            "with it, and the planned z is the plan's own, with the constants that it comes with.",
            plan_table(results),
            ("tables", "epsilon"),
        ),
    ]
    pieces = ["# The paper's tables, reproduced", "## What was run", what_was_run(results)]
    for title, sentence, found, parts in sections:
        if found:
            pieces += [f"## {title}", sentence, found, _made_by(results, parts)]
    return "\n\n".join(pieces) + "\n"


def _made_by(results: Results, parts: Sequence[str]) -> str:
    wanted = " ".join(f"--part {part}" for part in parts)
    commands = (f"`{COMMAND.format(profile=profile, parts=wanted)}`" for profile in results.profiles)
    return f"Made by {', '.join(commands)}."
