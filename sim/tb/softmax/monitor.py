# SPDX-License-Identifier: Apache-2.0
"""Reads the results of softmax from its words and registers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.session import Outcome


@dataclass(frozen=True)
class Probabilities:
    """`max` as a signed number."""

    status: int
    max: int
    sum: int
    p: np.ndarray


def observe(outcome: Outcome) -> Probabilities:
    registers = outcome.registers
    maximum = (registers["max"] ^ 1 << 31) - (1 << 31)
    return Probabilities(registers["ap_return"], maximum, registers["sum"], np.array(outcome.words["p"], np.uint32))
