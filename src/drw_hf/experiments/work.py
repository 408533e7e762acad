"""Doing a job: train a victim or a student, probe it, score it.

What is made lies in one folder, for other jobs to use. A job reads the results of the jobs it needs from that folder
and returns a small record; nothing else is shared, so jobs may run in any process.
"""

import dataclasses
import functools
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, concatenate_datasets
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoTokenizer, PreTrainedTokenizerFast

from ..asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from ..asking.models import PLAIN, PROTECTED
from ..checks import numbers_of
from ..detection import jsd
from ..detection.probing import Probe, probe_suspect
from ..keys import WatermarkKey
from ..keys.choices import LabelKind
from ..keys.hash_rules import RarestRule
from ..runs.folders import written_whole
from .corpus import SPECIAL_NAMES, SPECIAL_TOKENS
from .jobs import CASE_SEED, CASE_TASK, GOLD, MODES, UNWATERMARKED, WATERMARKED, Job, Mode, Student
from .profiles import Profile, Training
from .ranking import figures_of_merit
from .scoring import score_probe
from .serving import serve
from .tasks import TASKS, Corpus, load_corpus
from .theft import distil, pretrained_model, train_on_gold

PREPENDED = "indeed well"  # what the thief puts before every text
COMPARED = 640  # rows that the baseline is computed on over all positions
LONGEST_END = 4  # letters of a word end that may be a piece
SERVED_KEYS = 5  # that accuracy is averaged over


@dataclass(frozen=True)
class Workshop:
    """Where jobs are done: the profile, the data, and the folder for what is made."""

    profile: Profile
    folder: Path  # for models, answers and probes
    data: str | None = None  # folder of the data sets; without it, the Hub
    other: str | None = None  # another pretrained encoder, for the student of the case study

    # -- what jobs share

    def corpus(self, task: str) -> Corpus:
        settings = self.profile.settings[task]
        return load_corpus(task, self.data, settings.rows, settings.evaluated)

    def tokenizer(self, task: str, encoder: str | None = None) -> Any:
        """The tokenizer of victim and students, or of the other encoder."""
        shape, path = self.profile.encoder, self._pretrained(encoder)
        if path is not None:
            return pretrained_tokenizer(path, shape.max_length)
        return own_tokenizer(self.corpus(task), shape.vocabulary, shape.max_length)

    def new_model(self, task: str, seed: int, encoder: str | None = None) -> torch.nn.Module:
        """An untrained model: a pretrained encoder with a fresh head, or all from scratch."""
        labels, kind, path = self.corpus(task).labels, TASKS[task].kind, self._pretrained(encoder)
        if path is not None:
            return pretrained_model(kind, path, seed, labels)
        torch.manual_seed(seed)
        shape = dataclasses.replace(self.profile.encoder, vocabulary=len(self.tokenizer(task)))
        return PLAIN[kind].from_config(shape.config(labels))

    def _pretrained(self, encoder: str | None) -> str | None:
        return self.other if encoder == "other" else self.profile.encoder.pretrained

    def path(self, job: Job) -> Path:
        """Where a job's result lies: a model's folder, or a probe's."""
        return self.folder / job.kind / job.name.split(" ", 1)[1].replace("/", "_")

    def made(self, job: Job) -> bool:
        """Whether what other jobs need of this one is there."""
        return job.kind not in ("victim", "student", "probe") or self.path(job).exists()

    def victim(self, task: str) -> torch.nn.Module:
        return self.load(Job("victim", task))

    def load(self, job: Job) -> torch.nn.Module:
        return PLAIN[TASKS[job.task].kind].from_pretrained(self.path(job)).eval().to(PartialState().device)

    def weights(self, job: Job) -> str:
        """Names the weights of a model that a job made: a victim trained again, elsewhere, has others."""
        with (self.path(job) / "model.safetensors").open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]

    def key(self, victim: Any, student: Student) -> WatermarkKey:
        """The key that a student's answers were marked with, or that it is tested with: one for every seed.

        ``victim`` is the model, or its configuration, which says all that a key must know of it.
        Published like everything else here: these keys protect nothing.
        """
        mode, rule = MODES[student.mode], student.rule
        settings: dict[str, Any] = {**self.profile.key, "law": mode.law, "scope": mode.scope}
        varied = {"epsilon": student.epsilon, "tau": student.tau}
        settings |= {name: value for name, value in varied.items() if value is not None}
        return WatermarkKey.generate(
            victim,
            tokenizer=self.tokenizer(student.task),
            target=student.target or TASKS[student.task].target,
            hash_rule=RarestRule(self._frequencies(student.task)) if rule == "rarest" else rule,
            secret=hashlib.sha256(f"drw_hf experiments {student.task} {student.seed}".encode()).digest(),
            **settings,
        )

    def _frequencies(self, task: str) -> np.ndarray:
        """How often every token occurs in the training texts."""
        corpus, tokenizer = self.corpus(task), self.tokenizer(task)
        encoded = tokenizer(*(corpus.train[column][:] for column in corpus.task.columns), add_special_tokens=False)
        ids = np.concatenate([np.asarray(row, dtype=np.int64) for row in encoded["input_ids"]])
        return np.bincount(ids, minlength=len(tokenizer)).astype(np.float64)

    def protected(
        self, victim: torch.nn.Module, key: WatermarkKey, mode: Mode, label_kind: LabelKind
    ) -> torch.nn.Module:
        """The victim as it is served."""
        options: Any = {"sampling": mode.sampling, "sample_all": mode.sample_all} if label_kind == "hard" else {}
        return PROTECTED[key.task].from_model(victim, key=key, label_kind=label_kind, **options)

    def answers(self, teacher: Any, rows: Dataset, tokenizer: Any) -> Dataset:
        """A model's answers to rows, kept for who asks again."""
        return label_with_teacher(
            teacher, rows, tokenizer, batch_size=64, cache_dir=self.folder / "answers", progress=False
        )

    def evaluate(self, model: torch.nn.Module, task: str, encoder: str | None = None) -> dict[str, float]:
        """Accuracy on the task's evaluation split, of words for taggers; and their F1."""
        corpus = self.corpus(task)
        labelled = self.answers(model, corpus.texts(corpus.evaluation), self.tokenizer(task, encoder))
        return figures_of_merit(corpus, labelled[LABELS][:])

    # -- the kinds of jobs

    def do(self, job: Job) -> dict[str, Any]:
        return getattr(self, f"_do_{job.kind}")(job)

    def _do_victim(self, job: Job) -> dict[str, Any]:
        corpus = self.corpus(job.task)
        settings = self.profile.settings[job.task].victim
        model = self._on_gold(job, corpus.train, settings, seed=0)
        made = {"data": corpus.digest, "weights": self.weights(job)}
        return {"rows": len(corpus.train), "epochs": settings.epochs, **made, **self.evaluate(model, job.task)}

    def _do_accuracy(self, job: Job) -> dict[str, Any]:
        victim = self.victim(job.task)
        keys = [self.key(victim, Student(job.task, WATERMARKED, seed=seed)) for seed in range(1, SERVED_KEYS + 1)]
        return serve(victim, self.tokenizer(job.task), self.corpus(job.task), keys)

    def _do_student(self, job: Job) -> dict[str, Any]:
        student, corpus = job.student, self.corpus(job.task)
        assert student is not None  # it is the job
        settings = self.profile.settings[job.task].student
        rows = corpus.queries.select(range(round(student.queries * len(corpus.queries))))
        # Who asks less trains longer: as many steps, or it would be the training that is compared.
        settings = dataclasses.replace(settings, epochs=round(settings.epochs / student.queries))
        record = {"rows": len(rows), "epochs": settings.epochs, "data": corpus.digest}
        if student.teacher == GOLD:
            model = self._on_gold(job, rows, settings, student.seed)
        else:
            model = self._distilled(job, student, rows, settings)
            record["victim"] = self.weights(Job("victim", job.task))
        if student.encoder is not None:
            record["encoder"] = os.path.basename(str(self.other).rstrip("/"))
        return record | self.evaluate(model, job.task, student.encoder)

    def _do_probe(self, job: Job) -> dict[str, Any]:
        student, corpus = job.student, self.corpus(job.task)
        assert student is not None  # it is who is probed
        suspect = self.load(Job("student", job.task, student))
        victim, tokenizer = self.victim(job.task), self.tokenizer(job.task)
        key = self.key(victim, student)
        record: dict[str, Any] = {}
        asked = corpus.queries.select(range(round(student.queries * student.share * len(corpus.queries))))
        with written_whole(self.path(job)) as folder:
            for where, rows in (("queries", asked), ("unseen", corpus.unseen)):
                probe = probe_suspect(
                    suspect,
                    corpus.texts(rows),
                    key=key,
                    tokenizer=tokenizer,
                    suspect_tokenizer=self.tokenizer(job.task, student.encoder),
                    victim=victim,
                    gold=corpus.gold(rows),
                    logged=self._logged(victim, key, student, rows) if where == "queries" else None,
                    batch_size=64,
                    cache_dir=self.folder / "answers",
                    progress=False,
                )
                probe.save(folder / f"{where}.npz")
                record[where] = {"n_texts": probe.n_texts, "n_items": len(probe.rows)}
            if student.encoder is None:
                teacher = self.protected(victim, key, MODES[student.mode], "soft")
                record["jsd_everywhere"] = divergence_everywhere(
                    suspect, teacher, tokenizer, corpus.texts(corpus.queries), corpus.task.columns
                )
        return record

    def _do_score(self, job: Job) -> dict[str, Any]:
        assert job.student is not None  # it is who is scored
        student = job.key_of or job.student
        victim = AutoConfig.from_pretrained(self.path(Job("victim", job.task)))
        key, kept = self.key(victim, student), TASKS[job.task].kept
        # The case study shows students of the tables, and the one of the other encoder.
        plain = Student(CASE_TASK, student.teacher, student.labels, CASE_SEED, encoder=student.encoder)
        shown = student == job.student == plain and student.teacher != UNWATERMARKED
        record: dict[str, Any] = {"key": dataclasses.asdict(MODES[student.mode])}
        for where in ("queries", "unseen"):
            probe = Probe.load(self.path(Job("probe", job.task, job.student)) / f"{where}.npz")
            record[where] = score_probe(probe, key, kept, curve=shown)
            if shown and where == "queries":
                wrong = self.key(victim, dataclasses.replace(student, seed=student.seed + 1000))
                record["wrong key"] = score_probe(probe, wrong, kept, curve=True, served_with=key)
        return record

    # -- training

    def _on_gold(self, job: Job, rows: Dataset, settings: Training, seed: int) -> torch.nn.Module:
        arguments = training_arguments(settings, seed, self.profile.encoder.max_length)
        arguments["best_on"] = self.corpus(job.task).validation if settings.keep == "best" else None
        kind, model, tokenizer = TASKS[job.task].kind, self.new_model(job.task, seed), self.tokenizer(job.task)
        return self._trained(job, model, train_on_gold, kind, tokenizer, rows, model=model, **arguments)

    def _distilled(self, job: Job, student: Student, rows: Dataset, settings: Training) -> torch.nn.Module:
        corpus, teacher, mode = self.corpus(job.task), self.victim(job.task), MODES[student.mode]
        arguments = training_arguments(settings, student.seed, self.profile.encoder.max_length)
        arguments["label_kind"] = "soft" if student.labels == "soft" else "hard"
        drawn = student.teacher == WATERMARKED and student.labels == "hard"
        if student.teacher == WATERMARKED:
            teacher = self.protected(teacher, self.key(teacher, student), mode, "hard" if drawn else "soft")
        if drawn and mode.requery:
            learned, arguments = corpus.texts(rows), {**arguments, "teacher": teacher, "requery": True}
        else:
            learned = self._answered(teacher, rows, student, corpus)
        model = self.new_model(job.task, student.seed, student.encoder)
        tokenizer = self.tokenizer(job.task, student.encoder)
        return self._trained(job, model, distil, model, tokenizer, learned, **arguments)

    def _answered(self, teacher: Any, rows: Dataset, student: Student, corpus: Corpus) -> Dataset:
        """The thief's training data: the teacher's answers, gold labels for the rows that it did not ask about."""
        asked, first, gold = round(student.share * len(rows)), corpus.task.columns[0], corpus.task.gold
        texts, tokenizer = corpus.texts(rows.select(range(asked))), self.tokenizer(student.task)
        if student.prepended:
            questions = texts.map(lambda row: {first: f"{PREPENDED} {row[first]}"})
            answered = self.answers(teacher, questions, tokenizer)
            answered = answered.remove_columns(first).add_column(first, texts[first][:])
        else:
            answered = self.answers(teacher, texts, tokenizer)
        if asked == len(rows):
            return answered
        certain = np.eye(len(corpus.labels), dtype=np.float32)
        labelled = rows.select(range(asked, len(rows))).map(
            lambda row: {PROBABILITIES: certain[row[gold]].tolist(), LABELS: row[gold]},
            remove_columns=gold,
            features=answered.features,
        )
        return concatenate_datasets([answered, labelled])

    def _logged(self, victim: Any, key: WatermarkKey, student: Student, rows: Dataset) -> list[Any] | None:
        """The labels that a thief of hard labels was served, where they are the same each time."""
        mode = MODES[student.mode]
        drawn = student.teacher == WATERMARKED and student.labels == "hard"
        if not drawn or mode.sampling != "keyed" or student.prepended:
            return None
        texts, served = self.corpus(student.task).texts(rows), self.protected(victim, key, mode, "hard")
        return self.answers(served, texts, self.tokenizer(student.task))[LABELS][:]

    def _trained(self, job: Job, model: Any, train: Callable, /, *arguments: Any, **settings: Any) -> torch.nn.Module:
        """Train a model, and save it so that it is there whole or not at all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            train(*arguments, scratch, **settings)
        with written_whole(self.path(job)) as folder:
            model.to("cpu").save_pretrained(folder)
        return model.eval().to(PartialState().device)


def training_arguments(settings: Training, seed: int, max_length: int) -> dict[str, Any]:
    """What :func:`train_on_gold` and :func:`distil` are told of a training."""
    return {
        "epochs": settings.epochs,
        "seed": seed,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": 64,
        "train_sampling_strategy": "group_by_length",
        "use_cpu": False,
        "max_length": max_length,
    }


@torch.no_grad()
def divergence_everywhere(
    suspect: torch.nn.Module, teacher: torch.nn.Module, tokenizer: Any, rows: Dataset, columns: Sequence[str]
) -> float:
    """The baseline as the paper's code computes it: over padding and special positions, too."""
    tagger = columns[0] == "tokens"
    sums, count = 0.0, 0
    for start in range(0, min(COMPARED, len(rows)), 64):
        texts = [rows[column][start : start + 64] for column in columns]
        batch = tokenizer(*texts, is_split_into_words=tagger, truncation=True, padding=True, return_tensors="pt")
        batch = batch.to(suspect.device)
        answers = [model(**batch).logits.float().softmax(-1).cpu().numpy() for model in (suspect, teacher)]
        positions = int(np.prod(answers[0].shape[:-1]))
        sums, count = sums + jsd(*answers) * positions, count + positions
    return sums / count


@functools.cache
def pretrained_tokenizer(path: str, limit: int) -> Any:
    """The tokenizer of a pretrained encoder, which cuts texts at a limit."""
    tokenizer = AutoTokenizer.from_pretrained(path, add_prefix_space=True)
    tokenizer.model_max_length = min(limit, tokenizer.model_max_length)
    return tokenizer


@functools.cache
def own_tokenizer(corpus: Corpus, vocabulary: int, limit: int) -> Any:
    """A BERT-like tokenizer, lower-cased, whose word pieces come from the training texts.

    Counted rather than trained: training word pieces gives other ids each time, and a key marks ids. The commonest
    words are pieces, and so are the commonest word ends, to split the other words by.
    """
    normalizer, splitter = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for column in corpus.task.columns:
        for text in corpus.train[column][:]:
            plain = normalizer.normalize_str(text if isinstance(text, str) else " ".join(text))
            words.update(word for word, _ in splitter.pre_tokenize_str(plain))
    ends: Counter[str] = Counter()
    for word, count in words.items():
        ends.update({f"##{word[place:]}": count for place in range(max(1, len(word) - LONGEST_END), len(word))})
    letters = sorted({letter for word in words for letter in word})
    pieces = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)]
    pieces += [*_commonest(ends, vocabulary // 8), *_commonest(words, vocabulary)]
    numbers = numbers_of(list(dict.fromkeys(pieces))[:vocabulary])
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, numbers[name]) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=limit, **SPECIAL_NAMES)


def _commonest(counts: Counter[str], number: int) -> list[str]:
    """The most frequent, in an order that depends on nothing else."""
    return sorted(counts, key=lambda word: (-counts[word], word))[:number]
