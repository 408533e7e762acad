"""`WatermarkedConfig`: what is written beside a protected model, and nothing of its key."""

import os
from typing import Any, ClassVar, TypeGuard

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import AutoConfig, PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from ..checks import check_choice
from ..errors import ConfigurationError, DrwError
from ..keys.choices import TASKS
from ..keys.derivation import is_hexadecimal
from .marking import check_output

# What users set on a model's config and expect to reach the model: kept equal outside and inside.
_SHARED = ("id2label", "label2id", "problem_type", "output_hidden_states", "return_dict", "pad_token_id", "use_cache")


def hub_name_of(config: PreTrainedConfig) -> str | None:
    """The Hub id a model was loaded from, if it was one; never a path on somebody's machine."""
    name = config.name_or_path or ""
    local = os.path.exists(name) or name.split("/")[-1].startswith("checkpoint-")
    return name if is_hub_id(name) and not local else None


def is_hub_id(name: Any) -> TypeGuard[str]:
    """Whether something can be the name of a repository: ``name`` or ``owner/name``."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return bool(name)


class WatermarkedConfig(PreTrainedConfig):
    """The configuration of a protected model.

    It holds the wrapped classifier's own configuration, the task, how answers are given, and the key's public
    commitment; no parameter of the key. Attributes it does not have itself (``hidden_size``, ``vocab_size``, …) are
    those of the wrapped classifier.

    Parameters
    ----------
    victim_config : PreTrainedConfig or dict
        The wrapped classifier's configuration.
    task : str
        ``"sequence-classification"`` or ``"token-classification"``.
    label_kind : str
        ``"soft"``: answer with probabilities ŷ. ``"hard"``: answer with one label. The paper's mark draws it from ŷ
        where an answer is marked; of a mark that draws nothing it is the class of highest ŷ.
    sampling : str
        How hard labels are drawn. ``"keyed"``: the same text always gets the same label. ``"fresh"``: by chance, anew
        in every call.
    sample_all : bool
        Draw the hard labels of unmarked answers too (from p̂), as the paper's code does; by default they are argmax.
        Refused for a mark that draws nothing.
    digits : int or None
        To how many digits the probabilities of soft answers are rounded, 1 to 6; 0 for not at all. None: as is usual
        for the mark of the key that marks an answer. A model that is protected with a mark that rounds says how.
    key_commitment : str
        The commitment of the key the model was protected with.
    """

    model_type = "drw_watermarked"
    # Any model type will do here: it is only read where a nested config does not name its own, and ours always do.
    sub_configs_defaults: ClassVar[dict] = {
        "victim_config": SubConfigSpec(config_class=AutoConfig, model_type="bert", optional=True)
    }

    victim_config: dict | PreTrainedConfig | None = None
    task: str | None = None
    label_kind: str = "soft"
    sampling: str = "keyed"
    sample_all: bool = False
    digits: int | None = None
    key_commitment: str | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.check_choices()
        if isinstance(self.victim_config, PreTrainedConfig):  # the above made one of a dict
            self.adopt(self.victim_config)
            if kwargs.get("output_attentions"):
                self.output_attentions = True

    def check_choices(self) -> None:
        """Refuse settings that are none of their choices."""
        check_output(self)
        if self.task is not None:
            check_choice("task", self.task, TASKS, ConfigurationError)
        if self.key_commitment is not None and not is_hexadecimal(self.key_commitment):
            raise ConfigurationError(
                "key_commitment is not the 64 hexadecimal digits of a key's commitment; restore config.json, or "
                "protect the model again"
            )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """As in transformers, but refuses a key or passphrase that no model's ``from_pretrained`` will take up.

        ``pipeline(..., model_kwargs={"passphrase": ...})`` is such a case: it hands its ``model_kwargs`` to the config
        first, then to the model and to the tokenizer, whose ``save_pretrained`` would write the passphrase down.
        """
        if not kwargs.get("return_unused_kwargs") and not {"key", "passphrase"}.isdisjoint(kwargs):
            raise ConfigurationError(
                "a key or passphrase was given to something other than a protected model; pipeline(..., "
                "model_kwargs=...) would hand it to the tokenizer, which writes it into tokenizer_config.json: load "
                "the model with from_pretrained(..., key=...) first, then call pipeline(..., model=model, "
                "tokenizer=tokenizer)"
            )
        try:
            return super().from_dict(config_dict, **kwargs)
        except DrwError:
            raise
        except Exception as error:  # whatever transformers makes of settings of another type
            raise ConfigurationError(
                f"the configuration of this protected model cannot be read ({type(error).__name__}): a setting of it, "
                "or of the model inside (victim_config), has another type than it should; restore config.json"
            ) from None

    def adopt(self, victim_config: PreTrainedConfig) -> None:
        """Make ``victim_config`` the live inner configuration, and show outside what it says."""
        self.__dict__["victim_config"] = victim_config
        for name in _SHARED:
            if hasattr(victim_config, name):
                self.__dict__[name] = getattr(victim_config, name)

    def to_dict(self) -> dict[str, Any]:
        """As in transformers, but without the path of a local folder that the wrapped classifier came from."""
        written, inner = super().to_dict(), self._inner()
        if inner is not None and hub_name_of(inner) is None:
            written["victim_config"].pop("_name_or_path", None)
        return written

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """The wrapped classifier's."""
        inner = self._inner()
        return self if inner is None else inner.get_text_config(decoder=decoder, encoder=encoder)

    def _get_generation_parameters(self) -> dict[str, Any]:
        # transformers takes what is seen through __getattr__ for stray settings of this config; bart's are bart's.
        inner = self._inner()
        return {} if inner is None else inner._get_generation_parameters()

    def _inner(self) -> PreTrainedConfig | None:
        """The wrapped classifier's configuration, once it is there."""
        inner = self.__dict__.get("victim_config")
        return inner if isinstance(inner, PreTrainedConfig) else None

    def __getattr__(self, name: str) -> Any:
        inner = self._inner()
        if name.startswith("_") or inner is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        inner = self._inner() if "_post_init_done" in self.__dict__ else None
        if inner is not None and name in self.overridable():
            setattr(inner, name, value)
            if name not in _SHARED:
                return
        super().__setattr__(name, value)

    def overridable(self) -> set[str]:
        """The settings that are the wrapped classifier's: set here, they are set there."""
        own = {"dtype", "torch_dtype", "architectures", "transformers_version", "model_type"}
        own |= set(WatermarkedConfig.__dataclass_fields__) - set(_SHARED)
        names = {name for name in self.__dict__["victim_config"].to_dict() if not name.startswith("_")}
        return (names | set(_SHARED) | {"output_attentions", "num_labels"}) - own

    @property
    def output_attentions(self) -> bool | None:
        """The wrapped classifier's, whose attention implementation decides whether it can."""
        inner = self._inner()
        return self.__dict__.get("_output_attentions") if inner is None else inner.output_attentions

    @output_attentions.setter
    def output_attentions(self, value: bool) -> None:
        inner = self._inner()
        if inner is None:
            self.__dict__["_output_attentions"] = value
        else:
            inner.output_attentions = value
