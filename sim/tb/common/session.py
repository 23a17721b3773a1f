# SPDX-License-Identifier: Apache-2.0
"""One test on one kernel: the bench with an agent at every port of the kernel, and the jobs that run on it."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from rtl.kernels import find_tops
from tb.common import stalls
from tb.common.axi_memory import CHANNELS, AxiMemory
from tb.common.axis import Sink, Source
from tb.common.bench import Bench
from tb.common.control import AUTO_RESTART, CONTROL, START, Control
from tb.common.memory import IDEAL, Memory, Timing
from tb.common.reads import project_files
from tb.common.report import Report

LINGER = 20  # cycles after a job in which no further word may come
REPORT = Report()  # one report for all tests of this simulation


@dataclass(frozen=True)
class Job:
    """The inputs of a kernel: scalars by register name, words by stream, bytes by buffer in memory, and the buffer of
    each pointer."""

    label: str
    scalars: dict[str, int]
    words: dict[str, list[int]] = field(default_factory=dict)
    buffers: dict[str, bytes] = field(default_factory=dict)
    pointers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The outputs of a kernel: output registers, words by stream, number of words taken from each input stream, cycles
    of each job, buffers in memory, number of words read through each bundle."""

    registers: dict[str, int]
    words: dict[str, list[int]]
    taken: dict[str, int]
    cycles: list[int]
    buffers: dict[str, np.ndarray]
    read_words: dict[str, int]


class Session:
    """`async with` resets the design at its begin and writes the tables at its end."""

    def __init__(self, dut: Any, test: str) -> None:
        self.folder = Path(os.environ["TB_FOLDER"])
        self.seed = int(os.environ["TB_SEED"])
        self.small = os.environ["TB_SMALL"] == "1"
        (self.top,) = find_tops(os.environ["TB_TOP"])
        self.rng = np.random.default_rng([self.seed, zlib.crc32(test.encode())])
        self.bench = Bench(dut)
        self.control = Control(self.bench, self.folder)
        streams = {one["name"]: one["direction"] for one in self.top.interfaces if one["kind"] == "axis"}
        self.sources = {name: Source(self.bench, name) for name, way in streams.items() if way == "in"}
        self.sinks = {name: Sink(self.bench, name) for name, way in streams.items() if way == "out"}
        self.memory = Memory()
        bundles = [found[1] for pin in dut if (found := re.fullmatch(r"m_axi_(\w+)_ARVALID", pin._name))]
        self.ports = {bundle: AxiMemory(self.bench, bundle, self.memory) for bundle in sorted(bundles)}
        self.outputs = [one["name"] for one in self.control.registers.values() if one["access"] == "r"]
        channels = [*self.sources, *self.sinks, "registers"]
        channels += [f"{bundle} {channel}" for bundle in self.ports for channel in CHANNELS]
        REPORT.coverage.declare("stalls", (f"{name}, {kind}" for name in channels for kind in stalls.CLASSES))

    async def __aenter__(self) -> Session:
        await self.reset()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        REPORT.take_marks(self.bench.fifos)
        for port in self.ports.values():
            REPORT.most_outstanding[port.name] = max(port.most_outstanding, REPORT.most_outstanding.get(port.name, 0))
            for name, times in port.bursts.items():
                REPORT.coverage.count("bursts", name, times)
        REPORT.files = project_files()
        REPORT.save(Path(os.environ["TB_REPORT"]), {"top": self.top.name, "seed": self.seed})

    async def reset(self) -> None:
        await self.bench.reset()
        await self.control.enable_interrupt()

    def offer(self, job: Job, *, stalled: bool = False) -> None:
        """Offer the words of a job at the input streams."""
        for name, source in self.sources.items():
            source.offer(job.words[name], self._gate(name, stalled))

    async def run(self, job: Job, **surroundings: Any) -> Outcome:
        """Run a job whose words are at the streams, from its arguments to `LINGER` cycles after its end."""
        await self.start(job, **surroundings)
        await self.control.finish()
        return await self.collect(job)

    async def start(
        self,
        job: Job,
        *,
        stalled: bool = False,
        timing: Timing = IDEAL,
        failing: Mapping[str, range] = MappingProxyType({}),
        flags: int = START,
    ) -> None:
        """Put the buffers of a job into memory, open the outputs and write the registers.

        `failing`: bytes of buffers whose accesses are answered with an error.
        """
        self._prepare(stalled, timing)
        self.memory.clear()
        addresses = {
            name: self.memory.add(name, data, 64 * int(self.rng.integers(64))) for name, data in job.buffers.items()
        }
        pointers = {name: addresses[buffer] for name, buffer in job.pointers.items()}
        for name, value in (job.scalars | pointers).items():
            await self.control.put(name, value)
        self.memory.failing = [
            range(addresses[buffer] + part.start, addresses[buffer] + part.stop) for buffer, part in failing.items()
        ]
        await self.control.start(flags)

    def _prepare(self, stalled: bool, timing: Timing) -> None:
        for name, sink in self.sinks.items():
            sink.accept(self._gate(name, stalled))
        self.control.bus.gate = self._gate("registers", stalled)
        for bundle, port in self.ports.items():
            gates = {channel: self._gate(f"{bundle} {channel}", stalled) for channel in CHANNELS}
            port.begin(self.rng, timing, gates)

    async def run_twice(self, job: Job) -> Outcome:
        """Run two jobs with the same arguments; the second begins in the cycle after the first. The outcome has the
        words of both in order."""
        await self.start(job, flags=START | AUTO_RESTART)
        await self.control.interrupted()
        await self.control.bus.write(CONTROL, 0)
        await self.control.finish()
        return await self.collect(job)

    def touched(self, kind: str) -> dict[tuple[str, int], set[str]]:
        """Words that the last job has read or written (`kind`), as (buffer, byte offset). The value is the set of
        bundles that have read or written the word."""
        touched = {name: port.touched["read"] | port.touched["write"] for name, port in self.ports.items()}
        return {
            self.memory.place(address): {name for name, addresses in touched.items() if address in addresses}
            for port in self.ports.values()
            for address in sorted(port.touched[kind])
        }

    async def collect(self, job: Job) -> Outcome:
        await self.bench.steps(LINGER)
        for name, port in self.ports.items():
            assert port.idle, f"{name}: accesses are on their way after the end of the job"
        self.memory.check_guards()
        return Outcome(
            registers={name: await self.control.get(name) for name in self.outputs},
            words={name: sink.words for name, sink in self.sinks.items()},
            taken={name: source.taken for name, source in self.sources.items()},
            cycles=self.control.cycles,
            buffers={name: self.memory.content(name) for name in job.buffers},
            read_words={name: port.read_words for name, port in self.ports.items()},
        )

    def _gate(self, channel: str, stalled: bool) -> stalls.Gate:
        kind = stalls.choose(self.rng) if stalled else stalls.NONE
        REPORT.coverage.hit("stalls", f"{channel}, {kind}")
        return stalls.gate(self.rng, kind)
