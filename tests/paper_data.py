"""The paper's data sets in small: folders of the shape that ``--data`` wants, in the package's own language."""

import gzip
import json
from itertools import groupby
from pathlib import Path

from drw_hf.experiments.corpus import MIN_WORDS, make_pair_corpus, make_sentiment_corpus, make_tagging_corpus

ROWS = {"train": 200, "validation": 50, "test": 50}
# As the data sets on the Hub number them.
POS_TAGS = (". CC DT IN JJ NN NNP PRP RB TO VB VBD VBN").split()
NER_TAGS = ("O B-PER I-PER B-ORG I-ORG B-LOC I-LOC B-MISC I-MISC").split()


def make_paper_data(**rows: int) -> dict[str, dict[str, list[dict]]]:
    """The rows of every folder and split; ``rows`` are how many each split has."""
    counts = {**ROWS, **rows}
    total = sum(counts.values())
    opinions = make_sentiment_corpus(total, n_words=MIN_WORDS)
    pairs = make_pair_corpus(total, n_words=MIN_WORDS)
    made = {
        "sst2": [{"sentence": row["text"], "label": row["label"]} for row in opinions],
        "mrpc": [{"sentence1": row["text_a"], "sentence2": row["text_b"], "label": row["label"]} for row in pairs],
        "conll2003": [_tagged(row) for row in make_tagging_corpus(total, n_words=MIN_WORDS)],
    }
    data = {}
    for folder, all_rows in made.items():
        rest = iter(all_rows)
        data[folder] = {split: [next(rest) for _ in range(count)] for split, count in counts.items()}
    return data


def write_paper_data(folder: Path, **rows: int) -> str:
    """Write them as ``.jsonl.gz``; returns what ``--data`` is given."""
    for name, splits in make_paper_data(**rows).items():
        for split, some in splits.items():
            write_rows(folder / name / f"{split}.jsonl.gz", some)
    return str(folder)


def write_rows(path: Path, rows: list[dict]) -> None:
    """Write one file, packed where its name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def _tagged(row: dict) -> dict:
    """A sentence with both kinds of tags: regular pasts are participles, two names in a row are a person's."""
    pos = ["VBN" if tag == "VBD" and word.endswith("ed") else tag for word, tag in zip(*row.values(), strict=True)]
    ner = []
    for tag, run in groupby(row["tags"]):
        n = len(list(run))
        kind = "PER" if n > 1 else "LOC"
        ner += [f"B-{kind}"] + [f"I-{kind}"] * (n - 1) if tag == "NNP" else ["O"] * n
    return {"tokens": row["tokens"], "pos_tags": pos, "ner_tags": ner}
