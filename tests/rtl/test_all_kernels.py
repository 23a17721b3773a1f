# SPDX-License-Identifier: Apache-2.0
"""Every kernel in every mode on its RTL; `make sim` covers corner cases, this the engine around them."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi
from kvdrive.kernels import compare
from kvdrive.kernels.registry import KERNELS

pytestmark = pytest.mark.slow


def inputs(name: str, mode: str, group: int) -> dict:
    rng = np.random.default_rng(group)
    s, d, t = 70, 64, 5
    if name == "argtopk":
        wide = group % 2 == 0
        keys = rng.standard_normal(1500).astype(np.float32 if wide else np.float16)
        return {"keys": keys, "k_top": 17 if group < 4 else 200}
    if name == "page_filter":
        pages, bitmap = rng.integers(0, 256, 3 * 4096, np.uint8), rng.integers(0, 256, 16, np.uint8)
        return {"pages": pages, "bitmap": bitmap, "rows": 120, "row_bytes": 32 * (1 + group % 3), "page_bytes": 4096}
    if name == "gemv" and mode == "accumulate":
        return {"p": rng.integers(0, 1 << 20, (group, s)).astype(np.uint32), "v": halves(rng, s, d)}
    if name == "gemv":
        return {"q": halves(rng, group, d), "k": halves(rng, s, d)}
    scores, valid = rng.integers(-(1 << 23), 1 << 23, (group, t), np.int32), rng.random(s) < 0.8
    if name == "softmax":
        dense = rng.integers(-(1 << 23), 1 << 23, s, np.int32)
        return {"scores": dense, "tail_scores": scores[0]} | ({"valid": valid} if group % 2 else {})
    arrays = {"q": halves(rng, group, d), "k": halves(rng, s, d), "v": halves(rng, s, d), "valid": valid}
    arrays |= {"inline_scores": scores, "inline_v": halves(rng, t, d), "scale": 0.1}
    return arrays | ({"r": 16, "k_top": 24, "l": 4} if mode == "sparf" else {})


@pytest.mark.parametrize("group", [1, 2, 4, 5, 8])
@pytest.mark.parametrize(("name", "mode"), [(k.name, mode) for k in KERNELS.values() for mode in k.modes or ("",)])
def test_a_kernel_equals_the_golden_model(name: str, mode: str, group: int, verilator: None) -> None:
    rows = compare.compare(KERNELS[name], ["golden", "rtl"], inputs(name, mode, group), mode)
    assert len(rows) > 1
    assert [row.output for row in rows if not row.identical] == []


@pytest.mark.parametrize(("group", "engine"), [(17, "golden"), (3, "hls")])
def test_a_group_without_a_top_is_refused_as_elsewhere(group: int, engine: str, verilator: None) -> None:
    """No command takes 17. Commands take 3, which the drive splits; the kernel by itself is not built for it."""
    rows = compare.compare(KERNELS["gemv"], [engine, "rtl"], inputs("gemv", "rows", group), "rows")
    assert [row.output for row in rows if not row.identical] == []
    shape = {"q": np.zeros((group, 64), np.float16), "k": np.zeros((70, 64), np.float16)}
    assert compare.run(KERNELS["gemv"], "rtl", shape, "rows")["status"] == abi.Status.BAD_GROUP
