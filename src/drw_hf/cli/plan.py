"""Planning a protection: what a mark would cost, and how surely it would be found."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..wording import small_p
from . import options as shared
from .output import Outcome, prints_outcome, resumable, show_progress
from .tilt import CAUTION, p_between, plan_outcome, z_between

if TYPE_CHECKING:
    from ..keys.choices import LabelKind
    from ..planning import Plan, PlanRow, Traffic

TESTS = {"queries": "the exact test on the thief's queries", "unseen": "the exact test on text that was never asked"}
RANKED = 5  # classes that are shown where no target was named
RANKED_AT = 0.2  # the ε at which they are compared, unless another is named


@prints_outcome
def plan(
    model: Annotated[str, shared.model_argument("What is to be protected")],
    data: Annotated[str, shared.data_argument("What it is asked, some thousand texts, labelled for the mark tilt")],
    mark: shared.MarkOption = None,
    budget: Annotated[
        float | None,
        shared.number_option("tilt: accuracy that the mark may cost, in points (default: 0.3).", most=100.0),
    ] = None,
    margin_budget: shared.MarginBudget = None,
    strength: Annotated[
        list[float] | None,
        shared.number_option("tilt: how far the log-odds move (default: 0.1 to 0.5). May be repeated.", "NUMBER"),
    ] = None,
    temperature: shared.Temperature = None,
    target: Annotated[
        str | None,
        shared.name_option("cosine: target class, whose probability carries the mark. Left out: ranks them.", "LABEL"),
    ] = None,
    epsilon: Annotated[
        list[float] | None,
        shared.number_option(
            "cosine: how far a marked probability moves (default: 0.02 to 0.2). May be repeated.", "NUMBER"
        ),
    ] = None,
    tau: Annotated[
        list[float] | None,
        shared.number_option(
            "Share of tokens that are marked (default: 1; cosine: 0.5, and may be repeated).", "NUMBER", 1.0
        ),
    ] = None,
    frequency: shared.Frequency = 16.0,
    scope: shared.ScopeOption = None,
    hash_rule: shared.HashRuleOption = None,
    p_value: Annotated[
        float | None,
        typer.Option(help="cosine: the p-value that a test of a stolen copy shall reach (default: 1e-6)."),
    ] = None,
    queries: Annotated[
        int | None,
        shared.count_option("Texts that a thief is expected to ask (default: as many as given)."),
    ] = None,
    probed_with: Annotated[
        shared.ProbedWith,
        typer.Option(help="What a copy will be probed with: the thief's queries, if logged, or other text."),
    ] = "unseen",
    phi: Annotated[
        float | None, shared.number_option("How much of the mark a student copies (default: as seen in ours).")
    ] = None,
    sigma: Annotated[
        float | None, shared.number_option("Spread of an innocent student's tokens (default: as seen in ours).")
    ] = None,
    *,
    label_column: shared.LabelColumn = None,
    reading: shared.Reading,
    limit: shared.Limit = None,
    batches: shared.Batches,
    task: shared.TaskOption = None,
) -> Outcome:
    """Before a key is made: what a mark would cost, and how surely it would be found in a stolen copy.

    Asks the model about texts like those it serves. For the mark tilt, shows what each strength costs in accuracy, on
    average over throwaway keys: expected from the model's own probabilities, and counted by the labels. Then names the
    strength that --budget allows. Without labels it needs --temperature, and the cost is no more than a guess.

    For the paper's mark (--mark cosine, or one of its options), predicts for each epsilon and tau the accuracy that it
    costs, and the z and p-value of the exact test of a student that was served soft or hard labels, from the least to
    the largest of students that we trained; the data needs none. Then names the smallest epsilon that reaches
    --p-value in a typical one, and what a log of hard labels would show. Without --target, says which class would
    carry the mark best.

    No key is needed, and none is made.

    \b
    Example: drw-hf plan my-classifier labelled.csv --budget 0.3
    Example: drw-hf plan my-classifier queries.jsonl --temperature 1.4
    Example: drw-hf plan my-classifier queries.jsonl --mark cosine
    Example: drw-hf plan my-classifier queries.jsonl --target positive --hash-rule rarest --epsilon 0.1 --epsilon 0.2
    """
    from ..asking.models import load_clean, load_config, load_tokenizer
    from ..checks import class_number
    from ..keys import MarkSettings, WatermarkKey
    from ..keys.binding import labels_of, plain_config, task_of
    from ..keys.settings import USUAL_MARK, default_mark
    from ..planning import ExpectedStudent, observe_traffic, plan_tilt, rank_targets
    from ..planning.plan import EPSILONS
    from ..planning.plan import plan as make_plan
    from ..planning.students import EXPECTED_STUDENTS
    from .inputs import class_named

    papers = {"--epsilon": epsilon, "--scope": scope, "--hash-rule": hash_rule, "--p-value": p_value}
    tilts = {"--budget": budget, "--strength": strength, "--temperature": temperature}
    tilts["--margin-budget"] = margin_budget
    chosen = mark or default_mark(target, {"epsilon": epsilon, "scope": scope, "hash_rule": hash_rule})
    foreign = {"--target": target, **papers} if chosen == USUAL_MARK else tilts
    wrong = [name for name, value in foreign.items() if value is not None]
    if wrong:
        raise typer.BadParameter(f"the mark {chosen} has no {' and no '.join(wrong)}; leave them out, or see --mark")
    if p_value is not None and not 0.0 < p_value <= 1.0:
        raise typer.BadParameter(f"--p-value {p_value:g}: expected a number in (0, 1], like 1e-6")
    if chosen == USUAL_MARK and (len(tau or ()) > 1 or (phi is None) != (sigma is None)):
        raise typer.BadParameter("for the mark tilt give one --tau, and --phi and --sigma together or neither")
    progress = show_progress()
    config = load_config(model)
    labels = labels_of(plain_config(config))
    number = None if target is None else class_number(class_named(target, labels), labels)
    its_task = task or task_of(config)
    rows = reading.load(data, its_task, limit)
    asking: dict[str, Any] = {"text_columns": reading.text_column, "progress": progress, **vars(batches)}
    tokenizer = load_tokenizer(model)
    if chosen == USUAL_MARK:
        like = WatermarkKey.generate(
            config, tokenizer=tokenizer, task=task, temperature=1.0, frequency=frequency, tau=(tau or [1.0])[0]
        )
        prices = {"strengths": strength, "budget": budget, "temperature": temperature, "queries": queries}
        prices["margin_budget"] = margin_budget
        asking |= {name: value for name, value in prices.items() if value is not None}
        student = probed_with if phi is None or sigma is None else ExpectedStudent(phi, sigma)
        with resumable():
            tilted = plan_tilt(
                load_clean(model, its_task),
                rows,
                tokenizer,
                like=like,
                student=student,
                label_column=label_column,
                **asking,
            )
        price = ["--budget", f"{tilted.fit.budget:g}", "--data", data]
        others = {"--margin-budget": margin_budget, "--temperature": temperature}
        given = [word for name, value in others.items() if value is not None for word in (name, f"{value:g}")]
        return plan_outcome(tilted, _unit(its_task), ["drw-hf", "keygen", model, *price, *given], probed_with)
    with resumable():
        traffic = observe_traffic(
            load_clean(model, its_task), rows, tokenizer, hash_rule=hash_rule, task=its_task, **asking
        )
    known: dict[str, Any] = {name: value for name, value in (("phi", phi), ("sigma", sigma)) if value is not None}
    if known:  # what our students were like says nothing of these
        known |= {"spread": {}, "whole": {}}
    settings = MarkSettings(target=number or 0, frequency=frequency, scope=scope or "predicted")
    options: dict[str, Any] = {
        "taus": tau or (0.5,),
        "queries": queries,
        "student": dataclasses.replace(EXPECTED_STUDENTS[probed_with], **known),
    }
    if number is None:
        ranked = rank_targets(traffic, settings, epsilons=(epsilon or (RANKED_AT,))[:1], **options)
        rule = ["--hash-rule", hash_rule] if hash_rule else []
        return _ranking(ranked, traffic, ["drw-hf", "plan", model, data, *rule], TESTS[probed_with])
    planned = make_plan(traffic, settings, epsilons=epsilon or EPSILONS, **options)
    return _one_class(planned, _unit(its_task), 1e-6 if p_value is None else p_value, TESTS[probed_with])


def _unit(task: str | None) -> str:
    return "words" if task == "token-classification" else "texts"


def _one_class(found: "Plan", unit: str, p_value: float, test: str) -> Outcome:
    traffic, kinds = found.traffic, found.label_kinds
    best = {kind: _recommended(found, p_value, kind) for kind in kinds}
    document = {
        **_about_class(found),
        **_about_traffic(found),
        "test": test,
        "p_value": p_value,
        "recommended": {kind: row and _as_dict(row) for kind, row in best.items()},
    }
    groups = [found.rows[first : first + len(kinds)] for first in range(0, len(found.rows), len(kinds))]
    heads = {name: [f"{getattr(rows[0], name):g}" for rows in groups] for name in ("epsilon", "tau")}
    lines = [
        f"{traffic.labels[found.target]} is the answer to {found.n_predicted} of {found.n_items} {unit}, with "
        f"{found.n_tokens} distinct tokens (worth {found.n_effective:.0f} of equal weight).",
        f"For a thief who asks {found.queries} texts like these; the accuracy costs are those of a calibrated model:",
        "",
        *_table(heads, groups),
        "",
        f"z and p are those of {test}{_of_whom(found)}.",
        *(_advice(row, kind, found, p_value, test) for kind, row in best.items()),
        *_about_the_log(found, p_value),
        CAUTION,
    ]
    return Outcome(document, "\n".join(lines))


def _recommended(found: "Plan", p_value: float, label_kind: "LabelKind") -> "PlanRow | None":
    """The cheapest row, its ε rounded up to two digits: what is typed must reach the p-value as well."""
    row = found.cheapest(p_value, label_kind)
    if row is None or row.epsilon == 0.0:
        return row
    unit = 10.0 ** (math.floor(math.log10(row.epsilon)) - 1)
    return found.predict(round(math.ceil(row.epsilon / unit) * unit, 12), row.tau, label_kind)


def _of_whom(found: "Plan") -> str:
    """Whose figures a table shows."""
    if not found.student.spread:
        return ", of students as you described them"
    return ": from the least to the largest of the students that we trained"


def _about_the_log(found: "Plan", p_value: float) -> list[str]:
    """What the log of a hard-label service is worth, at the least ε of the plan that does."""
    from ..planning.students import log10_bound

    least = {row: row.memory_z_least for row in found.rows if row.memory_z_least is not None}
    if not least:
        return []
    sure = [row for row, z in least.items() if log10_bound(z) <= math.log10(p_value)]
    row = min(sure, key=lambda one: one.expected_cost) if sure else max(least, key=lambda one: least[one])
    reaches = "reaches" if sure else "does not reach"
    return [
        "Keep a log of the labels that you serve. On it, the memory test (detect --logged-column) shows far more of a "
        f"student of hard labels: at epsilon {row.epsilon:g} and tau {row.tau:g} z {_on_the_log(row)}, which "
        f"{reaches} p ≤ {small_p(math.log10(p_value))} for every student that we trained."
    ]


def _on_the_log(row: "PlanRow") -> str:
    """z of the memory test; nothing for soft labels."""
    if row.memory_z_least is None or row.memory_z_largest is None:
        return ""
    return z_between(row.memory_z_least, row.memory_z_largest)


def _advice(row: "PlanRow | None", kind: "LabelKind", found: "Plan", p_value: float, test: str) -> str:
    from ..planning.plan import LARGEST_EPSILON

    thief, reached = f"a typical student of {kind} labels", f"p ≤ {small_p(math.log10(p_value))}"
    if row is not None:
        tau = f" and tau {row.tau:g}" if len(found.taus) > 1 else ""
        return (
            f"For {reached} in {thief}, by {test}, take epsilon {row.epsilon:g}{tau}: it costs "
            f"{_percent(row.expected_cost)} accuracy, {_percent(row.largest_cost)} at most. There, z is "
            f"{z_between(row.z_least, row.z_largest)}."
        )
    factor = found.tokens_factor(p_value, kind)
    if not math.isfinite(factor):
        return f"For {thief} no epsilon helps: nothing of the mark would be copied (tau or --phi is 0)."
    ways = ["a class that is predicted more often (leave out --target to compare)", "more text"]
    ways += ["the queries of your log to probe with (--probed-with queries)"] if test == TESTS["unseen"] else []
    ways += ["--hash-rule rarest"] if found.traffic.hash_rule == "second" else []
    return (
        f"No epsilon up to {LARGEST_EPSILON:g} reaches {reached} in {thief}, by {test}; about {factor:.1f} "
        f"times as many distinct tokens would: take {', '.join(ways[:-1])} or {ways[-1]}."
    )


def _ranking(ranked: list["Plan"], traffic: "Traffic", command: list[str], test: str) -> Outcome:
    first, shown = ranked[0].rows[0], ranked[:RANKED]
    document = {
        "epsilon": first.epsilon,
        "tau": first.tau,
        **_about_traffic(ranked[0]),
        "test": test,
        "classes": [_about_class(one) for one in shown],
    }
    heads = {
        "class": [traffic.labels[one.target] for one in shown],
        "predicted": [f"{one.n_predicted / one.n_items:.1%}" for one in shown],
        "tokens": [str(one.n_tokens) for one in shown],
    }
    lines = [
        f"Of {len(traffic.labels)} classes {len(ranked)} can carry a mark; at epsilon {first.epsilon:g} and tau "
        f"{first.tau:g}, against a thief who asks {ranked[0].queries} texts like these:",
        "",
        *_table(heads, [one.rows[: len(one.label_kinds)] for one in shown]),
        "",
        f"z and p are those of {test}{_of_whom(ranked[0])}.",
        f"A mark in {heads['class'][0]} would be found most surely. Next, see what it costs:",
        f"  {shlex.join([*command, '--target', heads['class'][0]])}",
        CAUTION,
    ]
    return Outcome(document, "\n".join(lines))


def _about_traffic(found: "Plan") -> dict[str, Any]:
    shown = {name: getattr(found, name) for name in ("n_texts", "queries", "n_items")}
    return {**shown, "hash_rule": found.traffic.hash_rule}


def _about_class(found: "Plan") -> dict[str, Any]:
    shown = {name: getattr(found, name) for name in ("n_predicted", "n_tokens", "n_effective")}
    rows = [_as_dict(row) for row in found.rows]
    return {"target": found.traffic.labels[found.target], **shown, "rows": rows}


def _as_dict(row: "PlanRow") -> dict[str, Any]:
    return {**dataclasses.asdict(row), "p_value": row.p_value}


def _percent(cost: float) -> str:
    return f"{abs(100.0 * cost) if abs(cost) < 5e-5 else 100.0 * cost:.2f} %"  # rounding must not make it "-0.00"


def _table(heads: dict[str, list[str]], groups: Sequence[Sequence["PlanRow"]]) -> list[str]:
    """First columns with their heads, then those of each label kind, under its name; all stand to the right.

    ``groups`` are the lines: what a plan says of one choice, for each label kind.
    """
    parts = [("", [[head, *cells] for head, cells in heads.items()])]
    for of_kind in zip(*groups, strict=True):
        figures = [
            ["cost", *(_percent(row.expected_cost) for row in of_kind)],
            ["at most", *(_percent(row.largest_cost) for row in of_kind)],
            ["z", *(z_between(row.z_least, row.z_largest) for row in of_kind)],
            ["p", *(p_between(row.z_least, row.z_largest) for row in of_kind)],
        ]
        by_log = [_on_the_log(row) for row in of_kind]
        figures += [["z on the log", *by_log]] if all(by_log) else []
        parts.append((f"{of_kind[0].label_kind} labels", figures))
    blocks = []
    for title, columns in parts:
        widths = [max(map(len, column)) for column in columns]
        lines = ["  ".join(map(str.rjust, line, widths)) for line in zip(*columns, strict=True)]
        blocks.append([title.rjust(len(lines[0])), *lines])
    return ["  ".join(line) for line in zip(*blocks, strict=True)]
