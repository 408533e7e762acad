"""Who leaked? Students of one customer's answers, of several customers', and what customers who share a matrix do.

``python -m drw_hf.experiments.tracing --output docs/results/tracing.jsonl``

Ten thousand users of a ring are declared. Students are trained on the soft answers that one of them got, or that
several got and pooled (each query answered to one of them, drawn at random); :func:`drw_hf.identify` is asked who it
was. The p-values of all others must be uniform. The paper's law with one matrix M for all users, each with vectors of
his own, is measured beside it: there they are not.

A line of JSON is written as each student ends, and a run that is started again goes on; a table goes beside it
(``.md``) and the figure of the first search (``.png``).
"""

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, concatenate_datasets

from ..asking import label_with_teacher
from ..detection import detect, probe_suspect
from ..detection.statistics.exact import amplitudes_of
from ..detection.statistics.null_law import NullLaw
from ..detection.statistics.saddlepoint import ExactTest
from ..keys import KeyRing, WatermarkKey
from ..keys.choices import Task
from ..tracing import Identification, identify
from .calibration import LEVELS, binomial_interval
from .theft import CLASSES, Theft, distil, make_theft, small_bert, steal, train_on_gold

TAGGER: Task = "token-classification"
COALITIONS = (2, 4, 8)
LEVEL = 1e-3  # at which a user is named, corrected for all
SECRET = bytes(range(60, 92))  # of the ring; fixed, so that a run can be repeated
DIMENSION = 128  # of the paper's vectors
ONE, NOBODY, CENTRED, UNCENTRED = "one user", "nobody", "shared M, centred vectors", "shared M, the paper's vectors"


def make_ring(theft: Theft, users: Sequence[str]) -> KeyRing:
    """A ring for the victim that has declared these users."""
    target = CLASSES[theft.task][3]
    ring = KeyRing.generate(theft.victim, tokenizer=theft.tokenizer, target=target, secret=SECRET)
    return ring.declare(users)


def pool_answers(theft: Theft, ring: KeyRing, colluders: Sequence[str], folder: Any, seed: int) -> Dataset:
    """The thief's queries with soft answers, each as one of the colluders got it, drawn at random."""
    protected = theft.protected(ring)
    rows = theft.queries.select_columns(["tokens" if theft.task == TAGGER else "text"])
    asked_by = np.random.default_rng(seed).integers(len(colluders), size=len(rows))
    parts = []
    for number, user in enumerate(colluders):
        with protected.use_key(user=user):
            own = rows.select(np.flatnonzero(asked_by == number))
            parts.append(label_with_teacher(protected, own, theft.tokenizer, cache_dir=folder, progress=False))
    return concatenate_datasets(parts)


def leak(theft: Theft, ring: KeyRing, colluders: Sequence[str], folder: Any, seed: int = 7, epochs: int = 8) -> Any:
    """A student of what some users of a ring were answered."""
    answers = pool_answers(theft, ring, colluders, folder, seed)
    student = small_bert(theft.task, len(theft.tokenizer), seed)
    return distil(student, theft.tokenizer, answers, folder, epochs, seed=seed)


def search(
    theft: Theft, ring: KeyRing, users: Sequence[str], suspect: Any, folder: Any, rows: Dataset | None = None
) -> Identification:
    """Who among the users; by text that the suspect never saw, unless rows are given."""
    return identify(
        suspect,
        theft.text(theft.unseen if rows is None else rows),
        ring=ring,
        users=users,
        tokenizer=theft.tokenizer,
        victim=theft.victim,
        level=LEVEL,
        cache_dir=folder,
        progress=False,
    )


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
        """The key of a user, by number."""
        v_k, v_s = np.random.default_rng((self._seed, 1, user)).random((2, DIMENSION))
        if self._centred:
            v_k, v_s = 2.0 * v_k - 1.0, 2.0 * v_s - 1.0
        return WatermarkKey.from_arrays(
            v_k=v_k,
            v_s=v_s,
            M=self.M,
            config=self._theft.victim.config,
            task=self._theft.task,
            tokenizer=self._theft.tokenizer,
            target=CLASSES[self._theft.task][3],
            scope="predicted",
            secret=bytes(32),  # of no use to soft labels
        )

    def tests(self, probe: Any, users: Sequence[int]) -> list[ExactTest]:
        """What the exact test says of every user, each tested as if nobody else's key had to do with his."""
        first = self.key_for(users[0])
        amplitudes = amplitudes_of(probe, first)
        found = []
        for user in users:
            key = self.key_for(user)
            null = NullLaw(amplitudes.A, key.settings, vectors=(key.v_k, key.v_s))
            found.append(null.test(null.statistic(*key.entries(amplitudes.token_ids))))
        return found


# -- measuring


def uniformity(p_values: np.ndarray) -> dict[str, Any]:
    """How uniform p-values are: Kolmogorov and Smirnov's distance with its p, and the share below some levels."""
    n = len(p_values)
    ranks = np.arange(n + 1) / n
    ordered = np.sort(p_values)
    distance = float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))
    scaled = (math.sqrt(n) + 0.12 + 0.11 / math.sqrt(n)) * distance  # Stephens' correction of the limit law
    terms = [2.0 * (-1) ** (k - 1) * math.exp(-2.0 * (k * scaled) ** 2) for k in range(1, 101)]
    return {
        "n": n,
        "ks_distance": distance,
        "ks_p": min(1.0, max(0.0, sum(terms))) if scaled > 0.2 else 1.0,
        "shares": {str(level): float(np.mean(p_values <= level)) for level in LEVELS},
        "expected": {str(level): [count / n for count in binomial_interval(n, level)] for level in LEVELS},
        "smallest": float(ordered[0]),
    }


def _rounded(p_values: np.ndarray) -> list[float]:
    return [float(f"{p:.4g}") for p in p_values]


def _of_coalition(
    theft: Theft,
    ring: KeyRing,
    users: Sequence[str],
    colluders: Sequence[str],
    folder: str,
    seed: int,
    figure: Path | None = None,
) -> dict[str, Any]:
    """What the search says of a student of these users, by text it never saw and by its queries."""
    student = leak(theft, ring, colluders, folder, seed)
    record: dict[str, Any] = {"n_users": len(users), "seed": seed, "colluders": list(colluders)}
    for where, rows in (("unseen", theft.unseen), ("queries", theft.queries)):
        found = search(theft, ring, users, student, folder, rows)
        assert found.probe is not None  # it was searched just now, not read from a file
        named = {finding.user for finding in found.leakers}
        tests = [detect(found.probe, key=ring.key_for(user)) for user in colluders]
        innocent = np.array([user not in colluders for user in users])
        record[where] = {
            "n_tokens": found.n_tokens,
            "z": [test.z_score for test in tests],
            "log10_p": [test.log10_p for test in tests],
            "named": [user in named for user in colluders],
            "innocents_named": len(named - set(colluders)),
            "others": uniformity(found.p_values()[innocent]),
        }
        if figure is not None and where == "unseen":
            found.plot(figure)
            record[where]["p_values"] = _rounded(found.p_values()[innocent])
    return record


def _of_nobody(theft: Theft, ring: KeyRing, users: Sequence[str], folder: str) -> dict[str, Any]:
    """What the search says of a model that was trained on true labels."""
    found = search(theft, ring, users, train_on_gold(TAGGER, theft.tokenizer, theft.queries, folder, 31, 4), folder)
    innocents = {"innocents_named": len(found.leakers), "others": uniformity(found.p_values())}
    return {"n_users": len(users), "verdict": found.verdict, "unseen": innocents}


def _of_shared_matrix(theft: Theft, centred: bool, n_users: int, folder: str) -> dict[str, Any]:
    """What users who share M look like on a student of the first of them; and users with an M each, to compare."""
    crowd = SharedMatrix(theft, centred)
    leaker = crowd.key_for(0)
    student = steal(theft, theft.protected(leaker), folder)
    settings = {"tokenizer": theft.tokenizer, "victim": theft.victim, "cache_dir": folder, "progress": False}
    probe = probe_suspect(student, theft.text(theft.unseen), key=leaker, **settings)
    true, *others = crowd.tests(probe, range(n_users))
    strangers = [SharedMatrix(theft, centred, seed).tests(probe, [0])[0] for seed in range(1, n_users // 3 + 1)]
    return {
        "n_users": n_users,
        "leaker_z": true.z_score,
        "unseen": _as_if_independent(others, n_users),
        "own matrix": _as_if_independent(strangers, n_users),
    }


def _as_if_independent(tests: Sequence[ExactTest], n_users: int) -> dict[str, Any]:
    p_values = np.array([test.p_value for test in tests])
    return {
        "largest_z": max(test.z_score for test in tests),
        "innocents_named": sum(test.p_bound * n_users <= LEVEL for test in tests),
        "others": uniformity(p_values),
        "p_values": _rounded(p_values),
    }


def parts(
    folder: str, n_users: int, n_shared: int, seeds: Sequence[int], figure: Path
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Names of what is measured, and what measures it."""
    users = [f"customer-{number:05d}" for number in range(n_users)]
    chosen = [users[i] for i in np.random.default_rng(8).permutation(n_users)[: max(COALITIONS)]]

    def scene() -> tuple[Theft, KeyRing]:
        theft = make_theft(TAGGER, folder)
        return theft, make_ring(theft, users)

    def of_shared_matrix(centred: bool) -> Callable[[], dict[str, Any]]:
        return lambda: _of_shared_matrix(scene()[0], centred, n_shared, folder)

    def of_coalition(size: int, seed: int) -> Callable[[], dict[str, Any]]:
        return lambda: _of_coalition(*scene(), users, chosen[:size], folder, seed)

    yield ONE, lambda: _of_coalition(*scene(), users, chosen[:1], folder, seeds[0], figure)
    yield NOBODY, lambda: _of_nobody(*scene(), users, folder)
    for name, centred in ((CENTRED, True), (UNCENTRED, False)):
        yield name, of_shared_matrix(centred)
    for seed in seeds:
        for size in COALITIONS:
            yield f"{size} users, seed {seed}", of_coalition(size, seed)


def measure(output: Path, n_users: int, n_shared: int, seeds: Sequence[int]) -> None:
    """Measure whatever the output does not hold yet."""
    done = {record["part"] for record in _read(output)} if output.exists() else set()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts(folder, n_users, n_shared, seeds, output.with_suffix(".png")):
            if name in done:
                continue
            start = time.perf_counter()
            record = {"part": name, **part()}
            with output.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


# -- telling


def report(output: Path) -> str:
    """Two Markdown tables of the raw lines: the innocent users' p-values, and how strongly colluders are named."""
    records = {record["part"]: record for record in _read(output)}
    return "\n".join([*_innocents_table(records), "", *_coalitions_table(records), ""])


def _innocents_table(records: dict[str, dict[str, Any]]) -> list[str]:
    rows = [
        (ONE, "unseen", "a ring; student of one user"),
        (NOBODY, "unseen", "a ring; model trained on true labels"),
        (CENTRED, "unseen", "**one M for all**, centred vectors; student of one user"),
        (CENTRED, "own matrix", "the same student, an M for each"),
        (UNCENTRED, "unseen", "**one M for all**, the paper's vectors; student of one user"),
        (UNCENTRED, "own matrix", "the same student, an M for each"),
    ]
    lines = ["| innocent users' p-values | users | p ≤ 0.05 | p ≤ 0.01 | p ≤ 0.001 | largest z | KS test | named |"]
    lines.append("| --- " * 8 + "|")
    for part, which, title in rows:
        if part in records:
            found = records[part][which]
            uniform = found["others"]
            shares = " | ".join(f"{uniform['shares'][str(level)]:.2%}" for level in LEVELS)
            rest = f"{_z(uniform['smallest']):.1f} | p {_figure(uniform['ks_p'])} | {found['innocents_named']:,}"
            lines.append(f"| {title} | {uniform['n']:,} | {shares} | {rest} |")
    if ONE in records:
        uniform = records[ONE]["unseen"]["others"]
        within = " | ".join("{:.2%} to {:.2%}".format(*uniform["expected"][str(level)]) for level in LEVELS)
        lines.append(f"| *99.9 % of honest tests give* | {uniform['n']:,} | {within} | | | |")
    return lines


def _coalitions_table(records: dict[str, dict[str, Any]]) -> list[str]:
    by_size: dict[int, list[dict[str, Any]]] = {}
    for record in records.values():
        if "colluders" in record:
            by_size.setdefault(len(record["colluders"]), []).append(record)
    lines = ["| users who pooled | students | probed with | mean z (range) | log₁₀ p | named | innocents named |"]
    lines.append("| --- " * 7 + "|")
    for size, some in sorted(by_size.items()):
        for where, title in (("unseen", "unseen text"), ("queries", "the queries")):
            z, log10_p, named = (
                [value for record in some for value in record[where][name]] for name in ("z", "log10_p", "named")
            )
            wrong = sum(record[where]["innocents_named"] for record in some)
            lines.append(
                f"| {size} | {len(some)} | {title} | {np.mean(z):.1f} ({_range(z)}) | {_range(log10_p)} "
                f"| {sum(named)} of {len(named)} | {wrong} |"
            )
    return lines


def _z(p: float) -> float:
    return float(-torch.special.ndtri(torch.tensor(p, dtype=torch.float64)))


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.1f}".replace("-", "−") for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _figure(p: float) -> str:
    return f"{p:.2f}" if p >= 0.005 else "< 10⁻¹⁰" if p < 1e-10 else f"{p:.0e}"


def _read(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="JSON lines, one a student")
    parser.add_argument("--users", type=int, default=10_000, help="users declared (default: 10000)")
    parser.add_argument("--shared", type=int, default=3_000, help="users who share a matrix (default: 3000)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[201, 202], help="students of every coalition")
    parser.add_argument("--report", action="store_true", help="only write the tables beside the output")
    options = parser.parse_args()
    if not options.report:
        measure(options.output, options.users, options.shared, options.seeds)
    options.output.with_suffix(".md").write_text(report(options.output))


if __name__ == "__main__":
    main()
