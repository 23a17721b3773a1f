"""Model tensors to the drive's number format."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.errors import RangeError

LARGEST = 65504.0


def to_half(tensor: torch.Tensor, what: str) -> NDArray[np.float16]:
    """float32, bfloat16 or float16 -> binary16, one rounding to nearest even, subnormals kept; same shape.

    Raises RangeError when a magnitude exceeds 65504 or a value is Inf or NaN; `what` names the tensor.
    """
    if not bool((tensor.abs() <= LARGEST).all()):
        raise RangeError(
            f"{what} holds a value that binary16 cannot: largest magnitude {float(tensor.abs().max()):g}, limit 65504"
        )
    half: NDArray[np.float16] = tensor.detach().to(torch.float16).cpu().contiguous().numpy()
    return half
