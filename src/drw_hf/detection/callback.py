"""`PsnrCallback`: watch the mark grow in a student while it trains."""

import tempfile
from typing import Any

from transformers import TrainerCallback

from ..errors import InvalidInputError
from ..keys.key import WatermarkKey
from .detect import detect


class PsnrCallback(TrainerCallback):
    """Logs P_snr and the exact test's z of the model in training, after every epoch or every so many steps.

    Parameters
    ----------
    trainer : Trainer
        Whose model is probed and to whose log the figures go; add the callback with ``trainer.add_callback``.
    texts, key, tokenizer, victim
        As for :func:`drw_hf.detect`.
    every_steps : int, optional
        Probe every so many steps instead of every epoch.
    **options
        More arguments of :func:`drw_hf.detect`.
    """

    def __init__(
        self,
        trainer: Any,
        texts: Any,
        *,
        key: WatermarkKey,
        tokenizer: Any,
        victim: Any = None,
        every_steps: int | None = None,
        **options: Any,
    ):
        self.trainer, self.texts, self.every_steps = trainer, texts, every_steps
        self._answers = tempfile.TemporaryDirectory()  # the victim's are asked once; all are gone with the callback
        self.options = {
            "progress": False,
            "cache_dir": self._answers.name,
            **options,
            "key": key,
            "tokenizer": tokenizer,
            "victim": victim,
        }

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe after every ``every_steps`` steps."""
        if self.every_steps and state.global_step % self.every_steps == 0:
            self._log()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Probe after every epoch."""
        if not self.every_steps:
            self._log()

    def _log(self) -> None:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        try:
            result = detect(model, self.texts, suspect_tokenizer=self.trainer.processing_class, **self.options)
        except InvalidInputError:
            return  # a student that does not predict the target class yet has nothing to show
        self.trainer.log({"p_snr": result.p_snr, "watermark_z": result.z_score})
