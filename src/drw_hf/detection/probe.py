"""`Probe`: what a suspect (and the clean victim) said of texts, kept so that it is analysed again without asking.

A probe keeps the texts, too, so that whoever has the tokenizer can tell whether the tokens are theirs. What probes did
not hold at first is left out of file and digest where it is not there: the digests of old ones must not change.
"""

import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..asking.words import Words
from ..checks import fits, unfit
from ..errors import InvalidInputError
from ..keys.choices import AnswerKind, Task
from ..keys.derivation import MARGIN_ORDER
from ..keys.files import write_atomically
from ..keys.key import WatermarkKey
from ..reading.arrays import LARGEST_ARCHIVE, read_arrays
from ..reading.files import LARGEST_DOCUMENT, in_words, parse_json
from ..watermark.margin import draw_messages
from ..watermark.sampling import text_messages
from ..watermark.tokens import Query, hashed_tokens, view_tokens

FORMAT = "drw-probe-2"
FIRST_FORMAT = "drw-probe-1"  # of probes that hold nothing newer
_TEXTS = ("input_ids", "token_type_ids", "offsets", "rows", "places")
_ANSWERS = ("suspect", "victim", "reference")
_LABELS = ("gold", "logged")
_OWNERS = ("victim", "gold", "logged", "reference", "controls")  # what the owner may add to what a suspect said
_ARRAYS = (*_TEXTS, "suspect", *_OWNERS)
_QUESTIONS = "texts"  # in the file and the digest: the texts as bytes of JSON
_ADDED_SINCE: dict[str, Any] = {  # what probes did not say at first, and what they are taken to say
    "tokenizer_digest": None,
    "cut": None,
    "n_unanswered": 0,
    "left_out": (),
    "lacking": (),
    "draw": None,
    "control_names": (),
}
_CUT = {"max_length": int | None, "side": str, "pairs": str}
_DRAW = dict.fromkeys(("corpus", "algorithm", "source", "seed"), str) | dict.fromkeys(("n_texts", "number"), int)
KeptText = str | tuple[str, ...]  # a text; a pair, or of a tagger words
_TOKENS_AT_ONCE = 2**24  # padded: a single long text among short ones must not fill the memory


# Who else can say what to expect of a suspect that gives labels alone, for the test of each mark.
_EXPECTING = {"cosine": ("victim", "gold"), "tilt": ("victim", "reference")}


def are_labels_alone(answers: np.ndarray) -> bool:
    """Whether answers are labels, each as certainty, and no scores."""
    return bool(np.isin(answers, (0, 1)).all())


def check_expected(mark: str, given: Container[str]) -> None:
    """Of a suspect that gives labels alone: refuse to go on where nothing that was ``given`` says what to expect."""
    needed = _EXPECTING.get(mark, ())
    if needed and not any(name in given for name in needed):
        raise InvalidInputError(
            "the suspect gives labels alone, without scores, and nothing says what to expect of them; pass the clean "
            f"{needed[0]}= (or {needed[1]}=), at the command line --{needed[0]}"
        )


@dataclass(frozen=True, eq=False)
class Probe:
    """Answers to texts, one entry per item: a text of a sentence task, a word of a token task.

    Attributes
    ----------
    task : str
    labels : tuple of str
        The label names, in the order of the columns of ``suspect`` and ``victim``.
    input_ids, offsets : arrays of int64
        The owner's tokens of all texts, one after the other; text i is ``input_ids[offsets[i]:offsets[i + 1]]``.
    token_type_ids : array of int64
        Their segment ids (zeros where the tokenizer has none).
    rows : array of int64, shape (N,)
        The text each item is of.
    places : array of int64, shape (N,)
        The item's token within its text (−1 for sentence tasks, where the key's rule picks one).
    suspect : array of float32, shape (N, m)
        What the suspect says.
    kind : str
        ``"probabilities"``, or ``"labels"`` where the suspect gives labels alone (``suspect`` is then 0 and 1).
    victim : array of float32, shape (N, m), or None
        What the clean victim says.
    gold : array of int64, shape (N,), or None
        Gold labels; −1 where there is none.
    logged : array of int64, shape (N,), or None
        The labels that a hard-label service served, for the memory test; −1 where there is none.
    reference : array of float32, shape (N, m), or None
        What a model says that has nothing to do with any key, like a student of the clean victim.
    n_queries : int
        How many texts the suspect was asked.
    suspect_name : str
    tokenizer_fingerprint : str or None
        Of the owner's tokenizer.
    label_map : dict or None
        ``{suspect's label: key's label}``, where the owner said which of the suspect's labels are which of the key's;
        ``""`` for one that is none of the key's.
    texts : tuple or None
        The texts themselves; pairs and words as tuples. None where they were not known.
    cut : dict or None
        How the owner's tokens were cut: ``max_length``, ``side`` and ``pairs``, as in :class:`drw_hf.asking.Cut`.
    tokenizer_digest : str or None
        Of the owner's whole tokenizer, not its vocabulary alone.
    n_unanswered : int
        How many texts (of a tagger: words) the suspect was asked about in vain: it refused, or gave what is no
        prediction. They are not among the items.
    left_out, lacking : tuple of str
        Labels of the suspect that are none of the key's (their share was left out, and the others divided by the
        rest), and labels of the key that the suspect does not have (which have probability 0).
    draw : dict or None
        By which public seed the texts were drawn from a corpus: :mod:`drw_hf.detection.drawing`.
    controls : array of float32, shape (controls, N, m), or None
        What models say that are known to be innocent; zeros where one does not answer.
    control_names : tuple of str
    """

    task: Task
    labels: tuple[str, ...]
    input_ids: np.ndarray
    token_type_ids: np.ndarray
    offsets: np.ndarray
    rows: np.ndarray
    places: np.ndarray
    suspect: np.ndarray
    kind: AnswerKind = "probabilities"
    victim: np.ndarray | None = None
    gold: np.ndarray | None = None
    logged: np.ndarray | None = None
    reference: np.ndarray | None = None
    n_queries: int = 0
    suspect_name: str = ""
    tokenizer_fingerprint: str | None = None
    label_map: dict[str, str] | None = None
    texts: tuple[KeptText, ...] | None = field(default=None, repr=False)
    cut: dict[str, Any] | None = None
    tokenizer_digest: str | None = None
    n_unanswered: int = 0
    left_out: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    draw: dict[str, Any] | None = None
    controls: np.ndarray | None = None
    control_names: tuple[str, ...] = ()

    @property
    def n_texts(self) -> int:
        """How many texts were asked."""
        return len(self.offsets) - 1

    def tokens_of(self, key: WatermarkKey) -> tuple[np.ndarray, np.ndarray]:
        """The token every item is hashed by under a key, and which items have one."""
        if key.task == "token-classification":
            tokens = self.input_ids[self.offsets[self.rows] + self.places]
            return tokens, ~np.isin(tokens, key.special_token_ids)
        tokens, exists = np.zeros(self.n_texts, np.int64), np.zeros(self.n_texts, bool)
        for texts, query in self._queries():
            chosen, there = hashed_tokens(key, query, view_tokens(key, query))
            tokens[texts], exists[texts] = chosen.numpy(), there.numpy()
        return tokens[self.rows], exists[self.rows]

    def words_of(self, key: WatermarkKey) -> Words:
        """The words every item is about: a tagger's its own token, a text's all of its distinct ones."""
        if key.task == "token-classification":
            tokens, exists = self.tokens_of(key)
            return Words(np.flatnonzero(exists), tokens[exists], np.ones(int(exists.sum())), len(self.rows))
        texts = np.repeat(np.arange(self.n_texts), np.diff(self.offsets))
        ordinary = ~np.isin(self.input_ids, key.special_token_ids)
        pairs = np.unique(np.stack([texts[ordinary], self.input_ids[ordinary]]), axis=1)
        item_of = np.full(self.n_texts, -1)
        item_of[self.rows] = np.arange(len(self.rows))
        items, tokens = item_of[pairs[0]], pairs[1]
        items, tokens = items[items >= 0], tokens[items >= 0]
        counts = np.bincount(items, minlength=len(self.rows))
        return Words(items, tokens, 1.0 / np.sqrt(counts[items]), len(self.rows))

    def messages(self, key: WatermarkKey) -> list[bytes]:
        """What of every text decides the labels that a hard-label service draws."""
        found: list[bytes] = []
        for _, query in self._queries():
            view = view_tokens(key, query)
            found += text_messages(query.input_ids.numpy(), view.ordinary.numpy(), view.first_sentence.numpy())
        return found

    def draw_messages(self, key: WatermarkKey) -> list[bytes]:
        """What of every item decides the draw between its two best classes (:mod:`drw_hf.watermark.margin`)."""
        ordinary = ~np.isin(self.input_ids, key.special_token_ids)
        before = np.concatenate([[0], np.cumsum(ordinary)])  # how many ordinary tokens stand before each
        offsets, order_key = before[self.offsets], key.subkey(MARGIN_ORDER)
        if key.task != "token-classification":
            messages = draw_messages(self.input_ids[ordinary], offsets, None, order_key)
            return [messages[row] for row in self.rows]
        places = before[self.offsets[self.rows] + self.places]  # of a special token's item it is never asked
        return draw_messages(self.input_ids[ordinary], offsets, places.clip(max=max(before[-1] - 1, 0)), order_key)

    def digest(self) -> str:
        """SHA-256 over all that was asked and answered."""
        whole = hashlib.sha256(json.dumps(self._fields(), sort_keys=True).encode())
        for name, array in self._kept().items():
            whole.update(f"{name} {array.dtype.str} {array.shape}".encode())
            whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()

    def asked_digest(self) -> str:
        """SHA-256 over what the suspect was asked and answered, whatever the owner added afterwards.

        Who probes without the key publishes it before seeing the key: :meth:`digest` is the same then.
        """
        owners: dict[str, Any] = dict.fromkeys(_OWNERS)
        return dataclasses.replace(self, **owners, control_names=()).digest()

    def control(self, number: int) -> "Probe":
        """A control's answers in the place of the suspect's, as far as it gave any."""
        assert self.controls is not None
        answers = self.controls[number]
        there = answers.any(axis=1)
        items = ("rows", "places", "victim", "gold", "logged", "reference")
        parts: dict[str, Any] = {
            name: None if (array := getattr(self, name)) is None else array[there] for name in items
        }
        return dataclasses.replace(
            self,
            **parts,
            suspect=answers[there],
            kind="labels" if are_labels_alone(answers[there]) else "probabilities",
            suspect_name=self.control_names[number],
            controls=None,
            control_names=(),
            n_unanswered=0,
            left_out=(),
            lacking=(),
            label_map=None,
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the probe as a compressed ``.npz``; it holds tokens and answers, and nothing of any key."""
        write_atomically(Path(path), self.content())

    def content(self) -> bytes:
        """The file that :meth:`save` writes."""
        arrays: dict[str, Any] = self._kept()
        if sum(array.nbytes for array in arrays.values()) > LARGEST_ARCHIVE - LARGEST_DOCUMENT:
            raise InvalidInputError(
                f"this probe is larger than {in_words(LARGEST_ARCHIVE)}, the most that Probe.load reads; ask fewer "
                "texts"
            )
        fields = np.frombuffer(json.dumps({"format": self._format(), **self._fields()}).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, fields=fields, **arrays)
        return buffer.getvalue()

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Probe":
        """Read what :meth:`save` wrote; ``InvalidInputError`` for anything else, and beyond 1 GiB unpacked."""
        what = "a probe that Probe.save wrote"
        arrays: dict[str, Any] = read_arrays(path, ("fields", _QUESTIONS, *_ARRAYS), what, InvalidInputError)
        fields = parse_json(arrays.pop("fields", np.zeros(0)).tobytes()[: LARGEST_DOCUMENT + 1])
        known = isinstance(fields, dict) and fields.get("format") in (FIRST_FORMAT, FORMAT)
        if isinstance(fields, dict) and isinstance(fields.get("format"), str) and not known:
            raise InvalidInputError(f"{path} is a probe of another format; update drw_hf")
        has_texts, content = _QUESTIONS in arrays, arrays.pop(_QUESTIONS, None)
        texts = None if content is None else _as_questions(parse_json(content.tobytes()))
        written_as = fields.pop("format") if known else None
        whole = known and has_texts == (texts is not None) and _are_a_probe(fields, arrays)
        probe = cls(**_with_tuples(fields), texts=texts, **arrays) if whole else None
        if probe is None or not _hold_together(probe) or probe._format() != written_as:
            raise InvalidInputError(f"{path} is not {what}, or it was damaged; restore it from a backup")
        return probe

    def check(self) -> None:
        """Refuse a probe whose parts do not fit together, or hold what is no answer."""
        arrays = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        fields = {**self._fields(), "label_map": self.label_map}
        if self.texts is not None and _as_questions(json.loads(json.dumps(self.texts))) != self.texts:
            raise InvalidInputError("the texts of this probe are no texts, pairs of texts or lists of words")
        if not _are_a_probe(fields, arrays) or not _hold_together(self):
            raise InvalidInputError(
                "this probe does not hold together: its arrays must have one entry per item, answers must be finite, "
                "and label numbers must be classes, or -1 for none; make it with probe_suspect, or read it with "
                "Probe.load"
            )

    def _fields(self) -> dict[str, Any]:
        names = ("task", "kind", "n_queries", "suspect_name", "tokenizer_fingerprint")
        fields = {"labels": list(self.labels), **{name: getattr(self, name) for name in names}}
        newer = {name: getattr(self, name) for name in _ADDED_SINCE}
        newer = {name: value for name, value in newer.items() if value != _ADDED_SINCE[name]}
        newer = {name: list(value) if isinstance(value, tuple) else value for name, value in newer.items()}
        # Probes did not say so at first, and the digests of those without a map must not change.
        return {**fields, **({} if self.label_map is None else {"label_map": self.label_map}), **newer}

    def _kept(self) -> dict[str, np.ndarray]:
        """The arrays by name, the texts as one of them."""
        arrays = {name: array for name in _ARRAYS if (array := getattr(self, name)) is not None}
        if self.texts is None:
            return arrays
        content = json.dumps(self.texts, separators=(",", ":")).encode()
        return {**arrays, _QUESTIONS: np.frombuffer(content, dtype=np.uint8)}

    def _format(self) -> str:
        newer = self.texts is not None or self.controls is not None or self._fields().keys() & _ADDED_SINCE.keys()
        return FORMAT if newer else FIRST_FORMAT

    def _queries(self, size: int = 2048) -> Iterator[tuple[slice, Query]]:
        """The texts in padded batches, large ones: on a busy machine torch's threads wait more than they work."""
        first = 0
        while first < self.n_texts:
            lengths = np.diff(self.offsets[first : first + size + 1])
            padded = np.maximum.accumulate(lengths) * np.arange(1, len(lengths) + 1)
            lengths = lengths[: max(1, int(np.searchsorted(padded, _TOKENS_AT_ONCE, side="right")))]
            texts = slice(first, first + len(lengths))
            start, end = self.offsets[texts.start], self.offsets[texts.stop]
            mask = np.arange(lengths.max()) < lengths[:, None]
            ids, types = np.zeros((2, *mask.shape), np.int64)
            ids[mask], types[mask] = (array[start:end] for array in (self.input_ids, self.token_type_ids))
            attended = torch.from_numpy(mask.astype(np.int64))
            yield texts, Query(torch.from_numpy(ids), attended, torch.from_numpy(types))
            first = texts.stop


def _are_a_probe(fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> bool:
    """Whether what was read has the fields of a probe, and arrays of the right kinds and shapes."""
    others = {*_ARRAYS, "texts"}
    declared = {entry.name: entry.type for entry in dataclasses.fields(Probe) if entry.name not in others}
    optional = {"label_map", *_ADDED_SINCE}
    if not declared.keys() - optional <= fields.keys() <= declared.keys() or unfit(fields, declared):
        return False
    parts: tuple[tuple[str, dict[str, Any]], ...] = (("cut", _CUT), ("draw", _DRAW))
    for name, kinds in parts:
        part = fields.get(name)
        if part is not None and (part.keys() != kinds.keys() or unfit(part, kinds)):
            return False
    if not {*_TEXTS, "suspect"} <= arrays.keys() or any(array.ndim == 0 for array in arrays.values()):
        return False
    n_items, n_tokens, labels = len(arrays["rows"]), len(arrays["input_ids"]), fields["labels"]
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_ANSWERS, (n_items, len(labels)))
    shapes["controls"] = (len(fields.get("control_names", ())), n_items, len(labels))
    shapes |= {"input_ids": (n_tokens,), "token_type_ids": (n_tokens,), "offsets": (len(arrays["offsets"]),)}
    return 2 <= len(labels) == len(set(labels)) and all(
        array.shape == shapes.get(name, (n_items,))
        and array.dtype == (np.float32 if name in (*_ANSWERS, "controls") else np.int64)
        for name, array in arrays.items()
    )


def _hold_together(probe: Probe) -> bool:
    """Whether every item is of a text that is there, and every number in its range."""
    offsets, rows, places, n_labels = probe.offsets, probe.rows, probe.places, len(probe.labels)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(probe.input_ids):
        return False
    if (offsets[1:] < offsets[:-1]).any() or (rows < 0).any() or (rows >= probe.n_texts).any():
        return False
    by_word = probe.task == "token-classification"
    if probe.texts is not None and len(probe.texts) != probe.n_texts:
        return False
    if bool(probe.control_names) != (probe.controls is not None):
        return False
    answers = [array for name in (*_ANSWERS, "controls") if (array := getattr(probe, name)) is not None]
    labels = [array for name in _LABELS if (array := getattr(probe, name)) is not None]
    return (
        bool(((places >= 0) & (places < np.diff(offsets)[rows]) if by_word else places == -1).all())
        and probe.n_queries >= 0
        and probe.n_unanswered >= 0
        and not (probe.input_ids < 0).any()
        and all(np.isfinite(array).all() for array in answers)
        and all(((array >= -1) & (array < n_labels)).all() for array in labels)
    )


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as JSON has them, with tuples where a probe has some."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


def _as_questions(texts: Any) -> tuple[KeptText, ...] | None:
    """Texts as JSON has them as a probe holds them; None for what holds anything else."""
    if not isinstance(texts, list) or not all(fits(text, str | list[str]) for text in texts):
        return None
    return tuple(text if isinstance(text, str) else tuple(text) for text in texts)
