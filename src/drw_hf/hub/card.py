"""The model card of a protected model: what a downloader must know, and nothing of the key but its commitment.

Our part of a README stands between two markers and is replaced with every push; everything outside of them is the
owner's and is kept as it is, to the letter.
"""

import copy
import functools
import math
import numbers
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, cast

import yaml
from huggingface_hub import EvalResult, ModelCardData
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import yaml_dump
from transformers import PreTrainedConfig

from ..errors import ConfigurationError, UnsupportedModelError
from ..watermark.configuration import WatermarkedConfig, hub_name_of, is_hub_id

BEGIN, END = "<!-- drw_hf:begin -->", "<!-- drw_hf:end -->"

_TEMPLATE = Path(__file__).parent / "templates" / "card.md"
_PIPELINE_TAGS = {"sequence-classification": "text-classification", "token-classification": "token-classification"}
_WHAT = {"sequence-classification": "text classifier", "token-classification": "tagger"}
_CLASSES = {
    "sequence-classification": "WatermarkedModelForSequenceClassification",
    "token-classification": "WatermarkedModelForTokenClassification",
}
_TAGS = ("drw_hf", "transformers", "watermark", "distillation-resistant-watermarking")
_OUTPUTS = {"clean": "clean output", "protected": "protected output"}
_BOOLEAN = re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")
_NAME = re.compile(r"[\w@%][\w@%.,:+() /-]*")  # what stands in a table and in a sentence without breaking them


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
    task = config.task
    measured = _checked_metrics(metrics)
    _check_dataset(dataset)
    results = _eval_results(measured, dataset, task)
    said, block, body = _split((existing or "").removeprefix("\ufeff"))
    given: dict[str, Any] = {
        "language": language if language is None or isinstance(language, str) else list(language),
        "license": license,
        "base_model": _checked_base_model(base_model),
    }
    base_model = base_model or hub_name_of(cast(PreTrainedConfig, config.victim_config))
    ours = ModelCardData(
        **{**given, "base_model": base_model},
        library_name="drw_hf",
        pipeline_tag=_PIPELINE_TAGS[task],
        tags=[*_TAGS, task, *([tags] if isinstance(tags, str) else tags)],
        model_name=_model_name(said, base_model) if results else None,
        eval_results=results or None,
    )
    metadata = _merged(said, ours.to_dict(), {name for name, value in given.items() if value is not None})
    line_break = _line_break(existing or "")
    if block is None or metadata != said:
        block = _block(metadata, block, line_break)
    part = f"{BEGIN}\n{_our_text(task, config.key_commitment, measured, dataset)}\n{END}".replace("\n", line_break)
    return block + _with_part(body, part, line_break)


# -- the text


def _our_text(task: str, commitment: str, metrics: Mapping[str, Mapping[str, Any]], dataset: str | None) -> str:
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        what=_WHAT[task],
        model_class=_CLASSES[task],
        pipeline_tag=_PIPELINE_TAGS[task],
        commitment=commitment,
        results=_results(metrics, dataset),
    ).strip()


def _results(metrics: Mapping[str, Mapping[str, Any]], dataset: str | None) -> str:
    """The table of what the mark costs; empty without metrics."""
    if not metrics:
        return ""
    where = f", measured on {dataset}" if dataset else ""
    rows = [
        f"| {name} | {row['clean']:.4f} | {row['protected']:.4f} | {row.get('n', '')} |"
        for name, row in metrics.items()
    ]
    table = ["| metric | clean model | protected answers | items |", "| --- | --- | --- | --- |", *rows]
    lines = ["", "### What it reaches", "", f"Without the mark and with it{where}:", "", *table, ""]
    return "\n".join(lines)


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


def _line_break(text: str) -> str:
    """The line break that the owner's text is written with."""
    windows = text.count("\r\n")
    return "\r\n" if windows > text.count("\n") - windows else "\n"


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
    if match is None:
        return {}, None, text
    try:
        metadata = yaml.load(match.group(2), Loader=_Loader)
    except Exception:  # YAMLError, or whatever a value's constructor trips over
        return {}, None, text
    if not isinstance(metadata, dict | None):
        return {}, None, text
    return metadata or {}, text[: match.end()], text[match.end() :]


def _block(metadata: Mapping[Any, Any], old: str | None, line_break: str) -> str:
    """The metadata as a block of YAML, with the comments that stood at the head of the old one."""
    head = re.match(r"\s*---\s*((?:#[^\r\n]*\s+)*)", old or "")
    comments = re.split(r"[\r\n]+", head[1].strip()) if head and head[1] else []
    dumped = yaml_dump(dict(metadata), sort_keys=False).strip("\n").split("\n")
    return line_break.join(["---", *comments, *dumped, "---", ""])


def _merged(said: Mapping[Any, Any], ours: Mapping[str, Any], given: set[str]) -> dict[Any, Any]:
    """What the card says, what it lacks of ours, and what was given by name in this call."""
    merged = dict(said)
    for name, value in ours.items():
        if merged.get(name) is None or name in given:
            merged[name] = value
        elif name == "tags":
            merged[name] = _united(merged[name], value)
        elif name == "model-index":
            merged[name] = _merged_index(merged[name], value[0])
    return merged


def _united(theirs: Any, ours: Sequence[str]) -> Any:
    if isinstance(theirs, str):
        theirs = [theirs]
    return theirs + [tag for tag in ours if tag not in theirs] if isinstance(theirs, list) else theirs


def _merged_index(theirs: Any, ours: Mapping[str, Any]) -> Any:
    """Their model-index with our results in the place of those of an earlier push; all others stay."""
    if not isinstance(theirs, list):
        return theirs  # not of the Hub's form: not ours to mend
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


def _model_name(said: Mapping[Any, Any], base_model: str | None) -> str:
    """The name our results go under: that of the only model the card lists, or one made of the base model's."""
    index = said.get("model-index")
    if isinstance(index, list) and len(index) == 1 and isinstance(index[0], dict):
        name = index[0].get("name")
        if isinstance(name, str) and name:
            return name
    return f"{base_model.split('/')[-1]}, protected by drw_hf" if base_model else "protected by drw_hf"


def _eval_results(metrics: Mapping[str, Mapping[str, Any]], dataset: str | None, task: str) -> list[EvalResult]:
    if not dataset:
        return []
    result = functools.partial(EvalResult, task_type=_PIPELINE_TAGS[task], dataset_type=dataset, dataset_name=dataset)
    return [
        result(metric_type=name, metric_name=f"{name} ({label})", metric_value=row[output])
        for name, row in metrics.items()
        for output, label in _OUTPUTS.items()
    ]


# -- what may go into a card


def _checked_metrics(metrics: Any) -> dict[str, dict[str, Any]]:
    """The metrics as plain floats, in their order."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise ConfigurationError(
            f"metrics must map names to {{'clean': ..., 'protected': ...}}, not be a {type(metrics).__name__}"
        )
    return {_checked_metric_name(name): _checked_metric(name, row) for name, row in metrics.items()}


def _checked_metric_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(f"metrics: {name!r} is no name of a metric; give a short one such as 'accuracy'")
    return name


def _checked_metric(name: str, row: Any) -> dict[str, Any]:
    if not isinstance(row, Mapping) or not {"clean", "protected"} <= set(row) <= {"clean", "protected", "n"}:
        found = sorted(map(str, row)) if isinstance(row, Mapping) else type(row).__name__
        raise ConfigurationError(f"metrics[{name!r}]: expected 'clean' and 'protected' (and perhaps 'n'), got {found}")
    checked: dict[str, Any] = {}
    for output in _OUTPUTS:
        value = row[output]
        if not isinstance(value, numbers.Real) or isinstance(value, bool) or not math.isfinite(value):
            raise ConfigurationError(f"metrics[{name!r}][{output!r}] is {value!r}; expected a finite number")
        checked[output] = float(value)
    if "n" in row:
        if not isinstance(row["n"], numbers.Integral) or isinstance(row["n"], bool) or row["n"] < 1:
            raise ConfigurationError(f"metrics[{name!r}]['n'] is {row['n']!r}; expected a number of items, 1 or more")
        checked["n"] = int(row["n"])
    return checked


def _check_dataset(dataset: Any) -> None:
    if dataset is None:
        return
    # At most one slash, as in owner/name: more of them, or one in front, make it the path of a folder.
    if not isinstance(dataset, str) or not _NAME.fullmatch(dataset) or dataset.count("/") > 1:
        raise ConfigurationError(
            "dataset= is not the Hub id or the name of a data set; a path on this machine has no place in a card"
        )


def _checked_base_model(base_model: Any) -> str | None:
    if base_model is not None and not is_hub_id(base_model):
        raise ConfigurationError(
            "base_model= is no Hub id (name or owner/name); a path on this machine has no place in a card"
        )
    return base_model
