"""What jobs cost: an estimate from their size, brought to seconds by the jobs that have ended."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..runs.jobs import Run
from .jobs import GOLD, Job, Student
from .profiles import Encoder, Profile
from .work import Workshop

_SAMPLED = 400  # rows from which the length of a task's texts is estimated
_SPECIAL = 2
_PIECES = 1.3  # word pieces per word
_FEW = 4  # texts of a timed step on a CPU
_BACKWARD = 3.0  # a step of training, in forward passes


@dataclass(frozen=True)
class Costs:
    """The forward passes that jobs are worth, in tokens."""

    profile: Profile
    rows: Mapping[str, tuple[int, int]]  # of every task: training rows, and rows that it is evaluated on
    tokens: Mapping[str, float]  # of every task: tokens per text, on average

    @classmethod
    def of(cls, workshop: Workshop, tasks: Iterable[str]) -> "Costs":
        rows, tokens = {}, {}
        for task in dict.fromkeys(tasks):
            corpus = workshop.corpus(task)
            some = corpus.train.select(range(min(_SAMPLED, len(corpus.train))))
            texts = [text for column in corpus.task.columns for text in some[column]]
            words = sum(len(text.split() if isinstance(text, str) else text) for text in texts)
            rows[task] = (len(corpus.train), len(corpus.evaluation))
            tokens[task] = words / len(some) * _PIECES + _SPECIAL
        return cls(workshop.profile, rows, tokens)

    def of_job(self, job: Job) -> float:
        """Tokens passed forward, a step back counted as two more."""
        settings = self.profile.settings[job.task]
        train, evaluated = self.rows[job.task]
        texts = {
            "victim": _BACKWARD * train * settings.victim.epochs + evaluated,
            "student": _BACKWARD * train / 2 * settings.student.epochs + evaluated,  # who asks less trains longer
            "probe": train,
            "score": train / 10,
            "accuracy": evaluated,
        }[job.kind]
        if job.kind == "student" and job.student and job.student.teacher != GOLD:
            texts += train / 2 * job.student.queries
        return texts * self.tokens[job.task]

    def seconds(self, jobs: Iterable[Job], records: Iterable[Mapping[str, Any]]) -> float | None:
        """How long jobs would take one worker, by what jobs of their kind have taken; None while nothing is known."""
        spent: dict[str, float] = defaultdict(float)
        worth: dict[str, float] = defaultdict(float)
        for record in records:
            job = job_of(record)
            if job is not None and job.task in self.rows and "seconds" in record:
                spent[job.kind] += record["seconds"]
                worth[job.kind] += self.of_job(job)
        if not spent:
            return None
        rates = {kind: spent[kind] / worth[kind] for kind in spent}
        mean = sum(spent.values()) / sum(worth.values())
        return sum(self.of_job(job) * rates.get(job.kind, mean) for job in jobs)

    def seconds_left(self, run: Run) -> float | None:
        """The same of the jobs that a run still has to do."""
        done = run.done()
        return self.seconds(run.open_jobs(done), done.values())


def job_of(record: Mapping[str, Any]) -> Job | None:
    """The job that a line is of; None for the line of settings."""
    if "kind" not in record:
        return None
    student = Student(**record["student"]) if "student" in record else None
    return Job(record["kind"], record["task"], student)


def operations_per_token(encoder: Encoder) -> float:
    """Floating-point operations of a token's forward pass: two for every weight of the layers."""
    return 2.0 * encoder.layers * (4 * encoder.width**2 + 2 * encoder.width * encoder.inner)


def bytes_per_model(encoder: Encoder) -> float:
    """What a saved model takes: four bytes per weight of the layers and the word embeddings."""
    return 4.0 * (operations_per_token(encoder) / 2.0 + encoder.vocabulary * encoder.width)


def tokens_per_second(encoder: Encoder, length: int, batch_size: int, steps: int = 2) -> float:
    """How fast this machine passes tokens forward, timed on training steps of a fresh model of the encoder's shape.

    A CPU is as fast with a few texts as with many, and a large model would keep it busy for minutes.
    """
    import torch
    from transformers import BertForTokenClassification

    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch_size = batch_size if device == "cuda" else min(batch_size, _FEW)
    config = encoder.config([str(number) for number in range(9)])
    model: torch.nn.Module = BertForTokenClassification(config)  # a module's .to() has types, transformers' has not
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.randint(0, encoder.vocabulary, (batch_size, min(length, encoder.max_length)), device=device)
    labels = torch.zeros_like(tokens)
    for step in range(steps + 1):
        if step == 1:  # the first one warms up
            start = time.perf_counter()
        model(input_ids=tokens, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
    return steps * tokens.numel() * _BACKWARD / (time.perf_counter() - start)
