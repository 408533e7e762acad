"""Probing: asking a suspect (and the clean victim) about texts.

What is kept is the texts, the owner's tokens of them and the answers in the key's label order. The key itself is not
needed: one :class:`Probe` serves for any key of the model, and a neutral party makes one without seeing any.
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..asking.answers import Look, ask
from ..asking.local import ModelPredictor, embedding_size, is_pipeline
from ..asking.models import load_config
from ..asking.options import AskingOptions, asking_options
from ..asking.predictor import Askable, Predictor, as_predictor
from ..asking.questions import Cut, Question, are_tokenised, tokenised_row
from ..checks import are_distributions, check_options, class_numbers, label_number, whole_number
from ..errors import (
    AnswerError,
    ConfigurationError,
    DatasetError,
    InvalidInputError,
    KeyMismatchError,
    MissingKeyError,
    PredictorError,
)
from ..keys.binding import tokenizer_digest, tokenizer_fingerprint
from ..keys.key import WatermarkKey
from .labels import LabelsFound, match_labels
from .probe import Probe, are_labels_alone, check_expected
from .probed_model import ProbedModel
from .texts import Tokens, asked_texts, encode, kept_texts, limit_of, questions_in, tokens_of_rows

_SPARE_EMBEDDINGS = 511  # where their number was rounded up, to a multiple of 512 at the most
_CERTAIN_IN_A_ROW = 128  # texts answered with 0 and 1 alone: these are labels by now, and no scores of sure answers
Suspect = Askable | list[Any] | tuple[Any, ...] | np.ndarray  # who can be asked, or answers gathered elsewhere


class ProbingOptions(AskingOptions, total=False):
    """How a suspect is probed: the options of asking (:class:`drw_hf.asking.AskingOptions`), and

    Parameters
    ----------
    gold : sequence, optional
        True labels of the texts (token tasks: of the words), by name or number, as in the paper's protocol.
    label_map : mapping, optional
        ``{suspect's label: key's label}`` for a suspect whose labels were renamed, ``""`` for a label that is none of
        the key's; evidence and report say so.
    suspect_tokenizer : PreTrainedTokenizerBase, optional
        The suspect's tokenizer, where the suspect is a model with another one.
    max_queries : int, optional
        Ask about so many texts at the most.
    """

    gold: Sequence[Any] | None
    label_map: Mapping[str, str] | None
    suspect_tokenizer: PreTrainedTokenizerBase | None
    max_queries: int | None


def probe_suspect(
    suspect: Suspect,
    texts: Iterable[Any],
    *,
    key: WatermarkKey | None = None,
    model: Any = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
    logged: Sequence[Any] | None = None,
    controls: Sequence[Suspect] | None = None,
    draw: dict[str, Any] | None = None,
    to_test: bool = False,
    **probing: Unpack[ProbingOptions],
) -> Probe:
    """Ask a suspect (and the clean victim) about texts; the parameters are those of :func:`drw_hf.detect`.

    Of the key only the public side is read: its task, its labels, the tokenizer it belongs to. Without a key it is
    read of ``model``, the protected or the clean model or its configuration: so a neutral party probes, which is to
    see the key only after the probe's digest is published. What a suspect refuses, or answers with what is no
    prediction, is counted as unanswered. ``draw`` is what :meth:`Announcement.record` gave, where a public seed drew
    the texts. ``probing`` are the :class:`~drw_hf.detection.ProbingOptions`. With
    ``to_test`` a suspect that gives labels alone, which cannot be tested without somebody else's answers, is asked no
    more than shows it.
    """
    options, most = asking_options("probe_suspect", probing, ProbingOptions), probing.get("max_queries")
    if most is not None:
        whole_number("max_queries", most)
    known = _public_side(key, model, tokenizer)
    given = {"gold": probing.get("gold"), "logged": logged}
    labelled = {name: list(labels) for name, labels in given.items() if labels is not None}
    if isinstance(suspect, list | tuple | np.ndarray):
        _refuse_ignored("arrays are", {name: value for name, value in probing.items() if name != "gold"})
        others = {"victim": victim, "reference": reference}
        return _from_answers(suspect, others, list(controls or ()), texts, known, labelled)
    if tokenizer is None:
        raise InvalidInputError(
            "tokenizer= is missing: the hash goes by the owner's tokens; give the model's tokenizer"
        )
    questions = questions_in(texts, known.task, options["text_columns"])
    _check_lengths(labelled, len(questions))
    asked = [i for i, question in enumerate(questions) if known.task != "token-classification" or len(question)]
    asked = asked[:most]
    if not asked:
        raise InvalidInputError("there are no probe texts; give some hundred texts like those the model is asked")
    questions = [questions[i] for i in asked]
    labelled = {name: [labels[i] for i in asked] for name, labels in labelled.items()}
    recorded = known.cut
    limit = options["max_length"] or (recorded and recorded.max_length) or known.limit or limit_of(tokenizer, victim)
    cut = dataclasses.replace(recorded or Cut(), max_length=limit).by(tokenizer)
    tokens = encode(questions, tokenizer, cut, known.task)
    label_map = probing.get("label_map") or {}
    tokenizers = probing.get("suspect_tokenizer"), tokenizer
    if tokenizers[0] is None and isinstance(suspect, torch.nn.Module):
        _check_same_vocabulary(suspect, tokenizer, known)
    look = None
    if key is not None and to_test:
        look = _look_for_labels(key, {**labelled, "victim": victim, "reference": reference})
    asking = _Asking(known, tokenizer, questions, asked, options)
    with _knowing_our_own(suspect, key):
        answers, name, found = asking.suspect(suspect, tokenizers, label_map, look)
    said = {"suspect": answers}
    for who, other in _given(victim=victim, reference=reference):
        said[who], _ = asking.other(f"the {who}", other)
    innocent = [asking.other(f"control {number}", control) for number, control in enumerate(controls or (), start=1)]
    return _assemble(
        known,
        tokens,
        said,
        labelled,
        asked,
        name,
        controls=innocent,
        texts=kept_texts(questions),
        cut=dataclasses.asdict(cut),
        tokenizer_fingerprint=tokenizer_fingerprint(tokenizer),
        tokenizer_digest=tokenizer_digest(tokenizer),
        label_map=dict(label_map) or None,
        left_out=found.left_out,
        lacking=found.lacking,
        draw=draw,
    )


def complete_probe(
    probe: Probe,
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None,
    victim: Suspect | None = None,
    reference: Suspect | None = None,
    logged: Sequence[Any] | None = None,
    controls: Sequence[Suspect] | None = None,
    **probing: Unpack[ProbingOptions],
) -> Probe:
    """What a neutral party recorded, with the owner's part of it: others asked the same texts, and labels.

    The suspect's part stays as it is, and so does :meth:`Probe.asked_digest`.
    """
    options = asking_options("complete_probe", probing, ProbingOptions)
    given = {"gold": probing.get("gold"), "logged": logged}
    labelled = {name: list(labels) for name, labels in given.items() if labels is not None}
    wanted = [*labelled, *(name for name, _ in _given(victim=victim, reference=reference, controls=controls))]
    there = [name for name in wanted if getattr(probe, name) is not None]
    if there or probe.texts is None or probe.cut is None:
        why = f"holds {there} already" if there else "does not say its texts, about which somebody else could be asked"
        raise InvalidInputError(f"a Probe holds its answers already, and this one {why}, so leave them out: {wanted}")
    if tokenizer is None:
        raise InvalidInputError("tokenizer= is missing: the owner's, by which the probe's texts are asked of others")
    known, cut = _public_side(key, None, tokenizer), Cut(**probe.cut)
    questions = asked_texts(probe.texts, known.task)
    tokens = encode(questions, tokenizer, cut, known.task)
    if not are_tokens_of(probe, tokens):
        raise KeyMismatchError(
            "this tokenizer does not give the probe's tokens: it is not the one that the probe was made with; give "
            "the tokenizer of the protected model"
        )
    _check_lengths(labelled, len(questions))
    asking = _Asking(dataclasses.replace(known, cut=cut), tokenizer, questions, range(len(questions)), options)
    found = {who: asking.other(f"the {who}", other)[0] for who, other in _given(victim=victim, reference=reference)}
    numbers = {which: _numbers(which, rows, range(len(questions)), known) for which, rows in labelled.items()}
    innocent = [asking.other(f"control {number}", control) for number, control in enumerate(controls or (), start=1)]
    parts: dict[str, Any] = {
        who: _at_items(probe, tokens, theirs, who).astype(np.float32) for who, theirs in found.items()
    }
    parts |= {which: _at_items(probe, tokens, theirs, which) for which, theirs in numbers.items()}
    for who in found:
        if not parts[who].any(axis=1).all():
            raise InvalidInputError(f"the {who} does not answer all that the suspect answered; it reads too little")
    if innocent:
        parts["controls"] = np.stack([_at_items(probe, tokens, theirs, name) for theirs, name in innocent])
        parts["control_names"] = tuple(name for _, name in innocent)
    return dataclasses.replace(probe, **parts)


def are_tokens_of(probe: Probe, tokens: Tokens) -> bool:
    """Whether a probe's tokens are these, and its items are words of theirs."""
    types = [segment for row in tokens.types for segment in row]
    if probe.offsets.tolist() != [0, *itertools.accumulate(map(len, tokens.ids))]:
        return False
    ids = [token for row in tokens.ids for token in row]
    if probe.input_ids.tolist() != ids or probe.token_type_ids.tolist() != types:
        return False
    places = [set(row) for row in tokens.places or [[-1]] * len(tokens.ids)]
    items = list(zip(probe.rows.tolist(), probe.places.tolist(), strict=True))
    return len(set(items)) == len(items) and all(place in places[row] for row, place in items)


def _at_items(probe: Probe, tokens: Tokens, answers: Sequence[np.ndarray], whose: str) -> np.ndarray:
    """Answers to every text (or class numbers), of a tagger one for every word, as one for each item of a probe."""
    numbers = answers[0].dtype == np.int64  # a text's one number is an array of one
    if tokens.places is None:
        return np.concatenate([np.atleast_1d(answers[row]) if numbers else answers[row][None] for row in probe.rows])
    words = [{place: word for word, place in enumerate(row) if place is not None} for row in tokens.places]
    for row, (theirs, places) in enumerate(zip(answers, tokens.places, strict=True)):
        if len(theirs) != len(places):
            raise InvalidInputError(f"row {row}: {whose} has {len(theirs)} labels for {len(places)} words")
    pairs = zip(probe.rows.tolist(), probe.places.tolist(), strict=True)
    return np.stack([answers[row][words[row][place]] for row, place in pairs])


def probe_of(
    function: str,
    suspect: Suspect | Probe,
    texts: Iterable[Any] | None,
    *,
    key: WatermarkKey,
    tokenizer: PreTrainedTokenizerBase | None,
    victim: Suspect | None,
    reference: Suspect | None = None,
    logged: Sequence[Any] | None = None,
    controls: Sequence[Suspect] | None = None,
    **probing: Unpack[ProbingOptions],
) -> Probe:
    """A probe, with what the owner adds to it; any other suspect is asked.

    ``function`` is the one that was given these options.
    """
    check_options(function, probing, ProbingOptions)
    if isinstance(suspect, Probe):
        mine: dict[str, Any] = {"victim": victim, "reference": reference, "logged": logged, "controls": controls}
        if all(part is None for part in (*mine.values(), probing.get("gold"))):
            _refuse_ignored("a Probe holds its", {"texts": texts, **probing})
            return suspect
        too_late = ("label_map", "suspect_tokenizer", "max_queries", "text_columns", "max_length")
        _refuse_ignored("a Probe holds its", {"texts": texts, **{name: probing.get(name) for name in too_late}})
        return complete_probe(suspect, key=key, tokenizer=tokenizer, **mine, **probing)
    if texts is None:
        raise InvalidInputError("texts are missing: give texts to probe the suspect with")
    others: dict[str, Any] = {"tokenizer": tokenizer, "victim": victim, "reference": reference, "logged": logged}
    return probe_suspect(suspect, texts, key=key, controls=controls, to_test=True, **others, **probing)


def _refuse_ignored(holder: str, given: Mapping[str, Any]) -> None:
    """Refuse options for which it is too late; that of progress bars harms nobody."""
    ignored = [name for name, value in given.items() if value is not None and name != "progress"]
    if ignored:
        raise InvalidInputError(f"{holder} answers already, so {ignored} would have no effect; leave them out")


# -- asking


def _public_side(key: WatermarkKey | None, model: Any, tokenizer: Any) -> ProbedModel:
    """What is known of the protected model, from its key or from itself; refuses a tokenizer that is not the key's."""
    if key is None:
        if model is None or tokenizer is None:
            raise InvalidInputError(
                "neither key= nor model= was given; without a key, give the protected or the clean model, or its "
                "configuration, as model=, and its tokenizer: they say which labels and tokens count"
            )
        return ProbedModel.of_config(model, tokenizer)
    if model is not None:
        raise InvalidInputError("model= is for probes that are made without a key; with key=, leave it out")
    if tokenizer is not None and key.tokenizer_fingerprint not in (None, tokenizer_fingerprint(tokenizer)):
        raise KeyMismatchError(
            f"the key {key.fingerprint} was made with another tokenizer; give the tokenizer of the protected model "
            "(a suspect's own goes into suspect_tokenizer=)"
        )
    return ProbedModel.of_key(key)


def _given(**others: Any) -> list[tuple[str, Any]]:
    return [(name, other) for name, other in others.items() if other is not None]


def _check_same_vocabulary(suspect: torch.nn.Module, tokenizer: Any, known: ProbedModel) -> None:
    """Refuse to ask a bare model with the owner's tokenizer where their sizes show that it has another one.

    As many embeddings as the owner's model has, or a few more than there are tokens (some are rounded up), say nothing
    against it.
    """
    size, n_tokens = embedding_size(suspect), len(tokenizer)
    if size is None or size == known.vocab_size or 0 <= size - n_tokens <= _SPARE_EMBEDDINGS:
        return
    raise InvalidInputError(
        f"the suspect has embeddings for {size} token ids, and your tokenizer, with which it would be asked, has "
        f"{n_tokens} tokens: it seems to have another one; pass its own as suspect_tokenizer= (or yours, if you are "
        "sure that it is the suspect's too)"
    )


def _look_for_labels(key: WatermarkKey, given: Mapping[str, Any]) -> Look:
    """Stops asking a suspect that gives labels alone, where nothing that was given says what to expect of them.

    Bare labels show at once. Scores that were rounded may be 0 and 1 for a while, so of those some more are awaited.
    """
    there = {name for name, value in given.items() if value is not None}
    seen: list[np.ndarray] = []

    def look(predictor: Predictor, answers: list[np.ndarray]) -> None:
        if len(seen) < _CERTAIN_IN_A_ROW:
            seen.extend(np.ravel(answer) for answer in answers if answer.any())
            many = len(seen) >= _CERTAIN_IN_A_ROW
            if (predictor.labels_alone and seen) or (many and are_labels_alone(np.concatenate(seen))):
                check_expected(key.mark, there)

    return look


def without_mark(victim: Any) -> Any:
    """Whom to ask for a victim's clean answers: a protected model's clean self."""
    model = victim.model if is_pipeline(victim) else victim
    return model.get_base_model() if hasattr(model, "watermark_disabled") else model


@contextlib.contextmanager
def _knowing_our_own(suspect: Any, key: WatermarkKey | None) -> Iterator[None]:
    """Around asking a suspect: one that needs a key to load is a protected model, and no stolen copy."""
    try:
        yield
    except MissingKeyError:
        commitment = getattr(load_config(os.fspath(suspect)), "key_commitment", None)
        whose = "another key than the one given"
        if key is None or commitment == key.commitment():
            whose = "a key of its owner's" if key is None else "the very key given"
        raise MissingKeyError(
            f"the suspect {os.fspath(suspect)} is itself a protected model, of {whose} (--key): a copy that somebody "
            "made of its answers is a plain model, so give that. To see the mark in its own answers, load it with its "
            "key, from_pretrained(..., key=key), and pass the model to detect"
        ) from None


@dataclasses.dataclass(frozen=True)
class _Asking:
    """Asks one after the other the same questions; ``numbers`` are those that the user calls them by."""

    known: ProbedModel
    tokenizer: Any
    questions: list[Question]
    numbers: Sequence[int]
    options: AskingOptions

    def suspect(
        self, asked: Any, tokenizers: tuple[Any, Any], label_map: Mapping[str, str], look: Look | None
    ) -> tuple[list[np.ndarray], str, LabelsFound]:
        """The suspect's answers, as far as it gives any, its name, and how its labels are matched."""
        names = [name for name, ours in label_map.items() if ours]
        if len({label_map[name] for name in names}) != len(names):
            raise InvalidInputError("label_map names one of the key's labels twice; every label needs one of its own")
        renamed = {label_map[name]: name for name in names}
        labels = [renamed.get(label, label) for label in self.known.labels]
        others = [name for name, ours in label_map.items() if not ours]
        predictor, answers = self._ask("the suspect", asked, [*labels, *others], tokenizers, look=look, lenient=True)
        found = match_labels("the suspect", predictor.labels or (), labels, others, self.known.labels)
        return [found.of(answer) for answer in answers], predictor.public_name, found

    def other(self, who: str, asked: Any) -> tuple[list[np.ndarray], str]:
        """The answers of somebody who has the key's labels, and the name; of a protected model its clean self's."""
        tokenizers, unmarked = (None, self.tokenizer), without_mark(asked)
        labels = self.known.labels
        predictor, answers = self._ask(who, unmarked, labels, tokenizers, cut=self.known.cut)
        found = match_labels(who, predictor.labels or (), labels, (), labels)
        return [found.of(answer) for answer in answers], predictor.public_name

    def _ask(
        self,
        who: str,
        asked: Any,
        labels: Sequence[str],
        tokenizers: tuple[Any, Any],
        *,
        cut: Cut | None = None,
        look: Look | None = None,
        lenient: bool = False,
    ) -> tuple[Predictor, list[np.ndarray]]:
        """Who was asked, and what they said; tokenizers: theirs if known, the owner's.

        ``cut`` is how the answerer cuts the questions, by default at its own limit; ``look`` and ``lenient`` are as
        for :func:`drw_hf.asking.answers.ask`.
        """
        own, owners = tokenizers
        if own is None and isinstance(asked, torch.nn.Module):
            own = owners  # a bare model says nothing of its tokenizer
        try:
            retries = self.options["max_retries"]
            predictor = as_predictor(asked, own, task=self.known.task, labels=labels, max_retries=retries, cut=cut)
            if are_tokenised(self.questions) and isinstance(predictor, ModelPredictor):
                if tokenizer_fingerprint(predictor.tokenizer) != tokenizer_fingerprint(owners):
                    raise InvalidInputError(
                        f"tokenised rows are the owner's tokens, which {who} does not read; give texts"
                    )
            answers = ask(predictor, self.questions, self.numbers, self.options, who, look, lenient)
        except (AnswerError, ConfigurationError, PredictorError) as error:
            raise type(error)(f"{who}: {error}") from error
        return predictor, answers


# -- putting together


def _assemble(
    known: ProbedModel,
    tokens: Tokens,
    answers: dict[str, list[np.ndarray]],
    labelled: dict[str, list[Any]],
    asked: Sequence[int],
    name: str,
    controls: Sequence[tuple[list[np.ndarray], str]] = (),
    **about: Any,
) -> Probe:
    """One entry per item; words that somebody did not see are left out. ``asked`` are the user's row numbers."""
    by_word = tokens.places is not None
    places = [[-1 if place is None else place for place in row] for row in tokens.places or [[-1]] * len(tokens.ids)]
    named = {**answers, **{f"control {place}": theirs for place, (theirs, _) in enumerate(controls, start=1)}}
    columns = {who: [np.atleast_2d(answer) for answer in theirs] for who, theirs in named.items()}
    columns |= {which: _numbers(which, rows, asked, known) for which, rows in labelled.items()}
    for which, rows in columns.items():
        for row, values, words in zip(asked, rows, places, strict=True):
            if len(values) != len(words):
                raise InvalidInputError(f"row {row}: {which} has {len(values)} labels for {len(words)} words")
    arrays: dict[str, Any] = {which: np.concatenate(rows) for which, rows in columns.items()}
    innocent = [arrays.pop(f"control {place}") for place in range(1, len(controls) + 1)]
    arrays["rows"] = np.repeat(np.arange(len(places)), [len(row) for row in places])
    arrays["places"] = np.array([place for row in places for place in row], np.int64)
    seen = (arrays["places"] >= 0) | (not by_word)
    counts = np.logical_and.reduce([seen, *(arrays[who].any(axis=1) for who in answers)])
    if not counts.any():
        raise InvalidInputError("no word of the probe texts was answered; are they longer than the suspect's limit?")
    dtypes = {1: np.int64, 2: np.float32}  # of numbers, and of probabilities
    if innocent:
        about["controls"] = np.stack([theirs[counts].astype(np.float32) for theirs in innocent])
        about["control_names"] = tuple(whose for _, whose in controls)
    return Probe(
        task=known.task,
        labels=tuple(known.labels),
        input_ids=np.fromiter((token for row in tokens.ids for token in row), np.int64),
        token_type_ids=np.fromiter((segment for row in tokens.types for segment in row), np.int64),
        offsets=np.cumsum([0, *map(len, tokens.ids)]).astype(np.int64),
        kind="labels" if are_labels_alone(arrays["suspect"]) else "probabilities",
        n_queries=len(tokens.ids),
        n_unanswered=int((seen & ~arrays["suspect"].any(axis=1)).sum()),
        suspect_name=name,
        **{which: array[counts].astype(dtypes[array.ndim]) for which, array in arrays.items()},
        **about,
    )


def _check_lengths(labelled: dict[str, list[Any]], n_texts: int) -> None:
    for name, labels in labelled.items():
        if len(labels) != n_texts:
            raise InvalidInputError(f"{name} has {len(labels)} entries for {n_texts} texts; give one for every text")


def _numbers(which: str, rows: list[Any], asked: Sequence[int], known: ProbedModel) -> list[np.ndarray]:
    """Gold or logged labels as class numbers of the key, an array per text; −1 for none."""
    order = class_numbers(None, known.labels, which)
    found = []
    for row, labels in zip(asked, rows, strict=True):
        several = labels if known.task == "token-classification" else [labels]
        several = [label.item() if hasattr(label, "item") else label for label in several]
        numbers = [label_number(label, order, f"row {row} of {which}", error=InvalidInputError) for label in several]
        found.append(np.array(numbers, np.int64))
    return found


# -- answers gathered elsewhere


def _from_answers(
    suspect: Any,
    others: Mapping[str, Any],
    controls: Sequence[Any],
    rows: Iterable[Any],
    known: ProbedModel,
    labelled: dict[str, list[Any]],
) -> Probe:
    """Arrays (m,) or (len(input_ids), m) in the key's label order, beside token ids."""
    rows = [tokenised_row(row) for row in rows]
    if not rows or any("input_ids" not in row for row in rows):
        raise DatasetError("answers computed elsewhere need the tokens they are of; give rows with input_ids")
    _check_lengths(labelled, len(rows))
    answers = {"suspect": _checked_answers(suspect, rows, known, "the suspect", lenient=True)}
    answers |= {who: _checked_answers(theirs, rows, known, f"the {who}") for who, theirs in _given(**others)}
    innocent = [
        (_checked_answers(theirs, rows, known, f"control {number}"), f"control {number}")
        for number, theirs in enumerate(controls, start=1)
    ]
    tokens = tokens_of_rows(rows, known.special_token_ids, Cut(), known.task)
    name = "answers gathered elsewhere"
    return _assemble(known, tokens, answers, labelled, range(len(rows)), name, controls=innocent)


def _checked_answers(
    given: Any, rows: list[dict], known: ProbedModel, whose: str, lenient: bool = False
) -> list[np.ndarray]:
    if not isinstance(given, list | tuple | np.ndarray):
        raise InvalidInputError(
            f"{whose} is of type {type(given).__name__}, but the suspect is given by its answers; give {whose}'s "
            "likewise, one array for every row"
        )
    if len(given) != len(rows):
        raise InvalidInputError(f"{whose} gave {len(given)} answers to {len(rows)} rows; give one array for every row")
    by_word, answers, problem = known.task == "token-classification", [], None
    for number, (answer, row) in enumerate(zip(given, rows, strict=True)):
        shape = (*([len(row["input_ids"])] if by_word else []), len(known.labels))
        table = np.zeros(shape, np.float32) if answer is None and lenient else np.asarray(answer, dtype=np.float32)
        if table.shape != shape:
            raise InvalidInputError(f"row {number}: {whose}'s answer has shape {table.shape}, expected {shape}")
        wrong = ~are_distributions(table)
        if by_word:
            wrong &= ~np.isin(row["input_ids"], known.special_token_ids)
        if wrong.any():
            said = f"row {number}: {whose}'s probabilities are NaN, negative or do not sum to one"
            problem = problem or AnswerError(said)
            if not lenient:
                raise problem
        answers.append(np.where(~are_distributions(table)[..., None], np.float32(0.0), table) if lenient else table)
    if problem is not None and not any(answer.any() for answer in answers):
        raise problem
    return answers
