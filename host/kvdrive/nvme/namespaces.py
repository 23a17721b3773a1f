"""Standard commands of the three namespaces: logical blocks, drive memory, programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.nvme import wire
from kvdrive.nvme.admin import command
from kvdrive.nvme.commands import Command

Bytes = NDArray[np.uint8]

_FORCE_UNIT_ACCESS = 1 << 30
_DEALLOCATE = 1 << 2


def read_blocks(first: int, count: int) -> Command:
    """READ of 1 to 65536 logical blocks."""
    return _of_blocks(wire.NvmOpcode.NVM_READ, first, count, room=count * wire.LBA_BYTES)


def write_blocks(first: int, data: Bytes, *, fua: bool = False) -> Command:
    """WRITE of whole blocks; with `fua` they are durable when it completes."""
    return _of_blocks(wire.NvmOpcode.NVM_WRITE, first, data.size // wire.LBA_BYTES, data=data, fua=fua)


def write_zeroes(first: int, count: int, *, fua: bool = False) -> Command:
    """WRITE_ZEROES: the blocks read as zeros and take no flash."""
    return _of_blocks(wire.NvmOpcode.NVM_WRITE_ZEROES, first, count, fua=fua)


def deallocate(ranges: Sequence[tuple[int, int]]) -> Command:
    """DATASET_MANAGEMENT: deallocate (first block, count) ranges."""
    data = np.zeros(len(ranges), wire.DatasetRange)
    data["first_block"], data["blocks"] = np.transpose(ranges)
    fields = {"nsid": abi.Namespace.NVM, "cdw10": len(ranges) - 1, "cdw11": _DEALLOCATE}
    return command(wire.NvmOpcode.NVM_DATASET_MANAGEMENT, data=data.view(np.uint8), **fields)


def compare_blocks(first: int, data: Bytes) -> Command:
    """COMPARE of whole blocks with `data`; status SC_COMPARE_FAILURE where they differ."""
    return _of_blocks(wire.NvmOpcode.NVM_COMPARE, first, data.size // wire.LBA_BYTES, data=data)


def verify_blocks(first: int, count: int) -> Command:
    """VERIFY: the drive reads the blocks and sends nothing."""
    return _of_blocks(wire.NvmOpcode.NVM_VERIFY, first, count)


def copy_blocks(ranges: Sequence[tuple[int, int]], target: int, *, fua: bool = False) -> Command:
    """COPY (first block, count) ranges to consecutive blocks from `target` on; at most wire.MAX_COPY_RANGES ranges."""
    data = np.zeros(len(ranges), wire.CopyRange)
    data["first_block"], counts = np.transpose(ranges)
    data["blocks"] = counts - 1
    fields = {"cdw10": target & 0xFFFFFFFF, "cdw11": target >> 32, "cdw12": len(ranges) - 1 | fua * _FORCE_UNIT_ACCESS}
    return command(wire.NvmOpcode.NVM_COPY, data=data.view(np.uint8), nsid=abi.Namespace.NVM, **fields)


def read_memory(start: int, length: int) -> Command:
    """READ of the drive's memory, bytes from `start` on; both multiples of 4."""
    return _of_memory(wire.MemoryOpcode.MEMORY_READ, start, length, room=length)


def write_memory(start: int, data: Bytes) -> Command:
    """WRITE to the drive's memory; start and size are multiples of 4."""
    return _of_memory(wire.MemoryOpcode.MEMORY_WRITE, start, data.size, data=data)


def fill_memory(start: int, length: int, value: int = 0) -> Command:
    """FILL of the drive's memory with a 32-bit value."""
    return _of_memory(wire.MemoryOpcode.MEMORY_FILL, start, length, cdw13=value)


def create_memory_range(start: int, length: int) -> Command:
    """Admin: a range of the drive's memory for programs, in multiples of 64 bytes; the result is its number."""
    data = np.zeros(1, wire.MemoryRange)
    data["nsid"], data["start"], data["length"] = wire.NSID_MEMORY, start, length
    return command(wire.AdminOpcode.MEMORY_RANGE_SET, data=data.view(np.uint8), cdw11=1)


def delete_memory_range(number: int) -> Command:
    """Admin: delete a memory range for programs."""
    return command(wire.AdminOpcode.MEMORY_RANGE_SET, cdw10=number << 16 | 1)


def activate_program(program: wire.Program, active: bool) -> Command:
    """Admin: allow or forbid a program to run."""
    return command(wire.AdminOpcode.PROGRAM_ACTIVATION, cdw10=program | active << 16)


def execute_program(program: wire.Program, memory_range: int, job: int) -> Command:
    """EXECUTE_PROGRAM: run the AttentionJob at byte `job` of a memory range; the result is the engine's status word."""
    chosen = program | memory_range << 16
    return command(wire.ProgramOpcode.EXECUTE_PROGRAM, nsid=abi.Namespace.CP, cdw2=chosen, cdw12=job)


def _of_blocks(
    opcode: int, first: int, count: int, *, room: int = 0, data: Bytes | None = None, fua: bool = False
) -> Command:
    fields = {"cdw10": first & 0xFFFFFFFF, "cdw11": first >> 32, "cdw12": count - 1 | fua * _FORCE_UNIT_ACCESS}
    return command(opcode, room=room, data=data, nsid=abi.Namespace.NVM, **fields)


def _of_memory(
    opcode: int, start: int, length: int, *, room: int = 0, data: Bytes | None = None, cdw13: int = 0
) -> Command:
    fields = {"cdw10": start & 0xFFFFFFFF, "cdw11": start >> 32, "cdw12": length, "cdw13": cdw13}
    return command(opcode, room=room, data=data, nsid=wire.NSID_MEMORY, **fields)
