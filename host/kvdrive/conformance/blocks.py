"""Checks of the block commands."""

from __future__ import annotations

import numpy as np

from kvdrive import abi
from kvdrive.conformance.bench import BLOCKS, Bench, with_fields
from kvdrive.conformance.device import Ability
from kvdrive.conformance.queries import holds
from kvdrive.conformance.suite import check
from kvdrive.nvme import admin, commands, namespaces, wire
from kvdrive.nvme.commands import Command

LBA = wire.LBA_BYTES


def holds_blocks(bench: Bench, first: int, want: np.ndarray) -> None:
    """Blocks hold `want`."""
    found = bench.ok(namespaces.read_blocks(first, want.size // LBA)).data
    bench.same(f"blocks from {first} on", found, want)


def short(command: Command) -> Command:
    """The command with a block more than its data."""
    blocks = int.from_bytes(command.entry[48:50], "little")
    return with_fields(command, cdw12=blocks + 1)


@check("FLUSH", "it succeeds and changes nothing")
def _(bench: Bench) -> None:
    stored, data = bench.store(), bench.noise(2)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.ok(commands.flush())
    holds(bench, stored)
    holds_blocks(bench, bench.first_block, data)


@check("FLUSH", "it succeeds for all namespaces at once; fused operations are refused", Ability.RAW)
def _(bench: Bench) -> None:
    bench.ok(with_fields(commands.flush(), nsid=wire.NSID_ALL))
    bench.refused("INVALID_FIELD", with_fields(commands.flush(), flags=1))


@check("WRITE", "blocks read as they were written, in transfers of any size")
def _(bench: Bench) -> None:
    for first, count in ((0, 1), (5, 2), (10, 3), (20, 40)):
        data = bench.noise(count)
        bench.ok(namespaces.write_blocks(bench.first_block + first, data, fua=first == 5))
        holds_blocks(bench, bench.first_block + first, data)
    bench.ok(namespaces.write_blocks(bench.first_block + 21, bench.noise(1)))
    bench.same("the block before it", bench.ok(namespaces.read_blocks(bench.first_block + 20, 1)).data, data[:LBA])


@check("WRITE", "blocks beyond the namespace and data of another length are refused and change nothing")
def _(bench: Bench) -> None:
    data = bench.noise(4)
    bench.ok(namespaces.write_blocks(bench.size - 4, data))
    for first in (bench.size - 3, bench.size, 1 << 60):
        bench.refused("LBA_OUT_OF_RANGE", namespaces.write_blocks(first, bench.noise(4)))
    bench.refused("DATA_LENGTH", short(namespaces.write_blocks(bench.size - 4, bench.noise(2))))
    holds_blocks(bench, bench.size - 4, data)


@check("READ", "blocks beyond the namespace and short buffers are refused")
def _(bench: Bench) -> None:
    for first in (bench.size - 1, bench.size, 1 << 60):
        bench.refused("LBA_OUT_OF_RANGE", namespaces.read_blocks(first, 2))
    bench.refused("DATA_LENGTH", short(namespaces.read_blocks(bench.first_block, 1)))


@check("READ", "many reads in flight return each its own blocks")
def _(bench: Bench) -> None:
    data = bench.noise(BLOCKS)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    places = [(i, 1 + i % 7) for i in range(BLOCKS - 8)]
    reads = [namespaces.read_blocks(bench.first_block + first, count) for first, count in places]
    for (first, count), command, done in zip(places, reads, bench.device.send_many(reads), strict=True):
        bench.same("the status", bench.note(command, done).status, 0)
        bench.same(f"blocks from {first} on", done.data, data[first * LBA :][: count * LBA])


@check("WRITE_ZEROES", "blocks read as zeros and take no flash, the others stay")
def _(bench: Bench) -> None:
    data, first = bench.noise(20), bench.first_block
    bench.ok(namespaces.write_zeroes(first, BLOCKS))
    before = used(bench)
    bench.ok(namespaces.write_blocks(first, data))
    bench.same("blocks in use", used(bench) - before, 20)
    bench.ok(namespaces.write_zeroes(first + 2, 3, fua=True))
    bench.same("blocks in use", used(bench) - before, 17)
    data[2 * LBA : 5 * LBA] = 0
    holds_blocks(bench, first, data)


@check("WRITE_ZEROES", "blocks beyond the namespace are refused")
def _(bench: Bench) -> None:
    data = bench.noise(1)
    bench.ok(namespaces.write_blocks(bench.size - 1, data))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.write_zeroes(bench.size - 1, 2))
    holds_blocks(bench, bench.size - 1, data)


@check("DATASET_MANAGEMENT", "deallocated ranges read as zeros and take no flash")
def _(bench: Bench) -> None:
    data, first = bench.noise(20), bench.first_block
    bench.ok(namespaces.write_zeroes(first, BLOCKS))
    before = used(bench)
    bench.ok(namespaces.write_blocks(first, data))
    hint = with_fields(namespaces.deallocate([(first, 20)]), cdw11=1)
    bench.ok(hint)
    holds_blocks(bench, first, data)
    bench.ok(namespaces.deallocate([(first + 1, 2), (first + 19, 30)]))
    bench.same("blocks in use", used(bench) - before, 17)
    data[1 * LBA : 3 * LBA] = 0
    data[19 * LBA :] = 0
    holds_blocks(bench, first, data)


@check("DATASET_MANAGEMENT", "a range beyond the namespace is refused and no range is deallocated")
def _(bench: Bench) -> None:
    data = bench.noise(2)
    bench.ok(namespaces.write_blocks(bench.first_block, data))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.deallocate([(bench.first_block, 1), (bench.size, 1)]))
    bench.refused("DATA_LENGTH", with_fields(namespaces.deallocate([(bench.first_block, 1)]), cdw10=1))
    holds_blocks(bench, bench.first_block, data)


@check("COMPARE", "equal blocks succeed, a single different bit does not")
def _(bench: Bench) -> None:
    data, first = bench.noise(8), bench.first_block
    bench.ok(namespaces.write_blocks(first, data))
    bench.ok(namespaces.compare_blocks(first, data))
    for bit in (0, 5 * LBA * 8 + 77, data.size * 8 - 1):
        wrong = data.copy()
        wrong[bit // 8] ^= 1 << bit % 8
        bench.refused("COMPARE_FAILURE", namespaces.compare_blocks(first, wrong))
    holds_blocks(bench, first, data)


@check("COMPARE", "blocks beyond the namespace and data of another length are refused")
def _(bench: Bench) -> None:
    bench.refused("LBA_OUT_OF_RANGE", namespaces.compare_blocks(bench.size - 1, bench.noise(2)))
    bench.refused("DATA_LENGTH", short(namespaces.compare_blocks(bench.first_block, bench.noise(1))))


@check("VERIFY", "readable blocks succeed, blocks beyond the namespace are refused")
def _(bench: Bench) -> None:
    bench.ok(namespaces.write_blocks(bench.first_block, bench.noise(8)))
    bench.same("data", bench.ok(namespaces.verify_blocks(bench.first_block, BLOCKS)).data.size, 0)
    bench.refused("LBA_OUT_OF_RANGE", namespaces.verify_blocks(bench.size - 1, 2))


@check("COPY", "ranges are copied in their order, also where they overlap the target")
def _(bench: Bench) -> None:
    data, first = bench.noise(8), bench.first_block
    blocks = data.reshape(8, -1)
    bench.ok(namespaces.write_blocks(first, data))
    bench.ok(namespaces.copy_blocks([(first + 4, 4), (first, 2)], first + 30))
    holds_blocks(bench, first + 30, np.concatenate([blocks[4:8], blocks[:2]]).reshape(-1))
    bench.ok(namespaces.copy_blocks([(first, 8)], first + 2, fua=True))
    holds_blocks(bench, first + 2, data)


@check("COPY", "too many ranges or blocks, another format and places beyond the namespace are refused")
def _(bench: Bench) -> None:
    data, first = bench.noise(2), bench.first_block
    bench.ok(namespaces.write_blocks(first, data))
    for ranges in (
        [(0, 1)] * (wire.MAX_COPY_RANGES + 1),
        [(0, wire.MAX_COPY_RANGE_BLOCKS + 1)],
        [(0, wire.MAX_COPY_RANGE_BLOCKS)] * (wire.MAX_COPY_BLOCKS // wire.MAX_COPY_RANGE_BLOCKS + 1),
    ):
        bench.refused("COMMAND_SIZE_LIMIT", namespaces.copy_blocks(ranges, first))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.copy_blocks([(first + 3, 1), (bench.size, 1)], first))
    bench.refused("LBA_OUT_OF_RANGE", namespaces.copy_blocks([(first, 2)], bench.size - 1))
    bench.refused("INVALID_FIELD", with_fields(namespaces.copy_blocks([(first + 3, 1)], first), cdw12=1 << 8))
    bench.refused("DATA_LENGTH", with_fields(namespaces.copy_blocks([(first + 3, 1)], first), cdw12=1))
    holds_blocks(bench, first, data)


def used(bench: Bench) -> int:
    """Blocks of the namespace that take flash."""
    data = bench.ok(admin.identify(wire.Cns.CNS_NAMESPACE, abi.Namespace.NVM), admin=True).data
    return int(admin.decode(wire.IdentifyNamespace, data)["nuse"])
