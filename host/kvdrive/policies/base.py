"""What an attention policy is.

The runtime asks `parameters` before each ATTN_SUBMIT, in the thread that runs the model, and sends the answer along. A
cache's policy may be replaced between two calls as long as its sessions were appended to with the options it needs. A
policy holds numbers only, no state of a sequence: one object serves any number of sequences, layers and threads. A
policy with `in_drive` False keeps what it needs on the host (`policies.host`) and is never asked for parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import InputError

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Parameters:
    """The fields of one ATTN_SUBMIT that a policy decides; `valid` bool [tokens], None attends to all of them."""

    mode: abi.Mode = abi.Mode.EXACT
    r: int = 0
    k_top: int = 0
    local: int = 0
    valid: Mask | None = None


EVERYTHING = Parameters()  # exact attention over all tokens


class Policy(ABC):
    """Attention at a compression `ratio`, in (0, 1]: the share of K and V that is used; 1 is exact attention."""

    name: ClassVar[str]
    in_drive: ClassVar[bool] = True
    sees_query: ClassVar[bool] = True  # False: `parameters` are the same for every query over the same tokens
    blends_mean: ClassVar[bool] = False  # True: tokens that are left out are replaced by the mean of V
    append_options: ClassVar[int] = 0  # bits of abi.AppendOption that every append of a session must carry

    def __init__(self, ratio: Fraction = Fraction(1)) -> None:
        if not 0 < ratio <= 1:
            raise InputError(f"the compression ratio {ratio} is outside (0, 1]: write it as 1/8 or 0.125")
        self.ratio = ratio

    @abstractmethod
    def parameters(self, tokens: int, head_dim: int, valid: Mask | None = None, tail_tokens: int = 0) -> Parameters:
        """How to attend to the first `tokens` tokens on the drive.

        `valid` bool [tokens], None = all of them; `tail_tokens` come with the query, are always attended to, and count
        as the most recent ones.
        """

    @abstractmethod
    def bytes_needed(self, tokens: int, head_dim: int) -> int:
        """Bytes of K and V that one step needs of one KV head with `tokens` tokens, if single rows could be read."""


def share(count: int, ratio: Fraction) -> int:
    """`ratio` of `count`, rounded to nearest and at least 1."""
    return max(1, int(count * ratio + Fraction(1, 2)))


def row_bytes(head_dim: int) -> int:
    """Bytes of one row of K or V."""
    return 2 * head_dim
