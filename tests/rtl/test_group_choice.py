"""The RTL of group_choice for every group; `make sim` covers corner cases of the smallest one."""

import numpy as np
import pytest

import golden
from csim.group_choice import Choice
from golden.abi import CHOICE_HEAD_DIMS, GROUP_SIZES, UNIT_TOKENS
from kvdrive.kernels.rtl import RtlEngine

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("group", GROUP_SIZES)
def test_a_choice_equals_the_golden_model(group: int, verilator: None) -> None:
    rng = np.random.default_rng(group)
    engine = RtlEngine()
    for number, d in enumerate(CHOICE_HEAD_DIMS):
        index = golden.build_index(rng.standard_normal((160, d)).astype(np.float16))
        q = rng.standard_normal((group, d)).astype(np.float16)
        choice = Choice(q, index.to_bytes(), index.exponent, UNIT_TOKENS[number], 2)
        choice.valid = rng.random(160) < 0.7
        choice.inline = rng.integers(-(1 << 22), 1 << 22, (group, 5)).astype(np.int32)
        memory, job = choice.build(rng)
        expected = memory.copy()
        assert golden.group_job.run(expected, job) == engine.group_choice(memory, job) == 0
        np.testing.assert_array_equal(memory, expected)
