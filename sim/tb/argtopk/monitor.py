# SPDX-License-Identifier: Apache-2.0
"""From the registers and the memory of argtopk to its results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome


@dataclass(frozen=True)
class Chosen:
    """Whole buffers, with what the kernel left alone. `passes` over the keys, as the words read from memory tell."""

    status: int
    bus_error: int
    keys: np.ndarray
    indices: np.ndarray
    bitmap: np.ndarray
    passes: int


def observe(outcome: Outcome) -> Chosen:
    buffers, registers = outcome.buffers, outcome.registers
    passes, rest = divmod(sum(outcome.read_words.values()), buffers["keys"].size // 64)
    assert rest == 0, f"{rest} beats of keys were read beside {passes} whole passes"
    return Chosen(registers["ap_return"], registers["bus_error"], **buffers, passes=passes)
