"""What detecting costs: the exact test and simulated keys over astropy's periodogram, probing over bare inference."""

import tempfile

import numpy as np
import torch

from drw_hf import WatermarkKey
from drw_hf.asking import as_predictor
from drw_hf.asking.answers import in_batches
from drw_hf.detection.probing import probe_suspect
from drw_hf.detection.statistics.amplitudes import SuspectAnswers, compute_amplitudes
from drw_hf.detection.statistics.null_law import NullLaw, simulate_null
from drw_hf.keys.settings import MarkSettings

from .extraction import TASK, sentences, tokenizer
from .measure import Row, interleaved, milliseconds, ratio
from .protection import BATCH, bert
from .psnr import N_PROBES, astropy_p_snr, worst_relative_error

N_TOKENS, N_KEYS = 2_000, 10_000


def bench_test(rounds: int) -> list[Row]:
    """From 10,000 answers to a p-value, and 10,000 random keys, over one P_snr of the paper's code."""
    rng = np.random.default_rng(0)
    tokens = np.concatenate([np.arange(N_TOKENS), rng.integers(0, N_TOKENS, N_PROBES - N_TOKENS)])
    answers = rng.dirichlet(np.ones(9), N_PROBES)
    answers[:, 0] += 1.0
    answers /= answers.sum(1, keepdims=True)
    phase, selection = rng.random((2, N_TOKENS))
    suspect, settings = SuspectAnswers("probabilities", answers), MarkSettings(frequency=16.0, tau=0.5)
    amplitudes = compute_amplitudes(tokens, 0, suspect, victim=answers[::-1])

    def test() -> None:
        found = compute_amplitudes(tokens, 0, suspect, victim=answers[::-1])
        null = NullLaw(found.A, settings)
        null.test(null.statistic(phase[found.token_ids], selection[found.token_ids]))

    times = interleaved(
        {
            "test": test,
            "keys": lambda: simulate_null(amplitudes.A, settings, N_KEYS, seed=0),
            "astropy": lambda: astropy_p_snr(phase[tokens], answers[:, 0]),
        },
        rounds,
    )
    return [
        {
            "what": "exact p-value of 10,000 probes / one astropy P_snr of the paper's code",
            "ratio": ratio(times, "test", "astropy"),
            "limit": 1.0,
            "median_ms": milliseconds(times["test"]),
        },
        {
            "what": "T under 10,000 simulated keys, 2,000 tokens / one astropy P_snr of the paper's code",
            "ratio": ratio(times, "keys", "astropy"),
            "limit": 2.0,
            "median_ms": milliseconds(times["keys"]),
        },
    ]


def bench_probing(rounds: int) -> list[Row]:
    """Probing over a bare forward loop on the same batches."""
    model, tok = bert(TASK), tokenizer()
    rows = sentences(BATCH * 20, model).remove_columns("tags")
    key = WatermarkKey.generate(model, tokenizer=tok, target=0)
    asked = as_predictor(model, tok)
    words = rows["tokens"][:]
    order = in_batches(asked, lambda numbers: [words[number] for number in numbers], list(range(len(words))), BATCH)
    batches = [asked.encode(questions) for _, questions in order]

    @torch.no_grad()
    def bare() -> None:
        for batch in batches:
            model(**batch)

    def probe() -> None:
        with tempfile.TemporaryDirectory() as folder:
            probe_suspect(model, rows, key=key, tokenizer=tok, batch_size=BATCH, cache_dir=folder, progress=False)

    times = interleaved({"bare": bare, "probe": probe}, rounds)
    return [
        {
            "what": "probing a suspect / a bare forward loop on the same batches",
            "ratio": ratio(times, "probe", "bare"),
            "limit": 1.05,
            "median_ms": milliseconds(times["probe"]),
        }
    ]


def check_accuracy(n_cases: int) -> list[Row]:
    """How far P_snr is from astropy's at the most."""
    return [
        {
            "what": f"P_snr, worst relative error against astropy over {n_cases:,} random cases",
            "ratio": worst_relative_error(n_cases),
            "limit": 1e-3,
        }
    ]
