"""The thief's workbench: texts of its own, a service that answers, and students that learn.

Attacks (:mod:`.attacks`) are written against it. Whatever the thief asks under its first account is logged, as a
service would, so that the owner can test the student on that log.
"""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, load_from_disk
from transformers import PrinterCallback, ProgressCallback

from ..asking.labelling import label_with_teacher
from ..asking.models import PLAIN, PROTECTED, load_tokenizer
from ..asking.questions import Cut, Question, places_of_words, questions_of, recorded_cut, tokenize
from ..asking.words import Words
from ..errors import DatasetError, StudentDivergedError
from ..keys.choices import LabelKind, Task
from ..keys.key import WatermarkKey
from ..runs.folders import make_once
from ..watermark.tokens import Query, hashed_tokens, view_tokens
from .arguments import DistillationArguments
from .rewriting import Rewritten
from .stolen import Stolen, answers_in, certain, class_names, with_answers
from .students import Recipe, Student, load_student, small_config
from .trainer import DistillationTrainer

_LONGEST = 512  # tokens, where no service says what it reads
_AGAIN = 10_000  # added to a seed to begin again
_SEEN = 250  # of the texts that a student learnt, which it is asked about again


@dataclass(eq=False)
class Thief:
    """What a thief has.

    Attributes
    ----------
    task, labels : the service's.
    label_kind : str
        What it serves.
    tokenizer : PreTrainedTokenizerBase
        The service's, which is public.
    texts : Dataset
        What the thief asks, with nothing but the columns of texts.
    service : callable
        ``service(texts, account)`` answers them as :func:`~drw_hf.label_with_teacher` does.
    new_key : callable
        ``new_key()`` makes a key like the service's with a secret of the thief's: for marks of its own.
    recipe : Recipe
    gold : list of array, optional
        The right labels of the texts, by number.
    others : Dataset, optional
        More texts of the same kind, nobody's answers to which are known.
    seed : int
        Of whatever is random.
    folder : path, optional
        Where answers of the thief's own models are kept.
    log : list of Dataset
        What the first account asked, with the answers, in its order.
    """

    task: Task
    labels: tuple[str, ...]
    label_kind: LabelKind
    tokenizer: Any
    texts: Dataset
    service: Callable[[Dataset, int], Dataset]
    new_key: Callable[[], WatermarkKey]
    recipe: Recipe = field(default_factory=Recipe)
    gold: Sequence[np.ndarray] | None = None
    others: Dataset | None = None
    seed: int = 1
    folder: Path | None = None
    log: list[Dataset] = field(default_factory=list)

    # -- what it knows

    @property
    def by_word(self) -> bool:
        """Whether the service is a tagger."""
        return self.task == "token-classification"

    @property
    def columns(self) -> list[str]:
        """The columns of texts."""
        return list(self.texts.column_names)

    def rng(self, number: int = 0) -> np.random.Generator:
        """Random numbers that depend on the seed and a number alone."""
        return np.random.default_rng([self.seed, number])

    @cached_property
    def shadow(self) -> WatermarkKey:
        """A key of the thief's own: it tells the method, and nothing of the service's secret."""
        return self.new_key()

    # -- asking

    def ask(self, texts: Dataset, account: int = 0, logged_as: Dataset | None = None) -> Dataset:
        """The service's answers to texts; ``logged_as`` is what the log shows of them, where that is not all."""
        answered = self.service(texts, account)
        if account == 0:
            shown = texts if logged_as is None else logged_as
            self.log.append(with_answers(shown, answers_in(answered), self.labels))
        return answered

    def answers_of(self, model: Any, texts: Dataset) -> Dataset:
        """What a model of the thief's own says of texts, with the service's classes in their order."""
        student = model if isinstance(model, Student) else Student(model, self.tokenizer)
        options: Any = {"batch_size": 64, "progress": False, "cache_dir": self.folder, "task": self.task}
        answered = label_with_teacher(student.model, texts, student.tokenizer, **options)
        names = class_names(answered)
        if names == list(self.labels):
            return answered
        order = [names.index(label) for label in self.labels]
        return with_answers(texts, [answer[..., order] for answer in answers_in(answered)], self.labels, all_rows=True)

    def marked_by(self, key: WatermarkKey, model: Any, texts: Dataset) -> Dataset:
        """What a model of the thief's own would answer as a service with such a key."""
        student = model if isinstance(model, Student) else Student(model, self.tokenizer)
        # A key is bound to a vocabulary, and this model may have another one.
        like = WatermarkKey.generate(student.model, tokenizer=student.tokenizer, mark="tilt", temperature=1.0)
        protected = PROTECTED[self.task].from_model(
            student.model, key=key.replace(binding=like.binding), label_kind=self.label_kind
        )
        return self.answers_of(student.with_model(protected), texts)

    # -- words

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of every text; of pairs those of the first, and then those of the second, as if they were one."""
        columns = [self.texts[name][:] for name in self.columns]
        if self.by_word:
            return [list(row) for row in columns[0]]
        return [[word for text in row for word in text.split()] for row in zip(*columns, strict=True)]

    @cached_property
    def vocabulary(self) -> list[str]:
        """All distinct words of the texts, sorted."""
        return sorted({word for row in self.words for word in row})

    @cached_property
    def sides(self) -> list["Thief"]:
        """The same thief with the first texts of its pairs alone, and with the second ones; of texts it is itself."""
        if len(self.columns) == 1:
            return [self]
        return [dataclasses.replace(self, texts=self.texts.select_columns([name])) for name in self.columns]

    def of(self, places: Sequence[int]) -> "Thief":
        """The same thief with some of its texts alone."""
        gold = None if self.gold is None else [self.gold[place] for place in places]
        return dataclasses.replace(self, texts=self.texts.select(places), gold=gold)

    def texts_of(self, *words: Sequence[Sequence[str]]) -> Dataset:
        """Texts of these words; of pairs, those of the first and of the second ones, or the same for both."""
        sides = words if len(words) == len(self.columns) else words * len(self.columns)
        columns = [[list(row) if self.by_word else " ".join(row) for row in side] for side in sides]
        return Dataset.from_dict(dict(zip(self.columns, columns, strict=True)), features=self.texts.features)

    def ask_rewritten(self, *sides: Rewritten) -> list[np.ndarray]:
        """What is answered to texts in other words: for every text, or every original word of it; zeros for none.

        Of pairs both are rewritten, as the thief of each of its ``sides`` does it.
        """
        answers = answers_in(self.ask(self.texts_of(*(side.words for side in sides))))
        if not self.by_word:
            return answers
        found, rewritten = [], sides[0]
        for words, origins, table in zip(self.words, rewritten.origins, answers, strict=True):
            mine = np.zeros((len(words), len(self.labels)))
            for origin, answer in zip(origins, table, strict=True):
                if origin >= 0:
                    mine[origin] = answer
            found.append(mine)
        return found

    def rows(self, answers: Sequence[np.ndarray], texts: Dataset | None = None) -> Dataset:
        """Texts, by default the thief's, with answers to learn from."""
        return with_answers(self.texts if texts is None else texts, answers, self.labels)

    def gold_rows(self, places: Sequence[int]) -> Dataset:
        """Some of its texts with their right labels."""
        assert self.gold is not None  # whoever needs labels says so
        answers = [certain(self.gold[place], len(self.labels)) for place in places]
        return self.rows(answers if self.by_word else [answer[0] for answer in answers], self.texts.select(places))

    def carriers(self, rows: Dataset) -> Words:
        """The tokens that may carry a mark in every answer of labelled rows, in the order of ``Stolen.answers``.

        A word's first one where the service is a tagger. Of a text all distinct ordinary ones, or the one that the
        mark's rule picks, as far as the thief can know it.
        """
        questions: list[Question] = questions_of(rows.select_columns(self.columns).to_dict(), self.columns)
        encoding = tokenize(self.tokenizer, questions, self.service_cut, padding=not self.by_word)
        if self.by_word:
            special = set(self.tokenizer.all_special_ids)
            places = places_of_words(questions, encoding, ())
            firsts = [
                [] if place is None or ids[place] in special else [ids[place]]
                for ids, row in zip(encoding["input_ids"], places, strict=True)
                for place in row
            ]
        else:
            inputs = {name: torch.tensor(encoding[name]) for name in encoding}
            there = self.marked_tokens(inputs)
            firsts = [ids[counts].unique().tolist() for ids, counts in zip(inputs["input_ids"], there, strict=True)]
        tokens = [row for row, there in zip(firsts, Stolen(rows).there, strict=True) if there]
        lengths = np.array([len(row) for row in tokens])
        items = np.repeat(np.arange(len(tokens)), lengths)
        token_ids = np.array([token for row in tokens for token in row], dtype=np.int64)
        return Words(items, token_ids, 1.0 / np.sqrt(lengths[items]), len(tokens))

    def marked_tokens(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Which tokens of a batch the mark of an answer depends on, as far as the thief can know it.

        All ordinary ones, or of a text the one that the mark's rule picks.
        """
        query = Query(inputs["input_ids"], inputs["attention_mask"], inputs.get("token_type_ids"))
        view = view_tokens(self.shadow, query)
        if self.by_word or self.shadow.mark != "cosine":
            return view.ordinary
        picked, _ = hashed_tokens(self.shadow, query, view)
        return view.ordinary & (query.input_ids == picked[:, None])

    @property
    def service_cut(self) -> Cut:
        """Where the service cuts texts, as far as the thief can know it."""
        longest = min(int(getattr(self.tokenizer, "model_max_length", None) or _LONGEST), _LONGEST)
        return recorded_cut(self.shadow.settings) or Cut(longest)

    # -- what it makes more than once

    def innocent(self) -> Student:
        """A model of the right labels of all its texts, which owes the service nothing."""
        return self.kept("innocent", lambda: self.train(self.gold_rows(range(len(self.texts))), seed=self.seed + 100))

    def young_student(self, rows: Dataset, seed: int | None = None) -> Student:
        """A student of labelled rows that stopped after a quarter of the epochs."""
        return self.train(rows, recipe=dataclasses.replace(self.recipe, epochs=self.recipe.epochs / 4), seed=seed)

    def kept(self, name: str, make: Callable[[], Student]) -> Student:
        """A student with the tokenizer of new ones, made once and then loaded from the folder."""
        path = None if self.folder is None else self.folder / name
        if path is None:
            return make()
        make_once(path, lambda folder: make().model.save_pretrained(folder))
        return Student(PLAIN[self.task].from_pretrained(path).eval(), self.new_student().tokenizer)

    def kept_rows(self, name: str, make: Callable[[], Dataset]) -> Dataset:
        """Rows that are made once, and then loaded from the folder."""
        path = None if self.folder is None else self.folder / name
        if path is None:
            return make()
        make_once(path, lambda folder: make().save_to_disk(folder))
        return load_from_disk(path)

    # -- training

    def new_student(self, seed: int | None = None) -> Student:
        """An untrained student."""
        seed = self.seed if seed is None else seed
        torch.manual_seed(seed)
        if self.recipe.start is not None:
            model = load_student(self.recipe.start, self.task, list(self.labels))
            return Student(model.float(), load_tokenizer(self.recipe.start))
        config = small_config(self.labels, len(self.tokenizer), self.recipe)
        return Student(PLAIN[self.task].from_config(config), self.tokenizer)

    def train(
        self, rows: Dataset, start: Student | None = None, recipe: Recipe | None = None, seed: int | None = None
    ) -> Student:
        """A student of labelled rows, new unless one is given to go on with.

        A new one that answers everything alike has learnt nothing. A thief sees that, and begins again with another
        seed, as often as the recipe says.
        """
        if not len(rows):
            raise DatasetError("nothing is left for a student to learn from; ask about more texts, or drop fewer")
        recipe, seed = recipe or self.recipe, self.seed if seed is None else seed
        student = self._trained(rows, start or self.new_student(seed), recipe, seed)
        for further in range(1, recipe.tries if start is None else 1):
            if not self._answers_all_alike(student, rows):
                break
            again = seed + _AGAIN * further
            student = self._trained(rows, self.new_student(again), recipe, again)
        return student

    def _trained(self, rows: Dataset, student: Student, recipe: Recipe, seed: int) -> Student:
        with tempfile.TemporaryDirectory() as scratch:
            trainer = DistillationTrainer(
                student.model,
                _arguments(scratch, recipe, seed),
                train_dataset=rows,
                processing_class=student.tokenizer,
                text_columns=self.columns,
            )
            for callback in (PrinterCallback, ProgressCallback):
                trainer.remove_callback(callback)
            loss = trainer.train().training_loss
        weights = [float(weight.detach().sum()) for weight in student.model.parameters()]
        if not math.isfinite(loss) or not np.isfinite(weights).all():
            raise StudentDivergedError(
                f"a student diverged (its loss is {loss:g}); try a smaller learning rate than {recipe.learning_rate:g}"
            )
        student.model.eval()
        return student

    def _answers_all_alike(self, student: Student, rows: Dataset) -> bool:
        """Whether a student says one class of all that it learnt, of which there were more."""
        sample = rows.select(range(0, len(rows), max(1, len(rows) // _SEEN)))
        taught = np.unique(Stolen(sample).answers.argmax(1))
        said = Stolen(self.answers_of(student, sample.select_columns(self.columns))).answers.argmax(1)
        return len(taught) > 1 and len(np.unique(said)) < 2


def _arguments(folder: str, recipe: Recipe, seed: int) -> DistillationArguments:
    """How a student is trained. Labels are learnt as certainty, so that one loss serves all attacks."""
    return DistillationArguments(
        folder,
        num_train_epochs=recipe.epochs,
        learning_rate=recipe.learning_rate,
        per_device_train_batch_size=recipe.batch_size,
        weight_decay=recipe.weight_decay,
        max_length=recipe.max_length,
        label_kind="soft",
        optim="adamw_torch_fused",
        train_sampling_strategy="group_by_length",  # less padding: texts of all lengths take a third of the time
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.accelerator.is_available(),
        seed=seed,
    )
