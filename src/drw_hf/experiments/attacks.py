"""What does every attack cost a thief, and what evidence does it leave? All attacks on both marks, soft and hard.

``python -m drw_hf.experiments.attacks --output docs/results/attacks.jsonl --data DIR --work DIR --encoder PATH``

``--work`` is the folder of ``python -m drw_hf.experiments.marks``, whose victims are used. Each service (a mark, soft
or hard answers) is rehearsed by :mod:`drw_hf.planning.rehearse` with the texts of that experiment: the thief's queries
are disjoint from what the victim was trained on, and from the unseen text. All attacks are played with the first seed,
but for the laborious ones where an easy one gets rid of the mark for nothing; those that came near an escape with two
more, and so every attack that the first two tables name. Of pretrained victims the most important ones are played, and
none where the student of no attack has no mark to get rid of.
"""

import functools
import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transformers import AutoConfig

from ..extraction.attacks import ATTACKS, attack_named
from ..extraction.attacks.tables import THE_METHOD
from ..extraction.students import Recipe
from ..keys.choices import LabelKind
from ..keys.key import WatermarkKey
from ..planning.labels import right_labels
from ..planning.rehearsal_bench import BASELINE, INNOCENT, NOTHING, Bench
from ..runs.lines import Record, read_lines
from .attacks_report import (
    IMPORTANT,
    SECOND_OPINIONS,
    Play,
    Played,
    cheapest,
    cheapest_escapes,
    is_found,
    is_theft,
    report,
    summary,
)
from .margins import MARGIN_BUDGET
from .marks_case import Case, run_cases
from .marks_settings import BUDGET, SEEDS, Setting
from .marks_work import Workshop
from .measurements import Measurement

NEAR = -10.0  # log₁₀ of the p on the log above which an attack may be an escape with another seed
DEARER = 1.5  # points: attacks that lose so much more than the cheapest escape are not played with more seeds
AT_MOST = 4  # attacks are played with more seeds per service, with right labels and without
ROUNDS = 4  # with more seeds another attack may be the cheapest, which then wants more seeds, too
LABORIOUS = 2.0  # trainings, or questions per text, above which an attack is no easy one
FOR_NOTHING = 0.5  # points that an attack may lose the thief
EPSILON, TAU, FREQUENCY = 0.2, 0.5, 16.0  # the paper's, of the mark cosine
_PRETRAINED: dict[str, Any] = {"epochs": 3, "batch_size": 32, "learning_rate": 3e-4, "weight_decay": 0.01}
RECIPES = {  # shorter than where marks are measured: sixty students per service
    "tiny": {"epochs": 4, "batch_size": 64, "learning_rate": 2e-3},
    "sst2-pretrained": _PRETRAINED,
    "clinc150-pretrained": {**_PRETRAINED, "epochs": 4, "learning_rate": 8e-4},  # with less it learns too little
}


class Service(NamedTuple):
    """A mark, and what is served with it; ``digits`` where scores are rounded otherwise than is usual for the mark."""

    mark: str
    label_kind: LabelKind
    digits: int | None = None


COMPARED = (NOTHING, INNOCENT)  # what all attacks are compared with
RECOMMENDED = (Service("tilt", "hard"), Service("tilt", "soft"))  # the mark, as it is usually served
SERVICES = (
    *RECOMMENDED,
    Service("cosine", "soft"),
    Service("cosine", "hard"),
    Service("tilt", "soft", digits=1),
)


@functools.lru_cache(maxsize=2)
def bench_of(shop: Workshop, setting: Setting, service: Service, seed: int) -> Bench:
    """The service of a setting's victim under the key of a seed, and its thief."""
    drawn = MARGIN_BUDGET if service.label_kind == "hard" else 0.0
    case = Case(shop, setting, seed, BUDGET, drawn)
    parts, tiny = case.parts, setting.encoder.pretrained is None
    key = case.key if service.mark == "tilt" else papers_key(shop, setting, seed)

    def gold(part: str) -> Any:
        return right_labels(getattr(parts, part), setting.task.gold, key.labels, key.task)

    served = [str(part) for part in service if part is not None]
    chosen: dict[str, Any] = dict(RECIPES["tiny" if tiny else setting.name])
    chosen |= {"start": setting.encoder.pretrained, "max_length": setting.encoder.max_length}
    if setting.student_width is not None:
        chosen |= {"width": setting.student_width, "layers": setting.encoder.layers, "heads": setting.encoder.heads}
    return Bench(
        victim=case.victim,
        key=key,
        label_kind=service.label_kind,
        tokenizer=case.tokenizer,
        queries=case.texts("queries"),
        unseen=case.texts("unseen"),
        others=case.texts("others"),
        gold=gold("queries"),
        unseen_gold=gold("unseen"),
        folder=shop.folder / setting.name / " ".join(["attacks", *served, str(seed)]),
        recipe=Recipe(**chosen),
        seed=seed,
        digits=service.digits,
    )


def papers_key(shop: Workshop, setting: Setting, seed: int) -> WatermarkKey:
    """The paper's mark with the paper's settings; published like everything else here, it protects nothing."""
    secret = hashlib.sha256(f"drw_hf attacks {setting.name} {seed}".encode()).digest()
    config = AutoConfig.from_pretrained(shop.victim_folder(setting))
    settings: dict[str, Any] = {"epsilon": EPSILON, "tau": TAU, "frequency": FREQUENCY}
    target, tokenizer = setting.task.target, shop.tokenizer(setting)
    return WatermarkKey.generate(config, tokenizer=tokenizer, mark="cosine", target=target, secret=secret, **settings)


# -- the run


def measure(shop: Workshop, setting: Setting, service: Service, attack: str, seed: int) -> Record:
    """Play an attack, or what the others are compared with."""
    bench = bench_of(shop, setting, service, seed)
    return bench.baseline() if attack == BASELINE else bench.play(attack)


def measurements(shop: Workshop, names: Sequence[str]) -> Iterator[Measurement]:
    """What attacks are compared with, with the first seed."""
    for service in SERVICES:
        for name in names:
            for compared in (BASELINE, *COMPARED):
                yield _one(shop, shop.settings[name], service, compared, SEEDS[0])


def attacks(shop: Workshop, names: Sequence[str], output: Path, *, laborious: bool) -> Iterator[Measurement]:
    """With the first seed the easy or the laborious attacks on services whose mark is found while nobody attacks it.

    The laborious ones only where no easy attack gets rid of the mark for nothing.
    """
    found = summary(read_lines(output))
    for service in SERVICES:
        for name in names:
            setting, so_far = shop.settings[name], found.get((name, *service), {})
            if is_found(so_far) and not (laborious and falls_for_nothing(so_far)):
                for attack in played(setting, service):
                    if is_laborious(attack) == laborious and is_wanted(setting, service, attack):
                        yield _one(shop, setting, service, attack, SEEDS[0])


def is_laborious(attack: str) -> bool:
    """Whether an attack takes many questions or trainings."""
    return max(attack_named(attack).trainings, attack_named(attack).questions) > LABORIOUS


def falls_for_nothing(attacks: dict[str, Played]) -> bool:
    """Whether a thief without right labels gets rid of the mark easily, and loses next to nothing."""
    easy = {name: one for name, one in attacks.items() if is_theft(name) and not is_laborious(name)}
    best = cheapest(easy, gold=False)
    return best is not None and best.lost < FOR_NOTHING


def is_wanted(setting: Setting, service: Service, attack: str) -> bool:
    """Whether an attack is one that is played.

    Where not all are, the most important ones; of pretrained victims, second opinions on the mark that we recommend as
    well, and of those that serve fewer digits, what computes.
    """
    is_tiny, has_usual_digits = setting.encoder.pretrained is None, service.digits is None
    if is_tiny and has_usual_digits:
        return True
    if service in RECOMMENDED and attack in SECOND_OPINIONS:
        return True
    computes = attack_named(attack).knows == THE_METHOD
    return attack in IMPORTANT[service.label_kind] and (is_tiny or has_usual_digits or computes)


def more_seeds(shop: Workshop, names: Sequence[str], output: Path) -> Iterator[Measurement]:
    """With the other seeds those attacks that the lines show to be the cheapest escape, or to have come near one.

    Students of pretrained victims take ten times as long. There only thieves without right labels who attack the mark
    that we recommend count as near.
    """
    records = read_lines(output)
    near, nearest = near_escapes(records), near_escapes(records, gold=(False,))
    named = cheapest_escapes(summary(records))
    for seed in SEEDS[1:]:
        for service in SERVICES:
            for name in names:
                setting = shop.settings[name]
                if setting.encoder.pretrained is None:
                    chosen = named | near
                else:
                    chosen = named | nearest if service.mark == "tilt" else named
                wanted = [one for one in played(setting, service) if (name, *service, one) in chosen]
                for attack in (NOTHING, *wanted) if wanted else ():
                    yield _one(shop, setting, service, attack, seed)


def _one(shop: Workshop, setting: Setting, service: Service, attack: str, seed: int) -> Measurement:
    about: Record = {"setting": setting.name, "mark": service.mark, "label_kind": service.label_kind}
    if service.digits is not None:
        about["digits"] = service.digits
    return Measurement(
        {**about, "attack": attack, "seed": seed}, functools.partial(measure, shop, setting, service, attack, seed)
    )


def played(setting: Setting, service: Service) -> list[str]:
    """The attacks that make sense against a service, in the order in which they are worth playing."""
    kind, n_classes = setting.task.kind, len(setting.task.labels)
    others = [name for name in ATTACKS if name != NOTHING]
    fit = [name for name in others if attack_named(name).unfit(kind, service.label_kind, n_classes) is None]
    first = IMPORTANT[service.label_kind]
    return sorted(fit, key=lambda name: (name not in first, attack_named(name).trainings > 2, name))


def near_escapes(records: Sequence[Record], at_most: int = AT_MOST, gold: Sequence[bool] = (True, False)) -> set[Play]:
    """Which attacks may be the cheapest escape: with the first seed they nearly escaped, and were nearly as cheap.

    So among all attacks, and among those of thieves without right labels, as ``gold`` says; of either the cheapest
    ``at_most``.
    """
    first = summary(record for record in records if record.get("seed") == SEEDS[0])
    near = set()
    for service, attacks in first.items():
        escaping = [one for one in attacks.values() if is_theft(one.attack) and one.log10_log > NEAR]
        for with_labels in gold:
            best = cheapest(attacks, with_labels)
            most = math.inf if best is None else best.lost + DEARER
            able = [one for one in escaping if with_labels or not attack_named(one.attack).gold]
            chosen = sorted((one for one in able if one.lost <= most), key=lambda one: one.lost)[:at_most]
            near |= {(*service, one.attack) for one in chosen}
    return near


def main() -> None:
    """The command."""
    easy_first = [functools.partial(attacks, laborious=laborious) for laborious in (False, True)]
    run_cases(__doc__, measurements, report, then=(*easy_first, *[more_seeds] * ROUNDS))


if __name__ == "__main__":
    main()
