# SPDX-License-Identifier: Apache-2.0
"""Admin commands through real rings: reading and changing the drive's properties."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme import admin, namespaces, wire

S, SC, A = abi.NvmeStatus, wire.StatusCode, wire.AdminOpcode


def test_identify_controller(nvme):
    found = admin.decode(wire.IdentifyController, nvme.admin(admin.identify(wire.Cns.CNS_CONTROLLER)).data)
    assert (found["sn"], found["engine"], found["preset"]) == ("TEST0001", "fast", "970pro")
    assert found["subnqn"] == nvme.subsystem.nqn
    assert (found["ver"], found["nn"], found["sqes"], found["cqes"]) == (wire.VERSION_2_1, 4, 0x66, 0x44)
    assert found["cntlid"] == 1
    assert found["vwc"] & 1
    assert found["tnvmcap"] == found["kv_capacity_bytes"] == 1 << 26


def test_namespaces_and_their_command_sets(nvme):
    active = nvme.admin(admin.identify(wire.Cns.CNS_ACTIVE_NAMESPACES)).data.view(np.uint32)
    assert active[:5].tolist() == [1, 2, 3, 4, 0]
    sets = wire.CommandSet
    for nsid, csi in enumerate((sets.CSI_NVM, sets.CSI_MEMORY, sets.CSI_PROGRAMS, sets.CSI_KEY_VALUE), 1):
        descriptors = nvme.admin(admin.identify(wire.Cns.CNS_NAMESPACE_DESCRIPTORS, nsid)).data
        assert descriptors[:2].tolist() == [2, 16]  # NGUID
        assert descriptors[20:25].tolist() == [4, 1, 0, 0, csi]
        assert descriptors[25:].sum() == 0
        of_set = nvme.admin(admin.identify(wire.Cns.CNS_CSI_ACTIVE_NAMESPACES, 0, csi)).data.view(np.uint32)
        assert of_set[:2].tolist() == [nsid, 0]
        independent = nvme.admin(admin.identify(wire.Cns.CNS_INDEPENDENT_NAMESPACE, nsid)).data
        assert admin.decode(wire.IndependentNamespace, independent)["nstat"] == 1
        assert nvme.admin(admin.identify(wire.Cns.CNS_CSI_NAMESPACE, nsid, csi)).status == 0
        assert nvme.admin(admin.identify(wire.Cns.CNS_CSI_NAMESPACE, nsid, 2)).status == SC.SC_BAD_COMMAND_SET
    sets = nvme.admin(admin.identify(wire.Cns.CNS_COMMAND_SETS)).data.view(np.uint64)
    assert sets[:2].tolist() == [0b11011, 0]
    block = admin.decode(wire.IdentifyNamespace, nvme.admin(admin.identify(wire.Cns.CNS_NAMESPACE, 1)).data)
    assert (block["nsze"], block["lbaf"][0] >> 16 & 0xFF) == ((1 << 26) // 4096, 12)


@pytest.mark.parametrize(
    ("cns", "nsid", "status"),
    [
        (wire.Cns.CNS_NAMESPACE, 0, S.INVALID_NAMESPACE),
        (wire.Cns.CNS_NAMESPACE, 5, S.INVALID_NAMESPACE),
        (wire.Cns.CNS_NAMESPACE, 2, S.INVALID_FIELD),
        (wire.Cns.CNS_ACTIVE_NAMESPACES, 0xFFFFFFFE, S.INVALID_NAMESPACE),
        (0x55, 0, S.INVALID_FIELD),
    ],
)
def test_identify_is_refused(nvme, cns, nsid, status):
    assert nvme.admin(admin.identify(cns, nsid)).status == status


def test_features(nvme):
    F = wire.Feature
    assert nvme.admin(admin.get_feature(F.FEATURE_WRITE_CACHE)).result == 1
    assert nvme.admin(admin.set_feature(F.FEATURE_WRITE_CACHE, 0)).status == 0
    assert nvme.admin(admin.get_feature(F.FEATURE_WRITE_CACHE)).result == 0
    assert nvme.admin(admin.get_feature(F.FEATURE_WRITE_CACHE, 1)).result == 1  # default
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 0x00070007)).result == 0x00070007
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 0x01000100)).result == 0x003F003F
    assert nvme.admin(admin.set_feature(F.FEATURE_WRITE_CACHE, 2)).status == S.INVALID_FIELD
    assert nvme.admin(admin.set_feature(F.FEATURE_QUEUES, 1, save=True)).status == SC.SC_FEATURE_NOT_SAVEABLE
    assert nvme.admin(admin.set_feature(F.FEATURE_WRITE_ATOMICITY, 1)).status == SC.SC_FEATURE_NOT_CHANGEABLE
    assert nvme.admin(admin.set_feature(0x7E, 1)).status == S.INVALID_FIELD
    stamp = np.frombuffer((1_700_000_000_000).to_bytes(8, "little"), np.uint8)
    assert nvme.admin(admin.set_feature(F.FEATURE_TIMESTAMP, data=stamp)).status == 0
    read = nvme.admin(admin.get_feature(F.FEATURE_TIMESTAMP, room=8)).data.view(np.uint64)[0]
    assert 0 <= (int(read) & (1 << 48) - 1) - 1_700_000_000_000 < 60_000
    nvme.admin(admin.set_feature(F.FEATURE_KEEP_ALIVE, 15_000))
    assert nvme.admin(admin.get_feature(F.FEATURE_KEEP_ALIVE)).result == 15_000


def test_a_saved_feature_survives_a_power_cut(make_nvme):
    nvme = make_nvme()
    assert nvme.admin(admin.set_feature(wire.Feature.FEATURE_ERROR_RECOVERY, 7, save=True)).status == 0
    nvme.drive.inject("power_cut")
    nvme.close()
    assert make_nvme().admin(admin.get_feature(wire.Feature.FEATURE_ERROR_RECOVERY)).result == 7


def test_log_pages(nvme):
    L = wire.LogPage
    pages = nvme.admin(admin.get_log_page(L.LOG_SUPPORTED_PAGES, 1024)).data.view(np.uint32)
    assert np.flatnonzero(pages).tolist() == sorted(L)
    nvme.send(admin.command(0x33, nsid=1))
    nvme.send(admin.command(0x35, nsid=3))
    errors = nvme.admin(admin.get_log_page(L.LOG_ERRORS, 128)).data.view(wire.ErrorEntry)
    assert errors["count"].tolist() == [2, 1]
    assert errors["opcode"].tolist() == [0x35, 0x33]
    assert (errors["status"] >> 1 & 0x7FF).tolist() == [S.INVALID_OPCODE] * 2
    smart = admin.decode(wire.SmartLog, nvme.admin(admin.get_log_page(L.LOG_SMART, 512)).data)
    assert (smart["error_entries"], smart["spare_percent"], smart["critical_warning"]) == (2, 100, 0)
    firmware = nvme.admin(admin.get_log_page(L.LOG_FIRMWARE, 512)).data
    assert (firmware[0], firmware[8:16].tobytes()) == (1, b"1.0     ")
    statistics = admin.decode(wire.DriveStatistics, nvme.admin(admin.get_log_page(L.LOG_STATISTICS, 512)).data)
    stats = nvme.drive.stats()
    assert {name: statistics[name] for name in stats} == stats
    programs = nvme.admin(admin.get_log_page(L.LOG_PROGRAMS, 320)).data.view(wire.ProgramDescriptor)
    names = [bytes(name).strip(b"\0") for name in programs["name"]]
    assert names == [b"DENSE", b"SPARF", b"PARTIAL", b"GROUPS", b"FFN"]
    whole = nvme.admin(admin.get_log_page(L.LOG_STATISTICS, 512)).data
    part = nvme.admin(admin.get_log_page(L.LOG_STATISTICS, 64, offset=448)).data
    assert part.tobytes() == whole[448:].tobytes()
    assert nvme.admin(admin.get_log_page(0x77, 512)).status == SC.SC_BAD_LOG_PAGE
    assert nvme.admin(admin.get_log_page(L.LOG_SMART, 512, offset=516)).status == S.INVALID_FIELD


def test_effects_log_is_true(nvme):
    """Commands that the log does not list are unknown opcodes; those that it lists are not."""
    for nsid, csi in ((1, 0), (2, 3), (3, 4), (4, 1)):
        log = nvme.admin(admin.get_log_page(wire.LogPage.LOG_COMMAND_EFFECTS, 4096, csi=csi)).data.view(np.uint32)
        for opcode in range(256):
            status = nvme.send(admin.command(opcode, nsid=nsid)).status
            unknown = status in (S.INVALID_OPCODE, S.INVALID_NAMESPACE)  # the latter: another namespace has it
            assert unknown == (log[256 + opcode] == 0), (nsid, hex(opcode), hex(status))
    skip = {A.ASYNC_EVENT_REQUEST, A.CREATE_SQ, A.CREATE_CQ, A.DELETE_SQ, A.DELETE_CQ, A.FORMAT_NVM}
    for opcode in set(range(256)) - skip:
        room = 4096 if opcode & 3 == 2 else 0
        status = nvme.admin(admin.command(opcode, room=room, nsid=1)).status
        assert (status == S.INVALID_OPCODE) == (log[opcode] == 0), (hex(opcode), hex(status))


def test_async_events_and_abort(nvme):
    pairs = nvme.pairs
    request = admin.command(A.ASYNC_EVENT_REQUEST)
    tickets = [pairs.submit(0, request.entry) for _ in range(wire.ASYNC_EVENT_LIMIT)]
    assert nvme.admin(request).status == SC.SC_ASYNC_EVENT_LIMIT
    # The identifier is in the low half of a ticket.
    aborted = nvme.admin(admin.command(A.ABORT, cdw10=(tickets[0] & 0xFFFF) << 16))
    assert aborted.result & 1 == 0
    entry, _ = pairs.wait(tickets[0])
    assert int(np.frombuffer(entry, abi.Cqe)["status"][0]) >> 1 & 0x7FF == SC.SC_ABORTED
    assert nvme.admin(admin.command(A.ABORT, cdw10=0xFFFF << 16)).result & 1 == 1
    assert not any(pairs.done(ticket) for ticket in tickets[1:])


def test_format_forgets_everything(nvme):
    nvme.ok(namespaces.write_blocks(3, np.full(4096, 7, np.uint8)))
    assert nvme.admin(admin.command(A.FORMAT_NVM, nsid=1, cdw10=1)).status == SC.SC_BAD_FORMAT
    assert nvme.admin(admin.command(A.FORMAT_NVM, nsid=2)).status == S.INVALID_NAMESPACE
    assert nvme.admin(admin.command(A.FORMAT_NVM, nsid=1)).status == 0
    assert not nvme.ok(namespaces.read_blocks(3, 1)).data.any()
    assert nvme.drive.sessions() == []
