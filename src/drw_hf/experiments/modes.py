"""Three ways to do it: as the paper's code does, as its text says, and as this package does by default."""

from dataclasses import dataclass

from ..keys.choices import Law, Sampling, Scope


@dataclass(frozen=True)
class Mode:
    """How keys, labels and detection are made."""

    name: str
    law: Law  # how hashes are drawn from the key
    scope: Scope  # which selected answers are marked
    sampling: Sampling  # whether the hard label of a text is one draw for good ("keyed") or a new one each time
    sample_all: bool  # whether unmarked answers are drawn too, where labels are hard
    requery: bool  # whether hard labels are asked anew in every epoch
    # Whose answers P_snr is taken of: items that the clean victim calls c* ("victim"); items that are c* in truth,
    # less the least confident ("gold"); or all of them ("all"). Selected ones only, in every mode.
    probes: str


MODES = {
    mode.name: mode
    for mode in (
        Mode("default", "direct", "predicted", "keyed", sample_all=False, requery=False, probes="victim"),
        Mode("paper-text", "paper", "all", "keyed", sample_all=False, requery=False, probes="all"),
        Mode("paper-code", "paper", "predicted", "fresh", sample_all=True, requery=True, probes="gold"),
    )
}
