"""All tables as one document, with what was run and by which commands."""

import os
from collections.abc import Iterable

from . import read_table, tables
from .cells import table
from .goals import goals_table
from .jobs import GOLD, LABELS, PARTS, UNWATERMARKED, WATERMARKED, Student
from .results import Place, Results, by_category, by_limit, by_rule, by_tau, load
from .tasks import PAPER_STUDENTS, TASKS


def what_was_run(results: Results) -> str:
    """The students that were scored, by profile, task and kind; and what was not run."""
    kinds = {
        f"{teacher}, {labels}": (teacher, labels) for teacher in (WATERMARKED, UNWATERMARKED) for labels in LABELS
    }
    kinds["gold"] = (GOLD, "soft")
    students = []
    for place in results.places:
        row = {"profile": place.profile, "task": TASKS[place.task].title}
        row["victim"] = "yes" if place.line("victim") else "no"
        row |= {name: str(_scored(place, Student(place.task, *kind))) for name, kind in kinds.items()}
        students.append(row)
    ablated, notes = [], []
    for profile in results.profiles:
        lacking = []
        for name, part in PARTS.items():
            for task in part.tasks:
                place, title = Place(results, profile, task), TASKS[task].title
                counts = [_scored(place, student) for student in part.students(task)]
                if not any(counts):
                    lacking.append(f"{name} on {title}")
                    continue
                if 0 in counts:
                    lacking.append(f"{counts.count(0)} of {len(counts)} settings of {name} on {title}")
                if name != "tables":
                    row = {"profile": profile, "part": name, "task": title, "settings": str(len(counts))}
                    least, most = min(counts), max(counts)
                    row["students of each"] = f"{least}" if least == most else f"{least} to {most}"
                    ablated.append(row)
        if lacking:
            notes.append(f"- Not run with {profile}: {', '.join(lacking)}.")
    for place in results.places:  # where a run went on with another victim, or on other data, than it began with
        here = [r for r in results.records if (r["profile"], r.get("task")) == (place.profile, place.task)]
        for field, what in (("victim", "victims"), ("data", "versions of the data")):
            found = {record[field] for record in here if field in record}
            if len(found) > 1:
                notes.append(
                    f"- {TASKS[place.task].title} with {place.profile} mixes students of {len(found)} {what}."
                )
    paper = f"The paper has {PAPER_STUDENTS} students of every kind, all of bert-base-uncased."
    return "\n\n".join(filter(None, [table(students), table(ablated), "\n".join(notes), paper]))


def _scored(place: Place, student: Student) -> int:
    """How many students of a setting have scores under the key of their own."""
    return int((place.students(student).key == student.mode).sum())


def write_up(paths: Iterable[str | os.PathLike]) -> str:
    """All tables that there are data for, from files of JSON lines, as one Markdown document."""
    results = load(paths)
    found = {
        "goals": goals_table(results),
        "table_1_detection": tables.table_1_detection(results),
        "table_1_accuracy": tables.table_1_accuracy(results),
        "table_2": tables.table_2(results),
        "table_2_exact": tables.table_2_exact(results),
        "modes": tables.modes_table(results),
        "epsilon": tables.epsilon_table(results),
        "category": tables.ablation_table(results, by_category, "c*"),
        "tau": tables.ablation_table(results, by_tau, "τ"),
        "rule": tables.ablation_table(results, by_rule, "hashed"),
        "limits": tables.ablation_table(results, by_limit, "what the thief learns from"),
        "theorem": tables.theorem_table(results),
        "plan": tables.plan_table(results),
    }
    pieces = ["# The paper's tables, reproduced", "## What was run", what_was_run(results)]
    for name, section in read_table("sections").items():
        if found[name]:
            parts = " ".join(f"--part {part}" for part in section["parts"])
            commands = ", ".join(f"`drw-hf reproduce {profile} {parts}`" for profile in results.profiles)
            about = " ".join(section["text"].split())
            pieces += [f"## {section['title']}", about, found[name], f"Made by {commands}."]
    return "\n\n".join(pieces) + "\n"
