# SPDX-License-Identifier: Apache-2.0
"""Reads the results of argtopk from its registers and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome


@dataclass(frozen=True)
class Chosen:
    """Whole buffers, including bytes that the kernel did not write. `passes` over the keys, from the words read."""

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
