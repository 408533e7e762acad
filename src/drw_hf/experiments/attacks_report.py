"""Tables of what attacks cost and what evidence they leave."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from ..extraction.attacks import STAGES, attack_named
from ..planning.rehearsal_bench import FORGERY, INNOCENT, NOTHING
from ..runs.lines import Record, read_lines
from ..wording import small_p
from .cells import table
from .marks_settings import setting_titles

LEVEL = 1e-3
SECOND_OPINIONS = ("relabel-5", "clean-5")  # laborious, and what sentences fall to
IMPORTANT: dict[str, tuple[str, ...]] = {  # what pretrained victims are attacked with, by what they answer
    "soft": (
        "argmax",
        "rounding",
        "floor",
        "debias",
        "drop-uncertain",
        "subtract-table-gold",
        "subtract-table-young",
        "subtract-table-young-1.25",
        "subtract-table-young-1.5",
        "relabel-2",
        "marked-10",
        "fine-tune-20",
        "prune-60",
        "serves-labels",
    ),
    "hard": (
        "relabel-2",
        "marked-10",
        "near-duplicates-3",
        "few-queries",
        "early-stop",
        "second-generation",
        "fine-tune-20",
        "prune-60",
        "with-innocent",
        "serves-labels",
    ),
}
Served = tuple[str, str, int | None]  # mark, label kind, and digits where they are not as is usual for the mark
Attacked = tuple[str, str, str, int | None]  # the setting, and what was served
Play = tuple[str, str, str, int | None, str]  # the same, and by which attack
SERVICES: dict[Served, str] = {
    ("cosine", "soft", None): "cosine, soft",
    ("cosine", "hard", None): "cosine, hard",
    ("tilt", "soft", None): "tilt, soft",
    ("tilt", "soft", 1): "tilt, soft, one digit",
    ("tilt", "hard", None): "tilt + margin, hard",
}


class Played(NamedTuple):
    """An attack on a service, over its seeds."""

    attack: str
    accuracy: float
    lost: float  # points less than the student of no attack, on average
    log10_log: float  # the weakest evidence of all seeds
    log10_unseen: float
    seeds: int


def service_of(record: Record) -> Served:
    """What was attacked."""
    return record["mark"], record["label_kind"], record.get("digits")


def summary(records: Iterable[Record]) -> dict[Attacked, dict[str, Played]]:
    """By setting, mark, label kind and digits: what each attack came to."""
    found: dict[Attacked, dict[str, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in records:
        if "log" in record:
            found[record["setting"], *service_of(record)][record["attack"]][record["seed"]] = record
    played = {}
    for service, attacks in found.items():
        plain = {seed: record["accuracy"] for seed, record in attacks.get(NOTHING, {}).items()}
        played[service] = {
            name: Played(
                name,
                fmean(one["accuracy"] for one in by_seed.values()),
                fmean(plain[seed] - one["accuracy"] for seed, one in by_seed.items() if seed in plain),
                max(_evidence(one, "log") for one in by_seed.values()),
                max(_evidence(one, "unseen") for one in by_seed.values()),
                len(by_seed),
            )
            for name, by_seed in attacks.items()
            if plain.keys() & by_seed.keys()
        }
    return played


def _evidence(record: Record, where: str) -> float:
    """log₁₀ of the bound on p; after a search for keys, corrected for it."""
    return record["searched"]["corrected"] if "searched" in record else record[where]["log10_bound"]


def is_found(attacks: dict[str, Played]) -> bool:
    """Whether the mark is found on the log of a thief who does nothing against it."""
    return NOTHING in attacks and attacks[NOTHING].log10_log <= math.log10(LEVEL)


def is_theft(attack: str) -> bool:
    """Whether a name is that of an attack that ends in a stolen model."""
    return attack not in (NOTHING, INNOCENT) and attack_named(attack).stage != FORGERY


def cheapest(played: dict[str, Played], gold: bool = True) -> Played | None:
    """The attack that loses the thief least of those that leave p above the level on the log, with some seed.

    ``gold`` says whether attacks count that need right labels.
    """
    escaped = [one for one in played.values() if is_theft(one.attack) and one.log10_log > math.log10(LEVEL)]
    free = [one for one in escaped if gold or not attack_named(one.attack).gold]
    return min(free, key=lambda one: one.lost, default=None)


def cheapest_escapes(played: dict[Attacked, dict[str, Played]]) -> set[Play]:
    """What the first two tables name: of each service the cheapest escape, with right labels and without."""
    return {
        (*service, best.attack)
        for service, attacks in played.items()
        if is_found(attacks)
        for gold in (True, False)
        if (best := cheapest(attacks, gold)) is not None
    }


def report(output: Path) -> str:
    """All tables."""
    records = read_lines(output)
    played, titles = summary(records), setting_titles()
    settings = list(dict.fromkeys(setting for setting, *_ in played))
    parts = [
        "The least accuracy (points) that any attack loses the thief while it leaves p above 1e-3 on the log with at "
        "least one of its seeds, the attack, and p on unseen text then:\n\n" + least_table(played, settings, titles),
        "The same of thieves without right labels:\n\n" + least_table(played, settings, titles, gold=False),
    ]
    for setting in settings:
        for service, title in SERVICES.items():
            attacks = played.get((setting, *service))
            if attacks:
                parts.append(
                    f"### {titles[setting]}: {title}\n\n{_baseline(records, setting, service)}\n\n{_rows(attacks)}"
                )
    failed = [record for record in records if "failed" in record]
    if failed:
        parts.append(table([{"failed": f"{one['attack']}, {one['setting']}", "why": one["failed"]} for one in failed]))
    return "\n\n".join(parts) + "\n"


def least_table(
    played: dict[Attacked, dict[str, Played]],
    settings: Sequence[str],
    titles: dict[str, str],
    gold: bool = True,
) -> str:
    """A row per mark and label kind, a column per setting."""
    rows = []
    for service, title in SERVICES.items():
        row = {"service": title}
        for setting in settings:
            attacks = played.get((setting, *service))
            row[titles[setting]] = "" if attacks is None else _least(attacks, gold)
        rows.append(row)
    return table(rows)


def _least(attacks: dict[str, Played], gold: bool) -> str:
    if not is_found(attacks):
        return "nothing to find"
    if not any(map(is_theft, attacks)):
        return ""  # nobody tried yet
    best = cheapest(attacks, gold)
    if best is None:
        return "no attack"
    return f"{best.lost:+.1f} ({best.attack}; unseen {small_p(best.log10_unseen, up=True)})"


def _baseline(records: Sequence[Record], setting: str, service: Served) -> str:
    found = [
        one
        for one in records
        if one["attack"] == "baseline" and (one["setting"], *service_of(one)) == (setting, *service)
    ]
    if not found:
        return ""
    return f"Victim {fmean(one['victim'] for one in found):.1f}, served {fmean(one['served'] for one in found):.1f}."


def _rows(attacks: dict[str, Played]) -> str:
    def order(one: Played) -> tuple[int, str]:
        if one.attack in (NOTHING, INNOCENT):
            return -1, (one.attack == INNOCENT and "z") or "a"
        return list(STAGES).index(attack_named(one.attack).stage), one.attack

    rows = [
        {
            "attack": one.attack,
            "needs": "" if one.attack == INNOCENT else attack_named(one.attack).needs,
            "accuracy": f"{one.accuracy:.1f}",
            "lost": "" if one.attack in (NOTHING, INNOCENT) else f"{one.lost:+.1f}",
            "p, log": small_p(one.log10_log, up=True),
            "p, unseen": small_p(one.log10_unseen, up=True),
            "seeds": str(one.seeds),
        }
        for one in sorted(attacks.values(), key=order)
    ]
    return table(rows)
