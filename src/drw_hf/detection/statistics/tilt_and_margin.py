"""``drw-tilt-margin-1``: the tests of tilt and of its margin draws, as one.

Tilt's bound B₁ holds over random tables of the key for any suspect. The margin's bound B₂ holds over random draws,
whose sub-key is another one, for any suspect *and any table*. So the chance that an unrelated model has B₁·B₂ ≤ P is
at most P·(1 − ln P): Fisher's method. The product alone is no p-value.
"""

import dataclasses
import math

import numpy as np
import torch

from ...errors import InvalidInputError
from ...keys.choices import AnswerKind
from ...keys.key import WatermarkKey
from ...watermark.tilt import TiltSettings
from ..probe import Probe
from .base import Finding, Statistic, TestOptions, register
from .margin import margin_finding
from .saddlepoint import ExactTest, z_of_log_p
from .tilt import tilt_finding

STATISTIC = "drw-tilt-margin-1"


def fisher(log10_a: float, log10_b: float) -> float:
    """log₁₀ of P(1 − ln P) for the product P of two p-values, or of two bounds on them."""
    log_p = (log10_a + log10_b) * math.log(10.0)
    return min((log_p + math.log1p(-log_p)) / math.log(10.0), 0.0)


def combined(tilt: ExactTest, margin: ExactTest) -> ExactTest:
    """Both tests as one; its statistic is the z of their common p-value, which is about normal by chance."""
    log10_p = fisher(tilt.log10_p, margin.log10_p)
    z = z_of_log_p(log10_p * math.log(10.0)) if tilt.sd or margin.sd else 0.0  # a suspect without any leanings
    return ExactTest(
        statistic=z,
        log10_p=log10_p,
        log10_bound=fisher(tilt.log10_bound, margin.log10_bound),
        z_score=z,
        theta=0.0,
        n_tokens=tilt.n_tokens,
        n_effective=tilt.n_effective,
        mean=0.0,
        sd=1.0,
    )


def combined_samples(tilt: Finding, margin: Finding) -> np.ndarray | None:
    """The combined z under random keys, as far as the parts' own are normal; None where none were drawn."""
    if tilt.null_samples is None or margin.null_samples is None:
        return None
    tails = [
        torch.special.log_ndtr(torch.from_numpy((part.test.mean - part.null_samples) / (part.test.sd or 1.0)))
        for part in (tilt, margin)
        if part.null_samples is not None
    ]
    log_p = (tails[0] + tails[1]).tolist()
    return np.array([z_of_log_p(fisher(one / math.log(10.0), 0.0) * math.log(10.0)) for one in log_p])


class TiltAndMarginStatistic(Statistic):
    """Tilt and margin draws, for keys that have both and probes that hold the log."""

    name = STATISTIC

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Probes with the logged labels of a service that draws close calls."""
        return probe.logged is not None and isinstance(key.settings, TiltSettings) and key.settings.margin > 0.0

    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """Both tests; the labels alone are shown beside, if the suspect gives scores."""
        alone = dataclasses.replace(options, simulated_keys=0)
        beside = self._of(probe, key, alone, "labels") if probe.kind == "probabilities" else None
        return self._of(probe, key, options, probe.kind, beside)

    def _of(
        self, probe: Probe, key: WatermarkKey, options: TestOptions, kind: AnswerKind, beside: Finding | None = None
    ) -> Finding:
        if probe.victim is None:
            raise InvalidInputError(
                "with logged answers, what was drawn is computed from the key and the clean victim; pass victim= as "
                "well, or leave logged= out"
            )
        parts = {
            "tilt": tilt_finding(probe, key, kind, options),
            "margin": margin_finding(probe, key, kind, int(options.simulated_keys)),
        }
        test = combined(parts["tilt"].test, parts["margin"].test)
        chosen = {name: getattr(key.settings, name) for name in ("strength", "margin")}
        settings = {**parts["tilt"].settings, **parts["margin"].settings, **chosen}
        variant = f"{parts['tilt'].variant}-margin"
        samples = combined_samples(parts["tilt"], parts["margin"])
        return Finding(test, parts["tilt"].n_probes, variant, settings, samples, beside=beside, parts=parts)


register(TiltAndMarginStatistic())
