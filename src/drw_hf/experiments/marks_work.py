"""Doing the jobs of the experiments with marks: victims, thieves and innocents, their probes and scores.

Models, answers and probes lie in one folder; scores are computed from the probes alone, so that they can be computed
anew without training.
"""

import dataclasses
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from filelock import FileLock
from transformers import AutoConfig

from ..asking.labelling import LABELS, label_with_teacher
from ..asking.models import PLAIN, PROTECTED
from ..asking.options import AskingOptions
from ..asking.questions import places_of_words, tokenize
from ..detection.probing import Probe, probe_suspect
from ..errors import DrwError
from ..keys import WatermarkKey
from ..keys.choices import LabelKind
from ..planning.fit import fit_tilt
from ..planning.tilt_costs import TiltCosts
from ..planning.tilt_traffic import LEAST_KEYS as THROWAWAY_KEYS
from ..planning.tilt_traffic import observe_tilt_traffic
from ..runs.folders import written_whole
from ..runs.lines import Record
from ..watermark.tilt import settings_of
from .marks_jobs import OTHER_KEY, Job
from .marks_served import ask_victim, measure_served
from .marks_settings import BUDGET, PARTS, Parts, Setting, load_settings, read_parts
from .marks_thieves import (
    CLEAN,
    DEBIASED,
    FINE_TUNED,
    GOLD,
    PRUNED,
    SECOND,
    SOFT,
    STUDENTS,
    TUNED_EPOCHS,
    TUNED_SHARE,
    debias,
    prune,
)
from .profiles import Training
from .scoring import tested
from .theft import distil, pretrained_model, train_on_gold
from .work import own_tokenizer, pretrained_tokenizer, training_arguments

OTHER_SEED = 1000  # added to a seed: the key of somebody else
WHERE = ("queries", "unseen")
_CHOSEN = "strength.json"  # beside the victim: what its keys are made with


@dataclass(frozen=True, eq=False)
class Workshop:
    """Where jobs are done: settings by name, the data, and the folder for what is made."""

    settings: Mapping[str, Setting]
    folder: Path
    data: str

    @property
    def profile(self) -> "Workshop":
        """Who describes the settings of a run."""
        return self

    def described(self) -> Record:
        """What results depend on: all settings, whichever of them are run."""
        every = load_settings(encoder="any")
        return {"budget": BUDGET, "settings": {name: setting.described() for name, setting in every.items()}}

    # -- what jobs share

    def path(self, job: Job) -> Path:
        """Where a job's result lies."""
        return self.folder / job.setting / (f"{job.student} {job.seed}" if job.student else job.kind)

    def made(self, job: Job) -> bool:
        """Whether what other jobs need of this one is there."""
        return job.kind not in ("victim", "student") or self.path(job).exists()

    def parts(self, setting: Setting) -> Parts:
        return read_parts(setting, self.data)

    def tokenizer(self, setting: Setting) -> Any:
        shape = setting.encoder
        if shape.pretrained is not None:
            return pretrained_tokenizer(shape.pretrained, shape.max_length)
        return own_tokenizer(self.parts(setting).evaluated_on("unseen"), shape.vocabulary, shape.max_length)

    def new_model(self, setting: Setting, seed: int, width: int | None = None) -> torch.nn.Module:
        """An untrained model, of another width than the victim's where one is given."""
        kind, labels, shape = setting.task.kind, self.parts(setting).corpus.labels, setting.encoder
        if shape.pretrained is not None:
            return pretrained_model(kind, shape.pretrained, seed, labels)
        torch.manual_seed(seed)
        shape = dataclasses.replace(shape, vocabulary=len(self.tokenizer(setting)), width=width or shape.width)
        return PLAIN[kind].from_config(shape.config(labels))

    def load(self, job: Job) -> torch.nn.Module:
        return PLAIN[self.settings[job.setting].task.kind].from_pretrained(self.path(job)).eval()

    def victim_folder(self, setting: Setting) -> Path:
        """Where the victim lies; whoever wants it first trains it."""
        job = Job("victim", setting.name)
        path = self.path(job)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(path.name + ".lock")):
            if not path.exists():
                self.do(job)
        return path

    def victim(self, setting: Setting) -> torch.nn.Module:
        """The clean model that is protected."""
        return PLAIN[setting.task.kind].from_pretrained(self.victim_folder(setting)).eval()

    def key(self, setting: Setting, seed: int | str) -> WatermarkKey:
        """The key of a seed, with the temperature and strength that were chosen beforehand.

        Published like everything else here: these keys protect nothing.
        """
        victim = self.victim_folder(setting)
        chosen = json.loads((victim / _CHOSEN).read_text())
        secret = hashlib.sha256(f"drw_hf marks {setting.name} {seed}".encode()).digest()
        config, tokenizer = AutoConfig.from_pretrained(victim), self.tokenizer(setting)
        return WatermarkKey.generate(config, tokenizer=tokenizer, mark="tilt", secret=secret, **chosen)

    def answers(self, setting: Setting, teacher: Any, rows: Dataset) -> Dataset:
        """A model's answers to rows, kept for who asks again."""
        texts = rows.select_columns(list(setting.task.columns))
        return label_with_teacher(teacher, texts, self.tokenizer(setting), **self.asking(setting))

    def asking(self, setting: Setting) -> AskingOptions:
        """How anybody is asked: answers are kept beside the models of the setting."""
        return {"batch_size": 64, "cache_dir": self.folder / setting.name / "answers", "progress": False}

    # -- the kinds of jobs

    def do(self, job: Job) -> Record:
        return getattr(self, f"_do_{job.kind}")(job, self.settings[job.setting])

    def _do_victim(self, job: Job, setting: Setting) -> Record:
        parts, tokenizer = self.parts(setting), self.tokenizer(setting)
        model: Any = self.new_model(setting, seed=0)
        self.train(setting, setting.victim, 0, train_on_gold, setting.task.kind, tokenizer, parts.victim, model=model)
        asking: Any = {"label_column": setting.task.gold, **self.asking(setting)}
        fit = fit_tilt(model, parts.calibration, tokenizer, budget=BUDGET, keys=THROWAWAY_KEYS, **asking)
        with written_whole(self.path(job)) as folder:
            model.save_pretrained(folder)
            chosen = {"strength": fit.strength, "temperature": fit.temperature, "budget": fit.budget}
            (folder / _CHOSEN).write_text(json.dumps(chosen))
        rows = {part: len(getattr(parts, part)) for part in PARTS}
        cost = dataclasses.asdict(fit.cost)
        return {"rows": rows, **chosen, "classes": len(parts.corpus.labels), "clean": fit.clean_accuracy, "cost": cost}

    def _do_served(self, job: Job, setting: Setting) -> Record:
        victim, tokenizer, parts = self.victim(setting), self.tokenizer(setting), self.parts(setting)
        keys = [self.key(setting, f"cost {number}") for number in range(THROWAWAY_KEYS)]
        chosen = settings_of(keys[0])
        asking: Any = {"label_column": setting.task.gold, **self.asking(setting)}
        traffic = observe_tilt_traffic(victim, parts.unseen, tokenizer, like=keys[0], **asking)
        cost = TiltCosts(traffic, chosen.temperature, keys).at(chosen.strength)
        asked = ask_victim(victim, tokenizer, parts.evaluated_on("unseen"))
        return {"cost": dataclasses.asdict(cost), **measure_served(asked, keys, chosen.temperature)}

    def _do_student(self, job: Job, setting: Setting) -> Record:
        model, record = self._made_student(job, setting)
        victim, parts = self.victim(setting), self.parts(setting)
        with written_whole(self.path(job)) as folder:
            model.save_pretrained(folder)
            for where in WHERE:
                rows = getattr(parts, where)
                probe = probe_suspect(
                    model,
                    parts.corpus.texts(rows),
                    key=self.key(setting, job.seed),
                    tokenizer=self.tokenizer(setting),
                    victim=victim,
                    gold=parts.corpus.gold(rows),
                    **self.asking(setting),
                )
                probe.save(folder / f"{where}.npz")
                record[f"accuracy, {where}"] = accuracy_of(probe)
        return record

    def _do_score(self, job: Job, setting: Setting) -> Record:
        other = job.student == OTHER_KEY
        key = self.key(setting, job.seed + OTHER_SEED if other else job.seed)
        folder = self.path(dataclasses.replace(job, kind="student", student=SOFT if other else job.student))
        record: Record = {}
        for where in WHERE:
            probe = dataclasses.replace(Probe.load(folder / f"{where}.npz"), gold=None)
            record[where] = {}
            for form, one in (("scores", probe), ("labels", labels_alone(probe))):
                for whose, given in (("with the victim", one), ("without", dataclasses.replace(one, victim=None))):
                    record[where][f"{form}, {whose}"] = tested(given, key, spectrum=True)
        return record

    def _do_referenced(self, job: Job, setting: Setting) -> Record:
        key, of = self.key(setting, job.seed), dataclasses.replace(job, kind="student", reference=0)
        reference = dataclasses.replace(of, student=CLEAN, seed=job.reference)
        record: Record = {"reference": job.reference}
        for where in WHERE:
            said = Probe.load(self.path(reference) / f"{where}.npz").suspect
            probe = dataclasses.replace(Probe.load(self.path(of) / f"{where}.npz"), gold=None, reference=said)
            record[where] = {
                "scores, with victim and reference": tested(probe, key, spectrum=True),
                "labels, with victim and reference": tested(labels_alone(probe), key, spectrum=True),
                "scores, with the reference": tested(dataclasses.replace(probe, victim=None), key, spectrum=True),
            }
        return record

    # -- students

    def _made_student(self, job: Job, setting: Setting) -> tuple[Any, Record]:
        """A trained student, and what is to be said of its training."""
        parts, tokenizer, student = self.parts(setting), self.tokenizer(setting), STUDENTS[job.student]
        learn = functools.partial(self.train, setting, setting.student, job.seed)
        if student.of is not None:
            first = self.load(dataclasses.replace(job, student=student.of))
            if student.name == PRUNED:
                return prune(first), {}
            if student.name == FINE_TUNED:
                rows = parts.queries.select(range(round(TUNED_SHARE * len(parts.queries))))
                rate = setting.student.learning_rate / 2
                slower = dataclasses.replace(setting.student, epochs=TUNED_EPOCHS, learning_rate=rate)
                learn = functools.partial(self.train, setting, slower, job.seed)
                return first, learn(train_on_gold, setting.task.kind, tokenizer, rows, model=first)
        model = self.new_model(setting, job.seed, setting.student_width)
        if student.name == GOLD:
            return model, learn(train_on_gold, setting.task.kind, tokenizer, parts.queries, model=model)
        if student.name == SECOND:
            answers = self.answers(setting, first, parts.others)
        elif student.name == CLEAN:
            answers = self.answers(setting, self.victim(setting), parts.queries)
        else:
            answers = self._stolen(setting, job.seed, student.learns)
        if student.name == DEBIASED:
            answers = debias(answers, self._carriers(setting, parts.queries))
        record = learn(distil, model, tokenizer, answers, label_kind=student.learns, attack=student.attack)
        return model, record | {"rows": len(answers)}

    def _stolen(self, setting: Setting, seed: int, label_kind: LabelKind) -> Dataset:
        """What the protected victim answered to the thief's queries.

        Hard labels are the argmax of the soft answers, so that one student stands for a thief of either.
        """
        victim, key = self.victim(setting), self.key(setting, seed)
        kinds: list[LabelKind] = ["soft", "hard"] if label_kind == "hard" else ["soft"]
        services = [PROTECTED[key.task].from_model(victim, key=key, label_kind=kind) for kind in kinds]
        served = [self.answers(setting, service, self.parts(setting).queries) for service in services]
        if served[0][LABELS][:] != served[-1][LABELS][:]:
            raise DrwError(f"{setting.title}: hard labels are not the argmax of the soft answers; they must be")
        return served[-1]

    def _carriers(self, setting: Setting, rows: Dataset) -> list[list[int]]:
        """The tokens that carry the mark in each row: see :func:`~drw_hf.experiments.marks_thieves.debias`."""
        tokenizer, texts = self.tokenizer(setting), rows[setting.task.columns[0]][:]
        encoding = tokenize(tokenizer, texts, setting.encoder.max_length)
        special = set(tokenizer.all_special_ids)
        if setting.task.kind == "sequence-classification":
            return [sorted(set(ids) - special) for ids in encoding["input_ids"]]
        places = places_of_words(texts, encoding, ())
        firsts = [
            [-1 if place is None else ids[place] for place in row]
            for ids, row in zip(encoding["input_ids"], places, strict=True)
        ]
        return [[-1 if token in special else token for token in row] for row in firsts]

    def train(
        self, setting: Setting, training: Training, seed: int, train: Callable, /, *arguments: Any, **options: Any
    ) -> Record:
        """Train a model, one of the arguments; what is to be said of it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = training_arguments(training, seed, setting.encoder.max_length)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            train(*arguments, scratch, **settings, **options)
        return {"epochs": training.epochs}


def accuracy_of(probe: Probe) -> float:
    """How often the suspect is right, in points."""
    assert probe.gold is not None  # the caller has given it
    return 100.0 * float(np.mean(probe.suspect.argmax(1) == probe.gold))


def labels_alone(probe: Probe) -> Probe:
    """A probe of the same suspect, had it given labels without scores."""
    labels = np.eye(probe.suspect.shape[1], dtype=np.float32)[probe.suspect.argmax(axis=1)]
    return dataclasses.replace(probe, suspect=labels, kind="labels")
