"""Before a key is made: what a mark would cost, and how surely it would be found in a stolen copy.

The test of a student's answers reaches z ≈ √(U ln(1 + γ²)). U = (Σw)²/Σw² is the number of distinct tokens, as their
weights w make them count (:mod:`drw_hf.detection.statistics.amplitudes`). γ = φ·D·√V/σ is mark over noise:
D is half of how far Equation 5 moves the statistic's y between z = 1 and z = −1, V the variance of the key's part
h = 1[g_s ≤ τ]·(1 − cos f_w g_k), φ how much of the mark a student copies, and σ how far the tokens of a student stray
without any mark. D, U and V follow from the model, its traffic and the key's settings; φ and σ come from students that
were trained for the purpose, and are the part that may be wrong for yours.

No key is needed, and none is made: the numbers are those of any key of these settings.
"""

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..asking.predictors import max_length_of
from ..checks import integers
from ..detection.probing import probe_suspect
from ..detection.statistics.amplitudes import (
    HALF_WEIGHT,
    LOGIT_LIMIT,
    MIN_TOKENS,
    against_others,
    as_probabilities,
    logit,
)
from ..errors import InvalidInputError
from ..keys.choices import LABEL_KINDS, LabelKind, Scope, Task
from ..keys.key import WatermarkKey
from .accuracy import accuracy_bounds

EPSILONS = (0.02, 0.05, 0.1, 0.2)
LARGEST_EPSILON = 1.0  # how far `Plan.smallest_epsilon` looks
KAPPA = 1.0  # the tokens' variance between over that within; U hardly feels it


@dataclass(frozen=True)
class Copying:
    """How students copy a mark.

    Attributes
    ----------
    sigma : float
        σ: the root mean square of an unmarked student's token residuals r̄_i, weighted with w_i².
    phi : mapping
        φ by label kind and ε.
    """

    sigma: float
    phi: Mapping[str, Mapping[float, float]]


# By what the student is probed with: the thief's own queries, or other text. Fitted to small BERTs that were distilled
# from protected taggers and a classifier: at ε = 0.2 the geometric mean of φ/σ over three tasks, below it the course
# of NER's students, three of each kind; that of soft labels also for hard ones on unseen text, whose own is lost in
# noise (docs/reproduce.md, "Is the plan right?"). Only φ/σ enters a plan.
COPYING = {
    "queries": Copying(
        0.5,
        {
            "soft": {0.02: 0.1, 0.05: 0.14, 0.1: 0.19, 0.2: 0.23},
            "hard": {0.02: 0.039, 0.05: 0.057, 0.1: 0.073, 0.2: 0.085},
        },
    ),
    "unseen": Copying(
        2.0,
        {
            "soft": {0.02: 0.085, 0.05: 0.1, 0.1: 0.18, 0.2: 0.29},
            "hard": {0.02: 0.026, 0.05: 0.031, 0.1: 0.055, 0.2: 0.09},
        },
    ),
}


@dataclass(frozen=True)
class PlanRow:
    """What one choice of ε and τ is predicted to bring, for thieves who are served labels of one kind.

    Attributes
    ----------
    epsilon, tau : float
        The key's ε and τ.
    label_kind : str
        ``"soft"``: probabilities are served, and the accuracy is that of their argmax. ``"hard"``: drawn labels.
    expected_cost, largest_cost : float
        The accuracy that the mark costs on average over keys, and at most, if the model is calibrated
        (:func:`drw_hf.planning.accuracy_bounds`).
    n_tokens : int
        Distinct tokens that the test has to go by.
    n_effective : float
        How many equally important tokens they are worth: U.
    effect : float
        γ, the mark on a token over the noise.
    z_score : float
        The predicted z of the test of a student; students differ by about 1.
    log10_p : float
        log₁₀ of exp(−z²/2): of the bound on the p-value, by which :func:`drw_hf.detect` decides.
    """

    epsilon: float
    tau: float
    label_kind: LabelKind
    expected_cost: float
    largest_cost: float
    n_tokens: int
    n_effective: float
    effect: float
    z_score: float
    log10_p: float

    @property
    def p_value(self) -> float:
        """The predicted p-value; 0.0 where it is below the smallest float, then see ``log10_p``."""
        return 10.0**self.log10_p


@dataclass(frozen=True, eq=False)
class Plan:
    """A target class, and what marks of different strength in it would cost and bring.

    Attributes
    ----------
    target : int
        The number of the target class c*.
    rows : tuple of PlanRow
        One for every ε, τ and label kind that was asked for, in this order.
    taus, label_kinds : tuple
        As they were asked for.
    n_items : int
        How many answers the sample holds: texts, or words of a tagger.
    n_predicted : int
        How many of them say c*.
    n_texts, queries : int
        How many texts the sample holds, and how many the thief is expected to ask.
    n_tokens : int
        Distinct tokens of the answers that say c* (if the thief asks less than the sample: how many are expected
        among the questions).
    n_effective : float
        U.
    """

    target: int
    rows: tuple[PlanRow, ...]
    taus: tuple[float, ...]
    label_kinds: tuple[LabelKind, ...]
    n_items: int
    n_predicted: int
    n_texts: int
    queries: int
    n_tokens: int
    n_effective: float
    _prediction: "_Prediction" = field(repr=False)

    def predict(self, epsilon: float, tau: float, label_kind: LabelKind) -> PlanRow:
        """The row of any other choice."""
        return self._prediction.row(epsilon, tau, label_kind)

    def smallest_epsilon(
        self, p_value: float, label_kind: LabelKind = "soft", tau: float | None = None
    ) -> float | None:
        """The smallest ε with which the predicted p-value is this small.

        Parameters
        ----------
        p_value : float
            The p-value to reach, in (0, 1]. Ask for less than you need: students differ, and p-values are corrected
            for all that was tried.
        label_kind : str
            What the thief is served.
        tau : float, optional
            τ; by default the first of the plan.

        Returns
        -------
        float or None
            None where no ε up to ``LARGEST_EPSILON`` reaches it: there are too few distinct tokens.
        """
        if not (isinstance(p_value, numbers.Real) and 0.0 < p_value <= 1.0):
            raise InvalidInputError(f"p_value={p_value!r}: expected a number in (0, 1], like 1e-6")
        tau = self.taus[0] if tau is None else tau
        wanted = math.log(p_value)

        def reached(epsilon: float) -> bool:
            return -0.5 * self._prediction.z_score(epsilon, tau, label_kind) ** 2 <= wanted

        low, high = 0.0, LARGEST_EPSILON
        if reached(low):
            return low
        if not reached(high):
            return None
        while high - low > 1e-9 * high:
            middle = (low + high) / 2.0
            low, high = (low, middle) if reached(middle) else (middle, high)
        return high

    def cheapest(self, p_value: float, label_kind: LabelKind = "soft") -> PlanRow | None:
        """Of the plan's τ, each with its smallest ε, the one that costs the least accuracy; None if none reaches p."""
        rows = [
            self.predict(epsilon, tau, label_kind)
            for tau in self.taus
            if (epsilon := self.smallest_epsilon(p_value, label_kind, tau)) is not None
        ]
        return min(rows, key=lambda row: row.expected_cost, default=None)

    def tokens_factor(self, p_value: float, label_kind: LabelKind = "soft") -> float:
        """How many times as many distinct tokens would reach a p-value at the largest ε, with the best τ of the plan.

        log p grows with their number, so this is what is missing: at most 1 where nothing is.
        """
        best = max(self._prediction.z_score(LARGEST_EPSILON, tau, label_kind) for tau in self.taus)
        return -2.0 * math.log(p_value) / best**2 if best else math.inf


def plan(
    probabilities: Any,
    token_ids: Any,
    *,
    target: int,
    epsilons: Sequence[float] = EPSILONS,
    taus: Sequence[float] = (0.5,),
    frequency: float = 16.0,
    scope: Scope = "predicted",
    label_kinds: Sequence[LabelKind] = LABEL_KINDS,
    queries: int | None = None,
    n_texts: int | None = None,
    probed_with: str = "unseen",
    phi: float | Mapping[str, float | Mapping[float, float]] | None = None,
    sigma: float | None = None,
    kappa: float | None = None,
) -> Plan:
    """Predict what marks would cost and how surely they would be found, from a sample of a model's clean answers.

    Parameters
    ----------
    probabilities : array, shape (N, m)
        The clean model's probabilities, one row an item: a text, or a word of a tagger.
    token_ids : array of int, shape (N,)
        The token each item is hashed by, as :meth:`drw_hf.detection.Probe.tokens_of` gives it.
    target : int
        The number of the target class c*.
    epsilons, taus : sequence of float
        The ε and τ to compare.
    frequency, scope
        The key's.
    label_kinds : sequence of str
        What thieves may be served: ``"soft"``, ``"hard"``, or both.
    queries : int, optional
        How many texts the thief is expected to ask; by default as many as the sample holds.
    n_texts : int, optional
        How many texts the sample holds; by default N. Needed with ``queries`` for a tagger.
    probed_with : str
        What the student will be probed with: ``"queries"``, the thief's own, if you log them, or ``"unseen"`` text
        like the sample. A student shows more of the mark on what it learned by heart.
    phi : float, or mapping from label kind to float or to ``{ε: φ}``, optional
        How much of the mark a student copies, instead of that of ``COPYING``. Between the ε of a table log φ is
        linear in log ε; below them the same power law goes on, above them φ stays.
    sigma, kappa : float, optional
        The spread of an innocent student's token residuals, and their variance between tokens over that within,
        instead of that of ``COPYING`` and ``KAPPA``.

    Notes
    -----
    The owner probes with text like the sample. A thief who asks less asks a random part of it, so that some tokens
    were never asked and others less often. A thief who asks more asks the same tokens more often: new ones, of which
    the sample says nothing, are not counted, and the plan is cautious.

    Keys of scope ``"all"`` mark answers that do not say c* as well. They count in the accuracy; in z they do not,
    since how far a student copies them was not measured. For keys of law ``"paper"`` all of it is an approximation.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.planning import plan
    >>> generator = np.random.default_rng(0)
    >>> answers, tokens = generator.dirichlet([0.1, 0.9, 0.1], 4000), generator.integers(0, 900, 4000)
    >>> student = {"phi": {"hard": {0.02: 0.1, 0.2: 0.4}}, "sigma": 1.0, "kappa": 1.0}
    >>> found = plan(answers, tokens, target=1, label_kinds=["hard"], **student)
    >>> [round(row.z_score, 1) for row in found.rows]
    [5.6, 10.6, 16.6, 24.4]
    >>> round(found.smallest_epsilon(1e-6, "hard"), 3)
    0.018
    """
    token_ids = integers("token_ids", token_ids)
    p = as_probabilities("probabilities", probabilities, 2, len(token_ids))
    if isinstance(target, bool) or not isinstance(target, int | np.integer) or not 0 <= target < p.shape[1]:
        raise InvalidInputError(f"target={target!r}: expected the number of a class, 0 to {p.shape[1] - 1}")
    if not (len(epsilons) and len(taus) and len(label_kinds)):
        raise InvalidInputError("epsilons, taus and label_kinds must hold one value or more each: there is no plan")
    if probed_with not in COPYING:
        raise InvalidInputError(f"probed_with={probed_with!r}: expected one of {list(COPYING)}")
    copying = COPYING[probed_with]
    n_texts = len(p) if n_texts is None else _counting("n_texts", n_texts)
    queries = n_texts if queries is None else _counting("queries", queries)
    called = p[p.argmax(axis=1) == target]
    counts = np.unique(token_ids[p.argmax(axis=1) == target], return_counts=True)[1]
    if len(counts) < MIN_TOKENS:
        raise InvalidInputError(
            f"of {len(p)} answers {len(called)} say the target class {target}, and they hold {len(counts)} distinct "
            f"tokens; a test needs {MIN_TOKENS}, and better hundreds: take another class, more text or another hash "
            "rule"
        )
    n_tokens, n_effective = tokens_that_count(
        counts, queries / n_texts, _amount("kappa", KAPPA if kappa is None else kappa)
    )
    prediction = _Prediction(
        p=p,
        called=called,
        target=int(target),
        frequency=frequency,
        scope=scope,
        phi=_phi_tables(copying.phi if phi is None else phi),
        sigma=_amount("sigma", copying.sigma if sigma is None else sigma, above=True),
        n_tokens=n_tokens,
        n_effective=n_effective,
    )
    rows = [prediction.row(epsilon, tau, kind) for epsilon in epsilons for tau in taus for kind in label_kinds]
    return Plan(
        target=int(target),
        rows=tuple(rows),
        taus=tuple(map(float, taus)),
        label_kinds=tuple(label_kinds),
        n_items=len(p),
        n_predicted=len(called),
        n_texts=n_texts,
        queries=queries,
        n_tokens=n_tokens,
        n_effective=n_effective,
        _prediction=prediction,
    )


def rank_targets(
    probabilities: Any, token_ids: Any, *, epsilons: Sequence[float] = (0.2,), **settings: Any
) -> list[Plan]:
    """The plan of every class that may carry the mark, the one in which it would be found most surely first.

    Classes are compared by the z of the first ε, τ and label kind. Those whose answers hold too few distinct tokens
    for a test are left out. The parameters are those of :func:`plan`.
    """
    token_ids = integers("token_ids", token_ids)
    p = as_probabilities("probabilities", probabilities, 2, len(token_ids))
    said = p.argmax(axis=1)
    enough = [c for c in range(p.shape[1]) if len(np.unique(token_ids[said == c])) >= MIN_TOKENS]
    if not enough:
        raise InvalidInputError(
            f"no class has {MIN_TOKENS} distinct tokens in the answers that say it, and a test needs them; take more "
            "text or another hash rule"
        )
    plans = [plan(p, token_ids, target=target, epsilons=epsilons, **settings) for target in enough]
    return sorted(plans, key=lambda one: -one.rows[0].z_score)


@dataclass(frozen=True, eq=False)
class Traffic:
    """A sample of what a model is asked: its clean answers, and the token each is hashed by.

    Attributes
    ----------
    task : str
    labels : tuple of str
        The label names, in the order of the columns of ``probabilities``.
    hash_rule : str
        The name of the rule that chose the tokens.
    probabilities : array, shape (N, m)
        One row an item that has a token to hash.
    token_ids : array of int64, shape (N,)
    n_texts : int
        How many texts the sample holds.
    """

    task: Task
    labels: tuple[str, ...]
    hash_rule: str
    probabilities: np.ndarray
    token_ids: np.ndarray
    n_texts: int


def observe_traffic(
    model: Any,
    texts: Any,
    tokenizer: Any,
    *,
    hash_rule: Any = None,
    task: Task | None = None,
    text_columns: str | Sequence[str] | None = None,
    max_queries: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
) -> Traffic:
    """Ask a model, without its mark if it has one, about texts; the parameters are those of :func:`plan_protection`.

    Which token of a text is hashed goes by the rule and the special tokens. Where the rule has a secret order
    (``keyed``), one is drawn here and forgotten: any other gives about as many distinct tokens.
    """
    model = model.get_base_model() if hasattr(model, "watermark_disabled") else model
    throwaway = WatermarkKey.generate(model, target=0, tokenizer=tokenizer, task=task, hash_rule=hash_rule)
    probe = probe_suspect(
        model,
        texts,
        key=throwaway,
        tokenizer=tokenizer,
        text_columns=text_columns,
        max_queries=max_queries,
        max_length=max_length or max_length_of(tokenizer, model.config),
        batch_size=batch_size,
        cache_dir=cache_dir,
        load_from_cache_file=load_from_cache_file,
        progress=progress,
    )
    tokens, exists = probe.tokens_of(throwaway)
    return Traffic(
        task=probe.task,
        labels=probe.labels,
        hash_rule=throwaway.hash_rule.name,
        probabilities=probe.suspect[exists].astype(np.float64),
        token_ids=tokens[exists],
        n_texts=probe.n_texts,
    )


def plan_protection(
    model: Any,
    texts: Any,
    tokenizer: Any,
    *,
    target: str | int,
    hash_rule: Any = None,
    task: Task | None = None,
    text_columns: str | Sequence[str] | None = None,
    max_queries: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    cache_dir: str | os.PathLike | None = None,
    load_from_cache_file: bool = True,
    progress: bool = True,
    **settings: Any,
) -> Plan:
    """Plan a model's protection from texts like those it is asked; labels are not needed, and no key is made.

    Parameters
    ----------
    model : PreTrainedModel
        The classifier or tagger. A protected one is asked without its mark.
    texts : list, Dataset
        Texts, pairs, lists of words, or tokenised rows: a sample of the model's traffic, the larger the better.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    target : str or int
        The target class c*, by label name or number.
    hash_rule : str or HashRule, optional
        Which token of a text is hashed, as for :meth:`drw_hf.WatermarkKey.generate`.
    task : str, optional
        The task, where the model does not tell it.
    max_queries : int, optional
        Ask about so many texts at the most.
    text_columns, max_length, batch_size, cache_dir, load_from_cache_file, progress
        As for :func:`drw_hf.label_with_teacher`: asking is resumable, and what was asked is kept.
    **settings
        As for :func:`plan`: ``epsilons``, ``taus``, ``queries`` and so on.

    Returns
    -------
    Plan
    """
    traffic = observe_traffic(
        model,
        texts,
        tokenizer,
        hash_rule=hash_rule,
        task=task,
        text_columns=text_columns,
        max_queries=max_queries,
        max_length=max_length,
        batch_size=batch_size,
        cache_dir=cache_dir,
        load_from_cache_file=load_from_cache_file,
        progress=progress,
    )
    return plan(
        traffic.probabilities,
        traffic.token_ids,
        target=class_number(target, traffic.labels),
        n_texts=traffic.n_texts,
        **settings,
    )


def class_number(target: str | int, labels: Sequence[str]) -> int:
    """The number of a class that is given by its name or its number."""
    if isinstance(target, str) and target in labels:
        return list(labels).index(target)
    if isinstance(target, int | np.integer) and not isinstance(target, bool) and 0 <= target < len(labels):
        return int(target)
    raise InvalidInputError(f"target={target!r} is not one label of the model; choose a name or a number of {labels}")


# -- the parts of the formula


def key_variance(tau: float, frequency: float) -> float:
    """The variance of h = 1[g_s ≤ τ]·(1 − cos f_w g_k) over random keys: about τ(1.5 − τ), exactly for any f_w."""
    once, twice = math.sin(frequency) / frequency, math.sin(2.0 * frequency) / (2.0 * frequency)
    return tau * (1.5 - 2.0 * once + twice / 2.0) - (tau * (1.0 - once)) ** 2


def mark_depth(probabilities: np.ndarray, target: int, epsilon: float) -> float:
    """D: half of how far Equation 5 moves the statistic's y between z = 1 and z = −1, on average over items."""
    highest, lowest = (_statistic_of(_marked(probabilities, z, target, epsilon), target) for z in (1.0, -1.0))
    return float(np.mean(highest - lowest)) / 2.0


def copied_share(epsilon: float, table: Mapping[float, float]) -> float:
    """φ at an ε, from a table ``{ε: φ}``: a power law between its entries and below them, constant above."""
    if epsilon <= 0.0:
        return 0.0
    points = sorted(table.items())
    if epsilon >= points[-1][0] or len(points) == 1:
        return points[-1][1]
    after = next(place for place, (known, _) in enumerate(points) if place and epsilon <= known)
    (low, below), (high, above) = points[after - 1 : after + 1]
    return below * (above / below) ** (math.log(epsilon / low) / math.log(high / low))


def token_weight(n: Any, asked: Any, kappa: float) -> Any:
    """w = n/(1 + κn)·N/(N + 3) of a token that is probed n times and was asked N times, up to a common factor."""
    return n / (1.0 + kappa * n) * asked / (asked + HALF_WEIGHT)


def tokens_that_count(counts: np.ndarray, share: float, kappa: float) -> tuple[int, float]:
    """How many distinct tokens a thief is expected to ask, and U = (Σw)²/Σw², their effective number.

    Parameters
    ----------
    counts : array of int
        How often each token occurs in the sample: n_i.
    share : float
        How much a thief asks, over the sample. Below 1, N_i is binomial; from 1 on it is n_i times this.
    kappa : float
        κ of w_i = n_i/(1 + κn_i)·N_i/(N_i + 3).
    """
    found = first = second = 0.0
    for n, n_alike in zip(*np.unique(counts, return_counts=True), strict=True):
        asked, chance = _times_asked(int(n), share)
        weight = token_weight(n, asked, kappa)
        found += n_alike * float(chance[asked > 0].sum())
        first += n_alike * float(chance @ weight)
        second += n_alike * float(chance @ weight**2)
    return round(found), float(first**2 / second)


@dataclass(frozen=True, eq=False)
class _Prediction:
    """The formula, for one target class and one thief."""

    p: np.ndarray
    called: np.ndarray  # those of p that say c*
    target: int
    frequency: float
    scope: Scope
    phi: Mapping[str, float | Mapping[float, float]]
    sigma: float
    n_tokens: int
    n_effective: float

    def effect(self, epsilon: float, tau: float, label_kind: LabelKind) -> float:
        """γ."""
        if label_kind not in self.phi:
            raise InvalidInputError(
                f"label_kind={label_kind!r}: expected one of {list(self.phi)}, for which φ is known"
            )
        phi = self.phi[label_kind]
        copied = copied_share(epsilon, phi) if isinstance(phi, Mapping) else phi
        if not 0.0 <= tau <= 1.0:
            raise InvalidInputError(f"tau={tau!r}: expected a number in [0, 1]")
        depth = mark_depth(self.called, self.target, epsilon)
        return copied * depth * math.sqrt(key_variance(tau, self.frequency)) / self.sigma

    def z_score(self, epsilon: float, tau: float, label_kind: LabelKind) -> float:
        return self.z_of(self.effect(epsilon, tau, label_kind))

    def z_of(self, effect: float) -> float:
        return math.sqrt(self.n_effective * math.log1p(effect**2))

    def row(self, epsilon: float, tau: float, label_kind: LabelKind) -> PlanRow:
        accuracy = accuracy_bounds(
            self.p,
            target=self.target,
            epsilon=epsilon,
            tau=tau,
            frequency=self.frequency,
            scope=self.scope,
            label_kind=label_kind,
        )
        effect = self.effect(epsilon, tau, label_kind)
        z = self.z_of(effect)
        return PlanRow(
            epsilon=float(epsilon),
            tau=float(tau),
            label_kind=label_kind,
            expected_cost=accuracy.expected_cost,
            largest_cost=accuracy.largest_cost,
            n_tokens=self.n_tokens,
            n_effective=self.n_effective,
            effect=effect,
            z_score=z,
            log10_p=0.0 - z**2 / (2.0 * math.log(10.0)),
        )


def _marked(p: np.ndarray, z: float, target: int, epsilon: float) -> np.ndarray:
    """Equation 5 in float64: a faint mark on a sure answer is less than float32 can tell."""
    share = np.full(p.shape[1], (1.0 - z) / (p.shape[1] - 1))
    share[target] = 1.0 + z
    return (p + epsilon * share) / (1.0 + 2.0 * epsilon)


def _statistic_of(p: np.ndarray, target: int) -> np.ndarray:
    """y, as the amplitudes take it."""
    if p.shape[1] == 2:
        return np.clip(logit(p, target), -LOGIT_LIMIT, LOGIT_LIMIT)
    return against_others(p, target)


def _times_asked(n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """How often a token may have been asked that the sample holds n times, and with which chance."""
    if share >= 1.0:
        return np.array([n * share]), np.ones(1)
    times = np.arange(n + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((n - times[1:] + 1) / times[1:]))])
    return times.astype(np.float64), np.exp(log_ways + times * math.log(share) + (n - times) * math.log1p(-share))


# -- checks


def _phi_tables(phi: Any) -> dict[str, float | dict[float, float]]:
    tables = phi if isinstance(phi, Mapping) else dict.fromkeys(LABEL_KINDS, phi)
    checked: dict[str, float | dict[float, float]] = {}
    for kind, given in tables.items():
        if not isinstance(given, Mapping):
            checked[kind] = _amount("phi", given)
            continue
        if not given:
            raise InvalidInputError(f"phi holds no φ for {kind!r}; give {{ε: φ}} with one entry or more")
        checked[kind] = {
            _amount("an ε of phi", epsilon, above=True): _amount("phi", value, above=True)
            for epsilon, value in given.items()
        }
    return checked


def _amount(name: str, value: Any, above: bool = False) -> float:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and math.isfinite(value) and (value > 0.0 if above else value >= 0.0)):
        raise InvalidInputError(f"{name}={value!r}: expected a finite number {'> 0' if above else '≥ 0'}")
    return float(value)


def _counting(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InvalidInputError(f"{name}={value!r}: expected an integer ≥ 1, a number of texts")
    return int(value)
