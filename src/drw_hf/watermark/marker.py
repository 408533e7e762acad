"""`Marker`: marks answers that were computed elsewhere, by whatever runs the clean model."""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..checks import SUM_TOLERANCE
from ..errors import InvalidInputError, InvalidKeyError
from ..keys.choices import LabelKind, Sampling
from ..keys.frames import forgets_locals
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing
from ..keys.settings import mark_named
from .marking import OutputOptions, check_draws, check_output, check_shape, protect, refuse_export, users_of
from .tokens import Query, attended_tokens

Tokens = Tensor | np.ndarray | Sequence[Sequence[int]]
_Answers = TypeVar("_Answers", np.ndarray, Tensor)


class Marker:
    """Marks answers that were computed without a protected model: by ONNX Runtime, Triton, a service of another make.

    It answers as the protected models do, by the same code, and needs neither a model nor a configuration: the key
    knows the task, the labels and the vocabulary.

    Whoever gets at what it is given has the clean model's answers: put it where no request passes it by.

    Like a key it shows only a fingerprint when printed or logged, and cannot be pickled. Threads may share one.

    Parameters
    ----------
    key : WatermarkKey or KeyRing
        With a ring every call says whose answers they are (``user=``).
    label_kind : str
        ``"soft"``: answer with probabilities ŷ. ``"hard"``: answer with one label.
    sampling, sample_all, digits
        See :class:`~drw_hf.WatermarkedConfig`.
    pad_token_id : int, optional
        What padding is told by where a call has no attention mask.

    Examples
    --------
    >>> import numpy as np
    >>> from transformers import BertConfig
    >>> from drw_hf import Marker, WatermarkKey
    >>> config = BertConfig(vocab_size=100, architectures=["BertForSequenceClassification"])
    >>> key = WatermarkKey.generate(config, special_token_ids=[0, 1, 2], temperature=1.0)
    >>> marker = Marker(key)
    >>> marked = marker.mark_probabilities(np.array([[0.5, 0.5]]), input_ids=[[1, 42, 57, 2]])
    >>> marked.shape, float(marked.sum().round(3)), bool((marked != 0.5).any())
    ((1, 2), 1.0, True)
    """

    def __init__(
        self,
        key: WatermarkKey | KeyRing,
        label_kind: LabelKind = "soft",
        *,
        sampling: Sampling = "keyed",
        sample_all: bool = False,
        digits: int | None = None,
        pad_token_id: int | None = None,
    ):
        if not isinstance(key, WatermarkKey | KeyRing):
            raise InvalidKeyError(
                f"key must be a WatermarkKey or a KeyRing, not {type(key).__name__}; load it with from_pretrained"
            )
        self._options = OutputOptions(label_kind, sampling, sample_all, digits)
        check_output(self._options)
        check_draws(mark_named(key.settings.mark), sample_all)
        self._key, self._pad_token_id, self._vocab_size = key, pad_token_id, key.binding.vocab_size
        self._fingerprint = key.identity[:16]  # whoever marks with a key has committed to it

    @property
    def key(self) -> WatermarkKey | KeyRing:
        """The key, or the ring of keys, it marks with."""
        return self._key

    def __repr__(self) -> str:
        return f"Marker(fingerprint={self._fingerprint!r}, label_kind={self._options.label_kind!r})"

    def mark_logits(
        self,
        logits: _Answers,
        input_ids: Tokens,
        attention_mask: Tokens | None = None,
        token_type_ids: Tokens | None = None,
        *,
        user: str | Sequence[str] | None = None,
        generator: torch.Generator | None = None,
    ) -> _Answers:
        """Mark logits: what a model returns before any softmax, or logarithms of probabilities.

        Parameters
        ----------
        logits : array or tensor, shape (batch, labels) or, for taggers, (batch, length, labels)
            Labels in the order in which the key names them (``key.labels``).
        input_ids, attention_mask, token_type_ids : arrays or tensors, shape (batch, length)
            What the model was given. A row that was cut is given as it was cut. Without a mask every token counts but
            the ``pad_token_id``.
        user : str or sequence of str, optional
            For a ring: the user who asks, or one for every row.
        generator : torch.Generator, optional
            The source of chance for ``sampling="fresh"``.

        Returns
        -------
        array or tensor
            log ŷ (soft), or 0 for one label and −10⁴ for the others (hard): float32, of the shape of ``logits``. An
            array where an array was given; inside torch does the work, whatever was given.

        Raises
        ------
        InvalidInputError
            For shapes that do not fit, ids beyond the vocabulary, other things than numbers, users without a ring.
        ModelOutputError
            For NaN where there is an answer.
        MissingKeyError
            For a ring without ``user``.
        """
        refuse_export("a Marker's answer")
        return self._marked(logits, False, (input_ids, attention_mask, token_type_ids), user, generator)

    def mark_probabilities(
        self,
        probabilities: _Answers,
        input_ids: Tokens,
        attention_mask: Tokens | None = None,
        token_type_ids: Tokens | None = None,
        *,
        user: str | Sequence[str] | None = None,
        generator: torch.Generator | None = None,
    ) -> _Answers:
        """Mark probabilities, each row of which sums to one; else as :meth:`mark_logits`.

        Returns ŷ (soft), or 1 for one label and 0 for the others (hard). Rows that are no distributions are refused
        (``InvalidInputError``), but for a tagger's padding.
        """
        refuse_export("a Marker's answer")
        return self._marked(probabilities, True, (input_ids, attention_mask, token_type_ids), user, generator)

    @torch.compiler.disable  # a compiler that saw the marking would write tables and parameters into its caches
    @forgets_locals
    def _marked(
        self,
        answers: Any,
        are_probabilities: bool,
        tokens: tuple[Any, Any, Any],
        user: Any,
        generator: torch.Generator | None,
    ) -> Any:
        if not torch.is_tensor(answers):
            given = _numbers("probabilities" if are_probabilities else "logits", answers)
            with torch.inference_mode():
                return self._marked(given, are_probabilities, tokens, user, generator).numpy()
        if not answers.is_floating_point():
            raise InvalidInputError(
                f"answers of type {answers.dtype} are no scores; expected floating-point numbers: give what the model "
                "returned"
            )
        query = self._query(*tokens)
        keys = users_of(self._key, user)
        if not are_probabilities:
            return protect(answers, query, keys, self._options, generator)
        logits = _logarithms(answers, query.to(answers.device), self._key)
        return protect(logits, query, keys, self._options, generator).exp()

    def _query(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Query:
        """The tokens, which no model has looked up before."""
        ids = _integers("input_ids", input_ids)
        mask = None if attention_mask is None else _mask(attention_mask)
        types = None if token_type_ids is None else _integers("token_type_ids", token_type_ids)
        query = Query(ids, mask, types, self._pad_token_id)
        lowest, highest = map(int, ids.aminmax()) if ids.numel() else (0, 0)
        if not 0 <= lowest <= highest < self._vocab_size:
            raise InvalidInputError(
                f"input_ids hold numbers from {lowest} to {highest}, and this key's vocabulary goes from 0 to "
                f"{self._vocab_size - 1}; give the ids that the model was given, by the key's own tokenizer"
            )
        return query


def _numbers(name: str, values: Any) -> Tensor:
    array = _array(name, values)
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":  # which numpy does not know as a float
        raise InvalidInputError(
            f"{name} hold {array.dtype}; expected an array, or a tensor, of floats: give what the model returned"
        )
    return torch.from_numpy(np.require(array, np.float64 if array.dtype == np.float64 else np.float32, ["C", "W"]))


def _integers(name: str, values: Any) -> Tensor:
    if torch.is_tensor(values):
        if values.is_floating_point() or values.dtype == torch.bool:
            raise _no_integers(name, values.dtype)
        return values.long()
    array = _array(name, values)
    if array.dtype.kind not in "iu" and array.size:  # an empty list holds floats
        raise _no_integers(name, array.dtype)
    return torch.from_numpy(np.require(array, np.int64, ["C", "W"]))


def _no_integers(name: str, dtype: Any) -> InvalidInputError:
    return InvalidInputError(f"{name} hold {dtype}; expected integers: give those that the model was given")


def _mask(values: Any) -> Tensor:
    """True for text. In masks of another kind, such as those that are added to scores, zero would say so."""
    array = values if torch.is_tensor(values) else _array("attention_mask", values)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "biuf":
        raise _no_mask(array.dtype)
    if not ((array == 0) | (array == 1)).all():
        raise _no_mask("other numbers")
    return array.bool() if torch.is_tensor(array) else torch.from_numpy(array != 0)


def _no_mask(what: Any) -> InvalidInputError:
    return InvalidInputError(
        f"attention_mask holds {what}; expected 1 for text and 0 for padding: give the tokenizer's"
    )


def _array(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise InvalidInputError(f"{name} must be an array or a tensor, with rows of equal length: pad them") from None


def _logarithms(p: Tensor, query: Query, key: WatermarkKey | KeyRing) -> Tensor:
    """log p̂ of what must be distributions wherever there is an answer."""
    like = key.template() if isinstance(key, KeyRing) else key
    check_shape(p, query, like)
    p = p if p.dtype == torch.float64 else p.float()
    right = ((p.sum(dim=-1) - 1.0).abs() <= SUM_TOLERANCE) & (p >= 0.0).all(dim=-1)
    if like.task == "token-classification":
        right |= ~attended_tokens(like, query)
    if not right.all():
        place = ", ".join(map(str, (~right).nonzero()[0].tolist()))
        raise InvalidInputError(
            f"row {place} of probabilities is NaN, negative or does not sum to one; give what a softmax returns, or "
            "logits to mark_logits"
        )
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()
