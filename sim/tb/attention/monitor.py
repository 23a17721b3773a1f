# SPDX-License-Identifier: Apache-2.0
"""From the registers and the memory of attention to its results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome


@dataclass(frozen=True)
class Attended:
    """All of the memory, so that a stray write shows wherever it lands."""

    status: int
    bus_error: int
    memory: np.ndarray


def observe(outcome: Outcome) -> Attended:
    registers = outcome.registers
    return Attended(registers["ap_return"], registers["bus_error"], outcome.buffers["memory"])
