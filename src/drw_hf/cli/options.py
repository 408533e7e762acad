"""The options that commands share: the same option looks and means the same everywhere."""

import glob
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

# The words of drw_hf.keys.choices, and others, spelt out: importing the package's own would make --help wait.
LabelKind = Literal["soft", "hard"]
Task = Literal["sequence-classification", "token-classification"]
Law = Literal["direct", "paper"]
Scope = Literal["predicted", "all"]
HashRule = Literal["token", "second", "rarest", "keyed"]
RepoType = Literal["model", "dataset", "space"]
ProbedWith = Literal["queries", "unseen"]


class Part(StrEnum):  # may be repeated, for which typer takes no Literal
    """What of the paper is repeated."""

    tables = "tables"
    modes = "modes"
    epsilon = "epsilon"
    category = "category"
    tau = "tau"
    rule = "rule"
    limits = "limits"
    case = "case"


class PaperTask(StrEnum):
    """The paper's tasks."""

    sst2 = "sst2"
    mrpc = "mrpc"
    pos = "pos"
    ner = "ner"


def complete_path(incomplete: str) -> list[str]:
    """Paths that begin so, for the shell: a model, a key or data may be a folder or file as well as a Hub id."""
    found = sorted(glob.glob(glob.escape(os.path.expanduser(incomplete)) + "*"))
    return [path + os.sep if os.path.isdir(path) else path for path in found]


def model_argument(help: str, metavar: str = "MODEL") -> typer.models.ArgumentInfo:
    """A model, by its folder or Hub id."""
    return typer.Argument(help=f"{help}: folder or Hub id.", metavar=metavar, autocompletion=complete_path)


def data_argument(help: str, metavar: str = "DATA") -> typer.models.ArgumentInfo:
    """A data set, by its folder, file or Hub id."""
    kinds = "a .jsonl, .csv, .parquet or .txt file, a folder of save_to_disk, or a data set on the Hub"
    return typer.Argument(help=f"{help}: {kinds}.", metavar=metavar, autocompletion=complete_path)


def model_option(name: str, help: str) -> typer.models.OptionInfo:
    """The same as an option."""
    return typer.Option(
        name, help=f"{help}: folder or Hub id.", metavar="FOLDER_OR_REPO", autocompletion=complete_path
    )


def path_option(help: str, metavar: str = "DATA") -> typer.models.OptionInfo:
    """A folder or a file that may be something else as well."""
    return typer.Option(help=help, metavar=metavar, autocompletion=complete_path)


def key_option(help: str) -> typer.models.OptionInfo:
    """A key, by its folder or repository."""
    return typer.Option("--key", help=help, metavar="FOLDER_OR_REPO", autocompletion=complete_path)


def file_option(name: str, help: str, metavar: str = "FILE") -> typer.models.OptionInfo:
    """A file that is there."""
    return typer.Option(name, help=help, metavar=metavar, exists=True, dir_okay=False)


def name_option(name: str, help: str, metavar: str = "NAME") -> typer.models.OptionInfo:
    """A word, or several if the option may be repeated."""
    return typer.Option(name, help=help, metavar=metavar)


def count_option(name: str, help: str, least: int = 1) -> typer.models.OptionInfo:
    """How many of something."""
    return typer.Option(name, help=help, min=least, metavar="N")


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
Key = Annotated[str, key_option("Folder or repository of the key.")]
KeyOrRing = Annotated[str, key_option("Folder or repository of the key, or of a key ring.")]
OptionalKey = Annotated[
    str | None, key_option("Folder or repository of the key (default: the one beside a protected model).")
]
KeyFolder = Annotated[Path, typer.Option(help="Folder for the key.", metavar="FOLDER")]
PassphraseFile = Annotated[
    Path | None,
    file_option(
        "--passphrase-file",
        "File with the passphrase of the key. Else it is taken from DRW_PASSPHRASE, or asked for.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write even where something lies already.")]
TaskOption = Annotated[Task | None, typer.Option("--task", help="The task, where the model does not tell it.")]
TextColumns = Annotated[
    list[str] | None,
    name_option("--text-column", "Column of texts or words; twice for pairs. Found by its usual name if left out."),
]
GoldColumn = Annotated[str | None, name_option("--gold-column", "Column of true labels.")]
LabelColumn = Annotated[
    str | None, name_option("--label-column", "Column of true labels. Found by its usual name if left out.")
]
Split = Annotated[str | None, name_option("--split", "Which split of the data, where it has several.")]
Subset = Annotated[str | None, name_option("--subset", "Which subset (configuration) of a data set on the Hub.")]
Limit = Annotated[int | None, count_option("--limit", "Take so many rows at the most.")]
BatchSize = Annotated[int, count_option("--batch-size", "Rows at once.")]
MaxLength = Annotated[
    int | None, count_option("--max-length", "Cut texts after so many tokens (default: the model's limit).")
]
CommitmentRepo = Annotated[
    str | None, name_option("--repo", "Repository in which the commitment was published.", "ID")
]
TrustedRoots = Annotated[
    list[Path] | None,
    file_option(
        "--trusted-root", "Root certificate of a time-stamping authority that you trust. May be repeated.", "PEM"
    ),
]
FirstSeen = Annotated[
    str | None, name_option("--suspect-first-seen", "When the suspect was first seen (UTC).", "DATE")
]

# -- of plan and keygen

Frequency = Annotated[float, typer.Option(help="Angular frequency of the cosine.", min=0.0)]
ScopeOption = Annotated[Scope, typer.Option(help="Mark answers that say the target class, or all.")]
HashRuleOption = Annotated[
    HashRule | None, typer.Option(help="Which token of a text is hashed (default: second; taggers: token).")
]

# -- of detect and identify

Suspect = Annotated[
    str,
    typer.Argument(
        help="Who is asked: folder, Hub id, or the https:// address of an inference service.",
        metavar="SUSPECT",
        autocompletion=complete_path,
    ),
]
Texts = Annotated[str, data_argument("What about; some hundred texts, better thousands", metavar="TEXTS")]
Victim = Annotated[str | None, model_option("--victim", "Your own model, protected or not; it sharpens the test")]
VictimTokenizer = Annotated[str | None, model_option("--tokenizer", "Your own tokenizer, where there is no --victim")]
SuspectsTested = Annotated[int, count_option("--suspects-tested", "Suspects tested in all, this one included.")]
Looks = Annotated[int, count_option("--looks", "Looks at the data in all, this one included.")]
Level = Annotated[float, typer.Option(help="Level of the verdict.")]
LabelMap = Annotated[
    list[str] | None, name_option("--label-map", "Renamed label, as in LABEL_0=negative. May be repeated.", "OLD=NEW")
]
MaxQueries = Annotated[int | None, count_option("--max-queries", "Ask so many texts at the most.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the figure.", metavar="PNG")]

# -- of rings

Ring = Annotated[
    str, typer.Argument(help="Folder or repository of the key ring.", metavar="RING", autocompletion=complete_path)
]
RingFolder = Annotated[
    Path,
    typer.Argument(help="Folder of the key ring, which is changed.", metavar="RING", exists=True, file_okay=False),
]
RingOption = Annotated[str, model_option("--ring", "Your key ring")]
Users = Annotated[Path, file_option("--users", "Text file with the users, one per line.")]
User = Annotated[str, name_option("--user", "The user.")]
Epoch = Annotated[int | None, count_option("--epoch", "Epoch of the ring (default: the present one).", least=0)]
