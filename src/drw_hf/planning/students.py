"""What a plan expects of a thief's student: how much of the mark it copies, and how noisy its answers are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
    """

    phi: float | Mapping[str, float | Mapping[float, float]]
    sigma: float
    kappa: float = KAPPA

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


# By what the student is probed with: the thief's own queries, or other text. A student shows more of the mark on what
# it learned by heart. Fitted to small BERTs that were distilled from protected taggers and a classifier: at ε = 0.2
# the geometric mean of φ/σ over three tasks, below it the course of NER's students, three of each kind; that of soft
# labels also for hard ones on unseen text, whose own is lost in noise (docs/reproduce.md, "Is the plan right?").
EXPECTED_STUDENTS = {
    "queries": ExpectedStudent(
        sigma=0.5,
        phi={
            "soft": {0.02: 0.1, 0.05: 0.14, 0.1: 0.19, 0.2: 0.23},
            "hard": {0.02: 0.039, 0.05: 0.057, 0.1: 0.073, 0.2: 0.085},
        },
    ),
    "unseen": ExpectedStudent(
        sigma=2.0,
        phi={
            "soft": {0.02: 0.085, 0.05: 0.1, 0.1: 0.18, 0.2: 0.29},
            "hard": {0.02: 0.026, 0.05: 0.031, 0.1: 0.055, 0.2: 0.09},
        },
    ),
}

# The same for the mark "tilt", whose strength stands in the place of ε; φ is γ/β, so σ is 1. Geometric means over
# settings of students that saw all queries (docs/results/tradeoff.md): those of one setting showed from two fifths
# to more than twice as much.
EXPECTED_TILT_STUDENTS = {
    "queries": ExpectedStudent(
        sigma=1.0,
        kappa=0.3,
        phi={
            "soft": {0.24: 1.162, 0.41: 0.961, 0.72: 0.737},
            "hard": {0.24: 0.523, 0.41: 0.468, 0.72: 0.397},
        },
    ),
    "unseen": ExpectedStudent(
        sigma=1.0,
        kappa=0.3,
        phi={
            "soft": {0.24: 0.242, 0.41: 0.283, 0.72: 0.318},
            "hard": {0.24: 0.077, 0.41: 0.128, 0.72: 0.161},
        },
    ),
}
