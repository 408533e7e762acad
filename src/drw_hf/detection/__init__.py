"""Finding the mark again: probing a suspect, P_snr and an exact test."""

from .callback import PsnrCallback
from .detect import detect
from .drawing import Announcement
from .probe import Probe
from .probing import ProbingOptions, probe_suspect
from .result import DetectionResult
from .statistics import Finding, Statistic
from .statistics.divergence import jsd
from .statistics.nodes import p_snr_many
from .statistics.periodogram import p_snr, periodogram

__all__ = [
    "Announcement",
    "DetectionResult",
    "Finding",
    "Probe",
    "ProbingOptions",
    "PsnrCallback",
    "Statistic",
    "detect",
    "jsd",
    "p_snr",
    "p_snr_many",
    "periodogram",
    "probe_suspect",
]
