"""What near-duplicates have in common: of texts that differ by a few words, the text that they are variants of.

A thief may ask many variants of each text and learn what most of them say as the text's own answer. Then the student
has learnt a text that was never asked, which the variants still tell: a few words that somebody put in differ, and the
rest is alike. An owner who logs variants therefore probes with :func:`texts_in_common`, too. It looks at texts alone,
never at answers or a key, so that a test on what it returns is as exact as any.
"""

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from datasets import Dataset

from ..errors import DatasetError
from .questions import find_text_columns

LEAST_ALIKE = 0.5  # of the words of two texts together, the share that both have
_BANDS, _ROWS = 16, 2  # hashes by which texts meet: those with six words of ten in common miss once in a thousand
_PRIME = (1 << 31) - 1


def texts_in_common(
    texts: Dataset, *, task: Any = "sequence-classification", text_columns: str | Sequence[str] | None = None
) -> Dataset:
    """One text for each group of near-duplicates: the words that most of the group have, in the order of the first.

    Parameters
    ----------
    texts : Dataset
        Text, pairs of texts or lists of words, as they were asked; other columns are left out.
    task : str
        Decides what the columns of texts are usually called.
    text_columns : optional
        Columns with other names than usual.

    Returns
    -------
    Dataset
        The columns of texts alone, a row per group, in the order in which groups first appear. A text that has no
        near-duplicate stays as it is.

    Examples
    --------
    >>> from datasets import Dataset
    >>> from drw_hf.asking import texts_in_common
    >>> log = Dataset.from_dict({"text": ["a dull green film", "a dull film at best", "a dull film but", "so what"]})
    >>> texts_in_common(log)["text"][:]
    ['a dull film', 'so what']
    """
    columns = find_text_columns(texts.column_names, task, text_columns)
    if columns[0] == "input_ids":
        raise DatasetError(
            "near-duplicates are told by their words, and these rows are token ids; give the texts that were asked"
        )
    given = [texts[name][:] for name in columns]
    rows = [[one.split() if isinstance(one, str) else list(one) for one in row] for row in zip(*given, strict=True)]
    kept: dict[str, list[Any]] = {name: [] for name in columns}
    for group in groups_of([[f"{place} {word}" for place, part in enumerate(row) for word in part] for row in rows]):
        for place, name in enumerate(columns):
            value = given[place][group[0]]
            if len(group) > 1:
                words = _most_have([rows[number][place] for number in group])
                value = " ".join(words) if isinstance(value, str) else words
            kept[name].append(value)
    return Dataset.from_dict(kept, features=texts.select_columns(columns).features)


def _most_have(variants: Sequence[Sequence[str]]) -> list[str]:
    """The words of the first variant that more than half of the variants have."""
    counts = Counter(word for row in variants for word in set(row))
    return [word for word in variants[0] if 2 * counts[word] > len(variants)]


def groups_of(texts: Sequence[Sequence[str]]) -> list[list[int]]:
    """The numbers of texts in groups of near-duplicates: each is like the first of its group, in order."""
    sets = [frozenset(words) for words in texts]
    groups: list[list[int]] = []
    met: dict[tuple[int, int], list[int]] = defaultdict(list)  # the groups whose first text has a band in common
    for number, bands in enumerate(_bands_of(sets)):
        mine = next((group for group in _candidates(met, bands) if _alike(sets[groups[group][0]], sets[number])), None)
        if mine is not None:
            groups[mine].append(number)
            continue
        for band in bands:
            met[band].append(len(groups))
        groups.append([number])
    return groups


def _candidates(met: dict[tuple[int, int], list[int]], bands: Sequence[tuple[int, int]]) -> Iterator[int]:
    seen: set[int] = set()
    for band in bands:
        for group in met.get(band, ()):
            if group not in seen:
                seen.add(group)
                yield group


def _alike(first: frozenset[str], second: frozenset[str]) -> bool:
    together = len(first | second)
    return not together or len(first & second) >= LEAST_ALIKE * together


def _bands_of(sets: Sequence[frozenset[str]]) -> Iterator[list[tuple[int, int]]]:
    """For each text the pairs of smallest hashes of its words that near-duplicates are likely to share."""
    rng = np.random.default_rng(0)
    factors, offsets = rng.integers(1, _PRIME, (2, _BANDS * _ROWS), dtype=np.int64)
    hashed: dict[str, np.ndarray] = {}
    for words in sets:
        if not words:
            yield [(0, -1)]
            continue
        for word in words:
            if word not in hashed:
                hashed[word] = (factors * (zlib.crc32(word.encode()) % _PRIME) + offsets) % _PRIME
        least = np.min([hashed[word] for word in words], axis=0).reshape(_BANDS, _ROWS)
        mixed = (least[:, 0] << 31) ^ least[:, 1]
        yield [(number, int(value)) for number, value in enumerate(mixed)]
