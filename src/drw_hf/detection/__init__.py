"""Finding the mark again: probing a suspect, P_snr, an exact test, and whose mark it is among many users."""

from .callback import PsnrCallback
from .detect import detect
from .divergence import jsd
from .identification import Identification
from .identify import identify
from .periodogram import p_snr, p_snr_many, periodogram
from .probing import Probe, probe_suspect
from .result import DetectionResult

__all__ = [
    "DetectionResult",
    "Identification",
    "Probe",
    "PsnrCallback",
    "detect",
    "identify",
    "jsd",
    "p_snr",
    "p_snr_many",
    "periodogram",
    "probe_suspect",
]
