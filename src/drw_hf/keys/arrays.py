"""Tensors on the CPU as numpy arrays, whose operations cost a call several times less.

Where few numbers are worked on, that is what counts. What is written with the operators and methods that both have
(``&``, ``x.sum(-1)``, ``x.cumsum(-1)``) works on either, and so on any device.
"""

from typing import Any

import numpy as np
import torch


def plain(tensor: torch.Tensor) -> Any:
    """The numpy array of a tensor on the CPU, which shares its memory; a tensor elsewhere as it is."""
    return tensor.numpy() if tensor.is_cpu else tensor


def as_tensor(array: Any) -> torch.Tensor:
    """The tensor of such an array; a tensor as it is."""
    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def module_of(array: Any) -> Any:
    """Where the functions for it are: ``numpy`` or ``torch``."""
    return np if isinstance(array, np.ndarray | np.generic) else torch
