"""Tables of what a thief reads without training anything (:mod:`drw_hf.experiments.threats`)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..runs.lines import Record, read_lines
from .cells import NOTHING, from_to, table
from .theft import CORPORA

WAYS = {"known": "known", "by answers": "read in soft answers"}
JOINED = {"1": "one sentence", "5": "five"}

_Group = list[Record]  # lines that differ in the key alone


def report(output: Path) -> str:
    """Tables of the raw lines."""
    records = read_lines(output)
    answers = _groups(records, "answers", ("task", "digits"))
    words = _groups(records, "words", ("n_words",))
    repetitions = _groups(records, "repetitions", ("mark", "how", "n_queries"))
    others = [_range(words[0], lambda record, n=n: record["known"]["fixed"][n]["others"], 1) for n in JOINED]
    tables = (
        (
            "What one soft answer of `cosine` (ε 0.2) tells: the correlation of its smallest score with the key's "
            "cosine, one answer for every word that the key marks. With more than two classes an answer is taken as "
            "marked if its smallest score is 0.001 or more, and its top class as the target.",
            [_answers_row(some) for some in answers],
        ),
        (
            "What is left of that mark: z of the exact test, with the victim, of somebody who repeats word for word "
            "what an attack makes of the answers. Nothing is trained.",
            [_left_row(some) for some in answers],
        ),
        (
            "The hash rule `keyed`: the first of so many words is put before every text, and fixes the hash of a "
            "share of them. The formula is the mean of N/(N + n), where N words were compared and n words of the text "
            f"are neither common nor among them: for the fewest words {others[0]} of one sentence, {others[1]} of "
            "five.",
            [_words_row(some, way) for some in words for way in WAYS],
        ),
        (
            "Hard labels of a tagger: the share of one label among the answers to queries of at most 60 words that "
            "repeat a name, and its correlation with the key's number for that word and that label, over words that "
            "are mostly answered so; of `cosine` those that the key marks. Draws are those that differ.",
            [_repetitions_row(some) for some in repetitions],
        ),
    )
    n_keys = len({record["seed"] for record in records})
    return (
        f"A range is that of {n_keys} keys.\n\n"
        + "\n\n".join(f"{about}\n\n{table(rows)}" for about, rows in tables)
        + "\n"
    )


def _groups(records: Sequence[Record], what: str, named_by: Sequence[str]) -> list[_Group]:
    """Lines of one kind, those of the same setting together."""
    found: dict[tuple, _Group] = {}
    for record in records:
        if record["what"] == what:
            found.setdefault(tuple(record[name] for name in named_by), []).append(record)
    return list(found.values())


def _answers_row(some: _Group) -> dict[str, str]:
    shares = {
        "marked answers found": "found",
        "others taken as marked": "mistaken",
        "target class right": "named",
    }
    return (
        _service(some)
        | {"words": _range(some, "words", 0), "correlation": _correlation(some)}
        | {title: _per_cent(some, name) for title, name in shares.items()}
        | {"ε read": _range(some, "epsilon", 3)}
    )


def _left_row(some: _Group) -> dict[str, str]:
    return _service(some) | {
        f"z, {name}": _range(some, lambda record, name=name: record["z"][name], 1) for name in some[0]["z"]
    }


def _service(some: _Group) -> dict[str, str]:
    return {
        "": f"{len(CORPORA[some[0]['task']].labels)} classes",
        "digits": str(some[0]["digits"] or "all"),
    }


def _words_row(some: _Group, way: str) -> dict[str, str]:
    parts = [record[way] for record in some]
    return {
        "words": f"{some[0]['n_words']:,}",
        "which of two comes first is": WAYS[way],
        "compared": _range(parts, "compared", 0),
        "queries": _range(parts, "queries", 0),
        "comparisons right": _per_cent(parts, "right"),
    } | {
        f"{title}: {column}": _per_cent(parts, lambda part, n=n, name=name: part["fixed"][n][name])
        for n, title in JOINED.items()
        for column, name in (("fixed", "share"), ("formula", "expected"))
    }


def _repetitions_row(some: _Group) -> dict[str, str]:
    return {
        "mark": some[0]["mark"],
        "the word stands": some[0]["how"],
        "queries for each": str(some[0]["n_queries"]),
        **{name: _range(some, name, 0) for name in ("labels", "draws", "words")},
        "correlation": _correlation(some),
    }


def _values(some: Sequence[Record], figure: str | Callable[..., Any]) -> list[float]:
    """A figure of every line that has it."""
    if callable(figure):
        return [figure(record) for record in some]
    return [record[figure] for record in some if figure in record]


def _range(some: Sequence[Record], figure: str | Callable[..., Any], digits: int) -> str:
    values = _values(some, figure)
    return from_to(min(values), max(values), digits) if values else NOTHING


def _per_cent(some: Sequence[Record], figure: str | Callable[..., Any]) -> str:
    values = [100 * value if value == 1 else min(100 * value, 99.9) for value in _values(some, figure)]
    return f"{from_to(min(values), max(values))} %" if values else NOTHING  # 100.0 is kept for what is perfect


def _correlation(some: Sequence[Record]) -> str:
    values = _values(some, "correlation")
    above = next((bound for bound in (0.9999, 0.999, 0.99) if bound < min(values)), None)
    return from_to(min(values), max(values), 2) if above is None else f"> {above:g}"
