"""The protected models: a Hugging Face classifier inside, marked answers outside."""

import copy
import inspect
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, Unpack

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.initialization import no_init_weights
from transformers.utils import ModelOutput
from transformers.utils.hub import resolve_revision

from ..errors import ConfigurationError, MissingKeyError, UnsupportedModelError
from ..keys.binding import plain_config, task_of
from ..keys.choices import LabelKind, Sampling, Task
from ..keys.files import refuse_model_beside_plain_key
from ..keys.frames import forgets_locals
from ..keys.kept import PullOptions, PushOptions
from ..keys.key import WatermarkKey
from ..keys.ring import KeyRing, load_key_or_ring
from ..keys.settings import mark_named
from .configuration import WatermarkedConfig
from .held_key import DISABLED, KeyHolder, KeySlot, checked_key, find_key, picked, said_by
from .marking import Keys, OutputOptions, check_draws, protect, refuse_export
from .tokens import Query

_HUB_ARGUMENTS = [*PullOptions.__annotations__, "code_revision", "proxies", "trust_remote_code"]


class ModelPushOptions(PushOptions, total=False):
    """What is pushed beside a protected model's weights, and how; see ``push_to_hub`` of the protected models."""

    key_repo_id: str | None
    push_key: bool
    tokenizer: Any
    card: Mapping[str, Any] | None
    handler: bool
    package: str | os.PathLike[str] | None
    timestamp_url: str | None
    tags: list[str] | None
    commit_description: str | None
    max_shard_size: int | str | None


class _WatermarkedModel(KeyHolder, PreTrainedModel):
    """What the two protected models share."""

    config_class = WatermarkedConfig
    base_model_prefix = "victim"
    main_input_name = "input_ids"
    # The wrapped model decides on these itself, and says so if it cannot.
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    task: ClassVar[Task]
    _auto_model: ClassVar[Any]
    config: WatermarkedConfig
    victim: Any  # a transformers model, or a PEFT one around it

    def __init__(
        self,
        config: WatermarkedConfig,
        *,
        key: WatermarkKey | KeyRing | None = None,
        victim: torch.nn.Module | None = None,
        replace_key: bool = False,
    ):
        if not isinstance(config, WatermarkedConfig) or config.victim_config is None:
            raise UnsupportedModelError(
                f"{type(self).__name__} needs a WatermarkedConfig around a classifier's config; use from_pretrained "
                "or from_model, which make it"
            )
        key = checked_key(config, self.task, key, replace_key)
        mark = mark_named(key.settings.mark)
        check_draws(mark, config.sample_all)
        if config.digits is None:
            config.digits = mark.digits or None  # said in config.json, but for marks that do not round
        super().__init__(config)
        if victim is None:
            victim = self._auto_model.from_config(config.victim_config)
        self.victim = victim
        inner = getattr(victim, "config", None)
        if isinstance(inner, PreTrainedConfig):
            if self.task == "sequence-classification":  # else the first labels a model sees decide, floats included
                inner.problem_type = "single_label_classification"
            config.adopt(inner)
        config.key_commitment = key.identity
        self._key_slot = KeySlot(key)
        self.supports_gradient_checkpointing = getattr(victim, "supports_gradient_checkpointing", True)
        self.accepts_loss_kwargs = _accepts_loss_kwargs(victim)
        self.register_load_state_dict_pre_hook(_refuse_merged_weights)
        self.post_init()

    # -- making one

    @classmethod
    @forgets_locals
    def from_pretrained(  # type: ignore[override]  # the supertype's own options pass through kwargs
        cls,
        pretrained_model_name_or_path: str | os.PathLike,
        *model_args: Any,
        key: WatermarkKey | KeyRing | str | os.PathLike | None = None,
        passphrase: str | None = None,
        label_kind: LabelKind | None = None,
        sampling: Sampling | None = None,
        sample_all: bool | None = None,
        digits: int | None = None,
        replace_key: bool = False,
        config: PreTrainedConfig | str | os.PathLike | None = None,
        **kwargs: Any,
    ) -> Self:
        """Load any classifier and protect it, or load a protected model.

        Parameters
        ----------
        pretrained_model_name_or_path : str or path
            A folder or repository with a plain classifier, or one that ``save_pretrained`` of a protected model wrote.
        key : WatermarkKey, KeyRing, path or repository
            The key, a ring (a key for every user), or the folder or repository it was saved in. Without it, the key
            that lies beside the model is taken, at the same revision, or the one its pointer leads to; in a local
            folder only a sealed one.
        passphrase : str, optional
            Opens a sealed key.
        label_kind, sampling, sample_all, digits
            See :class:`WatermarkedConfig`; by default what the model was saved with.
        replace_key : bool
            Accept another key than the one the model was saved with: a rotation. By default that is a
            ``KeyMismatchError``, as a key for another model always is.
        **kwargs
            As for :meth:`transformers.PreTrainedModel.from_pretrained`.
        """
        # One commit for all: the config, the weights and the key.
        kwargs["revision"] = resolve_revision(
            pretrained_model_name_or_path,
            kwargs.get("revision"),
            **picked(kwargs, ("token", "local_files_only", "cache_dir")),
        )
        given = {"label_kind": label_kind, "sampling": sampling, "sample_all": sample_all, "digits": digits}
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if not isinstance(config, WatermarkedConfig):  # Auto classes hand one over that has taken options in already
            try:
                found = AutoConfig.from_pretrained(pretrained_model_name_or_path, **picked(kwargs, _HUB_ARGUMENTS))
            except ConfigurationError:
                raise
            except (OSError, ValueError):
                found = None  # an adapter alone: the wrapped class loads it, or says better what is missing
            if isinstance(found, WatermarkedConfig) and config is not None:
                raise ConfigurationError(
                    f"{pretrained_model_name_or_path} is a protected model and has its own config; leave out config="
                )
            config = found if isinstance(found, WatermarkedConfig) else config
        key = find_key(key, passphrase, pretrained_model_name_or_path, kwargs)
        if not isinstance(config, WatermarkedConfig):
            if key is None:
                if not os.path.isdir(pretrained_model_name_or_path):  # where there is no model, that is what to say
                    AutoConfig.from_pretrained(pretrained_model_name_or_path, **picked(kwargs, _HUB_ARGUMENTS))
                raise MissingKeyError("to protect this model a key is needed; make one with WatermarkKey.generate")
            if config is not None:
                kwargs["config"] = config
            kwargs.pop("_from_auto", None)
            loaded = cls._auto_model.from_pretrained(pretrained_model_name_or_path, *model_args, **kwargs)
            victim, *info = loaded if isinstance(loaded, tuple) else (loaded,)
            protected = cls.from_model(victim, key=key, **options)
            return (protected, *info) if info else protected  # type: ignore[return-value]  # as transformers: with info
        config = copy.deepcopy(config)
        for name in config.overridable() & kwargs.keys():
            setattr(config, name, kwargs.pop(name))
        for name, value in options.items():
            setattr(config, name, value)
        config.check_choices()
        key = checked_key(config, cls.task, key, replace_key)
        return super().from_pretrained(
            pretrained_model_name_or_path, *model_args, config=config, key=key, replace_key=replace_key, **kwargs
        )

    @classmethod
    @forgets_locals
    def from_model(
        cls,
        model: torch.nn.Module,
        *,
        key: WatermarkKey | KeyRing | str | os.PathLike,
        passphrase: str | None = None,
        label_kind: LabelKind = "soft",
        sampling: Sampling = "keyed",
        sample_all: bool = False,
        digits: int | None = None,
    ) -> Self:
        """Protect a classifier that is in memory, a PEFT model included.

        The model is wrapped, not copied: it goes on living inside, as :meth:`get_base_model`. How answers are given is
        explained at :class:`WatermarkedConfig`; ``digits`` are by default those of the key's mark.
        """
        if isinstance(model, _WatermarkedModel):
            raise UnsupportedModelError("this model is protected already; wrap model.get_base_model()")
        inner_config = plain_config(model)
        if isinstance(key, str | os.PathLike):
            key = load_key_or_ring(key, passphrase)
        # A copy, since building the outer model settles attention implementations in the configs it is given.
        config = WatermarkedConfig(
            victim_config=copy.deepcopy(inner_config),
            task=task_of(model),
            label_kind=label_kind,
            sampling=sampling,
            sample_all=sample_all,
            digits=digits,
            dtype=getattr(inner_config, "dtype", None),
        )
        with no_init_weights():
            protected = cls(config, key=key, victim=model)
        protected.train(model.training)
        if hasattr(model, "hf_device_map"):
            protected.hf_device_map = model.hf_device_map
        return protected

    # -- answering

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        watermark_key: Keys | None = None,
        user: str | Sequence[str] | None = None,
        generator: torch.Generator | None = None,
        **kwargs: Any,
    ) -> Any:
        """Answer a batch, marked.

        Takes what the wrapped model takes, and

        Parameters
        ----------
        watermark_key : WatermarkKey or sequence of WatermarkKey, optional
            Mark this call with another key, or every row with its own.
        user : str or sequence of str, optional
            For a model whose key is a ring: the user who asks, or one for every row.
        generator : torch.Generator, optional
            The source of chance for ``sampling="fresh"``.

        Returns
        -------
        ModelOutput or tuple
            The wrapped model's output, whose ``logits`` are log ŷ (soft) or say one label (hard), in float32. ``loss``
            is the wrapped model's own, on its unmarked logits, so that training through the wrapper trains the model.
        """
        refuse_export("a protected model")
        given = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            "labels": labels,
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        given = {name: value for name, value in given.items() if value is not None}
        keys = self._keys_in_force(watermark_key, user)
        outputs = self.victim(**given, **kwargs, return_dict=True)
        if keys is not DISABLED:
            outputs = self._marked(outputs, (input_ids, attention_mask, token_type_ids), keys, generator)
        as_dict = self.config.return_dict if return_dict is None else return_dict
        return outputs if as_dict else outputs.to_tuple()

    @torch.compiler.disable  # a compiler that saw the marking would write tables and parameters into its caches
    @forgets_locals
    def _marked(
        self, outputs: Any, tokens: tuple[Any, Any, Any], keys: Keys, generator: torch.Generator | None
    ) -> Any:
        _, attention_mask, _ = tokens  # without which the pad id tells padding
        query = Query(*tokens, self._key_slot.facts_of(self.config).pad_token_id if attention_mask is None else None)
        logits = protect(outputs.logits, query, keys, self._output_options(), generator)
        return _with_logits(outputs, logits)

    def _output_options(self) -> OutputOptions:
        """How answers are given; the configuration has checked that these are choices."""
        said = said_by(self.config)
        return OutputOptions(said["label_kind"], said["sampling"], said["sample_all"], said["digits"])

    def get_base_model(self) -> torch.nn.Module:
        """The wrapped classifier, unprotected."""
        return self.victim

    # -- keeping

    @forgets_locals
    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """Save weights and config; never the key.

        The weights are those of the clean model: whoever gets them has it without the watermark. Adapters of a PEFT
        model are merged into a copy of the weights first.
        """
        refuse_model_beside_plain_key(save_directory)
        if kwargs.pop("push_to_hub", False):
            names = {"passphrase", *ModelPushOptions.__annotations__} - {"max_shard_size"}
            pushed = {name: kwargs.pop(name) for name in names & kwargs.keys()}
            repo_id = kwargs.pop("repo_id", os.path.basename(os.path.abspath(save_directory)))
            self.save_pretrained(save_directory, *args, **kwargs)
            self.push_to_hub(repo_id, **pushed)
            return None
        if getattr(self.victim, "_hf_peft_config_loaded", False):
            raise UnsupportedModelError(
                "the wrapped model has PEFT adapters injected, which the protected save cannot hold; load it as "
                "peft.AutoPeftModelFor… and merge_and_unload() before wrapping"
            )
        if not hasattr(self.victim, "merge_and_unload"):
            return super().save_pretrained(save_directory, *args, **kwargs)
        kwargs.pop("state_dict", None)
        merged = copy.deepcopy(self.victim).merge_and_unload()
        key: Any = self.key  # None where it was lost, which from_model refuses
        wrapped = type(self).from_model(merged, key=key, **vars(self._output_options()))
        return wrapped.save_pretrained(save_directory, *args, **kwargs)

    @forgets_locals
    def push_to_hub(  # type: ignore[override]  # the supertype's is wrapped, and takes anything
        self, repo_id: str, *, passphrase: str | None = None, **options: Unpack[ModelPushOptions]
    ) -> str:
        """Push the model and its key, as one commit, and return the commit's address.

        The weights are those of the clean model, so the repository is private unless asked otherwise. The key lies
        beside them: sealed if a passphrase is given, else plain, which only a private repository gets; for another one
        ``PlainKeyRefusedError`` is raised before anything is uploaded.

        Parameters
        ----------
        repo_id : str
            Where to; made if it does not exist.
        passphrase : str, optional
            Seals the key.
        key_repo_id : str, optional
            Put the key into this private repository (in a folder named by its fingerprint) and leave a pointer.
        push_key : bool
            Whether to push the key at all (default: True).
        replace_key : bool
            Let the key take the place of another one that lies there: a rotation. That one stays in the history.
        tokenizer : PreTrainedTokenizerBase, optional
            Pushed along.
        card : mapping, optional
            For the model card: ``metrics`` (of clean and protected output, as :func:`drw_hf.planning.measure_accuracy`
            gives them), ``dataset``, ``base_model``, ``license``, ``language``. An existing card's text survives.
        handler : bool
            Push a ``handler.py`` for Inference Endpoints along, which reads the passphrase from ``DRW_PASSPHRASE``.
        package : path or str, optional
            Where the endpoint installs drw_hf from: a wheel, pushed along, or an address
            (:func:`drw_hf.hub.handler_files`). Without it, ``requirements.txt`` says how to fill it in.
        timestamp_url : str, optional
            A time-stamping authority (RFC 3161), asked for a proof of when the commitment existed.
        private, commit_message, commit_description, token, revision, create_pr, max_shard_size, tags
            As in transformers.
        """
        from ..hub.push import push_model

        return push_model(self, repo_id, passphrase, **options)

    # -- what belongs to the wrapped model

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.victim.get_input_embeddings()

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        self.victim.set_input_embeddings(value)

    def get_output_embeddings(self) -> torch.nn.Module | None:
        return self.victim.get_output_embeddings()

    def _init_weights(self, module: torch.nn.Module) -> None:
        """Nothing of its own to initialise: the wrapped model did so itself."""


class WatermarkedModelForSequenceClassification(_WatermarkedModel):
    """A protected text classifier: one answer for a text or a pair of texts."""

    task = "sequence-classification"
    _auto_model = AutoModelForSequenceClassification


class WatermarkedModelForTokenClassification(_WatermarkedModel):
    """A protected tagger: one answer for every token."""

    task = "token-classification"
    _auto_model = AutoModelForTokenClassification


def _with_logits(outputs: Any, logits: torch.Tensor) -> Any:
    """The same output with other logits: a new one, since hooks may have kept the model's own."""
    kind = type(outputs)
    if not isinstance(outputs, ModelOutput):
        return kind(**{**outputs, "logits": logits})
    # It was checked when the model made it; to have that done again would cost more than the marking of a short text.
    marked = OrderedDict.__new__(kind)
    vars(marked).update(vars(outputs), logits=logits)
    for name, value in outputs.items():
        OrderedDict.__setitem__(marked, name, logits if name == "logits" else value)
    return marked


def _refuse_merged_weights(model: Any, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    # A PEFT model is saved merged, so a Trainer that resumes would find none of its weights, and only log that.
    if hasattr(model.victim, "merge_and_unload") and not any("victim.base_model." in name for name in state_dict):
        raise UnsupportedModelError(
            "these weights are of a merged model, and this one has PEFT adapters: training through the wrapper cannot "
            "resume from a checkpoint of theirs; train the adapter first and wrap it then, or wrap the merged model"
        )


def _accepts_loss_kwargs(victim: Any) -> bool:
    """Whether Trainer may hand the item count of a step to the wrapped model, as it would without the wrapper."""
    if hasattr(victim, "accepts_loss_kwargs"):
        return victim.accepts_loss_kwargs
    parameters = inspect.signature(victim.forward).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
