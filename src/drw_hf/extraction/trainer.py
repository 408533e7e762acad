"""`DistillationTrainer`: a Trainer whose labels are a teacher's answers."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import datasets
import numpy as np
import torch
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase, Trainer
from transformers.trainer_utils import PredictionOutput

from ..asking.labelling import LABELS, PROBABILITIES, label_with_teacher
from ..asking.local import ModelPredictor
from ..asking.predictor import Askable, Predictor, as_predictor
from ..asking.questions import find_gold_column, find_text_columns
from ..checks import class_names, class_numbers
from ..errors import ConfigurationError, DatasetError
from ..keys.binding import labels_of, max_length_of, task_of, tokenizer_fingerprint
from ..keys.files import refuse_model_beside_plain_key
from .arguments import DistillationArguments
from .attacks import attack_answers
from .losses import hard_loss, soft_loss
from .preparation import IGNORED, TEACHER, DistillationCollator, Layout, labels_in_place, lay_out, match_labels

Rows: TypeAlias = datasets.Dataset | datasets.IterableDataset | torch.utils.data.Dataset


class DistillationTrainer(Trainer):
    """Train a student on a teacher's answers.

    Give it a ``teacher``, which is asked once about the training data before training (or anew for every batch, with
    ``DistillationArguments(requery=True)``), or a data set that :func:`label_with_teacher` made. Data sets hold text,
    pairs, words or ``input_ids``; the trainer tokenises them with ``processing_class``, the student's tokenizer, which
    may be another one than the teacher's: token tasks are aligned word by word.

    Parameters
    ----------
    model : PreTrainedModel
        The student.
    args : DistillationArguments
        How to train and to distil.
    teacher : model, str, Pipeline, InferenceClient or callable, optional
        Who is asked; see :func:`label_with_teacher`. Not needed where the data set holds its answers already.
    train_dataset, eval_dataset : Dataset
        Rows to learn from and to evaluate on. Evaluation is against gold labels where the data has them
        (``eval_accuracy``), else against the teacher (``eval_agreement``).
    processing_class : PreTrainedTokenizerBase
        The student's tokenizer.
    teacher_tokenizer : PreTrainedTokenizerBase, optional
        The teacher's, where it is another one.
    text_columns : str or sequence of str, optional
        As in :class:`drw_hf.asking.AskingOptions`.
    gold_column : str, optional
        The column of gold labels; by default found by its usual name, if it is there.
    **trainer
        More arguments of ``transformers.Trainer``: ``data_collator``, ``compute_metrics``, ``callbacks``...
    """

    # The loss is a mean over all items of a step, whichever micro-batch and process they are in.
    loss_is_scaled_for_ga = True

    args: DistillationArguments
    processing_class: PreTrainedTokenizerBase
    teacher: Predictor | None
    _teacher_model: torch.nn.Module | None  # where it is asked during training
    _other_tokenizer: PreTrainedTokenizerBase | None  # the teacher's, where it reads other tokens than the student

    def __init__(
        self,
        model: PreTrainedModel | torch.nn.Module | None = None,
        args: DistillationArguments | None = None,
        teacher: Askable | None = None,
        train_dataset: Rows | None = None,
        eval_dataset: Rows | dict[str, Rows] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        *,
        teacher_tokenizer: PreTrainedTokenizerBase | None = None,
        text_columns: str | Sequence[str] | None = None,
        gold_column: str | None = None,
        **trainer: Any,
    ) -> None:
        args = DistillationArguments("tmp_trainer") if args is None else args
        if not isinstance(args, DistillationArguments):
            raise ConfigurationError(f"args must be DistillationArguments, not {type(args).__name__}")
        if processing_class is None:
            raise ConfigurationError("processing_class is missing: give the student's tokenizer")
        if trainer.get("compute_loss_func") is not None:
            raise ConfigurationError(
                "compute_loss_func would never be called: the loss is that of distillation (label_kind, temperature, "
                "gold_weight); leave it out, or override compute_loss in a subclass"
            )
        if args.requery and teacher is None:
            raise ConfigurationError("requery=True asks the teacher during training, but there is none; pass teacher=")
        assert args.output_dir is not None  # transformers sets one
        refuse_model_beside_plain_key(args.output_dir)  # a Trainer pushes its folder whole
        self.text_columns, self.gold_column = text_columns, gold_column
        self._agreement = False
        trainer["compute_metrics"] = trainer.get("compute_metrics") or self._default_metrics
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **trainer,
        )
        assert self.model is not None  # Trainer refuses to be without
        task = task_of(self.model)
        if task is None:
            raise ConfigurationError(f"{type(self.model).__name__} is no sequence or token classifier")
        self.task = task
        self.student_labels = labels_of(self.model.config)
        self.max_length = args.max_length or max_length_of(processing_class, self.model.config)
        self._set_teacher(teacher, teacher_tokenizer)
        if trainer.get("data_collator") is None:
            other_tokenizer = self._other_tokenizer if args.requery else None
            self.data_collator = DistillationCollator(processing_class, other_tokenizer, len(self.student_labels))
        self.train_dataset = self._prepare(train_dataset, "train_dataset", training=True)
        if isinstance(eval_dataset, dict):
            self.eval_dataset = {name: self._prepare(split, name) for name, split in eval_dataset.items()}
        else:
            self.eval_dataset = self._prepare(eval_dataset, "eval_dataset")

    # -- the teacher

    def _set_teacher(self, teacher: Askable | None, teacher_tokenizer: PreTrainedTokenizerBase | None) -> None:
        """Make the teacher askable; one that is asked during training is frozen and put under accelerate's care."""
        self.teacher, self._teacher_model, self._other_tokenizer = None, None, None
        if teacher is None:
            return
        in_memory = isinstance(teacher, torch.nn.Module)
        tokenizer = teacher_tokenizer or (self.processing_class if in_memory else None)
        self.teacher = as_predictor(teacher, tokenizer, task=self.task, max_length=self.max_length)
        if self.teacher.task != self.task:
            raise ConfigurationError(f"the teacher is for {self.teacher.task}, the student for {self.task}")
        if self.teacher.labels is not None:
            match_labels(self.teacher.labels, self.student_labels)
        if isinstance(self.teacher, ModelPredictor):
            same = tokenizer_fingerprint(self.teacher.tokenizer) == tokenizer_fingerprint(self.processing_class)
            self._other_tokenizer = None if same else self.teacher.tokenizer
        if not self.args.requery:
            return
        if not isinstance(self.teacher, ModelPredictor):
            raise ConfigurationError("requery=True needs a teacher in this process: a model or a path, not a service")
        self.teacher.model.requires_grad_(False)
        self._teacher_model = self.accelerator.prepare_model(self.teacher.model, evaluation_mode=True)
        order = match_labels(self.teacher.labels, self.student_labels)
        self._teacher_order = torch.tensor(order, device=self.args.device)

    @torch.no_grad()
    def _ask(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The teacher's probabilities for a batch, in the student's class order."""
        prefix = "" if self._other_tokenizer is None else TEACHER
        assert isinstance(self.teacher, ModelPredictor) and self._teacher_model is not None  # asked during training
        names = self.teacher.tokenizer.model_input_names
        self._teacher_model.eval()
        answer = self._teacher_model(**{name: inputs[prefix + name] for name in names if prefix + name in inputs})
        probabilities = answer.logits.float().softmax(-1)[..., self._teacher_order]
        if "teacher_places" in inputs:
            probabilities = _at_places(probabilities, inputs["teacher_places"])
        return probabilities

    # -- the data

    def _prepare(self, dataset: Any, name: str, training: bool = False) -> Any:
        """Label the rows if need be, and lay them out for the student."""
        if not isinstance(dataset, datasets.Dataset | datasets.IterableDataset):
            return dataset  # a torch data set is taken as it is: the collator's features
        streaming = isinstance(dataset, datasets.IterableDataset)
        if not streaming and len(dataset) == 0:
            raise DatasetError(f"{name} is empty")
        dataset = dataset.with_format(None)  # plain lists, whatever tensors the user looks at
        names = _column_names(dataset)
        gold = find_gold_column(names, self.task, self.gold_column)
        if training and not self.args.gold_weight and self.gold_column is None and _holds_numbers(dataset, gold):
            gold = None  # nobody asked for it, and numbers called "label" may be something else
        if self.args.requery and PROBABILITIES in names:
            raise ConfigurationError(f"{name} holds the teacher's answers, so requery=True would not ask; remove them")
        if PROBABILITIES not in names and self.teacher is not None and not self.args.requery:
            dataset = label_with_teacher(
                self.teacher,
                dataset,
                text_columns=self.text_columns,
                batch_size=self.args.per_device_eval_batch_size,
                progress=not self.args.disable_tqdm,
            )
            names = _column_names(dataset)
        if training and PROBABILITIES not in names and self.teacher is None:
            raise DatasetError(f"{name} has no {PROBABILITIES}; pass teacher=, or a data set from label_with_teacher")
        if training and self.args.attack is not None:
            dataset = attack_answers(dataset, self.args.attack)
        if training and self.args.gold_weight and gold is None:
            raise DatasetError(f"gold_weight={self.args.gold_weight} needs gold labels; pass gold_column=")
        columns = find_text_columns(names, self.task, self.text_columns)
        if columns[0] == "input_ids" and self._other_tokenizer is not None:
            raise DatasetError(
                "the rows are tokenised, but the teacher reads other tokens than the student; give text or words"
            )
        features = dataset.features or {}
        layout = Layout(
            task=self.task,
            tokenizer=self.processing_class,
            max_length=self.max_length,
            columns=tuple(columns),
            gold=gold,
            gold_numbers=None if gold is None else class_numbers(features.get(gold), self.student_labels, gold),
            order=self._order(features.get(LABELS)) if PROBABILITIES in names else None,
            teacher_tokenizer=self._other_tokenizer if self.args.requery else None,
            teacher_cut=getattr(self.teacher, "cut", None),
        )
        options = {} if streaming else {"desc": f"Preparing {name}"}
        with self.args.main_process_first(desc="preparing the data"):
            return dataset.map(
                functools.partial(lay_out, layout=layout), batched=True, remove_columns=names, **options
            )

    def _order(self, feature: Any) -> tuple[int, ...]:
        """For each of the student's classes the teacher's, by the names of the teacher's column of labels."""
        names = class_names(feature) or (None if self.teacher is None else self.teacher.labels)
        if names is None:
            raise DatasetError(
                f"{LABELS} does not name its classes, so they cannot be matched with the student's; label the data "
                "with label_with_teacher, or cast the column to a ClassLabel"
            )
        return match_labels(names, self.student_labels)

    # -- the loss

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor:
        """Distilled items and gold items of a whole step: all its micro-batches, on all processes."""
        counts = torch.zeros(2, dtype=torch.long)
        for batch in batch_samples:
            places = batch.get("places")
            counts[0] += len(batch["input_ids"]) if places is None else int((places >= 0).sum())
            if batch.get("labels") is not None:
                counts[1] += int((batch["labels"] != IGNORED).sum())
        counts = counts.to(device)
        return self.accelerator.reduce(counts, "sum") if self.args.world_size > 1 else counts

    def compute_loss(
        self, model: torch.nn.Module, inputs: dict, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean over the step's distilled items, and over its gold items where these have a weight."""
        counts = num_items_in_batch
        if counts is None:
            counts = self._get_num_items_in_batch([inputs], self.args.device)
        outputs = model(**self._for_student(inputs))
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        loss = self._loss(logits, inputs, counts) * self.accelerator.num_processes  # DDP averages over processes
        return (loss, {"loss": loss, "logits": logits}) if return_outputs else loss

    def _for_student(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in inputs.items() if name in self.processing_class.model_input_names}

    def _loss(self, logits: torch.Tensor, inputs: dict[str, Any], counts: torch.Tensor) -> torch.Tensor:
        taught = PROBABILITIES in inputs or self._teacher_model is not None
        weight = (self.args.gold_weight if "labels" in inputs else 0.0) if taught else 1.0
        loss = logits.new_zeros((), dtype=torch.float32)
        if weight < 1.0:
            teacher = inputs[PROBABILITIES] if PROBABILITIES in inputs else self._ask(inputs)
            student = logits
            if "places" in inputs:
                there = inputs["places"] >= 0
                student, teacher = _at_places(logits, inputs["places"])[there], teacher[there]
            if self.args.label_kind == "soft":
                distilled = soft_loss(student, teacher, self.args.temperature)
            else:
                distilled = hard_loss(student, teacher.argmax(-1))
            loss = loss + (1.0 - weight) * distilled / counts[0].clamp_min(1)
        if weight > 0.0:
            loss = loss + weight * hard_loss(logits, inputs["labels"]) / counts[1].clamp_min(1)
        return loss

    # -- evaluation

    def prediction_step(self, model: torch.nn.Module, inputs: dict, *args: Any, **kwargs: Any) -> Any:
        """As in Trainer; without gold labels the teacher's stand in for them."""
        self._agreement = "labels" not in inputs
        if self._agreement and LABELS not in inputs and self._teacher_model is not None:
            prepared = self._prepare_inputs(inputs)
            inputs = {**inputs, LABELS: labels_in_place(self._ask(prepared).argmax(-1), prepared)}
        if "labels" not in inputs and LABELS not in inputs:
            inputs = self._for_student(inputs)
        names, self.label_names = self.label_names, [LABELS if self._agreement else "labels"]
        try:
            return super().prediction_step(model, inputs, *args, **kwargs)
        finally:
            self.label_names = names

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As in Trainer, for data sets laid out already or not yet."""
        if eval_dataset is not None and not isinstance(eval_dataset, str | dict):
            eval_dataset = self._prepare_once(eval_dataset)
        return super().evaluate(eval_dataset, *args, **kwargs)

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> PredictionOutput:
        """As in Trainer, for data sets laid out already or not yet."""
        return super().predict(self._prepare_once(test_dataset), *args, **kwargs)

    def _prepare_once(self, dataset: Any) -> Any:
        names = getattr(dataset, "column_names", None)
        ready = names is None or ("input_ids" in names and not {"text", "tokens", LABELS} & set(names))
        return dataset if ready else self._prepare(dataset, "eval_dataset")

    def _default_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        counted = prediction.label_ids != IGNORED
        right = (np.argmax(prediction.predictions, axis=-1) == prediction.label_ids)[counted]
        return {"agreement" if self._agreement else "accuracy": float(right.mean()) if right.size else 0.0}

    # -- the card

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Trainer's card, and how the student was made."""
        super().create_model_card(*args, **kwargs)
        if not self.is_world_process_zero():
            return
        assert self.args.output_dir is not None
        teacher = "the answers kept in the data set" if self.teacher is None else self.teacher.public_name
        attacked = "" if self.args.attack is None else f", after the attack {self.args.attack!r}"
        learned = "labels, by cross-entropy"
        if self.args.label_kind == "soft":
            learned = f"probabilities, by KL divergence, temperature {self.args.temperature:g}"
        with open(Path(self.args.output_dir) / "README.md", "a", encoding="utf-8") as card:
            card.write(f"""
## Distillation

This model was distilled with `drw_hf.DistillationTrainer` from {teacher}.

- learned: the teacher's {learned}{attacked}
- weight of gold labels: {self.args.gold_weight:g}
- teacher asked: {"anew for every batch" if self.args.requery else "once, before training"}
- labels: {", ".join(self.student_labels)}
""")


def _at_places(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """(batch, length, m) at (batch, k) positions; whatever stands at −1 is masked by the caller."""
    return values.take_along_dim(places.clamp_min(0).unsqueeze(-1), dim=1)


def _holds_numbers(dataset: Any, column: str | None) -> bool:
    feature = (dataset.features or {}).get(column)
    return class_names(feature) is None and "string" not in getattr(getattr(feature, "feature", feature), "dtype", "")


def _column_names(dataset: Any) -> list[str]:
    if dataset.column_names is not None:
        return list(dataset.column_names)
    first = next(iter(dataset.take(1)), None)
    if first is None:
        raise DatasetError("the stream is empty")
    return list(first)
