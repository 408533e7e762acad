"""Texts drawn from a corpus by a public seed, so that nobody chose them.

First the corpus, the number of texts and the source of the seed are fixed and published: an :class:`Announcement`.
Afterwards the source gives its value (a beacon's round that was named beforehand), and the texts follow. Every text of
the corpus gets SHA-256(domain ‖ SHA-256 of the announcement ‖ SHA-256 of the seed ‖ its number, 8 bytes), and those
with the smallest are asked, in that order. ``tests/vectors`` hold draws.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from ..asking.questions import Question
from ..checks import unfit, whole_number
from ..errors import InvalidInputError
from ..keys.choices import Task
from ..reading.files import parse_json
from .probe import KeptText, Probe
from .texts import kept_texts, questions_in

ALGORITHM = "drw-draw-1"
FORMAT = "drw-draw-announcement-1"
LARGEST_SEED = 64 * 1024  # bytes of a seed's file: a beacon's pulse has some four thousand
_LEAST_SEED = 16  # bytes
_CORPUS, _DRAW = b"drw-hf corpus v1", b"drw-hf draw v1"
_VALUES = ("randomness", "outputValue")  # what drand and the NIST beacon call theirs


@dataclass(frozen=True)
class Announcement:
    """What is fixed and published before the seed is known.

    Attributes
    ----------
    corpus : str
        SHA-256 over the corpus's texts, in their order.
    n_texts, number : int
        How many it has, and how many are drawn.
    source : str
        Where the seed will come from, in words: a beacon and one exact future round of it.
    algorithm : str
    """

    corpus: str
    n_texts: int
    number: int
    source: str
    algorithm: str = ALGORITHM

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise InvalidInputError("source is empty; say where the seed will come from: a beacon and one exact round")
        if self.algorithm != ALGORITHM:
            raise InvalidInputError(f"algorithm={self.algorithm!r}: this drw_hf draws by {ALGORITHM}; update drw_hf")
        if whole_number("number", self.number) > self.n_texts:
            raise InvalidInputError(f"number={self.number}: the corpus has {self.n_texts} texts; draw fewer")

    @classmethod
    def of(cls, texts: Iterable[Any], number: int, source: str, task: Task, text_columns: Any = None) -> Self:
        """An announcement for a corpus."""
        questions = questions_in(texts, task, text_columns)
        return cls(corpus_digest(_kept(questions)), len(questions), number, source)

    def digest(self) -> str:
        """SHA-256, to be published or stamped; every draw depends on it."""
        content = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """The announcement as JSON can hold it."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """What :meth:`to_dict` gave."""
        kinds: dict[str, Any] = {"corpus": str, "n_texts": int, "number": int, "source": str, "algorithm": str}
        if not isinstance(document, Mapping) or document.get("format") != FORMAT or unfit(document, kinds):
            raise InvalidInputError(f"this is no announcement of the form {FORMAT}; give what `drw-hf draw` wrote")
        if {*kinds, "format"} != document.keys():
            raise InvalidInputError("this announcement is incomplete or altered; give what `drw-hf draw` wrote")
        return cls(**{name: document[name] for name in kinds})

    def draw(self, texts: Iterable[Any], seed: bytes, task: Task, text_columns: Any = None) -> list[Question]:
        """The texts that a seed draws from the corpus that was announced."""
        questions = questions_in(texts, task, text_columns)
        if len(questions) != self.n_texts or corpus_digest(_kept(questions)) != self.corpus:
            raise InvalidInputError(
                f"this corpus, of {len(questions)} texts, is not the one that was announced, of {self.n_texts}; give "
                "the very same, in the same order"
            )
        return [questions[number] for number in drawn_numbers(self, seed)]

    def record(self, seed: bytes) -> dict[str, Any]:
        """What a probe keeps of the draw."""
        return {**asdict(self), "seed": seed.hex()}


def drawn_numbers(announcement: Announcement, seed: bytes) -> list[int]:
    """The numbers of the texts that are drawn, in the order in which they are asked."""
    start = hashlib.sha256(_DRAW + bytes.fromhex(announcement.digest()) + hashlib.sha256(seed).digest())

    def place(number: int) -> bytes:
        hashed = start.copy()
        hashed.update(number.to_bytes(8, "big"))
        return hashed.digest()

    return sorted(range(announcement.n_texts), key=place)[: announcement.number]


def corpus_digest(texts: Sequence[KeptText]) -> str:
    """SHA-256 over texts in their order, whatever file they came from."""
    whole = hashlib.sha256(_CORPUS)
    for text in texts:
        content = json.dumps(text, separators=(",", ":")).encode()
        whole.update(len(content).to_bytes(8, "big") + content)
    return whole.hexdigest()


def read_seed(content: bytes) -> bytes:
    """A seed from its file: hexadecimal digits, or the JSON of a drand round or a NIST pulse."""
    text = content[: LARGEST_SEED + 1].decode("utf-8", errors="replace").strip()
    document = parse_json(text)
    document = document.get("pulse", document) if isinstance(document, dict) else None
    if isinstance(document, dict):
        text = next((document[name] for name in _VALUES if isinstance(document.get(name), str)), "")
    try:
        seed = bytes.fromhex(text)
    except ValueError:
        seed = b""
    if len(seed) < _LEAST_SEED:
        raise InvalidInputError(
            "the file holds no seed; expected the value of a beacon's round: 32 or more hexadecimal digits, or the "
            f"JSON of the round, with one of {list(_VALUES)}"
        )
    return seed


def drawn_again(probe: Probe, corpus: Iterable[Any]) -> str | None:
    """Why a probe's texts are not those that its seed draws from a corpus; None where they are."""
    assert probe.draw is not None
    about = dict(probe.draw)
    seed = about.pop("seed")
    announced = Announcement(**about)
    try:
        drawn = announced.draw(corpus, bytes.fromhex(seed), probe.task)
    except ValueError as error:
        return str(error)
    asked = [text for text in drawn if text or probe.task == "sequence-classification"]  # rows without words are not
    return None if _kept(asked) == probe.texts else "drawn again from the corpus, they are others"


def _kept(questions: list[Question]) -> tuple[KeptText, ...]:
    texts = kept_texts(questions) if questions else ()
    if texts is None:
        raise InvalidInputError("a corpus of tokenised rows cannot be drawn from; give texts")
    return texts
