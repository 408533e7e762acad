"""`Probe`: what a suspect (and the clean victim) said of texts, kept so that it is analysed again without asking."""

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InvalidInputError
from ..keys.choices import AnswerKind, Task
from ..keys.derivation import MARGIN_ORDER
from ..keys.files import write_atomically
from ..keys.key import WatermarkKey
from ..watermark.margin import draw_messages
from ..watermark.sampling import text_messages
from ..watermark.tokens import Query, hashed_tokens, view_tokens
from .words import Words

FORMAT = "drw-probe-1"
_TEXTS = ("input_ids", "token_type_ids", "offsets", "rows", "places")
_ARRAYS = (*_TEXTS, "suspect", "victim", "gold", "logged", "reference")


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
        ``{suspect's label: key's label}``, where the owner said which of the suspect's labels are which of the key's.
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
        for name in _ARRAYS:
            array = getattr(self, name)
            if array is not None:
                whole.update(f"{name} {array.dtype.str} {array.shape}".encode())
                whole.update(np.ascontiguousarray(array).tobytes())
        return whole.hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Write the probe as a compressed ``.npz``; it holds tokens and answers, and nothing of any key."""
        write_atomically(Path(path), self.content())

    def content(self) -> bytes:
        """The file that :meth:`save` writes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS if getattr(self, name) is not None}
        fields = np.frombuffer(json.dumps({"format": FORMAT, **self._fields()}).encode(), dtype=np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, fields=fields, **arrays)
        return buffer.getvalue()

    @classmethod
    def load(cls, path: str | os.PathLike) -> "Probe":
        """Read what :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                fields = json.loads(archive["fields"].tobytes())
                arrays = {name: archive[name] for name in _ARRAYS if name in archive}
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InvalidInputError(f"{path} is not a probe that Probe.save wrote ({type(error).__name__})") from None
        if fields.pop("format", None) != FORMAT:
            raise InvalidInputError(f"{path} is a probe of another format; update drw_hf")
        return cls(**{**fields, "labels": tuple(fields["labels"])}, **arrays)

    def _fields(self) -> dict[str, Any]:
        names = ("task", "kind", "n_queries", "suspect_name", "tokenizer_fingerprint")
        fields = {"labels": list(self.labels), **{name: getattr(self, name) for name in names}}
        # Probes did not say so at first, and the digests of those without a map must not change.
        return fields if self.label_map is None else {**fields, "label_map": self.label_map}

    def _queries(self, size: int = 2048) -> Iterator[tuple[slice, Query]]:
        """The texts in padded batches, large ones: on a busy machine torch's threads wait more than they work."""
        for first in range(0, self.n_texts, size):
            ends = self.offsets[first : first + size + 1]
            lengths = np.diff(ends)
            mask = np.arange(lengths.max()) < lengths[:, None]
            ids, types = np.zeros((2, *mask.shape), np.int64)
            ids[mask], types[mask] = (array[ends[0] : ends[-1]] for array in (self.input_ids, self.token_type_ids))
            attended = torch.from_numpy(mask.astype(np.int64))
            yield slice(first, first + size), Query(torch.from_numpy(ids), attended, torch.from_numpy(types))
