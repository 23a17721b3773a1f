# SPDX-License-Identifier: Apache-2.0
"""Turns the words of gemv into results of 64 bits each, in csim's layout."""

from __future__ import annotations

import numpy as np

from tb.common.kernel import BEAT_BYTES
from tb.common.session import Outcome


def observe(outcome: Outcome) -> tuple[int, np.ndarray]:
    """The status and all lanes of all beats: uint64 [8 * beats]."""
    content = b"".join(word.to_bytes(BEAT_BYTES, "little") for word in outcome.words["results"])
    return outcome.registers["ap_return"], np.frombuffer(content, np.uint64)
