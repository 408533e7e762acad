"""The options that commands share: the same option looks and means the same everywhere.

A group of options that commands have in common is a dataclass; ``prints_outcome`` puts its fields in the place of a
parameter of that type.
"""

import glob
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

# The words of drw_hf.keys.choices, and others, spelt out: importing the package's own would make --help wait.
LabelKind = Literal["soft", "hard"]
Task = Literal["sequence-classification", "token-classification"]
Law = Literal["direct", "paper"]
Scope = Literal["predicted", "all"]
Mark = Literal["tilt", "cosine"]
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


def unseasoned_argument(help: str) -> typer.models.ArgumentInfo:
    """A folder with a key, whatever it is or waits for."""
    return typer.Argument(help=f"{help}.", metavar="KEY", exists=True, file_okay=False)


def data_argument(help: str, metavar: str = "DATA") -> typer.models.ArgumentInfo:
    """A data set, by its folder, file or Hub id."""
    kinds = "a .jsonl, .csv, .parquet or .txt file, a folder of save_to_disk, or a data set on the Hub"
    return typer.Argument(help=f"{help}: {kinds}.", metavar=metavar, autocompletion=complete_path)


def path_option(help: str, metavar: str = "DATA", name: str | None = None) -> typer.models.OptionInfo:
    """A folder or a file that may be something else as well; named after its parameter, like all options here."""
    return typer.Option(*([name] if name else []), help=help, metavar=metavar, autocompletion=complete_path)


def model_option(name: str, help: str) -> typer.models.OptionInfo:
    """A model, by its folder or Hub id."""
    return path_option(f"{help}: folder or Hub id.", "FOLDER_OR_REPO", name)


def output_option(help: str, metavar: str = "FOLDER") -> typer.models.OptionInfo:
    """Where something is written."""
    return typer.Option(help=help, metavar=metavar)


def file_option(help: str, metavar: str = "FILE") -> typer.models.OptionInfo:
    """A file that is there."""
    return typer.Option(help=help, metavar=metavar, exists=True, dir_okay=False)


def folder_option(help: str, metavar: str = "FOLDER") -> typer.models.OptionInfo:
    """A folder that is there."""
    return typer.Option(help=help, metavar=metavar, exists=True, file_okay=False)


def name_option(help: str, metavar: str = "NAME") -> typer.models.OptionInfo:
    """A word, or several if the option may be repeated."""
    return typer.Option(help=help, metavar=metavar)


def count_option(help: str, least: int = 1) -> typer.models.OptionInfo:
    """How many of something."""
    return typer.Option(help=help, min=least, metavar="N")


def number_option(help: str, metavar: str | None = None, most: float | None = None) -> typer.models.OptionInfo:
    """A number that is not negative."""
    return typer.Option(help=help, min=0.0, max=most, metavar=metavar)


def flag(name: str, help: str) -> typer.models.OptionInfo:
    """What is done if the option is there."""
    return typer.Option(name, help=help)


AsJson = Annotated[bool, flag("--json", "Print one JSON document on stdout, and nothing else there.")]
KeyOrRing = Annotated[str, path_option("Folder or repository of the key, or of a key ring.", "FOLDER_OR_REPO")]
OptionalKey = Annotated[
    str | None,
    path_option("Folder or repository of the key (default: the one beside a protected model).", "FOLDER_OR_REPO"),
]
KeyFolder = Annotated[Path, output_option("Folder for the key.")]
PassphraseFile = Annotated[
    Path | None,
    file_option("File with the passphrase of the key. Else it is taken from DRW_PASSPHRASE, or asked for."),
]
Overwrite = Annotated[bool, flag("--overwrite", "Write even where something lies already.")]
TaskOption = Annotated[Task | None, typer.Option(help="The task, where the model does not tell it.")]
TextColumns = Annotated[
    list[str] | None,
    name_option("Column of texts or words; twice for pairs. Found by its usual name if left out."),
]
LabelColumn = Annotated[str | None, name_option("Column of true labels. Found by its usual name if left out.")]
Split = Annotated[str | None, name_option("Which split of the data, where it has several.")]
Subset = Annotated[str | None, name_option("Which subset (configuration) of a data set on the Hub.")]
Limit = Annotated[int | None, count_option("Take so many rows at the most.")]
BatchSize = Annotated[int, count_option("Rows at once.")]
MaxLength = Annotated[int | None, count_option("Cut texts after so many tokens (default: the model's limit).")]


@dataclass(frozen=True)
class Reading:
    """Which rows and columns of data are read."""

    text_column: TextColumns = None
    split: Split = None
    subset: Subset = None

    def load(self, name: str, task: Task | None, limit: int | None = None) -> Any:
        """The rows of a data set of this name, for a model of this task."""
        from ..asking.data import load_data

        columns, split, subset = self.text_column, self.split, self.subset
        return load_data(name, task=task, text_columns=columns, split=split, subset=subset, limit=limit)


@dataclass(frozen=True)
class Batches:
    """How much is asked at once."""

    batch_size: BatchSize = 32
    max_length: MaxLength = None


# -- of detect, verify and report

Evidence = Annotated[
    Path,
    typer.Argument(help="The JSON that detect --output or DetectionResult.save wrote; its probe lies beside."),
]

CommitmentRepo = Annotated[
    str | None, typer.Option("--repo", help="Repository in which the commitment was published.", metavar="ID")
]
TrustedRoots = Annotated[
    list[Path] | None,
    file_option("Root certificate of a time-stamping authority that you trust. May be repeated.", "PEM"),
]
FirstSeen = Annotated[str | None, name_option("When the suspect was first seen (UTC).", "DATE")]

# -- of plan and keygen

MarkOption = Annotated[
    Mark | None,
    typer.Option(help="The mark (default: tilt; cosine, the paper's, where one of its own options is given)."),
]
MarginBudget = Annotated[
    float | None,
    number_option(
        "tilt: the part of the budget for drawing close calls of hard answers, like 0.1 (default: none).", most=100
    ),
]
Frequency = Annotated[float, number_option("Angular frequency of the cosine.")]
ScopeOption = Annotated[
    Scope | None, typer.Option(help="cosine: mark answers that say the target class (predicted, the default), or all.")
]
HashRuleOption = Annotated[
    HashRule | None, typer.Option(help="cosine: which token of a text is hashed (default: second; taggers: token).")
]
Temperature = Annotated[
    float | None,
    number_option("tilt: the model's calibration temperature, where the data has no labels to fit it by."),
]


@dataclass(frozen=True)
class Seasoning:
    """What is fixed before a key's numbers are drawn."""

    season_round: Annotated[
        str | None,
        name_option(
            "Let public randomness choose the key's numbers: a round that is yet to be drawn. Sources: quicknet, "
            "default (drand), nist. Times in UTC, or from now: quicknet:2030-01-01T12:00, quicknet:+2h.",
            "SOURCE:TIME",
        ),
    ] = None
    season_certificate: Annotated[
        Path | None, file_option("For nist: the certificate that signs its pulses.", "PEM")
    ] = None
    season_texts: Annotated[
        str | None, name_option("The rule by which the texts that a suspect is asked will be chosen.", "TEXT")
    ] = None


# -- of detect and identify

Suspect = Annotated[
    str,
    typer.Argument(
        help="Who is asked: folder, Hub id, or the https:// address of an inference service.",
        metavar="SUSPECT",
        autocompletion=complete_path,
    ),
]
Texts = Annotated[str, data_argument("What about; some hundred texts, better thousands", "TEXTS")]
OptionalTexts = Annotated[str | None, data_argument("What about; some hundred texts, better thousands", "TEXTS")]
Logged = Annotated[
    str | None, path_option("Log of the service (drw-hf serve --log): what was asked of it is asked.", "FOLDER")
]
Victim = Annotated[str | None, model_option("--victim", "Your own model, protected or not; it sharpens the test")]
VictimTokenizer = Annotated[str | None, model_option("--tokenizer", "Your own tokenizer, where there is no --victim")]
Reference = Annotated[
    str | None, model_option("--reference", "A student of your clean model, which the key has nothing to do with")
]
LabelMap = Annotated[
    list[str] | None,
    name_option("Renamed label, as in LABEL_0=negative; OLD= for none of yours. May be repeated.", "OLD=NEW"),
]
GoldColumn = Annotated[str | None, name_option("Column of true labels.")]
MaxQueries = Annotated[int | None, count_option("Ask so many texts at the most.")]
Plot = Annotated[Path | None, output_option("Draw the figure.", "PNG")]


@dataclass(frozen=True)
class OwnModel:
    """What the owner has of the victim."""

    victim: Victim = None
    tokenizer: VictimTokenizer = None

    def __post_init__(self) -> None:
        if not (self.victim or self.tokenizer):
            raise typer.BadParameter(
                "neither --victim nor --tokenizer was given; expected one of them, because the mark is looked up by "
                "the tokens of your tokenizer: pass --victim with your model, or --tokenizer with its tokenizer alone"
            )


@dataclass(frozen=True)
class Tries:
    """What p-values are corrected for, and what the verdict goes by."""

    suspects_tested: Annotated[int, count_option("Suspects tested in all, this one included.")] = 1
    looks: Annotated[int, count_option("Looks at the data in all, this one included.")] = 1
    level: Annotated[float, typer.Option(help="Level of the verdict.")] = 1e-3


Controls = Annotated[
    list[str] | None, model_option("--control", "A model known to be innocent, tested beside. May be repeated")
]

# -- of rings

Ring = Annotated[
    str, typer.Argument(help="Folder or repository of the key ring.", metavar="RING", autocompletion=complete_path)
]
RingFolder = Annotated[
    Path,
    typer.Argument(help="Folder of the key ring, which is changed.", metavar="RING", exists=True, file_okay=False),
]
Users = Annotated[Path, file_option("Text file with the users, one per line.")]
DeclaredUsers = Annotated[
    Path | None, file_option("Text file with the users declared: refuse a user who is not among them.")
]
User = Annotated[str, name_option("The user.")]
Epoch = Annotated[int | None, count_option("Epoch of the ring (default: the present one).", least=0)]


@dataclass(frozen=True)
class WhoseKey:
    """Whose key is meant, where a key ring is given in the place of a key."""

    user: Annotated[str | None, name_option("Whose key, where --key is a key ring.")] = None
    epoch: Epoch = None
