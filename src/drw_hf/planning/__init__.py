"""Before a key is made: what a mark costs in accuracy, and how surely it would be found in a stolen copy."""

from .accuracy import (
    AccuracyBounds,
    Calibration,
    accuracy_bounds,
    calibration_error,
    measure_accuracy,
    predict_accuracy,
)
from .plan import Plan, PlanRow, plan, plan_protection, rank_targets
from .students import ExpectedStudent
from .traffic import Traffic, observe_traffic

__all__ = [
    "AccuracyBounds",
    "Calibration",
    "ExpectedStudent",
    "Plan",
    "PlanRow",
    "Traffic",
    "accuracy_bounds",
    "calibration_error",
    "measure_accuracy",
    "observe_traffic",
    "plan",
    "plan_protection",
    "predict_accuracy",
    "rank_targets",
]
