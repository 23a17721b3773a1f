# SPDX-License-Identifier: Apache-2.0
"""Every opcode on every queue and namespace, compared with the drive's table. Unlisted commands change nothing."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import commands as native_commands
from kvdrive.nvme import admin, commands, namespaces, wire

S = abi.NvmeStatus
TABLE = native_commands()
IO = {nsid: {row["opcode"] for row in TABLE if row["nsid"] == nsid} for nsid in (1, 2, 3, 4)}
IO[wire.NSID_ALL] = {row["opcode"] for row in TABLE if row["broadcast"]}
ADMIN = {row["opcode"]: row for row in TABLE if row["nsid"] == 0}
REFUSALS = {S.INVALID_OPCODE, S.INVALID_NAMESPACE}
SESSION = 7


@pytest.fixture
def stored(nvme):
    """A drive with a session of 40 tokens, a block and memory. `unchanged` checks that all are unchanged."""
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


@pytest.mark.parametrize("nsid", [0, 1, 2, 3, 4, 5, 0xFFFFFFFE, 0xFFFFFFFF])
def test_io_opcodes_that_no_table_lists_are_refused(stored, nsid):
    everywhere = {opcode for nsid in (1, 2, 3, 4) for opcode in IO[nsid]}
    for opcode in set(range(256)) - IO.get(nsid, set()):
        status = stored.send(admin.command(opcode, nsid=nsid, cdw2=SESSION)).status
        foreign = nsid not in (1, 2, 3, 4) or opcode in everywhere
        assert status == (S.INVALID_NAMESPACE if foreign else S.INVALID_OPCODE), (hex(opcode), hex(status))
    stored.unchanged()


@pytest.mark.parametrize("nsid", [0, 1, 2, 3, 4, 5, 0xFFFFFFFF])
def test_the_drive_refuses_them_without_a_controller(stored, nsid):
    programs = IO[3] - {wire.ProgramOpcode.EXECUTE_PROGRAM}
    known = {1: IO[1], 3: programs, 4: IO[4], wire.NSID_ALL: IO[wire.NSID_ALL]}.get(nsid, set())
    for opcode in set(range(256)) - known:
        entry, _ = stored.drive.submit(admin.command(opcode, nsid=nsid, cdw2=SESSION).entry)
        status = int(np.frombuffer(entry, abi.Cqe)["status"][0]) >> 1 & 0x7FF
        assert status in REFUSALS, (hex(opcode), hex(status))
    stored.unchanged()


def test_listed_io_opcodes_are_known(stored):
    for nsid, opcodes in IO.items():
        for opcode in opcodes:
            status = stored.send(admin.command(opcode, nsid=nsid)).status
            assert status not in REFUSALS, (nsid, hex(opcode), hex(status))


def test_admin_opcodes_that_no_table_lists_are_refused(stored):
    for opcode in set(range(256)) - ADMIN.keys():
        assert stored.admin(admin.command(opcode, nsid=1, cdw2=SESSION)).status == S.INVALID_OPCODE, hex(opcode)
    stored.unchanged()


def plain(name):
    """An opcode's name without the prefix of its namespace."""
    return name.removeprefix("NVM_").removeprefix("VALUE_")


def test_the_table_agrees_with_the_hosts_opcodes():
    """The host's names of opcodes and the table's are the same."""
    names = {
        0: [wire.AdminOpcode],
        2: [wire.MemoryOpcode],
        3: [abi.Opcode, wire.ProgramOpcode],
    }
    names[1] = [abi.Opcode, wire.NvmOpcode]
    names[4] = [wire.NvmOpcode, wire.ValueOpcode]
    assert len({(row["nsid"], row["opcode"]) for row in TABLE}) == len(TABLE)
    assert len({row["name"] for row in TABLE}) == len(TABLE)
    for row in TABLE:
        known = {member.value: member.name for kind in names[row["nsid"]] for member in kind}
        assert plain(known[row["opcode"]]) == row["name"].removesuffix("_VALUES")  # FLUSH has two namespaces
        if row["direction"] != "none":
            assert row["direction"] == {1: "to_controller", 2: "to_host"}[row["opcode"] & 3]
    listed = {row["name"] for row in TABLE}
    for kind in (abi.Opcode, *(kind for nsid in (0, 1, 2, 3, 4) for kind in names[nsid])):
        missing = {plain(member.name) for member in kind} - listed
        assert missing <= {"FABRICS"}, missing  # the transport's own


def test_the_effects_log_is_the_table(nvme):
    for nsid, csi in ((1, 0), (2, 3), (3, 4), (4, 1)):
        log = nvme.admin(admin.get_log_page(wire.LogPage.LOG_COMMAND_EFFECTS, 4096, csi=csi)).data.view(np.uint32)
        want = np.zeros(1024, np.uint32)
        for row in TABLE:
            if row["nsid"] in (0, nsid):
                want[row["opcode"] + 256 * (row["nsid"] > 0)] = 1 | row["effects"]
        np.testing.assert_array_equal(log, want)


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
