"""Finding the mark again: probing a suspect, P_snr and an exact test."""

from .callback import PsnrCallback
from .detect import detect
from .divergence import jsd
from .periodogram import p_snr, p_snr_many, periodogram
from .probe import Probe
from .probing import ProbingOptions, probe_suspect
from .result import DetectionResult

__all__ = [
    "DetectionResult",
    "Probe",
    "ProbingOptions",
    "PsnrCallback",
    "detect",
    "jsd",
    "p_snr",
    "p_snr_many",
    "periodogram",
    "probe_suspect",
]
