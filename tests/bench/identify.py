"""What tracing costs: users per second, memory, and the same search by one astropy P_snr per user.

``python -m tests.bench.identify`` runs it alone; ``--users`` sets how many are searched.
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
from transformers import BertConfig

from drw_hf.detection import Probe
from drw_hf.keys import KeyRing
from drw_hf.tracing import identify

from .measure import Row, interleaved, milliseconds
from .psnr import CYCLES, astropy_p_snr

VOCABULARY, N_TOKENS, N_LABELS = 30_522, 2_000, 9
N_USERS, SECONDS, MEGABYTES = 1_000_000, 120.0, 2_048
TILT_USERS, TILT_TOKENS, TILT_LABELS, TILT_SECONDS = 10_000, 3_000, 45, 10.0  # of the mark tilt


def make_ring(n_labels: int = N_LABELS, **settings: Any) -> KeyRing:
    config = BertConfig(vocab_size=VOCABULARY, num_labels=n_labels)
    arguments = {"special_token_ids": [0, 101, 102], "task": "token-classification", **(settings or {"target": 0})}
    return KeyRing.generate(config, secret=bytes(32), **arguments)


def make_tilt_ring() -> KeyRing:
    return make_ring(TILT_LABELS, mark="tilt", strength=0.3, temperature=1.0)


def make_probe(ring: KeyRing) -> Probe:
    """10,000 answers of an innocent suspect, of 2,000 distinct tokens."""
    rng = np.random.default_rng(0)
    n = 5 * N_TOKENS
    tokens = rng.choice(np.arange(1_000, VOCABULARY), N_TOKENS, replace=False)
    tokens = np.concatenate([tokens, rng.choice(tokens, n - N_TOKENS)])
    answers = rng.dirichlet(np.ones(N_LABELS), (2, n))
    answers[..., 0] += 1.0
    answers /= answers.sum(-1, keepdims=True)
    return _as_probe(ring, tokens, answers)


def make_tilt_probe(ring: KeyRing) -> Probe:
    """15,000 answers of an innocent tagger, of 3,000 words; some four of the 45 classes are likely for each."""
    rng = np.random.default_rng(0)
    words = rng.choice(np.arange(1_000, VOCABULARY), TILT_TOKENS, replace=False)
    usual = rng.dirichlet(np.full(TILT_LABELS, 0.025), TILT_TOKENS)
    places = np.concatenate([np.arange(TILT_TOKENS), rng.integers(0, TILT_TOKENS, 4 * TILT_TOKENS)])
    answers = np.log(usual + 1e-4)[places] + 0.1 * rng.standard_normal((2, len(places), TILT_LABELS))
    answers = np.exp(answers)
    return _as_probe(ring, words[places], answers / answers.sum(-1, keepdims=True))


def _as_probe(ring: KeyRing, tokens: np.ndarray, answers: np.ndarray) -> Probe:
    n = len(tokens)
    template = ring.template()
    return Probe(
        task=template.task,
        labels=template.labels,
        input_ids=tokens,
        token_type_ids=np.zeros(n, np.int64),
        offsets=np.array([0, n]),
        rows=np.zeros(n, np.int64),
        places=np.arange(n),
        suspect=answers[0].astype(np.float32),
        victim=answers[1].astype(np.float32),
    )


def search(n_users: int, tilt: bool = False) -> dict[str, float]:
    """Seconds of one search, and the peak memory of this process before and after."""
    ring = make_tilt_ring() if tilt else make_ring()
    probe = make_tilt_probe(ring) if tilt else make_probe(ring)
    identify(probe, ring=ring, users=["warm", "up"], progress=False)
    before = _peak_megabytes()
    start = time.perf_counter()
    found = identify(probe, ring=ring, users=(f"customer-{i}" for i in range(n_users)), progress=False)
    seconds = time.perf_counter() - start
    n_tokens = TILT_TOKENS if tilt else N_TOKENS
    assert (found.n_users, found.n_tokens, found.leakers) == (n_users, n_tokens, [])
    return {"seconds": seconds, "before_megabytes": before, "peak_megabytes": _peak_megabytes()}


def _peak_megabytes() -> float:
    """This process's highest resident memory. Not getrusage's, which on Linux a child takes over from its parent."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmHWM"))
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 2**20 if sys.platform == "darwin" else peak / 1024


def _in_a_process_of_its_own(n_users: int, tilt: bool = False) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.bench.identify", "--search", str(n_users), *["--tilt"] * tilt]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def bench_identify(n_users: int = N_USERS) -> list[Row]:
    """A search of so many users, of a tenth of them, and one astropy P_snr per user, extrapolated from one."""
    few, many = _in_a_process_of_its_own(n_users // 10), _in_a_process_of_its_own(n_users)
    rng = np.random.default_rng(0)
    # astropy needs every probe's hash, of the half that is selected.
    hashes, answers = rng.random(N_TOKENS)[rng.integers(0, N_TOKENS, 5 * N_TOKENS // 2)], rng.random(5 * N_TOKENS // 2)
    times = interleaved({"astropy": lambda: astropy_p_snr(hashes, answers)}, 5)["astropy"]
    astropy = milliseconds(times) / 1e3
    rate, shape = n_users / many["seconds"], f"{n_users:,} users x {N_TOKENS:,} distinct tokens"
    limit = SECONDS * n_users / N_USERS
    return [
        {
            "what": f"searching {shape}, of the {limit:g} seconds allowed ({rate:,.0f} users per second)",
            "ratio": many["seconds"] / limit,
            "limit": 1.0,
            "seconds": many["seconds"],
            "users_a_second": rate,
        },
        {
            "what": f"the same, peak memory of the {MEGABYTES:,} MB allowed ({many['peak_megabytes']:.0f} MB)",
            "ratio": many["peak_megabytes"] / MEGABYTES,
            "limit": 1.0,
            "peak_megabytes": many["peak_megabytes"],
            "before_megabytes": many["before_megabytes"],
        },
        {
            "what": f"a user's share of the time, {n_users:,} users / {n_users // 10:,} users",
            "ratio": many["seconds"] / few["seconds"] / 10.0,
            "limit": 1.1,
            "few_seconds": few["seconds"],
        },
        {
            "what": f"searching {shape} / one astropy P_snr per user on {len(CYCLES):,} frequencies, extrapolated",
            "ratio": many["seconds"] / (astropy * n_users),
            "limit": 0.001,
            "astropy_median_ms": 1e3 * astropy,
            "astropy_days": astropy * n_users / 86_400,
        },
        bench_tilt(),
        bench_declaring(n_users // 10),
    ]


def bench_tilt() -> Row:
    """A search among users of the mark tilt; the amplitudes, which are computed once per probe, are not counted."""
    found = _in_a_process_of_its_own(TILT_USERS, tilt=True)
    rate, shape = (
        TILT_USERS / found["seconds"],
        f"{TILT_USERS:,} users x {TILT_TOKENS:,} words x {TILT_LABELS} classes",
    )
    return {
        "what": f"searching {shape} of the mark tilt, of the {TILT_SECONDS:g} seconds allowed "
        f"({rate:,.0f} users per second, {found['peak_megabytes']:.0f} MB)",
        "ratio": found["seconds"] / TILT_SECONDS,
        "limit": 1.0,
        "seconds": found["seconds"],
        "users_a_second": rate,
        "peak_megabytes": found["peak_megabytes"],
    }


def bench_declaring(n_users: int) -> Row:
    """Fixing the keys of all users beforehand, of a minute for a million."""
    ring, users = make_ring(), [f"user {number}" for number in range(n_users)]
    start = time.perf_counter()
    ring.declare(users)
    seconds, allowed = time.perf_counter() - start, 60e-6 * n_users
    each = 1e6 * seconds / n_users
    return {
        "what": f"declaring {n_users:,} users, of the {allowed:g} seconds allowed ({each:.0f} µs per user)",
        "ratio": seconds / allowed,
        "limit": 1.0,
        "microseconds_a_user": each,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench.identify")
    parser.add_argument("--users", type=int, default=N_USERS, help=f"how many users to search (default: {N_USERS:,})")
    parser.add_argument("--search", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--tilt", action="store_true", help="search users of the mark tilt alone")
    options = parser.parse_args()
    if options.search:
        print(json.dumps(search(options.search, options.tilt)))
        return
    for row in [bench_tilt()] if options.tilt else bench_identify(options.users):
        print({name: value if isinstance(value, str) else round(value, 5) for name, value in row.items()})


if __name__ == "__main__":
    main()
