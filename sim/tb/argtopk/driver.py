# SPDX-License-Identifier: Apache-2.0
"""Turns a case of argtopk into the kernel's inputs."""

from __future__ import annotations

import numpy as np

from golden.abi import MAX_TOKENS, MAX_TOP_K
from tb.common.kernel import BEAT_BYTES, Case
from tb.common.session import Job

UNWRITTEN = 0x5A  # initial byte of result buffers


def job(case: Case) -> Job:
    """The inputs of a case. The result buffers are as long as the results of an accepted call."""
    n, k = (min(max(case[name], 1), most) for name, most in (("n", MAX_TOKENS), ("k", MAX_TOP_K)))
    keys = np.ascontiguousarray(case["keys"]).tobytes()
    buffers = {
        "keys": _whole(keys or bytes(1)),
        "indices": bytes([UNWRITTEN]) * len(_whole(bytes(4 * k))),
        "bitmap": bytes([UNWRITTEN]) * len(_whole(bytes(-(-n // 8)))),
    }
    scalars = {name: case[name] & 0xFFFFFFFF for name in ("n", "k", "key_type")}
    return Job(case["label"], scalars, buffers=buffers, pointers={name: name for name in buffers})


def _whole(data: bytes) -> bytes:
    """The data, padded with zeros to whole beats."""
    return data + bytes(-len(data) % BEAT_BYTES)
