"""The model card of a protected model: what a downloader must know, and nothing of the key but its commitment.

Our part of a README stands between two markers and is replaced with every push; everything outside of them is the
owner's and is kept as it is, to the letter.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import yaml
from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import yaml_dump
from transformers import PreTrainedConfig

from ..checks import is_number, whole_number
from ..errors import ConfigurationError, UnsupportedModelError
from ..watermark.configuration import WatermarkedConfig, hub_name_of, is_hub_id
from ..watermark.rounding import smallest_score

if TYPE_CHECKING:
    from jinja2 import Template

BEGIN, END = "<!-- drw_hf:begin -->", "<!-- drw_hf:end -->"

# What a card says of each task.
_WORDS = {
    "sequence-classification": {
        "pipeline_tag": "text-classification",
        "what": "text classifier",
        "model_class": "WatermarkedModelForSequenceClassification",
    },
    "token-classification": {
        "pipeline_tag": "token-classification",
        "what": "tagger",
        "model_class": "WatermarkedModelForTokenClassification",
    },
}
_TAGS = ("drw_hf", "transformers", "watermark", "distillation-resistant-watermarking")
_OUTPUTS = ("clean", "protected")
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")


def model_card(
    model: Any,
    *,
    existing: str | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    base_model: str | None = None,
    dataset: str | None = None,
    language: str | Sequence[str] | None = None,
    license: str | None = None,
    tags: Sequence[str] = (),
) -> str:
    """The text of a protected model's README.md.

    Parameters
    ----------
    model : WatermarkedModelForSequenceClassification or WatermarkedModelForTokenClassification
        The protected model.
    existing : str, optional
        The README there is already. Its text is kept; so is its metadata, but for what is given here by name. Our part
        of it is replaced, or stands after its text if there is none yet.
    metrics : mapping, optional
        What the model reaches by name of the metric, unmarked and marked, over how many items (``n`` may be left out):
        ``{"accuracy": {"clean": 0.93, "protected": 0.92, "n": 872}}``, as :func:`drw_hf.planning.measure_accuracy`
        returns it.
    base_model : str, optional
        The Hub id of the model it was made from; by default that of the wrapped model, if it was loaded from the Hub.
    dataset : str, optional
        The Hub id or the name of the data set the metrics were measured on. Without it they are in the text alone, and
        not in the metadata.
    language, license : optional
        As in the metadata of any card.
    tags : sequence of str
        Tags to add to ours and to those of the existing card.

    Returns
    -------
    str
        The card. Applied to its own result, with the same arguments, this changes nothing.

    Raises
    ------
    ConfigurationError
        For metrics that are not finite numbers, or a local path where a Hub id should be.
    """
    config = getattr(model, "config", model)
    if not isinstance(config, WatermarkedConfig) or not config.key_commitment or config.task is None:
        raise UnsupportedModelError(
            f"a {type(model).__name__} is no protected model; wrap it with from_model or from_pretrained(..., key=...)"
        )
    words = _WORDS[config.task]
    measured = _checked_metrics(metrics)
    no_place = "a path on this machine has no place in a card"
    # A data set has at most one slash, as in owner/name: more of them, or one in front, make it the path of a folder.
    if dataset is not None and (not _is_name(dataset) or dataset.count("/") > 1):
        raise ConfigurationError(f"dataset= is not the Hub id or the name of a data set; {no_place}")
    if base_model is not None and not is_hub_id(base_model):
        raise ConfigurationError(f"base_model= is no Hub id (name or owner/name); {no_place}")
    given: dict[str, Any] = {
        "language": language if language is None or isinstance(language, str) else list(language),
        "license": license,
        "base_model": base_model,
    }
    base_model = base_model or hub_name_of(cast(PreTrainedConfig, config.victim_config))
    existing = (existing or "").removeprefix("\ufeff")
    old_metadata, block, body = _split(existing)
    results = [
        EvalResult(words["pipeline_tag"], dataset, dataset, name, row[output], metric_name=f"{name} ({output} output)")
        for name, row in measured.items()
        for output in _OUTPUTS
        if dataset
    ]
    ours = ModelCardData(
        **{**given, "base_model": base_model},
        library_name="drw_hf",
        pipeline_tag=words["pipeline_tag"],
        tags=[*_TAGS, config.task, *([tags] if isinstance(tags, str) else tags)],
        model_name=_model_name(old_metadata, base_model) if results else None,
        eval_results=results or None,
    )
    metadata = _merged(old_metadata, ours.to_dict(), {name for name, value in given.items() if value is not None})
    windows = existing.count("\r\n")
    line_break = "\r\n" if windows > existing.count("\n") - windows else "\n"  # as in the owner's text
    if block is None or metadata != old_metadata:
        block = _block(metadata, block, line_break)
    text = _template().render(**words, **_shown(config), metrics=measured, dataset=dataset).strip()
    part = f"{BEGIN}\n{text}\n{END}".replace("\n", line_break)
    return block + _with_part(body, part, line_break)


# -- the text


def _shown(config: WatermarkedConfig) -> dict[str, Any]:
    """What a card says of the answers and the key. The mark is not named: it is a parameter of the key."""
    digits, n_classes = config.digits or 0, len(config.id2label or ())
    smallest = np.format_float_positional(smallest_score(digits, n_classes), 3, fractional=False, trim="-")
    return {
        "commitment": config.key_commitment,
        "label_kind": config.label_kind,
        "digits": digits,
        "smallest": smallest,
    }


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True).get_template("card.md")


def _with_part(body: str, part: str, line_break: str) -> str:
    """The body with our part in the place of the old one, or after the owner's text where there is none."""
    end = body.find(END)
    while end >= 0:
        begin = body.rfind(BEGIN, 0, end)  # the nearest: an owner's text may hold a marker that lost its other half
        if begin >= 0:
            return body[:begin] + part + body[end + len(END) :]
        end = body.find(END, end + len(END))
    gap = line_break if not body or body.endswith(("\n", "\r")) else 2 * line_break
    return f"{body}{gap}{part}{line_break}"


# -- the metadata


class _Loader(yaml.SafeLoader):
    """YAML as the Hub reads it: ``language: no`` is Norwegian, and a date is what was written."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, _BOOLEAN if tag.endswith(":bool") else pattern)
        for tag, pattern in resolvers
        if not tag.endswith(":timestamp")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _split(text: str) -> tuple[dict[Any, Any], str | None, str]:
    """A card's metadata, the block they stand in, and the rest; a block that is no metadata is part of the rest."""
    match = REGEX_YAML_BLOCK.search(text)
    try:
        metadata = yaml.load(match.group(2), Loader=_Loader) if match else None
    except Exception:  # YAMLError, or whatever a value's constructor trips over
        match = None
    if match is None or not isinstance(metadata, dict | None):
        return {}, None, text
    return metadata or {}, text[: match.end()], text[match.end() :]


def _block(metadata: Mapping[Any, Any], old: str | None, line_break: str) -> str:
    """The metadata as a block of YAML, with the comments that stood at the head of the old one."""
    head = re.match(r"\s*---\s*((?:#[^\r\n]*\s+)*)", old or "")
    comments = re.split(r"[\r\n]+", head[1].strip()) if head and head[1] else []
    dumped = yaml_dump(dict(metadata), sort_keys=False).strip("\n").split("\n")
    return line_break.join(["---", *comments, *dumped, "---", ""])


def _merged(theirs: Mapping[Any, Any], ours: Mapping[str, Any], given: set[str]) -> dict[Any, Any]:
    """What the card says, what it lacks of ours, and what was given by name in this call."""
    merged = dict(theirs)
    for name, value in ours.items():
        there = merged.get(name)
        if there is None or name in given:
            merged[name] = value
        elif name == "tags" and isinstance(there, str | list):
            tags = [there] if isinstance(there, str) else there
            merged[name] = tags + [tag for tag in value if tag not in tags]
        elif name == "model-index" and isinstance(there, list):  # what is not of the Hub's form is not ours to mend
            merged[name] = _merged_index(there, value[0])
    return merged


def _merged_index(theirs: list[Any], ours: Mapping[str, Any]) -> list[Any]:
    """Their model-index with our results in the place of those of an earlier push; all others stay."""
    index = copy.deepcopy(theirs)
    entries = [entry for entry in index if isinstance(entry, dict) and isinstance(entry.get("results"), list)]
    wanted = {_identity(result, metric) for result in ours["results"] for metric in result["metrics"]}
    home = next((entry for entry in entries if entry.get("name") == ours["name"]), None)
    for entry in entries:
        kept = []
        for result in entry["results"]:
            known = result.get("metrics") if isinstance(result, dict) else None
            if isinstance(known, list):
                foreign = [metric for metric in known if _identity(result, metric) not in wanted]
                if len(foreign) < len(known):
                    home, result = entry, {**result, "metrics": foreign}
                    if not foreign:
                        continue
            kept.append(result)
        entry["results"] = kept
    if home is None:
        index.append(copy.deepcopy(dict(ours)))
    else:
        home["results"] += copy.deepcopy(ours["results"])
    return index


def _identity(result: Mapping[str, Any], metric: Any) -> tuple[str, ...] | None:
    """What tells a measurement from another: task, data set, and the metric's name, which says of which output."""
    task, dataset = result.get("task"), result.get("dataset")
    if not (isinstance(task, dict) and isinstance(dataset, dict) and isinstance(metric, dict)):
        return None
    return tuple(repr(value) for value in (task.get("type"), dataset.get("type"), metric.get("name")))


def _model_name(metadata: Mapping[Any, Any], base_model: str | None) -> str:
    """The name our results go under: that of the only model the card lists, or one made of the base model's."""
    match metadata.get("model-index"):
        case [{"name": str(name)}] if name:
            return name
    return f"{base_model.split('/')[-1]}, protected by drw_hf" if base_model else "protected by drw_hf"


# -- what may go into a card


def _checked_metrics(metrics: Any) -> dict[str, dict[str, Any]]:
    """The metrics as plain numbers, in their order."""
    if not isinstance(metrics, Mapping | None):
        raise ConfigurationError(
            f"metrics must map names to {{'clean': ..., 'protected': ...}}, not be a {type(metrics).__name__}"
        )
    checked = {}
    for name, row in (metrics or {}).items():
        if not _is_name(name):
            raise ConfigurationError(f"metrics: {name!r} is no name of a metric; give a short one such as 'accuracy'")
        if not isinstance(row, Mapping) or not set(_OUTPUTS) <= set(row) <= {*_OUTPUTS, "n"}:
            found = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
            raise ConfigurationError(
                f"metrics[{name!r}]: expected 'clean' and 'protected' (and perhaps 'n'), got {found}"
            )
        for output in _OUTPUTS:
            if not is_number(row[output]):
                raise ConfigurationError(f"metrics[{name!r}][{output!r}] is {row[output]!r}; expected a finite number")
        n = whole_number(f"metrics[{name!r}]['n']", row["n"], error=ConfigurationError) if "n" in row else ""
        checked[name] = {"clean": float(row["clean"]), "protected": float(row["protected"]), "n": n}
    return checked


def _is_name(value: Any) -> TypeGuard[str]:
    """Whether this stands in a table and in a sentence without breaking them."""
    return isinstance(value, str) and re.fullmatch(r"[\w@%][\w@%.,:+() /-]*", value) is not None
