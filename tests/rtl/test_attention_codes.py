# SPDX-License-Identifier: Apache-2.0
"""The RTL of attention_codes of every kernel; `make sim` covers corner cases."""

import numpy as np
import pytest

from csim.attention import make_problem
from csim.attention_codes import HEAD_DIMS, KERNELS, Coded
from golden import code_job
from golden.abi import Mode
from kvdrive.kernels.rtl import RtlEngine

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("bits", "group"), KERNELS)
def test_a_job_over_codes_equals_the_golden_model(bits: int, group: int, verilator: None) -> None:
    rng = np.random.default_rng(group)
    engine = RtlEngine()
    for number, d in enumerate(HEAD_DIMS[bits]):
        coded = Coded.of(make_problem(rng, group, d, 70, False, True), bits)
        coded.problem.valid = rng.random(70) < 0.7
        memory, job = coded.build((Mode.EXACT, Mode.PARTIAL)[number % 2], rng)
        expected = memory.copy()
        assert code_job.run(expected, job, bits) == engine.attention_codes(memory, job) == 0
        np.testing.assert_array_equal(memory, expected)
