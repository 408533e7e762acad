"""How one attack is played: a whole theft from a service, and what the owner finds afterwards."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets

from ..asking.labelling import LABELS, label_with_teacher
from ..asking.models import PROTECTED
from ..asking.near_duplicates import texts_in_common
from ..asking.options import AskingOptions
from ..detection.probe import Probe, are_labels_alone
from ..detection.probing import probe_suspect
from ..detection.statistics import STATISTICS, Finding, TestOptions, newest_for
from ..detection.verdict import Corrections
from ..errors import DrwError, InvalidInputError
from ..extraction.attacks import Attack, attack_named
from ..extraction.stolen import answers_in, with_answers
from ..extraction.students import Recipe, Student
from ..extraction.thief import Thief
from ..keys.choices import AnswerKind, LabelKind
from ..keys.key import WatermarkKey
from ..keys.settings import MARKS
from ..runs.lines import Record
from .tilt_traffic import throwaway_key

NOTHING, INNOCENT, BASELINE = "nothing", "innocent", "baseline"  # jobs that others are compared with
FORGERY = "forgery"
MANY = 0.25  # of the texts that a thief has: so many that near-duplicates are variants of are tested, too
LOGGED_AT_MOST = 3  # times as many texts of a log are tested as the thief has; which, does not depend on answers
_BOTH = Corrections(looks=2)  # scores and labels are two looks, of which the better one counts


@dataclass(frozen=True, eq=False)
class Bench:
    """A service, its thief and what is measured: everything that attacks of one rehearsal share.

    Attributes
    ----------
    victim : PreTrainedModel
        The clean model.
    key : WatermarkKey
        What it is served with, as ``label_kind`` answers.
    tokenizer : PreTrainedTokenizerBase
    queries, unseen, others : Dataset
        The thief's texts, texts that nobody was trained on, and more of the thief's for a second generation: the
        columns of texts alone.
    gold, unseen_gold : list of array, optional
        The right labels of queries and unseen texts, by number.
    recipe : Recipe
    seed : int
    folder : Path
        For answers and models.
    digits : int, optional
        To how many digits soft answers are rounded, where it is not as is usual for the mark.
    """

    victim: Any
    key: WatermarkKey
    label_kind: LabelKind
    tokenizer: Any
    queries: Dataset
    unseen: Dataset
    others: Dataset
    gold: Sequence[np.ndarray] | None
    unseen_gold: Sequence[np.ndarray] | None
    folder: Path
    recipe: Recipe = field(default_factory=Recipe)
    seed: int = 1
    digits: int | None = None

    @cached_property
    def accounts(self) -> list[WatermarkKey]:
        """The key, and those of the other accounts that a thief may open."""
        return [self.key, throwaway_key(self.key), throwaway_key(self.key)]

    @property
    def asking(self) -> AskingOptions:
        """How models are asked."""
        return {"batch_size": 64, "cache_dir": self.folder / "answers", "progress": False}

    def service(self, texts: Dataset, account: int) -> Dataset:
        """What an account is answered."""
        if texts is self.queries and account == 0:
            return self._plain_answers
        return self._ask(texts, account)

    @cached_property
    def _plain_answers(self) -> Dataset:
        """What the thief's texts are answered, which nearly every attack asks."""
        return self._ask(self.queries, 0)

    def _ask(self, texts: Dataset, account: int) -> Dataset:
        return label_with_teacher(self._protected(self.accounts[account]), texts, self.tokenizer, **self.asking)

    def _protected(self, key: WatermarkKey) -> Any:
        """The victim as it is served under a key."""
        options: Any = {"label_kind": self.label_kind, "digits": self.digits}
        return PROTECTED[key.task].from_model(self.victim, key=key, **options)

    def thief(self) -> Thief:
        """A thief who has asked nothing yet."""
        return Thief(
            task=self.key.task,
            labels=tuple(self.key.labels),
            label_kind=self.label_kind,
            tokenizer=self.tokenizer,
            texts=self.queries,
            service=self.service,
            new_key=lambda: throwaway_key(self.key),
            recipe=self.recipe,
            gold=self.gold,
            others=self.others,
            seed=self.seed,
            folder=self.folder / "thief",
        )

    def unfit(self, attack: Attack) -> str | None:
        """Why an attack cannot be played here; None where it can."""
        if attack.gold and self.gold is None:
            return "it needs right labels of the thief's texts, and the data has none"
        if attack.stage == "student" and attack.name == "second-generation" and not len(self.others):
            return "it needs more texts than the thief asks about"
        return attack.unfit(self.key.task, self.label_kind, self.key.num_labels)

    # -- playing

    def play(self, name: str) -> Record:
        """Play an attack, or train an innocent, and say what the owner finds; a theft that fails says why.

        A disk that is full is no failure of the theft.
        """
        attack = None if name == INNOCENT else attack_named(name)
        told = ("stage", "needs", "gold", "title")
        about: Record = {} if attack is None else {name: getattr(attack, name) for name in told}
        try:
            return {**about, **self._play(attack)}
        except DrwError as error:
            if isinstance(error, OSError):
                raise
            return {**about, "failed": f"{type(error).__name__}: {error}"}

    def _play(self, attack: Attack | None) -> Record:
        thief = self.thief()
        if attack is None:
            student = thief.innocent()
        elif attack.name == NOTHING or attack.stage in ("student", "suspect"):
            # What comes after the theft starts from the student of a thief without any attack.
            student = thief.kept(NOTHING, lambda: attack_named(NOTHING).steal(thief))
            student = attack.alter(student, thief)
        else:
            student = attack.steal(thief)
        log = thief.log or [self._plain_log]
        rows = concatenate_datasets(log)
        asked = 0 if attack is None else sum(map(len, thief.log or ([] if attack.stage == FORGERY else log)))
        record: Record = {"asked": asked, **self._examine(student, rows, attack)}
        tries = getattr(attack, "tries", 0)
        return {**record, "searched": self._search(student, tries)} if tries else record

    @cached_property
    def _plain_log(self) -> Dataset:
        """The log of a thief without any attack."""
        return with_answers(self.queries, answers_in(self.service(self.queries, 0)), self.key.labels)

    # -- what the owner finds

    def _examine(self, student: Student, logged: Dataset, attack: Attack | None) -> Record:
        common = self._in_common(logged)
        logged = logged.select(range(min(len(logged), LOGGED_AT_MOST * len(self.queries))))
        texts = logged.select_columns([name for name in logged.column_names if not name.startswith("teacher_")])
        draws = self.label_kind == "hard" and MARKS.get(self.key.mark).draws(self.key.settings)
        log = self._probe(student, texts, logged=logged[LABELS][:] if draws else None)
        unseen = self._probe(student, self.unseen, gold=self.unseen_gold)
        more: Record = {}
        if attack is not None and attack.changes_what_is_served:
            rng = np.random.default_rng(self.seed)
            log, unseen = answering(log, attack, rng), answering(unseen, attack, rng)
            n_refused = int((~log.suspect.any(1)).sum())
            more["refused"] = round(n_refused / len(log.suspect), 4)
        on_log = tested(answered(log), self.key)
        if common is not None:
            more["in_common"] = tested(answered(self._probe(student, common)), self.key)
            best = min(on_log["log10_bound"], more["in_common"]["log10_bound"])
            on_log["log10_bound"] = round(_BOTH.correct(best), 3)
        return {
            "accuracy": round(self._accuracy(unseen), 3),
            "log": on_log,
            "unseen": tested(answered(dataclasses.replace(unseen, gold=None)), self.key),
            **more,
        }

    def _in_common(self, logged: Dataset) -> Dataset | None:
        """The texts that near-duplicates of a log are variants of, if these are many."""
        columns = self.queries.column_names
        if len(logged) < 2 * len(self.queries) or not set(columns) <= set(logged.column_names):
            return None  # no thief asks variants who asks so little, and of token ids no words are known
        common = texts_in_common(logged, task=self.key.task, text_columns=columns)
        return common if len(common) >= MANY * len(self.queries) else None

    def _probe(self, student: Student, texts: Dataset, *, gold: Any = None, logged: Any = None) -> Probe:
        options: Any = {"suspect_tokenizer": student.tokenizer, **self.asking}
        if "input_ids" in texts.column_names:  # the log of a service that takes ids
            texts = [dict(row) for row in texts]  # rows are questions, too
        gold = None if gold is None else [row if len(row) != 1 or self._by_word else row[0] for row in gold]
        return probe_suspect(
            student.model,
            texts,
            key=self.key,
            tokenizer=self.tokenizer,
            victim=self.victim,
            gold=gold,
            logged=logged,
            **options,
        )

    @property
    def _by_word(self) -> bool:
        return self.key.task == "token-classification"

    def _accuracy(self, probe: Probe) -> float:
        """How often a suspect is right, in points; without right labels, how often it agrees with the victim.

        A refusal is wrong.
        """
        assert probe.victim is not None
        right = probe.victim.argmax(1) if probe.gold is None else probe.gold
        hits = (probe.suspect.argmax(1) == right) & probe.suspect.any(1)
        return 100.0 * float(hits[right >= 0].mean())

    def _search(self, student: Student, tries: int) -> Record:
        """The best of so many fresh keys on unseen text, as it is and corrected for the search."""
        probe = self._probe(student, self.unseen)
        bounds = [tested(probe, throwaway_key(self.key))["log10_bound"] for _ in range(tries)]
        best = min(bounds)
        return {"keys": tries, "log10_bound": best, "corrected": round(Corrections(keys_tried=tries).correct(best), 3)}

    # -- what they are compared with

    def baseline(self) -> Record:
        """The accuracy of the victim and of what it serves, on unseen text."""
        probe = self._probe(Student(self.victim, self.tokenizer), self.unseen, gold=self.unseen_gold)
        served = Student(self._protected(self.key), self.tokenizer)
        marked = self._probe(served, self.unseen, gold=self.unseen_gold)
        return {
            "victim": round(self._accuracy(probe), 3),
            "served": round(self._accuracy(marked), 3),
            "measured": "agreement with the victim" if self.unseen_gold is None else "accuracy",
        }


def answering(probe: Probe, attack: Attack, rng: np.random.Generator) -> Probe:
    """The probe of a suspect whose answers an attack changes; refusals have zeros."""
    changed = attack.answer(probe.suspect.astype(np.float64), rng).astype(np.float32)
    return dataclasses.replace(probe, suspect=changed)


def answered(probe: Probe) -> Probe:
    """The items of a probe that the suspect answered."""
    there = probe.suspect.any(1)
    names = ("rows", "places", "suspect", "victim", "gold", "logged", "reference")
    arrays = {name: getattr(probe, name) for name in names}
    kept: dict[str, Any] = {name: None if array is None else array[there] for name, array in arrays.items()}
    if not there.any():
        raise InvalidInputError("the suspect answered nothing; there is nothing to test")
    kind: AnswerKind = "labels" if are_labels_alone(kept["suspect"]) else "probabilities"
    return dataclasses.replace(probe, kind=kind, **kept)


def labels_alone(probe: Probe) -> Probe:
    """A probe of the same suspect, had it given labels without scores."""
    labels = np.eye(probe.suspect.shape[1], dtype=np.float32)[probe.suspect.argmax(axis=1)]
    return dataclasses.replace(probe, suspect=labels, kind="labels")


def tested(probe: Probe, key: WatermarkKey) -> Record:
    """The tests of a suspect's scores and of its labels, and the better of both, corrected for having looked twice."""
    if probe.kind == "labels":
        labels = _figures(_test(probe, key))
        return {"labels": labels, "log10_bound": labels["log10_bound"]}
    found = _test(probe, key)
    beside = found.beside if isinstance(found, Finding) and found.beside else _test(labels_alone(probe), key)
    scores, labels = _figures(found), _figures(beside)
    best = min(scores["log10_bound"], labels["log10_bound"])
    return {"scores": scores, "labels": labels, "log10_bound": round(_BOTH.correct(best), 3)}


def _test(probe: Probe, key: WatermarkKey) -> Finding | InvalidInputError:
    statistic = newest_for(STATISTICS, probe, key)
    try:
        if statistic is None:
            raise InvalidInputError("no statistic applies")
        return statistic.test(probe, key, TestOptions())
    except InvalidInputError as reason:
        return reason


def _figures(found: Finding | InvalidInputError) -> Record:
    if not isinstance(found, Finding):
        return {"z": 0.0, "log10_bound": 0.0, "why": str(found)}
    return {"z": round(found.test.z_score, 3), "log10_bound": round(found.test.log10_bound, 3), "n": found.n_probes}
