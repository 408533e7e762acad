"""What a suspect says about every token, before any key is looked at: the amplitudes A_i of the exact test.

The test is valid because nothing here depends on the key: the only chance left is the key's. So these functions take
answers, predictions and texts and no key, and which probes count is decided by clean predictions alone. Never choose
probes by what the *protected* model answered: those answers carry the key.

A probe is one hashed item: a word of a tagger, a text of a sentence classifier (hashed by the token its rule picks).

There are two versions. ``drw-exact-2`` fits no more than its probes bear, and weighs what is left by the degrees of
freedom that the fit left. ``drw-exact-1``, kept for what was found with it, always puts ten pieces into every spline:
some 25 coefficients against 50 probes explain the mark away, leave residuals far too small, and so gave the few probes
of a many-class model that are c* most of the weight in scope ``all``. With 150 probes and more per explaining variable
(most often there are three) the two versions of A, or B, differ by a factor alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...checks import as_floats, check_choice, check_probabilities, integers
from ...errors import InvalidInputError
from .splines import PIECES, pieces_for, residual

# The versions of this statistic (whatever changes a number below is a new one), each with the probes that every piece
# of a spline must have before there is another one; None: always all pieces, and weights as if nothing were fitted.
PROBES_PER_PIECE: dict[str, int | None] = {"drw-exact-1": None, "drw-exact-2": 15}
STATISTIC = "drw-exact-2"  # the newest
MIN_TOKENS = 5  # distinct tokens without which there is nothing to compare
_SMALLEST = 1e-8  # probabilities below are taken for it before the logarithm
LOGIT_LIMIT = 9.2  # where all that is known of an answer is one score, rounding rules its logit beyond
HALF_WEIGHT = 3.0  # a token queried this often has taught a student half of what it can

Scope = Literal["predicted", "all"]  # the key's, spelt out: nothing that has to do with keys is imported here


@dataclass(frozen=True, eq=False)
class Amplitudes:
    """How far a suspect's answers on each of n tokens stray from what explains them without a key."""

    token_ids: np.ndarray  # (n,): the distinct tokens of the probes that counted, ascending
    A: np.ndarray  # (n,): the amplitude of every token, its factor in T = Σ A_i h_i
    B: np.ndarray | None  # (n,): the second amplitude, for scope "all"
    weights: np.ndarray  # (n,): w_i, the weight of every token in A: one over the variance of its mean
    n_probes: int  # how many probes counted
    # What was known of the suspect ("probabilities", "score" or "labels") and who said which probes count ("victim",
    # "gold" or "suspect"), joined by a hyphen.
    variant: str
    statistic: str  # the version

    @property
    def flat(self) -> bool:
        """Whether all amplitudes are 0: the suspect answered all alike, or just as the victim. Every key has p = 1."""
        return not (self.A.any() or (self.B is not None and self.B.any()))


@dataclass(frozen=True)
class SuspectAnswers:
    """What a suspect said of N probes; of ``"score"`` the probability of c* is all that is known."""

    kind: Literal["probabilities", "score", "labels"]
    values: np.ndarray  # (N, m) for probabilities, (N,) else

    def __post_init__(self) -> None:
        if self.kind == "labels":
            values = integers("labels", self.values)
        else:
            values = as_probabilities(self.kind, self.values, 2 if self.kind == "probabilities" else 1)
        object.__setattr__(self, "values", values)

    def says_target(self, target: int, token_ids: np.ndarray) -> np.ndarray:
        """Which probes the suspect itself takes for c*."""
        if self.kind == "probabilities":
            return self.values.argmax(axis=1) == target
        if self.kind == "score":  # the only case in which c* is sure to be the prediction
            return self.values > 0.5
        # All probes of a token count or none: were it those labelled c*, there would be nothing left to compare.
        _, index, count = np.unique(token_ids, return_inverse=True, return_counts=True)
        return (np.bincount(index, self.values == target) >= 0.5 * count)[index]

    def against(
        self, probes: np.ndarray, target: int, victim: np.ndarray | None, reference: np.ndarray | None, name: str
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """y of these probes for the amplitude of this name, and what else than a mark may explain it."""
        others = [p[probes] for p in (victim, reference) if p is not None]
        logits, values = [logit(p, target) for p in others], self.values[probes]
        if self.kind == "labels":
            return (values == target).astype(np.float64), logits
        score = values if self.kind == "score" else values[:, target]
        if name == "B":  # answers that are not c*: a mark of scope "all" raises what little c* has
            return np.log(np.maximum(score, _SMALLEST)), logits
        if self.kind == "score" or values.shape[1] == 2:
            with np.errstate(divide="ignore"):
                return np.clip(np.log(score) - np.log1p(-score), -LOGIT_LIMIT, LOGIT_LIMIT), logits
        # A mark lowers c* and gives to all the others, where it shows more the less they had.
        own = [against_others(p, target) if p.shape[1] > 2 else logit(p, target) for p in others]
        return against_others(values, target), own if victim is None else [logits[0], *own]


def compute_amplitudes(
    token_ids: Any,
    target: int,
    suspect: SuspectAnswers,
    *,
    victim: Any = None,
    gold: Any = None,
    reference: Any = None,
    logged_counts: Mapping[int, int] | Any = None,
    scope: Scope = "predicted",
    statistic: str = STATISTIC,
) -> Amplitudes:
    """The amplitude of every token, from the suspect, the victim and the text alone.

    With the suspect's probabilities an answer counts by how little it leaves to the other classes, y = −mean of
    log q_c over c ≠ c* (two classes: the logit of q_{c*}); with scores of c* by their logit; with labels by whether it
    is c*. What the victim's own confidence, the reference student's and a token's frequency explain of y is taken
    out; a token's amplitude is the weighted mean of what is left.

    ``token_ids`` (N,) are the hashed tokens of the probes, special tokens not among them. Probes count whose clean
    ``victim`` (N, m) predicts the target class c*; without a victim, those whose true label in ``gold`` (N,) is c*;
    without either, those that the suspect itself takes for c*. ``reference`` (N, m) are probabilities of a student of
    the clean victim: what any student would say. ``logged_counts`` say how often the suspect's owner queried each
    token (a mapping, or an array by token id), and tokens never queried get no weight; by default a token's number of
    probes stands in. The key's ``scope`` ``"all"`` adds ``B`` from the probes that are not c*, with y = log q_{c*}.
    ``statistic`` names the version.
    """
    token_ids = integers("token_ids", token_ids)
    check_choice("scope", scope, ("predicted", "all"))
    check_choice("statistic", statistic, tuple(PROBES_PER_PIECE))
    n = len(token_ids)
    victim, reference = (
        None if array is None else as_probabilities(name, array)
        for name, array in (("victim", victim), ("reference", reference))
    )
    for name, array in ((suspect.kind, suspect.values), ("victim", victim), ("reference", reference)):
        if array is not None and len(array) != n:
            raise InvalidInputError(f"{name} has shape {array.shape}; expected {n} rows, one per token id")
        if array is not None and array.ndim == 2 and not 0 <= target < array.shape[1]:
            raise InvalidInputError(f"target={target!r} is none of the {array.shape[1]} classes of {name}")
    if victim is not None:
        is_target, chosen_by = victim.argmax(axis=1) == target, "victim"
    elif gold is not None:
        is_target, chosen_by = integers("gold", gold, n) == target, "gold"
    else:
        is_target, chosen_by = suspect.says_target(target, token_ids), "suspect"

    parts = {"A": is_target} if scope == "predicted" else {"A": is_target, "B": ~is_target}
    found, reasons = {}, []
    for name, probes in parts.items():
        y, explained_by = suspect.against(probes, target, victim, reference, name)
        try:
            found[name] = _per_token(token_ids[probes], y, explained_by, logged_counts, PROBES_PER_PIECE[statistic])
        except _NothingToTest as reason:
            reasons.append(str(reason))
    if not found:
        whose = {"victim": "the clean victim predicts", "gold": "the true label is", "suspect": "the suspect predicts"}
        raise InvalidInputError(
            f"of {n} probes there are {is_target.sum()} for which {whose[chosen_by]} the target class; " + reasons[0]
        )
    distinct = np.unique(np.concatenate([tokens for tokens, *_ in found.values()]))

    spread = {name: np.zeros((2, len(distinct))) for name in parts}
    for name, (tokens, *columns) in found.items():
        spread[name][:, np.searchsorted(distinct, tokens)] = columns
    (A, weights), (B, _) = spread["A"], spread.get("B", (None, None))
    n_probes = int(sum(parts[name].sum() for name in found))
    return Amplitudes(distinct, A, B, weights, n_probes, f"{suspect.kind}-{chosen_by}", statistic)


class _NothingToTest(Exception):
    """Some probes allow no comparison; the message says why, and what to do."""


def _per_token(
    token_ids: np.ndarray, y: np.ndarray, explained_by: list[np.ndarray], logged_counts: Any, per_piece: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The distinct tokens, w_i (r̄_i − weighted mean of r̄) of each, r being what is left of y; and w_i."""
    distinct, index, count = np.unique(token_ids, return_inverse=True, return_counts=True)
    n, k = len(token_ids), len(distinct)
    if k < MIN_TOKENS:
        raise _NothingToTest(f"they hold {k} distinct tokens and a test needs {MIN_TOKENS}: probe with more text")
    queried = count if logged_counts is None else counts_of(distinct, logged_counts)
    if not queried.any():
        raise _NothingToTest(
            "none of their tokens is among the logged queries: probe with text like them, or leave logged_counts out"
        )
    explained_by = [*explained_by, np.log(count)[index]]
    pieces = PIECES if per_piece is None else pieces_for(n, len(explained_by), per_piece)
    r, n_fitted = residual(y - y.mean(), explained_by, pieces)
    # All alike, or all as the victim says: amplitudes out of rounding would be noise.
    if r.std() <= 1e-9 * np.abs(y).max():
        return distinct, np.zeros(k), np.zeros(k)
    mean = np.bincount(index, r) / count
    # One-way analysis of variance. The weight n/(1 + κn), κ = between over within, is divided by the variance within:
    # that makes it one over the variance of r̄_i, and puts A and B of scope "all" on one scale. Where every token has
    # one probe the two variances cannot be told apart, and need not be.
    within = np.sum((r - mean[index]) ** 2) / (n - k) if n > k else 0.0
    between: float = np.sum(count * mean**2) / (k - 1)
    between = max(0.0, (between - within) / ((n - np.sum(count**2) / n) / (k - 1)))
    weight = count / (within + between * count) * (queried / (queried + HALF_WEIGHT))
    if per_piece is not None:
        # Of ν degrees of freedom, (ν − 2) over the sum of squares is one over the variance, on average; without more
        # than two the variance cannot be known, and the probes say nothing.
        weight *= max(n - n_fitted - 2, 0) / n
        if not weight.any():
            return distinct, weight, weight
    return distinct, weight * (mean - np.average(mean, weights=weight)), weight


def against_others(p: np.ndarray, target: int) -> np.ndarray:
    """−mean of log p_c over the classes c ≠ c*."""
    return -np.log(np.maximum(np.delete(p, target, axis=1), _SMALLEST)).mean(axis=1)


def logit(p: np.ndarray, target: int) -> np.ndarray:
    """log p_{c*} − log of all the rest, which is summed rather than taken from 1 so as to stay exact."""
    rest = np.delete(p, target, axis=1).sum(axis=1)
    return np.log(np.maximum(p[:, target], _SMALLEST)) - np.log(np.maximum(rest, _SMALLEST))


def counts_of(token_ids: np.ndarray, logged_counts: Any) -> np.ndarray:
    """How often each of these tokens was queried."""
    if isinstance(logged_counts, Mapping):
        counts = np.array([logged_counts.get(int(token), 0) for token in token_ids], dtype=np.float64)
    else:
        table = np.asarray(logged_counts, dtype=np.float64)
        if table.ndim != 1 or len(table) <= token_ids[-1]:
            raise InvalidInputError(
                f"logged_counts has shape {table.shape}; expected one count for every token id up to {token_ids[-1]}"
            )
        counts = table[token_ids]
    if not (np.isfinite(counts).all() and (counts >= 0).all()):
        raise InvalidInputError(
            "logged_counts holds negative or infinite counts; expected how often a token was queried"
        )
    return counts


def as_probabilities(name: str, values: Any, n_dims: int = 2) -> np.ndarray:
    """Numbers in [0, 1], up to rounding: rows of classes (which need not sum to one), or the scores of one class."""
    array = as_floats(name, values, n_dims)
    if n_dims == 2 and array.shape[1] < 2:
        raise InvalidInputError(f"{name} has shape {array.shape}; expected (N, m) with m ≥ 2, one row per probe")
    check_probabilities(name, array)
    return np.clip(array, 0.0, 1.0)
