# SPDX-License-Identifier: Apache-2.0
"""Additional tests of kernels that access memory."""

from __future__ import annotations

from typing import Any

import cocotb

from tb.common.memory import TIMINGS
from tb.common.session import REPORT, Session
from tb.common.tests import accepted, run

_OTHERS = [name for name in TIMINGS if name != "ideal"]
REPORT.coverage.declare("memory", _OTHERS)
REPORT.coverage.declare("error response", ("read", "write", "job after it"))


@cocotb.test()
async def results_do_not_depend_on_the_memory(dut: Any) -> None:
    async with Session(dut, "memory") as session:
        for number, (case, job) in enumerate(accepted(session, 50, 3000)[:24]):
            memory = _OTHERS[number % len(_OTHERS)]
            await run(session, case, job, timing=TIMINGS[memory], stalled=number % 4 >= 2)
            REPORT.coverage.hit("memory", memory)


@cocotb.test()
async def an_error_response_is_reported_and_ends_with_the_next_start(dut: Any) -> None:
    """A job that runs well tells which words it touches; one of them is then answered with SLVERR."""
    async with Session(dut, "errors") as session:
        for case, job in accepted(session, 50, 1500)[:6]:
            await run(session, case, job)
            for kind in ("read", "write"):
                touched = session.touched(kind)
                buffer, offset = list(touched)[session.rng.integers(len(touched))]
                outcome = await session.run(job, failing={buffer: range(offset, offset + 1)})
                bits = {number for number, bundle in enumerate(session.ports) if bundle in touched[buffer, offset]}
                expected = sum(1 << number for number in bits)
                got = outcome.registers["bus_error"]
                assert got == expected, f"{job.label}: bus_error is {got:#b}, {expected:#b} expected after a {kind}"
                REPORT.coverage.hit("error response", kind)
            await run(session, case, job)
            REPORT.coverage.hit("error response", "job after it")
