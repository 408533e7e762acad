"""The words that stand for a choice, wherever one is made: in calls, key files, config.json and results."""

from typing import Literal, get_args

Task = Literal["sequence-classification", "token-classification"]
Law = Literal["direct", "paper"]  # how hashes are drawn
Scope = Literal["predicted", "all"]  # which answers are marked
LabelKind = Literal["soft", "hard"]  # what is served, and what a student learns
Sampling = Literal["keyed", "fresh"]  # how hard labels are drawn
AnswerKind = Literal["probabilities", "labels"]  # what a suspect gives
Verdict = Literal["detected", "not detected", "undecided"]

TASKS: tuple[Task, ...] = get_args(Task)
LAWS: tuple[Law, ...] = get_args(Law)
SCOPES: tuple[Scope, ...] = get_args(Scope)
LABEL_KINDS: tuple[LabelKind, ...] = get_args(LabelKind)
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
