"""A sample of what a model is asked and answers: what a plan is made from."""

from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ..asking import max_length_of
from ..asking.options import AskingOptions
from ..checks import as_floats, check_options, distributions, integers, whole_number
from ..detection.probing import probe_suspect, without_mark
from ..keys.choices import Task
from ..keys.hash_rules import HashRule
from ..keys.key import WatermarkKey


@dataclass(frozen=True, eq=False)
class Traffic:
    """A model's clean answers to a sample of texts, and the token that each item is hashed by.

    An item is a text or, for a tagger, a word. Items without a token to hash are left out.

    Attributes
    ----------
    probabilities : array, shape (N, m)
        The clean model's probabilities, one row per item.
    token_ids : array of int64, shape (N,)
        The tokens, as :meth:`drw_hf.detection.Probe.tokens_of` gives them.
    n_texts : int
        How many texts the sample holds.
    labels : tuple of str
        The label names, in the order of the columns of ``probabilities``.
    hash_rule : str
        The name of the rule that chose the tokens.
    """

    probabilities: np.ndarray
    token_ids: np.ndarray
    n_texts: int
    labels: tuple[str, ...] = ()
    hash_rule: str = ""

    def __post_init__(self) -> None:
        distributions("probabilities", self.probabilities)
        p = as_floats("probabilities", self.probabilities, 2)  # to the bit: whoever needs sums of 1 divides by them
        object.__setattr__(self, "probabilities", p)
        object.__setattr__(self, "token_ids", integers("token_ids", self.token_ids, len(p)))
        whole_number("n_texts", self.n_texts)

    def tokens_of(self, target: int) -> np.ndarray:
        """The tokens of the answers that say a class."""
        return self.token_ids[self.probabilities.argmax(axis=1) == target]


def observe_traffic(
    model: Any,
    texts: Any,
    tokenizer: Any,
    *,
    hash_rule: str | HashRule | None = None,
    task: Task | None = None,
    max_queries: int | None = None,
    **asking: Unpack[AskingOptions],
) -> Traffic:
    """Ask a model, without its mark if it has one, about texts; no labels and no key are needed.

    Parameters
    ----------
    model : PreTrainedModel
        The classifier or tagger. A protected one is asked without its mark.
    texts : list, Dataset
        Texts, pairs, lists of words, or tokenised rows: a sample of the model's traffic, the larger the better.
    tokenizer : PreTrainedTokenizerBase
        The model's tokenizer.
    hash_rule : str or HashRule, optional
        Which token of a text is hashed, as for :meth:`drw_hf.WatermarkKey.generate`. Where the rule has a secret order
        (``"keyed"``), one is drawn here and forgotten: any other gives about as many distinct tokens.
    task : str, optional
        The task, where the model does not tell it.
    max_queries : int, optional
        Ask about so many texts at the most.
    **asking
        How it is asked: :class:`drw_hf.asking.AskingOptions`.
    """
    check_options("observe_traffic", asking, AskingOptions)
    model = without_mark(model)
    throwaway = WatermarkKey.generate(model, target=0, tokenizer=tokenizer, task=task, hash_rule=hash_rule)
    asking["max_length"] = asking.get("max_length") or max_length_of(tokenizer, model.config)
    probe = probe_suspect(model, texts, key=throwaway, tokenizer=tokenizer, max_queries=max_queries, **asking)
    tokens, has_token = probe.tokens_of(throwaway)
    return Traffic(
        probabilities=probe.suspect[has_token],
        token_ids=tokens[has_token],
        n_texts=probe.n_texts,
        labels=probe.labels,
        hash_rule=throwaway.hash_rule.name,
    )
