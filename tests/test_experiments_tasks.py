"""The paper's data: from a folder and from the Hub the same, in two halves, and what is refused."""

import io
import json

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value
from huggingface_hub import CommitOperationAdd, HfApi

from drw_hf.errors import DatasetError
from drw_hf.experiments.tasks import TASKS, load_corpus
from paper_data import NER_TAGS, POS_TAGS, make_paper_data, write_paper_data, write_rows

ROWS = {"train": 30, "validation": 8, "test": 6}
EVALUATED = {"sst2": 8, "mrpc": 8, "pos": 6, "ner": 6}  # GLUE's on the validation split


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Of data sets; corpora that earlier tests read are forgotten."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    load_corpus.cache_clear()


@pytest.fixture
def folder(tmp_path):
    write_paper_data(tmp_path / "data", **ROWS)
    return tmp_path / "data"


# -- a folder


@pytest.mark.parametrize("name", TASKS)
def test_a_folder_gives_the_rows_as_they_are_written(folder, name):
    task, corpus = TASKS[name], load_corpus(name, str(folder))
    written = make_paper_data(**ROWS)[task.folder]
    for part, split in ((corpus.train, "train"), (corpus.validation, "validation")):
        assert part.column_names == [*task.columns, task.gold]
        for column in task.columns:
            assert part[column][:] == [row[column] for row in written[split]]
    assert len(corpus.evaluation) == EVALUATED[name]
    assert corpus.evaluation[task.columns[0]][:] == [row[task.columns[0]] for row in written[task.evaluated_on]]
    assert corpus.texts(corpus.train).column_names == list(task.columns), "without labels"


@pytest.mark.parametrize("name", TASKS)
def test_right_labels_are_had_by_name_and_the_target_is_one_of_them(folder, name):
    task, corpus = TASKS[name], load_corpus(name, str(folder))
    gold = [row[task.gold] for row in make_paper_data(**ROWS)[task.folder]["train"]]
    if task.kind == "sequence-classification":
        gold = [corpus.labels[label] for label in gold]
    assert corpus.gold(corpus.train) == gold
    assert task.target in corpus.labels
    feature = corpus.train.features[task.gold]
    assert getattr(feature, "feature", feature).names == list(corpus.labels)


def test_labels_of_sentences_may_be_names(folder):
    numbers = load_corpus("sst2", str(folder))
    for split in ("train", "validation"):
        rows = make_paper_data(**ROWS)["sst2"][split]
        named = [{**row, "label": ("negative", "positive")[row["label"]]} for row in rows]
        write_rows(folder / "named" / "sst2" / f"{split}.jsonl", named)
    assert load_corpus("sst2", str(folder / "named")).train.to_list() == numbers.train.to_list()


def test_files_may_be_unpacked(folder):
    packed = load_corpus("ner", str(folder)).train.to_list()
    for split, rows in make_paper_data(**ROWS)["conll2003"].items():
        write_rows(folder / "plain" / "conll2003" / f"{split}.jsonl", rows)
    assert load_corpus("ner", str(folder / "plain")).train.to_list() == packed


@pytest.mark.parametrize("rows", [None, 11])
def test_the_halves_are_disjoint_and_all_there_is(folder, rows):
    corpus = load_corpus("pos", str(folder), rows)
    queries, unseen = (part["tokens"][:] for part in (corpus.queries, corpus.unseen))
    assert len(queries) == (rows or 30) // 2
    assert queries + unseen == corpus.train["tokens"][:]
    assert not {tuple(words) for words in queries} & {tuple(words) for words in unseen}


def test_rows_can_be_fewer(folder):
    corpus = load_corpus("ner", str(folder), 10, 4)
    assert (len(corpus.train), len(corpus.validation), len(corpus.evaluation)) == (10, 4, 4)
    whole = load_corpus("ner", str(folder), 10_000, 10_000)
    assert (len(whole.train), len(whole.validation), len(whole.evaluation)) == (30, 8, 6)
    assert corpus.train.to_list() == whole.train.to_list()[:10] and corpus.labels == whole.labels


def test_a_digest_names_the_rows_and_labels_wherever_they_lie(folder, tmp_path):
    usual = load_corpus("sst2", str(folder)).digest
    splits = make_paper_data(**ROWS)["sst2"]

    def digest(name, splits):
        for split, rows in splits.items():
            write_rows(tmp_path / name / "sst2" / f"{split}.jsonl", rows)
        return load_corpus("sst2", str(tmp_path / name)).digest

    assert digest("elsewhere", splits) == usual
    for split in ("train", "validation"):
        turned = [{**splits[split][0], "label": 1 - splits[split][0]["label"]}, *splits[split][1:]]
        assert digest(f"turned-{split}", {**splits, split: turned}) != usual
    assert load_corpus("sst2", str(folder), 10).digest != usual


# -- the Hub


def on_the_hub(api, repository, path, rows, features, revision="main"):
    """Upload rows as the Parquet file that the Hub holds of a split."""
    file = io.BytesIO()
    Dataset.from_list(rows, features=features).to_parquet(file)
    operation = CommitOperationAdd(path, file.getvalue())
    api.create_commit(repository, [operation], commit_message=path, repo_type="dataset", revision=revision)


@pytest.fixture
def stocked(hub):
    """A Hub that holds the same rows as data sets of the paper's names and features."""
    for user in ("nyu-mll", "eriktks"):
        token = hub.add_user(user)
    api, data = HfApi(token=hub.token("nyu-mll")), make_paper_data(**ROWS)
    api.create_repo("nyu-mll/glue", repo_type="dataset")
    configs = []
    for subset, names in (("sst2", TASKS["sst2"].labels), ("mrpc", TASKS["mrpc"].labels)):
        files = []
        for split, rows in data[subset].items():
            features = {name: Value("string") for name in rows[0]} | {"label": ClassLabel(names=list(names))}
            numbered = [{**row, "idx": place} for place, row in enumerate(rows)]
            path = f"{subset}/{split}-00000-of-00001.parquet"
            on_the_hub(api, "nyu-mll/glue", path, numbered, Features({**features, "idx": Value("int32")}))
            files.append({"split": split, "path": f"{subset}/{split}-*"})
        configs.append({"config_name": subset, "data_files": files})
    card = f"---\nconfigs: {json.dumps(configs)}\n---\n".encode()
    api.upload_file(path_or_fileobj=card, path_in_repo="README.md", repo_id="nyu-mll/glue", repo_type="dataset")
    api = HfApi(token=token)
    api.create_repo("eriktks/conll2003", repo_type="dataset")
    api.create_branch("eriktks/conll2003", branch="refs/convert/parquet", repo_type="dataset")
    features = {"id": Value("string"), "tokens": List(Value("string"))}
    features |= {"pos_tags": List(ClassLabel(names=POS_TAGS)), "ner_tags": List(ClassLabel(names=NER_TAGS))}
    for split, rows in data["conll2003"].items():
        numbered = [{**row, "id": str(place)} for place, row in enumerate(rows)]
        on_the_hub(
            api,
            "eriktks/conll2003",
            f"conll2003/{split}/0000.parquet",
            numbered,
            Features(features),
            revision="refs/convert/parquet",
        )
    return hub


def test_the_hub_gives_the_same_corpora_as_a_folder(stocked, folder):
    for name, task in TASKS.items():
        ours, theirs = load_corpus(name, str(folder)), load_corpus(name)
        for part in ("train", "validation", "evaluation"):
            one, other = getattr(ours, part), getattr(theirs, part)
            assert ours.texts(one).to_list() == theirs.texts(other).to_list()
            assert ours.gold(one) == theirs.gold(other)
        if task.labels:
            assert ours.labels == theirs.labels == task.labels
        else:
            assert set(ours.labels) <= set(theirs.labels), "in a folder, the tags that occur"


# -- what is refused


def test_a_missing_file_is_named_with_what_a_folder_holds(folder):
    (folder / "conll2003" / "test.jsonl.gz").unlink()
    with pytest.raises(DatasetError, match=r"NER: there is no .*conll2003/test\.jsonl\.gz \(nor \.jsonl\); --data is"):
        load_corpus("ner", str(folder))
    (folder / "sst2" / "test.jsonl.gz").unlink()
    assert len(load_corpus("sst2", str(folder)).evaluation) == 8, "GLUE's test split has no labels and is not read"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("mrpc", {"sentence2": None}, r"MRPC: the split train has the columns .*; \['sentence2'\] are missing"),
        ("ner", {"ner_tags": None}, r"NER: .* \['ner_tags'\] are missing"),
        ("sst2", {"label": "neutral"}, r"SST-2: the label 'neutral' is not one of \['negative', 'positive'\]"),
        ("pos", {"pos_tags": [3, 4]}, "POS: the column pos_tags holds numbers without names; expected tags by name"),
    ],
)
def test_missing_columns_and_strange_labels_are_named(folder, name, change, message):
    task = TASKS[name]
    rows = [{**row, **change} for row in make_paper_data(**ROWS)[task.folder]["train"]]
    rows = [{column: value for column, value in row.items() if value is not None} for row in rows]
    write_rows(folder / task.folder / "train.jsonl.gz", rows)
    with pytest.raises(DatasetError, match=message):
        load_corpus(name, str(folder))


def test_a_file_that_is_not_json_lines_is_named(folder):
    (folder / "sst2" / "train.jsonl.gz").unlink()
    (folder / "sst2" / "train.jsonl").write_text("sentence,label\nfine,1\n")
    with pytest.raises(DatasetError, match=r"SST-2: .*train\.jsonl is not a file of JSON lines"):
        load_corpus("sst2", str(folder))


def test_without_a_connection_the_user_is_told_of_data(hub):
    with hub.offline(), pytest.raises(DatasetError, match=r"cannot read nyu-mll/glue from the Hub .* with --data"):
        load_corpus("sst2")
    with pytest.raises(DatasetError, match=r"cannot read eriktks/conll2003 from the Hub .* with --data"):
        load_corpus("pos")
