"""Three ways to do it: as the paper's code does, as its text says, and as this package does by default."""

from dataclasses import dataclass

from ..keys.choices import Law, Sampling, Scope


@dataclass(frozen=True)
class Mode:
    """How keys, labels and detection are made.

    Attributes
    ----------
    law : str
        How hashes are drawn from the key.
    scope : str
        Which selected answers are marked.
    sampling : str
        Whether the hard label of a text is one draw for good (``"keyed"``) or a new one each time (``"fresh"``).
    sample_all : bool
        Whether unmarked answers are drawn too, where labels are hard.
    requery : bool
        Whether hard labels are asked anew in every epoch.
    probes : str
        Whose answers P_snr is taken of: items that the clean victim calls c* (``"victim"``); items that are c* in
        truth, less the least confident (``"gold"``); or all of them (``"all"``). Selected ones only, in every mode.
    """

    name: str
    law: Law
    scope: Scope
    sampling: Sampling
    sample_all: bool
    requery: bool
    probes: str


MODES = {
    mode.name: mode
    for mode in (
        Mode("default", "direct", "predicted", "keyed", sample_all=False, requery=False, probes="victim"),
        Mode("paper-text", "paper", "all", "keyed", sample_all=False, requery=False, probes="all"),
        Mode("paper-code", "paper", "predicted", "fresh", sample_all=True, requery=True, probes="gold"),
    )
}
