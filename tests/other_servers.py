"""Servers of other makes, as far as they can be had here: what speaks as they do, around the real model.

Text Embeddings Inference and vLLM cannot be installed beside us, and Triton is no Python package. What stands for them
here has the names, shapes and checks that were read in their sources (November 2026), and nothing more.
"""

import functools
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import torch
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from small_models import make_model, make_tokenizer

# -- ONNX Runtime, which is the real one


def export_clean(model, tokenizer, path):
    """The clean model in files that ONNX Runtime reads, by torch's own exporter."""
    batch = dict(tokenizer(["the film", "dull"], ["a", "book"], padding=True, return_tensors="pt"))
    names, any_size = list(batch), {name: {0: "rows", 1: "length"} for name in batch}
    options = {"dynamo": True, "verbose": False, "dynamic_shapes": any_size}
    torch.onnx.export(model, (), path, kwargs=batch, input_names=names, output_names=["logits"], **options)


@functools.cache
def _exported(task):
    with tempfile.TemporaryDirectory() as folder:
        export_clean(make_model(task), make_tokenizer(), Path(folder, "clean.onnx"))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def write_exported(folder, task="sequence-classification"):
    """The tests' own model, exported once: ``clean.onnx``, and its weights in ``clean.onnx.data``."""
    for name, content in _exported(task).items():
        (folder / name).write_bytes(content)
    return folder / "clean.onnx"


# -- Text Embeddings Inference


def tei_app(model, tokenizer, longest=64, most=32):
    """TEI's routes for a classifier: scores of a softmax, or raw ones for whoever asks; sorted, flat for one text."""
    names = [model.config.id2label[number] for number in range(model.config.num_labels)]

    async def info(request):
        classifier = {"id2label": {str(number): name for number, name in enumerate(names)}}
        limits = {"max_input_length": longest, "max_client_batch_size": most}
        return JSONResponse({"model_type": {"classifier": classifier}, **limits})

    async def tokenize(request):
        inputs = (await request.json())["inputs"]
        texts = [inputs] if isinstance(inputs, str) else inputs
        if len(texts) > most:
            return JSONResponse({"error": "batch size too large", "error_type": "Validation"}, status_code=413)
        return JSONResponse([[{"id": number} for number in tokenizer(text).input_ids] for text in texts])

    async def predict(request):
        body = await request.json()
        inputs = body["inputs"]
        is_batch = isinstance(inputs, list) and isinstance(inputs[0], list)
        several = inputs if is_batch else [inputs]
        rows = [[one] if isinstance(one, str) else one for one in several]
        if len(rows) > most or not all(1 <= len(row) <= 2 and row[0] for row in rows):
            return JSONResponse({"error": "`inputs` cannot be empty", "error_type": "Empty"}, status_code=400)
        answers = []
        for row in rows:
            batch = tokenizer(*row, return_tensors="pt")
            if batch["input_ids"].shape[1] > longest and not body.get("truncate", False):
                return JSONResponse({"error": "inputs must have less tokens", "error_type": "Validation"}, 413)
            with torch.no_grad():
                logits = model(**tokenizer(*row, truncation=True, return_tensors="pt")).logits[0]
            scores = logits if body.get("raw_scores", False) else logits.softmax(-1)
            answer = [{"score": score, "label": name} for name, score in zip(names, scores.tolist(), strict=True)]
            answers.append(sorted(answer, key=lambda one: -one["score"]))
        return JSONResponse(answers if is_batch else answers[0])

    posts = {"/tokenize": tokenize, "/predict": predict, "/": predict}
    return Starlette(
        routes=[Route("/info", info), *(Route(path, answer, methods=["POST"]) for path, answer in posts.items())]
    )


# -- Triton


def triton_module():
    """``triton_python_backend_utils``, which Triton's own process alone has."""

    class Tensor:
        def __init__(self, name, array):
            self._name, self._array = name, array

        def name(self):
            return self._name

        def as_numpy(self):
            return self._array

    class TritonError:
        def __init__(self, message):
            self._message = message

        def message(self):
            return self._message

    class InferenceRequest:
        def __init__(self, inputs):
            self._inputs = {tensor.name(): tensor for tensor in inputs}

    class InferenceResponse:
        def __init__(self, output_tensors=(), error=None):
            self._tensors, self._error = list(output_tensors), error

        def output_tensors(self):
            return self._tensors

        def has_error(self):
            return self._error is not None

        def error(self):
            return self._error

    module = ModuleType("triton_python_backend_utils")
    module.Tensor, module.TritonError = Tensor, TritonError
    module.InferenceRequest, module.InferenceResponse = InferenceRequest, InferenceResponse
    module.get_input_tensor_by_name = lambda request, name: request._inputs.get(name)
    return module


# -- vLLM


@dataclass(frozen=True)
class PoolingParamsUpdate:
    requires_token_ids: bool = False

    def __or__(self, other):
        return PoolingParamsUpdate(self.requires_token_ids or other.requires_token_ids)


class Pooler(torch.nn.Module):
    def get_pooling_updates(self, task):
        return PoolingParamsUpdate()


class DispatchPooler(Pooler):
    """Each request to the pooler of its task."""

    def __init__(self, poolers_by_task: Mapping[str, Pooler]):
        super().__init__()
        for task, pooler in poolers_by_task.items():
            if task not in pooler.get_supported_tasks():
                raise ValueError(f"{pooler=} does not support {task=}")
        self.poolers_by_task = poolers_by_task

    def get_supported_tasks(self):
        return set(self.poolers_by_task)

    def forward(self, hidden_states, pooling_metadata):
        (task,) = {params.task for params in pooling_metadata.pooling_params}
        if task not in self.poolers_by_task:
            raise ValueError(f"Unsupported task: {task!r} Supported tasks: {self.get_supported_tasks()}")
        return list(self.poolers_by_task[task](hidden_states, pooling_metadata))


class ClassifierPooler(Pooler):
    """First token of each text, classifier, then a softmax unless a request wants none; or so for every token."""

    def __init__(self, task, classifier):
        super().__init__()
        self.task = task
        self.head = SimpleNamespace(classifier=classifier, activation=lambda logits: logits.softmax(-1))

    def get_supported_tasks(self):
        return {self.task}

    def forward(self, hidden_states, pooling_metadata):
        ends = torch.tensor(pooling_metadata.prompt_lens).cumsum(0).tolist()
        rows = [hidden_states[end - n : end] for end, n in zip(ends, pooling_metadata.prompt_lens, strict=True)]
        answers = []
        for row, params in zip(rows, pooling_metadata.pooling_params, strict=True):
            logits = self.head.classifier(row if self.task == "token_classify" else row[:1])
            logits = logits if self.task == "token_classify" else logits[0]
            is_wanted = self.head.activation is not None and params.use_activation
            answers.append(self.head.activation(logits) if is_wanted else logits)
        return answers


@dataclass
class PoolingMetadata:
    prompt_lens: list
    prompt_token_ids: torch.Tensor | None
    pooling_params: list = field(default_factory=list)

    def get_prompt_token_ids(self):
        if self.prompt_token_ids is None:
            raise ValueError("Please set `requires_token_ids=True` in `get_pooling_updates`")
        return [self.prompt_token_ids[row, :length] for row, length in enumerate(self.prompt_lens)]


class VllmClassifier(torch.nn.Module):
    """The real model's weights behind vLLM's interface: hidden states of all prompts in one row, then the pooler."""

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        self.model = vllm_config
        classifier = torch.nn.Sequential(Pooled(vllm_config.bert.pooler), vllm_config.classifier)
        tasks = ("token_classify", "classify")
        self.pooler = DispatchPooler({task: ClassifierPooler(task, classifier) for task in tasks})

    def answer(self, prompts, task="classify", use_activation=True):
        """What the engine does with some prompts of token ids."""
        lengths = [len(prompt) for prompt in prompts]
        with torch.no_grad():
            hidden = [self.model.bert(torch.tensor([prompt])).last_hidden_state[0] for prompt in prompts]
            wants_ids = task in self.pooler.get_supported_tasks() and (
                self.pooler.poolers_by_task[task].get_pooling_updates(task).requires_token_ids
            )
            ids = torch.tensor([prompt + [0] * (max(lengths) - len(prompt)) for prompt in prompts])
            params = [SimpleNamespace(task=task, use_activation=use_activation) for _ in prompts]
            return self.pooler(torch.cat(hidden), PoolingMetadata(lengths, ids if wants_ids else None, params))


class Pooled(torch.nn.Module):
    """BERT's dense layer before the classifier, for each token as it is for the first."""

    def __init__(self, pooler):
        super().__init__()
        self.dense, self.activation = pooler.dense, pooler.activation

    def forward(self, hidden):
        return self.activation(self.dense(hidden))


class ModelRegistry:
    """Classes by the name of their architecture."""

    models: ClassVar[dict] = {}

    @classmethod
    def register_model(cls, name, model_class):
        cls.models[name] = model_class


def put_vllm_in_place(monkeypatch):
    """The modules of vLLM that its page imports."""
    places = {
        "vllm": {"ModelRegistry": ModelRegistry},
        "vllm.model_executor": {},
        "vllm.model_executor.layers": {},
        "vllm.model_executor.layers.pooler": {
            "DispatchPooler": DispatchPooler,
            "Pooler": Pooler,
            "PoolingParamsUpdate": PoolingParamsUpdate,
        },
        "vllm.model_executor.models": {},
        "vllm.model_executor.models.bert": {"BertForSequenceClassification": VllmClassifier},
    }
    for name, content in places.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
