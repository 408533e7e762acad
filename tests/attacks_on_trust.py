"""Plays the attacks on trust and writes the table of what came of them into SECURITY.md.

``python tests/attacks_on_trust.py`` runs the tests that play them and keeps what each said in
``docs/results/trust.jsonl``; with ``--table`` the table is written anew from that file, and nothing is played.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "docs" / "results" / "trust.jsonl", ROOT / "SECURITY.md"
BEGIN, END = "<!-- attacks: begin -->", "<!-- attacks: end -->"

# What was tried; the tests that play it, file::part of the name; and what comes of it.
ATTACKS = [
    (
        "The tokens of an innocent's probe exchanged: so that it looks marked (below 1e-20), and at random",
        ["test_probe_trust.py::exchanging_the_tokens", "test_probe_trust.py::moved_or_doubled"],
        "`verify --tokenizer` computes them again from the texts and fails; without it, named as not checked",
    ),
    (
        "A tokenizer of the same vocabulary that splits texts in another way",
        ["test_probe_trust.py::splits_texts_in_another_way"],
        "told apart by the whole `tokenizer.json`",
    ),
    (
        "Texts picked by the suspect's answers",
        ["test_evidence.py::texts_that_were_picked", "test_probe_trust.py::a_public_seed_draws"],
        "**named as not checked**, unless a public seed drew the texts: then other texts, seeds and corpora fail",
    ),
    (
        "Answers altered after a neutral party recorded them",
        ["test_probe_trust.py::neutral_party_probes_without"],
        "`verify --probe-digest` fails",
    ),
    (
        "A suspect first seen after the evidence was made",
        ["test_probe_trust.py::first_seen_after"],
        "refused by `detect`, failed by `verify`",
    ),
    (
        "Keys that were prepared in the same repository, and one that fits shown: aborted rounds, rotated keys",
        ["test_crafted_keys.py::aborted_rounds_counts", "test_crafted_keys.py::keys_that_were_rotated"],
        "`verify` fails unless all are declared as `keys_tried`; what was prepared elsewhere **nobody can count**",
    ),
    (
        "Texts cut after another length, to find one that fits",
        [
            "test_cutting.py::another_length_than",
            "test_cutting.py::counts_it_likewise",
            "test_cutting.py::whoever_made_it",
            "test_cutting.py::does_not_count_it_fails",
            "test_cutting.py::records_no_length",
        ],
        "refused, or failed, unless it counts as a look; where a key records no length, **named as not checked**",
    ),
    (
        "A log that was made up, altered, thinned out, filled up, reordered, or holds digests in place of texts",
        [
            "test_log_trust.py::no_other_log_passes",
            "test_log_trust.py::made_up_when_the_suspect_was_known",
            "test_log_trust.py::leaves_lines_out_or_labels_others",
            "test_log_trust.py::words_that_a_suspect_left_unanswered",
            "test_probe_trust.py::a_log_is_its_owners_word",
        ],
        "open, or failed; passes only with all lines under stamped roots older than the suspect. A second log, "
        "stamped in secret, **nobody can tell**: named as not checked",
    ),
    (
        "Part of a log: half a day, a day that is not over, one of two replicas",
        [
            "test_log_trust.py::an_interval_is_of_whole_days",
            "test_log_trust.py::not_over_when_the_suspect_was_tested",
            "test_log_trust.py::logs_of_replicas",
            "test_log_trust.py::of_a_log_of_scores",
        ],
        "open, or failed; which whole days are tested is the owner's choice, and **named as not checked**",
    ),
    (
        "Answers that are none, to 1, 7 or 59 of 60 texts (NaN, other labels, no distribution)",
        ["test_unanswered.py::counted_and_the_others", "test_unanswered.py::unanswered_one_by_one"],
        "counted and left out; the probe goes on",
    ),
    (
        "A suspect behind HTTP that refuses texts (4xx, 5xx, 429, cut lines), or all of a sudden everything",
        ["test_unanswered.py::a_service_cannot_stop", "test_unanswered.py::goes_down_midway"],
        "counted and left out; a service that is down is given up after five texts, and asked further later",
    ),
    (
        "A storm of 429 and 5xx, from a suspect's service",
        ["test_unanswered.py::a_storm"],
        "pauses, and no answer lost",
    ),
    (
        "429, 5xx and cut lines, from the Hub, at any request of a push, and while a key is pulled",
        [
            "test_hub_push.py::fails_at_any_request",
            "test_hub_pull.py::a_busy_hub",
            "test_hub_pull.py::cannot_be_fetched",
        ],
        "the old model or the new one, each with its key; a key that cannot be fetched is never taken for none",
    ),
    (
        "Refusing what looks marked",
        ["test_unanswered.py::an_innocent_that_refuses"],
        "p-values of 80 keys stay what they are",
    ),
    (
        "A label renamed, added or dropped by the suspect",
        ["test_unanswered.py::a_label_"],
        "left out and said so; without the target class there is nothing to test",
    ),
    (
        "Controls altered or left out of the evidence",
        ["test_controls.py::cannot_be_made_to_look_better"],
        "`verify` fails; which models were never tried as controls **nobody can tell**",
    ),
    (
        "The best of 2,000 users, with keys_tried=1",
        ["test_trust_attacks.py::the_best_of_2000"],
        "does not pass: no repository carries that key's commitment by itself",
    ),
    (
        "One name in two spellings of Unicode",
        ["test_trust_attacks.py::two_spellings"],
        "refused by `identify` and when users are declared. Letters that merely look alike (Latin a, Cyrillic а; the "
        "ligature ﬁ) are **two users**",
    ),
    (
        "`trust_remote_code`: code in the repository of a suspect or a tokenizer",
        ["test_trust_attacks.py::code_in_the_repository"],
        "never run",
    ),
    (
        "Kept answers altered in the cache (all 60 of one suspect)",
        ["test_trust_attacks.py::altered_in_the_cache"],
        "**believed** by whoever owns the cache; told by a published digest, and by asking anew",
    ),
    ("A key put into the cache of the Hub", ["test_trust_attacks.py::put_into_the_cache"], "not taken"),
    (
        "torch.compile's caches and logs searched for the key",
        ["test_leaks.py::the_compilers_caches"],
        "nothing there",
    ),
    (
        "TensorBoard's files, and the configuration that W&B (not installed here) is sent, searched for the key",
        ["test_trust_attacks.py::tensorboard"],
        "nothing there",
    ),
    (
        "Pushes to one repository at once, or while it changes",
        ["test_trust_attacks.py::pushes_at_once", "test_hub_push.py::changed_meanwhile"],
        "one of them whole, never one's key with another's model",
    ),
    (
        "A repository that turns public midway",
        ["test_hub_push.py::turns_public"],
        "no plain key goes there; at the very last moment it **does**, and the push says: rotate",
    ),
    (
        "kill -9 in probe, identify and reproduce (there with stand-in jobs)",
        ["test_trust_attacks.py::killed", "test_experiments_runs.py::that_was_killed"],
        "what was done is kept, the result is the same, no half file",
    ),
]


def play() -> list[dict]:
    """Run the tests of all attacks; one record per test."""
    files = sorted({name.split("::")[0] for _, names, _ in ATTACKS for name in names})
    words = sorted({name.split("::")[1] for _, names, _ in ATTACKS for name in names})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        chosen = [str(ROOT / "tests" / file) for file in files]
        command = [sys.executable, "-m", "pytest", *chosen, "-k", " or ".join(words), "-q", f"--junitxml={report}"]
        subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, check=False)
        found = []
        for case in ElementTree.parse(report).iter("testcase"):
            tried = [int(one.get("value", "1")) for one in case.iter("property") if one.get("name") == "tried"]
            bad = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), None)
            file = f"{case.get('classname', '').split('.')[-1]}.py"
            name = f"{file}::{case.get('name')}"
            found.append({"test": name, "tried": sum(tried) or 1, "outcome": bad or "held"})
    return found


def table(records: list[dict]) -> str:
    """The table of what was tried, how often, and what came of it."""
    lines = ["| tried | how often | what came of it |", "| --- | --- | --- |"]
    for title, names, outcome in ATTACKS:
        mine = [record for record in records if any(_plays(record["test"], name) for name in names)]
        if not mine:
            raise SystemExit(f"nothing plays {title!r}; run this without --table")
        failed = sum(record["outcome"] != "held" for record in mine)
        said = f"**{failed} of {len(mine)} tests did not hold** or could not be played here" if failed else outcome
        lines.append(f"| {title} | {sum(record['tried'] for record in mine):,} | {said} |")
    return "\n".join(lines) + "\n"


def _plays(test: str, name: str) -> bool:
    file, part = name.split("::")
    return test.startswith(f"{file}::") and part in test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="write the table from what was played before")
    if not parser.parse_args().table:
        RESULTS.write_text("".join(json.dumps(record) + "\n" for record in play()))
    records = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(records)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
