"""Before a key is made: what a mark costs in accuracy, and how surely it would be found in a stolen copy.

Once it is made: the theft, rehearsed.
"""

from ..extraction.students import Recipe
from .accuracy import (
    AccuracyBounds,
    Calibration,
    accuracy_bounds,
    calibration_error,
    measure_accuracy,
    predict_accuracy,
    tilt_accuracy_bounds,
)
from .fit import Fit, fit_tilt
from .plan import Plan, PlanRow, plan, plan_protection, rank_targets
from .rehearsal import Rehearsal, RehearsalRow
from .rehearse import rehearse
from .students import ExpectedStudent
from .temperature import fit_temperature
from .tilt_costs import TiltCost, TiltCosts
from .tilt_plan import TiltPlan, TiltPlanRow, plan_tilt
from .tilt_traffic import TiltTraffic, observe_tilt_traffic
from .traffic import Traffic, observe_traffic

__all__ = [
    "AccuracyBounds",
    "Calibration",
    "ExpectedStudent",
    "Fit",
    "Plan",
    "PlanRow",
    "Recipe",
    "Rehearsal",
    "RehearsalRow",
    "TiltCost",
    "TiltCosts",
    "TiltPlan",
    "TiltPlanRow",
    "TiltTraffic",
    "Traffic",
    "accuracy_bounds",
    "calibration_error",
    "fit_temperature",
    "fit_tilt",
    "measure_accuracy",
    "observe_tilt_traffic",
    "observe_traffic",
    "plan",
    "plan_protection",
    "plan_tilt",
    "predict_accuracy",
    "rank_targets",
    "rehearse",
    "tilt_accuracy_bounds",
]
