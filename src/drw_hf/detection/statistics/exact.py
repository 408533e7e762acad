"""``drw-exact-1`` and ``-2``: do the answers follow the key's cosine? The law under random keys is known exactly."""

from typing import Any

import numpy as np

from ...errors import InvalidInputError
from ...keys.key import WatermarkKey
from ..probe import Probe, check_expected
from .amplitudes import PROBES_PER_PIECE, STATISTIC, Amplitudes, SuspectAnswers, compute_amplitudes, counts_of
from .base import Finding, Statistic, TestOptions, register
from .null_law import NullLaw, simulate_null


class ExactStatistic(Statistic):
    """The exact test of the paper's mark, in one of its versions: they differ in the amplitudes alone."""

    def __init__(self, name: str) -> None:
        self.name = name

    def applies_to(self, probe: Probe, key: WatermarkKey) -> bool:
        """Probes without logged labels, for which the memory test is stronger."""
        return probe.logged is None and key.settings.mark == "cosine"

    def test(self, probe: Probe, key: WatermarkKey, options: TestOptions) -> Finding:
        """The order matters: amplitudes are computed before the key's tables are read."""
        found = amplitudes_of(probe, key, options.logged_counts, self.name)
        law: dict[str, Any] = {"B": found.B, "vectors": (key.v_k, key.v_s) if key.law == "paper" else None}
        null = NullLaw(found.A, key.settings, **law)
        test = null.test(null.statistic(*key.entries(found.token_ids)))
        n_keys = int(options.simulated_keys)
        return Finding(
            test,
            found.n_probes,
            found.variant,
            {"logged_counts": kept_counts(found.token_ids, options.logged_counts), "simulated_keys": n_keys},
            simulate_null(found.A, key.settings, n_keys, seed=0, **law) if n_keys else None,
        )


def amplitudes_of(
    probe: Probe, key: WatermarkKey, logged_counts: Any = None, statistic: str = STATISTIC
) -> Amplitudes:
    """The amplitudes of a probe; of the key its public side alone is read, and the rule that picks tokens."""
    tokens, exists = probe.tokens_of(key)
    if not exists.any():
        raise InvalidInputError("no probe has a word to hash: the texts hold nothing but special tokens")
    if probe.kind == "labels":
        check_expected("cosine", {name for name in ("victim", "gold") if getattr(probe, name) is not None})
    answers = probe.suspect[exists]
    return compute_amplitudes(
        tokens[exists],
        key.target,
        SuspectAnswers(probe.kind, answers if probe.kind == "probabilities" else answers.argmax(1)),
        victim=None if probe.victim is None else probe.victim[exists],
        gold=None if probe.gold is None else probe.gold[exists],
        reference=None if probe.reference is None else probe.reference[exists],
        logged_counts=logged_counts,
        scope=key.scope,
        statistic=statistic,
    )


def kept_counts(token_ids: np.ndarray, logged_counts: Any) -> dict[str, float] | bool:
    """The counts that mattered, as JSON keeps them (False for none): without them no result could be replayed."""
    if logged_counts is None:
        return False
    return dict(zip(map(str, token_ids.tolist()), counts_of(token_ids, logged_counts).tolist(), strict=True))


for version in PROBES_PER_PIECE:
    register(ExactStatistic(version))
