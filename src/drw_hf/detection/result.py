"""`DetectionResult`: what a detection found, in a form that can be saved, replayed and shown."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidInputError
from ..keys.files import write_atomically
from .probing import Probe

FORMAT = "drw-evidence-1"


@dataclass(frozen=True)
class DetectionResult:
    """What probing a suspect with a key found.

    Attributes
    ----------
    verdict : str
        ``"detected"``, ``"not detected"`` or ``"undecided"``, at ``level``.
    p_value, p_bound : float
        The chance that a suspect which has nothing to do with the key looks as marked as this one: Lugannani and
        Rice's estimate, and the Chernoff bound that certainly holds. Both are corrected for all that was tried; the
        verdict goes by the bound. Where they are too small for a float they are 0.0; see ``log10_p``, ``log10_bound``.
    z_score : float
        The z-equivalent of the p-value of this one test.
    p_snr : float
        The paper's signal-to-noise ratio at the key's frequency.
    p_snr_p_value : float or None
        How often fresh random keys reach that P_snr.
    n_probes, n_tokens : int
        Probes that counted, and the distinct tokens among them.
    n_effective : float
        How many equally important tokens the test had.
    n_queries : int
        How many texts the suspect was asked.
    level : float
        The level of the verdict.
    keys_tried, suspects_tested, looks : int
        What the p-values are corrected for.
    statistic, variant : str
        The version of the statistic, and which of its forms was used.
    tokens_needed : int or None
        For an undecided verdict: about how many distinct tokens would do.
    explanation : str
        The verdict in a sentence.
    key_fingerprint, key_commitment : str
    probe_digest : str
        SHA-256 over what was asked and answered.
    frequency : float
        The key's f_w.
    frequencies, powers : list of float
        The periodogram.
    hash_values, target_values : list of float
        What it is the periodogram of: g(v_k, x) of the selected tokens, and the suspect's q̂_{c*} there.
    null_mean, null_sd, observed : float
        The test statistic's law under random keys, and its value under this one.
    suspect : str
        The suspect's name.
    settings : dict
        What else the figures depend on: the key's task, τ, law, scope and hash rule, and whether counts were logged.
    versions : dict
        Library versions.
    created_at : str
    """

    verdict: str
    log10_p: float
    log10_bound: float
    z_score: float
    p_snr: float
    p_snr_p_value: float | None
    n_probes: int
    n_tokens: int
    n_effective: float
    n_queries: int
    level: float
    keys_tried: int
    suspects_tested: int
    looks: int
    statistic: str
    variant: str
    tokens_needed: int | None
    explanation: str
    key_fingerprint: str
    key_commitment: str
    probe_digest: str
    frequency: float
    frequencies: list[float] = field(repr=False)
    powers: list[float] = field(repr=False)
    hash_values: list[float] = field(repr=False)
    target_values: list[float] = field(repr=False)
    null_mean: float
    null_sd: float
    observed: float
    suspect: str
    target_label: str
    settings: dict[str, Any]
    versions: dict[str, str]
    created_at: str
    probe: Probe | None = field(default=None, repr=False, compare=False)
    null_samples: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def p_value(self) -> float:
        """The corrected p-value; 0.0 below the smallest float."""
        return 10.0**self.log10_p

    @property
    def p_bound(self) -> float:
        """The corrected Chernoff bound; 0.0 below the smallest float."""
        return 10.0**self.log10_bound

    def __str__(self) -> str:
        return (
            f"{self.verdict}: p {_power_of_ten(self.log10_p)} (at most {_power_of_ten(self.log10_bound)}), "
            f"z {self.z_score:.1f}, P_snr {self.p_snr:.1f}, {self.n_tokens} distinct tokens in {self.n_probes} probes"
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the result as JSON, and the probe beside it as ``.npz`` so that it can be replayed.

        The files disclose the target class, the frequency and hash values: they are as confidential as the key.
        """
        path = Path(path)
        if self.probe is not None:
            self.probe.save(_probe_path(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        skipped = {"probe", "null_samples"}
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in skipped}
        document = {"format": FORMAT, **fields, "p_value": self.p_value, "p_bound": self.p_bound}
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike) -> "DetectionResult":
        """Read what :meth:`save` wrote, with the probe if it lies beside it."""
        path = Path(path)
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInputError(f"{path} is not a result that save wrote ({type(error).__name__})") from None
        if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
            raise InvalidInputError(f"{path} is not a result of the form {FORMAT}; was it written by a newer drw_hf?")
        known = {name: document[name] for name in cls.__dataclass_fields__ if name in document}
        missing = set(cls.__dataclass_fields__) - set(known) - {"probe", "null_samples"}
        if missing:
            raise InvalidInputError(f"{path} lacks {sorted(missing)}; restore the file from a backup")
        probe = Probe.load(_probe_path(path)) if _probe_path(path).exists() else None
        if probe is not None and probe.digest() != known["probe_digest"]:
            raise InvalidInputError(f"the probe beside {path} is not the one this result is of")
        return cls(**known, probe=probe)

    def plot(self, path: str | os.PathLike | None = None) -> Any:
        """Draw the paper's figure: answers over the hash, the periodogram, and what chance would give.

        Returns the matplotlib figure, and writes it where a path is given.
        """
        from .plots import plot_result

        return plot_result(self, path)

    def to_dict(self) -> dict[str, Any]:
        """The scalar findings, for logs and JSON."""
        series = ("frequencies", "powers", "hash_values", "target_values", "probe", "null_samples")
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in series}
        return {**fields, "p_value": self.p_value, "p_bound": self.p_bound}


def _probe_path(path: Path) -> Path:
    return path.with_suffix(".probe.npz")


def _power_of_ten(log10: float) -> str:
    return f"{10.0**log10:.2g}" if log10 > -3 else f"1e{log10:.1f}" if log10 > -100 else f"1e{log10:.0f}"
