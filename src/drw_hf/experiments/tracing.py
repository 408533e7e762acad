"""Who leaked? Students of one customer's answers, of several customers', and what customers who share a matrix do.

``python -m drw_hf.experiments.tracing --output docs/results/tracing.jsonl``

Ten thousand users of a ring are declared. Students are trained on the soft answers that one of them got, or that
several got and pooled (each query answered to one of them, drawn at random); :func:`drw_hf.identify` is asked who it
was. The p-values of all others must be uniform. The paper's law with one matrix M for all users, each with vectors of
his own, is measured beside it: there they are not.

The same is asked of rings of the mark tilt, whose strength comes from an accuracy budget: students of the *hard*
labels that one user got, or several, by the scores that the student gives and by its labels alone. Their queries are
text that the victim was not trained on; of what it was trained on it is sure, and its labels carry less of the mark.

A line of JSON is written as each student ends, and a run that is started again goes on; a table goes beside it
(``.md``) and the figure of the first search (``.png``).
"""

import dataclasses
import math
from argparse import Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from ..asking import label_with_teacher
from ..detection import Probe, detect
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.null_law import NullLaw
from ..detection.statistics.saddlepoint import ExactTest
from ..keys import KeyRing, WatermarkKey
from ..keys.choices import LabelKind, Task
from ..planning import fit_tilt
from ..runs.lines import Record, read_lines, rounded
from ..tracing import Identification, identify
from ..wording import small_p
from . import library
from .cells import from_to, number, p_range, table
from .measurements import LEVELS, Measurement, command_parser, run_command, uniformity
from .theft import CORPORA, Theft, distil, make_theft, small_bert, steal, train_on_gold

TAGGER: Task = "token-classification"
COALITIONS = (2, 4, 8)
LEVEL = 1e-3  # at which a user is named, corrected for all
SECRET = bytes(range(60, 92))  # of the ring; fixed, so that a run can be repeated
DIMENSION = 128  # of the paper's vectors
ONE, NOBODY, CENTRED, UNCENTRED = "one user", "nobody", "shared M, centred vectors", "shared M, the paper's vectors"
TILT = "tilt, hard labels"  # a part's name goes on with whose they are
TILT_COALITIONS = (1, 2, 4)
BUDGET = 0.3  # points of accuracy that tilt may cost
N_PRICED = 1500  # texts by which its strength is found


def make_ring(theft: Theft, users: Sequence[str], **settings: Any) -> KeyRing:
    """A ring for the victim that has declared these users; of the paper's mark, unless settings say otherwise."""
    settings = settings or {"target": CORPORA[theft.task].target}
    return KeyRing.generate(theft.victim, tokenizer=theft.tokenizer, secret=SECRET, **settings).declare(users)


def more_text(theft: Theft, first: int, n_rows: int) -> Dataset:
    """Rows that come after all text of the theft, from the first-th on."""
    first += len(theft.queries) + len(theft.unseen)
    return Dataset.from_list(CORPORA[theft.task].make(first + n_rows)[first:])


def tilt_settings(theft: Theft, **asking: Any) -> dict[str, Any]:
    """The settings of tilt that an accuracy budget leads to, by text that nobody else in the theft uses."""
    rows = more_text(theft, len(theft.queries), N_PRICED)
    found = fit_tilt(theft.victim, rows, theft.tokenizer, budget=BUDGET, progress=False, **asking)
    return {"mark": "tilt", "strength": found.strength, "temperature": found.temperature, "budget": BUDGET}


def with_fresh_queries(theft: Theft) -> Theft:
    """The theft of a thief who asks text that the victim was not trained on, as much of it."""
    return dataclasses.replace(theft, queries=more_text(theft, 0, len(theft.queries)))


def leak(
    theft: Theft,
    ring: KeyRing,
    colluders: Sequence[str],
    folder: Any,
    seed: int = 7,
    epochs: int = 8,
    label_kind: LabelKind = "soft",
) -> Any:
    """A student of the answers to the thief's queries, each as one of the colluders got it, drawn at random."""
    protected, rows = theft.protected(ring, label_kind), theft.asked(theft.queries)
    asked_by = np.random.default_rng(seed).integers(len(colluders), size=len(rows))
    answers = []
    for place, user in enumerate(colluders):
        with protected.use_key(user=user):
            own = rows.select(np.flatnonzero(asked_by == place))
            answers.append(label_with_teacher(protected, own, theft.tokenizer, cache_dir=folder, progress=False))
    student = small_bert(theft.task, len(theft.tokenizer), seed)
    learning: dict[str, Any] = {"seed": seed, "label_kind": label_kind}
    return distil(student, theft.tokenizer, concatenate_datasets(answers), folder, epochs, **learning)


def search(
    theft: Theft, ring: KeyRing, users: Sequence[str], suspect: Any, folder: Any, rows: Dataset | None = None
) -> Identification:
    """Who among the users; by text that the suspect never saw, unless rows are given."""
    texts = theft.text(theft.unseen if rows is None else rows)
    asking: Any = {"tokenizer": theft.tokenizer, "victim": theft.victim, "cache_dir": folder, "progress": False}
    return identify(suspect, texts, ring=ring, users=users, level=LEVEL, **asking)


# -- users who share the paper's M


class SharedMatrix:
    """Users in the paper's form: one token matrix M for all, a phase and a selection vector for each.

    ``centred`` draws the entries of the vectors from [−1, 1) in place of the paper's [0, 1). Both have E v² = 1/3, so
    a hash is as uniform under the one as under the other; but vectors that are not centred all point the same way.
    """

    def __init__(self, theft: Theft, centred: bool, seed: int = 0) -> None:
        self._theft, self._centred, self._seed = theft, centred, seed
        self.M = np.random.default_rng((seed, 0)).standard_normal((theft.victim.config.vocab_size, DIMENSION))

    def key_for(self, user: int) -> WatermarkKey:
        theft, vectors = self._theft, np.random.default_rng((self._seed, 1, user)).random((2, DIMENSION))
        v_k, v_s = 2.0 * vectors - 1.0 if self._centred else vectors
        arrays: Any = {"v_k": v_k, "v_s": v_s, "M": self.M, "scope": "predicted"}
        bound: Any = {"config": theft.victim.config, "task": theft.task, "tokenizer": theft.tokenizer}
        unused = bytes(32)  # soft labels need no secret
        return WatermarkKey.from_arrays(**arrays, **bound, target=CORPORA[theft.task].target, secret=unused)

    def tests(self, probe: Any, users: Sequence[int]) -> list[ExactTest]:
        """What the exact test says of every user, each tested as if nobody else's key had to do with his."""
        amplitudes, found = amplitudes_of(probe, self.key_for(users[0])), []
        for key in map(self.key_for, users):
            null = NullLaw(amplitudes.A, key.settings, vectors=(key.v_k, key.v_s))
            found.append(null.test(null.statistic(*key.entries(amplitudes.token_ids))))
        return found


# -- measuring


def of_coalition(
    users: Sequence[str], colluders: Sequence[str], folder: str, seed: int, figure: Path | None = None
) -> Record:
    """What the search says of a student of these users, by text it never saw and by its queries."""
    theft = make_theft(TAGGER, folder)
    ring = make_ring(theft, users)
    student = leak(theft, ring, colluders, folder, seed)
    innocent = np.array([user not in colluders for user in users])
    record: Record = {"n_users": len(users), "seed": seed, "colluders": list(colluders)}
    for where, rows in (("unseen", theft.unseen), ("queries", theft.queries)):
        found = search(theft, ring, users, student, folder, rows)
        record[where] = _outcome(found, ring, users, colluders)
        if figure is not None and where == "unseen":
            found.plot(figure)
            record[where]["p_values"] = rounded(found.p_values()[innocent])
    return record


def of_tilt(users: Sequence[str], colluders: Sequence[str], folder: str, seed: int, fresh: bool = True) -> Record:
    """What the search says of a student of the hard labels that these users got; for nobody, of the true labels."""
    theft = make_theft(TAGGER, folder)
    settings = tilt_settings(theft, cache_dir=folder)
    theft = with_fresh_queries(theft) if fresh else theft
    ring = make_ring(theft, users, **settings)
    if colluders:
        student = leak(theft, ring, colluders, folder, seed, label_kind="hard")
    else:
        student = train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, seed, 4)
    record: Record = {"n_users": len(users), "seed": seed, "tilted_for": list(colluders), "fresh": fresh, **settings}
    for where, rows in (("unseen", theft.unseen), ("queries", theft.queries)):
        found = search(theft, ring, users, student, folder, rows)
        by_labels = identify(labels_of_probe(found), ring=ring, users=users, level=LEVEL, progress=False)
        for kind, result in (("scores", found), ("labels", by_labels)):
            record[f"{where}, {kind}"] = _outcome(result, ring, users, colluders)
    return record


def labels_of_probe(found: Identification) -> Probe:
    """What the probe would have been, had the suspect given its labels alone."""
    probe = _searched(found)
    labels = np.eye(len(probe.labels), dtype=np.float32)[probe.suspect.argmax(axis=1)]
    return dataclasses.replace(probe, suspect=labels, kind="labels")


def _searched(found: Identification) -> Probe:
    assert found.probe is not None  # it was searched just now, not read from a file
    return found.probe


def _outcome(found: Identification, ring: KeyRing, users: Sequence[str], colluders: Sequence[str]) -> Record:
    """Who was named of those who colluded, how surely, and how the others' p-values lie."""
    named = {finding.user for finding in found.leakers}
    tests = [detect(_searched(found), key=ring.key_for(user)) for user in colluders]
    innocent = np.array([user not in colluders for user in users])
    return {
        "n_tokens": found.n_tokens,
        "z": [test.z_score for test in tests],
        "log10_p": [test.log10_p for test in tests],
        "named": [user in named for user in colluders],
        "innocents_named": len(named - set(colluders)),
        "others": uniformity(found.p_values()[innocent]),
    }


def of_nobody(users: Sequence[str], folder: str) -> Record:
    """What the search says of a model that was trained on true labels."""
    theft = make_theft(TAGGER, folder)
    model = train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, 31, 4)
    found = search(theft, make_ring(theft, users), users, model, folder)
    innocents = {"innocents_named": len(found.leakers), "others": uniformity(found.p_values())}
    return {"n_users": len(users), "verdict": found.verdict, "unseen": innocents}


def of_shared_matrix(centred: bool, n_users: int, folder: str) -> Record:
    """What users who share M look like on a student of the first of them; and users with an M each, to compare."""
    theft = make_theft(TAGGER, folder)
    crowd = SharedMatrix(theft, centred)
    leaker = crowd.key_for(0)
    probe = theft.probe(steal(theft, theft.protected(leaker), folder), theft.unseen, leaker, folder)
    true, *others = crowd.tests(probe, range(n_users))
    strangers = [SharedMatrix(theft, centred, seed).tests(probe, [0])[0] for seed in range(1, n_users // 3 + 1)]
    record: Record = {"n_users": n_users, "leaker_z": true.z_score}
    for name, tests in (("unseen", others), ("own matrix", strangers)):
        p_values = np.array([test.p_value for test in tests])
        record[name] = {
            "largest_z": max(test.z_score for test in tests),
            "innocents_named": sum(test.p_bound * n_users <= LEVEL for test in tests),
            "others": uniformity(p_values),
            "p_values": rounded(p_values),
        }
    return record


def parts(options: Namespace, folder: str) -> Iterator[Measurement]:
    """What is measured."""
    users = [f"customer-{i:05d}" for i in range(options.users)]
    chosen = [users[i] for i in np.random.default_rng(8).permutation(len(users))[: max(COALITIONS)]]
    figure = options.output.with_suffix(".png")
    yield Measurement({"part": ONE}, partial(of_coalition, users, chosen[:1], folder, options.seeds[0], figure))
    yield Measurement({"part": NOBODY}, partial(of_nobody, users, folder))
    for name, centred in ((CENTRED, True), (UNCENTRED, False)):
        yield Measurement({"part": name}, partial(of_shared_matrix, centred, options.shared, folder))
    for seed in options.seeds:
        for size in COALITIONS:
            name = f"{size} users, seed {seed}"
            yield Measurement({"part": name}, partial(of_coalition, users, chosen[:size], folder, seed))
    for place, seed in enumerate(options.tilt_seeds):
        cases = [(f"{size} users", chosen[place : place + size], True) for size in TILT_COALITIONS]
        cases += [("nobody", [], True), ("what the victim was trained on", [chosen[place]], False)]
        for name, colluders, fresh in cases:
            about = {"part": f"{TILT}: {name}, seed {seed}"}
            yield Measurement(about, partial(of_tilt, users, colluders, folder, seed, fresh))


# -- telling


def report(output: Path) -> str:
    """Markdown tables of the raw lines: innocents' p-values, how strongly colluders are named, and both of tilt."""
    records = {record["part"]: record for record in read_lines(output)}
    return "\n\n".join(part(records) for part in (_innocents_table, _coalitions_table, _tilt_table)) + "\n"


def _innocents_table(records: dict[str, Record]) -> str:
    wanted = [
        (ONE, "unseen", "a ring; student of one user"),
        (NOBODY, "unseen", "a ring; model trained on true labels"),
        (CENTRED, "unseen", "**one M for all**, centred vectors; student of one user"),
        (CENTRED, "own matrix", "the same student, an M for each"),
        (UNCENTRED, "unseen", "**one M for all**, the paper's vectors; student of one user"),
        (UNCENTRED, "own matrix", "the same student, an M for each"),
    ]
    rows = []
    for part, which, title in wanted:
        if part in records:
            found = records[part][which]
            uniform, p = found["others"], found["others"]["ks_p"]
            row = {"innocent users' p-values": title, "users": f"{uniform['n']:,}"}
            row |= {f"p ≤ {level}": f"{uniform['shares'][str(level)]:.2%}" for level in LEVELS}
            row["largest z"] = number(library("scipy.stats").norm.isf(uniform["smallest"]), 1)
            row["KS test"] = "p < 1e-10" if p < 1e-10 else f"p {small_p(math.log10(p))}"
            rows.append({**row, "named": f"{found['innocents_named']:,}"})
    if ONE in records:
        uniform = records[ONE]["unseen"]["others"]
        row = {"innocent users' p-values": "*99.9 % of honest tests give*", "users": f"{uniform['n']:,}"}
        rows.append(
            row | {f"p ≤ {level}": "{:.2%} to {:.2%}".format(*uniform["expected"][str(level)]) for level in LEVELS}
        )
    return table(rows)


def _coalitions_table(records: dict[str, Record]) -> str:
    coalitions = [record for record in records.values() if "colluders" in record]
    rows = []
    for size in sorted({len(record["colluders"]) for record in coalitions}):
        some = [record for record in coalitions if len(record["colluders"]) == size]
        for where, title in (("unseen", "unseen text"), ("queries", "the queries")):
            found = [record[where] for record in some]
            z, log10_p, named = ([value for one in found for value in one[name]] for name in ("z", "log10_p", "named"))
            row = {"users who pooled": str(size), "students": str(len(some)), "probed with": title}
            row |= {"mean z (range)": f"{np.mean(z):.1f} ({_range(z)})", "p": p_range(min(log10_p), max(log10_p))}
            row["named"] = f"{sum(named)} of {len(named)}"
            rows.append({**row, "innocents named": str(sum(one["innocents_named"] for one in found))})
    return table(rows)


def _tilt_table(records: dict[str, Record]) -> str:
    tilted = [record for record in records.values() if "tilted_for" in record]
    rows = []
    for fresh, size in sorted({(record["fresh"], len(record["tilted_for"])) for record in tilted}, key=_tilt_order):
        some = [record for record in tilted if (record["fresh"], len(record["tilted_for"])) == (fresh, size)]
        for where, title in (("unseen", "unseen text"), ("queries", "the queries")):
            for kind in ("scores", "labels"):
                found = [record[f"{where}, {kind}"] for record in some]
                z, named = ([value for one in found for value in one[name]] for name in ("z", "named"))
                shares, ks = (
                    [one["others"]["shares"]["0.001"] for one in found],
                    [one["others"]["ks_p"] for one in found],
                )
                row = {"tilt, hard labels of": _tilt_title(fresh, size), "students": str(len(some))}
                row |= {"probed with": title, "by its": kind, "mean z (range)": "–", "named": "–"}
                if z:
                    row |= {"mean z (range)": f"{np.mean(z):.1f} ({_range(z)})", "named": f"{sum(named)} of {len(z)}"}
                row["innocents named"] = str(sum(one["innocents_named"] for one in found))
                row["innocents' p ≤ 0.001"] = f"{np.mean(shares):.2%}"
                rows.append({**row, "least KS p": small_p(math.log10(min(ks)))})
    return table(rows)


def _tilt_order(case: tuple[bool, int]) -> tuple[bool, float]:
    fresh, size = case
    return not fresh, size or math.inf  # nobody comes after the coalitions


def _tilt_title(fresh: bool, size: int) -> str:
    if not size:
        return "nobody (true labels)"
    users = "one user" if size == 1 else f"{size} users"
    return users if fresh else f"{users}, on what the victim was trained on"


def _range(values: Sequence[float]) -> str:
    return from_to(min(values), max(values), to=" to ")


def main() -> None:
    """The command."""
    parser = command_parser(__doc__)
    parser.add_argument("--users", type=int, default=10_000, help="users declared (default: 10000)")
    parser.add_argument("--shared", type=int, default=3_000, help="users who share a matrix (default: 3000)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202], help="students of every coalition")
    parser.add_argument("--tilt-seeds", type=int, nargs="+", default=[201, 202, 203], help="the same for tilt")
    run_command(parser, parts, report)


if __name__ == "__main__":
    main()
