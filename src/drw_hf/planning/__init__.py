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

__all__ = [
    "AccuracyBounds",
    "Calibration",
    "Plan",
    "PlanRow",
    "accuracy_bounds",
    "calibration_error",
    "measure_accuracy",
    "plan",
    "plan_protection",
    "predict_accuracy",
    "rank_targets",
]
