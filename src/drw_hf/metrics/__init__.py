"""P_snr and JSD as modules of 🤗 Evaluate, one folder each.

``evaluate.load(drw_hf.metrics.path("p_snr"))`` needs no network. The computation is in :mod:`drw_hf.detection`; this
package itself does not import evaluate.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..checks import as_floats
from ..errors import InvalidInputError

if TYPE_CHECKING:
    from evaluate import Metric as _Base
else:
    _Base = object  # evaluate.Metric comes after PairedInputs, in the modules

__all__ = ["PairedInputs", "path"]

_FOLDER = Path(__file__).parent
NAMES = ("jsd", "p_snr")


def path(name: str) -> str:
    """The folder of a metric, as ``evaluate.load`` takes it.

    Parameters
    ----------
    name : {"p_snr", "jsd"}

    Returns
    -------
    str
    """
    if name not in NAMES:
        raise InvalidInputError(f"there is no metric {name!r}; choose one of {list(NAMES)}")
    return str(_FOLDER / name)


class PairedInputs(_Base):
    """For modules that take predictions with references, numbers both; stands before ``evaluate.Metric``.

    It checks what comes in before evaluate does, whose errors are obscure and show the inputs: the hash values of
    p_snr belong to the key.
    """

    n_dims: ClassVar[int]
    expected: ClassVar[str]

    def __init__(
        self, config_name: str | None = None, keep_in_memory: bool = True, num_process: int = 1, **settings: Any
    ) -> None:
        # evaluate's cache files would keep the inputs, and stay locked when a computation fails. They are needed only
        # where several processes share what they have.
        super().__init__(config_name=config_name, keep_in_memory=num_process == 1, num_process=num_process, **settings)

    def add(self, *, prediction: Any = None, reference: Any = None) -> None:
        """Add one probe."""
        prediction, reference = self._checked(prediction, reference, self.n_dims - 1)
        super().add(prediction=prediction, reference=reference)

    def add_batch(self, *, predictions: Any = None, references: Any = None) -> None:
        """Add some probes."""
        predictions, references = self._checked(predictions, references, self.n_dims)
        if len(predictions) != len(references):
            raise InvalidInputError(
                f"{len(predictions)} predictions and {len(references)} references do not go together; give as many"
            )
        super().add_batch(predictions=predictions, references=references)

    def compute(self, *, predictions: Any = None, references: Any = None, **settings: Any) -> dict[str, float] | None:
        """Compute the metric for the probes given here or added before."""
        if self.writer is None:
            self._checked(predictions, references, self.n_dims)
        return super().compute(predictions=predictions, references=references, **settings)

    def _checked(self, predictions: Any, references: Any, n_dims: int) -> list[np.ndarray]:
        given = {"predictions": predictions, "references": references}
        for name, values in given.items():
            if values is None:
                raise InvalidInputError(f"{name} are missing; this metric takes {self.expected}")
        return [as_floats(name, values, n_dims) for name, values in given.items()]
