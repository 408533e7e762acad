"""What one request, and all together, may ask of a service."""

from dataclasses import dataclass

from ..checks import in_range, whole_number
from ..reading.files import MEBIBYTE


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a service takes on; beyond it a request is refused, and told why.

    Attributes
    ----------
    batch_size : int
        Texts that the model reads at once, at the most. What waits when the model is free is read together; nobody
        waits for others to come.
    queue : int
        Texts that may wait; beyond, requests get 429 and are to come again.
    timeout : float
        Seconds in which a request is to be sent, and seconds in which it is to be answered.
    body : int
        Bytes of a request.
    inputs, characters : int
        Texts in a request, and characters in all of them together.
    connections : int
        Connections that may be open at once, under ``drw-hf serve``.
    """

    batch_size: int = 32
    queue: int = 512
    timeout: float = 30.0
    body: int = MEBIBYTE
    inputs: int = 128
    characters: int = 20_000
    connections: int = 512

    def __post_init__(self) -> None:
        for name in ("batch_size", "queue", "body", "inputs", "characters", "connections"):
            whole_number(name, getattr(self, name))
        in_range("timeout", self.timeout, above=True)
