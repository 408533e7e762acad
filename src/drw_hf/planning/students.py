"""What a plan expects of a thief's student: how much of the mark it copies, and how noisy its answers are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..checks import check_choice, in_range
from ..errors import InvalidInputError
from ..keys.choices import LABEL_KINDS

KAPPA = 1.0  # the effective number of tokens hardly feels it


@dataclass(frozen=True)
class ExpectedStudent:
    """How a student answers; only φ/σ enters a plan.

    Attributes
    ----------
    phi : float, or mapping from label kind to float or to ``{ε: φ}``
        φ, how much of the mark the student copies. Between the ε of a table log φ is linear in log ε; below them the
        same power law goes on, above them φ stays.
    sigma : float
        σ, the spread of its tokens without any mark: the root mean square of the token residuals r̄_i, weighted with
        w_i².
    kappa : float
        κ, the tokens' variance between over that within.
    spread : mapping from label kind to (float, float)
        How much of this the least and the largest student copied; without it all are expected to be alike.
    whole : mapping from label kind to (float, float, float)
        γ where every selected answer is marked (scope ``"all"``) at ε = 0.2 and τ = 0.5: of the least student, a
        typical one and the largest. Without it, φ and σ hold for that scope, too.
    """

    phi: float | Mapping[str, float | Mapping[float, float]]
    sigma: float
    kappa: float = KAPPA
    spread: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    whole: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        in_range("sigma", self.sigma, above=True)
        in_range("kappa", self.kappa)
        for label_kind, phi in self._phi_of_kinds().items():
            if not isinstance(phi, Mapping):
                in_range("phi", phi)
                continue
            if not phi:
                raise InvalidInputError(f"phi holds no φ for {label_kind!r}; give {{ε: φ}} with one entry or more")
            for epsilon, value in phi.items():
                in_range("an ε of phi", epsilon, above=True)
                in_range("phi", value, above=True)

    def copied(self, label_kind: str, epsilon: float) -> float:
        """φ at an ε."""
        of_kinds = self._phi_of_kinds()
        check_choice("label_kind", label_kind, list(of_kinds))
        phi = of_kinds[label_kind]
        return copied_share(epsilon, phi) if isinstance(phi, Mapping) else phi

    def effects(self, label_kind: str, effect: float) -> tuple[float, float, float]:
        """The γ of the least student, a typical one and the largest, where a typical one has ``effect``."""
        least, largest = self.spread.get(label_kind, (1.0, 1.0))
        return least * effect, effect, largest * effect

    def _phi_of_kinds(self) -> Mapping[str, float | Mapping[float, float]]:
        return self.phi if isinstance(self.phi, Mapping) else dict.fromkeys(LABEL_KINDS, self.phi)


def copied_share(epsilon: float, table: Mapping[float, float]) -> float:
    """φ at an ε, from a table ``{ε: φ}``: a power law between its entries and below them, constant above."""
    if epsilon <= 0.0:
        return 0.0
    points = sorted(table.items())
    if epsilon >= points[-1][0] or len(points) == 1:
        return points[-1][1]
    after = next(place for place, (known, _) in enumerate(points) if place and epsilon <= known)
    (low, below), (high, above) = points[after - 1 : after + 1]
    return below * (above / below) ** (math.log(epsilon / low) / math.log(high / low))


def log10_bound(z: float) -> float:
    """log₁₀ of exp(−z²/2): of the bound on the p-value, by which :func:`drw_hf.detect` decides."""
    return 0.0 - z**2 / (2.0 * math.log(10.0))


# By what the student is probed with: the thief's own queries, or other text. A student shows more of the mark on what
# it learned by heart. Fitted to all students of the reproduction that did nothing but learn, of four tasks, small
# BERTs and pretrained ones: drw_hf.experiments.plan_fit says how, and a test holds these figures to the raw lines.
# Those of comparison.jsonl do not say how many tokens they were worth, and could not be used.
EXPECTED_STUDENTS = {
    "queries": ExpectedStudent(
        sigma=0.5,
        phi={
            "soft": {0.02: 0.125, 0.05: 0.173, 0.1: 0.231, 0.2: 0.273},
            "hard": {0.02: 0.052, 0.05: 0.0769, 0.1: 0.0977, 0.2: 0.111},
        },
        spread={"soft": (0.542, 5.26), "hard": (0.494, 7.34)},
        whole={"soft": (1.28, 1.37, 1.67), "hard": (0.763, 0.835, 0.973)},
    ),
    "unseen": ExpectedStudent(
        sigma=2.0,
        phi={
            "soft": {0.02: 0.0721, 0.05: 0.0856, 0.1: 0.15, 0.2: 0.243},
            "hard": {0.02: 0.031, 0.05: 0.0367, 0.1: 0.0644, 0.2: 0.104},
        },
        spread={"soft": (0.0, 2.25), "hard": (0.0, 3.94)},
        whole={"soft": (0.689, 0.869, 0.877), "hard": (0.222, 0.384, 0.455)},
    ),
}
MEASURED_EPSILON, MEASURED_TAU = 0.2, 0.5  # at which `whole` was

# The memory test of a student of hard labels, on the log of what was served: z over the root of how many answers of
# the log were marked, by ε, and how much of it the least and the largest student showed. From the same lines.
MEMORY = {0.02: 0.531, 0.05: 0.712, 0.1: 0.857, 0.2: 1.04}
MEMORY_SPREAD = (0.614, 1.13)

# The same for the mark "tilt", whose strength stands in the place of ε; φ is γ/β, so σ is 1. Geometric means over
# settings of students that saw all queries, and how much of that the least and the largest student showed
# (docs/results/tradeoff.md).
EXPECTED_TILT_STUDENTS = {
    "queries": ExpectedStudent(
        sigma=1.0,
        kappa=0.3,
        phi={
            "soft": {0.24: 1.162, 0.41: 0.961, 0.72: 0.737},
            "hard": {0.24: 0.523, 0.41: 0.468, 0.72: 0.397},
        },
        spread={"soft": (0.479, 1.71), "hard": (0.526, 2.07)},
    ),
    "unseen": ExpectedStudent(
        sigma=1.0,
        kappa=0.3,
        phi={
            "soft": {0.24: 0.242, 0.41: 0.283, 0.72: 0.318},
            "hard": {0.24: 0.077, 0.41: 0.128, 0.72: 0.161},
        },
        spread={"soft": (0.18, 2.64), "hard": (0.0, 3.45)},
    ),
}

# The margin test of a student of hard answers, on the log of what was served: z over the root of how many answers of
# the log were drawn, and how much of it the least and the largest student showed. Of the thieves of
# docs/results/margins.md who do nothing but learn.
MARGIN = 0.932
MARGIN_SPREAD = (0.902, 1.07)
