"""P_snr against astropy: speed at 10,000 probes, and agreement on random cases.

``python -m tests.bench.psnr`` runs both; the 1,000 cases take a quarter of an hour, nearly all of it astropy's.
"""

import argparse
import math

import numpy as np
from astropy.timeseries import LombScargle

from drw_hf.detection import p_snr, p_snr_many

from .measure import Row, interleaved, milliseconds, ratio

N_PROBES, N_TOKENS, N_KEYS = 10_000, 500, 20
CYCLES = np.linspace(0.002, 40, 200_000)


def astropy_p_snr(hash_values, target_probabilities, frequency=16.0, window=0.01):
    """The computation of the paper's code."""
    centred = target_probabilities - np.mean(target_probabilities)
    power = LombScargle(hash_values, centred, normalization="psd").power(CYCLES)
    in_window = np.abs(2 * math.pi * CYCLES - frequency) <= window / 2
    return power[in_window].mean() / power[~in_window].mean()


def random_case(rng):
    """Hash values, answers and a frequency: 20 to 10,000 probes, of as many or fewer tokens, marked or not."""
    n = round(math.exp(rng.uniform(math.log(20), math.log(10_000))))
    hash_values = rng.random(n)
    if rng.random() < 0.5:  # probes of the same token share a hash value, and some tokens are frequent
        n_tokens = max(20, round(n * rng.random()))
        tokens = np.concatenate([np.arange(20), (n_tokens * rng.random(n - 20) ** 2).astype(int)])
        hash_values = rng.random(n_tokens)[tokens]
    frequency = rng.uniform(1.0, 250.0)
    noise = rng.random(n) if rng.random() < 0.5 else rng.beta(0.2, 0.1, n)
    strength = rng.choice([0.0, 0.02, 0.2, 2.0])
    return hash_values, noise + strength * np.cos(frequency * hash_values), frequency


def worst_relative_error(n_cases: int = 1000, seed: int = 0) -> float:
    """The largest |p_snr / astropy − 1| over random cases."""
    rng = np.random.default_rng(seed)
    errors = []
    for _ in range(n_cases):
        hash_values, answers, frequency = random_case(rng)
        expected = astropy_p_snr(hash_values, answers, frequency)
        errors.append(abs(p_snr(hash_values, answers, frequency) / expected - 1))
    return max(errors)


def bench_psnr(rounds: int) -> list[Row]:
    """P_snr over astropy's on all frequencies: as many tokens as probes, shared tokens, one of many keys."""
    rng = np.random.default_rng(0)
    hash_matrix, answers = rng.random((N_KEYS, N_PROBES)), rng.random(N_PROBES)
    shared = rng.random(N_TOKENS)[rng.integers(N_TOKENS, size=N_PROBES)]
    times = interleaved(
        {
            "alone": lambda: p_snr(hash_matrix[0], answers),
            "many": lambda: p_snr_many(hash_matrix, answers),
            "merged": lambda: p_snr(shared, answers),
            "astropy": lambda: astropy_p_snr(hash_matrix[0], answers),
        },
        rounds,
    )
    times["many"] = [seconds / N_KEYS for seconds in times["many"]]
    what = f"P_snr of {N_PROBES:,} probes / astropy's on {len(CYCLES):,} frequencies"
    return [
        {
            "what": name,
            "ratio": ratio(times, ours, "astropy"),
            "limit": 0.05,
            "median_ms": milliseconds(times[ours]),
            "astropy_median_ms": milliseconds(times["astropy"]),
        }
        for name, ours in (
            (what, "alone"),
            (f"P_snr of {N_PROBES:,} probes of {N_TOKENS} tokens / the same", "merged"),
            (f"{what}, one of {N_KEYS} keys", "many"),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.bench.psnr")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of the speed comparison (default: 10)")
    parser.add_argument("--cases", type=int, default=1000, help="random cases of the accuracy comparison")
    options = parser.parse_args()
    for row in bench_psnr(options.rounds):
        print({name: value if isinstance(value, str) else round(value, 5) for name, value in row.items()})
    print(f"worst relative error over {options.cases} cases: {worst_relative_error(options.cases):.1e}")


if __name__ == "__main__":
    main()
