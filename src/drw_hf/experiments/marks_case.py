"""One victim of the experiments with marks under one key, who copies it, and what tests say of the copy."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets import Dataset

from ..asking.models import PLAIN, PROTECTED
from ..detection.probing import Probe, probe_suspect
from ..keys.choices import LabelKind
from ..keys.files import write_atomically
from ..keys.key import WatermarkKey
from ..planning.fit import fit_tilt
from ..runs.folders import make_once
from ..runs.lines import Record
from ..watermark.tilt import settings_of
from .marks_jobs import Job
from .marks_settings import BUDGET, Parts, Setting, load_settings
from .marks_work import WHERE, Workshop, accuracy_of, labels_alone
from .measurements import Measurement, command_parser, measure_missing
from .scoring import tested
from .theft import distil

_FITTED = ("strength", "temperature", "budget", "margin", "margin_budget")


@dataclass(frozen=True, eq=False)
class Case:
    """A victim, the key of a seed, and what a thief can ask.

    ``budget`` is what the mark may cost, ``margin_budget`` the part of it for draws of hard answers; the mark is then
    ``times`` as strong.
    """

    shop: Workshop
    setting: Setting
    seed: int = 1
    budget: float = BUDGET
    margin_budget: float = 0.0
    times: float = 1.0

    @cached_property
    def key(self) -> WatermarkKey:
        """That of the experiments with marks, with other settings where its budgets are others."""
        key = self._fitted
        if self.times == 1.0:
            return key
        settings = settings_of(key)
        return key.replace(settings=settings.replace(strength=self.times * settings.strength))

    @property
    def _fitted(self) -> WatermarkKey:
        key = self.shop.key(self.setting, self.seed)
        if (self.budget, self.margin_budget) == (BUDGET, 0.0):
            return key
        kept = self.shop.folder / self.setting.name / f"budget {self.budget:g} {self.margin_budget:g}.json"
        if not kept.exists():  # once for all seeds
            asking: Any = {"label_column": self.setting.task.gold, **self.shop.asking(self.setting)}
            asking |= {"budget": self.budget, "margin_budget": self.margin_budget, "like": key}
            settings = fit_tilt(self.victim, self.parts.calibration, self.tokenizer, **asking).settings
            write_atomically(kept, json.dumps({name: getattr(settings, name) for name in _FITTED}).encode())
        return key.replace(settings=settings_of(key).replace(**json.loads(kept.read_text())))

    @property
    def by_word(self) -> bool:
        """Whether the victim is a tagger."""
        return self.setting.task.kind == "token-classification"

    @cached_property
    def victim(self) -> Any:
        return self.shop.victim(self.setting)

    @property
    def parts(self) -> Parts:
        return self.shop.parts(self.setting)

    @property
    def tokenizer(self) -> Any:
        return self.shop.tokenizer(self.setting)

    def model(self, name: str, seed: int | None = None) -> Any:
        """A student of the experiments with marks."""
        return self.shop.load(Job("student", self.setting.name, name, seed or self.seed))

    def texts(self, part: str) -> Dataset:
        """The rows of a part without their right labels."""
        return self.parts.corpus.texts(getattr(self.parts, part))

    def served(self, texts: Dataset, label_kind: LabelKind = "soft", **options: Any) -> Dataset:
        """What the protected service answers."""
        service = PROTECTED[self.key.task].from_model(self.victim, key=self.key, label_kind=label_kind, **options)
        return self.shop.answers(self.setting, service, texts)

    def student(self, answers: Dataset, label_kind: LabelKind = "soft") -> Any:
        """Who has learnt these answers."""
        model: Any = self.shop.new_model(self.setting, self.seed, self.setting.student_width)
        training = self.setting.student
        learnt = {"label_kind": label_kind}
        self.shop.train(self.setting, training, self.seed, distil, model, self.tokenizer, answers, **learnt)
        return model.eval()

    def path(self, name: str) -> Path:
        """Where something of this victim and seed is kept."""
        return self.shop.folder / self.setting.name / f"{name} {self.seed}"

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """A model that is made once, and loaded from then on."""
        path = self.path(name)
        make_once(path, lambda folder: make().save_pretrained(folder))
        return PLAIN[self.setting.task.kind].from_pretrained(path).eval()

    def probe(self, suspect: Any, texts: Dataset, **options: Any) -> Probe:
        """What somebody says of texts, and their words."""
        asking = self.shop.asking(self.setting)
        return probe_suspect(suspect, texts, key=self.key, tokenizer=self.tokenizer, **asking, **options)

    def against_victim(self, suspect: Any, part: str) -> tuple[Probe, float]:
        """What a suspect and the victim say of a part, and the suspect's accuracy there, in points."""
        gold = self.parts.corpus.gold(getattr(self.parts, part))
        probe = self.probe(suspect, self.texts(part), victim=self.victim, gold=gold)
        return dataclasses.replace(probe, gold=None), accuracy_of(probe)

    def scores(self, suspect: Any) -> Record:
        """Accuracy and tests of a suspect, on the thief's queries and on unseen text."""
        record: Record = {}
        for where in WHERE:
            probe, accuracy = self.against_victim(suspect, where)
            record[where] = {"accuracy": round(accuracy, 2), **self.both(probe)}
        return record

    def both(self, probe: Probe) -> Record:
        """The test on scores, and on labels alone."""
        return {"scores": tested(probe, self.key), "labels": tested(labels_alone(probe), self.key)}


def run_cases(
    description: str | None,
    make: Callable[[Workshop, Sequence[str]], Iterable[Measurement]],
    report: Callable[[Path], str],
    names: Sequence[str] | None = None,
    *,
    then: Sequence[Callable[[Workshop, Sequence[str], Path], Iterable[Measurement]]] = (),
) -> None:
    """The command of an experiment with the victims of ``experiments.marks``; ``names`` are its usual settings.

    Each of ``then`` says what is measured once all before it is there, and may look at the lines for it.
    """
    parser = command_parser(description or "")
    parser.add_argument("--data", help="folder with a folder for each data set: conll2003, sst2, clinc150")
    parser.add_argument("--work", type=Path, help="the folder of the experiments with marks")
    parser.add_argument("--encoder", help="the pretrained encoder of these, for the settings that want one")
    parser.add_argument("--settings", nargs="+", metavar="NAME", default=names, help="these settings only")
    options = parser.parse_args()
    if not options.report:
        if options.data is None or options.work is None:
            parser.error("--data and --work are needed: the data sets, and what experiments.marks made of them")
        shop = Workshop(load_settings(options.encoder), options.work, options.data)
        wanted = options.settings or [*shop.settings]
        meet_in = options.work / options.output.stem

        def measure(jobs: Iterable[Measurement]) -> None:
            measure_missing(options.output, lambda _: jobs, meet_in)

        measure(make(shop, wanted))
        for stage in then:
            measure(stage(shop, wanted, options.output))
    options.output.with_suffix(".md").write_text(report(options.output), encoding="utf-8")
