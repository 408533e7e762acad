"""``drw-tilt-1``: do words move a suspect's answers the way the key does? The law under random keys is known exactly.

T = Σ A_{i,c} s(i, c) over words i and classes c. The amplitudes A are computed without the key
(:mod:`.tilt_amplitudes`), and s(i, c) = √2·cos(f_w·g(i, c)) with independent uniform g is the key's: T is a sum of
independent terms of known law. With τ < 1 a word is unselected with chance 1 − τ, and then all its terms are 0.
"""

import dataclasses
import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import InvalidInputError
from ...keys.choices import AnswerKind
from ...keys.frames import forgets_locals
from ...keys.key import WatermarkKey
from ...keys.settings import MarkSettings
from ...watermark.tilt import settings_of, signals
from ..probe import Probe
from .base import Finding, Statistic, TestOptions, register
from .exact import kept_counts
from .null_law import NullLaw
from .saddlepoint import ExactTest, saddlepoint_test
from .tilt_amplitudes import TiltAmplitudes, compute_tilt_amplitudes, weighted_by_log

STATISTIC = "drw-tilt-1"
_BLOCK = 2**20  # random numbers drawn at once
_amplitudes: WeakKeyDictionary[Probe, dict[Any, TiltAmplitudes]] = WeakKeyDictionary()  # they serve for every key


class TiltLaw:
    """The law of T = Σ A s under random keys of some settings, for amplitudes A of shape (words, classes).

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.detection.statistics.tilt import TiltLaw
    >>> from drw_hf.watermark import TiltSettings
    >>> generator = np.random.default_rng(0)
    >>> s = np.sqrt(2.0) * np.cos(16.0 * generator.random((300, 3)))
    >>> A = 0.3 * s + generator.normal(size=(300, 3))
    >>> law = TiltLaw(A, TiltSettings(frequency=16.0))
    >>> law.test(law.statistic(s)).p_bound < 1e-6
    True
    """

    def __init__(self, A: np.ndarray, settings: MarkSettings) -> None:
        self.A, self.frequency, self.tau = np.asarray(A, dtype=np.float64), settings.frequency, settings.tau
        self.words, classes = np.nonzero(self.A)
        self.pairs = self.A[self.words, classes]
        # √2·cos = (1 + cos)/√2 − (1 − cos)/√2: the terms of the paper's test with two equal amplitudes, all selected.
        halves = self.pairs / math.sqrt(2.0) if len(self.pairs) else np.zeros(1)
        self._terms = NullLaw(halves, MarkSettings(frequency=self.frequency, tau=1.0), B=halves)

    def statistic(self, s: np.ndarray) -> float:
        """T of a key, from its signals of the words, shape (words, classes)."""
        return float(np.sum(self.A * s))

    def cumulants(self, theta: float) -> np.ndarray:
        """K(θ), K′(θ) and K″(θ) of every independent term, shape (3, terms): a pair, or with τ < 1 a word."""
        pairs = self._terms.terms(theta)
        if self.tau == 1.0 or not len(self.pairs):
            return pairs
        k, k1, k2 = (np.bincount(self.words, row, minlength=len(self.A)) for row in pairs)
        K = np.logaddexp(math.log1p(-self.tau), math.log(self.tau) + k) if self.tau else np.zeros_like(k)
        share = np.exp(math.log(self.tau) + k - K) if self.tau else np.zeros_like(k)  # of the selected, under the tilt
        return np.stack([K, share * k1, share * (k2 + k1**2) - (share * k1) ** 2])

    def test(self, statistic: float) -> ExactTest:
        """What the law says of a value of T."""
        _, means, variances = self.cumulants(0.0)
        if self.tau == 1.0 and len(self.pairs):  # what is counted is words: the pairs of one say much the same
            variances = np.bincount(self.words, variances, minlength=len(self.A))

        def sums(theta: float) -> tuple[float, float, float]:
            K, K1, K2 = (float(row.sum()) for row in self.cumulants(theta))
            return K, K1, K2

        limit = self._terms.theta_limit
        found = saddlepoint_test(sums, statistic, mean=float(means.sum()), variances=variances, theta_limit=limit)
        return dataclasses.replace(found, n_tokens=len(np.unique(self.words)))

    def simulate(self, n_keys: int, seed: int) -> np.ndarray:
        """T under so many random keys: what the law says, found by trying."""
        generator, samples = np.random.default_rng(seed), np.empty(n_keys)
        rows = max(1, _BLOCK // max(len(self.pairs), 1))
        for first in range(0, n_keys, rows):
            size = min(rows, n_keys - first)
            s = np.sqrt(2.0) * np.cos(self.frequency * generator.random((size, len(self.pairs))))
            if self.tau < 1.0:
                s *= (generator.random((size, len(self.A))) <= self.tau)[:, self.words]
            samples[first : first + size] = s @ self.pairs
        return samples


class TiltStatistic(Statistic):
    """The exact test of the mark tilt.

    By what the suspect gives it tests its scores, or its labels. Of scores the labels alone are shown beside, which
    tells an erased mark, or one that was put on from outside, from one that was learnt.
    """

    name = STATISTIC

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Every probe of such a key."""
        return key.mark == "tilt"

    @forgets_locals
    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """Of scores, and beside them of the labels alone, where something says what to expect of these."""
        explained = probe.victim is not None or probe.reference is not None
        beside = None
        if probe.kind == "probabilities" and explained:
            alone = dataclasses.replace(options, simulated_keys=0)
            beside = dataclasses.replace(tilt_finding(probe, key, "labels", alone), settings={})
        return dataclasses.replace(tilt_finding(probe, key, probe.kind, options), beside=beside)


def tilt_finding(probe: Probe, key: WatermarkKey, kind: AnswerKind, options: TestOptions) -> Finding:
    """The test of a probe, by the suspect's scores or its labels alone.

    The order matters: amplitudes are computed before the key's tables are read.
    """
    found = tilt_amplitudes_of(probe, key, kind, options.logged_counts)
    law, n_keys = TiltLaw(found.A, key.settings), int(options.simulated_keys)
    return Finding(
        law.test(law.statistic(signals(key, found.token_ids))),
        found.n_probes,
        found.variant,
        {"logged_counts": kept_counts(found.token_ids, options.logged_counts), "simulated_keys": n_keys},
        law.simulate(n_keys, seed=0) if n_keys else None,
    )


@forgets_locals
def tilt_test(probe: Probe, key: WatermarkKey) -> ExactTest:
    """The exact test of what the suspect gives, with nothing beside it."""
    return tilt_finding(probe, key, probe.kind, TestOptions()).test


def tilt_amplitudes_of(probe: Probe, key: WatermarkKey, kind: AnswerKind, logged_counts: Any = None) -> TiltAmplitudes:
    """The amplitudes of a probe; of the key its public side alone is read. Computed once per probe."""
    temperature = settings_of(key).temperature
    kept = _amplitudes.setdefault(probe, {})
    name = kind, temperature, key.special_token_ids
    if name not in kept:
        words = probe.words_of(key)
        if not len(words.probes):
            raise InvalidInputError("no probe has a word: the texts hold nothing but special tokens")
        kept[name] = compute_tilt_amplitudes(
            words, probe.suspect, kind, temperature=temperature, victim=probe.victim, reference=probe.reference
        )
    return kept[name] if logged_counts is None else weighted_by_log(kept[name], logged_counts)


register(TiltStatistic())
