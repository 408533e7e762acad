"""``drw-tilt-margin-1``: the tests of tilt and of its margin draws, as one.

Tilt's bound B₁ holds over random tables of the key for any suspect. The margin's bound B₂ holds over random draws,
whose sub-key is another one, for any suspect *and any table*. So the chance that an unrelated model has B₁·B₂ ≤ P is
at most P·(1 − ln P): Fisher's method. The product alone is no p-value.
"""

import dataclasses
import math

import numpy as np
import torch

from ...keys.choices import AnswerKind
from ...keys.key import WatermarkKey
from ...watermark.tilt import TiltSettings
from ..probe import Probe
from .base import Finding, Statistic, TestOptions, register
from .margin import CloseCalls, close_calls_of, margin_finding
from .saddlepoint import ExactTest, z_of_log_p
from .tilt import tilt_finding

STATISTIC = "drw-tilt-margin-1"


def fisher(log10_a: float, log10_b: float) -> float:
    """log₁₀ of P(1 − ln P) for the product P of two p-values, or of two bounds on them."""
    log_p = (log10_a + log10_b) * math.log(10.0)
    return min((log_p + math.log1p(-log_p)) / math.log(10.0), 0.0)


def product_for(log_p: float) -> float:
    """ln P for which P(1 − ln P) is a p-value, given as its ln: how small the product of two must be."""
    product = log_p
    for _ in range(50):  # each round makes an error smaller by its 1 − ln P times, or more
        product = log_p - math.log1p(-product)
    return product


def combined(tilt: ExactTest, margin: ExactTest) -> ExactTest:
    """Both tests as one; its statistic is the z of their common p-value, which is about normal by chance.

    ``n_tokens`` and ``n_effective`` count the terms of both: tokens, and draws.
    """
    log10_p = fisher(tilt.log10_p, margin.log10_p)
    z = z_of_log_p(log10_p * math.log(10.0)) if tilt.sd or margin.sd else 0.0  # a suspect without any leanings
    return ExactTest(
        statistic=z,
        log10_p=log10_p,
        log10_bound=fisher(tilt.log10_bound, margin.log10_bound),
        z_score=z,
        theta=0.0,
        n_tokens=tilt.n_tokens + margin.n_tokens,
        n_effective=tilt.n_effective + margin.n_effective,
        mean=0.0,
        sd=1.0,
    )


def combined_samples(tilt: Finding, margin: Finding) -> np.ndarray | None:
    """The combined z under random keys, as far as the parts' own are normal; None where none were drawn."""
    if tilt.null_samples is None or margin.null_samples is None:
        return None
    own, drawn = _log10_tails(tilt.null_samples, tilt.test), _log10_tails(margin.null_samples, margin.test)
    return np.array([z_of_log_p(fisher(*pair) * math.log(10.0)) for pair in zip(own, drawn, strict=True)])


def _log10_tails(samples: np.ndarray, test: ExactTest) -> list[float]:
    """log₁₀ of the chance of more, for normal variables of a test's mean and standard deviation."""
    z = torch.from_numpy((samples - test.mean) / (test.sd or 1.0))
    return (torch.special.log_ndtr(-z) / math.log(10.0)).tolist()


class TiltAndMarginStatistic(Statistic):
    """Tilt and margin draws, for keys that have both and probes that hold the log."""

    name = STATISTIC

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Probes with the logged labels of a service that draws close calls."""
        return probe.logged is not None and isinstance(key.settings, TiltSettings) and key.settings.margin > 0.0

    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """Both tests; the labels alone are shown beside, if the suspect gives scores."""
        calls = close_calls_of(probe, key)
        found = both_as_one(probe, key, probe.kind, calls, options)
        if probe.kind == "labels":
            return found
        alone = dataclasses.replace(options, simulated_keys=0)
        return dataclasses.replace(found, beside=both_as_one(probe, key, "labels", calls, alone))


def both_as_one(probe: Probe, key: WatermarkKey, kind: AnswerKind, calls: CloseCalls, options: TestOptions) -> Finding:
    """Both tests by the suspect's scores, or by its labels alone."""
    tilt = tilt_finding(probe, key, kind, options)
    margin = margin_finding(probe, key, kind, int(options.simulated_keys), calls)
    chosen = {name: getattr(key.settings, name) for name in ("strength", "margin")}
    return Finding(
        combined(tilt.test, margin.test),
        tilt.n_probes,
        f"{tilt.variant}-margin",
        {**tilt.settings, **margin.settings, **chosen},
        combined_samples(tilt, margin),
        parts={"tilt": tilt, "margin": margin},
    )


register(TiltAndMarginStatistic())
