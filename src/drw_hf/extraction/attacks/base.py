"""What an attack is: what a thief does to queries, answers, training, student, or to what the student answers.

An attack is a small class and one registration. Which of the methods below it overrides says where it acts; all
others do what a thief without any attack does. ``drw-hf attack`` plays a whole theft with it.
"""

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np

from ...checks import distributions
from ...errors import ConfigurationError, InvalidInputError
from ...keys.choices import TASKS, LabelKind, Task
from ...registry import Registry
from ..stolen import Stolen

if TYPE_CHECKING:
    from datasets import Dataset

    from ..thief import Student, Thief

Stage = Literal["answers", "queries", "training", "student", "suspect", "forgery"]
STAGES: dict[Stage, str] = {
    "answers": "to the answers",
    "queries": "to the queries",
    "training": "to the training",
    "student": "to the student",
    "suspect": "to what the student answers",
    "forgery": "to accuse somebody else",
}
SOFT_ONLY: tuple[LabelKind, ...] = ("soft",)
TAGGERS: tuple[Task, ...] = ("token-classification",)
SENTENCES: tuple[Task, ...] = ("sequence-classification",)


class Attack:
    """What a thief does to get rid of a mark: subclass it, give it a ``name`` and :func:`register_attack`.

    Attributes
    ----------
    name : str
        What it is called at the command line.
    stage : str
        Where it acts: ``"answers"``, ``"queries"``, ``"training"``, ``"student"``, ``"suspect"`` (what the finished
        student answers to whoever probes it) or ``"forgery"`` (it accuses somebody else).
    questions : float
        How many questions the thief asks per text of its own.
    gold : float
        The share of its texts whose right labels the thief must have.
    accounts : int
        How many customers the thief must be, each with a key of its own.
    trainings : float
        How many times the work of training one student it takes; 0 where the student of no attack is used.
    knows : str
        What the thief must know of the mark, in a few words.
    label_kinds, tasks : tuple of str
        The services that it makes sense against.
    """

    name: str
    stage: ClassVar[Stage] = "answers"
    questions: float = 1.0
    gold: float = 0.0
    accounts: ClassVar[int] = 1
    trainings: float = 1.0
    knows: ClassVar[str] = "nothing"
    label_kinds: ClassVar[tuple[LabelKind, ...]] = ("soft", "hard")
    tasks: ClassVar[tuple[Task, ...]] = TASKS

    @property
    def title(self) -> str:
        """What the thief does, in one line: the first of the class's docstring."""
        return (inspect.getdoc(type(self)) or self.name).splitlines()[0].rstrip(".")

    @property
    def needs(self) -> str:
        """What the thief needs for it, beside the answers to its queries."""
        wants = []
        if self.questions != 1.0:
            wants.append(f"{self.questions:g} questions per text")
        if self.gold:
            wants.append(f"right labels of {self.gold:.0%} of its texts")
        if self.accounts > 1:
            wants.append(f"{self.accounts} accounts")
        if self.knows != "nothing":
            wants.append(f"knowing {self.knows}")
        return "; ".join(wants) or "nothing more"

    def unfit(self, task: Task, label_kind: LabelKind, n_classes: int) -> str | None:
        """Why it makes no sense against a service; None where it does."""
        if task not in self.tasks:
            return f"it is for {' and '.join(self.tasks)}"
        if label_kind not in self.label_kinds:
            return f"it needs {' or '.join(self.label_kinds)} answers"
        return None

    # -- what an attack may override

    def ask(self, thief: "Thief") -> "Dataset":
        """Texts with the service's answers, to be learnt from; by default the thief's texts as they are."""
        return thief.ask(thief.texts)

    def change(self, rows: "Dataset", thief: "Thief") -> "Dataset":
        """What is learnt in place of the answers; by default `change_answers` of all of them."""
        if not self.changes_single_answers:
            return rows
        stolen = Stolen(rows)
        made = self.change_answers(stolen.answers)
        return stolen.replaced(distributions(f"what the attack {self.name!r} made", made))

    def change_answers(self, probabilities: np.ndarray) -> np.ndarray:
        """Distributions, shape (n, m), as the thief has them after an attack that looks at single answers."""
        raise NotImplementedError

    def train(self, rows: "Dataset", thief: "Thief") -> "Student":
        """The student that learns from the rows."""
        return thief.train(rows)

    def alter(self, student: "Student", thief: "Thief") -> "Student":
        """What becomes of the student after its training."""
        return student

    def answer(self, probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """What the finished student answers in place of its distributions, shape (n, m); a refusal is a row of 0."""
        raise NotImplementedError

    # -- what it is asked

    @property
    def changes_single_answers(self) -> bool:
        """Whether it changes answers one by one, as ``DistillationArguments(attack=...)`` can."""
        return type(self).change_answers is not Attack.change_answers

    @property
    def changes_what_is_served(self) -> bool:
        """Whether it changes what the finished student answers."""
        return type(self).answer is not Attack.answer

    def steal(self, thief: "Thief") -> "Student":
        """The whole theft: ask, change the answers, train, and alter the student."""
        return self.alter(self.train(self.change(self.ask(thief), thief), thief), thief)


AnyAttack = TypeVar("AnyAttack", bound="type[Attack] | Attack")
ATTACKS: Registry["type[Attack] | Attack"] = Registry("attack")


def register_attack(attack: AnyAttack) -> AnyAttack:
    """Make an attack known by its name: a class, or an object where one class serves several attacks."""
    ATTACKS.add(attack.name, attack)
    return attack


def attack_named(name: str, error: Any = InvalidInputError) -> Attack:
    """The registered attack of this name."""
    found = ATTACKS.get(name, error, hint="; drw_hf.extraction.attacks.register_attack adds one of yours")
    return found() if isinstance(found, type) else found


def single_answer_attack(name: str) -> Attack:
    """The registered attack of this name, if it changes answers one by one."""
    if name not in ATTACKS:
        raise ConfigurationError(
            f"there is no attack {name!r}; choose one of {single_answer_attacks()}; "
            "drw_hf.extraction.attacks.register_attack adds one of yours"
        )
    attack = attack_named(name)
    if not attack.changes_single_answers:
        raise ConfigurationError(
            f"the attack {name!r} does more than change answers one by one, which is all that training can do for "
            f"it; play it with drw_hf.planning.rehearse or drw-hf attack, or choose one of {single_answer_attacks()}"
        )
    return attack


def single_answer_attacks() -> list[str]:
    """The attacks that change answers one by one."""
    return [name for name in ATTACKS if attack_named(name).changes_single_answers]
