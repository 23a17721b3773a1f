# SPDX-License-Identifier: Apache-2.0
"""Reads the results of group_choice from its registers and memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome


@dataclass(frozen=True)
class Chosen:
    """The whole memory, so that a stray write is seen wherever it lands."""

    status: int
    bus_error: int
    memory: np.ndarray


def observe(outcome: Outcome) -> Chosen:
    registers = outcome.registers
    return Chosen(registers["ap_return"], registers["bus_error"], outcome.buffers["memory"])
