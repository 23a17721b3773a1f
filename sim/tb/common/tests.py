# SPDX-License-Identifier: Apache-2.0
"""The tests that every kernel must pass, on the cases of its scoreboard. Each begins with a reset."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any

import cocotb

from rtl.kernels import find_tops
from tb.common import reads
from tb.common.bench import PATIENCE
from tb.common.control import CONTROL, IDLE, START
from tb.common.kernel import Case, Scoreboard
from tb.common.memory import IDEAL
from tb.common.session import LINGER, REPORT, Job, Outcome, Session

reads.watch()
(_TOP,) = find_tops(os.environ["TB_TOP"])
_DRIVER = import_module(f"tb.{_TOP.kernel}.driver")
SCOREBOARD: Scoreboard = import_module(f"tb.{_TOP.kernel}.scoreboard").make(_TOP)
SCOREBOARD.declare(REPORT.coverage)

WITHIN = 0.02  # allowed difference from the stated cycles, as a share
LONGEST_STALLED = 20_000  # stated cycles; longer jobs run only without stalls

REPORT.coverage.declare("scenario", ("reset in a job", "back to back", "refused", "accepted after refused"))


@cache
def _cases(seed: int, small: bool) -> list[tuple[Case, Job]]:
    return [(case, _DRIVER.job(case)) for case in SCOREBOARD.cases(seed, small)]


def all_jobs(session: Session, at_most: int | None = None) -> list[tuple[Case, Job]]:
    """All cases whose stated cycles are at most `at_most`, in an order that ends with an accepted job."""
    found = _cases(session.seed, session.small)
    found = [one for one in found if at_most is None or SCOREBOARD.refused(one[0]) or stated(*one) <= at_most]
    last = max(number for number, (case, _) in enumerate(found) if not SCOREBOARD.refused(case))
    found.append(found.pop(last))
    return found


def accepted(session: Session, at_least: int, at_most: int) -> list[tuple[Case, Job]]:
    """The accepted jobs whose stated cycles are in this range, in random order."""
    found = [one for one in all_jobs(session) if not SCOREBOARD.refused(one[0])]
    found = [one for one in found if at_least <= stated(*one) <= at_most]
    return [found[i] for i in session.rng.permutation(len(found))]


def stated(case: Case, job: Job, outcome: Outcome | None = None) -> int:
    return _TOP.cycles(SCOREBOARD.variables(case, job, outcome))


async def run(session: Session, case: Case, job: Job, **surroundings: Any) -> Outcome:
    """Run one job whose words are at the streams, and compare it with the expected results."""
    session.bench.patience = PATIENCE + (0 if SCOREBOARD.refused(case) else stated(case, job))
    outcome = await session.run(job, **surroundings)
    SCOREBOARD.check(case, job, outcome)
    SCOREBOARD.cover(case, REPORT.coverage)
    words = {name: 0 if SCOREBOARD.refused(case) else len(all_) for name, all_ in job.words.items()}
    assert outcome.taken == words, f"{job.label}: took {outcome.taken} words of {words}"
    return outcome


async def run_all(session: Session, *, stalled: bool) -> None:
    """Run all cases in order, without a reset. Refused jobs have the next accepted job's words at their streams."""
    cycles = Cycles()
    refused: list[Case] = []
    done = 0
    for case, job in all_jobs(session, LONGEST_STALLED if stalled else None):
        if SCOREBOARD.refused(case):
            refused.append(case)
            continue
        session.offer(job, stalled=stalled)
        for other in refused:
            nothing = replace(_DRIVER.job(other), words=job.words)
            await run(session, other, nothing, stalled=stalled)
            REPORT.coverage.hit("scenario", "refused")
        if refused:
            REPORT.coverage.hit("scenario", "accepted after refused")
        outcome = await run(session, case, job, stalled=stalled)
        if not stalled:
            cycles.compare(case, job, outcome)
        done += 1 + len(refused)
        refused = []
    cocotb.log.info("%d jobs compared", done)
    cycles.check()


class Cycles:
    """Collects the cycles of jobs without stalls. It fails at the end, so that wrong results are reported first."""

    def __init__(self) -> None:
        self._off: list[str] = []

    def compare(self, case: Case, job: Job, outcome: Outcome) -> None:
        expected = stated(case, job, outcome) + IDEAL.latency * SCOREBOARD.round_trips(case, outcome)
        for cycles in outcome.cycles:
            REPORT.cycles.append((job.label, cycles, expected))
            if abs(cycles - expected) > WITHIN * expected:
                self._off.append(f"{job.label}: {cycles} cycles, {expected} stated")

    def check(self) -> None:
        if not _TOP.fill:
            cocotb.log.warning("kernel.toml states no fill: cycles are shown and not compared")
        elif self._off:
            raise AssertionError(f"{len(self._off)} jobs are not within 2 % of [cycles]: {'; '.join(self._off[:5])}")


@cocotb.test()
async def every_case_gives_the_golden_result_in_the_stated_cycles(dut: Any) -> None:
    async with Session(dut, "cases") as session:
        await run_all(session, stalled=False)


@cocotb.test()
async def every_case_gives_the_golden_result_under_stalls(dut: Any) -> None:
    async with Session(dut, "stalls") as session:
        await run_all(session, stalled=True)


@cocotb.test()
async def a_job_after_a_reset_in_the_middle_of_another_is_as_any(dut: Any) -> None:
    async with Session(dut, "reset") as session:
        jobs, cycles = accepted(session, 200, 2000)[:12], Cycles()
        for number, (case, job) in enumerate(jobs):
            stalled = bool(number % 2)
            session.offer(job, stalled=stalled)
            await session.start(job, stalled=stalled)
            await session.bench.steps(int(session.rng.integers(1, stated(case, job))))
            await session.reset()
            state = await session.control.bus.read(CONTROL)
            assert state == IDLE, f"ap_ctrl is {state:#x} after a reset"
            next_case, next_job = jobs[(number + 1) % len(jobs)]
            session.offer(next_job)
            cycles.compare(next_case, next_job, await run(session, next_case, next_job, stalled=False))
            REPORT.coverage.hit("scenario", "reset in a job")
        cycles.check()


@cocotb.test()
async def a_job_may_begin_in_the_cycle_after_another(dut: Any) -> None:
    """With auto_restart. The outputs are those of two jobs with the same arguments."""
    cycles = Cycles()
    async with Session(dut, "restart") as session:
        for case, job in accepted(session, 200, 2000)[:8]:
            session.offer(replace(job, words={name: 2 * words for name, words in job.words.items()}))
            both = await session.run_twice(job)
            for half in (0, 1):
                words = {name: all_[half * len(all_) // 2 :][: len(all_) // 2] for name, all_ in both.words.items()}
                one = replace(both, words=words, read_words={name: n // 2 for name, n in both.read_words.items()})
                SCOREBOARD.check(case, job, one)
            cycles.compare(case, job, one)
            REPORT.coverage.hit("scenario", "back to back")
        cycles.check()


@cocotb.test()
async def arguments_read_back_and_other_addresses_read_as_zero(dut: Any) -> None:
    async with Session(dut, "registers") as session:
        control, bus = session.control, session.control.bus
        used: set[int] = set()
        values: dict[str, int] = {}
        for one in control.registers.values():
            used |= set(range(one["offset"], one["offset"] + 4 * -(-one["width"] // 32), 4))
            if one["access"] == "rw" and one["offset"] >= 0x10:
                values[one["name"]] = int.from_bytes(session.rng.bytes(8), "little") % (1 << one["width"])
        for name, value in values.items():
            await control.put(name, value)
        for name, value in values.items():
            assert await control.get(name) == value, name
        for address in set(range(0, 1 << len(dut.s_axi_control_ARADDR), 4)) - used:
            await bus.write(address, 0xFFFFFFFF)
            assert await bus.read(address) == 0, hex(address)
        name, value = values.popitem()
        offset = control.registers[name]["offset"]
        await bus.write(offset, ~value & 0xFFFFFFFF, strobe=0b0101)
        assert await bus.read(offset) == (value ^ 0x00FF00FF) & 0xFFFFFFFF, "strobes"
        await bus.write(CONTROL, START, strobe=0b1110)
        await session.bench.steps(LINGER)
        assert await bus.read(CONTROL) == IDLE, "started although the strobe of its byte was 0"
