# SPDX-License-Identifier: Apache-2.0
"""Blocks, drive memory and programs, as hosts use them through rings."""

import numpy as np
import pytest

import golden
from kvdrive import abi
from kvdrive.nvme import admin, commands, namespaces, wire

S, SC = abi.NvmeStatus, wire.StatusCode
BLOCKS = (1 << 26) // wire.LBA_BYTES


def noise(seed, count):
    return np.random.default_rng(seed).integers(0, 256, count * wire.LBA_BYTES).astype(np.uint8)


@pytest.mark.parametrize("prp", [False, True])
def test_blocks_read_as_they_were_written(make_nvme, prp):
    nvme = make_nvme(prp=prp)
    for first, count in ((0, 1), (5, 2), (100, 3), (1000, 700)):  # one page, two, a PRP list, two lists
        data = noise(count, count)
        nvme.ok(namespaces.write_blocks(first, data))
        assert nvme.ok(namespaces.read_blocks(first, count)).data.tobytes() == data.tobytes()
    nvme.ok(namespaces.write_blocks(101, noise(9, 1)))
    found = nvme.ok(namespaces.read_blocks(99, 5)).data.reshape(5, -1)
    want = noise(3, 3).reshape(3, -1)
    assert not found[0].any()
    assert not found[4].any()
    assert [found[1].tobytes(), found[3].tobytes()] == [want[0].tobytes(), want[2].tobytes()]
    assert found[2].tobytes() == noise(9, 1).tobytes()
    assert nvme.drive.check() == []


def test_zeroed_and_deallocated_blocks_take_no_flash(nvme):
    used = lambda: admin.decode(  # noqa: E731
        wire.IdentifyNamespace, nvme.admin(admin.identify(wire.Cns.CNS_NAMESPACE, 1)).data
    )["nuse"]
    nvme.ok(namespaces.write_blocks(10, noise(1, 20)))
    assert used() == 20
    nvme.ok(namespaces.write_zeroes(12, 3))
    nvme.ok(namespaces.deallocate([(20, 2), (29, 500)]))
    assert used() == 14
    found = nvme.ok(namespaces.read_blocks(10, 20)).data.reshape(20, -1)
    assert [bool(block.any()) for block in found] == [i not in (2, 3, 4, 10, 11, 19) for i in range(20)]


def test_compare_verify_and_copy(nvme):
    data = noise(1, 8)
    nvme.ok(namespaces.write_blocks(10, data))
    nvme.ok(namespaces.verify_blocks(10, 8))
    nvme.ok(namespaces.compare_blocks(10, data))
    wrong = data.copy()
    wrong[5 * 4096 + 7] ^= 1
    assert nvme.send(namespaces.compare_blocks(10, wrong)).status == SC.SC_COMPARE_FAILURE
    nvme.ok(namespaces.copy_blocks([(14, 4), (10, 2)], 100))
    blocks = data.reshape(8, -1)
    want = np.concatenate([blocks[4:8], blocks[:2]]).tobytes()
    assert nvme.ok(namespaces.read_blocks(100, 6)).data.tobytes() == want
    nvme.ok(namespaces.copy_blocks([(10, 8)], 12))  # source and target overlap
    assert nvme.ok(namespaces.read_blocks(12, 8)).data.tobytes() == data.tobytes()
    assert nvme.drive.check() == []


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (namespaces.copy_blocks([(0, 1)] * (wire.MAX_COPY_RANGES + 1), 0), SC.SC_COMMAND_SIZE_LIMIT),
        (namespaces.copy_blocks([(0, wire.MAX_COPY_RANGE_BLOCKS + 1)], 0), SC.SC_COMMAND_SIZE_LIMIT),
        (namespaces.copy_blocks([(0, 256)] * 17, 0), SC.SC_COMMAND_SIZE_LIMIT),
        (namespaces.copy_blocks([(0, 1), (BLOCKS, 1)], 0), SC.SC_LBA_OUT_OF_RANGE),
        (namespaces.copy_blocks([(0, 2)], BLOCKS - 1), SC.SC_LBA_OUT_OF_RANGE),
        (namespaces.verify_blocks(BLOCKS - 1, 2), SC.SC_LBA_OUT_OF_RANGE),
        (namespaces.compare_blocks(BLOCKS, np.zeros(4096, np.uint8)), SC.SC_LBA_OUT_OF_RANGE),
    ],
)
def test_copies_that_cannot_be_change_nothing(nvme, command, status):
    nvme.ok(namespaces.write_blocks(0, noise(2, 4)))
    assert nvme.send(command).status == status
    assert nvme.ok(namespaces.read_blocks(0, 4)).data.tobytes() == noise(2, 4).tobytes()


def test_block_commands_are_refused(nvme):
    assert nvme.send(namespaces.read_blocks(BLOCKS - 1, 2)).status == SC.SC_LBA_OUT_OF_RANGE
    assert nvme.send(namespaces.read_blocks(1 << 60, 1)).status == SC.SC_LBA_OUT_OF_RANGE
    assert nvme.send(namespaces.deallocate([(0, 1), (BLOCKS, 1)])).status == SC.SC_LBA_OUT_OF_RANGE
    short = admin.command(wire.NvmOpcode.NVM_WRITE, nsid=1, cdw12=1, data=noise(0, 1))
    assert nvme.send(short).status == S.DATA_LENGTH
    assert nvme.send(admin.command(wire.NvmOpcode.NVM_READ, nsid=1, cdw12=1, room=4096)).status == S.DATA_LENGTH
    nvme.drive.inject("full", 1)
    assert nvme.send(namespaces.write_blocks(0, noise(0, 4))).status == S.CAPACITY_EXCEEDED
    assert not nvme.ok(namespaces.read_blocks(0, 4)).data.any()
    assert nvme.drive.check() == []


def test_what_was_acknowledged_as_durable_survives_a_power_cut(make_nvme, tmp_path):
    nvme = make_nvme()
    nvme.ok(namespaces.write_blocks(7, noise(1, 2), fua=True))
    nvme.ok(namespaces.write_blocks(8, noise(2, 1)))
    nvme.ok(admin.command(wire.NvmOpcode.NVM_FLUSH, nsid=wire.NSID_ALL))
    nvme.admin(admin.set_feature(wire.Feature.FEATURE_WRITE_CACHE, 0))
    nvme.ok(namespaces.write_blocks(9, noise(3, 1)))  # durable at once
    nvme.admin(admin.set_feature(wire.Feature.FEATURE_WRITE_CACHE, 1))
    nvme.ok(namespaces.write_blocks(7, noise(4, 1)))
    nvme.drive.inject("power_cut")
    nvme.close()
    reopened = make_nvme()
    found = reopened.ok(namespaces.read_blocks(7, 3)).data
    assert found.tobytes() == noise(1, 2)[:4096].tobytes() + noise(2, 1).tobytes() + noise(3, 1).tobytes()
    assert reopened.drive.check() == []


def test_a_damaged_block_is_reported_and_raises_an_event(nvme):
    nvme.ok(namespaces.write_blocks(0, noise(1, 1000)))
    nvme.admin(admin.set_feature(wire.Feature.FEATURE_ASYNC_EVENTS, 0x4))
    event = nvme.pairs.submit(0, admin.command(wire.AdminOpcode.ASYNC_EVENT_REQUEST).entry)
    nvme.drive.inject("read_uncorrectable")
    assert nvme.send(namespaces.read_blocks(0, 16)).status == S.UNRECOVERED_READ
    entry, _ = nvme.pairs.wait(event)
    assert int(np.frombuffer(entry, abi.Cqe)["result"][0]) == 1 | wire.LogPage.LOG_SMART << 16
    smart = admin.decode(wire.SmartLog, nvme.admin(admin.get_log_page(wire.LogPage.LOG_SMART, 512)).data)
    assert smart["media_errors"] >= 1
    assert smart["critical_warning"] == 0x4


def test_drive_memory(nvme):
    data = noise(1, 2)
    nvme.ok(namespaces.write_memory(64, data))
    nvme.ok(namespaces.fill_memory(64 + 4096, 8, 0xDEADBEEF))
    data[4096:4104] = np.frombuffer(b"\xef\xbe\xad\xde" * 2, np.uint8)
    assert nvme.ok(namespaces.read_memory(64, data.size)).data.tobytes() == data.tobytes()
    size = admin.decode(wire.MemoryNamespace, nvme.admin(admin.identify(wire.Cns.CNS_CSI_NAMESPACE, 2, 3)).data)["nsze"]
    assert nvme.send(namespaces.read_memory(size - 4, 8)).status == SC.SC_LBA_OUT_OF_RANGE
    assert nvme.send(namespaces.read_memory(2, 4)).status == S.INVALID_FIELD


def place_job(nvme, start, q, k, v):
    """An EXACT job with its arrays in the drive's memory; addresses count from `start`. Returns where the output is."""
    parts, at = [], 128 + abi.AttentionResult.itemsize
    job = np.zeros((), abi.AttentionJob)
    for name, array in (("q", q), ("k", k), ("v", v)):
        job[name], at = at, at + array.nbytes
        parts.append(array.reshape(-1).view(np.uint8))
    job["version"], job["group"], job["head_dim"], job["tokens"] = abi.ABI_VERSION, q.shape[0], q.shape[1], len(k)
    job["scale_log2e"], job["result"], job["out"] = golden.scale_bits(None, q.shape[1]), 128, at
    record = np.zeros(abi.AttentionResult.itemsize, np.uint8)
    nvme.ok(namespaces.write_memory(start, np.concatenate([np.frombuffer(job.tobytes(), np.uint8), record, *parts])))
    return start + at


def test_a_program_runs_a_job_in_drive_memory(nvme):
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((n, 64)).astype(np.float16) for n in (4, 96, 96))
    start, length = 4096, 1 << 16
    memory_range = nvme.admin(namespaces.create_memory_range(start, length)).result
    out = place_job(nvme, start, q, k, v)
    assert nvme.ok(namespaces.execute_program(wire.Program.PROGRAM_DENSE, memory_range, 0)).result == 0
    found = nvme.ok(namespaces.read_memory(out, q.nbytes)).data
    assert found.tobytes() == golden.attention(q, k, v, scale_log2e=golden.scale_bits(None, 64)).out.tobytes()

    def run(program=wire.Program.PROGRAM_DENSE, number=memory_range, job=0):
        return nvme.send(namespaces.execute_program(program, number, job))

    assert run(program=wire.Program.PROGRAM_PARTIAL).status == S.INVALID_FIELD  # the job has another mode
    assert run(program=9).status == SC.SC_INVALID_PROGRAM_INDEX
    assert run(number=memory_range + 1).status == SC.SC_INVALID_MEMORY_RANGE_SET_ID
    assert run(job=length - 64).status == SC.SC_INVALID_MEMORY_RANGE_SET
    nvme.ok(namespaces.fill_memory(start + 8, 4, 1 << 30))  # tokens
    refused = run()
    assert (refused.status, refused.result & abi.Status.BAD_LENGTH) == (S.JOB_REFUSED, abi.Status.BAD_LENGTH)
    assert nvme.admin(namespaces.delete_memory_range(memory_range)).status == 0
    assert nvme.admin(namespaces.delete_memory_range(memory_range)).status == SC.SC_INVALID_MEMORY_RANGE_SET_ID
    assert run().status == SC.SC_INVALID_MEMORY_RANGE_SET_ID


def test_programs_are_activated_and_deactivated(nvme):
    rng = np.random.default_rng(6)
    rows, q = rng.standard_normal((1, 40, 64)).astype(np.float16), rng.standard_normal((1, 2, 64)).astype(np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(1, 0, 0, kind, 0, sequence, rows))
    submit = commands.attn_submit(1, 0, 0, q, 40, golden.scale_bits(None, 64))
    assert nvme.admin(namespaces.activate_program(wire.Program.PROGRAM_DENSE, False)).status == 0
    assert nvme.send(submit).status == SC.SC_PROGRAM_NOT_ACTIVATED
    assert nvme.admin(namespaces.activate_program(wire.Program.PROGRAM_DENSE, True)).status == 0
    ticket = nvme.ok(submit).result
    done = nvme.ok(commands.attn_fetch(ticket, *q.shape))
    want = golden.attention(q[0], rows[0], rows[0], scale_log2e=golden.scale_bits(None, 64))
    assert commands.attention_result(done.data, *q.shape).out[0].tobytes() == want.out.tobytes()
    assert nvme.admin(admin.command(wire.AdminOpcode.LOAD_PROGRAM)).status == SC.SC_PROGRAM_NOT_DOWNLOADABLE
