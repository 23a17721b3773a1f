"""Checks of drive memory and of programs that run in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import Bench, Halves, with_fields
from kvdrive.conformance.queries import exact
from kvdrive.conformance.suite import check
from kvdrive.kernels.native import scale_bits
from kvdrive.kernels.oracle import GoldenKernels
from kvdrive.nvme import admin, namespaces, wire
from kvdrive.nvme.commands import Command

START, LENGTH = 4096, 1 << 16  # of the memory that the checks use


@check("MEMORY_WRITE", "bytes read as they were written, and their neighbours stay")
def _(bench: Bench) -> None:
    data = bench.noise(2)
    bench.ok(namespaces.fill_memory(START, data.size + 128, 0))
    bench.ok(namespaces.write_memory(START + 64, data))
    want = np.concatenate([np.zeros(64, np.uint8), data, np.zeros(64, np.uint8)])
    bench.same("drive memory", bench.ok(namespaces.read_memory(START, want.size)).data, want)


@check("MEMORY_WRITE", "unaligned bytes and bytes beyond the memory are refused")
def _(bench: Bench) -> None:
    four = np.zeros(4, np.uint8)
    bench.refused("INVALID_FIELD", namespaces.write_memory(START + 2, four))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.write_memory(bench.memory, four))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.write_memory(1 << 60, four))


@check("MEMORY_READ", "every alignment of 4 bytes reads; unaligned bytes and bytes beyond the memory are refused")
def _(bench: Bench) -> None:
    data = bench.noise(1)[:64]
    bench.ok(namespaces.write_memory(START, data))
    for start in range(0, 64, 4):
        bench.same("drive memory", bench.ok(namespaces.read_memory(START + start, 64 - start)).data, data[start:])
    bench.refused("INVALID_FIELD", namespaces.read_memory(START + 2, 4))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.read_memory(bench.memory - 4, 8))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.read_memory(1 << 60, 4))


@check("MEMORY_FILL", "words get the value, and their neighbours stay")
def _(bench: Bench) -> None:
    data = bench.noise(1)
    bench.ok(namespaces.write_memory(START, data))
    bench.ok(namespaces.fill_memory(START + 8, 12, 0xDEADBEEF))
    data[8:20] = np.frombuffer(b"\xef\xbe\xad\xde" * 3, np.uint8)
    bench.same("drive memory", bench.ok(namespaces.read_memory(START, data.size)).data, data)
    bench.refused("INVALID_FIELD", namespaces.fill_memory(START + 1, 4))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.fill_memory(bench.memory - 4, 8))


@contextmanager
def memory_range(bench: Bench) -> Iterator[int]:
    """A memory range set over the memory of the checks."""
    number = bench.ok(namespaces.create_memory_range(START, LENGTH), admin=True).result
    try:
        yield number
    finally:
        bench.device.send(namespaces.delete_memory_range(number), admin=True)


def place_job(bench: Bench, q: Halves, k: Halves, v: Halves) -> int:
    """Write an EXACT job with its arrays to the memory range; returns the byte of the output within the range."""
    parts, at = [], 128 + abi.AttentionResult.itemsize
    job = np.zeros((), abi.AttentionJob)
    for name, array in (("q", q), ("k", k), ("v", v)):
        job[name], at = at, at + array.nbytes
        parts.append(array.reshape(-1).view(np.uint8))
    job["version"], job["group"], job["head_dim"], job["tokens"] = abi.ABI_VERSION, q.shape[0], q.shape[1], len(k)
    job["scale_log2e"], job["result"], job["out"] = scale_bits(None, q.shape[1]), 128, at
    record = np.zeros(abi.AttentionResult.itemsize, np.uint8)
    everything = np.concatenate([np.frombuffer(job.tobytes(), np.uint8), record, *parts])
    bench.ok(namespaces.write_memory(START, everything))
    return at


@check("EXECUTE_PROGRAM", "a job in drive memory gives the golden model's bits")
def _(bench: Bench) -> None:
    q, k, v = bench.halves(4, 64), bench.halves(96, 64), bench.halves(96, 64)
    with memory_range(bench) as number:
        out = place_job(bench, q, k, v)
        bench.same("the status word", bench.ok(namespaces.execute_program(_DENSE, number, 0)).result, 0)
        want = GoldenKernels().attention({"q": q, "k": k, "v": v}, "exact")
        bench.same("the output", bench.ok(namespaces.read_memory(START + out, q.nbytes)).data, want["out"])
        record = bench.ok(namespaces.read_memory(START + 128, abi.AttentionResult.itemsize)).data
        found = record.view(abi.AttentionResult)[0]
        bench.same("the maxima", found["max"][:4], np.asarray(want["max"], np.int32))
        bench.same("the sums", found["sum"][:4], np.asarray(want["sum"], np.uint64))


_DENSE, _PARTIAL = wire.Program.PROGRAM_DENSE, wire.Program.PROGRAM_PARTIAL


@check("EXECUTE_PROGRAM", "wrong programs, ranges, jobs and fields are refused")
def _(bench: Bench) -> None:
    q, k = bench.halves(2, 64), bench.halves(8, 64)
    with memory_range(bench) as number:
        place_job(bench, q, k, k)
        run = namespaces.execute_program
        bench.refused("INVALID_FIELD", run(_PARTIAL, number, 0))
        bench.refused("INVALID_PROGRAM_INDEX", with_fields(run(_DENSE, number, 0), cdw2=9 | number << 16))
        bench.refused("INVALID_MEMORY_RANGE_SET_ID", run(_DENSE, 0xFFF, 0))
        bench.refused("INVALID_MEMORY_RANGE_SET", run(_DENSE, number, LENGTH - 64))
        bench.refused("INVALID_MEMORY_RANGE_SET", run(_DENSE, number, 32))
        for field in ("cdw3", "cdw10", "cdw11"):
            bench.refused("INVALID_FIELD", with_fields(run(_DENSE, number, 0), **{field: 1}))
        bench.ok(namespaces.fill_memory(START + 8, 4, 1 << 30))  # the job's tokens
        word = bench.refused("JOB_REFUSED", run(_DENSE, number, 0)).result
        bench.same("the engine's status word", word & abi.Status.BAD_LENGTH, abi.Status.BAD_LENGTH)


@check("PROGRAM_ACTIVATION", "a program that is off does not run, in a job or in a query, until it is on again")
def _(bench: Bench) -> None:
    q, k = bench.halves(2, 64), bench.halves(8, 64)
    query, stored = None, bench.store(tokens=9)
    query = exact(bench, stored)
    with memory_range(bench) as number:
        place_job(bench, q, k, k)
        bench.ok(namespaces.activate_program(_DENSE, False), admin=True)
        try:
            bench.refused("PROGRAM_NOT_ACTIVATED", namespaces.execute_program(_DENSE, number, 0))
            bench.refused("PROGRAM_NOT_ACTIVATED", query.submit(stored.number))
            log = bench.ok(admin.get_log_page(wire.LogPage.LOG_PROGRAMS, 192), admin=True).data
            bench.same("active programs", log.view(wire.ProgramDescriptor)["active"].tolist(), [0, 1, 1])
        finally:
            bench.ok(namespaces.activate_program(_DENSE, True), admin=True)
        bench.ok(namespaces.execute_program(_DENSE, number, 0))
    bench.ok(query.fetch(bench.ok(query.submit(stored.number)).result))


@check("PROGRAM_ACTIVATION", "unknown programs and selections are refused")
def _(bench: Bench) -> None:
    opcode = wire.AdminOpcode.PROGRAM_ACTIVATION
    bench.refused("INVALID_PROGRAM_INDEX", admin.command(opcode, cdw10=9 | 1 << 16), admin=True)
    bench.refused("INVALID_FIELD", admin.command(opcode, cdw10=2 << 16), admin=True)


@check("LOAD_PROGRAM", "no program can be loaded")
def _(bench: Bench) -> None:
    opcode = wire.AdminOpcode.LOAD_PROGRAM
    bench.refused("PROGRAM_NOT_DOWNLOADABLE", admin.command(opcode), admin=True)
    bench.refused("INVALID_PROGRAM_INDEX", admin.command(opcode, cdw10=9), admin=True)


@check("MEMORY_RANGE_SET", "sets are made until there are no more, and deleted once")
def _(bench: Bench) -> None:
    made: list[int] = []
    try:
        for _ in range(wire.MAX_MEMORY_RANGE_SETS + 1):
            done = bench.send(namespaces.create_memory_range(START, 4096), admin=True)
            if done.status:
                break
            made.append(done.result)
        bench.same("different numbers", len(set(made)), len(made))
        bench.same("a set was made", bool(made), True)
        full = namespaces.create_memory_range(START, 4096)
        bench.refused("MEMORY_RANGE_SETS_EXCEEDED", full, admin=True)
        for number in made:
            bench.ok(namespaces.delete_memory_range(number), admin=True)
    finally:
        for number in made:
            bench.device.send(namespaces.delete_memory_range(number), admin=True)
    bench.refused("INVALID_MEMORY_RANGE_SET_ID", namespaces.delete_memory_range(made[0]), admin=True)


@check("MEMORY_RANGE_SET", "ranges that no program can use are refused")
def _(bench: Bench) -> None:
    create = namespaces.create_memory_range
    for start, length in ((START, 0), (START + 4, 64), (START, 100), (bench.memory, 64)):
        bench.refused("INVALID_MEMORY_RANGE_SET", create(start, length), admin=True)
    other = create(START, 64)
    data = np.array(other.data)
    data.view(wire.MemoryRange)["nsid"] = 1
    bench.refused("INVALID_MEMORY_NAMESPACE", Command(other.entry, data), admin=True)
    opcode = wire.AdminOpcode.MEMORY_RANGE_SET
    bench.refused("MEMORY_RANGES_EXCEEDED", admin.command(opcode, cdw11=wire.MAX_MEMORY_RANGES + 1), admin=True)
    bench.refused("INVALID_FIELD", admin.command(opcode, cdw11=0), admin=True)
    bench.refused("INVALID_FIELD", admin.command(opcode, cdw10=2), admin=True)
