# SPDX-License-Identifier: Apache-2.0
"""The largest kernel as the front end understands it: whole jobs of every mode against the golden model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ir_interpreter import interpret

from csim import attention
from csim.attention_images import attend_image, to_case
from csim.vectors import Case
from golden.abi import BEAT_BYTES, Mode
from openhls.ir import Program
from openhls.pipeline import compile_program

KERNELS = Path(__file__).parents[2] / "hls"
SEED = 5


def jobs(group: int) -> list[Case]:
    """A masked problem with inline tokens in all modes, then with an Inf, and a refused descriptor."""
    rng = np.random.default_rng(SEED)
    problem = attention.make_problem(rng, group, 32, 40, masked=True, has_inline=True)
    cases = list(attention._all_modes(rng, "small", problem))
    problem.q[0, 3] = np.inf
    infinite = to_case("EXACT with an Inf", *attend_image(problem, Mode.EXACT, rng).build(rng))
    refused = next(case for case in attention._refused(rng) if dict(case)["top"] == group)
    return [*cases, infinite, refused]


@pytest.fixture(scope="session")
def program() -> Program:
    return compile_program(KERNELS / "attention/attention_g1.cpp", "attention_g1", (KERNELS,))


# The others take the same stages, in jobs of their own.
FAST = ("SPARF_ROWS small", "EXACT with an Inf", "refused")
CASES = [
    pytest.param(case, id=label, marks=() if label.startswith(FAST) else pytest.mark.slow)
    for case, label in ((case, str(dict(case)["label"])) for case in jobs(1))
]


@pytest.mark.xdist_group("openhls-attention")  # one compilation
@pytest.mark.parametrize("case", CASES)
def test_a_job_leaves_the_memory_of_the_golden_model(case: Case, program: Program) -> None:
    given = dict(case)
    memory = given["memory"].tobytes()
    scalars = {"job": given["job"], "memory_beats": len(memory) // BEAT_BYTES}
    outcome = interpret(program, scalars, {}, SEED, {name: memory for name in ("kv", "io", "out")})
    assert outcome.outputs["result"] == given["status"]
    assert outcome.buffers["out"] == given["expected"].tobytes()
