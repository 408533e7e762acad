"""What near-duplicates have in common: of texts that differ by a few words, the text that they are variants of.

A thief may ask many variants of each text, and learn what most of them say as the text's own answer. Then the student
has learnt a text that was never asked. Its variants still tell it: a word that somebody put in stands in one of them,
and the text's own words in nearly all. An owner whose log holds variants therefore probes with
:func:`texts_in_common`, too. It looks at texts alone, never at answers or a key, so that a test on what it returns is
as exact as any.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from datasets import Dataset

from ..errors import DatasetError
from ..keys.choices import Task
from .questions import find_text_columns

ALIKE = 0.5  # near-duplicates share this much of the words that either has
OWN = 0.25  # a word of a text is its own if so many of the near-duplicates have it
_LEAST = 3  # near-duplicates, with the text itself, that tell which words are its own
_MOST = 24  # near-duplicates that are looked at; more tell no more
_BANDS, _ROWS = 16, 2  # hashes by which texts meet: those with six words of ten in common miss once in a thousand
_PRIME = (1 << 31) - 1


def texts_in_common(
    texts: Dataset, *, task: Task = "sequence-classification", text_columns: str | Sequence[str] | None = None
) -> Dataset:
    """The texts that near-duplicates are variants of: those to which at least two of the given texts lead.

    A text leads to its own words: those that a quarter of its near-duplicates have, too. Texts without near-duplicates
    lead nowhere and are left out, since they can be asked as they are.

    Parameters
    ----------
    texts : Dataset
        Text, pairs of texts or lists of words, as they were asked; other columns are left out.
    task : str
        Decides what the columns of texts are usually called.
    text_columns : str or sequence of str, optional
        Columns with other names than usual.

    Returns
    -------
    Dataset
        The columns of texts, each text once, in the order in which the first variant of each was asked.

    Examples
    --------
    >>> from datasets import Dataset
    >>> from drw_hf.asking import texts_in_common
    >>> asked = ["a dull green film at best", "a dull film at very best", "so a dull film at best", "who knows"]
    >>> texts_in_common(Dataset.from_dict({"text": asked}))["text"][:]
    ['a dull film at best']
    """
    columns = find_text_columns(texts.column_names, task, text_columns)
    if columns[0] == "input_ids":
        raise DatasetError(
            "near-duplicates are told by their words, and these rows are token ids; give the texts that were asked"
        )
    given = [texts[name][:] for name in columns]
    rows = [[one.split() if isinstance(one, str) else list(one) for one in row] for row in zip(*given, strict=True)]
    owned: Counter[tuple[tuple[str, ...], ...]] = Counter()
    for row, own in zip(rows, own_words([_named(row) for row in rows]), strict=True):
        if own is not None:
            owned[tuple(_kept(place, part, own) for place, part in enumerate(row))] += 1
    found = [core for core, support in owned.items() if support > 1]
    plain = not given[0] or isinstance(given[0][0], str)
    kept = {
        name: [" ".join(core[place]) if plain else list(core[place]) for core in found]
        for place, name in enumerate(columns)
    }
    return Dataset.from_dict(kept, features=texts.select_columns(columns).features)


def _named(row: Sequence[Sequence[str]]) -> frozenset[str]:
    """The words of a row, those of a pair's two texts told apart."""
    return frozenset(f"{place} {word}" for place, part in enumerate(row) for word in part)


def _kept(place: int, part: Sequence[str], own: frozenset[str]) -> tuple[str, ...]:
    return tuple(word for word in part if f"{place} {word}" in own)


def own_words(texts: Sequence[frozenset[str]]) -> Iterator[frozenset[str] | None]:
    """For each text those of its words that are its own; None where near-duplicates are too few to tell."""
    bands = list(_bands_of(texts))
    met: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, values in enumerate(bands):
        for band in enumerate(values):
            if len(met[band]) < _MOST:
                met[band].append(number)
    for words, values in zip(texts, bands, strict=True):
        shared = Counter(number for band in enumerate(values) for number in met[band])
        others = [texts[number] for number, _ in shared.most_common(_MOST)]
        alike = [words & other for other in others if len(words & other) >= ALIKE * len(words | other)]
        if len(alike) < _LEAST:
            yield None
            continue
        counts = Counter(word for some in alike for word in some)
        own = frozenset(word for word in words if counts[word] >= max(2.0, OWN * len(alike)))
        yield own or None


def _bands_of(texts: Sequence[frozenset[str]]) -> Iterator[list[int]]:
    """For each text some numbers made of its words, of which near-duplicates are likely to share one."""
    rng = np.random.default_rng(0)
    factors, offsets = rng.integers(1, _PRIME, (2, _BANDS * _ROWS), dtype=np.int64)
    hashed: dict[str, np.ndarray] = {}
    for words in texts:
        for word in words:
            if word not in hashed:
                hashed[word] = (factors * (zlib.crc32(word.encode()) % _PRIME) + offsets) % _PRIME
        if not words:
            yield []
            continue
        least = np.min([hashed[word] for word in words], axis=0).reshape(_BANDS, _ROWS)
        yield ((least[:, 0] << 31) ^ least[:, 1]).tolist()
