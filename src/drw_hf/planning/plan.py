"""Before a key is made: what a mark would cost, and how surely it would be found in a stolen copy.

The test of a student's answers reaches z ≈ √(U ln(1 + γ²)). U = (Σw)²/Σw² is the number of distinct tokens, as their
weights w make them count (:mod:`drw_hf.detection.statistics.amplitudes`). γ = φ·D·√V/σ is mark over noise:
D is half of how far Equation 5 moves the statistic's y between z = 1 and z = −1, V the variance of the key's part
h = 1[g_s ≤ τ]·(1 − cos f_w g_k), φ how much of the mark a student copies, and σ how far the tokens of a student stray
without any mark. D, U and V follow from the model, its traffic and the key's settings; φ and σ come from students that
were trained for the purpose (:mod:`drw_hf.planning.students`), and are the part that may be wrong for yours: so beside
a typical student stand the least and the largest of them.

All this is the exact test. Of a student of hard labels, the memory test on the log of what was served shows far more:
z ≈ c·√n with n marked answers in the log.

No key is needed, and none is made: the numbers are those of any key of these settings.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np
import torch

from ..asking.options import AskingOptions
from ..checks import check_choice, check_options, class_number, in_range, whole_number
from ..detection.statistics.amplitudes import HALF_WEIGHT, LOGIT_LIMIT, MIN_TOKENS, against_others, logit
from ..errors import InvalidInputError
from ..keys.choices import LABEL_KINDS, LabelKind, Task
from ..keys.hash_rules import HashRule
from ..keys.settings import MarkSettings
from ..watermark.cosine import perturb
from .accuracy import accuracy_bounds, check_target
from .students import (
    EXPECTED_STUDENTS,
    MEASURED_EPSILON,
    MEASURED_TAU,
    MEMORY,
    MEMORY_SPREAD,
    ExpectedStudent,
    copied_share,
    log10_bound,
)
from .traffic import Traffic, observe_traffic

EPSILONS = (0.02, 0.05, 0.1, 0.2)
Three = tuple[float, float, float]  # of the least student, a typical one and the largest
LARGEST_EPSILON = 1.0  # how far `Plan.smallest_epsilon` looks


class PlanOptions(TypedDict, total=False):
    """The options of :func:`plan`."""

    epsilons: Sequence[float]
    taus: Sequence[float]
    label_kinds: Sequence[LabelKind]
    queries: int | None
    student: str | ExpectedStudent


class ProtectionOptions(PlanOptions, AskingOptions, total=False):
    """Those of :func:`plan_protection`: how to ask, and what to plan."""

    task: Task | None
    max_queries: int | None


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
    n_tokens, n_effective : int, float
        Distinct tokens that the test has to go by, and how many equally important ones they are worth: U.
    effect : float
        γ, the mark on a token over the noise.
    z_score, z_least, z_largest : float
        The predicted z of the exact test: of a typical student, and as the least and the largest of the known ones
        would show it.
    log10_p : float
        log₁₀ of exp(−z²/2) of a typical student: of the bound on the p-value, by which :func:`drw_hf.detect` decides.
    memory_z, memory_z_least, memory_z_largest : float or None
        The same for the memory test, with a log of the labels served; None for soft labels, which have none.
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
    z_least: float
    z_largest: float
    log10_p: float
    memory_z: float | None = None
    memory_z_least: float | None = None
    memory_z_largest: float | None = None

    @property
    def p_value(self) -> float:
        """The predicted p-value; 0.0 where it is below the smallest float, then see ``log10_p``."""
        return 10.0**self.log10_p


@dataclass(frozen=True, eq=False)
class Plan:
    """A target class, and what marks of different strength in it would cost and bring.

    Attributes
    ----------
    settings : MarkSettings
        The mark, but for ε and τ, which the rows vary.
    student : ExpectedStudent
        What the student is expected to be like.
    taus, label_kinds : tuple
        As they were asked for.
    queries : int
        How many texts the thief is expected to ask.
    n_predicted : int
        How many answers say the target class c*.
    n_tokens : int
        Distinct tokens of these, or with scope ``"all"`` of all answers (if the thief asks less than the sample: how
        many are expected among the questions).
    n_effective : float
        How many equally important tokens they are worth: U.
    rows : tuple of PlanRow
        One for each ε, τ and label kind that was asked for, in this order.
    """

    traffic: Traffic = field(repr=False)
    settings: MarkSettings
    student: ExpectedStudent
    taus: tuple[float, ...]
    label_kinds: tuple[LabelKind, ...]
    queries: int
    n_predicted: int
    n_tokens: int
    n_effective: float
    rows: tuple[PlanRow, ...] = ()

    @property
    def target(self) -> int:
        """The number of the target class c*."""
        return self.settings.target

    @property
    def n_items(self) -> int:
        """How many answers the sample holds: texts, or words of a tagger."""
        return len(self.traffic.token_ids)

    @property
    def n_texts(self) -> int:
        """How many texts the sample holds."""
        return self.traffic.n_texts

    def predict(self, epsilon: float, tau: float, label_kind: LabelKind) -> PlanRow:
        """The row of any other choice."""
        settings = self.settings.replace(epsilon=epsilon, tau=tau)
        effects, (least, z, largest) = self._effects_and_z(settings, label_kind)
        by_log = self._memory_z(settings) if label_kind == "hard" else (None, None, None)
        accuracy = accuracy_bounds(self.traffic.probabilities, settings, label_kind=label_kind)
        return PlanRow(
            epsilon=settings.epsilon,
            tau=settings.tau,
            label_kind=label_kind,
            expected_cost=accuracy.expected_cost,
            largest_cost=accuracy.largest_cost,
            n_tokens=self.n_tokens,
            n_effective=self.n_effective,
            effect=effects[1],
            z_score=z,
            z_least=least,
            z_largest=largest,
            log10_p=log10_bound(z),
            memory_z_least=by_log[0],
            memory_z=by_log[1],
            memory_z_largest=by_log[2],
        )

    def smallest_epsilon(
        self, p_value: float, label_kind: LabelKind = "soft", tau: float | None = None
    ) -> float | None:
        """The smallest ε with which the exact test of a typical student is predicted to have so small a p-value.

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
        wanted = math.log(in_range("p_value", p_value, 0.0, 1.0, above=True))
        settings = self.settings.replace(tau=self.taus[0] if tau is None else tau)

        def reached(epsilon: float) -> bool:
            return -0.5 * self._typical_z(settings.replace(epsilon=epsilon), label_kind) ** 2 <= wanted

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
        strongest = (self.settings.replace(epsilon=LARGEST_EPSILON, tau=tau) for tau in self.taus)
        best = max(self._typical_z(settings, label_kind) for settings in strongest)
        return -2.0 * math.log(p_value) / best**2 if best else math.inf

    def _typical_z(self, settings: MarkSettings, label_kind: LabelKind) -> float:
        return self._effects_and_z(settings, label_kind)[1][1]

    def _effects_and_z(self, settings: MarkSettings, label_kind: LabelKind) -> tuple[Three, Three]:
        """γ, and the z that it leads to, of the least student, a typical one and the largest."""
        copied = self._copied(settings, label_kind)
        if settings.scope == "all" and label_kind in self.student.whole:
            usual = settings.replace(epsilon=MEASURED_EPSILON, tau=MEASURED_TAU)
            share = copied / self._copied(usual, label_kind)
            least, typical, largest = (share * effect for effect in self.student.whole[label_kind])
        else:
            least, typical, largest = self.student.effects(label_kind, copied / self.student.sigma)

        def z_of(effect: float) -> float:
            return math.sqrt(self.n_effective * math.log1p(effect**2))

        return (least, typical, largest), (z_of(least), z_of(typical), z_of(largest))

    def _copied(self, settings: MarkSettings, label_kind: LabelKind) -> float:
        """φ·D·√V: how far a student moves with the mark."""
        p = self.traffic.probabilities
        marked = p if settings.scope == "all" else p[p.argmax(axis=1) == self.target]
        depth = mark_depth(marked, settings)
        return self.student.copied(label_kind, settings.epsilon) * depth * math.sqrt(key_variance(settings))

    def _memory_z(self, settings: MarkSettings) -> Three:
        """z of the memory test, of the least student, a typical one and the largest."""
        answers = self.n_items if settings.scope == "all" else self.n_predicted
        marked = settings.tau * answers * self.queries / self.n_texts
        typical = copied_share(settings.epsilon, MEMORY) * math.sqrt(marked)
        return MEMORY_SPREAD[0] * typical, typical, MEMORY_SPREAD[1] * typical


def plan(
    traffic: Traffic,
    settings: MarkSettings,
    *,
    epsilons: Sequence[float] = EPSILONS,
    taus: Sequence[float] = (0.5,),
    label_kinds: Sequence[LabelKind] = LABEL_KINDS,
    queries: int | None = None,
    student: str | ExpectedStudent = "unseen",
) -> Plan:
    """Predict what marks would cost and how surely they would be found, from a sample of a model's clean answers.

    Parameters
    ----------
    traffic : Traffic
        The sample, as :func:`observe_traffic` takes it.
    settings : MarkSettings
        The mark: target class, frequency and scope. Its ε and τ are replaced by those to compare.
    epsilons, taus : sequence of float
        The ε and τ to compare.
    label_kinds : sequence of str
        What thieves may be served: ``"soft"``, ``"hard"``, or both.
    queries : int, optional
        How many texts the thief is expected to ask; by default as many as the sample holds.
    student : str or ExpectedStudent
        What the student will be probed with: ``"queries"``, the thief's own, if you log them, or ``"unseen"`` text
        like the sample. Or what you know of such students yourself.

    Notes
    -----
    The owner probes with text like the sample. A thief who asks less asks a random part of it, so that some tokens
    were never asked and others less often. A thief who asks more asks the same tokens more often: new ones, of which
    the sample says nothing, are not counted, and the plan is cautious.

    Keys of scope ``"all"`` mark answers that do not say c* as well: the tokens of all answers count then, and students
    follow as far as three whose every selected answer was marked. For keys of law ``"paper"`` all of it is an
    approximation.

    Examples
    --------
    >>> import numpy as np
    >>> from drw_hf.keys import MarkSettings
    >>> from drw_hf.planning import ExpectedStudent, Traffic, plan
    >>> generator = np.random.default_rng(0)
    >>> answers, tokens = generator.dirichlet([0.1, 0.9, 0.1], 4000), generator.integers(0, 900, 4000)
    >>> student = ExpectedStudent(phi={"hard": {0.02: 0.1, 0.2: 0.4}}, sigma=1.0)
    >>> mark = MarkSettings(target=1)
    >>> found = plan(Traffic(answers, tokens, n_texts=4000), mark, label_kinds=["hard"], student=student)
    >>> [round(row.z_score, 1) for row in found.rows]
    [5.6, 10.6, 16.6, 24.4]
    >>> round(found.smallest_epsilon(1e-6, "hard"), 3)
    0.018
    """
    check_target(settings, traffic.probabilities.shape[1])
    if not (len(epsilons) and len(taus) and len(label_kinds)):
        raise InvalidInputError("epsilons, taus and label_kinds must hold one value or more each: there is no plan")
    if not isinstance(student, ExpectedStudent):
        check_choice("student", student, list(EXPECTED_STUDENTS))
        student = EXPECTED_STUDENTS[student]
    queries = traffic.n_texts if queries is None else whole_number("queries", queries)
    tokens = traffic.tokens_of(settings.target)
    counts = np.unique(traffic.token_ids if settings.scope == "all" else tokens, return_counts=True)[1]
    if len(counts) < MIN_TOKENS:
        raise InvalidInputError(
            f"of {len(traffic.token_ids)} answers {len(tokens)} say the target class {settings.target}, and those to "
            f"be marked hold {len(counts)} distinct tokens; a test needs {MIN_TOKENS}, and better hundreds: take "
            "another class, more text or another hash rule"
        )
    n_tokens, n_effective = tokens_that_count(counts, queries / traffic.n_texts, student.kappa)
    asked_for = tuple(map(float, taus)), tuple(label_kinds), queries
    found = Plan(traffic, settings, student, *asked_for, len(tokens), n_tokens, n_effective)
    rows = [found.predict(epsilon, tau, kind) for epsilon in epsilons for tau in taus for kind in label_kinds]
    return dataclasses.replace(found, rows=tuple(rows))


def rank_targets(traffic: Traffic, settings: MarkSettings, **options: Unpack[PlanOptions]) -> list[Plan]:
    """The plan of each class that may carry the mark, the one in which it would be found most surely first.

    Classes are compared by the z of the first ε, τ and label kind. Those whose answers hold too few distinct tokens
    for a test are left out. The parameters are those of :func:`plan`, but ``epsilons`` is 0.2 by default, and the
    target class of ``settings`` does not matter.
    """
    options.setdefault("epsilons", (0.2,))
    classes = range(traffic.probabilities.shape[1])
    enough = [target for target in classes if len(np.unique(traffic.tokens_of(target))) >= MIN_TOKENS]
    if not enough:
        raise InvalidInputError(
            f"no class has {MIN_TOKENS} distinct tokens in the answers that say it, and a test needs them; take more "
            "text or another hash rule"
        )
    plans = [plan(traffic, settings.replace(target=target), **options) for target in enough]
    return sorted(plans, key=lambda one: -one.rows[0].z_score)


def plan_protection(
    model: Any,
    texts: Any,
    tokenizer: Any,
    *,
    target: str | int,
    hash_rule: str | HashRule | None = None,
    settings: MarkSettings | None = None,
    **options: Unpack[ProtectionOptions],
) -> Plan:
    """Plan a model's protection from texts like those it is asked; labels are not needed, and no key is made.

    Parameters
    ----------
    model, texts, tokenizer
        The model and a sample of its traffic, as for :func:`observe_traffic`.
    target : str or int
        The target class c*, by label name or number.
    hash_rule : str or HashRule, optional
        Which token of a text is hashed, as for :meth:`drw_hf.WatermarkKey.generate`; by default that of ``settings``.
    settings : MarkSettings, optional
        Frequency and scope of the mark, if they are not the usual ones.
    **options
        As for :func:`plan` (``epsilons``, ``taus``, ``queries`` and so on) and for :func:`observe_traffic`.
    """
    check_options("plan_protection", options, ProtectionOptions)
    settings = settings or MarkSettings()
    asking: dict[str, Any] = dict(options)
    planning = {name: asking.pop(name) for name in PlanOptions.__annotations__ if name in asking}
    traffic = observe_traffic(model, texts, tokenizer, hash_rule=hash_rule or settings.hash_rule, **asking)
    return plan(traffic, settings.replace(target=class_number(target, traffic.labels)), **planning)


# -- the parts of the formula


def key_variance(settings: MarkSettings) -> float:
    """The variance of h = 1[g_s ≤ τ]·(1 − cos f_w g_k) over random keys: about τ(1.5 − τ), exactly for any f_w."""
    tau, frequency = settings.tau, settings.frequency
    once, twice = math.sin(frequency) / frequency, math.sin(2.0 * frequency) / (2.0 * frequency)
    return tau * (1.5 - 2.0 * once + twice / 2.0) - (tau * (1.0 - once)) ** 2


def mark_depth(probabilities: np.ndarray, settings: MarkSettings) -> float:
    """D: half of how far Equation 5 moves the statistic's y between z = 1 and z = −1, on average over items."""
    p, target = torch.from_numpy(np.asarray(probabilities, dtype=np.float64)), settings.target  # float32 is too coarse
    highest, lowest = (perturb(p, torch.tensor(z), target, settings.epsilon).numpy() for z in (1.0, -1.0))
    if p.shape[1] > 2:  # y, as the amplitudes take it
        moved = against_others(highest, target) - against_others(lowest, target)
    else:
        moved = np.subtract(*np.clip([logit(highest, target), logit(lowest, target)], -LOGIT_LIMIT, LOGIT_LIMIT))
    return float(np.mean(moved)) / 2.0


def token_weight(n: Any, asked: Any, kappa: float) -> Any:
    """w = n/(1 + κn)·N/(N + 3) of a token that is probed n times and was asked N times, up to a common factor."""
    return n / (1.0 + kappa * n) * asked / (asked + HALF_WEIGHT)


def tokens_that_count(counts: np.ndarray, share: float, kappa: float) -> tuple[int, float]:
    """How many distinct tokens a thief is expected to ask, and U = (Σw)²/Σw², their effective number.

    ``counts`` say how often each token occurs in the sample, and ``share`` how much a thief asks, over the sample.
    Below 1 the times a token is asked are binomial; from 1 on they are its count times the share.
    """
    sums = np.zeros(3)  # of tokens that are asked, w and w²
    for n, n_alike in zip(*np.unique(counts, return_counts=True), strict=True):
        asked, chance = _times_asked(int(n), share)
        weight = token_weight(n, asked, kappa)
        sums += n_alike * (np.array([asked > 0, weight, weight**2]) @ chance)
    return round(sums[0]), float(sums[1] ** 2 / sums[2])


def _times_asked(n: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """How often a token may have been asked that the sample holds n times, and with which chance."""
    if share >= 1.0:
        return np.array([n * share]), np.ones(1)
    times = np.arange(n + 1)
    log_ways = np.concatenate([[0.0], np.cumsum(np.log((n - times[1:] + 1) / times[1:]))])
    return times.astype(np.float64), np.exp(log_ways + times * math.log(share) + (n - times) * math.log1p(-share))
