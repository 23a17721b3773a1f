"""The fields of an attention command that a policy decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Parameters:
    """Fields of one ATTN_SUBMIT: `r` embedding rows choose `k_top` tokens, the last `local` among them (SparF only).

    GROUPS: `k_top` units of `r` tokens, or more where `local` is not 0: then every query head leaves at most
    `local` / 65536 of the softmax unread, as the index estimates it.
    `valid` bool [tokens]: the tokens that may be attended to; None: all.
    """

    mode: abi.Mode = abi.Mode.EXACT
    r: int = 0
    k_top: int = 0
    local: int = 0
    valid: Mask | None = None


EVERYTHING = Parameters()  # exact attention over all tokens
