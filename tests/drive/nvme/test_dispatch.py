# SPDX-License-Identifier: Apache-2.0
"""Every opcode on every queue and namespace: what no table lists is refused and changes nothing."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme import admin, commands, namespaces, wire

S, A = abi.NvmeStatus, wire.AdminOpcode
KV = {*abi.Opcode, wire.SessionOpcode.SESSION_ERASE} - {abi.Opcode.ATTN_SUBMIT, abi.Opcode.ATTN_FETCH}
IO = {
    1: {int(opcode) for opcode in KV | set(wire.NvmOpcode)},
    2: {int(opcode) for opcode in wire.MemoryOpcode},
    3: {int(abi.Opcode.ATTN_SUBMIT), int(abi.Opcode.ATTN_FETCH), int(wire.ProgramOpcode.EXECUTE_PROGRAM)},
}
REFUSALS = {S.INVALID_OPCODE, S.INVALID_NAMESPACE}
SESSION = 7


@pytest.fixture
def stored(nvme):
    """A drive with a session of 40 tokens, a block and memory; `unchanged` proves that they are still there."""
    rows = np.ones((1, 40, 64), np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(SESSION, 0, 0, kind, 0, sequence, rows))
    nvme.ok(namespaces.write_blocks(0, np.full(4096, 9, np.uint8)))
    nvme.ok(namespaces.write_memory(0, np.full(64, 8, np.uint8)))

    def unchanged():
        assert [head["tokens"] for head in nvme.drive.heads(SESSION)] == [40, 40]
        assert nvme.ok(namespaces.read_blocks(0, 1)).data.min() == 9
        assert nvme.ok(namespaces.read_memory(0, 64)).data.min() == 8

    nvme.unchanged = unchanged
    return nvme


@pytest.mark.parametrize("nsid", [0, 1, 2, 3, 4, 0xFFFFFFFE, 0xFFFFFFFF])
def test_io_opcodes_that_no_table_lists_are_refused(stored, nsid):
    flush = {int(wire.NvmOpcode.NVM_FLUSH)} if nsid == wire.NSID_ALL else set()
    for opcode in set(range(256)) - IO.get(nsid, flush):
        status = stored.send(admin.command(opcode, nsid=nsid, cdw2=SESSION)).status
        assert status in REFUSALS, (hex(opcode), hex(status))
    stored.unchanged()


@pytest.mark.parametrize("nsid", [0, 1, 2, 3, 4, 0xFFFFFFFF])
def test_the_drive_refuses_them_without_a_controller(stored, nsid):
    known = {1: IO[1], 3: IO[3] - {wire.ProgramOpcode.EXECUTE_PROGRAM}}.get(nsid, set())
    for opcode in set(range(256)) - known:
        entry, _ = stored.drive.submit(admin.command(opcode, nsid=nsid, cdw2=SESSION).entry)
        status = int(np.frombuffer(entry, abi.Cqe)["status"][0]) >> 1 & 0x7FF
        assert status in REFUSALS, (hex(opcode), hex(status))
    stored.unchanged()


def test_admin_opcodes_that_no_table_lists_are_refused(stored):
    for opcode in set(range(256)) - {int(opcode) for opcode in set(A) - {A.FABRICS}}:
        assert stored.admin(admin.command(opcode, nsid=1, cdw2=SESSION)).status == S.INVALID_OPCODE, hex(opcode)
    stored.unchanged()


def test_features_log_pages_and_identify_structures_that_nobody_knows_are_refused(stored):
    for feature in set(range(256)) - set(wire.Feature):
        for command in (admin.set_feature(feature, 1), admin.get_feature(feature)):
            assert stored.admin(command).status == S.INVALID_FIELD, hex(feature)
    for page in set(range(256)) - set(wire.LogPage):
        assert stored.admin(admin.get_log_page(page, 512)).status == wire.StatusCode.SC_BAD_LOG_PAGE, hex(page)
    for cns in set(range(256)) - set(wire.Cns):
        assert stored.admin(admin.identify(cns, 1)).status == S.INVALID_FIELD, hex(cns)
    for csi in set(range(256)) - set(wire.CommandSet):
        for cns in (wire.Cns.CNS_CSI_NAMESPACE, wire.Cns.CNS_CSI_CONTROLLER, wire.Cns.CNS_CSI_ACTIVE_NAMESPACES):
            status = stored.admin(admin.identify(cns, 1, csi)).status
            assert status == wire.StatusCode.SC_BAD_COMMAND_SET, (hex(csi), cns)
    stored.unchanged()
