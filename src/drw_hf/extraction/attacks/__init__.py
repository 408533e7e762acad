"""Attacks: what thieves do to get rid of a mark, each a small class that is found by its name.

:data:`ATTACKS` holds them; :func:`register_attack` adds one. They are played by ``drw-hf attack`` and
:func:`drw_hf.planning.rehearse`; those that change answers one by one also by ``DistillationArguments(attack=...)``.
"""

from . import forgery, queries, students, tables, training
from .answers import attack_answers
from .base import ATTACKS, STAGES, Attack, attack_named, register_attack, single_answer_attack, single_answer_attacks

__all__ = [
    "ATTACKS",
    "STAGES",
    "Attack",
    "attack_answers",
    "attack_named",
    "forgery",
    "queries",
    "register_attack",
    "single_answer_attack",
    "single_answer_attacks",
    "students",
    "tables",
    "training",
]
